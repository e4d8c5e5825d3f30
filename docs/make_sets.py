"""Draw the pictures of docs/sets.md and write its tables.

    python docs/make_sets.py            run the page, write docs/images/sets/*.png and the tables (about ten seconds)

The Python blocks of the page are run in order. Where the page has a pair of markers such as ``<!-- budget -->`` and
``<!-- end -->``, the ``solution`` of the blocks above is drawn beside the fastest policy, and what stands between the
markers is written again. So every number and picture on the page belongs to the code above it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from scipy.special import rel_entr

import cvxmdp as cm
from cvxmdp.report.plots import plot_grid

PAGE = Path(__file__).parent / "sets.md"
FOLDER = Path(__file__).parent / "images" / "sets"
COLOURS = (1e-3, 1e-1)
"""Shares of steps at the ends of the scale of colours, the same in all pictures."""
ARROWS = 2e-3
"""Share of steps above which an action gets an arrow."""
ORANGE = "#d55e00"
PARTS = re.compile(
    r"```python\n(?P<code>.*?)```|(?P<start><!-- (?!end)(?P<name>[a-z0-9-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL
)

Names = dict[str, Any]
Measure = Callable[[np.ndarray, Names], float]


class Entry(NamedTuple):
    """What a picture is titled with, and what is measured of both policies beside time and collision."""

    title: str
    label: str = ""
    measure: Measure | None = None
    beside: str = ""
    """Name on the page of the policy or solution the set is built around."""
    outlined: Callable[[Names], np.ndarray] | None = None
    """Which pairs the set limits; their cells are outlined."""
    cap: float | None = None
    """A limit on visits, drawn in the bar of colours."""


def entropy(d: np.ndarray, names: Names, of: str) -> float:
    """Return the entropy of the pairs or of the states, in nats."""
    x = d if of == "pairs" else np.bincount(names["mdp"].state, weights=d)
    return float(-np.sum(x[x > 0] * np.log(x[x > 0])))


def center(names: Names, name: str) -> np.ndarray:
    """Return the occupancy of a policy or solution of the page."""
    given = names[name]
    return np.asarray(given.occupancy if isinstance(given, cm.Solution) else names["mdp"].evaluate(given).occupancy)


def distance(norm: float) -> Measure:
    """Return the distance to the careful policy."""
    return lambda d, names: float(np.linalg.norm(d - center(names, "careful"), norm))


def weighted(d: np.ndarray, names: Names) -> float:
    """Return the distance to the careful policy in the weighted norm."""
    return float(np.sqrt(names["weights"] @ (d - center(names, "careful")) ** 2))


def kl(d: np.ndarray, names: Names) -> float:
    """Return the relative entropy to the wanderer, in nats."""
    return float(rel_entr(d, center(names, "wanderer")).sum())


def worst(d: np.ndarray, names: Names) -> float:
    """Return the worst-case collision of the robust budget."""
    return float(names["mdp"].costs["collision"] @ d + names["errors"].worst(d))


def largest(of: str) -> Measure:
    """Return the largest entry among those that are limited."""
    return lambda d, names: float(np.max(np.where(np.isfinite(names["cap"]), counted(d, names, of), 0.0)))


def counted(d: np.ndarray, names: Names, of: str) -> np.ndarray:
    """Return the occupancy of the pairs, or the visits of the states."""
    return d if of == "pairs" else np.bincount(names["mdp"].state, weights=d)


ENTRIES = {
    "budget": Entry("Budget: collision at most 0.01"),
    "linear": Entry(
        "Linear: outlined cells at least 0.2",
        "share of steps in the corner",
        lambda d, names: float(names["corner"] @ d),
        outlined=lambda names: names["corner"] > 0,
    ),
    "bounds": Entry("Bounds: each pair at most 0.015", "largest occupancy of a pair under the cap", largest("pairs")),
    "state-bounds": Entry(
        "StateBounds: each cell at most 0.02", "largest visits of a cell under the cap", largest("states"), cap=0.02
    ),
    "ball-2": Entry("NormBall: 2-norm at most 0.06", "distance to careful, 2-norm", distance(2), "careful"),
    "ball-1": Entry("NormBall: 1-norm at most 0.25", "distance to careful, 1-norm", distance(1), "careful"),
    "ball-inf": Entry("NormBall: inf-norm at most 0.02", "distance to careful, inf-norm", distance(np.inf), "careful"),
    "ball-3": Entry("NormBall: 3-norm at most 0.05", "distance to careful, 3-norm", distance(3), "careful"),
    "ball-weighted": Entry(
        "NormBall: weighted norm at most 0.06", "distance to careful, weighted 2-norm", weighted, "careful"
    ),
    "entropy-pairs": Entry(
        "Entropy of pairs: at least 3.7 nats",
        "entropy of the pairs, nats",
        lambda d, names: entropy(d, names, "pairs"),
    ),
    "entropy-states": Entry(
        "Entropy of states: at least 3 nats",
        "entropy of the visits, nats",
        lambda d, names: entropy(d, names, "states"),
    ),
    "kl-ball": Entry("KLBall: at most 0.5 nats", "KL to the wanderer, nats", kl, "wanderer"),
    "robust-ellipsoid": Entry(
        "Ellipsoid: worst collision at most 0.03",
        "collision at worst",
        worst,
        outlined=lambda names: names["corridor"] > 0,
    ),
    "robust-box": Entry(
        "Box: worst collision at most 0.03", "collision at worst", worst, outlined=lambda names: names["corridor"] > 0
    ),
    "robust-vertices": Entry(
        "Vertices: worst collision at most 0.03",
        "collision at worst",
        worst,
        outlined=lambda names: names["corridor"] > 0,
    ),
    "convex-set": Entry(
        "own set: 2-norm in the walls at most 0.01",
        "2-norm of the pairs in the walls",
        lambda d, names: float(np.linalg.norm(d[names["mdp"].costs["collision"] > 0])),
        outlined=lambda names: names["mdp"].costs["collision"] > 0,
    ),
    "distance": Entry("time + 0.3 Distance, 1-norm", "distance to careful, 1-norm", distance(1), "careful"),
    "negative-entropy": Entry(
        "time + 0.3 NegativeEntropy of states",
        "entropy of the visits, nats",
        lambda d, names: entropy(d, names, "states"),
    ),
    "kl": Entry("time + 0.2 KL", "KL to the wanderer, nats", kl, "wanderer"),
    "convex-term": Entry(
        "time + own term: wear",
        "wear",
        lambda d, names: float(names["wear"].value(d)),
    ),
}


def draw(entry: Entry, names: Names, path: Path) -> None:
    """Draw the fastest policy, that of the solution, and what the set is built around, on one scale of colours."""
    mdp, solution, fastest = names["mdp"], names["solution"], names["fastest"]
    panels = [("time alone", fastest.occupancy), (entry.title, solution.occupancy)]
    if entry.beside:
        panels.append((f"{entry.beside}, in the middle", center(names, entry.beside)))
    figure = Figure(figsize=(3.45 * len(panels) + 0.8, 3.5), layout="constrained")
    grid = figure.subplots(1, len(panels))
    for axes, (title, d) in zip(grid, panels, strict=True):
        time, collision = (float(mdp.costs[name] @ d) for name in ("time", "collision"))
        title = f"{title}\ntime {time:.3f}, collision {collision:.4f}"
        plot_grid(axes, mdp, np.where(d > ARROWS, d, 0.0), title)
        axes.title.set_fontsize(9.5)
        side = axes.images[0].get_array().shape
        axes.images[0].set_data(np.bincount(mdp.state, weights=d).reshape(side))
        axes.images[0].set_clim(*COLOURS)
        if entry.outlined is not None:
            for cell in np.unique(mdp.state[entry.outlined(names)]):
                row, column = divmod(int(cell), side[1])
                axes.add_patch(
                    Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=ORANGE, linewidth=2)
                )
    bar = figure.colorbar(grid[0].images[0], ax=list(grid), extend="both", shrink=0.85, aspect=25)
    bar.set_label("visits, share of steps", fontsize=9)
    if entry.cap is not None:
        bar.ax.axhline(entry.cap, color=ORANGE, linewidth=2.5)
        bar.ax.text(-0.25, entry.cap, "cap", color=ORANGE, ha="right", va="center", weight="bold", fontsize=9)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80)
    Image.open(drawn).convert("RGB").quantize(256).save(path, optimize=True)  # few colours, small files


def table(name: str, entry: Entry, names: Names) -> str:
    """Return the picture and the numbers of both policies as Markdown."""
    mdp, solution, fastest = names["mdp"], names["solution"], names["fastest"]
    measures: list[tuple[str, Measure]] = [
        (what, lambda d, _, what=what: float(mdp.costs[what] @ d)) for what in ("time", "collision")
    ]
    if entry.measure is not None:
        measures.append((entry.label, entry.measure))
    lines = [
        f"![visits with time alone, and with {entry.title}](images/sets/{name}.png)",
        "",
        "| | time alone | as above |",
        "|---|---|---|",
    ]
    for label, measure in measures:
        values = (round(measure(s.occupancy, names), 4) + 0.0 for s in (fastest, solution))
        lines.append("| " + " | ".join([label, *(f"{value:.4f}" for value in values)]) + " |")
    for which, price in solution.prices.items():
        if np.ndim(price) == 0:
            lines.append(f"| price of {which} | | {price + 0.0:+.3g} |")
        else:
            values = np.sort(np.asarray(price)) + 0.0  # no minus zero
            lines.append(f"| prices of {which}, least to greatest | | {values[0]:+.3g} to {values[-1]:+.3g} |")
    return "\n".join([*lines, ""])


def run(text: str) -> Iterator[tuple[re.Match[str], Names]]:
    """Run the blocks of the page in order; yield at each marker, with the names that are defined by then."""
    names: Names = {}
    for part in PARTS.finditer(text):
        if part["code"] is not None:
            line = text[: part.start()].count("\n") + 2
            exec(compile("\n" * (line - 1) + part["code"], str(PAGE), "exec"), names)
        else:
            yield part, names


def main() -> None:
    """Run the page and write it again."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = PAGE.read_text(encoding="utf-8")
    written, done = [], 0
    for part, names in run(text):
        name, solution = part["name"], names["solution"]
        if solution.status is not cm.Status.OPTIMAL:
            raise SystemExit(f"{name}: {solution.status.name}")
        draw(ENTRIES[name], names, FOLDER / f"{name}.png")
        written += [text[done : part.end("start")], table(name, ENTRIES[name], names)]
        done = part.end()
        print(f"{name:<18}{solution.stats.seconds['total']:7.2f} s   proven gap {max(solution.gap, 0.0):.0e}")
    PAGE.write_text("".join([*written, text[done:]]), encoding="utf-8")


if __name__ == "__main__":
    main()
