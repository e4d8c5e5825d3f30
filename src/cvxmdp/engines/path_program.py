"""A problem as path following sees it: what is kept of the model, its parts, and where the method begins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.barriers import Barrier, Part, View
from cvxmdp.dynamics.base import indicator
from cvxmdp.dynamics.normal import Pattern, reached_states
from cvxmdp.engines.base import Task
from cvxmdp.engines.presolve import policy_iteration
from cvxmdp.mdp import MDP, Array, Indices

Mask = npt.NDArray[np.bool_]

SOFT = (0.5, 0.1)
"""Shares of the even policy in the policies near the best one, whose visits weigh the states."""
MOST_LEADS, LEAD_ROUNDS = 3, 10
"""How often policies are added that lead towards limits far away, and how many rounds each may take to find."""
MOST_RAISE = 1e3
"""Rare states weigh as the root of their visits, but no more than this many times as much as these: limits may ask for
more visits than the first policies make."""
EVEN_START = 1e-12
"""Share of an even initial distribution that is mixed in, relative to what limits can notice, so that no state is
visited less often by orders of magnitude than need be."""
LEAST_NOTICE = 1e-12
"""Visits that the cost can notice, relative to its largest entry, are at least this many."""


class Program:
    """A problem as the method sees it: pairs that may be taken in states that are reached, in units of the cost."""

    def __init__(
        self, task: Task, view: View, pattern: Pattern, unit: float, q: Array, chance: float, noticed: float
    ) -> None:
        self.task, self.view, self.pattern, self.unit, self.q = task, view, pattern, unit, q
        self.chance, self.noticed = chance, noticed
        self.c: Array = view.take(task.c) / unit
        self.parts: list[Part] = []
        self.of_member: list[Barrier] = []

    @classmethod
    def of(cls, task: Task) -> Program | None:
        """State a problem; None where a set or term has no barrier, or where what is forbidden cannot be avoided."""
        mdp, members = task.mdp, task.blocks.members
        allowed = np.ones(mdp.num_pairs, dtype=bool)
        for member in members:
            if (forbidden := member.forbidden()) is not None:
                allowed &= ~forbidden
        whole = task.dynamics.pattern if np.all(allowed) else None
        found = (np.arange(mdp.num_pairs), np.arange(mdp.num_states), 1.0) if whole else _reached(mdp, allowed)
        if found is None:
            return None
        kept, states, chance = found
        noticed = _noticed(task)
        inflow, d = _start(task, kept, states, EVEN_START * noticed)
        if not np.all(d > 0):
            return None
        owner = np.searchsorted(states, mdp.state[kept])
        pattern = whole or Pattern.of(mdp.transitions[kept][:, states], owner, states.size, mdp.discount)
        visits = pattern.per_state(d)
        visits *= np.minimum(np.sqrt(1 / (states.size * visits)), MOST_RAISE)
        weights = (visits / np.diff(pattern.first))[owner]
        view = View(owner, states, None if kept.size == mdp.num_pairs else kept, mdp.num_pairs, weights, d)
        for member in members:
            if (change := member.shrink(view)) is not None:
                view = replace(view, weights=view.weights * change, d=view.d * change)
        unit = float(np.abs(view.take(task.c)) @ view.d) + task.blocks.size_of_value(view.fill(view.d))
        program = cls(task, view, pattern, unit if unit > 0 else 1.0, inflow[states], chance, noticed)
        for member in members:
            stated = member.barrier(view, program.unit)
            if stated is None:
                return None
            program.parts += stated.parts
            program.of_member.append(stated)
        return program


def _reached(mdp: MDP, allowed: Mask) -> tuple[Indices, Indices, float] | None:
    """Return the allowed pairs that never lead to where none is allowed, and the states that they reach.

    Also return how likely it is at least that other allowed pairs lead there.  None where the process begins in states
    without such pairs.
    """
    chance = 1.0
    S, owner, P = mdp.num_states, mdp.state, sp.csr_array(mdp.transitions)
    while np.any(closed := np.bincount(owner[allowed], minlength=S) == 0):
        likely = P @ closed.astype(np.float64)
        leads = allowed & (likely > 0)
        chance *= float(np.min(likely[leads], initial=1.0))
        if not np.any(leads):
            if np.any(mdp.initial[closed] > 0):
                return None
            break
        allowed = allowed & ~leads
    kept = np.flatnonzero(allowed)
    states = reached_states(P[kept], owner[kept], mdp.initial)
    return kept[np.isin(owner[kept], states)], states, chance


def _noticed(task: Task) -> float:
    """Return how rare visits have to be so that neither the cost nor a limit can notice them."""
    largest = float(np.max(np.abs(task.c)))
    # Without limits the cost may be next to nothing, which says little of what it is with them.
    of_cost = max(task.best.scale / largest, LEAST_NOTICE) if largest > 0 else 1.0
    return min(1.0, of_cost, *(member.room() for member in task.blocks.members))


def _start(task: Task, kept: Indices, states: Indices, share: float) -> tuple[Array, Array]:
    """Return the inflow, a share of it into all states, and the mean occupancy of the pairs under some policies.

    These are the even policy, some between it and the best one without limits, and some that lead into the limits.
    """
    dynamics, owner = task.dynamics, task.dynamics.owner
    rho = (1 - share) * dynamics.rho
    rho[states] += share / states.size
    even = np.zeros(dynamics.num_pairs)
    even[kept] = 1.0
    outside = np.ones(dynamics.num_states, dtype=bool)
    outside[states] = False
    even[outside[owner]] = 1.0  # what is done there does not matter
    even /= dynamics.per_state(even)[owner]
    best = indicator(dynamics, task.unconstrained.pairs)
    best = np.where((even[task.unconstrained.pairs] > 0)[owner], best, even)
    inflow = (1 - dynamics.gamma) * rho

    def occupancy(pi: Array) -> Array:
        # What flows in is the least; solvers that stop early may have found less of rare visits.
        return np.maximum(dynamics.backward(pi)(inflow), inflow)[owner] * pi

    found = [occupancy((1 - soft) * best + soft * even) for soft in (1.0, *SOFT)]
    for member in task.blocks.constraints:
        if (inside := member.inside(np.mean(found, axis=0))) is not None:
            mass = np.where(even > 0, np.maximum(inside, 0.0), 0.0)
            visits = dynamics.per_state(mass)[owner]
            pi = np.divide(mass, visits, out=even.copy(), where=visits > 0)
            found.append(occupancy((1 - SOFT[-1]) * pi + SOFT[-1] * even))
    V = None
    for _ in range(MOST_LEADS):
        # Policies that lead towards limits which are far from being obeyed.
        d = np.mean(found, axis=0)
        leads = [lead for member in task.blocks.constraints if (lead := member.lead(d)) is not None]
        if not leads or interrupts.over(task.deadline):
            break
        for lead in leads:
            led = policy_iteration(dynamics, lead, V, rounds=LEAD_ROUNDS)
            V, pi = led.V, indicator(dynamics, led.pairs)
            pi = np.where((even[led.pairs] > 0)[owner], pi, even)
            found.append(occupancy((1 - SOFT[-1]) * pi + SOFT[-1] * even))
    return inflow, np.mean(found, axis=0)[kept]
