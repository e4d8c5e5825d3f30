"""Policies met so far and the small programs over their weights, for the column generation of mixing.py."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import daqp
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.constraints.linear import EQUALITY, INFINITE, Linear
from cvxmdp.engines.judge import Judge
from cvxmdp.engines.presolve import occupancy_of, policy_iteration
from cvxmdp.mdp import Array, Indices

LARGEST = 1e9
"""Policies beyond a limit by this many times more than the next one are left out of the linear programs."""
FAR = 1e3
"""How many times its size a limit has to be exceeded to be far."""
FREE = 1e-9
"""A policy is free of cost below this share of what most pairs cost."""


@dataclass(eq=False)
class Mixture:
    """Policies met so far, each with its cost and its rows, and the small linear programs over their weights."""

    judge: Judge
    linear: Linear
    occupancies: list[tuple[npt.NDArray[np.int32], Array]] = field(default_factory=list)
    """The visited pairs of each policy and how often they are visited."""
    costs: list[float] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Measure each row by its limit or its size under the unconstrained optimum."""
        linear, judge = self.linear, self.judge
        self.cost_scale = _natural(judge)
        d = judge.best.d if judge.best else np.full(judge.c.size, 1 / judge.c.size)
        limit = np.maximum(*(np.where(np.isfinite(side), np.abs(side), 0.0) for side in (linear.upper, linear.lower)))
        size = np.where(limit > 0, limit, 1e-3 * np.asarray(linear.sizes @ d).ravel())
        self.scale = np.where(size > 0, size, 1.0)
        # Rows as  signs * (E d) <= limits, one for each side that could be exceeded.
        up, down = (np.isfinite(side) for side in linear.binding())
        self.which = np.concatenate([np.flatnonzero(up), np.flatnonzero(down)])
        self.signs = np.concatenate([np.ones(up.sum()), -np.ones(down.sum())])
        self.limits = np.concatenate([linear.upper[up], -linear.lower[down]]) / self.scale[self.which]
        self.relaxation = np.zeros(linear.upper.size)

    def frozen_rows(self) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
        """Cost and sides as columns over pairs, the limits of the sides, and which of them are equalities."""
        linear = self.linear
        self.kept = np.flatnonzero((self.signs > 0) | (linear.upper != linear.lower)[self.which])
        rows = linear.rows[self.which[self.kept]]
        rows = np.asarray(rows.todense()) if sp.issparse(rows) else rows
        sides = (self.signs / self.scale[self.which])[self.kept, None] * rows
        costs = np.vstack([self.judge.c / self.cost_scale, sides]).T
        return (
            np.ascontiguousarray(costs),
            self.limits[self.kept],
            (linear.upper == linear.lower)[self.which[self.kept]],
        )

    def frozen_dual(self, multipliers: Array) -> Array:
        """Turn multipliers of :meth:`frozen_rows` into multipliers of the rows, in units of the cost."""
        sides = np.zeros(self.which.size)
        sides[self.kept] = self.cost_scale * multipliers
        return self.dual(sides)

    def add(self, d: Array) -> None:
        """Add an occupancy."""
        visited = np.flatnonzero(d).astype(np.int32)  # there are fewer pairs than four bytes count, and many policies
        self.occupancies.append((visited, d[visited]))
        self.costs.append(float(self.judge.c @ d) / self.cost_scale)
        self.values.append(self.sides(d))

    def sides(self, d: Array) -> Array:
        """Return the scaled rows of an occupancy, to be compared with the limits."""
        rows = np.asarray(self.linear.rows @ d).ravel() / self.scale
        return np.asarray(self.signs * rows[self.which])

    def relax(self, displacement: Array) -> None:
        """Move the limits by a displacement v: ``E v`` is added to them."""
        self.relaxation = np.asarray(self.linear.rows @ displacement).ravel()
        self.limits = self.limits + self.signs * (self.relaxation / self.scale)[self.which]

    def add_policy(self, pairs: Indices) -> bool:
        """Add a deterministic policy; return False when it was there already."""
        key = hashlib.sha256(np.ascontiguousarray(pairs).data).digest()
        if key in self.seen:
            return False
        self.seen.add(key)
        self.add(occupancy_of(self.judge.dynamics, pairs))
        return True

    def meet_far(self) -> None:
        """Where the first policy is far beyond a limit, add the policy that is best at meeting that limit.

        Without it, prices would have to rise by as many orders of magnitude before any policy obeys.
        """
        beyond = self.values[0] - self.limits
        for side in np.flatnonzero(beyond > FAR):
            multipliers = np.zeros(self.limits.size)
            multipliers[side] = 1.0
            deadline = self.judge.deadline
            self.add_policy(policy_iteration(self.judge.dynamics, self.normal(multipliers), deadline=deadline).pairs)

    def mix(self, weights: Array) -> Array:
        """Return the occupancy of a mixture."""
        taken = np.flatnonzero(weights > 0)
        d = np.zeros(self.judge.c.size)
        for j in taken:
            visited, mass = self.occupancies[j]
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
        return np.asarray(self.linear.rows.T @ self.dual(multipliers)).ravel()

    def least_excess(self) -> tuple[Array, Array, float]:
        """Weights of least worst excess ``t``, the multipliers that prove it, and the excess."""
        A, count = np.stack(self.values, axis=1), len(self.values)
        answer = _solve(
            np.append(np.zeros(count), 1.0),
            np.hstack([A, -np.ones((A.shape[0], 1))]),
            self.limits,
            np.append(np.ones(count), 0.0),
            [(0, None)] * count + [(None, None)],
        )
        return answer.x[:-1], -answer.ineqlin.marginals, float(answer.x[-1])

    def nearest(self) -> tuple[Array, Array]:
        """Weights of least Euclidean distance to the constraints, and the multipliers that prove it.

        With ``E' = Q R`` a displacement ``Q t`` of least norm is sought such that the mixture minus it obeys.
        """
        A, count = np.stack(self.values, axis=1), len(self.values)
        norms = self.linear.norms / self.scale
        F = self.signs[:, None] * (self.linear.factor * norms[:, None])[self.which]
        # Distances may be a millionth of an occupancy: measure them by the last mixture's own.
        unit = max(self.judge.nearest_distance, 1e-12)
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
        multipliers = np.maximum(np.asarray(info["lam"])[count + rank : -1], 0.0) * unit / sides
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


def _natural(judge: Judge) -> float:
    """Return the size of the cost under the optimum without limits or, where that is free, the cost of most pairs.

    A few pairs may have a penalty that is a trillion times as large, which good policies never pay.
    """
    sizes = np.abs(judge.c)
    typical = float(np.median(sizes[sizes > 0])) if np.any(sizes > 0) else 1.0
    if judge.best is not None and judge.best.scale > FREE * typical:
        return judge.best.scale
    return typical


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
