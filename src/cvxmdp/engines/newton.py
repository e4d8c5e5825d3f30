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

import numpy as np
import scipy.linalg as la

from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.base import Engine
from cvxmdp.engines.hessian import Hessian, System
from cvxmdp.engines.judge import Judge
from cvxmdp.engines.pieces import Copy, Near, Nonnegative, Piece, Rows, Touch
from cvxmdp.engines.presolve import occupancy_of
from cvxmdp.engines.splitting import natural_step
from cvxmdp.mdp import Array
from cvxmdp.status import Status

ARMIJO = 1e-4
"""Share of the fall that the gradient promises which a step has to bring (Nocedal and Wright, section 3.1)."""
SHORTEST = 1e-9
"""A shorter step does not change the function beyond rounding."""
ROUNDING = 1e-13
"""Relative to the cost: a smaller change is not seen."""
LOOSE = 100.0
"""The first tau over the first sigma: far enough to reach another vertex, near enough for Newton's model to hold."""
INEXACT = 0.5
"""A pass ends when its gradient is this share of the pull back to where it began (Solodov and Svaiter 1999)."""
DISPLACEMENT = 1e-8
"""How exactly, relatively, the least distance to flat sets is sought before the cheapest of the nearest."""
FAST = 0.2
"""A residual that falls to this share from pass to pass needs no help."""
STIFFEST = 1e10
"""Largest ratio of tau to sigma: beyond, Newton's system is lost to rounding."""
PATIENCE = 100
"""Passes in which the gap, or the violation, has to halve once nothing can be tightened any more."""
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
        How linear systems are solved, see :func:`cvxmdp.dynamics.linear.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Entropy(at_least=2.0)])
    >>> problem.solve(method=cm.Newton()).status.name
    'OPTIMAL'
    """

    shrink: float = 0.3

    name = "newton"
    most_passes = 3000

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.shrink < 1:
            raise ValueError(f"shrink is {self.shrink}; it must lie between 0 and 1, both excluded")

    def run(self, judge: Judge, start: tuple[Array, list[Array]] | None) -> tuple[Status, str]:
        """Run until the judge is satisfied; return the status and a sentence."""
        d0 = occupancy_of(judge.dynamics, judge.unconstrained.pairs)
        step = natural_step(judge.blocks, judge.c, d0)
        pieces = _pieces(judge, {})
        if start is not None:
            d0, duals = start
            for piece, member, dual in zip(pieces[1:], judge.blocks.members, duals, strict=True):
                piece.u = dual * piece.norms if isinstance(piece, Rows) else member.normal(dual)[0]
            c = judge.c + judge.blocks.normals(duals)[0]
            pieces[0].u = -np.maximum(judge.dynamics.advantage(c, judge.prove(duals).V), 0.0)
        # Another engine may have proven already that no policy obeys.
        status = None
        if judge.refutation is None and judge.wants_optimum:
            status = self._optimize(judge, pieces, d0, step)
        if status is None:
            status = self._approach(judge, d0)
        if status is None:
            status = self._settle(judge, step)
        return status, f"proximal Newton method, {judge.steps} Newton steps"

    def _optimize(self, judge: Judge, start: Sequence[Piece], d: Array, step: float) -> Status | None:
        """Minimize until the gap is proven, a limit is reached, or it is proven that no policy obeys (None)."""
        assert judge.best is not None
        state = State(judge, judge.c, start, d, step, LOOSE * step, judge.best.scale)
        left: list[float] = []
        while True:
            state.minimize()
            candidate = judge.propose(state.d)
            duals = state.duals()
            judge.prove(duals)
            if candidate.violation > judge.tolerance and judge.refutation is None:
                judge.refute(duals)
                judge.refute(judge.blocks.set_duals(candidate.d))
            judge.record(state.residual)
            if (status := judge.verdict()) is not None:
                return status
            if judge.refutation is not None:
                return None
            left.append(judge.gap if judge.obeyed else judge.best.violation)
            if state.exhausted and len(left) > PATIENCE and left[-1] > 0.5 * left[-PATIENCE]:
                return Status.ITERATION_LIMIT if judge.obeyed else None  # then see how near a policy can come
            state.advance(self.shrink)

    def _approach(self, judge: Judge, d: Array) -> Status | None:
        """Lower the distance to the constraints until a policy obeys, or the distance is proven least.

        Return None if the cheapest of the nearest is yet to find, for which the displacement has to be known more
        exactly than the tolerance.
        """
        accuracy = DISPLACEMENT if judge.blocks.flat else judge.tolerance
        near: list[Piece] = [Near(block) for block in judge.blocks.sets]
        state = State(judge, np.zeros_like(judge.c), [Nonnegative(d.size), *near], d, 0.1, 10.0, 0.0)
        while True:
            state.minimize()
            candidate = judge.propose(state.d)
            judge.refute(judge.blocks.set_duals(candidate.d))
            judge.record(judge.nearest_distance)
            limit = judge.limit()
            if judge.refutation is None:
                if judge.obeyed or limit is not None or state.exhausted:
                    return judge.verdict() or Status.ITERATION_LIMIT
            elif not judge.wants_nearest or limit is not None:
                return Status.INFEASIBLE
            elif judge.nearest_distance <= (1 + accuracy) * judge.refutation.distance or state.exhausted:
                return None if judge.blocks.flat and judge.seek == "policy" else Status.INFEASIBLE
            state.advance(self.shrink)

    def _settle(self, judge: Judge, step: float) -> Status:
        """Find the cheapest of the nearest policies: flat sets are moved by their displacements (Proposition 4)."""
        if judge.nearest is None:  # no projection succeeded
            return Status.INFEASIBLE
        assert judge.displacement is not None
        d = judge.nearest.d
        shifts = {id(block): v for block, v in zip(judge.blocks.sets, judge.displacement, strict=True)}
        state = State(judge, judge.c, _pieces(judge, shifts), d, step, LOOSE * step, judge.nearest.scale)
        while True:
            state.minimize()
            judge.settle(state.d)
            closed = judge.cheapest(state.duals())
            judge.record(state.residual)
            if closed or judge.limit() is not None or state.exhausted:
                return Status.INFEASIBLE
            state.advance(self.shrink)


def _pieces(judge: Judge, shifts: dict[int, Array]) -> list[Piece]:
    """The sign constraint, then one piece for each member of the problem."""
    blocks, size = judge.blocks, judge.c.size
    of_linear = shifts.get(id(blocks.linear))
    out: list[Piece] = [Nonnegative(size)]
    for member in blocks.members:
        if isinstance(member, Linear):
            out.append(Rows(member, of_linear))
        else:
            out.append(Copy(member, size, shifts.get(id(member))))
    return out


class State:
    """Where the method is: the occupancy, the multipliers in the pieces, sigma and tau.

    ``scale`` is what the cost is a sum of: changes far below it are rounding.
    """

    def __init__(
        self, judge: Judge, c: Array, pieces: Sequence[Piece], d: Array, sigma: float, tau: float, scale: float
    ) -> None:
        self.judge, self.dynamics, self.c, self.pieces = judge, judge.dynamics, c, pieces
        self.scale = scale
        self.d, self.sigma, self.tau = d, sigma, tau
        self.touches: list[Touch] = []
        self.residual = np.inf
        self.q = (1 - self.dynamics.gamma) * self.dynamics.rho
        self.apart = self.unbalanced = 0.0
        self.advanced = False
        self.damping = 1 / tau

    @property
    def exhausted(self) -> bool:
        """Whether nothing can be tightened any more, or nothing moves."""
        return self.sigma * STIFFEST <= self.tau or (self.residual == 0.0 and self.apart == 0.0 and self.advanced)

    def duals(self) -> list[Array]:
        """Return one dual array a member."""
        pairs = zip(self.pieces[1:], self.touches[1:], strict=True)
        return [piece.dual(touch, self.sigma) for piece, touch in pairs if isinstance(piece, (Rows, Copy))]

    def advance(self, shrink: float) -> None:
        """Take the gradients as multipliers, and tighten what does not converge fast by itself."""
        turned = 0.0
        for piece, touch in zip(self.pieces, self.touches, strict=True):
            before = piece.u
            piece.update(touch, self.sigma)
            turned = max(turned, self.sigma * float(np.linalg.norm(piece.u - before)))
        # How far d is from the copies, and how far the multipliers are from balancing the cost.
        apart, unbalanced = turned, self.residual / self.tau
        if apart > FAST * self.apart and self.sigma * STIFFEST > self.tau:
            self.sigma *= shrink
        matters = unbalanced > 0.01 * self.judge.tolerance * self.scale
        if matters and unbalanced > FAST * self.unbalanced and self.sigma * STIFFEST > self.tau:
            self.tau /= shrink
        self.apart, self.unbalanced, self.advanced = apart, unbalanced, True

    def minimize(self) -> None:
        """Minimize the smooth function of this pass over the flow equations by Newton steps."""
        last = self.d
        value, gradient, touches = self._touch(last, last)
        for _ in range(MOST_STEPS):
            self.judge.iterations += 1
            direction, force = self._direction(gradient, touches)
            if not force > INEXACT * float(np.linalg.norm(self.d - last)) / self.tau:
                break
            slope, length = float(gradient @ direction), 1.0
            rounding = ROUNDING * (abs(value) + self.scale)
            while True:
                d = self.d + length * direction
                new, new_gradient, new_touches = self._touch(d, last)
                if new <= value + ARMIJO * length * slope + rounding or length < SHORTEST:
                    break
                length /= 2
            stiff = self.damping >= 1 / self.sigma
            # A short step means that the model was good only nearby: the next is kept nearer, after a full one freer.
            self.damping *= 0.1 if length == 1.0 else 10.0 if length < 0.25 else 1.0
            self.damping = min(self.damping, 1 / self.sigma)
            # A shortened step that gains nothing that can be seen would be taken again and again.
            spent = stiff and (length < SHORTEST or (length < 1.0 and value - new <= rounding))
            if length >= SHORTEST:
                self.d, value, gradient, touches = d, new, new_gradient, new_touches
            gained = force * float(np.linalg.norm(direction))
            if gained <= rounding or spent or self.judge.limit() is not None:
                break
        self.touches = touches
        self.residual = float(np.linalg.norm(self.d - last))

    def _touch(self, d: Array, last: Array) -> tuple[float, Array, list[Touch]]:
        touches = [piece.touch(d, self.sigma) for piece in self.pieces]
        away = d - last
        value = float(self.c @ d) + float(away @ away) / (2 * self.tau) + sum(t.value for t in touches)
        gradient = self.c + away / self.tau
        for touch in touches:
            gradient = gradient + touch.gradient
        return value, gradient, touches

    def _direction(self, gradient: Array, touches: Sequence[Touch]) -> tuple[Array, float]:
        """Solve Newton's system ``H x + M V = -gradient``, ``flow(d + x) = (1 - gamma) rho``; return x and ``|H x|``.

        The second is how far the gradient is from vanishing along the flow equations.
        """
        responses = [piece.response(touch, self.sigma) for piece, touch in zip(self.pieces, touches, strict=True)]
        self.damping = max(self.damping, 1 / self.tau)
        try:
            H = Hessian(responses, self.damping)
            system = System(H, self.dynamics)
        except (ValueError, RuntimeError, la.LinAlgError):  # not finite, or singular
            return np.zeros_like(gradient), np.nan
        x, _ = system.solve(-gradient, self.q - self.dynamics.flow(self.d))
        return x, float(np.linalg.norm(H.apply(x)))
