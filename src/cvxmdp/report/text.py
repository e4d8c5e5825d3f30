"""A solution in words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cvxmdp.names import brief, printable
from cvxmdp.ranks.scattered import as_array
from cvxmdp.solution import UNFINISHED
from cvxmdp.status import Status

if TYPE_CHECKING:
    from cvxmdp.blocks import Constraint
    from cvxmdp.certificate import Certificate
    from cvxmdp.mdp import Evaluation
    from cvxmdp.solution import Infeasibility, Solution, Stats

WIDTH = 80
"""Columns of a terminal."""
MOST_NAMES = 6
"""More would fill the screen; the others are counted."""
NOTHING = 1e-270
"""An error that is not mentioned, whatever it is an error of."""
NAME = 40
"""Characters of the longest name in a line of its own."""
SEEN = 1e-9
"""Share of a limit below which an excess is not mentioned: levels are shown with eight digits."""


def describe(solution: Solution) -> str:
    """Say how the solve ended, what the policy costs, how sure that is, and what each limit costs."""
    found = solution.infeasibility
    lines = (_outcome if found is None else describe_conflict)(solution)
    totals = [limit.total for limit in solution.asked.limits if limit is not None and limit.total is not None]
    for name, cost in solution.costs.items():
        error = solution.errors[name]
        exact = "" if error <= max(solution.tolerance * abs(cost), NOTHING) else f", known to within {error:.1g}"
        both = f" per step, {cost * totals[0]:.8g} in total" if totals else ""
        lines.append(f"  {printable(name)}: {cost:.8g}{both}{exact}")
    for i, name in enumerate(solution.violations):
        parts = [level_words(solution, i, name)]
        if found is not None:
            parts.append(part_words(found, name))
        elif solution.status is Status.OPTIMAL:
            parts.append(effect_words(solution, i, name))
        lines.append(f"  limit {printable(name)}: {'; '.join(part for part in parts if part)}")
    stats = solution.stats
    passes = f"{stats.iterations} pass{'' if stats.iterations == 1 else 'es'}"
    lines.append(f"  {stats.method}; {passes}, {stats.seconds['total']:.2f} s")
    return "\n".join(wrapped for line in lines for wrapped in _wrapped(line))


def _wrapped(line: str, cut: bool = False) -> list[str]:
    """Break a line at the width of a terminal; within words only where they are to be cut."""
    indent = "  " if not line.startswith(" ") else "    "
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, drop_whitespace=True, break_long_words=cut)


def _outcome(solution: Solution) -> list[str]:
    """Say status, value, bound and gap."""
    gap = f"relative gap {solution.gap:.2g}"
    if not math.isfinite(solution.gap):
        exceeded = any(excess > 0 for excess in solution.violations.values())
        gap = "no gap, since the policy exceeds a limit" if exceeded else "no relative gap: nothing costs anything"
    lines = [
        f"{solution.status.name}: {solution.status.value}",
        f"  value {solution.value:.8g}, proven bound {solution.bound:.8g}, {gap}",
    ]
    if solution.status is Status.OPTIMAL and any(seen_excess(solution, i) for i in range(len(solution.violations))):
        lines.append("  where a limit is exceeded, it is by no more than the tolerance allows")
        if passed(solution):
            lines.append("  that is worth much here: the bound is of policies that obey to the last digit")
    return lines


def level_words(solution: Solution, i: int, name: str) -> str:
    """Say what a limit limits, how much of it the policy does, and what is allowed."""
    limit, level, violation = solution.asked.limits[i], solution.levels[name], seen_excess(solution, i)
    if limit is None:
        return f"exceeded by {violation:.3g}" if violation > 0 else "obeyed"
    excess = f", exceeded by {limit.amount(violation, 3)}" if violation > 0 else ""
    if isinstance(level, float):
        return f"{level * (limit.total or 1.0):.8g} of {limit.said()}{excess}"
    return f"{limit.said()}: {f'the worst exceeded by {violation:.3g}' if violation > 0 else 'all obeyed'}"


def seen_excess(solution: Solution, i: int) -> float:
    """By how much a limit is exceeded; 0 where that is not seen in the digits shown."""
    violation = list(solution.violations.values())[i]
    return violation if violation > SEEN * _size(solution.asked.limits[i]) else 0.0


def effect_words(solution: Solution, i: int, name: str) -> str:
    """Say what a limit has to do with the optimum, as far as that is proven."""
    dual = solution.evidence.proofs["bound"].duals[i]
    price, limit = np.ravel(solution.prices[name]), solution.asked.limits[i]
    wins, win = ("gains", "gain") if solution.asked.sense == "maximize" else ("saves", "save")
    if limit is not None and not np.any(limit.normal(dual)[0]):
        return f"leaving it out would {win} nothing"  # to the tolerance: the bound does not use it
    if not np.any(price):
        return "it matters by the pairs it forbids"
    if price.size > 1:
        count = int(np.count_nonzero(matters(solution, i)))
        return f"{count or 'none'} of {price.size} limits matter{'s' if count <= 1 else ''}"
    size = _size(limit)
    if not size:
        return f"each unit by which it is relaxed {wins} at most {abs(float(price[0])):.3g}"
    # A value in the same unit as the limit: per step, or in total where the limit is.
    total = 1.0 if limit is None or limit.total is None else limit.total
    amount, each = 0.01 * size * total, "" if total == 1.0 else " in total"
    return f"relaxing it by one per cent ({amount:.3g}) {wins} at most {abs(float(price[0])) * amount:.3g}{each}"


def matters(solution: Solution, i: int) -> npt.NDArray[np.bool_]:
    """Return of each part of a limit whether moving it by its own size could change the optimum beyond the tolerance.

    Prices that could not are what is left of numerical methods, and are not worth a word.
    """
    name, size = list(solution.violations)[i], _size(solution.asked.limits[i]) or 1.0
    return as_array(np.abs(np.ravel(solution.prices[name])) * size > solution.tolerance * _scale(solution))


def passed(solution: Solution) -> bool:
    """Whether a policy is better than any that obeys, because it exceeds limits by what the tolerance allows."""
    better = solution.bound - solution.value if solution.asked.sense == "minimize" else solution.value - solution.bound
    return better > solution.tolerance * _scale(solution)


def _scale(solution: Solution) -> float:
    """What the tolerance is relative to, or the value where convex terms are all there is."""
    return float(np.abs(solution.asked.cost) @ solution.occupancy) or abs(solution.value)


def _size(limit: Constraint | None) -> float:
    """The absolute value of a limit that is one number; 0 where it is not."""
    if limit is None:
        return 0.0
    words, arrays = limit.stated()
    sides = [np.abs(arrays[key]) for key in ("upper", "lower") if key in arrays]
    ends = [float(np.max(np.where(np.isfinite(side), side, 0.0), initial=0.0)) for side in sides]
    ends += [abs(float(words[key])) for key in ("radius", "bound", "at_most") if key in words]
    return max(ends, default=0.0)


def describe_conflict(solution: Solution) -> list[str]:
    """Say in lines of a terminal that no policy obeys, see :func:`conflict_sentences`."""
    sentences = f"INFEASIBLE: {' '.join(conflict_sentences(solution))}"
    return textwrap.wrap(sentences, WIDTH, subsequent_indent="  ")


def conflict_sentences(solution: Solution) -> list[str]:
    """Say that no policy obeys, how sure that is, which limits conflict, what would end it, and what is done."""
    found = solution.infeasibility
    assert found is not None
    sentences = ["No policy obeys every limit. This is proven"]
    sentences[0] += (
        f": every policy exceeds some limit by at least {_percent(found.least)} of its size."
        if math.isfinite(found.least)
        else ", however far the limits are relaxed."
    )
    for name, beyond in found.impossible.items():
        sentences.append(_alone(solution, name, beyond))
    if found.conflict and not (len(found.conflict) == 1 and found.impossible):
        less = "; without any one of them they could be" if found.irreducible and len(found.conflict) > 1 else ""
        sentences.append(f"These cannot all be obeyed: {_listed(found.conflict)}{less}.")
    cures = [f"{name} {limit.alone}" for name, limit in found.relax.items() if limit.alone is not None]
    if len(cures) == 1:
        sentences.append(f"One change alone would do: {_listed(cures)}.")
    elif cures:
        sentences.append(f"One of these changes alone would do: {_listed(cures, 'or')}.")
    elif all(limit.amount is None for limit in found.relax.values()):
        sentences.append("No single limit can be relaxed to end this, if the others are kept.")
        if together := _together(solution):
            sentences.append(f"Together these would do: {_listed(together)}.")
    sentences.append(_done(solution, found))
    return sentences


def _alone(solution: Solution, name: str, beyond: float) -> str:
    """Say of a limit that it is impossible by itself, and what is possible from this start."""
    words = f"{printable(name)} cannot be obeyed by itself"
    limit = dict(zip(solution.asked.names, solution.asked.limits, strict=False)).get(name)
    if limit is None or math.isnan(beyond):
        return words + "."
    words += f": from this start no policy does better than {limit.said(beyond)}"
    if math.isfinite(solution.asked.discount):
        steps = 1 / (1 - solution.asked.discount)
        words += f" (the discount looks about {steps:.3g} step{'' if steps < 1.5 else 's'} ahead)"
    return words + "."


def _together(solution: Solution) -> list[str]:
    """What the exceeded limits would have to become for the policy returned."""
    return [
        f"{name} {limit.said(solution.violations[name])}"
        for name, limit in zip(solution.asked.names, solution.asked.limits, strict=False)
        if limit is not None and 0 < solution.violations[name] < math.inf
    ]


def _done(solution: Solution, found: Infeasibility) -> str:
    """Say what the returned policy does instead."""
    limits = dict(zip(solution.asked.names, solution.asked.limits, strict=False))
    exceeded = [
        f"{name} by {_amount(limits[name], limit.exceeded)}"
        if math.isfinite(limit.exceeded)
        else f"{name} beyond any bound"
        for name, limit in found.relax.items()
        if limit.exceeded > 0
    ]
    if found.near is not None:
        high, low = found.near
        if high <= (1 + solution.tolerance) * low:
            what = "The policy returned comes nearest to the limits"
        else:
            what = f"The policy returned is at a distance of {high:.4g}, where none is nearer than {low:.4g},"
    elif found.compromise == "relative":
        what = "The policy returned exceeds limits by the least share of their size"
    elif found.compromise == "priority":
        what = "The policy returned meets limits in the order of their priorities"
    else:
        what = "The search for a compromise was not finished; the policy returned is the best so far"
    what += f" and exceeds {_listed(exceeded)}; its value is {solution.value:.6g}"
    if math.isfinite(found.cheapest):
        worse = "is worth more" if solution.asked.sense == "maximize" else "costs less"
        what += f", and none as near {worse} than {found.cheapest:.6g}"
    return what + "."


def part_words(found: Infeasibility, name: str) -> str:
    """Say of one limit what it has to do with the conflict."""
    limit = found.relax[name]
    if name in found.impossible:
        return "impossible by itself"
    if limit.innocent:
        return "not part of this conflict"
    if limit.amount is None:
        return "relaxing it alone is not enough"
    return "" if limit.alone is None else f"enough alone: {limit.alone}"


def _amount(limit: Constraint | None, value: float) -> str:
    """Write an amount of what a limit is on."""
    return f"{value:.4g}" if limit is None else limit.amount(value, 4)


def _listed(names: Sequence[str], word: str = "and") -> str:
    """Join names in a sentence; of many only the first."""
    shown = [printable(name) for name in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        shown.append(f"{len(names) - MOST_NAMES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}" if shown else "none"


def _percent(share: float) -> str:
    """Write a share: as percent while that reads well."""
    return f"{float(f'{100 * share:.3g}'):.10g} %" if share >= 1e-5 else f"{share:.2g}"


def certificate_lines(certificate: Certificate) -> str:
    """Say what there is to check."""
    evidence = certificate.evidence
    held = f"{_count(len(evidence.witnesses), 'policy', 'policies')} and {_count(len(evidence.proofs), 'proof')}"
    what = f"{certificate.solution.status.name} to a relative {certificate.tolerance:g}, from {held}"
    return _lines([f"Certificate({what}; check(problem) recomputes it)"])


def stats_lines(stats: Stats) -> str:
    """Say how an answer was made, and how long it took."""
    passes, sweeps = _count(stats.iterations, "pass", "passes"), _count(stats.sweeps, "sweep")
    return _lines(
        [f"Stats({printable(stats.method)}; {passes}, {sweeps} over the transitions, {stats.seconds['total']:.3g} s)"]
    )


def evaluation_lines(evaluation: Evaluation) -> str:
    """Say what a policy costs."""
    pairs, states = evaluation.occupancy.size, len(next(iter(evaluation.value.values())))
    lines = [f"Evaluation of {_count(states, 'state')} and {_count(pairs, 'pair')}, costs per step on average:"]
    lines += [f"  {brief(name, NAME)}: {cost:.8g}" for name, cost in list(evaluation.costs.items())[:MOST_NAMES]]
    more = len(evaluation.costs) - MOST_NAMES
    return _lines([*lines, f"  and {_count(more, 'more cost')}"] if more > 0 else lines)


def infeasibility_lines(found: Infeasibility) -> str:
    """Say how sure it is that no policy obeys, which limits conflict, what would end it, and what is returned."""
    sure = "however far limits are relaxed"
    if math.isfinite(found.least):
        sure = f"every policy exceeds some limit by at least {_percent(found.least)} of its size"
    conflict, alone = ([brief(name, NAME) for name in names] for names in (found.conflict, found.impossible))
    cures = [f"{brief(name, NAME)} {limit.alone}" for name, limit in found.relax.items() if limit.alone is not None]
    exceeded = sum(limit.exceeded > 0 for limit in found.relax.values())
    chosen = "the best so far" if found.compromise == UNFINISHED else f"chosen as {found.compromise}"
    lines = [
        f"Infeasibility, proven: {sure}",
        f"  conflict: {_listed(conflict) if conflict else 'not found out'}",
        f"  impossible by itself: {_listed(alone)}" if alone else "",
        f"  one change that would end it: {_listed(cures, 'or')}" if cures else "",
        f"  policy: {chosen}, exceeds {_count(exceeded, 'limit')} of {len(found.relax)}",
    ]
    return _lines([line for line in lines if line])


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(wrapped for line in lines for wrapped in _wrapped(line, cut=True))


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
