"""Explore, or stay near a reference, as far as it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvxmdp.blocks import Response, Term
from cvxmdp.constraints.base import check_point, occupancy_of
from cvxmdp.constraints.entropy import Entropic, check_distribution, check_of, entropic
from cvxmdp.mdp import MDP, Array
from cvxmdp.objectives.base import Summand, weight_of


class NegativeEntropy(Summand):
    """``weight * sum x log x``: the more even the visits, the less.  Minimizing it explores.

    Parameters
    ----------
    weight : float
        Positive, in units of the cost for each nat.
    of : {"pairs", "states"}
        Whether x is the occupancy of each pair or the visits of each state.
    name : str
        Used in messages.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.gridworld(size=4)
    >>> cm.Problem(mdp, "time" + cm.NegativeEntropy(0.1, of="states")).solve().status.name
    'OPTIMAL'
    """

    def __init__(self, weight: float = 1.0, of: str = "pairs", name: str = "negative entropy") -> None:
        self.weight, self.of, self.name = weight_of(weight), check_of(of), name

    def bind(self, mdp: MDP) -> Term:
        """Return the term in a model."""
        return _EntropicTerm(self.name, entropic(mdp, self.of), self.weight)


class KL(Summand):
    """``weight * sum d log(d / reference)``: relative entropy to a reference occupancy.

    Parameters
    ----------
    reference : array of shape (num_pairs,), Policy or Solution
        An occupancy, or a policy or solution whose occupancy is meant.  Where it is zero, d has to be zero.
    weight : float
        Positive, in units of the cost for each nat.
    name : str
        Used in messages.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> mdp = cm.worlds.gridworld(size=4)
    >>> wanderer = mdp.policy(np.full((16, 4), 0.25))
    >>> cm.Problem(mdp, "time" + cm.KL(wanderer, weight=0.1)).solve().status.name
    'OPTIMAL'
    """

    def __init__(self, reference: Any, weight: float = 1.0, name: str = "KL") -> None:
        self.reference = occupancy_of(None, reference, "reference")
        if isinstance(self.reference, np.ndarray):
            check_distribution(self.reference)
        self.weight, self.name = weight_of(weight), name

    def bind(self, mdp: MDP) -> Term:
        """Return the term in a model."""
        return _EntropicTerm(self.name, Entropic(occupancy_of(mdp, self.reference, "reference")), self.weight)


class _EntropicTerm(Term):
    """``weight F``.  Its dual is the subgradient u, with conjugate ``weight sum r exp(u / weight - 1)``."""

    def __init__(self, name: str, function: Entropic, weight: float) -> None:
        self.name, self.function, self.weight = name, function, weight

    def value(self, point: Array) -> float:
        return self.weight * self.function.value(self.function.entries(point))

    def prox(self, point: Array, step: float) -> Array:
        x = self.function.entries(point)
        return self.function.spread(point, x, self.function.shrunk(x, step * self.weight))

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        x = self.function.entries(point)
        return scale * (x - self.function.shrunk(x, self.weight / scale)) / self.function.count

    def normal(self, dual: Array) -> tuple[Array, float]:
        u, r = check_point(dual, self.function.reference.size), self.function.reference
        with np.errstate(over="ignore"):
            exponentials = np.exp(u[r > 0] / self.weight - 1.0)
        spread = u if self.function.owner is None else u[self.function.owner]
        return spread, self.weight * float(r[r > 0] @ exponentials)

    @property
    def allowed(self) -> npt.NDArray[np.bool_]:
        return self.function.allowed

    def response(self, point: Array, projected: Array, step: float) -> Response:
        x = self.function.entries(point)
        m = step * self.weight
        return self.function.response(x, self.function.shrunk(x, m), m, bounded=False)
