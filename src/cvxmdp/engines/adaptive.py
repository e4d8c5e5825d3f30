"""The splitting in natural units: when to be judged, and when to restart."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.engines.base import Proposal, Proposals, Task
from cvxmdp.engines.douglas_rachford import Iterate, iterates
from cvxmdp.engines.presolve import occupancy_of
from cvxmdp.engines.prox import Inner, natural_step
from cvxmdp.mdp import Array

if TYPE_CHECKING:
    from cvxmdp.engines.splitting import Splitting

NATURAL = 2.0
"""The step in natural units: twice how far the occupancy has to move, over how strongly the cost pulls."""
FIRST_CHECK = 5
"""Passes between two checks at first; later an eighth of all passes so far."""
PATIENCE = 40
"""Passes in which the drift must fall tenfold, or the iteration is anchored."""


def adaptive(settings: Splitting, task: Task, inner: Inner) -> Proposals:
    """Stretch in natural units for ever."""
    d0, blocks = occupancy_of(task.dynamics, task.unconstrained.pairs), task.blocks
    sigma = settings.step if settings.step is not None else NATURAL * natural_step(blocks, task.c, d0)
    w = np.tile(d0, (len(blocks.blocks), 1))
    if task.start is not None:
        # At a solution w = d - sigma u, with u the normals of the constraints.
        w = task.start.occupancy - sigma * blocks.stacked(task.start.duals)
    anchored, passes, next_check = False, 0, FIRST_CHECK
    while True:
        run = Stretch(settings, inner, sigma, anchored, passes)
        omega = 2.0 if anchored else settings.relaxation
        for it in iterates(inner, blocks, w, sigma, omega, anchored):
            passes += 1
            ready = passes >= next_check
            if ready:
                next_check = passes + max(FIRST_CHECK, passes // 8)
            yield Proposal(
                partial(np.copy, it.occupancy), partial(blocks.duals, it.reflected, it.projected, 1 / sigma),
                residual=it.sizes.norm, ready=ready, suspect=ready, said=run.said(),
            )  # fmt: skip
            if run.ended(it):
                break
        w, sigma, anchored = run.restart(it)


class Stretch:
    """Passes with one step and one anchor, and the decision when to begin anew with others."""

    def __init__(self, settings: Splitting, inner: Inner, sigma: float, anchored: bool, before: int) -> None:
        self.settings, self.sigma, self.anchored, self.before = settings, sigma, anchored, before
        self.inner = inner
        self.drifts: list[float] = []
        self.first: Iterate | None = None

    def ended(self, it: Iterate) -> bool:
        """Say whether to restart: a relaxed run that stalls, or an anchored run that has halved or turned."""
        self.first = self.first or it
        self.drifts.append(it.sizes.norm)
        passes, drift = len(self.drifts), self.drifts[-1]
        if not self.settings.adaptive:
            return False
        if not self.anchored:
            return passes > PATIENCE and drift > 0.1 * self.drifts[-PATIENCE]
        if passes < 2:
            return False
        fell = drift <= 0.2 * self.drifts[0]
        turned = drift <= 0.8 * self.drifts[0] and drift > self.drifts[-2]
        return fell or turned or passes > 0.36 * max(self.before + passes, 50)

    def restart(self, it: Iterate) -> tuple[Array, float, bool]:
        """Go on from the last pass with the step that balances how far d and its multiplier moved in this run."""
        assert self.first is not None
        w = it.governing + it.drift
        d, first = it.occupancy, self.first
        moved = float(np.linalg.norm(d - first.occupancy))
        turned = float(np.linalg.norm(it.multiplier - first.multiplier))
        sigma = self.sigma
        if self.anchored and moved > 1e-14 and turned > 0:
            sigma = float(np.sqrt(sigma * moved / turned))
        # The multiplier (w - d) / sigma stays as it is when the step changes.
        return d + (w - d) * (sigma / self.sigma), sigma, True

    def said(self) -> str:
        """Say in a user's words what was run."""
        kind = "anchored" if self.anchored else "relaxed"
        return (
            f"{kind} splitting, {self.inner.rounds} policy iterations and {self.inner.newton_steps} Newton steps inside"
        )
