"""The prox of the dynamics as the splitting uses it: which method solves it and from where, and a natural step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.constraints.combine import Blocks
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines.regularized import Regularized, newton, qrpi
from cvxmdp.mdp import Array

if TYPE_CHECKING:
    from cvxmdp.engines.splitting import Splitting

NEWTON_STEPS = 60
"""Steps of the inner Newton method, which the last pass begins nearly at its end."""
QRPI_ROUNDS = 200
"""Rounds of regularized policy iteration in a pass that has to be exact; Newton takes over where they crawl."""
ROUNDING = 1e-14
"""Times the horizon: a prox is not asked for more than rounding allows."""
LEAST_WAY = 1e-6
"""An occupancy that is nearer to the constraints than this share of its length is taken to be that far."""


def natural_step(blocks: Blocks, c: Array, d: Array) -> float:
    """Return how far the occupancy has to move from d, over how strongly the cost and the convex terms pull it."""
    length = float(np.linalg.norm(d))
    pull, way = float(np.linalg.norm(c - c.mean())), max(blocks.distance(d), LEAST_WAY * length)
    if not np.isfinite(way):  # a projection failed, as onto nearly parallel rows
        way = length
    if pull <= 1e-12 * float(np.linalg.norm(c)):
        pull = float(np.linalg.norm(c))
    if blocks.terms:
        way, pull = max(way, length), pull + blocks.size_of_value(d) / length
    return way / (pull or float(np.sqrt(c.size)))


class Inner:
    """The prox of the dynamics with its warm start."""

    def __init__(self, settings: Splitting, dynamics: Dynamics, c: Array, V: Array) -> None:
        self.settings, self.dynamics, self.c = settings, dynamics, c
        self.V, self.phi = V, np.zeros_like(c)
        self.rounds = 0
        self.newton_steps = 0

    def __call__(self, w: Array, sigma: float, accuracy: float) -> Regularized:
        kind, exact = self.settings.prox, self.settings.adaptive
        accuracy = max(accuracy, ROUNDING / (1 - self.dynamics.gamma))
        point: Regularized | None = None
        if kind == "qrpi" or (kind == "auto" and self.dynamics.factored):
            point = self._qrpi(w, sigma)
            for _ in range(QRPI_ROUNDS if exact else 0):
                before = point.residual
                if before <= accuracy:
                    break
                point = self._qrpi(w, sigma)
                if kind == "auto" and point.residual > 0.5 * before:
                    break
        if point is None or (exact and kind != "qrpi" and point.residual > accuracy):
            point, steps = newton(self.dynamics, self.c, w, sigma, self.V, accuracy, NEWTON_STEPS)
            self.newton_steps += steps
        self.V, self.phi = point.V, point.phi
        return point

    def _qrpi(self, w: Array, sigma: float) -> Regularized:
        steps = self.settings.inner_steps
        point = qrpi(self.dynamics, self.c, w, sigma, self.V, self.phi, steps)
        self.V, self.phi = point.V, point.phi
        self.rounds += steps
        return point
