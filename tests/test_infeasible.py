"""Where no policy obeys: the conflict, what to relax, and compromises, each against definitions and other solvers."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

import cvxmdp as cm
from engine_oracles import ball_block, box_block, linear_block, nearest
from oracles import as_mdp, flow_matrix, inflow, lp_optimum, owner_matrix, random_model, random_policy

HAIR = 1e-5
SHAPES = {
    "dense": ({"states": 8, "actions": 3}, False),
    "sparse": ({"states": 30, "actions": 3, "branching": 4}, True),
    "ragged": ({"states": 12, "actions": 4, "ragged": True}, False),
    "patient": ({"states": 8, "actions": 3, "discount": 0.999}, False),
}


def least_relative(model, E, b, sizes):
    """The least t with ``E d <= b + t sizes``, by HiGHS."""
    pairs = E.shape[1]
    answer = linprog(
        np.append(np.zeros(pairs), 1.0),
        A_ub=np.hstack([E, -np.reshape(sizes, (-1, 1))]),
        b_ub=b,
        A_eq=np.hstack([flow_matrix(model), np.zeros((len(inflow(model)), 1))]),
        b_eq=inflow(model),
        bounds=[(0, None)] * pairs + [(None, None)],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert answer.status == 0
    return answer.x[-1], answer.x[:-1]


def infeasible_rows(seed, shape="dense", rows=4, excess=0.2):
    """Random rows with limits that every policy exceeds by ``excess`` times the limit, somewhere."""
    settings, sparse = SHAPES[shape]
    model = random_model(seed, **settings)
    rng = np.random.default_rng([seed, 1])
    E = rng.uniform(0.0, 1.0, size=(rows, model["state"].size))
    b = E @ np.full(E.shape[1], 1 / E.shape[1]) * rng.uniform(0.8, 1.2, size=rows)
    t, _ = least_relative(model, E, b, b)
    b = b * (1 + t) / (1 + excess)  # now the least t is the excess
    return model, as_mdp(model, sparse), E, b


def budgets(mdp, E, b, **extra):
    return [
        cm.Budget(row, at_most=limit, name=f"limit {k}", **extra)
        for k, (row, limit) in enumerate(zip(E, b, strict=True))
    ]


# Verdict and nearest policy ------------------------------------------------------------------------------------------


KINDS = ["few rows", "many rows", "caps", "ball", "box", "rows and ball"]


def nearest_case(kind, seed, shape):
    """A problem that is infeasible by construction, and the blocks of the same sets for Clarabel."""
    settings, sparse = SHAPES[shape]
    model = random_model(seed, **settings)
    mdp, rng = as_mdp(model, sparse), np.random.default_rng([seed, 2])
    pairs = mdp.num_pairs
    even = np.full(pairs, 1 / pairs)
    if kind == "rows and ball":
        _, _, E, b = infeasible_rows(seed, shape, rows=2, excess=0.5)
        center = random_model_occupancy(model, seed)
        ball = cm.NormBall(center, 1e-2)
        return model, mdp, [cm.Linear(E, at_most=b), ball], [linear_block(E, b), ball_block(center, 1e-2)]
    if kind in ("few rows", "many rows"):
        _, _, E, b = infeasible_rows(seed, shape, rows=4 if kind == "few rows" else 30)
        return model, mdp, [cm.Linear(E, at_most=b)], [linear_block(E, b)]
    if kind == "caps":
        Xi = owner_matrix(model).T
        cap = rng.uniform(0.5, 0.9, size=len(Xi)) / len(Xi)
        return model, mdp, [cm.StateBounds(upper=cap)], [linear_block(Xi, cap)]
    if kind == "ball":
        center = even * rng.uniform(0.2, 0.6, size=pairs)  # adds up to less than one
        return model, mdp, [cm.NormBall(center, 0.05)], [ball_block(center, 0.05)]
    upper = even * rng.uniform(0.3, 0.9, size=pairs)
    return model, mdp, [cm.Bounds(lower=0.0, upper=upper)], [box_block(np.zeros(pairs), upper)]


def random_model_occupancy(model, seed):
    return as_mdp(model).evaluate(random_policy(model, seed)).occupancy


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_distance_and_displacement_agree_with_a_qp_solver(kind, seed, shape):
    model, mdp, constraints, blocks = nearest_case(kind, seed, shape)
    problem = cm.Problem(mdp, "cost", constraints)
    solution = problem.solve(explain=False)
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)
    v, _ = nearest(model, blocks)
    size, found = np.linalg.norm(v), solution.infeasibility
    low, high = found.distance
    assert low == pytest.approx(size, rel=1e-6)
    assert high == pytest.approx(size, rel=1e-6)
    np.testing.assert_allclose(found.displacement, v.sum(axis=0), atol=1e-6)
    # The policy is usable: what is said of it is true of it.
    again = mdp.evaluate(solution.policy)
    np.testing.assert_allclose(again.occupancy, solution.occupancy, atol=1e-10)
    for constraint in problem.constraints:
        assert solution.violations[constraint.name] == pytest.approx(constraint.violation(again.occupancy), abs=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", [3, 30])
def test_the_cheapest_of_the_nearest_is_proven_cheapest(shape, seed, rows):
    """Proposition 4: it solves the problem over D and C + v, within a hair of room."""
    model, mdp, E, b = infeasible_rows(seed, shape, rows)
    solution = cm.Problem(mdp, "cost", [cm.Linear(E, at_most=b)]).solve(explain=False)
    v = nearest(model, [linear_block(E, b)])[0][0]
    room = 1e-8 * np.abs(b)
    best, _, multipliers = lp_optimum(model, mdp.costs["cost"], E, b + E @ v + room)
    scale = np.abs(mdp.costs["cost"]) @ solution.occupancy
    # What v and the room leave open is worth its multipliers.
    slack = (1e-7 * np.abs(E).sum(axis=1) * np.abs(v).max() + room) @ multipliers
    found = solution.infeasibility
    assert found.cheapest <= best + 1e-6 * scale + slack
    assert found.cheapest <= solution.value <= found.cheapest + 1.1e-6 * scale
    assert solution.value <= best + 1.1e-6 * scale + slack
    assert found.distance[1] <= (1 + 1e-7) * found.distance[0]
    assert solution.value >= best - 1e-3 * scale


@pytest.mark.parametrize("excess", [1e-1, 1e-3, 1e-5])
def test_the_verdict_says_how_thin_it_is(excess):
    """Every policy exceeds a limit by that share of it, and the proof cannot say more."""
    _, mdp, E, b = infeasible_rows(3, rows=3, excess=excess)
    problem = cm.Problem(mdp, "cost", budgets(mdp, E, b))
    solution = problem.solve(when_infeasible="relative")
    assert solution.status is cm.Status.INFEASIBLE
    assert solution.infeasibility.least == pytest.approx(excess, rel=1e-4)
    assert solution.infeasibility.least <= excess * (1 + 1e-7)
    nearest_one = problem.solve(explain=False)
    assert 0 < nearest_one.infeasibility.least <= excess * (1 + 1e-7)


# What to relax -------------------------------------------------------------------------------------------------------


def check_alone(mdp, make, limits, solution):
    """Solve at each reported bound plus and minus a hair, the others kept."""
    for k, (name, relaxation) in enumerate(solution.infeasibility.relax.items()):

        def with_limit(amount, k=k):
            changed = [limit + (amount if j == k else 0.0) for j, limit in enumerate(limits)]
            return cm.Problem(mdp, "cost", make(changed)).solve(explain=False).status

        if relaxation.amount is None:
            assert with_limit(1e3 * max(abs(limits[k]), 1.0)) is cm.Status.INFEASIBLE
            assert relaxation.alone is None
        else:
            hair = HAIR * max(abs(limits[k]), relaxation.amount)
            assert with_limit(relaxation.amount + hair) is cm.Status.OPTIMAL, name
            assert with_limit(relaxation.amount - hair) is cm.Status.INFEASIBLE, name


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_each_limit_alone_has_to_become_what_is_said(shape, seed):
    model, mdp, E, b = infeasible_rows(seed, shape, rows=3)
    solution = cm.Problem(mdp, "cost", budgets(mdp, E, b)).solve()
    check_alone(mdp, lambda limits: budgets(mdp, E, limits), b, solution)
    for k, relaxation in enumerate(solution.infeasibility.relax.values()):
        others = np.arange(3) != k
        found = lp_optimum(model, E[k], E[others], b[others])
        if found is None:
            assert relaxation.amount is None
        else:
            assert b[k] + relaxation.amount == pytest.approx(found[0], rel=1e-6)
            assert relaxation.alone == f"at most {b[k] + relaxation.amount:.6g}"


def curved_case():
    """A ball around one policy, an entropy and a budget: each of them can be relaxed to end the conflict."""
    model = random_model(5, states=6, actions=3)
    mdp = as_mdp(model)
    center = mdp.evaluate(random_policy(model, 1)).occupancy
    cheap = cm.Problem(mdp, "risk").solve()

    def make(limits):
        return [
            cm.NormBall(center, limits[0]),
            cm.Entropy(at_least=-limits[1]),
            cm.Budget("risk", at_most=limits[2]),
        ]

    entropy = -float(center @ np.log(center))
    return mdp, make, [0.02, -entropy, cheap.value + 0.3 * (center @ mdp.costs["risk"] - cheap.value)]


def test_curved_limits_alone_have_to_become_what_is_said():
    mdp, make, limits = curved_case()
    solution = cm.Problem(mdp, "cost", make(limits)).solve()
    assert solution.status is cm.Status.INFEASIBLE
    amounts = [relaxation.amount for relaxation in solution.infeasibility.relax.values()]
    assert any(amount is not None and amount > 0 for amount in amounts)
    check_alone(mdp, make, limits, solution)


def test_a_constraint_of_several_rows_is_widened_as_a_whole():
    model, mdp, E, b = infeasible_rows(2, rows=3)
    solution = cm.Problem(mdp, "cost", [cm.Linear(E, at_most=b, name="rows")]).solve()
    t, _ = least_relative(model, E, b, np.ones(3))
    found = solution.infeasibility.relax["rows"]
    assert found.amount == pytest.approx(t, rel=1e-6)
    assert found.alone == f"each wider by {found.amount:.6g}"


def check_irreducible(problem_of, conflict, everything):
    """Together the limits of the conflict cannot be obeyed; any one less, and they can."""
    assert set(conflict) <= set(everything)
    assert problem_of(conflict).solve(explain=False).status is cm.Status.INFEASIBLE
    for name in conflict:
        rest = [other for other in conflict if other != name]
        assert problem_of(rest).solve(explain=False).status is cm.Status.OPTIMAL


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_the_conflict_is_irreducible(shape, seed):
    _, mdp, E, b = infeasible_rows(seed, shape, rows=6, excess=0.05)
    limits = {limit.name: limit for limit in budgets(mdp, E, b)}
    solution = cm.Problem(mdp, "cost", list(limits.values())).solve()
    found = solution.infeasibility
    assert found.irreducible
    check_irreducible(lambda names: cm.Problem(mdp, "cost", [limits[n] for n in names]), found.conflict, limits)
    assert {name for name, limit in found.relax.items() if not limit.innocent} == set(found.conflict)


def test_rows_of_one_constraint_are_blamed_one_by_one():
    _, mdp, E, b = infeasible_rows(4, rows=6, excess=0.05)
    solution = cm.Problem(mdp, "cost", [cm.Linear(E, at_most=b, name="rows")]).solve()
    found = solution.infeasibility
    rows = {f"rows, row {k}": k for k in range(6)}
    assert found.irreducible
    check_irreducible(
        lambda names: cm.Problem(mdp, "cost", [cm.Budget(E[rows[n]], at_most=b[rows[n]], name=n) for n in names]),
        found.conflict, rows,
    )  # fmt: skip


def test_states_are_blamed_by_name():
    """From the first state one of the other two has to be entered, and both are all but closed."""
    P = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    mdp = cm.MDP.from_pairs([0, 0, 1, 2], [0, 1, 0, 0], P, {"cost": [0.0, 0.0, 0.0, 0.0]}, 0.5, [1.0, 0.0, 0.0],
                            states=["start", "left", "right"])  # fmt: skip
    solution = cm.Problem(mdp, "cost", [cm.StateBounds(upper={"left": 0.1, "right": 0.1, "start": 0.9})]).solve()
    assert set(solution.infeasibility.conflict) == {"visits of left", "visits of right"}
    assert "visits of left" in " ".join(str(solution).split())


def test_an_innocent_limit_is_called_so():
    _, mdp, E, b = infeasible_rows(1, rows=2)
    loose = cm.Budget(np.ones(mdp.num_pairs), at_most=5.0, name="loose")
    found = cm.Problem(mdp, "cost", [loose, *budgets(mdp, E, b)]).solve().infeasibility
    assert found.relax["loose"].innocent
    assert found.relax["loose"].amount is None
    assert "loose" not in found.conflict


# Compromises ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_the_least_relative_violation_is_that_of_a_linear_program(shape, seed):
    model, mdp, E, b = infeasible_rows(seed, shape, rows=3)
    problem = cm.Problem(mdp, "cost", budgets(mdp, E, b))
    solution = problem.solve(when_infeasible="relative", explain=False)
    solution.certificate.check(problem)
    t, _ = least_relative(model, E, b, b)
    assert np.max((E @ solution.occupancy - b) / b) == pytest.approx(t, abs=2e-6)
    assert solution.infeasibility.least == pytest.approx(t, abs=2e-6)
    # Of the policies that exceed no limit by more, it is the cheapest.
    best, _, multipliers = lp_optimum(model, mdp.costs["cost"], E, b * (1 + t) + 1e-9)
    scale = np.abs(mdp.costs["cost"]) @ solution.occupancy
    assert solution.value == pytest.approx(best, abs=2e-6 * scale + 2e-6 * (b @ multipliers))


def test_weights_say_what_an_excess_counts():
    model, mdp, E, b = infeasible_rows(1, rows=2)
    weights = [1.0, 0.01]
    limits = [cm.Budget(E[k], at_most=b[k], name=f"{k}", weight=weights[k]) for k in range(2)]
    solution = cm.Problem(mdp, "cost", limits).solve(when_infeasible="relative", explain=False)
    t, _ = least_relative(model, E, b, weights)
    assert np.max((E @ solution.occupancy - b) / weights) == pytest.approx(t, rel=1e-5)


def test_priorities_are_met_one_after_the_other():
    """The first as well as possible by itself; the second as well as the first allows; then the cost."""
    for seed in range(4):
        model, mdp, E, b = infeasible_rows(seed, rows=3, excess=0.4)
        order = [2, 1, 3]
        limits = [cm.Budget(E[k], at_most=b[k], name=f"{k}", priority=order[k]) for k in range(3)]
        problem = cm.Problem(mdp, "cost", limits)
        solution = problem.solve(when_infeasible="priority", explain=False)
        assert solution.status is cm.Status.INFEASIBLE
        solution.certificate.check(problem)
        done, rows, bounds = E @ solution.occupancy, [], []
        for k in np.argsort(order):
            best = lp_optimum(model, E[k], np.array(rows).reshape(-1, E.shape[1]), np.array(bounds))
            wanted = max(best[0], b[k])
            assert done[k] <= wanted * (1 + 1e-5)
            rows.append(E[k])
            bounds.append(wanted * (1 + 1e-7))


def test_limits_that_exclude_each_other_get_the_least_relative_violation():
    """No point is allowed, so that none is nearest."""
    mdp = as_mdp(random_model(0))
    limits = [
        cm.Linear(mdp.costs["risk"], at_most=0.2, name="low"),
        cm.Linear(mdp.costs["risk"], at_least=0.4, name="high"),
    ]
    problem = cm.Problem(mdp, "cost", limits)
    solution = problem.solve()
    solution.certificate.check(problem)
    assert solution.status is cm.Status.INFEASIBLE
    assert solution.infeasibility.compromise == "relative"
    assert set(solution.infeasibility.conflict) == {"low", "high"}
    risk = solution.costs["risk"]
    assert (risk - 0.2) / 0.2 == pytest.approx((0.4 - risk) / 0.4, rel=1e-5)
    assert solution.infeasibility.least == pytest.approx((risk - 0.2) / 0.2, rel=1e-5)


def test_a_curved_problem_has_its_compromises_too():
    mdp, make, limits = curved_case()
    problem = cm.Problem(mdp, "cost", make(limits))
    solution = problem.solve(when_infeasible="relative", explain=False)
    solution.certificate.check(problem)
    sizes = np.abs(limits)
    shares = np.array([solution.violations[name] for name in ("ball", "entropy", "risk")]) / sizes
    assert shares.max() == pytest.approx(solution.infeasibility.least, rel=1e-3)
    # Relaxing all by a little less leaves nothing, by a little more something.
    for change, status in ((1 - 1e-3, cm.Status.INFEASIBLE), (1 + 1e-3, cm.Status.OPTIMAL)):
        relaxed = [limit + change * shares.max() * size for limit, size in zip(limits, sizes, strict=True)]
        assert cm.Problem(mdp, "cost", make(relaxed)).solve(explain=False).status is status


# How it is said, and what may go wrong -------------------------------------------------------------------------------


def test_it_is_said_in_sentences_of_eighty_columns():
    _, mdp, E, b = infeasible_rows(0, rows=2)
    problem = cm.Problem(mdp, "cost", budgets(mdp, E, b))
    solution = problem.solve()
    text = str(solution)
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "No policy obeys every limit. This is proven" in words
    for k, (name, limit) in enumerate(solution.infeasibility.relax.items()):
        assert f"{name} {limit.alone}" in words
        exceeded = f", exceeded by {limit.exceeded:.3g}" if limit.exceeded > 0 else ""
        assert f"limit {name}: {solution.levels[name]:.8g} of {problem.constraints[k].said()}{exceeded}" in words
    assert "comes nearest" in words
    assert f"{solution.value:.6g}" in words


def test_without_an_explanation_only_what_is_known_is_said():
    _, mdp, E, b = infeasible_rows(0, rows=2)
    solution = cm.Problem(mdp, "cost", budgets(mdp, E, b)).solve(explain=False)
    assert solution.infeasibility.conflict == ()
    assert all(math.isnan(limit.amount) for limit in solution.infeasibility.relax.values())
    assert not any(limit.innocent for limit in solution.infeasibility.relax.values())
    assert "alone" not in str(solution)


def test_a_callback_that_stops_the_explanation_keeps_the_verdict():
    _, mdp, E, b = infeasible_rows(0, rows=3)
    problem = cm.Problem(mdp, "cost", budgets(mdp, E, b))
    calls = len(problem.solve(explain=False).stats.history)
    seen = []

    def stop(progress):
        seen.append(progress)
        return len(seen) > calls

    solution = problem.solve(callback=stop)
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)
    assert solution.infeasibility.conflict == ()
    assert "interrupted" in solution.stats.method


def test_the_phases_are_timed_apart():
    _, mdp, E, b = infeasible_rows(0, rows=3)
    seconds = cm.Problem(mdp, "cost", budgets(mdp, E, b)).solve().stats.seconds
    assert {"presolve", "verdict", "mixing", "explanation", "total"} <= set(seconds)
    assert seconds["verdict"] <= seconds["total"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cm.Budget("risk", 0.1, priority=0), "priority is 0"),
        (lambda: cm.Budget("risk", 0.1, priority=1.5), "priority is 1.5"),
        (lambda: cm.Entropy(1.0, weight=0.0), "weight is 0.0"),
        (lambda: cm.NormBall(np.ones(3), 0.1, weight=-1), "weight is -1"),
        (lambda: cm.StateBounds(upper=0.1, weight=np.inf), "weight is inf"),
        (
            lambda: cm.Problem(as_mdp(random_model(0)), "cost").solve(when_infeasible="best"),
            "when_infeasible is 'best'",
        ),
    ],
)
def test_misuse_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_cost_that_the_free_optimum_avoids_can_be_minimized_under_a_limit():
    """Without a limit on the time nobody has to collide, so that the least collision is zero there."""
    mdp = cm.worlds.gridworld(size=8, obstacles=[(1, 6), (6, 1), (3, 3), (4, 4), (2, 5), (5, 2)])
    free = cm.Problem(mdp, "time").solve()
    solution = cm.Problem(mdp, "collision", [cm.Budget("time", at_most=1.0001 * free.value)]).solve()
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value > 0


def test_sparse_rows_are_relaxed_like_dense_ones():
    _, mdp, E, b = infeasible_rows(0, rows=3)
    dense, sparse = (
        cm.Problem(mdp, "cost", [cm.Linear(form(E), at_most=b)]).solve().infeasibility
        for form in (np.array, sp.csr_array)
    )
    assert sparse.relax["linear"].amount == pytest.approx(dense.relax["linear"].amount, rel=1e-6)
    assert sparse.conflict == dense.conflict


def test_a_cost_that_can_all_but_be_avoided_is_found_and_proven_however_small():
    """Waiting in the corner reaches an obstacle with a probability of 1e-24 or so: that is not zero."""
    mdp = cm.worlds.gridworld()
    for limits in ([], [cm.Budget("time", at_most=1.0)], [cm.Budget("time", at_most=1.2)]):
        problem = cm.Problem(mdp, "collision", limits)
        solution = problem.solve()
        assert solution.status is cm.Status.OPTIMAL
        assert 0 < solution.value < 1e-23
        assert solution.value == pytest.approx(
            occupancy_without_subtraction(mdp, solution.policy) @ problem.cost, rel=1e-9
        )
        solution.certificate.check(problem)


def occupancy_without_subtraction(mdp, policy):
    """Visits by adding up the steps: all terms are positive, so that every entry is exact to rounding."""
    pi = policy.probabilities
    P = np.zeros((mdp.num_states, mdp.num_states))
    np.add.at(P, mdp.state, pi[:, None] * mdp.transitions.toarray())
    x, step = np.zeros(mdp.num_states), (1 - mdp.discount) * mdp.initial
    while step.sum() > 1e-30:
        x, step = x + step, mdp.discount * (P.T @ step)
    return x[mdp.state] * pi


def test_the_picture_of_a_conflict_shows_what_is_possible(tmp_path):
    """The curve is the least collision for each time, by HiGHS."""
    from cvxmdp.report.conflict import plot_conflicts

    mdp = cm.worlds.gridworld(size=6, obstacles=[(0, 1), (1, 0), (2, 2)])
    problem = cm.Problem(mdp, "time", [cm.Budget("time", at_most=0.1), cm.Budget("collision", at_most=1e-3)])
    solution = problem.solve()
    figure = plot_conflicts([(problem, solution, "a conflict")], tmp_path / "conflict.png")
    assert (tmp_path / "conflict.png").read_bytes()[:4] == b"\x89PNG"
    curve = figure.axes[0].lines[0].get_xydata()
    P = mdp.transitions.toarray()
    model = {"state": mdp.state, "P": P, "discount": mdp.discount, "initial": mdp.initial, "costs": dict(mdp.costs)}
    for time, collision in curve[:: len(curve) // 3]:
        best, _, _ = lp_optimum(model, mdp.costs["collision"], mdp.costs["time"][None, :], np.array([time]))
        assert collision == pytest.approx(best, abs=2e-4 * max(best, 1e-3))
    loose = cm.Problem(mdp, "time", [cm.Budget("time", 1.0), cm.Budget("collision", 1.0)])
    other = cm.Problem(mdp, "time", [cm.StateBounds(upper=1e-3), cm.Budget("collision", 1.0)])
    for wrong, words in ((loose, "no conflict to draw"), (other, "two budgets")):
        panel = (wrong, wrong.solve(explain=False), "none")
        with pytest.raises(ValueError, match=words):
            plot_conflicts([panel])


# Bugs that were mended -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["relative", "priority"])
def test_a_feasible_problem_is_optimized_whatever_the_compromise(how):
    mdp = cm.worlds.gridworld(size=5)
    for minimize, limit in (
        ("time", cm.Bounds(upper=0.2)),
        (["time", cm.NegativeEntropy(0.1)], cm.Budget("collision", 0.01)),
    ):
        problem = cm.Problem(mdp, minimize, [limit])
        solution, usual = problem.solve(when_infeasible=how), problem.solve()
        solution.certificate.check(problem)
        assert solution.status is usual.status is cm.Status.OPTIMAL
        assert solution.value == pytest.approx(usual.value, rel=1e-5)


def test_a_cost_of_zero_under_limits_that_none_obeys():
    P = np.random.default_rng(4).dirichlet(np.ones(2), size=(2, 2))
    mdp = cm.MDP(P, {"z": np.zeros(2)}, 0.9, [1, 0])
    limits = [
        cm.Budget(np.array([-1.6, 0.2, 0.2, 1.6]), at_most=-1.49, name="a"),
        cm.Budget(np.array([0.3, 0.5, -1.5, 2.3]), at_most=0.09, name="b"),
    ]
    problem = cm.Problem(mdp, "z", limits)
    solution = problem.solve()
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)


@pytest.mark.parametrize("how", ["nearest", "relative", "priority"])
def test_ctrl_c_ends_the_compromise_and_the_explanation_at_once(how):
    _, mdp, E, b = infeasible_rows(0, rows=4)
    problem = cm.Problem(mdp, "cost", budgets(mdp, E, b))
    calls = []
    problem.solve(when_infeasible=how, callback=lambda progress: calls.append(progress))
    for last in range(1, len(calls), max(1, len(calls) // 12)):
        seen = []

        def interrupt(progress, seen=seen, last=last):
            seen.append(progress)
            if len(seen) == last:
                raise KeyboardInterrupt

        solution = problem.solve(when_infeasible=how, callback=interrupt)
        assert len(seen) == last
        assert solution.status in (cm.Status.INFEASIBLE, cm.Status.INTERRUPTED)
        assert "interrupted" in solution.stats.method
        solution.certificate.check(problem)


def test_the_least_violation_counts_beyond_rows_that_exclude_each_other():
    mdp = cm.MDP([[[1.0]], [[1.0]]], {"c": [[0.2, 0.1]]}, 0.9)
    row = np.array([1.0, 2.0])
    limits = [
        cm.Budget(row, at_most=0.5, name="a"),
        cm.Linear(row, at_least=0.6, name="b"),
        cm.Budget(np.array([5.0, 6.0]), at_most=1.0, name="z"),
    ]
    found = cm.Problem(mdp, "c", limits).solve(when_infeasible="relative").infeasibility
    assert found.least == pytest.approx(4.0, rel=1e-6)


def test_limits_of_zero_and_forbidden_pairs_give_no_warnings_and_sensible_words():
    two = cm.MDP([[[1.0]], [[1.0]]], {"c": [[0.13, -0.13]]}, 0.5)
    solution = cm.Problem(two, "c", [cm.Budget(np.array([0.04, 0.02]), at_most=0.0)]).solve()
    assert solution.infeasibility.relax["budget"].amount == pytest.approx(0.02, rel=1e-6)
    mdp = cm.MDP([[[0.3, 0.7], [0.1, 0.9]], [[1, 0], [0, 1]]], {"c": [1.0, 2.0]}, 0.9, [1, 0])
    problem = cm.Problem(mdp, "c", [cm.KLBall(np.array([0, 0, 0, 1.0]), 0.1)])
    solution = problem.solve()
    solution.certificate.check(problem)
    assert solution.infeasibility.least == math.inf
    words = " ".join(str(solution).split())
    assert "however far the limits are relaxed" in words
    assert "beyond any bound" in words


def test_what_was_cut_off_does_not_claim_to_be_finished():
    _, mdp, E, b = infeasible_rows(0, rows=4)
    problem = cm.Problem(mdp, "cost", budgets(mdp, E, b))
    calls = len(problem.solve(explain=False).stats.history)
    seen = []

    def stop(progress):
        seen.append(progress)
        return len(seen) > calls

    for how in ("relative", "priority"):
        seen.clear()
        solution = problem.solve(when_infeasible=how, callback=stop)
        assert solution.infeasibility.compromise == "unfinished"
        assert "was not finished" in " ".join(str(solution).split())


def test_a_set_of_ones_own_says_how_far_it_has_to_grow():
    class Own:
        name = "own"

        def project(self, point):
            nearest = point.copy()
            nearest[0] = 1.2
            return nearest

    mdp = cm.MDP([[[0.5, 0.5], [0.5, 0.5]], [[1, 0], [0, 1]]], {"c": [1.0, 0.0]}, 0.9, [1, 0])
    found = cm.Problem(mdp, "c", [Own()]).solve().infeasibility
    most = -cm.Problem(mdp, -np.eye(4)[0]).solve().value
    assert found.relax["own"].amount == pytest.approx(1.2 - most, rel=1e-4)


def test_long_lines_are_wrapped():
    mdp = cm.worlds.gridworld(size=5)
    for limits in ([], [cm.Budget("time", at_most=1e-3, name="a limit with a name of its own that is rather long")]):
        for solution in (
            cm.Problem(mdp, "time", limits).solve(),
            cm.Problem(mdp, "time", limits).solve(max_iterations=1),
        ):
            assert max(map(len, str(solution).splitlines())) <= 80
