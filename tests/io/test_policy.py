"""Policies as tables: what is written is read again, and a wrong row is named by its line."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.io.policy import read_policy

MDP = cm.worlds.gridworld(size=3)
HOSTILE = ["=1+1", "+1", "-1", "@x", "\tx", "a,b", 'a"b', "a\nb", "<script>", "\x1b[2J", "é", " ", "", "\ud800"]


def named(states, actions):
    """A model whose states offer one action less each, under any names."""
    S, A = len(states), len(actions)
    state = np.repeat(np.arange(S), [A - s % A for s in range(S)])
    action = np.concatenate([np.arange(A - s % A) for s in range(S)])
    P = np.random.default_rng(0).dirichlet(np.ones(S), state.size)
    return cm.MDP.from_pairs(state, action, P, {"c": np.arange(state.size)}, 0.9, states=states, actions=actions)


def test_what_is_written_is_read_again(tmp_path):
    for mdp in (MDP, named(HOSTILE, HOSTILE[:3]), named(["x"], ["y"]), named(["0", "1"], ["0", "1"])):
        rng = np.random.default_rng(1)
        drawn = rng.random(mdp.num_pairs) * (rng.random(mdp.num_pairs) < 0.7) + 1e-12
        policy = mdp.policy(drawn / np.bincount(mdp.state, weights=drawn)[mdp.state])
        policy.save(tmp_path / "policy.csv")
        again = read_policy(mdp, tmp_path / "policy.csv")
        np.testing.assert_allclose(again.probabilities, policy.probabilities, rtol=1e-15)


def test_the_file_is_a_table_that_others_read(tmp_path):
    mdp = named(HOSTILE, ["=go", "stay"])
    mdp.policy(np.where(mdp.action == 0, 1.0, 0.0)).save(tmp_path / "policy.csv")
    with open(tmp_path / "policy.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["state", "action", "probability"]
    assert [row[1] for row in rows] == ["'=go"] * len(HOSTILE)
    assert not any(row[0].startswith(("=", "+", "-", "@", "\t")) for row in rows)


def test_probabilities_may_be_left_out_and_rows_be_in_any_order(tmp_path):
    path = tmp_path / "policy.csv"
    lines = [f"{state},right" for state in MDP.states]
    path.write_text("\ufeffstate,action\n" + "\r\n".join(reversed(lines)) + "\n\n", encoding="utf-8")
    assert read_policy(MDP, path).table() == [(state, "right", 1.0) for state in MDP.states]


def test_names_that_are_written_alike_are_not_guessed(tmp_path):
    mdp = named(["s"], ["=a", "'=a"])
    mdp.policy([1.0, 0.0]).save(tmp_path / "policy.csv")
    with pytest.raises(ValueError, match='line 2: "\'=a" may be either of two actions'):
        read_policy(mdp, tmp_path / "policy.csv")


def test_a_policy_is_written_to_a_csv_file(tmp_path):
    with pytest.raises(ValueError, match=r"does not end in \.csv"):
        MDP.policy([0] * 9).save(tmp_path / "policy.npz")


HEAD = "state,action,probability\n"
WRONG = {
    "nothing": ("", "line 1: the columns must be state, action, probability, not none"),
    "other columns": ("a,b\n", "not a, b"),
    "too few": (HEAD + "r0c0,up\n", "line 2: there are 2 entries; there must be 3"),
    "no state": (HEAD + "r0c0,up,1\nr0c9,up,1\n", "line 3: there is no state called 'r0c9'; did you mean"),
    "no action": (HEAD + "r0c0,upp,1\n", "line 2: there is no action called 'upp'; did you mean 'up'?"),
    "twice": (HEAD + "r0c0,up,0.5\nr0c0,up,0.5\n", "line 3: state 'r0c0' and action 'up' are there twice"),
    "no number": (HEAD + "r0c0,up,often\n", "line 2: the probability is 'often'"),
    "no whole": (HEAD + "r0c0,up,0.5\n", "no action for state r0c1"),
    "not one": (HEAD + "".join(f"{state},up,0.5\n" for state in MDP.states), "sum to 0.5, not 1"),
    "negative": (HEAD + "".join(f"{state},up,-1\n" for state in MDP.states), "must not be negative"),
    "not a number": (HEAD + "".join(f"{state},up,nan\n" for state in MDP.states), "must be finite"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_named_with_the_file_and_the_line(wrong, tmp_path):
    text, said = WRONG[wrong]
    path = tmp_path / "policy.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"policy\.csv") as caught:
        read_policy(MDP, path)
    assert said in str(caught.value)


def test_an_action_that_a_state_does_not_offer_is_named(tmp_path):
    mdp = named(["s", "t"], ["a", "b"])
    (tmp_path / "policy.csv").write_text("state,action\ns,a\nt,b\n")
    with pytest.raises(ValueError, match="takes action b in state t, which the state does not offer"):
        read_policy(mdp, tmp_path / "policy.csv")


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 200), cut=st.integers(0, 3), put=st.binary(max_size=5))
def test_damaged_files_give_a_policy_or_a_value_error(tmp_path, place, cut, put):
    path, said = tmp_path / "policy.csv", "policy.csv"
    MDP.policy(np.full(MDP.num_pairs, 0.25)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:place] + put + whole[place + cut :])
    try:
        read_policy(MDP, path)
    except ValueError as error:
        said = str(error)
    assert "policy.csv" in said
