"""Random problems of every kind, each written twice: for cvxmdp, and for CVXPY from the definitions alone.

A limit is a vector of convex functions ``g(d) <= b``.  Its bounds are placed relative to two occupancies: ``d0``, the
cheapest, and ``dr``, one in the interior.  With ``b`` between ``g(dr)`` and ``g(d0)`` a limit is *active*, beyond both
*inactive*.  For *infeasible* problems ``b = g(dr) + offset + t step`` for all limits at once, with a t clearly below
the least one at which an occupancy is left, which CVXPY finds.
"""

import functools
import itertools
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import cvxmdp as cm
from oracles import flow_matrix, inflow, lp_optimum, occupancy, owner_matrix, random_model, random_policy

Array = np.ndarray
DISCOUNTS = (0.5, 0.9, 0.99)
CLEAR = 1e-3
"""By how much, relatively, every infeasible problem exceeds some limit."""
TOLERANCE = 1e-6
"""Of cvxmdp."""
ACCURATE = 2e-7
"""Of the other solvers, relative to the same scale."""
TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11, "tol_ktratio": 1e-9}
LOOSE = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
PLAIN: dict[str, float] = {}
"""Its own, 1e-8, still a tenth of what answers are compared to: how far it gets depends on the machine."""


@dataclass
class World:
    """A model with its two occupancies, and the source of all random numbers of a case."""

    rng: np.random.Generator
    model: dict[str, Any]
    mdp: cm.MDP
    d0: Array
    dr: Array
    taken: Array
    """Which pairs the policy of ``dr`` takes."""
    mode: str
    alone: bool
    """Whether the case has one limit only."""

    @property
    def pairs(self) -> int:
        return self.dr.size

    @functools.cached_property
    def owner(self) -> Array:
        return owner_matrix(self.model)

    def another(self) -> Array:
        """The occupancy of another policy that takes the same actions."""
        pi = random_policy(self.model, int(self.rng.integers(1 << 30))) * self.taken
        return occupancy(self.model, pi / np.bincount(self.model["state"], pi)[self.model["state"]])

    def off(self, center: Array) -> Array:
        """A distribution near an occupancy that is none itself."""
        moved = center * self.rng.uniform(0.3, 1.7, size=center.size)
        return moved / moved.sum()

    def some(self, mass: Array) -> Array:
        """About half of the entries, at least one, among those that are visited."""
        visited = np.flatnonzero(mass > 1e-5)
        return np.sort(self.rng.choice(visited, size=max(1, visited.size // 2), replace=False))


@dataclass
class Limit:
    """``g(d) <= b``, and where an equality is meant ``rows @ d == target``."""

    make: Callable[[Array], Any]
    """The constraint of cvxmdp with these bounds."""
    g: Callable[[Any], Any]
    """The functions, of an expression of CVXPY."""
    step: Array
    """What counts as a large change of each bound."""
    size: Callable[[Array], Any] = lambda d: 0.0
    """What a violation is relative to, where that is larger than the bound."""
    floor: bool = False
    """Whether only bounds above ``g(dr) + offset - step`` mean something."""
    offset: Any = 0.0
    """Infeasible problems start from ``g(dr) + offset``."""
    equal: tuple[Any, Array] | None = None
    bounds: Array = field(default_factory=lambda: np.zeros(0))

    def at(self, d: Array) -> Array:
        """The functions at a point."""
        return np.zeros(0) if self.step.size == 0 else np.atleast_1d(self.g(cp.Constant(d)).value)


@dataclass
class Summand:
    """A convex term of the objective."""

    term: Any
    value: Callable[[Any], Any]
    size: Callable[[Array], float]
    """The absolute values of what the term is a sum or difference of: its share in what the gap is relative to."""


# Constraints, one function a kind -------------------------------------------------------------------------------------


def flat(G: Any, make: Callable[[Array], Any], world: World, share: float = 0.5) -> Limit:
    """Rows ``G d <= b``."""
    sizes = np.maximum(abs(G) @ world.dr, 1e-6)
    return Limit(make, lambda d: G @ d, share * sizes, lambda d: np.maximum(abs(G) @ d, 1e-6))


def turned(world: World, e: Array) -> Array:
    """The row with the sign for which d0 is beyond dr."""
    return e if e @ world.d0 >= e @ world.dr else -e


def budget(world: World, variant: int) -> Limit:
    e = world.mdp.costs["risk"]
    if variant == 1 or e @ world.d0 < e @ world.dr:
        e = turned(world, world.rng.normal(size=world.pairs) * 10.0 ** world.rng.integers(-2, 3))
        return flat(e[None, :], lambda b: cm.Budget(e, at_most=float(b[0])), world)
    return flat(e[None, :], lambda b: cm.Budget("risk", at_most=float(b[0])), world)


def linear(world: World, variant: int) -> Limit:
    rng, n = world.rng, int(world.rng.integers(2, 6))
    E = np.stack([turned(world, e) for e in rng.normal(size=(n, world.pairs))])
    if variant == 1:
        limit = flat(np.vstack([E, -E]), lambda b: cm.Linear(E, at_most=b[:n], at_least=-b[n:]), world)
        limit.floor, limit.offset = True, np.append(np.zeros(n), 2 * limit.step[n:])  # both sides meet at t = -1
        return limit
    if variant == 2:
        e = E[:1]
        target = e @ world.dr
        if world.mode == "infeasible" and world.alone:
            target = -lp_optimum(world.model, -e[0])[0] + 0.1 * np.abs(e) @ world.dr
        return Limit(
            lambda b: cm.Linear(e, equal=target), None, np.zeros(0), lambda d: np.abs(e) @ d, equal=(e, target)
        )
    if variant == 3:
        S = sp.random_array((n, world.pairs), density=0.3, rng=rng, data_sampler=lambda size: rng.normal(size=size))
        S = sp.csr_array(S)
        S = sp.csr_array(sp.diags_array(np.where(S @ world.d0 >= S @ world.dr, 1.0, -1.0)) @ S)
        return flat(S, lambda b: cm.Linear(S, at_most=b), world)
    return flat(E, lambda b: cm.Linear(E, at_most=b), world)


def side(index: Array, values: Array, size: int, default: float) -> Array:
    """A vector of limits with some entries given."""
    out = np.full(size, default)
    out[index] = values
    return out


def bounds(world: World, variant: int) -> Limit:
    n = world.pairs
    eye = np.eye(n)
    if variant == 0:  # one number for all
        top = float(world.dr.max())
        limit = flat(eye, lambda b: cm.Bounds(upper=float(b[0])), world)
        limit.g = lambda d: cp.max(d)
        limit.step, limit.size, limit.floor = np.array([top]), lambda d: np.array([1e-6]), True
        return limit
    low, high = np.zeros(0, dtype=int), np.zeros(0, dtype=int)
    some = world.some(world.dr)
    if variant == 1:
        low = some
    else:
        low, high = some[::2], some[1::2]
    k = high.size

    def make(b: Array) -> cm.Bounds:
        upper = side(high, b[:k], n, np.inf) if k else None
        return cm.Bounds(lower=side(low, -b[k:], n, 0.0), upper=upper)

    limit = flat(np.vstack([eye[high], -eye[low]]), make, world, share=1.0)
    limit.floor = True
    return limit


def state_bounds(world: World, variant: int) -> Limit:
    """Upper for all by one number, lower for some, both, and some by name."""
    n, Xi = world.mdp.num_states, world.owner.T
    visits = Xi @ world.dr
    if variant == 0:
        limit = flat(Xi, lambda b: cm.StateBounds(upper=float(b[0])), world)
        limit.g = lambda d: cp.max(Xi @ d)
        limit.step, limit.size, limit.floor = np.array([visits.max()]), lambda d: np.array([1e-6]), True
        return limit
    some = world.some(visits)
    low, high = {1: (some, some[:0]), 2: (some[::2], some[1::2]), 3: (some[:0], some)}[variant]
    k = high.size

    def make(b: Array) -> cm.StateBounds:
        if variant == 3:
            return cm.StateBounds(upper={world.mdp.states[s]: float(x) for s, x in zip(high, b, strict=True)})
        upper = side(high, b[:k], n, np.inf) if k else None
        return cm.StateBounds(lower=side(low, -b[k:], n, -np.inf), upper=upper)

    limit = flat(np.vstack([Xi[high], -Xi[low]]), make, world, share=1.0)
    limit.floor = True
    return limit


def convex(
    world: World, make: Callable[[Array], Any], g: Callable[[Any], Any], least: float, size: Any = None
) -> Limit:
    """One function that is never below ``least``."""
    step = np.array([float(g(cp.Constant(world.dr)).value) - least])
    return Limit(make, g, step, size or (lambda d: 0.0), floor=True)


def ball(norm: float, weighted: bool = False) -> Callable[[World, int], Limit]:
    """A ball of a norm around an occupancy, or around a point that is none."""

    def limit(world: World, variant: int) -> Limit:
        center = world.another()
        if world.mode == "infeasible" or world.rng.random() < 0.3:
            center = world.off(center)
        weights = world.rng.uniform(0.2, 5.0, size=center.size) if weighted else None

        def g(d: Any) -> Any:
            return cp.norm(d - center if weights is None else cp.multiply(np.sqrt(weights), d - center), norm)

        return convex(world, lambda b: cm.NormBall(center, float(b[0]), norm, weights), g, 0.0)

    return limit


def entropy(of: str) -> Callable[[World, int], Limit]:
    def limit(world: World, variant: int) -> Limit:
        matrix = world.owner.T if of == "states" else np.eye(world.pairs)

        def g(d: Any) -> Any:
            return -cp.sum(cp.entr(matrix @ d))

        least = -float(np.log(matrix.shape[0]))
        return convex(world, lambda b: cm.Entropy(at_least=-float(b[0]), of=of), g, least)

    return limit


def relative_entropy(reference: Array) -> Callable[[Any], Any]:
    """``sum d log(d / reference)``, infinite where d is visited and the reference is zero."""
    kept = reference > 0

    def g(d: Any) -> Any:
        return cp.sum(cp.rel_entr(d[kept], reference[kept]))

    return g


def kl_ball(world: World, variant: int) -> Limit:
    """Variant 1 has a reference that never takes some actions: ``dr`` of such a world does not either."""
    reference = world.another()
    if world.mode == "infeasible" or world.rng.random() < 0.3:
        reference = world.off(reference)
    limit = convex(world, lambda b: cm.KLBall(reference, float(b[0])), relative_entropy(reference), 0.0)
    if np.any(reference == 0):
        never = np.eye(world.pairs)[reference == 0]
        limit.equal = (never, np.zeros(never.shape[0]))
    return limit


def robust(errors: str) -> Callable[[World, int], Limit]:
    def limit(world: World, variant: int) -> Limit:
        rng, n = world.rng, world.pairs
        named = variant == 0
        cost: Any = "risk" if named else None if variant == 2 else rng.normal(size=n)
        c = world.mdp.costs["risk"] if named else np.zeros(n) if cost is None else cost
        if errors == "ellipsoid":
            if variant == 1:
                factor = rng.normal(size=(n, max(2, n // 2))) / np.sqrt(n)
                uncertainty, worst = cm.Ellipsoid(factor @ factor.T), lambda d: cp.norm(factor.T @ d)
            else:
                diagonal = rng.uniform(0.0, 1.0, size=n) * (rng.random(n) < 0.8)
                uncertainty, worst = cm.Ellipsoid(diagonal), lambda d: cp.norm(cp.multiply(np.sqrt(diagonal), d))
        elif errors == "box":
            widths = rng.uniform(0.0, 0.5, size=n)
            uncertainty, worst = cm.Box(widths), lambda d: widths @ cp.abs(d)
        else:
            vertices = rng.normal(size=(int(rng.integers(2, 5)), n)) * 0.5
            uncertainty, worst = cm.Vertices(vertices), lambda d: cp.max(vertices @ d)

        def size(d: Array) -> float:
            spread = np.max(np.abs(vertices) @ d) if errors == "vertices" else float(worst(cp.Constant(d)).value)
            return np.array([np.abs(c) @ d + spread])

        return Limit(
            lambda b: cm.RobustBudget(cost, uncertainty, at_most=float(b[0])),
            lambda d: c @ d + worst(d),
            0.5 * np.atleast_1d(size(world.dr)),
            size,
        )

    return limit


class Halfspace:
    """A user's own set ``a'd <= b``, known by its projection."""

    def __init__(self, a: Array, b: float) -> None:
        self.a, self.b = a, b

    def project(self, point: Array) -> Array:
        return point - max(self.a @ point - self.b, 0.0) / (self.a @ self.a) * self.a


class RoundBall:
    """A user's own set ``|d - center| <= radius``, known by its projection."""

    name = "round"

    def __init__(self, center: Array, radius: float) -> None:
        self.center, self.radius = center, radius

    def project(self, point: Array) -> Array:
        away = point - self.center
        distance = np.linalg.norm(away)
        return point if distance <= self.radius else self.center + away * (self.radius / distance)


def own(world: World, variant: int) -> Limit:
    if variant == 0:
        center = world.another()
        center = world.off(center) if world.mode == "infeasible" else center

        def distance(d: Any) -> Any:
            return cp.norm(d - center)

        return convex(world, lambda b: RoundBall(center, float(b[0])), distance, 0.0, np.linalg.norm)
    a = turned(world, world.rng.normal(size=world.pairs))
    limit = flat(a[None, :], lambda b: Halfspace(a, float(b[0])), world)
    limit.size = lambda d: np.linalg.norm(a) * np.linalg.norm(d)
    return limit


KINDS: dict[str, tuple[Callable[[World, int], Limit], Sequence[str]]] = {
    "Budget": (budget, ["named", "vector"]),
    "Linear": (linear, ["rows", "two-sided", "equal", "sparse"]),
    "Bounds": (bounds, ["upper", "lower", "both"]),
    "StateBounds": (state_bounds, ["upper", "lower", "both", "named"]),
    "NormBall 1": (ball(1), [""]),
    "NormBall 2": (ball(2), [""]),
    "NormBall inf": (ball(np.inf), [""]),
    "NormBall 3": (ball(3), [""]),
    "NormBall 1.5": (ball(1.5), [""]),
    "NormBall weighted": (ball(2, weighted=True), [""]),
    "Entropy pairs": (entropy("pairs"), [""]),
    "Entropy states": (entropy("states"), [""]),
    "KLBall": (kl_ball, ["", "zeros"]),
    "Robust ellipsoid": (robust("ellipsoid"), ["diagonal", "matrix", "no cost"]),
    "Robust box": (robust("box"), ["named", "vector", "no cost"]),
    "Robust vertices": (robust("vertices"), ["named", "vector"]),
    "Own set": (own, ["ball", "halfspace"]),
}


# Convex terms, one function a kind ------------------------------------------------------------------------------------


class Ridge:
    """A user's own term ``weight |d - middle|^2 / 2``."""

    def __init__(self, middle: Array, weight: float) -> None:
        self.middle, self.weight = middle, weight

    def value(self, point: Array) -> float:
        return 0.5 * self.weight * float((point - self.middle) @ (point - self.middle))

    def prox(self, point: Array, step: float) -> Array:
        return (point + step * self.weight * self.middle) / (1 + step * self.weight)


class Hinge:
    """A user's own term ``weight max(a'd - b, 0)``: a limit that may be exceeded at a price."""

    def __init__(self, a: Array, b: float, weight: float) -> None:
        self.a, self.b, self.weight = a, b, weight

    def value(self, point: Array) -> float:
        return self.weight * max(float(self.a @ point) - self.b, 0.0)

    def prox(self, point: Array, step: float) -> Array:
        excess = max(float(self.a @ point) - self.b, 0.0)
        return point - min(excess / float(self.a @ self.a), step * self.weight) * self.a


def distance_to(norm: float) -> Callable[[World, int], Summand]:
    def summand(world: World, variant: int) -> Summand:
        center, weight = world.another(), float(world.rng.uniform(0.2, 2.0))
        center = center if variant == 1 else world.off(center)
        return Summand(
            cm.Distance(center, weight, norm),
            lambda d: weight * cp.norm(d - center, norm),
            lambda d: weight * (np.linalg.norm(d, norm) + np.linalg.norm(center, norm)),
        )

    return summand


def negative_entropy(of: str) -> Callable[[World, int], Summand]:
    def summand(world: World, variant: int) -> Summand:
        matrix = world.owner.T if of == "states" else np.eye(world.pairs)
        weight = float(world.rng.uniform(0.02, 1.0))
        return Summand(
            cm.NegativeEntropy(weight, of=of),
            lambda d: -weight * cp.sum(cp.entr(matrix @ d)),
            lambda d: weight * logarithms(matrix @ d, 1.0),
        )

    return summand


def kl_to(world: World, variant: int) -> Summand:
    reference, weight = world.off(world.another()), float(world.rng.uniform(0.02, 1.0))
    g = relative_entropy(reference)
    return Summand(cm.KL(reference, weight), lambda d: weight * g(d), lambda d: weight * logarithms(d, reference))


def logarithms(x: Array, reference: Any) -> float:
    """``sum x (|log x| + |log r|)`` over the entries that are not zero."""
    r = np.broadcast_to(reference, x.shape)
    some = (x > 0) & (r > 0)
    return float(x[some] @ (np.abs(np.log(x[some])) + np.abs(np.log(r[some]))))


def own_term(world: World, variant: int) -> Summand:
    weight = float(world.rng.uniform(0.5, 5.0))
    if variant == 0:
        middle = world.off(world.another())
        return own_summand(Ridge(middle, weight), lambda d: 0.5 * weight * cp.sum_squares(d - middle))
    a = turned(world, world.rng.normal(size=world.pairs))
    b = float(a @ (0.5 * world.d0 + 0.5 * world.dr))
    return own_summand(Hinge(a, b, weight), lambda d: weight * cp.pos(a @ d - b))


def own_summand(term: Any, value: Callable[[Any], Any]) -> Summand:
    """A term that may vanish is judged against a thousandth of its value at the even point."""
    return Summand(term, value, lambda d: max(abs(term.value(d)), 1e-3 * abs(term.value(np.full(d.size, 1 / d.size)))))


TERMS: dict[str, tuple[Callable[[World, int], Summand], Sequence[str]]] = {
    "Distance 1": (distance_to(1), ["", "of a policy"]),
    "Distance 2": (distance_to(2), ["", "of a policy"]),
    "Distance inf": (distance_to(np.inf), ["", "of a policy"]),
    "NegativeEntropy pairs": (negative_entropy("pairs"), [""]),
    "NegativeEntropy states": (negative_entropy("states"), [""]),
    "KL": (kl_to, [""]),
    "Own term": (own_term, ["ridge", "hinge"]),
}


# Cases ----------------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """What the other solver says."""

    infeasible: bool
    value: float
    """The least value; NaN where infeasible."""
    solver: str
    seconds: float
    """In CVXPY and the solver."""
    solve_seconds: float
    """In the solver alone, as it reports it."""
    prices: list[Array]
    """Multipliers of the limits, one array each, then of the equalities where there are any."""


@dataclass
class Built:
    """A problem in both forms."""

    problem: cm.Problem
    world: World
    limits: list[Limit]
    summands: list[Summand]
    with_cost: bool
    expected: str
    """The mode: active, inactive or infeasible."""

    def size_at(self, d: Array) -> float:
        """``|c|'d`` and the sizes of the terms."""
        terms = sum(s.size(d) for s in self.summands)
        return float(np.abs(self.world.model["costs"]["cost"]) @ d) * self.with_cost + terms

    def peer(self) -> tuple[cp.Problem, list[tuple[Limit, Any, Any]]]:
        """The problem of CVXPY, and the constraints of each limit: those of ``g``, and the equality or None."""
        d = cp.Variable(self.world.pairs)
        rows = [
            (
                limit,
                limit.g(d) <= (limit.bounds if limit.bounds.size > 1 else limit.bounds[0]) if limit.step.size else None,
                limit.equal[0] @ d == limit.equal[1] if limit.equal else None,
            )
            for limit in self.limits
        ]
        objective = sum((s.value(d) for s in self.summands), self.world.model["costs"]["cost"] @ d * self.with_cost)
        constraints = [c for _, *both in rows for c in both if c is not None]
        return cp.Problem(cp.Minimize(objective), [*dynamics(self.world.model, d), *constraints]), rows

    def ask(self, solver: str, **settings: Any) -> tuple[str, Answer | None]:
        """Solve with CVXPY: its status, and the answer where it is sure of one."""
        start = time.perf_counter()
        peer, rows = self.peer()
        status = run(peer, solver, **settings)
        seconds = time.perf_counter() - start
        if status not in ("optimal", "infeasible"):
            return status, None
        prices = [np.atleast_1d(c.dual_value) for _, *both in rows for c in both if c is not None]
        inner = float(peer.solver_stats.solve_time or np.nan)
        # The solver's own value: CVXPY's may be infinite, since an entry may be below zero by rounding.
        value = float(peer.solution.opt_val) if status == "optimal" else np.nan
        return status, Answer(status == "infeasible", value, solver, seconds, inner, prices)

    def reference(self) -> Answer:
        """The exact answer: of Clarabel at tight settings, or of another solver where Clarabel is not sure."""
        tried = []
        attempts: list[tuple[str, dict[str, Any]]] = [("CLARABEL", settings) for settings in (TIGHT, LOOSE, PLAIN)]
        if self.peer()[0].is_lp():
            attempts.append(("HIGHS", {}))
        attempts.append(("SCS", {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iters": 500_000}))
        for solver, settings in attempts:
            status, answer = self.ask(solver, **settings)
            if answer is not None:
                return answer
            tried.append((solver, status))
        raise AssertionError(f"no solver is sure: {tried}")

    def violations(self, d: Array) -> list[tuple[Array, Array]]:
        """By how much d exceeds each limit, and each equality, and what the tolerance is relative to."""
        found = []
        for limit in self.limits:
            if limit.step.size:
                excess = np.maximum(limit.at(d) - limit.bounds, 0.0)
                found.append((excess, np.maximum(np.abs(limit.bounds), limit.size(d))))
            if limit.equal:
                rows, target = limit.equal
                sizes = np.maximum(np.maximum(np.abs(target), np.abs(rows) @ d), 1e-6)
                found.append((np.abs(rows @ d - target), sizes))
        return found


@dataclass
class Verdict:
    """How an answer of cvxmdp compares."""

    complaints: list[str]
    difference: float
    """Of the values, relative to ``|c|'d + |terms|``; NaN where there is none."""
    priced: float
    """What the violations of the policy may have saved, relative to the same."""


def compare(built: Built, solution: cm.Solution, answer: Answer) -> Verdict:
    """Compare verdict, value, bound and violations; check the certificate.

    For prices p of the limits and every occupancy d, ``value(d) + p'violation(d) >= optimum``.
    """
    complaints = []
    try:
        solution.certificate.check(built.problem)
    except cm.CertificateError as error:
        complaints.append(f"certificate: {error}")
    found = solution.status.name
    if found != ("INFEASIBLE" if answer.infeasible else "OPTIMAL"):
        complaints.append(f"status {found}; {answer.solver} says {'infeasible' if answer.infeasible else 'feasible'}")
    if found == "INFEASIBLE" and not (solution.infeasibility and solution.infeasibility.margin > 0):
        complaints.append("infeasible without a margin")
    if answer.infeasible:
        return Verdict(complaints, np.nan, np.nan)
    d, cost = solution.occupancy, built.world.model["costs"]["cost"] * built.with_cost
    parts = [float(s.value(cp.Constant(d)).value) for s in built.summands]
    scale = built.size_at(d) or 1e-3  # nothing to minimize, so that nothing is a measure
    exact = float(cost @ d) + sum(parts)
    if not abs(solution.value - exact) <= 1e-9 * scale:
        complaints.append(f"value {solution.value:.12g}; the policy's is {exact:.12g}")
    violations = built.violations(d)
    worst = max((float(np.max(v / s)) for v, s in violations), default=0.0)
    if found == "OPTIMAL" and worst > TOLERANCE * (1 + 1e-3):
        complaints.append(f"violation {worst:.3g}")
    saved = sum(float(np.abs(p) @ np.atleast_1d(v)) for p, (v, _) in zip(answer.prices, violations, strict=True))
    difference = (solution.value - answer.value) / scale
    if not -saved / scale - ACCURATE <= difference <= TOLERANCE + ACCURATE:
        complaints.append(f"value {solution.value:.12g}, not {answer.value:.12g}: {difference:.3g} of {scale:.3g}")
    if not solution.bound <= answer.value + ACCURATE * scale:
        complaints.append(f"bound {solution.bound:.12g} above the optimum {answer.value:.12g}")
    return Verdict(complaints, difference, saved / scale)


def run(peer: cp.Problem, solver: str, **settings: Any) -> str:
    """Solve quietly; a solver that gives up is not sure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            peer.solve(solver=solver, **settings)
        except cp.SolverError:
            return "error"
    return str(peer.status)


def dynamics(model: dict[str, Any], d: Any) -> list[Any]:
    """What makes d an occupancy."""
    return [flow_matrix(model) @ d == inflow(model), d >= 0]


@dataclass(frozen=True)
class Case:
    """One problem: ``build`` makes it, the same one every time."""

    group: str
    """single, pair, triple, objective, or objective with constraint."""
    kinds: tuple[tuple[str, int], ...]
    """Constraints: kind and variant."""
    terms: tuple[tuple[str, int], ...]
    mode: str
    with_cost: bool
    seed: int

    @property
    def name(self) -> str:
        variants = [(k, KINDS[k][1][v]) for k, v in self.kinds] + [(k, TERMS[k][1][v]) for k, v in self.terms]
        parts = [f"{kind} ({variant})" if variant else kind for kind, variant in variants]
        return " + ".join([*parts, *([] if self.with_cost else ["no cost"])]) + f", {self.mode}, seed {self.seed}"

    def build(self) -> Built:
        for attempt in range(50):
            rng = np.random.default_rng([self.seed, zlib.crc32(self.name.encode()), attempt])
            built = _build(self, rng)
            if built is not None:
                return built
        raise AssertionError(f"no model is found for {self.name}")


def _build(case: Case, rng: np.random.Generator) -> Built | None:
    world = _world(case, rng)
    limits = [KINDS[kind][0](world, variant) for kind, variant in case.kinds]
    summands = [TERMS[kind][0](world, variant) for kind, variant in case.terms]
    if not _place(world, limits):
        return None
    parts = [*(["cost"] if case.with_cost else []), *(s.term for s in summands)]
    problem = cm.Problem(world.mdp, parts, [limit.make(limit.bounds) for limit in limits])
    return Built(problem, world, limits, summands, case.with_cost, case.mode)


def _world(case: Case, rng: np.random.Generator) -> World:
    states = int(rng.integers(3, 21))
    actions = int(rng.choice([1, 2, 3, 4], p=[0.04, 0.32, 0.32, 0.32]))
    branching = int(min(states, rng.integers(2, 5))) if rng.random() < 0.5 else None
    zeros = any(kind == "KLBall" and variant == 1 for kind, variant in case.kinds)
    ragged = bool(rng.random() < 0.4) and not zeros
    model = random_model(
        int(rng.integers(1 << 30)), states, max(actions, 2 if ragged or zeros or case.terms else 1), ragged,
        float(rng.choice(DISCOUNTS)), branching,
    )  # fmt: skip
    if rng.random() < 0.25 and not zeros:  # start in one state
        model["initial"] = np.eye(states)[int(rng.integers(states))]
    P = sp.csr_array(model["P"]) if branching is not None else model["P"]
    mdp = cm.MDP.from_pairs(
        model["state"], model["action"], P, model["costs"], discount=model["discount"], initial=model["initial"],
        states=[f"place {s}" for s in range(states)],
    )  # fmt: skip
    d0 = lp_optimum(model, model["costs"]["cost"])[1]
    pi = random_policy(model, int(rng.integers(1 << 30)))
    pi = pi + 1.0 / np.bincount(model["state"])[model["state"]]
    if zeros:  # the first action of some states is never taken
        never = (model["action"] == 0) & (rng.random(states) < 0.4)[model["state"]]
        pi[never] = 0.0
    pi = pi / np.bincount(model["state"], pi)[model["state"]]
    return World(rng, model, mdp, np.maximum(d0, 0.0), occupancy(model, pi), pi > 0, case.mode, len(case.kinds) == 1)


def _place(world: World, limits: list[Limit]) -> bool:
    """Set the bounds; say whether the problem is as clear as it should be."""
    for limit in limits:
        low, high = limit.at(world.dr), limit.at(world.d0)
        theta = world.rng.uniform(0.2, 0.8)
        if world.mode == "inactive":
            limit.bounds = np.maximum(low, high) + 0.2 * limit.step
        else:
            limit.bounds = low + np.maximum(theta * (high - low), 0.02 * np.abs(limit.step))
        if not np.all(np.isfinite(limit.bounds)) or np.any(limit.step <= 0):
            return False
    if world.mode != "infeasible" or all(limit.step.size == 0 for limit in limits):
        return True
    least = _least(world, limits)
    floor = any(limit.floor for limit in limits)
    margin = min(0.1, 0.5 * (1 + least)) if floor else 0.1
    if not margin > 0:
        return False
    for limit in limits:
        limit.bounds = limit.at(world.dr) + limit.offset + (least - margin) * limit.step
        sizes = np.maximum(np.abs(limit.bounds), limit.size(world.dr))
        if np.any(margin * limit.step < CLEAR * sizes):
            return False
    return True


def _least(world: World, limits: list[Limit]) -> float:
    """The least t for which an occupancy has ``g(d) <= g(dr) + offset + t step`` in all limits."""
    d, t = cp.Variable(world.pairs), cp.Variable()
    rows = [limit.g(d) <= limit.at(world.dr) + limit.offset + t * limit.step for limit in limits if limit.step.size]
    rows += [limit.equal[0] @ d == limit.equal[1] for limit in limits if limit.equal]
    peer = cp.Problem(cp.Minimize(t), [*dynamics(world.model, d), *rows])
    status = run(peer, "CLARABEL")
    return float(t.value) if status in ("optimal", "optimal_inaccurate") else -np.inf


MODES = ("active", "inactive", "infeasible")
MIXED = ("active", "active", "infeasible", "active", "active", "inactive", "active", "infeasible")
TRIPLES = 24


def cases(seeds: Sequence[int] = (0,)) -> Iterator[Case]:
    """All problems: for each seed, every kind alone, all pairs of kinds, some triples, and the convex objectives."""
    for seed in seeds:
        for kind, (_, variants) in KINDS.items():
            for variant, mode in itertools.product(range(len(variants)), MODES):
                yield Case("single", ((kind, variant),), (), mode, True, seed)
        count = {kind: seed for kind in (*KINDS, *TERMS)}

        def turn(kind: str, count: dict[str, int] = count) -> tuple[str, int]:
            """Take the variants in turn."""
            count[kind] += 1
            return kind, count[kind] % len((KINDS.get(kind) or TERMS[kind])[1])

        rng = np.random.default_rng(seed)
        modes = itertools.cycle(MIXED)
        for pair in itertools.combinations_with_replacement(KINDS, 2):
            yield Case("pair", tuple(turn(kind) for kind in pair), (), next(modes), True, seed)
        for _ in range(TRIPLES):
            triple = rng.choice(list(KINDS), size=3, replace=False)
            yield Case("triple", tuple(turn(str(kind)) for kind in triple), (), next(modes), True, seed)
        for kind, (_, variants) in TERMS.items():
            for variant, with_cost in itertools.product(range(len(variants)), (True, False)):
                yield Case("objective", (), ((kind, variant),), "active", with_cost, seed)
        for first, second in itertools.combinations(TERMS, 2):
            if rng.random() < 0.4:
                yield Case("objective", (), (turn(first), turn(second)), "active", True, seed)
        for term, kind in itertools.product(TERMS, KINDS):
            if rng.random() < 0.4:
                mode = next(modes)
                yield Case("objective with constraint", (turn(kind),), (turn(term),), mode, True, seed)
