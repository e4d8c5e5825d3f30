"""Every kind of constraint and objective, alone and mixed, against CVXPY: same verdict, same optimum, and a proof."""

from collections import Counter

import pytest

from campaign import KINDS, TERMS, cases, compare

CASES = list(cases(seeds=(0,)))
TIME_LIMIT = 30.0


def test_campaign_covers_every_kind_and_every_pair():
    assert len(CASES) == len({case.name for case in CASES}) >= 200
    groups = Counter(case.group for case in CASES)
    modes = Counter(case.mode for case in CASES)
    assert min(modes["active"], modes["inactive"], modes["infeasible"]) >= 30
    assert groups["pair"] == len(KINDS) * (len(KINDS) + 1) // 2
    assert {kind for case in CASES if case.group == "single" for kind, _ in case.kinds} == set(KINDS)
    assert {kind for case in CASES if case.group == "objective" for kind, _ in case.terms} == set(TERMS)
    assert {kind for case in CASES if case.group == "objective with constraint" for kind, _ in case.terms} == set(TERMS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_answer_as_cvxpy(case):
    built = case.build()
    answer = built.reference()
    assert answer.infeasible == (case.mode == "infeasible"), "the problem is not what it is meant to be"
    solution = built.problem.solve(time_limit=TIME_LIMIT)
    assert compare(built, solution, answer).complaints == []
