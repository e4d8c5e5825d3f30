"""The splitting against peers, against the paper's propositions, and against Algorithm 1 written again."""

from itertools import combinations, count, islice, pairwise

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.constraints.combine import Blocks, bind
from cvxmdp.engines.douglas_rachford import iterates
from cvxmdp.engines.prox import Inner
from cvxmdp.engines.regularized import newton
from cvxmdp.engines.splitting import Splitting
from engine_oracles import (
    assert_optimal,
    ball_block,
    box_block,
    cases,
    interior_occupancy,
    linear_block,
    nearest,
    optimum,
    peer_price,
    prox,
    random_rows,
    with_absorbing_state,
    with_unreachable_states,
)
from oracles import (
    as_mdp,
    ball_optimum,
    flow_matrix,
    inflow,
    lp_optimum,
    nearest_displacement,
    project_polyhedron,
    random_model,
)

MODELS = {
    "dense": (random_model(0, states=6, actions=3), False),
    "sparse": (random_model(1, states=8, actions=3, branching=2), True),
    "ragged": (random_model(2, states=8, actions=4, ragged=True), False),
    "one state": (random_model(3, states=1, actions=4), False),
    "short memory": (random_model(4, states=6, actions=3, discount=0.5), False),
    "long memory": (random_model(5, states=5, actions=3, discount=0.99), False),
    "longest memory": (random_model(6, states=5, actions=3, discount=0.9999), False),
    "absorbing": (with_absorbing_state(random_model(7, states=6, actions=3, discount=0.95)), True),
    "unreachable": (with_unreachable_states(random_model(8, states=6, actions=3)), False),
}
KINDS = list(cases(MODELS["dense"][0]))
ENGINES = {
    "default": "splitting",
    "qrpi, direct": Splitting(prox="qrpi", evaluation="direct"),
    "qrpi, iterative": Splitting(prox="qrpi", evaluation="iterative"),
    "newton, direct": Splitting(prox="newton", evaluation="direct"),
    "newton, iterative": Splitting(prox="newton", evaluation="iterative"),
    "not relaxed": Splitting(relaxation=1.0),
    "one inner step": Splitting(inner_steps=1),
}


def exact_prox(model, c):
    """The prox to rounding, warm-started in V."""
    dynamics = as_mdp(model).dynamics("direct")
    V = np.zeros(dynamics.num_states)

    def call(w, sigma, accuracy):
        nonlocal V
        point, _ = newton(dynamics, c, w, sigma, V, 1e-12, 100)
        V = point.V
        return point

    return call


def passes(model, c, constraints, omega, sigma, w=None):
    """Exact passes of eq. (7) from the occupancy of a random policy."""
    mdp = as_mdp(model)
    sets = Blocks(bind(constraints, mdp), [], np.zeros(mdp.num_pairs))
    start = interior_occupancy(model) if w is None else w
    return iterates(exact_prox(model, c), sets, np.tile(start, (len(sets.blocks), 1)), sigma, omega, anchored=False)


# ---------------------------------------------------------------------------------------------- feasible problems


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_the_optimum_is_the_one_another_solver_finds(name, kind):
    model, sparse = MODELS[name]
    constraints, blocks = cases(model)[kind]
    problem = cm.Problem(as_mdp(model, sparse), "cost", constraints)
    assert_optimal(problem, problem.solve(method="splitting"), model, blocks)


@pytest.mark.parametrize("kind", ["rows", "ball", "box"])
@pytest.mark.parametrize("name", ["dense", "sparse", "ragged", "one state", "longest memory", "unreachable"])
@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "default"])
def test_every_inner_solver_leads_to_the_same_optimum(engine, name, kind):
    model, sparse = MODELS[name]
    constraints, blocks = cases(model)[kind]
    problem = cm.Problem(as_mdp(model, sparse), "cost", constraints)
    assert_optimal(problem, problem.solve(method=ENGINES[engine]), model, blocks)


@pytest.mark.parametrize("kind", ["ball", "rows"])
def test_fixed_settings_reach_the_optimum_too(kind):
    """Not adaptive: step, relaxation and inner steps stay as given."""
    model, _ = MODELS["dense"]
    constraints, blocks = cases(model)[kind]
    problem = cm.Problem(as_mdp(model), "cost", constraints)
    solution = problem.solve(tolerance=1e-5, method=Splitting(step=0.05, relaxation=1.2, adaptive=False))
    assert_optimal(problem, solution, model, blocks, tolerance=1e-5)


@pytest.mark.parametrize("step", [1e-4, 1e-2, 1.0, 100.0])
def test_any_first_step_reaches_the_optimum(step):
    model, _ = MODELS["dense"]
    for kind in ("rows", "ball"):
        constraints, blocks = cases(model)[kind]
        problem = cm.Problem(as_mdp(model), "cost", constraints)
        assert_optimal(problem, problem.solve(method=Splitting(step=step)), model, blocks)


@pytest.mark.parametrize("kind", ["rows", "ball", "box"])
@pytest.mark.parametrize("name", MODELS)
def test_prices_are_minus_the_multipliers_of_another_solver(name, kind):
    model, sparse = MODELS[name]
    constraints, blocks = cases(model)[kind]
    problem = cm.Problem(as_mdp(model, sparse), "cost", constraints)
    solution = problem.solve(method="splitting", tolerance=1e-7)
    _, _, duals = optimum(model, problem.cost, blocks)
    expected = peer_price(problem.constraints[0], duals[0])
    found = np.ravel(solution.prices[problem.constraints[0].name])
    if kind == "box":  # a pair that no policy visits lies between 0 and 0, at any price
        visited = interior_occupancy(model) > 0
        found, expected = found[visited], expected[visited]
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
    assert np.abs(expected).max() > 1e-3  # the constraint is active


@pytest.mark.parametrize("kind", ["rows and ball", "two balls", "box and rows"])
def test_prices_of_several_constraints_are_minus_the_multipliers_of_another_solver(kind):
    model, _ = MODELS["dense"]
    constraints, blocks = cases(model)[kind]
    problem = cm.Problem(as_mdp(model), "cost", constraints)
    solution = problem.solve(method="splitting", tolerance=1e-8)
    _, _, duals = optimum(model, problem.cost, blocks)
    for constraint, dual in zip(problem.constraints, duals, strict=True):
        expected = peer_price(constraint, dual)
        found = np.ravel(solution.prices[constraint.name])
        np.testing.assert_allclose(found, expected, atol=1e-3 * max(np.abs(expected).max(), 0.1))


def test_the_first_solver_of_a_linear_program_and_of_a_ball_agree_with_the_splitting():
    """HiGHS and Clarabel straight, without the helper that the other tests share."""
    model = random_model(20, states=6, actions=3)
    mdp, c, risk = as_mdp(model), model["costs"]["cost"], model["costs"]["risk"]
    limit = 0.5 * (risk @ interior_occupancy(model) + lp_optimum(model, risk, np.zeros((1, c.size)), [1.0])[0])
    best, _, multipliers = lp_optimum(model, c, risk[None], [limit])
    solution = cm.Problem(mdp, "cost", [cm.Budget("risk", at_most=limit)]).solve(method="splitting", tolerance=1e-8)
    assert solution.value == pytest.approx(best, rel=1e-7)
    assert solution.prices["risk"] == pytest.approx(-multipliers[0], rel=1e-4)
    center = interior_occupancy(model)
    best, _, multiplier = ball_optimum(model, c, center, 0.05)
    solution = cm.Problem(mdp, "cost", [cm.NormBall(center, 0.05)]).solve(method="splitting", tolerance=1e-8)
    assert solution.value == pytest.approx(best, rel=1e-7)
    assert solution.prices["ball"] == pytest.approx(-multiplier, rel=1e-4)


@pytest.mark.parametrize("kind", ["rows", "ball", "box", "rows and ball"])
def test_exact_passes_converge_to_a_primal_and_dual_solution(kind):
    """Proposition 2, at the level of the iteration: d and z meet at the optimum and ``(d - w) / sigma`` prices it."""
    model, _ = MODELS["dense"]
    constraints, blocks = cases(model)[kind]
    c, sigma = model["costs"]["cost"], 0.1
    best, _, _ = optimum(model, c, blocks)
    last = next(islice(passes(model, c, constraints, 1.5, sigma), 1000, None))
    assert np.abs(last.drift).max() < 1e-5
    assert c @ last.occupancy == pytest.approx(best, rel=1e-4)
    # nu = (w - d) / sigma is minus a subgradient of the constraints: c - nu is a cost that d minimizes over D.
    copies = len(last.governing)
    normal = (last.occupancy - last.governing).sum(axis=0) / sigma
    priced = c + normal
    assert priced @ last.occupancy == pytest.approx(
        lp_optimum(model, priced, np.zeros((1, c.size)), [1.0])[0], abs=1e-4 * copies * np.abs(priced).max()
    )


# ---------------------------------------------------------------------------------------------- the iteration itself


@pytest.mark.parametrize("kind", ["rows", "rows and ball"])
def test_a_pass_is_the_prox_of_the_average_and_a_projection_of_each_copy(kind):
    model, _ = MODELS["ragged"]
    c = model["costs"]["cost"]
    constraints, blocks = cases(model)[kind]
    rng = np.random.default_rng(0)
    mdp = as_mdp(model)
    sets = Blocks(bind(constraints, mdp), [], np.zeros(mdp.num_pairs))
    w = interior_occupancy(model) + 0.1 * rng.normal(size=(len(blocks), c.size))
    first, second = islice(iterates(exact_prox(model, c), sets, w, 0.2, 1.3, anchored=False), 2)
    # min over d and its copies of c'd + sum |d - w_b|^2 / (2 sigma) is a prox of the average with sigma / copies.
    np.testing.assert_allclose(first.occupancy, prox(model, c, w.mean(axis=0), 0.2 / len(blocks)), atol=1e-7)
    np.testing.assert_array_equal(first.reflected, 2 * first.occupancy - w)
    E, b, _ = blocks[0]
    expected = project_polyhedron(first.reflected[0], E, np.full(len(b), -np.inf), b)
    np.testing.assert_allclose(first.projected[0], expected, atol=1e-7)
    if kind == "rows and ball":
        offset = first.reflected[1] - constraints[1].center
        on_sphere = constraints[1].center + constraints[1].radius * offset / np.linalg.norm(offset)
        np.testing.assert_allclose(first.projected[1], on_sphere, atol=1e-12)
    np.testing.assert_allclose(first.drift, first.projected - first.occupancy, atol=0)
    np.testing.assert_allclose(second.governing, w + 1.3 * first.drift, atol=1e-15)


def test_an_anchored_pass_is_pulled_back_by_ever_less():
    """Halpern: ``w_{k+1} = T(w_k) + (w_0 - T(w_k)) / (k + 2)``."""
    model, _ = MODELS["dense"]
    mdp, c = as_mdp(model), model["costs"]["cost"]
    sets = Blocks(bind(cases(model)["ball"][0], mdp), [], np.zeros(mdp.num_pairs))
    w = interior_occupancy(model)[None]
    points = list(islice(iterates(exact_prox(model, c), sets, w, 0.2, 2.0, anchored=True), 5))
    for k, (now, then) in enumerate(pairwise(points)):
        moved = now.governing + 2.0 * now.drift
        np.testing.assert_allclose(then.governing, moved + (w - moved) / (k + 2), atol=1e-15)


@pytest.mark.parametrize("settings", [Splitting(prox="qrpi"), Splitting(prox="newton"), Splitting()])
def test_the_inner_solver_is_as_exact_as_the_pass_asks(settings):
    model, _ = MODELS["dense"]
    c = model["costs"]["cost"]
    inner = Inner(settings, as_mdp(model).dynamics("direct"), c, np.zeros(6))
    w = interior_occupancy(model)
    for accuracy in (1e-2, 1e-6, 1e-10):
        point = inner(w, 0.3, accuracy)
        assert np.abs(flow_matrix(model) @ point.d - inflow(model)).sum() <= accuracy * 1.01


# ---------------------------------------------------------------------------------------------- infeasible problems


def infeasible(kind, seed):
    """A model, constraints that no policy obeys, their block, and the displacement by another solver."""
    model = random_model(seed, states=5, actions=3, ragged=seed % 2 == 1)
    pairs = model["state"].size
    if kind == "rows":
        E, b = random_rows(model, seed, rows=2)
        return (
            model,
            [cm.Linear(E, at_most=b - 1.0)],
            linear_block(E, b - 1.0),
            nearest_displacement(model, E, b - 1)[0],
        )
    if kind == "box":
        upper = np.full(pairs, 0.3 / pairs)
        block = box_block(np.full(pairs, -1.0), upper)
        return model, [cm.Bounds(upper=upper)], block, nearest(model, [block])[0][0]
    center = interior_occupancy(model) + 0.5 * np.random.default_rng(seed).normal(size=pairs) / np.sqrt(pairs)
    closest = prox(model, np.zeros(pairs), center, 1.0)  # of D to the center
    radius = 0.5 * np.linalg.norm(closest - center)
    return model, [cm.NormBall(center, radius)], ball_block(center, radius), 0.5 * (closest - center)


@pytest.mark.parametrize("omega", [1.0, 1.5])
@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("kind", ["rows", "box", "ball"])
def test_without_a_solution_the_drift_tends_to_minus_the_displacement(kind, seed, omega):
    """Proposition 3: ``d_k - z_k`` tends to v, and ``w_k - w_{k+1}`` to omega v."""
    model, constraints, _, v = infeasible(kind, seed)
    c = model["costs"]["cost"]
    *_, before, last = islice(passes(model, c, constraints, omega, 0.1 / np.sqrt(c.size)), 200)
    # Polyhedra are reached in finitely many or linearly falling passes, a ball like 1 / k^2.
    accuracy = (1e-3 if kind == "ball" else 1e-6) * np.linalg.norm(v)
    np.testing.assert_allclose(last.occupancy - last.projected[0], v, atol=accuracy)
    np.testing.assert_allclose(before.governing[0] - last.governing[0], omega * v, atol=omega * accuracy)


@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("kind", ["rows", "box"])
def test_without_a_solution_the_occupancy_tends_to_the_cheapest_of_the_nearest(kind, seed):
    """Proposition 4, second half: for polyhedra d_k tends to the optimum over D and C + v."""
    model, constraints, (A, b, cone), v = infeasible(kind, seed)
    c = model["costs"]["cost"]
    last = next(islice(passes(model, c, constraints, 1.0, 0.1 / np.sqrt(c.size)), 300, None))
    hair = 1e-9  # C + v touches D: rounding must not part them
    best, d, _ = optimum(model, c, [(A, b + A @ v + hair, cone)])
    assert c @ last.occupancy == pytest.approx(best, abs=1e-6)
    np.testing.assert_allclose(last.occupancy, d, atol=1e-6)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_without_a_solution_the_occupancy_tends_to_the_nearest_to_a_ball(seed):
    """Proposition 4, first half: d_{k+1} - d_k vanishes and the limit is nearest."""
    model, constraints, (_, b, _), _ = infeasible("ball", seed)
    c, center = model["costs"]["cost"], b[1:]
    *_, before, last = islice(passes(model, c, constraints, 1.0, 0.1 / np.sqrt(c.size)), 400)
    assert np.abs(last.occupancy - before.occupancy).max() < 1e-5
    closest = prox(model, np.zeros(c.size), center, 1.0)
    np.testing.assert_allclose(last.occupancy, closest, atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["rows", "box", "ball"])
def test_an_infeasible_problem_is_proven_so_and_the_nearest_policy_is_found(kind, seed):
    model, constraints, _, v = infeasible(kind, seed)
    problem = cm.Problem(as_mdp(model), "cost", constraints)
    solution = problem.solve(method="splitting", max_iterations=1500)
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)
    found, size = solution.infeasibility, np.linalg.norm(v)
    low, high = found.distance
    assert found.margin > 0
    assert low <= size * (1 + 1e-7)
    assert size * (1 - 1e-7) <= high <= (1 + 1e-4) * low  # as exactly as the engine seeks it
    # |x|^2 >= |v|^2 + |x - v|^2 for every x in D - C, theirs and ours, and the least |v| is no less than low.
    apart = sum(np.sqrt(max(length**2 - low**2, 0)) for length in (high, size))
    assert np.linalg.norm(found.displacement - v) <= apart + 1e-6 * size
    assert low * (1 - 1e-9) <= np.linalg.norm(found.displacement) <= high * (1 + 1e-9)
    assert solution.stats.iterations < 1500


# ---------------------------------------------------------------------------------------------- the paper's method


def algorithm_1(mdp, c, project, sigma=2e-5, omega=1.5, rounds=2):
    """Algorithm 1 with the constants of the paper's experiments: yields w, d and z of each pass."""
    P = mdp.transitions.toarray() if sp.issparse(mdp.transitions) else mdp.transitions
    M = mdp.discount * P - np.eye(mdp.num_states)[mdp.state]
    K, q = M.T @ M, (1 - mdp.discount) * mdp.initial / sigma
    w, phi = np.zeros(c.size), np.zeros(c.size)
    while True:
        for _ in range(rounds):
            V = np.linalg.solve(K, M.T @ (w / sigma - c + phi) + q)
            a = c + M @ V - w / sigma
            phi, d = np.maximum(a, 0), sigma * np.maximum(-a, 0)
        z = project(2 * d - w)
        yield w, d, z
        w = w + omega * (z - d)


def project_by_enumeration(x, E, b):
    """The nearest point with ``E z <= b``: of all sets of rows taken as equalities, the one with the right signs."""
    for size in range(len(b) + 1):
        for rows in map(list, combinations(range(len(b)), size)):
            A = E[rows]
            multipliers = np.linalg.solve(A @ A.T, A @ x - b[rows])
            z = x - A.T @ multipliers
            if np.all(multipliers >= 0) and np.all(E @ z <= b + 1e-13):
                return z
    raise AssertionError("no set of rows is active")


def paper_setting(kind, seed, shift=0.0):
    """A Garnet, its constraints, and their projection and values by other means."""
    mdp = cm.worlds.garnet(30, 3, 0.3, seed=seed)
    rng = np.random.default_rng(seed)
    pi = rng.exponential(size=mdp.num_pairs)
    d = mdp.evaluate(pi / np.bincount(mdp.state, pi)[mdp.state]).occupancy
    if kind == "rows":
        E = rng.normal(size=(3, mdp.num_pairs))
        b = E @ d - shift
        return (
            mdp,
            [cm.Linear(E, at_most=b)],
            lambda x: project_by_enumeration(x, E, b),
            lambda x: np.all(np.maximum(E @ x - b, 0) <= 1e-4 * (1 + np.abs(b))),
        )
    radius = 0.03
    center = d + shift / np.sqrt(mdp.num_pairs)

    def project(x):
        distance = np.linalg.norm(x - center)
        return x if distance <= radius else center + radius / distance * (x - center)

    def obeys(x):
        return max(np.linalg.norm(x - center) - radius, 0) <= 1e-4 * (1 + radius)

    return mdp, [cm.NormBall(center, radius)], project, obeys


@pytest.mark.parametrize("unit", [1.0, 37.0])
@pytest.mark.parametrize("kind", ["rows", "ball"])
def test_the_paper_s_method_is_algorithm_1_to_the_letter(kind, unit):
    """The first 20 passes."""
    mdp, constraints, project, _ = paper_setting(kind, seed=1)
    c, settings = unit * mdp.costs["cost"], Splitting.as_in_paper()
    inner = Inner(settings, mdp.dynamics(settings.evaluation), c, np.zeros(mdp.num_states))
    sets = Blocks(bind(constraints, mdp), [], np.zeros(mdp.num_pairs))
    ours = iterates(inner, sets, np.zeros((1, c.size)), settings.step, settings.relaxation, anchored=False)
    for it, (w, d, z) in islice(zip(ours, algorithm_1(mdp, c, project), strict=False), 20):
        np.testing.assert_allclose(it.governing[0], w, atol=1e-9)
        np.testing.assert_allclose(it.occupancy, d, atol=1e-9)
        np.testing.assert_allclose(it.projected[0], z, atol=1e-9)


def passes_of_the_paper(mdp, c, project, obeys):
    """The pass at which the stopping tests hold, (21) with "some" instead of "all", and which of the two."""
    before = np.full(c.size, np.inf)
    for k, (_, d, z) in zip(count(1), algorithm_1(mdp, c, project), strict=False):
        if obeys(d) and np.abs(d - z).max() <= 1e-5:
            return k, "optimal"
        if not obeys(d) and np.abs(d - before).max() <= 1e-6:
            return k, "infeasible"
        before = d
        assert k < 5000
    return None


@pytest.mark.parametrize(
    ("kind", "seed", "shift", "ending"),
    [
        ("rows", 1, 0.0, "optimal"),
        ("rows", 2, 1.0, "infeasible"),
        ("ball", 1, 0.0, "optimal"),
        ("ball", 2, 0.5, "infeasible"),
    ],
)
def test_the_paper_s_method_stops_at_the_pass_where_the_paper_does(kind, seed, shift, ending):
    mdp, constraints, project, obeys = paper_setting(kind, seed, shift)
    expected, why = passes_of_the_paper(mdp, mdp.costs["cost"], project, obeys)
    assert why == ending
    problem = cm.Problem(mdp, "cost", constraints)
    solution = problem.solve(method=Splitting.as_in_paper())
    assert solution.stats.iterations == expected
    solution.certificate.check(problem)
    if ending == "infeasible":
        assert solution.status is cm.Status.INFEASIBLE
        assert solution.infeasibility.margin > 0
    else:
        assert solution.status in (cm.Status.APPROXIMATE, cm.Status.OPTIMAL)
        assert solution.value >= solution.bound - 1e-3 * abs(solution.value)


def test_the_paper_s_constants_are_what_it_prints():
    settings = Splitting.as_in_paper()
    assert (settings.step, settings.relaxation, settings.inner_steps) == (2e-5, 1.5, 2)
    assert settings.stopping == (1e-5, 1e-4, 1e-6)
    assert not settings.adaptive
    assert settings.prox == "qrpi"


def test_the_paper_s_method_respects_the_iteration_limit():
    mdp, constraints, _, _ = paper_setting("rows", seed=1)
    problem = cm.Problem(mdp, "cost", constraints)
    solution = problem.solve(method=Splitting.as_in_paper(), max_iterations=7)
    assert solution.status is cm.Status.ITERATION_LIMIT
    assert solution.stats.iterations == 7
    solution.certificate.check(problem)
