"""Garnet: random models of a given size and a given number of successors of each pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.names import Numbers
from cvxmdp.worlds.arguments import read_count, read_seed
from cvxmdp.worlds.make import Rows, check_size, every, make

DENSE_FROM = 0.25
"""Branching from which the transitions are stored as a dense array."""

CHUNK_ENTRIES = 1 << 21
"""Random numbers drawn at a time, which bounds the memory above that of the model itself."""


def garnet(states: int, actions: int, branching: float, seed: int, discount: float = 0.95, comm: Any = None) -> MDP:
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
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which keeps its own states: see :func:`cvxmdp.scatter`.
        Random numbers have one order, so each rank draws those of all, a few at a time.

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
    num_states, num_actions = check_size("states", read_count("states", states)), read_count("actions", actions)
    branching = _fraction(branching)
    reach = max(1, round(branching * num_states))
    transitions = _sparse_transitions if branching < DENSE_FROM else _dense_transitions

    def rows(own: Indices) -> Rows:
        state, action = every(own, num_actions)
        first = num_actions * int(own[0]) if own.size else 0
        drawn = Drawn(read_seed(seed), num_states * num_actions, slice(first, first + state.size))
        cost = np.empty(state.size)
        for count, kept, to in drawn.chunks(1):
            cost[to] = drawn.rng.standard_normal(count)[kept]
        return Rows(state, action, transitions(drawn, state.size, num_states, reach), {"cost": cost})

    return make(rows, Numbers(num_states), comm, discount=discount, at_a_time=num_states)


@dataclass(frozen=True)
class Drawn:
    """Random numbers for all pairs, always drawn in the same order, and the pairs for which they are kept."""

    rng: np.random.Generator
    num_pairs: int
    own: slice

    def chunks(self, entries: int) -> Iterator[tuple[int, slice, slice]]:
        """Yield how many pairs come next, which of them are kept, and where these lie among all that are."""
        step = max(1, CHUNK_ENTRIES // entries)
        for start in range(0, self.num_pairs, step):
            stop = min(start + step, self.num_pairs)
            begin, end = (min(max(at, start), stop) for at in (self.own.start, self.own.stop))
            yield stop - start, slice(begin - start, end - start), slice(begin - self.own.start, end - self.own.start)


def _sparse_transitions(drawn: Drawn, rows: int, num_states: int, reach: int) -> Any:
    successors = np.empty((rows, reach), dtype=np.int32)
    probabilities = np.empty((rows, reach))
    for count, kept, to in drawn.chunks(reach):
        successors[to] = _distinct(drawn.rng, count, num_states, reach)[kept]
        probabilities[to] = _gaps(drawn.rng, count, reach)[kept]
    starts = np.arange(0, rows * reach + 1, reach)
    return sp.csr_array((probabilities.ravel(), successors.ravel(), starts), shape=(rows, num_states))


def _dense_transitions(drawn: Drawn, rows: int, num_states: int, reach: int) -> Array:
    """Each row keeps the states with the ``reach`` smallest of its random keys."""
    transitions = np.zeros((rows, num_states))
    for count, kept, to in drawn.chunks(num_states):
        keys = drawn.rng.random((count, num_states))
        largest_kept = np.partition(keys, reach - 1, axis=1)[:, reach - 1, None]
        np.place(transitions[to], (keys <= largest_kept)[kept], _gaps(drawn.rng, count, reach)[kept].ravel())
    return transitions


def _distinct(rng: np.random.Generator, rows: int, num_states: int, reach: int) -> npt.NDArray[np.int32]:
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
