"""Measure the figures of docs/kinds.md: every kind of constraint and objective against CVXPY with Clarabel.

    make kinds                 fresh seeds (about two minutes on two cores), write both files
    make kinds HOW=--quick     every twentieth problem, print the table
    make kinds HOW=--table     write docs/kinds.md again from benchmarks/results/kinds.json

The problems are those of reference/campaign.py, which writes each twice: for cvxmdp, and for CVXPY from the
definitions.  Raw numbers go to benchmarks/results/kinds.json.  Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import provenance

from campaign import Answer, Case, cases, compare, run

ROOT = Path(__file__).parent

RESULTS = ROOT / "results" / "kinds.json"
PAGE = ROOT.parent / "docs" / "kinds.md"
SEEDS = (1000, 1001, 1002)
TIME_LIMIT = 60.0
GROUPS = {
    "single": "One constraint",
    "pair": "Pairs of constraints, by each kind in them",
    "triple": "Triples of constraints, by each kind in them",
    "objective": "Convex objectives",
    "objective with constraint": "Convex objectives with a constraint, by the objective",
}


def measure(quick: bool) -> dict[str, Any]:
    """Solve every problem with both."""
    warm_up()
    chosen = list(cases(SEEDS))[:: 20 if quick else 1]
    rows = []
    for number, case in enumerate(chosen):
        rows.append(row(case))
        print(f"{number + 1}/{len(chosen)}", json.dumps(rows[-1]), flush=True)
    names = ("numpy", "scipy", "cvxpy", "clarabel", "scs")
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    about = {"cores": os.cpu_count(), "versions": versions, "seeds": SEEDS, "time_limit": TIME_LIMIT}
    return {**provenance.made_by(), **about, "rows": rows}


def warm_up() -> None:
    """Load everything once, on other problems."""
    for case in list(cases((999,)))[::10]:
        row(case)


def row(case: Case) -> dict[str, Any]:
    """One problem: our answer, and theirs at their default settings and at settings tight enough to compare with."""
    built = case.build()
    start = time.perf_counter()
    peer, _ = built.peer()
    status = run(peer, "CLARABEL")
    theirs = time.perf_counter() - start
    try:
        answer = built.reference()
    except AssertionError:
        if case.mode != "infeasible":
            raise
        # No solver is sure, but the problem was built to be infeasible by a margin.
        answer = Answer(True, math.nan, "construction", 0.0, 0.0, [])
    found: dict[str, Any] = {
        "case": case.name,
        "group": case.group,
        "kinds": sorted({kind for kind, _ in case.kinds}),
        "terms": [kind for kind, _ in case.terms],
        "states": built.world.mdp.num_states,
        "pairs": built.world.mdp.num_pairs,
        "their status": status,
        "their seconds": theirs,
        "their solver's seconds": peer.solver_stats.solve_time if peer.solver_stats else None,
        "compared with": answer.solver,
        "infeasible": answer.infeasible,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = built.problem.solve(time_limit=TIME_LIMIT)
    except Exception as error:
        return {**found, "our status": type(error).__name__, "complaints": [str(error)]}
    verdict = compare(built, solution, answer)
    return {
        **found,
        "our status": solution.status.name,
        "our seconds": solution.stats.seconds["total"],
        "iterations": solution.stats.iterations,
        "method": solution.stats.method,
        "gap": solution.gap,
        "difference": None if math.isnan(verdict.difference) else verdict.difference,
        "saved": None if math.isnan(verdict.priced) else verdict.priced,
        "complaints": verdict.complaints,
    }


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of one table: a row for each kind, and one for all."""
    yield "| kind | problems | infeasible | other verdict | difference | net | ours | Clarabel | CVXPY with Clarabel |"
    yield "|---|---|---|---|---|---|---|---|---|"
    by_terms = any(row["terms"] for row in rows)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for kind in dict.fromkeys(row["terms"] if by_terms else row["kinds"]):
            kinds.setdefault(kind, []).append(row)
    for kind, members in [*kinds.items(), ("**all**", rows)]:
        compared = [row for row in members if row.get("difference") is not None]
        cells = [
            kind,
            str(len(members)),
            str(sum(row["infeasible"] for row in members)),
            str(sum(other_verdict(row) for row in members)),
            worst([abs(row["difference"]) for row in compared]),
            worst([max(row["difference"], -row["difference"] - row["saved"], 0.0) for row in compared]),
            milliseconds(members, "our seconds"),
            milliseconds(members, "their solver's seconds"),
            milliseconds(members, "their seconds"),
        ]
        yield "| " + " | ".join(cells) + " |"


def worst(differences: list[float]) -> str:
    """The largest, where there is one."""
    return f"{max(differences):.0e}" if differences else "-"


def other_verdict(row: dict[str, Any]) -> bool:
    """Whether we did not say what the reference says: infeasible, or a proven optimum."""
    return bool(row["our status"] != ("INFEASIBLE" if row["infeasible"] else "OPTIMAL"))


def milliseconds(rows: list[dict[str, Any]], key: str) -> str:
    """The median, where there is one."""
    seconds = [row[key] for row in rows if row.get(key) is not None]
    return f"{1000 * median(seconds):.1f}" if seconds else "-"


def page(data: dict[str, Any]) -> str:
    """Write the page from the data."""
    versions, rows = data["versions"], data["rows"]
    unsure = sum(row["their status"] not in ("optimal", "infeasible") for row in rows)
    elsewhere = sum(row["compared with"] != "CLARABEL" for row in rows)
    lines = [
        "# Every kind of problem",
        "",
        f"Measured by `make kinds` {provenance.said([data])}; raw numbers in `benchmarks/results/kinds.json`.",
        f"{data['cores']} cores, Python {versions['python']}, NumPy {versions['numpy']}, CVXPY {versions['cvxpy']}, "
        f"Clarabel {versions['clarabel']}, one run of each.",
        "",
        f"{len(rows)} random problems (`reference/campaign.py`, seeds {', '.join(map(str, data['seeds']))}) with 3 to "
        "20",
        "states, 1 to 4 actions a state and discount 0.5, 0.9 or 0.99, dense, sparse and ragged; limits are active,",
        "inactive, or clearly exclude each other. Each is solved by cvxmdp with its defaults and, written again from",
        "the definitions, by CVXPY with Clarabel. The *difference* is the worst of the optimal values, relative to",
        "|c|'d plus the absolute values of the convex terms. Our value is proven to 1e-6, and our policy may exceed",
        "each limit by 1e-6 of it: *net* leaves out what that is worth at the multipliers of CVXPY. Values are",
        "compared with Clarabel's at tolerances of 1e-11 or 1e-9, or with another solver's where Clarabel is not sure",
        f"({elsewhere} problems; at its default settings {unsure}). *Other verdict* counts problems where we do not",
        "say what CVXPY says, infeasible or optimal. Times are medians in milliseconds from arrays in memory to the",
        "answer: of cvxmdp with its proof, of Clarabel alone as it reports it, and of CVXPY with Clarabel in all, both",
        "at default settings. Compilation is excluded.",
        "",
    ]
    for group, title in GROUPS.items():
        members = [row for row in rows if row["group"] == group]
        if members:
            lines += [f"## {title}", "", *table(members), ""]
    failed = [row for row in rows if row["complaints"]]
    if failed:
        lines += ["## What went wrong", "", "| problem | what |", "|---|---|"]
        lines += [f"| {row['case']} | {'; '.join(row['complaints'])} |" for row in failed]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measure, or write the page again."""
    if "--table" in sys.argv:
        PAGE.write_text(page(json.loads(RESULTS.read_text())))
        return
    data = measure(quick="--quick" in sys.argv)
    if "--quick" in sys.argv:
        print(page(data))
        return
    RESULTS.parent.mkdir(exist_ok=True)
    rows = ",\n".join(json.dumps(row) for row in data["rows"])  # a line each
    RESULTS.write_text(json.dumps({**data, "rows": []}).replace('"rows": []', f'"rows": [\n{rows}\n]') + "\n")
    PAGE.write_text(page(data))


if __name__ == "__main__":
    main()
