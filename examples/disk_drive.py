"""A disk drive that rests: how much power patience saves.

    python examples/disk_drive.py --out disk_drive.png

A drive of IBM can be active, idle, at low power, in standby or asleep. The deeper it rests the less power it draws, and
the longer it takes to wake. Requests come in bursts. The limit is on the average number of requests that wait; the
power is minimized.
"""

from __future__ import annotations

import numpy as np
from common import AMBER, BLUE, GREY, ORANGE, SKY, at, label, panels, run
from matplotlib.figure import Figure

import cvxmdp as cm

WAITING = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Requests that wait, on average."""
COMPARED = (0.1, 0.2, 0.5)
"""Limits of the sentence."""
MODES = {"active": ORANGE, "idle": AMBER, "low power": "#f0e442", "standby": SKY, "sleep": BLUE, "changing": GREY}


def solve() -> tuple[cm.MDP, cm.Sweep]:
    """Return the model, and the least power for each limit."""
    mdp = cm.worlds.disk_drive().with_initial("active, no request, 0 waiting")
    return mdp, cm.Problem(mdp, "power").sweep("queue", WAITING)


def times(mdp: cm.MDP, sweep: cm.Sweep) -> dict[str, np.ndarray]:
    """Return for each mode of the drive the share of the time spent in it, one for each limit."""
    mode = np.array([name.split(",")[0] for name in mdp.states])
    mode[~np.isin(mode, list(MODES))] = "changing"
    return {name: np.array([s.visits[mode == name].sum() for s in sweep.solutions]) for name in MODES}


def insight(mdp: cm.MDP, sweep: cm.Sweep) -> str:
    """Say what patience saves."""
    never = mdp.evaluate(dict.fromkeys(mdp.states, "go active")).costs
    low, middle, high = (f"{waiting:g} takes {at(sweep, waiting).value:.2f} W" for waiting in COMPARED)
    unused = [name for name, shares in times(mdp, sweep).items() if shares.max() < 1e-3]
    return (
        f"A drive that never rests draws {never['power']:.2f} W and lets {never['queue']:.0f} requests wait; an "
        f"average of {low}, {middle} and {high}; {' and '.join(unused)} are not worth it at any of these limits."
    )


def draw(mdp: cm.MDP, sweep: cm.Sweep) -> Figure:
    """Draw the power for each limit, and how long the drive rests in which mode."""
    figure, (curve, areas) = panels(4.8, 5.8)
    curve.plot(WAITING, sweep.values, "o-", color=BLUE)
    for waiting in COMPARED:
        spot = (waiting, at(sweep, waiting).value)
        curve.annotate(f"{spot[1]:.2f} W", spot, (8, 4), textcoords="offset points")
    curve.set(xlim=(-0.02, 0.95), ylim=(0, 2.8))
    label(curve, "What patience saves", "requests that may wait, on average", "power, W")

    spent = {name: 100 * shares for name, shares in times(mdp, sweep).items() if shares.max() > 1e-3}
    areas.stackplot(WAITING, list(spent.values()), labels=list(spent), colors=[MODES[name] for name in spent])
    areas.set(xlim=(WAITING[0], WAITING[-1]), ylim=(0, 100))
    label(areas, "How the drive spends its time", "requests that may wait, on average", "% of the time")
    handles, names = areas.get_legend_handles_labels()
    areas.legend(handles[::-1], names[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
