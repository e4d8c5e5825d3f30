"""Budgets that hold whatever the true cost is, within a set of errors (Example 4 of the paper)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.barriers import Barrier, Cone, View
from cvxmdp.blocks import Constraint, Response, Spread, Stated
from cvxmdp.cones import OfMultipliers, Stating
from cvxmdp.constraints.arguments import check_point, number, numbers
from cvxmdp.constraints.base import EPS, FLOOR, Ranked, ranked, unit
from cvxmdp.constraints.linear import Linear
from cvxmdp.constraints.root import positive_root
from cvxmdp.mdp import MDP, Array

CLEAR = 1e-8
"""By how much, relatively, a multiplier is kept above the root ``sqrt(y'Qy)``, of which half the digits may cancel."""


MOST_AXES = 400
"""Axes of a turned ellipsoid that path following takes: each costs a solve with the factor in every step."""
DOUBLE_ROUNDING = 8 * EPS / float(np.finfo(np.longdouble).eps)
"""What rounding does to entries in double precision, in units of what it does in extended precision."""


class Ellipsoid:
    """Cost errors ``{e : e = Q^(1/2) x, |x| <= 1}``, that is ``e'Q^-1 e <= 1`` where Q can be inverted.

    Parameters
    ----------
    matrix : array of shape (num_pairs, num_pairs) or (num_pairs,), optional
        Q, symmetric and without negative eigenvalues, for instance a covariance times a quantile; or its diagonal.
    factors : array of shape (num_pairs, k), optional
        Instead: a few common factors F, for ``Q = F F'``.  Errors are ``F x`` with ``|x| <= 1``: each column is what
        one factor, such as the price of fuel, does to the cost of each pair.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> cm.Ellipsoid([4.0, 0.0]).worst(np.array([0.5, 0.5]))
    1.0
    >>> cm.Ellipsoid(factors=[[1.0], [3.0]]).worst(np.array([0.5, 0.5]))
    2.0
    """

    def __init__(self, matrix: npt.ArrayLike | None = None, *, factors: npt.ArrayLike | None = None) -> None:
        if (matrix is None) == (factors is None):
            raise ValueError("an Ellipsoid needs matrix= or factors=, one of them")
        self.basis: Array | None = None
        """Eigenvectors as columns, of a thin one those of its factors; None where Q is diagonal."""
        self.axes: Array
        """Eigenvalues, for projections; what a vector costs at worst is computed from Q itself."""
        self.matrix: Array | None = None
        """Q or its diagonal; None where factors are given."""
        self.factors: Array | None = None
        if factors is not None:
            F = numbers("factors", factors)
            if F.ndim != 2 or F.size == 0 or not np.all(np.isfinite(F)):
                raise ValueError(
                    f"factors has shape {F.shape}; give one row a pair and one column for each common factor, of "
                    "finite numbers"
                )
            self.size, self.factors = F.shape[0], F
            self.basis, roots, _ = np.linalg.svd(F, full_matrices=False)
            self.axes = roots**2
        else:
            self._read(numbers("matrix", matrix))

    def _read(self, Q: Array) -> None:
        """Take a matrix, or a diagonal."""
        if (
            Q.ndim not in (1, 2)
            or Q.size == 0
            or (Q.ndim == 2 and Q.shape[0] != Q.shape[1])
            or not np.all(np.isfinite(Q))
        ):
            raise ValueError(f"matrix has shape {Q.shape}; give a square matrix or its diagonal, of finite numbers")
        self.size = Q.shape[0]
        self.axes = Q
        if Q.ndim == 2:
            if np.max(np.abs(Q - Q.T)) > 1e-9 * np.max(np.abs(Q), initial=0.0):
                raise ValueError("matrix is not symmetric")
            Q = (Q + Q.T) / 2
            self.axes, self.basis = np.linalg.eigh(Q)
        if np.min(self.axes) < -1e-12 * np.max(np.abs(self.axes)):
            raise ValueError(f"matrix has the eigenvalue {np.min(self.axes):g}; none may be negative")
        if self.basis is not None:  # smaller ones are rounding of the decomposition
            self.axes = np.where(self.axes > 1e-14 * np.max(self.axes), self.axes, 0.0)
        self.matrix = Q

    def times(self, d: Array) -> Array:
        """Return ``Q d``."""
        if self.factors is not None:
            return np.asarray(self.factors @ (self.factors.T @ d))
        assert self.matrix is not None
        return np.asarray(self.matrix * d if self.matrix.ndim == 1 else self.matrix @ d)

    def sizes(self, d: Array) -> Array:
        """Return ``|Q| d`` with absolute values, of the factors where there are some."""
        if self.factors is not None:
            return np.asarray(np.abs(self.factors) @ (np.abs(self.factors).T @ d))
        assert self.matrix is not None
        return np.asarray(np.abs(self.matrix) * d if self.matrix.ndim == 1 else np.abs(self.matrix) @ d)

    @property
    def deviations(self) -> Array:
        """The worst error of each pair: the root of Q's diagonal."""
        if self.factors is not None:
            return np.asarray(np.linalg.norm(self.factors, axis=1))
        assert self.matrix is not None
        return np.sqrt(np.maximum(self.matrix if self.matrix.ndim == 1 else np.diagonal(self.matrix), 0.0))

    def worst(self, d: Array) -> float:
        """Return the largest ``e'd``, which is ``sqrt(d'Qd)``."""
        largest = float(np.max(np.abs(d), initial=0.0))
        if largest == 0.0:
            return 0.0
        x = d / largest  # squares of tiny visits must not vanish
        if self.factors is not None:
            return largest * float(np.linalg.norm(self.factors.T @ x))
        return largest * float(np.sqrt(max(float(x @ self.times(x)), 0.0)))


class Box:
    """Cost errors ``{e : -half_widths <= e <= half_widths}``.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> cm.Box([0.1, 0.2]).worst(np.array([0.5, 0.5]))
    0.15000000000000002
    """

    def __init__(self, half_widths: npt.ArrayLike) -> None:
        self.half_widths = numbers("half_widths", half_widths)
        if self.half_widths.ndim > 1 or not np.all(np.isfinite(self.half_widths)) or np.any(self.half_widths < 0):
            raise ValueError("half_widths must be finite numbers, at least 0: one for all pairs, or one a pair")
        self.size = self.half_widths.size if self.half_widths.ndim else None

    def worst(self, d: Array) -> float:
        """Return the largest ``e'd``."""
        return float(np.sum(self.half_widths * np.abs(d)))


class Vertices:
    """Cost errors that are mixtures of the given ones.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> cm.Vertices([[0.0, 0.0], [1.0, -1.0]]).worst(np.array([0.75, 0.25]))
    0.5
    """

    def __init__(self, errors: npt.ArrayLike) -> None:
        self.errors = np.atleast_2d(numbers("errors", errors))
        if self.errors.ndim != 2 or self.errors.size == 0 or not np.all(np.isfinite(self.errors)):
            raise ValueError("errors must be a list of cost errors, each with one finite number a pair")
        self.size = self.errors.shape[1]

    def worst(self, d: Array) -> float:
        """Return the largest ``e'd``."""
        return float(np.max(self.errors @ d))


class RobustBudget(Ranked):
    """``{d : cost'd + max over errors e of e'd <= at_most}``: a budget on the worst-case cost.

    Parameters
    ----------
    cost : str, array of shape (num_pairs,) or None
        The nominal cost by name or as a vector.  With None only the degradation ``max e'd`` is limited, as in the
        paper's Example 4.
    uncertainty : Ellipsoid, Box or Vertices
        The errors of the cost.
    at_most : float
        The limit.
    name : str, optional
        Used in messages and results; the cost's name when not given.
    priority, weight : int, float, optional
        For ``solve(when_infeasible=...)``: limits of priority 1 are met first, and the weight is the excess that counts
        as much as exceeding another limit by its own size.

    Notes
    -----
    Since occupancies are never negative, the worst error in a box is its upper corner: the constraint is one linear row
    with the cost raised by the half-widths.  Vertices give one row each.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> mdp = cm.worlds.gridworld(size=5)
    >>> limit = cm.RobustBudget("collision", cm.Ellipsoid(np.full(mdp.num_pairs, 1e-4)), at_most=0.05)
    >>> cm.Problem(mdp, "time", [limit]).solve().status.name
    'OPTIMAL'
    """

    def __init__(
        self,
        cost: str | npt.ArrayLike | None,
        uncertainty: Any,
        at_most: float,
        name: str | None = None,
        priority: int = 1,
        weight: float | None = None,
    ) -> None:
        self._rank(priority, weight)
        if not isinstance(uncertainty, (Ellipsoid, Box, Vertices)):
            raise ValueError(f"uncertainty is a {type(uncertainty).__name__}; give cm.Ellipsoid, cm.Box or cm.Vertices")
        self.cost = cost if cost is None or isinstance(cost, str) else numbers("cost", cost)
        self.uncertainty, self.at_most = uncertainty, number("at_most", at_most)
        self.name = name if name is not None else cost if isinstance(cost, str) else "robust budget"

    def bind(self, mdp: MDP) -> Constraint:
        """Return the constraint in a model."""
        if mdp.world is not None:
            raise ValueError(f"{self.name!r} needs all pairs in one place; robust budgets are not for several ranks")
        cost = np.zeros(mdp.num_pairs) if self.cost is None else mdp.cost(self.cost)
        return self._limit(cost)

    def _limit(self, cost: Array) -> Constraint:
        errors = self.uncertainty
        if errors.size not in (cost.size, None):
            raise ValueError(
                f"the uncertainty of {self.name!r} has {errors.size} entries; the model has {cost.size} pairs"
            )
        if isinstance(errors, Ellipsoid):
            return EllipsoidBudget(self.name, cost, errors, self.at_most)
        rows = cost + (errors.half_widths if isinstance(errors, Box) else errors.errors)
        return Linear(rows, at_most=self.at_most, name=self.name)

    def _vector(self, point: Array) -> Constraint:
        if isinstance(self.cost, str):
            raise ValueError(f"the budget names the cost {self.cost!r}; bind it to a model first: budget.bind(mdp)")
        cost = np.zeros(np.size(point)) if self.cost is None else numbers("cost", self.cost)
        if cost.ndim != 1 or not np.all(np.isfinite(cost)):
            raise ValueError(f"cost has shape {cost.shape}; it must be a vector of finite numbers")
        return self._limit(cost)

    def project(self, point: Array) -> Array:
        """Return the nearest member; needs a cost given as a vector."""
        return self._vector(point).project(point)

    def violation(self, point: Array) -> float:
        """Return the excess over the limit; needs a cost given as a vector."""
        return self._vector(point).violation(point)


class EllipsoidBudget(Constraint):
    """``cost'd + |L'd| <= at_most`` with ``Q = L L'``.

    Projections are made in the basis of Q's eigenvectors, where L is diagonal; with few factors the rest, which Q takes
    to zero, is kept as it is beside the coordinates in their basis.  The dual array is the multiplier m followed by a
    vector y: the normal is ``m cost + Q y`` and ``m at_most`` its largest value, where
    ``sqrt(y'Qy) <= m`` (else m is that root).
    """

    has_cones = True

    def __init__(self, name: str, cost: Array, errors: Ellipsoid, at_most: float) -> None:
        self.name, self.errors, self.at_most = name, errors, at_most
        self.cost = cost
        self._thin = errors.factors is not None
        self._q = np.concatenate([errors.axes, np.zeros(cost.size)]) if self._thin else errors.axes
        self._c = self._turn(cost)
        self._last: tuple[Array, tuple[Array, float, float]] | None = None

    def bind(self, mdp: MDP) -> EllipsoidBudget:
        check_point(self.cost, mdp.num_pairs)
        return self

    def idle(self) -> Array:
        return np.zeros(self.cost.size + 1)

    def contradiction(self) -> Array | None:
        """Below zero the set is empty if some error cancels the cost: then the worst case is never negative."""
        q = self._q
        if self.at_most >= 0 or np.any(self._c[q == 0] != 0):
            return None
        y = np.zeros_like(q)
        y[q > 0] = -self._c[q > 0] / q[q > 0]
        return np.append(1.0, self._back(y)) if float(q @ (y * y)) <= 1 else None

    def _turn(self, d: Array) -> Array:
        basis = self.errors.basis
        if basis is None:
            return d
        along = basis.T @ d
        return np.concatenate([along, d - basis @ along]) if self._thin else np.asarray(along)

    def _back(self, x: Array) -> Array:
        basis = self.errors.basis
        if basis is None:
            return x
        if self._thin:
            return np.asarray(basis @ x[: basis.shape[1]] + x[basis.shape[1] :])
        return np.asarray(basis @ x)

    def _worst(self, d: Array) -> float:
        return float(self.cost @ d) + self.errors.worst(d)

    def cones(self, stating: Stating) -> OfMultipliers:
        q, basis = self.errors.axes, self.errors.basis
        root = np.sqrt(q)
        turned = sp.diags_array(root) if basis is None else root[:, None] * basis.T
        blocks = stating.of(sp.csc_array(sp.vstack([self.cost[None, :], -turned])))
        blocks |= {t: np.vstack([unit, np.zeros((q.size, 1))]) for t, unit in stating.room(self.units(True)).items()}
        where = stating.program.add("second order", blocks, np.append(self.at_most, np.zeros(q.size)))

        def dual(z: Array) -> Array:
            y = np.divide(-z[where][1:], root, where=q > 0, out=np.zeros(q.size))
            return np.append(max(float(z[where][0]), 0.0), y if basis is None else basis @ y)

        return dual

    def _onto(self, point: Array) -> tuple[Array, float, float]:
        """Solve for a point; what was projected last is asked for again by ``dual`` and ``response``."""
        last = self._last  # read and written at once: other threads may project meanwhile
        if last is None or not np.array_equal(last[0], point):
            self._last = last = (point.copy(), self._solve(self._turn(point)))
        return last[1]

    def _solve(self, y: Array) -> tuple[Array, float, float]:
        """Return the projection in the eigenbasis, the multiplier m of the limit, and ``k = m / |L'd|``.

        For fixed m the point is the prox of ``m |L'd|`` at ``y - m c``: ``d = (y - m c) / (1 + k Q)``, where k is inf
        if the point lies where Q is zero.
        """
        q, c = self._q, self._c
        scale = float(np.linalg.norm(c)) + float(np.sqrt(np.max(q)))
        if scale == 0.0:
            return y, 0.0, 0.0
        found: dict[float, tuple[Array, float]] = {}

        def excess(m: float) -> tuple[float, float]:
            d, k = self._prox(y - m * c, m)
            found[m] = d, k
            along, slope = self._along(d, k)
            value = float(c @ d) + float(np.sqrt(q @ (d * d))) - self.at_most
            return value / scale, -float(slope @ along) / scale

        start = max(float(c @ y) + float(np.sqrt(q @ (y * y))) - self.at_most, 1e-300) / scale**2
        m = positive_root(excess, start, 1e-16 * (float(np.linalg.norm(y)) + abs(self.at_most) / scale))
        d, k = found[m] if m in found else self._prox(y - m * c, m)
        return d, m, k

    def _prox(self, y: Array, m: float) -> tuple[Array, float]:
        """Return the prox of ``m |L'd|`` and the root k of ``k |L'y / (1 + k Q)| = m``, inf where there is none."""
        q = self._q
        charged = q > 0
        if float(np.linalg.norm(y[charged] / np.sqrt(q[charged]))) <= m:
            return np.where(charged, 0.0, y), np.inf

        def lacking(k: float) -> tuple[float, float]:
            z = y / (1 + k * q)
            size = max(float(np.sqrt(q @ (z * z))), 1e-300)
            slope = size - k * float(q @ (z * z * q / (1 + k * q))) / size
            return 1 - k * size / m, -slope / m

        start = m / max(float(np.sqrt(q @ (y * y))), 1e-300)
        k = positive_root(lacking, start, 1e-15)
        return y / (1 + k * q), k

    def _inside(self, point: Array) -> bool:
        """Whether the point obeys, but for what rounding may add to its cost."""
        size = float(np.abs(self.cost) @ np.abs(point)) + self.errors.worst(point)
        return self._worst(point) <= self.at_most + 4 * EPS * (size + abs(self.at_most))

    def project(self, point: Array) -> Array:
        point = check_point(point, self.cost.size)
        if self._inside(point):
            return point
        return self._back(self._onto(point)[0]).copy()

    def violation(self, point: Array) -> float:
        return max(self._worst(check_point(point, self.cost.size)) - self.at_most, 0.0)

    def level(self, point: Array) -> float:
        return self._worst(check_point(point, self.cost.size))

    def relative(self, point: Array, spread: Spread | None = None) -> float:
        size = float(np.abs(self.cost) @ np.abs(point)) + self.errors.worst(point)
        largest = float(np.max(np.abs(self.cost))) + float(np.sqrt(np.max(self.errors.axes)))
        least = FLOOR * largest if self.at_most == 0 else 0.0
        error = 0.0 if spread is None else float(spread.of(np.abs(self.cost) + self.errors.deviations))
        if spread is not None and self.errors.basis is not None and not self._thin:  # what cancels in d'Qd
            error += float(np.sqrt(EPS * point.size)) * float(self.errors.deviations @ point)
        return max(self._worst(point) + error - self.at_most, 0.0) / max(abs(self.at_most), size, least, 1e-300)

    def stated(self) -> Stated:
        of_errors = (
            {"factors": self.errors.factors.T} if self.errors.factors is not None else {"matrix": self.errors.matrix}
        )
        return {"kind": "ellipsoid", "at_most": self.at_most}, {"cost": self.cost, **of_errors}

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        if self._inside(point):
            return np.zeros(self.cost.size + 1)
        d, m, k = self._onto(point)
        q, rest = self._q, self._turn(point) - m * self._c
        if np.isfinite(k):  # what Q takes to zero would only blunt y'Qy
            return scale * np.append(m, k * self._back(np.where(q > 0, d, 0.0)))
        y = np.divide(rest, q, where=q > 0, out=np.zeros_like(q))
        return scale * np.append(m, self._back(y))

    def _multiplier(self, dual: Array) -> tuple[Any, Array]:
        """Return m, at least ``sqrt(y'Qy)``, and y."""
        y = check_point(dual, self.cost.size + 1)[1:]
        largest = np.max(np.abs(y), initial=0.0)
        if largest == 0.0:
            return max(dual[0], 0 * largest), y
        x = y / largest
        return max(dual[0], largest * np.sqrt(max(x @ self.errors.times(x), 0 * largest))), y

    def explicit(self, dual: Array) -> Array:
        m, y = self._multiplier(dual)
        return np.append(m * (1 + CLEAR), y)

    def normal(self, dual: Array) -> tuple[Array, float]:
        m, y = self._multiplier(dual)
        return m * self.cost + self.errors.times(y), m * self.at_most

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        m, y = self._multiplier(dual)
        x = self.errors.sizes(np.abs(y))
        sizes = self.cost.size * (m * np.abs(self.cost) + x)  # each product with Q has as many terms as there are pairs
        if self.errors.basis is not None and not self._thin:
            # Q is semidefinite up to the rounding of its own entries, which no precision makes good.
            sizes = sizes + DOUBLE_ROUNDING * self.cost.size * float(np.max(self.errors.axes)) * float(
                np.linalg.norm(y)
            )
        return sizes, float(m) * abs(self.at_most)

    def price(self, dual: Array) -> float:
        return -float(self._multiplier(dual)[0])

    def relaxed(self, amount: float, relative: bool = False) -> EllipsoidBudget:
        more = amount * self.units(relative)
        at_most = self.at_most + more
        if abs(at_most) <= 4 * EPS * more:
            at_most = 0.0  # where rounding would leave it below, the set may be empty
        return ranked(EllipsoidBudget(self.name, self.cost, self.errors, at_most), self)

    def units(self, relative: bool) -> float:
        largest = float(np.max(np.abs(self.cost))) + float(np.sqrt(np.max(self.errors.axes)))
        return float(unit(self, relative, abs(self.at_most) or largest or 1.0))

    def ease(self, dual: Array, relative: bool = False) -> float:
        return float(self._multiplier(dual)[0]) * self.units(relative)

    def said(self, amount: float = 0.0) -> str:
        return f"at most {self.at_most + amount:.6g} in the worst case"

    def _bend(self, d: Array, k: float) -> tuple[Array, Array, Array]:
        """Return the derivative of the prox, ``diag(share) + bent bent'``, and the pull ``Q d / |L'd|``.

        The Hessian of ``m |L'd|`` is ``k Q - k pull pull'``.
        """
        q = self._q
        size = float(np.sqrt(q @ (d * d)))
        if size == 0 or not np.isfinite(k):
            return np.asarray(q == 0, dtype=np.float64), np.zeros_like(d), np.zeros_like(d)
        share, pull = 1 / (1 + k * q), q * d / size
        rest = 1 / k - float(pull @ (share * pull))
        return share, share * pull / np.sqrt(rest) if rest > 0 else np.zeros_like(d), pull

    def _along(self, d: Array, k: float) -> tuple[Array, Array]:
        """Return the derivative of the prox times the gradient of the limit, and that gradient."""
        share, bent, pull = self._bend(d, k)
        slope = self._c + pull
        return share * slope + bent * float(bent @ slope), slope

    def room(self) -> float:
        largest = float(np.max(np.abs(self.cost))) + float(np.sqrt(np.max(self.errors.axes)))
        return min(1.0, abs(self.at_most) / largest) or 1.0 if largest > 0 else 1.0

    def barrier(self, view: View, unit: float) -> Barrier | None:
        errors = self.errors
        if errors.basis is None:
            Q = view.take(errors.axes)
        else:
            some = errors.axes > 0
            if np.count_nonzero(some) > MOST_AXES:
                return None
            Q = view.take((errors.basis[:, some] * np.sqrt(errors.axes[some])).T).T
        cone = Cone(view, 0.0, Q, (view.take(self.cost), self.at_most), 0.0)

        def dual(unit: float, price: float, lack: Array) -> Array:
            m, y = unit * cone.m[2] / cone.unit, unit * cone.m[1]
            return np.append(m, view.fill(y * cone.ratio))

        return Barrier([cone], dual)

    def response(self, point: Array, projected: Array, step: float) -> Response:
        if self._inside(point):
            return Response(np.zeros_like(point))
        d, _, k = self._onto(point)
        share, bent, _ = self._bend(d, k)
        along, slope = self._along(d, k)
        factor = np.stack([bent, along / np.sqrt(max(float(slope @ along), 1e-300))], axis=1)
        signs = np.array([-1.0, 1.0])
        if self.errors.basis is None:
            return Response(1 - share, factor, signs)
        # In a turned basis the diagonal is no diagonal: it becomes a factor of its own.
        count = self.errors.axes.size  # what Q takes to zero is not moved
        turned = self.errors.basis * np.sqrt(1 - share[:count])
        return Response(
            np.zeros_like(point), np.hstack([turned, self._back(factor)]), np.concatenate([np.ones(count), signs])
        )
