"""Compiled loops that take the states of a sparse model one after the other, in the order of their numbers."""

from __future__ import annotations

from cvxmdp import _dynamics
from cvxmdp.dynamics.kernels import Whole
from cvxmdp.mdp import Array, Indices


def downhill(data: Array, indices: Whole, indptr: Whole, pair: Indices, V: Array) -> tuple[float, float, float]:
    """Mean probability that ``pair`` leads to a state of lower value, of lower number, of higher number."""
    return _dynamics.downhill(data, indices, indptr, pair, V)


def improve(
    data: Array,
    indices: Whole,
    indptr: Whole,
    first: Indices,
    gamma: float,
    c: Array,
    V: Array,
    pair: Indices,
    upward: bool,
    parts: int,
    least: float,
    rounding: float,
    settles: int,
) -> tuple[float, bool]:
    """Bellman's equation met state by state, up or down their numbers, each time with the newest V (Gauss-Seidel).

    Then, up to so many times, the same with the policy held, which reads a fraction of P.  V and the pair that attains
    the minimum are changed in place.  Threads share the states in so many parts and read each other's V, old or new.
    Returns the first sweep's largest change, and whether it was no more than ``least`` or a share ``rounding`` of the
    largest value.
    """
    return _dynamics.improve(
        data, indices, indptr, first, gamma, c, V, pair, upward, parts, least, rounding, settles
    )  # fmt: skip


def push_often(
    data: Array,
    indices: Whole,
    indptr: Whole,
    first: Indices,
    gamma: float,
    pi: Array,
    waiting: Array,
    x: Array,
    upward: bool,
    least: float,
    goal: float,
    share: float,
    most: int,
) -> tuple[float, bool]:
    """Move what waits in each state on to its successors under a policy, up or down the states' numbers.

    ``x`` gains what has passed.  Less than a share ``least`` of that is left where it is: what is rarely visited is
    known as exactly as what is often.  This is done until no more than ``goal`` waits, and nowhere more than a share of
    what has passed, at most so many times.  Returns what still waits, and whether that was reached.
    """
    return _dynamics.push_often(
        data, indices, indptr, first, gamma, pi, waiting, x, upward, least, goal, share, most
    )  # fmt: skip
