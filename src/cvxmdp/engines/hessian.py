"""The linear algebra of Newton steps over the occupancies: a Hessian over pairs and the flow equations.

The Hessian is a diagonal plus few or disjoint columns, so that its inverse is known and the system reduces to one over
states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from cvxmdp.blocks import Response
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.dynamics.linear import Operator
from cvxmdp.mdp import Array

REFINEMENTS = 1
"""How often Newton's system is solved again for what rounding left."""
FEW_COLUMNS = 100
"""Up to here the columns of a Hessian are kept apart from a sparse matrix."""
LIFTS = (1e-15, 1e-13, 1e-11, 1e-9, 1e-7)
"""What is added to the diagonal, relatively, of a matrix that rounding left not positive definite."""


class Hessian:
    """``diag + G G' + U signs U'``: G has disjoint columns and is sparse, U has few columns and is dense.

    Woodbury's formula inverts it twice: with ``W = 1 / diag`` the first two parts have the inverse
    ``W - W G (1 + G'W G)^-1 G'W``, where the middle is diagonal, and U is taken off that in the same way.
    """

    def __init__(self, responses: Sequence[Response], floor: float) -> None:
        self.W = 1 / (floor + np.sum([r.diagonal for r in responses], axis=0))
        self.G: Any = None
        columns, signs = [], []
        for response in responses:
            factor = response.factor
            if sp.issparse(factor) and (both := _disjoint(self.G, factor)) is not None:
                self.G = both
            elif factor is not None and factor.shape[1]:
                columns.append(factor.toarray() if sp.issparse(factor) else factor)
                signs.append(np.ones(factor.shape[1]) if response.signs is None else response.signs)
            if response.more is not None:
                columns.append(response.more)
                signs.append(np.ones(response.more.shape[1]))
        if self.G is not None:
            self.WG = self.G * self.W[:, None]
            self.middle = 1.0 + np.asarray((self.G * self.WG).sum(axis=0)).ravel()
        self.U: Any = np.hstack(columns) if columns else None
        if self.U is not None:
            self.signs = np.concatenate(signs)
            self.HU = np.stack([self._first(u) for u in self.U.T], axis=1)
            self.inner = np.diag(self.signs) + self.U.T @ self.HU
            self.small = la.lu_factor(self.inner, check_finite=False)

    def apply(self, x: Array) -> Array:
        """Return ``H x``."""
        out = x / self.W
        if self.G is not None:
            out = out + self.G @ (self.G.T @ x)
        return out if self.U is None else np.asarray(out + self.U @ (self.signs * (self.U.T @ x)))

    def _first(self, x: Array) -> Array:
        """Return ``(diag + G G')^-1 x``."""
        out = self.W * x
        return out if self.G is None else np.asarray(out - self.WG @ ((self.G.T @ out) / self.middle))

    def solve(self, x: Array) -> Array:
        """Return ``H^-1 x``."""
        out = self._first(x)
        if self.U is not None:
            out = out - self.HU @ la.lu_solve(self.small, self.U.T @ out, check_finite=False)
        return out


class System:
    """Newton's system ``[H M; M' 0]``, reduced to ``M'H^-1 M V = rhs`` over states and factored."""

    def __init__(self, H: Hessian, dynamics: Dynamics) -> None:
        self.H, self.dynamics = H, dynamics
        self.reduced = self._factor()

    def solve(self, force: Array, missing: Array) -> tuple[Array, Array]:
        """Operator ``H x + M V = force``, ``flow(x) = missing``."""
        H, dynamics = self.H, self.dynamics
        zero, x, V = np.zeros_like(force), np.zeros_like(force), np.zeros(dynamics.num_states)
        for _ in range(1 + REFINEMENTS):
            rest = force - H.apply(x) - dynamics.advantage(zero, V)
            more = self.reduced(missing - dynamics.flow(x) - dynamics.flow(H.solve(rest)))
            V = V + more
            x = x + H.solve(rest - dynamics.advantage(zero, more))
        return x, V

    def _factor(self) -> Operator:
        H, dynamics = self.H, self.dynamics
        K = dynamics.gram(H.W)
        if H.G is not None:
            B = dynamics.flows(H.WG)
            if sp.issparse(K):
                K = K - (B / H.middle) @ B.T
            else:
                take_off(K, (B.toarray() if sp.issparse(B) else B) / np.sqrt(H.middle))
        if H.U is None:
            return factor(dynamics, K)
        B = dynamics.flows(H.HU)
        if sp.issparse(K) and B.shape[1] <= FEW_COLUMNS:
            # A sparse factor is kept sparse: Woodbury's formula once more.
            solve = factor(dynamics, K)
            KB = solve(B)
            rest = la.lu_factor(H.inner - B.T @ KB, check_finite=False)
            return lambda rhs: np.asarray((x := solve(rhs)) + KB @ la.lu_solve(rest, B.T @ x, check_finite=False))
        K = K.toarray() if sp.issparse(K) else K
        return factor(dynamics, K - B @ la.lu_solve(H.small, B.T, check_finite=False))


def take_off(K: Array, B: Array) -> None:
    """Take ``B B'`` off the lower triangle of K, in place where both lie in memory row by row."""
    # The lower triangle row by row is the upper one column by column, which BLAS writes into.
    taken = la.blas.dsyrk(-1.0, np.ascontiguousarray(B.T).T, beta=1.0, c=K.T, lower=0, overwrite_c=1)
    if not np.shares_memory(taken, K):
        K[...] = taken.T


def _disjoint(G: Any, factor: Any) -> Any:
    """Return the columns of both, or None where a pair would be in two of them."""
    both = sp.csc_array(factor) if G is None else sp.hstack([G, factor], format="csc")
    touched = np.bincount(both.indices[both.data != 0], minlength=both.shape[0])
    return both if np.all(touched <= 1) else None


def factor(dynamics: Dynamics, K: Any) -> Operator:
    """Factor K, lifted where rounding has left it not positive definite."""
    for lift in (0.0, *LIFTS):
        try:
            size = lift * np.abs(K.diagonal())
            return dynamics.factor(
                K if lift == 0.0 else K + (sp.diags_array(size) if sp.issparse(K) else np.diag(size))
            )
        except la.LinAlgError:
            continue
    raise la.LinAlgError("the matrix is not finite")
