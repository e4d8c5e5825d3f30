"""Entry-by-entry equations of projections, threaded and compiled once.

Each solves one monotone equation an entry for a given multiplier, and returns sums that say how to change the
multiplier.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from cvxmdp.compiled import njit, threaded

LOOSE = {"reassoc", "contract", "arcp", "nsz"}
"""Lets the compiler sum in any order, hence several entries at once; infinities and NaN keep their meaning."""


@njit(inline="always")
def _split(x):
    """Return e and f with ``x = 2^e (1 + f)`` and ``1 + f`` within a factor sqrt(2) of one, for positive normal x."""
    bits = np.float64(x).view(np.int64)
    e = (bits - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
    return e, np.int64(bits - (e << np.int64(52))).view(np.float64) - 1.0


@njit(inline="always")
def _log(x):
    """Return log x as fdlibm does, without a branch, so that several entries are done at once."""
    e, f = _split(x)
    s = f / (2.0 + f)
    q = s * s
    tail = 1.818357216161805012e-01 + q * (1.531383769920937332e-01 + q * 1.479819860511658591e-01)
    tail = 3.999999999940941908e-01 + q * (2.857142874366239149e-01 + q * (2.222219843214978396e-01 + q * tail))
    tail = q * (6.666666666666735130e-01 + q * tail)
    h = 0.5 * f * f
    return e * 6.93147180369123816490e-01 - (h - (s * (h + tail) + e * 1.90821492927058770002e-10) - f)


@njit(inline="always")
def _rough_log(x):
    """Return log x to an error of 2e-5."""
    e, f = _split(x)
    tail = 0.33841321 + f * (-0.27203846 + f * 0.16801533)
    return e * 0.6931471805599453 + f * (0.99987975 + f * (-0.49934377 + f * tail))


@njit(inline="always")
def _rough_exp(x):
    """Return exp x to a relative error of 6e-5, for x between -700 and 700."""
    whole = np.floor(x * 1.4426950408889634)
    r = x - whole * 0.6931471805599453 - 0.34657359027997264
    power = np.int64((np.int64(np.int32(whole)) + np.int64(1023)) << np.int64(52)).view(np.float64)
    return power * 1.4142135623730951 * (1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r / 24.0))))


@njit(inline="always")
def _lambert(b):
    """Return w and log w with ``w + log w = b`` (w is Lambert's W of e^b), for b from -700 to 1e150."""
    large = b > 1.0
    log_b = _rough_log(max(b, 1.0))
    t = _rough_exp(min(b, 1.0))
    over = log_b if large else t * (1.0 + t * (4.0 / 3.0))
    under = b if large else 1.0 + t * (7.0 / 3.0 + t * (5.0 / 6.0))
    w = (b - log_b if large else 0.0) + over / under
    # Fritsch, Shafer and Crowley (1973): the error falls to its fourth power, so that twice is enough.
    q = b - w - _rough_log(w)
    t = 2.0 * (1.0 + w) * (1.0 + w + q * (2.0 / 3.0))
    w *= 1.0 + q * (t - q) / ((1.0 + w) * (t - 2.0 * q))
    log_w = _log(w)
    q = b - w - log_w
    t = 2.0 * (1.0 + w) * (1.0 + w + q * (2.0 / 3.0))
    e = q * (t - q) / ((1.0 + w) * (t - 2.0 * q))
    return w * (1.0 + e), log_w + e * (1.0 - 0.5 * e)


@threaded(fastmath=LOOSE)
def entropic(y, weight, log_ratio, step, z):
    """Solve ``z + k (log(z / r) + 1) = y`` with ``k = step * weight``; ``log_ratio`` is ``log(weight / r)``.

    Fill z.  Return ``sum z log(z / r)`` and its derivative with respect to the step.
    """
    log_step = np.log(step)
    total, slope = 0.0, 0.0
    for i in prange(y.size):
        k = step * weight[i]
        log_k = log_step + log_ratio[i]
        b = y[i] / k - 1.0 - log_k
        w, log_w = _lambert(min(max(b, -700.0), 1e150))
        some = b > -700.0
        logarithm = log_w + log_k if some else 0.0
        w = w if some else 0.0
        z[i] = k * w
        total += k * w * logarithm
        slope -= weight[i] * (logarithm + 1.0) ** 2 * w / (1.0 + w)
    return total, slope


@threaded(fastmath=LOOSE)
def entropic_start(y, weight, log_ratio, z):
    """Do what :func:`entropic` does in the limit of small steps: fill z with the nearest nonnegative entries."""
    total, slope = 0.0, 0.0
    for i in prange(y.size):
        some = (y[i] > 1e-300) & (log_ratio[i] < np.inf)
        x = y[i] if some else 1.0
        logarithm = _log(x) + log_ratio[i] - _log(weight[i]) if some else 0.0
        z[i] = y[i] if some else 0.0
        total += z[i] * logarithm
        slope -= weight[i] * (logarithm + 1.0) ** 2 if some else 0.0
    return total, slope


@threaded()
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
            if q == 2.0:  # p is 3 or 1.5
                x = 2.0 * o[i] / (beta + np.sqrt(beta * beta + 4.0 * alpha * o[i]))
                raised = x * x
            else:
                x = min((o[i] / alpha) ** (1.0 / q), o[i] / beta)
                for _ in range(60):
                    raised = x**q
                    change = (alpha * raised + beta * x - o[i]) * x / (alpha * q * raised + beta * x)
                    x -= change
                    if not change > 1e-8 * x:  # Newton's next error is about the square of this
                        break
                raised = x**q
            if raised > 0.0:
                size, raised = (x, raised) if p >= 2.0 else (raised, x)  # raised is size^(p - 1)
                t[i] = size
                total += raised * size
                slope -= p * raised * raised / (1.0 + multiplier * (p - 1.0) * raised / size)
    return total, slope


@threaded(fastmath=LOOSE)
def weighted(x, w, m):
    """Return ``sum w z^2`` for ``z = x / (1 + m w)``, and its derivative with respect to m."""
    total, slope = 0.0, 0.0
    for i in prange(x.size):
        share = 1.0 / (1.0 + m * w[i])
        square = w[i] * x[i] * x[i] * share * share
        total += square
        slope -= 2.0 * w[i] * share * square
    return total, slope
