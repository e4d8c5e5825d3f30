"""Archives that are read where they lie, and sums over some rows at a time: the same verdicts, none less strict."""

from fractions import Fraction

import numpy as np
import pytest

import cvxmdp as cm
import cvxmdp_verifier.extended as sums
import cvxmdp_verifier.fields as fields
import cvxmdp_verifier.files as files
from cvxmdp.io import files as written
from cvxmdp_verifier import Refused, read, verify, verify_files
from cvxmdp_verifier.extended import Matrix, extended

CHUNK = 50
"""Transitions at a time, of more than a thousand."""


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chunks")
    mdp = cm.worlds.gridworld(size=9)
    solution = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-3)]).solve()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "MOST_PACKED", 0)
        mdp.save(folder / "model.npz")
        solution.save(folder / "solution.npz")
    assert mdp.transitions.nnz > 20 * CHUNK
    return folder / "model.npz", folder / "solution.npz"


@pytest.fixture
def chunks(monkeypatch):
    for module in (sums, fields):
        monkeypatch.setattr(module, "CHUNK", CHUNK)


@pytest.fixture
def mapped(monkeypatch):
    monkeypatch.setattr(files, "LARGE", 1)


def is_mapped(array):
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap)


def test_the_verdict_does_not_depend_on_chunks_or_on_where_arrays_lie(answered, monkeypatch):
    whole = verify_files(*answered)
    for module in (sums, fields):
        monkeypatch.setattr(module, "CHUNK", CHUNK)
    monkeypatch.setattr(files, "LARGE", 1)
    parts = verify_files(*answered)
    assert whole.status == parts.status == "OPTIMAL"
    assert parts.value == whole.value
    assert parts.value_error == pytest.approx(whole.value_error, rel=1e-6)
    assert parts.bound == whole.bound
    assert parts.gap == pytest.approx(whole.gap, rel=1e-6)


def test_large_arrays_that_are_not_compressed_are_views_of_the_file(answered, mapped):
    header, arrays = read(answered[0], "model")
    with np.load(answered[0]) as archive:
        for name, array in arrays.items():
            assert is_mapped(array), name
            assert not array.flags.writeable
            np.testing.assert_array_equal(array, archive[name])
    assert header["kind"] == "cvxmdp model"


def test_arrays_anywhere_in_a_file_are_read(answered, tmp_path, mapped, chunks):
    """NumPy's own archives begin arrays at odd places."""
    model = tmp_path / "odd.npz"
    with np.load(answered[0]) as archive:
        held = dict(archive)
    for k in range(1, 8):
        text = held["header"].tobytes() + b" " * k
        np.savez(model, **held | {"header": np.frombuffer(text, dtype=np.uint8)})
        assert verify_files(model, answered[1]).status == "OPTIMAL"


@pytest.mark.parametrize("seed", range(20))
def test_sums_over_chunks_bound_their_error_no_less_strictly(seed, monkeypatch):
    """Against sums of fractions: what is stated is within the error, which is no smaller than of the whole at once."""

    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(40, 7)) * 10.0 ** rng.integers(-12, 12, (40, 7)) * (rng.random((40, 7)) < 0.6)
    x, y = extended(rng.normal(size=7)), extended(rng.normal(size=40))
    entries = [[Fraction(v) for v in row] for row in dense.tolist()]
    exact = [Fraction(*v.as_integer_ratio()) for v in y]
    here = [Fraction(*v.as_integer_ratio()) for v in x]
    truth = {
        "times": [sum(a * b for a, b in zip(row, here, strict=True)) for row in entries],
        "back": [sum(row[j] * b for row, b in zip(entries, exact, strict=True)) for j in range(7)],
        "sums": [sum(row) for row in entries],
    }
    nonzero = [np.flatnonzero(row) for row in dense]
    parts = {
        "data": np.concatenate([row[some] for row, some in zip(dense, nonzero, strict=True)]),
        "indices": np.concatenate(nonzero).astype(np.int32),
        "indptr": np.cumsum([0, *map(len, nonzero)]),
        "shape": dense.shape,
    }
    found = {}
    for chunk in (2**18, 5):
        monkeypatch.setattr(sums, "CHUNK", chunk)
        for matrix in (Matrix(dense), Matrix(**parts)):
            rows = [matrix.sums(slice(c.start, c.stop)) for c in matrix.chunks()]
            got = {
                "times": matrix.times(x),
                "back": matrix.back(y),
                "sums": sums.Close(*(np.concatenate([getattr(r, f) for r in rows]) for f in ("value", "error"))),
            }
            for name, close in got.items():
                for value, error, true in zip(close.value, close.error, truth[name], strict=True):
                    assert abs(Fraction(*value.as_integer_ratio()) - true) <= Fraction(*error.as_integer_ratio())
                least = found.setdefault((name, isinstance(matrix._dense, np.ndarray)), close.error)
                assert np.all(close.error >= least * (1 - 1e-12))


@pytest.mark.parametrize("seed", range(5))
def test_sums_by_chunks_are_as_far_from_the_truth_as_they_say(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 40)) * 10.0 ** rng.integers(-9, 9, (2, 40))
    off = 1e-12 * np.abs(b)
    exact = [Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    for chunk in (2**18, 40, 7, 1):
        monkeypatch.setattr(sums, "CHUNK", chunk)
        for close, true, more in (
            (sums.total(extended(a)), sum(map(Fraction, a.tolist())), 0),
            (sums.dot(extended(a), extended(b)), sum(exact), 0),
            (sums.dot(extended(a), extended(b), extended(off)), sum(exact), float(np.abs(a) @ off)),
        ):
            error = Fraction(*close.error.as_integer_ratio())
            assert abs(Fraction(*close.value.as_integer_ratio()) - true) <= error
            assert more <= error <= more * 1.01 + 1e-17 * float(sum(map(abs, exact)) + np.abs(a).sum())
    assert sums.total(extended([])) == (0, 0) == sums.dot(extended([]), extended([]))


@pytest.mark.parametrize("seed", range(5))
def test_what_rows_lead_to_is_the_same_by_chunks(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    dense = (rng.random((60, 30)) < 0.05) * rng.choice([0.0, 1.0, 2.0], (60, 30))
    stored = rng.random((60, 30)) < 0.1  # also zeros
    stored |= dense != 0
    rows, columns = np.nonzero(stored)
    ends = np.concatenate(([0], np.cumsum(stored.sum(axis=1))))
    matrix = Matrix(data=dense[rows, columns], indices=columns, indptr=ends, shape=dense.shape)
    monkeypatch.setattr(sums, "CHUNK", 3)
    for size in (0, 1, 17, 60):
        some = np.sort(rng.choice(60, size, replace=False))
        np.testing.assert_array_equal(matrix.following(some), np.flatnonzero((dense[some] != 0).any(axis=0)))


def forged(path, name, change):
    header, arrays = read(path, "solution")
    array = arrays[name].copy()
    change(array)
    return header, {**arrays, name: array}


def middle(factor):
    """Change an entry in the middle of the largest ones, far from the first and the last chunk."""

    def change(array):
        flat = array.reshape(-1)
        inner = np.arange(flat.size // 4, flat.size // 2)
        k = inner[np.argmax(np.abs(flat[inner]))]
        assert flat[k] != 0
        flat[k] *= factor

    return change


@pytest.mark.parametrize("name", ["occupancy", "cost", "policy:visits", "visits", "probabilities", "price:0", "state"])
def test_what_is_forged_in_a_middle_chunk_is_refused(name, answered, mapped, chunks):
    model, solution = read(answered[0], "model"), answered[1]
    if name == "price:0":
        change = lambda array: np.multiply(array, 1.01, out=array)  # noqa: E731
    elif name == "state":
        change = lambda array: array.__setitem__(array.size // 2, array[array.size // 2] + 1)  # noqa: E731
    else:
        change = middle(1.01)
    with pytest.raises(Refused) as refused:
        verify(model, forged(solution, name, change))
    assert "cannot be understood" not in str(refused.value)


def test_a_potential_forged_in_a_middle_chunk_proves_less(answered, mapped, chunks):
    model, solution = read(answered[0], "model"), answered[1]
    with pytest.raises(Refused, match="is said to cost less than"):
        verify(model, forged(solution, "bound:potential", middle(1.01)))


@pytest.mark.parametrize(("name", "wrong"), [("P_data", np.nan), ("P_data", -0.1), ("P_data", 0.9), ("P_indices", 81)])
def test_a_model_that_is_wrong_in_a_middle_chunk_is_refused(name, wrong, answered, mapped, chunks):
    header, arrays = read(answered[0], "model")
    array = arrays[name].copy()
    array[array.size // 2] = wrong
    with pytest.raises(Refused, match=name if np.isnan(wrong) or name == "P_indices" else "negative|add up"):
        verify((header, {**arrays, name: array}), read(answered[1], "solution"))


@pytest.mark.parametrize("which", [0, 1])
def test_damage_is_found_where_arrays_are_mapped(which, answered, tmp_path, mapped):
    paths = [tmp_path / "model.npz", tmp_path / "solution.npz"]
    for path, source in zip(paths, answered, strict=True):
        path.write_bytes(source.read_bytes())
    kind, name = [("cvxmdp model", "P_data"), ("cvxmdp solution", "occupancy")][which]
    member = written.open_archive(paths[which], kind)[1][name]
    whole = paths[which].read_bytes()
    damaged = bytearray(whole)
    damaged[member.stored + member.nbytes // 2] ^= 1  # the last bit of a number, which alone proves nothing wrong
    paths[which].write_bytes(damaged)
    with pytest.raises(Refused, match="cannot be read"):
        verify_files(*paths)
    paths[which].write_bytes(whole[: member.stored + member.nbytes // 2])
    with pytest.raises(Refused, match="cannot be read"):
        verify_files(*paths)
