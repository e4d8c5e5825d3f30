"""The disk drive: when to let it sleep, and how deeply."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Indices
from cvxmdp.worlds.make import Rows, every, make
from cvxmdp.worlds.outcomes import transitions_of

DRIVE = (
    ("active", 2.5),
    ("idle", 1.5),
    ("going to low power", 2.5),
    ("low power", 0.8),
    ("leaving low power", 2.5),
    ("going to standby", 2.5),
    ("standby", 0.3),
    ("leaving standby", 2.5),
    ("going to sleep", 2.5),
    ("sleep", 0.1),
    ("leaving sleep", 2.5),
)
"""The states of the drive and the power in watts that each draws."""

UNDER_WAY = {
    "going to low power": ("low power", 0.25),
    "leaving low power": ("active", 0.25),
    "going to standby": ("standby", 0.005),
    "leaving standby": ("active", 0.005),
    "going to sleep": ("sleep", 0.0017),
    "leaving sleep": ("active", 0.0017),
}
"""Where a change under way ends, and the probability that it ends in a period. No command alters it."""

COMMANDS = {
    "go active": {"idle": "active", "low power": "leaving low power", "standby": "leaving standby",
                  "sleep": "leaving sleep"},
    "go idle": {"active": "idle"},
    "go low power": dict.fromkeys(("active", "idle"), "going to low power"),
    "go standby": dict.fromkeys(("active", "idle", "low power"), "going to standby"),
    "go sleep": dict.fromkeys(("active", "idle", "low power", "standby"), "going to sleep"),
}  # fmt: skip
"""What a command does in the states it changes; in the others it does nothing."""

REQUEST_AFTER_NONE, REQUEST_AFTER_ONE = 0.102, 0.546
"""Probability of a request in the next period, by whether there is one in this period."""

LONGEST = 2
"""The largest number of requests that wait."""


def disk_drive(*, discount: float = 0.9999, comm: Any = None) -> MDP:
    """Return the power management of a disk drive, a model measured on a drive of IBM.

    A drive that is not needed can be idle, at low power, in standby or asleep. The deeper it rests, the less power
    it draws and the longer it takes to be active again; changes draw the full power. Requests come in bursts. In
    each period the manager commands one of five states. In a period with a request one
    more waits, unless the drive is active; in a period without, an active drive serves one that waits. At most two
    wait, and a request beyond them is lost. At the beginning the drive sleeps and nothing waits.

    The costs are ``"power"`` in watts, ``"queue"``, the number of requests that wait, and ``"loss"``, 1 where a
    request is lost.

    Parameters
    ----------
    discount : float
        Between 0 and 1, both excluded. Waking from sleep takes about 600 periods, so the discount has to be near 1
        for it to pay.
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which makes its own states: see :func:`cvxmdp.scatter`.

    Returns
    -------
    MDP
        The model of 66 states and 5 commands, with states such as ``"sleep, no request, 0 waiting"``.

    Notes
    -----
    The model is that of Benini, Bogliolo, Paleologo and De Micheli, "Policy optimization for dynamic power
    management", IEEE Transactions on Computer-Aided Design 18(6), 1999, with the numbers with which the model
    checkers PRISM and Storm publish it. There a command and the move that follows are two steps; here they are one.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.disk_drive()
    >>> mdp
    MDP(66 states, 330 pairs, costs: power, queue, loss, discount 0.9999)
    >>> solution = cm.Problem(mdp, "power", [cm.Budget("queue", at_most=0.5)]).solve()
    >>> print(f"{solution.value:.4f}")
    1.5219
    """
    drives = [name for name, _ in DRIVE]
    shape = (len(drives), 2, LONGEST + 1)

    # The drive has two outcomes, of which a command needs one; times two of the requests.
    after = np.empty((2, len(drives), len(COMMANDS)), dtype=np.int64)
    chance = np.zeros((2, len(drives), len(COMMANDS)))
    for d, name in enumerate(drives):
        after[:, d], chance[0, d] = d, 1.0
        if name in UNDER_WAY:
            end, soon = UNDER_WAY[name]
            after[1, d], chance[0, d], chance[1, d] = drives.index(end), 1 - soon, soon
            continue
        for a, change in enumerate(COMMANDS.values()):
            after[0, d, a] = drives.index(change.get(name, name))

    states = tuple(
        f"{name}, {'a' if asked else 'no'} request, {count} waiting"
        for name, asked, count in product(drives, (0, 1), range(LONGEST + 1))
    )

    def rows(some: Indices) -> Rows:
        state, action = every(some, len(COMMANDS))
        drive, request, waiting = np.unravel_index(state, shape)
        active = drive == drives.index("active")
        served = np.maximum(waiting - (active & (request == 0)), 0)
        then_waiting = np.where(~active & (request == 1), np.minimum(waiting + 1, LONGEST), served)
        comes = np.where(request == 1, REQUEST_AFTER_ONE, REQUEST_AFTER_NONE)
        outcomes = []
        for k, then_request in product((0, 1), repeat=2):
            then = (after[k, drive, action], np.full_like(drive, then_request), then_waiting)
            then_comes = comes if then_request else 1 - comes
            outcomes.append((chance[k, drive, action] * then_comes, np.ravel_multi_index(then, shape)))
        costs = {
            "power": np.array([watts for _, watts in DRIVE])[drive],
            "queue": waiting.astype(np.float64),
            "loss": (~active & (request == 1) & (waiting == LONGEST)).astype(np.float64),
        }
        return Rows(state, action, transitions_of(outcomes, state.size, len(states)), costs)

    return make(
        rows,
        states,
        comm,
        discount=discount,
        start=states.index("sleep, no request, 0 waiting"),
        actions=list(COMMANDS),
    )
