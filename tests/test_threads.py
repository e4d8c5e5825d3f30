"""Threads are given back as they were, and freed memory is kept only for models that are not large."""

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import cvxmdp as cm
from cvxmdp import memory, threads
from cvxmdp.threads import few_threads, one_blas_thread


@pytest.fixture
def two_threads():
    """How many threads each BLAS has that is loaded by now, two where it can; the library looks for them anew."""
    threads._pools.cache_clear()
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        assert max(before) == 2
        yield before
        assert blas_threads() == before


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_blas_is_kept_to_one_thread_where_that_is_wanted(two_threads):
    with one_blas_thread(True):
        assert set(blas_threads()) == {1}
    with one_blas_thread(False):
        assert blas_threads() == two_threads


@pytest.mark.parametrize(("states", "one"), [(500, True), (501, False)])
def test_small_models_run_on_one_thread(states, one, two_threads):
    threads.allow(2)
    try:
        with few_threads(states):
            assert blas_threads() == ([1] * len(two_threads) if one else two_threads)
            assert threads.allowed() == (1 if one else 2)
        assert threads.allowed() == 2
    finally:
        threads.allow(0)


def test_other_threads_are_allowed_as_many_as_before():
    found = []
    threads.allow(3)
    try:
        thread = threading.Thread(target=lambda: found.append(threads.allowed()))
        thread.start()
        thread.join()
    finally:
        threads.allow(0)
    assert found == [threads.allowed()]


FORKED = """
    import os, sys
    from cvxmdp import threads

    threads.allow(2)
    if sys.argv[1] == "used":
        assert threads.allowed() == 2
    child = os.fork()
    if child == 0:
        os._exit(threads.allowed())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize(("before", "allowed"), [("used", "1"), ("not used", "2")])
def test_a_forked_process_takes_one_thread_where_its_parent_used_several(before, allowed):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(FORKED), before], capture_output=True, text=True)
    assert done.stdout == allowed + "\n", done.stderr


@pytest.mark.parametrize(("said", "expected"), [("3", "3"), ("5,2", "5"), ("1", "1")])
def test_the_environment_says_how_many_threads(said, expected):
    code = "from cvxmdp import threads; print(threads.allowed())"
    environment = {**os.environ, "OMP_NUM_THREADS": said}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == expected + "\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loops are not built with OpenMP of GNU")
def test_idle_threads_of_loops_sleep():
    """The setting must be made before OpenMP is loaded."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    environment["OMP_DISPLAY_ENV"] = "true"
    done = subprocess.run([sys.executable, "-c", "import cvxmdp"], capture_output=True, text=True, env=environment)
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr


@pytest.mark.parametrize(("pairs", "expected"), [(10, 1), (999_999, 1), (1_000_000, 0)])
def test_a_block_is_freed_unless_the_model_is_large(pairs, expected, monkeypatch):
    taken = []
    monkeypatch.setattr(memory.np, "empty", lambda *args, **kwargs: taken.append(args) or np.zeros(1))
    memory.keep_freed(pairs)
    assert len(taken) == expected


def test_overlapping_solves_in_threads_give_blas_its_threads_back(two_threads):
    """A past bug: what ended last gave back what it had found, the one thread of the other."""
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()
    go_home = threading.Event()

    def other():
        with one_blas_thread(True):
            entered.set()
            leave.wait(10)
        left.set()
        go_home.wait(10)  # the thread lives on, as those of pools do

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(10)
    with one_blas_thread(True):
        leave.set()
        assert left.wait(10)
        assert set(blas_threads()) == {1}
    assert blas_threads() == two_threads
    go_home.set()
    thread.join()


# Solves of a large, a small and a curved problem, in every way in which people share work.
SHARED = """
    import multiprocessing, sys
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

    import cvxmdp as cm
    from threadpoolctl import threadpool_info

    grid, small = cm.worlds.gridworld(size=110), cm.worlds.gridworld(size=8)
    garnet = cm.worlds.garnet(states=600, actions=4, branching=0.01, seed=0)


    def value(k):
        if k % 3 == 2:
            return cm.Problem(garnet, "cost", [cm.Entropy(at_least=6.9)]).solve().value
        return cm.Problem([grid, small][k % 3], "time", [cm.Budget("collision", at_most=1e-3)]).solve().value


    def blas():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


    if __name__ == "__main__":
        alone, before = [value(k) for k in range(3)], blas()
        how = sys.argv[1]
        if how == "threads":
            pool = ThreadPoolExecutor(4)
        else:
            pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(how))
        with pool:
            shared = list(pool.map(value, range(9)))
        assert all(abs(shared[k] - alone[k % 3]) <= 1e-5 * abs(alone[k % 3]) for k in range(9)), (alone, shared)
        assert blas() == before
        print("all the same")
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "threads"])
def test_work_may_be_shared_after_a_solve(how, tmp_path):
    """A past bug: children that were forked off after a solve died in OpenMP, and their pool waited for ever."""
    script = tmp_path / "shared.py"
    script.write_text(textwrap.dedent(SHARED))
    done = subprocess.run([sys.executable, script, how], capture_output=True, text=True, timeout=300)
    assert done.stdout == "all the same\n", done.stderr


def test_threads_may_share_a_constraint(request):
    """Past bug: what one thread projected last was returned to another."""
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    mdp = cm.worlds.gridworld(size=3)
    n = mdp.num_pairs
    rng = np.random.default_rng(0)
    sets = [
        cm.Entropy(3.0).bind(mdp),
        cm.RobustBudget("time", cm.Ellipsoid(np.full(n, 0.1)), at_most=0.1).bind(mdp),
        cm.Linear(rng.normal(size=(5, n)), at_most=-0.1),
    ]
    points = rng.random((40, n))
    for shared in sets:

        def normal(point, shared=shared):
            return shared.dual(point, shared.project(point), 1.0)

        alone = [normal(point) for point in points]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(normal, [point for _ in range(20) for point in points]))
        for k, found in enumerate(together):
            np.testing.assert_allclose(found, alone[k % len(points)], atol=1e-9)
