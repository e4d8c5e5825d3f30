"""Pictures inside a page."""

import re

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.report.draw import grid_svg, logarithmic, trade_off_svg
from cvxmdp.report.grid import find_grid


def ticks(page):
    return re.findall(r'text-anchor="end">([^<]*)</text>', page)[:3]


def test_values_that_differ_little_have_ticks_that_differ():
    page = trade_off_svg([1.0, 2.0, 3.0], [0.0994105, 0.0994120, 0.0994168], ("limit", "time"), [0, 1, 2])
    shown = ticks(page)
    assert len(set(shown)) == 3
    assert [float(tick) for tick in shown] == pytest.approx([0.0994105, 0.09941365, 0.0994168], rel=1e-5)
    assert ticks(trade_off_svg([1.0, 2.0], [0.5, 1.0], ("limit", "time"), [0, 1])) == ["0.5", "0.75", "1"]


@pytest.mark.parametrize("values", [[2.0, 2.0], [np.nan, np.nan], [1.0, np.nan]])
def test_values_that_are_the_same_or_not_known_are_drawn(values):
    page = trade_off_svg([1.0, 2.0], values, ("limit", "time"), [0, 1])
    assert page.count('class="dot') == 2
    assert page.count('class="dot cross"') == sum(np.isnan(values))


def test_even_steps_keep_an_even_axis():
    assert logarithmic(np.geomspace(1e-6, 1.0, 9).tolist())
    assert not logarithmic(np.linspace(1e-20, 1.0, 9).tolist())
    assert not logarithmic([0.0, 1e-3, 1.0])
    assert not logarithmic([-1.0, 1.0])


def test_arrows_of_four_actions_do_not_run_into_each_other():
    """Each head is wider than its shaft only beyond the square in the middle that all shafts share."""
    mdp = cm.worlds.gridworld(size=2)
    occupancy = mdp.evaluate(np.full((4, 4), 0.25)).occupancy
    page = grid_svg(find_grid(mdp), mdp, occupancy, 1.0, 100)
    arrows = re.search(r'<path class="arrow" d="([^"]*)"', page)[1].split("M")[1:]
    assert len(arrows) == 12  # three cells of four; the goal has none
    for arrow in arrows[:4]:
        points = np.array([point.split() for point in arrow.rstrip("z").split("L")], dtype=float) - 10.0
        along = np.abs(points).max(axis=1)
        tip = along.max()
        head = points[np.abs(points).min(axis=1) > 1.0]  # the two corners of the head
        assert len(head) == 2
        assert np.all(np.abs(head).min(axis=1) <= np.abs(head).max(axis=1))  # not beyond the diagonal
        assert tip > 4


def test_start_and_goal_are_marked_without_hiding_the_start_s_arrow():
    mdp = cm.worlds.gridworld(size=4)
    page = grid_svg(find_grid(mdp), mdp, mdp.evaluate([3] * 16).occupancy, 1.0, 100)
    signs = re.findall(r'<rect class="sign" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', page)
    (x, _, width), (goal, _, goal_width) = ([float(n) for n in sign] for sign in signs)
    assert x + width < 10  # left of the middle of the first cell
    assert goal + goal_width / 2 == pytest.approx(70)  # in the middle of the last
