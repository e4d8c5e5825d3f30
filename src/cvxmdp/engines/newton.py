"""The proximal method of multipliers with semismooth Newton steps: for any mixture of sets and convex terms.

Every block, the sign constraint ``d >= 0`` included, is replaced by its envelope (:mod:`cvxmdp.engines.pieces`), and
``c'd + envelopes + |d - last d|^2 / (2 tau)`` is minimized over ``flow(d) = (1 - gamma) rho``.  That is smooth, so
Newton steps with a line search do it; then multipliers and d move on.  Flat sets are met after finitely many passes,
curved ones at a rate that improves as sigma falls and tau grows.  It converges for every sigma and tau (Rockafellar
1976, the proximal method of multipliers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg as la

from cvxmdp.engines.base import Engine, Proposal, Proposals, Task
from cvxmdp.engines.hessian import Hessian, System
from cvxmdp.engines.line_search import armijo
from cvxmdp.engines.pieces import Envelope, Nonnegative, Piece, piece_of
from cvxmdp.engines.presolve import occupancy_of
from cvxmdp.engines.prox import natural_step
from cvxmdp.mdp import Array

SHORTEST = 1e-9
"""A shorter step does not change the function beyond rounding."""
ROUNDING = 1e-13
"""Relative to the cost: a smaller change is not seen."""
LOOSE = 100.0
"""The first tau over the first sigma: far enough to reach another vertex, near enough for Newton's model to hold."""
PASS_ACCURACY = 0.5
"""A pass ends when its gradient is this share of the pull back to where it began (Solodov and Svaiter 1999)."""
SMOOTH = (0.1, 10.0)
"""Sigma and tau where all is smooth but for ``d >= 0``: the squared distance to a set, whose curvature is one."""
FAST = 0.2
"""A residual that falls to this share from pass to pass needs no help."""
STIFFEST = 1e10
"""Largest ratio of tau to sigma: beyond, Newton's system is lost to rounding."""
PATIENCE, SMOOTH_PATIENCE = 100, 20
"""Passes in which the gap, or the violation, has to halve once nothing can be tightened any more, or all is smooth."""
MOST_STEPS = 40
"""Newton steps in one pass."""


@dataclass(frozen=True)
class Newton(Engine):
    """Settings of the Newton method.

    Parameters
    ----------
    shrink : float
        Between 0 and 1: by how much sigma falls, and 1/tau with it, from pass to pass.
    evaluation : {"auto", "direct", "iterative"}
        How linear systems are solved, see :func:`cvxmdp.dynamics.plan.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Entropy(at_least=2.0)])
    >>> problem.solve(method=cm.Newton()).status.name
    'OPTIMAL'
    """

    shrink: float = 0.3

    name = "newton"
    said = "proximal Newton method, {steps} Newton steps"
    most_passes = 3000
    persists = True
    slow_to_obey = True

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.shrink < 1:
            raise ValueError(f"shrink is {self.shrink}; it must lie between 0 and 1, both excluded")

    def proposals(self, task: Task) -> Proposals:
        """Minimize, move the multipliers, tighten, and begin again, until nothing can be tightened any more."""
        d = occupancy_of(task.dynamics, task.unconstrained.pairs) if task.start is None else task.start.occupancy
        step, smooth = natural_step(task.blocks, task.c, d), task.blocks.smooth
        pieces: list[Piece] = [Nonnegative(d.size), *(piece_of(member, d.size) for member in task.blocks.members)]
        if task.start is not None and not smooth:
            for piece, dual in zip(pieces[1:], task.start.duals, strict=True):
                piece.begin(dual)
            c = task.c + task.blocks.normals(task.start.duals)[0]
            pieces[0].u = -np.maximum(task.dynamics.advantage(c, task.start.V), 0.0)
        state = State(task, pieces, d, *(SMOOTH if smooth else (step, LOOSE * step)))
        left: list[float] = []
        values: list[float] = []
        patience = SMOOTH_PATIENCE if smooth else PATIENCE
        while True:
            yield from state.minimize()
            answer = yield state.proposal(ready=True)
            left.append(answer.missing)
            values.append(answer.candidate.value)
            stuck = len(left) > patience and left[-1] > 0.5 * left[-patience]
            # A distance may vanish, and what is missing of it relatively may not fall.
            stuck = stuck and not (smooth and values[-1] < 0.5 * values[-patience])
            if stuck and (smooth or state.exhausted):
                return
            state.advance(self.shrink)


class State:
    """Where the method is: the occupancy, the multipliers in the pieces, sigma and tau."""

    def __init__(self, task: Task, pieces: Sequence[Piece], d: Array, sigma: float, tau: float) -> None:
        self.task, self.dynamics, self.c, self.pieces = task, task.dynamics, task.c, pieces
        self.scale = 0.0 if task.blocks.smooth else task.best.scale
        """What the cost is a sum of: changes far below it are rounding."""
        self.d, self.sigma, self.tau = d, sigma, tau
        self.envelopes: list[Envelope] = []
        self.residual = np.inf
        self.q = (1 - self.dynamics.gamma) * self.dynamics.rho
        self.apart = self.unbalanced = 0.0
        self.advanced = False
        self.damping = 1 / tau

    @property
    def exhausted(self) -> bool:
        """Whether nothing can be tightened any more, or nothing moves."""
        return self.sigma * STIFFEST <= self.tau or (self.residual == 0.0 and self.apart == 0.0 and self.advanced)

    def proposal(self, ready: bool) -> Proposal:
        """Propose the occupancy and the gradients of the pieces."""
        return Proposal(lambda: self.d, self._duals, residual=self.residual, ready=ready, suspect=ready)

    def _duals(self) -> list[Array]:
        """Return one dual array a member."""
        return [piece.dual(at, self.sigma) for piece, at in zip(self.pieces[1:], self.envelopes[1:], strict=True)]

    def advance(self, shrink: float) -> None:
        """Take the gradients as multipliers, and tighten what does not converge fast by itself."""
        turned = 0.0
        for piece, at in zip(self.pieces, self.envelopes, strict=True):
            before = piece.u
            piece.update(at, self.sigma)
            turned = max(turned, self.sigma * float(np.linalg.norm(piece.u - before)))
        # How far d is from the copies, and how far the multipliers are from balancing the cost.
        apart, unbalanced = turned, self.residual / self.tau
        if apart > FAST * self.apart and self.sigma * STIFFEST > self.tau:
            self.sigma *= shrink
        matters = unbalanced > 0.01 * self.task.tolerance * self.scale
        if matters and unbalanced > FAST * self.unbalanced and self.sigma * STIFFEST > self.tau:
            self.tau /= shrink
        self.apart, self.unbalanced, self.advanced = apart, unbalanced, True

    def minimize(self) -> Proposals:
        """Minimize the smooth function of this pass over the flow equations by Newton steps."""
        last = self.d
        value, gradient, self.envelopes = self._smooth(last, last)
        for k in range(MOST_STEPS):
            if k:
                yield self.proposal(ready=False)
            direction, force = self._direction(gradient)
            if not force > PASS_ACCURACY * float(np.linalg.norm(self.d - last)) / self.tau:
                break
            rounding = ROUNDING * (abs(value) + self.scale)
            along = partial(self._along, direction, last)
            length, new, there = armijo(along, value, float(gradient @ direction), rounding, SHORTEST)
            stiff = self._damp(length)
            # A shortened step that gains nothing that can be seen would be taken again and again.
            spent = stiff and (length < SHORTEST or (length < 1.0 and value - new <= rounding))
            if length >= SHORTEST:
                value, (self.d, gradient, self.envelopes) = new, there
            if spent or force * float(np.linalg.norm(direction)) <= rounding:
                break
        self.residual = float(np.linalg.norm(self.d - last))

    def _damp(self, length: float) -> bool:
        """Keep the next step nearer after a short one, freer after a full one; say whether it was as near as can be.

        A short step means that the model was good only nearby.
        """
        nearest = self.damping >= 1 / self.sigma
        self.damping *= 0.1 if length == 1.0 else 10.0 if length < 0.25 else 1.0
        self.damping = min(self.damping, 1 / self.sigma)
        return nearest

    def _along(self, direction: Array, last: Array, length: float) -> tuple[float, tuple[Array, Array, list[Envelope]]]:
        """Return the value after a step, and what is there."""
        d = self.d + length * direction
        value, gradient, envelopes = self._smooth(d, last)
        return value, (d, gradient, envelopes)

    def _smooth(self, d: Array, last: Array) -> tuple[float, Array, list[Envelope]]:
        """Return the value of the smooth function of this pass, its gradient, and the pieces' envelopes."""
        envelopes = [piece.envelope(d, self.sigma) for piece in self.pieces]
        away = d - last
        value = float(self.c @ d) + float(away @ away) / (2 * self.tau) + sum(t.value for t in envelopes)
        gradient = self.c + away / self.tau
        for at in envelopes:
            gradient = gradient + at.gradient
        return value, gradient, envelopes

    def _direction(self, gradient: Array) -> tuple[Array, float]:
        """Solve Newton's system ``H x + M V = -gradient``, ``flow(d + x) = (1 - gamma) rho``; return x and ``|H x|``.

        The second is how far the gradient is from vanishing along the flow equations.
        """
        responses = [piece.response(at, self.sigma) for piece, at in zip(self.pieces, self.envelopes, strict=True)]
        self.damping = max(self.damping, 1 / self.tau)
        try:
            H = Hessian(responses, self.damping)
            system = System(H, self.dynamics)
        except (ValueError, RuntimeError, la.LinAlgError):  # not finite, or singular
            return np.zeros_like(gradient), np.nan
        x, _ = system.solve(-gradient, self.q - self.dynamics.flow(self.d))
        return x, float(np.linalg.norm(H.apply(x)))
