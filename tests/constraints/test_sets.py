"""Every set: its projection, dual, price and response, against definitions written by hand and against Clarabel.

A case is a set with its violation written again, some members, and the same set in CVXPY's words.  All live on the
pairs of one small model whose states offer 3, 1 and 2 actions.
"""

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import hypothesis
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import cvxmdp as cm
import fresh
from cvxmdp.barriers import View
from cvxmdp.blocks import Spread
from cvxmdp.constraints.combine import bind
from oracles import as_mdp, random_model

STATE = np.array([0, 0, 0, 1, 2, 2])
SIZE, STATES = STATE.size, 3
XI = np.eye(STATES)[STATE].T
MODEL = as_mdp(
    {
        "state": STATE,
        "action": np.array([0, 1, 2, 0, 0, 1]),
        "P": np.random.default_rng(0).dirichlet(np.ones(STATES), size=SIZE),
        "costs": {"cost": np.arange(1.0, SIZE + 1)},
        "initial": np.full(STATES, 1 / 3),
        "discount": 0.9,
    }
)
EXPONENTS = [1, 1.1, 1.5, 2, 3, 10, np.inf]


@dataclass
class Case:
    block: Any
    violation: Any
    """By hand."""
    members: list
    cvxpy: Any
    """Constraints on a CVXPY expression."""


def relative_entropy(x, r):
    """``sum x log(x / r)``, by hand; infinite where r is zero and x is not."""
    total = 0.0
    for a, b in zip(np.maximum(x, 0), r, strict=True):
        total += 0.0 if a == 0 else np.inf if b == 0 else a * np.log(a / b)
    return total


def p_norm(x, p):
    x = np.abs(np.asarray(x, dtype=float))
    if np.isinf(p):
        return x.max()
    top = x.max() or 1.0
    return top * sum((x / top) ** p) ** (1 / p)


def linear(rows, lower, upper, members, form=np.asarray):
    def violation(z):
        return max(0.0, (rows @ z - upper).max(), (lower - rows @ z).max())

    def words(x):
        high, low = np.isfinite(upper), np.isfinite(lower)
        sides = [rows[high] @ x <= upper[high]] if high.any() else []
        return [*sides, rows[low] @ x >= lower[low]] if low.any() else sides

    return Case(cm.Linear(form(rows), at_most=upper, at_least=lower).bind(MODEL), violation, members, words)


def state_bounds(lower, upper, members):
    def violation(z):
        return max(0.0, (XI @ z - upper).max(), (lower - XI @ z).max())

    block = cm.StateBounds(lower=lower, upper=upper).bind(MODEL)
    return Case(block, violation, members, lambda x: [XI @ x <= upper, XI @ x >= lower])


def bounds(lower, upper, members):
    def violation(z):
        return max(0.0, (z - upper).max(), (lower - z).max())

    return Case(cm.Bounds(lower, upper).bind(MODEL), violation, members, lambda x: [x >= lower, x <= upper])


def ball(center, radius, p):
    def violation(z):
        return max(0.0, p_norm(z - center, p) - radius)

    block = cm.NormBall(center, radius, norm=p).bind(MODEL)
    members = [center, center + radius * np.eye(SIZE)[2]]
    return Case(block, violation, members, lambda x: [cp.norm(x - center, "inf" if p == np.inf else p) <= radius])


def weighted_ball(center, radius, weights):
    def violation(z):
        return max(0.0, np.sqrt(sum(weights * (z - center) ** 2)) - radius)

    block = cm.NormBall(center, radius, weights=weights).bind(MODEL)
    root = np.sqrt(weights)
    members = [center, center - radius / root[0] * np.eye(SIZE)[0]]
    return Case(block, violation, members, lambda x: [cp.norm(cp.multiply(root, x - center)) <= radius])


def entropy(at_least, of):
    entries = np.eye(SIZE) if of == "pairs" else XI
    ones = np.ones(len(entries))

    def violation(z):
        x = entries @ z
        return max(0.0, relative_entropy(x, ones) + at_least, -x.min())

    even = (1 / ones.size / entries.sum(axis=1)) @ entries
    members = [even, even + np.array([0.5, -0.5, 0, 0, 0.25, -0.25])] if of == "states" else [even]
    block = cm.Entropy(at_least, of).bind(MODEL)
    return Case(block, violation, members, lambda x: [cp.sum(cp.entr(entries @ x)) >= at_least])


def kl_ball(reference, radius):
    def violation(z):
        return max(0.0, relative_entropy(z, reference) - radius, -z.min())

    def words(x):
        some = reference > 0
        nothing = [x[~some] == 0] if not some.all() else []
        return [*nothing, cp.sum(cp.rel_entr(x[some], reference[some])) <= radius]

    return Case(
        cm.KLBall(reference, radius).bind(MODEL), violation, [reference, reference / np.e, 0 * reference], words
    )


def robust(cost, Q, root, at_most, members):
    """With ``Q = root' root``, since ``sqrt(z'Qz)`` is not exact where it vanishes."""
    c = np.zeros(SIZE) if cost is None else cost

    def violation(z):
        return max(0.0, c @ z + np.linalg.norm(root @ z) - at_most)

    block = cm.RobustBudget(cost, cm.Ellipsoid(Q), at_most).bind(MODEL)
    return Case(block, violation, members, lambda x: [c @ x + cp.norm(root @ x) <= at_most])


def robust_rows(cost, uncertainty, errors, at_most, members):
    def violation(z):
        return max(0.0, max((cost + e) @ z for e in errors) - at_most)

    block = cm.RobustBudget(cost, uncertainty, at_most).bind(MODEL)
    return Case(block, violation, members, lambda x: [(np.array(errors) + cost) @ x <= at_most])


class HalfSpace:
    """A user's set: the entries sum to at most one."""

    def project(self, point):
        return point - max(point.sum() - 1, 0) / point.size


def custom():
    (block,) = bind([HalfSpace()], MODEL)
    return Case(block, lambda z: max(0.0, z.sum() - 1) / np.sqrt(SIZE), [np.zeros(SIZE)], lambda x: [cp.sum(x) <= 1])


KINDS = [
    "linear", "sparse", "equality", "disjoint", "states", "bounds", *(f"{p}-ball" for p in EXPONENTS), "weighted ball",
    "entropy", "entropy of states", "KL", "KL with zeros", "ellipsoid", "ellipsoid with zeros", "ellipsoid, full",
    "ellipsoid, deficient", "ellipsoid, no cost", "box", "vertices", "custom",
]  # fmt: skip
CURVED = [k for k in KINDS if k.startswith(("1.", "2", "3", "10", "weighted", "entropy", "KL", "ellipsoid"))]


def make(kind, number, vector, matrix, slack):
    """Build a case from draws: a number at least 0, vectors of whole numbers, a matrix, and slacks of sides."""
    center = vector()
    if kind in ("linear", "sparse", "equality"):
        rows = matrix()
        below, above = slack(), slack()
        if kind == "equality":
            below = above = np.zeros(len(rows))
        below[np.isinf(below) & np.isinf(above)] = 0.5
        lower, upper = rows @ center - below, rows @ center + above
        return linear(rows, lower, upper, [center], sp.csr_array if kind == "sparse" else np.asarray)
    if kind == "disjoint":
        rows = np.zeros((3, SIZE))
        rows[[0, 0, 1, 2, 2], [0, 3, 1, 2, 5]] = vector()[:5]
        return linear(rows, rows @ center - slack()[:3], rows @ center + number(), [center])
    if kind == "states":
        visits = XI @ np.abs(center) / 40
        low, high = visits - number(), visits + number()
        return state_bounds(np.minimum(low, 0.3), high, [np.abs(center) / 40])
    if kind == "bounds":
        low = np.abs(center) - number()
        return bounds(low, np.abs(center) + number(), [np.abs(center), low])
    if kind.endswith("-ball"):
        return ball(center, number(), float(kind[:-5]))
    if kind == "weighted ball":
        return weighted_ball(center, number(), 2.0 ** vector())
    if kind.startswith("entropy"):
        of = "states" if kind.endswith("states") else "pairs"
        most = np.log(SIZE if of == "pairs" else STATES)
        return entropy(min(number() - 1, most), of)
    if kind.startswith("KL"):
        shares = np.abs(vector()) + (1 if kind == "KL" else 0)
        if kind == "KL with zeros":
            shares[[1, 4]] = 0.0
        shares[0] += not shares.any()
        return kl_ball(shares / shares.sum(), number())
    if kind.startswith("ellipsoid"):
        factor = matrix()
        Q = np.abs(vector()) + 0.25
        if "zeros" in kind:
            Q[[0, 3]] = 0.0
        root = np.diag(np.sqrt(Q))
        if "full" in kind:
            Q = factor.T @ factor + np.eye(SIZE) / 4
            values, vectors = np.linalg.eigh(Q)
            root = (vectors * np.sqrt(values)).T  # Clarabel does better with this root than with Cholesky's
        if "deficient" in kind or "no cost" in kind:
            root = factor[:2]
            Q = root.T @ root
        cost = None if "no cost" in kind else vector()
        reach = np.linalg.norm(root @ center)
        # The limit may be negative: the center obeys it whatever it is, up to rounding.
        at_most = (0 if cost is None else cost @ center) + reach + number()
        return robust(cost, Q, root, at_most + 1e-12 * reach, [center])
    if kind == "box":
        cost, widths = vector(), np.abs(vector())
        return robust_rows(cost, cm.Box(widths), [widths], (cost + widths) @ center + number(), [center])
    if kind == "vertices":
        cost, errors = vector(), matrix()
        at_most = max((errors + cost) @ center) + number()
        return robust_rows(cost, cm.Vertices(errors), list(errors), at_most, [center])
    return custom()


@st.composite
def cases(draw, kind):
    """Degenerate ones on purpose: whole-numbered rows, so zero, equal and opposite ones; radius zero; limits met."""
    whole = st.integers(-2, 2).map(float)
    rows = draw(st.integers(1, 4)) if kind in ("linear", "sparse", "equality") else 3
    return make(
        kind,
        lambda: draw(st.sampled_from([0.0, 1e-8, 0.25, 1.0, 3.0])),
        lambda: draw(arrays(float, SIZE, elements=whole)),
        lambda: draw(arrays(float, (rows, SIZE), elements=whole)),
        lambda: draw(arrays(float, rows, elements=st.sampled_from([0.0, 0.5, 2.0, np.inf]))),
    )


def random_case(kind, seed):
    """Generic: nothing is zero or equal."""
    rng = np.random.default_rng(seed)
    return make(
        kind,
        lambda: rng.uniform(0.3, 1.2),
        lambda: rng.normal(size=SIZE),
        lambda: rng.normal(size=(3, SIZE)),
        lambda: np.array([rng.uniform(0.1, 1), np.inf, rng.uniform(0.1, 1)]),
    )


eighths = arrays(float, SIZE, elements=st.integers(-40, 40).map(lambda k: k / 8))
points = st.one_of(
    eighths,
    eighths.map(lambda x: 200 * x),
    eighths.map(lambda x: 1e-8 * x),
    st.sampled_from([np.zeros(SIZE), np.eye(SIZE)[1], -np.ones(SIZE), np.full(SIZE, 1 / SIZE)]),
)


@st.composite
def points_of(draw, case, some=points):
    """A point: any, a member, or one a little off a member."""
    x = draw(some)
    member = draw(st.sampled_from(case.members))
    return draw(st.sampled_from([x, x, member, member + 1e-8 * x, member + x]))


def size(*vectors):
    return 1.0 + max(np.linalg.norm(v) for v in vectors)


# ------------------------------------------------------------------------------------------------- projection


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(st.data())
def test_the_projection_is_the_nearest_member(kind, data):
    check_nearest(kind, data)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind}, seed {fresh.SEED}")
@hypothesis.seed(fresh.SEED)
@settings(max_examples=20, derandomize=False, database=None)
@given(st.data())
def test_the_projection_of_points_that_nobody_has_met_is_the_nearest_member(kind, data):
    """New ones in every run, see ``reference/fresh.py``."""
    check_nearest(kind, data)


def check_nearest(kind, data):
    """``p = proj(x)`` exactly when p is in C and ``(x - p).(q - p) <= 0`` for all q in C."""
    case = data.draw(cases(kind))
    x, y = data.draw(points_of(case)), data.draw(points_of(case))
    p = case.block.project(x.copy())
    assert case.violation(p) <= 1e-11 * size(x)
    for q in (*case.members, case.block.project(y.copy())):
        assert (x - p) @ (q - p) <= 1e-11 * size(x, p) * size(q, p)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(st.data())
def test_a_member_is_its_own_projection(kind, data):
    case = data.draw(cases(kind))
    for member in case.members:
        np.testing.assert_allclose(case.block.project(member.copy()), member, atol=1e-10)
    x = data.draw(points_of(case))
    p = case.block.project(x.copy())
    np.testing.assert_allclose(case.block.project(p.copy()), p, atol=1e-11 * size(x))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(st.data())
def test_the_projection_brings_no_two_points_further_apart(kind, data):
    case = data.draw(cases(kind))
    x, y = data.draw(points_of(case)), data.draw(points_of(case))
    p, q = case.block.project(x.copy()), case.block.project(y.copy())
    assert np.linalg.norm(p - q) <= np.linalg.norm(x - y) + 1e-11 * size(x, y)
    assert (p - q) @ (p - q) <= (p - q) @ (x - y) + 1e-11 * size(x, y) ** 2  # firmly


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(st.data())
def test_the_projection_changes_neither_its_point_nor_later_results(kind, data):
    """What is remembered of the last projection must not leak into the next, nor be changed through a result."""
    case = data.draw(cases(kind))
    x, y = data.draw(points_of(case)), data.draw(points_of(case))
    before = x.copy()
    p = case.block.project(x)
    np.testing.assert_array_equal(x, before)
    first = p.copy()
    case.block.project(y.copy())
    if p is not x:
        p[:] = 17.0
    np.testing.assert_allclose(case.block.project(before.copy()), first, atol=1e-11 * size(before))
    moving, expected = before.copy(), case.block.project(y.copy())
    case.block.project(moving)
    moving[:] = y
    np.testing.assert_allclose(case.block.project(moving), expected, atol=1e-11 * size(y))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(st.data())
def test_the_violation_is_the_excess_in_the_units_of_the_limit(kind, data):
    case = data.draw(cases(kind))
    x = data.draw(points_of(case))
    assert case.block.violation(x) == pytest.approx(case.violation(x), rel=1e-9, abs=1e-11 * size(x))
    for member in case.members:
        assert case.block.violation(member) <= 1e-11 * size(member)
        assert not np.any(member) or case.block.relative(member) <= 1e-8
    if np.any(x):
        assert (case.block.relative(x) > 0) == (case.block.violation(x) > 0)


def nearest_by_clarabel(words, y):
    """Steps that stop half-way to the boundary keep Clarabel from stalling at 1e-5 on curved sets."""
    move = cp.Variable(y.size)
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(move)), words(move + y))
    for tolerance, share in ((1e-14, 0.5), (1e-14, 0.7), (1e-13, 0.5), (1e-13, 0.7), (1e-12, 0.5)):
        tolerances = dict.fromkeys(["tol_feas", "tol_gap_abs", "tol_gap_rel"], tolerance)
        with contextlib.suppress(cp.error.SolverError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a solution that may be inaccurate, for missing 1e-14
            problem.solve(solver=cp.CLARABEL, max_step_fraction=share, max_iter=500, **tolerances)
            return move.value + y
    raise AssertionError("Clarabel found no solution")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_the_projection_agrees_with_clarabel(kind, seed):
    case = random_case(kind, seed)
    y = case.members[0] + (3 if seed % 2 else 1) * np.random.default_rng(100 + seed).normal(size=SIZE)
    found, expected = case.block.project(y), nearest_by_clarabel(case.cvxpy, y)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def outside(case, seed, scale=1.0):
    """A point that is not a member, and its projection."""
    rng = np.random.default_rng(200 + seed)
    for _ in range(100):
        y = case.members[0] + scale * rng.normal(size=SIZE)
        if case.violation(y) > 0.01 * scale:
            return y, case.block.project(y)
    raise AssertionError("no point outside")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", CURVED)
def test_the_way_to_the_projection_is_a_multiple_of_the_limits_gradient(kind, seed):
    """The conditions of optimality by hand, to 1e-10: ``y - z = m gradient(z)`` with m > 0, and the limit is met."""
    case = random_case(kind, seed)
    if kind.endswith("ball"):  # around zero, so that adding the center rounds nothing away
        given_ = case.block
        limit = cm.NormBall(np.zeros(SIZE), given_.radius, given_.norm.p, given_.norm.weights)
        case = Case(limit, limit.violation, [np.zeros(SIZE)], None)
    y, z = outside(case, seed)
    block, entries, count = case.block, np.eye(SIZE), np.ones(SIZE)
    if kind.startswith(("entropy", "KL")):
        if kind == "entropy of states":
            entries, count = XI, XI.sum(axis=1)
        x, r = entries @ z, block.function.reference
        push = entries @ (y - z) / count
        np.testing.assert_allclose(push[STATE] if kind == "entropy of states" else push, y - z, atol=1e-12)
        some = x > 1e-290
        if relative_entropy(np.where(r > 0, entries @ y, 0), r) <= block.bound:  # only entries below zero are moved
            np.testing.assert_allclose(x, np.where(r > 0, np.maximum(entries @ y, 0), 0), atol=1e-15)
            return
        assert relative_entropy(x, r) == pytest.approx(block.bound, abs=1e-12)
        gradient = np.log(x[some] / r[some]) + 1
        push = push[some]
    elif kind.startswith("ellipsoid"):
        Q = block.errors.axes if block.errors.basis is None else block.errors.basis
        Q = np.diag(Q) if Q.ndim == 1 else Q @ np.diag(block.errors.axes) @ Q.T
        assert block.cost @ z + np.sqrt(z @ Q @ z) == pytest.approx(block.at_most, abs=1e-12)
        gradient, push = block.cost + Q @ z / np.sqrt(z @ Q @ z), y - z
    else:
        offset = z - block.center
        p, w = block.norm.p, 1.0 if block.norm.weights is None else block.norm.weights
        size_ = np.sqrt(sum(w * offset**2)) if p == 2 else p_norm(offset, p)
        assert size_ == pytest.approx(block.radius, abs=1e-12)
        gradient, push = np.sign(offset) * np.abs(offset) ** (p - 1) * w, y - z
    m = push @ gradient / (gradient @ gradient)
    assert m >= 0
    np.testing.assert_allclose(push, m * gradient, atol=1e-10)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e3, 1e8])
def test_a_ball_and_its_points_may_have_any_scale(p, scale):
    rng = np.random.default_rng(1)
    center, y = rng.normal(size=(2, SIZE))
    for radius in (1e-3, 0.3):
        expected = cm.NormBall(center, radius, norm=p).project(y)
        found = cm.NormBall(scale * center, scale * radius, norm=p).project(scale * y)
        np.testing.assert_allclose(found / scale, expected, atol=1e-12)
        far = cm.NormBall(center, radius, norm=p).project(center + 1e6 * y)
        assert p_norm(far - center, p) == pytest.approx(radius, abs=1e-9)  # the point is rounded to 1e-10


@pytest.mark.parametrize("p", EXPONENTS)
def test_a_ball_of_one_entry_is_an_interval(p):
    np.testing.assert_allclose(cm.NormBall([2.0], 0.5, norm=p).project(np.array([9.0])), [2.5], atol=1e-14)
    np.testing.assert_allclose(cm.NormBall([2.0], 0.5, norm=p).project(np.array([-9.0])), [1.5], atol=1e-14)
    np.testing.assert_allclose(cm.NormBall([2.0], 0.5, norm=p).project(np.array([2.25])), [2.25], atol=0)


def test_entropies_and_robust_budgets_of_one_entry_are_intervals():
    """``x log x <= 0`` is ``0 <= x <= 1``; ``2 x + 3 |x| <= 1`` is ``-1 <= x <= 1/5``."""
    for x, z in [(5.0, 1.0), (1e3, 1.0), (-1.0, 0.0), (0.5, 0.5), (1.0, 1.0), (0.0, 0.0)]:
        assert cm.Entropy(0.0).project(np.array([x])) == pytest.approx(z, abs=1e-12)
        assert cm.KLBall([1.0], 0.0).project(np.array([x])) == pytest.approx(z, abs=1e-12)
    for x, z in [(5.0, 0.2), (-7.0, -1.0), (0.1, 0.1)]:
        assert cm.RobustBudget([2.0], cm.Ellipsoid([9.0]), 1.0).project(np.array([x])) == pytest.approx(z, abs=1e-12)


def test_a_ball_of_radius_zero_is_its_center():
    center = np.arange(SIZE) / 7
    for p in EXPONENTS:
        found = cm.NormBall(center, 0.0, norm=p).project(np.arange(SIZE) ** 2.0)
        np.testing.assert_allclose(found, center, atol=1e-15)


@pytest.mark.parametrize("seed", [*range(200), 2621])
def test_a_point_that_rounding_put_outside_an_entropic_limit_stays(seed):
    """Its multiplier is zero up to rounding, so that a search for it may end at zero itself, and in NaN."""
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 8)
    if seed % 2:
        limit = cm.Entropy(rng.uniform(-1, np.log(n)))
    else:
        limit = cm.KLBall(rng.dirichlet(np.ones(n)), rng.uniform(0, 1))
    p = limit.project(3 * rng.normal(size=n))
    for factor in (1.0, 1 + 1e-16, 1 + 1e-15, 1 + 1e-14):
        np.testing.assert_allclose(limit.project(factor * p), p, atol=1e-12)


# ------------------------------------------------------------------------------------------------------ large


@pytest.mark.parametrize("spoiled", ["nothing", "no reference", "as the reference", "far below zero"])
@pytest.mark.parametrize("n", [9_000, 20_000])
def test_relative_entropy_of_many_entries(n, spoiled):
    """A large point's multiplier is first sought on every hundredth entry, which may be unlike the rest."""
    rng = np.random.default_rng(2)
    reference, y = rng.dirichlet(np.ones(n)), 3 * rng.dirichlet(np.ones(n))
    if spoiled == "no reference":
        reference[::100] = 0.0
        reference /= reference.sum()
    elif spoiled == "as the reference":
        y[::100] = reference[::100]
    elif spoiled == "far below zero":
        y[::100] = -5.0
    z = cm.KLBall(reference, 0.05).project(y)
    some = reference > 0
    np.testing.assert_array_equal(z[~some], 0)
    seen = z > 1e-290
    assert np.sum(z[seen] * np.log(z[seen] / reference[seen])) == pytest.approx(0.05, rel=1e-12)
    gradient = np.log(z[seen] / reference[seen]) + 1
    m = (y - z)[seen] @ gradient / (gradient @ gradient)
    assert m > 0
    np.testing.assert_allclose((y - z)[seen], m * gradient, atol=1e-12)


def test_entropy_of_many_pairs():
    n = 30_000
    y = np.random.default_rng(3).exponential(size=n) ** 4
    y /= y.sum()
    z = cm.Entropy(np.log(n) - 0.5).project(y)
    assert -np.sum(z * np.log(z)) == pytest.approx(np.log(n) - 0.5, rel=1e-12)
    gradient = np.log(z) + 1
    m = (y - z) @ gradient / (gradient @ gradient)
    np.testing.assert_allclose(y - z, m * gradient, atol=1e-15)


@pytest.mark.parametrize("p", [1, 1.5, 3, np.inf])
def test_balls_of_many_pairs(p):
    y = np.random.default_rng(4).normal(size=50_000)
    radius = p_norm(y, p) / 3
    z = cm.NormBall(np.zeros(y.size), radius, norm=p).project(y)
    assert p_norm(z, p) == pytest.approx(radius, rel=1e-12)
    q = np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1)
    assert (y - z) @ z == pytest.approx(radius * p_norm(y - z, q), rel=1e-11)  # z is where y - z is largest


# ------------------------------------------------------------------------------------------------------ duals


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_the_dual_of_a_generic_point_is_exact(kind, seed):
    case = random_case(kind, seed)
    y, z = outside(case, seed, scale=3.0 if seed % 2 else 0.7)
    u, top = case.block.normal(case.block.dual(y, z, 3.0))
    np.testing.assert_allclose(u, 3 * (y - z), atol=1e-12)
    assert top == pytest.approx(u @ z, abs=1e-12)
    for x in np.random.default_rng(300 + seed).normal(size=(20, SIZE)):
        assert u @ case.block.project(z + x) <= top + 1e-12


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(st.data())
def test_the_dual_gives_the_normal_and_its_largest_value_over_the_set(kind, data):
    """For ``z = project(y)`` the normal is ``u = scale (y - z)``, and the largest ``u'x`` over the set is ``u'z``."""
    case = data.draw(cases(kind))
    y, scale = data.draw(points_of(case)), data.draw(st.sampled_from([0.25, 1.0, 100.0]))
    z = case.block.project(y.copy())
    u, top = case.block.normal(case.block.dual(y, z, scale))
    np.testing.assert_allclose(u, scale * (y - z), atol=1e-10 * scale * size(y))
    assert top == pytest.approx(u @ z, abs=1e-9 * scale * size(y) * size(z))
    for q in (*case.members, case.block.project(data.draw(points_of(case)).copy())):
        assert u @ q <= top + 1e-10 * scale * size(y) * size(q)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(st.data())
def test_any_dual_array_gives_a_bound_that_holds(kind, data):
    """Also one that no projection gave: a certificate is only as good as this."""
    case = data.draw(cases(kind))
    y = data.draw(points_of(case))
    honest = case.block.dual(y, case.block.project(y.copy()), 1.0)
    whole = arrays(float, honest.shape, elements=st.integers(-3, 3).map(float))
    other = data.draw(whole)
    dual = data.draw(st.sampled_from([other, honest + 0.1 * other, honest * other, np.abs(other), 1e-3 * other]))
    u, top = case.block.normal(dual)
    assert not np.isnan(top)
    for x in (*case.members, case.block.project(data.draw(points_of(case)).copy()), case.block.project(1e3 * u)):
        assert u @ x <= top + 1e-10 * size(u) * size(x)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "custom"])
def test_a_dual_of_the_wrong_size_is_refused(kind):
    case = random_case(kind, 0)
    honest = case.block.dual(case.members[0], case.members[0], 1.0)
    with pytest.raises(ValueError, match=r"entry for each|multipliers for"):
        case.block.normal(np.append(honest, 0.0))


def test_a_member_has_the_normal_zero():
    for kind in KINDS:
        case = random_case(kind, 0)
        member = case.block.project(case.members[0])
        u, top = case.block.normal(case.block.dual(member, member, 5.0))
        np.testing.assert_allclose(u, 0, atol=1e-13)
        assert top == pytest.approx(0, abs=1e-13)


def test_visits_that_are_never_allowed_are_named():
    case = kl_ball(np.array([0.5, 0.0, 0.25, 0.0, 0.25, 0.0]), 0.1)
    assert case.block.allowed.tolist() == [True, False, True, False, True, False]
    assert entropy(0.5, "states").block.allowed.tolist() == [True] * SIZE


# ------------------------------------------------------------------------------------------------------ price


def halved_square(block, y):
    return 0.5 * np.sum((y - block.project(y)) ** 2)


def change(made, at, y, h=1e-5):
    """Central difference of the least ``|x - y|^2 / 2`` with respect to a limit."""
    return (halved_square(made(at + h), y) - halved_square(made(at - h), y)) / (2 * h)


CENTER = np.array([0.1, 0.3, -0.2, 0.4, 0.0, 0.2])
SHARES = np.array([0.3, 0.1, 0.0, 0.2, 0.25, 0.15])
LIMITS = {
    **{f"{p}-ball": lambda r, p=p: cm.NormBall(CENTER, r, norm=p).bind(MODEL) for p in EXPONENTS},
    "weighted ball": lambda r: cm.NormBall(CENTER, r, weights=np.arange(1.0, 7)).bind(MODEL),
    "entropy": lambda h: cm.Entropy(h).bind(MODEL),
    "entropy of states": lambda h: cm.Entropy(h, of="states").bind(MODEL),
    "KL": lambda r: cm.KLBall(SHARES, r).bind(MODEL),
    "ellipsoid": lambda b: cm.RobustBudget(CENTER, cm.Ellipsoid(SHARES), b).bind(MODEL),
    "ellipsoid, full": lambda b: cm.RobustBudget("cost", cm.Ellipsoid(np.eye(6) + 1), b).bind(MODEL),
    "box": lambda b: cm.RobustBudget(CENTER, cm.Box(SHARES), b).bind(MODEL),
    "budget": lambda b: cm.Budget("cost", b).bind(MODEL),
    "at least": lambda b: cm.Linear(-CENTER, at_least=b).bind(MODEL),
    "equal": lambda b: cm.Linear(CENTER, equal=b).bind(MODEL),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", LIMITS)
def test_the_price_is_the_change_of_the_optimum_for_each_unit_of_the_limit(kind, seed):
    """Raising a limit from above helps, so the price is negative; raising one from below hurts."""
    y = 3 * CENTER + np.random.default_rng(seed).exponential(size=SIZE) + 1
    limit = LIMITS[kind](0.5)
    z = limit.project(y)
    price = limit.price(limit.dual(y, z, 1.0))
    assert price == pytest.approx(change(LIMITS[kind], 0.5, y), rel=1e-5, abs=1e-8)
    if kind != "equal":
        assert price * (1 if kind in ("entropy", "entropy of states", "at least") else -1) >= 0
    assert price != 0


def test_each_row_and_each_bound_has_a_price():
    rng = np.random.default_rng(0)
    rows, y, upper = rng.normal(size=(3, SIZE)), 3 * rng.normal(size=SIZE), rng.normal(size=3)
    limit = cm.Linear(rows, at_most=upper)
    prices = limit.price(limit.dual(y, limit.project(y), 1.0))
    capped = cm.Bounds(lower=np.zeros(SIZE), upper=np.full(SIZE, 0.5))
    bound_prices = capped.price(capped.dual(y, capped.project(y), 1.0))
    assert np.any(prices < 0)
    for i in range(3):
        at = np.eye(3)[i]
        expected = change(lambda h, at=at: cm.Linear(rows, at_most=upper + h * at), 0.0, y)
        assert prices[i] == pytest.approx(expected, abs=1e-7)
    for i in range(SIZE):
        expected = min(0.5 - y[i], 0) if y[i] > 0 else -y[i]  # raising the cap helps, raising the floor hurts
        assert bound_prices[i] == pytest.approx(expected, abs=1e-12)


def test_the_price_of_a_users_set_is_that_of_its_growth():
    y = np.full(SIZE, 2.0)
    block = custom().block
    z = block.project(y)
    assert block.price(block.dual(y, z, 1.0)) == pytest.approx(-np.linalg.norm(y - z), rel=1e-12)


# ------------------------------------------------------------------------------------------------- relaxation


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_a_set_relaxed_by_the_violation_of_a_point_just_holds_it(kind, seed):
    case = random_case(kind, seed)
    y = case.members[0] + np.random.default_rng(seed).uniform(0.5, 1.5, size=SIZE)  # positive where entropies are
    y = y if case.violation(y) > 0.01 else outside(case, seed)[0]
    excess = case.block.violation(y)
    if np.isinf(excess) or (kind.startswith(("entropy", "KL")) and np.min(y) < 0):
        return  # entries that are negative, or where the reference is zero, are never allowed
    assert case.block.relaxed(excess * (1 + 1e-9)).violation(y) <= 1e-8
    assert case.block.relaxed(excess * 0.99).violation(y) == pytest.approx(0.01 * excess, rel=1e-6)
    assert case.block.relaxed(0.0).violation(y) == pytest.approx(excess, rel=1e-12)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "custom"])
def test_the_ease_is_how_fast_the_support_grows(kind, seed, relative):
    case = random_case(kind, seed)
    y, z = outside(case, seed)
    dual = case.block.dual(y, z, 1.7)
    before, after = (case.block.relaxed(t, relative).normal(dual)[1] for t in (0.0, 0.3))
    assert after - before == pytest.approx(0.3 * case.block.ease(dual, relative), rel=1e-9, abs=1e-12)


def test_a_users_set_grows_by_a_distance():
    block = custom().block
    y = np.full(SIZE, 2.0)
    z = block.project(y)
    grown = block.relaxed(0.25)
    np.testing.assert_allclose(grown.project(y), z + 0.25 * (y - z) / np.linalg.norm(y - z), rtol=1e-12)
    u = y - z
    before = block.normal(block.dual(y, z, 1.0))[1]
    after = grown.normal(grown.dual(y, grown.project(y), np.linalg.norm(u) / (np.linalg.norm(u) - 0.25)))[1]
    assert after - before == pytest.approx(0.25 * block.ease(block.dual(y, z, 1.0)), rel=1e-9)


def test_limits_are_measured_by_their_size_or_their_weight():
    rows = np.array([[1.0, 2.0], [3.0, -4.0]])
    limit = cm.Linear(rows, at_most=[0.5, 0.0], at_least=[-2.0, -np.inf])
    relaxed = limit.relaxed(0.1, relative=True)
    np.testing.assert_allclose(relaxed.upper, [0.55, 0.4])  # a limit of zero counts its row's largest entry
    np.testing.assert_allclose(relaxed.lower, [-2.2, -np.inf])
    weighted = cm.Linear(rows, at_most=[0.5, 0.0], weight=3.0).relaxed(0.1, relative=True)
    np.testing.assert_allclose(weighted.upper, [0.8, 0.3])
    assert (weighted.weight, weighted.priority) == (3.0, 1)
    assert cm.NormBall(np.zeros(2), 0.2).relaxed(0.5, relative=True).radius == pytest.approx(0.3)
    np.testing.assert_allclose(cm.Bounds(upper=[0.2, 0.0]).relaxed(0.5, relative=True).upper, [0.3, 0.1])


def test_a_limit_says_itself_and_what_it_becomes():
    mdp = MODEL
    assert cm.Budget(np.ones(SIZE), at_most=0.5).bind(mdp).said(0.25) == "at most 0.75"
    assert cm.Linear(np.ones(SIZE), at_least=0.5).said(0.25) == "at least 0.25"
    assert cm.Linear(np.ones(SIZE), equal=0.5).said() == "equal to 0.5"
    assert cm.Linear(np.ones(SIZE), equal=0.5).said(0.1) == "between 0.4 and 0.6"
    assert cm.NormBall(np.zeros(SIZE), 0.5).said(0.25) == "within 0.75 of its center"
    assert cm.Entropy(at_least=1.5).bind(mdp).said(0.25) == "at least 1.25 nats"
    assert cm.KLBall(np.full(SIZE, 1 / SIZE), 0.5).bind(mdp).said(0.25) == "at most 0.75 nats"
    budget = cm.RobustBudget(np.ones(SIZE), cm.Ellipsoid(np.ones(SIZE)), at_most=0.5).bind(mdp)
    assert budget.said(0.25) == "at most 0.75 in the worst case"


# --------------------------------------------------------------------------------------------------- response


def dense(response):
    """``diag(diagonal) + factor diag(signs) factor' + more more'``, written out."""
    out = np.diag(response.diagonal)
    if response.factor is not None:
        factor = response.factor.toarray() if sp.issparse(response.factor) else np.asarray(response.factor)
        signs = np.ones(factor.shape[1]) if response.signs is None else response.signs
        out = out + factor @ np.diag(signs) @ factor.T
    return out if response.more is None else out + response.more @ response.more.T


def difference(project, y, h=1e-6):
    """``I - d project(y) / dy`` by central differences."""
    return np.eye(y.size) - np.stack([(project(y + h * e) - project(y - h * e)) / (2 * h) for e in np.eye(y.size)], 1)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "custom"])
def test_the_response_is_the_derivative_of_the_projection(kind, seed):
    case = random_case(kind, seed)
    y, z = outside(case, seed, scale=3.0 if seed % 2 else 0.7)
    found = dense(case.block.response(y, z, 1.0))
    expected = difference(case.block.project, y)
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected) + 1e-8
    assert np.linalg.eigvalsh(found).min() >= -1e-10


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("custom", "equality", "KL with zeros")])
def test_inside_a_set_nothing_is_taken_off(kind):
    """A point well inside: a wide set around it."""
    inside = {
        "entropy": np.full(SIZE, 0.4), "entropy of states": np.array([0.2, 0.1, 0.1, 0.4, 0.3, 0.1]),
        "KL": np.full(SIZE, 0.01),
    }  # fmt: skip
    rng = np.random.default_rng(0)
    wide = make(
        kind, lambda: 1.5, lambda: rng.normal(size=SIZE), lambda: rng.normal(size=(3, SIZE)), lambda: np.full(3, 2.0)
    )
    y = inside.get(kind, wide.members[0])
    found = dense(wide.block.response(y, wide.block.project(y), 1.0))
    np.testing.assert_allclose(found, 0, atol=1e-15)


def test_the_response_of_a_custom_set_is_not_known_or_right():
    y = np.ones(SIZE)
    response = custom().block.response(y, custom().block.project(y), 1.0)
    assert response is None or np.allclose(dense(response), np.full((SIZE, SIZE), 1 / SIZE), atol=1e-5)


# -------------------------------------------------------------------------------------------------- meanings


def test_a_box_of_errors_is_the_worst_case_for_every_occupancy():
    cost, widths = np.array([1.0, -2, 0, 0.5, 3, 1]), np.array([0.1, 0.2, 0.3, 0, 0.5, 0.6])
    limit = cm.RobustBudget(cost, cm.Box(widths), at_most=0.4)
    for seed in range(20):
        d = np.random.default_rng(seed).dirichlet(np.ones(SIZE))
        corners = np.array(np.meshgrid(*[[-w, w] for w in widths])).reshape(SIZE, -1)
        assert limit.bind(MODEL).violation(d) == pytest.approx(max(0, cost @ d + (corners.T @ d).max() - 0.4))
        assert cm.Box(widths).worst(d) == pytest.approx((corners.T @ d).max())


def test_one_half_width_goes_for_all_pairs():
    wide = cm.RobustBudget("cost", cm.Box(0.5), 1.0).bind(MODEL)
    np.testing.assert_allclose(wide.rows, [np.arange(1.0, 7) + 0.5])
    assert wide.name == "cost"


@pytest.mark.parametrize("form", ["diagonal", "matrix", "deficient"])
def test_the_worst_error_of_an_ellipsoid_is_reached_by_one_of_its_errors(form):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(SIZE, 2 if form == "deficient" else SIZE))
    Q = np.array([1.0, 0, 4, 9, 0.25, 0]) if form == "diagonal" else A @ A.T
    root = np.diag(np.sqrt(Q)) if form == "diagonal" else A
    d = rng.dirichlet(np.ones(SIZE))
    worst = cm.Ellipsoid(Q).worst(d)
    pull = root.T @ d
    assert worst == pytest.approx((root @ (pull / np.linalg.norm(pull))) @ d, rel=1e-12)
    for x in rng.normal(size=(50, root.shape[1])):
        assert (root @ x / np.linalg.norm(x)) @ d <= worst + 1e-12


def test_vertices_hold_for_all_their_mixtures():
    rng = np.random.default_rng(6)
    errors, d = rng.normal(size=(4, SIZE)), rng.dirichlet(np.ones(SIZE))
    limit = cm.RobustBudget("cost", cm.Vertices(errors), 1.0).bind(MODEL)
    rounding = 4 * np.finfo(float).eps  # a product adds up in an order of its own
    assert cm.Vertices(errors).worst(d) == pytest.approx(max(e @ d for e in errors), rel=rounding)
    for mixture in rng.dirichlet(np.ones(4), size=30):
        assert (np.arange(1.0, 7) + mixture @ errors) @ d - 1 <= limit.violation(d) + 1e-12
    assert limit.violation(d) == pytest.approx(max(0, max((np.arange(1.0, 7) + e) @ d - 1 for e in errors)))


def test_limits_on_some_states_by_name_and_index_leave_the_others_alone():
    mdp = cm.worlds.gridworld(size=3)
    cap = cm.StateBounds(upper={"r0c1": 0.1, 2: 0.2}, lower={"r1c1": 0.05}, name="crowd").bind(mdp)
    x = np.random.default_rng(0).uniform(size=mdp.num_pairs)
    x *= 2 / x.sum()
    visits = np.array([x[mdp.state == s].sum() for s in range(9)])
    z = cap.project(x)
    after = np.array([z[mdp.state == s].sum() for s in range(9)])
    wanted = visits.copy()
    wanted[1], wanted[2], wanted[4] = min(visits[1], 0.1), min(visits[2], 0.2), max(visits[4], 0.05)
    np.testing.assert_allclose(after, wanted, atol=1e-14)
    moved = (wanted - visits) / np.bincount(mdp.state)
    np.testing.assert_allclose(z - x, moved[mdp.state], atol=1e-14)  # evenly over a state's actions
    assert cap.name == "crowd"


@pytest.mark.parametrize("kind", ["NormBall", "KLBall"])
def test_a_policy_a_solution_and_their_occupancy_mean_the_same(kind):
    solution = cm.Problem(MODEL, "cost", [cm.Entropy(1.0)]).solve()
    made = getattr(cm, kind)
    x = np.random.default_rng(7).normal(size=SIZE)
    expected = made(MODEL.evaluate(solution.policy).occupancy, 0.1).bind(MODEL).project(x)
    for given_ in (solution.policy, solution, solution.occupancy, list(solution.occupancy)):
        np.testing.assert_allclose(made(given_, 0.1).bind(MODEL).project(x), expected, atol=1e-9)


@pytest.mark.parametrize("made", [cm.NormBall, cm.KLBall])
def test_later_changes_of_the_array_given_do_not_change_the_set(made):
    given_ = np.full(SIZE, 1 / SIZE)
    limit = made(given_, 0.01)
    x = np.eye(SIZE)[0]
    before = limit.project(x)
    given_[:] = 0.0
    np.testing.assert_array_equal(limit.project(x), before)
    np.testing.assert_array_equal(limit.bind(MODEL).project(x), before)


def test_unbound_and_bound_sets_are_the_same():
    x = np.random.default_rng(8).normal(size=SIZE)
    for made in (
        cm.Entropy(1.0),
        cm.KLBall(SHARES, 0.1),
        cm.NormBall(CENTER, 0.1, norm=3),
        cm.RobustBudget(CENTER, cm.Ellipsoid(SHARES), 0.1),
        cm.RobustBudget(None, cm.Ellipsoid(SHARES), 0.1),
        cm.RobustBudget(CENTER, cm.Box(SHARES), 0.1),
    ):
        np.testing.assert_array_equal(made.project(x), made.bind(MODEL).project(x))
        assert made.violation(x) == made.bind(MODEL).violation(x)


def test_points_may_be_lists():
    for made in (cm.Entropy(0.1), cm.KLBall([0.5, 0.5], 1.0), cm.NormBall([0.0, 0.0], 1.0), cm.Bounds(upper=1.0)):
        found = made.project([0.25, 0.5])
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, [0.25, 0.5])


# ----------------------------------------------------------------------------------------------------- scales


@pytest.mark.parametrize("unit", [1e-8, 1e-4, 1e4, 1e8])
@pytest.mark.parametrize("kind", ["linear", "diagonal", "full", "box", "no cost"])
def test_the_units_of_a_budget_do_not_matter(kind, unit):
    rng = np.random.default_rng(9)
    cost, A = rng.normal(size=SIZE), rng.normal(size=(SIZE, SIZE))
    y = np.abs(rng.normal(size=SIZE))
    made = {
        "linear": lambda s: cm.Linear([s * cost, s * A[0]], at_most=[-0.5 * s, 0.1 * s]),
        "diagonal": lambda s: cm.RobustBudget(s * cost, cm.Ellipsoid(s * s * A[0] ** 2), 0.3 * s).bind(MODEL),
        "full": lambda s: cm.RobustBudget(s * cost, cm.Ellipsoid(s * s * A @ A.T), 0.3 * s).bind(MODEL),
        "no cost": lambda s: cm.RobustBudget(None, cm.Ellipsoid(s * s * A @ A.T), 0.3 * s).bind(MODEL),
        "box": lambda s: cm.RobustBudget(s * cost, cm.Box(s * np.abs(A[0])), 0.3 * s).bind(MODEL),
    }[kind]
    one, other = made(1.0), made(unit)
    z = one.project(y)
    assert not np.array_equal(z, y)
    np.testing.assert_allclose(other.project(y), z, atol=1e-11)
    assert other.violation(y) == pytest.approx(unit * one.violation(y), rel=1e-12)
    assert other.relative(y) == pytest.approx(one.relative(y), rel=1e-9)
    dual = other.dual(y, z, 2.0)
    u, top = other.normal(dual)
    np.testing.assert_allclose(u, 2 * (y - z), atol=1e-11)
    assert top == pytest.approx(u @ z, abs=1e-11)
    np.testing.assert_allclose(other.price(dual), np.array(one.price(one.dual(y, z, 2.0))) / unit, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1e4, 1e8])
@pytest.mark.parametrize("kind", ["linear", "diagonal", "full"])
def test_points_and_limits_of_any_scale(kind, scale):
    """A cone and its shift: ``project(scale y)`` under ``scale limit`` is ``scale project(y)``."""
    rng = np.random.default_rng(10)
    cost, A, y = rng.normal(size=SIZE), rng.normal(size=(SIZE, SIZE)), 3 * rng.normal(size=SIZE)
    made = {
        "linear": lambda b: cm.Linear([cost, A[0]], at_most=[-0.5 * b, 0.1 * b]),
        "diagonal": lambda b: cm.RobustBudget(cost, cm.Ellipsoid(A[0] ** 2), 0.3 * b),
        "full": lambda b: cm.RobustBudget(cost, cm.Ellipsoid(A @ A.T), 0.3 * b),
    }[kind]
    np.testing.assert_allclose(made(scale).project(scale * y) / scale, made(1.0).project(y), atol=1e-11)


@pytest.mark.parametrize("seed", range(60))
def test_the_dual_of_a_rank_deficient_ellipsoid_is_exact(seed):
    """Eigenvalues that are zero but for rounding must not blunt the dual: it is what a proof is made of."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(SIZE, 1 + seed % 4))
    cost = None if seed % 2 else rng.normal(size=SIZE)
    limit = cm.RobustBudget(cost, cm.Ellipsoid(A @ A.T), rng.choice([0.0, 0.5])).bind(MODEL)
    for scale in (1e-3, 1.0, 1e3):
        y = scale * rng.normal(size=SIZE)
        z = limit.project(y)
        u, top = limit.normal(limit.dual(y, z, 1.0))
        np.testing.assert_allclose(u, y - z, atol=1e-12 * np.linalg.norm(y))
        assert top == pytest.approx(u @ z, abs=1e-12 * scale * max(scale, 1))


@pytest.mark.parametrize("tiny", [1e-8, 1e-16, 1e-24, 1e-32, 1e-100, 1e-300])
def test_an_ellipsoid_may_be_almost_flat(tiny):
    flat = cm.RobustBudget([0.3, 0.1, -0.2], cm.Ellipsoid([1.0, 2.0, 0.0]), 0.5)
    almost = cm.RobustBudget([0.3, 0.1, -0.2], cm.Ellipsoid([1.0, 2.0, tiny]), 0.5)
    y = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(almost.project(y), flat.project(y), atol=10 * np.sqrt(tiny) + 1e-14)


# ----------------------------------------------------------------------------------------------- linear limits


@pytest.mark.parametrize("seed", range(10))
def test_sparse_and_dense_rows_are_the_same_in_everything(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(5, 8)) * (rng.uniform(size=(5, 8)) < 0.5)
    upper, y = rng.normal(size=5), 3 * rng.normal(size=8)
    upper = np.maximum(upper, 0.0)  # zero obeys
    one, other = cm.Linear(rows, at_most=upper), cm.Linear(sp.csr_array(rows), at_most=upper)
    z = one.project(y)
    np.testing.assert_allclose(other.project(y), z, atol=1e-12)
    assert other.violation(y) == pytest.approx(one.violation(y), rel=1e-12)
    assert other.relative(y) == pytest.approx(one.relative(y), rel=1e-12)
    np.testing.assert_allclose(other.dual(y, z, 1.0), one.dual(y, z, 1.0), atol=1e-11)
    np.testing.assert_allclose(dense(other.response(y, z, 1.0)), dense(one.response(y, z, 1.0)), atol=1e-10)
    assert one.disjoint == other.disjoint
    for inside in (one, other):
        np.testing.assert_array_equal(dense(inside.response(np.zeros(8), np.zeros(8), 1.0)), 0)


@pytest.mark.parametrize("seed", range(10))
def test_disjoint_rows_are_met_as_the_general_way_meets_them(seed):
    """A row of zeros, and one that is no limit, keep the same set from the closed form."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((4, 12))
    rows[np.arange(12) % 4, np.arange(12)] = rng.normal(size=12)
    lower, upper = -rng.exponential(size=4), rng.exponential(size=4)
    lower[1], upper[2] = -np.inf, np.inf
    upper[3] = lower[3]
    quick = cm.Linear(rows, at_most=upper, at_least=lower)
    general = cm.Linear(
        np.vstack([rows, rows[0] + rows[1]]), at_most=np.append(upper, 1e6), at_least=np.append(lower, -1e6)
    )
    assert quick.disjoint
    assert not general.disjoint
    for y in 4 * rng.normal(size=(5, 12)):
        np.testing.assert_allclose(quick.project(y), general.project(y), atol=1e-10)
        value = rows @ quick.project(y)
        expected = np.clip(rows @ y, lower, upper)  # each row on its own
        np.testing.assert_allclose(value, expected, atol=1e-12)


def test_rows_that_share_a_column_only_by_a_stored_zero_are_disjoint():
    rows = sp.csr_array((np.array([1.0, 0.0, 2.0]), (np.array([0, 1, 1]), np.array([0, 0, 1]))), shape=(2, 2))
    limit = cm.Linear(rows, at_most=[1.0, 1.0])
    assert limit.disjoint
    np.testing.assert_allclose(limit.project(np.array([3.0, 3.0])), [1.0, 0.5], atol=1e-15)


def assert_nearest(rows, lower, upper, limit, y, rounding):
    """The conditions of optimality: within the limits, and pushed only by rows that are met, in their direction."""
    z, m = limit.project(y), limit.multipliers(y)
    value = rows @ z
    assert np.all(value <= upper + rounding)
    assert np.all(value >= lower - rounding)
    np.testing.assert_allclose(y - z, rows.T @ m, atol=1e-12 * size(y))
    largest = max(np.abs(m).max(), 1e-300)
    np.testing.assert_allclose(value[m > 1e-9 * largest], upper[m > 1e-9 * largest], atol=rounding)
    np.testing.assert_allclose(value[m < -1e-9 * largest], lower[m < -1e-9 * largest], atol=rounding)
    assert np.any(m != 0)


def test_thousands_of_disjoint_rows():
    rng = np.random.default_rng(11)
    n = 5000
    rows = sp.csr_array((rng.normal(size=3 * n), (np.arange(3 * n) % n, np.arange(3 * n))))
    lower, upper = -rng.exponential(size=n), rng.exponential(size=n)
    limit = cm.Linear(rows, at_most=upper, at_least=lower)
    assert_nearest(rows, lower, upper, limit, 3 * rng.normal(size=3 * n), 1e-12)


@pytest.mark.parametrize(("form", "n"), [(sp.csr_array, 500), (np.asarray, 210)])
def test_a_thousand_rows_that_overlap(form, n):
    """Caps on sums of three neighbours, each row once more in other units."""
    rng = np.random.default_rng(12)
    rows = np.eye(n) + np.roll(np.eye(n), 1, axis=1) + np.roll(np.eye(n), 2, axis=1)
    rows, upper = np.vstack([rows, 7 * rows]), np.concatenate([np.full(n, 1.0), np.full(n, 7.0)])
    lower = np.full(2 * n, -np.inf)
    limit = cm.Linear(form(rows), at_most=upper)
    assert_nearest(rows, lower, upper, limit, rng.uniform(0, 0.7, size=n), 1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_rows_given_twice_rows_of_zeros_and_implied_rows_change_nothing(seed):
    rng = np.random.default_rng(seed)
    E, y = rng.normal(size=(3, 7)), 4 * rng.normal(size=7)
    upper = rng.exponential(size=3)
    plain = cm.Linear(E, at_most=upper)
    more = np.vstack([E, E[1], 1e5 * E[2], np.zeros(7), E[0] + E[1], -E[0]])
    limits = np.concatenate([upper, upper[1:2], 1e5 * upper[2:], [0.0], [upper[0] + upper[1]], [1e3]])
    np.testing.assert_allclose(cm.Linear(more, at_most=limits).project(y), plain.project(y), atol=1e-9)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("rows", "lower", "upper"),
    [
        ([[0.0, 0.0]], [-np.inf], [-1.0]),
        ([[1.0, 0.0], [0.0, 0.0]], [-np.inf, 2.0], [0.0, 3.0]),
        ([[1.0, 1.0], [1.0, 1.0]], [-np.inf, 2.0], [1.0, np.inf]),
        ([[1.0, 1.0], [2.0, 2.0]], [1.0, 3.0], [1.0, 3.0]),
    ],
)
def test_an_empty_set_has_no_projection(form, rows, lower, upper):
    """Not a number is what the caller can tell from an answer."""
    empty = cm.Linear(form(np.array(rows)), at_most=upper, at_least=lower)
    assert np.all(np.isnan(empty.project(np.array([5.0, 3.0]))))
    assert empty.contradiction() is not None


SIX = as_mdp(random_model(0))
PAIRS = SIX.num_pairs
CONTRADICTIONS = {
    "a row of zeros at most -1": [cm.Linear(np.zeros(PAIRS), at_most=-1.0)],
    "a sparse row of zeros at most -1": [cm.Linear(sp.csr_array((1, PAIRS)), at_most=-1.0)],
    "a row of zeros at least 1, among others": [cm.Linear([np.zeros(PAIRS), np.ones(PAIRS)], at_least=[1.0, 0.0])],
    "a row of zeros equal to 2": [cm.Linear(np.zeros(PAIRS), equal=2.0), cm.Budget("risk", 10.0)],
    "two rows": [cm.Budget("risk", at_most=0.3), cm.Linear(SIX.costs["risk"], at_least=0.4)],
    "equalities": [cm.Linear([np.ones(PAIRS), 2 * np.ones(PAIRS)], equal=[1.0, 3.0])],
    "visits": [cm.StateBounds(lower={0: 0.5}), cm.StateBounds(upper={0: 0.4})],
    "too many visits of every state": [cm.StateBounds(lower=0.4)],
    "too many visits in all": [cm.StateBounds(lower={0: 0.6, 1: 0.6})],
    "a robust budget nobody can meet": [cm.RobustBudget("risk", cm.Ellipsoid(np.full(PAIRS, 0.01)), at_most=-0.1)],
    "a degradation below zero": [cm.RobustBudget(None, cm.Ellipsoid(np.ones(PAIRS)), at_most=-0.1)],
    "a worst case that is never below zero": [
        cm.RobustBudget(np.full(PAIRS, 0.01), cm.Ellipsoid(np.ones(PAIRS)), at_most=-0.1)
    ],
    "no degradation, yet below zero": [cm.RobustBudget(None, cm.Ellipsoid(np.zeros(PAIRS)), at_most=-0.1)],
    "a box nobody can meet": [cm.RobustBudget(None, cm.Box(1.0), at_most=0.5)],
    "an entropy no policy has": [cm.Entropy(np.log(6), of="states"), cm.StateBounds(upper={0: 0.01})],
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_limits_that_contradict_each_other_are_reported_as_such(kind):
    problem = cm.Problem(SIX, "cost", CONTRADICTIONS[kind])
    solution = problem.solve(time_limit=20)
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)


def test_limits_that_no_distribution_exceeds_do_not_bind():
    rows = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, -1.0], [3.0, 3.0]])
    limit = cm.Linear(rows, at_most=[2.0, 1.9, 0.0, 3.0], at_least=[1.0, 1.1, -0.5, 3.0])
    upper, lower = limit.binding()
    np.testing.assert_array_equal(upper, [np.inf, 1.9, np.inf, 3.0])
    np.testing.assert_array_equal(lower, [-np.inf, 1.1, -0.5, 3.0])
    for d in np.random.default_rng(0).dirichlet([1.0, 1.0], size=100):
        assert np.all((rows @ d <= limit.upper + 1e-12) | np.isfinite(upper))
        assert np.all((rows @ d >= limit.lower - 1e-12) | np.isfinite(lower))
    same, _ = cm.Linear(sp.csr_array(rows), at_most=limit.upper, at_least=limit.lower).binding()
    np.testing.assert_array_equal(same, upper)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_of_rows_that_are_multiples_of_each_other_the_tightest_limit_binds(kind):
    """Twice a row, its negative and a copy; a row that is only nearly the same stays."""
    row = np.random.default_rng(3).normal(size=SIZE)
    near = row * (1 + 1e-9 * np.arange(SIZE))
    rows = kind(np.stack([row, 2 * row, -row, row, near]))
    limit = cm.Linear(rows, at_most=[0.1, 0.1, np.inf, 0.2, 0.1], at_least=[-np.inf, -0.3, -0.05, -0.4, -np.inf])
    upper, lower = limit.binding()
    # row'd <= 0.1, 0.05, 0.05 (from the negative) and 0.2; row'd >= -0.15 and -0.4.  Of equal limits the first stays.
    assert upper.tolist() == [np.inf, 0.1, np.inf, np.inf, 0.1]
    assert lower.tolist() == [-np.inf, -0.3, -np.inf, -np.inf, -np.inf]


def test_a_problem_with_repeated_rows_has_the_same_optimum():
    mdp = cm.worlds.garnet(30, 4, 0.3, seed=8)
    rng = np.random.default_rng(8)
    row = rng.normal(size=mdp.num_pairs)
    low, high = (cm.Problem(mdp, sign * row).solve().value * sign for sign in (1, -1))
    single = cm.Problem(mdp, "cost", [cm.Linear(row, at_most=low + 0.2 * (high - low))]).solve()
    both = cm.Linear(np.stack([row, 3 * row, -row]), at_most=[low + 0.2 * (high - low), np.inf, -low],
                     at_least=[-np.inf, 3 * low, -np.inf])  # fmt: skip
    repeated = cm.Problem(mdp, "cost", [both]).solve()
    assert repeated.status.name == single.status.name == "OPTIMAL"
    assert repeated.value == pytest.approx(single.value, rel=3e-6)


def test_prices_of_pairs_outside_a_kl_balls_reference_do_not_blur_its_support():
    """They are large and do not enter the exponentials: an epidemic under caps stayed undecided for them."""
    mdp = as_mdp(random_model(0, states=1, actions=3))
    (ball,) = bind([cm.KLBall(np.array([0.5, 0.5, 0.0]), 0.1)], mdp, [])
    dual = np.array([-1e-9, 2e-9, 1.0, 1e-8])
    dear = np.array([-1e-9, 2e-9, 1e8, 1e-8])
    assert ball.magnitude(dear)[1] == ball.magnitude(dual)[1] <= 1e-7


def test_an_entropy_of_visits_known_but_for_a_denormal_number_is_known():
    entropy = cm.Entropy(at_least=0.5).bind(SIX)
    d = np.full(entropy.function.reference.size, 1 / entropy.function.reference.size)
    assert entropy.relative(d, Spread(np.zeros_like(d), 1e-319)) == entropy.relative(d)


@pytest.mark.parametrize("of", ["pairs", "states"])
def test_an_entropy_makes_up_for_no_more_than_next_to_nothing_in_corners_that_nothing_notices(of):
    """On a tandem queue of 40 000 states far corners lacked thousands, and the conjugate of that was infinite."""
    entropy, size = cm.Entropy(at_least=0.5, of=of).bind(SIX), SIX.num_pairs
    even = np.full(size, 1 / size)
    view = View(SIX.state, np.arange(SIX.num_states), None, size, even, even)
    entries = size if of == "pairs" else SIX.num_states
    u = entropy.function.subgradient(view, 1.0, np.full(entries, np.log(1e-200) + 1), 1.0, np.full(size, 1e4))
    np.testing.assert_allclose(u, np.log(1e-15) + 1)
    _, conjugate = entropy.normal(np.append(u, 1.0))
    assert np.isfinite(conjugate)
