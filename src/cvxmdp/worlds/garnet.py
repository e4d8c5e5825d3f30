"""Garnet: random models of a given size and a given number of successors of each pair."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.mdp import MDP

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]

DENSE_FROM = 0.25
"""Branching from which the transitions are stored as a dense array."""

CHUNK_ENTRIES = 1 << 21
"""Random numbers drawn at a time, which bounds the memory above that of the model itself."""


def garnet(states: int, actions: int, branching: float, seed: int, discount: float = 0.95) -> MDP:
    """Return a random model in which every pair reaches the same number of states.

    Each pair reaches ``round(branching * states)`` distinct states, at least one, drawn uniformly. Their
    probabilities are the gaps between sorted cut points that are uniform on [0, 1]. The one cost, ``"cost"``,
    is standard normal over the pairs, and the initial distribution is uniform.

    Parameters
    ----------
    states, actions : int
        Number of states, and of actions in each state.
    branching : float
        Fraction of the states that a pair can reach, above 0 and at most 1. The transitions are sparse below
        0.25 and a dense array from there on.
    seed : int
        Seed of the random numbers. The same arguments give the same model.
    discount : float
        Between 0 and 1, both excluded.

    Returns
    -------
    MDP
        The model, with ``states * actions`` pairs.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.garnet(states=100, actions=4, branching=0.05, seed=0)
    >>> mdp
    MDP(100 states, 400 pairs, costs: cost, discount 0.95)
    >>> mdp.transitions.nnz
    2000
    """
    num_states, num_actions = _count("states", states), _count("actions", actions)
    branching = _fraction(branching)
    reach = max(1, round(branching * num_states))
    rng = _generator(seed)
    num_pairs = num_states * num_actions
    cost = rng.standard_normal(num_pairs)
    if branching < DENSE_FROM:
        transitions = _sparse_transitions(rng, num_pairs, num_states, reach)
    else:
        transitions = _dense_transitions(rng, num_pairs, num_states, reach)
    return MDP.from_pairs(
        state=np.repeat(np.arange(num_states), num_actions),
        action=np.tile(np.arange(num_actions), num_states),
        transitions=transitions,
        costs={"cost": cost},
        discount=discount,
        initial=np.full(num_states, 1 / num_states),
    )


def _sparse_transitions(rng: np.random.Generator, num_pairs: int, num_states: int, reach: int) -> Any:
    successors = np.empty((num_pairs, reach), dtype=np.int32)
    probabilities = np.empty((num_pairs, reach))
    for rows in _chunks(num_pairs, reach):
        count = rows.stop - rows.start
        successors[rows] = _distinct(rng, count, num_states, reach)
        probabilities[rows] = _gaps(rng, count, reach)
    starts = np.arange(0, num_pairs * reach + 1, reach)
    return sp.csr_array((probabilities.ravel(), successors.ravel(), starts), shape=(num_pairs, num_states))


def _dense_transitions(rng: np.random.Generator, num_pairs: int, num_states: int, reach: int) -> Array:
    """Each row keeps the states with the ``reach`` smallest of its random keys."""
    transitions = np.zeros((num_pairs, num_states))
    for rows in _chunks(num_pairs, num_states):
        count = rows.stop - rows.start
        keys = rng.random((count, num_states))
        largest_kept = np.partition(keys, reach - 1, axis=1)[:, reach - 1, None]
        np.place(transitions[rows], keys <= largest_kept, _gaps(rng, count, reach).ravel())
    return transitions


def _distinct(rng: np.random.Generator, rows: int, num_states: int, reach: int) -> Indices:
    """Return ``reach`` distinct states a row, sorted.

    Repeats are drawn again until there are none. No step treats one state unlike another, so every set of
    ``reach`` states is equally likely.
    """
    chosen = np.sort(rng.integers(num_states, size=(rows, reach), dtype=np.int32), axis=1)
    open_rows = np.arange(rows)
    while open_rows.size:
        part = chosen[open_rows]
        repeats = np.zeros(part.shape, dtype=bool)
        repeats[:, 1:] = part[:, 1:] == part[:, :-1]
        unfinished = repeats.any(axis=1)
        open_rows, part, repeats = open_rows[unfinished], part[unfinished], repeats[unfinished]
        part[repeats] = rng.integers(num_states, size=int(repeats.sum()), dtype=np.int32)
        chosen[open_rows] = np.sort(part, axis=1)
    return chosen


def _gaps(rng: np.random.Generator, rows: int, reach: int) -> Array:
    """Return the lengths of the ``reach`` pieces into which ``reach - 1`` uniform cut points split [0, 1]."""
    ends = np.empty((rows, reach + 1))
    ends[:, 0], ends[:, -1] = 0.0, 1.0
    ends[:, 1:-1] = rng.random((rows, reach - 1))
    ends[:, 1:-1].sort(axis=1)
    return np.diff(ends, axis=1)


def _chunks(rows: int, entries_per_row: int) -> Iterator[slice]:
    step = max(1, CHUNK_ENTRIES // entries_per_row)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _count(name: str, value: int) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}") from None
    if count < 1:
        raise ValueError(f"{name} is {count}; it must be at least 1")
    return count


def _fraction(branching: float) -> float:
    try:
        fraction = float(branching)
    except (TypeError, ValueError):
        raise ValueError(f"branching must be a number above 0 and at most 1, not {branching!r}") from None
    if not 0 < fraction <= 1:
        raise ValueError(
            f"branching is {fraction:g}; it is the fraction of states a pair reaches, above 0 and at most 1"
        )
    return fraction


def _generator(seed: int) -> np.random.Generator:
    try:
        return np.random.default_rng(operator.index(seed))
    except (TypeError, ValueError):
        raise ValueError(f"seed must be a whole number of at least 0, not {seed!r}") from None
