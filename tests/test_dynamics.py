"""The numerical side of a model against its definitions, for every kind of matrix and every kind of linear solve.

With ``Xi`` the pairs' states, ``M = gamma P - Xi``.
"""

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp import memory
from cvxmdp.dynamics import choose
from cvxmdp.dynamics.choose import choose_dynamics
from cvxmdp.dynamics.dense import DenseDynamics
from cvxmdp.dynamics.linear import approximate
from cvxmdp.dynamics.plan import Plan, plan
from cvxmdp.dynamics.sparse import SparseDynamics
from oracles import as_mdp, flow_matrix, occupancy, random_model, random_policy, value

GB = 10**9

MODELS = {
    "dense": random_model(0, states=25),
    "thin": random_model(1, states=60, actions=2, branching=3),
    "ragged": random_model(2, states=25, actions=4, ragged=True, branching=5),
    "one state": random_model(3, states=1),
    "one action": random_model(4, states=12, actions=1),
    "patient": random_model(5, states=25, branching=4, discount=0.999),
}


def build(model, kind, how):
    """Dynamics over an array or over compressed rows, with all systems solved one way."""
    mdp = as_mdp(model, sparse=kind is SparseDynamics)
    other = "sparse" if how == "approximate" else how  # only a policy's own systems are solved that way
    return kind(mdp, mdp.transitions, Plan(how, other, other, "as the test asks"))


every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
every_kind = pytest.mark.parametrize("kind", [DenseDynamics, SparseDynamics])
every_way = pytest.mark.parametrize("how", ["dense", "sparse", "iterative", "approximate"])


# --------------------------------------------------------------------------------------------------- products


@every_kind
@every_model
def test_a_sweep_finds_the_least_cost_to_go_of_each_state_and_its_pair(model, kind):
    dynamics = build(model, kind, "dense")
    c, V = model["costs"]["cost"], np.random.default_rng(0).normal(size=model["P"].shape[1])
    best, pair = dynamics.sweep(c, V)
    for s in range(V.size):
        totals = {i: c[i] + model["discount"] * sum(model["P"][i] * V) for i in np.flatnonzero(model["state"] == s)}
        assert best[s] == pytest.approx(min(totals.values()), abs=1e-12)
        assert pair[s] == min(totals, key=totals.get)


@every_kind
def test_a_sweep_breaks_ties_by_the_first_pair(kind):
    model = random_model(0, states=3)
    model["P"][:] = 1 / 3
    best, pair = build(model, kind, "dense").sweep(np.zeros(9), np.ones(3))
    np.testing.assert_array_equal(pair, [0, 3, 6])
    np.testing.assert_allclose(best, 0.9)


@every_kind
@every_model
def test_advantage_and_flow_are_products_with_the_model(model, kind):
    dynamics, rng = build(model, kind, "dense"), np.random.default_rng(1)
    M = -flow_matrix(model).T
    c, V, d = model["costs"]["cost"], rng.normal(size=M.shape[1]), rng.normal(size=M.shape[0])
    d[rng.random(d.size) < 0.3] = 0.0
    np.testing.assert_allclose(dynamics.advantage(c, V), c + M @ V, atol=1e-12)
    np.testing.assert_allclose(dynamics.flow(d), -M.T @ d, atol=1e-12)
    for found, given in zip(dynamics.flow_of_two(d, d**2), (d, d**2), strict=True):
        np.testing.assert_allclose(found, -M.T @ given, atol=1e-12)


@every_kind
@every_way
@every_model
def test_gram_is_the_product_of_the_model_with_itself(model, kind, how):
    M = -flow_matrix(model).T
    for weights in (np.ones(len(M)), np.random.default_rng(0).uniform(size=len(M))):
        gram = build(model, kind, how).gram(weights)
        gram = gram.toarray() if sp.issparse(gram) else gram
        expected = M.T @ (weights[:, None] * M)
        np.testing.assert_allclose(np.tril(gram), np.tril(expected), atol=1e-12)  # the lower triangle is what is used


@every_kind
@every_way
@every_model
def test_flows_are_the_flow_of_each_column(model, kind, how):
    dynamics, X = build(model, kind, how), np.random.default_rng(0).normal(size=(len(model["state"]), 3))
    np.testing.assert_allclose(dynamics.flows(X), flow_matrix(model) @ X, atol=1e-12)
    thin = dynamics.flows(sp.csc_array(X))
    thin = thin.toarray() if sp.issparse(thin) else thin
    np.testing.assert_allclose(thin, flow_matrix(model) @ X, atol=1e-12)


@every_kind
def test_every_product_is_counted_as_a_pass(kind):
    dynamics = build(MODELS["dense"], kind, "dense")
    dynamics.sweep(np.zeros(75), np.zeros(25))
    dynamics.advantage(np.zeros(75), np.zeros(25))
    dynamics.flow(np.zeros(75))
    dynamics.flow_of_two(np.zeros(75), np.zeros(75))
    assert dynamics.passes == 4


# ----------------------------------------------------------------------------------------------------- solves


@every_kind
@every_way
@every_model
def test_a_policy_is_evaluated_forward_and_backward(model, kind, how):
    dynamics = build(model, kind, how)
    uniform, c = random_policy(model, 2), model["costs"]["cost"]
    first = np.zeros(c.size)
    first[np.searchsorted(model["state"], np.arange(model["P"].shape[1]))] = 1.0
    for pi in (uniform, first):
        V = value(model, pi, c)
        np.testing.assert_allclose(dynamics.value(pi, c), V, atol=1e-9 * max(1, np.abs(V).max()))
        np.testing.assert_allclose(dynamics.occupancy(pi), occupancy(model, pi), atol=1e-11)


@every_kind
@every_way
@every_model
def test_a_policy_is_evaluated_for_several_costs_at_once(model, kind, how):
    dynamics, pi = build(model, kind, how), random_policy(model, 4)
    costs = np.random.default_rng(1).normal(size=(len(model["state"]), 3))
    costs[:, 1] = 0.0
    visits, V, A = dynamics.evaluate(pi, costs, 1e-13)
    states = model["P"].shape[1]
    d = occupancy(model, pi)
    np.testing.assert_allclose(visits, np.bincount(model["state"], weights=d, minlength=states), atol=1e-11)
    for k in range(3):
        expected = value(model, pi, costs[:, k])
        size = max(1, np.abs(expected).max())
        np.testing.assert_allclose(V[:, k], expected, atol=1e-9 * size)
        advantage = costs[:, k] + model["discount"] * model["P"] @ expected - expected[model["state"]]
        np.testing.assert_allclose(A[:, k], advantage, atol=1e-9 * size)
    sure = np.zeros(len(pi))
    sure[np.searchsorted(model["state"], np.arange(states))] = 1.0
    before = dynamics.passes
    dynamics.evaluate(sure, costs, 1e-13)
    if len(pi) > states:  # else the policy takes all pairs
        assert dynamics.passes == before + 1  # for the advantages: else only the rows of taken pairs are read


@every_kind
@every_way
@every_model
def test_regularized_evaluation_solves_its_normal_equations(model, kind, how):
    """Checked by the residual, which asks the same of direct and iterative solves whatever the conditioning."""
    dynamics, rng = build(model, kind, how), np.random.default_rng(3)
    M = -flow_matrix(model).T
    H = M.T @ M
    for start in (np.zeros(len(H)), rng.normal(size=len(H))):
        rhs = rng.normal(size=len(H))
        V = dynamics.solve_normal(rhs, start)
        assert np.linalg.norm(H @ V - rhs) <= 1e-9 * np.linalg.norm(rhs)


@every_kind
@pytest.mark.parametrize("name", ["dense", "thin", "ragged"])
def test_direct_and_iterative_solves_agree(name, kind):
    model = MODELS[name]
    pi, c, size = random_policy(model, 4), model["costs"]["cost"], model["P"].shape[1]
    rhs = np.random.default_rng(5).normal(size=size)
    answers = []
    for how in ("dense", "sparse", "iterative"):
        dynamics = build(model, kind, how)
        answers.append(
            np.concatenate([dynamics.value(pi, c), dynamics.occupancy(pi), dynamics.solve_normal(rhs, np.zeros(size))])
        )
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], atol=1e-9, rtol=1e-9)


def visited_system(model, visited):
    M = -flow_matrix(model).T[visited]
    return M.T @ M


@every_kind
@pytest.mark.parametrize("how", ["dense", "sparse"])
@every_model
def test_newtons_system_over_the_visited_pairs_is_solved_directly(model, kind, how):
    """Each state keeps a pair, so the matrix is definite and a tiny shift does not matter."""
    rng = np.random.default_rng(6)
    visited = rng.random(model["state"].size) < 0.4
    visited[np.searchsorted(model["state"], np.arange(model["P"].shape[1]))] = True
    H = visited_system(model, visited)
    rhs = rng.normal(size=len(H))
    found = build(model, kind, how).solve_visited(visited, 1e-15, rhs)
    assert np.linalg.norm(H @ found - rhs) <= 1e-6 * np.linalg.norm(rhs)


@every_kind
@every_model
def test_newtons_system_is_solved_roughly_by_iteration(model, kind):
    """A Newton step needs two digits, no more."""
    rng = np.random.default_rng(7)
    visited = rng.random(model["state"].size) < 0.4
    visited[np.searchsorted(model["state"], np.arange(model["P"].shape[1]))] = True
    H = visited_system(model, visited)
    rhs = rng.normal(size=len(H))
    found = build(model, kind, "iterative").solve_visited(visited, 1e-12, rhs)
    assert np.linalg.norm(H @ found - rhs) <= 1.1e-2 * np.linalg.norm(rhs)


@every_kind
@every_way
def test_the_shift_keeps_newtons_system_solvable_when_most_states_keep_no_pair(kind, how):
    """A right-hand side in the range of the singular matrix is still met."""
    model = random_model(8, states=10)
    visited = np.zeros(30, dtype=bool)
    visited[[0, 7, 14, 29]] = True
    H = visited_system(model, visited)
    assert np.linalg.matrix_rank(H) == 4
    rhs = H @ np.random.default_rng(8).normal(size=10)
    found = build(model, kind, how).solve_visited(visited, 1e-9, rhs)
    assert np.linalg.norm(H @ found - rhs) <= 1.1e-2 * np.linalg.norm(rhs)


@every_kind
def test_iteration_on_a_slow_chain_still_converges(kind):
    """A ring of 200 states walked one way: the worst case for Krylov methods, each step sees one state more."""
    model = random_model(9, states=200, actions=1, discount=0.99)
    model["P"] = np.roll(np.eye(200), 1, axis=1)
    pi, c = np.ones(200), model["costs"]["cost"]
    dynamics = build(model, kind, "iterative")
    np.testing.assert_allclose(dynamics.value(pi, c), value(model, pi, c), atol=1e-9)
    np.testing.assert_allclose(dynamics.occupancy(pi), occupancy(model, pi), atol=1e-11)


@every_kind
@every_way
@pytest.mark.parametrize("size", [0.0, 1.0, 1e6])
def test_where_an_evaluation_begins_does_not_change_its_answer(kind, how, size):
    model = MODELS["dense"]
    dynamics, pi, rng = build(model, kind, how), random_policy(model, 4), np.random.default_rng(2)
    costs, start = rng.normal(size=(75, 2)), size * rng.normal(size=(25, 2))
    visits, V, _ = dynamics.evaluate(pi, costs, 1e-13, size * rng.uniform(size=25), start)
    d = occupancy(model, pi)
    np.testing.assert_allclose(visits, np.bincount(model["state"], weights=d), atol=1e-11)
    for k in range(2):
        np.testing.assert_allclose(V[:, k], value(model, pi, costs[:, k]), atol=1e-8)
    np.testing.assert_allclose(dynamics.value(pi, costs[:, 0], start[:, 0]), V[:, 0], atol=1e-8)


def chain(P, discount, forward):
    """``x - gamma P x``, or with the transpose, and how often it was asked for."""
    calls = []

    def apply(x):
        calls.append(1)
        return x - discount * ((P if forward else P.T) @ x)

    return apply, calls


@pytest.mark.parametrize("forward", [True, False])
def test_successive_approximations_need_few_products_where_the_chain_mixes(forward):
    """At discount 0.999 value iteration would need thousands: the slow direction is taken out."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(50), size=50)
    apply, calls = chain(P, 0.999, forward)
    rhs = rng.normal(size=50) if forward else 0.001 * rng.dirichlet(np.ones(50))
    x, found = approximate(apply, 0.999, rhs, np.zeros(50), 1e-12, forward)
    assert found
    assert len(calls) <= 25
    A = np.eye(50) - 0.999 * (P if forward else P.T)
    np.testing.assert_allclose(x, np.linalg.solve(A, rhs), rtol=1e-8)


@pytest.mark.parametrize("forward", [True, False])
def test_successive_approximations_end_soon_where_the_chain_does_not_mix(forward):
    apply, calls = chain(np.roll(np.eye(50), 1, axis=1), 0.999, forward)
    _, found = approximate(apply, 0.999, np.eye(50)[0], np.zeros(50), 1e-12, forward)
    assert not found
    assert len(calls) <= 5


# ------------------------------------------------------------------------------------------------------- plan


def test_dense_factors_that_do_not_fit_are_refused_when_asked_for():
    """Matrix and factor of 1000 states take 16 MB, and at most half of what is free may be taken."""
    assert plan(1000, 10_000, 10**6, "direct", memory=32 * 10**6).normal == "dense"
    with pytest.raises(MemoryError, match=r"1000 states takes 0\.0 GB .* evaluation=\"iterative\""):
        plan(1000, 10_000, 10**6, "direct", memory=32 * 10**6 - 2)


def test_dense_factors_that_do_not_fit_are_avoided_when_the_choice_is_free():
    assert plan(1000, 10_000, 10**6, "auto", memory=32 * 10**6).normal == "dense"
    tight = plan(1000, 10_000, 10**6, "auto", memory=32 * 10**6 - 2)
    assert (tight.policy, tight.normal, tight.visited) == ("iterative",) * 3


@pytest.mark.parametrize(
    ("states", "entries_per_row", "expected"),
    [
        (400, 3, ("dense", "dense", "iterative")),
        (200, 3, ("dense", "dense", "dense")),
        (401, 16, ("approximate", "sparse", "sparse")),
        (401, 17, ("approximate", "dense", "iterative")),
        (3000, 17, ("approximate", "dense", "iterative")),
        (3001, 17, ("iterative", "dense", "iterative")),
        (20_000, 5, ("approximate", "sparse", "sparse")),
        (20_001, 5, ("approximate", "iterative", "iterative")),
        (1_500_000, 5, ("approximate", "iterative", "iterative")),
        (1_500_001, 5, ("iterative", "iterative", "iterative")),
        (8000, 100, ("iterative", "dense", "iterative")),
        (8001, 100, ("iterative", "iterative", "iterative")),
    ],
)
def test_the_free_choice_follows_size_and_density(states, entries_per_row, expected):
    found = plan(states, 4 * states, 4 * states * entries_per_row, "auto", memory=64 * GB)
    assert (found.policy, found.normal, found.visited) == expected


def test_models_that_spread_are_not_factored():
    """A sparse factor of a random model fills up, and its ordering keeps Ctrl-C from being heard for seconds."""
    garnet = cm.worlds.garnet(states=4000, actions=3, branching=3 / 4000, seed=1)
    found = garnet.dynamics().plan
    assert (found.policy, found.normal, found.thin) == ("iterative", "dense", False)
    grid = cm.worlds.gridworld(size=64)
    assert grid.dynamics().plan.normal == "sparse"
    # One state from which everything begins anew does not make a model spread.
    P = grid.transitions.tolil()
    P[:4] = 1 / grid.num_states
    anew = cm.MDP.from_pairs(grid.state, grid.action, P.tocsr(), dict(grid.costs), grid.discount, grid.initial)
    assert anew.dynamics().plan.normal == "sparse"


def test_asking_for_one_way_gives_that_way():
    for entries, kind in ((3, "sparse"), (300, "dense")):
        found = plan(1000, 4000, 4000 * entries, "direct", memory=64 * GB)
        assert (found.policy, found.normal, found.visited) == (kind,) * 3
        found = plan(1000, 4000, 4000 * entries, "iterative", memory=0)
        assert (found.policy, found.normal, found.visited) == ("iterative",) * 3


def test_there_is_memory():
    assert 10**6 < memory.available_memory() < 10**15


@pytest.mark.parametrize("version", [1, 2])
def test_memory_that_a_control_group_leaves(version, tmp_path):
    said, limit, used, pages = {
        1: ("4:cpu,memory:/job/step", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("0::/job/step", "memory.max", "memory.current", "inactive_file"),
    }[version]
    mounted = tmp_path / "cgroup"
    own = (mounted / "memory" if version == 1 else mounted) / "job" / "step"
    own.mkdir(parents=True)
    (tmp_path / "said").write_text(f"7:freezer:/\n{said}\n")
    for group, most in ((own, "max"), (own.parent, "1000")):  # the limit is the job's, of which this is a step
        (group / limit).write_text(f"{most}\n")
        (group / used).write_text("700\n")
        (group / "memory.stat").write_text(f"cache 5\n{pages} 200\n")
    assert memory._left_to_groups(tmp_path / "said", mounted) == [500]
    (own.parent / limit).write_text("300\n")
    assert memory._left_to_groups(tmp_path / "said", mounted) == [0]
    assert memory._left_to_groups(tmp_path / "none", mounted) == []


# ----------------------------------------------------------------------------------------------------- choice

SMALL = random_model(10, states=30, branching=2)
THIN = random_model(11, states=300, actions=3, branching=5)  # 270 000 entries
FULL = random_model(12, states=300, actions=3)


@pytest.mark.parametrize(
    ("model", "sparse", "kind"),
    [
        (SMALL, False, SparseDynamics),
        (SMALL, True, SparseDynamics),
        (THIN, False, SparseDynamics),
        (THIN, True, SparseDynamics),
        (FULL, False, DenseDynamics),
        (FULL, True, DenseDynamics),
    ],
    ids=["small array", "small csr", "thin array", "thin csr", "full array", "full csr"],
)
def test_the_kind_of_matrix_follows_density_and_not_the_users_form(model, sparse, kind):
    mdp = as_mdp(model, sparse)
    dynamics = choose_dynamics(mdp)
    assert type(dynamics) is kind
    V = np.random.default_rng(13).normal(size=mdp.num_states)
    c = model["costs"]["cost"]
    np.testing.assert_allclose(dynamics.advantage(c, V), c - flow_matrix(model).T @ V, atol=1e-12)


def test_what_does_not_fit_is_never_made_dense(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 10**6)
    assert type(choose_dynamics(as_mdp(FULL, sparse=True))) is SparseDynamics
    assert type(choose_dynamics(as_mdp(FULL, sparse=False))) is DenseDynamics  # it is held already


def test_a_direct_evaluation_that_does_not_fit_is_a_memory_error(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 10**6)
    with pytest.raises(MemoryError, match="300 states"):
        choose_dynamics(as_mdp(FULL), "direct")
    assert choose_dynamics(as_mdp(FULL), "auto").plan.normal == "iterative"


def test_a_new_backend_is_one_class_and_one_entry_of_the_table(monkeypatch):
    """One that holds P by columns, and takes models of less than ten states."""

    class ByColumns(SparseDynamics):
        @staticmethod
        def held(P, nonzeros, memory):
            return sp.csr_array(P) if P.shape[1] < 10 else None

        def advantage(self, c, V):
            by_columns = sp.csc_array(self.P)
            return c + self.gamma * (by_columns @ V) - V[self.owner]

    monkeypatch.setattr(choose, "BACKENDS", [ByColumns, *choose.BACKENDS])
    mdp = cm.worlds.garnet(6, 3, 0.5, seed=4)
    problem = cm.Problem(mdp, "cost", [cm.Entropy(at_least=0.5)])
    assert type(mdp.dynamics()) is ByColumns
    assert type(choose_dynamics(as_mdp(FULL))) is DenseDynamics
    found = problem.solve()
    monkeypatch.undo()
    usual = cm.Problem(cm.worlds.garnet(6, 3, 0.5, seed=4), "cost", [cm.Entropy(at_least=0.5)]).solve()
    assert found.status is cm.Status.OPTIMAL
    assert found.value == pytest.approx(usual.value, rel=1e-5)


def test_a_model_builds_its_dynamics_once_for_each_way_of_evaluating():
    mdp = as_mdp(SMALL)
    assert mdp.dynamics() is mdp.dynamics()
    assert mdp.dynamics("iterative").plan.normal == "iterative"
    assert mdp.dynamics("iterative") is not mdp.dynamics()


def test_a_slow_chain_is_evaluated_by_products_where_a_factor_would_take_longer():
    """Machines that wear mix in hundreds of steps, each of which takes a ten thousandth of a factor."""
    mdp = cm.worlds.maintenance(4, 6, discount=0.999)
    dynamics = choose_dynamics(mdp)
    assert dynamics.elimination is None
    pi = 1 / np.bincount(mdp.state)[mdp.state]
    x = dynamics.visits(pi)
    assert dynamics._last is None  # no factor was made
    weighted = sp.diags_array(pi) @ sp.csr_array(mdp.transitions)
    P_pi = sp.csr_array((np.ones(mdp.num_pairs), (mdp.state, np.arange(mdp.num_pairs)))) @ weighted
    np.testing.assert_allclose(x - mdp.discount * P_pi.T @ x, (1 - mdp.discount) * mdp.initial, atol=1e-14)
