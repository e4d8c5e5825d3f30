"""Problem files: each kind of limit gives the problem of the Python call, and what is wrong is named."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.io.problem import LIMITS, OPTIONS, TERMS, load_model, make_world, read_problem

MDP = cm.worlds.gridworld(size=4, obstacles=[(1, 1), (2, 2)])
L = MDP.num_pairs
EXPERT = MDP.policy([3, 3, 3, 1] * 4)
UNIFORM = np.full(L, 0.25)
ERRORS = 1e-3 * np.random.default_rng(0).random((2, L))
FACTORS = 1e-3 * np.random.default_rng(1).random((L, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model, an expert's policy, its solution and arrays."""
    here = tmp_path_factory.mktemp("problems")
    MDP.with_cost("corner", states=["r0c3"]).save(here / "grid.npz")
    MDP.save(here / "grid.csv")
    EXPERT.save(here / "expert.csv")
    MDP.policy(UNIFORM).save(here / "uniform.csv")
    cm.Problem(MDP, "time").solve().save(here / "best.npz")
    np.save(here / "uniform.npy", MDP.evaluate(UNIFORM).occupancy)
    np.save(here / "errors.npy", ERRORS)
    np.save(here / "factors.npy", FACTORS)
    np.savetxt(here / "widths.csv", np.full(L, 1e-3), delimiter=",")
    return here


def stated(folder, text, name="problem.toml", **more):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_problem(path, **more)


def at(policy):
    return MDP.evaluate(policy).occupancy


KINDS = {
    "budget": ('cost = "collision"\nat_most = 0.002', cm.Budget("collision", at_most=0.002)),
    "budget from below": ('kind = "budget"\ncost = "time"\nat_least = 0.3', cm.Budget("time", at_least=0.3)),
    "budget between": (
        'cost = "time"\nat_least = 0.2\nat_most = 0.3',
        cm.Budget("time", at_most=0.3, at_least=0.2),
    ),
    "budget per episode": (
        'cost = "collision"\nat_most = 0.2\nper = "episode"',
        cm.Budget("collision", at_most=0.2, per="episode"),
    ),
    "robust, box": (
        'kind = "robust"\ncost = "collision"\nat_most = 0.004\nbox = 1e-3',
        cm.RobustBudget("collision", cm.Box(1e-3), at_most=0.004),
    ),
    "robust, box from a file": (
        'kind = "robust"\ncost = "collision"\nat_most = 0.004\nbox = "widths.csv"',
        cm.RobustBudget("collision", cm.Box(np.full(L, 1e-3)), at_most=0.004),
    ),
    "robust, ellipsoid": (
        'kind = "robust"\ncost = "collision"\nat_most = 0.02\nellipsoid = 1e-4',
        cm.RobustBudget("collision", cm.Ellipsoid(np.full(L, 1e-4)), at_most=0.02),
    ),
    "robust, factors": (
        'kind = "robust"\ncost = "collision"\nat_most = 0.01\nfactors = "factors.npy"',
        cm.RobustBudget("collision", cm.Ellipsoid(factors=FACTORS), at_most=0.01),
    ),
    "robust, vertices": (
        'kind = "robust"\ncost = "collision"\nat_most = 0.01\nvertices = "errors.npy"',
        cm.RobustBudget("collision", cm.Vertices(ERRORS), at_most=0.01),
    ),
    "linear": (
        'kind = "linear"\ncosts = ["time", "collision"]\nat_most = [0.5, 0.002]',
        cm.Linear(["time", "collision"], at_most=[0.5, 0.002]),
    ),
    "linear rows": (
        f'kind = "linear"\nrows = [{(MDP.costs["time"] + MDP.costs["collision"]).tolist()}]\nequal = 0.2',
        cm.Linear(MDP.costs["time"] + MDP.costs["collision"], equal=0.2),
    ),
    "bounds": ('kind = "bounds"\nupper = 0.5', cm.Bounds(upper=np.full(L, 0.5))),
    "state bounds": (
        'kind = "state bounds"\nupper = {r0c1 = 0.004, r3c3 = 0.8}',
        cm.StateBounds(upper={"r0c1": 0.004, "r3c3": 0.8}),
    ),
    "state bounds of all": ('kind = "state bounds"\nlower = 1e-5', cm.StateBounds(lower=1e-5)),
    "norm ball": (
        'kind = "norm ball"\nnear = "uniform.csv"\nradius = 0.2',
        cm.NormBall(at(UNIFORM), 0.2),
    ),
    "norm ball, other norm, near a file": (
        'kind = "norm ball"\nnear = "uniform.npy"\nradius = 0.3\nnorm = 1',
        cm.NormBall(at(UNIFORM), 0.3, 1),
    ),
    "norm ball, largest": (
        'kind = "norm ball"\nnear = "uniform.npy"\nradius = 0.1\nnorm = inf',
        cm.NormBall(at(UNIFORM), 0.1, math.inf),
    ),
    "norm ball, weighted": (
        f'kind = "norm ball"\nnear = "uniform.npy"\nradius = 0.3\nweights = {[1.0 + i % 3 for i in range(L)]}',
        cm.NormBall(at(UNIFORM), 0.3, weights=1.0 + np.arange(L) % 3),
    ),
    "kl ball": ('kind = "kl ball"\nnear = "uniform.csv"\nradius = 0.3', cm.KLBall(at(UNIFORM), 0.3)),
    "entropy": ('kind = "entropy"\nat_least = 2.5', cm.Entropy(2.5)),
    "entropy of states": ('kind = "entropy"\nat_least = 1.5\nof = "states"', cm.Entropy(1.5, "states")),
}


def test_there_is_a_case_for_each_kind():
    assert {name.partition(",")[0].split(" from")[0] for name in KINDS} >= set(LIMITS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_limit_is_that_of_the_python_call(kind, folder):
    text, limit = KINDS[kind]
    head = 'model = "grid.csv"\ndiscount = 0.99\ninitial = "r0c0"\nminimize = "time"\n'
    problem = stated(folder, f"{head}[[limits]]\n{text}\n").problem()
    other = cm.Problem(MDP, "time", [limit])
    found, expected = problem.solve(), other.solve()
    assert found.status is expected.status is cm.Status.OPTIMAL
    assert found.value == pytest.approx(expected.value, rel=3e-6)
    ((a, b),) = zip(problem.constraints, other.constraints, strict=True)
    assert a.said() == b.said()
    d = expected.occupancy
    np.testing.assert_allclose(a.level(d), b.level(d), rtol=1e-9)
    assert a.level(at(EXPERT)) == pytest.approx(b.level(at(EXPERT)), rel=1e-9)
    found.certificate.check(other)


TERM = {
    "distance": ('kind = "distance"\nnear = "expert.csv"\nweight = 0.5', "time" + cm.Distance(at(EXPERT), weight=0.5)),
    "distance, other norm": (
        'kind = "distance"\nnear = "best.npz"\nnorm = 1',
        "time" + cm.Distance(cm.Problem(MDP, "time").solve().occupancy, norm=1),
    ),
    "negative entropy": (
        'kind = "negative entropy"\nweight = 0.1\nof = "states"',
        "time" + cm.NegativeEntropy(0.1, of="states"),
    ),
    "kl": ('kind = "kl"\nnear = "uniform.csv"\nweight = 0.1', "time" + cm.KL(at(UNIFORM), weight=0.1)),
}


def test_there_is_a_case_for_each_term():
    assert {name.partition(",")[0] for name in TERM} == set(TERMS)


@pytest.mark.parametrize("kind", TERM)
def test_each_term_is_that_of_the_python_call(kind, folder):
    text, objective = TERM[kind]
    head = 'model = "grid.npz"\nminimize = "time"\n'
    found = stated(folder, f"{head}[[terms]]\n{text}\n").problem().solve()
    expected = cm.Problem(MDP, objective).solve()
    assert found.status is expected.status is cm.Status.OPTIMAL
    assert found.value == pytest.approx(expected.value, rel=3e-6)


def test_a_term_may_be_all_that_is_minimized(folder):
    found = stated(folder, 'model = "grid.npz"\n[[terms]]\nkind = "negative entropy"\n').problem()
    assert found.solve().value == pytest.approx(cm.Problem(MDP, cm.NegativeEntropy()).solve().value, rel=1e-5)


def test_names_priorities_and_weights_are_kept(folder):
    text = 'model = "grid.npz"\nminimize = "time"\n[[limits]]\ncost = "collision"\nat_most = 1e-9\n'
    text += 'name = "walls"\npriority = 2\nweight = 0.5\n[[limits]]\ncost = "time"\nat_most = 0.01\n'
    walls, time = stated(folder, text).problem().constraints
    assert (walls.name, walls.priority, walls.weight) == ("walls", 2, 0.5)
    assert (time.name, time.priority) == ("time", 1)


def test_what_is_maximized_and_sums(folder):
    text = 'model = "grid.npz"\nmaximize = "corner"\n[[limits]]\ncost = "time"\nat_most = 0.6\n'
    mdp = MDP.with_cost("corner", states=["r0c3"])
    expected = cm.Problem(mdp, maximize="corner", subject_to=[cm.Budget("time", at_most=0.6)]).solve()
    assert stated(folder, text).problem().solve().value == pytest.approx(expected.value, rel=3e-6)
    both = stated(folder, 'model = "grid.npz"\nminimize = ["time", "corner"]\n').problem()
    np.testing.assert_allclose(both.cost, mdp.costs["time"] + mdp.costs["corner"])
    assert both.objective == "time + corner"


def test_costs_are_added(folder):
    text = """
    model = "grid.npz"
    minimize = "both"
    [[costs]]
    name = "start"
    states = ["r0c0", "r0c1"]
    [[costs]]
    name = "end"
    states = "r3c3"
    entering = true
    [[costs]]
    name = "both"
    sum = {time = 1, collision = 50.5}
    [[costs]]
    name = "given"
    values = "widths.csv"
    """
    mdp = stated(folder, text).mdp
    expected = MDP.with_cost("start", states=["r0c0", "r0c1"]).with_cost("end", states="r3c3", entering=True)
    for name in ("start", "end"):
        np.testing.assert_array_equal(mdp.costs[name], expected.costs[name])
    np.testing.assert_allclose(mdp.costs["both"], MDP.costs["time"] + 50.5 * MDP.costs["collision"])
    np.testing.assert_allclose(mdp.costs["given"], 1e-3)


def test_worlds_discounts_and_first_states(folder):
    text = 'world = "gridworld"\narguments = {size = 3}\ndiscount = 0.9\ninitial = {r0c1 = 0.5, r1c1 = 0.5}\n'
    mdp = stated(folder, text).mdp
    assert (mdp.num_states, mdp.discount) == (9, 0.9)
    np.testing.assert_array_equal(np.flatnonzero(mdp.initial), [1, 4])
    replaced = stated(folder, text, discount=0.5, initial="r2c2").mdp
    assert replaced.discount == 0.5
    assert replaced.initial[8] == 1


def test_options_are_those_of_solve(folder):
    text = 'model = "grid.npz"\nminimize = "time"\n[options]\ntolerance = 1e-4\nmethod = "mixing"\ntime_limit = 9\n'
    text += 'max_iterations = 100\nwhen_infeasible = "priority"\nexplain = false\n'
    found = stated(folder, text)
    assert set(found.options) == set(OPTIONS)
    assert found.problem().solve(**found.solve_options()).tolerance == 1e-4
    paper = stated(folder, 'model = "grid.npz"\nminimize = "time"\noptions = {method = "as-in-paper"}\n')
    assert isinstance(paper.solve_options()["method"], cm.Splitting)


GRID = 'model = "grid.npz"\nminimize = "time"\n'
WRONG = {
    "no TOML": ("model = ", "this is not TOML: Invalid value (at end of document)"),
    "no TOML, with its line": ("model = 'a'\nx = ]", "line 2"),
    "nothing": ("", "give model ="),
    "both": ('model = "a.npz"\nworld = "queue"', "one of them"),
    "no such file": ('model = "nowhere.npz"', "there is no file"),
    "no model's ending": ('model = "problem.toml"', "models are in files that end in"),
    "no discount": ('model = "grid.csv"', "add a line, as in discount = 0.99"),
    "a discount that is none": ('model = "grid.npz"\ndiscount = "x"', "discount"),
    "no such world": ('world = "gridwold"', "did you mean 'gridworld'?"),
    "no such argument": ('world = "gridworld"\narguments = {sise = 3}', "did you mean 'size'?"),
    "a bad argument": ('world = "gridworld"\narguments = {size = "x"}', "size"),
    "a missing argument": ('world = "garnet"', "needs states"),
    "arguments of a file": ('model = "grid.npz"\narguments = {size = 3}', "arguments go with a world"),
    "no such key": ('model = "grid.npz"\nminimise = "time"', "did you mean 'minimize'?"),
    "no such cost": ('model = "grid.npz"\nminimize = "tiem"', "minimize: there is no cost called 'tiem'"),
    "nothing minimized": ('model = "grid.npz"\nminimize = []', "minimize is []"),
    "a number minimized": ('model = "grid.npz"\nminimize = 3', "minimize is 3"),
    "two senses": (GRID + 'maximize = "time"', "one of them"),
    "limits that are no list": (GRID + "limits = 3", "limits is 3; it must be a list of tables"),
    "limits that are no tables": (GRID + "limits = [3]", "each after a line [[limits]]"),
    "no such kind": (GRID + '[[limits]]\nkind = "budgt"', "limits, number 1: there is no kind of limit called 'budgt'"),
    "a key of another kind": (GRID + '[[limits]]\ncost = "time"\nat_most = 1\nradius = 1', "no key called 'radius'"),
    "a budget without a cost": (GRID + "[[limits]]\nat_most = 1", "the key 'cost' is missing"),
    "a budget without a limit": (GRID + '[[limits]]\ncost = "time"', "needs at_most= or at_least="),
    "a budget on nothing": (GRID + '[[limits]]\ncost = "fuel"\nat_most = 1', "no cost called 'fuel'"),
    "a budget of words": (GRID + '[[limits]]\ncost = "time"\nat_most = "x"', "at_most"),
    "per what": (GRID + '[[limits]]\ncost = "time"\nat_most = 1\nper = "day"', "per is 'day'"),
    "a ball without a centre": (GRID + '[[limits]]\nkind = "norm ball"\nradius = 1', "the key 'near' is missing"),
    "a ball without a radius": (GRID + '[[limits]]\nkind = "norm ball"\nnear = "expert.csv"', "'radius' is missing"),
    "a centre of nothing": (GRID + '[[limits]]\nkind = "kl ball"\nnear = "none.csv"\nradius = 1', "there is no file"),
    "a robust limit without errors": (
        GRID + '[[limits]]\nkind = "robust"\ncost = "time"\nat_most = 1',
        "needs one of box",
    ),
    "errors of the wrong size": (
        GRID + '[[limits]]\nkind = "robust"\ncost = "time"\nat_most = 1\nbox = [1.0, 2.0]',
        "limits, number 1",
    ),
    "linear without rows": (GRID + '[[limits]]\nkind = "linear"\nat_most = 1', "a linear limit needs costs"),
    "numbers that are none": (GRID + '[[limits]]\nkind = "bounds"\nupper = true', "upper is True"),
    "numbers of a model": (GRID + '[[limits]]\nkind = "bounds"\nupper = "grid.csv"', "must hold numbers only"),
    "no such state": (GRID + '[[limits]]\nkind = "state bounds"\nupper = {r9 = 1}', "r9"),
    "a term of nothing": (GRID + '[[terms]]\nkind = "x"', "terms, number 1: there is no kind of term called 'x'"),
    "a term that is maximized": (
        'model = "grid.npz"\nmaximize = "time"\n[[terms]]\nkind = "negative entropy"',
        "terms are added to what is minimized",
    ),
    "no such option": (GRID + "[options]\ntolerence = 1", "options: there is no key called 'tolerence'"),
    "an option that is wrong": (GRID + "[options]\ntolerance = 2", "options: tolerance is 2; it must be a number"),
    "a method that is none": (GRID + '[options]\nmethod = ["x"]', "options: method is ['x']; it must be one of auto"),
    "a cost that is there": (GRID + '[[costs]]\nname = "time"\nstates = ["r0c0"]', "costs, number 1"),
    "a sum of nothing known": (GRID + '[[costs]]\nname = "x"\nsum = {fuel = 1}', "no cost called 'fuel'"),
    "a sum of words": (GRID + '[[costs]]\nname = "x"\nsum = {time = "1"}', "the weight of 'time'"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_named_with_the_file_and_the_key(wrong, folder):
    text, said = WRONG[wrong]
    with pytest.raises(ValueError, match=r"problem\.toml") as caught:
        stated(folder, text)
    assert said in str(caught.value)


def test_files_that_are_no_text_and_missing_ones_are_named(folder):
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"binary.toml'.*UTF-8"):
        read_problem(folder / "binary.toml")
    with pytest.raises(ValueError, match=r"there is no file .*none.toml"):
        read_problem(folder / "none.toml")
    (folder / "deep.toml").write_text("x = " + "[" * 100_000)
    with pytest.raises(ValueError, match=r"deep\.toml"):
        read_problem(folder / "deep.toml")


WORDS = st.sampled_from(
    ["time", "collision", "grid.npz", "grid.csv", "expert.csv", "uniform.npy", "best.npz", "gridworld", "budget",
     "robust", "linear", "norm ball", "kl ball", "entropy", "state bounds", "bounds", "distance", "episode", "<script>",
     "", "é\n"]
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(
        WORDS, st.integers(-3, 30), st.floats(width=32), st.booleans(), st.just(10**400), st.dates(), st.just(L),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip
KEYS = sorted({key for _, keys in LIMITS.values() for key in keys} | {"kind", "name", "priority", "weight"})


def toml(value):
    """Write a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return str(value)


def read_or_named(read, name):
    """Return what was read, or None where a ValueError names the file."""
    said = ""
    try:
        return read()
    except ValueError as error:
        said = str(error)
    assert name in said


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    top=st.dictionaries(
        st.sampled_from(["discount", "initial", "minimize", "maximize", "arguments", "options"]), VALUES, max_size=3
    ),
    limits=st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4), max_size=2),
    costs=st.lists(
        st.dictionaries(st.sampled_from(["name", "states", "labels", "entering", "values", "sum"]), VALUES, max_size=3),
        max_size=2,
    ),
    terms=st.lists(
        st.dictionaries(st.sampled_from(["kind", "near", "weight", "norm", "of", "name"]), VALUES, max_size=3),
        max_size=1,
    ),
)
def test_files_with_anything_in_them_give_a_problem_or_a_value_error(folder, top, limits, costs, terms):
    lines = ['model = "grid.npz"', *(f"{key} = {toml(value)}" for key, value in top.items())]
    for what, entries in (("limits", limits), ("costs", costs), ("terms", terms)):
        for entry in entries:
            lines += [f"[[{what}]]", *(f"{key} = {toml(value)}" for key, value in entry.items())]
    found = read_or_named(lambda: stated(folder, "\n".join(lines), "fuzzed.toml"), "fuzzed.toml")
    if found is not None and (found.minimize is not None or found.maximize is not None):
        assert isinstance(found.problem(), cm.Problem)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 400), put=st.binary(max_size=4))
def test_damaged_files_give_a_problem_or_a_value_error(folder, place, put):
    whole = (GRID + "".join(f"[[limits]]\n{text}\n" for text, _ in list(KINDS.values())[:8])).encode()
    (folder / "damaged.toml").write_bytes(whole[:place] + put + whole[place + len(put) :])
    read_or_named(lambda: read_problem(folder / "damaged.toml"), "damaged.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gridwold", "there is no file 'gridwold', and there is no world called 'gridwold'; did you mean 'gridworld'?"),
        ("gridworld:size", "size=10,slip=0.1"),
        ("gridworld:size=" + "[" * 10_000, "size=10,slip=0.1"),
        ("gridworld:sise=3", "did you mean 'size'?"),
        ("gridworld:comm=true", "there is no argument called 'comm'"),
        ("garnet", "needs states, actions"),
        ("nowhere.npz", "there is no file"),
        ("nowhere.txt", "models are in files that end in"),
    ],
)
def test_a_model_that_is_not_there_is_named(text, said):
    with pytest.raises(ValueError, match=r"there is no|needs|form|ends in") as caught:
        load_model(text)
    assert said in str(caught.value)


def test_worlds_by_name_are_those_of_the_library():
    assert load_model("queue:capacity=5").num_states == cm.worlds.queue(5).num_states
    assert load_model("gridworld:size=3", 0.5, "r1c1").initial[4] == 1
    mdp = make_world("gridworld", {"size": 4, "obstacles": [[1, 1], [2, 2]]})
    np.testing.assert_array_equal(mdp.costs["collision"], MDP.costs["collision"])
