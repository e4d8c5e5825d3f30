"""Which models are grids, and what is where on them: the names of their states, ``r{row}c{column}``, say so."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cvxmdp.mdp import MDP, Array, Indices

DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
"""What an action of a grid world does to column and row."""

CELL = re.compile(r"r(0|[1-9][0-9]{0,5})c(0|[1-9][0-9]{0,5})")
"""A state's name that says where it is."""

GOALS = ("goal", "destination")
"""Labels of the states that a run is to get to."""

FULL = 4
"""A model is no grid where less than one cell of so many has a state."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Where the states of a model lie, and what there is to mark.

    Attributes
    ----------
    rows, columns : int
        Size of the grid.
    cell : ndarray of int of shape (num_states,)
        Number of each state's cell, counted along the rows.
    marked : ndarray of bool of shape (num_states,)
        Obstacles, holes and the like: states in which a cost is positive that is positive in less than half of them.
    marks : tuple of str
        The names of these costs.
    start, goal : ndarray of bool of shape (num_states,)
        Where a run may begin, unless that is in most of the cells; and the states labelled as goal or
        destination, or without such a label those that are never left and not marked.
    """

    rows: int
    columns: int
    cell: Indices
    marked: npt.NDArray[np.bool_]
    marks: tuple[str, ...]
    start: npt.NDArray[np.bool_]
    goal: npt.NDArray[np.bool_]

    def picture(self, over_states: Array) -> Array:
        """Return numbers over states, none negative, as an array of rows and columns; 0 where there is no state."""
        cells = np.bincount(self.cell, weights=over_states, minlength=self.rows * self.columns)
        return cells.reshape(self.rows, self.columns).astype(np.float64)


def find_grid(mdp: MDP) -> Grid | None:
    """Return where the states of a model lie, or None where it is no grid.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.grid import find_grid
    >>> grid = find_grid(cm.worlds.gridworld(size=4, obstacles=[(1, 2)]))
    >>> grid.rows, grid.columns, grid.marks, grid.cell[grid.marked]
    (4, 4, ('collision',), array([6]))
    >>> find_grid(cm.worlds.queue()) is None
    True
    """
    places = _places(mdp)
    if places is None:
        return None
    row, column = places
    rows, columns = int(row.max()) + 1, int(column.max()) + 1
    if rows == 1 or columns == 1 or mdp.num_states * FULL < rows * columns:
        return None
    cell = row * columns + column
    if np.unique(cell).size < cell.size:
        return None
    goal = np.zeros(mdp.num_states, dtype=bool)
    for label in GOALS:
        goal[mdp.labels.get(label, [])] = True
    marked = np.zeros(mdp.num_states, dtype=bool)
    marks = []
    for name, cost in mdp.costs.items():
        there = np.unique(mdp.state[(cost > 0) & ~goal[mdp.state]])
        if 0 < 2 * there.size < mdp.num_states:
            marked[there] = True
            marks.append(name)
    start = mdp.initial > 0
    if 2 * np.count_nonzero(start) > mdp.num_states:
        start = np.zeros_like(start)
    if not np.any(goal):
        goal = _never_left(mdp) & ~marked
    return Grid(rows, columns, cell, marked, tuple(marks), start, goal)


def _places(mdp: MDP) -> tuple[Indices, Indices] | None:
    """Return row and column of each state; None where a name, among the first or at all, does not say them."""
    found = []
    for name in mdp.states:
        match = CELL.fullmatch(name)
        if match is None:
            return None
        found.append((int(match[1]), int(match[2])))
    row, column = np.array(found, dtype=np.int64).T
    return row, column


def _never_left(mdp: MDP) -> npt.NDArray[np.bool_]:
    stays = np.asarray(mdp.transitions[np.arange(mdp.num_pairs), mdp.state]).ravel() == 1.0
    left: npt.NDArray[np.bool_] = np.bincount(mdp.state, weights=~stays, minlength=mdp.num_states) > 0
    return ~left
