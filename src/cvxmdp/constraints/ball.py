"""Stay near a given occupancy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cvxmdp.constraints.base import check_point, number, numbers
from cvxmdp.mdp import MDP, Array

FLOOR = 1e-6


class NormBall:
    """``{d : |d - center| <= radius}`` in the Euclidean norm.

    Parameters
    ----------
    center : array of shape (num_pairs,)
        An occupancy, for instance that of an expert: ``mdp.evaluate(policy).occupancy``.
    radius : float
        At least 0.
    norm : 2
        The norm.
    name : str
        Used in messages and results.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> cm.NormBall(center=np.array([0.0, 0.0]), radius=1.0).project(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    def __init__(self, center: npt.ArrayLike, radius: float, norm: float = 2, name: str = "ball") -> None:
        self.center: Array = numbers("center", center)
        if self.center.ndim != 1 or not np.all(np.isfinite(self.center)):
            raise ValueError("center must be a vector of finite numbers with one entry for each pair")
        self.radius = number("radius", radius)
        if self.radius < 0:
            raise ValueError(f"radius is {radius}; it must be at least 0")
        if norm != 2:
            raise ValueError(f"norm is {norm}; only the Euclidean norm, norm=2, is supported")
        self.name = name

    def bind(self, mdp: MDP) -> NormBall:
        """Check that the center has one entry for each pair of a model."""
        if self.center.size != mdp.num_pairs:
            raise ValueError(f"center has {self.center.size} entries; the model has {mdp.num_pairs} pairs")
        return self

    def project(self, point: Array) -> Array:
        """Move a point outside straight towards the center."""
        offset = check_point(point, self.center.size) - self.center
        distance = np.linalg.norm(offset)
        if distance <= self.radius:
            return point
        return np.asarray(self.center + (self.radius / distance) * offset)

    def violation(self, point: Array) -> float:
        """Return the distance beyond the radius."""
        offset = check_point(point, self.center.size) - self.center
        return max(float(np.linalg.norm(offset)) - self.radius, 0.0)

    def relative(self, point: Array) -> float:
        """Return the distance beyond the radius, relative to the radius."""
        return self.violation(point) / max(self.radius, FLOOR * float(np.linalg.norm(self.center)), 1e-300)

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        """Return the normal itself."""
        return scale * (point - projected)

    def normal(self, dual: Array) -> tuple[Array, float]:
        """Return the normal and its largest value over the ball."""
        u = check_point(dual, self.center.size)
        return u, float(u @ self.center + self.radius * np.linalg.norm(u))

    def price(self, dual: Array) -> float:
        """Return the change of the optimum for each unit of radius."""
        return -float(np.linalg.norm(dual))
