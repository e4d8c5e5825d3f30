"""Projections, their duals and their intersections, against optimality conditions and Clarabel."""

from fractions import Fraction

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import cvxmdp as cm
from cvxmdp.constraints.combine import Blocks, bind
from oracles import as_mdp, conic_optimum, project_polyhedron, random_model

SIZE = 4
ROUND = 1e-9

points = arrays(float, SIZE, elements=st.integers(-40, 40).map(lambda k: k / 8))
small_points = arrays(float, SIZE, elements=st.integers(-2, 2).map(float))
slack = st.sampled_from([0.0, 0.5, 2.0, np.inf])


@st.composite
def polyhedra(draw):
    """(rows, lower, upper, member): whole-numbered rows, so that zero, equal and opposite rows are common."""
    n = draw(st.integers(1, 6))
    rows = draw(arrays(float, (n, SIZE), elements=st.integers(-2, 2).map(float)))
    member = draw(small_points)
    sides = draw(arrays(float, (2, n), elements=slack))
    sides[1, np.all(np.isinf(sides), axis=0)] = 1.0
    return rows, rows @ member - sides[0], rows @ member + sides[1], member


@st.composite
def sets(draw):
    """(set, its violation written again by hand, a member), of every kind."""
    kind = draw(st.sampled_from(["linear", "sparse", "equality", "budget", "bounds", "ball", "point"]))
    rows, lower, upper, member = draw(polyhedra())
    if kind in ("linear", "sparse"):
        made = cm.Linear(rows if kind == "linear" else sp.csr_array(rows), at_most=upper, at_least=lower)
        return made, lambda z: max(0, (rows @ z - upper).max(), (lower - rows @ z).max()), member
    if kind == "equality":
        return cm.Linear(rows, equal=rows @ member), lambda z: np.abs(rows @ z - rows @ member).max(), member
    if kind == "budget":
        limit = rows[0] @ member
        return cm.Budget(rows[0], at_most=limit), lambda z: max(0, rows[0] @ z - limit), member
    if kind == "bounds":
        member = np.abs(member)  # an occupancy is never below zero
        low, high = member - draw(slack), member + draw(slack)
        return cm.Bounds(low, high), lambda z: max(0, (low - z).max(), (z - high).max()), member
    radius = 0.0 if kind == "point" else draw(st.sampled_from([0.5, 3.0]))
    return cm.NormBall(member, radius), lambda z: max(0, np.linalg.norm(z - member) - radius), member


# ------------------------------------------------------------------------------------------------ projection


@given(sets(), points, points)
def test_the_projection_is_the_nearest_member(made, x, y):
    """``p = proj(x)`` exactly when p is in C and ``(x - p).(q - p) <= 0`` for all q in C."""
    convex_set, violation, member = made
    p = convex_set.project(x)
    assert violation(p) <= ROUND
    for q in (member, convex_set.project(y)):
        assert (x - p) @ (q - p) <= ROUND


@given(sets(), points)
def test_a_member_is_its_own_projection(made, x):
    convex_set, _, member = made
    np.testing.assert_allclose(convex_set.project(member), member, atol=ROUND)
    p = convex_set.project(x)
    np.testing.assert_allclose(convex_set.project(p), p, atol=ROUND)


@given(sets(), points, points)
def test_the_projection_brings_no_two_points_further_apart(made, x, y):
    convex_set, _, _ = made
    p, q = convex_set.project(x), convex_set.project(y)
    assert np.linalg.norm(p - q) <= np.linalg.norm(x - y) + ROUND
    assert (p - q) @ (p - q) <= (p - q) @ (x - y) + 10 * ROUND  # firmly


@given(sets(), points)
def test_the_violation_is_the_largest_excess_in_the_units_of_the_limit(made, x):
    convex_set, violation, member = made
    assert convex_set.violation(x) == pytest.approx(violation(x), abs=1e-12)
    assert convex_set.violation(member) == 0


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("seed", range(30))
def test_the_projection_onto_linear_limits_agrees_with_clarabel(seed, form):
    """Rows with one limit, two limits or an equality, one row twice in other units, one implied by the others."""
    rng = np.random.default_rng(seed)
    E, member, x = rng.normal(size=(7, 10)), rng.normal(size=10), 5 * rng.normal(size=10)
    below, above = rng.exponential(size=(2, 7)) * rng.choice([0.1, 1.0, np.inf], size=(2, 7))
    above[0] = below[0] = 0.0
    E[5], above[5], below[5] = 3 * E[1], 3 * above[1], 3 * below[1]
    E[6], above[6], below[6] = E[1] + E[2], above[1] + above[2] + 1, np.inf
    lower, upper = E @ member - below, E @ member + above
    found = cm.Linear(form(E), at_most=upper, at_least=lower).project(x)
    np.testing.assert_allclose(found, project_polyhedron(x, E, lower, upper), atol=1e-8)


@given(polyhedra(), points)
def test_the_projection_onto_equalities_agrees_with_least_squares(polyhedron, x):
    rows, _, _, member = polyhedron
    expected = x - np.linalg.pinv(rows) @ (rows @ x - rows @ member)
    np.testing.assert_allclose(cm.Linear(rows, equal=rows @ member).project(x), expected, atol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_the_projection_onto_a_ball_agrees_with_clarabel(seed):
    x, center = np.random.default_rng(seed).normal(size=(2, 10))
    radius = np.random.default_rng(seed).uniform(0.5, 2) * np.linalg.norm(x - center)
    A, b = np.vstack([np.zeros(10), np.eye(10)]), np.concatenate([[radius], center])
    nearest, _ = conic_optimum(sp.identity(10), -x, [(A, b, clarabel.SecondOrderConeT(11))])
    np.testing.assert_allclose(cm.NormBall(center, radius).project(x), nearest, atol=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_the_projection_onto_bounds_agrees_with_clarabel(seed):
    rng = np.random.default_rng(seed)
    middle, (below, above) = rng.uniform(size=10), rng.choice([0.1, 0.3, np.inf], size=(2, 10))
    x = 2 * rng.normal(size=10)
    nearest = project_polyhedron(x, np.eye(10), middle - below, middle + above)
    np.testing.assert_allclose(cm.Bounds(middle - below, middle + above).project(x), nearest, atol=1e-8)


@pytest.mark.parametrize("power", range(-8, 9, 2))
def test_the_units_of_a_row_do_not_matter(power):
    rng = np.random.default_rng(0)
    E, x = rng.normal(size=(3, 10)), 5 * rng.normal(size=10)
    upper, lower = np.array([1.0, np.inf, 0.5]), np.array([-np.inf, 1.0, 0.5])
    scale = np.array([10.0**power, 1.0, 10.0**-power])
    found = cm.Linear(scale[:, None] * E, at_most=scale * upper, at_least=scale * lower).project(x)
    np.testing.assert_allclose(found, cm.Linear(E, at_most=upper, at_least=lower).project(x), atol=1e-10)
    np.testing.assert_allclose(found, project_polyhedron(x, E, lower, upper), atol=1e-8)


@pytest.mark.parametrize("distance", [1e3, 1e6, 1e9, 1e12])
def test_a_limit_far_away_does_not_blunt_one_that_is_near(distance):
    """A past bug: all limits were measured against the farthest, so that small excesses over the others stayed."""
    far_and_near = cm.Linear([[1.0, 0.0], [0.0, 1.0]], at_most=[distance, 0.0])
    for excess in (1.0, 1e-3, 1e-6, 1e-9):
        p = far_and_near.project(np.array([0.0, excess]))
        np.testing.assert_allclose(p, [0.0, 0.0], atol=1e-9 * excess)


def test_a_point_that_obeys_redundant_equalities_up_to_rounding_stays():
    """A past bug: the rounding was scaled up until the three rows seemed to contradict each other, and NaN came out."""
    rows, member = np.array([[2.0, 0, 0], [2, -1, 1], [-2, -1, 1]]), np.array([0.0, -2, 1])
    x = np.array([-(2.0**-51), -0.9375, 2.0625])
    np.testing.assert_allclose(cm.Linear(rows, equal=rows @ member).project(x), x, atol=1e-12)


@pytest.mark.parametrize("excess", [1.0, 1e-4, 1e-8, 1e-12])
def test_a_small_excess_is_projected_as_exactly_as_a_large_one(excess):
    E = np.random.default_rng(1).normal(size=(3, 10))
    member = np.random.default_rng(2).normal(size=10)
    x = member + excess * E[0]
    expected = x - np.linalg.pinv(E) @ (E @ x - E @ member)
    found = cm.Linear(E, equal=E @ member).project(x)
    np.testing.assert_allclose(found, expected, atol=1e-6 * excess + 1e-15)


@pytest.mark.parametrize("sparse", [False, True])
def test_more_rows_than_a_qr_factor_takes_are_projected_as_exactly(sparse):
    """Caps on 410 sums of two entries each."""
    n = 410
    E = np.eye(n) + np.roll(np.eye(n), 1, axis=1)
    x = np.random.default_rng(3).uniform(0, 2, size=n)
    found = cm.Linear(sp.csr_array(E) if sparse else E, at_most=1.0).project(x)
    assert (E @ found).max() <= 1 + 1e-9
    np.testing.assert_allclose(found, project_polyhedron(x, E, np.full(n, -np.inf), np.ones(n)), atol=1e-7)


def test_earlier_projections_do_not_change_later_ones():
    """The solver starts from the last active set, which may only make it faster."""
    rng = np.random.default_rng(4)
    E = rng.normal(size=(6, 8))
    used, others = cm.Linear(E, at_most=0.5, at_least=-0.5), 10 * rng.normal(size=(50, 8))
    for x in others:
        fresh = cm.Linear(E, at_most=0.5, at_least=-0.5)
        np.testing.assert_allclose(used.project(x), fresh.project(x), atol=1e-10)


def test_a_budget_by_name_is_the_row_of_its_cost():
    mdp = as_mdp(random_model(0))
    row = cm.Budget("risk", at_most=0.25).bind(mdp)
    np.testing.assert_array_equal(row.rows, [mdp.costs["risk"]])
    assert (row.upper, row.lower, row.name) == (0.25, -np.inf, "risk")


def test_one_number_bounds_every_pair():
    mdp = as_mdp(random_model(0))
    bounds = cm.Bounds(lower=0.01, upper=0.2).bind(mdp)
    x = np.linspace(-1, 1, mdp.num_pairs)
    np.testing.assert_array_equal(bounds.project(x), [min(max(entry, 0.01), 0.2) for entry in x])


# ----------------------------------------------------------------------------------------- relative violation


def test_the_relative_violation_is_free_of_units():
    """Of a row: the excess over the larger of its limit and ``|row|'d``; of a ball: over its radius."""
    d = np.array([0.5, 0.5])
    for unit in (1e-6, 1.0, 1e6):
        row = np.array([2.0, -1.0]) * unit  # row'd = 0.5 unit, |row|'d = 1.5 unit
        assert cm.Linear(row, at_most=0.2 * unit).relative(d) == pytest.approx(0.3 / 1.5)
        assert cm.Linear(row, at_least=5 * unit).relative(d) == pytest.approx(4.5 / 5)
        assert cm.Linear(row, at_most=0.5 * unit).relative(d) == 0
        assert cm.NormBall([0.0, 0.0], 0.5 * unit).relative(unit * d) == pytest.approx((np.sqrt(0.5) - 0.5) / 0.5)
    assert cm.Bounds(upper=[0.4, 1.0]).relative(d) == pytest.approx(0.1 / 0.5)
    assert cm.Bounds(lower=[1.0, 0.0]).relative(d) == pytest.approx(0.5 / 1.0)


# ------------------------------------------------------------------------------------------------------ duals


@given(sets(), points, st.sampled_from([0.5, 1.0, 7.0]))
def test_the_dual_gives_the_normal_and_its_largest_value_over_the_set(made, y, scale):
    """For ``z = project(y)`` the normal is ``u = scale (y - z)``, and the largest ``u'x`` over the set is ``u'z``."""
    convex_set, _, member = made
    if isinstance(convex_set, cm.Budget):
        convex_set = cm.Linear(convex_set.cost, at_most=convex_set.at_most)
    z = convex_set.project(y)
    u, top = convex_set.normal(convex_set.dual(y, z, scale))
    np.testing.assert_allclose(u, scale * (y - z), atol=1e-8)
    assert top == pytest.approx(u @ z, abs=1e-7)
    assert u @ member <= top + 1e-8
    assert u @ convex_set.project(-y) <= top + 1e-7


@given(polyhedra(), points)
def test_multipliers_push_only_against_limits_that_hold(polyhedron, x):
    rows, lower, upper, _ = polyhedron
    linear = cm.Linear(rows, at_most=upper, at_least=lower)
    m, value = linear.multipliers(x), rows @ linear.project(x)
    np.testing.assert_allclose(value[m > ROUND], upper[m > ROUND], atol=ROUND)
    np.testing.assert_allclose(value[m < -ROUND], lower[m < -ROUND], atol=ROUND)


def test_a_normal_that_no_limit_supports_has_no_largest_value():
    assert cm.Linear([1.0, 0.0], at_most=1.0).normal(np.array([-1.0]))[1] == np.inf
    assert cm.Linear([1.0, 0.0], at_least=1.0).normal(np.array([1.0]))[1] == np.inf
    assert cm.Bounds(upper=[1.0, 1.0]).normal(np.array([0.0, -1.0]))[1] == np.inf
    assert cm.Linear([1.0, 0.0], at_most=1.0).normal(np.array([0.0]))[1] == 0


# ---------------------------------------------------------------------------------------------- contradiction


def assert_proves(linear, proof):
    """The rows add up to zero, and yet what the limits allow of that sum is below zero."""
    rows = linear.rows.toarray() if sp.issparse(linear.rows) else linear.rows
    np.testing.assert_allclose(rows.T @ proof, 0, atol=1e-12 * np.abs(rows).max() * np.abs(proof).max())
    assert sum(m * (u if m > 0 else b) for m, u, b in zip(proof, linear.upper, linear.lower, strict=True) if m) < 0


@pytest.mark.parametrize("gap", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("sparse", [False, True])
def test_contradictory_rows_are_proven_to_be_so(gap, sparse):
    """``a'd <= 1``, ``b'd <= 1`` and ``(a + b)'d >= 2 + gap``, among rows that have no part in it."""
    rng = np.random.default_rng(5)
    a, b, other = rng.normal(size=(3, 6))
    E = np.array([a, other, b, a + b])
    linear = cm.Linear(
        sp.csr_array(E) if sparse else E, at_most=[1, 1, 1, np.inf], at_least=[-np.inf, -np.inf, -np.inf, 2 + gap]
    )
    proof = linear.contradiction()
    assert_proves(linear, proof)
    assert abs(proof[1]) < 1e-9 * np.abs(proof).max()


def test_equalities_that_contradict_each_other_are_proven_to_do_so():
    linear = cm.Linear([[1.0, 2.0], [2.0, 4.0]], equal=[1.0, 3.0])
    assert_proves(linear, linear.contradiction())


def test_a_row_of_zeros_contradicts_a_limit_other_than_zero():
    linear = cm.Linear([[1.0, 1.0], [0.0, 0.0]], at_least=[0.0, 1.0])
    assert_proves(linear, linear.contradiction())


@given(polyhedra())
@settings(max_examples=50)
def test_rows_with_a_common_member_do_not_contradict_each_other(polyhedron):
    rows, lower, upper, _ = polyhedron
    assert cm.Linear(rows, at_most=upper, at_least=lower).contradiction() is None


def test_a_problem_with_contradictory_rows_is_infeasible_with_a_proof():
    mdp = as_mdp(random_model(0))
    risk = mdp.costs["risk"]
    problem = cm.Problem(mdp, "cost", [cm.Linear(risk, at_least=0.5), cm.Budget("risk", at_most=0.4)])
    solution = problem.solve()
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)


# ----------------------------------------------------------------------------------------------- intersection


class EqualShares:
    """All entries are equal: a set known by its projection alone."""

    def project(self, point):
        return np.full_like(point, point.mean())


class Named(EqualShares):
    name = "fair"

    def violation(self, point):
        return 17.0 * np.ptp(point)


def test_equal_names_are_made_distinct_in_the_order_given():
    mdp = as_mdp(random_model(0))
    given_ = [cm.Budget("risk", 0.5), cm.Budget("risk", 0.6), cm.Budget("cost", 1.0), cm.Budget("risk", 0.7)]
    assert [c.name for c in bind(given_, mdp)] == ["risk", "risk (2)", "cost", "risk (3)"]


def test_a_made_up_name_does_not_collide_with_a_given_one():
    mdp = as_mdp(random_model(0))
    given_ = [cm.Budget("risk", 0.5), cm.Budget("cost", 1.0, name="risk (2)"), cm.Budget("risk", 0.6)]
    names = [c.name for c in bind(given_, mdp)]
    assert names[:2] == ["risk", "risk (2)"]
    assert len(set(names)) == 3


def test_binding_leaves_the_users_constraints_as_they_are():
    """A past bug: the second of two equal names was changed in the user's own object, for other problems too."""
    mdp = as_mdp(random_model(0))
    row = np.ones(mdp.num_pairs)
    first, second = cm.Linear(row, at_most=2.0), cm.Linear(row, at_most=3.0)
    ball, other = cm.NormBall(row / 18, 1.0), cm.NormBall(row / 18, 2.0)
    assert [c.name for c in cm.Problem(mdp, "cost", [first, second, ball, other]).constraints] == [
        "linear", "linear (2)", "ball", "ball (2)",
    ]  # fmt: skip
    assert (first.name, second.name, ball.name, other.name) == ("linear", "linear", "ball", "ball")
    assert [c.name for c in cm.Problem(mdp, "cost", [first, first]).constraints] == ["linear", "linear (2)"]


@pytest.mark.parametrize("forms", [(np.asarray, np.asarray), (sp.csr_array, sp.csr_array), (sp.csr_array, np.asarray)])
def test_linear_constraints_merge_into_one_set(forms):
    rng = np.random.default_rng(6)
    E, F = rng.normal(size=(2, SIZE)), rng.normal(size=(1, SIZE))
    ball = cm.NormBall(np.zeros(SIZE), 1.0)
    parts = [cm.Linear(forms[0](E), at_most=0.1), ball, cm.Linear(forms[1](F), equal=0.0)]
    both = Blocks(parts, [], np.zeros(SIZE))
    assert len(both.blocks) == 2
    y = rng.normal(size=(2, SIZE))
    z = both.prox(y, 1.0)
    lower, upper = [-np.inf, -np.inf, 0], [0.1, 0.1, 0]
    np.testing.assert_allclose(z[0], project_polyhedron(y[0], np.vstack([E, F]), lower, upper), atol=1e-8)
    np.testing.assert_array_equal(z[1], ball.project(y[1]))


def test_duals_come_back_one_for_each_constraint_in_the_order_given():
    rng = np.random.default_rng(7)
    parts = [
        cm.NormBall(np.zeros(SIZE), 0.5),
        cm.Linear(rng.normal(size=(2, SIZE)), at_most=-1.0),
        cm.Bounds(upper=np.full(SIZE, 0.1)),
        cm.Linear(rng.normal(size=SIZE), at_most=-1.0),
    ]
    both = Blocks(parts, [], np.zeros(SIZE))  # blocks: linear, ball, bounds
    y = 3 * rng.normal(size=(3, SIZE))
    z = both.prox(y, 1.0)
    duals = both.duals(y, z, 2.0)
    assert [dual.size for dual in duals] == [SIZE, 2, SIZE, 1]
    np.testing.assert_allclose(parts[0].normal(duals[0])[0], 2 * (y[1] - z[1]), atol=1e-12)
    np.testing.assert_allclose(parts[2].normal(duals[2])[0], 2 * (y[2] - z[2]), atol=1e-12)
    linear = parts[1].normal(duals[1])[0] + parts[3].normal(duals[3])[0]
    np.testing.assert_allclose(linear, 2 * (y[0] - z[0]), atol=1e-9)
    u, top, size = both.normals(duals)
    assert size >= np.abs(u).max() + abs(top)
    np.testing.assert_allclose(u, 2 * (y - z).sum(axis=0), atol=1e-9)
    assert top == pytest.approx(2 * np.sum((y - z) * z), abs=1e-9)
    np.testing.assert_array_equal(both.normals(both.no_duals())[0], np.zeros(SIZE))


def test_a_set_with_nothing_but_a_projection_is_a_constraint():
    mdp = as_mdp(random_model(0, states=2, actions=2))
    (bound,) = bind([EqualShares()], mdp)
    x = np.array([0.1, 0.2, 0.3, 0.4])
    assert bound.name == "EqualShares"
    assert bound.violation(x) == pytest.approx(np.linalg.norm(x - 0.25))
    assert bound.relative(x) == pytest.approx(np.linalg.norm(x - 0.25) / np.linalg.norm(x))
    z = bound.project(x)
    u, top = bound.normal(bound.dual(x, z, 3.0))
    np.testing.assert_allclose(u, 3 * (x - z), atol=1e-15)
    assert top == pytest.approx(u @ z, abs=1e-15)


def test_a_set_of_the_users_own_may_bring_a_name_and_a_violation():
    mdp = as_mdp(random_model(0, states=2, actions=2))
    (bound,) = bind([Named()], mdp)
    assert bound.name == "fair"
    assert bound.violation(np.array([0.1, 0.2, 0.3, 0.4])) == pytest.approx(17 * 0.3)


def test_a_problem_with_a_set_of_the_users_own_is_solved_and_proven():
    """Every occupancy of a model that stays where it is visits each state as often as the start does."""
    model = random_model(0, states=2, actions=2)
    model["P"] = np.eye(2)[model["state"]]
    model["initial"] = np.array([0.5, 0.5])
    problem = cm.Problem(as_mdp(model), "cost", [EqualShares()])
    solution = problem.solve()
    assert solution.status is cm.Status.OPTIMAL
    solution.certificate.check(problem)
    np.testing.assert_allclose(solution.occupancy, 0.25, atol=1e-6)
    assert solution.value == pytest.approx(model["costs"]["cost"].mean(), abs=1e-6)


def test_the_sum_of_normals_may_be_changed_without_changing_the_duals():
    mdp = as_mdp(random_model(0, states=4, actions=2))
    ball = cm.NormBall(np.full(8, 1 / 8), 0.1).bind(mdp)
    for members in ([ball], [ball, ball]):
        duals = [np.ones(8) for _ in members]
        u, _, _ = Blocks(members, [], np.zeros(8)).normals(duals)
        np.testing.assert_array_equal(u, len(members))
        u += 5.0
        for dual in duals:
            np.testing.assert_array_equal(dual, 1.0)


@pytest.mark.parametrize("pairs", [10, 10_000])
def test_what_rounding_may_do_to_rows_is_counted_by_rows(pairs):
    rng = np.random.default_rng(pairs)
    upper, duals = rng.random(4), rng.random(4)
    rows = cm.Linear(rng.random((4, pairs)), at_most=upper)
    _, top, size = Blocks([rows], [], np.zeros(pairs)).normals([duals])
    exact = sum(Fraction(m) * Fraction(b) for m, b in zip(duals.tolist(), upper.tolist(), strict=True))
    assert abs(Fraction(top) - exact) <= Fraction(size) * Fraction(np.finfo(float).eps)
    assert size <= 10 * 4 * 4 + 14 * 4  # entries below one, times as many; and four terms below one
