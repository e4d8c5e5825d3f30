"""The normal equations over states, ``A K^-1 A' V = rhs`` with ``A = Xi' - gamma P'``, formed and factored.

K is positive definite over pairs: a diagonal, plus ``stiffness_s 1 1'`` over the pairs of a state s.  With W the
inverse of the diagonal, what the pairs of a state have in common, their mean weighted by W, counts only
``1 / (1 + stiffness total W)`` times; it is never subtracted, so that nothing cancels (gram.py).

The pattern is analyzed once a model.  Factors are sparse (qdldl, which keeps its order and its symbolic factor) where
the matrix is, else dense.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import qdldl
import scipy.linalg as la
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order

from cvxmdp.mdp import Array, Indices

DENSE_SHARE = 0.03
"""From this share of entries on a dense factor is faster than a sparse one, which fills up: on machines that wear (256
to 4096 states, 8 to 24 % of the entries) a sparse factor takes three to forty times as long."""
SPARSE_ENTRIES = 30
"""Up to so many entries a state sparse factors are faster in small models, too (grids of 15 x 15: 0.1 ms)."""
SMALL = 60
"""Up to here a dense factor takes a tenth of a millisecond."""
MOST_PLACES = 60_000_000
"""Entries of the table that says where products go; beyond, the matrix is nearly dense."""
LIFTS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8)
"""Added to the diagonal, relatively, where rounding leaves the matrix not positive definite."""
MOST_STATES, DENSE_STATES = 150_000, 6000
"""Up to here factors fit and take seconds: sparse ones, and dense ones."""
SCALAR_SPEED, BLAS_SPEED = 1e9, 3e10
"""Multiplications a second in plain loops and in BLAS, for predictions."""


def seconds_a_factor(P: Any, first: Indices, of_states: bool) -> float:
    """Predict the time to form and factor the normal equations of a model once; inf where they would not fit.

    A sparse factor of a model whose states have neighbours as in a plane takes about ``100 S^1.5`` multiplications
    where a state shares 25 entries (measured on grids and tandem queues of 625 to 40 000 states).  Where limits are
    ``of_states``, all states that a state's pairs reach enter each product.
    """
    pairs, S = P.shape
    a_row = np.diff(P.indptr) + 1.0 if sp.issparse(P) else np.full(pairs, float(S))
    forming = float(np.sum(a_row**2)) / SCALAR_SPEED
    if of_states:
        reached = np.minimum(np.add.reduceat(a_row, first[:-1]), S)
        forming = 4 * forming + float(np.sum(reached**2)) / SCALAR_SPEED
    shared = float(np.mean(a_row)) ** 2
    dense = S**3 / 3 / BLAS_SPEED if S <= DENSE_STATES else np.inf
    sparse = np.inf
    if shared <= 0.5 * S and S <= MOST_STATES:
        sparse = 100 * S**1.5 * max(shared / 25, 0.1) ** 1.5 / SCALAR_SPEED
    return forming + min(dense, sparse)


def reached_states(P: Any, owner: Indices, initial: Array) -> Indices:
    """Return the states that pairs with rows P and these owners reach from where the process begins, sorted."""
    S = initial.size
    begun = np.flatnonzero(initial > 0)
    if begun.size == S:
        return begun
    P = sp.csr_array(P)
    # One more state leads to those the process begins in.
    rows = np.append(np.repeat(owner, np.diff(P.indptr)), np.full(begun.size, S))
    graph = sp.csr_array((np.ones(rows.size), (rows, np.append(P.indices, begun))), shape=(S + 1, S + 1))
    order = breadth_first_order(graph, S, return_predecessors=False)
    return np.sort(order[order < S]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where the entries of the equations of a model lie, or of some of its pairs and states."""

    A: Any
    """``Xi' - gamma P'``, states x pairs."""
    rows: Any
    """Its transpose."""
    owner: Indices
    first: Indices
    local: npt.NDArray[np.int32]
    """For each entry of a row: the number of its state among those that the row's own state reaches."""
    reached: Any
    """Which states the pairs of each state reach, itself included."""
    upper: Any
    """The upper triangle by columns, or None where the matrix is dense."""
    place: npt.NDArray[np.int32] | None

    @property
    def num_states(self) -> int:
        """How many states there are."""
        return int(self.first.size - 1)

    @classmethod
    def of(cls, P: Any, owner: Indices, num_states: int, gamma: float) -> Pattern:
        """Analyze the rows P of pairs sorted by their state."""
        pairs = owner.size
        Xi = sp.csr_array((np.ones(pairs), (np.arange(pairs), owner)), shape=(pairs, num_states))
        rows = sp.csr_array(Xi - gamma * sp.csr_array(P))
        rows.sort_indices()
        first = np.searchsorted(owner, np.arange(num_states + 1)).astype(np.int64)
        ones = sp.csr_array((np.ones(rows.nnz), rows.indices, rows.indptr), shape=rows.shape)
        reached = sp.csr_array(Xi.T @ ones)
        reached.sort_indices()
        state = np.repeat(owner, np.diff(rows.indptr)).astype(np.int64)
        sizes = np.diff(reached.indptr).astype(np.int64)
        keys = np.repeat(np.arange(num_states, dtype=np.int64), sizes) * num_states + reached.indices
        local = np.searchsorted(keys, state * num_states + rows.indices) - reached.indptr[state]
        upper, place = None, None
        if num_states > SMALL and np.sum(sizes**2) <= MOST_PLACES:
            shape = (num_states, num_states)
            by_column = sp.csc_array((np.ones(reached.nnz), reached.indices, reached.indptr), shape=shape)
            product = by_column @ by_column.T
            few = max(DENSE_SHARE * num_states, SPARSE_ENTRIES) * num_states
            if product.nnz <= few or num_states > DENSE_STATES:
                from cvxmdp.dynamics import gram

                upper = sp.csc_matrix(sp.triu(product, format="csc"))
                upper.sort_indices()
                place = np.empty(int(np.sum(sizes * (sizes + 1) // 2)), dtype=np.int32)
                gram.places(reached.indptr, reached.indices, upper.indptr, upper.indices, place)
        return cls(sp.csr_array(rows.T), rows, owner, first, local.astype(np.int32), reached, upper, place)

    def flow(self, x: Array) -> Array:
        """Return ``A x``."""
        from cvxmdp.dynamics import gram

        return np.asarray(gram.times(self.A.indptr, self.A.indices, self.A.data, x))

    def back(self, V: Array) -> Array:
        """Return ``A'V``."""
        from cvxmdp.dynamics import gram

        return np.asarray(gram.times(self.rows.indptr, self.rows.indices, self.rows.data, V))

    def per_state(self, x: Array) -> Array:
        """Return sums over the pairs of each state."""
        return np.add.reduceat(x, self.first[:-1])


class Normal:
    """The equations of one solve: their matrix and its factor are made anew for every W."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        S = pattern.num_states
        if pattern.upper is not None:
            upper = pattern.upper
            self._matrix = sp.csc_matrix((np.empty(upper.nnz), upper.indices, upper.indptr), shape=upper.shape)
            self._corners = upper.indptr[1:] - 1
        else:
            self._matrix = np.empty((S, S))
        self._solver: Any = None
        self._solve: Callable[[Array], Array]

    def factor(self, W: Array, stiffness: Array | None, shift: Array) -> None:
        """Form and factor the matrix, with a shift added to its diagonal."""
        from cvxmdp.dynamics import gram

        pattern = self.pattern
        rows, reached = pattern.rows, pattern.reached
        soft = np.ones(pattern.num_states)
        if stiffness is not None:
            soft = 1 / (1 + stiffness * pattern.per_state(W))
        known = (pattern.first, rows.indptr, pattern.local, rows.data, reached.indptr)
        if pattern.upper is not None:
            gram.sparse_gram(*known, pattern.place, W, soft, self._matrix.data)
        else:
            gram.dense_gram(*known, reached.indices, W, soft, self._matrix)
        for lift in LIFTS:
            if self._factored(lift, shift):
                return
        raise la.LinAlgError("the normal equations are singular")

    def _factored(self, lift: float, shift: Array) -> bool:
        """Try to factor the matrix with a lift."""
        if self.pattern.upper is None:
            # Row by row the lower triangle is the upper one column by column, as LAPACK likes it.
            tried = self._matrix.T.copy(order="F")
            corners = np.einsum("ii->i", tried)
            corners *= 1 + lift
            corners += shift
            upper, info = la.lapack.dpotrf(tried, lower=0, overwrite_a=1, clean=0)
            self._solve = lambda rhs: np.asarray(la.lapack.dpotrs(upper, rhs, lower=0)[0])
            return bool(info == 0)
        data = self._matrix.data
        before = data[self._corners]
        data[self._corners] = before * (1 + lift) + shift
        try:
            if self._solver is None:
                self._solver = qdldl.Solver(self._matrix, upper=True)
            else:
                self._solver.update(self._matrix, upper=True)
        except (RuntimeError, ValueError, ArithmeticError):  # a pivot is zero
            self._solver, data[self._corners] = None, before
            return False
        self._solve = self._solver.solve
        return True

    def solve(self, rhs: Array) -> Array:
        """Solve for one right side, or for each column."""
        if rhs.ndim == 1:
            return np.asarray(self._solve(rhs))
        return np.stack([self._solve(np.ascontiguousarray(column)) for column in rhs.T]).T
