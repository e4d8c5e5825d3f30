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


COMPROMISES = ("nearest", "relative", "priority")
UNFINISHED = "unfinished"
"""In place of a compromise that was not found, as when the time ran out."""


@dataclass(frozen=True)
class Relaxation:
    """What one constraint has to do with the conflict.

    Attributes
    ----------
    exceeded : float
        By how much the returned policy exceeds it, in its own units.
    amount : float or None
        The least amount by which it alone would have to be relaxed, all others kept; None if that is never enough, NaN
        if it was not found out.
    alone : str
        The limit after that, in words: what it alone would have to become.
    innocent : bool
        Whether the conflict is there without it.
    """

    exceeded: float
    amount: float | None
    alone: str
    innocent: bool


@dataclass(frozen=True, eq=False)
class Infeasibility:
    """Why no policy obeys, what would have to change, and which policy is returned instead.

    Attributes
    ----------
    displacement : ndarray over pairs
        From the nearest allowed point to the nearest policy's occupancy (``v`` of the paper); where constraints are of
        several kinds, the sum over kinds.  Zero for other compromises.
    margin : float
        Positive: proven distance, along the proof's normal vector, between what policies can do and what is allowed.
    distance : tuple of float
        Proven lower bound on the Euclidean distance of any occupancy to the constraints, and the policy's own; infinite
        for other compromises.
    relax : dict of str to Relaxation
        For each constraint, by how much the returned policy exceeds it, and what it alone would have to become.
    policy : Policy
        The policy returned.
    compromise : {"nearest", "relative", "priority", "unfinished"}
        What it was chosen by; "unfinished" where the search was stopped.
    least : float
        Proven: every policy exceeds some limit by at least this many times the limit's size.  It says how thin the
        verdict is.  Infinite where relaxing limits does not help, as with pairs that a KL ball forbids.
    cheapest : float
        Proven lower bound on the cost of the nearest policies; minus infinity where none is known.  The policy returned
        is as near to a relative 1e-8 and costs no more than this, to the tolerance.
    conflict : tuple of str
        Limits that cannot all be obeyed, by name.  All others are innocent of it.
    irreducible : bool
        Whether leaving out any one limit of the conflict would end it.
    """

    displacement: Array
    margin: float
    distance: tuple[float, float]
    relax: Mapping[str, Relaxation]
    policy: Policy
    compromise: str
    least: float
    cheapest: float
    conflict: tuple[str, ...]
    irreducible: bool


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
