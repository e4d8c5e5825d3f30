"""Threaded kernels over a compressed sparse row matrix P (pairs x states), compiled once and cached."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, njit, prange


@njit(parallel=True, cache=True, fastmath={"reassoc", "contract"})
def sweep(data, indices, indptr, first, gamma, c, V):
    """One fused pass: the least ``c + gamma P V`` of each state and the pair that attains it."""
    num_states = first.size - 1
    best = np.empty(num_states)
    pair = np.empty(num_states, np.int64)
    for s in prange(num_states):
        least, where = np.inf, first[s]
        for i in range(first[s], first[s + 1]):
            expected = 0.0
            for k in range(indptr[i], indptr[i + 1]):
                expected += data[k] * V[indices[k]]
            total = c[i] + gamma * expected
            if total < least:
                least, where = total, i
        best[s] = least
        pair[s] = where
    return best, pair


@njit(parallel=True, cache=True, fastmath={"reassoc", "contract"})
def advantage(data, indices, indptr, owner, gamma, c, V):
    """``c + gamma P V - Xi V``."""
    out = np.empty(owner.size)
    for i in prange(owner.size):
        expected = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            expected += data[k] * V[indices[k]]
        out[i] = c[i] + gamma * expected - V[owner[i]]
    return out


@njit(parallel=True, cache=True, fastmath={"reassoc", "contract"})
def flow(data, indices, indptr, first, gamma, d):
    """``Xi'd - gamma P'd``; each thread scatters into a row of its own, so that P is read in storage order."""
    num_states = first.size - 1
    threads = get_num_threads()
    parts = np.zeros((threads, num_states))
    chunk = (num_states + threads - 1) // threads
    for t in prange(threads):
        for s in range(t * chunk, min((t + 1) * chunk, num_states)):
            for i in range(first[s], first[s + 1]):
                mass = d[i]
                if mass != 0.0:
                    parts[t, s] += mass
                    for k in range(indptr[i], indptr[i + 1]):
                        parts[t, indices[k]] -= gamma * data[k] * mass
    out = np.empty(num_states)
    for s in prange(num_states):
        total = 0.0
        for t in range(threads):
            total += parts[t, s]
        out[s] = total
    return out


@njit(cache=True)
def gram(data, indices, indptr, owner, gamma, num_states):
    """Dense lower triangle of ``M'M``, one sparse row of M after the other."""
    out = np.zeros((num_states, num_states))
    for i in range(owner.size):
        s = owner[i]
        out[s, s] += 1.0
        for k in range(indptr[i], indptr[i + 1]):
            j, value = indices[k], gamma * data[k]
            if j >= s:
                out[j, s] -= value
            if j <= s:
                out[s, j] -= value
            for m in range(indptr[i], indptr[i + 1]):
                if indices[m] <= j:
                    out[j, indices[m]] += value * gamma * data[m]
    return out
