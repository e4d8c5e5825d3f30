"""From what a world says of some of its states to a model: the whole of it, or the part of each rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.mdp import MDP
from cvxmdp.ranks.model import even_blocks, from_rows
from cvxmdp.ranks.world import ALONE, world_of
from cvxmdp.reading import handed_over, narrow

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

CHUNK = 1 << 13
"""States whose rows are made at a time: little is held besides what is made."""
MOST_STATES = 2**31 - 1
"""States are numbered with 32 bits, as models store them."""


class Rows(NamedTuple):
    """What some states offer: pairs sorted by state, then by action, where each leads and what it costs."""

    state: Indices
    action: Indices
    transitions: Any
    costs: dict[str, Array]


def make(
    rows: Callable[[Indices], Rows],
    states: Sequence[str],
    comm: Any,
    *,
    discount: float,
    start: int | None = None,
    actions: Sequence[str] | None = None,
    labels: Mapping[str, Any] | None = None,
    at_a_time: int = CHUNK,
) -> MDP:
    """Return the model of a world, of which each rank makes the rows of its own states.

    Parameters
    ----------
    rows : function
        Of the numbers of some consecutive states, perhaps of none.  A row depends on no other that is asked for.
    states : sequence of str
        Names of all states, made when asked for where there may be many.
    comm : communicator of mpi4py or petsc4py, True or None
        The ranks; None makes the whole in one place.
    discount : float
        Between 0 and 1, both excluded.
    start : int, optional
        The state in which the process begins; any, all as likely, when not given.
    actions : sequence of str, optional
        Names.
    labels : mapping of str to states, optional
        Names for sets of states of the whole world.
    at_a_time : int
        States of which rows are asked for at a time.

    Examples
    --------
    >>> def rows(state):
    ...     stays = sp.csr_array(np.eye(5)[state])
    ...     return Rows(state, np.zeros_like(state), stays, {"time": np.ones(state.size)})
    >>> make(rows, ("a", "b", "c", "d", "e"), None, discount=0.9, at_a_time=2)
    MDP(5 states, 5 pairs, costs: time, discount 0.9)
    """
    num_states = len(states)
    world: Any = ALONE if comm is None else world_of(comm)
    begin, end = even_blocks(num_states, world)[world.rank : world.rank + 2].tolist()
    part: Any = world.together(lambda: _in_chunks(rows, begin, end, at_a_time))._asdict()
    first = None if start is None else (np.arange(begin, end) == start).astype(np.float64)
    known: Any = {"discount": discount, "initial": first, "states": states, "actions": actions, "labels": labels}
    return MDP.from_pairs(**part, **known) if comm is None else from_rows(world, num_states, **part, **known)


def _in_chunks(rows: Callable[[Indices], Rows], begin: int, end: int, at_a_time: int) -> Rows:
    """Return the rows of a block of states."""
    starts = range(begin, max(end, begin + 1), at_a_time)
    grown: dict[str, Growing] = {}
    for at in starts:
        part = rows(np.arange(at, min(at + at_a_time, end)))
        if len(starts) == 1:
            break
        P = narrow(sp.csr_array(part.transitions))
        own = {"state": part.state, "action": part.action, "data": P.data, "indices": P.indices,
               "lengths": np.diff(P.indptr), **{f"cost:{name}": cost for name, cost in part.costs.items()}}  # fmt: skip
        for name, array in own.items():
            grown.setdefault(name, Growing(array.dtype, array.size * len(starts))).append(array)
    else:
        whole = {name: array.trimmed() for name, array in grown.items()}
        ends = np.concatenate([[0], np.cumsum(whole["lengths"], dtype=np.int64)])
        if ends[-1] <= np.iinfo(np.int32).max:  # else columns would be copied as numbers of 64 bits
            ends = ends.astype(np.int32)
        P = sp.csr_array((whole["data"], whole["indices"], ends), shape=(ends.size - 1, P.shape[1]))
        costs = {name: whole[f"cost:{name}"] for name in part.costs}
        part = Rows(whole["state"], whole["action"], P, costs)
    for array in (part.transitions, *part.costs.values()):
        handed_over(array)
    return part


class Growing:
    """An array to whose end others are put: nothing is held twice, since pages that nobody wrote to take no memory.

    Examples
    --------
    >>> numbers = Growing(np.int64, 2)
    >>> numbers.append(np.arange(3))
    >>> numbers.append(np.arange(2))
    >>> numbers.trimmed()
    array([0, 1, 2, 0, 1])
    """

    def __init__(self, dtype: npt.DTypeLike, expected: int) -> None:
        self._array, self._size = np.empty(expected, dtype=dtype), 0

    def append(self, part: npt.NDArray[Any]) -> None:
        """Put an array to the end."""
        size = self._size + part.size
        if size > self._array.size:  # what is added is written to, so it is little
            self._array.resize(size + size // 16, refcheck=False)
        self._array[self._size : size] = part
        self._size = size

    def trimmed(self) -> npt.NDArray[Any]:
        """Return the array."""
        self._array.resize(self._size, refcheck=False)
        return self._array


def every(states: Indices, actions: int) -> tuple[Indices, Indices]:
    """Return the pairs of states that offer all actions.

    Examples
    --------
    >>> every(np.array([3, 4]), 2)
    (array([3, 3, 4, 4]), array([0, 1, 0, 1]))
    """
    return np.repeat(states, actions), np.tile(np.arange(actions), states.size)


def check_size(arguments: str, num_states: int) -> int:
    """Return how many states there are, if they can be numbered.

    Examples
    --------
    >>> check_size("size", 9)
    9
    """
    if num_states > MOST_STATES:
        raise ValueError(f"{arguments} must be smaller: {num_states} states, of which {MOST_STATES} would fit")
    return num_states
