"""The judge: keeps the best of what is proven, and says when that is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cvxmdp.engines.prover import Bound, Candidate, Prover, Refutation
from cvxmdp.mdp import Array
from cvxmdp.status import Progress, Status

CLOSE_ENOUGH = 0.5
"""Share of the tolerance within which a gap needs no better bound."""
PRICING = 0.1
"""Share of what the tolerance allows to which duals are priced."""


def relative_gap(excess: float, scale: float) -> float:
    """Return by how much a value exceeds its bound, relative to a scale.

    Zero where a policy costs less than the bound, as one may that exceeds a limit by what the tolerance allows.
    """
    if excess <= 0:
        return 0.0
    return excess / scale if scale > 0 else np.inf


def never(candidate: Candidate) -> bool:
    """Say that no policy is enough before it is proven best."""
    return False


@dataclass(frozen=True)
class Goal:
    """What a solve is to reach."""

    tolerance: float
    any_will_do: bool = False
    """Whether any policy that obeys is enough."""
    enough: Callable[[Candidate], bool] = never
    """Whether a policy that obeys is enough for another reason."""
    acceptable: float = 0.0
    """The gap that is enough once an engine has ended, where the problem is part of another; zero for none."""


@dataclass(frozen=True, eq=False)
class Nearest:
    """The policy that comes nearest to limits which none obeys, as far as is known."""

    candidate: Candidate
    displacement: Array
    """From the nearest allowed points to its occupancy, one row a set."""
    cheapest: Bound | None = None
    """What bounds the cost of all policies that obey the sets moved by the displacement."""

    @property
    def distance(self) -> float:
        """How near it comes."""
        return float(np.linalg.norm(self.displacement))


@dataclass(eq=False)
class Judge:
    """The evidence of a solve: the best policy, the best bound, the best proof that no policy obeys."""

    prover: Prover
    goal: Goal
    best: Candidate | None = None
    bound: Bound | None = None
    refutation: Refutation | None = None
    nearest: Nearest | None = None
    refuted: float | None = None
    """Seconds until it was proven that no policy obeys."""

    def __post_init__(self) -> None:
        """Note what is read often."""
        self.clock, self.tolerance, self.blocks = self.prover.clock, self.goal.tolerance, self.prover.blocks

    def propose(self, d: Array) -> Candidate:
        """Evaluate the policy read off ``d`` and keep it when it is the best so far."""
        candidate = self.prover.candidate(d)
        if self.best is None or self._better(candidate, self.best):
            self.best = candidate
        return candidate

    def _better(self, new: Candidate, old: Candidate) -> bool:
        """Among policies that obey, the cheaper; else the one that violates less."""
        if new.violation <= self.tolerance and old.violation <= self.tolerance:
            return new.value < old.value
        return new.violation < old.violation

    def prove(self, duals: Sequence[Array], start: Array | None = None, accuracy: float = 0.0) -> Bound:
        """Price the duals into a lower bound on the optimum, from the value ``start``; keep it if it is the best.

        It is exact to ``accuracy``, or to a tenth of what the tolerance allows where that is more, or closes the gap.
        """
        if start is None:
            start = self.bound.potential if self.bound is not None else self.prover.unconstrained.V
        high = np.inf
        if self.best is not None and self.obeyed:
            high = self.best.value - CLOSE_ENOUGH * self.tolerance * self.best.scale
        accuracy = max(accuracy, PRICING * self._wanted)
        bound = self.prover.bound(duals, start, self._wanted, accuracy, high)
        self._keep(bound)
        return bound

    def prove_first(self) -> None:
        """Note the bounds that need no pricing, and where there are terms price some tangents."""
        if self.blocks.terms:
            self.prove(self.blocks.no_duals())
        else:
            self._keep(self.prover.first_bound(self._wanted))
            self._keep(self.prover.least_bound())

    @property
    def _wanted(self) -> float:
        """What of a bound matters: what the tolerance allows."""
        return self.tolerance * (self.best.scale if self.best is not None else 0.0)

    def _keep(self, bound: Bound) -> None:
        if self.bound is None or bound.value > self.bound.value:
            self.bound = bound

    def refute(self, duals: Sequence[Array], start: Array | None = None) -> Refutation | None:
        """Try the duals as a proof that no policy obeys, priced from the value ``start``; keep it if it is the best."""
        if start is None and self.refutation is not None:
            start = self.refutation.potential
        return self._note(self.prover.refutation(duals, start))

    def contradict(self, duals: Sequence[Array]) -> Refutation | None:
        """Try the duals as a proof that the constraints exclude each other, whatever the dynamics."""
        return self._note(self.prover.contradiction(duals))

    def _note(self, found: Refutation | None) -> Refutation | None:
        """Keep a refutation if it is the best."""
        if found is not None:
            self.refuted = self.refuted or self.clock.elapsed()
            if self.refutation is None or found.distance > self.refutation.distance:
                self.refutation = found
        return found

    @property
    def gap(self) -> float:
        """Proven relative gap of the best policy; inf while it exceeds a limit or a half is missing."""
        return np.inf if self.best is None or not self.obeyed else self.gap_of(self.best)

    def gap_of(self, candidate: Candidate) -> float:
        """Return the relative gap of a policy at the bound that is known."""
        if self.bound is None:
            return np.inf
        return relative_gap(candidate.value + candidate.error - self.bound.value, candidate.scale)

    @property
    def apart(self) -> bool:
        """Whether no policy obeys although some points do: constraints that exclude each other have no nearest one."""
        return self.refutation is not None and bool(np.isfinite(self.refutation.distance))

    @property
    def near(self) -> bool:
        """Whether the nearest policy is proven nearest to the tolerance."""
        if self.nearest is None or self.refutation is None:
            return False
        return self.nearest.distance <= (1 + self.tolerance) * self.refutation.distance

    def known(self) -> Candidate:
        """Return the best policy, where there is one."""
        assert self.best is not None
        return self.best

    @property
    def obeyed(self) -> bool:
        """Whether a policy that obeys is known."""
        return self.best is not None and self.best.violation <= self.tolerance

    def record(self, residual: float) -> None:
        """Tell the clock where the solve stands."""
        clock = self.clock
        value, violation = (self.best.value, self.best.violation) if self.best else (np.nan, np.nan)
        bound = self.bound.value if self.bound else -np.inf
        clock.tell(Progress(clock.iterations, clock.elapsed(), value, bound, self.gap, violation, residual))

    def verdict(self) -> Status | None:
        """Say OPTIMAL once the best policy obeys and its gap is proven, a limit once it is reached, else None."""
        if self.best is not None and self._done(self.best):
            self.best = self.prover.measured(self.best)  # what looks good enough has to be so with its error
            if self._done(self.best):
                return Status.OPTIMAL
        return self.clock.limit()

    def _done(self, best: Candidate) -> bool:
        return self.gap <= self.tolerance or (self.obeyed and (self.goal.any_will_do or self.goal.enough(best)))
