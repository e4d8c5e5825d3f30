"""Settings of the splitting method; :mod:`cvxmdp.engines.douglas_rachford` is its page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxmdp.engines.adaptive import adaptive
from cvxmdp.engines.as_in_paper import as_in_paper
from cvxmdp.engines.base import Engine, Proposals, Task
from cvxmdp.engines.prox import Inner


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
    on_ranks = True
    said = "splitting, {steps} passes"
    most_passes = 5000
    slow_to_obey = True

    @property
    def open_ended(self) -> bool:
        return self.stopping is None

    def proposals(self, task: Task) -> Proposals:
        """Run to the letter of the paper, or in natural units."""
        inner = Inner(self, task.dynamics, task.c, task.unconstrained.V)
        return adaptive(self, task, inner) if self.stopping is None else as_in_paper(self, task, inner)
