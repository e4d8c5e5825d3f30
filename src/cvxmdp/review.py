"""What a policy of one's own does to a problem: its costs, which limits it exceeds, how far it is from the best."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxmdp.mdp import Array
from cvxmdp.names import printable
from cvxmdp.problem import Problem
from cvxmdp.solution import Solution
from cvxmdp.status import Status

WIDTH = 80
"""Columns of a terminal."""


@dataclass(frozen=True, eq=False)
class Review:
    """A policy judged by a problem.

    Attributes
    ----------
    obeys : bool
        Whether every limit is met, to the solution's tolerance of its size.
    value : float
        What it costs, or is worth where that is maximized.
    bound : float
        What is proven of the best policy that obeys; infinite where none does.
    behind : float
        By how much the best policy that obeys may be better, at most; NaN where none does.  It may be negative where a
        limit is exceeded, and to the solution's tolerance where none is.
    costs : dict of str to float
        Every named cost of the model.
    levels, violations : dict
        By constraint, as in :class:`cvxmdp.Solution`.
    said : dict of str to str
        The limits in words.
    totals : dict of str to float
        An episode's total for each unit per step, of the limits that were stated in totals.
    """

    obeys: bool
    value: float
    bound: float
    behind: float
    costs: Mapping[str, float]
    levels: Mapping[str, float | Array]
    violations: Mapping[str, float]
    said: Mapping[str, str]
    totals: Mapping[str, float]

    def __str__(self) -> str:
        if math.isinf(self.bound):
            best = "no policy obeys every limit"
        else:
            best = f"no policy that obeys is better than {self.bound:.8g}"
            best += f", so it is at most {self.behind:.3g} behind" if self.obeys else ""
        lines = [f"{'It obeys every limit' if self.obeys else 'It exceeds a limit'}; value {self.value:.8g}; {best}."]
        total = next(iter(self.totals.values()), None)
        for name, cost in self.costs.items():
            both = "" if total is None else f" per step, {cost * total:.8g} in total"
            lines.append(f"  {printable(name)}: {cost:.8g}{both}")
        for name, excess in self.violations.items():
            level = self.levels[name]
            each = self.totals.get(name, 1.0)
            does = f"{level * each:.8g} of " if isinstance(level, float) else ""
            beyond = f", exceeded by {excess * each:.3g}" * (excess > 0)
            lines.append(f"  limit {printable(name)}: {does}{self.said[name]}{beyond}")
        return "\n".join(wrapped for line in lines for wrapped in textwrap.wrap(line, WIDTH, subsequent_indent="    "))

    __repr__ = __str__


def review(problem: Problem, policy: Any, solution: Solution | None) -> Review:
    """See :meth:`cvxmdp.Problem.check`."""
    found = problem.mdp.evaluate(policy)
    if solution is None:
        solution = problem.solve(explain=False)
    else:
        solution.certificate.check(problem, tolerance=solution.tolerance)
    d, constraints = found.occupancy, problem.constraints
    value = float(problem.cost @ d) + sum(term.value(d) for term in problem.terms)
    sign = -1.0 if problem.sense == "maximize" else 1.0
    value *= sign
    return Review(
        obeys=all(constraint.relative(d) <= solution.tolerance for constraint in constraints),
        value=value,
        bound=solution.bound,
        behind=float(np.nan) if solution.status is Status.INFEASIBLE else sign * (value - solution.bound),
        costs=found.costs,
        levels={constraint.name: constraint.level(d) for constraint in constraints},
        violations={constraint.name: constraint.violation(d) for constraint in constraints},
        said={constraint.name: constraint.said() for constraint in constraints},
        totals={constraint.name: constraint.total for constraint in constraints if constraint.total is not None},
    )
