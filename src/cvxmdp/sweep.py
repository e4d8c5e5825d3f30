"""One limit in many places: sweeps, trade-offs, and where a limit binds.

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
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cvxmdp import interrupts
from cvxmdp.blocks import Constraint
from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.combine import bind
from cvxmdp.constraints.entropy import EntropicLimit
from cvxmdp.constraints.linear import Budget
from cvxmdp.engines.presolve import policy_iteration
from cvxmdp.hull import Hull
from cvxmdp.mdp import Array
from cvxmdp.names import no_such, printable
from cvxmdp.objectives.distance import DistanceTerm
from cvxmdp.objectives.entropy import EntropicTerm
from cvxmdp.problem import Problem
from cvxmdp.ranks.one_place import in_one_place
from cvxmdp.solution import Solution
from cvxmdp.solve import accept
from cvxmdp.status import Status
from cvxmdp.threads import threads_of

log = logging.getLogger("cvxmdp")

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
            dict(zip(names, (float(limit), status.name, float(value), float(bound), float(price)), strict=True))
            | dict(solution.costs)
            for limit, status, value, bound, price, solution in zip(*columns, self.solutions, strict=False)
        ]

    def to_frame(self) -> Any:
        """Return the table as a pandas frame."""
        return importlib.import_module("pandas").DataFrame(self.table())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the value over the limit.  Return the matplotlib figure; save it with ``path``."""
        from cvxmdp.report.plots import plot_sweep

        return plot_sweep(self, path)

    @property
    def world(self) -> Any:
        """The ranks on which the policies live, or None where they are whole."""
        return self.solutions[0].world if self.solutions else None

    @in_one_place("the table, the plot and the solutions are the same on all ranks")
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
        Beyond it no policy obeys; with a limit that is looser by the tolerance, some policy does.  NaN where it was not
        found.
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
        name, first, second = printable(self.name), f"{self.tightest + 0.0:.6g}", f"{self.loosest + 0.0:.6g}"
        said = f"{name} binds between {first} and {second}: {tight} the first no policy obeys, {loose} the second the "
        said += "limit costs nothing"
        if np.isnan(self.tightest):
            said = f"{name} costs nothing {loose} {second}; {tight} which value no policy obeys was not found"
        elif self.tightest == self.loosest:
            said = f"{name} never binds: {tight} {first} no policy obeys, and from there on the limit costs nothing"
        return "\n".join(textwrap.wrap(said, WIDTH, subsequent_indent="  "))


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
            return (up * self.each, 1) if np.isfinite(up) else (low * self.each, -1)
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

    @property
    def each(self) -> float:
        """The limit in the user's unit for each unit per step."""
        return self.limit.total or 1.0

    def at(self, value: float) -> Problem:
        """Return the problem with the limit moved."""
        assert self.number is not None
        now, way = self.number
        moved = self.limit.relaxed(way * (value - now) / self.each) if value != now else self.limit
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

    def threads(self) -> AbstractContextManager[None]:
        """Return a block in which policy iteration and proofs take as many threads as they gain from."""
        return threads_of(self.problem.mdp.num_states, self.problem.mdp.dynamics().compiled)

    @cached_property
    def hull(self) -> Hull | None:
        """The trade-off by policies, where this limit is one row and the only one."""
        problem, side = self.problem, self.limit.one_sided()
        if side is None or problem.terms or self.others:
            return None
        return Hull(problem.mdp.dynamics(), problem.cost, side[1] * side[0])

    @cached_property
    def tolerance(self) -> float:
        """What is asked for."""
        return float(self.options.get("tolerance", 1e-6))

    @cached_property
    def without(self) -> Solution:
        """The answer without this limit."""
        without = self._solved(self.problem.with_limits(self.others))
        if without.status is Status.INFEASIBLE:
            said = ", ".join(map(repr, without.violations))
            raise ValueError(f"no policy obeys the other limits, whatever {self.limit.name!r} is: {said}")
        return without

    @cached_property
    def tightest(self) -> float:
        """The value of the limit beyond which no policy obeys; NaN where it was not found."""
        least = self._least(self.others)
        if least is not None:
            found = self._solved(least)
            known = found.status is not Status.INFEASIBLE if not least.terms else found.status is Status.OPTIMAL
            return self.needed(found.occupancy) if known else float("nan")
        # The end of all values, or one that is impossible, and what it would have to become.
        words, arrays = self.limit.stated()
        beyond = 0.0
        if words["kind"] == "ellipsoid":
            beyond = float(np.min(arrays["cost"])) - 0.01 * (1.0 + float(np.max(np.abs(arrays["cost"]))))
        tried = self._solved(self.at(beyond), explain=True)
        if tried.infeasibility is None:
            obeys = all(limit.relative(tried.occupancy) <= self.tolerance for limit in self.at(beyond).constraints)
            return beyond if obeys else float("nan")
        amount = tried.infeasibility.relax[self.limit.name].amount
        return float("nan") if amount is None else beyond + self.looser * amount

    @cached_property
    def loosest(self) -> float:
        """A value of the limit from which on it costs nothing: what a policy needs that is best without it.

        Of these policies the one that needs least, where that is known.
        """
        without, way = self.without, self.looser
        found = [self.needed(without.occupancy)]
        if not self.problem.terms:
            sign = -1.0 if self.problem.sense == "maximize" else 1.0
            scale = float(np.abs(self.problem.cost) @ without.occupancy)
            as_good = Budget(self.problem.cost, at_most=sign * without.value + self.tolerance * scale, name="as good")
            limits = [*self.others, as_good.bind(self.problem.mdp)]
            least = self._least(limits)
            if least is not None:
                # Whichever policy obeys is an answer: what takes long to prove is left.
                d = self._solved(least, method="path" if least.terms else "auto").occupancy
                found += [self.needed(d)] * all(limit.relative(d) <= self.tolerance for limit in limits)
        if not np.isnan(self.tightest):
            return way * max(min(way * value for value in found), way * self.tightest)
        return way * min(way * value for value in found)

    def _least(self, others: Sequence[Constraint]) -> Problem | None:
        """Return the problem of needing as little of this limit as others let; None where it is not one of ours."""
        side, limit, none = self.limit.one_sided(), self.limit, np.zeros_like(self.problem.cost)
        least = self.problem.with_limits(others, none if side is None else side[0] * side[1])
        least.sense = "minimize"
        if isinstance(limit, EntropicLimit) and np.all(limit.function.reference > 0):
            least.terms = [EntropicTerm(limit.name, limit.function, 1.0)]
        elif isinstance(limit, NormBall):
            least.terms = [DistanceTerm(limit.name, limit.center, 1.0, limit.norm)]
        elif side is None:
            return None
        return least

    def needed(self, d: Array) -> float:
        """Return the value of the limit that an occupancy just obeys."""
        return float(np.ravel(self.limit.level(d))[0]) * self.each

    def _solved(self, problem: Problem, **options: Any) -> Solution:
        return _heed(problem.solve(**{"explain": False, **self.options, **options}))


def sweep(problem: Problem, limit: Any, values: Any, options: Mapping[str, Any]) -> Sweep:
    """See :meth:`cvxmdp.Problem.sweep`."""
    limits = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if limits.ndim != 1 or limits.size == 0 or not np.all(np.isfinite(limits)):
        raise ValueError(f"values must be a list of finite numbers, at least one; they have shape {limits.shape}")
    swept = Limited.of(problem, limit, options)
    return Sweep(swept.limit.name, *_solved(swept, limits), problem.objective)


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
    left = []
    with swept.threads():
        for value in map(float, order):
            found = hull.at(swept.looser * value / swept.each, swept.tolerance)
            solution = None
            if found is not None:
                d, price, potential = found
                duals = [np.array([swept.looser * price])]
                solution = accept(swept.at(value), swept.tolerance, d, duals, potential, hull.unconstrained)
            if solution is None:
                left.append(value)
                continue
            swept.known[value] = solution
            told.one()
    for value in left:
        swept.solve(value)
        told.one()


def _between(swept: Limited, order: Array, first: int, last: int, told: _Told) -> None:
    """Solve at both ends, then prove what lies between by mixtures, or solve in the middle and go on."""
    for end in (first, last):
        swept.solve(float(order[end]))
        told.one()
    with swept.threads():
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
                with swept.threads():
                    found = accept(at, swept.tolerance, d, proof.duals, proof.potential, unconstrained)
                if found is not None:
                    swept.known[value] = found
                    told.one()
                    continue
            left.append(k)
        if left:
            middle = left[len(left) // 2]
            swept.solve(float(order[middle]), warm_start=a if a.status is Status.OPTIMAL else None)
            told.one()
            open_ += [(i, middle), (middle, j)]


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
    with swept.threads():
        breakpoints = None if swept.hull is None else swept.hull.vertices()
    return Pareto(second, *_solved(swept, limits), first, breakpoints)


def limit_range(problem: Problem, limit: str, options: Mapping[str, Any]) -> Range:
    """See :meth:`cvxmdp.Problem.range`."""
    swept = Limited.of(problem, limit, options)
    way, looser = swept.looser, "higher" if swept.looser > 0 else "lower"
    with swept.threads():
        if swept.hull is not None:
            tightest, loosest = (way * swept.each * end for end in swept.hull.ends())
            return Range(limit, tightest, loosest, looser)
    return Range(limit, swept.tightest, swept.loosest, looser)


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
