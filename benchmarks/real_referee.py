"""What the policy in an answer really does, with NumPy and SciPy alone; states may offer different actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import referee
import scipy.sparse as sp
from scipy.sparse.linalg import splu

if TYPE_CHECKING:
    from real_problems import Case, Limit, Term

    import cvxmdp as cm

Array = npt.NDArray[np.float64]

DENSE_SHARE = 0.05
"""Share of nonzeros from which the system of a policy is solved as a dense one."""
LEAST_SIZE = 1e-6
"""A value or limit near zero is measured by no less than this share of the largest cost, of its row, or of one nat."""


def visits(mdp: cm.MDP, pi: Array, guess: Array | None = None) -> Array:
    """Solve ``x = (1 - gamma) rho + gamma P_pi' x``; visits ``guess`` that solve it already are taken."""
    states, inflow = mdp.num_states, (1 - mdp.discount) * mdp.initial
    choice = sp.csr_array((pi, (mdp.state, np.arange(pi.size))), shape=(states, pi.size))
    moves = sp.csr_array((choice @ sp.csr_array(mdp.transitions)).T)
    if guess is not None:
        # A residual r moves the visits by at most |r| / (1 - gamma) in the 1-norm.
        left = np.abs(inflow - guess + mdp.discount * (moves @ guess)).sum()
        if left <= referee.SOLVED * (1 - mdp.discount):
            return guess
    if moves.nnz > DENSE_SHARE * states**2 and states <= referee.DENSE_STATES:
        x: Array = np.linalg.solve(np.eye(states) - mdp.discount * moves.toarray(), inflow)
        return x
    factor = splu(sp.csc_matrix(sp.eye_array(states) - mdp.discount * moves))
    x = factor.solve(inflow)
    x += factor.solve(inflow - x + mdp.discount * (moves @ x))
    return x


def occupancy(mdp: cm.MDP, pi: Array, guess: Array | None = None) -> Array:
    """The visits of pairs under a policy."""
    return np.maximum(visits(mdp, pi, guess), 0.0)[mdp.state] * pi


def policy(mdp: cm.MDP, d: Array) -> Array:
    """Read the policy off d; even where a state has no mass."""
    mass = np.maximum(d, 0.0)
    total, count = np.bincount(mdp.state, mass, mdp.num_states), np.bincount(mdp.state, minlength=mdp.num_states)
    return np.divide(mass, total[mdp.state], out=1 / count[mdp.state], where=total[mdp.state] > 0)


def violation(mdp: cm.MDP, limit: Limit, d: Array) -> float:
    """By how much d exceeds a limit, free of units; of several rows the worst."""
    if hasattr(limit, "E"):
        level, size = limit.E @ d, abs(limit.E) @ d
        least = LEAST_SIZE * abs(limit.E).max(axis=1).toarray().ravel()
        worst = 0.0
        for sign, bound in ((1.0, limit.upper), (-1.0, limit.lower)):
            there = np.isfinite(bound)
            sizes = np.maximum(
                np.maximum(np.abs(bound[there]), size[there]), np.where(bound[there] == 0, least[there], 0)
            )
            worst = max(worst, float(np.max(sign * (level - bound)[there] / sizes, initial=0.0)))
        return worst
    if hasattr(limit, "center"):
        return float(np.linalg.norm(d - limit.center, limit.p)) / limit.radius - 1
    if hasattr(limit, "deviations"):
        level = float(limit.cost @ d + np.linalg.norm(limit.deviations * d))
        return (level - limit.at_most) / max(abs(limit.at_most), level)
    y = d if limit.of == "pairs" else np.bincount(mdp.state, d, mdp.num_states)
    return (referee.relative_entropy(y, limit.reference) - limit.bound) / max(abs(limit.bound), LEAST_SIZE)


def added(term: Term, d: Array) -> float:
    """The value of a term."""
    if hasattr(term, "center"):
        return term.weight * float(np.linalg.norm(d - term.center))
    return -term.weight * referee.entropy(d)


def judge(case: Case, d: Array) -> dict[str, Any]:
    """What the policy read off d does: its objective, the size of that, and its worst relative violation."""
    if d.shape != case.cost.shape or not np.all(np.isfinite(d)):
        return {"objective": None, "size_of_objective": None, "violation": None}
    mdp = case.mdp
    true = occupancy(mdp, policy(mdp, d), np.bincount(mdp.state, np.maximum(d, 0.0), mdp.num_states))
    terms = [added(term, true) for term in case.terms]
    exceeded = [violation(mdp, limit, true) for limit in case.limits]
    return {
        "objective": float(case.cost @ true) + sum(terms),
        "size_of_objective": max(
            float(np.abs(case.cost) @ true) + sum(map(abs, terms)), LEAST_SIZE * float(np.abs(case.cost).max())
        ),
        "violation": max([*exceeded, 0.0]),
    }
