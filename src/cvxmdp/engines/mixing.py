"""Mixtures of deterministic policies, for linear constraints with few rows.

Some mixture of at most n + 1 deterministic policies is optimal under n linear rows (Dantzig-Wolfe).  A small linear
program mixes the policies met so far; its multipliers price the rows; policy iteration at cost ``c + E'lambda`` finds the
policy that the mixture misses most, and its value is a bound.  Multipliers are smoothed towards the best bound's, which
keeps them from swinging.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.optimize

from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.judge import Judge
from cvxmdp.engines.presolve import indicator, policy_iteration
from cvxmdp.mdp import Array
from cvxmdp.status import Status


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
        linear = judge.constraints.linear
        assert linear is not None
        mixture = Mixture(judge, linear)
        mixture.add(judge.best.d if judge.best is not None and start is None else start[0] if start else None)
        if not judge.best or judge.best.violation > judge.tolerance:
            slack, status = self._reach(judge, mixture)
            if status is not None:
                return status, f"mixing {len(mixture.occupancies)} policies"
            mixture.slack = slack
        status = self._improve(judge, mixture, start)
        return status, f"mixing {len(mixture.occupancies)} policies"

    def _reach(self, judge: Judge, mixture: Mixture) -> tuple[float, Status | None]:
        """Lower the worst relative excess until some mixture obeys, or prove that none does."""
        zero = np.zeros_like(judge.c)
        V: Array | None = None
        best, center = -np.inf, None
        while True:
            judge.iterations += 1
            weights, multipliers, excess = mixture.least_excess()
            if excess <= 0.01 * judge.tolerance:
                return max(excess, 0.0), None
            trial = multipliers if center is None else (1 - self.smoothing) * multipliers + self.smoothing * center
            priced = policy_iteration(judge.dynamics, zero + mixture.normal(trial), V, 1e-3 * judge.tolerance)
            V = priced.V
            reach = priced.bound - mixture.support(trial)
            if reach > best:
                best, center = reach, trial
            if reach > 0 and judge.refute(judge.constraints.split([mixture.dual(trial)])) is not None:
                judge.propose(mixture.mix(weights))
                judge.record(excess)
                return excess, Status.INFEASIBLE
            judge.propose(mixture.mix(weights))
            judge.record(excess)
            if (status := judge.limit()) is not None:
                return excess, status
            if excess - best <= 0.01 * judge.tolerance and excess <= judge.tolerance:
                return excess, None
            if not mixture.add_policy(priced.pairs):
                if center is None or np.array_equal(trial, multipliers):
                    return excess, Status.ITERATION_LIMIT
                center = multipliers

    def _improve(self, judge: Judge, mixture: Mixture, start: tuple[Array, list[Array]] | None) -> Status:
        """Lower the cost of the mixture until the gap is proven."""
        center: Array | None = None
        if start is not None:
            judge.prove(start[1])
        while True:
            judge.iterations += 1
            weights, multipliers = mixture.least_cost()
            judge.propose(mixture.mix(weights))
            trial = multipliers if center is None else (1 - self.smoothing) * multipliers + self.smoothing * center
            before = -np.inf if judge.bound is None else judge.bound.value
            bound = judge.prove(judge.constraints.split([mixture.dual(trial)]))
            if bound.value > before:
                center = trial
            judge.record(judge.gap)
            if (status := judge.verdict()) is not None:
                return status
            pairs = judge.dynamics.sweep(judge.c + mixture.normal(trial), bound.V)[1]
            if not mixture.add_policy(pairs):
                if center is None or np.array_equal(trial, multipliers):
                    return Status.ITERATION_LIMIT
                center = multipliers


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

    def add(self, d: Array | None) -> None:
        """Add an occupancy."""
        if d is not None:
            self.occupancies.append(d)
            self.costs.append(float(self.judge.c @ d) / self.cost_scale)
            rows = np.asarray(self.linear.rows @ d).ravel() / self.scale
            self.values.append(self.signs * rows[self.which])

    def add_policy(self, pairs: Array) -> bool:
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

    def least_cost(self) -> tuple[Array, Array]:
        """Weights of least cost within the limits, and the multipliers in units of the cost."""
        A, count = np.stack(self.values, axis=1), len(self.values)
        slack = self.slack
        while True:
            answer = _solve(np.array(self.costs), A, self.limits + slack, np.ones(count), [(0, None)] * count)
            if answer.status == 0:
                return answer.x, -answer.ineqlin.marginals * self.cost_scale
            slack = 2 * slack + 1e-12  # a feasible set that is a single point, lost to rounding


def _solve(cost: Array, A: Array, b: Array, ones: Array, bounds: list[tuple[float | None, float | None]]) -> object:
    return scipy.optimize.linprog(
        cost, A_ub=A, b_ub=b, A_eq=ones[None, :], b_eq=[1.0], bounds=bounds, method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
