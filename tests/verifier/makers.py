"""True solutions made by hand: dense, slow, in float64 with a refined solve, and none of it from the library."""

import copy
import warnings
from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
from scipy.optimize import linprog

from cvxmdp_verifier import verify

LD = np.longdouble
TOLERANCE = 1e-5


@dataclass
class Case:
    """A model and a solution as in files, and between which numbers each claim is true."""

    model: tuple
    solution: tuple
    truths: dict = field(default_factory=dict)
    sets: dict = field(default_factory=dict)
    terms: dict = field(default_factory=dict)

    def copy(self):
        return Case(copy.deepcopy(self.model), copy.deepcopy(self.solution), self.truths, self.sets, self.terms)

    def verify(self):
        return verify(self.model, self.solution, TOLERANCE, self.sets, self.terms)


class World:
    """A small dense model with everything at hand."""

    def __init__(self, seed=0, S=4, A=3, gamma=0.9, costs=("time", "crash"), sparse=False, uneven=True):
        rng = np.random.default_rng(seed)
        pairs = [(s, a) for s in range(S) for a in range(A) if not uneven or a < 2 or s % 2 == 0]
        self.state, self.action = (np.array(column) for column in zip(*pairs, strict=True))
        self.L, self.S, self.A, self.gamma, self.sparse = len(pairs), S, A, gamma, sparse
        P = rng.dirichlet(np.full(S, 0.5), size=self.L)
        P[P < 0.02] = 0
        self.P = P / P.sum(axis=1, keepdims=True)
        self.rho = rng.dirichlet(np.ones(S))
        self.costs = {name: rng.uniform(size=self.L) for name in costs}
        self.Xi = np.equal.outer(np.arange(S), self.state).astype(float)
        self.states = [f"s{i}" for i in range(S)]

    @property
    def flow(self):
        return self.Xi - self.gamma * self.P.T, (1 - self.gamma) * self.rho

    def file(self):
        header = {
            "kind": "cvxmdp model", "version": 2, "discount": self.gamma, "states": list(self.states),
            "actions": self.A, "costs": list(self.costs),
        }  # fmt: skip
        arrays = {"state": self.state, "action": self.action, "initial": self.rho}
        arrays |= {f"cost:{i}": cost for i, cost in enumerate(self.costs.values())}
        arrays |= compressed("P", self.P) if self.sparse else {"P": self.P}
        return header, arrays

    def policy_of(self, d):
        d = np.maximum(d, 0)
        x = self.Xi @ d
        even = 1 / (self.Xi @ np.ones(self.L))
        pi = np.where(x[self.state] > 1e-12, d / np.maximum(x, 1e-300)[self.state], even[self.state])
        return pi / (self.Xi @ pi)[self.state]

    def visits(self, pi):
        """Solve for the visits in extended precision, and bound their error."""
        P = self.P.astype(LD) / self.P.astype(LD).sum(axis=1, keepdims=True)
        pi = pi.astype(LD) / (self.Xi.astype(LD) @ pi.astype(LD))[self.state]
        A = np.eye(self.S, dtype=LD) - LD(self.gamma) * (self.Xi.astype(LD) @ (pi[:, None] * P)).T
        b = (1 - LD(self.gamma)) * self.rho.astype(LD) / self.rho.astype(LD).sum()
        x = np.zeros(self.S, dtype=LD)
        for _ in range(5):
            x = x + np.linalg.solve(A.astype(float), (b - A @ x).astype(float))
        w = np.linalg.solve(A.astype(float), 1e-17 * x.astype(float) + 1e-25)
        return x, w, x[self.state] * pi

    def potential(self, cost):
        """Policy iteration without limits."""
        choice = np.array([np.flatnonzero(self.state == s)[0] for s in range(self.S)])
        for _ in range(100):
            V = np.linalg.solve(np.eye(self.S) - self.gamma * self.P[choice], cost[choice])
            for _ in range(2):
                residual = cost[choice] - V.astype(LD) + LD(self.gamma) * (self.P[choice].astype(LD) @ V.astype(LD))
                V = V + np.linalg.solve(np.eye(self.S) - self.gamma * self.P[choice], residual.astype(float))
            q = cost + self.gamma * self.P @ V
            better = np.array([np.flatnonzero(self.state == s)[np.argmin(q[self.state == s])] for s in range(self.S)])
            if np.all(q[better] >= q[choice] - 1e-13):
                break
            choice = better
        pi = np.zeros(self.L)
        pi[choice] = 1
        return V, pi

    def least(self, cost, V):
        reduced = cost + self.gamma * self.P @ V - V[self.state]
        return (1 - self.gamma) * self.rho @ V + reduced.min()


def compressed(name, matrix):
    rows, columns = np.nonzero(matrix)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=matrix.shape[0]))))
    return {
        f"{name}_data": matrix[rows, columns], f"{name}_indices": columns.astype(np.int32),
        f"{name}_indptr": indptr.astype(np.int32), f"{name}_shape": np.array(matrix.shape),
    }  # fmt: skip


# Each limit and term: header entry, arrays, level, excess, normal and top of a dual array, scale.


class Limit:
    def __init__(self, kind, name, words=(), arrays=(), priority=1, weight=None):
        self.entry = {"kind": kind, "name": name, "priority": priority, "weight": weight, **dict(words)}
        self.arrays, self.name = dict(arrays), name
        self.size = 1

    def excess(self, d):
        return max(float(np.max(self.level(d) - self.limit)), 0.0)


def _interval(values, lower, upper):
    return max(float(np.max(np.maximum(values - upper, lower - values))), 0.0)


def _box_top(m, lower, upper):
    return float(
        np.sum(np.where(m > 0, m * np.where(m > 0, upper, 0), 0) + np.where(m < 0, m * np.where(m < 0, lower, 0), 0))
    )


class Rows(Limit):
    def __init__(self, name, rows, upper=None, lower=None, row_names=None, sparse=False, **more):
        self.rows = np.atleast_2d(rows)
        n = self.rows.shape[0]
        self.upper = np.full(n, np.inf) if upper is None else np.atleast_1d(np.asarray(upper, float))
        self.lower = np.full(n, -np.inf) if lower is None else np.atleast_1d(np.asarray(lower, float))
        arrays = {"upper": self.upper, "lower": self.lower}
        arrays |= compressed("rows", self.rows) if sparse else {"rows": self.rows}
        super().__init__("linear", name, {"row_names": row_names}, arrays, **more)
        self.zero = np.zeros(n)

    def level(self, d):
        out = np.asarray(self.rows @ d, dtype=float)
        return out if out.size > 1 else out.reshape(())

    def excess(self, d):
        return _interval(self.rows @ d, self.lower, self.upper)

    def normal(self, m):
        return self.rows.T @ m, _box_top(m, self.lower, self.upper)

    def price(self, m):
        return -m if m.size > 1 else (-m).reshape(())


class Box(Limit):
    def __init__(self, name, lower, upper, **more):
        self.lower, self.upper = lower, upper
        super().__init__("bounds", name, {}, {"lower": lower, "upper": upper}, **more)
        self.zero = np.zeros(lower.size)

    def level(self, d):
        return np.asarray(d, dtype=float)

    def excess(self, d):
        return _interval(d, self.lower, self.upper)

    def normal(self, u):
        return u, _box_top(u, self.lower, self.upper)

    def price(self, u):
        return -u


class Ball(Limit):
    def __init__(self, name, center, radius, p=2.0, weights=None, **more):
        self.center, self.p, self.weights, self.limit = center, p, weights, radius
        arrays = {"center": center} | ({} if weights is None else {"weights": weights})
        super().__init__("ball", name, {"p": "inf" if np.isinf(p) else p, "radius": radius}, arrays, **more)
        self.zero = np.zeros(center.size)
        self.q = np.inf if p == 1 else 1.0 if np.isinf(p) else p / (p - 1)

    def level(self, d):
        e = np.asarray(d, dtype=float) - self.center
        return np.asarray(np.linalg.norm(e, self.p) if self.weights is None else np.sqrt(np.sum(self.weights * e**2)))

    def length(self, u):
        return np.linalg.norm(u, self.q) if self.weights is None else np.sqrt(np.sum(u**2 / self.weights))

    def normal(self, u):
        return u, u @ self.center + self.limit * self.length(u)

    def price(self, u):
        return np.asarray(-self.length(u))


class Entropic(Limit):
    def __init__(self, name, world, reference, bound, of="pairs", sign=1, **more):
        self.world, self.reference, self.limit, self.of, self.sign = world, reference, bound, of, sign
        super().__init__("entropic", name, {"bound": bound, "of": of, "sign": sign}, {"reference": reference}, **more)
        self.zero = np.zeros(reference.size + 1)

    def _divergence(self, d):
        x = np.asarray(d if self.of == "pairs" else self.world.Xi @ d, dtype=float)
        some = x > 0
        if np.any(some & (self.reference == 0)):
            return np.inf
        return float(np.sum(x[some] * np.log(x[some] / self.reference[some])))

    def level(self, d):
        return np.asarray(-self.sign * self._divergence(d))

    def excess(self, d):
        return max(self._divergence(d) - self.limit, 0.0)

    def normal(self, dual):
        u, m = dual[:-1], dual[-1]
        there = self.reference > 0
        top = 0.0
        if m > 0:
            top = m * (self.limit + np.sum(self.reference[there] * np.exp(u[there] / m - 1)))
        return (u if self.of == "pairs" else u[self.world.state]), top

    def price(self, dual):
        return np.asarray(self.sign * dual[-1])


class Ellipsoid(Limit):
    def __init__(self, name, cost, matrix, at_most, **more):
        self.cost, self.limit = cost, at_most
        self.Q = np.diag(matrix) if matrix.ndim == 1 else matrix
        super().__init__("ellipsoid", name, {"at_most": at_most}, {"cost": cost, "matrix": matrix}, **more)
        self.zero = np.zeros(cost.size + 1)

    def level(self, d):
        d = np.asarray(d, dtype=float)
        return np.asarray(self.cost @ d + np.sqrt(d @ self.Q @ d))

    def _multiplier(self, dual):
        return max(dual[0], np.sqrt(max(dual[1:] @ self.Q @ dual[1:], 0)))

    def normal(self, dual):
        return self._multiplier(dual) * self.cost + self.Q @ dual[1:], self._multiplier(dual) * self.limit

    def price(self, dual):
        return np.asarray(-self._multiplier(dual))


class Own(Limit):
    """A user's own set."""

    def __init__(self, name, project, zero, **more):
        super().__init__("custom", name, {}, {}, **more)
        self.project, self.zero, self.limit = project, zero, 0.0

    def level(self, d):
        d = np.asarray(d, dtype=float)
        return np.asarray(np.linalg.norm(d - self.project(d)))

    def normal(self, y):
        z = self.project(y)
        return y - z, (y - z) @ z

    def price(self, y):
        return np.asarray(-np.linalg.norm(y - self.project(y)))


class DistanceTerm:
    def __init__(self, name, center, weight, p=2.0):
        self.entry = {"kind": "distance", "name": name, "weight": weight, "p": "inf" if np.isinf(p) else p}
        self.arrays, self.center, self.weight, self.p = {"center": center}, center, weight, p

    def value(self, d):
        return self.weight * np.linalg.norm(np.asarray(d, float) - self.center, self.p)

    def scale(self, d):
        return self.weight * (np.linalg.norm(np.asarray(d, float), self.p) + np.linalg.norm(self.center, self.p))

    def slope(self, u):
        return u, u @ self.center


class EntropicTerm:
    def __init__(self, name, world, reference, weight, of="pairs", allowed=None):
        self.world, self.reference, self.weight, self.of, self.allowed = world, reference, weight, of, allowed
        self.entry = {"kind": "entropic", "name": name, "weight": weight, "of": of}
        self.arrays = {"reference": reference} | ({} if allowed is None else {"allowed": allowed})

    def _x(self, d):
        d = np.asarray(d, float)
        x = d if self.of == "pairs" else self.world.Xi @ d
        return x if self.allowed is None else x[self.allowed]

    def value(self, d):
        x, r = self._x(d), self.reference
        return self.weight * float(np.sum(x[x > 0] * np.log(x[x > 0] / r[x > 0])))

    def scale(self, d):
        x, r = self._x(d), self.reference
        x, r = x[x > 0], r[x > 0]
        return self.weight * float(np.sum(x * (np.abs(np.log(x)) + np.abs(np.log(r)))))

    def slope(self, u):
        top = self.weight * np.sum(self.reference * np.exp(u / self.weight - 1))
        if self.of == "states":
            return u[self.world.state], top
        if self.allowed is not None:
            full = np.zeros(self.world.L)
            full[self.allowed] = u
            return full, top
        return u, top


class OwnTerm:
    """Half the sum of squares."""

    entry = {"kind": "custom", "name": "squares"}  # noqa: RUF012
    arrays = {}  # noqa: RUF012

    def value(self, d):
        d = np.asarray(d, float)
        return 0.5 * float(d @ d)

    def prox(self, y, step):
        return y / (1 + step)

    def scale(self, d):
        n = len(d)
        return max(abs(self.value(d)), 1e-3 * abs(self.value(np.full(n, 1 / n))))

    def slope(self, y):
        z = self.prox(y, 1.0)
        return y - z, (y - z) @ z - self.value(z)


def record(world, name, pi):
    x, w, _ = world.visits(pi)
    high = x.astype(float)
    return {
        f"{name}:probabilities": pi, f"{name}:visits": np.array([high, (x - high).astype(float)]),
        f"{name}:visits_error": w,
    }  # fmt: skip


def duals(name, V, arrays):
    return {f"{name}:potential": V} | {f"{name}:dual:{i}": np.asarray(a, float) for i, a in enumerate(arrays)}


def solution(world, limits, pi, terms=(), named=("time",), cost=None, status="OPTIMAL", tolerance=TOLERANCE):
    """What is said of a policy, but for bound, gap, prices and infeasibility."""
    cost = sum((world.costs[n] for n in named if n is not None), np.zeros(world.L)) if cost is None else cost
    d = world.visits(pi)[2]
    value = float(cost @ d) + sum(term.value(d) for term in terms)
    header = {
        "kind": "cvxmdp solution", "version": 2, "states": list(world.states), "actions": world.A,
        "objective": {"text": " + ".join(n or "a vector" for n in named) or "terms", "costs": list(named)},
        "limits": [limit.entry for limit in limits], "terms": [term.entry for term in terms],
        "status": status, "tolerance": tolerance, "value": value, "bound": None, "gap": None,
        "costs": {n: float(c @ d) for n, c in world.costs.items()},
        "discount": world.gamma, "errors": {n: 1e-15 for n in ("value", *world.costs)},
        "violations": {li.name: (li.excess(d) if np.isfinite(li.excess(d)) else "inf") for li in limits},
        "infeasibility": None, "stats": {"seconds": 0.1, "anything": [None]},
    }  # fmt: skip
    occupancy = d.astype(float)
    arrays = {"state": world.state, "action": world.action, "occupancy": occupancy, "cost": cost}
    arrays |= {"visits": world.Xi @ occupancy, "probabilities": pi, **record(world, "policy", pi)}
    for i, limit in enumerate(limits):
        arrays |= {f"limit:{i}:{key}": a for key, a in limit.arrays.items()}
        arrays[f"level:{i}"] = limit.level(d)
        arrays[f"price:{i}"] = np.full_like(limit.price(limit.zero), np.nan)
    for i, term in enumerate(terms):
        arrays |= {f"term:{i}:{key}": a for key, a in term.arrays.items()}
    return header, arrays, d


def proven(world, limits, pi, multipliers=None, terms=(), slopes=(), optimum=None, **more):
    """A solution with a bound: OPTIMAL where the duals are good enough."""
    header, arrays, d = solution(world, limits, pi, terms, **more)
    multipliers = [limit.zero for limit in limits] if multipliers is None else multipliers
    parts = [li.normal(m) for li, m in zip(limits, multipliers, strict=True)]
    parts += [t.slope(u) for t, u in zip(terms, slopes, strict=True)]
    total = arrays["cost"] + sum((u for u, _ in parts), np.zeros(world.L))
    V, _ = world.potential(total)
    scale = float(np.abs(arrays["cost"]) @ d) + sum(term.scale(d) for term in terms)
    bound = world.least(total, V) - sum(top for _, top in parts) - 1e-13 * (1 + np.abs(total).max() / (1 - world.gamma))
    gap = max((header["value"] - bound) / scale, 0) + 1e-12
    header |= {"bound": float(bound), "gap": float(gap)}
    arrays |= duals("bound", V, [*multipliers, *slopes])
    if header["status"] == "OPTIMAL":
        arrays |= {f"price:{i}": li.price(m) for i, (li, m) in enumerate(zip(limits, multipliers, strict=True))}
    value = header["value"]
    optimum = value if optimum is None else optimum
    truths = {
        ("value",): (value, value), ("bound",): (-np.inf, optimum), ("gap",): ((value - optimum) / scale, np.inf),
        ("tolerance",): ((value - optimum) / scale, np.inf),
    }  # fmt: skip
    sets = {li.name: li.project for li in limits if isinstance(li, Own)}
    own = {t.entry["name"]: (t.value, t.prox) for t in terms if isinstance(t, OwnTerm)}
    return Case(world.file(), (header, arrays), truths, sets, own)


def program(world, cost, limits_of, terms_of=None):
    """Solve by cvxpy; return the occupancy, the optimum and the multipliers of the limits."""
    d = cp.Variable(world.L, nonneg=True)
    A, b = world.flow
    limits = limits_of(d)
    objective = cost @ d + (0 if terms_of is None else terms_of(d))
    problem = cp.Problem(cp.Minimize(objective), [A @ d == b, *limits])
    for exact in (1e-11, 1e-10, 1e-9):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an answer that is not as exact as asked for
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=exact, tol_gap_rel=exact, tol_feas=exact)
        if problem.status == "optimal":
            break
    assert problem.status == "optimal"
    return np.maximum(d.value, 0), float(problem.value), [np.atleast_1d(c.dual_value) for c in limits]


def linear_program(world, cost, rows, upper):
    """Solve by HiGHS; return the occupancy, the optimum and multipliers that are not negative."""
    A, b = world.flow
    done = linprog(cost, A_ub=rows, b_ub=upper, A_eq=A, b_eq=b, method="highs")
    assert done.status == 0, done.message
    return done.x, done.fun, -done.ineqlin.marginals


def least_relaxation(world, rows, upper, units):
    """The least t for which ``rows d <= upper + t units`` has a policy; the occupancy, and the multipliers."""
    A, b = world.flow
    done = linprog(
        np.append(np.zeros(world.L), 1), A_ub=np.hstack([rows, -units[:, None]]), b_ub=upper,
        A_eq=np.hstack([A, np.zeros((world.S, 1))]), b_eq=b, bounds=[(0, None)] * world.L + [(None, None)],
        method="highs",
    )  # fmt: skip
    return done.x[:-1], done.x[-1], -done.ineqlin.marginals if done.status == 0 else None
