"""Admission control: whom to let in when servers are few."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np
import numpy.typing as npt

from cvxmdp.mdp import MDP
from cvxmdp.worlds.arguments import read_count, read_number
from cvxmdp.worlds.outcomes import check_size, counts_up_to, moved, one_state, transitions_of

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

CLASSES = ((0.5, 1.0, 4.0), (0.7, 0.5, 1.0))
"""Two classes that together ask for more than the servers can give."""
MOST_CLASSES = 8
"""There is an action for each subset of classes, so more of them would be too many."""


def admission(
    capacity: int = 30, classes: Sequence[tuple[float, float, float]] = CLASSES, *, discount: float = 0.999
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
    check_size("capacity and classes", comb(capacity + kinds, kinds))
    busy = counts_up_to(kinds, capacity)
    subsets = np.arange(2**kinds)
    state, action = np.nonzero((busy.sum(axis=1) < capacity)[:, None] | (subsets == 0))
    arrivals = share * capacity * rate
    fastest = arrivals.sum() + capacity * rate.max()
    rejection, loss = np.zeros(state.size), np.zeros(state.size)
    outcomes: list[tuple[Array, Indices]] = []
    for kind in range(kinds):
        admitted = (action >> kind) & 1 == 1
        arrives, done = arrivals[kind] / fastest, busy[state, kind] * rate[kind] / fastest
        rejection += np.where(admitted, 0.0, price[kind] * arrives)
        loss += np.where(admitted, 0.0, arrives)
        change = np.eye(kinds, dtype=np.int64)[kind]
        outcomes.append((np.where(admitted, arrives, 0.0), moved(busy, change, capacity)[state]))
        outcomes.append((done, moved(busy, -change, capacity)[state]))
    nothing = 1 - sum(chance for chance, _ in outcomes)
    outcomes.append((np.maximum(nothing, 0.0), state))
    return MDP.from_pairs(
        state=state,
        action=action,
        transitions=transitions_of(outcomes, state.size, len(busy)),
        costs={"rejection": rejection, "load": busy.sum(axis=1)[state] / capacity, "loss": loss},
        discount=discount,
        initial=one_state(len(busy), 0),
        states=["busy " + "+".join(map(str, counts)) for counts in busy.tolist()],
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
