"""The ranks of an MPI communicator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

PIECE = 2**28
"""Bytes that are sent at a time."""


class Alone:
    """The world of a model that is whole: one rank, which agrees with itself."""

    rank, size = 0, 1

    def total(self, part: Any) -> Any:
        """Return the sum over ranks."""
        return part

    def least(self, part: Any) -> Any:
        """Return the minimum over ranks."""
        return part

    def largest(self, part: Any) -> Any:
        """Return the maximum over ranks."""
        return part

    def every(self, flag: bool) -> bool:
        """Say whether it is so on all ranks."""
        return flag

    def gathered(self, part: Any) -> list[Any]:
        """Return what each rank has, in their order."""
        return [part]

    def together(self, work: Callable[[], T]) -> T:
        """Do work; what is wrong is an error."""
        return work()


ALONE = Alone()


class Ranks:
    """All ranks of a communicator of mpi4py: see :class:`cvxmdp.ranks.scattered.World`."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()
        self._ops = {"total": MPI.SUM, "least": MPI.MIN, "largest": MPI.MAX}
        self._in_place = MPI.IN_PLACE

    def __reduce__(self) -> Any:
        raise TypeError("a model that lives on several ranks cannot be pickled; save it instead")

    def _agreed(self, part: Any, how: str) -> Any:
        found = np.array(part)
        if self.size > 1:
            flat = np.ascontiguousarray(found).reshape(-1)
            self.comm.Allreduce(self._in_place, flat, op=self._ops[how])
            found = flat.reshape(found.shape)
        return found[()]

    def total(self, part: Any) -> Any:
        """Return the sum over ranks."""
        return self._agreed(part, "total")

    def least(self, part: Any) -> Any:
        """Return the minimum over ranks."""
        return self._agreed(part, "least")

    def largest(self, part: Any) -> Any:
        """Return the maximum over ranks."""
        return self._agreed(part, "largest")

    def every(self, flag: bool) -> bool:
        """Say whether it is so on all ranks."""
        return bool(self.least(np.int8(flag)))

    def gathered(self, part: Any) -> list[Any]:
        """Return what each rank has, in their order."""
        return list(self.comm.allgather(part))

    def to_first(self, part: Any) -> list[Any] | None:
        """Return what each rank has of an array, on the first one: sent in pieces, since MPI counts in 32 bits."""
        heads = self.comm.gather((part.shape, part.dtype))
        if heads is None:
            for piece in _pieces(np.ascontiguousarray(part)):
                self.comm.Send(piece, dest=0)
            return None
        found = [part]
        for source, (shape, dtype) in enumerate(heads[1:], 1):
            found.append(np.empty(shape, dtype=dtype))
            for piece in _pieces(found[-1]):
                self.comm.Recv(piece, source=source)
        return found

    def agree(self, view: memoryview, how: str) -> None:
        """Put in the place of numbers what ranks make of them together: their "total", "least" or "largest"."""
        if self.size > 1:
            self.comm.Allreduce(self._in_place, np.frombuffer(view), op=self._ops[how])

    def together(self, work: Callable[[], T]) -> T:
        """Do work on every rank; what is wrong on one of them is an error on all, with the same message.

        The work itself must not wait for other ranks: they may not come.
        """
        found, wrong = None, None
        try:
            found = work()
        except Exception as error:
            wrong = error
        errors = [error for error in self.gathered(wrong) if error is not None]
        if errors:
            raise errors[0]
        return found  # type: ignore[return-value]


def _pieces(array: Any) -> Iterator[Any]:
    """Return the bytes of a contiguous array, some at a time."""
    flat = array.reshape(-1).view(np.uint8)
    return (flat[begin : begin + PIECE] for begin in range(0, flat.size, PIECE))


def world_of(comm: Any) -> Ranks:
    """Return the ranks of a communicator of mpi4py or petsc4py; ``True`` stands for all there are."""
    if isinstance(comm, Ranks):
        return comm
    if comm is True:
        from mpi4py import MPI

        return Ranks(MPI.COMM_WORLD)
    if hasattr(comm, "tompi4py"):
        return Ranks(comm.tompi4py())
    if not hasattr(comm, "Allreduce"):
        raise ValueError(f"comm is {comm!r}; give a communicator such as mpi4py.MPI.COMM_WORLD, or True for it")
    return Ranks(comm)
