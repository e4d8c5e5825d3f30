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
from cvxmdp.policy import Policy
from cvxmdp.ranks.halo import Halo
from cvxmdp.ranks.one_place import in_one_place
from cvxmdp.ranks.rows import SparseRows
from cvxmdp.ranks.scattered import Scattered, as_parts_of, part_of
from cvxmdp.ranks.world import Ranks, world_of
from cvxmdp.reading import (
    SUM_ACCURACY,
    SUM_TOLERANCE,
    check_cost,
    check_discount,
    check_initial,
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

    def __matmul__(self, values: Any) -> Any:
        """Return what the next state has on average, after each pair, of a vector over states."""
        return Scattered(self.csr @ self.halo.everywhere(values.local), self.world, count=self.shape[0])


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
    *,
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

    Examples
    --------
    Every rank runs this script; each makes its own part of a ring of a thousand states::

        import cvxmdp as cm
        import numpy as np
        import scipy.sparse as sp
        from cvxmdp.ranks.model import even_blocks, from_rows
        from cvxmdp.ranks.world import world_of

        world, size = world_of(True), 1000
        begin, end = even_blocks(size, world)[world.rank : world.rank + 2]
        state, action = np.repeat(np.arange(begin, end), 2), np.tile([0, 1], end - begin)  # stay, or go on
        ones, rows, columns = np.ones(state.size), np.arange(state.size), (state + action) % size
        steps = sp.csr_array((ones, (rows, columns)), shape=(state.size, size))
        mdp = from_rows(world, size, state, action, steps, {"walk": action, "wait": state != 0}, discount=0.9)
        assert cm.Problem(mdp, "wait").solve().status is cm.Status.OPTIMAL
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
    total, some = world.total([rho.sum(), np.count_nonzero(rho)]).tolist()
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
        initial=over(rho if abs(total - 1) <= SUM_ACCURACY * some else rho / total, num_states),
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


@in_one_place("it is in parts already, which stay where they are")
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

    Examples
    --------
    Every rank runs this script, started by ``mpiexec -n 2 python script.py``::

        import cvxmdp as cm

        mdp = cm.scatter(cm.worlds.gridworld(size=10))
        solution = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-3)]).solve()
        assert solution.status is cm.Status.OPTIMAL
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
        {name: cost[pairs] for name, cost in mdp.costs.items()}, mdp.discount, initial=mdp.initial[mine],
        states=mdp.states, actions=mdp.actions, starts=starts, numbers=None if plain else (mine, pairs),
        labels=mdp.labels,
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
    scattered : array, Policy or matrix
        As solutions of it have them; also rows of such vectors, and the model's transitions.  What all ranks have
        comes back as it is.
    to_all : bool
        Whether all ranks get it; else the others get None.

    Examples
    --------
    Every rank runs this script, and comes to each ``gather``; the first one then has what it returns::

        import cvxmdp as cm

        mdp = cm.worlds.gridworld(size=10, comm=True)
        solution = cm.Problem(mdp, "time").solve()
        visits = cm.gather(mdp, solution.visits)
        policy = cm.gather(mdp, solution.policy)
        if mdp.world.rank == 0:
            assert visits.shape == (100,)
            policy.save("policy.csv")
    """
    if isinstance(scattered, Policy):
        numbered = scattered.probabilities, state_numbers(mdp), scattered.action
        pi, state, action = (gather(mdp, array, to_all) for array in numbered)
        return None if pi is None else Policy(pi, state, action, scattered.states, scattered.actions)
    if isinstance(scattered, RowBlock):
        return _gathered_rows(mdp, to_all)
    if not isinstance(scattered, (Scattered, SparseRows)):
        return scattered
    world, block = mdp.world, mdp.transitions
    of_states = scattered.count == mdp.num_states != mdp.num_pairs
    own = block.states if of_states else block.pairs
    order = None if isinstance(own, slice) else _collected(world, own, to_all)
    if isinstance(scattered, SparseRows):
        columns = (world.gathered if to_all else world.comm.gather)(scattered.local)
        if columns is None:
            return None
        rows = sp.csr_array(sp.hstack(columns, format="csr"))
        return rows if order is None else sp.csr_array(rows[:, np.argsort(np.concatenate(order))])
    parts = _collected(world, np.ascontiguousarray(scattered.local), to_all)
    if parts is None:
        return None
    whole = np.concatenate(parts, axis=scattered.axis)
    if order is not None:
        whole = np.take(whole, np.argsort(np.concatenate(order)), axis=scattered.axis)
    return whole if scattered.tail is None else np.append(whole, scattered.tail)


def _gathered_rows(mdp: MDP, to_all: bool) -> Any:
    """Return the transitions of all ranks, in the user's order of pairs and states."""
    block = mdp.transitions
    names = block.halo.everywhere(np.arange(mdp.num_states)[block.states])
    own = block.csr.data, names[block.csr.indices], np.diff(block.csr.indptr)
    data, columns, counts = (_collected(block.world, part, to_all) for part in own)
    pairs = _collected(block.world, np.arange(mdp.num_pairs)[block.pairs], to_all)
    if data is None:
        return None
    ends = np.append(0, np.cumsum(np.concatenate(counts)))
    rows = sp.csr_array((np.concatenate(data), np.concatenate(columns), ends), shape=(mdp.num_pairs, mdp.num_states))
    whole = rows if isinstance(block.pairs, slice) else rows[np.argsort(np.concatenate(pairs))]
    whole.sort_indices()
    return whole


def _collected(world: Ranks, part: Any, to_all: bool) -> Any:
    """Return what each rank has, on the first one or on all."""
    return world.gathered(part) if to_all else world.to_first(part)


def changed(mdp: MDP, **parts: Any) -> MDP:
    """Return a model in parts with another discount, other costs or another first state, given for all of it."""
    known = {name: getattr(mdp, name) for name in MDP.__slots__ if name != "_dynamics"}
    if "discount" in parts:
        parts["discount"] = check_discount(parts["discount"])
    if "costs" in parts:
        parts["costs"] = {name: frozen(mdp.cost(cost, f"cost {name!r}")) for name, cost in parts["costs"].items()}
    if "initial" in parts:
        rho = gather(mdp, parts["initial"], to_all=True)
        rho = mdp.world.together(lambda: check_initial(rho, mdp.num_states, mdp.states))
        parts["initial"] = frozen(as_parts_of(mdp.initial, rho[mdp.transitions.states]))
    return MDP._of_parts(**{**known, **parts})


def state_numbers(mdp: MDP) -> Any:
    """Return the user's number of each pair's state."""
    if not isinstance(mdp.state, Scattered):
        return mdp.state
    block, owner = mdp.transitions, part_of(mdp.state)
    own = np.arange(mdp.num_states)[block.states] if isinstance(block.states, slice) else block.states
    return as_parts_of(mdp.state, own[owner])
