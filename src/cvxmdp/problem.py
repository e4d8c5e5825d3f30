"""A problem: a model, what to minimize, and the constraints.  ``solve`` leads from a problem to a proven policy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp import interrupts
from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.combine import bind
from cvxmdp.engines.base import Engine
from cvxmdp.engines.choose import choose_engines
from cvxmdp.mdp import MDP, Array
from cvxmdp.memory import keep_freed, warn_if_short
from cvxmdp.names import printable
from cvxmdp.objectives.base import read_objective
from cvxmdp.objectives.nearness import SquaredDistance
from cvxmdp.ranks.one_place import LOAD, in_parts
from cvxmdp.solution import COMPROMISES, Asked, Solution
from cvxmdp.solve import Solve
from cvxmdp.status import Progress
from cvxmdp.threads import few_threads

if TYPE_CHECKING:
    from cvxmdp.review import Review
    from cvxmdp.sweep import Pareto, Range, Sweep

FOREVER = 1e9
"""Seconds, thirty years: a longer time limit is none."""


class Problem:
    """Minimize or maximize an expected cost of a model, or minimize a convex function of its occupancy, under limits.

    Parameters
    ----------
    mdp : MDP
        The model.
    minimize : str, array of shape (num_pairs,), convex term, or a sum of these
        A cost by name or as a vector over pairs; a term of :mod:`cvxmdp.objectives` or an object with ``value`` and
        ``prox``; or a sum, written ``"time" + cm.Distance(...)`` or as a list.
    subject_to : list of constraints
        Their intersection.  See :mod:`cvxmdp.constraints`.
    maximize : str, array of shape (num_pairs,), or a list of these
        Instead of ``minimize``: a cost, such as a reward, that is to be as large as possible.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), minimize="time",
    ...                      subject_to=[cm.Budget("collision", at_most=0.01)])
    >>> problem.solve().status.name
    'OPTIMAL'
    """

    def __init__(self, mdp: MDP, minimize: Any = None, subject_to: Sequence[Any] = (), *, maximize: Any = None) -> None:
        if not isinstance(mdp, MDP):
            raise ValueError(f"mdp must be a cvxmdp.MDP, not {type(mdp).__name__}")
        self.mdp = mdp
        self.cost: Array
        self.terms: list[Term]
        if (minimize is None) == (maximize is None):
            raise ValueError("give minimize= or maximize=, one of them")
        self.sense = "minimize" if maximize is None else "maximize"
        self.cost, self.terms, self.cost_names = read_objective(mdp, minimize if maximize is None else maximize)
        if self.sense == "maximize":
            if self.terms:
                raise ValueError(
                    "maximize takes costs; convex terms can only be minimized: negate the cost and add the term, as in "
                    'minimize=[-mdp.cost("reward"), term]'
                )
            self.cost = -self.cost
        names = ["cost" if name is None else name for name in self.cost_names]
        self.objective = " + ".join([*names, *(term.name for term in self.terms)])
        self.constraints: list[Constraint] = bind(subject_to, mdp, self.terms)

    def __repr__(self) -> str:
        limits = ", ".join(c.name for c in self.constraints) or "nothing"
        return printable(f"Problem({self.sense} {self.objective} in {self.mdp!r}, subject to {limits})")

    def solve(
        self,
        tolerance: float = 1e-6,
        method: str | Engine = "auto",
        time_limit: float | None = None,
        max_iterations: int | None = None,
        warm_start: Solution | None = None,
        callback: Callable[[Progress], object] | None = None,
        verbose: bool = False,
        when_infeasible: str = "nearest",
        explain: bool = True,
    ) -> Solution:
        """Find a policy and prove how good it is, or prove that none obeys and find the nearest.

        Parameters
        ----------
        tolerance : float
            Relative and free of units: ``gap <= tolerance * |c|'d``, to which convex terms add their size, and each
            violation at most ``tolerance`` of its limit.
        method : {"auto", "path", "mixing", "splitting", "interior", "dual", "newton", "conic"}, or one of their classes
            The engine.  "auto" chooses, see :func:`cvxmdp.engines.choose.choose_engines`.  Where "interior" and "dual"
            give up, others go on.
        time_limit : float, optional
            Seconds after which the best policy so far is returned.
        max_iterations : int, optional
            Passes (in the Newton method, Newton steps) after which the best policy so far is returned.
        warm_start : Solution, optional
            An earlier solution of the same or a similar problem.
        callback : callable, optional
            Called with a :class:`cvxmdp.status.Progress`; returning true stops the solve.  What it raises ends the
            solve without a solution, but for ``KeyboardInterrupt``, which is like Ctrl-C.
        verbose : bool
            Show progress in the terminal or notebook; elsewhere, log it as "cvxmdp" at the level INFO.
        when_infeasible : {"nearest", "relative", "priority"}
            Which policy to return where none obeys: the one whose occupancy is nearest to the constraints, and the
            cheapest of these; the one that exceeds limits least, each measured by its size or its ``weight``; or the
            one that meets limits of priority 1 as well as possible, then those of priority 2, and so on.
        explain : bool
            Where no policy obeys, also find out which limits conflict and what each would have to become.  That takes
            a few more solves.

        Returns
        -------
        Solution
            Always, whatever the status.  Ctrl-C returns INTERRUPTED with the best policy so far.
        """
        if not (isinstance(tolerance, Real) and 0 < tolerance < 1):
            raise ValueError(f"tolerance is {tolerance}; it must lie between 0 and 1 (1e-6 is the default)")
        if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0):
            raise ValueError(f"time_limit is {time_limit}; it must be a positive number of seconds")
        if time_limit is not None and time_limit > FOREVER:
            time_limit = None
        if max_iterations is not None and not (isinstance(max_iterations, Integral) and max_iterations >= 1):
            raise ValueError(f"max_iterations is {max_iterations}; give a whole number, at least one")
        if warm_start is not None and not isinstance(warm_start, Solution):
            raise ValueError(f"warm_start must be a Solution, not a {type(warm_start).__name__}")
        if warm_start is not None and warm_start.occupancy.shape != (self.mdp.num_pairs,):
            raise ValueError(f"warm_start has {warm_start.occupancy.size} pairs; the model has {self.mdp.num_pairs}")
        if warm_start is not None and not np.all(np.isfinite(warm_start.occupancy)):
            raise ValueError("warm_start has an occupancy that is not finite; give a Solution as solve returned it")
        lives = warm_start is not None and in_parts(warm_start)
        if lives and not np.array_equal(warm_start.policy.state, self.mdp.state):
            raise ValueError(f"warm_start lives on ranks in other parts than the model; {LOAD}")
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be a function of a Progress, not {callback!r}")
        if when_infeasible not in COMPROMISES:
            raise ValueError(f"when_infeasible is {when_infeasible!r}; it must be one of {', '.join(COMPROMISES)}")
        asked = None if callback is None else _answered(callback)
        shown: AbstractContextManager[Callable[[Progress], object] | None] = nullcontext(asked)
        if verbose:
            from cvxmdp.report.console import live_progress

            shown = live_progress(asked)
        keep_freed(self.mdp.num_pairs)
        if self.mdp.world is None:
            warn_if_short(self.mdp.num_pairs)
        with interrupts.heard(self.world), shown as report, few_threads(self.mdp.num_states):
            engines = choose_engines(method, self.constraints, self.terms, self.mdp)
            turned = self.sense == "maximize"
            told = _turning(report) if turned and report is not None else report
            told = told if self.world is None else _together(told)
            solve = Solve(self, tolerance, time_limit, told, when_infeasible, explain)
            try:
                found = solve(engines, max_iterations, warm_start)
                return found.turned() if turned else found
            except _CallbackRaised as raised:
                error = raised.error
        raise error

    def check(self, policy: Any, solution: Solution | None = None) -> Review:
        """Judge a policy of one's own: what it costs, which limits it exceeds, how far it is from the best.

        Parameters
        ----------
        policy : Policy, or anything :meth:`MDP.policy` takes
            The policy.
        solution : Solution, optional
            Of this problem, for its bound; solved when not given.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> mdp = cm.worlds.gridworld(size=3)
        >>> problem = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=0.01)])
        >>> problem.check([3, 3, 1] * 3).obeys
        True
        """
        from cvxmdp.review import review

        return review(self, policy, solution)

    def sweep(self, limit: Any, values: Any, **options: Any) -> Sweep:
        """Solve for many values of one limit, each from the last.

        Parameters
        ----------
        limit : str or constraint
            Name of a constraint with one limit, or of a cost, which becomes a budget; or a further constraint.
        values : sequence of float
            The limits to try.
        **options
            As in :meth:`solve`.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> mdp = cm.worlds.gridworld(size=4)
        >>> sweep = cm.Problem(mdp, "time").sweep("collision", values=[0.0, 0.005, 0.01])
        >>> [status.name for status in sweep.statuses]
        ['INFEASIBLE', 'OPTIMAL', 'OPTIMAL']
        """
        from cvxmdp.sweep import sweep

        with interrupts.heard(self.world):
            return sweep(self, limit, values, options)

    def pareto(self, first: str, second: str, points: int = 50, **options: Any) -> Pareto:
        """Trade one cost against another: the least of ``first`` for each attainable limit on ``second``.

        The problem's own limits are kept.  Where there are none, the breakpoints are exact.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> front = cm.Problem(cm.worlds.gridworld(size=4), "time").pareto("time", "collision", points=5)
        >>> front.values.size
        5
        """
        from cvxmdp.sweep import pareto

        with interrupts.heard(self.world):
            return pareto(self, first, second, points, options)

    def range(self, limit: str, **options: Any) -> Range:
        """Say from where to where a limit binds, and beyond which value no policy obeys.

        Parameters
        ----------
        limit : str
            Name of a constraint with one limit, or of a cost.
        **options
            As in :meth:`solve`.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> found = cm.Problem(cm.worlds.gridworld(size=4), "time").range("collision")
        >>> found.tightest <= found.loosest
        True
        """
        from cvxmdp.sweep import limit_range

        with interrupts.heard(self.world):
            return limit_range(self, limit, options)

    @property
    def world(self) -> Any:
        """The ranks on which the model lives, or None where it is whole."""
        return self.mdp.world

    def _repr_html_(self) -> str | None:
        from cvxmdp.report.html import problem_html

        return None if in_parts(self) else problem_html(self)

    def asked(self) -> Asked:
        """Return what is asked for, as a solution keeps it."""
        names = tuple(block.name for block in (*self.constraints, *self.terms))
        mdp = self.mdp
        return Asked(
            self.objective, self.cost_names, self.cost, self.constraints, self.terms, names, mdp.discount, self.sense
        )

    def with_limits(self, constraints: Sequence[Constraint], cost: Array | None = None) -> Problem:
        """Return the problem with other constraints, bound to the model already, and another cost if one is given."""
        other = copy.copy(self)
        other.constraints = list(constraints)
        if cost is not None:
            other.cost, other.terms = cost, []
        return other

    def softened(self, limits: Sequence[Constraint]) -> Problem:
        """Return the problem of coming as near to limits as possible, whatever the cost."""
        other = self.with_limits([], np.zeros_like(self.cost))
        other.terms = [SquaredDistance(limit) for limit in limits]
        return other


def _turning(report: Callable[[Progress], object]) -> Callable[[Progress], object]:
    """Tell of what is maximized: inside, its negative is minimized."""
    return lambda progress: report(progress.turned())


def _together(report: Callable[[Progress], object] | None) -> Callable[[Progress], bool]:
    """Tell each rank's callback; what one of them answers or raises counts for all."""

    def tell(progress: Progress) -> bool:
        answer, raised = False, None
        try:
            answer = bool(report(progress)) if report is not None else False
        except BaseException as error:
            raised = error
        if interrupts.agreed(raised is not None):
            raise raised or _CallbackRaised(RuntimeError("a callback raised an error on another rank"))
        return interrupts.agreed(answer)

    return tell


class _CallbackRaised(BaseException):
    """Carries what a callback raised past everything that engines may raise."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _answered(callback: Callable[[Progress], object]) -> Callable[[Progress], bool]:
    """Read what a callback returns as yes or no."""

    def ask(progress: Progress) -> bool:
        try:
            answer = callback(progress)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _CallbackRaised(error) from None
        try:
            return bool(answer)
        except (TypeError, ValueError):
            raise ValueError(
                f"callback returned a {type(answer).__name__} that is neither true nor false; return True to stop the "
                "solve, else False or nothing"
            ) from None

    return ask
