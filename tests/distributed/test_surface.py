"""What a user can ask of a model, a problem, a policy and a solution: the answer of one place, or a clear refusal."""

import json
import logging
import os
import re
import signal
from collections.abc import Mapping
from functools import cache

import matplotlib
import numpy as np
import pytest
import scipy.sparse as sp
from mpi4py import MPI

import cvxmdp as cm
from cvxmdp import sweep as sweeping
from cvxmdp.ranks import world as ranks_world
from cvxmdp.ranks.model import from_rows
from small_models import MODELS

matplotlib.use("Agg")

WORLD = MPI.COMM_WORLD
SAME = 1e-8
EXACT = {"tolerance": 1e-10}
NUMBERS = np.random.default_rng(3)


def labelled():
    mdp = cm.worlds.gridworld(size=5)
    labels = {"goal": [24], "edge": range(5)}
    parts = (mdp.state, mdp.action, mdp.transitions, dict(mdp.costs), mdp.discount, mdp.initial)
    return cm.MDP.from_pairs(*parts, mdp.states, mdp.actions, labels)


WHOLE = labelled()
PARTS = {
    "in blocks": lambda mdp: cm.scatter(mdp, WORLD),
    "anywhere": lambda mdp: cm.scatter(
        mdp, WORLD, parts=np.random.default_rng(0).integers(WORLD.size, size=mdp.num_states)
    ),
}
EVEN = np.full(WHOLE.num_pairs, 0.25)
UNEVEN = NUMBERS.dirichlet(np.ones(4), size=25).ravel()
COST = NUMBERS.uniform(size=WHOLE.num_pairs)
BY_STATE = NUMBERS.uniform(size=WHOLE.num_states)
LIMIT = [cm.Budget("collision", at_most=4e-4)]
IMPOSSIBLE = [cm.Budget("time", at_most=1e-3)]


@pytest.fixture(params=PARTS, scope="module")
def mdp(request):
    return PARTS[request.param](WHOLE)


@pytest.fixture
def folder(tmp_path_factory):
    """One folder for all ranks."""
    return WORLD.bcast(tmp_path_factory.mktemp("files") if WORLD.rank == 0 else None)


def gathered(mdp, found):
    """Bring what lives on ranks to each of them, also within mappings."""
    if isinstance(found, dict):
        return {name: gathered(mdp, part) for name, part in found.items()}
    return cm.gather(mdp, found, to_all=True)


def assert_close(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, part in expected.items():
            assert_close(found[name], part)
    elif isinstance(expected, (float, np.ndarray)):
        scale = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
        np.testing.assert_allclose(found, expected, rtol=SAME, atol=SAME * scale)
    else:
        assert found == expected


def fields(thing):
    """What an answer holds, by name."""
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(thing).items()}


CHANGES = {
    "another discount": lambda mdp: mdp.with_discount(0.9),
    "a first state by name": lambda mdp: mdp.with_initial("r0c1"),
    "first states by name": lambda mdp: mdp.with_initial({"r0c1": 0.25, "r4c4": 0.75}),
    "a distribution": lambda mdp: mdp.with_initial(np.arange(25) / 300),
    "the same distribution": lambda mdp: mdp.with_initial(mdp.initial),
    "a cost of pairs": lambda mdp: mdp.with_cost("new", COST),
    "a cost of states": lambda mdp: mdp.with_cost("new", BY_STATE),
    "a cost made of another": lambda mdp: mdp.with_cost("new", 2 * mdp.costs["time"]),
    "a cost by a rule": lambda mdp: mdp.with_cost("new", lambda state, action: len(action) + int(state[1])),
    "a cost in some states": lambda mdp: mdp.with_cost("new", states=["r0c1", "r4c0"]),
    "a cost by label": lambda mdp: mdp.with_cost("new", labels=["edge", "goal"]),
    "a cost of entering": lambda mdp: mdp.with_cost("new", labels="edge", entering=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_is_the_one_of_one_place(mdp, change):
    found, expected = CHANGES[change](mdp), CHANGES[change](WHOLE)
    assert repr(found) == repr(expected)
    np.testing.assert_array_equal(gathered(mdp, found.initial), expected.initial)
    assert found.costs.keys() == expected.costs.keys()
    for name, cost in expected.costs.items():
        assert_close(gathered(mdp, found.costs[name]), cost)
    assert_close(found.evaluate(EVEN).costs, expected.evaluate(EVEN).costs)
    with pytest.raises(ValueError, match="read-only"):
        found.initial[:] = 0.0


WRONG = {
    "a discount": lambda mdp: mdp.with_discount(1.5),
    "an unknown first state": lambda mdp: mdp.with_initial("nowhere"),
    "no distribution": lambda mdp: mdp.with_initial(np.ones(25)),
    "a name that is taken": lambda mdp: mdp.with_cost("time", COST),
    "a cost of another size": lambda mdp: mdp.with_cost("new", np.ones(7)),
    "a cost that is not finite": lambda mdp: mdp.with_cost("new", np.where(np.arange(100) == 93, np.nan, COST)),
    "a rule that fails somewhere": lambda mdp: mdp.with_cost("new", lambda state, action: {"r4c4": "x"}.get(state, 1)),
    "a rule that raises somewhere": lambda mdp: mdp.with_cost("new", lambda state, action: 1 / (state != "r4c4")),
    "an unknown label": lambda mdp: mdp.with_cost("new", labels="nowhere"),
    "an unknown cost": lambda mdp: mdp.cost("nowhere"),
    "a cost beyond all numbers": lambda mdp: mdp.cost(np.where(np.arange(100) == 50, 1e300, COST)),
    "an action that is not offered": lambda mdp: mdp.policy([0] * 24 + [7]),
    "probabilities that do not sum to one": lambda mdp: mdp.policy(np.where(np.arange(100) == 99, 0.2, EVEN)),
    "a negative probability": lambda mdp: mdp.policy(np.where(np.arange(100) == 99, -0.2, EVEN)),
    "a table with a wrong row": lambda mdp: mdp.policy(np.full((25, 4), 0.25) * (np.arange(25)[:, None] < 24)),
    "an unknown state": lambda mdp: mdp.policy({"nowhere": "up"}),
    "a state left out": lambda mdp: mdp.policy(dict.fromkeys(WHOLE.states[:-1], "up")),
    "an unknown action": lambda mdp: mdp.policy({**dict.fromkeys(WHOLE.states, "up"), "r4c4": "out"}),
    "a policy of another shape": lambda mdp: mdp.policy(np.ones(7)),
    "a policy of another model": lambda mdp: mdp.policy(cm.worlds.gridworld(size=4).policy([0] * 16)),
    "a limit of another size": lambda mdp: cm.Problem(mdp, "time", [cm.Linear(np.ones((1, 7)), at_most=1.0)]),
    "an unknown limit": lambda mdp: cm.Problem(mdp, "time").range("nowhere"),
    "no values": lambda mdp: cm.Problem(mdp, "time").sweep("collision", []),
    "a file of an unknown kind": lambda mdp: mdp.save("model.txt"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_the_error_of_one_place_on_all_ranks(mdp, wrong):
    said = []
    for model in (WHOLE, mdp):
        with pytest.raises((ValueError, ZeroDivisionError)) as refused:
            WRONG[wrong](model)
        said.append((refused.type, str(refused.value)))
    assert said[0] == said[1]
    assert len(set(WORLD.allgather(said[1]))) == 1


POLICIES = {
    "over pairs": UNEVEN,
    "a table": UNEVEN.reshape(25, 4),
    "one action a state": [1, 3] * 12 + [0],
    "actions by name": dict.fromkeys(WHOLE.states, "up"),
    "probabilities by name": {name: {"down": 0.5, "right": 0.5} for name in WHOLE.states},
    "a policy": WHOLE.policy([1, 3] * 12 + [0]),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_the_one_of_one_place(mdp, policy):
    expected, found = WHOLE.policy(POLICIES[policy]), mdp.policy(POLICIES[policy])
    assert repr(found) == repr(expected)
    whole = cm.gather(mdp, found, to_all=True)
    assert whole.table() == expected.table()
    assert cm.gather(mdp, found) is None or WORLD.rank == 0
    once, again = WHOLE.evaluate(expected), mdp.evaluate(mdp.policy(found))
    assert repr(once) == repr(again)
    assert_close(again.costs, once.costs)
    assert_close(gathered(mdp, again.occupancy), once.occupancy)
    assert_close(gathered(mdp, again.value), once.value)
    # The same policy as one place has it, from a model in parts.
    assert_close(mdp.evaluate(whole).costs, once.costs)
    assert_close(mdp.evaluate(found.probabilities).costs, once.costs)


def test_a_policy_in_parts_is_not_one_of_a_whole_model():
    found = PARTS["in blocks"](WHOLE).policy(EVEN)
    for policy in (found, found.probabilities):
        with pytest.raises(ValueError, match="gather"):
            WHOLE.evaluate(policy)


def problem(mdp, limits=LIMIT, **asked):
    return cm.Problem(mdp, **({"minimize": "time"} | asked), subject_to=limits)


@cache
def solved(mdp, status):
    """A solution that ends so, for those who only ask of it."""
    found = problem(mdp, LIMIT if status == "OPTIMAL" else IMPOSSIBLE).solve()
    assert found.status.name == status
    return found


def ranges(found):
    return {name: fields(one) for name, one in found.items()}


ASKED = {
    "find_states": lambda mdp: mdp.find_states("edge").tolist(),
    "cost": lambda mdp: gathered(mdp, mdp.cost(COST)),
    "problem": lambda mdp: repr(problem(mdp)),
    "range": lambda mdp: fields(problem(mdp).range("collision", **EXACT)),
    "range of a cost": lambda mdp: fields(problem(mdp, []).range("collision", **EXACT)),
    "price ranges": lambda mdp: ranges(problem(mdp).solve(**EXACT).price_ranges()),
    "maximize": lambda mdp: problem(mdp, minimize=None, maximize="collision", limits=[]).solve(**EXACT).value,
    "a cost as a vector": lambda mdp: problem(mdp, minimize=COST).solve(**EXACT).value,
    "a cost in parts": lambda mdp: problem(mdp, minimize=0.5 * mdp.cost("time")).solve(**EXACT).value,
    "dense rows": lambda mdp: problem(mdp, [cm.Linear([COST, -COST], at_most=[0.5, -0.1])]).solve(**EXACT).value,
    "sparse rows": lambda mdp: problem(mdp, [cm.Linear(sp.csr_array([COST]), at_least=0.2)]).solve(**EXACT).value,
    "rows by name": lambda mdp: (
        problem(mdp, [cm.Linear(["collision", "time"], at_most=[4e-4, 1])]).solve(**EXACT).value
    ),
    "rows of several kinds": lambda mdp: (
        problem(mdp, [*LIMIT, cm.StateBounds(upper={"r0c0": 0.5}), cm.StateBounds(upper={"edge": 0.05}, name="edges")])
        .solve(**EXACT)
        .value
    ),
}


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_is_answered_as_in_one_place(mdp, asked):
    expected, found = ASKED[asked](WHOLE), ASKED[asked](mdp)
    assert_close(found, expected)


@pytest.mark.parametrize("limits", [LIMIT, IMPOSSIBLE])
def test_a_policy_of_ones_own_is_judged_as_in_one_place(mdp, limits):
    expected, found = (fields(problem(model, limits).check(EVEN)) for model in (WHOLE, mdp))
    for name in ("bound", "behind"):  # of a solve to 1e-6
        assert found.pop(name) == pytest.approx(expected.pop(name), rel=2e-6, nan_ok=True)
    assert_close(found, expected)


SEVERAL = {
    "sweep": lambda mdp: problem(mdp).sweep("collision", [2e-4, 4e-4, 1e-3], **EXACT),
    "sweep beside another limit": lambda mdp: problem(mdp, [*LIMIT, cm.StateBounds(upper={"r0c0": 0.5})]).sweep(
        "collision", [2e-4, 4e-4, 1e-3], **EXACT
    ),
    "pareto": lambda mdp: problem(mdp, []).pareto("time", "collision", points=3, **EXACT),
}


@pytest.mark.parametrize("asked", SEVERAL)
def test_several_solves_are_those_of_one_place(mdp, asked):
    expected, found = SEVERAL[asked](WHOLE), SEVERAL[asked](mdp)
    assert found.statuses == expected.statuses
    assert_close(found.limits, expected.limits)
    assert_close(found.values, expected.values)
    assert_close(found.bounds, expected.bounds)
    assert_close(found.prices[1:-1], expected.prices[1:-1])  # at a corner a price is any of several
    assert len(found.to_frame()) == len(found.table()) == len(expected.table())
    assert str(found).splitlines()[0] == str(expected).splitlines()[0]
    assert len(found.plot().axes) == len(expected.plot().axes)
    with pytest.raises(ValueError, match=r"Sweep\.report needs all of a model in one place"):
        found.report("sweep.html")


@pytest.mark.parametrize("asked", SEVERAL)
def test_ctrl_c_between_two_solves_ends_all_ranks(mdp, asked, monkeypatch):
    def pressed(*args):
        if WORLD.rank == 0:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(logging.getLogger("cvxmdp"), "disabled", True)
    told = sweeping._Told
    monkeypatch.setattr(sweeping, "_Told", lambda count: (pressed(), told(count))[1])
    found = SEVERAL[asked](mdp)
    assert len(found.solutions) < 3
    assert len(set(WORLD.allgather(len(found.solutions)))) == 1


@pytest.mark.parametrize("parts", PARTS)
def test_solutions_of_one_place_and_of_ranks_start_each_other(parts):
    whole = MODELS["two states"]()
    mdp, even = PARTS[parts](whole), whole.evaluate(np.full(4, 0.5)).occupancy
    for limit in (cm.Budget("risk", at_most=0.5), cm.NormBall(even, 0.2), cm.StateBounds(upper=np.full(2, 0.55))):
        alone, together = (cm.Problem(model, "cost", [limit]).solve(**EXACT) for model in (whole, mdp))
        for start in (alone, together):
            again = cm.Problem(mdp, "cost", [limit]).solve(warm_start=start, **EXACT)
            assert again.value == pytest.approx(alone.value, rel=SAME)
        with pytest.raises(ValueError, match="warm_start lives on ranks"):
            cm.Problem(whole, "cost", [limit]).solve(warm_start=together)
        for center in (alone, alone.occupancy, alone.policy, together, together.occupancy, together.policy):
            near = cm.Problem(mdp, "risk", [cm.NormBall(center, 0.01)]).solve()
            assert near.status is cm.Status.OPTIMAL


@pytest.mark.parametrize("parts", PARTS)
def test_a_relative_entropy_is_minimized_as_in_one_place(parts):
    whole = MODELS["two states"]()
    term = "cost" + cm.KL(whole.evaluate(np.full(4, 0.5)).occupancy, weight=0.1)
    expected = cm.Problem(whole, term).solve(**EXACT)
    found = cm.Problem(PARTS[parts](whole), term).solve()  # by splitting, which gets no closer
    assert_close(found.value, expected.value)
    assert found.bound <= expected.value


@pytest.mark.parametrize("status", ["OPTIMAL", "INFEASIBLE"])
def test_what_can_be_said_in_words_is_said(mdp, status):
    found = solved(mdp, status)
    assert str(found).splitlines()[0] == str(solved(WHOLE, status)).splitlines()[0]
    for thing in (found.certificate, found.stats, found.policy, found.turned(), found.infeasibility):
        assert "Scattered" not in repr(thing)
    assert len(found.plot("convergence").axes) == 2


@pytest.mark.parametrize("model", ["labelled", *MODELS])
@pytest.mark.parametrize("parts", PARTS)
def test_a_model_is_written_as_in_one_place(folder, model, parts, monkeypatch):
    monkeypatch.setattr(ranks_world, "PIECE", 64)  # bytes: arrays are sent in many pieces
    whole = WHOLE if model == "labelled" else MODELS[model]()
    PARTS[parts](whole).save(folder / "parts.npz")
    if WORLD.rank == 0:
        sparse = cm.MDP.from_pairs(
            whole.state, whole.action, sp.csr_array(whole.transitions), dict(whole.costs), whole.discount,
            whole.initial, whole.states, whole.actions, whole.labels,
        )  # fmt: skip
        sparse.save(folder / "whole.npz")
        with np.load(folder / "parts.npz") as found, np.load(folder / "whole.npz") as expected:
            assert list(found) == list(expected)
            assert json.loads(found["header"].tobytes()) == json.loads(expected["header"].tobytes())
            for name in set(expected) - {"header"}:
                np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
        assert repr(cm.load(folder / "parts.npz")) == repr(whole)
    WORLD.Barrier()


@pytest.mark.parametrize("thing", ["model", "solution"])
def test_a_file_that_cannot_be_written_is_an_error_on_all_ranks(mdp, folder, thing):
    saved = mdp if thing == "model" else solved(mdp, "OPTIMAL")
    with pytest.raises(OSError, match="No such file or directory"):
        saved.save(folder / "no such folder" / "file.npz")
    saved.save(folder / "file.npz")  # they are still in step
    assert [path.name for path in folder.iterdir()] == ["file.npz"]
    WORLD.Barrier()


LOAD = r'needs all of a model in one place.* solution.save\("answer.npz"\)'
GATHER = r"needs all of a model in one place.* cm\.gather\(mdp, policy\)"
REFUSED = {
    "simulate": (lambda mdp, solution: mdp.simulate(EVEN, episodes=5), r"MDP\.simulate " + GATHER),
    "examine": (lambda mdp, solution: mdp.examine(), r"MDP\.examine needs.*cvxmdp info"),
    "scatter": (lambda mdp, solution: cm.scatter(mdp, WORLD), "scatter needs.*in parts already"),
    "finite_horizon": (
        lambda mdp, solution: cm.criteria.finite_horizon(mdp, 3),
        "finite_horizon needs.*make the model",
    ),
    "umb": (lambda mdp, solution: mdp.save("model.umb"), r"as \.npz.*cvxmdp convert"),
    "csv": (lambda mdp, solution: mdp.save("model.csv"), r"as \.npz.*cvxmdp convert"),
    "act": (lambda mdp, solution: solution.policy.act("r0c0"), r"Policy\.act " + GATHER),
    "table": (lambda mdp, solution: solution.policy.table(), r"Policy\.table " + GATHER),
    "save a policy": (lambda mdp, solution: solution.policy.save("policy.csv"), r"Policy\.save " + GATHER),
    "plot": (lambda mdp, solution: solution.plot(), "plot_answer " + LOAD),
    "report": (lambda mdp, solution: solution.report("report.html"), r"Solution\.report " + LOAD),
    "to_frame": (lambda mdp, solution: solution.to_frame(), r"Solution\.to_frame " + LOAD),
    "certificate": (lambda mdp, solution: solution.certificate.check(solution.problem), "check it in one place"),
    "check": (lambda mdp, solution: solution.problem.check(EVEN, solution), "check it in one place"),
    "robust": (lambda mdp, solution: problem(mdp, [cm.RobustBudget("time", cm.Box(EVEN), 1)]), "several ranks"),
}


@pytest.mark.parametrize("status", ["OPTIMAL", "INFEASIBLE"])
@pytest.mark.parametrize("refused", REFUSED)
def test_what_needs_one_place_is_refused_in_one_sentence_on_all_ranks(mdp, refused, status):
    solution = solved(mdp, status)
    call, said = REFUSED[refused]
    with pytest.raises(ValueError, match=said) as error:
        call(mdp, solution)
    assert len(set(WORLD.allgather(str(error.value)))) == 1
    assert "\n" not in str(error.value)


def test_a_model_in_parts_is_not_pickled(mdp):
    import pickle

    with pytest.raises(TypeError, match="save it instead"):
        pickle.dumps(mdp)


def test_in_a_notebook_there_is_text_instead_of_a_table(mdp):
    solution = solved(mdp, "INFEASIBLE")
    assert [thing._repr_html_() for thing in (mdp, solution.problem, solution, solution.policy)] == [None] * 4


def test_a_solution_of_ranks_serves_in_one_place_once_it_is_loaded(mdp, folder):
    together = problem(mdp).solve(**EXACT)
    together.save(folder / "answer.npz")
    loaded, whole = cm.load_solution(folder / "answer.npz"), problem(WHOLE)
    loaded.certificate.check(whole)
    assert_close(WHOLE.evaluate(loaded.policy).costs, dict(together.costs))
    assert_close(mdp.evaluate(loaded.policy).costs, dict(together.costs))
    assert loaded.policy.table() == cm.gather(mdp, together.policy, to_all=True).table()
    with pytest.raises(ValueError, match=r"Solution\.report needs all of a model in one place"):
        loaded.report(folder / "report.html", together.problem)
    assert_close(ranges(loaded.price_ranges(together.problem)), ranges(loaded.price_ranges(whole)))


@pytest.mark.parametrize("function", [cm.scatter, cm.gather, from_rows])
def test_the_examples_in_the_docstrings_run_on_all_ranks(function, folder, monkeypatch):
    monkeypatch.chdir(folder)
    code = re.search(r"::\n\n((?: {8}.*\n|\n)+)", function.__doc__)[1]
    exec("\n".join(line[8:] for line in code.splitlines()), {})
