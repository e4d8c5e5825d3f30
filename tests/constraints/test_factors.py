"""Robust budgets from a few common factors."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cvxmdp as cm

WORLDS = {
    "queue": (cm.worlds.queue(8, discount=0.95), "delay", "power"),
    "grid": (cm.worlds.gridworld(size=4), "time", "collision"),
}


def factors_of(mdp, cost, count=3):
    rng = np.random.default_rng(5)
    return 0.3 * (0.1 + mdp.costs[cost])[:, None] * rng.normal(size=(mdp.num_pairs, count))


def peer(mdp, objective, cost, F, limit):
    """The problem as a second solver has it."""
    P, d = sp.csr_array(mdp.transitions), cp.Variable(mdp.num_pairs, nonneg=True)
    at = sp.csr_array((np.ones(mdp.num_pairs), (mdp.state, np.arange(mdp.num_pairs))))
    flow = [(at - mdp.discount * P.T) @ d == (1 - mdp.discount) * mdp.initial]
    worst = mdp.costs[cost] @ d + cp.norm(F.T @ d)
    if objective is None:
        problem = cp.Problem(cp.Minimize(worst), flow)
    else:
        problem = cp.Problem(cp.Minimize(mdp.costs[objective] @ d), [*flow, worst <= limit])
    problem.solve(solver="CLARABEL")
    return problem.value, np.asarray(d.value)


@pytest.mark.parametrize("method", ["auto", "path", "splitting", "newton", "conic"])
@pytest.mark.parametrize("world", WORLDS)
def test_thin_factors_are_the_conic_program(world, method, tmp_path):
    mdp, objective, cost = WORLDS[world]
    F = factors_of(mdp, cost)
    least = peer(mdp, None, cost, F, None)[0]
    _, free = peer(mdp, objective, cost, F, 1e9)
    limit = (least + float(mdp.costs[cost] @ free + np.linalg.norm(F.T @ free))) / 2
    value, _ = peer(mdp, objective, cost, F, limit)
    problem = cm.Problem(mdp, objective, [cm.RobustBudget(cost, cm.Ellipsoid(factors=F), at_most=limit)])
    solution = problem.solve(method=method)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == pytest.approx(value, rel=1e-4)
    solution.certificate.check(problem)
    solution.save(tmp_path / "answer.npz")
    cm.load_solution(tmp_path / "answer.npz").certificate.check(problem)


def test_below_the_least_worst_case_nothing_obeys():
    mdp, objective, cost = WORLDS["queue"]
    F = factors_of(mdp, cost)
    least = peer(mdp, None, cost, F, None)[0]
    problem = cm.Problem(mdp, objective, [cm.RobustBudget(cost, cm.Ellipsoid(factors=F), at_most=0.9 * least)])
    solution = problem.solve()
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 10**6))
def test_a_thin_ellipsoid_is_the_full_one(pairs, count, seed):
    rng = np.random.default_rng(seed)
    F, cost, point = rng.normal(size=(pairs, count)), rng.normal(size=pairs), 3 * rng.normal(size=pairs)
    thin, full = (
        cm.RobustBudget(cost, errors, at_most=0.5) for errors in (cm.Ellipsoid(factors=F), cm.Ellipsoid(F @ F.T))
    )
    # The full matrix has half of the digits: small axes are lost in its rounding.
    np.testing.assert_allclose(thin.project(point), full.project(point), atol=1e-5 * (1 + np.linalg.norm(point)))
    assert thin.violation(thin.project(point)) <= 1e-9
    worst = cost @ point + np.max(np.linalg.norm(F.T @ point))
    assert thin.violation(point) == pytest.approx(max(worst - 0.5, 0.0), abs=1e-9)


@pytest.mark.parametrize(
    "given", [{}, {"matrix": [1.0], "factors": [[1.0]]}, {"factors": [1.0]}, {"factors": [[np.nan]]}]
)
def test_bad_factors_are_refused(given):
    with pytest.raises(ValueError, match=r"one of them|one row a pair"):
        cm.Ellipsoid(**given)


def test_many_pairs_take_no_square_matrix():
    mdp = cm.worlds.gridworld(size=60)
    F = np.zeros((mdp.num_pairs, 2))
    F[:, 0], F[::2, 1] = 0.1 * mdp.costs["collision"], 0.05
    problem = cm.Problem(mdp, "time", [cm.RobustBudget("collision", cm.Ellipsoid(factors=F), at_most=0.2)])
    solution = problem.solve()
    assert solution.status is cm.Status.OPTIMAL
    solution.certificate.check(problem)
