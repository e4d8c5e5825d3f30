"""The problem as a conic program for Clarabel, on the border of what is possible, where other methods crawl.

Two programs: the least t for which every limit may be relaxed by t times its size, which decides whether some policy
obeys; and the least cost, or the least distance to limits that give way.  The first and the last have interior points
whatever the limits.  Clarabel's solution is a proposal like any other: its multipliers become normals of the
constraints.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.blocks import Constraint, Term
from cvxmdp.cones import OfMultipliers, Stating, Variables
from cvxmdp.engines.base import Engine, Proposal, Proposals, Task
from cvxmdp.engines.exact import largest
from cvxmdp.mdp import Array

ACCURACY = 1e-11
"""Asked of Clarabel: a thousandth of the tightest tolerance that is likely to be asked for."""
MOST_STEPS = 200
"""Iterations of Clarabel after which its answer is taken as it is."""
LARGEST = 1e100
"""Multipliers of a program without a solution grow for ever."""
LEAST_T = -1.0
"""Limits are tightened by no more than their size."""


@dataclass(frozen=True)
class Conic(Engine):
    """Settings of the conic method.

    Parameters
    ----------
    evaluation : {"auto", "direct", "iterative"}
        How linear systems of policies are solved, see :func:`cvxmdp.dynamics.plan.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Entropy(at_least=2.0)])
    >>> problem.solve(method=cm.Conic()).status.name
    'OPTIMAL'
    """

    name = "conic"
    said = "conic program"
    most_passes = 20

    def needs(self, constraints: Sequence[Constraint], terms: Sequence[Term]) -> str | None:
        soft = not constraints and all(term.soft is not None for term in terms)
        limits = [term.soft for term in terms if term.soft is not None] if soft else constraints
        if (terms and not soft) or not all(limit.has_cones for limit in limits):
            return 'a cost alone under sets that have cones; use "auto" or "newton"'
        return None

    def proposals(self, task: Task) -> Proposals:
        """Decide whether a policy obeys, then find the best; or find the one nearest to limits that give way."""
        if task.blocks.terms:
            yield self._nearest(task)
            return
        obeyed = task.best.violation <= task.tolerance
        if not obeyed:
            obeyed = (yield self._decision(task)).candidate.violation <= task.tolerance
        if obeyed:
            optimum = self._optimum(task)
            bound = (yield replace(optimum, ready=False, priced=0.0)).bound
            if bound.value > float(np.max(task.c)):  # no policy costs that much: the limits are missed by a hair
                yield replace(optimum, ready=False, suspect=True)
            yield optimum

    def _decision(self, task: Task) -> Proposal:
        """Relax all limits relatively by the least t."""
        program = ConicProgram(task)
        t = program.variables(1, cost=1.0)
        program.add("nonnegative", {t: -sp.eye_array(1)}, np.array([-LEAST_T]))
        duals = [program.state(c, t=t) for c in task.blocks.constraints]
        x, z = program.solve(task.deadline)
        return Proposal(partial(np.copy, x), lambda: _scaled([dual(z) for dual in duals]), ready=True, suspect=True)

    def _optimum(self, task: Task) -> Proposal:
        """Minimize the cost."""
        program = ConicProgram(task)
        unit = largest(task.c) or 1.0
        program.cost[: task.c.size] = task.c / unit
        duals = [program.state(c) for c in task.blocks.constraints]
        x, z = program.solve(task.deadline)
        return Proposal(partial(np.copy, x), lambda: [unit / program.scale * dual(z) for dual in duals], ready=True)

    def _nearest(self, task: Task) -> Proposal:
        """Minimize the distance, measured by the displacement that is known already."""
        program = ConicProgram(task)
        assert task.start is not None
        unit = float(np.linalg.norm(task.blocks.stacked(task.start.duals)))
        duals = []
        for term in task.blocks.terms:
            away = program.variables(task.c.size, curvature=1.0)
            assert term.soft is not None
            duals.append(program.state(term.soft, (away, unit * program.scale)))
        x, z = program.solve(task.deadline)
        return Proposal(partial(np.copy, x), lambda: [unit**2 * dual(z) for dual in duals], ready=True)


class ConicProgram:
    """``min cost'x + curvature x^2 / 2`` under ``b - A x in K``; x begins with the occupancy times the states."""

    def __init__(self, task: Task) -> None:
        dynamics = task.dynamics
        self.scale = float(dynamics.num_states)
        self.cost, self.curvature = np.zeros(0), np.zeros(0)
        self.parts: list[tuple[dict[Variables, Any], Array]] = []
        self.cones: list[tuple[str, int]] = []
        self.rows = 0
        self.pairs = task.c.size
        self.x = self.variables(self.pairs)
        self.add(
            "zero",
            {self.x: sp.csc_array(dynamics.flows(sp.eye_array(self.pairs, format="csc")))},
            self.scale * (1 - dynamics.gamma) * dynamics.rho,
        )
        self.add("nonnegative", {self.x: -sp.eye_array(self.pairs)}, np.zeros(self.pairs))

    def variables(self, count: int, cost: float = 0.0, curvature: float = 0.0) -> Variables:
        """Add variables."""
        first = self.cost.size
        self.cost = np.append(self.cost, np.full(count, cost))
        self.curvature = np.append(self.curvature, np.full(count, curvature))
        return first, first + count

    def add(self, cone: str, blocks: dict[Variables, Any], b: Array, size: int | None = None) -> slice:
        """Add rows ``b - sum of blocks in cone``, in cones of the given size; return where they are."""
        where = slice(self.rows, self.rows + b.size)
        self.rows += b.size
        self.parts.append((blocks, b))
        self.cones += [(cone, size)] * (b.size // size) if size else [(cone, b.size)]
        return where

    def solve(self, deadline: float) -> tuple[Array, Array]:
        """Return the occupancy and the multipliers of all rows."""
        import clarabel

        kinds: dict[str, Any] = {
            "zero": clarabel.ZeroConeT,
            "nonnegative": clarabel.NonnegativeConeT,
            "second order": clarabel.SecondOrderConeT,
            "exponential": lambda _: clarabel.ExponentialConeT(),
        }
        A = sp.vstack([self._wide(blocks, b.size) for blocks, b in self.parts], format="csc")
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = MOST_STEPS
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = ACCURACY
        if np.isfinite(deadline):
            settings.time_limit = max(deadline - time.perf_counter(), 1e-3)
        solver = clarabel.DefaultSolver(
            sp.csc_matrix(sp.diags_array(self.curvature)),
            self.cost,
            sp.csc_matrix(A),
            np.concatenate([b for _, b in self.parts]),
            [
                clarabel.PowerConeT(float(kind.split()[1])) if kind.startswith("power") else kinds[kind](size)
                for kind, size in self.cones
            ],
            settings,
        )
        pressed: list[KeyboardInterrupt] = []

        def ended(_: Any) -> bool:
            try:
                return interrupts.requested()
            except KeyboardInterrupt as error:  # a handler of the user's own raised it here, where it would be lost
                pressed.append(error)
                return True

        solver.set_termination_callback(ended)
        answer = solver.solve()
        if pressed:
            raise pressed[0]
        x, z = np.asarray(answer.x), np.clip(np.asarray(answer.z), -LARGEST, LARGEST)
        d = np.maximum(np.nan_to_num(x[: self.pairs]), 0.0)
        return (d / d.sum() if d.sum() > 0 else np.full(d.size, 1 / d.size)), np.nan_to_num(z)

    def _wide(self, blocks: dict[Variables, Any], height: int) -> Any:
        """One row of blocks over all variables."""
        out, at = [], 0
        for (first, last), block in sorted(blocks.items(), key=lambda item: item[0]):
            out += [sp.csc_array((height, first - at)), sp.csc_array(block)]
            at = last
        return sp.hstack([*out, sp.csc_array((height, self.cost.size - at))], format="csc")

    def state(
        self, limit: Constraint, away: tuple[Variables, float] | None = None, t: Variables | None = None
    ) -> OfMultipliers:
        """State a constraint on ``d = x / scale``, or on d less a displacement in its unit, relaxed by t."""
        entries = {self.x: 1 / self.scale}
        if away is not None:
            entries[away[0]] = -away[1] / self.scale
        return limit.cones(Stating(self, self.pairs, entries, t))


def _scaled(duals: Sequence[Array]) -> list[Array]:
    """Return a proof's duals with entries up to one: it proves the same at any scale."""
    most = max((largest(dual) for dual in duals), default=0.0) or 1.0
    return [dual / most for dual in duals]
