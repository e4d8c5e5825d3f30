"""An epidemic under a cap on beds: how long and how early to lock down.

    python examples/epidemic.py --out epidemic.png

Fifty people, two of them infected, and five beds. Who is infected recovers after ten days on average, and infects 2.5
others where nobody is immune. Contacts can be cut by 30, 60 or 90 percent. The limit is on days that infected people
spend without a bed, all together, until the epidemic is over. The lockdown that keeps to it is to be as light as
possible: it is counted in days of cutting all contacts.
"""

from __future__ import annotations

import numpy as np
from common import BLUE, GREY, at, label, mean_action, numbers, panels, percent, run
from matplotlib.figure import Figure

import cvxmdp as cm

PEOPLE, BEDS = 50, 5
PERIODS = 6.125
"""Periods of the model in a day: the largest rate at which somebody is infected or recovers, with 35 people ill."""
DISCOUNT = 1 - 1e-7
"""So near to one that totals are those without a discount: the epidemic is over after some hundred days."""
CAPS = (120.0, 100.0, 80.0, 60.0, 40.0, 20.0, 10.0, 5.0, 2.0, 1.0)
"""Days without a bed."""
SHOWN = (60.0, 2.0)
"""Caps of the sentence, whose rules are drawn."""


def solve() -> tuple[cm.MDP, cm.Solution, cm.Sweep]:
    """Return the model, what happens if nothing is done, and the lightest lockdown for each cap."""
    mdp = cm.worlds.epidemic(PEOPLE, infected=2, beds=BEDS, discount=DISCOUNT)
    mdp = mdp.with_cost("days without a bed", mdp.costs["beds"] / PERIODS)
    mdp = mdp.with_cost("days of lockdown", mdp.costs["lockdown"] / PERIODS)
    problem = cm.Problem(mdp, "days of lockdown")
    cap = cm.Budget("days without a bed", at_most=CAPS[0], per="episode")
    return mdp, problem.solve(), problem.sweep(cap, CAPS)


def total(cost: float | np.ndarray) -> float | np.ndarray:
    """Return the total of an epidemic from a cost per period."""
    return cost / (1 - DISCOUNT)


def rule(mdp: cm.MDP, solution: cm.Solution) -> np.ndarray:
    """Return the share of contacts that is cut, by the numbers of people infected and susceptible; NaN if unseen."""
    susceptible, infected = numbers(mdp.states).astype(int).T
    cells = np.full((PEOPLE + 1, PEOPLE + 1), np.nan)
    seen = (total(solution.visits) > 1e-3) & (infected > 0)
    cells[infected[seen], susceptible[seen]] = mean_action(mdp, solution.policy)[seen]
    return cells


def insight(mdp: cm.MDP, nothing: cm.Solution, sweep: cm.Sweep) -> str:
    """Say what fewer days without a bed take."""
    loose, strict = (at(sweep, cap) for cap in SHOWN)
    first = [int(np.nonzero(np.nanmax(rule(mdp, plan), axis=1, initial=0) > 0.5)[0][0]) for plan in (loose, strict)]
    spared = 1 - strict.costs["infections"] / nothing.costs["infections"]
    return (
        f"Without a lockdown, people spend {total(nothing.costs['days without a bed']):.0f} days without a bed; "
        f"a cap of {SHOWN[0]:.0f} takes {total(loose.value):.0f} days of lockdown, from {first[0]} people infected on; "
        f"a cap of {SHOWN[1]:.0f} takes {total(strict.value):.0f}, from {first[1]} infected on, and spares "
        f"{percent(spared)} of all illness."
    )


def draw(mdp: cm.MDP, nothing: cm.Solution, sweep: cm.Sweep) -> Figure:
    """Draw what caps take, and the rules of two of them."""
    figure, (curve, *maps) = panels(4.3, 3.7, 4.3)
    free = total(nothing.costs["days without a bed"])
    curve.plot([free, *CAPS], [0, *total(sweep.values)], "o-", color=BLUE)
    curve.annotate("nothing is done", (free, 0), (-14, -3), textcoords="offset points", ha="right")
    curve.set(xlim=(0, None), ylim=(-0.5, None))
    label(curve, "What a cap takes", "days without a bed, of all people", "days of cutting all contacts")
    for axes, cap in zip(maps, SHOWN, strict=True):
        image = axes.imshow(100 * rule(mdp, at(sweep, cap)), origin="lower", cmap="Oranges", vmin=0, vmax=90)
        axes.axhline(BEDS + 0.5, color=BLUE, linewidth=1.5)
        axes.text(1, BEDS + 0.9, "beds are full", color=BLUE, fontsize=9)
        axes.set(ylim=(0.5, 24.5), aspect="auto", facecolor=GREY)
        label(axes, f"Rule for {cap:g} days without a bed", "people who can still be infected", "people infected")
    figure.colorbar(image, ax=maps[-1], label="contacts cut, % (grey: hardly ever comes up)")
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
