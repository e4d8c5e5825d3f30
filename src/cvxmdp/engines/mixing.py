"""Mixtures of deterministic policies, for linear constraints with few rows.

Some mixture of at most n + 1 deterministic policies is optimal under n linear rows.  It is sought in rounds: the
program with frozen visits (see frozen.py) prices the rows and proposes the next policy, and its multipliers prove how
good the last one is.

Where that gets stuck, no policy obeys, or most states are not visited, it is column generation (Dantzig-Wolfe).  A
small linear program mixes the policies met so far, and may exceed the limits at a price; its multipliers price the
rows; policy iteration at cost ``c + E'lambda`` finds the policy that the mixture misses most, and its value is a bound.
Under more than a few limits multipliers are smoothed towards the best bound's, which keeps them from swinging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from cvxmdp.blocks import Constraint, Term
from cvxmdp.engines.base import Engine
from cvxmdp.engines.frozen import solve_elastic, solve_frozen
from cvxmdp.engines.judge import Judge
from cvxmdp.engines.mixture import Mixture
from cvxmdp.engines.nearest import CLOSEST, approach
from cvxmdp.engines.presolve import policy_iteration
from cvxmdp.mdp import Array
from cvxmdp.status import Status

MOST_ROUNDS, PATIENCE = 40, 8
"""Rounds with frozen visits, and how many of them may pass without halving what is missing."""
FIRST_PRICE = 0.3
"""Where multipliers begin, in units in which the cost and the limits are of size one."""
MOST_ENTRIES = 50_000_000
"""Advantages (400 MB) up to which all costs are evaluated at once."""
SPREAD = 0.1
"""Share of the states, counted by the entropy of the visits, from which on rounds with frozen visits are tried."""
FEW_LIMITS, SMOOTHING = 3, 0.5
"""Up to so many limits plain column generation is fast; beyond, this share of the best multipliers is kept."""
PRICED = 1e-2
"""Share of the gap to which policies are priced in column generation."""
FIRST_PENALTY, MOST_PENALTY = 10.0, 1e9
"""Price of exceeding a limit by its own size, in units of the cost: the first, and the last."""
WITHIN = 1e-2
"""Share of the tolerance within which a mixture obeys."""
SURE = 0.1
"""Share of what exceeding costs within which the gap shows that the price is too low."""
ASK = 2.0
"""The judge is asked once a mixture is within this many tolerances of the bound."""
MANY_STATES = 10_000
"""From here on the least distance is sought no more exactly than the tolerance asks."""
EXACT = 1e-2
"""Share of the tolerance within which limits are met before the rounds end, unless that takes more than one round."""


@dataclass(frozen=True)
class Mixing(Engine):
    """Settings of the mixing method.

    Parameters
    ----------
    smoothing : float, optional
        Between 0 and 1: how much of the best multipliers is kept when new ones are priced.  When not given, none is for
        up to three limits, where plain column generation is fast, and half for more.
    evaluation : {"auto", "direct", "iterative"}
        How linear systems are solved, see :func:`cvxmdp.dynamics.linear.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Budget("collision", at_most=0.01)])
    >>> problem.solve(method=cm.Mixing()).status.name
    'OPTIMAL'
    """

    smoothing: float | None = None

    name = "mixing"
    most_passes = 2000
    threads_from = np.inf

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.smoothing is not None and not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}; it must be at least 0 and below 1")

    def needs(self, constraints: Sequence[Constraint], terms: Sequence[Term]) -> str | None:
        return self._needs_rows(constraints, terms)

    def run(self, judge: Judge, start: tuple[Array, list[Array]] | None) -> tuple[Status, str]:
        """Mix until the judge is satisfied; return the status and a sentence."""
        assert judge.blocks.linear is not None
        assert judge.best is not None
        mixture = Mixture(judge, judge.blocks.linear)
        mixture.add(judge.best.d)
        mixture.meet_far()
        if start is not None:
            mixture.add(start[0])
            judge.prove(start[1])
        status = None
        if _spread_out(judge):
            first = judge.best if start is None else judge.candidate(start[0])
            status = self._refine(judge, mixture, first.policy.probabilities)
        if status not in (None, Status.INFEASIBLE):
            return status, f"mixing: policies from prices, {judge.steps} rounds"
        if status is None:
            status = self._improve(judge, mixture)
        if status is Status.INFEASIBLE and judge.wants_nearest and not self._draw_near(judge, mixture):
            status = self._approach(judge, mixture) or self._improve(judge, mixture)
        count = len(mixture.occupancies)
        return status, f"mixing {count} polic{'y' if count == 1 else 'ies'}"

    def _draw_near(self, judge: Judge, mixture: Mixture) -> bool:
        """Find the nearest policy by rounds with frozen visits; return whether that succeeded."""
        if judge.c.size * (2 * mixture.linear.upper.size + 1) > MOST_ENTRIES or not _spread_out(judge):
            return False
        pi = judge.candidate(mixture.mix(mixture.least_excess()[0])).policy.probabilities
        return approach(judge, mixture.linear, mixture.scale, mixture.cost_scale, pi)

    def _refine(self, judge: Judge, mixture: Mixture, pi: Array) -> Status | None:
        """Solve the program with frozen visits and evaluate its policy, round after round; None where it gets stuck."""
        if judge.c.size * (mixture.which.size + 1) > MOST_ENTRIES:
            return None
        dynamics, costs, limits, equal = judge.dynamics, *mixture.frozen_rows()
        prices, sizes_of = np.where(equal, 0.0, FIRST_PRICE), np.abs(costs).T
        x = V = None
        least, stuck, was_close, near = 1.0, 0, False, False
        for _ in range(MOST_ROUNDS):
            judge.iterations += 1
            # The next round misses about the square of what the last one missed: more exactness would be lost.
            accuracy = min(max(0.01 * least**2, 0.01 * judge.tolerance), 1e-3)
            x, V, A = dynamics.evaluate(pi, costs, 1e-3 * accuracy, x, V)
            judge.pending = partial(dynamics.occupancy, pi)
            J = (1 - dynamics.gamma) * (dynamics.rho @ V)
            d, room = x[dynamics.owner] * pi, limits - J[1:]
            sizes = sizes_of @ d  # |c|'d and |E|'d, which the tolerance is relative to
            missed = np.where(equal, np.abs(room), -room) / np.maximum(np.maximum(np.abs(limits), sizes[1:]), 1e-300)
            excess = float(np.max(missed, initial=0.0))
            frozen = solve_frozen(A, x, dynamics.first, room, equal, prices, accuracy, near)
            if frozen is None:  # with these visits no policy obeys
                status, policy = self._yield(judge, mixture, x, A, room, equal, prices, accuracy)
                judge.record(excess)
                if policy is None:
                    return status
                pi = policy
                continue
            prices, near = frozen.multipliers, True
            bound = float(J[0] - prices @ room + frozen.least)
            gap = (float(J[0]) - bound) / max(float(sizes[0]), 1e-300)
            close = excess <= judge.tolerance and gap <= judge.tolerance
            limit = judge.limit()
            if close or limit is not None:
                judge.propose(d)
                duals = judge.blocks.split([mixture.frozen_dual(prices)])
                judge.prove(duals, mixture.cost_scale * (V[:, 0] + V[:, 1:] @ prices))
            judge.record(excess)
            # One round more makes the limits all but exact.
            if (excess <= EXACT * judge.tolerance or was_close or limit is not None) and (status := judge.verdict()):
                return status
            was_close = close
            stuck = 0 if max(excess, gap) < 0.5 * least else stuck + 1
            least = min(least, max(excess, gap))
            if stuck == PATIENCE:
                break
            pi = frozen.policy
        mixture.add(judge.dynamics.occupancy(pi))
        return None

    def _yield(
        self,
        judge: Judge,
        mixture: Mixture,
        x: Array,
        A: Array,
        room: Array,
        equal: npt.NDArray[np.bool_],
        prices: Array,
        accuracy: float,
    ) -> tuple[Status | None, Array | None]:
        """Find the policy of least excess with frozen visits, unless its multipliers prove that no policy obeys."""
        if np.any(equal) or np.all(room >= 0):
            return None, None
        frozen = solve_elastic(A, x, judge.dynamics.first, room, prices, accuracy)
        if frozen is None:
            return judge.limit(), None
        duals = judge.blocks.split([mixture.frozen_dual(frozen.multipliers)])
        if frozen.least > frozen.multipliers @ room and judge.refute(duals) is not None:
            mixture.add(judge.dynamics.occupancy(frozen.policy))
            return Status.INFEASIBLE, None
        limit = judge.limit()
        return limit, None if limit is not None else frozen.policy

    def _approach(self, judge: Judge, mixture: Mixture) -> Status | None:
        """Lower the distance to the constraints until it is proven least; then relax the limits by what is missing.

        The displacement v of the paper is fixed by then, and the cheapest of the nearest policies (Proposition 4) is
        the optimum under the relaxed limits.
        """
        V = None
        judge.propose(mixture.mix(mixture.least_excess()[0]))
        while True:
            judge.iterations += 1
            weights, multipliers = mixture.nearest()
            duals = judge.blocks.split([mixture.dual(multipliers)])
            judge.refute(duals)
            judge.propose(mixture.mix(weights))
            judge.record(judge.nearest_distance)
            priced = policy_iteration(judge.dynamics, mixture.normal(multipliers), V, 0.0, judge.deadline)
            V = priced.V
            assert judge.refutation is not None
            exact = judge.nearest_distance <= (1 + CLOSEST) * judge.refutation.distance
            enough = exact or (judge.near and judge.dynamics.num_states > MANY_STATES)
            if enough or judge.limit() is not None or not mixture.add_policy(priced.pairs):
                assert judge.displacement is not None
                mixture.relax(judge.displacement[0])
                return None if judge.limit() is None and judge.seek == "policy" else Status.INFEASIBLE

    def _improve(self, judge: Judge, mixture: Mixture) -> Status:
        """Lower the cost of the mixture until the gap is proven, or until it is proven that no policy obeys.

        Exceeding the limits has a price too, which rises while that is cheaper than obeying.
        """
        assert judge.best is not None
        smoothing = self.smoothing
        if smoothing is None:
            smoothing = 0.0 if mixture.limits.size <= FEW_LIMITS else SMOOTHING
        pricing, penalty = Pricing(smoothing), FIRST_PENALTY
        best, scale, known = -np.inf, mixture.cost_scale, judge.refutation is not None
        gap = scale
        highest = float(np.max(judge.c))
        while True:
            judge.iterations += 1
            weights, multipliers, excess = mixture.least_cost(penalty)
            judge.pending = partial(mixture.mix, weights)
            trial = pricing.trial(multipliers)
            duals = judge.blocks.split([mixture.dual(trial)])
            bound = judge.prove(duals, accuracy=PRICED * min(gap, scale))
            relaxed = bound.value - float(mixture.relaxation @ mixture.dual(trial))
            pricing.note(trial, relaxed)
            best = max(best, relaxed)
            obeys = excess <= WITHIN * judge.tolerance
            if obeys and not known and judge.best.violation > judge.tolerance:
                scale = judge.propose(mixture.mix(weights)).scale  # something to return, should the time run out
            gap = mixture.cost(weights) + penalty * mixture.cost_scale * (0.0 if obeys else excess) - best
            limit = judge.limit()
            # Among the nearest the cheapest is wanted: its gap is measured under the relaxed limits.
            if known and ((obeys and gap <= judge.tolerance * scale) or limit is not None):
                judge.settle(mixture.mix(weights))
                judge.cheapest(duals)
                return Status.INFEASIBLE
            if not known and ((obeys and gap <= ASK * judge.tolerance * scale) or limit is not None):
                scale = judge.propose(mixture.mix(weights)).scale
                if (status := judge.verdict()) is not None:
                    judge.record(judge.gap)
                    return status
            judge.record(gap / max(scale, 1e-300))
            if not known and best > highest and judge.refute(duals) is not None:
                return Status.INFEASIBLE
            assert bound.pairs is not None
            stuck = not mixture.add_policy(bound.pairs) and not pricing.sharpen()
            if not obeys and (stuck or gap <= SURE * penalty * mixture.cost_scale * excess):
                if penalty >= MOST_PENALTY:
                    refuted = known or judge.refute(duals) is not None
                    return Status.INFEASIBLE if refuted else self._undecided(judge, mixture, weights)
                penalty, pricing = 10 * penalty, Pricing(smoothing)
            elif stuck:
                return Status.INFEASIBLE if known else self._undecided(judge, mixture, weights)

    def _undecided(self, judge: Judge, mixture: Mixture, weights: Array) -> Status:
        judge.propose(mixture.mix(weights))
        return judge.verdict() or Status.ITERATION_LIMIT


def _spread_out(judge: Judge) -> bool:
    """Whether the first policy is at home in many states: else frozen visits say little of other policies."""
    assert judge.best is not None
    visits = judge.dynamics.per_state(judge.best.d)
    return bool(np.exp(entr(visits).sum()) >= SPREAD * visits.size)  # as evenly spread over so many states


class Pricing:
    """Multipliers to price: the master's, smoothed towards the ones of the best bound so far."""

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing
        self.center: Array | None = None
        self.best = -np.inf
        self.smoothed = False

    def trial(self, multipliers: Array) -> Array:
        """Return the multipliers to price in this round."""
        self.smoothed = self.center is not None and self.smoothing > 0
        if self.center is None or not self.smoothed:
            return multipliers
        return (1 - self.smoothing) * multipliers + self.smoothing * self.center

    def note(self, trial: Array, bound: float) -> None:
        """Keep the multipliers of the best bound."""
        if bound > self.best:
            self.best, self.center = bound, trial

    def sharpen(self) -> bool:
        """Price the master's own multipliers next, after a smoothed round found no new policy; False if they were."""
        was, self.center = self.smoothed, None
        return was
