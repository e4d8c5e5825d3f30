"""Compiled loops over pairs: each reads its arrays once and makes none but the one it is for; threads share them."""

from __future__ import annotations

import numpy as np

from cvxmdp import _elementwise, threads
from cvxmdp.mdp import Array
from cvxmdp.ranks.scattered import over_ranks, part_of


def reflected(d: Array, w: Array) -> Array:
    """``2d - w``, a row for each row of w."""
    out = np.empty_like(w)
    _elementwise.reflected(part_of(d), part_of(w), part_of(out), threads.allowed())
    return out


def relaxed(w: Array, d: Array, z: Array, omega: float, anchor: Array, share: float) -> Array:
    """``w + omega (z - d)``, pulled back to the anchor by a share of the way."""
    out = np.empty_like(w)
    parts = (part_of(w), part_of(d), part_of(z), omega, part_of(anchor), share, part_of(out))
    _elementwise.relaxed(*parts, threads.allowed())
    return out


def sizes(d: Array, z: Array, before: Array) -> tuple[float, float, float, float, float]:
    """Of ``z - d`` the sum of absolute values, the norm and the largest; of ``d - before`` the first and the last."""
    total, norm, largest, moved, farthest = _elementwise.sizes(*map(part_of, (d, z, before)), threads.allowed())
    longest, largest, farthest = over_ranks(d, "largest", np.array([norm, largest, farthest]))
    share = norm / longest if longest > 0 else 0.0
    total, square, moved = over_ranks(d, "total", np.array([total, share**2, moved]))
    return float(total), float(longest * np.sqrt(square)), float(largest), float(moved), float(farthest)


def pulled(w: Array, sigma: float, c: Array, phi: Array) -> Array:
    """``w / sigma - c + phi``."""
    out = np.empty_like(w)
    _elementwise.pulled(part_of(w), sigma, part_of(c), part_of(phi), part_of(out), threads.allowed())
    return out


def part(a: Array, w: Array, sigma: float) -> Array:
    """Return d and turn ``a = c + M V`` into phi: ``a - w / sigma`` is their difference ``phi - d / sigma``."""
    d = np.empty_like(a)
    _elementwise.part(part_of(a), part_of(w), sigma, part_of(d), threads.allowed())
    return d


def along(a: Array, change: Array, length: float, w: Array, sigma: float, d: Array) -> float:
    """Fill in the d of ``a + length change - w / sigma``; return its square."""
    own = (part_of(a), part_of(change), length, part_of(w), sigma, part_of(d))
    return float(over_ranks(a, "total", _elementwise.along(*own, threads.allowed())))


def advance(change: Array, length: float, a: Array) -> None:
    """Turn the change into ``a + length change``."""
    _elementwise.advance(part_of(change), length, part_of(a), threads.allowed())
