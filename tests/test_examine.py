"""What ``mdp.examine`` says, against definitions written again by hand and against HiGHS."""

import itertools
import pickle
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import cvxmdp as cm

HOSTILE = ["<script>alert(1)</script>", "a,b\n\"c\"'d'", "\x1b[2J", "é" * 300, "=1+1", "état 日本"]


@st.composite
def models(draw):
    """Draw a small model: ragged, with states that are never left or reached, and actions that do the same."""
    S = draw(st.integers(1, 6))
    counts = draw(st.lists(st.integers(1, 3), min_size=S, max_size=S))
    state = np.repeat(np.arange(S), counts)
    action = np.concatenate([np.sort(draw(st.permutations(range(4)))[:n]) for n in counts])
    rows, costs = [], []
    for s in state:
        again = bool(rows) and state[len(rows) - 1] == s and draw(st.booleans())
        weights = draw(st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=S, max_size=S))
        row = np.array(weights, dtype=float)
        if draw(st.integers(0, 3)) == 0 or not row.any():
            row = np.eye(S)[s]
        rows.append(rows[-1] if again else row / row.sum())
        costs.append(costs[-1] if again and draw(st.booleans()) else draw(st.sampled_from([-2.0, 0.0, 1.0, 3.0])))
    start = np.array(draw(st.lists(st.sampled_from([0, 0, 1]), min_size=S, max_size=S)), dtype=float)
    start[draw(st.integers(0, S - 1))] = 1.0
    P = np.array(rows)
    discount = draw(st.sampled_from([0.5, 0.9, 0.999]))
    P = sp.csr_array(P) if draw(st.booleans()) else P
    return cm.MDP.from_pairs(
        state, action, P, {"c": np.array(costs), "zero": np.zeros(state.size)}, discount, start / start.sum()
    )


def dense(mdp):
    return mdp.transitions.toarray() if sp.issparse(mdp.transitions) else np.asarray(mdp.transitions)


def reaches(mdp):
    """Which state leads to which, in any number of steps, none included: Warshall's closure."""
    S = mdp.num_states
    leads = np.eye(S, dtype=bool)
    for i, s in enumerate(mdp.state):
        leads[s] |= dense(mdp)[i] > 0
    for k, i, j in itertools.product(range(S), repeat=3):
        leads[i, j] |= leads[i, k] & leads[k, j]
    return leads


def highs(mdp, cost, sign):
    """The least, or most, of a cost over occupancies."""
    flow = np.zeros((mdp.num_states, mdp.num_pairs))
    flow[mdp.state, np.arange(mdp.num_pairs)] = 1.0
    flow -= mdp.discount * dense(mdp).T
    found = linprog(sign * cost, A_eq=flow, b_eq=(1 - mdp.discount) * mdp.initial, bounds=(0, None), method="highs")
    assert found.status == 0
    return sign * found.fun


@settings(max_examples=150)
@given(models())
def test_every_fact_is_as_its_definition_says(mdp):
    found, leads, S = mdp.examine(), reaches(mdp), range(mdp.num_states)
    start = np.flatnonzero(mdp.initial)
    assert found.unreachable == tuple(mdp.states[s] for s in S if not leads[start, s].any())
    alone = [s for s in S if leads[s].sum() == 1]
    assert found.absorbing == tuple(mdp.states[s] for s in alone)
    classes = {
        tuple(np.flatnonzero(leads[s]).tolist()) for s in S if all(leads[t, s] for t in np.flatnonzero(leads[s]))
    }
    assert found.closed == tuple(tuple(mdp.states[s] for s in group) for group in sorted(classes))
    P, L = dense(mdp), mdp.num_pairs
    twins, taken = [], set()
    for i, j in itertools.combinations(range(L), 2):
        same = mdp.state[i] == mdp.state[j] and np.array_equal(P[i], P[j])
        if same and mdp.costs["c"][i] == mdp.costs["c"][j] and j not in taken:
            taken.add(j)
            twins.append((mdp.states[mdp.state[i]], mdp.actions[mdp.action[i]], mdp.actions[mdp.action[j]]))
    assert found.equal == tuple(twins)
    assert (found.states, found.pairs, found.transitions) == (mdp.num_states, L, int((P > 0).sum()))
    assert found.actions == len(set(mdp.action.tolist()))
    assert found.density == (P > 0).mean()
    assert found.smallest == P[P > 0].min()
    cost = found.costs["c"]
    c = mdp.costs["c"]
    assert (cost.least, cost.largest, cost.pairs) == (min(c), max(c), sum(c != 0))
    assert cost.smallest == min((abs(x) for x in c if x), default=0.0)
    scale = np.abs(c).max() or 1.0
    np.testing.assert_allclose(cost.range, [highs(mdp, c, 1), highs(mdp, c, -1)], atol=3e-6 * scale)
    assert found.costs["zero"].range == (0.0, 0.0)


def test_the_range_is_that_of_all_deterministic_policies():
    rng = np.random.default_rng(3)
    mdp = cm.MDP(rng.dirichlet(np.ones(4), size=(3, 4)), {"c": rng.normal(size=(4, 3))}, 0.95)
    values = [mdp.evaluate(list(policy)).costs["c"] for policy in itertools.product(range(3), repeat=4)]
    np.testing.assert_allclose(mdp.examine().costs["c"].range, [min(values), max(values)], rtol=1e-6)


def test_actions_that_do_the_same_are_found_past_one_that_costs_more():
    P = np.full((4, 1, 1), 1.0)
    mdp = cm.MDP(P, {"c": [[1.0, 2.0, 1.0, 1.0]], "d": [[0.0, 0.0, -0.0, 0.0]]}, 0.9, actions=list("abcd"))
    assert mdp.examine().equal == (("0", "a", "c"), ("0", "a", "d"))


def test_rows_that_differ_by_less_than_rounding_of_a_sum_are_not_the_same():
    P = np.array([[[1.0, 0.0], [0, 1]], [[1.0, 1e-20], [0, 1]], [[1.0, 0.0], [0, 1]]])
    found = cm.MDP(P, {"c": [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]}, 0.9).examine()
    assert found.equal == (("0", "0", "2"),)
    assert (found.smallest, found.tiny) == (1e-20, 1)
    assert "1 is below 1e-09 (meant?)" in str(found)


def test_stored_zeros_are_no_transitions():
    P = sp.csr_array((np.array([1.0, 0.0, 1.0]), np.array([0, 1, 1]), np.array([0, 2, 3])), shape=(2, 2))
    found = cm.MDP.from_pairs([0, 1], [0, 0], P, {"c": [1.0, 0.0]}, 0.5, initial="0").examine()
    assert found.transitions == 2
    assert found.absorbing == ("0", "1")
    assert found.unreachable == ("1",)
    assert found.closed == (("0",), ("1",))


@pytest.mark.parametrize("discount", [0.5, 0.99, 1 - 1e-9])
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_ranges_of_costs_of_any_size_at_any_discount(discount, size):
    chain = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]  # two steps to the end
    mdp = cm.MDP([np.eye(3), chain], {"c": size * np.array([3.0, 1.0, 0.0])}, discount, initial="0")
    low, high = mdp.examine().costs["c"].range
    assert low == pytest.approx((1 - discount) * size * (3.0 + discount), rel=1e-6)
    assert high == pytest.approx(size * 3.0, rel=1e-6)


def test_one_state_and_one_action():
    found = cm.MDP([[[1.0]]], {"c": [2.0]}, 0.5).examine()
    assert str(found).splitlines()[:5] == [
        "1 state, 1 action, 1 pair, 1 transition (100 % of all), 40 bytes",
        "discount 0.5: it looks about 2 steps ahead",
        "every state can be reached from the start",
        "never left: 0",
        "every state can be reached from every other",
    ]
    assert found.costs["c"].range == (2.0, 2.0)


def test_sizes_in_bytes_are_those_of_the_arrays():
    mdp = cm.worlds.gridworld(size=6)
    P = mdp.transitions
    arrays = [P.data, P.indices, P.indptr, mdp.state, mdp.action, mdp.initial, *mdp.costs.values()]
    found = mdp.examine()
    assert found.bytes == sum(array.size * array.itemsize for array in arrays)
    assert found.solve_bytes > found.bytes


WORLDS = {
    "gridworld": cm.worlds.gridworld,
    "queue": cm.worlds.queue,
    "inventory": cm.worlds.inventory,
    "garnet": lambda: cm.worlds.garnet(states=50, actions=3, branching=0.5, seed=0),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_engine_is_the_one_that_a_budget_gets(world):
    mdp = world()
    name, facts = next(iter(mdp.examine().costs.items()))
    solution = cm.Problem(mdp, name, [cm.Budget(name, at_least=sum(facts.range) / 2)]).solve()
    first = {"path": "path following"}
    engine = mdp.examine(ranges=False).engine
    assert solution.stats.method.startswith(first.get(engine, engine))


def test_sizes_of_a_cost_that_span_much_and_costs_that_are_zero_are_told():
    mdp = cm.MDP(np.ones((2, 1, 1)), {"wide": [[1e-3, 1e9]], "zero": [[0.0, 0.0]], "-": [[-5.0, 4.0]]}, 0.9)
    said = str(mdp.examine())
    assert "costs whose sizes differ by more than 1e+08 times (meant?): wide" in said
    assert "zero everywhere: zero" in said
    assert mdp.examine().costs["wide"].span == 1e12
    assert mdp.examine().costs["-"].span == 1.25


def many(S=60, costs=40):
    rng = np.random.default_rng(0)
    names = [f"{HOSTILE[k % 6]}{k}" for k in range(max(S, costs))]
    table = {name: rng.random((S, 2)) * 10.0 ** rng.integers(-140, 140) for name in names[:costs]}
    return cm.MDP([np.eye(S), np.eye(S)], table | {"-": -table[names[0]]}, 0.9, initial=names[0], states=names[:S])


@pytest.mark.parametrize("ranges", [None, False])
def test_what_is_printed_fits_a_screen_whatever_the_names(ranges):
    found = many().examine(ranges)
    assert repr(found) == str(found)
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 30
    assert all(line.isprintable() for line in lines)
    assert "and 33 more costs" in lines
    assert "60 closed classes, of one state each" in lines
    assert any(line.startswith("never reached from the start: ") for line in lines)
    assert ("ranges=True" in str(found)) == (ranges is False)


def test_closed_classes_are_counted_with_their_sizes():
    blocks = sp.block_diag([np.roll(np.eye(n), 1, axis=1) for n in (1, 3, 2, 1, 1, 1, 1)])
    mdp = cm.MDP([sp.csr_array(blocks)], {"c": np.ones(10)}, 0.9)
    assert "7 closed classes, of 3, 2, 1, 1, 1, ... states" in str(mdp.examine())
    ring = cm.MDP([np.roll(np.eye(5), 1, axis=1)], {"c": np.ones(5)}, 0.9)
    assert "every state can be left" in str(ring.examine())


class Reader(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.words = [], set(), []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert {name for name, _ in attrs} <= {"style", "value"}
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("ranges", [None, False])
def test_a_notebook_shows_it_escaped(ranges):
    page = Reader(many().examine(ranges)._repr_html_())
    assert page.tags <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "data"}
    assert "<script>alert(1)</script>0" in page.words
    assert "and 21 more" in page.words
    assert not any("\x1b" in words for words in page.words)


def test_a_notebook_shows_ranges_per_step_and_in_total():
    mdp = cm.MDP([np.eye(1)], {"c": [3.0]}, 0.75)
    assert '<data value="3.0">3</data> to <data value="3.0">3</data>' in mdp.examine()._repr_html_()
    assert '<data value="12.0">12</data> to <data value="12.0">12</data>' in mdp.examine()._repr_html_()


def test_ranges_are_looked_for_in_large_models_only_when_asked():
    n = 60_000
    P = sp.csr_array((np.ones(n), np.roll(np.arange(n), -1), np.arange(n + 1)), shape=(n, n))
    mdp = cm.MDP.from_pairs(np.arange(n), np.zeros(n, int), P, {"c": np.arange(n) / n}, 0.9)
    assert mdp.examine().costs["c"].range is None
    low, high = mdp.examine(ranges=True).costs["c"].range
    assert low == pytest.approx(high, rel=1e-6)
    assert low == pytest.approx((n - 1) / (2 * n), rel=1e-6)  # visits are even, as the start is


def test_it_is_data_that_can_be_copied():
    found = cm.worlds.gridworld(size=3).examine()
    assert isinstance(found, cm.Examination)
    assert asdict(found)["costs"]["time"]["largest"] == 1.0
    assert str(pickle.loads(pickle.dumps(found))) == str(found)


def test_a_million_states_are_looked_over():
    n = 1_000_000
    to = np.concatenate([np.minimum(np.arange(n) + 1, n - 1), np.maximum(np.arange(n) - 1, 0)])
    order = cm.MDP.order(np.tile(np.arange(n), 2), np.repeat([0, 1], n))
    P = sp.csr_array((np.ones(2 * n), to[order], np.arange(2 * n + 1)), shape=(2 * n, n))
    mdp = cm.MDP.from_pairs(
        np.repeat(np.arange(n), 2), np.tile([0, 1], n), P, {"c": np.ones(2 * n)}, 0.9, {"5": 0.5, "999999": 0.5}
    )
    found = mdp.examine()
    assert (found.states, found.transitions, found.unreachable, found.absorbing) == (n, 2 * n, (), ())
    assert [len(states) for states in found.closed] == [n]
    assert found.equal == ()
