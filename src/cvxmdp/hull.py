"""The trade-off between two costs by policies: the lower convex hull of what policies cost.

A policy that is best for ``c + price * r`` is a point of the hull; two of them for the same price are the ends of an
edge, and everything on it is a mixture of the two.  Each point is one policy iteration that begins at a neighbour's
value (Aneja and Nair 1979).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from cvxmdp.dynamics.base import Dynamics, indicator
from cvxmdp.engines.presolve import Unconstrained, policy_iteration
from cvxmdp.mdp import Array

ON_A_LINE = 1e-12
"""Share of a value below which two points of the hull are on one line: what rounding leaves."""
MOST_VERTICES = 2000
"""Points that are found at most; the trade-off of a grid of 25 x 25 cells has some hundred."""
SHARE = 0.25
"""Share of the tolerance that a chord may be above the hull: the rest is for what rounding adds."""


@dataclass(frozen=True, eq=False)
class Vertex:
    """A policy: what it uses, what it costs, its occupancy, and a value near its own."""

    used: float
    cost: float
    d: Array
    V: Array


@dataclass(eq=False)
class Hull:
    """Points of the hull, in the order of what they use; the edges that were looked at, by their ends."""

    dynamics: Dynamics
    c: Array
    r: Array
    points: list[Vertex] = field(default_factory=list)
    edges: dict[tuple[Vertex, Vertex], tuple[float, Unconstrained, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find both ends: the policy that uses least, and the cheapest."""
        self.unconstrained: Unconstrained = policy_iteration(self.dynamics, self.c)
        least = policy_iteration(self.dynamics, self.r)
        for found in (least, self.unconstrained):
            self._add(self._vertex(found))

    def _vertex(self, found: Unconstrained) -> Vertex:
        d = self.dynamics.occupancy(indicator(self.dynamics, found.pairs))
        return Vertex(float(self.r @ d), float(self.c @ d), d, found.V)

    def _add(self, new: Vertex) -> None:
        self.points.insert(bisect_left(self.points, new.used, key=_used), new)

    def at(self, limit: float, tolerance: float) -> tuple[Array, float, Array] | None:
        """Return the best occupancy that uses at most ``limit``, its price and a value that proves it.

        None where no policy uses as little, or the limit does not bind.
        """
        if not self.points[0].used <= limit < self.points[-1].used:
            return None
        while len(self.points) < MOST_VERTICES:
            k = max(bisect_left(self.points, limit, key=_used), 1)
            p, q = self.points[k - 1], self.points[k]
            price, best, above = self._edge(p, q)
            share = (limit - p.used) / (q.used - p.used) if q.used > p.used else 0.0
            d = (1 - share) * p.d + share * q.d
            if above <= SHARE * tolerance * float(np.abs(self.c) @ d) or not self._split(p, q):
                return d, price, best.V
        return None

    def ends(self) -> tuple[float, float]:
        """Return the least that any policy uses, and the least that the cheapest use."""
        while len(self.points) < MOST_VERTICES:
            p, q = self.points[-2:]
            if self._exact(p, q) or not self._split(p, q):
                break
        used = self._corners()[:, 0]
        return float(used[0]), float(used[-1])

    def piece(self, limit: float) -> tuple[float, float, Array] | None:
        """Return where the edge that a limit lies on begins and ends, and the prices before, on and after it.

        Beginning and end are the limit itself where it is a corner; beyond the last corner the price is zero.  None
        where no policy uses as little, or there are too many corners.
        """
        near = ON_A_LINE * (abs(self.points[0].used) + abs(self.points[-1].used))
        while len(self.points) < MOST_VERTICES:
            used, cost = self._corners().T
            k = int(np.searchsorted(used, limit - near))  # the first corner that is not before the limit
            at = k < used.size and bool(used[k] - limit <= near)
            if k == 0 and not at:
                return None
            low, high = used[max(k - 1 if at else k - 2, 0)], used[min(k + 1, used.size - 1)]
            around = [point for point in self.points if low <= point.used <= high]
            if any([not self._exact(p, q) and self._split(p, q) for p, q in pairwise(around)]):
                continue
            prices = np.concatenate([[np.nan], -np.diff(cost) / np.diff(used), [0.0, 0.0]])
            if at:
                return limit, limit, prices[[k, k, k + 1]]
            return float(used[k - 1]), float(used[k]) if k < used.size else np.inf, prices[k - 1 : k + 2]
        return None

    def vertices(self) -> Array:
        """Return what each point of the hull uses and costs, all of them."""
        k = 1
        while k < len(self.points) and len(self.points) < MOST_VERTICES:
            p, q = self.points[k - 1], self.points[k]
            if self._exact(p, q) or not self._split(p, q):
                k += 1
        return self._corners()

    def _corners(self) -> Array:
        return np.array(_convex([(point.used, point.cost) for point in self.points]))

    def _exact(self, p: Vertex, q: Vertex) -> bool:
        """Whether a chord is an edge."""
        return self._edge(p, q)[2] <= ON_A_LINE * (abs(p.cost) + abs(q.cost))

    def _edge(self, p: Vertex, q: Vertex) -> tuple[float, Unconstrained, float]:
        """Return the price of a chord, the best policy for it, and how far that is below the chord."""
        if (p, q) not in self.edges:
            price = max((p.cost - q.cost) / (q.used - p.used), 0.0) if q.used > p.used else 0.0
            found = policy_iteration(self.dynamics, self.c + price * self.r, q.V)
            self.edges[p, q] = (price, found, p.cost + price * p.used - found.bound)
        return self.edges[p, q]

    def _split(self, p: Vertex, q: Vertex) -> bool:
        """Put the best policy for the price of a chord between its ends; say whether it is another one."""
        _, found, _ = self._edge(p, q)
        new = self._vertex(found)
        near = ON_A_LINE * (abs(p.used) + abs(q.used))
        if p is self.points[0] and new.used <= p.used + near and new.cost < p.cost - ON_A_LINE * abs(p.cost):
            self.points[0] = new  # of policies that use least, a cheaper one
            return True
        if not p.used + near < new.used < q.used - near:
            return False
        self._add(new)
        return True


def _used(point: Vertex) -> float:
    return point.used


def _convex(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Leave out points that are not corners of the lower hull."""
    kept: list[tuple[float, float]] = []
    for x, y in sorted(points):
        while len(kept) >= 2:
            (a, b), (e, f) = kept[-2:]
            if (f - b) * (x - e) >= (y - f) * (e - a) * (1 - 1e-9) - 1e-300:
                kept.pop()
            else:
                break
        if kept and x - kept[-1][0] <= ON_A_LINE * (abs(x) + abs(kept[-1][0])):
            kept[-1] = min(kept[-1], (x, y), key=lambda point: point[1])
            continue
        kept.append((x, y))
    while len(kept) >= 2 and kept[-2][1] - kept[-1][1] <= ON_A_LINE * abs(kept[-2][1]):
        kept.pop()  # what uses more and is no cheaper
    return kept
