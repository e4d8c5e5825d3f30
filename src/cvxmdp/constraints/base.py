"""What sets share: priorities and weights, how an excess is counted, and the support function of a box."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, TypeVar, cast

import numpy as np

from cvxmdp.blocks import Constraint
from cvxmdp.mdp import Array

EPS = float(np.finfo(np.float64).eps)
"""The distance from one to the next number: twice what rounding an operation may be off by, relatively."""
FLOOR = 1e-6
"""What a limit of zero is judged against: this share of a natural size, such as a row's largest entry."""
LOOSE = 1e-6
"""How exactly a user's projection has to be one, relatively."""


C = TypeVar("C", bound=Constraint)


def ranked(constraint: C, like: Any) -> C:
    """Give a constraint the priority and the weight of another, or of what a user gave."""
    constraint.priority, constraint.weight = getattr(like, "priority", 1), getattr(like, "weight", None)
    return constraint


def unit(constraint: Constraint, relative: bool, size: Any) -> Any:
    """Return what an excess is measured by: its own unit, or relatively the weight or the limit's size."""
    return 1.0 if not relative else size if constraint.weight is None else constraint.weight


class Ranked:
    """What a user's constraint keeps beside its limit."""

    priority: int
    weight: float | None

    def _rank(self, priority: int, weight: float | None) -> None:
        if isinstance(priority, bool) or not isinstance(priority, Integral) or priority < 1:
            raise ValueError(f"priority is {priority!r}; it must be a whole number from 1 up, 1 for what is met first")
        if weight is not None and not (isinstance(weight, Real) and np.isfinite(weight) and weight > 0):
            raise ValueError(f"weight is {weight!r}; it must be a positive number, the excess that counts as one")
        self.priority, self.weight = int(priority), None if weight is None else float(weight)


def support_of_box(u: Array, lower: Array, upper: Array) -> float:
    """Support function: largest ``u'x`` over ``lower <= x <= upper``; entries of u that are zero do not count."""
    up, down = u > 0, u < 0
    return scalar(u[up] @ upper[up] + u[down] @ lower[down])


def scalar(value: Any) -> float:
    """Return a float, or a number of extended precision as it is: proofs are computed again with such."""
    return cast(float, value) if isinstance(value, np.longdouble) else float(value)


def sides_exceeded(values: Array, limit: Any) -> float:
    """Return by how many times their sizes values exceed the upper and lower sides of a limit."""
    up, down = limit.units(True)
    return max(float(np.max((values - limit.upper) / up)), float(np.max((limit.lower - values) / down)), 0.0)
