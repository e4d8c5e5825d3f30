"""PETSc's binary format: PETSc reads what is written, what it writes is read, and what is wrong is refused by name."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.io import petsc
from file_models import models
from petsc_files import WRONG, G, P, PetscFiles, files, in_bytes


@pytest.fixture(scope="module")
def petsc_files():
    """PETSc, which writes and reads matrices."""
    process = PetscFiles()
    yield process
    process.close()


def table(mdp, name):
    """Return a cost of a model that offers all actions, by state and action."""
    return mdp.costs[name].reshape(mdp.num_states, -1)


# ------------------------------------------------------------------------------------------------------- with PETSc


@pytest.mark.parametrize("dense", [False, True])
def test_what_petsc_writes_is_read(tmp_path, petsc_files, dense):
    petsc_files.write(tmp_path / "P.bin", P, dense)
    petsc_files.write(tmp_path / "g.bin", G, dense)
    mdp = cm.load(tmp_path / "P.bin", discount=0.9)
    np.testing.assert_array_equal(sp.csr_array(mdp.transitions).toarray(), P)
    np.testing.assert_array_equal(table(mdp, "g"), G)
    assert mdp.state.tolist() == [0, 0, 1, 1, 2, 2]
    assert mdp.action.tolist() == [0, 1, 0, 1, 0, 1]
    assert list(mdp.states) == ["0", "1", "2"]
    np.testing.assert_array_equal(mdp.initial, np.full(3, 1 / 3))


@given(models())
@settings(max_examples=100)
def test_petsc_reads_what_is_written_and_it_comes_back_to_the_last_bit(tmp_path_factory, petsc_files, mdp):
    folder = tmp_path_factory.mktemp("trip")
    tables = {f"c{i}": cost for i, cost in enumerate(mdp.costs.values())}
    mdp = cm.MDP.from_pairs(mdp.state, mdp.action, mdp.transitions, tables, 0.9)
    mdp.save(folder / "P.bin")
    pair = mdp.state * len(mdp.actions) + mdp.action
    expected = np.zeros((mdp.num_states * len(mdp.actions), mdp.num_states))
    expected[pair] = sp.csr_array(mdp.transitions).toarray()
    np.testing.assert_array_equal(petsc_files.read(folder / "P.bin"), expected)
    for name, cost in mdp.costs.items():
        found = petsc_files.read(folder / f"g_{name}.bin")
        assert found.shape == (mdp.num_states, len(mdp.actions))
        np.testing.assert_array_equal(found.ravel()[pair], cost)
        assert np.all(np.delete(found.ravel(), pair) == np.inf)
    again = cm.load(folder / "P.bin", discount=0.9)
    for name in ("state", "action"):
        np.testing.assert_array_equal(getattr(again, name), getattr(mdp, name))
    np.testing.assert_array_equal(sp.csr_array(again.transitions).toarray(), sp.csr_array(mdp.transitions).toarray())
    assert {name: cost.tolist() for name, cost in again.costs.items()} == {
        name: cost.tolist() for name, cost in mdp.costs.items()
    }


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dense", [False, True])
def test_any_rows_are_the_rows_of_petscs_matrix(tmp_path, petsc_files, monkeypatch, seed, dense):
    monkeypatch.setattr(petsc, "CHUNK", 3)
    rng = np.random.default_rng(seed)
    matrix = rng.random((11, 4)) * (rng.random((11, 4)) < 0.4)
    petsc_files.write(tmp_path / "m.bin", matrix, dense)
    begin, end = sorted(rng.integers(0, 12, 2).tolist())
    part = petsc.Matrix.described(tmp_path / "m.bin").part(begin, end)
    np.testing.assert_array_equal(part.toarray() if sp.issparse(part) else part, matrix[begin:end])


def test_whole_numbers_may_have_64_bits(tmp_path, monkeypatch):
    short, long = tmp_path / "short", tmp_path / "long"
    for folder, whole in ((short, "i"), (long, "q")):
        folder.mkdir()
        files(folder, in_bytes(P, whole), g=in_bytes(G, whole))
    one, other = (cm.load(folder / "P.bin", discount=0.9) for folder in (short, long))
    assert (one.transitions != other.transitions).nnz == 0
    np.testing.assert_array_equal(one.costs["g"], other.costs["g"])
    monkeypatch.setattr(petsc, "MANY", 3)  # so that these numbers are too large
    one.save(tmp_path / "P.bin")
    assert (tmp_path / "P.bin").read_bytes() == in_bytes(P, "q")


def test_a_file_whose_entries_32_bits_cannot_count_says_so_by_the_largest_number(tmp_path):
    mdp = cm.load(files(tmp_path, in_bytes(P, entries=2**31 - 1)), discount=0.9)
    np.testing.assert_array_equal(mdp.transitions.toarray(), P)


# -------------------------------------------------------------------------------------------------- names of files


@pytest.mark.parametrize(
    ("name", "costs"),
    [
        ("P.bin", {"g": "g", "r": "r", "time": "g_time", "a b_c": "r_a b_c"}),
        ("pend_P_121_5.bin", {"g": "pend_g_121_5", "time": "pend_g_time_121_5"}),
        ("maze.bin", {"g": "maze_g", "time": "maze_g_time"}),
        ("MDP.BIN", {"g": "MDP_g", "r": "MDP_r"}),
    ],
)
def test_costs_are_in_files_beside_that_of_the_transitions(tmp_path, name, costs):
    files(tmp_path, name=name, **{file: G + i for i, file in enumerate(costs.values())})
    for other in ("maze_25x25.bin", "g.txt", "gg.bin", "xg.bin", "g_12_3.bin", "P_12_3.bin"):
        (tmp_path / other).write_text("of something else")
    mdp = cm.load(tmp_path / name, discount=0.9)
    assert set(mdp.costs) == set(costs)
    for i, cost in enumerate(costs):
        np.testing.assert_array_equal(table(mdp, cost), G + i)


def test_two_files_with_the_same_cost_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"P\.bin' has two files with the cost 'time': 'g_time\.bin' and 'r_time\.bin'"
    ):
        cm.load(files(tmp_path, g_time=G, r_time=G), discount=0.9)


def test_without_costs_it_is_said_where_they_should_be(tmp_path):
    path = files(tmp_path, name="maze_P_9.bin", g=G)
    with pytest.raises(ValueError, match=r"no file with costs beside '.*P_9\.bin'; they are in 'maze_g_9\.bin' or"):
        cm.load(path, discount=0.9)


def test_files_that_would_be_read_with_a_model_are_not_left_beside_it(tmp_path):
    mdp = cm.worlds.gridworld(size=2)
    mdp.save(tmp_path / "P.bin")
    mdp.save(tmp_path / "P.bin")
    (tmp_path / "g_money.bin").write_text("")
    before = (tmp_path / "P.bin").read_bytes()
    with pytest.raises(ValueError, match=r"g_money\.bin' is there and would be read as part of the model"):
        mdp.with_discount(0.5).save(tmp_path / "P.bin")
    assert (tmp_path / "P.bin").read_bytes() == before
    (tmp_path / "g_money.bin").unlink()
    (tmp_path / "P_time.bin").write_text("")
    with pytest.raises(ValueError, match=r"'g_time\.bin' would be taken for a cost of another model"):
        mdp.save(tmp_path / "P.bin")


@pytest.mark.parametrize("name", ["a/b", "..\\x", "line\nbreak", "a:b"])
def test_costs_whose_names_are_no_part_of_a_file_name_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be part of the name of a file; rename it"):
        cm.MDP([np.eye(2)], {name: [0.0, 1.0]}, 0.9).save(tmp_path / "P.bin")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ what is not offered


@pytest.mark.parametrize("row", [np.zeros(3), P[3]])
def test_an_action_whose_cost_is_infinite_is_not_offered(tmp_path, row):
    rows, cost, other = P.copy(), G.copy(), 2 * G
    rows[3], cost[1, 1], other[1, 1] = row, np.inf, -np.inf
    mdp = cm.load(files(tmp_path, rows, g=cost, r=other), discount=0.9)
    assert mdp.state.tolist() == [0, 0, 1, 2, 2]
    assert mdp.action.tolist() == [0, 1, 0, 0, 1]
    np.testing.assert_array_equal(mdp.transitions.toarray(), np.delete(P, 3, axis=0))
    assert mdp.costs["g"].tolist() == [1.0, 0.0, 0.0, 1e-8, 2.0]


# -------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("content", "said"), WRONG)
def test_what_is_wrong_is_refused_by_name(tmp_path, content, said):
    with pytest.raises(ValueError, match=said):
        cm.load(files(tmp_path, **({"P": P, "g": G} | content)), discount=0.9)


@given(st.data())
@settings(max_examples=200)
def test_a_file_with_any_byte_changed_is_read_or_refused_by_name(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged")
    content = {"P": bytearray(in_bytes(P)), "g": bytearray(in_bytes(G))}
    which = data.draw(st.sampled_from(["P", "g"]))
    at = data.draw(st.integers(0, len(content[which]) - 1))
    content[which][at] = data.draw(st.integers(0, 255))
    path = files(folder, **{name: bytes(some) for name, some in content.items()})
    said = str(path)
    try:
        cm.load(path, discount=0.9)
    except ValueError as error:
        said = str(error)
    assert str(folder) in said
