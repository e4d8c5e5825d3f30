"""``cvxmdp check``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from cvxmdp.cli.app import NAME, REFUSED
from cvxmdp.cli.arguments import (
    Answer,
    AsJson,
    Discount,
    Initial,
    Limits,
    Maximize,
    Minimize,
    Model,
    Tolerance,
    busy,
    is_problem,
    is_solution,
    problem_of,
    read_stated,
    read_taken,
    solve_options,
)
from cvxmdp.cli.as_json import echo_json, review_json
from cvxmdp.names import printable

if TYPE_CHECKING:
    from cvxmdp.problem import Problem
    from cvxmdp_verifier import Report


def check(
    model: Model,
    answer: Answer,
    minimize: Minimize = None,
    maximize: Maximize = None,
    limit: Limits = None,
    tolerance: Tolerance = None,
    discount: Discount = None,
    initial: Initial = None,
    as_json: AsJson = False,
) -> None:
    """Check a solution, or judge a policy of one's own.

    Everything a solution (.npz) says is recomputed, with code that shares nothing with the solvers; of a model alone it
    is checked as an answer to what it says was asked, of a problem as an answer to that.  A policy (.csv) is judged by
    a problem: its costs, which limits it exceeds, how far it is from the best.

    Exit codes: 0 all of it is proven, or the policy obeys; 1 something is false or not proven, or the policy exceeds a
    limit; 2 bad input.
    """
    from cvxmdp.report.console import live_progress

    known, asked = is_solution(answer), is_problem(model) or bool(minimize or maximize or limit)
    if known and not asked:
        _check_claims(model, answer, discount, initial, tolerance or 1e-6, as_json)
        return
    stated = read_stated(model, discount, initial, minimize, maximize, limit)
    problem = problem_of(stated)
    if known:
        _check_answer(problem, answer, tolerance or 1e-6, as_json)
        return
    policy = read_taken(stated.mdp, answer)
    options = solve_options(stated, tolerance=tolerance)
    with live_progress() as show:
        best = problem.solve(callback=show, **options | {"explain": False})
    found = problem.check(policy, best)
    if as_json:
        echo_json(review_json(found))
    else:
        typer.echo(str(found))
    raise typer.Exit(0 if found.obeys else REFUSED)


def _check_claims(
    model: str, answer: str, discount: float | None, initial: str | None, tolerance: float, as_json: bool
) -> None:
    """Check a solution as an answer to what it says was asked; where possible, the verifier also reads the model."""
    from cvxmdp.io.model import model_parts
    from cvxmdp_verifier import read, verify

    if model.lower().endswith(".npz") and initial is None:
        header, arrays = read(model, "model")
        header = header if discount is None else {**header, "discount": discount}
    else:
        header, arrays = model_parts(read_stated(model, discount, initial).mdp)
    claims = read(answer, "solution")
    _show(lambda: verify((header, arrays), claims, tolerance), answer, as_json)


def _check_answer(problem: Problem, answer: str, tolerance: float, as_json: bool) -> None:
    """Check a solution as an answer to a problem."""
    import cvxmdp as cm
    from cvxmdp.io.solution import check_solution

    solution = cm.load_solution(answer)
    _show(lambda: check_solution(solution, problem, tolerance), answer, as_json)


def _show(verify: Callable[[], Report], answer: str, as_json: bool) -> None:
    from cvxmdp import CertificateError
    from cvxmdp_verifier import Refused

    try:
        with busy(f"checking {answer}"):
            report = verify()
    except (Refused, CertificateError) as refused:
        print(printable(f"{NAME}: refused: {refused}"), file=sys.stderr)
        raise typer.Exit(REFUSED) from None
    if as_json:
        echo_json(asdict(report))
    else:
        typer.echo(str(report))
