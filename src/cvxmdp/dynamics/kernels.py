"""Compiled loops over a compressed sparse row matrix P (pairs x states), or a dense one; threads share them.

P may be the rows of some states alone, which then are its first columns; ``reached`` counts all its columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp import _dynamics, threads
from cvxmdp.dynamics.base import Mask
from cvxmdp.mdp import Array, Indices

Whole = Any
"""Whole numbers of 4 or 8 bytes, all those of a matrix of one kind."""


def sweep(
    data: Array, indices: Whole, indptr: Whole, first: Indices, gamma: float, c: Array, V: Array
) -> tuple[Array, Indices]:
    """One fused pass: the least ``c + gamma P V`` of each state and the pair that attains it."""
    best, pair = np.empty(first.size - 1), np.empty(first.size - 1, np.int64)
    _dynamics.sweep(data, indices, indptr, first, gamma, c, V, best, pair, threads.allowed())
    return best, pair


def advantage(data: Array, indices: Whole, indptr: Whole, owner: Indices, gamma: float, c: Array, V: Array) -> Array:
    """``c + gamma P V - Xi V``."""
    out = np.empty(owner.size)
    _dynamics.advantage(data, indices, indptr, owner, gamma, c, V, out, threads.allowed())
    return out


def advantages(data: Array, indices: Whole, indptr: Whole, owner: Indices, gamma: float, C: Array, V: Array) -> Array:
    """``C + gamma P V - Xi V`` for the columns of C and V at once: P is read a single time."""
    out = np.empty(C.shape)
    _dynamics.advantages(data, indices, indptr, owner, gamma, C, V, out, threads.allowed())
    return out


def taken(data: Array, indices: Whole, indptr: Whole, first: Indices, pi: Array) -> tuple[Array, Whole, Whole]:
    """``P_pi`` as a compressed sparse row matrix: the rows of the pairs that are taken, one after the other.

    It is read many times in an evaluation, and small enough to stay in the cache.
    """
    ends = np.empty(first.size, indptr.dtype)
    size = _dynamics.taken_ends(indptr, first, pi, ends)
    values, columns = np.empty(size), np.empty(size, indices.dtype)
    _dynamics.taken(data, indices, indptr, first, pi, values, columns, ends, threads.allowed())
    return values, columns, ends


def evaluated(values: Array, columns: Whole, ends: Whole, gamma: float, x: Array) -> Array:
    """``x - gamma P_pi x``, for one column or several."""
    out = np.empty((ends.size - 1, *x.shape[1:]))
    _dynamics.evaluated(values, columns, ends, gamma, x, out, threads.allowed())
    return out


def evaluated_back(values: Array, columns: Whole, ends: Whole, gamma: float, x: Array, reached: int) -> Array:
    """``x - gamma P_pi' x``, on one thread: sharing such scattered sums takes longer in all but large models."""
    out = np.zeros(reached)
    _dynamics.evaluated_back(values, columns, ends, gamma, x, out)
    return out


def flow(data: Array, indices: Whole, indptr: Whole, first: Indices, gamma: float, d: Array, reached: int) -> Array:
    """``Xi'd - gamma P'd``; each thread scatters into a row of its own, so that P is read in storage order."""
    out = np.zeros(reached)
    _dynamics.flow(data, indices, indptr, first, gamma, d, out, threads.allowed())
    return out


def flow_of_two(
    data: Array, indices: Whole, indptr: Whole, first: Indices, gamma: float, d: Array, e: Array, reached: int
) -> Array:
    """:func:`flow` of two vectors: P is read a single time."""
    out = np.empty((2, reached))
    _dynamics.flow_of_two(data, indices, indptr, first, gamma, d, e, out, threads.allowed())
    return out


def weighted(
    data: Array, indices: Whole, indptr: Whole, first: Indices, gamma: float, weights: Array | Mask, V: Array
) -> Array:
    """``M' diag(weights) M V`` in one pass over P: each row is met once, for the product and for its transpose."""
    out = np.zeros(V.size)
    _dynamics.weighted(data, indices, indptr, first, gamma, weights, V, out, threads.allowed())
    return out


def weighted_dense(P: Array, first: Indices, gamma: float, weights: Array | Mask, V: Array) -> Array:
    """:func:`weighted` for a dense P."""
    out = np.zeros(V.size)
    _dynamics.weighted_dense(P, first, gamma, weights, V, out, threads.allowed())
    return out


def weighted_diagonal(
    data: Array, indices: Whole, indptr: Whole, first: Indices, gamma: float, weights: Array, reached: int
) -> Array:
    """Diagonal of ``M' diag(weights) M``."""
    out = np.zeros(reached)
    _dynamics.weighted_diagonal(data, indices, indptr, first, gamma, weights, out, threads.allowed())
    return out


def weighted_diagonal_dense(P: Array, first: Indices, gamma: float, weights: Array) -> Array:
    """:func:`weighted_diagonal` for a dense P."""
    out = np.zeros(first.size - 1)
    _dynamics.weighted_diagonal_dense(P, first, gamma, weights, out, threads.allowed())
    return out


def gram(
    data: Array, indices: Whole, indptr: Whole, owner: Indices, gamma: float, weights: Array, num_states: int
) -> Array:
    """Lower triangle of the dense ``M' diag(weights) M``; columns of P are sorted."""
    out = np.zeros((num_states, num_states))
    _dynamics.gram(data, indices, indptr, owner, gamma, weights, num_states, out, threads.allowed())
    return out


def crossed(
    P: tuple[Array, Whole, Whole],
    owner: Indices,
    gamma: float,
    num_states: int,
    weights: Array,
    E: tuple[Array, Whole, Whole],
    num_rows: int,
) -> Array:
    """Dense ``E diag(weights) M`` for a sparse E given by its columns, one column a pair."""
    out = np.zeros((num_rows, num_states))
    _dynamics.crossed(*P, owner, gamma, num_states, weights, *E, out)
    return out
