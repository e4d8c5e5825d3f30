"""Compiled loops of the normal equations (see normal.py): ``sum over pairs of W m m'`` in a fixed pattern.

Rows m of ``Xi - gamma P`` are stored with the number of each entry among the states that their own state's pairs reach.
Where limits or curves are on a state's visits, what its rows have in common counts only ``soft`` times, below one:

    sum of W (m - mean)(m - mean)' + soft (sum of W) mean mean'.

The first part is written with differences e from the heaviest row, ``sum of W e e' - (sum of W) tilt tilt'`` with tilt
their mean, so that little cancels and rows stay short.
"""

from __future__ import annotations

import numpy as np

from cvxmdp.compiled import njit


@njit()
def times(starts, columns, values, x):
    """Return the product of a matrix in compressed rows with a vector."""
    out = np.empty(starts.size - 1)
    for i in range(out.size):
        total = 0.0
        for k in range(starts[i], starts[i + 1]):
            total += values[k] * x[columns[k]]
        out[i] = total
    return out


@njit()
def places(reached_starts, reached, starts, rows, out):
    """For every state and every two states it reaches: where their entry lies in the upper triangle, by columns."""
    at = 0
    for s in range(reached_starts.size - 1):
        mine = reached[reached_starts[s] : reached_starts[s + 1]]
        for a in range(mine.size):
            column = rows[starts[mine[a]] : starts[mine[a] + 1]]
            k = 0
            for b in range(a + 1):
                while column[k] != mine[b]:
                    k += 1
                out[at] = starts[mine[a]] + k
                at += 1


@njit()
def _differences(s, first, ends, local, values, W, mean, tilt):
    """Fill in the mean of a state's rows, weighted by W, and how far it is from the heaviest row; return that row.

    Return also the sum of the weights.
    """
    heaviest, total = first[s], 0.0
    for i in range(first[s], first[s + 1]):
        total += W[i]
        if W[i] > W[heaviest]:
            heaviest = i
    mean[:], tilt[:] = 0.0, 0.0
    for k in range(ends[heaviest], ends[heaviest + 1]):
        mean[local[k]] = values[k]
    for i in range(first[s], first[s + 1]):
        if i != heaviest:
            share = W[i] / total
            for k in range(ends[i], ends[i + 1]):
                tilt[local[k]] += share * values[k]
            for k in range(ends[heaviest], ends[heaviest + 1]):
                tilt[local[k]] -= share * values[k]
    mean += tilt
    return heaviest, total


@njit()
def _difference(i, heaviest, ends, local, values, row, seen):
    """Fill in a row less the heaviest one, and the numbers of its entries; return how many there are."""
    count = 0
    for k in range(ends[heaviest], ends[heaviest + 1]):
        row[local[k]] = -values[k]
        seen[count] = local[k]
        count += 1
    many = count
    for k in range(ends[i], ends[i + 1]):
        known = False
        for j in range(many):
            if seen[j] == local[k]:
                known = True
                break
        if known:
            row[local[k]] += values[k]
        else:
            row[local[k]] = values[k]
            seen[count] = local[k]
            count += 1
    return count


@njit()
def sparse_gram(first, ends, local, values, reached_starts, place, W, soft, out):
    """Fill in the entries of the upper triangle of the matrix."""
    out[:] = 0.0
    most = np.max(reached_starts[1:] - reached_starts[:-1])
    mean, tilt, row, seen = np.empty(most), np.empty(most), np.empty(most), np.empty(most, np.int64)
    base = 0
    for s in range(first.size - 1):
        n = reached_starts[s + 1] - reached_starts[s]
        if soft[s] == 1.0:
            for i in range(first[s], first[s + 1]):
                for j in range(ends[i], ends[i + 1]):
                    scaled, line = W[i] * values[j], base + local[j] * (local[j] + 1) // 2
                    for k in range(ends[i], j + 1):
                        out[place[line + local[k]]] += scaled * values[k]
        else:
            heaviest, total = _differences(s, first, ends, local, values, W, mean[:n], tilt[:n])
            for i in range(first[s], first[s + 1]):
                if i == heaviest:
                    continue
                count = _difference(i, heaviest, ends, local, values, row, seen)
                for j in range(count):
                    a, scaled = seen[j], W[i] * row[seen[j]]
                    for k in range(j + 1):
                        b = seen[k]
                        high, low = max(a, b), min(a, b)
                        out[place[base + high * (high + 1) // 2 + low]] += scaled * row[b]
            line = base
            for a in range(n):
                up, down = soft[s] * total * mean[a], total * tilt[a]
                for b in range(a + 1):
                    out[place[line + b]] += up * mean[b] - down * tilt[b]
                line += a + 1
        base += n * (n + 1) // 2


@njit()
def dense_gram(first, ends, local, values, reached_starts, reached, W, soft, out):
    """Fill in the lower triangle of the matrix."""
    out[:] = 0.0
    most = np.max(reached_starts[1:] - reached_starts[:-1])
    mean, tilt, row, seen = np.empty(most), np.empty(most), np.empty(most), np.empty(most, np.int64)
    for s in range(first.size - 1):
        mine = reached[reached_starts[s] : reached_starts[s + 1]]
        n = mine.size
        if soft[s] == 1.0:
            for i in range(first[s], first[s + 1]):
                for j in range(ends[i], ends[i + 1]):
                    scaled, line = W[i] * values[j], out[mine[local[j]]]
                    for k in range(ends[i], j + 1):
                        line[mine[local[k]]] += scaled * values[k]
        else:
            heaviest, total = _differences(s, first, ends, local, values, W, mean[:n], tilt[:n])
            for i in range(first[s], first[s + 1]):
                if i == heaviest:
                    continue
                count = _difference(i, heaviest, ends, local, values, row, seen)
                for j in range(count):
                    a, scaled = seen[j], W[i] * row[seen[j]]
                    for k in range(j + 1):
                        b = seen[k]
                        out[mine[max(a, b)], mine[min(a, b)]] += scaled * row[b]
            for a in range(n):
                up, down, line = soft[s] * total * mean[a], total * tilt[a], out[mine[a]]
                for b in range(a + 1):
                    line[mine[b]] += up * mean[b] - down * tilt[b]
