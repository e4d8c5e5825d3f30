"""Explicit files of PRISM: those of Storm's examples are read, Storm reads what is written, wrong ones are refused."""

import re
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import stormpy
from hypothesis import given, settings
from stormpy.examples.files import testfile_dir

import cvxmdp as cm
import storm_models
from cvxmdp.io import columns
from file_models import models, same

# ------------------------------------------------------------------------------------- files as PRISM writes them


def places(said):
    """Return the number of each choice within its state."""
    return [int(i - np.searchsorted(said.state, s)) for i, s in enumerate(said.state)]


def write_as_prism(said, path, chain, headers):
    """Write what Storm says of a model in the format of PRISM's exporter, from its source."""
    P, states = said.transitions, said.transitions.shape[1]
    counts = f"{states}" if chain else f"{states} {P.shape[0]}"
    lines, rewarded = [], {name: [] for name in said.rewards}
    for i, (s, k) in enumerate(zip(said.state, places(said), strict=True)):
        head = f"{s}" if chain else f"{s} {k}"
        for t, p in zip(P.indices[P.indptr[i] : P.indptr[i + 1]], P.data[P.indptr[i] : P.indptr[i + 1]], strict=True):
            lines.append(f"{head} {t} {float(p)!r} {''.join(said.actions[i])}".strip())
            for name, values in said.rewards.items():
                if values[i]:
                    rewarded[name].append(f"{head} {t} {float(values[i])!r}")
    kind = ["# Transitions (DTMC)" if chain else "# Transitions (MDP)"] if headers else []
    path.with_suffix(".tra").write_text("\n".join([*kind, f"{counts} {P.nnz}", *lines]) + "\n")
    labels = {"init": said.first, **said.labels}
    rows = [f"{s}: {' '.join(str(i) for i, some in enumerate(labels.values()) if s in some)}" for s in range(states)]
    head = " ".join(f'{i}="{name}"' for i, name in enumerate(labels))
    rows = [row for row in rows if not row.endswith(": ")]
    path.with_suffix(".lab").write_text("\n".join([*(["# Labels"] if headers else []), head, *rows]) + "\n")
    for i, (name, entries) in enumerate(rewarded.items(), 1):
        structure = f'# Reward structure "{name}"' if name else "# Reward structure"
        number = i if len(rewarded) > 1 else ""
        for kind, ending, head, body in (
            ("State", "srew", f"{states} 0", []),
            ("Transition", "trew", f"{counts} {len(entries)}", entries),
        ):
            file = path.with_name(f"{path.stem}{number}.{ending}")
            file.write_text("\n".join([*([structure, f"# {kind} rewards"] if headers else []), head, *body]) + "\n")
    variables = []
    for valuation in said.valuations:  # Storm leaves out the names of what is true
        parts = [part.strip() for part in valuation.strip("[]").split("&")]
        variables.append([part.split("=") if "=" in part else [part.strip("!"), "false"] for part in parts])
    if any(name == "" for row in variables for name, _ in row):
        return
    rows = [f"{s}:({','.join(value for _, value in row)})" for s, row in enumerate(variables)]
    head = f"({','.join(name for name, _ in variables[0])})"
    path.with_suffix(".sta").write_text("\n".join([*(["# States"] if headers else []), head, *rows]) + "\n")


def as_storm(path):
    """Rewrite files in Storm's dialect: no counts, and names of labels in place of numbers."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    storm = path.with_name("storm")
    storm.with_suffix(".tra").write_text("\n".join(["mdp", *lines[1:]]) + "\n")
    head, *rows = [line for line in path.with_suffix(".lab").read_text().splitlines() if not line.startswith("#")]
    names = re.findall(r'"([^"]+)"', head)
    labels = ["#DECLARATION", " ".join(names), "#END"]
    for row in rows:
        state, _, numbers = row.partition(":")
        labels.append(" ".join([state, *(names[int(i)] for i in numbers.split())]))
    storm.with_suffix(".lab").write_text("\n".join(labels) + "\n")
    for ending in (".srew", ".trew"):
        if path.with_suffix(ending).exists():
            lines = [line for line in path.with_suffix(ending).read_text().splitlines() if not line.startswith("#")]
            storm.with_suffix(ending).write_text("\n".join(lines[1:]) + "\n")
    for file in storm.parent.glob("storm.*"):
        if file.stat().st_size % 4096 == 0:  # Storm reads on where a file ends with a page of memory
            file.write_text(file.read_text() + "\n")
    return storm


@pytest.fixture(scope="module", params=storm_models.EXAMPLES)
def example(request):
    return storm_models.account(storm_models.build(request.param)), request.param in storm_models.CHAINS


def check(said, mdp, chain):
    if chain:
        assert list(mdp.actions) == ["0"]  # a model of one action
        pairs = np.arange(mdp.num_pairs)
    else:
        pairs = storm_models.pairs(said, mdp)
    assert sorted(pairs) == list(range(mdp.num_pairs))
    np.testing.assert_array_equal(mdp.state[pairs], said.state)
    assert (mdp.transitions[pairs] != said.transitions).nnz == 0
    assert {name: list(states) for name, states in mdp.labels.items()} == said.labels
    assert list(np.flatnonzero(mdp.initial)) == said.first
    return pairs


@pytest.mark.parametrize("headers", [False, True])
def test_a_model_of_storm_in_files_of_prism_is_read(example, tmp_path, headers):
    said, chain = example
    write_as_prism(said, tmp_path / "model", chain, headers)
    mdp = cm.load(tmp_path / "model.tra", discount=0.9)
    pairs = check(said, mdp, chain)
    if not said.rewards:
        assert list(mdp.costs) == ["cost"]
        assert not mdp.costs["cost"].any()
    for i, (name, values) in enumerate(said.rewards.items(), 1):
        number = i if len(said.rewards) > 1 else ""
        called = name if headers and name else f"reward{number}"
        np.testing.assert_array_equal(mdp.costs[called][pairs], values)
        least = storm_models.cheapest(said, values, 0.9)[said.first].mean()
        assert cm.Problem(mdp, called).solve().costs[called] / 0.1 == pytest.approx(least, rel=1e-7, abs=1e-9)


def test_storm_reads_what_is_written_without_loss(example, tmp_path):
    said, chain = example
    rewards = dict(list(said.rewards.items())[:1])  # Storm reads one
    write_as_prism(said, tmp_path / "model", chain, headers=True)
    mdp = cm.load(tmp_path / "model.tra", discount=0.9)
    cost = next(iter(rewards), "") or "reward" if rewards else "cost"
    mdp = mdp._with(costs={cost: mdp.costs[cost]})
    (tmp_path / "again").mkdir()
    path = tmp_path / "again" / "model.tra"
    mdp.save(path)
    storm = as_storm(path)
    parts = {"state_rewards": storm.with_suffix(".srew"), "transition_rewards": storm.with_suffix(".trew")}
    again = stormpy.build_model_from_explicit(
        str(storm.with_suffix(".tra")),
        str(storm.with_suffix(".lab")),
        **{part: str(file) for part, file in parts.items() if file.exists() and mdp.costs[cost].any()},
    )
    again = storm_models.account(again)
    pairs = np.arange(mdp.num_pairs) if chain else storm_models.pairs(said, mdp)
    assert (again.transitions[pairs] != said.transitions).nnz == 0
    assert again.labels == said.labels
    assert again.first == said.first
    for values in rewards.values():
        found = next(iter(again.rewards.values()))
        np.testing.assert_allclose(found[pairs], values, rtol=1e-15)
    for action, names in zip(mdp.action[pairs], said.actions, strict=True):
        assert chain or not names or mdp.actions[action].partition("#")[0] in names


@pytest.mark.parametrize("name", ["mdp/two_dice", "dtmc/die"])
def test_explicit_files_that_come_with_storm_are_read(name):
    path = f"{testfile_dir}/{name}"
    said = storm_models.account(stormpy.build_model_from_explicit(f"{path}.tra", f"{path}.lab"))
    check(said, cm.load(f"{path}.tra", discount=0.9), name.startswith("dtmc"))


# --------------------------------------------------------------------------------------------------- round trips


@given(models(even=True))
@settings(max_examples=150)
def test_what_is_written_is_read_again_to_the_last_bit(tmp_path_factory, mdp):
    folder = tmp_path_factory.mktemp("trip")
    mdp.save(folder / "model.tra")
    again = cm.load(folder / "model.tra", discount=0.9)
    same(again, mdp)
    other = tmp_path_factory.mktemp("again")
    again.save(other / "model.tra")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in other.iterdir()
    }


@pytest.mark.parametrize("sparse", [False, True])
def test_a_model_that_was_written_has_the_same_answer(tmp_path, sparse):
    world = cm.worlds.garnet(states=30, actions=3, branching=0.2, seed=1)
    P = sp.csr_array(world.transitions) if sparse else sp.csr_array(world.transitions).toarray()
    cost = np.random.default_rng(0).random((2, world.num_pairs))
    mdp = cm.MDP.from_pairs(
        world.state, world.action, P, {"a": cost[0], "b": cost[1]}, 0.95, np.eye(1, 30)[0], None, ["x", "y", "z"]
    )
    mdp.save(tmp_path / "model.tra")
    again = cm.load(tmp_path / "model.tra", discount=0.95)
    limit = [cm.Budget("b", at_most=0.4)]
    before, after = (cm.Problem(model, "a", limit).solve() for model in (mdp, again))
    assert after.costs["a"] == pytest.approx(before.costs["a"], rel=1e-9)


def test_files_are_as_prism_takes_them(tmp_path):
    """Identifiers for names, true names in comments that PRISM does not take for headers, one line a transition."""
    mdp = cm.MDP.from_pairs(
        [0, 0, 1], [0, 1, 0], [[0.25, 0.75], [1, 0], [0, 1]], {"the time": [1, 1, 0], "fuel": [0.5, 0, 0]}, 0.9, [1, 0],
        ["at home", "away"], ["stay on", "go"], {"goal": [1], "P": [0, 1]},
    )  # fmt: skip
    mdp.save(tmp_path / "m.tra")
    assert {file.name: file.read_text().splitlines() for file in tmp_path.iterdir()} == {
        "m.tra": [
            '# name _stay_on "stay on"', '# name go "go"', "2 3 4", "0 0 0 0.25 _stay_on", "0 0 1 0.75 _stay_on",
            "0 1 0 1.0 go", "1 0 1 1.0 _stay_on",
        ],
        "m.sta": ['# name 0 "at home"', '# name 1 "away"', "(state)", "0:(0)", "1:(1)"],
        "m.lab": ['# name _P "P"', '0="init" 1="goal" 2="_P"', "0: 0 2", "1: 1 2"],
        "m1.srew": ['# name _the_time "the time"', '# Reward structure "_the_time"', "# State rewards", "2 1", "0 1.0"],
        "m2.trew": ['# Reward structure "fuel"', "# Transition rewards", "2 3 2", "0 0 0 0.5", "0 0 1 0.5"],
    }  # fmt: skip


def test_an_uneven_first_state_is_refused(tmp_path):
    mdp = cm.worlds.gridworld(size=2).with_initial([0.5, 0.25, 0.25, 0])
    with pytest.raises(ValueError, match=r"one of 3 that are not equally likely, which these files cannot say"):
        mdp.save(tmp_path / "m.tra")
    with pytest.raises(ValueError, match="label 'init', by which PRISM and Storm know"):
        cm.worlds.gridworld(size=2)._with(labels={"init": [0]}).save(tmp_path / "m.tra")
    assert not list(tmp_path.iterdir())


def test_files_that_are_left_over_are_not_taken_for_part_of_a_model(tmp_path):
    mdp = cm.worlds.gridworld(size=2)
    mdp.save(tmp_path / "m.tra")
    mdp.save(tmp_path / "m.tra")
    one = mdp._with(costs={"time": mdp.costs["time"]})
    with pytest.raises(ValueError, match=r"m1\.srew' is there and would be read as part of the model; remove it"):
        one.save(tmp_path / "m.tra")
    one.save(tmp_path / "m2.tra")  # its rewards, m2.srew, are there, and are now its own
    assert list(cm.load(tmp_path / "m2.tra", discount=0.9).costs) == ["time"]
    assert list(cm.load(tmp_path / "m.tra", discount=0.9).costs) == ["time"]


# ----------------------------------------------------------------------------------------------- files by hand

FILES = {
    "tra": "3 4 6\n0 0 1 0.5 go\n0 0 2 0.5 go\n0 1 0 1 wait\n1 0 1 1\n2 0 0 0.25 go\n2 0 2 .75 go\n",
    "sta": "(x,b)\n0:(0,true)\n1:(-1,true)\n2:(1,false)\n",
    "lab": '0="init" 1="deadlock" 2="goal"\n0: 0\n2: 2 0\n',
    "srew": "3 1\n1 2.5\n",
    "trew": "3 4 3\n0 0 1 1\n0 0 2 3\n2 0 2 4\n",
}


def load(folder, initial=None, **changes):
    for file in folder.glob("m.*"):
        file.unlink()
    for ending, content in (FILES | changes).items():
        if content is not None:
            content = content if isinstance(content, bytes) else content.encode()
            (folder / f"m.{ending}").write_bytes(content)
    return cm.load(folder / "m.tra", discount=0.9, initial=initial)


def test_files_written_by_hand_are_read(tmp_path):
    mdp = load(tmp_path)
    assert mdp.states == ("x=0,b=true", "x=-1,b=true", "x=1,b=false")
    assert [mdp.actions[a] for a in mdp.action] == ["go", "wait", "#1", "go"]
    rows = [[0, 0.5, 0.5], [1, 0, 0], [0, 1, 0], [0.25, 0, 0.75]]
    np.testing.assert_array_equal(mdp.transitions.toarray(), rows)
    assert mdp.costs["reward"].tolist() == [2, 0, 2.5, 3]
    assert mdp.labels["goal"].tolist() == [2]
    assert mdp.labels["deadlock"].tolist() == []
    assert mdp.initial.tolist() == [0.5, 0, 0.5]


def test_blanks_comments_other_ends_of_lines_and_any_order_do_not_matter(tmp_path):
    first, *rest = FILES["tra"].splitlines()
    shuffled = [rest[i] for i in (5, 2, 0, 4, 3, 1)]
    text = "\n# a comment\r\n\r\n" + first + " \r\n" + "\r\n\r\n# more\r\n".join(f" {line}\t" for line in shuffled)
    mdp, plain = load(tmp_path, tra=text), load(tmp_path)
    assert (mdp.transitions != plain.transitions).nnz == 0
    assert mdp.costs["reward"].tolist() == plain.costs["reward"].tolist()
    assert {mdp.actions[a] for a in mdp.action} == {plain.actions[a] for a in plain.action}


@pytest.mark.parametrize("block", [64, 97, 1000])
def test_a_file_is_read_in_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(columns, "BLOCK", block)
    mdp = cm.worlds.gridworld(size=5)
    mdp.save(tmp_path / "grid.tra")
    same(cm.load(tmp_path / "grid.tra", discount=0.99), mdp)
    with pytest.raises(ValueError, match=r"'line' is line|line 8 is '0 1 q 1 wait'"):
        load(tmp_path, tra=FILES["tra"].replace("\n0 1 0 1", "\n\n\n\n\n0 1 q 1"))


def test_a_choice_without_a_number_between_and_a_dead_end(tmp_path):
    mdp = load(tmp_path, tra="3 3 3\n0 0 1 1\n0 2 2 1\n1 0 1 1\n", trew="3 3 1\n0 2 2 4\n", lab=None)
    assert mdp.state.tolist() == [0, 0, 1, 2]
    np.testing.assert_array_equal(mdp.transitions.toarray(), [[0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]])
    assert mdp.costs["reward"].tolist() == [0, 4, 2.5, 0]
    assert mdp.initial.tolist() == [1, 0, 0]


def test_a_given_first_state_replaces_that_of_the_file(tmp_path):
    nowhere = '0="init"\n'
    with pytest.raises(ValueError, match="no state is initial"):
        load(tmp_path, lab=nowhere)
    assert load(tmp_path, lab=nowhere, initial="x=1,b=false").initial.tolist() == [0, 0, 1]


def test_a_number_keeps_all_its_digits(tmp_path):
    value = 0.1 + 0.2
    mdp = load(tmp_path, srew=f"3 2\n0 {value!r}\n1 -1e-300\n", trew=None)
    assert mdp.costs["reward"].tolist() == [value, value, -1e-300, 0]


REFUSED = {
    "rates": (dict(tra="2 2\n0 1 3.5\n1 0 1\n"), "m.tra", "3.5, not a probability; rates of continuous time"),
    "continuous time": (dict(tra="# Transitions (CTMC)\n2 2\n0 1 1\n1 0 1\n"), "m.tra", "CTMC, with continuous time"),
    "Storm's automata": (dict(tra="ma\n0 !\n"), "m.tra", "kind MA, with continuous time"),
    "observations": (dict(tra="2 2 2 2\n0 0 1 1 0\n"), "m.tra", "partial observation"),
    "POMDPs": (dict(tra="# Transitions (POMDP)\n2 2 2 2\n"), "m.tra", "POMDP, with partial observation"),
    "games": (dict(tra="# Transitions (SMG)\n2 2 2\n"), "m.tra", "SMG, with several players"),
    "intervals": (dict(tra="1 1 1\n0 0 0 [0.1,0.9]\n"), "m.tra", "line 2 holds an interval"),
    "fractions": (dict(tra="1 1 2\n0 0 0 1/3\n"), "m.tra", "line 2 holds a fraction, '1/3'"),
    "an empty file": (dict(tra=""), "m.tra", "it is empty; expected numbers of states"),
    "another file": (dict(tra="\x89PNG\n1"), "m.tra", "line 1 is .*expected numbers of states, choices and trans"),
    "no transitions": (dict(tra="1 0 0\n"), "m.tra", "no transitions"),
    "too few lines": (dict(tra="1 1 2\n0 0 0 1\n"), "m.tra", "first line says 2 transitions; there are 1"),
    "another number of choices": (dict(tra="1 2 1\n0 0 0 1\n"), "m.tra", "first line says 2 choices; there are 1"),
    "a state that is not": (dict(tra="2 1 1\n0 0 2 1\n"), "m.tra", "'2' should be a whole number from 0 to 1"),
    "a choice that is not": (dict(tra="2 1 1\n0 1 1 1\n"), "m.tra", "'1' should be a whole number from 0 to 0"),
    "a negative state": (dict(tra="2 1 1\n0 0 -1 1\n"), "m.tra", "'-1' should be a whole number"),
    "no number": (dict(tra="1 1 1\n0 0 0 one\n"), "m.tra", "line 2 .*'one' should be a number"),
    "not a number": (dict(tra="1 1 1\n0 0 0 nan\n"), "m.tra", "line 2 .*'nan' should be a number"),
    "almost a number": (dict(tra="1 1 1\n0 0 0 1e\n"), "m.tra", "line 2 .*'1e' should be a number"),
    "a long number": (dict(tra=f"1 1 1\n0 0 0 {'1' * 99}\n"), "m.tra", "line 2 .* should be a number"),
    "a large number": (dict(tra="1 1 1\n0 0 0 1e999\n"), "m.tra", "line 2 .* should be a number"),
    "too few words": (dict(tra="1 1 1\n\n0 0 1\n"), "m.tra", "line 3 is '0 0 1'; .*4 words, not 3"),
    "too many words": (dict(tra="1 1 1\n0 0 0 1 a b\n"), "m.tra", "4 words, not 6"),
    "a sum": (dict(tra="1 1 1\n0 0 0 .5\n", sta=None, lab=None, srew=None, trew=None), "m.tra", "sum to 0.5, not 1"),
    "states without end": (dict(tra="999999999999 1 1\n0 0 0 1\n"), "m.tra", "nearly all states would be dead ends"),
    "Storm's states without end": (dict(tra="mdp\n0 0 2000000000 1\n"), "m.tra", "nearly all states"),
    "a name that is no text": (dict(tra='# name a "\\q"\n1 1 1\n0 0 0 1 a\n'), "m.tra", "a text as in JSON"),
    "no variables": (dict(sta="0:(1)\n"), "m.sta", "line 1 is '0:.1.'; expected variables"),
    "a missing value": (dict(sta="(x,y)\n0:(1)\n"), "m.sta", "line 2 .*expected a state and 2 values"),
    "a state too many": (dict(sta=FILES["sta"] + "3:(0,true)\n"), "m.sta", "line 5 begins with '3'"),
    "a state twice": (dict(sta=FILES["sta"] + "2:(0,true)\n"), "m.sta", "line 5 is the second of state 2"),
    "a state too few": (dict(sta="(x)\n0:(1)\n2:(1)\n"), "m.sta", "state 1 is missing"),
    "a name too few": (dict(sta='# name 0 "a"\n# name 2 "b"\n' + FILES["sta"]), "m.sta", "state 1 has no name"),
    "names that are equal": (
        dict(sta='# name 0 "a"\n# name 1 "a"\n# name 2 "b"\n' + FILES["sta"]), "m.tra", "the name 'a' twice",
    ),
    "no labels": (dict(lab="0: 1\n"), "m.lab", "line 1 is '0: 1'; expected labels"),
    "labels out of order": (dict(lab='1="a"\n'), "m.lab", "line 1 .*expected labels"),
    "an unknown label": (dict(lab='0="init"\n0: 0\n1: 1\n'), "m.lab", "line 3 has the label '1'"),
    "a label of no state": (dict(lab='0="init"\n7: 0\n'), "m.lab", "line 2 begins with '7'; .*from 0 to 2"),
    "a label twice": (dict(lab='0="a" 1="a"\n'), "m.lab", "two labels the same name"),
    "no end": (dict(lab="#DECLARATION\ninit\n0 init\n"), "m.lab", "line 3 should be #END"),
    "a reward of no state": (dict(srew="3 1\n3 1\n"), "m.srew", "line 2 .*'3' should be a whole number from 0 to 2"),
    "two rewards": (dict(srew="3 2\n1 1\n1 2\n"), "m.srew", "state 1 has two rewards"),
    "rewards of another kind": (dict(srew="# Transition rewards\n3 0\n"), "m.srew", "expected State rewards"),
    "other names": (
        dict(srew='# Reward structure "a"\n3 0\n', trew='# Reward structure "b"\n3 4 0\n'), "m.trew",
        "it is called 'b', and the state rewards 'a'",
    ),
    "a reward of no transition": (
        dict(trew="3 4 1\n0 1 1 5\n"), "m.trew", "no transition from state 0, choice 1, to 1 to be rewarded"
    ),
    "a reward of no choice": (dict(trew="3 4 1\n1 1 1 5\n"), "m.trew", "no transition from state 1, choice 1, to 1"),
    "two rewards of one transition": (dict(trew="3 4 2\n1 0 1 5\n1 0 1 6\n"), "m.trew", "has two rewards"),
    "two rewards of one transition of several": (
        dict(trew="3 4 2\n0 0 1 5\n0 0 1 6\n"), "m.trew", "from state 0, choice 0, to 1 has two rewards"
    ),
    "fewer rewards of states than it says": (
        dict(srew="3 2\n1 2.5\n"), "m.srew", "first line says '3 2'; there are 3 states and 1 rewards"
    ),
    "fewer rewards than it says": (
        dict(trew="3 4 3\n0 0 1 1\n"), "m.trew", "first line says '3 4 3'; there are 3 states and 1 rewards"
    ),
    "rewards of another model": (dict(trew="4 5 1\n0 0 1 1\n"), "m.trew", "'4 5 1'; there are 3 states"),
    "a negative probability": (dict(tra="1 1 1\n0 0 0 -1\n"), "m.tra", "from state 0 to 0 it has -1, not"),
    "an action that is no text": (dict(tra=b"1 1 1\n0 0 0 1 \xff\n"), "m.tra", "line 2 holds .* not text in UTF-8"),
    "a value that is no text": (dict(sta=b"(x)\n0:(\xff)\n1:(1)\n2:(2)\n"), "m.sta", "line 2 holds .* not text"),
    "a label that is no text": (dict(lab=b'0="init" 1="\xff"\n0: 0\n'), "m.lab", "line 1 holds .* not text in UTF-8"),
    "an endless line": (dict(lab=b"x" * (columns.BLOCK + 10)), "m.lab", "line 1 is longer than"),
    "an endless line of numbers": (dict(tra=b"1 1 1\n" + b"1" * (2 * columns.BLOCK)), "m.tra", "line 2 is longer than"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "file", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_file_is_refused_by_name_and_line(tmp_path, changes, file, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        load(tmp_path, **changes)
    assert str(caught.value).startswith(repr(str(tmp_path / file)))


def test_rewards_of_the_same_name_are_refused(tmp_path):
    head = '# Reward structure "a"\n'
    for i in (1, 2):
        (tmp_path / f"m{i}.srew").write_text(head + "3 0\n")
    with pytest.raises(ValueError, match=r"m2\.srew': two reward structures are called 'a'"):
        load(tmp_path, srew=None, trew=None)


def test_names_of_variables_that_would_fill_the_memory_are_refused(tmp_path):
    states = 10_000
    tra = f"{states} {states} {states}\n" + "".join(f"{s} 0 0 1\n" for s in range(states))
    sta = f"({'x' * 10**6})\n" + "".join(f"{s}:({s})\n" for s in range(states))
    with pytest.raises(
        ValueError, match=r"m\.sta': line 1 has names of variables that are too long for the size of the"
    ):
        load(tmp_path, tra=tra, sta=sta, lab=None, srew=None, trew=None)


def test_a_link_that_leads_nowhere_is_not_passed_over(tmp_path):
    load(tmp_path, lab=None)
    (tmp_path / "m.lab").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"there is no file .*m\.lab"):
        cm.load(tmp_path / "m.tra", discount=0.9)


def test_no_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        cm.load(tmp_path / "none.tra", discount=0.9)
    (tmp_path / "folder.tra").mkdir()
    with pytest.raises(ValueError, match="is not a file but a folder"):
        cm.load(tmp_path / "folder.tra", discount=0.9)


def attempt(folder, changes):
    """Read files that may hold anything: a model, or one sentence with the name of one; and little memory for it."""
    tracemalloc.reset_peak()
    mdp, said = None, "m.tra"
    try:
        mdp = load(folder, **changes)
    except ValueError as error:
        said = str(error)
    assert re.search(r"m\.(tra|sta|lab|srew|trew)", said)
    assert tracemalloc.get_traced_memory()[1] < 80 * 2**20
    return mdp


@pytest.mark.parametrize("ending", FILES)
def test_damaged_files_are_read_or_refused_and_nothing_else(tmp_path, ending):
    tracemalloc.start()
    whole = FILES[ending].encode()
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b'0123456789 \n\r\t\0#"().,:=-+eEx\xff\xc3', np.uint8)
    refused = 0
    for _ in range(250):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), rng.integers(1, 4)):
            content[at] = rng.choice(letters) if rng.random() < 0.8 else rng.integers(0, 256)
        refused += attempt(tmp_path, {ending: bytes(content)}) is None
    for cut in range(len(whole)):
        attempt(tmp_path, {ending: whole[:cut]})
    for other in FILES:
        attempt(tmp_path, {ending: FILES[other]})
    tracemalloc.stop()
    assert refused > 50
