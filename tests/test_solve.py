"""``Problem.solve`` from the outside: every status, every scale, every way to write the same problem, every corner."""

import numpy as np
import pytest
from scipy.optimize import linprog

import cvxmdp as cm
from cvxmdp import Status
from engine_oracles import (
    assert_optimal,
    ball_block,
    cases,
    interior_occupancy,
    linear_block,
    nearest,
    optimum,
    permuted,
    prox,
    random_rows,
    with_absorbing_state,
    with_unreachable_states,
)
from oracles import (
    as_mdp,
    flow_matrix,
    inflow,
    lp_optimum,
    nearest_displacement,
    occupancy,
    random_model,
    random_policy,
)

METHODS = ["auto", "splitting"]
KINDS = list(cases(random_model(0)))


def least(model, c):
    """The unconstrained optimum and an optimal occupancy."""
    return lp_optimum(model, c, np.zeros((1, len(c))), [1.0])[:2]


def solve(model, constraints, cost="cost", sparse=False, **options):
    """Solve, check the certificate, and return both."""
    problem = cm.Problem(as_mdp(model, sparse), cost, constraints)
    solution = problem.solve(**options)
    solution.certificate.check(problem, solution.tolerance)
    return problem, solution


# ---------------------------------------------------------------------------------------------- the same problem


@pytest.mark.parametrize("kind", ["rows", "ball", "box", "rows and ball"])
@pytest.mark.parametrize("seed", range(3))
def test_direct_and_iterative_dense_and_sparse_give_the_same_answer(seed, kind):
    model = random_model(seed, states=7, actions=3, ragged=seed == 1, branching=3, discount=[0.5, 0.9, 0.99][seed])
    constraints, blocks = cases(model)[kind]
    settings = [cm.Splitting(evaluation=evaluation) for evaluation in ("direct", "iterative")]
    if kind == "rows":
        settings += [cm.Mixing(evaluation=evaluation) for evaluation in ("direct", "iterative")]
    for method in settings:
        for sparse in (False, True):
            problem, solution = solve(model, constraints, sparse=sparse, method=method)
            assert_optimal(problem, solution, model, blocks)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_renumbering_states_and_actions_changes_nothing(seed, kind, method):
    model = random_model(10 + seed, states=6, actions=3, ragged=seed == 1)
    other, order = permuted(model, seed)

    def moved(constraint):
        if isinstance(constraint, cm.NormBall):
            return cm.NormBall(constraint.center[order], constraint.radius)
        if isinstance(constraint, cm.Bounds):
            return cm.Bounds(constraint.lower[order], constraint.upper[order])
        return cm.Linear(constraint.rows[:, order], at_most=constraint.upper)

    constraints, blocks = cases(model)[kind]
    problem, one = solve(model, constraints, method=method)
    _, two = solve(other, [moved(constraint) for constraint in constraints], method=method)
    assert_optimal(problem, one, model, blocks)
    assert two.status is one.status
    assert two.value == pytest.approx(one.value, abs=2e-6 * np.abs(problem.cost) @ one.occupancy)
    # The policy found in the renumbered model, carried back, does in this one what it does there.
    back = np.empty(order.size)
    back[order] = two.policy.probabilities
    assert problem.cost @ occupancy(model, back) == pytest.approx(two.value, rel=1e-9)


@pytest.mark.parametrize("kind", ["rows", "ball"])
@pytest.mark.parametrize("evaluation", ["auto", "direct", "iterative"])
def test_a_model_large_enough_for_sparse_kernels_is_solved_like_a_small_one(kind, evaluation):
    model = random_model(0, states=300, actions=3, branching=5, discount=0.95)
    E, b = random_rows(model, 1, rows=2)
    center = interior_occupancy(model, 1)
    radius = 0.5 * np.linalg.norm(least(model, model["costs"]["cost"])[1] - center)
    if kind == "rows":
        problem, solution = solve(
            model, [cm.Linear(E, at_most=b)], sparse=True, method=cm.Mixing(evaluation=evaluation)
        )
        assert_optimal(problem, solution, model, [linear_block(E, b)])
    else:
        problem, solution = solve(
            model, [cm.NormBall(center, radius)], sparse=True, method=cm.Splitting(evaluation=evaluation)
        )
        assert_optimal(problem, solution, model, [ball_block(center, radius)])


def test_what_is_reported_of_the_policy_is_what_the_policy_does():
    """Everything in the solution, recomputed from the probabilities and the model's arrays."""
    model = random_model(4, states=6, actions=3, ragged=True)
    for kind, (constraints, _) in cases(model).items():
        problem, solution = solve(model, constraints)
        d = occupancy(model, solution.policy.probabilities)
        np.testing.assert_allclose(solution.occupancy, d, atol=1e-12)
        np.testing.assert_allclose(solution.visits, np.bincount(model["state"], d), atol=1e-12)
        assert solution.value == pytest.approx(problem.cost @ d, rel=1e-10), kind
        for name, cost in model["costs"].items():
            assert solution.costs[name] == pytest.approx(cost @ d, rel=1e-10)
        for constraint in problem.constraints:
            if isinstance(constraint, cm.NormBall):
                excess = np.linalg.norm(d - constraint.center) - constraint.radius
            elif isinstance(constraint, cm.Bounds):
                excess = np.max(np.maximum(d - constraint.upper, constraint.lower - d))
            else:
                excess = np.max(constraint.rows @ d - constraint.upper)
            assert solution.violations[constraint.name] == pytest.approx(max(excess, 0), abs=1e-12)
            assert excess <= 1e-6


# ---------------------------------------------------------------------------------------------- scales


def scaled(constraints, factors):
    """Rows and their limits multiplied, each row by a factor of its own."""
    return [
        cm.Linear(k.rows * factors[:, None], at_most=k.upper * factors) if isinstance(k, cm.Linear) else k
        for k in constraints
    ]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["rows", "ball", "rows and ball", "box and rows"])
@pytest.mark.parametrize("cost_factor", [1e-8, 1e-6, 1e6, 1e8])
def test_the_unit_of_the_cost_does_not_matter(cost_factor, kind, method):
    model = random_model(2, states=6, actions=3)
    c = model["costs"]["cost"]
    constraints, _ = cases(model)[kind]
    _, one = solve(model, constraints, c, method=method)
    _, two = solve(model, constraints, cost_factor * c, method=method)
    assert two.status is one.status is Status.OPTIMAL
    assert abs(two.stats.iterations - one.stats.iterations) <= 0.1 * one.stats.iterations + 3
    scale = np.abs(c) @ one.occupancy
    assert two.value / cost_factor == pytest.approx(one.value, abs=1e-6 * scale)
    assert two.bound / cost_factor == pytest.approx(one.bound, abs=1e-6 * scale)
    for name, price in one.prices.items():
        np.testing.assert_allclose(
            np.asarray(two.prices[name]) / cost_factor, price, atol=1e-3 * max(np.abs(price).max(), scale)
        )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["rows", "rows and ball", "box and rows"])
@pytest.mark.parametrize("factors", [(1e-6, 1e-6), (1e6, 1e6), (1e-6, 1e6), (1e8, 1e-8), (37.0, 0.2)])
def test_the_units_of_the_rows_do_not_matter(factors, kind, method):
    model = random_model(2, states=6, actions=3)
    factors = np.array(factors)
    constraints, _ = cases(model)[kind]
    _, one = solve(model, constraints, method=method)
    _, two = solve(model, scaled(constraints, factors), method=method)
    assert two.status is one.status is Status.OPTIMAL
    assert abs(two.stats.iterations - one.stats.iterations) <= 0.1 * one.stats.iterations + 3
    scale = np.abs(model["costs"]["cost"]) @ one.occupancy
    assert two.value == pytest.approx(one.value, abs=1e-6 * scale)
    price = one.prices["linear"]
    np.testing.assert_allclose(two.prices["linear"] * factors, price, atol=1e-3 * max(np.abs(price).max(), scale))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [1e-8, 1e-6, 1e6, 1e8])
def test_infeasibility_does_not_depend_on_units(factor, method):
    model = random_model(3, states=5, actions=3)
    E, b = random_rows(model, 3, rows=2)
    _, one = solve(model, [cm.Linear(E, at_most=b - 1)], method=method)
    _, two = solve(model, [cm.Linear(factor * E, at_most=factor * (b - 1))], method=method)
    _, three = solve(model, [cm.Linear(E, at_most=b - 1)], factor * model["costs"]["cost"], method=method)
    assert one.status is two.status is three.status is Status.INFEASIBLE
    for other in (two, three):
        np.testing.assert_allclose(other.infeasibility.distance, one.infeasibility.distance, rtol=3e-4)


# ---------------------------------------------------------------------------------------------- prices


@pytest.mark.parametrize("method", METHODS)
def test_a_price_is_the_change_of_the_optimum_for_each_unit_of_the_limit(method):
    """By finite differences of another solver's optimum."""
    for seed in range(4):
        model = random_model(30 + seed, states=6, actions=3, ragged=seed % 2 == 0)
        c, risk = model["costs"]["cost"], model["costs"]["risk"]
        low, high = least(model, risk)[0], risk @ least(model, c)[1]
        if high - low < 1e-3:
            continue
        limit, h = 0.5 * (low + high), 1e-5 * (high - low)
        _, solution = solve(model, [cm.Budget("risk", at_most=limit)], method=method)
        up, down = (lp_optimum(model, c, risk[None], [limit + side * h])[0] for side in (1, -1))
        assert solution.prices["risk"] == pytest.approx((up - down) / (2 * h), rel=1e-3)
        assert solution.prices["risk"] < 0
        center, radius = interior_occupancy(model), 0.05
        _, solution = solve(model, [cm.NormBall(center, radius)], method=method)
        up, down = (optimum(model, c, [ball_block(center, radius + side * 1e-4)])[0] for side in (1, -1))
        assert solution.prices["ball"] == pytest.approx((up - down) / 2e-4, rel=1e-3)


# ---------------------------------------------------------------------------------------------- feasible or not


def edge(model, E, b, slope):
    """The least t for which some occupancy has ``E d <= b + t slope``, by HiGHS."""
    flow = flow_matrix(model)
    answer = linprog(
        np.append(np.zeros(E.shape[1]), 1.0),
        A_ub=np.hstack([E, -np.asarray(slope)[:, None]]),
        b_ub=b,
        A_eq=np.hstack([flow, np.zeros((flow.shape[0], 1))]),
        b_eq=inflow(model),
        bounds=[(0, None)] * E.shape[1] + [(None, None)],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return answer.fun


def at_the_edge(kind, model, room):
    """A constraint whose limit is ``1 + room`` times the least that some policy attains."""
    pairs = model["state"].size
    if kind == "budget":
        return cm.Budget("risk", at_most=least(model, model["costs"]["risk"])[0] * (1 + room))
    if kind == "rows":
        E, b = random_rows(model, 5, rows=3)
        b = b - 1 + edge(model, E, b - 1, np.ones(3))
        return cm.Linear(E, at_most=b + room * np.abs(b))
    if kind == "cap":
        return cm.Bounds(upper=edge(model, np.eye(pairs), np.zeros(pairs), np.ones(pairs)) * (1 + room))
    if kind == "floor":
        return cm.Bounds(lower=-edge(model, -np.eye(pairs), np.zeros(pairs), np.ones(pairs)) * (1 - room))
    center = interior_occupancy(model) + 0.3 * np.random.default_rng(5).normal(size=pairs) / np.sqrt(pairs)
    distance = np.linalg.norm(center - prox(model, np.zeros(pairs), center, 1.0))
    return cm.NormBall(center, distance * (1 + room))


EDGES = ["budget", "rows", "cap", "floor", "ball"]


def small_model(seed):
    discount = [0.5, 0.9, 0.99, 0.9999][seed % 4]
    return random_model(seed, states=5, actions=3, ragged=seed % 2 == 1, discount=discount)


@pytest.mark.parametrize(
    ("kind", "method"), [("budget", "auto"), ("rows", "auto"), *((kind, "splitting") for kind in EDGES)]
)
def test_what_is_feasible_by_a_hair_is_never_called_infeasible(kind, method):
    for seed in range(12):
        model = small_model(seed)
        _, solution = solve(model, [at_the_edge(kind, model, 1e-7)], method=method, max_iterations=150)
        assert solution.status is not Status.INFEASIBLE, seed
        assert solution.infeasibility is None


@pytest.mark.parametrize(
    ("kind", "method"), [("budget", "auto"), ("rows", "auto"), *((kind, "splitting") for kind in EDGES)]
)
def test_what_is_infeasible_by_a_thousandth_is_always_called_so(kind, method):
    for seed in range(12 if method == "auto" else 4):
        model = small_model(seed)
        _, solution = solve(model, [at_the_edge(kind, model, -1e-3)], method=method)
        assert solution.status is Status.INFEASIBLE, seed
        low, high = solution.infeasibility.distance
        assert 0 < low <= high * (1 + 1e-9)  # both are the distance to rounding where the policy is exact
        assert solution.infeasibility.margin > 0


@pytest.mark.parametrize(
    ("kind", "method"), [("budget", "auto"), ("rows", "auto"), *((kind, "splitting") for kind in EDGES)]
)
@pytest.mark.parametrize("room", [-1e-5, -1e-7, 1e-9])
def test_whatever_is_claimed_at_the_edge_has_a_proof_that_checks(room, kind, method):
    """So near that rounding matters, any status may come back, but never a claim that its own certificate refutes."""
    for seed in (1, 35, 43):
        model = random_model(seed, states=4, actions=3, discount=0.9999 if seed > 2 else 0.99)
        for tolerance in (1e-3, 1e-9):
            constraint = at_the_edge(kind, model, room)
            solve(model, [constraint], method=method, max_iterations=40, tolerance=tolerance)  # checks the certificate


@pytest.mark.parametrize("kind", ["budget", "rows"])
def test_a_linear_problem_feasible_by_a_hair_is_solved(kind):
    for seed in range(12):
        model = small_model(seed)
        _, solution = solve(model, [at_the_edge(kind, model, 1e-7)])
        assert solution.status is Status.OPTIMAL, seed


def infeasible_cases():
    model = random_model(1, states=5, actions=3)
    E, b = random_rows(model, 1, rows=2)
    pairs = model["state"].size
    far, near = (np.full(pairs, 0.3), 0.2), (interior_occupancy(model), 0.1)
    rows = (E, b - 1)
    return model, {
        "rows": ([cm.Linear(E, at_most=b - 1)], [linear_block(*rows)]),
        "ball": ([cm.NormBall(*far)], [ball_block(*far)]),
        "rows and ball": ([cm.Linear(E, at_most=b - 1), cm.NormBall(*near)], [linear_block(*rows), ball_block(*near)]),
        "two balls": ([cm.NormBall(*near), cm.NormBall(*far)], [ball_block(*near), ball_block(*far)]),
    }


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", list(infeasible_cases()[1]))
def test_the_distance_of_an_infeasible_problem_is_bracketed(kind, method):
    """With several kinds of constraints, the distance counts each kind's copy."""
    model, constraints = infeasible_cases()[0], infeasible_cases()[1][kind][0]
    displacements, _ = nearest(model, infeasible_cases()[1][kind][1])
    size = np.linalg.norm(displacements)
    _, solution = solve(model, constraints, method=method, max_iterations=1000)
    assert solution.status is Status.INFEASIBLE
    low, high = solution.infeasibility.distance
    assert low <= size * (1 + 1e-6)
    assert high >= size * (1 - 1e-6)
    assert high <= size * (1 + 1e-3)
    assert low >= size * (1 - 2e-2)
    np.testing.assert_allclose(solution.infeasibility.displacement, displacements.sum(axis=0), atol=0.05 * size)
    assert solution.infeasibility.policy is solution.policy


@pytest.mark.parametrize("method", METHODS)
def test_relaxing_by_what_is_reported_makes_the_problem_feasible(method):
    model, constraints = infeasible_cases()[0], infeasible_cases()[1]["rows and ball"][0]
    _, solution = solve(model, constraints, method=method, max_iterations=500)
    relax = solution.infeasibility.relax
    rows, ball = constraints
    relaxed = [
        cm.Linear(rows.rows, at_most=rows.upper + relax["linear"].exceeded),
        cm.NormBall(ball.center, ball.radius + relax["ball"].exceeded),
    ]
    for constraint in relaxed:
        assert constraint.violation(solution.occupancy) <= 1e-12
    _, again = solve(model, relaxed, method=method, max_iterations=500)
    assert again.status is not Status.INFEASIBLE


CONTRADICTIONS = {
    "two sides": lambda row, other: [cm.Linear(row, at_most=0.1), cm.Linear(row, at_least=0.2)],
    "two sides, the other way around": lambda row, other: [cm.Linear(row, at_least=0.2), cm.Linear(row, at_most=0.1)],
    "two values": lambda row, other: [cm.Linear(np.stack([row, 2 * row]), equal=[0.1, 0.3])],
    "two values apart": lambda row, other: [cm.Linear(row, equal=0.1), cm.Linear(row, equal=0.3)],
    "a sum": lambda row, other: [cm.Linear(np.stack([row, other, -row - other]), at_most=[-0.1, -0.1, 0.1])],
    "a row of zeros": lambda row, other: [cm.Linear(np.zeros_like(row), at_most=-1.0)],
    "with a ball": lambda row, other: [
        cm.Linear(row, at_most=0.1),
        cm.NormBall(np.full(row.size, 1 / row.size), 0.5),
        cm.Linear(row, at_least=0.2),
    ],
    "in tiny units": lambda row, other: [cm.Linear(1e-8 * row, at_most=1e-9), cm.Linear(1e-8 * row, at_least=2e-9)],
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_limits_that_contradict_each_other_are_infeasible_whatever_the_model(kind, method):
    model = random_model(0, states=5, actions=3)
    row, other = np.random.default_rng(0).normal(size=(2, 15))
    _, solution = solve(model, CONTRADICTIONS[kind](row, other), method=method)
    assert solution.status is Status.INFEASIBLE
    assert solution.infeasibility.margin > 0
    assert not np.isnan(solution.infeasibility.distance).any()
    assert np.all(np.isfinite(solution.infeasibility.displacement))


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_the_dynamics_exclude_are_infeasible(method):
    """An occupancy sums to one, so a limit of one half on the sum is half too low."""
    model = random_model(0, states=5, actions=3)
    _, solution = solve(model, [cm.Linear(np.ones(15), at_most=0.5)], method=method)
    assert solution.status is Status.INFEASIBLE
    low, high = solution.infeasibility.distance
    assert low == pytest.approx(0.5 / np.sqrt(15), rel=1e-3)
    assert high == pytest.approx(0.5 / np.sqrt(15), rel=1e-3)
    np.testing.assert_allclose(solution.infeasibility.displacement, 0.5 / 15, rtol=1e-6)


@pytest.mark.parametrize("kind", ["rows", "caps", "ball", "grid"])
def test_ctrl_c_returns_what_the_engine_had(kind):
    """The policy is better than the one without limits, which was there before the engine began."""
    model = random_model(11, states=40, actions=4)
    mdp = cm.worlds.gridworld(25) if kind == "grid" else as_mdp(model)
    d = mdp.evaluate(mdp.policy(random_policy({"state": mdp.state}, 1))).occupancy
    cost = "time" if kind == "grid" else "cost"
    rows = np.random.default_rng(0).normal(size=(5, d.size))
    free = cm.Problem(mdp, cost).solve()
    limit = {
        "rows": cm.Linear(rows, at_most=np.maximum(rows @ d, (rows @ d + rows @ free.occupancy) / 2)),
        "caps": cm.StateBounds(upper=1.1 * np.bincount(mdp.state, weights=d)),
        "ball": cm.NormBall(d, 0.5 * np.linalg.norm(free.occupancy - d)),
        "grid": cm.Budget("collision", at_most=1e-3) if kind == "grid" else None,
    }[kind]
    problem, calls = cm.Problem(mdp, cost, [limit]), []

    def interrupt(progress):
        calls.append(progress)
        if len(calls) == 5:
            raise KeyboardInterrupt

    solution = problem.solve(callback=interrupt)
    assert solution.status is Status.INTERRUPTED
    solution.certificate.check(problem, solution.tolerance)
    bound = problem.constraints[0]
    assert bound.relative(solution.occupancy) < 0.5 * bound.relative(free.occupancy)


@pytest.mark.parametrize("method", METHODS)
def test_one_action_leaves_no_choice(method):
    model = random_model(6, states=4, actions=1)
    d = occupancy(model, np.ones(4))
    risk = model["costs"]["risk"]
    for room, status in ((1e-7, Status.OPTIMAL), (0.0, Status.OPTIMAL), (-1e-3, Status.INFEASIBLE)):
        _, solution = solve(model, [cm.Budget("risk", at_most=float(risk @ d) * (1 + room))], method=method)
        assert solution.status is status
        np.testing.assert_allclose(solution.occupancy, d, atol=1e-12)
    v, _ = nearest_displacement(model, risk, float(risk @ d) * (1 - 1e-3))
    np.testing.assert_allclose(solution.infeasibility.displacement, v, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_one_state_and_one_action_are_enough_for_a_model(method):
    mdp = cm.MDP.from_pairs([0], [0], [[1.0]], {"cost": [2.0]}, discount=0.9)
    assert cm.Problem(mdp, "cost", [cm.Bounds(upper=1.0)]).solve(method=method).value == pytest.approx(2.0)
    for constraint in (cm.Budget("cost", at_most=1.0), cm.Bounds(upper=0.5), cm.NormBall([0.0], 0.5)):
        solution = cm.Problem(mdp, "cost", [constraint]).solve(method=method)
        assert solution.status is Status.INFEASIBLE
        assert solution.infeasibility.distance[1] == pytest.approx(0.5, rel=1e-9)


# ---------------------------------------------------------------------------------------------- corners


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["ball", "box", "equalities"])
def test_a_single_point_is_a_feasible_set(kind, method):
    for seed in range(3):
        model = random_model(seed, states=5, actions=3, ragged=seed == 1)
        d = interior_occupancy(model)
        constraint = {
            "ball": cm.NormBall(d, 0.0),
            "box": cm.Bounds(lower=d, upper=d),
            "equalities": cm.Linear(np.eye(d.size), equal=d),
        }[kind]
        problem, solution = solve(model, [constraint], method=method, max_iterations=1000)
        assert solution.status is Status.OPTIMAL, (seed, solution.status)
        np.testing.assert_allclose(solution.occupancy, d, atol=1e-9)
        assert solution.value == pytest.approx(problem.cost @ d, abs=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_the_least_of_a_cost_is_a_feasible_limit_for_it(method):
    """The feasible set is the face of the policies that are optimal for the constraint."""
    for seed in range(8):
        model = small_model(seed)
        low, d = least(model, model["costs"]["risk"])
        problem, solution = solve(model, [cm.Budget("risk", at_most=low)], method=method)
        assert solution.status is Status.OPTIMAL, seed
        assert solution.value == pytest.approx(problem.cost @ d, abs=1e-4)  # a vertex; its price is steep


@pytest.mark.parametrize("as_bounds", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_limit_of_zero_on_what_can_be_avoided_is_kept_exactly_enough(method, as_bounds):
    """In every state the last action is forbidden."""
    for seed in range(4):
        model = random_model(seed, states=5, actions=3, discount=[0.5, 0.9, 0.99, 0.999][seed])
        forbidden = (model["action"] == 2).astype(float)
        constraint = cm.Bounds(upper=1 - forbidden) if as_bounds else cm.Linear(forbidden, at_most=0.0)
        _, solution = solve(model, [constraint], method=method)
        best = lp_optimum(model, model["costs"]["cost"], forbidden[None], [0.0])[0]
        assert solution.status is Status.OPTIMAL
        assert forbidden @ solution.occupancy <= 1e-11
        assert solution.value == pytest.approx(best, abs=2e-6 * np.abs(model["costs"]["cost"]).max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["rows", "ball", "rows and ball"])
def test_unreachable_and_absorbing_states_are_no_obstacle(kind, method):
    for discount in (0.5, 0.95, 0.9999):
        model = with_unreachable_states(with_absorbing_state(random_model(8, states=6, actions=3, discount=discount)))
        constraints, blocks = cases(model)[kind]
        problem, solution = solve(model, constraints, method=method)
        assert_optimal(problem, solution, model, blocks)
        np.testing.assert_allclose(solution.visits[-2:], 0, atol=1e-15)
        sums = np.bincount(model["state"], solution.policy.probabilities)
        np.testing.assert_allclose(sums, 1, atol=1e-12)  # a policy even where it never comes


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["rows", "ball"])
def test_a_process_that_begins_in_one_state_and_moves_surely(kind, method):
    """Deterministic transitions, one initial state: occupancies with many zeros."""
    rng = np.random.default_rng(0)
    model = random_model(9, states=6, actions=3, discount=0.9)
    model |= {"P": np.eye(6)[rng.integers(6, size=18)], "initial": np.eye(6)[0]}
    constraints, blocks = cases(model)[kind]
    problem, solution = solve(model, constraints, method=method)
    assert_optimal(problem, solution, model, blocks)


@pytest.mark.parametrize("method", METHODS)
def test_equal_costs_everywhere_are_solved_with_every_constraint(method):
    model = random_model(2, states=5, actions=3)
    for kind, (constraints, _) in cases(model).items():
        _, solution = solve(model, constraints, np.full(15, -3.0), method=method)
        assert solution.status is Status.OPTIMAL, kind
        assert solution.value == pytest.approx(-3.0, rel=1e-9)


def test_a_user_s_set_with_a_projection_is_solved_and_proven():
    model = random_model(3, states=5, actions=3)
    (rows,), blocks = cases(model)["rows"]

    class Half:
        """Only the first row."""

        def project(self, point):
            row = rows.rows[0]
            return point - max(row @ point - rows.upper[0], 0) / (row @ row) * row

    problem, solution = solve(model, [Half()])
    E, b, _ = blocks[0]
    best, _, multipliers = lp_optimum(model, problem.cost, E[:1], b[:1])
    assert solution.status is Status.OPTIMAL
    assert solution.value == pytest.approx(best, abs=3e-6 * np.abs(problem.cost).max())
    # Growing the set by a unit of distance moves the limit by the norm of the row.
    assert solution.prices["Half"] == pytest.approx(-multipliers[0] * np.linalg.norm(E[0]), rel=1e-3)


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99, 0.999, 0.9999])
@pytest.mark.parametrize("method", METHODS)
def test_every_discount_is_solved(method, discount):
    model = random_model(12, states=6, actions=3, discount=discount)
    for kind in ("rows", "ball", "box"):
        constraints, blocks = cases(model)[kind]
        problem, solution = solve(model, constraints, method=method)
        assert_optimal(problem, solution, model, blocks)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("kind", ["rows", "ball", "box"])
def test_the_tolerance_asked_is_the_tolerance_proven(kind, tolerance):
    model = random_model(13, states=6, actions=3)
    constraints, blocks = cases(model)[kind]
    for method in METHODS:
        problem, solution = solve(model, constraints, method=method, tolerance=tolerance)
        assert_optimal(problem, solution, model, blocks, tolerance)
        assert solution.gap <= tolerance


# ---------------------------------------------------------------------------------------------- how a solve ends


def hard_problem(kind):
    model = random_model(14, states=6, actions=3, discount=0.99)
    return cm.Problem(as_mdp(model), "cost", cases(model)[kind][0])


ENDINGS = [("rows", "auto"), ("rows", "splitting"), ("ball", "auto"), ("box and rows", "splitting")]


@pytest.mark.parametrize(("kind", "method"), ENDINGS)
def test_the_iteration_limit_is_kept_and_the_best_policy_returned(kind, method):
    problem = hard_problem(kind)
    for most in (1, 2, 3):
        solution = problem.solve(method=method, max_iterations=most, tolerance=1e-12)
        assert solution.status is Status.ITERATION_LIMIT
        assert solution.stats.iterations == most
        assert solution.value >= solution.bound or max(solution.violations.values()) > 0
        solution.certificate.check(problem, solution.tolerance)
    assert "max_iterations" in solution.status.value  # the cure


@pytest.mark.parametrize(("kind", "method"), ENDINGS)
def test_the_time_limit_is_kept_and_the_best_policy_returned(kind, method):
    problem = hard_problem(kind)
    solution = problem.solve(method=method, time_limit=1e-9)
    assert solution.status is Status.TIME_LIMIT
    solution.certificate.check(problem, solution.tolerance)
    assert problem.solve(method=method, time_limit=3600.0).status is Status.OPTIMAL


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize(("kind", "method"), ENDINGS)
def test_a_callback_that_returns_true_ends_the_solve(kind, method, calls):
    problem, seen = hard_problem(kind), []

    def stop(progress):
        seen.append(progress)
        return len(seen) >= calls

    solution = problem.solve(method=method, callback=stop, tolerance=1e-12)
    assert solution.status is Status.INTERRUPTED
    assert len(seen) <= calls + 1
    solution.certificate.check(problem, solution.tolerance)


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize(("kind", "method"), ENDINGS)
def test_ctrl_c_at_any_moment_returns_the_best_policy_so_far(kind, method, calls):
    problem, seen = hard_problem(kind), []

    def interrupt(progress):
        seen.append(progress)
        if len(seen) == calls:
            raise KeyboardInterrupt

    try:
        solution = problem.solve(method=method, callback=interrupt, tolerance=1e-12)
    except KeyboardInterrupt:  # would end the whole session
        pytest.fail("Ctrl-C came through")
    assert solution.status is Status.INTERRUPTED
    assert len(seen) == calls
    solution.certificate.check(problem, solution.tolerance)
    assert solution.bound == seen[-1].bound


@pytest.mark.parametrize(("kind", "method"), ENDINGS)
def test_the_callback_sees_the_history_and_the_history_only_improves(kind, method):
    problem, seen = hard_problem(kind), []
    solution = problem.solve(method=method, callback=seen.append)
    assert solution.status is Status.OPTIMAL
    assert tuple(seen) == solution.stats.history
    bounds = [moment.bound for moment in seen]
    assert bounds == sorted(bounds)
    assert [moment.iteration for moment in seen] == sorted(moment.iteration for moment in seen)
    assert seen[-1].bound == solution.bound
    # The policy of the answer is measured once more, with its error.
    assert seen[-1].value == pytest.approx(solution.value, rel=1e-9)
    assert solution.gap == pytest.approx(seen[-1].gap, abs=1e-9)


def test_a_solve_never_raises_for_a_hard_problem_but_does_for_misuse():
    problem = hard_problem("ball")
    for bad in ({"tolerance": 0}, {"max_iterations": 0}, {"time_limit": -1}, {"method": "simplex"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            problem.solve(**bad)


# ---------------------------------------------------------------------------------------------- warm starts


WARM_ENGINES = {
    "auto": "auto",
    "splitting": "splitting",
    "newton": cm.Splitting(prox="newton"),
    "iterative": cm.Splitting(evaluation="iterative"),
}


@pytest.mark.parametrize("engine", WARM_ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_from_the_solution_needs_no_more_passes(kind, engine):
    for seed in (2, 11):
        model = random_model(seed, states=6, actions=3, ragged=seed % 2 == 1, discount=0.95)
        problem, cold = solve(model, cases(model)[kind][0], method=WARM_ENGINES[engine])
        warm = problem.solve(method=WARM_ENGINES[engine], warm_start=cold)
        warm.certificate.check(problem)
        assert warm.status is cold.status
        assert warm.stats.iterations <= cold.stats.iterations, seed


@pytest.mark.parametrize("method", METHODS)
def test_a_warm_start_from_a_similar_problem_finds_the_new_optimum(method):
    model = random_model(5, states=6, actions=3)
    center, mdp = interior_occupancy(model), as_mdp(model)
    E, b = random_rows(model, 5, rows=2)
    old = cm.Problem(mdp, "cost", [cm.Linear(E, at_most=b), cm.NormBall(center, 0.05)]).solve(method=method)
    problem = cm.Problem(mdp, "cost", [cm.Linear(E, at_most=b + 0.01), cm.NormBall(center, 0.06)])
    solution = problem.solve(method=method, warm_start=old)
    assert_optimal(problem, solution, model, [linear_block(E, b + 0.01), ball_block(center, 0.06)])
    # Another number of constraints, and constraints of another kind: the occupancy alone is of use.
    for constraints, blocks in (cases(model)["ball"], cases(model)["rows"], cases(model)["two balls"]):
        problem = cm.Problem(mdp, "cost", constraints)
        assert_optimal(problem, problem.solve(method=method, warm_start=old), model, blocks)


@pytest.mark.parametrize("method", METHODS)
def test_a_warm_start_from_an_infeasible_or_an_interrupted_solve_is_welcome(method):
    model, kinds = infeasible_cases()
    mdp = as_mdp(model)
    old = cm.Problem(mdp, "cost", kinds["rows"][0]).solve(method=method, max_iterations=300)
    assert old.status is Status.INFEASIBLE
    constraints, blocks = cases(model)["rows"]
    problem = cm.Problem(mdp, "cost", constraints)
    assert_optimal(problem, problem.solve(method=method, warm_start=old), model, blocks)
    cut = problem.solve(method=method, callback=lambda progress: progress.iteration >= 2)
    assert_optimal(problem, problem.solve(method=method, warm_start=cut), model, blocks)


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ([cm.Linear(np.zeros((1, 18)), at_most=-1.0, name="nothing")], "nothing obeys 'nothing'"),
        (
            [cm.Linear(np.vstack([np.ones(18), np.zeros(18)]), at_most=[2, -1], name="two")],
            "nothing obeys row 1 of 'two'",
        ),
        (
            [cm.Linear(np.ones(18), at_most=0.5, name="low"), cm.Linear(np.ones(18), at_least=0.6, name="high")],
            "'low', 'high' contradict each other",
        ),
        ([cm.RobustBudget(None, cm.Ellipsoid(np.ones(18)), -0.1, name="worst")], "nothing obeys 'worst'"),
    ],
)
def test_limits_that_exclude_each_other_are_blamed_by_name_and_row(constraints, words):
    problem = cm.Problem(as_mdp(random_model(0)), "cost", constraints)
    solution = problem.solve()
    assert solution.status is cm.Status.INFEASIBLE
    assert words in solution.stats.method
    assert words in str(solution)
    solution.certificate.check(problem, solution.tolerance)
