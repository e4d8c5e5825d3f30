"""Dynamics over a sparse P, with threaded kernels that fuse the product and the minimum over actions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.dynamics import kernels
from cvxmdp.dynamics.base import Mask
from cvxmdp.dynamics.linear import Operator
from cvxmdp.dynamics.ordered import PARALLEL_STATES, Ordered
from cvxmdp.dynamics.plan import Plan
from cvxmdp.dynamics.tabular import Tabular
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.memory import fits

MOST_TAKEN = 0.7
"""Share of the pairs from which on a policy is evaluated with P itself: a copy of the rows it takes is no smaller.  Nor
is one made that would fill half of the free memory."""
MOST_FAILURES = 5
"""How often ordered sweeps may fail to converge before they are given up in a solve."""


class SparseDynamics(Tabular):
    """P in compressed sparse rows."""

    compiled = True

    @staticmethod
    def held(P: Any, nonzeros: int, memory: int) -> Any:
        """Return P in compressed sparse rows; any P has such."""
        return sp.csr_array(P)

    def __init__(self, mdp: MDP, P: Any, plan: Plan) -> None:
        super().__init__(mdp, P, plan)
        if not P.has_sorted_indices:
            P.sort_indices()
        self._csr = (P.data, P.indices, P.indptr)
        self._ordered = Ordered(P, self.first, self.gamma) if plan.ordered else None

    def sweep(self, c: Array, V: Array) -> tuple[Array, Indices]:
        self.passes += 1
        return kernels.sweep(*self._csr, self.first, self.gamma, c, V)

    def iterate_values(self, c: Array, V: Array | None, tolerance: float, deadline: float) -> Array | None:
        if self._ordered is None:
            return super().iterate_values(c, V, tolerance, deadline)
        ordered = copy.copy(self._ordered)  # other threads may be solving with this one
        if V is None:  # the first sweeps of a solve
            ordered.forget()
        if ordered.hopeless or ordered.failures == MOST_FAILURES:
            return V
        before = ordered.sweeps
        V, _ = ordered.iterate_values(c, V, tolerance, deadline)
        self.passes += ordered.sweeps - before
        self._ordered = ordered
        return V

    def visits(self, pi: Array, start: Array | None = None) -> Array:
        ordered = None if self._quick else self._ordered
        found = None if ordered is None else ordered.solve(pi, (1 - self.gamma) * self.rho)
        return super().visits(pi, start) if found is None else found

    def backward(self, pi: Array) -> Operator:
        general = super().backward(pi)
        ordered = None if self._quick else self._ordered
        if ordered is None:
            return general

        def solve(rhs: Array) -> Array:
            found = ordered.correction(pi, rhs)
            return general(rhs) if found is None else found

        return solve

    def advantage(self, c: Array, V: Array) -> Array:
        self.passes += 1
        return kernels.advantage(*self._csr, self.owner, self.gamma, c, V)

    def advantages(self, costs: Array, V: Array) -> Array:
        self.passes += 1
        return kernels.advantages(*self._csr, self.owner, self.gamma, costs, V)

    def _products(self, pi: Array) -> tuple[Operator, Operator]:
        share = np.count_nonzero(pi) / self.num_pairs
        if share > MOST_TAKEN or not fits(int(share * (self.P.data.nbytes + self.P.indices.nbytes))):
            return self._through_all(pi)
        P_pi = kernels.taken(*self._csr, self.first, pi)

        def forward(x: Array) -> Array:
            return kernels.evaluated(*P_pi, self.gamma, x)

        def backward(x: Array) -> Array:
            if self.num_states >= PARALLEL_STATES:
                return self._flow(x[self.owner] * pi)
            return kernels.evaluated_back(*P_pi, self.gamma, x, self.num_states)

        return forward, backward

    def _through_all(self, pi: Array) -> tuple[Operator, Operator]:
        """:meth:`_products` by passes over P."""
        choice = self._choice(pi)

        def forward(x: Array) -> Array:
            if x.ndim == 1:
                return np.asarray(-(choice @ self.advantage(np.zeros(self.num_pairs), x)))
            return np.asarray(-(choice @ self.advantages(np.zeros((self.num_pairs, x.shape[1])), x)))

        # The probabilities of a state add up to one, so that the flow of x pi is x - gamma P_pi' x.
        return forward, lambda x: self.flow(x[self.owner] * pi)

    def flow(self, d: Array) -> Array:
        self.passes += 1
        return self._flow(d)

    def _flow(self, d: Array) -> Array:
        return kernels.flow(*self._csr, self.first, self.gamma, d, self.num_states)

    def flow_of_two(self, d: Array, e: Array) -> tuple[Array, Array]:
        self.passes += 1
        both = kernels.flow_of_two(*self._csr, self.first, self.gamma, d, e, self.num_states)
        return both[0], both[1]

    def weighted(self, weights: Array | Mask, V: Array) -> Array:
        self.passes += 1
        return kernels.weighted(*self._csr, self.first, self.gamma, weights, V)

    def weighted_diagonal(self, weights: Array) -> Array:
        self.passes += 1
        return kernels.weighted_diagonal(*self._csr, self.first, self.gamma, weights, self.num_states)

    def flows(self, X: Any) -> Any:
        if not sp.issparse(X) or self.plan.normal == "sparse":
            return super().flows(X)
        rows, even = sp.csr_array(X), np.ones(self.num_pairs)
        E = (rows.data, rows.indices, rows.indptr)
        out = kernels.crossed(self._csr, self.owner, self.gamma, self.num_states, even, E, X.shape[1]).T
        return np.negative(out, out=out)

    def gram(self, weights: Array) -> Any:
        if self.plan.normal == "sparse":
            M = self.gamma * self.P - self.Xi
            return M.T @ (M * weights[:, None])
        return kernels.gram(*self._csr, self.owner, self.gamma, weights, self.num_states)
