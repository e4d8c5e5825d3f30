"""Operator splitting for constrained MDPs: Algorithm 1 of the paper.

Minimize ``f(d) + g(d)`` with ``f = c'd`` on the occupancies D and ``g = 0`` on the constraints C, by Douglas-Rachford
splitting: a prox of the dynamics, a projection onto the constraints, and an update of the governing sequence w.  Where
the constraints are several sets, each has a copy of d (a row of w and z), and the prox sees the rows' average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.base import Constraint
from cvxmdp.constraints.combine import Intersection
from cvxmdp.constraints.linear import Linear
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines.judge import NEAREST, Judge
from cvxmdp.engines.presolve import indicator
from cvxmdp.engines.regularized import Regularized, newton, qrpi
from cvxmdp.mdp import Array
from cvxmdp.status import Status

Prox = Callable[[Array, float, float], Regularized]

SAFEGUARD = 1e-10
NATURAL = 2.0
NEWTON_STEPS = 60
QRPI_ROUNDS = 200
FIRST_CHECK = 5
PATIENCE = 40


@dataclass(frozen=True, slots=True, eq=False)
class Iterate:
    """One pass.  ``drift`` vanishes when solved and tends to minus the displacement when infeasible."""

    governing: Array  # w
    occupancy: Array  # d, obeys the dynamics
    projected: Array  # z, obeys the constraints

    @property
    def drift(self) -> Array:
        """``z - d``, one row for each block of constraints."""
        return self.projected - self.occupancy

    @property
    def reflected(self) -> Array:
        """``2d - w``, the point that was projected."""
        return 2 * self.occupancy - self.governing


def iterates(
    prox: Prox, constraints: Intersection, w: Array, sigma: float, omega: float, anchored: bool
) -> Iterator[Iterate]:
    """Yield passes for ever, eq. (7); the caller decides when to stop.

    With ``anchored`` the governing sequence is pulled back to where it began by ever less (Halpern's iteration), which
    makes the drift fall like 1/k whatever the constraints.
    """
    anchor = w
    accuracy, before = 1e-2, w.mean(axis=0)
    for k in count():
        d = prox(w.mean(axis=0), sigma / len(w), accuracy).d  # (7a)
        z = constraints.project(2 * d - w)  # (7c)
        yield Iterate(w, d, z)
        w = w + omega * (z - d)  # (7d), relaxed
        if anchored:
            w = w + (anchor - w) / (k + 2)
        # Summable, so that the inexact method converges to the same limit (Eckstein and Bertsekas, Theorem 7).
        # The drift vanishes when feasible only, the movement of d always.
        movement = min(float(np.abs(z - d).sum()), float(np.abs(d - before).sum()))
        accuracy, before = min(0.1 * movement, 1 / (k + 1) ** 1.1), d


@dataclass(frozen=True)
class Splitting:
    """Settings of the splitting method.

    Parameters
    ----------
    step : float, optional
        Sigma of the paper.  When not given, it is the natural unit ``|d| / |c - mean(c)|`` of the unconstrained
        optimum d, which fits every scale of costs and every size of model.
    relaxation : float
        Omega of the paper, between 0 and 2.
    inner_steps : int
        Rounds of regularized policy iteration in each pass.
    adaptive : bool
        Let the step follow the balance of primal and dual movement, anchor the iteration where it stalls, and take as
        many inner steps as the pass needs.  When false, the method runs with the settings as they are.
    evaluation : {"auto", "direct", "iterative"}
        How linear systems are solved, see :func:`cvxmdp.dynamics.linear.plan`.
    prox : {"auto", "qrpi", "newton"}
        The inner solver: regularized policy iteration, semismooth Newton, or the first while it is fast.
    stopping : tuple of three floats, optional
        The paper's tolerances ``(eps_opt, eps_con, eps_inf)``.  When given, its tests end the solve.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> cm.Splitting.as_in_paper().step
    2e-05
    """

    step: float | None = None
    relaxation: float = 1.5
    inner_steps: int = 2
    adaptive: bool = True
    evaluation: str = "auto"
    prox: str = "auto"
    stopping: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.step is not None and not (np.isfinite(self.step) and self.step > 0):
            raise ValueError(f"step is {self.step}; it must be a positive number, or None for the natural unit")
        if not 0 < self.relaxation < 2:
            raise ValueError(f"relaxation is {self.relaxation}; it must lie between 0 and 2, both excluded")
        if self.inner_steps < 1:
            raise ValueError(f"inner_steps is {self.inner_steps}; at least one is needed")
        if self.prox not in ("auto", "qrpi", "newton"):
            raise ValueError(f'prox is {self.prox!r}; it must be "auto", "qrpi" or "newton"')

    @classmethod
    def as_in_paper(cls) -> Splitting:
        """Return the paper's method to the letter: its constants, its two inner steps and its stopping tests."""
        return cls(2e-5, 1.5, 2, adaptive=False, evaluation="direct", prox="qrpi", stopping=(1e-5, 1e-4, 1e-6))

    name = "splitting"
    most_passes = 5000

    def run(self, judge: Judge, start: tuple[Array, list[Array]] | None) -> tuple[Status, str]:
        """Run from ``start`` (an occupancy and duals) until the judge is satisfied; return the status and why."""
        inner = Inner(self, judge.dynamics, judge.c / cost_unit(judge.c), judge.unconstrained.V / cost_unit(judge.c))
        if self.stopping is not None:
            return _as_in_paper(self, judge, inner)
        return _adaptive(self, judge, inner, start)


def cost_unit(c: Array) -> float:
    """Return the unit in which the method sees costs: their spread, or their size where they are all equal."""
    spread = float(np.std(c))
    size = float(np.max(np.abs(c), initial=0.0))
    return spread if spread > 1e-12 * size else size if size > 0 else 1.0


class Inner:
    """The prox of the dynamics with its warm start."""

    def __init__(self, settings: Splitting, dynamics: Dynamics, c: Array, V: Array) -> None:
        self.settings, self.dynamics, self.c = settings, dynamics, c
        self.V, self.phi = V, np.zeros_like(c)
        self.rounds = 0
        self.newton_steps = 0

    def __call__(self, w: Array, sigma: float, accuracy: float) -> Regularized:
        kind, exact = self.settings.prox, self.settings.adaptive
        point: Regularized | None = None
        if kind == "qrpi" or (kind == "auto" and self.dynamics.factored):
            point = self._qrpi(w, sigma)
            for _ in range(QRPI_ROUNDS if exact else 0):
                before = point.residual
                if before <= max(accuracy, 1e-13):
                    break
                point = self._qrpi(w, sigma)
                if kind == "auto" and point.residual > 0.5 * before:
                    break
        if point is None or (exact and kind != "qrpi" and point.residual > accuracy):
            point, steps = newton(self.dynamics, self.c, w, sigma, self.V, max(accuracy, 1e-13), NEWTON_STEPS)
            self.newton_steps += steps
        self.V, self.phi = point.V, point.phi
        return point

    def _qrpi(self, w: Array, sigma: float) -> Regularized:
        steps = self.settings.inner_steps
        point = qrpi(self.dynamics, self.c, w, sigma, self.V, self.phi, steps)
        self.V, self.phi = point.V, point.phi
        self.rounds += steps
        return point


def _as_in_paper(settings: Splitting, judge: Judge, inner: Inner) -> tuple[Status, str]:
    """Run Algorithm 1 with its stopping tests, eqs. (20) and (21); one violated constraint is enough in (21)."""
    assert settings.stopping is not None
    eps_opt, eps_con, eps_inf = settings.stopping
    sigma = (settings.step or 2e-5) * cost_unit(judge.c)
    inner.V, w = np.zeros_like(inner.V), np.zeros((len(judge.constraints.blocks), judge.c.size))
    before = np.full_like(judge.c, np.inf)
    status, why = Status.APPROXIMATE, "the paper's stopping tests"
    for it in iterates(inner, judge.constraints, w, sigma, settings.relaxation, anchored=False):
        judge.iterations += 1
        d = it.occupancy
        obeys = all(_obeys_as_in_paper(c, d, eps_con) for c in judge.constraints.constraints)
        if obeys and np.max(np.abs(it.drift)) <= eps_opt:
            break
        if not obeys and np.max(np.abs(d - before)) <= eps_inf:
            why = "the paper's test of infeasibility"
            break
        before = d
        if (limit := judge.limit()) is not None:
            status, why = limit, "a limit"
            break
    # The safeguard: one more pass that brings d into D.
    final, _ = newton(
        judge.dynamics, inner.c, it.governing.mean(axis=0), sigma / len(it.governing), inner.V, SAFEGUARD, NEWTON_STEPS
    )
    judge.propose(final.d)
    duals = judge.constraints.duals(it.reflected, it.projected, cost_unit(judge.c) / sigma)
    judge.prove(duals)
    if judge.best is not None and judge.best.violation > judge.tolerance:
        judge.refute(duals)
        judge.propose(final.d)
    judge.record(float(np.linalg.norm(it.drift)))
    if judge.refutation is not None:
        return Status.INFEASIBLE, f"ended by {why}"
    return (Status.OPTIMAL if judge.verdict() is Status.OPTIMAL else status), f"ended by {why}"


def _obeys_as_in_paper(constraint: Constraint, d: Array, eps_con: float) -> bool:
    """``max(C_i(d) - b_i, 0) <= eps_con (1 + |b_i|)`` for every row i; a ball's bound is its radius."""
    if isinstance(constraint, Linear):
        limit = np.where(np.isfinite(constraint.upper), constraint.upper, constraint.lower)
        return bool(np.all(constraint.excess(d) <= eps_con * (1 + np.abs(limit))))
    radius = constraint.radius if isinstance(constraint, NormBall) else 0.0
    return constraint.violation(d) <= eps_con * (1 + radius)


def _adaptive(
    settings: Splitting, judge: Judge, inner: Inner, start: tuple[Array, list[Array]] | None
) -> tuple[Status, str]:
    """Run in natural units until the judge has a proof."""
    unit = cost_unit(judge.c)
    d0 = judge.dynamics.occupancy(indicator(judge.dynamics, judge.unconstrained.pairs))
    spread = float(np.linalg.norm(inner.c - inner.c.mean())) or float(np.sqrt(inner.c.size))
    sigma = settings.step * unit if settings.step is not None else NATURAL * judge.constraints.distance(d0) / spread
    blocks = len(judge.constraints.blocks)
    w = np.tile(d0, (blocks, 1))
    if start is not None:
        # At a solution w = d - sigma u, with u the normals of the constraints.
        w = start[0] - (sigma / unit) * judge.constraints.stacked(start[1])
    anchored, next_check = False, FIRST_CHECK
    while True:
        run = Run(settings, judge, inner, sigma, anchored)
        omega = 2.0 if anchored else settings.relaxation
        for it in iterates(inner, judge.constraints, w, sigma, omega, anchored):
            judge.iterations += 1
            if judge.iterations >= next_check or judge.limit() is not None:
                next_check = judge.iterations + max(FIRST_CHECK, judge.iterations // 8)
                if (status := _check(judge, it, unit / sigma)) is not None:
                    return status, run.sentence()
            if run.ended(it):
                break
        w, sigma, anchored = run.restart(it)


def _check(judge: Judge, it: Iterate, scale: float) -> Status | None:
    """Ask the judge about one pass."""
    duals = judge.constraints.duals(it.reflected, it.projected, scale)
    candidate = judge.propose(it.occupancy)
    judge.prove(duals)
    if candidate.violation > judge.tolerance and judge.best is not None and judge.best.violation > judge.tolerance:
        if judge.refutation is None:
            judge.refute(duals)
        # The step from a policy's occupancy to its projection tends to the displacement as fast as the policies do.
        copies = np.tile(candidate.d, (len(it.projected), 1))
        judge.refute(judge.constraints.duals(copies, judge.constraints.project(copies), 1.0))
    judge.record(float(np.linalg.norm(it.drift)))
    if judge.refutation is None:
        return judge.verdict()
    near = judge.nearest_distance <= (1 + NEAREST) * judge.refutation.distance
    return Status.INFEASIBLE if near or judge.limit() is not None else None


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
        self.drifts.append(float(np.linalg.norm(it.drift)))
        passes, drift = len(self.drifts), self.drifts[-1]
        if not self.settings.adaptive:
            return False
        if self.judge.refutation is not None:
            return self.anchored  # an anchor would hold back a sequence that has to drift away
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
        turned = float(np.linalg.norm((it.governing - d) - (first.governing - first.occupancy))) / self.sigma
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
