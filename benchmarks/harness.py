"""Measure solvers on instances and keep every raw number in one JSON file, which can be resumed.

    python benchmarks/harness.py cases             what docs/benchmarks.md shows beside the paper's tables
    python benchmarks/harness.py cases --again ours ours-splitting

``cvxmdp paper table1`` and ``table2`` run the other two plans.  A solver that reached a limit, or crashed, is run no
more in that cell nor in larger ones.  Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import instances
import numpy as np
import peers
import process
import provenance
import referee

RESULTS = Path(__file__).parent / "results"
LIMITS = ("time limit", "out of memory", "crashed")
RIVALS = ("scs", "pdlp", "clarabel", "highs-ipm", "mdpsolver")
"""General solvers, and the one for problems without limits: the fastest of them is what ours is compared with."""
TOO_SLOW = 1.5
"""A peer that takes this many times as long as the fastest peer on the first instance of a cell is run on no other."""
GROWTH = 0.8
"""Power of the nonzeros with which times are expected to grow."""
REFERENCE, REFERENCE_SECONDS = 1e-8, 30.0
"""How exactly the optimum is proven before the solvers run, for their distance to be judged, and in what time."""
Run = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One case at one size: so many instances."""

    case: str
    states: int
    branching: float
    count: int

    @property
    def nonzeros(self) -> float:
        """Entries of P."""
        return 20.0 * self.states if self.branching == 0 else 10 * self.branching * self.states**2

    def no_larger_than(self, other: Cell) -> bool:
        """Whether this cell is of the same case, of any radius, and has neither more states nor more transitions.

        A grid without limits is no larger than one with limits.
        """
        family, other_family = (
            "ball" if case.startswith("ball") else case.removeprefix("free-") for case in (self.case, other.case)
        )
        return family == other_family and self.states <= other.states and self.nonzeros <= other.nonzeros

    def __str__(self) -> str:
        density = f", f_b = {self.branching:g}" if self.branching else ""
        return f"{self.case}, S = {self.states}{density}"


@dataclass(frozen=True)
class Plan:
    """What to measure: cells, smaller ones first, solvers with the accuracy asked of each, and limits of a solve."""

    name: str
    cells: tuple[Cell, ...]
    solvers: dict[str, float]
    time_limit: float
    memory_limit: float
    first_seed: int = instances.FIRST_SEED
    skip_slow: bool = False
    """Whether peers that are much slower than the fastest are run on one instance a cell only."""
    small_only: tuple[str, ...] = ()
    """Solvers that are run in cells of less than 1000 states only."""

    def solvers_of(self, cell: Cell) -> list[str]:
        """Name the solvers of a cell, the reference first."""
        left_out = self.small_only if cell.states >= 1000 else ()
        return [name for name in ("reference", *self.solvers) if name not in left_out]


def tolerances(*names: str) -> dict[str, float]:
    """Ours are asked for the default 1e-6, peers for 1e-4."""
    return {name: 1e-6 if name.startswith("ours") else 1e-4 for name in names}


def machine_bytes() -> float:
    """The memory of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def by_size(cell: tuple[str, int, float, int]) -> tuple[int, float, str]:
    """Order cells: by states, by density, then by case."""
    case, states, branching, _ = cell
    return states, branching, case


def quick(plan: Plan) -> Plan:
    """The reduced form: only cells of a few hundred states, one instance each, ten seconds a solve."""
    cells = tuple(Cell(c.case, c.states, c.branching, 1) for c in plan.cells if c.states < 1000)
    return replace(plan, cells=cells, time_limit=10.0)


GARNET = [(100, 0.05, 10), (100, 0.5, 10), (1000, 0.05, 5), (1000, 0.5, 5)]
GARNET += [(3000, 0.05, 2), (3000, 0.5, 2), (5000, 0.05, 2), (5000, 0.5, 2)]
ROWS = [(case, *size) for case in instances.VARIANCES for size in GARNET]
BALLS = [(case, *size) for case in instances.RADII for size in GARNET]
BALLS += [("ball-half", S, branching, 3 if S == 3000 else count) for S, branching, count in GARNET]
MEMORY = 0.7 * machine_bytes()
PLANS = {
    "table1": Plan(
        "table1",
        tuple(Cell(*size) for size in sorted(ROWS, key=by_size)),
        tolerances("ours", "ours-as-in-paper", "gurobi", "pdm", "scs", "scs-in-time"),
        300.0,
        MEMORY,
    ),
    "table2": Plan(
        "table2",
        tuple(Cell(*size) for size in sorted(BALLS, key=by_size)),
        tolerances("ours", "ours-as-in-paper", "gurobi", "scs", "scs-in-time"),
        300.0,
        MEMORY,
    ),
    "cases": Plan(
        "cases",
        (
            Cell("panels", 625, 0.0, 4),
            *(Cell("linear", S, branching, 5) for S in (100, 1000) for branching in (0.05, 0.5)),
            Cell("linear", 3000, 0.05, 3),
            *(Cell(case, S, 0.05, 5) for S in (100, 1000) for case in ("caps", "entropy", "ball-half")),
            *(Cell("kl", S, 0.05, 1) for S in (100, 1000)),
            *(Cell("free", S, 0.05, 3) for S in (1000, 5000)),
            *(Cell(case, side**2, 0.0, 1) for side in (200, 500, 1000) for case in ("free-grid", "grid")),
        ),
        tolerances(*(name for name in peers.PEERS if name not in ("scipy-highs", "scs-in-time"))),
        60.0,
        MEMORY,
        first_seed=2000,
        skip_slow=True,
        small_only=("ours-splitting", "ours-as-in-paper", "pdm", "highs-simplex", "highs-hipo", "osqp", "gurobi"),
    ),
}


# --- The file of one run of a plan


def read(file: Path) -> dict[str, Any]:
    """The file, or an empty one."""
    if not file.exists():
        return {"about": {}, "seeds": {}, "runs": []}
    return dict(json.loads(file.read_text()))


def write(file: Path, data: dict[str, Any]) -> None:
    """Write a run a line, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    runs = ",\n".join(json.dumps(run) for run in data["runs"])
    head = ",\n".join(f'"{key}": {json.dumps(data[key])}' for key in ("about", "seeds"))
    new = file.with_suffix(".new")
    new.write_text(f'{{\n{head},\n"runs": [\n{runs}\n]\n}}\n')
    new.replace(file)


def about(plan: Plan) -> dict[str, Any]:
    """Where and how the runs were made."""
    return {
        "plan": plan.name,
        "cores": peers.CORES,
        "memory_gb": round(machine_bytes() / 1e9, 1),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": peers.versions(),
        "time_limit": plan.time_limit,
        "memory_limit_gb": round(plan.memory_limit / 1e9, 1),
        "solvers": plan.solvers,
    }


# --- Measuring


def measure(plan: Plan, file: Path, say: Callable[[str], None], again: Sequence[str] = ()) -> dict[str, Any]:
    """Run what the file lacks, and the solvers of ``again`` anew; write the file after each run."""
    data, now = read(file), about(plan)
    other = [key for key in now if key != "solvers" and data["about"].get(key) != now[key]]
    asked = data["about"].get("solvers", {})
    other += [f"accuracy of {name}" for name in asked if asked[name] != plan.solvers.get(name)]
    if data["runs"] and other:
        raise ValueError(
            f"{file} was measured with other {' and '.join(other)}, so it cannot be resumed; move it away, or give "
            "another folder with --out"
        )
    data["about"] = now
    data["runs"] = [run for run in data["runs"] if run["solver"] not in again]
    clock = Clock(plan, data)
    for cell in plan.cells:
        for seed in seeds(plan, cell, data, file, say):
            for line in solve(plan, cell, seed, data, file):
                say(f"{cell}, seed {seed}, {line}; {clock.left()}")
    return data


def seeds(plan: Plan, cell: Cell, data: dict[str, Any], file: Path, say: Callable[[str], None]) -> list[int]:
    """The seeds of a cell, found once: those kept, and those passed over because no policy obeys."""
    found: dict[str, list[int]] = data["seeds"].get(str(cell), {"kept": [], "passed": []})
    if len(found["kept"]) < cell.count:
        if cell.case in instances.VARIANCES:
            say(f"{cell}: looking for seeds that some policy obeys")
        start = 0 if cell.case == "panels" else plan.first_seed
        first = max(found["kept"] + found["passed"], default=start - 1) + 1
        kept, passed = instances.seeds(cell.case, cell.states, cell.branching, cell.count - len(found["kept"]), first)
        found = {"kept": found["kept"] + kept, "passed": found["passed"] + passed}
        data["seeds"][str(cell)] = found
        write(file, data)
    return found["kept"][: cell.count]


def solve(plan: Plan, cell: Cell, seed: int, data: dict[str, Any], file: Path) -> Iterator[str]:
    """Run what is missing on one instance, and yield a line for each solver."""
    missing = [s for s in plan.solvers_of(cell) if find(data, cell, seed, s) is None]
    if not missing:
        return
    instance = instances.make(cell.case, cell.states, cell.branching, seed)
    with tempfile.TemporaryDirectory() as folder:
        file_of = {name: Path(folder) / name for name in ("instance", "warm-up", "own warm-up")}
        with file_of["instance"].open("wb") as target:
            pickle.dump(instance, target)
        for name in ("warm-up", "own warm-up"):
            small = instances.warm_up(cell.case, cell.branching, cell.states, name == "own warm-up")
            file_of[name].write_bytes(pickle.dumps(small))
        for solver in missing:
            run: Run = {"case": cell.case, "states": cell.states, "branching": cell.branching, "seed": seed}
            run["solver"], start = solver, time.perf_counter()
            before = stopped(data, cell, solver)
            if before is None and plan.skip_slow:
                before = slow(data, cell, solver)
            if before is not None:
                run |= {"outcome": "not run", "said": before}
            else:
                own = solver == "reference" or solver.startswith("ours")
                warm_up = file_of["own warm-up" if own else "warm-up"]
                run |= judged(plan, instance, solver, file_of["instance"], warm_up)
            run["all_seconds"] = round(time.perf_counter() - start, 3)
            data["runs"].append({**run, **provenance.made_by()})
            write(file, data)
            took = f" in {run['seconds']:.3g} s" if run["outcome"] in ("answer", "infeasible") else ""
            why = f", {run['said']}" if run["said"] and not took else ""
            yield f"{solver}: {run['outcome']}{took}{why}"


def judged(plan: Plan, instance: instances.Instance, solver: str, file: Path, warm_up: Path) -> Run:
    """Run one solver and let the referee say what its answer is worth."""
    if solver == "reference":
        limits = ("ours", file, warm_up, REFERENCE, REFERENCE_SECONDS, plan.memory_limit)
    else:
        limits = (solver, file, warm_up, plan.solvers[solver], plan.time_limit, plan.memory_limit)
    result = process.run(*limits)
    kept = ("outcome", "said", "seconds", "first_use", "peak_bytes", "sweeps")
    run = {key: result.get(key) for key in kept if key in result or key in kept[:2]}
    if result.get("d") is not None:
        run |= referee.judge(instance, result["d"])
    if result.get("certificate") is not None:
        run["bound"] = referee.proven_bound(instances.problem(instance), result["certificate"])
    return run


def find(data: dict[str, Any], cell: Cell, seed: int, solver: str) -> Run | None:
    """The run of a solver on an instance, if it was made."""
    wanted = (cell.case, cell.states, cell.branching, seed, solver)
    keys = ("case", "states", "branching", "seed", "solver")
    return next((run for run in data["runs"] if tuple(run[key] for key in keys) == wanted), None)


def stopped(data: dict[str, Any], cell: Cell, solver: str) -> str | None:
    """Where the solver reached a limit in this cell or a smaller one."""
    for run in data["runs"]:
        there = Cell(run["case"], run["states"], run["branching"], 0)
        if run["solver"] == solver and run["outcome"] in LIMITS and there.no_larger_than(cell):
            return f"{run['outcome']} at {there}, seed {run['seed']}"
    return None


def slow(data: dict[str, Any], cell: Cell, solver: str) -> str | None:
    """Where the solver took much longer than the fastest rival on the first instance of this cell."""
    if cell.case == "panels" or solver == "reference" or solver.startswith("ours"):
        return None
    done = {run["solver"]: run for run in reversed(data["runs"]) if same(run, cell) and run["outcome"] == "answer"}
    times = [run["seconds"] for name, run in done.items() if name in RIVALS]
    if solver not in done or done[solver]["seconds"] <= TOO_SLOW * min(times, default=np.inf):
        return None
    return f"slower than another peer at {cell}, seed {done[solver]['seed']}"


class Clock:
    """How long the rest will take.

    In a cell a solver takes as long as it did there, and in a new cell longer than in its last one by a power of the
    nonzeros.  Where that reaches the time limit, it is run once and then no more.
    """

    def __init__(self, plan: Plan, data: dict[str, Any]) -> None:
        self.plan, self.data = plan, data

    def left(self) -> str:
        """In words."""
        total = sum(self.solver(name) for name in ("reference", *self.plan.solvers))
        return f"about {total / 60:.0f} min left" if total >= 90 else f"about {total:.0f} s left"

    def solver(self, name: str) -> float:
        total, mine = 0.0, [run for run in self.data["runs"] if run["solver"] == name]
        for cell in self.plan.cells:
            missing = cell.count - sum(same(run, cell) for run in mine) if name in self.plan.solvers_of(cell) else 0
            if missing > 0 and stopped(self.data, cell, name) is None:
                start, solve = self.expected(cell, [run for run in mine if run["outcome"] != "not run"])
                if solve >= self.plan.time_limit:
                    return total + start + self.plan.time_limit
                total += missing * (start + solve)
        return total

    def expected(self, cell: Cell, mine: list[Run]) -> tuple[float, float]:
        """Seconds to start and judge, and to solve."""
        if not mine:
            return 2.0, 1.0
        near = [run for run in mine if same(run, cell)] or mine[-1:]
        there = Cell(near[-1]["case"], near[-1]["states"], near[-1]["branching"], 0)
        growth = max(cell.nonzeros / there.nonzeros, 1.0) ** GROWTH
        solve = [run.get("seconds", run["all_seconds"]) for run in near]
        start = [run["all_seconds"] - s for run, s in zip(near, solve, strict=True)]
        return sum(start) / len(near), growth * sum(solve) / len(near)


def same(run: Run, cell: Cell) -> bool:
    """Whether a run belongs to a cell."""
    return (run["case"], run["states"], run["branching"]) == (cell.case, cell.states, cell.branching)


def main() -> None:
    """Measure one plan and write the pages again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", choices=PLANS)
    parser.add_argument("--quick", action="store_true", help="the smallest cells, one instance each")
    parser.add_argument("--again", nargs="+", default=[], choices=peers.PEERS, help="solvers to measure anew")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    options = parser.parse_args()
    plan = quick(PLANS[options.plan]) if options.quick else PLANS[options.plan]
    measure(plan, options.out / f"{plan.name}.json", lambda line: print(line, flush=True), options.again)


if __name__ == "__main__":
    main()
