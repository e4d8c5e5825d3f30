"""Staying near an expert: be quicker, but not unlike somebody whose reasons are not known.

    python examples/apprenticeship.py --out apprenticeship.png

The expert keeps clear of the obstacles, at a price of a collision that the learner does not know, and now and then
takes a random step. The learner knows the expert's policy and the cost "time" alone. ``cm.KLBall(expert, radius)``
holds it to the expert: what it does may differ from what the expert does by so many nats of relative entropy.
"""

from __future__ import annotations

from common import BLUE, ORANGE, at, grids, label, panels, percent, run
from matplotlib.figure import Figure

import cvxmdp as cm

WALLS = [(2, column) for column in range(5)] + [(5, column) for column in range(3, 8)]
"""Obstacles of an 8 x 8 grid: two walls, each with its pass at the other side."""
HIDDEN_PRICE = 10.0
"""What a collision costs the expert, in units of time."""
RANDOM = 0.1
"""Share of the expert's steps that are random."""
RADII = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Nats by which the learner may differ from the expert."""
CHOSEN = 0.1


def solve() -> tuple[cm.MDP, cm.Evaluation, cm.Solution, cm.Sweep]:
    """Return the model, what the expert does, the fastest policy, and the fastest within each radius."""
    mdp = cm.worlds.gridworld(8, discount=0.96, obstacles=WALLS)
    careful = cm.Problem(mdp, mdp.costs["time"] + HIDDEN_PRICE * mdp.costs["collision"]).solve().policy
    expert = mdp.policy((1 - RANDOM) * careful.probabilities + RANDOM / len(mdp.actions))
    learner = cm.Problem(mdp, "time")
    return mdp, mdp.evaluate(expert), learner.solve(), learner.sweep(cm.KLBall(expert, radius=CHOSEN), RADII)


def insight(mdp: cm.MDP, expert: cm.Evaluation, fastest: cm.Solution, sweep: cm.Sweep) -> str:
    """Say what distance buys."""
    near = at(sweep, CHOSEN)

    def change(plan: cm.Solution) -> tuple[str, str]:
        saved = percent(1 - plan.costs["time"] / expert.costs["time"])
        return saved, f"{plan.costs['collision'] / expert.costs['collision']:.1f}"

    return (
        f"The fastest policy saves {change(fastest)[0]} of the expert's time and collides {change(fastest)[1]} times "
        f"as often; the fastest within {CHOSEN:g} nats of the expert saves {change(near)[0]} and collides "
        f"{change(near)[1]} times as often, without having been told of collisions."
    )


def draw(mdp: cm.MDP, expert: cm.Evaluation, fastest: cm.Solution, sweep: cm.Sweep) -> Figure:
    """Draw time and collisions for each radius, and the visits of the expert, the fastest and one between."""
    figure, (curve, *maps) = panels(4.3, 3.1, 3.1, 3.1, height=3.9)
    for cost, colour, marker in (("time", BLUE, "o"), ("collision", ORANGE, "s")):
        ratio = [1.0, *sweep.costs[cost] / expert.costs[cost]]
        curve.plot([0, *RADII], ratio, color=colour, marker=marker, label=cost)
    curve.axvline(CHOSEN, color="0.6", linewidth=1, linestyle="--", zorder=0)
    curve.set(ylim=(0, 6))
    curve.legend(frameon=False, loc="center right")
    label(curve, "What distance buys", "distance to the expert, nats", "cost, the expert's is 1")
    shown = {"expert": expert, f"within {CHOSEN:g} nats": at(sweep, CHOSEN), "fastest": fastest}
    grids(figure, maps, mdp, {title: plan.occupancy for title, plan in shown.items()})
    maps[1].set_xlabel("S start, D destination, black: obstacles, which do not block the way")
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
