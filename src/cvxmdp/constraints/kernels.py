"""Entry-by-entry equations of projections, compiled; threads share them.

Each solves one monotone equation an entry for a given multiplier, and returns sums that say how to change the
multiplier.
"""

from __future__ import annotations

import numpy as np

from cvxmdp import _sets, threads
from cvxmdp.mdp import Array
from cvxmdp.ranks.scattered import over_ranks, part_of


def entropic(y: Array, weight: Array, log_ratio: Array, step: float, z: Array) -> tuple[float, float]:
    """Solve ``z + k (log(z / r) + 1) = y`` with ``k = step * weight``; ``log_ratio`` is ``log(weight / r)``.

    Fill z.  Return ``sum z log(z / r)`` and its derivative with respect to the step.
    """
    parts = (part_of(y), part_of(weight), part_of(log_ratio), step, part_of(z))
    return _together(y, _sets.entropic(*parts, threads.allowed()))


def entropic_start(y: Array, weight: Array, log_ratio: Array, z: Array) -> tuple[float, float]:
    """Do what :func:`entropic` does in the limit of small steps: fill z with the nearest nonnegative entries."""
    parts = (part_of(y), part_of(weight), part_of(log_ratio), part_of(z))
    return _together(y, _sets.entropic_start(*parts, threads.allowed()))


def power(o: Array, p: float, multiplier: float, t: Array) -> tuple[float, float]:
    """Solve ``t + multiplier t^(p - 1) = o`` for ``o >= 0`` and ``p > 1``.

    Fill t.  Return ``sum t^p`` and its derivative with respect to the multiplier.
    """
    return _together(o, _sets.power(part_of(o), p, multiplier, part_of(t), threads.allowed()))


def weighted(x: Array, w: Array, m: float) -> tuple[float, float]:
    """Return ``sum w z^2`` for ``z = x / (1 + m w)``, and its derivative with respect to m."""
    return _together(x, _sets.weighted(part_of(x), part_of(w), m, threads.allowed()))


def _together(like: Array, sums: tuple[float, float]) -> tuple[float, float]:
    """Return sums over all entries, where some live on other ranks."""
    one, two = over_ranks(like, "total", np.array(sums))
    return float(one), float(two)
