"""The problem as a conic program for Clarabel, on the border of what is possible, where other methods crawl.

Two programs: the least t for which every limit may be relaxed by t times its size, which decides whether some policy
obeys; and the least cost, or the least distance to limits that give way.  The first and the last have interior points
whatever the limits.  Clarabel's solution is a proposal like any other: its multipliers become normals of the
constraints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.bounds import Bounds
from cvxmdp.constraints.entropy import EntropicLimit
from cvxmdp.constraints.linear import Linear
from cvxmdp.constraints.robust import EllipsoidBudget
from cvxmdp.engines.base import Engine, Proposal, Proposals, Task
from cvxmdp.engines.exact import largest
from cvxmdp.mdp import Array

OfMultipliers = Callable[[Array], Array]
"""Turns the multipliers of all rows into the dual array of a constraint."""

ACCURACY = 1e-11
"""Asked of Clarabel: a thousandth of the tightest tolerance that is likely to be asked for."""
MOST_STEPS = 200
"""Iterations of Clarabel after which its answer is taken as it is."""
LARGEST = 1e100
"""Multipliers of a program without a solution grow for ever."""
LEAST_T = -1.0
"""Limits are tightened by no more than their size."""


def conic(constraints: Sequence[Constraint]) -> bool:
    """Whether all constraints can be stated with cones."""
    return all(isinstance(c, (Linear, Bounds, NormBall, EntropicLimit, EllipsoidBudget)) for c in constraints)


@dataclass(frozen=True)
class Conic(Engine):
    """Settings of the conic method.

    Parameters
    ----------
    evaluation : {"auto", "direct", "iterative"}
        How linear systems of policies are solved, see :func:`cvxmdp.dynamics.linear.plan`.

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
        if (terms and not soft) or not conic(limits):
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
        duals = [program.state(c, program.x, None, t) for c in task.blocks.constraints]
        x, z = program.solve(task.deadline)
        return Proposal(partial(np.copy, x), lambda: _scaled([dual(z) for dual in duals]), ready=True, suspect=True)

    def _optimum(self, task: Task) -> Proposal:
        """Minimize the cost."""
        program = ConicProgram(task)
        unit = largest(task.c) or 1.0
        program.cost[: task.c.size] = task.c / unit
        duals = [program.state(c, program.x, None, None) for c in task.blocks.constraints]
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
            duals.append(program.state(term.soft, program.x, (away, unit * program.scale), None))
        x, z = program.solve(task.deadline)
        return Proposal(partial(np.copy, x), lambda: [unit**2 * dual(z) for dual in duals], ready=True)


Variables = tuple[int, int]


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
        solver.set_termination_callback(lambda _: interrupts.requested())
        answer = solver.solve()
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
        self, c: Constraint, x: Variables, away: tuple[Variables, float] | None, t: Variables | None
    ) -> OfMultipliers:
        """State a constraint on ``d = x / scale``, or on d less a displacement, relaxed by t; return its dual."""
        entries = _on(x, away)
        if isinstance(c, (Linear, Bounds)):
            return self._box(c, entries, t)
        if isinstance(c, NormBall):
            return self._ball(c, entries, t)
        if isinstance(c, EntropicLimit):
            return self._entropic(c, entries, t)
        assert isinstance(c, EllipsoidBudget)
        return self._ellipsoid(c, entries, t)

    def _of(self, matrix: Any, entries: dict[Variables, float]) -> dict[Variables, Any]:
        """``matrix d`` as blocks."""
        return {where: matrix * (factor / self.scale) for where, factor in entries.items()}

    def _box(self, c: Linear | Bounds, entries: dict[Variables, float], t: Variables | None) -> OfMultipliers:
        rows = sp.csc_array(c.rows) if isinstance(c, Linear) else sp.eye_array(self.pairs, format="csc")
        sides = []
        for sign, limit, unit in zip((1.0, -1.0), (c.upper, c.lower), c.units(True), strict=True):
            there = np.flatnonzero(np.isfinite(limit))
            blocks = self._of(sign * sp.csr_array(rows)[there], entries)
            if t is not None:
                blocks[t] = -np.broadcast_to(unit, limit.shape)[there][:, None]
            sides.append((sign, there, self.add("nonnegative", blocks, sign * limit[there])))

        def dual(z: Array) -> Array:
            out = np.zeros(c.upper.size)
            for sign, there, where in sides:
                out[there] += sign * np.maximum(z[where], 0.0)
            return out

        return dual

    def _ball(self, c: NormBall, entries: dict[Variables, float], t: Variables | None) -> OfMultipliers:
        w = np.ones(self.pairs) if c.norm.weights is None else np.sqrt(c.norm.weights)
        room: dict[Variables, Any] = {} if t is None else {t: -np.full((1, 1), c.units(True))}
        away = sp.diags_array(w, format="csc")
        if c.norm.p == 2:
            head = {where: sp.csc_array((1, self.pairs)) for where in entries} | room
            tail = self._of(-away, entries)
            blocks = {where: _stack(head.get(where), tail.get(where), self.pairs) for where in head | tail}
            where = self.add("second order", blocks, np.concatenate([[c.radius], -w * c.center]))
            return lambda z: -w * z[where][1:]
        if np.isinf(c.norm.p):
            top = {} if t is None else {t: -np.full((self.pairs, 1), c.units(True))}
            up = self.add("nonnegative", self._of(away, entries) | top, c.radius + c.center)
            down = self.add("nonnegative", self._of(-away, entries) | top, c.radius - c.center)
            return lambda z: np.maximum(z[up], 0.0) - np.maximum(z[down], 0.0)
        size = self.variables(self.pairs)
        if c.norm.p > 1:
            return self._power(c, entries, size, room)
        eye = sp.eye_array(self.pairs, format="csc")
        up = self.add("nonnegative", self._of(away, entries) | {size: -eye}, c.center)
        down = self.add("nonnegative", self._of(-away, entries) | {size: -eye}, -c.center)
        self.add("nonnegative", {size: np.ones((1, self.pairs))} | room, np.array([c.radius]))
        return lambda z: np.maximum(z[up], 0.0) - np.maximum(z[down], 0.0)

    def _power(
        self, c: NormBall, entries: dict[Variables, float], size: Variables, room: dict[Variables, Any]
    ) -> OfMultipliers:
        """``|d - center|_p <= r``: (h, r, d - center) in the power cone ``h^(1/p) r^(1-1/p) >= |.|``, sum h <= r."""
        n, at = self.pairs, np.arange(self.pairs)

        def nth(k: int) -> Any:
            return sp.csr_array((-np.ones(n), (3 * at + k, at)), shape=(3 * n, n))

        b = np.zeros(3 * n)
        b[1::3], b[2::3] = c.radius, -c.center
        blocks = self._of(nth(2), entries) | {size: nth(0)}
        for t, unit in room.items():
            blocks[t] = sp.csr_array((np.full(n, unit[0, 0]), (3 * at + 1, np.zeros(n, int))), shape=(3 * n, 1))
        where = self.add(f"power {1 / c.norm.p}", blocks, b, size=3)
        self.add("nonnegative", {size: np.ones((1, n))} | room, np.array([c.radius]))
        return lambda z: -z[where][2::3]

    def _entropic(self, c: EntropicLimit, entries: dict[Variables, float], t: Variables | None) -> OfMultipliers:
        """``sum h <= bound`` with ``y log(y / r) <= h``: (-h, y, r) in the exponential cone; y = 0 where r is."""
        reference, owner = c.function.reference, c.function.owner
        n, some = reference.size, np.flatnonzero(reference > 0)
        which = sp.eye_array(self.pairs, format="csr")
        if owner is not None:
            which = sp.csr_array((np.ones(self.pairs), (owner, np.arange(self.pairs))), shape=(n, self.pairs))
        h = self.variables(some.size)
        at = np.arange(some.size)
        middle = sp.csr_array((np.ones(some.size), (3 * at + 1, at)), shape=(3 * some.size, some.size))
        first = sp.csr_array((np.ones(some.size), (3 * at, at)), shape=(3 * some.size, some.size))
        b = np.zeros(3 * some.size)
        # Entries are measured by their mean, so that the cone sees numbers near one.
        b[2::3] = n * reference[some]
        triples = self.add("exponential", self._of(-n * (middle @ which[some]), entries) | {h: first}, b, size=3)
        room: dict[Variables, Any] = {} if t is None else {t: -np.full((1, 1), c.units(True))}
        total = self.add("nonnegative", {h: np.full((1, some.size), 1 / n)} | room, np.array([c.bound]))
        none = np.flatnonzero(reference == 0)
        zero = (
            self.add("nonnegative", self._of(which[none], entries), np.zeros(none.size)) if none.size else slice(0, 0)
        )

        def dual(z: Array) -> Array:
            out = np.zeros(n + 1)
            out[some], out[none] = -n * z[triples][1::3], np.maximum(z[zero], 0.0)
            out[-1] = max(float(z[total][0]), 0.0)
            return out

        return dual

    def _ellipsoid(self, c: EllipsoidBudget, entries: dict[Variables, float], t: Variables | None) -> OfMultipliers:
        root = np.sqrt(c.errors.axes)
        turned = np.diag(root) if c.errors.basis is None else root[:, None] * c.errors.basis.T
        whole = np.vstack([c.cost[None, :], -turned])
        blocks = self._of(sp.csc_array(whole), entries)
        if t is not None:
            blocks[t] = sp.csc_array(np.append(-c.units(True), np.zeros(self.pairs))[:, None])
        where = self.add("second order", blocks, np.append(c.at_most, np.zeros(self.pairs)))
        q = c.errors.axes

        def dual(z: Array) -> Array:
            y = np.divide(-z[where][1:], np.sqrt(q), where=q > 0, out=np.zeros(q.size))
            return np.append(max(float(z[where][0]), 0.0), y if c.errors.basis is None else c.errors.basis @ y)

        return dual


def _scaled(duals: Sequence[Array]) -> list[Array]:
    """Return a proof's duals with entries up to one: it proves the same at any scale."""
    most = max((largest(dual) for dual in duals), default=0.0) or 1.0
    return [dual / most for dual in duals]


def _on(x: Variables, away: tuple[Variables, float] | None) -> dict[Variables, float]:
    """What is limited: x, or x less a displacement in its unit."""
    return {x: 1.0} if away is None else {x: 1.0, away[0]: -away[1]}


def _stack(head: Any, tail: Any, height: int) -> Any:
    """One row above ``height`` others."""
    width = (head if head is not None else tail).shape[1]
    tail = sp.csc_array((height, width)) if tail is None else tail
    return sp.vstack([sp.csc_array(head), sp.csc_array(tail)], format="csc")
