"""Dynamics over a dense P, with BLAS products."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from cvxmdp.dynamics import kernels
from cvxmdp.dynamics.base import Mask
from cvxmdp.dynamics.linear import Operator
from cvxmdp.dynamics.tabular import Tabular
from cvxmdp.mdp import Array, Indices

DENSE_DENSITY = 0.2
"""From this share of nonzero entries on, reading a dense row through BLAS is faster than gathering a sparse one."""


class DenseDynamics(Tabular):
    """P as one contiguous array of shape (pairs, states)."""

    P: Array
    compiled = False

    @staticmethod
    def held(P: Any, nonzeros: int, memory: int) -> Array | None:
        """Return P as an array, unless it is mostly zeros or would take more than half of the free memory."""
        size = P.shape[0] * P.shape[1]
        if nonzeros < DENSE_DENSITY * size or (sp.issparse(P) and 8 * size > memory // 2):
            return None
        return np.ascontiguousarray(P.toarray() if sp.issparse(P) else P)

    def sweep(self, c: Array, V: Array) -> tuple[Array, Indices]:
        self.passes += 1
        total = c + self.gamma * (self.P @ V)
        best = np.minimum.reduceat(total, self.first[:-1])
        # The first pair that attains the minimum of its state.
        attains = np.flatnonzero(total == best[self.owner])
        pair = attains[np.searchsorted(self.owner[attains], np.arange(self.num_states))]
        return best, pair

    def advantage(self, c: Array, V: Array) -> Array:
        self.passes += 1
        return c + self.gamma * (self.P @ V) - V[self.owner]

    def advantages(self, costs: Array, V: Array) -> Array:
        self.passes += 1
        out = times(self.P, V)
        out *= self.gamma
        out += costs
        out -= V[self.owner]
        return out

    def _products(self, pi: Array) -> tuple[Operator, Operator]:
        matrix = self._policy_matrix(pi)
        return lambda x: x - self.gamma * times(matrix, x), lambda x: x - self.gamma * (matrix.T @ x)

    def flow(self, d: Array) -> Array:
        self.passes += 1
        return np.asarray(self.per_state(d) - self.gamma * (self.P.T @ d))

    def flow_of_two(self, d: Array, e: Array) -> tuple[Array, Array]:
        self.passes += 1
        both = np.vstack([d, e]) @ self.P
        return self.per_state(d) - self.gamma * both[0], self.per_state(e) - self.gamma * both[1]

    def weighted(self, weights: Array | Mask, V: Array) -> Array:
        self.passes += 1
        return kernels.weighted_dense(self.P, self.first, self.gamma, weights, V)

    def weighted_diagonal(self, weights: Array) -> Array:
        self.passes += 1
        return kernels.weighted_diagonal_dense(self.P, self.first, self.gamma, weights)

    def gram(self, weights: Array) -> Array:
        """Lower triangle of ``gamma^2 P'WP - gamma (Xi'WP + P'WXi) + Xi'WXi``."""
        even = bool(np.all(weights == 1.0))  # then no second array of the size of P is needed
        by_state = np.add.reduceat(self.P if even else weights[:, None] * self.P, self.first[:-1], axis=0)
        rows = self.P if even else np.sqrt(weights)[:, None] * self.P
        out: Array = la.blas.dsyrk(self.gamma**2, rows.T, lower=1)
        out -= self.gamma * by_state
        out -= self.gamma * by_state.T
        out[np.diag_indices(self.num_states)] += self.per_state(weights)
        return out


def times(matrix: Array, x: Array) -> Array:
    """``matrix @ x``; for a few columns BLAS is faster where they are the left factor."""
    return matrix @ x if x.ndim == 1 else np.ascontiguousarray((x.T @ matrix.T).T)
