"""Live progress of a solve in a terminal, a notebook or a log, and tables in a terminal."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cvxmdp.phases import heard_by
from cvxmdp.status import Progress

Callback = Callable[[Progress], object]

LOGGER = logging.getLogger("cvxmdp")
TICK = 0.2
"""Seconds between two looks at what there is to show: the eye takes it for steady, and it costs nothing."""
LOG_SECONDS = 1.0
"""Seconds between two lines of a log, at least."""


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
    """Show progress while the block runs, also within long phases; pass it on to ``callback`` too.

    A terminal sees one line on standard error that changes, and a notebook one below its cell.  Elsewhere lines go to
    the logger "cvxmdp" at the level INFO, which shows them where ``logging`` is told to: one a second at first, ever
    fewer later, and one at the end.
    """
    line = _Line(prefix)
    with _shown() as emit, heard_by(line.begin), _ticking(lambda: emit(line.text(), False)):
        yield line.heard(callback)
        emit(line.text(), True)


class _Line:
    """What to show: the last progress and the phase, with the time it has taken."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.phase = prefix, "preparing"
        self.progress: Progress | None = None
        self.began = self.told = time.monotonic()

    def begin(self, phase: str) -> None:
        self.phase = phase

    def heard(self, callback: Callback | None) -> Callback:
        def show(progress: Progress) -> object:
            self.progress, self.told = progress, time.monotonic()
            return callback(progress) if callback is not None else None

        return show

    def text(self) -> str:
        if self.progress is None:
            return f"{self.prefix}{self.phase}, {time.monotonic() - self.began:.1f} s"
        progress = replace(self.progress, seconds=self.progress.seconds + time.monotonic() - self.told)
        return f"{self.prefix}{self.phase}, {progress_line(progress)}"


Emit = Callable[[str, bool], object]
"""Shows a line; true with the last one."""


@contextmanager
def _shown() -> Iterator[Emit]:
    """Return what shows a line, wherever this runs."""
    console = Console(stderr=True)
    notebook = _notebook()
    if notebook is not None:
        yield lambda text, last: notebook(text)
    elif console.is_terminal:
        with Live(Text("..."), console=console, transient=True, auto_refresh=False) as live:
            yield lambda text, last: live.update(Text(text, overflow="ellipsis", no_wrap=True), refresh=True)
    else:
        yield _Log()


class _Log:
    """Lines in the log: the longer it takes, the fewer."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()

    def __call__(self, text: str, last: bool) -> None:
        now = time.monotonic()
        if last or now - self.last >= max(LOG_SECONDS, 0.1 * (now - self.began)):
            self.last = now
            LOGGER.info("%s", text)


def _notebook() -> Callable[[str], object] | None:
    """Return what changes a line below a notebook's cell; None outside of notebooks."""
    known = sys.modules.get("IPython")
    shell = None if known is None else known.get_ipython()
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display

    handle = display({"text/plain": "..."}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


@contextmanager
def _ticking(tick: Callable[[], object]) -> Iterator[None]:
    """Call a function now and then while the block runs, whatever it is busy with."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(TICK):
            tick()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that fits a terminal of 80 columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
