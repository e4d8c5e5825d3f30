"""From a problem to a solution: presolve, engines, and where no policy obeys, a compromise and an explanation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.blocks import Constraint
from cvxmdp.certificate import Certificate, relative_gap
from cvxmdp.constraints.combine import Blocks, relative_ease
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.choose import Engine, choose_engines
from cvxmdp.engines.conic import Conic
from cvxmdp.engines.judge import Candidate, Judge, Refutation
from cvxmdp.engines.presolve import indicator, policy_iteration
from cvxmdp.infeasible import by_priority, explain, least_relative
from cvxmdp.mdp import Array
from cvxmdp.solution import UNFINISHED, Infeasibility, Relaxation, Solution, Stats
from cvxmdp.status import Progress, Status
from cvxmdp.threads import one_blas_thread

if TYPE_CHECKING:
    from cvxmdp.problem import Problem

NO_DISTANCE = (np.inf, np.inf)
PATIENCE = 200
"""Passes of an engine after which the next one tries."""


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

    def __call__(self, engines: Sequence[Engine], max_iterations: int | None, warm_start: Solution | None) -> Solution:
        """Solve, make the best of it where no policy obeys, and state what is proven."""
        seek = "policy" if self.when_infeasible == "nearest" else "optimum"
        judge, status, sentence = self.run(self.problem, engines, seek, max_iterations, warm_start)
        relax: dict[str, Relaxation] = {}
        conflict: list[str] = []
        reduced, compromise = False, "nearest" if self.when_infeasible == "nearest" else UNFINISHED
        if status is Status.INFEASIBLE and judge.refutation is not None and not judge.stopped:
            started, self.last = time.perf_counter(), judge.history[-1]
            try:
                compromise = self._compromise(judge)
                self.seconds["compromise"] = time.perf_counter() - started
                if self.explained and judge.limit() is None:
                    started = time.perf_counter()
                    violations = self._violations(self._chosen(judge, status))
                    relax, conflict, reduced = explain(
                        self.ask, self.problem.constraints, judge.refutation, violations, self.tolerance
                    )
                    self.seconds["explanation"] = time.perf_counter() - started
            except KeyboardInterrupt:
                sentence += "; interrupted"
        chosen = self._chosen(judge, status)
        self.seconds["total"] = time.perf_counter() - self.started
        stats = Stats(sentence, judge.iterations, self.sweeps, self.seconds, tuple(judge.history))
        infeasibility = None
        if status is Status.INFEASIBLE and judge.refutation is not None:
            if not relax:
                relax = {name: Relaxation(v, np.nan, "", False) for name, v in self._violations(chosen).items()}
            infeasibility = self._infeasibility(judge, chosen, compromise, relax, conflict, reduced)
        return self._solution(judge, status, chosen, stats, infeasibility)

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
        dynamics = problem.mdp.dynamics(engines[0].evaluation)
        passes = dynamics.passes
        blocks = Blocks(problem.constraints, problem.terms, problem.mdp.num_pairs)
        judge = Judge(
            problem.mdp, dynamics, problem.cost, blocks, self.tolerance, self.deadline - started,
            max_iterations or sum(engine.most_passes for engine in engines),
            self.callback if problem is self.problem else self._still,
            policy_iteration(dynamics, problem.cost, rounds=0), started, seek,
        )  # fmt: skip
        presolved = started
        try:
            with one_blas_thread(dynamics.compiled):
                status, sentence = _presolve(judge)
            presolved = time.perf_counter()
            if status is None:
                status, sentence = _engage(judge, engines, problem, warm_start)
        except KeyboardInterrupt:
            if problem is not self.problem:
                raise
            status, sentence = (Status.INFEASIBLE if judge.refutation else Status.INTERRUPTED), "interrupted"
            judge.stopped = True
            judge.time_limit = 0.0  # what is still missing is made up for in one round
            if judge.pending is not None:
                judge.propose(judge.pending())
            if judge.best is None:
                judge.propose(indicator(dynamics, judge.unconstrained.pairs))
            if judge.bound is None:
                judge.prove(judge.blocks.no_duals())
        if problem is self.problem:
            self.seconds |= {"presolve": presolved - started, engines[0].name: time.perf_counter() - presolved}
            if judge.refuted is not None:
                self.seconds["verdict"] = judge.refuted
        self.sweeps += dynamics.passes - passes
        return judge, status, sentence

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
            best = by_priority(self.ask, constraints, self.tolerance)
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

    def _infeasibility(
        self,
        judge: Judge,
        chosen: Candidate,
        compromise: str,
        relax: dict[str, Relaxation],
        conflict: list[str],
        reduced: bool,
    ) -> Infeasibility:
        proof, constraints = judge.refutation, self.problem.constraints
        assert proof is not None
        distance, v, cheapest = NO_DISTANCE, np.zeros_like(chosen.d), -np.inf
        if compromise == "nearest":
            high = judge.blocks.distance(chosen.d)
            distance = min(proof.distance, high), high  # equal but for rounding at the end
            if judge.displacement is not None:
                v, cheapest = np.sum(judge.displacement, axis=0), min(judge.least_nearest(), chosen.value)
        least = _least(constraints, proof)
        return Infeasibility(
            v, proof.margin, distance, relax, chosen.policy, compromise, least, cheapest, tuple(conflict), reduced
        )

    def _solution(
        self, judge: Judge, status: Status, chosen: Candidate, stats: Stats, infeasibility: Infeasibility | None
    ) -> Solution:
        assert judge.bound is not None
        problem = self.problem
        certificate = self._certificate(judge, status, chosen, infeasibility)
        gap = relative_gap(chosen.value - judge.bound.value, chosen.scale, judge.bound.rounding)
        prices = {c.name: c.price(dual) + 0.0 for c, dual in zip(problem.constraints, judge.bound.duals, strict=False)}
        visits = np.zeros(problem.mdp.num_states)
        np.add.at(visits, problem.mdp.state, chosen.d)
        return Solution(
            status, chosen.value, judge.bound.value, gap, chosen.policy, chosen.d, visits, certificate.costs,
            certificate.violations, prices, certificate, infeasibility, stats,
        )  # fmt: skip

    def _certificate(
        self, judge: Judge, status: Status, chosen: Candidate, infeasibility: Infeasibility | None
    ) -> Certificate:
        claims = {Status.OPTIMAL: "optimal", Status.INFEASIBLE: "infeasible"}
        proof: dict[str, Any] = {}
        if infeasibility is not None and judge.refutation is not None:
            refutation = judge.refutation
            proof = {
                "margin": refutation.margin,
                "margin_duals": refutation.duals,
                "margin_potential": refutation.V,
                "least_violation": infeasibility.least if np.isfinite(infeasibility.least) else 0.0,
                "least_distance": infeasibility.distance[0] if np.isfinite(infeasibility.distance[0]) else 0.0,
            }
            if np.isfinite(infeasibility.cheapest) and judge.moved is not None:
                proof |= {
                    "cheapest": infeasibility.cheapest,
                    "cheapest_duals": judge.moved.duals,
                    "cheapest_potential": judge.moved.V,
                    "displacement": judge.displacement,
                }
        assert judge.bound is not None
        return Certificate(
            claims.get(status, "bound"),
            chosen.policy.probabilities,
            chosen.d,
            chosen.value,
            judge.bound.value,
            {name: float(cost @ chosen.d) for name, cost in self.problem.mdp.costs.items()},
            self._violations(chosen),
            judge.tolerance,
            judge.bound.duals,
            judge.bound.V,
            **proof,
        )


def _least(constraints: Sequence[Constraint], proof: Refutation) -> float:
    """Return what a proof says of every policy's worst relative violation; inf where no limit's size matters."""
    ease = relative_ease(constraints, proof.duals)
    return proof.margin / ease if ease > 0 else np.inf


def _presolve(judge: Judge) -> tuple[Status | None, str]:
    """Solve without the constraints: the answer when its policy obeys them, else a first policy and bound."""
    judge.unconstrained = policy_iteration(judge.dynamics, judge.c, deadline=judge.deadline)
    judge.propose(indicator(judge.dynamics, judge.unconstrained.pairs))
    judge.prove(judge.blocks.no_duals())
    judge.prove_least()
    judge.record(np.nan)
    status = judge.verdict()
    if status is Status.OPTIMAL:
        return status, "policy iteration without the constraints already obeys them"
    if status is None and not judge.blocks.members:
        return Status.ITERATION_LIMIT, "policy iteration has ended; what is left of the gap is rounding"
    return status, "stopped in the first policy iteration"


def _engage(
    judge: Judge, engines: Sequence[Engine], problem: Problem, warm_start: Solution | None
) -> tuple[Status, str]:
    """Run the engines until one has a verdict, unless the limits contradict each other."""
    contradiction = judge.blocks.contradiction()
    if contradiction is not None and judge.contradict(contradiction):
        return Status.INFEASIBLE, _blame(problem.constraints, contradiction)
    start, most = _start(warm_start, judge.blocks), judge.max_iterations
    for engine in engines:
        # All but the last give up early where they crawl.
        judge.max_iterations = most if engine is engines[-1] else min(most, judge.iterations + PATIENCE)
        with one_blas_thread(judge.dynamics.compiled and not engine.factors):
            status, sentence = engine.run(judge, start)
        judge.max_iterations = most
        near = judge.near or not judge.wants_nearest or isinstance(engine, Conic)
        if status is not None and status is not Status.ITERATION_LIMIT and (status is not Status.INFEASIBLE or near):
            break
        if judge.limit() is not None:
            break
    return status or Status.ITERATION_LIMIT, sentence


def _start(warm_start: Solution | None, blocks: Blocks) -> tuple[Array, list[Array]] | None:
    if warm_start is None:
        return None
    duals, none = [np.asarray(dual) for dual in warm_start.certificate.duals], blocks.no_duals()
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
