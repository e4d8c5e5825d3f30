"""Learn from an expert: be quick, but stay near a policy whose reasons are not known.

    python examples/apprenticeship.py --out apprenticeship.png

The expert keeps clear of the obstacles, at a price per collision that the learner does not know, and now and then
takes a random step. The learner knows the expert's policy and the cost "time" alone. It is held to the expert in two
ways: by a term ``cm.Distance(expert, weight)`` in the objective, where ``weight`` is time for each unit of distance;
and by a set, ``cm.NormBall`` or ``cm.KLBall`` around the expert, where the radius is fixed and the price says what a
larger one is worth.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import rel_entr

import cvxmdp as cm
from cvxmdp.report.plots import plot_grid

WALLS = [(2, column) for column in range(5)] + [(5, column) for column in range(3, 8)]
"""Obstacles of an 8 x 8 grid: two walls, each with its pass at the other side."""
HIDDEN_PRICE = 10.0
"""What a collision costs the expert, in units of time."""
RANDOM = 0.1
"""Share of the expert's steps that are random."""
WEIGHTS = (0.05, 1.4, 1.6, 2.0)
"""Units of time for each unit of distance."""
COLOURS = (1e-3, 1e-1)
"""Shares of steps at the ends of the scale of colours; the destination is beyond."""


def expert_of(mdp: cm.MDP) -> cm.Policy:
    """Return the careful policy, with random steps in between."""
    careful = cm.Problem(mdp, mdp.costs["time"] + HIDDEN_PRICE * mdp.costs["collision"]).solve()
    probabilities = careful.policy.probabilities.reshape(mdp.num_states, len(mdp.actions))
    return mdp.policy((1 - RANDOM) * probabilities + RANDOM / len(mdp.actions))


def solve(mdp: cm.MDP, expert: cm.Policy) -> dict[str, cm.Solution]:
    """Return the learner's solutions by title."""
    solutions = {"time alone": cm.Problem(mdp, "time").solve()}
    for weight in WEIGHTS:
        problem = cm.Problem(mdp, "time" + cm.Distance(expert, weight, norm=2))
        solutions[f"time + {weight:g} distance"] = problem.solve()
    for title, ball in (
        ("distance at most 0.1", cm.NormBall(expert, radius=0.1, norm=2)),
        ("1-norm at most 0.3", cm.NormBall(expert, radius=0.3, norm=1)),
        ("KL at most 0.1 nats", cm.KLBall(expert, radius=0.1)),
    ):
        solutions[title] = cm.Problem(mdp, "time", [ball]).solve()
    return solutions


def distances(occupancy: np.ndarray, center: np.ndarray) -> tuple[float, float, float]:
    """Return the distance of an occupancy to the expert's in the 2-norm, in the 1-norm and as KL in nats."""
    offset = occupancy - center
    return float(np.linalg.norm(offset)), float(np.abs(offset).sum()), float(rel_entr(occupancy, center).sum())


def table(expert: cm.Evaluation, solutions: dict[str, cm.Solution]) -> str:
    """Return one line for the expert and one for each solution."""

    def line(title: str, costs: dict[str, float], occupancy: np.ndarray) -> str:
        two, one, kl = distances(occupancy, expert.occupancy)
        return f"{title:<22}{costs['time']:>8.3f}{costs['collision']:>11.4f}{two:>9.4f}{one:>9.4f}{kl:>9.4f}"

    lines = [
        f"{'':<22}{'':>8}{'':>11}{'distance to the expert':^29}{'proven gap':>10}{'price of':>10}",
        f"{'':<22}{'time':>8}{'collision':>11}{'2-norm':>9}{'1-norm':>9}{'KL, nats':>9}{'relative':>12}{'radius':>10}",
        line("expert", expert.costs, expert.occupancy),
    ]
    for title, solution in solutions.items():
        price = "".join(f"{price:>10.3f}" for price in solution.prices.values())
        lines.append(f"{line(title, solution.costs, solution.occupancy)}{max(solution.gap, 0.0):>12.0e}{price}")
    return "\n".join(lines)


def draw(mdp: cm.MDP, expert: cm.Evaluation, solutions: dict[str, cm.Solution], path: Path) -> None:
    """Save the visits of the expert and of the learner on one scale of colours."""
    figure = Figure(figsize=(10.2, 10.2), layout="constrained")
    grid = figure.subplots(math.ceil((len(solutions) + 1) / 3), 3).ravel()
    shown = {"expert": expert, **{f"learner: {title}": solution for title, solution in solutions.items()}}
    for axes, (title, answer) in zip(grid, shown.items(), strict=True):
        label = f"{title}\ntime {answer.costs['time']:.3f}, collision {answer.costs['collision']:.4f}"
        plot_grid(axes, mdp, answer.occupancy, label, arrows=False)
        axes.images[0].set_clim(*COLOURS)
    bar = figure.colorbar(grid[0].images[0], ax=list(grid), extend="both", shrink=0.6)
    bar.set_label("visits of the cell, share of steps")
    figure.supxlabel("S start, D destination, black: obstacles, which do not block the way", fontsize=10)
    figure.savefig(path, dpi=110)


def main(out: str | Path = "apprenticeship.png") -> tuple[cm.Evaluation, dict[str, cm.Solution]]:
    """Solve, print the table, save the picture to ``out``; return what the expert does and the solutions by title."""
    mdp = cm.worlds.gridworld(8, discount=0.96, obstacles=WALLS)
    expert = expert_of(mdp)
    shown, solutions = mdp.evaluate(expert), solve(mdp, expert)
    print(table(shown, solutions))
    draw(mdp, shown, solutions, Path(out))
    print(f"picture: {out}")
    return shown, solutions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Apprenticeship in a grid world.")
    parser.add_argument("--out", default="apprenticeship.png", help="where to save the picture")
    main(parser.parse_args().out)
