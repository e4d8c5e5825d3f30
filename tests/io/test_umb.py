"""UMB: models of Storm are read, what is written Storm reads again, and files that are wrong are refused by name."""

import gzip
import io
import json
import lzma
import re
import tarfile
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import stormpy
import stormpy.io
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxmdp as cm
import storm_models
from cvxmdp.io.choices import numbered
from file_models import models, same
from umb_files import INDEX, MEMBERS, REFUSED, changed, f8, tar, u4, u8

# ------------------------------------------------------------------------------------------------ models of Storm


@pytest.fixture(scope="module", params=storm_models.EXAMPLES)
def example(request, tmp_path_factory):
    """What Storm says of one of its examples, the file it writes of it, and the model we read."""
    built = storm_models.build(request.param)
    path = tmp_path_factory.mktemp("storm") / "model.umb"
    stormpy.io.export_to_umb(built, path)
    return storm_models.account(built), cm.load(path, discount=0.9)


def test_a_model_of_storm_has_the_same_choices_rewards_labels_and_first_states(example):
    said, mdp = example
    pairs = storm_models.pairs(said, mdp)
    assert sorted(pairs) == list(range(mdp.num_pairs))
    np.testing.assert_array_equal(mdp.state[pairs], said.state)
    assert (mdp.transitions[pairs] != said.transitions).nnz == 0
    rewards = {name or "default": values for name, values in said.rewards.items()} or {"cost": np.zeros(len(pairs))}
    assert set(mdp.costs) == set(rewards)
    for name, values in rewards.items():
        np.testing.assert_array_equal(mdp.costs[name][pairs], values)
    assert {name: list(states) for name, states in mdp.labels.items()} == said.labels
    assert list(np.flatnonzero(mdp.initial)) == said.first


def test_a_model_of_storm_names_its_states_by_their_variables(example):
    said, mdp = example
    for valuation, name in zip(said.valuations, mdp.states, strict=True):
        parts = [part.strip() for part in valuation.strip("[]").split("&")]
        ours = [part.split("=") for part in name.split(",")]
        written = [f"!{v}" if value == "false" else "" if value == "true" else f"{v}={value}" for v, value in ours]
        assert parts == written  # Storm leaves out what is true


@pytest.mark.parametrize("sign", [1, -1])
def test_discounted_values_are_those_of_value_iteration_on_storms_own_matrix(example, sign):
    said, mdp = example
    for name, values in said.rewards.items():
        least = sign * storm_models.cheapest(said, values, 0.9, sign)[said.first].mean()
        found = cm.Problem(mdp, **{"minimize" if sign > 0 else "maximize": name or "default"}).solve()
        assert found.costs[name or "default"] / 0.1 == pytest.approx(least, rel=1e-7, abs=1e-9)


def test_storm_reads_what_is_written_without_loss(example, tmp_path):
    said, mdp = example
    path = tmp_path / "again.umb"
    mdp.save(path)
    again = storm_models.account(stormpy.build_model_from_umb(path))
    pairs = storm_models.pairs(said, mdp)
    np.testing.assert_array_equal(again.state, mdp.state)
    assert (again.transitions[pairs] != said.transitions).nnz == 0
    assert [again.actions[i] for i in pairs] == said.actions
    for name, values in said.rewards.items():
        np.testing.assert_array_equal(again.rewards[name or "default"][pairs], values)
    assert again.labels == said.labels
    assert again.first == said.first
    assert again.valuations == said.valuations


def test_storm_reads_a_model_with_names_of_its_own_and_an_uneven_first_state(tmp_path):
    mdp = cm.worlds.gridworld(size=3).with_initial({"r0c0": 0.25, "r2c2": 0.75})
    mdp.save(tmp_path / "grid.umb")
    said = storm_models.account(stormpy.build_model_from_umb(tmp_path / "grid.umb"))
    assert said.first == [0, 8]
    assert said.actions == [{mdp.actions[a]} for a in mdp.action]
    assert (said.transitions != sp.csr_array(mdp.transitions)).nnz == 0
    again = cm.load(tmp_path / "grid.umb", discount=0.9)
    assert again.states == mdp.states
    np.testing.assert_array_equal(again.initial, mdp.initial)


# ------------------------------------------------------------------------------------------------------ round trips


@given(models())
@settings(max_examples=150)
def test_what_is_written_is_read_again_to_the_last_bit(tmp_path_factory, mdp):
    path = tmp_path_factory.mktemp("trip") / "model.umb"
    mdp.save(path)
    again = cm.load(path, discount=0.9)
    same(again, mdp)
    again.save(path.with_name("again.umb"))
    assert path.read_bytes() == path.with_name("again.umb").read_bytes()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_model_that_was_written_has_the_same_answer(tmp_path, sparse):
    world = cm.worlds.garnet(states=30, actions=3, branching=0.2, seed=1)
    P = sp.csr_array(world.transitions) if sparse else sp.csr_array(world.transitions).toarray()
    cost = np.random.default_rng(0).random((2, world.num_pairs))
    mdp = cm.MDP.from_pairs(
        world.state, world.action, P, {"a": cost[0], "b": cost[1]}, 0.95, np.eye(1, 30)[0], None, ["x", "y", "z"]
    )
    mdp.save(tmp_path / "model.umb")
    again = cm.load(tmp_path / "model.umb", discount=0.95)
    limit = [cm.Budget("b", at_most=0.4)]
    before, after = (cm.Problem(model, "a", limit).solve() for model in (mdp, again))
    assert after.costs["a"] == pytest.approx(before.costs["a"], rel=1e-9)


def test_a_given_first_state_replaces_that_of_the_file(tmp_path):
    cm.worlds.gridworld(size=2).save(tmp_path / "grid.umb")
    again = cm.load(tmp_path / "grid.umb", discount=0.9, initial="r1c0")
    np.testing.assert_array_equal(again.initial, [0, 0, 1, 0])
    with pytest.raises(ValueError, match=r"^initial: there is no state called 'r9'"):
        cm.load(tmp_path / "grid.umb", discount=0.9, initial="r9")


def test_a_wrong_discount_is_not_blamed_on_the_file(tmp_path):
    cm.worlds.gridworld(size=2).save(tmp_path / "grid.umb")
    with pytest.raises(ValueError, match=r"^discount is 1\.5"):
        cm.load(tmp_path / "grid.umb", discount=1.5)


def test_a_model_that_packs_to_almost_nothing_can_be_read_again(tmp_path):
    states = 3_000_000
    P = sp.csr_array((np.ones(states), np.zeros(states, int), np.arange(states + 1)), shape=(states, states))
    numbers = np.arange(states)
    mdp = cm.MDP.from_pairs(numbers, np.zeros(states, int), P, {"c": np.zeros(states)}, 0.9, np.eye(1, states)[0])
    mdp.save(tmp_path / "model.umb")
    assert cm.load(tmp_path / "model.umb", discount=0.9).num_states == states


def test_names_that_cannot_be_written_are_refused(tmp_path):
    mdp = cm.worlds.gridworld(size=2)
    with pytest.raises(ValueError, match="label 'init', by which PRISM and Storm know the first states"):
        mdp._with(labels={"init": [0]}).save(tmp_path / "model.umb")
    with pytest.raises(ValueError, match="half of a character"):
        mdp._with(states=["a", "b", "\ud800", "c"]).save(tmp_path / "model.umb")
    assert not list(tmp_path.iterdir())


# ----------------------------------------------------------------------------------- files made by the specification


def load(folder, members, pack=bytes, **arguments):
    path = folder / "model.umb"
    path.write_bytes(pack(members if isinstance(members, bytes) else tar(members)))
    return cm.load(path, **{"discount": 0.9} | arguments)


def reordered(members):
    return dict(reversed(members.items()))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("order", [dict, reordered])
def test_the_example_of_the_specification_is_read(tmp_path, pack, kind, order):
    mdp = load(tmp_path, tar(order(MEMBERS), kind), pack)
    assert mdp.states == ("x=0,b=false", "x=1,b=false", "x=2,b=false", "x=2,b=true")
    assert mdp.actions == ("a", "b")
    assert mdp.state.tolist() == [0, 0, 1, 2, 3]
    assert mdp.action.tolist() == [0, 1, 0, 0, 0]
    rows = [[0, 0.5, 0.5, 0], [0, 0, 0.2, 0.8], [0.9, 0.1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_array_equal(mdp.transitions.toarray(), rows)
    assert mdp.costs["R!"].tolist() == [0, 1, 0, 0, 0]
    assert mdp.labels["the goal"].tolist() == [3]
    assert mdp.initial.tolist() == [1, 0, 0, 0]


def test_a_folder_that_was_packed_by_hand_is_read(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo("./annotations")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    members = {f"./{name}": content for name, content in MEMBERS.items()} | {"./notes.txt": b"x" * 3000}
    assert load(tmp_path, buffer.getvalue()[:512] + tar(members)).num_pairs == 5


def test_what_may_be_absent_has_its_default(tmp_path):
    """One choice a state and one branch a choice, probability one, no rewards, labels or names."""
    system = {"#players": 0, "#states": 3, "#choices": 3, "#branches": 3, "#choice-actions": 0}
    index = {"format-version": 1, "transition-system": INDEX["transition-system"] | system}
    mdp = load(tmp_path, {"index.json": index, "branch-to-target.bin": u8(1, 2, 0), "state-is-initial.bin": u8(6)})
    np.testing.assert_array_equal(mdp.transitions.toarray(), [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert list(mdp.costs) == ["cost"]
    assert not mdp.costs["cost"].any()
    assert mdp.initial.tolist() == [0, 0.5, 0.5]
    assert list(mdp.states) == ["0", "1", "2"]
    assert list(mdp.actions) == ["0"]


def test_no_first_state_must_be_given(tmp_path):
    members = changed(**{"state-is-initial.bin": None})
    with pytest.raises(ValueError, match="no state is initial; say in which"):
        load(tmp_path, members)
    assert load(tmp_path, members, initial="x=1,b=false").initial.tolist() == [0, 1, 0, 0]


def test_rewards_of_states_choices_and_branches_add_up(tmp_path):
    rewards = {"r": {"applies-to": ["states", "choices", "branches"], "type": {"type": "double", "size": 64}}}
    members = changed({"annotations": {"rewards": rewards}}) | {
        "annotations/rewards/r/states/values.bin": f8(100, 200, 300, 400),
        "annotations/rewards/r/branches/values.bin": f8(2, 4, 0.1, 0.1, 10, 20, 5, 7),
    }
    del members["annotations/rewards/r/choices/values.bin"]
    cost = load(tmp_path, members).costs["r"]
    np.testing.assert_allclose(cost, [103, 100.1, 211, 305, 407], rtol=1e-15)
    members["annotations/rewards/r/choices/values.bin"] = f8(1000, 2000, 3000, 4000, 5000)
    np.testing.assert_allclose(load(tmp_path, members).costs["r"], cost + np.arange(1000, 6000, 1000), rtol=1e-15)


def test_a_reward_that_all_branches_share_is_not_rounded(tmp_path):
    rewards = {"r": {"applies-to": ["branches"], "type": {"type": "double"}}}
    members = changed({"annotations": {"rewards": rewards}}) | {
        "branch-to-probability.bin": f8(0.3, 0.7, 0.1, 0.9, 0.6, 0.4, 1, 1),
        "annotations/rewards/r/branches/values.bin": f8(*[0.1, 0.1, 0.3, 0.3, 0.7, 0.7, 1, 1]),
    }
    assert load(tmp_path, members).costs["r"].tolist() == [0.1, 0.3, 0.7, 1, 1]


def test_a_state_without_a_choice_becomes_absorbing_at_the_cost_of_the_state(tmp_path):
    rewards = {"r": {"applies-to": ["states", "choices"], "type": {"type": "double"}}}
    members = changed({"annotations": {"rewards": rewards}}, {"#choices": 4, "#branches": 7}) | {
        "state-to-choices.bin": u8(0, 2, 2, 3, 4),
        "choice-to-branches.bin": u8(0, 2, 4, 6, 7),
        "branch-to-probability.bin": f8(0.5, 0.5, 0.2, 0.8, 0.9, 0.1, 1.0),
        "branch-to-target.bin": u8(1, 2, 2, 3, 0, 1, 3),
        "actions/choices/values.bin": u4(0, 1, 0, 0),
        "annotations/rewards/r/choices/values.bin": f8(1, 2, 3, 4),
        "annotations/rewards/r/states/values.bin": f8(10, 20, 30, 40),
    }
    mdp = load(tmp_path, members)
    assert mdp.state.tolist() == [0, 0, 1, 2, 3]
    assert [mdp.actions[a] for a in mdp.action] == ["a", "b", "#1", "a", "a"]
    rows = [[0, 0.5, 0.5, 0], [0, 0, 0.2, 0.8], [0, 1, 0, 0], [0.9, 0.1, 0, 0], [0, 0, 0, 1]]
    np.testing.assert_array_equal(mdp.transitions.toarray(), rows)
    assert mdp.costs["r"].tolist() == [11, 12, 20, 33, 44]


def test_choices_of_the_same_name_or_none_get_names_of_their_own(tmp_path):
    members = changed(
        system={"#states": 1, "#choices": 5, "#branches": 5},
        **{
            "state-to-choices.bin": u8(0, 5),
            "choice-to-branches.bin": None,
            "branch-to-target.bin": u8(0, 0, 0, 0, 0),
            "branch-to-probability.bin": None,
            "actions/choices/strings.bin": b"go",
            "actions/choices/string-mapping.bin": u8(0, 2, 2),
            "actions/choices/values.bin": u4(0, 1, 0, 1, 0),
            "annotations/rewards/r/choices/values.bin": f8(1, 2, 3, 4, 5),
            "valuations/states/valuations.bin": b"\1",
            "annotations/aps/g/states/values.bin": u8(1),
        },
    )
    mdp = load(tmp_path, members)
    found = {mdp.actions[a]: c for a, c in zip(mdp.action, mdp.costs["R!"], strict=True)}
    assert found == {"go": 1, "go#2": 3, "go#3": 5, "#1": 2, "#2": 4}


def test_a_written_name_that_looks_like_a_second_one_stays():
    number, actions = numbered(np.array([0, 0, 0]), np.array([0, 0, 1]), ["go", "go#2"])
    assert [actions[i] for i in number] == ["go", "go#2#", "go#2"]


def test_variables_of_all_kinds_name_states(tmp_path):
    variables = [
        {"name": "i", "type": {"type": "int", "size": 3}},
        {"name": "u", "type": {"type": "uint", "size": 5}, "offset": -7},
        {"name": "d", "type": {"type": "double"}}, {"name": "s", "type": {"type": "string"}},
    ]  # fmt: skip
    values = [(-4, -7, 0.5, 1), (3, 24, -1e-9, 0), (-1, 0, 3.0, 1), (-1, 0, 3.0, 1)]
    rows = b"".join(bytes([(i & 7) | (u + 7) << 3]) + f8(d) + u8(s) for i, u, d, s in values)
    members = changed(
        {"valuations": {"states": {"unique": False, "#strings": 2, "classes": [{"variables": variables}]}}},
        **{
            "valuations/states/valuations.bin": rows,
            "valuations/states/string-mapping.bin": u8(0, 3, 5),
            "valuations/states/strings.bin": "ü!".encode() + b"hi",
        },
    )
    names = load(tmp_path, members).states
    assert names[:2] == ("i=-4,u=-7,d=0.5,s=hi", "i=3,u=24,d=-1e-09,s=ü!")
    assert names[2:] == ("i=-1,u=0,d=3.0,s=hi", "i=-1,u=0,d=3.0,s=hi#2")


def test_variables_that_are_not_understood_give_no_names(tmp_path):
    variables = [{"name": "x", "type": {"type": "rational", "size": 128}}]
    for description in ([{"variables": variables}], [{"variables": []}, {"variables": []}]):
        members = changed({"valuations": {"states": {"unique": True, "classes": description}}})
        assert list(load(tmp_path, members).states) == ["0", "1", "2", "3"]


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("members", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_file_is_refused_by_name(tmp_path, members, reason):
    pack = (lambda content: gzip.compress(content, 9)) if "9000" in reason else bytes
    with pytest.raises(ValueError, match=reason) as caught:
        load(tmp_path, members, pack, initial=[1.0] if "9000" in reason else None)
    assert str(caught.value).startswith(repr(str(tmp_path / "model.umb")))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("index.json")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(ValueError, match=r"'index\.json' is a link or of another kind"):
        load(tmp_path, buffer.getvalue())


def test_no_file_a_folder_and_an_empty_file_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        cm.load(tmp_path / "none.umb", discount=0.9)
    (tmp_path / "folder.umb").mkdir()
    with pytest.raises(ValueError, match="is not a file but a folder"):
        cm.load(tmp_path / "folder.umb", discount=0.9)
    with pytest.raises(ValueError, match="not a tar archive"):
        load(tmp_path, b"")
    with pytest.raises(ValueError, match=r"no member 'index\.json'"):
        load(tmp_path, bytes(1024))
    with pytest.raises(ValueError, match="not a tar archive"):
        load(tmp_path, b"PK\3\4" + bytes(600))


# ------------------------------------------------------------------------------------ what is damaged or malicious


def attempt(folder, content):
    """Read a file that may be anything: a model, or one sentence with the file's name; and little memory for it."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    mdp, said = None, "model.umb"
    try:
        mdp = load(folder, content)
    except ValueError as error:
        said = str(error)
    assert "model.umb" in said
    assert tracemalloc.get_traced_memory()[1] - before < 80 * 2**20
    return mdp


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_damaged_files_are_read_or_refused_and_nothing_else(tmp_path, pack):
    whole = pack(tar(MEMBERS))
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(250):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), rng.integers(1, 4)):
            content[at] = rng.integers(0, 256)
        mdp = attempt(tmp_path, bytes(content))
        refused += mdp is None
        if mdp is not None and pack is not bytes:  # the checksum stands for it
            same(mdp, load(tmp_path, MEMBERS))
    for cut in rng.integers(0, len(whole), 60):
        assert attempt(tmp_path, whole[:cut]) is None or pack is bytes
    assert refused > 50


def test_an_archive_that_is_cut_between_members_is_refused(tmp_path):
    """Rewards, labels and names may be absent, so that a reader that took the cut for the end would not miss them."""
    whole = tar(MEMBERS)
    content = whole.rstrip(b"\0")
    end = -(-len(content) // 512) * 512
    for cut in range(0, end + 1, 512):
        with pytest.raises(ValueError, match=r"ends early|ends within|the file ends before|not a tar archive"):
            load(tmp_path, whole[:cut])
    load(tmp_path, whole[: end + 512])


def test_a_checksum_far_from_the_beginning_is_looked_at(tmp_path):
    noise = np.random.default_rng(0).bytes(10**6)
    whole = bytearray(gzip.compress(tar({**MEMBERS, "other.bin": noise})))
    load(tmp_path, bytes(whole))
    whole[-8] ^= 1
    with pytest.raises(ValueError, match="packed with gzip, and damaged: CRC check failed"):
        load(tmp_path, bytes(whole))


def test_names_that_gnu_tar_finds_long_are_read(tmp_path):
    key = "r" * 200
    rewards = {key: {"applies-to": ["choices"], "type": {"type": "double", "size": 64}}}
    members = changed({"annotations": {"rewards": rewards}})
    members |= {f"annotations/rewards/{key}/choices/values.bin": f8(1, 2, 3, 4, 5)}
    np.testing.assert_array_equal(load(tmp_path, tar(members, tarfile.GNU_FORMAT)).costs[key], [1, 2, 3, 4, 5])


MANY = 64_000
BARE = {name: None for name in MEMBERS if name != "index.json"} | {"branch-to-target.bin": bytes(8 * MANY)}
"""Members of a model of many states, each of which leads to the first."""


def many(index):
    """Return the members of such a model."""
    return changed(index, {"#states": MANY, "#choices": MANY, "#branches": MANY, "#choice-actions": 0}, **BARE)


@pytest.mark.usefixtures("traced")
def test_names_of_variables_that_would_fill_the_memory_are_refused(tmp_path):
    variable = {"name": "x" * 10**6, "type": {"type": "uint", "size": 8}}
    members = many(
        {"annotations": {}, "valuations": {"states": {"unique": True, "classes": [{"variables": [variable]}]}}}
    )
    members["valuations/states/valuations.bin"] = bytes(MANY)
    with pytest.raises(ValueError, match="names of variables that are too long for the size of the file"):
        load(tmp_path, members, gzip.compress)
    assert tracemalloc.get_traced_memory()[1] < 80 * 2**20


@pytest.mark.usefixtures("traced")
def test_labels_that_would_fill_the_memory_are_refused(tmp_path):
    kind = {"applies-to": ["states"], "type": {"type": "bool", "size": 1}}
    members = many({"annotations": {"aps": {f"l{i}": kind for i in range(500)}}, "valuations": {}})
    members |= {f"annotations/aps/l{i}/states/values.bin": b"\xff" * (MANY // 8) for i in range(500)}
    with pytest.raises(ValueError, match=r"labels up to 'l1..' are of too many states for the size of the file"):
        load(tmp_path, members, gzip.compress)
    assert tracemalloc.get_traced_memory()[1] < 160 * 2**20


def test_an_index_of_many_megabytes_is_refused(tmp_path):
    """Its JSON would take some thirty times as much memory."""
    members = changed(**{"index.json": b"[" + b"[]," * (2 * 10**6) + b"[]]"})
    with pytest.raises(ValueError, match=r"'index\.json' has 6000004 bytes; expected at most 4194304"):
        load(tmp_path, members)


@pytest.mark.usefixtures("traced")
def test_swapped_and_missing_members_are_read_or_refused(tmp_path):
    rng = np.random.default_rng(1)
    names = list(MEMBERS)
    for _ in range(150):
        shuffled = dict(zip(rng.permutation(names), rng.permutation(np.arange(len(names))), strict=True))
        kept = {name: MEMBERS[names[i]] if rng.random() < 0.3 else MEMBERS[name] for name, i in shuffled.items()}
        attempt(tmp_path, tar({name: content for name, content in kept.items() if rng.random() < 0.9}))


VALUES = st.sampled_from([0, 1, -1, 2**31, 2**62, 2**63, 10**30, 1.5, True, None, "x", [], {}, ["states"], "double"])


def spots(content, path=()):
    """Yield the path of every value within JSON."""
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from spots(value, (*path, key))


@pytest.mark.usefixtures("traced")
def test_an_index_with_any_other_value_is_read_or_refused(tmp_path):
    @given(st.sampled_from([spot for spot in spots(INDEX) if spot]), VALUES)
    @settings(max_examples=250)
    def put(spot, value):
        index = json.loads(json.dumps(INDEX))
        inner = index
        for key in spot[:-1]:
            inner = inner[key]
        inner[spot[-1]] = value
        attempt(tmp_path, tar(MEMBERS | {"index.json": index}))

    put()


def header(name, size, kind=b"0"):
    """Return a header of a member that claims a size."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.type = kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_an_archive_that_unpacks_without_bound_is_refused(tmp_path, pack):
    size = 100 * 2**20
    zeros = bytes(2**20)

    def pieces(claimed):
        yield header("junk", claimed)
        for _ in range(size // len(zeros)):
            yield zeros

    if pack is gzip.compress:
        buffer = io.BytesIO()
        with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9) as stream:
            stream.writelines(pieces(size))
        packed = buffer.getvalue()
    else:
        packer = lzma.LZMACompressor()
        packed = b"".join(packer.compress(piece) for piece in pieces(size)) + packer.flush()
    assert len(packed) < 10**6
    (tmp_path / "model.umb").write_bytes(packed)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with pytest.raises(ValueError, match=r"unpack to far more than its size"):
        cm.load(tmp_path / "model.umb", discount=0.9)
    assert tracemalloc.get_traced_memory()[1] - before < 80 * 2**20


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("size", [10**6, 10**12, 2**63])
def test_a_member_that_claims_a_size_it_has_not_is_refused(tmp_path, pack, size):
    with pytest.raises(ValueError, match=r"'index\.json'|ends within|far more"):
        load(tmp_path, pack(header("index.json", size)))
    with pytest.raises(ValueError, match=r"'x'|ends within|far more"):
        load(tmp_path, pack(header("x", size, b"x")))
    assert tracemalloc.get_traced_memory()[1] < 80 * 2**20


def test_endless_headers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="far more than its size"):
        load(tmp_path, gzip.compress(header("folder", 0, b"5") * (2**17 + 1)))


def test_extended_headers_that_are_wrong_are_refused(tmp_path):
    for record in (b"99 path=x\n", b"x", b"12 size=abc\n", b"-1 size=3\n"):
        content = header("x", len(record), b"x") + record.ljust(512, b"\0") + tar(MEMBERS)
        with pytest.raises(ValueError, match="extended header"):
            load(tmp_path, content)


def test_xz_that_asks_for_much_memory_is_refused(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 512 * 2**20}]
    with pytest.raises(ValueError, match=re.escape("packed with xz, and damaged: Memory usage limit")):
        load(tmp_path, tar(MEMBERS), lambda content: lzma.compress(content, filters=filters))
