"""Pictures inside a page: a grid with visits and actions, a level against its limit, a trade-off.

All colours are classes, which the page's style sheet paints in light or dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np

from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.report.facts import LimitFact, short
from cvxmdp.report.grid import DIRECTIONS, Grid

SIDE = 20
"""Units of a drawn cell, so that a tenth of one is fine enough for arrows."""
SHADES = 8
"""Shades of visits, each for half a power of ten."""
LEAST_SHOWN = 1e-10
"""Occupancy above which an action has an arrow, as in the other pictures of grids."""
MOST_WITH_ARROWS = 60
"""Rows or columns of the largest grid on which arrows can be told apart."""
WIDE, HALFWAY = 20, 0.3
"""Limits have a logarithmic axis where the largest is so many times the smallest, and half of them lie below this share
of the largest: so even steps keep an even axis."""


def grid_svg(grid: Grid, mdp: MDP, occupancy: Array, largest: float, side: int) -> str:
    """Draw an occupancy of a grid: visits as shades, actions as arrows, with what is marked, start and goal.

    Parameters
    ----------
    grid : Grid
        Of the model.
    mdp : MDP
        The model.
    occupancy : ndarray of shape (num_pairs,)
        What to draw.
    largest : float
        Visits of the darkest shade, see :func:`darkest`.
    side : int
        Rows and columns that may be drawn; more cells are drawn together, without arrows and marks.
    """
    visits = np.bincount(mdp.state, weights=occupancy, minlength=mdp.num_states).astype(np.float64)
    together = cells_together(grid, side)
    picture = _together(grid.picture(visits), together)
    exists = _together(grid.picture(np.ones(mdp.num_states)), together) > 0
    rows, columns = picture.shape
    shade = np.where(exists, _shades(picture, largest), -1)
    parts = [
        f'<path class="v{k}" d="{_squares(*map(np.asarray, np.nonzero(shade == k)))}"/>'
        for k in range(SHADES + 1)
        if np.any(shade == k)
    ]
    if together == 1:
        parts += _details(grid, mdp, occupancy, shade)
    parts += _corners(grid, together, max(rows, columns))
    size = f"{columns * SIDE} {rows * SIDE}"
    label = "The grid: the darker a cell, the more it is visited; arrows show the actions taken."
    return f'<svg class="grid" viewBox="0 0 {size}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def cells_together(grid: Grid, side: int) -> int:
    """Return how many rows and columns are drawn as one where no more than ``side`` of them are drawn."""
    return math.ceil(max(grid.rows, grid.columns) / side)


def darkest(grid: Grid, visits: Array) -> float:
    """Return the largest number of visits to a cell that is left again; where there is none, to any."""
    passed = visits[~grid.goal]
    most = float(np.max(passed, initial=0.0))
    return most if most > 0 else float(np.max(visits))


def _together(picture: Array, k: int) -> Array:
    """Add up squares of k by k cells."""
    rows, columns = (-(-size // k) for size in picture.shape)
    padded = np.zeros((rows * k, columns * k))
    padded[: picture.shape[0], : picture.shape[1]] = picture
    return np.asarray(padded.reshape(rows, k, columns, k).sum(axis=(1, 3)))


def _shades(picture: Array, largest: float) -> Array:
    with np.errstate(divide="ignore"):
        below = -2 * np.log10(picture / max(largest, 1e-300))  # half powers of ten below the darkest
    return np.asarray(np.clip(np.ceil(SHADES - np.maximum(below, 0.0)), 0, SHADES))


def _squares(rows: Indices, columns: Indices) -> str:
    """Return a path along cells; those beside each other in a row are one piece."""
    starts = np.flatnonzero(np.diff(rows, prepend=-1) | (np.diff(columns, prepend=-2) != 1))
    lengths = np.diff(np.append(starts, rows.size))
    return "".join(
        f"M{columns[at] * SIDE} {rows[at] * SIDE}h{n * SIDE}v{SIDE}h-{n * SIDE}z"
        for at, n in zip(starts.tolist(), lengths.tolist(), strict=True)
    )


def _details(grid: Grid, mdp: MDP, occupancy: Array, shade: Array) -> list[str]:
    """Draw what is marked, and arrows: plain ones where the policy often is, faint ones where it rarely is."""
    row, column = np.divmod(grid.cell, grid.columns)
    parts = [
        f'<circle class="mark" cx="{(x + 0.5) * SIDE:g}" cy="{(y + 0.5) * SIDE:g}" r="{0.38 * SIDE:g}"/>'
        for x, y in zip(column[grid.marked].tolist(), row[grid.marked].tolist(), strict=True)
    ]
    if max(grid.rows, grid.columns) > MOST_WITH_ARROWS:
        return parts
    ways = [DIRECTIONS.get(name) for name in mdp.actions]
    visits = np.bincount(mdp.state, weights=occupancy, minlength=mdp.num_states)
    taken = np.flatnonzero((occupancy > LEAST_SHOWN) & ~grid.goal[mdp.state])
    arrows: dict[str, list[str]] = {"faint": [], "arrow": [], "on": []}
    for i in taken.tolist():
        s, way = int(mdp.state[i]), ways[int(mdp.action[i])]
        if way is not None:
            kind = "on" if grid.marked[s] else "arrow" if shade[row[s], column[s]] > 0 else "faint"
            arrows[kind].append(_arrow(int(column[s]), int(row[s]), way, float(occupancy[i] / visits[s])))
    return parts + [f'<path class="{kind}" d="{"".join(paths)}"/>' for kind, paths in arrows.items() if paths]


def _arrow(column: int, row: int, way: tuple[int, int], share: float) -> str:
    """Return an arrow across the cell, or where several actions are taken one from its middle, as long as its share."""
    whole = share > 0.999
    tail, tip = (-6.5, 7.5) if whole else (0.0, 3.5 + 5.5 * share)
    head = 4.0 if whole else 0.5 * tip  # so that four from one middle do not run into each other
    neck, wide, thick = tip - head, 0.8 * head, 0.7 if whole else 0.6
    (x, y), (u, v) = ((column + 0.5) * SIDE, (row + 0.5) * SIDE), way
    outline = [(tail, thick), (neck, thick), (neck, wide), (tip, 0), (neck, -wide), (neck, -thick), (tail, -thick)]
    points = [f"{x + a * u - b * v:.1f} {y + a * v + b * u:.1f}" for a, b in outline]
    return f"M{'L'.join(points)}z"


def _corners(grid: Grid, together: int, side: int) -> list[str]:
    """Write letters at start and goal, large enough to be read on any grid, and beside arrows where there is room."""
    size = max(0.36 * SIDE, 0.035 * side * SIDE)
    beside = 0.5 * SIDE - 0.58 * size if size < 0.5 * SIDE else 0.0
    row, column = np.divmod(grid.cell, grid.columns)
    parts = []
    for letter, where, aside in (("S", grid.start, beside), ("D", grid.goal, 0.0)):
        for s in np.flatnonzero(where).tolist()[:side]:
            x, y = ((int(at[s]) // together + 0.5) * SIDE - aside for at in (column, row))
            parts.append(
                f'<rect class="sign" x="{x - 0.5 * size:g}" y="{y - 0.5 * size:g}" width="{size:g}" height="{size:g}" '
                f'rx="{0.2 * size:g}" style="stroke-width:{0.06 * size:g}"/>'
                f'<text class="letter" x="{x:g}" y="{y:g}" font-size="{0.8 * size:g}">{letter}</text>'
            )
    return parts


def bar(fact: LimitFact) -> str:
    """Draw a level as a bar, and its limits as lines across."""
    if fact.level is None:
        return ""
    ends = [end for end in (fact.lower, fact.upper) if math.isfinite(end)]
    # What the tolerance allows beyond a limit of zero would fill the bar.
    level = 0.0 if fact.standing == "at its limit" and not any(ends) else fact.level
    low, high = min(0.0, level, *ends), max(0.0, level, *ends)
    reach = (high - low) * 1.12 or 1.0  # room beyond what is farthest out

    def at(value: float) -> float:
        return 100 * (value - low) / reach

    left, right = sorted((at(0.0), at(level)))
    lines = "".join(f'<i style="left:{at(end):.2f}%"></i>' for end in dict.fromkeys(ends))
    kind = fact.standing.replace(" ", "-")
    return (
        f'<div class="bar {kind}" aria-hidden="true"><b style="left:{left:.2f}%;width:{right - left:.2f}%"></b>'
        f"{lines}</div>"
    )


def trade_off_svg(
    limits: Sequence[float],
    values: Sequence[float],
    names: tuple[str, str],
    frames: Sequence[int],
    corners: Array | None = None,
) -> str:
    """Draw values over limits as a curve with a dot for each of some points; a cross where nothing is known that obeys.

    Parameters
    ----------
    limits, values : sequence of float
        The points; values that are not finite are of limits that no policy is known to obey.
    names : (str, str)
        Of the limit and of the value, escaped.
    frames : sequence of int
        Which points get a dot; the k-th has the id ``dot{k}``.
    corners : ndarray of shape (n, 2), optional
        Further limits and values, which the curve goes through.
    """
    width, height, right, top, bottom = 420, 250, 14, 14, 44
    known = [i for i, value in enumerate(values) if math.isfinite(value)]
    log = logarithmic(limits)
    xs = [math.log(limit) if log else limit for limit in limits]
    ys = [values[i] for i in known] or [0.0]
    x0, x1 = min(xs), max(xs)
    y0, y1 = min(ys), max(ys)
    ticks = [y0, y0 + 0.5 * (y1 - y0), y1]
    digits = _digits(ticks)
    left = max(62, 14 + 7 * max(len(short(tick, digits)) for tick in ticks))  # room for the longest, in 12 pixels
    margin = 0.08 * (y1 - y0) or 0.05 * abs(y1) or 1.0
    y0, y1 = y0 - margin, y1 + margin

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x0) / (x1 - x0) if x1 > x0 else 0.5
        return left + across * (width - left - right), height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom)

    base = height - bottom
    parts = [f'<path class="axis" d="M{left} {top}V{base}H{width - right}"/>']
    for share in (0.0, 0.5, 1.0):
        y = min(ys) + share * (max(ys) - min(ys))
        parts.append(
            f'<text x="{left - 6}" y="{place(x0, y)[1] + 4:.1f}" text-anchor="end">{short(y, digits)}</text>'
            if share == 0.0 or max(ys) > min(ys) else ""
        )  # fmt: skip
        x = x0 + share * (x1 - x0)
        anchor = "start" if share == 0.0 else "end" if share == 1.0 else "middle"
        if share == 0.0 or x1 > x0:
            tick = short(math.exp(x) if log else x, 3)
            parts.append(f'<text x="{place(x, y0)[0]:.1f}" y="{base + 16}" text-anchor="{anchor}">{tick}</text>')
    parts.append(
        f'<text class="name" x="{(left + width - right) / 2}" y="{height - 6}" text-anchor="middle">{names[0]}</text>'
    )
    parts.append(f'<text class="name" x="{left + 6}" y="{top + 4}">{names[1]}</text>')
    through = [(limits[i], values[i]) for i in known]
    if through and corners is not None:
        least, most = min(through)[0], max(through)[0]
        through += [(x, y) for x, y in corners.tolist() if least < x < most]
    curve = [place(math.log(x) if log else x, y) for x, y in sorted(through)]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in curve)
    parts.append(f'<path class="curve" d="M{line}"/>' if len(curve) > 1 else "")
    for k, i in enumerate(frames):
        if math.isfinite(values[i]):
            x, y = place(xs[i], values[i])
            parts.append(f'<circle class="dot" id="dot{k}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        else:
            x = place(xs[i], y0)[0]
            parts.append(f'<path class="dot cross" id="dot{k}" d="M{x - 4:.1f} {base - 12}l8 8m0 -8l-8 8"/>')
    label = html.escape("The best value for each limit; crosses mark limits that no policy is known to obey.")
    return f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def logarithmic(limits: Sequence[float]) -> bool:
    """Whether limits are better seen on a logarithmic axis.

    Examples
    --------
    >>> logarithmic([1e-3, 1e-2, 1e-1]), logarithmic([1e-9, 0.5, 1.0])
    (True, False)
    """
    low, high = min(limits), max(limits)
    return bool(0 < WIDE * low < high and np.median(limits) < HALFWAY * high)


def _digits(ticks: Sequence[float]) -> int:
    """Return how many digits tell ticks apart; three where they are the same."""
    apart = len(set(ticks))
    return next((n for n in range(3, 8) if len({short(tick, n) for tick in ticks}) == apart), 3)
