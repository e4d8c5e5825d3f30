"""Newton's system over occupancies and many rows, as the interior point method has it, reduced to one over states."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from cvxmdp.dynamics.base import Dynamics
from cvxmdp.dynamics.linear import Operator
from cvxmdp.engines.hessian import factor, take_off
from cvxmdp.mdp import Array

DIAGONAL = 1e-14
"""Added to the rows' own matrix, relatively, for rows that depend on each other."""


class RowsSystem:
    """``x / W + M V + E'n = force``,  ``E x - compliance n = wanted``,  ``flow(x) = missing``, factored.

    The rows' n is eliminated first.  Where no two rows touch the same pair, that is one number a row.  Rows may
    give way further, by a matrix ``softness`` that is added to the diagonal compliance.
    """

    def __init__(self, dynamics: Dynamics, E: Any, W: Array, compliance: Array, softness: Any) -> None:
        self.dynamics, self.E, self.W = dynamics, E, W
        EW = E * W[None, :] if not sp.issparse(E) else sp.csr_array(E.multiply(W[None, :]))
        C = EW @ E.T if softness is None else EW @ E.T + softness
        C = C if sp.issparse(C) and C.nnz <= C.shape[0] else _dense(C)
        B = _dense(dynamics.flows(EW.T))  # states x rows
        K = _dense(dynamics.gram(W))
        if sp.issparse(C):
            C = C.diagonal() + compliance
            self._rows: Operator = lambda r: np.asarray(r / C)
            B /= np.sqrt(C)
        else:
            C[np.diag_indices_from(C)] += compliance + DIAGONAL * np.trace(C) / compliance.size
            lower = la.cholesky(C, lower=True, check_finite=False)
            self._rows = lambda r: np.asarray(la.cho_solve((lower, True), r, check_finite=False))
            B = la.solve_triangular(lower, B.T, lower=True, check_finite=False).T
        take_off(K, B)
        self._reduced = factor(dynamics, K)

    def solve(self, force: Array, wanted: Array, missing: Array) -> tuple[Array, Array, Array]:
        """Return x, V and n."""
        dynamics, E, W = self.dynamics, self.E, self.W
        pulled = E @ (W * force) - wanted
        V = self._reduced(missing - dynamics.flow(W * (force - E.T @ self._rows(pulled))))
        rest = force - dynamics.advantage(np.zeros_like(force), V)
        n = self._rows(E @ (W * rest) - wanted)
        return W * (rest - E.T @ n), V, n


def _dense(matrix: Any) -> Array:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)
