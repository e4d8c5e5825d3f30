"""A problem as Clarabel takes it: variables, rows in cones, and its answer as an occupancy and multipliers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.blocks import Constraint
from cvxmdp.cones import OfMultipliers, Stating, Variables
from cvxmdp.engines.base import Task
from cvxmdp.mdp import Array

ACCURACY = 1e-11
"""Asked of Clarabel: a thousandth of the tightest tolerance that is likely to be asked for."""
MOST_STEPS = 200
"""Iterations of Clarabel after which its answer is taken as it is."""
LARGEST = 1e100
"""Multipliers of a program without a solution grow for ever."""


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
