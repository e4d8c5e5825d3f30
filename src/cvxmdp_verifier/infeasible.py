"""The evidence that no policy obeys, what conflicts, what would be enough, and what the policy returned is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cvxmdp_verifier.bounds import Dual, least, shifted
from cvxmdp_verifier.errors import Refused, shown
from cvxmdp_verifier.extended import EPS, EPS64, LD, Close, Real, extended, norm, scaled
from cvxmdp_verifier.fields import Arrays, has_keys, integer, items, number, text
from cvxmdp_verifier.limits import Custom, Limit, Normal
from cvxmdp_verifier.model import Model
from cvxmdp_verifier.policy import Point, Policy, moved
from cvxmdp_verifier.report import at_least, at_most
from cvxmdp_verifier.terms import Slope, Term

QUOTIENT = 1 + 8 * EPS64
"""Quotients in a header are rounded to float64; that much is not counted against them."""
INSIDE = 1e-9
"""A point counts as in a set up to this share of the limit."""
KEYS = ("margin", "least", "distance", "compromise", "cheapest", "conflict", "conflict_limits", "irreducible",
        "impossible", "impossible_limits", "relax")  # fmt: skip

Part = tuple[int, int | None]
"""A limit, or one row of it."""


@dataclass(frozen=True)
class Evidence:
    """What the parts of the evidence are checked against.  Violations are known up to the rounding of float64."""

    model: Model
    limits: Sequence[Limit]
    terms: Sequence[Term]
    arrays: Arrays
    point: Point
    occupancy: Real
    cost: Real
    violations: Mapping[str, tuple[Real, Real]]
    tolerance: float

    def dual(self, name: str) -> Dual:
        """Read a dual record."""
        return Dual(self.model, self.arrays, name, self.limits)

    def margin(self, dual: Dual, used: Sequence[int] | None = None) -> Real:
        """Return what a record proves: positive means that no policy obeys the limits used."""
        used = range(len(self.limits)) if used is None else used
        return least(self.model, dual.potential, [dual.normals[i] for i in used])

    def obeys(self, point: Point, parts: Sequence[Part], limits: Sequence[Limit] | None = None) -> Part | None:
        """Return the first part that a policy exceeds by more than the tolerance, if any."""
        limits = self.limits if limits is None else limits
        for i, row in parts:
            if not limits[i].relative(point, row) <= self.tolerance * (1 + 1e-6):
                return i, row
        return None

    def called(self, part: Part) -> str:
        """Return the name of a part."""
        return shown(self.limits[part[0]].row_name(part[1])[0])


def verify_infeasibility(found: Any, evidence: Evidence) -> tuple[float, float, list[str]]:
    """Check all evidence; return the margin, the least relative violation, and what is proven in words."""
    what = "the infeasibility of the solution"
    optional = ("without", "amounts")
    if not isinstance(found, dict):
        raise Refused(f"{what} is missing: the status is INFEASIBLE without any evidence")
    has_keys({key: found[key] for key in found if key not in optional}, KEYS, what)
    sentences: list[str] = []
    margin, lowest, distance = _margin(found, evidence, sentences)
    parts = _conflict(found, evidence, sentences)
    _impossible(found, evidence, sentences)
    _relax(found, evidence, parts, sentences)
    _compromise(found, evidence, lowest, distance, sentences)
    return margin, lowest, sentences


def _margin(found: Any, evidence: Evidence, sentences: list[str]) -> tuple[float, float, list[float]]:
    dual = evidence.dual("margin")
    proven = evidence.margin(dual)
    margin = number(found["margin"], "the margin of the infeasibility")
    if not 0 < margin <= proven:
        raise Refused(
            f"the proof that no policy obeys is said to leave a margin of {margin:.9g}; recomputed it leaves "
            f"{float(proven):.9g}"
        )
    ease = sum((normal.relative_ease.high for normal in dual.normals), LD(0))
    lowest = number(found["least"], "the least relative violation", infinite=True)
    _at_most(lowest, proven, ease, "every policy is said to exceed some limit by {} times its size; {} is proven")
    if np.isinf(lowest) != (ease == 0) or lowest < 0:
        raise Refused(f"the least relative violation is said to be {lowest:g}, which the proof does not bear out")
    sentences.append("No policy obeys all limits; this is proven.")
    if np.isfinite(lowest):
        share = f"{at_least(100 * LD(lowest), 4)} %"
        sentences.append(f"Every policy exceeds some limit by at least {share} of its size.")
    else:
        sentences.append("No relaxation of the limits, however large, is enough.")
    given = items(found["distance"], "the distance")
    if len(given) != 2:
        raise Refused("the distance is not a pair of numbers")
    distance = [number(end, "the distance", infinite=True) for end in given]
    # One set for all linear limits, and one for each other.
    linear = [n.u.value for limit, n in zip(evidence.limits, dual.normals, strict=True) if limit.is_linear]
    others = [n.u.value for limit, n in zip(evidence.limits, dual.normals, strict=True) if not limit.is_linear]
    stacked = [sum(linear, LD(0) * evidence.cost), *others] if linear else others
    slack = sum((np.max(n.u.error, initial=0) for n in dual.normals), LD(0)) * evidence.model.num_pairs
    length = norm(np.concatenate(stacked), 2).high + slack
    _at_most(distance[0], proven, length, "every occupancy is said to be {} away from the limits; {} is proven")
    if not distance[0] >= 0 or not distance[1] >= 0:
        raise Refused("a distance to the limits is negative")
    return margin, lowest, distance


def _at_most(claimed: float, proven: Real, divisor: Real, message: str) -> None:
    quotient = proven / divisor if divisor > 0 else LD(np.inf)
    if not (claimed <= quotient * QUOTIENT and proven > 0):
        raise Refused(message.format(f"at least {claimed:.9g}", f"{float(quotient if proven > 0 else 0):.9g}"))


def _parts(found: Any, evidence: Evidence, key: str) -> list[Part]:
    """Read a list of limits and rows, and see that their names are theirs."""
    given = found[key]
    listed = list(given) if isinstance(given, dict) else items(given, key)
    called = [text(name, f"a name in {key}") for name in listed]
    parts: list[Part] = []
    for entry in items(found[f"{key}_limits"], f"{key}_limits"):
        if len(items(entry, f"an entry of {key}_limits")) != 2:
            raise Refused(f"an entry of {key}_limits is not a limit and a row")
        i = integer(entry[0], f"a limit in {key}_limits")
        if not 0 <= i < len(evidence.limits):
            raise Refused(f"{key}_limits has a limit that does not exist: {i}")
        row = None if entry[1] is None else integer(entry[1], f"a row in {key}_limits")
        if row is not None and not 0 <= row < evidence.limits[i].num_rows:
            raise Refused(f"{key}_limits has a row that does not exist: {row}")
        parts.append((i, row))
    if len(parts) != len(called) or len(set(parts)) != len(parts):
        raise Refused(f"{key} and {key}_limits do not list the same limits, each once")
    for name, (i, row) in zip(called, parts, strict=True):
        if name not in evidence.limits[i].row_name(row):
            raise Refused(f"{key} names {shown(name)} where it lists {evidence.called((i, row))}")
    return parts


def _alone(evidence: Evidence, record: str, parts: Sequence[Part]) -> tuple[Real, Real]:
    """Return the margin of a record that uses these parts alone, and how fast relaxing them all eats it up."""
    dual = evidence.dual(record)
    for i, (limit, normal) in enumerate(zip(evidence.limits, dual.normals, strict=True)):
        rows = [row for j, row in parts if j == i]
        # A user's projection of a member may move it by a hair: the margin below is without that.
        if not rows and not normal.idle and not isinstance(limit, Custom):
            raise Refused(f"the proof {record!r} also uses the limit {shown(limit.name)}")
        if rows and None not in rows and limit.num_rows > 1:
            others = normal.rows.copy()
            others[rows] = False
            if others.any():
                raise Refused(f"the proof {record!r} also uses {evidence.called((i, int(np.argmax(others))))}")
    used = sorted({i for i, _ in parts})
    return evidence.margin(dual, used), sum((dual.normals[i].ease.high for i in used), LD(0)) * (1 + 8 * EPS)


def _conflict(found: Any, evidence: Evidence, sentences: list[str]) -> list[Part]:
    parts = _parts(found, evidence, "conflict")
    irreducible = found["irreducible"]
    if not isinstance(irreducible, bool):
        raise Refused("whether the conflict is irreducible is neither true nor false")
    without = [text(name, "a record in without") for name in items(found.get("without") or [], "without")]
    if not parts:
        if irreducible or without:
            raise Refused("an irreducible conflict is claimed and none is listed")
        return parts
    proven, _ = _alone(evidence, "conflict", parts)
    names = _listed([evidence.called(part) for part in parts])
    if not proven > 0:
        raise Refused(f"{names} are said to conflict; the proof leaves a margin of {float(proven):.3g}")
    if irreducible != bool(without) or (irreducible and len(without) != len(parts)):
        raise Refused("there is not one policy for each limit of an irreducible conflict")
    for j, record in enumerate(without):
        others = parts[:j] + parts[j + 1 :]
        exceeded = evidence.obeys(Policy(evidence.model, evidence.arrays, record).point, others)
        if exceeded is not None:
            raise Refused(
                f"without {evidence.called(parts[j])} the others of the conflict are said to be obeyed; the policy "
                f"{shown(record)!r} exceeds {evidence.called(exceeded)}"
            )
    if len(parts) == 1:
        sentences.append(f"{names} cannot be obeyed by itself.")
    else:
        less = "; without any one of them they could be" if irreducible else ""
        sentences.append(f"These cannot all be obeyed: {names}{less}.")
    return parts


def _impossible(found: Any, evidence: Evidence, sentences: list[str]) -> None:
    if not isinstance(found["impossible"], dict):
        raise Refused("what is impossible is not an object with the names of limits")
    parts = _parts(found, evidence, "impossible")
    for j, (part, amount) in enumerate(zip(parts, found["impossible"].values(), strict=True)):
        proven, ease = _alone(evidence, f"impossible:{j}", [part])
        if not proven > 0:
            raise Refused(
                f"{evidence.called(part)} is said to be impossible by itself; the proof leaves a margin of "
                f"{float(proven):.3g}"
            )
        words = f"{evidence.called(part)} is impossible by itself"
        if amount is not None:
            excess = number(amount, f"the least excess of {evidence.called(part)}")
            if excess < 0:
                raise Refused(f"the least excess of {evidence.called(part)} is negative")
            message = f"every policy is said to exceed {evidence.called(part)} by {{}}; {{}} is proven"
            _at_most(excess, proven, ease, message)
            words += f": every policy exceeds it by at least {at_least(excess)}"
        sentences.append(f"{words}.")


def _relax(found: Any, evidence: Evidence, conflict: Sequence[Part], sentences: list[str]) -> None:
    relax = found["relax"]
    if not isinstance(relax, dict):
        raise Refused("relax is not an object with the names of limits")
    index = {limit.name: i for i, limit in enumerate(evidence.limits)}
    for name, entry in relax.items():
        what = f"what is said of relaxing {shown(name)}"
        if name not in index:
            raise Refused(f"{what} is of a limit that does not exist")
        has_keys(entry, ("exceeded", "amount", "least", "innocent"), what)
        i, limit = index[name], evidence.limits[index[name]]
        low, high = evidence.violations[name]
        exceeded = number(entry["exceeded"], f"{what}, the excess,", infinite=True)
        if not low <= exceeded <= high:
            raise Refused(
                f"{shown(name)} is said to be exceeded by {exceeded:.9g}; recomputed it is by {float(high):.9g}"
            )
        innocent = entry["innocent"]
        if not isinstance(innocent, bool) or innocent != (bool(conflict) and all(i != j for j, _ in conflict)):
            raise Refused(f"{what} is that it is {'' if innocent else 'not '}innocent, which the conflict belies")
        lowest = number(entry["least"], f"{what}, the least amount,", infinite=True)
        amount = entry["amount"]
        if lowest < 0:
            raise Refused(f"{what} is that it takes a negative amount")
        if lowest > 0 or f"short:{i}:potential" in evidence.arrays:
            dual = evidence.dual(f"short:{i}")
            proven, ease = evidence.margin(dual), dual.normals[i].ease.high
            if lowest > 0:
                _at_most(lowest, proven, ease, f"relaxing {shown(name)} alone is said to need {{}}; {{}} is proven")
        if amount is None:
            if not np.isposinf(lowest):
                raise Refused(f"{what} is that no amount is enough, but the least amount is {lowest:g}")
            sentences.append(f"Relaxing {shown(name)} alone is never enough.")
        elif amount == "unknown":
            if lowest > 0:
                sentences.append(f"Relaxing {shown(name)} alone takes at least {at_least(lowest)}.")
        else:
            enough = number(amount, f"{what}, the amount,")
            if not (enough >= 0 and lowest <= enough * QUOTIENT):
                raise Refused(f"{what} is that {enough:.9g} is enough and {lowest:.9g} the least")
            limits = [*evidence.limits[:i], limit.relaxed(LD(enough)), *evidence.limits[i + 1 :]]
            point = Policy(evidence.model, evidence.arrays, f"enough:{i}").point
            first = evidence.obeys(point, [(j, None) for j in range(len(limits))], limits)
            if first is not None:
                raise Refused(
                    f"relaxing {shown(name)} alone by {enough:.9g} is said to be enough; the policy 'enough:{i}' "
                    f"exceeds {evidence.called(first)}"
                )
            sentences.append(
                f"Relaxing {shown(name)} alone by {at_most(enough)} is enough (to the tolerance), by less than "
                f"{at_least(lowest)} is not."
            )


def _compromise(found: Any, evidence: Evidence, lowest: float, distance: list[float], sentences: list[str]) -> None:
    kind = found["compromise"]
    if kind not in ("nearest", "relative", "priority", "unfinished"):
        raise Refused("the compromise is of a kind that is not known")
    cheapest = number(found["cheapest"], "the least cost of the nearest policies", infinite=True)
    if np.isposinf(cheapest):
        raise Refused("the least cost of the nearest policies is said to be infinite")
    shifts = None
    if kind == "nearest" or "displacements" in evidence.arrays:
        shifts = _displacements(evidence, distance)
    elif np.isfinite(distance[1]):
        raise Refused("the policy's distance to the limits is stated without its displacements")
    near = shifts is not None and distance[1] <= (1 + evidence.tolerance) * distance[0]
    if near:
        sentences.append(
            f"The policy comes nearest to the limits: it is at most {at_most(distance[1], 6)} away, and none is nearer "
            f"than {at_least(distance[0], 6)}."
        )
    elif shifts is not None:
        sentences.append(
            f"The policy is at most {at_most(distance[1], 6)} away from the limits, and none is nearer than "
            f"{at_least(distance[0], 6)}."
        )
    if np.isfinite(cheapest) or "cheapest:potential" in evidence.arrays:
        dual = Dual(evidence.model, evidence.arrays, "cheapest", evidence.limits, evidence.terms)
        if np.isfinite(cheapest):
            if shifts is None:
                raise Refused("a least cost of the nearest policies is claimed without displacements")
            parts: list[Normal | Slope] = [*dual.normals, *dual.slopes]
            proven = least(evidence.model, dual.potential, parts, evidence.cost, shifted(dual.normals, shifts))
            if not cheapest <= proven:
                raise Refused(
                    f"policies as near are said to cost at least {cheapest:.9g}; {float(proven):.9g} is proven"
                )
            sentences.append(f"No policy with the same displacements costs less than {at_least(cheapest)}.")
    worst = max((limit.multiple(evidence.point) for limit in evidence.limits), default=LD(0))
    if kind == "relative":
        if np.isfinite(lowest) and worst <= lowest + 10 * evidence.tolerance * (1 + lowest):
            least_words = ", the least possible"
        else:
            least_words = ""
        share = f"{at_most(100 * worst, 4)} %"
        sentences.append(f"The policy exceeds no limit by more than {share} of its size{least_words}.")
    amounts = found.get("amounts")
    if kind == "priority":
        _priority(amounts, evidence, sentences)
    elif amounts:
        raise Refused("amounts are stated for a compromise that is not by priority")


def _displacements(evidence: Evidence, distance: list[float]) -> list[Real]:
    """Check that the occupancy less its displacements is in the sets; return the displacement of each limit."""
    L = evidence.model.num_pairs
    others = [i for i, limit in enumerate(evidence.limits) if not limit.is_linear]
    linear = [i for i, limit in enumerate(evidence.limits) if limit.is_linear]
    blocks = ([linear] if linear else []) + [[i] for i in others]
    rows = evidence.arrays.floats("displacements", (len(blocks), L))
    single = evidence.arrays.floats("displacement", (L,))
    gap = np.abs(single - np.sum(extended(rows), axis=0))
    if np.any(gap > 8 * len(blocks) * EPS64 * np.sum(np.abs(extended(rows)), axis=0) + 1e-300):
        raise Refused("the displacement is not the sum of the displacements")
    length, rounding = norm(np.ravel(extended(rows)), 2).value, (64 + np.sqrt(L)) * EPS64
    if not length <= distance[1] * (1 + rounding):
        raise Refused(
            f"the policy is said to be at most {distance[1]:.9g} away from the limits; the displacements are "
            f"{float(length):.9g} long"
        )
    here = replace(evidence.point, d=extended(evidence.occupancy))
    shifts: list[Real] = [None] * len(evidence.limits)
    for block, row in zip(blocks, rows, strict=True):
        there = moved(evidence.model, here, row)
        sizes = np.abs(here.d) + np.abs(extended(row))
        # What only the rounding of the subtraction leaves is nothing.
        d = np.where(np.abs(there.d) <= 4 * EPS64 * sizes, 0, there.d)
        there = replace(there, d=d, x=evidence.model.per_state(d))
        wide = replace(there, d=sizes, x=evidence.model.per_state(sizes))
        for i in block:
            shifts[i] = row
            limit = evidence.limits[i]
            room = INSIDE * limit.against(there) + rounding * limit.excess_size(wide)
            if not np.all(limit.excess(there).value <= room):
                raise Refused(f"the occupancy less its displacement does not obey the limit {shown(limit.name)}")
    return shifts


def _priority(amounts: Any, evidence: Evidence, sentences: list[str]) -> None:
    if not isinstance(amounts, dict) or not amounts:
        raise Refused("a compromise by priority states no amounts")
    levels = sorted({limit.priority for limit in evidence.limits})
    given: dict[int, float] = {}
    for key, amount in amounts.items():
        if key not in map(str, levels):
            raise Refused(f"an amount is stated for a priority that no limit has: {shown(key)}")
        given[int(key)] = number(amount, f"the amount of priority {shown(key)}")
        if given[int(key)] < 0:
            raise Refused(f"the amount of priority {shown(key)} is negative")
    for level, amount in sorted(given.items()):
        slack = evidence.tolerance * (1 + amount)
        needed = amount - 10 * slack
        mine = [i for i, limit in enumerate(evidence.limits) if limit.priority == level]
        for i in mine:
            worst = evidence.limits[i].multiple(evidence.point)
            if not worst <= amount + 2 * slack:
                raise Refused(
                    f"limits of priority {level} are said to be exceeded by at most {amount:.9g} times their size; the "
                    f"policy exceeds {shown(evidence.limits[i].name)} by {float(worst):.9g}"
                )
        words = f"limits of priority {level} by at most {at_most(amount + 2 * slack, 6)} times their size"
        # What is within the slack of nothing claims nothing.
        if needed > 0 or f"priority:{level}:potential" in evidence.arrays:
            dual = evidence.dual(f"priority:{level}")
        if needed > 0:
            proven = _needed(evidence, dual, level, given)
            if not needed <= proven * QUOTIENT:
                raise Refused(
                    f"limits of priority {level} are said to need {amount:.9g} times their size; "
                    f"{float(proven):.9g} is proven"
                )
            words += f"; no policy that keeps the more urgent ones does with less than {at_least(needed, 6)}"
        sentences.append(f"The policy exceeds {words}.")


def _needed(evidence: Evidence, dual: Dual, level: int, given: Mapping[int, float]) -> Real:
    """Return by how many times their size limits of a priority must give way at least, where earlier ones do so."""
    eased, ease, used = LD(0), LD(0), []
    for i, (limit, normal) in enumerate(zip(evidence.limits, dual.normals, strict=True)):
        if limit.priority > level:
            if not normal.idle:
                raise Refused(f"the proof 'priority:{level}' also uses the limit {shown(limit.name)}")
            continue
        used.append(i)
        if limit.priority == level:
            ease = Close(ease + normal.relative_ease.high, LD(0)).high
        elif limit.priority in given:
            eased = Close(eased + scaled(normal.relative_ease, LD(given[limit.priority])).high, LD(0)).high
        else:
            raise Refused(f"the amount of priority {level} is stated without that of priority {limit.priority}")
    left = Close(evidence.margin(dual, used) - eased, EPS * abs(eased)).low
    if not left > 0:
        return LD(0)
    return left / ease if ease > 0 else LD(np.inf)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
