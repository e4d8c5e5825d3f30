"""Newton's method on the dual: its derivatives by differences, its answers by Clarabel, and what it hands on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.engines.dual import settle
from engine_oracles import (
    assert_optimal,
    ball_block,
    interior_occupancy,
    optimum,
    with_absorbing_state,
    with_unreachable_states,
)
from oracles import as_mdp, flow_matrix, inflow, lp_optimum, random_model

MODELS = {
    "dense": (random_model(0, states=6, actions=3), False),
    "sparse": (random_model(1, states=60, actions=3, branching=3), True),
    "ragged": (random_model(2, states=8, actions=4, ragged=True), False),
    "one state": (random_model(3, states=1, actions=4), False),
    "short memory": (random_model(5, states=6, actions=3, discount=0.5), False),
    "long memory": (random_model(6, states=6, actions=3, discount=0.999), False),
    "absorbing": (with_absorbing_state(random_model(7, states=6, actions=3)), False),
    "unreachable": (with_unreachable_states(random_model(8, states=7, actions=3)), False),
}
KINDS = ("ball", "weighted ball", "entropy", "KL")


def half_way(model, kind, share=0.5):
    """A limit between what a random policy does, which obeys it, and what the best policy does, which does not."""
    d, c = interior_occupancy(model), model["costs"]["cost"]
    best = lp_optimum(model, c, np.zeros((1, c.size)), [1.0])[1]
    some = d > 0
    if kind == "ball":
        return cm.NormBall(d, share * np.linalg.norm(best - d))
    if kind == "weighted ball":
        w = np.random.default_rng(0).uniform(0.5, 2.0, size=d.size)
        return cm.NormBall(d, share * np.sqrt(np.sum(w * (best - d) ** 2)), weights=w)
    if kind == "entropy":
        entropy = [-np.sum(x[x > 0] * np.log(x[x > 0])) for x in (d, np.maximum(best, 0.0))]
        return cm.Entropy(at_least=(1 - share) * entropy[0] + share * entropy[1])
    far = np.maximum(best, 0.0)[some]
    return cm.KLBall(d, share * np.sum(far[far > 0] * np.log(far[far > 0] / d[some][far > 0])))


def stated(name, kind):
    model, sparse = MODELS[name]
    return model, cm.Problem(as_mdp(model, sparse), "cost", [half_way(model, kind)])


@pytest.mark.parametrize("kind", KINDS)
def test_the_response_is_the_best_point_and_its_derivatives_are_right(kind):
    """``q'd + mu F(d)`` is least at d (for entropies among distributions), by trying; derivatives by differences."""
    model, problem = stated("dense", kind)
    limit = problem.constraints[0].separable()
    rng = np.random.default_rng(1)
    q, mu = rng.normal(size=model["state"].size), 0.7
    if "ball" in kind:
        q, mu = 0.05 * q, 1.0
    at = limit.respond(q, mu)

    def function(x):
        if "ball" in kind:
            return np.sum(limit.w * (x - limit.center) ** 2) / 2
        return np.sum(x[x > 0] * np.log(x[x > 0] / limit.reference[x > 0]))

    assert at.value == pytest.approx(function(at.d), abs=1e-12)
    assert at.least == pytest.approx(q @ at.d + mu * at.value, abs=1e-12)
    for _ in range(50):
        other = np.maximum(at.d + 0.01 * rng.normal(size=q.size), 0.0)
        other = other if "ball" in kind else other / other.sum()
        assert q @ other + mu * function(other) >= at.least - 1e-12
    way, step = rng.normal(size=q.size), 1e-7
    moved = (limit.respond(q + step * way, mu).d - limit.respond(q - step * way, mu).d) / (2 * step)
    expected = -at.weights * way
    if at.even:
        expected += at.d * (at.d @ way) / mu
    np.testing.assert_allclose(moved, expected, atol=1e-6)
    turned = (limit.respond(q, mu + step).d - limit.respond(q, mu - step).d) / (2 * step)
    slope = at.slope - (at.d @ at.slope if at.even else 0.0)
    np.testing.assert_allclose(turned, -at.weights * slope, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_the_answer_is_optimal_by_the_conditions_of_the_lagrangian(name, kind):
    """At the price mu no occupancy has a lower ``c'd + mu F'(d*)'d`` than d*, and d* meets the limit."""
    model, problem = stated(name, kind)
    solution = problem.solve(method="dual", tolerance=1e-8)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.stats.method.startswith("Newton's method on the dual")
    solution.certificate.check(problem)
    d, limit = solution.occupancy, problem.constraints[0].separable()
    assert problem.constraints[0].relative(d) <= 1e-8
    np.testing.assert_allclose(flow_matrix(model) @ d, inflow(model), atol=1e-12)
    mu = limit.price_of(solution.evidence.proofs["bound"].duals[0])
    assert mu > 0
    if kind == "ball":
        assert_optimal(problem, solution, model, [ball_block(limit.center, np.sqrt(2 * limit.bound))])
    some = d > 0 if "ball" in kind else limit.reference > 0
    slope = np.zeros_like(d)
    if "ball" in kind:
        slope = limit.w * (d - limit.center)
    else:
        slope[some] = np.log(np.maximum(d[some], 1e-300) / limit.reference[some])
    c = problem.cost + mu * slope
    least = lp_optimum(model, c, np.diag((~some).astype(float)) if kind == "KL" else np.zeros((1, d.size)),
                       np.zeros(d.size) if kind == "KL" else [1.0])[0]  # fmt: skip
    assert c @ d <= least + 1e-5 * np.abs(c) @ d


@pytest.mark.parametrize("kind", KINDS)
def test_the_price_is_the_slope_of_the_optimum(kind):
    model, _ = MODELS["dense"]
    mdp, step = as_mdp(model), 1e-3
    below, here, above = (
        cm.Problem(mdp, "cost", [half_way(model, kind, share)]).solve(method="dual", tolerance=1e-9)
        for share in (0.5 - step, 0.5, 0.5 + step)
    )
    bounds = [half_way(model, kind, share) for share in (0.5 - step, 0.5 + step)]
    name = next(iter(here.prices))
    of = (lambda s: s.at_least) if kind == "entropy" else (lambda s: s.radius)
    slope = (above.value - below.value) / (of(bounds[1]) - of(bounds[0]))
    assert here.prices[name] == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_scale_of_costs_does_not_matter(kind, scale):
    model, _ = MODELS["dense"]
    mdp, limit = as_mdp(model), half_way(model, kind)
    usual, other = (cm.Problem(mdp, k * model["costs"]["cost"], [limit]).solve(method="dual") for k in (1.0, scale))
    assert other.status is cm.Status.OPTIMAL
    assert other.value == pytest.approx(scale * usual.value, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_needs_fewer_steps(kind):
    _, problem = stated("sparse", kind)
    first = problem.solve(method="dual")
    again = problem.solve(method="dual", warm_start=first)
    assert again.status is cm.Status.OPTIMAL
    assert again.stats.iterations < first.stats.iterations


def test_where_no_policy_obeys_the_nearest_is_found_by_another_engine():
    model, _ = MODELS["dense"]
    mdp, d = as_mdp(model), interior_occupancy(model)
    problem = cm.Problem(mdp, "cost", [cm.NormBall(d + 0.1, 0.01)])
    solution = problem.solve()
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)
    high = cm.Problem(mdp, "cost", [cm.Entropy(at_least=np.log(d.size))]).solve()
    assert high.status is cm.Status.INFEASIBLE


def test_it_refuses_what_it_cannot_solve():
    mdp = as_mdp(MODELS["dense"][0])
    for constraints in ([cm.Budget("risk", at_most=0.5)], [cm.Entropy(1.0), cm.Entropy(1.1)]):
        with pytest.raises(ValueError, match='method "dual" needs a cost under one constraint'):
            cm.Problem(mdp, "cost", constraints).solve(method="dual")


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 10**6), states=st.integers(1, 12), actions=st.integers(2, 4), ragged=st.booleans(),
    discount=st.sampled_from([0.5, 0.9, 0.99]), share=st.floats(0.05, 0.95),
)  # fmt: skip
def test_any_ball_is_met_as_clarabel_meets_it(seed, states, actions, ragged, discount, share):
    model = random_model(seed, states, actions, ragged, discount)
    ball = half_way(model, "ball", share)
    if ball.radius < 1e-6:  # no choice
        return
    problem = cm.Problem(as_mdp(model), "cost", [ball])
    solution = problem.solve(method="dual")
    assert_optimal(problem, solution, model, [ball_block(ball.center, ball.radius)])
    assert optimum(model, problem.cost, [ball_block(ball.center, ball.radius)]) is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_price_and_level_are_settled_at_the_top_of_the_dual(kind, seed):
    """There d adds up to one and meets the limit, and no other price and level are better."""
    _, problem = stated("dense", kind)
    limit = problem.constraints[0].separable()
    rng = np.random.default_rng(seed)
    q = rng.normal(size=problem.mdp.num_pairs)

    def height(lift, mu):
        return lift - mu * limit.bound + limit.respond(q - lift, mu).least

    lift, mu, at = settle(limit, q, limit.price(q))
    assert at.d.sum() == pytest.approx(1.0, abs=1e-9)
    assert at.value == pytest.approx(limit.bound, abs=1e-9 * limit.scale)
    np.testing.assert_allclose(at.d, limit.respond(q - lift, mu).d)
    for _ in range(20):
        other = height(lift + rng.normal(), mu * np.exp(rng.normal()))
        assert height(lift, mu) >= other - 1e-9 * (1 + abs(other))
