"""Explore a grid world: trade the time to the destination against the entropy of the visits.

    python examples/exploration.py --out exploration.png

The fastest policy walks one way and waits in the destination. A term ``cm.NegativeEntropy(weight, of="states")`` in the
objective pays for visiting the cells evenly, ``weight`` units of time for each nat of entropy. With that term alone the
policy explores as evenly as the dynamics allow; the entropy of 100 cells visited equally often is log 100 = 4.605 nats.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import cvxmdp as cm
from cvxmdp.report.plots import plot_grid

WEIGHTS = (0.1, 0.2, 0.3, 0.5)
"""Units of time for each nat."""
COLOURS = (1e-3, 1e-1)
"""Shares of steps at the ends of the scale of colours; the destination is beyond."""


def entropy(visits: np.ndarray) -> float:
    """Return the entropy of a distribution, in nats."""
    some = visits[visits > 0]
    return float(-some @ np.log(some))


def solve(size: int) -> tuple[cm.MDP, dict[str, cm.Solution]]:
    """Return the model and the solutions by title, from the fastest to the most even."""
    mdp = cm.worlds.gridworld(size, discount=0.97)
    solutions = {"time alone": cm.Problem(mdp, "time").solve()}
    for weight in WEIGHTS:
        problem = cm.Problem(mdp, "time" + cm.NegativeEntropy(weight, of="states"))
        solutions[f"time - {weight:g} entropy"] = problem.solve()
    # The destination is never left, so entropy alone calls for a policy that comes there late.
    solutions["entropy alone"] = cm.Problem(mdp, cm.NegativeEntropy(of="states")).solve()
    return mdp, solutions


def table(solutions: dict[str, cm.Solution]) -> str:
    """Return one line for each solution."""
    lines = [
        f"{'minimized':<20}{'time':>8}{'entropy':>10}{'cells visited':>15}{'proven gap':>13}",
        f"{'':<20}{'':>8}{'nats':>10}{'enough *':>15}{'relative':>13}",
    ]
    for title, solution in solutions.items():
        share = np.mean(solution.visits > 0.25 / solution.visits.size)
        lines.append(
            f"{title:<20}{solution.costs['time']:>8.3f}{entropy(solution.visits):>10.3f}{share:>15.0%}"
            f"{max(solution.gap, 0.0):>13.0e}"
        )
    return "\n".join([*lines, "* at least a quarter as often as if all cells were visited equally often"])


def draw(mdp: cm.MDP, solutions: dict[str, cm.Solution], path: Path) -> None:
    """Save the visits of all solutions on one scale of colours."""
    figure = Figure(figsize=(10.2, 6.6), layout="constrained")
    grid = figure.subplots(2, math.ceil(len(solutions) / 2)).ravel()
    for axes, (title, solution) in zip(grid, solutions.items(), strict=True):
        label = f"{title}\ntime {solution.costs['time']:.3f}, entropy {entropy(solution.visits):.2f} nats"
        plot_grid(axes, mdp, solution.occupancy, label, arrows=False)
        axes.images[0].set_clim(*COLOURS)
    bar = figure.colorbar(grid[0].images[0], ax=list(grid), extend="both", shrink=0.8)
    bar.set_label("visits of the cell, share of steps")
    figure.supxlabel("S start, D destination, black: obstacles, which do not block the way", fontsize=10)
    figure.savefig(path, dpi=110)


def main(out: str | Path = "exploration.png", size: int = 10) -> dict[str, cm.Solution]:
    """Solve, print the table, save the picture to ``out`` and return the solutions by title."""
    mdp, solutions = solve(size)
    print(table(solutions))
    draw(mdp, solutions, Path(out))
    print(f"picture: {out}")
    return solutions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Maximum-entropy exploration of a grid world.")
    parser.add_argument("--out", default="exploration.png", help="where to save the picture")
    parser.add_argument("--size", type=int, default=10, help="rows and columns of the grid")
    arguments = parser.parse_args()
    main(arguments.out, arguments.size)
