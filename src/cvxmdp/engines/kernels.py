"""Compiled loops of the frozen program (see frozen.py): an interior point method over the pairs.

``A`` has a row for each pair: its advantage for the cost, then for each limit.  ``x`` weighs the states.  All loops go
state by state, since the states' equations are eliminated one by one; what is left has one unknown a limit.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from cvxmdp.compiled import njit

FAST = {"reassoc", "contract", "nsz"}
BACK_OFF = 0.99
"""Share of the longest step that is taken."""
MOST_BEND = 10.0
"""The corrector accounts for second-order terms up to this many times its aim: larger ones are far from true."""
FAR = 1e9
LOOK = 4
"""Steps between two looks whether the program has a solution."""


@njit(fastmath=FAST)
def priced(A, first, lam):
    """Advantages at cost plus priced limits: of each pair less its state's least, who attains it, the least of all."""
    n, num_states = A.shape[1] - 1, first.size - 1
    q, greedy, least = np.empty(A.shape[0]), np.empty(num_states, np.int64), np.inf
    for s in range(num_states):
        low, where = np.inf, first[s]
        for i in range(first[s], first[s + 1]):
            row = A[i]
            total = row[0]
            for k in range(n):
                total += lam[k] * row[k + 1]
            q[i] = total
            if total < low:
                low, where = total, i
        for i in range(first[s], first[s + 1]):
            q[i] -= low
        greedy[s] = where
        least = min(least, low)
    return q, greedy, least


@njit(fastmath=FAST)
def centre(q, x, first, mu, p, z):
    """Fill in the central point at the prices of q: ``p z = mu`` for each pair, p a distribution in each state.

    In a state ``z = x q + y`` with the one y > 0 at which the probabilities ``mu / z`` add up to one.
    """
    for s in range(first.size - 1):
        start, end = first[s], first[s + 1]
        y = mu  # here the best action alone has probability one, so the root lies above
        for _ in range(50):
            total, slope = -1.0, 0.0
            for i in range(start, end):
                share = mu / (x[s] * q[i] + y)
                total += share
                slope += share * share
            move = total * mu / slope
            y += move
            if move <= 1e-12 * y:
                break
        for i in range(start, end):
            z[i] = x[s] * q[i] + y
            p[i] = mu / z[i]


@njit(fastmath=FAST)
def eliminate(A, x, first, p, z, means, totals, sums, away, b, start, end):
    """Fill in the rows whose products add up to the Schur complement, and add the predictor's b, for some states.

    The weights of the normal equations are p / z; the state's own equation takes off the weighted mean.
    """
    n = A.shape[1] - 1
    for s in range(start, end):
        mean, total, mass = means[s], 0.0, 0.0
        mean[:] = 0.0
        for i in range(first[s], first[s + 1]):
            row, weight = A[i], p[i] / z[i]
            total += weight
            mass -= p[i]
            for k in range(n):
                mean[k] += weight * row[k + 1]
        for k in range(n):
            mean[k] /= total
        totals[s], sums[s] = total, mass
        for i in range(first[s], first[s + 1]):
            row, line, root, change = A[i], away[i], x[s] * np.sqrt(p[i] / z[i]), x[s] * p[i]
            for k in range(n):
                difference = row[k + 1] - mean[k]
                b[k] += change * difference
                line[k] = root * difference


@njit(fastmath=FAST)
def correct(A, x, first, p, z, dp, dz, aim, means, free, sums, b, start, end):
    """Fill in the corrector's free changes of p, which aim at ``p z = aim``, and add its b, for some states."""
    n = A.shape[1] - 1
    for s in range(start, end):
        mean, total = means[s], 0.0
        for i in range(first[s], first[s + 1]):
            row = A[i]
            bend = min(max(dp[i] * dz[i], -MOST_BEND * aim), MOST_BEND * aim)
            free[i] = (aim - p[i] * z[i] - bend) / z[i]
            total += free[i]
            change = x[s] * free[i]
            for k in range(n):
                b[k] -= change * (row[k + 1] - mean[k])
        sums[s] = total


@njit(fastmath=FAST)
def directions(A, x, first, p, z, means, totals, free, sums, dy, dp, dz, found, start, end):
    """Fill in the changes of p and z that belong to the multipliers' change dy, for some states.

    ``found`` gets the longest step, and what the gap gains with the step and with its square.
    """
    n, longest, linear, square = A.shape[1] - 1, FAR, 0.0, 0.0
    for s in range(start, end):
        own = -sums[s] / totals[s]
        for k in range(n):
            own -= x[s] * means[s, k] * dy[k]
        for i in range(first[s], first[s + 1]):
            row, change = A[i], 0.0
            for k in range(n):
                change += row[k + 1] * dy[k]
            change = own + x[s] * change
            dz[i], dp[i] = -change, free[i] + p[i] / z[i] * change
            if dz[i] < 0:
                longest = min(longest, -z[i] / dz[i])
            if dp[i] < 0:
                longest = min(longest, -p[i] / dp[i])
            linear += p[i] * dz[i] + z[i] * dp[i]
            square += dp[i] * dz[i]
    found[0], found[1], found[2] = longest, linear, square


@njit(fastmath=FAST)
def move(first, p, z, dp, dz, step, free, start, end):
    """Take the step for some states, prepare the predictor's free changes, and return their part of the gap."""
    gap = 0.0
    for i in range(first[start], first[end]):
        p[i] += step * dp[i]
        z[i] += step * dz[i]
        free[i] = -p[i]
        gap += p[i] * z[i]
    return gap


@njit(parallel=True, fastmath=FAST)
def eliminate_all(A, x, first, p, z, means, totals, sums, away, bs, cuts):
    """Let every thread do its part of :func:`eliminate`."""
    for t in prange(cuts.size - 1):
        eliminate(A, x, first, p, z, means, totals, sums, away, bs[t], cuts[t], cuts[t + 1])


@njit(parallel=True, fastmath=FAST)
def correct_all(A, x, first, p, z, dp, dz, aim, means, free, sums, bs, cuts):
    """Let every thread do its part of :func:`correct`."""
    for t in prange(cuts.size - 1):
        correct(A, x, first, p, z, dp, dz, aim, means, free, sums, bs[t], cuts[t], cuts[t + 1])


@njit(parallel=True, fastmath=FAST)
def directions_all(A, x, first, p, z, means, totals, free, sums, dy, dp, dz, founds, cuts):
    """Let every thread do its part of :func:`directions`."""
    for t in prange(cuts.size - 1):
        directions(A, x, first, p, z, means, totals, free, sums, dy, dp, dz, founds[t], cuts[t], cuts[t + 1])


@njit(fastmath=FAST)
def factor(matrix):
    """Turn the lower triangle into its Cholesky factor; return whether there is one."""
    for k in range(matrix.shape[0]):
        for j in range(k + 1):
            total = matrix[k, j]
            for i in range(j):
                total -= matrix[k, i] * matrix[j, i]
            if j < k:
                matrix[k, j] = total / matrix[j, j]
            elif total > 0:
                matrix[k, k] = np.sqrt(total)
            else:
                return False
    return True


@njit(fastmath=FAST)
def solve(lower, b):
    """Solve with a Cholesky factor, in place."""
    for k in range(b.size):
        for j in range(k):
            b[k] -= lower[k, j] * b[j]
        b[k] /= lower[k, k]
    for k in range(b.size - 1, -1, -1):
        for j in range(k + 1, b.size):
            b[k] -= lower[j, k] * b[j]
        b[k] /= lower[k, k]


@njit(fastmath=FAST)
def rows_step(r, lam, bounded, free, dy, dr):
    """Fill in the change of the rows' slacks; return the longest step for slacks and multipliers."""
    longest = FAR
    for k in range(r.size):
        dr[k] = free[k] + r[k] / lam[k] * dy[k] if bounded[k] else 0.0
        if dr[k] < 0:
            longest = min(longest, -r[k] / dr[k])
        if bounded[k] and dy[k] > 0:
            longest = min(longest, lam[k] / dy[k])
    return longest


@njit(fastmath=FAST)
def impossible(A, x, first, room, lam, bounded):
    """Whether the multipliers prove that no policy meets the limits: at any, the limits' rows sum to more than room."""
    n, total, size = A.shape[1] - 1, 0.0, 0.0
    for k in range(n):
        if bounded[k] and lam[k] < 0:
            return False
        total -= lam[k] * room[k]
        size += abs(lam[k] * room[k])
    for s in range(first.size - 1):
        low = np.inf
        for i in range(first[s], first[s + 1]):
            row, value = A[i], 0.0
            for k in range(n):
                value += lam[k] * row[k + 1]
            low = min(low, value)
        total += x[s] * low
        size += abs(x[s] * low)
    return total > 1e-12 * size


@njit(fastmath=FAST)
def interior_point(A, x, first, room, bounded, give, lam, mu, accuracy, most_steps, cuts):
    """Mehrotra's predictor-corrector method from the central point at prices lam; lam ends as the multipliers.

    The limits give way to their multipliers, by ``give lam``, at the cost ``lam'give lam / 2``.  Returns the policy
    and the steps after which gap and open rows were within the accuracy, -1 if they never were, -2 if there is no
    solution.  The states are cut into one part a thread.
    """
    num_pairs, n, num_states, parts = A.shape[0], A.shape[1] - 1, first.size - 1, cuts.size - 1
    p, z, free = np.empty(num_pairs), np.empty(num_pairs), np.empty(num_pairs)
    dp, dz = np.zeros(num_pairs), np.zeros(num_pairs)
    means, totals, sums = np.empty((num_states, n)), np.empty(num_states), np.empty(num_states)
    r, dr, free_r, dy, missing = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.empty(n)
    away, bs, founds = np.empty((num_pairs, n)), np.empty((parts, n)), np.empty((parts, 3))
    centre(priced(A, first, lam)[0], x, first, mu, p, z)
    missing[:] = room + give @ lam
    for s in range(num_states):
        for i in range(first[s], first[s + 1]):
            for k in range(n):
                missing[k] -= x[s] * p[i] * A[i, k + 1]
    count = num_pairs
    for k in range(n):
        if bounded[k]:
            count += 1
            r[k] = max(mu / lam[k], abs(missing[k]))
            missing[k] -= r[k]
    step, rigid = 0.0, not np.any(give)
    for done in range(most_steps):
        gap, worst = move(first, p, z, dp, dz, step, free, 0, num_states), 0.0
        for k in range(n):
            r[k] += step * dr[k]
            lam[k] -= step * dy[k]
            missing[k] *= 1 - step
            gap += r[k] * lam[k]
            worst = max(worst, abs(missing[k]))
            free_r[k] = -r[k]
        if not gap < FAR:
            return p, -1
        if gap <= accuracy and worst <= accuracy:
            return p, done
        if rigid and done % LOOK == LOOK - 1 and impossible(A, x, first, room, lam, bounded):
            return p, -2
        bs[:] = 0.0
        if parts == 1:
            eliminate(A, x, first, p, z, means, totals, sums, away, bs[0], 0, num_states)
        else:
            eliminate_all(A, x, first, p, z, means, totals, sums, away, bs, cuts)
        schur = away.T @ away
        trace = 0.0
        for k in range(n):
            dy[k] = missing[k] - free_r[k]
            for t in range(parts):
                dy[k] += bs[t, k]
            trace += schur[k, k]
        schur += give
        for k in range(n):
            schur[k, k] += 1e-14 * trace / n + (r[k] / lam[k] if bounded[k] else 0.0)
        if not factor(schur):
            return p, -1
        solve(schur, dy)
        for predictor in (True, False):
            if parts == 1:
                directions(A, x, first, p, z, means, totals, free, sums, dy, dp, dz, founds[0], 0, num_states)
            else:
                directions_all(A, x, first, p, z, means, totals, free, sums, dy, dp, dz, founds, cuts)
            step = rows_step(r, lam, bounded, free_r, dy, dr)
            for t in range(parts):
                step = min(step, founds[t, 0])
            if not predictor:
                break
            step = min(step, 1.0)
            ahead = gap
            for t in range(parts):
                ahead += step * (founds[t, 1] + step * founds[t, 2])
            for k in range(n):
                if bounded[k]:
                    ahead += step * (dr[k] * lam[k] - r[k] * dy[k] - step * dr[k] * dy[k])
            aim = (ahead / gap) ** 3 * gap / count
            bs[:] = 0.0
            if parts == 1:
                correct(A, x, first, p, z, dp, dz, aim, means, free, sums, bs[0], 0, num_states)
            else:
                correct_all(A, x, first, p, z, dp, dz, aim, means, free, sums, bs, cuts)
            for k in range(n):
                if bounded[k]:
                    free_r[k] = (aim - r[k] * lam[k] + dr[k] * dy[k]) / lam[k]
            for k in range(n):
                dy[k] = missing[k] - free_r[k]
                for t in range(parts):
                    dy[k] += bs[t, k]
            solve(schur, dy)
        step = min(1.0, BACK_OFF * step)
    return p, -1
