"""The unconstrained problem: policy iteration.

It is cheap, its policy may already obey every constraint, its value is the first bound, and its occupancy is where the
engines begin.  The same routine prices multipliers for the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxmdp import interrupts
from cvxmdp.dynamics.base import Dynamics, indicator
from cvxmdp.engines.exact import largest
from cvxmdp.mdp import Array, Indices

MOST_ROUNDS = 200
"""Policy iteration takes 5 to 20 rounds; any number gives a bound."""
ROUNDING = 1e-12
"""Relative to the value: what an evaluation may be off by, so that smaller gains are not pursued."""


@dataclass(frozen=True, eq=False)
class Unconstrained:
    """The best policy of one cost, and the best bound that some V on the way to its value proves."""

    V: Array
    pairs: Indices
    """Of the policy: the best in each state at the last value."""
    bound: float
    """``(1 - gamma) rho'V + min over pairs of (c + M V)``: no occupancy costs less."""
    last: Array
    """The last value.  Where some values are huge, rounding may make its bound the worse one."""


def policy_iteration(
    dynamics: Dynamics,
    c: Array,
    V: Array | None = None,
    tolerance: float = 0.0,
    deadline: float = np.inf,
    rounds: int = MOST_ROUNDS,
    enough: float = np.inf,
) -> Unconstrained:
    """Improve greedily and evaluate until no policy is better by more than ``tolerance`` (absolute) or rounding.

    A state keeps its action unless another is better beyond rounding, so ties never make it cycle.  Any V gives a
    bound; the best is returned, so that it may be stopped after ``rounds``, at ``deadline`` on ``time.perf_counter``,
    or once the bound is ``enough``.
    """
    if rounds:
        V = dynamics.iterate_values(c, V, tolerance, deadline)
    V = np.zeros_like(dynamics.rho) if V is None else V
    best, greedy = dynamics.sweep(c, V)
    pairs, top, top_V = greedy, lower_bound(dynamics, V, best), V
    stuck = False
    for k in range(rounds):
        gain = V - best
        # In each state by its own value: elsewhere a penalty may be a trillion times as large.
        rounding = ROUNDING * (np.abs(V) + np.abs(best))
        exact = bool(np.all(np.abs(gain) <= np.maximum(tolerance, rounding)))
        if exact or top >= enough or stuck:
            break
        pairs = np.where(gain > rounding, greedy, pairs)
        before, policy = V, indicator(dynamics, pairs)
        if largest(gain) > ROUNDING * largest(V):
            V = dynamics.value(policy, c, V)
        else:
            # What is left is below the rounding of the largest values and matters where values are small: solve for the
            # correction, whose rounding is as much smaller.
            V = V + dynamics.value(policy, dynamics.advantage(c, V))
        # A better policy has lower values than the last one's, else what is left is rounding.
        stuck = k > 0 and bool(np.all(before - rounding <= V))
        best, greedy = dynamics.sweep(c, V)
        bound = lower_bound(dynamics, V, best)
        if bound >= top:
            top, top_V = bound, V
        if interrupts.over(deadline):
            break
    return Unconstrained(top_V, greedy, top, V)


def lower_bound(dynamics: Dynamics, V: Array, best: Array) -> float:
    """``(1 - gamma) rho'V + min over pairs of (c + M V)``, given ``best``, the sweep's least value of each state."""
    return float((1 - dynamics.gamma) * (dynamics.rho @ V) + np.min(best - V))


def occupancy_of(dynamics: Dynamics, pairs: Indices) -> Array:
    """Return the occupancy of the policy that takes ``pairs``."""
    d = indicator(dynamics, pairs)
    visits = dynamics.visits(d)
    d[pairs] = visits / visits.sum()
    return d
