"""The tandem: two queues in a row, each with a server whose speed is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Indices
from cvxmdp.names import Formed
from cvxmdp.worlds.arguments import read_count, read_ladder, read_number, read_powers
from cvxmdp.worlds.make import Rows, check_size, every, make
from cvxmdp.worlds.outcomes import transitions_of


def tandem(
    size: int = 30,
    speeds: Sequence[float] = (0.2, 0.5, 0.8),
    *,
    discount: float = 0.99,
    arrival: float = 0.4,
    powers: Sequence[float] | None = None,
    comm: Any = None,
) -> MDP:
    """Return two queues in a row: who is finished at the first goes to the second.

    In each period three things happen, one after the other. The second server finishes a customer, who leaves. The
    first server finishes a customer, who joins the second queue, or is lost if that is full. A customer arrives at
    the first queue, or is lost if that is full. A server that has a customer at the beginning of the period
    finishes with a probability that is its speed. The process begins with both queues empty.

    The costs are ``"delay"``, the number of customers at the beginning of the period; ``"power"``, the sum of the
    powers of both speeds, also when nobody waits; and ``"loss"``, the expected number of customers lost.

    Parameters
    ----------
    size : int
        Number of lengths of each queue, at least 2: from 0 to ``size - 1`` customers. There are ``size ** 2``
        states.
    speeds : sequence of float
        Probabilities of finishing a customer in a period, increasing, each between 0 and 1. There is an action
        for each pair of them.
    discount : float
        Between 0 and 1, both excluded.
    arrival : float
        Probability that a customer arrives in a period.
    powers : sequence of float, optional
        Power that each speed draws. The cube of the speed when not given.
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which makes its own states: see :func:`cvxmdp.scatter`.

    Returns
    -------
    MDP
        The model. State ``"queues 3+5"`` has 3 customers in the first queue and 5 in the second, and action
        ``"speeds 0.2+0.8"`` has the speeds of both servers.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.tandem(size=10)
    >>> mdp
    MDP(100 states, 900 pairs, costs: delay, power, loss, discount 0.99)
    >>> mdp.actions[:3]
    ('speeds 0.2+0.2', 'speeds 0.2+0.5', 'speeds 0.2+0.8')
    """
    size = read_count("size", size, 2, "so that a queue can hold a customer")
    speeds = read_ladder("speeds", speeds)
    arrival = read_number("arrival", arrival, 0.0, 1.0)
    power = read_powers("powers", powers, speeds)
    num_states = check_size("size", size * size)

    def rows(states: Indices) -> Rows:
        state, action = every(states, len(speeds) ** 2)
        (first, second), (first_speed, second_speed) = np.divmod(state, size), np.divmod(action, len(speeds))
        first_done = np.where(first > 0, np.array(speeds)[first_speed], 0.0)
        second_done = np.where(second > 0, np.array(speeds)[second_speed], 0.0)
        outcomes = []
        loss = np.zeros(state.size)
        for leaves, moves, arrives in product((0, 1), repeat=3):
            chance = np.abs(1 - leaves - second_done) * np.abs(1 - moves - first_done) * abs(1 - arrives - arrival)
            # An event that is impossible keeps a probability of 0 and a length of at least 0.
            after_second = np.maximum(second - leaves, 0) + moves
            after_first = np.maximum(first - moves, 0) + arrives
            loss += chance * ((after_second == size).astype(np.float64) + (after_first == size))
            target = np.minimum(after_first, size - 1) * size + np.minimum(after_second, size - 1)
            outcomes.append((chance, target))
        costs = {
            "delay": (first + second).astype(np.float64),
            "power": power[first_speed] + power[second_speed],
            "loss": loss,
        }
        return Rows(state, action, transitions_of(outcomes, state.size, num_states), costs)

    return make(
        rows,
        Formed("queues {}+{}", num_states, lambda state: np.divmod(state, size)),
        comm,
        discount=discount,
        start=0,
        actions=[f"speeds {one:g}+{other:g}" for one, other in product(speeds, repeat=2)],
    )
