"""Claims that must not be made, and problems that must not break: each was once otherwise."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

import cvxmdp as cm
from cvxmdp.certificate import Proof

STAY, GO = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]


def solved(problem, **settings):
    """Solve and check the proof."""
    solution = problem.solve(time_limit=20, **settings)
    solution.certificate.check(problem)
    return solution


def garnet_and_occupancy():
    mdp = cm.worlds.garnet(10, 3, 0.4, seed=0)
    return mdp, mdp.evaluate(mdp.policy(np.random.default_rng(1).dirichlet(np.ones(3), size=10))).occupancy


@pytest.mark.parametrize("seed", [1373, 1277, 5])
def test_nearly_parallel_rows_are_not_called_contradictory(seed):
    """The LP behind the proof is exact to 1e-7 only: what it says is believed when the margin is positive."""
    mdp, d = garnet_and_occupancy()
    rng = np.random.default_rng(seed)
    spread, rows = 10.0 ** rng.uniform(-10, -5), int(rng.integers(2, 9))
    base = rng.uniform(size=(1 if rng.random() < 0.5 else 2, 30))
    E = base[rng.integers(len(base), size=rows)] + spread * rng.normal(size=(rows, 30))
    value, above = E @ d, rng.random(rows) < 0.5
    at_most, at_least = np.where(above, value + 1e-14, np.inf), np.where(above, -np.inf, value - 1e-14)
    limit = cm.Linear(E, at_most=at_most, at_least=at_least)
    assert limit.violation(d) == 0
    assert solved(cm.Problem(mdp, "cost", [limit])).status is not cm.Status.INFEASIBLE


@pytest.mark.parametrize("method", ["newton", "splitting", "mixing"])
def test_rows_that_differ_by_a_billionth_do_not_break_a_solve(method):
    mdp, d = garnet_and_occupancy()
    a = np.random.default_rng(3).uniform(size=30)
    rows = [cm.Linear(a, at_most=a @ d), cm.Linear(a, at_least=(a @ d) * (1 + 1e-9))]
    solution = solved(cm.Problem(mdp, "cost", rows), method=method)
    # A billionth is within the tolerance: the answer is that of the row as an equality, by HiGHS.
    flow = (mdp.state == np.arange(10)[:, None]) - mdp.discount * sp.csr_array(mdp.transitions).toarray().T
    equal = np.append((1 - mdp.discount) * mdp.initial, a @ d)
    best = linprog(mdp.costs["cost"], A_eq=np.vstack([flow, a]), b_eq=equal, method="highs")
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == pytest.approx(best.fun, abs=3e-6 * (np.abs(mdp.costs["cost"]) @ solution.occupancy))


@pytest.mark.parametrize("spread", [1e-7, 1e-8, 1e-9])
def test_nearly_parallel_rows_beside_a_curved_set(spread):
    mdp, d = garnet_and_occupancy()
    rng = np.random.default_rng(1)
    for _ in range(3):
        a = rng.uniform(size=30)
        b = a + 5 * spread * rng.normal(size=30)
        limits = [cm.Linear(a, at_most=a @ d), cm.Linear(b, at_least=b @ d), cm.Entropy(0.1)]
        assert solved(cm.Problem(mdp, "cost", limits)).status is cm.Status.OPTIMAL


@pytest.mark.parametrize("large", [1e6, 1e12])
def test_a_large_entry_of_a_pair_never_visited_does_not_loosen_its_row(large):
    mdp = cm.worlds.gridworld(size=5)
    least = cm.Problem(mdp, "time").solve().value
    cost = mdp.costs["time"].copy()
    cost[(mdp.state == 20) & (mdp.action == 0)] = large
    assert solved(cm.Problem(mdp, "time", [cm.Budget(cost, at_most=0.5 * least)])).status is cm.Status.INFEASIBLE


def test_huge_duals_that_cancel_prove_nothing():
    """The only point allowed costs 1.75: no duals may prove more, however rounding falls."""
    mdp = cm.MDP([[[1.0]], [[1.0]]], {"c": [[1.0, 2.0]]}, 0.5)
    for limit in (cm.NormBall([0.25, 0.75], 0.0), cm.Linear(np.eye(2), equal=[0.25, 0.75])):
        problem = cm.Problem(mdp, "c", [limit, limit])
        solution = solved(problem)
        proof = solution.evidence.proofs["bound"]
        total, rng = sum(proof.duals), np.random.default_rng(0)
        prices = {name: np.full_like(price, np.nan) for name, price in solution.prices.items()}
        said = {"status": cm.Status.UNDECIDED, "gap": np.inf, "bound": 1.75 * (1 + 1e-12), "prices": prices}
        for size in 10.0 ** rng.uniform(0, 18, size=100):
            u = size * rng.normal(size=2)
            evidence = dataclasses.replace(solution.evidence, proofs={"bound": Proof([u, total - u], proof.potential)})
            with pytest.raises(cm.CertificateError, match="cost less"):
                dataclasses.replace(solution, evidence=evidence, **said).certificate.check(problem)


def test_duals_of_another_shape_are_refused():
    mdp, d = garnet_and_occupancy()
    problem = cm.Problem(mdp, "cost", [cm.NormBall(d, 0.01, name="near")])
    solution = solved(problem)
    proofs = {"bound": Proof([np.zeros(3)], solution.evidence.proofs["bound"].potential)}
    forged = dataclasses.replace(solution, evidence=dataclasses.replace(solution.evidence, proofs=proofs))
    with pytest.raises(cm.CertificateError, match="dual"):
        forged.certificate.check(problem)


@pytest.mark.parametrize(
    "limits", [[], [cm.Budget("time", 0.5)], [cm.NormBall([0.0, 0.0, 1.0, 0.0], 0.5)], [cm.Entropy(0.0)]]
)
@pytest.mark.parametrize("method", ["auto", "splitting", "newton"])
def test_an_optimum_of_zero_is_proven(limits, method):
    mdp = cm.MDP([STAY, GO], {"time": [1.0, 0.0]}, 0.9, [0.0, 1.0])
    solution = solved(cm.Problem(mdp, "time", limits), method=method)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == 0
    assert solution.gap == 0


def test_one_large_cost_does_not_hide_the_gap():
    mdp = cm.worlds.gridworld(size=5)
    cost = mdp.costs["time"].copy()
    cost[(mdp.state == 20) & (mdp.action == 0)] = 1e8
    solution = solved(cm.Problem(mdp, cost))
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == pytest.approx(cm.Problem(mdp, "time").solve().value, rel=1e-9)
