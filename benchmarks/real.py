"""Measure the figures of docs/real.md: models of real tasks under every kind of limit, ours and general solvers.

    make real                      all sizes of one seed, hours; goes on where it was stopped
    make real HOW=--quick          a sample of small models, print the page; a few minutes
    make real HOW="--sizes small middle --kinds caps 'KL ball' --worlds queue --problems 20 --seed 7"
    make real HOW=--ours-only      no other solvers
    make real HOW="--again ours"   measure one solver again, keep the others
    make real HOW=--table          write docs/real.md again from benchmarks/results/real.json

Problems are those of real_problems.py, other solvers those of real_peers.py, and every policy is judged by
real_referee.py.  Solvers run in processes that live on, one for ours and one for the others, and one problem at a time.
Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import pickle
import platform
import resource
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import provenance
import real_page
import real_peers
import real_problems
import real_referee

import cvxmdp as cm

ROOT = Path(__file__).parent
RESULTS, PAGE = ROOT / "results", ROOT.parent / "docs" / "real.md"
SEED = 20261118
QUICK = 60
"""Problems of a quick run."""
TIME_LIMITS = {"tiny": 10.0, "small": 60.0, "middle": 60.0, "large": 120.0}
GRACE = 10.0
"""Seconds beyond the time limit after which a solver that does not stop by itself is stopped."""
SET_UP_SECONDS = 300.0
"""Most time for loading, stating, warming up and checking, which do not count."""
RUNS, ENOUGH = 3, 2.0
"""A solve is repeated up to so many times while they took fewer seconds in all; the fastest counts."""
FIRST_ENOUGH = 20.0
"""The same for the first problem of a kind and size in a process, where something may be loaded."""
PATIENCE, LEAST_PATIENCE = 10.0, 5.0
"""A peer is stopped at so many times the fastest time of an answer within 1e-4, but not before so many seconds."""
MEMORY = 0.7 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

Row = dict[str, Any]


# One solve, in a process that lives on --------------------------------------------------------------------------------


Prepared = Callable[[], tuple[Any, Row]]


def ours(stored: bytes, time_limit: float) -> Prepared:
    """A fresh copy, so that nothing is left over from an earlier run."""
    problem = pickle.loads(stored).problem

    def solve() -> tuple[Any, Row]:
        solution = problem.solve(time_limit=time_limit)
        row = {"said": solution.status.name, "method": solution.stats.method, "bound": float(solution.bound)}
        return (problem, solution), row

    return solve


def peer(name: str, stored: bytes, time_limit: float) -> Prepared:
    """The program, stated."""
    stated = real_peers.PEERS[name].state(real_peers.Program(pickle.loads(stored)), time_limit)

    def solve() -> tuple[Any, Row]:
        d, said = stated()
        return d, {"said": said}

    return solve


def checked(problem: cm.Problem, solution: cm.Solution) -> str:
    """What the certificate's check refuses; nothing is best."""
    try:
        solution.certificate.check(problem)
    except cm.CertificateError as error:
        return str(error) or "refused"
    return ""


def serve(pipe: Connection, own: bool) -> None:
    """Solve what comes along the pipe until nothing does; report each run, then the answer."""
    resource.setrlimit(resource.RLIMIT_DATA, (int(MEMORY), int(MEMORY)))
    warnings.simplefilter("ignore")  # a solver's words are in its row
    seen = set()
    while True:
        try:
            solver, stored, time_limit = pipe.recv()
        except EOFError:
            return
        name = pickle.loads(stored).name
        enough = ENOUGH if (solver, name.kind, name.size) in seen else FIRST_ENOUGH
        seen.add((solver, name.kind, name.size))
        times: list[float] = []
        try:
            while len(times) < RUNS and (not times or sum(times) < enough):
                solve = ours(stored, time_limit) if own else peer(solver, stored, time_limit)
                pipe.send(("begins", None))
                start = time.perf_counter()
                found, row = solve()
                times.append(time.perf_counter() - start)
                pipe.send(("ends", None))
            if own:
                problem, solution = found
                row["refused"], found = checked(problem, solution), np.asarray(solution.occupancy)
            pipe.send(("answer", {**row, "d": found, "seconds": min(times), "runs": len(times)}))
        except MemoryError:
            pipe.send(("out of memory", {"said": "out of memory"}))
        except Exception as error:
            pipe.send(("failed", {"said": f"{type(error).__name__}: {error}"[:200]}))


class Worker:
    """A process that solves; it is started when needed, and again after it hung or died."""

    def __init__(self, own: bool) -> None:
        self.own = own
        self.process: Any = None
        self.pipe: Any = None

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.own), daemon=True)
        self.process.start()
        theirs.close()
        for name in real_problems.names("tiny", 0)[: len(real_problems.KINDS)]:  # all is loaded once
            case = real_problems.make(name)
            for solver in ["ours"] if self.own else solvers(case):
                self.ask(solver, pickle.dumps(case), TIME_LIMITS["tiny"])

    def solve(self, solver: str, stored: bytes, time_limit: float) -> tuple[str, Row]:
        """The outcome and what is known of it."""
        if self.process is None:
            self.start()
        outcome, row = self.ask(solver, stored, time_limit)
        if outcome != "answer":  # whatever went wrong is not to touch the next problem
            self.stop()
        return outcome, row

    def ask(self, solver: str, stored: bytes, time_limit: float) -> tuple[str, Row]:
        word = ""
        try:
            self.pipe.send((solver, stored, time_limit))
            while word in ("", "begins", "ends"):
                start = time.perf_counter()
                if not self.pipe.poll(time_limit + GRACE if word == "begins" else SET_UP_SECONDS):
                    return "time limit", {"said": "did not stop by itself", "seconds": time.perf_counter() - start}
                word, what = self.pipe.recv()
            return word, what
        except (EOFError, OSError):
            self.process.join()
            return "crashed", {"said": f"exit code {self.process.exitcode}"}

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def solvers(case: real_problems.Case) -> list[str]:
    """The peers that are installed and take the problem."""
    flat = real_peers.Program(case).flat
    return [
        name
        for name, peer in real_peers.PEERS.items()
        if (flat or not peer.flat) and all(importlib.util.find_spec(package) for package in peer.packages)
    ]


# All of them ----------------------------------------------------------------------------------------------------------


def measure(names: Sequence[real_problems.Name], rows: list[Row], parts: Path | None, ours_only: bool) -> None:
    """Solve what is missing in the rows, and append to them and to the file of parts."""
    workers = {"ours": Worker(own=True), "peers": Worker(own=False)}
    made = provenance.made_by()
    known = {key(row): row for row in rows}
    start = time.perf_counter()
    for number, name in enumerate(names):
        wanted = ["ours"] if ours_only else ["ours", *real_peers.PEERS]
        if all((*fields(name).values(), solver) in known for solver in wanted):
            continue
        for row in problem(name, workers, known, ours_only):
            row |= made
            rows[:] = [other for other in rows if key(other) != key(row)] + [row]
            if parts is not None:
                with parts.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            took = f"{row['seconds']:.3f} s" if row.get("seconds") is not None else ""
            line = f"{number + 1}/{len(names)} {name}, {row['solver']}: {row['outcome']}, {row.get('said', '')} {took}"
            print(f"{line}; {(time.perf_counter() - start) / 60:.1f} min", flush=True)
    for worker in workers.values():
        worker.stop()


def problem(name: real_problems.Name, workers: dict[str, Worker], known: dict[Any, Row], ours_only: bool) -> Any:
    """Yield a row for each solver that has none yet, or has one for other limits."""
    try:
        case = real_problems.make(name)
    except Exception as error:
        yield {**fields(name), "solver": "ours", "outcome": "not made", "said": f"{type(error).__name__}: {error}"}
        return
    stored, mark = pickle.dumps(case), real_problems.mark(case)
    takes = [] if ours_only else solvers(case)
    best: float | None = None
    about = {"states": case.mdp.num_states, "pairs": case.mdp.num_pairs, "mark": mark}
    fresh: list[Row] = []
    for solver in ["ours", *([] if ours_only else real_peers.PEERS)]:
        row = known.get((*fields(name).values(), solver))
        if row is None or not np.isclose(row.get("mark", np.nan), mark, rtol=1e-6):
            row = {**fields(name), **about, "solver": solver}
            if solver != "ours" and solver not in takes:
                row |= {"outcome": "does not apply"}
            else:
                limit = TIME_LIMITS[name.size]
                if solver != "ours" and best is not None:
                    limit = min(limit, max(PATIENCE * best, LEAST_PATIENCE))
                outcome, found = workers["ours" if solver == "ours" else "peers"].solve(solver, stored, limit)
                d = found.pop("d", None)
                row |= {"outcome": outcome, "limit": limit, **found}
                if d is not None:
                    row |= real_referee.judge(case, d)
            yield row
        fresh.append(row)
        if solver != "ours" and real_page.within(row, real_page.reference(fresh)):
            best = min(row["seconds"], np.inf if best is None else best)


def fields(name: real_problems.Name) -> Row:
    return {
        "size": name.size,
        "world": name.world,
        "discount": name.discount,
        "kind": name.kind,
        "seed": name.seed,
    }


def key(row: Row) -> tuple[Any, ...]:
    return tuple(row[field] for field in ("size", "world", "discount", "kind", "seed", "solver"))


def about() -> Row:
    """Where the rows were made, and with what."""
    found = {}
    for name in ("cvxmdp", "numpy", "scipy", "clarabel", "scs", "highspy", "highspy-extras"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "cores": real_peers.CORES,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": found,
        "time_limits": {size: limit for size, limit in TIME_LIMITS.items() if size != "tiny"},
    }


def read(results: Path, parts: Path) -> tuple[Row, list[Row]]:
    """What was measured so far: the whole file, then the parts that were made since."""
    data = json.loads(results.read_text()) if results.exists() else {"about": {}, "rows": []}
    rows = {key(row): row for row in data["rows"]}
    if parts.exists():
        rows |= {key(row): row for row in map(json.loads, parts.read_text().splitlines())}
    return data["about"], list(rows.values())


def chosen(given: argparse.Namespace) -> list[real_problems.Name]:
    """The problems that were asked for."""
    found = [name for size in given.sizes for seed in given.seed for name in real_problems.names(size, seed)]
    if given.kinds:
        found = [name for name in found if name.kind in given.kinds]
    if given.worlds:
        found = [name for name in found if name.world.split("(")[0] in given.worlds or name.world in given.worlds]
    if given.problems is not None and given.problems < len(found):
        kept = np.random.default_rng(given.seed[0]).choice(len(found), given.problems, replace=False)
        found = [found[i] for i in sorted(kept)]
    return found


def main() -> None:
    """Measure, or write the page again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, nargs="+", default=[SEED])
    parser.add_argument("--sizes", nargs="+", default=["small", "middle", "large"], choices=list(TIME_LIMITS))
    parser.add_argument("--kinds", nargs="+", choices=list(real_problems.KINDS))
    parser.add_argument("--worlds", nargs="+", help="by name, with or without the numbers")
    parser.add_argument("--problems", type=int, help="a random sample of so many")
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--again", nargs="+", default=[], help="solvers to measure anew")
    parser.add_argument("--quick", action="store_true", help="a sample of small models, no files")
    parser.add_argument("--table", action="store_true", help="the page again")
    parser.add_argument("--out", type=Path, help="a folder for rows and page, in place of results and docs")
    given = parser.parse_args()
    folder = given.out or RESULTS
    results, parts = folder / "real.json", folder / "real.jsonl"
    page = given.out / "real.md" if given.out else PAGE
    if given.table:
        page.write_text(real_page.page(*read(results, parts)))
        return
    if given.quick:
        given.sizes, given.problems = ["small"], given.problems or QUICK
        rows: list[Row] = []
        measure(chosen(given), rows, None, given.ours_only)
        print(real_page.page(about(), rows))
        return
    folder.mkdir(parents=True, exist_ok=True)
    before, rows = read(results, parts)
    other = [name for name, value in about().items() if before and before.get(name) != value]
    if other:
        parser.error(f"{results} was measured with other {' and '.join(other)}; move it away, or give --out")
    rows = [row for row in rows if row["solver"] not in given.again]
    measure(chosen(given), rows, parts, given.ours_only)
    lines = ",\n".join(json.dumps(row) for row in rows)  # a line each
    results.write_text(f'{{"about": {json.dumps(about())},\n"rows": [\n{lines}\n]}}\n')
    page.write_text(real_page.page(about(), rows))
    parts.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
