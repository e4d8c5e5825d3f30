"""The queue: how fast to serve when speed costs power."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Indices
from cvxmdp.names import Formed
from cvxmdp.worlds.arguments import read_count, read_ladder, read_number, read_powers
from cvxmdp.worlds.make import Rows, check_size, every, make
from cvxmdp.worlds.outcomes import transitions_of


def queue(
    capacity: int = 500,
    speeds: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8),
    *,
    discount: float = 0.999,
    arrival: float = 0.5,
    powers: Sequence[float] | None = None,
    start: int = 0,
    comm: Any = None,
) -> MDP:
    """Return a queue with one server whose speed is chosen in every period.

    In each period the server finishes the customer it serves, if there is one, with a probability that is its
    speed. Then a customer arrives with probability ``arrival``, and is lost if the queue is full. Nobody is served
    in the period of arrival.

    The costs are ``"power"``, the power of the chosen speed, also when nobody waits; ``"delay"``, the number of
    customers at the beginning of the period, to which the mean time they spend is proportional; and ``"loss"``,
    the probability that a customer is lost.

    Parameters
    ----------
    capacity : int
        The largest number of customers, at least 1. There are ``capacity + 1`` states.
    speeds : sequence of float
        Probabilities of finishing a customer in a period, increasing, each between 0 and 1.
    discount : float
        Between 0 and 1, both excluded.
    arrival : float
        Probability that a customer arrives in a period.
    powers : sequence of float, optional
        Power that each speed draws. The cube of the speed when not given.
    start : int
        Number of customers at the beginning.
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which makes its own states: see :func:`cvxmdp.scatter`.

    Returns
    -------
    MDP
        The model. State ``"queue 3"`` has 3 customers, and action ``"speed 0.4"`` is the server's speed.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.queue(capacity=20)
    >>> mdp
    MDP(21 states, 105 pairs, costs: power, delay, loss, discount 0.999)
    >>> solution = cm.Problem(mdp, "power", [cm.Budget("delay", at_most=5.0)]).solve()
    >>> print(f"{solution.value:.3f}")
    0.136
    """
    capacity = read_count("capacity", capacity)
    speeds = read_ladder("speeds", speeds)
    arrival = read_number("arrival", arrival, 0.0, 1.0)
    power = read_powers("powers", powers, speeds)
    start = read_count("start", start, 0)
    if start > capacity:
        raise ValueError(f"start is {start}; it must be at most the capacity, {capacity}")
    num_states = check_size("capacity", capacity + 1)

    def rows(states: Indices) -> Rows:
        length, action = every(states, len(speeds))
        finish = np.array(speeds)[action]
        fewer = np.maximum(length - 1, 0)  # where nobody is served, finishing changes nothing
        outcomes = [
            (finish * (1 - arrival), fewer),
            (finish * arrival, np.minimum(fewer + 1, capacity)),
            ((1 - finish) * (1 - arrival), length),
            ((1 - finish) * arrival, np.minimum(length + 1, capacity)),
        ]
        costs = {
            "power": power[action],
            "delay": length.astype(np.float64),
            "loss": np.where(length == capacity, (1 - finish) * arrival, 0.0),
        }
        return Rows(length, action, transitions_of(outcomes, length.size, num_states), costs)

    return make(
        rows,
        Formed("queue {}", num_states, lambda length: (length,)),
        comm,
        discount=discount,
        start=start,
        actions=[f"speed {speed:g}" for speed in speeds],
    )
