"""Sparse rows over pairs that live on several ranks: each holds the columns of its own pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.ranks.scattered import Scattered


class SparseRows:
    """A sparse matrix over all pairs, of which every rank has some columns.

    Numbers over the rows are plain arrays, the same on all ranks; numbers over the columns are scattered.

    Parameters
    ----------
    local : sparse array
        All rows, and the columns of this rank's pairs.
    world : World
        All ranks.
    count : int
        Columns of all ranks.
    """

    def __init__(self, local: Any, world: Any, count: int) -> None:
        self.local, self.world, self.count = local.tocsr(), world, count

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the whole."""
        return int(self.local.shape[0]), self.count

    @property
    def ndim(self) -> int:
        """Two axes."""
        return 2

    @property
    def entries(self) -> Scattered:
        """What is stored."""
        return Scattered(self.local.data, self.world)

    @property
    def T(self) -> _Columns:  # noqa: N802
        """The transpose."""
        return _Columns(self)

    def per_column(self) -> Scattered:
        """Return how many entries each column has that are not zero."""
        counts = np.bincount(self.local.indices[self.local.data != 0], minlength=self.local.shape[1])
        return Scattered(counts, self.world, count=self.count)

    def toarray(self) -> Scattered:
        """Return the rows as an array."""
        return Scattered(self.local.toarray(), self.world, axis=1, count=self.count)

    def sum(self, axis: int) -> Any:
        """Return the sums of the columns, or of the rows."""
        found = np.asarray(self.local.sum(axis=axis)).ravel()
        return Scattered(found, self.world, count=self.count) if axis == 0 else self.world.total(found)

    def max(self, axis: int) -> Any:
        """Return the largest entry of each row."""
        return self.world.largest(self._extremes("max"))

    def min(self, axis: int) -> Any:
        """Return the least entry of each row."""
        return self.world.least(self._extremes("min"))

    def _extremes(self, name: str) -> Any:
        if not self.local.shape[1]:
            return np.full(self.local.shape[0], -np.inf if name == "max" else np.inf)
        return np.asarray(getattr(self.local, name)(axis=1).toarray(), dtype=np.float64).ravel()

    def __abs__(self) -> SparseRows:
        return SparseRows(abs(self.local), self.world, self.count)

    def __getitem__(self, rows: Any) -> SparseRows:
        return SparseRows(self.local[rows], self.world, self.count)

    def __mul__(self, other: SparseRows) -> SparseRows:
        return SparseRows(self.local * other.local, self.world, self.count)

    def multiply(self, factors: Any) -> SparseRows:
        """Return the rows, each times a factor."""
        return SparseRows(self.local.multiply(factors), self.world, self.count)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, _Columns):
            return self.world.total((self.local @ other.rows.local.T).toarray())
        return self.world.total(self.local @ other.local)


def stacked(parts: Sequence[Any]) -> SparseRows:
    """Put rows over the same pairs, sparse or scattered, below each other."""
    first = next(part for part in parts if isinstance(part, SparseRows))
    return SparseRows(sp.vstack([sp.csr_array(part.local) for part in parts]), first.world, first.count)


class _Columns:
    """The transpose of sparse rows."""

    def __init__(self, rows: SparseRows) -> None:
        self.rows = rows

    def __matmul__(self, weights: Any) -> Scattered:
        rows = self.rows
        return Scattered(rows.local.T @ weights, rows.world, count=rows.count)
