"""Names of states or actions in columns of a table, as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int32]

DIRECT = 2**24
"""Names that are whole numbers below this are looked up in an array, of 64 MB at the most, and not by their text."""
MISSING = frozenset({"<NA>", "NaT"})
"""How pandas spells a missing entry that is not a number."""
NO_NAME = "the name is missing"


class Numbering:
    """Gives each name a code, from 0 up, in any order.  The number 7 and the text "7" are one name.

    Examples
    --------
    >>> numbering = Numbering()
    >>> numbering.codes(["left", "right", 7, "left"]), numbering.codes(np.array([7, 8]))
    (array([0, 1, 2, 0], dtype=int32), array([2, 3], dtype=int32))
    >>> numbering.names()
    ['left', 'right', '7', '8']
    """

    def __init__(self) -> None:
        self._direct: Codes = np.empty(0, dtype=np.int32)
        self._other: dict[str, int] = {}
        self.count = 0

    def codes(self, column: Any) -> Codes:
        """Return the code of each entry of a column, a sequence of texts and numbers.

        Raises
        ------
        RowError
            Where an entry is missing.
        """
        values = column if isinstance(column, np.ndarray) else np.array(column, dtype=object)
        if values.ndim != 1:
            raise ValueError(f"it has shape {values.shape}; give one name for each row")
        if values.dtype.kind in "fmM" and (bad := np.flatnonzero(np.isnan(values))).size:
            raise RowError(int(bad[0]), NO_NAME)
        if values.dtype.kind in "mM":  # times
            values = values.astype(str)
        if values.dtype.kind in "iu":
            return self.of_numbers(values)
        found: dict[Any, int] = {}
        try:
            place = np.fromiter((found.setdefault(v, len(found)) for v in values.tolist()), np.int64, values.size)
        except TypeError:  # not hashable
            raise ValueError("it holds lists or the like; names are texts or numbers") from None
        names = [entry if type(entry) is str else _name(entry) for entry in found]
        present = [name for name in names if name is not None]
        if len(present) < len(names):
            raise RowError(int(np.argmax(place == names.index(None))), NO_NAME)
        return self.of_texts(present)[place]

    def of_numbers(self, values: npt.NDArray[Any]) -> Codes:
        """Return the codes of names that are whole numbers."""
        if not values.size:
            return np.empty(0, dtype=np.int32)
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= DIRECT:
            distinct, place = np.unique(values, return_inverse=True)
            return self.of_texts(map(str, distinct.tolist()))[place]
        if high >= self._direct.size:
            wider = np.full(min(DIRECT, max(high + 1, 2 * self._direct.size)), -1, dtype=np.int32)
            wider[: self._direct.size] = self._direct
            self._direct = wider
        codes: Codes = self._direct[values]
        unknown = codes < 0
        if np.any(unknown):
            new = np.unique(values[unknown])
            self._direct[new] = np.arange(self.count, self.count + new.size)
            self.count += new.size
            codes = self._direct[values]
        return codes

    def of_texts(self, names: Iterable[str]) -> Codes:
        """Return the codes of names that are texts, which may be of whole numbers."""
        known = self._other.get
        return np.array(
            [self._of_text(name) if (code := known(name)) is None else code for name in names], dtype=np.int32
        )

    def _of_text(self, name: str) -> int:
        """Return the code of a name that is not among the others yet."""
        # Only the usual spelling is a number: "07" and "7" are two names.
        if name.isascii() and name.isdecimal() and len(name) < 9 and (name[0] != "0" or name == "0"):
            number = int(name)
            if number < DIRECT:
                return int(self.of_numbers(np.array([number]))[0])
        self._other[name] = self.count
        self.count += 1
        return self.count - 1

    def numbers(self) -> Codes | None:
        """Return the number that each code stands for, where all names together are the numbers from 0 up."""
        if self._other or self.count > self._direct.size or np.any(self._direct[: self.count] < 0):
            return None
        numbers = np.empty(self.count, dtype=np.int32)
        numbers[self._direct[: self.count]] = np.arange(self.count, dtype=np.int32)
        return numbers

    def names(self) -> list[str]:
        """Return the names by code."""
        names = [""] * self.count
        for number in np.flatnonzero(self._direct >= 0).tolist():
            names[self._direct[number]] = str(number)
        for name, code in self._other.items():
            names[code] = name
        return names


class RowError(ValueError):
    """What is wrong in a row of a table, counted from 0."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


def _name(entry: Any) -> str | None:
    """Return the name of an entry that is not a text, or None where it is missing."""
    if isinstance(entry, bytes):
        raise ValueError(f"it holds bytes, {entry[:20]!r}; names are texts or numbers")
    if entry is None or (isinstance(entry, float) and entry != entry) or (text := str(entry)) in MISSING:
        return None
    # Whole numbers with a missing one among them become floats in pandas.
    return str(int(entry)) if isinstance(entry, float) and entry.is_integer() else text
