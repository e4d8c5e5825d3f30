"""The unconstrained problem: policy iteration.

It is cheap, its policy may already obey every constraint, its value is the first bound, and its occupancy is where the
engines begin.  The same routine prices multipliers for the certificate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from cvxmdp.certificate import largest
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.mdp import Array, Indices

MOST_ROUNDS = 200
ROUNDING = 1e-12
"""Relative to the value: what an evaluation may be off by, so that smaller gains are not pursued."""


@dataclass(frozen=True, eq=False)
class Unconstrained:
    """The best policy of one cost, which takes the best pair of each state at V, and the bound that V proves."""

    V: Array
    pairs: Indices
    bound: float
    """``(1 - gamma) rho'V + min over pairs of (c + M V)``: no occupancy costs less."""


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
        V = dynamics.relax(c, V, tolerance, deadline)
    V = np.zeros(dynamics.num_states) if V is None else V
    best, greedy = dynamics.sweep(c, V)
    pairs, top, top_V, top_pairs = greedy, lower_bound(dynamics, V, best), V, greedy
    for _ in range(rounds):
        gain = V - best
        rounding = ROUNDING * largest(V)
        exact = largest(gain) <= max(tolerance, rounding)
        if exact or top >= enough:
            break
        pairs = np.where(gain > rounding, greedy, pairs)
        V = dynamics.value(indicator(dynamics, pairs), c, V)
        best, greedy = dynamics.sweep(c, V)
        bound = lower_bound(dynamics, V, best)
        if bound >= top:
            top, top_V, top_pairs = bound, V, greedy
        if time.perf_counter() >= deadline:
            break
    return Unconstrained(top_V, top_pairs, top)


def lower_bound(dynamics: Dynamics, V: Array, best: Array) -> float:
    """``(1 - gamma) rho'V + min over pairs of (c + M V)``, given ``best``, the sweep's least value of each state."""
    return float((1 - dynamics.gamma) * (dynamics.rho @ V) + np.min(best - V))


def occupancy_of(dynamics: Dynamics, pairs: Indices) -> Array:
    """Return the occupancy of the policy that takes ``pairs``."""
    d = indicator(dynamics, pairs)
    visits = dynamics.visits(d)
    d[pairs] = visits / visits.sum()
    return d


def indicator(dynamics: Dynamics, pairs: Indices) -> Array:
    """Return the probabilities of the policy that takes ``pairs``."""
    pi = np.zeros(dynamics.num_pairs)
    pi[pairs] = 1.0
    return pi
