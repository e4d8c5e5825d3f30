"""The perishable inventory: stock that has to be sold before it expires."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Indices
from cvxmdp.names import Formed
from cvxmdp.worlds.arguments import read_count, read_demand, read_number
from cvxmdp.worlds.make import Rows, check_size, make
from cvxmdp.worlds.outcomes import Counts, transitions_of


def perishable(
    shelf_life: int = 3,
    capacity: int = 6,
    *,
    discount: float = 0.99,
    demand: float | Sequence[float] | None = None,
    lot: int | None = None,
    fixed_cost: float = 1.0,
    unit_cost: float = 1.0,
    disposal_cost: float = 1.0,
    comm: Any = None,
) -> MDP:
    """Return the inventory of a product that expires, such as blood or bread.

    The stock is known by age. In each period fresh units are ordered in lots and arrive at once; an order that does
    not fit is not offered. Then the demand comes and takes the oldest units first; demand beyond the stock is lost.
    At the end of the period the units that had one period left are thrown away, and the others age by one. Fresh
    units can be sold in ``shelf_life`` periods, the one they arrive in included. The process begins with nothing
    in stock.

    The costs are ``"order"``, the fixed cost of an order that is not zero plus the cost of its units; ``"waste"``,
    the expected number of units thrown away; ``"shortage"``, the expected number of lost units; and ``"cost"``,
    the order plus the disposal cost of what is thrown away.

    Parameters
    ----------
    shelf_life : int
        Number of periods in which a unit can be sold, at least 2.
    capacity : int
        The largest stock, at least 1. There are ``comb(capacity + shelf_life - 1, capacity)`` states.
    discount : float
        Between 0 and 1, both excluded.
    demand : float or sequence of float, optional
        Mean of a Poisson demand, without counts that are less likely than one in a million; or the probabilities
        of a demand of 0, 1, 2, ... units. The mean ``capacity / shelf_life`` when not given, with which a full
        stock lasts as long as it keeps.
    lot : int, optional
        Number of units in a lot. A tenth of the capacity when not given, but at least 1.
    fixed_cost, unit_cost, disposal_cost : float
        Cost of placing an order, of each unit in it, and of each unit that is thrown away.
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which makes its own states: see :func:`cvxmdp.scatter`.

    Returns
    -------
    MDP
        The model. State ``"stock 2+0"`` has 2 units with one period left and none with two, and action
        ``"order 3"`` orders 3 units.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.perishable()
    >>> mdp
    MDP(28 states, 84 pairs, costs: order, waste, shortage, cost, discount 0.99)
    >>> mdp.states[:3]
    ('stock 0+0', 'stock 0+1', 'stock 0+2')
    """
    shelf_life = read_count("shelf_life", shelf_life, 2, "for what expires at once see a shorter period")
    capacity = read_count("capacity", capacity)
    chances = read_demand("demand", capacity / shelf_life if demand is None else demand)
    lot = max(1, capacity // 10) if lot is None else read_count("lot", lot)
    fixed_cost, unit_cost = read_number("fixed_cost", fixed_cost), read_number("unit_cost", unit_cost)
    disposal_cost = read_number("disposal_cost", disposal_cost)
    num_states = check_size("shelf_life and capacity", comb(capacity + shelf_life - 1, capacity))
    stocks = Counts(shelf_life - 1, capacity)
    amounts = np.arange(0, capacity + 1, lot)

    def rows(states: Indices) -> Rows:
        stock = stocks.lists(states)
        own, action = np.nonzero(stock.sum(axis=1)[:, None] + amounts <= capacity)
        units = np.column_stack([stock[own], amounts[action]])
        up_to_age = units.cumsum(axis=1)
        waste, shortage = np.zeros(own.size), np.zeros(own.size)
        outcomes = []
        for d in np.flatnonzero(chances):
            left = np.clip(up_to_age - d, 0, units)  # the oldest are in the first column and go first
            waste += chances[d] * left[:, 0]
            shortage += chances[d] * np.maximum(d - up_to_age[:, -1], 0)
            outcomes.append((chances[d], stocks.numbers(left[:, 1:])))
        order = fixed_cost * (action > 0) + unit_cost * amounts[action]
        costs = {"order": order, "waste": waste, "shortage": shortage, "cost": order + disposal_cost * waste}
        return Rows(states[own], action, transitions_of(outcomes, own.size, num_states), costs)

    return make(
        rows,
        Formed("stock " + "+".join(["{}"] * (shelf_life - 1)), num_states, lambda s: stocks.lists(s).T),
        comm,
        discount=discount,
        start=0,
        actions=[f"order {count}" for count in amounts],
    )
