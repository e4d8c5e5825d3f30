"""The command line: arguments -> solve -> report.  No numerics."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cvxmdp.engines.choose import ENGINES
from cvxmdp.names import printable, spreadsheet_safe

if TYPE_CHECKING:
    from cvxmdp.mdp import MDP
    from cvxmdp.problem import Problem
    from cvxmdp.solution import Solution

EXIT = {"OPTIMAL": 0, "INFEASIBLE": 3}
"""Exit codes of what was decided."""
REFUSED, BAD_INPUT, LIMIT = 1, 2, 4
"""Exit codes of what was not: a claim is false, the input is bad, a limit was reached."""
SOLUTION, POLICY = "solution.npz", "policy.csv"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Plan in Markov decision processes under convex constraints, with proofs.",
)


@app.callback()
def _root() -> None:
    """Keep ``solve`` and ``demo`` as commands."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the solutions.")] = Path("cvxmdp-demo"),
) -> None:
    """Solve the paper's grid world under four pairs of limits: a table here, a picture in a file."""
    from cvxmdp.report.demo import show_demo

    if not show_demo(out, typer.echo):
        raise typer.Exit(LIMIT)


@app.command()
def solve(
    model: Annotated[Path, typer.Argument(help="A model written by mdp.save(path), in .npz form.", show_default=False)],
    minimize: Annotated[str, typer.Option(help="Name of the cost to minimize.", show_default=False)],
    subject_to: Annotated[
        list[str] | None,
        typer.Option(
            help='A limit such as "collision <= 1e-3" (also >= and ==, and "priority 2" behind it). Repeat for more.',
            show_default=False,
        ),
    ] = None,
    discount: Annotated[float | None, typer.Option(help="Replace the model's discount.", show_default=False)] = None,
    tolerance: Annotated[float, typer.Option(help="Relative tolerance of the proof.")] = 1e-6,
    method: Annotated[str, typer.Option(help=f"auto, {', '.join(ENGINES)}, or as-in-paper.")] = "auto",
    time_limit: Annotated[float | None, typer.Option(help="Seconds.", show_default=False)] = None,
    when_infeasible: Annotated[
        str, typer.Option(help="Which policy where none obeys: nearest, relative or priority.")
    ] = "nearest",
    out: Annotated[
        Path | None, typer.Option(help="Folder for solution.npz and policy.csv.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Solve a model under limits on its costs.

    Exit codes: 0 optimal, 2 bad input, 3 infeasible, 4 a limit was reached or Ctrl-C pressed.
    """
    import cvxmdp as cm
    from cvxmdp.report.console import live_progress

    mdp = cm.load(model)
    if discount is not None:
        mdp = mdp.with_discount(discount)
    problem = cm.Problem(mdp, minimize=minimize, subject_to=[parse_limit(mdp, text) for text in subject_to or []])
    engine = cm.Splitting.as_in_paper() if method == "as-in-paper" else method
    if out is not None:
        _prepare(out)
    with live_progress() as show:
        solution = problem.solve(tolerance, engine, time_limit, callback=show, when_infeasible=when_infeasible)
    if out is not None:
        _write(solution, out)
    typer.echo(json.dumps(_finite(_as_json(problem, solution)), allow_nan=False) if as_json else str(solution))
    if out is not None and not as_json:
        typer.echo(printable(f"  written to {out / SOLUTION} and {out / POLICY}"))
    raise typer.Exit(EXIT.get(solution.status.name, LIMIT))


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="The model, in .npz form.", show_default=False)],
    solution: Annotated[Path, typer.Argument(help="A solution of it, in .npz form.", show_default=False)],
    tolerance: Annotated[float, typer.Option(help="The loosest relative tolerance that is accepted.")] = 1e-6,
    discount: Annotated[float | None, typer.Option(help="As it was given to solve.", show_default=False)] = None,
) -> None:
    """Recompute everything a saved solution says, with code that shares nothing with the solvers.

    Exit codes: 0 all of it is proven, 1 something is false or not proven, 2 bad input.
    """
    from cvxmdp_verifier import Refused, read, verify

    header, arrays = read(model, "model")
    if discount is not None:
        header = {**header, "discount": discount}
    claims = read(solution, "solution")
    try:
        report = verify((header, arrays), claims, tolerance)
    except Refused as refused:
        print(printable(f"cvxmdp: refused: {refused}"), file=sys.stderr)
        raise typer.Exit(REFUSED) from None
    typer.echo(str(report))


class Experiment(str, Enum):
    """What ``cvxmdp paper`` can repeat."""

    table1 = "table1"
    table2 = "table2"
    gridworld = "gridworld"
    inexact = "inexact"


@app.command()
def paper(
    experiment: Annotated[Experiment, typer.Argument(help="Which one.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="A reduced form: the smallest models, one seed.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for numbers and pictures; benchmarks/results if not given.")
    ] = None,
) -> None:
    """Repeat an experiment of the paper, in a clone of the project with its extra "bench" installed.

    The tables take hours and go on where they were stopped. Nothing else should run meanwhile.
    """
    folder = next((up / "benchmarks" for up in (Path.cwd(), *Path.cwd().parents) if _is_clone(up)), None)
    if folder is None:
        raise ValueError('"cvxmdp paper" needs the folder benchmarks/ of the project; run it in a clone of the project')
    sys.path.insert(0, str(folder))
    # A quick run must not mix its numbers with those of a full one.
    default = Path("cvxmdp-paper-quick") if quick else folder / "results"
    importlib.import_module("paper").run(experiment.value, default if out is None else out, quick, typer.echo)


def _is_clone(folder: Path) -> bool:
    return (folder / "benchmarks" / "paper.py").is_file() and (folder / "src" / "cvxmdp").is_dir()


def parse_limit(mdp: MDP, text: str) -> Any:
    """Read ``"name <= number"``, with ``<=``, ``>=`` or ``==``, and ``"priority 2"`` behind it where it has one."""
    import cvxmdp as cm

    found = re.fullmatch(r"\s*(.+?)\s*(<=|>=|==)\s*(\S+?)(?:\s*,?\s+priority\s+(\d+))?\s*", text)
    try:
        if found is None:
            raise ValueError
        name, sign, bound, priority = found[1], found[2], float(found[3]), int(found[4] or 1)
    except ValueError:
        raise ValueError(
            f'the limit {text!r} is not of the form "collision <= 1e-3" (or >=, ==), or "collision <= 1e-3 priority 2"'
        ) from None
    side: dict[str, Any] = {{"<=": "at_most", ">=": "at_least", "==": "equal"}[sign]: bound}
    return cm.Linear(mdp.cost(name), **side, name=name, priority=priority)


def _prepare(out: Path) -> None:
    """Find out before a long solve whether its results can be written."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass
    for name in (SOLUTION, POLICY):
        if (out / name).is_dir():
            raise ValueError(f"{str(out / name)!r} is a folder; --out must be a folder in which that can be a file")


def _write(solution: Solution, out: Path) -> None:
    import csv
    import io

    from cvxmdp.io.files import write_atomically

    solution.save(out / SOLUTION)
    with write_atomically(out / POLICY) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(["state", "action", "probability"])
        writer.writerows(
            [spreadsheet_safe(state), spreadsheet_safe(action), probability]
            for state, action, probability in solution.policy.table()
        )
        text.detach()


def _as_json(problem: Problem, solution: Solution) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else value

    result: dict[str, Any] = {
        "status": solution.status.name,
        "message": solution.status.value,
        "minimize": problem.objective,
        "value": solution.value,
        "bound": solution.bound,
        "gap": solution.gap,
        "costs": dict(solution.costs),
        "errors": dict(solution.errors),
        "levels": {name: plain(level) for name, level in solution.levels.items()},
        "violations": dict(solution.violations),
        "prices": {name: plain(price) for name, price in solution.prices.items()},
        "method": solution.stats.method,
        "iterations": solution.stats.iterations,
        "seconds": dict(solution.stats.seconds),
    }
    if (found := solution.infeasibility) is not None:
        result["infeasibility"] = {
            "compromise": found.compromise,
            "margin": found.margin,
            "least_violation": found.least,
            "distance": list(found.distance),
            "cheapest": found.cheapest,
            "conflict": list(found.conflict),
            "irreducible": found.irreducible,
            "impossible": dict(found.impossible),
            "relax": {
                name: {
                    "exceeded": limit.exceeded,
                    "amount": limit.amount,
                    "least": limit.least,
                    "alone": limit.alone,
                    "innocent": limit.innocent,
                }
                for name, limit in found.relax.items()
            },
        }
    return result


def _finite(value: Any) -> Any:
    """Return what JSON can hold: null in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> NoReturn:
    """Run the command line: bad input is one sentence on standard error and exit code 2."""
    try:
        app(standalone_mode=True)
    except ValueError as error:
        print(printable(f"cvxmdp: {error}"), file=sys.stderr)
        sys.exit(BAD_INPUT)
    except OSError as error:
        print(printable(f"cvxmdp: {error.strerror or error}: {error.filename}"), file=sys.stderr)
        sys.exit(BAD_INPUT)
    sys.exit(0)
