"""The normal equations over states, ``A K^-1 A' V = rhs`` with ``A = Xi' - gamma P'``: where their entries lie.

They are formed and factored in C (src/native/factor.h), sparse in an order that keeps the fill small where the matrix
is sparse, else dense.  The pattern is analyzed once a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.mdp import Array, Indices

Whole = npt.NDArray[np.int32]

NONE = np.zeros(0, np.int32)
"""An array that is only to be counted, or that a dense matrix does not need."""

DENSE_SHARE = 0.5
"""From this share of entries on a dense factor is faster than a sparse one, which fills up.  On machines that wear (216
to 2401 states, 9 to 26 % of the entries) and on stock (2001 states, 24 %) a sparse one takes half as long."""
SMALL = 60
"""Up to here a dense factor takes a tenth of a millisecond."""
MOST_PLACES = 150_000_000
"""Entries of the table that says where products go; beyond, the matrix is nearly dense."""
MOST_STATES, DENSE_STATES = 1_500_000, 6000
"""Up to here factors fit: sparse ones, and dense ones."""
LONG_STATES = 50_000
"""From here on work may take longer than a fifth of a second, in which Ctrl-C and time limits have to be heard."""
SCALAR_SPEED, BLAS_SPEED = 1e9, 3e10
"""Multiplications a second in plain loops and in BLAS, for predictions."""


def seconds_a_factor(P: Any, first: Indices, of_states: bool) -> float:
    """Predict the time to form and factor the normal equations of a model once; inf where they would not fit.

    A sparse factor of a model whose states have neighbours as in a plane takes about as long as ``10 S^1.5``
    multiplications where a state shares 25 entries (measured on grids and tandem queues of 625 to 40 000 states).
    Where limits are ``of_states``, all states that a state's pairs reach enter each product.
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
        sparse = 10 * S**1.5 * max(shared / 25, 0.1) ** 1.5 / SCALAR_SPEED
    return forming + min(dense, sparse)


def reached_states(P: Any, owner: Indices, initial: Array) -> Indices:
    """Return the states that pairs with rows P and these owners reach from where the process begins, sorted."""
    S = initial.size
    begun = np.flatnonzero(initial > 0)
    if begun.size == S:
        return begun
    from cvxmdp import _path

    P = P if sp.issparse(P) else sp.csr_array(P)
    starts, columns = P.indptr.astype(np.int32, copy=False), P.indices.astype(np.int32, copy=False)
    seen = np.empty(S, np.int32)
    _path.visit(np.searchsorted(owner, np.arange(S + 1)), starts, columns, begun, seen)
    return np.flatnonzero(seen)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where the entries of the equations of a model lie, or of some of its pairs and states; read by ``_path.Core``."""

    owner: Indices
    first: Indices
    starts: Whole
    """Rows of ``A' = Xi - gamma P``, a pair each: where they start, their columns and values."""
    columns: Whole
    values: Array
    local: Whole
    """For each entry of a row: the number of its state among those that the row's own state reaches."""
    reached_starts: Whole
    reached: Whole
    """Which states the pairs of each state reach, itself included."""
    order: Whole | None
    """In which order states are eliminated; None where the matrix is dense."""
    upper_starts: Whole
    upper_rows: Whole
    """The upper triangle by columns."""
    place: Whole
    """Where the product of each two states lies in it that a state reaches."""

    @property
    def num_states(self) -> int:
        """How many states there are."""
        return int(self.first.size - 1)

    @classmethod
    def of(cls, P: Any, owner: Indices, num_states: int, gamma: float) -> Pattern:
        """Analyze the rows P of pairs sorted by their state."""
        from cvxmdp import _path

        P, S = sp.csr_array(P), num_states
        if not P.has_sorted_indices:
            P = P.sorted_indices()
        first = np.searchsorted(owner, np.arange(S + 1)).astype(np.int64)
        most = P.nnz + owner.size
        starts, columns, values = np.empty(owner.size + 1, np.int32), np.empty(most, np.int32), np.empty(most)
        given = (P.indptr.astype(np.int32, copy=False), P.indices.astype(np.int32, copy=False), P.data)
        entries = _path.rows(*given, first, gamma, starts, columns, values)
        columns, values = columns[:entries], values[:entries]
        reached_starts, reached, local = np.empty(S + 1, np.int32), np.empty(entries, np.int32), np.empty_like(columns)
        reached = reached[: _path.reach(first, starts, columns, reached_starts, reached, local)]
        rows = (owner, first, starts, columns, values, local, reached_starts, reached)
        sizes = np.diff(reached_starts).astype(np.int64)
        few = int(DENSE_SHARE * S * S + S) // 2 if S <= DENSE_STATES else MOST_PLACES
        upper_starts = np.empty(S + 1, np.int32)
        if S <= SMALL or np.sum(sizes**2) > MOST_PLACES:
            entries = -1
        else:
            entries = _path.couple(reached_starts, reached, few, upper_starts, NONE)
        if entries < 0:
            return cls(*rows, None, NONE, NONE, NONE)
        upper_rows, place = np.empty(entries, np.int32), np.empty(int(np.sum(sizes * (sizes + 1) // 2)), np.int32)
        _path.couple(reached_starts, reached, few, upper_starts, upper_rows)
        _path.places(reached_starts, reached, upper_starts, upper_rows, place)
        return cls(*rows, minimum_degree(upper_starts, upper_rows)[0], upper_starts, upper_rows, place)

    def back(self, V: Array) -> Array:
        """Return ``A'V``."""
        return np.add.reduceat(self.values * V[self.columns], self.starts[:-1])

    def per_state(self, x: Array) -> Array:
        """Return sums over the pairs of each state."""
        return np.add.reduceat(x, self.first[:-1])


def minimum_degree(starts: Whole, columns: Whole, most_work: float = np.inf) -> tuple[Whole, float]:
    """Return an order of elimination that keeps the fill small, by approximate minimum degree, and its multiplications.

    The graph is given by the neighbours of each state, where one direction of an edge is enough.  Where the work is
    more than ``most_work``, neither is complete.
    """
    from cvxmdp import _path

    order = np.empty(starts.size - 1, np.int32)
    if order.size <= LONG_STATES:
        return order, _path.order(starts, columns, most_work, order)
    return order, interrupts.patiently(lambda: _path.order(starts, columns, most_work, order))
