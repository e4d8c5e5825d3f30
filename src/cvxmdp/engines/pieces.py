"""What the Newton engine minimizes, piece by piece.

Each piece is a smooth function of the occupancy d that stands for a convex function h with its multiplier u: the
Moreau envelope ``min over z of h(z) + |y - z|^2 / (2 sigma)`` at ``y = d + sigma u``, attained at ``z = prox(y)``.  Its
gradient ``(y - z) / sigma`` is the next multiplier, and its Hessian is the prox's response over sigma.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxmdp.blocks import Block, Response, masked
from cvxmdp.mdp import Array
from cvxmdp.objectives.nearness import SquaredDistance


@dataclass(frozen=True, eq=False)
class Envelope:
    """A piece's envelope at one point: its value, its gradient over pairs, and the y and z behind them."""

    value: float
    gradient: Array
    y: Array
    z: Array


class Piece(ABC):
    """See the module.  ``u`` is the multiplier."""

    u: Array

    @abstractmethod
    def envelope(self, d: Array, sigma: float) -> Envelope:
        """Evaluate at d."""

    @abstractmethod
    def response(self, at: Envelope, sigma: float) -> Response:
        """Return the Hessian there."""

    def dual(self, at: Envelope, sigma: float) -> Array:
        """Return the dual array of the gradient."""
        return at.gradient

    def begin(self, dual: Array) -> None:
        """Begin with the multiplier of a dual array."""
        self.u = dual

    def update(self, at: Envelope, sigma: float) -> None:
        """Take the gradient as the next multiplier."""
        self.u = (at.y - at.z) / sigma


def piece_of(block: Block, size: int) -> Piece:
    """Return the piece that stands for a block."""
    if block.is_rows:
        return RowsPiece(block)
    return SmoothPiece(block) if block.smooth else CopyPiece(block, size)


class Nonnegative(Piece):
    """``d >= 0``."""

    def __init__(self, size: int) -> None:
        self.u = np.zeros(size)

    def envelope(self, d: Array, sigma: float) -> Envelope:
        y = d + sigma * self.u
        below = np.minimum(y, 0.0)
        return Envelope(float(below @ below) / (2 * sigma), below / sigma, y, y - below)

    def response(self, at: Envelope, sigma: float) -> Response:
        return Response(masked(at.y < 0) / sigma)


class RowsPiece(Piece):
    """Linear rows, each of norm one, met in the space of their values: their intersection is never projected on."""

    def __init__(self, linear: Any) -> None:
        self.norms = linear.norms
        self.rows: Any = linear.rows / linear.norms[:, None]
        self.lower, self.upper = linear.lower / self.norms, linear.upper / self.norms
        self.u = np.zeros(self.norms.size)

    def envelope(self, d: Array, sigma: float) -> Envelope:
        y = self.rows @ d + sigma * self.u
        z = np.clip(y, self.lower, self.upper)
        m = (y - z) / sigma
        return Envelope(sigma * float(m @ m) / 2, np.asarray(self.rows.T @ m), y, z)

    def response(self, at: Envelope, sigma: float) -> Response:
        beyond = (at.y != at.z) | (self.lower == self.upper)
        size = self.rows.shape[1]
        if not np.any(beyond):
            return Response(np.zeros(size))
        return Response(np.zeros(size), self.rows[beyond].T / np.sqrt(sigma))

    def dual(self, at: Envelope, sigma: float) -> Array:
        """Return the multipliers of the rows as the user gave them."""
        return np.asarray((at.y - at.z) / sigma / self.norms)

    def begin(self, dual: Array) -> None:
        """Begin with multipliers of the rows as the user gave them."""
        self.u = dual * self.norms


class CopyPiece(Piece):
    """A constraint, or a convex term, on a copy of the occupancy."""

    def __init__(self, block: Block, size: int) -> None:
        self.block = block
        self.u = np.zeros(size)

    def envelope(self, d: Array, sigma: float) -> Envelope:
        y = d + sigma * self.u
        z = self.block.prox(y, sigma)
        gradient = (y - z) / sigma
        return Envelope(self.block.value(z) + sigma * float(gradient @ gradient) / 2, gradient, y, z)

    def response(self, at: Envelope, sigma: float) -> Response:
        return self.block.response(at.y, at.z, sigma).scaled(1 / sigma)

    def dual(self, at: Envelope, sigma: float) -> Array:
        return self.block.dual(at.y, at.z, 1 / sigma)

    def begin(self, dual: Array) -> None:
        self.u = self.block.normal(dual)[0]


class SmoothPiece(Piece):
    """A term that is smooth as it is and needs no multiplier: half the squared distance to a set."""

    def __init__(self, block: Any) -> None:
        self.block: SquaredDistance = block
        self.u = np.zeros(1)

    def envelope(self, d: Array, sigma: float) -> Envelope:
        z = self.block.nearest(d)
        return Envelope(float((d - z) @ (d - z)) / 2, d - z, d, z)

    def response(self, at: Envelope, sigma: float) -> Response:
        return self.block.curvature(at.y, at.z)

    def dual(self, at: Envelope, sigma: float) -> Array:
        return self.block.gradient(at.y, at.z)

    def update(self, at: Envelope, sigma: float) -> None:
        """Do nothing."""
