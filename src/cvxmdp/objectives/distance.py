"""Stay near an expert, as far as it pays."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.barriers import Barrier, Cone, Largest, Part, Powers, View
from cvxmdp.blocks import Response, Spread, Stated, Term
from cvxmdp.constraints.arguments import check_point, occupancy_of
from cvxmdp.constraints.ball import Norm, exponent
from cvxmdp.constraints.base import scalar
from cvxmdp.mdp import MDP, Array
from cvxmdp.objectives.base import Summand, weight_of
from cvxmdp.ranks.scattered import as_array


class Distance(Summand):
    """``weight * |d - center|``: the distance to an occupancy, for instance an expert's.

    Parameters
    ----------
    center : array of shape (num_pairs,), Policy or Solution
        An occupancy, or a policy or solution whose occupancy is meant.
    weight : float
        Positive, in units of the cost.
    norm : float
        Any number from 1 up, or ``inf``.
    name : str
        Used in messages.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.gridworld(size=4)
    >>> expert = mdp.policy([3, 3, 3, 1] * 4)
    >>> solution = cm.Problem(mdp, "time" + cm.Distance(expert, weight=1.0)).solve()
    >>> solution.status.name
    'OPTIMAL'
    """

    def __init__(self, center: Any, weight: float = 1.0, norm: float = 2, name: str = "distance") -> None:
        self.center = occupancy_of(None, center, "center")
        self.weight, self.norm, self.name = weight_of(weight), Norm(exponent(norm)), name

    def bind(self, mdp: MDP) -> Term:
        """Return the term in a model."""
        return DistanceTerm(self.name, occupancy_of(mdp, self.center, "center"), self.weight, self.norm)


class DistanceTerm(Term):
    """The dual array is the subgradient u; its dual norm is at most the weight, and its conjugate ``u'center``."""

    def __init__(self, name: str, center: Array, weight: float, norm: Norm) -> None:
        self.name, self.center, self.weight, self.norm = name, center, weight, norm

    def value(self, point: Array) -> float:
        return self.weight * self.norm(check_point(point, self.center.size) - self.center)

    def change(self, point: Array, spread: Spread) -> float:
        return self.weight * self.norm.change(spread)

    def stated(self) -> Stated:
        return {"kind": "distance", "weight": self.weight, "p": self.norm.p}, {"center": self.center}

    def size(self, point: Array) -> float:
        return self.weight * (self.norm(point) + self.norm(self.center))

    def prox(self, point: Array, step: float) -> Array:
        """Moreau: what the projection onto the ball of the dual norm leaves."""
        offset = check_point(point, self.center.size) - self.center
        return as_array(self.center + (offset - self.norm.conjugate.shrink(offset, step * self.weight)))

    def normal(self, dual: Array) -> tuple[Array, float]:
        u = check_point(dual, self.center.size)
        size = self.norm.conjugate(u)
        u = u * (self.weight / size) if size > self.weight else u
        return u, scalar(u @ self.center)

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        return np.abs(dual), float(np.abs(dual) @ np.abs(self.center))

    def barrier(self, view: View, unit: float) -> Barrier | None:
        center, p, weight = view.take(self.center), self.norm.p, self.weight / unit
        part: Part
        if p == 2:
            part = Cone(view, center, np.ones_like(center), None, weight)
        elif p == 1:
            part = Powers(view, center, 1.0, 1.0, weight)
        elif np.isinf(p):
            part = Largest(view, center, weight)
        else:
            return None
        return Barrier([part], lambda unit, price, lack: view.fill(unit * part.force))

    def response(self, point: Array, projected: Array, step: float) -> Response:
        offset = point - self.center
        taken = self.norm.conjugate.response(offset, self.norm.conjugate.shrink(offset, step * self.weight))
        signs = None if taken.factor is None else -np.ones(taken.factor.shape[1])
        return Response(1 - taken.diagonal, taken.factor, signs)
