"""A picture of two limits that cannot both be obeyed: what is possible, what is allowed, and how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.constraints.linear import Linear
from cvxmdp.problem import Problem
from cvxmdp.report.facts import readable
from cvxmdp.report.plots import BLUE, INK, NAME, ORANGE, PALE, Path, new_figure, plain, saved
from cvxmdp.solution import Solution
from cvxmdp.status import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 15
"""Of the curve between what is possible and what is not."""


def plot_conflicts(panels: Sequence[tuple[Problem, Solution, str]], path: Path | None = None) -> Figure:
    """Draw, for infeasible problems with two upper limits, all pairs of costs that policies can reach.

    Parameters
    ----------
    panels : sequence of (Problem, Solution, title)
        Infeasible problems whose first two constraints are budgets, with their solutions.
    path : str or path, optional
        Where to save the picture.  The ending chooses the format.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.conflict import plot_conflicts
    >>> mdp = cm.worlds.gridworld(size=5, obstacles=[(0, 1), (1, 0)])
    >>> limits = [cm.Budget("time", at_most=0.08), cm.Budget("collision", at_most=1e-3)]
    >>> problem = cm.Problem(mdp, "time", limits)
    >>> figure = plot_conflicts([(problem, problem.solve(), "both")])
    >>> figure.axes[0].get_xlabel()
    'time'
    """
    if not panels:
        raise ValueError("panels is empty; give at least one infeasible problem with its solution")
    figure = new_figure((6.2 * len(panels), 4.8))
    for axes, (problem, solution, title) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw_conflict(axes, problem, solution, title)
    return saved(figure, path)


def draw_conflict(axes: Axes, problem: Problem, solution: Solution, title: str) -> None:
    """Draw one panel of :func:`plot_conflicts`."""
    first, second = (_budget(constraint) for constraint in problem.constraints[:2])
    found = solution.infeasibility
    if found is None:
        raise ValueError("the solution is of a problem that some policy obeys: there is no conflict to draw")
    (x, x_limit, x_name), (y, y_limit, y_name) = first, second
    done = float(x @ solution.occupancy), float(y @ solution.occupancy)
    needed = [_amount(found.relax[name].amount) for name in (x_name, y_name)]
    reach = 1.5 * max(needed[0], done[0] - x_limit, 0.03 * abs(x_limit))
    right = min(x_limit + reach, float(np.max(x)))
    curve = _frontier(problem, x_limit - reach, right)
    left = curve[0][0] - 0.05 * (right - curve[0][0])
    top = y_limit + 2.2 * max(needed[1], done[1] - y_limit)
    axes.fill_between(*curve, 10 * top, color=PALE, label="what policies can do")
    axes.plot(*curve, color=BLUE, linewidth=1.5)
    axes.fill_between([left, x_limit], 0, y_limit, color=ORANGE, alpha=0.35, label="what the limits allow")
    axes.plot(*done, "o", color=INK, label="the policy returned")
    corner = x_limit, y_limit
    for name, there, offset, side in (
        (x_name, (x_limit + needed[0], y_limit), (0, 8), "right"),
        (y_name, (x_limit, y_limit + needed[1]), (8, 0), "left"),
    ):
        if alone := found.relax[name].alone:
            axes.annotate("", there, corner, arrowprops={"arrowstyle": "->", "color": ORANGE, "linewidth": 1.5})
            axes.annotate(
                f"{plain(name, NAME)} {readable(alone)}", there, offset, textcoords="offset points", color=INK,
                fontsize=9, ha=side, bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip
    axes.set(xlabel=plain(x_name, NAME), ylabel=plain(y_name, NAME), xlim=(left, right), ylim=(0, top))
    axes.set_title(title, fontsize=11)
    axes.ticklabel_format(axis="y", scilimits=(-3, 3))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)


def _amount(amount: float | None) -> float:
    return amount if amount is not None and np.isfinite(amount) else 0.0


def _budget(constraint: object) -> tuple[np.ndarray, float, str]:
    if not isinstance(constraint, Linear) or constraint.upper.size > 1 or not np.isfinite(constraint.upper[0]):
        raise ValueError("a conflict is drawn between two budgets; the first two constraints are not such")
    row = constraint.rows.toarray() if hasattr(constraint.rows, "toarray") else constraint.rows
    return np.asarray(row).ravel(), float(constraint.upper[0]), constraint.name


def _frontier(problem: Problem, left: float, right: float) -> tuple[list[float], list[float]]:
    """The least of the second cost for each value of the first, the other constraints kept."""
    first, second, *others = problem.constraints
    x, _, _ = _budget(first)
    y, _, _ = _budget(second)
    xs, ys = [], []
    least = problem.with_limits(others, x).solve(explain=False)
    for at in np.linspace(max(left, least.value * (1 + 1e-6)), right, POINTS):
        limit = Linear(x, at_most=at, name=first.name)
        solution = problem.with_limits([limit, *others], y).solve(explain=False)
        if solution.status is Status.OPTIMAL:
            xs.append(float(at))
            ys.append(solution.value)
    return xs, ys
