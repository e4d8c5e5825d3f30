"""Models as PRISM and Storm hold them: states with numbered choices, whose action names may repeat or be missing.

A choice becomes a pair.  Its action is the name written on it; a further choice of the same name in a state gets the
name with ``#2``, ``#3`` and so on behind it, and choices without a name are ``#1``, ``#2``, ...  Where no choice of a
model has a name, actions are the numbers 0, 1, ...  Writing takes these endings away again.

A state without a choice becomes absorbing: it gets one that leads back to it, without a name, at the cost of the state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.names import Numbers
from cvxmdp.reading import handed_over

NO_REWARD = "cost"
"""The cost of a model that comes without rewards: zero everywhere, because a model needs one."""
FIRST = "init"
"""What PRISM and Storm call the set of first states, so that no label can have this name."""
AGAIN = 2**32
"""More choices than a state has."""


@dataclass
class Choices:
    """A model in the form in which PRISM and Storm hold it."""

    starts: Indices
    """The first choice of each state, and the number of choices."""
    transitions: Any
    """A CSR array with a row for each choice."""
    name: npt.NDArray[Any] | None = None
    """Which of ``names`` each choice has; None where none has one."""
    names: Sequence[str] = ()
    """Names of actions, with ``""`` for none."""
    costs: dict[str, Array] = field(default_factory=dict)
    """For each choice."""
    state_costs: dict[str, Array] = field(default_factory=dict)
    """For each state, to be added to those of its choices."""
    states: Sequence[str] | None = None
    """Names of states."""
    labels: dict[str, Indices] = field(default_factory=dict)
    """Sets of states."""
    first: Array | None = None
    """Distribution of the first state: what it gives these states."""
    begin: int = 0
    """The number of the first of these states, where they are a part of a model's."""

    def model(self, discount: float, initial: Any) -> MDP:
        """Return the model, its pairs sorted, where ``initial`` says whether another first state is to come."""
        return MDP.from_pairs(discount=discount, **self.pairs(self.written(initial is not None)))

    def written(self, started: bool) -> npt.NDArray[np.int64] | None:
        """Return which names the choices bear, and how often within a state; None where none has a name.

        Where the states are a part of a model's, what the other parts say is to be joined to it, for :meth:`pairs`.
        """
        if self.first is None and not started:
            raise ValueError('no state is initial; say in which the model starts, as in load(..., initial="a state")')
        self._close()
        return None if self.name is None else np.unique(repetitions(self._owner(), self.name))

    def pairs(self, written: npt.NDArray[np.int64] | None) -> dict[str, Any]:
        """Return the pairs, sorted, as arguments of :meth:`cvxmdp.MDP.from_pairs`; to be called once."""
        state: Any = self._owner()
        if self.name is None or written is None:
            number, actions = np.arange(state.size, dtype=state.dtype) - self.starts[state], None
        else:
            every, actions = action_names(written, self.names)
            number = np.searchsorted(every, repetitions(state, self.name))
        costs = {name: self._cost(name, state) for name in self._cost_names()}
        matrix = self.transitions
        matrix.sum_duplicates()
        further = (state[1:] == state[:-1]) & (number[1:] < number[:-1])
        if further.any():
            order = np.lexsort((number, state))
            number, matrix = number[order], matrix[order]
            costs = {name: cost[order] for name, cost in costs.items()}
        self.transitions = None  # it is large, and the model may hold another
        for array in (matrix, *costs.values()):
            handed_over(array)
        return {
            "state": state + self.begin,
            "action": number,
            "transitions": matrix,
            "costs": costs,
            "initial": self.first,
            "states": self.states,
            "actions": actions,
            "labels": self.labels,
        }

    def _owner(self) -> Any:
        """Return the state of each choice, counted from the first of these."""
        small = self.transitions.shape[0] <= np.iinfo(np.int32).max
        states = np.arange(self.starts.size - 1, dtype=np.int32 if small else np.int64)
        return np.repeat(states, np.diff(self.starts))

    def _close(self) -> None:
        """Give a choice to states that have none."""
        closed = np.flatnonzero(np.diff(self.starts) == 0)
        if not closed.size:
            return
        P, at = self.transitions, self.starts[closed]
        indptr = P.indptr.astype(np.int64)
        data, indices = np.insert(P.data, indptr[at], 1.0), np.insert(P.indices, indptr[at], self.begin + closed)
        lengths = np.insert(np.diff(indptr), at, 1)
        indptr = np.concatenate(([0], np.cumsum(lengths)))
        self.transitions = sp.csr_array((data, indices, indptr), shape=(lengths.size, P.shape[1]))
        self.costs = {name: np.insert(cost, at, 0.0) for name, cost in self.costs.items()}
        if self.name is not None:
            unnamed = list(self.names).index("") if "" in self.names else len(self.names)
            self.name = np.insert(self.name.astype(np.int64), at, unnamed)
        self.starts = self.starts + np.concatenate(([0], np.cumsum(np.diff(self.starts) == 0)))

    def _cost_names(self) -> list[str]:
        return list(dict.fromkeys([*self.costs, *self.state_costs])) or [NO_REWARD]

    def _cost(self, name: str, state: Indices) -> Array:
        of_choice, of_state = self.costs.get(name), self.state_costs.get(name)
        if of_state is None:
            return np.zeros(state.size) if of_choice is None else of_choice
        return of_state[state] if of_choice is None else of_choice + of_state[state]


def even(chosen: npt.NDArray[np.bool_]) -> Array | None:
    """Return the distribution in which all chosen states are equally likely; None where none is chosen."""
    count = np.count_nonzero(chosen)
    return chosen / count if count else None


def numbered(state: Indices, name: npt.NDArray[Any], names: Sequence[str]) -> tuple[Indices, tuple[str, ...]]:
    """Return the number of each choice's action, and the names of all actions, none of which a state has twice.

    Examples
    --------
    >>> numbered(np.array([0, 0, 0, 1, 1]), np.array([1, 1, 2, 0, 0]), ["", "go", "wait"])
    (array([2, 3, 4, 0, 1]), ('#1', '#2', 'go', 'go#2', 'wait'))
    """
    codes = repetitions(state, name)
    every, actions = action_names(np.unique(codes), names)
    return np.searchsorted(every, codes), actions


def repetitions(state: Indices, name: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return, as one number for each choice, the name it bears and how many before it bear the same in its state."""
    order = np.lexsort((name, state))
    s, a = state[order], name[order].astype(np.int64)
    new = np.concatenate((np.ones(min(s.size, 1), bool), (s[1:] != s[:-1]) | (a[1:] != a[:-1])))
    place = np.arange(s.size)
    again = np.empty(s.size, np.int64)
    again[order] = place - place[new][np.cumsum(new) - 1]
    return name.astype(np.int64) * AGAIN + again


def action_names(written: npt.NDArray[np.int64], names: Sequence[str]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return all actions as :func:`repetitions` numbers them, and their names, where ``written`` are those that occur.

    A name that no choice bears is an action, too; a number beyond the last name stands for none.
    """
    listed = np.array([i * AGAIN for i, text in enumerate(names) if text], np.int64)
    every = np.union1d(written, listed)
    taken = set(names)
    actions = []
    for code in every.tolist():
        i, k = divmod(code, AGAIN)
        text = names[i] if i < len(names) else ""
        action = text
        if k or not text:
            action = f"{text}#{k + 1}"
            while action in taken:  # a name that was written so
                action += "#"
            taken.add(action)
        actions.append(action)
    return every, tuple(actions)


def unnumbered(mdp: MDP) -> tuple[Indices, list[str]] | None:
    """Return which name is written on each pair, and these names, such that :func:`numbered` gives the model's again.

    None where actions are the numbers 0, 1, ... in every state, and nothing need be written.
    """
    offered = np.concatenate(([0], np.flatnonzero(np.diff(mdp.state)) + 1))
    place = np.arange(mdp.num_pairs) - np.repeat(offered, np.diff(offered, append=mdp.num_pairs))
    if isinstance(mdp.actions, Numbers) and np.array_equal(place, mdp.action):
        return None
    written = [re.sub(r"#\d+\Z", "", action) for action in mdp.actions]
    names = {name: i for i, name in enumerate(dict.fromkeys(written))}
    of_action = np.array([names[name] for name in written])[mdp.action]
    number, actions = numbered(mdp.state, of_action, list(names))
    if actions == tuple(mdp.actions) and np.array_equal(number, mdp.action):
        return of_action, list(names)
    return mdp.action, list(mdp.actions)


def averaged(row: Indices, probability: Array, reward: Array, lengths: Indices) -> Array:
    """Average rewards of transitions over their probability, for each row, of which there are ``lengths``.

    Where all transitions of a row have the same reward, that is the average, without rounding.
    """
    count = np.bincount(row, minlength=lengths.size)
    first = np.zeros(lengths.size)
    first[row[::-1]] = reward[::-1]
    differs = np.bincount(row, weights=reward != first[row], minlength=lengths.size)
    mean = np.bincount(row, weights=probability * reward, minlength=lengths.size)
    return np.where((differs == 0) & (count == lengths), first, mean)


def transitions_of(mdp: MDP) -> Any:
    """Return a model's transitions as a CSR array without zeros."""
    P = sp.csr_array(mdp.transitions)
    if not P.data.all():
        P = P.copy()
        P.eliminate_zeros()
    return P


def first_states(mdp: MDP) -> tuple[Indices, bool]:
    """Return the states in which a model may start, and whether all of them are equally likely."""
    first = np.flatnonzero(mdp.initial)
    return first, bool(np.allclose(mdp.initial[first], 1 / first.size, rtol=1e-12, atol=0))


def check_labels(mdp: MDP) -> None:
    """Refuse labels that PRISM and Storm have another use for."""
    if FIRST in mdp.labels:
        raise ValueError(f"the model has a label {FIRST!r}, by which PRISM and Storm know the first states; rename it")


# ------------------------------------------------------------------------- names of states as values of variables


def state_names(variables: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[str]:
    """Return a name for each state from the values of variables in it.

    Examples
    --------
    >>> state_names(["x", "b"], [[0, 1], ["true", "false"]])
    ['x=0,b=true', 'x=1,b=false']
    """
    pattern = ",".join(f"{variable.replace('%', '%%')}=%s" for variable in variables)
    return [pattern % values for values in zip(*columns, strict=True)]


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return names that all differ, by ``#2``, ``#3``, ... behind those that occurred before."""
    if len(set(names)) == len(names):
        return tuple(names)
    taken, seen, result = set(names), dict[str, int](), []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        other = name if seen[name] == 1 else f"{name}#{seen[name]}"
        while other != name and other in taken:
            other += "#"
        taken.add(other)
        result.append(other)
    return tuple(result)


VARIABLE, VALUE = r"[A-Za-z_]\w*", r"-?(?:0|[1-9]\d{0,17})|true|false"
"""Names of variables, and values of them, that both programs take."""


def variables_of(names: Sequence[str]) -> Mapping[str, Sequence[str]] | None:
    """Return variables and their values from names that :func:`state_names` made, or None where others are among them.

    Examples
    --------
    >>> variables_of(["x=0,b=true", "x=1,b=false"])
    {'x': ('0', '1'), 'b': ('true', 'false')}
    >>> variables_of(["x=0", "home"]) is None
    True
    """
    if isinstance(names, Numbers):
        return None
    variables = [part.partition("=")[0] for part in names[0].split(",")]
    if len(set(variables)) < len(variables) or not all(re.fullmatch(VARIABLE, v, re.ASCII) for v in variables):
        return None
    pattern = re.compile(",".join(f"{variable}=({VALUE})" for variable in variables), re.ASCII)
    rows = []
    for name in names:
        found = pattern.fullmatch(name)
        if found is None:
            return None
        rows.append(found.groups())
    columns = dict(zip(variables, zip(*rows, strict=True), strict=True))
    truths = [{value in ("true", "false") for value in values} for values in columns.values()]
    if any(len(kinds) > 1 for kinds in truths) or any("-0" in values for values in columns.values()):
        return None
    return columns
