"""Perishable stock: how much waste a service level needs.

    python examples/perishable.py --out perishable.png

A bakery sells a product that keeps for three days; the oldest units are sold first, and what expires is thrown away.
At most five percent of the demand may go unserved. A second limit caps the waste. ``problem.range("waste")`` says from
where to where that cap matters: below, no plan can serve enough; above, it costs nothing.
"""

from __future__ import annotations

import numpy as np
from common import BLUE, FORBIDDEN, label, mean_action, numbers, panels, percent, run
from matplotlib.figure import Figure

import cvxmdp as cm

DEMAND = 3.0
"""Units a day."""
UNSERVED = 0.05
"""Share of the demand that may go unserved."""
CAPS = 8
"""Caps on waste between the least possible and what the cheapest plan wastes."""


def solve() -> tuple[cm.MDP, cm.Range, cm.Sweep]:
    """Return the model, where a cap on waste matters, and the cheapest plans from the tightest cap to the loosest."""
    mdp = cm.worlds.perishable(3, 10, demand=DEMAND, discount=0.999)
    problem = cm.Problem(mdp, "cost", [cm.Budget("shortage", at_most=UNSERVED * DEMAND)])
    binds = problem.range("waste")
    # The least possible waste leaves no choice; a thousandth above it there is one.
    return mdp, binds, problem.sweep("waste", np.linspace(1.001 * binds.tightest, binds.loosest, CAPS))


def insight(mdp: cm.MDP, binds: cm.Range, sweep: cm.Sweep) -> str:
    """Say what less waste costs."""
    low, high = (percent(end / DEMAND, 1) for end in (binds.tightest, binds.loosest))
    wasted, cost = sweep.costs["waste"] / sweep.costs["waste"][-1], sweep.values / sweep.values[-1]
    return (
        f"Serving {percent(1 - UNSERVED)} of the demand wastes {high} of it in the cheapest plan; "
        f"{percent(1 - wasted[1])} less waste costs {percent(cost[1] - 1, 1)} more, {percent(1 - wasted[0])} less "
        f"costs {percent(cost[0] - 1, 1)} more, and no plan that serves as much wastes below {low}."
    )


def draw(mdp: cm.MDP, binds: cm.Range, sweep: cm.Sweep) -> Figure:
    """Draw the cost of each cap on waste, and the orders of the two ends."""
    figure, (curve, *maps) = panels(4.4, 3.6, 3.6)
    curve.plot(100 * sweep.limits / DEMAND, sweep.values, "o-", color=BLUE)
    edge = 100 * binds.tightest / DEMAND
    curve.axvspan(0, edge, color=FORBIDDEN)
    curve.text(edge / 2, 3.83, "no plan serves 95 %\nwith so little waste", ha="center", va="center", rotation=90)
    curve.set(xlim=(0, 4.5), ylim=(3.68, 3.98))
    label(curve, "What less waste costs", "waste, % of the demand", "cost a day (the axis begins at 3.68)")

    stocks = numbers(mdp.states).astype(int)
    for axes, plan, title in zip(maps, sweep.solutions[:: 1 - CAPS], ("cheapest plan", "least waste"), strict=True):
        ordered, seen = mean_action(mdp, plan.policy), plan.visits > 1e-4
        cells = np.full(stocks.max(axis=0) + 1, np.nan)
        cells[tuple(stocks[seen].T)] = ordered[seen]
        image = axes.imshow(cells, origin="lower", cmap="Blues", vmin=0, vmax=8)
        for (old, fresh), amount in zip(stocks[seen], ordered[seen], strict=True):
            colour = "white" if amount > 5 else "black"
            axes.text(fresh, old, f"{amount:.2g}", ha="center", va="center", fontsize=9, color=colour)
        axes.set(xlim=(-0.5, 6.5), ylim=(-0.5, 6.5), xticks=range(7), yticks=range(7))
        label(axes, f"Orders, {title}", "units that keep longer than today", "units that expire today")
    figure.colorbar(image, ax=maps, label="units ordered, on average", shrink=0.8, pad=0.02)
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
