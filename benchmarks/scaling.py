"""How a solve grows with states, limits and ranks: grids under budgets, in one place and on ranks pinned to cores.

    python benchmarks/scaling.py                     # docs/scaling.md: sides 500, 1000 and 2000
    python benchmarks/scaling.py --sides 500 --limits 1 4 8 16
    python benchmarks/scaling.py --sides 4000 --ranks 2 --seconds 3600 --check FOLDER
    python benchmarks/scaling.py --fit               # what docs/scaling.md says of growth

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
from typing import Any

import numpy as np
from provenance import made_by

RESULTS = Path(__file__).parent / "results" / "scaling.json"
COLLISION, NORTH = 0.02, 0.235
"""Limits on the time spent on obstacles and in the upper quarter of the grid, where the best policy without them spends
0.065 and 0.242."""


def run(side: int, ranks: int, count: int, seconds: float, folder: str | None) -> None:
    """Make and solve one grid, as one of the ranks if there are any, and print what it took."""
    began = time.perf_counter()
    import cvxmdp as cm

    mdp = cm.worlds.gridworld(side, 1 - 1 / side, comm=True if ranks else None)
    problem = cm.Problem(mdp, "time", limits(mdp, side, count))
    made = time.perf_counter()
    solution = problem.solve(time_limit=seconds, explain=False)
    solved = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    peaks = mdp.world.gathered(peak) if ranks else [peak]
    row = {
        "side": side, "ranks": ranks, "limits": count, "states": mdp.num_states, "pairs": mdp.num_pairs,
        "transitions": int(mdp.transitions.nnz), "status": solution.status.name, "value": solution.value,
        "gap": solution.gap, "passes": solution.stats.sweeps, "method": solution.stats.method,
        "making": made - began, "solve": solved - made, "phases": dict(solution.stats.seconds),
        "levels": {name: float(np.max(level)) for name, level in solution.levels.items()}, "peak_gib": peaks,
    }  # fmt: skip
    if not ranks or mdp.world.rank == 0:
        print(json.dumps(row), flush=True)
    if folder is not None:
        solution.save(f"{folder}/answer.npz")
        del solution, problem
        mdp.save(f"{folder}/model.npz")


def limits(mdp: Any, side: int, count: int) -> list[Any]:
    """Return a budget of the time in the upper quarter of the grid, and others of that on some obstacles each."""
    import cvxmdp as cm
    from cvxmdp.ranks.model import state_numbers

    state, shares = state_numbers(mdp) if mdp.world is not None else mdp.state, count - 1
    found = [cm.Budget((state < side * (side // 4)) * 1.0, NORTH, name="north")]
    if shares == 1:
        found.append(cm.Budget("collision", COLLISION))
    else:
        hits = mdp.costs["collision"]
        found += [cm.Budget(hits * (state % shares == k), COLLISION / shares, name=f"{k}") for k in range(shares)]
    return found


def measured(side: int, ranks: int, count: int, seconds: float, folder: str | None = None) -> dict:
    """Run one case in processes of its own, and check its answer if there is a folder for it."""
    mine = [sys.executable, __file__, "--one", str(side), str(ranks), str(count)]
    mine += ["--seconds", str(seconds), *([] if folder is None else ["--check", folder])]
    known = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if ranks:
        known["OMP_NUM_THREADS"] = "1"
        mine = ["mpiexec", "--bind-to", "core", "-n", str(ranks), *mine]
    done = subprocess.run(mine, env=os.environ | known, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(lines[-1])


def checked(folder: str) -> dict:
    """Let the verifier prove the answer in a folder, in one place, and return what that took."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "cvxmdp", "check", f"{folder}/model.npz", f"{folder}/answer.npz"]
    done = subprocess.run(command, capture_output=True, text=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    files = {name: os.path.getsize(f"{folder}/{name}.npz") / 2**30 for name in ("model", "answer")}
    said = done.stdout if not done.returncode else done.stdout[-2000:] + done.stderr[-2000:]
    return {"seconds": time.perf_counter() - began, "peak_gib": peak, "files_gib": files, "code": done.returncode,
            "said": said}  # fmt: skip


def fitted(rows: list[dict]) -> None:
    """Print growth as least squares see it: the time on ranks as a product of powers, memory as a sum."""
    rows = [row for row in rows if row["ranks"]]
    size, ranks, count = (
        np.array([row[key] for row in rows], dtype=float) for key in ("transitions", "ranks", "limits")
    )
    seconds, memory = np.array([row["solve"] for row in rows]), np.array([sum(row["peak_gib"]) for row in rows])
    table = np.column_stack([np.ones(len(rows)), np.log(size / 1e6), np.log(ranks), np.log(count)])
    powers = np.linalg.lstsq(table, np.log(seconds), rcond=None)[0]
    off = np.exp(table @ powers) / seconds
    print(f"seconds = {np.exp(powers[0]):.3g} (transitions / 1e6)^{powers[1]:.2f} ranks^{powers[2]:.2f} "
          f"limits^{powers[3]:.2f}; over measured: {off.min():.2f} to {off.max():.2f}, {len(rows)} runs")  # fmt: skip
    table = np.column_stack([ranks, size / 1e9, size * count / 1e9])
    shares = np.linalg.lstsq(table / memory[:, None], np.ones(len(rows)), rcond=None)[0]
    off = table @ shares / memory
    print(f"GiB in all = {shares[0]:.2f} ranks + ({shares[1]:.1f} + {shares[2]:.1f} limits) transitions / 1e9; "
          f"over measured: {off.min():.2f} to {off.max():.2f}")  # fmt: skip
    for big in (1e9, 1e10):
        for cores in (2, 64):
            hours = np.exp(powers @ [1, np.log(big / 1e6), np.log(cores), np.log(2)]) / 3600
            gib = shares @ [cores, big / 1e9, 2 * big / 1e9]
            print(f"predicted: {big:.0e} transitions on {cores} cores, 2 limits: {hours:.1f} hours, {gib:.0f} GiB")


def main() -> None:
    """Measure all cases; ranks of 0 stand for one place with all its threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sides", nargs="*", type=int, default=[500, 1000, 2000])
    parser.add_argument("--ranks", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--limits", nargs="*", type=int, default=[2], help="how many")
    parser.add_argument("--seconds", type=float, default=1800.0, help="for each solve")
    parser.add_argument("--check", metavar="FOLDER", help="keep model and answer there, and let the verifier prove it")
    parser.add_argument("--fit", action="store_true", help="only say how what was measured grows")
    given = parser.parse_args()
    if given.one:
        run(*given.one, given.seconds, given.check)
        return
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    if given.fit:
        fitted(rows)
        return
    cases = [(side, ranks, count) for side in given.sides for ranks in given.ranks for count in given.limits]
    for case in cases:
        row = {**measured(*case, given.seconds, given.check), **made_by()}
        if given.check:
            row["check"] = checked(given.check)
        rows = [r for r in rows if tuple(r[key] for key in ("side", "ranks", "limits")) != case] + [row]
        print(f"{case[0]:5d} {case[1]} ranks {case[2]} limits: {row['status']}, {row['solve']:.1f} s, "
              f"{', '.join(f'{peak:.2f}' for peak in row['peak_gib'])} GiB", flush=True)  # fmt: skip
        RESULTS.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
