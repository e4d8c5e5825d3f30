"""Arrays whose entries live on several ranks, so that engines need not know.

A vector over states or pairs is held in parts, one a rank.  What is done entry by entry is done on each part; sums,
minima and products are made of all parts, and every rank has them.  So an expression such as ``c @ d`` or
``np.max(x)`` means what it means on one machine, and every rank takes the same branches.  A position, as an entry of
``np.flatnonzero(x)`` or of the owners of pairs, counts within a rank's own part.

A few numbers that all ranks hold may follow the entries, as the price that follows a vector: the *tail*.

What is not known to mean the same on all ranks raises ``TypeError``: nothing is ever computed of one part unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cvxmdp.ranks.world import ALONE

Plain = np.ndarray[Any, Any]


class World(Protocol):
    """All ranks together: what they have in sum, at least and at most; entry by entry, on all ranks the same."""

    rank: int
    size: int

    def total(self, part: Any) -> Any:
        """Return the sum over ranks."""
        ...

    def least(self, part: Any) -> Any:
        """Return the minimum over ranks."""
        ...

    def largest(self, part: Any) -> Any:
        """Return the maximum over ranks."""
        ...

    def gathered(self, part: Any) -> list[Any]:
        """Return what each rank has, in their order."""
        ...


class Scattered(NDArrayOperatorsMixin):
    """An array in parts, see the module.

    Parameters
    ----------
    local : ndarray with one or two axes
        This rank's part.
    world : World
        All ranks.
    axis : int
        The axis that is cut into parts.
    tail : ndarray, optional
        Numbers that all ranks hold and that follow a vector's entries.
    count : int, optional
        How many entries all ranks have along the axis, if that is known.
    """

    __slots__ = ("_count", "axis", "local", "tail", "world")

    def __init__(
        self, local: Plain, world: World, axis: int = 0, tail: Plain | None = None, count: int | None = None
    ) -> None:
        self.local, self.world, self.axis, self.tail, self._count = local, world, axis, tail, count

    def __array__(self, *args: Any, **kwargs: Any) -> Plain:
        raise TypeError("the entries of this array live on several ranks; it is no array of one of them")

    def __repr__(self) -> str:
        return f"Scattered({self.local!r}, tail={self.tail!r}) on rank {self.world.rank} of {self.world.size}"

    def __float__(self) -> float:
        raise TypeError("a scattered array is no number")

    @property
    def count(self) -> int:
        """How many entries all ranks have along the axis that is cut, but for the tail."""
        if self._count is None:
            self._count = int(self.world.total(self.local.shape[self.axis]))
        return self._count

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        whole = list(self.local.shape)
        whole[self.axis] = self.count + (0 if self.tail is None else self.tail.size)
        return tuple(whole)

    @property
    def size(self) -> int:
        """How many numbers the whole has."""
        return int(np.prod(self.shape))

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return int(self.local.ndim)

    @property
    def dtype(self) -> Any:
        """The kind of its numbers."""
        return self.local.dtype

    @property
    def flags(self) -> Any:
        """Of this rank's part."""
        return self.local.flags

    @property
    def T(self) -> Scattered:  # noqa: N802
        """The transpose."""
        return self if self.ndim == 1 else Scattered(self.local.T, self.world, 1 - self.axis, count=self._count)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Scattered]:
        if self.ndim != 2 or self.axis != 1:
            raise TypeError("only the rows of a scattered array can be taken one after the other")
        return (self[k] for k in range(self.local.shape[0]))

    def copy(self) -> Scattered:
        """Return a copy."""
        return self._like(self.local.copy(), None if self.tail is None else self.tail.copy())

    def astype(self, dtype: Any, copy: bool = True) -> Scattered:
        """Return the numbers as another kind."""
        tail = None if self.tail is None else self.tail.astype(dtype, copy=copy)
        return self._like(self.local.astype(dtype, copy=copy), tail)

    def ravel(self) -> Scattered:
        """Return a vector, or a matrix of one row as one."""
        if self.ndim == 1:
            return self
        if self.local.shape[1 - self.axis] != 1:
            raise TypeError("several scattered rows are no vector")
        return Scattered(self.local.ravel(), self.world, count=self._count)

    def _like(self, local: Plain, tail: Plain | None = None, axis: int | None = None) -> Scattered:
        """Wrap what was done entry by entry."""
        axis = self.axis if axis is None else axis
        same = local.shape[axis] == self.local.shape[self.axis]
        return Scattered(local, self.world, axis, tail, self._count if same else None)

    def sum(self, axis: int | None = None) -> Any:
        """Return sums over all entries, or along an axis."""
        return self._reduced(np.add, axis)

    def min(self, axis: int | None = None, initial: Any = None) -> Any:
        """Return the least entry, or those along an axis."""
        return self._reduced(np.minimum, axis, initial)

    def max(self, axis: int | None = None, initial: Any = None) -> Any:
        """Return the largest entry, or those along an axis."""
        return self._reduced(np.maximum, axis, initial)

    def any(self, axis: int | None = None) -> Any:
        """Say whether some entry is true."""
        return self._reduced(np.logical_or, axis)

    def all(self, axis: int | None = None) -> Any:
        """Say whether all entries are true."""
        return self._reduced(np.logical_and, axis)

    def mean(self, axis: int | None = None) -> Any:
        """Return means over all entries, or along an axis."""
        over = self.size if axis is None else self.shape[axis]
        return self._reduced(np.add, axis) / over

    def _reduced(self, ufunc: Any, axis: Any, initial: Any = None) -> Any:
        if ufunc not in _OVER_RANKS:
            raise TypeError(f"{ufunc} is not reduced over ranks")
        axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
        if axis is not None and axis % self.ndim != self.axis:
            part = ufunc.reduce(self.local, axis=axis, **({} if initial is None else {"initial": initial}))
            return self._like(part, axis=0)
        how, nothing = _OVER_RANKS[ufunc]
        local = self.local if axis is not None or self.ndim == 1 else self.local.ravel()
        empty = local.shape[self.axis if local.ndim == 2 else 0] == 0
        if empty and nothing is not None:
            rest = tuple(n for k, n in enumerate(local.shape) if k != (self.axis if local.ndim == 2 else 0))
            part = np.full(rest, _extreme(self.dtype, nothing), dtype=self.dtype)
        else:
            part = ufunc.reduce(local, axis=self.axis if local.ndim == 2 else 0)
        if ufunc in (np.logical_and, np.logical_or):
            part = np.asarray(part).astype(np.int8)
        found = getattr(self.world, how)(part)
        if ufunc in (np.logical_and, np.logical_or):
            found = np.asarray(found).astype(bool)[()]
        if self.tail is not None:
            found = ufunc(found, ufunc.reduce(self.tail))
        if initial is not None:
            found = ufunc(found, initial)
        if self.dtype.kind in "iu" and ufunc in (np.minimum, np.maximum):
            found = np.asarray(found).astype(self.dtype)[()]
        return found

    def __getitem__(self, key: Any) -> Any:
        if self.tail is not None:
            if isinstance(key, slice) and key == slice(None, -self.tail.size):
                return self._like(self.local)
            if isinstance(key, int) and -self.tail.size <= key < 0:
                return self.tail[key]
            raise TypeError("of a scattered array with a tail only [:-n] and the tail can be taken")
        if isinstance(key, Scattered):
            if self.axis != 0:
                raise TypeError("positions count along the axis that is cut")
            return Scattered(self.local[key.local], self.world)
        if isinstance(key, slice) and key == slice(None):
            return self
        if self.ndim == 1 and isinstance(key, slice) and key.start is None and key.stop is None:
            return Scattered(self.local[key], self.world)  # some of each part
        if self.ndim == 1 and key is None:
            return self._like(self.local[None], axis=1)
        if self.ndim == 1 and isinstance(key, tuple) and len(key) == 2 and key[0] == slice(None) and key[1] is None:
            return self._like(self.local[:, None])
        if self.ndim == 2 and self.axis == 1 and not isinstance(key, tuple):
            found = self.local[key]
            return self._like(found, axis=found.ndim - 1)
        both = self.ndim == 2 and isinstance(key, tuple) and len(key) == 2 and not isinstance(key[0], Scattered)
        if both and isinstance(key[self.axis], slice) and key[self.axis] == slice(None):
            found = self.local[key]
            return self._like(found, axis=self.axis if found.ndim == 2 else 0)
        raise TypeError(f"{key!r} does not mean the same on all ranks")

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.tail is not None:
            raise TypeError("a scattered array with a tail is not written to")
        if isinstance(key, Scattered) and self.axis == 0:
            self.local[key.local] = _part(value)
        elif isinstance(key, slice) and key == slice(None):
            self.local[:] = _part(value)
        elif self.ndim == 2 and isinstance(key, tuple) and key[self.axis] == slice(None):
            self.local[key] = _part(value)
        else:
            raise TypeError(f"{key!r} does not mean the same on all ranks")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "at":
            ufunc.at(*(_part(x) for x in inputs))
            return None
        if method == "reduceat":
            starts = _part(inputs[1])
            return Scattered(ufunc.reduceat(_part(inputs[0]), starts), self.world)
        if method == "reduce":
            return inputs[0]._reduced(ufunc, kwargs.get("axis", 0), kwargs.get("initial"))
        if method != "__call__":
            return NotImplemented
        if ufunc is np.matmul:
            return _product(*inputs)
        return _entry_by_entry(ufunc, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        known = _FUNCTIONS.get(function)
        if known is None:
            raise TypeError(
                f"numpy.{function.__name__} of a scattered array is not known to mean the same on all ranks"
            )
        return known(*args, **kwargs)


_OVER_RANKS: dict[Any, tuple[str, Any]] = {
    np.add: ("total", None),
    np.minimum: ("least", np.inf),
    np.maximum: ("largest", -np.inf),
    np.logical_and: ("least", None),
    np.logical_or: ("largest", None),
}
"""Reductions that are known: how ranks agree, and what a rank without entries says."""


def _extreme(dtype: Any, nothing: float) -> Any:
    """Return what a rank without entries says, as a number of the others' kind: else messages would not fit."""
    if dtype.kind == "f":
        return nothing
    limits = np.iinfo(dtype)
    return limits.max if nothing > 0 else limits.min


def _part(x: Any) -> Any:
    return x.local if isinstance(x, Scattered) else x


def _scattered(inputs: Sequence[Any]) -> Scattered:
    """Return the input that says how the result is cut: one with two axes, if there is one."""
    found = [x for x in inputs if isinstance(x, Scattered)]
    return max(found, key=lambda x: x.ndim)


def _entry_by_entry(function: Callable[..., Any], inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Apply a function to each part, once it is clear that the parts belong together."""
    like = _scattered([*inputs, kwargs.get("where")])
    for x in inputs:
        _check_beside(like, x)
    out = kwargs.pop("out", None)
    target = out[0] if isinstance(out, tuple) else out
    where = kwargs.pop("where", None)
    if where is not None and where is not True:
        kwargs["where"] = _part(where)
    if target is not None:
        kwargs["out"] = _part(target)
    local = function(*(_part(x) for x in inputs), **kwargs)
    tail = None
    if like.tail is not None:
        tail = function(*(x.tail if isinstance(x, Scattered) else x for x in inputs))
        if target is not None:
            target.tail[...] = tail
    if target is not None:
        return target
    return like._like(local, tail)


def _check_beside(like: Scattered, x: Any) -> None:
    """Refuse a plain array beside scattered ones, unless it is the same for all their entries."""
    if isinstance(x, Scattered):
        if (x.tail is None) != (like.tail is None):
            raise TypeError("one scattered array has a tail, the other has none")
        if x.ndim == like.ndim and x.axis != like.axis:
            raise TypeError("scattered arrays are cut along different axes")
        if x.ndim < like.ndim and like.axis != 1:
            raise TypeError("a scattered vector goes with scattered rows only")
        return
    shape = np.shape(x)
    if not shape or shape == (1,):
        return
    along = len(shape) - like.ndim + like.axis
    if along >= 0 and shape[along] != 1:
        raise TypeError(f"a plain array of shape {shape} beside a scattered one means something else on every rank")


def _product(a: Any, b: Any) -> Any:
    """``a @ b``: a sum over ranks where entries meet that are cut, else a part of the result on each rank."""
    world = _scattered([a, b]).world
    if isinstance(a, Scattered) and isinstance(b, Scattered):
        if a.axis != a.ndim - 1 or b.axis != 0:
            raise TypeError("a product of scattered arrays has to run along the axis that is cut")
        found = world.total(a.local @ b.local)
        if a.tail is not None and b.tail is not None:
            found = found + a.tail @ b.tail
        return found
    if isinstance(a, Scattered):
        if a.ndim != 2 or a.axis != 0:
            raise TypeError("a plain array has no part for each rank")
        return a._like(a.local @ b, axis=0)
    if b.ndim != 2 or b.axis != 1:
        raise TypeError("a plain array has no part for each rank")
    found = a @ b.local
    return b._like(found, axis=found.ndim - 1)


def _norm(x: Scattered, ord: Any = None, axis: Any = None) -> Any:
    if axis is not None:
        return np.sqrt((x * x).sum(axis=axis))
    if ord == 1:
        return np.abs(x).sum()
    if ord is not None and np.isinf(ord):
        return np.abs(x).max(initial=0.0)
    if ord is None or ord == 2:
        flat = x.local.ravel()
        square = x.world.total(flat @ flat)
        return np.sqrt(square if x.tail is None else square + x.tail @ x.tail)
    return (np.abs(x) ** ord).sum() ** (1 / ord)


def _stack(arrays: Sequence[Scattered], axis: int = 0) -> Scattered:
    first = arrays[0]
    return first._like(np.stack([x.local for x in arrays], axis=axis), axis=1 - axis)


def _tile(x: Scattered, times: tuple[int, int]) -> Scattered:
    if x.ndim != 1 or x.tail is not None or times[1:] != (1,):
        raise TypeError("a scattered vector is repeated as rows only")
    return x._like(np.tile(x.local, times), axis=1)


def _vstack(arrays: Sequence[Scattered]) -> Scattered:
    first = arrays[0]
    return Scattered(np.vstack([x.local for x in arrays]), first.world, 1, count=first._count)


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Scattered:
    like = _scattered(arrays)
    if not all(isinstance(x, Scattered) and x.ndim == 1 and x.tail is None for x in arrays):
        raise TypeError("scattered and plain arrays are not put one after the other")
    return Scattered(np.concatenate([x.local for x in arrays]), like.world)


def _append(x: Scattered, more: Any) -> Scattered:
    if x.tail is not None or x.ndim != 1 or isinstance(more, Scattered):
        raise TypeError("only a few plain numbers may follow a scattered vector")
    return x._like(x.local, np.atleast_1d(np.asarray(more, dtype=x.dtype)))


def _filled(make: Callable[..., Plain]) -> Callable[..., Scattered]:
    def filled(x: Scattered, *args: Any, dtype: Any = None, **kwargs: Any) -> Scattered:
        tail = None if x.tail is None else make(x.tail, *args, dtype=dtype)
        return x._like(make(x.local, *(_part(a) for a in args), dtype=dtype), tail)

    return filled


def _bincount(owner: Scattered, weights: Scattered | None = None, minlength: int = 0) -> Scattered:
    # Owners are states, which all have pairs where they live: the last owner says how many there are.
    return Scattered(np.bincount(owner.local, None if weights is None else weights.local), owner.world)


def _equal(a: Any, b: Any) -> bool:
    if not (isinstance(a, Scattered) and isinstance(b, Scattered)):
        return False
    same = np.array_equal(a.local, b.local) and (a.tail is None) == (b.tail is None)
    same = same and (a.tail is None or b.tail is None or np.array_equal(a.tail, b.tail))
    return bool(a.world.least(np.int8(same)))


def _count_nonzero(x: Scattered, axis: int | None = None) -> Any:
    if axis is None:
        return int(x.world.total(np.count_nonzero(x.local))) + (0 if x.tail is None else np.count_nonzero(x.tail))
    return (x != 0).astype(np.int64).sum(axis=axis)


def _keyed(name: str) -> Callable[..., Any]:
    """Return a numpy function as the method of the same name."""

    def call(x: Scattered, axis: int | None = None, **kwargs: Any) -> Any:
        return getattr(x, name)(axis=axis, **{k: v for k, v in kwargs.items() if k in ("initial",)})

    return call


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: lambda x, axis=None: x.sum(axis),
    np.min: _keyed("min"),
    np.max: _keyed("max"),
    np.any: lambda x, axis=None: x.any(axis),
    np.all: lambda x, axis=None: x.all(axis),
    np.mean: lambda x, axis=None: x.mean(axis),
    np.ptp: lambda x: x.max() - x.min(),
    np.dot: lambda a, b: _product(a, b),
    np.linalg.norm: _norm,
    np.where: lambda *args: _entry_by_entry(np.where, args, {}),
    np.clip: lambda x, low, high, **kwargs: _entry_by_entry(np.clip, (x, low, high), kwargs),
    np.zeros_like: _filled(np.zeros_like),
    np.ones_like: _filled(np.ones_like),
    np.empty_like: _filled(np.empty_like),
    np.full_like: _filled(np.full_like),
    np.copy: lambda x, order="C": x.copy(),
    np.ravel: lambda x: x.ravel(),
    np.atleast_2d: lambda x: x if x.ndim == 2 else x[None],
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
    np.stack: _stack,
    np.tile: _tile,
    np.vstack: _vstack,
    np.concatenate: _concatenate,
    np.append: _append,
    np.bincount: _bincount,
    np.array_equal: _equal,
    np.count_nonzero: _count_nonzero,
    np.flatnonzero: lambda x: Scattered(np.flatnonzero(x.local), x.world),
    np.may_share_memory: lambda a, b: bool(np.may_share_memory(_part(a), _part(b))),
}
"""What is known to mean the same on all ranks."""


def part_of(x: Any) -> Any:
    """Return this rank's part of an array that may be scattered: all of one that is not.

    Examples
    --------
    >>> import numpy as np
    >>> part_of(np.array([1.0, 2.0]))
    array([1., 2.])
    """
    return _part(x)


def as_parts_of(like: Any, local: Any, axis: int = 0) -> Plain:
    """Return an array of this rank as the part of one that is scattered like another; itself where that is not.

    Examples
    --------
    >>> import numpy as np
    >>> as_parts_of(np.zeros(2), np.array([1.0, 2.0]))
    array([1., 2.])
    """
    return cast(Plain, like._like(local, axis=axis) if isinstance(like, Scattered) else local)


def as_array(x: Any, dtype: Any = None) -> Plain:
    """Return an array: a scattered one as such, all else as NumPy's.

    Examples
    --------
    >>> as_array([1.0, 2.0])
    array([1., 2.])
    """
    if isinstance(x, Scattered):
        return cast(Plain, x if dtype is None else x.astype(dtype, copy=False))
    return np.asarray(x, dtype=dtype)


def over_ranks(like: Any, how: str, found: Any) -> Any:
    """Make one number, or a few, of what each rank found in its part: "total", "least" or "largest".

    Examples
    --------
    >>> import numpy as np
    >>> over_ranks(np.zeros(2), "total", 3.0)
    3.0
    """
    return getattr(like.world, how)(found) if isinstance(like, Scattered) else found


def world_of_parts(x: Any) -> Any:
    """Return the ranks on which an array lives; one that agrees with itself where it is whole.

    Examples
    --------
    >>> import numpy as np
    >>> world_of_parts(np.zeros(2)).size
    1
    """
    return getattr(x, "world", ALONE)


def rows_of(mdp: Any) -> Any:
    """Return the transitions of a model, or of the pairs that live on this rank.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> rows_of(cm.worlds.queue(capacity=3)).shape
    (20, 4)
    """
    return getattr(mdp.transitions, "csr", mdp.transitions)


def middle(x: Any) -> float:
    """Return the median; of an array in parts the median of the parts' medians, which is as typical a size.

    Examples
    --------
    >>> import numpy as np
    >>> middle(np.array([1.0, 5.0, 2.0]))
    2.0
    """
    parts = world_of_parts(x).gathered(float(np.median(part_of(x))) if part_of(x).size else None)
    return float(np.median([part for part in parts if part is not None]))


def digest(x: Any) -> bytes:
    """Return a number that tells arrays apart, the same on all ranks.

    Examples
    --------
    >>> import numpy as np
    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(4))
    (True, False)
    """
    own = hashlib.sha256(np.ascontiguousarray(part_of(x)).data).digest()
    return hashlib.sha256(b"".join(world_of_parts(x).gathered(own))).digest()
