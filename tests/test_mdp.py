"""The model: one canonical form whatever the input, and policies evaluated against plain linear algebra."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from oracles import as_mdp, inflow, occupancy, occupancy_by_steps, random_model, random_policy, value

STATES, ACTIONS = 4, 3


def cube(seed=0):
    """Transitions (A, S, S) with some zeros."""
    rng = np.random.default_rng(seed)
    P = rng.random((ACTIONS, STATES, STATES)) * (rng.random((ACTIONS, STATES, STATES)) < 0.7)
    P[..., 0] += 0.1
    return P / P.sum(axis=2, keepdims=True)


def by_hand(P, table):
    """The pairs (s0, a0), (s0, a1), ... one after the other: state, action, rows of P and cost."""
    pairs = [(s, a) for s in range(STATES) for a in range(ACTIONS)]
    return (
        [s for s, _ in pairs],
        [a for _, a in pairs],
        np.array([P[a][s] for s, a in pairs]),
        np.array([table[s][a] for s, a in pairs]),
    )


def plain(mdp):
    """The transitions as a dense array."""
    return mdp.transitions.toarray() if sp.issparse(mdp.transitions) else mdp.transitions


def assert_canonical(mdp, P, table):
    state, action, rows, cost = by_hand(P, table)
    np.testing.assert_array_equal(mdp.state, state)
    np.testing.assert_array_equal(mdp.action, action)
    np.testing.assert_allclose(plain(mdp), rows, rtol=1e-15, atol=0)
    np.testing.assert_array_equal(mdp.costs["time"], cost)
    assert (mdp.num_states, mdp.num_pairs) == (STATES, STATES * ACTIONS)


# ---------------------------------------------------------------------------------------------- construction

SPARSE = [sp.csr_array, sp.csc_array, sp.coo_array, sp.lil_array, sp.csr_matrix]


def from_cube(P, table):
    return cm.MDP(P, {"time": table}, discount=0.9)


def from_nested_lists(P, table):
    return cm.MDP(P.tolist(), {"time": table.tolist()}, discount=0.9)


def from_list_of_arrays(P, table):
    return cm.MDP(list(P), {"time": table}, discount=0.9)


def shuffled(P, table):
    state, action, rows, cost = map(np.array, by_hand(P, table))
    mixed = np.random.default_rng(1).permutation(state.size)
    return state[mixed], action[mixed], rows[mixed], cost[mixed]


def from_sorted_pairs(P, table):
    state, action, rows, cost = shuffled(P, table)
    order = cm.MDP.order(state, action)
    return cm.MDP.from_pairs(state[order], action[order], rows[order], {"time": cost[order]}, discount=0.9)


def from_sorted_sparse_pairs(P, table):
    state, action, rows, cost = shuffled(P, table)
    order = cm.MDP.order(state.tolist(), action.tolist())
    rows = sp.csr_array(rows)[order]
    return cm.MDP.from_pairs(state[order], action[order], rows, {"time": cost[order]}, discount=0.9)


@pytest.mark.parametrize(
    "build", [from_cube, from_nested_lists, from_list_of_arrays, from_sorted_pairs, from_sorted_sparse_pairs]
)
def test_every_way_of_building_gives_the_pairs_by_state_then_by_action(build):
    P, table = cube(), np.random.default_rng(2).normal(size=(STATES, ACTIONS))
    assert_canonical(build(P, table), P, table)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_pairs_out_of_order_are_refused(form):
    """A past bug: they were sorted, and a vector given later in the user's order was read in the model's."""
    state, action, rows, cost = shuffled(cube(), np.ones((STATES, ACTIONS)))
    names = {"states": ["a", "b", "c", "d"], "actions": ["x", "y", "z"]}
    with pytest.raises(ValueError, match="must be sorted by state, then by action") as raised:
        cm.MDP.from_pairs(state, action, form(rows), {"time": cost}, 0.9, **names)
    pairs = list(zip(state, action, strict=True))
    i = next(i for i in range(1, 12) if pairs[i] < pairs[i - 1])
    first = f"state {'abcd'[state[i]]}, action {'xyz'[action[i]]} (pair {i}) comes after"
    assert str(raised.value).startswith(first)
    assert "MDP.order(state, action)" in str(raised.value)


def test_actions_of_a_state_out_of_order_are_refused():
    with pytest.raises(ValueError, match=r"state 0, action 0 \(pair 1\) comes after state 0, action 1"):
        cm.MDP.from_pairs([0, 0, 1], [1, 0, 0], np.eye(2)[[0, 1, 1]], {"time": np.ones(3)}, 0.9)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_pairs_is_the_one_python_sorts_them_in(seed):
    rng = np.random.default_rng(seed)
    state, action = rng.integers(4, size=20), rng.integers(5, size=20)
    order = cm.MDP.order(state, action)
    assert order.tolist() == sorted(range(20), key=lambda i: (state[i], action[i]))


@pytest.mark.parametrize("form", SPARSE)
def test_a_list_of_sparse_matrices_gives_the_same_pairs_as_the_array(form):
    P, table = cube(), np.random.default_rng(2).normal(size=(STATES, ACTIONS))
    mdp = cm.MDP([form(block) for block in P], {"time": table}, discount=0.9)
    assert sp.issparse(mdp.transitions)
    assert_canonical(mdp, P, table)


def test_one_sparse_matrix_is_a_model_with_one_action():
    P = cube()[0]
    mdp = cm.MDP(sp.csr_array(P), {"time": [1.0] * STATES}, discount=0.9)
    np.testing.assert_allclose(plain(mdp), P, rtol=1e-15)


def test_entries_given_twice_in_a_sparse_matrix_add_up():
    halves = sp.coo_array(([0.5, 0.5, 1.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    mdp = cm.MDP.from_pairs([0, 1], [0, 0], halves, {"time": [1.0, 2.0]}, discount=0.9)
    np.testing.assert_array_equal(plain(mdp), [[0, 1], [1, 0]])


def test_wide_indices_of_a_sparse_matrix_give_the_same_answers():
    """A past bug: 64-bit column indices were read as twice as many 32-bit ones."""
    model = random_model(0, states=300, actions=3, branching=4)
    P = sp.csr_array(model["P"])
    P.indices, P.indptr = P.indices.astype(np.int64), P.indptr.astype(np.int64)
    mdp = cm.MDP.from_pairs(model["state"], model["action"], P, model["costs"], 0.9, model["initial"])
    V = np.random.default_rng(1).normal(size=300)
    expected = model["costs"]["cost"] + 0.9 * model["P"] @ V - V[model["state"]]
    np.testing.assert_allclose(mdp.dynamics().advantage(model["costs"]["cost"], V), expected, atol=1e-12)


def test_a_ragged_model_keeps_what_each_state_offers():
    mdp = cm.MDP.from_pairs(
        state=[0, 0, 1, 2], action=[0, 2, 0, 1], transitions=np.eye(3)[[0, 1, 1, 2]],
        costs={"time": [1.0, 2.0, 3.0, 4.0]}, discount=0.9,
    )  # fmt: skip
    np.testing.assert_array_equal(mdp.state, [0, 0, 1, 2])
    np.testing.assert_array_equal(mdp.action, [0, 2, 0, 1])
    np.testing.assert_array_equal(mdp.costs["time"], [1, 2, 3, 4])
    np.testing.assert_array_equal(plain(mdp), np.eye(3)[[0, 1, 1, 2]])


# ----------------------------------------------------------------------------------------------------- costs


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_costs_may_be_given_by_state_by_pair_or_by_move(form):
    """A cost of a move counts with the probability of the move."""
    P, rng = cube(), np.random.default_rng(3)
    of_state, of_pair, of_move = rng.normal(size=STATES), rng.normal(size=(STATES, ACTIONS)), rng.normal(size=P.shape)
    costs = {"state": of_state, "pair": of_pair, "move": of_move}
    mdp = cm.MDP([form(block) for block in P], costs, discount=0.9)
    for i, (s, a) in enumerate(zip(mdp.state, mdp.action, strict=True)):
        assert mdp.costs["state"][i] == of_state[s]
        assert mdp.costs["pair"][i] == of_pair[s, a]
        expected = sum(P[a, s, t] * of_move[a, s, t] for t in range(STATES))
        assert mdp.costs["move"][i] == pytest.approx(expected, abs=1e-14)


def test_a_cost_by_move_of_one_sparse_matrix_is_averaged_too():
    P, move = cube()[0], np.random.default_rng(3).normal(size=(1, STATES, STATES))
    mdp = cm.MDP(sp.csr_array(P), {"move": move}, discount=0.9)
    np.testing.assert_allclose(mdp.costs["move"], (P * move[0]).sum(axis=1), atol=1e-14)


def test_from_pairs_takes_a_cost_by_state():
    mdp = cm.MDP.from_pairs([0, 0, 1], [0, 1, 0], np.eye(2)[[0, 1, 1]], {"time": [10.0, 20.0]}, discount=0.9)
    np.testing.assert_array_equal(mdp.costs["time"], [10, 10, 20])


def test_a_cost_is_found_by_name_and_a_vector_is_returned():
    mdp = from_cube(cube(), np.ones((STATES, ACTIONS)))
    np.testing.assert_array_equal(mdp.cost("time"), np.ones(12))
    np.testing.assert_array_equal(mdp.cost(range(12)), np.arange(12.0))


def test_float32_input_is_taken_and_its_rows_are_made_to_sum_to_one():
    P = cube().astype(np.float32)
    assert np.abs(P.sum(axis=2, dtype=np.float64) - 1).max() > 1e-9  # float32 rounds
    rho = np.random.default_rng(0).dirichlet(np.ones(STATES)).astype(np.float32)
    dense = cm.MDP(P, {"time": np.ones(STATES, dtype=np.float32)}, discount=np.float32(0.9), initial=rho)
    thin = cm.MDP([sp.csr_array(block) for block in P], {"time": np.ones(STATES)}, discount=0.9, initial=rho)
    for mdp in (dense, thin):
        assert mdp.transitions.dtype == np.float64
        np.testing.assert_allclose(plain(mdp).sum(axis=1), 1, rtol=1e-15)
        np.testing.assert_allclose(plain(mdp), by_hand(P, np.ones((STATES, ACTIONS)))[2], rtol=1e-6)
        assert mdp.initial.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("kind", [np.int8, np.uint64, bool, object, np.float16, np.longdouble])
def test_real_numbers_of_any_kind_are_taken(kind):
    P, cost = np.eye(2).astype(kind), np.array([1, 0]).astype(kind)
    mdp = cm.MDP.from_pairs([0, 1], [0, 0], P, {"time": cost}, 0.9, initial=cost)
    assert mdp.transitions.dtype == mdp.costs["time"].dtype == mdp.initial.dtype == np.float64
    np.testing.assert_array_equal(mdp.transitions, np.eye(2))


def test_the_initial_distribution_is_uniform_when_not_given():
    np.testing.assert_array_equal(from_cube(cube(), np.ones((STATES, ACTIONS))).initial, [0.25] * 4)


# --------------------------------------------------------------------------------------------- immutability


def small():
    return from_cube(cube(), np.ones((STATES, ACTIONS)))


@pytest.mark.parametrize("name", ["state", "transitions", "costs", "discount", "initial", "states", "anything"])
def test_no_attribute_can_be_set_or_deleted(name):
    mdp = small()
    with pytest.raises(AttributeError):
        setattr(mdp, name, 0.5)
    with pytest.raises(AttributeError):
        delattr(mdp, name)


@pytest.mark.parametrize("sparse", [False, True])
def test_no_array_can_be_written(sparse):
    mdp = as_mdp(random_model(0), sparse)
    P = [mdp.transitions.data, mdp.transitions.indices, mdp.transitions.indptr] if sparse else [mdp.transitions]
    for array in [mdp.state, mdp.action, mdp.initial, *mdp.costs.values(), *P]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_no_cost_can_be_added_replaced_or_removed():
    mdp = small()
    with pytest.raises(TypeError):
        mdp.costs["time"] = np.zeros(12)
    with pytest.raises(TypeError):
        mdp.costs["more"] = np.zeros(12)
    with pytest.raises(TypeError):
        del mdp.costs["time"]


def test_the_callers_arrays_are_neither_changed_nor_shared():
    P, table, rho = cube().astype(np.float32).astype(float), np.ones((STATES, ACTIONS)), np.full(STATES, 0.25)
    before = P.copy()
    mdp = cm.MDP(P, {"time": table}, discount=0.9, initial=rho)
    np.testing.assert_array_equal(P, before)
    P[:], table[:], rho[:] = 0, 7, 0  # still writable
    assert plain(mdp).sum() == pytest.approx(12)
    assert mdp.costs["time"].max() == 1
    assert mdp.initial.sum() == 1


def test_the_callers_sparse_matrix_is_neither_changed_nor_shared():
    rows = sp.csr_array(random_model(0)["P"])
    before = rows.copy()
    mdp = cm.MDP.from_pairs(np.repeat(range(6), 3), np.tile(range(3), 6), rows, {"time": np.ones(18)}, discount=0.9)
    assert (rows != before).nnz == 0
    rows.data[:] = 0
    assert plain(mdp).sum() == pytest.approx(18)


# ----------------------------------------------------------------------------------------------------- names


def test_names_come_back_in_tables_and_drawn_actions():
    stay, go = np.eye(2), np.eye(2)[::-1]
    mdp = cm.MDP([stay, go], {"time": [1.0, 0.0]}, 0.9, [1, 0], states=["away", "home"], actions=["stay", "go"])
    policy = mdp.policy([1, 0])
    assert (mdp.states, mdp.actions) == (("away", "home"), ("stay", "go"))
    assert policy.table() == [("away", "go", 1.0), ("home", "stay", 1.0)]
    assert policy.act("away") == policy.act(0) == "go"
    assert policy.act("home") == policy.act(np.int64(1)) == "stay"


def test_names_are_numbers_when_not_given():
    mdp = small()
    assert mdp.states == ("0", "1", "2", "3")
    assert mdp.actions == ("0", "1", "2")
    assert repr(mdp) == "MDP(4 states, 12 pairs, costs: time, discount 0.9)"


def test_a_copy_by_pickle_or_with_another_discount_is_the_same_model():
    original = as_mdp(random_model(4, ragged=True), sparse=True)
    for mdp in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original), original.with_discount(0.5)):
        np.testing.assert_array_equal(plain(mdp), plain(original))
        np.testing.assert_array_equal(mdp.state, original.state)
        np.testing.assert_array_equal(mdp.action, original.action)
        np.testing.assert_array_equal(mdp.initial, original.initial)
        assert list(mdp.costs) == list(original.costs)
        assert mdp.states == original.states
    assert original.with_discount(0.5).discount == 0.5
    assert original.discount == 0.9


def nearly(seed, states, branching, scale):
    """A model whose rows, and initial distribution, sum to one but for about ``scale``."""
    model = random_model(seed, states=states, actions=2, branching=branching)
    rng = np.random.default_rng(seed)
    model["P"] *= 1 + scale * rng.uniform(-1, 1, size=(2 * states, 1))
    model["initial"] = model["initial"] * (1 + scale * rng.uniform(-1, 1))
    return model


@pytest.mark.parametrize("sparse", [False, True], ids=["array", "csr"])
@pytest.mark.parametrize("scale", [1e-7, 1e-12, 1e-14, 3e-16])
@pytest.mark.parametrize(("states", "branching"), [(3, None), (60, None), (60, 4), (300, 100)])
def test_rows_sum_to_one_to_rounding_and_copies_of_copies_are_the_same_to_the_last_bit(
    states, branching, scale, sparse
):
    """A past bug: rows off by 1e-15 times the root of the number of states stayed so; copies changed the start."""
    for seed in range(4):
        mdp = as_mdp(nearly(seed, states, branching, scale), sparse)
        eps = np.finfo(float).eps
        assert np.all(np.abs(plain(mdp).sum(axis=1) - 1) <= 3 * eps * np.count_nonzero(plain(mdp), axis=1))
        again = mdp
        for _ in range(3):
            again = pickle.loads(pickle.dumps(again.with_discount(0.5)))
            np.testing.assert_array_equal(plain(again), plain(mdp))
            np.testing.assert_array_equal(again.initial, mdp.initial)


def test_whole_numbers_are_names_and_shown_by_their_digits():
    mdp = cm.MDP([np.eye(2)], {"time": [1.0, 2.0]}, 0.9, states=[10, np.int64(20)], actions=np.array(["go"]))
    assert (mdp.states, mdp.actions) == (("10", "20"), ("go",))
    assert mdp.policy([0, 0]).table() == [("10", "go", 1.0), ("20", "go", 1.0)]


# -------------------------------------------------------------------------------------------------- policies


def test_the_probabilities_of_a_policy_cannot_be_written():
    policy = small().policy([0, 1, 2, 0])
    with pytest.raises(ValueError, match="read-only"):
        policy.probabilities[0] = 0.5


def test_a_policy_may_be_a_table_probabilities_over_pairs_or_one_action_a_state():
    mdp = cm.MDP.from_pairs([0, 0, 1, 2, 2], [0, 2, 1, 0, 1], np.eye(3)[[0, 1, 2, 0, 1]], {"time": np.ones(5)}, 0.9)
    expected = [0, 1, 1, 1, 0]
    table = [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    for given in ([2, 1, 0], [0.0, 1.0, 1.0, 1.0, 0.0], table, np.array(table, dtype=float)):
        np.testing.assert_array_equal(mdp.policy(given).probabilities, expected)
    assert mdp.policy(mdp.policy(table)).table() == [("0", "2", 1.0), ("1", "1", 1.0), ("2", "0", 1.0)]


def test_a_policy_in_float32_is_taken_and_made_to_sum_to_one():
    pi = random_policy(random_model(0), 0).astype(np.float32)
    exact = as_mdp(random_model(0)).policy(pi).probabilities
    np.testing.assert_allclose(exact.reshape(6, 3).sum(axis=1), 1, rtol=1e-15)
    assert np.abs(pi.astype(float).reshape(6, 3).sum(axis=1) - 1).max() > 1e-9  # float32 rounds
    np.testing.assert_allclose(exact, pi, rtol=1e-6)


def test_the_only_policy_of_a_model_with_one_action_may_be_given_as_whole_numbers():
    """Ones over pairs are probabilities, zeros over states are actions; neither may be mistaken for the other."""
    mdp = cm.MDP.from_pairs([0, 1], [0, 0], np.eye(2), {"time": [1.0, 2.0]}, 0.9)
    for given in ([1, 1], [1.0, 1.0], [0, 0], [[1], [1]]):
        np.testing.assert_array_equal(mdp.policy(given).probabilities, [1, 1])


def test_a_policy_draws_actions_with_its_probabilities():
    mdp = cm.MDP([np.eye(2)] * 2, {"time": [1.0, 0.0]}, 0.9, actions=["a", "b"])
    policy, rng = mdp.policy([[0.25, 0.75], [1.0, 0.0]]), np.random.default_rng(0)
    drawn = [policy.act(0, rng) for _ in range(4000)]
    assert drawn.count("b") / 4000 == pytest.approx(0.75, abs=0.03)  # four standard deviations
    assert {policy.act(1, rng) for _ in range(50)} == {"a"}
    assert repr(policy) == "Policy(2 states, 1 of them randomized)"


# ------------------------------------------------------------------------------------------------ evaluation


def absorbing(seed):
    """No action leaves state 2."""
    model = random_model(seed)
    model["P"][model["state"] == 2] = np.eye(6)[2]
    return model


def unreachable(seed):
    """State 5 is neither a start nor the end of a move."""
    model = random_model(seed)
    model["P"][:, 5] = 0
    model["P"] /= model["P"].sum(axis=1, keepdims=True)
    model["initial"] = np.array([0.5, 0.5, 0, 0, 0, 0])
    return model


MODELS = {
    "dense": random_model,
    "sparse": lambda seed: random_model(seed, states=30, branching=3),
    "ragged": lambda seed: random_model(seed, states=20, actions=5, ragged=True, branching=4),
    "one state": lambda seed: random_model(seed, states=1),
    "one action": lambda seed: random_model(seed, actions=1),
    "one pair": lambda seed: random_model(seed, states=1, actions=1),
    "absorbing": absorbing,
    "unreachable": unreachable,
    "large and thin": lambda seed: random_model(seed, states=450, actions=2, branching=3),
    "large and dense": lambda seed: random_model(seed, states=450, actions=2),
}


@pytest.mark.parametrize("sparse", [False, True], ids=["array", "csr"])
@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("kind", MODELS)
def test_evaluate_agrees_with_plain_linear_algebra(kind, discount, sparse):
    model = MODELS[kind](7) | {"discount": discount}
    pi = random_policy(model, 8)
    found, d = as_mdp(model, sparse).evaluate(pi), occupancy(model, pi)
    np.testing.assert_allclose(found.occupancy, d, rtol=0, atol=1e-11)
    for name, c in model["costs"].items():
        V = value(model, pi, c)
        np.testing.assert_allclose(found.value[name], V, rtol=0, atol=1e-9 * np.abs(V).max())
        assert found.costs[name] == pytest.approx(c @ d, abs=1e-9)
        assert found.costs[name] == pytest.approx(inflow(model) @ found.value[name], abs=1e-9)


@pytest.mark.parametrize("kind", ["dense", "ragged", "absorbing", "unreachable"])
def test_evaluate_agrees_with_the_discounted_sum_over_time(kind):
    """Occupancy is ``(1 - discount) sum over t of discount^t Pr(pair at time t)``; no linear system is solved here."""
    model = MODELS[kind](9)
    pi = random_policy(model, 10)
    np.testing.assert_allclose(as_mdp(model).evaluate(pi).occupancy, occupancy_by_steps(model, pi, 400), atol=1e-14)


def test_a_deterministic_policy_is_evaluated_like_any_other():
    model = random_model(11, states=40, branching=3)
    actions = np.random.default_rng(0).integers(3, size=40)
    pi = (model["action"] == actions[model["state"]]).astype(float)
    for sparse in (False, True):
        found = as_mdp(model, sparse).evaluate(actions)
        np.testing.assert_allclose(found.occupancy, occupancy(model, pi), atol=1e-13)


def test_a_state_that_is_never_visited_has_a_value_but_no_occupancy():
    model = unreachable(0)
    pi = random_policy(model, 0)
    found = as_mdp(model).evaluate(pi)
    assert np.all(found.occupancy[model["state"] == 5] == 0)
    assert found.value["cost"][5] == pytest.approx(value(model, pi, model["costs"]["cost"])[5], rel=1e-12)


# --------------------------------------------------------------------------------- Puterman's example (3.1)


def puterman(discount):
    """State s1 offers a11 (reward 5, then s1 or s2 with equal chances) and a12 (reward 10, to s2); s2 earns -1."""
    return cm.MDP.from_pairs(
        state=[0, 0, 1], action=[0, 1, 2], transitions=[[0.5, 0.5], [0, 1], [0, 1]],
        costs={"loss": [-5.0, -10.0, 1.0]}, discount=discount, initial=[1, 0],
        states=["s1", "s2"], actions=["a11", "a12", "a21"],
    )  # fmt: skip


def reward_of_a11(g):
    return (5 - 5.5 * g) / ((1 - 0.5 * g) * (1 - g))


def reward_of_a12(g):
    return (10 - 11 * g) / (1 - g)


@pytest.mark.parametrize("g", [0.3, 0.9, 0.95, 0.999])
def test_putermans_policies_have_their_analytic_values(g):
    mdp = puterman(g)
    for action, reward in ((0, reward_of_a11(g)), (1, reward_of_a12(g))):
        found = mdp.evaluate([action, 2])
        np.testing.assert_allclose(found.value["loss"], [-reward, 1 / (1 - g)], rtol=1e-12)
        assert found.costs["loss"] == pytest.approx(-(1 - g) * reward, rel=1e-12)


@pytest.mark.parametrize(("g", "best"), [(0.3, "a12"), (0.9, "a12"), (0.92, "a11"), (0.99, "a11")])
def test_putermans_optimum_changes_at_the_discount_ten_elevenths(g, best):
    """``reward_of_a11 = reward_of_a12 / (2 - g)``, so a12 is better as long as its reward is positive, 10 > 11 g."""
    assert (reward_of_a11(g) > reward_of_a12(g)) == (best == "a11")
    solution = cm.Problem(puterman(g), minimize="loss").solve()
    assert solution.status is cm.Status.OPTIMAL
    assert solution.policy.table() == [("s1", best, 1.0), ("s2", "a21", 1.0)]
    assert solution.value == pytest.approx(-(1 - g) * max(reward_of_a11(g), reward_of_a12(g)), rel=1e-9)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_arrays_that_nobody_can_change_are_shared(form):
    P = np.array([[0.5, 0.5], [0.0, 1.0], [1.0, 0.0], [0.25, 0.75]])
    parts = [P]
    if form == "sparse":
        parts = [
            np.array([0.5, 0.5, 1, 1, 0.25, 0.75]),
            np.array([0, 1, 1, 0, 0, 1], np.int32),
            np.array([0, 2, 3, 4, 6], np.int32),
        ]
        P = sp.csr_array(tuple(parts), shape=(4, 2))
    cost = np.arange(4.0)
    changeable = cm.MDP.from_pairs([0, 0, 1, 1], [0, 1, 0, 1], P, {"cost": cost}, 0.9)
    of_matrix = [P.data, P.indices, P.indptr] if form == "sparse" else []  # views of the parts
    for array in (*parts, *of_matrix, cost):
        array.flags.writeable = False
    fixed = cm.MDP.from_pairs([0, 0, 1, 1], [0, 1, 0, 1], P, {"cost": cost}, 0.9)

    def whole(matrix):
        return matrix if form == "dense" else matrix.data

    assert not np.shares_memory(whole(changeable.transitions), whole(P))
    assert np.shares_memory(whole(fixed.transitions), whole(P))
    assert np.shares_memory(fixed.costs["cost"], cost)
    assert np.shares_memory(whole(fixed.with_discount(0.5).transitions), whole(P))


def test_a_view_of_what_can_change_is_copied():
    base = np.array([[0.5, 0.5], [0.0, 1.0]])
    view = base.view()
    view.flags.writeable = False
    mdp = cm.MDP.from_pairs([0, 1], [0, 0], view, {"cost": [1.0, 2.0]}, 0.9)
    base[0] = [0.0, 1.0]
    np.testing.assert_array_equal(mdp.transitions[0], [0.5, 0.5])


def test_fixed_rows_that_sum_to_one_nearly_are_made_exact_in_a_copy():
    P = np.array([[0.5, 0.5 + 1e-7], [0.0, 1.0]])
    P.flags.writeable = False
    mdp = cm.MDP.from_pairs([0, 1], [0, 0], P, {"cost": [1.0, 2.0]}, 0.9)
    assert mdp.transitions[0].sum() == pytest.approx(1.0, abs=1e-15)
    assert P[0, 1] == 0.5 + 1e-7


def test_numbers_are_names_without_being_stored():
    names = as_numbered(12).states
    assert (len(names), names[11], names[-1], names[2:4]) == (12, "11", "11", ("2", "3"))
    assert names.index("7") == 7
    assert "7" in names
    for other in ("12", "-1", "07", "x", 7):
        assert other not in names
    with pytest.raises(ValueError, match="12 numbers"):
        names.index("12")
    assert names == tuple(map(str, range(12)))
    assert names != tuple("abcdefghijkl")
    assert hash(names) == hash(tuple(map(str, range(12))))
    assert list(names) == [str(k) for k in range(12)]


def as_numbered(states):
    return cm.MDP.from_pairs(np.arange(states), np.zeros(states, int), np.eye(states), {"cost": np.ones(states)}, 0.9)
