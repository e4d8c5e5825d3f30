"""The interior point method: its system by a dense solve, its answers by HiGHS, and what it hands on."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.engines.rows_system import RowsSystem
from engine_oracles import interior_occupancy, with_absorbing_state, with_unreachable_states
from oracles import as_mdp, flow_matrix, lp_optimum, nearest_displacement, owner_matrix, random_model, random_policy

MODELS = {
    "dense": (random_model(0, states=6, actions=3), False),
    "sparse": (random_model(1, states=60, actions=3, branching=3), True),
    "wide": (random_model(9, states=80, actions=3, branching=20), True),
    "ragged": (random_model(2, states=8, actions=4, ragged=True), False),
    "one state": (random_model(3, states=1, actions=4), False),
    "short memory": (random_model(5, states=6, actions=3, discount=0.5), False),
    "longest memory": (random_model(6, states=6, actions=3, discount=0.9999), False),
    "absorbing": (with_absorbing_state(random_model(7, states=6, actions=3)), False),
    "unreachable": (with_unreachable_states(random_model(8, states=7, actions=3)), False),
}


def rows_of(model, kind):
    """Rows and limits that a random policy meets with equality or with room, and the best policy does not meet."""
    rng, d, c = np.random.default_rng(4), interior_occupancy(model), model["costs"]["cost"]
    best = lp_optimum(model, c, np.zeros((1, c.size)), [1.0])[1]
    Xi = owner_matrix(model).T
    if kind == "caps":
        return Xi, np.maximum(Xi @ d, 0.5 * (Xi @ d + Xi @ best)), np.full(len(Xi), -np.inf)
    E = rng.normal(size=(7, d.size))
    E[0] = best - d
    room = 0.3 * np.abs(E @ (best - d))
    upper, lower = E @ d + room, E @ d - 2 * room
    if kind == "equalities":
        upper[3:5] = lower[3:5] = (E @ d)[3:5]
    return E, upper, lower


@pytest.mark.parametrize("kind", ["caps", "both sides", "equalities"])
@pytest.mark.parametrize("name", MODELS)
def test_the_optimum_is_the_one_highs_finds(name, kind):
    model, sparse = MODELS[name]
    E, upper, lower = rows_of(model, kind)
    rows = cm.Linear(sp.csr_array(E) if kind == "caps" else E, at_most=upper, at_least=lower)
    problem = cm.Problem(as_mdp(model, sparse), "cost", [rows])
    solution = problem.solve(method="interior")
    assert solution.status is cm.Status.OPTIMAL
    solution.certificate.check(problem)
    finite = np.isfinite(lower)
    best, _, _ = lp_optimum(model, problem.cost, np.vstack([E, -E[finite]]), np.concatenate([upper, -lower[finite]]))
    scale = np.abs(problem.cost) @ solution.occupancy
    assert solution.value == pytest.approx(best, abs=3e-6 * scale)
    assert rows.relative(solution.occupancy) <= 1e-6


@pytest.mark.parametrize("name", ["dense", "sparse", "wide", "ragged"])
@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize("stretch", [0.0, 0.7])
def test_the_system_is_solved_as_a_whole_one_is(name, disjoint, stretch):
    model, sparse = MODELS[name]
    dynamics, rng = as_mdp(model, sparse).dynamics(), np.random.default_rng(0)
    F = flow_matrix(model)
    S, L = F.shape
    E = owner_matrix(model).T[: S - 1] if disjoint else rng.normal(size=(4, L))
    W, give = rng.uniform(0.1, 2.0, size=L), rng.uniform(0.1, 1.0, size=len(E))
    give[0] = 0.0
    force, wanted, missing = rng.normal(size=L), rng.normal(size=len(E)), rng.normal(size=S)
    rows = sp.csr_array(E) if disjoint else E
    more = stretch * (rows @ rows.T) if stretch else None
    x, V, n = RowsSystem(dynamics, rows, W, give, more).solve(force, wanted, missing)
    M = -F.T
    np.testing.assert_allclose(x / W + M @ V + E.T @ n, force, atol=1e-8)
    np.testing.assert_allclose(E @ x - give * n - stretch * (E @ E.T @ n), wanted, atol=1e-8)
    np.testing.assert_allclose(F @ x, missing, atol=1e-8)


def test_caps_on_every_state_of_a_large_model_are_met_in_few_steps():
    mdp = cm.worlds.garnet(300, 5, 0.05, seed=3)
    d = mdp.evaluate(mdp.policy(random_policy({"state": mdp.state}, 0))).occupancy
    visits = np.bincount(mdp.state, weights=d)
    problem = cm.Problem(mdp, "cost", [cm.StateBounds(upper=1.2 * visits)])
    solution = problem.solve()
    assert solution.status is cm.Status.OPTIMAL
    assert solution.stats.method.startswith("interior point method")
    assert solution.stats.iterations <= 40
    solution.certificate.check(problem)
    assert np.sum(solution.prices["visits"] < -1e-6) > 30  # many caps hold with equality


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_of_costs_and_rows_do_not_matter(scale):
    model, _ = MODELS["dense"]
    E, upper, lower = rows_of(model, "both sides")
    usual, other = (
        cm.Problem(as_mdp(model), k * model["costs"]["cost"], [cm.Linear(E / k, at_most=upper / k, at_least=lower / k)])
        .solve(method="interior")
        for k in (1.0, scale)
    )  # fmt: skip
    assert other.status is cm.Status.OPTIMAL
    assert other.value == pytest.approx(scale * usual.value, rel=1e-5)


def test_where_no_policy_obeys_that_is_proven_and_the_nearest_is_found():
    model, _ = MODELS["dense"]
    mdp, Xi = as_mdp(model), owner_matrix(model).T
    least = min(lp_optimum(model, row, np.zeros((1, row.size)), [1.0])[0] for row in Xi)
    problem = cm.Problem(mdp, "cost", [cm.Linear(Xi, at_most=0.9 * least)])
    solution = problem.solve(method="interior")
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)
    v, _ = nearest_displacement(model, Xi, np.full(len(Xi), 0.9 * least))
    low, high = solution.infeasibility.distance
    assert low <= np.linalg.norm(v) * (1 + 1e-6)
    assert np.linalg.norm(v) * (1 - 1e-6) <= high <= (1 + 1e-5) * low
    np.testing.assert_allclose(solution.infeasibility.displacement, v, atol=1e-4 * np.linalg.norm(v))


def test_it_refuses_what_it_cannot_solve():
    with pytest.raises(ValueError, match='method "interior" needs linear constraints'):
        cm.Problem(as_mdp(MODELS["dense"][0]), "cost", [cm.Entropy(1.0)]).solve(method="interior")


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 10**6), states=st.integers(1, 10), actions=st.integers(1, 4), ragged=st.booleans(),
    discount=st.sampled_from([0.5, 0.9, 0.99]), count=st.integers(1, 12), room=st.sampled_from([0.0, 1e-6, 1e-2, 1.0]),
)  # fmt: skip
def test_any_rows_are_met_as_highs_meets_them(seed, states, actions, ragged, discount, count, room):
    """Also where a single policy obeys: then another engine may have to finish."""
    model = random_model(seed, states, actions, ragged, discount)
    rng = np.random.default_rng(seed)
    E, d = rng.normal(size=(count, model["state"].size)), interior_occupancy(model)
    b = E @ d + room * rng.uniform(size=count) * (np.abs(E) @ d)
    problem = cm.Problem(as_mdp(model), "cost", [cm.Linear(E, at_most=b)])
    solution = problem.solve(method="interior")
    assert solution.status is not cm.Status.INFEASIBLE
    solution.certificate.check(problem)
    best = lp_optimum(model, problem.cost, E, b)
    if best is not None:
        scale = np.abs(problem.cost) @ solution.occupancy
        assert solution.bound <= best[0] + 1e-6 * scale
        if room > 0:
            assert solution.status is cm.Status.OPTIMAL
