"""Entry-by-entry equations of projections, threaded and compiled once.

Each solves one monotone equation an entry for a given multiplier, and returns sums that say how to change the
multiplier.
"""

from __future__ import annotations

import os

# Idle OpenMP threads that spin take the cores that BLAS needs between two kernels: let them sleep.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from numba import njit, prange


@njit(cache=True, inline="always")
def _lambert(b):
    """Return w and log w with ``w + log w = b`` (w is Lambert's W of e^b)."""
    if b < -36.0:
        return np.exp(b), b
    if b > 1.0:
        start = np.log(b)
        w = b - start + start / b
    else:
        start = np.exp(b)
        w = start / (1.0 + 0.6 * start)
    log_w = np.log(w)
    for _ in range(8):
        # Fritsch, Shafer and Crowley (1973): the error falls to its fourth power.
        q = b - w - log_w
        if abs(q) <= 4e-16 * (abs(b) + 1.0):
            break
        t = 2.0 * (1.0 + w) * (1.0 + w + 2.0 * q / 3.0)
        e = q / (1.0 + w) * (t - q) / (t - 2.0 * q)
        w *= 1.0 + e
        log_w = np.log(w) if abs(e) > 1e-4 else log_w + e * (1.0 - e * (0.5 - e / 3.0))
    return w, log_w


@njit(parallel=True, cache=True)
def entropic(y, weight, log_ratio, step, z):
    """Solve ``z + k (log(z / r) + 1) = y`` with ``k = step * weight``; ``log_ratio`` is ``log(weight / r)``.

    Fill z.  Return ``sum z log(z / r)`` and its derivative with respect to the step.
    """
    log_step = np.log(step)
    total, slope = 0.0, 0.0
    for i in prange(y.size):
        k = step * weight[i]
        log_k = log_step + log_ratio[i]
        w, log_w = _lambert(y[i] / k - 1.0 - log_k)
        z[i] = k * w
        if w > 0.0:
            logarithm = log_w + log_k
            total += k * w * logarithm
            slope -= weight[i] * (logarithm + 1.0) ** 2 * w / (1.0 + w)
    return total, slope


@njit(parallel=True, cache=True)
def power(o, p, multiplier, t):
    """Solve ``t + multiplier t^(p - 1) = o`` for ``o >= 0`` and ``p > 1``.

    Fill t.  Return ``sum t^p`` and its derivative with respect to the multiplier.  The equation is written as
    ``alpha x^q + beta x = o`` with ``q >= 1``, which is convex, so that Newton from above never overshoots.
    """
    q = p - 1.0 if p >= 2.0 else 1.0 / (p - 1.0)
    alpha = multiplier if p >= 2.0 else 1.0
    beta = 1.0 if p >= 2.0 else multiplier
    total, slope = 0.0, 0.0
    for i in prange(o.size):
        t[i] = 0.0
        if o[i] > 0.0:
            x = min((o[i] / alpha) ** (1.0 / q), o[i] / beta)
            for _ in range(60):
                rest = alpha * x**q + beta * x - o[i]
                change = rest / (alpha * q * x ** (q - 1.0) + beta)
                x -= change
                if change <= 1e-16 * x:
                    break
            t[i] = x if p >= 2.0 else x**q
            raised = t[i] ** (p - 1.0)
            total += raised * t[i]
            if t[i] > 0.0:
                slope -= p * raised * raised / (1.0 + multiplier * (p - 1.0) * t[i] ** (p - 2.0))
    return total, slope
