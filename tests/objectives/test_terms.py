"""Every convex term: its prox, subgradient, bound and response, against definitions written by hand and Clarabel.

For ``z = prox(y, step)`` the vector ``u = (y - z) / step`` is a subgradient, and ``h(x) >= u'x - conjugate(u)`` for all
x.  All terms live on the pairs of one small model whose states offer 3, 1 and 2 actions.
"""

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import cvxmdp as cm
from cvxmdp.objectives.base import CustomTerm
from oracles import as_mdp, random_model

STATE = np.array([0, 0, 0, 1, 2, 2])
SIZE, STATES = STATE.size, 3
XI = np.eye(STATES)[STATE].T
COST = np.arange(1.0, SIZE + 1)
MODEL = as_mdp(
    {
        "state": STATE,
        "action": np.array([0, 1, 2, 0, 0, 1]),
        "P": np.random.default_rng(0).dirichlet(np.ones(STATES), size=SIZE),
        "costs": {"cost": COST},
        "initial": np.full(STATES, 1 / 3),
        "discount": 0.9,
    }
)
EXPONENTS = [1, 1.1, 1.5, 2, 3, 10, np.inf]


@dataclass
class Case:
    block: Any
    value: Any
    """By hand, infinite outside the domain."""
    domain: Any
    """Turns any point into one where the value is finite."""
    cvxpy: Any
    """(value, constraints) of a CVXPY expression."""


def relative_entropy(x, r):
    """``sum x log(x / r)``, by hand."""
    total = 0.0
    for a, b in zip(x, r, strict=True):
        total += np.inf if a < 0 or (a > 0 and b == 0) else 0.0 if a == 0 else a * np.log(a / b)
    return total


def p_norm(x, p):
    x = np.abs(np.asarray(x, dtype=float))
    if np.isinf(p):
        return x.max()
    top = x.max() or 1.0
    return top * sum((x / top) ** p) ** (1 / p)


def distance(center, weight, p):
    def words(x):
        return weight * cp.norm(x - center, "inf" if p == np.inf else p), []

    block = cm.Distance(center, weight, norm=p).bind(MODEL)
    return Case(block, lambda x: weight * p_norm(x - center, p), lambda x: x, words)


def negative_entropy(weight, of):
    entries = np.eye(SIZE) if of == "pairs" else XI

    def value(x):
        # For states, rounding in the sums of a pair and its negative is no negative visit.
        visits = entries @ x
        rounding = (np.abs(visits) < 1e-14 * np.abs(x).sum()) & (visits < 0)
        return weight * relative_entropy(np.where(rounding, 0.0, visits), np.ones(len(entries)))

    block = cm.NegativeEntropy(weight, of).bind(MODEL)
    return Case(block, value, np.abs, lambda x: (-weight * cp.sum(cp.entr(entries @ x)), []))


def kl(reference, weight):
    """Of the pairs that the reference visits.  The others are left to a constraint that comes with the term."""
    some = reference > 0

    def words(x):
        return weight * cp.sum(cp.rel_entr(x[some], reference[some])), []

    block = cm.KL(reference, weight).bind(MODEL)
    return Case(
        block,
        lambda x: weight * relative_entropy(x[some], reference[some]),
        lambda x: np.where(some, np.abs(x), x),
        words,
    )


class Squares:
    """A user's term: half the sum of squares, with a weight."""

    def __init__(self, weight=1.0):
        self.weight = weight

    def value(self, point):
        return 0.5 * self.weight * float(point @ point)

    def prox(self, point, step):
        return point / (1 + self.weight * step)


def custom(weight):
    block = CustomTerm(Squares(weight), MODEL)
    return Case(block, lambda x: weight * sum(x * x) / 2, lambda x: x, lambda x: (0.5 * weight * cp.sum_squares(x), []))


KINDS = [*(f"{p}-distance" for p in EXPONENTS), "entropy", "entropy of states", "KL", "KL with zeros", "custom"]


def make(kind, weight, vector):
    if kind.endswith("-distance"):
        return distance(vector(), weight, float(kind[:-9]))
    if kind.startswith("entropy"):
        return negative_entropy(weight, "states" if kind.endswith("states") else "pairs")
    if kind.startswith("KL"):
        shares = np.abs(vector()) + (1 if kind == "KL" else 0)
        if kind == "KL with zeros":
            shares[[1, 4]] = 0.0
        shares[0] += not shares.any()
        return kl(shares / shares.sum(), weight)
    return custom(weight)


@st.composite
def cases(draw, kind):
    return make(
        kind,
        draw(st.sampled_from([1e-4, 0.25, 1.0, 30.0])),
        lambda: draw(arrays(float, SIZE, elements=st.integers(-2, 2).map(float))),
    )


def random_case(kind, seed):
    rng = np.random.default_rng(seed)
    return make(kind, rng.uniform(0.3, 1.5), lambda: rng.normal(size=SIZE))


eighths = arrays(float, SIZE, elements=st.integers(-40, 40).map(lambda k: k / 8))
points = st.one_of(
    eighths,
    eighths.map(lambda x: 200 * x),
    eighths.map(lambda x: 1e-8 * x),
    st.sampled_from([np.zeros(SIZE), np.eye(SIZE)[1], -np.ones(SIZE), np.full(SIZE, 1 / SIZE)]),
)
steps = st.sampled_from([1e-3, 0.5, 1.0, 20.0])


def size(*vectors):
    return 1.0 + max(np.linalg.norm(v) for v in vectors)


# ------------------------------------------------------------------------------------------------------- prox


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(st.data(), points, points, steps)
def test_no_other_point_is_better_than_the_prox(kind, data, y, other, step):
    """``h(z) + |z - y|^2 / (2 step)`` is least at the prox, and by ``|x - z|^2 / (2 step)`` less than at x."""
    case = data.draw(cases(kind))
    z = case.block.prox(y.copy(), step)
    reached = case.value(z) + (z - y) @ (z - y) / (2 * step)
    assert np.isfinite(reached)
    for direction in (other - z, 1e-2 * other, 1e-4 * other, y - z, -z):
        x = case.domain(z + direction)
        better = case.value(x) + (x - y) @ (x - y) / (2 * step)
        least = reached + (x - z) @ (x - z) / (2 * step)
        assert least <= better + 1e-11 * (size(y, x) ** 2 / step + abs(reached) + abs(better))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(st.data(), points, points, steps)
def test_the_prox_brings_no_two_points_further_apart(kind, data, x, y, step):
    case = data.draw(cases(kind))
    p, q = case.block.prox(x.copy(), step), case.block.prox(y.copy(), step)
    assert np.linalg.norm(p - q) <= np.linalg.norm(x - y) + 1e-11 * size(x, y)
    assert (p - q) @ (p - q) <= (p - q) @ (x - y) + 1e-11 * size(x, y) ** 2  # firmly


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(st.data(), points)
def test_the_value_is_its_definition(kind, data, x):
    case = data.draw(cases(kind))
    x = case.domain(x)
    assert case.block.value(x) == pytest.approx(case.value(x), rel=1e-12, abs=1e-12 * size(x))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(st.data(), points, steps)
def test_the_prox_leaves_its_point_alone(kind, data, y, step):
    case = data.draw(cases(kind))
    before = y.copy()
    case.block.prox(y, step)
    np.testing.assert_array_equal(y, before)


def prox_by_clarabel(words, y, step):
    """Steps that stop half-way to the boundary keep Clarabel from stalling at 1e-5 on curved functions."""
    move = cp.Variable(y.size)
    value, limits = words(move + y)
    problem = cp.Problem(cp.Minimize(value + cp.sum_squares(move) / (2 * step)), limits)
    for tolerance, share in ((1e-14, 0.5), (1e-14, 0.7), (1e-13, 0.5), (1e-13, 0.7), (1e-12, 0.5)):
        tolerances = dict.fromkeys(["tol_feas", "tol_gap_abs", "tol_gap_rel"], tolerance)
        with contextlib.suppress(cp.error.SolverError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a solution that may be inaccurate, for missing 1e-14
            problem.solve(solver=cp.CLARABEL, max_step_fraction=share, max_iter=500, **tolerances)
            return move.value + y
    raise AssertionError("Clarabel found no solution")


@pytest.mark.parametrize("step", [0.3, 2.0])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_the_prox_agrees_with_clarabel(kind, seed, step):
    case = random_case(kind, seed)
    y = 2 * np.random.default_rng(100 + seed).normal(size=SIZE)
    np.testing.assert_allclose(case.block.prox(y, step), prox_by_clarabel(case.cvxpy, y, step), atol=1e-8)


@pytest.mark.parametrize("step", [1e-8, 1e-4, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("kind", ["entropy", "entropy of states", "KL", "KL with zeros"])
def test_the_prox_of_an_entropy_solves_its_equation_for_any_step(kind, step):
    """By hand, since Clarabel does not reach it: ``z + step weight n (log(z / r) + 1) = y`` for each entry."""
    rng = np.random.default_rng(1)
    case = random_case(kind, 1)
    entries = XI if kind == "entropy of states" else np.eye(SIZE)
    r = case.block.function.reference
    if kind == "KL with zeros":
        entries = entries[[0, 2, 3, 5]]
    for scale in (1e-6, 1.0, 1e3):
        y = scale * rng.normal(size=SIZE)
        z = case.block.prox(y, step)
        x, given_ = entries @ z, entries @ y
        m = step * case.block.weight * entries.sum(axis=1)
        if kind != "entropy of states":  # a sum of pairs that cancel is no small visit
            seen = x > 1e-290
            left = x[seen] + m[seen] * (np.log(x[seen] / r[seen]) + 1)
            np.testing.assert_allclose(left, given_[seen], atol=1e-12 * (scale + m.max() * 1e3))
            assert np.all(given_[~seen] < -300 * m[~seen])
        else:
            np.testing.assert_allclose((y - z), ((given_ - x) / entries.sum(axis=1))[STATE], atol=1e-12 * scale)
            expected = cm.NegativeEntropy(1.0).bind(as_mdp(random_model(0, states=1, actions=1)))
            for s in range(STATES):
                alone = expected.prox(given_[s : s + 1], m[s])  # one entry at a time, proven above
                assert x[s] == pytest.approx(alone[0], abs=1e-12 * max(scale, 1))


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_a_distance_may_have_any_scale(p, scale):
    rng = np.random.default_rng(2)
    center, y = rng.normal(size=(2, SIZE))
    one = cm.Distance(center, 0.3, norm=p).bind(MODEL).prox(y, 1.0)
    other = cm.Distance(scale * center, 0.3 * scale, norm=p).bind(MODEL).prox(scale * y, 1.0)
    np.testing.assert_allclose(other / scale, one, atol=1e-12)
    heavy = cm.Distance(center, 0.3 * scale, norm=p).bind(MODEL).prox(y, 1 / scale)
    np.testing.assert_allclose(heavy, one, atol=1e-12)


@pytest.mark.parametrize("p", EXPONENTS)
def test_a_point_near_the_center_goes_there(p):
    """Where ``|y - center|`` in the dual norm is at most ``step weight``, the prox is the center itself."""
    center = np.arange(SIZE) / 7
    term = cm.Distance(center, 2.0, norm=p).bind(MODEL)
    offset = np.random.default_rng(3).normal(size=SIZE)
    offset /= p_norm(offset, np.inf if p == 1 else 1.0 if p == np.inf else p / (p - 1))
    np.testing.assert_allclose(term.prox(center + 0.999 * offset, 0.5), center, atol=1e-14)
    assert np.linalg.norm(term.prox(center + 1.1 * offset, 0.5) - center) > 1e-4
    np.testing.assert_allclose(term.prox(center.copy(), 0.5), center, atol=0)


# ------------------------------------------------------------------------------------------------------ duals


@pytest.mark.parametrize("step", [0.3, 2.0])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_the_dual_of_a_generic_point_is_exact(kind, seed, step):
    case = random_case(kind, seed)
    y = 2 * np.random.default_rng(300 + seed).normal(size=SIZE)
    z = case.block.prox(y, step)
    u, top = case.block.normal(case.block.dual(y, z, 1 / step))
    np.testing.assert_allclose(u, (y - z) / step, atol=1e-12)
    assert top == pytest.approx(u @ z - case.value(z), abs=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(st.data(), points, points, steps)
def test_the_dual_gives_the_subgradient_and_its_conjugate(kind, data, y, other, step):
    """``u = (y - z) / step``, ``conjugate(u) = u'z - h(z)``, and ``h(x) >= u'x - conjugate(u)``."""
    case = data.draw(cases(kind))
    z = case.block.prox(y.copy(), step)
    u, top = case.block.normal(case.block.dual(y, z, 1 / step))
    np.testing.assert_allclose(u, (y - z) / step, atol=1e-11 * size(y) / step)
    assert top == pytest.approx(u @ z - case.value(z), abs=1e-10 * (size(y, z) ** 2 / step + abs(case.value(z))))
    for x in (case.domain(other), case.domain(z + other), case.domain(0 * z)):
        assert case.value(x) >= u @ x - top - 1e-10 * (size(x) * size(u) + abs(top) + abs(case.value(x)))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(st.data())
def test_any_dual_array_gives_a_bound_that_holds(kind, data):
    """Also one that no prox gave: a certificate is only as good as this."""
    case = data.draw(cases(kind))
    y, step = data.draw(points), data.draw(steps)
    z = case.block.prox(y.copy(), step)
    honest = case.block.dual(y, z, 1 / step)
    other = data.draw(arrays(float, honest.shape, elements=st.integers(-3, 3).map(float)))
    dual = data.draw(st.sampled_from([other, honest + 0.1 * other, honest * other, 30 * other]))
    u, top = case.block.normal(dual)
    assert not np.isnan(top)
    for x in (data.draw(points), z, data.draw(points) + z):
        x = case.domain(x)
        value = case.value(x)
        assert value >= u @ x - top - 1e-10 * (size(x) * size(u) + abs(value))


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "custom"])
def test_a_dual_of_the_wrong_size_is_refused(kind):
    case = random_case(kind, 0)
    honest = case.block.dual(np.ones(SIZE), case.block.prox(np.ones(SIZE), 1.0), 1.0)
    with pytest.raises(ValueError, match="entry for each"):
        case.block.normal(np.append(honest, 0.0))


def test_a_subgradient_longer_than_the_weight_is_cut_to_it():
    """Uncut its conjugate would be infinite, and the bound minus infinity."""
    u, top = cm.Distance(np.ones(SIZE), 2.0, norm=1).bind(MODEL).normal(np.array([5.0, 1, 0, 0, 0, -4]))
    np.testing.assert_allclose(u, np.array([5.0, 1, 0, 0, 0, -4]) * 2 / 5)
    assert top == pytest.approx(u.sum())


def test_pairs_a_reference_never_visits_are_forbidden_by_a_constraint():
    reference = np.array([0.5, 0.0, 0.25, 0.0, 0.25, 0.0])
    assert cm.KL(reference).bind(MODEL).allowed.tolist() == [True, False, True, False, True, False]
    assert cm.NegativeEntropy(of="states").bind(MODEL).allowed is None
    assert cm.Distance(reference).bind(MODEL).allowed is None
    problem = cm.Problem(MODEL, "cost" + cm.KL(reference, name="tutor"))
    (limit,) = problem.constraints
    assert limit.violation(np.array([0.5, 0.2, 0, 0, 0.3, 0])) == pytest.approx(0.2)
    assert limit.violation(np.array([0.5, 0, 0.2, 0, 0.3, 0])) == 0
    assert "tutor" in limit.name
    assert not cm.Problem(MODEL, "cost" + cm.KL(D)).constraints


# --------------------------------------------------------------------------------------------------- response


def dense(response):
    """``diag(diagonal) + factor diag(signs) factor'``, written out."""
    out = np.diag(response.diagonal)
    if response.factor is not None:
        factor = response.factor.toarray() if sp.issparse(response.factor) else np.asarray(response.factor)
        signs = np.ones(factor.shape[1]) if response.signs is None else response.signs
        out = out + factor @ np.diag(signs) @ factor.T
    return out


@pytest.mark.parametrize("step", [0.1, 0.7])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "custom"])
def test_the_response_is_the_derivative_of_the_prox(kind, seed, step):
    case = random_case(kind, seed)
    y, h = 2 * np.random.default_rng(200 + seed).normal(size=SIZE), 1e-6
    found = dense(case.block.response(y, case.block.prox(y, step), step))
    slopes = [(case.block.prox(y + h * e, step) - case.block.prox(y - h * e, step)) / (2 * h) for e in np.eye(SIZE)]
    expected = np.eye(SIZE) - np.stack(slopes, axis=1)
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected) + 1e-8
    assert np.linalg.eigvalsh(found).min() >= -1e-10


def test_the_response_of_a_custom_term_is_not_known_or_right():
    response = custom(0.8).block.response(np.ones(SIZE), np.ones(SIZE) / 1.4, 0.5)
    assert response is None or np.allclose(dense(response), np.eye(SIZE) * 0.4 / 1.4, atol=1e-5)


# ------------------------------------------------------------------------------------------------- objectives

D = np.full(SIZE, 1 / SIZE)


def term(name="near"):
    return cm.Distance(D, 0.5, name=name)


def user():
    return Squares()


OBJECTIVES = {
    "a name": (lambda: "cost", COST, []),
    "a vector": (lambda: 2 * COST, 2 * COST, []),
    "a list of numbers": (lambda: [1, 2.0, 3, 4, 5, 6], COST, []),
    "a tuple of numbers": (lambda: (1, 2.0, 3, 4, 5, 6), COST, []),
    "a list of whole numbers of NumPy": (lambda: list(np.arange(1, 7)), COST, []),
    "a term": (term, 0 * COST, ["near"]),
    "a name and a term": (lambda: "cost" + term(), COST, ["near"]),
    "a term and a name": (lambda: term() + "cost", COST, ["near"]),
    "a vector and a term": (lambda: COST + term(), COST, ["near"]),
    "a term and a vector": (lambda: term() + COST, COST, ["near"]),
    "a list of numbers and a term": (lambda: COST.tolist() + term(), COST, ["near"]),
    "two terms": (lambda: term() + cm.KL(D, name="kl"), 0 * COST, ["near", "kl"]),
    "a name and two terms": (lambda: "cost" + term() + cm.NegativeEntropy(name="spread"), COST, ["near", "spread"]),
    "two terms and a name": (lambda: term() + cm.KL(D, name="kl") + "cost", COST, ["near", "kl"]),
    "two terms and a vector": (lambda: term() + cm.KL(D, name="kl") + COST, COST, ["near", "kl"]),
    "a name, a term and a vector": (lambda: "cost" + term() + COST, 2 * COST, ["near"]),
    "a name and a sum in brackets": (lambda: "cost" + (term() + cm.KL(D, name="kl")), COST, ["near", "kl"]),
    "a list": (lambda: ["cost", term(), COST, user()], 2 * COST, ["near", "Squares"]),
    "a list of one": (lambda: [term()], 0 * COST, ["near"]),
    "a user's term": (user, 0 * COST, ["Squares"]),
}


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_what_is_minimized_is_read_as_the_sum_of_its_parts(kind):
    minimize, cost, names = OBJECTIVES[kind]
    problem = cm.Problem(MODEL, minimize())
    np.testing.assert_array_equal(problem.cost, cost)
    assert [term.name for term in problem.terms] == names
    d = np.random.default_rng(4).dirichlet(np.ones(SIZE))
    by_hand = {
        "near": 0.5 * np.linalg.norm(d - D), "kl": relative_entropy(d, D),
        "spread": relative_entropy(d, np.ones(SIZE)), "Squares": d @ d / 2,
    }  # fmt: skip
    assert sum(t.value(d) for t in problem.terms) == pytest.approx(sum(by_hand[name] for name in names), rel=1e-12)


def test_the_name_of_a_sum_lists_its_parts():
    assert cm.Problem(MODEL, "cost" + term()).objective == "cost + near"
    assert cm.Problem(MODEL, [term(), COST]).objective == "cost + near"


def test_adding_a_term_leaves_both_summands_as_they_were():
    first, parts = term(), ["cost"]
    total = parts + first
    assert parts == ["cost"]
    assert total == ["cost", first]
    again = first + parts
    assert again == [first, "cost"]


def test_a_policy_a_solution_and_their_occupancy_mean_the_same():
    solution = cm.Problem(MODEL, "cost", [cm.Entropy(1.0)]).solve()
    x = np.abs(np.random.default_rng(7).normal(size=SIZE))
    occupancy = MODEL.evaluate(solution.policy).occupancy
    for made in (cm.Distance, cm.KL):
        expected = made(occupancy).bind(MODEL)
        for given_ in (solution.policy, solution, list(solution.occupancy)):
            np.testing.assert_allclose(made(given_).bind(MODEL).prox(x, 0.3), expected.prox(x, 0.3), atol=1e-9)


def test_later_changes_of_the_array_given_do_not_change_the_term():
    for made in (cm.Distance, cm.KL):
        given_ = np.full(SIZE, 1 / SIZE)
        mine = made(given_)
        before = mine.bind(MODEL).value(np.eye(SIZE)[0])
        given_[:] = 0.0
        assert mine.bind(MODEL).value(np.eye(SIZE)[0]) == before


class Careless(Squares):
    """Computes its prox in the array it was given, as in-place NumPy code does."""

    name = "careless"

    def prox(self, point, step):
        point /= 1 + step
        return point


def test_a_users_prox_may_work_in_place():
    """A wrong answer otherwise: the engine's own point would change under its hands."""
    block = CustomTerm(Careless(), MODEL)
    y = np.ones(SIZE)
    np.testing.assert_array_equal(block.prox(y, 1.0), 0.5)
    np.testing.assert_array_equal(y, 1.0)
    u, top = block.normal(block.dual(y, block.prox(y, 1.0), 1.0))
    np.testing.assert_array_equal(u, 0.5)
    assert top == pytest.approx(0.5 * 0.5 * SIZE - 0.5 * 0.25 * SIZE)
    assert block.name == "careless"


@pytest.mark.parametrize("kind", KINDS)
def test_a_problem_with_the_term_agrees_with_clarabel(kind):
    """Minimize ``cost'd + h(d)`` over the occupancies of a model, to the tolerance of 1e-6."""
    case = random_case(kind, 3)
    if kind.startswith("KL"):
        reference = np.full(SIZE, 1 / SIZE)
        if kind == "KL with zeros":
            reference = MODEL.evaluate(MODEL.policy([1, 0, 0])).occupancy  # some pairs only, yet all states
        case = kl(reference, 0.7)
    d = cp.Variable(SIZE)
    value, limits = case.cvxpy(d)
    if kind == "KL with zeros":
        limits = [d[reference == 0] == 0]
    flow = XI - 0.9 * MODEL.transitions.T
    dynamics = [d >= 0, flow @ d == 0.1 * np.full(STATES, 1 / 3)]
    least = cp.Problem(cp.Minimize(COST @ d + value), [*limits, *dynamics]).solve(solver=cp.CLARABEL)
    block = case.block
    if kind == "custom":
        given_ = block._term
    elif "distance" in kind:
        given_ = cm.Distance(block.center, block.weight, norm=block.norm.p)
    elif "KL" in kind:
        given_ = cm.KL(reference, block.weight)
    else:
        given_ = cm.NegativeEntropy(block.weight, of="states" if "states" in kind else "pairs")
    solution = cm.Problem(MODEL, [COST, given_]).solve(time_limit=20)
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == pytest.approx(least, rel=5e-6)
