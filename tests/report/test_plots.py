"""Pictures are drawn without a display and hold what they should."""

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.report.plots import plot_grid


def test_the_convergence_plot_shows_every_recorded_pass(tmp_path):
    mdp = cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)])
    solution = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-3)]).solve()
    figure = solution.plot("convergence", tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000
    value_axes = figure.axes[-1]
    drawn = {len(line.get_xdata()) for axes in figure.axes for line in axes.get_lines()}
    assert len(solution.stats.history) in drawn
    assert value_axes.get_xlabel()


def test_the_grid_picture_has_an_arrow_for_every_action_taken():
    mdp = cm.worlds.gridworld(size=4)
    d = mdp.evaluate([3] * 16).occupancy
    axes = plot_grid(None, mdp, d, "all go right")
    assert axes.get_title() == "all go right"


def problem(*limits):
    return cm.Problem(cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)]), "time", limits)


def words(figure):
    return " ".join(text.get_text() for axes in figure.axes for text in axes.texts)


def test_the_answer_shows_levels_against_limits_and_the_grid(tmp_path):
    solution = problem(cm.Budget("collision", at_most=1e-5), cm.Budget("time", at_most=0.9)).solve()
    figure = solution.plot(path=tmp_path / "answer.png")
    assert (tmp_path / "answer.png").stat().st_size > 10_000
    limits, grid = figure.axes[:2]
    lengths = [bar.get_width() for bar in limits.patches]
    assert lengths == pytest.approx([solution.levels["collision"] / 1e-5, solution.levels["time"] / 0.9])
    assert "at its limit" in words(figure)
    assert grid.images[0].get_array().shape == (6, 6)


def test_an_infeasible_answer_also_shows_the_conflict():
    solution = problem(cm.Budget("time", at_most=0.05), cm.Budget("collision", at_most=1e-6)).solve()
    assert solution.status is cm.Status.INFEASIBLE
    figure = solution.plot()
    assert "possible" in " ".join(axes.get_title() for axes in figure.axes)
    assert "exceeded" in words(figure)


def test_an_infeasible_answer_of_one_limit_has_no_conflict_to_draw():
    solution = problem(cm.Budget("time", at_most=1e-3)).solve()
    assert len(solution.plot().axes) == 3  # limits, the grid and its colour bar


def test_other_models_show_the_most_visited_states_divided_by_action():
    mdp = cm.worlds.queue(capacity=30)
    solution = cm.Problem(mdp, "power", [cm.Budget("delay", at_most=5.0)]).solve()
    _, visited = solution.plot().axes
    names = [label.get_text() for label in visited.get_yticklabels()]
    lengths = dict.fromkeys(names, 0.0)
    for bars in visited.containers:
        for name, bar in zip(names, bars, strict=True):
            lengths[name] += bar.get_width()
    for name, length in lengths.items():
        assert length == pytest.approx(solution.visits[mdp.states.index(name)], rel=2e-3)


def test_hostile_names_are_drawn_as_they_are(tmp_path):
    names = ["_a$x^{", "b\n$\\frac$", "<c>", "_"]
    costs = {"$c_{": np.arange(4.0), "_d": np.arange(4.0)[::-1]}
    mdp = cm.MDP([np.full((4, 4), 0.25), np.eye(4)], costs, 0.9, states=names, actions=["_", "$\\x$"])
    solution = cm.Problem(mdp, "$c_{", [cm.Budget("_d", at_most=2.0, name="$_{")]).solve()
    solution.plot(path=tmp_path / "hostile.png")
    assert (tmp_path / "hostile.png").exists()


def test_a_solution_from_a_file_is_drawn_by_its_states(tmp_path):
    problem(cm.Budget("collision", at_most=1e-5)).solve().save(tmp_path / "answer.npz")
    figure = cm.load_solution(tmp_path / "answer.npz").plot()
    assert [axes.get_title() for axes in figure.axes] == ["limits", "most visited states and their actions"]


def test_without_limits_the_costs_are_drawn():
    solution = problem().solve()
    costs = solution.plot().axes[0]
    assert [bar.get_width() for bar in costs.patches] == pytest.approx(list(solution.costs.values()))


def test_another_word_is_refused_with_the_meant_one():
    with pytest.raises(ValueError, match="there is no picture called 'convergance'; did you mean 'convergence'"):
        problem().solve().plot("convergance")


def test_a_model_that_is_no_grid_is_refused_as_one():
    mdp = cm.worlds.queue(capacity=15)
    with pytest.raises(ValueError, match="no grid"):
        plot_grid(None, mdp, np.full(mdp.num_pairs, 1 / mdp.num_pairs))


def test_long_names_leave_room_for_the_drawing(tmp_path):
    """Matplotlib warns, and here raises, where no room is left."""
    rng = np.random.default_rng(0)
    name = "a very long name $" * 12
    states = [f"{s} {name}" for s in range(5)]
    mdp = cm.MDP(rng.dirichlet(np.ones(5), size=(2, 5)), {name: rng.random(5), "b" + name: rng.random((5, 2))}, 0.9,
                 states=states, actions=["x" + name, "y" + name])  # fmt: skip
    stated = cm.Problem(mdp, name, [cm.Budget("b" + name, at_most=0.5)])
    for figure in (
        stated.solve().plot(path=tmp_path / "a.png"),
        stated.sweep("b" + name, [0.4, 0.5]).plot(tmp_path / "b.png"),
    ):
        figure.draw_without_rendering()
        for axes in figure.axes:
            assert axes.get_window_extent().width > 0.3 * figure.bbox.width / len(figure.axes)


def test_a_total_is_drawn_in_its_unit_and_a_limit_of_zero_is_no_full_bar():
    solution = cm.Problem(cm.worlds.lake(size=6), "time", [cm.Budget("hole", at_most=0.05, per="episode")]).solve()
    assert f"hole: {100 * solution.levels['hole']:.4g}, at most 0.05 in total" in words(solution.plot())
    zero = cm.Problem(cm.worlds.lake(size=6), "time", [cm.Budget("hole", at_most=0.0)]).solve()
    assert zero.status is cm.Status.OPTIMAL
    assert [bar.get_width() for bar in zero.plot().axes[0].patches] == [0.0]


def test_a_sweep_is_drawn_with_every_point_and_where_no_policy_obeys():
    limits = [1e-7, 1e-6, 1e-5, 1e-4, 1e-3]
    swept = problem().sweep("collision", limits)
    axes = swept.plot().axes[0]
    assert axes.get_xscale() == "log"
    curve, points, *marks = axes.get_lines()
    np.testing.assert_array_equal(points.get_xdata(), limits)
    np.testing.assert_array_equal(points.get_ydata(), swept.values)
    assert [mark.get_xdata()[0] for mark in marks] == [limits[0]]
    assert axes.get_legend().get_texts()[0].get_text() == "no policy obeys"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("limit on collision", "least time")
    np.testing.assert_array_equal(curve.get_ydata(), swept.values)


def test_a_trade_off_is_drawn_through_its_breakpoints():
    front = problem().pareto("time", "collision", points=4)
    axes = front.plot().axes[0]
    curve, points = axes.get_lines()
    assert axes.get_xscale() == "linear"
    assert len(curve.get_xdata()) == len(front.breakpoints)
    assert len(points.get_xdata()) == 4
    assert axes.get_legend() is None


def test_what_is_maximized_and_a_total_are_named_so():
    mdp = cm.worlds.lake(size=5)
    swept = cm.Problem(mdp, maximize="time", subject_to=[cm.Budget("hole", at_most=0.1, per="episode")]).sweep(
        "hole", [0.1, 0.2]
    )
    axes = swept.plot().axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("limit on hole, in total", "most time")
