"""Models from a rule: what is reached, in which order, under which names, and what is said of a wrong rule."""

import itertools
import logging
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.io import rule


def walk(size):
    """A walk on a line with ends that hold, its cost on transitions."""

    def step(place, move):
        target = min(max(place + (1 if move == "right" else -1), 0), size - 1)
        return [(0.75, target, {"way": abs(target - place)}), (0.25, place, {})]

    return step


def test_states_are_numbered_as_found_and_costs_are_averaged():
    mdp = cm.MDP.from_function(1, ["right", "left"], walk(4), 0.9)
    assert mdp.states == ("1", "2", "0", "3")
    assert mdp.actions == ("right", "left")
    np.testing.assert_array_equal(mdp.initial, [1, 0, 0, 0])
    expected = np.zeros((8, 4))
    order, where = [1, 2, 0, 3], {1: 0, 2: 1, 0: 2, 3: 3}
    way = np.zeros(8)
    for i, (place, move) in enumerate(itertools.product(order, [1, -1])):
        target = min(max(place + move, 0), 3)
        expected[i, where[target]] += 0.75
        expected[i, where[place]] += 0.25
        way[i] = 0.75 * (target != place)
    np.testing.assert_array_equal(sp.csr_array(mdp.transitions).toarray(), expected)
    np.testing.assert_array_equal(mdp.costs["way"], way)


@given(st.data())
def test_any_model_comes_back_from_its_rule(data):
    """A table written as a rule gives the table back, with states and actions in the order of their discovery."""
    size = data.draw(st.integers(1, 5))
    offered = [data.draw(st.sets(st.integers(0, 3), min_size=1)) for _ in range(size)]
    weights = st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(any)
    table = {(s, a): np.array(data.draw(weights), float) for s in range(size) for a in offered[s]}
    table = {pair: row / row.sum() for pair, row in table.items()}
    price = {pair: data.draw(st.floats(-1e8, 1e8)) for pair in table}

    def step(s, a):
        return ((float(p), t) for t, p in enumerate(table[s, a])), {"price": price[s, a]}

    mdp = cm.MDP.from_function(0, lambda s: offered[s], step, 0.5)
    reached = {0}
    while more := {t for s in reached for a in offered[s] for t in np.flatnonzero(table[s, a]).tolist()} - reached:
        reached |= more
    assert sorted(map(int, mdp.states)) == sorted(reached)
    P = sp.csr_array(mdp.transitions).toarray()
    pairs = {
        (int(mdp.states[s]), int(mdp.actions[a])): i for i, (s, a) in enumerate(zip(mdp.state, mdp.action, strict=True))
    }
    assert set(pairs) == {pair for pair in table if pair[0] in reached}
    for pair, i in pairs.items():
        np.testing.assert_allclose(P[i], table[pair][[int(name) for name in mdp.states]], rtol=0, atol=1e-15)
        assert mdp.costs["price"][i] == price[pair]


def test_a_world_by_its_rule_is_the_same_model():
    """The queue of cm.worlds, told in six lines."""
    speeds, arrival, capacity = (0.0, 0.2, 0.4, 0.6, 0.8), 0.5, 12
    world = cm.worlds.queue(capacity=capacity)

    def step(length, speed):
        fewer = max(length - 1, 0)
        outcomes = [
            (speed * (1 - arrival), fewer),
            (speed * arrival, min(fewer + 1, capacity)),
            ((1 - speed) * (1 - arrival), length),
            ((1 - speed) * arrival, min(length + 1, capacity), {"loss": float(length == capacity)}),
        ]
        return outcomes, {"power": speed**3, "delay": length}

    mdp = cm.MDP.from_function(0, speeds, step, world.discount)
    assert mdp.num_states == world.num_states
    np.testing.assert_allclose(mdp.transitions.toarray(), world.transitions.toarray(), atol=1e-15)
    for name in world.costs:
        np.testing.assert_allclose(mdp.costs[name], world.costs[name], atol=1e-15)


def test_ragged_actions_are_numbered_by_first_offer():
    offers = {"a": ["y", "x"], "b": ["z", "x"], "c": ["y"]}
    mdp = cm.MDP.from_function(
        "a", lambda s: offers[s], lambda s, a: [(1, {"x": "b", "y": "c", "z": "a"}[a], {"n": 1})], 0.5
    )
    assert mdp.states == ("a", "c", "b")
    assert mdp.actions == ("y", "x", "z")
    assert [(mdp.states[s], mdp.actions[a]) for s, a in zip(mdp.state, mdp.action, strict=True)] == [
        ("a", "y"), ("a", "x"), ("c", "y"), ("b", "x"), ("b", "z"),
    ]  # fmt: skip


def test_start_may_be_a_distribution_and_labels_are_functions():
    mdp = cm.MDP.from_function(
        {3: 0.25, 0: 0.75, 9: 0.0}, ["left"], walk(10), 0.9, labels={"low": lambda s: s < 2, "none": lambda s: False}
    )
    assert mdp.states == ("3", "0", "2", "1")  # 9 has no probability
    np.testing.assert_array_equal(mdp.initial, [0.25, 0.75, 0, 0])
    np.testing.assert_array_equal(mdp.labels["low"], [1, 3])
    assert mdp.labels["none"].size == 0


def test_probabilities_may_be_any_real_numbers():
    third = Fraction(1, 3)
    mdp = cm.MDP.from_function(0, [0], lambda s, a: [(third, 0, {"c": third}), (np.float32(2 / 3), 0, {"c": 0})], 0.5)
    assert mdp.costs["c"][0] == pytest.approx(1 / 9)


def test_names_are_what_str_gives_else_repr():
    turn = {1: "1", "1": 2, 2: 1}
    mdp = cm.MDP.from_function(1, ["go"], lambda s, a: [(1.0, turn[s], {"time": 1})], 0.5)
    assert mdp.states == ("1", "'1'", "2")


def test_hostile_names_are_kept():
    turn = {'<script>,"\n': "=1+1", "=1+1": "ä", "ä": '<script>,"\n'}
    mdp = cm.MDP.from_function("ä", ["go"], lambda s, a: [(1.0, turn[s], {"time": 1})], 0.5)
    assert mdp.states == ("ä", '<script>,"\n', "=1+1")


@dataclass(frozen=True)
class Alike:
    number: int

    def __repr__(self):
        return "alike"


def refused(words, start=0, actions=(0,), step=lambda s, a: [(1.0, s, {"c": 1.0})], discount=0.9, **options):
    with pytest.raises(ValueError, match=words):
        cm.MDP.from_function(start, actions, step, discount, **options)


@pytest.mark.parametrize(
    ("words", "outcomes"),
    [
        (r"of state 0, action go sum to 0\.9, not 1", [(0.5, 0, {"c": 1}), (0.4, 0)]),
        (r"the probability -0\.5 to an outcome of state 0, action go", [(-0.5, 0), (1.5, 0)]),
        (r"the probability nan to an outcome of state 0", [(float("nan"), 0)]),
        (r"the probability '1' to an outcome", [("1", 0)]),
        (r"next state \[1\] of state 0, action go is a list, which cannot be hashed; use tuples", [(1.0, [1])]),
        (r"returned nothing for state 0, action go; .*leave it out of actions", []),
        (r"returned nothing for state 0, action go", None),
        (r"step returned \(1\.0, 0\) for state 0, action go; give a list", (1.0, 0)),
        (r"step returned 3 for state 0, action go; give a list", 3),
        (r"step returned \{0: 1\.0\} for state 0", {0: 1.0}),
        (r"step returned 'ab' among the outcomes of state 0", ["ab"]),
        (r"step returned \(1\.0, 0, \{\}, True\) among the outcomes", [(1.0, 0, {}, True)]),
        (r"the costs of state 0, action go are 1\.0; give them by name", [(1.0, 0, 1.0)]),
        (r"cost 'c' of state 0, action go is 'much'; it must be a number", [(1.0, 0, {"c": "much"})]),
        (r"cost 'c' of state 0, action go is None", ([(1.0, 0)], {"c": None})),
        (r"has the name 3; it must be a non-empty string", [(1.0, 0, {3: 1.0})]),
        (r"cost 'c' is inf in state 0, action go; costs must be finite", [(1.0, 0, {"c": float("inf")})]),
        (r"step gave no costs", [(1.0, 0)]),
    ],
)
def test_wrong_outcomes_are_named(words, outcomes):
    refused(words, actions=["go"], step=lambda s, a: outcomes)


def test_wrong_arguments_are_named():
    refused("actions is empty", actions=[])
    refused("actions in state 0 is empty; every state needs one", actions=lambda s: [])
    refused("actions must be a list, not 'left'", actions="left")
    refused("actions in state 0 must be a list, not None", actions=lambda s: None)
    refused("actions holds an action twice: 1, 2, 1", actions=[1, 2, 1])
    refused(r"action \[1\] is a list, which cannot be hashed", actions=[[1]])
    refused("step must be a function", step=[])
    refused("discount is 1.0", discount=1.0)
    refused("max_states is 0", max_states=0)
    refused("max_states is True", max_states=True)
    refused("label 'x' must be a function of a state", labels={"x": [0]})
    refused("labels must be a mapping of names to functions of a state, not a list", labels=["x"])
    refused(r"start is \[0, 0\], a list, which cannot be hashed", start=[0, 0])
    refused("start sum to 0.5, not 1", start={0: 0.5})
    refused("start sum to 0, not 1", start={})
    refused("start gives state 0 1.5; give a probability", start={0: 1.5})
    refused(
        "2 different states have the name 'alike'; .*__repr__",
        start=Alike(0),
        step=lambda s, a: [(1, Alike(1 - s.number), {"c": 1})],
    )


def test_too_many_states_show_what_grows():
    refused(
        r"more than 1 000 states can be reached, the last of them: \(998, 'x'\); \(999, 'x'\); \(1000, 'x'\)\. If "
        "something grows there without end, bound it in step; else raise max_states",
        start=(0, "x"),
        step=lambda s, a: [(1.0, (s[0] + 1, "x"), {"c": 1.0})],
        max_states=1000,
    )
    assert cm.MDP.from_function(0, ["left"], walk(1000), 0.9, max_states=1).num_states == 1


def test_what_step_raises_comes_through_with_its_place():
    def step(s, a):
        raise ZeroDivisionError("own")

    with pytest.raises(ZeroDivisionError, match="own") as caught:
        cm.MDP.from_function("here", ["go"], step, 0.9)
    assert getattr(caught.value, "__notes__", ["in step(here, go)"]) == ["in step(here, go)"]

    def later(s, a):
        yield (1.0, 0)
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        cm.MDP.from_function("here", ["go"], later, 0.9)


def test_what_actions_raises_comes_through_with_its_place():
    def actions(s):
        yield "go"
        raise ZeroDivisionError("own")

    with pytest.raises(ZeroDivisionError, match="own") as caught:
        cm.MDP.from_function("here", actions, walk(2), 0.9)
    assert getattr(caught.value, "__notes__", ["in actions(here)"]) == ["in actions(here)"]


def test_progress_is_logged_where_there_is_no_terminal(caplog, monkeypatch, capsys):
    monkeypatch.setattr(rule, "WAIT", 0.0)
    with caplog.at_level(logging.INFO, logger="cvxmdp"):
        cm.MDP.from_function(0, ["right"], walk(4), 0.9, progress=False)
        assert not caplog.messages
        cm.MDP.from_function(0, ["right"], walk(4), 0.9)
    assert caplog.messages[0] == "explored 1 of 2 known states"
    assert caplog.messages[-1] == "explored 4 of 4 known states"
    assert capsys.readouterr() == ("", "")


def test_nothing_is_said_within_a_second(caplog):
    with caplog.at_level(logging.INFO, logger="cvxmdp"):
        cm.MDP.from_function(0, ["right"], walk(4), 0.9)
    assert not caplog.messages


def test_a_terminal_sees_one_line_and_ctrl_c_ends_it(monkeypatch, capsys):
    monkeypatch.setattr(rule, "WAIT", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes standard error for a terminal

    def step(s, a):
        if s == 3:
            raise KeyboardInterrupt
        return [(1.0, s + 1, {"c": 1.0})]

    with pytest.raises(KeyboardInterrupt):
        cm.MDP.from_function(0, [0], step, 0.9)
    said = capsys.readouterr()
    assert said.out == ""
    assert "known states" in said.err
    assert said.err.endswith("\x1b[?25h\r\x1b[1A\x1b[2K") or "\x1b[?25h" in said.err  # the cursor is back
