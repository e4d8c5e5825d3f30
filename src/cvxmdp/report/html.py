"""Models, problems, solutions and policies as a notebook shows them: one screen, details folded, no script.

Styles stand in the elements themselves and take their colours from the notebook, so that they fit its light or dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from cvxmdp.names import brief, printable
from cvxmdp.report.facts import (
    LONGEST,
    StateFact,
    limit_facts,
    minimized,
    most_visited,
    readable,
    short,
    states_facts,
    verdict_of,
)

if TYPE_CHECKING:
    from cvxmdp.examine import Examination
    from cvxmdp.mdp import MDP
    from cvxmdp.policy import Policy
    from cvxmdp.problem import Problem
    from cvxmdp.solution import Solution

ROWS = 20
"""Rows of the longest table: one screen."""
MOST_ACTIONS = 4
"""Actions listed for a state; the others are counted."""

BOX = "border:1px solid rgba(128,128,128,.45);border-radius:6px;padding:.6em .9em;max-width:60em;overflow-x:auto"
TABLE = "border-collapse:collapse;font-size:inherit;margin:.3em 0"
CELL = "padding:.15em .8em .15em 0;text-align:left;vertical-align:top"
NUMBER = "padding:.15em .8em .15em 0;text-align:right;vertical-align:top;font-variant-numeric:tabular-nums"
MUTED = "opacity:.7"
TONES = {"good": "#2e9e5b", "bad": "#e0663a", "open": "#b8860b"}
"""Of the line beside a verdict; seen on white and on black."""


def text(name: str) -> str:
    """Write a name in HTML: escaped, what does not print as escapes, and cut where it is very long.

    Examples
    --------
    >>> text("<b>"), text("a" * 100)[-3:]
    ('&lt;b&gt;', 'aa…')
    """
    return html.escape(brief(name, LONGEST))


def number(value: float, digits: int = 4) -> str:
    """Write a number in HTML for reading, with all its digits for machines.

    Examples
    --------
    >>> number(0.123456789)
    '<data value="0.123456789">0.1235</data>'
    """
    return f'<data value="{float(value)!r}">{short(value, digits)}</data>'


def amount(value: float, total: float | None, digits: int = 4) -> str:
    """Write a number per step; where a limit was stated in totals, the total first.

    Examples
    --------
    >>> amount(0.001, 100.0)
    '<data value="0.1">0.1</data> in total (<data value="0.001">0.001</data> per step)'
    """
    step = number(value, digits)
    return step if total is None else f"{number(value * total, digits)} in total ({step} per step)"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """Return a table of cells in HTML; columns that begin with ``#`` are of numbers; ``left`` rows are counted only."""
    styles = [NUMBER if column.startswith("#") else CELL for column in columns]
    head = "".join(
        f'<th style="{style};font-weight:600">{html.escape(column.removeprefix("#"))}</th>'
        for style, column in zip(styles, columns, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f'<td style="{style}">{cell}</td>' for style, cell in zip(styles, row, strict=True)) + "</tr>"
        for row in rows
    )
    more = f'<div style="{MUTED}">and {left:,} more</div>' if left else ""
    return f'<table style="{TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def folded(summary: str, content: str) -> str:
    """Return content that shows once its summary is clicked."""
    return f'<details style="margin:.3em 0"><summary style="cursor:pointer">{summary}</summary>{content}</details>'


def actions_text(fact: StateFact) -> str:
    """Write the actions of a state with their probabilities."""
    only = len(fact.actions) == 1
    shown = [text(name) + ("" if only else f" ({100 * share:.3g} %)") for name, share in fact.actions]
    more = [f"{len(shown) - MOST_ACTIONS} more"] if len(shown) > MOST_ACTIONS else []
    return ", ".join(shown[:MOST_ACTIONS] + more)


def mdp_html(mdp: MDP) -> str:
    """Return a model for a notebook.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.html import mdp_html
    >>> "16 states" in mdp_html(cm.worlds.gridworld(size=4))
    True
    """
    return _box(f"{_title('MDP', model_facts(mdp))}{_costs(mdp)}{_starts(mdp)}{_names(mdp)}{_labels(mdp)}")


def problem_html(problem: Problem) -> str:
    """Return a problem for a notebook.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.html import problem_html
    >>> problem = cm.Problem(cm.worlds.gridworld(size=4), "time", [cm.Budget("collision", at_most=0.01)])
    >>> "at most 0.01" in problem_html(problem)
    True
    """
    asked = problem.asked()
    limits = [(text(limit.name), text(readable(limit.said()))) for limit in problem.constraints]
    aim = f"{asked.sense} {text(asked.objective)}"
    shown = table(["subject to", ""], limits[:ROWS], len(limits) - len(limits[:ROWS])) if limits else "without limits"
    facts = model_facts(problem.mdp)
    model = folded(f"the model: {facts}", _costs(problem.mdp) + _starts(problem.mdp))
    return _box(f"{_title('Problem', aim)}{shown}{model}")


def solution_html(solution: Solution) -> str:
    """Return a solution for a notebook.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.html import solution_html
    >>> problem = cm.Problem(cm.worlds.gridworld(size=4), "time", [cm.Budget("collision", at_most=0.01)])
    >>> "Optimal, and proven" in solution_html(problem.solve())
    True
    """
    verdict = verdict_of(solution)
    words = html.escape(printable(" ".join(verdict.sentences)))
    line = f"border-left:4px solid {TONES[verdict.tone]};padding-left:.7em"
    head = f'<div style="{line}"><b>{html.escape(verdict.title)}</b><div>{words}</div></div>'
    stats = solution.stats
    method = f"<div>{text(stats.method)}; {stats.iterations} passes, {stats.seconds['total']:.2f} s</div>"
    return _box(head + _values(solution) + _limits(solution) + _visited(solution) + folded("how it was found", method))


def policy_html(policy: Policy) -> str:
    """Return a policy for a notebook.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.html import policy_html
    >>> "down" in policy_html(cm.worlds.gridworld(size=2).policy([3, 1, 3, 3]))
    True
    """
    count = len(policy.states)
    mixed = np.unique(policy.state[(policy.probabilities > 0) & (policy.probabilities < 1)])
    rows = [(text(fact.name), actions_text(fact)) for fact in states_facts(policy, np.arange(min(count, ROWS)))]
    shown = table(["state", "actions"], rows, count - len(rows))
    aside = ""
    if mixed.size and count > ROWS:
        rows = [(text(fact.name), actions_text(fact)) for fact in states_facts(policy, mixed[:ROWS])]
        aside = folded("where it is randomized", table(["state", "actions"], rows, mixed.size - len(rows)))
    title = _title("Policy", f"{_count(count, 'state')}, {mixed.size:,} of them randomized")
    return _box(f"{title}{folded('actions by state', shown)}{aside}")


def examination_html(found: Examination) -> str:
    """Return what a model is like for a notebook.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> from cvxmdp.report.html import examination_html
    >>> "never left: r3c3" in examination_html(cm.worlds.gridworld(size=4).examine())
    True
    """
    sizes, *facts = (html.escape(sentence) for sentence in found.sentences())
    names = list(found.costs)
    rows = []
    for name in names[:ROWS]:
        cost = found.costs[name]
        ends = ["not looked for"] * 2
        if cost.range is not None:
            low, high = cost.range
            step, total = (f"{number(low * by)} to {number(high * by)}" for by in (1.0, found.steps))
            ends = [step, total]
        rows.append((text(name), number(cost.least), number(cost.largest), f"{cost.pairs:,}", *ends))
    columns = ["cost", "#least", "#largest", "#pairs with it", "#per step, by the policy", "#in total, discounted"]
    remarks = "".join(f"<div>{html.escape(remark)}</div>" for remark in found.remarks())
    listed = "".join(f"<div>{fact}</div>" for fact in facts)
    solve = f"<div>{html.escape(found.solve_words())}</div>"
    return _box(f"{_title('Examination', sizes)}{listed}{table(columns, rows, len(names) - len(rows))}{remarks}{solve}")


def model_facts(mdp: MDP) -> str:
    """Say how large a model is and how far it looks ahead."""
    entries = mdp.transitions.nnz if sp.issparse(mdp.transitions) else int(np.count_nonzero(mdp.transitions))
    sizes = f"{_count(mdp.num_states, 'state')}, {_count(mdp.num_pairs, 'pair')}, {_count(entries, 'transition')}"
    return f"{sizes}, discount {mdp.discount:.12g}"


def _box(content: str) -> str:
    return f'<div style="{BOX}">{content}</div>'


def _title(kind: str, words: str) -> str:
    return f"<div><b>{kind}</b> {words}</div>"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _cut(names: Iterable[str], count: int) -> str:
    """Write the first of many names, and how many more there are."""
    shown = [text(name) for _, name in zip(range(ROWS), names, strict=False)]
    return ", ".join(shown) + (f" and {count - len(shown):,} more" if count > len(shown) else "")


def _costs(mdp: MDP) -> str:
    names = list(mdp.costs)
    rows = [
        (text(name), number(mdp.costs[name].min()), number(mdp.costs[name].max()), f"{np.count_nonzero(cost):,}")
        for name, cost in ((name, mdp.costs[name]) for name in names[:ROWS])
    ]
    return table(["cost", "#least", "#largest", "#pairs with it"], rows, len(names) - len(rows))


def _starts(mdp: MDP) -> str:
    where = np.flatnonzero(mdp.initial)
    likely = where[np.argsort(-mdp.initial[where], kind="stable")[:ROWS]].tolist()
    if len(likely) == 1:
        return f"<div>starts in {text(mdp.states[likely[0]])}</div>"
    rows = [(text(mdp.states[s]), number(mdp.initial[s])) for s in likely]
    summary = f"starts in one of {_count(where.size, 'state')}"
    return folded(summary, table(["state", "#probability"], rows, where.size - len(rows)))


def _names(mdp: MDP) -> str:
    states, actions = _cut(mdp.states, mdp.num_states), _cut(mdp.actions, len(mdp.actions))
    return folded("names", f"<div><b>states</b> {states}</div><div><b>actions</b> {actions}</div>")


def _labels(mdp: MDP) -> str:
    if not mdp.labels:
        return ""
    names = list(mdp.labels)
    rows = [(text(name), f"{mdp.labels[name].size:,}") for name in names[:ROWS]]
    return folded("labels", table(["label", "#states"], rows, len(names) - len(rows)))


def _values(solution: Solution) -> str:
    """Write what was asked for, its bound, and the costs."""
    steps = 1 / (1 - solution.asked.discount) if 0 < solution.asked.discount < 1 else math.nan
    best = "proven: none is below" if minimized(solution) else "proven: none is above"
    words = f"{text(solution.asked.objective)} <b>{number(solution.value, 6)}</b>"
    if math.isfinite(solution.bound):
        words += f", {best} {number(solution.bound, 6)}"
    names = list(solution.costs)
    rows = [
        (text(name), number(solution.costs[name], 6), number(solution.costs[name] * steps, 6)) for name in names[:ROWS]
    ]
    costs = table(["cost", "#per step, on average", "#in total, discounted"], rows, len(names) - len(rows))
    return f'<div style="margin:.3em 0">{words}</div>{folded("costs", costs)}'


def _limits(solution: Solution) -> str:
    facts = limit_facts(solution)
    if not facts:
        return ""
    rows = [
        (
            text(fact.name),
            text(fact.allowed),
            "" if fact.level is None else amount(fact.level, fact.total),
            fact.standing + (f" by {amount(fact.excess, fact.total, 3)}" if fact.standing == "exceeded" else ""),
            html.escape(fact.effect),
        )
        for fact in facts[:ROWS]
    ]
    return table(["limit", "allowed", "#the policy", "", ""], rows, len(facts) - len(rows))


def _visited(solution: Solution) -> str:
    facts, left = most_visited(solution.policy, solution.visits, ROWS)
    rows = [(text(fact.name), f"{100 * fact.visits:.3g} %", actions_text(fact)) for fact in facts]
    return folded("the policy where it is most", table(["state", "#visits", "actions"], rows, left))
