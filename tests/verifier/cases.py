"""The true solutions that the tests accept, alter and forge."""

from functools import cache

import cvxpy as cp
import numpy as np

from verifier.makers import (
    Ball,
    Box,
    Case,
    DistanceTerm,
    Ellipsoid,
    Entropic,
    EntropicTerm,
    Own,
    OwnTerm,
    Rows,
    World,
    duals,
    least_relaxation,
    linear_program,
    program,
    proven,
    record,
    solution,
)


def cheapest_and_safest(world):
    """The occupancies of the policies with the least time and the least crash."""
    return [world.visits(world.potential(world.costs[name])[1])[2].astype(float) for name in ("time", "crash")]


def free(sparse=False, discount=0.9, status="OPTIMAL"):
    world = World(1, gamma=discount, sparse=sparse)
    return proven(world, [], world.potential(world.costs["time"])[1], status=status)


def inactive(kind):
    """Limits that do not bind, of one kind or all of them: their duals are zero."""
    world = World(2)
    pi = world.potential(world.costs["time"])[1]
    d = world.visits(pi)[2].astype(float)
    other = cheapest_and_safest(world)[1]
    root = np.random.default_rng(3).normal(size=(world.L, world.L)) / 10
    F = float(np.sum(d[d > 0] * np.log(d[d > 0])))
    x = world.Xi @ d
    limits = {
        "rows": Rows("two rows", np.array([world.costs["crash"], world.costs["time"]]), [5, 5], [-1, -np.inf],
                     row_names=["one", "two"]),
        "sparse": Rows("visits", world.Xi, np.ones(world.S), sparse=True),
        "box": Box("box", np.full(world.L, -np.inf), np.ones(world.L)),
        "ball1": Ball("ball1", other, 3.0, 1.0),
        "ball1.5": Ball("ball1.5", other, 3.0, 1.5),
        "ball2": Ball("ball2", other, 3.0),
        "ballinf": Ball("ballinf", other, 3.0, np.inf),
        "weighted": Ball("weighted", other, 3.0, 2.0, np.linspace(0.5, 2, world.L)),
        "entropy": Entropic("entropy", world, np.ones(world.L), F + 0.1),
        "visited": Entropic("visited", world, np.ones(world.S), float(np.sum(x * np.log(x))) + 0.1, of="states"),
        "KL": Entropic("KL", world, np.where(pi > 0, 0.1, 0.0), F - np.log(0.1) + 0.1, sign=-1),
        "diagonal": Ellipsoid("diagonal", world.costs["crash"], np.linspace(0.01, 0.1, world.L), 3.0),
        "full": Ellipsoid("full", world.costs["crash"], root @ root.T, 3.0),
        "own": Own("own", lambda y: np.minimum(y, 1.0), np.zeros(world.L)),
    }  # fmt: skip
    return proven(world, list(limits.values()) if kind == "all" else [limits[kind]], pi)


INACTIVE = (
    "rows", "sparse", "box", "ball1", "ball1.5", "ball2", "ballinf", "weighted", "entropy", "visited", "KL", "diagonal",
    "full", "own", "all",
)  # fmt: skip


def budget(sparse=False):
    """One budget that binds, solved by HiGHS."""
    world = World(3, sparse=sparse)
    fast, safe = cheapest_and_safest(world)
    row = world.costs["crash"]
    upper = float(row @ (fast + safe)) / 2
    d, optimum, m = linear_program(world, world.costs["time"], row[None], [upper])
    return proven(world, [Rows("crash", row, upper, sparse=sparse)], world.policy_of(d), [m], optimum=optimum)


def active(kind):
    """A curved limit or a term at work, solved by Clarabel."""
    world = World(4)
    cost = world.costs["time"]
    fast, safe = cheapest_and_safest(world)
    even = world.visits(world.policy_of(np.ones(world.L)))[2].astype(float)
    L, half = world.L, 0.5 * np.linalg.norm(fast - safe)
    weights = np.linspace(0.5, 2, L)
    root = np.random.default_rng(3).normal(size=(L, L)) / 10
    if kind == "box":
        cap = np.full(L, 0.9 * fast.max())
        d, optimum, m = program(world, cost, lambda d: [d <= cap])
        return proven(world, [Box("box", np.zeros(L), cap)], world.policy_of(d), [np.maximum(m[0], 0)], optimum=optimum)
    if kind in ("ball2", "own"):
        d, optimum, (m,) = program(world, cost, lambda d: [cp.norm(d - safe, 2) <= half])
        e = (d - safe) / np.linalg.norm(d - safe)
        if kind == "ball2":
            return proven(world, [Ball("ball", safe, half)], world.policy_of(d), [m[0] * e], optimum=optimum)

        def project(y):
            return safe + (y - safe) * min(1, half / np.linalg.norm(y - safe)) if np.any(y != safe) else y

        return proven(world, [Own("own", project, safe)], world.policy_of(d), [d + m[0] * e], optimum=optimum)
    if kind == "ball1.5":
        radius = 0.5 * np.linalg.norm(fast - safe, 1.5)
        d, optimum, (m,) = program(world, cost, lambda d: [cp.pnorm(d - safe, 1.5) <= radius])
        e = d - safe
        u = m[0] * np.sign(e) * (np.abs(e) / np.linalg.norm(e, 1.5)) ** 0.5
        return proven(world, [Ball("ball", safe, radius, 1.5)], world.policy_of(d), [u], optimum=optimum)
    if kind == "weighted":
        radius = 0.5 * np.sqrt(np.sum(weights * (fast - safe) ** 2))
        d, optimum, (m,) = program(
            world, cost, lambda d: [cp.norm(cp.multiply(np.sqrt(weights), d - safe), 2) <= radius]
        )
        e = weights * (d - safe)
        u = m[0] * e / np.sqrt(np.sum(weights * (d - safe) ** 2))
        return proven(world, [Ball("ball", safe, radius, 2.0, weights)], world.policy_of(d), [u], optimum=optimum)
    if kind in ("entropy", "KL", "visited"):
        r = {"entropy": np.ones(L), "KL": even, "visited": np.ones(world.S)}[kind]
        E = world.Xi if kind == "visited" else np.eye(L)
        most = float(np.sum(E @ even * np.log(E @ even / r)))
        x = E @ fast
        bound = 0.5 * most + 0.5 * float(np.sum(x[x > 0] * np.log(x[x > 0] / r[x > 0])))
        d, optimum, (m,) = program(
            world, cost, lambda d: [cp.sum(-cp.entr(E @ d) - cp.multiply(np.log(r), E @ d)) <= bound]
        )
        dual = np.append(m[0] * (np.log(np.maximum(E @ d, 1e-12) / r) + 1), m[0])
        of, sign = ("states" if kind == "visited" else "pairs"), (-1 if kind == "KL" else 1)
        limit = Entropic(kind, world, r, bound, of=of, sign=sign)
        return proven(world, [limit], world.policy_of(d), [dual], optimum=optimum)
    if kind in ("diagonal", "full"):
        Q = np.diag(weights / 10) if kind == "diagonal" else root @ root.T
        row = world.costs["crash"]
        factor = np.linalg.cholesky(Q + 1e-15 * np.eye(L)).T
        lowest = program(world, row, lambda d: [], lambda d: cp.norm(factor @ d, 2))[1]
        limit = 0.5 * (row @ fast + np.sqrt(fast @ Q @ fast)) + 0.5 * lowest
        d, optimum, (m,) = program(world, cost, lambda d: [row @ d + cp.norm(factor @ d, 2) <= limit])
        dual = np.append(m[0], m[0] * d / np.sqrt(d @ Q @ d))
        matrix = weights / 10 if kind == "diagonal" else Q
        return proven(world, [Ellipsoid("robust", row, matrix, limit)], world.policy_of(d), [dual], optimum=optimum)
    if kind == "distance":
        d, optimum, _ = program(world, cost, lambda d: [], lambda d: 0.05 * cp.norm(d - safe, 2))
        u = 0.05 * (d - safe) / np.linalg.norm(d - safe)
        return proven(world, [], world.policy_of(d), [], [DistanceTerm("near", safe, 0.05)], [u], optimum=optimum)
    if kind in ("spread", "explore", "allowed"):
        of = "states" if kind == "explore" else "pairs"
        allowed = None if kind != "allowed" else world.action > 0
        E = world.Xi if of == "states" else np.eye(L) if allowed is None else np.eye(L)[allowed]
        r = np.full(E.shape[0], 1.0 if kind != "allowed" else 0.1)
        d, optimum, _ = program(
            world, cost, lambda d: [], lambda d: 0.2 * cp.sum(-cp.entr(E @ d) - cp.multiply(np.log(r), E @ d))
        )
        u = 0.2 * (np.log(np.maximum(E @ d, 1e-14) / r) + 1)
        term = EntropicTerm(kind, world, r, 0.2, of, allowed)
        return proven(world, [], world.policy_of(d), [], [term], [u], optimum=optimum)
    assert kind == "squares"
    d, optimum, _ = program(world, cost, lambda d: [], lambda d: 0.5 * cp.sum_squares(d))
    return proven(world, [], world.policy_of(d), [], [OwnTerm()], [2 * d], optimum=optimum)


ACTIVE = (
    "box", "ball2", "own", "ball1.5", "weighted", "entropy", "KL", "visited", "diagonal", "full", "distance", "spread",
    "explore", "allowed", "squares",
)  # fmt: skip


def infeasible(compromise="nearest", impossible=False):
    """Two budgets that conflict and one that is innocent, with all evidence."""
    world = World(5)
    fast, safe = cheapest_and_safest(world)
    time, crash = world.costs["time"], world.costs["crash"]
    rows = np.array([time, crash, time + crash])
    ends = [float(time @ fast), float(crash @ safe)]
    meant = [
        float(time @ fast) * 0.98 + 0.02 * float(time @ safe),
        float(crash @ safe) * 0.98 + 0.02 * float(crash @ fast),
    ]
    upper = np.array([ends[0] * 0.9 if impossible else meant[0], meant[1], 5.0])
    units = np.abs(upper)
    limits = [
        Rows(name, row, [u], priority=p)
        for name, row, u, p in zip(("time", "crash", "both"), rows, upper, (1, 2, 2), strict=True)
    ]

    def evidence(name, m):
        """A dual record for multipliers, and a margin that it leaves."""
        m = np.maximum(m, 0)
        m[2] = 0
        m /= m.sum()
        V, _ = world.potential(rows.T @ m)
        margin = world.least(rows.T @ m, V) - float(m @ upper) - 1e-13
        assert margin > 0
        return duals(name, V, [m[[i]] for i in range(3)]), margin, m

    d, t, m = least_relaxation(world, rows, upper, units)
    arrays, truths, found = {}, {}, {"compromise": compromise}
    key = ("infeasibility",)
    v, z = cp.Variable(world.L, nonneg=True), cp.Variable(world.L)
    A, b = world.flow
    inside = rows @ z <= upper
    nearest = cp.Problem(cp.Minimize(cp.sum_squares(v - z)), [A @ v == b, inside])
    nearest.solve(solver=cp.CLARABEL, tol_gap_abs=1e-14, tol_gap_rel=1e-12, tol_feas=1e-13)
    if compromise == "nearest":
        d, m = np.maximum(v.value, 0), inside.dual_value
    if compromise == "priority":
        d, amount, shares = least_relaxation(world, rows, upper, units * [0, 1, 1])
        amount += 1e-8
        found["amounts"] = {"1": 0.0, "2": amount}
        more, _, _ = evidence("priority:2", shares)
        arrays |= more
        truths[(*key, "amounts", "2")] = (amount - 1e-4, amount + 1e-4)
        truths[(*key, "amounts", "1")] = (0, 1e-4)
    pi = world.policy_of(d)
    header, main, occupancy = solution(world, limits, pi, status="INFEASIBLE")
    more, margin, m = evidence("margin", m)
    arrays |= more
    stacked = np.linalg.norm(rows.T @ m)
    found |= {"margin": margin, "least": margin / float(m @ units) * (1 - 1e-13), "cheapest": "-inf"}
    found["distance"] = [margin / stacked * (1 - 1e-13), "inf"]
    apart = float(np.sqrt(nearest.value))
    truths |= {
        ("tolerance",): (0, np.inf), (*key, "margin"): (0, margin * (1 + 1e-9)), (*key, "least"): (-np.inf, t + 1e-9),
        (*key, "distance", 0): (0, apart * (1 + 1e-6)), ("value",): (header["value"], header["value"]),
        (*key, "distance", 1): (apart * (1 - 1e-6), np.inf),
    }  # fmt: skip
    if compromise == "nearest":
        # The nearest point of the rows alone, from the true occupancy: least squares over what is exceeded.
        occupancy = np.asarray(main["occupancy"])
        over = rows @ occupancy - upper > 0
        shift = (
            rows[over].T @ np.linalg.lstsq(rows[over] @ rows[over].T, (rows @ occupancy - upper)[over], rcond=None)[0]
        )
        arrays |= {"displacements": shift[None], "displacement": shift}
        found["distance"][1] = float(np.linalg.norm(shift))
        room = upper + rows @ shift
        _, cost, shares = linear_program(world, time, rows, room)
        V, _ = world.potential(time + rows.T @ shares)
        arrays |= duals("cheapest", V, [shares[[i]] for i in range(3)])
        found["cheapest"] = float(world.least(time + rows.T @ shares, V) - shares @ room - 1e-12)
        truths[(*key, "cheapest")] = (-np.inf, cost + 1e-9)
    # The conflict: without either of the two the other can be obeyed.
    parts = [[0, None]] if impossible else [[0, 0], [1, None]]
    others = np.array([1.0, 0, 0]) if impossible else m.copy()
    more, alone, _ = evidence("conflict", others)
    arrays |= (
        more | record(world, "without:0", world.policy_of(safe)) | record(world, "without:1", world.policy_of(fast))
    )
    found |= {
        "conflict": [["time", "crash"][i] for i, _ in parts], "conflict_limits": parts, "irreducible": True,
        "without": [f"without:{j}" for j in range(len(parts))], "impossible": {}, "impossible_limits": [],
    }  # fmt: skip
    if impossible:
        for part in ("probabilities", "visits", "visits_error"):
            del arrays[f"without:1:{part}"]
        more, alone, _ = evidence("impossible:0", np.array([1.0, 0, 0]))
        arrays |= more
        found |= {"impossible": {"time": alone * (1 - 1e-13)}, "impossible_limits": [[0, 0]]}
        truths[(*key, "impossible", "time")] = (-np.inf, ends[0] - upper[0] + 1e-9)
    found["relax"] = {}
    for i, limit in enumerate(limits):
        innocent = all(i != j for j, _ in parts)
        enough = {"exceeded": header["violations"][limit.name], "innocent": innocent}
        where = (*key, "relax", limit.name)
        if i == 2 or (impossible and i == 1):
            others = np.array([1.0, 0, 0]) if impossible else m.copy()
            more, _, _ = evidence(f"short:{i}", others)
            enough |= {"amount": None, "least": "inf"}
        else:
            point, amount, shares = least_relaxation(world, rows, upper, np.eye(3)[i])
            more, short, shares = evidence(f"short:{i}", shares)
            arrays |= record(world, f"enough:{i}", world.policy_of(point))
            enough |= {"amount": amount * (1 + 1e-9), "least": short / shares[i] * (1 - 1e-13)}
            truths[(*where, "amount")] = (amount * (1 - 1e-5) - 1e-5 * upper[i], np.inf)
            truths[(*where, "least")] = (-np.inf, amount * (1 + 1e-9))
        arrays |= more
        found["relax"][limit.name] = enough
    header["infeasibility"] = found
    return Case(world.file(), (header, main | arrays), truths)


@cache
def made(name):
    """A case by its name; tests alter copies."""
    kind, _, which = name.partition(" ")
    return {
        "free": lambda: free(), "sparse": lambda: budget(sparse=True), "budget": budget,
        "limit": lambda: free(status="ITERATION_LIMIT"), "inactive": lambda: inactive(which),
        "active": lambda: active(which), "infeasible": lambda: infeasible(which),
        "impossible": lambda: infeasible(which, impossible=True),
    }[kind]()  # fmt: skip


NAMES = (
    "free", "limit", "sparse", "budget",
    *(f"inactive {kind}" for kind in INACTIVE), *(f"active {kind}" for kind in ACTIVE),
    "infeasible nearest", "infeasible relative", "infeasible priority", "infeasible unfinished", "impossible nearest",
)  # fmt: skip
