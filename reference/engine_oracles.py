"""Second opinions on the solvers: general conic problems by Clarabel, and models with awkward features."""

import clarabel
import numpy as np
import scipy.sparse as sp

import cvxmdp as cm
from oracles import conic_optimum, flow_matrix, inflow, lp_optimum, occupancy, random_policy


def dynamics_blocks(model, copies=0):
    """``d`` is an occupancy; ``copies`` further points of the same size follow it among the variables."""
    pairs = model["state"].size
    spare = copies * pairs
    rho = inflow(model)
    return [
        (sp.hstack([flow_matrix(model), sp.csc_matrix((rho.size, spare))]), rho, clarabel.ZeroConeT(rho.size)),
        (-sp.eye(pairs, pairs + spare), np.zeros(pairs), clarabel.NonnegativeConeT(pairs)),
    ]


def linear_block(E, b):
    """``E z <= b``."""
    E, b = np.atleast_2d(E), np.atleast_1d(np.asarray(b, dtype=float))
    return E, b, clarabel.NonnegativeConeT(b.size)


def ball_block(center, radius):
    """``|z - center| <= radius``."""
    A = sp.vstack([sp.csc_matrix((1, center.size)), sp.identity(center.size)])
    return A, np.concatenate([[radius], center]), clarabel.SecondOrderConeT(center.size + 1)


def box_block(lower, upper):
    """``lower <= z <= upper``, both finite arrays."""
    eye = sp.identity(lower.size)
    return sp.vstack([eye, -eye]), np.concatenate([upper, -lower]), clarabel.NonnegativeConeT(2 * lower.size)


def optimum(model, c, blocks):
    """Minimize c'd over occupancies within all blocks: (value, d, one dual array a block), or None."""
    pairs = model["state"].size
    unit = np.abs(c).max() or 1.0
    answer = conic_optimum(sp.csc_matrix((pairs, pairs)), np.asarray(c) / unit, [*dynamics_blocks(model), *blocks])
    if answer is None:
        return None
    d, duals = answer
    return float(c @ d), d, [unit * dual for dual in duals[2:]]


def prox(model, c, w, sigma):
    """``argmin over occupancies of c'd + |d - w|^2 / (2 sigma)``, a strongly convex QP."""
    return conic_optimum(sp.identity(w.size), sigma * c - w, dynamics_blocks(model))[0]


def nearest(model, blocks):
    """Minimize ``sum over blocks of |d - z_b|^2`` over occupancies d and members z_b: (d - z_b for each block, d)."""
    pairs, copies = model["state"].size, len(blocks)
    eye = sp.identity(pairs)
    P = sp.block_diag([copies * eye, *([eye] * copies)], format="lil")
    for k in range(1, copies + 1):
        here = slice(k * pairs, (k + 1) * pairs)
        P[:pairs, here] = -eye
        P[here, :pairs] = -eye
    moved = []
    for k, (A, b, cone) in enumerate(blocks, start=1):
        columns = [sp.csc_matrix((len(b), pairs))] * (copies + 1)
        columns[k] = sp.csc_matrix(A)
        moved.append((sp.hstack(columns), b, cone))
    x, _ = conic_optimum(P, np.zeros((copies + 1) * pairs), [*dynamics_blocks(model, copies), *moved])
    d, *z = np.split(x, copies + 1)
    return np.array([d - point for point in z]), d


def interior_occupancy(model, seed=7):
    """The occupancy of a random policy: a member of D with every reachable pair visited."""
    return occupancy(model, random_policy(model, seed))


def random_rows(model, seed, rows, room=0.0):
    """Rows E and limits b that a random policy meets with ``room`` to spare; tight ones when there is none."""
    rng = np.random.default_rng(seed)
    E = rng.normal(size=(rows, model["state"].size))
    return E, E @ interior_occupancy(model, seed) + room * rng.uniform(size=rows)


def with_absorbing_state(model):
    """State 0 is never left, whatever the action."""
    P = model["P"].copy()
    P[model["state"] == 0] = np.eye(P.shape[1])[0]
    return model | {"P": P}


def with_unreachable_states(model, count=2):
    """The last ``count`` states lead to the others and are never entered; the process never begins in them."""
    P, initial = model["P"].copy(), np.array(model["initial"])
    P[:, -count:] = 0.0
    P /= P.sum(axis=1, keepdims=True)
    initial[-count:] = 0.0
    return model | {"P": P, "initial": initial / initial.sum()}


def permuted(model, seed):
    """The model with states and actions renumbered, and for each of its pairs the pair it was before."""
    rng = np.random.default_rng(seed)
    states = rng.permutation(model["P"].shape[1])
    actions = rng.permutation(model["action"].max() + 1)
    state, action = states[model["state"]], actions[model["action"]]
    order = np.lexsort((action, state))
    inverse = np.argsort(states)
    return {
        "state": state[order],
        "action": action[order],
        "P": model["P"][order][:, inverse],
        "costs": {name: cost[order] for name, cost in model["costs"].items()},
        "initial": np.asarray(model["initial"])[inverse],
        "discount": model["discount"],
    }, order


def cases(model, seed=3):
    """Active constraints of every kind and their combinations, by name: (for cvxmdp, for Clarabel).

    Each holds at the occupancy of one random policy, so all are feasible, and none at the unconstrained optimum.
    """
    c, d = model["costs"]["cost"], interior_occupancy(model, seed)
    _, best, _ = lp_optimum(model, c, np.zeros((1, c.size)), [1.0])
    E, b = random_rows(model, seed, rows=2)
    E[0], b[0] = best - d, (best - d) @ (0.7 * d + 0.3 * best)  # cuts off the unconstrained optimum
    radius = 0.5 * np.linalg.norm(best - d)
    lower, upper = 0.5 * d, 1.5 * d
    halfway = 0.7 * d + 0.3 * best
    rows, ball, box = cm.Linear(E, at_most=b), cm.NormBall(d, radius), cm.Bounds(lower, upper)
    other = cm.NormBall(halfway, radius)
    peers = {
        "rows": linear_block(E, b),
        "ball": ball_block(d, radius),
        "box": box_block(lower, upper),
        "other": ball_block(halfway, radius),
    }
    return {
        "rows": ([rows], [peers["rows"]]),
        "ball": ([ball], [peers["ball"]]),
        "box": ([box], [peers["box"]]),
        "rows and ball": ([rows, ball], [peers["rows"], peers["ball"]]),
        "box and rows": ([box, rows], [peers["box"], peers["rows"]]),
        "two balls": ([ball, other], [peers["ball"], peers["other"]]),
        "ball, box and rows": ([ball, box, rows], [peers["ball"], peers["box"], peers["rows"]]),
    }


def peer_price(constraint, dual):
    """The change of the optimum for each unit of each limit, from Clarabel's dual of the constraint's block."""
    if isinstance(constraint, cm.NormBall):
        return -dual[:1]
    if isinstance(constraint, cm.Bounds):
        above, below = np.split(dual, 2)
        return below - above
    return -dual


def assert_optimal(problem, solution, model, blocks, tolerance=1e-6):
    """The certificate holds, and the value is the peer's, but for the gap and the violations that are allowed."""
    assert solution.status is cm.Status.OPTIMAL, solution.status
    solution.certificate.check(problem, solution.tolerance)
    best, _, duals = optimum(model, problem.cost, blocks)
    scale = np.abs(problem.cost) @ solution.occupancy
    assert solution.value <= best + (tolerance + 1e-8) * scale
    # Raising limits by the violations lowers the optimum by at most the price of doing so.
    allowed = sum(
        np.abs(peer_price(constraint, dual)).sum() * solution.violations[constraint.name]
        for constraint, dual in zip(problem.constraints, duals, strict=True)
    )
    assert solution.value >= best - allowed - 1e-8 * scale
    for constraint in problem.constraints:
        assert constraint.relative(solution.occupancy) <= tolerance
