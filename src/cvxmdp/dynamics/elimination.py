"""Elimination of states (src/native/elimination.c): values and visits of policies as sums of positive numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp import _elimination, interrupts
from cvxmdp.dynamics.normal import minimum_degree
from cvxmdp.mdp import Array, Indices

Whole = npt.NDArray[np.int32]

LONG_WORK = 2e8
"""Multiplications that take a fifth of a second: Ctrl-C and time limits have to be heard meanwhile."""


@dataclass(frozen=True, eq=False)
class _Model:
    """What the compiled code reads by name."""

    first: Indices
    starts: Whole
    columns: Whole
    values: Array
    order: Whole
    gamma: float


class Elimination:
    """The pattern of the factors of a model's policies, and the multiplications that each takes."""

    def __init__(self, model: _Model, work: float) -> None:
        self._compiled, self.work = _elimination.Elimination(model), work

    @classmethod
    def of(cls, P: Any, first: Indices, gamma: float, most_work: float = np.inf) -> Elimination | None:
        """Make the pattern; None where factors take more than ``most_work`` multiplications."""
        P = sp.csr_array(P)
        starts, columns = P.indptr.astype(np.int32, copy=False), P.indices.astype(np.int32, copy=False)
        order, work = minimum_degree(starts[first], columns, most_work)
        return cls(_Model(first, starts, columns, P.data, order, gamma), work) if work <= most_work else None

    def factors(self, pi: Array) -> Factors:
        """Eliminate the states of a policy."""
        pi = np.ascontiguousarray(pi)
        if self.work <= LONG_WORK:
            return Factors(self._compiled.factors(pi))
        return Factors(interrupts.patiently(lambda: self._compiled.factors(pi)))


class Factors:
    """Solves for one right side, or for the columns of several; what is known before does not matter."""

    def __init__(self, compiled: _elimination.Factors) -> None:
        self._compiled = compiled

    def values(self, rhs: Array, start: Array | None = None) -> Array:
        """Solve ``(I - gamma P_pi) V = rhs``."""
        return _columns(self._compiled.values, rhs)

    def visits(self, rhs: Array, start: Array | None = None) -> Array:
        """Solve ``(I - gamma P_pi)' x = rhs``."""
        return _columns(self._compiled.visits, rhs)


def _columns(solve: Any, rhs: Array) -> Array:
    if rhs.ndim == 1:
        x = np.array(rhs, dtype=np.float64)
        solve(x)
        return x
    columns = np.array(rhs.T, dtype=np.float64, order="C")
    for column in columns:
        solve(column)
    return np.ascontiguousarray(columns.T)
