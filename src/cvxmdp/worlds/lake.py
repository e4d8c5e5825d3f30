"""The frozen lake: cross the ice, which is slippery and has holes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Indices
from cvxmdp.names import Formed
from cvxmdp.worlds.arguments import read_count, read_number, read_seed
from cvxmdp.worlds.make import Rows, check_size, make
from cvxmdp.worlds.outcomes import transitions_of

MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
"""The moves in a circle, so that the two beside a move are those to its right and to its left."""


def lake(
    size: int = 20,
    *,
    discount: float = 0.99,
    slip: float = 0.2,
    holes: float = 0.1,
    restart: bool = True,
    seed: int = 0,
    comm: Any = None,
) -> MDP:
    """Return a frozen lake: a square of cells that is crossed from one corner to the other.

    The agent starts in the top left cell. It moves to the named neighbour with probability ``1 - slip``, and to
    either side of that direction with probability ``slip / 2`` each; a move off the lake stays. The goal, the
    bottom right cell, is never left. A hole leads back to the start, or without ``restart`` is never left. No hole
    lies on a path of steps down and to the right, drawn at random, so that the goal can be reached.

    The costs are ``"time"``, 1 except in the goal, and ``"hole"``, 1 in a hole and 0 elsewhere. The labels
    are ``"hole"`` and ``"goal"``.

    Parameters
    ----------
    size : int
        Number of rows and of columns, at least 2.
    discount : float
        Between 0 and 1, both excluded.
    slip : float
        Probability of gliding to a side, at least 0 and at most 1. With 2/3 the ice is as slippery as that of the
        FrozenLake of Gymnasium.
    holes : float
        Share of the cells that are holes, at least 0 and below 1.
    restart : bool
        Whether a hole leads back to the start. If not, the agent stays in it and time goes on.
    seed : int
        Seed of the holes. The same arguments give the same lake.
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which makes its own states: see :func:`cvxmdp.scatter`.

    Returns
    -------
    MDP
        The model. State ``"r3c7"`` is row 3, column 7, and the states go along the rows. On the ice the actions are
        up, right, down and left, in the goal ``"stay"``, and in a hole ``"stay"`` or ``"restart"``.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.lake(size=8)
    >>> mdp
    MDP(64 states, 235 pairs, costs: time, hole, discount 0.99)
    >>> [mdp.states[s] for s in mdp.state[mdp.costs["hole"] > 0]]
    ['r0c2', 'r2c4', 'r3c5', 'r5c5', 'r5c6', 'r6c0']
    """
    size = read_count("size", size, 2, "so that start and goal differ")
    slip = read_number("slip", slip, 0.0, 1.0)
    share = read_number("holes", holes, 0.0, 1.0, most_out=True)
    num_states = check_size("size", size * size)
    hole = np.zeros(num_states, dtype=bool)
    hole[_holes(size, share, read_seed(seed))] = True
    names = [*MOVES, "stay"] + (["restart"] if restart else [])

    def rows(states: Indices) -> Rows:
        goal = states == num_states - 1
        offered = np.zeros((states.size, len(names)), dtype=bool)
        offered[~(hole[states] | goal), : len(MOVES)] = True
        offered[goal, names.index("stay")] = True
        offered[hole[states], -1] = True
        own, action = np.nonzero(offered)
        state = states[own]
        costs = {"time": (~goal)[own].astype(np.float64), "hole": hole[state].astype(np.float64)}
        return Rows(state, action, _transitions(size, slip, state, action, 0 if restart else None), costs)

    return make(
        rows,
        Formed("r{}c{}", num_states, lambda state: np.divmod(state, size)),
        comm,
        discount=discount,
        start=0,
        actions=names,
        labels={"hole": np.flatnonzero(hole), "goal": [num_states - 1]},
    )


def _transitions(size: int, slip: float, state: Indices, action: Indices, back: int | None) -> Any:
    row, column = np.divmod(state, size)
    moves = np.array(list(MOVES.values()))
    ends = action >= len(moves)
    last = np.where(action == len(moves), state, 0 if back is None else back)
    outcomes = []
    for turn, chance in ((0, 1 - slip), (1, slip / 2), (-1, slip / 2)):
        down, right = moves[(action + turn) % len(moves)].T
        target = np.clip(row + down, 0, size - 1) * size + np.clip(column + right, 0, size - 1)
        outcomes.append((np.where(ends, 1.0 if turn == 0 else 0.0, chance), np.where(ends, last, target)))
    return transitions_of(outcomes, state.size, size * size)


def _holes(size: int, share: float, rng: np.random.Generator) -> Indices:
    """Draw a path from the start to the goal, then the holes among all other cells."""
    down = rng.permutation(np.repeat([1, 0], size - 1))
    path = np.concatenate([[0], np.cumsum(np.where(down == 1, size, 1))])
    count, free = round(share * size * size), size * size - path.size
    if count > free:
        raise ValueError(f"holes is {share:g}, which is {count} cells; at most {free} lie beside a path to the goal")
    drawn = rng.choice(free, size=count, replace=False)
    return drawn + np.searchsorted(path - np.arange(path.size), drawn, side="right")
