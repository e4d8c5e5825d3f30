"""The paper's experiments in their reduced form, and the pages made from the results of the full one."""

import json
import sys
from pathlib import Path

import instances
import numpy as np
import pages
import paper
import pytest

import cvxmdp as cm
from cvxmdp import cli
from cvxmdp.report.demo import PANELS

ROOT = Path(pages.__file__).parent.parent
PNG = b"\x89PNG"


def command(monkeypatch, capsys, *arguments):
    """Run ``cvxmdp`` in the clone; return exit code, standard output and standard error."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["cvxmdp", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


@pytest.mark.parametrize(("table", "cells"), [("table1", 4), ("table2", 6)])
def test_a_table_of_the_paper(table, cells, tmp_path, monkeypatch, capsys):
    code, text, _ = command(monkeypatch, capsys, "paper", table, "--quick", "--out", tmp_path)
    assert code == 0
    data = json.loads((tmp_path / f"{table}.json").read_text())
    assert len(pages.cells_of(data)) == cells
    for cell in pages.cells_of(data):
        for solver in ("ours", "ours-as-in-paper", "scs"):
            (run,) = pages.runs_of(data, cell, solver)
            assert run["outcome"] == "answer", run
        (away,) = pages.distances(data, cell, "ours")
        (run,) = pages.runs_of(data, cell, "ours")
        assert run["violation"] <= 1e-6
        assert abs(away) <= 2e-6
    rows = [line for line in text.splitlines() if line.startswith("100 ")]
    assert len(rows) == cells
    assert "cvxmdp" in text
    assert "(p)" in text
    shown = text[text.index("\n\n") :].replace(str(tmp_path), "")
    assert max(map(len, shown.splitlines())) <= 80


def test_the_grid_world_of_the_paper(tmp_path, monkeypatch, capsys):
    code, text, _ = command(monkeypatch, capsys, "paper", "gridworld", "--quick", "--out", tmp_path)
    assert code == 0
    panels = json.loads((tmp_path / "gridworld.json").read_text())["panels"]
    assert [panel["status"] for panel in panels] == ["OPTIMAL", "OPTIMAL", "INFEASIBLE", "INFEASIBLE"]
    for panel, (time, collision) in zip(panels, PANELS, strict=True):
        assert panel["limits"] == [time, collision]
        assert panel["time"] == pytest.approx(1 - panel["in the destination"], abs=1e-9)
        assert (panel["violation"] <= 1e-6) == (panel["status"] == "OPTIMAL")
    assert "(c) time <= 0.9, collision <= 2e-05, auto: infeasible, nearest policy" in text
    assert (tmp_path / "gridworld.png").read_bytes()[:4] == PNG


def test_the_inexact_method_of_the_paper(tmp_path, monkeypatch, capsys):
    code, _, _ = command(monkeypatch, capsys, "paper", "inexact", "--quick", "--out", tmp_path)
    assert code == 0
    data = json.loads((tmp_path / "inexact.json").read_text())
    assert len(data) == 2
    for found in data.values():
        assert set(found["curves"]) == {"2", "100"}
        for curve in found["curves"].values():
            assert curve["pass"][0] == 1
            assert all(len(curve[key]) == len(curve["pass"]) for key in paper.MEASURES)
        # A hundred inner steps all but close the flow, two do not.
        first = {steps: curve["dynamics"][3] for steps, curve in found["curves"].items()}
        assert first["100"] < first["2"]
    assert (tmp_path / "inexact.png").read_bytes()[:4] == PNG


def test_the_passes_that_are_followed_are_those_of_the_papers_method():
    """Another writing of eqs. (7) and (13), with dense matrices and two inner steps."""
    seed = instances.seeds("linear", 15, 0.4, 1, first=0)[0][0]
    instance = instances.make("linear", 15, 0.4, seed)
    problem = instances.problem(instance)
    P = instance.P if isinstance(instance.P, np.ndarray) else instance.P.toarray()
    Xi = np.eye(15)[instance.state]
    M, c, gamma, rho = instance.gamma * P - Xi, instance.c, instance.gamma, instance.rho
    sigma, w, phi = 2e-5, np.zeros(c.size), np.zeros(c.size)
    best = -1.5
    constraint = cm.Linear(instance.limit.E, at_most=instance.limit.b).bind(problem.mdp)
    for found, _ in zip(paper.follow(problem, instance, best, 2), range(4), strict=False):
        for _ in range(2):
            V = np.linalg.solve(M.T @ M, (1 - gamma) * rho / sigma + M.T @ (w / sigma - c + phi))
            phi = np.maximum(c + M @ V - w / sigma, 0)
        d = sigma * np.maximum(w / sigma - c - M @ V, 0)
        assert found["suboptimality"] == pytest.approx((c @ d - best) / 1.5, rel=1e-6)
        assert found["violation"] == pytest.approx(max(np.max(instance.limit.E @ d - instance.limit.b), 0), rel=1e-6)
        assert found["dynamics"] == pytest.approx(np.max(np.abs(M.T @ d + (1 - gamma) * rho)), rel=1e-5, abs=1e-12)
        z = constraint.project(2 * d - w)
        w = w + 1.5 * (z - d)


def test_outside_of_a_clone_the_command_says_what_it_needs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cvxmdp", "paper", "table1"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "run it in a clone of the project" in capsys.readouterr().err


def test_the_pages_are_made_from_the_committed_results():
    assert (ROOT / "docs" / "benchmarks.md").read_text() == pages.benchmarks()
    text = (ROOT / "docs" / "reproduction.md").read_text()
    assert pages.reproduction(text) == text
    assert (ROOT / "docs" / "growth.md").read_text() == pages.growth(pages.load("growth"))


def test_the_bars_compare_with_the_fastest_of_the_named_peers_on_each_instance():
    run = {"case": "linear", "states": 100, "branching": 0.05, "outcome": "answer"}
    times = {"ours": (0.1, 0.2), "scs": (0.5, 0.4), "clarabel": (0.3, 0.8), "osqp": (0.01, 0.01)}
    runs = [run | {"solver": s, "seed": k, "seconds": t} for s, pair in times.items() for k, t in enumerate(pair)]
    found = pages.ratios({"runs": runs}, pages.Cell("linear", 100, 0.05, 0), pages.RIVALS)
    assert found == [(0.1, 0.3, "clarabel"), (0.2, 0.4, "scs")]


def test_the_methods_are_compared_with_the_best_of_them():
    rows = [
        {"case": "caps", "states": 100, "method": method, "seconds": seconds, "said": ""}
        for method, seconds in (("auto", 0.3), ("interior", 0.2), ("splitting", None))
    ]
    assert pages.compared(rows) == (
        ["case", "auto", "interior", "splitting", "auto over the best"],
        [["caps, S = 100", "0.30", "0.20", "-", "1.50"]],
    )


def test_a_table_says_what_ended_without_an_answer():
    run = {"case": "linear", "states": 100, "branching": 0.05}
    answer = {"outcome": "answer", "seconds": 0.5, "objective": -1.0, "violation": 0.0, "scale": 1.0, "said": ""}
    runs = [
        run | answer | {"solver": "ours", "seed": 1, "bound": -1.0},
        run | answer | {"solver": "ours", "seed": 2, "bound": -1.0, "seconds": 1.5},
        run | answer | {"solver": "ours-as-in-paper", "seed": 1, "violation": 0.1, "objective": -0.98},
        run | {"solver": "ours-as-in-paper", "seed": 2, "outcome": "out of memory", "said": "bad_alloc"},
        run | {"solver": "gurobi", "seed": 1, "outcome": "failed", "said": "no licence for this size"},
        run | {"solver": "pdm", "seed": 1, "outcome": "time limit", "said": None},
        run | {"solver": "pdm", "seed": 2, "outcome": "not run", "said": "time limit at linear, S = 100, seed 1"},
    ]
    columns, rows = pages.paper_table("table1", {"runs": runs})
    assert columns == ["S", "f_b", "var", "cvxmdp", "OS-CMDP", "Gurobi", "PDM"]
    expected = ["1.00 (-1.00)", "0.50 (-0.98)+, 1 of 2", "no licence for this size", "time limit; time limit before"]
    assert rows[0] == ["100", "0.05", "1", *expected]
    assert rows[1][3:] == ["(p)", "0.48 (-1.06)", "0.05 (-1.12)", "0.89 (-1.11)"]
    assert pages.distances({"runs": runs}, pages.cells_of({"runs": runs})[0], "ours-as-in-paper") == pytest.approx(
        [0.02]
    )


def test_the_fitted_instances_are_the_printed_ones_with_other_bounds_and_another_radius():
    printed, fitted = (instances.make(case, 30, 0.2, 7) for case in ("linear", "linear-fit"))
    np.testing.assert_array_equal(printed.limit.E, fitted.limit.E)
    np.testing.assert_array_equal(printed.c, fitted.c)
    # Of the variance 0.1, so the root of 0.1 times as far from the mean.
    np.testing.assert_allclose(fitted.limit.b + 0.2, np.sqrt(0.1) * (printed.limit.b + 0.2), atol=1e-15)
    printed, fitted = (instances.make(case, 30, 0.2, 7) for case in ("ball", "ball-fit"))
    np.testing.assert_array_equal(printed.limit.center, fitted.limit.center)
    assert (printed.limit.radius, fitted.limit.radius) == (0.2, 0.02)


def test_the_instances_of_a_size_stand_together_above_the_printed_figures_however_they_were_measured():
    def run(case, states):
        answer = {"outcome": "answer", "seconds": 0.5, "objective": -1.0, "violation": 0.0, "scale": 1.0, "said": ""}
        return answer | {"case": case, "states": states, "branching": 0.05, "solver": "ours", "seed": 1}

    # The fitted ones may have been added to results that were there.
    cells = [("ball", 100), ("ball-half", 100), ("ball", 1000), ("ball-fit", 100), ("ball-fit", 1000)]
    columns, rows = pages.paper_table("table2", {"runs": [run(*cell) for cell in cells]})
    assert columns[:4] == ["S", "f_b", "eps", "cvxmdp"]
    assert [row[0] or row[3] for row in rows] == ["100", "100", "100", "(p)", "1000", "1000", "(p)"]
    assert [row[2] for row in rows] == ["0.2", "0.02", "half", "", "0.2", "0.02", ""]
    rows = pages.paper_table("table1", {"runs": [run("linear", 100), run("linear-fit", 100)]})[1]
    assert [row[2] for row in rows] == ["1", "0.1", ""]
