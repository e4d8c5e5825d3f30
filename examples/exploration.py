"""Exploring with an entropy bound: how much energy an even survey takes.

    python examples/exploration.py --out exploration.png

A rover surveys a field of 12 x 12 cells, a good third of them sand. A step costs 1 unit of energy on firm ground and
3 in sand. ``cm.Entropy(at_least=..., of="states")`` demands that the visits are spread: with an entropy of log n they
are as even as if n cells were visited equally often. The model is a rule; ``cm.MDP.from_function`` finds what is
reached.
"""

from __future__ import annotations

import numpy as np
from common import BLUE, ORANGE, at, label, numbers, panels, percent, run
from matplotlib.figure import Figure

import cvxmdp as cm

SIZE = 12
STEPS = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
CELLS = (60, 70, 80, 90, 100, 105, 110, 115, 120, 125, 130, 135)
"""Over how many cells the visits are to be spread."""
SHOWN = (80, 110, 135)
"""Those of the sentence, whose visits are drawn."""


def is_sand(row: int, column: int) -> bool:
    """Return whether a cell lies in the dune, which goes from the north east to the south west."""
    return abs(row + column - SIZE) <= 2


def step(cell: tuple[int, int], direction: str) -> list[tuple[float, tuple[int, int], dict[str, float]]]:
    """Return the only thing that can happen: the rover goes there, or stays at the edge of the field."""
    there = tuple(int(np.clip(x + move, 0, SIZE - 1)) for x, move in zip(cell, STEPS[direction], strict=True))
    return [(1.0, there, {"energy": 3.0 if is_sand(*cell) else 1.0})]


def solve() -> tuple[cm.MDP, cm.Sweep]:
    """Return the model, and the surveys that take least energy."""
    mdp = cm.MDP.from_function((0, 0), lambda cell: STEPS, step, discount=0.995)
    spread = cm.Entropy(at_least=np.log(CELLS[0]), of="states")
    return mdp, cm.Problem(mdp, "energy").sweep(spread, np.log(CELLS))


def insight(mdp: cm.MDP, sweep: cm.Sweep) -> str:
    """Say what an even survey takes."""
    few, some, many = (percent(at(sweep, np.log(cells)).value - 1) for cells in SHOWN)
    return (
        f"A survey as even as over {SHOWN[0]} of the {mdp.num_states} cells takes {few} more energy than one on firm "
        f"ground, as even as over {SHOWN[1]} {some} more, and as even as over {SHOWN[2]} {many} more."
    )


def draw(mdp: cm.MDP, sweep: cm.Sweep) -> Figure:
    """Draw the energy of all surveys, and the visits of some."""
    figure, (curve, *maps) = panels(4.3, 3.0, 3.0, 3.0, height=3.8)
    curve.plot(CELLS, sweep.values, "o-", color=BLUE)
    for cells in SHOWN:
        spot = (cells, at(sweep, np.log(cells)).value)
        curve.annotate(f"{spot[1]:.2f}", spot, (0, 8), textcoords="offset points", ha="right")
    curve.set(xlim=(50, SIZE**2), ylim=(0.9, 1.5))
    label(curve, "What an even survey takes", "cells over which visits are spread", "energy of a step, on average")
    row, column = numbers(mdp.states).astype(int).T
    sand = np.array([[is_sand(i, j) for j in range(SIZE)] for i in range(SIZE)], dtype=float)
    for axes, cells in zip(maps, SHOWN, strict=True):
        visits = np.zeros((SIZE, SIZE))
        visits[row, column] = 100 * at(sweep, np.log(cells)).visits
        image = axes.imshow(visits, cmap="Blues", vmin=0, vmax=2)
        axes.contour(sand, levels=[0.5], colors=ORANGE, linewidths=1.5)
        axes.text(0, 0, "S", ha="center", va="center", weight="bold", bbox={"color": "white", "pad": 2})
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"as even as over {cells} cells", fontsize=11)
    maps[1].set_xlabel("S start, between the lines: sand")
    figure.colorbar(image, ax=maps, label="% of the time in the cell", extend="max", shrink=0.8, pad=0.02)
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
