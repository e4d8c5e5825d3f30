"""One page for a browser that holds all it needs: the answer to a problem, or to many with one limit moved.

The page asks no network for anything and forbids it to itself; what runs in it is one script of our own, known by its
hash, so that no name of a state could ever run, were it not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.io.files import Path, write_atomically
from cvxmdp.names import brief, printable
from cvxmdp.report.draw import bar, cells_together, darkest, grid_svg, trade_off_svg
from cvxmdp.report.facts import (
    LimitFact,
    limit_facts,
    minimized,
    most_visited,
    proof_words,
    readable,
    short,
    verdict_of,
)
from cvxmdp.report.grid import Grid, find_grid
from cvxmdp.report.html import actions_text, amount, model_facts, number, text
from cvxmdp.solution import COMPROMISES
from cvxmdp.status import Status

if TYPE_CHECKING:
    from cvxmdp.mdp import MDP
    from cvxmdp.prices import PriceRange
    from cvxmdp.problem import Problem
    from cvxmdp.solution import Solution
    from cvxmdp.sweep import Sweep

ROWS = 20
"""Rows of a table of states."""
SIDE = 100
"""Rows and columns of the largest grid that is drawn cell by cell."""
POINTS = 100
"""Positions of a slider."""
CELLS = 70_000
"""Cells drawn for all positions of a slider together: a page of a few megabytes."""
NAME = 60
"""Characters of the longest name in a heading."""
SAME = 1e-5
"""Share of a limit within which two are the same: what a solve tells apart, and a little more."""
RANGED_PAIRS = 20_000
"""Pairs up to which the ranges of prices are worked out for a page: a few more solves of a second at most."""


def write_report(
    solution: Solution, path: Path, problem: Problem, ranges: Mapping[str, PriceRange] | None = None
) -> None:
    """Write the page of a solution.

    Parameters
    ----------
    solution : Solution
        The answer.
    path : str or path
        Where to write it.
    problem : Problem
        What was solved.
    ranges : dict of str to PriceRange, optional
        From where to where prices hold; worked out where that takes a moment, when not given.

    Examples
    --------
    >>> import cvxmdp as cm, tempfile, pathlib
    >>> problem = cm.Problem(cm.worlds.gridworld(size=4), "time", [cm.Budget("collision", at_most=0.01)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "report.html"
    ...     problem.solve().report(path)
    ...     "Optimal, and proven" in path.read_text(encoding="utf-8")
    True
    """
    _fits(solution, problem)
    if ranges is None:
        ranges = _ranges(solution, problem)
    grid = find_grid(problem.mdp)
    parts = [
        _verdict(solution, "h1"),
        _figures(solution),
        _limits(solution, ranges),
        _costs(solution),
        _give(solution),
        _goes(solution, problem.mdp, grid, None if grid is None else darkest(grid, solution.visits), SIDE),
        _sure(solution),
        _model(problem.mdp),
        _found(solution),
        _again(solution, problem, _call(solution)),
    ]
    _write(path, f"The {_aim(solution)}: {verdict_of(solution).title}", "".join(parts))


def write_sweep_report(sweep: Sweep, path: Path) -> None:
    """Write the page of a sweep: the trade-off, and a slider over the limit that changes verdict, costs and policy.

    Parameters
    ----------
    sweep : Sweep or Pareto
        The answers.
    path : str or path
        Where to write it.
    """
    solutions = list(sweep.solutions)
    if not solutions:
        raise ValueError("the sweep has no points; there is nothing to report")
    first = solutions[0]
    problem = first.of(None)
    frames = np.unique(np.linspace(0, len(solutions) - 1, min(POINTS, len(solutions))).round().astype(int)).tolist()
    grid = find_grid(problem.mdp)
    # One scale for all; a policy that stays in one cell would make all others pale.
    largest = None if grid is None else float(np.median([darkest(grid, solutions[i].visits) for i in frames]))
    side = min(SIDE, math.isqrt(CELLS // len(frames)))
    limits = [float(limit) for limit in sweep.limits]
    obeyed = [all(fact.standing != "exceeded" for fact in limit_facts(solution)) for solution in solutions]
    values = [s.value if ok else math.nan for s, ok in zip(solutions, obeyed, strict=True)]
    limit = text(_swept(sweep, first))
    names = limit, text(first.asked.objective)
    shown = [
        f'<section class="frame" id="p{k}" data-limit="{short(limits[i])}">'
        + _verdict(solutions[i], "h2")
        + _limits(solutions[i], {})
        + _costs(solutions[i])
        + _goes(solutions[i], problem.mdp, grid, largest, side)
        + "</section>"
        for k, i in enumerate(frames)
    ]
    title = f"{_aim(first)} for each limit on {text(sweep.name)}"
    start = min((k for k, i in enumerate(frames) if obeyed[i]), key=lambda k: abs(2 * k - len(frames)), default=0)
    parts = [
        '<p class="kicker">cvxmdp sweep</p>',
        f"<h1>The {title}</h1>",
        f"<p>{_said_of_all(solutions, obeyed, limits)}</p>",
        trade_off_svg(limits, values, names, frames, getattr(sweep, "breakpoints", None)),
        f'<div class="slider" id="slider" hidden><label for="point">{limit[:1].upper()}{limit[1:]}: '
        f'<b id="limit"></b></label><input type="range" id="point" min="0" max="{len(frames) - 1}" value="{start}" '
        f'data-first="{start}"></div>',
        *shown,
        _points(sweep, solutions, frames),
        _sure(first, solutions),
        _model(problem.mdp),
        _again(first, _unswept(sweep, problem), f"sweep = problem.sweep({sweep.name!r}, values={_values(limits)})"),
    ]
    _write(
        path, f"The {title}", "".join(parts), resources.files("cvxmdp.report").joinpath("sweep.js").read_text("utf-8")
    )


def _write(path: Path, title: str, content: str, script: str = "") -> None:
    """Write a page around its content, which is HTML already, as its title is."""
    style = resources.files("cvxmdp.report").joinpath("page.css").read_text("utf-8")
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    runs = f"; script-src 'sha256-{known}'" if script else ""
    policy = f"default-src 'none'; style-src 'unsafe-inline'{runs}; base-uri 'none'; form-action 'none'"
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style}</style></head><body><main>{content}</main>"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )
    with write_atomically(path) as file:
        file.write(page.encode())


def _fits(solution: Solution, problem: Problem) -> None:
    if solution.occupancy.shape != (problem.mdp.num_pairs,):
        raise ValueError(
            f"the solution has {solution.occupancy.size} pairs and the problem's model {problem.mdp.num_pairs}; "
            "give the problem that was solved"
        )


def _ranges(solution: Solution, problem: Problem) -> Mapping[str, PriceRange]:
    if solution.status is not Status.OPTIMAL or not solution.prices or problem.mdp.num_pairs > RANGED_PAIRS:
        return {}
    return solution.price_ranges(problem)


def _aim(solution: Solution) -> str:
    return f"{'least' if minimized(solution) else 'most'} {text(solution.asked.objective)}"


def _verdict(solution: Solution, heading: str) -> str:
    verdict = verdict_of(solution)
    words = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in map(printable, verdict.sentences))
    kicker = f'<p class="kicker">cvxmdp report: {_aim(solution)}</p>' if heading == "h1" else ""
    title = html.escape(verdict.title)
    return f'{kicker}<div class="verdict {verdict.tone}"><{heading}>{title}</{heading}>{words}</div>'


def _figures(solution: Solution) -> str:
    best = "no policy that obeys is below" if minimized(solution) else "no policy that obeys is above"
    shown = [(text(solution.asked.objective), number(solution.value, 5), "value")]
    if math.isfinite(solution.bound):
        shown.append((f"proven: {best}", number(solution.bound, 5), "bound"))
    facts = limit_facts(solution)
    if facts:
        obeyed = sum(fact.standing != "exceeded" for fact in facts)
        shown.append(("limits obeyed", f"{obeyed} of {len(facts)}", "obeyed"))
    body = "".join(f'<div><dt>{name}</dt><dd id="{key}">{value}</dd></div>' for name, value, key in shown)
    return f'<dl class="figures">{body}</dl>'


def _limits(solution: Solution, ranges: Mapping[str, PriceRange]) -> str:
    facts = limit_facts(solution)
    if not facts:
        return ""
    shown = "".join(_limit(solution, fact, ranges.get(fact.name)) for fact in facts[:ROWS])
    return f"<h2>Costs against limits</h2>{shown}{_more(len(facts) - ROWS)}"


def _limit(solution: Solution, fact: LimitFact, within: PriceRange | None) -> str:
    does = "" if fact.level is None else f"{amount(fact.level, fact.total)}, "
    beyond = f" by {amount(fact.excess, fact.total, 3)}" if fact.standing == "exceeded" else ""
    objective = text(solution.asked.objective)
    words = [fact.effect[:1].upper() + fact.effect[1:] + "." if fact.effect else ""]
    if math.isfinite(fact.price) and fact.matters:
        words.append(f"Price: each unit by which the limit is raised changes {objective} by {number(fact.price)}.")
    if within is not None:
        words.append(_holds(fact, within))
    return (
        f'<article class="limit"><header><h3>{text(fact.name)} <span class="soft">{text(fact.allowed)}</span></h3>'
        f'<span>{does}<span class="standing {fact.standing.replace(" ", "-")}">{fact.standing}{beyond}</span></span>'
        f"</header>{bar(fact)}{''.join(f'<p>{word}</p>' for word in words if word)}</article>"
    )


def _holds(fact: LimitFact, within: PriceRange) -> str:
    """Say from where to where a price holds, and what it is beyond; nothing where the limit itself is not within."""
    limit = (fact.upper if math.isfinite(fact.upper) else fact.lower) * (fact.total or 1.0)
    slack = SAME * max(abs(limit), 1e-300)
    if not within.low - slack <= limit <= within.high + slack:
        return ""
    if within.low == within.high and within.left == within.right:
        return "The price changes with the limit." if fact.matters else ""
    sides = (("below", within.left, within.low), ("above", within.right, within.high))
    if within.low == within.high:
        where = "At this limit the price changes"
    else:
        what = "The limit changes nothing" if within.price == 0 else "This price holds"
        ends = [
            f"{word} {number(end)}" for word, end in (("from", within.low), ("to", within.high)) if math.isfinite(end)
        ]
        on = " on" if math.isfinite(within.low) and not math.isfinite(within.high) else ""
        up = "" if math.isfinite(within.low) else "up "
        where = f"{what} {up}{' '.join(ends)}{on}{'' if fact.total is None else ', in total'}"
    beyond = [
        f"{side} it is {number(price)}" if math.isfinite(price) else f"{side} no policy obeys"
        for side, price, end in sides
        if math.isfinite(end)
    ]
    return f"{where}; {', '.join(beyond)}." if beyond else f"{where}."


def _costs(solution: Solution) -> str:
    steps = 1 / (1 - solution.asked.discount)
    rows = [
        (text(name), number(cost, 5), number(cost * steps, 5)) for name, cost in list(solution.costs.items())[:ROWS]
    ]
    shown = _table(["cost", "#per step, on average", "#in total, discounted"], rows, len(solution.costs) - len(rows))
    return f"<h2>All costs of the policy</h2>{shown}"


def _give(solution: Solution) -> str:
    """Say what would have to give where no policy obeys."""
    found = solution.infeasibility
    if found is None:
        return ""
    rows = []
    for fact in limit_facts(solution)[:ROWS]:
        limit = found.relax[fact.name]
        alone = "not known" if limit.amount is not None else "no change of it alone is enough"
        part = "in the conflict" if fact.name in found.conflict else "not part of it" if limit.innocent else ""
        become = alone if limit.alone is None else text(readable(limit.alone))
        rows.append((text(fact.name), part, text(fact.allowed), become))
    names = ["limit", "", "asked for", "alone, it would have to become"]
    return f"<h2>What would have to give</h2>{_table(names, rows, len(found.relax) - len(rows))}"


def _goes(solution: Solution, mdp: MDP, grid: Grid | None, largest: float | None, side: int) -> str:
    title = "<h2>Where the policy goes</h2>"
    if grid is not None and largest is not None:
        drawn = grid_svg(grid, mdp, solution.occupancy, largest, side)
        return f"{title}{drawn}{_legend(grid, cells_together(grid, side), largest)}"
    facts, left = most_visited(solution.policy, solution.visits, ROWS)
    most = max((fact.visits for fact in facts), default=1.0)
    rows = [
        (
            text(fact.name),
            f'<span style="width:{100 * fact.visits / most:.1f}%"></span>',
            f'<data value="{fact.visits!r}">{100 * fact.visits:.3g} %</data>',
            actions_text(fact),
        )
        for fact in facts
    ]
    return title + _table(["state", "|", "#visits", "what it does"], rows, left)


def _legend(grid: Grid, together: int, largest: float) -> str:
    shades = "".join(f'<rect class="v{k}" x="{10 * k}" width="10" height="10"/>' for k in range(9))
    least = f"{short(100 * largest * 1e-4, 2)} %"
    items = [
        '<svg class="scale" viewBox="0 0 90 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{shades}</svg>visits: from below {least} to {short(100 * largest, 2)} % and more"
    ]
    if together > 1:
        items.append(f"each square stands for {together} by {together} cells; arrows are left out")
    elif grid.marks:
        circle = '<svg viewBox="0 0 10 10" aria-hidden="true"><circle class="mark" cx="5" cy="5" r="4"/></svg>'
        items.append(f"{circle}{', '.join(text(name) for name in grid.marks)}")
    letters = [
        word for word, where in (("S start", grid.start), ("D destination, never left", grid.goal)) if np.any(where)
    ]
    return f'<ul class="legend">{"".join(f"<li>{item}</li>" for item in items + letters)}</ul>'


def _sure(solution: Solution, swept: Sequence[Solution] = ()) -> str:
    """Say what is proven, and how that is seen."""
    what = proof_words(solution)
    if swept:
        near = f"to a relative tolerance of {short(solution.tolerance)}"
        decided = sum(point.status in (Status.OPTIMAL, Status.INFEASIBLE) for point in swept)
        each = "All" if decided == len(swept) else f"{decided}"
        what = f"{each} of the {len(swept)} answers come with a proof, {near}, rounding counted against it"
    check = "<code>solution.certificate.check(problem)</code> recomputes it by code that shares nothing with the solver"
    return f'<h2>How sure this is</h2><p id="proof">{what}. {check}.</p>'


def _found(solution: Solution) -> str:
    stats = solution.stats
    return f"<h2>How it was found</h2><p>{text(stats.method)}; {short(stats.seconds['total'], 3)} s.</p>"


def _model(mdp: MDP) -> str:
    rows = [
        (text(name), number(cost.min()), number(cost.max()), f"{np.count_nonzero(cost):,}")
        for name, cost in list(mdp.costs.items())[:ROWS]
    ]
    ahead = f"The discount looks about {short(1 / (1 - mdp.discount), 3)} steps ahead."
    table = _table(["cost", "#least", "#largest", "#pairs with it"], rows, len(mdp.costs) - len(rows))
    return f"<h2>The model</h2><p>{model_facts(mdp)}. {ahead}</p>{table}"


def _again(solution: Solution, problem: Problem, how: str) -> str:
    """Say how to get these numbers again: ``how`` is the call that makes them of the problem."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("cvxmdp", "numpy", "scipy"))
    lines = [
        "import cvxmdp as cm",
        "",
        'mdp = cm.load("model.npz")  # the model, as mdp.save("model.npz") writes it',
        *_stated(solution, problem),
        how,
    ]
    code = html.escape("\n".join(map(printable, lines)))
    return (
        f"<h2>How to get it again</h2><p>{versions}, Python {platform.python_version()}; discount "
        f"{solution.asked.discount:.12g}, tolerance {short(solution.tolerance)}.</p><pre>{code}</pre>"
    )


def _call(solution: Solution) -> str:
    found = solution.infeasibility
    chosen = found.compromise if found is not None and found.compromise in COMPROMISES else "nearest"
    other = "" if chosen == "nearest" else f", when_infeasible={chosen!r}"
    return f"solution = problem.solve(tolerance={solution.tolerance!r}{other})"


def _stated(solution: Solution, problem: Problem) -> list[str]:
    """Return the problem as code, as far as it is a few words; where vectors are needed, say which."""
    budgets: list[str] = []
    others: list[str] = []
    for limit in problem.constraints:
        code = _budget(limit, problem.mdp)
        (budgets if code else others).append(code or limit.name)
    names = solution.asked.costs
    aim = "minimize" if minimized(solution) else "maximize"
    plain = len(names) == 1 and not problem.terms and names[0] is not None
    what = repr(names[0]) if plain else "..."
    aim = f"    {aim}={what},"
    limits = [f"        {code}," for code in budgets]
    limits += [f"        ...,  # {', '.join(others[:ROWS])}"] if others else []
    listed = ["    subject_to=[", *limits, "    ],"] if limits else []
    return ["problem = cm.Problem(", "    mdp,", aim if plain else f"{aim}  # {solution.asked.objective}", *listed, ")"]


def _budget(limit: Any, mdp: MDP) -> str | None:
    """Return a budget as code; None for any other limit."""
    rows = getattr(limit, "rows", None)
    if not limit.is_rows or limit.parts > 1 or rows is None or limit.name not in mdp.costs:
        return None
    row = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
    if not np.array_equal(row.ravel(), mdp.costs[limit.name]):
        return None
    each, per = limit.total or 1.0, ', per="episode"' if limit.total else ""
    ends = {"at_most": float(limit.upper[0]), "at_least": float(limit.lower[0])}
    # A total is a limit per step times a number: its last digit is rounding.
    stated = {end: repr(value if each == 1.0 else float(f"{value * each:.14g}")) for end, value in ends.items()}
    given = ", ".join(f"{end}={stated[end]}" for end, value in ends.items() if math.isfinite(value))
    return f"cm.Budget({limit.name!r}, {given}{per})"


def _unswept(sweep: Any, problem: Problem) -> Problem:
    """Leave out a budget that a sweep over a cost of its name states by itself: upper limits, per step."""
    kept = [
        limit
        for limit in problem.constraints
        if limit.name != sweep.name or limit.total is not None or "at_most" not in (_budget(limit, problem.mdp) or "")
    ]
    return problem.with_limits(kept)


def _values(limits: Sequence[float]) -> str:
    return f"[{', '.join(map(repr, limits))}]"


def _said_of_all(solutions: Sequence[Solution], obeyed: Sequence[bool], limits: Sequence[float]) -> str:
    """Say for how many of the limits some policy obeys, and for how many none does."""
    words = [f"{len(limits)} limits from {short(min(limits))} to {short(max(limits))} were tried"]
    none = sum(solution.infeasibility is not None for solution in solutions)
    if none:
        words.append(f"no policy obeys {none} of them")
    if len(limits) > none + sum(obeyed):
        words.append(f"{len(limits) - none - sum(obeyed)} were not decided")
    ends = [limit for limit, ok in zip(limits, obeyed, strict=True) if ok]
    if len(ends) == len(limits):
        words.append("some policy obeys each of them")
    elif ends:
        words.append(f"those that some policy obeys go from {short(min(ends))} to {short(max(ends))}")
    return "; ".join(words) + "."


def _swept(sweep: Any, solution: Solution) -> str:
    """Name what is swept, and its unit where that is a total."""
    limit = dict(zip(solution.asked.names, solution.asked.limits, strict=False)).get(sweep.name)
    return f"limit on {brief(sweep.name, NAME)}{'' if limit is None or limit.total is None else ', in total'}"


def _points(sweep: Any, solutions: Sequence[Solution], frames: Sequence[int]) -> str:
    """Return all points with a slider's position as a table, which leads to each."""
    objective = solutions[0].asked.objective
    costs = [name for name in solutions[0].costs if name != objective][:4]
    rows = []
    for k, i in enumerate(frames):
        solution, price = solutions[i], float(np.ravel(sweep.prices[i])[0])
        rows.append(
            (
                f'<a href="#p{k}">{number(sweep.limits[i])}</a>',
                solution.status.name.lower().replace("_", " "),
                "" if solution.infeasibility is not None else number(solution.value, 5),
                *(number(solution.costs[name]) for name in costs),
                "" if math.isnan(price) else number(price, 3),
            )
        )
    names = [f"#{_swept(sweep, solutions[0])}", "verdict", f"#{objective}", *(f"#{n}" for n in costs)]
    return f"<h2>All points</h2>{_table([*names, '#price'], rows, len(solutions) - len(rows))}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """Return a table; columns that begin with ``#`` are of numbers, and ``|`` is one of bars."""
    kinds = [' class="n"' if name.startswith("#") else ' class="share"' if name == "|" else "" for name in columns]
    head = "".join(
        f"<th{k}>{text(name.removeprefix('#').strip('|'))}</th>" for k, name in zip(kinds, columns, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{k}>{cell}</td>' for k, cell in zip(kinds, row, strict=True))}</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{_more(left)}'


def _more(left: int) -> str:
    return f'<p class="soft">and {left:,} more</p>' if left > 0 else ""
