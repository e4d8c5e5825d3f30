"""Models as tables with one row for each transition.

The columns are ``state``, ``action``, ``next_state`` and ``probability``; all further ones are costs.  Rows
come in any order.

- The cost of a pair is the average over its rows, weighted by their probabilities.  Rows of the same transition add
  up.
- States and actions are the numbers 0, 1, ... where their names are just these.  Else states come in the order of their
  first rows, and actions so that the actions of each state stay in the order of its rows, where that is possible.
- A table does not hold discount, initial distribution and labels, nor actions that no state offers.
- Names are written as they are, so that they come back; a spreadsheet may take one such as ``=1+1`` for a formula.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.io.files import Path, blaming, write_atomically
from cvxmdp.io.rows import PAIR, TRANSITION, Rows, read_pair_costs
from cvxmdp.io.sources import arrow, ending, open_source
from cvxmdp.mdp import MDP
from cvxmdp.names import Numbers
from cvxmdp.reading import check_discount

CHUNK = 2**17
"""Rows that are written at once, and the rows of a group in a ``.parquet`` file."""


def read(path: Path, discount: float, initial: Any = None) -> MDP:
    """Read a model from a ``.csv`` or ``.parquet`` file."""
    return from_table(path, discount, initial)


def from_table(table: Any, discount: float, initial: Any = None, pair_costs: Any = None) -> MDP:
    """Build a model as :meth:`cvxmdp.MDP.from_table` says."""
    discount = check_discount(discount)
    state, action, transitions, costs, states, actions = _read(table, pair_costs)
    with blaming(table) if isinstance(table, (str, os.PathLike)) else nullcontext():
        mdp = MDP.from_pairs(state, action, transitions, costs, discount, None, states, actions)
    return mdp if initial is None else mdp.with_initial(initial)


def _read(table: Any, pair_costs: Any) -> tuple[Any, ...]:
    """Return what a model is made of; how names were found is forgotten, which takes as much memory as the names."""
    rows = Rows()
    with open_source("table", table, TRANSITION) as source:
        rows.take(source)
        if pair_costs is None and not rows.costs:
            raise ValueError(f"{source.said} has no column with a cost; add one, or give a table of them as pair_costs")
        pairs = rows.pairs()
    if pair_costs is not None:
        with open_source("pair_costs", pair_costs, PAIR) as source:
            pairs.costs |= read_pair_costs(source, pairs)
    return pairs.state, pairs.action, pairs.transitions, pairs.costs, pairs.states, pairs.actions


def write(mdp: MDP, path: Path) -> None:
    """Write a model to a ``.csv`` or ``.parquet`` file."""
    kind = ending(path)
    _check_names(mdp, kind)
    with write_atomically(path) as file:
        (_write_csv if kind == ".csv" else _write_parquet)(mdp, file)


def _write_csv(mdp: MDP, file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="")
    # All texts are in quotes, so that an empty name is not a missing one.
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow((*TRANSITION, *mdp.costs))
    for pair, after, p in _chunks(mdp):
        columns = [
            _named(mdp.states, mdp.state[pair]),
            _named(mdp.actions, mdp.action[pair]),
            _named(mdp.states, after),
            p.tolist(),
            *(cost[pair].tolist() for cost in mdp.costs.values()),
        ]
        writer.writerows(zip(*columns, strict=True))
    text.detach()  # the file stays open


def _write_parquet(mdp: MDP, file: IO[bytes]) -> None:
    pa, pq = arrow("parquet")
    states, actions = (
        None if isinstance(names, Numbers) else pa.array(names, pa.string()) for names in (mdp.states, mdp.actions)
    )

    def named(names: Any, numbers: Any) -> Any:
        # The dictionary of a chunk holds only what occurs in it.
        numbers = pa.array(numbers.astype(np.int32))
        return numbers if names is None else names.take(numbers)

    kinds = [pa.int32() if names is None else pa.string() for names in (states, actions, states)]
    kinds += [pa.float64()] * (1 + len(mdp.costs))
    schema = pa.schema(list(zip((*TRANSITION, *mdp.costs), kinds, strict=True)))
    with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
        for pair, after, p in _chunks(mdp):
            columns = [
                named(states, mdp.state[pair]), named(actions, mdp.action[pair]), named(states, after), pa.array(p),
                *(pa.array(cost[pair]) for cost in mdp.costs.values()),
            ]  # fmt: skip
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _chunks(mdp: MDP) -> Iterator[tuple[Any, Any, Any]]:
    """Yield pair, next state and probability of some transitions at a time, in the order of the pairs."""
    P = mdp.transitions
    stored = P.nnz if sp.issparse(P) else P.size
    step = max(1, CHUNK * mdp.num_pairs // max(stored, 1))
    for begin in range(0, mdp.num_pairs, step):
        part = sp.coo_array(P[begin : begin + step])
        row, after = part.coords
        positive = part.data > 0
        yield begin + row[positive], after[positive], part.data[positive]


def _named(names: Sequence[str], numbers: Any) -> list[Any]:
    """Return names by number; numbers stay what they are, which is written the same."""
    chosen: list[Any] = numbers.tolist()
    return chosen if isinstance(names, Numbers) else [names[number] for number in chosen]


def _check_names(mdp: MDP, kind: str) -> None:
    """Check that all names can be written and read again."""
    for cost in mdp.costs:
        if cost in TRANSITION:
            raise ValueError(f"a cost called {cost!r} has no place in a table of transitions; save the model as .npz")
    named = [names for names in (mdp.states, mdp.actions) if not isinstance(names, Numbers)]
    for name in chain(mdp.costs, *named):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"the name {name!r} holds half a character, which no {kind} file can hold; save the model as .npz"
            ) from None
