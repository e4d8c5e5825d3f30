"""What a policy does and what a vector V proves, exactly: rounding counts against us.

*Bounds.*  ``(1 - gamma) rho'V + min over pairs of (c + u + M V) - top`` holds for every V in exact arithmetic.  What
rounding may have added is left out: a few eps of the largest numbers that enter.  Where huge values of states that
hardly matter would spoil that, as with penalties of 1e12, the sums are made in extended precision, and V is refined
until the minimum is as good in the states that matter as in all others.  (A constant in V cancels, so V is centred.)

*Policies.*  The visits x of a policy solve ``A x = (1 - gamma) rho`` with ``A = I - gamma P_pi'``, whose inverse is
nowhere negative.  So if w is such that ``A w >= |r|`` for the residual r of a computed x, then ``|x* - x| <= w`` in
every entry: visits of 1e-100 are known as well as those near one.  What w does not cover is bounded in the 1-norm.
Rows of P, rho and the probabilities of a state are proportions: each counts divided by its exact sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.blocks import Spread
from cvxmdp.dynamics.base import Dynamics, indicator
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.memory import fits
from cvxmdp.ranks.scattered import as_parts_of, part_of, rows_of

EPS = float(np.finfo(np.float64).eps)
"""The distance from one to the next number: twice what rounding an operation may be off by, relatively."""
FINE = np.longdouble
FINE_EPS = float(np.finfo(FINE).eps)
"""Of extended precision; on machines that have none it is EPS, and everything holds with coarser errors."""
CHUNK = 2**20
"""Transitions that are copied in another precision at a time."""
HELD = 32
"""Bytes that a transition of a policy takes in extended precision, with where it leads and where it comes from."""
MOST_REFINEMENTS = 6
"""Of V in extended precision: each makes the residual smaller by about the solver's accuracy."""
MOST_CORRECTIONS = 8
"""Of visits."""
NEGLIGIBLE = 0.01
"""Share of the tolerance below which an error does not matter."""
TINY = 1e-280
"""Visits below this are as good as none: products with them are not exact any more."""
LARGEST_RESIDUAL = 1e-3
"""Largest relative residual for which an error vector is sought."""
ALLOWANCE = 4.0
"""What is left out for rounding in extended precision, in multiples of what rounding may do: another may add up in
another order and has to find the same."""
SAFETY = 1.5
"""The residual that the error vector w is made for, relative to the one that was found."""


@dataclass(frozen=True, eq=False)
class Visits:
    """Visits of the states, as the sum of two rows, and how exact they are."""

    parts: Array
    error: Array
    """``|x* - x|`` is at most this in every entry, but for the rest."""
    rest: float
    """In the 1-norm."""

    @property
    def x(self) -> Array:
        """The visits, rounded."""
        x: Array = self.parts.sum(axis=0)
        return x

    def occupancy(self, owner: Indices, pi: Array) -> Array:
        """Return the occupancy of the pairs."""
        d = self.x[owner]
        d *= pi
        return d

    def spread(self, owner: Indices, pi: Array) -> Spread:
        """Return how exact the occupancy is, with what rounding may do to sums over it, twice for good measure."""
        # All visits add up to one: no entry is off by more than the others together and what x lacks of one.
        lacking = abs(1 - float(np.sum(self.parts.astype(FINE)))) + FINE_EPS * (self.error.size + 10)
        total = float(self.error.sum()) * (1 + EPS * (self.error.size + 10))
        others = lacking + self.rest + total - self.error
        off = np.minimum(self.error, np.maximum(others, 0.0)) + (np.count_nonzero(pi) + 10) * EPS * self.x
        entries = (2 * off)[owner]
        entries *= pi
        return Spread(entries, 2 * self.rest)


class Exact:
    """See the module."""

    def __init__(self, mdp: MDP, dynamics: Dynamics) -> None:
        self.mdp, self.dynamics = mdp, dynamics
        self.rows: Any = rows_of(mdp)
        self.halo = dynamics.halo
        longest = np.max(np.diff(self.rows.indptr), initial=0) if sp.issparse(self.rows) else self.rows.shape[1]
        self.longest = int(self.halo.world.largest(longest))
        """Most entries of a row."""

    @cached_property
    def most_ways(self) -> int:
        """Most entries of a column of P: pairs that lead to one state."""
        indices, step = self.rows.indices, max(CHUNK, self.rows.shape[1])
        return self._ways(indices[k : k + step] for k in range(0, indices.size, step))

    def _ways(self, columns: Iterable[Indices]) -> int:
        """Return how often one of these comes at most."""
        ways = np.zeros(self.rows.shape[1], dtype=np.int64)
        for some in columns:  # counting makes long integers of them
            ways += np.bincount(some, minlength=ways.size)
        return int(self.halo.world.largest(np.max(self.halo.home(ways), initial=0)))

    def rounding(self, V: Array, c: Array, size: float) -> float:
        """Return what rounding may add to a bound computed in double precision from these, nothing else known.

        ``size`` is what it may add to normals and conjugates, in multiples of eps.
        """
        return EPS * ((self.longest + 10) * 2 * largest(V) + 10 * largest(c) + size)

    def bound(
        self, c: Array, u: Array, top: Any, sizes: tuple[Array, float], V: Array, enough: float
    ) -> tuple[float, Array]:
        """Return the best bound found from V in extended precision, and its V.

        ``u`` and ``top`` are of extended precision, with the sizes of what they are sums of; V is refined until no more
        than ``enough`` could be won.
        """
        mdp, gamma = self.mdp, FINE(self.mdp.discount)
        rho = _proportions(mdp.initial)
        # What rounding may do to top; what it does to u and to the sums over rows is counted pair by pair.
        blur = 3 * ALLOWANCE * FINE_EPS * (mdp.num_pairs + 10) * sizes[1]
        h = self._centred(V)
        best, best_h = -np.inf, h
        for _ in range(MOST_REFINEMENTS):
            low, pairs, magnitude = self._least(c, u, sizes[0], h)
            inflow = (1 - gamma) * rho
            value = inflow @ h + np.min(low) - top - ALLOWANCE * FINE_EPS * (h.size + 10) * (inflow @ np.abs(h)) - blur
            rounded = _down(value)
            if rounded > best:
                best, best_h = rounded, h
            taken = indicator(self.dynamics, pairs)
            x = self.dynamics.visits(taken)
            mean = float(low.astype(np.float64) @ x / x.sum())
            if not np.isfinite(mean) or mean - float(np.min(low)) <= enough or interrupts.late():
                break
            # With this step the greedy policy's residual is the same in all states, and above by what the rounding of
            # V may take from it.
            step = (low - FINE(mean)).astype(np.float64) - 4 * EPS * magnitude
            costs = np.zeros_like(taken)
            costs[pairs] = step
            change = self.dynamics.value(taken, costs)
            if not np.all(np.isfinite(change)):
                break
            h = h + change
        return best, best_h

    def _centred(self, V: Array) -> Array:
        """V less its value where the process begins: it is small where it matters."""
        return V - float(self.mdp.initial @ V)

    def _least(self, c: Array, u: Array, of_u: Array, h: Array) -> tuple[Any, Indices, Array]:
        """For each state the least ``c + u + M h``, rounded down, its pair, and the size of what it is a sum of."""
        first, of_pair = self.dynamics.first, part_of(self.mdp.state)
        gamma, fine = FINE(self.mdp.discount), self.halo.everywhere(part_of(h).astype(FINE))
        whole, (c, u, of_u) = h, map(part_of, (c, u, of_u))
        low, pairs = np.empty(first.size - 1, dtype=FINE), np.empty(first.size - 1, dtype=np.int64)
        magnitude = np.empty(first.size - 1)
        for states, expected, sizes in self._expected(fine, first):
            mine = slice(first[states.start], first[states.stop])
            owner = of_pair[mine]
            total = c[mine] + u[mine] + gamma * expected - fine[owner]
            size = np.abs(c[mine]) + of_u[mine] + sizes + np.abs(fine[owner])
            total -= 3 * ALLOWANCE * FINE_EPS * (self.longest + 10) * size
            starts = first[states] - first[states.start]
            best = np.minimum.reduceat(total, starts)
            attains = np.flatnonzero(total == best[owner - states.start])
            chosen = attains[np.searchsorted(owner[attains], np.arange(states.start, states.stop))]
            low[states], pairs[states] = best, chosen + first[states.start]
            magnitude[states] = np.asarray(np.maximum.reduceat(sizes, starts) + np.abs(fine[states]), dtype=np.float64)
        return as_parts_of(whole, low), as_parts_of(whole, pairs), as_parts_of(whole, magnitude)

    def _expected(self, h: Any, first: Indices) -> Iterator[tuple[slice, Any, Any]]:
        """For runs of states: their pairs' ``P h`` and ``P |h|``, by rows that sum to one exactly."""
        P = self.rows
        sparse, size = sp.issparse(P), np.abs(h)
        ends = P.indptr if sparse else np.arange(P.shape[0] + 1) * P.shape[1]
        for states in _runs(ends[first]):
            mine = slice(first[states.start], first[states.stop])
            if sparse:
                part = slice(ends[mine.start], ends[mine.stop])
                p, columns = P.data[part].astype(FINE), P.indices[part]
                starts = ends[mine] - ends[mine.start]
                sums, there, sizes = (np.add.reduceat(x, starts) for x in (p, p * h[columns], p * size[columns]))
            else:
                p = P[mine].astype(FINE)
                sums, there, sizes = p.sum(axis=1), p @ h, p @ size
            yield states, there / sums, sizes / sums

    def visits(self, pi: Array, tolerance: float, start: Array | None = None) -> Visits:
        """Solve for the visits of a policy, as exactly as the tolerance needs them."""
        chain = self._chain(pi, tolerance)
        solve = self.dynamics.backward(pi)
        # An entry's relative error is its relative residual times the mean time of its visits.
        wanted = NEGLIGIBLE * 0.1 * tolerance * (1 - self.mdp.discount)
        x, r = _corrected(chain, solve, chain.inflow, wanted, start)
        rare = _relative(r, x) > wanted and not interrupts.requested()
        if rare and not interrupts.late():
            with suppress(interrupts.OutOfTimeError):
                if (factored := self.dynamics.backward_by_factors(pi)) is not None:
                    solve = factored
                    x, r = _corrected(chain, solve, chain.inflow, wanted, None)
        size = np.abs(r) + ALLOWANCE * chain.blur(x, r)
        # Where the visits are denormal numbers, or were not found, the rest has to do.
        ratio = _relative(size, x)
        w = np.zeros_like(x)
        if 0 < ratio < LARGEST_RESIDUAL and not interrupts.late():
            w, _ = _corrected(chain, solve, SAFETY * ratio * x, 0.1, None)
        covered = chain.applied(w) - ALLOWANCE * chain.eps * (chain.longest + 10) * 2 * w
        rest = float(np.sum(np.maximum(size - covered, 0.0))) / (1 - self.mdp.discount) * (1 + 1e-9)
        high = x.astype(np.float64)
        parts = np.stack([high, (x - high).astype(np.float64)])
        return Visits(parts, w.astype(np.float64) * (1 + 2 * EPS), rest)

    def _chain(self, pi: Array, tolerance: float) -> PolicyChain:
        """Return the chain of a policy in the precision that the tolerance needs."""
        mdp, P = self.mdp, self.rows
        taken = np.flatnonzero(part_of(pi))
        sparse = sp.issparse(P)

        def coarse(longest: int) -> bool:
            return EPS * (longest + 10) * SAFETY / (1 - mdp.discount) <= NEGLIGIBLE * 0.1 * tolerance

        longest = self.most_ways if sparse else taken.size
        if sparse:
            ends = np.append(0, np.cumsum(np.diff(P.indptr)[taken], dtype=np.int64))
        if not coarse(longest) and sparse:
            longest = self._ways(P[taken[run]].indices for run in _runs(ends))
        if coarse(longest):
            inflow = (1 - mdp.discount) * mdp.initial

            def applied(x: Array) -> Array:
                d = x[self.dynamics.owner]
                d *= pi
                return self.dynamics.flow(d)

            return PolicyChain(applied, inflow, longest, EPS)
        rho = _proportions(mdp.initial)
        gamma = FINE(mdp.discount)
        state, chances = part_of(mdp.state)[taken], part_of(pi)[taken].astype(FINE)
        totals = np.zeros(self.dynamics.first.size - 1, dtype=FINE)
        np.add.at(totals, state, chances)
        shares = chances / totals[state]
        if sparse:

            def entries(run: slice) -> tuple[Indices, Any, Indices]:
                rows, lengths = P[taken[run]], np.diff(ends[run.start : run.stop + 1])
                p = rows.data.astype(FINE)
                p *= np.repeat(shares[run] / np.add.reduceat(p, rows.indptr[:-1]), lengths)
                return rows.indices, p, np.repeat(state[run], lengths)

            runs = list(_runs(ends))
            held = [_by_column(*entries(run)) for run in runs] if fits(int(ends[-1]) * HELD) else None

            def inflows(x: Any) -> Any:
                out = np.zeros(P.shape[1], dtype=FINE)
                for to, starts, p, origin in held or ():
                    out[to] += np.add.reduceat(p * part_of(x)[origin], starts)
                for columns, p, origin in map(entries, runs if held is None else ()):
                    np.add.at(out, columns, p * part_of(x)[origin])
                return as_parts_of(x, self.halo.home(out))
        else:

            def inflows(x: Any) -> Any:
                out = np.zeros(x.size, dtype=FINE)
                step = max(CHUNK // P.shape[1], 1)
                for k in range(0, taken.size, step):
                    rows = P[taken[k : k + step]].astype(FINE)
                    out += (shares[k : k + step] * x[state[k : k + step]] / rows.sum(axis=1)) @ rows
                return out

        return PolicyChain(lambda x: x - gamma * inflows(x), (1 - gamma) * rho, longest, FINE_EPS)


def _by_column(columns: Indices, p: Any, origin: Indices) -> tuple[Indices, Indices, Any, Indices]:
    """Sort entries by column, so that they are added up several times as fast; also return where each column begins."""
    order = np.argsort(columns, kind="stable")
    starts = np.flatnonzero(np.diff(columns[order], prepend=-1))
    return columns[order][starts], starts, p[order], origin[order]


@dataclass(frozen=True, eq=False)
class PolicyChain:
    """``A = I - gamma P_pi'`` in some precision, and ``(1 - gamma) rho``."""

    applied: Callable[[Any], Any]
    inflow: Any
    longest: int
    """Most terms of a sum."""
    eps: float

    def blur(self, x: Any, r: Any) -> Any:
        """Return what rounding may do to the residual r of x: it is a sum of these."""
        return self.eps * (self.longest + 12) * (self.inflow + 2 * x + np.abs(r))


def _corrected(
    chain: PolicyChain, solve: Callable[[Array], Array], rhs: Any, wanted: float, start: Array | None
) -> tuple[Any, Any]:
    """Solve ``A x = rhs >= 0`` until the residual is ``wanted`` of x in every entry; also return the residual."""
    known = np.zeros_like(rhs, dtype=np.float64) if start is None else start
    if start is None:
        with suppress(interrupts.OutOfTimeError):  # nothing is known then, which counts against the policy
            known = solve(rhs.astype(np.float64))
    x = np.maximum(known, 0.0).astype(chain.inflow.dtype)
    best, best_r, least = x, rhs - chain.applied(x), np.inf
    r = best_r
    for _ in range(MOST_CORRECTIONS):
        relative = _relative(r, x)
        if relative < least:
            best, best_r, least = x, r, relative
        if relative <= wanted or interrupts.late():
            break
        size = float(np.max(np.abs(r)))
        if not 0 < size < np.inf:
            break
        try:
            moved = x + size * solve((r / size).astype(np.float64))
        except interrupts.OutOfTimeError:
            break
        # A sweep without subtraction reaches the rarest states and keeps all of them positive.
        x = np.maximum(moved, 0)
        x = rhs + (x - chain.applied(x))
        x = np.maximum(x, 0)
        r = rhs - chain.applied(x)
    return best, best_r


def _relative(r: Any, x: Any) -> float:
    """Return the largest residual relative to its entry.  States that nothing reaches are zero and have none."""
    seen = x > TINY
    if np.any(np.abs(r[~seen]) > TINY):
        return np.inf
    return float(np.max(np.abs(r[seen]) / x[seen], initial=0.0))


def _proportions(weights: Array) -> Any:
    """Return weights divided by their sum, in extended precision."""
    fine = weights.astype(FINE)
    return fine / fine.sum()


def _runs(ends: Any) -> Iterator[slice]:
    """Cut states into runs of about CHUNK transitions; ``ends`` is where each state's transitions begin."""
    begin = 0
    while begin < ends.size - 1:
        end = int(np.searchsorted(ends, ends[begin] + CHUNK, side="right")) - 1
        end = max(end, begin + 1)
        yield slice(begin, end)
        begin = end


def _down(value: Any) -> float:
    """Round down to double precision."""
    rounded = float(value)
    return float(np.nextafter(rounded, -np.inf)) if rounded > value else rounded


def largest(x: Array) -> float:
    """Return the largest absolute value, without a second array of that length."""
    return float(max(np.max(x, initial=0.0), -np.min(x, initial=0.0)))
