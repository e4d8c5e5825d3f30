"""How long a sweep of 100 limits takes, in single solves: ``python benchmarks/sweeps.py``."""

from __future__ import annotations

import statistics
import time

import numpy as np

import cvxmdp as cm

WORLDS = {
    "queue(200)": (cm.worlds.queue(200), "delay", "power"),
    "inventory(100)": (cm.worlds.inventory(100), "holding", "shortage"),
    "perishable()": (cm.worlds.perishable(), None, None),
    "admission()": (cm.worlds.admission(), None, None),
    "maintenance(3, 5)": (cm.worlds.maintenance(3, 5), "repair", "downtime"),
    "epidemic()": (cm.worlds.epidemic(), None, None),
    "disk_drive()": (cm.worlds.disk_drive(), "power", "queue"),
    "gridworld(25)": (cm.worlds.gridworld(size=25), "time", "collision"),
    "lake(16)": (cm.worlds.lake(size=16), "time", "hole"),
}


def measured(mdp: cm.MDP, first: str, second: str, others: list[cm.Budget]) -> tuple[float, float]:
    """Return seconds of the sweep, and the median of seven single solves at its limits."""
    problem = cm.Problem(mdp, first, others)
    ends = problem.range(second)
    limits = np.linspace(ends.tightest, ends.loosest, 102)[1:-1]
    single = []
    for limit in limits[5::15]:
        alone = cm.Problem(mdp, first, [*others, cm.Budget(second, at_most=float(limit))])
        began = time.perf_counter()
        assert alone.solve().status is cm.Status.OPTIMAL
        single.append(time.perf_counter() - began)
    began = time.perf_counter()
    swept = problem.sweep(second, limits)
    spent = time.perf_counter() - began
    assert all(status is cm.Status.OPTIMAL for status in swept.statuses)
    return spent, statistics.median(single)


def main() -> None:
    """Print a table, the median and the worst."""
    ratios = []
    for name, (mdp, first, second) in WORLDS.items():
        costs = [cost for cost in mdp.costs if cost != "cost"]
        spent, single = measured(mdp, first or costs[0], second or costs[1], [])
        ratios.append(spent / single)
        states = f"{mdp.num_states:6} states"
        print(f"{name:20} {states}  sweep {spent:8.3f} s  single {single:8.4f} s  ratio {ratios[-1]:6.1f}")
    print(f"median {statistics.median(ratios):.1f}, worst {max(ratios):.1f}")


if __name__ == "__main__":
    main()
