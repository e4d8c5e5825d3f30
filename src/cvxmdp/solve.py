"""From a problem to a solution: presolve, engines, and where no policy obeys, a compromise and an explanation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp import interrupts, phases
from cvxmdp.blocks import Constraint
from cvxmdp.certificate import Evidence, Proof
from cvxmdp.constraints.combine import Blocks, relative_ease
from cvxmdp.dynamics.base import indicator
from cvxmdp.engines.base import Engine, Start
from cvxmdp.engines.choose import ENGINES, choose_engines
from cvxmdp.engines.clean import cleaned
from cvxmdp.engines.clock import Clock
from cvxmdp.engines.drive import Drive
from cvxmdp.engines.exact import EPS, TINY
from cvxmdp.engines.judge import Goal, Judge
from cvxmdp.engines.mixture import Columns
from cvxmdp.engines.presolve import Unconstrained, policy_iteration
from cvxmdp.engines.prover import Candidate, Prover, Refutation
from cvxmdp.infeasible import CLOSENESS, Explanation, StoppedError, by_priority, explain, least_relative, named
from cvxmdp.mdp import Array
from cvxmdp.nearest import From, come_near, least_cost, make_cheapest
from cvxmdp.ranks.one_place import in_parts
from cvxmdp.ranks.scattered import as_array
from cvxmdp.solution import UNFINISHED, Infeasibility, Relaxation, Solution, Stats
from cvxmdp.status import Progress, Status
from cvxmdp.threads import one_blas_thread

if TYPE_CHECKING:
    from cvxmdp.problem import Problem

STATING = 0.5
"""Seconds after which proving what the last policy does is cut short, where the time is over."""


class Solve:
    """One call of ``problem.solve``: what was asked for, and how long each phase took."""

    def __init__(
        self,
        problem: Problem,
        tolerance: float,
        time_limit: float | None,
        callback: Callable[[Progress], object] | None,
        when_infeasible: str,
        explained: bool,
    ) -> None:
        self.problem, self.tolerance, self.callback = problem, tolerance, callback
        self.when_infeasible, self.explained = when_infeasible, explained
        self.started = time.perf_counter()
        self.deadline = self.started + (time_limit or np.inf)
        self.seconds: dict[str, float] = {}
        self.sweeps = 0
        self.stopped = False
        """Whether Ctrl-C was pressed or the callback asked to stop."""
        self.last: Progress | None = None
        self.columns = Columns()
        self.instead: Candidate | None = None
        """The compromise, where it is not the nearest policy."""
        self.amounts: dict[int, float] = {}
        self.proofs: dict[str, Proof] = {}
        """What limits had to be relaxed by, for each priority, and why."""

    def __call__(self, engines: Sequence[Engine], max_iterations: int | None, warm_start: Solution | None) -> Solution:
        """Solve, make the best of it where no policy obeys, and state what is proven."""
        judge, status, said = self.run(self.problem, engines, max_iterations=max_iterations, warm_start=warm_start)
        explanation, compromise = Explanation(), UNFINISHED
        if status is Status.INFEASIBLE and not self.stopped:
            self.last = judge.clock.history[-1]
            with suppress(StoppedError, KeyboardInterrupt):
                started = time.perf_counter()
                phases.begin("no policy obeys; looking for a compromise")
                compromise = self._compromise(judge)
                self.seconds["compromise"] = time.perf_counter() - started
                if self.explained and not self.stopped and judge.clock.limit() in (None, Status.ITERATION_LIMIT):
                    started = time.perf_counter()
                    phases.begin("no policy obeys; finding out which limits conflict")
                    assert judge.refutation is not None
                    explanation = explain(self.ask, self.problem.constraints, judge.refutation, self.tolerance)
                    self.seconds["explanation"] = time.perf_counter() - started
        if self.stopped:
            said += "; interrupted"
        phases.begin("proving what the policy does")
        self.columns.held.clear()  # long arrays that nobody asks for any more
        # Ctrl-C is told once, and time runs out once: then what is left is cut short.
        for deadline in (max(self.deadline, time.perf_counter() + STATING), time.perf_counter()):
            with suppress(KeyboardInterrupt, interrupts.OutOfTimeError), interrupts.until(deadline):
                return self._stated(judge, status, said, compromise, explanation)
        return self._stated(judge, status, said, compromise, explanation)

    def _stated(self, judge: Judge, status: Status, said: str, compromise: str, found: Explanation) -> Solution:
        """Measure the policy and state what is proven."""
        chosen = judge.prover.measured(self._chosen(judge, status))
        if status is Status.OPTIMAL and (clean := cleaned(judge, chosen)) is not chosen:
            chosen = judge.best = clean
            judge.record(np.nan)
        self.seconds["total"] = time.perf_counter() - self.started
        stats = Stats(said, judge.clock.iterations, self.sweeps, self.seconds, tuple(judge.clock.history))
        if status is Status.INFEASIBLE and judge.refutation is not None:
            return self._infeasible(judge, chosen, compromise, found, stats)
        judge.best = chosen
        return self._decided(judge, status, chosen, stats)

    def run(
        self,
        problem: Problem,
        engines: Sequence[Engine],
        any_will_do: bool = False,
        max_iterations: int | None = None,
        warm_start: Solution | None = None,
    ) -> tuple[Judge, Status, str]:
        """Solve a problem as far as engines can; where they cannot say whether a policy obeys, the distance decides."""
        start = None if warm_start is None else (warm_start.occupancy, _duals(warm_start))
        judge = self._begin(problem, engines, Goal(self.tolerance, any_will_do), max_iterations)
        status, said = self._attempt(problem, judge, engines, start)
        if status is None or (status is Status.ITERATION_LIMIT and max_iterations is None):
            status = Status.UNDECIDED  # nobody set a limit: the engines gave up
        if problem is self.problem and judge.refuted is not None:
            self.seconds["verdict"] = judge.refuted
        return judge, status, said

    def _inner(self, problem: Problem, engines: Sequence[Engine], goal: Goal, start: From | None) -> Judge:
        """Solve a problem that is part of another, see :mod:`cvxmdp.nearest`."""
        judge = self._begin(problem, engines, goal, None)
        self._attempt(problem, judge, engines, start)
        return judge

    def _come_near(self, problem: Problem, judge: Judge) -> Status | None:
        """Find the nearest policy, and by that whether one obeys."""
        if problem is self.problem:
            self.last = judge.clock.history[-1]
        try:
            with interrupts.until(self.deadline):
                come_near(self._inner, problem, judge)
        except interrupts.OutOfTimeError:
            pass
        except KeyboardInterrupt:
            self.stopped = True
        if self.stopped:
            judge.clock.stop()
        return Status.INFEASIBLE if judge.refutation is not None else judge.verdict()

    def _begin(self, problem: Problem, engines: Sequence[Engine], goal: Goal, max_iterations: int | None) -> Judge:
        """Make the judge of a problem.  It knows the policy that looks best in one step."""
        callback = self.callback if problem is self.problem else self._still
        most = max_iterations or sum(engine.most_passes for engine in engines)
        clock = Clock(time.perf_counter(), self.deadline, most, callback)
        dynamics = problem.mdp.dynamics(engines[0].evaluation)
        blocks = Blocks(problem.constraints, problem.terms, problem.cost)
        prover = Prover(problem.mdp, dynamics, problem.cost, blocks, goal.tolerance, clock)
        return Judge(prover, goal)

    def _attempt(
        self, problem: Problem, judge: Judge, engines: Sequence[Engine], start: From | None
    ) -> tuple[Status | None, str]:
        """Run presolve and engines; None where all gave up."""
        if self.stopped:
            raise StoppedError
        dynamics, clock, main = judge.prover.dynamics, judge.clock, problem is self.problem
        passes, presolved = dynamics.passes, clock.started
        seconds = self.seconds if main else {}
        drive = Drive(
            judge, self.columns, partial(self._come_near, problem, judge), seconds, phases.begin if main else None
        )
        if main:
            phases.begin("policy iteration without the limits")
        try:
            with one_blas_thread(dynamics.compiled):
                status, said = _presolve(judge)
            presolved = time.perf_counter()
            if status is None and judge.blocks.members:
                with interrupts.until(self.deadline):
                    status, said = _engage(drive, engines, problem, start)
        except (KeyboardInterrupt, interrupts.OutOfTimeError) as reason:
            late = isinstance(reason, interrupts.OutOfTimeError)
            status, said = Status.TIME_LIMIT if late else Status.INTERRUPTED, ", then ".join(drive.said)
            status = Status.INFEASIBLE if judge.refutation else status
            _wind_up(judge, stopped=not late)
        self.stopped |= clock.stopped or interrupts.requested()
        if main:
            self.seconds["presolve"] = presolved - clock.started
        self.sweeps += dynamics.passes - passes
        return status, said

    def _still(self, _: Progress) -> object:
        """Tell the callback how long it has been going on: where the problem itself stands does not change."""
        if self.callback is None or self.last is None:
            return None
        return self.callback(replace(self.last, seconds=time.perf_counter() - self.started))

    def ask(
        self, constraints: Sequence[Constraint], cost: Array | None = None, seek: str = "verdict"
    ) -> tuple[Status, Judge]:
        """Solve the problem with other constraints, as far as is sought, see :class:`cvxmdp.infeasible.Ask`."""
        if cost is None and seek != "optimum":
            cost = self.problem.cost  # without the convex terms, which do not matter to that
        other = self.problem.with_limits(constraints, cost)
        engines = choose_engines("auto", other.constraints, other.terms, other.mdp)
        judge, status, _ = self.run(other, engines, any_will_do=seek != "optimum")
        if seek == "distance" and judge.apart and judge.nearest is None:
            self._come_near(other, judge)
        if self.stopped:
            raise StoppedError
        return status, judge

    def _compromise(self, judge: Judge) -> str:
        """Find the policy that is asked for where none obeys; return which kind it is."""
        constraints = self.problem.constraints
        assert judge.refutation is not None
        if self.when_infeasible == "priority":
            best, self.amounts, self.proofs = by_priority(self.ask, constraints, self.tolerance)
            if best is None or best.best is None:
                return UNFINISHED
            self.instead = judge.prover.candidate(best.best.d, anywhere=True)
            return "priority"
        if self.when_infeasible == "nearest" and judge.apart:
            if judge.nearest is None:
                self._come_near(self.problem, judge)
            if judge.blocks.flat and judge.near:
                with suppress(interrupts.OutOfTimeError), interrupts.until(self.deadline):
                    make_cheapest(self._inner, self.problem, judge)
            return "nearest"
        # Where no point is allowed, none is nearest.
        proof, found = least_relative(self.ask, constraints, judge.refutation, self.tolerance)
        after = judge.prover.refutation(proof.duals) or judge.refutation
        judge.refutation = max(judge.refutation, after, key=lambda known: _least(constraints, known))
        if found is None or found.best is None:
            return UNFINISHED
        self.instead = judge.prover.candidate(found.best.d, anywhere=True)
        return "relative"

    def _chosen(self, judge: Judge, status: Status) -> Candidate:
        """Return the policy to state: the compromise where none obeys, else the best."""
        chosen = judge.best
        if status is Status.INFEASIBLE:
            chosen = self.instead or (judge.nearest.candidate if judge.nearest is not None else judge.best)
        assert chosen is not None
        return chosen

    def _violations(self, chosen: Candidate) -> dict[str, float]:
        return {c.name: c.violation(chosen.d) for c in self.problem.constraints}

    def _infeasible(
        self, judge: Judge, chosen: Candidate, compromise: str, found: Explanation, stats: Stats
    ) -> Solution:
        """State why no policy obeys, and what the compromise does."""
        problem, proof = self.problem, judge.refutation
        assert proof is not None
        constraints, violations = problem.constraints, self._violations(chosen)
        proofs: dict[str, Proof] = {"margin": proof, **found.proofs}
        length = float(np.linalg.norm(judge.blocks.stacked(proof.duals)))
        # Where limits contradict each other, their normals cancel, and what rounding leaves of them counts.
        length += EPS * ((chosen.d.size + 10) * length + judge.blocks.normals(proof.duals)[2])
        low = proof.margin / length if length > 0 else np.inf
        distance, v, cheapest, displacements = (low, np.inf), np.zeros_like(chosen.d), -np.inf, None
        if compromise == "nearest":
            displacements = chosen.d - judge.blocks.project(chosen.d)
            high = float(np.linalg.norm(displacements)) * (1 + displacements.size * EPS)
            distance, v = (min(low, high), high), np.sum(displacements, axis=0)
            if judge.nearest is not None and judge.nearest.cheapest is not None:
                nearest = replace(judge.nearest, candidate=chosen, displacement=displacements)
                cheapest = min(least_cost(judge, nearest), chosen.value)
                proofs["cheapest"] = judge.nearest.cheapest
        if compromise == "priority":
            proofs |= self.proofs
        unknown = Relaxation(0.0, np.nan, 0.0, None, False)
        relax = {name: replace(found.relax.get(name, unknown), exceeded=v) for name, v in violations.items()}
        names = named(constraints, found.impossible)
        infeasibility = Infeasibility(
            v, proof.margin, distance, relax, chosen.policy, compromise, _least(constraints, proof), cheapest,
            tuple(named(constraints, found.conflict)), found.irreducible, dict(zip(names, found.beyond, strict=True)),
        )  # fmt: skip
        witnesses = {"policy": chosen, **found.witnesses}
        evidence = Evidence(
            {name: judge.prover.measured(known).witness() for name, known in witnesses.items()}, proofs, displacements,
            found.conflict, found.impossible, found.without, self.amounts if compromise == "priority" else {},
        )  # fmt: skip
        prices = {c.name: c.price(c.idle()) + np.nan for c in constraints}
        return self._solution(Status.INFEASIBLE, chosen, np.inf, np.nan, prices, infeasibility, stats, evidence)

    def _decided(self, judge: Judge, status: Status, chosen: Candidate, stats: Stats) -> Solution:
        """State what the best policy costs and what no policy can undercut."""
        bound = judge.bound
        assert bound is not None
        optimal = status is Status.OPTIMAL
        prices = {
            c.name: c.price(dual if optimal else c.idle()) + (0.0 if optimal else np.nan)
            for c, dual in zip(self.problem.constraints, bound.duals, strict=False)
        }
        evidence = Evidence({"policy": chosen.witness()}, {"bound": bound})
        return self._solution(status, chosen, bound.value, judge.gap, prices, None, stats, evidence)

    def _solution(
        self,
        status: Status,
        chosen: Candidate,
        bound: float,
        gap: float,
        prices: dict[str, float | Array],
        infeasibility: Infeasibility | None,
        stats: Stats,
        evidence: Evidence,
    ) -> Solution:
        problem, d = self.problem, chosen.d
        visits = np.bincount(problem.mdp.state, weights=d, minlength=problem.mdp.num_states).astype(np.float64)
        costs = {name: float(cost @ d) for name, cost in problem.mdp.costs.items()}
        levels = {c.name: c.level(d) for c in problem.constraints}
        assert chosen.visits is not None
        spread = chosen.visits.spread(problem.mdp.state, chosen.policy.probabilities)
        # Below the least normal number there are no relative errors.
        errors = {name: float(spread.of(np.abs(cost))) + TINY for name, cost in problem.mdp.costs.items()}
        errors["value"] = max(chosen.error + TINY, errors.get("value", 0.0))
        return Solution(
            status, chosen.value, bound, gap, chosen.policy, d, visits, costs, errors, levels, self._violations(chosen),
            prices, infeasibility, stats, self.tolerance, problem.asked(), evidence, problem,
        )  # fmt: skip


def accept(
    problem: Problem, tolerance: float, d: Array, duals: Sequence[Array], potential: Array, unconstrained: Unconstrained
) -> Solution | None:
    """State the policy of an occupancy that is known already, if it is proven best; else return None.

    ``duals`` and ``potential`` are of the proof, ``unconstrained`` is the best policy without limits.
    """
    solve = Solve(problem, tolerance, None, None, "nearest", False)
    judge = solve._begin(problem, [ENGINES["path"]], Goal(tolerance), None)
    judge.prover.unconstrained = unconstrained
    judge.propose(d)
    judge.prove(duals, potential)
    judge.record(np.nan)
    if judge.verdict() is not Status.OPTIMAL or judge.best is None:
        return None
    solve.seconds["total"] = time.perf_counter() - solve.started
    stats = Stats("a mixture of policies found before", 0, solve.sweeps, solve.seconds, tuple(judge.clock.history))
    found = solve._decided(judge, Status.OPTIMAL, judge.best, stats)
    return found.turned() if problem.sense == "maximize" else found


def _least(constraints: Sequence[Constraint], proof: Refutation) -> float:
    """Return what a proof says of every policy's worst relative violation; inf where no limit's size matters."""
    ease = relative_ease(constraints, proof.duals)
    return proof.margin / ease * (1 - CLOSENESS) if ease > 0 else np.inf


def _presolve(judge: Judge) -> tuple[Status | None, str]:
    """Solve without the constraints: the answer when its policy obeys them, else a first policy and bound."""
    prover = judge.prover
    prover.unconstrained = policy_iteration(prover.dynamics, prover.c, deadline=judge.clock.deadline)
    judge.propose(indicator(prover.dynamics, prover.unconstrained.pairs))
    judge.prove_first()
    judge.record(np.nan)
    status = judge.verdict()
    if status is Status.OPTIMAL:
        return status, "policy iteration without the constraints already obeys them"
    if not judge.blocks.members:
        return status, "policy iteration has ended; what is left of the gap is rounding"
    return status, "stopped in the first policy iteration"


def _wind_up(judge: Judge, stopped: bool) -> None:
    """Make up in one round for what is missing when a solve ends in the middle, out of time or stopped."""
    if stopped:
        judge.clock.stop()
    if judge.best is None:
        judge.propose(indicator(judge.prover.dynamics, judge.prover.unconstrained.pairs))
    judge.prove_first()


def _engage(drive: Drive, engines: Sequence[Engine], problem: Problem, start: From | None) -> tuple[Status | None, str]:
    """Drive the engines, unless the limits contradict each other."""
    judge = drive.judge
    contradiction = judge.blocks.contradiction()
    if contradiction is not None and judge.contradict(contradiction) is not None:
        return Status.INFEASIBLE, _blame(problem.constraints, contradiction)
    begin = None
    if start is not None:
        none, (d, duals) = judge.blocks.no_duals(), start
        same = len(duals) == len(none) and all(a.shape == b.shape for a, b in zip(duals, none, strict=True))
        mdp = problem.mdp
        duals = [mdp.here(a) if in_parts(b) else a for a, b in zip(duals, none, strict=True)] if same else none
        d = mdp.here(d)
        judge.propose(d)
        begin = Start(d, duals, judge.prove(duals).potential)
    status = drive(engines, begin)
    return status, ", then ".join(drive.said)


def _duals(warm_start: Solution) -> list[Array]:
    """Return the duals of an earlier solution, if it has any."""
    known = warm_start.evidence.proofs.get("bound")
    return [] if known is None else [as_array(dual) for dual in known.duals]


def _blame(constraints: Sequence[Constraint], duals: Sequence[Array]) -> str:
    """Say which limits exclude each other: those whose duals are not zero."""
    blamed: list[str] = []
    for constraint, dual in zip(constraints, duals, strict=True):
        rows = np.flatnonzero(dual != constraint.idle())
        if constraint.parts > 1:
            blamed += [f"row {row} of {constraint.name!r}" for row in rows]
        elif rows.size:
            blamed.append(repr(constraint.name))
    if len(blamed) == 1:
        return f"nothing obeys {blamed[0]}, whatever the policy"
    shown = ", ".join(blamed[:5]) + (f" and {len(blamed) - 5} more" if len(blamed) > 5 else "")
    return f"{shown} contradict each other, whatever the policy"
