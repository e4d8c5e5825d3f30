"""Rigorous sums in extended precision: every result comes with a bound on what rounding may have done to it.

Numbers are ``np.longdouble``: 64 bits of mantissa on x86, 53 where the platform has nothing better, which makes every
allowance coarser and none wrong.  A sum of n products is off by at most ``n u / (1 - n u)`` times the sum of their
absolute values, in whatever order it is taken, where u is half of ``EPS``.  The allowance is ``(n + 8) EPS``, twice
as much, so that it also covers the rounding of the absolute values and a few operations more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Real = Any
"""A longdouble or an array of them: NumPy's stubs do not tell them apart in a way that helps here."""
Ints = npt.NDArray[np.int64]

LD = np.longdouble
EPS: Real = LD(np.finfo(LD).eps)
TINY: Real = LD(np.finfo(LD).smallest_normal)
"""What one operation may lose to underflow, also where subnormal numbers are flushed to zero."""
EPS64 = float(np.finfo(np.float64).eps)
GROWN: Real = LD(1) + LD(2) ** -10
"""Errors are computed with rounding too; growing them by a thousandth covers it."""
CHUNK = 2**18
"""Entries of a matrix that exist in extended precision at a time."""


class Close(NamedTuple):
    """A number or array, and a bound on its distance to the truth."""

    value: Real
    error: Real

    @property
    def low(self) -> Real:
        """A number that the truth is not below."""
        return np.where(np.isfinite(self.value), self.value - self._wide, self.value)[()]

    @property
    def high(self) -> Real:
        """A number that the truth is not above."""
        return np.where(np.isfinite(self.value), self.value + self._wide, self.value)[()]

    def part(self, entries: slice) -> Close:
        """Return some entries."""
        return Close(self.value[entries], self.error[entries])

    @property
    def _wide(self) -> Real:
        return self.error + 2 * EPS * (np.abs(self.value) + self.error)


def extended(array: Any) -> Real:
    """Return a copy in extended precision."""
    return np.asarray(array).astype(LD)


def lost(product: Real, a: Real, b: Real) -> Real | None:
    """Return which products of ``a`` and ``b`` underflow may have touched, or None for none of them."""
    small = np.abs(product) < TINY
    if not small.any():
        return None
    small &= (a != 0) & (b != 0)
    return small if small.any() else None


def total(values: Real) -> Close:
    """Add up an array.

    In blocks, so that the allowance grows with the root of the number of terms.
    """
    values = np.atleast_1d(values)
    return _together([_total(values[part]) for part in parts(values.size)])


def _total(values: Real) -> tuple[Close, Real]:
    """Return the sum of not too many numbers, and the sum of their sizes."""
    block = max(int(np.sqrt(values.size)), 1)
    starts = np.arange(0, values.size, block)
    value = np.sum(np.add.reduceat(values, starts))
    size = np.sum(np.add.reduceat(np.abs(values), starts))
    return Close(value, (block + starts.size + 8) * EPS * size), size


def _together(sums: Sequence[tuple[Close, Real]]) -> Close:
    """Add up sums of parts that are given with the sums of their sizes."""
    value = sum((one.value for one, _ in sums), LD(0))
    error = sum((one.error for one, _ in sums), LD(0))
    size = sum((size for _, size in sums), LD(0))
    return Close(value, error if len(sums) < 2 else error + (len(sums) + 8) * EPS * size)


def parts(size: int) -> Iterator[slice]:
    """Cut so many entries into parts that may exist in extended precision together."""
    return (slice(k, k + CHUNK) for k in range(0, size, CHUNK))


def dot(a: Real, b: Real, error: Real | None = None) -> Close:
    """Return ``a'b``; ``a`` is exact and ``b`` known up to an error."""
    a, b = np.broadcast_arrays(np.atleast_1d(a), np.atleast_1d(b))
    off = None if error is None else np.broadcast_to(error, a.shape)
    value, rounding = _together([_dot(a[part], b[part], None if off is None else off[part]) for part in parts(a.size)])
    return Close(value, rounding * GROWN)


def _dot(a: Real, b: Real, error: Real | None) -> tuple[Close, Real]:
    """Return the product of short vectors, and the sum of the sizes of what was added up."""
    product = a * b
    (value, rounding), size = _total(product)
    small = lost(product, a, b)
    if small is not None:
        rounding = rounding + np.count_nonzero(small) * TINY
    if error is not None:
        rounding = rounding + total(np.abs(a) * error).value
    return Close(value, rounding), size


def root(square: Close) -> Close:
    """Return the square root of something that is not negative."""
    middle = np.sqrt(np.maximum(square.value, 0))
    up = np.sqrt(np.maximum(square.high, 0)) - middle
    down = middle - np.sqrt(np.maximum(square.low, 0))
    return Close(middle, (np.maximum(up, down) + 8 * EPS * (middle + up)) * GROWN)


def norm(x: Real, p: float, weights: Real | None = None) -> Close:
    """Return the p-norm of an exact vector, or with weights ``sqrt(sum w x^2)``."""
    size = np.abs(x)
    top = LD(np.max(size, initial=0))
    if top == 0 or not np.isfinite(top):
        return Close(top, LD(0))
    if weights is not None:
        share = size / top
        return scaled(root(dot(weights, share * share, 4 * EPS * share * share + TINY)), top)
    return _norm(size, top, LD(p), exact=True)


def dual_norm(u: Real, p: float, weights: Real | None = None) -> Close:
    """Return the norm that is conjugate to the p-norm, or with weights ``sqrt(sum u^2 / w)``."""
    size = np.abs(u)
    top = LD(np.max(size, initial=0))
    if top == 0 or not np.isfinite(top):
        return Close(top, LD(0))
    if weights is not None:
        if np.any((weights == 0) & (size > 0)):
            return Close(LD(np.inf), LD(0))
        some = size > 0
        squares = (size[some] / top) ** 2 / weights[some]
        return scaled(root(total(squares)), top, 8)
    q = LD(np.inf) if p == 1 else LD(1) if np.isinf(p) else LD(p) / (LD(p) - 1)
    return _norm(size, top, q, exact=p in (1, 2) or bool(np.isinf(p)))


def scaled(number: Close, by: Real, more: int = 0) -> Close:
    """Return a product with an exact factor."""
    value = number.value * by
    return Close(value, (number.error * np.abs(by) + (2 + more) * EPS * np.abs(value) + TINY * (value != 0)) * GROWN)


def _norm(size: Real, top: Real, p: Real, exact: bool) -> Close:
    if np.isinf(p):
        return Close(top, LD(0))
    if p == 1:
        return total(size)
    # Shares of the largest entry neither overflow nor all underflow.  The rounding of a share counts p times and the
    # root takes that back; powers are good to a few units in the last place.  An exponent that was rounded itself
    # changes a power by at most r^p |log r| p EPS <= EPS / e, and the powers add up to at least one.
    powers = total((size / top) ** p)
    terms = 32 + int(np.log2(size.size + 1)) + (0 if exact else size.size)
    value = top * powers.value ** (1 / p)
    return Close(value, (value * (powers.error / powers.value / p + terms * EPS) + size.size * TINY * top) * GROWN)


def by_segment(values: Real, offsets: Ints) -> Real:
    """Add up ``values[offsets[i]:offsets[i + 1]]`` for each i."""
    out = np.zeros(offsets.size - 1, dtype=values.dtype)
    some = offsets[:-1] < offsets[1:]
    if some.any():
        out[some] = np.add.reduceat(values, offsets[:-1][some])
    return out


class Chunk(NamedTuple):
    """Some rows of a matrix, compressed."""

    start: int
    stop: int
    data: npt.NDArray[np.float64]
    columns: Ints
    offsets: Ints


class Matrix:
    """A matrix of float64, dense or compressed by rows, that is read by chunks of rows.

    Examples
    --------
    >>> matrix = Matrix(np.array([[1.0, 2.0], [0.0, 3.0]]))
    >>> [float(x) for x in matrix.times(extended([1.0, 1.0])).value]
    [3.0, 3.0]
    >>> [float(x) for x in matrix.back(extended([1.0, 1.0])).value]
    [1.0, 5.0]
    """

    def __init__(self, dense: Any = None, data: Any = None, indices: Any = None, indptr: Any = None, shape: Any = None):
        self._dense = dense
        self._data, self._indices, self._indptr = data, indices, indptr
        self.shape: tuple[int, int] = dense.shape if dense is not None else (int(shape[0]), int(shape[1]))

    def chunks(self) -> Iterator[Chunk]:
        """Read the rows in order."""
        n = self.shape[0]
        start = 0
        while start < n:
            if self._dense is not None:
                stop = min(n, start + max(1, CHUNK // max(self.shape[1], 1)))
                yield _compressed(self._dense[start:stop], start, 0)
            else:
                first = self._indptr[start]
                # As many rows as fit, and at least one.
                stop = min(n, max(start + 1, int(np.searchsorted(self._indptr, first + CHUNK, side="right")) - 1))
                last = self._indptr[stop]
                offsets = self._indptr[start : stop + 1] - first
                yield Chunk(start, stop, self._data[first:last], self._indices[first:last], offsets)
            start = stop

    def pieces(self) -> Iterator[Chunk]:
        """Read the rows in order, those that are longer than a chunk piece by piece."""
        if self._dense is None or self.shape[1] <= CHUNK:
            yield from self.chunks()
            return
        for i in range(self.shape[0]):
            for part in parts(self.shape[1]):
                yield _compressed(self._dense[i : i + 1, part], i, part.start)

    def row(self, i: int) -> Real:
        """Return one row, dense."""
        if self._dense is not None:
            return self._dense[i]
        out = np.zeros(self.shape[1])
        part = slice(self._indptr[i], self._indptr[i + 1])
        np.add.at(out, self._indices[part], self._data[part])
        return out

    def following(self, rows: Ints) -> Ints:
        """Return the columns in which some of these rows have entries other than zero."""
        if self._dense is not None:
            hit = np.zeros(self.shape[1], dtype=bool)
            for i in range(0, rows.size, max(1, CHUNK // max(self.shape[1], 1))):
                hit |= (self._dense[rows[i : i + max(1, CHUNK // max(self.shape[1], 1))]] != 0).any(axis=0)
            return np.flatnonzero(hit)
        hit = np.zeros(self.shape[1], dtype=bool)
        ends = np.cumsum(self._indptr[rows + 1] - self._indptr[rows])
        start = 0
        while start < rows.size:
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + CHUNK, side="right")))
            begins, lengths = self._indptr[rows[start:stop]], np.diff(ends[start:stop], prepend=before)
            places = np.arange(ends[stop - 1] - before) + np.repeat(
                begins - (ends[start:stop] - lengths - before), lengths
            )
            hit[self._indices[places[self._data[places] != 0]]] = True
            start = stop
        return np.flatnonzero(hit)

    def times(self, x: Real, error: Real | None = None) -> Close:
        """Return ``A x`` for an x known up to an error."""
        value, allowance, size, count = np.zeros((4, self.shape[0]), dtype=LD)
        for rows, part, sizes in self._products(self.pieces(), x, error):
            value[rows] += part.value
            allowance[rows] += part.error
            size[rows] += sizes
            count[rows] += 1
        return Close(value, allowance + (count > 1) * (count + 8) * EPS * size * GROWN)

    def times_by_rows(self, x: Real, error: Real | None = None) -> Iterator[tuple[slice, Close]]:
        """Yield ``A x`` for some rows after the other."""
        return ((rows, part) for rows, part, _ in self._products(self.chunks(), x, error))

    def _products(self, chunks: Iterator[Chunk], x: Real, error: Real | None) -> Iterator[tuple[slice, Close, Real]]:
        """Yield ``A x`` of some chunks, and what the sizes of their terms add up to."""
        for start, stop, data, columns, offsets in chunks:
            entries, there = extended(data), x[columns]
            product = entries * there
            value, size = by_segment(product, offsets), by_segment(np.abs(product), offsets)
            off = (np.diff(offsets) + 8) * EPS * size
            small = lost(product, entries, there)
            if small is not None:
                off += by_segment(small.astype(LD), offsets) * TINY
            if error is not None:
                off += by_segment(np.abs(entries) * error[columns], offsets)
            yield slice(start, stop), Close(value, off * GROWN), size

    def back(self, y: Real, error: Real | None = None) -> Close:
        """Return ``A' y`` for a y known up to an error."""
        return self.back_by_rows(lambda rows: Close(y[rows], None if error is None else error[rows]))

    def back_by_columns(self, y: Real) -> Callable[[slice], Close]:
        """Return ``A' y`` as a function of some columns."""
        if self._dense is None:
            return self.back(y).part
        dense = self._dense
        return lambda columns: Matrix(dense[:, columns]).back(y)

    def back_by_rows(self, y: Callable[[slice], Close]) -> Close:
        """Return ``A' y`` for a y that is made for some rows at a time, up to an error or exactly."""
        value, size, more = (np.zeros(self.shape[1], dtype=LD) for _ in range(3))
        terms = np.zeros(self.shape[1], dtype=np.int64)
        for start, stop, data, columns, offsets in self.chunks():
            lengths = np.diff(offsets)
            given, error = y(slice(start, stop))
            entries, there = extended(data), np.repeat(given, lengths)
            product = entries * there
            np.add.at(value, columns, product)
            np.add.at(size, columns, np.abs(product))
            terms += np.bincount(columns, minlength=self.shape[1])
            small = lost(product, entries, there)
            if small is not None:
                np.add.at(more, columns, small * TINY)
            if error is not None:
                np.add.at(more, columns, np.abs(entries) * np.repeat(error, lengths))
        size *= (terms + 8) * EPS
        size += more
        size *= GROWN
        return Close(value, size)

    def sums(self, rows: slice) -> Close:
        """Return the sums of some rows."""
        if self._dense is not None:
            data, count = extended(self._dense[rows]), self.shape[1]
            return Close(data.sum(axis=1), (count + 8) * EPS * np.abs(data).sum(axis=1) * GROWN)
        ends = self._indptr[rows.start : rows.stop + 1]
        data, offsets = extended(self._data[ends[0] : ends[-1]]), ends - ends[0]
        return Close(
            by_segment(data, offsets), (np.diff(offsets) + 8) * EPS * by_segment(np.abs(data), offsets) * GROWN
        )

    def sizes(self, x: Real) -> Real:
        """Return ``|A| x``."""
        out = np.zeros(self.shape[0], dtype=LD)
        for start, stop, data, columns, offsets in self.pieces():
            out[start:stop] += by_segment(np.abs(extended(data)) * x[columns], offsets)
        return out

    def largest(self, of: npt.NDArray[np.bool_] | None = None) -> Real:
        """Return the largest absolute entry of each row, among some columns."""
        out = np.zeros(self.shape[0], dtype=LD)
        for start, stop, data, columns, offsets in self.pieces():
            sizes = np.abs(data) if of is None else np.abs(data) * of[columns]
            some = offsets[:-1] < offsets[1:]
            if some.any():
                largest = np.maximum.reduceat(sizes, offsets[:-1][some])
                out[start:stop][some] = np.maximum(out[start:stop][some], largest)
        return out

    def entries_are(self, test: Any) -> bool:
        """Say whether all stored entries pass a test."""
        return all(bool(np.all(test(chunk.data))) for chunk in self.pieces())


def _compressed(rows: npt.NDArray[np.float64], start: int, column: int) -> Chunk:
    """Compress dense rows that begin in some row and column of a matrix."""
    row, columns = np.nonzero(rows)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows.shape[0]))))
    return Chunk(start, start + rows.shape[0], rows[row, columns], columns + column, offsets)
