"""Problems made from seeds, as plain arrays that every solver can read.

The limits of the cases "ball-half", "caps", "entropy" and "kl" lie half way between what a random policy does and what
the best policy without limits does: the random policy obeys them and the best one does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import referee
import scipy.sparse as sp

import cvxmdp as cm

Array = npt.NDArray[np.float64]

ACTIONS, DISCOUNT, ROWS = 10, 0.95, 10
PRINTED_RADIUS = 0.2
WARM_UP_STATES, WARM_UP_SEED = 144, 1000
"""Enough states that caps on all of them need the same engine as caps on more."""

CASES = {
    "free": "Garnet without limits",
    "linear": "Garnet, ten rows E ~ N(0, 1), b ~ N(-0.2, 1); of the seeds 0, 1, 2, ... those with a policy that obeys",
    "ball": "Garnet, within 0.2 of the occupancy of a random policy, as the paper prints it",
    "ball-half": "Garnet, within half the distance from a random policy's occupancy to the best one's",
    "caps": "Garnet, a cap on the visits of every state",
    "entropy": "Garnet, the entropy of the pairs' occupancy at least a bound",
    "kl": "Garnet, relative entropy to a random policy's occupancy at most a radius",
    "grid": "grid world, time and collision both limited",
}


@dataclass(frozen=True, eq=False)
class Rows:
    """``E d <= b``."""

    E: Any
    b: Array


@dataclass(frozen=True, eq=False)
class Ball:
    """``|d - center|_2 <= radius``."""

    center: Array
    radius: float


@dataclass(frozen=True, eq=False)
class Entropy:
    """``-sum d log d >= at_least``."""

    at_least: float


@dataclass(frozen=True, eq=False)
class KL:
    """``sum d log(d / reference) <= radius``."""

    reference: Array
    radius: float


Limit = Rows | Ball | Entropy | KL | None


@dataclass(frozen=True, eq=False)
class Instance:
    """Minimize c'd over the occupancies d of a model that obey one limit.

    Pairs go by state, then by action, and every state offers the same number of actions.  Row i of ``P``, an array or
    a CSR matrix, is the distribution of the next state after pair i.
    """

    case: str
    branching: float
    seed: int
    P: Any
    c: Array
    gamma: float
    rho: Array
    limit: Limit

    @property
    def states(self) -> int:
        return self.rho.size

    @property
    def state(self) -> npt.NDArray[np.int64]:
        """The state of each pair."""
        return np.repeat(np.arange(self.rho.size), self.c.size // self.rho.size)

    def sparse(self) -> Instance:
        """The same with P, and the rows of the limit, as CSR matrices."""
        limit = replace(self.limit, E=sp.csr_array(self.limit.E)) if isinstance(self.limit, Rows) else self.limit
        return replace(self, P=sp.csr_array(self.P), limit=limit)


def make(case: str, states: int, branching: float, seed: int) -> Instance:
    """Make one instance; the same arguments give the same arrays."""
    if case not in CASES:
        raise ValueError(f"there is no case {case!r}; the cases are {', '.join(CASES)}")
    if case == "grid":
        return grid(states, seed)
    mdp = cm.worlds.garnet(states, ACTIONS, branching, seed=seed, discount=DISCOUNT)
    model = Instance(case, branching, seed, mdp.transitions, mdp.costs["cost"], DISCOUNT, mdp.initial, None)
    rng = np.random.default_rng([seed, 1])  # apart from the numbers that made the model
    if case == "free":
        return model
    if case == "linear":
        return replace(model, limit=Rows(rng.normal(size=(ROWS, states * ACTIONS)), rng.normal(-0.2, 1.0, ROWS)))
    weights = rng.exponential(size=(states, ACTIONS))
    random = referee.occupancy(model, (weights / weights.sum(axis=1, keepdims=True)).ravel())
    if case == "ball":
        return replace(model, limit=Ball(random, PRINTED_RADIUS))
    best = cm.Problem(mdp, "cost").solve().occupancy
    if case == "ball-half":
        return replace(model, limit=Ball(random, float(np.linalg.norm(best - random)) / 2))
    if case == "caps":
        visits, wanted = (d.reshape(states, ACTIONS).sum(axis=1) for d in (random, best))
        Xi = sp.csr_array((np.ones(random.size), (model.state, np.arange(random.size))))
        return replace(model, limit=Rows(Xi, (visits + np.maximum(visits, wanted)) / 2))
    if case == "entropy":
        return replace(model, limit=Entropy((referee.entropy(random) + referee.entropy(best)) / 2))
    return replace(model, limit=KL(random, referee.relative_entropy(best, random) / 2))


def grid(states: int, seed: int) -> Instance:
    """The grid world with ``states`` cells, a square number.

    At 25 x 25 the model and the limits are the paper's, time <= 0.9 and collision <= 1e-3.  At other sizes the horizon
    grows with the side, or the destination would be out of reach, and the limits are drawn from two policies: the
    fastest, and one that pays ten units of time for a collision.  Mixing them half and half obeys.
    """
    side = math.isqrt(states)
    if side * side != states:
        raise ValueError(f"a grid world has a square number of states, for instance {side * side}, not {states}")
    mdp = cm.worlds.gridworld(size=side, discount=1 - 0.25 / side, seed=seed)
    time, collision = mdp.costs["time"], mdp.costs["collision"]
    if side == 25:
        limits = np.array([0.9, 1e-3])
    else:
        fast = cm.Problem(mdp, "time").solve().costs
        safe = cm.Problem(mdp, time + 10 * collision).solve().costs
        limits = np.array([(1 + safe["time"]) / 2, (fast["collision"] + safe["collision"]) / 2])
    rows = Rows(sp.csr_array(np.vstack([time, collision])), limits)
    return Instance("grid", 0.0, seed, mdp.transitions, time, mdp.discount, mdp.initial, rows)


def seeds(case: str, states: int, branching: float, count: int, first: int = 0) -> tuple[list[int], list[int]]:
    """The first ``count`` seeds whose instance some policy obeys, and those passed over because none does.

    Only "linear" can be infeasible.  Both verdicts are proven to the tolerance asked, and the proofs checked.
    """
    kept: list[int] = []
    passed: list[int] = []
    seed = first
    while len(kept) < count:
        if case != "linear":
            kept.append(seed)
        else:
            stated = problem(make(case, states, branching, seed))
            solution = stated.solve(tolerance=1e-4)
            solution.certificate.check(stated)
            if solution.status.name not in ("OPTIMAL", "INFEASIBLE"):
                raise RuntimeError(f"seed {seed} of {case} with {states} states is undecided: {solution.status.value}")
            (kept if solution.status.name == "OPTIMAL" else passed).append(seed)
        seed += 1
    return kept, passed


def warm_up(case: str, branching: float) -> Instance:
    """Another, small instance of the same kind, to load and compile everything on."""
    first = seeds(case, WARM_UP_STATES, branching, 1, WARM_UP_SEED)[0][0]
    return make(case, WARM_UP_STATES, branching, first)


def problem(instance: Instance) -> cm.Problem:
    """State the instance for cvxmdp."""
    actions = instance.c.size // instance.states
    mdp = cm.MDP.from_pairs(
        instance.state,
        np.tile(np.arange(actions), instance.states),
        instance.P,
        {"cost": instance.c},
        discount=instance.gamma,
        initial=instance.rho,
    )
    limit = instance.limit
    if limit is None:
        return cm.Problem(mdp, "cost")
    if isinstance(limit, Rows):
        return cm.Problem(mdp, "cost", [cm.Linear(limit.E, at_most=limit.b)])
    if isinstance(limit, Ball):
        return cm.Problem(mdp, "cost", [cm.NormBall(limit.center, limit.radius)])
    if isinstance(limit, Entropy):
        return cm.Problem(mdp, "cost", [cm.Entropy(at_least=limit.at_least)])
    return cm.Problem(mdp, "cost", [cm.KLBall(limit.reference, limit.radius)])
