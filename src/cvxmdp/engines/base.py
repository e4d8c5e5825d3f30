"""What every engine is: settings, the problems it takes, and a run that proposes to the judge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.judge import Judge
from cvxmdp.mdp import Array
from cvxmdp.status import Status


@dataclass(frozen=True)
class Engine(ABC):
    """A way to seek an answer, with its settings.

    Parameters
    ----------
    evaluation : {"auto", "direct", "iterative"}
        How linear systems of policies are solved, see :func:`cvxmdp.dynamics.linear.plan`.
    """

    evaluation: str = field(default="auto", kw_only=True)

    name: ClassVar[str]
    most_passes: ClassVar[int]
    """After so many it gives up."""
    threads_from: ClassVar[float] = 0
    """States from which on BLAS may take more than one thread."""
    helped: ClassVar[bool] = False
    """Whether others go on where it gives up, although it was asked for by name."""

    def needs(self, constraints: Sequence[Constraint], terms: Sequence[Term]) -> str | None:
        """Say what it needs that a problem does not have, and what else to use; None where it takes the problem."""
        return None

    def _needs_rows(self, constraints: Sequence[Constraint], terms: Sequence[Term]) -> str | None:
        """What :meth:`needs` says of engines for a cost under linear limits."""
        if terms or not all(isinstance(c, Linear) for c in constraints):
            return 'linear constraints and a cost alone; use "auto" or "splitting"'
        return None

    @abstractmethod
    def run(self, judge: Judge, start: tuple[Array, list[Array]] | None) -> tuple[Status | None, str]:
        """Run from an occupancy and duals, if given, until the judge is satisfied.

        Return the status, None where another engine should go on, and a sentence on what was done.
        """
