"""What a shell offers for the word under the cursor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import typer

LARGEST = 2_000_000
"""Bytes of a file that is read for the names in it: whoever presses a key does not wait for more."""


def models(incomplete: str) -> list[str]:
    """Offer worlds, and files that hold a model or a problem."""
    from cvxmdp.io.formats import FORMATS
    from cvxmdp.io.problem import WORLDS

    return [*(name for name in WORLDS if name.startswith(incomplete)), *_files(incomplete, [*FORMATS, ".toml"])]


def answers(incomplete: str) -> list[str]:
    """Offer files that hold a solution or a policy."""
    return _files(incomplete, [".csv", ".npz"])


def costs(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the costs of the model that stands on the command line already."""
    # After an option that still lacks its value, arguments are left unread.
    model = context.params.get("model") or next(iter(context.args), None)
    return [name for name in _costs(model) if name.startswith(incomplete)]


def methods(incomplete: str) -> list[str]:
    """Offer engines."""
    from cvxmdp.io.problem import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


def compromises(incomplete: str) -> list[str]:
    """Offer what to do where no policy obeys."""
    from cvxmdp.solution import COMPROMISES

    return [name for name in COMPROMISES if name.startswith(incomplete)]


def _files(incomplete: str, endings: Iterable[str]) -> list[str]:
    """List folders, and files with an ending, that begin like this."""
    folder, begun = os.path.split(incomplete)
    try:
        found = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    hidden = begun.startswith(".")
    names = [
        entry.name + os.sep * entry.is_dir()
        for entry in found
        if entry.name.startswith(begun) and (hidden or not entry.name.startswith("."))
        if entry.is_dir() or entry.name.lower().endswith(tuple(endings))
    ]
    return [os.path.join(folder, name) for name in names]


def _costs(model: object) -> Sequence[str]:
    """Return the names of a model's costs; none where that would take long or fails."""
    from cvxmdp.cli.arguments import is_problem
    from cvxmdp.io.problem import WORLDS, load_model, read_problem

    try:
        text = str(model)
        if is_problem(text):
            return list(read_problem(text).mdp.costs)
        if text.partition(":")[0] not in WORLDS and os.path.getsize(text) > LARGEST:
            return []
        return list(load_model(text, discount=0.5).costs)
    except Exception:  # a shell shows nothing but what is offered
        return []
