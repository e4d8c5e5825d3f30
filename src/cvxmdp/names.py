"""Names of states and actions: the user's, or their numbers."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any, overload

import numpy as np
import numpy.typing as npt


class Numbers(Sequence[str]):
    """The numbers from 0 up as names, ``("0", "1", ...)``, made when asked for: a million of them take no memory.

    Examples
    --------
    >>> names = Numbers(3)
    >>> names[2], names.index("1"), "3" in names
    ('2', 1, False)
    """

    def __init__(self, count: int) -> None:
        self._numbers = range(count)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        chosen = self._numbers[index]
        return str(chosen) if isinstance(chosen, int) else tuple(map(str, chosen))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.isdecimal() and str(int(name)) == name and int(name) < len(self)

    def index(self, name: str, start: int = 0, stop: int | None = None) -> int:
        """Return the number a name stands for."""
        if name not in self or int(name) not in self._numbers[start:stop]:
            raise ValueError(f"{name!r} is not among {len(self)} numbers")
        return int(name)

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, Numbers):
            return len(self) == len(other)
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Numbers({len(self)})"


class Formed(Sequence[str]):
    """Names of one form with numbers in them, made when asked for: millions of them take no memory.

    Parameters
    ----------
    form : str
        With ``{}`` for each number.
    count : int
        How many names there are.
    numbers : function
        Of an array of positions: one array for each ``{}``.

    Examples
    --------
    >>> cells = Formed("r{}c{}", 9, lambda cell: np.divmod(cell, 3))
    >>> cells[5], cells[-2:], cells.index("r1c0"), len(cells)
    ('r1c2', ('r2c1', 'r2c2'), 3, 9)
    """

    def __init__(
        self, form: str, count: int, numbers: Callable[[npt.NDArray[np.int64]], Iterable[npt.NDArray[np.int64]]]
    ) -> None:
        self._form, self._count, self._numbers = form, count, numbers

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        chosen = range(self._count)[index]
        return tuple(self._made(chosen)) if isinstance(chosen, range) else next(self._made(range(chosen, chosen + 1)))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, self._count, MADE):
            yield from self[start : start + MADE]

    def index(self, name: str, start: int = 0, stop: int | None = None) -> int:
        """Return the position of a name."""
        for position, known in enumerate(self):
            if known == name and position in range(self._count)[start:stop]:
                return position
        raise ValueError(f"{name!r} is not among {self._count} names")

    def _made(self, chosen: range) -> Iterator[str]:
        columns = self._numbers(np.arange(chosen.start, chosen.stop, chosen.step))
        return map(self._form.format, *(column.tolist() for column in columns))


MADE = 1 << 13
"""So many names are made at a time."""
MOST_SEARCHED = 10_000
"""Among so many names a similar one is looked for: that takes some hundredths of a second."""
MOST_LISTED = 8
"""So many names fit in a message."""
LONGEST_SHOWN = 60
"""So many characters of a name are shown in a message."""


def no_such(kind: str, name: str, names: Iterable[str]) -> str:
    """Say that nothing has this name, and what was meant, or which names there are.

    Examples
    --------
    >>> no_such("cost", "tiem", ["time", "collision"])
    "there is no cost called 'tiem'; did you mean 'time'?"
    >>> no_such("cost", "x", ["time", "collision"])
    "there is no cost called 'x'; there are 'time', 'collision'"
    """
    known = [str(known) for _, known in zip(range(MOST_SEARCHED), names, strict=False)]
    near = difflib.get_close_matches(name, known, n=1) or [n for n in known if n.casefold() == name.casefold()]
    if near:
        meant = f"did you mean {_quoted(near[0])}?"
    elif known:
        more = ", ..." if len(known) > MOST_LISTED else ""
        meant = f"there {'are' if len(known) > 1 else 'is'} {', '.join(map(_quoted, known[:MOST_LISTED]))}{more}"
    else:
        meant = "there are none"
    return printable(f"there is no {kind} called {_quoted(name)}; {meant}")


def _quoted(name: str) -> str:
    return repr(name if len(name) <= LONGEST_SHOWN else f"{name[: LONGEST_SHOWN - 1]}…")


def read_names(what: str, names: Sequence[str] | None, count: int) -> Sequence[str]:
    """Read the names of ``count`` states, or of at least as many actions; numbers where none are given."""
    if names is None:
        return Numbers(count)
    if isinstance(names, Numbers) and len(names) == count:
        return names
    if not isinstance(names, Iterable):
        raise ValueError(f"{what} must be a list of names, not {names!r}")
    result = tuple(name if type(name) is str else _read(what, name) for name in names)
    if len(result) < count or (what == "states" and len(result) != count):
        raise ValueError(f"{what} has {len(result)} names; the model has {count} {what}")
    if len(set(result)) != len(result):
        twice = Counter(result).most_common(1)[0][0]
        raise ValueError(f"{what} holds the name {twice!r} twice; names must differ")
    return result


def _read(what: str, name: Any) -> str:
    if isinstance(name, bool) or not isinstance(name, (str, Integral)):
        raise ValueError(f"{what} holds {name!r}, a {type(name).__name__}; names are strings or whole numbers")
    return str(name)


def printable(text: str) -> str:
    r"""Return a text with all that is not shown as a character, such as commands to a terminal, as escapes.

    Examples
    --------
    >>> printable("café"), printable("a\x1b[2J\nb")
    ('café', 'a\\x1b[2J\\nb')
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def spreadsheet_safe(text: str) -> str:
    """Return a printable text that no spreadsheet takes for a formula: an apostrophe is put before one.

    Examples
    --------
    >>> spreadsheet_safe("=1+1"), spreadsheet_safe("left")
    ("'=1+1", 'left')
    """
    return f"'{printable(text)}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else printable(text)


def brief(text: str, most: int) -> str:
    """Return a printable text of at most so many characters; a longer one ends in an ellipsis.

    Examples
    --------
    >>> brief("collision", 9), brief("collision", 8)
    ('collision', 'collisi…')
    """
    shown = printable(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
