"""Which dynamics serves a model."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp

from cvxmdp import memory
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.dynamics.dense import DenseDynamics
from cvxmdp.dynamics.plan import plan, spreads
from cvxmdp.dynamics.sparse import SparseDynamics
from cvxmdp.dynamics.tabular import Tabular
from cvxmdp.mdp import MDP

BACKENDS: list[type[Tabular]] = [DenseDynamics, SparseDynamics]
"""The first that holds P serves the model."""

SEARCHED = 24
"""Bytes of a graph for each transition while it is searched."""


def choose_dynamics(mdp: MDP, evaluation: str = "auto") -> Dynamics:
    """Choose the first backend that holds P, and how its linear systems are solved.

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
    if mdp.world is not None:
        from cvxmdp.dynamics.petsc import PetscDynamics  # here, since PETSc is there only where it is needed

        return PetscDynamics(mdp, evaluation)
    P = mdp.transitions
    nonzeros = P.nnz if sp.issparse(P) else int(np.count_nonzero(P))
    free = memory.available_memory()
    first = np.searchsorted(mdp.state, np.arange(mdp.num_states + 1))
    # Whether it does is found in a graph that takes more memory than P: where that is not there, factors would not fit.
    looked = memory.fits(SEARCHED * nonzeros)
    spread = partial(spreads, P, first, int(np.argmax(mdp.initial))) if looked else lambda: True
    steps = plan(mdp.num_states, mdp.num_pairs, nonzeros, evaluation, free, spread)
    tried = ((backend, backend.held(P, nonzeros, free)) for backend in BACKENDS)
    backend, held = next((backend, held) for backend, held in tried if held is not None)
    return backend(mdp, held, steps)
