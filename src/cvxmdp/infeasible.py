"""What to do where no policy obeys: which limits conflict, what each would have to become, and compromises.

All of it rests on one number.  A vector u that proves infeasibility with a margin still does so, with a smaller one,
when limits are moved outwards by an amount t: the margin falls by t times the *ease* of u.  So no t below
``margin / ease`` is enough, and where the ease is zero, no t at all.  There the problem is solved again, which finds a
policy that obeys or the next vector: Newton's method for the least t, with a proof at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cvxmdp.blocks import Constraint
from cvxmdp.certificate import Limit, Proof
from cvxmdp.constraints.combine import relative_ease
from cvxmdp.engines.exact import EPS
from cvxmdp.engines.judge import Judge
from cvxmdp.engines.prover import Candidate, Refutation
from cvxmdp.mdp import Array
from cvxmdp.solution import Relaxation
from cvxmdp.status import Status

MOST_STEPS = 40
"""Newton steps towards the least amount."""
IN_SUPPORT = 1e-6
"""Share of the largest multiplier, in the size of its row, from which on a limit counts as part of a proof."""
CLOSE = 1e-4
"""How far, relatively, an amount that is enough may be above one that is not, where the border is not decided."""
NEARER = 0.99
"""A step towards the least amount has to bring the limits at least that much nearer."""
CLOSENESS = 1e-9
"""What is spared of an amount that is a quotient of a margin and an ease: a margin of 1e-5 is what is left of numbers
near one, and rounds by as many more eps."""
MOST_LIMITS = 24
"""Conflicts of more limits are not reduced further: each would have to be left out once."""


class StoppedError(Exception):
    """The user has stopped the solve."""


class Ask(Protocol):
    """Solve the problem with other constraints, and another cost if given.

    For a "verdict" any policy that obeys is enough, or a proof that none does; for a "distance" the nearest policy is
    wanted, too; for an "optimum" the best of those that obey.
    """

    def __call__(
        self, constraints: Sequence[Constraint], cost: Array | None = None, seek: str = "verdict"
    ) -> tuple[Status, Judge]: ...


Relax = Callable[[float], list[Constraint]]
Ease = Callable[[Sequence[Array]], float]
Enough = Callable[[Array], float]
"""Of an occupancy: the amount by which to relax so that it obeys; inf where no amount does."""


@dataclass(frozen=True, eq=False)
class Least:
    """The least amount: at least ``low``, by the proof ``refutation``, and enough is ``high``, as ``judge`` found.

    Where no amount is enough, both are infinite; where it was not found out, ``high`` is NaN, ``judge`` the last one.
    """

    low: float
    high: float
    refutation: Refutation
    judge: Judge | None = None
    at: float = 0.0
    """By how much limits were relaxed when the proof was found."""


@dataclass(frozen=True, eq=False)
class Alone:
    """What relaxing one constraint alone would do: see :class:`cvxmdp.solution.Relaxation`."""

    amount: float | None
    least: float = 0.0
    enough: Candidate | None = None
    """A policy that obeys once it is relaxed by the amount."""
    short: Proof | None = None
    """Proof that less than ``least`` is not enough."""


@dataclass(eq=False)
class Explanation:
    """What was found out, with witnesses and proofs under the names of :class:`cvxmdp.certificate.Evidence`."""

    relax: dict[str, Relaxation] = field(default_factory=dict)
    conflict: list[Limit] = field(default_factory=list)
    irreducible: bool = False
    without: list[str] = field(default_factory=list)
    impossible: list[Limit] = field(default_factory=list)
    beyond: list[float] = field(default_factory=list)
    """By how much every policy exceeds each impossible limit."""
    witnesses: dict[str, Candidate] = field(default_factory=dict)
    proofs: dict[str, Proof] = field(default_factory=dict)


def least_amount(ask: Ask, relax: Relax, ease: Ease, enough: Enough, refutation: Refutation) -> Least:
    """Find the least amount by which to relax, from a proof that none is not enough."""
    amount, at, margin, distance = 0.0, 0.0, refutation.margin, np.inf
    judge: Judge | None = None
    for _ in range(MOST_STEPS):
        slope = ease(refutation.duals)
        if not slope > 0 or not np.isfinite(amount + margin / slope):
            return Least(np.inf, np.inf, refutation, at=at)
        if judge is not None and margin / slope <= judge.tolerance * amount:
            break  # steps below the tolerance lead nowhere
        amount += margin / slope
        status, judge = ask(relax(amount), seek="distance")
        if status is Status.OPTIMAL:
            return Least(amount, amount, refutation, judge, at)
        if status is not Status.INFEASIBLE or judge.refutation is None:
            break
        refutation, margin, at = judge.refutation, judge.refutation.margin, amount
        if judge.nearest is None:  # limits exclude each other: no point is allowed, and none is nearest
            continue
        if judge.nearest.distance > NEARER * distance:
            break
        distance, candidate = judge.nearest.distance, judge.nearest.candidate
        if (high := enough(candidate.d)) <= amount * (1 + judge.tolerance):
            judge.best = candidate
            return Least(amount, high, refutation, judge, at)
    return Least(amount, np.nan, refutation, judge, at)


def alone(ask: Ask, constraints: Sequence[Constraint], k: int, refutation: Refutation, tolerance: float) -> Alone:
    """Find the least amount by which constraint k alone has to be relaxed."""
    mine = constraints[k]
    if mine.ease(refutation.duals[k]) == 0:
        return Alone(None, np.inf, short=refutation)
    others = [*constraints[:k], *constraints[k + 1 :]]
    if (one := mine.one_sided()) is not None:
        # The least of one row under the other limits is a problem like any other.
        sign, row, limit = one
        status, judge = ask(others, sign * row, seek="optimum")
        if status is Status.OPTIMAL and judge.best is not None and judge.bound is not None:
            short = _inserted(judge.bound.duals, k, np.array([sign]), judge.bound.potential)
            least = judge.bound.value - limit
            least -= 4 * EPS * (abs(judge.bound.value) + abs(limit))
            # A policy may cost less than the bound by exceeding other limits as far as the tolerance allows.
            return Alone(max(judge.best.value - limit, least, 0.0), max(least, 0.0), judge.best, short)
        if status is Status.INFEASIBLE and judge.refutation is not None:
            proof = judge.refutation
            return Alone(None, np.inf, short=_inserted(proof.duals, k, mine.idle(), proof.potential))
        return Alone(np.nan)

    def enough(d: Array) -> float:
        return mine.violation(d) if all(c.relative(d) <= tolerance for c in others) else np.inf

    found = least_amount(
        ask,
        lambda t: [*others[:k], mine.relaxed(t), *others[k:]],
        lambda duals: mine.ease(duals[k]),
        enough,
        refutation,
    )
    duals = list(found.refutation.duals)
    duals[k] = mine.restated(duals[k], mine.relaxed(found.at))
    short = Proof(duals, found.refutation.potential)
    if np.isinf(found.high):
        return Alone(None, np.inf, short=short)
    least = found.low * (1 - CLOSENESS)
    best = found.judge.best if found.judge is not None else None
    if best is None:
        return Alone(np.nan)
    if np.isnan(found.high):
        # Not decided on the border, but a policy close to it tells what is enough.
        high = max(enough(best.d), least)
        return Alone(high, least, best, short) if high <= (1 + CLOSE) * found.low else Alone(np.nan)
    return Alone(max(found.high, least), least, best, short)


def _inserted(duals: Sequence[Array], k: int, dual: Array, V: Array) -> Proof:
    """The proof with a dual of constraint k among those of the others."""
    return Proof([*duals[:k], dual, *duals[k:]], V)


def least_relative(
    ask: Ask, constraints: Sequence[Constraint], refutation: Refutation, tolerance: float
) -> tuple[Refutation, Judge | None]:
    """Find the least worst violation, each limit measured by its size or its weight, and the cheapest policy there.

    Return the proof that none has a lesser one, and the judge of the policy.
    """

    def relax(t: float) -> list[Constraint]:
        return [c.relaxed(t, relative=True) for c in constraints]

    found = least_amount(
        ask,
        relax,
        lambda duals: relative_ease(constraints, duals),
        lambda d: max(c.multiple(d) for c in constraints),
        refutation,
    )
    if found.judge is None or not np.isfinite(found.high):
        return found.refutation, None
    return found.refutation, cheapest(ask, relax(found.high + tolerance / 2)) or found.judge


def by_priority(
    ask: Ask, constraints: Sequence[Constraint], tolerance: float
) -> tuple[Judge | None, dict[int, float], dict[str, Proof]]:
    """Meet the constraints of the first priority as well as possible, then those of the next, and so on.

    What is known to be possible only to the tolerance leaves the next ones that much room.  Return the judge of a
    policy that does it, None where it was not found; the amounts; and the proofs that less was not possible.
    """
    amounts: dict[int, float] = {}
    proofs: dict[str, Proof] = {}
    judge: Judge | None = None
    for level in sorted({c.priority for c in constraints}):
        mine = [c for c in constraints if c.priority <= level]

        def relax(t: float, mine: Sequence[Constraint] = mine) -> list[Constraint]:
            return [c.relaxed(amounts.get(c.priority, t), relative=True) for c in mine]

        def ease(duals: Sequence[Array], mine: Sequence[Constraint] = mine, level: int = level) -> float:
            pairs = zip(mine, duals, strict=True)
            return sum(c.ease(dual, relative=True) for c, dual in pairs if c.priority == level)

        def enough(d: Array, mine: Sequence[Constraint] = mine, level: int = level) -> float:
            done = all(c.multiple(d) <= amounts[c.priority] + tolerance for c in mine if c.priority < level)
            return max(c.multiple(d) for c in mine if c.priority == level) if done else np.inf

        status, judge = ask(relax(0.0))
        amounts[level] = 0.0
        if status is Status.INFEASIBLE and judge.refutation is not None:
            del amounts[level]
            found = least_amount(ask, relax, ease, enough, judge.refutation)
            if not np.isfinite(found.high):
                return None, amounts, proofs
            amounts[level], judge = found.high + tolerance, found.judge
            pairs = zip(mine, found.refutation.duals, relax(found.at), strict=True)
            of_mine = iter([c.restated(dual, wider) for c, dual, wider in pairs])
            duals = [next(of_mine) if c.priority <= level else c.idle() for c in constraints]
            proofs[f"priority:{level}"] = Proof(duals, found.refutation.potential)
        elif status is not Status.OPTIMAL:
            return None, amounts, proofs
    best = cheapest(ask, [c.relaxed(amounts[c.priority], relative=True) for c in constraints]) or judge
    return best, amounts, proofs


def cheapest(ask: Ask, constraints: Sequence[Constraint]) -> Judge | None:
    """Return the judge of the cheapest policy under limits that are known to be possible, if it was found."""
    status, judge = ask(constraints, seek="optimum")
    return judge if status is Status.OPTIMAL else None


def conflict(
    ask: Ask, constraints: Sequence[Constraint], refutation: Refutation, needed: Mapping[int, str], into: Explanation
) -> None:
    """Reduce a proof's limits to some that cannot all be obeyed, while any one of them less could be.

    Constraints that are ``needed`` are part of every conflict: the witness named there obeys all others.
    """
    current = _support(constraints, refutation.duals)
    proof: Proof = refutation
    every = sum(c.parts for c in constraints)
    if len(current) < every:
        status, judge = ask(_only(constraints, current))
        if status is not Status.INFEASIBLE or judge.refutation is None:
            return  # the time is over, or small multipliers matter
        proof = _whole(constraints, current, judge.refutation)
    into.conflict, into.proofs["conflict"] = current, proof
    if len(current) > MOST_LIMITS:
        return
    sure = True
    witnesses: dict[Limit, str] = {}
    met: dict[str, Candidate] = {}
    for limit in list(current):
        mine = constraints[limit[0]]
        if limit[0] in needed and mine.parts == 1:
            witnesses[limit] = needed[limit[0]]
            continue
        rest = [other for other in into.conflict if other != limit]
        status, judge = ask(_only(constraints, rest))
        if status is Status.INFEASIBLE and judge.refutation is not None:
            into.conflict, into.proofs["conflict"] = rest, _whole(constraints, rest, judge.refutation)
        elif status is Status.OPTIMAL and judge.best is not None:
            name = f"without:{len(witnesses)}"
            witnesses[limit], met[name] = name, judge.best
        else:
            sure = False
    if sure:
        # A witness against more limits than are left still obeys those that are.
        into.irreducible, into.without = True, [witnesses[limit] for limit in into.conflict]
        into.witnesses |= {name: met[name] for name in into.without if name in met}


def impossible(ask: Ask, constraints: Sequence[Constraint], into: Explanation) -> None:
    """Note the constraints that no policy obeys even by themselves."""
    blamed = {k for k, _ in into.conflict}
    if not blamed or len(constraints) > MOST_LIMITS:
        return
    for k, mine in enumerate(constraints):
        if k in blamed and len(blamed) > 1:
            continue  # several constraints conflict only because each could be obeyed by itself
        status, judge = ask([mine])
        found = judge.refutation
        if status is not Status.INFEASIBLE or found is None:
            continue
        ease = mine.ease(found.duals[0])
        into.proofs[f"impossible:{len(into.impossible)}"] = _whole(constraints, [(k, None)], found)
        into.impossible.append((k, None))
        into.beyond.append(found.margin / ease * (1 - CLOSENESS) if ease > 0 else np.nan)


def _whole(constraints: Sequence[Constraint], limits: Sequence[Limit], found: Refutation) -> Proof:
    """A proof from some limits alone as one of all constraints: the others' duals are idle."""
    duals, of_some = [], iter(found.duals)
    for k, constraint in enumerate(constraints):
        rows = [row for j, row in limits if j == k]
        dual = constraint.idle()
        if rows:
            mine = next(of_some)
            if mine.size == dual.size:
                dual = mine
            else:
                dual[sorted(row for row in rows if row is not None)] = mine
        duals.append(dual)
    return Proof(duals, found.potential)


def named(constraints: Sequence[Constraint], limits: Sequence[Limit]) -> list[str]:
    """Return limits by name."""
    out = []
    for k, row in limits:
        out.append(constraints[k].name if row is None else constraints[k].label(row))
    return out


def _support(constraints: Sequence[Constraint], duals: Sequence[Array]) -> list[Limit]:
    """The limits that a proof uses, the least used first."""
    weights: dict[Limit, float] = {}
    for k, (constraint, dual) in enumerate(zip(constraints, duals, strict=True)):
        for part, weight in enumerate(constraint.weights(dual)):
            weights[k, part if constraint.is_rows else None] = float(weight)
    most = max(weights.values())
    used = [limit for limit, weight in weights.items() if weight > IN_SUPPORT * most]
    return sorted(used, key=lambda limit: weights[limit])


def _only(constraints: Sequence[Constraint], limits: Sequence[Limit]) -> list[Constraint]:
    """The constraints with these limits alone."""
    out: list[Constraint] = []
    for k, constraint in enumerate(constraints):
        rows = [row for j, row in limits if j == k]
        if 0 < len(rows) < constraint.parts:
            out.append(constraint.only(np.array([row in rows for row in range(constraint.parts)])))
        elif rows:
            out.append(constraint)
    return out


def explain(
    ask: Ask,
    constraints: Sequence[Constraint],
    refutation: Refutation,
    tolerance: float,
) -> Explanation:
    """Say what each constraint would have to become, which limits conflict, and which are impossible by themselves.

    What the policy exceeds them by is not known here yet.
    """
    out, needed = Explanation(), {}
    found = [alone(ask, constraints, k, refutation, tolerance) for k in range(len(constraints))]
    for k, each in enumerate(found):
        if each.short is not None:
            out.proofs[f"short:{k}"] = each.short
        if each.enough is not None:
            needed[k] = f"enough:{k}"
            out.witnesses[needed[k]] = each.enough
    conflict(ask, constraints, refutation, needed, out)
    impossible(ask, constraints, out)
    blamed = {k for k, _ in out.conflict}
    for k, (constraint, each) in enumerate(zip(constraints, found, strict=True)):
        known = each.amount is not None and np.isfinite(each.amount)
        out.relax[constraint.name] = Relaxation(
            np.nan,
            each.amount,
            each.least,
            constraint.said(each.amount) if known and each.amount is not None else None,
            bool(blamed) and k not in blamed,
        )
    return out
