"""Clean policies: of all policies as good as an optimal one, find one that randomizes in as few states as rows bind.

Under linear limits the best occupancies are a face of a polyhedron, and interior points end in its middle, where every
action that ties is taken.  A corner of the face has one pair for each visited state and one more for each row that
binds.  The way from d to a corner is a walk over occupancies of the same pairs, on which rows that bind keep their
levels:

1. *Base.*  In each state take the action that d takes most: the policy b, with visits x and, for each row e of the
   limits, advantages ``A_e = e + M V`` at its value V.
2. *Corner.*  A unit of mass on another pair j, for which the base makes way, changes the level of a row e by exactly
   ``A_e[j]``.  So a few pairs W, as many as rows that bind, make up for what b does to these rows:

       A_W' y = levels of d - levels of b,    mass of the base = x - B^-1 (Xi - gamma P)_W' y,    B = I - gamma P_b'.

   Where neither y nor the mass of the base is negative, that is a policy that randomizes in the states of W alone.
3. *Step.*  If so, and if it costs no more than there is room for, it is the corner.  Else move from d towards it, or
   away from it if that is the way to lower cost, until a pair has no mass left, which is then given up, or until one
   more row binds.  Then begin again: there are fewer pairs, or more rows that bind.

A round costs two evaluations of a policy.  Most walks are over after one or two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la

from cvxmdp import interrupts
from cvxmdp.constraints.combine import Blocks
from cvxmdp.constraints.linear import Linear
from cvxmdp.dynamics.base import Dynamics, Mask, indicator
from cvxmdp.mdp import Array, Indices

MOST_ROWS = 20
"""With more rows, such as a cap on every state, a corner may randomize almost everywhere, and it is not sought."""
MOST_STATES = 20_000
"""Up to here factors evaluate a policy in a tenth of a second; beyond, a round might take as long as the solve."""
SECONDS = 6e-6
"""What a round takes for each state, measured on grids of 5000 and 20 000 cells."""
MOST_ROUNDS = 15
"""So many evaluations of policies are a small part of any solve; worlds with ten limits need 12 at most."""
ACCURACY = 1e-12
"""How exactly, relatively, policies are evaluated where that is not done by factors: well below the noise."""
NOISE = 1e-10
"""Less mass, relative to a state's visits, or less change of a row, relative to its size, may be rounding."""
LEAST = 1e-290
"""Mass that chooses the action where a state is not visited: next to nothing, yet a normal number."""


def purify(
    dynamics: Dynamics,
    c: Array,
    blocks: Blocks,
    d: Array,
    pi: Array,
    multipliers: Array,
    room: float,
    deadline: float,
) -> Array | None:
    """Walk from the occupancy of an optimal policy to a corner, see the module.

    Parameters
    ----------
    dynamics : Dynamics
        The model.
    c : array of shape (num_pairs,)
        The cost.
    blocks : Blocks
        All limits, which are linear.
    d, pi : arrays of shape (num_pairs,)
        The occupancy of the policy and its probabilities.
    multipliers : array, one a row
        What the limits cost.
    room : float
        By how much the cost may rise.
    deadline : float
        When to be done, on the clock ``time.perf_counter``.

    Returns
    -------
    array of shape (num_pairs,) or None
        Masses in whose proportions a policy takes its actions; None where the policy is a corner already, where the
        problem is too large, and where no corner was found in time.
    """
    if not 0 < (blocks.num_rows or 0) <= MOST_ROWS or dynamics.num_states > MOST_STATES:
        return None
    linear = blocks.linear
    assert linear is not None
    level, size = np.asarray(linear.rows @ d), _sizes(linear, d)
    # A row also binds where it would cost more than the room not to use it up.
    binds = (level >= linear.upper) | (level <= linear.lower) | (np.abs(multipliers) * size > room)
    taken = pi > 0
    spare = int(np.count_nonzero(taken)) - dynamics.num_states
    if spare <= np.count_nonzero(binds):
        return None
    costs = np.ascontiguousarray(_dense(linear.rows).T)
    least = np.full(dynamics.num_states, 1 / dynamics.num_states)
    for _ in range(MOST_ROUNDS):
        if interrupts.over(deadline - SECONDS * dynamics.num_states):
            return None
        base = _likeliest(dynamics, np.where(taken, d + LEAST * pi, -1.0))
        corner, others = _corner(dynamics, costs / size, d, base, binds)
        way = corner - d
        rise = float(c @ way)
        onwards = rise <= room
        if not onwards:
            way, rise = -way, -rise
        noise = NOISE * np.maximum(dynamics.per_state(d), least)[dynamics.owner]
        step, pair = _until_none(d, way, np.append(base, others), noise, 1.0 if onwards else np.inf)
        step, row = _until_bound(linear, d @ costs, way @ costs, ~binds, NOISE * size, step)
        if row is not None:
            binds[row] = True
        elif pair is not None:
            taken[pair] = False
            if not np.any(taken[dynamics.owner == dynamics.owner[pair]]):
                return None  # a visited state keeps some action, so that this was rounding
        elif onwards:
            corner[base] = np.maximum(corner[base], LEAST)
            return np.maximum(corner, 0.0)
        else:
            return None
        d = np.where(taken, np.maximum(d + step * way, 0.0), 0.0)
        room -= max(step * rise, 0.0)
    return None


def _corner(dynamics: Dynamics, costs: Array, d: Array, base: Indices, binds: Mask) -> tuple[Array, Indices]:
    """Return the point of the base and few other pairs that has d's levels of the rows that bind, and those pairs.

    Its flow is that of an occupancy, but entries may be negative.
    """
    b = indicator(dynamics, base)
    x, _, A = dynamics.evaluate(b, costs, ACCURACY, dynamics.per_state(d))
    others = np.flatnonzero((d > 0) & (b == 0))
    effects = A[others][:, binds].T
    # Where both the pair and the base of its state have mass, the pair can make up for much in either direction.
    mass, of_base = d[others], d[base[dynamics.owner[others]]]
    chosen = _independent(effects * (mass * (of_base / (mass + of_base))))
    point, W = np.zeros(d.size), others[chosen]
    if W.size:
        missing = (d @ costs - x @ costs[base])[binds]
        point[W] = la.lstsq(effects[:, chosen], missing, check_finite=False)[0]
        x = x - dynamics.backward(b)(dynamics.flow(point))
    point[base] = x
    return point, W


def _sizes(linear: Linear, d: Array) -> Array:
    """Return what changes of rows are relative to: ``|row|'d`` or the limit, whichever is larger."""
    limits = (np.where(np.isfinite(side), np.abs(side), 0.0) for side in (linear.upper, linear.lower))
    size = np.maximum(np.asarray(linear.sizes @ d), np.maximum(*limits))
    return np.where(size > 0, size, 1.0)


def _likeliest(dynamics: Dynamics, mass: Array) -> Indices:
    """Return the pair of most mass in each state."""
    most = np.maximum.reduceat(mass, dynamics.first[:-1])
    found = np.flatnonzero(mass == most[dynamics.owner])
    return np.asarray(found[np.searchsorted(dynamics.owner[found], np.arange(dynamics.num_states))])


def _independent(columns: Array) -> Indices:
    """Return which columns span them all, the largest first."""
    if 0 in columns.shape:
        return np.zeros(0, dtype=np.int64)
    R, order = la.qr(columns, mode="r", pivoting=True, check_finite=False)
    return np.asarray(order[: np.count_nonzero(np.abs(np.diag(R)) > NOISE)])


def _until_none(d: Array, way: Array, pairs: Indices, noise: Array, reach: float) -> tuple[float, int | None]:
    """Return how far one can go until a pair has no mass left, at most the reach, and which pair that is."""
    falls = way < -noise if reach > 1.0 else d + way < -noise
    falling = pairs[falls[pairs]]
    if not falling.size:
        return reach, None
    steps = d[falling] / -way[falling]
    first = int(np.argmin(steps))
    return float(steps[first]), int(falling[first])


def _until_bound(
    linear: Linear, level: Array, change: Array, open_rows: Mask, noise: Array, reach: float
) -> tuple[float, int | None]:
    """Return how far one can go until one of the open rows binds, at most the reach, and which row that is."""
    moves = open_rows & (np.abs(change) > noise)
    left = np.where(change > 0, linear.upper - level, level - linear.lower)
    steps = np.divide(np.maximum(left, 0.0), np.abs(change), out=np.full(level.size, np.inf), where=moves)
    first = int(np.argmin(steps))
    return (float(steps[first]), first) if steps[first] < reach else (reach, None)


def _dense(rows: Any) -> Array:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
