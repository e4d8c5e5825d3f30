"""Explicit files of PRISM: ``model.tra`` with transitions, and beside it what else is known of the model.

============================  ==================================================================================
file                          what it holds
============================  ==================================================================================
``model.tra``                 ``states choices transitions``, then lines ``state choice target probability action``;
                              for a Markov chain ``states transitions`` and lines ``state target probability``
``model.sta``                 variables ``(x,b)``, then lines ``0:(0,true)``: the state's name is ``"x=0,b=true"``
``model.lab``                 labels ``0="init" 1="goal"``, then lines ``0: 0 1``; "init" are the first states
``model.srew``                rewards of states: ``states entries``, then lines ``state reward``
``model.trew``                rewards of transitions: ``states choices entries``, then lines
                              ``state choice target reward``, averaged over the targets
============================  ==================================================================================

Several rewards are in ``model1.srew``, ``model2.srew`` and so on, with their names in comments.  Each becomes a cost of
the same name and sign; without any, the model gets the cost ``"cost"``, zero everywhere.  Without ``model.lab`` the
first state is state 0.  :mod:`cvxmdp.io.choices` says what becomes of choices without a name of their own and of states
without a choice.  The dialect of Storm, with ``mdp`` or ``dtmc`` instead of counts and ``#DECLARATION`` before labels,
is read, too.

Names that are no identifiers of PRISM are written as ones that are, and the true ones in comments,
``# name go_on "go on"``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.io.choices import (
    FIRST,
    Choices,
    averaged,
    distinct,
    even,
    state_names,
)
from cvxmdp.io.columns import Lines, Rows, decoded, read_rows, shown
from cvxmdp.io.files import GROWTH, SMALL, Path, blaming, file_name, open_to_read
from cvxmdp.io.write_prism import reward_files
from cvxmdp.io.write_prism import write as write
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.reading import SUM_TOLERANCE, check_discount

KINDS = {
    "CTMC": "continuous time", "CTMDP": "continuous time", "MA": "continuous time", "PTA": "continuous time",
    "POMDP": "partial observation", "POPTA": "partial observation", "SMG": "several players", "TSG": "several players",
    "STPG": "several players", "CSG": "several players", "LTS": "no probabilities", "IMDP": "intervals",
    "IDTMC": "intervals", "IPOMDP": "intervals",
}  # fmt: skip
"""Kinds of models that are not read, and why."""
MOST_STATES = 10
"""States for each transition: far more are a header that does not fit the file."""
NAMING = re.compile(rb'# name (\S+) (".*")')
"""The comment that gives a name that is no identifier."""


def read(path: Path, discount: float, initial: Any = None) -> MDP:
    """Read a model; a first state that is given replaces the files'.

    Examples
    --------
    >>> import cvxmdp as cm, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "grid.tra"
    ...     cm.worlds.gridworld(size=3).save(path)
    ...     print(sorted(file.name for file in pathlib.Path(folder).iterdir()))
    ...     cm.load(path, discount=0.9)
    ['grid.lab', 'grid.sta', 'grid.tra', 'grid1.srew', 'grid2.srew']
    MDP(9 states, 36 pairs, costs: time, collision, discount 0.9)
    """
    discount = check_discount(discount)
    with open_to_read(path) as file:
        choices, number, chain = _transitions(Lines(file))
    states = choices.starts.size - 1
    stem = os.path.splitext(file_name(path))[0]
    if os.path.lexists(stem + ".sta"):
        with open_to_read(stem + ".sta") as file:
            choices.states = _state_names(Lines(file), states)
    choices.first = even(np.arange(states) == 0)
    if os.path.lexists(stem + ".lab"):
        with open_to_read(stem + ".lab") as file:
            labels = _labels(Lines(file), states)
        first = labels.pop(FIRST, None)
        choices.first = None if first is None else even(np.isin(np.arange(states), first))
        choices.labels = labels
    _read_rewards(stem, choices, number, chain)
    with blaming(path):
        mdp = choices.model(discount, initial)
    return mdp if initial is None else mdp.with_initial(initial)


# -------------------------------------------------------------------------------------------------- transitions


def _transitions(lines: Lines) -> tuple[Choices, Indices, bool]:
    """Return the model, the number of each choice within its state, and whether the model is a Markov chain."""
    comments, line = _head(lines, "numbers of states, choices and transitions")
    for comment in comments:
        found = re.fullmatch(rb"# Transitions \((\w+)\)", comment)
        if found and found[1].decode() not in ("MDP", "DTMC"):
            kind = found[1].decode()
            raise ValueError(f"it is a model of kind {kind}, with {KINDS.get(kind, 'other things')}; that is not read")
    words = line.split()
    counts = None
    if len(words) == 1 and words[0].lower() in (b"mdp", b"dtmc"):  # Storm's
        chain = words[0].lower() == b"dtmc"
    elif len(words) == 1 and words[0].decode(errors="replace").upper() in KINDS:
        kind = words[0].decode().upper()
        raise ValueError(f"it is a model of kind {kind}, with {KINDS[kind]}; that is not read")
    elif all(word.isdigit() and len(word) <= 15 for word in words) and len(words) in (2, 3, 4):
        if len(words) == 4:
            raise ValueError(
                "its first line has four numbers, as of a model with partial observation; that is not read"
            )
        counts, chain = [int(word) for word in words], len(words) == 2
    else:
        raise ValueError(
            f"line {lines.number} is {shown(line)}; expected numbers of states, choices and transitions, or of states "
            "and transitions for a Markov chain"
        )
    most = 2**31 if counts is None else max(counts[0], 1)
    limits = [most, most] if chain else [most, most if counts is None else max(counts[1], 1), most]
    what = "state, target, probability" if chain else "state, choice, target, probability and perhaps an action"
    rows = read_rows(lines, limits, what, named=True)
    choices, number = _assembled(rows, counts, chain, _true_names(comments))
    return choices, number, chain


def _assembled(
    rows: Rows, counts: list[int] | None, chain: bool, true_names: dict[str, str]
) -> tuple[Choices, Indices]:
    """Make the model from the lines, sorted by state and choice."""
    entries = rows.number.size
    if counts is not None and counts[-1] != entries:
        raise ValueError(f"its first line says {counts[-1]} transitions; there are {entries}")
    if not entries:
        raise ValueError("it has no transitions; a model needs one")
    _sort(rows)
    state, target = rows.whole[0], rows.whole[-1]
    states = int(max(state.max(), target.max())) + 1 if counts is None else counts[0]
    if states > MOST_STATES * entries + 1000:
        raise ValueError(f"it has {states} states and only {entries} transitions; nearly all states would be dead ends")
    wrong = np.flatnonzero((rows.number < 0) | (rows.number > 1 + SUM_TOLERANCE))
    if wrong.size:
        s, t, p = state[wrong[0]], target[wrong[0]], rows.number[wrong[0]]
        rates = "; rates of continuous time are not read" if p > 1 else ""
        raise ValueError(f"from state {s} to {t} it has {p:g}, not a probability{rates}")
    heads = _heads(rows)
    if counts is not None and not chain and counts[1] != heads.size:
        raise ValueError(f"its first line says {counts[1]} choices; there are {heads.size}")
    indptr = np.append(heads, entries)
    starts = np.searchsorted(state[heads], np.arange(states + 1))
    matrix = sp.csr_array((rows.number, target, indptr), shape=(heads.size, states))
    number = np.zeros(heads.size, np.int64) if chain else rows.whole[1][heads].astype(np.int64)
    if rows.name is None or chain:
        return Choices(starts, matrix), number
    listed = {"": ""} if "-" not in true_names else {}
    listed |= {("" if token == "-" else token): name for token, name in true_names.items()}
    for token in rows.names:
        listed.setdefault(token, token)
    names = list(dict.fromkeys(listed.values()))
    place = {name: i for i, name in enumerate(names)}
    of_token = np.array([place[listed[token]] for token in rows.names])
    return Choices(starts, matrix, of_token[rows.name[heads]], names), number


def _sort(rows: Rows) -> None:
    """Sort lines by state and choice, where they are not."""
    *keys, _ = rows.whole
    ordered = np.ones(rows.number.size - 1, bool)
    for key in reversed(keys):
        ordered = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & ordered)
    if not ordered.all():
        order = np.lexsort(keys[::-1])
        for column in (*rows.whole, rows.number, *([] if rows.name is None else [rows.name])):
            column[:] = column[order]


def _heads(rows: Rows) -> Indices:
    """Return the first line of each choice."""
    new = np.zeros(rows.number.size, bool)
    new[0] = True
    for key in rows.whole[:-1]:
        new[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(new)


def _head(lines: Lines, what: str) -> tuple[list[bytes], bytes]:
    """Return the comments at the beginning of a file, and the first line after them."""
    comments = []
    while (line := lines.take()) is not None:
        if line.startswith(b"#") and line != b"#DECLARATION":
            comments.append(line)
        elif line:
            return comments, line
    raise ValueError(f"it is empty; expected {what}")


def _true_names(comments: Iterable[bytes]) -> dict[str, str]:
    """Return the names that comments give."""
    names = {}
    for comment in comments:
        if found := NAMING.fullmatch(comment):
            try:
                name = json.loads(found[2])
                names[found[1].decode()] = name
            except ValueError:
                raise ValueError(f"the comment {shown(comment)} should end in a text as in JSON") from None
    return names


# --------------------------------------------------------------------------------------------- states and labels


def _state_names(lines: Lines, states: int) -> tuple[str, ...] | None:
    """Return the names of states."""
    comments, line = _head(lines, "variables, such as (x,y)")
    if not re.fullmatch(rb"\(.+\)", line):
        raise ValueError(f"line {lines.number} is {shown(line)}; expected variables, such as (x,y)")
    if states * len(line) > max(SMALL, GROWTH * lines.size):
        raise ValueError(f"line {lines.number} has names of variables that are too long for the size of the file")
    variables = decoded(line[1:-1], lines.number).split(",")
    rows: list[Any] = [None] * states
    for line in lines.content():
        found = re.fullmatch(rb"(\d{1,18}):\((.*)\)", line)
        values = decoded(found[2], lines.number).split(",") if found else []
        if not found or len(values) != len(variables):
            raise ValueError(
                f"line {lines.number} is {shown(line)}; expected a state and {len(variables)} values, such as "
                f"0:({','.join('0' * min(len(variables), 5))})"
            )
        rows[_state(found[1], lines, rows)] = values
    if None in rows:
        raise ValueError(f"state {rows.index(None)} is missing; the transitions are of {states} states")
    true_names = _true_names(comments)
    if true_names:
        missing = next((i for i in range(states) if str(i) not in true_names), None)
        if missing is not None:
            raise ValueError(f"state {missing} has no name among the comments, and others have")
        return tuple(true_names[str(i)] for i in range(states))
    return distinct(state_names(variables, list(zip(*rows, strict=True))))


def _state(word: bytes, lines: Lines, seen: list[Any] | None = None, states: int = 0) -> int:
    """Return the number of a state from a line."""
    states = states if seen is None else len(seen)
    if not word.isdigit() or len(word) > 18 or int(word) >= states:
        raise ValueError(f"line {lines.number} begins with {shown(word)}; expected a state from 0 to {states - 1}")
    state = int(word)
    if seen is not None and seen[state] is not None:
        raise ValueError(f"line {lines.number} is the second of state {state}; expected one")
    return state


def _labels(lines: Lines, states: int) -> dict[str, Indices]:
    """Return the states of each label."""
    comments, line = _head(lines, 'labels, such as 0="init"')
    storm = line == b"#DECLARATION"
    if storm:
        names = [decoded(word, lines.number) for word in (lines.take() or b"").split()]
        if lines.take() != b"#END":
            raise ValueError(f"line {lines.number} should be #END, after a line of labels")
    else:
        found = re.findall(rb'(\d+)="([^"]*)"', line)
        names = [decoded(name, lines.number) for _, name in found]
        counted = all(number == str(i).encode() for i, (number, _) in enumerate(found))
        if not counted or re.sub(rb'\d+="[^"]*"', b"", line).strip():
            raise ValueError(f'line {lines.number} is {shown(line)}; expected labels, such as 0="init" 1="deadlock"')
    if len(set(names)) < len(names):
        raise ValueError(f"line {lines.number} gives two labels the same name")
    words = {(name if storm else str(i)).encode(): i for i, name in enumerate(names)}
    members: list[list[int]] = [[] for _ in names]
    for line in lines.content():
        head, *rest = line.replace(b":", b" ", 0 if storm else 1).split()
        state = _state(head, lines, states=states)
        for word in rest:
            if word not in words:
                raise ValueError(f"line {lines.number} has the label {shown(word)}; expected one of line 1")
            members[words[word]].append(state)
    true_names = _true_names(comments)
    return {
        true_names.get(name, name): np.unique(np.array(states_of, np.int64))
        for name, states_of in zip(names, members, strict=True)
    }


# ------------------------------------------------------------------------------------------------------ rewards


def _read_rewards(stem: str, choices: Choices, number: Indices, chain: bool) -> None:
    """Read all rewards into the costs of choices and of states."""
    called: dict[int, str] = {}
    for file in reward_files(stem):
        with open_to_read(file.path) as content:
            lines = Lines(content)
            if file.kind == ".srew":
                name, rewards = _state_rewards(lines, choices.starts.size - 1)
            else:
                name, rewards = _transition_rewards(lines, choices, number, chain)
            name = name or f"reward{file.number or ''}"
            if called.setdefault(file.number, name) != name:
                raise ValueError(f"it is called {name!r}, and the state rewards {called[file.number]!r}")
            costs = choices.state_costs if file.kind == ".srew" else choices.costs
            if name in costs:
                raise ValueError(f"two reward structures are called {name!r}; names must differ")
            costs[name] = rewards
    choices.costs = {name: choices.costs.get(name, np.zeros(number.size)) for name in called.values()}


def _reward_head(lines: Lines, kind: str, is_header: Callable[[list[bytes]], bool]) -> tuple[str, list[bytes]]:
    """Take the head of a file with rewards, and return their name, or nothing, and its counts, where it has some."""
    comments, line = _head(lines, "a number of states and more")
    name = ""
    for comment in comments:
        if found := re.fullmatch(rb'# Reward structure "(.*)"', comment):
            name = decoded(found[1], lines.number)
        if comment in (b"# State rewards", b"# Transition rewards") and comment != f"# {kind} rewards".encode():
            raise ValueError(f"it says {comment[2:].decode()!r}; expected {kind} rewards")
    counts = line.split()
    if not is_header(counts):
        lines.put_back(line)  # Storm's files have none
        counts = []
    return _true_names(comments).get(name, name), counts


def _check_counts(counts: list[bytes], states: int, rewards: int) -> None:
    """Check what the head of a file says, if it says something, so that a file that was cut is not taken for whole."""
    if counts and (counts[0], counts[-1]) != (b"%d" % states, b"%d" % rewards):
        raise ValueError(
            f"its first line says {shown(b' '.join(counts))}; there are {states} states and {rewards} rewards"
        )


def _state_rewards(lines: Lines, states: int) -> tuple[str, Array]:
    # No line begins with this number: states are numbered from 0.
    name, counts = _reward_head(lines, "State", lambda words: len(words) == 2 and words[0] == str(states).encode())
    rows = read_rows(lines, [states], "state, reward")
    state = rows.whole[0]
    _check_counts(counts, states, state.size)
    twice = np.flatnonzero(np.bincount(state, minlength=1) > 1)
    if twice.size:
        raise ValueError(f"state {twice[0]} has two rewards; expected one")
    rewards = np.zeros(states)
    rewards[state] = rows.number
    return name, rewards


def _transition_rewards(lines: Lines, choices: Choices, number: Indices, chain: bool) -> tuple[str, Array]:
    count, states = choices.transitions.shape
    name, counts = _reward_head(lines, "Transition", lambda words: len(words) == (2 if chain else 3))
    if chain:
        rows = read_rows(lines, [states, states], "state, target, reward")
        choice = np.zeros(rows.number.size, np.int64)
    else:
        most = int(number.max()) + 1
        rows = read_rows(lines, [states, most, states], "state, choice, target, reward")
        choice = rows.whole[1]
    _check_counts(counts, states, choice.size)
    width = int(number.max()) + 1
    state = np.repeat(np.arange(states), np.diff(choices.starts))
    known, wanted = state * width + number, rows.whole[0].astype(np.int64) * width + choice
    row = np.minimum(np.searchsorted(known, wanted), count - 1)
    target = rows.whole[-1]
    P = choices.transitions
    P.sum_duplicates()
    probability = np.zeros(rows.number.size)
    if rows.number.size:
        probability = np.asarray(P[row, target]).ravel()
    wrong = np.flatnonzero((known[row] != wanted) | (probability == 0))
    if wrong.size:
        i = wrong[0]
        which = "" if chain else f", choice {choice[i]},"
        raise ValueError(f"there is no transition from state {rows.whole[0][i]}{which} to {target[i]} to be rewarded")
    key = np.sort(row * states + target)
    twice = np.flatnonzero(key[1:] == key[:-1])
    if twice.size:
        i, t = divmod(int(key[twice[0]]), states)
        raise ValueError(
            f"the transition from state {state[i]}, choice {number[i]}, to {t} has two rewards; expected one"
        )
    return name, averaged(row, probability, rows.number, np.diff(P.indptr))
