"""``cvxmdp sweep``: each point is that of a solve, files are written, and Ctrl-C keeps what is done."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys

import numpy as np
import pytest

import cvxmdp as cm


def solved(model, limit, per="step"):
    return cm.Problem(cm.load(model), "time", [cm.Budget("collision", at_most=limit, per=per)]).solve()


def test_each_point_is_that_of_a_solve(model, run):
    code, text, err = run("sweep", model, "collision", "--minimize", "time", "--values", "1e-9, 4e-4 2e-3", "--json")
    answer = json.loads(text)
    assert (code, err) == (0, "")
    assert (answer["limit"], answer["minimize"], answer["complete"]) == ("collision", "time", True)
    assert [point["status"] for point in answer["points"]] == ["INFEASIBLE", "OPTIMAL", "OPTIMAL"]
    mdp = cm.load(model)
    for point in answer["points"][1:]:
        assert point["value"] == pytest.approx(solved(model, point["limit"]).value, rel=3e-6)
        policy = {state: {} for state in mdp.states}
        for row in point["policy"]:
            policy[row["state"]][row["action"]] = row["probability"]
        assert mdp.evaluate(policy).costs == pytest.approx(point["costs"], rel=1e-6)


def test_from_to_and_points(model, run):
    arguments = ["--minimize", "time", "--from", "1e-3", "--to", "2e-3", "--points", "3", "--json"]
    _, text, _ = run("sweep", model, "collision", *arguments)
    assert [point["limit"] for point in json.loads(text)["points"]] == pytest.approx([1e-3, 1.5e-3, 2e-3])


def test_without_ends_the_limit_goes_as_far_as_it_matters(model, run):
    _, text, _ = run("sweep", model, "collision", "--minimize", "time", "--points", "4", "--json")
    points = json.loads(text)["points"]
    within = cm.Problem(cm.load(model), "time").range("collision")
    assert points[0]["limit"] == pytest.approx(within.tightest, rel=1e-4)
    assert points[-1]["limit"] == pytest.approx(within.loosest, rel=1e-4)
    assert points[-1]["value"] == pytest.approx(cm.Problem(cm.load(model), "time").solve().value, rel=3e-6)


def test_one_cost_against_another(model, run):
    code, text, _ = run("sweep", model, "collision", "--against", "time", "--points", "5", "--json")
    front = cm.Problem(cm.load(model), "time").pareto("time", "collision", points=5)
    answer = json.loads(text)
    assert code == 0
    assert [point["value"] for point in answer["points"]] == pytest.approx(front.values.tolist(), rel=3e-6)
    np.testing.assert_allclose(answer["breakpoints"], front.breakpoints, rtol=1e-6)


def test_the_table_reads_well_and_has_both_units(model, run):
    limit = ["--limit", "collision <= 0.1 per episode"]
    code, text, _ = run("sweep", model, "collision", "--minimize", "time", *limit, "--values", "1e-9,0.1,0.2")
    assert code == 0
    head, columns, *rows = text.splitlines()
    assert head == "least time for limits on collision from 1e-09 to 0.2"
    assert columns.split() == ["in", "total", "per", "step", "least", "price", "status"]
    assert rows[0].split()[2:] == ["-", "-", "INFEASIBLE"]
    assert [float(word) for word in rows[1].split()[:2]] == pytest.approx([0.1, 0.001])
    assert float(rows[1].split()[2]) == pytest.approx(solved(model, 0.1, "episode").value, rel=1e-6)
    assert max(map(len, text.splitlines())) <= 80


def test_a_curved_limit_of_a_problem_file_is_swept(model, tmp_path, run):
    (tmp_path / "problem.toml").write_text(
        'model = "grid.npz"\nminimize = "time"\n[[limits]]\nkind = "entropy"\nat_least = 1.0\nname = "spread"\n'
    )
    _, text, _ = run("sweep", tmp_path / "problem.toml", "spread", "--values", "2,3", "--json")
    for point in json.loads(text)["points"]:
        expected = cm.Problem(cm.load(model), "time", [cm.Entropy(point["limit"])]).solve()
        assert point["value"] == pytest.approx(expected.value, rel=3e-6)


def test_the_files_asked_for_are_written(tmp_path, run):
    mdp = cm.worlds.gridworld(size=4)
    mdp.with_cost("price", 0.5 * mdp.costs["time"]).save(tmp_path / "m.npz")
    files = ["--csv", tmp_path / "s.csv", "--report", tmp_path / "s.html", "--plot", tmp_path / "s.png"]
    code, text, _ = run(
        "sweep", tmp_path / "m.npz", "collision", "--minimize", "time", "--values", "1e-9,0.01,0.02", *files
    )
    assert code == 0
    assert "written to" in text
    with open(tmp_path / "s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["limit", "status", "value", "bound", "price", "time", "collision", "cost price"]
    assert [row["status"] for row in rows] == ["INFEASIBLE", "OPTIMAL", "OPTIMAL"]
    for row in rows[1:]:
        assert float(row["cost price"]) == pytest.approx(0.5 * float(row["time"]))
        assert float(row["price"]) <= 0
        expected = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=float(row["limit"]))]).solve()
        assert float(row["value"]) == pytest.approx(expected.value, rel=3e-6)
    assert "<html" in (tmp_path / "s.html").read_text(encoding="utf-8")
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"


def test_exit_codes(model, run):
    assert run("sweep", model, "collision", "--minimize", "time", "--values", "1e-10 1e-9")[0] == 3
    hurried = ["--method", "splitting", "--time-limit", "1e-9", "--limit", "time <= 0.9"]
    assert run("sweep", model, "collision", "--minimize", "time", "--values", "4e-4", *hurried)[0] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["colision", "--minimize", "time"], "did you mean 'collision'?"),
        (["collision", "--minimize", "time", "--values", "a"], "--values is 'a'"),
        (["collision", "--minimize", "time", "--values", ""], "at least one"),
        (["collision", "--minimize", "time", "--values", "1", "--from", "1"], "--values says all"),
        (["collision", "--minimize", "time", "--from", "1"], "--from and --to, both"),
        (["collision", "--minimize", "time", "--points", "0"], "--points is 0"),
        (["collision", "--minimize", "time", "--against", "time"], "leave --minimize"),
        (["collision", "--against", "tiem"], "did you mean 'time'?"),
        (["collision"], "say what to minimize"),
    ],
)
def test_bad_questions_are_named(arguments, said, model, run):
    code, text, err = run("sweep", model, *arguments)
    assert (code, text) == (2, "")
    assert said in err


def test_ctrl_c_keeps_the_points_that_are_done(tmp_path):
    """The signal comes once three points are done, wherever the sweep is then."""
    values = ",".join(f"{value:.6g}" for value in np.linspace(2e-4, 4e-2, 40))
    arguments = ["sweep", "gridworld:size=12", "collision", "--minimize", "time", "--limit", "entropy >= 1"]
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, *arguments, "--values", values, "--csv", tmp_path / "s.csv"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "three\n"
    process.send_signal(signal.SIGINT)
    text, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "the sweep was interrupted after" in err
    with open(tmp_path / "s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert 3 <= len(rows) < 40
    assert {row["status"] for row in rows} == {"OPTIMAL"}
    assert f"written to {tmp_path / 's.csv'}" in text


WATCHED = """
import time
from cvxmdp import cli
from cvxmdp.sweep import _Told

one, seen = _Told.one, []

def watched(self):
    seen.append(1)
    if len(seen) == 3:
        print("three", flush=True)
        time.sleep(0.2)  # the signal is on its way
    one(self)

_Told.one = watched
cli.main()
"""


@pytest.mark.parametrize("limit", ["entropy", "entropy(states)"])
def test_a_curved_limit_goes_from_where_it_can_be_obeyed(model, run, limit):
    """A past bug: the first of the points was infeasible, and half of them cost nothing."""
    code, text, err = run(
        "sweep", model, limit, "--minimize", "time", "--limit", f"{limit} >= 2", "--points", "3", "--json"
    )
    answer = json.loads(text)
    assert (code, err, answer["limit"]) == (0, "", limit)
    assert [point["status"] for point in answer["points"]] == ["OPTIMAL"] * 3
    least = cm.Problem(cm.load(model), "time").solve().value
    assert sum(point["value"] < least * (1 + 1e-4) for point in answer["points"]) == 1
