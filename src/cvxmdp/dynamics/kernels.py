"""Threaded kernels over a compressed sparse row matrix P (pairs x states), compiled once and cached.

Column indices come as unsigned numbers and rows as slices, so that no index is tested for being negative; that makes
the inner loops three to five times faster.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

FAST = {"reassoc", "contract", "nsz"}


@njit(cache=True, fastmath=FAST, inline="always")
def _dot(values, columns, V):
    total = 0.0
    for k in range(values.size):
        total += values[k] * V[columns[k]]
    return total


@njit(parallel=True, cache=True, fastmath=FAST)
def sweep(data, indices, indptr, first, gamma, c, V):
    """One fused pass: the least ``c + gamma P V`` of each state and the pair that attains it."""
    num_states = first.size - 1
    best = np.empty(num_states)
    pair = np.empty(num_states, np.int64)
    for s in prange(num_states):
        least, where = np.inf, first[s]
        for i in range(first[s], first[s + 1]):
            row = slice(indptr[i], indptr[i + 1])
            total = c[i] + gamma * _dot(data[row], indices[row], V)
            if total < least:
                least, where = total, i
        best[s] = least
        pair[s] = where
    return best, pair


@njit(parallel=True, cache=True, fastmath=FAST)
def advantage(data, indices, indptr, owner, gamma, c, V):
    """``c + gamma P V - Xi V``."""
    out = np.empty(owner.size)
    for i in prange(owner.size):
        row = slice(indptr[i], indptr[i + 1])
        out[i] = c[i] + gamma * _dot(data[row], indices[row], V) - V[owner[i]]
    return out


@njit(parallel=True, cache=True, fastmath=FAST)
def advantages(data, indices, indptr, owner, gamma, C, V):
    """``C + gamma P V - Xi V`` for the columns of C and V at once: P is read a single time."""
    count = C.shape[1]
    out = np.empty_like(C)
    for i in prange(owner.size):
        line, own = out[i], V[owner[i]]
        row = slice(indptr[i], indptr[i + 1])
        values, columns = data[row], indices[row]
        for j in range(count):
            line[j] = 0.0
        for k in range(values.size):
            value, there = values[k], V[columns[k]]
            for j in range(count):
                line[j] += value * there[j]
        for j in range(count):
            line[j] = C[i, j] + gamma * line[j] - own[j]
    return out


@njit(parallel=True, cache=True, fastmath=FAST)
def flow(data, indices, indptr, first, gamma, d, threads):
    """``Xi'd - gamma P'd``; each thread scatters into a row of its own, so that P is read in storage order."""
    num_states = first.size - 1
    parts = np.zeros((threads, num_states))
    chunk = (num_states + threads - 1) // threads
    for t in prange(threads):
        part = parts[t]
        for s in range(t * chunk, min((t + 1) * chunk, num_states)):
            for i in range(first[s], first[s + 1]):
                mass = d[i]
                if mass != 0.0:
                    part[s] += mass
                    row = slice(indptr[i], indptr[i + 1])
                    values, columns = data[row], indices[row]
                    for k in range(values.size):
                        part[columns[k]] -= gamma * mass * values[k]
    out = np.empty(num_states)
    for s in prange(num_states):
        total = 0.0
        for t in range(threads):
            total += parts[t, s]
        out[s] = total
    return out


@njit(cache=True, fastmath=FAST)
def gram(data, indices, indptr, owner, gamma, num_states, weights):
    """Dense ``M' diag(weights) M``, one sparse row of M after the other."""
    out = np.zeros((num_states, num_states))
    for i in range(owner.size):
        s = owner[i]
        row = slice(indptr[i], indptr[i + 1])
        values, columns = data[row], indices[row]
        out[s, s] += weights[i]
        for k in range(values.size):
            line, value = out[columns[k]], weights[i] * gamma * values[k]
            line[s] -= value
            out[s, columns[k]] -= value
            for m in range(values.size):
                line[columns[m]] += value * gamma * values[m]
    return out
