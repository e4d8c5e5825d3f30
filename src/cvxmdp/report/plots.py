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
from cvxmdp.mdp import MDP, Indices
from cvxmdp.names import brief, no_such
from cvxmdp.ranks.one_place import LOAD, in_one_place
from cvxmdp.report.draw import logarithmic
from cvxmdp.report.facts import limit_ends, limit_facts, most_visited, short, verdict_of
from cvxmdp.report.grid import DIRECTIONS, Grid, find_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cvxmdp.solution import Solution
    from cvxmdp.sweep import Sweep

Array = npt.NDArray[np.float64]
Path = str | os.PathLike[str]

LEAST_SHOWN = 1e-10
"""Occupancy above which a cell is coloured and an action gets an arrow."""

LARGEST_WITH_ARROWS = 60
"""Rows of the largest grid on which arrows can still be told apart."""

PICTURES = ("answer", "convergence")
LONGEST, NAME = 80, 28
"""Characters of the longest line above a picture, and of the longest name in it."""
FEWEST_BARS = 4
"""Bars that there is room for at least, so that one alone does not fill a panel."""
MOST_BARS = 12
"""Bars that can be read beside each other."""
LARGEST_CONFLICT = 20_000
"""Pairs of the largest model whose conflict is drawn unasked: the picture takes some fifteen solves."""
SEVERAL = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
"""Colours that also those tell apart who see few colours."""
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


def plot_solution(solution: Solution, what: str = "answer", path: Path | None = None) -> Figure:
    """Draw an answer: costs against limits beside where the policy goes, and the conflict where no policy obeys.

    Parameters
    ----------
    solution : Solution
        The answer.
    what : {"answer", "convergence"}
        The answer, or how it was found, see :func:`plot_convergence`.
    path : str or path, optional
        Where to save the picture.  The ending chooses the format.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=4), "time", [cm.Budget("collision", at_most=0.01)])
    >>> [axes.get_title() for axes in problem.solve().plot().axes][:2]
    ['limits', 'visits and actions']
    """
    if what not in PICTURES:
        raise ValueError(no_such("picture", str(what), PICTURES))
    if what == "convergence":
        return plot_convergence(solution.stats.history, path)
    return plot_answer(solution, path)


@in_one_place(LOAD)
def plot_answer(solution: Solution, path: Path | None) -> Figure:
    """Draw costs against limits beside where the policy goes, and the conflict where no policy obeys."""
    mdp = None if solution.problem is None else solution.problem.mdp
    grid = None if mdp is None else find_grid(mdp)
    conflict = _two_budgets(solution)
    count = 2 + conflict
    figure = new_figure((6.2 * count, 5.2))
    panels = figure.subplots(1, count, squeeze=False)[0]
    _draw_limits(panels[0], solution)
    if mdp is not None and grid is not None:
        plot_grid(panels[1], mdp, solution.occupancy, "visits and actions")
        _colour_bar(panels[1].images[0], panels[1])
    else:
        _draw_visited(panels[1], solution)
    if conflict:
        from cvxmdp.report.conflict import draw_conflict

        assert solution.problem is not None
        draw_conflict(panels[2], solution.problem, solution, "what is possible and what is allowed")
    figure.suptitle(f"{verdict_of(solution).title}: {plain(_aim(solution))}", fontsize=12)
    return saved(figure, path)


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


def plot_sweep(sweep: Sweep, path: Path | None = None) -> Figure:
    """Draw the value over the limit, and where no policy obeys.

    Parameters
    ----------
    sweep : Sweep or Pareto
        The answers.  A trade-off is drawn through all its breakpoints, where they are known.
    path : str or path, optional
        Where to save the picture.  The ending chooses the format.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> sweep = cm.Problem(cm.worlds.gridworld(size=4), "time").sweep("collision", [1e-4, 1e-3, 1e-2])
    >>> sweep.plot().axes[0].get_xlabel()
    'limit on collision'
    """
    if not sweep.solutions:
        raise ValueError("the sweep has no points; there is nothing to draw")
    figure = new_figure((6.4, 4.2))
    axes = figure.subplots()
    limits, values = sweep.limits[: len(sweep.solutions)], sweep.values
    order = np.argsort(limits)
    corners = getattr(sweep, "breakpoints", None)
    line = (limits[order], values[order]) if corners is None else corners[np.argsort(corners[:, 0])].T
    axes.plot(*line, color=BLUE, linewidth=1.5)
    axes.plot(limits, values, "o", color=BLUE, markersize=4)
    impossible = limits[[solution.infeasibility is not None for solution in sweep.solutions]]
    for k, limit in enumerate(impossible.tolist()):
        axes.axvline(limit, color=ORANGE, linewidth=1, linestyle=":", label=None if k else "no policy obeys")
    if impossible.size:
        axes.legend(frameon=False)
    if logarithmic(limits.tolist()):
        axes.set_xscale("log")
    asked = sweep.solutions[0].asked
    limit = dict(zip(asked.names, asked.limits, strict=False)).get(sweep.name)
    total = ", in total" if limit is not None and limit.total is not None else ""
    best = "least" if asked.sense == "minimize" else "most"
    axes.set(xlabel=f"limit on {plain(sweep.name, 2 * NAME)}{total}", ylabel=f"{best} {plain(sweep.objective, NAME)}")
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(color=PALE, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
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
        A grid, whose states are called ``r{row}c{column}``, as :func:`cvxmdp.worlds.gridworld` makes it.
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
    grid = _grid(mdp)
    d = _occupancy(mdp, occupancy)
    visits = _visits(mdp, grid, d)
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
    row, column = np.divmod(grid.cell, grid.columns)
    _obstacles(axes, row[grid.marked], column[grid.marked])
    if arrows and max(grid.rows, grid.columns) <= LARGEST_WITH_ARROWS:
        _arrows(axes, mdp, d, grid)
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": INK, "linewidth": 0.8}
    for letter, where in (("S", grid.start), ("D", grid.goal)):
        for s in np.flatnonzero(where)[:LARGEST_WITH_ARROWS]:
            axes.text(
                column[s], row[s], letter, fontsize=9, weight="bold", color=INK, bbox=box, zorder=5,
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
    largest = max(float(_visits(p.mdp, _grid(p.mdp), _occupancy(p.mdp, p.occupancy)).max()) for p in panels)
    for k, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
        plot_grid(axes, panel.mdp, panel.occupancy, f"({chr(97 + k)})  {panel.caption()}", largest=largest)
    for axes in grid[len(panels) :]:
        axes.remove()
    shown = list(grid[: len(panels)])
    _colour_bar(shown[0].images[0], shown)
    return saved(figure, path)


def plain(words: str, most: int = LONGEST) -> str:
    """Return words that matplotlib shows as they are: to it, dollars mean formulas, and ``_`` in front no legend.

    They are cut where they are longer than ``most``, so that a picture has room for its drawings.
    """
    shown = brief(words, most).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _aim(solution: Solution) -> str:
    return f"{brief(solution.asked.objective, NAME)} {short(solution.value)}"


def _two_budgets(solution: Solution) -> bool:
    """Whether the picture of a conflict can be drawn: of two upper limits, of a model that is not too large."""
    problem = solution.problem
    if solution.infeasibility is None or problem is None or problem.mdp.num_pairs > LARGEST_CONFLICT:
        return False
    first = problem.constraints[:2]
    return len(first) == 2 and all(
        limit.is_rows and limit.parts == 1 and limit_ends(limit)[1] < math.inf for limit in first
    )


def _draw_limits(axes: Axes, solution: Solution) -> None:
    """Draw the level of each limit as a share of the limit; where there is none, the costs."""
    facts = [fact for fact in limit_facts(solution) if fact.level is not None][:MOST_BARS]
    axes.spines[["top", "right"]].set_visible(False)
    if not facts:
        names = list(solution.costs)[:MOST_BARS]
        axes.barh(range(len(names)), [solution.costs[name] for name in names], color=BLUE, height=0.5)
        axes.set_yticks(range(len(names)), [plain(name, NAME) for name in names])
        axes.set(title="costs", xlabel="per step, on average", ylim=(max(len(names), FEWEST_BARS) - 0.4, -0.6))
        return
    axes.set_title("limits", fontsize=11)
    for k, fact in enumerate(facts):
        assert fact.level is not None
        level = fact.level
        ends = [end for end in (fact.lower, fact.upper) if math.isfinite(end)]
        size = max(abs(end) for end in ends)
        if size == 0:  # what the tolerance allows beyond a limit of zero is nothing
            size = abs(level) or 1.0
            level = level if fact.standing == "exceeded" else 0.0
        axes.barh(k, level / size, color=ORANGE if fact.standing == "exceeded" else BLUE, height=0.3)
        for end in ends:
            axes.plot([end / size] * 2, [k - 0.24, k + 0.24], color=INK, linewidth=2.5)
        total = fact.level * (fact.total or 1.0)
        words = f"{brief(fact.name, NAME)}: {short(total)}, {fact.allowed}, {fact.standing}"
        axes.annotate(
            plain(words), (0, k - 0.28), (4, 0), textcoords="offset points", fontsize=9, color=INK, va="bottom"
        )
    axes.set_yticks([])
    axes.set_ylim(max(len(facts), FEWEST_BARS) - 0.4, -0.8)
    axes.set_xlabel("share of the limit (the black line)")


def _draw_visited(axes: Axes, solution: Solution) -> None:
    """Draw the most visited states, each bar divided by the actions taken there."""
    facts, _ = most_visited(solution.policy, solution.visits, MOST_BARS)
    actions = list(dict.fromkeys(name for fact in facts for name, _ in fact.actions))
    colours = dict(zip(actions, SEVERAL, strict=False))
    left = np.zeros(len(facts))
    for action in actions:
        parts = np.array([fact.visits * dict(fact.actions).get(action, 0.0) for fact in facts])
        shown = plain(action, NAME) if action in colours else "others" if action == actions[-1] else None
        axes.barh(range(len(facts)), parts, left=left, height=0.7, color=colours.get(action, PALE), label=shown)
        left += parts
    axes.set_yticks(range(len(facts)), [plain(fact.name, NAME) for fact in facts], fontsize=9)
    axes.set(xlabel="share of visits", ylim=(len(facts) - 0.4, -0.6))
    axes.set_title("most visited states and their actions", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    columns = 2 if max(map(len, actions), default=0) > NAME // 2 else 4
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=columns)


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


def _grid(mdp: MDP) -> Grid:
    grid = find_grid(mdp)
    if grid is None:
        first = mdp.states[0]
        raise ValueError(f"the model is no grid: states of a grid are called 'r0c0', 'r0c1' and so on, not {first!r}")
    return grid


def _visits(mdp: MDP, grid: Grid, d: Array) -> Array:
    return grid.picture(np.bincount(mdp.state, weights=d, minlength=mdp.num_states).astype(np.float64))


def _colours(axes: Axes, visits: Array, largest: float) -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    colours = ListedColormap(colormaps["YlGnBu"](np.linspace(0.04, 0.72, 256)))  # light enough for dark arrows
    shown = np.ma.masked_less_equal(visits, LEAST_SHOWN)  # masked cells stay white
    return axes.imshow(shown, cmap=colours, norm=LogNorm(LEAST_SHOWN, max(largest, 10 * LEAST_SHOWN)))


def _colour_bar(image: Any, axes: Any) -> None:
    figure = image.axes.figure
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=35, pad=0.02)
    bar.set_label("visits of the cell (white: below $10^{-10}$)")


def _obstacles(axes: Axes, rows: Indices, columns: Indices) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Circle

    circles = [Circle((column, row), 0.36) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)]
    axes.add_collection(PatchCollection(circles, facecolor="black", edgecolor="none", zorder=3))


def _arrows(axes: Axes, mdp: MDP, d: Array, grid: Grid) -> None:
    """Draw the arrows from the middle of a cell towards its edge; those on an obstacle are white."""
    row, column = np.divmod(grid.cell[mdp.state], grid.columns)
    for index, name in enumerate(mdp.actions):
        x, y = DIRECTIONS.get(name, (0, 0))
        for on_obstacle, colour, length in ((False, INK, 0.42), (True, "white", 0.3)):
            taken = (mdp.action == index) & (d > LEAST_SHOWN) & ~grid.goal[mdp.state]
            taken &= (grid.marked[mdp.state] == on_obstacle) & (name in DIRECTIONS)
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
