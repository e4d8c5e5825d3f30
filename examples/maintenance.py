"""Maintenance under a budget: when more money for repairs stops paying.

    python examples/maintenance.py --out maintenance.png

Three machines wear from new to failed in three steps. A repair costs 1, and 4 more if the machine had failed. A machine
that has failed or is in repair is down. A budget limits what is spent on repairs in a period, and the machines are to
be down as rarely as possible.
"""

from __future__ import annotations

import numpy as np
from common import BLUE, ORANGE, SKY, at, label, numbers, panels, percent, run
from matplotlib.figure import Figure

import cvxmdp as cm

MACHINES, CONDITIONS = 3, ("new", "worn", "nearly failed", "failed")
BUDGETS = (0.05, 0.075, 0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.175, 0.2, 0.25, 0.3, 0.35, 0.4)
COMPARED = {0.1: ORANGE, 0.15: SKY, 0.3: BLUE}
"""Budgets of the sentence."""


def solve() -> tuple[cm.MDP, cm.Sweep]:
    """Return the model, and the least downtime for each budget."""
    mdp = cm.worlds.maintenance(MACHINES, len(CONDITIONS), discount=0.999)
    return mdp, cm.Problem(mdp, "downtime").sweep("repair", BUDGETS)


def repairs(mdp: cm.MDP, solution: cm.Solution) -> np.ndarray:
    """Return how many repairs there are in a period, by the condition of the machine."""
    pair = np.flatnonzero(mdp.action > 0)  # action 0 waits, action k repairs machine k
    condition = numbers(mdp.states).astype(int)[mdp.state[pair], mdp.action[pair] - 1]
    return np.bincount(condition, solution.occupancy[pair], minlength=len(CONDITIONS))


def insight(mdp: cm.MDP, sweep: cm.Sweep) -> str:
    """Say what a budget buys."""
    (low, middle, high), plans = COMPARED, [at(sweep, budget) for budget in COMPARED]
    down = [plan.value / MACHINES for plan in plans]
    late = repairs(mdp, plans[2])[-1] / repairs(mdp, plans[2]).sum()
    return (
        f"Raising the budget from {low:g} to {middle:g} a period cuts downtime from {percent(down[0], 1)} to "
        f"{percent(down[1], 1)}; doubling it to {high:g} then cuts it only to {percent(down[2], 1)}, by letting "
        f"{percent(late)} of the repairs wait for a failure."
    )


def draw(mdp: cm.MDP, sweep: cm.Sweep) -> Figure:
    """Draw the downtime for each budget, and in which condition machines are repaired."""
    figure, (curve, bars) = panels(5.1, 5.1)
    curve.plot(BUDGETS, 100 * sweep.values / MACHINES, "o-", color=BLUE)
    for k, (budget, colour) in enumerate(COMPARED.items()):
        solution = at(sweep, budget)
        spot = (budget, 100 * solution.value / MACHINES)
        curve.plot(*spot, "o", color=colour, markersize=9)
        curve.annotate(f"{spot[1]:.1f} %", spot, (7, 7), textcoords="offset points")
        count = 100 * repairs(mdp, solution)[1:]
        bars.bar(np.arange(count.size) + 0.25 * (k - 1), count, 0.25, color=colour, label=f"budget {budget:g}")
    curve.set(xlim=(0, 0.42), ylim=(0, 70))
    label(curve, "What a budget buys", "budget a period (a repair costs 1)", "machines that are down, %")
    bars.set_xticks(range(len(CONDITIONS) - 1), CONDITIONS[1:])
    bars.legend(frameon=False, loc="upper left")
    label(bars, "When machines are repaired", "condition of the machine", "repairs in 100 periods")
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
