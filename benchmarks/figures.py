"""Measure the figures of docs/figures.md: passes, seconds and proven gap of the methods, and start-up times.

    python benchmarks/figures.py            measure everything (about twenty minutes on two cores), write both files
    python benchmarks/figures.py --quick    S = 100 and the grid only, print the table
    python benchmarks/figures.py --table    write docs/figures.md again from benchmarks/results/figures.json

Raw numbers go to benchmarks/results/figures.json.  Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import scipy

import cvxmdp as cm
from cvxmdp.cli import PANELS

ROOT = Path(__file__).parent
RESULTS = ROOT / "results" / "figures.json"
PAGE = ROOT.parent / "docs" / "figures.md"
TIME_LIMIT = 30.0
METHODS = {"as in the paper": cm.Splitting.as_in_paper(), "splitting": "splitting", "auto": "auto"}


def linear(states: int, branching: float) -> tuple[int, cm.Problem]:
    """Ten rows E ~ N(0, 1), b ~ N(-0.2, 1): the first feasible seed from 100 on."""
    for seed in range(100, 200):
        mdp = cm.worlds.garnet(states, 10, branching, seed=seed)
        rng = np.random.default_rng([seed, 1])
        E, b = rng.normal(size=(10, mdp.num_pairs)), rng.normal(-0.2, 1.0, size=10)
        problem = cm.Problem(mdp, "cost", [cm.Linear(E, at_most=b)])
        if problem.solve(tolerance=1e-4).status is not cm.Status.INFEASIBLE:
            return seed, problem
    raise RuntimeError("no feasible seed")


def ball(states: int, branching: float) -> tuple[int, cm.Problem]:
    """An l2 ball around a random policy's occupancy, of half the distance to the unconstrained optimum."""
    seed = 100
    mdp = cm.worlds.garnet(states, 10, branching, seed=seed)
    table = np.random.default_rng([seed, 2]).random((states, 10))
    center = mdp.evaluate(table / table.sum(axis=1, keepdims=True)).occupancy
    distance = np.linalg.norm(center - cm.Problem(mdp, "cost").solve().occupancy)
    return seed, cm.Problem(mdp, "cost", [cm.NormBall(center, 0.5 * distance)])


def cases(quick: bool) -> Iterator[tuple[str, int, cm.Problem]]:
    """Yield name, seed and problem of every case."""
    mdp = cm.worlds.gridworld()
    for time_at_most, collision_at_most in PANELS:
        limits = [cm.Budget("time", at_most=time_at_most), cm.Budget("collision", at_most=collision_at_most)]
        yield f"grid 25 x 25, ({time_at_most:g}, {collision_at_most:g})", 0, cm.Problem(mdp, "time", limits)
    for states in (100,) if quick else (100, 1000, 3000):
        for branching in (0.05, 0.5):
            for kind, make in (("linear", linear), ("ball", ball)):
                seed, problem = make(states, branching)
                yield f"{kind}, S = {states}, f_b = {branching:g}", seed, problem


def measure(quick: bool) -> dict[str, object]:
    """Solve every case with every method."""
    for method in METHODS.values():  # compile and load everything once, on another instance
        _, problem = ball(60, 0.1)
        problem.solve(method=method, time_limit=TIME_LIMIT)
    cm.Problem(cm.worlds.gridworld(12), "time", [cm.Budget("collision", at_most=1e-4)]).solve()
    rows = []
    for case, seed, problem in cases(quick):
        for name, method in METHODS.items():
            problem.mdp._dynamics.clear()  # set-up is part of the time
            solution = problem.solve(method=method, time_limit=TIME_LIMIT)
            solution.certificate.check(problem)
            row = {
                "case": case,
                "seed": seed,
                "method": name,
                "status": solution.status.name,
                "passes": solution.stats.iterations,
                "sweeps": solution.stats.sweeps,
                "seconds": solution.stats.seconds["total"],
                "gap": solution.gap,
                "value": solution.value,
                "bound": solution.bound,
                "violation": max((c.relative(solution.occupancy) for c in problem.constraints), default=0.0),
            }
            if solution.infeasibility is not None:
                row["distance"] = list(solution.infeasibility.distance)
            rows.append(row)
            print(json.dumps(row), flush=True)
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    return {"cores": os.cpu_count(), "versions": versions, "time_limit": TIME_LIMIT, "rows": rows, "start": start_up()}


def start_up() -> dict[str, float]:
    """Import and first solve, each in new processes with kernels cached: the median of five."""
    first = (
        "import cvxmdp as cm; mdp = cm.worlds.gridworld();"
        "cm.Problem(mdp, 'time', [cm.Budget('collision', at_most=1e-3)]).solve()"
    )
    return {"empty": _process("pass"), "import": _process("import cvxmdp"), "first solve": _process(first)}


def _process(code: str) -> float:
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        seconds.append(time.perf_counter() - start)
    return median(seconds[1:])


def page(data: dict[str, object]) -> str:
    """Write the page from the data."""
    lines = [
        "# Figures",
        "",
        "Measured by `make figures` (`benchmarks/figures.py`); raw numbers in `benchmarks/results/figures.json`.",
        f"{data['cores']} cores, Python {data['versions']['python']}, NumPy {data['versions']['numpy']}, SciPy "
        f"{data['versions']['scipy']}, time limit {data['time_limit']:g} s a solve, one run of each.",
        "",
        "Garnet models have ten actions and discount 0.95. *linear*: ten rows drawn as in the paper, the first",
        "feasible seed from 100 on. *ball*: an active Euclidean ball, half as large as the distance from a random",
        "policy to the unconstrained optimum. The grid panels are named by their limits on time and collision. Seconds",
        "count from arrays in memory to the answer with its certificate, which was checked again; compilation is",
        "excluded. The gap is proven and relative to |c|'d; where a limit is exceeded by more than 1e-6, the worst",
        "relative violation is given instead.",
        "",
        "| case | method | status | passes | seconds | proven gap or violation |",
        "|---|---|---|---|---|---|",
    ]
    for row in data["rows"]:
        if "distance" in row:
            low, high = row["distance"]
            proof = f"distance proven within {high / low - 1:.0e}" if low > 0 else "proof found"
        elif row["violation"] > 1e-6:
            proof = f"violation {row['violation']:.1e}"
        else:
            proof = f"{max(row['gap'], 0.0):.1e}"
        status = row["status"].lower().replace("_", " ")
        cells = [row["case"], row["method"], status, str(row["passes"]), f"{row['seconds']:.2f}", proof]
        lines.append("| " + " | ".join(cells) + " |")
    start = data["start"]
    lines += [
        "",
        "## Start-up",
        "",
        f"Median of five new processes, kernels cached: an empty Python {start['empty']:.2f} s, `import cvxmdp` "
        f"{start['import']:.2f} s, import and a first solve of the grid world {start['first solve']:.2f} s.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, or write the page again."""
    if "--table" in sys.argv:
        PAGE.write_text(page(json.loads(RESULTS.read_text())))
        return
    data = measure(quick="--quick" in sys.argv)
    if "--quick" in sys.argv:
        print(page(data))
        return
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(data, indent=1))
    PAGE.write_text(page(data))


if __name__ == "__main__":
    main()
