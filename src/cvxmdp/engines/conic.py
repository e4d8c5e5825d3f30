"""The problem as a conic program for Clarabel, on the border of what is possible, where other methods crawl.

Two programs: the least t for which every limit may be relaxed by t times its size, which decides whether some policy
obeys; and the least cost, or the least distance to limits that give way.  The first and the last have interior points
whatever the limits.  Clarabel's solution is a proposal like any other: its multipliers become normals of the
constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from cvxmdp.blocks import Constraint, Term
from cvxmdp.engines.base import Engine, Proposal, Proposals, Task
from cvxmdp.engines.conic_program import ConicProgram
from cvxmdp.engines.exact import largest
from cvxmdp.mdp import Array

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


def _scaled(duals: Sequence[Array]) -> list[Array]:
    """Return a proof's duals with entries up to one: it proves the same at any scale."""
    most = max((largest(dual) for dual in duals), default=0.0) or 1.0
    return [dual / most for dual in duals]
