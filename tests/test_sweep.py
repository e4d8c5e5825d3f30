"""Sweeps, trade-offs and ranges, against a second solver at and beside each point."""

import dataclasses
import signal

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize as opt
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp import sweep as sweeping

WORLDS = {
    "queue": (cm.worlds.queue(12, discount=0.95), "delay", "power"),
    "grid": (cm.worlds.gridworld(size=6), "time", "collision"),
    "inventory": (cm.worlds.inventory(12), "holding", "shortage"),
    "lake": (cm.worlds.lake(size=6, holes=0.2, seed=1), "time", "hole"),
    "maintenance": (cm.worlds.maintenance(2, 4), "repair", "downtime"),
    "disk drive": (cm.worlds.disk_drive(), "power", "queue"),
}


def program(mdp):
    """Flow conservation over pairs, written out."""
    P = sp.csr_array(mdp.transitions)
    at = sp.csr_array((np.ones(mdp.num_pairs), (mdp.state, np.arange(mdp.num_pairs))))
    return sp.csr_array(at - mdp.discount * P.T), (1 - mdp.discount) * mdp.initial


def least(mdp, cost, limited=None, limit=None):
    """The least cost by HiGHS; infinite where no policy obeys."""
    A, b = program(mdp)
    rows = {} if limited is None else {"A_ub": limited[None], "b_ub": [limit]}
    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = opt.linprog(cost, A_eq=A, b_eq=b, options=exact, **rows)
    return found.fun if found.status == 0 else np.inf


def close(cost, a, b):
    return abs(a - b) <= 2e-6 * max(abs(a), abs(b)) + 1e-9 * np.max(np.abs(cost))


@pytest.mark.parametrize("world", WORLDS)
def test_each_point_of_a_sweep_is_the_least_cost_and_proven(world):
    mdp, first, second = WORLDS[world]
    c, r = mdp.costs[first], mdp.costs[second]
    low, high = least(mdp, r), -least(mdp, -r)
    limits = np.array([high, *np.linspace(low - 0.1 * (high - low), high, 9)])
    swept = cm.Problem(mdp, first).sweep(second, limits)
    assert len(swept.solutions) == len(swept.table()) == limits.size
    for limit, solution in zip(limits, swept.solutions, strict=True):
        value = least(mdp, c, r, limit)
        solution.certificate.check(solution.problem)
        assert solution.problem.constraints[-1].upper[0] == pytest.approx(limit, rel=1e-12, abs=1e-15)
        assert solution.status is (cm.Status.INFEASIBLE if np.isinf(value) else cm.Status.OPTIMAL)
        assert np.isinf(value) or close(c, solution.value, value)
    assert max(map(len, str(swept).splitlines())) <= 80


@pytest.mark.parametrize("world", WORLDS)
def test_a_range_ends_where_nothing_obeys_and_where_the_limit_is_free(world):
    mdp, first, second = WORLDS[world]
    c, r = mdp.costs[first], mdp.costs[second]
    found = cm.Problem(mdp, first).range(second)
    assert found.tightest == pytest.approx(least(mdp, r), rel=1e-5, abs=1e-9)
    assert close(c, least(mdp, c, r, found.loosest), least(mdp, c))
    assert least(mdp, c, r, found.loosest - 0.05 * (found.loosest - found.tightest)) > least(mdp, c) + 1e-12
    assert "binds between" in str(found)
    assert max(map(len, str(found).splitlines())) <= 80


@pytest.mark.parametrize("world", WORLDS)
def test_breakpoints_are_the_corners_of_the_least_cost(world):
    """Halfway between two corners the least cost is on their chord, and chords bend at every corner."""
    mdp, first, second = WORLDS[world]
    c, r = mdp.costs[first], mdp.costs[second]
    front = cm.Problem(mdp, first).pareto(first, second, points=5)
    corners = front.breakpoints
    slopes = np.diff(corners[:, 1]) / np.diff(corners[:, 0])
    assert np.all(slopes < 0)
    assert np.all(np.diff(slopes) > 0)
    for k in range(0, len(corners) - 1, max(1, len(corners) // 8)):
        (x, y), (u, v) = corners[k : k + 2]
        assert close(c, least(mdp, c, r, (x + u) / 2), (y + v) / 2)
    assert all(status is cm.Status.OPTIMAL for status in front.statuses)


@pytest.mark.parametrize("world", WORLDS)
def test_a_price_holds_in_its_range_and_changes_beyond(world):
    mdp, first, second = WORLDS[world]
    c, r = mdp.costs[first], mdp.costs[second]
    ends = cm.Problem(mdp, first).range(second)
    span = ends.loosest - ends.tightest
    limit = ends.tightest + 0.37 * span
    found = cm.Problem(mdp, first, [cm.Budget(second, at_most=limit)]).solve(tolerance=1e-8).price_ranges()[second]
    assert found.low <= limit <= found.high
    here = least(mdp, c, r, limit)
    for at in (0.98 * found.low + 0.02 * limit, 0.98 * found.high + 0.02 * limit):
        assert least(mdp, c, r, at) == pytest.approx(here + found.price * (at - limit), rel=1e-6, abs=1e-9)
    for at, slope, way in ((found.low, found.left, -1), (found.high, found.right, 1)):
        beyond = at + way * 0.05 * span
        if ends.tightest < beyond < ends.loosest:
            assert least(mdp, c, r, beyond) > here + found.price * (beyond - limit)
            assert way * slope > way * found.price


def test_a_limit_at_a_corner_has_two_slopes():
    mdp, first, second = WORLDS["grid"]
    corners = cm.Problem(mdp, first).pareto(first, second, points=2).breakpoints
    k = len(corners) // 2
    before, after = np.diff(corners[k - 1 : k + 2, 1]) / np.diff(corners[k - 1 : k + 2, 0])
    problem = cm.Problem(mdp, first, [cm.Budget(second, at_most=float(corners[k, 0]))])
    found = problem.solve(tolerance=1e-9).price_ranges()[second]
    assert before - 1e-3 * abs(before) <= found.price <= after + 1e-3 * abs(after)
    assert found.left <= before + 1e-3 * abs(before) or found.low < corners[k, 0] * (1 - 1e-6)
    assert found.right >= after - 1e-3 * abs(after) or found.high > corners[k, 0] * (1 + 1e-6)


def test_a_limit_that_does_not_bind_is_free_from_its_loosest_on():
    mdp, first, second = WORLDS["grid"]
    problem = cm.Problem(mdp, first, [cm.Budget(second, at_most=1.0)])
    found = problem.solve().price_ranges()[second]
    assert found.price == found.right == 0
    assert found.high == np.inf
    assert found.low == pytest.approx(problem.range(second).loosest, rel=1e-6)
    assert found.left < 0


def test_other_limits_are_kept():
    mdp = cm.worlds.queue(10, discount=0.95)
    A, b = program(mdp)
    problem = cm.Problem(mdp, "delay", [cm.Budget("loss", at_most=0.02), cm.Budget("power", at_most=1.0)])
    ends = problem.range("power")
    limits = np.linspace(ends.tightest, ends.loosest, 12)[1:]
    rows = np.stack([mdp.costs["loss"], mdp.costs["power"]])
    for limit, solution in zip(limits, problem.sweep("power", limits).solutions, strict=True):
        peer = opt.linprog(mdp.costs["delay"], rows, [0.02, limit], A, b)
        assert solution.value == pytest.approx(peer.fun, rel=1e-5)
        solution.certificate.check(solution.problem)


CURVED = {
    "ball": (lambda m: cm.NormBall(m.policy(1 / np.bincount(m.state)[m.state]), 0.1), [0.05, 0.1, 0.2], -1),
    "entropy": (lambda m: cm.Entropy(at_least=1.0), [1.5, 2.0, 2.5], 1),
}


@pytest.mark.parametrize("kind", CURVED)
def test_sweeps_of_curved_limits_are_proven(kind):
    mdp = cm.worlds.gridworld(size=4)
    make, limits, way = CURVED[kind]
    problem = cm.Problem(mdp, "time", [make(mdp)])
    name = problem.constraints[0].name
    swept = problem.sweep(name, limits)
    assert all(status is cm.Status.OPTIMAL for status in swept.statuses)
    assert np.all(way * np.diff(swept.values) > 0)
    for solution in swept.solutions:
        solution.certificate.check(solution.problem)
    found = swept.solutions[1].price_ranges()[name]
    assert found.low == found.high == pytest.approx(limits[1])


def test_the_ranges_of_an_entropy_and_of_a_ball_are_those_of_a_second_solver():
    mdp = cm.worlds.gridworld(size=3)
    A, b = program(mdp)
    d = cp.Variable(mdp.num_pairs, nonneg=True)
    most = cp.Problem(cp.Maximize(cp.sum(cp.entr(d))), [A @ d == b]).solve(solver="CLARABEL")
    entropy = cm.Problem(mdp, "time", [cm.Entropy(at_least=0.5)])
    found = entropy.range(entropy.constraints[0].name)
    assert found.tightest == pytest.approx(most, rel=1e-4)
    assert found.looser == "lower"
    center = np.full(mdp.num_pairs, 1 / mdp.num_pairs)
    nearest = cp.Problem(cp.Minimize(cp.norm(d - center)), [A @ d == b]).solve(solver="CLARABEL")
    ball = cm.Problem(mdp, "time", [cm.NormBall(center, 1.0)])
    assert ball.range(ball.constraints[0].name).tightest == pytest.approx(nearest, rel=1e-4)


def test_what_is_maximized_is_swept_upwards():
    mdp = cm.worlds.gridworld(size=4)
    swept = cm.Problem(mdp, maximize=1 - mdp.costs["time"]).sweep("collision", [0.0005, 0.001, 0.002])
    assert np.all(np.diff(swept.values) >= -1e-9)
    assert np.all(swept.values <= swept.bounds + 1e-9)
    assert np.all(swept.prices >= 0)


def test_totals_and_limits_from_below_are_swept_in_their_own_unit():
    mdp = cm.worlds.gridworld(size=4)
    total = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=0.1, per="episode")])
    step = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=0.001)])
    np.testing.assert_allclose(
        total.sweep("collision", [0.05, 0.1]).values, step.sweep("collision", [0.0005, 0.001]).values, rtol=1e-5
    )
    below = cm.Problem(mdp, "collision", [cm.Budget("time", at_least=0.2)])
    assert below.range("time").looser == "lower"
    assert np.all(np.diff(below.sweep("time", [0.05, 0.2, 0.5, 0.9]).values) >= -1e-9)


@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 10**6), st.floats(0.5, 0.99))
def test_random_models(states, actions, seed, discount):
    mdp = cm.worlds.garnet(states, actions, 0.7, seed=seed, discount=discount)
    cost, used = np.random.default_rng(seed).uniform(size=(2, mdp.num_pairs))
    limits = np.linspace(least(mdp, used), -least(mdp, -used), 7)[1:]
    swept = cm.Problem(mdp, cost).sweep(cm.Budget(used, at_most=1.0, name="used"), limits)
    for limit, solution in zip(limits, swept.solutions, strict=True):
        assert solution.status is cm.Status.OPTIMAL
        assert solution.value == pytest.approx(least(mdp, cost, used, limit), rel=1e-5)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda p: p.sweep("colision", [1]), "did you mean 'collision'"),
        (lambda p: p.sweep("collision", []), "at least one"),
        (lambda p: p.sweep("collision", [np.nan]), "finite"),
        (lambda p: p.range("tim"), "did you mean 'time'"),
        (lambda p: p.pareto("time", "colision"), "did you mean 'collision'"),
        (lambda p: p.pareto("time", "collision", points=1), "at least two"),
    ],
)
def test_bad_questions_are_named(ask, said):
    with pytest.raises(ValueError, match=said):
        ask(cm.Problem(cm.worlds.gridworld(size=3), "time"))


def test_a_sweep_that_is_stopped_keeps_what_is_done(monkeypatch):
    problem = cm.Problem(cm.worlds.gridworld(size=4), "time", [cm.Entropy(at_least=1.0)])
    solve, count = cm.Problem.solve, []

    def stopped(self, *args, **kwargs):
        count.append(1)
        if len(count) > 2:
            raise KeyboardInterrupt
        return solve(self, *args, **kwargs)

    monkeypatch.setattr(cm.Problem, "solve", stopped)
    swept = problem.sweep("entropy", [0.5, 2.0, 1.0, 1.5])
    assert [status.name for status in swept.statuses] == ["OPTIMAL", "OPTIMAL"]


@pytest.mark.parametrize("limit", [1e-4, 3e-4, 1e-3])
def test_the_range_of_a_price_is_an_edge_to_the_last_digits(limit):
    mdp = cm.worlds.gridworld(size=6)
    problem = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=limit)])
    found = problem.solve().price_ranges()["collision"]
    corners = cm.Problem(mdp, "time").pareto("time", "collision", points=2).breakpoints
    k = int(np.searchsorted(corners[:, 0], limit))
    slopes = np.diff(corners[:, 1]) / np.diff(corners[:, 0])
    assert (found.low, found.high) == pytest.approx((corners[k - 1, 0], corners[k, 0]), rel=1e-9)
    assert (found.left, found.price, found.right) == pytest.approx(tuple(slopes[k - 2 : k + 1]), rel=1e-6)


def test_a_solve_that_was_interrupted_ends_the_sweep_and_is_not_built_upon(monkeypatch):
    problem = cm.Problem(cm.worlds.gridworld(size=4), "time", [cm.Entropy(at_least=1.0)])
    solve, count = cm.Problem.solve, []

    def interrupted(self, *args, **kwargs):
        count.append(1)
        solution = solve(self, *args, **kwargs)
        return dataclasses.replace(solution, status=cm.Status.INTERRUPTED) if len(count) == 3 else solution

    monkeypatch.setattr(cm.Problem, "solve", interrupted)
    swept = problem.sweep("entropy", [0.5, 1.0, 1.5, 2.0])
    assert swept.limits.tolist() == [0.5, 2.0]
    assert len(count) == 3
    for ask in (lambda: problem.range("entropy"), lambda: problem.pareto("time", "collision")):
        count[:] = [1, 1]
        with pytest.raises(KeyboardInterrupt):
            ask()


def test_ctrl_c_between_solves_keeps_the_points_that_are_done(monkeypatch):
    """A past bug: a signal that came as a solve ended well was forgotten, and the sweep went on."""
    problem, seen = cm.Problem(cm.worlds.gridworld(size=4), "time"), []
    accept = sweeping.accept

    def pressed(*args):
        seen.append(1)
        proven = accept(*args)
        if len(seen) == 2:
            signal.raise_signal(signal.SIGINT)
        return proven

    monkeypatch.setattr(sweeping, "accept", pressed)
    swept = problem.sweep("collision", [1e-6, 2e-6, 3e-6, 4e-6])
    assert swept.limits.tolist() == [3e-6, 4e-6]
    assert [status.name for status in swept.statuses] == ["OPTIMAL", "OPTIMAL"]


def test_an_entropy_binds_from_what_the_most_random_of_the_best_policies_has():
    """A past bug: of the policies that are best without the limit one was taken, though others obey more of it."""
    step = np.ones((1, 3, 3)) / 3
    mdp = cm.MDP([step[0]] * 2, {"cost": [[1.0, 1.0], [1.0, 2.0], [1.0, 2.0]]}, discount=0.9, initial=[1 / 3] * 3)
    found = cm.Problem(mdp, "cost", [cm.Entropy(at_least=1.0)]).range("entropy")
    # Each state has a third of the visits; in the first, both actions are best, in the others one is.
    assert found.loosest == pytest.approx(np.log(3) + np.log(2) / 3, abs=1e-3)
    assert found.tightest == pytest.approx(np.log(6), rel=1e-6)


def test_the_range_of_a_ball_of_relative_entropy_goes_from_its_reference_to_the_best_policy():
    mdp = cm.worlds.gridworld(size=10)
    ball = cm.KLBall(mdp.policy(np.full((100, 4), 0.25)), 0.5)
    found = cm.Problem(mdp, "time", [ball]).range("KL ball")
    assert found.tightest == pytest.approx(0, abs=1e-6)
    free = cm.Problem(mdp, "time").solve().value
    d = cp.Variable(mdp.num_pairs, nonneg=True)
    A, b = program(mdp)
    center = mdp.evaluate(np.full((100, 4), 0.25)).occupancy
    best = [A @ d == b, mdp.costs["time"] @ d <= free * (1 + 1e-6)]
    least = cp.Problem(cp.Minimize(cp.sum(cp.rel_entr(d, center))), best).solve(solver="CLARABEL")
    assert found.loosest == pytest.approx(least, rel=1e-3)


def test_a_limit_that_never_binds_says_so():
    mdp = cm.worlds.gridworld(size=4)
    found = cm.Problem(mdp, "time").range("time")
    assert found.tightest == pytest.approx(found.loosest, rel=1e-9)
    assert str(cm.Range("KL", np.nan, 2.0, "higher")) == (
        "KL costs nothing above 2; below which value no policy obeys was not found"
    )
    same = cm.Range("time", 0.25, 0.25, "higher")
    assert " ".join(str(same).split()) == (
        "time never binds: below 0.25 no policy obeys, and from there on the limit costs nothing"
    )
    assert max(map(len, str(same).splitlines())) <= 80
