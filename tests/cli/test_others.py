"""``cvxmdp simulate``, ``check``, ``info`` and ``convert``, and what they say of bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest

import cvxmdp as cm

ENDINGS = [".npz", ".umb", ".bin", ".tra", ".csv", ".parquet"]


@pytest.fixture
def answered(model, tmp_path):
    """A problem, its solution and policy in files."""
    problem = cm.Problem(cm.load(model), "time", [cm.Budget("collision", at_most=0.1, per="episode")])
    solution = problem.solve()
    solution.save(tmp_path / "solution.npz")
    solution.policy.save(tmp_path / "policy.csv")
    (tmp_path / "problem.toml").write_text(
        'model = "grid.npz"\nminimize = "time"\n[[limits]]\ncost = "collision"\nat_most = 0.1\nper = "episode"\n'
    )
    return problem, solution


# simulate


@pytest.mark.parametrize("answer", ["policy.csv", "solution.npz"])
def test_runs_are_those_of_the_library(answer, answered, model, tmp_path, run):
    arguments = ["simulate", model, tmp_path / answer, "--episodes", "300", "--seed", "3"]
    code, text, err = run(*arguments, "--json")
    expected = cm.load(model).simulate(answered[1].policy, episodes=300, seed=3)
    found = json.loads(text)
    assert (code, err) == (0, "")
    assert found["costs"] == pytest.approx(dict(expected.costs))
    assert found["exact"] == pytest.approx(dict(answered[1].costs), rel=1e-9)
    assert found["intervals"]["time"] == pytest.approx(list(expected.intervals["time"]))
    assert found["episodes"] == 300
    code, text, _ = run(*arguments)
    assert (code, text.strip()) == (0, str(expected))
    assert max(map(len, text.splitlines())) <= 80


def test_a_policy_of_another_model_is_refused(answered, tmp_path, run):
    for answer in ("policy.csv", "solution.npz"):
        code, _, err = run("simulate", "gridworld:size=4", tmp_path / answer)
        assert code == 2
        assert answer in err
    code, _, err = run("simulate", "gridworld:size=4", tmp_path / "none.csv")
    assert (code, "there is no file" in err) == (2, True)
    code, _, err = run("simulate", "gridworld:size=4", "policy.txt")
    assert (code, "neither a policy (.csv) nor a solution (.npz)" in err) == (2, True)
    code, _, err = run("simulate", tmp_path / "grid.npz", tmp_path / "policy.csv", "--episodes", "0")
    assert (code, "episodes is 0" in err) == (2, True)


# check


@pytest.mark.parametrize("source", ["grid.npz", "again.umb", "problem.toml"])
def test_a_true_solution_is_accepted(source, answered, model, tmp_path, run):
    cm.load(model).save(tmp_path / "again.umb")
    more = ["--discount", "0.99"] if source.endswith("umb") else []
    code, text, _ = run("check", tmp_path / source, tmp_path / "solution.npz", *more)
    assert code == 0
    assert text.startswith("OPTIMAL, proven to a relative tolerance of 1e-06.")
    code, text, _ = run("check", tmp_path / source, tmp_path / "solution.npz", *more, "--json")
    assert code == 0
    assert json.loads(text)["costs"] == pytest.approx(dict(answered[1].costs), rel=1e-9)


def test_a_solution_of_another_problem_is_refused(answered, model, tmp_path, run):
    solution = tmp_path / "solution.npz"
    for more in (
        ["--minimize", "collision", "--limit", "collision <= 0.1 per episode"],
        ["--minimize", "time", "--limit", "collision <= 0.05 per episode"],
        ["--minimize", "time"],
        ["--discount", "0.9"],
        ["--initial", "r1c1"],
        ["--tolerance", "1e-12"],
    ):
        code, text, err = run("check", model, solution, *more)
        assert (code, text) == (1, ""), more
        assert err.startswith("cvxmdp: refused: ")
    same = ["--minimize", "time", "--limit", "collision <= 0.1 per episode"]
    assert run("check", model, solution, *same)[0] == 0
    (tmp_path / "other.toml").write_text('model = "grid.npz"\nminimize = "time"\n')
    assert run("check", tmp_path / "other.toml", solution)[0] == 1
    assert run("check", model, model)[0] == 2


def test_a_policy_of_ones_own_is_judged(answered, model, tmp_path, run):
    problem, solution = answered
    code, text, _ = run("check", tmp_path / "problem.toml", tmp_path / "policy.csv", "--json")
    found = json.loads(text)
    assert (code, found["obeys"]) == (0, True)
    assert found["value"] == pytest.approx(solution.value, rel=1e-9)
    assert found["bound"] == pytest.approx(solution.bound, rel=3e-6)
    straight = problem.mdp.policy([3 if s % 6 < 5 else 1 for s in range(36)])
    straight.save(tmp_path / "own.csv")
    arguments = ["--minimize", "time", "--limit", "collision <= 1e-9"]
    code, text, _ = run("check", model, tmp_path / "own.csv", *arguments)
    assert code == 1
    assert text.startswith("It exceeds a limit; value ")
    expected = cm.Problem(problem.mdp, "time", [cm.Budget("collision", at_most=1e-9)]).check(straight)
    assert text.strip() == str(expected)
    assert max(map(len, text.splitlines())) <= 80
    code, _, err = run("check", model, tmp_path / "own.csv")
    assert (code, "say what to minimize" in err) == (2, True)


def test_both_units_of_a_limit_per_episode_are_shown(answered, model, tmp_path, run):
    _, text, _ = run("check", tmp_path / "problem.toml", tmp_path / "policy.csv")
    level = 100 * answered[1].costs["collision"]
    assert f"{level:.6g}"[:6] in text
    assert "of at most 0.1 in total (0.001 per step)" in " ".join(text.split())


# info


def test_a_model_is_examined(model, run):
    code, text, _ = run("info", model)
    expected = cm.load(model).examine()
    assert (code, text.strip()) == (0, str(expected))
    assert max(map(len, text.splitlines())) <= 80
    _, text, _ = run("info", model, "--json")
    found = json.loads(text)
    assert (found["states"], found["pairs"]) == (36, 144)
    assert found["absorbing"] == ["r5c5"]
    assert found["costs"]["time"]["range"] == pytest.approx(list(expected.costs["time"].range), rel=1e-6)


def test_solutions_and_problems_are_shown(answered, tmp_path, run):
    code, text, _ = run("info", tmp_path / "solution.npz")
    assert (code, text.strip()) == (0, str(cm.load_solution(tmp_path / "solution.npz")))
    _, text, _ = run("info", tmp_path / "solution.npz", "--json")
    assert json.loads(text)["value"] == pytest.approx(answered[1].value)
    code, text, _ = run("info", tmp_path / "problem.toml")
    assert code == 0
    assert text.splitlines()[:2] == ["minimize time", "limit collision: at most 0.1 in total (0.001 per step)"]


def test_worlds_and_formats_are_listed(run):
    code, text, _ = run("info")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80
    for name in ("gridworld", "queue", "size, discount, slip", ".parquet", ".toml"):
        assert name in text
    assert "comm" not in text.replace(",", "").split()  # ranks are the launcher's


def test_damaged_files_are_named(tmp_path, run):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04nothing")
    for name in ("x.npz", "none.npz"):
        code, text, err = run("info", tmp_path / name)
        assert (code, text) == (2, "")
        assert name in err
        assert err.count("\n") == 1


# convert


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_is_written_and_read_again(ending, model, tmp_path, run):
    code, text, _ = run("convert", model, tmp_path / f"a{ending}")
    assert (code, "36 states, 144 pairs" in text) == (0, True)
    assert ("--discount 0.99" in text) == (ending != ".npz")
    bare, first = ending in (".csv", ".parquet", ".bin"), "0" if ending == ".bin" else "r0c0"
    assert (f"--initial {first}" in text) == bare
    assert ("It holds no labels: obstacle, destination" in text) == bare
    assert ("It holds no names of states and actions" in text) == (ending == ".bin")
    given = ["--discount", "0.99", "--initial", first]
    assert run("convert", tmp_path / f"a{ending}", tmp_path / "back.npz", *given)[0] == 0
    mdp, back = cm.load(model), cm.load(tmp_path / "back.npz")
    assert back.discount == 0.99
    assert tuple(back.states) == (tuple(map(str, range(36))) if ending == ".bin" else tuple(mdp.states))
    policy = np.full(mdp.num_pairs, 0.25)
    assert back.evaluate(policy).costs == pytest.approx(mdp.evaluate(policy).costs, rel=1e-12)


def test_between_files_without_a_discount_none_is_asked_for(model, tmp_path, run):
    cm.load(model).save(tmp_path / "a.csv")
    assert run("convert", tmp_path / "a.csv", tmp_path / "b.parquet")[0] == 0
    code, _, err = run("convert", tmp_path / "a.csv", tmp_path / "b.npz")
    assert (code, "--discount 0.99" in err) == (2, True)
    assert not (tmp_path / "b.npz").exists()


def test_worlds_are_written(tmp_path, run):
    assert run("convert", "queue:capacity=7", tmp_path / "q.npz")[0] == 0
    assert cm.load(tmp_path / "q.npz").num_states == cm.worlds.queue(7).num_states


def test_what_cannot_be_written_is_named(model, tmp_path, run):
    for out, said in ((tmp_path / "a.txt", ".txt"), (tmp_path / "no" / "a.npz", "there is no folder"), (".npz", "")):
        code, _, err = run("convert", model, out)
        assert code == 2
        assert said in err
