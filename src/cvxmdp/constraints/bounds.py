"""Limits on the occupancy of each pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.barriers import Barrier, BoxPart, View
from cvxmdp.blocks import Constraint, Response, Spread, Stated, masked
from cvxmdp.cones import OfMultipliers, Stating
from cvxmdp.constraints.arguments import check_point, limits, numbers
from cvxmdp.constraints.base import FLOOR, Ranked, ranked, sides_exceeded, support_of_box, unit
from cvxmdp.constraints.linear import INSIDE
from cvxmdp.mdp import MDP, Array
from cvxmdp.ranks.scattered import as_array


class Bounds(Constraint, Ranked):
    """``{d : lower <= d <= upper}``, entry by entry.

    Parameters
    ----------
    lower, upper : float or array of shape (num_pairs,), optional
        Limits on the occupancy of each pair.  Occupancies sum to one over all pairs.
    name : str
        Used in messages and results.
    priority, weight : int, float, optional
        For ``solve(when_infeasible=...)``: limits of priority 1 are met first, and the weight is the excess that counts
        as much as exceeding another limit by its own size.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> cm.Bounds(upper=0.3).project(np.array([0.1, 0.5]))
    array([0.1, 0.3])
    """

    flat = True
    has_cones = True

    def __init__(
        self,
        lower: Any = None,
        upper: Any = None,
        name: str = "bounds",
        priority: int = 1,
        weight: float | None = None,
    ) -> None:
        self._rank(priority, weight)
        if lower is None and upper is None:
            raise ValueError("Bounds needs lower=, upper= or both")
        self.name = name
        self._given = "upper" if upper is not None else "lower"
        sides = [numbers(what, side) for what, side in (("lower", lower), ("upper", upper)) if side is not None]
        size = max([side.size for side in sides if side.ndim == 1], default=1)
        self.lower = limits("lower", lower, size, -np.inf)
        self.upper = limits("upper", upper, size, np.inf)
        if np.any(self.lower == np.inf):
            raise ValueError("lower is inf; no occupancy is that large")
        crossed = np.flatnonzero(self.lower > self.upper)
        if crossed.size:
            i = int(crossed[0])
            raise ValueError(
                f"lower is {self.lower[i]:g} and upper {self.upper[i]:g} at pair {i}; no value fits between"
            )
        if np.any(self.upper < 0):
            raise ValueError(f"upper is {self.upper.min():g}; an occupancy is never below 0")

    def bind(self, mdp: MDP) -> Bounds:
        """Spread one limit over all pairs of a model, or check that there is one a pair."""
        if self.lower.size not in (1, mdp.num_pairs):
            shape, pairs = self.lower.shape, mdp.num_pairs
            raise ValueError(f"{self._given} has shape {shape}; give one number, or one for each of the {pairs} pairs")
        of_all = np.zeros_like(mdp.state, dtype=np.float64)
        lower, upper = (of_all + (mdp.here(side) if side.size > 1 else side[0]) for side in (self.lower, self.upper))
        return Bounds(lower, upper, self.name)

    def project(self, point: Array) -> Array:
        """Clip each entry."""
        point = as_array(point, dtype=np.float64)
        return np.clip(point if self.lower.size == 1 else check_point(point, self.lower.size), self.lower, self.upper)

    def violation(self, point: Array) -> float:
        """Return the largest excess of an entry."""
        point = as_array(point, dtype=np.float64)
        point = point if self.lower.size == 1 else check_point(point, self.lower.size)
        return float(max(np.max(self.lower - point), np.max(point - self.upper), 0.0))

    def level(self, point: Array) -> Array:
        """Return the entries."""
        return point

    def relative(self, point: Array, spread: Spread | None = None) -> float:
        """Return the largest excess relative to its limit or entry."""
        # A pair that is never taken is exactly zero, whatever the spread.
        error = 0.0 if spread is None else np.where(point > 0, spread.entries + spread.rest, 0.0)
        over, under = point - self.upper + error, self.lower - point + error
        excess = np.maximum(np.maximum(over, under), 0.0)
        limit = np.where(over > under, self.upper, self.lower)
        scale = np.maximum(np.maximum(np.abs(limit), np.abs(point)), np.where(limit == 0, FLOOR, 0.0))
        return float(np.max(np.divide(excess, scale, where=excess > 0, out=np.zeros_like(excess))))

    def stated(self) -> Stated:
        return {"kind": "bounds"}, {"lower": self.lower, "upper": self.upper}

    def idle(self) -> Array:
        return np.zeros_like(self.lower)

    def normal(self, dual: Array) -> tuple[Array, float]:
        """Return the normal and its largest value over the box."""
        u = check_point(dual, self.lower.size)
        return u, support_of_box(u, self.lower, self.upper)

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        some = dual != 0
        limit = np.where(dual > 0, self.upper, self.lower)[some]
        return np.abs(dual), float(np.abs(dual[some]) @ np.abs(limit))

    def price(self, dual: Array) -> Array:
        """Return the change of the optimum for each unit of each limit."""
        return -dual

    def relaxed(self, amount: float, relative: bool = False) -> Bounds:
        up, down = self.units(relative)
        return ranked(Bounds(self.lower - amount * down, self.upper + amount * up, self.name), self)

    def cones(self, stating: Stating) -> OfMultipliers:
        return stating.box(sp.eye_array(stating.pairs, format="csr"), self.upper, self.lower, self.units(True))

    def moved(self, way: Array) -> Bounds:
        return ranked(Bounds(self.lower + way, self.upper + way, self.name), self)

    def units(self, relative: bool) -> tuple[Any, Any]:
        """What limits are measured by: a limit of zero by the largest of them."""
        sizes = [np.where(np.isfinite(side), np.abs(side), 0.0) for side in (self.upper, self.lower)]
        largest = max(float(np.max(size)) for size in sizes) or 1 / self.lower.size
        up, down = (unit(self, relative, np.where(size > 0, size, largest)) for size in sizes)
        return up, down

    def ease(self, dual: Array, relative: bool = False) -> float:
        up, down = self.units(relative)
        return float(np.sum(np.maximum(dual, 0.0) * up + np.maximum(-dual, 0.0) * down))

    def multiple(self, point: Array) -> float:
        return sides_exceeded(point, self)

    def said(self, amount: float = 0.0) -> str:
        return f"each wider by {amount:.6g}" if amount else "limits on each pair"

    def forbidden(self) -> npt.NDArray[np.bool_]:
        return as_array(self.upper == 0)

    def room(self) -> float:
        limits = np.concatenate([self.upper, self.lower])
        return float(np.min(limits[np.isfinite(limits) & (limits > 0)], initial=1.0))

    def shrink(self, view: View) -> Array:
        change = np.minimum(1.0, INSIDE * view.take(self.upper) / view.d)
        return as_array(np.maximum(change, view.take(self.lower) / INSIDE / view.d))

    def barrier(self, view: View, unit: float) -> Barrier:
        box = BoxPart(view, view.take(self.upper), view.take(self.lower))

        def dual(unit: float, price: float, lack: Array) -> Array:
            out = view.fill(unit * box.net)
            out[self.upper == 0] = price
            return out

        return Barrier([box], dual)

    def response(self, point: Array, projected: Array, step: float) -> Response:
        return Response(masked(point != projected))
