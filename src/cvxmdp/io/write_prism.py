"""Writing of explicit files of PRISM; :mod:`cvxmdp.io.prism` says what is in them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.io.choices import FIRST, check_labels, first_states, transitions_of, unnumbered, variables_of
from cvxmdp.io.files import Path, file_name, write_atomically
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.names import Numbers

KEYWORDS = frozenset(re.findall(r"\w+", """
    A bool clock const ctmc C double dtmc E endinit endinvariant endmodule endobservables endrewards endsystem false
    formula filter func F global G init invariant I int label max mdp min module X nondeterministic observable
    observables of Pmax Pmin P pomdp popta probabilistic prob pta rate rewards Rmax Rmin R S smg stochastic system true
    U W
"""))  # fmt: skip
"""Words that PRISM takes for no name."""
CHUNK = 2**16
"""Lines that are written at once."""


class RewardFile(NamedTuple):
    """A file with rewards."""

    path: str
    number: int
    """Which of several structures it belongs to; 0 where there is but one."""
    kind: str
    """The ending."""


def reward_files(stem: str) -> list[RewardFile]:
    """Return the files with rewards beside ``stem.tra``; not those of ``stem1.tra``, if there is one."""
    folder, name = os.path.split(stem)
    present = set(os.listdir(folder or "."))
    files = []
    for file in present:
        found = re.fullmatch(re.escape(name) + r"([1-9]\d{0,8})?(\.[st]rew)", file)
        if found and (not found[1] or f"{name}{found[1]}.tra" not in present):
            files.append(RewardFile(os.path.join(folder, file), int(found[1] or 0), found[2]))
    return sorted(files, key=lambda file: file[1:])


def write(mdp: MDP, path: Path) -> None:
    """Write a model as ``path`` and files beside it, costs as rewards of states or of transitions.

    The discount is not written.  The first state must be certain, or all that are possible equally likely.
    """
    check_labels(mdp)
    first, all_alike = first_states(mdp)
    if not all_alike:
        raise ValueError(
            f"the first state is one of {first.size} that are not equally likely, which these files cannot say; choose "
            "another by mdp.with_initial(...), or write .umb or .npz"
        )
    stem = os.path.splitext(file_name(path))[0]
    files: dict[str, Iterable[str]] = {stem + ".lab": _label_lines(mdp, first)}
    if not isinstance(mdp.states, Numbers):
        files[stem + ".sta"] = _state_lines(mdp.states)
    P = transitions_of(mdp)
    place = _places(mdp)
    for i, (token, (name, cost)) in enumerate(zip(_tokens(mdp.costs), mdp.costs.items(), strict=True), 1):
        of_state = _of_state(mdp, cost)
        ending = ".trew" if of_state is None else ".srew"
        head = [*_naming([token], [name]), f'# Reward structure "{token}"\n']
        lines = _trew_lines(mdp, P, place, cost) if of_state is None else _srew_lines(of_state)
        files[f"{stem}{i if len(mdp.costs) > 1 else ''}{ending}"] = _chained(head, lines)
    _check_beside(stem, files)
    files[file_name(path)] = _transition_lines(mdp, P, place)
    for name, content in files.items():
        with write_atomically(name) as file:
            file.writelines(line.encode() for line in content)


def _chained(head: list[str], lines: Iterator[str]) -> Iterator[str]:
    yield from head
    yield from lines


def _check_beside(stem: str, files: Iterable[str]) -> None:
    """Refuse to leave files beside the model that would be read as part of it."""
    others = [stem + ".sta", *(file.path for file in reward_files(stem))]
    for other in others:
        if os.path.exists(other) and other not in files:
            raise ValueError(
                f"{other!r} is there and would be read as part of the model; remove it or choose another name"
            )


def _places(mdp: MDP) -> Indices:
    """Return the number of each pair within its state."""
    starts = np.searchsorted(mdp.state, np.arange(mdp.num_states))
    return np.arange(mdp.num_pairs) - starts[mdp.state]


def _of_state(mdp: MDP, cost: Array) -> Array | None:
    """Return a cost by state, where it is the same for all actions."""
    by_state = np.zeros(mdp.num_states)
    by_state[mdp.state] = cost
    return by_state if np.array_equal(by_state[mdp.state], cost) else None


def _transition_lines(mdp: MDP, P: Any, place: Indices) -> Iterator[str]:
    written = unnumbered(mdp)
    tokens = [""] * mdp.num_pairs if written is None else []
    if written is not None:
        name, names = written
        token = _tokens(names)
        used = list(dict.fromkeys(name.tolist()))
        if token != names or used != list(range(len(names))):  # else a reader finds them in this order
            yield from _naming([word or "-" for word in token], names, every=True)
        tokens = [f" {token[i]}" if token[i] else "" for i in name.tolist()]
    yield f"{mdp.num_states} {mdp.num_pairs} {P.nnz}\n"
    for rows in _parts(P):
        state, choice = mdp.state[rows].tolist(), place[rows].tolist()
        target, probability = (part[_entries(P, rows)].tolist() for part in (P.indices, P.data))
        lengths = np.diff(P.indptr[rows.start : rows.stop + 1]).tolist()
        heads = [f"{s} {c} " for s, c in zip(state, choice, strict=True)]
        which = [i for i, n in enumerate(lengths) for _ in range(n)]
        ends = tokens[rows]
        yield "".join([f"{heads[i]}{t} {p!r}{ends[i]}\n" for i, t, p in zip(which, target, probability, strict=True)])


def _trew_lines(mdp: MDP, P: Any, place: Indices, cost: Array) -> Iterator[str]:
    lengths = np.diff(P.indptr)
    yield "# Transition rewards\n"
    yield f"{mdp.num_states} {mdp.num_pairs} {int(lengths[cost != 0].sum())}\n"
    for rows in _parts(P):
        state, choice, reward = mdp.state[rows].tolist(), place[rows].tolist(), cost[rows].tolist()
        targets = np.split(P.indices[_entries(P, rows)], np.cumsum(lengths[rows])[:-1])
        yield "".join(
            f"{s} {c} {t} {r!r}\n"
            for s, c, r, of_pair in zip(state, choice, reward, targets, strict=True)
            if r
            for t in of_pair.tolist()
        )


def _srew_lines(rewards: Array) -> Iterator[str]:
    states = np.flatnonzero(rewards)
    yield "# State rewards\n"
    yield f"{rewards.size} {states.size}\n"
    for start in range(0, states.size, CHUNK):
        part = states[start : start + CHUNK]
        yield "".join(f"{s} {r!r}\n" for s, r in zip(part.tolist(), rewards[part].tolist(), strict=True))


def _parts(P: Any) -> Iterator[slice]:
    """Yield rows, as many at once as have some number of entries."""
    start = 0
    while start < P.shape[0]:
        stop = max(int(np.searchsorted(P.indptr, P.indptr[start] + CHUNK, side="right")) - 1, start + 1)
        yield slice(start, stop)
        start = stop


def _entries(P: Any, rows: slice) -> slice:
    return slice(P.indptr[rows.start], P.indptr[rows.stop])


def _state_lines(names: Sequence[str]) -> Iterator[str]:
    variables = variables_of(names)
    if variables is None:
        numbers = [str(i) for i in range(len(names))]
        yield from _naming(numbers, names, every=True)
        variables = {"state": numbers}
    yield f"({','.join(variables)})\n"
    for i, values in enumerate(zip(*variables.values(), strict=True)):
        yield f"{i}:({','.join(values)})\n"


def _label_lines(mdp: MDP, first: Indices) -> Iterator[str]:
    tokens = _tokens(mdp.labels, {FIRST, ""})
    yield from _naming(tokens, list(mdp.labels))
    yield " ".join(f'{i}="{token}"' for i, token in enumerate([FIRST, *tokens])) + "\n"
    sets = [first, *mdp.labels.values()]
    state = np.concatenate(sets)
    label = np.repeat(np.arange(len(sets)), [len(states) for states in sets])
    order = np.lexsort((label, state))
    before = -1
    for s, i in zip(state[order].tolist(), label[order].tolist(), strict=True):
        yield f" {i}" if s == before else f"{'' if before < 0 else chr(10)}{s}: {i}"
        before = s
    yield "\n"


def _tokens(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return an identifier of PRISM for each name: the name itself, where it is one."""
    names = list(names)
    used = {*KEYWORDS, *taken, *names}
    tokens = []
    for name in names:
        token = name
        if name in KEYWORDS or name in taken or not re.fullmatch(r"([A-Za-z_]\w*)?", name, re.ASCII):
            token = word = "_" + re.sub(r"\W", "_", name[:40], flags=re.ASCII)
            i = 1
            while token in used:
                i += 1
                token = f"{word}_{i}"
            used.add(token)
        tokens.append(token)
    return tokens


def _naming(tokens: Sequence[str], names: Sequence[str], every: bool = False) -> Iterator[str]:
    """Yield the comments with true names."""
    for token, name in zip(tokens, names, strict=True):
        if every or token != name:
            yield f"# name {token} {json.dumps(name)}\n"
