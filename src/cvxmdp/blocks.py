"""What a problem is made of besides the model: blocks, each a convex function of the occupancy with a prox.

A constraint is the function that is 0 on its set and infinite elsewhere; its prox is the projection.  A term of the
objective is a convex function with finite values.  For ``z = prox(y)`` with step ``sigma`` the vector
``u = (y - z) / sigma`` is a subgradient at z, so ``u'x - conjugate(u)`` is a lower bound on the function at every x,
with ``conjugate(u) = u'z - h(z)``; for a constraint that is the largest ``u'x`` over the set.  A *dual* array says
which u is meant in a form from which u and its conjugate follow without a projection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cvxmdp.barriers import Barrier, View
from cvxmdp.cones import OfMultipliers, Stating
from cvxmdp.mdp import Array
from cvxmdp.separable import Separable


@dataclass(frozen=True, eq=False)
class Response:
    """``I - J`` for the Jacobian J of a prox: what it takes off a small change of its point.

    It is ``diag(diagonal) + factor diag(signs) factor' + more more'``, symmetric and positive semidefinite.
    """

    diagonal: Array
    factor: Any = None
    """Dense or sparse, one row a pair; None where there is no second part."""
    signs: Array | None = None
    """Plus or minus one for each column; None where all are plus one."""
    more: Array | None = None
    """Dense columns beside sparse ones."""

    def scaled(self, scale: float) -> Response:
        """Return a multiple of it."""
        root = np.sqrt(scale)
        factor, more = (None if part is None else part * root for part in (self.factor, self.more))
        return Response(self.diagonal * scale, factor, self.signs, more)


@dataclass(frozen=True, eq=False)
class Spread:
    """How far a policy's true occupancy may be from the computed one: in each entry, and a rest in the 1-norm."""

    entries: Array
    rest: float = 0.0

    def of(self, rows: Any, largest: Any = None) -> Any:
        """Return how much a product with rows that are nowhere negative may change; ``largest`` entry of each row."""
        if largest is None:
            largest = np.max(rows) if rows.ndim == 1 else rows.max(axis=1)
            largest = largest.toarray().ravel() if hasattr(largest, "toarray") else largest
        return rows @ self.entries + largest * self.rest


Stated = tuple[dict[str, Any], dict[str, Any]]
"""Numbers and words of a block, and its arrays, as they are saved."""


class Block(ABC):
    """A convex function of the occupancy, bound to a model."""

    name: str
    is_rows: ClassVar[bool] = False
    """Whether it is ``lower <= rows d <= upper``, as :class:`cvxmdp.constraints.linear.Linear` has them."""
    smooth: ClassVar[bool] = False
    """Whether its gradient is Lipschitz, so that it needs no multiplier."""
    on_ranks: ClassVar[bool] = True
    """Whether its prox needs no more than sums, which several ranks make together."""
    own: ClassVar[bool] = False
    """Whether it is a user's, known by no more than its prox."""

    @abstractmethod
    def value(self, point: Array) -> float:
        """Return the function's value at a point where it is finite."""

    @abstractmethod
    def prox(self, point: Array, step: float) -> Array:
        """Return the z that minimizes ``h(z) + |z - point|^2 / (2 step)``."""

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        """Return the dual array of the vector ``scale * (point - projected)``: here the vector itself."""
        return scale * (point - projected)

    @abstractmethod
    def normal(self, dual: Array) -> tuple[Array, float]:
        """Return the vector u of a dual array and its conjugate (inf if there is none)."""

    def explicit(self, dual: Array) -> Array:
        """Return the dual array without anything that another would have to compute as exactly to mean the same."""
        return dual

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        """Return the sizes of what the vector's entries and the conjugate are sums of; rounding adds some eps of it."""
        u, conjugate = self.normal(dual)
        return np.abs(u), float(abs(conjugate))

    @abstractmethod
    def response(self, point: Array, projected: Array, step: float) -> Response:
        """Return how the prox responds to its point."""

    @abstractmethod
    def stated(self) -> Stated:
        """Return what the block is, for a file: its kind and all its data."""

    @property
    def allowed(self) -> npt.NDArray[np.bool_] | None:
        """Which pairs may be visited at all; None where the function is finite near every occupancy."""
        return None

    def forbidden(self) -> npt.NDArray[np.bool_] | None:
        """Return which pairs must not be visited, as far as that is plain; None where there are none."""
        return None if self.allowed is None else ~self.allowed

    def room(self) -> float:
        """Return how rare visits have to be so that the block cannot notice them."""
        return 1.0

    def lead(self, d: Array) -> Array | None:
        """Return a cost whose cheapest policies lead towards the block; None where an occupancy is not far from it."""
        return None

    def inside(self, d: Array) -> Array | None:
        """Return a vector over pairs well inside, near which policies may be; None where d is, or none is known."""
        return None

    def shrink(self, view: View) -> Array | None:
        """Return factors for each pair that bring an occupancy inside, where it is plain how; None where it is not."""
        return None

    def barrier(self, view: View, unit: float) -> Barrier | None:
        """Return what path following needs, the cost counted in a unit; None where the block has no barrier."""
        return None


class Constraint(Block):
    """A closed convex set.  Its conjugate is its support: the largest ``u'x`` over the set."""

    flat: bool = False
    """Whether it is known to be a polyhedron."""
    has_cones: ClassVar[bool] = False
    """Whether it can be stated with cones."""
    round: bool = False
    """Whether it is a Euclidean ball, onto which a projection costs nothing."""
    disjoint: bool = False
    """Whether its limits are on sums of different pairs."""
    has_equal: bool = False
    """Whether some of its limits hold with equality."""
    parts: int = 1
    """How many limits it is made of that could be left out one by one."""
    priority: int = 1
    """Which limits are met first where not all can be: those of priority 1."""
    weight: float | None = None
    """The excess that counts as much as exceeding another limit by its own size; None for this limit's own size."""
    total: float | None = None
    """An episode's total for each unit per step, where the limit was stated in totals."""

    def amount(self, value: float, digits: int = 6) -> str:
        """Write an amount of what is limited, in the user's unit first."""
        if self.total is None:
            return f"{value:.{digits}g}"
        return f"{value * self.total:.{digits}g} in total ({value:.{digits}g} per step)"

    @abstractmethod
    def project(self, point: Array) -> Array:
        """Return the nearest member."""

    def value(self, point: Array) -> float:
        """Return zero, as everywhere in the set."""
        return 0.0

    def prox(self, point: Array, step: float) -> Array:
        """Return the nearest member, whatever the step."""
        return self.project(point)

    @abstractmethod
    def idle(self) -> Array:
        """Return the dual array of the zero vector."""

    def separable(self) -> Separable | None:
        """Return the limit as a strictly convex sum over pairs, where it is one; else None."""
        return None

    def cones(self, stating: Stating) -> OfMultipliers:
        """State the set with cones, where :attr:`has_cones` says that it can; return how its dual array follows."""
        raise NotImplementedError(f"{type(self).__name__} has no cones")

    def contradiction(self) -> Array | None:
        """Return a dual array whose vector is zero and whose support is negative: proof that the set is empty."""
        return None

    @abstractmethod
    def violation(self, point: Array) -> float:
        """Return by how much ``point`` exceeds the limit, in the limit's own units; 0 inside."""

    @abstractmethod
    def level(self, point: Array) -> float | Array:
        """Return what is limited, in the limit's own units: one number, or one a row."""

    @abstractmethod
    def relative(self, point: Array, spread: Spread | None = None) -> float:
        """Return the violation free of units, as the tolerance judges it; the worst within a spread of the point."""

    @abstractmethod
    def price(self, dual: Array) -> float | Array:
        """Return the change of the optimum for each unit by which the limit is raised."""

    @abstractmethod
    def relaxed(self, amount: float, relative: bool = False) -> Constraint:
        """Return the set with all its limits moved outwards by an amount, in its own units or in multiples of a size.

        A limit's size is its absolute value, or the constraint's ``weight``.
        """

    def restated(self, dual: Array, relaxed: Constraint) -> Array:
        """Return the dual array that has the same vector here as the given one has in the relaxed set."""
        return dual

    @abstractmethod
    def units(self, relative: bool) -> Any:
        """Return what :meth:`relaxed` counts in: a number, or of each upper and each lower limit."""

    @abstractmethod
    def ease(self, dual: Array, relative: bool = False) -> float:
        """Return by how much the support of a dual array grows for each unit of :meth:`relaxed`."""

    @abstractmethod
    def said(self, amount: float = 0.0) -> str:
        """Say the limit in words, once it is relaxed by an amount."""

    def multiple(self, point: Array) -> float:
        """Return by how many times its size a point exceeds the limit, as ``relaxed(..., relative=True)`` counts."""
        return self.violation(point) / float(self.units(True))

    def label(self, part: int) -> str:
        """Return the name of one of its limits."""
        return self.name

    def only(self, kept: npt.NDArray[np.bool_]) -> Constraint:
        """Return the constraint with some of its limits alone."""
        return self

    def weights(self, dual: Array) -> Array:
        """Return how much each of its limits counts in a dual array, as the size of its vector."""
        return np.array([np.max(np.abs(self.normal(dual)[0]), initial=0.0)])

    def one_sided(self) -> tuple[float, Array, float] | None:
        """Return sign, row and limit where it is ``sign row'd <= limit``, one row with one side; else None."""
        return None

    def moved(self, way: Array) -> Constraint:
        """Return a flat set moved by a vector, with the same duals."""
        raise NotImplementedError(f"{type(self).__name__} is not moved")


class Term(Block):
    """A convex term of the objective."""

    soft: Constraint | None = None
    """The set whose half squared distance this is."""

    def tangent(self, point: Array) -> Array:
        """Return the dual array of a subgradient near a point."""
        return self.dual(point, self.prox(point, 1.0), 1.0)

    @abstractmethod
    def change(self, point: Array, spread: Spread) -> float:
        """Return by how much the value may change within a spread of the point."""

    @abstractmethod
    def size(self, point: Array) -> float:
        """Return the absolute values of what the term's value is a sum or difference of: the gap is relative to it."""


DIFFERENCE = 1e-5
"""How far, relatively, a point is moved to see how an unknown prox responds: a user's may be exact to eight digits."""


def response_by_differences(prox: Callable[[Array], Array], point: Array, proxed: Array) -> Response:
    """Return the response of a prox known by its values alone, from one value for each entry."""
    size, way = float(np.max(np.abs(point))), float(np.max(np.abs(point - proxed)))
    # A point just outside of a set must stay outside.
    step = max(min(DIFFERENCE * size, 0.01 * way), 1e-6 * DIFFERENCE * size, 1e-300)
    change = np.stack([prox(point + step * unit) - proxed for unit in np.eye(point.size)], axis=1) / step
    taken = np.eye(point.size) - (change + change.T) / 2
    values, vectors = np.linalg.eigh(taken)
    kept = values > 1e-6
    return Response(np.zeros(point.size), vectors[:, kept] * np.sqrt(np.minimum(values[kept], 1.0)))


def masked(mask: Any) -> Array:
    """Return ones where ``mask`` is true, zeros elsewhere."""
    return np.asarray(mask, dtype=np.float64)
