"""An interior point method for a cost under many linear rows, such as a cap on the visits of every state.

It solves, with a slack for each side of the rows,

    minimize c'd   subject to   flow(d) = (1 - gamma) rho,   E d + s = upper,   E d - t = lower,   d, s, t >= 0,

by Mehrotra's predictor and corrector.  With z the reduced costs ``c + M V + E'(m - n)``, and m, n the multipliers of
the sides, each step makes ``d z``, ``s m`` and ``t n`` nearly equal and smaller.  Newton's system has the Hessian
``diag(z / d) + E' diag(m / s + n / t) E`` over pairs and reduces to one system over states.

Rows may give way: then half the squared distance to them is added to the cost, and ``E d`` is replaced by ``E (d - v)``
with the displacement ``v = E'(m - n)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.linear import Linear
from cvxmdp.dynamics.base import indicator
from cvxmdp.engines.base import Engine, Proposal, Proposals, Start, Task, needs_rows
from cvxmdp.engines.rounds import CLOSEST
from cvxmdp.engines.rows_system import RowsSystem
from cvxmdp.mdp import Array

Mask = npt.NDArray[np.bool_]

MOST_STEPS = 100
"""Where it gets there it takes ten to thirty."""
BACK_OFF = 0.99
"""Share of the longest step that is taken."""
SHORTEST = 1e-4
"""A shorter step gets nowhere."""
EVEN = 0.5
"""Share of the uniform policy in the first one; the rest is the optimum without limits."""
CORRECTIONS, LONG, GAIN = 2, 0.95, 0.1
"""Further corrections of a step (Gondzio 1996) unless it is that long; each has to gain that share of its try."""
AHEAD, FACTOR = 1.1, 10.0
"""How much longer a step is tried, and how far from the aim products may be there."""
FIRST_ROOM = 0.1
"""Slacks begin at this share of the size of their row, at least."""
SHORT_STATES = 1000
"""Up to here factors take a tenth of a second; beyond, Ctrl-C and time limits have to be heard meanwhile."""
READY = 3.0
"""A point is judged once the gap is within this many tolerances."""


@dataclass(frozen=True)
class Interior(Engine):
    """Settings of the interior point method.

    Parameters
    ----------
    evaluation : {"auto", "direct", "iterative"}
        How linear systems of policies are solved, see :func:`cvxmdp.dynamics.plan.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.StateBounds(upper={"r0c1": 0.01})])
    >>> problem.solve(method=cm.Interior()).status.name
    'OPTIMAL'
    """

    name = "interior"
    said = "interior point method, {steps} steps"
    most_passes = MOST_STEPS
    helped = True

    def needs(self, constraints: Sequence[Constraint], terms: Sequence[Term]) -> str | None:
        return needs_rows(constraints, terms)

    def proposals(self, task: Task) -> Proposals:
        """Step as long as that leads anywhere; the dual value rises without end where no policy obeys."""
        soft = task.blocks.soft_rows
        point = InteriorPoint(task, soft or task.blocks.rows, None if soft is None else task.start)
        goal = READY * task.tolerance if soft is None else CLOSEST * point.nearness
        left = np.inf
        for _ in range(MOST_STEPS):
            gap, excess = point.gap(), point.excess()
            left = max(gap, excess) if soft is None else gap
            yield point.proposal(excess, ready=left <= goal, suspect=point.dual_value() > point.highest)
            if (soft is not None and left <= goal) or not point.step():
                break
        if soft is not None and left > goal:
            yield point.proposal(point.excess(), ready=True, suspect=False)


class Slacks:
    """Slacks and multipliers of the rows' upper sides, or with ``sign`` -1 of their lower ones."""

    def __init__(self, sign: float, limits: Array, values: Array, mu: float, equal: Mask) -> None:
        self.sign, self.limits = sign, limits
        self.there = np.isfinite(limits) & ~equal
        room = sign * (limits - values)
        self.slack = np.where(self.there, np.maximum(room, FIRST_ROOM), 1.0)
        self.multiplier = np.where(self.there, mu / self.slack, 0.0)

    def open(self, values: Array) -> Array:
        """What is missing of ``sign (limits - E d) = slack``."""
        with np.errstate(invalid="ignore"):
            return np.where(self.there, self.sign * (self.limits - values) - self.slack, 0.0)

    def respond(self, values: Array, aim: Array | float) -> tuple[Array, Array]:
        """Stiffness and force: the multiplier changes by ``sign stiffness E x + force`` to reach ``s m = aim``."""
        stiffness = self.multiplier / self.slack
        force = (aim - self.multiplier * (self.slack + self.open(values))) / self.slack
        return stiffness, np.where(self.there, force, 0.0)

    def moves(self, values: Array, change: Array, aim: Array | float) -> tuple[Array, Array]:
        """The changes of slack and multiplier when ``E d`` changes by ``change``."""
        ds = np.where(self.there, self.open(values) - self.sign * change, 0.0)
        dm = np.where(self.there, (aim - self.multiplier * (self.slack + ds)) / self.slack, 0.0)
        return ds, dm


@dataclass(frozen=True, eq=False)
class Move:
    """Changes of d, z, V and the multipliers of equalities, and of slacks and multipliers of the sides."""

    d: Array
    z: Array
    V: Array
    equals: Array
    sides: Sequence[tuple[Array, Array]]


class InteriorPoint:
    """Where the method is.  Costs are in units of ``|c|'d`` and rows in units of ``max(|limit|, |row|'d)``.

    Where rows give way, the duals of ``start`` say how far they have to.
    """

    def __init__(self, task: Task, linear: Linear, start: Start | None) -> None:
        self.task, self.dynamics = task, task.dynamics
        dynamics, c = self.dynamics, task.c
        pi = np.repeat(EVEN / np.diff(dynamics.first), np.diff(dynamics.first))
        pi += (1 - EVEN) * indicator(dynamics, task.unconstrained.pairs)
        self.d = d = dynamics.occupancy(pi)
        # The nearest allowed point need not be a distribution, so that all limits count.
        upper, lower = linear.binding() if start is None else (linear.upper, linear.lower)
        self.num_rows, self.kept = upper.size, np.flatnonzero(np.isfinite(upper) | np.isfinite(lower))
        rows, upper, lower = linear.rows[self.kept], upper[self.kept], lower[self.kept]
        limits = np.maximum(*(np.where(np.isfinite(b), np.abs(b), 0.0) for b in (upper, lower)))
        sizes = np.maximum(limits, np.asarray(abs(rows) @ d).ravel())
        self.sizes = np.where(sizes > 0, sizes, 1.0)
        rows = rows / self.sizes[:, None]
        self.E = sp.csr_array(rows) if sp.issparse(rows) else rows
        self.unit = max(float(np.abs(c) @ d), 1e-300)
        self.softness: Any = None
        self.nearness = 0.0
        """The squared distance to rows that give way, as the start knows it."""
        if start is not None:
            # In these units multipliers are about one where those of the start are right.
            self.unit = float(np.abs(start.duals[0][self.kept]) @ self.sizes)
            away = linear.rows.T @ start.duals[0]
            self.nearness = float(away @ away) / self.unit
            self.softness = self.unit * (self.E @ self.E.T)
        self.c = c / self.unit
        self.highest = float(np.max(self.c)) if start is None else np.inf
        self.equal = upper == lower
        upper, lower = upper / self.sizes, lower / self.sizes
        self.goal = np.where(self.equal, upper, 0.0)
        # Lowering V everywhere raises all reduced costs alike, so that they begin positive.
        V = task.unconstrained.V / self.unit if start is None else np.zeros(dynamics.num_states)
        reduced = dynamics.advantage(self.c, V)
        lift = max(float(reduced @ d), task.tolerance) if start is None else 1.0
        self.V = V - lift / (1 - dynamics.gamma)
        mu = float(d @ (reduced + lift)) / d.size
        values = self.E @ d
        self.equals = np.zeros_like(upper)
        self.sides = Slacks(1.0, upper, values, mu, self.equal), Slacks(-1.0, lower, values, mu, self.equal)
        self.z = np.maximum(dynamics.advantage(self.c, self.V) + self.E.T @ self.net(), 0.1 * lift)
        self.inflow = (1 - dynamics.gamma) * dynamics.rho

    def proposal(self, excess: float, ready: bool, suspect: bool) -> Proposal:
        """Propose the policy and the multipliers of this point."""
        return Proposal(
            lambda: self.d, lambda: self.task.blocks.split([self.multipliers()]), lambda: self.unit * self.V, excess,
            ready, suspect=suspect,
        )  # fmt: skip

    def values(self) -> Array:
        """What is limited: ``E d``, or ``E (d - v)``."""
        values = np.asarray(self.E @ self.d)
        return values if self.softness is None else np.asarray(values - self.softness @ self.net())

    def net(self) -> Array:
        """The multipliers of the rows."""
        up, down = self.sides
        return np.asarray(up.multiplier - down.multiplier + self.equals)

    def multipliers(self) -> Array:
        """The multipliers of all rows in the user's units."""
        out = np.zeros(self.num_rows)
        out[self.kept] = self.unit * self.net() / self.sizes
        return out

    def gap(self) -> float:
        """``d'z`` and the sides' products: how far cost and bound are apart once all equations hold."""
        return float(self.d @ self.z) + sum(float(side.slack @ side.multiplier) for side in self.sides)

    def mu(self) -> float:
        """Return the mean of the products."""
        return self.gap() / (self.d.size + sum(int(side.there.sum()) for side in self.sides))

    def excess(self) -> float:
        """By how much the rows' equations and the dynamics are open."""
        values = self.values()
        rows = [np.where(self.equal, np.abs(values - self.goal), 0.0), *(np.abs(s.open(values)) for s in self.sides)]
        flow = float(np.abs(self.inflow - self.dynamics.flow(self.d)).sum()) / (1 - self.dynamics.gamma)
        return max(flow, max(float(np.max(r)) for r in rows))

    def dual_value(self) -> float:
        """The dual value, a bound on the cost where z is no more than the reduced costs."""
        ends = sum(
            side.sign * float(side.multiplier[side.there] @ side.limits[side.there]) for side in self.sides
        ) + float(self.equals @ self.goal)
        return float(self.inflow @ self.V) - ends

    def step(self) -> bool:
        """Take one step; return whether it led anywhere."""
        moves = self._factored()
        if moves is None:
            return False
        taken = moves.recentred(*moves.corrected())
        primal, dual = (min(1.0, BACK_OFF * length) for length in self.lengths(taken))
        if self.softness is not None:  # then rows and multipliers meet in one equation
            primal = dual = min(primal, dual)
        if not (np.isfinite(primal + dual) and max(primal, dual) > SHORTEST):
            return False
        self.d, self.z = self.d + primal * taken.d, self.z + dual * taken.z
        self.V, self.equals = self.V + dual * taken.V, self.equals + dual * taken.equals
        for side, (ds, dm) in zip(self.sides, taken.sides, strict=True):
            side.slack, side.multiplier = side.slack + primal * ds, side.multiplier + dual * dm
        return True

    def _factored(self) -> InteriorMoves | None:
        """Factor Newton's system; None where it is not finite, or singular."""
        try:
            return InteriorMoves(self)
        except (ValueError, RuntimeError, la.LinAlgError):
            return None

    def lengths(self, move: Move) -> tuple[float, float]:
        """The longest steps, at most twice the full one, that leave d and slacks, and z and multipliers, positive."""
        both = list(zip(self.sides, move.sides, strict=True))
        primal = min(_longest(self.d, move.d), *(_longest(side.slack, ds) for side, (ds, _) in both))
        return primal, min(_longest(self.z, move.z), *(_longest(side.multiplier, dm) for side, (_, dm) in both))

    def products(self, move: Move, primal: float, dual: float) -> list[Array]:
        """``d z``, and the sides' slacks times multipliers, after steps of these lengths."""
        of_sides = [
            (side.slack + primal * ds) * (side.multiplier + dual * dm)
            for side, (ds, dm) in zip(self.sides, move.sides, strict=True)
        ]
        return [(self.d + primal * move.d) * (self.z + dual * move.z), *of_sides]


class InteriorMoves:
    """Newton's system at a point, factored, and the moves it gives."""

    def __init__(self, point: InteriorPoint) -> None:
        self.point, dynamics = point, point.dynamics
        self.values = point.values()
        self.off = point.z - dynamics.advantage(point.c, point.V) - point.E.T @ point.net()
        self.missing = point.inflow - dynamics.flow(point.d)
        stiffness = np.asarray(sum(side.respond(self.values, 0.0)[0] for side in point.sides))
        self.compliance = np.where(point.equal, 0.0, 1 / np.maximum(stiffness, 1e-300))
        made = partial(RowsSystem, dynamics, point.E, point.d / point.z, self.compliance, point.softness)
        self.system = made() if dynamics.num_states <= SHORT_STATES else interrupts.patiently(made)

    def towards(self, aims: Sequence[Array | float]) -> Move:
        """Return the move towards ``d z`` and the sides' ``s m`` equal to their aims."""
        point, (aim, *of_sides) = self.point, aims
        both = list(zip(point.sides, of_sides, strict=True))
        pull = sum(side.sign * side.respond(self.values, a)[1] for side, a in both)
        wanted = np.where(point.equal, point.goal - self.values, -self.compliance * pull)
        x, V, net = self.system.solve(self.off + aim / point.d - point.z, wanted, self.missing)
        # What the rows change by, from the multipliers: adding up x would lose it to rounding.
        change = np.where(point.equal, wanted, self.compliance * (net - pull))
        dz = aim / point.d - point.z - point.z / point.d * x
        sides = [side.moves(self.values, change, a) for side, a in both]
        return Move(x, dz, V, np.where(point.equal, net, 0.0), sides)

    def corrected(self) -> tuple[Move, list[Array], float]:
        """Mehrotra's predictor, towards products of zero, and corrector; also what that aims at, and the mean aim."""
        point = self.point
        ahead = self.towards((0.0, 0.0, 0.0))
        lengths = [min(1.0, length) for length in point.lengths(ahead)]
        left = sum(float(v.sum()) for v in point.products(ahead, *lengths))
        aim = (left / point.gap()) ** 3 * point.mu()
        aims = [aim - ahead.d * ahead.z, *(aim - ds * dm for ds, dm in ahead.sides)]
        return self.towards(aims), aims, aim

    def recentred(self, move: Move, aims: list[Array], aim: float) -> Move:
        """Gondzio's corrections: products that a longer step would leave far from the aim are brought back to it."""
        point = self.point
        for _ in range(CORRECTIONS):
            lengths = point.lengths(move)
            if min(lengths) >= LONG:
                break
            further = [min(1.0, AHEAD * length + AHEAD - 1.0) for length in lengths]
            aims = [a + _correction(v, aim) for a, v in zip(aims, point.products(move, *further), strict=True)]
            other = self.towards(aims)
            if min(point.lengths(other)) < min(lengths) + GAIN * (min(further) - min(lengths)):
                break
            move = other
        return move


def _correction(products: Array, aim: float) -> Array:
    """What brings products that are far from the aim back to within a factor of it."""
    return np.maximum(np.clip(products, aim / FACTOR, aim * FACTOR) - products, -aim * FACTOR)


def _longest(x: Array, change: Array) -> float:
    down = change < 0
    return min(2.0, float(np.min(-x[down] / change[down], initial=2.0)))
