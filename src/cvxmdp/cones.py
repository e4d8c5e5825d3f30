"""Limits in the form that a conic program takes: rows ``b - A x`` in products of cones.

A constraint states itself (``Constraint.cones``) on the occupancy d, or on d less a displacement, with every limit
relaxed by t times its size where t is a variable, too.  It returns how its dual array follows from the multipliers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from cvxmdp.reading import Array

Variables = tuple[int, int]
"""The first of some variables, and the one after the last."""
OfMultipliers = Callable[[Array], Array]
"""Turns the multipliers of all rows into the dual array of a constraint."""


class ConeProgram(Protocol):
    """What takes the rows."""

    def variables(self, count: int) -> Variables:
        """Add variables."""
        ...

    def add(self, cone: str, blocks: dict[Variables, Any], b: Array, size: int | None = None) -> slice:
        """Add rows ``b - sum of blocks in cone``, in cones of the given size; return where they are."""
        ...


@dataclass(frozen=True)
class Stating:
    """Where a constraint states itself: in a program, on variables that make up d."""

    program: ConeProgram
    pairs: int
    entries: dict[Variables, float]
    """Variables, and what each counts, which together are the limited vector."""
    t: Variables | None
    """The variable by which limits are relaxed."""

    def of(self, matrix: Any) -> dict[Variables, Any]:
        """``matrix d`` as blocks."""
        return {where: matrix * factor for where, factor in self.entries.items()}

    def room(self, units: Any) -> dict[Variables, Any]:
        """What relaxing by t adds to rows whose limits have these units: a block, or none."""
        return {} if self.t is None else {self.t: -np.atleast_1d(np.asarray(units, dtype=np.float64))[:, None]}

    def box(self, rows: Any, upper: Array, lower: Array, units: tuple[Any, Any]) -> OfMultipliers:
        """``lower <= rows d <= upper``."""
        sides = []
        for sign, limit, unit in zip((1.0, -1.0), (upper, lower), units, strict=True):
            there = np.flatnonzero(np.isfinite(limit))
            blocks = self.of(sign * sp.csr_array(rows)[there]) | self.room(np.broadcast_to(unit, limit.shape)[there])
            sides.append((sign, there, self.program.add("nonnegative", blocks, sign * limit[there])))

        def dual(z: Array) -> Array:
            out = np.zeros(upper.size)
            for sign, there, where in sides:
                out[there] += sign * np.maximum(z[where], 0.0)
            return out

        return dual
