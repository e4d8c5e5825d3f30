"""The harness of the benchmarks: its judge, its solvers, its limits and its file, on models of 15 states."""

import json
import pickle
from importlib.util import find_spec
from itertools import islice

import harness
import instances
import numpy as np
import peers
import primal_dual
import process
import pytest
import referee
import scipy.sparse as sp

import oracles

STATES, BRANCHING = 15, 0.4
PROVEN = ("ours", "ours-splitting", "scipy-highs", "clarabel")
"""Solvers that reach 1e-6; the others are asked for what the benchmarks ask of them."""
PDM_STOPS = (60, 0.4, 3)
"""States, branching and seed of a linear instance on which the paper's primal-dual method meets its stopping test."""
APPROXIMATE = ("ours-as-in-paper", "pdm", "scs-in-time")
"""Solvers that stop by tests of their own, whatever the accuracy asked."""


def as_model(instance):
    """The instance as reference/oracles.py holds a model."""
    P = instance.P.toarray() if sp.issparse(instance.P) else instance.P
    return {"state": instance.state, "P": P, "discount": instance.gamma, "initial": instance.rho}


@pytest.fixture(scope="module")
def linear():
    seed = instances.seeds("linear", STATES, BRANCHING, 1, first=0)[0][0]
    return instances.make("linear", STATES, BRANCHING, seed)


def pickled(folder, **named):
    files = []
    for name, instance in named.items():
        files.append(folder / name)
        files[-1].write_bytes(pickle.dumps(instance))
    return files


@pytest.fixture(scope="module")
def files(linear, tmp_path_factory):
    return pickled(tmp_path_factory.mktemp("job"), instance=linear, warm_up=linear)


SIZES = {"panels": 625, "grid": 16, "free-grid": 16}


@pytest.mark.parametrize("case", instances.CASES)
def test_the_referee_agrees_with_the_definitions(case):
    instance = instances.make(case, SIZES.get(case, STATES), BRANCHING, seed=3)
    d = np.random.default_rng(0).exponential(size=instance.c.size)
    d[:4] = 0.0
    pi = d.copy()
    for s in range(instance.states):
        mine = instance.state == s
        pi[mine] = d[mine] / d[mine].sum() if d[mine].sum() > 0 else 1 / mine.sum()
    true = oracles.occupancy(as_model(instance), pi)
    found = referee.judge(instance, d)
    assert found["objective"] == pytest.approx(instance.c @ true, abs=1e-12)
    assert found["scale"] == pytest.approx(np.abs(instance.c) @ true, abs=1e-12)
    assert found["open_flow"] < 1e-12
    limit, some, expected = instance.limit, true[true > 0], []
    if case in ("linear", "linear-fit", "caps", "grid", "panels"):
        E = limit.E.toarray() if sp.issparse(limit.E) else limit.E
        for row, b in zip(E, limit.b, strict=True):
            expected.append(max(row @ true - b, 0) / max(abs(b), np.abs(row) @ true))
    elif case in ("ball", "ball-fit", "ball-half"):
        expected = [max(np.sqrt(np.sum((true - limit.center) ** 2)) - limit.radius, 0) / limit.radius]
    elif case == "entropy":
        expected = [max(limit.at_least + np.sum(some * np.log(some)), 0) / limit.at_least]
    elif case == "kl":
        expected = [max(np.sum(some * np.log(some / limit.reference[true > 0])) - limit.radius, 0) / limit.radius]
    assert found["violations"] == pytest.approx(expected, abs=1e-12)
    assert found["violation"] == max(found["violations"], default=0.0)


@pytest.mark.parametrize("case", ["ball-half", "caps", "entropy", "kl"])
def test_the_best_policy_without_limits_exceeds_them_and_ours_and_clarabel_agree_under_them(case):
    instance = instances.make(case, STATES, BRANCHING, seed=1)
    free = oracles.lp_optimum(as_model(instance), instance.c)
    assert referee.judge(instance, free[1])["violation"] > 1e-2
    ours = referee.judge(instance, peers.PEERS["ours"].solve(instance, 1e-6).d)
    theirs = referee.judge(instance, peers.clarabel(instance.sparse(), 1e-6).d)
    assert max(ours["violation"], theirs["violation"]) < 2e-6
    assert ours["objective"] == pytest.approx(theirs["objective"], abs=1e-5)


@pytest.mark.parametrize("states", [144, 900])
def test_larger_grids_have_two_limits_that_some_policy_obeys(states):
    instance = instances.make("grid", states, 0.0, seed=1000)
    best = oracles.lp_optimum(as_model(instance), instance.c, instance.limit.E.toarray(), instance.limit.b)[0]
    assert best <= instance.limit.b[0]


def test_a_peer_that_is_much_slower_than_the_fastest_is_run_once_in_a_cell():
    cell = harness.Cell("linear", 100, 0.05, 5)
    run = {"case": "linear", "states": 100, "branching": 0.05, "outcome": "answer"}
    times = {"ours": 0.01, "scs": 1.0, "clarabel": 1.4, "pdlp": 1.6}
    data = {"runs": [run | {"solver": name, "seed": 7, "seconds": t} for name, t in times.items()]}
    data["runs"].append(run | {"solver": "osqp", "seed": 7, "outcome": "failed", "seconds": 0.001})
    slow = [name for name in (*times, "osqp", "highs-ipm") if harness.slow(data, cell, name)]
    assert slow == ["pdlp"]
    assert harness.slow(data, harness.Cell("linear", 1000, 0.05, 5), "pdlp") is None


def test_seeds_are_kept_in_order_when_highs_finds_a_policy_that_obeys():
    kept, passed = instances.seeds("linear", STATES, BRANCHING, 2, first=5)
    assert kept
    assert passed
    assert sorted(kept + passed) == list(range(5, kept[-1] + 1))
    for seed in kept + passed:
        instance = instances.make("linear", STATES, BRANCHING, seed)
        answer = peers.scipy_highs(instance.sparse(), 1e-6)
        assert answer.infeasible == (seed in passed)


@pytest.mark.parametrize("name", peers.PEERS)
def test_every_solver_answers_and_the_exact_ones_reach_the_optimum(name, linear, tmp_path):
    peer, instance = peers.PEERS[name], linear
    assert find_spec(peer.package) is not None
    if name == "pdm":
        instance = instances.make("linear", *PDM_STOPS)
    elif instances.Rows not in peer.takes:
        instance = instances.make("free", STATES, BRANCHING, linear.seed)
    E, b = (instance.limit.E, instance.limit.b) if instance.limit else (None, None)
    best = oracles.lp_optimum(as_model(instance), instance.c, E, b)[0]
    tolerance = 1e-6 if name in PROVEN else harness.tolerances(name)[name]
    files = pickled(tmp_path, instance=instance, warm_up=instance)
    result = process.run(name, *files, tolerance=tolerance, time_limit=30, memory_limit=8e9)
    assert result["outcome"] == "answer", result
    assert 0 < result["seconds"] < 30
    assert result["first_use"] > 0
    found = referee.judge(instance, result["d"])
    away = referee.distance(found["objective"], found["scale"], best)
    if name in APPROXIMATE:
        assert found["violation"] < 2e-2
        assert -2e-2 < away < 0.5
    elif name in PROVEN:
        assert found["violation"] <= 1e-6
        assert abs(away) <= 3e-6
    else:
        assert found["violation"] <= 10 * tolerance
        assert abs(away) <= 10 * tolerance
    if result["certificate"] is not None:
        assert referee.proven_bound(instances.problem(instance), result["certificate"]) <= best + 1e-9


EXACT = ("ours", "scs", "clarabel", "highs-simplex", "highs-ipm", "highs-hipo", "scipy-highs", "pdlp", "osqp", "gurobi")


@pytest.mark.parametrize("name", EXACT)
def test_solvers_say_when_nothing_obeys(name, tmp_path):
    seed = instances.seeds("linear", STATES, BRANCHING, 1, first=5)[1][0]
    infeasible = instances.make("linear", STATES, BRANCHING, seed)
    limit = instances.Rows(infeasible.limit.E, infeasible.limit.b - 3.0)  # by far
    hopeless = instances.Instance(
        "linear", BRANCHING, seed, infeasible.P, infeasible.c, infeasible.gamma, infeasible.rho, limit
    )
    result = process.run(name, *pickled(tmp_path, instance=hopeless, warm_up=hopeless), 1e-6, 30, 8e9)
    assert result["outcome"] == "infeasible", result


def test_the_papers_primal_dual_method_obeys_and_is_no_better_than_the_optimum():
    instance = instances.make("linear", *PDM_STOPS)
    model, E, b = as_model(instance), instance.limit.E, instance.limit.b
    best = oracles.lp_optimum(model, instance.c, E, b)[0]
    d, how = primal_dual.primal_dual(instance)
    assert " after 1 steps" not in how, "the limits play no role"
    assert np.all(E @ d - b <= 1e-4 * (1 + np.abs(b)))
    assert np.abs(oracles.flow_matrix(model) @ d - oracles.inflow(model)).max() < 1e-12
    assert best - 1e-3 <= instance.c @ d <= best + 0.1


@pytest.mark.parametrize("store", [peers.as_given, instances.Instance.sparse])
def test_the_papers_primal_dual_method_follows_its_formulas(linear, store):
    model, E, b, gamma = as_model(linear), linear.limit.E, linear.limit.b, linear.gamma
    V, multipliers = np.zeros(STATES), np.zeros(b.size)
    for k, (dual, d, after) in enumerate(islice(primal_dual.steps(store(linear)), 5)):
        cost = linear.c + E.T @ multipliers
        for _ in range(2):
            pi = np.zeros(cost.size)
            for s in range(STATES):
                mine = np.flatnonzero(model["state"] == s)
                pi[mine[np.argmin(cost[mine] + gamma * model["P"][mine] @ V)]] = 1.0
            V = oracles.value(model, pi, cost)
        expected = oracles.occupancy(model, pi)
        assert dual == pytest.approx(multipliers)
        assert d == pytest.approx(expected, abs=1e-12)
        multipliers = np.maximum(multipliers + 10 / (k + 1) * (E @ expected - b), 0)
        assert after == pytest.approx(multipliers)


def test_limits_are_results(files):
    assert process.run("scipy-highs", *files, 1e-4, time_limit=1e-4, memory_limit=8e9) == {"outcome": "time limit"}
    assert process.run("scipy-highs", *files, 1e-4, time_limit=30, memory_limit=1e8)["outcome"] == "out of memory"


def test_what_does_not_apply_or_is_not_installed_is_a_result(files, tmp_path, monkeypatch):
    ball = instances.make("ball", STATES, BRANCHING, 0)
    assert process.run("pdm", *pickled(tmp_path, instance=ball, warm_up=ball), 1e-4, 30, 8e9) == {
        "outcome": "does not apply"
    }
    missing = peers.Peer(peers.scs, "a_package_that_is_nowhere", peers.CONIC, "")
    monkeypatch.setitem(peers.PEERS, "missing", missing)
    assert process.run("missing", *files, 1e-4, 30, 8e9) == {"outcome": "not installed"}


def plan(*cells, solvers=("ours", "clarabel")):
    return harness.Plan(
        "test", tuple(harness.Cell("free", *cell) for cell in cells), harness.tolerances(*solvers), 30, 8e9
    )


def test_one_file_holds_every_run_and_what_is_in_it_is_not_run_again(tmp_path, monkeypatch):
    lines, file = [], tmp_path / "folder" / "test.json"
    data = harness.measure(plan((STATES, 0.4, 2)), file, lines.append)
    assert json.loads(file.read_text()) == data
    assert [run["solver"] for run in data["runs"]] == 2 * ["reference", "ours", "clarabel"]
    assert {run["seed"] for run in data["runs"]} == {1000, 1001}
    assert {"cores", "versions", "time_limit", "solvers"} <= set(data["about"])
    for run in data["runs"]:
        assert run["outcome"] == "answer"
        assert {"objective", "violation", "open_flow", "seconds", "first_use", "peak_bytes"} <= set(run)
        assert ("bound" in run) == (run["solver"] != "clarabel")
        assert run.get("bound", -np.inf) <= run["objective"]
    assert "seed 1001, clarabel: answer in" in lines[-1]
    assert lines[-1].endswith("about 0 s left")

    def refuse(*_):
        raise AssertionError("run again")

    monkeypatch.setattr(process, "run", refuse)
    assert harness.measure(plan((STATES, 0.4, 2)), file, lines.append) == data
    with pytest.raises(AssertionError, match="run again"):
        harness.measure(plan((STATES, 0.4, 2)), file, lines.append, again=["clarabel"])


def test_a_limit_ends_the_cell_and_larger_ones_of_the_same_case(tmp_path, monkeypatch):
    monkeypatch.setattr(
        process, "run", lambda name, *_: {"outcome": "time limit" if name == "clarabel" else "failed", "said": "no"}
    )
    sizes = (STATES, 0.4, 2), (STATES, 0.8, 1), (STATES + 5, 0.2, 1)
    data = harness.measure(plan(*sizes), tmp_path / "test.json", lambda line: None)
    ended = [(run["states"], run["branching"], run["outcome"]) for run in data["runs"] if run["solver"] == "clarabel"]
    # The last has more states but fewer transitions, so it is not larger.
    assert ended == [
        (STATES, 0.4, "time limit"), (STATES, 0.4, "not run"), (STATES, 0.8, "not run"),
        (STATES + 5, 0.2, "time limit"),
    ]  # fmt: skip
    said = {run["said"] for run in data["runs"] if run["outcome"] == "not run"}
    assert said == {f"time limit at free, S = {STATES}, f_b = 0.4, seed 1000"}
    assert all(run["outcome"] == "failed" for run in data["runs"] if run["solver"] == "ours")


def test_a_file_measured_elsewhere_is_not_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "run", lambda *_: {"outcome": "failed", "said": "no"})
    file = tmp_path / "test.json"
    harness.measure(plan((STATES, 0.4, 1)), file, lambda line: None)
    monkeypatch.setattr(peers, "versions", lambda: {"scs": "0.0"})
    with pytest.raises(ValueError, match="measured with other versions, so it cannot be resumed"):
        harness.measure(plan((STATES, 0.4, 1)), file, lambda line: None)


def test_the_time_left_stops_counting_a_solver_where_it_will_reach_its_limit():
    found = {"case": "free", "states": 100, "branching": 0.1, "seed": 0, "outcome": "answer"}
    runs = [found | {"solver": "scs", "seconds": 20.0, "all_seconds": 21.0}]
    # ten times the nonzeros and more: beyond 30 s, so once in the second cell and never in the third
    clock = harness.Clock(plan((100, 0.1, 2), (400, 0.1, 5), (800, 0.1, 5), solvers=("scs",)), {"runs": runs})
    assert clock.solver("scs") == pytest.approx(21.0 + 1.0 + 30.0)
