"""False proofs and false sentences that were once made, each under its own name."""

import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import cvxmdp as cm
from cvxmdp.cli import app
from oracles import lp_optimum, random_model

Status = cm.Status


def solved(problem, **options):
    """Solve, and let the verifier recompute everything that is said."""
    solution = problem.solve(time_limit=30, **options)
    solution.certificate.check(problem)
    return solution


def words(solution):
    return " ".join(str(solution).split())


def queue(capacity, discount=0.999, arrival=0.3, services=(0.35, 0.5, 0.9)):
    """A queue with service speeds: costs are power, delay and the share of time in which arrivals are lost."""
    state, action, rows, columns, entries = [], [], [], [], []
    for s in range(capacity + 1):
        for a, service in enumerate(services):
            up, down = arrival * (1 - service) * (s < capacity), service * (1 - arrival) * (s > 0)
            for there, p in ((s + 1, up), (s - 1, down), (s, 1 - up - down)):
                if p > 0:
                    rows.append(len(state))
                    columns.append(there)
                    entries.append(p)
            state.append(s)
            action.append(a)
    P = sp.csr_array((entries, (rows, columns)), shape=(len(state), capacity + 1))
    costs = {
        "power": np.array(services)[action] ** 3,
        "delay": np.array(state) / capacity,
        "loss": (np.array(state) == capacity).astype(float),
    }
    return cm.MDP.from_pairs(state, action, P, costs, discount, initial=np.eye(capacity + 1)[0])


def exact_costs(mdp, policy):
    """Costs in extended precision, by adding up steps: no term is negative, so that every digit is right."""
    pi = policy.probabilities.astype(np.longdouble)
    P = np.zeros((mdp.num_states, mdp.num_states), dtype=np.longdouble)
    dense = mdp.transitions.toarray() if sp.issparse(mdp.transitions) else mdp.transitions
    np.add.at(P, mdp.state, pi[:, None] * dense.astype(np.longdouble))
    back = sp.csr_array(mdp.discount * P.T)
    x, step = np.zeros(mdp.num_states, dtype=np.longdouble), (1 - mdp.discount) * mdp.initial.astype(np.longdouble)
    while step.sum() > 1e-14 * x.sum() or np.any(step > 1e-14 * x):
        x, step = x + step, back @ step
    return {name: float(np.sum(cost * pi * x[mdp.state])) for name, cost in mdp.costs.items()}


# False proofs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [1e6, 1e8, 1e10, 1e12])
def test_a_large_penalty_does_not_make_everything_optimal(penalty):
    mdp = cm.MDP.from_pairs(
        [0, 0, 0, 0, 1], [0, 1, 2, 3, 0], [[1, 0], [1, 0], [1, 0], [0, 1], [0, 1]],
        {"cost": [0.9, 0.8, 0.7, 0, penalty], "risk": [0, 0.3, 0.9, 0, 0]}, 0.99, initial=[1, 0],
    )  # fmt: skip
    solution = solved(cm.Problem(mdp, "cost", [cm.Budget("risk", 0.5)]))
    assert solution.status is Status.OPTIMAL
    assert solution.value == pytest.approx(0.7 + 0.1 * 2 / 3, rel=1e-6)  # a third of the second, two of the third


@pytest.mark.parametrize("penalty", [1e8, 1e12])
@pytest.mark.parametrize("discount", [0.9, 0.9999])
def test_penalties_on_forbidden_states_are_decided_like_any_cost(discount, penalty):
    """The penalty is a separate row for the other solver, so that its tolerance means something."""
    for seed in range(5):
        model = random_model(seed, states=12, actions=3, discount=discount)
        forbidden = (model["state"] % 5 == 4).astype(float)
        c = model["costs"]["cost"]
        mdp = cm.MDP.from_pairs(
            model["state"], model["action"], model["P"],
            {**model["costs"], "penalized": c + penalty * forbidden}, discount, model["initial"],
        )  # fmt: skip
        least = cm.Problem(mdp, forbidden).solve(tolerance=1e-9).value
        solution = solved(cm.Problem(mdp, "penalized"))
        assert solution.status is Status.OPTIMAL
        best, *_ = lp_optimum(model, c, forbidden[None], np.array([least * (1 + 1e-9)]))
        assert solution.value <= penalty * least * (1 + 1e-5) + best + 1e-5 * penalty * least


@pytest.mark.parametrize("radius", [1e-18, 1e-17, 1e-16, 1e-12])
def test_a_kl_ball_of_next_to_no_radius_has_no_false_gap(radius):
    mdp = cm.worlds.garnet(100, 5, 0.1, seed=1)
    reference = mdp.evaluate(np.full((100, 5), 0.2)).occupancy
    solution = solved(cm.Problem(mdp, "cost", [cm.KLBall(reference, radius)]))
    if solution.status is Status.OPTIMAL:
        assert solution.value - solution.bound <= 1e-6 * (np.abs(mdp.costs["cost"]) @ solution.occupancy)
        assert solution.value == pytest.approx(float(mdp.costs["cost"] @ reference), abs=2e-5)


@pytest.mark.parametrize("limit", [1e-3, 1e-12, 1e-13])
def test_a_rare_collision_is_claimed_as_often_as_it_happens(limit):
    mdp = cm.worlds.gridworld()
    solution = solved(cm.Problem(mdp, "time", [cm.Budget("collision", limit)]))
    assert solution.status is Status.OPTIMAL
    exact = exact_costs(mdp, solution.policy)
    assert solution.costs["collision"] == pytest.approx(exact["collision"], rel=1e-9, abs=0)
    assert exact["collision"] <= limit * (1 + 1e-6)


@pytest.mark.parametrize("limit", [1e-12, 1e-30, 1e-43])
def test_a_queue_hardly_ever_loses_an_arrival(limit):
    mdp = queue(50)
    solution = solved(cm.Problem(mdp, "power", [cm.Budget("loss", limit)]))
    assert solution.status is Status.OPTIMAL
    exact = exact_costs(mdp, solution.policy)
    assert solution.costs["loss"] == pytest.approx(exact["loss"], rel=1e-9, abs=0)
    assert 0 < exact["loss"] <= limit * (1 + 1e-6)


@pytest.mark.parametrize("step", [1e-3, 1e-20])
def test_visits_of_a_long_chain_are_exact_in_every_entry(step):
    """State k is reached with probability step^k: down to 1e-300, and then none at all."""
    P = np.zeros((20, 20))
    P[np.arange(19), np.arange(1, 20)], P[np.arange(20), 0] = step, 1 - step
    P[19] = np.eye(20)[0]
    cost = np.eye(20)[14]
    mdp = cm.MDP([P], {"end": cost}, 0.9, np.eye(20)[0])
    solution = solved(cm.Problem(mdp, "end"))
    expected = (0.9 * step) ** 14 * solution.visits[0]
    assert solution.value == pytest.approx(expected, rel=1e-9, abs=1e-290)
    assert solution.errors["end"] <= max(1e-9 * expected, 1e-270)


def test_small_axes_of_an_ellipsoid_count():
    assert cm.Ellipsoid([1e15, 1.0]).worst(np.array([0.0, 1.0])) == 1.0
    mdp = cm.MDP([[[1.0]], [[1.0]]], {"c": [[0.0, 1.0]]}, 0.5)
    for matrix in ([1e15, 1.0], np.diag([1e15, 1.0])):
        limit = cm.RobustBudget(None, cm.Ellipsoid(matrix), at_most=0.2)
        solution = cm.Problem(mdp, "c", [limit]).solve(time_limit=10)
        assert solution.status is not Status.OPTIMAL
        worst = math.sqrt(float(np.array([1e15, 1.0]) @ solution.occupancy**2))
        assert solution.levels["robust budget"] == pytest.approx(worst, rel=1e-6)


def test_comes_nearest_is_said_only_where_it_is_proven():
    mdp = cm.worlds.gridworld(size=12)
    limits = [
        cm.Budget("time", at_most=0.3),
        cm.Budget("collision", at_most=1e-6),
        cm.NormBall(mdp.policy([3] * 144), 0.1),
    ]
    for seconds in (1e-3, 0.05, 0.3, 10.0):
        problem = cm.Problem(mdp, "time", limits)
        solution = problem.solve(time_limit=seconds)
        solution.certificate.check(problem)
        if solution.status is Status.INFEASIBLE:
            low, high = solution.infeasibility.distance
            assert ("comes nearest" in words(solution)) == (high <= low * (1 + 1e-6))


# False sentences ------------------------------------------------------------------------------------------------------


def test_an_early_stop_says_nothing_of_prices():
    mdp = cm.worlds.gridworld(size=10)
    problem = cm.Problem(mdp, "time", [cm.Budget("collision", 1e-4)])
    solution = problem.solve(max_iterations=1)
    assert solution.status is not Status.OPTIMAL
    assert np.all(np.isnan(solution.prices["collision"]))
    assert "saves" not in str(solution)
    assert "save nothing" not in str(solution)


def test_a_reference_that_forbids_pairs_is_not_said_to_have_no_effect():
    mdp = cm.worlds.garnet(8, 3, 0.5, seed=2)
    reference = mdp.policy(np.zeros(8, dtype=int))
    solution = solved(cm.Problem(mdp, "cost", [cm.KLBall(reference, 0.1)]))
    free = cm.Problem(mdp, "cost").solve()
    assert solution.status is Status.OPTIMAL
    assert solution.value > free.value + 1e-3
    assert "save nothing" not in str(solution)


def test_what_relaxing_a_limit_saves_is_no_less_than_said():
    mdp = cm.worlds.gridworld()
    problem = cm.Problem(mdp, "time", [cm.Budget("collision", 1e-3)])
    solution = solved(problem)
    price = -solution.prices["collision"]
    assert f"relaxing it by one per cent (1e-05) saves at most {price * 1e-5:.3g}" in words(solution)
    for more in (1e-5, 1e-3, 1.0):
        relaxed = cm.Problem(mdp, "time", [cm.Budget("collision", 1e-3 + more)]).solve()
        assert solution.value - relaxed.value <= price * more + 1e-6 * solution.value
    one_per_cent = cm.Problem(mdp, "time", [cm.Budget("collision", 1.01e-3)]).solve()
    assert solution.value - one_per_cent.value >= 0.9 * price * 1e-5  # and about that much is possible


def test_every_limit_that_is_impossible_by_itself_is_named():
    mdp = cm.MDP([[[1.0]], [[1.0]]], {"c": [[0.0, 1.0]], "a": [[1.0, 2.0]], "b": [[3.0, 2.0]]}, 0.99)
    problem = cm.Problem(mdp, "c", [cm.Budget("a", 0.5), cm.Budget("b", 1.5), cm.Budget("c", 0.9)])
    solution = solved(problem)
    assert solution.status is Status.INFEASIBLE
    found = solution.infeasibility
    assert set(found.impossible) == {"a", "b"}
    assert found.impossible["a"] == pytest.approx(0.5)
    assert found.impossible["b"] == pytest.approx(0.5)
    text = words(solution)
    assert "a cannot be obeyed by itself: from this start no policy does better than at most 1 " in text
    assert "b cannot be obeyed by itself" in text
    assert "about 100 steps ahead" in text
    assert "Together these would do" in text
    assert text.count("; impossible by itself") == 2


def test_one_change_is_announced_as_one():
    mdp = cm.MDP([[[1.0]], [[1.0]]], {"c": [[0.0, 1.0]], "a": [[1.0, 2.0]]}, 0.99)
    text = words(cm.Problem(mdp, "c", [cm.Budget("a", 0.5)]).solve())
    assert "One change alone would do: a at most 1." in text
    assert "One of these" not in text


def test_an_engine_that_gives_up_is_not_an_iteration_limit():
    """Nobody set max_iterations: raising it is no cure."""
    reference = cm.worlds.garnet(30, 3, 0.3, seed=1)
    d = reference.evaluate(np.full((30, 3), 1 / 3)).occupancy
    limits = [cm.KLBall(d, 0.0), cm.NormBall(d, 0.0, norm=3), cm.Entropy(float(-(d @ np.log(d))))]
    solution = cm.Problem(reference, "cost", limits).solve(time_limit=20)
    assert solution.status is not Status.ITERATION_LIMIT
    assert "max_iterations" not in Status.UNDECIDED.value


def test_an_infeasible_problem_has_no_bound_gap_or_prices(tmp_path):
    mdp = cm.worlds.gridworld(size=5)
    solution = cm.Problem(mdp, "time", [cm.Budget("time", 0.01)]).solve()
    assert solution.status is Status.INFEASIBLE
    assert solution.bound == math.inf
    assert math.isnan(solution.gap)
    assert math.isnan(solution.prices["time"])
    mdp.save(tmp_path / "grid.npz")
    call = ["solve", str(tmp_path / "grid.npz"), "--minimize", "time", "--subject-to", "time <= 0.01", "--json"]
    printed = json.loads(CliRunner().invoke(app, call).stdout)
    assert printed["bound"] is None
    assert printed["gap"] is None
    assert printed["prices"] == {"time": None}


def test_a_gap_is_never_negative():
    for seed in range(20):
        mdp = cm.worlds.garnet(6, 3, 0.5, seed=seed)
        free = cm.Problem(mdp, "cost").solve()
        limit = cm.NormBall(free, 1e-7 * np.linalg.norm(free.occupancy))
        assert cm.Problem(mdp, "cost", [limit]).solve().gap >= 0


def test_levels_of_every_kind_are_shown():
    mdp = cm.worlds.gridworld(size=5)
    even = mdp.evaluate(np.full((25, 4), 0.25)).occupancy
    limits = {
        "collision": (cm.Budget("collision", 0.5), lambda d: mdp.costs["collision"] @ d),
        "ball": (cm.NormBall(even, 0.9), lambda d: np.linalg.norm(d - even)),
        "entropy": (cm.Entropy(0.1), lambda d: -np.sum(d[d > 0] * np.log(d[d > 0]))),
        "KL ball": (cm.KLBall(even, 20.0), lambda d: np.sum(d[d > 0] * np.log(d[d > 0] / even[d > 0]))),
        "robust budget": (
            cm.RobustBudget(None, cm.Ellipsoid(np.full(100, 0.04)), at_most=0.9),
            lambda d: 0.2 * np.linalg.norm(d),
        ),
    }
    solution = solved(cm.Problem(mdp, "time", [limit for limit, _ in limits.values()]))
    assert solution.status is Status.OPTIMAL
    for name, (_, level) in limits.items():
        assert solution.levels[name] == pytest.approx(level(solution.occupancy), rel=1e-9)
        assert f"limit {name}: {solution.levels[name]:.8g} of " in words(solution)
    assert max(map(len, str(solution).splitlines())) <= 80


def test_one_policy_and_one_pass_are_counted_in_the_singular():
    mdp = cm.worlds.gridworld(size=5)
    for seed in range(3):
        text = str(cm.Problem(mdp, "time", [cm.Budget("collision", 10.0 ** -(seed + 1))]).solve())
        assert " 1 passes" not in text
        assert " 1 policies" not in text
        assert "cost cost" not in text


def test_a_solution_saved_and_loaded_says_the_same(tmp_path):
    mdp = cm.worlds.gridworld(size=6)
    mdp.save(tmp_path / "model.npz")
    for limits in (
        [cm.Budget("collision", 0.01), cm.Entropy(1.0)],
        [cm.Budget("time", 0.1), cm.Budget("collision", 1e-3)],
    ):
        solution = cm.Problem(mdp, "time", limits).solve()
        solution.save(tmp_path / "solution.npz")
        again = cm.load_solution(tmp_path / "solution.npz")
        again.certificate.check(cm.Problem(mdp, "time", limits))
        assert str(again) == str(solution)
        result = CliRunner().invoke(app, ["check", str(tmp_path / "model.npz"), str(tmp_path / "solution.npz")])
        assert result.exit_code == 0, result.output
        assert solution.status.name in result.stdout


def test_the_command_check_refuses_a_solution_of_another_model(tmp_path):
    cm.worlds.gridworld(size=5).with_discount(0.9).save(tmp_path / "other.npz")
    mdp = cm.worlds.gridworld(size=5)
    cm.Problem(mdp, "time", [cm.Budget("collision", 0.01)]).solve().save(tmp_path / "solution.npz")
    result = CliRunner().invoke(app, ["check", str(tmp_path / "other.npz"), str(tmp_path / "solution.npz")])
    assert result.exit_code == 1
    call = ["check", str(tmp_path / "other.npz"), str(tmp_path / "solution.npz"), "--discount", "0.99"]
    assert CliRunner().invoke(app, call).exit_code == 0


def test_an_engine_that_breaks_down_hands_over_to_the_next(monkeypatch):
    """Interior points overflowed on a cycle at discount 1 - 1e-9: no hard problem may raise."""
    from cvxmdp.engines.interior import Interior

    def breaks(self, task):
        raise OverflowError(34, "Numerical result out of range")

    mdp = cm.worlds.garnet(40, 3, 0.2, seed=0)
    problem = cm.Problem(mdp, "cost", [cm.StateBounds(upper=0.04)])
    expected = problem.solve()
    monkeypatch.setattr(Interior, "proposals", breaks)
    solution = solved(problem)
    assert solution.status is expected.status is Status.OPTIMAL
    assert solution.value == pytest.approx(expected.value, rel=1e-5)
