"""Grids are told by the names of their states."""

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.report.grid import find_grid


def walk(names, costs=None, labels=None):
    """Return a model with these states in a circle; the last one is never left."""
    n = len(names)
    P = np.roll(np.eye(n), 1, axis=1)
    P[-1] = np.eye(n)[-1]
    return cm.MDP([P], costs or {"time": np.ones(n)}, 0.9, names[0], states=names, labels=labels)


def test_cells_may_come_in_any_order_and_need_not_fill_a_rectangle():
    names = ["r1c2", "r0c0", "r0c1", "r1c0", "r0c2"]
    grid = find_grid(walk(names))
    assert (grid.rows, grid.columns) == (2, 3)
    assert grid.cell.tolist() == [5, 0, 1, 3, 2]
    picture = grid.picture(np.arange(1.0, 6.0))
    assert picture.tolist() == [[2, 3, 5], [4, 0, 1]]
    assert [names[s] for s in np.flatnonzero(grid.start)] == ["r1c2"]
    assert [names[s] for s in np.flatnonzero(grid.goal)] == ["r0c2"]


@pytest.mark.parametrize(
    "names",
    [
        ["r0c0", "r0c1", "r1c0", "r1c1", "done"],  # not all are cells
        ["r0c0", "r0c1", "r0c2"],  # a line
        ["r0c0", "r100000c100000"],  # almost nothing of it is there
        ["r0c0", "r00c1", "r1c0", "r1c1"],  # written otherwise
        ["r0c0", "r0c1", "r1c0", "r\u0661c\u0661"],  # digits of another script
        ["0", "1", "2", "3"],
    ],
)
def test_other_models_are_no_grids(names):
    assert find_grid(walk(names)) is None


def test_rare_costs_are_marked_and_common_ones_are_not():
    names = [f"r{r}c{c}" for r in range(3) for c in range(3)]
    rock = np.zeros(9)
    rock[4] = 2.0
    grid = find_grid(walk(names, {"time": np.ones(9), "rock": rock, "nothing": np.zeros(9)}))
    assert grid.marks == ("rock",)
    assert np.flatnonzero(grid.marked).tolist() == [4]


def test_a_labelled_goal_is_no_obstacle_whatever_it_costs():
    names = [f"r{r}c{c}" for r in range(3) for c in range(3)]
    reward = np.eye(9)[8]
    assert np.flatnonzero(find_grid(walk(names, {"reward": reward})).marked).tolist() == [8]
    grid = find_grid(walk(names, {"reward": reward}, {"goal": ["r2c2"]}))
    assert not grid.marked.any()
    assert np.flatnonzero(grid.goal).tolist() == [8]


def test_holes_that_are_never_left_are_holes():
    mdp = cm.worlds.lake(size=6, restart=False)
    grid = find_grid(mdp)
    assert grid.marks == ("hole",)
    assert np.array_equal(np.flatnonzero(grid.marked), np.unique(mdp.state[mdp.costs["hole"] > 0]))
    assert np.flatnonzero(grid.goal).tolist() == [35]


def test_a_start_anywhere_is_not_marked():
    mdp = cm.worlds.gridworld(size=3)
    uniform = cm.MDP.from_pairs(mdp.state, mdp.action, mdp.transitions, mdp.costs, 0.9, states=mdp.states)
    assert not find_grid(uniform).start.any()
