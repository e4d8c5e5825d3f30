"""Explore, or stay near a reference, as far as it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvxmdp.barriers import Barrier, Smooth, View
from cvxmdp.blocks import Response, Spread, Stated, Term
from cvxmdp.constraints.arguments import check_point, occupancy_of
from cvxmdp.constraints.base import scalar
from cvxmdp.constraints.entropy import Entropic, check_distribution, check_of, entropic
from cvxmdp.mdp import MDP, Array
from cvxmdp.objectives.base import Summand, weight_of
from cvxmdp.ranks.scattered import as_array


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
        return EntropicTerm(self.name, entropic(mdp, self.of), self.weight)


class KL(Summand):
    """``weight * sum d log(d / reference)``: relative entropy to a reference occupancy.

    Parameters
    ----------
    reference : array of shape (num_pairs,), Policy or Solution
        An occupancy, or a policy or solution whose occupancy is meant.  Where it is zero, d has to be zero: the problem
        then has a constraint more, "reference of KL".
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
        reference = occupancy_of(mdp, self.reference, "reference")
        return EntropicTerm(self.name, Entropic(reference[reference > 0]), self.weight, reference > 0)


class EntropicTerm(Term):
    """``weight F``.  Its dual is the subgradient u, with conjugate ``weight sum r exp(u / weight - 1)``.

    Pairs that a reference never visits are not ``allowed``: a constraint forbids them, and F is of the others.
    """

    def __init__(
        self, name: str, function: Entropic, weight: float, allowed: npt.NDArray[np.bool_] | None = None
    ) -> None:
        self.name, self.function, self.weight, self._allowed = name, function, weight, allowed

    @property
    def allowed(self) -> npt.NDArray[np.bool_] | None:
        return self._allowed

    def _kept(self, point: Array) -> Array:
        return point if self._allowed is None else point[self._allowed]

    def _filled(self, kept: Array, others: Array) -> Array:
        if self._allowed is None:
            return kept
        out = others.copy()
        out[self._allowed] = kept
        return out

    def value(self, point: Array) -> float:
        return self.weight * self.function.value(self.function.entries(self._kept(point)))

    def change(self, point: Array, spread: Spread) -> float:
        kept = Spread(self._kept(spread.entries), spread.rest)
        return self.weight * self.function.change(self.function.entries(self._kept(point)), kept)

    def stated(self) -> Stated:
        of = "pairs" if self.function.owner is None else "states"
        allowed = {} if self._allowed is None else {"allowed": self._allowed}
        arrays = {"reference": self.function.reference, **allowed}
        return {"kind": "entropic", "weight": self.weight, "of": of}, arrays

    def size(self, point: Array) -> float:
        x = np.maximum(self.function.entries(self._kept(point)), 0.0)
        logarithms = np.abs(np.log(x[x > 0])) + np.abs(np.log(self.function.reference[x > 0]))
        return self.weight * float(x[x > 0] @ logarithms)

    def prox(self, point: Array, step: float) -> Array:
        kept = self._kept(point)
        x = self.function.entries(kept)
        return self._filled(self.function.spread(kept, x, self.function.shrunk(x, step * self.weight)), point)

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        x = self.function.entries(self._kept(point))
        return scale * (x - self.function.shrunk(x, self.weight / scale)) / self.function.count

    def normal(self, dual: Array) -> tuple[Array, float]:
        u, r = check_point(dual, self.function.reference.size), self.function.reference
        with np.errstate(over="ignore"):
            exponentials = np.exp(u / self.weight - 1.0)
        spread = u if self.function.owner is None else u[self.function.owner]
        none = np.zeros_like(spread if self._allowed is None else self._allowed, dtype=np.float64)
        return self._filled(spread, none), scalar(self.weight * (r @ exponentials))

    def tangent(self, point: Array) -> Array:
        x = self.function.entries(self._kept(point))
        return as_array(self.weight * (np.log(x / self.function.reference) + 1.0))

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        u, top = self.normal(dual)
        # The exponentials are as exact as their exponents.
        return np.abs(u), float(abs(top) * (3 + np.max(np.abs(dual)) / self.weight))

    def forbidden(self) -> npt.NDArray[np.bool_] | None:
        return None if self._allowed is None else ~self._allowed

    def barrier(self, view: View, unit: float) -> Barrier:
        everything = self.function
        if self._allowed is not None:
            reference = np.zeros(self._allowed.size)
            reference[self._allowed] = self.function.reference
            everything = Entropic(reference)
        function = everything.smooth(view, 0.0, 1.0)
        smooth = Smooth(view, function, self.weight / unit)

        def dual(unit: float, price: float, lack: Array) -> Array:
            return self._kept(everything.subgradient(view, self.weight, function.slope, price, lack))

        return Barrier([smooth], dual)

    def response(self, point: Array, projected: Array, step: float) -> Response:
        x = self.function.entries(self._kept(point))
        m = step * self.weight
        response = self.function.response(x, self.function.shrunk(x, m), m, bounded=False)
        return Response(self._filled(response.diagonal, np.zeros_like(point)), response.factor)
