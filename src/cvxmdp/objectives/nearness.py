"""Come as near to a set as possible: what is minimized where no policy obeys."""

from __future__ import annotations

import numpy as np

from cvxmdp.blocks import Constraint, Response, Spread, Stated, Term
from cvxmdp.constraints.base import scalar
from cvxmdp.mdp import Array
from cvxmdp.ranks.scattered import as_array


class SquaredDistance(Term):
    """``|d - P(d)|^2 / 2`` with P the projection onto a set.  Its duals are the set's.

    The gradient ``u = d - P(d)`` is a normal of the set, and the conjugate its support plus ``|u|^2 / 2``.  So a bound
    b on the least value proves that no occupancy is nearer than ``sqrt(2 b)``.
    """

    smooth = True

    def __init__(self, limit: Constraint) -> None:
        self.soft, self.name = limit, f"distance to {limit.name}"

    @property
    def limit(self) -> Constraint:
        """The set."""
        assert self.soft is not None
        return self.soft

    def value(self, point: Array) -> float:
        away = point - self.limit.project(point)
        return float(away @ away) / 2

    def size(self, point: Array) -> float:
        return self.value(point)

    def change(self, point: Array, spread: Spread) -> float:
        moved = float(np.linalg.norm(spread.entries)) + spread.rest
        return moved * (float(np.sqrt(2 * self.value(point))) + moved)

    def prox(self, point: Array, step: float) -> Array:
        return as_array((point + step * self.limit.project(point)) / (1 + step))

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        nearest = self.limit.project(point)
        way = float(np.linalg.norm(point - nearest))
        taken = float(np.linalg.norm(point - projected)) / way if way > 0 else 0.0
        return self.limit.dual(point, nearest, scale * taken)

    def normal(self, dual: Array) -> tuple[Array, float]:
        u, support = self.limit.normal(dual)
        return u, support + scalar(u @ u) / 2

    def explicit(self, dual: Array) -> Array:
        return self.limit.explicit(dual)

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        sizes, of_support = self.limit.magnitude(dual)
        return sizes, of_support + float(sizes @ sizes)

    def response(self, point: Array, projected: Array, step: float) -> Response:
        return self.limit.response(point, self.limit.project(point), 1.0).scaled(step / (1 + step))

    def nearest(self, point: Array) -> Array:
        """Return the nearest member of the set."""
        return self.limit.project(point)

    def curvature(self, point: Array, nearest: Array) -> Response:
        """Return the Hessian at a point with this nearest member."""
        return self.limit.response(point, nearest, 1.0)

    def gradient(self, point: Array, nearest: Array) -> Array:
        """Return the dual array of the gradient at a point with this nearest member."""
        return self.limit.dual(point, nearest, 1.0)

    def stated(self) -> Stated:
        raise NotImplementedError("a distance to limits is part of a solve and is not saved")
