"""The driver: takes engines one after the other through their proposals, and has the judge look at them.

It alone counts steps, decides when a proposal is judged, ends an engine, and hands over to the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from cvxmdp import interrupts
from cvxmdp.constraints.combine import relative_ease
from cvxmdp.engines.base import Answer, Engine, Proposal, Proposals, Start, Task
from cvxmdp.engines.judge import Judge
from cvxmdp.engines.mixture import Columns
from cvxmdp.engines.prover import Candidate, Refutation
from cvxmdp.mdp import Array
from cvxmdp.status import Status
from cvxmdp.threads import one_blas_thread

PATIENCE = 200
"""Passes of an engine after which the next one tries."""
SECOND, SECOND_PAIRS = 1000, 5000
"""Passes of the second round, and the pairs up to which they take seconds."""
THIN = 1e-3
"""Share of the tolerance, relative to the limits, below which a policy within the tolerance is sought in spite of a
proof that none obeys: limits that just touch what is possible are computed numbers."""


@dataclass(eq=False)
class Drive:
    """Engines at work on one problem, with a judge; ``seconds`` books what each takes."""

    judge: Judge
    columns: Columns
    decide: Callable[[], Status | None]
    """Another way to find out whether a policy obeys, for once; it also may find one."""
    seconds: dict[str, float] = field(default_factory=dict)
    begin: Callable[[str], object] | None = None
    """Hears which engine begins."""
    said: list[str] = field(default_factory=list)
    """What each engine did."""
    last: Engine | None = None
    """The engine that all others give up for."""
    tried: bool = False
    """Whether it was tried to find out otherwise whether a policy obeys."""

    def __call__(self, engines: Sequence[Engine], start: Start | None) -> Status | None:
        """Run the engines until one has a verdict or a limit is reached; None where all gave up."""
        # All but the last give up early where they crawl.  Where nothing is known then, those go on that can.
        rounds = [(engine, PATIENCE) for engine in engines[:-1]] + [(engines[-1], self.judge.clock.max_iterations)]
        if len(engines) > 1 and self.judge.prover.c.size <= SECOND_PAIRS:
            rounds += [(engine, SECOND) for engine in engines[:-1] if engine.persists]
        self.last = engines[-1]
        for engine, patience in rounds:
            if engine.slow_to_obey and self.judge.goal.any_will_do and (status := self._decided()) is not None:
                return status
            if self.begin is not None:
                self.begin(f"method {engine.name}")
            began = time.perf_counter()
            try:
                status = self._guarded(engine, start, patience)
            finally:
                spent = time.perf_counter() - began
                self.seconds[engine.name] = self.seconds.get(engine.name, 0.0) + spent
            if status is not None or (status := self.judge.clock.limit()) is not None:
                return status
            acceptable = self.judge.goal.acceptable
            if acceptable > 0 and self.judge.gap <= acceptable:
                return Status.OPTIMAL
            if engine is self.last and (status := self._decided()) is not None:
                return status
        return None

    def _decided(self) -> Status | None:
        """Find out whether a policy obeys, where that is not known after all this, unless it was tried before."""
        if self.judge.obeyed or self.tried or not (self.last is None or self.last.open_ended):
            return None
        self.tried = True
        self.said.append("the least distance to the limits")
        return self.decide()

    def _guarded(self, engine: Engine, start: Start | None, patience: int) -> Status | None:
        """Run an engine, which may run away on a hard problem: nothing it proposes is believed."""
        dynamics = self.judge.prover.dynamics
        few = one_blas_thread(dynamics.compiled and dynamics.num_states < engine.threads_from)
        begun = len(self.said)
        try:
            # A user need not hear of numbers that overflow.
            with few, np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                return self._run(engine, start, patience)
        except (ArithmeticError, np.linalg.LinAlgError):
            said = f"{engine.name} broke down on numbers of very different sizes"
        except interrupts.OutOfTimeError:
            said = f"{engine.name} was stopped in the middle of a step"
        except (MemoryError, RuntimeError):  # a factor was larger than predicted, which SciPy says in both ways
            said = f"{engine.name} gave up on a factor"
        self.said[begun:] = [said]
        return None

    def _run(self, engine: Engine, start: Start | None, patience: int) -> Status | None:
        """Hear an engine's proposals; None where it gives up or its patience ends."""
        clock, steps = self.judge.clock, 0
        proposals = engine.proposals(self._task(start))
        last: Proposal | None = None
        answer: Answer | None = None
        otherwise, mine = None, len(self.said)
        self.said.append(engine.said.format(steps=0))
        try:
            while True:
                proposal = _next(proposals, answer)
                if proposal is None:
                    return otherwise
                last = proposal
                clock.iterations, steps = clock.iterations + 1, steps + 1
                self.said[mine] = (proposal.said or engine.said).format(steps=steps)
                over = clock.limit() is not None or steps >= patience
                answer, status = self._heard(proposal, over)
                if status is None and not over and steps == PATIENCE and engine is self.last:
                    status = self._decided()
                if status is not None or over:
                    return status
                otherwise = proposal.otherwise
        except KeyboardInterrupt:
            self._save(last)
            raise
        finally:
            proposals.close()

    def _task(self, start: Start | None) -> Task:
        judge, prover = self.judge, self.judge.prover
        return Task(
            prover.mdp, prover.dynamics, prover.c, judge.blocks, judge.tolerance, judge.clock.deadline,
            prover.unconstrained, judge.known, start, self.columns,
        )  # fmt: skip

    def _heard(self, proposal: Proposal, over: bool) -> tuple[Answer, Status | None]:
        """Have the judge look at a proposal as far as it is worth it, or where it is the last one."""
        judge, asked = self.judge, proposal.ready or over
        candidate = bound = status = duals = None
        if asked and proposal.occupancy is not None:
            candidate = judge.propose(proposal.occupancy())
        priced = asked or proposal.priced is not None
        if proposal.duals is not None and (priced or proposal.suspect):
            duals = proposal.duals()
        if duals is not None and priced:
            V = None if proposal.value is None else proposal.value()
            bound = judge.prove(duals, V, proposal.priced or 0.0)
        if duals is not None and proposal.suspect:
            status = self._doubted(proposal, duals, candidate)
        judge.record(proposal.residual)
        if status is None and asked:
            status = judge.verdict()
        return Answer(candidate, bound, judge.gap if judge.obeyed else judge.known().violation), status

    def _doubted(self, proposal: Proposal, duals: list[Array], candidate: Candidate | None) -> Status | None:
        """Try to prove that no policy obeys, from duals that look like it or from the way to a policy that does not."""
        judge = self.judge
        if not judge.blocks.constraints or (candidate is not None and candidate.violation <= judge.tolerance):
            return None
        found = judge.refute(duals)
        if found is None and candidate is not None:
            found = judge.refute(judge.blocks.set_duals(candidate.d))
        if found is None:
            return None
        if candidate is None and proposal.occupancy is not None:
            judge.propose(proposal.occupancy())  # something to begin with, on the way to the nearest policy
        return self._refuted(found)

    def _refuted(self, found: Refutation) -> Status | None:
        """Say that no policy obeys, unless that is so by next to nothing: then see first whether one nearly does."""
        judge = self.judge
        thin = THIN * judge.tolerance * relative_ease(judge.blocks.constraints, found.duals)
        if found.margin > thin or (self.tried and not judge.obeyed):
            return Status.INFEASIBLE
        judge.refutation = judge.refuted = None
        return self._decided()

    def _save(self, proposal: Proposal | None) -> None:
        """Keep what an interrupted engine had, unless whoever interrupted it is waiting."""
        if proposal is not None and proposal.occupancy is not None and not interrupts.requested():
            with suppress(FloatingPointError):  # it may have been stopped while it broke down
                self.judge.clock.stop()
                self.judge.propose(proposal.occupancy())


def _next(proposals: Proposals, answer: Answer | None) -> Proposal | None:
    """Return an engine's next proposal, None where it gives up."""
    try:
        return next(proposals) if answer is None else proposals.send(answer)
    except StopIteration:
        return None
