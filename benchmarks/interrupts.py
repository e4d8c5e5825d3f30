"""Press Ctrl-C at random moments of random solves: each must return a Solution within a second.

    python benchmarks/interrupts.py                1000 moments, some of them in first solves of a process
    python benchmarks/interrupts.py --moments 300  so many
    python benchmarks/interrupts.py --quick        20 moments

Solves run in processes of their own that get SIGINT.  A row of the table counts, for one kind of problem: the moments,
those in which the solve ended before it heard of it, what went wrong, and the seconds from the signal to the Solution.
Raw numbers go to benchmarks/results/interrupts.json.
"""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "interrupts.json"
ALLOWED = 1.0
"""Seconds from Ctrl-C to the Solution."""
LATEST = 3.0
"""Seconds after the start of a solve at which Ctrl-C comes at the latest."""
FRESH_SHARE = 5
"""Every so many moments one is in the first solve of a process."""
STATUSES = ("OPTIMAL", "INFEASIBLE", "APPROXIMATE", "UNDECIDED", "ITERATION_LIMIT", "TIME_LIMIT", "INTERRUPTED")
LOST = 30.0
"""Seconds after which a process that does not answer is given up."""


def problems() -> dict[str, Callable[[], tuple[Any, dict[str, Any]]]]:
    """A problem for each engine, and what its solve is called with."""
    import cvxmdp as cm

    def garnet(states: int) -> Any:
        return cm.worlds.garnet(states=states, actions=5, branching=5 / states, seed=1)

    def random_rows(mdp: Any, count: int) -> Any:
        """Return limits that the policy just meets that takes all actions equally often."""
        rows = np.random.default_rng(0).random((count, mdp.num_pairs))
        even = mdp.evaluate(np.full(mdp.num_pairs, 1 / 5)).occupancy
        return cm.Linear(rows, at_most=rows @ even)

    def on_garnet(states: int, limits: Callable[[Any], list[Any]], minimize: Any = "cost", **how: Any) -> Any:
        def build() -> tuple[Any, dict[str, Any]]:
            mdp = garnet(states)
            return cm.Problem(mdp, minimize, limits(mdp)), how

        return build

    def on_grid(size: int, minimize: Any = "time", **how: Any) -> Any:
        limits = [cm.Budget(name, at_most=how.pop(name)) for name in ("time", "collision") if name in how]
        return lambda: (cm.Problem(cm.worlds.gridworld(size=size), minimize, limits), how)

    def ball_on_grid() -> Any:
        mdp = cm.worlds.gridworld(size=80)
        even = mdp.evaluate(np.full(mdp.num_pairs, 1 / 4)).occupancy
        return cm.Problem(mdp, "time", [cm.NormBall(even, radius=0.02)])

    return {
        "mixing": on_grid(100, collision=1e-4),
        "mixing, many rows": on_garnet(900, lambda mdp: [random_rows(mdp, 60)], tolerance=1e-10),
        "interior": on_garnet(900, lambda mdp: [random_rows(mdp, 300)], method="interior"),
        "dual": on_garnet(9000, lambda _: [cm.Entropy(at_least=10.5)], method="dual", tolerance=1e-10),
        "newton": on_garnet(
            800,
            lambda _: [cm.Entropy(at_least=7.9), cm.Entropy(at_least=6.5, of="states")],
            minimize="cost" + cm.NegativeEntropy(0.1),
            method="newton",
        ),
        "conic": on_garnet(1500, lambda _: [cm.Entropy(at_least=8.5)], method=cm.Conic()),
        "path": lambda: (ball_on_grid(), {"method": "path", "tolerance": 1e-9}),
        "splitting": on_grid(30, collision=1e-4, method="splitting"),
        "as in the paper": on_grid(20, collision=1e-4, method=cm.Splitting.as_in_paper()),
        "infeasible": on_grid(70, time=0.3, collision=1e-6),
        "infeasible, by priority": on_garnet(
            900,
            lambda mdp: [
                cm.Budget(np.random.default_rng(k).random(mdp.num_pairs), at_most=0.01, priority=k, name=f"limit {k}")
                for k in (1, 2, 3)
            ],
            when_infeasible="priority",
        ),
        "large": on_grid(400, collision=1e-5),
    }


def child(name: str) -> None:
    """Solve again and again; say when a solve begins and how it ended."""
    import cvxmdp as cm

    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a shell has it ignored
    problem, how = problems()[name]()
    while sys.stdin.readline():
        # As in a fresh process: what was found out of the model in the last solve is forgotten.
        problem = cm.Problem(problem.mdp.with_discount(problem.mdp.discount), problem.cost, problem.constraints)
        try:
            print("solving", flush=True)
            solution = problem.solve(**how)
            said = solution.status.name if abs(solution.occupancy.sum() - 1) < 1e-6 else "a policy that is none"
        except KeyboardInterrupt:
            said = "KeyboardInterrupt"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"[:200]
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            said = "another handler"
        print(said, flush=True)


def start(name: str) -> subprocess.Popen[bytes]:
    """Start a process that solves."""
    command = [sys.executable, __file__, "--child", name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def press(process: subprocess.Popen[bytes], delay: float) -> dict[str, Any]:
    """Let a process solve, send the signal after a while, and wait for what it says."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    if process.stdout.readline() != b"solving\n":
        return {"delay": delay, "said": "died", "seconds": None}
    said = _line(process, delay)
    if said is not None:
        return {"delay": delay, "said": said, "seconds": None}
    process.send_signal(signal.SIGINT)
    sent = time.perf_counter()
    said = _line(process, LOST)
    return {"delay": delay, "said": said or "nothing", "seconds": time.perf_counter() - sent}


def _line(process: subprocess.Popen[bytes], most: float) -> str | None:
    """Read a line if there is one within some seconds."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], most)[0]:
        return None
    return process.stdout.readline().decode().strip() or "died"


def moments(name: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Press Ctrl-C in so many solves of one kind."""
    random = np.random.default_rng(seed)
    found = []
    process: subprocess.Popen[bytes] | None = None
    for k in range(count):
        fresh = k % FRESH_SHARE == 0
        if fresh:
            alone = start(name)
            found.append(press(alone, float(random.uniform(0, LATEST) * random.random())) | {"fresh": True})
            _end(alone)
            continue
        if process is None or process.poll() is not None:
            process = start(name)
        found.append(press(process, float(random.uniform(0, LATEST) * random.random())) | {"fresh": False})
        if wrong(found[-1]):
            _end(process)
            process = None
    if process is not None:
        _end(process)
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def wrong(moment: dict[str, Any]) -> bool:
    """Whether a moment did not end as it must.

    A signal that comes in the instant after a solve has returned is Python's, and raises KeyboardInterrupt.
    """
    return moment["said"] not in STATUSES or (moment["seconds"] or 0.0) > ALLOWED


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    """Return what happened as a table."""
    lines = [
        "| problem | moments | of these in first solves | ended before | not a Solution | later than a second | "
        "median seconds | most |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in (rows | {"all": [moment for some in rows.values() for moment in some]}).items():
        seconds = [m["seconds"] for m in found if m["seconds"] is not None]
        counts = [
            len(found),
            sum(m["fresh"] for m in found),
            len(found) - len(seconds),
            sum(m["said"] not in STATUSES for m in found),
            sum(s > ALLOWED for s in seconds),
        ]
        slowest = f"{np.median(seconds or [np.nan]):.3f} | {max(seconds, default=np.nan):.2f}"
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {slowest} |")
    return "\n".join(lines)


def main() -> None:
    if "--child" in sys.argv:
        return child(sys.argv[-1])
    count = 20 if "--quick" in sys.argv else 1000
    if "--moments" in sys.argv:
        count = int(sys.argv[sys.argv.index("--moments") + 1])
    names = list(problems())
    rows: dict[str, list[dict[str, Any]]] = {}
    for k, name in enumerate(names):
        rows[name] = moments(name, count // len(names) + (k < count % len(names)), k)
        print(name, [m for m in rows[name] if wrong(m)], flush=True)
    if count >= 100:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    return None


if __name__ == "__main__":
    main()
