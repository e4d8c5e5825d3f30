"""What notebooks show: escaped, cut to a screen, and quick whatever the size of the model."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script>",
    "a'b&amp;",
    "\x1b[2J\n",
    "é" * 500,
]


class Reader(HTMLParser):
    """Checks that tags are closed in their order, and counts them."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def hostile():
    P = np.full((6, 6), 1 / 6)
    costs = {name: np.arange(6.0) for name in HOSTILE}
    mdp = cm.MDP([P, np.eye(6)], costs, 0.9, states=HOSTILE, actions=HOSTILE, labels={HOSTILE[0]: [0, 1]})
    limits = [cm.Budget(HOSTILE[1], at_most=2.0, name=name) for name in HOSTILE]
    return cm.Problem(mdp, HOSTILE[0], limits)


@pytest.mark.parametrize("what", ["mdp", "problem", "solution", "policy"])
def test_no_name_becomes_markup(what):
    problem = hostile()
    solution = problem.solve()
    page = {"mdp": problem.mdp, "problem": problem, "solution": solution, "policy": solution.policy}[what]._repr_html_()
    reader = Reader(page)
    assert set(reader.tags) <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "data"}
    assert "\x1b" not in page
    assert "<script>alert(1)</script>" in "".join(reader.words)
    assert "é" * 100 not in page


def test_a_solution_shows_its_numbers():
    mdp = cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)])
    solution = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-5)]).solve()
    shown = {float(value) for value in re.findall(r'<data value="([^"]*)"', solution._repr_html_())}
    assert {solution.value, solution.bound, solution.levels["collision"], *solution.costs.values()} <= shown


def test_an_infeasible_and_an_unfinished_solution_say_so():
    mdp = cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)])
    page = cm.Problem(mdp, "time", [cm.Budget("time", at_most=1e-3)]).solve()._repr_html_()
    assert "Infeasible, and proven" in page
    assert "exceeded by" in page
    problem = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-5)])
    assert "Stopped early" in problem.solve(method="splitting", max_iterations=1)._repr_html_()


def test_one_state_and_one_action_are_in_the_singular():
    mdp = cm.MDP([[[1.0]]], {"c": [2.0]}, 0.5)
    assert "1 state, 1 pair, 1 transition," in mdp._repr_html_()
    assert "1 state," in mdp.policy([0])._repr_html_()
    assert "without limits" in cm.Problem(mdp, "c")._repr_html_()


class Watched(tuple):
    """Names that count how often they are looked at."""

    looked = 0

    def __getitem__(self, index):
        Watched.looked += 1
        return super().__getitem__(index)

    def __iter__(self):
        for name in super().__iter__():
            Watched.looked += 1
            yield name


def test_of_a_million_states_only_some_are_looked_at():
    n = 1_000_000
    pairs = np.arange(n)
    P = sp.csr_array((np.ones(n), np.roll(pairs, -1), np.arange(n + 1)), shape=(n, n))
    mdp = cm.MDP.from_pairs(pairs, np.zeros(n, int), P, {"c": np.ones(n)}, 0.9)
    object.__setattr__(mdp, "states", Watched(map(str, range(n))))
    policy = mdp.policy(np.ones(n))
    Watched.looked = 0
    pages = [mdp._repr_html_(), policy._repr_html_(), cm.Problem(mdp, "c")._repr_html_()]
    assert Watched.looked <= 200
    for page in pages:
        assert len(page) < 20_000
        assert page.count("<tr>") <= 50
    assert "999,980 more" in pages[0]


def test_a_solution_with_many_limits_and_states_fits_a_screen():
    mdp = cm.worlds.garnet(states=200, actions=3, branching=0.05, seed=0)
    name = next(iter(mdp.costs))
    limits = [cm.Budget(name, at_most=10.0 + i, name=f"limit {i}") for i in range(60)]
    page = cm.Problem(mdp, name, limits).solve()._repr_html_()
    assert "and 40 more" in page
    assert page.count("<tr>") <= 3 * 21
    folded = re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)
    assert folded.count("<tr>") <= 21
