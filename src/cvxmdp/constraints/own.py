"""Sets of a user's own, known by their projection."""

from __future__ import annotations

import copy
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cvxmdp.blocks import Constraint, Response, Spread, Stated, response_by_differences
from cvxmdp.constraints.arguments import numbers
from cvxmdp.constraints.base import LOOSE, unit
from cvxmdp.mdp import MDP, Array


@runtime_checkable
class ConvexSet(Protocol):
    """A closed convex set of occupancies, known by its projection.

    Any object with this method is a constraint.  An attribute ``name``, where there is one, is used in messages.  What
    is proven with it is proven as far as its projection is exact.

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


class Custom(Constraint):
    """A user's :class:`ConvexSet` with what follows from its projection alone.  Its dual is the point ``z + u``."""

    own = True
    on_ranks = False

    def __init__(self, convex_set: ConvexSet, mdp: MDP) -> None:
        self.name = str(getattr(convex_set, "name", type(convex_set).__name__))
        self._set = convex_set
        self.size = mdp.num_pairs
        self._try()

    def _try(self) -> None:
        """Project a few points and see whether that is a projection, as far as they tell."""
        rng = np.random.default_rng(0)
        even, random = np.full(self.size, 1 / self.size), rng.normal(size=(2, self.size))
        tried = np.vstack([even, np.zeros(self.size), random / self.size, random])
        results = np.stack([self.project(point) for point in tried])
        kind = type(self._set).__name__
        for y, z in zip(tried, results, strict=True):
            slack = LOOSE * (float(np.linalg.norm(y)) + float(np.linalg.norm(z)))
            if np.linalg.norm(self.project(z) - z) > slack:
                raise ValueError(f"{kind}.project is not a projection: projecting its own result moves it again")
            # z is nearest to y exactly when (y - z)'(x - z) <= 0 for all members x, some of them close to z.
            reach = 0.1 * (float(np.linalg.norm(z)) or float(np.linalg.norm(y))) / np.sqrt(self.size)
            way = reach * rng.normal(size=(3, self.size))
            near = [self.project(z + sign * step) for step in way for sign in (1, -1)]
            for x in (*results, *near):
                if (y - z) @ (x - z) > slack * float(np.linalg.norm(x - z) + np.linalg.norm(y - z)):
                    raise ValueError(
                        f"{kind}.project is not a projection: of its own results it did not return the nearest, or "
                        "they are not of one convex set"
                    )

    def project(self, point: Array) -> Array:
        kind = type(self._set).__name__
        projected = numbers(f"what {kind}.project returned", self._set.project(point.copy()))
        if projected.shape != point.shape:
            raise ValueError(f"{kind}.project returned shape {projected.shape}; it must return shape {point.shape}")
        if not np.all(np.isfinite(projected)):
            raise ValueError(f"{kind}.project returned entries that are not finite")
        return projected

    def idle(self) -> Array:
        return self.project(np.full(self.size, 1 / self.size))

    def given(self) -> Any:
        """Return the projection, with the user's own measure of violations if there is one."""
        return self.project if getattr(self._set, "violation", None) is None else (self.project, self.violation)

    def violation(self, point: Array) -> float:
        given: Any = getattr(self._set, "violation", None)
        if given is not None:
            return max(float(given(point.copy())), 0.0)
        return float(np.linalg.norm(point - self.project(point)))

    def level(self, point: Array) -> float:
        return self.violation(point)

    def relative(self, point: Array, spread: Spread | None = None) -> float:
        away = float(np.linalg.norm(point - self.project(point)))
        if spread is not None:
            # A projection is exact to rounding at best: what is within that of the set obeys.
            away += float(np.linalg.norm(spread.entries)) + spread.rest
        return away / float(np.linalg.norm(point))

    def stated(self) -> Stated:
        return {"kind": "custom"}, {}

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        return projected + scale * (point - projected)

    def normal(self, dual: Array) -> tuple[Array, float]:
        dual = np.asarray(dual, dtype=np.float64)  # a user's projection has no more precision
        z = self.project(dual)
        u = dual - z
        return u, float(u @ z)

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        dual = np.asarray(dual, dtype=np.float64)
        z = self.project(dual)
        sizes = np.where(dual == z, 0.0, np.abs(dual) + np.abs(z))
        return sizes, float(np.abs(dual - z) @ np.abs(z))

    def response(self, point: Array, projected: Array, step: float) -> Response:
        return response_by_differences(self.project, point, projected)

    def price(self, dual: Array) -> float | Array:
        """Return the change of the optimum for each unit of distance by which the set grows."""
        return -float(np.linalg.norm(self.normal(dual)[0]))

    def relaxed(self, amount: float, relative: bool = False) -> Custom:
        """Return the set of all points within a distance."""
        out = copy.copy(self)
        out._set = Neighbourhood(self, amount * self.units(relative))
        return out

    def restated(self, dual: Array, relaxed: Constraint) -> Array:
        return self.project(dual) + relaxed.normal(dual)[0]

    def ease(self, dual: Array, relative: bool = False) -> float:
        return float(np.linalg.norm(self.normal(dual)[0])) * self.units(relative)

    def said(self, amount: float = 0.0) -> str:
        return f"within {amount:.6g} of the set" if amount else "in the set"

    def units(self, relative: bool) -> float:
        return float(unit(self, relative, self.size**-0.5))  # the length of an even occupancy


class Neighbourhood:
    """All points within a distance of a set."""

    def __init__(self, inner: Custom, distance: float) -> None:
        self._inner, self._distance = inner, distance

    def project(self, point: Array) -> Array:
        """Return the point itself, or the one on the way to the set that is at the distance."""
        nearest = self._inner.project(point)
        away = float(np.linalg.norm(point - nearest))
        return point if away <= self._distance else nearest + (self._distance / away) * (point - nearest)
