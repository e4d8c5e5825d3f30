"""Files of which each rank reads its part: the model that is scattered from the whole, and the same errors."""

import gzip
import io
import json
import lzma
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from mpi4py import MPI

import cvxmdp as cm
from petsc_files import WRONG as WRONG_MATRICES
from petsc_files import G, P, files
from small_models import MODELS
from umb_files import EXAMPLES, REFUSED, tar

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
        assert getattr(found, name).dtype == getattr(expected, name).dtype
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


def unpacked(path):
    """Write a packed archive as it is without packing."""
    path.write_bytes(gzip.decompress(path.read_bytes()))


def repacked(path, pack, names=sorted):
    """Write the members of a tar archive again, in another order."""
    with tarfile.open(path) as archive:
        members = {info.name: archive.extractfile(info).read() for info in archive}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names(members):
            info = tarfile.TarInfo(name)
            info.size = len(members[name])
            archive.addfile(info, io.BytesIO(members[name]))
    path.write_bytes(pack(buffer.getvalue()))


@pytest.mark.parametrize("ending", [".umb", ".bin"])
@pytest.mark.parametrize("model", MODELS)
def test_each_rank_reads_its_part_of_files_of_others(folder, ending, model):
    path = written(folder / f"P{ending}", MODELS[model]().save)
    whole = cm.load(path, discount=0.9)
    found = cm.load(path, discount=0.9, comm=WORLD)
    assert_same(found, cm.scatter(whole, WORLD))
    for name, cost in whole.costs.items():
        np.testing.assert_array_equal(cm.gather(found, found.costs[name], to_all=True), cost)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("names", [list, sorted, lambda members: sorted(members, reverse=True)])
def test_members_may_be_packed_and_come_in_any_order(folder, monkeypatch, pack, names):
    monkeypatch.setattr("cvxmdp.io.tar.PART", 64)
    mdp = labelled().with_initial({"b": 0.25, "e": 0.75})
    path = written(folder / "model.umb", mdp.save)
    written(path, lambda path: repacked(path, pack, names))
    assert_same(cm.load(path, discount=0.9, comm=WORLD), cm.scatter(mdp, WORLD))


@pytest.mark.parametrize("starts", [[], [2], [0, 3]])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("example", EXAMPLES)
def test_whatever_a_file_in_the_format_umb_may_hold_each_rank_reads_its_part(folder, example, pack, starts):
    path = written(folder / "model.umb", lambda path: path.write_bytes(pack(tar(EXAMPLES[example]))))
    whole = cm.load(path, discount=0.9)
    initial = {whole.states[i]: 1 / len(starts) for i in starts} or None
    whole = whole if initial is None else whole.with_initial(initial)
    assert_same(cm.load(path, discount=0.9, initial=initial, comm=WORLD), cm.scatter(whole, WORLD))


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
    path = written(folder / "model.csv", mdp.save)
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


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("wrong", REFUSED)
def test_what_is_wrong_in_a_file_in_the_format_umb_is_one_error_on_all_ranks(folder, wrong, pack):
    members, said = REFUSED[wrong]
    pack = gzip.compress if "9000" in said else pack
    path = written(folder / "model.umb", lambda path: path.write_bytes(pack(tar(members))))
    with pytest.raises(ValueError, match=said) as caught:
        cm.load(path, discount=0.9, initial=[1.0] if "9000" in said else None, comm=WORLD)
    assert str(caught.value).startswith(repr(str(path)))
    assert len(set(WORLD.allgather(str(caught.value)))) == 1


@pytest.mark.parametrize(("content", "said"), WRONG_MATRICES)
def test_what_is_wrong_in_files_of_petsc_is_one_error_on_all_ranks(folder, content, said):
    path = written(folder / "P.bin", lambda path: files(path.parent, **({"P": P, "g": G} | content)))
    with pytest.raises(ValueError, match=said) as caught:
        cm.load(path, discount=0.9, comm=WORLD)
    assert str(folder) in str(caught.value)
    assert len(set(WORLD.allgather(str(caught.value)))) == 1


@pytest.mark.parametrize("initial", ["2", {"0": 0.25, "1": 0.75}])
def test_the_first_state_of_files_of_petsc_is_given_by_number(folder, initial):
    path = written(folder / "P.bin", lambda path: files(path.parent))
    whole = cm.load(path, discount=0.9, initial=initial)
    assert_same(cm.load(path, discount=0.9, initial=initial, comm=WORLD), cm.scatter(whole, WORLD))
    with pytest.raises(ValueError, match=r"^initial: there is no state called '3'"):
        cm.load(path, discount=0.9, initial="3", comm=WORLD)


def near(states=600, actions=4, entries=150):
    """A model of which almost everything is transitions, to the states that follow."""
    following = (np.arange(states).repeat(actions)[:, None] + np.arange(entries)) % states
    ends = np.arange(0, following.size + 1, entries)
    rows = sp.csr_array((np.full(following.size, 1 / entries), following.ravel(), ends), shape=(len(ends) - 1, states))
    state, action = np.divmod(np.arange(len(ends) - 1), actions)
    return cm.MDP.from_pairs(state, action, rows, {"g": np.arange(len(ends) - 1.0)}, 0.9)


@pytest.mark.parametrize("ending", [".npz", ".umb", ".bin", "packed.umb"])
def test_no_rank_holds_more_than_its_part(folder, monkeypatch, ending):
    rewrite = {".umb": unpacked, ".npz": lambda path: rewritten(path, zipfile.ZIP_STORED)}
    for buffer in ("io.files.CHUNK", "io.tar.PART", "io.petsc.CHUNK"):
        monkeypatch.setattr(f"cvxmdp.{buffer}", 2**12)
    path = written(folder / f"P{ending}", near().save)
    if ending in rewrite:
        written(path, rewrite[ending])
    cm.load(path, discount=0.9, comm=WORLD)  # modules are imported
    WORLD.Barrier()
    tracemalloc.start()
    found = cm.load(path, discount=0.9, comm=WORLD)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    part, whole = 12 * found.transitions.csr.nnz, 12 * found.transitions.nnz
    assert part <= whole / WORLD.size * 1.01
    assert held < 2 * part + 0.1 * whole
