"""Compiled loops that take the states of a sparse model one after the other, in the order of their numbers."""

from __future__ import annotations

from typing import NamedTuple

from cvxmdp import _dynamics
from cvxmdp.dynamics.kernels import Whole
from cvxmdp.mdp import Array, Indices

POLICY_SWEEPS = 4
"""Sweeps with the policy held after each that improves it: they read a fraction of P."""


class NumberedModel(NamedTuple):
    """A model whose states are taken in the order of their numbers; P in compressed sparse rows."""

    data: Array
    indices: Whole
    indptr: Whole
    first: Indices
    gamma: float


class Rest(NamedTuple):
    """What may be left waiting, see :func:`push_often`."""

    least: float
    """In a state, as a share of what has passed: less is not moved, so that rare visits are known as exactly."""
    goal: float
    """In all states together."""
    share: float
    """In any state at the end, as a share of what has passed."""


def downhill(model: NumberedModel, pair: Indices, V: Array) -> tuple[float, float, float]:
    """Mean probability that ``pair`` leads to a state of lower value, of lower number, of higher number."""
    return _dynamics.downhill(model.data, model.indices, model.indptr, pair, V)


def improve(
    model: NumberedModel,
    c: Array,
    V: Array,
    pair: Indices,
    upward: bool,
    parts: int,
    goal: tuple[float, float],
    held: int = POLICY_SWEEPS,
) -> tuple[float, bool]:
    """Bellman's equation met state by state, up or down their numbers, each time with the newest V (Gauss-Seidel).

    Then, up to ``held`` times, the same with the policy held, which reads a fraction of P.  V and the pair that attains
    the minimum are changed in place.  Threads share the states in so many parts and read each other's V, old or new.
    Returns the first sweep's largest change, and whether that was within the goal: no more than its first number, or
    than its second times the largest value.
    """
    return _dynamics.improve(*model, c, V, pair, upward, parts, *goal, held)


def hold_policy(model: NumberedModel, c: Array, V: Array, pair: Indices, upward: bool, parts: int) -> float:
    """Do one of the sweeps of :func:`improve` that hold the policy; return its largest change."""
    return _dynamics.hold_policy(*model, c, V, pair, upward, parts)


def push_often(
    model: NumberedModel, pi: Array, waiting: Array, x: Array, upward: bool, rest: Rest, most: int
) -> tuple[float, bool]:
    """Move what waits in each state on to its successors under a policy, up or down the states' numbers.

    ``x`` gains what has passed.  This is done until no more than the rest waits, at most so many times.  Returns what
    still waits, and whether that was reached.
    """
    return _dynamics.push_often(*model, pi, waiting, x, upward, *rest, most)
