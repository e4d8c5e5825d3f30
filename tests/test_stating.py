"""How a problem is stated: by names, from below, in totals, as what is to be large."""

import numpy as np
import pytest
import scipy.optimize as opt
import scipy.sparse as sp

import cvxmdp as cm

WORLDS = {
    "queue": (cm.worlds.queue(6, discount=0.9), "delay", "power"),
    "grid": (cm.worlds.gridworld(size=4), "time", "collision"),
    "inventory": (cm.worlds.inventory(6), "holding", "shortage"),
}


def occupancy_program(mdp):
    """Flow conservation over pairs, written out."""
    P = sp.csr_array(mdp.transitions).toarray()
    at = (mdp.state[:, None] == np.arange(mdp.num_states)).astype(float)
    return (at - mdp.discount * P).T, (1 - mdp.discount) * mdp.initial


def extremes(mdp, cost):
    A, b = occupancy_program(mdp)
    return (opt.linprog(cost, A_eq=A, b_eq=b), opt.linprog(-cost, A_eq=A, b_eq=b))


@pytest.mark.parametrize("world", WORLDS)
def test_what_is_maximized_is_as_large_as_a_second_solver_finds(world, tmp_path):
    mdp, first, second = WORLDS[world]
    A, b = occupancy_program(mdp)
    reward, used = 3.0 - mdp.costs[first], mdp.costs[second]
    low, high = (float(used @ found.x) for found in extremes(mdp, used))
    limit = low + 0.3 * (min(float(used @ extremes(mdp, -reward)[0].x), high) - low)
    peer = opt.linprog(-reward, used[None], [limit], A, b)
    problem = cm.Problem(mdp, maximize=reward, subject_to=[cm.Budget(second, at_most=limit)])
    seen = []
    solution = problem.solve(callback=seen.append)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == pytest.approx(-peer.fun, rel=1e-5)
    assert solution.bound >= solution.value * (1 - 1e-6)
    assert solution.bound == pytest.approx(-peer.fun, rel=1e-5)
    assert solution.prices[second] >= 0
    for more in (0.1 * limit, limit):  # what the price promises
        gained = -opt.linprog(-reward, used[None], [limit + more], A, b).fun
        assert gained <= solution.bound + solution.prices[second] * more + 1e-7
    assert all(progress.value <= progress.bound + 1e-9 for progress in seen if progress.violation == 0)
    solution.certificate.check(problem)
    solution.save(tmp_path / "answer.npz")
    again = cm.load_solution(tmp_path / "answer.npz")
    assert (again.value, again.bound, again.asked.sense) == (solution.value, solution.bound, "maximize")
    again.certificate.check(problem)
    assert "gains at most" in str(again) or solution.prices[second] == 0


def test_an_answer_to_the_other_sense_is_refused():
    mdp = cm.worlds.gridworld(size=3)
    least, most = cm.Problem(mdp, "time"), cm.Problem(mdp, maximize="time")
    assert most.solve().value > least.solve().value
    with pytest.raises(cm.CertificateError):
        least.solve().certificate.check(most)
    with pytest.raises(cm.CertificateError):
        most.solve().certificate.check(least)


def test_convex_terms_are_not_maximized():
    mdp = cm.worlds.gridworld(size=3)
    with pytest.raises(ValueError, match="convex terms can only be minimized"):
        cm.Problem(mdp, maximize=["time", cm.NegativeEntropy()])
    for both in ({}, {"minimize": "time", "maximize": "time"}):
        with pytest.raises(ValueError, match="one of them"):
            cm.Problem(mdp, **both)


def test_an_infeasible_maximum_says_what_the_nearest_is_worth():
    mdp = cm.worlds.gridworld(size=4)
    problem = cm.Problem(mdp, maximize="time", subject_to=[cm.Budget("time", at_most=-1.0)])
    solution = problem.solve()
    assert solution.status is cm.Status.INFEASIBLE
    assert solution.bound == -np.inf
    assert solution.infeasibility.cheapest >= solution.value * (1 - 1e-6)
    assert "worth more than" in " ".join(str(solution).split())
    solution.certificate.check(problem)


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.999])
def test_a_limit_per_episode_is_a_total(discount, tmp_path):
    """Sums over steps, discounted, computed by hand from the powers of the policy's matrix."""
    mdp = cm.worlds.gridworld(size=3).with_discount(discount)
    A, b = occupancy_program(mdp)
    least = float(mdp.costs["collision"] @ opt.linprog(mdp.costs["collision"], A_eq=A, b_eq=b).x) / (1 - discount)
    free = float(mdp.costs["collision"] @ opt.linprog(mdp.costs["time"], A_eq=A, b_eq=b).x) / (1 - discount)
    limit = (least + free) / 2
    problem = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=limit, per="episode")])
    solution = problem.solve()
    assert solution.status is cm.Status.OPTIMAL
    P_pi = np.zeros((mdp.num_states, mdp.num_states))
    np.add.at(P_pi, mdp.state, solution.policy.probabilities[:, None] * sp.csr_array(mdp.transitions).toarray())
    c_pi = np.bincount(mdp.state, solution.policy.probabilities * mdp.costs["collision"])
    rho, total = mdp.initial.copy(), 0.0
    for t in range(int(40 / (1 - discount))):
        total += discount**t * float(rho @ c_pi)
        rho = rho @ P_pi
    assert total == pytest.approx(limit, rel=1e-5)
    assert f"at most {limit:.6g} in total ({limit * (1 - discount):.6g} per step)" in " ".join(str(solution).split())
    solution.save(tmp_path / "answer.npz")
    again = cm.load_solution(tmp_path / "answer.npz")
    again.certificate.check(problem)
    assert "in total" in str(again)


def test_a_budget_from_below_and_both():
    mdp = cm.worlds.gridworld(size=4)
    solution = cm.Problem(mdp, "time", [cm.Budget("time", at_least=0.5)]).solve()
    assert solution.value == pytest.approx(0.5, rel=1e-5)
    both = cm.Problem(mdp, maximize="time", subject_to=[cm.Budget("time", 0.6, at_least=0.5)]).solve()
    assert both.value == pytest.approx(0.6, rel=1e-5)
    assert repr(cm.Budget("time", 0.6, at_least=0.5)) == "Budget('time', at_least=0.5, at_most=0.6)"


@pytest.mark.parametrize("bad", [{}, {"at_most": 1, "at_least": 2}, {"at_most": 1, "per": "year"}])
def test_a_budget_that_says_nothing_is_refused(bad):
    with pytest.raises(ValueError, match=r"at_most=|holds nothing|per is 'year'"):
        cm.Budget("time", **bad)


def test_rows_by_name_are_the_costs():
    mdp = cm.worlds.queue(5)
    rows = cm.Linear(["power", "loss"], at_most=[1.0, 0.5], name="both").bind(mdp)
    np.testing.assert_array_equal(rows.rows, [mdp.costs["power"], mdp.costs["loss"]])
    assert [rows.label(i) for i in range(2)] == ["power", "loss"]
    one = cm.Problem(mdp, "delay", [cm.Linear("power", at_most=1.0)]).solve()
    two = cm.Problem(mdp, "delay", [cm.Budget("power", at_most=1.0)]).solve()
    assert one.value == pytest.approx(two.value, rel=1e-9)


def test_the_first_state_by_name():
    mdp = cm.worlds.gridworld(size=2)
    np.testing.assert_array_equal(mdp.with_initial("r1c0").initial, [0, 0, 1, 0])
    np.testing.assert_array_equal(mdp.with_initial({"r1c0": 0.25, "r0c1": 0.75}).initial, [0, 0.75, 0.25, 0])
    with pytest.raises(ValueError, match=r"initial: there is no state called 'r1c7'; did you mean 'r1c"):
        mdp.with_initial("r1c7")
    with pytest.raises(ValueError, match="sums to"):
        mdp.with_initial({"r1c0": 0.25})
    with pytest.raises(ValueError, match="initial gives state r1c0 the probability '1'; give a number"):
        mdp.with_initial({"r1c0": "1"})


def labelled():
    mdp = cm.worlds.gridworld(size=3)
    return cm.MDP.from_pairs(
        mdp.state, mdp.action, mdp.transitions, mdp.costs, mdp.discount, mdp.initial, mdp.states, mdp.actions,
        {"middle": ["r1c1"], "edge": [1, 2], "none": []},
    )  # fmt: skip


def test_labels_are_sets_of_states(tmp_path):
    mdp = labelled()
    assert {name: list(states) for name, states in mdp.labels.items()} == {"middle": [4], "edge": [1, 2], "none": []}
    mdp.save(tmp_path / "model.npz")
    again = cm.load(tmp_path / "model.npz")
    assert {name: list(states) for name, states in again.labels.items()} == {"middle": [4], "edge": [1, 2], "none": []}
    assert list(again.with_discount(0.5).labels) == ["middle", "edge", "none"]
    with pytest.raises(ValueError, match=r"label 'x'.*no state called 'r9'"):
        mdp._with(labels={"x": ["r9"]})


def test_limits_on_visits_by_label():
    mdp = labelled()
    solution = cm.Problem(mdp, "time", [cm.StateBounds(upper={"edge": 0.005, "middle": 0.01})]).solve()
    assert solution.status is cm.Status.OPTIMAL
    assert np.all(solution.visits[[1, 2]] <= 0.005 * (1 + 1e-6))
    assert solution.visits[4] <= 0.01 * (1 + 1e-6)
    with pytest.raises(ValueError, match=r"label or index; there is no state called 'egde'; did you mean 'edge'\?"):
        cm.Problem(mdp, "time", [cm.StateBounds(upper={"egde": 0.1})])


def test_a_policy_by_names():
    mdp = cm.worlds.gridworld(size=2)
    names = {"r0c0": {"up": 0.25, "right": 0.75}, "r0c1": "down", "r1c0": "right", "r1c1": "up"}
    assert mdp.policy(names).table()[:3] == [("r0c0", "up", 0.25), ("r0c0", "right", 0.75), ("r0c1", "down", 1.0)]
    for change, said in [
        ({"r0c9": "up"}, "no state called 'r0c9'"),
        ({"r0c1": "dwon"}, "did you mean 'down'"),
        ({"r0c1": {"up": 0.5}}, "sum to 0.5"),
        ({"r0c1": ["up"]}, r"the policy in state r0c1 is \['up'\]; give the name of an action, or probabilities"),
        ({"r0c1": 1}, "the policy in state r0c1 is 1; give the name"),
        ({"r0c1": {"up": "1"}}, "action up in state r0c1 with probability '1'; give a number"),
    ]:
        with pytest.raises(ValueError, match=said):
            mdp.policy(names | change)
    with pytest.raises(ValueError, match="no action for state r0c1"):
        mdp.policy({"r0c0": "up"})
