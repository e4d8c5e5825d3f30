"""Pictures are drawn without a display and hold what they should."""

import cvxmdp as cm
from cvxmdp.report.plots import plot_grid


def test_the_convergence_plot_shows_every_recorded_pass(tmp_path):
    mdp = cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)])
    solution = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-3)]).solve()
    figure = solution.plot(tmp_path / "run.png")
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
