"""``cvxmdp paper``."""

from __future__ import annotations

import importlib
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Experiment(str, Enum):
    """What ``cvxmdp paper`` can repeat."""

    table1 = "table1"
    table2 = "table2"
    gridworld = "gridworld"
    inexact = "inexact"


def paper(
    experiment: Annotated[Experiment, typer.Argument(help="Which one.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="A reduced form: the smallest models, one seed.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for numbers and pictures; benchmarks/results if not given."),
    ] = None,
) -> None:
    """Repeat an experiment of the paper.

    This needs a clone of the project with its extra "bench" installed.  The tables take hours and go on where they were
    stopped.  Nothing else should run meanwhile.
    """
    folder = next((up / "benchmarks" for up in (Path.cwd(), *Path.cwd().parents) if _is_clone(up)), None)
    if folder is None:
        raise ValueError('"cvxmdp paper" needs the folder benchmarks/ of the project; run it in a clone of the project')
    sys.path.insert(0, str(folder))
    # A quick run must not mix its numbers with those of a full one.
    default = Path("cvxmdp-paper-quick") if quick else folder / "results"
    importlib.import_module("paper").run(experiment.value, default if out is None else out, quick, typer.echo)


def _is_clone(folder: Path) -> bool:
    return (folder / "benchmarks" / "paper.py").is_file() and (folder / "src" / "cvxmdp").is_dir()
