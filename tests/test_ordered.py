"""Sweeps along the flow, and what the Newton methods ask of a model, against their definitions."""

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.dynamics.dense import DenseDynamics
from cvxmdp.dynamics.ordered import Ordered
from cvxmdp.dynamics.plan import Plan
from cvxmdp.dynamics.sparse import SparseDynamics
from oracles import as_mdp, flow_matrix, random_model, random_policy


def scrambled(mdp, seed):
    """The same world with its states renumbered at random."""
    new = np.random.default_rng(seed).permutation(mdp.num_states)
    order = np.lexsort((mdp.action, new[mdp.state]))
    back = np.argsort(new)
    return cm.MDP.from_pairs(
        new[mdp.state][order], mdp.action[order], sp.csr_array(mdp.transitions[order][:, back]),
        {name: cost[order] for name, cost in mdp.costs.items()}, discount=mdp.discount, initial=mdp.initial[back],
    )  # fmt: skip


WORLDS = {
    "grid": cm.worlds.gridworld(21, 0.99, seed=1),
    "patient grid": cm.worlds.gridworld(21, 0.9999, seed=2),
    "scrambled grid": scrambled(cm.worlds.gridworld(21, 0.99, seed=1), 5),
    "random": as_mdp(random_model(1, states=450, actions=2, branching=3), sparse=True),
    "ragged": as_mdp(random_model(2, states=450, actions=3, branching=4, ragged=True), sparse=True),
}


@pytest.mark.parametrize(("name", "flows"), [("grid", True), ("scrambled grid", True), ("random", False)])
def test_sweeps_are_given_up_where_nothing_flows(name, flows):
    dynamics = WORLDS[name].with_discount(0.999).dynamics()
    c = next(iter(WORLDS[name].costs.values()))
    V = dynamics.iterate_values(c, None, 1e-9, np.inf)
    before = dynamics.passes
    assert dynamics._ordered.hopeless is not flows
    again = dynamics.iterate_values(c, V, 1e-12, np.inf)
    assert (dynamics.passes > before) is flows
    assert (again is V) is not flows


@pytest.mark.parametrize("earlier", ["away", "nothing", "noise", "back", "infeasible"])
def test_an_earlier_solve_does_not_slow_a_model(earlier):
    """A past bug: what sweeps learned of one cost, or that they failed, was kept for all costs (0.1 s became 20 s)."""
    fresh, used = (cm.worlds.gridworld(60, 0.9) for _ in range(2))
    costs = {
        "away": -used.costs["time"],
        "nothing": np.zeros(used.num_pairs),
        "noise": np.random.default_rng(0).normal(size=used.num_pairs),
        "back": (used.state != 0).astype(float),
    }
    if earlier == "infeasible":
        limits = [cm.Budget("collision", at_most=1e-9), cm.Budget("time", at_most=0.2)]
        assert cm.Problem(used, "time", limits).solve(explain=False).status is cm.Status.INFEASIBLE
    else:
        cm.Problem(used, costs[earlier]).solve()
    alone, after = (cm.Problem(mdp, "time").solve() for mdp in (fresh, used))
    assert after.status is alone.status is cm.Status.OPTIMAL
    assert after.stats.sweeps == alone.stats.sweeps


@pytest.mark.parametrize("name", WORLDS)
def test_sweeps_solve_bellmans_equation_and_the_flow_equations(name):
    mdp = WORLDS[name]
    first = np.searchsorted(mdp.state, np.arange(mdp.num_states + 1)).astype(np.int64)
    P = sp.csr_array(mdp.transitions)
    ordered, c = Ordered(P, first, mdp.discount), next(iter(mdp.costs.values()))
    V, reached = ordered.iterate_values(c, None, 1e-7, np.inf)
    total = c + mdp.discount * (P @ V)
    best = np.minimum.reduceat(total, first[:-1])
    assert reached or "grid" not in name  # elsewhere they may give up
    if reached:
        np.testing.assert_allclose(V, best, atol=1e-7)
    again, _ = ordered.iterate_values(c + 0.1 * (mdp.state % 3 == 0), V, 1e-7, np.inf)
    assert np.all(again >= V - 1e-6)  # dearer everywhere
    pi = random_policy({"state": mdp.state}, 0)
    greedy = np.zeros_like(pi)
    greedy[[first[s] + np.argmin(total[first[s] : first[s + 1]]) for s in range(mdp.num_states)]] = 1.0
    for policy in (pi, greedy):
        x = ordered.solve(policy, (1 - mdp.discount) * mdp.initial)
        assert x is not None or policy is pi or "grid" not in name
        if x is not None:
            flow = x - mdp.discount * (P.T @ (x[mdp.state] * policy))
            assert np.abs(flow - (1 - mdp.discount) * mdp.initial).sum() <= 1e-12 * (1 - mdp.discount)


@pytest.mark.parametrize("name", ["grid", "scrambled grid"])
def test_sweeps_along_the_flow_are_few(name):
    mdp = WORLDS[name]
    dynamics = mdp.dynamics()
    solution = cm.Problem(mdp, next(iter(mdp.costs))).solve()
    assert solution.status is cm.Status.OPTIMAL
    assert dynamics.plan.ordered
    assert solution.stats.sweeps <= 60


@pytest.mark.parametrize("mdp", WORLDS.values(), ids=WORLDS)
def test_an_answer_by_sweeps_is_the_one_factors_give(mdp):
    name = list(mdp.costs)[-1]
    free = cm.Problem(mdp, name).solve()
    other = cm.Problem(mdp, name).solve(method=cm.Splitting(evaluation="direct"))
    assert free.value == pytest.approx(other.value, rel=1e-6, abs=1e-9)
    first = next(iter(mdp.costs))
    unlimited = cm.Problem(mdp, first).solve()
    bound = 0.5 * (unlimited.costs[name] + free.value)
    limited = cm.Problem(mdp, first, [cm.Budget(name, at_most=bound)])
    by_sweeps, by_factors = limited.solve(), limited.solve(method=cm.Mixing(evaluation="direct"))
    assert by_sweeps.status is by_factors.status is cm.Status.OPTIMAL
    by_sweeps.certificate.check(limited)
    scale = np.abs(limited.cost) @ by_sweeps.occupancy
    assert by_sweeps.value == pytest.approx(by_factors.value, abs=2e-6 * scale)


@pytest.mark.parametrize("kind", [DenseDynamics, SparseDynamics])
@pytest.mark.parametrize("how", ["dense", "sparse", "iterative"])
@pytest.mark.parametrize(
    "model",
    [random_model(0, states=25), random_model(2, states=25, actions=4, ragged=True, branching=5), random_model(3, 1)],
    ids=["dense", "ragged", "one state"],
)
def test_weighted_products_are_products_with_the_model(model, kind, how):
    mdp = as_mdp(model, sparse=kind is SparseDynamics)
    dynamics, rng = kind(mdp, mdp.transitions, Plan(how, how, how, "as the test asks")), np.random.default_rng(1)
    M = -flow_matrix(model).T
    V, weights = rng.normal(size=M.shape[1]), rng.uniform(size=M.shape[0])
    weights[rng.random(weights.size) < 0.3] = 0.0
    H = M.T @ (weights[:, None] * M)
    np.testing.assert_allclose(dynamics.weighted(weights, V), H @ V, atol=1e-12)
    np.testing.assert_allclose(dynamics.weighted_diagonal(weights), np.diag(H), atol=1e-12)
    X = rng.normal(size=(M.shape[0], 3)) * (rng.random((M.shape[0], 3)) < 0.5)
    for given in (X, sp.csc_array(X)):
        out = dynamics.flows(given)
        np.testing.assert_allclose(out.toarray() if sp.issparse(out) else out, -M.T @ X, atol=1e-12)
