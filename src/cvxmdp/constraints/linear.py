"""Budgets on expected costs: ``lower <= rows @ d <= upper``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import daqp
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.barriers import Barrier, Caps, Part, RowsPart, View
from cvxmdp.blocks import Constraint, Response, Spread, Stated
from cvxmdp.cones import OfMultipliers, Stating
from cvxmdp.constraints.arguments import check_point, check_size, limits, number, numbers
from cvxmdp.constraints.base import EPS, FLOOR, Ranked, ranked, sides_exceeded, support_of_box, unit
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.ranks.rows import SparseRows
from cvxmdp.ranks.scattered import as_array, world_of_parts
from cvxmdp.ranks.world import ALONE
from cvxmdp.reading import check_real, frozen

INFINITE = 1e30
"""What the QP solver reads as no limit."""
EQUALITY = 5
"""How the QP solver marks a row that holds with equality."""
QR_ROWS = 400
"""Up to here rows are factored by QR, which is more exact; beyond, through their products, which are smaller."""
INDEPENDENT = 1e-6
"""Least eigenvalue of the Gram matrix of normalized rows from which they count as independent."""
HILDRETH_ROUNDS = 500
"""Rounds over all rows where the exact program gave up: more would not tell nearly parallel rows apart either."""
MOST_COLUMNS = 400
"""Rows over many pairs that path following takes: each costs a solve with the factor in every step."""
INSIDE = 0.9
"""Share of an upper limit on visits at which path following begins, at most, and inverse share of a lower one."""


@dataclass(frozen=True, eq=False)
class Sides:
    """Rows as ``signs * (rows d)[which] <= limits``, one for each side of a row that has a limit."""

    which: Indices
    signs: Array
    limits: Array
    equal: npt.NDArray[np.bool_]
    """Whether the row holds with equality."""


class Linear(Constraint, Ranked):
    """``{d : at_least <= rows @ d <= at_most}``, or ``rows @ d == equal``.

    Parameters
    ----------
    rows : array or sparse matrix of shape (n, num_pairs), one row of shape (num_pairs,), or one or several names
        Costs whose expected values are limited; costs of the model may be given by name.
    at_most, at_least, equal : float or array of shape (n,), optional
        Limits.  Give ``equal``, or one or both of the others.
    name : str
        Used in messages and results.
    priority, weight : int, float, optional
        For ``solve(when_infeasible=...)``: limits of priority 1 are met first, and the weight is the excess that counts
        as much as exceeding another limit by its own size.

    Notes
    -----
    The projection solves the dual, eq. (15) of the paper, in as many unknowns as there are rows: with ``E' = Q R`` it
    is the least-distance problem ``min |t|^2 / 2`` over ``R't`` within the shifted limits, given to an active-set
    solver that starts from the last active set.  Where no two rows touch the same pair, each row is met on its own.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> cm.Linear([[1.0, 1.0]], at_most=1.0).project(np.array([1.0, 1.0]))
    array([0.5, 0.5])
    """

    is_rows = True
    flat = True
    has_cones = True

    def __init__(
        self,
        rows: Any,
        at_most: Any = None,
        at_least: Any = None,
        equal: Any = None,
        name: str = "linear",
        priority: int = 1,
        weight: float | None = None,
    ) -> None:
        self._rank(priority, weight)
        self._named: tuple[str, ...] | None = None
        if names := _names(rows):
            self._named, rows = names, np.zeros((len(names), 1))  # until a model says what they are
        E: Any
        if isinstance(rows, SparseRows):
            E = rows
        elif sp.issparse(rows):
            check_real("rows", rows)
            E = sp.csr_array(rows, dtype=np.float64, copy=True)
        else:
            E = np.atleast_2d(frozen(numbers("rows", rows)))
        if len(E.shape) != 2 or 0 in E.shape:
            raise ValueError(f"rows has shape {E.shape}; give one row of pairs for each limit")
        if not np.all(np.isfinite(_entries(E))):
            raise ValueError("rows has entries that are not finite")
        check_size("rows", _entries(E))
        if equal is not None and (at_most is not None or at_least is not None):
            raise ValueError("give equal=, or at_most= and at_least=, not both")
        if equal is None and at_most is None and at_least is None:
            raise ValueError("a linear constraint needs at_most=, at_least= or equal=")
        self.name = name
        self.rows: Any = E
        if equal is not None:
            self.upper = limits("equal", equal, E.shape[0], 0.0)
            self.lower = self.upper
        else:
            self.upper = limits("at_most", at_most, E.shape[0], np.inf)
            self.lower = limits("at_least", at_least, E.shape[0], -np.inf)
        self._squares = as_array((self.rows * self.rows).sum(axis=1)).ravel()
        self.norms = np.where(self._squares > 0, np.sqrt(self._squares), 1.0)
        self.disjoint = bool(np.all(_entries_a_column(E) <= 1))
        """Whether no two rows touch the same pair."""
        self._no_zero_row = bool(np.all(self._squares > 0))
        self._signed = bool(np.min(_entries(E), initial=0.0) < 0)
        self._factor: Array | None = None
        self.labels: Sequence[str] | None = None
        """What the rows are limits on, such as states; numbers where they have no names."""
        self.parts = E.shape[0]
        self._limit(self.upper, self.lower)

    def _limit(self, upper: Array, lower: Array) -> None:
        """Note the limits and what follows from them."""
        crossed = np.flatnonzero((lower > upper) | (upper == -np.inf) | (lower == np.inf))
        if crossed.size:
            i = int(crossed[0])
            raise ValueError(f"row {i} must lie between {lower[i]:g} and {upper[i]:g}; no value does")
        self.upper, self.lower = upper, lower
        self._high, self._low = upper / self.norms, lower / self.norms
        ends = np.abs(np.concatenate([self._high, self._low]))
        self._largest = float(np.max(ends[np.isfinite(ends)], initial=0.0))
        self._last = np.zeros(upper.size)
        self.has_equal = bool(np.any(upper == lower))

    def bind(self, mdp: MDP) -> Linear:
        """Check that there is one column for each pair of a model; look up costs that are given by name."""
        if self._named is not None:
            rows = frozen(np.stack([mdp.cost(name) for name in self._named]))
            return self._like(rows, self.upper, self.lower, self._named if len(self._named) > 1 else None)
        if self.rows.shape[1] != mdp.num_pairs:
            raise ValueError(f"rows has {self.rows.shape[1]} columns; the model has {mdp.num_pairs} pairs")
        if mdp.world is not None and isinstance(self.rows, np.ndarray):
            return self._like(frozen(mdp.here(self.rows)), self.upper, self.lower, self.labels)
        if mdp.world is not None and sp.issparse(self.rows):
            own = SparseRows(self.rows[:, mdp.transitions.pairs], mdp.world, mdp.num_pairs)
            return self._like(own, self.upper, self.lower, self.labels)
        return self

    @property
    def factor(self) -> Array:
        """``R'`` of the QR factorization of the normalized rows' transpose, made once."""
        if self._factor is None:
            n = self.rows.shape[0]
            if n <= QR_ROWS and world_of_parts(self.rows) is ALONE:
                R: Any = np.linalg.qr((_dense(self.rows) / self.norms[:, None]).T, mode="r")
                self._factor = np.ascontiguousarray(R.T)
            else:
                gram = _dense(self.rows @ self.rows.T) / np.outer(self.norms, self.norms)
                values, vectors = np.linalg.eigh(gram)
                kept = values > 1e-14 * values[-1]
                self._factor = np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))
        return self._factor

    @cached_property
    def sizes(self) -> Any:
        """The rows' absolute values; the rows themselves where none is negative."""
        return abs(self.rows) if self._signed else self.rows

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """The largest and the least entry of each row."""
        most, least = (as_array(_dense(side(axis=1))).ravel() for side in (self.rows.max, self.rows.min))
        return most, least

    @cached_property
    def largest(self) -> Array:
        """The largest absolute value of each row."""
        return np.maximum(self.ends[0], -self.ends[1])

    def binding(self) -> tuple[Array, Array]:
        """Return the upper and lower limits, infinite where they cannot matter.

        That is where no distribution over the pairs could exceed them, or where another row is a multiple of the same
        row and has a tighter limit.
        """
        most, least = self.ends
        equal = self.upper == self.lower
        upper = np.where((most <= self.upper) & ~equal, np.inf, self.upper)
        lower = np.where((least >= self.lower) & ~equal, -np.inf, self.lower)
        # Sides as  row'd <= limit: first the upper ones, then the lower ones turned round.
        limits, n = np.concatenate([upper, -lower]) / np.tile(self.norms, 2), upper.size
        for i, j, sign in self._multiples():
            if not (equal[i] or equal[j]):
                for a, b in ((i, j), (n + i, n + j)) if sign > 0 else ((i, n + j), (n + i, j)):
                    limits[b if limits[b] >= limits[a] else a] = np.inf
        return np.where(np.isinf(limits[:n]), np.inf, upper), np.where(np.isinf(limits[n:]), -np.inf, lower)

    def _multiples(self) -> list[tuple[int, int, float]]:
        """Return the pairs of rows of which one is a multiple of the other, with the sign of the factor."""
        if self.disjoint or self.rows.shape[0] > QR_ROWS:
            return []
        found = []
        for i, j in np.argwhere(np.triu(np.abs(self._gram) > 1 - 1e-12, 1)):
            a, b = (_dense(self.rows[[k]]).ravel() / self.norms[k] for k in (i, j))
            sign = float(np.sign(self._gram[i, j]))
            if np.max(np.abs(a - sign * b)) <= 4 * EPS * np.max(np.abs(a)):
                found.append((int(i), int(j), sign))
        return found

    def multipliers(self, point: Array) -> Array:
        """Return the multipliers of the projection: ``point - rows' multipliers`` is the nearest member.

        They are NaN when the limits contradict each other, so that the set is empty.
        """
        value = (self.rows @ point) / self.norms
        beyond = value - np.clip(value, self._low, self._high)
        excess, size = np.abs(beyond), float(np.linalg.norm(point))
        # What rounding leaves in the rows: less than this is no excess, and no more than this is asked of the solver.
        if float(np.max(excess)) <= 4 * EPS * (size + self._largest) and np.all(excess <= self._rounding(value, size)):
            return np.zeros(value.size)
        if self.disjoint and self._no_zero_row:
            return as_array(beyond / self.norms)
        upper, lower, rounding = self._high - value, self._low - value, self._rounding(value, size)
        F, scale = self.factor, float(np.max(excess))
        touched = (excess > 0) | (self.lower == self.upper)
        tolerance = max(1e-12, float(np.max(rounding[touched])) / scale)
        sense = np.where(self.lower == self.upper, EQUALITY, 0).astype(np.int32)
        for start, looser in ((self._last, 1.0), (None, 1.0), (None, 1e3), (None, 1e6)):
            _, _, flag, info = daqp.solve(
                np.eye(F.shape[1]),
                np.zeros(F.shape[1]),
                F,
                np.minimum(upper / scale, INFINITE),
                np.maximum(lower / scale, -INFINITE),
                sense,
                primal_tol=tolerance * looser,
                dual_tol=1e-13,
                dual_start=start,
            )
            if flag >= 1:
                self._last = found = as_array(info["lam"])
                return as_array(scale * found / self.norms)
        if self.contradiction() is not None:
            return np.full(value.size, np.nan)
        return self._row_by_row(upper, lower) / self.norms

    def _rounding(self, value: Array, size: float) -> Array:
        """Return what rounding leaves in the normalized rows of a point of norm ``size``."""
        nearest = np.where(self._high - value < value - self._low, np.abs(self._high), np.abs(self._low))
        return as_array(4 * EPS * (size + np.where(np.isfinite(nearest), nearest, 0.0)))

    def _row_by_row(self, upper: Array, lower: Array) -> Array:
        """Approach the multipliers by meeting one row after the other (Hildreth 1957), where the solver gives up.

        Nearly parallel rows do that.  Wherever it stops, the multipliers are those of some normal.
        """
        gram = self.factor @ self.factor.T
        m, rest = np.zeros(upper.size), np.zeros(upper.size)
        for _ in range(HILDRETH_ROUNDS):
            before = m.copy()
            for i in range(m.size):
                if gram[i, i] == 0:
                    continue
                others = rest[i] - gram[i, i] * m[i]
                new = (max(-others - upper[i], 0.0) + min(-others - lower[i], 0.0)) / gram[i, i]
                rest += gram[:, i] * (new - m[i])
                m[i] = new
            if np.max(np.abs(m - before)) <= 1e-14 * np.max(np.abs(m)):
                break
        return m

    @property
    def contains_zero(self) -> bool:
        """Whether zero obeys."""
        return bool(np.all(self.lower <= 0) and np.all(self.upper >= 0))

    def contradiction(self) -> Array | None:
        """Return multipliers that prove the limits contradict each other (``E'm = 0``, negative support), or None."""
        if self.contains_zero:
            return None
        if self._independent() or (self._no_zero_row and self.rows.shape[0] > QR_ROWS):
            return None  # among so many rows engines find it sooner
        from scipy.optimize import linprog  # here, since it doubles the time of importing the library

        F, up, low = self.factor, self._high, self._low
        n = up.size
        zero = np.zeros(n)
        cost = np.concatenate([np.where(np.isfinite(up), up, zero), -np.where(np.isfinite(low), low, zero)])
        top = np.concatenate([np.isfinite(up), np.isfinite(low)]).astype(np.float64)
        answer = linprog(
            cost, A_eq=np.hstack([F.T, -F.T]), b_eq=np.zeros(F.shape[1]), bounds=np.stack([0 * top, top], axis=1)
        )
        if answer.status != 0 or answer.fun >= -1e-9 * max(float(np.max(np.abs(cost))), 1e-300):
            return None
        # A multiplier of a side that has no limit is rounding.
        above, below = np.where(np.isfinite(up), answer.x[:n], 0.0), np.where(np.isfinite(low), answer.x[n:], 0.0)
        return as_array((above - below) / self.norms)

    def _independent(self) -> bool:
        """Say whether the rows are plainly independent: then they take any values, and no limits contradict."""
        if not self._no_zero_row:
            return False
        if self.disjoint:
            return True
        if self.rows.shape[0] > min(self.rows.shape[1], QR_ROWS):
            return False
        return bool(np.linalg.eigvalsh(self._gram)[0] > INDEPENDENT)

    @cached_property
    def _gram(self) -> Array:
        """Return the inner products of the normalized rows, row by row: a sparse product would copy the rows."""
        gram = np.stack([self.rows @ _dense(self.rows[[i]]).ravel() for i in range(self.rows.shape[0])])
        return as_array(gram / np.outer(self.norms, self.norms))

    def project(self, point: Array) -> Array:
        """Return the nearest member, from the multipliers of its dual; NaN where the limits contradict each other."""
        point = check_point(point, self.rows.shape[1])
        multipliers = self.multipliers(point)
        if np.any(np.isnan(multipliers)):
            return np.full_like(point, np.nan)
        return as_array(point - self.rows.T @ multipliers)

    def excess(self, point: Array) -> Array:
        """Return by how much each row is beyond its limits."""
        value = self.rows @ point
        return as_array(np.maximum(np.maximum(value - self.upper, self.lower - value), 0.0))

    def violation(self, point: Array) -> float:
        """Return the largest excess of a row, in its own units."""
        return float(np.max(self.excess(check_point(point, self.rows.shape[1]))))

    def level(self, point: Array) -> float | Array:
        """Return the value of each row."""
        values = as_array(self.rows @ point)
        return float(values[0]) if values.size == 1 else values

    def relative(self, point: Array, spread: Spread | None = None) -> float:
        """Return the largest excess relative to its limit or to ``|row|'d``, whichever is larger."""
        value = self.rows @ point
        error = 0.0 if spread is None else spread.of(self.sizes, self.largest)
        over, under = value - self.upper + error, self.lower - value + error
        excess = np.maximum(over, under)
        beyond = np.flatnonzero(excess > 0)
        if not beyond.size:
            return 0.0
        limit = np.where(over > under, self.upper, self.lower)[beyond]
        size = (self.sizes @ (np.abs(point) if np.min(point) < 0 else point))[beyond]
        least = np.where(limit == 0, FLOOR * self.largest[beyond], 0.0)
        scale = np.maximum(np.abs(limit), np.maximum(size, least))
        return float(np.max(excess[beyond] / np.maximum(scale, 1e-300)))

    def stated(self) -> Stated:
        words: dict[str, Any] = {"kind": "linear", "row_names": None if self.labels is None else list(self.labels)}
        if self.total is not None:
            words["total"] = self.total
        return words, {"rows": self.rows, "upper": self.upper, "lower": self.lower}

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        """Return the multipliers of the rows."""
        return scale * self.multipliers(point)

    def idle(self) -> Array:
        return np.zeros(self.upper.size)

    def normal(self, dual: Array) -> tuple[Array, float]:
        """Return ``rows' multipliers`` and its largest value over the set."""
        if dual.shape != self.upper.shape:
            raise ValueError(f"there are {dual.size} multipliers for {self.upper.size} rows")
        return self.rows.T @ dual, support_of_box(dual, self.lower, self.upper)

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        limit = np.where(dual > 0, self.upper, self.lower)[dual != 0]
        used = np.count_nonzero(dual)
        return used * (self.sizes.T @ np.abs(dual)), float(np.abs(dual[dual != 0]) @ np.abs(limit))

    def price(self, dual: Array) -> float | Array:
        """Return the change of the optimum for each unit of each limit."""
        return -float(dual[0]) if dual.size == 1 else -dual

    def relaxed(self, amount: float, relative: bool = False) -> Linear:
        up, down = self.units(relative)
        return self._within(self.upper + amount * up, self.lower - amount * down)

    def _within(self, upper: Array, lower: Array) -> Linear:
        """Return the same rows with other limits; what is known of the rows is kept."""
        out = copy.copy(self)
        out.__dict__.pop("_never", None)
        out._limit(upper, lower)
        return out

    def cones(self, stating: Stating) -> OfMultipliers:
        return stating.box(self.rows, self.upper, self.lower, self.units(True))

    def sides(self, all_of_them: bool) -> Sides:
        """Return the rows with one limit each, or only those sides that some distribution exceeds.

        The two sides of a row that holds with equality count once where all are wanted.
        """
        equal = self.upper == self.lower
        upper, lower = (self.upper, self.lower) if all_of_them else self.binding()
        up, down = np.isfinite(upper), np.isfinite(lower) & ~(equal & all_of_them)
        which = np.concatenate([np.flatnonzero(up), np.flatnonzero(down)])
        signs = np.concatenate([np.ones(up.sum()), -np.ones(down.sum())])
        return Sides(which, signs, np.concatenate([self.upper[up], -self.lower[down]]), equal[which])

    def one_sided(self) -> tuple[float, Array, float] | None:
        up, down = (bool(np.isfinite(side[0])) for side in (self.upper, self.lower))
        if self.parts != 1 or up == down:
            return None
        row = _dense(self.rows).ravel()
        return (1.0, row, float(self.upper[0])) if up else (-1.0, row, -float(self.lower[0]))

    def moved(self, way: Array) -> Linear:
        far = as_array(self.rows @ way).ravel()
        return self._within(self.upper + far, self.lower + far)

    def multiple(self, point: Array) -> float:
        return sides_exceeded(as_array(self.rows @ point).ravel(), self)

    def weights(self, dual: Array) -> Array:
        return as_array(np.abs(dual) * self.norms)

    def only(self, kept: npt.NDArray[np.bool_]) -> Linear:
        """Return the rows of which ``kept`` is true, alone."""
        labels = tuple(self.label(int(i)) for i in np.flatnonzero(kept))
        return self._like(self.rows[kept], self.upper[kept], self.lower[kept], labels)

    def _like(self, rows: Any, upper: Array, lower: Array, labels: Sequence[str] | None) -> Linear:
        out = ranked(Linear(rows, at_most=upper, at_least=lower, name=self.name), self)
        out.labels, out.total = labels, self.total
        return out

    def units(self, relative: bool) -> tuple[Any, Any]:
        """What the upper and lower limits are measured by: a limit of zero by its row's largest entry."""
        largest = self.largest if relative else np.ones(1)
        sizes = (np.where(np.isfinite(side), np.abs(side), 1.0) for side in (self.upper, self.lower))
        floor = np.where(largest > 0, largest, 1.0)
        up, down = (unit(self, relative, np.where(size > 0, size, floor)) for size in sizes)
        return up, down

    def ease(self, dual: Array, relative: bool = False) -> float:
        up, down = self.units(relative)
        return float(np.sum(np.maximum(dual, 0.0) * up + np.maximum(-dual, 0.0) * down))

    def said(self, amount: float = 0.0) -> str:
        if self.upper.size > 1:
            return f"each wider by {amount:.6g}" if amount else f"{self.upper.size} limits"
        low, high = float(self.lower[0]) - amount, float(self.upper[0]) + amount
        if low == high:
            return f"equal to {self.amount(low)}"
        if np.isfinite(low) and np.isfinite(high):
            return f"between {self.amount(low)} and {self.amount(high)}"
        return f"at most {self.amount(high)}" if np.isfinite(high) else f"at least {self.amount(low)}"

    @cached_property
    def _never(self) -> npt.NDArray[np.bool_]:
        """Which rows forbid all their pairs: no entry is negative, and the limit is zero."""
        least = self.ends[1]
        return as_array((self.upper == 0) & (least >= 0))

    def forbidden(self) -> npt.NDArray[np.bool_] | None:
        if not np.any(self._never):
            return None
        rows = self.rows[self._never]
        return as_array(as_array(rows.sum(axis=0)).ravel() > 0)

    def room(self) -> float:
        limits = np.concatenate([self.upper, self.lower])
        sizes = np.concatenate([self.largest, self.largest])
        some = np.isfinite(limits) & (limits != 0) & (sizes > 0)
        return float(np.min(np.abs(limits[some]) / sizes[some], initial=1.0))

    def _of_states(self, view: View) -> tuple[npt.NDArray[np.int64], Array]:
        """Return for each row the state whose visits it limits, or -1, and the factor of the visits."""
        n = self.upper.size
        states, factors = np.full(n, -1), np.ones(n)
        if not sp.issparse(self.rows):
            return states, factors
        E = sp.csr_array(self.rows)[:, view.kept] if view.kept is not None else self.rows
        counts, num_pairs = np.diff(E.indptr), np.bincount(view.owner, minlength=view.num_states)
        some = np.flatnonzero(counts)
        starts, owners = E.indptr[:-1][some], view.owner[E.indices]
        low, high = np.minimum.reduceat(owners, starts), np.maximum.reduceat(owners, starts)
        least, most = np.minimum.reduceat(E.data, starts), np.maximum.reduceat(E.data, starts)
        plain = (low == high) & (least == most) & (least > 0) & (counts[some] == num_pairs[low])
        states[some[plain]], factors[some[plain]] = low[plain], least[plain]
        return states, factors

    def shrink(self, view: View) -> Array | None:
        states, factors = self._of_states(view)
        rows = np.flatnonzero(states >= 0)
        if not rows.size:
            return None
        visits, change = view.per_state(view.d), np.ones(view.num_states)
        own = visits[states[rows]]
        np.minimum.at(change, states[rows], INSIDE * self.upper[rows] / factors[rows] / own)
        np.maximum.at(change, states[rows], self.lower[rows] / INSIDE / factors[rows] / own)
        change[change <= 0] = 1.0
        return change[view.owner]

    def barrier(self, view: View, unit: float) -> Barrier | None:
        upper, lower = self.binding()
        limited = (np.isfinite(upper) | np.isfinite(lower)) & ~self._never
        if view.kept is not None:  # rows of pairs that are all left out, such as visits of states that are not reached
            empty = as_array(_dense(abs(self.rows[:, view.kept]).sum(axis=1))).ravel() == 0
            limited &= ~(empty & (lower <= 0) & (upper >= 0))
        states, factors = self._of_states(view)
        of_states, others = (np.flatnonzero(limited & (states >= 0)), np.flatnonzero(limited & (states < 0)))
        if others.size > MOST_COLUMNS:
            return None
        parts: list[Part] = []
        caps = rows = None
        if of_states.size:
            scale = factors[of_states]
            caps = Caps(view, states[of_states], upper[of_states] / scale, lower[of_states] / scale)
            parts.append(caps)
        if others.size:
            rows = RowsPart(view, view.take(_dense(self.rows[others])), upper[others], lower[others])
            parts.append(rows)

        def dual(unit: float, price: float, lack: Array) -> Array:
            out = np.zeros(self.upper.size)
            if caps is not None:
                out[of_states] = unit * caps.net / factors[of_states]
            if rows is not None:
                out[others] = unit * rows.prices
            for i in np.flatnonzero(self._never):
                row = _dense(self.rows[[int(i)]]).ravel()
                out[i] = price / float(np.min(row[row > 0], initial=np.inf))
            return out

        return Barrier(parts, dual)

    def label(self, row: int) -> str:
        """Say which row is meant."""
        if self.upper.size == 1 and self.labels is None:
            return self.name
        return f"{self.name}, row {row}" if self.labels is None else self.labels[row]

    def response(self, point: Array, projected: Array, step: float) -> Response:
        """Return the projector onto the rows that hold with equality at the projection."""
        active = (self.multipliers(point) != 0) | (self.lower == self.upper)
        rows = self.rows[active] / self.norms[active][:, None]
        if self.disjoint:
            return Response(np.zeros_like(point), sp.csc_array(rows).T)
        values, vectors = np.linalg.eigh(as_array(_dense(rows @ rows.T)))
        kept = values > 1e-12 * max(float(np.max(values, initial=0.0)), 1e-300)
        return Response(np.zeros_like(point), as_array(rows.T @ (vectors[:, kept] / np.sqrt(values[kept]))))


def _names(rows: Any) -> tuple[str, ...]:
    """Return rows that are given by name; nothing where they are numbers."""
    if isinstance(rows, str):
        return (rows,)
    if isinstance(rows, (list, tuple)) and any(isinstance(row, str) for row in rows):
        if not all(isinstance(row, str) for row in rows):
            raise ValueError("rows mixes names and numbers; give names of costs alone, or numbers alone")
        return tuple(rows)
    return ()


def _dense(matrix: Any) -> Any:
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


def _entries(matrix: Any) -> Any:
    """Return all entries, or those of a sparse matrix that are stored."""
    if isinstance(matrix, SparseRows):
        return matrix.entries
    return np.asarray(matrix.data) if sp.issparse(matrix) else matrix


def _entries_a_column(rows: Any) -> npt.NDArray[np.int64]:
    if isinstance(rows, SparseRows):
        return rows.per_column()  # type: ignore[return-value]
    if sp.issparse(rows):
        return np.bincount(rows.indices[rows.data != 0], minlength=rows.shape[1])
    return as_array(np.count_nonzero(rows, axis=0))


class Budget(Ranked):
    """``{d : at_least <= cost'd <= at_most}``: a limit on one expected cost.

    Parameters
    ----------
    cost : str or array of shape (num_pairs,)
        A cost of the model by name, or a vector over pairs.
    at_most : float, optional
        The limit.
    name : str, optional
        Used in messages and results; the cost's name when not given.
    priority, weight : int, float, optional
        For ``solve(when_infeasible=...)``: limits of priority 1 are met first, and the weight is the excess that counts
        as much as exceeding another limit by its own size.
    at_least : float, optional
        A limit from below, instead of the other or beside it.
    per : {"step", "episode"}
        What the limits count.  A normalized discounted cost is an average per step (see
        :class:`cvxmdp.mdp.Evaluation`); an episode's total is ``1 / (1 - discount)`` times that: the sum of all costs,
        discounted.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> cm.Budget("collision", at_most=1e-3)
    Budget('collision', at_most=0.001)
    >>> cm.Budget("success", at_least=0.9, per="episode").bind(
    ...     cm.worlds.gridworld(size=3).with_cost("success", states=["r2c2"], entering=True)).said()
    'at least 0.9 in total (0.009 per step)'
    """

    def __init__(
        self,
        cost: str | npt.ArrayLike,
        at_most: float | None = None,
        name: str | None = None,
        priority: int = 1,
        weight: float | None = None,
        *,
        at_least: float | None = None,
        per: str = "step",
    ) -> None:
        self._rank(priority, weight)
        if at_most is None and at_least is None:
            raise ValueError("a budget needs at_most= or at_least=")
        if per not in ("step", "episode"):
            raise ValueError(f'per is {per!r}; it must be "step" or "episode"')
        self.at_most = None if at_most is None else number("at_most", at_most)
        self.at_least = None if at_least is None else number("at_least", at_least)
        if self.at_most is not None and self.at_least is not None and self.at_least > self.at_most:
            raise ValueError(f"a budget of at least {self.at_least:g} and at most {self.at_most:g} holds nothing")
        self.per = per
        self.cost = cost if isinstance(cost, str) else frozen(numbers("cost", cost))
        self.name = name if name is not None else cost if isinstance(cost, str) else "budget"

    def __repr__(self) -> str:
        sides = [
            f"{side}={getattr(self, side):g}" for side in ("at_least", "at_most") if getattr(self, side) is not None
        ]
        sides += [f"per={self.per!r}"] * (self.per != "step")
        return f"Budget({self.cost if isinstance(self.cost, str) else 'vector'!r}, {', '.join(sides)})"

    def bind(self, mdp: MDP) -> Linear:
        """Return the row of this budget in a model."""
        if self.per == "step":
            return self._row(mdp.cost(self.cost), 1.0)
        row = self._row(mdp.cost(self.cost), 1 - mdp.discount)
        row.total = 1 / (1 - mdp.discount)
        return row

    def _row(self, cost: Array, each: float) -> Linear:
        high, low = (None if side is None else each * side for side in (self.at_most, self.at_least))
        return Linear(cost, at_most=high, at_least=low, name=self.name)

    def _linear(self) -> Linear:
        if isinstance(self.cost, str) or self.per != "step":
            missing = f"names the cost {self.cost!r}" if isinstance(self.cost, str) else "counts per episode"
            raise ValueError(f"the budget {missing}; bind it to a model first: budget.bind(mdp)")
        return self._row(self.cost, 1.0)

    def project(self, point: Array) -> Array:
        """Return the nearest member; needs a cost given as a vector."""
        return self._linear().project(point)

    def violation(self, point: Array) -> float:
        """Return the excess over the limit; needs a cost given as a vector."""
        return self._linear().violation(point)
