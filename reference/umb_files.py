"""Files in the format UMB, made by hand: the example of its specification, others, and ones that are wrong."""

import io
import json
import struct
import tarfile

import numpy as np

INDEX = {
    "format-version": 1,
    "format-revision": 0,
    "transition-system": {
        "time": "discrete", "#players": 1, "#states": 4, "#initial-states": 1, "#choices": 5, "#choice-actions": 2,
        "#branches": 8, "#branch-actions": 0, "#observations": 0,
        "branch-probability-type": {"type": "double", "size": 64},
    },
    "annotations": {
        "aps": {"g": {"alias": "the goal", "applies-to": ["states"], "type": {"type": "bool", "size": 1}}},
        "rewards": {"r": {"alias": "R!", "applies-to": ["choices"], "type": {"type": "double"}}},
    },
    "valuations": {"states": {"unique": True, "classes": [{"variables": [
        {"name": "x", "type": {"type": "uint", "size": 2}}, {"name": "b", "type": {"type": "bool", "size": 1}},
        {"padding": 5},
    ]}]}},
}  # fmt: skip


def u8(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def f8(*numbers):
    return struct.pack(f"<{len(numbers)}d", *numbers)


def u4(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


MEMBERS = {
    "index.json": INDEX,
    "state-to-choices.bin": u8(0, 2, 3, 4, 5),
    "choice-to-branches.bin": u8(0, 2, 4, 6, 7, 8),
    "branch-to-probability.bin": f8(0.5, 0.5, 0.2, 0.8, 0.9, 0.1, 1.0, 1.0),
    "branch-to-target.bin": u8(1, 2, 2, 3, 0, 1, 2, 3),
    "state-is-initial.bin": u8(0b0001),
    "actions/choices/string-mapping.bin": u8(0, 1, 2),
    "actions/choices/strings.bin": b"ab",
    "actions/choices/values.bin": u4(0, 1, 0, 0, 0),
    "annotations/aps/g/states/values.bin": u8(0b1000),
    "annotations/rewards/r/choices/values.bin": f8(0, 1, 0, 0, 0),
    "valuations/states/valuations.bin": bytes([0b000, 0b001, 0b010, 0b110]),
}
"""The example of the specification."""


def tar(members, kind=tarfile.USTAR_FORMAT):
    """Return an archive; members are bytes, or what JSON holds."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def changed(index=None, system=None, **members):
    """Return the example with entries of its index or members replaced, and those that are None left out."""
    new = json.loads(json.dumps(INDEX)) | (index or {})
    if system:
        new["transition-system"] |= system
        new["transition-system"] = {k: v for k, v in new["transition-system"].items() if v is not None}
    return {k: v for k, v in (MEMBERS | {"index.json": new} | members).items() if v is not None}


def several(seed, states=11):
    """Return a file of a model with all kinds of rewards, whose states have up to three choices, of few names or none.

    A state without a choice becomes absorbing; the names of actions depend on the seed, too.
    """
    rng = np.random.default_rng(seed)
    offered = rng.integers(0, 4, states)
    choices = int(offered.sum())
    lengths = rng.integers(1, 4, choices)
    branches = int(lengths.sum())
    rows = [rng.dirichlet(np.ones(n)) for n in lengths]
    double = {"type": "double", "size": 64}
    places = ["states", "choices", "branches"]
    rewards = {"all": places, "some": [places[seed % 3]]}
    counts = dict(zip(places, (states, choices, branches), strict=True))
    members = {
        "index.json": {
            "format-version": 1,
            "transition-system": INDEX["transition-system"]
            | {"#states": states, "#choices": choices, "#branches": branches, "#choice-actions": 3},
            "annotations": {
                "aps": {"odd": {"applies-to": ["states"], "type": {"type": "bool", "size": 1}}},
                "rewards": {name: {"applies-to": some, "type": double} for name, some in rewards.items()},
            },
        },
        "state-is-initial.bin": u8(0b10110),
        "state-to-choices.bin": u8(*np.cumsum([0, *offered])),
        "choice-to-branches.bin": u8(*np.cumsum([0, *lengths])),
        "branch-to-probability.bin": f8(*np.concatenate(rows)),
        "branch-to-target.bin": u8(*np.concatenate([rng.choice(states, n, replace=False) for n in lengths])),
        "annotations/aps/odd/states/values.bin": u8(0b01010101010),
        "actions/choices/values.bin": u4(*rng.integers(0, 3, choices)),
        "actions/choices/string-mapping.bin": u8(0, 2, 2 if seed % 2 else 4, 6),
        "actions/choices/strings.bin": b"gostay"[:6],
    }
    for name, some in rewards.items():
        members |= {f"annotations/rewards/{name}/{of}/values.bin": f8(*rng.random(counts[of])) for of in some}
    return members


EXAMPLES = {
    "the specification's": MEMBERS,
    "one choice a state, one branch a choice": {
        "index.json": {"format-version": 1, "transition-system": INDEX["transition-system"] | {
            "#players": 0, "#states": 4, "#choices": 4, "#branches": 4, "#choice-actions": 0}},
        "branch-to-target.bin": u8(1, 2, 0, 3), "state-is-initial.bin": u8(6),
        "valuations/states/valuations.bin": b"1234",
    },
    **{f"several {seed}": several(seed) for seed in range(6)},
}  # fmt: skip


REFUSED = {
    "continuous time": (changed(system={"time": "stochastic"}), "only models in discrete time"),
    "Markov automata": (changed(system={"time": "urgent-stochastic"}), "only models in discrete time"),
    "games": (changed(system={"#players": 2}), "it has 2 players; games are not read"),
    "partial observation": (changed(system={"#observations": 3}), "partially observable models are not read"),
    "rationals": (changed(system={"branch-probability-type": {"type": "rational"}}), "'rational'; only 'double'"),
    "intervals": (changed(system={"branch-probability-type": {"type": "double-interval"}}), "'double-interval'; only"),
    "no probabilities": (changed(system={"branch-probability-type": None}), "models without probabilities"),
    "versions": (changed({"format-version": 2}), "version 2; version 1 is read"),
    "rational rewards": (
        changed({"annotations": {"rewards": {"r": {"applies-to": ["states"], "type": {"type": "rational"}}}}}),
        "rewards 'r' are of type 'rational'",
    ),
    "no system": (changed({"transition-system": []}), "'transition-system' is \\[\\]; expected an object"),
    "a missing count": (changed(system={"#states": None}), "'#states' is missing"),
    "a count of another kind": (changed(system={"#states": "4"}), "'#states' is \"4\"; expected a whole number"),
    "a negative count": (changed(system={"#choices": -1}), "'#choices' is -1"),
    "no states": (changed(system={"#states": 0}), "a model needs a state"),
    "a key that is a path": (
        changed({"annotations": {"aps": {"../x": {"applies-to": ["states"], "type": {"type": "bool"}}}}}),
        "expected small letters",
    ),
    "the wrong place": (
        changed({"annotations": {"aps": {"x": {"applies-to": ["choices"], "type": {"type": "bool"}}}}}),
        'apply to \\["choices"\\]; expected states',
    ),
    "two of one alias": (
        changed({"annotations": {"aps": {
            key: {"alias": "z", "applies-to": ["states"], "type": {"type": "bool"}} for key in "xy"}}}),
        "two of 'aps' have the same alias",
    ),
    "not JSON": (changed(**{"index.json": b"{"}), "'index.json' is not JSON"),
    "deep JSON": (changed(**{"index.json": b"[" * 100_000}), "'index.json' is not JSON"),
    "not UTF-8": (changed(**{"index.json": b"\xff\xfe"}), "'index.json' is not JSON"),
    "no index": (changed(**{"index.json": None}), "no member 'index.json'"),
    "no targets": (changed(**{"branch-to-target.bin": None}), "no member 'branch-to-target.bin'"),
    "an array that is too short": (
        changed(**{"branch-to-target.bin": u8(1, 2)}), "'branch-to-target.bin' has 16 bytes; its index says 64"
    ),
    "an unknown state": (
        changed(**{"branch-to-target.bin": u8(1, 2, 2, 3, 0, 9, 2, 3)}),
        "'branch-to-target.bin' holds 9 at 5; expected less than 4",
    ),
    "a state beyond 64 bits": (
        changed(**{"branch-to-target.bin": u8(1, 2, 2, 3, 0, 2**64 - 1, 2, 3)}), "holds 18446744073709551615 at 5"
    ),
    "starts that fall": (
        changed(**{"choice-to-branches.bin": u8(0, 4, 2, 6, 7, 8)}), "'choice-to-branches.bin' must rise from 0 to 8"
    ),
    "starts that end early": (
        changed(**{"state-to-choices.bin": u8(0, 2, 3, 4, 4)}), "'state-to-choices.bin' must rise from 0 to 5"
    ),
    "no starts where they are needed": (
        changed(**{"choice-to-branches.bin": None}), "as many of both, not 5 and 8"
    ),
    "bits beyond the last state": (
        changed(**{"state-is-initial.bin": u8(16)}), "'state-is-initial.bin' has bits beyond the last of 4"
    ),
    "an unknown action": (
        changed(**{"actions/choices/values.bin": u4(0, 2, 0, 0, 0)}), "'actions/choices/values.bin' holds 2 at 1"
    ),
    "strings that are not UTF-8": (changed(**{"actions/choices/strings.bin": b"a\xff"}), "strings.bin' is not UTF-8"),
    "strings that end early": (changed(**{"actions/choices/strings.bin": b"a"}), "string-mapping.bin' must rise"),
    "probabilities that do not sum to one": (
        changed(**{"branch-to-probability.bin": f8(0.5, 0.4, 0.2, 0.8, 0.9, 0.1, 1, 1)}),
        "the probabilities from state x=0,b=false, action a sum to 0.9, not 1",
    ),
    "probabilities that are no numbers": (
        changed(**{"branch-to-probability.bin": f8(0.5, float("nan"), 0.2, 0.8, 0.9, 0.1, 1, 1)}), "is nan"
    ),
    "infinite rewards": (
        changed(**{"annotations/rewards/r/choices/values.bin": f8(0, float("inf"), 0, 0, 0)}), "costs must be finite"
    ),
    "a path out of the archive": ([*MEMBERS.items(), ("../../x", b"")], "leads out of the archive"),
    "an absolute path": ([*MEMBERS.items(), ("//x", b"")], "leads out of the archive"),
    "a member twice": ([*MEMBERS.items(), ("state-is-initial.bin", u8(2))], "'state-is-initial.bin' occurs twice"),
    "many rewards that have no values": (
        changed({"annotations": {"rewards": {
            f"r{i}": {"applies-to": ["choices"], "type": {"type": "double"}} for i in range(9000)}},
            "valuations": {}}, {"#states": 1000, "#choices": 1000, "#branches": 1000, "#choice-actions": 0},
            **{"state-to-choices.bin": None, "choice-to-branches.bin": None, "branch-to-probability.bin": None,
               "branch-to-target.bin": u8(*[0] * 1000), "state-is-initial.bin": None}),
        "9000 rewards, too many",
    ),
}  # fmt: skip
