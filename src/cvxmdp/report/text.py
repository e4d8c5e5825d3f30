"""A solution in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.status import Status

if TYPE_CHECKING:
    from cvxmdp.solution import Solution


def describe(solution: Solution) -> str:
    """Say how the solve ended, what the policy costs, how sure that is, and what each limit costs."""
    lines = [f"{solution.status.name}: {solution.status.value}"]
    if solution.infeasibility is None:
        known = solution.status is Status.OPTIMAL or all(excess == 0 for excess in solution.violations.values())
        gap = f"relative gap {max(solution.gap, 0.0):.2g}" if known else "no gap, since the policy exceeds a limit"
        lines.append(f"  value {solution.value:.8g}, proven bound {solution.bound:.8g}, {gap}")
    else:
        low, high = solution.infeasibility.distance
        margin = solution.infeasibility.margin
        lines.append(f"  value {solution.value:.8g} of the policy returned; margin of the proof {margin:.3g}")
        if low < float("inf"):
            lines.append(f"  distance of its occupancy to the constraints {high:.6g}, of any other at least {low:.6g}")
    for name, cost in solution.costs.items():
        lines.append(f"  cost {name}: {cost:.8g}")
    for name, violation in solution.violations.items():
        price = np.ravel(solution.prices[name])
        worst = float(price[np.argmax(np.abs(price))]) if price.size else 0.0
        if solution.infeasibility is not None:
            lines.append(f"  limit {name}: " + (f"exceeded by {violation:.3g}" if violation > 0 else "obeyed"))
            continue
        excess = f"exceeded by {violation:.3g}" if violation > 0 and solution.status is not Status.OPTIMAL else "obeyed"
        effect = "no effect on the optimum" if worst == 0 else f"raising it by 1 changes the optimum by {worst:.4g}"
        lines.append(f"  limit {name}: {excess}; {effect}")
    total = solution.stats.seconds["total"]
    lines.append(f"  {solution.stats.method}; {solution.stats.iterations} passes, {total:.2f} s")
    return "\n".join(lines)
