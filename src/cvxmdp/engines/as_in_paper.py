"""The paper's method to the letter: fixed settings and its own stopping tests, then the safeguard and a proof."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.blocks import Constraint
from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.base import Proposal, Proposals, Task
from cvxmdp.engines.douglas_rachford import Iterate, iterates
from cvxmdp.engines.prox import NEWTON_STEPS, Inner
from cvxmdp.engines.regularized import newton
from cvxmdp.mdp import Array
from cvxmdp.status import Status

if TYPE_CHECKING:
    from cvxmdp.engines.splitting import Splitting

SAFEGUARD = 1e-10
"""How exactly the last pass brings d into D."""


def as_in_paper(settings: Splitting, task: Task, inner: Inner) -> Proposals:
    """Run Algorithm 1 with its stopping tests, eqs. (20) and (21); one violated constraint is enough in (21)."""
    assert settings.stopping is not None
    eps_opt, eps_con, eps_inf = settings.stopping
    sigma = settings.step or 2e-5
    inner.V, w = np.zeros_like(inner.V), np.zeros((len(task.blocks.blocks), task.c.size))
    why = "the paper's stopping tests"
    for k, it in enumerate(iterates(inner, task.blocks, w, sigma, settings.relaxation, anchored=False)):
        d = it.occupancy
        obeys = all(_obeys(c, d, eps_con) for c in task.blocks.constraints)
        if obeys and it.sizes.largest <= eps_opt:
            break
        if not obeys and k > 0 and it.sizes.farthest <= eps_inf:
            why = "the paper's test of infeasibility"
            break
        yield _safeguarded(task, inner, it, "a limit", last=False)
    yield _safeguarded(task, inner, it, why, last=True)


def _safeguarded(task: Task, inner: Inner, it: Iterate, why: str, last: bool) -> Proposal:
    """Propose a pass, brought into D by one more (the safeguard) where it is judged."""

    def occupancy() -> Array:
        w, sigma = it.governing.mean(axis=0), it.step / len(it.governing)
        return newton(task.dynamics, inner.c, w, sigma, inner.V, SAFEGUARD, NEWTON_STEPS)[0].d

    duals = partial(task.blocks.duals, it.reflected, it.projected, 1 / it.step)
    return Proposal(
        occupancy, duals, residual=it.sizes.norm, ready=last, suspect=last, said=f"ended by {why}",
        otherwise=Status.APPROXIMATE if last else None,
    )  # fmt: skip


def _obeys(constraint: Constraint, d: Array, eps_con: float) -> bool:
    """``max(C_i(d) - b_i, 0) <= eps_con (1 + |b_i|)`` for every row i; a ball's bound is its radius."""
    if isinstance(constraint, Linear):
        limit = np.where(np.isfinite(constraint.upper), constraint.upper, constraint.lower)
        return bool(np.all(constraint.excess(d) <= eps_con * (1 + np.abs(limit))))
    radius = constraint.radius if isinstance(constraint, NormBall) else 0.0
    return constraint.violation(d) <= eps_con * (1 + radius)
