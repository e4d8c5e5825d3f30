"""Threads are given back as they were, and freed memory is kept only for models that are not large."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

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
    with few_threads(states):
        assert blas_threads() == ([1] * len(two_threads) if one else two_threads)


@pytest.mark.parametrize(("pairs", "expected"), [(10, 1), (999_999, 1), (1_000_000, 0)])
def test_a_block_is_freed_unless_the_model_is_large(pairs, expected, monkeypatch):
    taken = []
    monkeypatch.setattr(memory.np, "empty", lambda *args, **kwargs: taken.append(args) or np.zeros(1))
    memory.keep_freed(pairs)
    assert len(taken) == expected
