"""Operator splitting for constrained MDPs: Algorithm 1 of the paper.

Minimize ``f(d) + g(d)`` with ``f = c'd`` on the occupancies D and ``g = 0`` on the constraints C, by Douglas-Rachford
splitting: a prox of the dynamics, a projection onto the constraints, and an update of the governing sequence w.  Where
the constraints are several sets, each has a copy of d (a row of w and z), and the prox sees the rows' average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from cvxmdp.constraints.combine import Blocks
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines import elementwise
from cvxmdp.engines.base import Engine, Proposals, Task
from cvxmdp.engines.regularized import Regularized, newton, qrpi
from cvxmdp.mdp import Array

Prox = Callable[[Array, float, float], Regularized]

NEWTON_STEPS = 60
"""Steps of the inner Newton method, which the last pass begins nearly at its end."""
QRPI_ROUNDS = 200
"""Rounds of regularized policy iteration in a pass that has to be exact; Newton takes over where they crawl."""
ROUNDING = 1e-14
"""Times the horizon: a prox is not asked for more than rounding allows."""
LEAST_WAY = 1e-6
"""An occupancy that is nearer to the constraints than this share of its length is taken to be that far."""


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
    return w[0] if len(w) == 1 else np.asarray(w.mean(axis=0))


@dataclass(frozen=True)
class Splitting(Engine):
    """Settings of the splitting method.

    Parameters
    ----------
    step : float, optional
        Sigma of the paper.  When not given, it is in natural units: twice the distance of the unconstrained optimum to
        the constraints, over ``|c - mean(c)|``.  That fits every scale of costs and every size of model.
    relaxation : float
        Omega of the paper, between 0 and 2.
    inner_steps : int
        Rounds of regularized policy iteration in each pass.
    adaptive : bool
        Let the step follow the balance of primal and dual movement, anchor the iteration where it stalls, and take as
        many inner steps as the pass needs.  When false, the method runs with the settings as they are.
    evaluation : {"auto", "direct", "iterative"}
        How linear systems are solved, see :func:`cvxmdp.dynamics.plan.plan`.
    prox : {"auto", "qrpi", "newton"}
        The inner solver: regularized policy iteration, semismooth Newton, or the first while it is fast.
    stopping : tuple of three floats, optional
        The paper's tolerances ``(eps_opt, eps_con, eps_inf)``.  When given, its tests end the solve.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> cm.Splitting.as_in_paper().step
    2e-05
    """

    step: float | None = None
    relaxation: float = 1.5
    inner_steps: int = 2
    adaptive: bool = True
    prox: str = "auto"
    stopping: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.step is not None and not (np.isfinite(self.step) and self.step > 0):
            raise ValueError(f"step is {self.step}; it must be a positive number, or None for the natural unit")
        if not 0 < self.relaxation < 2:
            raise ValueError(f"relaxation is {self.relaxation}; it must lie between 0 and 2, both excluded")
        if self.inner_steps < 1:
            raise ValueError(f"inner_steps is {self.inner_steps}; at least one is needed")
        if self.prox not in ("auto", "qrpi", "newton"):
            raise ValueError(f'prox is {self.prox!r}; it must be "auto", "qrpi" or "newton"')

    @classmethod
    def as_in_paper(cls) -> Splitting:
        """Return the paper's method to the letter: its constants, its two inner steps and its stopping tests."""
        return cls(2e-5, 1.5, 2, adaptive=False, evaluation="direct", prox="qrpi", stopping=(1e-5, 1e-4, 1e-6))

    name = "splitting"
    said = "splitting, {steps} passes"
    most_passes = 5000
    slow_to_obey = True

    @property
    def open_ended(self) -> bool:
        return self.stopping is None

    def proposals(self, task: Task) -> Proposals:
        """Run to the letter of the paper, or in natural units."""
        # Imported here, since both are drivers of this page.
        from cvxmdp.engines.adaptive import adaptive
        from cvxmdp.engines.as_in_paper import as_in_paper

        inner = Inner(self, task.dynamics, task.c, task.unconstrained.V)
        return adaptive(self, task, inner) if self.stopping is None else as_in_paper(self, task, inner)


def natural_step(blocks: Blocks, c: Array, d: Array) -> float:
    """Return how far the occupancy has to move from d, over how strongly the cost and the convex terms pull it."""
    length = float(np.linalg.norm(d))
    pull, way = float(np.linalg.norm(c - c.mean())), max(blocks.distance(d), LEAST_WAY * length)
    if not np.isfinite(way):  # a projection failed, as onto nearly parallel rows
        way = length
    if pull <= 1e-12 * float(np.linalg.norm(c)):
        pull = float(np.linalg.norm(c))
    if blocks.terms:
        way, pull = max(way, length), pull + blocks.size_of_value(d) / length
    return way / (pull or float(np.sqrt(c.size)))


class Inner:
    """The prox of the dynamics with its warm start."""

    def __init__(self, settings: Splitting, dynamics: Dynamics, c: Array, V: Array) -> None:
        self.settings, self.dynamics, self.c = settings, dynamics, c
        self.V, self.phi = V, np.zeros_like(c)
        self.rounds = 0
        self.newton_steps = 0

    def __call__(self, w: Array, sigma: float, accuracy: float) -> Regularized:
        kind, exact = self.settings.prox, self.settings.adaptive
        accuracy = max(accuracy, ROUNDING / (1 - self.dynamics.gamma))
        point: Regularized | None = None
        if kind == "qrpi" or (kind == "auto" and self.dynamics.factored):
            point = self._qrpi(w, sigma)
            for _ in range(QRPI_ROUNDS if exact else 0):
                before = point.residual
                if before <= accuracy:
                    break
                point = self._qrpi(w, sigma)
                if kind == "auto" and point.residual > 0.5 * before:
                    break
        if point is None or (exact and kind != "qrpi" and point.residual > accuracy):
            point, steps = newton(self.dynamics, self.c, w, sigma, self.V, accuracy, NEWTON_STEPS)
            self.newton_steps += steps
        self.V, self.phi = point.V, point.phi
        return point

    def _qrpi(self, w: Array, sigma: float) -> Regularized:
        steps = self.settings.inner_steps
        point = qrpi(self.dynamics, self.c, w, sigma, self.V, self.phi, steps)
        self.V, self.phi = point.V, point.phi
        self.rounds += steps
        return point
