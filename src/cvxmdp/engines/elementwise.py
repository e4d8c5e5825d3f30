"""Compiled loops over pairs: each reads its arrays once and makes none but the one it is for; threads share them."""

from __future__ import annotations

import numpy as np

from cvxmdp import _elementwise, threads
from cvxmdp.mdp import Array


def reflected(d: Array, w: Array) -> Array:
    """``2d - w``, a row for each row of w."""
    out = np.empty(w.shape)
    _elementwise.reflected(d, w, out, threads.allowed())
    return out


def relaxed(w: Array, d: Array, z: Array, omega: float, anchor: Array, share: float) -> Array:
    """``w + omega (z - d)``, pulled back to the anchor by a share of the way."""
    out = np.empty(w.shape)
    _elementwise.relaxed(w, d, z, omega, anchor, share, out, threads.allowed())
    return out


def sizes(d: Array, z: Array, before: Array) -> tuple[float, float, float, float, float]:
    """Of ``z - d`` the sum of absolute values, the norm and the largest; of ``d - before`` the first and the last."""
    return _elementwise.sizes(d, z, before, threads.allowed())


def pulled(w: Array, sigma: float, c: Array, phi: Array) -> Array:
    """``w / sigma - c + phi``."""
    out = np.empty(w.size)
    _elementwise.pulled(w, sigma, c, phi, out, threads.allowed())
    return out


def part(a: Array, w: Array, sigma: float) -> Array:
    """Return d and turn ``a = c + M V`` into phi: ``a - w / sigma`` is their difference ``phi - d / sigma``."""
    d = np.empty(a.size)
    _elementwise.part(a, w, sigma, d, threads.allowed())
    return d


def along(a: Array, change: Array, length: float, w: Array, sigma: float, d: Array) -> float:
    """Fill in the d of ``a + length change - w / sigma``; return its square."""
    return _elementwise.along(a, change, length, w, sigma, d, threads.allowed())


def advance(change: Array, length: float, a: Array) -> None:
    """Turn the change into ``a + length change``."""
    _elementwise.advance(change, length, a, threads.allowed())
