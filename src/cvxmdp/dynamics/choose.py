"""Which dynamics serves a model."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp

from cvxmdp.dynamics.base import Dynamics
from cvxmdp.dynamics.plan import available_memory, plan, spreads
from cvxmdp.mdp import MDP

DENSE_DENSITY = 0.2
"""From this share of nonzero entries on, reading a dense row through BLAS is faster than gathering a sparse one."""


def choose_dynamics(mdp: MDP, evaluation: str = "auto") -> Dynamics:
    """Choose dense or sparse dynamics and how their linear systems are solved.

    P is held dense when at least a fifth of its entries are nonzero and the array fits in half of the free memory.
    Otherwise it is held sparse.  What does not fit is never made dense.

    Parameters
    ----------
    mdp : MDP
        The model.
    evaluation : {"auto", "direct", "iterative"}
        How linear systems are solved: by factors, by Krylov methods, or by the rule in
        :func:`cvxmdp.dynamics.plan.plan`.
    """
    if evaluation not in ("auto", "direct", "iterative"):
        raise ValueError(f'evaluation is {evaluation!r}; it must be "auto", "direct" or "iterative"')
    P = mdp.transitions
    size = mdp.num_pairs * mdp.num_states
    nonzeros = P.nnz if sp.issparse(P) else int(np.count_nonzero(P))
    memory = available_memory()
    first = np.searchsorted(mdp.state, np.arange(mdp.num_states + 1))
    spread = partial(spreads, P, first, int(np.argmax(mdp.initial)))
    steps = plan(mdp.num_states, mdp.num_pairs, nonzeros, evaluation, memory, spread)
    dense = nonzeros >= DENSE_DENSITY * size and (not sp.issparse(P) or 8 * size <= memory // 2)
    if dense:
        from cvxmdp.dynamics.dense import DenseDynamics

        return DenseDynamics(mdp, np.ascontiguousarray(P.toarray() if sp.issparse(P) else P), steps)
    from cvxmdp.dynamics.sparse import SparseDynamics

    return SparseDynamics(mdp, sp.csr_array(P), steps)
