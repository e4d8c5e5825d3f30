"""Matrices in the binary format of PETSc, ``.bin``, as madupite reads and writes them.

P has a row for each state and action, those of a state together, and a column for each state; each cost is a matrix
with a row for each state and a column for each action, in a file beside that of P:

- The costs of ``P.bin`` are in ``g.bin``, called ``"g"``, and in ``g_NAME.bin``, called ``"NAME"``; those of
  ``maze_P_25.bin`` in ``maze_g_25.bin`` and ``maze_g_NAME_25.bin``; those of ``maze.bin`` in ``maze_g.bin`` and
  ``maze_g_NAME.bin``.  Rewards may have ``r`` in the place of ``g``; their sign stays.
- Where a cost is infinite, the state does not offer the action.
- States and actions are numbers.

A file holds numbers with the largest byte first: whole ones, which say what it is, how many rows, columns and entries
it has, the entries of each row and their columns, and then the values of the entries in double precision.  A matrix
that is stored densely states -1 entries, and its values follow.  Whole numbers have 32 bits or, where PETSc was built
with these, 64.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.io.choices import transitions_of
from cvxmdp.io.files import Path, blaming, file_name, open_to_read, write_atomically
from cvxmdp.mdp import MDP, Array
from cvxmdp.names import printable
from cvxmdp.reading import check_discount, handed_over

MATRIX, VECTOR = 1211216, 1211214
"""The numbers with which the files of matrices and of vectors begin."""
DENSE = -1
"""What a matrix that is stored densely says of its entries."""
MANY = 2**31 - 1
"""What a file with whole numbers of 32 bits says of more entries than these can count."""
VALUE = np.dtype(">f8")
CHUNK = 2**20
"""Numbers that are read or written at once."""


def read(path: Path, discount: float, initial: Any = None) -> MDP:
    """Read a model; all states are equally likely to be the first, unless one is given.

    Examples
    --------
    >>> import cvxmdp as cm, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "P.bin"
    ...     cm.worlds.gridworld(size=3).save(path)
    ...     cm.load(path, discount=0.9)
    MDP(9 states, 36 pairs, costs: collision, time, discount 0.9)
    """
    discount = check_discount(discount)
    found = read_pairs(path, lambda states: (0, states))
    with blaming(path):
        mdp = MDP.from_pairs(discount=discount, **found)
    return mdp if initial is None else mdp.with_initial(initial)


def read_pairs(path: Path, block: Callable[[int], tuple[int, int]]) -> dict[str, Any]:
    """Read the pairs of the states from ``begin`` up to ``end``, where ``begin, end = block(states)``."""
    P = Matrix.described(path)
    states, (actions, rest) = P.columns, divmod(P.rows, max(P.columns, 1))
    if rest or not actions or not states:
        raise ValueError(
            f"{P.path!r} holds a matrix of {P.rows} x {P.columns}; expected transitions, with a row for each state and "
            "action and a column for each state"
        )
    begin, end = block(states)
    costs: dict[str, Array] = {}
    for name, file in _cost_files(P.path):
        cost = Matrix.described(file)
        if (cost.rows, cost.columns) != (states, actions):
            raise ValueError(
                f"{file!r} holds a matrix of {cost.rows} x {cost.columns}; expected costs of the model in {P.path!r}, "
                f"of {states} states x {actions} actions"
            )
        table = cost.part(begin, end)
        costs[name] = (table.toarray() if sp.issparse(table) else table).ravel()
    rows = P.part(begin * actions, end * actions)
    offered = ~np.any([np.isinf(cost) for cost in costs.values()], axis=0)
    pair = np.flatnonzero(offered)
    if pair.size < offered.size:
        rows, costs = rows[pair], {name: cost[pair] for name, cost in costs.items()}
    for array in (rows, *costs.values()):
        handed_over(array)
    return {"state": begin + pair // actions, "action": pair % actions, "transitions": rows, "costs": costs}


def write(mdp: MDP, path: Path) -> None:
    """Write the transitions, and each cost into a file beside them; what a state does not offer is an empty row.

    Names, the first state, labels and the discount are not written.
    """
    folder, name = os.path.split(file_name(path))
    before, after = _around(name)
    files = {cost: f"{before}{cost if cost in 'gr' else 'g_' + cost}{after}" for cost in mdp.costs}
    for cost in files:
        if not re.fullmatch(r"[\w .,=+-]+", cost):
            raise ValueError(f"the cost {cost!r} cannot be part of the name of a file; rename it")
    present = {*os.listdir(folder or "."), name, *files.values()}
    for file in present:
        read_as = _cost_in(file, before, after, present)
        if file in files.values() and (read_as is None or files.get(read_as) != file):
            raise ValueError(f"{file!r} would be taken for a cost of another model that is there; choose another name")
        if read_as is not None and file not in files.values():
            raise ValueError(
                f"{os.path.join(folder, file)!r} is there and would be read as part of the model; remove it or choose "
                "another name"
            )
    states, actions = mdp.num_states, len(mdp.actions)
    pair = mdp.state * actions + mdp.action
    for cost, file in files.items():
        table = np.full(states * actions, np.inf)
        table[pair] = mdp.costs[cost]
        write_matrix(os.path.join(folder, file), sp.csr_array(table.reshape(states, actions)))
    P = transitions_of(mdp)
    lengths = np.zeros(states * actions + 1, np.int64)
    lengths[pair + 1] = np.diff(P.indptr)
    write_matrix(path, sp.csr_array((P.data, P.indices, np.cumsum(lengths)), shape=(states * actions, states)))


def write_matrix(path: Path, matrix: Any) -> None:
    """Write a CSR array; whole numbers have 64 bits where 32 are too few."""
    rows, columns = matrix.shape
    whole = np.dtype(">i4" if max(rows, columns, matrix.nnz) < MANY else ">i8")
    head = np.array([MATRIX, rows, columns, matrix.nnz])
    with write_atomically(path) as file:
        for array, kind in [
            (head, whole), (np.diff(matrix.indptr), whole), (matrix.indices, whole), (matrix.data, VALUE),
        ]:  # fmt: skip
            for start in range(0, array.size, CHUNK):
                file.write(array[start : start + CHUNK].astype(kind).tobytes())


def _cost_files(path: str) -> Iterator[tuple[str, str]]:
    """Yield the names of costs and the files beside that of the transitions that hold them."""
    folder, name = os.path.split(path)
    before, after = _around(name)
    present = set(os.listdir(folder or "."))
    found: dict[str, str] = {}
    for file in sorted(present):
        cost = _cost_in(file, before, after, present)
        if cost is None:
            continue
        if cost in found:
            raise ValueError(f"{path!r} has two files with the cost {printable(cost)!r}: {found[cost]!r} and {file!r}")
        found[cost] = file
        yield cost, os.path.join(folder, file)
    if not found:
        raise ValueError(
            f"there is no file with costs beside {path!r}; they are in {before + 'g' + after!r} or, by name, in files "
            f"such as {before + 'g_time' + after!r}"
        )


def _cost_in(file: str, before: str, after: str, present: set[str]) -> str | None:
    """Return the cost that a file holds, or None where it holds none, or one of another model with a longer name."""
    found = re.fullmatch(f"{re.escape(before)}([gr])(?:_(.+))?{re.escape(after)}", file, re.DOTALL)
    if found is None or (found[2] and f"{before}P_{found[2]}{after}" in present):
        return None
    return found[2] or found[1]


def _around(name: str) -> tuple[str, str]:
    """Return what stands before and after the ``g`` in the names of files with costs.

    Examples
    --------
    >>> _around("P.bin"), _around("maze_P_25.bin"), _around("maze.bin")
    (('', '.bin'), ('maze_', '_25.bin'), ('maze_', '.bin'))
    """
    stem, ending = os.path.splitext(name)
    word = re.search(r"(?<![^\W_])P(?![^\W_])", stem)
    return (stem[: word.start()], stem[word.end() :] + ending) if word else (f"{stem}_", ending)


# ---------------------------------------------------------------------------------------------------- matrices


@dataclass(frozen=True)
class Matrix:
    """A matrix in a file, of which rows are read when they are asked for."""

    path: str
    rows: int
    columns: int
    entries: int
    """How many are stored, or -1 where all are."""
    whole: np.dtype[Any]
    """The type of its whole numbers."""

    @classmethod
    def described(cls, path: Path) -> Matrix:
        """Read what a file says of itself, and check that it is as long as that."""
        with open_to_read(path) as file:
            start = file.read(8)
            long = start == MATRIX.to_bytes(8, "big")
            if not long and start[:4] != MATRIX.to_bytes(4, "big"):
                if VECTOR in (int.from_bytes(start[:4], "big"), int.from_bytes(start, "big")):
                    raise ValueError("it holds a vector of PETSc; expected a matrix")
                raise ValueError(
                    f"it begins with {start[:4].hex(' ') or 'nothing'}; a matrix in the binary format of PETSc begins "
                    f"with {MATRIX.to_bytes(4, 'big').hex(' ')}"
                )
            whole = np.dtype(">i8" if long else ">i4")
            file.seek(0)
            _, rows, columns, entries = _numbers(file, 4, whole).tolist()
            if rows < 0 or columns < 0 or entries < DENSE:
                raise ValueError(f"it states {rows} rows, {columns} columns and {entries} entries")
            size, width = os.fstat(file.fileno()).st_size, whole.itemsize
            if entries == MANY and not long:
                entries = (size - (4 + rows) * width) // (width + VALUE.itemsize)
            numbers = 4 if entries == DENSE else 4 + rows + entries
            expected = numbers * width + VALUE.itemsize * (rows * columns if entries == DENSE else entries)
            if size != expected:
                stored = "all" if entries == DENSE else entries
                raise ValueError(
                    f"it has {size} bytes; a matrix of {rows} x {columns}, {stored} entries of which are stored in "
                    f"double precision, has {expected}"
                )
        return cls(file_name(path), rows, columns, entries, whole)

    def part(self, begin: int, end: int) -> Any:
        """Return some of its rows, as a CSR array, or as an array where it is stored densely."""
        width, count = self.whole.itemsize, end - begin
        with open_to_read(self.path) as file:
            if self.entries == DENSE:
                file.seek(4 * width + begin * self.columns * VALUE.itemsize)
                return _numbers(file, count * self.columns, VALUE).reshape(count, self.columns)
            indptr, before = self._row_ends(file, begin, end)
            stored = int(indptr[-1])
            file.seek((4 + self.rows + before) * width)
            columns = _numbers(file, stored, self.whole, self.columns)
            file.seek((4 + self.rows + self.entries) * width + before * VALUE.itemsize)
            values = _numbers(file, stored, VALUE)
        if stored <= np.iinfo(np.int32).max:  # else columns are copied
            indptr = indptr.astype(columns.dtype)
        return sp.csr_array((values, columns, indptr), shape=(count, self.columns))

    def _row_ends(self, file: IO[bytes], begin: int, end: int) -> tuple[Any, int]:
        """Return where these rows end among their entries, and how many entries are before them."""
        file.seek(4 * self.whole.itemsize)
        ends = np.zeros(end - begin + 1, np.int64)
        before = total = 0
        for first in range(0, self.rows, CHUNK):
            lengths = _numbers(file, min(CHUNK, self.rows - first), self.whole)
            if lengths.min() < 0:
                row = first + int(np.argmax(lengths < 0))
                raise ValueError(f"row {row} should have {int(lengths[row - first])} entries")
            low, high = np.clip([begin - first, end - first], 0, lengths.size)
            before += int(lengths[:low].sum(dtype=np.int64))
            ends[first + low - begin + 1 : first + high - begin + 1] = lengths[low:high] if high > low else 0
            total += int(lengths.sum(dtype=np.int64))
        if total != self.entries:
            raise ValueError(f"its rows have {total} entries in all; it states {self.entries}")
        return np.cumsum(ends), before


def _numbers(file: IO[bytes], count: int, kind: np.dtype[Any], below: int | None = None) -> Any:
    """Read numbers from where the file stands, all of at least 0 and ``below`` something, if that is given."""
    narrow = below is not None and below <= np.iinfo(np.int32).max
    found = np.empty(count, np.int32 if narrow else kind.newbyteorder("="))
    for done in range(0, count, CHUNK):
        part = np.frombuffer(file.read(min(CHUNK, count - done) * kind.itemsize), kind)
        if part.size < min(CHUNK, count - done):
            raise ValueError("it ends early")
        if below is not None and (wrong := np.flatnonzero((part < 0) | (part >= below))).size:
            raise ValueError(f"an entry is in column {part[wrong[0]]}; there are columns 0 to {below - 1}")
        found[done : done + part.size] = part
    return found
