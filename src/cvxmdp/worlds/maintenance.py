"""Maintenance: which of several machines to repair before they fail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations, product
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.mdp import MDP
from cvxmdp.worlds.arguments import read_count, read_number, read_numbers
from cvxmdp.worlds.outcomes import check_size, one_state, settled, transitions_of


def maintenance(
    machines: int = 3,
    conditions: int = 4,
    *,
    discount: float = 0.99,
    wear: float | Sequence[float] = 0.1,
    crew: int = 1,
    repair_cost: float = 1.0,
    failure_cost: float = 4.0,
    downtime_cost: float = 3.0,
) -> MDP:
    """Return machines that wear independently, and a crew that repairs some of them.

    A machine is in one of several conditions: 0 is new, and the last one is failed. In each period a machine that
    is not repaired wears by one condition with probability ``wear``; one that has failed stays so. A machine that
    is repaired is new in the next period. The crew can repair any ``crew`` machines in a period, or fewer, but no
    new ones. The process begins with all machines new.

    The costs are ``"repair"``, the cost of each repair plus that of a failure where the machine had failed;
    ``"downtime"``, the number of machines that have failed or are in repair; and ``"cost"``, the repair plus the
    downtime at its cost.

    Parameters
    ----------
    machines, conditions : int
        Number of machines, at least 1, and of conditions of each, at least 2. There are ``conditions ** machines``
        states, and a pair reaches up to ``2 ** machines`` of them.
    discount : float
        Between 0 and 1, both excluded.
    wear : float or sequence of float
        Probability of wearing by one condition in a period, for all machines or for each.
    crew : int
        Number of machines that can be repaired at the same time, from 1 to ``machines``.
    repair_cost, failure_cost, downtime_cost : float
        Cost of a repair, what is added when the machine had failed, and the cost of a machine that is down for a
        period.

    Returns
    -------
    MDP
        The model. State ``"conditions 0+3"`` has a new machine and one in condition 3. The actions are ``"wait"``,
        ``"repair 1"``, ``"repair 2"`` and so on, and with a larger crew also ``"repair 1+2"``.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.maintenance(machines=2, conditions=3)
    >>> mdp
    MDP(9 states, 21 pairs, costs: repair, downtime, cost, discount 0.99)
    >>> mdp.states[5], mdp.actions
    ('conditions 1+2', ('wait', 'repair 1', 'repair 2'))
    """
    machines = read_count("machines", machines)
    conditions = read_count("conditions", conditions, 2, "so that new and failed differ")
    crew = read_count("crew", crew)
    if crew > machines:
        raise ValueError(f"crew is {crew}; it must be at most the number of machines, {machines}")
    chances = _wear(wear, machines)
    repair_cost = read_number("repair_cost", repair_cost)
    failure_cost = read_number("failure_cost", failure_cost)
    downtime_cost = read_number("downtime_cost", downtime_cost)

    num_states = conditions**machines
    check_size("machines and conditions", num_states)
    worn = np.indices((conditions,) * machines).reshape(machines, num_states).T
    choices = [choice for size in range(crew + 1) for choice in combinations(range(machines), size)]
    chosen = np.array([[machine in choice for machine in range(machines)] for choice in choices])
    # A choice is offered where none of its machines is new.
    state, action = np.nonzero(~np.any(chosen & (worn == 0)[:, None, :], axis=2))
    ages = [_aging(chance, conditions) for chance in chances]
    renewed = transitions_of([(1.0, 0)], conditions, conditions)
    blocks = []
    for choice in choices:
        parts = [renewed if machine in choice else ages[machine] for machine in range(machines)]
        blocks.append(reduce(lambda left, right: sp.kron(left, right, format="csr"), parts))
    transitions = sp.csr_array(sp.vstack(blocks, format="csr"))[action * num_states + state]
    transitions.sum_duplicates()

    failed = worn == conditions - 1
    in_repair = chosen[action]
    repair = repair_cost * in_repair.sum(axis=1) + failure_cost * (in_repair & failed[state]).sum(axis=1)
    downtime = (in_repair | failed[state]).sum(axis=1).astype(np.float64)
    return MDP.from_pairs(
        state=state,
        action=action,
        transitions=settled(transitions),
        costs={"repair": repair, "downtime": downtime, "cost": repair + downtime_cost * downtime},
        discount=discount,
        initial=one_state(num_states, 0),
        states=["conditions " + "+".join(row) for row in product(map(str, range(conditions)), repeat=machines)],
        actions=["repair " + "+".join(str(m + 1) for m in choice) if choice else "wait" for choice in choices],
    )


def _aging(chance: float, conditions: int) -> Any:
    condition = np.arange(conditions)
    worse = np.minimum(condition + 1, conditions - 1)
    return transitions_of([(1 - chance, condition), (chance, worse)], conditions, conditions)


def _wear(wear: float | Sequence[float], machines: int) -> tuple[float, ...]:
    if np.ndim(wear) == 0:
        return (read_number("wear", wear, 0.0, 1.0),) * machines  # type: ignore[arg-type]
    chances = read_numbers("wear", wear, 0.0, 1.0)  # type: ignore[arg-type]
    if len(chances) != machines:
        raise ValueError(f"wear has {len(chances)} entries; give one number, or one for each of {machines} machines")
    return chances
