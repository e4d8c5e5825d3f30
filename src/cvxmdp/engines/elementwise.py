"""Compiled loops over pairs: each reads its arrays once and makes none but the one it is for."""

from __future__ import annotations

import numpy as np
from numba import prange

from cvxmdp.compiled import njit, threaded

FAST = {"reassoc", "contract", "nsz"}


@threaded(fastmath=FAST)
def reflected(d, w):
    """``2d - w``, a row for each row of w."""
    out = np.empty_like(w)
    for i in prange(d.size):
        for b in range(w.shape[0]):
            out[b, i] = 2.0 * d[i] - w[b, i]
    return out


@threaded(fastmath=FAST)
def relaxed(w, d, z, omega, anchor, share):
    """``w + omega (z - d)``, pulled back to the anchor by a share of the way."""
    out = np.empty_like(w)
    for i in prange(d.size):
        for b in range(w.shape[0]):
            new = w[b, i] + omega * (z[b, i] - d[i])
            out[b, i] = new + share * (anchor[b, i] - new)
    return out


@threaded(fastmath=FAST)
def sizes(d, z, before):
    """Of ``z - d`` the sum of absolute values, the norm and the largest; of ``d - before`` the first and the last."""
    total, square, largest, moved, farthest = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in prange(d.size):
        for b in range(z.shape[0]):
            drift = abs(z[b, i] - d[i])
            total += drift
            square += drift * drift
            largest = max(largest, drift)
        step = abs(d[i] - before[i])
        moved += step
        farthest = max(farthest, step)
    return total, np.sqrt(square), largest, moved, farthest


@threaded(fastmath=FAST)
def pulled(w, sigma, c, phi):
    """``w / sigma - c + phi``."""
    out = np.empty_like(w)
    for i in prange(w.size):
        out[i] = w[i] / sigma - c[i] + phi[i]
    return out


@threaded(fastmath=FAST)
def part(a, w, sigma):
    """Return d and turn ``a = c + M V`` into phi: ``a - w / sigma`` is their difference ``phi - d / sigma``."""
    d = np.empty_like(a)
    for i in prange(a.size):
        x = a[i] - w[i] / sigma
        a[i] = max(x, 0.0)
        d[i] = sigma * max(-x, 0.0)
    return d


@threaded(fastmath=FAST)
def along(a, change, length, w, sigma, d):
    """Fill in the d of ``a + length change - w / sigma``; return its square."""
    square = 0.0
    for i in prange(a.size):
        x = sigma * max(w[i] / sigma - a[i] - length * change[i], 0.0)
        d[i] = x
        square += x * x
    return square


@threaded(fastmath=FAST)
def advance(change, length, a):
    """Turn the change into ``a + length change``."""
    for i in prange(a.size):
        change[i] = a[i] + length * change[i]


@njit()
def longest(x, change, other, share):
    """Return the longest step along ``change + share other`` that leaves x positive; inf where there is none."""
    least = 0.0
    for i in range(x.size):
        ratio = (change[i] + share * other[i]) / x[i]
        if not ratio >= least:
            least = ratio
    return np.inf if least == 0.0 else -1.0 / least
