"""The one unknown that is left in many projections: a positive multiplier."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MOST_STEPS = 200
"""Newton takes about ten; halving what lies between 1e-250 and 1e250 down to 16 digits takes some sixty."""
SMALLEST = 1e-250
"""Numbers below count as zero: their products underflow."""


def positive_root(excess: Callable[[float], tuple[float, float]], start: float, tolerance: float) -> float:
    """Find the m > 0 where a decreasing function is zero, by Newton steps in ``log m`` kept inside a bracket.

    Parameters
    ----------
    excess : callable
        The function and its derivative at m.
    start : float
        A first guess, positive.
    tolerance : float
        An excess of at most this is zero.
    """
    low, high, m = 0.0, np.inf, start
    for _ in range(MOST_STEPS):
        value, slope = excess(m)
        if abs(value) <= tolerance:
            break
        if value > 0:
            low = m
        else:
            high = m
        step = -value / (slope * m) if slope < 0 else np.inf
        proposed = m * float(np.exp(np.clip(step, -5.0, 5.0)))
        if not low < proposed < high:
            proposed = np.sqrt(low * high) if low > 0 and np.isfinite(high) else m * (100.0 if value > 0 else 0.01)
        if proposed == m or not SMALLEST < proposed < 1 / SMALLEST:
            break
        if np.isfinite(high) and high - low <= 4e-16 * high:
            break
        m = float(proposed)
    return m
