"""Clean policies: under n limits an optimal policy randomizes in n states at most, and is as good and as proven."""

import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import cvxmdp as cm
from cvxmdp.constraints.combine import Blocks
from cvxmdp.engines import clean as cleaning
from cvxmdp.engines import purify as purification
from engine_oracles import with_unreachable_states
from oracles import as_mdp, random_model

WORLDS = {
    "grid": lambda: cm.worlds.gridworld(size=8),
    "queue": lambda: cm.worlds.queue(60),
    "inventory": lambda: cm.worlds.inventory(30),
    "tandem": lambda: cm.worlds.tandem(8),
    "maintenance": lambda: cm.worlds.maintenance(),
}


def flow_rows(mdp):
    """The flow equations of occupancies, from their definition: a row a state."""
    pairs = np.arange(mdp.num_pairs)
    Xi = sp.csr_array((np.ones(pairs.size), (mdp.state, pairs)), shape=(mdp.num_states, mdp.num_pairs))
    return sp.csc_array(Xi - mdp.discount * sp.csr_array(mdp.transitions).T)


def by_highs(mdp, c, limits):
    """The least cost, by a linear program over occupancies."""
    E = np.vstack([limit.bind(mdp).rows for limit in limits])
    upper = np.concatenate([limit.bind(mdp).upper for limit in limits])
    lower = np.concatenate([limit.bind(mdp).lower for limit in limits])
    unit = np.maximum(np.abs(E).max(axis=1), 1e-300)  # HiGHS counts what a row is off by in absolute numbers
    E, upper, lower = E / unit[:, None], upper / unit, lower / unit
    sides = [(E[np.isfinite(upper)], upper[np.isfinite(upper)]), (-E[np.isfinite(lower)], -lower[np.isfinite(lower)])]
    answer = linprog(
        c, A_ub=np.vstack([rows for rows, _ in sides]), b_ub=np.concatenate([b for _, b in sides]),
        A_eq=flow_rows(mdp), b_eq=(1 - mdp.discount) * mdp.initial,
    )  # fmt: skip
    assert answer.status == 0
    return answer.fun


def by_hand(mdp, policy):
    """The occupancy of a policy, from the flow equations with one unknown a state."""
    choice = sp.csr_array(
        (policy.probabilities, (np.arange(mdp.num_pairs), mdp.state)), shape=(mdp.num_pairs, mdp.num_states)
    )
    x = np.linalg.solve((flow_rows(mdp) @ choice).toarray(), (1 - mdp.discount) * mdp.initial)
    return policy.probabilities * x[mdp.state]


def random_states(solution):
    """The visited states that take more than one action."""
    actions = np.bincount(solution.policy.state, solution.policy.probabilities > 0)
    return np.flatnonzero((actions > 1) & (solution.visits > 0))


def clean(problem, limits, most, **how):
    """Solve; the policy randomizes in so few states, obeys by hand, costs what HiGHS finds, and all is proven."""
    solution = problem.solve(**how)
    assert solution.status is cm.Status.OPTIMAL
    assert random_states(solution).size <= most
    d = by_hand(problem.mdp, solution.policy)
    np.testing.assert_allclose(d, solution.occupancy, atol=1e-9)
    for limit in limits:
        assert limit.bind(problem.mdp).relative(d) <= 1.1e-6
    more, scale = problem.cost @ d - by_highs(problem.mdp, problem.cost, limits), np.abs(problem.cost) @ d
    saved = sum(np.abs(solution.prices[name]).sum() * over for name, over in solution.violations.items())
    assert -3e-6 * scale - saved <= more <= 3e-6 * scale
    solution.certificate.check(problem)
    return solution


def copied(mdp, times=2):
    """The model with each action several times, so that all actions tie with others."""
    order, copy = np.repeat(np.arange(mdp.num_pairs), times), np.tile(np.arange(times), mdp.num_pairs)
    P, costs = sp.csr_array(mdp.transitions)[order], {name: cost[order] for name, cost in mdp.costs.items()}
    return cm.MDP.from_pairs(mdp.state[order], times * mdp.action[order] + copy, P, costs, mdp.discount, mdp.initial)


def copied_limits(limits, times=2):
    """The same limits for :func:`copied`."""
    return [
        cm.Linear(np.repeat(limit.rows, times, axis=1), at_most=limit.upper, at_least=limit.lower, name=limit.name)
        for limit in limits
    ]


def random_limits(mdp, c, count, equal, seed=0):
    """Rows in all kinds of units that some policy meets, most of which the best policy without limits does not."""
    rng = np.random.default_rng(seed)
    best = cm.Problem(mdp, c).solve().occupancy
    some = rng.random(mdp.num_pairs)
    other = mdp.evaluate(some / np.bincount(mdp.state, some)[mdp.state]).occupancy
    limits = []
    for k in range(count):
        row = rng.random(mdp.num_pairs) * 10.0 ** rng.integers(-9, 10)
        level = row @ (0.7 * best + 0.3 * other)
        kind = "equal" if k < equal else "at_most" if row @ best > level else "at_least"
        limits.append(cm.Linear(row, **{kind: level}, name=f"row {k}"))
    return limits


@pytest.fixture
def unpurified(monkeypatch):
    """Let a solve return what it returned without purification."""

    def solve(problem, **how):
        with monkeypatch.context() as patched:
            patched.setattr(cleaning, "purify", lambda *_: None)
            return problem.solve(**how)

    return solve


@pytest.mark.parametrize(("count", "equal"), [(1, 0), (3, 0), (3, 2)])
@pytest.mark.parametrize("name", WORLDS)
def test_worlds_randomize_in_no_more_states_than_there_are_limits(name, count, equal, unpurified):
    mdp = WORLDS[name]()
    c = mdp.cost(next(iter(mdp.costs)))
    limits = random_limits(mdp, c, count, equal)
    problem = cm.Problem(mdp, c, limits)
    solution = clean(problem, limits, count, method="path")
    assert solution.bound == unpurified(problem, method="path").bound


def test_a_grid_that_interior_points_leave_random_everywhere():
    """Without purification it randomizes in some hundred cells."""
    mdp = cm.worlds.gridworld()
    limits = [cm.Budget("collision", at_most=1e-3)]
    clean(cm.Problem(mdp, "time", limits), limits, 1, method="path")


@pytest.mark.parametrize("method", ["path", "interior", "newton", "splitting", "conic"])
def test_answers_of_every_engine_are_clean(method, unpurified):
    mdp = WORLDS["maintenance"]()
    limits = copied_limits(random_limits(mdp, mdp.cost("repair"), 2, 0))
    problem = cm.Problem(copied(mdp), "repair", limits)
    assert random_states(unpurified(problem, method=method)).size > 2
    clean(problem, limits, 2, method=method)


def test_mixtures_of_policies_are_clean(unpurified):
    """Three policies that are mixed differ in more than two states."""
    mdp = cm.worlds.gridworld(size=12)
    limits = random_limits(mdp, "time", 2, 1)
    problem = cm.Problem(mdp, "time", limits)
    assert random_states(unpurified(problem, method="mixing")).size > 2
    clean(problem, limits, 2, method="mixing")


def test_where_shortest_paths_tie(unpurified):
    """A grid without obstacles, each action three times."""
    grid = cm.worlds.gridworld(size=6, obstacles=[], slip=0.0)
    row = np.random.default_rng(2).random(grid.num_pairs)
    limits = copied_limits([cm.Linear(row, at_most=0.9 * float(row @ cm.Problem(grid, "time").solve().occupancy))], 3)
    problem = cm.Problem(copied(grid, 3), "time", limits)
    assert random_states(unpurified(problem, method="path")).size > 10
    clean(problem, limits, 1, method="path")


@pytest.mark.parametrize("share", [1.0, 1.01])
def test_degenerate_limits(share, unpurified):
    """A limit that a policy without chance just meets, or a looser one, twice over, a row of ones and one of zeros."""
    mdp = as_mdp(random_model(3, states=30, actions=4, branching=4))
    c, row = mdp.cost("cost"), np.random.default_rng(4).random(mdp.num_pairs)
    pure = cm.Problem(mdp, c + 0.5 * row).solve().occupancy  # the best policy at a price of one half
    limits = copied_limits(
        [
            cm.Linear(row, at_most=share * float(row @ pure)),
            cm.Linear(2 * row, at_most=share * float(2 * row @ pure)),
            cm.Linear(np.ones(mdp.num_pairs), equal=1.0),
            cm.Linear(np.zeros(mdp.num_pairs), at_most=0.0),
        ]
    )
    problem = cm.Problem(copied(mdp), "cost", limits)
    assert random_states(unpurified(problem, method="interior")).size > 1
    clean(problem, limits, 1, method="interior")


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_rows_in_units_from_billions_to_billionths(seed):
    mdp = as_mdp(random_model(seed, states=12, actions=3, branching=3))
    limits = copied_limits(random_limits(mdp, "cost", 3, 1, seed))
    assert max(np.max(row.rows) for row in limits) > 1e6 * min(np.max(row.rows) for row in limits)
    clean(cm.Problem(copied(mdp), "cost", limits), limits, 3, method="path")


def test_a_discount_of_five_nines(unpurified):
    mdp = as_mdp(random_model(6, states=40, actions=4, discount=0.99999, branching=4))
    limits = copied_limits(random_limits(mdp, "cost", 2, 0))
    problem = cm.Problem(copied(mdp), "cost", limits)
    assert random_states(unpurified(problem, method="path")).size > 2
    clean(problem, limits, 2, method="path")


def test_states_that_are_not_reached_take_one_action(unpurified):
    mdp = as_mdp(with_unreachable_states(random_model(8, states=30, actions=4, branching=3)))
    limits = copied_limits(random_limits(mdp, "cost", 2, 0))
    problem = cm.Problem(copied(mdp), "cost", limits)
    assert random_states(unpurified(problem, method="path")).size > 2
    solution = clean(problem, limits, 2, method="path")
    assert np.any(solution.visits == 0)
    actions = np.bincount(problem.mdp.state, solution.policy.probabilities > 0)
    assert np.all(actions[solution.visits == 0] == 1)


def test_a_walk_says_what_to_do_in_states_that_are_not_reached():
    mdp = as_mdp(with_unreachable_states(random_model(8, states=30, actions=4, branching=3)))
    policy = walked(mdp, np.ones(mdp.num_pairs), 2.0, even(mdp), room=1.0)
    np.testing.assert_array_equal(np.bincount(mdp.state, policy.probabilities), 1.0)


def test_states_that_are_left_take_one_action(unpurified):
    """Two ways of two states each that tie, of which one may be taken at most seldom: it is given up altogether."""
    P = np.zeros((2, 5, 5))
    for state, ends in enumerate([[1, 3], [2, 2], [0, 0], [4, 4], [0, 0]]):
        P[[0, 1], state, ends] = 1.0
    mdp = cm.MDP(list(P), {"cost": np.ones(5)}, 0.9, [1.0, 0.0, 0.0, 0.0, 0.0])
    limits = [cm.Linear(np.eye(10)[0], at_most=0.1)]
    problem = cm.Problem(mdp, "cost", limits)
    assert np.count_nonzero(unpurified(problem, method="path").policy.probabilities) == 10
    solution = clean(problem, limits, 0, method="path")
    np.testing.assert_array_equal(solution.visits[[1, 2]], 0.0)
    assert np.count_nonzero(solution.policy.probabilities) == 5


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10_000),
    states=st.integers(2, 25),
    actions=st.integers(2, 5),
    count=st.integers(1, 4),
    equal=st.integers(0, 2),
    discount=st.sampled_from([0.5, 0.9, 0.999]),
    times=st.integers(1, 3),
    method=st.sampled_from(["path", "mixing"]),
)
def test_random_models_randomize_in_no_more_states_than_there_are_limits(
    seed, states, actions, count, equal, discount, times, method
):
    mdp = as_mdp(random_model(seed, states, actions, discount=discount, branching=min(states, 3)))
    limits = copied_limits(random_limits(mdp, "cost", count, equal, seed), times)
    clean(cm.Problem(copied(mdp, times), "cost", limits), limits, count, method=method)


def walked(mdp, rows, at_most, pi, multipliers=0.0, room=1e-9, deadline=np.inf):
    """Walk from a policy to a corner and return the corner's policy, or None."""
    linear, d = cm.Linear(rows, at_most=at_most), mdp.evaluate(pi).occupancy
    multipliers = np.broadcast_to(multipliers, linear.upper.shape)
    blocks = Blocks([linear], [], np.zeros(mdp.num_pairs))
    masses = purification.purify(mdp.dynamics("auto"), mdp.cost("cost"), blocks, d, pi, multipliers, room, deadline)
    return None if masses is None else mdp.policy(masses / np.bincount(mdp.state, masses)[mdp.state])


def test_a_walk_of_several_rounds_keeps_rows_and_does_not_cost_more(monkeypatch):
    """From a policy far from the best one the way to a corner may lead uphill, and has to turn round."""
    rounds, turned, rows_met = [], [], []
    likeliest, until_none, until_bound = purification._likeliest, purification._until_none, purification._until_bound
    monkeypatch.setattr(purification, "_likeliest", lambda *a: rounds.append(1) or likeliest(*a))
    monkeypatch.setattr(purification, "_until_none", lambda *a: turned.append(a[-1] > 1) or until_none(*a))

    def bound(*arguments):
        found = until_bound(*arguments)
        rows_met.append(found[1] is not None)
        return found

    monkeypatch.setattr(purification, "_until_bound", bound)
    monkeypatch.setattr(purification, "MOST_ROUNDS", 1000)
    for seed in range(20):
        mdp = as_mdp(random_model(seed, states=12, actions=4, branching=3))
        rng = np.random.default_rng(seed)
        pi = rng.random(mdp.num_pairs)
        pi /= np.bincount(mdp.state, pi)[mdp.state]
        d, rows = mdp.evaluate(pi).occupancy, rng.random((4, mdp.num_pairs))
        at_most = (rows @ d) * [1.0, 1.0, 1.01, 1.01]  # the first two bind, the others may be met on the way
        policy = walked(mdp, rows, at_most, pi, multipliers=[1.0, 1.0, 0.0, 0.0])
        corner = by_hand(mdp, policy)
        assert np.count_nonzero(policy.probabilities) - mdp.num_states <= 4
        np.testing.assert_allclose(rows[:2] @ corner, rows[:2] @ d, rtol=1e-8)
        assert np.all(rows @ corner <= at_most * (1 + 1e-8))
        assert mdp.cost("cost") @ corner <= mdp.cost("cost") @ d + 2e-9
    assert len(rounds) > 60
    assert any(turned)
    assert any(rows_met)


def even(mdp):
    return 1 / np.bincount(mdp.state)[mdp.state]


def test_a_corner_is_left_as_it_is():
    mdp = as_mdp(random_model(1, states=10, actions=3))
    row = np.random.default_rng(0).random(mdp.num_pairs)
    corner = walked(mdp, row, row @ mdp.evaluate(even(mdp)).occupancy, even(mdp), room=1.0).probabilities
    assert walked(mdp, row, row @ mdp.evaluate(corner).occupancy, corner) is None


@pytest.mark.parametrize("name", ["MOST_ROWS", "MOST_STATES", "MOST_ROUNDS"])
def test_problems_that_are_too_large_are_left_as_they_are(monkeypatch, name):
    mdp = as_mdp(random_model(1, states=10, actions=3))
    row = np.ones(mdp.num_pairs)
    assert walked(mdp, row, 2.0, even(mdp)) is not None
    monkeypatch.setattr(purification, name, 0)
    assert walked(mdp, row, 2.0, even(mdp)) is None


def test_a_walk_ends_where_time_is_short_and_at_ctrl_c(monkeypatch):
    mdp = as_mdp(random_model(1, states=10, actions=3))
    row, now = np.ones(mdp.num_pairs), time.perf_counter()
    assert walked(mdp, row, 2.0, even(mdp), deadline=now + 60) is not None
    assert walked(mdp, row, 2.0, even(mdp), deadline=now) is None
    with monkeypatch.context() as patched:
        patched.setattr(purification, "SECONDS", 60.0)  # a round would take ten times as long as there is time
        assert walked(mdp, row, 2.0, even(mdp), deadline=time.perf_counter() + 60) is None
    monkeypatch.setattr(purification.interrupts, "requested", lambda: True)
    assert walked(mdp, row, 2.0, even(mdp)) is None


def some_problem():
    mdp = WORLDS["maintenance"]()
    return cm.Problem(mdp, "repair", random_limits(mdp, mdp.cost("repair"), 2, 0))


def test_a_policy_that_is_worse_is_not_taken(monkeypatch, unpurified):
    problem = some_problem()
    before = unpurified(problem, method="path")
    monkeypatch.setattr(cleaning, "purify", lambda *_: np.ones(problem.mdp.num_pairs))
    after = problem.solve(method="path")
    np.testing.assert_array_equal(after.policy.probabilities, before.policy.probabilities)
    assert (after.status, after.value, after.bound, after.gap) == (
        before.status,
        before.value,
        before.bound,
        before.gap,
    )


def test_a_policy_that_exceeds_limits_more_is_not_taken_though_the_tolerance_allows_it(monkeypatch, unpurified):
    problem = some_problem()
    before = unpurified(problem, method="path", tolerance=1e-3)
    looser = [limit.relaxed(5e-4, relative=True) for limit in problem.constraints]
    beyond = cm.Problem(problem.mdp, "repair", looser).solve(tolerance=1e-6).occupancy
    assert max(c.relative(beyond) for c in problem.constraints) > 3e-4
    monkeypatch.setattr(cleaning, "purify", lambda *_: beyond)
    after = problem.solve(method="path", tolerance=1e-3)
    np.testing.assert_array_equal(after.policy.probabilities, before.policy.probabilities)


@pytest.mark.parametrize("error", [np.linalg.LinAlgError, MemoryError, RuntimeError, FloatingPointError])
def test_a_walk_that_breaks_down_leaves_the_policy(monkeypatch, unpurified, error):
    problem = some_problem()
    before = unpurified(problem, method="path")

    def broken(*_):
        raise error

    monkeypatch.setattr(cleaning, "purify", broken)
    after = problem.solve(method="path")
    np.testing.assert_array_equal(after.policy.probabilities, before.policy.probabilities)


def test_masses_that_are_not_numbers_leave_the_policy(monkeypatch, unpurified):
    problem = some_problem()
    before = unpurified(problem, method="path")
    monkeypatch.setattr(cleaning, "purify", lambda *_: np.full(problem.mdp.num_pairs, np.nan))
    after = problem.solve(method="path")
    np.testing.assert_array_equal(after.policy.probabilities, before.policy.probabilities)


@pytest.mark.parametrize("kind", ["entropy", "ball", "term"])
def test_where_limits_or_costs_are_curved_nothing_is_purified(monkeypatch, kind):
    mdp = WORLDS["maintenance"]()
    called = []
    monkeypatch.setattr(cleaning, "purify", lambda *_: called.append(1))
    center = mdp.evaluate(even(mdp)).occupancy
    budget = random_limits(mdp, mdp.cost("repair"), 1, 0)
    limits = {"entropy": [*budget, cm.Entropy(at_least=2.0)], "ball": [cm.NormBall(center, 0.05)], "term": budget}[kind]
    minimize = "repair" + cm.NegativeEntropy(0.1) if kind == "term" else "repair"
    assert cm.Problem(mdp, minimize, limits).solve().status is cm.Status.OPTIMAL
    assert not called


def test_robust_budgets_over_boxes_and_vertices_are_rows(unpurified):
    mdp = copied(WORLDS["queue"]())
    cost = next(iter(mdp.costs))
    best = cm.Problem(mdp, cost).solve().occupancy
    rng = np.random.default_rng(0)
    row = np.repeat(rng.random(mdp.num_pairs // 2), 2)
    errors = np.repeat(0.1 * rng.random((2, mdp.num_pairs // 2)), 2, axis=1)
    limits = [
        cm.RobustBudget(row, cm.Box(errors[0]), at_most=0.95 * float((row + errors[0]) @ best)),
        cm.RobustBudget(row, cm.Vertices(errors), at_most=0.97 * float(np.max((row + errors) @ best))),
    ]
    problem = cm.Problem(mdp, cost, limits)
    assert random_states(unpurified(problem, method="path")).size > 3
    clean(problem, limits, 3, method="path")
