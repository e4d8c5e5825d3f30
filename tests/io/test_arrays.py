"""Arrays of pymdptoolbox and of QuantEcon: the model has the values that these libraries find themselves."""

import math
import warnings

import mdptoolbox.example
import mdptoolbox.mdp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from quantecon.markov import DiscreteDP

import cvxmdp as cm


def best_values(mdp):
    """Return the largest discounted reward from each state, of our own optimal policy, evaluated."""
    return -mdp.evaluate(cm.Problem(mdp, "cost").solve(tolerance=1e-10).policy).value["cost"]


# ------------------------------------------------------------------------------------------------------ pymdptoolbox


def their_values(*arguments):
    """Return the values that pymdptoolbox finds; its own comparisons of sparse matrices make SciPy warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = mdptoolbox.mdp.PolicyIteration(*arguments)
        theirs.run()
    return theirs.V


def sparse(P):
    return [sp.csr_matrix(p) for p in P]


def objects(P):
    """Return an array of sparse matrices, as pymdptoolbox makes them."""
    result = np.empty(len(P), dtype=object)
    result[:] = sparse(P)
    return result


P, R = mdptoolbox.example.forest(S=5, r1=4, r2=2, p=0.1)
BY_STATE = np.array([0.0, 1.0, -2.0, 0.5, 3.0])
BY_TRANSITION = np.random.default_rng(0).normal(size=(2, 5, 5))
SHAPES = {
    "cube": lambda P: P,
    "list of arrays": list,
    "list of lists": lambda P: P.tolist(),
    "list of sparse": sparse,
    "tuple of sparse": lambda P: tuple(sparse(P)),
    "list of sparse arrays": lambda P: [sp.coo_array(p) for p in P],
    "array of sparse": objects,
}
REWARDS = {
    "by state": BY_STATE,
    "by state, listed": BY_STATE.tolist(),
    "by state and action": R,
    "by state and action, sparse": sp.csr_matrix(R),
    "by transition": BY_TRANSITION,
    "by transition, listed": list(BY_TRANSITION),
    "by transition, sparse": sparse(BY_TRANSITION),
    "by transition, array of sparse": objects(BY_TRANSITION),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", REWARDS)
def test_arrays_of_pymdptoolbox_are_read_by_their_definition(shape, kind):
    mdp = cm.MDP.from_mdptoolbox(SHAPES[shape](P), REWARDS[kind], 0.9)
    transitions = mdp.transitions.toarray() if sp.issparse(mdp.transitions) else mdp.transitions
    for i, (s, a) in enumerate(zip(mdp.state, mdp.action, strict=True)):
        np.testing.assert_array_equal(transitions[i], P[a, s])
        if "transition" in kind:
            reward = sum(P[a, s, t] * BY_TRANSITION[a, s, t] for t in range(5))
        else:
            reward = R[s, a] if "action" in kind else BY_STATE[s]
        assert mdp.costs["cost"][i] == pytest.approx(-reward, rel=1e-14, abs=1e-300)
    assert sp.issparse(mdp.transitions) == ("sparse" in shape)
    assert list(mdp.costs) == ["cost"]
    assert not np.signbit(mdp.costs["cost"][mdp.costs["cost"] == 0]).any()


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("reward", [BY_STATE, R, BY_TRANSITION], ids=["S", "SA", "ASS"])
@pytest.mark.parametrize("shape", ["cube", "array of sparse"])
def test_the_best_values_are_those_of_pymdptoolbox(discount, reward, shape):
    given = reward if reward.ndim < 3 or shape == "cube" else objects(reward)
    arguments = SHAPES[shape](P), given, discount
    np.testing.assert_allclose(best_values(cm.MDP.from_mdptoolbox(*arguments)), their_values(*arguments), rtol=1e-8)


@pytest.mark.parametrize("kind", [False, True])
def test_random_arrays_of_pymdptoolbox_have_its_values(kind):
    np.random.seed(3)
    transitions, rewards = mdptoolbox.example.rand(12, 3, is_sparse=kind)
    arguments = transitions, rewards, 0.95
    np.testing.assert_allclose(best_values(cm.MDP.from_mdptoolbox(*arguments)), their_values(*arguments), rtol=1e-8)


def test_one_state_and_one_action():
    assert cm.MDP.from_mdptoolbox([[[1.0]]], [3.0], 0.9).costs["cost"].tolist() == [-3]
    assert cm.MDP.from_mdptoolbox([sp.eye(1)], [sp.eye(1)], 0.9).costs["cost"].tolist() == [-1]


def test_the_first_state_is_given_or_even():
    assert cm.MDP.from_mdptoolbox(P, R, 0.9).initial.tolist() == [0.2] * 5
    assert cm.MDP.from_mdptoolbox(P, R, 0.9, initial="1").initial.tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("transitions", "reward", "said"),
    [
        (P, R.T, r"reward has shape \(2, 5\); give one of the shapes \(5,\), \(5, 2\), \(2, 5, 5\)"),
        (P, 1.0, r"reward has shape \(\); give"),
        (P, "none", r"reward holds 'none', a str; give an array of numbers"),
        (P, sparse(BY_TRANSITION[:1]), r"reward must hold one matrix of shape \(5, 5\) for each of the 2 actions"),
        (P, [*sparse(BY_TRANSITION[:1]), sp.eye(4)], r"reward must hold one matrix of shape \(5, 5\)"),
        (P[0], R, r"transitions has shape \(5, 5\); give \(A, S, S\)"),
        (np.swapaxes(P, 0, 2), R, r"transitions has shape \(5, 5, 2\)"),
        (2 * P, R, r"the probabilities from state 0, action 0 sum to 2, not 1"),
        (P, np.where(R == 4, math.nan, R), r"cost 'cost' is nan in state 4, action 0; costs must be finite"),
        (P, np.where(R == 4, -math.inf, R), r"cost 'cost' is inf in state 4, action 0; costs must be finite"),
        ([sp.eye(5), np.eye(5)], R, r"transitions mixes sparse and dense matrices"),
    ],
)
def test_wrong_arrays_of_pymdptoolbox_are_refused(transitions, reward, said):
    with pytest.raises(ValueError, match=said):
        cm.MDP.from_mdptoolbox(transitions, reward, 0.9)


# --------------------------------------------------------------------------------------------------------- QuantEcon


@st.composite
def programs(draw):
    """Rewards of shape (S, A), of which some are minus infinity, and transitions of shape (S, A, S)."""
    states, actions = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    rewards = rng.normal(size=(states, actions)) * draw(st.sampled_from([1e-4, 1.0, 1e4]))
    rewards[rng.random((states, actions)) < 0.3] = -np.inf
    rewards[np.arange(states), rng.integers(actions, size=states)] = rng.normal()
    return rewards, rng.dirichlet(np.full(states, 0.5), (states, actions))


def pair_form(rewards, transitions, kind=np.array, shuffled=True):
    """Return rewards, transitions, states and actions of the pairs that are offered, in any order."""
    s, a = np.nonzero(rewards > -np.inf)
    if shuffled:
        order = np.random.default_rng(0).permutation(s.size)
        s, a = s[order], a[order]
    return rewards[s, a], kind(transitions[s, a]), s, a


@given(programs(), st.sampled_from([0.5, 0.95]))
@settings(max_examples=40)
def test_all_forms_of_a_discrete_dp_are_one_model_with_its_values(program, beta):
    rewards, transitions = program
    ddp = DiscreteDP(rewards, transitions, beta)
    theirs = ddp.solve(method="policy_iteration").v
    arguments = [
        (rewards, transitions, beta),
        (rewards.tolist(), transitions.tolist(), beta, None, None),
        *((*pairs[:2], beta, *pairs[2:]) for pairs in (pair_form(*program), pair_form(*program, sp.csr_matrix))),
    ]
    forms = [ddp, ddp.to_sa_pair_form(), ddp.to_sa_pair_form(sparse=False), *arguments]
    forms += [DiscreteDP(*one) for one in arguments[2:]]
    s, a = np.nonzero(rewards > -np.inf)
    for form in forms:
        mdp = cm.MDP.from_quantecon(form)
        assert mdp.discount == beta
        assert mdp.state.tolist() == s.tolist()
        assert mdp.action.tolist() == a.tolist()
        np.testing.assert_array_equal(mdp.costs["cost"], -rewards[s, a])
        found = mdp.transitions.toarray() if sp.issparse(mdp.transitions) else mdp.transitions
        np.testing.assert_allclose(found, transitions[s, a], rtol=1e-12)
    np.testing.assert_allclose(best_values(mdp), theirs, rtol=1e-6, atol=1e-9)


def test_puterman_example_of_quantecon():
    mdp = cm.MDP.from_quantecon(([5, 10, -1], [(0.5, 0.5), (0, 1), (0, 1)], 0.95, [0, 0, 1], [0, 1, 0]))
    np.testing.assert_allclose(best_values(mdp), [-8.57142857, -20.0], rtol=1e-8)  # as in QuantEcon's documentation


def test_a_pair_of_reward_minus_infinity_is_not_offered_in_pair_form():
    mdp = cm.MDP.from_quantecon(([1, -math.inf, 2], [[1, 0], [1, 0], [0, 1]], 0.9, [0, 0, 1], [0, 1, 0]), initial="1")
    assert mdp.num_pairs == 2
    assert mdp.initial.tolist() == [0, 1]


FORM = ([5, 10, -1], [(0.5, 0.5), (0, 1), (0, 1)], 0.95, [0, 0, 1], [0, 1, 0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({0: [[5, 10, -1]]}, r"R has shape \(1, 3\), Q has shape \(3, 2\) and s_indices has shape \(3,\); give \(L,\)"),
        ({0: [5, 10]}, r"R has shape \(2,\), Q has shape \(3, 2\)"),
        ({3: [0, 0]}, r"s_indices has shape \(2,\)"),
        ({4: [0, 1]}, r"action has shape \(2,\)"),
        ({4: None}, r"action has shape \(\)"),
        ({3: None, 4: None}, r"R has shape \(3,\) and Q has shape \(3, 2\); without s_indices and a_indices give"),
        ({3: [0, 0, 7]}, r"state holds 7; entries must be at least 0 and below 2"),
        ({3: [0, 0, 0]}, r"state 1 has no action"),
        ({4: [0, 0, 0]}, r"state 0, action 0 is given twice"),
        ({0: [-math.inf, -math.inf, 0]}, r"state 0 has no action"),
        ({0: [math.nan, 10, -1]}, r"cost 'cost' is nan in state 0, action 0"),
        ({0: [math.inf, 10, -1]}, r"cost 'cost' is -inf in state 0, action 0"),
        ({2: 1.0}, r"discount is 1\.0; it must lie between 0 and 1"),
        ({1: [(0.5, 0.1), (0, 1), (0, 1)]}, r"the probabilities from state 0, action 0 sum to 0\.6"),
    ],
)
def test_wrong_arguments_of_quantecon_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        cm.MDP.from_quantecon(tuple(change.get(i, value) for i, value in enumerate(FORM)))


@pytest.mark.parametrize("ddp", [None, 3, "ddp", np.eye(3), FORM[:2], FORM[:4]])
def test_what_is_no_discrete_dp_is_refused(ddp):
    with pytest.raises(ValueError, match=r"ddp is a .*; give a DiscreteDP of QuantEcon, or its arguments as a tuple"):
        cm.MDP.from_quantecon(ddp)


def test_callers_arrays_are_not_changed_and_not_shared():
    rewards, transitions = np.array([[1.0, 2.0]]), np.ones((1, 2, 1))
    mdp = cm.MDP.from_quantecon((rewards, transitions, 0.9))
    cube = P.copy()
    forest = cm.MDP.from_mdptoolbox(cube, R, 0.9)
    transitions[:] = rewards[:] = cube[:] = 7.0
    assert mdp.transitions.tolist() == [[1], [1]]
    assert mdp.costs["cost"].tolist() == [-1, -2]
    assert forest.transitions.max() <= 1
