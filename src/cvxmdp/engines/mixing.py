"""Mixtures of deterministic policies, for linear constraints with few rows.

Some mixture of at most n + 1 deterministic policies is optimal under n linear rows.  Where many states are visited it
is sought in rounds (:mod:`cvxmdp.engines.rounds`).

Where these get stuck, or most states are not visited, it is column generation (Dantzig-Wolfe).  A small linear program
mixes the policies met so far, and may exceed the limits at a price; its multipliers price the rows; policy iteration at
cost ``c + E'lambda`` finds the policy that the mixture misses most, and its value is a bound.  Under more than a few
limits multipliers are smoothed towards the best bound's, which keeps them from swinging.  Rows that give way need no
price: there the small program is a quadratic one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import entr

from cvxmdp.blocks import Constraint, Term
from cvxmdp.engines.base import Engine, Proposal, Proposals, Task, needs_rows
from cvxmdp.engines.halving import Halving
from cvxmdp.engines.mixture import Mixture, column
from cvxmdp.engines.prover import Candidate
from cvxmdp.engines.rounds import MET, SoftRows, rounds, soft_rounds
from cvxmdp.mdp import Array
from cvxmdp.policy import policy_from_occupancy

MOST_ENTRIES = 50_000_000
"""Advantages (400 MB) up to which all costs are evaluated at once."""
SPREAD = 0.1
"""Share of the states, counted by the entropy of the visits, from which on rounds with frozen visits are tried."""
FEW_LIMITS, SMOOTHING = 3, 0.5
"""Up to so many limits plain column generation is fast; beyond, this share of the best multipliers is kept."""
PRICING = 1e-2
"""Share of the gap to which policies are priced."""
FIRST_PENALTY, MOST_PENALTY = 10.0, 1e9
"""Price of exceeding a limit by its own size, in units of the cost: the first, and the last."""
TOO_CHEAP = 0.1
"""Share of what exceeding costs within which the gap shows that the price is too low."""
READY = 2.0
"""A mixture is judged once it is within this many tolerances of the bound."""
PATIENCE = 8
"""Rounds towards rows that give way in which what is missing has to halve: the small program has some ten digits, and
policies that tie are new for ever."""


@dataclass(frozen=True)
class Mixing(Engine):
    """Settings of the mixing method.

    Parameters
    ----------
    smoothing : float, optional
        Between 0 and 1: how much of the best multipliers is kept when new ones are priced.  When not given, none is for
        up to three limits, where plain column generation is fast, and half for more.
    evaluation : {"auto", "direct", "iterative"}
        How linear systems are solved, see :func:`cvxmdp.dynamics.plan.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Budget("collision", at_most=0.01)])
    >>> problem.solve(method=cm.Mixing()).status.name
    'OPTIMAL'
    """

    smoothing: float | None = None

    name = "mixing"
    on_ranks = True
    said = "mixing policies"
    most_passes = 2000
    threads_from = np.inf

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.smoothing is not None and not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}; it must be at least 0 and below 1")

    def needs(self, constraints: Sequence[Constraint], terms: Sequence[Term]) -> str | None:
        return needs_rows(constraints, terms)

    def proposals(self, task: Task) -> Proposals:
        """Mix by rounds with frozen visits, then by column generation."""
        soft = task.blocks.soft_rows
        if soft is not None:
            yield from self._soften(task, Mixture(task, soft))
            return
        mixture = Mixture(task, task.blocks.rows)
        if task.start is not None:
            mixture.add(column(task.start.occupancy))
        if _by_rounds(task, mixture):
            first = task.best.d if task.start is None else task.start.occupancy
            yield from rounds(task, mixture, _policy(task, first))
        yield from self._lower_cost(task, mixture)

    def _soften(self, task: Task, mixture: Mixture) -> Proposals:
        """Do the same with rows that give way, from the duals of some displacement."""
        assert task.start is not None
        if not task.columns.held and _by_rounds(task, mixture):
            sides = SoftRows(mixture.linear, mixture.scale, task.start.duals[0])
            nearest = mixture.mix(mixture.nearest(_distance(task.best))[0])
            if (yield from soft_rounds(task, sides, _policy(task, nearest))):
                return
        yield from self._lower_distance(task, mixture)

    def _lower_cost(self, task: Task, mixture: Mixture) -> Proposals:
        """Lower the cost of the mixture; exceeding the limits has a price, which rises while it is too cheap."""
        smoothing = self.smoothing
        if smoothing is None:
            smoothing = 0.0 if mixture.limits.size <= FEW_LIMITS else SMOOTHING
        pricing, penalty = Pricing(smoothing), FIRST_PENALTY
        best, scale = -np.inf, mixture.cost_scale
        gap, highest = scale, float(np.max(task.c))
        while True:
            weights, multipliers, excess = mixture.least_cost(penalty)
            trial = pricing.trial(multipliers)
            duals = task.blocks.split([mixture.dual(trial)])
            now = Proposal(
                partial(mixture.mix, weights), partial(list, duals), priced=PRICING * min(gap, scale),
                residual=gap / max(scale, 1e-300), said=_said(mixture),
            )  # fmt: skip
            bound = (yield now).bound
            pricing.note(trial, bound.value)
            best = max(best, bound.value)
            obeys = excess <= MET * task.tolerance
            gap = mixture.cost(weights) + penalty * mixture.cost_scale * (0.0 if obeys else excess) - best
            if bound.value > highest:  # no policy costs as much
                yield replace(now, suspect=True, priced=None)
            if obeys and gap <= READY * task.tolerance * scale:
                scale = (yield replace(now, ready=True, duals=None, priced=None)).candidate.scale
            stuck = not mixture.add_policy(bound.pairs) and not pricing.sharpen()
            cheap = not obeys and (stuck or gap <= TOO_CHEAP * penalty * mixture.cost_scale * excess)
            if cheap and penalty < MOST_PENALTY:
                penalty, pricing = 10 * penalty, Pricing(smoothing)
            elif cheap or stuck:
                yield replace(now, ready=True, suspect=cheap, priced=None)
                return

    def _lower_distance(self, task: Task, mixture: Mixture) -> Proposals:
        """Lower the distance to rows that give way."""
        distance, halving = _distance(task.best), Halving()
        while halving.since < PATIENCE:
            weights, multipliers = mixture.nearest(distance)
            duals = [mixture.dual(multipliers)]
            answer = yield Proposal(
                partial(mixture.mix, weights), partial(list, duals), ready=True, said=_said(mixture)
            )
            distance = min(distance, _distance(answer.candidate))
            halving.note(answer.missing)
            if not mixture.add_policy(answer.bound.pairs):
                return


def _policy(task: Task, d: Array) -> Array:
    """Return the probabilities of the policy of an occupancy."""
    return policy_from_occupancy(task.mdp, d, task.dynamics.per_state(d), task.unconstrained.pairs).probabilities


def _by_rounds(task: Task, mixture: Mixture) -> bool:
    """Whether rounds with frozen visits are worth a try: memory allows them, and many states are visited."""
    return task.c.size * (2 * mixture.linear.upper.size + 1) <= MOST_ENTRIES and _spread_out(task)


def _said(mixture: Mixture) -> str:
    count = len(mixture.columns)
    return f"mixing {count} polic{'y' if count == 1 else 'ies'}"


def _distance(candidate: Candidate) -> float:
    """Return the distance of a policy to rows that give way, where that is all it costs."""
    return float(np.sqrt(2 * candidate.value))


def _spread_out(task: Task) -> bool:
    """Whether the best policy is at home in many states: else frozen visits say little of other policies."""
    visits = task.dynamics.per_state(task.best.d)
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
