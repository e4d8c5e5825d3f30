"""Measure the figures of docs/projections.md: projections of a million entries, as multiples of the time of a copy.

    python benchmarks/projections.py            measure everything (about a minute on two cores), write both files
    python benchmarks/projections.py --table    write docs/projections.md again from benchmarks/results/projections.json

Raw numbers go to benchmarks/results/projections.json.  Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import provenance
import scipy
import scipy.sparse as sp

import cvxmdp as cm

ROOT = Path(__file__).parent
RESULTS = ROOT / "results" / "projections.json"
PAGE = ROOT.parent / "docs" / "projections.md"
STATES, ACTIONS = 100_000, 10
PAIRS = STATES * ACTIONS
SEEDS = (0, 1, 2)
REPEATS = 15
EXACT = 1e-9
"""What the limits may be exceeded by after a projection, relatively."""


def model() -> cm.MDP:
    """A model with a known next state after each pair: the sets only ask which pairs are of which state."""
    state = np.repeat(np.arange(STATES), ACTIONS)
    after = np.random.default_rng(0).integers(STATES, size=PAIRS)
    transitions = sp.csr_array((np.ones(PAIRS), after, np.arange(PAIRS + 1)), shape=(PAIRS, STATES))
    return cm.MDP.from_pairs(state, np.tile(np.arange(ACTIONS), STATES), transitions, {"one": np.ones(PAIRS)}, 0.9)


def occupancy(rng: np.random.Generator) -> np.ndarray:
    """Visits of the states and a policy, both drawn from flat Dirichlet distributions."""
    return (rng.dirichlet(np.ones(STATES))[:, None] * rng.dirichlet(np.ones(ACTIONS), size=STATES)).ravel()


def cases(mdp: cm.MDP, seed: int) -> Iterator[tuple[str, float | None, cm.ConvexSet, list[np.ndarray]]]:
    """Yield name, bar (a multiple of a copy), set and two points outside it; the limits lie about half way."""
    rng = np.random.default_rng(seed)
    center, d = occupancy(rng), occupancy(rng)
    noise = rng.normal(0, 0.3 / PAIRS, size=(2, PAIRS))
    points = [d + noise[0], d + 0.9 * noise[0] + 0.4 * noise[1]]  # two, since some sets remember the last projection
    offset, positive = points[0] - center, np.maximum(points[0], 0.0)
    weights = rng.uniform(0.5, 2.0, PAIRS)

    def ball(size: float, norm: float, weights: np.ndarray | None = None) -> cm.NormBall:
        return cm.NormBall(center, 0.5 * size, norm, weights)

    def middle(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return tuple(np.quantile(x, (0.25, 0.75)))

    def halfway(x: np.ndarray) -> float:
        return 0.5 * (np.log(x.size) - float(np.sum(scipy.special.xlogy(x, x))))

    yield "`NormBall`, norm 2", 10, ball(np.linalg.norm(offset), 2), points
    yield "`Bounds`", 10, cm.Bounds(*middle(points[0])), points
    yield "`NormBall`, norm inf", 20, ball(np.max(np.abs(offset)), np.inf), points
    yield "`StateBounds`", 20, cm.StateBounds(*middle(d.reshape(STATES, ACTIONS).sum(axis=1))), points
    yield "`NormBall`, norm 1", 80, ball(np.sum(np.abs(offset)), 1), points
    yield "`Entropy` of pairs", 80, cm.Entropy(halfway(positive)), points
    visits = np.maximum(points[0].reshape(STATES, ACTIONS).sum(axis=1), 0.0)
    yield "`Entropy` of states", 80, cm.Entropy(halfway(visits), of="states"), points
    divergence = float(np.sum(scipy.special.rel_entr(positive, center)))
    yield "`KLBall`", 80, cm.KLBall(center, 0.5 * divergence), points
    rows = rng.normal(size=(10, PAIRS))
    yield "`Linear`, ten dense rows", 40, cm.Linear(rows, at_most=rows @ (center + 0.5 * offset)), points
    yield "`NormBall`, norm 2 weighted", None, ball(np.sqrt(weights @ offset**2), 2, weights), points
    yield "`NormBall`, norm 3", None, ball(np.linalg.norm(offset, 3), 3), points
    cost, errors = rng.uniform(size=PAIRS), cm.Ellipsoid(PAIRS * rng.uniform(0.0, 0.5, PAIRS) ** 2)
    at_most = 0.5 * (float(cost @ d) + errors.worst(d))
    yield "`RobustBudget`, diagonal `Ellipsoid`", None, cm.RobustBudget(cost, errors, at_most), points


def seconds(call, point: np.ndarray) -> float:
    start = time.perf_counter()
    call(point)
    return time.perf_counter() - start


def measure() -> dict[str, object]:
    """Time every projection and, between two of them, a copy of the point."""
    mdp, rows = model(), []
    for seed in SEEDS:
        for name, bar, given, points in cases(mdp, seed):
            limit = given.bind(mdp)
            if any(limit.relative(point) < 1e-3 for point in points):
                raise RuntimeError(f"{name}: a point of seed {seed} is not outside")
            exact = all([limit.relative(limit.project(point)) <= EXACT for point in points])  # a warm-up of both
            row = {"set": name, "bar": bar, "seed": seed, "exact": exact, "copy": [], "projection": []}
            for repeat in range(REPEATS):
                point = points[repeat % 2]
                row["copy"].append(seconds(np.ndarray.copy, point))
                row["projection"].append(seconds(limit.project, point))
            rows.append(row)
            print(f"{name}, seed {seed}: {median(multiples(row)):.1f}", flush=True)
    versions = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
    return {**provenance.made_by(), "cores": os.cpu_count(), "versions": versions, "pairs": PAIRS, "rows": rows}


def multiples(row: dict[str, object]) -> list[float]:
    """Each projection's time as a multiple of the median time of the copies between them."""
    return [taken / median(row["copy"]) for taken in row["projection"]]


def page(data: dict[str, object]) -> str:
    """Write the page from the data."""
    versions, rows = data["versions"], data["rows"]
    copies = [taken for row in rows for taken in row["copy"]]
    lines = [
        "# Projections",
        "",
        f"Measured by `python benchmarks/projections.py` {provenance.said([data])}; raw numbers in",
        "`benchmarks/results/projections.json`.",
        f"{data['cores']} cores, Python {versions['python']}, NumPy {versions['numpy']}, SciPy {versions['scipy']}.",
        "",
        f"Projections of points with {data['pairs']:,} entries, as multiples of the time to copy the point (median "
        f"{1e3 * median(copies):.2f} ms). The",
        "points are occupancies of random policies, perturbed; the limits lie about half way, so that every projection",
        f"has work to do. {len({row['seed'] for row in rows})} seeds, {len(rows[0]['projection'])} projections each, "
        "with a copy timed before each and two points in turn;",
        "the first one is excluded. The median, least and greatest are over all projections of a set.",
        "",
        "| set | median | least to greatest | bar | met |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["set"] for row in rows):
        own = [row for row in rows if row["set"] == name]
        taken = [multiple for row in own for multiple in multiples(row)]
        bar = own[0]["bar"]
        met = "" if bar is None else "yes" if median(taken) < bar else "**no**"
        if not all(row["exact"] for row in own):
            met = "**wrong result**"
        cells = [name, f"{median(taken):.1f}", f"{min(taken):.1f} to {max(taken):.1f}", f"under {bar}" if bar else ""]
        lines.append("| " + " | ".join([*cells, met]) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, or write the page again."""
    if "--table" not in sys.argv:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(measure(), indent=1))
    PAGE.write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
