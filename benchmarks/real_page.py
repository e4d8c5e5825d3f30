"""docs/real.md from the rows that real.py has measured."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import provenance
import real_peers
import real_problems

Row = dict[str, Any]
ACCURACY = 1e-4
"""How near to the best known value, and to its limits, a policy counts as an answer."""
WORST = 10
SOLVERS = ("ours", *real_peers.PEERS)


# Judging --------------------------------------------------------------------------------------------------------------


def decided(row: Row) -> bool:
    """Whether ours has proven its answer, and the check of its certificate passes."""
    return row["solver"] == "ours" and row.get("said") == "OPTIMAL" and not row.get("refused")


def obeys(row: Row) -> bool:
    return row.get("violation") is not None and row["violation"] <= ACCURACY


def reference(rows: Sequence[Row]) -> float | None:
    """The best known value: the bound that ours has proven, or the least that a policy costs that obeys."""
    proven = [row["bound"] for row in rows if decided(row)]
    if proven:
        return float(proven[0])
    return min((row["objective"] for row in rows if obeys(row)), default=None)


def within(row: Row, best: float | None) -> bool:
    """Whether the policy obeys and costs no more than the best known value, both to the accuracy."""
    if row["outcome"] != "answer" or best is None or not obeys(row):
        return False
    return bool(row["objective"] - best <= ACCURACY * row["size_of_objective"])


class Problem:
    """The rows of one problem."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = {row["solver"]: row for row in rows}
        self.first = rows[0]
        self.best = reference(rows)
        self.ours = self.rows.get("ours", {"solver": "ours", "outcome": "not run"})
        self.decided = decided(self.ours)
        answers = [row for name, row in self.rows.items() if name != "ours" and within(row, self.best)]
        self.peer = min(answers, key=lambda row: row["seconds"], default=None)

    def answered(self, solver: str) -> bool:
        return self.decided if solver == "ours" else solver in self.rows and within(self.rows[solver], self.best)

    def ran(self, solver: str) -> bool:
        return solver in self.rows and self.rows[solver]["outcome"] not in ("does not apply", "not run")

    @property
    def ratio(self) -> float | None:
        """How many times as long as ours the fastest peer with an answer takes."""
        if not self.decided or self.peer is None:
            return None
        return float(self.peer["seconds"] / self.ours["seconds"])

    @property
    def name(self) -> str:
        return f"{self.first['world']} | {self.first['discount']:g} | {self.first['kind']}"


def problems(rows: Sequence[Row]) -> list[Problem]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[k] for k in ("size", "world", "discount", "kind", "seed")), []).append(row)
    return [Problem(members) for members in found.values()]


# Tables ---------------------------------------------------------------------------------------------------------------


def table(found: Sequence[Problem], title: str, of: Callable[[Problem], str], order: Sequence[str]) -> Iterator[str]:
    """Yield a row for each group, and one for all."""
    yield f"| {title} | problems | " + " | ".join(SOLVERS) + " | compared | median | quartiles | worst |"
    yield "|---" * (6 + len(SOLVERS)) + "|"
    groups = [(name, [p for p in found if of(p) == name]) for name in order]
    for name, members in [*((name, members) for name, members in groups if members), ("**all**", list(found))]:
        cells = [name, str(len(members))]
        for solver in SOLVERS:
            ran = sum(p.ran(solver) for p in members)
            answered = sum(p.answered(solver) for p in members)
            cells.append("" if not ran else str(answered) if ran == len(members) else f"{answered} of {ran}")
        ratios = [p.ratio for p in members if p.ratio is not None]
        cells += [str(len(ratios)), *spread(ratios)]
        yield "| " + " | ".join(cells) + " |"


def spread(ratios: Sequence[float]) -> list[str]:
    """Median, quartiles and the least."""
    if not ratios:
        return ["", "", ""]
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return [f"{middle:.2g}", f"{low:.2g} to {high:.2g}", f"{min(ratios):.2g}"]


def seconds(row: Row | None) -> str:
    return f"{row['seconds']:.3g}" if row is not None and row.get("seconds") is not None else ""


def large(found: Sequence[Problem]) -> Iterator[str]:
    """Yield the seconds on large models, by kind."""
    worlds = list(dict.fromkeys(p.first["world"] for p in found))
    yield "| kind | " + " | ".join(f"{world}: discount | ours | fastest other" for world in worlds) + " |"
    yield "|---" * (1 + 3 * len(worlds)) + "|"
    for kind in real_problems.KINDS:
        cells = []
        for world in worlds:
            there = [p for p in found if (p.first["kind"], p.first["world"]) == (kind, world)]
            if not there:
                cells += ["", "", ""]
                continue
            p = there[0]
            mine = seconds(p.ours) if p.decided else f"{p.ours.get('said', p.ours['outcome'])}, {seconds(p.ours)}"
            other = f"{seconds(p.peer)}, {p.peer['solver']}" if p.peer is not None else "none"
            cells += [f"{p.first['discount']:g}", mine, other if len(p.rows) > 1 else ""]
        if any(cells):
            yield f"| {kind} | " + " | ".join(cells) + " |"


# The page -------------------------------------------------------------------------------------------------------------


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 119)


def page(about: Row, rows: Sequence[Row]) -> str:
    """Write the page from the data."""
    found = problems(rows)
    seeds = sorted({row["seed"] for row in rows})
    versions = ", ".join(f"{name} {number}" for name, number in about.get("versions", {}).items())
    open_ = [p for p in found if not p.decided]
    compared = sorted((p for p in found if p.ratio is not None), key=lambda p: p.ratio or 0.0)
    alone = sum(p.decided and p.peer is None and len(p.rows) > 1 for p in found)
    limits = about.get("time_limits", {})
    lines = [
        "# Real models under every kind of limit",
        "",
        f"Measured by `make real` {provenance.said(rows)}; raw numbers in `benchmarks/results/real.json`.",
        *wrapped(f"{about.get('cores')} cores, {about.get('memory_gb')} GB, Python {about.get('python')}, {versions}."),
        "",
        *wrapped(
            f"{len(found)} problems from seed {', '.join(map(str, seeds))}: the models of `cm.worlds` in several "
            "sizes, each with every kind of limit and a discount drawn from 0.9 to 0.99999 "
            "(`benchmarks/real_problems.py`). Each limit lies a random share, 0.3 to 0.7, of the way from what a "
            "careful policy does to what the best policy without limits does, so that a known policy obeys all "
            "limits and the best one does not, but for a few entropies where the best policy is the most spread one."
        ),
        "",
        *wrapped(
            "*Ours* is `problem.solve()` with its defaults; it counts where the status is `OPTIMAL`, so the value is "
            "proven to 1e-6, and `certificate.check` passes. The others are given the problem as a linear or conic "
            "program, written directly for them (`benchmarks/real_peers.py`). They count where the policy read off "
            "their answer, evaluated by a linear solve, obeys every limit to 1e-4 of its size and costs at most 1e-4 "
            "more than the best known value, relative to |c|'d plus the absolute values of the terms. The best known "
            "value is our proven bound, or, where there is none, the least that an obeying policy of any solver costs."
        ),
        "",
        *wrapped(
            "Times are from the problem in memory to the answer, in a warm process: of ours with the proof, of the "
            "others of the solver alone, without the time to state the program. A solve of less than "
            "a second is repeated, and the fastest of three counts. A solve is stopped after "
            + ", ".join(f"{limit:g} s ({size})" for size, limit in limits.items())
            + "; a solver other than ours also at ten times the fastest of the others, but not before 5 s. *Compared* "
            "are problems that ours and one of the others solve; their ratio is the time of the fastest other "
            "divided by ours: below 1, ours is slower. *Worst* is the least."
        ),
        "",
        *(f"- {name}: {peer.note}" for name, peer in real_peers.PEERS.items()),
        "",
        f"- Decided by ours: **{len(found) - len(open_)} of {len(found)}**.",
        f"- Slower than the fastest of the others: **{sum((p.ratio or 1) < 1 for p in found)} of {len(compared)}**.",
        f"- Decided by ours and answered by no other: {alone}.",
        "",
        "## By kind",
        "",
        *table(found, "kind", lambda p: p.first["kind"], list(real_problems.KINDS)),
        "",
        "## By world",
        "",
        *table(
            found,
            "world",
            lambda p: p.first["world"].split("(")[0],
            sorted({p.first["world"].split("(")[0] for p in found}),
        ),
        "",
        "## By size",
        "",
        *table(found, "size", lambda p: p.first["size"], ["small", "middle", "large"]),
        "",
        "## By discount",
        "",
        *table(found, "discount", lambda p: f"{p.first['discount']:g}", [f"{g:g}" for g in real_problems.DISCOUNTS]),
        "",
    ]
    if compared:
        lines += ["## The worst cases", "", "| world | discount | kind | states | ours | fastest other | who | ratio |"]
        lines += ["|---" * 8 + "|"]
        for p in compared[:WORST]:
            assert p.peer is not None
            lines.append(
                f"| {p.name} | {p.first['states']} | {seconds(p.ours)} | {seconds(p.peer)} | {p.peer['solver']} | "
                f"{p.ratio:.2g} |"
            )
        lines.append("")
    if open_:
        lines += ["## Not decided by ours", ""]
        lines += ["| world | discount | kind | states | what | seconds | fastest other |", "|---" * 7 + "|"]
        for p in open_:
            refused = f"; refused: {p.ours['refused']}" if p.ours.get("refused") else ""
            other = f"{seconds(p.peer)}, {p.peer['solver']}" if p.peer is not None else "none"
            lines.append(
                f"| {p.name} | {p.first.get('states', '')} | {p.ours.get('said', p.ours['outcome'])}{refused} | "
                f"{seconds(p.ours)} | {other} |"
            )
        lines.append("")
    big = [p for p in found if p.first["size"] == "large"]
    if big:
        states = " and ".join(sorted({str(p.first["states"]) for p in big if "states" in p.first}))
        lines += ["## Large models", "", f"Seconds, on models of {states} states.", "", *large(big), ""]
    return "\n".join(lines)
