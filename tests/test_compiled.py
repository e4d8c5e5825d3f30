"""Kernels work where nothing can be kept on the disk, where that is damaged, and after a stop while compiling."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cvxmdp as cm

SOURCE = Path(cm.__file__).parent

# A kernel with threads, one that calls another, and one that is inlined, on almost nothing.
KERNELS = """
    import numpy as np
    from cvxmdp.engines import elementwise
    from cvxmdp.dynamics import kernels

    d = np.arange(3.0)
    assert np.array_equal(elementwise.reflected(d, np.ones((1, 3))), [[-1.0, 1.0, 3.0]])
    assert kernels.push is not None
    print("right")
"""


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_an_installation_that_cannot_be_written_works_without_a_cache(tmp_path):
    """A past bug: "cannot cache function: no locator available"."""
    shutil.copytree(SOURCE, tmp_path / "cvxmdp", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [tmp_path / "cvxmdp", *(tmp_path / "cvxmdp").glob("*/")]:
        (folder / "__pycache__").write_text("in the way of every folder of that name, also for the superuser")
    nowhere = "/dev/null/nowhere"
    done = run(KERNELS, PYTHONPATH=str(tmp_path), HOME=nowhere, XDG_CACHE_HOME=nowhere, NUMBA_CACHE_DIR=nowhere)
    assert done.stdout == "right\n", done.stderr


@pytest.mark.parametrize("damage", ["cut off", "empty", "garbage"])
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_damaged_cache_is_made_anew(suffix, damage, tmp_path):
    """A past bug: the first solve raised what pickle raises."""
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert run(KERNELS, **cache).stdout == "right\n"
    kept = list(tmp_path.rglob(f"*.{suffix}"))
    assert kept
    for path in kept:
        whole = path.read_bytes()
        path.write_bytes({"cut off": whole[: len(whole) // 2], "empty": b"", "garbage": b"\x80\x04garbage"}[damage])
    done = run(KERNELS, **cache)
    assert done.stdout == "right\n", done.stderr
    sizes = {path: path.stat().st_mtime_ns for path in kept}
    assert run(KERNELS, **cache).stdout == "right\n"
    assert {path: path.stat().st_mtime_ns for path in kept} == sizes  # repaired by then, and only read


FULL = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
""" + KERNELS  # fmt: skip


def test_a_full_disk_is_no_reason_not_to_compile(tmp_path):
    done = run(FULL, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.stdout == "right\n", done.stderr


STOPPED = """
    import os, signal, sys
    import numpy as np
    import cvxmdp as cm
    from cvxmdp import interrupts
    from cvxmdp.engines import elementwise

    d, w, stopped = np.arange(3.0), np.ones((1, 3)), 0
    with interrupts.flagged():
        os.kill(os.getpid(), signal.SIGINT)
        try:
            elementwise.reflected(d, w)
        except KeyboardInterrupt:
            stopped += 1
        assert interrupts.requested()
        assert np.array_equal(elementwise.reflected(d, w), [[-1.0, 1.0, 3.0]])  # told once, it can be done
    assert stopped == 1
    print("right")
"""


def test_compiling_can_be_left_and_taken_up_again(tmp_path):
    done = run(STOPPED, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.stdout == "right\n", done.stderr


CACHED_APART = """
    import os
    import numpy as np
    from cvxmdp.engines import elementwise

    d, w = np.arange(3.0), np.ones((1, 3))
    elementwise.reflected(d, w)
    child = os.fork()
    if child == 0:
        elementwise.reflected(d, w)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    print("right")
"""


def test_a_forked_process_does_not_take_the_kernels_with_threads_from_the_cache(tmp_path):
    for _ in range(2):
        done = run(CACHED_APART, NUMBA_CACHE_DIR=str(tmp_path))
        assert done.stdout == "right\n", done.stderr
