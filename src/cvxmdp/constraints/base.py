"""What sets share: how their arguments are read and how an excess is counted."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, TypeVar, cast

import numpy as np

from cvxmdp.blocks import Constraint
from cvxmdp.mdp import MDP, Array
from cvxmdp.policy import Policy
from cvxmdp.reading import LARGEST, floats

EPS = float(np.finfo(np.float64).eps)
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


def occupancy_of(mdp: MDP | None, given: Any, what: str) -> Any:
    """Read an occupancy from an array, a Solution, or a Policy, which is returned as it is while there is no model."""
    if isinstance(given, Policy):
        return given if mdp is None else mdp.evaluate(given).occupancy
    array = numbers(what, getattr(given, "occupancy", given))
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise ValueError(
            f"{what} must be a vector of finite numbers with one entry for each pair, a Policy or a Solution"
        )
    if mdp is not None and array.size != mdp.num_pairs:
        raise ValueError(f"{what} has {array.size} entries; the model has {mdp.num_pairs} pairs")
    return array


def unbound(name: str, missing: str) -> ValueError:
    """Return the error of a constraint that is used before it knows the model."""
    return ValueError(f"{name!r} does not know {missing} yet; bind it to a model first: constraint.bind(mdp)")


def support_of_box(u: Array, lower: Array, upper: Array) -> float:
    """Largest ``u'x`` over ``lower <= x <= upper``; entries of u that are zero do not count."""
    up, down = u > 0, u < 0
    return scalar(u[up] @ upper[up] + u[down] @ lower[down])


def scalar(value: Any) -> float:
    """Return a float, or a number of extended precision as it is: proofs are computed again with such."""
    return cast(float, value) if isinstance(value, np.longdouble) else float(value)


def numbers(what: str, value: Any) -> Array:
    """Read an array of numbers of its own; they may be infinite, but not so large that products with them would be."""
    array = np.array(floats(what, value))
    check_size(what, array)
    return array


def check_size(what: str, entries: Array) -> None:
    """Refuse finite numbers whose products would not be finite any more."""
    large = np.isfinite(entries) & (np.abs(entries) > LARGEST)
    if np.any(large):
        raise ValueError(
            f"{what} holds {entries[large].ravel()[0]:g}; give numbers of at most {LARGEST:g}, in larger units"
        )


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
    array = np.asarray(point)
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float64)
    if array.shape != (size,):
        raise ValueError(f"the point has shape {array.shape}; it must have one entry for each of the {size} pairs")
    return array


def sides_exceeded(values: Array, limit: Any) -> float:
    """Return by how many times their sizes values exceed the upper and lower sides of a limit."""
    up, down = limit.units(True)
    return max(float(np.max((values - limit.upper) / up)), float(np.max((limit.lower - values) / down)), 0.0)
