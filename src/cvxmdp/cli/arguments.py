"""Arguments that commands share, and how they become a model, a problem and options of a solve."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvxmdp.cli import complete, ranks
from cvxmdp.engines.choose import ENGINES
from cvxmdp.names import no_such, printable

if TYPE_CHECKING:
    from cvxmdp.io.problem import Stated
    from cvxmdp.mdp import MDP
    from cvxmdp.policy import Policy
    from cvxmdp.problem import Problem

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model (.npz .umb .bin .tra .csv .parquet), a problem (.toml), or a world, as in gridworld:size=10.",
        show_default=False,
        autocompletion=complete.models,
    ),
]
Answer = Annotated[
    str,
    typer.Argument(
        metavar="ANSWER",
        help="A policy (.csv) or a solution (.npz).",
        show_default=False,
        autocompletion=complete.answers,
    ),
]
Minimize = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COST",
        help="The cost to minimize; the sum, if given more than once.",
        show_default=False,
        autocompletion=complete.costs,
    ),
]
Maximize = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COST", help="Instead: the cost to maximize.", show_default=False, autocompletion=complete.costs
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        "--subject-to",
        metavar="LIMIT",
        help='Such as "collision <= 1e-3", with <=, >= or ==, and "per episode" or "priority 2" behind it; also '
        '"entropy >= 3", "entropy(states) >= 2", "visits(STATE) <= 0.1", "distance(POLICY.csv) <= 0.1" and '
        '"kl(POLICY.csv) <= 0.1". Repeat for more.',
        show_default=False,
        autocompletion=complete.costs,
    ),
]
Discount = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER", help="The discount, for files that hold none, or instead of theirs.", show_default=False
    ),
]
Initial = Annotated[
    str | None,
    typer.Option(metavar="STATE", help="Name of the first state, instead of the model's.", show_default=False),
]
Tolerance = Annotated[
    float | None,
    typer.Option(metavar="NUMBER", help="Relative tolerance of the proof; 1e-6 if not given.", show_default=False),
]
Method = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"auto, {', '.join(ENGINES)}, or as-in-paper.",
        show_default=False,
        autocompletion=complete.methods,
    ),
]
TimeLimit = Annotated[float | None, typer.Option(metavar="SECONDS", help="Seconds.", show_default=False)]
WhenInfeasible = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Which policy where none obeys: nearest, relative or priority.",
        show_default=False,
        autocompletion=complete.compromises,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result for machines, and nothing else.")]

EXPECTED = '"collision <= 1e-3" (or >=, ==), "collision <= 0.05 per episode", or "collision <= 1e-3 priority 2"'
_LIMIT = re.compile(
    r"\s*(?P<what>.+?)\s*(?P<sign><=|>=|==)\s*(?P<bound>\S+?)"
    r"(?:\s+per\s+(?P<per>step|episode))?(?:\s*,?\s+priority\s+(?P<priority>\d+))?\s*"
)
_FUNCTION = re.compile(r"(?P<name>[a-z]+)(?:\s*\((?P<of>.*)\))?")


def is_problem(text: str) -> bool:
    """Whether an argument names a problem file."""
    return text.lower().endswith(".toml")


def read_stated(
    model: str,
    discount: float | None = None,
    initial: str | None = None,
    minimize: Sequence[str] | None = None,
    maximize: Sequence[str] | None = None,
    limits: Sequence[str] | None = None,
) -> Stated:
    """Read a model or a problem; what is given beside it replaces the file's objective and adds to its limits.

    On several ranks each reads its part of a model's file, or makes its part of a world.  A problem's file is read
    whole on each, since costs and policies in it are of the whole model; so is a model with a limit that names a file.
    """
    from cvxmdp.io.problem import Stated, load_model, read_problem

    world = ranks.world()
    in_parts = not is_problem(model) and not any(map(_names_file, limits or []))

    def stating() -> Stated:
        with busy(f"reading {model}"):
            if is_problem(model):
                stated = read_problem(model, discount, initial)
            else:
                stated = Stated(load_model(model, discount, initial, world if in_parts else None))
        if minimize or maximize:
            stated.minimize, stated.maximize = list(minimize or []) or None, list(maximize or []) or None
        stated.limits += [parse_limit(stated.mdp, text) for text in limits or []]
        return stated

    if world is None or in_parts:
        return stating()
    from cvxmdp.ranks.model import scatter

    stated = world.together(stating)
    stated.mdp = scatter(stated.mdp, world)
    return stated


def _names_file(limit: str) -> bool:
    return limit.lstrip().startswith(("distance(", "kl("))


def problem_of(stated: Stated) -> Problem:
    """Return the problem that was stated; say what is missing as a command line has it."""
    if stated.minimize is None and stated.maximize is None:
        costs = ", ".join(map(repr, stated.mdp.costs))
        raise ValueError(f"say what to minimize or maximize, as in --minimize {next(iter(stated.mdp.costs))}; the "
                         f"model has {costs}")  # fmt: skip
    if stated.minimize is not None and stated.maximize is not None:
        raise ValueError("give --minimize or --maximize, one of them")
    return stated.problem()


def parse_limit(mdp: MDP, text: str) -> Any:
    """Read a limit as in ``"collision <= 1e-3"``: on a cost, or on an entropy, a distance or visits.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.cli.arguments import parse_limit
    >>> parse_limit(cm.worlds.gridworld(size=4), "collision <= 0.05 per episode")
    Budget('collision', at_most=0.05, per='episode')
    """
    import cvxmdp as cm

    found = _LIMIT.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        bound = float(found["bound"])
    except ValueError:
        raise ValueError(f"the limit {text!r} is not of the form {EXPECTED}") from None
    what, sign, priority = found["what"], found["sign"], int(found["priority"] or 1)
    if what in mdp.costs:
        sides = {"<=": ("at_most",), ">=": ("at_least",), "==": ("at_most", "at_least")}[sign]
        given: dict[str, Any] = dict.fromkeys(sides, bound)
        return cm.Budget(what, **given, per=found["per"] or "step", priority=priority)
    other = _FUNCTION.fullmatch(what)
    if other is None or other["name"] not in _OTHERS:
        raise ValueError(no_such("cost", what, mdp.costs))
    if found["per"] is not None:
        raise ValueError(f'the limit {text!r}: "per {found["per"]}" goes with a cost, not with {other["name"]}')
    limit = _other(mdp, text, other["name"], other["of"], sign, bound, priority)
    limit.bind(mdp)
    return limit


_OTHERS = {"entropy": (">=",), "distance": ("<=",), "kl": ("<=",), "visits": ("<=", ">=")}
"""Limits that are not on a cost, with their signs."""


def _other(mdp: MDP, text: str, name: str, of: str | None, sign: str, bound: float, priority: int) -> Any:
    import cvxmdp as cm
    from cvxmdp.io.problem import read_occupancy

    if sign not in _OTHERS[name]:
        raise ValueError(f"the limit {text!r}: {name} goes with {' or '.join(_OTHERS[name])}")
    if name == "entropy":
        return cm.Entropy(bound, of or "pairs", name="entropy" if of is None else f"entropy({of})", priority=priority)
    if not of:
        example = "visits(STATE)" if name == "visits" else f"{name}(policy.csv)"
        raise ValueError(f"the limit {text!r}: {name} of what? as in {example} {sign} {bound:g}")
    said = f"{name}({of})"
    if name == "visits":
        side = {of: bound}
        lower, upper = (None, side) if sign == "<=" else (side, None)
        return cm.StateBounds(lower, upper, name=said, priority=priority)
    kind = cm.NormBall if name == "distance" else cm.KLBall
    return kind(read_occupancy(mdp, of), bound, name=said, priority=priority)


def solve_options(stated: Stated, **given: Any) -> dict[str, Any]:
    """Return options of a solve: those of the file, and those of the command line that were given."""
    stated.options |= {name: value for name, value in given.items() if value is not None}
    return stated.solve_options()


def read_taken(mdp: MDP, answer: str) -> Policy:
    """Read a policy from a table, or from a solution."""
    import cvxmdp as cm
    from cvxmdp.io.policy import read_policy

    with busy(f"reading {answer}"):
        if not is_solution(answer):
            return read_policy(mdp, answer)
        found = cm.load_solution(answer).policy
        try:
            return mdp.policy(found)
        except ValueError as error:
            raise ValueError(f"{answer!r}: {error}") from None


def is_solution(answer: str) -> bool:
    """Whether an argument names a solution, or else a policy."""
    if not answer.lower().endswith((".csv", ".npz")):
        raise ValueError(f"{answer!r} is neither a policy (.csv) nor a solution (.npz)")
    return answer.lower().endswith(".npz")


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show what is done while the block runs."""
    from cvxmdp import phases
    from cvxmdp.report.console import live_progress

    with live_progress():
        phases.begin(printable(what))
        yield
