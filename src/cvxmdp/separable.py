"""Curved limits that are sums over pairs: at given advantages and a price the best d is known in closed form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from cvxmdp.reading import Array


@dataclass(frozen=True, eq=False)
class BestReply:
    """The best d at given advantages and price."""

    d: Array
    least: float
    """``(c + M V)'d + mu F(d)``."""
    value: float
    """``F(d)``."""
    slope: Array
    """``F'(d)``, up to a constant."""
    weights: Array
    """``1 / (mu F''(d))``, zero where d is held at zero."""
    price: float
    even: bool = False
    """Whether d is held to a sum of one, so that the Hessian is of differences from the mean."""
    shift: float = 0.0
    """What the slope lacks of ``F'(d)``."""


class Separable(ABC):
    """A limit ``F(d) <= bound`` with F a strictly convex sum over pairs."""

    bound: float
    scale: float
    """What the tolerance is relative to."""

    @abstractmethod
    def respond(self, q: Array, mu: float) -> BestReply:
        """Return the best d at advantages q and price mu."""

    @abstractmethod
    def price(self, q: Array) -> float:
        """Return about the price at which d would meet the limit."""

    @abstractmethod
    def dual(self, response: BestReply, mu: float) -> Array:
        """Return the dual array of the constraint."""

    @abstractmethod
    def price_of(self, dual: Array) -> float:
        """Return the price in a dual array."""


class Squares(Separable):
    """``F(d) = sum w (d - center)^2 / 2``, with its bound."""

    def __init__(self, center: Array, radius: float, weights: Array | None) -> None:
        self.center, self.bound = center, radius**2 / 2
        self.w = np.ones_like(center) if weights is None else weights
        self.scale = radius**2

    def respond(self, q: Array, mu: float) -> BestReply:
        d = np.maximum(self.center - q / (mu * self.w), 0.0)
        away = d - self.center
        slope = self.w * away
        value = float(slope @ away) / 2
        return BestReply(d, float(q @ d) + mu * value, value, slope, np.where(d > 0, 1 / (mu * self.w), 0.0), mu)

    def price(self, q: Array) -> float:
        return float(np.sqrt(q @ (q / self.w) / (2 * self.bound)))

    def dual(self, response: BestReply, mu: float) -> Array:
        return mu * response.slope

    def price_of(self, dual: Array) -> float:
        return float(np.sqrt(dual @ (dual / self.w) / (2 * self.bound)))


class Entropies(Separable):
    """``F(d) = sum d log(d / r)``, with its bound; d adds up to one."""

    def __init__(self, reference: Array, bound: float) -> None:
        self.reference, self.bound = reference, bound
        self.scale = max(abs(bound), 1e-300)
        with np.errstate(divide="ignore"):
            self.log_reference = np.log(self.reference)

    def respond(self, q: Array, mu: float) -> BestReply:
        g = self.log_reference - q / mu
        top = float(np.max(g))
        d = np.exp(g - top)
        total = float(d.sum())
        d /= total
        log_total = top + np.log(total)
        slope = -q / mu  # log(d / r) is this less the logarithm of the total
        mean = float(d @ slope)
        return BestReply(d, -mu * log_total, mean - log_total, slope - mean, d / mu, mu, True, mean - log_total)

    def price(self, q: Array) -> float:
        r = self.reference / self.reference.sum()
        room = max(self.bound + np.log(self.reference.sum()), 1e-12)
        return float(np.sqrt(max(r @ q**2 - (r @ q) ** 2, 1e-300) / (2 * room)))

    def dual(self, response: BestReply, mu: float) -> Array:
        some = self.reference > 0
        u = np.zeros_like(self.reference)
        # From the advantages, since the logarithm of a d that underflowed says nothing.
        u[some] = mu * (response.slope[some] + response.shift + 1.0)
        return np.append(u, mu)

    def price_of(self, dual: Array) -> float:
        return float(dual[-1])
