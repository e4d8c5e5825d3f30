"""Reading what a file says: every key is expected, of the right type and finite, and nothing is left over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cvxmdp_verifier.errors import Refused, shown
from cvxmdp_verifier.extended import CHUNK, Matrix


def has_keys(entry: Any, keys: Sequence[str], what: str, optional: Sequence[str] = ()) -> None:
    """Refuse what is not an object with exactly these keys, and perhaps the optional ones."""
    if not isinstance(entry, dict):
        raise Refused(f"{what} is not an object with named fields")
    for key in keys:
        if key not in entry:
            raise Refused(f"{what} lacks the field {key!r}")
    for key in entry:
        if key not in keys and key not in optional:
            raise Refused(f"{what} has a field that is not known: {shown(key)!r}")


def number(value: Any, what: str, infinite: bool = False) -> float:
    """Return a number; ``"inf"`` and ``"-inf"`` only where they are meant."""
    if infinite and isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"{what} is not a number")
    try:
        result = float(value)
    except OverflowError:
        raise Refused(f"{what} is not a number that fits a float") from None
    if not math.isfinite(result):
        raise Refused(f"{what} is not a finite number")
    return result


def integer(value: Any, what: str) -> int:
    """Return an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{what} is not an integer")
    return value


def text(value: Any, what: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise Refused(f"{what} is not text")
    return value


def items(value: Any, what: str) -> list[Any]:
    """Return a list."""
    if not isinstance(value, list):
        raise Refused(f"{what} is not a list")
    return value


def names(value: Any, what: str) -> list[str]:
    """Return a list of strings that are all different."""
    found = [text(name, f"a name in {what}") for name in items(value, what)]
    if len(set(found)) < len(found):
        raise Refused(f"{what} names something twice")
    return found


class Arrays:
    """The arrays of a file.  Each one is asked for with the shape it must have; what nobody asked for is refused."""

    def __init__(self, arrays: Any, what: str) -> None:
        if not isinstance(arrays, Mapping):
            raise Refused(f"the arrays of the {what} are not a mapping from names to arrays")
        self._arrays, self._what, self._used = arrays, what, set[str]()
        for name, array in arrays.items():
            if not isinstance(name, str) or not isinstance(array, np.ndarray):
                raise Refused(f"the {what} has an array {shown(name)!r} that is no array with a name")

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def _raw(self, name: str) -> Any:
        if name not in self._arrays:
            raise Refused(f"the {self._what} lacks the array {shown(name)!r}")
        self._used.add(name)
        return self._arrays[name]

    def _shaped(self, name: str, shape: tuple[int, ...] | None) -> Any:
        array = self._raw(name)
        if shape is not None and array.shape != shape:
            raise Refused(f"the array {shown(name)!r} of the {self._what} has shape {array.shape} in place of {shape}")
        return array

    def floats(
        self,
        name: str,
        shape: tuple[int, ...] | None,
        infinite: bool = False,
        nan: bool = False,
        least: float = -np.inf,
    ) -> Any:
        """Return an array of float64."""
        array = self._shaped(name, shape)
        if array.dtype != np.float64:
            raise Refused(f"the array {shown(name)!r} of the {self._what} holds {array.dtype} in place of float64")
        flat = array.ravel()
        for k in range(0, array.size, CHUNK):
            some = flat[k : k + CHUNK]
            if np.any((np.isnan(some) & (not nan)) | (np.isinf(some) & (not infinite))):
                raise Refused(f"the array {shown(name)!r} of the {self._what} has an entry that is not finite")
            if np.any(some < least):
                raise Refused(f"the array {shown(name)!r} of the {self._what} has an entry below {least:g}")
        return array

    def ints(self, name: str, shape: tuple[int, ...] | None, below: int) -> Any:
        """Return an array of integers of 32 or 64 bits, from 0 up to but not including ``below``."""
        array = self._shaped(name, shape)
        if array.dtype.kind not in "iu":
            raise Refused(f"the array {shown(name)!r} of the {self._what} holds {array.dtype} in place of integers")
        if array.size and (array.min() < 0 or array.max() >= below):
            raise Refused(f"the array {shown(name)!r} of the {self._what} has an entry outside 0 to {below - 1}")
        return array if array.dtype == np.int32 else array.astype(np.int64, copy=False)

    def bools(self, name: str, shape: tuple[int, ...]) -> Any:
        """Return an array of booleans."""
        array = self._shaped(name, shape)
        if array.dtype != np.bool_:
            raise Refused(f"the array {shown(name)!r} of the {self._what} holds {array.dtype} in place of booleans")
        return array

    def dims(self, name: str) -> int:
        """Return how many dimensions an array has."""
        return int(self._raw(name).ndim)

    def matrix(self, name: str, columns: int, rows: int | None = None) -> Matrix:
        """Return a matrix, dense under its name or compressed by rows under four."""
        if name in self:
            dense = self.floats(name, None)
            if dense.ndim != 2 or dense.shape[1] != columns or rows not in (None, dense.shape[0]):
                raise Refused(f"the array {shown(name)!r} of the {self._what} has the wrong shape {dense.shape}")
            return Matrix(dense)
        if f"{name}_data" not in self:
            raise Refused(f"the {self._what} lacks the array {shown(name)!r}")
        shape = [int(n) for n in self.ints(f"{name}_shape", (2,), 2**62)]
        if shape[1] != columns or rows not in (None, shape[0]):
            raise Refused(f"the matrix {shown(name)!r} of the {self._what} has the wrong shape {tuple(shape)}")
        data = self.floats(f"{name}_data", None)
        if data.ndim != 1:
            raise Refused(f"the array {shown(name + '_data')!r} of the {self._what} has more than one dimension")
        indices = self.ints(f"{name}_indices", data.shape, columns)
        indptr = self.ints(f"{name}_indptr", (shape[0] + 1,), data.size + 1).astype(np.int64, copy=False)
        if indptr[0] != 0 or indptr[-1] != data.size or np.any(indptr[1:] < indptr[:-1]):
            raise Refused(f"the array {shown(name + '_indptr')!r} of the {self._what} leads astray")
        matrix = Matrix(data=data, indices=indices, indptr=indptr, shape=shape)
        for chunk in matrix.chunks():
            place = np.repeat(np.arange(chunk.stop - chunk.start), np.diff(chunk.offsets)) * columns + chunk.columns
            if np.any(place[1:] <= place[:-1]):
                place = np.sort(place)
                if np.any(place[1:] == place[:-1]):
                    raise Refused(f"the matrix {shown(name)!r} of the {self._what} has an entry twice")
        return matrix

    def nothing_left(self) -> None:
        """Refuse arrays that mean nothing."""
        for name in self._arrays:
            if name not in self._used:
                raise Refused(f"the {self._what} has an array that is not known: {shown(name)!r}")
