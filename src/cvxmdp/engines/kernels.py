"""Compiled loops of the frozen program (see frozen.py): an interior point method over the pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cvxmdp import _frozen
from cvxmdp.mdp import Array, Indices
from cvxmdp.ranks.world import Alone, Ranks

Mask = npt.NDArray[np.bool_]

Agree = Callable[[memoryview, str], None]
"""Makes of each rank's numbers their "total" or the "largest", in place."""


@dataclass(frozen=True, eq=False)
class FrozenProgram:
    """The program over the pairs that live here: advantages, visits, limits."""

    A: Array
    """A row for each pair: its advantage for the cost, then for each limit."""
    x: Array
    """Visits of the states."""
    first: Indices
    room: Array
    """``limit - J`` of each limit."""
    equal: Mask
    """Which limits hold with equality."""
    compliance: Array
    """A positive semidefinite matrix G: limits give way to their multipliers m by ``G m`` at the cost ``m'G m / 2``."""
    given: Array
    """The visits as they were given, on all ranks."""
    world: Alone | Ranks

    def total(self, part: Any) -> float:
        """Return the sum over ranks."""
        return float(self.world.total(part))


def priced(A: Array, first: Indices, lam: Array) -> tuple[Array, Indices, float]:
    """Advantages at cost plus priced limits: of each pair less its state's least, who attains it, the least of all."""
    q, greedy = np.empty(A.shape[0]), np.empty(first.size - 1, np.int64)
    return q, greedy, _frozen.priced(A, first, lam, q, greedy)


def interior_point(
    program: FrozenProgram,
    lam: Array,
    mu: float,
    accuracy: float,
    most_steps: int,
    parts: int,
    agree: Agree | None = None,
) -> tuple[Array, int]:
    """Mehrotra's predictor-corrector method from the central point at prices lam; lam ends as the multipliers.

    Returns the policy and the steps after which gap and open rows were within the accuracy, -1 if they never were, -2
    if there is no solution.  The states are cut into so many parts, one a thread; where they live on several ranks,
    these ``agree``.
    """
    it, p = program, np.empty(program.A.shape[0])
    data = it.A, it.x, it.first, it.room, ~it.equal, it.compliance
    return p, _frozen.interior_point(*data, lam, mu, accuracy, most_steps, parts, p, agree)
