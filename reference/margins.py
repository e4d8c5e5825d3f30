"""Random problems near the border of feasibility, with a known relative margin, each written twice.

Every limit is a vector of convex functions ``g(d) <= b``.  A draw fixes a line of bounds ``base + t step``, and a
second solver, HiGHS for linear limits and CVXPY with Clarabel for others, finds the least t for which an occupancy is
left.  Newton's method on the optimality conditions then makes that border as exact as rounding allows.  With the bounds
b and the occupancy d at the border, every limit has the size s that the tolerance of cvxmdp is relative to:
``max(|b|, |row|'d)`` for a row, ``|b|`` for all others.  The bounds of a problem of margin m are ``b + m s``: feasible
for ``m >= 0``, while for ``m < 0`` every policy exceeds some limit by ``|m|`` of its size or more.

Both are shown without trust in a solver.  The occupancy d is that of a policy and obeys b, so that the problems with
``m >= 0`` are feasible.  For multipliers ``y >= 0`` with ``s'y = 1``, and G the derivative of g at d, convexity gives
for every occupancy x

    max over limits of (g(x) - b) / s  >=  y'(g(d) - G d - b) + min over occupancies of (y'G) x,

and the last term is bounded from below by policy iteration.  The right-hand side is zero but for rounding and the
inexactness of d; how far it is below zero is the *uncertainty* of the margin.
"""

import functools
import itertools
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.special import rel_entr
from threadpoolctl import threadpool_limits

import cvxmdp as cm
from campaign import LOOSE, TIGHT, dynamics, run
from oracles import as_mdp, flow_matrix, inflow, occupancy, owner_matrix, random_model, random_policy, value

Array = np.ndarray
DISCOUNTS = (0.5, 0.9, 0.99, 0.999)
SIZES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
MARGINS = (*(-m for m in SIZES), *reversed(SIZES))
"""From clearly infeasible to clearly feasible."""
CERTAIN = 1e-9
"""The greatest uncertainty, a tenth of the least margin; what is less certain is drawn again."""
SHARE = 1e-3
"""The least share of every limit in the multipliers at the border: none is without influence."""
TINY = 1e-100
TOLERANCE = 1e-6
"""Of cvxmdp."""
CLEAR = 1e-5
"""The least margin, of either sign, at which there has to be a verdict."""
POLISH = 30
"""Newton steps on the optimality conditions of the border."""
WORDS = {
    0: "optimal",
    1: "limit reached",
    2: "infeasible",
    3: "unbounded",
    4: "numerical difficulties",
    "error": "solver error",
    "user_limit": "limit reached",
}
"""What the numbers of linprog, and some words of CVXPY, mean."""


# Limits, from their definitions ---------------------------------------------------------------------------------------


@dataclass
class Rows:
    """``E d <= b``."""

    E: Array
    make: Callable[[Array], list[Any]]
    step: Array
    linear = True
    interior = False

    @property
    def base(self) -> Array:
        return np.zeros(self.step.size)

    def at(self, d: Array) -> Array:
        return self.E @ d

    def derivative(self, d: Array) -> Array:
        return self.E

    def curvature(self, d: Array, y: Array) -> Array:
        return np.zeros((d.size, d.size))

    def expression(self, d: Any) -> Any:
        return self.E @ d

    def size(self, d: Array, b: Array) -> Array:
        return np.maximum(np.abs(b), np.abs(self.E) @ d)

    def means_something(self, b: Array) -> bool:
        return True


@dataclass
class Ball:
    """``|d - center| <= b``."""

    center: Array
    step: Array
    linear = False
    interior = False

    @property
    def base(self) -> Array:
        return np.zeros(1)

    def make(self, b: Array) -> list[Any]:
        return [cm.NormBall(self.center, float(b[0]))]

    def at(self, d: Array) -> Array:
        return np.array([np.linalg.norm(d - self.center)])

    def derivative(self, d: Array) -> Array:
        return ((d - self.center) / self.at(d))[None, :]

    def curvature(self, d: Array, y: Array) -> Array:
        u = self.derivative(d)
        return y[0] * (np.eye(d.size) - u.T @ u) / self.at(d)

    def expression(self, d: Any) -> Any:
        return cp.norm(d - self.center)

    def size(self, d: Array, b: Array) -> Array:
        return np.abs(b)

    def means_something(self, b: Array) -> bool:
        return bool(b[0] > 0)


@dataclass
class Spread:
    """``sum x log(x / reference) <= b`` of ``x = X d``; an entropy is at least ``-b`` where the reference is one."""

    X: Array
    reference: Array
    base: Array
    step: Array
    make: Callable[[Array], list[Any]]
    linear = False

    @property
    def interior(self) -> bool:
        """Whether every pair is visited where the limit has a price: the derivative is infinite at zero."""
        return self.X.shape[0] == self.X.shape[1]

    def at(self, d: Array) -> Array:
        return np.array([rel_entr(self.X @ d, self.reference).sum()])

    def derivative(self, d: Array) -> Array:
        return ((np.log(self._entries(d) / self.reference) + 1.0) @ self.X)[None, :]

    def curvature(self, d: Array, y: Array) -> Array:
        return y[0] * self.X.T @ (self.X / self._entries(d)[:, None])

    def _entries(self, d: Array) -> Array:
        """Entries whose logarithm is finite."""
        return np.maximum(self.X @ d, TINY)

    def expression(self, d: Any) -> Any:
        return cp.sum(cp.rel_entr(self.X @ d, self.reference))

    def size(self, d: Array, b: Array) -> Array:
        return np.abs(b)

    def means_something(self, b: Array) -> bool:
        """No distribution has a sum below this."""
        return bool(b[0] > -np.log(self.reference.sum()) + 1e-12)


Limit = Rows | Ball | Spread


# Draws ----------------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """A model, and the source of all random numbers of a draw."""

    rng: np.random.Generator
    model: dict[str, Any]
    mdp: cm.MDP

    @property
    def pairs(self) -> int:
        return self.model["state"].size

    @property
    def owner(self) -> Array:
        return owner_matrix(self.model)

    def policy(self) -> Array:
        """The occupancy of a random policy that takes every action."""
        pi = random_policy(self.model, int(self.rng.integers(1 << 30)))
        return occupancy(self.model, 0.8 * pi + 0.2 / np.bincount(self.model["state"])[self.model["state"]])

    def off(self) -> Array:
        """A distribution near an occupancy that is none itself."""
        moved = self.policy() * self.rng.uniform(0.3, 1.7, size=self.pairs)
        return moved / moved.sum()

    def share(self, size: int = 1) -> Array:
        return self.rng.uniform(0.7, 1.3, size=size)


def world(rng: np.random.Generator, states: tuple[int, int], discount: float, shape: str) -> World:
    size = int(rng.integers(states[0], states[1] + 1))
    branching = min(size, int(rng.integers(2, 5))) if shape == "sparse" else None
    model = random_model(
        int(rng.integers(1 << 30)), size, int(rng.integers(2, 5)), shape == "ragged", discount, branching
    )
    if rng.random() < 0.5:  # start nearly always in the same state
        model["initial"] = 0.1 * model["initial"] + 0.9 * np.eye(size)[int(rng.integers(size))]
    return World(rng, model, as_mdp(model, sparse=shape == "sparse"))


def budgets(least: int, most: int) -> Callable[[World], Limit]:
    """One ``Budget`` a row, the first by name; costs are positive."""

    def draw(world: World) -> Limit:
        n = int(world.rng.integers(least, most + 1))
        E = world.rng.uniform(0.05, 1.0, size=(n, world.pairs)) * 10.0 ** world.rng.integers(-2, 3, size=(n, 1))
        E[0] = world.model["costs"]["risk"]

        def make(b: Array) -> list[Any]:
            more = [cm.Budget(E[k], at_most=float(b[k]), name=f"budget {k}") for k in range(1, n)]
            return [cm.Budget("risk", at_most=float(b[0])), *more]

        return Rows(E, make, world.share(n) * (E @ world.policy()))

    return draw


def rows(least: int, most: int) -> Callable[[World], Limit]:
    """A ``Linear`` whose entries have both signs; each row has an upper or a lower limit."""

    def draw(world: World) -> Limit:
        n = int(world.rng.integers(least, most + 1))
        E = world.rng.normal(size=(n, world.pairs))
        sign = np.where(world.rng.random(n) < 0.5, 1.0, -1.0)

        def make(b: Array) -> list[Any]:
            upper, lower = np.where(sign > 0, b, np.inf), np.where(sign < 0, -b, -np.inf)
            return [cm.Linear(sign[:, None] * E, at_most=upper, at_least=lower)]

        return Rows(E, make, world.share(n) * (np.abs(E) @ world.policy()))

    return draw


def sparse_rows(least: int, most: int) -> Callable[[World], Limit]:
    """A ``Linear`` with a sparse matrix of positive entries."""

    def draw(world: World) -> Limit:
        n = int(world.rng.integers(least, most + 1))
        E = world.rng.uniform(0.1, 1.0, size=(n, world.pairs)) * (world.rng.random((n, world.pairs)) < 0.2)
        E[np.arange(n), world.rng.integers(world.pairs, size=n)] = 1.0
        step = world.share(n) * (E @ world.policy())
        return Rows(E, lambda b: [cm.Linear(sp.csr_array(E), at_most=b)], step)

    return draw


def caps_on_states(world: World) -> Limit:
    E = world.owner.T
    return Rows(E, lambda b: [cm.StateBounds(upper=b)], world.share(len(E)) * (E @ world.policy()))


def caps_on_pairs(world: World) -> Limit:
    return Rows(np.eye(world.pairs), lambda b: [cm.Bounds(upper=b)], world.share(world.pairs) * world.policy())


def ball(world: World) -> Limit:
    center = world.off()
    return Ball(center, world.share() * np.linalg.norm(world.policy() - center))


def entropy(of: str) -> Callable[[World], Limit]:
    def draw(world: World) -> Limit:
        X = np.eye(world.pairs) if of == "pairs" else world.owner.T
        x, most = X @ world.policy(), np.log(len(X))
        step = world.rng.uniform(0.7, 4.0, size=1) * (most + x @ np.log(x))

        def make(b: Array) -> list[Any]:
            return [cm.Entropy(at_least=-float(b[0]), of=of)]

        return Spread(X, np.ones(len(X)), np.array([-most]), step, make)

    return draw


def kl_ball(world: World) -> Limit:
    reference, x = world.off(), world.policy()
    step = world.share() * (x @ np.log(x / reference))
    return Spread(np.eye(world.pairs), reference, np.zeros(1), step, lambda b: [cm.KLBall(reference, float(b[0]))])


KINDS: dict[str, tuple[tuple[Callable[[World], Limit], ...], tuple[int, int]]] = {
    "few budgets": ((budgets(2, 10),), (3, 40)),
    "few rows": ((rows(2, 10),), (3, 40)),
    "many rows": ((rows(30, 60),), (10, 40)),
    "many sparse rows": ((sparse_rows(30, 60),), (10, 40)),
    "caps on states": ((caps_on_states,), (30, 40)),
    "caps on pairs": ((caps_on_pairs,), (10, 40)),
    "caps and budgets": ((caps_on_states, budgets(2, 5)), (10, 40)),
    "ball": ((ball,), (3, 40)),
    "two balls": ((ball, ball), (3, 40)),
    "ball and budgets": ((ball, budgets(2, 5)), (3, 40)),
    "entropy of pairs": ((entropy("pairs"),), (3, 40)),
    "entropy of states": ((entropy("states"),), (3, 40)),
    "entropy and caps": ((entropy("pairs"), caps_on_states), (3, 40)),
    "entropy of states and rows": ((entropy("states"), rows(2, 5)), (3, 40)),
    "KL ball": ((kl_ball,), (3, 40)),
    "KL ball and rows": ((kl_ball, rows(2, 5)), (3, 40)),
    "ball, entropy and budgets": ((ball, entropy("states"), budgets(1, 3)), (3, 40)),
}
"""The limits of each kind, and its least and greatest number of states.  There are 17: every 20th case meets all."""


# The border -----------------------------------------------------------------------------------------------------------


@dataclass
class Border:
    """Limits at which an occupancy is just left."""

    world: World
    limits: list[Limit]
    d: Array
    """That occupancy."""
    bounds: Array
    sizes: Array
    multipliers: Array
    """Of the limits, at least 0, with ``sizes'multipliers = 1``."""
    uncertainty: float
    """By how much the margin of a problem may be off, beside its own size."""

    @property
    def linear(self) -> bool:
        return all(limit.linear for limit in self.limits)

    def split(self, vector: Array) -> list[Array]:
        return np.split(vector, np.cumsum([limit.step.size for limit in self.limits])[:-1])

    def means_something(self, margin: float) -> bool:
        """Whether all limits of a margin could be met by some distribution."""
        parts = self.split(self.bounds + margin * self.sizes)
        return all(limit.means_something(b) for limit, b in zip(self.limits, parts, strict=True))


def stack(limits: Sequence[Limit], of: str, *points: Array) -> Array:
    """An attribute of all limits, or what a method of all says."""
    found = [getattr(limit, of) for limit in limits]
    return np.concatenate([part(*points) if points else part for part in found])


def least_cost(model: dict[str, Any], w: Array) -> tuple[float, Array, Array]:
    """A lower bound on w'd over occupancies, which policy iteration makes tight; the values; what each pair loses.

    For any values V, ``w'd = (1 - discount) initial'V + d'(w + discount P V - V)`` and d adds up to one.
    """
    state, P, gamma = model["state"], model["P"], model["discount"]
    first = np.flatnonzero(np.append(True, state[1:] != state[:-1]))
    chosen = first.copy()
    for _ in range(200):
        pi = np.zeros(state.size)
        pi[chosen] = 1.0
        V = value(model, pi, w)
        lost = w + gamma * (P @ V) - V[state]
        least = np.minimum.reduceat(lost, first)
        better = least < lost[chosen] - 1e-13 * np.max(np.abs(w))
        if not np.any(better):
            break
        for s in np.flatnonzero(better):
            chosen[s] = first[s] + int(np.argmin(lost[state == s]))
    return float(inflow(model) @ V + min(lost.min(), 0.0)), V, lost


def bracket(model: dict[str, Any], limits: Sequence[Limit], d: Array, b: Array, s: Array, y: Array) -> float:
    """A lower bound on the least t for which an occupancy has ``g <= b + t s``, from the derivative at d."""
    y = np.maximum(y, 0.0)
    y = y / (s @ y)
    G = stack(limits, "derivative", d)
    return float(y @ (stack(limits, "at", d) - G @ d - b)) + least_cost(model, y @ G)[0]


def exact(model: dict[str, Any], d: Array) -> Array:
    """The occupancy of the policy of d."""
    d = np.maximum(d, 0.0)
    return occupancy(model, d / np.bincount(model["state"], d)[model["state"]])


def solve_linear(model: dict[str, Any], limits: Sequence[Limit]) -> tuple[Array, Array] | None:
    """The occupancy and multipliers at the border by HiGHS's simplex method."""
    E, base, step = stack(limits, "E"), stack(limits, "base"), stack(limits, "step")
    A = flow_matrix(model)
    n = A.shape[1]
    answer = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.hstack([E / step[:, None], -np.ones((step.size, 1))]),
        b_ub=base / step,
        A_eq=np.hstack([A, np.zeros((len(A), 1))]),
        b_eq=inflow(model),
        bounds=[*[(0, None)] * n, (None, None)],
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return (answer.x[:n], -answer.ineqlin.marginals / step) if answer.status == 0 else None


def solve_convex(model: dict[str, Any], limits: Sequence[Limit]) -> tuple[Array, Array] | None:
    """The occupancy and multipliers at the border by CVXPY with Clarabel."""
    d, t = cp.Variable(model["state"].size), cp.Variable()
    border = []
    for limit in limits:
        one = limit.step.size == 1
        base, step = (v[0] if one and not limit.linear else v for v in (limit.base, limit.step))
        border.append((limit.expression(d) - base) / step <= t)
    peer = cp.Problem(cp.Minimize(t), [*dynamics(model, d), *border])
    for settings in (TIGHT, LOOSE, {}):
        if run(peer, "CLARABEL", **settings) in ("optimal", "optimal_inaccurate"):
            return d.value, np.concatenate([np.atleast_1d(c.dual_value) for c in border]) / stack(limits, "step")
    return None


def polish(model: dict[str, Any], limits: Sequence[Limit], d: Array, y: Array) -> Iterator[tuple[Array, Array]]:
    """Newton's method on the optimality conditions over the pairs and limits that matter, one pair (d, y) a step.

    With h = (g - base) / step and m = step y: ``m'h' = A'V`` on the pairs, ``sum m = 1``, ``A d = inflow``, ``h = t``.
    """
    A, base, step = flow_matrix(model), stack(limits, "base"), stack(limits, "step")
    d = np.maximum(d, TINY)
    m = np.maximum(step * y, 0.0)
    m = m / m.sum()
    h = (stack(limits, "at", d) - base) / step
    t = float(h.max())
    w = m @ (stack(limits, "derivative", d) / step[:, None])
    _, V, lost = least_cost(model, w)
    most = np.zeros(len(A))
    np.maximum.at(most, model["state"], d)
    everywhere = any(limit.interior for limit in limits)
    pairs = everywhere | (d > np.maximum(lost, 0.0) / np.max(np.abs(w))) | (d == most[model["state"]])
    some = m > (t - h) / np.max(np.abs(h))
    d = np.where(pairs, d, 0.0)
    m = np.where(some, m, 0.0)
    n, k = int(pairs.sum()), int(some.sum())
    for _ in range(POLISH):
        G = (stack(limits, "derivative", d) / step[:, None])[some][:, pairs]
        parts = np.split(m / step, np.cumsum([limit.step.size for limit in limits])[:-1])
        H = sum(limit.curvature(d, part) for limit, part in zip(limits, parts, strict=True))
        h = ((stack(limits, "at", d) - base) / step)[some]
        B = A[:, pairs]
        system = np.zeros((n + 1 + len(A) + k,) * 2)
        system[:n, :n] = H[np.ix_(pairs, pairs)]
        system[:n, n + 1 : n + 1 + len(A)], system[:n, n + 1 + len(A) :] = -B.T, G.T
        system[n, n + 1 + len(A) :] = 1.0
        system[n + 1 : n + 1 + len(A), :n] = B
        system[n + 1 + len(A) :, :n], system[n + 1 + len(A) :, n] = G, -1.0
        rest = np.concatenate([m[some] @ G - B.T @ V, [m.sum() - 1.0], B @ d[pairs] - inflow(model), h - t])
        move = np.linalg.lstsq(system, -rest, rcond=1e-14)[0]
        falls = move[:n] < 0
        most = min(1.0, 0.9 * float(np.min(-d[pairs][falls] / move[:n][falls], initial=np.inf)))
        d[pairs] += most * move[:n]
        t += most * move[n]
        V = V + most * move[n + 1 : n + 1 + len(A)]
        m[some] += most * move[n + 1 + len(A) :]
        yield d.copy(), np.maximum(m, 0.0) / step
        if most == 1.0 and np.max(np.abs(move[:n])) < 1e-16:
            return


def border(world: World, limits: list[Limit]) -> Border | None:
    """Find the border; None where the solver gives up, rounding leaves it uncertain, or a limit has no influence."""
    model, base, step = world.model, stack(limits, "base"), stack(limits, "step")
    start = (solve_linear if all(limit.linear for limit in limits) else solve_convex)(model, limits)
    if start is None:
        return None
    rounding = 16 * np.finfo(float).eps / (1 - model["discount"])
    best: Border | None = None
    for raw, y in itertools.chain([start], polish(model, limits, *start)):
        if best is not None and best.uncertainty <= 2 * rounding:
            break
        if not (np.all(np.isfinite(raw)) and np.all(np.isfinite(y)) and np.any(y > 0)):
            continue
        d = exact(model, raw)
        t = float(np.max((stack(limits, "at", d) - base) / step))
        b = base + t * step
        parts = np.split(b, np.cumsum([limit.step.size for limit in limits])[:-1])
        s = np.concatenate([limit.size(d, part) for limit, part in zip(limits, parts, strict=True)])
        below = bracket(model, limits, d, b, s, y)
        uncertainty = max(-below, 0.0) + rounding
        if best is None or uncertainty < best.uncertainty:
            y = np.maximum(y, 0.0)
            best = Border(world, limits, d, b, s, y / (s @ y), uncertainty)
    if best is None or best.uncertainty > CERTAIN:
        return None
    shares = [float(part.sum()) for part in best.split(best.sizes * best.multipliers)]
    return best if min(shares) >= SHARE else None


@functools.cache
def draw(kind: str, seed: int) -> Border:
    """The border of a kind and seed, always the same one."""
    functions, states = KINDS[kind]
    number = list(KINDS).index(kind)
    discount, shape = DISCOUNTS[(number + seed) % 4], ("dense", "sparse", "ragged")[(number // 4 + seed) % 3]
    for attempt in range(100):
        rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), attempt])
        place = world(rng, states, discount, shape)
        with threadpool_limits(1):
            found = border(place, [function(place) for function in functions])
        if found is not None:
            return found
    raise AssertionError(f"no border is found for {kind}, seed {seed}")


# Verdicts -------------------------------------------------------------------------------------------------------------


def judge(margin: float, status: str) -> str:
    """Whether a verdict is "right", "wrong" or "undecided"; just beyond the border a policy may count as obeying."""
    if status.lower() not in ("optimal", "infeasible"):
        return "undecided"
    wrong = margin >= 0 if status.lower() == "infeasible" else margin < -2 * TOLERANCE
    return "wrong" if wrong else "right"


def required(margin: float) -> str | None:
    """The verdict there has to be, or None where the margin is too small to ask for one."""
    return None if abs(margin) < CLEAR else "OPTIMAL" if margin > 0 else "INFEASIBLE"


# Cases ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """What another solver says."""

    solver: str
    status: str
    seconds: float


@dataclass(frozen=True)
class Case:
    """One problem."""

    kind: str
    seed: int
    margin: float
    """Positive where feasible."""

    @property
    def name(self) -> str:
        return f"{self.kind}, margin {self.margin:+.0e}, seed {self.seed}"

    @property
    def border(self) -> Border:
        return draw(self.kind, self.seed)

    @property
    def uncertainty(self) -> float:
        return self.border.uncertainty

    @property
    def bounds(self) -> list[Array]:
        """Of every limit."""
        return self.border.split(self.border.bounds + self.margin * self.border.sizes)

    @property
    def problem(self) -> cm.Problem:
        """The problem of cvxmdp, made anew."""
        limits = zip(self.border.limits, self.bounds, strict=True)
        return cm.Problem(self.border.world.mdp, "cost", [c for limit, b in limits for c in limit.make(b)])

    def complaints(self, problem: cm.Problem, solution: cm.Solution) -> list[str]:
        """What is wrong with an answer beside its verdict: certificate, policy by the definitions, bound."""
        found = []
        try:
            solution.certificate.check(problem)
        except cm.CertificateError as error:
            found.append(f"certificate: {error}")
        border, d = self.border, solution.occupancy
        if np.max(np.abs(flow_matrix(border.world.model) @ d - inflow(border.world.model))) > 1e-9 or d.min() < 0:
            found.append("the occupancy is none")
        excess = max(
            float(np.max((limit.at(d) - b) / limit.size(d, b)))
            for limit, b in zip(border.limits, self.bounds, strict=True)
        )
        if solution.status.name == "OPTIMAL" and excess > TOLERANCE * (1 + 1e-3):
            found.append(f"a limit is exceeded by {excess:.2g} of its size")
        cost = border.world.model["costs"]["cost"]
        if self.margin >= 0 and solution.bound > cost @ border.d + 1e-9 * (np.abs(cost) @ border.d):
            found.append(f"bound {solution.bound:.12g}; a policy that obeys costs {cost @ border.d:.12g}")
        return found

    def peer(self) -> list[Word]:
        """What general solvers say about the problem at their default settings."""
        return [self._clarabel(), *([self._highs()] if self.border.linear else [])]

    def _clarabel(self) -> Word:
        model = self.border.world.model
        start = time.perf_counter()
        d = cp.Variable(self.border.d.size)
        limits = [
            limit.expression(d) <= (b if limit.linear else b[0])
            for limit, b in zip(self.border.limits, self.bounds, strict=True)
        ]
        status = run(cp.Problem(cp.Minimize(model["costs"]["cost"] @ d), [*dynamics(model, d), *limits]), "CLARABEL")
        return Word("Clarabel", WORDS.get(status, status.replace("_", " ")), time.perf_counter() - start)

    def _highs(self) -> Word:
        model = self.border.world.model
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = linprog(
                model["costs"]["cost"],
                A_ub=stack(self.border.limits, "E"),
                b_ub=np.concatenate(self.bounds),
                A_eq=flow_matrix(model),
                b_eq=inflow(model),
                method="highs",
            )
        return Word("HiGHS", WORDS[answer.status], time.perf_counter() - start)


def cases(seeds: Sequence[int] = (0,)) -> Iterator[Case]:
    """All problems: for each seed and margin every kind, but for limits that no distribution meets."""
    for seed, margin, kind in itertools.product(seeds, MARGINS, KINDS):
        if draw(kind, seed).means_something(margin):
            yield Case(kind, seed, margin)
