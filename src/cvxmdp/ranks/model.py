"""Models in parts: the rows of P live with their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.names import Numbers, read_names
from cvxmdp.ranks.halo import Halo
from cvxmdp.ranks.rows import SparseRows
from cvxmdp.ranks.scattered import Scattered, as_parts_of, part_of
from cvxmdp.ranks.world import Ranks, world_of
from cvxmdp.reading import (
    SUM_TOLERANCE,
    check_cost,
    check_discount,
    check_pairs,
    checked_probabilities,
    floats,
    frozen,
    read_costs,
    read_matrix,
)


@dataclass(frozen=True, eq=False)
class RowBlock:
    """The rows of P that live on this rank; columns are its own states, then its guests (see :mod:`cvxmdp.ranks`)."""

    csr: Any
    halo: Halo
    world: Ranks
    starts: Indices
    """States ``starts[r]`` up to ``starts[r + 1]`` live on rank r."""
    shape: tuple[int, int]
    """Of all rows together."""
    nnz: int
    """Transitions of all ranks."""
    states: slice | Indices
    """The numbers that the states of this rank have for the user."""
    pairs: slice | Indices
    """The same for its pairs."""


def even_blocks(num_states: int, world: Ranks) -> Indices:
    """Cut states into blocks of about the same size, one a rank: states lead to near ones in most models.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> even_blocks(7, SimpleNamespace(size=3))
    array([0, 2, 4, 7])
    """
    starts: Indices = (num_states * np.arange(world.size + 1)) // world.size
    return starts


def from_rows(
    comm: Any,
    num_states: int,
    state: Indices,
    action: Indices,
    transitions: Any,
    costs: Mapping[str, npt.ArrayLike],
    discount: float,
    initial: npt.ArrayLike | None = None,
    states: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
    starts: Indices | None = None,
    numbers: tuple[Indices, Indices] | None = None,
    labels: Mapping[str, Any] | None = None,
) -> MDP:
    """Build a model of which each rank gives the rows of its own states.

    Parameters
    ----------
    comm : communicator of mpi4py or petsc4py, or True
        The ranks.
    num_states : int
        Of the whole model.
    state, action : array of int
        Of this rank's pairs, sorted; states have the numbers of the whole model.
    transitions : sparse matrix with one row for each of these pairs and a column for each state
        Distribution of the next state.
    costs : mapping of str to array
        One entry for each of these pairs.
    discount : float
        Between 0 and 1, both excluded.
    initial : array, optional
        One entry for each of this rank's states; even when not given.
    states, actions : sequence of str, optional
        Names, of the whole model, as the user numbers them.
    starts : array of int, optional
        States ``starts[r]`` up to ``starts[r + 1]`` live on rank r; even blocks when not given.
    numbers : two arrays of int, optional
        The numbers that this rank's states and pairs have for the user, where they are others.
    labels : mapping of str to states, optional
        Names for sets of states of the whole model, as the user numbers them.
    """
    world = world_of(comm)
    starts = even_blocks(num_states, world) if starts is None else starts
    begin, end = int(starts[world.rank]), int(starts[world.rank + 1])

    def checked() -> tuple[Any, dict[str, Array], Array]:
        known = Numbers(num_states) if states is None else states
        named = Numbers(int(np.max(action, initial=0)) + 1) if actions is None else actions

        def pair(i: int) -> str:
            return f"state {here[int(state[i]) - begin]}, action {named[int(action[i])]}"

        here = Here(known, range(begin, end) if numbers is None else numbers[0])
        if end > begin:
            check_pairs(state - begin, action, end - begin, here, pair)
            rows = checked_probabilities(read_matrix("transitions", sp.csr_array(transitions)), known, pair)
        else:
            rows = sp.csr_array((0, num_states))
        own = {name: floats(f"cost {name!r}", cost) for name, cost in read_costs(costs).items()}
        for name, cost in own.items():
            if cost.shape != state.shape:
                raise ValueError(f"cost {name!r} has shape {cost.shape}; this rank has {state.size} pairs")
            check_cost(f"cost {name!r}", cost, pair)
        rho = np.full(end - begin, 1 / num_states) if initial is None else floats("initial", initial)
        if rho.shape != (end - begin,) or not np.all(rho >= 0):
            raise ValueError("initial must have one entry of at least 0 for each of this rank's states")
        return rows, own, rho

    rows, own, rho = world.together(checked)
    discount = check_discount(discount)
    total = float(world.total(rho.sum()))
    if abs(total - 1) > SUM_TOLERANCE:
        raise ValueError(f"initial sums to {total:.10g}, not 1; divide it by its sum")
    block = _block(world, rows, starts, num_states, numbers)
    pairs = block.shape[0]
    most = int(world.largest(int(np.max(action, initial=0)))) + 1

    def over(values: Any, count: int) -> Scattered:
        return Scattered(frozen(np.ascontiguousarray(values)), world, count=count)

    mdp = MDP._of_parts(
        state=over(np.asarray(state - begin, dtype=np.int64), pairs),
        action=over(np.asarray(action, dtype=np.int32), pairs),
        transitions=block,
        costs={name: over(cost, pairs) for name, cost in own.items()},
        discount=discount,
        initial=over(rho / total, num_states),
        states=Numbers(num_states) if states is None else states,
        actions=read_names("actions", actions, most),
    )
    found = {str(name): frozen(mdp.find_states(which, f"label {name!r}")) for name, which in (labels or {}).items()}
    object.__setattr__(mdp, "labels", MappingProxyType(found))
    return mdp


class Here(Sequence[str]):
    """Names of the states that live here."""

    def __init__(self, names: Sequence[str], numbers: Any) -> None:
        self._names, self._numbers = names, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return self._names[int(self._numbers[index])]


def _block(
    world: Ranks, rows: Any, starts: Indices, num_states: int, numbers: tuple[Indices, Indices] | None
) -> RowBlock:
    """Number the columns of this rank's rows: its own states from zero, and after them its guests."""
    begin, end = int(starts[world.rank]), int(starts[world.rank + 1])
    columns = rows.indices
    outside = (columns < begin) | (columns >= end)
    guests = np.unique(columns[outside]).astype(np.int64)
    renumbered = columns.astype(np.int64 if rows.nnz > np.iinfo(np.int32).max else np.int32)
    renumbered -= begin
    renumbered[outside] = (end - begin) + np.searchsorted(guests, columns[outside])
    shape = (rows.shape[0], end - begin + guests.size)
    # Within a row the columns need not be sorted: loops over a rank's own rows do not ask for it.
    csr = sp.csr_array((rows.data, renumbered, rows.indptr.astype(renumbered.dtype, copy=False)), shape=shape)
    counts = np.array(world.gathered([rows.shape[0], rows.nnz]))
    (pairs, entries), before = counts.sum(axis=0).tolist(), int(counts[: world.rank, 0].sum())
    mine = (slice(begin, end), slice(before, before + rows.shape[0])) if numbers is None else numbers
    return RowBlock(csr, Halo(world, starts, guests), world, starts, (pairs, num_states), entries, *mine)


def scatter(mdp: MDP, comm: Any = True, parts: npt.ArrayLike | str | None = None) -> MDP:
    """Return the part of a model that is this rank's, where every rank holds the whole.

    Parameters
    ----------
    mdp : MDP
        The same on all ranks.
    comm : communicator of mpi4py or petsc4py, or True
        The ranks; True for all there are.
    parts : array of int, or "graph", optional
        The rank of each state.  When not given, blocks of states with consecutive numbers; "graph" leaves it to PETSc's
        partitioner, which keeps states together that lead to each other.

    Notes
    -----
    Costs and visits of other states are sent between ranks in every sweep, so states that lead to each other should
    live together.  A model in which every state leads everywhere gains nothing.
    """
    world = world_of(comm)
    P, S = sp.csr_array(mdp.transitions), mdp.num_states
    order, starts = _arranged(mdp, world, parts)
    mine = order[starts[world.rank] : starts[world.rank + 1]]
    first = np.searchsorted(mdp.state, np.arange(S + 1))
    counts = np.diff(first)[mine]
    ends = np.concatenate([[0], np.cumsum(counts)])
    pairs = np.arange(ends[-1]) + np.repeat(first[mine] - ends[:-1], counts)
    position = np.empty(S, dtype=np.int64)
    position[order] = np.arange(S)
    rows = sp.csr_array(P[pairs]) if pairs.size else sp.csr_array((0, S))
    rows = sp.csr_array((rows.data, position[rows.indices], rows.indptr), shape=rows.shape)
    plain = bool(np.array_equal(order, np.arange(S)))
    return from_rows(
        world, S, np.repeat(starts[world.rank] + np.arange(mine.size), counts), mdp.action[pairs], rows,
        {name: cost[pairs] for name, cost in mdp.costs.items()}, mdp.discount, mdp.initial[mine],
        mdp.states, mdp.actions, starts, None if plain else (mine, pairs), mdp.labels,
    )  # fmt: skip


def _arranged(mdp: MDP, world: Ranks, parts: Any) -> tuple[Indices, Indices]:
    """Return the states rank after rank, and where each rank's begin."""
    S = mdp.num_states
    if parts is None:
        return np.arange(S), even_blocks(S, world)
    if isinstance(parts, str):
        if parts != "graph":
            raise ValueError(f'parts is {parts!r}; give the rank of each state, "graph", or nothing')
        from cvxmdp.dynamics.petsc import partition

        parts = partition(mdp, world)
    given = np.asarray(parts)
    if given.shape != (S,) or given.dtype.kind not in "iu" or np.any((given < 0) | (given >= world.size)):
        raise ValueError(f"parts must have the number of a rank, from 0 to {world.size - 1}, for each of {S} states")
    return np.argsort(given, kind="stable"), np.searchsorted(np.sort(given), np.arange(world.size + 1))


def gather(mdp: MDP, scattered: Any, to_all: bool = False) -> Any:
    """Return a vector over states or pairs as one array in the user's order, on rank 0 or on all ranks.

    Parameters
    ----------
    mdp : MDP
        The model in parts.
    scattered : array
        As solutions of it have them; also rows of such vectors.  What all ranks have comes back as it is.
    to_all : bool
        Whether all ranks get it; else the others get None.
    """
    if not isinstance(scattered, (Scattered, SparseRows)):
        return scattered
    world, block = mdp.world, mdp.transitions
    collect = world.comm.allgather if to_all else world.comm.gather
    of_states = scattered.count == mdp.num_states != mdp.num_pairs
    parts, numbers = collect(scattered.local), collect(block.states if of_states else block.pairs)
    if parts is None:
        return None
    if isinstance(scattered, SparseRows):
        order = np.concatenate([np.arange(mdp.num_pairs)[own] for own in numbers])
        return sp.csr_array(sp.hstack(parts, format="csr")[:, np.argsort(order)])
    shape = list(scattered.local.shape)
    shape[scattered.axis] = scattered.count
    whole = np.empty(shape, dtype=scattered.dtype)
    for own, part in zip(numbers, parts, strict=True):
        whole[(slice(None),) * scattered.axis + (own,)] = part
    return whole if scattered.tail is None else np.append(whole, scattered.tail)


def state_numbers(mdp: MDP) -> Any:
    """Return the user's number of each pair's state."""
    block, owner = mdp.transitions, part_of(mdp.state)
    own = np.arange(mdp.num_states)[block.states] if isinstance(block.states, slice) else block.states
    return as_parts_of(mdp.state, own[owner])
