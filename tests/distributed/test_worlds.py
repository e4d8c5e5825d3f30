"""Worlds of which each rank makes its part: the one that would be scattered to it, and no more."""

import tracemalloc
from importlib import import_module

import numpy as np
import pytest
from mpi4py import MPI

import cvxmdp as cm
from cvxmdp.cli import ranks
from cvxmdp.cli.arguments import read_stated
from cvxmdp.io.problem import load_model
from cvxmdp.names import Numbers
from cvxmdp.ranks.world import world_of

WORLD = MPI.COMM_WORLD
GARNET = import_module("cvxmdp.worlds.garnet")  # the function has the name of its module
MAINTENANCE = import_module("cvxmdp.worlds.maintenance")
THREE = ((0.4, 2.0, 3.0), (0.3, 1.0, 2.0), (0.2, 0.5, 1.0))

CASES = [
    ("queue", {"capacity": 1, "speeds": [0.5]}),  # two states, fewer than three ranks
    ("queue", {"capacity": 40, "start": 7, "discount": 0.9}),
    ("tandem", {"size": 2, "speeds": [0.5]}),
    ("tandem", {"size": 7, "powers": (0.1, 2.0, 3.0)}),
    ("inventory", {"capacity": 1}),
    ("inventory", {"capacity": 43, "lot": 3}),
    ("inventory", {"capacity": 30, "demand": 25.0, "lot": 31}),  # from little in stock, all leads to one state
    ("inventory", {"capacity": 20, "demand": (0.25, 0.0, 0.5, 0.25)}),
    ("perishable", {"shelf_life": 2, "capacity": 1}),
    ("perishable", {}),
    ("perishable", {"shelf_life": 4, "capacity": 7, "demand": 20.0, "lot": 2}),
    ("perishable", {"shelf_life": 41, "capacity": 1}),
    ("admission", {"capacity": 1, "classes": [(1.0, 1.0, 1.0)]}),
    ("admission", {"capacity": 13}),
    ("admission", {"capacity": 6, "classes": THREE}),
    ("maintenance", {"machines": 1, "conditions": 2, "wear": 0.0}),
    ("maintenance", {}),
    ("maintenance", {"machines": 3, "conditions": 3, "crew": 2, "wear": (0.1, 0.7, 1.0)}),
    ("epidemic", {"population": 1, "levels": [0.0]}),
    ("epidemic", {"population": 17}),
    ("epidemic", {"population": 23, "levels": (0.1, 0.5), "contact": 0.011, "recovery": 0.37, "infected": 0}),
    ("lake", {"size": 2, "holes": 0.0}),
    ("lake", {"size": 9, "holes": 0.3, "seed": 4}),
    ("lake", {"size": 9, "slip": 0.5, "restart": False}),
    ("gridworld", {"size": 2, "obstacles": []}),
    ("gridworld", {}),
    ("gridworld", {"size": 11, "seed": 3, "slip": 0.3}),
    ("garnet", {"states": 1, "actions": 2, "branching": 0.5, "seed": 0}),
    ("garnet", {"states": 2, "actions": 3, "branching": 1.0, "seed": 0}),
    ("garnet", {"states": 53, "actions": 3, "branching": 0.1, "seed": 5}),
    ("garnet", {"states": 53, "actions": 3, "branching": 0.6, "seed": 5}),
    ("disk_drive", {}),
]


def assert_same(found, expected):
    """Every rank compares its own part, to the last bit."""
    block, other = found.transitions, expected.transitions
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(block.csr, part), getattr(other.csr, part))
    np.testing.assert_array_equal(block.halo.guests, other.halo.guests)
    np.testing.assert_array_equal(block.starts, other.starts)
    assert (block.csr.shape, block.shape, block.nnz) == (other.csr.shape, other.shape, other.nnz)
    assert (block.states, block.pairs) == (other.states, other.pairs)
    for name in ("state", "action", "initial"):
        np.testing.assert_array_equal(getattr(found, name).local, getattr(expected, name).local)
    assert list(found.costs) == list(expected.costs)
    for name, cost in expected.costs.items():
        np.testing.assert_array_equal(found.costs[name].local, cost.local)
    assert repr(found) == repr(expected)
    assert list(found.states) == list(expected.states)
    assert list(found.actions) == list(expected.actions)
    assert {name: which.tolist() for name, which in found.labels.items()} == {
        name: which.tolist() for name, which in expected.labels.items()
    }


@pytest.mark.parametrize("few", [False, True], ids=["at once", "few at a time"])
@pytest.mark.parametrize(("world", "arguments"), CASES)
def test_each_rank_makes_the_part_that_would_be_scattered_to_it(monkeypatch, world, arguments, few):
    make = getattr(cm.worlds, world)
    if few:
        monkeypatch.setattr(GARNET, "CHUNK_ENTRIES", 11)
    expected = cm.scatter(make(**arguments), WORLD)
    if few:
        monkeypatch.setitem(cm.worlds.make.make.__kwdefaults__, "at_a_time", 5)
    assert_same(make(**arguments, comm=True), expected)


def test_all_worlds_are_here():
    assert {world for world, _ in CASES} == set(cm.worlds.__all__) - {"obstacle_cells"}


def test_a_world_made_in_parts_has_the_answer_of_the_whole():
    alone, together = (
        cm.Problem(mdp, "lockdown", [cm.Budget("beds", at_most=0.05)]).solve(tolerance=1e-9)
        for mdp in (cm.worlds.epidemic(20), cm.worlds.epidemic(20, comm=WORLD))
    )
    assert together.status is alone.status is cm.Status.OPTIMAL
    assert together.value == pytest.approx(alone.value, rel=1e-8)
    assert together.prices["beds"] == pytest.approx(alone.prices["beds"], rel=1e-6)


LARGE = [
    ("queue", {"capacity": 20_000}),
    ("tandem", {"size": 100, "speeds": (0.5, 0.7)}),
    ("inventory", {"capacity": 10_000, "demand": 1.0}),
    ("perishable", {"shelf_life": 3, "capacity": 150, "demand": [0.2, 0.3, 0.5]}),
    ("admission", {"capacity": 120}),
    ("maintenance", {"machines": 6, "conditions": 4}),
    ("epidemic", {"population": 150}),
    ("lake", {"size": 100}),
    ("gridworld", {"size": 100}),
    ("garnet", {"states": 5000, "actions": 4, "branching": 4e-3, "seed": 0}),
]


def test_names_of_millions_of_states_are_made_when_asked_for():
    mdp = cm.worlds.tandem(300, (0.5,), comm=True)
    assert (mdp.states[301], mdp.states[-1], mdp.states[2:4]) == (
        "queues 1+1",
        "queues 299+299",
        ("queues 0+2", "queues 0+3"),
    )


@pytest.mark.parametrize(("world", "arguments"), LARGE)
def test_no_rank_holds_more_than_its_part(monkeypatch, world, arguments):
    """What is made of few states at a time is put together once, and once more on the rank."""
    for module, name, size in ((GARNET, "CHUNK_ENTRIES", 1 << 12), (MAINTENANCE, "CHUNK", 1 << 9)):
        monkeypatch.setattr(module, name, size)
    monkeypatch.setitem(cm.worlds.make.make.__kwdefaults__, "at_a_time", 1 << 7)
    tracemalloc.start()
    mdp = getattr(cm.worlds, world)(**arguments, comm=WORLD)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    csr = mdp.transitions.csr
    own = sum(array.nbytes for array in (csr.data, csr.indices, csr.indptr))
    own += sum(array.local.nbytes for array in (mdp.state, mdp.action, mdp.initial, *mdp.costs.values()))
    assert peak <= 3.5 * own + 16 * mdp.num_states


@pytest.mark.parametrize(
    ("world", "arguments", "said"),
    [
        ("queue", {"capacity": 0}, "capacity is 0; it must be at least 1"),
        ("lake", {"size": 4, "holes": 0.8}, "holes is 0.8, which is 13 cells; at most 9 lie beside a path to the goal"),
        ("gridworld", {"size": 7, "seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ("garnet", {"states": 5, "actions": 2, "branching": 0.5, "seed": -1}, "seed must be a whole number"),
        ("tandem", {"size": 50_000}, "size must be smaller: 2500000000 states, of which 2147483647 would fit"),
        ("epidemic", {"discount": 1.0}, "discount is 1.0; it must lie between 0 and 1"),
        ("maintenance", {"comm": "all"}, "comm is 'all'; give a communicator"),
    ],
)
def test_bad_arguments_are_refused_on_all_ranks_in_the_same_words(world, arguments, said):
    with pytest.raises(ValueError, match=f"^{said}") as refusal:
        getattr(cm.worlds, world)(**{"comm": WORLD, **arguments})
    assert set(WORLD.allgather(str(refusal.value))) == {str(refusal.value)}


def test_what_goes_wrong_on_one_rank_is_an_error_on_all():
    def rows(states):
        if states.size and states[-1] == 11:  # on the last rank
            raise MemoryError("no room for these")
        return cm.worlds.make.Rows(states, 0 * states, np.eye(12)[states], {"cost": np.ones(states.size)})

    with pytest.raises(MemoryError, match="no room for these"):
        cm.worlds.make.make(rows, Numbers(12), WORLD, discount=0.9)


def test_a_world_by_name_is_made_on_the_ranks(monkeypatch):
    asked = []
    rows = cm.worlds.make.from_rows
    monkeypatch.setattr(
        cm.worlds.make, "from_rows", lambda *args, **kwargs: asked.append(args) or rows(*args, **kwargs)
    )
    expected = cm.scatter(cm.worlds.queue(30, discount=0.9), WORLD)
    assert_same(load_model("queue:capacity=30", discount=0.9, comm=WORLD), expected)
    monkeypatch.setattr(ranks, "_worlds", [world_of(WORLD)])
    assert_same(read_stated("queue:capacity=30", discount=0.9).mdp, expected)
    assert len(asked) == 2
    elsewhere = read_stated("queue:capacity=30", discount=0.9, initial="queue 7").mdp
    assert_same(elsewhere, cm.scatter(cm.worlds.queue(30, discount=0.9, start=7), WORLD))
