"""A solution in words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.status import Status

if TYPE_CHECKING:
    from cvxmdp.solution import Infeasibility, Solution

WIDTH = 80
MOST_NAMES = 6
SEEN = 0.01
"""Share of the tolerance from which on an excess is mentioned."""


def describe(solution: Solution) -> str:
    """Say how the solve ended, what the policy costs, how sure that is, and what each limit costs."""
    found = solution.infeasibility
    lines = (_outcome if found is None else describe_conflict)(solution)
    for name, cost in solution.costs.items():
        lines.append(f"  cost {name}: {cost:.8g}")
    for name, violation in solution.violations.items():
        if found is not None:
            lines.append(f"  limit {name}: {_limit(found, name, violation)}")
            continue
        price = np.ravel(solution.prices[name])
        worst = float(price[np.argmax(np.abs(price))]) if price.size else 0.0
        excess = f"exceeded by {violation:.3g}" if violation > 0 and solution.status is not Status.OPTIMAL else "obeyed"
        effect = "no effect on the optimum" if worst == 0 else f"raising it by 1 changes the optimum by {worst:.4g}"
        lines.append(f"  limit {name}: {excess}; {effect}")
    total = solution.stats.seconds["total"]
    lines.append(f"  {solution.stats.method}; {solution.stats.iterations} passes, {total:.2f} s")
    return "\n".join(wrapped for line in lines for wrapped in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    indent = "  " if not line.startswith(" ") else "    "
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, drop_whitespace=True, break_long_words=False)


def _outcome(solution: Solution) -> list[str]:
    """Say status, value, bound and gap."""
    known = solution.status is Status.OPTIMAL or all(excess == 0 for excess in solution.violations.values())
    gap = f"relative gap {max(solution.gap, 0.0):.2g}" if known else "no gap, since the policy exceeds a limit"
    lines = [
        f"{solution.status.name}: {solution.status.value}",
        f"  value {solution.value:.8g}, proven bound {solution.bound:.8g}, {gap}",
    ]
    excess = solution.stats.history[-1].violation if solution.stats.history else 0.0
    if solution.status is Status.OPTIMAL and excess > SEEN * solution.certificate.tolerance:
        lines.append(f"  a limit is exceeded by {excess:.1e} of its size, which the tolerance allows")
    return lines


def describe_conflict(solution: Solution) -> list[str]:
    """Say that no policy obeys, how sure that is, which limits conflict, what would end it, and what is done."""
    found = solution.infeasibility
    assert found is not None
    sentences = ["INFEASIBLE: No policy obeys every limit. This is proven"]
    sentences[0] += (
        f": every policy exceeds some limit by at least {_percent(found.least)} of its size."
        if math.isfinite(found.least)
        else ", however far the limits are relaxed."
    )
    if len(found.conflict) == 1:
        sentences.append(f"{_listed(found.conflict)} cannot be obeyed by itself.")
    elif found.conflict:
        less = "; without any one of them they could be" if found.irreducible else ""
        sentences.append(f"These cannot all be obeyed: {_listed(found.conflict)}{less}.")
    cures = [f"{name} {limit.alone}" for name, limit in found.relax.items() if limit.alone]
    if cures:
        sentences.append(f"One of these changes alone would do: {_listed(cures, 'or')}.")
    elif all(limit.amount is None for limit in found.relax.values()):
        sentences.append("No single limit can be relaxed to end this, if the others are kept.")
    sentences.append(_done(solution, found))
    return textwrap.wrap(" ".join(sentences), WIDTH, subsequent_indent="  ")


def _done(solution: Solution, found: Infeasibility) -> str:
    """Say what the returned policy does instead."""
    exceeded = [
        f"{name} by {limit.exceeded:.4g}" if math.isfinite(limit.exceeded) else f"{name} beyond any bound"
        for name, limit in found.relax.items()
        if limit.exceeded > 0
    ]
    if found.compromise == "nearest":
        what = "The policy returned comes nearest to the limits"
    elif found.compromise == "relative":
        what = "The policy returned exceeds limits by the least share of their size"
    elif found.compromise == "priority":
        what = "The policy returned meets limits in the order of their priorities"
    else:
        what = "The search for a compromise was not finished; the policy returned is the best so far"
    what += f" and exceeds {_listed(exceeded)}; its value is {solution.value:.6g}"
    if math.isfinite(found.cheapest):
        what += f", and none as near costs less than {found.cheapest:.6g}"
    return what + "."


def _limit(found: Infeasibility, name: str, violation: float) -> str:
    """Say of one limit whether it is obeyed, and what it has to do with the conflict."""
    words = f"exceeded by {violation:.4g}" if violation > 0 else "obeyed"
    limit = found.relax[name]
    if limit.innocent and found.conflict:
        return f"{words}; not part of this conflict"
    if limit.amount is None:
        return f"{words}; relaxing it alone is not enough"
    return words if math.isnan(limit.amount) else f"{words}; enough alone: {limit.alone}"


def _listed(names: Sequence[str], word: str = "and") -> str:
    """Join names in a sentence; of many only the first."""
    shown = list(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        shown.append(f"{len(names) - MOST_NAMES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}" if shown else "none"


def _percent(share: float) -> str:
    """Write a share: as percent while that reads well."""
    return f"{100 * share:.3g} %" if share >= 1e-5 else f"{share:.2g}"
