"""The program itself: version, help, completion, ``python -m``, output that is cut off, and Ctrl-C before an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import cvxmdp as cm
from cvxmdp.cli import complete

COMMANDS = ["solve", "sweep", "simulate", "check", "info", "convert", "demo", "paper"]


def python(*arguments, **more):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, **more
    )


def test_the_version_is_told_also_by_the_module(run):
    assert run("--version") == (0, f"cvxmdp {cm.__version__}\n", "")
    done = python("-m", "cvxmdp", "--version")
    assert (done.returncode, done.stdout) == (0, f"cvxmdp {cm.__version__}\n")


def test_help_names_every_command_and_fits_a_terminal(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, text, _ = run()
    assert code == 0
    assert [line.split()[0] for line in text.partition("Commands:\n")[2].splitlines()] == COMMANDS
    assert "..." not in text.partition("Commands:\n")[2]
    assert run("--help")[1] == text
    for command in COMMANDS:
        code, text, _ = run(command, "-h")
        assert code == 0
        assert max(map(len, text.splitlines())) <= 80


def test_bad_input_is_one_line(run):
    for arguments in (["sole"], ["solve"], ["solve", "gridworld", "--x"], ["solve", "no\nfile", "--minimize", "time"]):
        code, text, err = run(*arguments)
        assert (code, text, err.count("\n")) == (2, "", 1)
        assert err.startswith("cvxmdp: ")


def test_a_shell_completes_commands_worlds_files_and_costs(tmp_path):
    cm.worlds.queue(5).save(tmp_path / "grid.npz")
    (tmp_path / "grid.txt").write_text("")
    for words, expected in (
        ("cvxmdp s", ["solve", "sweep", "simulate"]),
        ("cvxmdp solve gri", ["gridworld", "grid.npz"]),
        ("cvxmdp solve grid.npz --minimize ", list(cm.worlds.queue(5).costs)),
        ("cvxmdp sweep gridworld c", ["collision"]),
        ("cvxmdp solve grid.npz --method p", ["path"]),
        ("cvxmdp solve grid.npz --when-infeasible n", ["nearest"]),
    ):
        asked = {"_CVXMDP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = python("-m", "cvxmdp", cwd=tmp_path, env=os.environ | asked)
        assert done.stdout.split() == expected, words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_shown(shell):
    # Else the shell that runs this is looked for.
    done = python(
        "-m", "cvxmdp", "--show-completion", shell,
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )  # fmt: skip
    assert done.returncode == 0
    assert f"_CVXMDP_COMPLETE=complete_{shell}" in done.stdout


def test_completion_is_silent_about_what_it_cannot_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.npz").write_text("nothing")
    (tmp_path / "folder").mkdir()
    (tmp_path / ".hidden.npz").write_text("")
    assert complete.models("") == [*complete.models("")[:-2], f"folder{os.sep}", "x.npz"]
    assert complete.models("none/x") == []
    assert complete.answers("x") == ["x.npz"]
    for model in (None, "x.npz", "y.npz", "gridworld:size=-1"):
        assert complete._costs(model) == []
    assert list(complete._costs("gridworld:size=3")) == ["time", "collision"]


def test_output_that_nobody_reads_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m cvxmdp solve gridworld:size=30 --minimize time --json | head -c 1",
        shell=True, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("{", "")


def test_ctrl_c_before_an_answer_is_told_without_a_traceback():
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, "info", "gridworld"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    text, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert text == ""
    assert err.split("\n")[-2] == "cvxmdp: interrupted"
    assert "Traceback" not in err


WATCHED = """
import time
import cvxmdp as cm
from cvxmdp import cli

def slow(comm):
    print("reading", flush=True)
    time.sleep(20)

cm.worlds.gridworld = slow
cli.main()
"""


def test_what_is_shown_is_progress_and_goes_to_standard_error(tmp_path):
    """In a terminal of its own: a solve that is held for a second shows where it stands."""
    import pty

    reader, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, "solve", "gridworld:size=4", "--minimize", "time", "--json"],
        stdout=subprocess.PIPE, stderr=terminal, env=os.environ | {"TERM": "xterm"},
    )  # fmt: skip
    out, _ = process.communicate(timeout=60)
    os.close(terminal)
    shown = os.read(reader, 100_000).decode()
    os.close(reader)
    assert process.returncode == 0
    assert out.startswith(b'{"status": "OPTIMAL"')
    assert "holding, 0." in shown


HELD = """
import time
import cvxmdp as cm
from cvxmdp import cli, phases

solve = cm.Problem.solve

def held(self, *arguments, **more):
    phases.begin("holding")
    time.sleep(0.6)
    return solve(self, *arguments, **more)

cm.Problem.solve = held
cli.main()
"""
