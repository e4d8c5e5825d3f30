"""Stay near a given occupancy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.barriers import Barrier, BoxPart, Curve, Powers, Quadratic, View
from cvxmdp.blocks import Constraint, Response, Spread, Stated, masked
from cvxmdp.cones import OfMultipliers, Stating, Variables
from cvxmdp.constraints import kernels
from cvxmdp.constraints.arguments import check_point, number, numbers, occupancy_of, unbound
from cvxmdp.constraints.base import FLOOR, Ranked, ranked, scalar, unit
from cvxmdp.constraints.root import positive_root
from cvxmdp.mdp import MDP, Array
from cvxmdp.policy import Policy
from cvxmdp.separable import Separable, Squares


class Norm:
    """A p-norm, or a 2-norm weighted by ``sum weights x^2``, with the projection onto its balls around zero."""

    def __init__(self, p: float, weights: Array | None = None) -> None:
        if not p >= 1:
            raise ValueError(f"norm is {p}; it must be at least 1, or inf")
        if weights is not None and p != 2:
            raise ValueError(f"weights go with norm=2 only, not with norm={p}")
        self.p, self.weights = float(p), weights

    def __call__(self, x: Array) -> float:
        """Return the norm of x, in its precision."""
        if self.weights is not None:
            return scalar(np.sqrt(np.sum(self.weights * x * x)))
        if self.p == 2 and (size := np.linalg.norm(x)) > 1e-140:
            return scalar(size)
        if 1 < self.p < np.inf:
            largest = np.max(np.abs(x), initial=0.0)  # keeps powers from overflowing, and from vanishing
            return scalar(largest * np.linalg.norm(x / largest, self.p)) if largest > 0 else 0.0
        return scalar(np.linalg.norm(x, self.p))

    def change(self, spread: Spread) -> float:
        """Return by how much the norm of a difference may change."""
        most = 1.0 if self.weights is None else float(np.sqrt(np.max(self.weights)))
        return self(spread.entries) + most * spread.rest

    @property
    def conjugate(self) -> Norm:
        """The norm of linear functions: ``|u|* = max u'x over |x| <= 1``."""
        if self.weights is not None:
            return Norm(2, 1 / self.weights)
        return Norm(np.inf if self.p == 1 else 1.0 if np.isinf(self.p) else self.p / (self.p - 1))

    def shrink(self, x: Array, radius: float) -> Array:
        """Return the nearest point to x of norm at most ``radius``."""
        size = self(x)
        if size <= radius:
            return x
        if radius == 0:
            return np.zeros_like(x)
        if np.isinf(self.p):
            return np.clip(x, -radius, radius)
        if self.p == 1:
            return np.copysign(np.maximum(np.abs(x) - _threshold(np.abs(x), radius), 0.0), x)
        if self.weights is not None:
            return x / (1 + self._multiplier(x, radius) * self.weights)
        return x * (radius / size) if self.p == 2 else self._power(x, radius)

    def _multiplier(self, x: Array, radius: float) -> float:
        """Return the m with ``|x / (1 + m weights)| = radius`` in the weighted 2-norm."""
        w = self.weights
        assert w is not None

        def excess(m: float) -> tuple[float, float]:
            total, slope = kernels.weighted(x, w, m)
            return total / radius**2 - 1, slope / radius**2

        return positive_root(excess, (self(x) / radius - 1) / float(np.max(w)), 1e-14)

    def _power(self, x: Array, radius: float) -> Array:
        o, t = np.abs(x) / radius, np.empty_like(x)

        def excess(m: float) -> tuple[float, float]:
            total, slope = kernels.power(o, self.p, m, t)
            return total - 1.0, slope

        positive_root(excess, 1.0, 1e-14)
        return np.copysign(radius * t, x)

    def response(self, x: Array, z: Array) -> Response:
        """Return how :meth:`shrink` responds at x, where it gave z."""
        if np.array_equal(x, z):
            return Response(np.zeros_like(x))
        if np.isinf(self.p):
            return Response(masked(x != z))
        if not np.any(z):
            return Response(np.ones_like(x))
        if self.p == 1:
            kept = z != 0
            return Response(masked(~kept), (np.sign(z) / np.sqrt(np.count_nonzero(kept)))[:, None])
        if self.p == 2 and self.weights is None:
            kept = float(np.linalg.norm(z) / np.linalg.norm(x))
            return Response(np.full_like(x, 1 - kept), np.sqrt(kept) * (z / np.linalg.norm(z))[:, None])
        # z + m slope(z) = x with slope the gradient of the norm's power, at a fixed value of that power.
        if self.weights is not None:
            slope, curve = self.weights * z, self.weights
        else:
            size = np.abs(z) / float(np.max(np.abs(z)))
            slope = np.copysign(size ** (self.p - 1), z)
            with np.errstate(divide="ignore"):
                curve = (self.p - 1) * size ** (self.p - 2) / float(np.max(np.abs(z)))
        m = float((x - z) @ slope / (slope @ slope))
        share = 1 / (1 + m * curve)
        column = share * slope
        return Response(1 - share, (column / np.sqrt(float(slope @ column)))[:, None])


def _threshold(sizes: Array, radius: float) -> float:
    """Return the t with ``sum max(sizes - t, 0) = radius``, dropping entries below until none is left to drop."""
    kept = sizes
    while True:
        t = (float(kept.sum()) - radius) / kept.size
        above = kept[kept > t]
        if above.size == kept.size or above.size == 0:
            return t
        kept = above


class NormBall(Constraint, Ranked):
    """``{d : |d - center| <= radius}``.

    Parameters
    ----------
    center : array of shape (num_pairs,), Policy or Solution
        An occupancy, or a policy or solution whose occupancy is meant, for instance an expert's.
    radius : float
        At least 0.
    norm : float
        Any number from 1 up, or ``inf``.
    weights : array of shape (num_pairs,), optional
        For norm 2: positive weights w in ``sqrt(sum w (d - center)^2)``.
    name : str
        Used in messages and results.
    priority, weight : int, float, optional
        For ``solve(when_infeasible=...)``: limits of priority 1 are met first, and the weight is the excess that counts
        as much as exceeding another limit by its own size.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> cm.NormBall(center=np.array([0.0, 0.0]), radius=1.0).project(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    >>> cm.NormBall(center=np.array([0.0, 0.0]), radius=1.0, norm=1).project(np.array([3.0, 3.5]))
    array([0.25, 0.75])
    """

    has_cones = True

    def __init__(
        self,
        center: Any,
        radius: float,
        norm: float = 2,
        weights: npt.ArrayLike | None = None,
        name: str = "ball",
        priority: int = 1,
        weight: float | None = None,
    ) -> None:
        self._rank(priority, weight)
        self._center = occupancy_of(None, center, "center")
        self.radius = number("radius", radius)
        if self.radius < 0:
            raise ValueError(f"radius is {radius}; it must be at least 0")
        self.norm = Norm(exponent(norm), _weights(weights))
        self.flat, self.round = self.norm.p in (1.0, np.inf), self.norm.p == 2
        if not isinstance(self._center, Policy):
            self._check(self._center)
        self.name = name

    @property
    def center(self) -> Array:
        """The occupancy in the middle."""
        if isinstance(self._center, Policy):
            raise unbound(self.name, "the occupancy of the policy in its center")
        center: Array = self._center
        return center

    def _check(self, center: Array) -> None:
        if self.norm.weights is not None and self.norm.weights.shape != center.shape:
            raise ValueError(f"weights has {self.norm.weights.size} entries; the center has {center.size}")

    def bind(self, mdp: MDP) -> NormBall:
        """Evaluate a policy in the center, and check that there is one entry for each pair of a model."""
        center = occupancy_of(mdp, self._center, "center")
        weights = None if self.norm.weights is None else mdp.here(self.norm.weights)
        return NormBall(center, self.radius, self.norm.p, weights, self.name)

    def project(self, point: Array) -> Array:
        """Return the nearest member."""
        point = check_point(point, self.center.size)
        offset = point - self.center
        moved = self.norm.shrink(offset, self.radius)
        if moved is offset:
            return point
        moved += self.center  # in place: pages of another array cost more than the sum
        return moved

    def violation(self, point: Array) -> float:
        """Return the distance beyond the radius."""
        return max(self.norm(check_point(point, self.center.size) - self.center) - self.radius, 0.0)

    def level(self, point: Array) -> float:
        """Return the distance."""
        return self.norm(check_point(point, self.center.size) - self.center)

    def relative(self, point: Array, spread: Spread | None = None) -> float:
        """Return the distance beyond the radius, relative to the radius."""
        error = 0.0 if spread is None else self.norm.change(spread)
        excess = max(self.level(point) + error - self.radius, 0.0)
        return excess / max(self.radius, FLOOR * self.norm(self.center), 1e-300)

    def stated(self) -> Stated:
        weights = {} if self.norm.weights is None else {"weights": self.norm.weights}
        return {"kind": "ball", "p": self.norm.p, "radius": self.radius}, {"center": self.center, **weights}

    def idle(self) -> Array:
        return np.zeros_like(self.center)

    def normal(self, dual: Array) -> tuple[Array, float]:
        """Return the normal and its largest value over the ball."""
        u = check_point(dual, self.center.size)
        return u, scalar(u @ self.center + self.radius * self.norm.conjugate(u))

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        size = np.abs(dual)
        return size, float(size @ np.abs(self.center) + self.radius * self.norm.conjugate(dual))

    def price(self, dual: Array) -> float:
        """Return the change of the optimum for each unit of radius."""
        return -self.norm.conjugate(dual)

    def relaxed(self, amount: float, relative: bool = False) -> NormBall:
        radius = self.radius + amount * self.units(relative)
        return ranked(NormBall(self.center, radius, self.norm.p, self.norm.weights, self.name), self)

    def separable(self) -> Separable | None:
        if self.norm.p != 2 or self.radius == 0:
            return None
        return Squares(self.center, self.radius, self.norm.weights)

    def cones(self, stating: Stating) -> OfMultipliers:
        program, n, p = stating.program, stating.pairs, self.norm.p
        w = np.ones(n) if self.norm.weights is None else np.sqrt(self.norm.weights)
        away, room = sp.diags_array(w, format="csc"), stating.room(self.units(True))
        if p == 2:
            first = sp.csr_array((1, n))
            blocks = stating.of(sp.vstack([first, -away], format="csc"))
            blocks |= {t: np.vstack([one, np.zeros((n, 1))]) for t, one in room.items()}
            where = program.add("second order", blocks, np.concatenate([[self.radius], -w * self.center]))
            return lambda z: -w * z[where][1:]
        if np.isinf(p):
            top = stating.room(np.full(n, self.units(True)))
            up = program.add("nonnegative", stating.of(away) | top, self.radius + self.center)
            down = program.add("nonnegative", stating.of(-away) | top, self.radius - self.center)
            return lambda z: np.maximum(z[up], 0.0) - np.maximum(z[down], 0.0)
        size = program.variables(n)
        if p > 1:
            return self._power_cones(stating, size)
        eye = sp.eye_array(n, format="csc")
        up = program.add("nonnegative", stating.of(away) | {size: -eye}, self.center)
        down = program.add("nonnegative", stating.of(-away) | {size: -eye}, -self.center)
        program.add("nonnegative", {size: np.ones((1, n))} | room, np.array([self.radius]))
        return lambda z: np.maximum(z[up], 0.0) - np.maximum(z[down], 0.0)

    def _power_cones(self, stating: Stating, size: Variables) -> OfMultipliers:
        """``|d - center|_p <= r``: (h, r, d - center) in the power cone ``h^(1/p) r^(1-1/p) >= |.|``, sum h <= r."""
        n, at, room = stating.pairs, np.arange(stating.pairs), stating.room(self.units(True))

        def nth(k: int) -> Any:
            return sp.csr_array((-np.ones(n), (3 * at + k, at)), shape=(3 * n, n))

        b = np.zeros(3 * n)
        b[1::3], b[2::3] = self.radius, -self.center
        blocks = stating.of(nth(2)) | {size: nth(0)}
        for t, size_of_t in room.items():
            blocks[t] = sp.csr_array((np.full(n, size_of_t[0, 0]), (3 * at + 1, np.zeros(n, int))), shape=(3 * n, 1))
        where = stating.program.add(f"power {1 / self.norm.p}", blocks, b, size=3)
        stating.program.add("nonnegative", {size: np.ones((1, n))} | room, np.array([self.radius]))
        return lambda z: -z[where][2::3]

    def moved(self, way: Array) -> NormBall:
        return ranked(NormBall(self.center + way, self.radius, self.norm.p, self.norm.weights, self.name), self)

    def units(self, relative: bool) -> float:
        return float(unit(self, relative, self.radius or self.norm(self.center) or 1.0))

    def ease(self, dual: Array, relative: bool = False) -> float:
        return self.norm.conjugate(dual) * self.units(relative)

    def said(self, amount: float = 0.0) -> str:
        return f"within {self.radius + amount:.6g} of its center"

    def room(self) -> float:
        return min(1.0, self.radius) or 1.0

    def inside(self, d: Array) -> Array | None:
        return self.center if self.level(d) > self.radius else None

    def barrier(self, view: View, unit: float) -> Barrier | None:
        if self.radius == 0:  # nothing lies inside
            return None
        center, p = view.take(self.center), self.norm.p
        if p == 2:
            w = 1.0 if self.norm.weights is None else view.take(self.norm.weights)
            curve = Curve(view, Quadratic(center, w, self.radius))
            return Barrier([curve], lambda unit, price, lack: view.fill(unit * curve.force))
        if np.isinf(p):
            box = BoxPart(view, center + self.radius, center - self.radius)
            return Barrier([box], lambda unit, price, lack: view.fill(unit * box.net))
        powers = Powers(view, center, p, self.radius)
        return Barrier([powers], lambda unit, price, lack: view.fill(unit * powers.force))

    def response(self, point: Array, projected: Array, step: float) -> Response:
        offset = point - self.center
        return self.norm.response(offset, self.norm.shrink(offset, self.radius))


def exponent(norm: Any) -> float:
    """Read the exponent of a norm."""
    try:
        return float(norm)
    except (TypeError, ValueError):
        raise ValueError(f"norm is {norm!r}; it must be a number from 1 up, or inf") from None


def _weights(weights: Any) -> Array | None:
    if weights is None:
        return None
    w = numbers("weights", weights)
    if w.ndim != 1 or not np.all(np.isfinite(w)) or not np.all(w > 0):
        raise ValueError("weights must be a vector of positive, finite numbers with one entry for each pair")
    return w
