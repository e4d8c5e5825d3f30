"""One limit in many places: sweeps, trade-offs, where a limit binds, and from where to where its price holds.

The least cost is a convex function of a limit.  Between two limits at which it is known, a mixture of the two
occupancies obeys and costs what the chord says; the duals of either are a line below the function.  Where chord and
line meet to the tolerance, a point is proven without a solve.
"""

from __future__ import annotations

import importlib
import logging
import os
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cvxmdp import interrupts
from cvxmdp.blocks import Constraint
from cvxmdp.constraints.combine import bind
from cvxmdp.constraints.linear import Budget
from cvxmdp.engines.presolve import policy_iteration
from cvxmdp.hull import Hull
from cvxmdp.mdp import Array
from cvxmdp.names import no_such, printable
from cvxmdp.problem import Problem
from cvxmdp.solution import Solution
from cvxmdp.solve import accept
from cvxmdp.status import Status

log = logging.getLogger("cvxmdp")

MOST_STEPS = 50
"""Lines that are intersected before the end of a price's range is given up: a handful is usual."""
APART = 1e-6
"""Limits nearer than this share of their range are the same: it is what a solve tells apart."""
WIDTH = 80
"""Columns of a terminal."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """Answers for many values of one limit.

    Attributes
    ----------
    name : str
        Of the limit.
    limits : ndarray
        Its values, as they were given; where the sweep was stopped, those that are done.
    solutions : list of Solution
        One for each.
    objective : str
        What is minimized or maximized.
    """

    name: str
    limits: Array
    solutions: Sequence[Solution]
    objective: str

    @property
    def statuses(self) -> list[Status]:
        """How each solve ended."""
        return [solution.status for solution in self.solutions]

    @property
    def values(self) -> Array:
        """What each policy costs; NaN where no policy obeys."""
        return np.array([np.nan if s.status is Status.INFEASIBLE else s.value for s in self.solutions])

    @property
    def bounds(self) -> Array:
        """What is proven of each optimum."""
        return np.array([solution.bound for solution in self.solutions])

    @property
    def prices(self) -> Array:
        """What raising the limit by a unit changes; NaN where that is not known."""
        return np.array([float(np.ravel(solution.prices[self.name])[0]) for solution in self.solutions])

    @property
    def costs(self) -> dict[str, Array]:
        """Every named cost of each policy."""
        names = self.solutions[0].costs if self.solutions else ()
        return {name: np.array([solution.costs[name] for solution in self.solutions]) for name in names}

    def table(self) -> list[dict[str, Any]]:
        """List limit, status, value, bound, price and costs of each point."""
        columns = (self.limits, self.statuses, self.values, self.bounds, self.prices)
        names = ("limit", "status", "value", "bound", "price")
        return [
            dict(zip(names, (limit, status.name, value, bound, price), strict=True)) | dict(solution.costs)
            for limit, status, value, bound, price, solution in zip(*columns, self.solutions, strict=False)
        ]

    def to_frame(self) -> Any:
        """Return the table as a pandas frame."""
        return importlib.import_module("pandas").DataFrame(self.table())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the value over the limit.  Return the matplotlib figure; save it with ``path``."""
        from cvxmdp.report.plots import plot_sweep

        return plot_sweep(self, path)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page for a browser, with a slider over the limit."""
        from cvxmdp.report.page import write_sweep_report

        write_sweep_report(self, path)

    def __str__(self) -> str:
        if not self.solutions:
            return f"no limit on {printable(self.name)} is done"
        asked = self.solutions[0].asked
        least, total = "most" if asked.sense == "maximize" else "least", self._total()
        ends = f"from {self.limits.min():.6g} to {self.limits.max():.6g}"
        lines = textwrap.wrap(printable(f"{least} {self.objective} for limits on {self.name} {ends}"), WIDTH)
        each = "" if total is None else f" {'per step':>12}"
        lines.append(f"  {'limit' if total is None else 'in total':>12}{each} {least:>14} {'price':>12}  status")
        for limit, value, price, status in zip(self.limits, self.values, self.prices, self.statuses, strict=True):
            each = "" if total is None else f" {limit / total:>12.6g}"
            shown = [
                f"{number:{form}}" if np.isfinite(number) else "-" for number, form in ((value, ".8g"), (price, ".4g"))
            ]
            lines.append(f"  {limit:>12.6g}{each} {shown[0]:>14} {shown[1]:>12}  {status.name}")
        return "\n".join(lines)

    __repr__ = __str__

    def _total(self) -> float | None:
        """Return what a limit per step is multiplied by, where it was stated as a total of an episode."""
        asked = self.solutions[0].asked
        limit = dict(zip(asked.names, asked.limits, strict=False)).get(self.name)
        return None if limit is None else limit.total


@dataclass(frozen=True, eq=False, repr=False)
class Pareto(Sweep):
    """A trade-off: the least of one cost for each limit on another.

    Attributes
    ----------
    breakpoints : ndarray of shape (n, 2) or None
        The limits at which the price changes, and the least cost there: all of them, exact up to rounding, where the
        limit is the only one.  None where others are kept.
    """

    breakpoints: Array | None = field(default=None)

    def __str__(self) -> str:
        if self.breakpoints is None or not self.solutions:
            return super().__str__()
        count = len(self.breakpoints)
        said = f"the price changes at {count} limit{'s' * (count != 1)} and nowhere else: breakpoints lists them"
        return f"{super().__str__()}\n{said}"

    __repr__ = __str__


@dataclass(frozen=True)
class Range:
    """Where a limit matters.

    Attributes
    ----------
    name : str
        Of the limit.
    tightest : float
        Beyond it no policy obeys; with a limit that is looser by the tolerance, some policy does.
    loosest : float
        From it on the limit costs nothing.
    looser : {"higher", "lower"}
        Which way the limit is relaxed.
    """

    name: str
    tightest: float
    loosest: float
    looser: str

    def __str__(self) -> str:
        tight, loose = ("below", "above") if self.looser == "higher" else ("above", "below")
        return (
            f"{printable(self.name)} binds between {self.tightest + 0.0:.6g} and {self.loosest + 0.0:.6g}: {tight} the "
            f"first no policy obeys, {loose} the second the limit costs nothing"
        )


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
        The prices below ``low`` and above ``high``; NaN below the last limit that a policy obeys.
    """

    price: float
    low: float
    high: float
    left: float
    right: float

    def __str__(self) -> str:
        return (
            f"price {self.price:.6g} from {self.low:.6g} to {self.high:.6g}; {self.left:.6g} below, "
            f"{self.right:.6g} above"
        )


@dataclass(eq=False)
class Limited:
    """A problem with one limit that moves."""

    problem: Problem
    place: int
    options: Mapping[str, Any]
    known: dict[float, Solution] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, limit: Any, options: Mapping[str, Any]) -> Limited:
        """Find a limit by its name; a cost by that name becomes a budget, and a constraint is added."""
        names = [constraint.name for constraint in problem.constraints]
        if not isinstance(limit, str):
            bound = bind([limit], problem.mdp)[0]
            return cls.of(problem.with_limits([*problem.constraints, bound]), bound.name, options)
        if limit in names:
            found = cls(problem, names.index(limit), options)
            if found.number is None:
                raise ValueError(f"the limit {limit!r} has not one number that could be moved, from one side")
            return found
        if limit not in problem.mdp.costs:
            raise ValueError(no_such("limit or cost", limit, [*names, *problem.mdp.costs]))
        most = float(np.max(problem.mdp.costs[limit]))
        row = Budget(limit, at_most=most).bind(problem.mdp)
        return cls(problem.with_limits([*problem.constraints, row]), len(names), options)

    @property
    def limit(self) -> Constraint:
        """The limit as the problem has it."""
        return self.problem.constraints[self.place]

    @property
    def others(self) -> list[Constraint]:
        """All other limits."""
        return [c for i, c in enumerate(self.problem.constraints) if i != self.place]

    @cached_property
    def number(self) -> tuple[float, int] | None:
        """The limit's number in the user's unit, and 1 where a higher one is looser, -1 where a lower one is."""
        words, arrays = self.limit.stated()
        if words["kind"] == "linear" and self.limit.parts == 1:
            up, low = float(arrays["upper"][0]), float(arrays["lower"][0])
            if np.isfinite(up) == np.isfinite(low):
                return None
            each = self.limit.total or 1.0
            return (up * each, 1) if np.isfinite(up) else (low * each, -1)
        if words["kind"] == "entropic":
            return -words["sign"] * words["bound"], -words["sign"]
        for key in ("radius", "at_most"):
            if key in words:
                return float(words[key]), 1
        return None

    @property
    def looser(self) -> int:
        """Which way is looser."""
        assert self.number is not None
        return self.number[1]

    def at(self, value: float) -> Problem:
        """Return the problem with the limit moved."""
        assert self.number is not None
        now, way = self.number
        each = self.limit.total or 1.0
        moved = self.limit.relaxed(way * (value - now) / each) if value != now else self.limit
        moved.name, moved.total = self.limit.name, self.limit.total
        constraints = list(self.problem.constraints)
        constraints[self.place] = moved
        return self.problem.with_limits(constraints)

    def solve(self, value: float, warm_start: Solution | None = None) -> Solution:
        """Solve at a value of the limit, once."""
        if value not in self.known:
            options = {"explain": False} | dict(self.options)
            solution = self.at(value).solve(warm_start=warm_start, **options)
            if solution.status is not Status.INTERRUPTED:
                self.known[value] = solution
            _heed(solution)
        return self.known[value]

    @cached_property
    def hull(self) -> Hull | None:
        """The trade-off by policies, where this limit is one row and the only one."""
        problem, side = self.problem, self.limit.one_sided()
        if side is None or problem.terms or self.others or self.limit.total is not None:
            return None
        return Hull(problem.mdp.dynamics(), problem.cost, side[1] * side[0])

    @cached_property
    def tolerance(self) -> float:
        """What is asked for."""
        return float(self.options.get("tolerance", 1e-6))

    def best(self, value: float) -> tuple[float, float]:
        """Return the least cost at a value of the limit, and its slope there, in the sense of a minimum."""
        solution = self.solve(value)
        sign = -1.0 if self.problem.sense == "maximize" else 1.0
        return sign * solution.value, sign * float(np.ravel(solution.prices[self.limit.name])[0])


@interrupts.flagged()
def sweep(problem: Problem, limit: Any, values: Any, options: Mapping[str, Any]) -> Sweep:
    """See :meth:`cvxmdp.Problem.sweep`."""
    limits = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if limits.ndim != 1 or limits.size == 0 or not np.all(np.isfinite(limits)):
        raise ValueError(f"values must be a list of finite numbers, at least one; they have shape {limits.shape}")
    swept = Limited.of(problem, limit, options)
    return Sweep(swept.limit.name, *_solved(swept, limits), problem.objective)


def _solve(problem: Problem, **options: Any) -> Solution:
    return _heed(problem.solve(**options))


def _heed(solution: Solution) -> Solution:
    """Return a solution of one of many problems: Ctrl-C ends all of them, and what is not proven is not built upon."""
    if solution.status is Status.INTERRUPTED or interrupts.requested():
        raise KeyboardInterrupt
    return solution


def _solved(swept: Limited, limits: Array) -> tuple[Array, list[Solution]]:
    """Solve at all limits; where it is stopped, return what is done of them in their order."""
    told = _Told(limits.size)
    order = np.unique(limits)[:: -swept.looser]  # the loosest first
    try:
        if swept.hull is not None:
            _by_hull(swept, order, told)
        else:
            _between(swept, order, 0, order.size - 1, told)
    except KeyboardInterrupt:
        log.warning("the sweep was interrupted after %d of %d limits", len(swept.known), order.size)
    done = np.array([float(value) in swept.known for value in limits], dtype=bool)
    return limits[done], [swept.known[float(value)] for value in limits[done]]


def _by_hull(swept: Limited, order: Array, told: _Told) -> None:
    """Prove each point by a mixture of two policies that are best for the same price."""
    hull = swept.hull
    assert hull is not None
    for value in map(float, order):
        found = hull.at(swept.looser * value, swept.tolerance)
        if found is not None:
            d, price, potential = found
            duals = [np.array([swept.looser * price])]
            solution = accept(swept.at(value), swept.tolerance, d, duals, potential, hull.unconstrained)
            if solution is not None:
                swept.known[value] = solution
        swept.solve(value)
        told.one()


def _between(swept: Limited, order: Array, first: int, last: int, told: _Told) -> None:
    """Solve at both ends, then prove what lies between by mixtures, or solve in the middle and go on."""
    for end in (first, last):
        swept.solve(float(order[end]))
        told.one()
    unconstrained = policy_iteration(swept.problem.mdp.dynamics(), swept.problem.cost)
    open_: list[tuple[int, int]] = [(first, last)]
    while open_:
        i, j = open_.pop()
        if j - i < 2:
            continue
        a, b = (swept.known[float(order[k])] for k in (i, j))
        left = []
        for k in range(i + 1, j):
            value = float(order[k])
            if a.status is b.status is Status.OPTIMAL:
                share = (value - order[i]) / (order[j] - order[i])
                d = (1 - share) * a.occupancy + share * b.occupancy
                nearer = a if share < 0.5 else b
                proof = nearer.evidence.proofs["bound"]
                at = swept.at(value)
                if (found := accept(at, swept.tolerance, d, proof.duals, proof.potential, unconstrained)) is not None:
                    swept.known[value] = found
                    told.one()
                    continue
            left.append(k)
        if left:
            middle = left[len(left) // 2]
            swept.solve(float(order[middle]), warm_start=a if a.status is Status.OPTIMAL else None)
            told.one()
            open_ += [(i, middle), (middle, j)]


@interrupts.flagged()
def pareto(problem: Problem, first: str, second: str, points: int, options: Mapping[str, Any]) -> Pareto:
    """See :meth:`cvxmdp.Problem.pareto`."""
    if isinstance(points, bool) or not isinstance(points, int) or points < 2:
        raise ValueError(f"points is {points!r}; give a whole number, at least two")
    for name in (first, second):
        if name not in problem.mdp.costs:
            raise ValueError(no_such("cost", name, problem.mdp.costs))
    kept = [c for c in problem.constraints if c.name != second]
    traded = Problem(problem.mdp, first).with_limits(kept)
    ends = limit_range(traded, second, options)
    swept = Limited.of(traded, second, options)
    limits = np.linspace(ends.tightest, max(ends.loosest, ends.tightest), points)
    breakpoints = None if swept.hull is None else swept.hull.vertices()
    return Pareto(second, *_solved(swept, limits), first, breakpoints)


@interrupts.flagged()
def limit_range(problem: Problem, limit: str, options: Mapping[str, Any]) -> Range:
    """See :meth:`cvxmdp.Problem.range`."""
    swept = Limited.of(problem, limit, options)
    options = {"explain": False} | dict(options)
    without = _solve(swept.problem.with_limits(swept.others), **options)
    if without.status is Status.INFEASIBLE:
        raise ValueError(f"no policy obeys the other limits, whatever {limit!r} is: {', '.join(without.violations)}")
    way, each = swept.looser, swept.limit.total or 1.0
    side = swept.limit.one_sided()
    if side is None:
        return Range(limit, *_curved_range(swept, without), "higher" if way > 0 else "lower")
    row = side[0] * side[1]
    least = swept.problem.with_limits(swept.others, row)
    least.sense = "minimize"
    tight = _solve(least, **options).value
    # Of the policies that are best without the limit, the one that uses least of it.
    level = float(row @ without.occupancy)
    if not swept.problem.terms:
        sign = -1.0 if swept.problem.sense == "maximize" else 1.0
        scale = float(np.abs(problem.cost) @ without.occupancy)
        as_good = Budget(problem.cost, at_most=sign * without.value + swept.tolerance * scale, name=f"{limit}: as good")
        thrifty = swept.problem.with_limits([*swept.others, as_good.bind(problem.mdp)], row)
        thrifty.sense = "minimize"
        found = _solve(thrifty, warm_start=without, **options)
        level = min(level, found.value) if found.status is Status.OPTIMAL else level
    return Range(limit, way * tight * each, way * max(level, tight) * each, "higher" if way > 0 else "lower")


def _curved_range(swept: Limited, without: Solution) -> tuple[float, float]:
    """Return the tightest limit, as what an impossible one would have to become, and the one that is used freely."""
    loosest = float(np.ravel(swept.limit.level(without.occupancy))[0])
    words, arrays = swept.limit.stated()
    if words["kind"] == "entropic" and words["sign"] > 0:
        impossible = 1.001 * float(np.log(max(arrays["reference"].size, 2))) + 1.0
    elif words["kind"] == "ellipsoid":
        impossible = float(np.min(arrays["cost"])) - 0.01 * (1.0 + float(np.max(np.abs(arrays["cost"]))))
    else:
        impossible = 0.0
    options = {**swept.options, "explain": True}
    tried = _solve(swept.at(impossible), **options)
    if tried.status is not Status.INFEASIBLE or tried.infeasibility is None:
        return impossible, loosest
    amount = tried.infeasibility.relax[swept.limit.name].amount
    if amount is None or np.isnan(amount):
        return float("nan"), loosest
    return impossible + swept.looser * amount, loosest


@interrupts.flagged()
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
        limited.known[now] = solution
        if flat:
            found[constraint.name] = _price_range(limited, now, price)
        else:
            found[constraint.name] = PriceRange(price, now, now, price, price)
    return found


def _price_range(limited: Limited, now: float, price: float) -> PriceRange:
    """Find both ends of the piece of a convex polygon that the limit lies on."""
    ends = limit_range(limited.problem, limited.limit.name, limited.options)
    way = limited.looser
    tight, loose = ends.tightest, ends.loosest
    span = abs(loose - tight) or 1.0
    sign = -1.0 if limited.problem.sense == "maximize" else 1.0
    here, scale = sign * limited.known[now].value, limited.tolerance * _scale(limited.known[now])
    if way * (now - loose) >= -APART * span:  # it does not bind
        last = _slope_beside(limited, loose, -way, span)
        return PriceRange(0.0, *((loose, np.inf) if way > 0 else (-np.inf, loose)), *((sign * last, 0.0)[::way]))
    if limited.hull is not None and (piece := limited.hull.piece(way * now)) is not None:
        low, high = (way * piece[0], way * piece[1])[::way]
        left, on, right = (0.0 - sign * way * piece[2])[::way].tolist()
        return PriceRange(price if low == high else on, low, high, left, right)
    inner, slope_in = _end(limited, now, here, sign * price, tight, span, scale)
    outer, slope_out = _end(limited, now, here, sign * price, loose, span, scale)
    low, high, left, right = inner, outer, slope_in, slope_out
    if way < 0:
        low, high, left, right = outer, inner, slope_out, slope_in
    if abs(low - now) <= APART * span and abs(high - now) <= APART * span:
        low = high = now
    return PriceRange(price, low, high, sign * left, sign * right)


def _end(
    limited: Limited, now: float, here: float, slope: float, far: float, span: float, slack: float
) -> tuple[float, float]:
    """Return how far towards ``far`` a line holds, and the slope beyond; lines of points beyond are intersected."""
    each = limited.limit.total or 1.0
    at, beyond = far, float("nan")
    inward = far == limit_tight(limited, now, far)
    for _ in range(MOST_STEPS):
        if abs(at - now) <= APART * span:
            return now, beyond
        value, steep = limited.best(at)
        if value - (here + slope * (at - now) / each) <= 4 * slack + 1e-12 * abs(here):
            break
        if at == far:
            # At the ends of the range a line may be vertical or flat: its slope is that towards the inside.
            steep = 0.0 if not inward else _slope_beside(limited, far, limited.looser, span)
        if abs(steep - slope) <= 1e-9 * (abs(steep) + abs(slope)):
            break
        beyond = steep
        crossing = now + (value - here - steep * (at - now) / each) * each / (slope - steep)
        if not min(now, at) < crossing < max(now, at):
            break
        at = crossing
    if at == far:
        return far, float("nan") if inward else 0.0
    return at, beyond


def limit_tight(limited: Limited, now: float, far: float) -> float:
    """Return ``far`` if it is tighter than ``now``."""
    return far if limited.looser * (far - now) < 0 else float("nan")


def _slope_beside(limited: Limited, at: float, way: int, span: float) -> float:
    """Return the slope of the least cost a little to one side of a limit."""
    return limited.best(at + way * 1e-3 * span)[1]


def _scale(solution: Solution) -> float:
    return float(np.abs(solution.asked.cost) @ solution.occupancy)


class _Told:
    """Tell how many limits are done, once a second."""

    def __init__(self, count: int) -> None:
        self._count, self._done, self._last = count, 0, time.perf_counter()

    def one(self) -> None:
        """Count one more."""
        if interrupts.requested():
            raise KeyboardInterrupt
        self._done += 1
        if time.perf_counter() - self._last > 1.0:
            self._last = time.perf_counter()
            log.info("sweep: %d of %d limits", min(self._done, self._count), self._count)
