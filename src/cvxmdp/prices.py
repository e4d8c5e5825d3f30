"""From where to where a price holds, and the prices beyond.

Where all limits are flat, the least cost g is a convex polygon of a limit x, counted so that more is looser.  The value
and the price at any x are a line that touches g from below.  The line at the limit itself leaves g, on either side, at
the last of the corners that are found by going from where it meets another such line to where it meets the line there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxmdp.problem import Problem
from cvxmdp.solution import Solution
from cvxmdp.status import Status
from cvxmdp.sweep import Limited

SHARP_TOLERANCE = 1e-9
"""Relative tolerance of the solves that lines come from: what an ordinary one leaves open hides small corners.  That of
the solution where rounding does not let solves get as far."""
MOST_STEPS = 50
"""Lines that are intersected before the end of a price's range is given up: a handful is usual."""
RESOLUTION = 1000.0
"""Times the tolerance of solves: limits nearer than this share of their range are the same."""
PROBE = 1e-3
"""Share of the range that a solve is beside a corner, where the next is not as near: far slopes are sharper."""
SLACK = 4.0
"""Times their tolerance within which a point of one solve is on the line of another: values and limits are both off."""


@dataclass(frozen=True)
class PriceRange:
    """From where to where a price holds.

    Attributes
    ----------
    price : float
        The change of the optimum for each unit of the limit.
    low, high : float
        The limits between which it holds; equal where the optimum bends at the limit or everywhere.
    left, right : float
        The prices below ``low`` and above ``high``; NaN where no policy obeys.
    """

    price: float
    low: float
    high: float
    left: float
    right: float

    def __str__(self) -> str:
        if self.low == self.high and self.left == self.right:
            return f"price {self.price:.6g} at {self.low:.6g}; it changes with the limit"
        where = f"from {self.low:.6g} to {self.high:.6g}" if self.low < self.high else f"at {self.low:.6g}"
        beyond = [
            f"no policy obeys {side}" if np.isnan(price) else f"{price:.6g} {side}"
            for price, side, end in ((self.left, "below", self.low), (self.right, "above", self.high))
            if np.isfinite(end)
        ]
        return f"price {self.price:.6g} {where}; {', '.join(beyond)}"


def price_ranges(solution: Solution, problem: Problem) -> dict[str, PriceRange]:
    """See :meth:`cvxmdp.Solution.price_ranges`."""
    if solution.status is not Status.OPTIMAL:
        raise ValueError(f"the solution is {solution.status.name}; prices are known of optimal ones")
    flat = not problem.terms and all(constraint.flat for constraint in problem.constraints)
    found = {}
    for place, constraint in enumerate(problem.constraints):
        limited = Limited(problem, place, {"tolerance": solution.tolerance})
        if limited.number is None:
            continue
        now, price = limited.number[0], float(np.ravel(solution.prices[constraint.name])[0])
        if not flat:
            found[constraint.name] = PriceRange(price, now, now, price, price)
        elif (by_policies := _by_policies(limited, now, price)) is not None:
            found[constraint.name] = by_policies
        else:
            for tolerance in sorted({SHARP_TOLERANCE, solution.tolerance}):
                if (by_solves := _Polygon(limited, now, tolerance).range(price)) is not None:
                    found[constraint.name] = by_solves
                    break
    return found


def _by_policies(limited: Limited, now: float, price: float) -> PriceRange | None:
    """Look the piece up in the trade-off by policies; None where that does not serve."""
    way, each = limited.looser, limited.each
    with limited.threads():
        piece = None if limited.hull is None else limited.hull.piece(way * now / each)
    if piece is None:
        return None
    low, high = (way * each * end for end in piece[:2][::way])
    sign = -1.0 if limited.problem.sense == "maximize" else 1.0
    left, on, right = (0.0 - sign * way * piece[2])[::way].tolist()
    return PriceRange(price if low == high else on, low, high, left, right)


@dataclass(frozen=True)
class _Line:
    """A line below the least cost that touches it at a limit."""

    at: float
    value: float
    slope: float

    def __call__(self, x: float) -> float:
        return self.value + self.slope * (x - self.at) if self.slope else self.value

    def meets(self, other: _Line) -> float:
        """Return where the two are equal; NaN where they are parallel."""
        turn = self.slope - other.slope
        return self.at + (other(self.at) - self.value) / turn if turn else np.nan


class _Polygon:
    """The least cost as a function of one limit x: in the sense of a minimum, per step, and so that more is looser."""

    def __init__(self, limited: Limited, now: float, tolerance: float) -> None:
        self._limited, self._way = limited, limited.looser
        self._sign = -1.0 if limited.problem.sense == "maximize" else 1.0
        self._tolerance = tolerance
        self._sharp = Limited(limited.problem, limited.place, {"tolerance": tolerance})
        self._now, self._tightest = self._x(now), self._x(self._sharp.tightest)
        without = self._sharp.without
        needed = self._x(limited.needed(without.occupancy))
        self._span = max(needed, self._now) - min(self._tightest, self._now) or abs(self._now) or 1.0
        self._near = RESOLUTION * tolerance * self._span
        self._floor = _Line(np.inf, self._sign * without.value, 0.0)
        self._size = float(np.abs(without.asked.cost) @ without.occupancy)

    def range(self, price: float) -> PriceRange | None:
        """Find both ends of the piece that the limit lies on; None where solves are not exact enough to tell."""
        here, inner = self._line(self._now), self._line(self._tightest + self._near)
        if here is None or inner is None:
            return None
        self._slack = SLACK * self._tolerance * (self._size + abs(here.value) + abs(here.slope * here.at))
        binds = here.value > self._floor.value + self._slack
        if not binds:
            here = _Line(here.at, self._floor.value, 0.0)
        if here.at <= inner.at:
            tight: tuple[float, float] | None = (here.at, np.nan)
        elif inner.value <= here(inner.at) + self._slack:
            tight = (self._tightest, np.nan)
        else:
            tight = self._leaves(here, inner, -1)
        loose = self._leaves(here, self._floor, 1) if binds else (np.inf, 0.0)
        if tight is None or loose is None:
            return None
        if tight[0] == here.at and not binds:  # the price of a limit at its loosest is anything from that beside it up
            loose = (here.at, 0.0)
        way, each = self._way, self._limited.each
        (low, left), (high, right) = ((way * each * x, 0.0 + self._sign * way * g) for x, g in (tight, loose)[::way])
        return PriceRange(price if low == high else 0.0 + self._sign * way * here.slope, low, high, left, right)

    def _leaves(self, line: _Line, other: _Line, way: int) -> tuple[float, float] | None:
        """Return where the least cost leaves a line on its way to where it is on another, and the slope beyond."""
        for _ in range(MOST_STEPS):
            if other(line.at) >= line.value - self._slack:  # a corner at the limit itself
                return line.at, other.slope
            at = line.meets(other)
            if not way * line.at <= way * at < way * other.at:
                return None
            if abs(at - line.at) <= self._near:
                if abs(other.at - line.at) <= 2 * self._near:
                    return line.at, other.slope
                at = line.at + way * self._near
            new = self._line(at)
            if new is None:
                return None
            if new.value <= line(at) + self._slack:
                return at, self._beyond(other, at, way)
            other = new
        return None

    def _beyond(self, line: _Line, at: float, way: int) -> float:
        """Return the slope beyond a corner; a solve at the corner itself has any slope between those at its sides."""
        if abs(line.at - at) > self._near:
            return line.slope
        for step in (way * PROBE * self._span, way * self._near):
            beside = self._line(at + step) if at + step > self._tightest else None
            if beside is not None and beside(at) >= line(at) - self._slack:
                return beside.slope
        return line.slope

    def _line(self, x: float) -> _Line | None:
        """Solve at a limit; None where no price is known."""
        limit = self._way * x * self._limited.each
        solution = self._sharp.solve(limit)
        if solution.status is not Status.OPTIMAL:
            return None
        slope = self._sign * self._way * float(np.ravel(solution.prices[self._limited.limit.name])[0])
        return _Line(x, self._sign * solution.value, slope)

    def _x(self, limit: float) -> float:
        return self._way * limit / self._limited.each
