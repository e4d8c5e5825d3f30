"""Runs of a policy, all at once, beside its exact costs.

A run's normalized cost is ``(1 - gamma) sum of gamma^t c_t``.  A run ends in a state that the policy never leaves:
there the rest is known.  Else it is cut after n steps, and the rest counts ``gamma^n``: it lies between that many times
the least and the largest cost of what the policy does, and intervals reach from the one to the other.  So they hold
whatever was cut, and what is not cut is an average of independent runs, without bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import stdtrit

from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.names import printable

LEFT = 1e-6
"""Where no number of steps is given, runs go on until no more than this is left of what counts."""
MOST_STEPS = 50_000
"""But no further than this, which takes seconds: discounts up to 0.9997 get there.  What is left is told."""
CONFIDENCE = 0.95
"""Of the intervals."""
UNSEEN = -math.log((1 - CONFIDENCE) / 2)
"""What n runs never showed has, at this confidence, a probability of at most so many n-th: 3.7 / n."""
ROUNDING = 1e-12
"""Of sums over the steps of a run, relatively."""
WIDTH = 80
"""Columns of a terminal."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """What runs of a policy cost.

    Attributes
    ----------
    costs : dict of str to float
        Estimated normalized discounted cost, by name, as :attr:`cvxmdp.Evaluation.costs` has it.
    intervals : dict of str to (float, float)
        Intervals that hold the exact costs in 95 of 100 cases, each.  They rest on the central limit theorem: where a
        cost is due to a few rare events, take more episodes.
    exact : dict of str to float
        The exact costs, from a linear solve.
    totals : dict of str to float
        Estimated discounted total of an episode: ``costs`` divided by ``1 - discount``.
    discount : float
        Of the model.
    episodes : int
        How many runs.
    steps : int
        Length of the longest run.
    cut : int
        How many runs were cut before a state that is never left.
    left : float
        Share of what counts that lies, on average, beyond the cuts.  Intervals allow for it.
    """

    costs: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    exact: Mapping[str, float]
    totals: Mapping[str, float]
    discount: float
    episodes: int
    steps: int
    cut: int
    left: float

    def __repr__(self) -> str:
        costs = ", ".join(f"{name} {cost:.4g}" for name, cost in self.costs.items())
        return printable(f"Simulation({self.episodes} episodes, {costs})")

    def __str__(self) -> str:
        said = [f"{self.episodes} episodes of at most {self.steps} steps; discount {self.discount:.9g}"]
        if self.left > LEFT:
            said.append(f"{self.cut} were cut, with {100 * self.left:.3g} % of what counts still to come")
        room = WIDTH - 62
        rows = [("cost per step", "estimate", "95 % interval", "exact", "total")]
        for name, cost in self.costs.items():
            low, high = self.intervals[name]
            short = printable(name)
            short = short if len(short) <= room else f"{short[: room - 3]}..."
            exact, total = self.exact[name], self.totals[name]
            rows.append((short, f"{cost:.5g}", f"{low:.5g} .. {high:.5g}", f"{exact:.5g}", f"{total:.5g}"))
        said += [f"{a:<{room}}{b:>12}{c:>26}{d:>12}{e:>12}".rstrip() for a, b, c, d, e in rows]
        return "\n".join(said)


def simulate(
    mdp: MDP, policy: Any, episodes: int = 1000, seed: int | None = None, steps: int | None = None
) -> Simulation:
    """Run a policy many times, all runs step by step together; see :meth:`cvxmdp.MDP.simulate`."""
    check_count("episodes", episodes)
    rng = read_seed(seed)
    if steps is not None:
        check_count("steps", steps)
    most = steps or min(math.ceil(math.log(LEFT) / math.log(mdp.discount)), MOST_STEPS)
    pi = mdp.policy(policy).probabilities
    chain = Chain(mdp, pi)
    names = list(mdp.costs)
    costs = np.stack([mdp.costs[name] for name in names], axis=1)
    sums = np.zeros((episodes, len(names)))
    state = chain.first(rng, episodes)
    runs, step, weight = np.arange(episodes), 0, 1 - mdp.discount
    while True:
        ends = chain.final[state]
        if np.any(ends):
            # In a state that is never left each further step costs, on average, the same.
            sums[runs[ends]] += weight / (1 - mdp.discount) * chain.mean(costs, state[ends])
            runs, state = runs[~ends], state[~ends]
        if not runs.size or step == most:
            break
        row = chain.act(rng, state)
        sums[runs] += weight * costs[chain.taken[row]]
        state = chain.move(rng, row)
        step += 1
        weight *= mdp.discount
    left = np.zeros(episodes)
    left[runs] = math.exp(step * math.log(mdp.discount))
    return estimated(mdp, pi, dict(zip(names, sums.T, strict=True)), left, step, runs.size, chain.certain)


def estimated(
    mdp: MDP, pi: Array, sums: Mapping[str, Array], left: Array, steps: int, cut: int, certain: bool = False
) -> Simulation:
    """Turn the normalized costs of runs, and what is left of each, into estimates with intervals."""
    exact, taken = mdp.evaluate(pi).costs, pi > 0
    costs, intervals = {}, {}
    for name, known in sums.items():
        possible = mdp.costs[name][taken]
        least, most = float(np.min(possible)), float(np.max(possible))
        # A run that was cut is taken to go on as it went.
        seen = -np.expm1(np.log(left, where=left > 0, out=np.full(left.size, -np.inf)))
        costs[name] = float(np.clip(np.mean(known / seen), least, most))
        low, high = (_end(known + left * worst, sign, worst, certain) for sign, worst in ((-1, least), (1, most)))
        intervals[name] = (max(low, least), min(high, most))
    totals = {name: cost / (1 - mdp.discount) for name, cost in costs.items()}
    return Simulation(costs, intervals, exact, totals, mdp.discount, left.size, steps, cut, float(np.mean(left)))


def _end(runs: Array, sign: int, beyond: float, certain: bool) -> float:
    """Return one end of the interval for the mean of runs that can reach as far as ``beyond``."""
    mean = float(np.mean(runs))
    rounding = sign * ROUNDING * float(np.max(np.abs(runs)))
    if certain:
        return mean + rounding
    if runs.size == 1:
        return beyond
    spread = float(np.std(runs, ddof=1)) / math.sqrt(runs.size)
    if spread <= abs(rounding):  # all runs were the same: others may be rare
        return mean + rounding + min(UNSEEN / runs.size, 1.0) * (beyond - mean)
    return mean + rounding + sign * float(stdtrit(runs.size - 1, (1 + CONFIDENCE) / 2)) * spread


class Chain:
    """A model under a policy, to be drawn from.  It has the pairs that are taken alone."""

    def __init__(self, mdp: MDP, pi: Array) -> None:
        self.taken = np.flatnonzero(pi > 0)
        P = sp.csr_array(mdp.transitions[self.taken])
        P.eliminate_zeros()
        owner, S = mdp.state[self.taken], mdp.num_states
        self._first = np.searchsorted(owner, np.arange(S + 1))
        self._pi = pi[self.taken]
        self._targets = P.indices
        self._acts = Draws(self._pi, self._first)
        self._moves = Draws(P.data, P.indptr)
        self._starts = np.flatnonzero(mdp.initial > 0)
        self._start = Draws(mdp.initial[self._starts], np.array([0, self._starts.size]))
        alone = np.diff(P.indptr) == 1
        stays = np.zeros(owner.size, dtype=bool)
        stays[alone] = P.indices[P.indptr[:-1][alone]] == owner[alone]
        self.final = np.bincount(owner[~stays], minlength=S) == 0
        """Which states are never left."""
        self.certain = self._starts.size == 1 and bool(np.all(alone)) and owner.size == S
        """Whether all runs are the same."""

    def first(self, rng: np.random.Generator, count: int) -> Indices:
        """Draw the states that runs begin in."""
        return self._starts[self._start(rng, np.zeros(count, dtype=np.int64))]

    def act(self, rng: np.random.Generator, state: Indices) -> Indices:
        """Draw a pair for each state: its number among those that are taken."""
        return self._acts(rng, state)

    def move(self, rng: np.random.Generator, row: Indices) -> Indices:
        """Draw the state after each of some pairs that are taken."""
        return np.asarray(self._targets[self._moves(rng, row)])

    def mean(self, costs: Array, state: Indices) -> Array:
        """Return the mean costs of a step in each of some states."""
        where, back = np.unique(state, return_inverse=True)
        first, last = self._first[where], self._first[where + 1]
        means = [self._pi[a:b] @ costs[self.taken[a:b]] for a, b in zip(first, last, strict=True)]
        return np.stack(means)[back]


class Draws:
    """Draws from rows of positive weights: the inverse of their sums, by bisection."""

    def __init__(self, weights: Array, first: Any) -> None:
        self._first = np.asarray(first, dtype=np.int64)
        counts = np.diff(self._first)
        self._rounds = int(np.max(counts, initial=1) - 1).bit_length()
        if self._rounds:
            sums = np.cumsum(weights)
            begin = np.append(0.0, sums)[self._first[:-1]]
            self._sums = sums - np.repeat(begin, counts)
            self._totals = self._sums[self._first[1:] - 1]

    def __call__(self, rng: np.random.Generator, rows: Indices) -> Indices:
        """Draw one entry of each row."""
        low = self._first[rows]
        if not self._rounds:
            return low
        high = self._first[rows + 1] - 1
        level = rng.random(rows.size) * self._totals[rows]
        for _ in range(self._rounds):
            middle = (low + high) >> 1
            beyond = self._sums[middle] <= level
            low = np.where(beyond, np.minimum(middle + 1, high), low)
            high = np.where(beyond, high, middle)
        return low


def check_count(what: str, count: Any) -> None:
    """Refuse what is not a whole number from one up."""
    if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
        raise ValueError(f"{what} is {count!r}; give a whole number, at least one")


def read_seed(seed: Any) -> np.random.Generator:
    """Return random numbers that come again with the seed."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0):
        raise ValueError(f"seed is {seed!r}; give a whole number, at least 0, or none")
    return np.random.default_rng(None if seed is None else int(seed))
