"""Pictures of a solve and of the grid world.

Every function builds its own :class:`matplotlib.figure.Figure` and touches no global state, so none needs a
display. Matplotlib is an optional extra and is imported when a picture is asked for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from cvxmdp.io.files import write_atomically
from cvxmdp.mdp import MDP
from cvxmdp.worlds.gridworld import grid_size, obstacle_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]
Path = str | os.PathLike[str]

VISITED = 1e-10
"""Occupancy above which a cell is coloured and an action gets an arrow."""

LARGEST_WITH_ARROWS = 60
"""Rows of the largest grid on which arrows can still be told apart."""

DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
"""What an action of a grid world does to column and row."""

BLUE, ORANGE, INK, PALE = "#0072b2", "#d55e00", "#1a1a1a", "#d9d9d9"


class Record(Protocol):
    """One line of a solve's history."""

    @property
    def iteration(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def value(self) -> float: ...
    @property
    def bound(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def violation(self) -> float: ...
    @property
    def residual(self) -> float: ...


@dataclass(frozen=True, eq=False)
class GridPanel:
    """One panel of :func:`plot_grid_panels`.

    Attributes
    ----------
    mdp : MDP
        The grid world.
    occupancy : ndarray of shape (num_pairs,)
        Occupancy of the policy to show.
    time_at_most, collision_at_most : float
        The thresholds that were asked for.
    verdict : str
        A word or two, such as ``"feasible"``.
    time, collision : float
        What the policy really costs.
    """

    mdp: MDP
    occupancy: npt.ArrayLike
    time_at_most: float
    collision_at_most: float
    verdict: str
    time: float
    collision: float

    def caption(self) -> str:
        """Return the two lines above the panel: what was asked for, and what came of it."""
        asked = rf"time $\leq$ {self.time_at_most:g},  collision $\leq$ {_power(self.collision_at_most, 0)}"
        return f"{asked}\n{self.verdict}:  time {self.time:.3f},  collision {_power(self.collision, 2)}"


def plot_convergence(history: Sequence[Record], path: Path | None = None) -> Figure:
    """Plot how a solve went: gap and violation on the left, value and bound on the right.

    Parameters
    ----------
    history : sequence
        Records with the attributes ``iteration``, ``seconds``, ``value``, ``bound``, ``gap``, ``violation``
        and ``residual``. Gap and violation are relative. What is not finite, and what is not positive on the
        logarithmic scale, leaves a break in the line.
    path : str or path, optional
        Where to save the picture. The ending chooses the format.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from cvxmdp.report.plots import plot_convergence
    >>> history = [
    ...     SimpleNamespace(iteration=k, seconds=0.1 * k, value=1 + 0.1**k, bound=1 - 0.1**k,
    ...                     gap=0.2 * 0.1**k, violation=0.0, residual=0.1**k)
    ...     for k in range(5)
    ... ]
    >>> figure = plot_convergence(history)
    >>> [axes.get_title() for axes in figure.axes]
    ['relative gap and violation', 'value and bound']
    """
    if len(history) == 0:
        raise ValueError("history is empty; there is nothing to plot before the first iteration")
    figure = new_figure((9.0, 3.6))
    accuracy, value = figure.subplots(1, 2)
    iteration = [record.iteration for record in history]
    first, last = min(iteration), max(iteration)
    size = 3.0 if len(history) <= 40 else 1.0

    def line(axes: Axes, name: str, colour: str, style: str, log: bool) -> None:
        y = np.array([getattr(record, name) for record in history], dtype=np.float64)
        shown = np.isfinite(y) & ((y > 0) | (not log))
        note = "" if shown.any() else " (always 0)" if np.all(y == 0) else " (never finite)"
        axes.plot(iteration, np.where(shown, y, np.nan), color=colour, linestyle=style, marker="o",
                  markersize=size, linewidth=1.5, label=name + note)  # fmt: skip

    accuracy.set_yscale("log")
    line(accuracy, "gap", BLUE, "-", log=True)
    line(accuracy, "violation", ORANGE, "--", log=True)
    accuracy.set_title("relative gap and violation", fontsize=11)
    line(value, "value", BLUE, "-", log=False)
    line(value, "bound", ORANGE, "--", log=False)
    value.set_title("value and bound", fontsize=11)
    value.ticklabel_format(axis="y", useOffset=False)
    for axes in (accuracy, value):
        axes.set_xlabel("iteration")
        axes.set_xlim(first - 0.03 * (last - first) - 0.5, last + 0.03 * (last - first) + 0.5)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.grid(color=PALE, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return saved(figure, path)


def plot_grid(
    axes: Axes | None,
    mdp: MDP,
    occupancy: npt.ArrayLike,
    title: str = "",
    *,
    largest: float | None = None,
    arrows: bool = True,
) -> Axes:
    """Draw an occupancy of a grid world: visits as colours, actions as arrows, obstacles as black circles.

    Parameters
    ----------
    axes : matplotlib.axes.Axes or None
        Where to draw. Without one, a new figure with a colour bar is made.
    mdp : MDP
        A grid world, as :func:`cvxmdp.worlds.gridworld` makes it.
    occupancy : array of shape (num_pairs,)
        Occupancy of the policy to show. A cell's colour is the sum over its actions, on a logarithmic scale;
        below 1e-10 it is white. An action has an arrow where its occupancy exceeds 1e-10.
    title : str
        Text above the picture.
    largest : float, optional
        Upper end of the colours, so that several pictures can share them. By default the largest visit.
    arrows : bool
        Whether to draw arrows. Above 60 rows there are none, as they could not be told apart.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn in; ``axes.figure`` is the figure and ``axes.images[0]`` carries the colours.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.plots import plot_grid
    >>> mdp = cm.worlds.gridworld(size=5, obstacles=[(2, 2)])
    >>> occupancy = mdp.evaluate([3, 3, 3, 3, 1] * 5).occupancy
    >>> axes = plot_grid(None, mdp, occupancy, title="along the edge")
    >>> axes.get_title()
    'along the edge'
    """
    side = grid_size(mdp)
    d = _occupancy(mdp, occupancy)
    visits = _visits(mdp, d)
    if axes is None:
        axes = new_figure((6.4, 6.0)).add_subplot()
        image = _colours(axes, visits, visits.max() if largest is None else largest)
        _colour_bar(image, axes)
    else:
        _colours(axes, visits, visits.max() if largest is None else largest)
    axes.set_title(title, fontsize=11, linespacing=1.4)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(INK)
    _obstacles(axes, mdp)
    if arrows and side <= LARGEST_WITH_ARROWS:
        _arrows(axes, mdp, d, side)
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": INK, "linewidth": 0.8}
    for letter, corner in (("S", 0), ("D", side - 1)):
        axes.text(
            corner, corner, letter, fontsize=9, weight="bold", color=INK, bbox=box, zorder=5,
            ha="center", va="center_baseline",
        )  # fmt: skip
    return axes


def plot_grid_panels(panels: Sequence[GridPanel], path: Path | None = None) -> Figure:
    """Draw several occupancies of grid worlds side by side with one colour bar.

    Parameters
    ----------
    panels : sequence of GridPanel
        What to show; four make a square of two by two.
    path : str or path, optional
        Where to save the picture. The ending chooses the format.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.plots import GridPanel, plot_grid_panels
    >>> mdp = cm.worlds.gridworld(size=5, obstacles=[(2, 2)])
    >>> done = mdp.evaluate([3, 3, 3, 3, 1] * 5)
    >>> panel = GridPanel(mdp, done.occupancy, time_at_most=0.9, collision_at_most=1e-3, verdict="feasible",
    ...                   time=done.costs["time"], collision=done.costs["collision"])
    >>> figure = plot_grid_panels([panel] * 4)
    >>> len(figure.axes)  # four panels and the colour bar
    5
    """
    if len(panels) == 0:
        raise ValueError("panels is empty; give at least one GridPanel")
    columns = math.ceil(math.sqrt(len(panels)))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure((5.0 * columns + 0.8, 5.3 * rows))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    largest = max(float(_visits(p.mdp, _occupancy(p.mdp, p.occupancy)).max()) for p in panels)
    for k, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
        plot_grid(axes, panel.mdp, panel.occupancy, f"({chr(97 + k)})  {panel.caption()}", largest=largest)
    for axes in grid[len(panels) :]:
        axes.remove()
    shown = list(grid[: len(panels)])
    _colour_bar(shown[0].images[0], shown)
    return saved(figure, path)


def new_figure(size: tuple[float, float]) -> Figure:
    """Return an empty figure of a size in inches; say how to get matplotlib where it is missing."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError('pictures need matplotlib; install it with: pip install "cvxmdp[plot]"') from error
    return Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))  # inches


def saved(figure: Figure, path: Path | None) -> Figure:
    """Save a figure if a path is given, and return it."""
    if path is not None:
        with write_atomically(path) as file:
            figure.savefig(file, format=os.path.splitext(path)[1].removeprefix(".") or "png", dpi=160)
    return figure


def _occupancy(mdp: MDP, occupancy: npt.ArrayLike) -> Array:
    d = np.asarray(occupancy, dtype=np.float64)
    if d.shape != (mdp.num_pairs,):
        raise ValueError(f"occupancy has shape {d.shape}; give one entry for each of the {mdp.num_pairs} pairs")
    return d


def _visits(mdp: MDP, d: Array) -> Array:
    side = grid_size(mdp)
    visits: Array = np.bincount(mdp.state, weights=d, minlength=mdp.num_states).astype(np.float64)
    return visits.reshape(side, side)


def _colours(axes: Axes, visits: Array, largest: float) -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    colours = ListedColormap(colormaps["YlGnBu"](np.linspace(0.04, 0.72, 256)))  # light enough for dark arrows
    shown = np.ma.masked_less_equal(visits, VISITED)  # masked cells stay white
    return axes.imshow(shown, cmap=colours, norm=LogNorm(VISITED, max(largest, 10 * VISITED)))


def _colour_bar(image: Any, axes: Any) -> None:
    figure = image.axes.figure
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=35, pad=0.02)
    bar.set_label("visits of the cell (white: below $10^{-10}$)")


def _obstacles(axes: Axes, mdp: MDP) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Circle

    if "collision" in mdp.costs:
        circles = [Circle((column, row), 0.36) for row, column in obstacle_cells(mdp)]
        axes.add_collection(PatchCollection(circles, facecolor="black", edgecolor="none", zorder=3))


def _arrows(axes: Axes, mdp: MDP, d: Array, side: int) -> None:
    """Draw the arrows from the middle of a cell towards its edge; those on an obstacle are white."""
    row, column = np.divmod(mdp.state, side)
    blocked = np.zeros(mdp.num_states, dtype=bool)
    if "collision" in mdp.costs:
        blocked[mdp.state[mdp.costs["collision"] > 0]] = True
    arrived = mdp.state == mdp.num_states - 1
    for index, name in enumerate(mdp.actions):
        if name not in DIRECTIONS:
            raise ValueError(f"the model has an action {name!r}; a grid world has {', '.join(map(repr, DIRECTIONS))}")
        x, y = DIRECTIONS[name]
        for on_obstacle, colour, length in ((False, INK, 0.42), (True, "white", 0.3)):
            taken = (mdp.action == index) & (d > VISITED) & ~arrived & (blocked[mdp.state] == on_obstacle)
            count = int(taken.sum())
            axes.quiver(
                column[taken], row[taken], np.full(count, length * x), np.full(count, length * y),
                color=colour, angles="xy", scale_units="xy", scale=1, units="xy", width=0.07,
                headwidth=3.6, headlength=3.2, headaxislength=3.0, zorder=4,
            )  # fmt: skip


def _power(number: float, digits: int) -> str:
    r"""Return 0.0002 as ``$2\times10^{-4}$``, and a power of ten without its factor."""
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    shortest = f"{number:.{digits}e}" if digits else f"{number:e}"
    factor, exponent = shortest.split("e")
    if not digits:
        factor = factor.rstrip("0").rstrip(".")
    power = rf"10^{{{int(exponent)}}}"
    return f"${power}$" if factor == "1" else rf"${factor}\times{power}$"
