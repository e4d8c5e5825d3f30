"""What becomes of memory that is freed."""

from __future__ import annotations

import numpy as np

BLOCK = 31 * 2**20
"""Just below the most that glibc's limit adapts to."""
MANY_PAIRS = 1_000_000
"""From here on arrays over pairs are so large that memory matters more."""


def keep_freed(num_pairs: int) -> None:
    """Let freed blocks of up to 31 MB serve the next array instead of going back to the system.

    Fresh pages cost more than most loops over them.  glibc keeps freed blocks up to the size of the largest that was
    ever freed, so one is taken and freed here; its pages are never touched.
    """
    if num_pairs < MANY_PAIRS:
        np.empty(BLOCK, dtype=np.uint8)
