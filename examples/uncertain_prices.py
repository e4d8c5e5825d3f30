"""Uncertain prices: a budget that holds whatever transport and storage will cost.

    python examples/uncertain_prices.py --out uncertain_prices.png

A shop wants to serve as much of the demand as it can, and may spend 12 a day on average. Two prices are not known yet:
transport, which is most of an order, and storage. ``cm.Ellipsoid(factors=...)`` has one column for each: what a dearer
price adds to the cost of each pair. ``cm.RobustBudget`` keeps to the budget for all prices of the ellipsoid at once.
"""

from __future__ import annotations

import numpy as np
from common import label, panels, percent, run
from matplotlib.figure import Figure

import cvxmdp as cm

DEMAND, BUDGET = 8.0, 12.0
"""Units a day, and what may be spent a day."""
TRANSPORT, STORAGE = 0.25, 0.4
"""By which share each price may change alone; together, within an ellipse."""
FIXED = 16.0
"""Cost of placing an order, which is the transport."""


def solve() -> tuple[np.ndarray, cm.Solution, cm.Solution]:
    """Return the factors, and the best plans for the prices of today and for all prices."""
    mdp = cm.worlds.inventory(60, demand=DEMAND, lot=5, fixed_cost=FIXED, discount=0.999)
    factors = np.column_stack([TRANSPORT * FIXED * (mdp.action > 0), STORAGE * mdp.costs["holding"]])
    today = cm.Budget("cost", at_most=BUDGET)
    always = cm.RobustBudget("cost", cm.Ellipsoid(factors=factors), at_most=BUDGET)
    return factors, *(cm.Problem(mdp, "shortage", [limit]).solve() for limit in (today, always))


def served(plan: cm.Solution) -> str:
    """Say which share of the demand is served."""
    return f"{percent(1 - plan.costs['shortage'] / DEMAND, 1)} of the demand"


def insight(factors: np.ndarray, plain: cm.Solution, robust: cm.Solution) -> str:
    """Say what the prices could do, and what it costs that they cannot."""
    worst = plain.costs["cost"] + float(np.linalg.norm(factors.T @ plain.occupancy))
    return (
        f"A plan for the prices of today serves {served(plain)} and may overspend by up to "
        f"{percent(worst / BUDGET - 1)}; a plan that keeps to the budget whatever the prices serves {served(robust)}."
    )


def draw(factors: np.ndarray, plain: cm.Solution, robust: cm.Solution) -> Figure:
    """Draw what each plan spends for every change of the two prices."""
    figure, axes = panels(5.0, 5.0, height=4.8)
    transport, storage = np.meshgrid(*2 * [np.linspace(-1.15, 1.15, 47)])
    x, y, around = 100 * TRANSPORT * transport, 100 * STORAGE * storage, np.linspace(0, 2 * np.pi, 200)
    for panel, plan, title in zip(axes, (plain, robust), ("prices of today", "all prices"), strict=True):
        slope = factors.T @ plan.occupancy
        spent = plan.costs["cost"] + slope[0] * transport + slope[1] * storage
        image = panel.contourf(x, y, 100 * (spent / BUDGET - 1), np.arange(-20, 22, 2), cmap="RdBu_r", extend="both")
        panel.contour(x, y, spent, levels=[BUDGET], colors="black", linewidths=1.5)
        panel.plot(100 * TRANSPORT * np.cos(around), 100 * STORAGE * np.sin(around), "k--")
        panel.plot(0, 0, "ko", markersize=5)
        panel.annotate("today", (0, 0), (6, 6), textcoords="offset points")
        label(panel, f"A plan for {title}:\n{served(plan)} served", "transport becomes dearer by, %", "")
    axes[0].set_ylabel("storage becomes dearer by, %")
    figure.colorbar(image, ax=axes, label="spent beyond the budget, %", pad=0.02)
    figure.supxlabel("dashed: prices thought possible; solid: prices at which the budget is just spent", fontsize=10)
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
