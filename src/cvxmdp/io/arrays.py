"""Models from the arrays of pymdptoolbox and of QuantEcon.

Both have one reward, which is to be large; here it is a cost, ``-reward``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.mdp import MDP, Array
from cvxmdp.reading import floats, handed_over, read_cost_table, read_table

COST = "cost"
"""What minus the reward is called."""
FIELDS = ("R", "Q", "beta", "s_indices", "a_indices")
"""What a ``DiscreteDP`` holds, in the order of its arguments."""


def from_mdptoolbox(transitions: Any, reward: Any, discount: float, initial: Any = None) -> MDP:
    """Build a model as :meth:`cvxmdp.MDP.from_mdptoolbox` says."""
    blocks, matrix, num_states, num_actions = read_table(_listed(transitions))
    state, action = np.divmod(np.arange(num_states * num_actions), num_actions)
    mean = _mean_reward(_listed(reward), blocks, num_states, num_actions)
    return MDP.from_pairs(state, action, handed_over(matrix), {COST: _negated(mean)}, discount, initial)


def from_quantecon(ddp: Any, initial: Any = None) -> MDP:
    """Build a model as :meth:`cvxmdp.MDP.from_quantecon` says."""
    if isinstance(ddp, (tuple, list)) and len(ddp) in (3, 5):
        R, Q, beta, state, action = [*ddp, None, None][:5]
    elif all(hasattr(ddp, field) for field in FIELDS):
        R, Q, beta, state, action = (getattr(ddp, field) for field in FIELDS)
    else:
        raise ValueError(
            f"ddp is a {type(ddp).__name__}; give a DiscreteDP of QuantEcon, or its arguments as a tuple (R, Q, beta) "
            "or (R, Q, beta, s_indices, a_indices)"
        )
    R, Q = floats("R", R), sp.csr_array(Q) if sp.issparse(Q) else floats("Q", Q)
    if state is None:
        if R.ndim != 2 or Q.shape != (*R.shape, R.shape[0]):
            raise ValueError(
                f"R has shape {R.shape} and Q has shape {Q.shape}; without s_indices and a_indices give (S, A) and "
                "(S, A, S)"
            )
        state, action = np.nonzero(~np.isneginf(R))
        R, Q = R[state, action], Q[state, action]
    else:
        if R.ndim != 1 or Q.ndim != 2 or not R.size == Q.shape[0] == np.size(state):
            raise ValueError(
                f"R has shape {R.shape}, Q has shape {Q.shape} and s_indices has shape {np.shape(state)}; give (L,), "
                "(L, S) and (L,)"
            )
        order = MDP.order(state, action)
        order = order[~np.isneginf(R[order])]
        state, action, R, Q = np.asarray(state)[order], np.asarray(action)[order], R[order], Q[order]
    return MDP.from_pairs(state, action, Q, {COST: _negated(R)}, beta, initial)


def _listed(matrices: Any) -> Any:
    """Return an array of matrices, which pymdptoolbox makes of sparse ones, as a list."""
    return list(matrices) if isinstance(matrices, np.ndarray) and matrices.dtype == object else matrices


def _mean_reward(reward: Any, transitions: Any, num_states: int, num_actions: int) -> Array:
    """Return the reward of each pair; that of transitions is averaged."""
    by_state = (num_states, num_states)
    if isinstance(reward, Sequence) and any(sp.issparse(matrix) for matrix in reward):
        if [np.shape(matrix) for matrix in reward] != num_actions * [by_state]:
            raise ValueError(f"reward must hold one matrix of shape {by_state} for each of the {num_actions} actions")
        parts = [sp.csr_array(R).multiply(p).sum(axis=1) for R, p in zip(reward, transitions, strict=True)]
        return np.stack([np.ravel(part) for part in parts], axis=1).ravel()
    table = floats("reward", reward.toarray() if sp.issparse(reward) else reward)
    shapes = (num_states,), (num_states, num_actions), (num_actions, *by_state)
    if table.shape not in shapes:
        raise ValueError(f"reward has shape {table.shape}; give one of the shapes {', '.join(map(str, shapes))}")
    return read_cost_table("reward", table, transitions, num_states, num_actions)


def _negated(reward: Array) -> Array:
    return 0.0 - reward  # and not -reward, which makes -0.0 of 0.0
