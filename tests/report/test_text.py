"""Solutions in words, and progress lines."""

import math

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
