"""From rows of transitions, in any order, to the pairs of a model."""

from __future__ import annotations

import graphlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.io.numbering import Codes, Numbering, RowError
from cvxmdp.io.sources import NAMES, Columns, Source, codes, numbers
from cvxmdp.names import no_such, printable
from cvxmdp.reading import Array, Indices, handed_over

PAIR = ("state", "action")
TRANSITION = (*NAMES, "probability")


@dataclass
class Pairs:
    """What :meth:`cvxmdp.MDP.from_pairs` takes, and how names were found.

    ``states`` and ``actions`` are None where names are the numbers from 0 up.  ``state_of`` and ``action_of`` are
    indexed by the codes of ``numberings``.
    """

    state: Codes
    action: Codes
    transitions: Any
    costs: dict[str, Array]
    states: list[str] | None
    actions: list[str] | None
    numberings: tuple[Numbering, Numbering]
    state_of: Codes
    action_of: Codes

    def find(self, batch: Columns) -> Indices:
        """Return the pair in each row of columns ``state`` and ``action``."""
        number = {}
        for column, numbering, known in zip(PAIR, self.numberings, (self.state_of, self.action_of), strict=True):
            code = codes(numbering, column, batch[column])
            if (strange := np.flatnonzero(code >= known.size)).size:
                names = numbering.names()
                raise RowError(int(strange[0]), no_such(column, names[code[strange[0]]], names[: known.size]))
            number[column] = known[code]
        keys = _keys(self.state, self.action, self.action_of.size)
        key = _keys(number["state"], number["action"], self.action_of.size)
        pair = np.minimum(np.searchsorted(keys, key), keys.size - 1)
        if (strange := np.flatnonzero(keys[pair] != key)).size:
            raise RowError(int(strange[0]), "the table of transitions has no such pair of state and action")
        return pair

    def name(self, pair: int) -> str:
        """Return a pair by its names."""
        state, action = int(self.state[pair]), int(self.action[pair])
        names = (self.states[state] if self.states else state, self.actions[action] if self.actions else action)
        return printable(f"state {names[0]}, action {names[1]}")


class Grown:
    """An array that grows at its end, which takes no second copy of a large one."""

    def __init__(self, kind: Any) -> None:
        self._array: Any = np.empty(0, dtype=kind)
        self.size = 0

    def add(self, values: Any) -> None:
        """Put values at the end."""
        end = self.size + values.size
        if end > self._array.size:
            self._array.resize(max(end, self._array.size * 5 // 4), refcheck=False)
        self._array[self.size : end] = values
        self.size = end

    def take(self) -> Any:
        """Return the array, and be empty."""
        array, self._array = self._array, self._array[:0].copy()
        array.resize(self.size, refcheck=False)
        self.size = 0
        return array


class Rows:
    """Rows of transitions.  Those of a pair that follow each other are a *run*, which is all that is kept of a pair.

    So a table whose pairs lie together takes twelve bytes a row.
    """

    def __init__(self) -> None:
        self.states, self.actions = Numbering(), Numbering()
        self.next, self.probability = Grown(np.int32), Grown(np.float64)
        self.state, self.action, self.length, self.mass = (Grown(k) for k in (np.int32, np.int32, np.int32, np.float64))
        self.costs: dict[str, Grown] = {}

    def take(self, source: Source) -> None:
        """Take all rows of a table."""
        self.costs = {column: Grown(np.float64) for column in source.columns if column not in TRANSITION}
        for batch in source.batches():
            rows = self.next.size
            try:
                self._add(batch)
            except RowError as error:
                raise source.blame(rows + error.row, str(error)) from None
        if not self.next.size:
            raise ValueError(f"{source.said} has no rows; a model needs one for each transition")

    def _add(self, batch: Any) -> None:
        state, action = codes(self.states, "state", batch["state"]), codes(self.actions, "action", batch["action"])
        after = codes(self.states, "next_state", batch["next_state"])
        p = numbers("probability", batch["probability"])
        costs = {column: numbers(column, batch[column]) for column in self.costs}
        if not p.size:
            return
        self.next.add(after)
        self.probability.add(p)
        first = _starts(state, action)
        mass = np.add.reduceat(p, first)
        self.state.add(state[first])
        self.action.add(action[first])
        self.length.add(np.diff(first, append=p.size))
        self.mass.add(mass)
        for column, cost in costs.items():
            self.costs[column].add(_averages(p, cost, first, mass))

    def pairs(self) -> Pairs:
        """Return the pairs, sorted by state, then by action."""
        state_code, action_code = self.state.take(), self.action.take()
        state_of, states = self._state_order(state_code)
        action_of, actions = self._action_order(state_code, action_code)
        state, action = state_of[state_code], action_of[action_code]
        del state_code, action_code
        length, mass = self.length.take(), self.mass.take()
        run_costs = {column: cost.take() for column, cost in self.costs.items()}
        after, p = self.next.take(), self.probability.take()
        key = _keys(state, action, self.actions.count)
        if np.any(key[1:] < key[:-1]):
            order = np.argsort(key, kind="stable")
            begin = np.cumsum(length, dtype=np.int64) - length
            state, action, mass, length = state[order], action[order], mass[order], length[order]
            run_costs = {column: cost[order] for column, cost in run_costs.items()}
            rows = np.repeat(begin[order] - (np.cumsum(length, dtype=np.int64) - length), length)
            del begin, order
            rows += np.arange(rows.size)
            after, p = after[rows], p[rows]
            del rows
        del key
        first = _starts(state, action)
        total = np.add.reduceat(mass, first)
        costs = {column: _averages(mass, run_costs.pop(column), first, total) for column in list(run_costs)}
        indptr = np.append(0, np.cumsum(np.add.reduceat(length, first, dtype=np.int64)))
        state, action, shape = state[first], action[first], (first.size, self.states.count)
        del first, total, mass, length
        matrix = sp.csr_array((p, state_of[after], indptr), shape=shape)
        del after, p
        matrix.sum_duplicates()
        if not np.all(matrix.data):
            matrix.eliminate_zeros()
        return Pairs(
            state, action, handed_over(matrix), {column: handed_over(cost) for column, cost in costs.items()},
            states, actions, (self.states, self.actions), state_of, action_of,
        )  # fmt: skip

    def _state_order(self, state: Codes) -> tuple[Codes, list[str] | None]:
        """Return the number of each state by code, and names by number."""
        count = self.states.count
        first = _first_places(state, count)
        missing = np.flatnonzero(first == state.size)
        if missing.size:
            name = printable(repr(self.states.names()[int(missing[0])]))
            raise ValueError(
                f"state {name} is a next_state, but has no rows of its own ({missing.size} such states in all); where "
                "the process ends there, add a row with an action that leads from it to itself"
            )
        return _numbered(self.states, _ranks(first))

    def _action_order(self, state: Codes, action: Codes) -> tuple[Codes, list[str] | None]:
        """Return the number of each action by code, and names by number."""
        count = self.actions.count
        rank = _ranks(_first_places(action, count))
        if self.actions.numbers() is not None:
            return _numbered(self.actions, rank)
        order = np.argsort(state, kind="stable")
        listed = rank[action[order]]
        same = (np.diff(state[order]) == 0) & (np.diff(listed) != 0)
        before, after = listed[:-1][same], listed[1:][same]
        if np.any(before > after):
            sorter = graphlib.TopologicalSorter[int]({k: () for k in range(count)})
            for edge in np.unique(before * count + after).tolist():
                sorter.add(edge % count, edge // count)
            with suppress(graphlib.CycleError):  # states may list the same actions in different orders
                rank = np.argsort(list(sorter.static_order()))[rank]
        return _numbered(self.actions, rank)


def read_pair_costs(source: Source, pairs: Pairs) -> dict[str, Array]:
    """Return costs from a table with one row for each pair, in the order of the pairs."""
    columns = [column for column in source.columns if column not in PAIR]
    if not columns:
        raise ValueError(f"{source.said} has no column with a cost")
    for column in columns:
        if column in TRANSITION or column in pairs.costs:
            raise ValueError(f"{source.said} has a column {column!r}, and so has the table of transitions")
    place = np.full(pairs.state.size, -1, dtype=np.int64)
    found = {column: Grown(np.float64) for column in columns}
    rows = 0
    for batch in source.batches():
        try:
            pair = pairs.find(batch)
            for column in columns:
                found[column].add(numbers(column, batch[column]))
            _place_once(place, pair, rows, pairs)
        except RowError as error:
            raise source.blame(rows + error.row, str(error)) from None
        rows += pair.size
    missing = np.flatnonzero(place < 0)
    if missing.size:
        raise ValueError(
            f"{source.said} has no row for {pairs.name(int(missing[0]))} ({missing.size} such pairs in all); give one "
            "for each pair"
        )
    return {column: cost.take()[place] for column, cost in found.items()}


def _place_once(place: Indices, pair: Indices, rows: int, pairs: Pairs) -> None:
    """Note the row of each pair, the first of which is ``rows``; each may have only one."""
    row = np.arange(rows, rows + pair.size)
    known = place[pair]
    place[pair[::-1]] = row[::-1]  # the first row of those in this batch
    again = np.flatnonzero((known >= 0) | (place[pair] != row))
    if again.size:
        raise RowError(int(again[0]), f"{pairs.name(int(pair[again[0]]))} has a second row")


def _starts(state: Any, action: Any) -> Indices:
    """Return where another pair begins."""
    return np.append(0, np.flatnonzero((state[1:] != state[:-1]) | (action[1:] != action[:-1])) + 1)


def _averages(weight: Array, cost: Array, first: Indices, total: Array) -> Array:
    """Return the average of each stretch of costs: exactly the cost where it is the same all over."""
    low, high = np.minimum.reduceat(cost, first), np.maximum.reduceat(cost, first)
    with np.errstate(all="ignore"):  # what is not finite is refused later, by its pair
        mean = np.add.reduceat(weight * cost, first) / total
    return np.where((low == high) | (total == 0), low, mean)


def _keys(state: Codes, action: Codes, actions: int) -> Indices:
    """Return one number for each pair, by which pairs are sorted by state, then by action."""
    keys = state.astype(np.int64)
    keys *= actions
    keys += action
    return keys


def _first_places(codes: Codes, count: int) -> Indices:
    """Return where each code occurs first; the length of the array where it does not."""
    places = np.full(count, codes.size)
    places[codes[::-1]] = np.arange(codes.size)[::-1]
    return places


def _ranks(values: Indices) -> Indices:
    """Return the rank of each of some numbers that differ."""
    ranks = np.empty(values.size, dtype=np.int64)
    ranks[np.argsort(values)] = np.arange(values.size)
    return ranks


def _numbered(numbering: Numbering, rank: Indices) -> tuple[Codes, list[str] | None]:
    """Return numbers by code, and names by number: none where the names are the numbers from 0 up."""
    direct = numbering.numbers()
    if direct is not None:
        return direct, None
    names = numbering.names()
    return rank.astype(np.int32), [names[code] for code in np.argsort(rank).tolist()]
