"""Mixing against HiGHS, and its answers to infeasible problems against quadratic programs."""

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from engine_oracles import (
    interior_occupancy,
    linear_block,
    optimum,
    random_rows,
    with_absorbing_state,
    with_unreachable_states,
)
from oracles import as_mdp, lp_optimum, nearest_displacement, random_model

MODELS = {
    "dense": random_model(0, states=6, actions=3),
    "few successors": random_model(1, states=10, actions=3, branching=2),
    "ragged": random_model(2, states=8, actions=4, ragged=True),
    "one state": random_model(3, states=1, actions=4),
    "short memory": random_model(4, states=6, actions=3, discount=0.5),
    "long memory": random_model(5, states=6, actions=3, discount=0.9999),
    "absorbing": with_absorbing_state(random_model(6, states=6, actions=3, discount=0.99)),
    "unreachable": with_unreachable_states(random_model(7, states=6, actions=3)),
}


def problem_of(model, E, b, sparse=False):
    return cm.Problem(as_mdp(model, sparse), "cost", [cm.Linear(E, at_most=b)])


def assert_lp_optimum(problem, solution, model, E, b, tolerance):
    best, _, multipliers = lp_optimum(model, problem.cost, E, b)
    scale = np.abs(problem.cost) @ solution.occupancy
    excess = np.maximum(E @ solution.occupancy - b, 0)
    assert solution.status is cm.Status.OPTIMAL
    solution.certificate.check(problem)
    assert solution.value <= best + (tolerance + 1e-9) * scale
    assert solution.value >= best - multipliers @ excess - 1e-9 * scale


@pytest.mark.parametrize("tolerance", [1e-6, 1e-9])
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("name", MODELS)
def test_the_optimum_is_the_linear_program_s(name, rows, tolerance):
    model = MODELS[name]
    E, b = random_rows(model, 10 + rows, rows, room=0.01)
    problem = problem_of(model, E, b, sparse=name == "few successors")
    solution = problem.solve(method="mixing", tolerance=tolerance)
    assert_lp_optimum(problem, solution, model, E, b, tolerance)


@pytest.mark.parametrize("seed", range(12))
def test_prices_match_the_multipliers(seed):
    model = random_model(100 + seed, states=7, actions=3, ragged=seed % 2 == 0, discount=[0.5, 0.9, 0.99][seed % 3])
    E, b = random_rows(model, seed, rows=3)
    problem = problem_of(model, E, b)
    solution = problem.solve(method="mixing")
    assert_lp_optimum(problem, solution, model, E, b, 1e-6)
    multipliers = lp_optimum(model, problem.cost, E, b)[2]
    np.testing.assert_allclose(solution.prices["linear"], -multipliers, atol=1e-6 * max(multipliers.max(), 1))


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("evaluation", ["direct", "iterative"])
def test_every_setting_finds_the_same_optimum(smoothing, evaluation):
    for name in ("dense", "ragged", "few successors"):
        model = MODELS[name]
        E, b = random_rows(model, 5, rows=3)
        problem = problem_of(model, E, b)
        solution = problem.solve(method=cm.Mixing(smoothing=smoothing, evaluation=evaluation))
        assert_lp_optimum(problem, solution, model, E, b, 1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_rows_with_two_sides_and_equalities(seed):
    model = random_model(seed, states=6, actions=3)
    c = model["costs"]["cost"]
    E, middle = random_rows(model, seed, rows=3)
    lower, upper = middle - np.array([0.01, 0.0, np.inf]), middle + np.array([0.02, 0.0, 0.01])
    problem = cm.Problem(as_mdp(model), "cost", [cm.Linear(E, at_most=upper, at_least=lower)])
    solution = problem.solve(method="mixing")
    best, _, _ = lp_optimum(model, c, np.vstack([E, -E[:2]]), np.concatenate([upper, -lower[:2]]))
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == pytest.approx(best, abs=2e-6 * np.abs(c).max())


def test_sparse_rows_and_dense_rows_give_the_same_answer():
    model = MODELS["dense"]
    E, b = random_rows(model, 5, rows=3)
    E = np.where(np.abs(E) < 0.5, 0.0, E)
    b = E @ interior_occupancy(model, 5)
    mdp = as_mdp(model)
    dense = cm.Problem(mdp, "cost", [cm.Linear(E, at_most=b)]).solve(method="mixing")
    sparse = cm.Problem(mdp, "cost", [cm.Linear(sp.csr_array(E), at_most=b)]).solve(method="mixing")
    assert sparse.value == pytest.approx(dense.value, rel=1e-9)
    np.testing.assert_allclose(sparse.prices["linear"], dense.prices["linear"], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["dense", "ragged", "long memory"])
def test_duplicate_and_scaled_rows_change_nothing(name):
    model = MODELS[name]
    E, b = random_rows(model, 5, rows=2)
    scales = np.array([1.0, 1.0, 3.0, 1e6, 1e-6, 2.0])
    many, limits = np.tile(E, (3, 1)) * scales[:, None], np.tile(b, 3) * scales
    problem = problem_of(model, many, limits)
    solution = problem.solve(method="mixing")
    assert solution.status is cm.Status.OPTIMAL
    solution.certificate.check(problem)
    assert solution.value == pytest.approx(lp_optimum(model, problem.cost, E, b)[0], rel=2e-6)


def test_separate_budgets_are_one_set_of_rows():
    model = MODELS["dense"]
    E, b = random_rows(model, 5, rows=3)
    mdp = as_mdp(model)
    together = cm.Problem(mdp, "cost", [cm.Linear(E, at_most=b)]).solve(method="mixing")
    apart = cm.Problem(mdp, "cost", [cm.Budget(row, at_most=limit) for row, limit in zip(E, b, strict=True)])
    solution = apart.solve(method="mixing")
    solution.certificate.check(apart)
    assert solution.value == pytest.approx(together.value, rel=1e-9)
    assert list(solution.prices) == ["budget", "budget (2)", "budget (3)"]
    np.testing.assert_allclose(list(solution.prices.values()), together.prices["linear"], rtol=1e-6, atol=1e-9)


def test_mixing_refuses_curved_constraints():
    model = MODELS["dense"]
    problem = cm.Problem(as_mdp(model), "cost", [cm.NormBall(interior_occupancy(model), 0.01)])
    for method in ("mixing", cm.Mixing()):
        with pytest.raises(ValueError, match="linear"):
            problem.solve(method=method)


def infeasible_rows(seed):
    model = random_model(seed, states=6, actions=3, ragged=seed % 2 == 1, discount=[0.5, 0.9, 0.99][seed % 3])
    E, b = random_rows(model, seed, rows=2 + seed % 2)
    return model, E, b - 2.0


@pytest.mark.parametrize("seed", range(8))
def test_an_infeasible_problem_gets_the_displacement_and_a_bracket_of_its_norm(seed):
    model, E, b = infeasible_rows(seed)
    problem = problem_of(model, E, b)
    solution = problem.solve(method="mixing")
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)
    v, _ = nearest_displacement(model, E, b)
    size = np.linalg.norm(v)
    low, high = solution.infeasibility.distance
    assert low <= size * (1 + 1e-6)
    assert size * (1 - 1e-6) <= high <= (1 + 2e-4) * low
    assert np.linalg.norm(solution.infeasibility.displacement - v) <= 0.02 * size  # sqrt of the distance's accuracy


@pytest.mark.parametrize("seed", range(8))
def test_the_policy_of_an_infeasible_problem_is_the_cheapest_of_the_nearest(seed):
    """Proposition 4: it solves the problem over D and C + v."""
    model, E, b = infeasible_rows(seed)
    c = model["costs"]["cost"]
    solution = problem_of(model, E, b).solve(method="mixing")
    v, _ = nearest_displacement(model, E, b)
    best, _, _ = optimum(model, c, [linear_block(E, b + E @ v + 1e-6)])
    scale = np.abs(c) @ solution.occupancy
    assert solution.value == pytest.approx(best, abs=1e-4 * scale)  # the optimum of limits with a hair of room
    # Relaxing every limit by what is reported makes the problem feasible, and the policy obeys.
    relaxed = b + solution.infeasibility.relax["linear"].exceeded
    assert np.all(E @ solution.occupancy <= relaxed + 1e-9)


@pytest.mark.parametrize("dear_first", [True, False])
def test_among_equally_near_policies_the_cheapest_is_returned(dear_first):
    """Nothing but the risk matters to the distance: it fixes the action in state 0 and leaves it free in state 1."""
    cost = [10.0, 0.0, 5.0, 2.0] if dear_first else [10.0, 0.0, 2.0, 5.0]
    mdp = cm.MDP.from_pairs(
        [0, 0, 1, 1], [0, 1, 0, 1], np.full((4, 2), 0.5), {"cost": cost, "risk": [0.0, 1.0, 0.3, 0.3]}, 0.9, [0.5, 0.5]
    )
    solution = cm.Problem(mdp, "cost", [cm.Budget("risk", at_most=0.05)]).solve(method="mixing")
    assert solution.status is cm.Status.INFEASIBLE
    np.testing.assert_allclose(solution.policy.probabilities, [1, 0, 0, 1] if dear_first else [1, 0, 1, 0], atol=1e-5)
    assert solution.value == pytest.approx(6.0, rel=2e-6)  # half of the time in each state
    assert solution.costs["risk"] == pytest.approx(0.15, rel=1e-6)
    row = np.array([0.0, 1.0, 0.3, 0.3])
    np.testing.assert_allclose(solution.infeasibility.displacement, 0.1 * row / (row @ row), rtol=1e-6)
    assert solution.infeasibility.relax["risk"].exceeded == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize("rows", [20, 60])
def test_many_rows_are_mixed_too(rows):
    model = random_model(50, states=8, actions=3)
    E, b = random_rows(model, 50, rows, room=0.02)
    problem = problem_of(model, E, b)
    solution = problem.solve(method="mixing")
    assert_lp_optimum(problem, solution, model, E, b, 1e-6)
