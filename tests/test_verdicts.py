"""Verdicts near the border of feasibility: right where the margin is clear, and never wrong."""

import numpy as np
import pytest
from scipy.optimize import linprog

from margins import CERTAIN, KINDS, MARGINS, SIZES, cases, draw, judge, least_cost, required, stack
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
    solution = problem.solve(time_limit=TIME_LIMIT)
    status = solution.status.name
    assert case.complaints(problem, solution) == []
    assert judge(case.margin, status) != "wrong", status
    assert status == (required(case.margin) or status)


def relaxed(border, margin):
    """The linear program of a margin with nothing to minimize, as HiGHS reads it; rows are divided by their sizes."""
    model = border.world.model
    E = stack(border.limits, "E") / border.sizes[:, None]
    answer = linprog(
        np.zeros(border.d.size),
        A_ub=E,
        b_ub=border.bounds / border.sizes + margin,
        A_eq=flow_matrix(model),
        b_eq=inflow(model),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return {0: "feasible", 2: "infeasible"}.get(answer.status, answer.message)


@pytest.mark.parametrize("kind", LINEAR)
def test_margins_of_linear_limits_agree_with_highs(kind):
    border = draw(kind, 0)
    for margin in (m for m in SIZES if m >= 1e-6):
        assert relaxed(border, margin) == "feasible"
        assert relaxed(border, -margin) == "infeasible"


@pytest.mark.parametrize("kind", LINEAR)
def test_margins_of_linear_limits_have_equal_primal_and_dual_values(kind):
    """``E x <= b + t s`` and multipliers y with s'y = 1 give ``t >= min y'E x - y'b``; d attains zero."""
    border = draw(kind, 0)
    E, y = stack(border.limits, "E"), border.multipliers
    dual = least_cost(border.world.model, y @ E)[0] - y @ border.bounds
    primal = np.max((E @ border.d - border.bounds) / border.sizes)
    assert abs(primal) <= 1e-14
    assert abs(dual) <= 1e-15 / (1 - border.world.model["discount"])


@pytest.mark.parametrize("kind", LINEAR)
def test_no_policy_has_a_much_larger_size(kind):
    """Else the tolerance, which is relative to the size at the policy, might accept one at a margin of -1e-5."""
    border = draw(kind, 0)
    E = np.abs(stack(border.limits, "E"))
    assert all(-least_cost(border.world.model, -e)[0] <= 5 * s for e, s in zip(E, border.sizes, strict=True))


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
