"""The convex terms of an objective: their values, and what a dual array proves of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxmdp_verifier.errors import Refused, shown
from cvxmdp_verifier.extended import EPS, EPS64, GROWN, LD, Close, Real, dot, dual_norm, extended, norm, scaled
from cvxmdp_verifier.fields import Arrays, has_keys, number, text
from cvxmdp_verifier.limits import exponentials, relative_entropy
from cvxmdp_verifier.model import Model
from cvxmdp_verifier.policy import Point

ValueAndProx = tuple[Callable[[Any], float], Callable[[Any, float], Any]]


@dataclass(frozen=True)
class Slope:
    """An affine function ``u'd - top`` that is nowhere above a term; rounding is in ``error`` and ``top``."""

    u: Real
    error: Real
    top: Real

    def at(self, pairs: slice) -> Close:
        """Return u for some pairs, with what rounding may have done to it."""
        return Close(self.u[pairs], self.error[pairs])


@dataclass(frozen=True)
class Term:
    """What terms of every kind have."""

    name: str
    model: Model

    def value(self, point: Point) -> tuple[Close, Real]:
        """Return the term at a point, and the size of what it is a sum of."""
        raise NotImplementedError

    def slope(self, dual: Real) -> Slope:
        """Return what a dual array proves."""
        raise NotImplementedError

    def dual_size(self) -> int:
        """How long a dual array is."""
        raise NotImplementedError

    def words(self) -> str:
        """Say what the term is."""
        raise NotImplementedError


@dataclass(frozen=True)
class Distance(Term):
    """``weight |d - center|_p``."""

    center: Real
    weight: Real
    p: float

    def value(self, point: Point) -> tuple[Close, Real]:
        away = norm(point.d - self.center, self.p)
        change = norm(point.delta + 4 * EPS * (np.abs(point.d) + np.abs(self.center)), self.p).high
        size = self.weight * (norm(point.d, self.p).value + norm(self.center, self.p).value)
        return scaled(Close(away.value, (away.error + change + point.t) * GROWN), self.weight), size

    def slope(self, dual: Real) -> Slope:
        length = dual_norm(dual, self.p).high
        if not np.isfinite(length):
            return Slope(dual, LD(0) * dual, LD(np.inf))
        # Any vector that is short enough will do, so the shrunk one is exact by definition.
        u = dual if length <= self.weight else dual * (self.weight / length * (1 - 8 * EPS))
        return Slope(u, LD(0) * u, dot(u, self.center).high)

    def dual_size(self) -> int:
        return int(self.center.size)

    def words(self) -> str:
        return f"{float(self.weight):.9g} times the {self.p:g}-norm distance to its center"


@dataclass(frozen=True)
class Entropic(Term):
    """``weight sum x log(x / reference)`` over allowed pairs or over states."""

    reference: Real
    allowed: Real | None
    weight: Real
    of: str

    def value(self, point: Point) -> tuple[Close, Real]:
        x, off = (point.d, point.delta) if self.of == "pairs" else (point.x, point.w)
        if self.allowed is not None:
            x, off = x[self.allowed], off[self.allowed]
        value, size = relative_entropy(x, off, point.t, self.reference)
        return scaled(value, self.weight), self.weight * size

    def slope(self, dual: Real) -> Slope:
        top = scaled(exponentials(dual, self.weight, self.reference), self.weight).high
        if self.of == "states":
            u = dual[self.model.state]
        elif self.allowed is not None:
            u = np.zeros(self.model.num_pairs, dtype=LD)
            u[self.allowed] = dual
        else:
            u = dual
        return Slope(u, LD(0) * u, top)

    def dual_size(self) -> int:
        return int(self.reference.size)

    def words(self) -> str:
        if np.all(self.reference == 1):
            return f"{float(self.weight):.9g} times the negative entropy of {self.of}"
        where = "" if self.allowed is None else " that the reference visits"
        return f"{float(self.weight):.9g} times the relative entropy of {self.of}{where} to its reference"


@dataclass(frozen=True)
class Custom(Term):
    """A user's own term, known by its value and its prox."""

    given: ValueAndProx

    def _at(self, point: Real) -> float:
        value = float(self.given[0](np.asarray(point, dtype=np.float64).copy()))
        if not np.isfinite(value):
            raise Refused(f"the value given for the term {shown(self.name)} is not finite")
        return value

    def value(self, point: Point) -> tuple[Close, Real]:
        value = self._at(point.d)
        even = self._at(np.full(point.d.size, 1 / point.d.size))
        size = max(abs(value), 1e-3 * abs(even))
        # How fast the user's function changes is not known: its values where the error reaches stand in for that.
        reach = [self._at(np.asarray(point.d + sign * point.delta, dtype=np.float64)) for sign in (1, -1)]
        change = max(abs(other - value) for other in reach)
        return Close(LD(value), LD(change + 64 * EPS64 * size)), LD(size)

    def slope(self, dual: Real) -> Slope:
        y = np.asarray(dual, dtype=np.float64)
        z = np.asarray(self.given[1](y.copy(), 1.0), dtype=np.float64)
        if z.shape != y.shape or not np.all(np.isfinite(z)):
            raise Refused(f"the prox given for the term {shown(self.name)} does not return a finite point")
        u = dual - extended(z)
        value = LD(self._at(z))
        inner = dot(u, extended(z))
        top = Close(inner.value - value, inner.error + 4 * EPS * (abs(inner.value) + abs(value))).high
        return Slope(u, EPS * np.abs(u), top)

    def dual_size(self) -> int:
        return self.model.num_pairs

    def words(self) -> str:
        return f"the user's own term {shown(self.name)}, as far as the functions given for it are exact"


def read_term(model: Model, entry: Any, arrays: Arrays, i: int, terms: Mapping[str, ValueAndProx]) -> Term:
    """Read term ``i`` of a solution."""
    if not isinstance(entry, dict) or "kind" not in entry:
        raise Refused(f"term {i} of the solution has no kind")
    name = text(entry.get("name"), f"the name of term {i}")
    what = f"the term {shown(name)}"
    keys = {"distance": ("weight", "p"), "entropic": ("weight", "of"), "custom": ()}
    kind = text(entry["kind"], f"the kind of {what}")
    if kind not in keys:
        raise Refused(f"{what} is of a kind that is not known: {shown(kind)!r}")
    has_keys(entry, ("kind", "name", *keys[kind]), what)
    if kind == "custom":
        if name not in terms:
            raise Refused(f"{what} is the user's own, which is not in the file: give its value and prox in terms")
        return Custom(name, model, terms[name])
    weight = LD(number(entry["weight"], f"the weight of {what}"))
    if not weight > 0:
        raise Refused(f"the weight of {what} is not positive")
    if kind == "distance":
        p = number(entry["p"], f"the norm of {what}", infinite=True)
        if p < 1:
            raise Refused(f"the norm of {what} is not one")
        return Distance(name, model, extended(arrays.floats(f"term:{i}:center", (model.num_pairs,))), weight, p)
    if entry["of"] not in ("pairs", "states"):
        raise Refused(f"{what} is neither of pairs nor of states")
    size = model.num_pairs if entry["of"] == "pairs" else model.num_states
    allowed = None
    if f"term:{i}:allowed" in arrays:
        if entry["of"] == "states":
            raise Refused(f"{what} is of states and allows some pairs only")
        allowed = arrays.bools(f"term:{i}:allowed", (size,))
        size = int(np.count_nonzero(allowed))
    reference = extended(arrays.floats(f"term:{i}:reference", (size,), least=0.0))
    if not np.all(reference > 0):
        raise Refused(f"the reference of {what} has an entry that is not positive")
    return Entropic(name, model, reference, allowed, weight, entry["of"])
