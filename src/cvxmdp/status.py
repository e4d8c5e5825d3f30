"""How a solve ended, and where it stood on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Status(Enum):
    """Every way a solve can end.  The value is a sentence with its cure."""

    OPTIMAL = "The policy obeys every constraint and is proven optimal to the tolerance."
    INFEASIBLE = (
        "No policy obeys every constraint; this is proven. The policy returned is a compromise. "
        "Relax a constraint to go on."
    )
    APPROXIMATE = (
        "The method's own stopping tests are met, but the proven gap or the violation is above the tolerance. "
        'Solve with method="auto" for a proof.'
    )
    UNDECIDED = (
        "No method could prove more than this. The best policy so far is returned with its true gap; "
        "a larger tolerance may be within reach."
    )
    ITERATION_LIMIT = (
        "The iteration limit was reached first. The best policy so far is returned with its true gap; "
        "raise max_iterations, or the tolerance, to go on."
    )
    TIME_LIMIT = (
        "The time limit was reached first. The best policy so far is returned with its true gap; "
        "raise time_limit, or the tolerance, to go on."
    )
    INTERRUPTED = (
        "The solve was interrupted. The best policy so far is returned with its true gap; "
        "pass it as warm_start to go on."
    )


@dataclass(frozen=True)
class Progress:
    """Where a solve stands: the best policy and bound so far.

    Attributes
    ----------
    iteration : int
        Passes of the method so far.
    seconds : float
        Since the solve began.
    value, bound : float
        True cost of the best policy, and the best proven lower bound on the optimum.
    gap : float
        ``(value - bound) / |c|'d``, free of units; infinite while the policy exceeds a limit.
    violation : float
        Worst violation of the best policy, free of units.
    residual : float
        The method's own measure of progress.
    """

    iteration: int
    seconds: float
    value: float
    bound: float
    gap: float
    violation: float
    residual: float

    def turned(self) -> Progress:
        """Return the same where what is minimized is the negative of what a user maximizes, or back."""
        return replace(self, value=-self.value, bound=-self.bound)
