"""The evidence that travels with every answer, and its check.

An answer claims what a policy costs, what no policy can undercut, that no policy obeys, or what would have to change.
Each claim rests on a *witness*, a policy with its visits and how exact they are, or on a *proof*, vectors from which a
bound follows.  ``check`` hands all of it to :mod:`cvxmdp_verifier`, which shares no code with this library and
recomputes or refuses everything a solution says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cvxmdp.mdp import Array

if TYPE_CHECKING:
    from cvxmdp.problem import Problem
    from cvxmdp.solution import Solution


Limit = tuple[int, int | None]
"""A constraint, or one row of a linear one."""


class CertificateError(ValueError):
    """A claim of a solution is false, or not proven, for the problem it was checked against."""


@dataclass(frozen=True, eq=False)
class Witness:
    """A policy and what it does.

    Attributes
    ----------
    probabilities : ndarray over pairs
        The policy.
    visits : ndarray of shape (2, num_states)
        How often each state is visited, as the sum of two numbers.
    error : ndarray over states
        By how much each may be off.
    """

    probabilities: Array
    visits: Array
    error: Array


@dataclass(frozen=True, eq=False)
class Proof:
    """Vectors from which a bound follows.

    Attributes
    ----------
    duals : list of ndarray
        One for each constraint, then one for each convex term where the objective matters.
    potential : ndarray over states
        V of ``(1 - gamma) rho'V + min over pairs of (c + u + M V) - top``.
    """

    duals: Sequence[Array]
    potential: Array


@dataclass(frozen=True, eq=False)
class Evidence:
    """All witnesses and proofs of a solution, by what they are for.

    Attributes
    ----------
    witnesses : dict of str to Witness
        "policy" is the one returned; "enough:i" obeys once constraint i is relaxed, "without:j" once the j-th limit of
        the conflict is left out.
    proofs : dict of str to Proof
        "bound" of the optimum; "margin" shows that no policy obeys, "cheapest" bounds the cost of the nearest,
        "short:i" shows what is not enough, "conflict", "impossible:j" and "priority:p" what their names say.
    displacements : ndarray or None
        From the nearest allowed points to the nearest policy's occupancy, one row a set.
    conflict, impossible : sequence of (constraint, row)
        Which limits are meant: the number of a constraint, and of its row or None for all of it.
    without : sequence of str
        For each limit of an irreducible conflict, the witness that obeys the others.
    amounts : dict of int to float
        For each priority, by how many times their size limits had to be relaxed.
    """

    witnesses: Mapping[str, Witness]
    proofs: Mapping[str, Proof] = field(default_factory=dict)
    displacements: Array | None = None
    conflict: Sequence[Limit] = ()
    impossible: Sequence[Limit] = ()
    without: Sequence[str] = ()
    amounts: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """The evidence of a solution and its check.

    Attributes
    ----------
    evidence : Evidence
        Witnesses and proofs.
    tolerance : float
        What the claims hold to, relatively.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Budget("collision", at_most=0.01)])
    >>> problem.solve().certificate.check(problem)
    """

    solution: Solution

    def __repr__(self) -> str:
        from cvxmdp.report.text import certificate_lines

        return certificate_lines(self)

    @property
    def evidence(self) -> Evidence:
        return self.solution.evidence

    @property
    def tolerance(self) -> float:
        return self.solution.tolerance

    def check(self, problem: Problem, tolerance: float = 1e-6) -> None:
        """Recompute everything the solution says from the problem's data, in extended precision.

        Parameters
        ----------
        problem : Problem
            The problem that was solved.
        tolerance : float
            What is asked of the claims: those of a solution to a looser tolerance are refused.

        Raises
        ------
        CertificateError
            Naming the first claim that is false or not proven.
        """
        from cvxmdp.io.solution import check_solution
        from cvxmdp.problem import Problem

        if not isinstance(problem, Problem):
            raise ValueError(f"check needs the Problem that was solved, not a {type(problem).__name__}")
        check_solution(self.solution, problem, tolerance)
