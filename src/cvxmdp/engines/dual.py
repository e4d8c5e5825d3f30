"""Newton's method on the dual, for a cost under one curved limit: a Euclidean ball, an entropy or a KL ball.

Such a limit is ``F(d) <= b`` with F a strictly convex sum over pairs.  For a value V and a price mu > 0 of the limit
the best d is known pair by pair, so that the dual

    phi(V, mu) = (1 - gamma) rho'V - mu b + min over d of (c + M V)'d + mu F(d)

is smooth, concave and free of constraints but mu > 0.  Its gradient is how far d is from an occupancy and from the
limit, and its Hessian is ``-B' diag(W) B`` with ``B = [M, F'(d)]`` and ``W = 1 / (mu F''(d))`` over the visited pairs.
Conjugate gradients solve Newton's system with one pass over P a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cvxmdp.blocks import Constraint, Term
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.dynamics.linear import conjugate_gradients
from cvxmdp.engines.base import Engine, Proposal, Proposals, Task
from cvxmdp.engines.line_search import armijo
from cvxmdp.mdp import Array
from cvxmdp.separable import BestReply, Separable

MOST_STEPS, MOST_PASSES = 80, 200
"""Where the model mixes, 5 to 10 steps and some 40 passes over P do; elsewhere there is no end."""
SHORTEST = 1e-6
"""A shorter step rises by less than rounding shows."""
INNER_STEPS = 500
"""Conjugate gradient steps for one direction; MOST_PASSES ends the method long before it takes many such."""
SETTLING_STEPS, SETTLE_ACCURACY = 15, 1e-10
"""Most steps over price and level, and how exactly d adds up to one and meets the limit after them."""
LOOSEST = 0.1
"""Newton's system is solved to this relative accuracy at least; nearer to the end in step with what is left."""
DAMPINGS = (1e-12, 1e-8, 10.0)
"""Added to the Hessian, relative to its diagonal: least, first and most.  It keeps states without visited pairs in
place; it grows a hundredfold after a short step and falls tenfold after a full one."""
ENOUGH = 0.1
"""Share of the tolerance to which the last of these systems is solved."""
READY = 10.0
"""A point is judged once what is left is within this many tolerances."""


@dataclass(frozen=True)
class Dual(Engine):
    """Settings of the dual Newton method.

    Parameters
    ----------
    evaluation : {"auto", "direct", "iterative"}
        How linear systems of policies are solved, see :func:`cvxmdp.dynamics.plan.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Entropy(at_least=2.0)])
    >>> problem.solve(method=cm.Dual()).status.name
    'OPTIMAL'
    """

    name = "dual"
    on_ranks = True
    said = "Newton's method on the dual, {steps} steps"
    most_passes = 1000
    threads_from = np.inf
    helped = True

    def needs(self, constraints: Sequence[Constraint], terms: Sequence[Term]) -> str | None:
        if terms or len(constraints) != 1 or constraints[0].separable() is None:
            return 'a cost under one constraint: a ball in the 2-norm, an entropy of pairs or a KL ball; use "auto"'
        return None

    def proposals(self, task: Task) -> Proposals:
        """Climb, until the dual is higher than any cost: it rises without end where no policy obeys."""
        limit = task.blocks.constraints[0].separable()
        assert limit is not None
        point = _begun(task, limit)
        if point is None:
            return
        highest, begun = float(np.max(task.c)), task.dynamics.passes
        for _ in range(MOST_STEPS):
            if task.dynamics.passes - begun > MOST_PASSES:
                return
            point.settle()
            yield point.proposal()
            if point.dual_value > highest or not np.isfinite(point.dual_value):
                return
            if not point.climb(*point.direction()):
                return


class DualPoint:
    """Where the method is: V, the price mu, the advantages ``q = c + M V`` and the best d there."""

    def __init__(self, task: Task, limit: Separable, V: Array, q: Array, mu: float) -> None:
        self.dynamics, self.limit, self.tolerance = task.dynamics, limit, task.tolerance
        self.V, self.q, self.mu = V, q, mu
        self.inflow = (1 - self.dynamics.gamma) * self.dynamics.rho
        self.left, self.before, self.damping = 1.0, 1.0, DAMPINGS[1]

    def settle(self) -> None:
        """Climb over the price and the level of V; find the gradient ``(r, g)`` there, and what is left to do."""
        limit, gamma = self.limit, self.dynamics.gamma
        level, self.mu, at = settle(limit, self.q, self.mu)
        self.V, self.q, self.at = self.V + level / (1 - gamma), self.q - level, at
        flow, self.border = self.dynamics.flow_of_two(at.d, -at.weights * at.slope)
        self.r, self.g = self.inflow - flow, at.value - limit.bound
        self.dual_value = float(self.inflow @ self.V) - self.mu * limit.bound + at.least
        self.left = max(float(np.abs(self.r).sum()) / (1 - gamma), abs(self.g) / limit.scale)

    def proposal(self) -> Proposal:
        """Propose the best d, and the price."""
        return Proposal(
            self.at.d.copy, partial(_duals, self.limit, self.at, self.mu), partial(np.copy, self.V), self.left,
            self.left <= READY * self.tolerance,
        )  # fmt: skip

    def direction(self) -> tuple[Array, float]:
        """Solve Newton's system, as exactly as the last step was good."""
        exact = max(
            min(self.left, self.left / max(self.before, 1e-300)), ENOUGH * self.tolerance / max(self.left, 1e-300)
        )
        accuracy = min(LOOSEST, exact)
        return direction(self.dynamics, self.at, self.r, self.border, self.g, accuracy, self.damping)

    def climb(self, x: Array, m: float) -> bool:
        """Go along a change of V and of the price as long as the dual rises (Armijo); False where that is nowhere."""
        change, rise = self.dynamics.advantage(np.zeros_like(self.q), x), float(self.r @ x) + self.g * m
        here, along = (float(self.inflow @ self.V), self.q, self.mu), (float(self.inflow @ x), change, m)
        below, rounding = partial(_below, self.limit, here, along), 1e-14 * abs(self.dual_value)
        length, _, _ = armijo(below, -self.dual_value, -rise, rounding, SHORTEST, _longest(self.mu, m))
        factor = 0.1 if length == 1.0 else 100.0 if length < 0.1 else 1.0
        self.damping = min(max(self.damping * factor, DAMPINGS[0]), DAMPINGS[2])
        if length < SHORTEST:
            return self.damping < DAMPINGS[2]
        self.V, self.mu, self.q = self.V + length * x, self.mu + length * m, self.q + length * change
        self.before = self.left
        return True


def _begun(task: Task, limit: Separable) -> DualPoint | None:
    """Begin at the best policy without limits or where a similar problem ended; None where every policy costs alike."""
    start = task.start
    V = task.unconstrained.V if start is None else start.V
    q = task.dynamics.advantage(task.c, V)
    mu = limit.price(q) if start is None else limit.price_of(start.duals[0]) or limit.price(q)
    return DualPoint(task, limit, V, q, mu) if np.isfinite(mu) and mu > 0 else None


def _duals(limit: Separable, at: BestReply, mu: float) -> list[Array]:
    return [limit.dual(at, mu)]


def settle(limit: Separable, q: Array, mu: float) -> tuple[float, float, BestReply]:
    """Climb over the price, and over the level of V, which needs no pass over P; return how much q falls by.

    At the top d adds up to one and meets the limit.
    """
    level, at = 0.0, limit.respond(q, mu)
    for _ in range(SETTLING_STEPS):
        g = np.array([0.0 if at.even else 1.0 - float(at.d.sum()), at.value - limit.bound])
        if max(abs(g[0]), abs(g[1]) / limit.scale) <= SETTLE_ACCURACY:
            break
        total, cross = (1.0, 0.0) if at.even else (float(at.weights.sum()), -float(at.weights @ at.slope))
        with np.errstate(over="ignore", invalid="ignore"):  # far from a limit that no policy meets
            H = np.array([[total, cross], [cross, float(at.weights @ at.slope**2)]])
        H[np.diag_indices(2)] *= 1 + 1e-12
        if not (np.all(np.isfinite(H)) and np.linalg.det(H) > 0):
            break
        t, m = (float(step) for step in np.linalg.solve(H, g))
        dual_value = level - mu * limit.bound + at.least
        below = partial(_below, limit, (level, q - level, mu), (t, -t, m))
        rounding = 1e-14 * abs(dual_value)
        length, _, there = armijo(below, -dual_value, -float(g @ (t, m)), rounding, SHORTEST, _longest(mu, m))
        if length < SHORTEST:
            break
        level, mu, at = level + length * float(t), mu + length * float(m), there
    return level, mu, at


def _below(
    limit: Separable,
    at: tuple[float, Array, float],
    along: tuple[float, Array | float, float],
    length: float,
) -> tuple[float, BestReply]:
    """Return minus the dual after a step, and the best reply there, from what V adds to it, advantages and price."""
    mu = at[2] + length * along[2]
    reply = limit.respond(at[1] + length * along[1], mu)
    return mu * limit.bound - reply.least - at[0] - length * along[0], reply


def _longest(mu: float, m: float) -> float:
    """Return the longest step that leaves the price positive, at most the full one."""
    return 1.0 if m >= 0 else min(1.0, -0.9 * mu / m)


def direction(
    dynamics: Dynamics, at: BestReply, r: Array, border: Array, g: float, accuracy: float, damping: float
) -> tuple[Array, float]:
    """Solve Newton's system ``B' W B (x, m) = (r, g)``; its border ``M'W F'(d)`` is the flow of ``-W F'(d)``."""
    W = at.weights
    with np.errstate(over="ignore", invalid="ignore"):
        corner = float(W @ at.slope**2)
    if not np.isfinite(corner):
        return np.zeros_like(r), 0.0
    # Where d adds up to one, W is diag(d) - d d' over mu: the mean of B (x, m) is taken off.
    mean = r - (1 - dynamics.gamma) * dynamics.rho if at.even else None
    diagonal = np.append(dynamics.weighted_diagonal(W), corner)
    added = damping * (diagonal + (diagonal[:-1].mean() or 1 / at.price))

    def apply(y: Array) -> Array:
        x, m = y[:-1], y[-1]
        out = dynamics.weighted(W, x) + m * border
        if mean is not None:
            out -= (mean @ x) / at.price * mean
        return np.append(out, border @ x + m * corner) + added * y

    rhs = np.append(r, g)
    y = conjugate_gradients(apply, rhs, np.zeros_like(rhs), diagonal + added, accuracy, INNER_STEPS)
    return y[:-1], float(y[-1])
