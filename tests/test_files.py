"""Files are written whole or not at all, and what is read is bounded and checked before it is believed."""

import io
import json
import os
import stat
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.io import files
from cvxmdp.io.files import read_archive, write_archive, write_atomically

KIND = "cvxmdp model"


def save_model(path, size=3):
    cm.worlds.gridworld(size=size).save(path)


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header_of(path):
    with np.load(path) as archive:
        return json.loads(archive["header"].tobytes())


def rewrite(path, header=None, method=zipfile.ZIP_DEFLATED, **changed):
    """Write the archive again with another header or other members, given as arrays or bytes; None drops one."""
    content = members(path)
    if header is not None:
        text = header if isinstance(header, str) else json.dumps(header)
        content["header.npy"] = npy(np.frombuffer(text.encode(), dtype=np.uint8))
    for name, value in changed.items():
        content.pop(f"{name}.npy", None)
        if value is not None:
            content[f"{name}.npy"] = value if isinstance(value, bytes) else npy(value)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, value in content.items():
            archive.writestr(name, value)


# ------------------------------------------------------------------------------------------------------ writing


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), write_atomically(path) as file:
        file.writelines([b"half", None])
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.npz"]


LIMITED = """
    import resource, sys
    import cvxmdp as cm
    mdp = cm.worlds.garnet(states=200, actions=4, branching=0.1, seed=0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    try:
        mdp.save(sys.argv[1])
    except OSError as error:
        print(error.errno, error.filename)
"""


def test_a_size_limit_or_a_full_disk_leaves_the_old_file(tmp_path):
    """A past bug: the old file was gone, and the new one was cut off."""
    path = tmp_path / "model.npz"
    save_model(path)
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), path], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["27", str(path)]  # the name of the file that was asked for, not the unfinished one
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.npz"]


ENDLESS = """
    import sys
    import cvxmdp as cm
    mdp = cm.worlds.garnet(states=300, actions=4, branching=0.1, seed=int(sys.argv[2]))
    mdp.save(sys.argv[1])
    print("saving", flush=True)
    while True:
        mdp.save(sys.argv[1])
"""


def test_kill_9_while_saving_leaves_a_whole_file(tmp_path):
    path = tmp_path / "model.npz"
    for delay in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(ENDLESS), path, str(delay)], stdout=subprocess.PIPE
        )
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05 + 0.013 * delay)
        process.kill()
        process.communicate()
        assert cm.load(path).num_states == 300


def test_a_folder_a_device_and_no_name_are_refused(tmp_path):
    for path in (tmp_path, "/dev/null", "", "a\0b", None, 3, b"model.npz"):
        with pytest.raises(ValueError, match=r"name of a file"):
            save_model(path)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_missing_folder_is_named_as_it_was_given(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        save_model(tmp_path / "nowhere" / "model.npz")
    assert raised.value.filename == str(tmp_path / "nowhere" / "model.npz")


def test_the_longest_name_can_be_written(tmp_path):
    path = tmp_path / ("n" * 251 + ".npz")
    save_model(path)
    assert cm.load(path).num_states == 9


def test_links_are_followed_and_permissions_kept(tmp_path):
    real, link = tmp_path / "real.npz", tmp_path / "link.npz"
    save_model(real)
    real.chmod(0o640)
    link.symlink_to(real)
    save_model(link, size=4)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert cm.load(real).num_states == 16


# ------------------------------------------------------------------------------------------------------ reading


def test_no_path_is_one_sentence():
    for path in (None, 3, "", "a\0b"):
        with pytest.raises(ValueError, match="path must be the name of a file"):
            cm.load(path)
        with pytest.raises(ValueError, match="path must be the name of a file"):
            cm.load_solution(path)


def test_an_older_version_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "model.npz"
    save_model(path)
    rewrite(path, header_of(path) | {"version": 1})
    with pytest.raises(ValueError, match="has version 1 of the format, and this library reads version 2"):
        cm.load(path)


@pytest.mark.parametrize("version", [True, 2.0, "2", None, 3])
def test_a_version_is_a_whole_number(version, tmp_path):
    path = tmp_path / "model.npz"
    save_model(path)
    rewrite(path, header_of(path) | {"version": version})
    with pytest.raises(ValueError, match="version"):
        cm.load(path)


def test_a_header_that_states_a_billion_states_is_refused_at_once(tmp_path):
    """A past bug: a file of 1.1 kB took 38 seconds and 5.9 GB."""
    path = tmp_path / "model.npz"
    for what in ("states", "actions"):
        save_model(path)
        rewrite(path, header_of(path) | {what: 10**9})
        with pytest.raises(ValueError, match=f"1000000000 {what}"):
            cm.load(path)


def test_an_array_of_actions_does_not_make_a_billion_names(tmp_path):
    path = tmp_path / "model.npz"
    cm.MDP.from_pairs([0], [0], [[1.0]], {"cost": [1.0]}, 0.9).save(path)
    rewrite(path, header_of(path) | {"actions": 10**9}, action=np.array([10**9 - 1]))
    with pytest.raises(ValueError, match="action"):
        cm.load(path)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """A past bug: 3 MB unpacked to 3.1 GB."""
    path = tmp_path / "model.npz"
    save_model(path)
    rewrite(path, initial=np.zeros(20 * 2**20))
    assert path.stat().st_size < 200_000
    with pytest.raises(ValueError, match=r"would unpack to far more than its \d+ bytes"):
        cm.load(path)


def test_a_directory_that_lies_about_sizes_is_refused(tmp_path):
    """What a member's entry says limits what is read of it."""
    path = tmp_path / "model.npz"
    save_model(path)
    big = npy(np.zeros(20 * 2**20))
    rewrite(path, initial=big)
    data = bytearray(path.read_bytes())
    for _ in range(2):  # in the member's own header and in the directory
        at = data.index(len(big).to_bytes(4, "little"))
        data[at : at + 4] = (200).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is not a cvxmdp model"):
        cm.load(path)


def test_what_is_written_can_be_read_however_well_it_packs(tmp_path):
    path = tmp_path / "zeros.npz"
    write_archive(path, {"kind": KIND}, {"zeros": np.zeros((3000, 4000))})
    assert read_archive(path, KIND)[1]["zeros"].shape == (3000, 4000)


def test_packing_that_takes_memory_of_its_own_is_not_read(tmp_path):
    path = tmp_path / "model.npz"
    save_model(path)
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        rewrite(path, method=method)
        with pytest.raises(ValueError, match="in a way that is not read here"):
            cm.load(path)


def test_members_are_unique(tmp_path):
    path = tmp_path / "model.npz"
    save_model(path)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("state.npy", npy(np.zeros(3)))
    with pytest.raises(ValueError, match="two members of the same name"):
        cm.load(path)


HEADERS = {
    "not JSON": "{",
    "nested without end": "[" * 100_000,
    "not a number": '{"kind": "cvxmdp model", "version": 2, "discount": NaN}',
    "a list": '["cvxmdp model"]',
    "a kind that is a list": '{"kind": ["cvxmdp model"], "version": 2}',
    "a number of five thousand digits": '{"kind": "cvxmdp model", "version": ' + "9" * 5000 + "}",
}


@pytest.mark.parametrize("text", HEADERS.values(), ids=HEADERS)
def test_a_header_that_is_none_is_one_sentence(text, tmp_path):
    path = tmp_path / "model.npz"
    save_model(path)
    rewrite(path, text)
    with pytest.raises(ValueError, match=r"model\.npz' is not a cvxmdp model"):
        cm.load(path)


SPOILED = {
    "a cost without a name": ({"costs": ["time"]}, {}, "none of a model with 1 costs"),
    "a name without a cost": ({"costs": ["time", "collision", "fuel"]}, {}, "'cost:2' is missing"),
    "two costs of one name": ({"costs": ["time", "time"]}, {}, "two costs the same name"),
    "names that are no strings": ({"costs": ["time", 1]}, {}, "no list of names called 'costs'"),
    "a discount that is a string": ({"discount": "0.9"}, {}, "no discount"),
    "a discount beyond all floats": ({"discount": 10**400}, {}, "no discount"),
    "a discount that is infinite": ({"discount": 1e999}, {}, "model"),
    "states of two sizes": ({"states": ["a", "b"]}, {}, "states"),
    "floats for states": ({}, {"state": np.zeros(36)}, "holds float64"),
    "a matrix for states": ({}, {"state": np.zeros((6, 6), dtype=int)}, "has shape"),
    "a short cost": ({}, {"cost:0": np.zeros(35)}, r"shape \(35,\)"),
    "whole numbers for a cost": ({}, {"cost:0": np.zeros(36, dtype=int)}, "holds int64"),
    "another shape of P": ({}, {"P_shape": np.array([36, 10**12])}, "P_shape"),
    "rows that go back": ({}, {"P_indptr": np.append(np.arange(36)[::-1], 0)}, "P_indptr"),
    "columns beyond the states": ({}, {"P_indices": np.full(36, 9)}, "P_indices"),
    "an array that is not known": ({}, {"extra": np.zeros(3)}, "'extra' is none"),
    "no pairs at all": ({}, {"state": np.zeros(0, dtype=int)}, "shape"),
}


@pytest.mark.parametrize(("header", "arrays", "words"), SPOILED.values(), ids=SPOILED)
def test_every_member_of_a_model_is_checked(header, arrays, words, tmp_path):
    path = tmp_path / "model.npz"
    save_model(path)
    known = members(path)
    assert "P_indptr.npy" in known
    if "P_indices" in arrays:
        arrays = {"P_indices": np.full(npy_size(known["P_indices.npy"]), 9)}
    rewrite(path, header_of(path) | header, **arrays)
    with pytest.raises(ValueError, match=words) as raised:
        cm.load(path)
    assert "model.npz" in str(raised.value)


def npy_size(data):
    return np.load(io.BytesIO(data)).size


def test_numbers_of_the_other_byte_order_are_read(tmp_path):
    path = tmp_path / "model.npz"
    save_model(path)
    initial = np.load(io.BytesIO(members(path)["initial.npy"]))
    rewrite(path, initial=initial.astype(">f8"))
    np.testing.assert_array_equal(cm.load(path).initial, initial)


@pytest.mark.parametrize("name", ["a\0b", "\x1b[2J", "", " ", "=1+1", "../../etc", "ü→", "\ud800", "cost:0", "header"])
def test_names_come_back_whatever_their_characters(name, tmp_path):
    """A past bug: a NUL in the name of a cost lost the cost."""
    mdp = cm.worlds.gridworld(size=3)
    costs = {name or "x": mdp.costs["time"], "other": mdp.costs["collision"]}
    states, actions = [f"{name}{s}" for s in range(9)], [f"{name}{a}" for a in range(4)]
    arguments = (mdp.state, mdp.action, mdp.transitions, costs, 0.9, mdp.initial, states, actions)
    cm.MDP.from_pairs(*arguments).save(tmp_path / "model.npz")
    back = cm.load(tmp_path / "model.npz")
    assert list(back.costs) == list(costs)
    assert (back.states, back.actions) == (tuple(states), tuple(actions))


def test_numbers_that_are_not_finite_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_archive(tmp_path / "x.npz", {"kind": KIND, "value": np.nan}, {})
    assert os.listdir(tmp_path) == []


def test_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ValueError, match="folder or a device"):
        cm.load(path)


def test_the_bounds_hold_for_a_large_model_with_many_zeros(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SMALL", 1000)
    path = tmp_path / "model.npz"
    stay = np.eye(300)
    cm.MDP([stay], {"time": np.ones(300)}, 0.9).save(path)
    assert cm.load(path).num_states == 300
