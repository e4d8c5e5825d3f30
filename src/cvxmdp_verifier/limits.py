"""The limits of a problem, one small class for each kind: what they limit, how it is judged, and what proves what.

Everything that could be claimed comes with its error.  ``level`` is what the limit limits and ``size`` what its
rounding is measured by; ``excess`` is by how much it is too large (below zero inside), one number for each row.  A
dual array gives a :class:`Normal`: a vector u and an upper bound of ``u'x`` over all x that obey.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cvxmdp_verifier.errors import Refused, shown
from cvxmdp_verifier.extended import (
    EPS,
    EPS64,
    GROWN,
    LD,
    TINY,
    Close,
    Matrix,
    Real,
    dot,
    dual_norm,
    extended,
    norm,
    root,
    scaled,
    total,
)
from cvxmdp_verifier.fields import Arrays, has_keys, integer, items, number, text
from cvxmdp_verifier.model import Model
from cvxmdp_verifier.policy import Point

SMALL = 1e-6
"""Limits of zero are judged against this share of what they limit."""

Project = Callable[[Any], Any]
Own = Project | tuple[Project, Callable[[Any], float]]
"""What is given of a user's own set: its projection, and a function in the user's units for what exceeds it."""


@dataclass(frozen=True)
class Normal:
    """What a dual array proves.

    Attributes
    ----------
    at : function
        Returns u for some pairs, with what rounding may have done to it.
    top : longdouble
        No x that obeys has a larger ``u'x``; rounding is in it.
    ease : Close
        By how much ``top`` grows where the limit is relaxed by one unit.
    relative_ease : Close
        The same in relative units.
    price : array
        What the solution must state as its price.
    rows : array of bool
        Which rows of the dual array are not zero.
    price_error : longdouble
        What a computation of the price may differ by.
    """

    at: Callable[[slice], Close]
    top: Real
    ease: Close
    relative_ease: Close
    price: Real
    rows: Real
    price_error: Real = 0.0

    @cached_property
    def u(self) -> Close:
        """The normal for all pairs."""
        return self.at(slice(None))

    @property
    def idle(self) -> bool:
        """Whether it says nothing."""
        return not np.any(self.u.value) and not np.any(self.u.error) and bool(self.top <= 0)


@dataclass(frozen=True)
class Limit:
    """What limits of every kind have.

    Attributes
    ----------
    name : str
    priority : int
    weight : float or None
        The relative unit, where the user gave one.
    model : Model
    """

    name: str
    priority: int
    weight: float | None
    model: Model

    @property
    def is_linear(self) -> bool:
        """Whether this is a limit on rows, which share one displacement."""
        return False

    @property
    def num_rows(self) -> int:
        """How many limits this is."""
        return 1

    def row_name(self, row: int | None) -> tuple[str, ...]:
        """How a row may be called in a list of limits."""
        return (self.name,)

    def level(self, point: Point) -> tuple[Close, Real]:
        """Return what is limited, one number for each row or a single one, and what its rounding is measured by."""
        raise NotImplementedError

    def excess(self, point: Point) -> Close:
        """Return by how much each row exceeds its limits; below zero inside."""
        raise NotImplementedError

    def against(self, point: Point) -> Real:
        """Return what an excess is divided by for the tolerance."""
        raise NotImplementedError

    def excess_size(self, point: Point) -> Real:
        """Return what the rounding of an excess is measured by."""
        raise NotImplementedError

    def relaxed(self, amount: Real) -> Limit:
        """Return the limit with ``amount`` more room."""
        raise NotImplementedError

    def normal(self, dual: Real) -> Normal:
        """Return what a dual array proves."""
        raise NotImplementedError

    def dual_size(self) -> int:
        """How long a dual array is."""
        raise NotImplementedError

    def words(self) -> str:
        """Say what the limit asks for."""
        raise NotImplementedError

    def level_words(self, level: Real) -> str:
        """Say what is reached, in the limit's own units."""
        return f"{float(np.ravel(level)[0]):.9g}"

    def multiple(self, point: Point) -> Real:
        """Return the largest excess, errors added, in relative units."""
        raise NotImplementedError

    def violation(self, point: Point) -> Close:
        """Return the largest excess, at least zero."""
        excess = self.excess(point)
        worst, high, low = (np.max(part, initial=0) for part in (excess.value, excess.high, excess.low))
        return Close(worst, LD(0) if np.isinf(worst) else max(high - worst, worst - low))

    def relative(self, point: Point, row: int | None = None) -> Real:
        """Return the largest excess, errors added, as the tolerance judges it."""
        shares = _shares(self.excess(point).high, self.against(point))
        return np.max(shares if row is None else shares[row], initial=0)


def _shares(excess: Real, size: Real) -> Real:
    """Return how many times ``size`` each excess is; anything but a number is infinitely much."""
    over = np.atleast_1d(np.maximum(excess, 0))
    size = np.broadcast_to(size, over.shape)
    shares = np.where(over <= 0, LD(0), LD(np.inf))
    some = (over > 0) & (size > 0)
    shares[some] = over[some] / size[some]
    return shares


def _multiple_of_box(level: Close, lower: Real, upper: Real, units: tuple[Real, Real]) -> Real:
    """Return the largest excess over either side in units of that side."""
    over = _shares(_sides(level, LD(-np.inf), upper).high, units[0])
    under = _shares(_sides(level, lower, LD(np.inf)).high, units[1])
    return max(np.max(over, initial=0), np.max(under, initial=0))


def _sides(level: Close, lower: Real, upper: Real) -> Close:
    """The worse excess over two limits, of which either may be infinite."""
    over, under = level.value - upper, lower - level.value
    bound = np.where(over >= under, upper, lower)
    more = np.where(np.isfinite(bound), 4 * EPS * np.abs(bound), 0) + 4 * EPS * np.abs(level.value)
    # Both sides have the same error; where neither is finite the excess is minus infinity.
    return Close(np.maximum(over, under), level.error + more)


def _exceeded(level: Close, lower: Real, upper: Real) -> Real:
    """Which of the two limits is the one that is nearer to being exceeded."""
    return np.where(level.value - upper >= lower - level.value, upper, lower)


def _top_of_box(m: Real, lower: Real, upper: Real) -> Real:
    """Return an upper bound of the largest ``m'y`` over a box."""
    up, down = m > 0, m < 0
    if np.any(np.isinf(upper[up])) or np.any(np.isinf(lower[down])):
        return LD(np.inf)
    return dot(np.concatenate((m[up], m[down])), np.concatenate((upper[up], lower[down]))).high


def _ease_of_box(m: Real, up: Real, down: Real) -> Close:
    return dot(np.concatenate((np.maximum(m, 0), np.maximum(-m, 0))), np.concatenate((up, down)))


def _proof_of_box(m: Real, box: Linear | Bounds) -> tuple[Real, Close, Close, Real, Real]:
    """Return what a :class:`Normal` says besides its vector, of multipliers of limits on each entry."""
    eases = (_ease_of_box(m, *box.units(relative)) for relative in (False, True))
    return _top_of_box(m, box.lower, box.upper), *eases, -m, m != 0


@dataclass(frozen=True)
class Linear(Limit):
    """``lower <= rows d <= upper``."""

    rows: Matrix
    lower: Real
    upper: Real
    row_names: list[str] | None

    @property
    def is_linear(self) -> bool:
        return True

    @property
    def num_rows(self) -> int:
        return int(self.upper.size)

    def row_name(self, row: int | None) -> tuple[str, ...]:
        if row is None:
            return (self.name,)
        if self.row_names is not None:
            return (self.row_names[row],)
        return (*((self.name,) if self.num_rows == 1 else ()), f"{self.name}, row {row}")

    def units(self, relative: bool) -> tuple[Real, Real]:
        """What each row's upper and lower limit are measured by."""
        ones = np.ones(self.num_rows, dtype=LD)
        if not relative:
            return ones, ones
        if self.weight is not None:
            return ones * self.weight, ones * self.weight
        largest = self.rows.largest()
        largest = np.where(largest > 0, largest, 1)
        sides = []
        for side in (self.upper, self.lower):
            size = np.where(np.isfinite(side), np.abs(side), 1)
            sides.append(np.where(size > 0, size, largest))
        return sides[0], sides[1]

    def multiple(self, point: Point) -> Real:
        return _multiple_of_box(self.level(point)[0], self.lower, self.upper, self.units(True))

    def level(self, point: Point) -> tuple[Close, Real]:
        value = self.rows.times(point.d)
        off = self.rows.sizes(point.delta) + self.rows.largest(point.active) * point.t
        size = self.rows.sizes(np.abs(point.d))
        # What the error of d leaves, and what adding up a row took.
        return Close(value.value, (value.error + off) * GROWN), size

    def excess(self, point: Point) -> Close:
        return _sides(self.level(point)[0], self.lower, self.upper)

    def excess_size(self, point: Point) -> Real:
        level, size = self.level(point)
        limit = _exceeded(level, self.lower, self.upper)
        return size + np.where(np.isfinite(limit), np.abs(limit), 0)

    def against(self, point: Point) -> Real:
        level, size = self.level(point)
        limit = _exceeded(level, self.lower, self.upper)
        least = np.where(limit == 0, SMALL * self.rows.largest(), 0)
        return np.maximum(np.maximum(np.where(np.isfinite(limit), np.abs(limit), 0), size), least)

    def relaxed(self, amount: Real) -> Linear:
        return replace(self, lower=self.lower - amount, upper=self.upper + amount)

    def normal(self, dual: Real) -> Normal:
        return Normal(self.rows.back_by_columns(dual), *_proof_of_box(dual, self))

    def dual_size(self) -> int:
        return self.num_rows

    def words(self) -> str:
        if self.num_rows > 1:
            return f"{self.num_rows} rows are within their limits"
        low, high = float(self.lower[0]), float(self.upper[0])
        if low == high:
            return f"equal to {low:.9g}"
        sides = [f"at least {low:.9g}"] * (low > -np.inf) + [f"at most {high:.9g}"] * (high < np.inf)
        return " and ".join(sides) or "not limited"

    def level_words(self, level: Real) -> str:
        if self.num_rows == 1:
            return super().level_words(level)
        return f"from {float(np.min(level)):.9g} to {float(np.max(level)):.9g}"


@dataclass(frozen=True)
class Bounds(Limit):
    """``lower <= d <= upper``."""

    lower: Real
    upper: Real

    @property
    def num_rows(self) -> int:
        return int(self.upper.size)

    def row_name(self, row: int | None) -> tuple[str, ...]:
        return (self.name,) if row is None else (f"{self.name}, row {row}", self.name)

    def units(self, relative: bool) -> tuple[Real, Real]:
        """What each pair's upper and lower limit are measured by."""
        ones = np.ones(self.upper.size, dtype=LD)
        if not relative:
            return ones, ones
        if self.weight is not None:
            return ones * self.weight, ones * self.weight
        up, down = (np.where(np.isfinite(side), np.abs(side), 0) for side in (self.upper, self.lower))
        largest = max(np.max(up), np.max(down)) or LD(1) / self.upper.size
        return np.where(up > 0, up, largest), np.where(down > 0, down, largest)

    def multiple(self, point: Point) -> Real:
        return _multiple_of_box(self.level(point)[0], self.lower, self.upper, self.units(True))

    def level(self, point: Point) -> tuple[Close, Real]:
        return Close(point.d, (point.delta + point.active * point.t) * GROWN), np.abs(point.d)

    def excess(self, point: Point) -> Close:
        return _sides(self.level(point)[0], self.lower, self.upper)

    def excess_size(self, point: Point) -> Real:
        level, size = self.level(point)
        limit = _exceeded(level, self.lower, self.upper)
        return size + np.where(np.isfinite(limit), np.abs(limit), 0)

    def against(self, point: Point) -> Real:
        limit = _exceeded(self.level(point)[0], self.lower, self.upper)
        least = np.where(limit == 0, SMALL, 0)
        return np.maximum(np.maximum(np.where(np.isfinite(limit), np.abs(limit), 0), np.abs(point.d)), least)

    def relaxed(self, amount: Real) -> Bounds:
        return replace(self, lower=self.lower - amount, upper=self.upper + amount)

    def normal(self, dual: Real) -> Normal:
        return Normal(Close(dual, LD(0) * dual).part, *_proof_of_box(dual, self))

    def dual_size(self) -> int:
        return int(self.upper.size)

    def words(self) -> str:
        return "every pair is within its limits"

    def level_words(self, level: Real) -> str:
        return f"from {float(np.min(level)):.9g} to {float(np.max(level)):.9g}"


class _Single(Limit):
    """A limit of one number: what is limited, less ``limit``."""

    @property
    def limit(self) -> Real:
        raise NotImplementedError

    def size(self) -> Real:
        """What the limit is measured by where the user gave no weight."""
        raise NotImplementedError

    def unit(self) -> Real:
        """What the limit is measured by: its weight, or its size."""
        return LD(self.weight) if self.weight is not None else self.size()

    def multiple(self, point: Point) -> Real:
        return np.max(_shares(self.excess(point).high, self.unit()), initial=0)

    def limited(self, point: Point) -> Close:
        """Return the number that must be at most ``limit``."""
        return self.level(point)[0]

    def excess(self, point: Point) -> Close:
        value, error = self.limited(point)
        return Close(np.atleast_1d(value - self.limit), np.atleast_1d(error + 2 * EPS * abs(self.limit)))

    def excess_size(self, point: Point) -> Real:
        return np.atleast_1d(self.level(point)[1] + abs(self.limit))

    def _normal(self, u: Close, top: Real, multiplier: Close, price: Real | None = None) -> Normal:
        """The ease of a single limit is a multiplier, and its price is its negative."""
        price = -multiplier.value if price is None else price
        return Normal(
            u.part, top, multiplier, scaled(multiplier, self.unit()), price, np.array([bool(np.any(u.value))])
        )


@dataclass(frozen=True)
class Ball(_Single):
    """``|d - center|_p <= radius``."""

    center: Real
    weights: Real | None
    p: float
    radius: Real

    @property
    def limit(self) -> Real:
        return self.radius

    def size(self) -> Real:
        return self.radius or norm(self.center, self.p, self.weights).value or LD(1)

    def level(self, point: Point) -> tuple[Close, Real]:
        value = norm(point.d - self.center, self.p, self.weights)
        size = norm(np.abs(point.d) + np.abs(self.center), self.p, self.weights).value
        change = point.delta + 4 * EPS * (np.abs(point.d) + np.abs(self.center))
        most = LD(1) if self.weights is None else np.sqrt(np.max(self.weights, initial=0))
        off = value.error + norm(change, self.p, self.weights).high + most * point.t
        return Close(value.value, off * GROWN), size

    def against(self, point: Point) -> Real:
        return max(self.radius, SMALL * norm(self.center, self.p, self.weights).value)

    def relaxed(self, amount: Real) -> Ball:
        return replace(self, radius=self.radius + amount)

    def normal(self, dual: Real) -> Normal:
        length = dual_norm(dual, self.p, self.weights)
        top = dot(dual, self.center).high
        if self.radius > 0:  # also where the length is infinite
            top = top + scaled(Close(length.high, LD(0)), self.radius).high
            top += 2 * EPS * abs(top)
        elif np.isinf(length.value):
            top = LD(np.inf)
        return self._normal(Close(dual, LD(0) * dual), top, length)

    def dual_size(self) -> int:
        return int(self.center.size)

    def words(self) -> str:
        kind = "weighted 2-norm" if self.weights is not None else f"{self.p:g}-norm"
        return f"within {float(self.radius):.9g} of its center in the {kind}"


def _logarithms(x: Real, r: Real) -> Real:
    """Return ``x log(x / r)`` where both are positive, zero where x is."""
    out = np.zeros(x.shape, dtype=LD)
    some = (x > 0) & (r > 0)
    out[some] = x[some] * (np.log(x[some]) - np.log(r[some]))
    return out


def relative_entropy(x: Real, off: Real, rest: Real, r: Real) -> tuple[Close, Real]:
    """Return ``sum x log(x / r)`` where r is positive, for x known up to an error, and the size of its terms."""
    x, off, r = x[r > 0], off[r > 0], r[r > 0]
    x = np.maximum(x, 0)  # the truth is not negative, so that this only comes nearer
    log_x, log_r = np.zeros(x.shape, dtype=LD), np.log(r)
    log_x[x > 0] = np.log(x[x > 0])
    size = x * (np.abs(log_x) + np.abs(log_r))
    value = total(_logarithms(x, r))
    low, high = np.maximum(x - off, 0), x + off
    # Where x cannot come near zero the slope bounds the change; else the ends and the least value do.
    slope = np.zeros(x.shape, dtype=LD)
    away = 2 * low > x
    slope[away] = np.maximum(np.abs(np.log(low[away]) - log_r[away]), np.abs(np.log(high[away]) - log_r[away])) + 1
    change = off * slope
    near = ~away & (off > 0)
    if near.any():
        here, rn = _logarithms(x[near], r[near]), r[near]
        ends = [_logarithms(e, rn) for e in (low[near], high[near], np.clip(rn / np.exp(LD(1)), low[near], high[near]))]
        most = np.max([np.abs(e - here) for e in ends], axis=0)
        change[near] = most + 8 * EPS * np.max(np.abs([*ends, here]), axis=0) + off[near] * EPS
    error = value.error + 8 * EPS * total(size).value + total(change).value
    if rest > 0:
        if rest > 0.25:
            error = LD(np.inf)
        else:
            # |y log y - x log x| <= -t log t for t = |y - x| <= 1/4 and x, y up to one, most in sum for even shares.
            error = error + rest * (np.log(max(x.size, 1) / rest) + np.max(np.abs(log_r), initial=0) + 1)
    return Close(value.value, error * GROWN), total(size).value


@dataclass(frozen=True)
class Entropic(_Single):
    """``sum x log(x / reference) <= bound`` for the occupancies of pairs or the visits of states."""

    reference: Real
    of: str
    bound: Real
    sign: int

    @property
    def limit(self) -> Real:
        return self.bound

    def size(self) -> Real:
        return abs(self.bound) or LD(1)

    def _entries(self, point: Point) -> tuple[Real, Real]:
        return (point.d, point.delta) if self.of == "pairs" else (point.x, point.w)

    def _divergence(self, point: Point) -> tuple[Close, Real]:
        x, off = self._entries(point)
        value, size = relative_entropy(x, off, point.t, self.reference)
        forbidden = self.reference == 0
        # Sums of float64 may leave a hair below zero, which is no visit; more than that is outside.
        outside = np.any(x < -1e-9 * np.max(np.abs(x), initial=0))
        if outside or np.any(x[forbidden] > 0):
            return Close(LD(np.inf), LD(0)), size
        if forbidden.any():
            maybe = point.reached() if self.of == "states" else point.reached()[self.model.state] & point.active
            if np.any(maybe & forbidden & ((off > 0) | (point.t > 0))):
                return Close(value.value, LD(np.inf)), size
        return value, size

    def level(self, point: Point) -> tuple[Close, Real]:
        value, size = self._divergence(point)
        # Rounding an entry by eps changes x log x by eps x, also where that is zero.
        return Close(-self.sign * value.value, value.error), size + total(np.abs(self._entries(point)[0])).value

    def limited(self, point: Point) -> Close:
        return self._divergence(point)[0]

    def against(self, point: Point) -> Real:
        return max(abs(self.bound), LD(SMALL))

    def relaxed(self, amount: Real) -> Entropic:
        return replace(self, bound=self.bound + amount)

    def normal(self, dual: Real) -> Normal:
        u, m = dual[:-1], dual[-1]
        there = self.reference > 0
        if m > 0:
            total_exp = exponentials(u[there], m, self.reference[there])
            top = scaled(Close(self.bound + total_exp.value, total_exp.error + 2 * EPS * abs(self.bound)), m, 4).high
        else:
            top = LD(0) if np.all(u[there] <= 0) else LD(np.inf)
        spread = u if self.of == "pairs" else u[self.model.state]
        multiplier = Close(np.maximum(m, 0), LD(0))
        return self._normal(Close(spread, LD(0) * spread), top, multiplier, self.sign * m)

    def dual_size(self) -> int:
        return int(self.reference.size) + 1

    def words(self) -> str:
        if self.sign > 0:
            if np.all(self.reference == 1):
                return f"the entropy of {self.of} is at least {float(-self.bound):.9g}"
            return f"the entropy of {self.of} against its reference is at least {float(-self.bound):.9g}"
        return f"the relative entropy of {self.of} to its reference is at most {float(self.bound):.9g}"


def exponentials(u: Real, m: Real, r: Real) -> Close:
    """Return ``sum r exp(u / m - 1)``; an exponent's rounding counts as often as the exponent is large."""
    z = u / m - 1
    terms = r * np.exp(z)
    if not np.all(np.isfinite(terms)):
        return Close(LD(np.inf), LD(0))
    value = total(terms)
    return Close(value.value, (value.error + total(terms * (4 * np.abs(z) + 16) * EPS + TINY).value) * GROWN)


@dataclass(frozen=True)
class Ellipsoid(_Single):
    """``cost'd + sqrt(d'Qd) <= at_most``.

    A matrix that rounding has left with tiny negative eigenvalues stands for a semidefinite one within ``away`` of it
    in the spectral norm; that is counted as an error of the matrix.  Where ``factors``, F', is given, Q is ``F F'``.
    """

    cost: Real
    matrix: Matrix | Real
    diagonal: Real
    largest: Real
    away: Real
    at_most: Real
    factors: Matrix | None = None

    @property
    def limit(self) -> Real:
        return self.at_most

    def size(self) -> Real:
        return abs(self.at_most) or self._scale() or LD(1)

    def _scale(self) -> Real:
        """What the left side can be at most, up to a factor."""
        return np.max(np.abs(self.cost)) + np.sqrt(self.largest)

    def _times(self, y: Real) -> Close:
        """Return ``Q y`` for the symmetric part of the matrix."""
        if self.factors is not None:
            return self.factors.back(*self.factors.times(y))
        if not isinstance(self.matrix, Matrix):  # which is semidefinite whatever the rounding
            value = self.diagonal * y
            return Close(value, 2 * EPS * np.abs(value) + ((self.diagonal != 0) & (y != 0)) * TINY)
        one, two = self.matrix.times(y), self.matrix.back(y)
        value = (one.value + two.value) / 2
        error = one.error + two.error + 4 * EPS * (np.abs(one.value) + np.abs(two.value))
        return Close(value, (error + self.away * norm(y, 2).high) * GROWN)

    def _length(self, y: Real, image: Close) -> Close:
        """Return ``sqrt(y'Qy)``, which is ``|F'y|``."""
        if self.factors is None:
            return root(dot(y, *image))
        found = self.factors.times(y)
        length = norm(found.value, 2)
        return Close(length.value, (length.error + norm(found.error, 2).high) * GROWN)

    def level(self, point: Point) -> tuple[Close, Real]:
        spread = self._length(point.d, self._times(point.d))
        cost = dot(self.cost, point.d)
        reach = np.abs(self.cost) + np.sqrt(self.diagonal)
        error = cost.error + spread.error + point.off(reach) + 4 * EPS * (abs(cost.value) + spread.value)
        size = dot(np.abs(self.cost), np.abs(point.d)).value + spread.value
        return Close(cost.value + spread.value, error * GROWN), size

    def against(self, point: Point) -> Real:
        least = SMALL * self._scale() if self.at_most == 0 else LD(0)
        return max(abs(self.at_most), self.level(point)[1], least)

    def relaxed(self, amount: Real) -> Ellipsoid:
        return replace(self, at_most=self.at_most + amount)

    def normal(self, dual: Real) -> Normal:
        # z'Qd <= sqrt(z'Qz) sqrt(d'Qd) for every z, so any multiplier that is not below sqrt(z'Qz) will do.
        m, y = dual[0], dual[1:]
        image = self._times(y)
        length = self._length(y, image)
        multiplier = max(m, length.high)
        value = multiplier * self.cost + image.value
        error = image.error + 4 * EPS * (np.abs(multiplier * self.cost) + np.abs(image.value))
        top = scaled(Close(self.at_most, LD(0)), multiplier).high
        proof = self._normal(Close(value, error * GROWN), top, Close(multiplier, LD(0)))
        return replace(proof, price_error=2 * (multiplier - max(m, length.value)))

    def dual_size(self) -> int:
        return int(self.cost.size) + 1

    def words(self) -> str:
        return f"the cost, for every error in its ellipsoid, is at most {float(self.at_most):.9g}"


@dataclass(frozen=True)
class Custom(_Single):
    """A user's own set, known by its projection; relaxed, it holds what is within ``room`` of it.

    ``measure``, if given, is the user's own function of a point for how far it is from obeying.
    """

    project: Project
    room: Real
    measure: Callable[[Any], float] | None = None

    @property
    def limit(self) -> Real:
        return self.room

    def _nearest(self, point: Real) -> Real:
        given = np.asarray(point, dtype=np.float64)
        found = np.asarray(self.project(given.copy()), dtype=np.float64)
        if found.shape != given.shape or not np.all(np.isfinite(found)):
            raise Refused(f"the projection given for the limit {shown(self.name)} does not return a finite point")
        return extended(found)

    def size(self) -> Real:
        return 1 / np.sqrt(LD(self.model.num_pairs))

    def level(self, point: Point) -> tuple[Close, Real]:
        length = norm(point.d, 2).value
        away = norm(point.d - self._nearest(point.d), 2)
        # A projection is a float64 computation, as exact as its points are long.
        off = away.error + norm(point.delta, 2).high + point.t + 4 * EPS64 * length
        return Close(away.value, off * GROWN), length

    def against(self, point: Point) -> Real:
        return norm(point.d, 2).value

    def relaxed(self, amount: Real) -> Custom:
        return replace(self, room=self.room + amount)

    def normal(self, dual: Real) -> Normal:
        z = self._nearest(dual)
        u = dual - z
        return self._normal(Close(u, EPS * np.abs(u)), dot(u, z).high, norm(u, 2))

    def dual_size(self) -> int:
        return self.model.num_pairs

    def words(self) -> str:
        return "in the user's own set, as far as the projection given for it is exact"


COMMON = ("kind", "name", "priority", "weight")


def read_limit(model: Model, entry: Any, arrays: Arrays, i: int, sets: Mapping[str, Own]) -> Limit:
    """Read limit ``i`` of a solution."""
    L = model.num_pairs
    if not isinstance(entry, dict) or "kind" not in entry:
        raise Refused(f"limit {i} of the solution has no kind")
    name = text(entry.get("name"), f"the name of limit {i}")
    what = f"the limit {shown(name)}"
    keys = {
        "linear": ("row_names",), "bounds": (), "ball": ("p", "radius"), "entropic": ("bound", "of", "sign"),
        "ellipsoid": ("at_most",), "custom": (),
    }  # fmt: skip
    kind = text(entry["kind"], f"the kind of {what}")
    if kind not in keys:
        raise Refused(f"{what} is of a kind that is not known: {shown(kind)!r}")
    has_keys(entry, (*COMMON, *keys[kind]), what, ("total",) if kind == "linear" else ())
    if "total" in entry:  # only for reading: what a unit per step is in an episode
        total = number(entry["total"], f"the total of {what}")
        if not abs(total * (1 - model.discount) - 1) <= 1e-9:
            raise Refused(f"the total of {what} is not what a unit per step is in an episode")
    weight = None if entry["weight"] is None else number(entry["weight"], f"the weight of {what}")
    if weight is not None and weight <= 0:
        raise Refused(f"the weight of {what} is not positive")
    common = (name, integer(entry["priority"], f"the priority of {what}"), weight, model)

    def array(field: str, size: int = L, **more: Any) -> Real:
        return extended(arrays.floats(f"limit:{i}:{field}", (size,), **more))

    if kind == "linear":
        rows = arrays.matrix(f"limit:{i}:rows", L)
        n = rows.shape[0]
        if n == 0:
            raise Refused(f"{what} has no rows")
        row_names = entry["row_names"]
        if row_names is not None and len([text(r, f"a row of {what}") for r in items(row_names, "row_names")]) != n:
            raise Refused(f"{what} has {n} rows and names for {len(row_names)}")
        lower, upper = _box(array("lower", n, infinite=True), array("upper", n, infinite=True), what)
        return Linear(*common, rows, lower, upper, row_names)
    if kind == "bounds":
        return Bounds(*common, *_box(array("lower", infinite=True), array("upper", infinite=True), what))
    if kind == "ball":
        weights = array("weights", least=0.0) if f"limit:{i}:weights" in arrays else None
        p = number(entry["p"], f"the norm of {what}", infinite=True)
        radius = number(entry["radius"], f"the radius of {what}")
        if p < 1 or radius < 0 or (weights is not None and p != 2):
            raise Refused(f"the norm or the radius of {what} is not one")
        return Ball(*common, array("center"), weights, p, LD(radius))
    if kind == "entropic":
        size = _size_of(model, entry["of"], what)
        sign = integer(entry["sign"], f"the sign of {what}")
        if sign not in (1, -1):
            raise Refused(f"the sign of {what} is neither 1 nor -1")
        bound = number(entry["bound"], f"the bound of {what}")
        return Entropic(*common, array("reference", size, least=0.0), entry["of"], LD(bound), sign)
    if kind == "ellipsoid":
        at_most = LD(number(entry["at_most"], f"the limit of {what}"))
        key = f"limit:{i}:matrix"
        if f"limit:{i}:factors" in arrays:
            F = arrays.matrix(f"limit:{i}:factors", L)
            columns = np.stack([F.row(k) for k in range(F.shape[0])])
            diagonal = np.sum(extended(columns) ** 2, axis=0) * GROWN
            largest = LD(np.linalg.norm(columns, 2)) ** 2
            return Ellipsoid(*common, array("cost"), diagonal, diagonal, largest, LD(0), at_most, F)
        if key in arrays and arrays.dims(key) == 1:
            diagonal = array("matrix", least=0.0)
            return Ellipsoid(*common, array("cost"), diagonal, diagonal, np.max(diagonal), LD(0), at_most)
        Q = arrays.floats(key, (L, L))
        size = np.max(np.abs(Q))
        if np.max(np.abs(Q - Q.T)) > 1e-9 * size:
            raise Refused(f"the matrix of {what} is not symmetric")
        largest, away = _semidefinite(Q)
        if not away <= 1e-9 * size * L:
            raise Refused(f"the matrix of {what} has a negative eigenvalue: its root is not defined")
        diagonal = np.maximum(extended(np.diagonal(Q)), 0) + away
        return Ellipsoid(*common, array("cost"), Matrix(Q), diagonal, largest, away, at_most)
    if name not in sets:
        raise Refused(f"{what} is the user's own set, which is not in the file: give its projection in sets")
    given = sets[name]
    project, measure = given if isinstance(given, tuple) else (given, None)
    return Custom(*common, project, LD(0), measure)


def _semidefinite(Q: Real) -> tuple[Real, Real]:
    """Return the largest eigenvalue, roughly, and a proven distance to some matrix without negative ones."""
    n = Q.shape[0]
    middle = Q / 2 + Q.T / 2
    asymmetric = LD(0) if np.array_equal(Q, Q.T) else 4 * EPS64 * norm(extended(Q).ravel(), 2).high
    values, vectors = np.linalg.eigh(middle)
    largest = LD(max(values[-1], 0.0))
    # Where Cholesky's method succeeds on a matrix lowered by its own backward error, the matrix is positive definite
    # (Rump 2006).
    lowered = middle - np.eye(n) * (8 * (n + 2) * EPS64 * float(np.sum(np.abs(np.diagonal(Q)))))
    try:
        np.linalg.cholesky(lowered)
    except np.linalg.LinAlgError:
        # A matrix times its transpose has no negative eigenvalue; what is left is bounded by its entries.
        factor = extended(vectors * np.sqrt(np.maximum(values, 0.0)))
        rest = np.abs(extended(middle) - factor @ factor.T)
        rounding = (n + 8) * EPS * (np.abs(factor) @ np.abs(factor).T)
        return largest, norm((rest + rounding).ravel(), 2).high + asymmetric
    return largest, asymmetric


def _box(lower: Real, upper: Real, what: str) -> tuple[Real, Real]:
    if np.any(np.isposinf(lower)) or np.any(np.isneginf(upper)):
        raise Refused(f"{what} has a lower limit of infinity or an upper limit of minus infinity")
    return lower, upper


def _size_of(model: Model, of: Any, what: str) -> int:
    if of not in ("pairs", "states"):
        raise Refused(f"{what} is neither of pairs nor of states")
    return model.num_pairs if of == "pairs" else model.num_states
