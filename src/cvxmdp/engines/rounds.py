"""Rounds with frozen visits: the program of frozen.py proposes the next policy and prices the rows.

*Hard limits.*  The multipliers prove how good the last policy is.  Where the program has no solution, the policy of
least excess comes next, unless its multipliers prove that no policy obeys.

*Soft limits.*  For multipliers m of the rows the squared distance of an occupancy d to ``{E d <= b}`` is

    |v|^2 = max over m >= 0 of  2 m'(E d - b) - |E'm|^2,   with v = E'm  at the best m.

So ``|v|^2 / 2`` has a frozen program in which the limits give way to their multipliers by ``E E'm``.  It always has a
solution.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import NamedTuple

import numpy as np

from cvxmdp.constraints.linear import Linear
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines.base import Answer, Proposal, Proposals, Task
from cvxmdp.engines.frozen import frozen_program, solve_elastic, solve_frozen
from cvxmdp.engines.halving import Halving
from cvxmdp.engines.kernels import Mask
from cvxmdp.engines.mixture import Mixture, column
from cvxmdp.mdp import Array
from cvxmdp.ranks.scattered import as_array

MOST_ROUNDS, PATIENCE = 40, 8
"""Rounds, and how many of them may pass without halving what is missing."""
FIRST_PRICE = 0.3
"""Where multipliers begin, in units in which the cost and the limits are of size one."""
MET = 1e-2
"""Share of the tolerance within which limits are to be met, so that what evaluation adds does not matter; rounds end
outside of it where another one does not help."""
SOFT_PATIENCE = 4
"""Rounds towards soft limits that may pass without halving what is missing, which mostly is squared."""
CLOSE, CLOSEST = 1e-8, 1e-11
"""How exactly, relatively, the least squared distance is sought: at least, and where rounding allows it."""
LEAST_ACCURACY = 1e-14
"""Policies are evaluated no more exactly than rounding allows."""
SAID = "mixing: policies from prices, {steps} rounds"


def rounds(task: Task, mixture: Mixture, pi: Array) -> Proposals:
    """Solve the program with frozen visits and evaluate its policy, round after round, until that gets stuck."""
    dynamics, costs, limits, equal = task.dynamics, *mixture.frozen_rows()
    prices, sizes_of = np.where(equal, 0.0, FIRST_PRICE), np.abs(costs).T
    now: Evaluated | None = None
    halving, was_close, near = Halving(1.0), False, False
    for _ in range(MOST_ROUNDS):
        # The next round misses about the square of what the last one missed: more exactness would be lost.
        accuracy = min(max(0.01 * halving.least**2, 0.01 * task.tolerance), 1e-3)
        now = evaluated(dynamics, pi, costs, limits, 1e-3 * accuracy, now)
        J, d, room = now.J, now.d, now.room
        sizes = sizes_of @ d  # |c|'d and |E|'d, which the tolerance is relative to
        excess = _excess(room, equal, np.maximum(np.abs(limits), sizes[1:]))
        program = frozen_program(now.A, now.x, dynamics.first, room, equal)
        frozen = solve_frozen(program, prices, accuracy, near)
        if frozen is None:  # with these visits no policy obeys
            if np.any(equal) or np.all(room >= 0):
                break
            elastic = solve_elastic(program, prices, accuracy)
            if elastic is None:
                break
            pi, found = elastic.policy, elastic.multipliers
            yield Proposal(
                partial(dynamics.occupancy, pi), partial(_duals, task, mixture, found), residual=excess,
                suspect=bool(elastic.least > found @ room), said=SAID,
            )  # fmt: skip
            continue
        prices, near = frozen.multipliers, True
        bound = float(J[0] - prices @ room + frozen.least)
        gap = (float(J[0]) - bound) / max(float(sizes[0]), 1e-300)
        close = excess <= task.tolerance and gap <= task.tolerance
        yield Proposal(
            partial(np.copy, d),
            partial(_duals, task, mixture, prices),
            partial(_value, mixture.cost_scale, now.V, prices),
            residual=excess,
            # One round more makes the limits all but exact.
            ready=close and (excess <= MET * task.tolerance or was_close),
            said=SAID,
        )
        was_close = close
        if halving.note(max(excess, gap)) == PATIENCE:
            break
        pi = frozen.policy
    mixture.add(column(dynamics.occupancy(pi)))


class Evaluated(NamedTuple):
    """A policy, evaluated for the cost and for each row."""

    x: Array
    """Visits of the states."""
    V: Array
    """Values, a column each."""
    A: Array
    """Advantages, a column each."""
    J: Array
    """What it costs, and what its rows are."""
    d: Array
    room: Array
    """What it leaves of each limit."""


def evaluated(
    dynamics: Dynamics, pi: Array, costs: Array, limits: Array, accuracy: float, last: Evaluated | None
) -> Evaluated:
    """Evaluate a policy, from what the last one did."""
    before = (None, None) if last is None else (last.x, last.V)
    x, V, A = dynamics.evaluate(pi, costs, accuracy, *before)
    J = (1 - dynamics.gamma) * (dynamics.rho @ V)
    return Evaluated(x, V, A, J, x[dynamics.owner] * pi, limits - J[1:])


def _excess(room: Array, equal: Mask, sizes: Array) -> float:
    """Return by how many times its size the worst limit is missed."""
    missed = np.where(equal, np.abs(room), -room) / np.maximum(sizes, 1e-300)
    return float(np.max(missed, initial=0.0))


def _duals(task: Task, mixture: Mixture, multipliers: Array) -> list[Array]:
    return task.blocks.split([mixture.frozen_dual(multipliers)])


def _value(scale: float, V: Array, prices: Array) -> Array:
    """Return the value at the cost with priced rows."""
    return as_array(scale * (V[:, 0] + V[:, 1:] @ prices))


class SoftRows:
    """Rows as ``sides d <= limits`` that give way, measured by ``sizes``; distances by the root of ``unit``.

    All sides are needed: the nearest allowed point need not be a distribution.
    """

    def __init__(self, linear: Linear, sizes: Array, duals: Array) -> None:
        self.linear = linear
        sides = linear.sides(all_of_them=True)
        self.which, self.equal = sides.which, sides.equal
        self.weights = sides.signs / sizes[self.which]
        rows = linear.rows[self.which]
        self.rows = (
            (self.weights[:, None] * rows)
            if not hasattr(rows, "multiply")
            else rows.multiply(self.weights[:, None]).toarray()
        )
        self.limits = sides.limits / sizes[self.which]
        self.gram = self.rows @ self.rows.T
        given = duals[self.which] / self.weights
        self.prices = np.where(self.equal, given, np.maximum(given, 0.0))
        # The duals are those of a displacement: prices that add up to one are in units of the squared distance.
        self.unit = float(np.abs(self.prices).sum())
        self.prices /= self.unit
        self.margin = self.unit * float(self.prices @ self.gram @ self.prices)

    def duals(self, prices: Array) -> list[Array]:
        """Return multipliers of the sides as the dual array of the rows, in the user's units."""
        rows = np.zeros(self.linear.upper.size)
        np.add.at(rows, self.which, self.weights * self.unit * prices)
        return [rows]


def soft_rounds(task: Task, sides: SoftRows, pi: Array) -> Generator[Proposal, Answer, bool]:
    """Lower half the squared distance to the rows, from the policy ``pi``; return whether it is close to the least."""
    dynamics, unit, margin = task.dynamics, sides.unit, sides.margin
    costs = np.copy(np.vstack([np.zeros_like(task.c), sides.rows]).T, order="C")
    prices, halving = sides.prices, Halving(1.0)
    now: Evaluated | None = None
    for _ in range(MOST_ROUNDS):
        accuracy = margin * min(max(0.01 * halving.least**2, 0.1 * CLOSEST), 1e-3)
        now = evaluated(dynamics, pi, costs, sides.limits, max(1e-3 * accuracy, LEAST_ACCURACY), now)
        d, room = now.d, now.room
        program = frozen_program(now.A, now.x, dynamics.first, room, sides.equal, unit * sides.gram)
        frozen = solve_frozen(program, prices, accuracy, near=True)
        if frozen is None:
            return False
        prices = m = frozen.multipliers
        away = sides.linear.rows.T @ sides.linear.multipliers(d)
        high = float(away @ away) / (2 * unit)
        low = frozen.least - float(m @ room) - unit * float(m @ sides.gram @ m) / 2
        missing = (high - low) / margin
        stuck = halving.note(missing)
        done = missing <= CLOSEST or stuck == (SOFT_PATIENCE if halving.least > CLOSE else 1)
        yield Proposal(
            partial(np.copy, d),
            partial(sides.duals, prices),
            partial(_value, unit, now.V, prices),
            residual=float(np.sqrt(2 * unit * high)),
            ready=done,
            said=SAID,
        )
        if done:
            break
        pi = frozen.policy
    return halving.least <= CLOSE
