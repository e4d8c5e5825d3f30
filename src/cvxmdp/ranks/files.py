"""Archives that several ranks write: the first one writes what the others send it, one array at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cvxmdp.io.files import Path, matrix_members, write_members
from cvxmdp.mdp import MDP
from cvxmdp.ranks.model import gather, state_numbers


def write_together(mdp: MDP, path: Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write arrays in parts, and arrays that all ranks have, as :func:`cvxmdp.io.files.write_archive` does.

    States have the user's numbers in the file.
    No rank ever holds more than one whole array, and what ``path`` held stays as it was until all is written.
    """
    world = mdp.world

    def members() -> Iterator[tuple[str, Any]]:
        for name, array in arrays.items():
            whole = gather(mdp, state_numbers(mdp) if name == "state" else array)
            if world.rank == 0:
                yield from matrix_members(name, whole).items()

    sent = members()

    def work() -> None:
        if world.rank == 0:
            write_members(path, header, ((name, np.asarray(array)) for name, array in sent))

    try:
        if world.rank > 0:
            list(sent)
    finally:
        world.together(lambda: _drained(work, sent))


def _drained(work: Any, sent: Iterator[Any]) -> None:
    """Do work that takes what is sent; where it fails, the others still send all of it."""
    try:
        work()
    finally:
        for _ in sent:
            pass
