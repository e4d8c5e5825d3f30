"""Measure the figures of docs/verdicts.md: verdicts near the border of feasibility, ours and those of other solvers.

    make verdicts                 fresh seeds, write both files
    make verdicts HOW=--quick     every twentieth problem, print the tables
    make verdicts HOW=--table     write docs/verdicts.md again from benchmarks/results/verdicts.json

The problems are those of reference/margins.py, which writes each twice and proves its margin.  Raw numbers go to
benchmarks/results/verdicts.json.  Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import instances
import provenance

from margins import KINDS, MARGINS, Case, cases, judge, required

ROOT = Path(__file__).parent

RESULTS = ROOT / "results" / "verdicts.json"
PAGE = ROOT.parent / "docs" / "verdicts.md"
SEEDS = (2000, 2001, 2002, 2003)
TIME_LIMIT = 30.0
GARNETS, FIRST_GARNET = 9, 6000
PEERS = {"Clarabel": "CVXPY with Clarabel", "HiGHS": "SciPy with HiGHS, linear limits only"}


def measure(quick: bool) -> dict[str, Any]:
    """Solve every problem with all."""
    for case in list(cases((999,)))[::20]:  # load everything once, on other problems
        row(case)
    chosen = list(cases(SEEDS))[:: 20 if quick else 1]
    rows = []
    for number, case in enumerate(chosen):
        rows.append(row(case))
        print(f"{number + 1}/{len(chosen)}", json.dumps(rows[-1]), flush=True)
    times = garnet(2 if quick else GARNETS)
    names = ("numpy", "scipy", "cvxpy", "clarabel")
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    return {
        **provenance.made_by(),
        "cores": os.cpu_count(),
        "versions": versions,
        "seeds": SEEDS,
        "time_limit": TIME_LIMIT,
        "times": times,
        "rows": rows,
    }


def row(case: Case) -> dict[str, Any]:
    """One problem: our verdict with what is wrong about it, and the words of the others."""
    problem, model = case.problem, case.border.world.model
    found: dict[str, Any] = {
        "case": case.name,
        "kind": case.kind,
        "seed": case.seed,
        "margin": case.margin,
        "uncertainty": float(f"{case.uncertainty:.1e}"),
        "states": problem.mdp.num_states,
        "pairs": problem.mdp.num_pairs,
        "limits": int(case.border.sizes.size),
        "discount": model["discount"],
        "peers": {word.solver: [word.status, round(word.seconds, 5)] for word in case.peer()},
    }
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = problem.solve(time_limit=TIME_LIMIT, explain=False)
    except Exception as error:
        seconds = time.perf_counter() - start
        return {**found, "status": type(error).__name__, "seconds": round(seconds, 5), "complaints": [str(error)]}
    return {
        **found,
        "status": solution.status.name,
        "seconds": round(time.perf_counter() - start, 5),
        "method": solution.stats.method,
        "complaints": case.complaints(problem, solution),
    }


def garnet(count: int) -> dict[str, list[float]]:
    """Seconds on Garnet models of 1000 states under ten random rows: of feasible ones, of phases of infeasible ones."""
    times: dict[str, list[float]] = {"feasible": [], "verdict": [], "nearest": [], "explained": []}
    seed = FIRST_GARNET
    while len(times["feasible"]) <= count or len(times["verdict"]) <= count:  # one more of each, to load
        problem = instances.problem(instances.make("linear", 1000, 0.05, seed))
        solution = problem.solve(explain=False)
        solution.certificate.check(problem, solution.tolerance)
        seconds = solution.stats.seconds
        if solution.status.name == "OPTIMAL":
            times["feasible"].append(seconds["total"])
        elif solution.status.name == "INFEASIBLE" and len(times["verdict"]) <= count:
            times["verdict"].append(seconds["verdict"])
            times["nearest"].append(seconds["total"])
            times["explained"].append(problem.solve().stats.seconds["total"])
        seed += 1
    return {name: values[1:] for name, values in times.items()}


def table(rows: list[dict[str, Any]], title: str, key: str, order: list[Any]) -> Iterator[str]:
    """Yield the lines of a table of our verdicts: a row for each value of the key, and one for all."""
    titles = ("problems", "proven infeasible", "optimal", "undecided", "wrong", "median seconds", "greatest seconds")
    yield "| " + " | ".join([title, *titles]) + " |"
    yield "|---" * (1 + len(titles)) + "|"
    for name, members in groups(rows, key, order):
        seconds = [row["seconds"] for row in members]
        cells = [
            name,
            str(len(members)),
            str(sum(row["status"] == "INFEASIBLE" for row in members)),
            str(sum(row["status"] == "OPTIMAL" for row in members)),
            str(sum(judge(row["margin"], row["status"]) == "undecided" for row in members)),
            str(sum(judge(row["margin"], row["status"]) == "wrong" for row in members)),
            f"{median(seconds):.3f}",
            f"{max(seconds):.2f}",
        ]
        yield "| " + " | ".join(cells) + " |"


def peer_table(rows: list[dict[str, Any]], solver: str) -> Iterator[str]:
    """Yield the lines of a table of the words of another solver, by margin."""
    words = sorted({row["peers"][solver][0] for row in rows} - {"optimal", "infeasible"})
    yield "| " + " | ".join(["margin", "problems", "infeasible", "optimal", *words, "wrong", "median seconds"]) + " |"
    yield "|---" * (6 + len(words)) + "|"
    for name, members in groups(rows, "margin", list(MARGINS)):
        said = [row["peers"][solver][0] for row in members]
        wrong = sum(judge(row["margin"], row["peers"][solver][0]) == "wrong" for row in members)
        counts = [said.count(word) for word in ("infeasible", "optimal", *words)]
        seconds = median(row["peers"][solver][1] for row in members)
        yield f"| {name} | {len(members)} | {' | '.join(map(str, counts))} | {wrong} | {seconds:.3f} |"


def groups(rows: list[dict[str, Any]], key: str, order: list[Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the rows by the value of the key, and all of them."""
    for name in order:
        members = [row for row in rows if row[key] == name]
        if members:
            yield (name if isinstance(name, str) else f"{name:+.0e}"), members
    yield "**all**", rows


def page(data: dict[str, Any]) -> str:
    """Write the page from the data."""
    versions, rows, times = data["versions"], data["rows"], data["times"]
    counted = count(rows, lambda row: judge(row["margin"], row["status"]))
    clear = [row for row in rows if required(row["margin"])]
    missed = sum(row["status"] != required(row["margin"]) for row in clear)
    most = max(row["uncertainty"] for row in rows)
    lines = [
        "# Verdicts near the border of feasibility",
        "",
        f"Measured by `make verdicts` {provenance.said([data])}; raw numbers in `benchmarks/results/verdicts.json`.",
        f"{data['cores']} cores, Python {versions['python']}, NumPy {versions['numpy']}, SciPy {versions['scipy']}, "
        f"CVXPY {versions['cvxpy']}, Clarabel {versions['clarabel']}, one run of each.",
        "",
        f"{len(rows)} random problems (`reference/margins.py`, seeds {', '.join(map(str, data['seeds']))}) with 3 to "
        "40",
        "states, 2 to 4 actions a state and discount 0.5, 0.9, 0.99 or 0.999, dense, sparse and ragged. The *margin*",
        "of a problem is by how much its limits could all be tightened before no policy obeys them; a negative one, by",
        "how much they have to be relaxed until some policy does. It is relative to the size of each limit, which is",
        "what the tolerance is relative to: max(|limit|, |row|'d) of a row, the radius of a ball, the absolute bound",
        "of an entropy. Every margin is proven by a policy that obeys at the border and by multipliers that show that",
        f"none does beyond it; the two differ by {most:.0e} at most. A margin is left out where an entropy is asked",
        "for that no distribution has.",
        "",
        f"Each problem is solved with the defaults, so with a tolerance of 1e-6, in {data['time_limit']:g} seconds at",
        "most. *Wrong* is to call a feasible problem infeasible, or to call a policy optimal at a margin below -2e-6,",
        "where none obeys to the tolerance. Between -2e-6 and 0 both verdicts are right. *Undecided* is any other",
        "status. From 1e-5 on, of either sign, there should be a verdict; there is none, or a wrong one, for",
        f"{missed} of {len(clear)} problems. In all {counted.get('wrong', 0)} verdicts are wrong and",
        f"{counted.get('undecided', 0)} problems undecided. For every answer the certificate is checked, the policy is",
        "held against the limits as they are defined, and the bound against the cost of the policy at the border.",
        "Compilation is excluded.",
        "",
        "## By margin",
        "",
        *table(rows, "margin", "margin", list(MARGINS)),
        "",
        "## By kind of limits",
        "",
        *table(rows, "limits", "kind", list(KINDS)),
        "",
        "## Seconds",
        "",
        "Garnet models of 1000 states, ten actions and density 0.05 under ten random rows, seeds from",
        f"{FIRST_GARNET} on as they come: {len(times['feasible'])} that some policy obeys and",
        f"{len(times['verdict'])} that none does. *verdict* is the time until it is proven that no policy obeys,",
        "*nearest* until the cheapest of the nearest policies is proven too, and *explained* with the conflict and",
        "what each constraint would have to become.",
        "",
        "| | median seconds | least to greatest | times the feasible |",
        "|---|---|---|---|",
        *(
            f"| {name} | {median(values):.3f} | {min(values):.3f} to {max(values):.3f} | "
            f"{median(values) / median(times['feasible']):.1f} |"
            for name, values in times.items()
        ),
        "",
        "## Other solvers",
        "",
        "The same problems, given to general solvers at their default settings and judged by the same rule. Their",
        "tolerances differ from ours: Clarabel's is 1e-8, relative to the norms of its data, and that of HiGHS 1e-7,",
        "absolute. Words other than optimal and infeasible are counted as they are.",
        "",
    ]
    for solver, title in PEERS.items():
        members = [row for row in rows if solver in row["peers"]]
        if members:
            counted = count(members, lambda row, solver=solver: judge(row["margin"], row["peers"][solver][0]))
            lines += [
                f"### {title}",
                "",
                f"Of {len(members)} verdicts {counted.get('wrong', 0)} are wrong, and "
                f"{counted.get('undecided', 0)} problems are undecided.",
                "",
                *peer_table(members, solver),
                "",
            ]
    failed = [(row, what) for row in rows for what in faults(row)]
    if failed:
        lines += ["## What went wrong", "", "| problem | what |", "|---|---|"]
        lines += [f"| {row['case']} | {what} |" for row, what in failed]
        lines.append("")
    return "\n".join(lines)


def count(rows: list[dict[str, Any]], word: Callable[[dict[str, Any]], str]) -> dict[str, int]:
    """How often each word is said of the rows."""
    found: dict[str, int] = {}
    for row in rows:
        found[word(row)] = found.get(word(row), 0) + 1
    return found


def faults(row: dict[str, Any]) -> list[str]:
    """What is wrong about our answer: a wrong verdict, none where there should be one, and complaints."""
    verdict, must = judge(row["margin"], row["status"]), required(row["margin"])
    wrong = verdict == "wrong" or (must is not None and row["status"] != must)
    return [*([f"{verdict}: {row['status']}"] if wrong else []), *row["complaints"]]


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
