"""What a limit or a convex term is to path following (engines/path.py): its data, and where it begins.

A *part* has slacks s and multipliers m, all positive, whose products are led to zero, and free unknowns.  What its
gradient and Hessian are at a point, and how slacks and multipliers follow, is in src/native/path.c, which reads the
attributes by name and fills in ``force`` and a few more.  All is in the engine's units, where the cost is about one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cvxmdp.mdp import Array, Indices

Mask = npt.NDArray[np.bool_]

ROOM = 0.1
"""Least slack at the start, relative to the limit."""
OF_CURVE, OF_CONE = 0.1, 0.01
"""Weights of the products of a curved limit, and of a cone's; those of all pairs add up to about one.  With 1 / n, as
rows have it, entropies and balls take a sixth more steps (210 problems of benchmarks/real_problems.py, seed 7)."""
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
    """A limit or a term; see the module."""

    kind: str
    weights: Array
    """Of the products of slacks and multipliers."""
    num_free = 0
    straight = False
    """Whether it is linear, so that slacks and multipliers may take steps of different lengths."""
    force: Array
    """Its gradient over pairs at the point."""
    m: Array
    """Its multipliers there, a view of the engine's."""

    @abstractmethod
    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        """Return slacks, multipliers and free unknowns to begin with."""


NONE = np.zeros(0)
"""No slacks, multipliers or free unknowns."""


class SidedPart(Part):
    """Values between limits: a slack and a multiplier for each finite side, a free multiplier for each equality."""

    straight = True

    def __init__(self, view: View, upper: Array, lower: Array, scales: Array, stiff: Any) -> None:
        self.scales = scales
        self.force, self.net = np.zeros(view.d.size), np.zeros(upper.size)
        self.equal = np.flatnonzero(upper == lower)
        self.goal = upper[self.equal]
        up, down = (np.flatnonzero(np.isfinite(side) & (upper != lower)) for side in (upper, lower))
        self.row = np.concatenate([up, down])
        self.sign = np.concatenate([np.ones(up.size), -np.ones(down.size)])
        self.limit = np.concatenate([upper[up], lower[down]])
        self.stiff = np.broadcast_to(stiff, upper.shape)[self.equal].astype(np.float64)
        self.num_free = self.equal.size

    def begin(self, values: Array, room: Array, target: Array) -> tuple[Array, Array, Array]:
        """Return slacks of at least some room, and multipliers that make the products what they should be."""
        s = np.maximum(self.sign * (self.limit - values[self.row]), room[self.row])
        return s, target[self.row] / s, np.zeros(self.equal.size)


class RowsPart(SidedPart):
    """``lower <= E d <= upper`` for a few rows, each in units of its size."""

    kind = "rows"

    def __init__(self, view: View, E: Array, upper: Array, lower: Array) -> None:
        sizes = np.where(np.isfinite(upper), np.abs(upper), 0.0)
        sizes = np.maximum(sizes, np.where(np.isfinite(lower), np.abs(lower), 0.0))
        # A limit of zero is judged by what the row is a sum of.
        self.sizes = np.maximum(sizes, np.where(sizes > 0, 0.0, np.abs(E) @ view.d))
        self.sizes[self.sizes == 0] = 1.0
        super().__init__(view, upper / self.sizes, lower / self.sizes, np.ones(upper.size), STIFF)
        self.E = np.ascontiguousarray(E / self.sizes[:, None])
        self.weights = np.full(self.row.size, 1 / view.d.size)

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        shape = self.sizes.shape
        return self.begin(self.E @ d, np.full(shape, ROOM), np.full(shape, mu / d.size))

    @property
    def prices(self) -> Array:
        """The multipliers of the rows in units of the cost a unit of the limit."""
        return self.net / self.sizes


class Caps(SidedPart):
    """``lower <= visits <= upper`` for states, at most one limit on each side of a state."""

    kind = "caps"

    def __init__(self, view: View, states: Indices, upper: Array, lower: Array) -> None:
        self.view, self.states = view, np.asarray(states, dtype=np.int64)
        visits = view.per_state(view.d)[states]
        limits = np.abs(np.where(np.isfinite(upper), upper, lower))
        super().__init__(view, upper, lower, np.maximum(limits, 1e-3 * visits), STIFF / visits)
        # A slack that begins with room to spare has a multiplier as small.
        self.target = view.per_state(view.weights)[states]
        self.weights = self.target[self.row]

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        return self.begin(self.view.per_state(d)[self.states], ROOM * self.scales, mu * self.target)


class BoxPart(SidedPart):
    """``lower <= d <= upper`` for each pair."""

    kind = "box"

    def __init__(self, view: View, upper: Array, lower: Array) -> None:
        lower = np.where(lower > 0, lower, -np.inf)  # d is not negative anyway
        width = np.where(np.isfinite(lower) & (upper > lower), upper - lower, upper)
        width = np.where(np.isfinite(upper), width, lower)
        super().__init__(view, upper, lower, np.where(np.isfinite(width), width, 1.0), STIFF / view.d)
        self.weights = view.weights[self.row]
        self.target = view.weights

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        return self.begin(d, ROOM * self.scales, mu * self.target)


class Function(ABC):
    """A smooth convex function over the pairs that are kept."""

    kind: int
    """Its number in src/native/path.c."""

    @abstractmethod
    def __call__(self, d: Array) -> float:
        """Return its value."""


class Quadratic(Function):
    """``(sum w (d - center)^2 / radius^2 - 1) / 2``."""

    kind = 0

    def __init__(self, center: Array, w: Any, radius: float) -> None:
        self.center, self.radius = np.ascontiguousarray(center), radius
        self.w = np.broadcast_to(w, center.shape).astype(np.float64)

    def __call__(self, d: Array) -> float:
        x = (d - self.center) / self.radius
        return 0.5 * (float(x @ (self.w * x)) - 1.0)


class RelativeEntropy(Function):
    """``(sum x log(x / r) - bound) / unit`` over pairs, or over the visits of states."""

    def __init__(self, view: View, reference: Array, bound: float, unit: float, of_states: bool) -> None:
        self.view, self.kind = view, 2 if of_states else 1
        self.log_reference, self.bound, self.unit = np.log(reference), bound, unit
        self.slope = np.zeros_like(self.log_reference)
        """By x at the point."""

    def __call__(self, d: Array) -> float:
        x = self.view.per_state(d) if self.kind == 2 else d
        return (float(x @ (np.log(x) - self.log_reference)) - self.bound) / self.unit


class Curve(Part):
    """``F(d) <= 0`` for a smooth convex F of about the size one."""

    kind = "curve"

    def __init__(self, view: View, function: Function) -> None:
        self.function = function
        self.force = np.zeros(view.d.size)
        self.weights = np.full(1, OF_CURVE)

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        s = max(-self.function(d), ROOM)
        return np.array([s]), np.array([mu * self.weights[0] / s]), NONE


class Smooth(Part):
    """A term ``weight F(d)`` of the objective."""

    kind = "smooth"
    weights = NONE

    def __init__(self, view: View, function: Function, weight: float) -> None:
        self.function, self.weight = function, weight
        self.force = np.zeros(view.d.size)

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        return NONE, NONE, NONE


class Cone(Part):
    """``|L'x| <= t`` with ``x = d - center`` and ``Q = L L'``, as ``(x'Qx / t - t) / 2 <= 0``.

    Either ``cost'd + t <= bound`` is a limit, or ``weight t`` a term of the objective.  Q is given as a diagonal, or as
    L.  Slacks are t itself, that of the cone and that of the limit; the cone is in units of the first t, the limit in a
    unit of its own.
    """

    kind = "cone"

    def __init__(self, view: View, center: Any, Q: Array, limit: tuple[Array, float] | None, weight: float) -> None:
        size = view.d.size
        self.center, self.weight = np.broadcast_to(center, size).astype(np.float64), weight
        self.Q = np.ascontiguousarray(Q) if Q.ndim == 1 else None
        self.L = np.ascontiguousarray(Q.T) if Q.ndim == 2 else None
        self.force, self.ratio = np.zeros(size), np.zeros(size)
        """The second is ``x / t``, in units of the first t."""
        self.weights = np.full(2 if limit is None else 3, OF_CONE)
        self.first = (1 + ROOM) * float(np.sqrt(self._square(view.d))) or 1.0
        self.cost: Array | None = None
        if limit is not None:
            cost, bound = limit
            self.unit = abs(bound) or float(np.abs(cost) @ view.d) + self.first
            self.cost, self.bound = np.ascontiguousarray(cost / self.unit), bound / self.unit

    def _square(self, d: Array) -> float:
        x = d - self.center
        if self.L is not None:
            return float(np.sum((self.L @ x) ** 2))
        assert self.Q is not None
        return max(float(x @ (self.Q * x)), 0.0)

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        t, w = self.first, mu * self.weights[0]
        s, price = [t, -(self._square(d) / t - t) / (2 * t)], self.weight
        if self.cost is not None:
            s.append(max(self.bound - float(self.cost @ d) - t / self.unit, ROOM))
            price = w / s[2] / self.unit
        m = [w / t, price * 2 * self.first / (1 + (1 + ROOM) ** -2), *([] if self.cost is None else [w / s[2]])]
        return np.array(s), np.array(m), NONE


class Powers(Part):
    """``sum |x|^p <= radius^p`` with ``x = d - center``, or ``weight sum |x|`` as a term of the objective (p = 1).

    A t for each pair with a positive center has ``a = t - x >= 0`` and ``b = t + x >= 0``; elsewhere x is not negative.
    With ``h = (t / radius)^p / p`` the unknown t is eliminated pair by pair.  The weight of a limit is NaN.
    """

    kind = "powers"

    def __init__(self, view: View, center: Array, p: float, radius: float, weight: float = np.nan) -> None:
        self.p, self.radius, self.weight = p, radius, weight
        self.both = np.flatnonzero(center > 0)
        self.single = np.flatnonzero(center <= 0)
        self.center = np.ascontiguousarray(center)
        self.force = np.zeros(center.size)
        self.num_free = self.both.size
        of_pairs = view.weights[self.both]
        self.weights = np.concatenate([of_pairs, of_pairs, [OF_CURVE] if np.isnan(weight) else NONE])

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        x = d[self.both] - self.center[self.both]
        t = np.abs(x) + ROOM * (d[self.both] + self.center[self.both])
        slacks = [t - x, t + x]
        if np.isnan(self.weight):
            alone = d[self.single] - self.center[self.single]
            total = float(np.sum((t / self.radius) ** self.p) + np.sum((alone / self.radius) ** self.p)) / self.p
            slacks.append(np.array([max(1 / self.p - total, ROOM)]))
        s = np.concatenate(slacks)
        return s, mu * self.weights / s, t


class Largest(Part):
    """``weight max |d - center|`` as a term of the objective: ``a = t - x >= 0`` and ``b = t + x >= 0`` with one t."""

    kind = "largest"
    num_free = 1

    def __init__(self, view: View, center: Array, weight: float) -> None:
        self.center, self.weight = np.ascontiguousarray(center), weight
        self.force = np.zeros(center.size)
        even = np.full(center.size, 0.5 / center.size)
        self.weights = np.concatenate([even, even])

    def start(self, d: Array, mu: float) -> tuple[Array, Array, Array]:
        x = d - self.center
        t = float(np.max(np.abs(x))) + ROOM * float(np.max(d + self.center))
        s = np.concatenate([t - x, t + x])
        return s, mu * self.weights / s, np.array([t])
