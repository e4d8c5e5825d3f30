"""What needs the whole of a model in one place, and what to do instead where it lives on several ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOAD = (
    'save the solution by solution.save("answer.npz") on all ranks, and load it in one place by '
    'cm.load_solution("answer.npz")'
)
"""What gives a solution and its policy whole."""


def in_parts(thing: Any) -> bool:
    """Say whether a model, or what was made of it, lives on several ranks.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> in_parts(cm.worlds.queue(capacity=3))
    False
    """
    return getattr(thing, "world", None) is not None


def in_one_place(instead: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Refuse a call with what lives on several ranks: before anything begins, so that all of them refuse alike.

    Parameters
    ----------
    instead : str
        What to do instead.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if any(in_parts(thing) for thing in (*args, *kwargs.values())):
                raise ValueError(f"{function.__qualname__} needs all of a model in one place, not on ranks; {instead}")
            return function(*args, **kwargs)

        return call

    return decorate
