"""One solve in a process of its own, with a time limit and a memory limit.

    result = run("clarabel", instance_file, warm_up_file, tolerance=1e-4, time_limit=60, memory_limit=8e9)

``run`` starts this module as a program with a job file.  That process limits its memory, solves the warm-up instance,
sets an alarm and starts the clock.  The clock runs from arrays in memory, stored as the solver likes them, to the
answer; building the solver's own form of the problem counts.  (Some solvers cannot be imported together: highspy and
ortools are two.)
"""

from __future__ import annotations

import importlib.util
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from peers import PEERS

SET_UP_SECONDS = 300.0
"""Most time for loading and storing, which do not count."""
WARM_UP_SECONDS = 30.0
"""Where the warm-up takes longer it is given up: by then everything is loaded."""
NO_MEMORY = ("MemoryError", "bad_alloc", "memory allocation", "ut of memory", "annot allocate", "failed to map segment")
"""What the last words of a process without memory contain."""


def run(
    name: str, instance: Path, warm_up: Path, tolerance: float, time_limit: float, memory_limit: float
) -> dict[str, Any]:
    """Solve one pickled instance after a warm-up on another.

    The ``outcome`` is "answer", "infeasible", "time limit", "out of memory", "crashed", "not installed", "does not
    apply" or "failed".  The first two have ``d`` (None where an infeasible problem gets no policy), ``seconds``,
    ``first_use`` (load, warm-up), ``peak_bytes``, ``bytes_before`` (what the process held when warm, without the
    instance), ``said``, and ours a ``certificate`` and ``sweeps``.
    """
    peer = PEERS[name]
    if importlib.util.find_spec(peer.package) is None:
        return {"outcome": "not installed"}
    with tempfile.TemporaryDirectory() as folder:
        job, out = Path(folder) / "job", Path(folder) / "out"
        job.write_bytes(pickle.dumps((name, instance, warm_up, tolerance, time_limit, memory_limit, out)))
        try:
            done = subprocess.run(
                [sys.executable, __file__, str(job)], capture_output=True, timeout=SET_UP_SECONDS + time_limit
            )
        except subprocess.TimeoutExpired:
            return {"outcome": "time limit", "said": "while loading"}
        if out.exists():
            return dict(pickle.loads(out.read_bytes()))
    errors = done.stderr.decode(errors="replace")
    if done.returncode == -signal.SIGALRM:
        return {"outcome": "time limit"}
    if done.returncode == -signal.SIGKILL or any(sign in errors for sign in NO_MEMORY):
        return {"outcome": "out of memory", "said": last_line(errors)}
    outcome = "crashed" if done.returncode < 0 else "failed"
    return {"outcome": outcome, "said": f"exit code {done.returncode}: {last_line(errors)}"}


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def work(job: Path) -> None:
    """Do the job of one process."""
    name, instance_file, warm_up_file, tolerance, time_limit, memory_limit, out = pickle.loads(job.read_bytes())
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory_limit), int(memory_limit)))
    peer, small = PEERS[name], pickle.loads(warm_up_file.read_bytes())
    if not isinstance(small.limit, peer.takes):
        out.write_bytes(pickle.dumps({"outcome": "does not apply"}))
        return
    small = peer.store(small)
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, WARM_UP_SECONDS)
    start = time.perf_counter()
    with suppress(TimeoutError):
        peer.solve(small, tolerance)
    first_use = time.perf_counter() - start
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    del small
    before = memory("VmRSS")
    with instance_file.open("rb") as file:
        instance = pickle.load(file)
    if instance.states > peer.most_states:
        out.write_bytes(pickle.dumps({"outcome": "does not apply"}))
        return
    stored = peer.store(instance)
    del instance
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # from here on the alarm ends the process wherever it is
    signal.setitimer(signal.ITIMER_REAL, time_limit)
    start = time.perf_counter()
    answer = peer.solve(stored, tolerance)
    seconds = time.perf_counter() - start
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    failed = "failed" if answer.d is None else "answer"
    result = {
        "outcome": "infeasible" if answer.infeasible else failed,
        "d": answer.d,
        "said": answer.said,
        "certificate": answer.certificate,
        "sweeps": answer.sweeps,
        "seconds": seconds,
        "first_use": first_use,
        "peak_bytes": memory("VmHWM"),
        "bytes_before": before,
    }
    out.write_bytes(pickle.dumps(result))


def memory(field: str) -> int:
    """The memory of this process: "VmRSS" now, "VmHWM" at most; getrusage would begin with what its parent held."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))
    except OSError:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def give_up(*_: object) -> None:
    """End the warm-up."""
    raise TimeoutError


if __name__ == "__main__":
    work(Path(sys.argv[1]))
