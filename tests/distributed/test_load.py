"""Files of which each rank reads its part: the model that is scattered from the whole, and the same errors."""

import json
import zipfile

import numpy as np
import pytest
from mpi4py import MPI

import cvxmdp as cm
from small_models import MODELS

WORLD = MPI.COMM_WORLD


@pytest.fixture
def folder(tmp_path_factory):
    """One folder for all ranks."""
    return WORLD.bcast(tmp_path_factory.mktemp("models") if WORLD.rank == 0 else None)


def written(path, write):
    """Let the first rank write a file, before any rank reads it."""
    if WORLD.rank == 0:
        write(path)
    WORLD.Barrier()
    return path


def rewritten(path, packing=zipfile.ZIP_DEFLATED, **changed):
    """Write the members of an archive again, some of them changed."""
    with np.load(path) as archive:
        members = {**archive, **changed}
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(array))


def assert_same(found, expected):
    """Every rank compares its own part."""
    for name in ("state", "action", "initial"):
        np.testing.assert_array_equal(getattr(found, name).local, getattr(expected, name).local)
    for name, cost in expected.costs.items():
        np.testing.assert_array_equal(found.costs[name].local, cost.local)
    assert (found.transitions.csr != expected.transitions.csr).nnz == 0
    np.testing.assert_array_equal(found.transitions.halo.guests, expected.transitions.halo.guests)
    assert repr(found) == repr(expected)
    assert list(found.states) == list(expected.states)
    assert list(found.actions) == list(expected.actions)
    assert {name: which.tolist() for name, which in found.labels.items()} == {
        name: which.tolist() for name, which in expected.labels.items()
    }


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize("model", MODELS)
def test_each_rank_reads_the_part_that_would_be_scattered_to_it(folder, model, packing):
    mdp = MODELS[model]()
    path = written(folder / "model.npz", mdp.save)
    written(path, lambda path: rewritten(path, packing))
    assert_same(cm.load(path, comm=WORLD), cm.scatter(mdp, WORLD))


def test_a_model_is_read_in_chunks(folder, monkeypatch):
    monkeypatch.setattr("cvxmdp.io.files.CHUNK", 64)
    mdp = MODELS["ragged"]()
    assert_same(cm.load(written(folder / "model.npz", mdp.save), comm=True), cm.scatter(mdp, WORLD))


def labelled():
    return cm.MDP(
        [np.eye(5), np.roll(np.eye(5), 1, axis=1)], {"cost": np.arange(5.0)}, 0.9, states=list("abcde"),
        labels={"ends": ["a", "e"]},
    )  # fmt: skip


def test_names_labels_and_dense_rows_come_along(folder):
    mdp = labelled()
    found = cm.load(written(folder / "model.npz", mdp.save), comm=WORLD)
    assert_same(found, cm.scatter(mdp, WORLD))
    limit = cm.StateBounds(upper={"ends": 0.1})
    alone, together = (cm.Problem(m, "cost", [limit]).solve() for m in (mdp, found))
    assert together.status is alone.status
    assert together.value == pytest.approx(alone.value, abs=1e-6)


@pytest.mark.parametrize("initial", ["c", {"a": 0.25, "e": 0.75}, np.array([0, 0.5, 0.5, 0, 0])])
def test_the_discount_and_the_first_state_can_be_others(folder, initial):
    mdp = labelled()
    path = written(folder / "model.npz", mdp.save)
    expected = cm.scatter(mdp.with_discount(0.8).with_initial(initial), WORLD)
    assert_same(cm.load(path, discount=0.8, initial=initial, comm=WORLD), expected)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"discount": 1.5}, "discount is 1.5"), ({"initial": "z"}, "initial: there is no state called 'z'")],
)
def test_others_that_are_wrong_are_refused_as_in_one_place(folder, changed, said):
    path = written(folder / "model.npz", labelled().save)
    for comm in (None, WORLD):
        with pytest.raises(ValueError, match=f"^{said}"):
            cm.load(path, **changed, comm=comm)


def test_other_formats_are_read_whole_and_scattered(folder):
    mdp = MODELS["ragged"]()
    path = written(folder / "model.umb", mdp.save)
    assert_same(cm.load(path, discount=0.9, comm=WORLD), cm.scatter(cm.load(path, discount=0.9), WORLD))
    with pytest.raises(ValueError, match="holds no discount"):
        cm.load(path, comm=WORLD)


def header(**changed):
    text = json.dumps({"kind": "cvxmdp model", "version": 2, "states": 5, "actions": 2, "costs": ["cost"], **changed})
    return np.frombuffer(text.encode(), np.uint8)


STATE = np.repeat(np.arange(5), 2)
WRONG = [
    ({"state": STATE[::-1]}, "state"),
    ({"state": np.append(STATE[:-1], 7)}, "state"),
    ({"action": np.append(np.tile([0, 1], 4), [0, 9])}, "from 0 to 1"),
    ({"initial": np.full(5, 0.3)}, "sums to"),
    ({"initial": np.full(4, 0.25)}, "the header states 5 states"),
    ({"cost:0": np.append(np.ones(9), np.nan)}, "must be finite"),
    ({"cost:0": np.ones(9)}, "must be 10"),
    ({"P": np.full((10, 5), 0.3)}, "sum to"),
    ({"header": header(discount=2.0)}, "must lie between"),
    ({"header": header(discount=0.9, states=6)}, "states 6|6 states"),
    ({"header": header(discount=0.9, kind="cvxmdp solution")}, "holds a cvxmdp solution"),
]


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize(("changed", "said"), WRONG)
def test_what_is_wrong_in_a_part_is_an_error_on_all_ranks(folder, changed, said, packing):
    path = written(folder / "model.npz", cm.MDP([np.eye(5), np.eye(5)], {"cost": np.zeros(5)}, 0.9).save)
    written(path, lambda path: rewritten(path, packing, **changed))
    with pytest.raises(ValueError, match=said):
        cm.load(path, comm=WORLD)


def test_a_file_that_is_not_there_or_damaged_is_an_error_on_all_ranks(folder):
    with pytest.raises(ValueError, match="there is no file"):
        cm.load(folder / "nothing.npz", comm=WORLD)
    path = written(folder / "damaged.npz", lambda path: path.write_bytes(b"PK\3\4 no archive"))
    with pytest.raises(ValueError, match="damaged"):
        cm.load(path, comm=WORLD)
    with pytest.raises(ValueError, match=r"ends in '\.txt'"):
        cm.load(folder / "model.txt", comm=WORLD)
