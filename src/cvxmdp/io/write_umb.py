"""Writing of models in the unified Markov binary format, ``.umb``; :mod:`cvxmdp.io.umb` says what is in a file."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvxmdp.io.choices import check_labels, first_states, transitions_of, unnumbered, variables_of
from cvxmdp.io.files import GROWTH, SMALL, Path, write_atomically
from cvxmdp.io.tar import BLOCK
from cvxmdp.mdp import MDP, Indices
from cvxmdp.names import Numbers

VERSION = 1
"""The version of the format."""
NAMES, FIRST = "cvxmdp/states", "cvxmdp/initial.bin"
"""Where names of states and a distribution of the first one are."""
PACKING = 1
"""The level of gzip: higher ones take three times as long for a few percent."""


def write(mdp: MDP, path: Path) -> None:
    """Write a model, packed with gzip; costs become rewards of choices.  The discount is not written."""
    check_labels(mdp)
    P = transitions_of(mdp)
    first, all_alike = first_states(mdp)
    annotations: dict[str, dict[str, Any]] = {}
    system = {
        "time": "discrete",
        "#players": 1,
        "#states": mdp.num_states,
        "#initial-states": first.size,
        "#choices": mdp.num_pairs,
        "#choice-actions": 0,
        "#branches": P.nnz,
        "#branch-actions": 0,
        "#observations": 0,
        "branch-probability-type": {"type": "double", "size": 64},
    }
    index: dict[str, Any] = {
        "format-version": VERSION,
        "format-revision": 0,
        "file-data": {"tool": "cvxmdp"},
        "transition-system": system,
    }
    members: dict[str, Any] = {
        "state-to-choices.bin": np.searchsorted(mdp.state, np.arange(mdp.num_states + 1)).astype("<u8"),
        "state-is-initial.bin": _packed(first, mdp.num_states),
        "choice-to-branches.bin": P.indptr.astype("<u8"),
        "branch-to-target.bin": P.indices.astype("<u8"),
        "branch-to-probability.bin": P.data.astype("<f8", copy=False),
    }
    written = unnumbered(mdp)
    if written is not None:
        name, names = written
        system["#choice-actions"] = len(names)
        members["actions/choices/values.bin"] = name.astype("<u4")
        members |= _written_strings("actions/choices", names)
    for key, (label, states) in _keys(mdp.labels):
        members[f"annotations/aps/{key}/states/values.bin"] = _packed(states, mdp.num_states)
        annotations.setdefault("aps", {})[key] = _annotation(label, "states", {"type": "bool", "size": 1})
    for key, (cost, values) in _keys(mdp.costs):
        members[f"annotations/rewards/{key}/choices/values.bin"] = values.astype("<f8", copy=False)
        annotations.setdefault("rewards", {})[key] = _annotation(cost, "choices", {"type": "double", "size": 64})
    if not all_alike:
        members[FIRST] = mdp.initial.astype("<f8", copy=False)
    variables = variables_of(mdp.states)
    if variables is not None:
        description, members["valuations/states/valuations.bin"] = _valuations(variables)
        index["valuations"] = {"states": description}
    elif not isinstance(mdp.states, Numbers):
        members |= _written_strings(NAMES, mdp.states)
    if annotations:
        index["annotations"] = annotations
    members = {"index.json": np.frombuffer(json.dumps(index, indent=1).encode(), np.uint8)} | members
    with write_atomically(path) as file:
        with gzip.GzipFile("", "wb", PACKING, file, mtime=0) as stream:
            _write_tar(stream, members)
        if sum(array.nbytes + 2 * BLOCK for array in members.values()) > max(SMALL, GROWTH * file.tell()):
            # Almost nothing but zeros: a reader would take it for an archive made to fill its memory.
            file.seek(0)
            file.truncate()
            _write_tar(file, members)


def _write_tar(stream: Any, members: Mapping[str, Any]) -> None:
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, array in members.items():
            info = tarfile.TarInfo(name)
            info.size = array.nbytes
            archive.addfile(info, io.BytesIO(np.ascontiguousarray(array).data.cast("B")))


def _keys(named: Mapping[str, Any]) -> list[tuple[str, tuple[str, Any]]]:
    """Return a key for each name, of the few characters that the format allows in paths."""
    keys: dict[str, tuple[str, Any]] = {}
    for i, (name, content) in enumerate(named.items()):
        key = re.sub(r"[^0-9a-z_-]", "_", name.lower())[:40] or "_"
        keys[key if key not in keys else f"{key}-{i}"] = (name, content)
    return list(keys.items())


def _annotation(name: str, place: str, kind: dict[str, Any]) -> dict[str, Any]:
    return {"alias": _text(name), "applies-to": [place], "type": kind}


def _packed(states: Indices, count: int) -> npt.NDArray[np.uint8]:
    chosen = np.zeros(-(-count // 64) * 64, np.uint8)
    chosen[states] = 1
    return np.packbits(chosen, bitorder="little")


def _written_strings(folder: str, names: Sequence[str]) -> dict[str, Any]:
    texts = [_text(name).encode() for name in names]
    ends = np.concatenate(([0], np.cumsum([len(text) for text in texts]))).astype("<u8")
    content = np.frombuffer(b"".join(texts), np.uint8)
    return {f"{folder}/string-mapping.bin": ends, f"{folder}/strings.bin": content}


def _text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name {name!r} holds half of a character, which UTF-8 cannot write; rename it") from None
    return name


def _valuations(variables: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], npt.NDArray[np.uint8]]:
    """Return the description of variables, and the bits of their values in all states."""
    described: list[dict[str, Any]] = []
    bits = []
    for name, values in variables.items():
        if values[0] in ("true", "false"):
            described.append({"name": name, "type": {"type": "bool", "size": 1}})
            bits.append((np.array(values) == "true").astype(np.uint8)[:, None])
            continue
        whole = np.array(values, dtype=np.int64)
        low, high = int(whole.min()), int(whole.max())
        size = max((high - low).bit_length(), 1)
        kind = {"type": "uint", "size": size}
        described.append({"name": name, "type": kind, "lower": low, "upper": high, "offset": low})
        parts = (whole - low).astype("<u8")[:, None].view(np.uint8)
        bits.append(np.unpackbits(parts, axis=1, bitorder="little")[:, :size])
    used = sum(part.shape[1] for part in bits)
    if used % 8:
        described.append({"padding": -used % 8})
    rows = np.packbits(np.concatenate(bits, axis=1), axis=1, bitorder="little")
    return {"unique": True, "classes": [{"variables": described}]}, rows
