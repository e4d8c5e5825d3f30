"""How kernels are compiled: kept on the disk where that is possible, stopped by Ctrl-C, and safe after a fork."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache

from cvxmdp import interrupts, threads

Function = Callable[..., Any]


class _Cache(FunctionCache):
    """A cache that is as good as none where it is damaged or the disk is full."""

    def __init__(self, function: Function, shared: bool) -> None:
        super().__init__(function)
        self._shared = shared

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        return super()._index_key(signature, codegen), self._shared

    def load_overload(self, signature: Any, target: Any) -> Any:
        try:
            return super().load_overload(signature, target)
        except Exception:  # whatever damaged files make pickle raise
            with suppress(Exception):
                self.flush()
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        with suppress(Exception):
            super().save_overload(signature, compiled)


class _Stop(event.Listener):
    """Compiling takes seconds, in steps of less than half a second; it may be left before each."""

    def on_start(self, step: Any) -> None:
        interrupts.leave()

    def on_end(self, step: Any) -> None:
        pass


event.register("numba:run_pass", _Stop())


def njit(parallel: bool = False, **options: Any) -> Callable[[Function], Any]:
    """``numba.njit`` with a cache, unless there is no folder that can hold one.

    Parameters
    ----------
    parallel : bool
        Whether loops over ``prange`` are shared by threads.  Must not be called in a process that was forked off, see
        :func:`threaded`.
    options
        As ``numba.njit`` takes them.
    """

    def decorate(function: Function) -> Any:
        kernel = numba.njit(parallel=parallel, **options)(function)
        with suppress(RuntimeError):  # nowhere to keep it
            kernel._cache = _Cache(function, parallel)
        return kernel

    return decorate


def threaded(**options: Any) -> Callable[[Function], Function]:
    """Compile a kernel whose loops over ``prange`` are shared by threads, except in a process that was forked off.

    The threads of the parent are missing there, and OpenMP would end the process.  Not for kernels that others call.
    """

    def decorate(function: Function) -> Function:
        shared = njit(parallel=True, **options)(function)
        alone = cache(lambda: njit(**options)(function))

        @wraps(function)
        def kernel(*arguments: Any) -> Any:
            return (alone() if threads.forked else shared)(*arguments)

        return kernel

    return decorate
