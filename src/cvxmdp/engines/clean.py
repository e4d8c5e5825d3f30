"""The last touch: a proven policy that randomizes less, where that is proven as good."""

from __future__ import annotations

import time

import numpy as np

from cvxmdp.engines.judge import Judge
from cvxmdp.engines.prover import ROUNDING_SHARE, Candidate
from cvxmdp.engines.purify import purify
from cvxmdp.status import Status

RARELY = (1e-3, 1e-6)
"""Actions that are taken less often than so many times the most likely one may be left out."""
CLEANING = 0.1
"""Share of a solve's seconds, and of what the tolerance leaves to the gap, that a policy may take to randomize less."""
SOON = 0.05
"""Seconds that may be spent on it at any rate, so that answers on small models do not depend on the clock."""


def cleaned(judge: Judge, candidate: Candidate) -> Candidate:
    """Return a proven policy that randomizes less, where it is as good as proven, too."""
    prover, dynamics = judge.prover, judge.prover.dynamics
    candidate = _purified(judge, candidate)
    pi = candidate.policy.probabilities
    most = np.maximum.reduceat(pi, dynamics.first[:-1])
    for share in RARELY:
        rare = pi < (share * most)[dynamics.owner]
        rare &= pi > 0
        if not np.any(rare) or judge.clock.limit() not in (None, Status.ITERATION_LIMIT):
            break
        tried = prover.measured(prover.candidate(np.where(rare, 0.0, candidate.d)))
        if _proven(judge, tried):
            return tried
    return candidate


def _purified(judge: Judge, candidate: Candidate) -> Candidate:
    """Return a policy that randomizes in as few states as rows bind, if all limits are rows and one is found."""
    bound, prover, tolerance = judge.bound, judge.prover, judge.tolerance
    if bound is None or not judge.blocks.num_rows or prover.mdp.world is not None:  # it goes from pair to pair
        return candidate
    room = CLEANING * (tolerance * candidate.scale - (candidate.value + candidate.error - bound.value))
    pi, multipliers = candidate.policy.probabilities, np.concatenate(bound.duals)
    deadline = min(judge.clock.deadline, time.perf_counter() + max(CLEANING * judge.clock.elapsed(), SOON))
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            masses = purify(prover.dynamics, prover.c, judge.blocks, candidate.d, pi, multipliers, room, deadline)
    except (ArithmeticError, np.linalg.LinAlgError, MemoryError, RuntimeError):  # as where an engine breaks down
        return candidate
    if masses is None or not np.all(np.isfinite(masses)):
        return candidate
    tried = prover.measured(prover.candidate(masses))
    worse = tried.violation > candidate.violation + ROUNDING_SHARE * tolerance  # more than rounding may do
    return tried if _proven(judge, tried) and not worse else candidate


def _proven(judge: Judge, tried: Candidate) -> bool:
    """Whether a policy obeys and its gap is within the tolerance, at the bound that is known."""
    return tried.violation <= judge.tolerance and judge.gap_of(tried) <= judge.tolerance
