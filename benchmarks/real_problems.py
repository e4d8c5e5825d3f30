"""Models of real tasks under every kind of limit, drawn by rule from a seed.

A problem is stated twice: with the constraints of cvxmdp, and as plain arrays for the referee and for other solvers.
Limits lie a random share of the way from what a careful policy does to what the best policy without limits does: the
careful one obeys them and the best one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import referee
import scipy.sparse as sp
from real_referee import occupancy

import cvxmdp as cm

Array = npt.NDArray[np.float64]
Rng = np.random.Generator

DISCOUNTS = (0.9, 0.98, 0.99, 0.999, 0.9999, 0.99999)
SHARES = (0.3, 0.7)
"""How far a limit lies from the careful policy towards the best one: nearer to either it is hardly a limit."""
EVEN_SHARES = (0.2, 0.02, 0.0)
"""Of the even policy in the careful one, so that it visits all it can; less where it would cost more than the best."""
ACTIVE = 1e-3
"""By how much of its size the best policy exceeds what the careful one does, for a limit to matter."""
RARE = 1e-6
"""A cost whose level is below this share of its largest entry is not limited: other solvers cannot see it."""
FLOOR = 1e-3
"""No cap is below this share of the mean visits: a limit on a state that is hardly seen is not asked for."""
TRIES = 20
"""Costs that are drawn until one matters, or steps that are made; a few are enough."""
VERTICES = 5
MIXTURES = (1.0, 0.5, 0.25, 0.1, 0.03)
"""Shares of another policy that are tried."""
TINY = 1e-30
"""Visits below count as this many."""
SMALLER = 0.25
"""Errors are made smaller by this factor until the careful policy is the better one at worst, too."""


# What is limited, as arrays -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rows:
    """``lower <= E d <= upper``."""

    E: Any
    lower: Array
    upper: Array


@dataclass(frozen=True, eq=False)
class Ball:
    """``|d - center|_p <= radius``."""

    center: Array
    radius: float
    p: float


@dataclass(frozen=True, eq=False)
class Entropic:
    """``sum y log(y / reference) <= bound`` for y = d, or the visits of states; the reference of an entropy is one."""

    reference: Array
    bound: float
    of: str = "pairs"


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """``cost'd + |deviations * d|_2 <= at_most``."""

    cost: Array
    deviations: Array
    at_most: float


@dataclass(frozen=True, eq=False)
class EntropyTerm:
    """``weight * sum d log d`` is added to the cost."""

    weight: float


@dataclass(frozen=True, eq=False)
class DistanceTerm:
    """``weight * |d - center|_2`` is added to the cost."""

    center: Array
    weight: float


Limit = Rows | Ball | Entropic | Ellipsoid
Term = EntropyTerm | DistanceTerm


@dataclass(eq=False)
class Drawn:
    """What a kind adds to a model, for cvxmdp and as arrays, and the occupancy of a policy that obeys."""

    known: Array
    constraints: list[Any] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    terms: list[Any] = field(default_factory=list)
    added: list[Term] = field(default_factory=list)

    def limit(self, constraint: Any, limit: Limit) -> Drawn:
        self.constraints.append(constraint)
        self.limits.append(limit)
        return self

    def term(self, term: Any, added: Term) -> Drawn:
        self.terms.append(term)
        self.added.append(added)
        return self


# Models ---------------------------------------------------------------------------------------------------------------


class Model:
    """A model with its reference policies: the even one, the best without limits, the cheapest for another cost."""

    def __init__(self, mdp: cm.MDP) -> None:
        self.mdp = mdp
        minimized = "cost" if "cost" in mdp.costs else next(iter(mdp.costs))
        self.cost: Array = np.asarray(mdp.costs[minimized])
        self.others = [np.asarray(cost) for name, cost in mdp.costs.items() if name != minimized]
        self.even = self.occupancy(np.ones(mdp.num_pairs))
        self.best = self.cheapest(self.cost)

    def occupancy(self, weights: Array) -> Array:
        """Of the policy that takes actions in proportion to weights of pairs."""
        mdp = self.mdp
        pi = weights / np.bincount(mdp.state, weights, mdp.num_states)[mdp.state]
        return occupancy(mdp, pi)

    def cheapest(self, cost: Array) -> Array:
        """The occupancy that is best for another cost alone."""
        return cm.Problem(self.mdp, cost).solve(tolerance=1e-6, time_limit=60.0).occupancy

    def visits(self, d: Array) -> Array:
        return np.bincount(self.mdp.state, d, self.mdp.num_states)

    def costs(self, rng: Rng) -> Iterator[Array]:
        """Yield costs to limit: those of the model in random order, then random ones, by state times by action."""
        for i in rng.permutation(len(self.others)):
            cost = self.others[i]
            if np.abs(cost) @ self.best > RARE * np.abs(cost).max():
                yield cost
        for _ in range(TRIES):
            by_state = rng.exponential(size=self.mdp.num_states)
            by_action = rng.exponential(size=len(self.mdp.actions))
            yield by_state[self.mdp.state] * by_action[self.mdp.action]

    def careful(self, cost: Array) -> Array | None:
        """The cheapest for this cost, mixed with the even policy; None where the best policy costs little more."""
        cheapest = self.cheapest(cost)
        for share in EVEN_SHARES:
            d = (1 - share) * cheapest + share * self.even
            if cost @ (self.best - d) > ACTIVE * (np.abs(cost) @ self.best):
                return d
        return None

    def limited(self, rng: Rng) -> tuple[Array, Array]:
        """A cost to limit, and the occupancy of a careful policy."""
        for cost in self.costs(rng):
            d = self.careful(cost)
            if d is not None:
                return cost, d
        raise ValueError("the best policy is the most careful one for every cost that was drawn")


WORLDS: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    size: {f"{world}({', '.join(map(str, numbers))})": (world, numbers) for world, *numbers in listed}
    for size, listed in {
        "tiny": [("gridworld", 5), ("queue", 20)],
        "small": [
            ("gridworld", 15), ("lake", 15), ("inventory", 200), ("perishable", 4, 8), ("queue", 300), ("tandem", 15),
            ("admission", 30), ("maintenance", 3, 6), ("epidemic", 20), ("disk_drive",),
        ],
        "middle": [
            ("gridworld", 50), ("lake", 45), ("inventory", 2000), ("perishable", 4, 20), ("queue", 3000),
            ("tandem", 45), ("admission", 60), ("maintenance", 4, 7), ("epidemic", 60),
        ],
        "large": [("gridworld", 200), ("tandem", 200)],
    }.items()
}  # fmt: skip
"""The models of each size by name: a function of ``cm.worlds`` and its numbers."""


@lru_cache(maxsize=1)
def model(size: str, world: str, discount: float) -> Model:
    """A model with its reference policies; problems go by model, so the last one is kept."""
    function, numbers = WORLDS[size][world]
    return Model(getattr(cm.worlds, function)(*numbers, discount=discount))


# Kinds ----------------------------------------------------------------------------------------------------------------


def share(rng: Rng) -> float:
    return float(rng.uniform(*SHARES))


def between(careful: float, best: float, part: float) -> float:
    """A limit from above: part of the way to the best policy, and a little room where the best one does less."""
    return careful + part * (best - careful) if best > careful else careful + 0.1 * abs(careful)


def add_budget(drawn: Drawn, model: Model, cost: Array, part: float) -> None:
    bound = between(float(cost @ drawn.known), float(cost @ model.best), part)
    least = RARE * float(np.abs(cost).max())
    bound = bound if abs(bound) > least else least
    row = sp.csr_array(cost[None, :])
    drawn.limit(cm.Budget(cost, at_most=bound), Rows(row, np.array([-np.inf]), np.array([bound])))


def add_caps(drawn: Drawn, model: Model, part: float, two_sided: bool = False) -> None:
    mdp, pairs = model.mdp, np.arange(model.mdp.num_pairs)
    careful, best = model.visits(drawn.known), model.visits(model.best)
    between = (1 - part) * careful + part * best
    floor = FLOOR / mdp.num_states
    upper = np.maximum(np.maximum(careful, between), floor)
    lower = part * np.minimum(careful, between)
    lower = np.where(two_sided & (lower > floor), lower, -np.inf)
    E = sp.csr_array((np.ones(pairs.size), (mdp.state, pairs)), shape=(mdp.num_states, pairs.size))
    constraint = cm.StateBounds(lower=lower, upper=upper) if two_sided else cm.StateBounds(upper=upper)
    drawn.limit(constraint, Rows(E, lower, upper))


def add_ball(drawn: Drawn, model: Model, part: float, p: float) -> None:
    """Around the known policy."""
    radius = part * float(np.linalg.norm(model.best - drawn.known, p))
    drawn.limit(cm.NormBall(drawn.known, radius, norm=p), Ball(drawn.known, radius, p))


def add_entropy(drawn: Drawn, model: Model, part: float, of: str) -> None:
    ones = np.ones(model.mdp.num_pairs if of == "pairs" else model.mdp.num_states)
    had, has = (-referee.entropy(model.visits(d) if of == "states" else d) for d in (drawn.known, model.best))
    bound = between(had, has, part)
    drawn.limit(cm.Entropy(at_least=-bound, of=of), Entropic(ones, bound, of))


def add_kl(drawn: Drawn, model: Model, part: float) -> None:
    """Around the known policy."""
    there = drawn.known > 0  # elsewhere visits are too rare for a float
    radius = part * referee.relative_entropy(model.best[there], drawn.known[there])
    drawn.limit(cm.KLBall(drawn.known, radius), Entropic(drawn.known, radius))


def random_policy(model: Model, rng: Rng) -> Array:
    return model.occupancy(rng.exponential(size=model.mdp.num_pairs))


def spread(model: Model, of: str) -> Array:
    """The even policy or a mixture with the best one, whichever has the largest entropy.

    Where none has more than the best one, steps are made towards the policy that gains most, as its derivative says.
    """

    def value(d: Array) -> float:
        return referee.entropy(model.visits(d) if of == "states" else d)

    wide = max((t * model.even + (1 - t) * model.best for t in MIXTURES), key=value)
    enough = value(model.best) + ACTIVE * max(abs(value(model.best)), 1.0)
    for _ in range(TRIES):
        if value(wide) > enough:
            return wide
        inside = (1 - MIXTURES[-1]) * wide + MIXTURES[-1] * model.even  # the logarithm of zero has no use
        slope = np.log(np.maximum(model.visits(inside)[model.mdp.state] if of == "states" else inside, TINY))
        towards = model.cheapest(slope)
        wide = max((t * towards + (1 - t) * inside for t in MIXTURES), key=value)
    return model.best  # which is the most spread one, too: its limit is not active


def one_budget(model: Model, rng: Rng) -> Drawn:
    cost, careful = model.limited(rng)
    drawn = Drawn(careful)
    add_budget(drawn, model, cost, share(rng))
    return drawn


def together(model: Model, rng: Rng, count: int) -> tuple[list[Array], Array]:
    """Costs, and a policy that is careful for their sum, each measured by what the even policy does, times a weight."""
    draw = model.costs(rng)
    costs = [next(draw) for _ in range(count)]
    for last in chain([costs[-1]], draw):
        costs[-1] = last
        weights = rng.exponential(size=count) / [np.abs(cost) @ model.even or 1.0 for cost in costs]
        careful = model.careful(np.sum(weights[:, None] * costs, axis=0))
        if careful is not None:
            return costs, careful
    raise ValueError("the best policy is the most careful one for all costs that were drawn")


def three_budgets(model: Model, rng: Rng) -> Drawn:
    costs, careful = together(model, rng, 3)
    drawn = Drawn(careful)
    for cost in costs:
        add_budget(drawn, model, cost, share(rng))
    return drawn


def caps(model: Model, rng: Rng) -> Drawn:
    drawn = Drawn(model.even)
    add_caps(drawn, model, share(rng))
    return drawn


def caps_with_budgets(model: Model, rng: Rng) -> Drawn:
    costs, careful = together(model, rng, 2)
    drawn = Drawn(careful)
    add_caps(drawn, model, share(rng))
    for cost in costs:
        add_budget(drawn, model, cost, share(rng))
    return drawn


def two_sided(model: Model, rng: Rng) -> Drawn:
    drawn = Drawn(model.even)
    add_caps(drawn, model, share(rng), two_sided=True)
    return drawn


def ball(p: float) -> Callable[[Model, Rng], Drawn]:
    def draw(model: Model, rng: Rng) -> Drawn:
        drawn = Drawn(random_policy(model, rng))
        add_ball(drawn, model, share(rng), p)
        return drawn

    return draw


def entropy(of: str) -> Callable[[Model, Rng], Drawn]:
    def draw(model: Model, rng: Rng) -> Drawn:
        drawn = Drawn(spread(model, of))
        add_entropy(drawn, model, share(rng), of)
        return drawn

    return draw


def kl(model: Model, rng: Rng) -> Drawn:
    drawn = Drawn(random_policy(model, rng))
    add_kl(drawn, model, share(rng))
    return drawn


def robust(shape: str) -> Callable[[Model, Rng], Drawn]:
    """Errors by pair, up to the mean entry of the cost: in an ellipsoid, in a box, or in a list, by state."""

    def draw(model: Model, rng: Rng) -> Drawn:
        cost, careful = model.limited(rng)
        off = np.abs(cost).mean() * rng.uniform(size=model.mdp.num_pairs)
        signs = rng.uniform(-1.0, 1.0, (VERTICES, model.mdp.num_states))[:, model.mdp.state]
        for _ in range(TRIES):
            E = cost + off * signs if shape == "vertices" else (cost + off)[None, :]
            at_worst = [
                float(cost @ d + np.linalg.norm(off * d)) if shape == "ellipsoid" else float(np.max(E @ d))
                for d in (careful, model.best)
            ]
            if at_worst[1] - at_worst[0] > ACTIVE * abs(at_worst[1]):
                break
            off = SMALLER * off
        bound = between(*at_worst, share(rng))
        if shape == "ellipsoid":
            limited = cm.RobustBudget(cost, cm.Ellipsoid(off**2), at_most=bound)
            return Drawn(careful).limit(limited, Ellipsoid(cost, off, bound))
        rows = Rows(sp.csr_array(E), np.full(len(E), -np.inf), np.full(len(E), bound))
        uncertain = cm.Vertices(off * signs) if shape == "vertices" else cm.Box(off)
        return Drawn(careful).limit(cm.RobustBudget(cost, uncertain, at_most=bound), rows)

    return draw


def equal(model: Model, rng: Rng) -> Drawn:
    """Two groups of states, with a random third of them each, take a given share of the steps."""
    part, mdp = share(rng), model.mdp
    known = (1 - part) * model.even + part * model.best
    E = (rng.uniform(size=(2, mdp.num_states)) < 1 / 3)[:, mdp.state].astype(float)
    level = E @ known
    return Drawn(known).limit(cm.Linear(E, equal=level), Rows(sp.csr_array(E), level, level))


def budget_and_entropy(model: Model, rng: Rng) -> Drawn:
    cost, careful = model.limited(rng)
    drawn = Drawn(careful)
    add_budget(drawn, model, cost, share(rng))
    add_entropy(drawn, model, share(rng), "pairs")
    return drawn


def budget_and_ball(model: Model, rng: Rng) -> Drawn:
    cost, careful = model.limited(rng)
    drawn = Drawn(careful)
    add_budget(drawn, model, cost, share(rng))
    add_ball(drawn, model, share(rng), 2)
    return drawn


def caps_and_kl(model: Model, rng: Rng) -> Drawn:
    drawn = Drawn(model.even)
    add_caps(drawn, model, share(rng))
    add_kl(drawn, model, share(rng))
    return drawn


def entropy_term(model: Model, rng: Rng) -> Drawn:
    """The weight is a share of what a nat costs on the way from the best policy to the most spread one."""
    wide = spread(model, "pairs")
    nats = referee.entropy(wide) - referee.entropy(model.best)
    weight = share(rng) * float(model.cost @ (wide - model.best)) / nats if nats > 0 else ACTIVE * model.cost.max()
    return Drawn(wide).term(cm.NegativeEntropy(weight), EntropyTerm(weight))


def distance_term(model: Model, rng: Rng) -> Drawn:
    """The weight is a share of what a unit of distance saves on the way from a random policy to the best one."""
    center = random_policy(model, rng)
    saved = float(model.cost @ (center - model.best)) / float(np.linalg.norm(center - model.best))
    weight = share(rng) * saved
    return Drawn(center).term(cm.Distance(center, weight=weight), DistanceTerm(center, weight))


KINDS: dict[str, Callable[[Model, Rng], Drawn]] = {
    "one budget": one_budget,
    "three budgets": three_budgets,
    "caps": caps,
    "caps with budgets": caps_with_budgets,
    "two-sided caps": two_sided,
    "2-norm ball": ball(2),
    "1-norm ball": ball(1),
    "inf-norm ball": ball(np.inf),
    "3-norm ball": ball(3),
    "entropy of pairs": entropy("pairs"),
    "entropy of states": entropy("states"),
    "KL ball": kl,
    "robust, ellipsoid": robust("ellipsoid"),
    "robust, box": robust("box"),
    "robust, vertices": robust("vertices"),
    "equal rows": equal,
    "budget and entropy": budget_and_entropy,
    "budget and ball": budget_and_ball,
    "caps and KL": caps_and_kl,
    "entropy term": entropy_term,
    "distance term": distance_term,
}


# Problems -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Name:
    """What a problem is made from."""

    size: str
    world: str
    discount: float
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.world}, {self.discount:g}, {self.kind}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class Case:
    """A problem: for cvxmdp, and as arrays."""

    name: Name
    problem: cm.Problem
    cost: Array
    limits: list[Limit]
    terms: list[Term]
    known: Array

    @property
    def mdp(self) -> cm.MDP:
        return self.problem.mdp


def names(size: str, seed: int) -> list[Name]:
    """All problems of a size and a seed, by model; each world and kind has its discount."""
    found = []
    for world in WORLDS[size]:
        for kind in KINDS:
            rng = generator(size, world, kind, seed)
            found.append(Name(size, world, DISCOUNTS[rng.integers(len(DISCOUNTS))], kind, seed))
    return sorted(found, key=lambda name: (list(WORLDS[size]).index(name.world), name.discount))


def generator(*what: str | int) -> Rng:
    """Random numbers of their own for each problem, whichever others are drawn."""
    return np.random.default_rng([part if isinstance(part, int) else int.from_bytes(part.encode()) for part in what])


def make(name: Name) -> Case:
    """The same name gives the same problem."""
    found = model(name.size, name.world, name.discount)
    drawn = KINDS[name.kind](found, generator(name.size, name.world, name.kind, name.seed, 1))
    minimize = [found.cost, *drawn.terms]
    problem = cm.Problem(found.mdp, minimize if drawn.terms else found.cost, drawn.constraints)
    return Case(name, problem, found.cost, drawn.limits, drawn.added, drawn.known)


def mark(case: Case) -> float:
    """A number by which other limits are noticed: rows of other solvers stay good while it stays the same."""
    parts: list[Any] = []
    for thing in (*case.limits, *case.terms):
        parts += [value for value in vars(thing).values() if isinstance(value, (float, np.ndarray))]
    flat = np.concatenate([np.ravel(part) for part in parts])
    return float(np.linalg.norm(flat[np.isfinite(flat)]))
