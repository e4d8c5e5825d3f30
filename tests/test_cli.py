"""The command line: exit codes, one sentence for bad input, files written, machine-readable output."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys

import pytest

import cvxmdp as cm
from cvxmdp import cli


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "grid.npz"
    cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)]).save(path)
    return path


def run(monkeypatch, capsys, *arguments):
    """Run ``cvxmdp`` with arguments; return exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["cvxmdp", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


def test_an_optimal_problem_exits_with_0_and_writes_solution_and_policy(model, tmp_path, monkeypatch, capsys):
    out = tmp_path / "answer"
    code, text, _ = run(
        monkeypatch, capsys, "solve", model, "--minimize", "time", "--subject-to", "collision <= 1e-3", "--out", out
    )
    assert code == 0
    assert text.startswith("OPTIMAL")
    problem = cm.Problem(cm.load(model), "time", [cm.Budget("collision", at_most=1e-3)])
    cm.load_solution(out / "solution.npz").certificate.check(problem)
    with open(out / "policy.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["state"] for row in rows} == set(cm.load(model).states)
    shares: dict[str, float] = {}
    for row in rows:
        shares[row["state"]] = shares.get(row["state"], 0.0) + float(row["probability"])
    assert all(abs(share - 1) < 1e-9 for share in shares.values())


def test_an_infeasible_problem_exits_with_3_and_writes_the_proof(model, tmp_path, monkeypatch, capsys):
    limits = ["--subject-to", "time <= 1e-3"]
    code, text, _ = run(monkeypatch, capsys, "solve", model, "--minimize", "time", *limits, "--out", tmp_path / "a")
    assert code == 3
    assert "INFEASIBLE" in text
    loaded = cm.load_solution(tmp_path / "a" / "solution.npz")
    assert loaded.infeasibility is not None
    loaded.certificate.check(cm.Problem(cm.load(model), "time", [cm.Budget("time", at_most=1e-3)]))


def test_an_infeasible_problem_is_explained_for_people_and_machines(model, monkeypatch, capsys):
    limits = ["--subject-to", "time <= 0.1", "--subject-to", "collision <= 1e-9, priority 2"]
    arguments = ["solve", model, "--minimize", "time", *limits]
    code, text, _ = run(monkeypatch, capsys, *arguments)
    assert code == 3
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "No policy obeys every limit" in words
    code, text, _ = run(monkeypatch, capsys, *arguments, "--json", "--when-infeasible", "priority")
    answer = json.loads(text)
    assert code == 3
    assert answer["infeasibility"]["compromise"] == "priority"
    assert set(answer["infeasibility"]["relax"]) == {"time", "collision"}
    assert answer["violations"]["time"] <= 1e-6 * 0.1  # met first
    amounts = [limit["amount"] for limit in answer["infeasibility"]["relax"].values()]
    assert any(amount is not None and amount > 0 for amount in amounts)


def test_a_limit_exits_with_4(model, monkeypatch, capsys):
    code, text, _ = run(
        monkeypatch, capsys, "solve", model, "--minimize", "time", "--subject-to", "collision <= 1e-4",
        "--method", "splitting", "--time-limit", "1e-9",
    )  # fmt: skip
    assert code == 4
    assert "TIME_LIMIT" in text


def test_json_holds_the_numbers_of_the_solution(model, monkeypatch, capsys):
    code, text, _ = run(
        monkeypatch, capsys, "solve", model, "--minimize", "time", "--subject-to", "collision <= 1e-3", "--json"
    )
    answer = json.loads(text)
    assert code == 0
    assert answer["status"] == "OPTIMAL"
    solution = cm.Problem(cm.load(model), "time", [cm.Budget("collision", at_most=1e-3)]).solve()
    assert answer["value"] == pytest.approx(solution.value, rel=1e-9)
    assert set(answer["costs"]) == {"time", "collision"}


def test_limits_may_be_lower_and_equal_and_the_discount_replaced(model, monkeypatch, capsys):
    arguments = ["--subject-to", "time >= 0.3", "--subject-to", "collision == 0.002", "--discount", "0.9", "--json"]
    code, text, _ = run(monkeypatch, capsys, "solve", model, "--minimize", "time", *arguments)
    answer = json.loads(text)
    assert code == 0
    assert answer["costs"]["time"] >= 0.3 * (1 - 1e-6)
    assert answer["costs"]["collision"] == pytest.approx(0.002, rel=2e-6)


BAD = {
    "no such file": (["solve", "nowhere.npz", "--minimize", "time"], "there is no file 'nowhere.npz'"),
    "no such cost": (["solve", "MODEL", "--minimize", "tim"], "this model has 'time', 'collision'"),
    "strict limit": (["solve", "MODEL", "--minimize", "time", "--subject-to", "time < 1"], "is not of the form"),
    "not a number": (["solve", "MODEL", "--minimize", "time", "--subject-to", "time <= x"], "is not of the form"),
    "limit on no cost": (["solve", "MODEL", "--minimize", "time", "--subject-to", "fuel <= 1"], "no cost 'fuel'"),
    "discount": (["solve", "MODEL", "--minimize", "time", "--discount", "1.5"], "between 0 and 1"),
    "method": (["solve", "MODEL", "--minimize", "time", "--method", "magic"], "'magic'"),
    "compromise": (["solve", "MODEL", "--minimize", "time", "--when-infeasible", "best"], "when_infeasible is 'best'"),
    "priority": (["solve", "MODEL", "--minimize", "time", "--subject-to", "time <= 1 priority 0"], "priority is 0"),
    "tolerance": (["solve", "MODEL", "--minimize", "time", "--tolerance", "0"], "tolerance is 0"),
    "nothing to minimize": (["solve", "MODEL"], "--minimize"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_input_exits_with_2_and_says_why_without_a_traceback(arguments, words, model, monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, *[model if a == "MODEL" else a for a in arguments])
    assert code == 2
    assert words in err
    assert "Traceback" not in err


def test_a_file_that_is_not_a_model_is_refused(tmp_path, monkeypatch, capsys):
    path = tmp_path / "text.npz"
    path.write_text("not an archive")
    code, _, err = run(monkeypatch, capsys, "solve", path, "--minimize", "time")
    assert code == 2
    assert "is not a cvxmdp model" in err


def test_what_cannot_be_written_is_found_out_before_the_solve(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cm.Problem, "solve", lambda *_, **__: pytest.fail("solved before the folder was tried"))
    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / "policy.csv").mkdir(parents=True)
    for out in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken", "/dev/null/x"):
        code, _, err = run(monkeypatch, capsys, "solve", model, "--minimize", "time", "--out", out)
        assert code == 2
        assert str(out) in err


def test_names_cannot_command_a_terminal_nor_a_spreadsheet(tmp_path, monkeypatch, capsys):
    """A past bug: they went to the screen and to policy.csv as they were."""
    states = ["\x1b[2J", '=HYPERLINK("http://x")', "+1", "-1", "@x", "\tx", "plain", "\ud800", "a,b"]
    mdp = cm.worlds.gridworld(size=3)
    costs = {"a\x1b[31mb": mdp.costs["time"], "collision": mdp.costs["collision"]}
    arguments = (mdp.state, mdp.action, mdp.transitions, costs, 0.9, mdp.initial, states, ["=a", "b", "c", "d"])
    cm.MDP.from_pairs(*arguments).save(tmp_path / "odd.npz")
    limit = ["--subject-to", "a\x1b[31mb <= 1e-9"]
    for more in ([], ["--json"], limit):
        code, text, err = run(
            monkeypatch, capsys, "solve", tmp_path / "odd.npz", "--minimize", "a\x1b[31mb", "--out", tmp_path, *more
        )
        assert code == (3 if more == limit else 0)
        assert "\x1b" not in text + err
    with open(tmp_path / "policy.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert {row[0] for row in rows} == {
        "\\x1b[2J", "'=HYPERLINK(\"http://x\")", "'+1", "'-1", "'@x", "'\\tx", "plain", "\\ud800", "a,b",
    }  # fmt: skip
    assert all(row[1] in ("'=a", "b", "c", "d") for row in rows)
    code, _, err = run(monkeypatch, capsys, "solve", tmp_path / "odd.npz", "--minimize", "no\x1b[2J such")
    assert code == 2
    assert "\x1b" not in err


def test_json_has_no_numbers_that_json_does_not_know(model, monkeypatch, capsys):
    limits = ["--subject-to", "time <= 1e-3"]
    _, text, _ = run(monkeypatch, capsys, "solve", model, "--minimize", "time", *limits, "--json")
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_ctrl_c_writes_the_best_policy_and_exits_with_4(tmp_path):
    cm.worlds.gridworld(size=40).save(tmp_path / "grid.npz")
    arguments = ["--minimize", "time", "--subject-to", "collision <= 1e-4", "--method", "splitting"]
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, "solve", tmp_path / "grid.npz", *arguments, "--out", tmp_path / "out"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"solving\n"
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 4
    assert b"INTERRUPTED" in text
    assert cm.load_solution(tmp_path / "out" / "solution.npz").status is cm.Status.INTERRUPTED
    assert (tmp_path / "out" / "policy.csv").stat().st_size > 0


WATCHED = """
import contextlib
from cvxmdp import cli, interrupts

flagged = interrupts.flagged

@contextlib.contextmanager
def watched():
    with flagged():
        print("solving", flush=True)
        yield

interrupts.flagged = watched
cli.main()
"""


def test_the_demo_decides_all_four_panels_and_draws_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    code, text, _ = run(monkeypatch, capsys, "demo", "--out", tmp_path / "demo")
    assert code == 0
    table = [line.split() for line in text.splitlines() if line.startswith("(")]
    assert [row[3] for row in table] == ["optimal", "optimal", "infeasible", "infeasible"]
    # Optima by HiGHS, nearest policies by a Clarabel QP on the same map.
    assert [row[4] for row in table] == ["0.4209", "0.5049", "0.9000", "0.6001"]
    assert max(map(len, text.replace(str(tmp_path / "demo"), "demo").splitlines())) <= 90
    words = " ".join(text.split())
    assert words.count("No policy obeys every limit. This is proven") == 2
    for picture in ("gridworld", "conflicts"):
        assert (tmp_path / "demo" / f"{picture}.png").read_bytes()[:4] == b"\x89PNG"
    for i in range(1, 5):
        cm.load_solution(tmp_path / "demo" / f"panel-{i}.npz")
