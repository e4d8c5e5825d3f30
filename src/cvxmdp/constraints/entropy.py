"""Visit many places, or stay near a reference: limits on ``sum x log(x / r)`` of the pairs or of the states' visits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import rel_entr

from cvxmdp import barriers
from cvxmdp.barriers import Barrier, Curve, View
from cvxmdp.blocks import Constraint, Response, Spread, Stated
from cvxmdp.cones import OfMultipliers, Stating
from cvxmdp.constraints import kernels
from cvxmdp.constraints.arguments import check_point, number, occupancy_of, unbound
from cvxmdp.constraints.base import EPS, FLOOR, Ranked, ranked, scalar, unit
from cvxmdp.constraints.root import positive_root
from cvxmdp.mdp import MDP, Array
from cvxmdp.policy import Policy
from cvxmdp.ranks.scattered import as_array
from cvxmdp.separable import Entropies, Separable

LARGE, STRIDE = 10_000, 31
"""The multiplier of a large point is first sought on every 31st entry: a prime, so that every action is met."""


FAR = 0.03
"""Path following begins with further policies where an entropy is missed by more than this share."""
NO_REACH = 1e-15
"""What pairs that no policy reaches count as in a subgradient, relative to their reference."""


class Entropic:
    """The function ``F(d) = sum x log(x / r)`` with x the pairs' occupancy, or with ``owner`` the states' visits.

    Where x are visits, moving a state's visits by one moves each of its n pairs by 1/n: the distance counts 1/n as
    much, which enters as the entry's ``count`` n.
    """

    def __init__(self, reference: Array, owner: Any = None) -> None:
        self.reference = reference
        self.owner = owner
        self.count = np.ones_like(reference) if owner is None else np.bincount(owner).astype(np.float64)
        with np.errstate(divide="ignore"):
            self.log_ratio = np.log(self.count) - np.log(reference)
        self.pairs = reference.size if owner is None else owner.size

    def entries(self, point: Array) -> Array:
        """Return x of a point over pairs."""
        point = check_point(point, self.pairs)
        return point if self.owner is None else np.bincount(self.owner, weights=point).astype(np.float64)

    def spread(self, point: Array, x: Array, new: Array) -> Array:
        """Return the point nearest to ``point`` whose entries are ``new`` instead of ``x``."""
        return new if self.owner is None else point + ((new - x) / self.count)[self.owner]

    def value(self, x: Array) -> float:
        """Return F, entries below zero taken as zero."""
        return float(np.sum(rel_entr(np.maximum(x, 0.0), self.reference)))

    def change(self, x: Array, spread: Spread) -> float:
        """Return by how much F may change: by convexity, in each entry by the steeper of the slopes at both ends."""
        off = self.entries(spread.entries)
        some = (off > 0) & (self.reference > 0)
        x, off, r = x[some], off[some], self.reference[some]
        below = np.maximum(x - off, 0.0)
        with np.errstate(divide="ignore"):
            steepest = np.maximum(np.abs(np.log((x + off) / r)), np.abs(np.log(below / r))) + 1
        # Near zero the slope is infinite and the change is not.
        near = off > x / 2
        most = np.abs(rel_entr(x, r)) + np.maximum(np.abs(rel_entr(x + off, r)), r / np.e)
        total = float(np.sum(np.where(near, most, off * steepest)))
        if spread.rest > 0:  # Fannes' inequality
            logs = np.abs(np.log(self.reference[self.reference > 0]))
            # A quotient would overflow where the rest is a denormal number.
            share = np.log(self.reference.size) - np.log(min(spread.rest, 0.5))
            total += spread.rest * float(share + np.max(logs) + 1)
        return total

    def smooth(self, view: View, bound: float, unit: float) -> barriers.RelativeEntropy:
        """Return F as path following sees it; a reference of visits is even."""
        reference = view.take(self.reference) if self.owner is None else np.ones(view.num_states)
        return barriers.RelativeEntropy(view, reference, bound, unit, self.owner is not None)

    def subgradient(self, view: View, weight: float, slope: Array, price: float, lack: Array) -> Array:
        """Return ``weight`` times the slope over all entries, and what pairs lack of a reduced cost of zero.

        Entries that are not reached count as next to nothing, and those that are reached less often are raised to that
        at most: a corner that nothing notices may lack any amount, whose conjugate would be infinite.
        """
        nothing = weight * (np.log(NO_REACH) + 1.0)
        out = np.full(self.reference.size, nothing)
        if self.owner is None:
            where, most = (slice(None) if view.kept is None else view.kept), lack
            out[self.reference == 0] = price
        else:
            where, most = view.states, np.zeros(view.num_states)
            np.maximum.at(most, view.owner, lack)
        u = weight * slope
        out[where] = np.where(u < nothing, np.minimum(u + most, nothing), u + most)
        return out

    @property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """Which pairs may be visited: those whose reference is not zero."""
        some: npt.NDArray[np.bool_] = self.reference > 0
        return some if self.owner is None else some[self.owner]

    def shrunk(self, x: Array, step: float) -> Array:
        """Return the prox of ``step F``: the root z of ``z + step count (log(z / r) + 1) = x``."""
        z = np.empty_like(x)
        kernels.entropic(x, self.count, self.log_ratio, step, z)
        return z

    def onto(self, x: Array, bound: float) -> tuple[Array, float]:
        """Return the nearest entries with ``F <= bound``, and the multiplier of the bound."""

        def root(
            y: Array, count: Array, log_ratio: Array, goal: float, out: Array, start: float, tolerance: float
        ) -> float:
            def excess(m: float) -> tuple[float, float]:
                total, slope = kernels.entropic(y, count, log_ratio, m, out)
                return total - goal, slope

            return positive_root(excess, start, tolerance)

        z = np.empty_like(x)
        value, slope = kernels.entropic_start(x, self.count, self.log_ratio, z)
        # What rounding leaves in a sum of that many entries.
        tolerance = EPS * max(4.0, 0.4 * np.sqrt(x.size)) * (abs(bound) + abs(value) + float(z.sum()))
        if value <= bound + tolerance:
            return z, 0.0
        start = (bound - value) / slope if slope < 0 else float(np.max(np.abs(x)) + np.max(self.reference))
        if x.size > LARGE:
            # On a part, seek the multiplier that takes off the part's share of what is to be taken off the whole.
            y, count, log_ratio = (np.copy(v[::STRIDE], order="C") for v in (x, self.count, self.log_ratio))
            out = np.empty_like(y)
            first, _ = kernels.entropic_start(y, count, log_ratio, out)
            share = (value - bound) / STRIDE
            found = root(y, count, log_ratio, first - share, out, start, 1e-4 * share)
            start = found if 1e-6 * start < found < 1e6 * start else start
        return z, root(x, self.count, self.log_ratio, bound, z, start, tolerance)

    def response(self, x: Array, z: Array, step: float, bounded: bool) -> Response:
        """Return how the prox of ``step F`` responds; with ``bounded``, the projection whose multiplier is the step."""
        if step == 0.0:
            share, column = (z > 0).astype(np.float64), None
        else:
            share = z / (z + step * self.count)
            slope = np.zeros_like(z)
            some = z > 0
            slope[some] = np.log(z[some]) - np.log(self.reference[some]) + 1.0
            column = share * slope / np.sqrt(max(float(self.count @ (slope**2 * share)), 1e-300)) if bounded else None
        if self.owner is None:
            return Response(1.0 - share, None if column is None else column[:, None])
        root = np.sqrt((1.0 - share) / self.count)[self.owner]
        index = np.arange(self.pairs)
        factor: Any = sp.csc_array((root, (index, self.owner)), shape=(self.pairs, self.reference.size))
        more = None if column is None else column[self.owner][:, None]
        return Response(np.zeros(self.pairs), factor, more=more)


class EntropicLimit(Constraint):
    """``F(d) <= bound``.  The dual array is the normal over the entries, then the multiplier of the bound."""

    has_cones = True

    def __init__(self, name: str, function: Entropic, bound: float, sign: float) -> None:
        self.name, self.function, self.bound = name, function, bound
        self.sign = sign
        self._last: tuple[Array, Array, float] | None = None

    def bind(self, mdp: MDP) -> EntropicLimit:
        if self.function.pairs != mdp.num_pairs:
            raise ValueError(f"{self.name!r} is bound to a model with {self.function.pairs} pairs, not {mdp.num_pairs}")
        return self

    def project(self, point: Array) -> Array:
        point = check_point(point, self.function.pairs)
        x = self.function.entries(point)
        return self.function.spread(point, x, self._onto(x)[0].copy())

    def violation(self, point: Array) -> float:
        x = self.function.entries(point)
        return max(0.0, self.function.value(x) - self.bound, float(np.max(-x)))

    def level(self, point: Array) -> float:
        return -self.sign * self.function.value(self.function.entries(point))

    def relative(self, point: Array, spread: Spread | None = None) -> float:
        x = self.function.entries(point)
        error = 0.0 if spread is None else self.function.change(x, spread)
        return max(0.0, self.function.value(x) - self.bound + error, float(np.max(-x))) / max(abs(self.bound), FLOOR)

    def stated(self) -> Stated:
        of = "pairs" if self.function.owner is None else "states"
        words = {"kind": "entropic", "of": of, "bound": self.bound, "sign": int(self.sign)}
        return words, {"reference": self.function.reference}

    def idle(self) -> Array:
        return np.append(np.zeros_like(self.function.reference), 0.0)

    def separable(self) -> Separable | None:
        return Entropies(self.function.reference, self.bound) if self.function.owner is None else None

    def cones(self, stating: Stating) -> OfMultipliers:
        """``sum h <= bound`` with ``y log(y / r) <= h``: (-h, y, r) in the exponential cone; y = 0 where r is."""
        reference, owner, program = self.function.reference, self.function.owner, stating.program
        n, some, none = reference.size, np.flatnonzero(reference > 0), np.flatnonzero(reference == 0)
        which = sp.eye_array(stating.pairs, format="csr")
        if owner is not None:
            shape = (n, stating.pairs)
            which = sp.csr_array((np.ones(stating.pairs), (owner, np.arange(stating.pairs))), shape=shape)
        h, at = program.variables(some.size), np.arange(some.size)
        middle = sp.csr_array((np.ones(some.size), (3 * at + 1, at)), shape=(3 * some.size, some.size))
        first = sp.csr_array((np.ones(some.size), (3 * at, at)), shape=(3 * some.size, some.size))
        b = np.zeros(3 * some.size)
        # Entries are measured by their mean, so that the cone sees numbers near one.
        b[2::3] = n * reference[some]
        triples = program.add("exponential", stating.of(-n * (middle @ which[some])) | {h: first}, b, size=3)
        sums = {h: np.full((1, some.size), 1 / n)} | stating.room(self.units(True))
        total = program.add("nonnegative", sums, np.array([self.bound]))
        zero = slice(0, 0)
        if none.size:
            zero = program.add("nonnegative", stating.of(which[none]), np.zeros(none.size))

        def dual(z: Array) -> Array:
            out = np.zeros(n + 1)
            out[some], out[none] = -n * z[triples][1::3], np.maximum(z[zero], 0.0)
            out[-1] = max(float(z[total][0]), 0.0)
            return out

        return dual

    def _onto(self, x: Array) -> tuple[Array, float]:
        """Project entries; what was projected last is asked for again by ``dual`` and ``response``."""
        last = self._last  # read and written at once: other threads may project meanwhile
        if last is None or not np.array_equal(last[0], x):
            self._last = last = (x.copy(), *self.function.onto(x, self.bound))
        return last[1], last[2]

    def dual(self, point: Array, projected: Array, scale: float) -> Array:
        x = self.function.entries(point)
        z, m = self._onto(x)
        return scale * np.append((x - z) / self.function.count, m)

    def normal(self, dual: Array) -> tuple[Array, float]:
        """Return the normal and ``m (bound + sum r exp(u / m - 1))``, no less than its largest value over the set."""
        u, m = check_point(dual, self.function.reference.size + 1)[:-1], float(dual[-1])
        pushed = u[self.function.reference > 0]
        if m <= 0:
            top = 0.0 if np.all(pushed <= 0) else np.inf
        else:
            with np.errstate(over="ignore"):
                exponentials = np.exp(pushed / m - 1.0)
            top = scalar(m * (self.bound + self.function.reference[self.function.reference > 0] @ exponentials))
        return (u if self.function.owner is None else u[self.function.owner]), top

    def magnitude(self, dual: Array) -> tuple[Array, float]:
        u, top = self.normal(dual)
        m, some = float(dual[-1]), self.function.reference > 0
        of_exponents = 0.0
        if m > 0:
            # Each exponential is as exact as its exponent.
            z = as_array(dual[:-1][some], dtype=np.float64) / m
            with np.errstate(over="ignore", invalid="ignore"):
                of_exponents = m * float(np.sum(self.function.reference[some] * np.exp(z - 1.0) * np.abs(z)))
        return np.abs(u), 3 * (float(abs(top)) + 2 * abs(m * self.bound)) + of_exponents

    @property
    def allowed(self) -> npt.NDArray[np.bool_]:
        return self.function.allowed

    def price(self, dual: Array) -> float:
        return self.sign * float(dual[-1])

    def relaxed(self, amount: float, relative: bool = False) -> EntropicLimit:
        bound = self.bound + amount * self.units(relative)
        return ranked(EntropicLimit(self.name, self.function, bound, self.sign), self)

    def units(self, relative: bool) -> float:
        return float(unit(self, relative, abs(self.bound) or 1.0))

    def ease(self, dual: Array, relative: bool = False) -> float:
        return max(float(dual[-1]), 0.0) * self.units(relative)

    def said(self, amount: float = 0.0) -> str:
        # An entropy is limited from below, a relative entropy from above.
        side = "at least" if self.sign > 0 else "at most"
        return f"{side} {-self.sign * (self.bound + amount) + 0.0:.6g} nats"

    def room(self) -> float:
        return min(1.0, abs(self.bound)) or 1.0

    def lead(self, d: Array) -> Array | None:
        x = self.function.entries(d)
        if self.sign < 0 or self.function.value(x) <= self.bound + FAR * abs(self.bound):
            return None
        logs = np.log(np.maximum(x, np.finfo(np.float64).tiny))
        return logs if self.function.owner is None else logs[self.function.owner]

    def barrier(self, view: View, unit: float) -> Barrier | None:
        if self.sign < 0 and self.bound == 0:  # a single point
            return None
        size = abs(self.bound) or 1.0
        function = self.function.smooth(view, self.bound, size)
        curve = Curve(view, function)

        def dual(unit: float, price: float, lack: Array) -> Array:
            m = unit * float(curve.m[0]) / size
            return np.append(self.function.subgradient(view, m, size * function.slope, price, lack), m)

        return Barrier([curve], dual)

    def response(self, point: Array, projected: Array, step: float) -> Response:
        x = self.function.entries(point)
        return self.function.response(x, *self._onto(x), bounded=True)


class Entropy(Ranked):
    """``{d : -sum x log x >= at_least}``: visit many pairs, or many states.

    Parameters
    ----------
    at_least : float
        The least entropy, in nats.  No distribution over n entries has more than ``log n``.
    of : {"pairs", "states"}
        Whether x is the occupancy of each pair or the visits of each state.
    name : str
        Used in messages and results.
    priority, weight : int, float, optional
        For ``solve(when_infeasible=...)``: limits of priority 1 are met first, and the weight is the excess that counts
        as much as exceeding another limit by its own size.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.gridworld(size=5)
    >>> solution = cm.Problem(mdp, "time", [cm.Entropy(at_least=2.0, of="states")]).solve()
    >>> solution.status.name
    'OPTIMAL'
    """

    def __init__(
        self,
        at_least: float,
        of: str = "pairs",
        name: str = "entropy",
        priority: int = 1,
        weight: float | None = None,
    ) -> None:
        self._rank(priority, weight)
        self.at_least = number("at_least", at_least)
        self.of = check_of(of)
        self.name = name

    def bind(self, mdp: MDP) -> Constraint:
        """Return the constraint in a model; raise where no distribution has that much entropy."""
        function = entropic(mdp, self.of)
        most = float(np.log(function.reference.size))
        if self.at_least > most * (1 + 4 * EPS):
            raise ValueError(
                f"{self.name!r} asks for an entropy of at least {self.at_least:g}; over {function.reference.size} "
                f"{self.of} no distribution has more than log {function.reference.size} = {most:.6g}"
            )
        return EntropicLimit(self.name, function, -self.at_least, sign=1.0)

    def project(self, point: Array) -> Array:
        """Return the nearest member; of visits it needs a model: ``entropy.bind(mdp).project(point)``."""
        return self._of_pairs(point).project(point)

    def violation(self, point: Array) -> float:
        """Return how much entropy is missing; of visits it needs a model."""
        return self._of_pairs(point).violation(point)

    def _of_pairs(self, point: Array) -> Constraint:
        if self.of == "states":
            raise unbound(self.name, "the states of each pair")
        return EntropicLimit(self.name, Entropic(np.ones(np.size(point))), -self.at_least, sign=1.0)


class KLBall(Ranked):
    """``{d : sum d log(d / reference) <= radius}``: stay near a reference in relative entropy.

    Parameters
    ----------
    reference : array of shape (num_pairs,), Policy or Solution
        An occupancy, or a policy or solution whose occupancy is meant.  Where it is zero, d has to be zero.
    radius : float
        In nats, at least 0.  Between distributions no relative entropy is below 0.
    name : str
        Used in messages and results.
    priority, weight : int, float, optional
        For ``solve(when_infeasible=...)``: limits of priority 1 are met first, and the weight is the excess that counts
        as much as exceeding another limit by its own size.

    Examples
    --------
    >>> import cvxmdp as cm, numpy as np
    >>> ball = cm.KLBall(reference=np.array([0.5, 0.5]), radius=0.1)
    >>> ball.project(np.array([0.4, 0.6]))
    array([0.4, 0.6])
    """

    def __init__(
        self,
        reference: Any,
        radius: float,
        name: str = "KL ball",
        priority: int = 1,
        weight: float | None = None,
    ) -> None:
        self._rank(priority, weight)
        self.radius = number("radius", radius)
        if self.radius < 0:
            raise ValueError(f"radius is {radius}; between distributions no relative entropy is below 0")
        self.reference = occupancy_of(None, reference, "reference")
        if not isinstance(self.reference, Policy):
            check_distribution(self.reference)
        self.name = name

    def bind(self, mdp: MDP) -> Constraint:
        """Return the constraint in a model."""
        return self._limit(occupancy_of(mdp, self.reference, "reference"))

    def _limit(self, reference: Any) -> Constraint:
        if isinstance(reference, Policy):
            raise unbound(self.name, "the occupancy of the reference policy")
        return EntropicLimit(self.name, Entropic(reference), self.radius, sign=-1.0)

    def project(self, point: Array) -> Array:
        """Return the nearest member; a reference given as a policy needs a model."""
        return self._limit(self.reference).project(point)

    def violation(self, point: Array) -> float:
        """Return the relative entropy beyond the radius."""
        return self._limit(self.reference).violation(point)


def entropic(mdp: MDP, of: str) -> Entropic:
    """Return ``sum x log x`` over the pairs or the states of a model."""
    if of == "pairs":
        return Entropic(np.ones_like(mdp.state, dtype=np.float64))
    return Entropic(np.ones_like(mdp.initial), mdp.state)


def check_of(of: str) -> str:
    """Check what an entropy is of."""
    if of not in ("pairs", "states"):
        raise ValueError(f'of is {of!r}; it must be "pairs" or "states"')
    return of


def check_distribution(reference: Array) -> None:
    """Check that a reference is a distribution."""
    if np.any(reference < 0):
        raise ValueError(
            f"reference is {reference.min():g} at pair {int(np.argmin(reference))}; it must not be negative"
        )
    if abs(reference.sum() - 1) > 1e-6:
        raise ValueError(f"reference sums to {reference.sum():g}, not 1; divide it by its sum")
