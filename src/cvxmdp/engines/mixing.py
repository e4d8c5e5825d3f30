"""Mixtures of deterministic policies, for linear constraints with few rows.

Some mixture of at most n + 1 deterministic policies is optimal under n linear rows.  It is sought in rounds: the
program with frozen visits (see frozen.py) prices the rows and proposes the next policy, and its multipliers prove how
good the last one is.

Where that gets stuck, or no policy obeys, it is column generation (Dantzig-Wolfe).  A small linear program mixes the
policies met so far; its multipliers price the rows; policy iteration at cost ``c + E'lambda`` finds the policy that the
mixture misses most, and its value is a bound.  Multipliers are smoothed towards the best bound's, which keeps them
from swinging.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import daqp
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.constraints.linear import EQUALITY, INFINITE, Linear
from cvxmdp.engines.frozen import solve_elastic, solve_frozen
from cvxmdp.engines.judge import NEAREST, Judge
from cvxmdp.engines.presolve import indicator, policy_iteration
from cvxmdp.mdp import Array, Indices
from cvxmdp.status import Status

MOST_ROUNDS, PATIENCE = 40, 8
"""Rounds with frozen visits, and how many of them may pass without halving what is missing."""
EXACT = 1e-2
"""Share of the tolerance within which limits are met before the rounds end, unless that takes more than one round."""


@dataclass(frozen=True)
class Mixing:
    """Settings of the mixing method.

    Parameters
    ----------
    smoothing : float
        Between 0 and 1: how much of the best multipliers is kept when new ones are priced.
    evaluation : {"auto", "direct", "iterative"}
        How linear systems are solved, see :func:`cvxmdp.dynamics.linear.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Budget("collision", at_most=0.01)])
    >>> problem.solve(method=cm.Mixing()).status.name
    'OPTIMAL'
    """

    smoothing: float = 0.5
    evaluation: str = "auto"

    name = "mixing"
    most_passes = 2000

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}; it must be at least 0 and below 1")

    def run(self, judge: Judge, start: tuple[Array, list[Array]] | None) -> tuple[Status, str]:
        """Mix until the judge is satisfied; return the status and a sentence."""
        assert judge.blocks.linear is not None
        assert judge.best is not None
        mixture = Mixture(judge, judge.blocks.linear)
        mixture.add(judge.best.d)
        if start is not None:
            mixture.add(start[0])
            judge.prove(start[1])
        status = self._refine(judge, mixture)
        if status not in (None, Status.INFEASIBLE):
            return status, f"mixing: policies from prices, {judge.iterations} rounds"
        if status is None:
            status = self._reach(judge, mixture)
        if status is Status.INFEASIBLE:
            status = self._approach(judge, mixture) or self._improve(judge, mixture)
        elif status is None:
            status = self._improve(judge, mixture)
        return status, f"mixing {len(mixture.occupancies)} policies"

    def _refine(self, judge: Judge, mixture: Mixture) -> Status | None:
        """Solve the program with frozen visits and evaluate its policy, round after round; None where it gets stuck."""
        assert judge.best is not None
        dynamics, costs, limits, equal = judge.dynamics, *mixture.frozen_rows()
        pi, prices = judge.best.policy.probabilities, np.where(equal, 0.0, 0.3)
        least, stuck, was_close = 1.0, 0, False
        for _ in range(MOST_ROUNDS):
            judge.iterations += 1
            # The next round misses about the square of what the last one missed: more exactness would be lost.
            accuracy = min(max(0.01 * least**2, 0.01 * judge.tolerance), 1e-3)
            x, V, A = dynamics.evaluate(pi, costs, 1e-3 * accuracy)
            J = (1 - dynamics.gamma) * (dynamics.rho @ V)
            room = limits - J[1:]
            excess = float(np.max(np.where(equal, np.abs(room), -room), initial=0.0))
            frozen = solve_frozen(A, x, dynamics.first, room, equal, prices, accuracy)
            if frozen is None:  # with these visits no policy obeys
                status, policy = self._yield(judge, mixture, x, A, room, equal, prices, accuracy)
                judge.record(excess)
                if policy is None:
                    return status
                pi = policy
                continue
            prices = frozen.multipliers
            bound = float(J[0] - prices @ room + frozen.least)
            gap = (float(J[0]) - bound) / max(float(np.abs(costs[:, 0]) @ (x[dynamics.owner] * pi)), 1e-300)
            close = excess <= judge.tolerance and gap <= judge.tolerance
            limit = judge.limit()
            if close or limit is not None:
                judge.propose(x[dynamics.owner] * pi)
                duals = judge.blocks.split([mixture.frozen_dual(prices)])
                judge.prove(duals, mixture.cost_scale * (V[:, 0] + V[:, 1:] @ prices))
            judge.record(excess)
            # One round more makes the limits all but exact.
            if (excess <= EXACT * judge.tolerance or was_close or limit is not None) and (status := judge.verdict()):
                return status
            was_close = close
            stuck = 0 if max(excess, gap) < 0.5 * least else stuck + 1
            least = min(least, max(excess, gap))
            if stuck == PATIENCE:
                break
            pi = frozen.policy
        mixture.add(judge.dynamics.occupancy(pi))
        return None

    def _yield(
        self,
        judge: Judge,
        mixture: Mixture,
        x: Array,
        A: Array,
        room: Array,
        equal: Any,
        prices: Array,
        accuracy: float,
    ) -> tuple[Status | None, Array | None]:
        """Find the policy of least excess with frozen visits, unless its multipliers prove that no policy obeys."""
        if np.any(equal):
            return None, None
        frozen = solve_elastic(A, x, judge.dynamics.first, room, prices, accuracy)
        if frozen is None:
            return judge.limit(), None
        duals = judge.blocks.split([mixture.frozen_dual(frozen.multipliers)])
        if frozen.least > frozen.multipliers @ room and judge.refute(duals) is not None:
            mixture.add(judge.dynamics.occupancy(frozen.policy))
            return Status.INFEASIBLE, None
        limit = judge.limit()
        return limit, None if limit is not None else frozen.policy

    def _reach(self, judge: Judge, mixture: Mixture) -> Status | None:
        """Lower the worst relative excess until some mixture obeys (None), or prove that none does."""
        V, pricing = None, Pricing(self.smoothing)
        while True:
            weights, multipliers, excess = mixture.least_excess()
            mixture.slack = max(excess, 0.0)
            if excess <= 0.01 * judge.tolerance:
                return None
            judge.iterations += 1
            trial = pricing.trial(multipliers)
            priced = policy_iteration(judge.dynamics, mixture.normal(trial), V, 1e-3 * judge.tolerance, judge.deadline)
            V, bound = priced.V, priced.bound - mixture.support(trial)
            pricing.note(trial, bound)
            judge.propose(mixture.mix(weights))
            judge.record(excess)
            if bound > 0 and judge.refute(judge.blocks.split([mixture.dual(trial)])) is not None:
                return Status.INFEASIBLE
            if (limit := judge.limit()) is not None:
                return limit
            if excess - pricing.best <= 0.01 * judge.tolerance and excess <= judge.tolerance:
                return None
            if not mixture.add_policy(priced.pairs) and not pricing.sharpen():
                return None if excess <= judge.tolerance else Status.ITERATION_LIMIT

    def _approach(self, judge: Judge, mixture: Mixture) -> Status | None:
        """Lower the distance to the constraints until it is proven least; then relax the limits by what is missing.

        The displacement v of the paper is fixed by then, and the cheapest of the nearest policies (Proposition 4) is
        the optimum under the relaxed limits.
        """
        V = None
        judge.propose(mixture.mix(mixture.least_excess()[0]))
        while True:
            judge.iterations += 1
            weights, multipliers = mixture.nearest()
            duals = judge.blocks.split([mixture.dual(multipliers)])
            judge.refute(duals)
            judge.propose(mixture.mix(weights))
            judge.record(judge.nearest_distance)
            assert judge.refutation is not None
            close = judge.nearest_distance <= (1 + NEAREST) * judge.refutation.distance
            priced = policy_iteration(judge.dynamics, mixture.normal(multipliers), V, 0.0, judge.deadline)
            V = priced.V
            if close or judge.limit() is not None or not mixture.add_policy(priced.pairs):
                mixture.relax(mixture.mix(weights))
                return None if judge.limit() is None else Status.INFEASIBLE

    def _improve(self, judge: Judge, mixture: Mixture) -> Status:
        """Lower the cost of the mixture until the gap is proven."""
        pricing = Pricing(self.smoothing)
        best = -np.inf
        while True:
            judge.iterations += 1
            weights, multipliers = mixture.least_cost()
            d = mixture.mix(weights)
            judge.propose(d)
            trial = pricing.trial(multipliers)
            bound = judge.prove(judge.blocks.split([mixture.dual(trial)]))
            relaxed = bound.value - float(mixture.relaxation @ mixture.dual(trial))
            pricing.note(trial, relaxed)
            best = max(best, relaxed)
            judge.record(judge.gap)
            if judge.refutation is not None:
                # Among the nearest the cheapest is wanted: its gap is measured under the relaxed limits.
                if float(judge.c @ d) - best <= NEAREST * float(np.abs(judge.c) @ d) or judge.limit() is not None:
                    judge.settle(d)
                    return Status.INFEASIBLE
            elif (status := judge.verdict()) is not None:
                return status
            pairs = judge.dynamics.sweep(judge.c + mixture.normal(trial), bound.V)[1]
            if not mixture.add_policy(pairs) and not pricing.sharpen():
                return Status.INFEASIBLE if judge.refutation is not None else Status.ITERATION_LIMIT


class Pricing:
    """Multipliers to price: the master's, smoothed towards the ones of the best bound so far."""

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing
        self.center: Array | None = None
        self.best = -np.inf
        self.smoothed = False

    def trial(self, multipliers: Array) -> Array:
        """Return the multipliers to price in this round."""
        self.smoothed = self.center is not None and self.smoothing > 0
        if self.center is None or not self.smoothed:
            return multipliers
        return (1 - self.smoothing) * multipliers + self.smoothing * self.center

    def note(self, trial: Array, bound: float) -> None:
        """Keep the multipliers of the best bound."""
        if bound > self.best:
            self.best, self.center = bound, trial

    def sharpen(self) -> bool:
        """Price the master's own multipliers next, after a smoothed round found no new policy; False if they were."""
        was, self.center = self.smoothed, None
        return was


@dataclass(eq=False)
class Mixture:
    """Policies met so far, each with its cost and its rows, and the small linear programs over their weights."""

    judge: Judge
    linear: Linear
    occupancies: list[Array] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)
    slack: float = 0.0
    """What the scaled limits are widened by, for a feasible set so thin that rounding hides it."""

    def __post_init__(self) -> None:
        """Measure each row by its limit or its size under the unconstrained optimum."""
        linear, judge = self.linear, self.judge
        self.cost_scale = max(judge.best.scale if judge.best else 1.0, 1e-300)
        d = judge.best.d if judge.best else np.full(judge.c.size, 1 / judge.c.size)
        limit = np.maximum(*(np.where(np.isfinite(side), np.abs(side), 0.0) for side in (linear.upper, linear.lower)))
        size = np.maximum(limit, 1e-3 * np.asarray(abs(linear.rows) @ d).ravel())
        self.scale = np.where(size > 0, size, 1.0)
        # Rows as  signs * (E d) <= limits, one for each finite side.
        up, down = np.isfinite(linear.upper), np.isfinite(linear.lower)
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
        self.occupancies.append(d)
        self.costs.append(float(self.judge.c @ d) / self.cost_scale)
        self.values.append(self.sides(d))

    def sides(self, d: Array) -> Array:
        """Return the scaled rows of an occupancy, to be compared with the limits."""
        rows = np.asarray(self.linear.rows @ d).ravel() / self.scale
        return np.asarray(self.signs * rows[self.which])

    def relax(self, d: Array) -> None:
        """Shift the limits to where the point ``d`` stands outside them: ``E (d - project(d))`` is added to them."""
        self.relaxation = np.asarray(self.linear.rows @ (d - self.linear.project(d))).ravel()
        self.limits = self.limits + self.signs * (self.relaxation / self.scale)[self.which]
        self.slack = 0.0

    def add_policy(self, pairs: Indices) -> bool:
        """Add a deterministic policy; return False when it was there already."""
        key = np.asarray(pairs).tobytes()
        if key in self.seen:
            return False
        self.seen.add(key)
        self.add(self.judge.dynamics.occupancy(indicator(self.judge.dynamics, pairs)))
        return True

    def mix(self, weights: Array) -> Array:
        """Return the occupancy of a mixture."""
        taken = np.flatnonzero(weights > 0)
        return np.asarray(sum(weights[j] * self.occupancies[j] for j in taken) / weights[taken].sum())

    def dual(self, multipliers: Array) -> Array:
        """Turn multipliers of the scaled sides into multipliers of the rows."""
        out = np.zeros(self.linear.upper.size)
        np.add.at(out, self.which, self.signs * multipliers)
        return out / self.scale

    def normal(self, multipliers: Array) -> Array:
        """``E'lambda``."""
        return np.asarray(self.linear.rows.T @ self.dual(multipliers)).ravel()

    def support(self, multipliers: Array) -> float:
        """``lambda'b``."""
        return float(multipliers @ self.limits)

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
        sides = np.abs(F).sum(axis=1) * unit
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

    def least_cost(self) -> tuple[Array, Array]:
        """Weights of least cost within the limits, and the multipliers in units of the cost."""
        A, count = np.stack(self.values, axis=1), len(self.values)
        slack = self.slack
        while True:
            answer = _solve(np.array(self.costs), A, self.limits + slack, np.ones(count), [(0, None)] * count)
            if answer.status == 0:
                return answer.x, -answer.ineqlin.marginals * self.cost_scale
            slack = 2 * slack + 1e-12  # a feasible set that is a single point, lost to rounding


def _solve(cost: Array, A: Array, b: Array, ones: Array, bounds: list[tuple[float | None, float | None]]) -> Any:
    from scipy.optimize import linprog  # here, since it doubles the time of importing the library

    return linprog(
        cost, A_ub=A, b_ub=b, A_eq=ones[None, :], b_eq=[1.0], bounds=bounds, method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
