"""What a limit or a convex term gives to path following (engines/path.py), besides its value.

A *part* has slacks s and multipliers m, all positive, whose products are led to zero, and free unknowns; at a point it
says how the gradient and the Hessian over pairs look: a diagonal, a number for each state (times ``1 1'`` over the
pairs of the state), and a few columns.  All is in the engine's units, where the cost is about one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as la

from cvxmdp.mdp import Array, Indices

Mask = npt.NDArray[np.bool_]

ROOM = 0.1
"""Least slack at the start, relative to the limit."""
STIFF = 1e10
"""Stiffness of an equality: what it is missed by is as much smaller than the change of its multiplier."""


@dataclass(frozen=True, eq=False)
class View:
    """The pairs and states that the engine works with: all, or those that may be and are reached."""

    owner: Indices
    """The state of each pair, numbered among those that are kept."""
    states: Indices
    """Numbers of the states."""
    kept: Indices | None
    """Numbers of the pairs; None where all are kept."""
    size: int
    """How many pairs the model has."""
    weights: Array
    """Of the pairs in the barrier: about how often they are visited."""
    d: Array
    """An occupancy to begin at, positive."""

    @property
    def num_states(self) -> int:
        """How many states are kept."""
        return int(self.states.size)

    def take(self, x: Any) -> Any:
        """Return the entries of the pairs that are kept, of a vector or of each row."""
        return x if self.kept is None else x[..., self.kept]

    def fill(self, x: Array, rest: float = 0.0) -> Array:
        """Return a vector over all pairs."""
        if self.kept is None:
            return x
        out = np.full(self.size, rest)
        out[self.kept] = x
        return out

    def per_state(self, x: Array) -> Array:
        """Return sums over the pairs of each state."""
        return np.bincount(self.owner, weights=x, minlength=self.num_states).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Barrier:
    """The parts of a limit or term, and the dual array that they amount to."""

    parts: Sequence[Part]
    dual: Callable[[float, float, Array], Array]
    """Takes the unit of the cost, a price that keeps forbidden pairs from being taken, and what pairs lack of a reduced
    cost of zero, which entropies make up for at next to no cost."""


class Part(ABC):
    """A limit or a term; see the module.  Arrays of slacks and multipliers belong to the engine."""

    weights: Array
    """Of the products of slacks and multipliers."""
    num_free = 0
    straight = False
    """Whether it is linear, so that slacks and multipliers may take steps of different lengths."""
    force: Any = 0.0
    """Its gradient over pairs."""
    diagonal: Any = 0.0
    per_state: Any = None
    columns: Array | None = None
    block: Array | None = None
    """``columns'x - block n = border`` are the equations of the columns' unknowns n."""
    stiffness: Any = None
    """Of limits on states: the multiplier of each state changes by this times the change of its visits."""
    open: float = 0.0
    """By how much its own equations fail to hold."""

    @abstractmethod
    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        """Return slacks, multipliers and free unknowns to begin with."""

    @abstractmethod
    def linearize(self, d: Array, s: Array, m: Array, free: Array) -> None:
        """Set what the part is like at a point."""

    def aim(self, aims: Array, full: float) -> tuple[Any, Array, Any]:
        """Return what the way to ``s m = aims`` adds to the gradient, to the columns' and to the states' equations.

        With ``full`` zero only the aims count, as a correction of a step.
        """
        return 0.0, np.zeros(0), None

    @abstractmethod
    def respond(self, aims: Array, full: float, x: Array, n: Array, of_states: Array) -> tuple[Array, Array, Array]:
        """Return the changes of slacks, multipliers and free unknowns that belong to a change x of d.

        n are the unknowns of its columns, ``of_states`` the change of the states' visits where these are limited.
        """


NONE = np.zeros(0)


class Sides:
    """Rows between limits: a slack and a multiplier for each finite side, a free multiplier for each equality."""

    def __init__(self, upper: Array, lower: Array, stiff: Array | float) -> None:
        self.size = upper.size
        self.equal = np.flatnonzero(upper == lower)
        self.goal = upper[self.equal]
        up, down = (np.flatnonzero(np.isfinite(side) & (upper != lower)) for side in (upper, lower))
        self.row = np.concatenate([up, down])
        self.sign = np.concatenate([np.ones(up.size), -np.ones(down.size)])
        self.limit = np.concatenate([upper[up], lower[down]])
        self.stiff = np.broadcast_to(stiff, upper.shape)[self.equal]

    def start(self, values: Array, room: Array, target: Array) -> tuple[Array, Array, Array]:
        s = np.maximum(self.sign * (self.limit - values[self.row]), room[self.row])
        return s, target[self.row] / s, np.zeros(self.equal.size)

    def linearize(self, values: Array, s: Array, m: Array, free: Array) -> None:
        self.s, self.m = s, m
        self.opened = self.sign * (self.limit - values[self.row]) - s
        self.missed = self.goal - values[self.equal]
        self.stiffness = self.sum(m / s)
        self.net = self.sum(self.sign * m)
        if self.equal.size:
            self.stiffness[self.equal] = self.stiff
            self.net[self.equal] = free

    def excess(self, sizes: Array) -> float:
        """By how much limits are exceeded relative to a size, or products are off because slacks are not what is left.

        What is left of a limit that does not matter need not be known.
        """
        beyond = -(self.opened + self.s) / sizes[self.row]
        missed = np.abs(self.missed) / sizes[self.equal]
        off = np.abs(self.opened) * self.m
        return float(max(np.max(beyond, initial=0.0), np.max(missed, initial=0.0), np.max(off, initial=0.0)))

    def sum(self, of_sides: Array) -> Array:
        # Where there are none, bincount counts in whole numbers.
        return np.bincount(self.row, weights=of_sides, minlength=self.size).astype(np.float64)

    def pull(self, aims: Array, full: float) -> Array:
        """Multipliers change by ``stiffness (change of the row) + pull``."""
        self.pulled = self.sum(self.sign * (aims - full * self.m * (self.s + self.opened)) / self.s)
        if self.equal.size:
            self.pulled[self.equal] = -full * self.stiff * self.missed
        return self.pulled

    def respond(self, aims: Array, full: float, change: Array, net: Array) -> tuple[Array, Array, Array]:
        ds = full * self.opened - self.sign * change[self.row]
        dm = (aims - self.m * (full * self.s + ds)) / self.s
        return ds, dm, net[self.equal]


class Rows(Part):
    """``lower <= E d <= upper`` for a few rows, each in units of its size."""

    straight = True

    def __init__(self, view: View, E: Array, upper: Array, lower: Array) -> None:
        sizes = np.where(np.isfinite(upper), np.abs(upper), 0.0)
        sizes = np.maximum(sizes, np.where(np.isfinite(lower), np.abs(lower), 0.0))
        # A limit of zero is judged by what the row is a sum of.
        self.sizes = np.maximum(sizes, np.where(sizes > 0, 0.0, np.abs(E) @ view.d))
        self.sizes[self.sizes == 0] = 1.0
        self.E = E / self.sizes[:, None]
        self.sides = Sides(upper / self.sizes, lower / self.sizes, STIFF)
        self.num_free = self.sides.equal.size
        self.weights = np.full(self.sides.row.size, 1 / view.d.size)
        self.columns = np.asfortranarray(self.E.T)

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        shape = self.sizes.shape
        return self.sides.start(self.E @ d, np.full(shape, ROOM), np.full(shape, mu / d.size))

    def linearize(self, d: Array, s: Array, m: Array, free: Array) -> None:
        sides = self.sides
        sides.linearize(self.E @ d, s, m, free)
        self.force = sides.net @ self.E
        self.block = np.diag(1 / sides.stiffness)
        self.open = sides.excess(np.ones(sides.size))

    def aim(self, aims: Array, full: float) -> tuple[Any, Array, Any]:
        return 0.0, -self.sides.pull(aims, full) / self.sides.stiffness, None

    def respond(self, aims: Array, full: float, x: Array, n: Array, of_states: Array) -> tuple[Array, Array, Array]:
        # Stiff rows change by what follows from the multipliers: adding up x would lose it to rounding.
        stiff = self.sides.stiffness
        change = np.where(stiff > 1, (n - self.sides.pulled) / stiff, self.E @ x)
        return self.sides.respond(aims, full, change, n)

    def net(self) -> Array:
        """The multipliers of the rows in units of the cost a unit of the limit."""
        return self.sides.net / self.sizes


class Caps(Part):
    """``lower <= visits <= upper`` for states, at most one limit on each side of a state."""

    straight = True

    def __init__(self, view: View, states: Indices, upper: Array, lower: Array) -> None:
        self.view, self.states = view, states
        visits = view.per_state(view.d)[states]
        self.sides = Sides(upper, lower, STIFF / visits)
        self.num_free = self.sides.equal.size
        limits = np.abs(np.where(np.isfinite(upper), upper, lower))
        self.room = ROOM * np.maximum(limits, 1e-3 * visits)
        weights = view.per_state(view.weights)[states]
        # A slack that begins with room to spare has a multiplier as small.
        self.target = weights
        self.weights = weights[self.sides.row]

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        return self.sides.start(self.view.per_state(d)[self.states], self.room, mu * self.target)

    def linearize(self, d: Array, s: Array, m: Array, free: Array) -> None:
        sides = self.sides
        sides.linearize(self.view.per_state(d)[self.states], s, m, free)
        self.force = self._spread(sides.net)[self.view.owner]
        self.stiffness = self._spread(sides.stiffness)
        self.open = sides.excess(self.room / ROOM)

    def _spread(self, x: Array) -> Array:
        out = np.zeros(self.view.num_states)
        out[self.states] = x
        return out

    def aim(self, aims: Array, full: float) -> tuple[Any, Array, Any]:
        return 0.0, NONE, self._spread(self.sides.pull(aims, full))

    def respond(self, aims: Array, full: float, x: Array, n: Array, of_states: Array) -> tuple[Array, Array, Array]:
        change = of_states[self.states]
        return self.sides.respond(aims, full, change, self.sides.stiffness * change + self.sides.pulled)

    def net(self) -> Array:
        """The multipliers of the states' limits."""
        return self.sides.net


class Box(Part):
    """``lower <= d <= upper`` for each pair."""

    straight = True

    def __init__(self, view: View, upper: Array, lower: Array) -> None:
        lower = np.where(lower > 0, lower, -np.inf)  # d is not negative anyway
        self.sides = Sides(upper, lower, STIFF / view.d)
        self.num_free = self.sides.equal.size
        self.weights = view.weights[self.sides.row]
        self.target = view.weights
        width = np.where(np.isfinite(lower) & (upper > lower), upper - lower, upper)
        width = np.where(np.isfinite(upper), width, lower)
        self.room = ROOM * np.where(np.isfinite(width), width, 1.0)

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        return self.sides.start(d, self.room, mu * self.target)

    def linearize(self, d: Array, s: Array, m: Array, free: Array) -> None:
        sides = self.sides
        sides.linearize(d, s, m, free)
        self.force, self.diagonal = sides.net, sides.stiffness
        self.open = sides.excess(self.room / ROOM)

    def aim(self, aims: Array, full: float) -> tuple[Any, Array, Any]:
        return self.sides.pull(aims, full), NONE, None

    def respond(self, aims: Array, full: float, x: Array, n: Array, of_states: Array) -> tuple[Array, Array, Array]:
        return self.sides.respond(aims, full, x, self.sides.stiffness * x + self.sides.pulled)

    def net(self) -> Array:
        """The multipliers of the pairs' limits."""
        return self.sides.net


@dataclass(frozen=True, eq=False)
class Bend:
    """A smooth convex function at a point: value, gradient and Hessian.

    The Hessian is ``diag(diagonal)``, plus ``1 1'`` times a number over the pairs of each state.
    """

    value: float
    gradient: Array
    diagonal: Any = 0.0
    per_state: Any = None


class Function(ABC):
    """A smooth convex function over the pairs that are kept."""

    @abstractmethod
    def at(self, d: Array) -> Bend:
        """Return the function at d."""


class Curve(Part):
    """``F(d) <= 0`` for a smooth convex F of about the size one."""

    def __init__(self, view: View, function: Function) -> None:
        self.function = function
        self.weights = np.full(1, 1 / view.d.size)

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        s = np.maximum(-self.function.at(d).value, ROOM)
        return np.array([s]), np.array([mu * self.weights[0] / s]), NONE

    def linearize(self, d: Array, s: Array, m: Array, free: Array) -> None:
        bend = self.bend = self.function.at(d)
        self.s, self.m = float(s[0]), float(m[0])
        self.residual = -bend.value - self.s
        self.force, self.diagonal = self.m * bend.gradient, self.m * bend.diagonal
        self.per_state = None if bend.per_state is None else self.m * bend.per_state
        self.columns, self.block = bend.gradient[:, None], np.array([[self.s / self.m]])
        self.open = max(bend.value, abs(self.residual) * self.m)

    def aim(self, aims: Array, full: float) -> tuple[Any, Array, Any]:
        return 0.0, np.array([full * self.residual - (float(aims[0]) - full * self.s * self.m) / self.m]), None

    def respond(self, aims: Array, full: float, x: Array, n: Array, of_states: Array) -> tuple[Array, Array, Array]:
        if self.m > self.s:  # as with stiff rows
            ds = (aims - full * self.s * self.m - self.s * n[0]) / self.m
        else:
            ds = np.array([full * self.residual - float(self.bend.gradient @ x)])
        return ds, n[:1], NONE


class Smooth(Part):
    """A term ``weight F(d)`` of the objective."""

    weights = NONE

    def __init__(self, function: Function, weight: float) -> None:
        self.function, self.weight = function, weight

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        return NONE, NONE, NONE

    def linearize(self, d: Array, s: Array, m: Array, free: Array) -> None:
        bend = self.bend = self.function.at(d)
        self.force, self.diagonal = self.weight * bend.gradient, self.weight * bend.diagonal
        self.per_state = None if bend.per_state is None else self.weight * bend.per_state

    def respond(self, aims: Array, full: float, x: Array, n: Array, of_states: Array) -> tuple[Array, Array, Array]:
        return NONE, NONE, NONE


class Quadratic(Function):
    """``(sum w (d - center)^2 / radius^2 - 1) / 2``."""

    def __init__(self, center: Array, w: Any, radius: float) -> None:
        self.center, self.w, self.radius = center, w, radius

    def at(self, d: Array) -> Bend:
        x = (d - self.center) / self.radius
        wx = self.w * x
        return Bend(0.5 * (float(wx @ x) - 1.0), wx / self.radius, self.w / self.radius**2)


class Entropic(Function):
    """``(sum x log(x / r) - bound) / unit`` over pairs, or over the visits of states."""

    def __init__(self, view: View, reference: Array, bound: float, unit: float, of_states: bool) -> None:
        self.view, self.of_states = view, of_states
        self.log_reference, self.bound, self.unit = np.log(reference), bound, unit

    def at(self, d: Array) -> Bend:
        x = self.view.per_state(d) if self.of_states else d
        logs = np.log(x) - self.log_reference
        value, slope = (float(x @ logs) - self.bound) / self.unit, (logs + 1.0) / self.unit
        self.slope = slope
        if self.of_states:
            return Bend(value, slope[self.view.owner], per_state=1 / (self.unit * x))
        return Bend(value, slope, 1 / (self.unit * d))


class Cone(Part):
    """``|L'x| <= t`` with ``x = d - center`` and ``Q = L L'``, as ``(x'Qx / t - t) / 2 <= 0``.

    Either ``cost'd + t <= bound`` is a limit, or ``weight t`` a term of the objective.  Q is given as a diagonal, or as
    L.  Slacks are t itself, that of the cone and that of the limit; the cone is in units of the first t, the limit in a
    unit of its own.
    """

    def __init__(self, view: View, center: Any, Q: Array, limit: tuple[Array, float] | None, weight: float) -> None:
        self.center, self.Q, self.limit, self.weight = center, Q, limit, weight
        self.weights = np.full(2 if limit is None else 3, 1 / view.d.size)
        x = view.d - center
        self.first = (1 + ROOM) * float(np.sqrt(max(float(x @ self._times(x)), 0.0))) or 1.0
        if limit is not None:
            cost, bound = limit
            self.unit = abs(bound) or float(np.abs(cost) @ view.d) + self.first
            self.cost, self.bound = cost / self.unit, bound / self.unit

    def _times(self, x: Array) -> Array:
        return self.Q @ (self.Q.T @ x) if self.Q.ndim == 2 else self.Q * x

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        x, t, w = d - self.center, self.first, mu * self.weights[0]
        s = [t, -self._cone(float(x @ self._times(x)), t)[0]]
        price = self.weight
        if self.limit is not None:
            s.append(max(self.bound - float(self.cost @ d) - t / self.unit, ROOM))
            price = w / s[2] / self.unit
        m = [w / t, price * 2 * self.first / (1 + (1 + ROOM) ** -2), *([] if self.limit is None else [w / s[2]])]
        return np.array(s), np.array(m), NONE

    def _cone(self, square: float, t: float) -> tuple[float, float, float]:
        """Return the cone's value, and its derivatives by t."""
        scale = 2 * self.first
        return (square / t - t) / scale, -(square / t**2 + 1) / scale, 2 * square / t**3 / scale

    def linearize(self, d: Array, s: Array, m: Array, free: Array) -> None:
        x, t = d - self.center, float(s[0])
        Qx = self._times(x)
        value, slope, curve = self._cone(max(float(x @ Qx), 0.0), t)
        y = float(m[1])
        self.s, self.m = s, m
        gradient = Qx / (t * self.first)
        self.ratio = x / (t * self.first)
        columns, opened = [-y * gradient / t, gradient], [-value - float(s[1])]
        block = np.zeros((self.weights.size, self.weights.size))
        block[0, 0] = -(y * curve + float(m[0]) / t)
        block[0, 1] = block[1, 0] = -slope
        block[1, 1] = float(s[1]) / y
        self.force, price = y * gradient, self.weight
        if self.limit is not None:
            columns.append(self.cost)
            opened.append(self.bound - float(self.cost @ d) - t / self.unit - float(s[2]))
            block[0, 2] = block[2, 0] = -1 / self.unit
            block[2, 2] = float(s[2] / m[2])
            self.force, price = self.force + float(m[2]) * self.cost, float(m[2]) / self.unit
        self.balance = y * slope + price
        self.opened = np.array(opened)
        self.open = float(max(np.max(-(self.opened + s[1:])), np.max(np.abs(self.opened) * m[1:])))
        if self.Q.ndim == 2:
            columns.append(self.Q)
            block = la.block_diag(block, np.diag(np.full(self.Q.shape[1], t * self.first / y)))
        else:
            self.diagonal = y * self.Q / (t * self.first)
        self.columns, self.block = np.column_stack(columns), block

    def aim(self, aims: Array, full: float) -> tuple[Any, Array, Any]:
        assert self.columns is not None
        border = np.zeros(self.columns.shape[1])
        s, m, k = self.s, self.m, self.weights.size
        border[0] = aims[0] / s[0] - full * self.balance
        border[1:k] = full * self.opened - (aims[1:] - full * s[1:] * m[1:]) / m[1:]
        return 0.0, border, None

    def respond(self, aims: Array, full: float, x: Array, n: Array, of_states: Array) -> tuple[Array, Array, Array]:
        s, m, k = self.s, self.m, self.weights.size
        assert self.columns is not None
        assert self.block is not None
        dm = n[:k].copy()
        dm[0] = (aims[0] - full * s[0] * m[0] - m[0] * n[0]) / s[0]
        stiff = (aims[1:] - full * s[1:] * m[1:] - s[1:] * dm[1:]) / m[1:]
        plain = full * self.opened - self.columns[:, 1:k].T @ x + self.block[1:k, 0] * n[0]
        return np.append(n[0], np.where(m[1:] > s[1:], stiff, plain)), dm, NONE


class Powers(Part):
    """``sum |x|^p <= radius^p`` with ``x = d - center``, or ``weight sum |x|`` as a term of the objective (p = 1).

    A t for each pair with a positive center has ``a = t - x >= 0`` and ``b = t + x >= 0``; elsewhere x is not negative.
    With ``h = (t / radius)^p / p`` the unknown t is eliminated pair by pair.
    """

    def __init__(self, view: View, center: Array, p: float, radius: float, weight: float | None = None) -> None:
        self.p, self.radius, self.weight = p, radius, weight
        self.both = np.flatnonzero(center > 0)
        self.single = np.flatnonzero(center <= 0)
        self.center = center
        self.num_free = self.both.size
        of_pairs = view.weights[self.both]
        row = [] if weight is not None else [1 / view.d.size]
        self.weights = np.concatenate([of_pairs, of_pairs, row])

    def _h(self, t: Array) -> tuple[Array, Array, Array]:
        p, u = self.p, t / self.radius
        if p == 1:
            return u, np.full_like(u, 1 / self.radius), np.zeros_like(u)
        return u**p / p, u ** (p - 1) / self.radius, (p - 1) * u ** (p - 2) / self.radius**2

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        x = d[self.both] - self.center[self.both]
        t = np.abs(x) + ROOM * (d[self.both] + self.center[self.both])
        a, b = t - x, t + x
        w = self.weights[: self.both.size]
        if self.weight is not None:
            return np.concatenate([a, b]), np.concatenate([mu * w / a, mu * w / b]), t
        total = float(self._h(t)[0].sum() + self._h(d[self.single] - self.center[self.single])[0].sum())
        s = max(1 / self.p - total, ROOM)
        y = mu * self.weights[-1] / s
        return np.concatenate([a, b, [s]]), np.concatenate([mu * w / a, mu * w / b, [y]]), t

    def linearize(self, d: Array, s: Array, m: Array, free: Array) -> None:
        k, x = self.both.size, d[self.both] - self.center[self.both]
        self.a, self.b, self.alpha, self.beta, self.t = s[:k], s[k : 2 * k], m[:k], m[k : 2 * k], free
        self.y = float(m[-1]) if self.weight is None else self.weight
        value, slope, curve = self._h(self.t)
        of_single = self._h(d[self.single] - self.center[self.single])
        self.slope, self.of_single = slope, of_single[1]
        self.ra, self.rb = self.t - x - self.a, self.t + x - self.b
        self.A, self.B = self.alpha / self.a, self.beta / self.b
        self.T = self.y * curve + self.A + self.B
        self.rt = self.y * slope - self.alpha - self.beta
        force, diagonal, gradient = np.zeros_like(d), np.zeros_like(d), np.zeros_like(d)
        force[self.both], force[self.single] = self.alpha - self.beta, self.y * of_single[1]
        diagonal[self.both] = (self.y * curve * (self.A + self.B) + 4 * self.A * self.B) / self.T
        diagonal[self.single] = self.y * of_single[2]
        self.force, self.diagonal = force, diagonal
        # Summed up: where d is its center but for rounding, t is rounding, too.
        self.open = float(np.abs(self.ra).sum() + np.abs(self.rb).sum()) / float(self.t.sum() + d.sum())
        if self.weight is None:
            gradient[self.both], gradient[self.single] = (self.A - self.B) * slope / self.T, of_single[1]
            self.s = float(s[-1])
            self.residual = 1 / self.p - float(value.sum() + of_single[0].sum()) - self.s
            self.columns = gradient[:, None]
            self.block = np.array([[self.s / self.y + float(np.sum(slope**2 / self.T))]])
            self.open = max(self.open, -self.residual - self.s, abs(self.residual) * self.y)

    def _aims(self, aims: Array, full: float) -> tuple[Array, Array, Array]:
        k = self.both.size
        fa = (aims[:k] - full * self.alpha * self.a) / self.a
        fb = (aims[k : 2 * k] - full * self.beta * self.b) / self.b
        return fa, fb, full * (-self.rt - self.A * self.ra - self.B * self.rb) + fa + fb

    def aim(self, aims: Array, full: float) -> tuple[Any, Array, Any]:
        fa, fb, R = self._aims(aims, full)
        force = np.zeros_like(self.force)
        force[self.both] = (self.B - self.A) * R / self.T + fa - fb + full * (self.B * self.rb - self.A * self.ra)
        if self.weight is not None:
            return force, NONE, None
        e = full * self.residual - (float(aims[-1]) - full * self.s * self.y) / self.y
        return force, np.array([e - float(np.sum(self.slope * R / self.T))]), None

    def respond(self, aims: Array, full: float, x: Array, n: Array, of_states: Array) -> tuple[Array, Array, Array]:
        fa, fb, R = self._aims(aims, full)
        dy = float(n[0]) if self.weight is None else 0.0
        xb = x[self.both]
        dt = (R - self.slope * dy - (self.B - self.A) * xb) / self.T
        da, db = dt - xb + full * self.ra, dt + xb + full * self.rb
        ds, dm = [da, db], [fa - self.A * da, fb - self.B * db]
        if self.weight is None:
            if self.y > self.s:  # as with stiff rows
                last = (float(aims[-1]) - full * self.s * self.y - self.s * dy) / self.y
            else:
                last = full * self.residual - float(self.slope @ dt) - float(self.of_single @ x[self.single])
            ds.append(np.array([last]))
            dm.append(np.array([dy]))
        return np.concatenate(ds), np.concatenate(dm), dt


class Largest(Part):
    """``weight max |d - center|`` as a term of the objective: ``a = t - x >= 0`` and ``b = t + x >= 0`` with one t."""

    num_free = 1

    def __init__(self, view: View, center: Array, weight: float) -> None:
        self.center, self.weight = center, weight
        even = np.full(center.size, 0.5 / center.size)
        self.weights = np.concatenate([even, even])

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        x = d - self.center
        t = float(np.max(np.abs(x))) + ROOM * float(np.max(d + self.center))
        s = np.concatenate([t - x, t + x])
        return s, mu * self.weights / s, np.array([t])

    def linearize(self, d: Array, s: Array, m: Array, free: Array) -> None:
        k, x, t = d.size, d - self.center, float(free[0])
        self.s, self.m = s, m
        self.opened = np.concatenate([t - x, t + x]) - s
        self.stiff = m / s
        A, B = self.stiff[:k], self.stiff[k:]
        self.force, self.diagonal = m[:k] - m[k:], A + B
        self.columns, self.block = (B - A)[:, None], np.array([[-float(self.stiff.sum())]])
        self.residual = self.weight - float(m.sum())
        self.open = float(np.max(np.abs(self.opened))) / t

    def aim(self, aims: Array, full: float) -> tuple[Any, Array, Any]:
        k = self.diagonal.size
        f = (aims - full * self.m * (self.s + self.opened)) / self.s
        return f[:k] - f[k:], np.array([-full * self.residual + float(f.sum())]), None

    def respond(self, aims: Array, full: float, x: Array, n: Array, of_states: Array) -> tuple[Array, Array, Array]:
        ds = full * self.opened + np.concatenate([n[0] - x, n[0] + x])
        return ds, (aims - self.m * (full * self.s + ds)) / self.s, n
