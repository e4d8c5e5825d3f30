"""Inventory with a service level: what the last percent of the demand costs.

    python examples/inventory.py --out inventory.png

A shop orders a product in lots of five. Placing an order costs 16, a unit 1, and keeping a unit overnight 0.1. The
demand is random, eight units a day on average, and what is not in stock is not sold. The service level is the share
of the demand that is served. It is a limit on the cost "shortage", the units that were asked for in vain. The price of
that limit says what one more unit of unmet demand would save.
"""

from __future__ import annotations

import numpy as np
from common import BLUE, ORANGE, SKY, at, label, mean_action, panels, percent, run
from matplotlib.figure import Figure

import cvxmdp as cm

DEMAND = 8.0
"""Units a day."""
LEVELS = np.array([0.9, 0.95, 0.98, 0.99, 0.995, 0.999])
"""Shares of the demand to be served."""
SHOWN = {0.9: SKY, 0.99: BLUE, 0.999: ORANGE}
"""Levels of the sentence, whose orders are drawn."""


def solve() -> tuple[cm.MDP, cm.Sweep]:
    """Return the model, and the cheapest way to reach each service level."""
    mdp = cm.worlds.inventory(60, demand=DEMAND, lot=5, discount=0.999)
    return mdp, cm.Problem(mdp, "cost").sweep("shortage", (1 - LEVELS) * DEMAND)


def insight(mdp: cm.MDP, sweep: cm.Sweep) -> str:
    """Say what service costs."""
    low, high, highest = (at(sweep, (1 - level) * DEMAND) for level in SHOWN)
    return (
        f"Serving 99 % of the demand instead of 90 % costs {percent(high.value / low.value - 1)} more; one more unit "
        f"served costs {-low.prices['shortage']:.1f} at 90 %, {-high.prices['shortage']:.1f} at 99 % and "
        f"{-highest.prices['shortage']:.0f} at 99.9 %."
    )


def draw(mdp: cm.MDP, sweep: cm.Sweep) -> Figure:
    """Draw what each level costs, and what is ordered at some of them."""
    figure, (curve, orders) = panels(5.2, 5.2)
    curve.plot(1 - LEVELS, sweep.values, "o-", color=BLUE)
    for missed, cost, price in zip(1 - LEVELS, sweep.values, sweep.prices, strict=True):
        curve.annotate(f"{-price:.1f}", (missed, cost), (-8, 2), textcoords="offset points", ha="right")
    curve.set(xscale="log", xlim=(0.2, 0.0007), ylim=(11, 13.7))
    curve.set_xticks(1 - LEVELS, [f"{100 * level:g}" for level in LEVELS])
    curve.set_xticks([], minor=True)
    label(
        curve,
        "What service costs\n(beside each dot: the cost of one more unit served)",
        "demand that has to be served, %",
        "cost a day (the axis begins at 11)",
    )

    stock = np.arange(mdp.num_states)
    for level, colour in SHOWN.items():
        solution = at(sweep, (1 - level) * DEMAND)
        seen = solution.visits > 1e-6
        ordered = mean_action(mdp, solution.policy)[seen]
        orders.step(stock[seen], ordered, where="mid", color=colour, linewidth=2, label=f"{100 * level:g} % served")
    orders.set(xlim=(-0.5, 20), ylim=(0, 65), xticks=range(0, 21, 5))
    orders.legend(frameon=False)
    label(orders, "When and how much to order", "units in stock in the morning", "units ordered, on average")
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
