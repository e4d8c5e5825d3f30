"""Tables from the results: the paper's layout, docs/benchmarks.md, docs/growth.md, and those of docs/reproduction.md.

python benchmarks/pages.py       write the pages again from benchmarks/results/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import instances
import peers
import provenance
import referee
from harness import RESULTS, RIVALS, Cell, Run, same

DOCS = Path(__file__).parent.parent / "docs"
NAMES = {
    "ours": "cvxmdp",
    "ours-splitting": "cvxmdp, splitting",
    "ours-as-in-paper": "OS-CMDP as printed",
    "gurobi": "Gurobi",
    "pdm": "PDM",
    "scs": "SCS",
    "scs-in-time": "SCS in the time of OS-CMDP",
    "clarabel": "Clarabel",
    "highs-simplex": "HiGHS simplex",
    "highs-ipm": "HiGHS IPM",
    "highs-hipo": "HiGHS HiPO",
    "scipy-highs": "SciPy linprog",
    "pdlp": "PDLP",
    "osqp": "OSQP",
    "mdpsolver": "mdpsolver",
}
PAPER_TABLE_NOTE = (
    "Median seconds (and true objective of the policy). cvxmdp is proven to 1e-6,\n"
    "peers are asked for 1e-4, OS-CMDP stops by the paper's tests. A + marks a policy\n"
    "that exceeds a limit by more than 1e-3. (p): the figures printed in the paper."
)
EXCEEDS = 1e-3
"""Relative violation from which the short tables mark an answer."""

PRINTED = {
    "table1": {
        "columns": ("ours-as-in-paper", "gurobi", "pdm"),
        (100, 0.05): ("0.48 (-1.06)", "0.05 (-1.12)", "0.89 (-1.11)"),
        (100, 0.5): ("0.39 (-1.05)", "0.07 (-1.10)", "0.69 (-1.09)"),
        (1000, 0.05): ("1.00 (-1.07)", "1.80 (-1.08)", "3.64 (-1.04)"),
        (1000, 0.5): ("0.63 (-1.08)", "2.96 (-1.11)", "3.22 (-1.08)"),
        (3000, 0.05): ("11.52 (-1.06)", "20.13 (-1.07)", "70.66 (-1.02)"),
        (3000, 0.5): ("4.98 (-1.08)", "118.15 (-1.09)", "30.54 (-1.04)"),
        (5000, 0.05): ("11.89 (-1.03)", "71.98 (-1.07)", "88.37 (-1.01)"),
        (5000, 0.5): ("10.58 (-1.05)", "756.65 (-1.08)", "86.28 (-1.02)"),
    },
    "table2": {
        "columns": ("ours-as-in-paper", "gurobi", "scs"),
        (100, 0.05): ("0.01 (-0.55)", "0.03 (-0.55)", "0.016 (-0.55)"),
        (100, 0.5): ("0.01 (-0.58)", "0.68 (-0.58)", "0.06 (-0.58)"),
        (1000, 0.05): ("0.38 (-1.39)", "2.72 (-1.39)", "1.29 (-1.39)"),
        (1000, 0.5): ("0.39 (-1.45)", "224.02 (-1.46)", "8.77 (-1.46)"),
        (3000, 0.05): ("3.19 (-1.49)", "44.61 (-1.53)", "39.80 (-1.53)"),
        (3000, 0.5): ("3.18 (-1.51)", "OOM", "194.85 (-1.55)"),
        (5000, 0.05): ("10.44 (-1.51)", "97.33 (-1.52)", "185.73 (-1.53)"),
        (5000, 0.5): ("10.45 (-1.52)", "OOM", "984.81 (-1.54)"),
    },
}  # fmt: skip
"""The paper's tables: seconds (objective)."""
DRAWN = {case: f"{value:g}" for case, value in (instances.VARIANCES | instances.RADII).items()} | {"ball-half": "half"}
"""What tells the instances of one size apart: the variance of the bounds, or the radius."""


# --- Reading the results


def load(name: str) -> dict[str, Any] | None:
    """The results of a plan or an experiment, if they are there."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def cells_of(data: dict[str, Any]) -> list[Cell]:
    """The cells of the results in the order they were measured."""
    found = dict.fromkeys((run["case"], run["states"], run["branching"]) for run in data["runs"])
    return [Cell(*key, count=0) for key in found]


def bounds_of(data: dict[str, Any], cell: Cell) -> dict[int, float]:
    """The best proven bound of each instance."""
    best: dict[int, float] = {}
    for run in data["runs"]:
        if same(run, cell) and run.get("bound") is not None and run["outcome"] != "infeasible":
            best[run["seed"]] = max(best.get(run["seed"], run["bound"]), run["bound"])
    return best


def runs_of(data: dict[str, Any], cell: Cell, solver: str) -> list[Run]:
    """The runs of a solver in a cell."""
    return [run for run in data["runs"] if same(run, cell) and run["solver"] == solver]


def answered(runs: list[Run]) -> list[Run]:
    """Those that ended with a policy or a verdict of infeasibility."""
    return [run for run in runs if run["outcome"] in ("answer", "infeasible")]


def distances(data: dict[str, Any], cell: Cell, solver: str) -> list[float]:
    """How far the true objectives are above the best bound, relative to |c|'d; negative only beyond a limit."""
    best = bounds_of(data, cell)
    return [
        referee.distance(run["objective"], run["scale"], best[run["seed"]])
        for run in runs_of(data, cell, solver)
        if run["outcome"] == "answer" and run.get("objective") is not None and run["seed"] in best
    ]


def ending(runs: list[Run]) -> str:
    """How runs without an answer ended, in a few words."""
    others = [run for run in runs if run not in answered(runs)]
    words = []
    for run in others:
        if run["outcome"] == "not run":
            words.append(str(run["said"]).split(" at ")[0] + " before")
        elif run["outcome"] == "failed":
            words.append(str(run["said"])[:60])
        else:
            words.append(run["outcome"])
    return "; ".join(dict.fromkeys(words))


# --- The paper's layout


def paper_table(name: str, data: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: the paper's solvers and ours, with the printed figures below."""
    printed = PRINTED[name]
    columns = ("ours", *printed["columns"])
    rows = []
    sizes: dict[tuple[int, float], list[Cell]] = {}
    for cell in cells_of(data):
        sizes.setdefault((cell.states, cell.branching), []).append(cell)
    for size in sorted(sizes):
        for cell in sorted(sizes[size], key=lambda cell: cell.case):
            shown = [short(data, cell, solver) for solver in columns]
            rows.append([f"{cell.states}", f"{cell.branching:g}", DRAWN[cell.case], *shown])
        if size in printed:
            rows.append(["", "", "", "(p)", *printed[size]])
    head = ["S", "f_b", "var" if name == "table1" else "eps"]
    return [*head, *(NAMES[solver].removesuffix(" as printed") for solver in columns)], rows


def short(data: dict[str, Any], cell: Cell, solver: str) -> str:
    """Seconds and objective, medians over seeds."""
    runs = runs_of(data, cell, solver)
    done = [run for run in answered(runs) if run.get("objective") is not None]
    if not done:
        return ending(runs) or "-"
    mark = "+" if median(run["violation"] for run in done) > EXCEEDS else ""
    value = f"{seconds(median(run['seconds'] for run in done))} ({median(run['objective'] for run in done):.2f}){mark}"
    return value if len(done) == len(runs) else f"{value}, {len(done)} of {len(runs)}"


def seconds(value: float) -> str:
    """Three digits, without an exponent."""
    return (
        f"{value:.3f}"
        if value < 0.1
        else f"{value:.2f}"
        if value < 10
        else f"{value:.1f}"
        if value < 100
        else f"{value:.0f}"
    )


# --- The bars

BARS = [
    # words, plan, case, states, density, how many times faster ours has to be, and ought to be
    ("linear, ten rows, S = 100, f_b = 0.05", "cases", "linear", 100, 0.05, 1, 2),
    ("linear, ten rows, S = 100, f_b = 0.5", "cases", "linear", 100, 0.5, 1, 2),
    ("linear, ten rows, S = 1000, f_b = 0.05", "cases", "linear", 1000, 0.05, 10, 25),
    ("linear, ten rows, S = 1000, f_b = 0.5", "cases", "linear", 1000, 0.5, 30, 75),
    ("linear, ten rows, S = 3000, f_b = 0.05", "cases", "linear", 3000, 0.05, 40, 100),
    ("l2 ball, active, S = 1000, f_b = 0.05", "cases", "ball-half", 1000, 0.05, 5, 15),
    ("l2 ball, active, S = 3000, f_b = 0.05", "table2", "ball-half", 3000, 0.05, 15, 40),
    ("l2 ball, active, S = 3000, f_b = 0.5", "table2", "ball-half", 3000, 0.5, 15, 40),
    ("entropy bound, S = 1000, f_b = 0.05", "cases", "entropy", 1000, 0.05, 10, 50),
    ("KL ball, S = 1000, f_b = 0.05", "cases", "kl", 1000, 0.05, 10, 50),
    ("cap on every state, S = 1000, f_b = 0.05", "cases", "caps", 1000, 0.05, 4, 20),
    ("grid 25 x 25, the four panels", "cases", "panels", 625, 0.0, 1, 4),
]


def ratios(data: dict[str, Any], cell: Cell, rivals: tuple[str, ...]) -> list[tuple[float, float, str]]:
    """For each instance our seconds, those of the fastest rival that answered, and its name."""
    found = []
    for ours in answered(runs_of(data, cell, "ours")):
        times = [
            (run["seconds"], run["solver"])
            for run in answered([r for name in rivals for r in runs_of(data, cell, name)])
            if run["seed"] == ours["seed"]
        ]
        if times:
            found.append((ours["seconds"], *min(times)))
    return found


def bars() -> Iterator[str]:
    """Yield the table of how many times faster ours is than the fastest peer, and two of other measures."""
    yield "| case | instances | fastest peer | its seconds | ours | times faster | least to greatest | must | aim |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for words, plan, case, states, density, must, aim in BARS:
        data = load(plan)
        found = ratios(data, Cell(case, states, density, 0), RIVALS) if data else []
        if found:
            times = sorted(theirs / ours for ours, theirs, _ in found)
            names = ", ".join(dict.fromkeys(NAMES[name] for *_, name in found))
            yield "| " + " | ".join([
                words, str(len(found)), names, seconds(median(t for _, t, _ in found)),
                seconds(median(o for o, *_ in found)), f"**{median(times):.3g}**", f"{times[0]:.3g} to {times[-1]:.3g}",
                f"{must}", f"{aim}",
            ]) + " |"  # fmt: skip
    paper = load("table1")
    for cell in cells_of(paper) if paper else []:
        found = ratios(paper, cell, ("ours-as-in-paper",)) if cell.states >= 1000 else []
        if found:
            times = sorted(theirs / ours for ours, theirs, _ in found)
            yield (
                f"| {cell}: OS-CMDP as printed | {len(found)} | at its 1 to 5 % error | "
                f"{seconds(median(t for _, t, _ in found))} | {seconds(median(o for o, *_ in found))} | "
                f"**{median(times):.3g}** | {times[0]:.3g} to {times[-1]:.3g} | 2 | 5 |"
            )
    cases = load("cases")
    free = answered(runs_of(cases, Cell("free-grid", 250_000, 0.0, 0), "mdpsolver")) if cases else []
    bound = answered(runs_of(cases, Cell("grid", 250_000, 0.0, 0), "ours")) if cases else []
    if free and bound:
        theirs, ours = free[0]["seconds"], bound[0]["seconds"]
        yield (
            f"| grid 500 x 500, two budgets, against mdpsolver without any | 1 | mdpsolver | {seconds(theirs)} | "
            f"{seconds(ours)} | **{theirs / ours:.3g}** | - | 1 | 5 |"
        )


def absolute() -> Iterator[str]:
    """Yield a sentence for each bar in seconds."""
    paper, cases = load("table1"), load("cases")
    dense = answered(runs_of(paper, Cell("linear", 5000, 0.5, 0), "ours")) if paper else []
    if dense:
        yield (
            f"- linear, ten rows, S = 5000, f_b = 0.5: {seconds(median(r['seconds'] for r in dense))} s, median of "
            f"{len(dense)} (must be under 60 s, aim under 20 s)."
        )
    large = answered(runs_of(cases, Cell("grid", 1_000_000, 0.0, 0), "ours")) if cases else []
    if large:
        yield (
            f"- grid 1000 x 1000, two budgets, discount 0.999: {seconds(large[0]['seconds'])} s (must be under "
            "180 s, aim under 40 s). Its memory, which must be under three times the model: [growth.md](growth.md)."
        )


# --- docs/benchmarks.md


COLUMNS = (
    "solver", "seconds", "least to greatest", "times ours", "first use", "distance", "violation", "memory", "sweeps",
)  # fmt: skip


def detail(data: dict[str, Any]) -> Iterator[str]:
    """Yield a section for each cell: every solver, its times, and what its answers are worth."""
    for cell in cells_of(data):
        found = data["seeds"][str(cell)]
        passed = f"; no policy obeys with seeds {', '.join(map(str, found['passed']))}" if found["passed"] else ""
        yield f"### {cell}"
        yield ""
        yield f"Seeds {', '.join(map(str, found['kept']))}{passed}."
        yield ""
        yield "| " + " | ".join(COLUMNS) + " | |"
        yield "|---" * (len(COLUMNS) + 1) + "|"
        ours = answered(runs_of(data, cell, "ours"))
        unit = median(run["seconds"] for run in ours) if ours else None
        for solver in data["about"]["solvers"]:
            runs = runs_of(data, cell, solver)
            if runs and all(run["outcome"] != "does not apply" for run in runs):
                yield "| " + " | ".join([NAMES[solver], *numbers(data, cell, solver, runs, unit)]) + " |"
        yield ""


def numbers(data: dict[str, Any], cell: Cell, solver: str, runs: list[Run], unit: float | None) -> list[str]:
    """The row of one solver."""
    done = answered(runs)
    rest = ending(runs)
    judged = [run for run in done if run["outcome"] == "answer" and run.get("objective") is not None]
    infeasible = sum(run["outcome"] == "infeasible" for run in done)
    notes = [f"{infeasible} called infeasible"] if infeasible else []
    notes += [f"{len(runs) - len(done)} of {len(runs)}: {rest}" if done else rest] if rest else []
    if not done:
        return ["-"] * 8 + ["; ".join(notes)]
    times = [run["seconds"] for run in done]
    away = distances(data, cell, solver)
    return [
        seconds(median(times)),
        f"{seconds(min(times))} to {seconds(max(times))}",
        f"{median(times) / unit:.2g}" if unit else "-",
        f"{median(run['first_use'] for run in done):.1f}",
        f"{max(away, key=abs):.0e}" if away else "-",
        f"{max(run['violation'] for run in judged):.0e}" if judged else "-",
        f"{max(run['peak_bytes'] for run in done) / 1e9:.2f}",
        f"{median(run['sweeps'] for run in done):.0f}" if all(run.get("sweeps") for run in done) else "-",
        "; ".join(notes),
    ]


def _ours() -> Iterator[Any]:
    """Our runs in all tables."""
    for plan in ("table1", "table2", "cases"):
        data = load(plan)
        yield from (run for run in (data or {"runs": []})["runs"] if run["solver"] == "ours")


def benchmarks() -> str:
    """The page of all measurements."""
    lines = [
        "# Benchmarks",
        "",
        "Made by `python benchmarks/pages.py` from the raw numbers in `benchmarks/results/`, which come from",
        "`cvxmdp paper table1`, `cvxmdp paper table2` and `python benchmarks/harness.py cases`. Ours were measured",
        f"{provenance.said(_ours())}.",
        "",
        "Every solver runs in a process of its own with a time limit and a memory limit. *seconds* count from arrays",
        "in memory to the answer, set-up included, the median over seeds; ours include the proof. Loading and",
        "compilation are excluded by a warm-up on another instance, whose time is *first use*. All answers are judged",
        "by the same code (`benchmarks/referee.py`), from the policy read off the solver's occupancy: *distance* is",
        "that of its true objective above the best proven lower bound, relative to |c|'d (negative only where a limit",
        "is exceeded), and *violation* the worst relative excess of a limit, each the worst over seeds. *memory* is no",
        "less than the peak of the process in GB (what its parent held may be counted instead; [growth.md](growth.md)",
        "has the true peak of the largest grid), *sweeps* the passes over P.",
        "cvxmdp is asked for its default, a proven 1e-6,",
        "and the peers for 1e-4. A solver that reached its limit is not run again in that cell or a larger one:",
        '"time limit before". Among the further cases a peer that took half as long again as the fastest one on the',
        'first instance of a cell is not run on the others: "slower than another peer before"; and from 1000 states on',
        "only some solvers are run.",
        "",
    ]
    lines += ["## Against the fastest peer", ""]
    lines += [
        "The fastest of SCS and PDLP (asked for 1e-4), Clarabel and HiGHS IPM on each instance, against cvxmdp at its",
        "default, a proven 1e-6. *times faster* is the median over instances.",
        "",
        *bars(),
        "",
        *absolute(),
        "",
    ]
    for name, title in (
        ("table1", "Linear rows: Table 1"),
        ("table2", "Euclidean balls: Table 2"),
        ("cases", "Further cases"),
    ):
        data = load(name)
        if data is None:
            continue
        about, versions = data["about"], data["about"]["versions"]
        lines += [f"## {title}", ""]
        lines += [
            f"{about['cores']} cores, {about['memory_gb']:g} GB, Python {about['python']}; at most "
            f"{about['time_limit']:g} s and {about['memory_limit_gb']:g} GB a solve. "
            + ", ".join(f"{package} {number}" for package, number in versions.items())
            + ".",
            "",
        ]
        lines += [f"- *{case}*: {instances.CASES[case]}." for case in dict.fromkeys(c.case for c in cells_of(data))]
        lines += ["", *detail(data)]
    lines += ["## Settings", "", "| solver | settings |", "|---|---|"]
    lines += [f"| {NAMES[name]} | {peer.note} |" for name, peer in peers.PEERS.items()]
    return "\n".join([*lines, ""])


# --- docs/growth.md


def growth(data: dict[str, Any]) -> str:
    """The page of how our time grows."""
    lines = [
        "# How the time grows",
        "",
        "Made by `python benchmarks/pages.py` from `benchmarks/results/growth.json`, which",
        "`python benchmarks/growth.py` measures on two cores: Garnet models with ten actions, discount 0.95, random",
        "rows with limits half way between a random policy and the best one without limits, or where the random",
        "policy is, each solved to a proven 1e-6; medians of three seeds from 3000 on. The numbers at the points are",
        f"sweeps, passes over P. Measured {provenance.said(data.get('made', {}).values())}.",
        "",
        "![seconds against states, transitions and rows](../benchmarks/results/growth.png)",
        "",
        "## States, transitions, rows",
        "",
    ]
    for key, name, words in (
        ("states", "states", "states"),
        ("transitions", "density", "density of P at 1000 states"),
        ("rows", "rows", "rows at 1000 states"),
    ):
        head = [words, "seconds", "least to greatest", "sweeps", "most sweeps", "method"]
        lines += [markdown(head, [[f"{row[name]:g}", *grown(row)] for row in data[key]]), ""]
    speed = data["sweep"][0]["bandwidth"] / 1e9
    lines += [
        "## One sweep and the speed of the memory",
        "",
        f"A Bellman sweep reads P once. All cores together read {speed:.1f} GB/s here (a product of a large array",
        "with itself); *limit* is the bytes of P over that.",
        "",
        markdown(
            ["model", "GB of P", "seconds of a sweep", "limit", "times the limit"], [swept(r) for r in data["sweep"]]
        ),
        "",
        "## Methods",
        "",
        "Seconds of each method that takes a case, medians of two instances; a dash where it was not done in 10 s.",
        'f_b is 0.05, and 20 successors a pair for "rows", the random rows of above. "auto" is the default.',
        "",
        markdown(*compared(data["methods"])),
        "",
        "## A million states",
        "",
        "The grid of 1000 x 1000 cells, 4 million pairs and 20 million transitions, time and collision limited, in a",
        "process of its own. *before* is what the process, warmed up, held without the model, *model* its arrays.",
        "*times the model* is the whole peak over the model, *on top* only what came on top of *before*.",
        "",
        markdown(
            [
                "discount",
                "seconds",
                "sweeps",
                "peak GB",
                "before",
                "model",
                "times the model",
                "on top",
                "violation",
                "said",
            ],
            [massive(r) for r in data["large"]],
        ),
        "",
    ]
    return "\n".join(lines)


def grown(row: dict[str, Any]) -> list[str]:
    """Times and sweeps of one size."""
    span = f"{seconds(row['least'])} to {seconds(row['greatest'])}"
    return [seconds(row["seconds"]), span, f"{row['sweeps']:.0f}", f"{row['most_sweeps']}", row["method"]]


def swept(row: dict[str, Any]) -> list[str]:
    """One sweep beside its limit."""
    times = f"{row['seconds'] / row['limit']:.2g}"
    return [row["model"], f"{row['bytes'] / 1e9:.2f}", f"{row['seconds']:.4f}", f"{row['limit']:.4f}", times]


def compared(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Every method on every case, and how far the default is from the best of them."""
    names = list(dict.fromkeys(row["method"] for row in rows))
    found = {(row["case"], row["states"], row["method"]): row["seconds"] for row in rows}
    out = []
    for case, states in dict.fromkeys((row["case"], row["states"]) for row in rows):
        times = {name: found[case, states, name] for name in names if (case, states, name) in found}
        best = min(value for value in times.values() if value is not None)
        cells = ["" if n not in times else "-" if times[n] is None else seconds(times[n]) for n in names]
        out.append([f"{case}, S = {states}", *cells, f"{times['auto'] / best:.2f}"])
    return ["case", *names, "auto over the best"], out


def massive(row: dict[str, Any]) -> list[str]:
    """One large grid."""
    peak, before, model = (row[key] / 1e9 for key in ("peak_bytes", "bytes_before", "model_bytes"))
    times = [f"{peak / model:.2f}", f"{(peak - before) / model:.2f}"]
    memory = [f"{peak:.2f}", f"{before:.2f}", f"{model:.2f}", *times]
    return [f"{row['discount']:g}", seconds(row["seconds"]), f"{row['sweeps']}", *memory, f"{row['violation']:.0e}",
            row["said"]]  # fmt: skip


# --- Tables inside docs/reproduction.md


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def accuracy() -> str:
    """Distances of the paper's method from the optimum, and its violations, by cell."""
    rows = []
    for name in ("table1", "table2"):
        data = load(name)
        for cell in cells_of(data) if data else []:
            away = distances(data, cell, "ours-as-in-paper")
            runs = runs_of(data, cell, "ours-as-in-paper")
            done = [run for run in runs if run["outcome"] == "answer"]
            if away:
                span = " to ".join(f"{100 * d:.2g} %" for d in (min(away), median(away), max(away)))
                worst = f"{max(run['violation'] for run in done):.0e}"
                rows.append([str(cell), str(len(away)), span, worst])
            else:
                rows.append([str(cell), "0", ending(runs), "-"])
    return markdown(["cell", "answers", "least, median and greatest distance", "greatest violation"], rows)


def in_time() -> str:
    """SCS stopped after the time of the paper's method: its distance and violation beside those of that method."""
    rows = []
    for name in ("table1", "table2"):
        data = load(name)
        for cell in cells_of(data) if data else []:
            row = [str(cell)]
            for solver in ("ours-as-in-paper", "scs-in-time"):
                done = [run for run in runs_of(data, cell, solver) if run.get("objective") is not None]
                if done:
                    away, violation = median(distances(data, cell, solver)), median(run["violation"] for run in done)
                    row += [f"{100 * away:.2g} %", f"{violation:.0e}"]
                else:
                    row += [ending(runs_of(data, cell, solver)) or "-", "-"]
            rows.append(row)
    return markdown(["cell", "OS-CMDP: distance", "violation", "SCS in its time: distance", "violation"], rows)


def panels() -> str:
    """The four panels, by our default and by the paper's method."""
    data = load("gridworld")
    rows = []
    for panel in data["panels"] if data else []:
        time_limit, collision_limit = panel["limits"]
        rows.append([
            f"({panel['panel']}) {time_limit:g}, {collision_limit:g}", panel["method"], panel["verdict"],
            str(panel["passes"]), f"{panel['time']:.4f}", f"{panel['collision']:.2e}",
            f"{panel['in the destination']:.3f}", f"{panel['in the top eight rows']:.3f}",
            str(panel["cells where it randomizes"]),
        ])  # fmt: skip
    return markdown(
        ["limits", "method", "verdict", "passes", "time", "collision", "destination", "top rows", "randomizes in"], rows
    )


def inner() -> str:
    """The three measures at some passes, for 100 and 2 inner steps."""
    data = load("inexact")
    rows = []
    for name, found in data.items() if data else ():
        curves = found["curves"]
        passes = curves["2"]["pass"]
        for at in (10, 100, passes[-1]):
            k = min(range(len(passes)), key=lambda i: abs(passes[i] - at))
            cells = [
                f"{curves[steps][key][k]:.1e}"
                for key in ("suboptimality", "violation", "dynamics")
                for steps in ("100", "2")
            ]
            rows.append([name, str(passes[k]), *cells])
    measures = [f"{words}, {steps}" for words in ("suboptimality", "violation", "dynamics") for steps in (100, 2)]
    return markdown(["problem", "pass", *measures], rows)


def reproduction(text: str) -> str:
    """Fill the tables between ``<!-- name -->`` and ``<!-- end -->``."""
    made = {
        "table1": lambda: markdown(*paper_table("table1", load("table1") or {"runs": []})),
        "table2": lambda: markdown(*paper_table("table2", load("table2") or {"runs": []})),
        "accuracy": accuracy,
        "in-time": in_time,
        "panels": panels,
        "inner": inner,
    }
    for name, make in made.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        text = pattern.sub(lambda found, make=make: found[1] + make() + found[2], text)
    return text


def main() -> None:
    """Write the pages."""
    (DOCS / "benchmarks.md").write_text(benchmarks())
    if (data := load("growth")) is not None:
        (DOCS / "growth.md").write_text(growth(data))
    page = DOCS / "reproduction.md"
    page.write_text(reproduction(page.read_text()))


if __name__ == "__main__":
    main()
