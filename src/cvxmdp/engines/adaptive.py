"""The splitting in natural units: when to ask the judge, when to restart, and what to do when no policy obeys."""

from __future__ import annotations

import numpy as np

from cvxmdp.engines.judge import Candidate, Judge
from cvxmdp.engines.presolve import occupancy_of
from cvxmdp.engines.splitting import Inner, Iterate, Splitting, iterates, natural_step
from cvxmdp.mdp import Array
from cvxmdp.status import Status

NATURAL = 2.0
"""The step in natural units: twice how far the occupancy has to move, over how strongly the cost pulls."""
FIRST_CHECK = 5
"""Passes between two checks at first; later an eighth of all passes so far."""
PATIENCE = 40
"""Passes in which the drift must fall tenfold, or the iteration is anchored."""


def run_adaptive(
    settings: Splitting, judge: Judge, inner: Inner, start: tuple[Array, list[Array]] | None
) -> tuple[Status, str]:
    """Run in natural units until the judge has a proof."""
    d0 = occupancy_of(judge.dynamics, judge.unconstrained.pairs)
    sigma = settings.step if settings.step is not None else NATURAL * natural_step(judge.blocks, judge.c, d0)
    w = np.tile(d0, (len(judge.blocks.blocks), 1))
    if start is not None:
        # At a solution w = d - sigma u, with u the normals of the constraints.
        w = start[0] - sigma * judge.blocks.stacked(start[1])
    nearest = Nearest(judge, Inner(settings, judge.dynamics, np.zeros_like(judge.c), np.zeros_like(inner.V)), d0)
    anchored, next_check = False, FIRST_CHECK
    while True:
        run = Run(settings, judge, inner, sigma, anchored)
        omega = 2.0 if anchored else settings.relaxation
        for it in iterates(inner, judge.blocks, w, sigma, omega, anchored):
            judge.iterations += 1
            if judge.iterations >= next_check or judge.limit() is not None:
                next_check = judge.iterations + max(FIRST_CHECK, judge.iterations // 8)
                if (status := _check(judge, it, 1 / sigma)) is not None:
                    return status, run.sentence()
            if run.ended(it):
                break
        if nearest.undecided and (status := nearest.approach(judge.iterations + PATIENCE)) is not None:
            return status, run.sentence()
        w, sigma, anchored = run.restart(it)


class Nearest:
    """The policy nearest to the constraints, whatever it costs: it obeys, or the step to them proves that none does.

    Projected gradient steps on the squared distance to the sets, with momentum: the step from d goes to the average of
    its projections, and from there back to the occupancies by the prox with no cost.  Where all sets are flat, the
    splitting itself goes on to the cheapest of the nearest (Proposition 4); else any nearest policy will do.
    """

    def __init__(self, judge: Judge, inner: Inner, d: Array) -> None:
        self.judge, self.inner = judge, inner
        self.d, self.ahead, self.momentum, self.movement = d, d, 1.0, 1.0

    @property
    def undecided(self) -> bool:
        """Whether no policy that obeys is known, nor a proof that there is none that could end the search."""
        best = self.judge.best
        known = best is not None and best.violation <= self.judge.tolerance
        return not known and (self.judge.refutation is None or not self.judge.blocks.flat)

    def approach(self, until: int) -> Status | None:
        """Go on until decided, or until the pass ``until``."""
        judge, next_check = self.judge, self.judge.iterations + FIRST_CHECK
        while self.undecided and (judge.iterations < until or judge.refutation is not None):
            judge.iterations += 1
            self._step()
            if judge.iterations >= next_check or judge.limit() is not None:
                next_check = judge.iterations + max(FIRST_CHECK, judge.iterations // 8)
                if (status := _check_nearest(judge, judge.propose(self.d), self.movement)) is not None:
                    return status
        return None

    def _step(self) -> None:
        before = self.d
        d = self.inner(self.judge.blocks.project(self.ahead).mean(axis=0), 1.0, 1e-3 * self.movement).d
        if (self.ahead - d) @ (d - before) > 0:
            self.momentum = 1.0  # the momentum points uphill: begin anew
        grown = (1 + np.sqrt(1 + 4 * self.momentum**2)) / 2
        self.ahead = d + (self.momentum - 1) / grown * (d - before)
        self.d, self.momentum, self.movement = d, grown, float(np.abs(d - before).sum())


def _check_nearest(judge: Judge, candidate: Candidate, residual: float) -> Status | None:
    """Try the step from a policy's occupancy to its projection, which tends to the displacement, as the proof."""
    judge.refute(judge.blocks.set_duals(candidate.d))
    judge.record(residual)
    if judge.refutation is None:
        return judge.verdict()
    enough = judge.near or not judge.wants_nearest or judge.limit() is not None
    return Status.INFEASIBLE if enough else None


def _check(judge: Judge, it: Iterate, scale: float) -> Status | None:
    """Ask the judge about one pass."""
    duals = judge.blocks.duals(it.reflected, it.projected, scale)
    candidate = judge.propose(it.occupancy)
    judge.prove(duals)
    residual = it.sizes.norm
    if candidate.violation > judge.tolerance and judge.best is not None and judge.best.violation > judge.tolerance:
        if judge.refutation is None:
            judge.refute(duals)
        return _check_nearest(judge, candidate, residual)
    judge.record(residual)
    return judge.verdict()


class Run:
    """Passes with one step and one anchor, and the decision when to begin anew with others."""

    def __init__(self, settings: Splitting, judge: Judge, inner: Inner, sigma: float, anchored: bool) -> None:
        self.settings, self.judge, self.sigma, self.anchored = settings, judge, sigma, anchored
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
        if self.judge.refutation is not None:
            # An anchor would hold back a sequence that has to drift away; with a curved set, or convex terms, the
            # nearest policy is found otherwise.
            return self.anchored or not self.judge.blocks.flat
        if not self.anchored:
            return passes > PATIENCE and drift > 0.1 * self.drifts[-PATIENCE]
        if passes < 2:
            return False
        fell = drift <= 0.2 * self.drifts[0]
        turned = drift <= 0.8 * self.drifts[0] and drift > self.drifts[-2]
        return fell or turned or passes > 0.36 * max(self.judge.iterations, 50)

    def restart(self, it: Iterate) -> tuple[Array, float, bool]:
        """Go on from the last pass with the step that balances how far d and its multiplier moved in this run."""
        assert self.first is not None
        w = it.governing + it.drift
        d, first = it.occupancy, self.first
        moved = float(np.linalg.norm(d - first.occupancy))
        turned = float(np.linalg.norm(it.multiplier - first.multiplier))
        sigma = self.sigma
        if self.anchored and moved > 1e-14 and turned > 0 and self.judge.refutation is None:
            sigma = float(np.sqrt(sigma * moved / turned))
        # The multiplier (w - d) / sigma stays as it is when the step changes.
        return d + (w - d) * (sigma / self.sigma), sigma, self.judge.refutation is None

    def sentence(self) -> str:
        """Say in a user's words what was run."""
        kind = "anchored" if self.anchored else "relaxed"
        return (
            f"{kind} splitting, {self.inner.rounds} policy iterations and {self.inner.newton_steps} Newton steps inside"
        )
