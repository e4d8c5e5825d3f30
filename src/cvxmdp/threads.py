"""How many threads a solve takes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

# Idle threads that spin, of OpenMP or of BLAS, take the cores that the other needs: let them sleep.  The first is read
# when OpenMP is loaded, the second when NumPy is, so that it helps where this library is imported first.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

SMALL_STATES = 500
"""Up to here all runs on one thread: two win nothing on such matrices, and lose much while the cores are busy."""

forked = False
"""Whether this process was forked off one whose loops used threads: they are missing here, and OpenMP would hang."""


class _Allowed(threading.local):
    """How many threads compiled loops may take where this thread calls them; 0 stands for all that there are."""

    count = 0


class _Used:
    """Whether compiled loops were allowed several threads."""

    threads = False


_allowed = _Allowed()


@cache
def _available() -> int:
    """Return how many threads OMP_NUM_THREADS says, else how many cores this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed() -> int:
    """Return how many threads compiled loops may take."""
    count = 1 if forked else _allowed.count or _available()
    if count > 1:
        _Used.threads = True
    return count


def allow(count: int) -> None:
    """Let compiled loops take so many threads where this thread calls them; 0 stands for all that there are."""
    _allowed.count = count


class _OneBlasThread:
    """BLAS belongs to the whole process: the first solve that wants one thread sets it, the last one gives it back."""

    lock = threading.Lock()
    solves = 0
    before: Sequence[int] = ()


def _after_fork() -> None:
    global forked
    forked = forked or _Used.threads
    _OneBlasThread.lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _pools() -> list[Any]:
    """Return the BLAS libraries that are loaded."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_blas_threads(counts: Sequence[int]) -> None:
    for pool, count in zip(_pools(), counts, strict=True):
        # The first thread that sets OpenBLAS keeps the right to, and the last solve may end in another.
        released = getattr(pool, "clear_controlling_thread", lambda force: None)
        released(force=True)
        pool.set_num_threads(count)
        released(force=True)


@contextmanager
def one_blas_thread(wanted: bool) -> Iterator[None]:
    """Keep BLAS on one thread, if wanted: where compiled kernels do the work its idle threads are in their way."""
    if not wanted:
        yield
        return
    blas = _OneBlasThread
    with blas.lock:
        blas.solves += 1
        if blas.solves == 1:
            blas.before = [pool.num_threads for pool in _pools()]
            _set_blas_threads([1] * len(blas.before))
    try:
        yield
    finally:
        with blas.lock:
            blas.solves -= 1
            if blas.solves == 0:
                _set_blas_threads(blas.before)


@contextmanager
def few_threads(num_states: int) -> Iterator[None]:
    """Keep BLAS and compiled loops on one thread while a small model is solved."""
    if num_states > SMALL_STATES:
        yield
        return
    before = _allowed.count
    with one_blas_thread(True):
        allow(1)
        try:
            yield
        finally:
            allow(before)


@contextmanager
def threads_of(num_states: int, compiled: bool) -> Iterator[None]:
    """Take as many threads as policy iteration and proofs of a model gain from, outside of its solves."""
    with few_threads(num_states), one_blas_thread(compiled):
        yield
