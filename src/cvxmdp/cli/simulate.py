"""``cvxmdp simulate``."""

from __future__ import annotations

from typing import Annotated

import typer

from cvxmdp.cli.arguments import Answer, AsJson, Discount, Initial, Model, busy, read_stated, read_taken
from cvxmdp.cli.as_json import echo_json, simulation_json


def simulate(
    model: Model,
    policy: Answer,
    episodes: Annotated[int, typer.Option(metavar="COUNT", help="How many runs.")] = 1000,
    seed: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="For numbers that come again.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            help="Length of a run; until almost nothing is left to count, if not given.",
            show_default=False,
        ),
    ] = None,
    discount: Discount = None,
    initial: Initial = None,
    as_json: AsJson = False,
) -> None:
    """Run a policy many times, and compare with its exact costs."""
    mdp = read_stated(model, discount, initial).mdp
    taken = read_taken(mdp, policy)
    with busy(f"running {episodes} episodes"):
        found = mdp.simulate(taken, episodes, seed, steps)
    if as_json:
        echo_json(simulation_json(found))
    else:
        typer.echo(str(found))
