"""``cvxmdp solve``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from cvxmdp.cli import ranks
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
    WhenInfeasible,
    problem_of,
    read_stated,
    solve_options,
)
from cvxmdp.cli.as_json import echo_json, solution_json
from cvxmdp.cli.output import Outputs, Plot, Report, make_folder
from cvxmdp.cli.ranges import known_ranges

Out = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="A file for the solution (.npz), or a folder for solution.npz and policy.csv.",
        show_default=False,
    ),
]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="Write the policy: policy.csv.", show_default=False)
]

EXIT = {"OPTIMAL": DONE, "INFEASIBLE": INFEASIBLE}
"""Exit codes of what was decided; all else was stopped before a proof."""


def solve(
    model: Model,
    minimize: Minimize = None,
    maximize: Maximize = None,
    limit: Limits = None,
    discount: Discount = None,
    initial: Initial = None,
    tolerance: Tolerance = None,
    method: Method = None,
    time_limit: TimeLimit = None,
    when_infeasible: WhenInfeasible = None,
    out: Out = None,
    policy: PolicyFile = None,
    report: Report = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Solve a problem: a model under limits, or a problem file.

    Ctrl-C ends the solve; the best policy so far is shown and written.  Started by mpiexec, all ranks solve together.

    Exit codes: 0 optimal, 2 bad input, 3 no policy obeys, 4 stopped before a proof.
    """
    from cvxmdp.report.console import live_progress
    from cvxmdp.report.page import write_report

    world = ranks.world()
    if world is not None:
        _check_ranks({"--policy": policy, "--report": report, "--plot": plot})
    stated = read_stated(model, discount, initial, minimize, maximize, limit)
    problem = problem_of(stated)
    options = solve_options(
        stated, tolerance=tolerance, method=method, time_limit=time_limit, when_infeasible=when_infeasible
    )

    def asked() -> Outputs:
        outputs = Outputs()
        folder = out if out is not None and out.suffix.lower() != ".npz" else None
        if folder is not None:
            make_folder(folder)
        whole = out if folder is None else folder / "solution.npz"
        outputs.add("--out", whole, [".npz"], lambda found, path: found.save(path))
        if folder is not None and world is None:
            outputs.add("--out", folder / "policy.csv", [".csv"], lambda found, path: found.policy.save(path))
        outputs.add("--policy", policy, [".csv"], lambda found, path: found.policy.save(path))
        outputs.add(
            "--report", report, [".html", ".htm"], lambda found, path: write_report(found, path, problem, ranges)
        )
        outputs.add_plot(plot, lambda found, path: found.plot(path=path))
        return outputs

    outputs = asked() if world is None else world.together(asked)
    if world is not None and out is not None and (said := ranks.warning(problem.mdp.num_pairs)):
        typer.echo(said, err=True)
    with live_progress() as show:
        solution = problem.solve(callback=show, **options)
    ranged = as_json or report is not None
    ranges = known_ranges(problem, solution, options) if ranged else {}
    written = outputs.write(solution)
    if as_json:
        echo_json(solution_json(solution, ranges))
    else:
        typer.echo(str(solution) + f"\n  {written}" * bool(written))
    raise typer.Exit(EXIT.get(solution.status.name, LIMIT))


def _check_ranks(given: Mapping[str, Path | None]) -> None:
    for option, path in given.items():
        if path is not None:
            raise ValueError(
                f"{option} needs the whole answer in one place; on several ranks write it with --out answer.npz, "
                "and load it in one place"
            )
