"""Entry-by-entry equations of projections, compiled; threads share them.

Each solves one monotone equation an entry for a given multiplier, and returns sums that say how to change the
multiplier.
"""

from __future__ import annotations

from cvxmdp import _sets, threads
from cvxmdp.mdp import Array


def entropic(y: Array, weight: Array, log_ratio: Array, step: float, z: Array) -> tuple[float, float]:
    """Solve ``z + k (log(z / r) + 1) = y`` with ``k = step * weight``; ``log_ratio`` is ``log(weight / r)``.

    Fill z.  Return ``sum z log(z / r)`` and its derivative with respect to the step.
    """
    return _sets.entropic(y, weight, log_ratio, step, z, threads.allowed())


def entropic_start(y: Array, weight: Array, log_ratio: Array, z: Array) -> tuple[float, float]:
    """Do what :func:`entropic` does in the limit of small steps: fill z with the nearest nonnegative entries."""
    return _sets.entropic_start(y, weight, log_ratio, z, threads.allowed())


def power(o: Array, p: float, multiplier: float, t: Array) -> tuple[float, float]:
    """Solve ``t + multiplier t^(p - 1) = o`` for ``o >= 0`` and ``p > 1``.

    Fill t.  Return ``sum t^p`` and its derivative with respect to the multiplier.
    """
    return _sets.power(o, p, multiplier, t, threads.allowed())


def weighted(x: Array, w: Array, m: float) -> tuple[float, float]:
    """Return ``sum w z^2`` for ``z = x / (1 + m w)``, and its derivative with respect to m."""
    return _sets.weighted(x, w, m, threads.allowed())
