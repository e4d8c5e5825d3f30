"""Operator splitting for constrained MDPs: Algorithm 1 of the paper, which is Douglas-Rachford splitting.

Minimize ``f(d) + g(d)`` with ``f = c'd`` on the occupancies D and ``g = 0`` on the constraints C: a prox of the
dynamics, a projection onto the constraints, and an update of the governing sequence w.  Where the constraints are
several sets, each has a copy of d (a row of w and z), and the prox sees the rows' average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from cvxmdp.constraints.combine import Blocks
from cvxmdp.engines import elementwise
from cvxmdp.engines.regularized import Regularized
from cvxmdp.mdp import Array
from cvxmdp.ranks.scattered import as_array

Prox = Callable[[Array, float, float], Regularized]
"""The prox of the dynamics: of a point, with a step, to an accuracy."""


class Sizes(NamedTuple):
    """How large the drift is, and how far d moved since the last pass."""

    total: float
    """Sum of the absolute values of the drift."""
    norm: float
    largest: float
    moved: float
    """Sum of the absolute values of the movement."""
    farthest: float


@dataclass(frozen=True, slots=True, eq=False)
class Iterate:
    """One pass.  ``drift`` vanishes when solved and tends to minus the displacement when infeasible."""

    governing: Array  # w
    occupancy: Array  # d, obeys the dynamics
    projected: Array  # z, obeys the constraints
    step: float  # sigma
    sizes: Sizes

    @property
    def multiplier(self) -> Array:
        """``nu = (w - d) / sigma``, the multiplier of d = z, one row for each block of constraints, eq. (7b)."""
        return (self.governing - self.occupancy) / self.step

    @property
    def drift(self) -> Array:
        """``z - d``, one row for each block of constraints."""
        return self.projected - self.occupancy

    @property
    def reflected(self) -> Array:
        """``2d - w``, the point that was projected."""
        return 2 * self.occupancy - self.governing


def iterates(prox: Prox, blocks: Blocks, w: Array, sigma: float, omega: float, anchored: bool) -> Iterator[Iterate]:
    """Yield passes for ever, eq. (7); the caller decides when to stop.

    With ``anchored`` the governing sequence is pulled back to where it began by ever less (Halpern's iteration), which
    makes the drift fall like 1/k whatever the constraints.
    """
    anchor, accuracy, before = w, 1e-2, _mean(w)
    for k in count():
        d = prox(_mean(w), sigma / len(w), accuracy).d  # (7a)
        z = blocks.prox(elementwise.reflected(d, w), sigma)  # (7c)
        sizes = Sizes(*elementwise.sizes(d, z, before))
        yield Iterate(w, d, z, sigma, sizes)
        w = elementwise.relaxed(w, d, z, omega, anchor, 1 / (k + 2) if anchored else 0.0)  # (7d), relaxed
        # Summable, so that the inexact method converges to the same limit (Eckstein and Bertsekas, Theorem 7).
        # The drift vanishes when feasible only, the movement of d always.
        accuracy, before = min(0.1 * min(sizes.total, sizes.moved), 1 / (k + 1) ** 1.1), d


def _mean(w: Array) -> Array:
    return w[0] if len(w) == 1 else as_array(w.mean(axis=0))
