"""The clock of a solve: how long it has run, which limit it has reached, and where it stood on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cvxmdp import interrupts
from cvxmdp.status import Progress, Status


@dataclass(eq=False)
class Clock:
    """See the module.  Times are on ``time.perf_counter``."""

    started: float
    deadline: float
    max_iterations: int
    callback: Callable[[Progress], object] | None = None
    iterations: int = 0
    history: list[Progress] = field(default_factory=list)
    stopped: bool = False
    """Whether the callback asked to stop, or the solve was interrupted."""

    def elapsed(self) -> float:
        """Seconds since the solve began."""
        return time.perf_counter() - self.started

    def tell(self, progress: Progress) -> None:
        """Note where the solve stands and tell the callback, which may stop it."""
        self.history.append(progress)
        if self.callback is not None and self.callback(progress):
            self.stopped = True

    def stop(self) -> None:
        """Let nothing begin any more that takes time."""
        self.stopped, self.deadline = True, self.started

    def limit(self) -> Status | None:
        """Say which limit is reached, if any."""
        if self.stopped or interrupts.requested():
            return Status.INTERRUPTED
        if interrupts.passed(self.deadline):
            return Status.TIME_LIMIT
        if self.iterations >= self.max_iterations:
            return Status.ITERATION_LIMIT
        return None
