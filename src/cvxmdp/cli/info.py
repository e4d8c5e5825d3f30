"""``cvxmdp info``."""

from __future__ import annotations

import inspect
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from cvxmdp.cli import complete
from cvxmdp.cli.arguments import AsJson, Discount, Initial, busy, is_problem, read_stated
from cvxmdp.cli.as_json import echo_json, examination_json, solution_json

if TYPE_CHECKING:
    from cvxmdp.problem import Problem

WIDTH = 80
"""Columns of a terminal."""


def info(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A model, a problem, a solution, or a world; without it, worlds and formats are listed.",
            show_default=False,
            autocompletion=complete.models,
        ),
    ] = None,
    discount: Discount = None,
    initial: Initial = None,
    as_json: AsJson = False,
) -> None:
    """Say what is in a model, a problem or a solution.

    Without one of them, worlds and formats are listed.
    """
    import cvxmdp as cm
    from cvxmdp.io.files import archive_kind

    if model is None:
        typer.echo(_listing())
        return
    if model.lower().endswith(".npz") and archive_kind(model) == "cvxmdp solution":
        solution = cm.load_solution(model)
        if as_json:
            echo_json(solution_json(solution, {}))
        else:
            typer.echo(str(solution))
        return
    stated = read_stated(model, discount, initial)
    with busy(f"examining {model}"):
        found = stated.mdp.examine()
    if as_json:
        echo_json(examination_json(found))
        return
    if is_problem(model) and (stated.minimize is not None or stated.maximize is not None):
        typer.echo(_problem(stated.problem()))
    typer.echo(str(found))


def _problem(problem: Problem) -> str:
    """Say what is asked for."""
    from cvxmdp.names import printable

    said = [f"{problem.sense} {printable(problem.objective)}"]
    said += [f"limit {printable(limit.name)}: {limit.said()}" for limit in problem.constraints]
    return "\n".join(line for text in said for line in textwrap.wrap(text, WIDTH, subsequent_indent="  "))


def _listing() -> str:
    """List worlds with their arguments, and formats."""
    import cvxmdp as cm
    from cvxmdp.io.formats import FORMATS
    from cvxmdp.io.problem import WORLDS, world_arguments

    lines = ["Worlds, as in gridworld:size=10"]
    for name in WORLDS:
        world = getattr(cm.worlds, name)
        about = (inspect.getdoc(world) or "").partition("\n")[0]
        lines += textwrap.wrap(about, WIDTH, initial_indent=f"  {name:<12} ", subsequent_indent=" " * 15)
        arguments = ", ".join(world_arguments(name))
        lines += textwrap.wrap(arguments, WIDTH, initial_indent=" " * 15, subsequent_indent=" " * 15)
    lines.append("Files")
    for ending, form in {**{e: f.said for e, f in FORMATS.items()}, ".toml": "a problem: a model and limits"}.items():
        lines += textwrap.wrap(form, WIDTH, initial_indent=f"  {ending:<12} ", subsequent_indent=" " * 15)
    return "\n".join(lines)
