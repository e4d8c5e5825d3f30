"""From a problem to a solution: presolve, engines, and where no policy obeys, a compromise and an explanation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp import interrupts
from cvxmdp.blocks import Constraint
from cvxmdp.certificate import Evidence, Proof, Witness
from cvxmdp.constraints.combine import Blocks, relative_ease
from cvxmdp.constraints.linear import Linear
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines.base import Engine
from cvxmdp.engines.choose import choose_engines
from cvxmdp.engines.conic import Conic
from cvxmdp.engines.judge import Candidate, Judge, Refutation
from cvxmdp.engines.newton import Newton
from cvxmdp.engines.presolve import indicator, policy_iteration
from cvxmdp.engines.prover import EPS, TINY
from cvxmdp.infeasible import CLOSENESS, Explanation, by_priority, explain, least_relative, named
from cvxmdp.mdp import Array
from cvxmdp.solution import UNFINISHED, Infeasibility, Relaxation, Solution, Stats
from cvxmdp.status import Progress, Status
from cvxmdp.threads import one_blas_thread

if TYPE_CHECKING:
    from cvxmdp.problem import Problem

PATIENCE = 200
"""Passes of an engine after which the next one tries."""
STATING = 0.5
"""Seconds after which proving what the last policy does is cut short, where the time is over."""
SECOND, SECOND_PAIRS = 1000, 5000
"""Passes of the second round, and the pairs up to which they take seconds."""


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
        self.last: Progress | None = None
        self.amounts: dict[int, float] = {}
        self.proofs: dict[str, Proof] = {}
        """What limits had to be relaxed by, for each priority, and why."""

    def __call__(self, engines: Sequence[Engine], max_iterations: int | None, warm_start: Solution | None) -> Solution:
        """Solve, make the best of it where no policy obeys, and state what is proven."""
        seek = "policy" if self.when_infeasible == "nearest" else "optimum"
        judge, status, sentence = self.run(self.problem, engines, seek, max_iterations, warm_start)
        explanation = Explanation()
        compromise = "nearest" if self.when_infeasible == "nearest" else UNFINISHED
        if status is Status.INFEASIBLE and judge.refutation is not None and not judge.stopped:
            started, self.last = time.perf_counter(), judge.history[-1]
            try:
                compromise = self._compromise(judge)
                self.seconds["compromise"] = time.perf_counter() - started
                if self.explained and judge.limit() is None:
                    started = time.perf_counter()
                    explanation = explain(self.ask, self.problem.constraints, judge.refutation, self.tolerance)
                    self.seconds["explanation"] = time.perf_counter() - started
            except KeyboardInterrupt:
                sentence += "; interrupted"
        # Ctrl-C is told once, and time runs out once: then what is left is cut short.
        for deadline in (max(self.deadline, time.perf_counter() + STATING), time.perf_counter()):
            with suppress(KeyboardInterrupt, interrupts.OutOfTimeError), interrupts.until(deadline):
                return self._stated(judge, status, sentence, compromise, explanation)
        return self._stated(judge, status, sentence, compromise, explanation)

    def _stated(self, judge: Judge, status: Status, sentence: str, compromise: str, found: Explanation) -> Solution:
        """Measure the policy and state what is proven."""
        chosen = judge.measured(self._chosen(judge, status))
        if status is Status.OPTIMAL and (cleaned := judge.cleaned(chosen)) is not chosen:
            chosen = judge.best = cleaned
            judge.record(np.nan)
        self.seconds["total"] = time.perf_counter() - self.started
        stats = Stats(sentence, judge.iterations, self.sweeps, self.seconds, tuple(judge.history))
        if status is Status.INFEASIBLE and judge.refutation is not None:
            return self._infeasible(judge, chosen, compromise, found, stats)
        judge.best = chosen
        return self._decided(judge, status, chosen, stats)

    def run(
        self,
        problem: Problem,
        engines: Sequence[Engine],
        seek: str,
        max_iterations: int | None = None,
        warm_start: Solution | None = None,
    ) -> tuple[Judge, Status, str]:
        """Run presolve and engines on a problem; return what is known in the end."""
        started = time.perf_counter()
        most = max_iterations or sum(engine.most_passes for engine in engines)
        judge, presolved = None, started
        try:
            dynamics = problem.mdp.dynamics(engines[0].evaluation)
            passes = dynamics.passes
            judge = self._judge(problem, dynamics, most, seek, started)
            with one_blas_thread(dynamics.compiled):
                status, sentence = _presolve(judge)
            presolved = time.perf_counter()
            if status is None:
                booked = self.seconds if problem is self.problem else {}
                with interrupts.until(self.deadline):
                    status, sentence = _engage(judge, engines, problem, warm_start, booked)
        except KeyboardInterrupt:
            if problem is not self.problem:
                raise
            if judge is None:
                dynamics = problem.mdp.dynamics(engines[0].evaluation)
                passes = dynamics.passes
                judge = self._judge(problem, dynamics, most, seek, started)
            status, sentence = (Status.INFEASIBLE if judge.refutation else Status.INTERRUPTED), "interrupted"
            _wind_up(judge)
        if status is Status.ITERATION_LIMIT and max_iterations is None:
            status = Status.UNDECIDED  # nobody set a limit: the engines gave up
        if problem is self.problem:
            self.seconds["presolve"] = presolved - started
            if judge.refuted is not None:
                self.seconds["verdict"] = judge.refuted
        self.sweeps += dynamics.passes - passes
        return judge, status, sentence

    def _judge(self, problem: Problem, dynamics: Dynamics, most: int, seek: str, started: float) -> Judge:
        blocks = Blocks(problem.constraints, problem.terms, problem.mdp.num_pairs)
        return Judge(
            problem.mdp, dynamics, problem.cost, blocks, self.tolerance, self.deadline - started, most,
            self.callback if problem is self.problem else self._still, started, seek,
        )  # fmt: skip

    def _still(self, _: Progress) -> object:
        """Tell the callback how long it has been going on: where the problem itself stands does not change."""
        if self.callback is None or self.last is None:
            return None
        return self.callback(replace(self.last, seconds=time.perf_counter() - self.started))

    def ask(
        self, constraints: Sequence[Constraint], cost: Array | None = None, seek: str = "verdict"
    ) -> tuple[Status, Judge]:
        """Solve the problem with other constraints, as far as is sought."""
        if cost is None and seek in ("verdict", "distance"):
            cost = self.problem.cost  # without the convex terms, which do not matter to that
        other = self.problem.with_limits(constraints, cost)
        judge, status, _ = self.run(other, choose_engines("auto", other.constraints, other.terms, other.mdp), seek)
        if judge.stopped or status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return status, judge

    def _compromise(self, judge: Judge) -> str:
        """Find the policy that is asked for where none obeys; return which kind it is."""
        constraints = self.problem.constraints
        assert judge.refutation is not None
        if self.when_infeasible == "priority":
            best, self.amounts, self.proofs = by_priority(self.ask, constraints, self.tolerance)
            if best is None or best.best is None:
                return UNFINISHED
            judge.nearest = judge.candidate(best.best.d)
            return "priority"
        if self.when_infeasible == "nearest" and not judge.contradictory:
            return "nearest"
        # Where no point is allowed, none is nearest.
        proof, found = least_relative(self.ask, constraints, judge.refutation, self.tolerance)
        before, judge.refutation = judge.refutation, None
        after = judge.refute(proof.duals) or before
        judge.refutation = max(before, after, key=lambda known: _least(constraints, known))
        if found is None or found.best is None:
            return UNFINISHED
        judge.nearest = judge.candidate(found.best.d)
        return "relative"

    def _chosen(self, judge: Judge, status: Status) -> Candidate:
        chosen = judge.nearest if status is Status.INFEASIBLE and judge.nearest is not None else judge.best
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
        proofs = {"margin": Proof(proof.duals, proof.V), **found.proofs}
        length = float(np.linalg.norm(judge.blocks.stacked(proof.duals)))
        # Where limits contradict each other, their normals cancel, and what rounding leaves of them counts.
        length += EPS * ((chosen.d.size + 10) * length + judge.blocks.normals(proof.duals)[2])
        low = proof.margin / length if length > 0 else np.inf
        distance, v, cheapest, displacements = (low, np.inf), np.zeros_like(chosen.d), -np.inf, None
        if compromise == "nearest":
            displacements = chosen.d - judge.blocks.project(chosen.d)
            high = float(np.linalg.norm(displacements)) * (1 + displacements.size * EPS)
            distance, v = (min(low, high), high), np.sum(displacements, axis=0)
            judge.displacement = displacements
            if judge.moved is not None:
                cheapest = min(judge.least_nearest(), chosen.value)
                proofs["cheapest"] = Proof(judge.moved.duals, judge.moved.V)
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
            {name: _witness(judge.measured(known)) for name, known in witnesses.items()}, proofs, displacements,
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
        evidence = Evidence({"policy": _witness(chosen)}, {"bound": Proof(bound.duals, bound.V)})
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
        spread = chosen.visits.spread(problem.mdp.state, chosen.policy.probabilities, d)
        # Below the least normal number there are no relative errors.
        errors = {name: float(spread.of(np.abs(cost))) + TINY for name, cost in problem.mdp.costs.items()}
        errors["value"] = max(chosen.error + TINY, errors.get("value", 0.0))
        return Solution(
            status, chosen.value, bound, gap, chosen.policy, d, visits, costs, errors, levels, self._violations(chosen),
            prices, infeasibility, stats, self.tolerance, problem.asked(), evidence,
        )  # fmt: skip


def _witness(chosen: Candidate) -> Witness:
    assert chosen.visits is not None
    return Witness(chosen.policy.probabilities, chosen.visits.parts, chosen.visits.error)


def _least(constraints: Sequence[Constraint], proof: Refutation) -> float:
    """Return what a proof says of every policy's worst relative violation; inf where no limit's size matters."""
    ease = relative_ease(constraints, proof.duals)
    return proof.margin / ease * (1 - CLOSENESS) if ease > 0 else np.inf


def _presolve(judge: Judge) -> tuple[Status | None, str]:
    """Solve without the constraints: the answer when its policy obeys them, else a first policy and bound."""
    judge.unconstrained = policy_iteration(judge.dynamics, judge.c, deadline=judge.deadline)
    judge.propose(indicator(judge.dynamics, judge.unconstrained.pairs))
    judge.prove_first()
    judge.prove_least()
    judge.record(np.nan)
    status = judge.verdict()
    if status is Status.OPTIMAL:
        return status, "policy iteration without the constraints already obeys them"
    if status is None and not judge.blocks.members:
        return Status.UNDECIDED, "policy iteration has ended; what is left of the gap is rounding"
    return status, "stopped in the first policy iteration"


def _wind_up(judge: Judge) -> None:
    """Make up in one round for what is missing when a solve is stopped in the middle."""
    judge.stopped, judge.time_limit = True, 0.0
    if judge.pending is not None and not interrupts.requested():
        with suppress(FloatingPointError):  # it may have been stopped while it broke down
            judge.propose(judge.pending())
    if judge.best is None:
        judge.propose(indicator(judge.dynamics, judge.unconstrained.pairs))
    judge.prove_least()
    if judge.bound is None:
        judge.prove(judge.blocks.no_duals())


def _engage(
    judge: Judge, engines: Sequence[Engine], problem: Problem, warm_start: Solution | None, seconds: dict[str, float]
) -> tuple[Status, str]:
    """Run the engines until one has a verdict, unless the limits contradict each other; book their seconds."""
    contradiction = judge.blocks.contradiction()
    if contradiction is not None and judge.contradict(contradiction):
        return Status.INFEASIBLE, _blame(problem.constraints, contradiction)
    start, most = _start(warm_start, judge.blocks), judge.max_iterations
    # All but the last give up early where they crawl.  Where nothing is known then, Newton goes on with small ones.
    rounds = [(engine, PATIENCE) for engine in engines[:-1]] + [(engines[-1], most)]
    if len(engines) > 1 and judge.c.size <= SECOND_PAIRS:
        rounds += [(engine, SECOND) for engine in engines[:-1] if isinstance(engine, Newton)]
    said: list[str] = []
    for k, (engine, patience) in enumerate(rounds):
        if k >= len(engines) and judge.refutation is not None:
            break
        judge.max_iterations = min(most, judge.iterations + patience)
        judge.begun, began = judge.iterations, time.perf_counter()
        # An engine may run away on a hard problem; nothing it proposes is believed, and a user need not hear of it.
        quiet = np.errstate(over="ignore", divide="ignore", invalid="ignore")
        try:
            small = judge.dynamics.num_states < engine.threads_from
            with one_blas_thread(judge.dynamics.compiled and small), quiet:
                status, sentence = engine.run(judge, start)
        except (ArithmeticError, np.linalg.LinAlgError):  # numbers beyond what it can handle: the next one goes on
            status, sentence = None, f"{engine.name} broke down on numbers of very different sizes"
        except interrupts.OutOfTimeError:
            status, sentence = None, f"{engine.name} was stopped in the middle of a step"
        except (MemoryError, RuntimeError):  # a factor was larger than predicted, which SciPy says in both ways
            status, sentence = None, f"{engine.name} gave up on a factor"
        finally:
            seconds[engine.name] = seconds.get(engine.name, 0.0) + time.perf_counter() - began
        said.append(sentence)
        judge.max_iterations = most
        near = judge.near or not judge.wants_nearest or isinstance(engine, Conic)
        if status is not None and status is not Status.ITERATION_LIMIT and (status is not Status.INFEASIBLE or near):
            break
        if judge.limit() is not None:
            break
    return status or judge.verdict() or Status.ITERATION_LIMIT, ", then ".join(said)


def _start(warm_start: Solution | None, blocks: Blocks) -> tuple[Array, list[Array]] | None:
    if warm_start is None:
        return None
    known = warm_start.evidence.proofs.get("bound")
    duals, none = [] if known is None else [np.asarray(dual) for dual in known.duals], blocks.no_duals()
    same = len(duals) == len(none) and all(a.shape == b.shape for a, b in zip(duals, none, strict=True))
    return warm_start.occupancy, duals if same else none


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
