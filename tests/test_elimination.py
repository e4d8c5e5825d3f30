"""Elimination of states: values and visits against dense solves, and against exact fractions where visits are rare."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.dynamics.elimination import Elimination
from cvxmdp.dynamics.normal import minimum_degree
from oracles import as_mdp, random_model

WORLDS = {
    "grid": lambda: cm.worlds.gridworld(size=7),
    "queue": lambda: cm.worlds.queue(30),
    "tandem": lambda: cm.worlds.tandem(6),
    "lake": lambda: cm.worlds.lake(6),
    "inventory": lambda: cm.worlds.inventory(20),
    "maintenance": lambda: cm.worlds.maintenance(2, 4),
    "ragged": lambda: as_mdp(random_model(3, states=9, actions=3, ragged=True)),
    "one state": lambda: cm.MDP([[[1.0]]], {"cost": [[1.0]]}, discount=0.9, initial=[1.0]),
}


def starts_of(mdp):
    return np.searchsorted(mdp.state, np.arange(mdp.num_states + 1)).astype(np.int64)


def random_policy(mdp, rng, share):
    """Some actions with a random probability; at least one in each state."""
    weights = rng.exponential(size=mdp.num_pairs) * (rng.random(mdp.num_pairs) < share)
    weights[starts_of(mdp)[:-1]] += 0.1
    return weights / np.bincount(mdp.state, weights, mdp.num_states)[mdp.state]


@pytest.mark.parametrize("discount", [0.5, 0.99, 1 - 1e-9])
@pytest.mark.parametrize("name", WORLDS)
def test_values_and_visits_solve_their_equations(name, discount):
    mdp, rng = WORLDS[name]().with_discount(discount), np.random.default_rng(0)
    P = mdp.transitions.toarray() if sp.issparse(mdp.transitions) else mdp.transitions
    elimination = Elimination.of(mdp.transitions, starts_of(mdp), discount)
    for share in (0.0, 0.5, 1.0):
        pi = random_policy(mdp, rng, share)
        P_pi = np.zeros((mdp.num_states, mdp.num_states))
        np.add.at(P_pi, mdp.state, pi[:, None] * P)
        P_pi /= P_pi.sum(axis=1, keepdims=True)  # rows are proportions
        matrix, factors = np.eye(mdp.num_states) - discount * P_pi, elimination.factors(pi)
        rhs = rng.random((mdp.num_states, 2))
        for solve, A in ((factors.values, matrix), (factors.visits, matrix.T)):
            x = solve(rhs)
            sizes = np.abs(A) @ np.abs(x) + np.abs(rhs)
            assert np.max(np.abs(A @ x - rhs) / sizes) <= 1e-13
            np.testing.assert_array_equal(solve(rhs[:, 0]), x[:, 0])


def test_visits_are_exact_to_rounding_in_every_entry():
    """Up with 1e-6 in each step, down otherwise: visits from 1 down to 1e-240, compared with exact fractions."""
    size, discount = 41, 0.99
    up = np.where(np.arange(size) < size - 1, 1e-6, 0.0)
    P = np.diag(up[:-1], 1)
    P[np.arange(size), np.maximum(np.arange(size) - 1, 0)] += 1 - up
    mdp = cm.MDP([P], {"cost": np.zeros(size)}, discount=discount, initial=np.eye(size)[0])
    x = Elimination.of(mdp.transitions, starts_of(mdp), discount).factors(np.ones(size)).visits(mdp.initial)
    # By elimination from the last state on: x_k = ratio_k x_(k-1).
    rows = [[Fraction(float(p)) for p in row] for row in P]
    rows = [[p / sum(row) for p in row] for row in rows]
    g, ratios = Fraction(discount), [Fraction(0)] * (size + 1)
    for k in range(size - 1, 0, -1):
        flow_down = g * rows[k + 1][k] * ratios[k + 1] if k + 1 < size else Fraction(0)
        ratios[k] = g * rows[k - 1][k] / (1 - g * rows[k][k] - flow_down)
    exact = [1 / (1 - g * rows[0][0] - g * rows[1][0] * ratios[1])]
    for k in range(1, size):
        exact.append(exact[-1] * ratios[k])
    assert float(exact[-1]) < 1e-235
    relative = [abs(Fraction(float(found)) / true - 1) for found, true in zip(x, exact, strict=True)]
    assert max(relative) <= 1e-13


@given(st.integers(1, 30), st.floats(0.0, 0.6), st.integers(0, 10**6))
def test_an_order_has_every_state_once(states, density, seed):
    graph = sp.random(states, states, density, random_state=seed, format="csr")
    order = minimum_degree(graph.indptr.astype(np.int32), graph.indices.astype(np.int32))[0]
    np.testing.assert_array_equal(np.sort(order), np.arange(states))


def test_the_order_keeps_the_fill_small():
    """On a grid, elimination takes a small multiple of S^1.5 multiplications; in the order of the rows it takes S^2."""
    for size in (20, 40):
        mdp = cm.worlds.gridworld(size=size)
        assert Elimination.of(mdp.transitions, starts_of(mdp), 0.9).work <= 20 * size**3
        assert Elimination.of(mdp.transitions, starts_of(mdp), 0.9, most_work=size**2) is None
    chain = cm.worlds.queue(500)
    assert Elimination.of(chain.transitions, starts_of(chain), 0.9).work <= 2 * 501
