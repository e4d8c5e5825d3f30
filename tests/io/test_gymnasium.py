"""Environments of Gymnasium: their models against policy iteration on the raw table, and against the real thing."""

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit, TransformObservation
from scipy.optimize import linprog

import cvxmdp as cm

ENVIRONMENTS = {
    "FrozenLake 4x4": ("FrozenLake-v1", {}),
    "FrozenLake 8x8": ("FrozenLake-v1", {"map_name": "8x8"}),
    "FrozenLake dry": ("FrozenLake-v1", {"is_slippery": False}),
    "CliffWalking": ("CliffWalking-v1", {}),
    "CliffWalking slippery": ("CliffWalkingSlippery-v1", {}),
    "Taxi": ("Taxi-v4", {}),
    "Taxi rainy": ("Taxi-v4", {"is_rainy": True}),
}
LONG = 100_000
"""Steps that no episode of a good policy takes: time limits are no part of models."""


def make(name):
    kind, options = ENVIRONMENTS[name]
    return gymnasium.make(kind, max_episode_steps=LONG, **options)


def raw_table(env):
    """Rewards, and the transitions of episodes that go on, as arrays (S, A) and (S, A, S)."""
    P = env.unwrapped.P
    S, A = len(P), len(P[0])
    reward, go_on = np.zeros((S, A)), np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            for p, t, r, done in P[s][a]:
                reward[s, a] += p * r
                go_on[s, a, t] += 0 if done else p
    return reward, go_on


def policy_iteration(env, discount):
    """Return the best value and policy by Howard's method, from the raw table."""
    reward, go_on = raw_table(env)
    S = len(reward)
    policy = np.zeros(S, dtype=int)
    while True:
        rows = np.arange(S), policy
        V = np.linalg.solve(np.eye(S) - discount * go_on[rows], reward[rows])
        Q = reward + discount * go_on @ V
        better = Q.max(axis=1) > Q[rows] + 1e-10
        if not np.any(better):
            return V, policy
        policy = np.where(better, Q.argmax(axis=1), policy)


@pytest.mark.parametrize("discount", [0.5, 0.99, 1 - 1e-6])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_best_value_is_that_of_policy_iteration(name, discount):
    env = make(name)
    mdp = cm.MDP.from_gymnasium(env, discount)
    V, policy = policy_iteration(env, discount)
    rho = env.unwrapped.initial_state_distrib
    solution = cm.Problem(mdp, minimize="cost").solve()
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == pytest.approx(-(1 - discount) * rho @ V, rel=1e-6, abs=1e-12)
    own = mdp.evaluate(np.append(policy, 0)).value["cost"]
    np.testing.assert_allclose(own[:-1], -V, rtol=1e-7, atol=1e-9)
    assert own[-1] == 0


@pytest.mark.parametrize("name", ["FrozenLake 4x4", "FrozenLake 8x8", "CliffWalking slippery", "Taxi"])
def test_the_real_environment_pays_what_the_model_says(name):
    env = make(name)
    solution = cm.Problem(cm.MDP.from_gymnasium(env, 0.99), minimize="cost").solve()
    run = cm.play(solution, env, episodes=1500, seed=1)
    assert run.exact["cost"] == pytest.approx(solution.value)
    low, high = run.intervals["cost"]
    middle, half = (low + high) / 2, (high - low) / 2
    assert abs(run.exact["cost"] - middle) <= 2 * half  # four standard errors
    assert half <= 0.15 * abs(run.exact["cost"])
    assert (run.episodes, run.cut, run.left) == (1500, 0, 0.0)


def test_without_chance_the_environment_pays_exactly_that():
    env = make("CliffWalking")
    solution = cm.Problem(cm.MDP.from_gymnasium(env, 0.99), minimize="cost").solve()
    run = cm.play(solution, env, episodes=3, seed=0)
    assert run.totals["cost"] == pytest.approx(sum(0.99**t for t in range(13)))  # thirteen steps around the cliff
    assert run.steps == 13


HOLES = [5, 7, 11, 12]
"""Of the 4 x 4 lake, as its map has them."""


def lake_with_risk(env, discount):
    return cm.MDP.from_gymnasium(env, discount).with_cost("hole", states=HOLES, entering=True)


def test_holes_are_where_the_map_has_them():
    env = make("FrozenLake 4x4")
    assert np.flatnonzero(env.unwrapped.desc.ravel() == b"H").tolist() == HOLES
    mdp = lake_with_risk(env, 0.99)
    assert mdp.examine().absorbing == ("done",)
    for s, a in [(4, 0), (1, 1), (14, 2), (0, 0)]:
        (i,) = np.flatnonzero((mdp.state == s) & (mdp.action == a))
        assert mdp.costs["hole"][i] == pytest.approx(sum(p for p, t, _, _ in env.unwrapped.P[s][a] if t in HOLES))


@pytest.mark.parametrize("discount", [0.9, 0.99, 0.9999])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_a_lake_with_a_risk_budget_against_highs(discount, share):
    """The program over occupancies, stated by hand from the raw table, in totals of an episode."""
    env = make("FrozenLake 4x4")
    reward, go_on = raw_table(env)
    S, A = reward.shape
    falls = np.array(
        [[sum(p for p, t, _, _ in env.unwrapped.P[s][a] if t in HOLES) for a in range(A)] for s in range(S)]
    )
    falls[HOLES] = 0
    rho = env.unwrapped.initial_state_distrib
    # sum_a d(t, a) - discount sum_{s, a} P(t | s, a) d(s, a) = rho(t)
    flow = np.repeat(np.eye(S), A, axis=1) - discount * go_on.reshape(S * A, S).T

    def best(c, **limits):
        found = linprog(c.ravel(), A_eq=flow, b_eq=rho, **limits)
        assert found.status == 0
        return found

    safest, boldest = best(falls), best(-reward)
    risk = (1 - share) * safest.fun + share * (falls.ravel() @ boldest.x)
    expected = best(-reward, A_ub=falls.reshape(1, -1), b_ub=[risk])
    mdp = lake_with_risk(env, discount)
    solution = cm.Problem(mdp, "cost", [cm.Budget("hole", at_most=(1 - discount) * risk)]).solve()
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value / (1 - discount) == pytest.approx(expected.fun, rel=1e-5, abs=1e-7)
    assert solution.costs["hole"] / (1 - discount) <= risk * (1 + 1e-5) + 1e-9


def test_the_risk_in_the_real_lake():
    """A budget on the risk is kept where the policy is really played."""
    env = make("FrozenLake 4x4")
    discount = 0.99
    mdp = lake_with_risk(env, discount)
    solution = cm.Problem(mdp, "cost", [cm.Budget("hole", at_most=(1 - discount) * 0.05)]).solve()
    run = cm.play(solution, env, episodes=800, seed=5, steps=1200)
    assert run.exact["hole"] == pytest.approx(solution.costs["hole"])
    assert run.totals["hole"] == pytest.approx(run.exact["hole"] / (1 - discount), abs=0.03)
    assert run.totals["cost"] == pytest.approx(run.exact["cost"] / (1 - discount), abs=0.06)


def test_what_comes_after_the_end_counts():
    """Visits of a hole are one step of the model, and those of what is done all that follow."""
    env = make("FrozenLake 4x4")
    mdp = cm.MDP.from_gymnasium(env, 0.9).with_cost("in", states=HOLES).with_cost("over", states=["done"])
    run = cm.play(np.append(np.zeros(16, int), 0), env, episodes=3000, seed=2, mdp=mdp)
    for name in ("in", "over"):
        low, high = run.intervals[name]
        assert abs(run.costs[name] - run.exact[name]) <= high - low
        assert high - low < 0.05


def test_a_time_limit_cuts_and_widens():
    env = gymnasium.make("FrozenLake-v1", max_episode_steps=5)
    mdp = cm.MDP.from_gymnasium(env, 0.99)
    run = cm.play(cm.Problem(mdp, "cost").solve(), env, episodes=50, seed=0)
    assert run.steps == 5
    assert run.cut > 40
    assert run.left == pytest.approx(run.cut / 50 * 0.99**5)
    low, high = run.intervals["cost"]
    assert low <= run.exact["cost"] <= high
    assert cm.play([0] * 17, make("FrozenLake 4x4"), 20, seed=0, mdp=mdp, steps=3).steps <= 3


def test_wrappers_do_not_matter():
    plain = gymnasium.make("FrozenLake-v1").unwrapped
    mdp = cm.MDP.from_gymnasium(plain, 0.9)
    space = gymnasium.spaces.Box(0, 1, (16,))
    wrapped = TransformObservation(TimeLimit(plain, LONG), lambda s: np.eye(16, dtype=np.float32)[s], space)
    same = cm.MDP.from_gymnasium(wrapped, 0.9)
    np.testing.assert_array_equal(mdp.transitions.toarray(), same.transitions.toarray())
    runs = [cm.play([1] * 16 + [0], env, 20, seed=3, mdp=mdp) for env in (plain, wrapped)]
    assert runs[0].costs == runs[1].costs


def test_runs_come_again_with_the_seed():
    env = make("FrozenLake 4x4")
    mdp = cm.MDP.from_gymnasium(env, 0.9)
    even = np.append(np.full(64, 0.25), 1.0)
    one, same, other = (cm.play(even, env, 40, seed=seed, mdp=mdp) for seed in (1, 1, 2))
    assert one.costs == same.costs
    assert one.steps == same.steps
    assert (one.costs, one.steps) != (other.costs, other.steps)


class Small:
    """Two states as gym-factored has them: what a transition costs is its fifth entry."""

    isd = (0.25, 0.75)

    def __init__(self, fifth):
        self.P = {
            0: {0: [(0.5, 0, 1.0, False, fifth(3.0)), (0.5, 1, 0.0, False, fifth(1.0))], 2: [(1.0, 1, 2.0, True, {})]},
            1: {1: [(1.0, 1, 0.0, True, {})]},
        }


def test_a_fifth_entry_is_a_cost():
    by_name = cm.MDP.from_gymnasium(Small(lambda x: {"cost": x, "fuel": 2 * x, "note": "x", "fail": True}), 0.9)
    assert list(by_name.costs) == ["cost", "constraint", "fuel"]
    np.testing.assert_allclose(by_name.costs["cost"], [-0.5, -2.0, 0, 0])
    np.testing.assert_allclose(by_name.costs["constraint"], [2.0, 0, 0, 0])
    np.testing.assert_allclose(by_name.costs["fuel"], [4.0, 0, 0, 0])
    number = cm.MDP.from_gymnasium(Small(lambda x: x), 0.9)
    np.testing.assert_allclose(number.costs["constraint"], [2.0, 0, 0, 0])


def test_ragged_actions_final_states_and_the_older_name_of_the_start():
    mdp = cm.MDP.from_gymnasium(Small(lambda x: x), 0.9)
    np.testing.assert_array_equal(mdp.state, [0, 0, 1, 2])
    np.testing.assert_array_equal(mdp.action, [0, 2, 1, 0])
    np.testing.assert_array_equal(mdp.initial, [0.25, 0.75, 0])
    # State 1 is final in the table: it is visited before all is done.
    np.testing.assert_array_equal(mdp.transitions.toarray(), [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])


class Other:
    """An environment of a test's own."""

    def __init__(self, P, **attributes):
        vars(self).update({"initial_state_distrib": [1.0], **attributes})
        self.P = P


def test_the_start_is_the_environments_own():
    P = [[[(1.0, 0, 0.0, False)]], [[(1.0, 0, 1.0, True)]]]
    only = Other(P, initial_state_distrib=None, start_state_index=np.int64(1))
    np.testing.assert_array_equal(cm.MDP.from_gymnasium(only, 0.5).initial, [0, 1, 0])
    with pytest.raises(ValueError, match="Other does not say how it begins"):
        cm.MDP.from_gymnasium(Other(P, initial_state_distrib=None), 0.5)
    with pytest.raises(ValueError, match=r"has shape \(1,\); it has 2 states"):
        cm.MDP.from_gymnasium(Other(P), 0.5)
    with pytest.raises(ValueError, match=r"initial_state_distrib of the environment .*'here'"):
        cm.MDP.from_gymnasium(Other(P, initial_state_distrib="here"), 0.5)


@pytest.mark.parametrize(
    ("words", "P"),
    [
        ("Other has no table of transitions P; .*from_function", None),
        ("must be a mapping or a list, not a int", 3),
        ("the table P of the environment is empty", {}),
        ("must have the states 0 to 0 as keys", {1: {0: []}}),
        ("has the key 'a'; its keys must be whole numbers", {"a": {}}),
        (r"P\[0\] has the key -1; its keys must be whole numbers, 0 or more", {0: {-1: []}}),
        ("action holds 1000000000000; number the actions from 0", {0: {10**12: [(1.0, 0, 0.0, False)]}}),
        (r"P\[0\]\[0\] is 3; expected a list", {0: {0: 3}}),
        (r"P\[0\]\[0\] holds \(1\.0, 0\); expected \(probability, next state, reward, done\)", {0: {0: [(1.0, 0)]}}),
        (r"P\[0\]\[0\] leads to 7; there are the states 0 to 0", {0: {0: [(1.0, 7, 0.0, False)]}}),
        ("probability and reward must be numbers", {0: {0: [(1.0, 0, "much", False)]}}),
        ("probability must be between 0 and 1", {0: {0: [(-0.5, 0, 0.0, False), (1.5, 0, 0.0, False)]}}),
        ("probability must be between 0 and 1", {0: {0: [(float("nan"), 0, 0.0, False)]}}),
        ("two costs that would be called 'constraint'", {0: {0: [(1.0, 0, 0.0, False, {"cost": 1, "constraint": 2})]}}),
        ("from state 0, action 0 sum to 0.5", {0: {0: [(0.5, 0, 0.0, False)]}}),
        ("state 0 has no action", {0: {}}),
    ],
)
def test_a_wrong_table_is_named(words, P):
    with pytest.raises(ValueError, match=words):
        cm.MDP.from_gymnasium(Other(P), 0.9)


def test_what_is_not_in_the_table_is_refused():
    with pytest.raises(ValueError, match="outside of the table"):
        cm.MDP.from_gymnasium(gymnasium.make("Taxi-v4", fickle_passenger=True), 0.9)


def test_play_needs_the_model_of_the_environment(tmp_path):
    env = make("FrozenLake 4x4")
    mdp = cm.MDP.from_gymnasium(env, 0.9)
    with pytest.raises(ValueError, match="give it as mdp="):
        cm.play(mdp.policy([0] * 17), env)
    with pytest.raises(ValueError, match="the model has 9 states, the environment 16"):
        cm.play([0] * 9, env, mdp=cm.worlds.gridworld(size=3))
    with pytest.raises(ValueError, match="episodes is 0"):
        cm.play([0] * 17, env, 0, mdp=mdp)
    path = tmp_path / "answer.npz"
    cm.Problem(mdp, "cost").solve().save(path)
    from_file = cm.load_solution(path)
    with pytest.raises(ValueError, match="give it as mdp="):
        cm.play(from_file, env)
    assert cm.play(from_file, env, 5, seed=0, mdp=mdp).episodes == 5
    lost = Other(env.unwrapped.P, initial_state_distrib=env.unwrapped.initial_state_distrib)
    lost.reset = lambda seed=None: ("somewhere", {})
    with pytest.raises(ValueError, match="the environment is in 'somewhere'"):
        cm.play([0] * 17, lost, mdp=mdp)


def test_letters_of_a_map_are_labels():
    env = gymnasium.make("FrozenLake-v1", map_name="8x8")
    letters = [letter for row in env.unwrapped.desc.tolist() for letter in row]
    mdp = cm.MDP.from_gymnasium(env, discount=0.9)
    assert sorted(mdp.labels) == ["F", "G", "H", "S"]
    for label, states in mdp.labels.items():
        assert states.tolist() == [s for s, letter in enumerate(letters) if letter.decode() == label]
    assert not cm.MDP.from_gymnasium(gymnasium.make("Taxi-v4"), discount=0.9).labels  # its picture is no map of states
