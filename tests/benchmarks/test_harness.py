"""The harness of the benchmarks: its judge, its solvers and its limits, on models of 15 states."""

import json
import pickle
from importlib.util import find_spec
from itertools import islice

import instances
import numpy as np
import peers
import pytest
import referee
import run
import scipy.sparse as sp

import oracles

STATES, BRANCHING = 15, 0.4
DECLARED = ("ours", "ours-splitting", "scipy-highs", "clarabel")
"""Solvers that the test environment brings and that reach the accuracy asked."""


def as_model(instance):
    """The instance as tests/oracles.py holds a model."""
    P = instance.P.toarray() if sp.issparse(instance.P) else instance.P
    return {"state": instance.state, "P": P, "discount": instance.gamma, "initial": instance.rho}


@pytest.fixture(scope="module")
def linear():
    seed = instances.seeds("linear", STATES, BRANCHING, 1)[0][0]
    return instances.make("linear", STATES, BRANCHING, seed)


@pytest.fixture(scope="module")
def files(linear, tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    files = folder / "instance", folder / "warm-up"
    for file in files:
        file.write_bytes(pickle.dumps(linear))
    return files


@pytest.mark.parametrize("case", instances.CASES)
def test_the_referee_agrees_with_the_definitions(case):
    instance = instances.make(case, 16 if case == "grid" else STATES, BRANCHING, seed=3)
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
    if case in ("linear", "caps", "grid"):
        E = limit.E.toarray() if sp.issparse(limit.E) else limit.E
        for row, b in zip(E, limit.b, strict=True):
            expected.append(max(row @ true - b, 0) / max(abs(b), np.abs(row) @ true))
    elif case in ("ball", "ball-half"):
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


@pytest.mark.parametrize("name", DECLARED)
def test_a_solver_reaches_the_optimum_of_a_linear_instance(name, linear, files):
    assert find_spec(peers.PEERS[name].package) is not None
    best = oracles.lp_optimum(as_model(linear), linear.c, linear.limit.E, linear.limit.b)[0]
    result = peers.run(name, *files, tolerance=1e-6, time_limit=30, memory_limit=8e9)
    assert result["outcome"] == "answer", result
    assert 0 < result["seconds"] < 30
    assert result["first_use"] > 0
    found = referee.judge(linear, result["d"])
    assert found["violation"] <= 1e-6
    assert abs(referee.distance(found["objective"], found["scale"], best)) <= 3e-6
    if result["certificate"] is not None:
        assert referee.proven_bound(instances.problem(linear), result["certificate"]) <= best + 1e-9


def test_the_average_of_the_papers_primal_dual_method_obeys_and_is_no_better_than_the_optimum():
    instance = instances.make("grid", 16, 0.0, seed=1)
    model, E, b = as_model(instance), instance.limit.E, instance.limit.b
    best = oracles.lp_optimum(model, instance.c, E, b)[0]
    answer = peers.PEERS["pdm-average"].solve(instance, 1e-4)
    assert answer.said != "stopped after 1 steps", "the limits play no role"
    assert np.all(E @ answer.d - b <= 1e-4 * (1 + np.abs(b)))
    assert np.abs(oracles.flow_matrix(model) @ answer.d - oracles.inflow(model)).max() < 1e-12
    assert best - 1e-3 <= instance.c @ answer.d <= best + 0.1


@pytest.mark.parametrize("store", [peers.as_given, instances.Instance.sparse])
def test_the_papers_primal_dual_method_follows_its_formulas(linear, store):
    model, E, b, gamma = as_model(linear), linear.limit.E, linear.limit.b, linear.gamma
    V, multipliers = np.zeros(STATES), np.zeros(b.size)
    for k, (dual, d, after) in enumerate(islice(peers.pdm_steps(store(linear)), 5)):
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
    assert peers.run("scipy-highs", *files, 1e-4, time_limit=1e-4, memory_limit=8e9) == {"outcome": "time limit"}
    assert peers.run("scipy-highs", *files, 1e-4, time_limit=30, memory_limit=1e8)["outcome"] == "out of memory"


def test_what_does_not_apply_or_is_not_installed_is_a_result(files, monkeypatch):
    ball = files[0].with_name("ball")
    ball.write_bytes(pickle.dumps(instances.make("ball", STATES, BRANCHING, 0)))
    assert peers.run("pdm", ball, ball, 1e-4, 30, 8e9) == {"outcome": "does not apply"}
    missing = peers.Peer(peers.scs, "a_package_that_is_nowhere", peers.CONIC, "")
    monkeypatch.setitem(peers.PEERS, "missing", missing)
    assert peers.run("missing", *files, 1e-4, 30, 8e9) == {"outcome": "not installed"}


def test_a_finished_run_is_not_done_again_and_a_limit_ends_larger_cells(tmp_path, capsys, monkeypatch):
    arguments = ["--case", "free", "--states", str(STATES), "--branching", "0.4", "--folder", str(tmp_path)]
    arguments += ["--time-limit", "30", "--memory-limit", "8"]
    run.main([*arguments, "--solvers", "ours", "clarabel"])
    assert "ours: answer" in capsys.readouterr().out
    record = json.loads(next(tmp_path.glob("*-ours.json")).read_text())
    assert record["outcome"] == "answer"
    assert record["bound"] <= record["objective"]
    assert {"versions", "cores", "seed", "note", "first_use", "peak_bytes"} <= set(record)
    monkeypatch.setattr(peers, "run", lambda *_: {"outcome": "time limit"})
    run.main([*arguments, "--solvers", "ours", "scipy-highs"])
    out = capsys.readouterr().out
    assert "ours: " not in out
    assert "scipy-highs: time limit" in out
    larger = [*arguments[:3], str(STATES), "16", *arguments[4:], "--seeds", "2", "--solvers", "scipy-highs"]
    run.main(larger)
    out = capsys.readouterr().out
    assert out.count("scipy-highs: not run, time limit at 15 states, branching 0.4, seed 0") == 3
    assert len(list(tmp_path.glob("*-scipy-highs.json"))) == 1
