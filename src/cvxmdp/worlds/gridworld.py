"""The grid world: walk from one corner to the other and keep clear of obstacles."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.mdp import MDP
from cvxmdp.ranks.model import even_blocks, from_rows
from cvxmdp.ranks.world import world_of
from cvxmdp.worlds.outcomes import settled

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

CHUNK = 1 << 16
"""Cells whose rows are made at a time."""
ACTIONS = ("up", "down", "left", "right")

# The paper's obstacles were in a figure that is lost, so this map is the library's own. Two ridges and an arc
# of rocks stand between start and destination. Each ridge has a narrow pass on the short way and an open end
# on a long way round, and the arc can only be crossed beside a rock. The top rows are free and safe to
# wander in. At the default discount and slip the least time is 0.396 when collisions are ignored, 0.421 when
# collision <= 1e-3 and 0.505 when collision <= 2e-4. The least collision is 3.1e-5 when time <= 0.9, and
# 1.25e-4 when time <= 0.6.
MAP_25 = """
S........................
.........................
.........................
.........................
.........................
.........................
.........................
.........................
...............##........
............##.#.........
..........##.............
.......###...............
....###....#.............
#####.............#......
...............#.........
.............##.##...###.
...........#....#.#####.#
..........##......#......
.........................
.......................#.
.....................#...
...................#.....
..................#......
................#........
...............#........D
"""
"""The fixed map of size 25: 45 obstacles ``#``, start ``S`` and destination ``D``."""

MAP_SIZE = 25
"""Rows and columns of the paper's map."""
DENSITY = MAP_25.count("#") / MAP_SIZE**2


def gridworld(
    size: int = 25,
    discount: float = 0.99,
    slip: float = 0.05,
    obstacles: npt.ArrayLike | None = None,
    seed: int = 0,
    comm: Any = None,
) -> MDP:
    """Return the grid world: a square of cells with a start, a destination and obstacles.

    The agent starts in the top left cell. An action moves it to the named neighbour with probability
    ``1 - slip``, where a move off the grid stays, and with probability ``slip`` to a neighbour drawn
    uniformly from those that exist. The destination, the bottom right cell, is never left.

    The costs are ``"time"``, 1 except in the destination, and ``"collision"``, 1 in the cells with an
    obstacle and 0 elsewhere. An obstacle does not block the way.

    Parameters
    ----------
    size : int
        Number of rows and of columns, at least 2.
    discount : float
        Between 0 and 1, both excluded.
    slip : float
        Probability of a random move, at least 0 and below 1.
    obstacles : array of int of shape (n, 2), optional
        The ``(row, column)`` of each obstacle, counted from 0 at the top left. By default the fixed map of 45
        obstacles at size 25; at any other size obstacles of the same density, drawn from ``seed``.
    seed : int
        Seed of the obstacles that are drawn. It plays no role when ``obstacles`` is given or ``size`` is 25.
    comm : communicator of mpi4py, or True, optional
        The ranks on which the model is to live, each with rows of cells of its own: see :func:`cvxmdp.scatter`.
        No rank makes more than its own part, and the model has no labels.

    Returns
    -------
    MDP
        The model. State ``"r3c7"`` is row 3, column 7, and the states go along the rows.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.gridworld()
    >>> mdp
    MDP(625 states, 2500 pairs, costs: time, collision, discount 0.99)
    >>> mdp.states[27], mdp.actions
    ('r1c2', ('up', 'down', 'left', 'right'))
    >>> len(cm.worlds.obstacle_cells(mdp))
    45
    """
    side, slip = _size(size), _slip(slip)
    num_states = side * side
    blocked = np.zeros(num_states)
    blocked[_obstacle_states(side, obstacles, seed)] = 1.0
    if comm is not None:
        return _on_ranks(side, discount, slip, blocked, comm)
    away = np.ones(num_states)
    away[-1] = 0.0
    initial = np.zeros(num_states)
    initial[0] = 1.0
    return MDP.from_pairs(
        state=np.repeat(np.arange(num_states), len(ACTIONS)),
        action=np.tile(np.arange(len(ACTIONS)), num_states),
        transitions=_transitions(side, slip, 0, num_states),
        costs={"time": np.repeat(away, len(ACTIONS)), "collision": np.repeat(blocked, len(ACTIONS))},
        discount=discount,
        initial=initial,
        states=[f"r{row}c{column}" for row in range(side) for column in range(side)],
        actions=ACTIONS,
        labels={"obstacle": blocked > 0, "destination": [num_states - 1]},
    )


def _on_ranks(side: int, discount: float, slip: float, blocked: Array, comm: Any) -> MDP:
    """Return the grid of which each rank makes its own part."""
    world, size = world_of(comm), side * side
    starts = even_blocks(size, world)
    begin, end = int(starts[world.rank]), int(starts[world.rank + 1])
    cells = np.arange(begin, end)
    return from_rows(
        world, size, np.repeat(cells, len(ACTIONS)), np.tile(np.arange(len(ACTIONS)), cells.size),
        _transitions(side, slip, begin, end),
        {"time": np.repeat((cells < size - 1).astype(np.float64), len(ACTIONS)),
         "collision": np.repeat(blocked[begin:end], len(ACTIONS))},
        discount, initial=(cells == 0).astype(np.float64), states=Cells(side), actions=ACTIONS, starts=starts,
    )  # fmt: skip


class Cells(Sequence[str]):
    """Names of the cells of a square, ``r3c7`` for row 3 and column 7, made when asked for.

    Parameters
    ----------
    side : int
        Rows and columns.

    Examples
    --------
    >>> Cells(3)[5], len(Cells(3))
    ('r1c2', 9)
    """

    def __init__(self, side: int) -> None:
        self._side = side

    def __len__(self) -> int:
        return self._side**2

    def __getitem__(self, index: Any) -> Any:
        row, column = divmod(range(len(self))[index], self._side)
        return f"r{row}c{column}"


def obstacle_cells(mdp: MDP) -> Indices:
    """Return the ``(row, column)`` of each obstacle of a grid world, read off its ``"collision"`` cost.

    Parameters
    ----------
    mdp : MDP
        A model with a ``"collision"`` cost whose states are the cells of a square, row by row.

    Returns
    -------
    ndarray of int of shape (n, 2)
        The cells with a positive cost in the order of the states; ``gridworld(obstacles=...)`` takes it back.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> cm.worlds.obstacle_cells(cm.worlds.gridworld(size=3, obstacles=[(2, 0), (1, 1)]))
    array([[1, 1],
           [2, 0]])
    """
    if "collision" not in mdp.costs:
        raise ValueError(f"the model has no cost 'collision'; its costs are {', '.join(map(repr, mdp.costs))}")
    cells = np.unique(mdp.state[mdp.costs["collision"] > 0])
    return np.column_stack(np.divmod(cells, grid_size(mdp))).astype(np.int64)


def grid_size(mdp: MDP) -> int:
    """Return the number of rows (and columns) of a grid world."""
    side = math.isqrt(mdp.num_states)
    if side * side != mdp.num_states:
        raise ValueError(
            f"the model has {mdp.num_states} states, which is no square number; "
            "a grid world has one state for each cell of a square"
        )
    return side


def _transitions(side: int, slip: float, begin: int, end: int) -> Any:
    """Return the rows of some cells, made from so many at a time that little is held besides them."""
    parts = [_rows(side, slip, np.arange(at, min(at + CHUNK, end))) for at in range(begin, end, CHUNK)]
    return settled(sp.vstack(parts, format="csr") if parts else sp.csr_array((0, side * side)))


def _rows(side: int, slip: float, cell: Indices) -> Any:
    """Every pair can reach five cells: up, left, its own, right and down, in the order of their numbers."""
    row, column = np.divmod(cell, side)
    exists = np.column_stack([row > 0, column > 0, np.ones(cell.size, bool), column < side - 1, row < side - 1])
    own = 2
    random_move = exists.astype(np.float64)
    random_move[:, own] = 0.0
    random_move *= slip / random_move.sum(axis=1, keepdims=True)
    probabilities = np.repeat(random_move[:, None, :], len(ACTIONS), axis=1)
    for action, slot in enumerate([0, 4, 1, 3]):
        probabilities[np.arange(cell.size), action, np.where(exists[:, slot], slot, own)] += 1 - slip
    probabilities[cell == side * side - 1] = np.eye(5)[own]
    targets = cell[:, None] + np.array([-side, -1, 0, 1, side])
    kept = probabilities > 0
    starts = np.concatenate([[0], np.cumsum(kept.sum(axis=2))])
    columns = np.broadcast_to(targets[:, None, :], kept.shape)[kept]
    return sp.csr_array((probabilities[kept], columns, starts), shape=(len(ACTIONS) * cell.size, side * side))


def _obstacle_states(side: int, obstacles: npt.ArrayLike | None, seed: int) -> Indices:
    if obstacles is None and side == MAP_SIZE:
        return np.flatnonzero(np.array(list(MAP_25.replace("\n", ""))) == "#")
    if obstacles is None:
        try:
            rng = np.random.default_rng(operator.index(seed))
        except (TypeError, ValueError):
            raise ValueError(f"seed must be a whole number of at least 0, not {seed!r}") from None
        between = side * side - 2  # all cells but the first, the start, and the last, the destination
        return 1 + rng.choice(between, size=round(DENSITY * side * side), replace=False)
    cells = np.asarray(obstacles)
    if cells.size == 0:
        return np.empty(0, dtype=np.int64)
    if cells.ndim != 2 or cells.shape[1] != 2 or not np.issubdtype(cells.dtype, np.integer):
        raise ValueError(
            "obstacles must be pairs (row, column) of whole numbers; "
            f"found an array of shape {cells.shape} and type {cells.dtype}"
        )
    outside = np.any((cells < 0) | (cells >= side), axis=1)
    if outside.any():
        row, column = cells[outside][0]
        raise ValueError(
            f"obstacles holds ({row}, {column}), which is off the grid; rows and columns go from 0 to {side - 1}"
        )
    numbers: Indices = cells[:, 0].astype(np.int64) * side + cells[:, 1]
    for name, corner in (("start", 0), ("destination", side * side - 1)):
        if np.any(numbers == corner):
            raise ValueError(f"obstacles holds {divmod(corner, side)}, the {name}; leave that cell free")
    return numbers


def _size(size: int) -> int:
    try:
        side = operator.index(size)
    except TypeError:
        raise ValueError(f"size must be a whole number of at least 2, not {size!r}") from None
    if side < 2:
        raise ValueError(f"size is {side}; it must be at least 2, so that start and destination differ")
    return side


def _slip(slip: float) -> float:
    try:
        probability = float(slip)
    except (TypeError, ValueError):
        raise ValueError(f"slip must be a number of at least 0 and below 1, not {slip!r}") from None
    if not 0 <= probability < 1:
        raise ValueError(f"slip is {probability:g}; it is a probability, at least 0 and below 1")
    return probability
