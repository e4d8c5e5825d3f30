"""Maintenance: which of several machines to repair before they fail."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.names import Formed
from cvxmdp.worlds.arguments import read_count, read_number, read_numbers
from cvxmdp.worlds.make import CHUNK, Rows, check_size, make
from cvxmdp.worlds.outcomes import transitions_of


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
    comm: Any = None,
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
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which makes its own states: see :func:`cvxmdp.scatter`.

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
    num_states = check_size("machines and conditions", conditions**machines)
    shape = (conditions,) * machines
    choices = [choice for size in range(crew + 1) for choice in combinations(range(machines), size)]
    chosen = np.array([[machine in choice for machine in range(machines)] for choice in choices])

    def rows(states: Indices) -> Rows:
        worn = np.column_stack(np.unravel_index(states, shape))
        # A choice is offered where none of its machines is new.
        own, action = np.nonzero(~np.any(chosen & (worn == 0)[:, None, :], axis=2))
        in_repair, failed = chosen[action], worn[own] == conditions - 1
        # A machine stays as it is, new where it is in repair, or it wears; but not where it is in repair or has failed.
        same = np.where(in_repair, 0, worn[own])
        then = np.stack([same, np.minimum(same + 1, conditions - 1)], axis=2)
        stays = np.where(in_repair, 1.0, np.where(failed, (1 - chances) + chances, 1 - chances))
        likely = np.stack([stays, np.where(in_repair | failed, 0.0, chances)], axis=2)
        chance, target = np.ones((own.size, 1)), np.zeros((own.size, 1), dtype=np.int64)
        for machine in range(machines):  # doubles what can happen
            pairs = own.size, 2 << machine
            chance = (chance[:, :, None] * likely[:, machine, None]).reshape(pairs)
            target = (target[:, :, None] * conditions + then[:, machine, None]).reshape(pairs)
        repair = repair_cost * in_repair.sum(axis=1) + failure_cost * (in_repair & failed).sum(axis=1)
        downtime = (in_repair | failed).sum(axis=1).astype(np.float64)
        costs = {"repair": repair, "downtime": downtime, "cost": repair + downtime_cost * downtime}
        outcomes = zip(chance.T, target.T, strict=True)
        return Rows(states[own], action, transitions_of(outcomes, own.size, num_states), costs)

    return make(
        rows,
        Formed("conditions " + "+".join(["{}"] * machines), num_states, lambda s: np.unravel_index(s, shape)),
        comm,
        discount=discount,
        start=0,
        actions=["repair " + "+".join(str(m + 1) for m in choice) if choice else "wait" for choice in choices],
        at_a_time=max(1, (CHUNK << 4) >> machines),
    )


def _wear(wear: float | Sequence[float], machines: int) -> Array:
    if np.ndim(wear) == 0:
        return np.full(machines, read_number("wear", wear, 0.0, 1.0))  # type: ignore[arg-type]
    chances = read_numbers("wear", wear, 0.0, 1.0)  # type: ignore[arg-type]
    if len(chances) != machines:
        raise ValueError(f"wear has {len(chances)} entries; give one number, or one for each of {machines} machines")
    return np.array(chances)
