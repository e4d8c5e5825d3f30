"""The paper's method to the letter: fixed settings and its own stopping tests, then the safeguard and a proof."""

from __future__ import annotations

import numpy as np

from cvxmdp.blocks import Constraint
from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.judge import Judge
from cvxmdp.engines.regularized import newton
from cvxmdp.engines.splitting import NEWTON_STEPS, Inner, Splitting, iterates
from cvxmdp.mdp import Array
from cvxmdp.status import Status

SAFEGUARD = 1e-10
"""How exactly the last pass brings d into D."""


def run_as_in_paper(settings: Splitting, judge: Judge, inner: Inner) -> tuple[Status, str]:
    """Run Algorithm 1 with its stopping tests, eqs. (20) and (21); one violated constraint is enough in (21)."""
    assert settings.stopping is not None
    eps_opt, eps_con, eps_inf = settings.stopping
    sigma = settings.step or 2e-5
    inner.V, w = np.zeros_like(inner.V), np.zeros((len(judge.blocks.blocks), judge.c.size))
    status, why = Status.APPROXIMATE, "the paper's stopping tests"
    for it in iterates(inner, judge.blocks, w, sigma, settings.relaxation, anchored=False):
        judge.iterations += 1
        d = it.occupancy
        obeys = all(_obeys(c, d, eps_con) for c in judge.blocks.constraints)
        if obeys and it.sizes.largest <= eps_opt:
            break
        if not obeys and judge.iterations > 1 and it.sizes.farthest <= eps_inf:
            why = "the paper's test of infeasibility"
            break
        if (limit := judge.limit()) is not None:
            status, why = limit, "a limit"
            break
    # The safeguard: one more pass that brings d into D.
    final, _ = newton(
        judge.dynamics, inner.c, it.governing.mean(axis=0), sigma / len(it.governing), inner.V, SAFEGUARD, NEWTON_STEPS
    )
    judge.propose(final.d)
    duals = judge.blocks.duals(it.reflected, it.projected, 1 / sigma)
    judge.prove(duals)
    if judge.best is not None and judge.best.violation > judge.tolerance:
        judge.refute(duals)
        judge.propose(final.d)
    judge.record(it.sizes.norm)
    if judge.refutation is not None:
        return Status.INFEASIBLE, f"ended by {why}"
    return (Status.OPTIMAL if judge.verdict() is Status.OPTIMAL else status), f"ended by {why}"


def _obeys(constraint: Constraint, d: Array, eps_con: float) -> bool:
    """``max(C_i(d) - b_i, 0) <= eps_con (1 + |b_i|)`` for every row i; a ball's bound is its radius."""
    if isinstance(constraint, Linear):
        limit = np.where(np.isfinite(constraint.upper), constraint.upper, constraint.lower)
        return bool(np.all(constraint.excess(d) <= eps_con * (1 + np.abs(limit))))
    radius = constraint.radius if isinstance(constraint, NormBall) else 0.0
    return constraint.violation(d) <= eps_con * (1 + radius)
