"""Path following: its normal equations by dense ones, its answers by CVXPY and HiGHS, and problems that once failed."""

import os
import re
import signal
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp._path import Equations
from cvxmdp.dynamics.normal import Pattern
from engine_oracles import with_absorbing_state, with_unreachable_states
from oracles import as_mdp, flow_matrix, inflow, lp_optimum, occupancy, owner_matrix, random_model, random_policy

OPTIMAL = cm.Status.OPTIMAL


def as_model(mdp):
    """A model as plain arrays, its first cost the one to minimize, its second one to limit."""
    P = mdp.transitions
    return {
        "state": np.asarray(mdp.state),
        "action": np.asarray(mdp.action),
        "P": P.toarray() if sp.issparse(P) else np.asarray(P),
        "costs": {name: np.asarray(cost) for name, cost in mdp.costs.items()},
        "initial": np.asarray(mdp.initial),
        "discount": mdp.discount,
    }


def with_one_action(model):
    """Only the first pair of each state is left."""
    first = np.unique(model["state"], return_index=True)[1]
    costs = {name: cost[first] for name, cost in model["costs"].items()}
    return model | {"state": model["state"][first], "action": 0 * first, "P": model["P"][first], "costs": costs}


@cache
def models():
    """By name: plain arrays, whether P is sparse, the cost to minimize and one to limit."""
    worlds = {
        "queue": (cm.worlds.queue(12, discount=0.98), "delay", "power"),
        "grid": (cm.worlds.gridworld(4), "time", "collision"),
        "inventory": (cm.worlds.inventory(8, demand=2.0, discount=0.95), "cost", "shortage"),
        "lake": (cm.worlds.lake(4, holes=0.2), "time", "hole"),
        "disk drive": (cm.worlds.disk_drive(discount=0.99), "power", "queue"),
    }
    found = {name: (as_model(mdp), True, *costs) for name, (mdp, *costs) in worlds.items()}
    stock = found["inventory"][0]["costs"]
    stock["cost"] = stock["cost"] + 20 * stock["shortage"]  # else it is best to order nothing
    for model, _, minimize, _ in found.values():
        cost = model["costs"][minimize]  # where actions do the same, one is the best
        model["costs"][minimize] = cost + 0.1 * cost.mean() * np.random.default_rng(1).uniform(size=cost.size)
    odd = {
        "dense": random_model(0, states=6, actions=3),
        "ragged": random_model(2, states=8, actions=4, ragged=True),
        "one state": random_model(3, states=1, actions=5),
        "short memory": random_model(5, states=6, actions=3, discount=0.5),
        "longest memory": random_model(6, states=6, actions=3, discount=1 - 1e-6),
        "absorbing": with_absorbing_state(random_model(7, states=6, actions=3)),
        "unreachable": with_unreachable_states(random_model(8, states=7, actions=3)),
    }
    return found | {name: (model, False, "cost", "risk") for name, model in odd.items()}


@dataclass
class Setting:
    """What limits are made from: an even policy, which obeys them, and the best one, which does not."""

    model: dict
    cost: np.ndarray
    other: np.ndarray
    even: np.ndarray = field(init=False)
    best: np.ndarray = field(init=False)

    def __post_init__(self):
        state = self.model["state"]
        self.even = occupancy(self.model, 1 / np.bincount(state)[state])
        total = np.ones((1, self.cost.size))  # said apart, since the flows say it but (1 - discount) times
        _, best, _ = lp_optimum(
            self.model, self.cost / np.abs(self.cost).max(), np.vstack([total, -total]), np.array([1.0, -1.0])
        )
        self.best = np.maximum(best, 0.0)
        self.Xi = owner_matrix(self.model).T
        self.rng = np.random.default_rng(0)

    def half(self, of):
        """Half way between what both policies do."""
        return 0.5 * of(self.even) + 0.5 * of(self.best)


@dataclass
class Stated:
    """A problem for cvxmdp, and for CVXPY with the variable d."""

    constraints: list[Any] = field(default_factory=list)
    limits: Any = lambda d: []
    terms: list[Any] = field(default_factory=list)
    added: Any = lambda d: 0.0

    def __add__(self, other):
        return Stated(
            self.constraints + other.constraints,
            lambda d: self.limits(d) + other.limits(d),
            self.terms + other.terms,
            lambda d: self.added(d) + other.added(d),
        )


def budget(the, share=0.5):
    """On a cost that is high where the best policy goes."""
    row = the.other + the.Xi.T @ (the.Xi @ the.best) * np.abs(the.other).max() + the.best * np.abs(the.other).max()
    bound = float(row @ ((1 - share) * the.even + share * the.best))
    return Stated([cm.Budget(row, at_most=bound)], lambda d: [row @ d <= bound])


def ball(p, weighted=False):
    def state(the):
        n = the.even.size
        w = the.rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
        apart = np.sqrt(w) * (the.best - the.even) if weighted else the.best - the.even
        radius = 0.5 * float(np.linalg.norm(apart, p))
        limit = cm.NormBall(the.even, radius, norm=p, weights=w if weighted else None)
        return Stated([limit], lambda d: [cp.norm(cp.multiply(np.sqrt(w), d - the.even) / radius, p) <= 1])

    return state


def entropy_of(x):
    x = x[x > 0]
    return -float(np.sum(x * np.log(x)))


def entropy(of):
    def state(the):
        M = the.Xi if of == "states" else np.eye(the.even.size)
        # The most spread policy may be another one than the even one, which still has more than the best one here.
        least = the.half(lambda d: entropy_of(M @ d))
        return Stated([cm.Entropy(at_least=least, of=of)], lambda d: [cp.sum(cp.entr(M @ d)) >= least])

    return state


def kl_value(d, reference):
    some = d > 1e-300
    return float(np.sum(d[some] * np.log(d[some] / reference[some])))


def kl(the):
    """Where the reference is zero, as in states that are never reached, d has to be zero."""
    mixed = 0.9 * the.even + 0.1 * the.best
    some = mixed > 0
    radius = 0.3 * kl_value(the.best, np.where(some, mixed, 1.0))
    return Stated([cm.KLBall(mixed, radius)], lambda d: kl_limit(d, mixed, radius))


def kl_limit(d, reference, radius):
    some = reference > 0
    limits = [cp.sum(cp.rel_entr(d[some], reference[some])) <= radius]
    return limits if np.all(some) else [*limits, d[~some] == 0]


def kl_with_zeros(the):
    """The reference never takes one of the pairs of each state that has several."""
    state = the.model["state"]
    several = np.bincount(state)[state] > 1
    first = np.zeros(state.size, dtype=bool)
    first[np.unique(state, return_index=True)[1]] = True
    pi = np.where(first & several, 0.0, 1.0)
    reference = occupancy(the.model, pi / np.bincount(state, pi)[state])
    return Stated([cm.KLBall(reference, 0.05)], lambda d: kl_limit(d, reference, 0.05))


def caps(the, two_sided=False):
    careful, best = the.Xi @ the.even, the.Xi @ the.best
    upper = np.maximum(careful, 0.5 * (careful + best))
    if not two_sided:
        return Stated([cm.StateBounds(upper=upper)], lambda d: [the.Xi @ d <= upper])
    lower = 0.5 * careful
    return Stated([cm.StateBounds(lower=lower, upper=upper)], lambda d: [the.Xi @ d <= upper, the.Xi @ d >= lower])


def equal_rows(the):
    known = the.half(np.asarray)
    E = the.rng.normal(size=(min(2, the.even.size - the.Xi.shape[0]), the.even.size))
    return Stated([cm.Linear(E, equal=E @ known)], lambda d: [E @ d == E @ known])


def two_sided_rows(the):
    E = np.vstack([the.best - the.even, the.rng.normal(size=(3, the.even.size))])
    room = 0.3 * np.abs(E @ (the.best - the.even)) + 1e-3 * np.abs(E) @ the.even
    upper, lower = E @ the.even + room, E @ the.even - 2 * room
    return Stated([cm.Linear(E, at_most=upper, at_least=lower)], lambda d: [E @ d <= upper, E @ d >= lower])


def bounds(side):
    def state(the):
        lower, upper = 0.5 * the.even, np.maximum(the.even, 0.5 * (the.even + the.best))
        limit = cm.Bounds(lower if side != "upper" else None, upper if side != "lower" else None)
        return Stated([limit], lambda d: [d >= lower] * (side != "upper") + [d <= upper] * (side != "lower"))

    return state


def robust(shape):
    def state(the):
        cost, n = the.best / np.abs(the.best).max() + np.abs(the.other) / np.abs(the.other).max(), the.even.size
        off = 0.3 * the.rng.uniform(size=n)
        if shape == "box":
            bound = the.half(lambda d: (cost + off) @ d)
            return Stated([cm.RobustBudget(cost, cm.Box(off), at_most=bound)], lambda d: [(cost + off) @ d <= bound])
        if shape == "vertices":
            errors = off * the.rng.uniform(-1, 1, size=(4, n))
            E = cost + errors
            bound = the.half(lambda d: np.max(E @ d))
            return Stated([cm.RobustBudget(cost, cm.Vertices(errors), at_most=bound)], lambda d: [E @ d <= bound])
        if shape == "ellipsoid":
            L, Q = np.diag(off), off**2
        else:
            L = 0.3 * the.rng.normal(size=(n, 3))
            Q = L @ L.T
        bound = the.half(lambda d: cost @ d + np.linalg.norm(L.T @ d))
        limit = cm.RobustBudget(cost, cm.Ellipsoid(Q), at_most=bound)
        return Stated([limit], lambda d: [cost @ d + cp.norm(L.T @ d) <= bound])

    return state


def forbidden_pairs(the):
    """One of the pairs of each state that has several must not be taken."""
    state = the.model["state"]
    several = np.flatnonzero(np.bincount(state) > 1)
    last = np.searchsorted(state, several, side="right") - 1
    upper = np.full(state.size, np.inf)
    upper[last] = 0.0
    return Stated([cm.Bounds(upper=upper)], lambda d: [d[last] <= 0])


def distance(p):
    def state(the):
        saved = float(the.cost @ (the.even - the.best)) / float(np.linalg.norm(the.best - the.even, p))
        weight = 0.5 * saved
        return Stated(
            terms=[cm.Distance(the.even, weight=weight, norm=p)], added=lambda d: weight * cp.norm(d - the.even, p)
        )

    return state


def entropy_term(of):
    def state(the):
        M = the.Xi if of == "states" else np.eye(the.even.size)
        weight = 0.3 * float(the.cost @ (the.even - the.best))
        return Stated(terms=[cm.NegativeEntropy(weight, of=of)], added=lambda d: -weight * cp.sum(cp.entr(M @ d)))

    return state


def kl_term(the):
    weight, some = 0.3 * float(the.cost @ (the.even - the.best)), the.even > 0
    return Stated(
        terms=[cm.KL(the.even, weight)],
        added=lambda d: weight * cp.sum(cp.rel_entr(d[some], the.even[some])),
        limits=lambda d: [] if np.all(some) else [d[~some] == 0],
    )


def both(*states):
    def state(the):
        first, *others = (state(the) for state in states)
        for other in others:
            first = first + other
        return first

    return state


KINDS = {
    "nothing": lambda the: Stated(),
    "budget": budget,
    "two-sided rows": two_sided_rows,
    "equal rows": equal_rows,
    "caps": caps,
    "two-sided caps": lambda the: caps(the, two_sided=True),
    "pair bounds, lower": bounds("lower"),
    "pair bounds, upper": bounds("upper"),
    "pair bounds": bounds("both"),
    "forbidden pairs": forbidden_pairs,
    "1-norm ball": ball(1),
    "1.5-norm ball": ball(1.5),
    "2-norm ball": ball(2),
    "3-norm ball": ball(3),
    "inf-norm ball": ball(np.inf),
    "weighted ball": ball(2, weighted=True),
    "entropy of pairs": entropy("pairs"),
    "entropy of states": entropy("states"),
    "KL ball": kl,
    "KL ball with zeros": kl_with_zeros,
    "robust, box": robust("box"),
    "robust, vertices": robust("vertices"),
    "robust, ellipsoid": robust("ellipsoid"),
    "robust, full ellipsoid": robust("full"),
    "distance term": distance(2),
    "1-norm distance term": distance(1),
    "inf-norm distance term": distance(np.inf),
    "entropy term": entropy_term("pairs"),
    "entropy of states term": entropy_term("states"),
    "KL term": kl_term,
    "budget and ball": both(budget, ball(2)),
    "budget and entropy": both(lambda the: budget(the, 0.7), entropy("pairs")),
    "caps and KL": both(caps, kl),
    "caps and entropy of states": both(caps, entropy("states")),
    "bounds and a term": both(bounds("upper"), distance(2)),
    "ball, caps and two terms": both(ball(1), caps, entropy_term("pairs"), distance(np.inf)),
}


def make(model, sparse, minimize, limit, state):
    """The problem, with what it is made from."""
    cost = model["costs"][minimize]
    the = Setting(model, cost, model["costs"][limit])
    stated = state(the)
    minimized = [cost, *stated.terms] if stated.terms else cost
    return cm.Problem(as_mdp(model, sparse), minimized, stated.constraints), the, stated


def solve_both(model, sparse, minimize, limit, state):
    """The problem, our solution, and the value that CVXPY finds."""
    problem, the, stated = make(model, sparse, minimize, limit, state)
    solution, cost = problem.solve(method="path"), the.cost
    d = cp.Variable(cost.size, nonneg=True)
    A, q, unit = flow_matrix(model), inflow(model), np.abs(cost).max()
    flows = [A @ d / np.abs(q).max() == q / np.abs(q).max(), cp.sum(d) == 1]
    peer = cp.Problem(cp.Minimize((cost @ d + stated.added(d)) / unit), flows + stated.limits(d))
    peer.solve(cp.CLARABEL, max_threads=1)
    return problem, solution, unit * peer.value


def assert_same(problem, solution, value):
    assert solution.status is OPTIMAL, solution.stats.method
    assert solution.stats.method.startswith("path following") or "policy iteration" in solution.stats.method
    solution.certificate.check(problem)
    scale = float(np.abs(problem.cost) @ solution.occupancy) + abs(value)
    assert solution.value == pytest.approx(value, abs=1e-5 * scale)


HARD = {("disk drive", "robust, full ellipsoid"), ("disk drive", "ball, caps and two terms")}
"""Too much for CVXPY or Clarabel."""


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in models() for kind in KINDS if (name, kind) not in HARD]
)
def test_cvxpy_finds_the_same_optimum(name, kind):
    assert_same(*solve_both(*models()[name], KINDS[kind]))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("nothing", "forbidden pairs")])
def test_the_limits_and_terms_of_these_tests_matter(kind):
    """The best policy without them is not the best one with them, at least on half of the models."""
    matters = []
    for name in ("queue", "grid", "inventory", "dense"):
        problem, the, _ = make(*models()[name], KINDS[kind])
        matters.append(np.abs(problem.solve(method="path").occupancy - the.best).sum() > 1e-2)
    assert sum(matters) >= 2


@pytest.mark.parametrize("seed", range(12))
def test_sides_of_every_kind_together(seed):
    """Some states and pairs have a lower limit, an upper one, both, none, or one that holds with equality."""
    model = random_model(seed, states=7, actions=3, ragged=bool(seed % 2), discount=(0.5, 0.9, 0.999)[seed % 3])
    rng, pairs = np.random.default_rng(seed), model["state"].size
    known, Xi = occupancy(model, random_policy(model, seed)), owner_matrix(model).T
    low, high = [], []
    for level in (Xi @ known, known):
        lower = np.where(rng.random(level.size) < 0.5, rng.uniform(0.3, 0.9, level.size) * level, 0.0)
        upper = np.where(rng.random(level.size) < 0.5, rng.uniform(1.1, 2.0, level.size) * level, 1.5)
        equal = rng.random(level.size) < 0.2
        low.append(np.where(equal, level, lower))
        high.append(np.where(equal, level, upper))
    E = rng.normal(size=(3, pairs))
    E[0] = 0.0
    upper, lower = E @ known + [0.0, 0.05, 0.0], E @ known - [1.0, 0.02, np.inf]
    limits = [cm.StateBounds(low[0], high[0]), cm.Bounds(low[1], high[1]), cm.Linear(E, at_most=upper, at_least=lower)]
    problem = cm.Problem(as_mdp(model), "cost", limits)
    rows = np.vstack([Xi, -Xi, np.eye(pairs), -np.eye(pairs), E, -E[:2]])
    sides = np.concatenate([high[0], -low[0], high[1], -low[1], upper, -lower[:2]])
    assert_same(problem, problem.solve(method="path"), lp_optimum(model, problem.cost, rows, sides)[0])


@pytest.mark.parametrize(
    "kind", ["budget", "caps", "2-norm ball", "1-norm ball", "entropy of pairs", "robust, ellipsoid"]
)
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_of_the_cost_do_not_matter(kind, scale):
    model, *rest = models()["queue"]
    scaled = model | {"costs": {name: scale * cost for name, cost in model["costs"].items()}}
    assert_same(*solve_both(scaled, *rest, KINDS[kind]))


@pytest.mark.parametrize("kind", ["caps", "entropy of states", "budget and ball"])
def test_dense_and_sparse_transitions_give_the_same(kind):
    model, _, *rest = models()["grid"]
    dense, sparse = (solve_both(model, sparse, *rest, KINDS[kind])[1] for sparse in (False, True))
    assert dense.status is sparse.status is OPTIMAL
    assert dense.value == pytest.approx(sparse.value, rel=2e-6)


SINGLE = {
    "budget": lambda model, d: cm.Budget("risk", at_most=1.1 * float(model["costs"]["risk"] @ d)),
    "caps": lambda model, d: cm.StateBounds(upper=1.1 * d),
    "ball": lambda model, d: cm.NormBall(d, 0.1),
    "1-norm ball": lambda model, d: cm.NormBall(d, 0.1, norm=1),
    "entropy": lambda model, d: cm.Entropy(entropy_of(d) - 0.1),
    "KL ball": lambda model, d: cm.KLBall(d, 0.1),
    "ellipsoid": lambda model, d: cm.RobustBudget("risk", cm.Ellipsoid(np.ones(d.size)), at_most=2.0),
}


@pytest.mark.parametrize("kind", SINGLE)
def test_the_only_policy_is_found_where_there_is_one_action(kind):
    model = with_one_action(random_model(4, states=6, actions=3))
    d = occupancy(model, np.ones(6))
    problem = cm.Problem(as_mdp(model), "cost", [SINGLE[kind](model, d)])
    solution = problem.solve(method="path")
    assert solution.status is OPTIMAL
    solution.certificate.check(problem)
    np.testing.assert_allclose(solution.occupancy, d, atol=1e-12)


def avoidable(seed=5):
    """A random model whose last state is reached by the first action alone, from where all lead back."""
    model = random_model(seed, states=6, actions=3)
    P, initial = model["P"].copy(), np.array(model["initial"])
    P[model["action"] > 0, -1] = 0.0
    P /= P.sum(axis=1, keepdims=True)
    initial[-1] = 0.0
    cost = np.where(model["action"] == 0, -1.0, model["costs"]["cost"])  # which tempts to take it
    costs = model["costs"] | {"cost": cost}
    return model | {"P": P, "initial": initial / initial.sum(), "costs": costs}


NEVER = {
    "cap of a state": lambda model: cm.StateBounds(upper={5: 0.0}),
    "budget": lambda model: cm.Budget((model["state"] == 5).astype(float), at_most=0.0),
    "row": lambda model: cm.Linear(sp.csr_array((model["action"] == 0).astype(float)[None]), at_most=[0.0]),
    "bounds": lambda model: cm.Bounds(upper=np.where(model["action"] == 0, 0.0, 1.0)),
    "reference": lambda model: cm.KLBall(without_first(model), 0.5),
}


def without_first(model):
    pi = np.where((model["action"] == 0) & (model["state"] < 5), 0.0, random_policy(model, 1))
    return occupancy(model, pi / np.bincount(model["state"], pi)[model["state"]])


@pytest.mark.parametrize("more", ["nothing", "2-norm ball", "two-sided rows", "entropy of pairs", "distance term"])
@pytest.mark.parametrize("kind", NEVER)
def test_what_a_limit_of_zero_forbids_is_never_done(kind, more):
    """The other limits are made from the model without it: the state and the actions that lead there are left out."""
    model = avoidable()
    kept = (model["action"] > 0) & (model["state"] < 5)
    small = model | {
        "state": model["state"][kept], "action": model["action"][kept] - 1, "P": model["P"][kept][:, :5],
        "costs": {name: cost[kept] for name, cost in model["costs"].items()},
        "initial": model["initial"][:5],
    }  # fmt: skip
    the = Setting(small, small["costs"]["cost"], small["costs"]["risk"])
    stated = KINDS[more](the)

    def wide(x):
        out = np.zeros((*np.shape(x)[:-1], kept.size))
        out[..., kept] = x
        return out

    other = {
        "nothing": lambda: [],
        "2-norm ball": lambda: [cm.NormBall(wide(the.even), stated.constraints[0].radius)],
        "two-sided rows": lambda: [
            cm.Linear(wide(stated.constraints[0].rows), stated.constraints[0].upper, stated.constraints[0].lower)
        ],
        "entropy of pairs": lambda: [cm.Entropy(stated.constraints[0].at_least)],
        "distance term": lambda: [],
    }[more]()
    terms = [cm.Distance(wide(the.even), term.weight) for term in stated.terms]
    cost = model["costs"]["cost"]
    problem = cm.Problem(as_mdp(model), [cost, *terms] if terms else cost, [NEVER[kind](model), *other])
    solution = problem.solve(method="path")
    d = cp.Variable(the.cost.size, nonneg=True)
    limits = stated.limits(d) + ([] if kind != "reference" else kl_limit(d, without_first(model)[kept], 0.5))
    peer = cp.Problem(cp.Minimize(the.cost @ d + stated.added(d)), [flow_matrix(small) @ d == inflow(small), *limits])
    peer.solve(cp.CLARABEL, max_threads=1)
    assert_same(problem, solution, peer.value)
    assert np.max(solution.occupancy[~kept]) <= 1e-9


# The normal equations -------------------------------------------------------------------------------------------------


def sizes_over(rng, size, decades):
    return 10.0 ** rng.uniform(-decades, decades, size)


EQUATIONS = {
    "grid": (as_model(cm.worlds.gridworld(22)), True),
    "queue": (as_model(cm.worlds.queue(200)), True),
    "lake": (as_model(cm.worlds.lake(21, seed=1)), True),
    "tiny": (as_model(cm.worlds.inventory(8)), False),
    "filled": (random_model(0, states=70, actions=2), False),
    "one state": (random_model(0, states=1, actions=3), False),
    "ragged": (random_model(2, states=8, actions=4, ragged=True), False),
}


@pytest.mark.parametrize("stiff", ["none", "some", "all"])
@pytest.mark.parametrize("name", EQUATIONS)
def test_normal_equations_are_those_of_the_dense_matrices(name, stiff):
    model, sparse = EQUATIONS[name]
    rng = np.random.default_rng(0)
    A = flow_matrix(model)
    S, pairs = A.shape
    pattern = Pattern.of(sp.csr_array(model["P"]) if sparse else model["P"], model["state"], S, model["discount"])
    assert (pattern.order is not None) == sparse
    x, V = rng.normal(size=pairs), rng.normal(size=S)
    np.testing.assert_allclose(pattern.back(V), A.T @ V, atol=1e-12)
    Xi = owner_matrix(model)
    np.testing.assert_allclose(pattern.per_state(x), Xi.T @ x, atol=1e-12)
    equations = Equations(pattern)
    for ground in {0, S - 1}:  # the second time the pattern of the factor is known
        W, stiffness = sizes_over(rng, pairs, 1.0), sizes_over(rng, S, 2.0)
        if stiff == "some":
            stiffness[::2] = 0.0
        elif stiff == "none":
            stiffness[:] = 0.0
        shift = rng.uniform()
        assert equations.factor(W, 1 / (1 + stiffness * (Xi.T @ W)), ground, shift)
        M = np.zeros((S, S))
        M[ground, ground] = shift
        for s in range(S):
            mine = model["state"] == s
            K = np.diag(1 / W[mine]) + stiffness[s]  # over the pairs of a state
            M += A[:, mine] @ np.linalg.solve(K, A[:, mine].T)
        right = rng.normal(size=(S, 2))
        expected = np.linalg.solve(M, right)
        found = np.ascontiguousarray(right.T)
        equations.solve(found)
        np.testing.assert_allclose(found.T, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())


def test_normal_equations_with_weights_of_all_sizes_lose_no_digits():
    """Visits of 1e-30 beside those near one: the matrix is a sum of squares, scaled by its diagonal it is as good."""
    mdp = cm.worlds.queue(100, discount=0.9)
    model = as_model(mdp)
    A = flow_matrix(model)
    W = 10.0 ** (-30 * model["state"] / 100)
    pattern = Pattern.of(sp.csr_array(model["P"]), model["state"], A.shape[0], 0.9)
    equations = Equations(pattern)
    assert equations.factor(W, np.ones(A.shape[0]), 0, 0.0)
    expected = np.random.default_rng(0).normal(size=A.shape[0])
    found = (A * W) @ A.T @ expected
    equations.solve(found)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# What it hands back ---------------------------------------------------------------------------------------------------


CONFLICTS = {
    "budget": lambda the: [cm.Budget(np.ones(the.even.size), at_most=0.9)],
    "caps": lambda the: [cm.StateBounds(upper=0.9 / the.Xi.shape[0])],
    "bounds": lambda the: [cm.Bounds(upper=0.5 / the.even.size)],
    "entropy": lambda the: [cm.Entropy(np.log(the.even.size) - 1e-3)],
    "two balls": lambda the: [
        cm.NormBall(p, 0.3 * float(np.linalg.norm(the.best - the.even))) for p in (the.even, the.best)
    ],
    "KL ball and caps": lambda the: [cm.KLBall(the.even, 1e-3), cm.StateBounds(upper=0.5 * the.Xi @ the.even)],
    "equal rows": lambda the: [cm.Linear(np.ones((1, the.even.size)), equal=[1.01])],
}


@pytest.mark.parametrize("kind", CONFLICTS)
@pytest.mark.parametrize("name", ["queue", "grid"])
def test_where_no_policy_obeys_it_is_proven(name, kind):
    model, sparse, minimize, limit = models()[name]
    the = Setting(model, model["costs"][minimize], model["costs"][limit])
    problem = cm.Problem(as_mdp(model, sparse), minimize, CONFLICTS[kind](the))
    solution = problem.solve(explain=False)
    assert solution.status is cm.Status.INFEASIBLE
    assert solution.infeasibility.margin > 0
    solution.certificate.check(problem)


def grid_with_a_ball(size=8):
    mdp = cm.worlds.gridworld(size)
    return halfway(mdp, "time", lambda even, best: [cm.NormBall(even, 0.5 * float(np.linalg.norm(best - even)))])


def halfway(mdp, minimize, limits):
    """A problem with limits that are made from the occupancies of the even policy and of the best one."""
    even = mdp.evaluate(mdp.policy(np.ones(mdp.num_pairs) / np.bincount(mdp.state)[mdp.state])).occupancy
    best = cm.Problem(mdp, minimize).solve().occupancy
    return cm.Problem(mdp, minimize, limits(even, best))


@pytest.mark.parametrize("method", ["path", "auto"])
def test_a_time_limit_that_is_over_at_once_is_a_status_with_a_policy(method):
    problem = grid_with_a_ball()
    solution = problem.solve(method=method, time_limit=1e-9)
    assert solution.status is cm.Status.TIME_LIMIT
    solution.certificate.check(problem)
    np.testing.assert_allclose(np.bincount(solution.policy.state, solution.policy.probabilities), 1.0)


def test_ctrl_c_is_a_status_with_a_policy():
    problem = grid_with_a_ball()
    solution = problem.solve(method="path", callback=lambda progress: os.kill(os.getpid(), signal.SIGINT))
    assert solution.status is cm.Status.INTERRUPTED
    solution.certificate.check(problem)
    assert problem.solve(method="path").status is OPTIMAL


@pytest.mark.parametrize("steps", [1, 3])
def test_a_limit_of_steps_is_kept(steps):
    problem = grid_with_a_ball()
    solution = problem.solve(method="path", max_iterations=steps)
    assert solution.status is cm.Status.ITERATION_LIMIT
    assert solution.stats.iterations == steps
    solution.certificate.check(problem)


def test_settings_are_taken():
    solution = grid_with_a_ball().solve(method=cm.Path(evaluation="direct"))
    assert solution.status is OPTIMAL
    assert solution.stats.method.startswith("path following")


# Problems that once failed --------------------------------------------------------------------------------------------


def solved(problem):
    solution = problem.solve()
    assert solution.status is OPTIMAL
    solution.certificate.check(problem)
    return solution


def test_a_grid_of_25_x_25_cells_with_a_ball_half_way():
    solved(grid_with_a_ball(25))


def test_a_queue_of_501_states_with_a_ball():
    mdp = cm.worlds.queue(500)
    solved(halfway(mdp, "delay", lambda even, best: [cm.NormBall(even, 0.5 * float(np.linalg.norm(best - even)))]))


def test_two_queues_with_a_ball_in_the_1_norm():
    mdp = cm.worlds.tandem(15)
    ball = lambda even, best: [cm.NormBall(even, 0.5 * float(np.abs(best - even).sum()), norm=1)]  # noqa: E731
    solved(halfway(mdp, "delay", ball))


def test_two_queues_with_an_entropy_of_states():
    mdp = cm.worlds.tandem(15)

    def limit(even, best):
        had, has = (entropy_of(np.bincount(mdp.state, d)) for d in (even, best))
        return [cm.Entropy(0.5 * (had + has), of="states")]

    solution = solved(halfway(mdp, "delay", limit))
    assert solution.prices["entropy"] > 0  # it is active


def test_the_disk_drive_takes_the_power_that_others_found():
    problem = cm.Problem(cm.worlds.disk_drive(discount=0.9999), "power", [cm.Budget("queue", at_most=0.5)])
    assert solved(problem).value == pytest.approx(1.5219473920, rel=1e-6)


@pytest.mark.parametrize("short", [1e-4, 1e-5, 1e-7, 1e-9])
def test_the_disk_drive_with_a_budget_at_discounts_next_to_one(short):
    mdp = cm.worlds.disk_drive(discount=1 - short)
    queue = np.asarray(mdp.costs["queue"])
    least, most = cm.Problem(mdp, "queue").solve(), cm.Problem(mdp, "power").solve()
    limit = 0.5 * float(queue @ least.occupancy) + 0.5 * float(queue @ most.occupancy)
    solution = solved(cm.Problem(mdp, "power", [cm.Budget("queue", at_most=limit)]))
    assert solution.levels["queue"] == pytest.approx(limit, rel=1e-5)
    assert most.value < solution.value < least.costs["power"]


@pytest.mark.parametrize("kind", ["budget", "ball", "budget and ball"])
def test_a_lake_with_a_long_memory(kind):
    mdp = cm.worlds.lake(15, discount=0.9999)
    hole = np.asarray(mdp.costs["hole"])

    def limits(even, best):
        careful = cm.Problem(mdp, "hole").solve().occupancy
        known = 0.9 * careful + 0.1 * even
        budget = cm.Budget("hole", at_most=float(hole @ (0.5 * known + 0.5 * best)))
        ball = cm.NormBall(known, 0.5 * float(np.linalg.norm(best - known)))
        return [budget] * ("budget" in kind) + [ball] * ("ball" in kind)

    solved(halfway(mdp, "time", limits))


@pytest.mark.parametrize("method", ["auto", "path"])
@pytest.mark.parametrize("kind", ["budget", "caps", "1-norm ball", "caps and KL", "KL term"])
def test_nobody_is_told_to_raise_a_limit_of_iterations_that_nobody_set(kind, method):
    """Asked for more than floats can show, it says so."""
    problem, _, _ = make(*models()["grid"], KINDS[kind])
    solution = problem.solve(method=method, tolerance=1e-15)
    assert solution.status in (OPTIMAL, cm.Status.UNDECIDED)
    assert "max_iterations" not in solution.status.value


def decided(problem, method):
    solution = problem.solve(method=method)
    assert solution.status is OPTIMAL, solution.stats.method
    solution.certificate.check(problem)
    return solution


@pytest.mark.parametrize("method", ["path", "auto"])
@pytest.mark.parametrize("chance", [0.1, 1e-2, 1e-4])
@pytest.mark.parametrize("of", ["pair", "state"])
def test_a_forbidden_state_that_a_tempting_action_seldom_leads_to(of, chance, method):
    """State 0 stays at a cost of one, or for nothing with a small chance of state 1, which must not be visited."""
    P = np.array([[1.0, 0.0], [1 - chance, chance], [1.0, 0.0]])
    mdp = cm.MDP.from_pairs([0, 0, 1], [0, 1, 0], P, {"cost": [1.0, 0.0, 0.0]}, discount=0.9, initial=[1.0, 0.0])
    limit = cm.Bounds(upper=[np.inf, np.inf, 0.0]) if of == "pair" else cm.StateBounds(upper={1: 0.0})
    assert decided(cm.Problem(mdp, "cost", [limit]), method).value == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["path", "auto"])
@pytest.mark.parametrize("discount", [0.9, 0.99, 0.9999])
def test_a_forbidden_pair_that_leads_to_where_all_is_free(discount, method):
    """What it would save for ever is more than any cost or difference of values among the states that are left."""
    P = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    mdp = cm.MDP.from_pairs([0, 0, 1], [0, 1, 0], P, {"cost": [1.0, 1.0, 0.0]}, discount=discount, initial=[1.0, 0.0])
    problem = cm.Problem(mdp, "cost", [cm.Bounds(upper=[np.inf, 0.0, np.inf])])
    assert decided(problem, method).value == pytest.approx(1.0)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, np.inf])
def test_a_ball_around_a_point_with_negative_entries(p):
    def state(the):
        center = the.even.copy()
        center[[0, 7]] = [-0.02, -0.01]
        radius = 1.5 * float(np.linalg.norm(the.even - center, p))
        return Stated([cm.NormBall(center, radius, norm=p)], lambda d: [cp.norm(d - center, p) <= radius])

    assert_same(*solve_both(*models()["queue"], state))


@pytest.mark.parametrize("p", [1, 2, np.inf])
def test_a_distance_that_counts_so_much_that_its_center_is_best(p):
    """At the apex of the cone, in the 2-norm, path following stalls, and another engine goes on."""
    model, *rest = models()["queue"]
    weight = 30.0

    def state(the):
        term = cm.Distance(the.even, weight=weight * the.even.size, norm=p)
        return Stated(terms=[term], added=lambda d: weight * the.even.size * cp.norm(d - the.even, p))

    problem, the, _ = make(model, *rest, state)
    solution = decided(problem, "auto")
    assert solution.value == pytest.approx(float(the.cost @ the.even), rel=1e-5)


def test_a_robust_budget_whose_errors_cancel_at_the_optimum():
    """The third action costs most but no error; the first two may be taken alike, so that their errors cancel.

    That is the apex of the cone, where another engine goes on.
    """
    mdp = cm.MDP.from_pairs([0, 0, 0], [0, 1, 2], np.ones((3, 1)), {"cost": [0.0, 1.0, 2.0]}, discount=0.9, initial=[1])
    Q = 100 * np.outer([1.0, -1.0, 0.0], [1.0, -1.0, 0.0])
    problem = cm.Problem(mdp, "cost", [cm.RobustBudget([0.5, 0.5, 0.0], cm.Ellipsoid(Q), at_most=0.4)])
    assert decided(problem, "auto").value == pytest.approx(0.8, rel=1e-5)  # 0.4, 0.4 and 0.2


@pytest.mark.parametrize("method", ["path", "auto"])
def test_an_accuracy_beyond_floats_is_not_an_error(method):
    """Past bug: an IndexError, once a step led to numbers that are none."""
    mdp = cm.worlds.gridworld(4)

    def caps(even, best):
        careful, bold = (np.bincount(mdp.state, d) for d in (even, best))
        return [cm.StateBounds(upper=np.maximum(careful, 0.5 * (careful + bold)))]

    problem = halfway(mdp, "time", caps)
    solution = problem.solve(method=method, tolerance=1e-15)
    assert solution.status in (OPTIMAL, cm.Status.UNDECIDED)


def test_states_that_nothing_notices_do_not_slow_the_steps_down():
    """A tandem queue of 1600 states, some visited 1e-20 of the time: they made 41 steps of 17."""
    mdp = cm.worlds.tandem(40)
    counts = np.bincount(mdp.state)
    even = mdp.evaluate(1 / counts[mdp.state]).occupancy
    best = cm.Problem(mdp, next(iter(mdp.costs))).solve().occupancy
    ball = cm.NormBall(even, 0.5 * float(np.linalg.norm(best - even)))
    problem = cm.Problem(mdp, next(iter(mdp.costs)), [ball])
    solution = problem.solve(method="path")
    assert solution.status is cm.Status.OPTIMAL
    assert solution.stats.iterations <= 25
    solution.certificate.check(problem)


def test_a_best_cost_of_nothing_does_not_make_all_visits_count():
    """Without limits the queue costs next to nothing; then visits of 1e-280 were held to matter: no step was made."""
    mdp = cm.worlds.queue(3000, discount=0.9)
    even = mdp.evaluate(1 / np.bincount(mdp.state)[mdp.state]).occupancy
    cost = np.where(mdp.state > 2900, 1.0, 0.0)
    cost[mdp.state == 0] = np.arange(np.count_nonzero(mdp.state == 0))
    best = cm.Problem(mdp, cost).solve().occupancy
    problem = cm.Problem(mdp, cost, [cm.NormBall(even, 0.5 * float(np.linalg.norm(best - even)))])
    solution = problem.solve(method="path")
    assert solution.status is cm.Status.OPTIMAL
    solution.certificate.check(problem)


@pytest.mark.parametrize("share", [0.7, 1 - 1e-5])
def test_a_row_that_no_policy_obeys_is_refuted_in_few_steps(share):
    """Multipliers that are priced exactly prove it long before they do with the values at hand."""
    mdp = cm.worlds.tandem(12)
    cost, limited, *_ = mdp.costs
    least = cm.Problem(mdp, limited).solve().value
    problem = cm.Problem(mdp, cost, [cm.Budget(limited, at_most=share * least)])
    solution = problem.solve(explain=False)
    assert solution.status is cm.Status.INFEASIBLE
    steps = re.match(r"path following, (\d+) steps", solution.stats.method)
    assert steps is not None
    assert int(steps.group(1)) <= 25
