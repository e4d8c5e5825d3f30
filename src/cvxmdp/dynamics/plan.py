"""Which solver each linear system of the dynamics gets, from sizes, memory and how far states lead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order

from cvxmdp.mdp import Indices

VISITED_STATES = 200
"""Up to here a dense factor in every Newton step is faster than conjugate gradients."""
SPARSE_ROW = 16
"""Up to this many entries a row, a sparse factor of a policy's matrix has little fill, unless the model spreads."""
SPARSE_STATES = 1_500_000
"""Up to here sparse factors are made where their fill is small: on a grid of a million cells a policy's take 25 s."""
HUB = 10.0
"""A state that leads to so many times the mean number of others, as one where all begins anew, does not count."""
WIDE = 0.1
"""A model spreads where this share of all states has the same distance from one of them: 0.4 to 0.9 in random
models of 4000 to 100 000 states, 0.001 to 0.05 in grids, queues and tandem queues."""
QUICK_STATES = 3000
"""Up to here a sparse factor takes less than a second, whatever its fill; else Ctrl-C must be heard meanwhile."""


@dataclass(frozen=True)
class Plan:
    """How the systems of one model are solved: ``"dense"``, ``"sparse"`` (both direct) or ``"iterative"``."""

    policy: str
    """Also ``"approximate"``: by elimination of states where that takes milliseconds, else by successive approximations
    where they converge fast, else by factors.  Factors are by elimination where its fill is small."""
    normal: str
    visited: str
    reason: str
    thin: bool = False
    """Whether sparse factors keep their fill small: P has few entries a row and does not spread."""
    ordered: bool = False
    """Whether sweeps in the order of the value are tried first, see :mod:`cvxmdp.dynamics.ordered`."""


def spreads(P: Any, first: Indices, start: int) -> bool:
    """Whether few steps lead from a state to a large share of all others, so that sparse factors would fill up.

    Of the states in the order of a breadth-first search, those between a state and the one it was found from are about
    the ones at its distance.
    """
    P, S = sp.csr_array(P), first.size - 1
    ends = P.indptr[first]
    counts = np.diff(ends)
    to = P.indices
    if np.any(hubs := counts > HUB * counts.mean()):
        to = to[np.repeat(~hubs, counts)]
        ends = np.append(0, np.cumsum(np.where(hubs, 0, counts)))
    graph = sp.csr_array((np.ones(to.size, dtype=np.int8), to, ends), shape=(S, S))
    order, found_from = breadth_first_order(graph, start)
    position = np.zeros(S, dtype=np.int64)
    position[order] = np.arange(order.size)
    width = np.max(position[order[1:]] - position[found_from[order[1:]]], initial=0)
    return bool(width > WIDE * S)


def plan(
    num_states: int,
    num_pairs: int,
    nonzeros: int,
    evaluation: str,
    memory: int,
    spread: Callable[[], bool] = lambda: False,
) -> Plan:
    """Choose the solvers from sizes, and from whether the model spreads.

    ============  ==============================================================================================
    system        rule of ``evaluation="auto"``
    ============  ==============================================================================================
    policy        dense factor up to 400 states; else successive approximations, which need few steps on models that
                  mix well; where they do not, a factor while P has at most 16 entries a row, at most 1.5 million states
                  and does not spread, or at most 3000 states whose dense factor fits, else Krylov methods
    normal        sparse factor of ``M'M`` under the same rule for 20 000 states; else dense Cholesky while
                  ``8 S^2`` bytes, twice (matrix and factor), fit in half of the free memory and S <= 8000;
                  else conjugate gradients, which never form ``M'M``
    visited       like normal, but a dense factor only up to 200 states, since it is made anew in every step
    ordered       sweeps in the order of the value first where P has at most 16 entries a row, beyond 400 states
    ============  ==============================================================================================

    ``"direct"`` forces factors and raises ``MemoryError`` when they do not fit; ``"iterative"`` forces Krylov methods.
    """
    per_row = nonzeros / num_pairs
    thin = per_row <= SPARSE_ROW
    dense_bytes = 16 * num_states**2
    fits = dense_bytes <= memory // 2
    if evaluation == "iterative":
        return Plan("iterative", "iterative", "iterative", "iterative solvers were asked for", thin)
    if evaluation == "direct":
        if thin:
            return Plan(
                "sparse", "sparse", "sparse", "direct solvers were asked for; P is thin, so factors are sparse", thin
            )
        if not fits:
            raise MemoryError(
                f"a dense factor of {num_states} states takes {dense_bytes / 1e9:.1f} GB and {memory / 1e9:.1f} GB are "
                'free; use evaluation="iterative" or "auto"'
            )
        return Plan("dense", "dense", "dense", "direct solvers were asked for; P is not thin, so factors are dense")
    small = num_states <= 400
    sparse = thin and num_states <= SPARSE_STATES and (num_states <= QUICK_STATES or not spread())
    direct = sparse or (fits and num_states <= QUICK_STATES)
    policy = "dense" if small else "approximate" if direct else "iterative"
    if sparse and not small and num_states <= 20_000:
        return Plan(
            policy, "sparse", "sparse", f"{per_row:.0f} entries a row: sparse factors have little fill", True, True
        )
    normal = "dense" if fits and num_states <= 8000 else "iterative"
    visited = "dense" if fits and num_states <= VISITED_STATES else "iterative"
    reason = f"{num_states} states, {per_row:.0f} entries a row: {normal} regularized solves"
    return Plan(policy, normal, visited, reason, sparse, thin and not small)
