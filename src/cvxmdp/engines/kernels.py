"""Compiled loops of the frozen program (see frozen.py): an interior point method over the pairs.

``A`` has a row for each pair: its advantage for the cost, then for each limit.  ``x`` weighs the states.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cvxmdp import _frozen
from cvxmdp.mdp import Array, Indices

Agree = Callable[[memoryview, str], None]
"""Makes of each rank's numbers their "total" or the "largest", in place."""


def priced(A: Array, first: Indices, lam: Array) -> tuple[Array, Indices, float]:
    """Advantages at cost plus priced limits: of each pair less its state's least, who attains it, the least of all."""
    q, greedy = np.empty(A.shape[0]), np.empty(first.size - 1, np.int64)
    return q, greedy, _frozen.priced(A, first, lam, q, greedy)


def interior_point(
    A: Array,
    x: Array,
    first: Indices,
    room: Array,
    bounded: npt.NDArray[np.bool_],
    give: Array,
    lam: Array,
    mu: float,
    accuracy: float,
    most_steps: int,
    parts: int,
    agree: Agree | None = None,
) -> tuple[Array, int]:
    """Mehrotra's predictor-corrector method from the central point at prices lam; lam ends as the multipliers.

    The limits give way to their multipliers, by ``give lam``, at the cost ``lam'give lam / 2``.  Returns the policy
    and the steps after which gap and open rows were within the accuracy, -1 if they never were, -2 if there is no
    solution.  The states are cut into so many parts, one a thread; where they live on several ranks, these ``agree``.
    """
    p = np.empty(A.shape[0])
    return p, _frozen.interior_point(A, x, first, room, bounded, give, lam, mu, accuracy, most_steps, parts, p, agree)
