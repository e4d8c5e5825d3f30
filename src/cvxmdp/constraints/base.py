"""What a constraint is: the protocol a user extends, and what the library asks of its own sets.

A set that can project needs nothing else for a proof.  For ``z = project(y)`` the vector ``u = y - z`` is normal to the
set at z, so ``u'z`` is the largest value of ``u'x`` over the set.  The library's sets know that value in closed form,
from a *dual* array that says which normal is meant: the multipliers of linear rows, the normal itself of a ball.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from cvxmdp.mdp import MDP, Array


@runtime_checkable
class ConvexSet(Protocol):
    """A closed convex set of occupancies, known by its projection.

    Any object with this method is a constraint.  An attribute ``name``, where there is one, is used in messages.

    Examples
    --------
    >>> import numpy as np
    >>> class EqualShares:
    ...     '''Every pair is visited equally often as pair 0.'''
    ...     def project(self, point):
    ...         return np.full_like(point, point.mean())
    >>> isinstance(EqualShares(), ConvexSet)
    True
    """

    def project(self, point: Array) -> Array:
        """Return the member of the set nearest to ``point`` in the Euclidean norm."""
        ...


class Constraint(Protocol):
    """A constraint bound to a model, as the solvers and the certificate see it."""

    name: str

    def project(self, point: Array) -> Array:
        """Return the nearest member."""
        ...

    def violation(self, point: Array) -> float:
        """Return by how much ``point`` exceeds the limit, in the limit's own units; 0 inside."""
        ...

    def relative(self, point: Array) -> float:
        """Return the violation free of units, as the tolerance judges it."""
        ...

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        """Return the dual array of the normal ``scale * (point - projected)``."""
        ...

    def normal(self, dual: Array) -> tuple[Array, float]:
        """Return the normal vector u of a dual array and the largest ``u'x`` over the set (inf if there is none)."""
        ...

    def price(self, dual: Array) -> float | Array:
        """Return the change of the optimum for each unit by which the limit is raised."""
        ...


class Custom:
    """A user's :class:`ConvexSet` with what follows from its projection alone.  Its dual is the point ``z + u``."""

    def __init__(self, convex_set: ConvexSet, mdp: MDP) -> None:
        self.name = str(getattr(convex_set, "name", type(convex_set).__name__))
        self._set = convex_set
        self.size = mdp.num_pairs
        point = np.full(self.size, 1 / self.size)
        once = self.project(point)
        twice = self.project(once)
        if np.linalg.norm(once - twice) > 1e-6 * (np.linalg.norm(once) + np.linalg.norm(point)):
            raise ValueError(
                f"{type(convex_set).__name__}.project is not a projection: projecting its own result moves it again"
            )

    def project(self, point: Array) -> Array:
        projected = np.asarray(self._set.project(point), dtype=np.float64)
        kind = type(self._set).__name__
        if projected.shape != point.shape:
            raise ValueError(f"{kind}.project returned shape {projected.shape}; it must return shape {point.shape}")
        if not np.all(np.isfinite(projected)):
            raise ValueError(f"{kind}.project returned entries that are not finite")
        return projected

    def violation(self, point: Array) -> float:
        given: Any = getattr(self._set, "violation", None)
        if given is not None:
            return max(float(given(point)), 0.0)
        return float(np.linalg.norm(point - self.project(point)))

    def relative(self, point: Array) -> float:
        return float(np.linalg.norm(point - self.project(point)) / np.linalg.norm(point))

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        return projected + scale * (point - projected)

    def normal(self, dual: Array) -> tuple[Array, float]:
        z = self.project(dual)
        u = dual - z
        return u, float(u @ z)

    def price(self, dual: Array) -> float | Array:
        """Return the change of the optimum for each unit of distance by which the set grows."""
        return -float(np.linalg.norm(self.normal(dual)[0]))


def support_of_box(u: Array, lower: Array, upper: Array) -> float:
    """Largest ``u'x`` over ``lower <= x <= upper``; entries of u that are zero do not count."""
    up, down = u > 0, u < 0
    return float(u[up] @ upper[up] + u[down] @ lower[down])


def numbers(what: str, value: Any) -> Array:
    """Read an array of numbers of its own."""
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be numbers, not {value!r}") from None


def number(what: str, value: Any) -> float:
    """Read one finite number."""
    array = numbers(what, value)
    if array.ndim or not np.isfinite(array):
        raise ValueError(f"{what} is {value}; it must be a finite number")
    return float(array)


def limits(what: str, value: Any, size: int, default: float) -> Array:
    """Read a limit for each of ``size`` entries: a number for all, or an array."""
    if value is None:
        return np.full(size, default)
    array = numbers(what, value)
    if array.ndim == 0:
        array = np.full(size, float(array))
    if array.shape != (size,):
        raise ValueError(f"{what} has shape {array.shape}; give one number, or a vector of {size} of them")
    if np.any(np.isnan(array)):
        raise ValueError(f"{what} holds NaN at entry {int(np.flatnonzero(np.isnan(array))[0])}")
    return array


def check_point(point: Array, size: int) -> Array:
    """Check that a point has one entry a pair."""
    array = np.asarray(point, dtype=np.float64)
    if array.shape != (size,):
        raise ValueError(f"the point has shape {array.shape}; it must have one entry for each of the {size} pairs")
    return array
