"""Threaded kernels over a compressed sparse row matrix P (pairs x states), compiled once and cached.

Column indices come as unsigned numbers and rows as slices, so that no index is tested for being negative; that makes
the inner loops three to five times faster.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from cvxmdp.compiled import njit, threaded

FAST = {"reassoc", "contract", "nsz"}


@njit(fastmath=FAST, inline="always")
def _dot(values, columns, V):
    total = 0.0
    for k in range(values.size):
        total += values[k] * V[columns[k]]
    return total


@threaded(fastmath=FAST)
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


@threaded(fastmath=FAST)
def advantage(data, indices, indptr, owner, gamma, c, V):
    """``c + gamma P V - Xi V``."""
    out = np.empty(owner.size)
    for i in prange(owner.size):
        row = slice(indptr[i], indptr[i + 1])
        out[i] = c[i] + gamma * _dot(data[row], indices[row], V) - V[owner[i]]
    return out


@njit(fastmath=FAST, inline="always")
def _gather(line, scale, values, columns, X):
    """Add ``scale`` times a row's product with the columns of X; four entries at a time keep the line in registers."""
    whole = values.size - values.size % 4
    for k in range(0, whole, 4):
        a, b, c, d = scale * values[k], scale * values[k + 1], scale * values[k + 2], scale * values[k + 3]
        A, B, C, D = X[columns[k]], X[columns[k + 1]], X[columns[k + 2]], X[columns[k + 3]]
        for j in range(line.size):
            line[j] += a * A[j] + b * B[j] + c * C[j] + d * D[j]
    for k in range(whole, values.size):
        a, A = scale * values[k], X[columns[k]]
        for j in range(line.size):
            line[j] += a * A[j]


@threaded(fastmath=FAST)
def advantages(data, indices, indptr, owner, gamma, C, V):
    """``C + gamma P V - Xi V`` for the columns of C and V at once: P is read a single time."""
    out = np.empty_like(C)
    for i in prange(owner.size):
        line, start, own = out[i], C[i], V[owner[i]]
        for j in range(line.size):
            line[j] = start[j] - own[j]
        row = slice(indptr[i], indptr[i + 1])
        _gather(line, gamma, data[row], indices[row], V)
    return out


@threaded(fastmath=FAST)
def taken(data, indices, indptr, first, pi):
    """``P_pi`` as a compressed sparse row matrix: the rows of the pairs that are taken, one after the other.

    It is read many times in an evaluation, and small enough to stay in the cache.
    """
    num_states = first.size - 1
    ends = np.zeros(num_states + 1, indptr.dtype)
    for s in range(num_states):
        ends[s + 1] = ends[s]
        for i in range(first[s], first[s + 1]):
            if pi[i] != 0.0:
                ends[s + 1] += indptr[i + 1] - indptr[i]
    values, columns = np.empty(ends[-1], data.dtype), np.empty(ends[-1], indices.dtype)
    for s in prange(num_states):
        at = np.int64(ends[s])
        for i in range(first[s], first[s + 1]):
            if pi[i] != 0.0:
                row = slice(indptr[i], indptr[i + 1])
                end = at + data[row].size
                values[at:end] = pi[i] * data[row]
                columns[at:end] = indices[row]
                at = end
    return values, columns, ends


@threaded(fastmath=FAST)
def evaluated(values, columns, ends, gamma, x):
    """``x - gamma P_pi x``."""
    out = np.empty_like(x)
    for s in prange(x.size):
        row = slice(ends[s], ends[s + 1])
        out[s] = x[s] - gamma * _dot(values[row], columns[row], x)
    return out


@threaded(fastmath=FAST)
def evaluated_all(values, columns, ends, gamma, X):
    """:func:`evaluated` for the columns of X at once."""
    out = X.copy()
    for s in prange(X.shape[0]):
        row = slice(ends[s], ends[s + 1])
        _gather(out[s], -gamma, values[row], columns[row], X)
    return out


@njit(fastmath=FAST)
def evaluated_back(values, columns, ends, gamma, x):
    """``x - gamma P_pi' x``, on one thread: sharing such scattered sums takes longer in all but large models."""
    out = x.copy()
    for s in range(x.size):
        row, mass = slice(ends[s], ends[s + 1]), gamma * x[s]
        part, there = values[row], columns[row]
        for k in range(part.size):
            out[there[k]] -= mass * part[k]
    return out


@threaded(fastmath=FAST)
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


@threaded(fastmath=FAST)
def flow_of_two(data, indices, indptr, first, gamma, d, e, threads):
    """:func:`flow` of two vectors: P is read a single time."""
    num_states = first.size - 1
    parts = np.zeros((threads, num_states, 2))
    chunk = (num_states + threads - 1) // threads
    for t in prange(threads):
        part = parts[t]
        for s in range(t * chunk, min((t + 1) * chunk, num_states)):
            for i in range(first[s], first[s + 1]):
                one, two = d[i], e[i]
                if one != 0.0 or two != 0.0:
                    part[s, 0] += one
                    part[s, 1] += two
                    row = slice(indptr[i], indptr[i + 1])
                    values, columns = data[row], indices[row]
                    for k in range(values.size):
                        there, value = part[columns[k]], gamma * values[k]
                        there[0] -= one * value
                        there[1] -= two * value
    out = np.empty((2, num_states))
    for s in prange(num_states):
        for k in range(2):
            total = 0.0
            for t in range(threads):
                total += parts[t, s, k]
            out[k, s] = total
    return out


@threaded(fastmath=FAST)
def weighted(data, indices, indptr, first, gamma, weights, V, threads):
    """``M' diag(weights) M V`` in one pass over P: each row is met once, for the product and for its transpose."""
    num_states = first.size - 1
    parts = np.zeros((threads, num_states))
    chunk = (num_states + threads - 1) // threads
    for t in prange(threads):
        part = parts[t]
        for s in range(t * chunk, min((t + 1) * chunk, num_states)):
            own = 0.0
            for i in range(first[s], first[s + 1]):
                if weights[i] != 0.0:
                    row = slice(indptr[i], indptr[i + 1])
                    values, columns = data[row], indices[row]
                    x = weights[i] * (gamma * _dot(values, columns, V) - V[s])
                    own -= x
                    x *= gamma
                    for k in range(values.size):
                        part[columns[k]] += x * values[k]
            part[s] += own
    out = parts[0]
    for t in range(1, threads):
        out += parts[t]
    return out


@threaded(fastmath=FAST)
def weighted_dense(P, first, gamma, weights, V, threads):
    """:func:`weighted` for a dense P."""
    num_states = first.size - 1
    parts = np.zeros((threads, num_states))
    chunk = (num_states + threads - 1) // threads
    for t in prange(threads):
        part = parts[t]
        for s in range(t * chunk, min((t + 1) * chunk, num_states)):
            own = 0.0
            for i in range(first[s], first[s + 1]):
                if weights[i] != 0.0:
                    row, x = P[i], 0.0
                    for k in range(num_states):
                        x += row[k] * V[k]
                    x = weights[i] * (gamma * x - V[s])
                    own -= x
                    x *= gamma
                    for k in range(num_states):
                        part[k] += x * row[k]
            part[s] += own
    out = parts[0]
    for t in range(1, threads):
        out += parts[t]
    return out


@threaded(fastmath=FAST)
def weighted_diagonal(data, indices, indptr, first, gamma, weights, threads):
    """Diagonal of ``M' diag(weights) M``."""
    num_states = first.size - 1
    parts = np.zeros((threads, num_states))
    chunk = (num_states + threads - 1) // threads
    for t in prange(threads):
        part = parts[t]
        for s in range(t * chunk, min((t + 1) * chunk, num_states)):
            own = 0.0
            for i in range(first[s], first[s + 1]):
                if weights[i] != 0.0:
                    row = slice(indptr[i], indptr[i + 1])
                    values, columns = data[row], indices[row]
                    own += weights[i]
                    for k in range(values.size):
                        x = gamma * values[k]
                        part[columns[k]] += weights[i] * x * x
                        if columns[k] == s:
                            own -= 2.0 * weights[i] * x
            part[s] += own
    out = parts[0]
    for t in range(1, threads):
        out += parts[t]
    return out


@njit(fastmath=FAST)
def weighted_diagonal_dense(P, first, gamma, weights):
    """:func:`weighted_diagonal` for a dense P."""
    num_states = first.size - 1
    out = np.zeros(num_states)
    for s in range(num_states):
        own = 0.0
        for i in range(first[s], first[s + 1]):
            if weights[i] != 0.0:
                row, weight = P[i], weights[i] * gamma * gamma
                own += weights[i] * (1.0 - 2.0 * gamma * row[s])
                for k in range(num_states):
                    out[k] += weight * row[k] * row[k]
        out[s] += own
    return out


@threaded(fastmath=FAST)
def gram(data, indices, indptr, owner, gamma, weights, cuts):
    """Lower triangle of the dense ``M' diag(weights) M``; columns of P are sorted.

    Each thread adds up the rows of the result from one cut to the next.
    """
    num_states = cuts[-1]
    out = np.zeros((num_states, num_states))
    for t in prange(cuts.size - 1):
        low, high = cuts[t], cuts[t + 1]
        for i in range(owner.size):
            if weights[i] == 0.0:
                continue
            s, weight = owner[i], weights[i]
            row = slice(indptr[i], indptr[i + 1])
            values, columns = data[row], indices[row]
            if low <= s < high:
                out[s, s] += weight
                line = out[s]
                for k in range(values.size):
                    if columns[k] < s:
                        line[columns[k]] -= weight * gamma * values[k]
                    elif columns[k] == s:
                        line[s] -= 2.0 * weight * gamma * values[k]
            for k in range(values.size):
                j = columns[k]
                if low <= j < high:
                    line, value = out[j], weight * gamma * values[k]
                    if j > s:
                        line[s] -= value
                    value *= gamma
                    for m in range(k + 1):
                        line[columns[m]] += value * values[m]
    return out


@njit(fastmath=FAST)
def crossed(data, indices, indptr, owner, gamma, num_states, weights, e_data, e_indices, e_indptr, num_rows):
    """Dense ``E diag(weights) M`` for a sparse E given by its columns, one column a pair."""
    out = np.zeros((num_rows, num_states))
    for i in range(owner.size):
        if weights[i] == 0.0:
            continue
        row = slice(indptr[i], indptr[i + 1])
        values, columns = data[row], indices[row]
        for n in range(e_indptr[i], e_indptr[i + 1]):
            line, x = out[e_indices[n]], weights[i] * e_data[n]
            line[owner[i]] -= x
            x *= gamma
            for k in range(values.size):
                line[columns[k]] += x * values[k]
    return out


@njit(fastmath=FAST)
def downhill(data, indices, indptr, pair, V):
    """Mean probability that ``pair`` leads to a state of lower value, of lower number, of higher number."""
    value, lower, higher = 0.0, 0.0, 0.0
    for s in range(np.uint64(pair.size)):
        i = pair[s]
        for e in range(indptr[i], indptr[i + np.uint64(1)]):
            j = indices[e]
            if V[j] < V[s]:
                value += data[e]
            if j < s:
                lower += data[e]
            elif j > s:
                higher += data[e]
    return value / pair.size, lower / pair.size, higher / pair.size


@njit(fastmath=FAST)
def relax_some(data, indices, indptr, first, gamma, c, V, pair, upward, start, end):
    """:func:`relax` for the states from ``start`` to ``end``."""
    worst = 0.0
    for k in range(start, end):
        s = k if upward else end - np.uint64(1) - (k - start)
        least, where = np.inf, first[s]
        for i in range(first[s], first[s + np.uint64(1)]):
            total, own = 0.0, 0.0
            for e in range(indptr[i], indptr[i + np.uint64(1)]):
                j = indices[e]
                if j == s:
                    own += data[e]
                else:
                    total += data[e] * V[j]
            total = (c[i] + gamma * total) / (1.0 - gamma * own)
            if total < least:
                least, where = total, i
        worst = max(worst, abs(least - V[s]))
        V[s], pair[s] = least, where
    return worst


@njit(parallel=True, fastmath=FAST)
def relax(data, indices, indptr, first, gamma, c, V, pair, upward, cuts):
    """Bellman's equation met state by state, up or down their numbers, each time with the newest V (Gauss-Seidel).

    V and the pair that attains the minimum are changed in place; the largest change of V is returned.  Threads share
    the states in pieces and read each other's V, old or new.
    """
    found = np.zeros(cuts.size - 1)
    for t in prange(cuts.size - 1):
        found[t] = relax_some(data, indices, indptr, first, gamma, c, V, pair, upward, cuts[t], cuts[t + 1])
    return found.max()


@njit(fastmath=FAST)
def settle_some(data, indices, indptr, gamma, c, V, pair, upward, start, end):
    """:func:`settle` for the states from ``start`` to ``end``."""
    worst = 0.0
    for k in range(start, end):
        s = k if upward else end - np.uint64(1) - (k - start)
        i = pair[s]
        total, own = 0.0, 0.0
        for e in range(indptr[i], indptr[i + np.uint64(1)]):
            j = indices[e]
            if j == s:
                own += data[e]
            else:
                total += data[e] * V[j]
        total = (c[i] + gamma * total) / (1.0 - gamma * own)
        worst = max(worst, abs(total - V[s]))
        V[s] = total
    return worst


@njit(parallel=True, fastmath=FAST)
def settle(data, indices, indptr, gamma, c, V, pair, upward, cuts):
    """:func:`relax` for the policy that takes ``pair`` in place of the minimum."""
    found = np.zeros(cuts.size - 1)
    for t in prange(cuts.size - 1):
        found[t] = settle_some(data, indices, indptr, gamma, c, V, pair, upward, cuts[t], cuts[t + 1])
    return found.max()


@njit(fastmath=FAST)
def improve(data, indices, indptr, first, gamma, c, V, pair, upward, cuts, least, rounding, settles):
    """One :func:`relax`, then up to so many times :func:`settle`, which read a fraction of P.

    Returns the first's change, and whether it was no more than ``least`` or a share ``rounding`` of the largest value.
    """
    goal, one = least, cuts.size == 2
    for s in range(V.size):
        goal = max(goal, rounding * abs(V[s]))
    if one:
        change = relax_some(data, indices, indptr, first, gamma, c, V, pair, upward, cuts[0], cuts[1])
    else:
        change = relax(data, indices, indptr, first, gamma, c, V, pair, upward, cuts)
    if change <= goal:
        return change, True
    for _ in range(settles):
        if one:
            left = settle_some(data, indices, indptr, gamma, c, V, pair, upward, cuts[0], cuts[1])
        else:
            left = settle(data, indices, indptr, gamma, c, V, pair, upward, cuts)
        if left <= goal:
            break
    return change, False


@njit(fastmath=FAST)
def push(data, indices, indptr, first, gamma, pi, waiting, x, upward, least):
    """Move what waits in each state on to its successors under a policy, up or down the states' numbers.

    ``x`` gains what has passed.  Less than a share ``least`` of that is left where it is: what is rarely visited is
    known as exactly as what is often.  Returns all that still waits.
    """
    size = np.uint64(x.size)
    for k in range(size):
        s = k if upward else size - np.uint64(1) - k
        mass = waiting[s]
        if mass <= least * x[s]:
            continue
        own = 0.0
        for i in range(first[s], first[s + np.uint64(1)]):
            if pi[i] != 0.0:
                for e in range(indptr[i], indptr[i + np.uint64(1)]):
                    if indices[e] == s:
                        own += pi[i] * data[e]
        mass /= 1.0 - gamma * own
        x[s] += mass
        mass *= gamma
        for i in range(first[s], first[s + np.uint64(1)]):
            if pi[i] != 0.0:
                share = mass * pi[i]
                for e in range(indptr[i], indptr[i + np.uint64(1)]):
                    if indices[e] != s:
                        waiting[indices[e]] += share * data[e]
        waiting[s] = 0.0
    return waiting.sum()


@njit(fastmath=FAST)
def push_often(data, indices, indptr, first, gamma, pi, waiting, x, upward, least, goal, share, most):
    """:func:`push` until no more than ``goal`` waits, and nowhere more than a share of what has passed.

    At most so many times.  Returns what still waits, and whether that was reached.
    """
    left = np.inf
    for _ in range(most):
        left = push(data, indices, indptr, first, gamma, pi, waiting, x, upward, least)
        if left <= goal:
            reached = True
            if share < 1.0:
                for s in range(x.size):
                    reached = reached and waiting[s] <= share * x[s]
            if reached:
                return left, True
    return left, False
