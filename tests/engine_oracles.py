"""Second opinions on the solvers: general conic problems by Clarabel, and models with awkward features."""

import clarabel
import numpy as np
import scipy.sparse as sp

from oracles import conic_optimum, flow_matrix, inflow, occupancy, random_policy


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
