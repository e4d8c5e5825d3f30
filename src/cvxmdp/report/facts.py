"""What a reader is told of an answer, whatever it is shown on: the verdict, each limit, the most visited states."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.names import brief
from cvxmdp.report.text import conflict_sentences, effect_words, matters, part_words, passed, seen_excess
from cvxmdp.status import Status

if TYPE_CHECKING:
    from cvxmdp.blocks import Constraint
    from cvxmdp.mdp import Array, Indices
    from cvxmdp.policy import Policy
    from cvxmdp.solution import Solution

AT_LIMIT = 1e-4
"""Share of a limit's size within which a level is called at its limit: four digits are shown."""
TIMES = "\N{MULTIPLICATION SIGN}"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
RARE = 1e-9
"""Share of the visits below which a state is not listed."""
LONGEST = 80
"""Characters of the longest name that is shown whole."""
TAKEN = 5e-4
"""Probability below which an action is not listed: shares are shown in tenths of a per cent."""

TITLES = {
    Status.OPTIMAL: "Optimal, and proven",
    Status.INFEASIBLE: "Infeasible, and proven",
    Status.APPROXIMATE: "A policy, but no proof to the tolerance",
    Status.UNDECIDED: "Not decided",
    Status.ITERATION_LIMIT: "Stopped early: iteration limit",
    Status.TIME_LIMIT: "Stopped early: time limit",
    Status.INTERRUPTED: "Stopped early: interrupted",
}


def short(number: float, digits: int = 4) -> str:
    """Write a number for reading: a few digits, and powers of ten as such.

    Examples
    --------
    >>> short(0.42112345), short(3.14159e-05), short(1e-7), short(1234567.0), short(float("inf"))
    ('0.4211', '3.142×10⁻⁵', '10⁻⁷', '1.235×10⁶', '∞')
    """
    if math.isnan(number):
        return "not known"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    text = f"{number:.{digits}g}"
    if "e" not in text:
        return text
    factor, power = text.split("e")
    sign, factor = ("-" if factor.startswith("-") else ""), factor.removeprefix("-")
    power = f"10{str(int(power)).translate(SUPERSCRIPTS)}"
    return sign + (power if factor == "1" else f"{factor}{TIMES}{power}")


def readable(words: str) -> str:
    """Write the small and large numbers in a sentence as :func:`short` does.

    Examples
    --------
    >>> readable("at most 2e-05 nats")
    'at most 2×10⁻⁵ nats'
    """
    return re.sub(r"(?<![\w.])-?\d+(\.\d+)?e[+-]\d+(?!\w)", lambda found: short(float(found[0]), 6), words)


def at_most(number: float) -> str:
    """Write a positive number that something does not exceed with two digits, rounded up.

    Examples
    --------
    >>> at_most(0.01234), at_most(2.31e-9), at_most(0.0)
    ('0.013', '2.4×10⁻⁹', '0')
    """
    if not 0 < number < math.inf:
        return short(max(number, 0.0), 2)
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return short(math.ceil(number / unit * (1 - 1e-12)) * unit, 2)  # no step up for what is two digits already


@dataclass(frozen=True)
class Verdict:
    """How a solve ended, for people.

    Attributes
    ----------
    tone : {"good", "bad", "open"}
        Solved, impossible, or not finished.
    title : str
        A few words.
    sentences : sequence of str
        What is proven, and what is not.
    """

    tone: str
    title: str
    sentences: Sequence[str]


def verdict_of(solution: Solution) -> Verdict:
    """Say how a solve ended.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.facts import verdict_of
    >>> mdp = cm.worlds.gridworld(size=4)
    >>> verdict_of(cm.Problem(mdp, "time", [cm.Budget("collision", at_most=0.01)]).solve()).title
    'Optimal, and proven'
    """
    status = solution.status
    if solution.infeasibility is not None:
        return Verdict("bad", TITLES[status], [readable(sentence) for sentence in conflict_sentences(solution)])
    limits = len(solution.violations)
    exceeded = sum(seen_excess(solution, i) > 0 for i in range(limits))
    better = f"No policy{' that obeys' if limits else ''} is better by more than {at_most(possible_gain(solution))}."
    if status is Status.OPTIMAL:
        objective, value = brief(solution.asked.objective, LONGEST), f"{short(solution.value)}{_unit(solution)}"
        if passed(solution):
            worse = "above" if minimized(solution) else "below"
            return Verdict(
                "good",
                "Optimal to the tolerance",
                [
                    f"The policy has {objective} {value}. It exceeds a limit, by no more than the tolerance allows.",
                    f"That is worth much here: policies that obey to the last digit, if there are any, are {worse} "
                    f"{short(solution.bound)}.",
                ],
            )
        obeys, best = "obeys every limit and " if limits else "", "least" if minimized(solution) else "largest"
        said = [f"The policy {obeys}has the {best} {objective}: {value}.", better]
        if exceeded:
            said.append("Where a limit is exceeded, it is by no more than the tolerance allows.")
        return Verdict("good", TITLES[status], said)
    said = [status.value]
    if exceeded:
        said.append(f"The policy returned exceeds {exceeded} of {limits} limit{'s' if limits > 1 else ''}.")
    elif math.isfinite(possible_gain(solution)):
        said.append(better)
    return Verdict("open", TITLES[status], said)


def proof_words(solution: Solution) -> str:
    """Say what is proven of a solution, in a sentence without its full stop.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.facts import proof_words
    >>> proof_words(cm.Problem(cm.worlds.gridworld(size=3), "time").solve()).partition(",")[0]
    'The solution carries a proof that no policy does better'
    """
    near = f"relative tolerance of {short(solution.tolerance)}"
    if solution.infeasibility is not None:
        return "The solution carries a proof that no policy obeys every limit, rounding counted against it"
    if solution.status is Status.OPTIMAL:
        return f"The solution carries a proof that no policy does better, to a {near}, rounding counted against it"
    return (
        "The solution carries a proof of its bound and of what its policy does, but these are farther apart than "
        f"the {near}"
    )


def possible_gain(solution: Solution) -> float:
    """Return what no policy that obeys can be better by, with what rounding may hide."""
    gain = solution.value - solution.bound if minimized(solution) else solution.bound - solution.value
    return max(gain, 0.0) + solution.errors["value"]


def minimized(solution: Solution) -> bool:
    """Whether the objective was to be small."""
    return solution.asked.sense == "minimize"


def _unit(solution: Solution) -> str:
    """Say what the number is where the objective is one cost: an average per step, and where limits are, a total."""
    if solution.asked.terms or len(solution.asked.costs) != 1:
        return ""
    total = next((limit.total for limit in solution.asked.limits if limit is not None and limit.total), None)
    return " per step on average" + ("" if total is None else f", {short(solution.value * total)} in total")


@dataclass(frozen=True)
class LimitFact:
    """One limit, and what the policy does about it.

    Attributes
    ----------
    name : str
        The limit's.
    allowed : str
        The limit in words.
    level : float or None
        What the policy does, where that is one number.
    total : float or None
        What to multiply numbers per step by to have an episode's total, where the limit was stated so.
    lower, upper : float
        The limit, infinite where there is none; both where it is not one number.
    excess : float
        By how much it is exceeded; 0 where that is not seen.
    standing : {"exceeded", "at its limit", "obeyed"}
        Where the level is.  One that is exceeded by what the tolerance of an optimum allows is at its limit.
    price : float
        Change of the optimum for each unit; NaN where there is not one number or none is proven.
    matters : bool
        Whether a price is known, and is more than what is left of a numerical method.
    effect : str
        What the limit has to do with the optimum, or with the conflict.
    """

    name: str
    allowed: str
    level: float | None
    total: float | None
    lower: float
    upper: float
    excess: float
    standing: str
    price: float
    matters: bool
    effect: str


def limit_facts(solution: Solution) -> list[LimitFact]:
    """Return what there is to say of each limit, in the problem's order.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.facts import limit_facts
    >>> mdp = cm.worlds.gridworld(size=4)
    >>> [fact] = limit_facts(cm.Problem(mdp, "time", [cm.Budget("collision", at_most=0.01)]).solve())
    >>> fact.name, fact.allowed, fact.upper
    ('collision', 'at most 0.01', 0.01)
    """
    return [_fact(solution, i, name) for i, name in enumerate(solution.violations)]


def _fact(solution: Solution, i: int, name: str) -> LimitFact:
    limit, found, price = solution.asked.limits[i], solution.levels[name], solution.prices[name]
    lower, upper = limit_ends(limit)
    level = found if isinstance(found, float) and (math.isfinite(lower) or math.isfinite(upper)) else None
    beyond = seen_excess(solution, i)
    # What the tolerance allows is too little to be seen.
    standing = "exceeded" if beyond > 0 and solution.status is not Status.OPTIMAL else "obeyed"
    if level is not None and standing == "obeyed":
        near = [abs(level - end) <= AT_LIMIT * abs(end) for end in (lower, upper) if math.isfinite(end)]
        standing = "at its limit" if any(near) or beyond > 0 else standing
    effect = ""
    if solution.infeasibility is not None:
        effect = part_words(solution.infeasibility, name)
    elif solution.status is Status.OPTIMAL:
        effect = effect_words(solution, i, name)
    return LimitFact(
        name, "the user's own set" if limit is None else readable(limit.said()), level,
        None if limit is None else limit.total, lower, upper, beyond,
        standing, float(np.ravel(price)[0]) if np.size(price) == 1 else math.nan,
        bool(np.any(matters(solution, i))), readable(effect),
    )  # fmt: skip


def limit_ends(limit: Constraint | None) -> tuple[float, float]:
    """Return from where to where a limit lets its level be; minus infinity to infinity where it is not one number."""
    if limit is None:
        return -math.inf, math.inf
    words, arrays = limit.stated()
    if "upper" in arrays:
        one = np.size(arrays["upper"]) == 1
        return (float(arrays["lower"][0]), float(arrays["upper"][0])) if one else (-math.inf, math.inf)
    if "sign" in words:  # an entropy is limited from below, a relative entropy from above
        end = -float(words["sign"]) * float(words["bound"]) + 0.0
        return (end, math.inf) if words["sign"] > 0 else (-math.inf, end)
    ends = [float(words[key]) for key in ("radius", "at_most") if key in words]
    return -math.inf, ends[0] if ends else math.inf


@dataclass(frozen=True)
class StateFact:
    """A state, the share of the visits it has, and the actions taken there with their probabilities."""

    name: str
    visits: float
    actions: Sequence[tuple[str, float]]


def most_visited(policy: Policy, visits: Array, count: int) -> tuple[list[StateFact], int]:
    """Return the most visited states, and how many more are visited.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.facts import most_visited
    >>> solution = cm.Problem(cm.worlds.gridworld(size=3), "time").solve()
    >>> states, left = most_visited(solution.policy, solution.visits, 1)
    >>> states[0].name, left
    ('r2c2', 8)
    """
    seen = int(np.count_nonzero(visits > RARE))
    top = np.argpartition(-visits, min(count, visits.size) - 1)[:count]
    order = [int(s) for s in top[np.lexsort((top, -visits[top]))] if visits[s] > RARE]
    return states_facts(policy, np.array(order, dtype=np.int64), visits), seen - len(order)


def states_facts(policy: Policy, numbers: Indices, visits: Array | None = None) -> list[StateFact]:
    """Return what is done in some states."""
    facts = []
    for s in numbers.tolist():
        first, last = np.searchsorted(policy.state, [s, s + 1])
        pi = policy.probabilities[first:last]
        taken = [i for i in np.argsort(-pi, kind="stable").tolist() if pi[i] > TAKEN]
        actions = [(policy.actions[int(policy.action[first + i])], float(pi[i])) for i in taken]
        facts.append(StateFact(policy.states[s], math.nan if visits is None else float(visits[s]), actions))
    return facts
