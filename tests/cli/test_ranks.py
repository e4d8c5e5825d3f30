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
    def heard(progress):
        if ranks.world().rank == 1 and progress.iteration >= 2:
            os.kill(os.getpid(), signal.{signal})
    yield heard

console.live_progress = live_progress
cli.main()
"""
"""The program, which sends itself a signal on the second rank."""
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
    code, text, _ = on_ranks("solve", model, *LONG, "--out", out, program=("-c", IN_A_SOLVE.format(signal=signal)))
    assert code == 4
    assert text.startswith("INTERRUPTED")
    assert cm.load_solution(out).status is cm.Status.INTERRUPTED


def test_where_one_rank_is_killed_all_end_and_nothing_is_written(model, tmp_path):
    out = tmp_path / "answer.npz"
    code, text, _ = on_ranks("solve", model, *LONG, "--out", out, program=("-c", IN_A_SOLVE.format(signal="SIGKILL")))
    assert code not in (0, 3, 4)
    assert text == ""
    assert not out.exists()


@pytest.mark.parametrize(("error", "expected"), [("ValueError", 2), ("RuntimeError", 1)])
def test_what_goes_wrong_on_one_rank_only_ends_all(model, error, expected):
    code, text, errors = on_ranks("solve", model, *LIMIT, program=("-c", ONE_FAILS.format(error=error)))
    assert code == expected
    assert text == ""
    assert errors.count(": only here") == 1
