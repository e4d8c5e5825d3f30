"""A queue under budgets of power and of delay: how many customers have to be lost.

    python examples/power_and_delay.py --out power_and_delay.png

A server may run at six speeds, and power grows with the cube of the speed. Ten customers can be in the queue; who finds
it full is lost. Two budgets limit the average power and the average length of the queue, to which the waiting time is
proportional. For every combination of the two, the fewest customers are lost that any rule can lose, or it is proven
that no rule obeys both.
"""

from __future__ import annotations

import numpy as np
from common import FORBIDDEN, ORANGE, label, panels, percent, run
from matplotlib.figure import Figure

import cvxmdp as cm

ARRIVAL = 0.5
"""Customers a period."""
POWERS, LONGEST = np.linspace(0.03, 0.14, 23), 9.0
"""Budgets of power, as shares of full power, and the longest queue that is drawn."""
POWER, DELAY = 0.12, 5.0
"""The budgets of the sentence."""


def solve() -> tuple[cm.Solution, list[cm.Sweep]]:
    """Return the answer at one pair of budgets; and for each power the losses from the shortest queue possible on."""
    mdp = cm.worlds.queue(10, speeds=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0), arrival=ARRIVAL)
    limits = [cm.Budget("power", at_most=POWER), cm.Budget("delay", at_most=DELAY)]
    sweeps = []
    for power in POWERS:
        problem = cm.Problem(mdp, "loss", [cm.Budget("power", at_most=power)])
        shortest = problem.range("delay").tightest
        # The shortest queue leaves no choice; a thousandth above it there is one.
        sweeps.append(problem.sweep("delay", np.linspace(1.001 * shortest, LONGEST, 13)))
    return cm.Problem(mdp, "loss", limits).solve(), sweeps


def insight(chosen: cm.Solution, sweeps: list[cm.Sweep]) -> str:
    """Say what the chosen budgets cost, and what more of each would bring."""
    more_power, more_delay = -0.1 * POWER * chosen.prices["power"], -0.1 * DELAY * chosen.prices["delay"]
    return (
        f"With {percent(POWER)} of full power and {DELAY:g} customers in the queue on average, at least "
        f"{percent(chosen.bound / ARRIVAL, 1)} of the customers are lost; a tenth more power saves at most "
        f"{100 * more_power / ARRIVAL:.1f} percentage points of them, a tenth more queue at most "
        f"{100 * more_delay / ARRIVAL:.1f}."
    )


def draw(chosen: cm.Solution, sweeps: list[cm.Sweep]) -> Figure:
    """Draw the map of losses over both budgets."""
    figure, (axes,) = panels(7.6, height=5.0)
    delays, losses = (np.array([getattr(sweep, part) for sweep in sweeps]) for part in ("limits", "values"))
    powers, shares = np.broadcast_to(100 * POWERS[:, None], delays.shape), 100 * losses / ARRIVAL
    image = axes.contourf(powers, delays, shares, levels=np.arange(0, 55, 5), cmap="Blues")
    lines = axes.contour(powers, delays, shares, levels=[5, 10, 20, 30, 40], colors="black", linewidths=0.8)
    axes.clabel(lines, fmt="%g %%", fontsize=9)
    axes.fill_between(powers[:, 0], 0, delays[:, 0], color=FORBIDDEN)
    axes.plot(powers[:, 0], delays[:, 0], color=ORANGE)
    axes.text(5.5, 4.4, "no rule obeys both budgets", ha="center")
    axes.plot(100 * POWER, DELAY, "o", color=ORANGE, markersize=9)
    spot, text = (100 * POWER, DELAY), f"{percent(chosen.value / ARRIVAL, 1)} lost"
    axes.annotate(text, spot, (16, 24), textcoords="offset points", weight="bold", arrowprops={"arrowstyle": "-"})
    axes.set(xlim=(powers.min(), powers.max()), ylim=(3, LONGEST))
    label(axes, "Customers that have to be lost", "budget of power, % of full power", "budget of queue, customers")
    figure.colorbar(image, ax=axes, label="customers lost, %")
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
