"""A policy of one's own, judged: against sums over steps and a second solver."""

import numpy as np
import pytest
import scipy.optimize as opt
import scipy.sparse as sp

import cvxmdp as cm


def by_steps(mdp, pi, cost, steps=4000):
    """The normalized cost of a policy, one step after the other."""
    P = sp.csr_array(mdp.transitions)
    rho, total = mdp.initial.copy(), 0.0
    for t in range(steps):
        d = pi * rho[mdp.state]
        total += (1 - mdp.discount) * mdp.discount**t * float(cost @ d)
        rho = P.T @ d
    return total


def best(mdp, cost, row, limit):
    at = (mdp.state[:, None] == np.arange(mdp.num_states)).astype(float)
    flow = (at - mdp.discount * sp.csr_array(mdp.transitions).toarray()).T
    return opt.linprog(cost, row[None], [limit], flow, (1 - mdp.discount) * mdp.initial).fun


MDP = cm.worlds.gridworld(size=8, seed=1)
EVEN = np.full(MDP.num_pairs, 0.25)


@pytest.mark.parametrize("limit", [1e-3, 0.5])
def test_costs_excess_and_distance_to_the_best(limit):
    problem = cm.Problem(MDP, "time", [cm.Budget("collision", at_most=limit)])
    found = problem.check(EVEN)
    for name in ("time", "collision"):
        assert found.costs[name] == pytest.approx(by_steps(MDP, EVEN, MDP.costs[name]), rel=1e-9)
    assert found.violations["collision"] == pytest.approx(max(found.costs["collision"] - limit, 0.0))
    assert found.obeys == (found.costs["collision"] <= limit)
    least = best(MDP, MDP.costs["time"], MDP.costs["collision"], limit)
    assert found.bound == pytest.approx(least, rel=1e-5)
    assert found.behind == pytest.approx(found.value - least, rel=1e-4)
    assert ("behind" in str(found)) == found.obeys
    assert max(map(len, str(found).splitlines())) <= 80


def test_the_best_policy_is_not_behind():
    problem = cm.Problem(MDP, "time", [cm.Budget("collision", at_most=1e-3)])
    solution = problem.solve()
    found = problem.check(solution.policy, solution)
    assert found.obeys
    assert found.behind <= 2e-6 * found.value
    with pytest.raises(cm.CertificateError):
        cm.Problem(MDP, "collision", [cm.Budget("time", at_most=found.value / 2)]).check(EVEN, solution)


def test_a_policy_may_be_better_than_those_that_obey():
    limit = 0.05 * cm.Problem(MDP, "time").solve().costs["collision"]
    problem = cm.Problem(MDP, "time", [cm.Budget("collision", at_most=limit)])
    found = problem.check(cm.Problem(MDP, "time").solve().policy)
    assert not found.obeys
    assert found.behind < 0
    least = best(MDP, MDP.costs["time"], MDP.costs["collision"], limit)
    assert found.behind == pytest.approx(found.value - least, abs=1e-6 * least)


def test_what_is_maximized_and_what_nothing_obeys():
    most = cm.Problem(MDP, maximize="time").check(EVEN)
    assert most.bound >= most.value
    assert most.behind == pytest.approx(most.bound - most.value)
    none = cm.Problem(MDP, "time", [cm.Budget("time", at_most=-1.0)]).check(EVEN)
    assert not none.obeys
    assert np.isnan(none.behind)
    assert "no policy obeys every limit" in " ".join(str(none).split())


def test_where_a_limit_is_a_total_costs_are_shown_in_both_units():
    found = cm.Problem(MDP, "time", [cm.Budget("collision", at_most=0.1, per="episode")]).check(EVEN)
    for name, cost in found.costs.items():
        assert f"  {name}: {cost:.8g} per step, {cost / (1 - MDP.discount):.8g} in total\n" in str(found)
    assert "in total" not in str(cm.Problem(MDP, "time", [cm.Budget("collision", at_most=0.1)]).check(EVEN))
