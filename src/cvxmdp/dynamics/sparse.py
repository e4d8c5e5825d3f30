"""Dynamics over a sparse P, with threaded kernels that fuse the product and the minimum over actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.dynamics.linear import Plan
from cvxmdp.dynamics.ordered import Ordered
from cvxmdp.dynamics.tabular import Tabular
from cvxmdp.mdp import MDP, Array, Indices


class SparseDynamics(Tabular):
    """P in compressed sparse rows."""

    def __init__(self, mdp: MDP, P: Any, plan: Plan) -> None:
        super().__init__(mdp, P, plan)
        # Numba is loaded when a sparse model is first solved, so that importing the library stays fast.
        from cvxmdp.dynamics import kernels  # isort: skip
        from numba import get_num_threads

        self._kernels = kernels
        self._threads = get_num_threads()
        if not P.has_sorted_indices:
            P.sort_indices()
        indices = P.indices.view(np.uint32) if P.indices.dtype == np.int32 else P.indices.astype(np.uint32)
        self._csr = (P.data, indices, P.indptr)
        self._ordered = Ordered(self._csr, self.first, self.gamma, self._threads)

    def sweep(self, c: Array, V: Array) -> tuple[Array, Indices]:
        self.passes += 1
        best, pair = self._kernels.sweep(*self._csr, self.first, self.gamma, c, V)
        return best, pair

    def relax(self, c: Array, V: Array | None, tolerance: float, deadline: float) -> Array | None:
        if not (self.plan.ordered and self._ordered.useful):
            return V
        before = self._ordered.sweeps
        out = self._ordered.relax(c, V, tolerance, deadline)
        self.passes += self._ordered.sweeps - before
        return out

    def occupancy(self, pi: Array, start: Array | None = None) -> Array:
        visits = self._ordered.visits(pi, self.rho) if self.plan.ordered else None
        return super().occupancy(pi, start) if visits is None else self._spread(visits, pi)

    def advantage(self, c: Array, V: Array) -> Array:
        self.passes += 1
        out: Array = self._kernels.advantage(*self._csr, self.owner, self.gamma, c, V)
        return out

    def advantages(self, costs: Array, V: Array) -> Array:
        self.passes += 1
        out: Array = self._kernels.advantages(*self._csr, self.owner, self.gamma, costs, np.ascontiguousarray(V))
        return out

    def flow(self, d: Array) -> Array:
        self.passes += 1
        out: Array = self._kernels.flow(*self._csr, self.first, self.gamma, d, self._threads)
        return out

    def weighted(self, weights: Array, V: Array) -> Array:
        self.passes += 1
        out: Array = self._kernels.weighted(*self._csr, self.first, self.gamma, weights, V, self._threads)
        return out

    def weighted_diagonal(self, weights: Array) -> Array:
        self.passes += 1
        out: Array = self._kernels.weighted_diagonal(*self._csr, self.first, self.gamma, weights)
        return out

    def flows(self, X: Any) -> Any:
        if not sp.issparse(X) or self.plan.normal == "sparse":
            return super().flows(X)
        rows, even = sp.csr_array(X), np.ones(self.num_pairs)
        sizes = (self.owner, self.gamma, self.num_states, even)
        return -self._kernels.crossed(*self._csr, *sizes, rows.data, rows.indices, rows.indptr, X.shape[1]).T

    def gram(self, weights: Array) -> Any:
        if self.plan.normal == "sparse":
            M = self.gamma * self.P - self.Xi
            return M.T @ (M * weights[:, None])
        # Equal shares of the triangle.
        cuts = (self.num_states * np.sqrt(np.linspace(0, 1, self._threads + 1))).round().astype(np.int64)
        return self._kernels.gram(*self._csr, self.owner, self.gamma, weights, cuts)
