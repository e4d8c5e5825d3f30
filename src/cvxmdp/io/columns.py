"""Columns of numbers from large text files: whole numbers, one float, and perhaps a name, apart by blanks.

A file is read in blocks, and a block by operations on arrays.  Only where something is wrong are its lines looked at
one by one, to say which.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cvxmdp.names import printable

BLOCK = 4 * 2**20
"""Bytes read at once.  Working on a block takes some ten times as much memory."""
WIDEST = 64
"""The longest number that is read, in characters."""
MOST_DIGITS = 18
"""The longest whole number: longer ones need not fit in 64 bits."""
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
"""How a float is written."""

Bytes = npt.NDArray[np.uint8]


class Lines:
    """The lines of a file, by number, one at a time or in blocks of many."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._held = b""
        self.size = os.fstat(file.fileno()).st_size
        """Bytes of the file."""
        self.number = 0
        """How many lines were taken."""

    def take(self) -> bytes | None:
        """Return the next line, without its end, or None at the end of the file."""
        line = self._file.readline(BLOCK)
        if not line:
            return None
        self.number += 1
        if len(line) == BLOCK and not line.endswith(b"\n"):
            raise ValueError(f"line {self.number} is longer than {BLOCK} characters")
        return line.strip()

    def put_back(self, line: bytes) -> None:
        """Let a line that was taken be the first of the blocks."""
        self._held = line + b"\n"
        self.number -= 1

    def content(self) -> Iterator[bytes]:
        """Yield the lines left that are neither empty nor comments."""
        while (line := self.take()) is not None:
            if line and not line.startswith(b"#"):
                yield line

    def blocks(self) -> Iterator[bytes]:
        """Yield what is left in blocks of whole lines, after each of which ``number`` counts its lines."""
        rest, last = self._held, False
        while not last:
            read = self._file.read(BLOCK)
            last = len(read) < BLOCK
            end = len(read) if last else read.rfind(b"\n") + 1
            if not last and not end:
                raise ValueError(f"line {self.number + 1} is longer than {BLOCK} characters")
            if block := rest + read[:end]:
                yield block
                self.number += block.count(b"\n")
            rest = read[end:]


class Rows(NamedTuple):
    """What a file holds, line by line."""

    whole: list[npt.NDArray[Any]]
    """The columns of whole numbers."""
    number: npt.NDArray[np.float64]
    """The column of floats."""
    name: npt.NDArray[np.int32] | None
    """Which of ``names`` stands on the line; None where no line has one."""
    names: list[str]
    """All names, with ``""`` for none."""


def read_rows(lines: Lines, limits: list[int], what: str, named: bool = False) -> Rows:
    """Read all lines that are left.

    Parameters
    ----------
    lines : Lines
        Of the file.
    limits : list of int
        For each column of whole numbers, what they are less than.
    what : str
        What a line holds, for messages, such as ``"state, target, probability"``.
    named : bool
        Whether lines may end in a name.  It is read on the first of successive lines that agree in all whole numbers
        but the last.
    """
    small = max(limits) <= np.iinfo(np.int32).max
    whole: list[list[Any]] = [[] for _ in limits]
    number: list[Any] = []
    name: list[Any] = []
    known = {b"": 0}
    for block in lines.blocks():
        try:
            columns, values, ids = _read_block(block, limits, named, known)
        except ValueError:
            _blame_line(block, lines.number, limits, what, named)
            raise
        for column, part in zip(whole, columns, strict=True):
            column.append(part.astype(np.int32 if small else np.int64))
        number.append(values)
        name.append(ids)
    return Rows(
        [_joined(column, np.int64) for column in whole],
        _joined(number, np.float64),
        _joined(name, np.int32) if len(known) > 1 else None,
        [text.decode() for text in known],
    )


def _joined(parts: list[Any], kind: Any) -> Any:
    """Join arrays, and let go of each list as soon as it is joined."""
    result = np.concatenate(parts) if parts else np.empty(0, kind)
    parts.clear()
    return result


def _read_block(block: bytes, limits: list[int], named: bool, known: dict[bytes, int]) -> tuple[list[Any], Any, Any]:
    if b"#" in block:  # comments are rare: blank them out, so that lines keep their numbers
        block = re.sub(rb"(?m)^[ \t]*#.*$", b"", block)
    text = np.frombuffer(block, np.uint8)
    blank = (text == ord(" ")) | ((text >= ord("\t")) & (text <= ord("\r")))
    edges = np.flatnonzero(np.diff(blank, prepend=True, append=True))
    starts, ends = edges[::2], edges[1::2]
    line_ends = np.flatnonzero(text == ord("\n"))
    after = np.searchsorted(starts, line_ends)  # how many words there are up to the end of each line
    counts = np.diff(after, prepend=0, append=starts.size)
    first = np.concatenate(([0], after))[counts > 0]
    counts = counts[counts > 0]
    least = len(limits) + 1
    if counts.size and not least <= counts.min() <= counts.max() <= least + named:
        raise ValueError("wrong number of words")
    columns = [_whole(text, starts[first + k], ends[first + k], limit) for k, limit in enumerate(limits)]
    values = _floats(text, starts[first + least - 1], ends[first + least - 1])
    ids = np.zeros(first.size, np.int32)
    if counts.size and counts.max() > least:
        new = np.zeros(first.size, bool)
        new[0] = True
        for column in columns[:-1]:
            new[1:] |= column[1:] != column[:-1]
        heads = np.flatnonzero(new)
        words = [
            block[starts[w] : ends[w]] if n > least else b""
            for w, n in zip((first[heads] + least).tolist(), counts[heads].tolist(), strict=True)
        ]
        for word in {*words} - known.keys():
            word.decode()  # what is not UTF-8 is an error
        ids = np.array([known.setdefault(word, len(known)) for word in words], np.int32)[np.cumsum(new) - 1]
    return columns, values, ids


def _whole(text: Bytes, starts: Any, ends: Any, limit: int) -> npt.NDArray[np.int64]:
    """Read words of digits."""
    width = ends - starts
    value = np.zeros(starts.size, np.int64)
    if not starts.size:
        return value
    if width.max() > MOST_DIGITS:
        raise ValueError("too long")
    for k in range(int(width.max())):
        inside = width > k
        digit = text[starts[inside] + k] - np.uint8(ord("0"))  # what is less than "0" wraps around
        if digit.max() > 9:
            raise ValueError("not a digit")
        value[inside] = value[inside] * 10 + digit
    if value.max() >= limit:
        raise ValueError("too large")
    return value


IN_NUMBERS = np.zeros(256, bool)
IN_NUMBERS[np.frombuffer(b"0123456789+-.eE", np.uint8)] = True
"""Which bytes may stand in a number."""


def _floats(text: Bytes, starts: Any, ends: Any) -> npt.NDArray[np.float64]:
    """Read words that are floats."""
    width = ends - starts
    if not starts.size:
        return np.empty(0)
    widest = int(width.max())
    if widest > WIDEST:
        raise ValueError("too long")
    words = np.zeros((starts.size, widest), np.uint8)
    for k in range(widest):
        inside = width > k
        letter = text[starts[inside] + k]
        if not IN_NUMBERS[letter].all():
            raise ValueError("not a number")
        words[inside, k] = letter
    values: npt.NDArray[np.float64] = words.view(f"S{widest}").ravel().astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("too large")
    return values


def _blame_line(block: bytes, before: int, limits: list[int], what: str, named: bool) -> None:
    """Say which line of a block is wrong, and what it should be."""
    least = len(limits) + 1
    for i, line in enumerate(block.split(b"\n"), before + 1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        where = f"line {i} is {shown(line)}; expected {what}"
        if not least <= len(words) <= least + named:
            raise ValueError(f"{where}, which is {least} words, not {len(words)}")
        for word, limit in zip(words, limits, strict=False):
            if not word.isdigit() or len(word) > MOST_DIGITS or int(word) >= limit:
                raise ValueError(f"{where}, where {shown(word)} should be a whole number from 0 to {limit - 1}")
        value = words[least - 1]
        if value.startswith(b"["):
            raise ValueError(f"line {i} holds an interval, {shown(value)}; models of intervals are not read")
        if b"/" in value:
            raise ValueError(f"line {i} holds a fraction, {shown(value)}; export decimal numbers")
        if not NUMBER.fullmatch(value) or len(value) > WIDEST or not np.isfinite(float(value)):
            raise ValueError(f"{where}, where {shown(value)} should be a number")
        for word in words[least:]:
            decoded(word, i)


def decoded(text: bytes, line: int) -> str:
    """Return a name that a line holds."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise ValueError(f"line {line} holds {shown(text)}, which is not text in UTF-8") from None


def shown(text: bytes) -> str:
    """Return what a file holds as part of a message."""
    return repr(printable(text[:60].decode(errors="replace")))
