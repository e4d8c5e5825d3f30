"""The program with frozen visits against HiGHS on the same program written out, and the rounds that use it."""

from dataclasses import replace

import clarabel
import hypothesis
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import cvxmdp as cm
import fresh
from cvxmdp.engines import frozen
from cvxmdp.engines.frozen import frozen_program, solve_frozen
from oracles import conic_optimum

ACCURACY = 1e-9


def program(seed, states=8, most_actions=4, limits=3, equalities=0, slack=0.1):
    """Random advantages over ragged actions, with limits that a random policy obeys with some slack."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, most_actions + 1, states)
    first = np.concatenate([[0], np.cumsum(counts)])
    A = rng.normal(size=(first[-1], 1 + limits))
    x = rng.exponential(size=states)
    x /= x.sum()
    some = rng.exponential(size=first[-1])
    some /= np.repeat(np.add.reduceat(some, first[:-1]), counts)
    done = (np.repeat(x, counts) * some) @ A[:, 1:]
    equal = np.arange(limits) < equalities
    return A, x, first, np.where(equal, done, done + slack * rng.random(limits)), equal


def highs(A, x, first, room, equal):
    """The same program, written out."""
    counts = np.diff(first)
    owner = np.repeat(np.arange(x.size), counts)
    one = (owner == np.arange(x.size)[:, None]).astype(float)
    rows = (A[:, 1:] * x[owner, None]).T
    return linprog(
        A[:, 0] * x[owner], A_ub=rows[~equal], b_ub=room[~equal], A_eq=np.vstack([one, rows[equal]]),
        b_eq=np.concatenate([np.ones(x.size), room[equal]]), method="highs",
    )  # fmt: skip


def check(A, x, first, room, equal):
    found = solve_frozen(frozen_program(A, x, first, room, equal), np.where(equal, 0.0, 0.3), ACCURACY)
    assert found is not None
    best = highs(A, x, first, room, equal)
    assert best.status == 0
    weights = np.repeat(x, np.diff(first))
    np.testing.assert_allclose(np.add.reduceat(found.policy, first[:-1]), 1.0, atol=1e-12)
    assert np.all(found.policy >= 0)
    done = (weights * found.policy) @ A
    assert done[0] == pytest.approx(best.fun, abs=1e-6)
    assert np.all(np.where(equal, np.abs(done[1:] - room), done[1:] - room) <= 1e-6)
    # The multipliers prove it: with them as prices the best action in each state costs as much.
    assert np.all(found.multipliers[~equal] >= 0)
    priced = A[:, 0] + A[:, 1:] @ found.multipliers
    dual = x @ np.minimum.reduceat(priced, first[:-1]) - found.multipliers @ room
    assert dual == pytest.approx(best.fun, abs=1e-6)
    assert found.least == pytest.approx(priced.min(), abs=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 5), st.integers(1, 5))
def test_the_program_is_solved_as_highs_solves_it(seed, states, actions, limits):
    check(*program(seed, states, actions, limits))


@pytest.mark.parametrize("fresh_seed", [fresh.SEED], ids=lambda number: f"seed {number}")
@hypothesis.seed(fresh.SEED)
@settings(derandomize=False, database=None)
@given(number=st.integers(0, 10**9), states=st.integers(1, 12), actions=st.integers(1, 5), limits=st.integers(1, 5))
def test_programs_that_nobody_has_met_are_solved_as_highs_solves_them(fresh_seed, number, states, actions, limits):
    """New ones in every run, see ``reference/fresh.py``."""
    check(*program(number, states, actions, limits))


@given(st.integers(0, 10**6), st.integers(3, 12), st.integers(1, 2))
def test_rows_may_be_equalities(seed, states, equalities):
    check(*program(seed, states, 4, 3, equalities))


@pytest.mark.parametrize(("seed", "states"), [(0, 450), (1, 450), (2, 1000)])
def test_large_programs_begin_at_the_prices_of_a_sample(seed, states, monkeypatch):
    """The answer is that of the whole program; a sample that tells nothing does not change it."""
    given = program(seed, states)
    check(*given)
    drawn = []

    def misleading(whole):
        drawn.append(whole.x.size)
        return replace(whole, A=-whole.A[: whole.first[5]], x=whole.x[:5], first=whole.first[:6])

    monkeypatch.setattr(frozen, "_sampled", misleading)
    check(*given)
    assert drawn == [states]


def test_a_sample_weighs_as_much_as_the_whole():
    A, x, first, room, equal = program(3, 1000)
    x[17] = 0.5  # a state that is visited half of the time
    sample = frozen._sampled(frozen_program(A, x, first, room, equal))
    some, weights, ends = sample.A, sample.x, sample.first
    assert weights.sum() == pytest.approx(x.sum())
    assert weights.max() == pytest.approx(0.5, rel=0.05)
    assert len(some) == ends[-1]
    counts = np.diff(first)
    mean = np.repeat(x / counts, counts) @ A
    sampled = np.repeat(weights / np.diff(ends), np.diff(ends)) @ some
    np.testing.assert_allclose(sampled, mean, atol=0.2)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_advantages_of_other_sizes(scale):
    A, x, first, room, equal = program(5)
    A[:, 0] *= scale
    found = solve_frozen(frozen_program(A, x, first, room, equal), np.full(3, 0.3), ACCURACY * scale)
    best = highs(A, x, first, room, equal)
    assert (np.repeat(x, np.diff(first)) * found.policy) @ A[:, 0] == pytest.approx(best.fun, abs=1e-6 * scale)


def test_a_state_that_is_never_visited_takes_its_best_action():
    A, x, first, room, equal = program(3, states=6, most_actions=4)
    counts = np.diff(first)
    s = int(np.argmax(counts))
    x[s] = 0.0
    found = solve_frozen(frozen_program(A, x, first, room + 1.0, equal), np.full(3, 0.3), ACCURACY)
    pairs = np.arange(first[s], first[s + 1])
    priced = A[pairs, 0] + A[pairs, 1:] @ found.multipliers
    np.testing.assert_array_equal(found.policy[pairs], (pairs == pairs[np.argmin(priced)]).astype(float))


def test_a_program_without_a_solution_has_none():
    A, x, first, room, equal = program(1)
    assert highs(A, x, first, room - 10.0, equal).status == 2
    assert solve_frozen(frozen_program(A, x, first, room - 10.0, equal), np.full(3, 0.3), ACCURACY) is None


@pytest.mark.parametrize("branching", [0.05, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_few_rounds_and_few_passes_over_the_model_prove_the_optimum(seed, branching):
    """Ten random rows that a random policy obeys: the number of passes does not grow with the number of states."""
    passes = []
    for states in (50, 400):
        mdp = cm.worlds.garnet(states, 6, branching, seed=seed)
        rng = np.random.default_rng(seed)
        E = rng.normal(size=(10, mdp.num_pairs))
        table = rng.exponential(size=(states, 6))
        done = E @ mdp.evaluate(table / table.sum(axis=1, keepdims=True)).occupancy
        problem = cm.Problem(mdp, "cost", [cm.Linear(E, at_most=done)])
        solution = problem.solve()
        assert solution.status is cm.Status.OPTIMAL
        solution.certificate.check(problem)
        passes.append(solution.stats.sweeps)
    assert max(passes) <= 60


@given(st.integers(0, 10**6), st.integers(2, 10), st.integers(1, 4), st.integers(0, 1), st.booleans())
def test_limits_that_give_way_are_met_as_a_qp_solver_meets_them(seed, states, limits, equalities, cost):
    """``min x A_0 p + r'G^-1 r / 2`` with ``x A p <= room + r``: Clarabel on the same program, r = G m."""
    A, x, first, room, equal = program(seed, states, 3, limits, min(equalities, limits), slack=-0.5)
    A = A if cost else np.hstack([np.zeros((len(A), 1)), A[:, 1:]])
    root = np.random.default_rng([seed, 5]).normal(size=(limits, limits + 1))
    G = root @ root.T + 0.1 * np.eye(limits)
    found = solve_frozen(frozen_program(A, x, first, room, equal, G), np.where(equal, 0.0, 0.3), ACCURACY)
    assert found is not None
    counts = np.diff(first)
    weights = np.repeat(x, counts)
    rows = (A[:, 1:] * weights[:, None]).T
    one = (np.repeat(np.arange(x.size), counts) == np.arange(x.size)[:, None]).astype(float)
    pairs = len(A)
    sides = [
        (np.hstack([one, np.zeros((x.size, limits))]), np.ones(x.size), clarabel.ZeroConeT(x.size)),
        (np.hstack([-np.eye(pairs), np.zeros((pairs, limits))]), np.zeros(pairs), clarabel.NonnegativeConeT(pairs)),
    ]
    for k in range(limits):
        kind = clarabel.ZeroConeT(1) if equal[k] else clarabel.NonnegativeConeT(1)
        sides.append((np.append(rows[k], -np.eye(limits)[k])[None, :], room[[k]], kind))
    P = sp.block_diag([np.zeros((pairs, pairs)), np.linalg.inv(G)])
    q = np.concatenate([A[:, 0] * weights, np.zeros(limits)])
    point, _ = conic_optimum(P, q, sides)
    best = q @ point + point @ (P @ point) / 2
    m = found.multipliers
    done = (weights * found.policy) @ A
    excess = np.where(equal, done[1:] - room - G @ m, np.maximum(done[1:] - room - G @ m, 0.0))
    assert np.max(np.abs(excess)) <= 1e-6
    assert done[0] + m @ G @ m / 2 == pytest.approx(best, abs=1e-5)
    # Its dual value proves it.
    priced = A[:, 0] + A[:, 1:] @ m
    dual = x @ np.minimum.reduceat(priced, first[:-1]) - m @ room - m @ G @ m / 2
    assert dual == pytest.approx(best, abs=1e-5)
