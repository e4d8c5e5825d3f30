"""The problems of docs/real.md: a known policy obeys each, and their conic form says the same as cvxmdp."""

import json

import numpy as np
import pytest
import real
import real_page
import real_peers
import real_problems
import real_referee

import cvxmdp as cm

WORLD = "queue(20)"
DISCOUNT = 0.98


def case_of(kind, world=WORLD):
    return real_problems.make(real_problems.Name("tiny", world, DISCOUNT, kind, seed=3))


@pytest.mark.parametrize("kind", real_problems.KINDS)
def test_the_known_policy_obeys_and_the_best_without_limits_does_not(kind):
    case = case_of(kind)
    assert real_referee.judge(case, case.known)["violation"] <= 1e-9
    best = real_problems.model("tiny", WORLD, DISCOUNT).best
    assert case.terms or real_referee.judge(case, best)["violation"] > 1e-4


@pytest.mark.parametrize("kind", real_problems.KINDS)
@pytest.mark.parametrize("world", real_problems.WORLDS["tiny"])
def test_clarabel_finds_the_value_that_cvxmdp_proves(kind, world):
    case = case_of(kind, world)
    solution = case.problem.solve()
    assert solution.status is cm.Status.OPTIMAL
    ours = real_referee.judge(case, solution.occupancy)
    assert ours["objective"] == pytest.approx(solution.value, rel=1e-9, abs=1e-12)
    assert ours["violation"] <= 2e-6
    d, said = real_peers.PEERS["Clarabel"].state(real_peers.Program(case), 10.0)()
    theirs = real_referee.judge(case, d)
    assert theirs["violation"] <= 1e-4, said
    assert theirs["objective"] == pytest.approx(solution.value, abs=1e-4 * theirs["size_of_objective"])


@pytest.mark.parametrize("name", real_problems.names("tiny", 3), ids=str)
def test_every_problem_is_decided_with_a_proof(name):
    """As the suite is run, but smaller: whatever the model, the discount and the kind."""
    problem = real_problems.make(name).problem
    solution = problem.solve()
    assert solution.status in (cm.Status.OPTIMAL, cm.Status.INFEASIBLE)
    solution.certificate.check(problem)


def test_path_following_begins_inside_a_ball_that_good_policies_are_far_from():
    """From between them it could not move: a ball that the best policies miss by its radius, and a tight budget."""
    problem = real_problems.make(real_problems.Name("small", "maintenance(3, 6)", 0.999, "budget and ball", 7)).problem
    solution = problem.solve(method="path")
    assert solution.status is cm.Status.OPTIMAL
    assert solution.stats.iterations <= 40
    solution.certificate.check(problem)


@pytest.mark.parametrize("kind", ["caps", "1-norm ball", "inf-norm ball", "equal rows", "robust, vertices"])
def test_a_linear_program_says_the_same(kind):
    case = case_of(kind)
    program = real_peers.Program(case)
    assert program.flat
    theirs = real_referee.judge(case, real_peers.PEERS["HiGHS IPX"].state(program, 10.0)()[0])
    assert theirs["violation"] <= 1e-6
    assert theirs["objective"] == pytest.approx(case.problem.solve().value, abs=1e-5 * theirs["size_of_objective"])


def test_the_referee_and_the_library_agree_on_violations():
    """On the best policy without limits, which violates; the units of the library are those of the limit."""
    for kind in ("2-norm ball", "1-norm ball", "3-norm ball", "KL ball", "one budget", "robust, ellipsoid"):
        case = case_of(kind)
        best = real_problems.model("tiny", WORLD, DISCOUNT).best
        (theirs,) = (c.violation(best) for c in case.problem.constraints)
        assert (theirs > 0) == (real_referee.violation(case.mdp, case.limits[0], best) > 0)


def test_the_same_name_gives_the_same_problem():
    first, second = case_of("caps with budgets"), case_of("caps with budgets")
    assert real_problems.mark(first) == real_problems.mark(second)
    other = real_problems.make(real_problems.Name("tiny", WORLD, DISCOUNT, "caps with budgets", seed=4))
    assert real_problems.mark(first) != real_problems.mark(other)


def test_measuring_goes_on_where_it_was_stopped(tmp_path):
    names = [name for name in real_problems.names("tiny", 3) if name.kind == "one budget"]
    parts = tmp_path / "real.jsonl"
    rows = []
    real.measure(names[:1], rows, parts, ours_only=True)
    before = parts.read_text()
    assert [row["said"] for row in rows] == ["OPTIMAL"]
    _, again = real.read(tmp_path / "real.json", parts)
    assert again == rows == [json.loads(line) for line in before.splitlines()]
    real.measure(names[:1], again, parts, ours_only=True)
    assert parts.read_text() == before
    page = real_page.page(real.about(), again)
    assert "Decided by ours: **1 of 1**" in page


def test_an_answer_counts_where_it_obeys_and_costs_little_more():
    row = {"solver": "SCS", "outcome": "answer", "objective": 1.0, "size_of_objective": 1.0, "violation": 0.0}
    ours = {"solver": "ours", "outcome": "answer", "said": "OPTIMAL", "refused": "", "bound": 0.99995}
    best = real_page.reference([row, {**ours, "violation": None}])
    assert best == 0.99995
    assert real_page.within(row, best)
    assert not real_page.within({**row, "objective": 1.001}, best)
    assert not real_page.within({**row, "violation": 1e-3}, best)
    assert real_page.reference([row, {**ours, "said": "TIME_LIMIT", "violation": np.inf}]) == 1.0
