"""The paper's primal-dual method: dual ascent with policy iteration, Appendix D."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from instances import Array, Instance
from scipy.sparse.linalg import LinearOperator, gmres, splu


class Chain:
    """The systems of the Markov chain that one pair in each state makes."""

    def __init__(self, instance: Instance, pairs: Any, last: Chain | None = None) -> None:
        self.gamma, self.rho, self.P = instance.gamma, instance.rho, instance.P[pairs]
        self.guess = (None, None) if last is None else last.guess
        states = self.rho.size
        self.lu = self.factor = None
        if states <= 500:
            P = self.P.toarray() if sp.issparse(self.P) else self.P
            self.lu = scipy.linalg.lu_factor(np.eye(states) - self.gamma * P)
        elif sp.issparse(self.P) and self.P.nnz <= 10 * states:
            self.factor = splu(sp.csc_matrix(sp.eye_array(states) - self.gamma * self.P))

    def value(self, cost: Array) -> Array:
        """Solve ``(I - gamma P) V = cost``."""
        return self._solve(cost, 0)

    def visits(self) -> Array:
        """Solve ``(I - gamma P') x = (1 - gamma) rho``."""
        return self._solve((1 - self.gamma) * self.rho, 1)

    def _solve(self, right: Array, transposed: int) -> Array:
        if self.lu is not None:
            return scipy.linalg.lu_solve(self.lu, right, trans=transposed)
        if self.factor is not None:
            return self.factor.solve(right, "T" if transposed else "N")
        P = self.P.T if transposed else self.P
        system = LinearOperator((right.size, right.size), matvec=lambda x: x - self.gamma * (P @ x), dtype=float)
        x, _ = gmres(system, right, x0=self.guess[transposed], rtol=1e-10, restart=50)
        self.guess = (self.guess[0], x) if transposed else (x, self.guess[1])
        return x


def steps(instance: Instance) -> Iterator[tuple[Array, Array, Array]]:
    """Yield ``lambda_k, d_k, lambda_{k+1}`` of the dual ascent of the paper's appendix, from lambda_0 = 0 and V = 0."""
    E, b, S = instance.limit.E, instance.limit.b, instance.states
    actions = instance.c.size // S
    V, dual, chain = np.zeros(S), np.zeros(b.size), None
    for k in count():
        cost = instance.c + E.T @ dual
        for _ in range(2):  # policy iterations from the value of the step before
            best = (cost + instance.gamma * (instance.P @ V)).reshape(S, actions).argmin(axis=1)
            pairs = best + actions * np.arange(S)
            chain = Chain(instance, pairs, chain)
            V = chain.value(cost[pairs])
        d = np.zeros_like(cost)
        d[pairs] = chain.visits()
        after = np.maximum(dual + 10 / (k + 1) * (E @ d - b), 0.0)
        yield dual, d, after
        dual = after


def primal_dual(instance: Instance) -> tuple[Array, str]:
    """Ascend until the paper's test is met; return the average of all d_i, which converges, and how it stopped.

    The paper tests the limits on the last d_k.  That is the occupancy of a deterministic policy, which may never obey
    where only mixtures are optimal, so a test on the average, which is returned, ends the method too.
    """
    E, b, total = instance.limit.E, instance.limit.b, np.zeros_like(instance.c)
    for k, (dual, d, after) in enumerate(steps(instance)):
        total += d
        if np.max(np.abs(after - dual)) <= 1e-4:
            for name, point in (("the last d", d), ("the average", total / (k + 1))):
                if np.all(np.maximum(E @ point - b, 0.0) <= 1e-4 * (1 + np.abs(b))):
                    return total / (k + 1), f"{name} obeys after {k + 1} steps"
    raise AssertionError("the steps go on for ever")
