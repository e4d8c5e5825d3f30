"""Whatever a file holds, loading it gives a model, a solution or a ValueError, and takes little memory."""

import io
import json
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from fuzz_model import PATH, try_model, unpacked  # noqa: E402
from fuzz_solution import try_solution  # noqa: E402

CORPUS = sorted((FOLDER / "corpus").iterdir())
MUTATIONS = 300
MOST_BYTES = 200 * 2**20


@pytest.fixture(autouse=True)
def little_memory():
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= MOST_BYTES


@pytest.mark.parametrize("path", CORPUS, ids=[path.name for path in CORPUS])
def test_every_file_of_the_corpus_has_an_answer(path):
    try_model(path.read_bytes())
    try_solution(path.read_bytes())


def save_model():
    cm.MDP.from_pairs(
        [0, 0, 1], [0, 1, 0], [[1, 0], [0, 1], [0, 1]], {"time": [1.0, 1.0, 0.0], "fuel": [0.0, 1.0, 2.0]}, 0.9, [1, 0],
        states=["away", "home"],
    ).save(PATH)  # fmt: skip


def save_sparse_model():
    cm.worlds.garnet(states=5, actions=2, branching=0.2, seed=0).save(PATH)


def save_solution(at_most, **how):
    mdp = cm.worlds.gridworld(size=2)
    limits = [cm.Budget("time", at_most=at_most), cm.Entropy(at_least=0.1), cm.Bounds(upper=0.9)]
    cm.Problem(mdp, "time" + cm.NegativeEntropy(0.01), limits).solve(**how).save(PATH)


SAVED = {
    "model": (save_model, try_model),
    "sparse model": (save_sparse_model, try_model),
    "solution": (lambda: save_solution(0.99), try_solution),
    "infeasible": (lambda: save_solution(0.001), try_solution),
    "infeasible, by priority": (lambda: save_solution(0.001, when_infeasible="priority"), try_solution),
}
ODD = [None, True, -1, 0, 3, 10**9, 10**400, 0.5, -0.0, 1e308, "", "inf", "-inf", "nan", "x\0y", "\ud800", [], {}]
ODD += [[1], [[]], ["a", "b"], {"a": 1}, {"time": None}, {"": {}}, [None], ["inf", "inf"]]
ODD_DTYPES = ["i1", "u1", "i8", "u8", "f2", "f4", "f8", ">f8", "g", "b1"]


def spoiled(value, rng):
    """Return a value of JSON with something in it, at whatever depth, replaced or left out."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != name}
        return {**value, str(name): spoiled(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        k = int(rng.integers(len(value)))
        return [*value[:k], *([] if rng.random() < 0.15 else [spoiled(value[k], rng)]), *value[k + 1 :]]
    return ODD[rng.integers(len(ODD))]


def odd_array(array, rng):
    """Return an array of another shape, kind or content."""
    kind = rng.integers(5)
    if kind == 0:
        return array.astype(ODD_DTYPES[rng.integers(len(ODD_DTYPES))])
    if kind == 1:
        return array.reshape(rng.permutation([1, *array.shape]))
    if kind == 2:
        return np.resize(array, rng.integers(0, 4, size=rng.integers(0, 3)))
    flat = array.copy().ravel()
    if flat.size and array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        flat[rng.integers(flat.size)] = rng.choice([0, 1, limits.min, limits.max])
    elif flat.size:
        flat[rng.integers(flat.size)] = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1.0, 0.0, 5e-324])
    return flat.reshape(array.shape)


def restructured(data, rng):
    """Return an archive with a change that keeps it an archive."""
    with np.load(io.BytesIO(data)) as archive:
        content = {name: archive[name] for name in archive.files}
    header = json.loads(content.pop("header").tobytes())
    name = rng.choice(sorted(content))
    kind = rng.integers(4)
    if kind == 0:
        del content[name]
    elif kind == 1:
        content[name] = odd_array(content[name], rng)
    else:
        field = str(rng.choice(sorted(header.keys() - {"kind", "version"})))
        header[field] = spoiled(header[field], rng)
    text = json.dumps(header).encode()
    out = io.BytesIO()
    np.savez(out, header=np.frombuffer(text, dtype=np.uint8), **content)
    return out.getvalue()


def flipped(data, rng):
    """Return bytes with some of them changed, cut out or doubled."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at, end = sorted(rng.integers(1, len(data), size=2))
        kind = rng.integers(4)
        if kind == 0:
            del data[at : min(end, at + 20)]
        elif kind == 1:
            data[at:at] = data[at : min(end, at + 20)]
        else:
            data[at] = rng.integers(256)
    return bytes(data)


@pytest.mark.parametrize("name", SAVED)
def test_every_mutation_of_a_saved_file_has_an_answer(name):
    """A past bug: 98 of 3000 raised OverflowError, RuntimeError, TypeError, IndexError or KeyError."""
    save, load = SAVED[name]
    save()
    (cm.load if load is try_model else cm.load_solution)(PATH)
    whole, members = Path(PATH).read_bytes(), unpacked(PATH)
    rng = np.random.default_rng(len(name))
    for k in range(MUTATIONS):
        load([flipped(whole, rng), flipped(members, rng), restructured(whole, rng)][k % 3])
