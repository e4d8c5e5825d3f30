"""``mpiexec -n 2 cvxmdp solve``: one voice, one exit code, and no rank that waits for ever."""

import json
import os
import subprocess
import sys

import pytest

import cvxmdp as cm
from cvxmdp.cli import ranks

OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_odls_base_sigkill_timeout": "0",
}
"""For two ranks on any machine, as any user; and no pause at the end of those that exit with another code than 0."""
LIMIT = ("--minimize", "time", "--limit", "collision <= 1e-3")
LONG = ("--minimize", "time", "--limit", "entropy >= 2.5", "--method", "splitting", "--tolerance", "1e-13")
PROGRAM = ("-m", "cvxmdp")

IN_A_SOLVE = """
import os, signal
from contextlib import contextmanager
from cvxmdp import cli
from cvxmdp.cli import ranks
from cvxmdp.report import console

@contextmanager
def live_progress(callback=None, prefix=""):
    left = ["the signal"]
    def heard(progress):
        if ranks.world().rank == 1 and progress.iteration >= 2 and left:
            left.clear()
            os.kill(os.{to}(), signal.{signal})
    yield heard

console.live_progress = live_progress
cli.main()
"""
"""The program, which on the second rank sends a signal to itself or to the launcher."""
KILLED_IN_WRITING = """
import os, signal
from cvxmdp import cli
from cvxmdp.cli import ranks
from cvxmdp.ranks import files
gather, asked = files.gather, []

def last(*args):
    asked.append(args)
    if ranks.world().rank == {rank} and len(asked) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return gather(*args)

files.gather = last
cli.main()
"""
"""The program, of which one rank is killed when a part of the answer is written."""
ONE_FAILS = """
import cvxmdp as cm
from cvxmdp import cli
from cvxmdp.cli import ranks
load, ranks.PATIENCE = cm.load, 0.5

def fails(*args):
    if ranks.world().rank == 1:
        raise {error}("only here")
    return load(*args)

cm.load = fails
cli.main()
"""


def on_ranks(*arguments, program=PROGRAM, **environment):
    """Run the program on two ranks; return exit code, standard output and standard error."""
    command = ["mpiexec", "-n", "2", sys.executable, *program, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60,
        env={**os.environ, **OPEN_MPI, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def sentences(errors):
    return [line for line in errors.splitlines() if line.startswith("cvxmdp: ")]


def test_the_answer_is_that_of_one_place(model, tmp_path, run):
    out = tmp_path / "folder"
    code, text, _ = on_ranks("solve", model, *LIMIT, "--json", "--out", out)
    assert code == 0
    found, alone = json.loads(text), json.loads(run("solve", model, *LIMIT, "--json")[1])
    assert found.keys() == alone.keys()
    assert found["value"] == pytest.approx(alone["value"], rel=1e-6)
    assert found["price_ranges"].keys() == alone["price_ranges"].keys() == {"collision"}
    for end, value in alone["price_ranges"]["collision"].items():
        assert found["price_ranges"]["collision"][end] == pytest.approx(value, rel=1e-6)
    assert {row["state"] for row in found["policy"]} == {row["state"] for row in alone["policy"]}
    assert [path.name for path in out.iterdir()] == ["solution.npz"]
    problem = cm.Problem(cm.load(model), "time", [cm.Budget("collision", at_most=1e-3)])
    cm.load_solution(out / "solution.npz").certificate.check(problem)


def test_a_problem_that_no_policy_obeys_exits_with_3_and_is_told_once(tmp_path):
    out = tmp_path / "answer.npz"
    code, text, _ = on_ranks("solve", "gridworld:size=5", "--minimize", "time", "--limit", "time <= 0.01", "--out", out)
    assert code == 3
    assert text.count("INFEASIBLE") == 1
    assert " ".join(text.split()).endswith(f"written to {out}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("solve", "{model}", *LIMIT, "--policy", "policy.csv"), "--policy needs the whole answer in one place"),
        (("info", "{model}"), "info runs in one place"),
    ],
)
def test_bad_input_is_one_sentence(model, arguments, said):
    code, text, errors = on_ranks(*(argument.format(model=model) for argument in arguments))
    assert code == 2
    assert text == ""
    (sentence,) = sentences(errors)
    assert said in sentence


def test_the_launcher_of_another_mpi_is_named():
    environment = {**os.environ, "PMI_SIZE": "2", "PMI_RANK": "0"}
    command = [sys.executable, *PROGRAM, "solve", "gridworld:size=3", "--minimize", "time"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 2
    (sentence,) = sentences(done.stderr)
    assert "started 2 ranks, but the MPI of mpi4py sees 1" in sentence


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, 1),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 4),
        ({"PMI_SIZE": "1"}, 1),
        ({"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "8"}, 8),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 1),
    ],
)
def test_launchers_are_known_by_the_environment(monkeypatch, environment, count):
    for name in (*ranks.SIZES, *ranks.NUMBERS, "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ranks.launched() == count


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_a_signal_to_one_rank_ends_all_and_keeps_the_policy(model, tmp_path, signal):
    out = tmp_path / "answer.npz"
    code, text, _ = on_ranks(
        "solve", model, *LONG, "--out", out, program=("-c", IN_A_SOLVE.format(to="getpid", signal=signal))
    )
    assert code == 4
    assert text.startswith("INTERRUPTED")
    assert cm.load_solution(out).status is cm.Status.INTERRUPTED


def test_where_one_rank_is_killed_all_end_and_nothing_is_written(model, tmp_path):
    out = tmp_path / "answer.npz"
    program = ("-c", IN_A_SOLVE.format(to="getpid", signal="SIGKILL"))
    code, text, errors = on_ranks("solve", model, *LONG, "--out", out, program=program)
    assert code not in (0, 3, 4)
    assert text == ""
    assert "signal 9" in errors
    assert not out.exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_where_one_rank_is_killed_in_writing_nothing_looks_whole(model, tmp_path, rank):
    out = tmp_path / "folder" / "answer.npz"
    out.parent.mkdir()
    out.write_text("what was there before")
    program = ("-c", KILLED_IN_WRITING.format(rank=rank))
    code, text, errors = on_ranks("solve", model, *LIMIT, "--out", out, program=program)
    assert code not in (0, 3, 4)
    assert text == ""
    assert "signal 9" in errors
    assert out.read_text() == "what was there before"
    assert {path.suffix for path in out.parent.iterdir() if path != out} <= {".part"}


def test_ctrl_c_at_the_launcher_keeps_the_policy_where_it_waits(model, tmp_path):
    out = tmp_path / "answer.npz"
    program = ("-c", IN_A_SOLVE.format(to="getppid", signal="SIGINT"))
    waits = {f"OMPI_MCA_{ranks.WAITS}": "4"}
    code, text, _ = on_ranks("solve", model, *LONG, "--out", out, program=program, **waits)
    assert code == 1  # the launcher's own
    assert text.startswith("INTERRUPTED")
    assert cm.load_solution(out).status is cm.Status.INTERRUPTED


@pytest.mark.parametrize(
    ("environment", "pairs", "seconds"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 100_000, None),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 1_000_000, "10"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 36_000_000, "90"),
        ({"OMPI_COMM_WORLD_SIZE": "2", f"OMPI_MCA_{ranks.WAITS}": "60"}, 1_000_000, None),
        ({"PMI_SIZE": "2"}, 1_000_000, None),
    ],
)
def test_where_open_mpi_waits_too_short_for_a_large_answer_it_is_said(monkeypatch, environment, pairs, seconds):
    for name in ("OMPI_COMM_WORLD_SIZE", f"OMPI_MCA_{ranks.WAITS}"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    said = ranks.warning(pairs)
    assert said is None if seconds is None else f"mpiexec --mca {ranks.WAITS} {seconds}," in said


def test_it_is_said_before_the_solve(model, tmp_path):
    program = "from cvxmdp import cli; from cvxmdp.cli import ranks; ranks.PAIRS_A_SECOND = 1; cli.main()"
    environment = {name: value for name, value in OPEN_MPI.items() if ranks.WAITS not in name}
    command = ["mpiexec", "-n", "2", sys.executable, "-c", program, "solve", str(model), *LIMIT]
    for out, count in (((), 0), (("--out", tmp_path / "answer.npz"), 1)):
        done = subprocess.run(
            [*command, *map(str, out)], capture_output=True, text=True, timeout=60,
            env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0
        assert len(sentences(done.stderr)) == count


@pytest.mark.parametrize(("error", "expected"), [("ValueError", 2), ("RuntimeError", 1)])
def test_what_goes_wrong_on_one_rank_only_ends_all(model, error, expected):
    code, text, errors = on_ranks("solve", model, *LIMIT, program=("-c", ONE_FAILS.format(error=error)))
    assert code == expected
    assert text == ""
    assert errors.count(": only here") == 1
