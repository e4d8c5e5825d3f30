"""Which part of a solve is running, for whoever shows progress: some parts take long and have nothing to tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], object]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def begin(phase: str) -> None:
    """Say what begins, in a few words.

    Examples
    --------
    >>> from cvxmdp import phases
    >>> with phases.heard_by(print):
    ...     phases.begin("policy iteration")
    policy iteration
    """
    listener = _listener.get()
    if listener is not None:
        listener(phase)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Have a function called with each phase that begins in the block, in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
