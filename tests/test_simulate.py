"""Runs of a policy against what linear solves say, and intervals against how often they hold."""

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.simulate import MOST_STEPS, Draws

WORLDS = {
    "grid": lambda: cm.worlds.gridworld(size=4, discount=0.9),
    "lake": lambda: cm.worlds.lake(5, discount=0.95, restart=False, seed=2),
    "queue": lambda: cm.worlds.queue(capacity=6, discount=0.9),
    "inventory": lambda: cm.worlds.inventory(12, discount=0.9),
    "garnet": lambda: cm.worlds.garnet(20, 3, 0.3, discount=0.5, seed=3),
    "maintenance": lambda: cm.worlds.maintenance(2, discount=0.9),
}


def even(mdp):
    return 1 / np.bincount(mdp.state)[mdp.state]


@pytest.mark.parametrize("world", WORLDS)
def test_intervals_hold_as_often_as_they_say(world):
    """Of 300 intervals at 95 %, between 268 and 298 hold: all but one in ten thousand such counts lie there."""
    mdp = WORLDS[world]()
    rng = np.random.default_rng(7)
    weights = rng.random(mdp.num_pairs)
    pi = weights / np.bincount(mdp.state, weights)[mdp.state]
    held = dict.fromkeys(mdp.costs, 0)
    for seed in range(300):
        run = mdp.simulate(pi, episodes=100, seed=seed)
        for name, (low, high) in run.intervals.items():
            assert low <= run.costs[name] <= high
            held[name] += low <= run.exact[name] <= high
    assert all(268 <= count <= 298 for count in held.values()), held


@pytest.mark.parametrize("world", WORLDS)
def test_many_runs_come_near_the_exact_costs(world):
    mdp = WORLDS[world]()
    run = mdp.simulate(even(mdp), episodes=20_000, seed=0)
    exact = mdp.evaluate(even(mdp)).costs
    assert run.exact == pytest.approx(exact, rel=1e-12)
    for name, cost in exact.items():
        low, high = run.intervals[name]
        width = (high - low) / 2
        assert abs(run.costs[name] - cost) <= 2 * width  # four standard errors
        assert width <= 0.1 * abs(mdp.costs[name]).max()
        assert run.totals[name] == pytest.approx(run.costs[name] / (1 - mdp.discount))


def test_runs_come_again_with_the_seed():
    mdp = WORLDS["garnet"]()
    one, same, other = (mdp.simulate(even(mdp), 10, seed=seed) for seed in (1, 1, 2))
    assert one.costs == same.costs
    assert one.costs != other.costs
    mdp.simulate(even(mdp), 10)


def test_dense_and_sparse_models_run_alike():
    mdp = WORLDS["garnet"]()
    P = sp.csr_array(mdp.transitions)
    runs = [
        cm.MDP.from_pairs(mdp.state, mdp.action, P_, mdp.costs, 0.9, mdp.initial).simulate(even(mdp), 50, seed=1)
        for P_ in (P, P.toarray())
    ]
    assert runs[0].costs == pytest.approx(runs[1].costs)


@pytest.mark.parametrize("discount", [0.5, 0.99, 1 - 1e-9])
def test_where_nothing_is_left_to_chance_there_is_no_interval(discount):
    """Two steps at 3 and 5, then 2 for ever."""
    P = [[[0, 1, 0], [0, 0, 1], [0, 0, 1]]]
    mdp = cm.MDP(P, {"c": [3.0, 5.0, 2.0]}, discount, initial=[1, 0, 0])
    run = mdp.simulate([0, 0, 0], episodes=5, seed=0)
    total = 3 + 5 * discount + 2 * discount**2 / (1 - discount)
    assert run.totals["c"] == pytest.approx(total, rel=1e-6 if discount > 0.999 else 1e-12)
    assert (run.steps, run.cut, run.left) == (2, 0, 0.0)
    low, high = run.intervals["c"]
    assert low <= run.exact["c"] <= high
    assert high - low <= 1e-11


def test_a_state_that_is_never_left_costs_its_mean():
    """Two actions of 1 and 3 in the only state, taken with 0.25 and 0.75."""
    mdp = cm.MDP.from_pairs([0, 0], [0, 1], [[1.0], [1.0]], {"c": [1.0, 3.0]}, 0.9)
    run = mdp.simulate([0.25, 0.75], episodes=3, seed=0)
    assert run.costs["c"] == pytest.approx(2.5)
    assert run.steps == 0


def test_a_discount_near_one_where_runs_end():
    """The probability of ever falling in, of a coin that is thrown until it falls: 0.2."""
    P = [[[0.5, 0.4, 0.1], [0, 1, 0], [0, 0, 1]]]
    mdp = cm.MDP(P, {"time": [1, 0, 0]}, 1 - 1e-9, initial=[1, 0, 0]).with_cost("lost", states=[2], entering=True)
    run = mdp.simulate([0, 0, 0], episodes=20_000, seed=3)
    assert run.totals["lost"] == pytest.approx(0.2, abs=4 * np.sqrt(0.2 * 0.8 / 20_000))
    assert run.totals["time"] == pytest.approx(2.0, abs=0.05)
    assert run.cut == 0


def test_what_is_cut_widens_the_interval():
    """Of runs that do not end, the rest lies between the least and the largest cost."""
    mdp = cm.worlds.queue(capacity=5, discount=1 - 1e-9)
    run = mdp.simulate(even(mdp), episodes=10, seed=0, steps=100)
    assert run.cut == 10
    assert run.left == pytest.approx(1.0, abs=1e-6)
    assert run.intervals["delay"] == pytest.approx((0, 5), abs=1e-5)
    assert 0 < run.costs["delay"] < 5
    assert "10 were cut, with 100 % of what counts still to come" in str(run)
    half = mdp.with_discount(0.5).simulate(even(mdp), episodes=4000, seed=0, steps=1)
    low, high = half.intervals["delay"]
    assert half.costs["delay"] == low == 0  # nobody waits at first
    assert high == pytest.approx(2.5, rel=2e-3)  # five for the other half of what counts, and something rare


def test_no_more_steps_than_take_seconds():
    mdp = cm.MDP([[[0.5, 0.5], [0.5, 0.5]]], {"c": [0, 1]}, 1 - 1e-9)
    assert mdp.simulate([0, 0], episodes=2, seed=0).steps == MOST_STEPS


def test_what_was_never_seen_may_be_rare():
    """A loss of probability 1e-9 is not seen in 100 runs; the interval says what 100 runs can say."""
    mdp = cm.MDP([[[0, 1 - 1e-9, 1e-9], [0, 1, 0], [0, 0, 1]]], {"loss": [0, 0, 1]}, 0.9, initial=[1, 0, 0])
    low, high = mdp.simulate([0, 0, 0], episodes=100, seed=0).intervals["loss"]
    assert low == 0
    assert high == pytest.approx(-np.log(0.025) / 100)


def test_one_run_says_no_more_than_what_is_possible():
    mdp = WORLDS["queue"]()
    run = mdp.simulate(even(mdp), episodes=1, seed=0)
    assert run.intervals["delay"] == (0, 6)


def test_draws_invert_the_sums_of_rows():
    rows = [[0.5, 0.25, 0.25], [1.0], [0.1] * 10, [1e-9, 1 - 1e-9]]
    first = np.cumsum([0, *map(len, rows)])
    draws = Draws(np.concatenate(rows), first)

    class Levels:
        def __init__(self, level):
            self.level = level

        def random(self, size):
            return np.full(size, self.level)

    for level in [0.0, 1e-10, 0.05, 0.4999, 0.5, 0.72, 0.75, 0.999999, 1 - 1e-16]:
        found = draws(Levels(level), np.arange(4)) - first[:-1]
        expected = [min(int(np.searchsorted(np.cumsum(row), level, side="right")), len(row) - 1) for row in rows]
        np.testing.assert_array_equal(found, expected)


def test_draws_never_take_what_has_no_probability():
    P = [[[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]]
    mdp = cm.MDP(P, {"c": [0, 0, 0, 1]}, 0.9, initial=[1, 0, 0, 0])
    assert mdp.simulate([0] * 4, episodes=50, seed=0).costs["c"] == 0


def test_what_is_printed():
    mdp = cm.worlds.gridworld(size=3).with_cost("=<b>\n" + "x" * 50, states=[0])
    run = mdp.simulate([3, 3, 1] * 3, episodes=200, seed=0)
    lines = str(run).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("200 episodes of at most")
    assert lines[1].split() == ["cost", "per", "step", "estimate", "95", "%", "interval", "exact", "total"]
    assert lines[2].split()[0] == "time"
    assert lines[2].split()[-2] == f"{run.exact['time']:.5g}"
    assert repr(run).startswith("Simulation(200 episodes, time ")
    assert "\n" not in repr(run)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("episodes is 0; give a whole number", {"episodes": 0}),
        ("episodes is 1.5", {"episodes": 1.5}),
        ("steps is -1", {"steps": -1}),
        ("seed is 'x'", {"seed": "x"}),
        ("seed is -1", {"seed": -1}),
        ("the policy", {"policy": [9] * 16}),
    ],
)
def test_what_is_wrong_is_named(words, given):
    with pytest.raises(ValueError, match=words):
        WORLDS["grid"]().simulate(**{"policy": [0] * 16, **given})
