"""What a solve returns."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cvxmdp import interrupts
from cvxmdp.blocks import Constraint, Term
from cvxmdp.certificate import Certificate, Evidence
from cvxmdp.mdp import Array
from cvxmdp.policy import Policy
from cvxmdp.ranks.one_place import LOAD, in_one_place, in_parts
from cvxmdp.status import Progress, Status

if TYPE_CHECKING:
    from cvxmdp.prices import PriceRange
    from cvxmdp.problem import Problem


@dataclass(frozen=True, eq=False)
class Stats:
    """How the answer was made.

    Attributes
    ----------
    method : str
        What was run: each engine with its own steps, in their order.
    iterations : int
        Passes of the method.
    sweeps : int
        Passes over the transitions: products with P or its transpose.
    seconds : dict of str to float
        Wall-clock time by phase and engine, and in total.
    history : tuple of Progress
        Where the solve stood whenever it was judged.
    """

    method: str
    iterations: int
    sweeps: int
    seconds: Mapping[str, float]
    history: tuple[Progress, ...]

    def __repr__(self) -> str:
        from cvxmdp.report.text import stats_lines

        return stats_lines(self)


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
        If it alone is relaxed by this much, all others kept, some policy obeys; None if no amount is ever enough, NaN
        if it was not found out.
    least : float
        Proven: no amount below this is enough.
    alone : str or None
        The limit after that, in words: what it alone would have to become.  None where there is no such amount.
    innocent : bool
        Whether the conflict is there without it.
    """

    exceeded: float
    amount: float | None
    least: float
    alone: str | None
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
        Proven lower bound on the Euclidean distance of any occupancy to the constraints, and the policy's own, which is
        infinite for other compromises.
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
    impossible : dict of str to float
        Limits that no policy obeys even by themselves, and by how much every policy exceeds each (in its own units, and
        at least; NaN where that has no unit of its own).
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
    impossible: Mapping[str, float]

    def __repr__(self) -> str:
        from cvxmdp.report.text import infeasibility_lines

        return infeasibility_lines(self)

    @property
    def near(self) -> tuple[float, float] | None:
        """The policy's distance and the least one, where the policy was chosen by distance."""
        low, high = self.distance
        return (high, low) if self.compromise == "nearest" and math.isfinite(high) else None


@dataclass(frozen=True, eq=False)
class Asked:
    """What was asked for.

    Attributes
    ----------
    objective : str
        What was minimized, in words.
    costs : tuple of str or None
        The costs in it by name; None for one given as a vector.
    cost : ndarray over pairs
        Their sum.
    limits, terms : sequence of Constraint and of Term
        As bound to the model.  None in place of a user's own, which a file does not hold.
    names : tuple of str
        Of the limits, then of the terms.
    discount : float
        Of the model.
    sense : {"minimize", "maximize"}
        Which of the two was asked for.  The cost of what is maximized is negated here.
    """

    objective: str
    costs: tuple[str | None, ...]
    cost: Array
    limits: Sequence[Constraint | None]
    terms: Sequence[Term | None]
    names: tuple[str, ...]
    discount: float
    sense: str = "minimize"


@dataclass(frozen=True, eq=False)
class Solution:
    """A policy, what it really does, and the proof.

    Attributes
    ----------
    status : Status
        How the solve ended; its value is a sentence.
    value, bound, gap : float
        True cost of the policy (normalized), the proven lower bound on the optimum (upper where it is maximized), and
        their relative difference ``|value - bound| / |c|'d``, where convex terms add their size to ``|c|'d``.  What
        rounding may hide is added to the gap.  It is 0 where the value is beyond the bound, as it may be if a limit is
        exceeded by what the tolerance allows; infinite where a limit is exceeded by more.  For INFEASIBLE no policy
        obeys: the bound is infinite, and there is no gap (NaN).
    policy : Policy
        Evaluated again by a linear solve: all numbers here are this policy's own.
    occupancy, visits : ndarray
        Frequency of each pair, and of each state.
    costs : dict of str to float
        By name.
    errors : dict of str to float
        By how much the costs, by name, and the value, as "value", may be off: proven.
    levels, violations : dict
        By constraint, in its own units: what it limits, as the policy does it (an expected cost, a distance, an
        entropy, a worst case; an array where there are several rows), and by how much that exceeds the limit.
    prices : dict of str to float or ndarray
        By constraint: the change of the optimum for each unit by which its limit is raised, proven in this sense: with
        the limit moved outwards by any amount t, the optimum is at least ``bound - |price| t``; where it is maximized,
        at most ``bound + |price| t``.  NaN unless OPTIMAL.
    infeasibility : Infeasibility or None
        For INFEASIBLE.
    stats : Stats
        How the answer was made.
    tolerance : float
        What was asked for, relatively.
    asked : Asked
        The objective and the limits.
    evidence : Evidence
        What proves all this.
    problem : Problem or None
        What was solved; None where the solution is from a file.
    """

    status: Status
    value: float
    bound: float
    gap: float
    policy: Policy
    occupancy: Array
    visits: Array
    costs: Mapping[str, float]
    errors: Mapping[str, float]
    levels: Mapping[str, float | Array]
    violations: Mapping[str, float]
    prices: Mapping[str, float | Array]
    infeasibility: Infeasibility | None
    stats: Stats
    tolerance: float
    asked: Asked
    evidence: Evidence
    problem: Problem | None = None

    @property
    def certificate(self) -> Certificate:
        """The evidence and its check: ``certificate.check(problem)`` recomputes or refuses everything said here."""
        return Certificate(self)

    def turned(self) -> Solution:
        """Return the solution in the other sense: what was to be small in place of what was to be large, or back."""
        found, stats = self.infeasibility, self.stats
        return replace(
            self,
            value=-self.value,
            bound=-self.bound,
            prices={name: 0.0 - price for name, price in self.prices.items()},
            infeasibility=None if found is None else replace(found, cheapest=-found.cheapest),
            stats=replace(stats, history=tuple(progress.turned() for progress in stats.history)),
        )

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
        from cvxmdp.io.solution import save_solution

        save_solution(self, path)

    def plot(self, what: str = "answer", path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the answer, or how it was found.  Return the matplotlib figure; save it with ``path``.

        Parameters
        ----------
        what : {"answer", "convergence"}
            Costs against limits and the most visited states, or the conflict where no policy obeys; or how gap,
            violation, value and bound developed.
        path : str or path, optional
            Where to save it.
        """
        from cvxmdp.report.plots import plot_solution

        return plot_solution(self, what, path)

    def price_ranges(self, problem: Problem | None = None) -> dict[str, PriceRange]:
        """Return, for each limit that has one number, from where to where its price holds, and the prices beyond.

        It takes some more solves.  A limit is left out where rounding does not let them tell.

        Parameters
        ----------
        problem : Problem, optional
            What was solved, for a solution from a file.
        """
        from cvxmdp.prices import price_ranges

        known = self.of(problem)
        with interrupts.heard(known.world):
            return price_ranges(self, known)

    @in_one_place(LOAD)
    def report(self, path: str | os.PathLike[str], problem: Problem | None = None) -> None:
        """Write a page for a browser: the verdict in words, costs against limits, the policy, and the proof.

        Parameters
        ----------
        path : str or path
            Where to write it, such as ``"report.html"``.  The page needs no other file.
        problem : Problem, optional
            What was solved, for a solution from a file.
        """
        from cvxmdp.report.page import write_report

        write_report(self, path, self.of(problem))

    @in_one_place(LOAD)
    def to_frame(self, problem: Problem | None = None) -> Any:
        """Return a pandas frame with a row for each pair, in the model's order.

        Its columns are ``state``, ``action``, ``probability`` of the action in the state, ``occupancy``, the share of
        all visits, and the costs of the pair by their names (``cost state`` for a cost called ``state``, and so on).
        The sum of occupancy times a cost is the policy's cost.

        Parameters
        ----------
        problem : Problem, optional
            What was solved, for a solution from a file, which else comes without the costs.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> solution = cm.Problem(cm.worlds.gridworld(size=2), "time").solve()
        >>> frame = solution.to_frame()
        >>> list(frame)
        ['state', 'action', 'probability', 'occupancy', 'time', 'collision']
        >>> bool(abs((frame["occupancy"] * frame["time"]).sum() - solution.costs["time"]) < 1e-9)
        True
        """
        from cvxmdp.report.frame import solution_frame

        return solution_frame(self, problem)

    def of(self, problem: Problem | None) -> Problem:
        """Return the problem that was solved."""
        known = problem if problem is not None else self.problem
        if known is None:
            raise ValueError("this solution is from a file, which does not hold its problem; give it as problem=")
        return known

    @property
    def world(self) -> Any:
        """The ranks on which the policy lives, or None where it is whole."""
        return self.policy.world

    def _repr_html_(self) -> str | None:
        from cvxmdp.report.html import solution_html

        return None if in_parts(self) else solution_html(self)
