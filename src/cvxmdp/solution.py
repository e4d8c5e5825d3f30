"""What a solve returns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cvxmdp.certificate import Certificate
from cvxmdp.mdp import Array
from cvxmdp.policy import Policy
from cvxmdp.status import Progress, Status


@dataclass(frozen=True, eq=False)
class Stats:
    """How the answer was made.

    Attributes
    ----------
    method : str
        A sentence: what was run, and why.
    iterations : int
        Passes of the method.
    sweeps : int
        Passes over the transitions: products with P or its transpose.
    seconds : dict of str to float
        Wall-clock time by phase, and in total.
    history : tuple of Progress
        Where the solve stood whenever it was judged.
    """

    method: str
    iterations: int
    sweeps: int
    seconds: Mapping[str, float]
    history: tuple[Progress, ...]


@dataclass(frozen=True, eq=False)
class Infeasibility:
    """Why no policy obeys, and which comes nearest.

    Attributes
    ----------
    displacement : ndarray over pairs
        From the nearest allowed point to the nearest policy's occupancy (``v`` of the paper); where constraints are of
        several kinds, the sum over kinds.
    margin : float
        Positive: proven distance, along the proof's normal vector, between what policies can do and what is allowed.
    distance : tuple of float
        Proven lower bound on the Euclidean distance of any occupancy to the constraints, and the policy's own; infinite
        where the limits exclude each other, whatever the policy. The unconstrained optimum is then returned.
    relax : dict of str to float
        For each constraint, by how much the returned policy exceeds it: relaxing all of them by this makes the problem
        feasible.
    policy : Policy
        The nearest policy.
    """

    displacement: Array
    margin: float
    distance: tuple[float, float]
    relax: Mapping[str, float]
    policy: Policy


@dataclass(frozen=True, eq=False)
class Solution:
    """A policy, what it really does, and the proof.

    Attributes
    ----------
    status : Status
        How the solve ended; its value is a sentence.
    value, bound, gap : float
        True cost of the policy (normalized), the proven lower bound on the optimum, and their relative difference
        ``(value - bound) / |c|'d``, where convex terms add their size to ``|c|'d``; 0 if rounding may explain it.
    policy : Policy
        Evaluated again by a linear solve: all numbers here are this policy's own.
    occupancy, visits : ndarray
        Frequency of each pair, and of each state.
    costs, violations : dict of str to float
        By name.  A violation is in the units of its constraint.
    prices : dict of str to float or ndarray
        By constraint: the change of the optimum for each unit by which its limit is raised.
    certificate : Certificate
        ``certificate.check(problem)`` recomputes every claim.
    infeasibility : Infeasibility or None
        For INFEASIBLE.
    stats : Stats
        How the answer was made.
    """

    status: Status
    value: float
    bound: float
    gap: float
    policy: Policy
    occupancy: Array
    visits: Array
    costs: Mapping[str, float]
    violations: Mapping[str, float]
    prices: Mapping[str, float | Array]
    certificate: Certificate
    infeasibility: Infeasibility | None
    stats: Stats

    def __str__(self) -> str:
        from cvxmdp.report.text import describe

        return describe(self)

    __repr__ = __str__

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the solution with its proof to an ``.npz`` file that :func:`cvxmdp.load_solution` reads.

        Examples
        --------
        >>> import cvxmdp as cm, tempfile, pathlib
        >>> problem = cm.Problem(cm.worlds.gridworld(size=4), "time")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "answer.npz"
        ...     problem.solve().save(path)
        ...     cm.load_solution(path).certificate.check(problem)
        """
        from cvxmdp.io.npz import save_solution

        save_solution(self, path)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw how gap, violation, value and bound developed.  Return the matplotlib figure; save it with ``path``."""
        from cvxmdp.report.plots import plot_convergence

        return plot_convergence(self.stats.history, path)
