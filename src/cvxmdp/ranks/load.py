"""Models of which each rank reads its own part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.io.choices import Choices
from cvxmdp.io.files import Member, Path, blaming, open_archive, take
from cvxmdp.io.formats import load, module_of
from cvxmdp.io.model import KIND, read_stored_names, read_texts
from cvxmdp.io.petsc import read_pairs
from cvxmdp.io.umb import read_choices
from cvxmdp.mdp import MDP
from cvxmdp.names import Numbers
from cvxmdp.ranks.model import even_blocks, from_rows, scatter
from cvxmdp.ranks.world import Ranks, world_of
from cvxmdp.reading import check_discount, check_initial, handed_over


def load_parts(path: Path, discount: float | None, initial: Any, comm: Any) -> MDP:
    """Read a model of which each rank has a block of states: see :func:`cvxmdp.load`."""
    world = world_of(comm)
    module = world.together(lambda: module_of(path, discount))
    if module not in PARTS:
        return scatter(world.together(lambda: load(path, discount, initial)), world)
    discount = None if discount is None else check_discount(discount)
    found = PARTS[module](path, discount, initial, world)
    with blaming(path):
        return from_rows(world, **found)


def _archive(path: Path, discount: float | None, initial: Any, world: Ranks) -> dict[str, Any]:
    """Return what this rank has of arrays of NumPy, as arguments of :func:`cvxmdp.ranks.model.from_rows`."""
    return world.together(lambda: _read(path, discount, initial, world))


def _petsc(path: Path, discount: float | None, initial: Any, world: Ranks) -> dict[str, Any]:
    """Return the same of matrices of PETSc."""

    def read() -> dict[str, Any]:
        found = read_pairs(path, partial(_block, world))
        return {**found, "discount": discount, **_sized(found["transitions"], None, initial, world)}

    return world.together(read)


def _umb(path: Path, discount: float | None, initial: Any, world: Ranks) -> dict[str, Any]:
    """Return the same of a file in the format UMB, whose actions are those that some rank found."""

    def read() -> tuple[Choices, dict[str, Any], Any]:
        choices = read_choices(path, partial(_block, world))
        sized = _sized(choices.transitions, choices.states, initial, world)
        with blaming(path):
            return choices, sized, choices.written(initial is not None)

    def joined() -> dict[str, Any]:
        with blaming(path):
            found = choices.pairs(np.unique(np.concatenate(all_written)) if all_written else None)
        return {**found, "discount": discount, **sized}

    choices, sized, written = world.together(read)
    all_written = [some for some in world.gathered(written) if some is not None]
    return world.together(joined)


PARTS = {"cvxmdp.io.model": _archive, "cvxmdp.io.petsc": _petsc, "cvxmdp.io.umb": _umb}
"""What reads a format in parts, by the module that reads it in one place."""


def _block(world: Ranks, num_states: int) -> tuple[int, int]:
    """Return where the states of this rank begin and end."""
    begin, end = even_blocks(num_states, world)[world.rank : world.rank + 2].tolist()
    return begin, end


def _sized(transitions: Any, states: Any, initial: Any, world: Ranks) -> dict[str, Any]:
    """Return how many states there are and, where the first one is given, how likely those of this rank are."""
    count = transitions.shape[1]
    if initial is None:
        return {"num_states": count}
    begin, end = _block(world, count)
    known = Numbers(count) if states is None else states
    return {"num_states": count, "initial": check_initial(initial, count, known)[begin:end]}


def _read(path: Path, discount: float | None, initial: Any, world: Ranks) -> dict[str, Any]:
    """Return what this rank has of an archive, as arguments of :func:`cvxmdp.ranks.model.from_rows`."""
    header, members = open_archive(path, KIND)
    with blaming(path):
        state = take(members, "state", [None], "iu")
        rho = take(members, "initial", [None])
        (pairs,), (num_states,) = state.shape, rho.shape
        action = take(members, "action", [pairs], "iu")
        names, labels = read_texts(header, "costs"), read_texts(header, "labels") if "labels" in header else ()
        for what, given in (("costs", names), ("labels", labels)):
            if len(set(given)) != len(given):
                raise ValueError(f"the header gives two {what} the same name")
        costs = {name: take(members, f"cost:{i}", [pairs]) for i, name in enumerate(names)}
        labelled = {name: take(members, f"label:{i}", [None], "iu") for i, name in enumerate(labels)}
        if not isinstance(header.get("discount"), float):
            raise ValueError("the header has no discount that is a number between 0 and 1")
        states = read_stored_names(header, "states", num_states)
        if states is not None and len(states) != num_states:
            raise ValueError(f"the header names {len(states)} states; the arrays have {num_states}")
        begin, end = _block(world, num_states)
        first, last = _pairs(state, begin, end, num_states)
        own = state.part(first, last).astype(np.int64)
        if own.size and not (begin <= own.min() and own.max() < end):
            raise ValueError(
                f"the array 'state' must rise from 0 to {num_states - 1}: pairs are sorted by state, then by action"
            )
        taken = action.part(first, last).astype(np.int64)
        actions = None if type(header.get("actions")) is int else read_texts(header, "actions")
        limit = header["actions"] if actions is None else len(actions)
        if taken.size and not 0 <= taken.min() <= taken.max() < limit:
            raise ValueError(f"the array 'action' must hold numbers from 0 to {limit - 1}")
        found: dict[str, Any] = {
            "num_states": num_states,
            "state": own,
            "action": taken,
            "transitions": _rows(members, pairs, num_states, first, last),
            "costs": {name: handed_over(cost.part(first, last)) for name, cost in costs.items()},
            "discount": header["discount"] if discount is None else discount,
            "states": states,
            "actions": actions,
            "labels": {name: which.part() for name, which in labelled.items()},
        }
        own_initial = rho.part(begin, end) if initial is None else None
    if own_initial is None:
        known = Numbers(num_states) if states is None else states
        own_initial = check_initial(initial, num_states, known)[begin:end]
    return {**found, "initial": own_initial}


def _pairs(state: Member, begin: int, end: int, num_states: int) -> tuple[int, int]:
    """Return where the pairs of some states are, if they are sorted; the first and last states have all that remain."""
    wanted = np.array([begin, end])
    if state.stored is not None:
        found = np.searchsorted(state.mapped(), wanted)
    else:
        found = sum((np.searchsorted(chunk, wanted) for chunk in state.chunks(state.shape[0])), np.zeros(2, np.int64))
    first, last = int(found[0]) if begin else 0, int(found[1]) if end < num_states else state.shape[0]
    return first, max(first, last)


def _rows(members: Mapping[str, Member], pairs: int, num_states: int, first: int, last: int) -> Any:
    """Return the transitions of some pairs."""
    if "P" in members:
        return sp.csr_array(take(members, "P", [pairs, num_states]).part(first, last))
    stated = take(members, "P_shape", [2], "iu").part().tolist()
    if stated != [pairs, num_states]:
        raise ValueError(f"the array 'P_shape' is {stated}; it must be {[pairs, num_states]}")
    data = take(members, "P_data", [None])
    indices = take(members, "P_indices", [data.shape[0]], "iu")
    ends = take(members, "P_indptr", [pairs + 1], "iu").part(first, last + 1)
    at_ends = (first > 0 or ends[0] == 0) and (last < pairs or ends[-1] == data.shape[0])
    if not (at_ends and 0 <= ends[0] <= ends[-1] <= data.shape[0]) or np.any(ends[1:] < ends[:-1]):
        raise ValueError(f"the array 'P_indptr' must rise from 0 to the {data.shape[0]} entries of 'P_data'")
    begin, end = int(ends[0]), int(ends[-1])
    columns = indices.part(begin, end)
    if columns.size and not 0 <= columns.min() <= columns.max() < num_states:
        raise ValueError(f"the array 'P_indices' must hold numbers from 0 to {num_states - 1}")
    rows = sp.csr_array((data.part(begin, end), columns, ends - ends[0]), shape=(last - first, num_states))
    return handed_over(rows)
