"""What a reader is told: verdicts, limits and states, against definitions written again by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.report.facts import at_most, limit_ends, limit_facts, most_visited, readable, short, verdict_of


def read(shown):
    """Read a number as a person does."""
    turned = shown.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    if turned.lstrip("-").startswith("10") and "." not in turned and len(turned.lstrip("-")) > 2 and shown != turned:
        return math.copysign(10.0 ** int(turned.lstrip("-")[2:]), -1 if turned[0] == "-" else 1)
    factor, _, power = turned.partition("\N{MULTIPLICATION SIGN}10")
    return float(factor) * 10.0 ** int(power or 0)


@given(st.floats(min_value=-1e12, max_value=1e12, allow_subnormal=False))
def test_a_short_number_is_the_number_to_four_digits(number):
    assert read(short(number)) == pytest.approx(number, rel=5.1e-4)
    assert len(short(number)) <= 13


@given(st.floats(min_value=1e-200, max_value=1e12))
def test_what_nothing_exceeds_is_rounded_up(number):
    assert number * (1 - 1e-9) <= read(at_most(number)) <= 1.11 * number


def test_numbers_that_are_none_are_words():
    assert [short(x) for x in (math.nan, math.inf, -math.inf, 0.0)] == ["not known", "∞", "-∞", "0"]


def test_numbers_in_names_of_things_stay_as_they_are():
    assert readable("model_1e-05x at most 1e-05") == "model_1e-05x at most 10⁻⁵"


def grid():
    return cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)])


def test_a_proven_optimum_names_value_and_what_no_policy_gains():
    solution = cm.Problem(grid(), "time", [cm.Budget("collision", at_most=1e-5)]).solve()
    verdict = verdict_of(solution)
    assert verdict.tone == "good"
    assert f"the least time: {solution.value:.4g} per step" in verdict.sentences[0]
    gain = read(verdict.sentences[1].rstrip(".").rsplit(" ", 1)[1])
    assert solution.value - solution.bound <= gain <= 1e-6 * abs(solution.value) * 1.2


def test_a_reward_is_largest_and_its_bound_above():
    mdp = cm.worlds.gridworld(size=4)
    solution = cm.Problem(mdp, maximize="time").solve()
    verdict = verdict_of(solution)
    assert "the largest time" in verdict.sentences[0]
    assert "is better by more than" in verdict.sentences[1]


def test_an_infeasible_problem_has_the_sentences_of_its_text():
    solution = cm.Problem(grid(), "time", [cm.Budget("time", at_most=1e-3)]).solve()
    verdict = verdict_of(solution)
    assert verdict.tone == "bad"
    assert " ".join(verdict.sentences) in readable(" ".join(str(solution).split()))


def test_a_solve_that_was_stopped_is_open_and_says_what_is_exceeded():
    solution = cm.Problem(grid(), "time", [cm.Budget("collision", at_most=1e-5)]).solve(
        method="splitting", max_iterations=1
    )
    verdict = verdict_of(solution)
    assert verdict.tone == "open"
    assert "iteration limit" in verdict.title
    assert "exceeds 1 of 1 limit." in verdict.sentences[-1]


def test_every_kind_of_limit_knows_its_ends():
    mdp = grid()
    center = mdp.evaluate([3] * 36).occupancy
    limits = {
        (-math.inf, 0.5): cm.Budget("time", at_most=0.5),
        (0.1, math.inf): cm.Budget("time", at_least=0.1),
        (0.1, 0.5): cm.Linear(mdp.costs["time"], at_least=0.1, at_most=0.5),
        (-math.inf, 0.2): cm.NormBall(center, 0.2),
        (1.5, math.inf): cm.Entropy(at_least=1.5),
        (-math.inf, 0.7): cm.KLBall(np.full(mdp.num_pairs, 1 / mdp.num_pairs), 0.7),
        (-math.inf, 0.9): cm.RobustBudget("time", cm.Ellipsoid(0.01 * np.eye(mdp.num_pairs)), at_most=0.9),
    }
    for ends, limit in limits.items():
        [bound] = cm.Problem(mdp, "time", [limit]).constraints
        assert limit_ends(bound) == pytest.approx(ends)
    [many] = cm.Problem(mdp, "time", [cm.Bounds(upper=0.9)]).constraints
    assert limit_ends(many) == limit_ends(None) == (-math.inf, math.inf)


def test_limits_stand_where_their_levels_are():
    mdp = grid()
    limits = [cm.Budget("collision", at_most=1e-5), cm.Budget("time", at_most=0.9), cm.Bounds(upper=0.99)]
    solution = cm.Problem(mdp, "time", limits).solve()
    collision, time, bounds = limit_facts(solution)
    assert (collision.standing, time.standing, bounds.standing) == ("at its limit", "obeyed", "obeyed")
    assert collision.level == solution.levels["collision"]
    assert collision.price == solution.prices["collision"]
    assert bounds.level is None
    assert "10⁻⁵" in collision.allowed
    [exceeded] = limit_facts(cm.Problem(mdp, "time", [cm.Budget("time", at_most=1e-3)]).solve())
    assert exceeded.standing == "exceeded"
    assert exceeded.excess == exceeded.level - 1e-3


def test_a_limit_in_totals_is_told_so():
    [fact] = limit_facts(cm.Problem(grid(), "time", [cm.Budget("collision", at_most=0.01, per="episode")]).solve())
    assert fact.total == pytest.approx(100.0)
    assert fact.allowed.startswith("at most 0.01 in total")


def test_the_most_visited_states_come_first_with_their_actions():
    mdp = grid()
    solution = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-5)]).solve()
    facts, left = most_visited(solution.policy, solution.visits, 5)
    order = sorted(range(36), key=lambda s: -solution.visits[s])[:5]
    assert [fact.name for fact in facts] == [mdp.states[s] for s in order]
    assert left == sum(v > 1e-9 for v in solution.visits) - 5
    for fact, s in zip(facts, order, strict=True):
        taken = {a: p for state, a, p in solution.policy.table() if state == mdp.states[s] and p > 5e-4}
        assert dict(fact.actions) == pytest.approx(taken)


def test_one_state_is_visited_always():
    mdp = cm.MDP([[[1.0]]], {"c": [2.0]}, 0.5)
    solution = cm.Problem(mdp, "c").solve()
    facts, left = most_visited(solution.policy, solution.visits, 20)
    assert (len(facts), left, facts[0].visits) == (1, 0, pytest.approx(1.0))


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_a_policy_that_passes_the_bound_by_the_tolerance_is_not_said_to_obey(sense):
    """As with a limit of zero on what can only be made rare, whose bound is far beyond what the tolerance lets pass."""
    problem = cm.Problem(grid(), subject_to=[cm.Budget("collision", at_most=1e-5)], **{sense: "time"})
    solution = problem.solve()
    better = 9 * solution.value if sense == "minimize" else 0.1 * solution.value
    passed = replace(solution, bound=better, violations={"collision": 1e-12})
    verdict = verdict_of(passed)
    assert verdict.title == "Optimal to the tolerance"
    said = " ".join(verdict.sentences)
    assert "obeys every limit" not in said
    assert f"if there are any, are {'above' if sense == 'minimize' else 'below'} {short(better)}." in said
    assert "the bound is of policies that obey to the last digit" in " ".join(str(passed).split())
    assert verdict_of(solution).title == "Optimal, and proven"


def test_prices_that_are_dust_of_a_method_are_not_called_to_matter():
    mdp = grid()
    limits = [cm.Budget("collision", at_most=1e-4), cm.StateBounds(upper=0.95), cm.NormBall(mdp.policy([3] * 36), 1.3)]
    solution = cm.Problem(mdp, "time", limits).solve(method="path")
    budget, visits, ball = limit_facts(solution)
    assert budget.matters
    assert np.any(solution.prices["visits"])  # dust
    assert not visits.matters
    assert visits.effect == "none of 36 limits matters"
    assert not ball.matters


def test_what_is_maximized_gains():
    fact = limit_facts(cm.Problem(grid(), maximize="time", subject_to=[cm.Budget("collision", at_most=0.4)]).solve())[0]
    assert fact.effect == "leaving it out would gain nothing"


def test_a_limit_of_zero_has_no_per_cent():
    mdp = cm.MDP(np.ones((2, 1, 1)), {"time": [[3.0, 0.0]], "work": [[0.0, 2.0]]}, 0.9)
    [fact] = limit_facts(cm.Problem(mdp, "time", [cm.Budget("work", at_most=0.0)]).solve())
    assert fact.effect == f"each unit by which it is relaxed saves at most {abs(fact.price):.3g}"
    assert abs(fact.price) >= 1.5 * (1 - 1e-6)


def test_the_value_is_told_in_totals_where_a_limit_is():
    solution = cm.Problem(cm.worlds.lake(size=6), "time", [cm.Budget("hole", at_most=0.05, per="episode")]).solve()
    each, total = short(solution.value), short(100 * solution.value)
    assert f"the least time: {each} per step on average, {total} in total." in verdict_of(solution).sentences[0]
