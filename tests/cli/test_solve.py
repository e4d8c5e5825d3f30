"""``cvxmdp solve``, ``check`` of its solutions and ``demo``: exit codes, one sentence for bad input, files, JSON."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.io.policy import read_policy


def test_an_optimal_problem_exits_with_0_and_writes_solution_and_policy(model, tmp_path, run):
    out = tmp_path / "answer"
    code, text, _ = run("solve", model, "--minimize", "time", "--subject-to", "collision <= 1e-3", "--out", out)
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


def test_an_infeasible_problem_exits_with_3_and_writes_the_proof(model, tmp_path, run):
    limits = ["--subject-to", "time <= 1e-3"]
    code, text, _ = run("solve", model, "--minimize", "time", *limits, "--out", tmp_path / "a")
    assert code == 3
    assert "INFEASIBLE" in text
    loaded = cm.load_solution(tmp_path / "a" / "solution.npz")
    assert loaded.infeasibility is not None
    loaded.certificate.check(cm.Problem(cm.load(model), "time", [cm.Budget("time", at_most=1e-3)]))


def test_an_infeasible_problem_is_explained_for_people_and_machines(model, run):
    limits = ["--subject-to", "time <= 0.1", "--subject-to", "collision <= 1e-9, priority 2"]
    arguments = ["solve", model, "--minimize", "time", *limits]
    code, text, _ = run(*arguments)
    assert code == 3
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "No policy obeys every limit" in words
    code, text, _ = run(*arguments, "--json", "--when-infeasible", "priority")
    answer = json.loads(text)
    assert code == 3
    assert answer["infeasibility"]["compromise"] == "priority"
    assert set(answer["infeasibility"]["relax"]) == {"time", "collision"}
    assert answer["violations"]["time"] <= 1e-6 * 0.1  # met first
    amounts = [limit["amount"] for limit in answer["infeasibility"]["relax"].values()]
    assert any(amount is not None and amount > 0 for amount in amounts)


def test_a_limit_exits_with_4(model, run):
    code, text, _ = run("solve", model, "--minimize", "time", "--subject-to", "collision <= 1e-4",
        "--method", "splitting", "--time-limit", "1e-9",
    )  # fmt: skip
    assert code == 4
    assert "TIME_LIMIT" in text


def test_json_holds_the_numbers_of_the_solution(model, run):
    limits = ["--limit", "collision <= 0.1 per episode", "--limit", "time <= 0.9"]
    code, text, err = run("solve", model, "--minimize", "time", *limits, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(text)
    mdp = cm.load(model)
    problem = cm.Problem(mdp, "time", [cm.Budget("collision", 0.1, per="episode"), cm.Budget("time", at_most=0.9)])
    solution = problem.solve()
    assert answer["status"] == "OPTIMAL"
    assert (answer["minimize"], answer["discount"]) == ("time", 0.99)
    for name in ("value", "bound"):
        assert answer[name] == pytest.approx(getattr(solution, name), rel=1e-9)
    for name in ("costs", "levels", "violations", "prices"):
        assert answer[name] == pytest.approx(dict(getattr(solution, name)), rel=1e-9, abs=1e-12)
    collision, time = answer["limits"]
    assert (collision["at_most"], collision["in_total"]["at_most"]) == pytest.approx((0.001, 0.1))
    assert collision["in_total"]["level"] == pytest.approx(100 * solution.levels["collision"])
    assert collision["words"] == "at most 0.1 in total (0.001 per step)"
    assert (time["at_least"], time["in_total"]) == (None, None)
    ranges = solution.price_ranges()
    assert set(answer["price_ranges"]) == set(ranges)
    assert answer["price_ranges"]["collision"]["low"] == pytest.approx(ranges["collision"].low, rel=1e-6)
    assert collision["price_range"] == answer["price_ranges"]["collision"]
    assert "proof that no policy does better" in answer["certificate"]
    policy = {state: {} for state in mdp.states}
    for row in answer["policy"]:
        policy[row["state"]][row["action"]] = row["probability"]
    assert mdp.evaluate(policy).costs == pytest.approx(dict(solution.costs), rel=1e-9)


OTHERS = {
    "entropy >= 2.5": cm.Entropy(2.5),
    "entropy(states) >= 2": cm.Entropy(2.0, "states"),
    "visits(r5c5) <= 0.5": cm.StateBounds(upper={"r5c5": 0.5}),
    "visits(r0c1) >= 0.1": cm.StateBounds(lower={"r0c1": 0.1}),
    "distance(POLICY) <= 0.2": lambda d: cm.NormBall(d, 0.2),
    "kl(POLICY) <= 0.2": lambda d: cm.KLBall(d, 0.2),
}


@pytest.mark.parametrize("text", OTHERS)
def test_limits_that_are_not_on_a_cost(text, model, tmp_path, run):
    mdp = cm.load(model)
    even = mdp.policy(np.full(mdp.num_pairs, 0.25))
    even.save(tmp_path / "even.csv")
    flag = text.replace("POLICY", str(tmp_path / "even.csv"))
    code, out, _ = run("solve", model, "--minimize", "time", "--limit", flag, "--json")
    limit = OTHERS[text]
    limit = limit(mdp.evaluate(even).occupancy) if callable(limit) else limit
    expected = cm.Problem(mdp, "time", [limit]).solve()
    assert code == 0
    assert json.loads(out)["value"] == pytest.approx(expected.value, rel=3e-6)
    assert expected.value > 1.01 * cm.Problem(mdp, "time").solve().value  # the limit matters


def test_a_cost_is_maximized_and_costs_are_summed(model, run):
    mdp = cm.load(model)
    _, text, _ = run("solve", model, "--maximize", "collision", "--limit", "time<=0.5", "--json")
    expected = cm.Problem(mdp, maximize="collision", subject_to=[cm.Budget("time", at_most=0.5)]).solve()
    assert json.loads(text)["value"] == pytest.approx(expected.value, rel=3e-6)
    assert json.loads(text)["maximize"] == "collision"
    _, text, _ = run("solve", model, "--minimize", "time", "--minimize", "collision", "--json")
    expected = cm.Problem(mdp, ["time", "collision"]).solve()
    assert json.loads(text)["value"] == pytest.approx(expected.value, rel=3e-6)


@pytest.mark.parametrize("ending", [".npz", ".umb", ".tra", ".csv", ".parquet"])
def test_every_format_gives_the_same_answer(ending, model, tmp_path, run):
    path = tmp_path / f"again{ending}"
    cm.load(model).save(path)
    arguments = ["--minimize", "time", "--limit", "collision <= 1e-3", "--json"]
    _, text, _ = run("solve", path, *arguments, "--discount", "0.99", "--initial", "r0c0")
    expected = cm.Problem(cm.load(model), "time", [cm.Budget("collision", at_most=1e-3)]).solve()
    assert json.loads(text)["value"] == pytest.approx(expected.value, rel=3e-6)
    if ending != ".npz":
        code, _, err = run("solve", path, *arguments)
        assert (code, "--discount 0.99" in err) == (2, True)


def test_a_problem_file_is_solved_and_flags_add_to_it(model, tmp_path, run):
    path = tmp_path / "problem.toml"
    path.write_text(
        'model = "grid.npz"\nminimize = "time"\n[[limits]]\ncost = "collision"\nat_most = 1e-3\n'
        "[options]\ntolerance = 1e-4\n"
    )
    mdp = cm.load(model)
    budget = cm.Budget("collision", at_most=1e-3)
    _, text, _ = run("solve", path, "--json")
    assert json.loads(text)["value"] == pytest.approx(cm.Problem(mdp, "time", [budget]).solve().value, rel=1e-4)
    assert json.loads(text)["tolerance"] == 1e-4
    _, text, _ = run("solve", path, "--limit", "time >= 0.2", "--tolerance", "1e-7", "--discount", "0.9", "--json")
    answer = json.loads(text)
    assert set(answer["levels"]) == {"collision", "time"}
    assert (answer["tolerance"], answer["discount"]) == (1e-7, 0.9)
    _, text, _ = run("solve", path, "--maximize", "time", "--json")
    assert json.loads(text)["maximize"] == "time"


def test_the_files_asked_for_are_written(model, tmp_path, run):
    files = {option: tmp_path / name for option, name in (
        ("--out", "s.npz"), ("--policy", "p.csv"), ("--report", "r.html"), ("--plot", "p.svg"))}  # fmt: skip
    arguments = [word for pair in files.items() for word in pair]
    code, text, _ = run("solve", model, "--minimize", "time", "--limit", "collision <= 1e-3", *arguments)
    assert code == 0
    assert "written to" in text
    solution = cm.load_solution(files["--out"])
    assert read_policy(cm.load(model), files["--policy"]).table() == solution.policy.table()
    assert "Optimal, and proven" in files["--report"].read_text(encoding="utf-8")
    assert files["--plot"].read_text(encoding="utf-8").startswith("<?xml")


def test_limits_may_be_lower_and_equal_and_the_discount_replaced(model, run):
    arguments = ["--subject-to", "time >= 0.3", "--subject-to", "collision == 0.002", "--discount", "0.9", "--json"]
    code, text, _ = run("solve", model, "--minimize", "time", *arguments)
    answer = json.loads(text)
    assert code == 0
    assert answer["costs"]["time"] >= 0.3 * (1 - 1e-6)
    assert answer["costs"]["collision"] == pytest.approx(0.002, rel=2e-6)


BAD = {
    "no such file": (["solve", "nowhere.npz", "--minimize", "time"], "there is no file 'nowhere.npz'"),
    "no such cost": (["solve", "MODEL", "--minimize", "tim"], "did you mean 'time'?"),
    "strict limit": (["solve", "MODEL", "--minimize", "time", "--subject-to", "time < 1"], "is not of the form"),
    "not a number": (["solve", "MODEL", "--minimize", "time", "--subject-to", "time <= x"], "is not of the form"),
    "limit on no cost": (
        ["solve", "MODEL", "--minimize", "time", "--subject-to", "fuel <= 1"],
        "no cost called 'fuel'",
    ),
    "discount": (["solve", "MODEL", "--minimize", "time", "--discount", "1.5"], "between 0 and 1"),
    "method": (["solve", "MODEL", "--minimize", "time", "--method", "magic"], "'magic'"),
    "compromise": (["solve", "MODEL", "--minimize", "time", "--when-infeasible", "best"], "when_infeasible is 'best'"),
    "priority": (["solve", "MODEL", "--minimize", "time", "--subject-to", "time <= 1 priority 0"], "priority is 0"),
    "tolerance": (["solve", "MODEL", "--minimize", "time", "--tolerance", "0"], "tolerance is 0"),
    "nothing to minimize": (["solve", "MODEL"], "say what to minimize or maximize, as in --minimize time"),
    "both senses": (["solve", "MODEL", "--minimize", "time", "--maximize", "time"], "one of them"),
    "no such world": (["solve", "gridwold", "--minimize", "time"], "did you mean 'gridworld'?"),
    "no such first state": (["solve", "MODEL", "--minimize", "time", "--initial", "r9c9"], "r9c9"),
    "per day": (["solve", "MODEL", "--minimize", "time", "--limit", "time <= 1 per day"], "is not of the form"),
    "an entropy above": (["solve", "MODEL", "--minimize", "time", "--limit", "entropy <= 1"], "entropy goes with >="),
    "entropy of what": (["solve", "MODEL", "--minimize", "time", "--limit", "entropy(x) >= 1"], "'x'"),
    "an entropy per episode": (
        ["solve", "MODEL", "--minimize", "time", "--limit", "entropy >= 1 per episode"],
        "goes with a cost",
    ),
    "too large an entropy": (["solve", "MODEL", "--minimize", "time", "--limit", "entropy >= 99"], "99"),
    "visits of what": (["solve", "MODEL", "--minimize", "time", "--limit", "visits >= 1"], "visits(STATE) >= 1"),
    "distance to what": (
        ["solve", "MODEL", "--minimize", "time", "--limit", "distance(x.csv) <= 1"],
        "no file 'x.csv'",
    ),
    "no number": (["solve", "MODEL", "--tolerance", "x"], "tolerance"),
    "no such option": (["solve", "MODEL", "--minimise", "time"], "--minimize"),
    "no such command": (["sole"], "'solve'"),
    "no model": (["solve"], "MODEL"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_input_exits_with_2_and_says_why_without_a_traceback(arguments, words, model, run):
    code, _, err = run(*[model if a == "MODEL" else a for a in arguments])
    assert code == 2
    assert words in err
    assert "Traceback" not in err


def test_a_file_that_is_not_a_model_is_refused(tmp_path, run):
    path = tmp_path / "text.npz"
    path.write_text("not an archive")
    code, _, err = run("solve", path, "--minimize", "time")
    assert code == 2
    assert "is not a cvxmdp model" in err


def test_what_cannot_be_written_is_found_out_before_the_solve(model, tmp_path, run, monkeypatch):
    monkeypatch.setattr(cm.Problem, "solve", lambda *_, **__: pytest.fail("solved before the folder was tried"))
    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / "policy.csv").mkdir(parents=True)
    for out in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken", "/dev/null/x"):
        code, _, err = run("solve", model, "--minimize", "time", "--out", out)
        assert code == 2
        assert str(out) in err
    for option, path, said in (
        ("--policy", "policy.txt", "must end in .csv"),
        ("--report", tmp_path / "none" / "r.html", "there is no folder"),
        ("--plot", tmp_path / "p.exe", "must end in .png or .svg or .pdf"),
        ("--out", tmp_path / "taken.npz", "is a folder"),
    ):
        (tmp_path / "taken.npz").mkdir(exist_ok=True)
        code, _, err = run("solve", model, "--minimize", "time", option, path)
        assert (code, said in err) == (2, True), err
    same = tmp_path / "policy.csv"
    code, _, err = run("solve", model, "--minimize", "time", "--out", tmp_path, "--policy", same)
    assert (code, "another option names too" in err) == (2, True)


def test_names_cannot_command_a_terminal_nor_a_spreadsheet(tmp_path, run):
    """A past bug: they went to the screen and to policy.csv as they were."""
    states = ["\x1b[2J", '=HYPERLINK("http://x")', "+1", "-1", "@x", "\tx", "plain", "\ud800", "a,b"]
    mdp = cm.worlds.gridworld(size=3)
    costs = {"a\x1b[31mb": mdp.costs["time"], "collision": mdp.costs["collision"]}
    arguments = (mdp.state, mdp.action, mdp.transitions, costs, 0.9, mdp.initial, states, ["=a", "b", "c", "d"])
    cm.MDP.from_pairs(*arguments).save(tmp_path / "odd.npz")
    limit = ["--subject-to", "a\x1b[31mb <= 1e-9"]
    for more in ([], ["--json"], limit):
        code, text, err = run("solve", tmp_path / "odd.npz", "--minimize", "a\x1b[31mb", "--out", tmp_path, *more)
        assert code == (3 if more == limit else 0)
        assert "\x1b" not in text + err
    with open(tmp_path / "policy.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert {row[0] for row in rows} == {
        "\\x1b[2J", "'=HYPERLINK(\"http://x\")", "'+1", "'-1", "'@x", "'\\tx", "plain", "\\ud800", "a,b",
    }  # fmt: skip
    assert all(row[1] in ("'=a", "b", "c", "d") for row in rows)
    code, _, err = run("solve", tmp_path / "odd.npz", "--minimize", "no\x1b[2J such")
    assert code == 2
    assert "\x1b" not in err


def test_json_has_no_numbers_that_json_does_not_know(model, run):
    limits = ["--subject-to", "time <= 1e-3"]
    _, text, _ = run("solve", model, "--minimize", "time", *limits, "--json")
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


def test_the_demo_decides_all_four_panels_and_draws_them(tmp_path, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, text, _ = run("demo", "--out", tmp_path / "demo")
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
