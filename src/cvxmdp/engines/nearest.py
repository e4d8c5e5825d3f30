"""The policy nearest to linear limits that no policy obeys, and the cheapest of the nearest, by frozen visits.

For multipliers m of the rows the squared distance of an occupancy d to ``{E d <= b}`` is

    |v|^2 = max over m >= 0 of  2 m'(E d - b) - |E'm|^2,   with v = E'm  at the best m.

So ``share c'd + |v|^2 / 2`` has a frozen program (see frozen.py) in which the limits give way to their multipliers by
``E E'm``.  It always has a solution.  Without the cost, its rounds end at the least distance (Proposition 3 of the
paper); then a small share of the cost finds the cheapest of the nearest (Proposition 4).  What that adds to the
distance is of the order of the share's square, and the policy costs no more than the cheapest of those exactly nearest.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.frozen import solve_frozen
from cvxmdp.engines.judge import Judge
from cvxmdp.mdp import Array

MOST_ROUNDS, PATIENCE = 40, 4
"""Rounds, and how many of them may pass without halving what is missing."""
CLOSE, CLOSEST = 1e-8, 1e-11
"""How exactly, relatively, the least squared distance is sought: at least, and where rounding allows it."""
SHARES = (1e-5, 1e-4)
"""Shares of the cost, relative to the distance, with which the cheapest of the nearest is sought."""
LEAST_ACCURACY = 1e-14
"""Policies are evaluated no more exactly than rounding allows."""


class Approach:
    """Rounds towards the nearest policy.  Rows are measured by ``sizes``, distances by the root of ``unit``."""

    def __init__(self, judge: Judge, linear: Linear, sizes: Array, cost_scale: float) -> None:
        assert judge.refutation is not None
        self.judge, self.linear, self.cost_scale = judge, linear, cost_scale
        # Sides as  signs * (E d) <= limits.  All are needed: the nearest allowed point need not be a distribution.
        up, down = np.flatnonzero(np.isfinite(linear.upper)), np.isfinite(linear.lower) & (linear.upper != linear.lower)
        self.which = np.concatenate([up, np.flatnonzero(down)])
        signs = np.concatenate([np.ones(up.size), -np.ones(int(down.sum()))])
        self.equal = (linear.upper == linear.lower)[self.which]
        self.weights = signs / sizes[self.which]
        rows = linear.rows[self.which]
        self.sides = (
            (self.weights[:, None] * rows)
            if isinstance(rows, np.ndarray)
            else rows.multiply(self.weights[:, None]).toarray()
        )
        ends = np.where(signs > 0, linear.upper[self.which], linear.lower[self.which])
        self.limits = self.weights * ends
        self.gram = self.sides @ self.sides.T
        given = np.concatenate(judge.refutation.duals)[self.which] / self.weights
        self.prices = np.where(self.equal, given, np.maximum(given, 0.0))
        total = float(np.abs(self.prices).sum())
        self.prices /= total
        # At these prices the dual 2 m'(E d - b) - |E'm|^2 is largest for v of this many times their normal.
        self.margin = judge.refutation.margin / total
        self.unit = self.margin / float(self.prices @ self.gram @ self.prices)

    def duals(self, prices: Array) -> list[Array]:
        """Return multipliers of the sides as dual arrays of the constraints, in the user's units."""
        rows = np.zeros(self.linear.upper.size)
        np.add.at(rows, self.which, self.weights * prices)
        return self.judge.blocks.split([rows])

    def rounds(self, pi: Array, share: float) -> tuple[Array | None, float]:
        """Lower ``share c'd`` plus the squared distance, from the policy ``pi``.

        Return the last occupancy, None if there was no round, and what the cost was multiplied by.
        """
        judge, dynamics = self.judge, self.judge.dynamics
        scale = share * self.margin / self.cost_scale
        costs = np.ascontiguousarray(np.vstack([scale * judge.c, self.sides]).T)
        least, stuck, d = 1.0, 0, None
        x = V = None
        for _ in range(MOST_ROUNDS):
            judge.iterations += 1
            accuracy = self.margin * min(max(0.01 * least**2, 0.1 * CLOSEST), 1e-3)
            x, V, A = dynamics.evaluate(pi, costs, max(1e-3 * accuracy, LEAST_ACCURACY), x, V)
            judge.pending = partial(dynamics.occupancy, pi)
            J = (1 - dynamics.gamma) * (dynamics.rho @ V)
            d, room = x[dynamics.owner] * pi, self.limits - J[1:]
            frozen = solve_frozen(
                A, x, dynamics.first, room, self.equal, self.prices, accuracy, near=True, give=self.unit * self.gram
            )
            if frozen is None:
                break
            self.prices = m = frozen.multipliers
            away = self.linear.rows.T @ self.linear.multipliers(d)
            high = float(away @ away) / (2 * self.unit)
            low = frozen.least - float(m @ room) - self.unit * float(m @ self.gram @ m) / 2
            missing = (high - low) / self.margin
            judge.record(float(np.sqrt(2 * self.unit * high)))
            if judge.limit() is not None or missing <= max(CLOSEST, 0.1 * share * judge.tolerance):
                break
            stuck = 0 if missing < 0.5 * least else stuck + 1
            least = min(least, missing)
            if stuck == (PATIENCE if least > CLOSE else 1):
                break
            pi = frozen.policy
        return d, scale


def approach(judge: Judge, linear: Linear, sizes: Array, cost_scale: float, pi: Array) -> bool:
    """Find the nearest policy, then the cheapest of them; return whether the least distance is proven."""
    steps = Approach(judge, linear, sizes, cost_scale)
    d, _ = steps.rounds(pi, 0.0)
    if d is None:
        return False
    judge.refute(steps.duals(steps.prices))
    judge.propose(d)
    if judge.nearest is None or not judge.near:
        return False
    for share in SHARES if judge.seek == "policy" else ():
        if judge.limit() is not None:
            break
        nearest = judge.nearest
        d, scale = steps.rounds(nearest.policy.probabilities, share)
        if d is None:
            break
        judge.settle(d)
        if judge.cheapest(steps.duals(steps.prices / scale)):
            break
    return True
