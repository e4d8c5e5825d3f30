"""The prox of the dynamics: a quadratically regularized MDP, eq. (8) of the paper.

``prox(w) = argmin over d in D of c'd + |d - w|^2 / (2 sigma)``.  Its dual, eq. (9), is maximized over the value V and
the dual occupancy phi, either by the paper's quadratically regularized policy iteration (QRPI, eq. (13)) or by a
semismooth Newton method on V alone.  In both ``a = c + M V - w / sigma`` splits into ``phi = max(a, 0)`` and
``d = sigma max(-a, 0)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxmdp import interrupts
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines import elementwise
from cvxmdp.engines.line_search import armijo
from cvxmdp.mdp import Array

SHORTEST = 1e-7
"""A shorter step rises by less than rounding shows."""
SHIFTS = (1e-12, 1e3)
"""Least and largest shift of the Hessian, relative to its diagonal: none to speak of, and a gradient step."""


@dataclass(frozen=True, eq=False)
class Regularized:
    """A point of the regularized MDP: value V, dual occupancy phi, occupancy d, and the flow that d leaves open."""

    V: Array
    phi: Array
    d: Array
    residual: float
    """``|Xi'd - gamma P'd - (1 - gamma) rho|_1 / (1 - gamma)``: how far d may be from an occupancy."""


def qrpi(dynamics: Dynamics, c: Array, w: Array, sigma: float, V: Array, phi: Array, steps: int) -> Regularized:
    """Run ``steps`` rounds of quadratically regularized policy iteration from ``phi``, eq. (13)."""
    q = (1 - dynamics.gamma) * dynamics.rho / sigma
    for _ in range(steps):
        V = dynamics.solve_normal(q - dynamics.flow(elementwise.pulled(w, sigma, c, phi)), V)  # (13a)
        phi = dynamics.advantage(c, V)
        d = elementwise.part(phi, w, sigma)  # (13b) and (13c)
    return Regularized(V, phi, d, open_flow(dynamics, d))


def open_flow(dynamics: Dynamics, d: Array) -> float:
    """Return how far d may be from an occupancy, in the 1-norm."""
    return _size(dynamics, (1 - dynamics.gamma) * dynamics.rho - dynamics.flow(d))


def _size(dynamics: Dynamics, r: Array) -> float:
    return float(np.abs(r).sum()) / (1 - dynamics.gamma)


def newton(
    dynamics: Dynamics, c: Array, w: Array, sigma: float, V: Array, tolerance: float, steps: int
) -> tuple[Regularized, int]:
    """Maximize the dual over V by semismooth Newton steps until the residual is at most ``tolerance``.

    The gradient is ``r = (1 - gamma) rho + M'd`` and a generalized Hessian ``-sigma M_J'M_J`` over the pairs J with
    d > 0, about one a state near the end.  A shift relative to the diagonal keeps it definite where a state has no
    visited pair; it shrinks while full steps succeed and grows when the line search cuts them.
    """
    q, shift, none = (1 - dynamics.gamma) * dynamics.rho, 1e-3, np.zeros_like(c)
    a, d = dynamics.advantage(c, V), np.empty_like(c)
    height = float(q @ V) - elementwise.along(a, none, 0.0, w, sigma, d) / (2 * sigma)
    r = q - dynamics.flow(d)
    residual, count = _size(dynamics, r), 0
    best, best_V, best_a = residual, V, a
    while best > tolerance and count < steps and not interrupts.late():
        count += 1
        direction = dynamics.solve_visited(d > 0, shift, r) / sigma
        change = dynamics.advantage(none, direction)

        def tried(length: float, V: Array = V, a: Array = a, x: Array = direction, change: Array = change) -> Any:
            further = V + length * x
            return elementwise.along(a, change, length, w, sigma, d) / (2 * sigma) - float(q @ further), further

        # Near the top the dual is flat to rounding: a step that does not lower it measurably is accepted.
        length, below, V_new = armijo(tried, -height, -float(r @ direction), 1e-15 * abs(height), SHORTEST)
        del tried  # and with it a long array
        factor = 0.1 if length == 1.0 else 10.0 if length < 0.25 else 1.0
        shift = min(max(shift * factor, SHIFTS[0]), SHIFTS[1])
        if length < SHORTEST:
            elementwise.along(a, none, 0.0, w, sigma, d)
            if shift == SHIFTS[1]:
                break
            continue
        elementwise.advance(change, length, a)
        V, a, height = V_new, change, -below
        r = q - dynamics.flow(d)
        residual = _size(dynamics, r)
        if residual < best:
            best, best_V, best_a = residual, V, a
    return Regularized(best_V, best_a, elementwise.part(best_a, w, sigma), best), count
