"""The splitting's compiled loops against their formulas, and what a pass holds in memory."""

import tracemalloc

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.constraints.combine import Blocks
from cvxmdp.engines import elementwise
from cvxmdp.engines.douglas_rachford import iterates
from cvxmdp.engines.regularized import Regularized, newton, qrpi
from oracles import as_mdp, random_model

RNG = np.random.default_rng(0)
SIZE = 1000
SIGMA = 0.3


@pytest.mark.parametrize("rows", [1, 3])
def test_reflection_relaxation_and_sizes(rows):
    d, before = RNG.normal(size=(2, SIZE))
    w, z, anchor = RNG.normal(size=(3, rows, SIZE))
    np.testing.assert_allclose(elementwise.reflected(d, w), 2 * d - w, atol=1e-14)
    moved = w + 1.5 * (z - d)
    np.testing.assert_allclose(elementwise.relaxed(w, d, z, 1.5, anchor, 0.0), moved, atol=1e-14)
    expected = moved + (anchor - moved) / 5
    np.testing.assert_allclose(elementwise.relaxed(w, d, z, 1.5, anchor, 1 / 5), expected, atol=1e-14)
    found = elementwise.sizes(d, z, before)
    drift, step = np.abs(z - d), np.abs(d - before)
    np.testing.assert_allclose(found, [drift.sum(), np.sqrt((drift**2).sum()), drift.max(), step.sum(), step.max()])


def test_the_parts_of_the_prox():
    a, w, c, phi, change = RNG.normal(size=(5, SIZE))
    np.testing.assert_allclose(elementwise.pulled(w, SIGMA, c, phi), w / SIGMA - c + phi, atol=1e-13)
    d = np.empty(SIZE)
    square = elementwise.along(a, change, 0.25, w, SIGMA, d)
    ahead = a + 0.25 * change
    np.testing.assert_allclose(d, SIGMA * np.maximum(w / SIGMA - ahead, 0), atol=1e-14)
    assert square == pytest.approx(d @ d)
    elementwise.advance(change, 0.25, a)
    np.testing.assert_allclose(change, ahead, atol=1e-15)
    np.testing.assert_allclose(elementwise.part(change, w, SIGMA), d, atol=1e-14)
    np.testing.assert_allclose(change, np.maximum(ahead - w / SIGMA, 0), atol=1e-13)


MODEL = random_model(0, states=1500, actions=8, branching=20)
PAIRS = 12_000


def arrays_at_once(run):
    """The most memory that ``run`` takes at one time on top of what was there, in arrays over pairs."""
    run()  # factors and fills caches
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    run()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak / (8 * PAIRS)


def test_a_pass_holds_no_arrays_but_those_of_the_algorithm():
    """The reflected point with w, d and z; then the next w."""
    mdp = as_mdp(MODEL, sparse=True)
    ball = cm.NormBall(np.full(PAIRS, 1 / PAIRS), 1e-3).bind(mdp)
    d = np.full(PAIRS, 1 / PAIRS)

    class Nothing:
        blocks = (ball,)

        def prox(self, points, step):
            return points  # a set of everything

    def prox(w, sigma, accuracy):
        return Regularized(d, d, d, 0.0)

    def two_passes():
        passes = iterates(prox, Nothing(), np.zeros((1, PAIRS)), 1.0, 1.5, anchored=True)
        next(passes)
        next(passes)

    assert arrays_at_once(two_passes) < 4.5  # w, its successor, the anchor and z
    assert Blocks([ball], [], d).prox(d[None], 1.0).shape == (1, PAIRS)


@pytest.mark.parametrize(("how", "most"), [("qrpi", 4.0), ("newton", 5.5)])
def test_the_prox_holds_few_arrays(how, most):
    """QRPI the pulled point, phi and d; Newton a, its change, zeros, d and the part it returns; and what has states."""
    dynamics = as_mdp(MODEL, sparse=True).dynamics()
    c, w = MODEL["costs"]["cost"], np.full(PAIRS, 1 / PAIRS)
    V, phi = np.zeros(dynamics.num_states), np.zeros(PAIRS)

    def run():
        if how == "qrpi":
            qrpi(dynamics, c, w, 1e-4, V, phi, 2)
        else:
            newton(dynamics, c, w, 1e-4, V, 1e-3, 5)

    assert arrays_at_once(run) < most
