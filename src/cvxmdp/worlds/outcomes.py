"""What the generators share: transitions from a list of outcomes, and states that are lists of counts."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

MOST_STATES = 2**31 - 1
"""States are numbered with 32 bits, as models store them."""


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
    matrix.sum_duplicates()
    return settled(matrix)


def settled(matrix: Any) -> Any:
    """Mark a sparse matrix as not writeable, so that the model shares it and does not copy it."""
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


def counts_up_to(parts: int, total: int) -> Indices:
    """Return all lists of ``parts`` counts whose sum is at most ``total``, one a row, in the order of a dictionary.

    Examples
    --------
    >>> counts_up_to(2, 2).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0]]
    """
    rows = np.zeros((1, 0), dtype=np.int64)
    left = np.array([total])
    for _ in range(parts):
        source = np.repeat(np.arange(len(rows)), left + 1)
        first = np.concatenate([[0], np.cumsum(left + 1)[:-1]])
        count = np.arange(source.size) - first[source]
        rows = np.column_stack([rows[source], count])
        left = left[source] - count
    return rows


def rank_of(rows: Indices, total: int) -> Indices:
    """Return the number of each list of counts in the order of :func:`counts_up_to`.

    Examples
    --------
    >>> rank_of(counts_up_to(2, 2), 2).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    parts = rows.shape[1]
    left = np.full(len(rows), total)
    rank = np.zeros(len(rows), dtype=np.int64)
    for part in range(parts):
        # Lists of this many counts by the largest sum they may have: those that begin with less come before.
        lists = np.array([comb(most + parts - part, parts - part) for most in range(total + 1)])
        rank += lists[left] - lists[left - rows[:, part]]
        left = left - rows[:, part]
    return rank


def moved(rows: Indices, change: npt.ArrayLike, total: int) -> Indices:
    """Return the number of each list after a change, and of the list itself where the change cannot be."""
    after = rows + np.asarray(change)
    possible = np.all(after >= 0, axis=1) & (after.sum(axis=1) <= total)
    target = np.arange(len(rows))
    target[possible] = rank_of(after[possible], total)
    return target


def check_size(arguments: str, num_states: int) -> None:
    """Refuse a model whose states cannot be numbered."""
    if num_states > MOST_STATES:
        raise ValueError(f"{arguments} must be smaller: {num_states} states, of which {MOST_STATES} would fit")


def one_state(num_states: int, state: int) -> Array:
    """Return the initial distribution of a process that begins in one state."""
    initial = np.zeros(num_states)
    initial[state] = 1.0
    return initial
