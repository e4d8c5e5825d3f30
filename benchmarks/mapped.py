"""A model that lies in a file and is larger than half of the memory, solved in one place.

    python benchmarks/mapped.py FOLDER               # docs/scaling.md: a reservoir of 20 000 levels, 1.2e9 transitions

The reservoir gains what flows in, one of many amounts, and loses what an action releases.  Two budgets limit how often
it overflows and how often it is nearly empty.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
from provenance import made_by

from cvxmdp.io.files import VERSION, plain_member

RESULTS = Path(__file__).parent / "results" / "mapped.json"
ACTIONS, INFLOWS = 100, 600
LEVELS = 20_000
"""Only of so many are results kept."""
CHUNK = 200
"""Levels that are written at a time."""
FULL, LOW = 0.015, 0.45
"""Limits on the time in which the reservoir is all but full, and in which it is less than half full."""


def written(path: Path, levels: int) -> None:
    """Write the reservoir, one chunk after the other."""
    pairs, amounts = levels * ACTIONS, np.arange(INFLOWS)
    chance = np.exp(-0.5 * ((amounts - INFLOWS / 3) / (INFLOWS / 6)) ** 2)
    chance /= chance.sum()
    release = np.arange(ACTIONS) * INFLOWS / ACTIONS
    level = np.repeat(np.arange(levels), ACTIONS)
    left = level - np.tile(release.astype(int), levels)
    missed = np.tile(release / (INFLOWS / 2) - 1, levels)  # what is asked for is half of the most
    costs = {
        "loss": (level + INFLOWS / 3 > levels - 1) + 0.3 * missed**2,
        "full": (left >= levels - levels // 8) * 1.0,
        "low": (left < levels // 2) * 1.0,
    }
    header = {"kind": "cvxmdp model", "version": VERSION, "discount": 0.99, "states": levels, "actions": ACTIONS,
              "costs": list(costs), "labels": []}  # fmt: skip
    plain = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), "state": level,
             "action": np.tile(np.arange(ACTIONS), levels), "initial": np.full(levels, 1 / levels),
             "P_shape": np.array([pairs, levels]), "P_indptr": np.arange(pairs + 1) * INFLOWS,
             **{f"cost:{i}": cost for i, cost in enumerate(costs.values())}}  # fmt: skip
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in plain.items():
            with plain_member(archive, name) as member:
                np.lib.format.write_array(member, array, version=(1, 0))
        for name, kind in (("P_data", "<f8"), ("P_indices", "<i4")):
            with plain_member(archive, name) as member:
                described = {"descr": kind, "fortran_order": False, "shape": (pairs * INFLOWS,)}
                np.lib.format.write_array_header_1_0(member, described)
                for at in range(0, levels, CHUNK):
                    here = left[at * ACTIONS : (at + CHUNK) * ACTIONS]
                    rows = np.clip(here[:, None], 0, levels - INFLOWS) + amounts
                    part = np.broadcast_to(chance, rows.shape) if kind == "<f8" else rows
                    member.write(np.ascontiguousarray(part, dtype=kind).data)


def solved(path: Path, limit: float) -> None:
    """Load and solve the model, and print what it took."""
    import cvxmdp as cm

    began = time.perf_counter()
    mdp = cm.load(path)
    loaded = time.perf_counter()
    limits = [cm.Budget("full", FULL), cm.Budget("low", LOW)]
    solution = cm.Problem(mdp, "loss", limits).solve(time_limit=limit, explain=False)
    ended = time.perf_counter()
    status = Path("/proc/self/status").read_text().splitlines()
    own = {line.split(":")[0]: int(line.split()[1]) / 2**20 for line in status if line.startswith(("VmHWM", "RssAnon"))}
    print(json.dumps({
        "states": mdp.num_states, "transitions": int(mdp.transitions.nnz), "status": solution.status.name,
        "value": solution.value, "gap": solution.gap, "method": solution.stats.method, "passes": solution.stats.sweeps,
        "load": loaded - began, "solve": ended - loaded, "phases": dict(solution.stats.seconds),
        "levels": {name: float(np.max(level)) for name, level in solution.levels.items()},
        "file_gib": os.path.getsize(path) / 2**30, "own_gib": own,
    }), flush=True)  # fmt: skip


def main() -> None:
    """Write the model unless it is there, and solve it in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--levels", type=int, default=LEVELS)
    parser.add_argument("--limit", type=float, default=3600.0)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    path = given.folder / f"reservoir_{given.levels}.npz"
    if given.one:
        solved(path, given.limit)
        return
    if not path.exists():
        written(path, given.levels)
    command = [sys.executable, __file__, str(given.folder), "--levels", str(given.levels), "--limit", str(given.limit)]
    done = subprocess.run([*command, "--one"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    row = json.loads(done.stdout.splitlines()[-1])
    if given.levels == LEVELS:
        RESULTS.write_text(json.dumps({**row, **made_by()}, indent=1) + "\n")
    print(done.stdout)


if __name__ == "__main__":
    main()
