"""The proximal method of multipliers with semismooth Newton steps: for any mixture of sets and convex terms.

Every block, the sign constraint ``d >= 0`` included, is replaced by its envelope (:mod:`cvxmdp.engines.pieces`), and
``c'd + envelopes + |d - last d|^2 / (2 tau)`` is minimized over ``flow(d) = (1 - gamma) rho``.  That is smooth, so
Newton steps with a line search do it; then multipliers and d move on.  Flat sets are met after finitely many passes,
curved ones at a rate that improves as sigma falls and tau grows.  It converges for every sigma and tau (Rockafellar
1976, the proximal method of multipliers).

Newton's system ``[H M; M' 0]`` has ``H = diag + factor signs factor'`` with few columns, so it reduces to one system
``M'H^-1 M V = rhs`` over states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from cvxmdp.blocks import Response
from cvxmdp.constraints.linear import Linear
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines.judge import NEAREST, Judge
from cvxmdp.engines.pieces import Copy, Near, Nonnegative, Piece, Rows, Touch
from cvxmdp.engines.presolve import indicator
from cvxmdp.engines.splitting import natural_step
from cvxmdp.mdp import Array
from cvxmdp.status import Status

ARMIJO = 1e-4
SHORTEST = 1e-9
ROUNDING = 1e-13
"""Relative to the cost: a smaller change is not seen."""
REFINEMENTS = 1
"""How often Newton's system is solved again for what rounding left."""
LOOSE = 100.0
"""The first tau over the first sigma: far enough to reach another vertex, near enough for Newton's model to hold."""
INEXACT = 0.5
"""A pass ends when its gradient is this share of the pull back to where it began (Solodov and Svaiter 1999)."""
DISPLACEMENT = 1e-8
"""How exactly, relatively, the least distance to flat sets is sought before the cheapest of the nearest."""
AS_NEAR = 1e-6
"""How much farther, relatively, the cheapest of the nearest may be."""
FEW_COLUMNS = 100
"""Up to here the columns of a Hessian are kept apart from a sparse matrix."""
LIFTS = (1e-15, 1e-13, 1e-11, 1e-9, 1e-7)
"""What is added to the diagonal, relatively, of a matrix that rounding left not positive definite."""
FAST = 0.2
"""A residual that falls to this share from pass to pass needs no help."""
STIFFEST = 1e10
"""Largest ratio of tau to sigma: beyond, Newton's system is lost to rounding."""
MOST_STEPS = 40
"""Newton steps in one pass."""


@dataclass(frozen=True)
class Newton:
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
    evaluation: str = "auto"

    name = "newton"
    most_passes = 3000

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.shrink < 1:
            raise ValueError(f"shrink is {self.shrink}; it must lie between 0 and 1, both excluded")

    def run(self, judge: Judge, start: tuple[Array, list[Array]] | None) -> tuple[Status, str]:
        """Run until the judge is satisfied; return the status and a sentence."""
        d0 = judge.dynamics.occupancy(indicator(judge.dynamics, judge.unconstrained.pairs))
        step = natural_step(judge.blocks, judge.c, d0)
        pieces = _pieces(judge, {})
        if start is not None:
            d0, duals = start
            for piece, member, dual in zip(pieces[1:], judge.blocks.members, duals, strict=True):
                piece.u = dual * piece.norms if isinstance(piece, Rows) else member.normal(dual)[0]
            c = judge.c + judge.blocks.normals(duals)[0]
            pieces[0].u = -np.maximum(judge.dynamics.advantage(c, judge.prove(duals).V), 0.0)
        status = self._optimize(judge, pieces, d0, step)
        if status is None:
            status = self._approach(judge, d0)
        if status is None:
            status = self._settle(judge, step)
        return status, f"proximal Newton method, {judge.iterations} Newton steps"

    def _optimize(self, judge: Judge, start: Sequence[Piece], d: Array, step: float) -> Status | None:
        """Minimize until the gap is proven, a limit is reached, or it is proven that no policy obeys (None)."""
        assert judge.best is not None
        state = State(judge, judge.c, start, d, step, LOOSE * step, judge.best.scale)
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
            state.advance(self.shrink)

    def _approach(self, judge: Judge, d: Array) -> Status | None:
        """Lower the distance to the constraints until it is proven least; return None if the cheapest is yet to find.

        For that the displacement has to be known more exactly than ``NEAREST``.
        """
        accuracy = DISPLACEMENT if judge.blocks.flat else NEAREST
        near: list[Piece] = [Near(block) for block in judge.blocks.sets]
        state = State(judge, np.zeros_like(judge.c), [Nonnegative(d.size), *near], d, 0.1, 10.0, 0.0)
        while True:
            state.minimize()
            candidate = judge.propose(state.d)
            judge.refute(judge.blocks.set_duals(candidate.d))
            judge.record(judge.nearest_distance)
            assert judge.refutation is not None
            if judge.nearest_distance <= (1 + accuracy) * judge.refutation.distance or state.exhausted:
                return None if judge.blocks.flat and judge.limit() is None else Status.INFEASIBLE
            if judge.limit() is not None:
                return Status.INFEASIBLE
            state.advance(self.shrink)

    def _settle(self, judge: Judge, step: float) -> Status:
        """Find the cheapest of the nearest policies: flat sets are moved by their displacements (Proposition 4)."""
        if judge.nearest is None:  # no projection succeeded
            return Status.INFEASIBLE
        d = judge.nearest.d
        shifts = {id(block): d - block.project(d) for block in judge.blocks.sets}
        state = State(judge, judge.c, _pieces(judge, shifts), d, step, LOOSE * step, judge.nearest.scale)
        best = -np.inf
        while True:
            state.minimize()
            judge.settle(state.d, AS_NEAR)
            duals = state.duals()
            moved = judge.blocks.stacked(duals) * np.stack([shifts[id(block)] for block in judge.blocks.sets])
            best = max(best, judge.prove(duals).value - float(moved.sum()))
            judge.record(state.residual)
            gap = float(judge.c @ judge.nearest.d) - best
            small = abs(gap) <= NEAREST * float(np.abs(judge.c) @ judge.nearest.d)
            if small or judge.limit() is not None or state.exhausted:
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
        self.damping = 1 / tau

    @property
    def exhausted(self) -> bool:
        """Whether nothing can be tightened any more."""
        return self.sigma * STIFFEST <= self.tau

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
        self.apart, self.unbalanced = apart, unbalanced

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
            if length >= SHORTEST:
                self.d, value, gradient, touches = d, new, new_gradient, new_touches
            gained = force * float(np.linalg.norm(direction))
            if gained <= rounding or (length < SHORTEST and stiff) or self.judge.limit() is not None:
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
            K = H.reduced(self.dynamics)
        except (ValueError, RuntimeError, la.LinAlgError):  # not finite, or singular
            return np.zeros_like(gradient), np.nan
        zero, x, V = np.zeros_like(gradient), np.zeros_like(gradient), np.zeros(self.dynamics.num_states)
        missing = self.q - self.dynamics.flow(self.d)
        for _ in range(1 + REFINEMENTS):
            force = -gradient - H.apply(x) - self.dynamics.advantage(zero, V)
            open_flow = missing - self.dynamics.flow(x)
            more = K(open_flow - self.dynamics.flow(H.solve(force)))
            V = V + more
            x = x + H.solve(force - self.dynamics.advantage(zero, more))
        return x, float(np.linalg.norm(H.apply(x)))


class Hessian:
    """``diag + G G' + U signs U'``: G has disjoint columns and is sparse, U has few columns and is dense.

    Woodbury's formula inverts it twice: with ``W = 1 / diag`` the first two parts have the inverse
    ``W - W G (1 + G'W G)^-1 G'W``, where the middle is diagonal, and U is taken off that in the same way.
    """

    def __init__(self, responses: Sequence[Response], floor: float) -> None:
        self.W = 1 / (floor + np.sum([r.diagonal for r in responses], axis=0))
        self.G: Any = None
        columns, signs = [], []
        for response in responses:
            factor = response.factor
            if sp.issparse(factor) and (both := _disjoint(self.G, factor)) is not None:
                self.G = both
            elif factor is not None and factor.shape[1]:
                columns.append(factor.toarray() if sp.issparse(factor) else factor)
                signs.append(np.ones(factor.shape[1]) if response.signs is None else response.signs)
            if response.more is not None:
                columns.append(response.more)
                signs.append(np.ones(response.more.shape[1]))
        if self.G is not None:
            self.WG = self.G * self.W[:, None]
            self.middle = 1.0 + np.asarray((self.G * self.WG).sum(axis=0)).ravel()
        self.U: Any = np.hstack(columns) if columns else None
        if self.U is not None:
            self.signs = np.concatenate(signs)
            self.HU = np.stack([self._first(u) for u in self.U.T], axis=1)
            self.inner = np.diag(self.signs) + self.U.T @ self.HU
            self.small = la.lu_factor(self.inner, check_finite=False)

    def apply(self, x: Array) -> Array:
        """Return ``H x``."""
        out = x / self.W
        if self.G is not None:
            out = out + self.G @ (self.G.T @ x)
        return out if self.U is None else np.asarray(out + self.U @ (self.signs * (self.U.T @ x)))

    def _first(self, x: Array) -> Array:
        """Return ``(diag + G G')^-1 x``."""
        out = self.W * x
        return out if self.G is None else np.asarray(out - self.WG @ ((self.G.T @ out) / self.middle))

    def solve(self, x: Array) -> Array:
        """Return ``H^-1 x``."""
        out = self._first(x)
        if self.U is not None:
            out = out - self.HU @ la.lu_solve(self.small, self.U.T @ out, check_finite=False)
        return out

    def reduced(self, dynamics: Dynamics) -> Callable[[Array], Array]:
        """Return a solver of ``M'H^-1 M V = rhs``."""
        K = dynamics.gram(self.W)
        if self.G is not None:
            B = dynamics.flows(self.WG)
            taken = (B / self.middle) @ B.T
            K = K - (taken if sp.issparse(K) else taken.toarray() if sp.issparse(taken) else taken)
        if self.U is None:
            return _factor(dynamics, K)
        B = dynamics.flows(self.HU)
        if sp.issparse(K) and B.shape[1] <= FEW_COLUMNS:
            # A sparse factor is kept sparse: Woodbury's formula once more.
            solve = _factor(dynamics, K)
            KB = solve(B)
            rest = la.lu_factor(self.inner - B.T @ KB, check_finite=False)
            return lambda rhs: np.asarray((x := solve(rhs)) + KB @ la.lu_solve(rest, B.T @ x, check_finite=False))
        K = K.toarray() if sp.issparse(K) else K
        return _factor(dynamics, K - B @ la.lu_solve(self.small, B.T, check_finite=False))


def _disjoint(G: Any, factor: Any) -> Any:
    """Return the columns of both, or None where a pair would be in two of them."""
    both = sp.csc_array(factor) if G is None else sp.hstack([G, factor], format="csc")
    touched = np.bincount(both.indices[both.data != 0], minlength=both.shape[0])
    return both if np.all(touched <= 1) else None


def _factor(dynamics: Dynamics, K: Any) -> Callable[[Array], Array]:
    """Factor K, lifted where rounding has left it not positive definite."""
    for lift in (0.0, *LIFTS):
        try:
            size = lift * np.abs(K.diagonal())
            return dynamics.factor(
                K if lift == 0.0 else K + (sp.diags_array(size) if sp.issparse(K) else np.diag(size))
            )
        except la.LinAlgError:
            continue
    raise la.LinAlgError("the matrix is not finite")
