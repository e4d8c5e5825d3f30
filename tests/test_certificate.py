"""Proofs: never above the optimum, never refused when true, always refused when false."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.certificate import Certificate, CertificateError, Proof
from cvxmdp.io.model import model_parts
from cvxmdp.io.solution import solution_parts
from cvxmdp_verifier import Refused, verify
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
        assert solution.status is cm.Status.OPTIMAL
        solution.certificate.check(problem)


@pytest.mark.parametrize("kind", ["rows", "ball", "rows and ball", "contradictory rows"])
def test_the_certificate_of_infeasibility_checks(kind):
    problem, solution = refuted(kind)
    assert solution.status is cm.Status.INFEASIBLE
    assert solution.infeasibility.margin > 0
    solution.certificate.check(problem)


@pytest.mark.parametrize("kind", ["rows", "ball"])
def test_a_solve_cut_short_still_proves_what_it_says(kind):
    problem, solution = solved(kind, method="splitting", max_iterations=6)
    assert solution.status is cm.Status.ITERATION_LIMIT
    solution.certificate.check(problem)


def test_the_gap_is_what_value_and_bound_say_and_no_less():
    problem, solution = solved()
    plain = (solution.value - solution.bound) / (np.abs(problem.cost) @ solution.occupancy)
    assert plain <= solution.gap <= plain + 1e-9


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
    found = problem.solve(max_iterations=1)
    rng = np.random.default_rng(seed)
    duals = [
        size * rng.normal(size=c.size),
        size * rng.normal(size=c.size),
        size * np.abs(rng.normal(size=2)),  # at most: multipliers are not negative
    ]
    V = size * rng.normal(size=4)
    ball, box, rows = constraints
    u = duals[0] + duals[1] + rows.rows.T @ duals[2]
    top = (
        duals[0] @ ball.center
        + ball.radius * np.linalg.norm(duals[0])
        + np.where(duals[1] > 0, duals[1] * box.upper, duals[1] * box.lower).sum()
        + duals[2] @ rows.upper
    )
    bound = by_hand(model, c, u, top, V)
    assert bound <= optimum(model, c, blocks)[0] + 1e-8
    # What the verifier makes of them is that number, and no more: it accepts all below, and nothing above.
    evidence = replace(found.evidence, proofs={"bound": Proof(duals, V)})
    slack = 1e-11 * (1 + size)
    said = {"status": cm.Status.UNDECIDED, "gap": np.inf, "evidence": evidence, "prices": unpriced(found)}
    assert accepted(replace(found, bound=bound - slack, **said), problem)
    assert not accepted(replace(found, bound=bound + slack, **said), problem)


def test_a_multiplier_of_the_wrong_sign_proves_nothing():
    model = random_model(0, states=4, actions=3)
    problem = cm.Problem(as_mdp(model), "cost", [cm.Budget("risk", at_most=0.3)])
    solution = problem.solve()
    wrong = replace(solution.evidence, proofs={"bound": Proof([np.array([-1.0])], np.zeros(4))})
    said = {"status": cm.Status.UNDECIDED, "gap": np.inf, "evidence": wrong, "prices": unpriced(solution)}
    assert not accepted(replace(solution, bound=-1e9, **said), problem)


# ---------------------------------------------------------------------------------------------- tampering


def unpriced(solution):
    return {name: np.full_like(price, np.nan) for name, price in solution.prices.items()}


def accepted(solution, problem, tolerance=1e-6):
    try:
        solution.certificate.check(problem, tolerance)
    except CertificateError:
        return False
    return True


def shifted(solution, problem):
    """A little probability moved from the likeliest action of the most visited state to another."""
    pi, state = solution.policy.probabilities.copy(), problem.mdp.state
    pairs = np.flatnonzero(state == int(np.argmax(solution.visits)))
    pi[pairs[np.argmax(pi[pairs])]] -= 1e-5
    pi[pairs[np.argmin(pi[pairs])]] += 1e-5
    return pi


def with_policy(solution, pi):
    """The solution said to be of another policy."""
    witness = replace(solution.evidence.witnesses["policy"], probabilities=pi)
    evidence = replace(solution.evidence, witnesses={**solution.evidence.witnesses, "policy": witness})
    return {"policy": replace(solution.policy, probabilities=pi), "evidence": evidence}


def with_bound(solution, duals=None, potential=None):
    proof = solution.evidence.proofs["bound"]
    proof = Proof(proof.duals if duals is None else duals, proof.potential if potential is None else potential)
    return {"evidence": replace(solution.evidence, proofs={"bound": proof})}


def noisy(array, size):
    return np.asarray(array) + size * np.random.default_rng(0).normal(size=np.shape(array))


def duals(solution):
    return solution.evidence.proofs["bound"].duals


def potential(solution):
    return solution.evidence.proofs["bound"].potential


TAMPERINGS = {
    "value lower": lambda k, p: {"value": k.value - 1e-6},
    "value higher": lambda k, p: {"value": k.value + 1e-6},
    "value NaN": lambda k, p: {"value": np.nan},
    "bound higher": lambda k, p: {"bound": k.bound + 1e-6},
    "bound NaN": lambda k, p: {"bound": np.nan},
    "gap lower": lambda k, p: {"gap": 0.5 * k.gap - 1e-9},
    "occupancy scaled": lambda k, p: {"occupancy": k.occupancy * (1 + 1e-6)},
    "occupancy NaN": lambda k, p: {"occupancy": np.full_like(k.occupancy, np.nan)},
    "occupancy cut": lambda k, p: {"occupancy": k.occupancy[1:]},
    "visits scaled": lambda k, p: {"visits": k.visits * (1 + 1e-6)},
    "probabilities shifted": lambda k, p: with_policy(k, shifted(k, p)),
    "probabilities negative": lambda k, p: with_policy(k, -k.policy.probabilities),
    "probabilities NaN": lambda k, p: with_policy(k, np.full_like(k.policy.probabilities, np.nan)),
    "policy of other pairs": lambda k, p: {"policy": replace(k.policy, action=k.policy.action[::-1].copy())},
    "policy of other states": lambda k, p: {"policy": replace(k.policy, states=tuple("abcde"))},
    "first dual noisy": lambda k, p: with_bound(k, [noisy(duals(k)[0], 0.1), *duals(k)[1:]]),
    "last dual noisy": lambda k, p: with_bound(k, [*duals(k)[:-1], noisy(duals(k)[-1], 0.1)]),
    "duals forgotten": lambda k, p: with_bound(k, [np.zeros_like(dual) for dual in duals(k)]),
    "a dual missing": lambda k, p: with_bound(k, duals(k)[1:]),
    "duals NaN": lambda k, p: with_bound(k, [np.full_like(dual, np.nan) for dual in duals(k)]),
    "potential noisy": lambda k, p: with_bound(k, potential=noisy(potential(k), 1e-3)),
    "potential NaN": lambda k, p: with_bound(k, potential=np.full_like(potential(k), np.nan)),
    "potential cut": lambda k, p: with_bound(k, potential=potential(k)[1:]),
    "potential huge, bound low": lambda k, p: {"bound": -1e9, **with_bound(k, potential=potential(k) + 1e16)},
    "a cost wrong": lambda k, p: {"costs": {**k.costs, "risk": k.costs["risk"] + 1e-6}},
    "the other cost wrong": lambda k, p: {"costs": {**k.costs, "cost": k.costs["cost"] * (1 + 1e-6)}},
    "a cost missing": lambda k, p: {"costs": {"cost": k.costs["cost"]}},
    "a cost more": lambda k, p: {"costs": {**k.costs, "fuel": 0.0}},
    "first violation wrong": lambda k, p: {"violations": {**k.violations, "linear": k.violations["linear"] + 1e-6}},
    "last violation wrong": lambda k, p: {"violations": {**k.violations, "ball": k.violations["ball"] + 1e-6}},
    "a level wrong": lambda k, p: {"levels": {**k.levels, "ball": k.levels["ball"] * (1 + 1e-6)}},
    "a price wrong": lambda k, p: {"prices": {**k.prices, "linear": k.prices["linear"] * (1 + 1e-6)}},
    "a price forgotten": lambda k, p: {"prices": {**k.prices, "linear": 0 * k.prices["linear"]}},
    "tolerance too small": lambda k, p: {"tolerance": 1e-14},
    "tolerance zero": lambda k, p: {"tolerance": 0.0},
    "tolerance loose": lambda k, p: {"tolerance": 0.9},
    "another status": lambda k, p: {"status": cm.Status.INFEASIBLE},
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_a_tampered_solution_is_refused(tampering):
    problem, solution = solved("rows and ball", tolerance=1e-8)
    assert solution.status is cm.Status.OPTIMAL
    assert accepted(solution, problem)
    assert not accepted(replace(solution, **TAMPERINGS[tampering](solution, problem)), problem)


def test_a_policy_that_obeys_with_a_gap_is_not_optimal():
    """Every number is true, but the claim is not."""
    model = random_model(0, states=5, actions=3)
    problem = cm.Problem(as_mdp(model), "cost", cases(model)["ball"][0])
    solution = problem.solve()
    free = cm.Problem(problem.mdp, "cost").solve()
    none = with_bound(solution, [np.zeros_like(dual) for dual in duals(solution)], potential(free))
    gap = (solution.value - free.bound) / (np.abs(problem.cost) @ solution.occupancy) + 1e-9
    true = replace(solution, bound=free.bound, gap=gap, prices={"ball": -0.0}, **none)
    assert accepted(replace(true, status=cm.Status.UNDECIDED, prices={"ball": np.nan}), problem)
    assert not accepted(true, problem)


def test_a_loose_tolerance_is_accepted_where_it_is_asked_for():
    problem, solution = solved("rows and ball", tolerance=1e-3)
    assert not accepted(solution, problem)
    assert accepted(solution, problem, tolerance=1e-3)


def entries(value, path=()):
    """All leaves of a header."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from entries(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from entries(inner, (*path, i))
    else:
        yield path


def put(header, path, value):
    for key in path[:-1]:
        header = header[key]
    header[path[-1]] = value


SAID = {"feasible": solved("rows and ball"), "infeasible": refuted("rows and ball"), "rows": refuted("rows")}
FREE = {"stats", "tolerance", "limits", "terms"}
"""Of a header: not a claim, one that may be any number that still holds, and the question, which is the user's."""
LOWER = {"bound", "margin", "least", "cheapest"}
"""Lower bounds, true as well if they are lower; so is a larger gap."""


def forged_header(header, path, rng):
    """The header with one leaf changed for another claim; None where the new one would be as true."""
    header, old = copy.deepcopy(header), header
    for key in path:
        old = old[key]
    last = path[-1]
    if path[0] in FREE or (path[0] == "objective" and path[1] == "text"):
        return None
    if isinstance(old, bool):
        new = not old
    elif isinstance(old, (int, float)) and not isinstance(old, bool):
        new = old + (1e-3 + abs(old)) * float(rng.choice([1, -1]))
        if last in LOWER or (path[:2] == ("infeasibility", "distance") and last == 0):
            new = old + 1e-3 + abs(old)
        if last == "gap" or path[:3] == ("infeasibility", "distance", 1):
            new = old / 2 - 1e-9
        if "impossible" in path:
            new = old + 1e-3 + abs(old)
        if last == "amount":  # more is enough as well
            new = old * 0.9
        if last == "least" and path[-2] != "infeasibility":
            new = old + 1e-3 + abs(old)
        if "errors" in path:  # to know less is no lie
            new = old / 1000
    elif isinstance(old, str):
        new = old + "x"
    elif old is None:
        new = 0.5
    else:
        return None
    put(header, path, new)
    return header


@pytest.mark.parametrize("kind", SAID)
@given(seed=st.integers(0, 10_000))
def test_no_entry_of_a_header_can_be_forged(kind, seed):
    problem, solution = SAID[kind]
    header, arrays = solution_parts(solution, problem.asked())
    rng = np.random.default_rng(seed)
    paths = list(entries(header))
    path = paths[rng.integers(len(paths))]
    forged = forged_header(header, path, rng)
    if forged is None:
        return
    with pytest.raises(Refused):
        verify(model_parts(problem.mdp), (forged, arrays))


@pytest.mark.parametrize("kind", SAID)
@given(seed=st.integers(0, 10_000))
def test_no_array_can_be_forged(kind, seed):
    """A changed witness or proof may still serve, with another one nothing false is said; a changed result may not."""
    problem, solution = SAID[kind]
    header, arrays = solution_parts(solution, problem.asked())
    rng = np.random.default_rng(seed)
    name = sorted(arrays)[rng.integers(len(arrays))]
    array = np.array(arrays[name], dtype=np.float64)
    where = np.unravel_index(rng.integers(array.size), array.shape) if array.ndim else ()
    how = rng.integers(5)
    if how == 0:
        array[where] = np.nan
    elif how == 1:
        array[where] = 1e16
    elif how == 2:
        array = array[..., :-1] if array.ndim else np.zeros(3)
    elif how == 3:
        array[where] = array[where] * 1.01 + 1e-3
    else:
        array = -array - 1
    said = name.startswith(
        ("occupancy", "visits", "level", "price", "state", "action", "probabilities", "displacement")
    )
    unpriced = name.startswith("price") and np.all(np.isnan(array)) and np.all(np.isnan(arrays[name]))
    try:
        verify(model_parts(problem.mdp), (header, arrays | {name: array}))
    except Refused:
        return
    assert not said or unpriced, (name, how)
    assert unpriced or np.all(np.isfinite(array)) or name.startswith("limit"), (name, how)


# ---------------------------------------------------------------------------------------------- forgeries met before


def test_rounding_is_no_proof_of_infeasibility():
    """A huge constant in the potential cancels and leaves nothing but rounding, which must not pass for a margin."""
    problem, solution = refuted("rows")
    zero = [np.zeros_like(dual) for dual in solution.evidence.proofs["margin"].duals]
    for constant in np.concatenate([np.linspace(1, 2, 10), np.linspace(1, 2, 10) * 1e15]):
        proofs = {**solution.evidence.proofs, "margin": Proof(zero, np.full(5, constant))}
        said = replace(
            solution.infeasibility, margin=1e-300, distance=(0.0, solution.infeasibility.distance[1]), least=0.0
        )
        forged = replace(solution, infeasibility=said, evidence=replace(solution.evidence, proofs=proofs))
        assert not accepted(forged, problem)


def test_rows_that_sum_to_more_than_one_prove_nothing():
    """With a potential of 1e15 the row sums' rounding of 2.5e-14 looked like a margin."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(500), size=1000)
    mdp = cm.MDP.from_pairs(np.repeat(np.arange(500), 2), np.tile([0, 1], 500), P, {"cost": rng.random(1000)}, 0.9)
    object.__setattr__(mdp, "transitions", P * (1 + 2.5e-14))
    problem = cm.Problem(mdp, "cost", [cm.Budget("cost", at_most=-1.0)])
    solution = problem.solve(explain=False)
    possible = cm.Problem(mdp, "cost", [cm.Budget("cost", at_most=10.0, name="cost")])
    proof = Proof([np.zeros(1)], np.full(500, 1e15))
    said = replace(solution.infeasibility, margin=1e-3, distance=(0.0, np.inf), least=np.inf, compromise="unfinished")
    forged = replace(
        solution, infeasibility=said, evidence=replace(solution.evidence, proofs={"margin": proof}, displacements=None)
    )
    assert not accepted(forged, possible)


def test_an_occupancy_that_follows_the_policy_but_not_the_dynamics_is_refused():
    """Visits made up at will, everything else computed from them as it should be."""
    problem, solution = solved("rows and ball")
    state, pi = problem.mdp.state, solution.policy.probabilities
    for visits in (solution.visits * (1 + 1e-6), np.full(5, 0.2), np.eye(5)[0]):
        d = visits[state] * pi
        witness = replace(solution.evidence.witnesses["policy"], visits=np.stack([visits, 0 * visits]))
        forged = replace(
            solution,
            status=cm.Status.UNDECIDED,
            gap=np.inf,
            prices=unpriced(solution),
            occupancy=d,
            visits=visits,
            value=float(problem.cost @ d),
            costs={name: float(cost @ d) for name, cost in problem.mdp.costs.items()},
            levels={k.name: k.level(d) for k in problem.constraints},
            violations={k.name: k.violation(d) for k in problem.constraints},
            evidence=replace(solution.evidence, witnesses={"policy": witness}),
        )
        assert not accepted(forged, problem)


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


def test_a_certificate_without_constraints_checks():
    problem = cm.Problem(as_mdp(random_model(0)), "cost")
    solution = problem.solve()
    assert isinstance(solution.certificate, Certificate)
    assert solution.status is cm.Status.OPTIMAL
    solution.certificate.check(problem)


def test_only_a_problem_can_be_checked_against():
    with pytest.raises(ValueError, match="Problem that was solved"):
        cm.Problem(as_mdp(random_model(0)), "cost").solve().certificate.check(None)


def test_half_of_a_gap_is_refused():
    """Of the first problem whose policy costs more than the bound; some cost less, by what the tolerance allows."""
    for seed in range(20):
        problem, solution = solved("rows and ball", seed=seed)
        if solution.gap > 1e-12:
            break
    assert solution.gap > 1e-12
    assert accepted(solution, problem)
    assert not accepted(replace(solution, gap=0.5 * solution.gap), problem)


def test_a_users_own_measure_is_recomputed_by_the_users_own_function():
    """Its units are the user's: a distance says nothing of it."""

    class Half:
        name = "half"

        def project(self, point):
            return np.minimum(point, 0.5)

        def violation(self, point):
            return 1000.0 * float(np.max(point - 0.5))

    mdp = cm.worlds.gridworld(size=3)
    problem = cm.Problem(mdp, "time", [Half()])
    solution = problem.solve()
    exceeds = replace(solution, violations={"half": solution.violations["half"] + 1e-6})
    solution.certificate.check(problem)
    with pytest.raises(cm.CertificateError, match="its own function says"):
        exceeds.certificate.check(problem)
