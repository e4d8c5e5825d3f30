"""Compiled loops do the same on one thread and on several, and on arrays of every kind that callers may have."""

import numpy as np
import pytest
import scipy.sparse as sp

from cvxmdp import _dynamics, threads
from cvxmdp.constraints import kernels as sets
from cvxmdp.dynamics import in_order, kernels
from cvxmdp.engines import elementwise
from cvxmdp.engines import kernels as frozen
from cvxmdp.engines.frozen import frozen_program

GAMMA = 0.9


@pytest.fixture(params=[1, 3])
def count(request):
    threads.allow(request.param)
    yield request.param
    threads.allow(0)


class Model:
    """A random model with rows of 1 to 40 entries, large enough for threads to share a loop."""

    def __init__(self, states, seed=0):
        rng = self.rng = np.random.default_rng(seed)
        counts = rng.integers(1, 5, states)
        self.first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.owner = np.repeat(np.arange(states), counts)
        rows = [rng.choice(states, rng.integers(1, 41), replace=False) for _ in self.owner]
        starts = np.concatenate([[0], np.cumsum([row.size for row in rows])])
        data = rng.random(starts[-1])
        data /= np.repeat(np.add.reduceat(data, starts[:-1]), np.diff(starts))
        self.P = sp.csr_array((data, np.concatenate(rows), starts), shape=(self.owner.size, states))
        self.P.sort_indices()
        self.M = (GAMMA * self.P - sp.eye_array(states, format="csr")[self.owner]).tocsr()
        self.states, self.pairs = states, self.owner.size

    def csr(self, kind):
        return self.P.data, self.P.indices.astype(kind), self.P.indptr.astype(kind)


MODEL = Model(1500)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_products_are_those_of_the_matrix(kind, count):
    m, csr, rng = MODEL, MODEL.csr(kind), MODEL.rng
    c, V, d, e = rng.standard_normal(m.pairs), rng.standard_normal(m.states), rng.random(m.pairs), rng.random(m.pairs)
    d[::3], mask = 0.0, rng.random(m.pairs) < 0.5
    total = c + GAMMA * (m.P @ V)
    best, pair = kernels.sweep(*csr, m.first, GAMMA, c, V)
    np.testing.assert_allclose(best, np.minimum.reduceat(total, m.first[:-1]), atol=1e-12)
    np.testing.assert_allclose(total[pair], best, atol=1e-12)
    np.testing.assert_array_equal(m.owner[pair], np.arange(m.states))
    np.testing.assert_allclose(kernels.advantage(*csr, m.owner, GAMMA, c, V), c + m.M @ V, atol=1e-12)
    for width in (*range(1, 10), 20):
        C, W = rng.standard_normal((m.pairs, width)), rng.standard_normal((m.states, width))
        np.testing.assert_allclose(kernels.advantages(*csr, m.owner, GAMMA, C, W), C + m.M @ W, atol=1e-12)
    both = kernels.flow_of_two(*csr, m.first, GAMMA, d, e, m.first.size - 1)
    np.testing.assert_allclose(kernels.flow(*csr, m.first, GAMMA, d, m.first.size - 1), -m.M.T @ d, atol=1e-12)
    np.testing.assert_allclose(both, [-m.M.T @ d, -m.M.T @ e], atol=1e-12)
    dense = m.M.toarray()
    for weights in (d, mask):
        expected = m.M.T @ (weights * (m.M @ V))
        np.testing.assert_allclose(kernels.weighted(*csr, m.first, GAMMA, weights, V), expected, atol=1e-11)
        found = kernels.weighted_dense(m.P.toarray(), m.first, GAMMA, weights, V)
        np.testing.assert_allclose(found, expected, atol=1e-11)
    diagonal = d @ dense**2
    np.testing.assert_allclose(
        kernels.weighted_diagonal(*csr, m.first, GAMMA, d, m.first.size - 1), diagonal, atol=1e-12
    )
    np.testing.assert_allclose(kernels.weighted_diagonal_dense(m.P.toarray(), m.first, GAMMA, d), diagonal, atol=1e-12)
    gram = kernels.gram(*csr, m.owner, GAMMA, d, m.states)
    np.testing.assert_allclose(np.tril(gram), np.tril((m.M.T @ (m.M * d[:, None])).toarray()), atol=1e-11)
    E = sp.random_array((m.pairs, 3), density=0.5, rng=rng, format="csr")
    crossed = kernels.crossed(csr, m.owner, GAMMA, m.states, d, (E.data, E.indices, E.indptr), 3)
    np.testing.assert_allclose(crossed, (E * d[:, None]).T @ dense, atol=1e-12)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_policy_takes_its_rows(kind, count):
    m, csr, rng = MODEL, MODEL.csr(kind), MODEL.rng
    pi = rng.random(m.pairs) * (rng.random(m.pairs) < 0.6)
    P_pi = sp.csr_array((pi, np.arange(m.pairs), m.first), shape=(m.states, m.pairs)) @ m.P
    taken = kernels.taken(*csr, m.first, pi)
    assert [part.dtype for part in taken] == [np.float64, kind, kind]
    X = rng.standard_normal((m.states, 4))
    np.testing.assert_allclose(kernels.evaluated(*taken, GAMMA, X), X - GAMMA * (P_pi @ X), atol=1e-12)
    x = X[:, 0].copy()
    np.testing.assert_allclose(kernels.evaluated(*taken, GAMMA, x), x - GAMMA * (P_pi @ x), atol=1e-12)
    np.testing.assert_allclose(kernels.evaluated_back(*taken, GAMMA, x, x.size), x - GAMMA * (P_pi.T @ x), atol=1e-12)


@pytest.mark.parametrize("upward", [True, False])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_sweeps_in_order_reach_bellmans_equation_and_the_flow(kind, upward, count):
    m = MODEL
    model = in_order.NumberedModel(*m.csr(kind), m.first, GAMMA)
    c, V, pair = MODEL.rng.random(m.pairs), np.zeros(m.states), np.zeros(m.states, np.int64)
    for _ in range(300):
        if in_order.improve(model, c, V, pair, upward, count, (1e-13, 0.0))[1]:
            break
    total = c + GAMMA * (m.P @ V)
    np.testing.assert_allclose(V, np.minimum.reduceat(total, m.first[:-1]), atol=1e-11)
    np.testing.assert_allclose(total[pair], V, atol=1e-11)
    pi, waiting, x = np.zeros(m.pairs), np.ones(m.states), np.zeros(m.states)
    pi[pair] = 1.0
    rest = in_order.Rest(1e-16, 1e-9, 1.0)
    left, reached = in_order.push_often(model, pi, waiting, x, upward, rest, 500)
    assert reached
    assert left <= 1e-9
    np.testing.assert_allclose(x - GAMMA * (m.P[pair].T @ x), 1.0, atol=1e-8)
    rows, columns = m.P[pair].nonzero()
    chance = m.P[pair].data
    expected = [chance[mark].sum() / m.states for mark in (V[columns] < V[rows], columns < rows, columns > rows)]
    np.testing.assert_allclose(in_order.downhill(model, pair, V), expected, atol=1e-12)


def test_projections_do_not_depend_on_threads():
    rng = np.random.default_rng(1)
    y, weight, ratio = rng.standard_normal(50_001), 1.0 + rng.integers(0, 4, 50_001), rng.standard_normal(50_001)
    found = []
    for allowed in (1, 3):
        threads.allow(allowed)
        z, start, t = np.empty(y.size), np.empty(y.size), np.empty(y.size)
        sums = [sets.entropic(y, weight, ratio, 0.3, z), sets.entropic_start(y, weight, ratio, start)]
        sums += [sets.weighted(y, weight, 0.7), sets.power(np.abs(y), 2.7, 0.8, t)]
        found.append((z, start, t, np.array(sums)))
        threads.allow(0)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_the_frozen_program_does_not_depend_on_threads():
    rng = np.random.default_rng(2)
    first = np.arange(0, 1201, 3)
    A, x = rng.standard_normal((1200, 13)), np.full(400, 1 / 400)
    room = A[:, 1:].mean(axis=0) + 0.01
    found = []
    for parts in (1, 3):
        lam = np.ones(12)
        p, steps = frozen.interior_point(frozen_program(A, x, first, room), lam, 1e-3, 1e-7, 100, parts)
        assert steps > 0
        assert np.all(A[:, 1:].T @ p / 400 <= room + 1e-6)
        found.append((A[:, 0] @ p / 400, steps))
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_arrays_need_not_be_contiguous():
    m, csr, rng = MODEL, MODEL.csr(np.int32), MODEL.rng
    C, V = rng.standard_normal((m.pairs, 2)), rng.standard_normal((2, m.states)).T
    found = kernels.advantage(*csr, m.owner, GAMMA, C[:, 1], V[:, 1])
    np.testing.assert_allclose(found, C[:, 1] + m.M @ V[:, 1], atol=1e-12)
    np.testing.assert_allclose(kernels.advantages(*csr, m.owner, GAMMA, C, V), C + m.M @ V, atol=1e-12)


@pytest.mark.parametrize("d", [np.ones(3, np.float32), np.ones(3, int), [1.0, 1.0, 1.0]])
def test_arrays_of_another_kind_are_refused(d):
    with pytest.raises(TypeError):
        elementwise.reflected(d, np.ones((1, 3)))


def test_arguments_are_counted_and_numbers_of_one_matrix_are_of_one_kind():
    with pytest.raises(TypeError, match="arguments were given"):
        _dynamics.sweep(np.ones(1))
    data, indices, indptr = MODEL.csr(np.int32)
    with pytest.raises(TypeError, match="one kind"):
        kernels.flow(data, indices.astype(np.int64), indptr, MODEL.first, GAMMA, np.ones(MODEL.pairs), 3)
