"""Policies met so far and the small programs over their weights, for the column generation of mixing.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import daqp
import numpy as np
import numpy.typing as npt

from cvxmdp.constraints.linear import EQUALITY, INFINITE, Linear
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines.presolve import occupancy_of, policy_iteration
from cvxmdp.mdp import Array, Indices
from cvxmdp.ranks.scattered import as_array, as_parts_of, digest, middle, part_of

if TYPE_CHECKING:
    from cvxmdp.engines.base import Task

LARGEST = 1e9
"""Policies beyond a limit by this many times more than the next one are left out of the linear programs."""
FAR = 1e3
"""How many times its size a limit has to be exceeded to be far."""
FREE = 1e-9
"""A policy is free of cost below this share of what most pairs cost."""
MOST_HELD = 50_000_000
"""Visited pairs (600 MB) of the policies whose visits are held; those that were asked for last are kept."""
FEWEST_HELD = 4
"""Policies whose visits are held however many they are: a mixture under a few limits asks for no more."""

Column = tuple[npt.NDArray[np.int32], Array]
"""The visited pairs of a policy and how often they are visited."""


@dataclass(eq=False)
class Columns:
    """Deterministic policies met so far in a model: whatever the limits, the next problem may mix them."""

    held: dict[bytes, Column] = field(default_factory=dict)
    """Those that were asked for last, in this order."""
    choices: dict[bytes, npt.NDArray[np.unsignedinteger[Any]]] = field(default_factory=dict)
    """What each policy takes of the pairs of a state: all that is kept of the others."""

    def key(self, dynamics: Dynamics, pairs: Indices) -> bytes:
        """Return the key of a policy, which is known from now on."""
        key = digest(pairs)
        if key not in self.choices:
            taken = part_of(pairs) - dynamics.first[:-1]
            self.choices[key] = taken.astype(np.min_scalar_type(int(np.max(taken, initial=0))))
        return key

    def of(self, dynamics: Dynamics, key: bytes) -> Column:
        """Return what a policy visits, found anew where it is not held any more."""
        found = self.held.pop(key, None)
        if found is None:
            pairs = as_parts_of(dynamics.rho, dynamics.first[:-1] + self.choices[key])
            found = column(occupancy_of(dynamics, pairs))
        self.held[key] = found
        held = np.cumsum([visited.size for visited, _ in reversed(self.held.values())])
        kept = max(int(np.searchsorted(held, MOST_HELD, side="right")), FEWEST_HELD)
        for old in list(self.held)[:-kept]:
            del self.held[old]
        return found


def column(d: Array) -> Column:
    """Return an occupancy as a column: there are fewer pairs than four bytes count, and many policies."""
    visited = np.flatnonzero(d).astype(np.int32)
    return visited, d[visited]


class Mixture:
    """Policies met so far, each with its cost and its rows, and the small programs over their weights."""

    def __init__(self, task: Task, linear: Linear) -> None:
        """Measure each row by its limit or its size under the best policy so far."""
        self.task, self.linear = task, linear
        self.cost_scale = _natural(task)
        limit = np.maximum(*(np.where(np.isfinite(side), np.abs(side), 0.0) for side in (linear.upper, linear.lower)))
        size = np.where(limit > 0, limit, 1e-3 * as_array(linear.sizes @ task.best.d).ravel())
        self.scale = np.where(size > 0, size, 1.0)
        sides = linear.sides(all_of_them=False)
        self.which, self.signs, self.equal = sides.which, sides.signs, sides.equal
        self.limits = sides.limits / self.scale[self.which]
        self.columns: list[Callable[[], Column]] = []
        self.costs: list[float] = []
        self.values: list[Array] = []
        self.add(column(task.best.d))
        self.seen: set[bytes] = set()
        for key in list(task.columns.held):
            self._add_known(key)
        self._meet_far()

    def frozen_rows(self) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
        """Cost and sides as columns over pairs, the limits of the sides, and which of them are equalities."""
        self.kept = np.flatnonzero((self.signs > 0) | ~self.equal)
        rows = self.linear.rows[self.which[self.kept]]
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        sides = (self.signs / self.scale[self.which])[self.kept, None] * rows
        costs = np.vstack([self.task.c / self.cost_scale, sides]).T
        return np.copy(costs, order="C"), self.limits[self.kept], self.equal[self.kept]

    def frozen_dual(self, multipliers: Array) -> Array:
        """Turn multipliers of :meth:`frozen_rows` into multipliers of the rows, in units of the cost."""
        sides = np.zeros(self.which.size)
        sides[self.kept] = self.cost_scale * multipliers
        return self.dual(sides)

    def add(self, added: Column) -> None:
        """Add an occupancy."""
        self._add(added, lambda: added)

    def _add(self, added: Column, again: Callable[[], Column]) -> None:
        """Add an occupancy, with how to get it again."""
        visited, mass = added
        d = np.zeros_like(self.task.c)
        d[visited] = mass
        self.columns.append(again)
        self.costs.append(float(self.task.c @ d) / self.cost_scale)
        rows = as_array(self.linear.rows @ d).ravel() / self.scale
        self.values.append(as_array(self.signs * rows[self.which]))

    def add_policy(self, pairs: Indices) -> bool:
        """Add a deterministic policy; return False when it was there already."""
        key = self.task.columns.key(self.task.dynamics, pairs)
        if key in self.seen:
            return False
        self._add_known(key)
        return True

    def _add_known(self, key: bytes) -> None:
        """Add a deterministic policy, which is held as long as there is room for it."""
        again = partial(self.task.columns.of, self.task.dynamics, key)
        self.seen.add(key)
        self._add(again(), again)

    def _meet_far(self) -> None:
        """Where the first policy is far beyond a limit, add the policy that is best at meeting that limit.

        Without it, prices would have to rise by as many orders of magnitude before any policy obeys.
        """
        beyond = self.values[0] - self.limits
        for side in np.flatnonzero(beyond > FAR):
            multipliers = np.zeros(self.limits.size)
            multipliers[side] = 1.0
            priced = policy_iteration(self.task.dynamics, self.normal(multipliers), deadline=self.task.deadline)
            self.add_policy(priced.pairs)

    def mix(self, weights: Array) -> Array:
        """Return the occupancy of a mixture."""
        taken = np.flatnonzero(weights > 0)
        d = np.zeros_like(self.task.c)
        for j in taken:
            visited, mass = self.columns[j]()
            d[visited] += weights[j] / weights[taken].sum() * mass
        return d

    def cost(self, weights: Array) -> float:
        """Return the cost of a mixture."""
        return self.cost_scale * float(weights @ np.array(self.costs)) / float(weights.sum())

    def dual(self, multipliers: Array) -> Array:
        """Turn multipliers of the scaled sides into multipliers of the rows."""
        out = np.zeros(self.linear.upper.size)
        np.add.at(out, self.which, self.signs * multipliers)
        return out / self.scale

    def normal(self, multipliers: Array) -> Array:
        """``E'lambda``."""
        return as_array(self.linear.rows.T @ self.dual(multipliers)).ravel()

    def nearest(self, unit: float) -> tuple[Array, Array]:
        """Weights of least Euclidean distance to the constraints, and the multipliers that prove it.

        With ``E' = Q R`` a displacement ``Q t`` of least norm is sought such that the mixture minus it obeys.
        Distances may be a millionth of an occupancy: they are counted in a ``unit``.
        """
        A, count = np.stack(self.values, axis=1), len(self.values)
        norms = self.linear.norms / self.scale
        F = self.signs[:, None] * (self.linear.factor * norms[:, None])[self.which]
        rank = F.shape[1]
        H = np.diag(np.append(np.zeros(count), np.ones(rank)))
        sides = np.maximum(np.abs(F).sum(axis=1), 1e-300) * unit
        within = np.hstack([A, -F * unit]) / sides[:, None]
        rows = np.vstack([within, np.append(np.ones(count), np.zeros(rank))])
        upper = np.concatenate([np.full(count, INFINITE), np.full(rank, INFINITE), self.limits / sides, [1.0]])
        lower = np.concatenate([np.zeros(count), np.full(rank + sides.size, -INFINITE), [1.0]])
        sense = np.zeros(upper.size, dtype=np.int32)
        sense[-1] = EQUALITY
        x, _, _, info = daqp.solve(
            H, np.zeros(count + rank), rows, upper, lower, sense, primal_tol=1e-11, dual_tol=1e-12
        )
        multipliers = np.maximum(as_array(info["lam"])[count + rank : -1], 0.0) * unit**2 / sides
        return np.maximum(x[:count], 0.0), multipliers

    def least_cost(self, penalty: float) -> tuple[Array, Array, float]:
        """Weights of least cost plus ``penalty`` times the worst excess, the multipliers, and the excess.

        The multipliers are in units of the cost and add up to no more than the penalty.  A limit of 1e-30 is approached
        through policies that exceed it by ever fewer orders of magnitude: each side is measured by the one that exceeds
        it least, since the program sees some ten digits.  So is the excess.
        """
        A, count = np.stack(self.values, axis=1), len(self.values)
        above = np.where((self.limits + np.abs(self.limits))[:, None] < A, A, np.inf)
        least = np.min(above, axis=1, initial=np.inf)
        units = np.where(np.isfinite(least) & (least > FAR), least, 1.0)
        A, limits = A / units[:, None], self.limits / units
        kept = np.flatnonzero(np.all(A <= LARGEST, axis=0))
        answer = _solve(
            np.append(np.array(self.costs)[kept], penalty),
            np.hstack([A[:, kept], -np.ones((A.shape[0], 1))]),
            limits,
            np.append(np.ones(kept.size), 0.0),
            [(0, None)] * (kept.size + 1),
        )
        weights = np.zeros(count)
        weights[kept] = answer.x[:-1]
        # What rounding leaves of a limit that is far below the unit is an excess all the same.
        excess = max(float(answer.x[-1]), float(np.max((A @ weights - limits) * units, initial=0.0)))
        return weights, -answer.ineqlin.marginals / units * self.cost_scale, excess


def _natural(task: Task) -> float:
    """Return the size of the cost under the best policy so far or, where that is free, the cost of most pairs.

    A few pairs may have a penalty that is a trillion times as large, which good policies never pay.
    """
    sizes = np.abs(task.c)
    typical = middle(sizes[sizes > 0]) if np.any(sizes > 0) else 1.0
    scale = float(sizes @ task.best.d)
    return scale if scale > FREE * typical else typical


def _solve(cost: Array, A: Array, b: Array, ones: Array, bounds: list[tuple[float | None, float | None]]) -> Any:
    from scipy.optimize import linprog  # here, since it doubles the time of importing the library

    for tolerance in (1e-10, 1e-7):
        answer = linprog(
            cost, A_ub=A, b_ub=b, A_eq=ones[None, :], b_eq=[1.0], bounds=bounds, method="highs-ds",
            options={"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance},
        )  # fmt: skip
        if answer.x is not None:
            return answer
    # The solver gave up on numbers of very different sizes: an even mixture, and no multipliers.
    weights = ones / ones.sum()
    weights[-1] = max(float(np.max(A[:, :-1] @ weights[:-1] - b, initial=0.0)), 0.0)
    answer.x, answer.ineqlin.marginals = weights, np.zeros(b.size)
    return answer
