"""How sets and terms read their arguments: numbers, limits, points and occupancies."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Array
from cvxmdp.policy import Policy
from cvxmdp.ranks.scattered import as_array
from cvxmdp.reading import LARGEST, floats


def occupancy_of(mdp: MDP | None, given: Any, what: str) -> Any:
    """Read an occupancy from an array, a Solution, or a Policy, which is returned as it is while there is no model."""
    if isinstance(given, Policy):
        return given if mdp is None else mdp.evaluate(given).occupancy
    array = numbers(what, getattr(given, "occupancy", given))
    array = array if mdp is None else mdp.here(array)
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


def numbers(what: str, value: Any) -> Array:
    """Read an array that nobody else changes; entries may be infinite, but not so large that products would be."""
    array = floats(what, value)
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
    array = as_array(point)
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float64)
    if array.shape != (size,):
        raise ValueError(f"the point has shape {array.shape}; it must have one entry for each of the {size} pairs")
    return array
