"""What the Newton engine minimizes, piece by piece.

Each piece is a smooth function of the occupancy d that stands for a convex function h with its multiplier u: the
envelope ``min over z of h(z) + |y - z|^2 / (2 sigma)`` at ``y = d + sigma u``, attained at ``z = prox(y)``.  Its
gradient ``(y - z) / sigma`` is the next multiplier, and its Hessian is the prox's response over sigma.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxmdp.blocks import Block, Constraint, Response, Term, masked
from cvxmdp.constraints.linear import Linear
from cvxmdp.mdp import Array


@dataclass(frozen=True, eq=False)
class Touch:
    """A piece at one point: its value, its gradient over pairs, and the y and z behind them."""

    value: float
    gradient: Array
    y: Array
    z: Array


class Piece(ABC):
    """See the module.  ``u`` is the multiplier."""

    u: Array

    @abstractmethod
    def touch(self, d: Array, sigma: float) -> Touch:
        """Evaluate at d."""

    @abstractmethod
    def response(self, touch: Touch, sigma: float) -> Response:
        """Return the Hessian there."""

    def update(self, touch: Touch, sigma: float) -> None:
        """Take the gradient as the next multiplier."""
        self.u = (touch.y - touch.z) / sigma


class Nonnegative(Piece):
    """``d >= 0``."""

    def __init__(self, size: int) -> None:
        self.u = np.zeros(size)

    def touch(self, d: Array, sigma: float) -> Touch:
        y = d + sigma * self.u
        below = np.minimum(y, 0.0)
        return Touch(float(below @ below) / (2 * sigma), below / sigma, y, y - below)

    def response(self, touch: Touch, sigma: float) -> Response:
        return Response(masked(touch.y < 0) / sigma)


class Rows(Piece):
    """Linear rows, each of norm one, met in the space of their values: their intersection is never projected on."""

    def __init__(self, linear: Linear, shift: Array | None = None) -> None:
        self.norms = linear.norms
        self.rows: Any = linear.rows / linear.norms[:, None]
        moved = 0.0 if shift is None else self.rows @ shift
        self.lower, self.upper = linear.lower / self.norms + moved, linear.upper / self.norms + moved
        self.u = np.zeros(self.norms.size)

    def touch(self, d: Array, sigma: float) -> Touch:
        y = self.rows @ d + sigma * self.u
        z = np.clip(y, self.lower, self.upper)
        m = (y - z) / sigma
        return Touch(sigma * float(m @ m) / 2, np.asarray(self.rows.T @ m), y, z)

    def response(self, touch: Touch, sigma: float) -> Response:
        beyond = (touch.y != touch.z) | (self.lower == self.upper)
        size = self.rows.shape[1]
        if not np.any(beyond):
            return Response(np.zeros(size))
        return Response(np.zeros(size), self.rows[beyond].T / np.sqrt(sigma))

    def dual(self, touch: Touch, sigma: float) -> Array:
        """Return the multipliers of the rows as the user gave them."""
        return np.asarray((touch.y - touch.z) / sigma / self.norms)


class Copy(Piece):
    """A constraint, moved by ``shift``, or a convex term, on a copy of the occupancy."""

    def __init__(self, block: Block, size: int, shift: Array | None = None) -> None:
        self.block = block
        self.shift = np.zeros(size) if shift is None else shift
        self.u = np.zeros(size)

    def touch(self, d: Array, sigma: float) -> Touch:
        y = d + sigma * self.u - self.shift
        z = self.block.prox(y, sigma)
        gradient = (y - z) / sigma
        value = self.block.value(z) if isinstance(self.block, Term) else 0.0
        return Touch(value + sigma * float(gradient @ gradient) / 2, gradient, y, z)

    def response(self, touch: Touch, sigma: float) -> Response:
        return _scaled(self.block.response(touch.y, touch.z, sigma), 1 / sigma)

    def dual(self, touch: Touch, sigma: float) -> Array:
        """Return the dual array of the gradient."""
        return self.block.dual(touch.y, touch.z, 1 / sigma)


class Near(Piece):
    """Half the squared distance to a set.  It is smooth as it is and needs no multiplier."""

    def __init__(self, block: Constraint) -> None:
        self.block = block
        self.u = np.zeros(1)

    def touch(self, d: Array, sigma: float) -> Touch:
        z = self.block.project(d)
        return Touch(float((d - z) @ (d - z)) / 2, d - z, d, z)

    def response(self, touch: Touch, sigma: float) -> Response:
        return _scaled(self.block.response(touch.y, touch.z, 1.0), 1.0)

    def update(self, touch: Touch, sigma: float) -> None:
        """Do nothing."""


def _scaled(response: Response, scale: float) -> Response:
    factor = None if response.factor is None else response.factor * np.sqrt(scale)
    more = None if response.more is None else response.more * np.sqrt(scale)
    return Response(response.diagonal * scale, factor, response.signs, more)
