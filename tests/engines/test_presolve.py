"""Policy iteration against linear programs, and problems that it solves alone."""

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.dynamics.base import indicator
from cvxmdp.engines.choose import choose_engines
from cvxmdp.engines.presolve import lower_bound, policy_iteration
from engine_oracles import cases, interior_occupancy, with_absorbing_state, with_unreachable_states
from oracles import as_mdp, lp_optimum, occupancy, random_model, value

MODELS = {
    "dense": random_model(0, states=6, actions=3),
    "few successors": random_model(1, states=10, actions=3, branching=2),
    "ragged": random_model(2, states=8, actions=4, ragged=True),
    "one state": random_model(3, states=1, actions=4),
    "one action": random_model(4, states=5, actions=1),
    "short memory": random_model(5, states=6, actions=3, discount=0.5),
    "long memory": random_model(6, states=6, actions=3, discount=0.9999),
    "absorbing": with_absorbing_state(random_model(7, states=6, actions=3, discount=0.99)),
    "unreachable": with_unreachable_states(random_model(8, states=6, actions=3)),
}


def least(model, c):
    """The unconstrained optimum and an optimal occupancy."""
    return lp_optimum(model, c, np.zeros((1, len(c))), [1.0])[:2]


@pytest.mark.parametrize("evaluation", ["direct", "iterative"])
@pytest.mark.parametrize("name", MODELS)
def test_policy_iteration_finds_the_linear_program_s_optimum_and_proves_it(name, evaluation):
    model = MODELS[name]
    c = model["costs"]["cost"]
    dynamics = as_mdp(model, sparse=name == "few successors").dynamics(evaluation)
    answer = policy_iteration(dynamics, c)
    best, _ = least(model, c)
    pi = indicator(dynamics, answer.pairs)
    assert c @ occupancy(model, pi) == pytest.approx(best, abs=1e-9)
    assert answer.bound == pytest.approx(best, abs=1e-9)
    assert answer.bound <= best + 1e-10


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("name", MODELS)
def test_its_proof_is_the_value_of_its_policy(name, scale):
    """V solves Bellman's equation: it is the policy's value, and no action improves it."""
    model = MODELS[name]
    c = scale * model["costs"]["cost"]
    dynamics = as_mdp(model).dynamics("direct")
    answer = policy_iteration(dynamics, c)
    expected = value(model, indicator(dynamics, answer.pairs), c)
    np.testing.assert_allclose(answer.V, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
    gains = answer.V[model["state"]] - (c + model["discount"] * model["P"] @ answer.V)
    assert gains.max() <= 1e-10 * np.abs(answer.V).max()


@pytest.mark.parametrize("rounds", range(6))
def test_a_bound_is_true_however_few_rounds_are_run(rounds):
    for name, model in MODELS.items():
        c = model["costs"]["cost"]
        dynamics = as_mdp(model).dynamics("direct")
        start = 10 * np.random.default_rng(rounds).normal(size=dynamics.num_states)
        answer = policy_iteration(dynamics, c, start, rounds=rounds)
        assert answer.bound <= least(model, c)[0] + 1e-9, name
        assert np.array_equal(np.unique(dynamics.owner[answer.pairs]), np.arange(dynamics.num_states))
        again = lower_bound(dynamics, answer.V, dynamics.sweep(c, answer.V)[0])
        assert answer.bound == pytest.approx(again, abs=1e-12 * (1 + np.abs(answer.V).max()))


def test_more_rounds_never_lower_the_bound():
    for model in MODELS.values():
        c = model["costs"]["cost"]
        dynamics = as_mdp(model).dynamics("direct")
        bounds = [policy_iteration(dynamics, c, rounds=rounds).bound for rounds in range(8)]
        assert np.all(np.diff(bounds) >= 0)


def test_a_good_start_is_not_lost_to_a_worse_policy():
    """The greedy policy of a rough value may be poor, and then the bound of the value itself is the better."""
    lowered = 0
    for seed in range(30):
        model = random_model(seed, states=10, actions=4, discount=0.95, branching=1)
        c, dynamics = model["costs"]["cost"], as_mdp(model).dynamics("direct")
        start = policy_iteration(dynamics, c).V + np.random.default_rng(seed).normal(size=10)
        before = lower_bound(dynamics, start, dynamics.sweep(c, start)[0])
        greedy = dynamics.sweep(c, start)[1]
        V = dynamics.value(indicator(dynamics, greedy), c)
        lowered += lower_bound(dynamics, V, dynamics.sweep(c, V)[0]) < before
        assert policy_iteration(dynamics, c, start, rounds=1).bound >= before
    assert lowered > 0  # so that the test can fail


def test_ties_do_not_make_it_cycle():
    """Every policy of this model costs the same."""
    model = MODELS["dense"] | {"costs": {"cost": np.full(18, 2.5)}}
    dynamics = as_mdp(model).dynamics("direct")
    before = dynamics.passes
    answer = policy_iteration(dynamics, np.full(18, 2.5))
    assert answer.bound == pytest.approx(2.5, rel=1e-12)
    assert dynamics.passes - before < 10


def test_a_tolerance_stops_it_early_with_a_bound_that_close():
    model = random_model(9, states=40, actions=5, discount=0.99)
    c = model["costs"]["cost"]
    best = least(model, c)[0]
    for tolerance in (1e-1, 1e-3):
        answer = policy_iteration(as_mdp(model).dynamics("direct"), c, tolerance=tolerance)
        assert best - tolerance <= answer.bound <= best + 1e-9


def test_a_deadline_in_the_past_stops_it_after_one_evaluation():
    model = random_model(9, states=40, actions=5, discount=0.99)
    dynamics = as_mdp(model).dynamics("direct")
    before = dynamics.passes
    answer = policy_iteration(dynamics, model["costs"]["cost"], deadline=0.0)
    assert dynamics.passes - before == 2  # one sweep to start, one after the evaluation
    assert answer.bound <= least(model, model["costs"]["cost"])[0]


# ------------------------------------------------------------------------------------------ problems it solves alone


@pytest.mark.parametrize("method", ["auto", "splitting"])
@pytest.mark.parametrize("name", MODELS)
def test_without_constraints_the_answer_needs_no_engine(name, method):
    model = MODELS[name]
    problem = cm.Problem(as_mdp(model), "cost")
    solution = problem.solve(method=method)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.stats.iterations == 0
    assert solution.value == pytest.approx(least(model, problem.cost)[0], abs=1e-9)
    assert solution.prices == {}
    solution.certificate.check(problem)


class Everything:
    """All of space."""

    def project(self, point):
        return point


def inactive(model):
    """Constraints of every kind that the unconstrained optimum obeys, with room to spare."""
    _, d = least(model, model["costs"]["cost"])
    E = np.random.default_rng(0).normal(size=(3, d.size))
    return {
        "budget": cm.Budget("risk", at_most=float(model["costs"]["risk"] @ d) + 0.01),
        "rows": cm.Linear(E, at_most=E @ d + 0.01),
        "rows from below": cm.Linear(E, at_least=E @ d - 0.01),
        "box": cm.Bounds(lower=d - 0.01, upper=d + 0.01),
        "ball": cm.NormBall(d + 0.001, 0.1),
        "custom": Everything(),
    }


@pytest.mark.parametrize("method", ["auto", "splitting"])
@pytest.mark.parametrize("kind", list(inactive(MODELS["dense"])))
def test_an_inactive_constraint_of_any_kind_needs_no_engine(kind, method):
    for name in ("dense", "ragged", "long memory", "unreachable"):
        model = MODELS[name]
        problem = cm.Problem(as_mdp(model), "cost", [inactive(model)[kind]])
        solution = problem.solve(method=method)
        assert solution.status is cm.Status.OPTIMAL
        assert solution.stats.iterations == 0
        assert solution.value == pytest.approx(least(model, problem.cost)[0], abs=1e-9)
        assert np.all(np.ravel(*solution.prices.values()) == 0)  # a free constraint has no price
        solution.certificate.check(problem)


@pytest.mark.parametrize("method", ["auto", "splitting"])
@pytest.mark.parametrize("kind", ["rows", "box", "ball"])
def test_a_constraint_that_holds_with_equality_at_the_optimum_costs_nothing(kind, method):
    for name in ("dense", "ragged", "short memory", "absorbing"):
        model = MODELS[name]
        best, d = least(model, model["costs"]["cost"])
        E = np.random.default_rng(0).normal(size=(2, d.size))
        center = interior_occupancy(model)
        constraint = {
            "rows": cm.Linear(E, at_most=E @ d),
            "box": cm.Bounds(upper=d.max()),
            "ball": cm.NormBall(center, np.linalg.norm(d - center)),
        }[kind]
        problem = cm.Problem(as_mdp(model), "cost", [constraint])
        solution = problem.solve(method=method)
        assert solution.status is cm.Status.OPTIMAL
        assert solution.value == pytest.approx(best, abs=1e-6 * np.abs(problem.cost).max())
        solution.certificate.check(problem)


def test_an_active_constraint_does_need_the_engine():
    """So that the tests above can fail."""
    model = MODELS["dense"]
    for kind, (constraints, _) in cases(model).items():
        assert cm.Problem(as_mdp(model), "cost", constraints).solve(tolerance=1e-3).stats.iterations > 0, kind


def test_zero_costs_are_solved_by_any_policy_that_obeys():
    for kind, (constraints, _) in cases(MODELS["dense"]).items():
        problem = cm.Problem(as_mdp(MODELS["dense"]), np.zeros(18), constraints)
        for method in ("auto", "splitting"):
            solution = problem.solve(method=method)
            assert solution.status is cm.Status.OPTIMAL, kind
            assert solution.value == 0
            assert all(constraint.relative(solution.occupancy) <= 1e-6 for constraint in problem.constraints)
            solution.certificate.check(problem)


@pytest.mark.parametrize(
    ("states", "rows", "expected"),
    [
        (10, 20, ["path", "mixing", "conic"]),
        (1200, 20, ["mixing", "path", "conic"]),
        (10, 21, ["path", "interior", "conic"]),
        (90, 30, ["mixing", "path", "interior", "conic"]),
        (89, 30, ["path", "interior", "conic"]),
        (300, 100, ["mixing", "path", "interior", "conic"]),
        (400, 101, ["path", "interior", "conic"]),
    ],
)
def test_the_engine_follows_rows_and_states(states, rows, expected):
    mdp = as_mdp(random_model(0, states=states, actions=2, branching=2), sparse=True)
    limits = cm.Linear(np.random.default_rng(0).normal(size=(rows, mdp.num_pairs)), at_most=1.0).bind(mdp)
    assert [engine.name for engine in choose_engines("auto", [limits], [], mdp)] == expected


def test_few_rows_are_mixed_where_states_soon_lead_to_the_same():
    garnet, stock = cm.worlds.garnet(100, 10, 0.2, seed=1, discount=0.95), cm.worlds.inventory(200)
    for mdp, first in ((garnet, "mixing"), (stock, "path"), (cm.worlds.perishable(4, 8), "path")):
        limits = cm.Linear(next(iter(mdp.costs.values())), at_most=1.0).bind(mdp)
        assert choose_engines("auto", [limits], [], mdp)[0].name == first
