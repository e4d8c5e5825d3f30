"""Second opinions: every definition written again by hand, or handed to another solver.  Nothing here asks cvxmdp.

A model is a dict of plain arrays.  Pairs are listed by state, then by action; row i of ``P`` is the distribution of the
next state after pair i.  An occupancy d obeys ``d >= 0`` and ``flow_matrix(model) @ d == (1 - discount) * initial``.
"""

import clarabel
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

import cvxmdp as cm


def random_model(seed, states=6, actions=3, ragged=False, discount=0.9, branching=None):
    """A random model with the costs "cost" (normal) and "risk" (uniform); each pair reaches ``branching`` states."""
    rng = np.random.default_rng(seed)
    offered = np.ones((states, actions), dtype=bool)
    if ragged:
        offered = rng.random((states, actions)) < 0.6
        offered[np.arange(states), rng.integers(actions, size=states)] = True
    state, action = np.nonzero(offered)
    P = np.zeros((state.size, states))
    for row in P:
        reached = rng.choice(states, size=branching or states, replace=False)
        row[reached] = rng.dirichlet(np.ones(reached.size))
    return {
        "state": state,
        "action": action,
        "P": P,
        "costs": {"cost": rng.normal(size=state.size), "risk": rng.uniform(size=state.size)},
        "initial": rng.dirichlet(np.ones(states)),
        "discount": discount,
    }


def as_mdp(model, sparse=False):
    """The model as cvxmdp holds it."""
    P = sp.csr_array(model["P"]) if sparse else model["P"]
    return cm.MDP.from_pairs(
        model["state"], model["action"], P, model["costs"], discount=model["discount"], initial=model["initial"]
    )


def owner_matrix(model):
    """Xi (pairs x states): 1 where the pair belongs to the state."""
    return np.eye(model["P"].shape[1])[model["state"]]


def flow_matrix(model):
    """``Xi' - discount P'`` (states x pairs)."""
    return (owner_matrix(model) - model["discount"] * model["P"]).T


def inflow(model):
    """``(1 - discount) initial``, the right-hand side of the flow equations."""
    return (1 - model["discount"]) * np.asarray(model["initial"])


def random_policy(model, seed):
    """Probabilities over pairs, drawn uniformly in each state."""
    weights = np.random.default_rng(seed).exponential(size=model["state"].size)
    return weights / np.bincount(model["state"], weights)[model["state"]]


def policy_matrix(model, pi):
    """``P_pi`` (states x states)."""
    return owner_matrix(model).T @ (pi[:, None] * model["P"])


def occupancy(model, pi):
    """Solve ``x = (1 - discount) initial + discount P_pi' x`` for the visits of states, then spread over actions."""
    size = model["P"].shape[1]
    visits = np.linalg.solve(np.eye(size) - model["discount"] * policy_matrix(model, pi).T, inflow(model))
    return visits[model["state"]] * pi


def occupancy_by_steps(model, pi, steps):
    """The definition: ``(1 - discount) sum over t of discount^t Pr(pair at time t)``, up to ``steps`` terms."""
    P_pi = policy_matrix(model, pi)
    visits, now, weight = np.zeros(P_pi.shape[0]), np.asarray(model["initial"]), 1 - model["discount"]
    for _ in range(steps):
        visits = visits + weight * now
        now, weight = P_pi.T @ now, weight * model["discount"]
    return visits[model["state"]] * pi


def value(model, pi, c):
    """Discounted total cost from each state: ``V = c_pi + discount P_pi V``."""
    size = model["P"].shape[1]
    c_pi = np.bincount(model["state"], weights=pi * c, minlength=size)
    return np.linalg.solve(np.eye(size) - model["discount"] * policy_matrix(model, pi), c_pi)


def lp_optimum(model, c, E=None, b=None):
    """Minimize c'd over occupancies with ``E d <= b`` by HiGHS: (value, d, multipliers of E, at least 0), or None."""
    answer = linprog(
        c,
        A_ub=E,
        b_ub=b,
        A_eq=sp.csr_array(flow_matrix(model)),
        b_eq=inflow(model),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status == 2:
        return None
    assert answer.status == 0, answer.message
    return answer.fun, answer.x, -answer.ineqlin.marginals


def conic_optimum(P, q, blocks):
    """Minimize ``x'Px/2 + q'x``, ``b - A x`` in the cone of each block (A, b, cone) by Clarabel: (x, duals) or None."""
    A = sp.csc_matrix(sp.vstack([sp.csc_matrix(A) for A, _, _ in blocks]))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-12
    answer = clarabel.DefaultSolver(
        sp.triu(sp.csc_matrix(P), format="csc"),
        np.asarray(q, dtype=float),
        A,
        np.concatenate([b for _, b, _ in blocks]),
        [cone for _, _, cone in blocks],
        settings,
    ).solve()
    status = str(answer.status)
    if status in ("PrimalInfeasible", "AlmostPrimalInfeasible"):
        return None
    assert status in ("Solved", "AlmostSolved"), status
    duals = np.split(np.array(answer.z), np.cumsum([np.size(b) for _, b, _ in blocks])[:-1])
    return np.array(answer.x), duals


def _dynamics_blocks(model, columns):
    """The flow equations and ``d >= 0`` on the first pairs of ``columns`` variables."""
    pairs = model["state"].size
    pad = sp.csc_matrix((pairs, columns - pairs))
    spare = sp.csc_matrix((model["P"].shape[1], columns - pairs))
    rho = inflow(model)
    return [
        (sp.hstack([flow_matrix(model), spare]), rho, clarabel.ZeroConeT(rho.size)),
        (sp.hstack([-sp.identity(pairs), pad]), np.zeros(pairs), clarabel.NonnegativeConeT(pairs)),
    ]


def ball_optimum(model, c, center, radius):
    """Minimize c'd over occupancies with ``|d - center| <= radius``: (value, d, multiplier, at least 0), or None."""
    pairs = model["state"].size
    ball = sp.vstack([sp.csc_matrix((1, pairs)), sp.identity(pairs)])
    cone = (ball, np.concatenate([[radius], center]), clarabel.SecondOrderConeT(pairs + 1))
    answer = conic_optimum(sp.csc_matrix((pairs, pairs)), c, [*_dynamics_blocks(model, pairs), cone])
    if answer is None:
        return None
    d, duals = answer
    return float(c @ d), d, float(duals[2][0])


def nearest_displacement(model, E, b):
    """Minimize ``|d - z|`` over occupancies d and points z with ``E z <= b``: (v = d - z, which is unique, and d)."""
    E, b = np.atleast_2d(E), np.atleast_1d(np.asarray(b, dtype=float))
    rows, pairs = E.shape
    eye = sp.identity(pairs)
    halfspaces = (sp.hstack([sp.csc_matrix((rows, pairs)), E]), b, clarabel.NonnegativeConeT(rows))
    blocks = [*_dynamics_blocks(model, 2 * pairs), halfspaces]
    x, _ = conic_optimum(sp.bmat([[eye, -eye], [-eye, eye]]), np.zeros(2 * pairs), blocks)
    return x[:pairs] - x[pairs:], x[:pairs]


def project_polyhedron(point, E, lower, upper):
    """The nearest point with ``lower <= E z <= upper``; limits may be infinite, or equal to each other."""
    E, lower, upper = np.atleast_2d(E), np.atleast_1d(lower), np.atleast_1d(upper)
    equal = lower == upper
    above, below = np.isfinite(upper) & ~equal, np.isfinite(lower) & ~equal
    inequalities = np.vstack([E[above], -E[below]])
    sides = [
        (E[equal], upper[equal], clarabel.ZeroConeT(int(equal.sum()))),
        (inequalities, np.concatenate([upper[above], -lower[below]]), clarabel.NonnegativeConeT(len(inequalities))),
    ]
    answer = conic_optimum(sp.identity(point.size), -point, [side for side in sides if len(side[1])])
    return None if answer is None else answer[0]
