"""The proximal Newton method: its pieces by differences, its system by a dense solve, its answers by other solvers."""

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.constraints.combine import Blocks, bind
from cvxmdp.engines.hessian import Hessian, System
from cvxmdp.engines.newton import Newton
from cvxmdp.engines.pieces import CopyPiece, Nonnegative, RowsPiece, SmoothPiece
from cvxmdp.objectives.nearness import SquaredDistance
from engine_oracles import (
    assert_optimal,
    cases,
    interior_occupancy,
    nearest,
    optimum,
    peer_price,
    with_absorbing_state,
    with_unreachable_states,
)
from oracles import as_mdp, flow_matrix, lp_optimum, owner_matrix, random_model, random_policy

MODELS = {
    "dense": (random_model(0, states=6, actions=3), False),
    "sparse": (random_model(1, states=25, actions=3, branching=3), True),
    "ragged": (random_model(2, states=8, actions=4, ragged=True), False),
    "one state": (random_model(3, states=1, actions=4), False),
    "one action somewhere": (random_model(4, states=5, actions=2, ragged=True), False),
    "short memory": (random_model(5, states=6, actions=3, discount=0.5), False),
    "longest memory": (random_model(6, states=6, actions=3, discount=0.9999), False),
    "absorbing": (with_absorbing_state(random_model(7, states=6, actions=3)), False),
    "unreachable": (with_unreachable_states(random_model(8, states=7, actions=3)), False),
}
KINDS = list(cases(MODELS["dense"][0]))


def pieces(mdp):
    """One piece of every kind, each with a multiplier, so that a point near zero is outside of every set."""
    rng = np.random.default_rng(0)
    d = mdp.evaluate(mdp.policy(np.full((mdp.num_states, len(mdp.actions)), 1 / len(mdp.actions)))).occupancy
    rows = cm.Linear(rng.normal(size=(3, d.size)), at_most=-0.1)
    out = {
        "sign": Nonnegative(d.size),
        "rows": RowsPiece(rows),
        "shifted rows": RowsPiece(rows.moved(0.1 * rng.normal(size=d.size))),
        "ball": CopyPiece(cm.NormBall(d, 0.02), d.size),
        "shifted ball": CopyPiece(cm.NormBall(d, 0.02).moved(0.1 * rng.normal(size=d.size)), d.size),
        "entropy": CopyPiece(cm.Entropy(2.0).bind(mdp), d.size),
        "term": CopyPiece(cm.NegativeEntropy(0.3).bind(mdp), d.size),
        "distance": CopyPiece(cm.Distance(d, 0.3).bind(mdp), d.size),
        "near": SmoothPiece(SquaredDistance(cm.NormBall(d, 0.02))),
        "near, on a copy": CopyPiece(SquaredDistance(cm.NormBall(d, 0.02)), d.size),
    }
    for piece in out.values():
        if not isinstance(piece, SmoothPiece):
            piece.u = 0.3 * rng.normal(size=piece.u.size)
    return out


PIECES = list(pieces(as_mdp(MODELS["dense"][0])))


@pytest.mark.parametrize("name", PIECES)
def test_gradient_and_response_of_a_piece_are_its_derivatives(name):
    mdp = as_mdp(MODELS["dense"][0])
    piece, sigma = pieces(mdp)[name], 0.2
    rng = np.random.default_rng(1)
    d, way = rng.normal(size=mdp.num_pairs), rng.normal(size=mdp.num_pairs)
    step = 1e-6
    up, here, down = (piece.envelope(d + s * way, sigma) for s in (step, 0.0, -step))
    assert (up.value - down.value) / (2 * step) == pytest.approx(here.gradient @ way, rel=1e-6, abs=1e-7)
    bent = (up.gradient - down.gradient) / (2 * step)
    np.testing.assert_allclose(Hessian([piece.response(here, sigma)], 1e-12).apply(way), bent, atol=1e-5)
    assert np.linalg.norm(here.gradient) > 0


def test_a_piece_is_the_envelope_of_its_function():
    """``min over z of h(z) + |y - z|^2 / (2 sigma)`` by trying many z, and its next multiplier is the gradient."""
    mdp = as_mdp(MODELS["dense"][0])
    piece, sigma = pieces(mdp)["term"], 0.2
    rng = np.random.default_rng(2)
    d = rng.uniform(size=mdp.num_pairs)
    at = piece.envelope(d, sigma)
    y = d + sigma * piece.u
    for z in at.z * (1 + 0.01 * rng.normal(size=(50, d.size))):
        assert 0.3 * np.sum(z * np.log(z)) + np.sum((y - z) ** 2) / (2 * sigma) >= at.value
    z = at.z
    assert at.value == pytest.approx(0.3 * np.sum(z * np.log(z)) + np.sum((y - z) ** 2) / (2 * sigma))
    piece.update(at, sigma)
    np.testing.assert_allclose(piece.u, at.gradient)
    np.testing.assert_allclose(piece.u, 0.3 * (np.log(z) + 1), atol=1e-12)


@pytest.mark.parametrize("name", ["dense", "sparse", "ragged"])
def test_the_reduced_system_is_the_whole_one(name):
    """``M'H^-1 M`` by Woodbury against a dense inverse, with columns of both signs, dense and sparse."""
    model, sparse = MODELS[name]
    mdp = as_mdp(model, sparse)
    responses = [piece.response(piece.envelope(np.ones(mdp.num_pairs), 0.2), 0.2) for piece in _some(mdp)]
    H = Hessian(responses, 0.5)
    whole = np.stack([H.apply(e) for e in np.eye(mdp.num_pairs)], axis=1)
    np.testing.assert_allclose(whole, whole.T, atol=1e-12)
    x = np.random.default_rng(3).normal(size=mdp.num_pairs)
    np.testing.assert_allclose(H.solve(x), np.linalg.solve(whole, x), atol=1e-9)
    F = flow_matrix(model)
    rhs = np.random.default_rng(4).normal(size=mdp.num_states)
    expected = np.linalg.solve(F @ np.linalg.solve(whole, F.T), rhs)
    np.testing.assert_allclose(System(H, mdp.dynamics()).reduced(rhs), expected, rtol=1e-7, atol=1e-9)


def _some(mdp):
    center = mdp.dynamics().occupancy(random_policy({"state": mdp.state}, 0))
    caps = cm.StateBounds(upper=0.5 / mdp.num_states).bind(mdp)
    sets = [cm.NormBall(center, 0.02), caps, cm.Entropy(0.3, of="states").bind(mdp), cm.Distance(center, 2.0).bind(mdp)]
    return [RowsPiece(s) if s is caps else CopyPiece(s, mdp.num_pairs) for s in sets]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_the_optimum_is_the_one_another_solver_finds(name, kind):
    model, sparse = MODELS[name]
    constraints, blocks = cases(model)[kind]
    problem = cm.Problem(as_mdp(model, sparse), "cost", constraints)
    assert_optimal(problem, problem.solve(method="newton"), model, blocks)


@pytest.mark.parametrize("kind", KINDS)
def test_prices_are_minus_the_multipliers_of_another_solver(kind):
    model, _ = MODELS["dense"]
    constraints, blocks = cases(model)[kind]
    problem = cm.Problem(as_mdp(model), "cost", constraints)
    solution = problem.solve(method="newton", tolerance=1e-8)
    _, _, duals = optimum(model, problem.cost, blocks)
    for constraint, dual in zip(problem.constraints, duals, strict=True):
        expected = peer_price(constraint, dual)
        found = np.ravel(solution.prices[constraint.name])
        np.testing.assert_allclose(found, expected, atol=1e-3 * max(np.abs(expected).max(), 0.1))


def flat_conflicts(model):
    """Flat constraints that no policy obeys, by name: (for cvxmdp, for Clarabel)."""
    d, Xi = interior_occupancy(model), owner_matrix(model).T
    pairs, states = d.size, Xi.shape[0]
    eye, none = np.eye(pairs), np.zeros(pairs)
    return {
        "caps": ([cm.StateBounds(upper=0.9 * (Xi @ d))], [(Xi, 0.9 * (Xi @ d))]),
        "bounds": (
            [cm.Bounds(none, 0.5 / pairs)],
            [(np.vstack([eye, -eye]), np.r_[np.full(pairs, 0.5 / pairs), none])],
        ),
        "two": (
            [cm.NormBall(d, 0.5 * d.max(), norm=np.inf), cm.StateBounds(lower=0.5 * (Xi @ d) + 0.6 / states)],
            [
                (np.vstack([eye, -eye]), np.r_[d + 0.5 * d.max(), 0.5 * d.max() - d]),
                (-Xi, -0.5 * (Xi @ d) - 0.6 / states),
            ],
        ),
    }


@pytest.mark.parametrize("kind", ["caps", "bounds", "two"])
@pytest.mark.parametrize("name", ["dense", "sparse", "ragged", "short memory"])
def test_where_no_policy_obeys_the_cheapest_of_the_nearest_is_found(name, kind):
    import clarabel

    model, sparse = MODELS[name]
    c = model["costs"]["cost"]
    constraints, rows = flat_conflicts(model)[kind]
    problem = cm.Problem(as_mdp(model, sparse), "cost", constraints)
    solution = problem.solve(method="newton")
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)
    v, _ = nearest(model, [(E, b, clarabel.NonnegativeConeT(b.size)) for E, b in rows])
    distance = np.linalg.norm(v)
    low, high = solution.infeasibility.distance
    assert low <= distance * (1 + 1e-7)
    assert high == pytest.approx(distance, rel=1e-4)
    np.testing.assert_allclose(solution.infeasibility.displacement, v.sum(axis=0), atol=1e-3 * distance)
    moved = np.vstack([E for E, _ in rows]), np.concatenate([b + E @ w for (E, b), w in zip(rows, v, strict=True)])
    best = lp_optimum(model, c, moved[0], moved[1] + 1e-9)[0]
    assert solution.value == pytest.approx(best, abs=1e-3 * np.abs(c) @ solution.occupancy)


@pytest.mark.parametrize("kind", KINDS)
def test_a_solution_is_a_good_place_to_begin(kind):
    model, _ = MODELS["dense"]
    problem = cm.Problem(as_mdp(model), "cost", cases(model)[kind][0])
    first = problem.solve(method="newton", tolerance=1e-8)
    again = problem.solve(method="newton", warm_start=first)
    assert again.status is cm.Status.OPTIMAL
    assert again.stats.iterations <= max(4, first.stats.iterations // 4)


def test_settings_are_checked_and_a_limit_of_steps_is_kept():
    with pytest.raises(ValueError, match="shrink is 1"):
        Newton(shrink=1.0)
    model, _ = MODELS["dense"]
    problem = cm.Problem(as_mdp(model), "cost", cases(model)["ball, box and rows"][0])
    for steps in (1, 5):
        solution = problem.solve(method="newton", max_iterations=steps)
        assert solution.stats.iterations == steps
        assert solution.status is cm.Status.ITERATION_LIMIT
        solution.certificate.check(problem)


def test_a_user_s_own_set_and_term_are_taken_by_their_values_alone():
    model, _ = MODELS["dense"]
    mdp, d = as_mdp(model), interior_occupancy(model)

    class Ball:
        def project(self, point):
            return d + (point - d) * min(1.0, 0.05 / max(np.linalg.norm(point - d), 1e-300))

    class Ridge:
        def value(self, point):
            return float(point @ point)

        def prox(self, point, step):
            return point / (1 + 2 * step)

    own = cm.Problem(mdp, ["cost", Ridge()], [Ball()]).solve(method="newton")
    known = cm.Problem(mdp, ["cost", Ridge()], [cm.NormBall(d, 0.05)]).solve(method="splitting", tolerance=1e-8)
    assert own.status is cm.Status.OPTIMAL
    assert own.value == pytest.approx(known.value, abs=2e-6)


def test_pieces_are_listed_as_the_certificate_lists_duals():
    model, _ = MODELS["dense"]
    mdp = as_mdp(model)
    d = interior_occupancy(model)
    given = [cm.NormBall(d, 0.1), cm.Budget("risk", 0.5), cm.StateBounds(upper=0.5)]
    blocks = Blocks(bind(given, mdp), [], d)
    assert [type(m).__name__ for m in blocks.members] == ["NormBall", "Linear", "Linear"]
    problem = cm.Problem(mdp, "cost" + cm.Distance(d, 0.1), given)
    duals = problem.solve(method="newton").evidence.proofs["bound"].duals
    assert [dual.size for dual in duals] == [d.size, 1, mdp.num_states, d.size]
