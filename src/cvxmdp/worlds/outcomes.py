"""What the generators share: transitions from a list of outcomes, and states that are lists of counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Indices = npt.NDArray[np.int64]


def transitions_of(outcomes: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]], rows: int, num_states: int) -> Any:
    """Return the transitions of ``rows`` pairs from all that can happen to each.

    Parameters
    ----------
    outcomes : iterable of (probability, target)
        Each a number or one entry for each pair. Outcomes with the same target are added up, and those without
        probability are left out.
    rows, num_states : int
        The shape of the transitions.

    Examples
    --------
    >>> transitions_of([(0.5, [0, 1]), ([0.5, 0.25], 1), ([0.0, 0.25], 0)], rows=2, num_states=2).toarray()
    array([[0.5 , 0.5 ],
           [0.25, 0.75]])
    """
    pairs = list(outcomes)
    chances = np.empty((rows, len(pairs)))
    targets = np.empty((rows, len(pairs)), dtype=np.int32)
    for k, (chance, target) in enumerate(pairs):
        chances[:, k], targets[:, k] = chance, target
    starts = np.arange(0, chances.size + 1, len(pairs))
    matrix = sp.csr_array((chances.ravel(), targets.ravel(), starts), shape=(rows, num_states))
    matrix.eliminate_zeros()
    # Else rows would be left as they are where all are sorted, and the order of sums would depend on the other rows.
    matrix.has_sorted_indices = False
    matrix.sum_duplicates()
    return matrix


class Counts:
    """All lists of ``parts`` counts whose sum is at most ``total``, numbered in the order of a dictionary.

    Examples
    --------
    >>> counts = Counts(2, 2)
    >>> counts.lists(np.arange(6)).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0]]
    >>> counts.numbers(np.array([[1, 1], [0, 2]]))
    array([4, 2])
    """

    def __init__(self, parts: int, total: int) -> None:
        self._total = total
        sizes = [np.ones(total + 1, dtype=np.int64)]
        for _ in range(parts):
            sizes.append(np.cumsum(sizes[-1]))
        self._sizes = sizes[:0:-1]
        """By how many counts are yet to come, all of them first: how many lists have each largest sum."""

    def lists(self, numbers: Indices) -> Indices:
        """Return the lists with these numbers, one a row."""
        found = np.empty((numbers.size, len(self._sizes)), dtype=np.int64)
        left = np.full(numbers.size, self._total)
        for part, sizes in enumerate(self._sizes):
            # Those that begin with k at the least are the last of sizes[left - k] lists.
            then = np.searchsorted(sizes, sizes[left] - numbers)
            numbers = numbers - (sizes[left] - sizes[then])
            found[:, part], left = left - then, then
        return found

    def numbers(self, lists: Indices) -> Indices:
        """Return the number of each list."""
        left = np.full(len(lists), self._total)
        found = np.zeros(len(lists), dtype=np.int64)
        for part, sizes in enumerate(self._sizes):
            then = left - lists[:, part]
            found += sizes[left] - sizes[then]  # lists that begin with less come before
            left = then
        return found

    def moved(self, lists: Indices, change: npt.ArrayLike) -> Indices:
        """Return the number of each list after a change, and of the list itself where the change cannot be.

        Examples
        --------
        >>> Counts(2, 2).moved(np.array([[0, 1], [1, 1]]), (0, 1))
        array([2, 4])
        """
        after = lists + np.asarray(change)
        possible = np.all(after >= 0, axis=1) & (after.sum(axis=1) <= self._total)
        return self.numbers(np.where(possible[:, None], after, lists))
