"""Models of all shapes and with any names, to be written to files, and what it means that they come back."""

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

import cvxmdp as cm


def same(again, mdp):
    assert tuple(again.states) == tuple(mdp.states)
    assert tuple(again.actions) == tuple(mdp.actions)
    np.testing.assert_array_equal(again.state, mdp.state)
    np.testing.assert_array_equal(again.action, mdp.action)
    np.testing.assert_array_equal(sp.csr_array(again.transitions).toarray(), sp.csr_array(mdp.transitions).toarray())
    assert list(again.costs) == list(mdp.costs)
    for name, cost in mdp.costs.items():
        np.testing.assert_array_equal(again.costs[name], cost)
    np.testing.assert_allclose(again.initial, mdp.initial, rtol=1e-15)
    assert {k: list(v) for k, v in again.labels.items()} == {k: list(v) for k, v in mdp.labels.items()}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["x=0,b=true", "x=-3,b=false", "go#2", "go", "#1", "#2", "<script>", '"', "a,b", "\n", "init2", "P", "-", "0"]
)


@st.composite
def models(draw, even=False):
    """Ragged models with any names, dense or sparse."""
    states = draw(st.integers(1, 5))
    names = draw(st.none() | st.lists(TEXTS, min_size=states, max_size=states, unique=True))
    actions = draw(st.none() | st.lists(TEXTS.filter(bool), min_size=4, max_size=6, unique=True))
    offered = [sorted(draw(st.sets(st.integers(0, 3), min_size=1))) for _ in range(states)]
    state = [s for s, some in enumerate(offered) for _ in some]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    P = rng.dirichlet(np.full(states, 0.3), len(state))
    costs = {
        name: rng.choice([0.0, 1e-8, 1 / 3, -1e8], len(state))
        for name in draw(st.lists(TEXTS.filter(bool), min_size=1, max_size=3, unique=True))
    }
    if draw(st.booleans()):
        costs["by state"] = rng.random(states)[state]
    labels = {name: sorted(draw(st.sets(st.integers(0, states - 1)))) for name in draw(st.sets(TEXTS, max_size=3))}
    first = rng.permutation(states)[: draw(st.integers(1, states))]
    initial = np.zeros(states)
    initial[first] = 1.0 if even else rng.random(first.size) + 0.1
    transitions = sp.csr_array(P) if draw(st.booleans()) else P
    return cm.MDP.from_pairs(
        state,
        [a for some in offered for a in some],
        transitions,
        costs,
        0.9,
        initial / initial.sum(),
        names,
        actions,
        labels,
    )
