"""What the generators read: counts, numbers and distributions, each refused by its name where it makes no sense."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

Array = npt.NDArray[np.float64]

RAREST = 1e-6
"""Poisson counts that are less likely than this are left out: they would fill the transitions and change no plan."""
LARGEST_MEAN = 1e6
"""The largest mean of a Poisson distribution, so that its table stays small."""


def read_count(name: str, value: int, least: int = 1, why: str = "") -> int:
    """Return a whole number of at least ``least``."""
    try:
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}") from None
    if count < least:
        raise ValueError(f"{name} is {count}; it must be at least {least}{why and ', ' + why}")
    return count


def read_number(
    name: str, value: float, least: float = 0.0, most: float = np.inf, least_out: bool = False, most_out: bool = False
) -> float:
    """Return a finite number between ``least`` and ``most``; the flags say which ends are excluded."""
    low = f"above {least:g}" if least_out else f"at least {least:g}"
    high = "" if most == np.inf else f" and below {most:g}" if most_out else f" and at most {most:g}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, {low}{high}, not {value!r}") from None
    inside = np.isfinite(number) and least <= number <= most
    if not inside or (least_out and number == least) or (most_out and number == most):
        raise ValueError(f"{name} is {number:g}; it must be {low}{high}")
    return number


def read_numbers(name: str, values: Sequence[float], least: float = 0.0, most: float = np.inf) -> tuple[float, ...]:
    """Return at least one number, each between ``least`` and ``most``."""
    try:
        given = list(values)
    except TypeError:
        raise ValueError(f"{name} must be a list of numbers, not {values!r}") from None
    if not given:
        raise ValueError(f"{name} is empty; give at least one number")
    return tuple(read_number(f"{name}[{i}]", value, least, most) for i, value in enumerate(given))


def read_ladder(name: str, values: Sequence[float], least: float = 0.0, most: float = 1.0) -> tuple[float, ...]:
    """Return numbers that increase, such as the speeds of a server."""
    ladder = read_numbers(name, values, least, most)
    for low, high in pairwise(ladder):
        if not low < high:
            raise ValueError(f"{name} has {high:g} after {low:g}; list different numbers from the least to the largest")
        if f"{low:g}" == f"{high:g}":  # actions are named by six digits
            raise ValueError(f"{name} has {high!r} after {low!r}; numbers must differ in their first six digits")
    return ladder


def read_powers(name: str, powers: Sequence[float] | None, speeds: tuple[float, ...]) -> Array:
    """Return one power for each speed: those given, or the cubes of the speeds."""
    if powers is None:
        return np.power(speeds, 3)
    given = read_numbers(name, powers)
    if len(given) != len(speeds):
        raise ValueError(f"{name} has {len(given)} entries; give one for each of the {len(speeds)} speeds")
    return np.array(given)


def read_demand(name: str, demand: float | Sequence[float]) -> Array:
    """Return the probabilities of 0, 1, 2, ... units from the mean of a Poisson distribution or from themselves."""
    if np.ndim(demand) == 0:
        return poisson(read_number(name, demand, 0.0, LARGEST_MEAN))  # type: ignore[arg-type]
    chances: Array = np.array(read_numbers(name, demand, 0.0, 1.0))  # type: ignore[arg-type]
    if abs(chances.sum() - 1) > 1e-6:
        raise ValueError(
            f"{name} sums to {chances.sum():.10g}, not 1; give the probability of each of 0, 1, 2, ... units, or a mean"
        )
    return np.asarray(chances / chances.sum())


def poisson(mean: float) -> Array:
    """Return the Poisson probabilities of 0, 1, 2, ... without those below ``RAREST``, divided by their sum."""
    if mean == 0:
        return np.ones(1)
    counts = np.arange(int(mean + 12 * np.sqrt(mean)) + 20)
    chances = np.exp(counts * np.log(mean) - mean - gammaln(counts + 1.0))
    chances[chances < RAREST] = 0.0
    last = int(np.flatnonzero(chances)[-1])
    return np.asarray(chances[: last + 1] / chances.sum())


def read_seed(seed: int) -> np.random.Generator:
    """Return the random numbers of a seed."""
    try:
        return np.random.default_rng(operator.index(seed))
    except (TypeError, ValueError):
        raise ValueError(f"seed must be a whole number of at least 0, not {seed!r}") from None
