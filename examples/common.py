"""What the examples share: colours that everybody can tell apart, panels, grids, and the command line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import cvxmdp as cm
from cvxmdp.report.plots import plot_grid

BLUE, SKY, ORANGE, AMBER, GREY = "#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#d9d9d9"
Found = TypeVar("Found", bound=tuple[Any, ...])
FORBIDDEN = "#f2dfd3"
"""Of what no policy can do."""
VISITS = (1e-3, 1e-1)
"""Shares of steps at the ends of the scale of colours of a grid; the destination is beyond."""


def run(solve: Callable[[], Found], draw: Callable[..., Figure], insight: Callable[..., str]) -> Found:
    """Solve, save the picture where ``--out`` says, print the sentence, and return what was found."""
    script = sys.modules[solve.__module__]
    parser = argparse.ArgumentParser(description=str(script.__doc__).splitlines()[0])
    parser.add_argument("--out", default=f"{Path(str(script.__file__)).stem}.png", help="where to save the picture")
    out = parser.parse_args().out
    found = solve()
    draw(*found).savefig(out)
    print(insight(*found))
    return found


def panels(*widths: float, height: float = 4.3) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels of these widths beside each other, in inches."""
    figure = Figure(figsize=(sum(widths), height), dpi=110, layout="constrained")
    return figure, list(figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])


def label(axes: Axes, title: str, x: str, y: str) -> None:
    """Name a panel and its axes, and draw no more lines than are read."""
    axes.set_title(title, fontsize=11)
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)


def percent(share: float, digits: int = 0) -> str:
    """Return a share in words."""
    return f"{100 * share:.{digits}f} %"


def at(sweep: cm.Sweep, limit: float) -> cm.Solution:
    """Return the answer of a sweep for one of its limits."""
    return sweep.solutions[int(np.flatnonzero(np.isclose(sweep.limits, limit))[0])]


def numbers(names: tuple[str, ...]) -> np.ndarray:
    """Return the numbers in names, one row for each: ``"stock 2+0"`` has 2 and 0."""
    return np.array([[float(part) for part in re.findall(r"\d+(?:\.\d+)?", name)] for name in names])


def mean_action(mdp: cm.MDP, policy: cm.Policy) -> np.ndarray:
    """Return for each state the mean of the number in the action's name, as in ``"order 20"``."""
    return np.bincount(mdp.state, policy.probabilities * numbers(mdp.actions)[mdp.action, 0])


def grids(figure: Figure, axes: list[Axes], mdp: cm.MDP, shown: Mapping[str, np.ndarray]) -> None:
    """Draw occupancies of a grid world by their titles, on one scale of colours."""
    for panel, (title, occupancy) in zip(axes, shown.items(), strict=True):
        plot_grid(panel, mdp, occupancy, arrows=False)
        panel.set_title(title, fontsize=11)
        panel.images[0].set_clim(*VISITS)
    bar = figure.colorbar(axes[0].images[0], ax=axes, extend="both", shrink=0.8, pad=0.02)
    bar.set_label("visits of the cell, share of steps")
