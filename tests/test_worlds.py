"""The ready-made models: the grid world cell by cell and against HiGHS, Garnet by its definition."""

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from oracles import lp_optimum


def plain(mdp):
    """The model as the oracles hold it."""
    P = mdp.transitions.toarray() if sp.issparse(mdp.transitions) else mdp.transitions
    return {
        "state": mdp.state, "action": mdp.action, "P": P, "costs": dict(mdp.costs), "initial": mdp.initial,
        "discount": mdp.discount,
    }  # fmt: skip


@pytest.fixture(scope="module")
def grid():
    return cm.worlds.gridworld()


# ------------------------------------------------------------------------------------------------- grid world


def moves(mdp, cell, action):
    """Where a pair leads: {name of the next state: probability}."""
    pair = np.flatnonzero((mdp.state == mdp.states.index(cell)) & (mdp.action == mdp.actions.index(action)))
    (row,) = mdp.transitions[pair].toarray()
    return {mdp.states[t]: row[t] for t in np.flatnonzero(row)}


def test_the_map_of_the_paper_has_625_cells_and_45_obstacles(grid):
    assert (grid.num_states, grid.num_pairs, grid.discount) == (625, 2500, 0.99)
    assert len({tuple(cell) for cell in cm.worlds.obstacle_cells(grid)}) == 45
    assert grid.actions == ("up", "down", "left", "right")
    assert (grid.states[0], grid.states[26], grid.states[-1]) == ("r0c0", "r1c1", "r24c24")


def test_in_a_corner_a_slip_goes_to_one_of_two_cells(grid):
    assert moves(grid, "r0c0", "right") == pytest.approx({"r0c1": 0.95 + 0.025, "r1c0": 0.025})
    assert moves(grid, "r0c0", "up") == pytest.approx({"r0c0": 0.95, "r0c1": 0.025, "r1c0": 0.025})
    assert moves(grid, "r24c0", "down") == pytest.approx({"r24c0": 0.95, "r23c0": 0.025, "r24c1": 0.025})
    assert moves(grid, "r0c24", "left") == pytest.approx({"r0c23": 0.95 + 0.025, "r1c24": 0.025})


def test_on_an_edge_a_slip_goes_to_one_of_three_cells(grid):
    third = 0.05 / 3
    assert moves(grid, "r0c5", "up") == pytest.approx({"r0c5": 0.95, "r0c4": third, "r0c6": third, "r1c5": third})
    assert moves(grid, "r0c5", "down") == pytest.approx({"r1c5": 0.95 + third, "r0c4": third, "r0c6": third})
    assert moves(grid, "r7c24", "right") == pytest.approx(
        {"r7c24": 0.95, "r6c24": third, "r8c24": third, "r7c23": third}
    )


@pytest.mark.parametrize(("action", "target"), [("up", "r6c9"), ("down", "r8c9"), ("left", "r7c8"), ("right", "r7c10")])
def test_inside_a_slip_goes_to_one_of_four_cells(grid, action, target):
    expected = dict.fromkeys(["r6c9", "r8c9", "r7c8", "r7c10"], 0.0125)
    expected[target] += 0.95
    assert moves(grid, "r7c9", action) == pytest.approx(expected)


def test_the_destination_is_never_left(grid):
    for action in grid.actions:
        assert moves(grid, "r24c24", action) == {"r24c24": 1.0}


def test_an_obstacle_costs_a_collision_and_does_not_block(grid):
    cells = cm.worlds.obstacle_cells(grid)
    row, column = cells[0]
    assert moves(grid, f"r{row - 1}c{column}", "down")[f"r{row}c{column}"] == pytest.approx(0.9625)
    assert moves(grid, f"r{row}c{column}", "down")[f"r{row + 1}c{column}"] == pytest.approx(0.9625)
    collided = {grid.states[s] for s in grid.state[grid.costs["collision"] == 1]}
    assert collided == {f"r{r}c{c}" for r, c in cells}
    assert set(np.unique(grid.costs["collision"])) == {0.0, 1.0}


def test_time_passes_everywhere_but_at_the_destination(grid):
    np.testing.assert_array_equal(grid.costs["time"], np.where(grid.state == 624, 0.0, 1.0))
    np.testing.assert_array_equal(grid.initial, np.eye(625)[0])


def test_without_slip_the_shortest_path_has_its_analytic_time():
    """Eight steps on a grid of five: ``(1 - g) (1 + g + ... + g^7) = 1 - g^8``."""
    solution = cm.Problem(cm.worlds.gridworld(size=5, slip=0.0, obstacles=[]), "time").solve()
    assert solution.value == pytest.approx(1 - 0.99**8, rel=1e-9)


def test_the_least_time_without_constraints_is_as_documented(grid):
    value, _, _ = lp_optimum(plain(grid), grid.costs["time"])
    assert value == pytest.approx(0.39579, abs=5e-6)
    solution = cm.Problem(grid, "time").solve()
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("collision", "documented"), [(1e-3, 0.420914), (2e-4, 0.504861)])
def test_the_feasible_panels_have_the_optima_that_highs_finds(grid, collision, documented):
    """Both limits of the panel, time at most 0.9 and collision as given."""
    E = np.stack([grid.costs["time"], grid.costs["collision"]])
    value, _, multipliers = lp_optimum(plain(grid), grid.costs["time"], E, [0.9, collision])
    assert value == pytest.approx(documented, abs=1e-6)
    limits = [cm.Budget("time", at_most=0.9), cm.Budget("collision", at_most=collision)]
    problem = cm.Problem(grid, "time", limits)
    solution = problem.solve()
    assert solution.status is cm.Status.OPTIMAL
    solution.certificate.check(problem)
    assert solution.value == pytest.approx(value, rel=2e-6)
    assert solution.prices["collision"] == pytest.approx(-multipliers[1], rel=1e-3)
    assert solution.prices["time"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("time", "documented"), [(0.9, 3.13e-5), (0.6, 1.25e-4)])
def test_the_infeasible_panels_allow_less_collision_than_any_policy_has(grid, time, documented):
    least, _, _ = lp_optimum(plain(grid), grid.costs["collision"], grid.costs["time"][None], [time])
    assert least == pytest.approx(documented, rel=0.01)
    assert least > 2e-5


def test_other_sizes_draw_obstacles_of_the_same_density_from_the_seed():
    one, same, other = (cm.worlds.gridworld(size=10, seed=seed) for seed in (1, 1, 2))
    cells = [{tuple(cell) for cell in cm.worlds.obstacle_cells(mdp)} for mdp in (one, same, other)]
    assert cells[0] == cells[1] != cells[2]
    assert len(cells[0]) == len(cells[2]) == round(100 * 45 / 625)
    assert not {(0, 0), (9, 9)} & (cells[0] | cells[2])


def test_given_obstacles_are_the_obstacles():
    mdp = cm.worlds.gridworld(size=4, obstacles=[(3, 1), (0, 2)])
    np.testing.assert_array_equal(cm.worlds.obstacle_cells(mdp), [[0, 2], [3, 1]])
    assert len(cm.worlds.obstacle_cells(cm.worlds.gridworld(size=4, obstacles=[]))) == 0


@pytest.mark.parametrize("size", [2, 3, 7])
def test_every_row_of_a_grid_is_a_distribution(size):
    P = cm.worlds.gridworld(size=size, slip=0.3).transitions
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-14)
    assert P.data.min() > 0


# ----------------------------------------------------------------------------------------------------- Garnet

SHAPES = [(40, 3, 0.05), (40, 3, 0.2), (40, 3, 0.25), (40, 3, 0.6), (40, 3, 1.0), (1, 2, 0.5), (7, 1, 0.01)]


@pytest.mark.parametrize(("states", "actions", "branching"), SHAPES)
def test_every_pair_of_a_garnet_reaches_the_same_number_of_states(states, actions, branching):
    mdp = cm.worlds.garnet(states, actions, branching, seed=3)
    P = sp.csr_array(mdp.transitions)
    assert (mdp.num_states, mdp.num_pairs) == (states, states * actions)
    assert set(np.diff(P.indptr)) == {max(1, round(branching * states))}
    assert P.data.min() > 0
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(mdp.initial, 1 / states)
    assert sp.issparse(mdp.transitions) == (branching < 0.25)


def test_the_same_seed_gives_the_same_garnet_and_another_seed_another():
    for branching in (0.1, 0.5):
        one, same, other = (cm.worlds.garnet(30, 4, branching, seed=seed) for seed in (5, 5, 6))
        assert abs(one.transitions - same.transitions).max() == 0
        np.testing.assert_array_equal(one.costs["cost"], same.costs["cost"])
        assert abs(one.transitions - other.transitions).max() > 0.1
        assert not np.array_equal(one.costs["cost"], other.costs["cost"])


def test_a_garnets_cost_is_standard_normal():
    cost = cm.worlds.garnet(1000, 10, 0.01, seed=0).costs["cost"]
    assert cost.mean() == pytest.approx(0, abs=0.05)  # five standard errors
    assert cost.std() == pytest.approx(1, abs=0.04)
    assert np.mean(np.abs(cost) < 1) == pytest.approx(0.6827, abs=0.025)


@pytest.mark.parametrize("branching", [0.1, 0.5])
def test_a_garnets_successors_are_spread_evenly_over_the_states(branching):
    """Each of 50 states is reached from a fraction ``branching`` of the 2500 pairs, within five standard deviations."""
    P = cm.worlds.garnet(50, 50, branching, seed=1).transitions
    reached = (P > 0).sum(axis=0) / 2500
    np.testing.assert_allclose(reached, branching, atol=5 * np.sqrt(branching * (1 - branching) / 2500))


@pytest.mark.parametrize("branching", [0.1, 0.5])
def test_a_garnets_probabilities_are_gaps_between_uniform_cuts(branching):
    """A gap between n - 1 cuts of [0, 1] has mean 1/n and second moment ``2 / (n (n + 1))``, the first as the last."""
    P = sp.csr_array(cm.worlds.garnet(50, 50, branching, seed=2).transitions)
    n = round(50 * branching)
    gaps = P.data.reshape(2500, n)
    assert np.mean(gaps**2) == pytest.approx(2 / (n * (n + 1)), rel=0.05)
    np.testing.assert_allclose(gaps.mean(axis=0), 1 / n, rtol=0.12)
