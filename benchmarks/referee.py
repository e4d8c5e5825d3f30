"""The judge of every answer, the same for all: what does the policy in it really do?

Written with NumPy and SciPy alone, from the definitions.  Only ``proven_bound`` asks cvxmdp: it has the proof that
comes with one of our answers checked before its bound is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import splu
from scipy.special import entr, rel_entr

if TYPE_CHECKING:
    from instances import Instance

    import cvxmdp as cm

Array = npt.NDArray[np.float64]

DENSE_STATES = 6000
"""Up to here the system of a policy is solved as a dense one; above, models are sparse enough for a sparse factor."""
SOLVED = 1e-10
"""How far in the 1-norm visits may be from the true ones and count as exact."""


def policy(instance: Instance, d: Array) -> Array:
    """Read the policy off d: ``d / sum over actions``, uniform where a state has no mass."""
    table = np.maximum(d, 0.0).reshape(instance.states, -1)
    mass = table.sum(axis=1, keepdims=True)
    return np.divide(table, mass, out=np.full_like(table, 1 / table.shape[1]), where=mass > 0).ravel()


def occupancy(instance: Instance, pi: Array, guess: Array | None = None) -> Array:
    """Solve ``x = (1 - gamma) rho + gamma P_pi' x`` for the visits of states, then spread them over actions.

    Visits ``guess`` that solve it already, so that no factor is needed, are taken.
    """
    states, inflow = instance.states, (1 - instance.gamma) * instance.rho
    choice = sp.csr_array((pi, (instance.state, np.arange(pi.size))), shape=(states, pi.size))
    moves = (choice @ instance.P).T  # P_pi'
    if guess is not None:
        # A residual r moves the visits by at most |r| / (1 - gamma) in the 1-norm.
        left = np.abs(inflow - guess + instance.gamma * (moves @ guess)).sum()
        if left <= SOLVED * (1 - instance.gamma):
            return guess[instance.state] * pi
    if states <= DENSE_STATES:
        moves = moves.toarray() if sp.issparse(moves) else moves
        visits = np.linalg.solve(np.eye(states) - instance.gamma * moves, inflow)
    else:
        factor = splu(sp.csc_matrix(sp.eye_array(states) - instance.gamma * moves))
        visits = factor.solve(inflow)
        visits += factor.solve(inflow - visits + instance.gamma * (moves @ visits))
    return visits[instance.state] * pi


def entropy(d: Array) -> float:
    """``-sum d log d``."""
    return float(np.sum(entr(np.maximum(d, 0.0))))


def relative_entropy(d: Array, reference: Array) -> float:
    """``sum d log(d / reference)``."""
    return float(np.sum(rel_entr(np.maximum(d, 0.0), reference)))


def violations(instance: Instance, d: Array) -> Array:
    """By how much d exceeds each limit, free of units.

    A row relative to ``max(|b|, |E|'d)``, a ball or a KL ball to its radius, an entropy to its bound.
    """
    limit = instance.limit
    if limit is None:
        return np.zeros(0)
    if hasattr(limit, "E"):
        return np.maximum(limit.E @ d - limit.b, 0.0) / np.maximum(np.abs(limit.b), abs(limit.E) @ d)
    if hasattr(limit, "center"):
        return np.array([max(float(np.linalg.norm(d - limit.center)) / limit.radius - 1, 0.0)])
    if hasattr(limit, "at_least"):
        return np.array([max(limit.at_least - entropy(d), 0.0) / abs(limit.at_least)])
    return np.array([max(relative_entropy(d, limit.reference) / limit.radius - 1, 0.0)])


def judge(instance: Instance, d: Array) -> dict[str, Any]:
    """What the policy read off d really does, as numbers for a JSON file.

    ``objective`` is its true c'd and ``scale`` its true |c|'d, ``violation`` the worst of ``violations``, and
    ``open_flow`` the 1-norm by which the evaluation itself fails to close the flow.
    """
    if d.shape != instance.c.shape or not np.all(np.isfinite(d)):
        return {"objective": None, "scale": None, "violation": None, "violations": [], "open_flow": None}
    true = occupancy(instance, policy(instance, d), np.maximum(d, 0.0).reshape(instance.states, -1).sum(axis=1))
    flow = true.reshape(instance.states, -1).sum(axis=1) - instance.gamma * (instance.P.T @ true)
    found = violations(instance, true)
    return {
        "objective": float(instance.c @ true),
        "scale": float(np.abs(instance.c) @ true),
        "violation": float(np.max(found, initial=0.0)),
        "violations": found.tolist(),
        "open_flow": float(np.abs(flow - (1 - instance.gamma) * instance.rho).sum()),
    }


def proven_bound(problem: cm.Problem, certificate: cm.Certificate) -> float:
    """The lower bound that a certificate proves; raises when a claim of its solution is false."""
    certificate.check(problem, certificate.tolerance)
    return certificate.solution.bound


def distance(objective: float, scale: float, bound: float) -> float:
    """How far a policy is from the bound, relative to |c|'d; below zero only where it exceeds a limit."""
    return (objective - bound) / scale
