"""``cvxmdp convert``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from cvxmdp.cli.arguments import Discount, Initial, Model, busy, is_problem, read_stated
from cvxmdp.io.files import copy_plain
from cvxmdp.io.formats import FORMATS, format_of
from cvxmdp.io.model import KIND
from cvxmdp.mdp import MDP
from cvxmdp.names import Numbers, printable

NAMELESS = ".bin"
"""Files in which states and actions have numbers."""
BARE = (".csv", ".parquet", NAMELESS)
"""Files that hold transitions and costs alone."""
ANY_DISCOUNT = 0.5
"""Where neither file holds a discount, any will do."""


def convert(
    model: Model,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The file to write: .npz .umb .bin .tra .csv .parquet.", show_default=False),
    ],
    discount: Discount = None,
    initial: Initial = None,
) -> None:
    """Write a model in another format, or a world as a file.

    An .npz of an .npz is a copy that is not compressed, whatever its size: such a model can be solved where it lies.
    """
    form = format_of(out)
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"{str(out)!r} is a folder" if out.is_dir() else f"there is no folder {str(out.parent)!r}")
    ending = Path(model).suffix.lower()
    copied = ending == out.suffix.lower() == ".npz" and discount is None and initial is None
    if copied:
        with busy(f"writing {out}"):
            copy_plain(model, out, KIND)
        model = str(out)
    source = FORMATS.get(ending)
    needless = not is_problem(model) and source is not None and not source.complete and not form.complete
    mdp = read_stated(model, ANY_DISCOUNT if discount is None and needless else discount, initial).mdp
    if not copied:
        with busy(f"writing {out}"):
            mdp.save(out)
    count = f"{mdp.num_states} states, {mdp.num_pairs} pairs, costs: {', '.join(mdp.costs)}"
    typer.echo(printable(f"{out}: {count}"))
    for line in _left(mdp, out, needless):
        typer.echo(printable(line))


def _left(mdp: MDP, out: Path, no_discount: bool) -> Iterator[str]:
    """Say what the file does not hold, and how that is given on reading."""
    if not no_discount and not format_of(out).complete:
        yield f"It holds no discount: read it with --discount {mdp.discount!r}"
    ending = out.suffix.lower()
    if ending in BARE and np.ptp(mdp.initial) > 0:
        first = np.flatnonzero(mdp.initial)
        name = first[0] if ending == NAMELESS else mdp.states[first[0]]
        given = f": read it with --initial {name}" if first.size == 1 else ""
        yield f"It holds no first state{given}"
    if ending == NAMELESS and not (isinstance(mdp.states, Numbers) and isinstance(mdp.actions, Numbers)):
        yield "It holds no names of states and actions, which are numbers there"
    if ending in BARE and mdp.labels:
        yield f"It holds no labels: {', '.join(mdp.labels)}"
