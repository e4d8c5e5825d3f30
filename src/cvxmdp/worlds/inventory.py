"""The inventory: how much of one product to order when demand is uncertain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Indices
from cvxmdp.names import Formed
from cvxmdp.worlds.arguments import read_count, read_demand, read_number
from cvxmdp.worlds.make import Rows, check_size, make
from cvxmdp.worlds.outcomes import transitions_of


def inventory(
    capacity: int = 100,
    *,
    discount: float = 0.99,
    demand: float | Sequence[float] = 8.0,
    lot: int | None = None,
    fixed_cost: float = 16.0,
    unit_cost: float = 1.0,
    holding_cost: float = 0.1,
    comm: Any = None,
) -> MDP:
    """Return the inventory: one product, ordered in lots, with uncertain demand and lost sales.

    In each period an order of ``k`` lots is placed and arrives at once; an order that does not fit is not offered.
    Then the demand comes. What is in stock is sold, and demand beyond the stock is lost. The process begins with
    nothing in stock.

    The costs are ``"order"``, the fixed cost of an order that is not zero plus the cost of its units;
    ``"holding"``, the holding cost times the expected stock at the end of the period; ``"shortage"``, the expected
    number of lost units; and ``"cost"``, the sum of order and holding.

    Parameters
    ----------
    capacity : int
        The largest stock, at least 1. There are ``capacity + 1`` states.
    discount : float
        Between 0 and 1, both excluded.
    demand : float or sequence of float
        Mean of a Poisson demand, without counts that are less likely than one in a million; or the probabilities
        of a demand of 0, 1, 2, ... units.
    lot : int, optional
        Number of units in a lot. A tenth of the capacity when not given, but at least 1.
    fixed_cost, unit_cost, holding_cost : float
        Cost of placing an order, of each unit in it, and of each unit that is left at the end of a period.
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which makes its own states: see :func:`cvxmdp.scatter`.

    Returns
    -------
    MDP
        The model. State ``"stock 7"`` has 7 units, and action ``"order 20"`` orders 20 units.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.inventory(capacity=20, demand=2.0, lot=5)
    >>> mdp
    MDP(21 states, 55 pairs, costs: order, holding, shortage, cost, discount 0.99)
    >>> mdp.actions
    ('order 0', 'order 5', 'order 10', 'order 15', 'order 20')
    >>> solution = cm.Problem(mdp, "cost", [cm.Budget("shortage", at_most=0.1)]).solve()
    >>> print(f"{solution.value:.3f}")
    4.505
    """
    capacity = read_count("capacity", capacity)
    chances = read_demand("demand", demand)
    lot = max(1, capacity // 10) if lot is None else read_count("lot", lot)
    fixed_cost, unit_cost = read_number("fixed_cost", fixed_cost), read_number("unit_cost", unit_cost)
    holding_cost = read_number("holding_cost", holding_cost)
    num_states = check_size("capacity", capacity + 1)
    amounts = np.arange(0, capacity + 1, lot)
    possible = np.flatnonzero(chances)

    def rows(states: Indices) -> Rows:
        own, action = np.nonzero(states[:, None] + amounts <= capacity)
        # What happens next depends on the stock after the order alone, so each row is made once for each level.
        levels, level = np.unique(states[own] + amounts[action], return_inverse=True)
        after = transitions_of(((chances[d], np.maximum(levels - d, 0)) for d in possible), levels.size, num_states)
        lost = sum(chances[d] * np.maximum(d - levels, 0) for d in possible)
        left = after @ np.arange(num_states)
        order = fixed_cost * (action > 0) + unit_cost * amounts[action]
        holding = holding_cost * left[level]
        costs = {"order": order, "holding": holding, "shortage": lost[level], "cost": order + holding}
        return Rows(states[own], action, after[level], costs)

    return make(
        rows,
        Formed("stock {}", num_states, lambda stock: (stock,)),
        comm,
        discount=discount,
        start=0,
        actions=[f"order {units}" for units in amounts],
    )
