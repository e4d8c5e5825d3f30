"""Ctrl-C during a solve: it raises a flag that is read wherever limits are read, and ends the solve as a limit does.

An exception instead could strike anywhere: inside a compiled kernel, where it is lost or leaves half a result behind.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, TimeoutError
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol, TypeVar

T = TypeVar("T")

LOOK = 0.05
"""Seconds between two looks at the flag while another thread works."""
GRACE = 0.2
"""Seconds after Ctrl-C in which the work at hand may still be brought to an end."""


class OutOfTimeError(Exception):
    """The time of a solve ran out in the middle of work that has nothing to return before its end."""


class Together(Protocol):
    """Ranks that agree on a number."""

    rank: int

    def largest(self, part: float) -> float:
        """Return the largest of the ranks' numbers."""
        ...


class _Flag:
    since = math.inf
    """When Ctrl-C was pressed, on the clock ``time.perf_counter``."""
    told = False
    """Whether an exception has said so already."""


class _Limit(threading.local):
    deadline = math.inf
    ranks: Together | None = None
    """The ranks that run the solve together, and have to hear the same of the time and of Ctrl-C."""


_Time = _Limit()
"""When the time of the solve is over that this thread runs."""


def _pressed(before: float = math.inf) -> bool:
    """Whether Ctrl-C was pressed in this process, before some time."""
    return _Flag.since < before and threading.current_thread() is threading.main_thread()


def _gone(deadline: float) -> bool:
    """Whether a time has gone: where ranks solve together, the first one looks at its clock for all."""
    return (_Time.ranks is None or _Time.ranks.rank == 0) and time.perf_counter() >= deadline


def agreed(flag: bool) -> bool:
    """Return a flag, or where ranks solve together, whether it is raised on some of them."""
    return flag if _Time.ranks is None else _Time.ranks.largest(float(flag)) > 0


def requested() -> bool:
    """Whether Ctrl-C was pressed in this solve.  Solves in other threads than the main one go on, as threads do."""
    return agreed(_pressed())


def passed(deadline: float) -> bool:
    """Whether a deadline on the clock ``time.perf_counter`` has passed."""
    return agreed(_gone(deadline))


def over(deadline: float) -> bool:
    """Whether a deadline on the clock ``time.perf_counter`` has passed or Ctrl-C was pressed."""
    return requested() or passed(deadline)


def late() -> bool:
    """Whether Ctrl-C was pressed, or time ran out, so long ago that also inner work should be cut short."""
    return agreed(_gone(_Time.deadline + GRACE) or _pressed(time.perf_counter() - GRACE))


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Cut inner work of the block short, as Ctrl-C does, once a deadline on ``time.perf_counter`` has passed."""
    before, _Time.deadline = _Time.deadline, deadline
    try:
        yield
    finally:
        _Time.deadline = before


@contextmanager
def together(ranks: Together | None) -> Iterator[None]:
    """Let ranks hear the same of the time and of Ctrl-C while they run the block together."""
    before, _Time.ranks = _Time.ranks, ranks
    try:
        yield
    finally:
        _Time.ranks = before


def leave() -> None:
    """Raise ``KeyboardInterrupt``, if Ctrl-C was pressed, where long work has nothing to return before its end.

    Only once, so that what has to be done at the end of a solve can pass the same place.
    """
    if requested() and not _Flag.told:
        _Flag.told = True
        raise KeyboardInterrupt


def patiently(work: Callable[[], T]) -> T:
    """Do work of compiled code that may take long in a thread of its own, which Ctrl-C and time limits leave behind.

    Only for what lets other threads run meanwhile, and whose arrays nobody else looks at afterwards.  Raises
    ``KeyboardInterrupt`` as :func:`leave` does, or ``OutOfTimeError``.
    """
    if threading.current_thread() is not threading.main_thread() and _Time.deadline == math.inf:
        return work()
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while True:
        with suppress(TimeoutError):
            return found.result(LOOK)
        if late():
            leave()
            if time.perf_counter() >= _Time.deadline + GRACE:
                raise OutOfTimeError


@contextmanager
def heard(ranks: Together | None) -> Iterator[None]:
    """Let Ctrl-C raise the flag while the block runs, on all ranks that run it together."""
    with together(ranks), flagged():
        yield


@contextmanager
def flagged() -> Iterator[None]:
    """Let Ctrl-C raise the flag while the block runs.

    Only in the main thread, which alone hears of it, and only where nobody has said what Ctrl-C should do.  A solve
    within a solve shares the flag of the outer one.  Where ranks solve together, SIGTERM raises it too: launchers of
    MPI send it to all ranks on Ctrl-C.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    _Flag.since, _Flag.told = math.inf, False
    signal.signal(signal.SIGINT, _raise_flag)
    ended = _Time.ranks is not None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ended:
        signal.signal(signal.SIGTERM, _raise_flag)
    try:
        yield
    finally:
        _Flag.since = math.inf
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if ended:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise_flag(number: int, frame: FrameType | None) -> None:
    _Flag.since = min(_Flag.since, time.perf_counter())
