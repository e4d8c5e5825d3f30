"""Counting steps in which what is missing should have halved."""

from __future__ import annotations

import numpy as np


class Halving:
    """Counts the steps since what is missing last fell to half of the least before."""

    def __init__(self, least: float = np.inf) -> None:
        self.least, self.since = least, 0

    def note(self, missing: float) -> int:
        """Return how many steps it has been."""
        self.since = 0 if missing < 0.5 * self.least else self.since + 1
        self.least = min(self.least, missing)
        return self.since
