"""A solution as a frame: what it holds is what the solution says, pair by pair."""

import sys

import numpy as np
import pandas as pd
import pytest

import cvxmdp as cm

PAIRS = dict(
    state=[0, 0, 1, 2], action=[0, 2, 1, 0],
    transitions=[[0.5, 0.5, 0], [0, 0, 1], [1, 0, 0], [0, 0.3, 0.7]],
    discount=0.9, initial=[1, 0, 0], states=["a, b", "<script>", "né\n"], actions=["=1+1", "go", "stay"],
)  # fmt: skip


def solved(costs, limits=()):
    mdp = cm.MDP.from_pairs(costs=costs, **PAIRS)
    return cm.Problem(mdp, next(iter(costs)), list(limits)).solve()


TIME, RISK = np.array([1.0, 2.0, 0.5, 3.0]), np.array([0.1, 0.0, 0.3, 0.0])


def test_a_row_for_each_pair_with_names_probabilities_visits_and_costs():
    solution = solved({"time": TIME, "risk": RISK}, [cm.Budget("risk", at_most=0.1)])
    frame = solution.to_frame()
    assert list(frame) == ["state", "action", "probability", "occupancy", "time", "risk"]
    assert frame["state"].tolist() == ["a, b", "a, b", "<script>", "né\n"]
    assert frame["action"].tolist() == ["=1+1", "stay", "go", "=1+1"]
    np.testing.assert_array_equal(frame["probability"], solution.policy.probabilities)
    np.testing.assert_array_equal(frame["occupancy"], solution.occupancy)
    np.testing.assert_array_equal(frame["time"], TIME)
    assert frame["occupancy"].sum() == pytest.approx(1, abs=1e-12)
    for name in ("time", "risk"):
        assert (frame["occupancy"] * frame[name]).sum() == pytest.approx(solution.costs[name], abs=1e-9)
    by_state = frame.groupby("state", sort=False)
    np.testing.assert_allclose(by_state["probability"].sum(), 1, rtol=1e-12)
    np.testing.assert_allclose(by_state["occupancy"].sum(), solution.visits, rtol=1e-9)
    assert (frame["probability"] > 0).sum() == 4  # the budget makes it randomize, so that all rows matter


def test_a_cost_with_the_name_of_a_column_gets_another():
    frame = solved({"state": TIME, "cost state": RISK, "occupancy": TIME}).to_frame()
    assert list(frame) == [
        "state", "action", "probability", "occupancy", "cost state", "cost cost state", "cost occupancy",
    ]  # fmt: skip
    np.testing.assert_array_equal(frame["cost state"], TIME)
    np.testing.assert_array_equal(frame["cost cost state"], RISK)


def test_a_solution_from_a_file_takes_costs_from_the_problem(tmp_path):
    problem = cm.Problem(cm.worlds.gridworld(size=3), "time", [cm.Budget("collision", at_most=0.05)])
    solution = problem.solve()
    solution.save(tmp_path / "answer.npz")
    again = cm.load_solution(tmp_path / "answer.npz")
    assert list(again.to_frame()) == ["state", "action", "probability", "occupancy"]
    pd.testing.assert_frame_equal(again.to_frame(problem), solution.to_frame())


def test_half_a_character_in_a_name_is_kept():
    mdp = cm.MDP.from_pairs([0], [0], [[1.0]], {"time": [1.0]}, 0.9, None, ["\ud800"])
    assert cm.Problem(mdp, "time").solve().to_frame()["state"].tolist() == ["\ud800"]


def test_states_without_names_are_their_numbers():
    frame = cm.Problem(cm.worlds.garnet(states=4, actions=2, branching=0.5, seed=0), "cost").solve().to_frame()
    assert frame["state"].tolist() == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert frame["action"].tolist() == ["0", "1"] * 4


def test_a_frame_may_be_changed_and_the_solution_stays():
    solution = solved({"time": TIME})
    frame = solution.to_frame()
    frame.loc[:, ["probability", "occupancy", "time"]] = 7.0
    assert solution.policy.probabilities.max() <= 1
    assert solution.problem.mdp.costs["time"].tolist() == TIME.tolist()


def test_the_frame_is_a_table_that_a_policy_is_read_from(tmp_path):
    """What is written from the frame with pandas is the policy again."""
    from cvxmdp.io.policy import read_policy

    mdp = cm.worlds.gridworld(size=3)
    solution = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=0.05)]).solve()
    solution.to_frame()[["state", "action", "probability"]].to_csv(tmp_path / "policy.csv", index=False)
    np.testing.assert_array_equal(
        read_policy(mdp, tmp_path / "policy.csv").probabilities, solution.policy.probabilities
    )


def test_without_pandas_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"frames need pandas; install it with: pip install \"cvxmdp\[table\]\""):
        solved({"time": TIME}).to_frame()
