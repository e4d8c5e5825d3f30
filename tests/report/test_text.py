"""Solutions in words, and progress lines."""

import math

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.report.console import progress_line


def grid(at_most):
    mdp = cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)])
    return cm.Problem(mdp, "time", [cm.Budget("collision", at_most=at_most)])


def test_an_optimal_solution_names_value_bound_gap_and_price():
    solution = grid(1e-5).solve()
    text = str(solution)
    assert text.startswith("OPTIMAL: ")
    assert f"{solution.value:.8g}" in text
    level = f"limit collision: {solution.levels['collision']:.8g} of at most 1e-05; "
    assert level + "relaxing it by one per cent (1e-07) saves" in " ".join(text.split())


def test_an_infeasible_solution_says_by_how_much_each_limit_is_exceeded():
    problem = cm.Problem(grid(1).mdp, "time", [cm.Budget("time", at_most=1e-3, name="deadline")])
    solution = problem.solve()
    level = f"{solution.levels['deadline']:.8g} of at most 0.001, exceeded by {solution.violations['deadline']:.3g}"
    assert f"limit deadline: {level}" in " ".join(str(solution).split())
    assert "No policy obeys" in str(solution)


def test_a_policy_that_exceeds_a_limit_is_not_given_a_gap():
    solution = grid(1e-5).solve(method="splitting", max_iterations=1)
    assert solution.status is cm.Status.ITERATION_LIMIT
    assert "no gap, since the policy exceeds a limit" in " ".join(str(solution).split())


def test_a_progress_line_shows_a_dash_for_what_is_not_known_yet():
    line = progress_line(cm.Progress(3, 1.25, 0.5, -math.inf, math.inf, 0.0, math.nan))
    assert line == "pass 3, 1.2 s: value 0.5, bound -, gap -, violation 0.0e+00"


def test_verbose_shows_progress_on_standard_error_only_in_a_terminal(capsys):
    seen = []
    grid(1e-3).solve(verbose=True, callback=seen.append)
    assert seen
    assert capsys.readouterr().out == ""


HOSTILE = ["\x1b[2J\n", "a" * 200, "<b>", "é, 'q' \"q\"", *(f"cost {k}" for k in range(20))]


def hostile(at_most):
    costs = {name: np.array([1.0, 2.0]) for name in HOSTILE}
    mdp = cm.MDP([np.eye(2), 1 - np.eye(2)], costs, 0.9, states=HOSTILE[:2], actions=HOSTILE[1:3])
    return cm.Problem(mdp, HOSTILE[0], [cm.Budget(name, at_most=at_most) for name in HOSTILE])


def shown(solution, problem):
    parts = [solution.certificate, solution.stats, problem.mdp.evaluate(solution.policy)]
    return parts if solution.infeasibility is None else [*parts, solution.infeasibility]


@pytest.mark.parametrize(
    "problem", [grid(1e-5), grid(0.0), hostile(1.9), hostile(0.5)], ids=["grid", "0", "1.9", "0.5"]
)
@pytest.mark.parametrize("explain", [True, False])
def test_short_reprs_are_a_few_printable_lines_of_80_columns(problem, explain):
    solution = problem.solve(explain=explain)
    for part in shown(solution, problem):
        lines = repr(part).splitlines()
        assert lines[0].startswith(type(part).__name__)
        assert len(lines) <= 12
        assert max(map(len, lines)) <= 80
        assert all(line.isprintable() for line in lines)


def test_short_reprs_have_names_numbers_and_units():
    problem = grid(1e-5)
    solution = problem.solve()
    certificate, stats, evaluation = (" ".join(repr(part).split()) for part in shown(solution, problem))
    assert (
        certificate
        == "Certificate(OPTIMAL to a relative 1e-06, from 1 policy and 1 proof; check(problem) recomputes it)"
    )
    told = f"{solution.stats.iterations} passes, {solution.stats.sweeps} sweeps over the transitions, "
    assert stats == f"Stats({solution.stats.method}; {told}{solution.stats.seconds['total']:.3g} s)"
    costs = f"time: {solution.costs['time']:.8g} collision: {solution.costs['collision']:.8g}"
    assert evaluation == f"Evaluation of 36 states and 144 pairs, costs per step on average: {costs}"


def test_the_repr_of_an_infeasibility_says_what_conflicts_and_what_would_end_it():
    limits = [cm.Budget("time", at_most=0.0995, name="deadline"), cm.Budget("collision", at_most=1e-6)]
    found = cm.Problem(grid(1).mdp, "time", limits).solve().infeasibility
    assert set(found.conflict) == {"deadline", "collision"}
    said = " ".join(repr(found).split())
    assert said.startswith(
        f"Infeasibility, proven: every policy exceeds some limit by at least {100 * found.least:.3g} %"
    )
    assert f" conflict: {' and '.join(found.conflict)} " in said
    assert (
        f"would end it: deadline {found.relax['deadline'].alone} or collision {found.relax['collision'].alone}" in said
    )
    assert "policy: chosen as nearest, exceeds 2 limits of 2" in said
    alone = cm.Problem(grid(1).mdp, "time", [cm.Budget("time", at_most=1e-3)]).solve(when_infeasible="relative")
    assert "impossible by itself: time" in repr(alone.infeasibility)
    assert "chosen as relative, exceeds 1 limit of 1" in repr(alone.infeasibility)
