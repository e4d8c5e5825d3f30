"""Parts of path following, each written again by its Lagrangian, which is differentiated numerically.

A part here is auxiliary unknowns t, limits ``g(d, t) <= 0`` and equations ``e(d) = 0``, and a term ``f(d, t)``.  The
engine's elimination has to give Newton's step on the conditions of optimality, which is found by a dense solve.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvxmdp.barriers import (
    BoxPart,
    Caps,
    Cone,
    Curve,
    Largest,
    Powers,
    Quadratic,
    RelativeEntropy,
    RowsPart,
    Smooth,
    View,
)
from cvxmdp.dynamics.normal import Pattern
from cvxmdp.engines.path import GROUND_WEIGHT, Point
from cvxmdp.engines.path_program import Program
from engine_oracles import interior_occupancy
from oracles import flow_matrix, inflow, random_model

NOTHING = np.zeros(0)


@pytest.fixture(autouse=True)
def quiet():
    """As in a solve."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        yield


def none(*_):
    return NOTHING


@dataclass(frozen=True)
class Case:
    """A part, and what it means."""

    part: Any
    limits: Callable = none
    equal: Callable = none
    term: Callable = lambda d, t: 0.0
    num_t: int = 0
    t_is: str = ""
    """Where the part keeps t: "free", or "slack" (its first)."""


def make_view(model):
    d = interior_occupancy(model, 11)
    owner = model["state"]
    return View(owner, np.arange(model["P"].shape[1]), None, d.size, d.copy(), d)


def build(name, model, view, rng):
    """Limits near the occupancy of a random policy, inside and outside."""
    d, n, S = view.d, view.d.size, view.num_states
    center = interior_occupancy(model, 12)
    center[[1, 3]] = 0.0
    Xi = np.eye(S)[model["state"]].T
    if name.startswith("rows"):
        E = rng.normal(size=(4, n))
        upper, lower = E @ d + np.array([0.3, 0.2, np.inf, 0.0]), E @ d - np.array([np.inf, 0.4, 0.1, 0.0])
        if name == "rows with an equality":
            upper[3] = lower[3] = (E @ d)[3] + 0.01
        else:
            upper[3], lower[3] = 0.0, -np.inf
        part = RowsPart(view, E, upper, lower)
        of_row = E / part.sizes[:, None]
        up, down, equal = np.isfinite(upper) & (upper != lower), np.isfinite(lower) & (upper != lower), upper == lower
        high, low = upper / part.sizes, lower / part.sizes
        return Case(
            part,
            lambda x, t: np.concatenate([(of_row @ x - high)[up], (low - of_row @ x)[down]]),
            lambda x: (of_row @ x - high)[equal],
        )
    if name.startswith(("caps", "box")):
        if name.startswith("caps"):
            states = np.arange(S - 1)
            M = Xi[states]
        else:
            M = np.eye(n)
        visits = M @ d
        upper, lower = visits * rng.uniform(1.1, 2.0, visits.size), visits * rng.uniform(0.2, 0.9, visits.size)
        upper[0], lower[1] = np.inf, -np.inf
        if "equality" in name:
            upper[2] = lower[2] = 1.1 * visits[2]
        part = Caps(view, states, upper, lower) if name.startswith("caps") else BoxPart(view, upper, lower)
        up, down, equal = np.isfinite(upper) & (upper != lower), np.isfinite(lower) & (upper != lower), upper == lower
        return Case(
            part,
            lambda x, t: np.concatenate([(M @ x - upper)[up], (lower - M @ x)[down]]),
            lambda x: (M @ x - upper)[equal],
        )
    if "ball" in name and "norm" not in name:
        w = rng.uniform(0.5, 2.0, n) if "weighted" in name else 1.0
        radius = 0.7 * np.linalg.norm(d - center)
        part = Curve(view, Quadratic(center, w, radius))
        return Case(part, lambda x, t: np.array([(np.sum(w * (x - center) ** 2) / radius**2 - 1) / 2]))
    if "entropy" in name or name.startswith("KL"):
        of_states = "states" in name
        reference = interior_occupancy(model, 13) if name.startswith("KL") else np.ones(S if of_states else n)

        def entropic(x, bound, unit):
            x = Xi @ x if of_states else x
            return (np.sum(x * np.log(x / reference)) - bound) / unit

        if "term" in name:
            weight = 0.3
            part = Smooth(view, RelativeEntropy(view, reference, 0.0, 1.0, of_states), weight)
            return Case(part, term=lambda x, t: weight * entropic(x, 0.0, 1.0))
        bound = entropic(d, 0.0, 1.0) - 0.05
        unit = abs(bound)
        part = Curve(view, RelativeEntropy(view, reference, bound, unit, of_states))
        return Case(part, lambda x, t: np.array([entropic(x, bound, unit)]))
    if name.startswith("cone"):
        factor = rng.normal(size=(n, 3)) if "full" in name else rng.uniform(0.2, 1.5, n)
        Q = factor @ factor.T if "full" in name else np.diag(factor)
        middle = center if "term" in name else 0.0
        cost = rng.uniform(size=n)
        bound = 1.1 * float(cost @ d + np.sqrt(d @ Q @ d))
        limit, weight = (None, 0.4) if "term" in name else ((cost, bound), 0.0)
        part = Cone(view, middle, factor, limit, weight)
        first = 1.1 * np.sqrt((d - middle) @ Q @ (d - middle))

        def limits(x, t):
            y = x - middle
            found = [-t[0], (y @ Q @ y / t[0] - t[0]) / (2 * first)]
            return np.array(found if limit is None else [*found, (cost @ x + t[0] - bound) / abs(bound)])

        return Case(part, limits, term=lambda x, t: weight * t[0], num_t=1, t_is="slack")
    if name.startswith("powers"):
        p = {"powers 1": 1.0, "powers 1.5": 1.5, "powers 3": 3.0}.get(name, 1.0)
        weight = 0.4 if "term" in name else None
        radius = 1.0 if weight else 0.8 * np.linalg.norm(d - center, p)
        part = Powers(view, center, p, radius, weight or np.nan)
        both, single = center > 0, center <= 0

        def total(x, t):
            return np.sum((t / radius) ** p) / p + np.sum((x[single] / radius) ** p) / p

        def powers_limits(x, t):
            y = (x - center)[both]
            sides = [y - t, -y - t]
            return np.concatenate(sides if weight else [*sides, [total(x, t) - 1 / p]])

        term = (lambda x, t: weight * total(x, t)) if weight else (lambda x, t: 0.0)
        return Case(part, powers_limits, term=term, num_t=int(both.sum()), t_is="free")
    assert name == "largest term"
    return Case(
        Largest(view, center, 0.4),
        lambda x, t: np.concatenate([x - center - t[0], center - x - t[0]]),
        term=lambda x, t: 0.4 * t[0],
        num_t=1,
        t_is="free",
    )


NAMES = [
    "rows", "rows with an equality", "caps", "caps with an equality", "box", "box with an equality", "ball",
    "weighted ball", "entropy", "entropy of states", "KL", "entropy term", "entropy of states term", "KL term",
    "cone", "cone, full", "cone term", "powers 1", "powers 1.5", "powers 3", "powers term", "largest term",
]  # fmt: skip
MIXTURES = [
    ("rows", "ball"),
    ("caps", "KL"),
    ("caps with an equality", "entropy of states term", "rows with an equality"),
    ("box", "powers 1", "cone term"),
    ("powers 3", "largest term", "cone, full", "entropy of states"),
]


def by_complex_step(f, x):
    """The derivatives of a function of x, exact to rounding: one row for each entry of x."""
    steps = np.eye(x.size) * 1e-30j
    return np.array([np.imag(f(x + step)) / 1e-30 for step in steps]).reshape(x.size, *np.shape(f(x)))


class ByHand:
    """The conditions of optimality of some parts over a model, as one function of one long vector."""

    def __init__(self, model, cases, c, ground):
        self.model, self.cases, self.c, self.ground = model, cases, c, ground
        self.A, self.q = flow_matrix(model), inflow(model)

    def pack(self, point):
        found = [point.d, point.Z[: point.num], point.V, [point.level]]
        for case, s, f in zip(self.cases, point.of_part, point.of_free, strict=True):
            slack, free = point.X[s], point.free[f]
            t = {"free": free, "slack": slack[:1], "": NOTHING}[case.t_is]
            found += [slack, point.Z[s], t, free if case.t_is == "" else NOTHING]
        return np.concatenate(found)

    def sizes(self):
        for case in self.cases:
            k = case.part.weights.size
            yield k, k, case.num_t, case.part.num_free if case.t_is == "" else 0

    def unpack(self, u):
        n, S = self.c.size, self.q.size
        d, z, V, level, rest = np.split(u, np.cumsum([n, n, S, 1]))
        parts = []
        for sizes in self.sizes():
            *mine, rest = np.split(rest, np.cumsum(sizes))
            parts.append(mine)
        return d, z, V, level[0], parts

    def forces(self, u):
        d, *_, parts = self.unpack(u)
        return [
            by_complex_step(lambda x, c=case, p=part: self.lagrangian(c, x, *p), d)
            for case, part in zip(self.cases, parts, strict=True)
        ]

    @staticmethod
    def lagrangian(case, d, s, m, t, free):
        return case.term(d, t) + np.sum(m * case.limits(d, t)) + np.sum(free * case.equal(d))

    def residuals(self, u):
        """All but the products; flow out of the grounded state is left to the total, its value stays."""
        d, z, V, level, parts = self.unpack(u)
        forces = sum(self.forces(u), np.zeros_like(d))
        flow = self.A @ d - self.q
        flow[self.ground] = d.sum() - 1
        found = [self.c + forces - self.A.T @ V - level - z, flow, [V[self.ground] - self.held]]
        for case, (s, m, t, free) in zip(self.cases, parts, strict=True):
            found.append(case.limits(d, t) + s)
            found.append(case.equal(d))
            if case.num_t:
                found.append(by_complex_step(lambda y, c=case, p=(s, m, free): c_of(c, d, y, *p), t))
        return np.concatenate(found)

    def products(self, u):
        d, z, *_, parts = self.unpack(u)
        return np.concatenate([d * z, *(s * m for s, m, _, _ in parts)])

    def step(self, point, aims, full):
        """Newton's, by central differences and a dense solve."""
        u = self.pack(point)
        self.held = point.V[self.ground]
        rates = []
        for i, size in enumerate(np.maximum(np.abs(u), 1e-8)):
            h = np.zeros_like(u)
            h[i] = 1e-5 * size
            rates.append((self.residuals(u + h) - self.residuals(u - h)) / (2 * h[i]))
        d, z, _, _, parts = self.unpack(u)
        J, n = np.array(rates).T, d.size
        rows, at, k = np.zeros((aims.size, u.size)), 2 * n + self.q.size + 1, n
        rows[:n, :n], rows[:n, n : 2 * n] = np.diag(z), np.diag(d)
        for s, m, t, free in parts:
            here = slice(k, k + s.size)
            rows[here, at : at + s.size], rows[here, at + s.size : at + 2 * s.size] = np.diag(m), np.diag(s)
            at, k = at + 2 * s.size + t.size + free.size, k + s.size
        whole = np.vstack([J, rows])
        right = np.concatenate([-full * self.residuals(u), aims - full * self.products(u)])
        assert whole.shape[0] == whole.shape[1]
        # In units of the unknowns and of the equations, so that little is lost.
        columns = np.maximum(np.abs(u), 1e-8)
        scaled = whole * columns
        sizes = np.abs(scaled).max(axis=1)
        return columns * np.linalg.solve(scaled / sizes[:, None], right / sizes)


def c_of(case, d, t, s, m, free):
    return ByHand.lagrangian(case, d, s, m, t, free)


def make_point(names, seed, late):
    """Parts at a random point inside: near the middle, or late, where of each product one factor is small."""
    model = random_model(seed % 7, states=5, actions=3, ragged=bool(seed % 2))
    rng, view = np.random.default_rng(seed), make_view(model)
    cases = [build(name, model, view, rng) for name in names]
    n, S = view.d.size, view.num_states
    c = rng.uniform(size=n)
    task = SimpleNamespace(
        c=c,
        dynamics=SimpleNamespace(gamma=model["discount"]),
        unconstrained=SimpleNamespace(V=rng.normal(size=S)),
    )
    pattern = Pattern.of(model["P"], view.owner, S, model["discount"])
    program = Program(task, view, pattern, 1.0, inflow(model), 1.0, 1.0)
    program.parts = [case.part for case in cases]
    point = Point(program)
    point.X *= rng.uniform(0.7, 1.4, point.X.size)
    point.Z *= rng.uniform(0.5, 2.0, point.Z.size)
    if late:
        small = rng.random(point.X.size) < 0.5
        small[:n] = False
        for case, s in zip(cases, point.of_part, strict=True):
            if case.t_is == "slack":
                small[s.start] = False
        point.X *= np.where(small, 0.01, 1.0)
        point.Z *= np.where(small, 1.0, 0.1)
    point.free *= rng.uniform(0.8, 1.2, point.free.size)
    for case, f in zip(cases, point.of_free, strict=True):
        if case.t_is == "":
            point.free[f] = rng.normal(size=point.free[f].size)
    point.V[:], point.level = rng.normal(size=S), 0.3
    return point, ByHand(model, cases, c, point.ground), rng


def changes(point, move):
    """What a move changes, as a point."""
    _, X, Z, V, free, rest = np.split(move, np.cumsum([point.X.size] * 3 + [point.V.size, point.free.size]))
    return SimpleNamespace(
        d=X[: point.num], X=X, Z=Z, V=V, level=-rest[0], free=free, num=point.num, of_part=point.of_part,
        of_free=point.of_free,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_part_begins_inside(name):
    model = random_model(1, states=5, actions=3)
    view = make_view(model)
    case = build(name, model, view, np.random.default_rng(0))
    s, m, free = case.part.start(view.d, 0.1)
    assert s.shape == m.shape == case.part.weights.shape
    assert free.size == case.part.num_free
    assert np.all(s > 0)
    assert np.all(m > 0)
    assert np.all(case.part.weights > 0)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), late=st.booleans())
def test_the_force_is_the_derivative_of_the_lagrangian(name, seed, late):
    point, by_hand, _ = make_point([name], seed, late)
    point.linearize()
    (expected,) = by_hand.forces(by_hand.pack(point))
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(by_hand.cases[0].part.force, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("names", [(name,) for name in NAMES] + MIXTURES, ids=" + ".join)
@pytest.mark.parametrize(("seed", "late"), [(0, False), (3, True)])
def test_a_move_is_newtons_step_by_a_dense_solve(names, seed, late):
    point, by_hand, rng = make_point(names, seed, late)
    point.linearize()
    assert point.core.factor(GROUND_WEIGHT)
    u = by_hand.pack(point)
    for aims, full in ((np.zeros_like(point.X), 1.0), (rng.normal(size=point.X.size) * point.X * point.Z, 0.0)):
        expected = by_hand.step(point, aims, full)
        once, refined = point.move(aims, full), point.move(aims, full)
        point.core.refine(refined, full)
        for moved in (changes(point, once), changes(point, refined)):
            error = (by_hand.pack(moved) - expected) / np.maximum(np.abs(u), 1e-8)
            assert np.abs(error).max() <= 1e-5 * np.abs(expected / np.maximum(np.abs(u), 1e-8)).max()


@pytest.mark.parametrize("names", [("rows", "caps"), ("box", "rows with an equality"), ("caps with an equality",)])
def test_a_full_step_to_linear_parts_obeys_all_equations(names):
    """Whatever was missing before: flow, total, balance and limits are linear in all unknowns."""
    point, by_hand, _ = make_point(names, 5, False)
    point.linearize()
    assert min(abs(point.lacking), np.abs(point.missing).max(), np.abs(point.off).max()) > 1e-3
    assert point.core.factor(GROUND_WEIGHT)
    by_hand.held = point.V[point.ground]
    point.level += point.core.advance(point.move(0.0, 1.0), 1.0, 1.0)
    np.testing.assert_allclose(by_hand.residuals(by_hand.pack(point)), 0.0, atol=1e-7)
    point.linearize()
    assert max(abs(point.lacking), np.abs(point.missing).max(), np.abs(point.off).max()) <= 1e-7


@pytest.mark.parametrize("name", NAMES)
def test_what_is_open_is_nothing_where_a_parts_equations_hold_and_something_where_they_do_not(name):
    point, by_hand, _ = make_point([name], 8, False)
    case = by_hand.cases[0]
    d, s, f = point.d, point.of_part[0], point.of_free[0]
    t = {"free": point.free[f], "slack": point.X[s][:1], "": NOTHING}[case.t_is]
    left = -case.limits(d, t)
    if left.size == 0:  # a smooth term has no equations
        point.linearize()
        assert point.core.opens() == [0.0]
        return
    begins = 1 if case.t_is == "slack" else 0  # t itself stays
    slacks = np.maximum(left, 1e-3)
    point.X[s][begins:] = slacks[begins:]
    point.linearize()
    wrong = np.any(left[begins:] < 1e-3) or case.equal(d).size > 0
    assert (point.core.opens()[0] > 1e-9) == bool(wrong)
    assert np.isfinite(point.core.opens()[0])
    point.X[s][begins:] *= 1.5
    point.linearize()
    assert 1e-9 < point.core.opens()[0] < np.inf
