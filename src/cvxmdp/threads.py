"""How many threads a solve takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

# Idle threads that spin, of OpenMP or of BLAS, take the cores that the other needs: let them sleep.  The first is read
# when the compiled kernels are loaded, the second when NumPy is, so that it helps where this library is imported first.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

SMALL_STATES = 500
"""Up to here all runs on one thread: two win nothing on such matrices, and lose much while the cores are busy."""


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread(wanted: bool) -> Iterator[None]:
    """Keep BLAS on one thread, if wanted: where compiled kernels do the work its idle threads are in their way."""
    if not wanted:
        yield
        return
    with _pools().limit(limits=1, user_api="blas"):
        yield


@contextmanager
def few_threads(num_states: int) -> Iterator[None]:
    """Keep BLAS and compiled kernels on one thread while a small model is solved."""
    if num_states > SMALL_STATES:
        yield
        return
    numba = sys.modules.get("numba")  # not loaded before it is needed, so that the first solve may use more
    before = numba.get_num_threads() if numba else 0
    with one_blas_thread(True):
        if numba:
            numba.set_num_threads(1)
        try:
            yield
        finally:
            if numba:
                numba.set_num_threads(before)
