"""Do to the library what users and their machines do to it, and say what was lost: a table.

    python benchmarks/robustness.py

Work is shared among processes and threads after a solve, the installation cannot be written, disks are full and
processes are killed while they save.  It takes some minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm

TIME_LIMIT = 300.0
KILLS = 40

SOLVE = """
    import cvxmdp as cm

    solution = cm.Problem(cm.worlds.gridworld(size=30), "time", [cm.Budget("collision", at_most=1e-3)]).solve()
    print(solution.status.name)
"""
SHARE = """
    import multiprocessing, sys
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

    import cvxmdp as cm
    from threadpoolctl import threadpool_info

    grid, small = cm.worlds.gridworld(size=110), cm.worlds.gridworld(size=8)
    garnet = cm.worlds.garnet(states=600, actions=4, branching=0.01, seed=0)


    def value(k):
        if k % 3 == 2:
            return cm.Problem(garnet, "cost", [cm.Entropy(at_least=6.9)]).solve().value
        return cm.Problem([grid, small][k % 3], "time", [cm.Budget("collision", at_most=1e-3)]).solve().value


    def blas():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


    def shared(how):
        if how == "multiprocessing.Pool, fork":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                return pool.map(value, range(9))
        if how.startswith("joblib"):
            from joblib import Parallel, delayed

            return Parallel(2, backend=how.split(", ")[1])(delayed(value)(k) for k in range(9))
        if how == "threads":
            pool = ThreadPoolExecutor(4)
        else:
            pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(how.split(", ")[1]))
        with pool:
            return list(pool.map(value, range(9)))


    if __name__ == "__main__":
        alone, before = [value(k) for k in range(3)], blas()
        for k, found in enumerate(shared(sys.argv[1])):
            print("right" if abs(found - alone[k % 3]) <= 1e-5 * abs(alone[k % 3]) else "wrong")
        print("right" if blas() == before else "threads of BLAS lost")
"""
SAVE = """
    import sys
    import cvxmdp as cm

    mdp = cm.worlds.garnet(states=300, actions=4, branching=0.1, seed=0)
    solution = cm.Problem(mdp, "cost", [cm.Entropy(at_least=6.0)]).solve()
    print("saving", flush=True)
    while True:
        mdp.save(sys.argv[1])
        solution.save(sys.argv[2])
"""
SAVE_LIMITED = """
    import resource, sys
    import cvxmdp as cm

    mdp = cm.worlds.garnet(states=300, actions=4, branching=0.1, seed=0)
    for size in range(0, 800_000, 20_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            mdp.save(sys.argv[1])
            said = "saved"
        except OSError as error:
            said = "refused"
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(said if cm.load(sys.argv[1]).num_states in (9, 300) else "lost", flush=True)
"""

Row = tuple[str, int, int, str]
"""What was done, how often, how often something was lost, and what was seen."""


def run(code: str, *arguments: object, **environment: str) -> tuple[list[str], str]:
    """Run a program; return the lines it printed, and its last words if it did not end well."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(textwrap.dedent(code))
        try:
            done = subprocess.run(
                [sys.executable, script, *map(str, arguments)], capture_output=True, text=True, timeout=TIME_LIMIT,
                env={**os.environ, **environment},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return [], "never ended"
    words = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
    return done.stdout.splitlines(), words


def sharing() -> Iterator[Row]:
    """Solve in other processes and threads, once this one has solved."""
    ways = ["multiprocessing.Pool, fork", "executor, fork", "executor, spawn", "executor, forkserver", "threads"]
    ways += ["joblib, loky", "joblib, multiprocessing", "joblib, threading"]
    for how in ways:
        lines, words = run(SHARE, how)
        right = lines.count("right")
        yield f"nine solves and the threads of BLAS: {how}", 10, 10 - right, words or "right answers"


def installation() -> Iterator[Row]:
    """Solve where nothing can be written."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "cvxmdp"
        shutil.copytree(Path(cm.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        for place in [package, *package.glob("*/")]:
            (place / "__pycache__").write_text("")  # in the way of a folder of that name, also for the superuser
        nowhere = "/dev/null/nowhere"
        lines, words = run(SOLVE, PYTHONPATH=folder, HOME=nowhere, XDG_CACHE_HOME=nowhere)
        yield "an installation and a home that cannot be written", 1, lines != ["OPTIMAL"], words or "solved"


def saving() -> Iterator[Row]:
    """Save while the process is killed, the disk is full, or the name is odd."""
    with tempfile.TemporaryDirectory() as folder:
        model, answer = Path(folder) / "model.npz", Path(folder) / "answer.npz"
        lost, said, rng = 0, "", np.random.default_rng(0)
        for _ in range(KILLS):
            process = _start(SAVE, model, answer)
            time.sleep(float(rng.uniform(0.05, 0.3)))
            process.kill()
            process.communicate()
            try:
                cm.load(model)
                cm.load_solution(answer)
            except ValueError as error:
                lost, said = lost + 1, str(error)
        left = len(list(Path(folder).iterdir())) - 2
        yield "kill -9 while saving", KILLS, lost, said or f"whole files, and {left} unfinished ones beside them"
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.npz"
        cm.worlds.gridworld(size=3).save(model)
        lines, words = run(SAVE_LIMITED, model)
        lost, left = lines.count("lost") + (40 - len(lines)), len(list(Path(folder).iterdir())) - 1
        seen = f"{lines.count('refused')} refused, {lines.count('saved')} saved, {left} unfinished ones"
        yield "a disk that is full after so many bytes", 40, lost, words or seen
    yield _full_device()


def _full_device() -> Row:
    """Save through a link to a device that is always full."""
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "model.npz"
        link.symlink_to("/dev/full")
        try:
            cm.worlds.gridworld(size=3).save(link)
            said = "saved"
        except (OSError, ValueError) as error:
            said = str(error).replace(folder, "folder")
        lost = not Path("/dev/full").is_char_device() or said == "saved"
        return "a link to /dev/full", 1, lost, said


def _start(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def main() -> None:
    print("| what was done | times | lost | what was seen |\n|---|---|---|---|")
    for part in (sharing, installation, saving):
        for row in part():
            print("| " + " | ".join(map(_cell, row)) + " |", flush=True)


def _cell(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)[:120]


if __name__ == "__main__":
    main()
