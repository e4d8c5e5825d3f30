"""The prox of the dynamics against a quadratic program, its own optimality conditions, and Proposition 1."""

import numpy as np
import pytest

from cvxmdp.engines.regularized import newton, open_flow, qrpi
from engine_oracles import interior_occupancy, prox, with_absorbing_state, with_unreachable_states
from oracles import as_mdp, flow_matrix, inflow, random_model

ROUNDS = 3000

MODELS = {
    "dense": random_model(0, states=6, actions=3),
    "ragged": random_model(1, states=7, actions=4, ragged=True, discount=0.99),
    "short memory": random_model(2, states=5, actions=2, discount=0.5),
    "long memory": random_model(5, states=6, actions=3, discount=0.9999),
    "one state": random_model(3, states=1, actions=4),
    "one action": random_model(4, states=5, actions=1),
    "absorbing": with_absorbing_state(random_model(5, states=6, actions=3, discount=0.99)),
    "unreachable": with_unreachable_states(random_model(6, states=6, actions=3)),
    "absorbing and unreachable": with_unreachable_states(with_absorbing_state(random_model(7, states=6, actions=3))),
    "few successors": random_model(8, states=8, actions=3, branching=2, discount=0.95),
}


def setting(model, sigma, seed=0):
    """Cost, a point near the occupancies, and a step that makes the two weigh alike."""
    w = interior_occupancy(model) + 0.1 * np.random.default_rng(seed).normal(size=model["state"].size)
    return model["costs"]["cost"], w, sigma


def solve_by_rounds(dynamics, c, w, sigma, phi, accuracy=1e-9, most=ROUNDS):
    """Rounds of QRPI one at a time, as the paper writes them, until the flow is closed."""
    V, points = np.zeros(dynamics.num_states), []
    for _ in range(most):
        points.append(qrpi(dynamics, c, w, sigma, V, phi, 1))
        V, phi = points[-1].V, points[-1].phi
        if points[-1].residual <= accuracy:
            break
    return points


def dual_height(model, c, w, sigma, V, phi):
    """kappa of eq. (9), term by term."""
    inner = c - flow_matrix(model).T @ V - phi
    return -sigma / 2 * inner @ inner + w @ inner + inflow(model) @ V


@pytest.mark.parametrize("sigma", [0.01, 1.0])
@pytest.mark.parametrize("evaluation", ["direct", "iterative"])
@pytest.mark.parametrize("name", MODELS)
def test_policy_iteration_with_regularization_converges_to_the_prox(name, evaluation, sigma):
    model = MODELS[name]
    c, w, sigma = setting(model, sigma)
    dynamics = as_mdp(model, sparse=name == "ragged").dynamics(evaluation)
    last = solve_by_rounds(dynamics, c, w, sigma, np.zeros(c.size))[-1]
    np.testing.assert_allclose(last.d, prox(model, c, w, sigma), atol=1e-7)


@pytest.mark.parametrize("sigma", [1e-4, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("evaluation", ["direct", "iterative"])
@pytest.mark.parametrize("name", MODELS)
def test_newton_converges_to_the_prox(name, evaluation, sigma):
    model = MODELS[name]
    c, w, sigma = setting(model, sigma)
    dynamics = as_mdp(model, sparse=name == "ragged").dynamics(evaluation)
    point, _ = newton(dynamics, c, w, sigma, np.zeros(dynamics.num_states), 1e-12, 100)
    assert point.residual <= 1e-12
    np.testing.assert_allclose(point.d, prox(model, c, w, sigma), atol=1e-7)


@pytest.mark.parametrize("how", ["qrpi", "newton"])
@pytest.mark.parametrize("name", MODELS)
def test_the_limit_obeys_the_optimality_conditions(name, how):
    """Stationarity ``c + M V - phi + (d - w) / sigma = 0``, the flow, and ``0 <= phi`` complementary to ``0 <= d``."""
    model = MODELS[name]
    c, w, sigma = setting(model, 0.1)
    dynamics = as_mdp(model).dynamics("direct")
    if how == "qrpi":
        point = solve_by_rounds(dynamics, c, w, sigma, np.zeros(c.size), accuracy=1e-11, most=20 * ROUNDS)[-1]
    else:
        point, _ = newton(dynamics, c, w, sigma, np.zeros(dynamics.num_states), 1e-12, 100)
    V, phi, d = point.V, point.phi, point.d
    unit = np.abs(c).max() + np.abs(V).max() + np.abs(w).max() / sigma
    np.testing.assert_allclose(c - flow_matrix(model).T @ V - phi + (d - w) / sigma, 0, atol=1e-12 * unit)
    np.testing.assert_allclose(flow_matrix(model) @ d, inflow(model), atol=1e-10)
    assert np.all(phi >= 0)
    assert np.all(d >= 0)
    assert np.all(phi * d == 0)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "long memory"])  # 10 000 rounds there
def test_every_warm_start_leads_to_the_same_prox(name):
    """Proposition 1 holds for any phi, of any size and sign."""
    model = MODELS[name]
    c, w, sigma = setting(model, 0.1)
    dynamics = as_mdp(model).dynamics("direct")
    expected = prox(model, c, w, sigma)
    for seed, size in enumerate([1.0, 1e3]):
        phi = size * np.random.default_rng(seed).normal(size=c.size)
        last = solve_by_rounds(dynamics, c, w, sigma, phi, most=20 * ROUNDS)[-1]
        np.testing.assert_allclose(last.d, expected, atol=1e-7)


@pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("name", ["dense", "ragged", "short memory", "unreachable", "few successors"])
def test_the_error_falls_by_a_constant_factor_each_round(name, sigma):
    """Proposition 1: the rate is linear.  The line fitted to the logarithms falls and the errors stay by it."""
    model = MODELS[name]
    c, w, sigma = setting(model, sigma)
    dynamics = as_mdp(model).dynamics("direct")
    exact, _ = newton(dynamics, c, w, sigma, np.zeros(dynamics.num_states), 1e-14, 100)
    np.testing.assert_allclose(exact.d, prox(model, c, w, sigma), atol=1e-7)
    points = solve_by_rounds(dynamics, c, w, sigma, np.zeros(c.size), accuracy=1e-11)
    errors = np.array([np.linalg.norm(point.d - exact.d) for point in points])
    tail = np.log10(errors[len(errors) // 3 :])
    assert errors[-1] < 1e-8
    assert tail[0] - tail[-1] > 3  # decades, so that the fit means something
    rounds = np.arange(tail.size)
    slope, height = np.polyfit(rounds, tail, 1)
    assert slope < -0.01
    np.testing.assert_allclose(tail, slope * rounds + height, atol=0.5)


@pytest.mark.parametrize("name", MODELS)
def test_each_round_raises_the_dual_to_the_value_of_the_prox(name):
    """QRPI is block coordinate ascent on eq. (9), so the dual never falls; at the end it meets the primal."""
    model = MODELS[name]
    c, w, sigma = setting(model, 0.1)
    points = solve_by_rounds(as_mdp(model).dynamics("direct"), c, w, sigma, np.zeros(c.size))
    heights = np.array([dual_height(model, c, w, sigma, point.V, point.phi) for point in points])
    d = prox(model, c, w, sigma)
    primal = c @ d + (d - w) @ (d - w) / (2 * sigma)
    unit = np.abs(heights).max() + w @ w / (2 * sigma)
    assert np.all(np.diff(heights) >= -1e-12 * unit)
    np.testing.assert_allclose(heights[-1], primal, atol=1e-9 * unit)


@pytest.mark.parametrize("sigma", [0.01, 1.0])
@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith("one ")])
def test_newton_needs_fewer_steps_than_policy_iteration_needs_rounds(name, sigma):
    model = MODELS[name]
    c, w, sigma = setting(model, sigma)
    dynamics = as_mdp(model).dynamics("direct")
    rounds = len(solve_by_rounds(dynamics, c, w, sigma, np.zeros(c.size), accuracy=1e-9))
    point, steps = newton(dynamics, c, w, sigma, np.zeros(dynamics.num_states), 1e-9, 100)
    assert point.residual <= 1e-9
    assert steps < rounds


@pytest.mark.parametrize("evaluation", ["direct", "iterative"])
@pytest.mark.parametrize("name", ["dense", "one state", "ragged"])
def test_newton_starts_where_no_pair_is_visited(name, evaluation):
    """With w far below the occupancies every entry of the first d is zero, and so is the Hessian."""
    model = MODELS[name]
    c, w = model["costs"]["cost"], np.full(model["state"].size, -20.0)
    dynamics = as_mdp(model).dynamics(evaluation)
    point, _ = newton(dynamics, c, w, 1.0, np.zeros(dynamics.num_states), 1e-10, 200)
    assert point.residual <= 1e-10
    np.testing.assert_allclose(point.d, prox(model, c, w, 1.0), atol=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_a_point_in_the_dynamics_is_its_own_prox_without_cost(name):
    """The prox of zero cost is the projection onto D."""
    model = MODELS[name]
    w = interior_occupancy(model)
    dynamics = as_mdp(model).dynamics("direct")
    point, _ = newton(dynamics, np.zeros(w.size), w, 0.3, np.zeros(dynamics.num_states), 1e-13, 100)
    np.testing.assert_allclose(point.d, w, atol=1e-12)


def test_several_steps_are_that_many_single_steps():
    model = MODELS["dense"]
    c, w, sigma = setting(model, 0.1)
    dynamics = as_mdp(model).dynamics("direct")
    one_by_one = solve_by_rounds(dynamics, c, w, sigma, np.zeros(c.size), accuracy=0.0, most=7)[-1]
    at_once = qrpi(dynamics, c, w, sigma, np.zeros(dynamics.num_states), np.zeros(c.size), 7)
    np.testing.assert_array_equal(at_once.d, one_by_one.d)
    np.testing.assert_array_equal(at_once.phi, one_by_one.phi)


def test_the_residual_is_the_flow_left_open_over_what_flows_in():
    """An open flow r moves an occupancy by at most |r|_1 / (1 - gamma)."""
    model = MODELS["ragged"]
    c, w, sigma = setting(model, 0.1)
    dynamics = as_mdp(model).dynamics("direct")
    point = qrpi(dynamics, c, w, sigma, np.zeros(dynamics.num_states), np.zeros(c.size), 2)
    by_hand = np.abs(flow_matrix(model) @ point.d - inflow(model)).sum() / (1 - model["discount"])
    assert point.residual == pytest.approx(by_hand, rel=1e-10)
    assert open_flow(dynamics, interior_occupancy(model)) < 1e-12
    assert by_hand > 1e-3  # two rounds do not close it, so the test says something


def test_newton_returns_its_best_point_when_steps_run_out():
    model = MODELS["absorbing"]
    c, w, sigma = setting(model, 1.0)
    dynamics = as_mdp(model).dynamics("direct")
    residuals = [newton(dynamics, c, w, sigma, np.zeros(dynamics.num_states), 1e-12, k)[0].residual for k in range(12)]
    assert np.all(np.diff(residuals) <= 0)
    assert newton(dynamics, c, w, sigma, np.zeros(dynamics.num_states), 1e-12, 3)[1] == 3
