"""Other criteria of optimality are other models; what they mean is written again as a linear program."""

import numpy as np
import pytest
import scipy.optimize as opt
import scipy.sparse as sp

import cvxmdp as cm


def flow_over_stages(mdp, horizon):
    """Visits of each state at each stage: what flows in from the stage before, by hand."""
    P, S, L = sp.csr_array(mdp.transitions).toarray(), mdp.num_states, mdp.num_pairs
    at = (mdp.state[:, None] == np.arange(S)).astype(float)
    flow = np.zeros((horizon * S, horizon * L))
    for t in range(horizon):
        flow[t * S : (t + 1) * S, t * L : (t + 1) * L] = at.T
        if t:
            flow[t * S : (t + 1) * S, (t - 1) * L : t * L] = -P.T
    return flow, np.r_[mdp.initial, np.zeros((horizon - 1) * S)]


@pytest.mark.parametrize("horizon", [1, 2, 6, 40])
@pytest.mark.parametrize(
    "mdp",
    [cm.worlds.queue(5, discount=0.5), cm.worlds.queue(5, start=4), cm.worlds.garnet(6, 3, 0.5, seed=2)],
    ids=["short memory", "long memory", "dense"],
)
def test_a_finite_horizon_under_a_budget_is_the_linear_program_over_its_stages(mdp, horizon):
    flow, start = flow_over_stages(mdp, horizon)
    names = ("delay", "power") if "delay" in mdp.costs else ("cost", "cost")
    rng = np.random.default_rng(0)
    cost, used = mdp.costs[names[0]], mdp.costs[names[1]] if names[0] != names[1] else rng.random(mdp.num_pairs)
    total, spent = np.tile(cost, horizon), np.tile(used, horizon)
    free, least = opt.linprog(total, A_eq=flow, b_eq=start), opt.linprog(spent, A_eq=flow, b_eq=start)
    limit = 0.5 * float(spent @ free.x) + 0.5 * least.fun
    found = opt.linprog(total, spent[None], [limit], flow, start)
    staged = cm.criteria.finite_horizon(mdp.with_cost("used", used), horizon)
    solution = cm.Problem(staged, names[0], [cm.Budget("used", at_most=limit)]).solve()
    assert solution.status is cm.Status.OPTIMAL
    scale = np.abs(total) @ found.x
    assert solution.value == pytest.approx(found.fun, abs=3e-6 * scale)
    assert solution.costs["used"] <= limit * (1 + 2e-6)
    if spent @ free.x > least.fun + 1e-3:  # the budget binds, and its price is that of the program
        assert solution.prices["used"] == pytest.approx(found.ineqlin.marginals[0], abs=1e-3 * scale / limit)


def test_the_policy_of_a_finite_horizon_depends_on_the_time_that_is_left():
    """Going to the goal is dear at once and pays later: not at the last stage."""
    stay, go = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]
    mdp = cm.MDP([stay, go], {"cost": [[1.0, 1.5], [0.0, 0.0]]}, 0.9, [1.0, 0.0], states=["away", "goal"])
    staged = cm.criteria.finite_horizon(mdp, 3)
    solution = cm.Problem(staged, "cost").solve()
    assert solution.value == pytest.approx(1.5)
    one = cm.Problem(cm.criteria.finite_horizon(mdp, 1), "cost").solve()
    assert one.value == pytest.approx(1.0)
    taken = {state: action for state, action, probability in solution.policy.table() if probability > 0.5}
    assert taken["away at 0"] == "1"
    assert taken["away at 2"] == "0"


def test_names_and_labels_are_kept_at_every_stage():
    mdp = cm.MDP.from_pairs([0, 0, 1], [0, 1, 0], [[1, 0], [0, 1], [0, 1]], {"c": [1, 2, 3]}, 0.5, [1, 0],
                            states=["a", "b"], actions=["left", "right"], labels={"good": ["b"]})  # fmt: skip
    staged = cm.criteria.finite_horizon(mdp, 2)
    assert list(staged.states) == ["a at 0", "b at 0", "a at 1", "b at 1", "end"]
    assert list(staged.actions) == ["left", "right"]
    assert list(staged.labels["good"]) == [1, 3]
    d = staged.evaluate(staged.policy([1, 0, 0, 0, 0]))
    assert d.costs["c"] == pytest.approx(2 + 3)


@pytest.mark.parametrize("horizon", [0, -1, 1.5, "two"])
def test_a_horizon_is_a_whole_number(horizon):
    with pytest.raises(ValueError, match="horizon"):
        cm.criteria.finite_horizon(cm.worlds.queue(3), horizon)
