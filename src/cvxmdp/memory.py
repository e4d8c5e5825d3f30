"""How much memory is free, what still fits, and what becomes of memory that is freed."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

BLOCK = 31 * 2**20
"""Just below the most that glibc's limit adapts to."""
MANY_PAIRS = 1_000_000
"""From here on arrays over pairs are so large that memory matters more."""
VECTORS = 60
"""Vectors over pairs that a solve under a budget holds at its peak, as measured: 10 to 100 on grids, queues and random
models of 40 000 to four million pairs, most on the largest."""


def keep_freed(num_pairs: int) -> None:
    """Let freed blocks of up to 31 MB serve the next array instead of going back to the system.

    Fresh pages cost more than most loops over them.  glibc keeps freed blocks up to the size of the largest that was
    ever freed, so one is taken and freed here; its pages are never touched.
    """
    if num_pairs < MANY_PAIRS:
        np.empty(BLOCK, dtype=np.uint8)


def available_memory() -> int:
    """Bytes that can be taken now without swapping; a cautious 4 GB where the system does not say."""
    free = 4 * 2**30
    with suppress(OSError):
        free = 1024 * _entries(Path("/proc/meminfo"))["MemAvailable:"]
    return min([free, *_left_to_groups()])


def _left_to_groups(groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return what the limits of this process' control groups leave: those of a container, or of a job on a cluster.

    Pages of files that nobody reads just now count as used, and are given up first.
    """
    left = []
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                root, limit, used, pages = mounted, "memory.max", "memory.current", "inactive_file"
            elif "memory" in controllers.split(","):
                root, limit, used = mounted / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
                pages = "total_inactive_file"
            else:
                continue
            own = root / path.lstrip("/")
            for group in (own, *own.parents):
                if not group.is_relative_to(root):
                    break
                with suppress(OSError, ValueError):  # a group without a limit says "max", or has no such file
                    taken = int((group / used).read_text()) - _entries(group / "memory.stat").get(pages, 0)
                    left.append(max(int((group / limit).read_text()) - taken, 0))
    return left


def _entries(file: Path) -> dict[str, int]:
    """Return the numbers that the lines of a file give after a name."""
    return {name: int(number) for name, number, *_ in map(str.split, file.read_text().splitlines())}


def fits(size: int) -> bool:
    """Whether so many bytes leave half of the free memory to others."""
    return size <= available_memory() // 2


def take_room(size: int, what: str) -> None:
    """Raise MemoryError, in words, where so many bytes are more than what is free."""
    free = available_memory()
    if size > free:
        raise MemoryError(f"{what} takes {in_words(size)}, and {in_words(free)} of memory are free")


def lies_in_file(array: Any) -> bool:
    """Whether an array is read from a file as it is needed.

    Examples
    --------
    >>> lies_in_file(np.zeros(3))
    False
    """
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def arrays_of(matrix: Any) -> list[Any]:
    """Return the arrays that a matrix, dense or in compressed sparse rows, is held in."""
    return [matrix.data, matrix.indices, matrix.indptr] if sp.issparse(matrix) else [matrix]


def in_words(size: float) -> str:
    """Say a number of bytes.

    Examples
    --------
    >>> in_words(14_400_000_000)
    '14.4 GB'
    """
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def solve_memory(num_pairs: int) -> int:
    """Bytes that the vectors of a solve under a budget take, about."""
    return 8 * VECTORS * num_pairs


def warn_if_short(num_pairs: int) -> None:
    """Warn of a solve that may take more memory than is free: the system then ends the process without a word."""
    if num_pairs < MANY_PAIRS:
        return
    needed, free = solve_memory(num_pairs), available_memory()
    if needed > free:
        warnings.warn(
            f"a solve takes about {in_words(needed)} of memory beside the model, and {in_words(free)} are free: it may "
            "be ended by the system. End what else takes memory, or solve on several ranks of MPI, one a machine",
            RuntimeWarning,
            stacklevel=3,
        )
