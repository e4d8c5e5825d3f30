"""A set of your own: watch four posts equally, and spare the ground.

    python examples/own_set.py --out own_set.png

A set is any object with ``project(point)``, which returns the member nearest to a point in the Euclidean norm; a term
is any object with ``value(point)`` and ``prox(point, step)``. A point has one entry for each pair of state and action.
From these methods alone the library solves the problem and proves the answer: where z is the projection of y, the
vector y - z is normal to the set at z, and so bounds what any member can do.

The task: on the way to the destination, spend at least a fifth of the steps at four posts (a linear constraint), and
watch them about equally (the own set). The own term then charges for wear: cells that are walked on too much.
"""

from __future__ import annotations

import numpy as np
from common import ORANGE, grids, panels, percent, run
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import cvxmdp as cm

SIZE = 8
OBSTACLES = [(3, 3), (3, 4), (4, 3), (4, 4)]
POSTS = [(1, 1), (1, 6), (6, 1), (6, 4)]


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


def solve() -> tuple[cm.MDP, EvenWatch, Wear, list[cm.Solution]]:
    """Return the model, the own set and term, and the answers without it, with the set, and with both."""
    mdp = cm.worlds.gridworld(SIZE, discount=0.96, obstacles=OBSTACLES)
    posts = [SIZE * row + column for row, column in POSTS]
    watched = cm.Budget(np.isin(mdp.state, posts), at_least=0.2, name="watched")
    even = EvenWatch(mdp, posts, variation=0.1)
    arrived = mdp.state == mdp.num_states - 1  # no wear in the destination
    wear = Wear(weight=20.0, free=np.where(arrived, 1.0, 0.01))
    problems = [
        cm.Problem(mdp, "time", [watched]),
        cm.Problem(mdp, "time", [watched, even]),
        cm.Problem(mdp, ["time", wear], [watched, even]),
    ]
    solutions = [problem.solve() for problem in problems]
    for problem, solution in zip(problems, solutions, strict=True):
        solution.certificate.check(problem)  # raises where a claim is false
    return mdp, even, wear, solutions


def insight(mdp: cm.MDP, even: EvenWatch, wear: Wear, solutions: list[cm.Solution]) -> str:
    """Say what watching evenly takes."""
    plain, evenly, worn = solutions
    shares = [even.visits(solution.occupancy) for solution in (plain, evenly)]
    most, least = percent(shares[0].max() / shares[0].sum()), percent(shares[1].min() / shares[1].sum())
    slower = [solution.costs["time"] / plain.costs["time"] - 1 for solution in (evenly, worn)]
    spared = 1 - wear.value(worn.occupancy) / wear.value(evenly.occupancy)
    return (
        f"Left alone, the watch spends {most} of its time at posts at one of them; with the own set it spends at least "
        f"{least} at each of the four and takes {percent(slower[0], 1)} more time; with the own term, too, it takes "
        f"{percent(slower[1], 1)} more and spares {percent(spared)} of the wear."
    )


def draw(mdp: cm.MDP, even: EvenWatch, wear: Wear, solutions: list[cm.Solution]) -> Figure:
    """Draw the visits of all solutions, with the posts outlined."""
    figure, axes = panels(3.3, 3.3, 3.3, height=3.7)
    titles = ("watched", "watched evenly", "watched evenly, wear charged")
    named = zip(titles, solutions, strict=True)
    grids(figure, axes, mdp, {f"{title}\ntime {plan.costs['time']:.3f}": plan.occupancy for title, plan in named})
    for panel in axes:
        for row, column in POSTS:
            panel.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2.5))
    axes[1].set_xlabel("S start, D destination, orange: posts, black: obstacles, which do not block the way")
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
