"""``cvxmdp demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cvxmdp.cli.app import LIMIT


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the picture and the solutions.")] = Path(
        "cvxmdp-demo"
    ),
) -> None:
    """Solve the paper's grid world: a table and pictures.

    It is solved under four pairs of limits; pictures and solutions are written into a folder.
    """
    from cvxmdp.report.demo import show_demo

    if not show_demo(out, typer.echo):
        raise typer.Exit(LIMIT)
