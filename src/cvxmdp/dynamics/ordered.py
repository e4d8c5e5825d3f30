"""Gauss-Seidel sweeps in the order of the value, for large sparse models through which probability flows.

In many large models, such as mazes, roads and queues, a good policy leads from states of high value to states of low
value.  Sweeps in that order carry what is known of one end through the whole model at once, where plain sweeps need one
sweep a step of the way.  What slips back against the order is caught by the next sweep.  Where that does not converge
fast, the caller's factors and Krylov methods take over.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from cvxmdp.mdp import Array, Indices

MOST_SWEEPS, MOST_PUSHES = 300, 1000
POLICY_SWEEPS = 4
"""Sweeps with the policy held after each that improves it: they read a fraction of P."""
ROUNDING = 1e-13
"""Relative to the value, or to all that flows in: less is not pursued."""
PATIENCE = 40
"""Sweeps in which the change has to halve, or they are given up for good."""


class Ordered:
    """Sweeps over a model in compressed sparse rows."""

    def __init__(self, csr: tuple[Any, ...], first: Indices, gamma: float, threads: int) -> None:
        from cvxmdp.dynamics import kernels

        self._kernels, self._csr, self._first, self._gamma, self._threads = kernels, csr, first, gamma, threads
        self.order: Indices | None = None
        """States by increasing value, once some value is known."""
        self.useful = True
        self.sweeps = 0

    def relax(self, c: Array, V: Array | None, tolerance: float, deadline: float) -> Array:
        """Solve Bellman's equation from V, or from a value above all others, until it changes by a tenth of this."""
        num_states = self._first.size - 1
        V = np.full(num_states, float(np.max(c)) / (1 - self._gamma)) if V is None else V.copy()
        pair, natural = np.zeros(num_states, dtype=np.int64), np.arange(num_states)
        order, changes = np.argsort(V, kind="stable"), []
        for k in range(MOST_SWEEPS):
            if k == 1 and np.array_equal(order, natural):
                order = natural[::-1].copy()  # nothing is known of the order yet: try both ways
            elif k & (k - 1) == 0 and k > 0:
                order = np.argsort(V, kind="stable")
            goal = max(0.1 * tolerance, ROUNDING * float(np.max(np.abs(V))))
            changes.append(self._kernels.relax(*self._csr, self._first, self._gamma, c, V, pair, order, self._threads))
            self.sweeps += 1
            if changes[-1] <= goal or time.perf_counter() >= deadline:
                break
            if k >= PATIENCE and changes[-1] > 0.5 * changes[-PATIENCE]:
                self.useful = False
                break
            for _ in range(POLICY_SWEEPS):
                if self._kernels.settle(*self._csr, self._gamma, c, V, pair, order, self._threads) <= goal:
                    break
        else:
            self.useful = False
        self.order = np.argsort(V, kind="stable")
        return V

    def visits(self, pi: Array, rho: Array) -> Array | None:
        """Solve ``x = (1 - gamma) rho + gamma P_pi' x``; None where no order is known or it does not help."""
        if self.order is None:
            return None
        waiting, x, before = (1 - self._gamma) * rho, np.zeros(rho.size), np.inf
        least = ROUNDING * (1 - self._gamma) / rho.size
        for k in range(MOST_PUSHES):
            left = self._kernels.push(*self._csr, self._first, self._gamma, pi, waiting, x, self.order, least)
            if left <= 2 * ROUNDING * (1 - self._gamma):
                return x
            if k % PATIENCE == PATIENCE - 1:
                if left > 0.9 * before:
                    break
                before = left
        return None
