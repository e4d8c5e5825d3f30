"""Proofs: never above the optimum, never refused when true, always refused when false."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.certificate import Certificate, CertificateError, bound_of
from engine_oracles import ball_block, cases, interior_occupancy, optimum, random_rows
from oracles import as_mdp, lp_optimum, random_model

DISCOUNTS = [0.5, 0.9, 0.99, 0.999, 0.9999]


def random_problem(seed, kind):
    """A small problem with an active constraint, and its optimum by another solver."""
    rng = np.random.default_rng(seed)
    model = random_model(
        seed,
        states=int(rng.integers(1, 6)),
        actions=int(rng.integers(2, 4)),
        ragged=bool(rng.integers(2)),
        discount=DISCOUNTS[seed % len(DISCOUNTS)],
    )
    c = model["costs"]["cost"]
    if kind == "rows":
        E, b = random_rows(model, seed, rows=int(rng.integers(1, 4)), room=float(rng.choice([0.0, 0.1])))
        return cm.Problem(as_mdp(model), "cost", [cm.Linear(E, at_most=b)]), lp_optimum(model, c, E, b)[0]
    center, radius = interior_occupancy(model, seed), 10.0 ** rng.uniform(-4, -0.5)
    best = optimum(model, c, [ball_block(center, radius)])[0]
    return cm.Problem(as_mdp(model), "cost", [cm.NormBall(center, radius)]), best


def solved(kind="rows and ball", method="auto", seed=0, **options):
    model = random_model(seed, states=5, actions=3)
    problem = cm.Problem(as_mdp(model), "cost", cases(model)[kind][0])
    return problem, problem.solve(method=method, **options)


def refuted(kind):
    """An infeasible problem and its solution."""
    model = random_model(1, states=5, actions=3)
    E, b = random_rows(model, 1, rows=2)
    constraints = {
        "rows": [cm.Linear(E, at_most=b - 2.0)],
        "ball": [cm.NormBall(np.full(model["state"].size, 0.3), 0.2)],
        "rows and ball": [cm.Linear(E, at_most=b - 2.0), cm.NormBall(interior_occupancy(model), 0.1)],
        "contradictory rows": [cm.Linear(E[0], at_most=0.1), cm.Linear(E[0], at_least=0.2)],
    }
    problem = cm.Problem(as_mdp(model), "cost", constraints[kind])
    return problem, problem.solve(max_iterations=300)


# ---------------------------------------------------------------------------------------------- what is claimed is true


@pytest.mark.parametrize("kind", ["rows", "ball"])
@pytest.mark.parametrize("method", ["auto", "splitting"])
@pytest.mark.parametrize("block", range(5))
def test_at_every_moment_the_bound_is_below_and_an_obeying_policy_above_the_optimum(block, method, kind):
    """Over 400 random problems, at every entry of the history."""
    for seed in range(20 * block, 20 * block + 20):
        problem, best = random_problem(seed, kind)
        solution = problem.solve(method=method, max_iterations=200)
        slack = 1e-9 * np.abs(problem.cost).max()
        solution.certificate.check(problem)
        assert solution.status in (cm.Status.OPTIMAL, cm.Status.ITERATION_LIMIT), (seed, solution.status)
        assert solution.bound <= best + slack, seed
        for moment in solution.stats.history:
            assert moment.bound <= best + slack, (seed, moment)
            if moment.violation <= 1e-12:
                assert moment.value >= best - slack, (seed, moment)


@pytest.mark.parametrize("kind", list(cases(random_model(0))))
def test_the_certificate_of_every_kind_of_constraint_checks(kind):
    for seed in range(3):
        problem, solution = solved(kind, seed=seed)
        assert solution.certificate.claim == "optimal"
        solution.certificate.check(problem)


@pytest.mark.parametrize("kind", ["rows", "ball", "rows and ball", "contradictory rows"])
def test_the_certificate_of_infeasibility_checks(kind):
    problem, solution = refuted(kind)
    assert solution.certificate.claim == "infeasible"
    assert solution.certificate.margin > 0
    solution.certificate.check(problem)


@pytest.mark.parametrize("kind", ["rows", "ball"])
def test_a_solve_cut_short_still_proves_what_it_says(kind):
    problem, solution = solved(kind, method="splitting", max_iterations=6)
    assert solution.certificate.claim == "bound"
    solution.certificate.check(problem)


def test_the_solution_shows_what_the_certificate_proves():
    problem, solution = solved()
    certificate = solution.certificate
    assert (solution.value, solution.bound) == (certificate.value, certificate.bound)
    assert solution.gap == pytest.approx(
        (certificate.value - certificate.bound) / (np.abs(problem.cost) @ solution.occupancy), abs=1e-15
    )
    np.testing.assert_array_equal(solution.policy.probabilities, certificate.probabilities)
    np.testing.assert_array_equal(solution.occupancy, certificate.occupancy)


# ---------------------------------------------------------------------------------------------- the bound is a bound


def by_hand(model, c, u, top, V):
    """The line in the certificate's docstring, one pair at a time."""
    gamma = model["discount"]
    advantages = [c[i] + u[i] + gamma * (model["P"][i] @ V) - V[s] for i, s in enumerate(model["state"])]
    return (1 - gamma) * (np.asarray(model["initial"]) @ V) + min(advantages) - top


@given(seed=st.integers(0, 10_000), size=st.sampled_from([0.0, 0.1, 1.0, 100.0]))
def test_any_duals_and_any_potential_give_a_bound(seed, size):
    """Weak duality: whatever is drawn, no occupancy costs less than the bound."""
    model = random_model(seed % 20, states=4, actions=3)
    constraints, blocks = cases(model)["ball, box and rows"]
    mdp, c = as_mdp(model), model["costs"]["cost"]
    problem = cm.Problem(mdp, "cost", constraints)
    rng = np.random.default_rng(seed)
    duals = [
        size * rng.normal(size=c.size),
        size * rng.normal(size=c.size),
        size * np.abs(rng.normal(size=2)),  # at most: multipliers are not negative
    ]
    V = size * rng.normal(size=4)
    bound, _ = bound_of(mdp, problem.constraints, c, duals, V)
    ball, box, rows = constraints
    u = duals[0] + duals[1] + rows.rows.T @ duals[2]
    top = (
        duals[0] @ ball.center
        + ball.radius * np.linalg.norm(duals[0])
        + np.where(duals[1] > 0, duals[1] * box.upper, duals[1] * box.lower).sum()
        + duals[2] @ rows.upper
    )
    assert bound == pytest.approx(by_hand(model, c, u, top, V), abs=1e-11 * (1 + size))
    assert bound <= optimum(model, c, blocks)[0] + 1e-8


def test_a_multiplier_of_the_wrong_sign_proves_nothing():
    model = random_model(0, states=4, actions=3)
    problem = cm.Problem(as_mdp(model), "cost", [cm.Budget("risk", at_most=0.3)])
    assert bound_of(problem.mdp, problem.constraints, problem.cost, [np.array([-1.0])], np.zeros(4))[0] == -np.inf


# ---------------------------------------------------------------------------------------------- tampering


def shifted_policy(certificate, problem):
    """A little probability moved from the likeliest action of the most visited state to another."""
    pi, state = certificate.probabilities.copy(), problem.mdp.state
    s = int(np.argmax(np.bincount(state, certificate.occupancy)))
    pairs = np.flatnonzero(state == s)
    take, give = pairs[np.argmax(pi[pairs])], pairs[np.argmin(pi[pairs])]
    pi[take] -= 1e-5
    pi[give] += 1e-5
    return pi


def moved_mass(certificate):
    d = certificate.occupancy.copy()
    d[np.argmax(d)] -= 1e-6
    d[np.argmin(d)] += 1e-6
    return d


def noisy(array, size):
    return np.asarray(array) + size * np.random.default_rng(0).normal(size=np.shape(array))


TAMPERINGS = {
    "value lower": lambda k, p: {"value": k.value - 1e-6},
    "value higher": lambda k, p: {"value": k.value + 1e-6},
    "value NaN": lambda k, p: {"value": np.nan},
    "bound higher": lambda k, p: {"bound": k.bound + 1e-6},
    "bound NaN": lambda k, p: {"bound": np.nan},
    "occupancy moved": lambda k, p: {"occupancy": moved_mass(k)},
    "occupancy scaled": lambda k, p: {"occupancy": k.occupancy * (1 + 1e-6)},
    "occupancy NaN": lambda k, p: {"occupancy": np.full_like(k.occupancy, np.nan)},
    "occupancy cut": lambda k, p: {"occupancy": k.occupancy[1:]},
    "probabilities shifted": lambda k, p: {"probabilities": shifted_policy(k, p)},
    "probabilities scaled": lambda k, p: {"probabilities": k.probabilities * (1 + 1e-6)},
    "probabilities negative": lambda k, p: {"probabilities": -k.probabilities},
    "probabilities NaN": lambda k, p: {"probabilities": np.full_like(k.probabilities, np.nan)},
    "first dual noisy": lambda k, p: {"duals": [noisy(k.duals[0], 0.1), *k.duals[1:]]},
    "last dual noisy": lambda k, p: {"duals": [*k.duals[:-1], noisy(k.duals[-1], 0.1)]},
    "duals forgotten": lambda k, p: {"duals": [np.zeros_like(dual) for dual in k.duals]},
    "a dual missing": lambda k, p: {"duals": k.duals[1:]},
    "duals NaN": lambda k, p: {"duals": [np.full_like(dual, np.nan) for dual in k.duals]},
    "potential noisy": lambda k, p: {"potential": noisy(k.potential, 1e-3)},
    "potential NaN": lambda k, p: {"potential": np.full_like(k.potential, np.nan)},
    "potential cut": lambda k, p: {"potential": k.potential[1:]},
    "a cost wrong": lambda k, p: {"costs": {**k.costs, "risk": k.costs["risk"] + 1e-6}},
    "the other cost wrong": lambda k, p: {"costs": {**k.costs, "cost": k.costs["cost"] * (1 + 1e-6)}},
    "a cost missing": lambda k, p: {"costs": {"cost": k.costs["cost"]}},
    "first violation wrong": lambda k, p: {"violations": {**k.violations, "linear": k.violations["linear"] + 1e-6}},
    "last violation wrong": lambda k, p: {"violations": {**k.violations, "ball": k.violations["ball"] + 1e-6}},
    "a violation missing": lambda k, p: {"violations": {"ball": k.violations["ball"]}},
    "tolerance too small": lambda k, p: {"tolerance": 1e-14},
    "tolerance zero": lambda k, p: {"tolerance": 0.0},
    "claim infeasible": lambda k, p: {"claim": "infeasible"},
    "claim unknown": lambda k, p: {"claim": "perfect"},
    "claim infeasible with the bound's proof": lambda k, p: {
        "claim": "infeasible",
        "margin": 1e-3,
        "margin_duals": k.duals,
        "margin_potential": k.potential,
    },
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_a_tampered_certificate_is_refused(tampering):
    problem, solution = solved("rows and ball", tolerance=1e-8)
    certificate = solution.certificate
    assert certificate.claim == "optimal"
    certificate.check(problem)
    with pytest.raises(CertificateError):
        replace(certificate, **TAMPERINGS[tampering](certificate, problem)).check(problem)


def test_a_policy_that_obeys_with_a_gap_is_not_optimal():
    """Every number is true, but the claim is not."""
    model = random_model(0, states=5, actions=3)
    problem = cm.Problem(as_mdp(model), "cost", cases(model)["ball"][0])
    solution = problem.solve()
    certificate = solution.certificate
    none = [np.zeros_like(dual) for dual in certificate.duals]
    unconstrained = cm.Problem(problem.mdp, "cost").solve().certificate
    true = replace(certificate, duals=none, potential=unconstrained.potential, bound=unconstrained.bound)
    replace(true, claim="bound").check(problem)
    with pytest.raises(CertificateError, match="claims optimality"):
        true.check(problem)


def test_a_cheap_policy_that_does_not_obey_is_not_optimal():
    model = random_model(0, states=5, actions=3)
    problem = cm.Problem(as_mdp(model), "cost", cases(model)["ball"][0])
    free = cm.Problem(problem.mdp, "cost").solve().certificate
    excess = {"ball": problem.constraints[0].violation(free.occupancy)}
    true = replace(free, violations=excess, duals=[np.zeros(problem.mdp.num_pairs)])
    replace(true, claim="bound").check(problem)
    with pytest.raises(CertificateError, match="claims optimality"):
        true.check(problem)


def test_an_occupancy_that_follows_the_policy_but_not_the_dynamics_is_refused():
    """Visits made up at will, everything else computed from them as it should be."""
    problem, solution = solved("rows and ball")
    state, pi = problem.mdp.state, solution.policy.probabilities
    for visits in (solution.visits * (1 + 1e-6), np.full(5, 0.2), np.eye(5)[0]):
        d = visits[state] * pi
        forged = replace(
            solution.certificate,
            claim="bound",
            occupancy=d,
            value=float(problem.cost @ d),
            costs={name: float(cost @ d) for name, cost in problem.mdp.costs.items()},
            violations={k.name: k.violation(d) for k in problem.constraints},
        )
        with pytest.raises(CertificateError, match="dynamics"):
            forged.check(problem)


MARGIN_TAMPERINGS = {
    "margin higher": lambda k: {"margin": 1.01 * k.margin},
    "margin NaN": lambda k: {"margin": np.nan},
    "no proof": lambda k: {"margin_potential": None},
    "duals negated": lambda k: {"margin_duals": [-dual for dual in k.margin_duals]},
    "duals forgotten": lambda k: {"margin_duals": [np.zeros_like(dual) for dual in k.margin_duals]},
    "duals missing": lambda k: {"margin_duals": ()},
    "potential noisy": lambda k: {
        "margin_potential": noisy(k.margin_potential, 10 * k.margin + np.abs(k.margin_potential).max())
    },
    "potential NaN": lambda k: {"margin_potential": np.full_like(k.margin_potential, np.nan)},
    "claim optimal": lambda k: {"claim": "optimal"},
}


@pytest.mark.parametrize("tampering", MARGIN_TAMPERINGS)
@pytest.mark.parametrize("kind", ["rows", "ball", "rows and ball"])
def test_a_tampered_proof_of_infeasibility_is_refused(kind, tampering):
    problem, solution = refuted(kind)
    certificate = solution.certificate
    with pytest.raises(CertificateError):
        replace(certificate, **MARGIN_TAMPERINGS[tampering](certificate)).check(problem)


def one_state_problem():
    """Few pairs, so that rounding falls to either side."""
    model = random_model(0, states=1, actions=2)
    problem = cm.Problem(as_mdp(model), "cost", [cm.Budget("risk", at_most=float(model["costs"]["risk"].mean()))])
    return problem, problem.solve()


def accepted(certificate, problem):
    try:
        certificate.check(problem)
    except CertificateError:
        return False
    return True


def test_rounding_is_no_proof_of_infeasibility():
    """A huge constant in the potential cancels and leaves nothing but rounding, which must not pass for a margin."""
    problem, solution = one_state_problem()
    forged = [
        replace(
            solution.certificate,
            claim="infeasible",
            margin=1e-300,
            margin_duals=[np.zeros(1)],
            margin_potential=np.array([constant]),
        )
        for constant in np.concatenate([np.linspace(1, 2, 20), np.linspace(1, 2, 20) * 1e14])
    ]
    assert not any(accepted(certificate, problem) for certificate in forged)


def test_rounding_is_no_proof_of_a_bound():
    problem, solution = one_state_problem()
    true = solution.certificate
    forged = [
        replace(true, claim="bound", bound=true.value + 1e-3, potential=true.potential + constant)
        for constant in np.linspace(1, 2, 20) * 1e14
    ]
    assert not any(accepted(certificate, problem) for certificate in forged)


def test_a_certificate_of_another_problem_is_refused():
    problem, solution = solved("ball", seed=0)
    for seed in (1, 2):
        model = random_model(seed, states=5, actions=3)
        other = cm.Problem(as_mdp(model), "cost", cases(model)["ball"][0])
        with pytest.raises(CertificateError):
            solution.certificate.check(other)
    smaller = cm.Problem(as_mdp(random_model(0, states=4, actions=3)), "cost", [])
    with pytest.raises(CertificateError):
        solution.certificate.check(smaller)
    dearer = cm.Problem(problem.mdp, "risk", problem.constraints)
    with pytest.raises(CertificateError):
        solution.certificate.check(dearer)


def test_a_tighter_limit_invalidates_the_certificate():
    model = random_model(0, states=5, actions=3)
    mdp, center = as_mdp(model), interior_occupancy(model)
    solution = cm.Problem(mdp, "cost", [cm.NormBall(center, 0.05)]).solve()
    with pytest.raises(CertificateError):
        solution.certificate.check(cm.Problem(mdp, "cost", [cm.NormBall(center, 0.049)]))


def test_a_certificate_error_is_a_value_error_that_names_the_claim():
    problem, solution = solved("ball")
    with pytest.raises(ValueError, match="claims the value"):
        replace(solution.certificate, value=solution.value + 1.0).check(problem)
    with pytest.raises(ValueError, match="claims the cost 'risk'"):
        replace(solution.certificate, costs={**solution.costs, "risk": 7.0}).check(problem)
    with pytest.raises(ValueError, match="claims the bound"):
        replace(solution.certificate, bound=solution.value + 1.0).check(problem)


def test_a_certificate_without_constraints_checks():
    problem = cm.Problem(as_mdp(random_model(0)), "cost")
    certificate = problem.solve().certificate
    assert isinstance(certificate, Certificate)
    assert certificate.claim == "optimal"
    certificate.check(problem)
