"""Bring your own set and your own term of the objective.

    python examples/own_set.py --out own_set.png

A set is any object with ``project(point)``, which returns the member nearest to a point in the Euclidean norm; a term
is any object with ``value(point)`` and ``prox(point, step)``. A point has one entry for each pair of state and action.
From these methods alone the library solves the problem and proves the answer: where z is the projection of y, the
vector y - z is normal to the set at z, and so bounds what any member can do.

The task: on the way to the destination, spend at least a fifth of the steps at four posts (a linear constraint), and
watch them about equally (the own set). The own term then charges for wear: cells that are walked on too much.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import cvxmdp as cm
from cvxmdp.report.plots import plot_grid

SIZE = 8
OBSTACLES = [(3, 3), (3, 4), (4, 3), (4, 4)]
POSTS = [(1, 1), (1, 6), (6, 1), (6, 4)]
COLOURS = (1e-3, 1e-1)
"""Shares of steps at the ends of the scale of colours; the destination is beyond."""


class EvenWatch:
    """``{d : std(x) <= variation * mean(x)}``, where x are the visits of some states: they are watched about equally.

    With a the unit vector along (1, ..., 1) this reads ``|x - (a'x) a| <= variation * a'x``: a round cone about a.
    """

    def __init__(self, mdp: cm.MDP, states: list[int], variation: float) -> None:
        self.name = "even watch"  # in messages, violations and prices
        self.variation = variation
        self.pairs = np.stack([np.flatnonzero(mdp.state == s) for s in states])  # one row of pairs for each state

    def visits(self, point: np.ndarray) -> np.ndarray:
        return point[self.pairs].sum(axis=1)

    def project(self, point: np.ndarray) -> np.ndarray:
        """Return the nearest member: visits in the round cone, each change spread over the pairs of its state."""
        x = self.visits(point)
        spread = x - x.mean()
        along, across = float(x.sum() / np.sqrt(x.size)), float(np.linalg.norm(spread))
        if across <= self.variation * along:
            return point
        height = max((along + self.variation * across) / (1 + self.variation**2), 0.0)  # 0: the tip is nearest
        nearest = height / np.sqrt(x.size) + self.variation * height * spread / across
        moved = point.copy()
        moved[self.pairs] += ((nearest - x) / self.pairs.shape[1])[:, None]
        return moved

    def violation(self, point: np.ndarray) -> float:
        """Return the excess in the units of the limit. Optional: without it the Euclidean distance is reported."""
        x = self.visits(point)
        return float(x.std() / x.mean() - self.variation) if x.mean() > 0 else 0.0


class Wear:
    """``weight / 2 * sum max(d - free, 0)^2``: pairs may be used up to ``free`` at no cost."""

    def __init__(self, weight: float, free: np.ndarray) -> None:
        self.name = "wear"
        self.weight, self.free = weight, free

    def value(self, point: np.ndarray) -> float:
        return 0.5 * self.weight * float(np.sum(np.maximum(point - self.free, 0.0) ** 2))

    def prox(self, point: np.ndarray, step: float) -> np.ndarray:
        """Return the z that minimizes ``value(z) + |z - point|^2 / (2 step)``, entry by entry."""
        excess = np.maximum(point - self.free, 0.0)
        return point - excess * (step * self.weight / (1 + step * self.weight))


def problems() -> tuple[cm.MDP, EvenWatch, dict[str, cm.Problem]]:
    """Return the model, the own set, and the problems by title."""
    mdp = cm.worlds.gridworld(SIZE, discount=0.96, obstacles=OBSTACLES)
    posts = [SIZE * row + column for row, column in POSTS]
    watched = cm.Linear(np.isin(mdp.state, posts).astype(float), at_least=0.2, name="watched")
    even = EvenWatch(mdp, posts, variation=0.1)
    arrived = mdp.state == mdp.num_states - 1  # no wear in the destination
    wear = Wear(weight=20.0, free=np.where(arrived, 1.0, 0.01))
    return (
        mdp,
        even,
        {
            "watched": cm.Problem(mdp, "time", [watched]),
            "watched evenly": cm.Problem(mdp, "time", [watched, even]),
            "watched evenly, wear charged": cm.Problem(mdp, ["time", wear], [watched, even]),
        },
    )


def draw(mdp: cm.MDP, solutions: dict[str, cm.Solution], path: Path) -> None:
    """Save the visits of all solutions on one scale of colours, with the posts outlined."""
    figure = Figure(figsize=(10.2, 3.9), layout="constrained")
    grid = figure.subplots(1, len(solutions))
    for axes, (title, solution) in zip(grid, solutions.items(), strict=True):
        plot_grid(axes, mdp, solution.occupancy, f"{title}\ntime {solution.costs['time']:.3f}", arrows=False)
        axes.images[0].set_clim(*COLOURS)
        for row, column in POSTS:
            frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#d55e00", linewidth=2.5)
            axes.add_patch(frame)
    bar = figure.colorbar(grid[0].images[0], ax=list(grid), extend="both", shrink=0.8)
    bar.set_label("visits of the cell,\nshare of steps")
    figure.supxlabel("S start, D destination, orange: posts, black: obstacles, which do not block the way", fontsize=10)
    figure.savefig(path, dpi=110)


def main(out: str | Path = "own_set.png") -> tuple[EvenWatch, dict[str, cm.Solution]]:
    """Solve and check the proofs, print what was found, save the picture; return the set and the solutions by title."""
    mdp, even, stated = problems()
    solutions = {}
    for title, problem in stated.items():
        solution = problem.solve()
        solution.certificate.check(problem)  # raises where a claim is false
        solutions[title] = solution
        shares = ", ".join(f"{share:.4f}" for share in even.visits(solution.occupancy))
        print(f"{title}: {solution.status.name}, proven gap {max(solution.gap, 0.0):.0e}, certificate checked")
        print(f"    time {solution.costs['time']:.4f}, visits of the posts {shares}")
        # The price of an own set is for each unit of Euclidean distance by which the set grows.
        for name, price in solution.prices.items():
            print(f"    price of {name}: {price:+.4f}, violation {solution.violations[name]:.0e}")
    draw(mdp, solutions, Path(out))
    print(f"picture: {out}")
    return even, solutions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A set and a term of your own.")
    parser.add_argument("--out", default="own_set.png", help="where to save the picture")
    main(parser.parse_args().out)
