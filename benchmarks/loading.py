"""How long models take to load from files, and how much memory: ``python benchmarks/loading.py umb tra csv parquet``.

Each format named on the command line is written with ``cvxmdp.save`` and read with ``cvxmdp.load``, each in a process
of its own.  Memory is the most that the reading process held, and what of it was there before; beside it stands what
the model itself takes, without its names, as some files are packed smaller than that.  ``--named`` gives the states and
actions names, ``--shuffled`` mixes the rows of a table.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import cvxmdp as cm

ACTIONS, BRANCHES = 2, 4


def model(transitions, named=False):
    """A model with so many transitions to states nearby, with probabilities and costs that need all their digits."""
    states = transitions // (ACTIONS * BRANCHES)
    rng = np.random.default_rng(0)
    pairs = states * ACTIONS
    targets = (np.arange(pairs)[:, None] // ACTIONS + [0, 1, 7, 61]) % states
    probabilities = rng.dirichlet(np.ones(BRANCHES), pairs)
    P = sp.csr_array(
        (probabilities.ravel(), targets.ravel(), np.arange(0, pairs * BRANCHES + 1, BRANCHES)), shape=(pairs, states)
    )
    state, action = np.repeat(np.arange(states), ACTIONS), np.tile(np.arange(ACTIONS), states)
    names = ([f"room {s}" for s in range(states)], ["stay", "go"]) if named else ()
    return cm.MDP.from_pairs(state, action, P, {"time": rng.random(pairs)}, 0.99, np.eye(1, states)[0], *names)


def shuffle(path):
    """Mix the rows of a table."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    csv = path.suffix == ".csv"
    table = pa.csv.read_csv(path) if csv else pa.parquet.read_table(path)
    table = table.take(np.random.default_rng(0).permutation(table.num_rows))
    (pa.csv.write_csv if csv else pa.parquet.write_table)(table, path)


def peak():
    """Return the most memory that this process held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read(path):
    before, start = peak(), time.perf_counter()
    mdp = cm.load(path, discount=0.99)
    seconds = time.perf_counter() - start
    P = mdp.transitions
    arrays = [P.data, P.indices, P.indptr, mdp.state, mdp.action, mdp.initial, *mdp.costs.values()]
    found = {"seconds": seconds, "peak": peak(), "before": before, "transitions": int(P.nnz)}
    print(json.dumps(found | {"model": sum(array.nbytes for array in arrays)}))


def measure(ending, transitions, how):
    """Write and read a model, and print one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model.{ending}"
        subprocess.run([sys.executable, __file__, "--write", path, "--transitions", str(transitions), *how], check=True)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        run = subprocess.run([sys.executable, __file__, "--read", path], check=True, stdout=subprocess.PIPE)
    found = json.loads(run.stdout)
    mega = {name: found[name] / 2**20 for name in ("peak", "before", "model")}
    print(
        f"{ending:8} {found['transitions']:>10} transitions  {found['seconds']:6.1f} s  files {size / 2**20:6.0f} MiB  "
        f"peak {mega['peak']:6.0f} MiB = {found['peak'] / size:.2f} times, {mega['before']:.0f} of them before; "
        f"the model {mega['model']:.0f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", help="endings: npz, umb, tra, csv, parquet")
    parser.add_argument("--transitions", type=int, default=10_000_000)
    parser.add_argument("--named", action="store_true", help="states and actions have names")
    parser.add_argument("--shuffled", action="store_true", help="rows are in no order; tables only")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        model(arguments.transitions, arguments.named).save(arguments.write)
        if arguments.shuffled:
            shuffle(Path(arguments.write))
    elif arguments.read:
        read(arguments.read)
    for ending in arguments.formats:
        how = [f"--{option}" for option in ("named", "shuffled") if getattr(arguments, option)]
        measure(ending, arguments.transitions, how)


if __name__ == "__main__":
    main()
