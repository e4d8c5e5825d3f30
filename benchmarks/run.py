"""Run the solvers on one case and print a table.

    python benchmarks/run.py --case linear --states 100 1000 --branching 0.05 --seeds 2 --solvers all --time-limit 60

Each run of a solver on an instance leaves one JSON file in benchmarks/results/runs/ and is not done again while the
file is there.  A solver that reached a limit is run no more in that cell (case, states, branching) nor in larger ones.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import instances
import peers
import referee

FOLDER = Path(__file__).parent / "results" / "runs"
LIMITS = ("time limit", "out of memory")
Record = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, smaller cells first, and print the table."""
    options = read(arguments)
    cells = [(states, branching) for states in sorted(options.states) for branching in sorted(options.branching)]
    left = len(cells) * options.seeds * len(options.solvers)
    spent: list[float] = []
    for states, branching in cells:
        for seed in chosen_seeds(options, states, branching)["kept"]:
            missing = [s for s in options.solvers if not path(options, states, branching, seed, s).exists()]
            left -= len(options.solvers) - len(missing)
            for _, line in solve(options, states, branching, seed, missing, spent):
                left -= 1
                shown = f"; at most {minutes(left * options.time_limit)}" if not spent else ""
                shown = f"; about {minutes(left * sum(spent) / len(spent))}" if spent else shown
                print(f"{states} states, branching {branching:g}, seed {seed}, {line}{shown} left", flush=True)
    for line in table(records(options.folder), options):
        print(line)


def read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", required=True, choices=instances.CASES)
    parser.add_argument("--states", type=int, nargs="+", default=[100])
    parser.add_argument("--branching", type=float, nargs="+", default=[0.05], help="fraction of states a pair reaches")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--solvers", nargs="+", default=["all"], choices=["all", *peers.PEERS])
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds a solve")
    parser.add_argument("--memory-limit", type=float, default=round(0.75 * machine_gb(), 1), help="GB a solve")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    if "all" in options.solvers:
        options.solvers = list(peers.PEERS)
    if options.case == "grid":
        options.branching = [0.0]
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


def solve(
    options: argparse.Namespace, states: int, branching: float, seed: int, solvers: list[str], spent: list[float]
) -> Iterator[tuple[str, str]]:
    """Run the solvers on one instance, and yield each with a line that says how it went."""
    if not solvers:
        return
    instance = instances.make(options.case, states, branching, seed)
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "instance", Path(folder) / "warm-up"
        files[0].write_bytes(pickle.dumps(instance))
        files[1].write_bytes(pickle.dumps(instances.warm_up(options.case, branching)))
        for solver in solvers:
            if (before := stopped(records(options.folder), options, states, branching, solver)) is not None:
                yield solver, f"{solver}: not run, {before}"
                continue
            start = time.perf_counter()
            result = peers.run(solver, *files, options.tolerance, options.time_limit, 1e9 * options.memory_limit)
            record = record_of(options, instance, solver, result)
            path(options, states, branching, seed, solver).write_text(json.dumps(record, indent=1))
            spent.append(time.perf_counter() - start)
            seconds = f" in {record['seconds']:.3g} s" if record["outcome"] == "answer" else ""
            yield solver, f"{solver}: {record['outcome']}{seconds}"


def record_of(options: argparse.Namespace, instance: instances.Instance, solver: str, result: Record) -> Record:
    """All there is to keep of one run: what was run where, and what the referee says of the answer."""
    record = {
        "case": options.case,
        "states": instance.states,
        "pairs": instance.c.size,
        "branching": instance.branching,
        "seed": instance.seed,
        "solver": solver,
        "note": peers.PEERS[solver].note,
        "tolerance": options.tolerance,
        "time_limit": options.time_limit,
        "memory_limit_gb": options.memory_limit,
        "cores": peers.CORES,
        "machine": platform.platform(),
        "python": platform.python_version(),
        "versions": peers.versions(),
        "date": time.strftime("%Y-%m-%d"),
    }
    record |= {key: result.get(key) for key in ("outcome", "said", "seconds", "first_use", "peak_bytes")}
    if record["outcome"] == "answer":
        record |= referee.judge(instance, result["d"])
        if result["certificate"] is not None:
            record["bound"] = referee.proven_bound(instances.problem(instance), result["certificate"])
    return record


def path(options: argparse.Namespace, states: int, branching: float, seed: int, solver: str) -> Path:
    """The file of one run."""
    name = f"{options.case}-S{states}-f{branching:g}-tol{options.tolerance:g}-seed{seed}-{solver}.json"
    return Path(options.folder / name)


def records(folder: Path) -> list[Record]:
    """All runs so far."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*-seed*.json"))]


def chosen_seeds(options: argparse.Namespace, states: int, branching: float) -> dict[str, list[int]]:
    """The seeds of a cell, found once: those kept, and those passed over because no policy obeys."""
    file = options.folder / f"{options.case}-S{states}-f{branching:g}.seeds"
    found: dict[str, list[int]] = json.loads(file.read_text()) if file.exists() else {"kept": [], "passed": []}
    if len(found["kept"]) < options.seeds:
        first = max(found["kept"] + found["passed"], default=-1) + 1
        kept, passed = instances.seeds(options.case, states, branching, options.seeds - len(found["kept"]), first)
        found = {"kept": found["kept"] + kept, "passed": found["passed"] + passed}
        file.write_text(json.dumps(found))
    return {"kept": found["kept"][: options.seeds], "passed": found["passed"]}


def stopped(runs: list[Record], options: argparse.Namespace, states: int, branching: float, solver: str) -> str | None:
    """Where the solver reached a limit in this cell or a smaller one, if it did with as much time and memory."""
    for run in runs:
        if (
            (run["case"], run["solver"], run["tolerance"]) == (options.case, solver, options.tolerance)
            and run["states"] <= states
            and run["branching"] <= branching
            and run["outcome"] in LIMITS
            and run["time_limit"] >= options.time_limit
            and run["memory_limit_gb"] >= options.memory_limit
        ):
            return f"{run['outcome']} at {run['states']} states, branching {run['branching']:g}, seed {run['seed']}"
    return None


def table(runs: list[Record], options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines: for each cell and solver the median seconds, objective, violation and distance over seeds."""
    for states in sorted(options.states):
        for branching in sorted(options.branching):
            seeds = chosen_seeds(options, states, branching)
            cell = [
                run
                for run in runs
                if (run["case"], run["states"], run["branching"]) == (options.case, states, branching)
                and run["tolerance"] == options.tolerance
                and run["seed"] in seeds["kept"]
            ]
            passed = f"; no policy obeys with {', '.join(map(str, seeds['passed']))}" if seeds["passed"] else ""
            yield ""
            yield f"{instances.CASES[options.case]}"
            yield f"{states} states, branching {branching:g}, seeds {', '.join(map(str, seeds['kept']))}{passed}"
            yield f"{'solver':<18}{'seconds':>9}{'first use':>11}{'objective':>12}{'violation':>11}{'distance':>10}"
            bounds: dict[int, float] = {}
            for run in cell:
                if run.get("bound") is not None:
                    bounds[run["seed"]] = max(bounds.get(run["seed"], -float("inf")), run["bound"])
            for solver in options.solvers:
                mine = [run for run in cell if run["solver"] == solver]
                yield f"{solver:<18}{row(mine, bounds) or stopped(runs, options, states, branching, solver) or ''}"


def row(runs: list[Record], bounds: dict[int, float]) -> str:
    """The numbers of one solver in one cell, or how it ended."""
    answers = [run for run in runs if run["outcome"] == "answer" and run["objective"] is not None]
    ends = sorted({f"{run['outcome']} {run['said'] or ''}".strip() for run in runs if run not in answers})
    if not answers:
        return "  " + "; ".join(ends) if ends else ""
    distances = [
        referee.distance(run["objective"], run["scale"], bounds[run["seed"]])
        for run in answers
        if run["seed"] in bounds
    ]
    away = f"{median(distances):>10.1e}" if distances else f"{'-':>10}"
    seconds, first, value, violation = (
        median(run[key] for run in answers) for key in ("seconds", "first_use", "objective", "violation")
    )
    numbers = f"{seconds:>9.3g}{first:>11.2g}{value:>12.6f}{violation:>11.1e}{away}"
    return numbers + (f"  else {'; '.join(ends)}" if ends else "")


def machine_gb() -> float:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def minutes(seconds: float) -> str:
    """A time as minutes and seconds."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


if __name__ == "__main__":
    sys.exit(main())
