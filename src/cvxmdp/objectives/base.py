"""What may be minimized: an expected cost, convex terms with a prox, or a sum of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cvxmdp.blocks import Response, Spread, Stated, Term, response_by_differences
from cvxmdp.constraints.arguments import number, numbers
from cvxmdp.constraints.base import LOOSE
from cvxmdp.mdp import MDP, Array


@runtime_checkable
class ConvexTerm(Protocol):
    """A convex function of the occupancy, known by its value and its prox.

    Any object with these two methods can be part of what is minimized.  An attribute ``name``, where there is one, is
    used in messages.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> class Squares:
    ...     '''Half the sum of squares: spreads the occupancy.'''
    ...     def value(self, point):
    ...         return 0.5 * float(point @ point)
    ...     def prox(self, point, step):
    ...         return point / (1 + step)
    >>> mdp = cm.worlds.gridworld(size=4)
    >>> cm.Problem(mdp, minimize=["time", Squares()]).solve().status.name
    'OPTIMAL'
    """

    def value(self, point: Array) -> float:
        """Return the function at ``point``."""
        ...

    def prox(self, point: Array, step: float) -> Array:
        """Return the z that minimizes ``value(z) + |z - point|^2 / (2 step)``."""
        ...


SMALL = 1e-3
"""A term whose value vanishes is judged against this share of its value at the even point."""


class Summand:
    """Something that can be added to a cost: ``"time" + cm.Distance(...)`` is both."""

    __array_ufunc__ = None  # lets NumPy vectors leave the sum to this class

    def __add__(self, other: Any) -> Sum:
        return Sum([self, *_parts(other)])

    def __radd__(self, other: Any) -> Sum:
        return Sum([*_parts(other), self])


class Sum(Summand, list[Any]):
    """What is added up, as a list."""

    def __add__(self, other: Any) -> Sum:
        return Sum([*self, *_parts(other)])

    def __radd__(self, other: Any) -> Sum:
        return Sum([*_parts(other), *self])


class CustomTerm(Term):
    """A user's :class:`ConvexTerm` with what follows from its prox alone.  Its dual is the point ``z + u``."""

    own = True
    on_ranks = False

    def __init__(self, term: ConvexTerm, mdp: MDP) -> None:
        self.name = str(getattr(term, "name", type(term).__name__))
        self._term = term
        self._try(mdp.num_pairs)

    def _try(self, size: int) -> None:
        """See whether the prox is one, as far as a few points tell: it must be better than its neighbours."""
        rng = np.random.default_rng(0)
        points = (np.full(size, 1 / size), *rng.uniform(size=(3, size)) * (2 / size))
        for y, step in product(points, (1.0, 0.1)):
            z = self.prox(y, step)
            reached = self.value(z) + float((z - y) @ (z - y)) / (2 * step)
            for other in (y, (y + z) / 2, 1.5 * z - 0.5 * y, z + rng.normal(size=size) * (0.1 / size)):
                better = self.value(other) + float((other - y) @ (other - y)) / (2 * step)
                if better < reached - LOOSE * (abs(reached) + float(y @ y)):
                    raise ValueError(
                        f"{type(self._term).__name__}.prox is not a prox: value(z) + |z - point|^2 / (2 step) is "
                        f"{reached:.6g} at its result and {better:.6g} at another point"
                    )

    def value(self, point: Array) -> float:
        return number(f"the result of {type(self._term).__name__}.value", self._term.value(point.copy()))

    def change(self, point: Array, spread: Spread) -> float:
        """Return the change seen at two points near by: of an unknown function no more can be said."""
        moved = [self.value(np.maximum(point + sign * spread.entries, 0.0)) for sign in (1.0, -1.0)]
        return max(abs(value - self.value(point)) for value in moved)

    def stated(self) -> Stated:
        return {"kind": "custom"}, {}

    def size(self, point: Array) -> float:
        even = np.full(point.size, 1 / point.size)
        return max(abs(self.value(point)), SMALL * abs(self.value(even)))

    def prox(self, point: Array, step: float) -> Array:
        kind = type(self._term).__name__
        z = numbers(f"what {kind}.prox returned", self._term.prox(point.copy(), step))
        if z.shape != point.shape:
            raise ValueError(f"{kind}.prox returned shape {z.shape}; it must return shape {point.shape}")
        if not np.all(np.isfinite(z)):
            raise ValueError(f"{kind}.prox returned entries that are not finite")
        return z

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        return projected + scale * (point - projected)

    def normal(self, dual: Array) -> tuple[Array, float]:
        dual = np.asarray(dual, dtype=np.float64)  # a user's prox has no more precision
        z = self.prox(dual, 1.0)
        u = dual - z
        return u, float(u @ z) - self.value(z)

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        dual = np.asarray(dual, dtype=np.float64)
        z = self.prox(dual, 1.0)
        sizes = np.where(dual == z, 0.0, np.abs(dual) + np.abs(z))
        return sizes, float(np.abs(dual - z) @ np.abs(z)) + abs(self.value(z))

    def response(self, point: Array, projected: Array, step: float) -> Response:
        return response_by_differences(lambda y: self.prox(y, step), point, projected)


def read_objective(mdp: MDP, minimize: Any) -> tuple[Array, list[Term], tuple[str | None, ...]]:
    """Split what is minimized into one cost over pairs, convex terms bound to the model, and the costs' names."""
    costs: list[Array] = []
    names: list[str | None] = []
    terms: list[Term] = []
    for part in _parts(minimize):
        if hasattr(part, "bind") and not isinstance(part, type):
            term = part.bind(mdp)
            if not isinstance(term, Term):
                raise ValueError(
                    f"minimize holds a {type(part).__name__}, which is a constraint; list it in subject_to"
                )
            terms.append(term)
        elif isinstance(part, ConvexTerm) and not isinstance(part, type):
            terms.append(CustomTerm(part, mdp))
        else:
            costs.append(mdp.cost(part, "minimize"))
            names.append(part if isinstance(part, str) else None)
    none = [] if costs else [np.zeros_like(mdp.state, dtype=np.float64)]
    return reduce(np.add, costs + none), terms, tuple(names)


def _parts(minimize: Any) -> Sequence[Any]:
    """Return the summands; a list of plain numbers is one cost."""
    if isinstance(minimize, (list, tuple)) and not all(isinstance(part, Real) for part in minimize):
        return list(minimize)
    return [minimize]


def weight_of(weight: Any) -> float:
    """Read the weight of a term."""
    w = number("weight", weight)
    if w <= 0:
        raise ValueError(f"weight is {weight}; it must be positive, or the term is not convex")
    return w
