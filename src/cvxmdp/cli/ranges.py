"""From where to where prices hold, where that takes a moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cvxmdp.status import Status

if TYPE_CHECKING:
    from cvxmdp.prices import PriceRange
    from cvxmdp.problem import Problem
    from cvxmdp.solution import Solution


def known_ranges(problem: Problem, solution: Solution, options: Mapping[str, Any]) -> Mapping[str, PriceRange]:
    """Work out the ranges of prices, unless the model is large, time is limited or Ctrl-C is pressed."""
    from cvxmdp.cli.arguments import busy
    from cvxmdp.report.page import RANGED_PAIRS

    large = problem.mdp.num_pairs > RANGED_PAIRS
    if solution.status is not Status.OPTIMAL or not solution.prices or large or options.get("time_limit") is not None:
        return {}
    try:
        with busy("ranges of prices"):
            return solution.price_ranges(problem)
    except KeyboardInterrupt:
        return {}
