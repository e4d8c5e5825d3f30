"""How a solve grows with states and ranks: grids under two budgets, in one place and on ranks pinned to cores.

    python benchmarks/scaling.py                     # docs/scaling.md: sides 500, 1000 and 2000
    python benchmarks/scaling.py --sides 4000 --ranks 2 --limit 3600

The discount is ``1 - 1 / side``, so that grids of all sizes have the same shape.  Every run is a process, or some, of
its own; ``results/scaling.json`` keeps one row a run.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from provenance import made_by

RESULTS = Path(__file__).parent / "results" / "scaling.json"
COLLISION, NORTH = 0.02, 0.235
"""Limits on the time spent on obstacles and in the upper quarter of the grid, where the best policy without them spends
0.065 and 0.242."""


def run(side: int, ranks: int, limit: float, save: str | None) -> None:
    """Make and solve one grid, as one of the ranks if there are any, and print what it took."""
    began = time.perf_counter()
    import cvxmdp as cm
    from cvxmdp.ranks.model import state_numbers

    mdp = cm.worlds.gridworld(side, 1 - 1 / side, **({"comm": True} if ranks else {}))
    state = state_numbers(mdp) if ranks else mdp.state
    limits = [cm.Budget("collision", COLLISION), cm.Budget((state < side * (side // 4)) * 1.0, NORTH, name="north")]
    problem = cm.Problem(mdp, "time", limits)
    made = time.perf_counter()
    solution = problem.solve(time_limit=limit, explain=False)
    solved = time.perf_counter()
    if save is not None:
        solution.save(save)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    peaks = mdp.world.gathered(peak) if ranks else [peak]
    if not ranks or mdp.world.rank == 0:
        row = {
            "side": side, "ranks": ranks, "states": mdp.num_states, "pairs": mdp.num_pairs,
            "transitions": int(mdp.transitions.nnz), "status": solution.status.name, "value": solution.value,
            "gap": solution.gap, "passes": solution.stats.sweeps, "method": solution.stats.method,
            "making": made - began, "solve": solved - made, "phases": dict(solution.stats.seconds),
            "levels": {name: float(np.max(level)) for name, level in solution.levels.items()},
            "peak_gib": peaks,
        }  # fmt: skip
        print(json.dumps(row), flush=True)


def measured(side: int, ranks: int, limit: float, save: str | None = None) -> dict:
    """Run one case in processes of its own."""
    mine = [sys.executable, __file__, "--one", str(side), str(ranks), "--limit", str(limit)]
    mine += [] if save is None else ["--save", save]
    known = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if ranks:
        known["OMP_NUM_THREADS"] = "1"
        mine = ["mpiexec", "--bind-to", "core", "-n", str(ranks), *mine]
    done = subprocess.run(mine, env=os.environ | known, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(lines[-1])


def main() -> None:
    """Measure all cases; ranks of 0 stand for one place with all its threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, type=int, metavar=("SIDE", "RANKS"))
    parser.add_argument("--sides", nargs="*", type=int, default=[500, 1000, 2000])
    parser.add_argument("--ranks", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--limit", type=float, default=1800.0)
    parser.add_argument("--save", help="a file for the solution of the last case")
    given = parser.parse_args()
    if given.one:
        run(*given.one, given.limit, given.save)
        return
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    for side in given.sides:
        for ranks in given.ranks:
            row = measured(side, ranks, given.limit, given.save)
            rows = [r for r in rows if (r["side"], r["ranks"]) != (side, ranks)] + [{**row, **made_by()}]
            print(f"{side:5d} {ranks} ranks: {row['status']}, {row['solve']:.1f} s, "
                  f"{', '.join(f'{peak:.2f}' for peak in row['peak_gib'])} GiB", flush=True)  # fmt: skip
            RESULTS.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
