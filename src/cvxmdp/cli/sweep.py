"""``cvxmdp sweep``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from cvxmdp.cli import complete
from cvxmdp.cli.app import DONE, INFEASIBLE, LIMIT
from cvxmdp.cli.arguments import (
    AsJson,
    Discount,
    Initial,
    Limits,
    Maximize,
    Method,
    Minimize,
    Model,
    TimeLimit,
    Tolerance,
    problem_of,
    read_stated,
    solve_options,
)
from cvxmdp.cli.as_json import echo_json, sweep_json
from cvxmdp.cli.output import Outputs, Plot, Report, write_rows

if TYPE_CHECKING:
    from cvxmdp.problem import Problem
    from cvxmdp.status import Status
    from cvxmdp.sweep import Sweep

POINTS = 20
"""Points of a sweep where their number is not given: they fit a screen."""


def sweep(
    model: Model,
    limit_name: Annotated[
        str,
        typer.Argument(
            metavar="LIMIT",
            help="A cost, or the name of a limit that is stated.",
            show_default=False,
            autocompletion=complete.costs,
        ),
    ],
    start: Annotated[
        float | None, typer.Option("--from", metavar="NUMBER", help="The first value of the limit.", show_default=False)
    ] = None,
    end: Annotated[float | None, typer.Option("--to", metavar="NUMBER", help="The last.", show_default=False)] = None,
    points: Annotated[
        int | None, typer.Option(metavar="COUNT", help=f"How many; {POINTS} if not given.", show_default=False)
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help='Instead: the values, as in "0.001, 0.002".', show_default=False),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="COST",
            help="Trade the cost LIMIT against this one, from end to end.",
            show_default=False,
            autocompletion=complete.costs,
        ),
    ] = None,
    minimize: Minimize = None,
    maximize: Maximize = None,
    limit: Limits = None,
    discount: Discount = None,
    initial: Initial = None,
    tolerance: Tolerance = None,
    method: Method = None,
    time_limit: TimeLimit = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a table: sweep.csv.", show_default=False)
    ] = None,
    report: Report = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Solve for many values of one limit, each proven.

    --against trades one cost against another, under the problem's other limits.  Without --against, --from, --to and
    --values the limit goes from where it can be obeyed to where it costs nothing.  --time-limit is for each point.
    Ctrl-C ends the sweep; the points that are done are shown and written.

    Exit codes: 0 every point is decided, 2 bad input, 3 no policy obeys at any, 4 stopped before all was decided.
    """
    from cvxmdp.report.console import live_progress

    if against is not None:
        if minimize or maximize:
            raise ValueError(f"--against {against} says what to minimize; leave --minimize and --maximize out")
        minimize = [against]
    stated = read_stated(model, discount, initial, minimize, maximize, limit)
    problem = problem_of(stated)
    given = _read_values(start, end, points, values, against)
    options = solve_options(stated, tolerance=tolerance, method=method, time_limit=time_limit)
    outputs = Outputs()
    outputs.add("--csv", csv, [".csv"], lambda found, path: write_rows(path, _rows(found)))
    outputs.add("--report", report, [".html", ".htm"], lambda found, path: found.report(path))
    outputs.add_plot(plot, lambda found, path: found.plot(path))
    with live_progress() as show:
        options["callback"] = show
        if against is not None:
            swept: Sweep = problem.pareto(against, limit_name, points or POINTS, **options)
        else:
            asked = given if given is not None else _ends(problem, limit_name, points or POINTS, options)
            swept = problem.sweep(limit_name, asked, **options)
    if not swept.solutions:
        raise KeyboardInterrupt
    whole = len(swept.solutions) == (points or POINTS if given is None else given.size)
    written = outputs.write(swept)
    if as_json:
        echo_json(sweep_json(swept, whole))
    else:
        typer.echo(str(swept) + f"\n  {written}" * bool(written))
    raise typer.Exit(_code(swept.statuses) if whole else LIMIT)


def _read_values(
    start: float | None, end: float | None, points: int | None, values: str | None, against: str | None
) -> np.ndarray | None:
    """Return the values of the limit; None where they are to be found out."""
    if points is not None and points < 1:
        raise ValueError(f"--points is {points}; it must be at least 1")
    if values is not None:
        if start is not None or end is not None or points is not None or against is not None:
            raise ValueError("--values says all; leave --from, --to, --points and --against out")
        try:
            return np.array([float(value) for value in values.replace(",", " ").split()])
        except ValueError:
            raise ValueError(f'--values is {values!r}; give numbers, as in "0.001, 0.002"') from None
    if (start is None) != (end is None) or (start is not None and against is not None):
        raise ValueError("give --from and --to, both, or none of them with --against")
    return None if start is None or end is None else np.linspace(start, end, points or POINTS)


def _ends(problem: Problem, limit: str, points: int, options: dict[str, Any]) -> np.ndarray:
    """Return limits from the tightest that can be obeyed to the one that costs nothing."""
    tolerance = float(options.get("tolerance", 1e-6))
    found = problem.range(limit, **options)
    if not np.isfinite([found.tightest, found.loosest]).all():
        raise ValueError(f"it is not known from where to where {limit!r} binds; give --from and --to")
    # At the tightest itself rounding decides; a limit that is looser by the tolerance is obeyed.
    first = found.tightest + np.sign(found.loosest - found.tightest) * tolerance * abs(found.tightest)
    return np.linspace(first, found.loosest, points)


def _rows(swept: Sweep) -> Sequence[dict[str, Any]]:
    """Return a row for each point; a cost whose name is a column already is called so."""
    columns = ("limit", "status", "value", "bound", "price")
    points = zip(swept.limits, swept.statuses, swept.values, swept.bounds, swept.prices, swept.solutions, strict=False)
    return [
        dict(zip(columns, (float(at), status.name, float(value), float(bound), float(price)), strict=True))
        | {(f"cost {name}" if name in columns else name): cost for name, cost in solution.costs.items()}
        for at, status, value, bound, price, solution in points
    ]


def _code(statuses: Sequence[Status]) -> int:
    names = {status.name for status in statuses}
    if names == {"INFEASIBLE"}:
        return INFEASIBLE
    return DONE if names <= {"OPTIMAL", "INFEASIBLE"} else LIMIT
