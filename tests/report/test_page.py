"""Pages hold the solution's numbers, escape all names, and need nothing else."""

import base64
import hashlib
import math
import re
from html import unescape
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.report.page import write_report, write_sweep_report

HOSTILE = "</script><script>alert(1)</script>\"'<!--"
VOID = {"meta", "input"}


class Page(HTMLParser):
    """A page's tags, texts and numbers, after checking that it is well formed."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open, self.tags, self.attributes, self.words, self.numbers = [], [], [], [], []
        self.feed(self.source)
        assert self.open == []
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "data":
            self.numbers.append(float(dict(attrs)["value"]))
        if tag not in VOID and self.get_starttag_text()[-2:] != "/>":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)
            self.words.append(" " if self.open[-1] in ("td", "th", "p", "h1", "h2", "h3", "li", "dt", "dd") else "")


def grid():
    return cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)])


def report(problem, tmp_path, ranges=(), **options):
    solution = problem.solve(**options)
    write_report(solution, tmp_path / "report.html", problem, dict(ranges))
    return solution, Page(tmp_path / "report.html")


def sweep_of(mdp, name, limits, minimize="time"):
    solutions = [cm.Problem(mdp, minimize, [cm.Budget(name, at_most=limit)]).solve() for limit in limits]
    return SimpleNamespace(
        name=name, limits=np.array(limits), solutions=solutions,
        prices=np.array([s.prices[name] for s in solutions]),
    )  # fmt: skip


def test_the_numbers_of_a_page_are_the_solutions(tmp_path):
    limits = [cm.Budget("collision", at_most=1e-5), cm.Budget("time", at_most=0.9)]
    solution, page = report(cm.Problem(grid(), "time", limits), tmp_path)
    wanted = {solution.value, solution.bound, solution.levels["collision"], solution.prices["collision"]}
    wanted |= set(solution.costs.values()) | {100.0 * cost for cost in solution.costs.values()}
    for number in wanted:
        assert any(math.isclose(number, shown, rel_tol=1e-12) for shown in page.numbers), number
    assert f"the least time: {solution.value:.4g} per step" in page.text
    for shown, exact in re.findall(r'<data value="([^"]*)">([^<]*)</data>', page.source):
        read = exact.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")).replace("\N{MULTIPLICATION SIGN}10", "e")
        read = re.sub(r"^(-?)10(-?\d+)$", r"\g<1>1e\2", read) if exact != read else read
        assert float(read) == pytest.approx(float(shown), rel=5.1e-3)


def test_bars_are_as_long_as_the_levels(tmp_path):
    limits = [cm.Budget("time", at_most=0.9), cm.Budget("collision", at_most=1e-5)]
    solution, page = report(cm.Problem(grid(), "time", limits), tmp_path)
    bars = re.findall(r'<b style="left:0.00%;width:([\d.]+)%"></b><i style="left:([\d.]+)%">', page.source)
    for (length, mark), name, limit in zip(bars, ["time", "collision"], [0.9, 1e-5], strict=True):
        assert float(length) / float(mark) == pytest.approx(solution.levels[name] / limit, rel=1e-3)


def test_an_infeasible_page_says_what_would_have_to_give(tmp_path):
    limits = [cm.Budget("time", at_most=0.05), cm.Budget("collision", at_most=1e-6)]
    solution, page = report(cm.Problem(grid(), "time", limits), tmp_path)
    assert solution.status is cm.Status.INFEASIBLE
    assert "Infeasible, and proven" in page.text
    give = page.text.split("What would have to give")[1].split("Where the policy goes")[0]
    for name, limit in solution.infeasibility.relax.items():
        assert name in give
        assert (limit.alone or "no change of it alone is enough") in give
    for name in solution.infeasibility.conflict:
        assert f"{name} in the conflict" in give
    assert "a proof that no policy obeys every limit" in page.text


def test_an_unfinished_page_claims_no_proof_to_the_tolerance(tmp_path):
    problem = cm.Problem(grid(), "time", [cm.Budget("collision", at_most=1e-5)])
    _, page = report(problem, tmp_path, method="splitting", max_iterations=1)
    assert "Stopped early: iteration limit" in page.text
    assert "farther apart than the relative tolerance" in page.text
    assert "Optimal" not in page.text


def test_a_page_asks_no_network_and_runs_no_script_but_its_own(tmp_path):
    _, page = report(cm.Problem(grid(), "time"), tmp_path)
    assert "script" not in page.tags
    assert "default-src 'none'" in page.source
    assert not {name for name, _ in page.attributes} & {"src", "srcset", "onload", "onerror", "onclick"}
    write_sweep_report(sweep_of(grid(), "collision", [1e-5, 1e-3]), tmp_path / "sweep.html")
    page = Page(tmp_path / "sweep.html")
    [script] = re.findall(r"<script>(.*?)</script>", page.source, flags=re.DOTALL)
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{known}'" in page.source
    assert "http" not in re.sub(r'http-equiv="[^"]*"', "", page.source)


def test_hostile_names_stay_names(tmp_path):
    P = np.full((4, 4), 0.25)
    states = [HOSTILE, f"{HOSTILE}1", "a\nb", "\x1b[2J"]
    costs = {HOSTILE: np.arange(4.0), "other" + HOSTILE: np.arange(4.0)[::-1]}
    mdp = cm.MDP([P, np.eye(4)], costs, 0.9, states=states, actions=[HOSTILE, HOSTILE + "b"])
    problem = cm.Problem(mdp, HOSTILE, [cm.Budget("other" + HOSTILE, at_most=2.0, name=HOSTILE)])
    _, page = report(problem, tmp_path)
    assert "script" not in page.tags
    assert HOSTILE in page.text
    assert "\x1b" not in page.source
    write_sweep_report(sweep_of(mdp, HOSTILE, [1.0, 2.0], "other" + HOSTILE), tmp_path / "sweep.html")
    page = Page(tmp_path / "sweep.html")
    assert page.tags.count("script") == 1
    assert f"limit on {HOSTILE}" in page.text


def test_the_code_of_a_page_solves_the_problem_again(tmp_path):
    limits = [cm.Budget("collision", at_most=1e-5), cm.Budget("time", at_most=0.9)]
    problem = cm.Problem(grid(), "time", limits)
    solution, page = report(problem, tmp_path, tolerance=1e-5)
    code = unescape(re.search(r"<pre>(.*?)</pre>", page.source, flags=re.DOTALL)[1])
    problem.mdp.save(tmp_path / "model.npz")
    names = {}
    exec(code.replace("model.npz", str(tmp_path / "model.npz")), names)
    assert names["solution"].value == solution.value
    assert names["solution"].tolerance == 1e-5


def test_what_the_code_cannot_say_is_left_open_and_named(tmp_path):
    mdp = grid()
    problem = cm.Problem(
        mdp, "time" + cm.NegativeEntropy(0.1), [cm.Entropy(at_least=1.0), cm.Budget("time", at_most=0.9)]
    )
    _, page = report(problem, tmp_path)
    code = unescape(re.search(r"<pre>(.*?)</pre>", page.source, flags=re.DOTALL)[1])
    assert "minimize=...,  # time + " in code
    assert "...,  # entropy" in code
    assert "cm.Budget('time', at_most=0.9)," in code


def test_the_grid_is_drawn_with_arrows_where_the_policy_goes(tmp_path):
    mdp = grid()
    problem = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-5)])
    solution, page = report(problem, tmp_path)
    [picture] = re.findall(r'<svg class="grid".*?</svg>', page.source)
    drawn = picture.count('class="mark"')
    assert drawn == 3
    arrows = sum(path.count("M") for path in re.findall(r'<path class="(?:arrow|faint|on)" d="([^"]*)"', picture))
    goal = mdp.state == mdp.num_states - 1
    assert arrows == np.count_nonzero((solution.occupancy > 1e-10) & ~goal)
    assert re.findall(r">([SD])</text>", picture) == ["S", "D"]
    area = sum(int(n) // 20 for n in re.findall(r"h(\d+)v20h-", picture))
    assert area == 36


def test_the_darkest_cells_are_the_most_visited(tmp_path):
    mdp = grid()
    solution, page = report(cm.Problem(mdp, "time"), tmp_path)
    shade = np.zeros((6, 6), int)
    for k, path in re.findall(r'<path class="v(\d)" d="([^"]*)"', page.source):
        for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)", path):
            shade[int(y) // 20, int(x) // 20 : (int(x) + int(width)) // 20] = int(k)
    visits = solution.visits.reshape(6, 6)
    passed = np.delete(visits.ravel(), 35)
    for k in range(1, 9):
        low = passed.max() * 10 ** (-(9 - k) / 2)
        assert np.array_equal(shade >= k, visits > low * (1 - 1e-9)) or np.min(abs(visits / low - 1)) < 1e-6


def test_a_large_grid_is_drawn_by_squares_of_cells(tmp_path):
    mdp = cm.worlds.gridworld(size=150)
    _, page = report(cm.Problem(mdp, "time"), tmp_path)
    assert "each square stands for 2 by 2 cells" in page.text
    assert len(page.source) < 300_000


def test_other_models_list_the_most_visited_states(tmp_path):
    mdp = cm.worlds.queue(capacity=60)
    solution, page = report(cm.Problem(mdp, "power", [cm.Budget("delay", at_most=5.0)]), tmp_path)
    assert "svg" not in page.tags
    listed = re.findall(r"<td>(queue \d+)</td>", page.source)
    assert len(listed) <= 20
    most = sorted(range(mdp.num_states), key=lambda s: (-solution.visits[s], s))[: len(listed)]
    assert listed == [mdp.states[s] for s in most]


def test_a_million_states_make_a_small_page(tmp_path):
    n = 1_000_000
    pairs = np.arange(n)
    P = sp.csr_array((np.ones(n), np.minimum(pairs + 1, n - 1), np.arange(n + 1)), shape=(n, n))
    mdp = cm.MDP.from_pairs(pairs, np.zeros(n, int), P, {"c": np.ones(n)}, 0.9)
    _, page = report(cm.Problem(mdp, "c"), tmp_path)
    assert len(page.source) < 50_000
    assert "1,000,000 states" in page.text


def test_one_state_without_limits_has_a_page(tmp_path):
    _, page = report(cm.Problem(cm.MDP([[[1.0]]], {"c": [2.0]}, 0.5), "c"), tmp_path)
    assert "Costs against limits" not in page.text
    assert "the least c: 2 per step" in page.text


def test_a_reward_and_a_total_are_told_in_their_words(tmp_path):
    problem = cm.Problem(grid(), maximize="time", subject_to=[cm.Budget("collision", at_most=0.05, per="episode")])
    solution, page = report(problem, tmp_path)
    assert "the largest time" in page.text
    assert "no policy that obeys is above" in page.text
    assert "at most 0.05 in total (0.0005 per step)" in page.text
    assert any(math.isclose(shown, 100 * solution.levels["collision"], rel_tol=1e-9) for shown in page.numbers)
    assert "maximize='time'" in unescape(page.source)


def test_a_user_s_own_set_has_a_place(tmp_path):
    class Half:
        def project(self, point):
            nearest = point.copy()
            nearest[:2] = point[:2].mean()
            return nearest

    _, page = report(cm.Problem(cm.worlds.gridworld(size=3), "time", [Half()]), tmp_path)
    assert "Costs against limits" in page.text
    assert "in the set" in page.text


def test_a_solution_from_a_file_needs_its_problem(tmp_path):
    problem = cm.Problem(grid(), "time", [cm.Budget("collision", at_most=1e-5)])
    problem.solve().save(tmp_path / "answer.npz")
    solution = cm.load_solution(tmp_path / "answer.npz")
    with pytest.raises(ValueError, match="give it as problem="):
        solution.report(tmp_path / "report.html")
    other = cm.Problem(cm.worlds.gridworld(size=3), "time")
    with pytest.raises(ValueError, match="give the problem that was solved"):
        solution.report(tmp_path / "report.html", other)
    assert not (tmp_path / "report.html").exists()
    write_report(solution, tmp_path / "report.html", problem, {})
    assert "Optimal, and proven" in Page(tmp_path / "report.html").text


def test_a_sweep_has_a_frame_for_each_point_with_its_numbers(tmp_path):
    sweep = sweep_of(grid(), "collision", [1e-9, 1e-5, 1e-3])
    write_sweep_report(sweep, tmp_path / "sweep.html")
    page = Page(tmp_path / "sweep.html")
    frames = re.findall(r'<section class="frame" id="p\d+".*?</section>', page.source, flags=re.DOTALL)
    assert len(frames) == 3
    for frame, solution in zip(frames, sweep.solutions, strict=True):
        assert repr(solution.levels["collision"]) in frame
        assert ("Infeasible" in frame) == (solution.status is cm.Status.INFEASIBLE)
    assert {s.status.name for s in sweep.solutions} == {"OPTIMAL", "INFEASIBLE"}
    assert "no policy obeys 1 of them" in page.text
    assert page.source.count('class="dot cross"') == 1
    rows = page.text.split("All points")[1]
    assert rows.count("infeasible") == 1
    for solution in sweep.solutions:
        assert any(math.isclose(solution.value, shown, rel_tol=1e-12) for shown in page.numbers)


def test_a_long_sweep_has_a_hundred_frames_and_counts_the_rest(tmp_path):
    one = cm.Problem(grid(), "time", [cm.Budget("collision", at_most=1e-3)]).solve()
    limits = np.linspace(1e-3, 2e-3, 250)
    sweep = SimpleNamespace(name="collision", limits=limits, solutions=[one] * 250, prices=np.zeros(250))
    write_sweep_report(sweep, tmp_path / "sweep.html")
    page = Page(tmp_path / "sweep.html")
    assert page.source.count('class="frame"') == 100
    assert "and 150 more" in page.text


def test_an_empty_sweep_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no points"):
        write_sweep_report(SimpleNamespace(solutions=[], limits=[], name="x", prices=[]), tmp_path / "sweep.html")


def test_a_point_that_was_not_decided_is_not_called_obeyed(tmp_path):
    sweep = sweep_of(grid(), "collision", [1e-9, 1e-5, 1e-3])
    stopped = cm.Problem(grid(), "time", [cm.Budget("collision", at_most=1e-5)]).solve(
        method="splitting", max_iterations=1
    )
    sweep.solutions[1] = stopped
    write_sweep_report(sweep, tmp_path / "sweep.html")
    page = Page(tmp_path / "sweep.html")
    assert "no policy obeys 1 of them; 1 were not decided; those that some policy obeys go from 0.001" in page.text
    assert page.source.count('class="dot cross"') == 2
    assert "2 of the 3 answers come with a proof" in page.text


def test_a_report_shows_the_range_of_each_price_with_the_prices_beyond(tmp_path):
    problem = cm.Problem(grid(), "time", [cm.Budget("collision", at_most=1e-4)])
    solution = problem.solve()
    solution.report(tmp_path / "report.html")
    page, within = Page(tmp_path / "report.html"), solution.price_ranges()["collision"]
    assert within.low < 1e-4 < within.high
    for number in (within.low, within.high, within.left, within.right):
        assert number in page.numbers
    assert "This price holds from" in page.text
    assert re.search(r"; below it is -\S+, above it is -\S+\.", page.text)


BEYOND = {
    "both sides": ((-2.0, 0.5, 2.0, -3.0, -1.0), "This price holds from 0.5 to 2; below it is -3, above it is -1."),
    "none obeys": (
        (-2.0, 0.5, 2.0, math.nan, 0.0),
        "This price holds from 0.5 to 2; below no policy obeys, above it is 0.",
    ),
    "no price, on": ((0.0, 0.5, math.inf, -3.0, 0.0), "The limit changes nothing from 0.5 on; below it is -3."),
    "no price, up": ((0.0, -math.inf, 3.0, 0.0, 4.0), "The limit changes nothing up to 3; above it is 4."),
    "a kink": ((-2.0, 1.0, 1.0, -3.0, -1.0), "At this limit the price changes; below it is -3, above it is -1."),
    "a curve": ((-2.0, 1.0, 1.0, -2.0, -2.0), "The price changes with the limit."),
    "elsewhere": ((-2.0, 1.5, 2.0, -3.0, -1.0), ""),
}


@pytest.mark.parametrize(("within", "words"), BEYOND.values(), ids=BEYOND)
def test_every_kind_of_range_is_a_sentence_and_one_without_the_limit_is_not_shown(tmp_path, within, words):
    mdp = cm.MDP(np.ones((2, 1, 1)), {"time": [[3.0, 0.0]], "work": [[0.0, 2.0]]}, 0.9)
    _, page = report(
        cm.Problem(mdp, "time", [cm.Budget("work", at_most=1.0)]), tmp_path, {"work": cm.PriceRange(*within)}
    )
    assert "Price: each unit by which the limit is raised changes time by -1.5." in page.text
    said = page.text.split("by -1.5.")[1].split("All costs")[0].strip()
    assert said == words


def test_the_code_of_totals_and_lower_limits_solves_the_problem_again(tmp_path):
    mdp = cm.worlds.lake(size=6)
    limits = [cm.Budget("hole", at_most=0.01, per="episode"), cm.Budget("time", at_least=0.2)]
    solution, page = report(cm.Problem(mdp, "time", limits), tmp_path)
    code = unescape(re.search(r"<pre>(.*?)</pre>", page.source, re.DOTALL)[1])
    assert "cm.Budget('hole', at_most=0.01, per=\"episode\")" in code
    assert "cm.Budget('time', at_least=0.2)" in code
    mdp.save(tmp_path / "model.npz")
    names = {}
    exec(code.replace("model.npz", str(tmp_path / "model.npz")), names)
    assert names["solution"].value == pytest.approx(solution.value, rel=1e-5)


def test_a_sweep_changes_all_costs_and_its_code_sweeps_again(tmp_path):
    problem = cm.Problem(cm.worlds.queue(10), "delay", [cm.Budget("loss", at_most=0.4)])
    sweep = problem.sweep("power", [0.05, 0.2])
    sweep.report(tmp_path / "sweep.html")
    page = Page(tmp_path / "sweep.html")
    frames = re.findall(r'<section class="frame".*?</section>', page.source, re.DOTALL)
    for frame, solution in zip(frames, sweep.solutions, strict=True):
        shown = {float(value) for value in re.findall(r'<data value="([^"]*)"', frame)}
        assert set(solution.costs.values()) <= shown
    code = unescape(re.search(r"<pre>(.*?)</pre>", page.source, re.DOTALL)[1])
    assert "cm.Budget('power'" not in code
    problem.mdp.save(tmp_path / "model.npz")
    names = {}
    exec(code.replace("model.npz", str(tmp_path / "model.npz")), names)
    np.testing.assert_allclose(names["sweep"].values, sweep.values, rtol=1e-5)


def test_a_sweep_in_totals_says_so_and_a_point_that_none_obeys_has_no_value(tmp_path):
    mdp = cm.worlds.lake(size=6)
    limits = [cm.Budget("hole", at_most=0.05, per="episode"), cm.Budget("time", at_most=0.13)]
    sweep = cm.Problem(mdp, "time", limits).sweep("hole", [0.0, 0.5])
    assert [solution.infeasibility is None for solution in sweep.solutions] == [False, True]
    sweep.report(tmp_path / "sweep.html")
    page = Page(tmp_path / "sweep.html")
    assert "Limit on hole, in total: " in page.text
    rows = re.findall(r'<tr><td class="n"><a href="#p\d">.*?</tr>', page.source)
    assert (
        f'infeasible</td><td class="n"></td><td class="n"><data value="{sweep.solutions[0].costs["hole"]!r}"' in rows[0]
    )
    assert f'<data value="{sweep.solutions[1].value!r}"' in rows[1]
    assert "per=&quot;episode&quot;" in page.source


def test_a_trade_off_is_drawn_through_its_breakpoints(tmp_path):
    front = cm.Problem(grid(), "time").pareto("time", "collision", points=3)
    front.report(tmp_path / "front.html")
    curve = re.search(r'<path class="curve" d="M([^"]*)"', (tmp_path / "front.html").read_text("utf-8"))[1]
    inside = (front.breakpoints[:, 0] > front.limits[0]) & (front.breakpoints[:, 0] < front.limits[-1])
    assert len(curve.split("L")) == 3 + np.count_nonzero(inside)
