"""The unified Markov binary format of PRISM and Storm, ``.umb``.

A file is a tar archive, packed or not, with an ``index.json`` and arrays of little-endian numbers.  Markov decision
processes and chains in discrete time are read, with double-precision numbers.

- Each reward becomes a cost of the same name and sign; rewards of branches are averaged.  A file without rewards gets
  the cost ``"cost"``, zero everywhere.
- Atomic propositions become labels.
- States are named after the values of their variables, ``"x=0,b=true"``, and have numbers where the file has none.
- :mod:`cvxmdp.io.choices` says what becomes of choices without a name of their own and of states without a choice.

Two things that the format has no place for are written as members in a folder ``cvxmdp``, which other programs pass
over: names of states that are not values of variables, and a distribution of the first state that is not even.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.io.choices import (
    Choices,
    averaged,
    distinct,
    state_names,
)
from cvxmdp.io.files import SMALL_HEADER, Path, blaming, open_to_read
from cvxmdp.io.tar import Archive, unpacking
from cvxmdp.io.write_umb import FIRST, NAMES, VERSION
from cvxmdp.io.write_umb import write as write
from cvxmdp.mdp import MDP, Indices
from cvxmdp.names import printable
from cvxmdp.reading import check_discount

CHUNK = 2**16
"""States whose names are made at once."""
Members = dict[str, npt.NDArray[Any]]


def read(path: Path, discount: float, initial: Any = None) -> MDP:
    """Read a model; a first state that is given replaces the file's.

    Examples
    --------
    >>> import cvxmdp as cm, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "grid.umb"
    ...     cm.worlds.gridworld(size=3).save(path)
    ...     cm.load(path, discount=0.9)
    MDP(9 states, 36 pairs, costs: time, collision, discount 0.9)
    """
    discount = check_discount(discount)
    choices = read_choices(path, lambda states: (0, states))
    with blaming(path):
        mdp = choices.model(discount, initial)
    return mdp if initial is None else mdp.with_initial(initial)


def read_choices(path: Path, block: Callable[[int], tuple[int, int]]) -> Choices:
    """Read the states from ``begin`` up to ``end`` with their choices, where ``begin, end = block(states)``."""
    with open_to_read(path) as file:
        with unpacking(file) as archive:
            index, most = _index(archive), archive.most
        _check_promises(index, most)
        begin, end = block(index.states)
        return _choices(index, _members(file, index, begin, end), most, begin, end)


# ---------------------------------------------------------------------------------------------------- the index


class Annotation(NamedTuple):
    """A reward or an atomic proposition."""

    name: str
    folder: str
    applies_to: tuple[str, ...]


class Variable(NamedTuple):
    """A variable of the states: where its bits are, and what they mean."""

    name: str
    kind: str
    at: int
    size: int
    offset: int


class Index(NamedTuple):
    """What an index says, checked."""

    states: int
    choices: int
    branches: int
    actions: int
    rewards: list[Annotation]
    propositions: list[Annotation]
    variables: list[Variable] | None
    width: int
    """Bytes of a state's variables."""
    strings: int
    """How many strings there are among values of variables."""


def _index(archive: Archive) -> Index:
    """Read the index of an archive."""
    for name, size in archive:
        if name == "index.json":
            if size > SMALL_HEADER:
                raise ValueError(f"member 'index.json' has {size} bytes; expected at most {SMALL_HEADER}")
            try:
                content = json.loads(archive.read().tobytes().decode())
                return _checked(content)
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ValueError(f"member 'index.json' is not JSON: {error}") from None
            except ValueError as error:
                raise ValueError(f"member 'index.json': {error}") from None
    raise ValueError("there is no member 'index.json'; expected an archive in the format UMB")


def _checked(index: Any) -> Index:
    """Check what is needed of an index, and refuse what is no Markov decision process."""
    version = _get(index, "format-version", int)
    if version != VERSION:
        raise ValueError(f"the format has version {version}; version {VERSION} is read")
    system = _get(index, "transition-system", dict)
    time, players = _get(system, "time", str), _count(system, "#players")
    if time != "discrete":
        raise ValueError(f"time is {printable(time[:40])!r}; only models in discrete time are read")
    if players > 1:
        raise ValueError(f"it has {players} players; games are not read, only models of one player or none")
    if _count(system, "#observations"):
        raise ValueError("it has observations; partially observable models are not read")
    if "branch-probability-type" not in system:
        raise ValueError("it has no 'branch-probability-type'; models without probabilities are not read")
    _check_double(system["branch-probability-type"], "probabilities")
    annotations = _get(index, "annotations", dict, {})
    rewards = _annotations(annotations, "rewards", ("states", "choices", "branches"))
    propositions = _annotations(annotations, "aps", ("states",))
    states = _count(system, "#states")
    if not states:
        raise ValueError("'#states' is 0; a model needs a state")
    variables, width, strings = _variables(_get(index, "valuations", dict, {}).get("states"))
    return Index(
        states, _count(system, "#choices"), _count(system, "#branches"), _count(system, "#choice-actions"),
        rewards, propositions, variables, width, strings,
    )  # fmt: skip


def _get(content: Any, key: str, kind: type, default: Any = None) -> Any:
    if not isinstance(content, dict):
        raise ValueError(f"expected an object with {key!r}, not {_shown(content)}")
    value = content.get(key, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        said = {int: "a whole number", str: "a text", dict: "an object", list: "a list"}[kind]
        raise ValueError(f"{key!r} is {_shown(value)}; expected {said}" if key in content else f"{key!r} is missing")
    return value


def _count(content: Any, key: str) -> int:
    value: int = _get(content, key, int)
    if not 0 <= value < 2**62:
        raise ValueError(f"{key!r} is {_shown(value)}; expected a number of at least 0")
    return value


def _shown(value: Any) -> str:
    return printable(json.dumps(value)[:40])


def _check_double(kind: Any, what: str) -> None:
    name = _get(kind, "type", str)
    if name != "double" or kind.get("size", 64) != 64:
        raise ValueError(f"{what} are of type {printable(name[:40])!r}; only 'double' of 64 bits is read")


def _annotations(annotations: Any, group: str, places: Sequence[str]) -> list[Annotation]:
    found = []
    for key, content in _get(annotations, group, dict, {}).items():
        if not re.fullmatch(r"[0-9a-z_-]+", key):
            raise ValueError(f"{group!r} has the key {_shown(key)}; expected small letters, digits, '_' and '-'")
        applies_to = _get(content, "applies-to", list)
        if not applies_to or not all(place in places for place in applies_to):
            raise ValueError(f"{group} {key!r} apply to {_shown(applies_to)}; expected {' or '.join(places)}")
        if group == "rewards":
            _check_double(content.get("type"), f"rewards {key!r}")
        elif _get(content.get("type"), "type", str) != "bool":
            raise ValueError(f"{group} {key!r} are of type {_shown(content['type']['type'])}; expected 'bool'")
        if "probability-type" in content:
            raise ValueError(f"{group} {key!r} are random; only rewards with one value are read")
        name = _get(content, "alias", str, key)
        name = name if name or group == "aps" else key  # a cost needs a name
        found.append(Annotation(name, f"annotations/{group}/{key}", tuple(dict.fromkeys(applies_to))))
    names = [annotation.name for annotation in found]
    if len(set(names)) < len(names):
        raise ValueError(f"two of {group!r} have the same alias")
    return found


def _variables(valuations: Any) -> tuple[list[Variable] | None, int, int]:
    """Return the variables of states and how many bytes and strings they take; None where they give no names.

    They are there to name states, so what is not understood is not used.
    """
    if valuations is None:
        return None, 0, 0
    classes = _get(valuations, "classes", list)
    if len(classes) != 1:
        return None, 0, 0
    found: list[Variable] = []
    at, plain = 0, True
    for entry in _get(classes[0], "variables", list):
        if "padding" in _object(entry):
            at += _count(entry, "padding")
            continue
        type_ = _get(entry, "type", dict)
        kind = _get(type_, "type", str)
        size = _get(type_, "size", int, 1 if kind == "bool" else 64)
        offset = _get(entry, "offset", int, 0)
        plain &= (
            kind in ("bool", "int", "uint", "double", "string") and 1 <= size <= 64 and not entry.get("is-optional")
        )
        plain &= size == 64 or kind not in ("double", "string")
        found.append(Variable(_get(entry, "name", str), kind, at, size, offset))
        at += size
    strings = _count(valuations, "#strings") if "#strings" in valuations else 0
    return (found, at // 8, strings) if plain and found and at % 8 == 0 else (None, 0, 0)


def _object(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"expected an object, not {_shown(content)}")
    return content


# --------------------------------------------------------------------------------------------------- the arrays


STARTS = {"state-to-choices.bin": ("states", "choices"), "choice-to-branches.bin": ("choices", "branches")}
"""Where the choices of states begin, and the branches of choices."""


def _members(file: IO[bytes], index: Index, begin: int, end: int) -> Members:
    """Read of the arrays that are used what belongs to some states; each has the size that the index implies.

    Which choices and branches these are is known once the arrays that say so were read: what comes before them in the
    archive is read when it is passed a second time.
    """
    counts = {"states": index.states, "choices": index.choices, "branches": index.branches}
    spans = {"states": (begin, end)} if end - begin < index.states else {of: (0, n) for of, n in counts.items()}
    wanted = _wanted(index)
    members: Members = {}
    while wanted:
        present = set()
        with unpacking(file) as archive:
            for name, size in archive:
                if name not in wanted:
                    continue
                present.add(name)
                kind, of, count, below = wanted[name]
                expected = None if count is None else count * np.dtype(kind).itemsize
                if expected is not None and size != expected:
                    raise ValueError(f"member {name!r} has {size} bytes; its index says {expected}")
                if of is None:
                    members[name] = archive.read(kind, below)
                elif of in spans:
                    first, last = spans[of]
                    members[name] = archive.read(kind, below, first, last + (name in STARTS))
                    _follow(name, members[name], spans, counts)
                else:
                    continue
                del wanted[name]
        for name in [name for name in wanted if name not in present]:
            del wanted[name]
            if name in STARTS:
                _follow(name, None, spans, counts)
                first, last = spans[STARTS[name][0]]
                members[name] = np.arange(first, last + 1)
    if "branch-to-target.bin" not in members:
        raise ValueError("there is no member 'branch-to-target.bin'")
    return members


def _follow(name: str, starts: Indices | None, spans: dict[str, tuple[int, int]], counts: dict[str, int]) -> None:
    """Check where the choices of states, or the branches of choices, begin, and note which belong to the part."""
    if name not in STARTS:
        return
    of, to = STARTS[name]
    count, total, (first, last) = counts[of], counts[to], spans[of]
    if starts is None:
        if count != total:
            raise ValueError(
                f"there is no member {name!r}, so there should be as many of both, not {count} and {total}"
            )
        spans[to] = first, last
        return
    ends = (first > 0 or starts[0] == 0) and (last < count or starts[-1] == total)
    if not ends or np.any(starts[1:] < starts[:-1]):
        raise ValueError(f"member {name!r} must rise from 0 to {total}")
    spans[to] = int(starts[0]), int(starts[-1])


def _check_promises(index: Index, most: int) -> None:
    """Refuse an index that makes a small file ask for much memory."""
    if len(index.rewards) * index.choices * 8 > most:
        raise ValueError(f"member 'index.json' has {len(index.rewards)} rewards, too many for the size of the file")
    if index.states * sum(len(variable.name) for variable in index.variables or ()) > most:
        raise ValueError("member 'index.json' has names of variables that are too long for the size of the file")


Wanted = dict[str, tuple[str, str | None, int | None, int | None]]


def _wanted(index: Index) -> Wanted:
    """Return of each array that is used the type, what it is over, its length, and what its numbers are less than.

    What is over nothing is read whole.
    """
    states, choices, branches = index.states, index.choices, index.branches
    counts = {"states": states, "choices": choices, "branches": branches}
    truths = ("u1", None, -(-states // 64) * 8, None)
    wanted: Wanted = {
        "state-to-choices.bin": ("<u8", "states", states + 1, choices + 1),
        "choice-to-branches.bin": ("<u8", "choices", choices + 1, branches + 1),
        "branch-to-target.bin": ("<u8", "branches", branches, states),
        "branch-to-probability.bin": ("<f8", "branches", branches, None),
        "state-is-initial.bin": truths,
        FIRST: ("<f8", "states", states, None),
    }
    wanted |= _strings(NAMES, states)
    if index.actions:
        wanted["actions/choices/values.bin"] = ("<u4", "choices", choices, index.actions)
        wanted |= _strings("actions/choices", index.actions)
    for reward in index.rewards:
        for place in reward.applies_to:
            wanted[f"{reward.folder}/{place}/values.bin"] = ("<f8", place, counts[place], None)
    wanted |= {f"{label.folder}/states/values.bin": truths for label in index.propositions}
    if index.variables is not None:
        wanted["valuations/states/valuations.bin"] = ("u1", None, states * index.width, None)
        wanted |= _strings("valuations/states", index.strings)
    return wanted


def _strings(folder: str, count: int) -> Wanted:
    return {
        f"{folder}/string-mapping.bin": ("<u8", None, count + 1, None),
        f"{folder}/strings.bin": ("u1", None, None, None),
    }


def _choices(index: Index, members: Members, most: int, begin: int, end: int) -> Choices:
    """Put the arrays together, after checking that they fit; labels may take so many bytes."""
    starts, indptr = (members.pop(name) for name in STARTS)
    starts, indptr = starts - starts[0], indptr - indptr[0]
    targets = members.pop("branch-to-target.bin")
    probability = members.pop("branch-to-probability.bin", None)
    probability = np.ones(targets.size) if probability is None else probability
    costs, state_costs = {}, {}
    for reward in index.rewards:
        parts = {place: members.pop(f"{reward.folder}/{place}/values.bin", None) for place in reward.applies_to}
        cost = parts.get("choices")
        if (branches := parts.get("branches")) is not None:
            row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
            mean = averaged(row, probability, branches, np.diff(indptr))
            cost = mean if cost is None else cost + mean
        costs[reward.name] = np.zeros(indptr.size - 1) if cost is None else cost
        if (of_state := parts.get("states")) is not None:
            state_costs[reward.name] = of_state
    labels = {}
    for label in index.propositions:  # as numbers, which take 64 times the bytes of the file
        labels[label.name] = np.flatnonzero(_truths(members, f"{label.folder}/states/values.bin", index.states))
        if (most := most - labels[label.name].nbytes) < 0:
            raise ValueError(
                f"the labels up to {printable(label.name)!r} are of too many states for the size of the file"
            )
    chosen, first = _truths(members, "state-is-initial.bin", index.states), members.pop(FIRST, None)
    if first is None and chosen.any():
        first = chosen[begin:end] / np.count_nonzero(chosen)
    name, names = _action_names(index, members, indptr.size - 1)
    matrix = sp.csr_array((probability, targets, indptr), shape=(indptr.size - 1, index.states))
    return Choices(
        starts, matrix, name, names, costs, state_costs, _state_names(index, members), labels, first, begin
    )  # fmt: skip


def _truths(members: Members, name: str, count: int) -> npt.NDArray[np.bool_]:
    packed = members.pop(name, None)
    if packed is None:
        return np.zeros(count, bool)
    bits = np.unpackbits(packed, bitorder="little")
    if bits[count:].any():
        raise ValueError(f"member {name!r} has bits beyond the last of {count} states")
    return bits[:count].view(bool)


def _texts(members: Members, folder: str) -> list[str] | None:
    """Return the strings of a folder, or None where it has none."""
    starts, content = members.pop(f"{folder}/string-mapping.bin", None), members.pop(f"{folder}/strings.bin", None)
    if starts is None:
        return None
    length = 0 if content is None else content.size
    if starts[0] != 0 or starts[-1] != length or np.any(starts[1:] < starts[:-1]):
        raise ValueError(f"member '{folder}/string-mapping.bin' must rise from 0 to the {length} bytes of the strings")
    text = b"" if content is None else content.tobytes()
    ends = starts.tolist()
    try:
        return [text[a:b].decode() for a, b in pairwise(ends)]
    except UnicodeDecodeError as error:
        raise ValueError(f"member '{folder}/strings.bin' is not UTF-8: {error}") from None


def _action_names(index: Index, members: Members, choices: int) -> tuple[npt.NDArray[Any] | None, list[str]]:
    """Return which action each choice has, and the names of actions; None where none has a name."""
    if not index.actions:
        return None, []
    name = members.pop("actions/choices/values.bin", None)
    name = np.zeros(choices, np.uint32) if name is None else name
    texts = _texts(members, "actions/choices")
    if texts is None:
        if index.actions > max(1000, 10 * index.choices):
            raise ValueError(f"member 'index.json' has {index.actions} actions, too many for {index.choices} choices")
        texts = [str(i) for i in range(index.actions)]
    names = list(dict.fromkeys(texts))
    if names == [""]:
        return None, []
    if len(names) < len(texts):
        place = {text: i for i, text in enumerate(names)}
        name = np.array([place[text] for text in texts])[name]
    return name, names


def _state_names(index: Index, members: Members) -> tuple[str, ...] | None:
    given = _texts(members, NAMES)
    if given is not None:
        return tuple(given)
    content = members.pop("valuations/states/valuations.bin", None)
    if index.variables is None or content is None:
        return None
    texts = _texts(members, "valuations/states") or []
    rows = content.reshape(index.states, index.width)
    names: list[str] = []
    for start in range(0, index.states, CHUNK):
        part = rows[start : start + CHUNK]
        columns = [_values(part, variable, texts) for variable in index.variables]
        names += state_names([variable.name for variable in index.variables], columns)
    return distinct(names)


def _values(rows: npt.NDArray[np.uint8], variable: Variable, texts: list[str]) -> list[Any]:
    """Return the values of a variable from the bits of states."""
    low, high = variable.at // 8, -(-(variable.at + variable.size) // 8)
    bits = np.unpackbits(rows[:, low:high], axis=1, bitorder="little")
    bits = bits[:, variable.at - 8 * low :][:, : variable.size]
    packed = np.zeros((len(rows), 8), np.uint8)
    packed[:, : -(-variable.size // 8)] = np.packbits(bits, axis=1, bitorder="little")
    whole = packed.view("<u8").ravel()
    if variable.kind == "bool":
        return ["true" if value else "false" for value in whole.tolist()]
    if variable.kind == "double":
        return [repr(value) for value in whole.view("<f8").tolist()]
    if variable.kind == "string":
        if whole.max() >= len(texts):
            raise ValueError(f"member 'valuations/states/valuations.bin' refers to string {whole.max()}")
        return [texts[i] for i in whole.tolist()]
    values = whole.tolist()
    if variable.kind == "int":
        half = 2 ** (variable.size - 1)
        values = [value - 2 * half if value >= half else value for value in values]
    return [value + variable.offset for value in values] if variable.offset else values
