"""Dynamics over a sparse P, with threaded kernels that fuse the product and the minimum over actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.dynamics.linear import Plan
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
        self._csr = (P.data, P.indices.astype(np.uint32), P.indptr)

    def sweep(self, c: Array, V: Array) -> tuple[Array, Indices]:
        self.passes += 1
        best, pair = self._kernels.sweep(*self._csr, self.first, self.gamma, c, V)
        return best, pair

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

    def gram(self, weights: Array) -> Any:
        if self.plan.normal == "sparse":
            M = self.gamma * self.P - self.Xi
            return M.T @ (M * weights[:, None])
        return self._kernels.gram(*self._csr, self.owner, self.gamma, self.num_states, weights)
