"""Files that a command is asked for: tried before the work, written after it."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cvxmdp.names import printable

PICTURES = (".png", ".svg", ".pdf")

Report = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a page for a browser: report.html.", show_default=False)
]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help=f"Write a picture: {', '.join(PICTURES)}.", show_default=False)
]


class Outputs:
    """Files to write, each with what writes it."""

    def __init__(self) -> None:
        self._files: list[tuple[Path, Callable[[Any, Path], object]]] = []

    def add(self, option: str, path: Path | None, endings: Sequence[str], write: Callable[[Any, Path], object]) -> None:
        """Ask for a file, if a path is given; find out now whether it can be written."""
        if path is None:
            return
        if path.suffix.lower() not in endings:
            raise ValueError(f"{option} is {str(path)!r}; its name must end in {' or '.join(endings)}")
        if path.is_dir():
            raise ValueError(f"{str(path)!r} is a folder; {option} must be a file")
        _try_folder(path.parent, option)
        if any(os.path.abspath(path) == os.path.abspath(other) for other, _ in self._files):
            raise ValueError(f"{option} is {str(path)!r}, which another option names too")
        self._files.append((path, write))

    def add_plot(self, path: Path | None, write: Callable[[Any, Path], object]) -> None:
        """Ask for a picture; find out now whether there is what draws it."""
        if path is not None:
            from cvxmdp.report.plots import new_figure

            new_figure((1.0, 1.0))
        self.add("--plot", path, PICTURES, write)

    def write(self, result: Any) -> str:
        """Write all files; return where they are, in words."""
        for path, write in self._files:
            write(result, path)
        names = [str(path) for path, _ in self._files]
        return printable(f"written to {', '.join(names[:-1])}{' and ' * (len(names) > 1)}{names[-1]}") if names else ""


def make_folder(path: Path) -> None:
    """Make a folder for results."""
    path.mkdir(parents=True, exist_ok=True)


def _try_folder(folder: Path, option: str) -> None:
    if not folder.is_dir():
        raise ValueError(f"{option}: there is no folder {str(folder)!r}; make it first")
    with tempfile.TemporaryFile(dir=folder):
        pass


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with the same columns as a ``.csv`` file."""
    from cvxmdp.io.files import write_atomically
    from cvxmdp.names import spreadsheet_safe

    with write_atomically(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow([spreadsheet_safe(name) for name in (rows[0] if rows else ())])
        writer.writerows(row.values() for row in rows)
        text.detach()
