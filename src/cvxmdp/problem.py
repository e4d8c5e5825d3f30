"""A problem: a model, what to minimize, and the constraints.  ``solve`` leads from a problem to a proven policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral, Real
from typing import Any

import numpy as np

from cvxmdp.blocks import Constraint, Term
from cvxmdp.certificate import Certificate, relative_gap
from cvxmdp.constraints.combine import Blocks, bind
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.choose import Engine, choose_engines
from cvxmdp.engines.judge import Bound, Candidate, Judge, Refutation
from cvxmdp.engines.presolve import indicator, policy_iteration
from cvxmdp.mdp import MDP, Array
from cvxmdp.objectives.base import read_objective
from cvxmdp.solution import Infeasibility, Solution, Stats
from cvxmdp.status import Progress, Status
from cvxmdp.threads import few_threads


class Problem:
    """Minimize an expected cost of a model, or a convex function of its occupancy, under convex constraints on it.

    Parameters
    ----------
    mdp : MDP
        The model.
    minimize : str, array of shape (num_pairs,), convex term, or a sum of these
        A cost by name or as a vector over pairs; a term of :mod:`cvxmdp.objectives` or an object with ``value`` and
        ``prox``; or a sum, written ``"time" + cm.Distance(...)`` or as a list.
    subject_to : list of constraints
        Their intersection.  See :mod:`cvxmdp.constraints`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), minimize="time",
    ...                      subject_to=[cm.Budget("collision", at_most=0.01)])
    >>> problem.solve().status.name
    'OPTIMAL'
    """

    def __init__(self, mdp: MDP, minimize: Any, subject_to: Sequence[Any] = ()) -> None:
        if not isinstance(mdp, MDP):
            raise ValueError(f"mdp must be a cvxmdp.MDP, not {type(mdp).__name__}")
        self.mdp = mdp
        self.cost: Array
        self.terms: list[Term]
        self.cost, self.terms, self.objective = read_objective(mdp, minimize)
        self.constraints: list[Constraint] = bind(subject_to, mdp, self.terms)

    def __repr__(self) -> str:
        limits = ", ".join(c.name for c in self.constraints) or "nothing"
        return f"Problem(minimize {self.objective} in {self.mdp!r}, subject to {limits})"

    def solve(
        self,
        tolerance: float = 1e-6,
        method: str | Engine = "auto",
        time_limit: float | None = None,
        max_iterations: int | None = None,
        warm_start: Solution | None = None,
        callback: Callable[[Progress], object] | None = None,
        verbose: bool = False,
    ) -> Solution:
        """Find a policy and prove how good it is, or prove that none obeys and find the nearest.

        Parameters
        ----------
        tolerance : float
            Relative and free of units: ``gap <= tolerance * |c|'d``, to which convex terms add their size, and each
            violation at most ``tolerance`` of its limit.
        method : {"auto", "splitting", "mixing", "interior", "dual", "newton"}, or one of their classes with settings
            The engine.  "auto" chooses, see :func:`cvxmdp.engines.choose.choose_engines`.
        time_limit : float, optional
            Seconds after which the best policy so far is returned.
        max_iterations : int, optional
            Passes (in the Newton method, Newton steps) after which the best policy so far is returned.
        warm_start : Solution, optional
            An earlier solution of the same or a similar problem.
        callback : callable, optional
            Called with a :class:`cvxmdp.status.Progress`; returning true stops the solve.
        verbose : bool
            Show progress in the terminal.

        Returns
        -------
        Solution
            Always, whatever the status.  Ctrl-C returns INTERRUPTED with the best policy so far.
        """
        if not (isinstance(tolerance, Real) and 0 < tolerance < 1):
            raise ValueError(f"tolerance is {tolerance}; it must lie between 0 and 1 (1e-6 is the default)")
        if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0):
            raise ValueError(f"time_limit is {time_limit}; it must be a positive number of seconds")
        if max_iterations is not None and not (isinstance(max_iterations, Integral) and max_iterations >= 1):
            raise ValueError(f"max_iterations is {max_iterations}; give a whole number, at least one")
        if warm_start is not None and not isinstance(warm_start, Solution):
            raise ValueError(f"warm_start must be a Solution, not a {type(warm_start).__name__}")
        if warm_start is not None and warm_start.occupancy.shape != (self.mdp.num_pairs,):
            raise ValueError(f"warm_start has {warm_start.occupancy.size} pairs; the model has {self.mdp.num_pairs}")
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be a function of a Progress, not {callback!r}")
        engines = choose_engines(method, self.constraints, self.terms, self.mdp)
        shown: AbstractContextManager[Callable[[Progress], object] | None] = nullcontext(callback)
        if verbose:
            from cvxmdp.report.console import live_progress

            shown = live_progress(callback)
        with shown as report, few_threads(self.mdp.num_states):
            return self._solve(tolerance, engines, time_limit, max_iterations, warm_start, report)

    def _solve(
        self,
        tolerance: float,
        engines: Sequence[Engine],
        time_limit: float | None,
        max_iterations: int | None,
        warm_start: Solution | None,
        callback: Callable[[Progress], object] | None,
    ) -> Solution:
        started = time.perf_counter()
        dynamics = self.mdp.dynamics(engines[0].evaluation)
        passes = dynamics.passes
        judge = Judge(
            self.mdp, dynamics, self.cost, Blocks(self.constraints, self.terms, self.mdp.num_pairs), tolerance,
            time_limit or np.inf, max_iterations or sum(engine.most_passes for engine in engines), callback,
            policy_iteration(dynamics, self.cost, rounds=0), started,
        )  # fmt: skip
        presolved = started
        try:
            status, sentence = self._presolve(judge)
            presolved = time.perf_counter()
            if status is None:
                status, sentence = self._engage(judge, engines, warm_start)
        except KeyboardInterrupt:
            status, sentence = (Status.INFEASIBLE if judge.refutation else Status.INTERRUPTED), "interrupted"
            judge.time_limit = 0.0  # what is still missing is made up for in one round
            if judge.pending is not None:
                judge.propose(judge.pending())
            if judge.best is None:
                judge.propose(indicator(dynamics, judge.unconstrained.pairs))
            if judge.bound is None:
                judge.prove(judge.blocks.no_duals())
        ended = time.perf_counter()
        seconds = {"presolve": presolved - started, engines[0].name: ended - presolved, "total": ended - started}
        stats = Stats(sentence, judge.iterations, dynamics.passes - passes, seconds, tuple(judge.history))
        return self._solution(judge, status, stats)

    def _presolve(self, judge: Judge) -> tuple[Status | None, str]:
        """Solve without the constraints: the answer when its policy obeys them, else a first policy and bound."""
        judge.unconstrained = policy_iteration(judge.dynamics, self.cost, deadline=judge.deadline)
        judge.propose(indicator(judge.dynamics, judge.unconstrained.pairs))
        judge.prove(judge.blocks.no_duals())
        judge.record(np.nan)
        status = judge.verdict()
        if status is Status.OPTIMAL:
            return status, "policy iteration without the constraints already obeys them"
        if status is None and not judge.blocks.members:
            return Status.ITERATION_LIMIT, "policy iteration has ended; what is left of the gap is rounding"
        return status, "stopped in the first policy iteration"

    def _engage(self, judge: Judge, engines: Sequence[Engine], warm_start: Solution | None) -> tuple[Status, str]:
        """Run the engines until one has a verdict, unless the limits contradict each other."""
        contradiction = judge.blocks.contradiction()
        if contradiction is not None and judge.contradict(contradiction):
            return Status.INFEASIBLE, _blame(self.constraints, contradiction)
        start = self._start(warm_start, judge.blocks)
        for engine in engines:
            status, sentence = engine.run(judge, start)
            if status is not None:
                return status, sentence
        return Status.ITERATION_LIMIT, sentence

    def _start(self, warm_start: Solution | None, blocks: Blocks) -> tuple[Array, list[Array]] | None:
        if warm_start is None:
            return None
        duals, none = [np.asarray(dual) for dual in warm_start.certificate.duals], blocks.no_duals()
        same = len(duals) == len(none) and all(a.shape == b.shape for a, b in zip(duals, none, strict=True))
        return warm_start.occupancy, duals if same else none

    def _solution(self, judge: Judge, status: Status, stats: Stats) -> Solution:
        chosen = judge.nearest if status is Status.INFEASIBLE and judge.nearest is not None else judge.best
        assert chosen is not None
        assert judge.bound is not None
        certificate = self._certificate(judge, status, chosen, judge.bound, judge.refutation)
        gap = relative_gap(chosen.value - judge.bound.value, chosen.scale, judge.bound.rounding)
        infeasibility = None
        if status is Status.INFEASIBLE and judge.refutation is not None:
            low, high, v = np.inf, np.inf, np.zeros_like(chosen.d)
            if not judge.contradictory:
                high = judge.blocks.distance(chosen.d)
                low = min(judge.refutation.distance, high)  # equal but for rounding at the end
                v = np.sum(chosen.d - judge.blocks.project(chosen.d), axis=0)
            infeasibility = Infeasibility(
                v, judge.refutation.margin, (low, high), certificate.violations, chosen.policy
            )
        prices = {c.name: c.price(dual) + 0.0 for c, dual in zip(self.constraints, judge.bound.duals, strict=False)}
        visits = np.zeros(self.mdp.num_states)
        np.add.at(visits, self.mdp.state, chosen.d)
        return Solution(
            status, chosen.value, judge.bound.value, gap, chosen.policy, chosen.d, visits, certificate.costs,
            certificate.violations, prices, certificate, infeasibility, stats,
        )  # fmt: skip

    def _certificate(
        self, judge: Judge, status: Status, chosen: Candidate, bound: Bound, refutation: Refutation | None
    ) -> Certificate:
        claims = {Status.OPTIMAL: "optimal", Status.INFEASIBLE: "infeasible"}
        proof: dict[str, Any] = {}
        if status is Status.INFEASIBLE and refutation is not None:
            proof = {"margin": refutation.margin, "margin_duals": refutation.duals, "margin_potential": refutation.V}
        return Certificate(
            claims.get(status, "bound"),
            chosen.policy.probabilities,
            chosen.d,
            chosen.value,
            bound.value,
            {name: float(cost @ chosen.d) for name, cost in self.mdp.costs.items()},
            {c.name: c.violation(chosen.d) for c in self.constraints},
            judge.tolerance,
            bound.duals,
            bound.V,
            **proof,
        )


def _blame(constraints: Sequence[Constraint], duals: Sequence[Array]) -> str:
    """Say which limits exclude each other: those whose duals are not zero."""
    blamed: list[str] = []
    for constraint, dual in zip(constraints, duals, strict=True):
        rows = np.flatnonzero(dual != constraint.idle())
        if isinstance(constraint, Linear) and dual.size > 1:
            blamed += [f"row {row} of {constraint.name!r}" for row in rows]
        elif rows.size:
            blamed.append(repr(constraint.name))
    if len(blamed) == 1:
        return f"nothing obeys {blamed[0]}, whatever the policy"
    shown = ", ".join(blamed[:5]) + (f" and {len(blamed) - 5} more" if len(blamed) > 5 else "")
    return f"{shown} contradict each other, whatever the policy"
