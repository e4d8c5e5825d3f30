"""Models from a rule: what a step from a state may lead to, explored from the start."""

from __future__ import annotations

import logging
import math
import time
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.mdp import MDP
from cvxmdp.names import printable
from cvxmdp.reading import SUM_TOLERANCE, check_discount, frozen

LAST_SHOWN = 3
"""Of the states found last, so many show what it is that grows."""
WAIT = 1.0
"""Seconds until something is said, and between two things said to a log."""
EXPECTED = "give a list of (probability, next_state) or (probability, next_state, costs)"

Tell = Callable[[int, int], None]
"""Told how many states were explored, and how many are known."""


def from_function(
    start: Hashable | Mapping[Any, float],
    actions: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]],
    step: Callable[[Any, Any], Any],
    discount: float,
    labels: Mapping[str, Callable[[Any], bool]],
    max_states: int,
    progress: bool,
) -> MDP:
    """Explore what can be reached from the start, breadth first; see :meth:`cvxmdp.MDP.from_function`."""
    check_discount(discount)
    if isinstance(max_states, bool) or not isinstance(max_states, Integral) or max_states < 1:
        raise ValueError(f"max_states is {max_states!r}; give a whole number, at least one")
    if not callable(step):
        raise ValueError(f"step must be a function of a state and an action, not a {type(step).__name__}")
    if not isinstance(labels, Mapping):
        raise ValueError(f"labels must be a mapping of names to functions of a state, not a {type(labels).__name__}")
    for name, holds in labels.items():
        if not callable(holds):
            raise ValueError(f"label {name!r} must be a function of a state, not a {type(holds).__name__}")
    first = _read_start(start)
    known = _Known(first, int(max_states))
    with _told(progress) as tell:
        rows = _explore(known, _Offer(actions), step, tell)
    names = _names("states", known.states)
    initial = np.zeros(len(names))
    initial[: len(first)] = list(first.values())
    return MDP.from_pairs(
        **rows,
        discount=discount,
        initial=initial,
        states=names,
        labels={name: np.array([bool(holds(state)) for state in known.states]) for name, holds in labels.items()},
    )


class _Known:
    """The states found so far, numbered in that order."""

    def __init__(self, first: Iterable[Any], most: int) -> None:
        self.states: list[Any] = list(first)
        self.number: dict[Any, int] = {state: i for i, state in enumerate(self.states)}
        self.most = most
        self._check()

    def add(self, state: Any) -> int:
        """Number a state that was not known."""
        self.number[state] = number = len(self.states)
        self.states.append(state)
        self._check()
        return number

    def _check(self) -> None:
        if len(self.states) > self.most:
            most = f"{self.most:,}".replace(",", " ")
            last = "; ".join(_named(state) for state in self.states[-LAST_SHOWN:])
            raise ValueError(
                f"more than {most} states can be reached, the last of them: {last}. If something grows there without "
                "end, bound it in step; else raise max_states"
            )


class _Offer:
    """The actions, numbered in the order in which they are first offered."""

    def __init__(self, actions: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]]) -> None:
        self.actions: list[Any] = []
        self._number: dict[Any, int] = {}
        self._of: Callable[[Any], Iterable[Any]] | None = None
        if callable(actions):
            self._of = actions
        else:
            self._all = self._read(actions, "")

    def __call__(self, state: Any) -> list[int]:
        """Return the numbers of the actions that a state offers, in order."""
        if self._of is None:
            return self._all
        try:
            offered = self._of(state)
            offered = offered if isinstance(offered, str) or not isinstance(offered, Iterable) else list(offered)
        except Exception as error:
            _note(error, f"actions({_named(state)})")
            raise
        return self._read(offered, f" in state {_named(state)}")

    def _read(self, offered: Iterable[Any], where: str) -> list[int]:
        if isinstance(offered, str) or not isinstance(offered, Iterable):
            raise ValueError(f"actions{where} must be a list, not {offered!r}")
        numbers = []
        for action in offered:
            try:
                number = self._number.setdefault(action, len(self.actions))
            except TypeError:
                raise ValueError(
                    f"action {action!r}{where} is a {type(action).__name__}, which cannot be hashed; use tuples in "
                    "place of lists"
                ) from None
            if number == len(self.actions):
                self.actions.append(action)
            numbers.append(number)
        if not numbers:
            raise ValueError(
                f"actions{where} is empty; every state needs one. Where the process ends, offer one that leads back to "
                "the state"
            )
        numbers.sort()
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"actions{where} holds an action twice: {', '.join(map(repr, offered))}")
        return numbers


def _explore(known: _Known, offer: _Offer, step: Callable[[Any, Any], Any], tell: Tell) -> dict[str, Any]:
    """Return the pairs, their transitions and their costs."""
    owner, taken, ends = array("i"), array("i"), array("q", [0])
    chances, targets = array("d"), array("i")
    costs: dict[str, tuple[array[int], array[float]]] = {}
    """By name: the pairs of outcomes, and probability times cost."""
    pair, number = 0, known.number
    for s, state in enumerate(known.states):  # it grows meanwhile
        for a in offer(state):
            action = offer.actions[a]
            result, of_pair = _result(step, state, action)
            total = 0.0
            try:
                for outcome in result:
                    p, target = outcome[0], outcome[1]
                    if not 0 <= p <= math.inf:
                        raise ValueError
                    if p == 0:
                        continue
                    t = number.get(target)
                    targets.append(known.add(target) if t is None else t)
                    chances.append(p)
                    total += p
                    if len(outcome) > 2:
                        for name, cost in outcome[2].items():
                            _noted(costs, name, pair, p * cost)
                        if len(outcome) > 3:
                            raise ValueError
                for name, cost in of_pair.items():
                    _noted(costs, name, pair, cost)
            except (TypeError, ValueError, AttributeError, LookupError):
                _explain(state, action, result, of_pair)
                raise
            if not abs(total - 1) <= SUM_TOLERANCE:
                raise ValueError(_unbalanced(state, action, total))
            owner.append(s)
            taken.append(a)
            ends.append(len(targets))
            pair += 1
        tell(s + 1, len(known.states))
    if not costs:
        raise ValueError(
            'step gave no costs; return (probability, next_state, {"time": 1.0}) or (list, {"time": 1.0}), with at '
            "least one cost by name"
        )
    P = sp.csr_array((np.array(chances), np.array(targets), np.array(ends)), shape=(pair, len(known.states)))
    P.sum_duplicates()
    return {
        "state": np.array(owner),
        "action": np.array(taken),
        "transitions": frozen(P),
        "costs": {
            name: np.bincount(np.array(where, dtype=np.int64), np.array(amounts), minlength=pair)
            for name, (where, amounts) in costs.items()
        },
        "actions": _names("actions", offer.actions),
    }


def _result(step: Callable[[Any, Any], Any], state: Any, action: Any) -> tuple[Sequence[Any], Mapping[str, float]]:
    """Ask for a step; return its outcomes, and the costs of the pair."""
    try:
        result = step(state, action)
        of_pair: Mapping[str, float] = {}
        if isinstance(result, (tuple, list)) and len(result) == 2 and isinstance(result[1], Mapping):
            result, of_pair = result
        if not isinstance(result, (list, tuple)) and isinstance(result, Iterable) and not isinstance(result, Mapping):
            result = list(result)
    except Exception as error:
        _note(error, f"step({_named(state)}, {_named(action)})")
        raise
    if result is None or (isinstance(result, (list, tuple)) and not result):
        raise ValueError(
            f"step returned nothing for {_pair(state, action)}; where a state does not offer an action, leave it out "
            "of actions"
        )
    if not isinstance(result, (list, tuple)) or isinstance(result[0], Real):
        raise ValueError(f"step returned {_short(result)} for {_pair(state, action)}; {EXPECTED}")
    return result, of_pair


def _noted(costs: dict[str, tuple[array[int], array[float]]], name: str, pair: int, amount: float) -> None:
    known = costs.get(name)
    if known is None:
        if not isinstance(name, str) or not name:
            raise ValueError
        known = costs[name] = array("q"), array("d")
    known[0].append(pair)
    known[1].append(amount)


def _explain(state: Any, action: Any, result: Sequence[Any], of_pair: Mapping[str, Any]) -> None:
    """Raise what is wrong with the outcomes of a step, where it is plain."""
    where = f"of {_pair(state, action)}"
    for outcome in result:
        if not isinstance(outcome, Sequence) or isinstance(outcome, str) or len(outcome) not in (2, 3):
            raise ValueError(f"step returned {_short(outcome)} among the outcomes {where}; {EXPECTED}") from None
        p, target = outcome[:2]
        if not _is_probability(p):
            raise ValueError(
                f"step gave the probability {_short(p)} to an outcome {where}; give a number between 0 and 1"
            ) from None
        try:
            hash(target)
        except TypeError:
            raise ValueError(
                f"the next state {_short(target)} {where} is a {type(target).__name__}, which cannot be hashed; use "
                "tuples in place of lists and arrays, and frozensets in place of sets"
            ) from None
        _explain_costs(outcome[2] if len(outcome) == 3 else {}, where)
    _explain_costs(of_pair, where)


def _explain_costs(costs: Any, where: str) -> None:
    if not isinstance(costs, Mapping):
        raise ValueError(f'the costs {where} are {_short(costs)}; give them by name, as in {{"time": 1.0}}') from None
    for name, cost in costs.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"a cost {where} has the name {name!r}; it must be a non-empty string") from None
        if not isinstance(cost, Real):
            raise ValueError(f"cost {name!r} {where} is {_short(cost)}; it must be a number") from None


def _unbalanced(state: Any, action: Any, total: float) -> str:
    return (
        f"the probabilities of {_pair(state, action)} sum to {total:.10g}, not 1; add what is missing as an outcome, "
        "or divide them by their sum"
    )


def _is_probability(p: Any) -> bool:
    return isinstance(p, Real) and not isinstance(p, bool) and 0 <= float(p) <= 1


def _read_start(start: Any) -> dict[Any, float]:
    """Return the first states with their probabilities."""
    if isinstance(start, Mapping):
        first = {state: p for state, p in start.items() if not isinstance(p, Real) or p != 0}
        for state, p in first.items():
            if not _is_probability(p):
                raise ValueError(f"start gives state {_named(state)} {_short(p)}; give a probability, between 0 and 1")
        if not abs(sum(first.values()) - 1) <= SUM_TOLERANCE:
            raise ValueError(f"the probabilities of start sum to {sum(first.values()):.10g}, not 1")
        return first
    try:
        return {start: 1.0}
    except TypeError:
        raise ValueError(
            f"start is {_short(start)}, a {type(start).__name__}, which cannot be hashed; give one state, such as a "
            "tuple, or a mapping of states to probabilities"
        ) from None


def _names(what: str, values: Sequence[Any]) -> list[str]:
    """Return ``str`` of each, and ``repr`` where two would have the same name."""
    names = [value if type(value) is str else str(value) for value in values]
    if len(set(names)) < len(names):
        often = Counter(names)
        names = [repr(value) if often[name] > 1 else name for name, value in zip(names, values, strict=True)]
        twice, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise ValueError(
                printable(
                    f"{count} different {what} have the name {twice!r}; names are what str gives, or repr where that "
                    "is the same: give the class a __repr__ that tells them apart"
                )
            )
    return names


def _note(error: Exception, where: str) -> None:
    """Note on what a user's function raises how it was called."""
    if hasattr(error, "add_note"):  # since Python 3.11
        error.add_note(f"in {where}")


def _pair(state: Any, action: Any) -> str:
    return f"state {_named(state)}, action {_named(action)}"


def _named(value: Any) -> str:
    return printable(str(value))


def _short(value: Any) -> str:
    text = printable(repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def _told(progress: bool) -> Iterator[Tell]:
    """Tell a terminal, or else the log, how far the exploration is, once a second has passed."""
    due = time.perf_counter() + WAIT
    if not progress:
        yield lambda explored, known: None
        return
    status: Any = None
    terminal: Any = None

    def tell(explored: int, known: int) -> None:
        nonlocal due, status, terminal
        if time.perf_counter() < due:
            return
        if terminal is None:
            from rich.console import Console

            terminal = Console(stderr=True)
        said = f"explored {explored} of {known} known states"
        if not terminal.is_terminal:
            logging.getLogger("cvxmdp").info(said)
            due = time.perf_counter() + WAIT
            return
        if status is None:
            status = terminal.status(said)
            status.start()
        status.update(said)
        due = time.perf_counter() + WAIT / 10

    try:
        yield tell
    finally:
        if status is not None:
            status.stop()
