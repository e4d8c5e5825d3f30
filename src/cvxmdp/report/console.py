"""The terminal: live progress of a solve, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cvxmdp.status import Progress

Callback = Callable[[Progress], object]


def progress_line(progress: Progress) -> str:
    """Say in one line where a solve stands; ``-`` where nothing is known yet."""

    def number(value: float, form: str) -> str:
        return format(value, form) if np.isfinite(value) else "-"

    return (
        f"pass {progress.iteration}, {progress.seconds:.1f} s: value {number(progress.value, '.6g')}, "
        f"bound {number(progress.bound, '.6g')}, gap {number(progress.gap, '.1e')}, "
        f"violation {number(progress.violation, '.1e')}"
    )


@contextmanager
def live_progress(callback: Callback | None = None, prefix: str = "") -> Iterator[Callback]:
    """Show progress on standard error while the block runs; pass it on to ``callback`` too.

    A terminal sees one line that changes; a file or pipe sees nothing.
    """
    console = Console(stderr=True)
    with Live(Text(f"{prefix}..."), console=console, transient=True, auto_refresh=False) as live:

        def show(progress: Progress) -> object:
            live.update(Text(prefix + progress_line(progress), overflow="ellipsis", no_wrap=True), refresh=True)
            return callback(progress) if callback is not None else None

        yield show


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that fits a terminal of 80 columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
