"""Verdicts near the border of feasibility: right where the margin is clear, and never wrong."""

import numpy as np
import pytest
from scipy.optimize import linprog

from margins import CERTAIN, CLEAR, KINDS, MARGINS, SIZES, TOLERANCE, cases, draw, judge, least_cost, required, stack
from oracles import flow_matrix, inflow

CASES = list(cases(seeds=(0,)))[::2]
TIME_LIMIT = 10.0
LINEAR = [kind for kind in KINDS if draw(kind, 0).linear]
CURVED = [kind for kind in KINDS if not draw(kind, 0).linear]


def test_the_cases_cover_every_kind_and_every_margin():
    assert len(CASES) == len({case.name for case in CASES}) >= 110
    assert {case.kind for case in CASES} == set(KINDS)
    assert {case.margin for case in CASES} == set(MARGINS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_is_right(case):
    problem = case.problem
    solution = problem.solve(time_limit=TIME_LIMIT, explain=False)
    status = solution.status.name
    assert case.complaints(problem, solution) == []
    assert judge(case.margin, status) != "wrong", status
    assert status == (required(case.margin) or status)


def total_excess(border, margin):
    """The least sum of what the rows of a margin are exceeded by, each relative to its size, by HiGHS."""
    model, rows = border.world.model, border.sizes.size
    A = flow_matrix(model)
    answer = linprog(
        np.append(np.zeros(border.d.size), np.ones(rows)),
        A_ub=np.hstack([stack(border.limits, "E") / border.sizes[:, None], -np.eye(rows)]),
        b_ub=border.bounds / border.sizes + margin,
        A_eq=np.hstack([A, np.zeros((len(A), rows))]),
        b_eq=inflow(model),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert answer.status == 0, answer.message
    return answer.fun


@pytest.mark.parametrize("kind", LINEAR)
def test_margins_of_linear_limits_agree_with_highs(kind):
    border = draw(kind, 0)
    for margin in (m for m in SIZES if m >= 1e-6):
        assert total_excess(border, margin) <= 1e-9
        assert total_excess(border, -margin) >= (1 - 1e-3) * margin


@pytest.mark.parametrize("kind", LINEAR)
def test_margins_of_linear_limits_have_equal_primal_and_dual_values(kind):
    """``E x <= b + t s`` and multipliers y with s'y = 1 give ``t >= min y'E x - y'b``; d attains zero."""
    border = draw(kind, 0)
    E, y = stack(border.limits, "E"), border.multipliers
    dual = least_cost(border.world.model, y @ E)[0] - y @ border.bounds
    primal = np.max((E @ border.d - border.bounds) / border.sizes)
    assert abs(primal) <= 1e-14
    assert abs(dual) <= 1e-14 / (1 - border.world.model["discount"])


@pytest.mark.parametrize("kind", LINEAR)
def test_no_policy_counts_as_obeying_limits_that_are_clearly_infeasible(kind):
    """The tolerance is relative to the size at the policy: ``E x <= b + tolerance max(|b|, |E| x)`` has no solution."""
    border = draw(kind, 0)
    E, y = stack(border.limits, "E"), border.multipliers
    b = border.bounds - CLEAR * border.sizes
    least = least_cost(border.world.model, y @ (E - TOLERANCE * np.abs(E)))[0]
    assert least > y @ (b + TOLERANCE * np.abs(b))


@pytest.mark.parametrize("kind", CURVED)
def test_margins_of_curved_limits_agree_with_random_policies(kind):
    """No mixture of the occupancy at the border with a random one comes nearer, and some come nearly as near."""
    border = draw(kind, 0)
    assert border.uncertainty <= CERTAIN
    beyond = []
    for weight in 10.0 ** np.arange(-8, 1):
        for _ in range(20):
            d = (1 - weight) * border.d + weight * border.world.policy()
            beyond.append(np.max((stack(border.limits, "at", d) - border.bounds) / border.sizes))
    assert -border.uncertainty <= min(beyond) <= 1e-6


@pytest.mark.parametrize(
    ("margin", "status", "verdict"),
    [
        (1e-8, "INFEASIBLE", "wrong"),
        (1e-8, "OPTIMAL", "right"),
        (-1e-6, "OPTIMAL", "right"),
        (-1e-6, "INFEASIBLE", "right"),
        (-1e-5, "OPTIMAL", "wrong"),
        (-1e-5, "TIME_LIMIT", "undecided"),
        (-1e-5, "optimal inaccurate", "undecided"),
    ],
)
def test_rules(margin, status, verdict):
    assert judge(margin, status) == verdict


def test_peers_have_a_word_on_every_problem():
    for case in CASES[::20]:
        words = case.peer()
        assert [word.solver for word in words] == ["Clarabel", "HiGHS"][: 1 + case.border.linear]
        assert all(word.status for word in words)
