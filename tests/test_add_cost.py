"""Costs added to a model, against what they are to count."""

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm

GARNET = cm.worlds.garnet(12, 3, 0.3, seed=1)


@pytest.fixture(params=["sparse", "dense"])
def mdp(request):
    P = sp.csr_array(GARNET.transitions)
    labels = {"low": [0, 1, 2], "odd": np.arange(12) % 2 == 1, "none": []}
    given = P if request.param == "sparse" else P.toarray()
    return cm.MDP.from_pairs(GARNET.state, GARNET.action, given, GARNET.costs, 0.9, labels=labels)


def test_states_count_visits(mdp):
    d = mdp.evaluate(np.full(mdp.num_pairs, 1 / 3)).occupancy
    more = mdp.with_cost("there", states=["1", "5"]).with_cost("there too", states=[1, 5])
    np.testing.assert_array_equal(more.costs["there"], more.costs["there too"])
    assert more.costs["there"] @ d == pytest.approx(d[np.isin(mdp.state, [1, 5])].sum())
    assert list(more.costs) == [*mdp.costs, "there", "there too"]


def test_states_may_be_a_set_of_names_or_numbers(mdp):
    for states in ({"1", "3"}, frozenset({1, 3}), range(1, 4, 2), ["1", "3"], np.array([3, 1])):
        np.testing.assert_array_equal(mdp.with_cost("x", states=states).costs["x"], np.isin(mdp.state, [1, 3]))


def test_labels_count_visits_once(mdp):
    more = mdp.with_cost("low", labels="low").with_cost("either", labels=["low", "odd"]).with_cost("no", labels="none")
    np.testing.assert_array_equal(more.costs["low"], np.isin(mdp.state, [0, 1, 2]))
    np.testing.assert_array_equal(more.costs["either"], np.isin(mdp.state, [0, 1, 2, 3, 5, 7, 9, 11]))
    assert not np.any(more.costs["no"])


def test_entering_counts_ways_from_outside(mdp):
    inside = [0, 1, 2]
    cost = mdp.with_cost("in", labels="low", entering=True).costs["in"]
    P = sp.csr_array(mdp.transitions).toarray()
    for i in range(mdp.num_pairs):
        expected = 0.0 if mdp.state[i] in inside else P[i, inside].sum()
        assert cost[i] == pytest.approx(expected, abs=1e-15)


def test_entering_a_trap_is_the_probability_of_falling_in():
    """Heads, and the coin is thrown again; tails, out; on its edge, lost: the total is 0.1 / (0.1 + 0.4)."""
    mdp = cm.MDP([[[0.5, 0.4, 0.1], [0, 1, 0], [0, 0, 1]]], {"time": [1, 0, 0]}, 1 - 1e-9, initial=[1, 0, 0])
    more = mdp.with_cost("lost", states=[2], entering=True)
    assert more.evaluate([0, 0, 0]).value["lost"][0] == pytest.approx(0.2, rel=1e-8)


def test_vectors_and_functions(mdp):
    of_states, of_pairs = np.arange(12.0), np.arange(36.0)
    more = mdp.with_cost("s", of_states).with_cost("p", of_pairs)
    np.testing.assert_array_equal(more.costs["s"], of_states[mdp.state])
    np.testing.assert_array_equal(more.costs["p"], of_pairs)
    more = mdp.with_cost("f", lambda state, action: int(state) + 100 * int(action)).with_cost(
        "g", lambda s, a: s == "3"
    )
    np.testing.assert_array_equal(more.costs["f"], mdp.state + 100 * mdp.action)
    np.testing.assert_array_equal(more.costs["g"], mdp.state == 3)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("needs one of cost=, states= and labels=", {}),
        ("needs one of cost=, states= and labels=", {"states": [1], "labels": "low"}),
        ("give these as states= or labels=", {"cost": np.ones(12), "entering": True}),
        ("there is no label called 'lov'; did you mean 'low'?", {"labels": "lov"}),
        ("there is no state called 'x'", {"states": ["x"]}),
        ("there is no state called 'lov'; did you mean 'low'?", {"states": "lov"}),
        (r"states holds <function .*; give names or numbers of states, or a mask", {"states": lambda s: s == "1"}),
        (r"states holds 1\.5; give names or numbers", {"states": 1.5}),
        (
            r"cost 'new' has shape \(5,\); give one entry for each of the 36 pairs or of the 12 states",
            {"cost": [1.0] * 5},
        ),
        ("cost 'new' of state 0, action 0 is 'a', a str", {"cost": lambda s, a: "a"}),
        ("cost 'new' is nan in state 0, action 0", {"cost": lambda s, a: float("nan")}),
    ],
)
def test_what_is_wrong_is_named(mdp, words, given):
    with pytest.raises(ValueError, match=words):
        mdp.with_cost("new", **given)


def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match="has a cost"):
        GARNET.with_cost(next(iter(GARNET.costs)), states=[0])
