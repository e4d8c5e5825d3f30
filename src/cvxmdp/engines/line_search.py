"""Steps along a direction that are halved until they bring what the gradient promises (Armijo's rule)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

ARMIJO = 1e-4
"""Share of the change that the gradient promises which a step has to bring (Nocedal and Wright, section 3.1)."""


def armijo(
    tried: Callable[[float], tuple[float, T]],
    value: float,
    slope: float,
    rounding: float,
    shortest: float,
    length: float = 1.0,
) -> tuple[float, float, T]:
    """Halve the step until a function to be minimized is low enough; return the step, the value and what is there.

    Parameters
    ----------
    tried : callable
        For a length, the function's value after that step, and whatever else is known there.
    value, slope : float
        Of the function where the step begins, along it.
    rounding : float
        By how much values may be off.
    shortest : float
        A step shorter than this is returned as it is.
    length : float
        The first try.
    """
    while True:
        new, there = tried(length)
        if new <= value + ARMIJO * length * slope + rounding or length < shortest:
            return length, new, there
        length /= 2
