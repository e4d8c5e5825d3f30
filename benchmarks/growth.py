"""How our time grows, how far a sweep is from the speed of the memory, and how the methods compare.

    python benchmarks/growth.py          measure what benchmarks/results/growth.json lacks; draws growth.png
    python benchmarks/pages.py           makes docs/growth.md of it

Models are Garnet with ten actions, discount 0.95, from seed 3000 on, or grid worlds.  Limits of the rows lie half way
between what a random policy and the best one do, or where the random policy is if that is higher, so that all problems
are feasible.  Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import json
import pickle
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import harness
import instances
import numpy as np
import process
import provenance
import referee

import cvxmdp as cm
from cvxmdp.report.plots import BLUE, ORANGE, PALE

FIRST_SEED, COUNT = 3000, 3
SUCCESSORS = 20
"""Successors of a pair where the number of states grows."""
STATES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
DENSITIES = (0.005, 0.02, 0.1, 0.5)
ROWS = (1, 3, 10, 30, 100, 300)
METHODS = ("auto", "mixing", "interior", "dual", "newton", "splitting")
METHOD_CASES = ("linear", "caps", "ball-half", "entropy", "kl")
METHOD_ROWS = ((300, 30), (300, 100), (300, 200), (1000, 30), (1000, 100), (1000, 300))
"""States and rows."""
LIMIT = 10.0
Row = dict[str, Any]


def rows_instance(states: int, branching: float, rows: int, seed: int) -> instances.Instance:
    """A feasible instance under so many random rows."""
    mdp = cm.worlds.garnet(states, instances.ACTIONS, branching, seed=seed, discount=instances.DISCOUNT)
    free = cm.Problem(mdp, "cost").solve()
    rng = np.random.default_rng([seed, 1])
    weights = rng.exponential(size=(states, instances.ACTIONS))
    random = mdp.evaluate(mdp.policy(weights / weights.sum(axis=1, keepdims=True))).occupancy
    E = rng.normal(size=(rows, mdp.num_pairs))
    b = np.maximum(E @ random, (E @ random + E @ free.occupancy) / 2)
    return instances.Instance(
        "linear", branching, seed, mdp.transitions, mdp.costs["cost"], mdp.discount, mdp.initial, instances.Rows(E, b)
    )


def timed(make: Any, count: int = COUNT) -> Row:
    """Solve so many instances; median and extremes of the seconds, and of the sweeps."""
    seconds, sweeps, said = [], [], ""
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        problem = instances.problem(make(seed))
        start = time.perf_counter()
        solution = problem.solve(time_limit=300.0)
        seconds.append(time.perf_counter() - start)
        sweeps.append(solution.stats.sweeps)
        if solution.status is not cm.Status.OPTIMAL:
            raise RuntimeError(f"seed {seed}: {solution.status.value}")
        said = solution.stats.method
    return {
        "seconds": median(seconds), "least": min(seconds), "greatest": max(seconds), "sweeps": median(sweeps),
        "most_sweeps": max(sweeps), "method": said,
    }  # fmt: skip


def by_states() -> list[Row]:
    rows = []
    for S in STATES:
        found = timed(lambda seed, S=S: rows_instance(S, min(SUCCESSORS / S, 1.0), 10, seed))
        rows.append({"states": S, "nonzeros": S * instances.ACTIONS * SUCCESSORS, **found})
        print(rows[-1], flush=True)
    return rows


def by_transitions() -> list[Row]:
    rows = []
    for density in DENSITIES:
        found = timed(lambda seed, density=density: rows_instance(1000, density, 10, seed))
        rows.append({"density": density, "nonzeros": 10_000_000 * density, **found})
        print(rows[-1], flush=True)
    return rows


def by_rows() -> list[Row]:
    rows = []
    for n in ROWS:
        rows.append({"rows": n, **timed(lambda seed, n=n: rows_instance(1000, 0.02, n, seed))})
        print(rows[-1], flush=True)
    return rows


def bandwidth() -> float:
    """Bytes a second read from memory by all cores: the best of several products of a large array with itself."""
    x, best = np.ones(60_000_000), np.inf
    for _ in range(10):
        start = time.perf_counter()
        x @ x
        best = min(best, time.perf_counter() - start)
    return x.nbytes / best


def sweep_speed() -> list[Row]:
    """Seconds of one Bellman sweep beside the bytes of P over the bandwidth."""
    speed, rows = bandwidth(), []
    worlds = {
        "Garnet, S = 5000, f_b = 0.05, sparse": cm.worlds.garnet(5000, 10, 0.05, seed=FIRST_SEED),
        "Garnet, S = 3000, f_b = 0.5, dense": cm.worlds.garnet(3000, 10, 0.5, seed=FIRST_SEED),
        "Garnet, S = 100 000, 20 successors, sparse": cm.worlds.garnet(100_000, 10, 2e-4, seed=FIRST_SEED),
        "grid 1000 x 1000, sparse": cm.worlds.gridworld(1000, 0.999, seed=FIRST_SEED),
    }
    for name, mdp in worlds.items():
        dynamics, P = mdp.dynamics(), mdp.transitions
        size = P.nbytes if isinstance(P, np.ndarray) else P.data.nbytes + P.indices.nbytes + P.indptr.nbytes
        c, V = next(iter(mdp.costs.values())), np.random.default_rng(0).normal(size=mdp.num_states)
        dynamics.sweep(c, V)
        times = []
        for _ in range(10):
            start = time.perf_counter()
            dynamics.sweep(c, V)
            times.append(time.perf_counter() - start)
        rows.append({"model": name, "bytes": size, "seconds": median(times), "limit": size / speed, "bandwidth": speed})
        print(rows[-1], flush=True)
    return rows


def method_cases() -> Iterator[tuple[str, int, list[instances.Instance]]]:
    """Name, states and two instances of each case on which the methods are compared."""
    for case in METHOD_CASES:
        for S in (100, 1000):
            seeds = instances.seeds(case, S, 0.05, 2, FIRST_SEED)[0]
            yield case, S, [instances.make(case, S, 0.05, seed) for seed in seeds]
    for S, n in METHOD_ROWS:
        yield f"{n} rows", S, [rows_instance(S, SUCCESSORS / S, n, seed) for seed in (FIRST_SEED, FIRST_SEED + 1)]


def methods() -> list[Row]:
    """Every method that takes a case, at most ten seconds each."""
    rows = []
    for case, S, made in method_cases():
        for method in METHODS:
            times = []
            for instance in made:
                problem = instances.problem(instance)
                try:
                    problem.solve(method=method, max_iterations=2)  # loads
                except ValueError:  # does not take such limits
                    break
                start = time.perf_counter()
                solution = problem.solve(method=method, time_limit=LIMIT)
                optimal = solution.status is cm.Status.OPTIMAL
                times.append(time.perf_counter() - start if optimal else np.inf)
            if times:
                typical = median(times)
                rows.append({
                    "case": case, "states": S, "method": method, "said": solution.stats.method,
                    "seconds": typical if np.isfinite(typical) else None,
                })  # fmt: skip
                print(rows[-1], flush=True)
    return rows


def large() -> list[Row]:
    """The grid of a million cells under two budgets, in a process of its own, for two discounts."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        small, file = Path(folder) / "small", Path(folder) / "file"
        small.write_bytes(pickle.dumps(instances.warm_up("grid", 0.0, 10**6, True)))
        for discount in (0.99, 0.999):
            instance = replace(instances.make("grid", 10**6, 0.0, FIRST_SEED), gamma=discount)
            arrives = discount ** (2 * 999 / (1 - instances.GRID_SLIP))
            limits = np.array([1 - arrives / 2, 1e-2 * (1 - arrives)])
            instance = replace(instance, limit=instances.Rows(instance.limit.E, limits))
            with file.open("wb") as target:
                pickle.dump(instance, target)
            arrays = [instance.c, instance.rho, instance.limit.b]
            for matrix in (instance.P, instance.limit.E):
                arrays += [matrix.data, matrix.indices, matrix.indptr]
            found = process.run("ours", file, small, 1e-6, 600.0, harness.MEMORY)
            judged = referee.judge(instance, found["d"])
            rows.append({
                "discount": discount, "seconds": found["seconds"], "sweeps": found["sweeps"], "said": found["said"],
                "peak_bytes": found["peak_bytes"], "bytes_before": found["bytes_before"],
                "model_bytes": sum(a.nbytes for a in arrays),
                "objective": judged["objective"], "violation": judged["violation"],
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def draw(data: dict[str, list[Row]], path: Path) -> None:
    """Time against states, transitions and rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    axes = figure.subplots(1, 3)
    panels: Sequence[tuple[str, str, str]] = (
        ("states", "states", "10 rows, 10 actions, 20 successors"),
        ("transitions", "nonzeros", "10 rows, 1000 states"),
        ("rows", "rows", "1000 states, 20 successors"),
    )
    for ax, (key, x, title) in zip(axes, panels, strict=True):
        rows = data[key]
        xs, ys = [row[x] for row in rows], [row["seconds"] for row in rows]
        ax.fill_between(xs, [r["least"] for r in rows], [r["greatest"] for r in rows], color=PALE)
        ax.loglog(xs, ys, "o-", color=BLUE, label="seconds")
        if key != "rows":
            ax.loglog(xs, [ys[-1] * v / xs[-1] for v in xs], ":", color=ORANGE, label="proportional")
            for row in rows:
                ax.annotate(f"{row['sweeps']:.0f}", (row[x], row["seconds"]), textcoords="offset points", xytext=(0, 7),
                            ha="center", fontsize=9)  # fmt: skip
        ax.set_title(title, fontsize=11)
        ax.set_xlabel("entries of P" if x == "nonzeros" else x)
        ax.set_ylabel("seconds to a proven 1e-6")
        ax.grid(color=PALE, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def main() -> None:
    timed(lambda seed: rows_instance(1000, 0.02, 10, seed), 1)  # loads
    timed(lambda seed: rows_instance(100, 0.2, 10, seed), 1)
    parts = {
        "states": by_states, "transitions": by_transitions, "rows": by_rows, "sweep": sweep_speed, "methods": methods,
        "large": large,
    }  # fmt: skip
    file = harness.RESULTS / "growth.json"
    data = json.loads(file.read_text()) if file.exists() else {}
    for name, measure in parts.items():
        if name not in data:
            data[name] = measure()
            data.setdefault("made", {})[name] = provenance.made_by()
            file.write_text(json.dumps(data, indent=1) + "\n")
    draw(data, harness.RESULTS / "growth.png")


if __name__ == "__main__":
    main()
