"""Half the squared distance to a set, against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import cvxmdp as cm
from cvxmdp.objectives.nearness import SquaredDistance

MDP = cm.worlds.gridworld(size=3)
N = MDP.num_pairs
SETS = {
    "rows": cm.Linear(np.random.default_rng(0).normal(size=(3, N)), at_most=[0.1, 0.2, -0.1]),
    "box": cm.Bounds(lower=0.01, upper=0.02).bind(MDP),
    "ball": cm.NormBall(np.full(N, 1 / N), 0.05),
    "1-norm ball": cm.NormBall(np.full(N, 1 / N), 0.05, norm=1),
    "entropy": cm.Entropy(3.0).bind(MDP),
}


def point(seed, scale=0.1):
    return np.abs(np.random.default_rng(seed).normal(size=N)) * scale


@pytest.mark.parametrize("name", SETS)
@given(seed=st.integers(0, 10**6), step=st.floats(0.01, 100.0))
def test_the_prox_is_the_least_of_its_definition(name, seed, step):
    term, y = SquaredDistance(SETS[name]), point(seed)
    z = term.prox(y, step)

    def objective(x):
        return term.value(x) + float((x - y) @ (x - y)) / (2 * step)

    gradient = (z - SETS[name].project(z)) + (z - y) / step
    np.testing.assert_allclose(gradient, 0.0, atol=2e-7 * (1 + 1 / step))
    for other in (y, SETS[name].project(y), z + 1e-3 * point(seed + 1)):
        assert objective(z) <= objective(other) + 1e-12


@pytest.mark.parametrize("name", SETS)
@given(seed=st.integers(0, 10**6))
def test_duals_are_gradients_and_their_conjugate_bounds_the_value(name, seed):
    term, y = SquaredDistance(SETS[name]), point(seed)
    nearest = SETS[name].project(y)
    u, conjugate = term.normal(term.gradient(y, nearest))
    np.testing.assert_allclose(u, y - nearest, atol=1e-9)
    for x in (y, nearest, point(seed + 1), point(seed + 2, 1.0)):
        assert u @ x - conjugate <= term.value(x) + 1e-9 * (1 + abs(conjugate))
    assert u @ y - conjugate == pytest.approx(term.value(y), abs=1e-9)  # tight where it was made
    proxed = term.prox(y, 2.0)
    np.testing.assert_allclose(term.normal(term.dual(y, proxed, 0.5))[0], (y - proxed) / 2, atol=1e-9)


@pytest.mark.parametrize("name", ["rows", "box", "ball", "1-norm ball"])
@given(seed=st.integers(0, 10**6))
def test_moved_sets_are_moved(name, seed):
    way, y = 0.1 * point(seed), point(seed + 1)
    moved = SETS[name].moved(way)
    np.testing.assert_allclose(moved.project(y + way), SETS[name].project(y) + way, atol=1e-9)
    dual = SETS[name].dual(y, SETS[name].project(y), 1.0)
    (u, support), (same, further) = SETS[name].normal(dual), moved.normal(dual)
    np.testing.assert_allclose(same, u, atol=1e-12)
    assert further == pytest.approx(support + u @ way, abs=1e-9)


def test_the_nearest_policy_agrees_with_a_general_minimizer():
    """Over policies: the least distance of an occupancy to limits that no policy obeys."""
    limits = [cm.Budget("collision", at_most=-0.01), cm.Budget("time", at_most=0.5)]
    solution = cm.Problem(MDP, "time", limits).solve(explain=False)
    low, high = solution.infeasibility.distance
    rows = np.stack([MDP.costs["collision"], MDP.costs["time"]])
    linear = cm.Linear(rows, at_most=[-0.01, 0.5])

    def distance(logits):
        pi = np.exp(logits - logits.max())
        pi /= np.bincount(MDP.state, pi)[MDP.state]
        d = MDP.evaluate(pi).occupancy
        return 1e3 * float(np.linalg.norm(d - linear.project(d)))

    found = min(
        minimize(distance, 3 * np.random.default_rng(seed).normal(size=N), method="L-BFGS-B").fun for seed in range(3)
    )
    assert low <= found / 1e3 + 1e-9
    assert high <= found / 1e3 * (1 + 1e-3)
    assert low == pytest.approx(high, rel=1e-6)
