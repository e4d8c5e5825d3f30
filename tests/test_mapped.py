"""Models whose arrays lie in files: they are read where they are needed, and never copied."""

import json
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp import examine, memory
from cvxmdp.dynamics import ordered
from cvxmdp.engines import exact
from cvxmdp.io import files
from cvxmdp_verifier import extended as verifier_sums
from cvxmdp_verifier import fields as verifier_fields

LIMITS = {"overflow": 0.02, "empty": 0.05}


def reservoir(levels, inflows, actions=4):
    """A model in which what P holds outweighs all vectors over pairs by far."""
    amounts, release = np.arange(inflows), np.arange(actions) * (inflows // 4)
    chance = np.exp(-0.5 * ((amounts - inflows / 3) / (inflows / 6)) ** 2)
    level = np.repeat(np.arange(levels), actions)
    left = level - np.tile(release, levels)
    columns = np.clip(left[:, None], 0, levels - inflows) + amounts
    data = np.tile(chance / chance.sum(), levels * actions)
    ends = np.arange(levels * actions + 1) * inflows
    P = sp.csr_array((data, columns.ravel(), ends), shape=(levels * actions, levels))
    costs = {
        "loss": (level + inflows / 3 > levels - 1) + 0.3 * np.tile((release / release[2] - 1) ** 2, levels),
        "overflow": (level > levels - inflows) * 1.0,
        "empty": (left < levels // 8) * 1.0,
    }
    return cm.MDP.from_pairs(level, np.tile(np.arange(actions), levels), P, costs, 0.99)


def problem_of(mdp):
    return cm.Problem(mdp, "loss", [cm.Budget(name, at_most=most) for name, most in LIMITS.items()])


def arrays_of(mdp):
    P = mdp.transitions
    held = {"data": P.data, "indices": P.indices, "indptr": P.indptr} if sp.issparse(P) else {"P": P}
    return held | {"state": mdp.state, "action": mdp.action, "initial": mdp.initial} | dict(mdp.costs)


@pytest.fixture
def plain(monkeypatch):
    """Archives are written as large ones are."""
    monkeypatch.setattr(files, "MOST_PACKED", 0)


@pytest.fixture
def short(monkeypatch):
    """Almost no memory is free."""
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)


@pytest.fixture
def small_chunks(monkeypatch):
    """What is made of P a part at a time is small beside the models of these tests."""
    for module in (examine, exact, verifier_sums, verifier_fields):
        monkeypatch.setattr(module, "CHUNK", 2**14)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("mapped") / "reservoir.npz"
    mdp = reservoir(3200, 160)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MOST_PACKED", 0)
        mdp.save(path)
    return path, mdp


def lying(mdp, path):
    """Which arrays are views of the file."""
    mapped = np.memmap(path, np.uint8, "r")
    whole = mapped.tobytes()
    found = set()
    for name, array in arrays_of(mdp).items():
        owner = array
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base
        if isinstance(owner, np.memmap) and str(owner.filename) == str(path):
            assert whole.find(array.tobytes()) >= 0
            found.add(name)
    return found


def test_a_model_of_mapped_arrays_holds_no_copy_of_its_transitions(tmp_path):
    grid = cm.worlds.gridworld(size=30)
    P = sp.csr_array(grid.transitions)
    parts = {"data": P.data, "indices": P.indices, "indptr": P.indptr, "time": grid.costs["time"]}
    for name, array in parts.items():
        np.save(tmp_path / f"{name}.npy", array)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in parts}
    matrix = sp.csr_array((mapped["data"], mapped["indices"], mapped["indptr"]), shape=P.shape)
    costs = {"time": mapped["time"], "collision": grid.costs["collision"]}
    mdp = cm.MDP.from_pairs(grid.state, grid.action, matrix, costs, grid.discount, grid.initial)
    assert np.shares_memory(mdp.transitions.data, mapped["data"])
    assert np.shares_memory(mdp.transitions.indices, mapped["indices"])
    assert np.shares_memory(mdp.costs["time"], mapped["time"])
    assert np.shares_memory(mdp.dynamics().P.data, mapped["data"])
    limits = [cm.Budget("collision", at_most=1e-3)]
    assert cm.Problem(mdp, "time", limits).solve().value == cm.Problem(grid, "time", limits).solve().value


# ------------------------------------------------------------------------------------------------ the decision


@pytest.mark.parametrize("times", [1.9, 2.1])
def test_what_would_fill_half_of_the_free_memory_stays_in_the_file(times, tmp_path, plain, monkeypatch):
    path, mdp = tmp_path / "grid.npz", cm.worlds.gridworld(size=6)
    mdp.save(path)
    with np.load(path) as archive:
        size = sum(archive[name].nbytes for name in archive.files if name != "header")
    monkeypatch.setattr(memory, "available_memory", lambda: int(times * size))
    assert ("data" in lying(cm.load(path), path)) == (times < 2)


@pytest.mark.parametrize("world", [lambda: cm.worlds.gridworld(size=9), lambda: cm.worlds.garnet(9, 3, 1.0, seed=0)])
def test_the_model_is_the_same_to_the_last_bit(world, tmp_path, plain, short, monkeypatch):
    mdp, path = world(), tmp_path / "model.npz"
    mdp.save(path)
    mapped = cm.load(path)
    assert lying(mapped, path) >= set(arrays_of(mdp)) - {"state", "action"}
    for name, array in arrays_of(mdp).items():
        assert arrays_of(mapped)[name].tobytes() == array.tobytes(), name
        assert arrays_of(mapped)[name].dtype == array.dtype
        assert arrays_of(mapped)[name].flags.aligned
        assert not arrays_of(mapped)[name].flags.writeable
    assert (mapped.states, mapped.actions, mapped.discount) == (mdp.states, mdp.actions, mdp.discount)
    assert {k: list(v) for k, v in mapped.labels.items()} == {k: list(v) for k, v in mdp.labels.items()}


def test_a_table_that_is_held_column_by_column_is_read_as_it_was(tmp_path, short):
    mdp, path = cm.worlds.garnet(9, 3, 1.0, seed=0), tmp_path / "model.npz"
    mdp.save(path)
    with np.load(path) as archive:
        held = dict(archive)
    dense = mdp.transitions if not sp.issparse(mdp.transitions) else mdp.transitions.toarray()
    held = {name: array for name, array in held.items() if not name.startswith("P")} | {"P": np.asfortranarray(dense)}
    for write in (np.savez, np.savez_compressed):
        write(path, **held)
        members = files.open_archive(path, "cvxmdp model")[1]
        np.testing.assert_array_equal(members["P"].part(2, 7), dense[2:7])
        np.testing.assert_array_equal(members["P"].lying(), dense)


# ------------------------------------------------------------------------------------------------ no copies


def peak_of(work):
    """What work returns, and the most memory that NumPy and Python took meanwhile."""
    tracemalloc.start()
    try:
        found = work()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_nothing_copies_the_transitions(saved, short, small_chunks, monkeypatch):
    monkeypatch.setattr(memory, "BLOCK", 1)  # what is taken so that freed memory is kept is never touched
    path, mdp = saved
    P = mdp.transitions
    most = P.indices.nbytes // 2
    assert 30 * mdp.state.nbytes < most  # so that vectors over pairs do not count
    mapped, taken = peak_of(lambda: cm.load(path))
    assert {"data", "indices", "indptr", "loss"} <= lying(mapped, path)
    assert taken < most
    problem, taken = peak_of(lambda: problem_of(mapped))
    assert taken < most
    solution, taken = peak_of(lambda: problem.solve(explain=False))
    assert taken < most
    assert solution.status is cm.Status.OPTIMAL
    assert solution.stats.method.startswith("mixing")
    assert solution.value == pytest.approx(problem_of(mdp).solve(explain=False).value, abs=1e-9)
    assert peak_of(lambda: mapped.evaluate(solution.policy))[1] < most
    assert peak_of(lambda: mapped.with_discount(0.9))[1] < most
    assert peak_of(lambda: mapped.examine(ranges=False))[1] < most
    assert peak_of(lambda: solution.certificate.check(problem))[1] < most
    monkeypatch.setattr(exact, "NEGLIGIBLE", 1e-9)  # nothing but extended precision will do
    policy = mapped.policy([k % 4 for k in range(mapped.num_states)])
    visits = peak_of(lambda: exact.Exact(mapped, mapped.dynamics()).visits(policy.probabilities, 1e-6))
    assert visits[1] < most


def test_a_mapped_model_is_saved_by_pieces_also_into_its_own_file(saved, tmp_path, short):
    path = tmp_path / "own.npz"
    path.write_bytes(saved[0].read_bytes())
    mapped = cm.load(path)
    before = mapped.transitions.data.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MOST_PACKED", 0)
        _, taken = peak_of(lambda: mapped.with_discount(0.5).save(path))
    assert taken < 18 * 2**20  # NumPy writes 16 MB at a time
    np.testing.assert_array_equal(mapped.transitions.data, before)  # the old file is there as long as it is needed
    again = cm.load(path)
    assert again.discount == 0.5
    np.testing.assert_array_equal(again.transitions.data, before)


def test_exact_visits_by_pieces_are_those_of_rows_that_are_held(short, monkeypatch):
    mdp = reservoir(600, 40).with_discount(0.999)
    policy = mdp.policy([k % 4 for k in range(600)])
    monkeypatch.setattr(exact, "NEGLIGIBLE", 1e-9)  # nothing but extended precision will do
    monkeypatch.setattr(exact, "CHUNK", 1000)

    def visits():
        made = exact.Exact(mdp, mdp.dynamics())
        return made.visits(policy.probabilities, 1e-6)

    by_pieces = visits()
    monkeypatch.setattr(memory, "available_memory", lambda: 10**12)
    held = visits()
    assert by_pieces.rest < 1e-12
    np.testing.assert_allclose(by_pieces.x, held.x, rtol=1e-13)
    P = (sp.csr_array(mdp.transitions)[policy.probabilities > 0]).toarray()
    truth = np.linalg.solve(np.eye(600) - mdp.discount * P.T, (1 - mdp.discount) * mdp.initial)
    np.testing.assert_allclose(held.x, truth, rtol=1e-10)


def test_no_copy_in_another_order_is_made_where_it_does_not_fit(monkeypatch):
    grid = cm.worlds.gridworld(size=25)
    S, rng = grid.num_states, np.random.default_rng(0)
    mixed = rng.permutation(S)
    pairs = (4 * mixed[:, None] + np.arange(4)).ravel()
    P = sp.csr_array(sp.csr_array(grid.transitions)[pairs][:, mixed])
    costs = {name: cost[pairs] for name, cost in grid.costs.items()}
    state, action = np.repeat(np.arange(S), 4), np.tile(np.arange(4), S)
    values, arranged = [], []
    for free in (10**12, 1000):
        monkeypatch.setattr(memory, "available_memory", lambda free=free: free)
        mdp = cm.MDP.from_pairs(state, action, P, costs, grid.discount, grid.initial[mixed])
        sweeps = ordered.Ordered(mdp.dynamics().P, mdp.dynamics().first, mdp.discount)
        sweeps.iterate_values(mdp.costs["time"], None, 1e-9, np.inf)
        values.append(cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-3)]).solve().value)
        arranged.append(sweeps._at.pairs is not None)
    assert arranged == [True, False]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


# ------------------------------------------------------------------------------------------------ what cannot be


@pytest.mark.parametrize("wide", [("P_indptr",), ("P_indptr", "P_indices")])
def test_rows_and_columns_numbered_by_64_bits_are_read(wide, tmp_path, monkeypatch):
    mdp, path = cm.worlds.gridworld(size=8), tmp_path / "grid.npz"
    mdp.save(path)
    with np.load(path) as archive:
        held = dict(archive)
    header = json.loads(held.pop("header").tobytes())
    held |= {name: held[name].astype(np.int64) for name in wide}
    files.write_members(path, header, held.items())
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    mapped = cm.load(path)
    assert ("indices" in lying(mapped, path)) == ("P_indices" not in wide)
    assert "data" in lying(mapped, path)
    for name, array in arrays_of(mdp).items():
        np.testing.assert_array_equal(arrays_of(mapped)[name], array)


def test_kernels_take_rows_that_begin_beyond_32_bits(saved):
    """As they do where there are more than 2^31 transitions: rows and columns are then numbered by 64 bits."""
    mdp = saved[1]
    P = mdp.transitions
    wide = sp.csr_array(P)
    wide.indices, wide.indptr = P.indices.astype(np.int64), P.indptr.astype(np.int64)
    other = cm.MDP._of_parts(**{name: getattr(mdp, name) for name in (
        "state", "action", "costs", "discount", "initial", "states", "actions")}, transitions=wide)  # fmt: skip
    assert other.dynamics().P.indptr.dtype == np.int64
    policy = mdp.policy([k % 4 for k in range(mdp.num_states)])
    np.testing.assert_allclose(other.evaluate(policy).occupancy, mdp.evaluate(policy).occupancy, rtol=1e-9)
    assert problem_of(other).solve(explain=False).value == pytest.approx(problem_of(mdp).solve().value, rel=1e-9)


def test_a_compressed_archive_that_does_not_fit_is_told_of_and_can_be_converted(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from cvxmdp.cli.app import app

    mdp, path, out = cm.worlds.gridworld(size=20), tmp_path / "packed.npz", tmp_path / "plain.npz"
    mdp.save(path)
    monkeypatch.setattr(memory, "available_memory", lambda: 20_000)
    with pytest.raises(ValueError, match=r"packed.npz' holds 135 kB of arrays, and 20 kB of memory are free.*convert"):
        cm.load(path)
    done = CliRunner().invoke(app, ["convert", str(path), str(out)])
    assert done.exit_code == 0, done.output
    assert "400 states" in done.output
    mapped = cm.load(out)
    assert {"data", "indices", "time"} <= lying(mapped, out)
    for name, array in arrays_of(mdp).items():
        np.testing.assert_array_equal(arrays_of(mapped)[name], array)


def test_a_file_converted_with_another_discount_has_that(tmp_path):
    from typer.testing import CliRunner

    from cvxmdp.cli.app import app

    path = tmp_path / "grid.npz"
    cm.worlds.gridworld(size=3).save(path)
    assert CliRunner().invoke(app, ["convert", str(path), str(path), "--discount", "0.5"]).exit_code == 0
    assert cm.load(path).discount == 0.5


def test_arrays_that_begin_at_odd_places_are_not_used_where_they_lie(tmp_path, monkeypatch):
    mdp, path = cm.worlds.gridworld(size=6), tmp_path / "odd.npz"
    mdp.save(path)
    with np.load(path) as archive:
        held = dict(archive)
    text, lies = held.pop("header").tobytes(), []
    for k in range(8):
        np.savez(path, header=np.frombuffer(text + b" " * k, dtype=np.uint8), **held)
        monkeypatch.setattr(memory, "available_memory", lambda: 20_000)  # copies fit in all of it, but not in half
        mapped = cm.load(path)
        assert all(array.flags.aligned for array in arrays_of(mapped).values())
        assert cm.Problem(mdp, "time").solve().value == cm.Problem(mapped, "time").solve().value
        lies.append("data" in lying(mapped, path))
        monkeypatch.setattr(memory, "available_memory", lambda: 1000)
        if not lies[-1]:
            with pytest.raises(ValueError, match="do not begin where they would have to"):
                cm.load(path)
    assert sorted(lies) == [False] * 7 + [True]


@pytest.mark.parametrize("name", ["P_data", "P_indices", "cost:0"])
def test_a_damaged_archive_is_refused_when_it_is_mapped(name, tmp_path, plain, short):
    path = tmp_path / "grid.npz"
    cm.worlds.gridworld(size=8).save(path)
    member = files.open_archive(path, "cvxmdp model")[1][name]
    damaged = bytearray(path.read_bytes())
    damaged[member.stored + member.nbytes // 2 + 3] ^= 0x10
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        cm.load(path)


@pytest.mark.parametrize("share", [0.2, 0.9, 0.999])
def test_a_truncated_archive_is_refused_when_it_is_mapped(share, tmp_path, plain, short):
    path = tmp_path / "grid.npz"
    cm.worlds.gridworld(size=8).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match="damaged"):
        cm.load(path)


def test_rows_that_would_have_to_be_divided_are_told_of(tmp_path, plain, short):
    mdp, path = cm.worlds.gridworld(size=6), tmp_path / "grid.npz"
    mdp.save(path)
    with np.load(path) as archive:
        held = dict(archive)
    held["P_data"] = held["P_data"] * (1 + 1e-9)
    header = json.loads(held.pop("header").tobytes())
    files.write_archive(path, header, held)
    with pytest.raises(MemoryError, match=r"dividing the transitions .* takes 3.98 kB, and 1 kB of memory are free"):
        cm.load(path)


def test_members_written_plainly_begin_at_multiples_of_64_for_names_of_any_length(tmp_path):
    path = tmp_path / "any.npz"
    arrays = {"x" * k: np.arange(k, dtype=float) for k in range(1, 80)}
    files.write_members(path, {"kind": "any"}, arrays.items())
    for name, member in files.open_archive(path, "any")[1].items():
        assert member.stored % 64 == 0
        np.testing.assert_array_equal(member.lying(), arrays[name])
    with np.load(path) as archive:  # and NumPy reads them
        np.testing.assert_array_equal(archive["x" * 7], np.arange(7.0))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


# ------------------------------------------------------------------------------------------------ what is said


def test_an_examination_says_what_stays_in_the_file_and_what_a_solve_takes(saved, short):
    path, mdp = saved
    found = cm.load(path).examine(ranges=False)
    P = mdp.transitions
    assert found.lying >= P.data.nbytes + P.indices.nbytes
    assert found.free == 1000
    assert found.solve_bytes - (found.bytes - found.lying) == 8 * memory.VECTORS * mdp.num_pairs
    assert [found.unreachable, found.absorbing, found.closed, found.equal] == [None] * 4
    said = " ".join(str(found).split())
    assert f", of which {memory.in_words(found.lying)} stay in the file" in said
    assert "1 kB are free beside the model" in said
    assert "was not looked for: that takes 65.5 MB of memory" in said
    assert (found.transitions, found.smallest, found.tiny) == (P.nnz, P.data.min(), 0)
    assert "not looked for" in found._repr_html_()


def test_a_solve_whose_vectors_do_not_fit_is_warned_of_with_numbers(monkeypatch):
    mdp = cm.worlds.gridworld(size=4)
    monkeypatch.setattr(memory, "MANY_PAIRS", 1)
    monkeypatch.setattr(memory, "available_memory", lambda: 8 * memory.VECTORS * mdp.num_pairs)
    cm.Problem(mdp, "time").solve()  # warnings are errors
    monkeypatch.setattr(memory, "available_memory", lambda: 8 * memory.VECTORS * mdp.num_pairs - 1)
    with pytest.warns(RuntimeWarning, match=r"about 30.7 kB of memory beside the model, and 30.7 kB are free"):
        cm.Problem(mdp, "time").solve()
