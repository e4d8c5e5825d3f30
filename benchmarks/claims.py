"""Measure the figures of docs/claims.md: is anything that a solution says false, or said without a proof?

    make claims                    6000 problems of a fresh seed, write both files; goes on where it was stopped
    make claims HOW=--quick        100 problems, print the page
    make claims HOW=--table        write docs/claims.md again from benchmarks/results/claims.json

Each problem is made from a seed and its number, solved with the defaults, and everything the solution says is handed to
the independent verifier.  Raw numbers go to benchmarks/results/claims.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import signal
import tempfile
import textwrap
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import provenance
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.sparse.linalg import spsolve

import cvxmdp as cm
import cvxmdp_verifier

ROOT = Path(__file__).parent
RESULTS = ROOT / "results" / "claims.json"
PARTS = ROOT / "results" / "claims.jsonl"
"""Rows so far: a header, then a line for each problem.  Gone when all are done."""
PAGE = ROOT.parent / "docs" / "claims.md"
SEED, PROBLEMS, TIME_LIMIT = 20261117, 6000, 5.0
HANGS = 90
"""Seconds after which a problem counts as an exception."""
FILED = 10
"""Every so many problems are also saved, loaded, and verified from their files."""
SMALL = 60
"""States up to which HiGHS is asked too."""
THIN = 1e-9
"""What is proven of a problem whose limits hold at a known policy may contradict that by rounding only."""
EDGE = 5e-6
"""Nearer to the border than this, relatively, no verdict is asked for: the tolerance is 1e-6."""

Array = np.ndarray
Rng = np.random.Generator


# Models ---------------------------------------------------------------------------------------------------------------

DISCOUNTS = (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1 - 1e-6, 1 - 1e-9)
USUAL = (0.5, 0.9, 0.95, 0.99, 0.999)


def build(
    rows: Sequence[tuple[int, int, dict[int, float], float, float]], states: int, discount: float, first: Any = 0
) -> cm.MDP:
    """A model from pairs (state, action, {next: probability}, cost, risk), sorted; ``first`` is a state or a vector."""
    P = sp.lil_array((len(rows), states))
    for i, (_, _, reached, _, _) in enumerate(rows):
        for target, probability in reached.items():
            P[i, target] = probability
    initial = np.eye(states)[first] if np.ndim(first) == 0 else np.asarray(first)
    costs = {"cost": np.array([row[3] for row in rows]), "risk": np.array([row[4] for row in rows])}
    return cm.MDP.from_pairs(
        [row[0] for row in rows], [row[1] for row in rows], sp.csr_array(P), costs, discount, initial
    )


def merged(*parts: tuple[int, float]) -> dict[int, float]:
    """Probabilities by target, those of the same target added and zeros left out."""
    found: dict[int, float] = {}
    for target, probability in parts:
        if probability > 0:
            found[target] = found.get(target, 0.0) + probability
    return found


def somewhere(rng: Rng, targets: Array, most: int = 4) -> dict[int, float]:
    """A random distribution over a few of the targets."""
    chosen = rng.choice(targets, size=min(len(targets), int(rng.integers(1, most + 1))), replace=False)
    return dict(zip(chosen.tolist(), rng.dirichlet(np.ones(chosen.size)).tolist(), strict=True))


def garnet(rng: Rng, n: int, discount: float, actions: tuple[int, int] = (2, 4), reach: int | None = None) -> cm.MDP:
    """Random transitions; states offer between ``actions`` actions; from the first ``reach`` states no other is met."""
    reach = n if reach is None else reach
    rows = []
    for s in range(n):
        targets = np.arange(reach if s < reach else n)
        for a in range(int(rng.integers(actions[0], actions[1] + 1))):
            rows.append((s, a, somewhere(rng, targets), float(rng.normal()), float(rng.uniform())))
    first = np.zeros(n)
    first[:reach] = rng.dirichlet(np.ones(reach))
    return build(rows, n, discount, first if rng.random() < 0.5 else int(rng.integers(reach)))


def queue(rng: Rng, n: int, discount: float, load: float = 0.5) -> cm.MDP:
    """Birth and death with service speeds as actions: waiting and speed cost, the full queue is the risk."""
    n = max(n, 2)
    speeds = np.sort(rng.uniform(0.3, 0.95, size=int(rng.integers(2, 5))))
    arrival = load * speeds[-1]
    rows = []
    for s in range(n):
        for a, speed in enumerate(speeds):
            up, down = arrival * (1 - speed), speed * (1 - arrival)
            up, down = up * (s < n - 1), down * (s > 0)
            cost = s / n + 3 * float(speed) ** 3
            rows.append((s, a, merged((s + 1, up), (s - 1, down), (s, 1 - up - down)), cost, float(s == n - 1)))
    return build(rows, n, discount)


def tandem(rng: Rng, n: int, discount: float) -> cm.MDP:
    """Two queues in a row, each served slowly or fast."""
    side = max(2, round(np.sqrt(n)))
    arrival, slow, fast = rng.uniform(0.1, 0.25), rng.uniform(0.05, 0.2), rng.uniform(0.25, 0.35)
    rows = []
    for s in range(side * side):
        one, two = divmod(s, side)
        for a in range(4):
            first, second = (fast if a & 1 else slow), (fast if a & 2 else slow)
            moves = [
                (s + side if one < side - 1 else s, arrival),
                (s - side + 1 if one > 0 and two < side - 1 else s, first),
                (s - 1 if two > 0 else s, second),
                (s, 1 - arrival - first - second),
            ]
            rows.append((s, a, merged(*moves), (one + 2 * two) / side + 4 * first + 3 * second, float(one == side - 1)))
    return build(rows, side * side, discount)


def inventory(rng: Rng, n: int, discount: float) -> cm.MDP:
    """Stock, orders up to the capacity, random demand; sales that are lost are the risk."""
    n = max(n, 2)
    most = min(n - 1, 12)
    demand = rng.dirichlet(np.ones(min(n, 8)))
    rows = []
    for s in range(n):
        for a in range(min(most, n - 1 - s) + 1):
            moves = [(max(s + a - k, 0), float(p)) for k, p in enumerate(demand)]
            lost = sum(p * max(k - s - a, 0) for k, p in enumerate(demand))
            rows.append((s, a, merged(*moves), 0.1 * s + 0.5 * a + 0.5 * (a > 0) - 1.0, float(lost)))
    return build(rows, n, discount, int(rng.integers(n)))


def grid(rng: Rng, n: int, discount: float, slip: float = 0.05) -> cm.MDP:
    """The grid world; collisions are the risk."""
    side = max(2, round(np.sqrt(n)))
    mdp = cm.worlds.gridworld(side, min(discount, 0.9999), slip, seed=int(rng.integers(1 << 30)))
    costs = {"cost": mdp.costs["time"], "risk": mdp.costs["collision"]}
    return cm.MDP.from_pairs(mdp.state, mdp.action, mdp.transitions, costs, mdp.discount, mdp.initial)


def cycle(rng: Rng, n: int, discount: float) -> cm.MDP:
    """A ring: stay, go on, or go on by chance."""
    rows = []
    for s in range(n):
        for a in range(2 + (s % 3 == 0)):
            on = (0.0, 1.0, 0.5)[a]
            rows.append(
                (s, a, merged(((s + 1) % n, on), (s, 1 - on)), float(np.cos(s)), float(rng.uniform() * (a + 1)))
            )
    return build(rows, n, discount)


def chain(rng: Rng, n: int, discount: float, rare: tuple[float, float] = (0.3, 0.9)) -> cm.MDP:
    """Each push forward succeeds with its probability, else all starts again; resting hardly ever moves forward."""
    n = max(n, 2)
    rows = []
    for s in range(n):
        push = 10 ** rng.uniform(*np.log10(rare))
        for a, p in enumerate((push, push * 10 ** rng.uniform(-3, -0.3))):
            rows.append(
                (s, a, merged((min(s + 1, n - 1), p), (0, 1 - p)), -1.0 * (a == 0) - 0.1 * s, float(s == n - 1))
            )
    return build(rows, n, discount)


def unreachable(rng: Rng, n: int, discount: float) -> cm.MDP:
    """Most states are never met."""
    return garnet(rng, n, discount, (1, 3), reach=max(1, n // 6))


def transient(rng: Rng, n: int, discount: float) -> cm.MDP:
    """Only ever on to later states; the last one is kept."""
    rows = []
    for s in range(n):
        later = np.arange(min(s + 1, n - 1), min(s + 6, n))
        for a in range(int(rng.integers(1, 4))):
            rows.append((s, a, somewhere(rng, later), float(rng.uniform()), float(rng.uniform())))
    return build(rows, n, discount)


def goal(rng: Rng, n: int, discount: float) -> cm.MDP:
    """A random walk that ends where nothing costs anything."""
    n = max(n, 2)
    rows = []
    for s in range(n):
        for a in range(1 if s == n - 1 else 3):
            right = (0.3, 0.5, 0.8)[a]
            moves = [(s, 1.0)] if s == n - 1 else [(min(s + 1, n - 1), right), (max(s - 1, 0), 1 - right)]
            rows.append((s, a, merged(*moves), float(s < n - 1), float(a == 2 and s < n - 1) * rng.uniform()))
    return build(rows, n, discount)


def walk(rng: Rng, n: int, discount: float) -> cm.MDP:
    """Gambler's ruin: bets of several sizes, 0 and n - 1 are kept; ruin is the risk, and time without play costs."""
    n = max(n, 4)
    odds = np.sort(rng.uniform(0.35, 0.75, size=3))
    rows = []
    for s in range(n):
        ended = s in (0, n - 1)
        for a in range(1 if ended else 3):
            win, bet = float(odds[a]), 1 if a else min(2, s, n - 1 - s)
            moves = [(s, 1.0)] if ended else [(s + bet, win), (s - bet, 1 - win)]
            cost = 0.0 if s == n - 1 else 1.0 + (0.0 if ended else 0.5 * a)
            rows.append((s, a, merged(*moves), cost * (s > 0) + 0.9 * (s == 0), float(s == 0)))
    return build(rows, n, discount, int(rng.integers(n // 2, n - 1)))


def one_state(rng: Rng, n: int, discount: float) -> cm.MDP:
    """A single state with several actions."""
    actions = int(rng.integers(1, 8))
    return build([(0, a, {0: 1.0}, float(rng.normal()), float(rng.uniform())) for a in range(actions)], 1, discount)


def two_states(rng: Rng, n: int, discount: float) -> cm.MDP:
    """Two states."""
    return garnet(rng, 2, discount, (1, 3))


def one_action(rng: Rng, n: int, discount: float) -> cm.MDP:
    """There is nothing to choose."""
    return garnet(rng, n, discount, (1, 1))


def ragged(rng: Rng, n: int, discount: float) -> cm.MDP:
    """One to six actions a state."""
    return garnet(rng, n, discount, (1, 6))


MODELS: dict[str, Callable[[Rng, int, float], cm.MDP]] = {
    "garnet": garnet, "queue": queue, "tandem": tandem, "inventory": inventory, "grid": grid, "cycle": cycle,
    "chain": chain, "unreachable": unreachable, "transient": transient, "goal": goal, "walk": walk,
    "one state": one_state, "two states": two_states, "one action": one_action, "ragged": ragged,
}  # fmt: skip


def size(rng: Rng, most: int = 300) -> int:
    """Mostly small, now and then large."""
    return int(np.exp(rng.uniform(0, np.log(most)))) if rng.random() < 0.8 else int(rng.integers(1, most + 1))


# Policies that limits are placed by -----------------------------------------------------------------------------------


def cheapest(mdp: cm.MDP, cost: Array) -> Array:
    """Probabilities over pairs of the cheapest policy, by policy iteration in plain floats."""
    first = np.searchsorted(mdp.state, np.arange(mdp.num_states))
    P, chosen = sp.csr_array(mdp.transitions), first.copy()
    scale = float(np.max(np.abs(cost))) or 1.0
    for _ in range(60):
        A = sp.csc_array(sp.eye_array(mdp.num_states) - mdp.discount * P[chosen])
        V = np.atleast_1d(spsolve(A, cost[chosen] / scale))
        Q = cost / scale + mdp.discount * (P @ V)
        order = np.lexsort((Q, mdp.state))
        better = order[first]
        gain = Q[chosen] - Q[better] > 1e-11 * (1 + np.abs(Q[chosen]))
        if not gain.any():
            break
        chosen = np.where(gain, better, chosen)
    probabilities = np.zeros(mdp.num_pairs)
    probabilities[chosen] = 1.0
    return probabilities


def even(mdp: cm.MDP) -> Array:
    """Each action as likely as the others."""
    return 1.0 / np.bincount(mdp.state, minlength=mdp.num_states)[mdp.state]


@dataclass
class World:
    """A model with the occupancy of the cheapest policy and of a careful one, at which every limit will hold."""

    rng: Rng
    mdp: cm.MDP
    best: Array
    safe: Array
    geometric: bool = False
    """Whether limits are placed between the two by ratios."""

    @classmethod
    def of(
        cls, rng: Rng, mdp: cm.MDP, worry: float = 3.0, even_share: float = 0.05, geometric: bool = False,
        cost: Array | None = None,
    ) -> World:  # fmt: skip
        """``worry`` is the price of risk in the careful policy, ``even_share`` its probability of a random action."""
        cost = mdp.costs["cost"] if cost is None else cost
        pi = cheapest(mdp, cost + worry * mdp.costs["risk"])
        pi = (1 - even_share) * pi + even_share * even(mdp)
        at = [mdp.evaluate(mdp.policy(p)).occupancy for p in (cheapest(mdp, cost), pi)]
        return cls(rng, mdp, at[0], at[1], geometric)

    @property
    def pairs(self) -> int:
        return self.mdp.num_pairs

    def visits(self, d: Array) -> Array:
        return np.bincount(self.mdp.state, d, self.mdp.num_states)

    def spread(self) -> Array:
        """The occupancy of a random policy that takes every action."""
        weights = self.rng.exponential(size=self.pairs) + 0.05
        pi = weights / np.bincount(self.mdp.state, weights)[self.mdp.state]
        return self.mdp.evaluate(self.mdp.policy(pi)).occupancy

    def row(self) -> Array:
        """A cost to limit."""
        kind = self.rng.integers(4)
        if kind == 0 and np.any(self.mdp.costs["risk"]):
            return self.mdp.costs["risk"]
        if kind == 1:
            return (self.rng.random(self.pairs) < 0.3).astype(float)
        return self.rng.uniform(size=self.pairs) if kind == 2 else self.rng.normal(size=self.pairs)

    def between(self, low: float, high: float) -> float:
        """A limit that the careful policy obeys, the cheapest one not unless it is the more careful."""
        share = self.rng.uniform(0.05, 0.95)
        if low < high:
            if self.geometric and low > 0:
                return float(max(low, low ** (1 - share) * high**share))
            return float(max(low, low + share * (high - low)))
        return float(low + abs(low) * self.rng.uniform(0.0, 0.5) + 1e-6 * (low == 0))


@dataclass
class Limit:
    """A constraint; where it is linear, also as rows with limits for HiGHS."""

    constraint: Any
    rows: tuple[Array, Array, Array] | None = None


def rows_of(E: Array, lower: Any, upper: Any, **more: Any) -> Limit:
    """Rows between limits."""
    E = np.atleast_2d(E)
    lower, upper = (np.broadcast_to(np.asarray(x, dtype=float), E.shape[:1]).copy() for x in (lower, upper))
    given = {}
    if np.any(np.isfinite(upper)):
        given["at_most"] = upper
    if np.any(np.isfinite(lower)):
        given["at_least"] = lower
    return Limit(cm.Linear(E, **given, **more), (E, lower, upper))


def at_most(row: Array, limit: float, **more: Any) -> Limit:
    """One cost, limited from above."""
    return Limit(cm.Budget(row, at_most=limit, **more), (row[None], np.array([-np.inf]), np.array([limit])))


def budget(w: World, name: str = "budget") -> Limit:
    """One cost between the careful policy's and the cheapest one's."""
    row = w.row()
    return at_most(row, w.between(float(row @ w.safe), float(row @ w.best)), name=name)


def linear(w: World, name: str = "rows") -> Limit:
    """A few rows from above, from below, or from both sides."""
    E = np.array([w.row() for _ in range(int(w.rng.integers(2, 6)))])
    upper = np.array([w.between(float(row @ w.safe), float(row @ w.best)) for row in E])
    lower = np.where(w.rng.random(len(E)) < 0.3, E @ w.safe - w.rng.uniform(0.1, 1) * np.abs(E @ w.safe), -np.inf)
    return rows_of(E, lower, upper, name=name)


def bounds(w: World, name: str = "bounds") -> Limit:
    """Some pairs from above, some from below."""
    room = 1 + 10 ** w.rng.uniform(-3, -0.3)
    upper = np.where(w.rng.random(w.pairs) < 0.4, np.maximum(w.safe, 0.5 * (w.safe + w.best)) * room, np.inf)
    lower = np.where(w.rng.random(w.pairs) < 0.2, w.safe * w.rng.uniform(0, 0.9), 0.0)
    return Limit(cm.Bounds(lower=lower, upper=upper, name=name), (np.eye(w.pairs), lower, upper))


def state_bounds(w: World, name: str = "visits") -> Limit:
    """Visits of some states from above, of some from below."""
    safe, best = w.visits(w.safe), w.visits(w.best)
    room = 1 + 10 ** w.rng.uniform(-3, -0.3)
    limited = w.rng.random(safe.size) < 0.4
    limited[0] = True
    upper = np.where(limited, np.maximum(safe, 0.5 * (safe + best)) * room, np.inf)
    lower = np.where(w.rng.random(safe.size) < 0.2, safe * w.rng.uniform(0, 0.9), 0.0)
    E = np.eye(safe.size)[w.mdp.state].T
    return Limit(cm.StateBounds(lower=lower, upper=upper, name=name), (E, lower, upper))


def ball(p: float | str) -> Callable[[World, str], Limit]:
    """Near a policy's occupancy in a p-norm, or in a weighted 2-norm."""

    def make(w: World, name: str = "ball") -> Limit:
        center = w.spread() if w.rng.random() < 0.5 else w.safe
        weights = 10 ** w.rng.uniform(-3, 3, size=w.pairs) if p == "weighted" else None

        def norm(x: Array) -> float:
            return float(np.sqrt(weights @ x**2)) if weights is not None else float(np.linalg.norm(x, p))  # type: ignore[arg-type]

        radius = w.between(norm(w.safe - center), norm(w.best - center)) * (1 + 1e-9)
        if weights is not None:
            return Limit(cm.NormBall(center, radius, weights=weights, name=name))
        return Limit(cm.NormBall(center, radius, norm=p, name=name))  # type: ignore[arg-type]

    return make


def entropy_of(x: Array) -> float:
    """In nats."""
    kept = x[x > 0]
    return float(-(kept @ np.log(kept)))


def entropy(of: str) -> Callable[[World, str], Limit]:
    """Spread out over pairs or states."""

    def make(w: World, name: str = "entropy") -> Limit:
        safe, best = (entropy_of(d if of == "pairs" else w.visits(d)) for d in (w.safe, w.best))
        share = w.rng.uniform(0.05, 0.95)
        at_least = safe - (share * (safe - best) if best < safe else 0.2 * abs(safe))
        return Limit(cm.Entropy(at_least - 1e-12, of=of, name=name))

    return make


def relative_entropy(x: Array, reference: Array) -> float:
    """In nats, infinite where the reference is zero and x is not."""
    kept = x > 0
    if np.any(reference[kept] <= 0):
        return np.inf
    return float(x[kept] @ np.log(x[kept] / reference[kept]))


def kl_ball(w: World, name: str = "KL ball") -> Limit:
    """Near a reference that takes every action."""
    reference = w.spread()
    low, high = relative_entropy(w.safe, reference), relative_entropy(w.best, reference)
    return Limit(cm.KLBall(reference, w.between(low, min(high, 1e3)) * (1 + 1e-9) + 1e-14, name=name))


def decades(rng: Rng, count: int, orders: float) -> Array:
    """Positive numbers over so many orders of magnitude."""
    return 10 ** rng.uniform(-orders / 2, orders / 2, size=count)


def ellipsoid(full: bool, orders: float = 2.0) -> Callable[[World, str], Limit]:
    """A budget for every error in an ellipsoid whose axes lie over so many orders of magnitude."""

    def make(w: World, name: str = "robust") -> Limit:
        n, row = w.pairs, w.row()
        if orders > 4:
            row = row * decades(w.rng, n, orders)
        axes = decades(w.rng, n, orders)
        matrix = axes
        if full and n <= 300:
            rank = int(w.rng.integers(1, n + 1))
            F = w.rng.normal(size=(n, rank)) * np.sqrt(axes[:rank])
            matrix = F @ F.T / n
            matrix = (matrix + matrix.T) / 2
        errors = cm.Ellipsoid(matrix)

        def worst(d: Array) -> float:
            return float(row @ d) + float(np.sqrt(max(d @ (matrix * d if matrix.ndim == 1 else matrix @ d), 0.0)))

        limit = w.between(worst(w.safe), worst(w.best))
        return Limit(cm.RobustBudget(row, errors, limit + 1e-12 * abs(limit), name=name))

    return make


def box(orders: float = 2.0) -> Callable[[World, str], Limit]:
    """A budget for every error in a box."""

    def make(w: World, name: str = "box") -> Limit:
        row, widths = w.row(), decades(w.rng, w.pairs, orders)
        at_most = w.between(float((row + widths) @ w.safe), float((row + widths) @ w.best))
        total = (row + widths)[None]
        return Limit(
            cm.RobustBudget(row, cm.Box(widths), at_most, name=name), (total, np.array([-np.inf]), np.array([at_most]))
        )

    return make


def vertices(orders: float = 2.0) -> Callable[[World, str], Limit]:
    """A budget for every mixture of a few errors."""

    def make(w: World, name: str = "corners") -> Limit:
        row, count = w.row(), int(w.rng.integers(2, 6))
        errors = w.rng.normal(size=(count, w.pairs)) * decades(w.rng, w.pairs, orders)
        E = row + errors
        at_most = w.between(float(np.max(E @ w.safe)), float(np.max(E @ w.best)))
        limits = (E, np.full(count, -np.inf), np.full(count, at_most))
        return Limit(cm.RobustBudget(row, cm.Vertices(errors), at_most, name=name), limits)

    return make


class Slab:
    """A set of one's own: a weighted sum of the occupancy lies between two numbers."""

    def __init__(self, row: Array, lower: float, upper: float, name: str = "own set") -> None:
        self.row, self.lower, self.upper, self.name = row, lower, upper, name

    def project(self, point: Array) -> Array:
        at = float(self.row @ point)
        return point + (np.clip(at, self.lower, self.upper) - at) / float(self.row @ self.row) * self.row


def own(w: World, name: str = "own set") -> Limit:
    """A user's own set, which files do not hold."""
    row = w.rng.uniform(0.1, 1, size=w.pairs)
    low, high = float(row @ w.safe), float(row @ w.best)
    upper = w.between(low, high)
    return Limit(Slab(row, low - 0.5 * abs(low), upper + 1e-12, name))


SETS: dict[str, Callable[[World, str], Limit]] = {
    "budget": budget, "rows": linear, "bounds": bounds, "visits": state_bounds, "ball 1": ball(1), "ball 2": ball(2),
    "ball 3": ball(3), "ball inf": ball(np.inf), "ball weighted": ball("weighted"), "entropy": entropy("pairs"),
    "entropy of states": entropy("states"), "KL ball": kl_ball, "ellipsoid": ellipsoid(False),
    "full ellipsoid": ellipsoid(True), "box": box(), "corners": vertices(), "own set": own,
}  # fmt: skip
CURVED = [name for name in SETS if name not in ("budget", "rows", "bounds", "visits", "box", "corners", "own set")]


def terms(w: World, name: str) -> Any:
    """A convex term of the objective."""
    weight = float(10 ** w.rng.uniform(-2, 1))
    if name.startswith("distance"):
        p = {"1": 1, "2": 2, "inf": np.inf}[name.split()[1]]
        return cm.Distance(w.spread() if w.rng.random() < 0.5 else w.safe, weight=weight, norm=p)
    if name.startswith("entropy"):
        return cm.NegativeEntropy(weight, of=name.split()[-1])
    return cm.KL(w.spread(), weight=weight)


TERMS = ("distance 1", "distance 2", "distance inf", "entropy of pairs", "entropy of states", "KL")


# Kinds of problems ----------------------------------------------------------------------------------------------------


@dataclass
class Made:
    """A problem, and what is known of it."""

    problem: cm.Problem
    about: str
    expected: str | None = None
    """"feasible", "infeasible", or None where only the solver knows."""
    border: bool = False
    """Whether it is made to lie on the border of feasibility, or so near that the tolerance decides."""
    settings: dict[str, Any] = field(default_factory=dict)
    limits: list[Limit] | None = None
    """For HiGHS: where all is linear and well scaled."""
    filed: bool = True
    """Whether files hold all of it."""


Kind = Callable[[Rng, int], Made]
"""A kind of problems: the problem of a turn, which takes sets, terms or models in order where all are to be met."""


def made(
    w: World, minimize: Any, names_and_limits: Sequence[tuple[str, Limit]], about: str = "", scaled: bool = True,
    expected: str | None = "feasible", **known: Any,
) -> Made:  # fmt: skip
    """A problem with these limits."""
    limits = [limit for _, limit in names_and_limits]
    problem = cm.Problem(w.mdp, minimize, [limit.constraint for limit in limits])
    flat = isinstance(minimize, (str, np.ndarray)) and all(limit.rows is not None for limit in limits)
    words = [about, *(name for name, _ in names_and_limits)]
    filed = not any(isinstance(limit.constraint, Slab) for limit in limits)
    return Made(
        problem, ", ".join(word for word in words if word), expected, limits=limits if flat and scaled else None,
        filed=filed, **known,
    )  # fmt: skip


def drawn(w: World, names: Sequence[str]) -> list[tuple[str, Limit]]:
    """One limit for each name."""
    return [(name, SETS[name](w, f"{name} {i}")) for i, name in enumerate(names)]


def some_model(rng: Rng, most: int = 300, discounts: Sequence[float] = USUAL, least: int = 1) -> tuple[str, cm.MDP]:
    """A model of a random kind."""
    name = str(rng.choice(list(MODELS)))
    return name, MODELS[name](rng, max(size(rng, most), least), float(rng.choice(discounts)))


def penalties(sets: Sequence[str]) -> Kind:
    """Some states or pairs are forbidden by a penalty of 1e6 to 1e12."""

    def make(rng: Rng, turn: int) -> Made:
        name, mdp = some_model(rng, 200, (0.9, 0.95, 0.99, 0.999, 0.9999), least=3)
        large = float(10 ** rng.integers(6, 13))
        hit = rng.random(mdp.num_pairs) < 0.15
        if rng.random() < 0.5:
            hit = (rng.random(mdp.num_states) < 0.15)[mdp.state]
        cost = mdp.costs["cost"] + large * hit
        w = World.of(rng, mdp, cost=cost)
        chosen = [str(x) for x in rng.choice(list(sets), size=int(rng.integers(1, 3)), replace=False)]
        return made(w, cost, drawn(w, chosen), f"{name} with {large:.0e}", scaled=False)

    return make


def rare(model: str) -> Kind:
    """The risk of a rare event is limited, down to 1e-40, or to 1e-100 in long chains."""

    def make(rng: Rng, turn: int) -> Made:
        discount = float(rng.choice((0.9, 0.95, 0.99, 0.999, 0.9999)))
        if model == "queue":
            mdp = queue(rng, int(rng.integers(8, 60)), discount, load=float(rng.uniform(0.05, 0.6)))
        elif model == "walk":
            mdp = walk(rng, int(rng.integers(6, 120)), discount)
        elif model == "grid":
            mdp = grid(rng, int(rng.integers(5, 21)) ** 2, discount, slip=float(10 ** rng.uniform(-4, -1)))
        else:
            mdp = chain(rng, int(rng.integers(4, 25)), discount, rare=(1e-5, 0.3))
        w = World.of(rng, mdp, worry=float(10 ** rng.uniform(1, 14)), even_share=0.0, geometric=True)
        risk = mdp.costs["risk"]
        low, high = float(risk @ w.safe), float(risk @ w.best)
        at_most = w.between(low, high) if high > 0 else 1e-30
        found = [("risk", Limit(cm.Budget("risk", at_most=at_most)))]
        more = rng.random()
        if more < 0.15:
            found += drawn(w, [str(rng.choice(["budget", "rows", "visits"]))])
        elif more < 0.25:
            found += drawn(w, [str(rng.choice(["entropy", "ball 2", "ball 1", "ellipsoid"]))])
        return made(w, "cost", found, f"at most {at_most:.0e}", scaled=False)

    return make


def wide(sets: Sequence[Callable[[World, str], Limit]], spread_cost: bool) -> Kind:
    """Errors, rows and costs over up to 15 orders of magnitude."""

    def make(rng: Rng, turn: int) -> Made:
        name, mdp = some_model(rng, 60)
        cost = mdp.costs["cost"]
        orders = float(rng.choice((3, 6, 10, 15)))
        if spread_cost or rng.random() < 0.3:
            cost = rng.choice((-1.0, 1.0, 1.0), size=cost.size) * decades(rng, cost.size, orders)
        w = World.of(rng, mdp, cost=cost)
        maker = sets[int(rng.integers(len(sets)))]
        found = [("", maker(w, "wide"))]
        if rng.random() < 0.2:
            found += drawn(w, ["budget"])
        return made(w, cost, found, f"{name}, {orders:g} orders", scaled=False)

    return make


def wide_rows(w: World, name: str) -> Limit:
    """Rows over 15 orders of magnitude."""
    E = w.rng.uniform(size=(int(w.rng.integers(1, 4)), w.pairs)) * decades(w.rng, w.pairs, 15)
    E *= decades(w.rng, len(E), 6)[:, None]
    return rows_of(E, -np.inf, [w.between(float(row @ w.safe), float(row @ w.best)) for row in E], name=name)


def near_zero(kind: str) -> Kind:
    """Balls around a policy's occupancy whose radius is 1e-3 to 1e-18, or 0."""

    def make(rng: Rng, turn: int) -> Made:
        name, mdp = some_model(rng, 100)
        w = World.of(rng, mdp)
        radius = 0.0 if rng.random() < 0.1 else float(10.0 ** -rng.integers(3, 19))
        center = w.spread() if rng.random() < 0.6 else w.safe
        if kind == "KL":
            limit, words = Limit(cm.KLBall(center, radius)), "KL"
        else:
            p = (1, 2, 3, np.inf, 2)[int(rng.integers(5))]
            weights = decades(rng, w.pairs, 4) if p == 2 and rng.random() < 0.4 else None
            words = f"{p}-norm" if weights is None else "weighted"
            limit = Limit(cm.NormBall(center, radius, norm=p, weights=weights))
        objective: Any = "cost"
        if rng.random() < 0.2:
            objective = ["cost", terms(w, str(rng.choice(TERMS)))]
        return made(w, objective, [(words, limit)], f"{name}, radius {radius:.0e}", border=radius < 1e-9)

    return make


def structured(sets: Sequence[str], most: int = 300, least: int = 1) -> Kind:
    """Each model of practice, discounts up to 1 - 1e-9."""

    def make(rng: Rng, turn: int) -> Made:
        name = list(MODELS)[turn % len(MODELS)]
        mdp = MODELS[name](rng, max(size(rng, most), least), float(rng.choice(DISCOUNTS)))
        w = World.of(rng, mdp)
        return made(w, "cost", drawn(w, [str(rng.choice(list(sets)))]), f"{name} at {mdp.discount:.10g}")

    return make


def several(count: int) -> Kind:
    """Sets alone, or together: every one, or every pair."""

    def make(rng: Rng, turn: int) -> Made:
        name, mdp = some_model(rng, 80)
        w = World.of(rng, mdp)
        groups = list(itertools.combinations_with_replacement(SETS, count))
        return made(w, "cost", drawn(w, groups[turn % len(groups)]), name)

    return make


def objectives(rng: Rng, turn: int) -> Made:
    """Each convex term with each set and with none, with or without a cost."""
    name, mdp = some_model(rng, 80)
    w = World.of(rng, mdp)
    first, second = turn % len(TERMS), int(rng.integers(1, len(TERMS)))
    chosen = [TERMS[first], *([TERMS[(first + second) % len(TERMS)]] if rng.random() < 0.25 else [])]
    parts = [*(["cost"] if rng.random() < 0.7 else []), *(terms(w, term) for term in chosen)]
    if len(chosen) == 2:
        parts[-1].name += " too"
    groups = [(), *((name,) for name in SETS)]
    names = groups[turn // len(TERMS) % len(groups)]
    return made(w, parts, drawn(w, names), f"{name}, {' and '.join(chosen)}")


def odd_rows(rng: Rng, turn: int) -> Made:
    """Equalities, two-sided, duplicate and redundant rows."""
    name, mdp = some_model(rng, 80)
    w = World.of(rng, mdp)
    E = np.array([w.row() for _ in range(int(rng.integers(1, 4)))])
    at = E @ w.safe
    kind = int(rng.integers(4))
    if kind == 0:
        found = [("equal", Limit(cm.Linear(E, equal=at), (E, at, at)))]
    elif kind == 1:
        width = 10 ** rng.uniform(-6, -1, size=len(E)) * np.abs(at)
        found = [("two-sided", rows_of(E, at - width, at + width * rng.uniform(size=len(E))))]
    elif kind == 2:
        upper = np.array([w.between(float(row @ w.safe), float(row @ w.best)) for row in E])
        scales = 10 ** rng.uniform(-3, 3, size=len(E))
        found = [("first", rows_of(E, -np.inf, upper, name="first")), ("copy", rows_of(E, -np.inf, upper, name="copy"))]
        found += [("scaled", rows_of(E * scales[:, None], -np.inf, upper * scales, name="scaled"))]
    else:
        upper = np.array([w.between(float(row @ w.safe), float(row @ w.best)) for row in E])
        more = np.vstack([E, E.sum(axis=0)])
        found = [("sums", rows_of(more, -np.inf, np.append(upper, upper.sum())))]
        found += [("equal", Limit(cm.Linear(E[:1], equal=at[:1], name="equal"), (E[:1], at[:1], at[:1])))]
    if rng.random() < 0.25:
        found += drawn(w, [str(rng.choice(CURVED))])
    return made(w, "cost", found, name, border=kind in (0, 3))


def inactive(rng: Rng, turn: int) -> Made:
    """Limits that the cheapest policy obeys."""
    name, mdp = some_model(rng, 150, DISCOUNTS)
    w = World.of(rng, mdp)
    w.safe = w.best
    names = [str(x) for x in rng.choice(list(SETS), size=int(rng.integers(1, 4)), replace=False)]
    return made(w, "cost", drawn(w, names), name)


def single_point(rng: Rng, turn: int) -> Made:
    """One occupancy is left, or next to none."""
    name, mdp = some_model(rng, 40)
    w = World.of(rng, mdp, even_share=float(rng.choice((0.0, 0.05))))
    kind = int(rng.integers(4))
    if kind == 0:
        found = [("bounds", Limit(cm.Bounds(lower=w.safe, upper=w.safe)))]
    elif kind == 1:
        found = [("equal", Limit(cm.Linear(np.eye(w.pairs), equal=w.safe)))]
    elif kind == 2:
        found = [("ball", Limit(cm.NormBall(w.safe, 0.0, norm=(1, 2, np.inf)[int(rng.integers(3))])))]
    else:
        upper = float(mdp.costs["cost"] @ w.best)
        found = [("optimum", Limit(cm.Budget("cost", at_most=upper)))]
        row = mdp.costs["risk"]
        found += [("risk of it", Limit(cm.Budget("risk", at_most=float(row @ w.best) + 1e-12)))]
    return made(w, "cost", found, name, border=True)


def beyond(rng: Rng) -> float:
    """By how much an infeasible limit is exceeded by all, relatively."""
    return float(10 ** rng.uniform(-6, -1))


def weakest(w: World, row: Array) -> float:
    """The least that any policy achieves."""
    return float(row @ w.mdp.evaluate(w.mdp.policy(cheapest(w.mdp, row))).occupancy)


def below_least(rng: Rng, turn: int) -> Made:
    """A budget below the least possible by 1e-1 to 1e-6, among limits that can be kept."""
    name, mdp = some_model(rng, 150, DISCOUNTS[:-1])
    w = World.of(rng, mdp)
    row, share = w.rng.uniform(0.05, 1, size=w.pairs), beyond(rng)
    found = [("low", at_most(row, weakest(w, row) * (1 - share), name="low"))]
    if rng.random() < 0.5:
        found += drawn(w, [str(rng.choice(list(SETS)))])
    return made(w, "cost", found, f"{name}, {share:.0e}", expected="infeasible", border=share < EDGE)


def conflicting(rng: Rng, turn: int) -> Made:
    """Two or three budgets that can each be kept, not all: a weighted sum is below its least."""
    name, mdp = some_model(rng, 150, DISCOUNTS[:-1])
    w = World.of(rng, mdp)
    count, share = int(rng.integers(2, 4)), beyond(rng)
    E = w.rng.uniform(0.05, 1, size=(count, w.pairs))
    total = E.sum(axis=0)
    at = w.mdp.evaluate(w.mdp.policy(cheapest(mdp, total))).occupancy
    found = [(f"part {i}", at_most(row, float(row @ at) * (1 - share), name=f"part {i}")) for i, row in enumerate(E)]
    if rng.random() < 0.4:
        found += drawn(w, [str(rng.choice(list(SETS)))])
    return made(w, "cost", found, f"{name}, {share:.0e}", expected="infeasible", border=share < EDGE)


def contradictory(rng: Rng, turn: int) -> Made:
    """Rows that no numbers obey, whatever the policy."""
    name, mdp = some_model(rng, 150)
    w = World.of(rng, mdp)
    row, share = w.rng.uniform(0.1, 1, size=w.pairs), beyond(rng)
    at = float(row @ w.safe)
    first = cm.Linear(row, at_most=at, name="at most")
    kind = int(rng.integers(3))
    if kind == 0:
        second: Any = cm.Linear(row, at_least=at * (1 + share), name="at least")
    elif kind == 1:
        second = cm.Linear(3 * row, equal=3 * at * (1 + share), name="equal")
    else:
        other = w.rng.uniform(0.1, 1, size=w.pairs)
        first = cm.Linear(np.array([row, other]), at_most=[at, float(other @ w.safe)], name="both")
        second = cm.Linear(row + other, at_least=(at + float(other @ w.safe)) * (1 + share), name="sum")
    found = [("", Limit(first)), ("", Limit(second))]
    if rng.random() < 0.4:
        found += drawn(w, [str(rng.choice(list(SETS)))])
    return made(w, "cost", found, f"{name}, {share:.0e}", expected="infeasible", border=share < EDGE)


def impossible(w: World, i: int) -> tuple[str, Limit, float]:
    """A limit that no policy obeys, with by how much it is missed, relatively."""
    rng, mdp = w.rng, w.mdp
    share = beyond(rng)
    kind = int(rng.integers(8))
    if kind == 0:  # the first step alone keeps a share of one in the pairs of a state
        s = int(np.argmax(mdp.initial))
        kept, count = (1 - mdp.discount) * mdp.initial[s], int(np.sum(mdp.state == s))
        rest = w.pairs - count
        if rest and kept > count / w.pairs:
            most = entropy_of(np.array([kept, 1 - kept])) + kept * np.log(count) + (1 - kept) * np.log(rest)
            at_least = most + share * (np.log(w.pairs) - most)
            return "entropy", Limit(cm.Entropy(at_least, name=f"entropy {i}")), (at_least - most) / at_least
        kind = 1
    if kind == 1:  # the first step alone visits a state so often
        s = int(np.argmax(mdp.initial))
        upper = (1 - mdp.discount) * mdp.initial[s] * (1 - share)
        return "visits", Limit(cm.StateBounds(upper={mdp.states[s]: upper}, name=f"visits {i}")), share
    if kind in (2, 3):  # every occupancy sums to one
        p = (1, 2, 3, np.inf)[int(rng.integers(4))]
        center = w.spread() * (1 + 10 * share)
        radius = (
            10 * share * (1.0 if p == 1 else w.pairs ** (1 / p - 1) if np.isfinite(p) else 1 / w.pairs) * (1 - share)
        )
        return f"ball {p}", Limit(cm.NormBall(center, radius, norm=p, name=f"ball {i}")), share
    if kind == 4:
        return "bounds", Limit(cm.Bounds(upper=(1 - share) / w.pairs, name=f"bounds {i}")), share
    if kind == 5:
        row = rng.uniform(0.1, 1, size=w.pairs)
        errors, low = cm.Ellipsoid(1e-4 * decades(rng, w.pairs, 2)), weakest(w, row) * (1 - share)
        return "ellipsoid", Limit(cm.RobustBudget(row, errors, low, name=f"robust {i}")), share
    if kind == 6:
        row = rng.uniform(0.1, 1, size=w.pairs)
        low = weakest(w, row) * (1 - share)
        return "own set", Limit(Slab(row, low - 1, low, f"own set {i}")), share
    row = rng.uniform(0.1, 1, size=w.pairs)
    return "budget", at_most(row, weakest(w, row) * (1 - share), name=f"low {i}"), share


def impossible_alone(rng: Rng, turn: int) -> Made:
    """One or two limits that no policy obeys even by themselves."""
    name, mdp = some_model(rng, 100)
    w = World.of(rng, mdp)
    found, least = [], 1.0
    for i in range(1 + int(rng.random() < 0.5)):
        kind, limit, share = impossible(w, i)
        found.append((kind, limit))
        least = min(least, share)
    if rng.random() < 0.4:
        found += drawn(w, [str(rng.choice(list(SETS)))])
    return made(w, "cost", found, f"{name}, {least:.0e}", expected="infeasible", border=least < EDGE)


def compromises(rng: Rng, turn: int) -> Made:
    """Infeasible, with another compromise asked for, priorities and weights."""
    name, mdp = some_model(rng, 100)
    w = World.of(rng, mdp)
    count, share = int(rng.integers(2, 4)), beyond(rng)
    E = w.rng.uniform(0.05, 1, size=(count, w.pairs))
    at = w.mdp.evaluate(w.mdp.policy(cheapest(mdp, E.sum(axis=0)))).occupancy
    found = []
    for i, row in enumerate(E):
        rank = {
            "priority": int(rng.integers(1, 4)),
            "weight": float(rng.uniform(0.1, 5)) if rng.random() < 0.3 else None,
        }
        found.append((f"part {i}", at_most(row, float(row @ at) * (1 - share), name=f"part {i}", **rank)))
    if rng.random() < 0.4:
        found += drawn(w, [str(rng.choice(list(SETS)))])
    how = str(rng.choice(("relative", "priority")))
    known: dict[str, Any] = {"expected": "infeasible", "border": share < EDGE, "settings": {"when_infeasible": how}}
    return made(w, "cost", found, f"{name}, {how}, {share:.0e}", **known)


FLAT = ("budget", "rows", "visits", "bounds", "box", "corners")
KINDS: dict[str, Kind] = {
    "penalties to 1e12, linear limits": penalties(FLAT),
    "penalties to 1e12, curved limits": penalties(CURVED),
    "rare overflow of a queue": rare("queue"),
    "rare ruin of a walk": rare("walk"),
    "rare collisions on a grid": rare("grid"),
    "rare ends of long chains": rare("chain"),
    "ellipsoids over 15 orders": wide([ellipsoid(full, n) for full in (False, True) for n in (6.0, 15.0)], False),
    "boxes and corners over 15 orders": wide([box(6), box(15), vertices(6), vertices(15)], False),
    "costs and rows over 15 orders": wide([wide_rows], True),
    "radii to 0, norm balls": near_zero("norm"),
    "radii to 0, KL balls": near_zero("KL"),
    "models of practice, linear limits": structured(FLAT),
    "models of practice, curved limits": structured(CURVED),
    "one set": several(1),
    "two sets": several(2),
    "convex objectives": objectives,
    "equal, two-sided and repeated rows": odd_rows,
    "inactive limits": inactive,
    "a single point": single_point,
    "up to 2000 states": structured(("budget", "rows"), 2000, 400),
    "infeasible: below the least": below_least,
    "infeasible: conflicts": conflicting,
    "infeasible: contradictions": contradictory,
    "infeasible: impossible alone": impossible_alone,
    "infeasible: compromises": compromises,
}


def make(seed: int, number: int) -> tuple[str, Made]:
    """The problem of a number, the same one every time; kinds take turns."""
    kind = list(KINDS)[number % len(KINDS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind, KINDS[kind](np.random.default_rng([seed, number]), number // len(KINDS))


# One problem ----------------------------------------------------------------------------------------------------------


def run(seed: int, number: int) -> dict[str, Any]:
    """Make, solve and check a problem; every row says what is wrong, if anything is."""
    row: dict[str, Any] = {"number": number, "kind": list(KINDS)[number % len(KINDS)]}
    try:
        case = make(seed, number)[1]
    except Exception as error:
        return {**row, "status": "", "seconds": 0.0, "exception": f"made: {said(error)}"}
    mdp = case.problem.mdp
    row |= {"about": case.about, "states": mdp.num_states, "pairs": mdp.num_pairs, "border": bool(case.border)}
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            solution = case.problem.solve(time_limit=TIME_LIMIT, **case.settings)
            row |= {"status": solution.status.name, "seconds": round(time.perf_counter() - start, 4)}
            start = time.perf_counter()
            row |= {key: what for key, what in judged(case, solution, number) if what}
            row["checked"] = round(time.perf_counter() - start, 4)
        except Exception as error:
            row = {"status": "", **row, "seconds": round(time.perf_counter() - start, 4), "exception": said(error)}
    if caught:
        row["warning"] = f"{caught[0].category.__name__}: {caught[0].message} ({where(caught[0])})"
    return row


def said(error: Exception) -> str:
    """An exception with the last line of ours that it passed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "cvxmdp" in f.filename or "claims" in f.filename]
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{at}"


def where(warning: warnings.WarningMessage) -> str:
    """File and line of a warning."""
    return f"{Path(warning.filename).name}:{warning.lineno}"


def judged(case: Made, solution: cm.Solution, number: int) -> Iterator[tuple[str, Any]]:
    """Yield what the verifier refuses, what contradicts how the problem was made, and what HiGHS says otherwise."""
    try:
        solution.certificate.check(case.problem)
    except cm.CertificateError as error:
        yield "refused", str(error)
    str(solution)  # the words, too
    if (number + number // len(KINDS)) % FILED == 0 and case.filed:  # of every kind
        yield "filed", True
        yield "refused_file", filed(case, solution)
    yield "contradicts", contradicts(case, solution)
    if case.limits is not None and case.problem.mdp.num_states <= SMALL and not case.border:
        asked, what = second_opinion(case, solution)
        yield "asked_highs", asked
        yield "highs", what


def filed(case: Made, solution: cm.Solution) -> str:
    """Save model and solution, verify the files, load both and check again."""
    with tempfile.TemporaryDirectory() as folder:
        model, answer = Path(folder) / "model.npz", Path(folder) / "answer.npz"
        case.problem.mdp.save(model)
        solution.save(answer)
        try:
            cvxmdp_verifier.verify_files(model, answer)
            cm.load_solution(answer).certificate.check(case.problem)
        except (cvxmdp_verifier.Refused, cm.CertificateError) as error:
            return str(error)
        cm.load(model)
    return ""


def contradicts(case: Made, solution: cm.Solution) -> str:
    """What is wrong about a verdict if the problem is as it was made."""
    status, found = solution.status.name, solution.infeasibility
    if case.expected == "feasible" and found is not None and found.least > THIN:
        return f"INFEASIBLE by {found.least:.2g}, but the limits hold at a known policy"
    if case.expected == "infeasible" and status == "OPTIMAL" and not case.border:
        return "OPTIMAL, but no policy obeys"
    return ""


def second_opinion(case: Made, solution: cm.Solution) -> tuple[bool, str]:
    """Compare with HiGHS, where its answer obeys what it was given: whether it does, and what differs."""
    mdp, cost = case.problem.mdp, case.problem.cost
    status, d = solution.status.name, solution.occupancy
    if status not in ("OPTIMAL", "INFEASIBLE") or mdp.discount > 0.9999:
        return False, ""
    size_of_cost = float(np.max(np.abs(cost))) or 1.0
    exact = highs(case, cost / size_of_cost, 0.0, d)
    if exact is None:
        return False, ""
    if status == "INFEASIBLE":
        assert solution.infeasibility is not None
        if exact == "infeasible" or solution.infeasibility.least < EDGE:
            return exact == "infeasible", ""
        return True, "INFEASIBLE; HiGHS has a policy"
    loose = highs(case, cost / size_of_cost, 2e-6, d)
    if loose is None or (loose == "infeasible" and exact != "infeasible"):  # it contradicts itself
        return False, ""
    if loose == "infeasible":
        return True, "OPTIMAL; HiGHS finds no policy"
    slack = 1e-5 * (float(np.abs(cost) @ d) / size_of_cost + 1e-9)
    value = float(cost @ d) / size_of_cost
    if value < loose - slack or (exact != "infeasible" and value > exact + slack):
        return True, f"value {value:.12g}; HiGHS: {loose:.12g} with limits relaxed to the tolerance, {exact} without"
    return True, ""


def highs(case: Made, cost: Array, relaxed: float, d: Array) -> Any:
    """The optimum of HiGHS with limits relaxed relatively; "infeasible"; or None where it is not to be trusted."""
    assert case.limits is not None
    mdp = case.problem.mdp
    P = sp.csr_array(mdp.transitions)
    owner = sp.csr_array((np.ones(mdp.num_pairs), (mdp.state, np.arange(mdp.num_pairs))))
    A_eq, b_eq = owner - mdp.discount * P.T, (1 - mdp.discount) * mdp.initial
    A, b = [], []
    for limit in case.limits:
        assert limit.rows is not None
        E, lower, upper = limit.rows
        largest = np.max(np.abs(E), axis=1)
        for sign, bound in ((1.0, upper), (-1.0, lower)):
            kept = np.isfinite(bound) & (largest > 0)
            sizes = np.maximum(np.abs(bound[kept]), np.abs(E[kept]) @ d)
            scale = np.maximum(sizes, 1e-3 * largest[kept])
            A.append(sign * E[kept] / scale[:, None])
            b.append((sign * bound[kept] + relaxed * np.maximum(sizes, 1e-6 * largest[kept])) / scale)
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    rows = np.vstack(A) if A and sum(map(len, A)) else None
    right = np.concatenate(b) if rows is not None else None
    answer = linprog(cost, A_ub=rows, b_ub=right, A_eq=A_eq, b_eq=b_eq, method="highs", options=tight)
    if answer.status == 2:
        return "infeasible"
    if answer.status != 0 or np.max(np.abs(A_eq @ answer.x - b_eq)) > 1e-10:
        return None
    if rows is not None and np.max(rows @ answer.x - right) > 1e-9:
        return None
    return float(answer.fun)


# All of them ----------------------------------------------------------------------------------------------------------


def ready() -> None:
    """In a new worker: load everything once."""
    for number in range(0, len(KINDS), 4):
        run(1, number)


def guarded(seed: int, number: int) -> dict[str, Any]:
    """A problem in a worker: one that hangs is an exception."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no answer after {HANGS} seconds with a time limit of {TIME_LIMIT:g}")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANGS)
    try:
        return run(seed, number)
    except TimeoutError as error:
        kind = list(KINDS)[number % len(KINDS)]
        return {"number": number, "kind": kind, "status": "", "seconds": float(HANGS), "exception": str(error)}
    finally:
        signal.alarm(0)


def header(seed: int, problems: int) -> dict[str, Any]:
    """What is measured."""
    return {
        **provenance.made_by(),
        "seed": seed,
        "problems": problems,
        "time_limit": TIME_LIMIT,
        "cores": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scipy")},
        },
    }


def measure(seed: int, numbers: Sequence[int], workers: int, parts: Path | None) -> dict[str, Any]:
    """Run the problems, rows kept as they come; what a file of parts holds already is not run again."""
    head = header(seed, len(numbers))
    rows: dict[int, dict[str, Any]] = {}
    if parts is not None and parts.exists():
        lines = [json.loads(line) for line in parts.read_text().splitlines()]
        if lines and all(lines[0][key] == head[key] for key in ("commit", "seed", "changed")):
            rows = {row["number"]: row for row in lines[1:]}
        else:
            parts.unlink()
    if parts is not None and not parts.exists():
        parts.parent.mkdir(exist_ok=True)
        parts.write_text(json.dumps(head) + "\n")
    rows = {number: rows[number] for number in numbers if number in rows}
    start = time.perf_counter()

    def keep(row: dict[str, Any]) -> None:
        rows[row["number"]] = row
        if parts is not None:
            with parts.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if faults(row):
            print(json.dumps(row), flush=True)
        if len(rows) % 50 == 0:
            words = f"{sum(bool(faults(r)) for r in rows.values())} with faults, {time.perf_counter() - start:.0f} s"
            print(f"{len(rows)}/{len(numbers)}: {words}", flush=True)

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    while missing := [number for number in numbers if number not in rows]:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), ready) as pool:
            waiting = {pool.submit(guarded, seed, number): number for number in missing}
            try:
                for done in as_completed(waiting):
                    keep(done.result())
            except BrokenProcessPool:  # find the one that ends its process
                pass
            else:
                continue
        for number in [n for n in missing if n not in rows][: 2 * workers]:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                try:
                    keep(pool.submit(guarded, seed, number).result())
                except BrokenProcessPool:
                    kind = list(KINDS)[number % len(KINDS)]
                    keep(
                        {"number": number, "kind": kind, "status": "", "seconds": 0.0, "exception": "the process died"}
                    )
    return {**head, "rows": [rows[number] for number in numbers]}


FAULTS = {
    "refused": "refused",
    "refused_file": "refused from files",
    "contradicts": "contradicts how it was made",
    "highs": "HiGHS says otherwise",
    "exception": "exception",
}


def faults(row: dict[str, Any]) -> list[str]:
    """What is wrong, in words."""
    return [f"{words}: {row[key]}" for key, words in FAULTS.items() if row.get(key)]


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table: a row for each kind, and one for all."""
    titles = (
        "kind", "problems", "optimal", "infeasible", "no verdict", "of these off the border", "refused", "exceptions",
        "median seconds", "worst seconds",
    )  # fmt: skip
    yield "| " + " | ".join(titles) + " |"
    yield "|---" * len(titles) + "|"
    for name in [*KINDS, "**all**"]:
        members = [row for row in rows if row["kind"] == name or name == "**all**"]
        if not members:
            continue
        open_ = [row for row in members if row["status"] not in ("OPTIMAL", "INFEASIBLE", "")]
        seconds = [row["seconds"] for row in members]
        cells = [
            len(members),
            sum(row["status"] == "OPTIMAL" for row in members),
            sum(row["status"] == "INFEASIBLE" for row in members),
            len(open_),
            sum(not row["border"] for row in open_),
            sum(bool(row.get("refused") or row.get("refused_file")) for row in members),
            sum(bool(row.get("exception")) for row in members),
        ]
        yield f"| {name} | " + " | ".join(map(str, cells)) + f" | {median(seconds):.3f} | {max(seconds):.2f} |"


def wrapped(text: str) -> list[str]:
    """The lines of a paragraph."""
    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)


def page(data: dict[str, Any]) -> str:
    """Write the page from the data."""
    rows, versions = data["rows"], data["versions"]
    refused = sum(bool(row.get("refused") or row.get("refused_file")) for row in rows)
    raised = sum(bool(row.get("exception")) for row in rows)
    saved = sum(bool(row.get("filed")) for row in rows)
    open_ = [row for row in rows if row["status"] not in ("OPTIMAL", "INFEASIBLE", "")]
    states = [row["states"] for row in rows if "states" in row]
    off = sum(not row["border"] for row in open_)
    asked = sum(bool(row.get("asked_highs")) for row in rows)
    lines = [
        "# Is any claim false?",
        "",
        *wrapped(
            f"Measured by `make claims` {provenance.said([data])}; raw numbers in `benchmarks/results/claims.json`. "
            f"{data['cores']} cores, one thread a problem, Python {versions['python']}, NumPy {versions['numpy']}, "
            f"SciPy {versions['scipy']}. Seconds are of the solve alone, in processes that have solved others "
            "before, and include what else the machine did meanwhile."
        ),
        "",
        "```",
        f"PYTHONPATH=reference .venv/bin/python benchmarks/claims.py --problems {len(rows)} --seed {data['seed']}",
        "```",
        "",
        *wrapped(
            f"{len(rows)} problems with {min(states)} to {max(states)} states (median {median(states):.0f}), made to "
            "be hard to prove, each drawn from the seed and its number. Each is solved with the defaults and "
            f"`time_limit={data['time_limit']:g}`. Then `solution.certificate.check(problem)` hands everything the "
            "solution says to `cvxmdp_verifier`, which shares no code with the library and recomputes or refuses each "
            "claim in extended precision: value, costs, bound, gap, violations, prices, and all that is said of "
            f"infeasible problems. Every tenth, {saved} in all, is also saved, verified from its files, loaded and "
            "checked again; a user's own sets are not in files. Limits are placed between a careful policy and the "
            "cheapest, so that most problems are feasible and their limits active."
        ),
        "",
        f"- Claims refused by the verifier, as false or not proven: **{refused}**.",
        f"- Exceptions: **{raised}**.",
        f"- Verdicts that contradict how the problem was made: **{sum('contradicts' in row for row in rows)}**.",
        f"- Verdicts or values that HiGHS says otherwise: **{sum(bool(row.get('highs')) for row in rows)}** of {asked} "
        "linear problems.",
        f"- No verdict: {len(open_)}, of which {off} off the border. What these solutions say is checked as well.",
        "",
        *wrapped(
            "*Refused* must be zero: it would be a false claim, or one without its proof. *Off the border* are the "
            "problems not made to lie on the border of feasibility, or so near that the tolerance decides."
        ),
        "",
        *table(rows),
        "",
    ]
    failed = [(row, what) for row in rows for what in faults(row)]
    if failed:
        lines += ["## What went wrong", "", "| number | kind | problem | what |", "|---|---|---|---|"]
        lines += [f"| {row['number']} | {row['kind']} | {row.get('about', '')} | {what} |" for row, what in failed]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measure, or write the page again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=PROBLEMS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="100 problems, no files")
    parser.add_argument("--sample", type=Path, help="write the rows here, and no page")
    parser.add_argument("--only", help="kinds that contain this")
    parser.add_argument("--table", action="store_true", help="the page again")
    given = parser.parse_args()
    if given.table:
        PAGE.write_text(page(json.loads(RESULTS.read_text())))
        return
    problems = 100 if given.quick else given.problems
    numbers = [n for n in range(problems) if given.only is None or given.only in list(KINDS)[n % len(KINDS)]]
    kept = given.sample if given.sample else None if given.quick or given.only else PARTS
    data = measure(given.seed, numbers, given.workers, kept)
    if given.quick or given.only or given.sample:
        print(page(data))
        for row in data["rows"]:
            if row["status"] not in ("OPTIMAL", "INFEASIBLE") and not row["border"]:
                print(row["number"], row["kind"], row["about"], row["status"], sep=" | ")
        return
    rows = ",\n".join(json.dumps(row) for row in data["rows"])  # a line each
    RESULTS.write_text(json.dumps({**data, "rows": []}).replace('"rows": []', f'"rows": [\n{rows}\n]') + "\n")
    PAGE.write_text(page(data))
    PARTS.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
