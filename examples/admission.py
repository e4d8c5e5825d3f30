"""Admission control: what a promise to the cheaper customers costs.

    python examples/admission.py --out admission.png

Twenty servers take customers of two classes; nobody waits. Turning away a customer of the first class costs 4, of the
second 1, and those of the second stay twice as long. Who counts money alone turns away many of the second class, to
keep servers free for the first. A limit promises the second class that at most a given share of them is turned away.
"""

from __future__ import annotations

import numpy as np
from common import AMBER, BLUE, GREY, SKY, at, label, numbers, panels, percent, run
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import cvxmdp as cm

SERVERS = 20
PROMISED, FREE = 0.4, 1.0
"""Shares of the second class that may be turned away, in the sentence; 1 promises nothing."""
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, PROMISED, 0.45, 0.5, 0.55, FREE)
ADMITTED = {"nobody": GREY, "first class alone": SKY, "second class alone": AMBER, "both classes": BLUE}


def solve() -> tuple[cm.MDP, cm.Sweep]:
    """Return the model, and the cheapest rule for each promise."""
    # Customers come at the same rate in every state. So those of a class who are turned away are as large a share of
    # it as the periods are in which the class is not admitted.
    mdp = cm.worlds.admission(SERVERS)
    mdp = mdp.with_cost("first class", lambda state, action: "1" not in action)
    mdp = mdp.with_cost("second class", lambda state, action: "2" not in action)
    return mdp, cm.Problem(mdp, "rejection").sweep("second class", SHARES)


def insight(mdp: cm.MDP, sweep: cm.Sweep) -> str:
    """Say what the promise costs."""
    free, fair = at(sweep, FREE), at(sweep, PROMISED)
    return (
        f"The cheapest rule turns away {percent(free.costs['second class'])} of the second class and "
        f"{percent(free.costs['first class'])} of the first; promising the second class at most {percent(PROMISED)} "
        f"makes it {percent(fair.costs['first class'])} of the first and raises the cost by "
        f"{percent(fair.value / free.value - 1)}."
    )


def draw(mdp: cm.MDP, sweep: cm.Sweep) -> Figure:
    """Draw what promises cost each class, and whom two of the rules admit."""
    figure, (curve, *maps) = panels(4.6, 3.7, 3.7)
    first, second = 100 * sweep.costs["first class"], 100 * sweep.costs["second class"]
    curve.plot(second, first, "o-", color=BLUE)
    for i in (0, SHARES.index(PROMISED)):
        more = sweep.values[i] / sweep.values[-1] - 1
        curve.annotate(f"costs {percent(more)} more", (second[i], first[i]), (7, 5), textcoords="offset points")
    curve.annotate("cheapest", (second[-1], first[-1]), (7, -3), textcoords="offset points")
    curve.set(xlim=(0, 80), ylim=(0, 60))
    label(curve, "What one class gets, the other pays", "second class turned away, %", "first class turned away, %")

    busy = numbers(mdp.states).astype(int)
    titles = {FREE: "cheapest rule", PROMISED: f"at most {percent(PROMISED)}"}
    for axes, (share, title) in zip(maps, titles.items(), strict=True):
        likely = at(sweep, share).policy.probabilities >= 0.5
        cells = np.full((SERVERS + 1, SERVERS + 1), np.nan)
        cells[busy[mdp.state[likely], 1], busy[mdp.state[likely], 0]] = mdp.action[likely]
        axes.imshow(cells, origin="lower", cmap=ListedColormap(list(ADMITTED.values())), vmin=-0.5, vmax=3.5)
        axes.set(xticks=range(0, SERVERS + 1, 5), yticks=range(0, SERVERS + 1, 5))
        label(axes, f"Whom to admit, {title}", "servers busy, first class", "servers busy, second class")
    shown = [Patch(color=colour, label=name) for name, colour in ADMITTED.items() if "second" not in name]
    maps[-1].legend(handles=shown, loc="upper right", fontsize=9)
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
