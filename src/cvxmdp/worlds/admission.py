"""Admission control: whom to let in when servers are few."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from cvxmdp.mdp import MDP
from cvxmdp.names import Formed
from cvxmdp.worlds.arguments import read_count, read_number
from cvxmdp.worlds.make import Rows, check_size, make
from cvxmdp.worlds.outcomes import Counts, transitions_of

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

CLASSES = ((0.5, 1.0, 4.0), (0.7, 0.5, 1.0))
"""Two classes that together ask for more than the servers can give."""
MOST_CLASSES = 8
"""There is an action for each subset of classes, so more of them would be too many."""


def admission(
    capacity: int = 30,
    classes: Sequence[tuple[float, float, float]] = CLASSES,
    *,
    discount: float = 0.999,
    comm: Any = None,
) -> MDP:
    """Return a group of servers to which customers of several classes are admitted or not.

    Each customer who is admitted takes one server until it is finished, and nobody waits. At the beginning of each
    period it is decided which classes are admitted; when all servers are busy, none can be. A period is so short
    that at most one thing happens: a customer of some class arrives, or one is finished. The probabilities are the
    rates divided by the largest that their sum can be. The process begins with all servers free.

    The costs are ``"rejection"``, the expected price of a customer who is turned away; ``"load"``, the share of the
    servers that are busy; and ``"loss"``, the probability that a customer is turned away.

    Parameters
    ----------
    capacity : int
        Number of servers, at least 1. With ``k`` classes there are ``comb(capacity + k, k)`` states.
    classes : sequence of (share, rate, price)
        For each class of customers: the share of all servers that would be busy on average if everybody of this
        class and nobody else were admitted to infinitely many; the rate at which a server finishes such a customer;
        and the price of turning one away. They arrive at a rate of ``share * capacity * rate``.
    discount : float
        Between 0 and 1, both excluded.
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which makes its own states: see :func:`cvxmdp.scatter`.

    Returns
    -------
    MDP
        The model. State ``"busy 3+5"`` has 3 customers of the first class and 5 of the second. Action
        ``"admit 1+2"`` admits both classes, and ``"admit none"`` is the only one when all servers are busy.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.admission(capacity=10)
    >>> mdp
    MDP(66 states, 231 pairs, costs: rejection, load, loss, discount 0.999)
    >>> mdp.actions
    ('admit none', 'admit 1', 'admit 2', 'admit 1+2')
    """
    capacity = read_count("capacity", capacity)
    share, rate, price = _classes(classes)
    kinds = share.size
    num_states = check_size("capacity and classes", comb(capacity + kinds, kinds))
    counts = Counts(kinds, capacity)
    subsets = np.arange(2**kinds)
    arrivals = share * capacity * rate
    fastest = arrivals.sum() + capacity * rate.max()

    def rows(states: Indices) -> Rows:
        busy = counts.lists(states)
        own, action = np.nonzero((busy.sum(axis=1) < capacity)[:, None] | (subsets == 0))
        rejection, loss = np.zeros(own.size), np.zeros(own.size)
        outcomes: list[tuple[Array, Indices]] = []
        for kind in range(kinds):
            admitted = (action >> kind) & 1 == 1
            arrives, done = arrivals[kind] / fastest, busy[own, kind] * rate[kind] / fastest
            rejection += np.where(admitted, 0.0, price[kind] * arrives)
            loss += np.where(admitted, 0.0, arrives)
            change = np.eye(kinds, dtype=np.int64)[kind]
            outcomes.append((np.where(admitted, arrives, 0.0), counts.moved(busy, change)[own]))
            outcomes.append((done, counts.moved(busy, -change)[own]))
        nothing = 1 - sum(chance for chance, _ in outcomes)
        outcomes.append((np.maximum(nothing, 0.0), states[own]))
        costs = {"rejection": rejection, "load": busy.sum(axis=1)[own] / capacity, "loss": loss}
        return Rows(states[own], action, transitions_of(outcomes, own.size, num_states), costs)

    return make(
        rows,
        Formed("busy " + "+".join(["{}"] * kinds), num_states, lambda state: counts.lists(state).T),
        comm,
        discount=discount,
        start=0,
        actions=["admit " + ("+".join(str(k + 1) for k in range(kinds) if a >> k & 1) or "none") for a in subsets],
    )


def _classes(classes: Sequence[tuple[float, float, float]]) -> tuple[Array, Array, Array]:
    try:
        rows = [tuple(row) for row in classes]
    except TypeError:
        raise ValueError(f"classes must be a list of (share, rate, price), not {classes!r}") from None
    if not 1 <= len(rows) <= MOST_CLASSES:
        raise ValueError(f"classes has {len(rows)} entries; give between 1 and {MOST_CLASSES}")
    for k, row in enumerate(rows):
        if len(row) != 3:
            raise ValueError(f"classes[{k}] has {len(row)} entries; give (share, rate, price)")
        read_number(f"the share in classes[{k}]", row[0])
        read_number(f"the rate in classes[{k}]", row[1], least_out=True)
        read_number(f"the price in classes[{k}]", row[2])
    share, rate, price = np.array(rows, dtype=np.float64).T
    return share, rate, price
