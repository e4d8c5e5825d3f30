"""The judge: turns iterates of any engine into what is proven, and says when to stop.

An engine proposes occupancies and dual arrays.  The judge reads the policy off an occupancy and evaluates it exactly,
prices the duals by policy iteration into a bound, tries them as a proof of infeasibility, keeps the best of each, and
compares with the tolerance.  Nothing an engine believes of itself is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cvxmdp import interrupts
from cvxmdp.constraints.combine import Blocks, relative_ease
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines.presolve import Unconstrained, policy_iteration
from cvxmdp.engines.prover import EPS, FINE, NEGLIGIBLE, Prover, Visits
from cvxmdp.engines.purify import purify
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.policy import Policy, policy_from_occupancy
from cvxmdp.status import Progress, Status

AS_NEAR = 1e-8
"""How much farther, relatively, the cheapest of the nearest policies may be."""
EXACTNESS = (1.0, 1e-6)
"""How exactly, relative to the tolerance, visits are found: first, and where that is not enough."""
TOLERATED = 0.1
"""Share of what is wanted that a bound may lose to rounding before it is computed again in extended precision."""
SPARED = 1e-3
"""Share of what is wanted that is not claimed, so that others who count rounding otherwise find the claim true."""
HAIR = 64 * EPS
"""Limits are numbers that were computed: that no policy obeys is not said of those exceeded by less of their size."""
RARELY = (1e-3, 1e-6)
"""Actions that are taken less often than so many times the most likely one may be left out."""
CLOSED = 0.5
"""Share of the tolerance within which a gap needs no better bound."""
CLEANING = 0.1
"""Share of a solve's seconds, and of what the tolerance leaves to the gap, that a policy may take to randomize less."""
SOON = 0.05
"""Seconds that may be spent on it at any rate, so that answers on small models do not depend on the clock."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy with what it really does."""

    policy: Policy
    d: Array
    value: float
    scale: float
    """``|c|'d`` and the sizes of the convex terms: what the gap is relative to."""
    violation: float
    """Worst violation, free of units; with all that the error may add, once that is known."""
    visits: Visits | None = None
    """What d is made of, with its proven error; None as long as d is only about right."""
    error: float = 0.0
    """By how much the value may be off."""


@dataclass(frozen=True, eq=False)
class Bound:
    """A lower bound on the optimum, a dual array for each constraint and term, and the V that prices them."""

    duals: list[Array]
    V: Array
    value: float
    pairs: Indices | None = None
    """The best pairs at V and these duals, just after they were priced."""


@dataclass(frozen=True, eq=False)
class Refutation:
    """A proof that no policy obeys: duals whose ``min over D of u'd - max over C of u'z`` is ``margin > 0``."""

    duals: list[Array]
    V: Array
    margin: float
    distance: float
    """The margin over the norm of the normals: no occupancy is nearer to the constraints than this."""


def relative_gap(excess: float, scale: float) -> float:
    """Return by how much a value exceeds its bound, relative to a scale.

    Zero where a policy costs less than the bound, as one may that exceeds a limit by what the tolerance allows.
    """
    if excess <= 0:
        return 0.0
    return excess / scale if scale > 0 else np.inf


@dataclass(eq=False)
class Judge:
    """See the module."""

    mdp: MDP
    dynamics: Dynamics
    c: Array
    blocks: Blocks
    tolerance: float
    time_limit: float
    max_iterations: int
    callback: Callable[[Progress], object] | None
    started: float = field(default_factory=time.perf_counter)
    seek: str = "policy"
    """What is sought where a policy obeys, and where none does: for a "policy" the best, and the cheapest of the
    nearest; for an "optimum" the best, and a proof; for a "distance" any, and the least distance; for a "verdict" any,
    and a proof."""
    best: Candidate | None = None
    bound: Bound | None = None
    refutation: Refutation | None = None
    nearest: Candidate | None = None
    nearest_distance: float = np.inf
    displacement: Array | None = None
    """From the nearest allowed points to the nearest policy, one row a set."""
    moved: Bound | None = None
    """What bounds the cost of all policies that obey the constraints moved to the nearest policy."""
    history: list[Progress] = field(default_factory=list)
    iterations: int = 0
    begun: int = 0
    """Iterations before the engine that runs."""
    stopped: bool = False
    """The callback asked to stop."""
    refuted: float | None = None
    """Seconds until it was proven that no policy obeys."""
    pending: Callable[[], Array] | None = None
    """What an engine would propose if it were interrupted now."""

    def __post_init__(self) -> None:
        """Note whether the cost has both signs; else its absolute value, a long array, need not be made."""
        self._signed = bool(np.min(self.c) < 0)
        self._unsettled = np.inf
        self.prover = Prover(self.mdp, self.dynamics)

    @cached_property
    def unconstrained(self) -> Unconstrained:
        """The best policy without limits, as presolve finds it; before that, the one that looks best in one step."""
        return policy_iteration(self.dynamics, self.c, rounds=0)

    def propose(self, d: Array) -> Candidate:
        """Evaluate the policy read off ``d`` and keep it when it is the best so far."""
        policy, visits = self._read(d)
        del d  # a long array, if the caller does not need it any more
        candidate = self._measure(policy, visits)
        if self.best is None or self._better(candidate, self.best):
            self.best = candidate
        if self.refutation is not None:
            displacement = candidate.d - self.blocks.project(candidate.d)
            distance = float(np.linalg.norm(displacement))
            if distance < self.nearest_distance:
                self.nearest, self.nearest_distance, self.displacement = candidate, distance, displacement
                self._unsettled = candidate.value
        return candidate

    def candidate(self, d: Array) -> Candidate:
        """Read the policy off ``d`` and evaluate it."""
        return self._measure(*self._read(d))

    def _read(self, d: Array) -> tuple[Policy, Array]:
        """Return the policy of ``d`` and its visits."""
        if not np.isfinite(np.sum(d)):
            raise FloatingPointError("an engine proposes numbers that are not finite")
        allowed = self.blocks.allowed
        if self.refutation is None and allowed is not None:  # the nearest policy may have to go where none is allowed
            d = np.where(allowed, d, 0.0)
        if np.min(d) < 0:
            d = np.maximum(d, 0.0)
        visits = self.dynamics.per_state(d)
        return policy_from_occupancy(self.mdp, d, visits, self._fallback), visits

    def _measure(self, policy: Policy, visits: Array) -> Candidate:
        """Evaluate a policy whose visits are about the given ones."""
        total = float(visits.sum())
        d = self.dynamics.occupancy(policy.probabilities, visits / total if total > 0 else None)
        return Candidate(policy, d, self._value(d), self._scale(d), self.blocks.relative(d))

    def _value(self, d: Array) -> float:
        return float(self.c @ d) + self.blocks.value(d)

    def _scale(self, d: Array) -> float:
        return float((np.abs(self.c) if self._signed else self.c) @ d) + self.blocks.size_of_value(d)

    def measured(self, candidate: Candidate) -> Candidate:
        """Return the same policy with a proven error of all it does."""
        if candidate.visits is not None:
            return candidate
        pi, owner = candidate.policy.probabilities, self.dynamics.owner
        for share in EXACTNESS:
            visits = self.prover.visits(pi, share * self.tolerance, self.dynamics.per_state(candidate.d))
            d = visits.occupancy(owner, pi)
            spread = visits.spread(owner, pi, d)
            violation, plain = self.blocks.relative(d, spread), self.blocks.relative(d)
            # Where the error keeps it from obeying, as in a set that is a single point, it has to be smaller.
            known = violation - plain <= 0.1 * self.tolerance * max(1.0, plain)
            if known and (violation <= self.tolerance or plain > self.tolerance):
                break
        sizes = np.abs(self.c) if self._signed else self.c
        error = float(spread.of(sizes)) + sum(term.change(d, spread) for term in self.blocks.terms)
        return Candidate(candidate.policy, d, self._value(d), self._scale(d), violation, visits, error)

    def cleaned(self, candidate: Candidate) -> Candidate:
        """Return a proven policy that randomizes less, where it is as good as proven, too."""
        candidate = self._purified(candidate)
        pi, owner = candidate.policy.probabilities, self.dynamics.owner
        most = np.maximum.reduceat(pi, self.dynamics.first[:-1])[owner]
        for share in RARELY:
            rare = (pi > 0) & (pi < share * most)
            if not np.any(rare) or self.limit() not in (None, Status.ITERATION_LIMIT):
                break
            tried = self.measured(self.candidate(np.where(rare, 0.0, candidate.d)))
            if self._proven(tried):
                return tried
        return candidate

    def _purified(self, candidate: Candidate) -> Candidate:
        """Return a policy that randomizes in as few states as rows bind, if all limits are rows and one is found."""
        bound = self.bound
        if bound is None or not self.blocks.num_rows:
            return candidate
        room = CLEANING * (self.tolerance * candidate.scale - (candidate.value + candidate.error - bound.value))
        pi, multipliers = candidate.policy.probabilities, np.concatenate(bound.duals)
        deadline = min(self.deadline, time.perf_counter() + max(CLEANING * self.elapsed(), SOON))
        try:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                masses = purify(self.dynamics, self.c, self.blocks, candidate.d, pi, multipliers, room, deadline)
        except (ArithmeticError, np.linalg.LinAlgError, MemoryError, RuntimeError):  # as where an engine breaks down
            return candidate
        if masses is None or not np.all(np.isfinite(masses)):
            return candidate
        tried = self.measured(self.candidate(masses))
        worse = tried.violation > candidate.violation + TOLERATED * self.tolerance  # more than rounding may do
        return tried if self._proven(tried) and not worse else candidate

    def _proven(self, tried: Candidate) -> bool:
        """Whether a policy obeys and its gap is within the tolerance, at the bound that is known."""
        assert self.bound is not None
        gap = relative_gap(tried.value + tried.error - self.bound.value, tried.scale)
        return tried.violation <= self.tolerance and gap <= self.tolerance

    @property
    def _fallback(self) -> Indices:
        """The pair to take where a state has no mass: the unconstrained optimum's, or one that may be visited."""
        pairs, allowed = self.unconstrained.pairs, self.blocks.allowed
        if allowed is None or np.all(allowed[pairs]):
            return pairs
        first = np.flatnonzero(allowed)
        states = self.dynamics.owner[first]
        chosen = pairs.copy()
        chosen[states[::-1]] = first[::-1]
        return np.where(allowed[pairs], pairs, chosen)

    def _better(self, new: Candidate, old: Candidate) -> bool:
        """Among policies that obey, the cheaper; else the one that violates less."""
        if new.violation <= self.tolerance and old.violation <= self.tolerance:
            return new.value < old.value
        return new.violation < old.violation

    def prove_first(self) -> None:
        """Take the value of the best policy without limits as a bound, or where there are terms price some tangents."""
        duals = self.blocks.no_duals()
        if self.blocks.terms:
            self.prove(duals)
            return
        wanted = self.tolerance * (self.best.scale if self.best is not None else 0.0)
        self.bound = self._bounded(duals, self.unconstrained, (self.c, 0.0, 0.0), self.c, wanted)

    def prove(self, duals: Sequence[Array], start: Array | None = None, accuracy: float = 0.0) -> Bound:
        """Price the duals into a lower bound on the optimum, from the value ``start``; keep it if it is the best.

        It is exact to ``accuracy``, or to a tenth of what the tolerance allows where that is more, or closes the gap.
        """
        duals = self.blocks.explicit(duals)
        u, top, size = self.blocks.normals(duals)
        if start is None:
            start = self.bound.V if self.bound is not None else self.unconstrained.V
        accuracy = max(accuracy, 0.1 * self.tolerance * (self.best.scale if self.best is not None else 0.0))
        enough = np.inf
        if self.best is not None and self.best.violation <= self.tolerance:
            enough = self.best.value - CLOSED * self.tolerance * self.best.scale + top
        u += self.c
        priced = policy_iteration(self.dynamics, u, start, accuracy, self.deadline, enough=enough)
        scale = self.best.scale if self.best is not None else 0.0
        bound = self._bounded(duals, priced, (u, top, size), self.c, self.tolerance * scale)
        if self.bound is None or bound.value > self.bound.value:
            self.bound = bound
        return replace(bound, pairs=priced.pairs)

    def _bounded(
        self, duals: Sequence[Array], priced: Unconstrained, known: tuple[Array, float, float], c: Array, wanted: float
    ) -> Bound:
        """Turn what was priced at cost ``c + u`` into a bound, all that rounding may have added left out.

        Where that would be more than a share of what is ``wanted``, it is computed again in extended precision.
        """
        total, top, size = known
        rounding = self.prover.rounding(priced.V, total, size)
        bound = Bound(list(duals), priced.V, priced.bound - top - rounding)
        if rounding <= TOLERATED * wanted or not np.isfinite(top):
            return bound
        u, fine_top, _ = self.blocks.normals([np.asarray(dual, dtype=FINE) for dual in duals])
        value, V = self.prover.bound(c, u, fine_top, self.blocks.magnitudes(duals), priced.last, NEGLIGIBLE * wanted)
        value -= SPARED * wanted
        return bound if bound.value >= value else Bound(list(duals), V, value)

    def prove_least(self) -> None:
        """Note that no policy costs less than the cheapest pair: where that is free, the best policy may be too."""
        least = float(np.min(self.c))
        least -= 4 * EPS * abs(least)
        if not self.blocks.terms and (self.bound is None or least > self.bound.value):
            self.bound = Bound(self.blocks.no_duals(), np.zeros(self.dynamics.num_states), least)

    def refute(self, duals: Sequence[Array], start: Array | None = None) -> Refutation | None:
        """Try the duals as a proof that no policy obeys the constraints; ``start`` is a value near theirs."""
        duals = duals[: len(self.blocks.constraints)]
        duals = self.blocks.explicit(duals)
        u, top, size = self.blocks.normals(duals)
        stacked = float(np.linalg.norm(self.blocks.stacked(duals)))
        if not (np.isfinite(top) and 0 < stacked < np.inf):
            return None
        if start is None and self.refutation is not None:
            start = self.refutation.V
        priced = policy_iteration(self.dynamics, u, start, deadline=self.deadline)
        estimate = priced.bound - top
        if estimate <= 0:
            return None
        proof = self._bounded(duals, priced, (u, top, size), np.zeros_like(u), self.tolerance * estimate)
        margin = proof.value
        if margin <= HAIR * relative_ease(self.blocks.constraints, duals):
            return None
        self.refuted = self.refuted or self.elapsed()
        found = Refutation(list(duals), proof.V, margin, margin / (stacked * (1 + self.c.size * EPS)))
        if self.refutation is None or found.distance > self.refutation.distance:
            self.refutation = found
        return found

    @property
    def near(self) -> bool:
        """Whether the nearest policy is proven nearest to the tolerance."""
        return self.refutation is not None and self.nearest_distance <= (1 + self.tolerance) * self.refutation.distance

    def settle(self, d: Array) -> None:
        """Take ``d`` as the nearest policy if it is as near as what distance alone found, and no dearer."""
        candidate = self.candidate(d)
        near = self.blocks.distance(candidate.d) <= (1 + AS_NEAR) * self.nearest_distance
        if near and candidate.value <= self._unsettled:
            self.nearest = candidate

    def cheapest(self, duals: Sequence[Array]) -> bool:
        """Price the duals into a bound on the cost of policies as near; return whether it closes their gap."""
        assert self.nearest is not None
        duals = self.blocks.explicit(duals)
        u, top, size = self.blocks.normals(duals)
        start = self.moved.V if self.moved is not None else None
        u += self.c
        priced = policy_iteration(self.dynamics, u, start, deadline=self.deadline)
        bound = self._bounded(duals, priced, (u, top, size), self.c, self.tolerance * self.nearest.scale)
        before, self.moved = self.moved, bound
        here = self.least_nearest()
        if before is not None:
            self.moved = before
            if here > self.least_nearest():
                self.moved = bound
        return self.nearest.value - here <= self.tolerance * self.nearest.scale

    def least_nearest(self) -> float:
        """Return the bound on the cost of all policies that obey once each set is moved by its displacement."""
        if self.moved is None or self.displacement is None:
            return -np.inf
        moves = self.blocks.stacked(self.moved.duals) * self.displacement
        spared = (moves.size + 10) * EPS * float(np.abs(moves).sum())
        if self.nearest is not None:
            spared += SPARED * self.tolerance * self.nearest.scale
        return self.moved.value - float(moves.sum()) - spared

    def contradict(self, duals: Sequence[Array]) -> bool:
        """Note duals if they prove that the constraints exclude each other; return whether they do."""
        duals = duals[: len(self.blocks.constraints)]
        duals = self.blocks.explicit(duals)
        u, top, size = self.blocks.normals(duals)
        V = np.zeros(self.dynamics.num_states)
        margin = float(np.min(u)) - top - self.prover.rounding(V, u, size)
        if not margin > 0:
            return False
        self.refuted = self.elapsed()
        self.refutation = Refutation(list(duals), V, margin, np.inf)
        return True

    @property
    def contradictory(self) -> bool:
        """Whether the constraints exclude each other, whatever the dynamics."""
        return self.refutation is not None and np.isinf(self.refutation.distance)

    @property
    def gap(self) -> float:
        """Proven relative gap of the best policy; inf while it exceeds a limit or a half is missing."""
        if self.best is None or self.bound is None or self.best.violation > self.tolerance:
            return np.inf
        return relative_gap(self.best.value + self.best.error - self.bound.value, self.best.scale)

    @property
    def deadline(self) -> float:
        """When the time limit is reached, on the clock ``time.perf_counter``."""
        return self.started + self.time_limit

    @property
    def steps(self) -> int:
        """Iterations of the engine that runs."""
        return self.iterations - self.begun

    def elapsed(self) -> float:
        """Seconds since the solve began."""
        return time.perf_counter() - self.started

    def record(self, residual: float) -> None:
        """Note where the solve stands and tell the callback."""
        value, violation = (self.best.value, self.best.violation) if self.best else (np.nan, np.nan)
        bound = self.bound.value if self.bound else -np.inf
        progress = Progress(self.iterations, self.elapsed(), value, bound, self.gap, violation, residual)
        self.history.append(progress)
        if self.callback is not None and self.callback(progress):
            self.stopped = True

    def verdict(self) -> Status | None:
        """Say OPTIMAL once the best policy obeys and its gap is proven, a limit once it is reached, else None."""
        if self._enough and self.best is not None:
            self.best = self.measured(self.best)  # what looks good enough has to be so with its error
            if self._enough:
                return Status.OPTIMAL
        return self.limit()

    @property
    def _enough(self) -> bool:
        return self.gap <= self.tolerance or (self.obeyed and not self.wants_optimum)

    @property
    def wants_optimum(self) -> bool:
        """Whether any policy that obeys is not enough."""
        return self.seek in ("policy", "optimum")

    @property
    def wants_nearest(self) -> bool:
        """Whether a proof that no policy obeys is not enough."""
        return self.seek in ("policy", "distance")

    @property
    def obeyed(self) -> bool:
        """Whether a policy that obeys is known."""
        return self.best is not None and self.best.violation <= self.tolerance

    def limit(self) -> Status | None:
        """Say which limit is reached, if any."""
        if self.stopped or interrupts.requested():
            return Status.INTERRUPTED
        if self.elapsed() >= self.time_limit:
            return Status.TIME_LIMIT
        if self.iterations >= self.max_iterations:
            return Status.ITERATION_LIMIT
        return None
