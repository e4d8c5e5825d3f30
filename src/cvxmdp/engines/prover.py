"""The prover: an occupancy becomes a policy with what it really does, duals become a bound or a refutation.

A policy is read off an occupancy and evaluated.  Duals are priced: policy iteration at cost ``c + u`` gives a value V,
and V a bound on what every policy costs, or without the cost a proof that none obeys.  Nothing that an engine believes
of itself is used, and rounding counts against us (:mod:`cvxmdp.engines.exact`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cvxmdp.certificate import Proof, Witness
from cvxmdp.constraints.combine import Blocks, relative_ease
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines.clock import Clock
from cvxmdp.engines.exact import EPS, FINE, NEGLIGIBLE, Exact, Visits
from cvxmdp.engines.presolve import Unconstrained, policy_iteration
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.policy import Policy, policy_from_occupancy
from cvxmdp.ranks.scattered import as_array

EXACTNESS = (1.0, 1e-6)
"""How exactly, relative to the tolerance, visits are found: first, and where that is not enough."""
ROUNDING_SHARE = 0.1
"""Share of what is wanted that a bound may lose to rounding before it is computed again in extended precision."""
RESERVE = 1e-3
"""Share of what is wanted that is not claimed, so that others who count rounding otherwise find the claim true."""
HAIR = 64 * EPS
"""Limits are numbers that were computed: that no policy obeys is not said of those exceeded by less of their size."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy with what it really does."""

    policy: Policy
    d: Array
    value: float
    scale: float
    """``|c|'d`` and the sizes of the convex terms: what the gap is relative to."""
    violation: float
    """Worst violation, free of units; with all that the error may add, once that is known."""
    visits: Visits | None = None
    """What d is made of, with its proven error; None as long as d is only about right."""
    error: float = 0.0
    """By how much the value may be off."""

    def witness(self) -> Witness:
        """Return what a certificate needs of it, once its error is known."""
        assert self.visits is not None
        return Witness(self.policy.probabilities, self.visits.parts, self.visits.error)


@dataclass(frozen=True, eq=False)
class Bound(Proof):
    """A lower bound on the optimum, with its proof."""

    value: float
    pairs: Indices
    """The best pairs at the duals."""


@dataclass(frozen=True, eq=False)
class Refutation(Proof):
    """A proof that no policy obeys: duals whose ``min over D of u'd - max over C of u'z`` is ``margin > 0``."""

    margin: float
    distance: float
    """The margin over the norm of the normals: no occupancy is nearer to the constraints than this."""


@dataclass(eq=False)
class Prover:
    """See the module.  ``tolerance`` says what an error may be before it is made smaller."""

    mdp: MDP
    dynamics: Dynamics
    c: Array
    blocks: Blocks
    tolerance: float
    clock: Clock

    def __post_init__(self) -> None:
        """Note whether the cost has both signs; else its absolute value, a long array, need not be made."""
        self._signed = bool(np.min(self.c) < 0)
        self.exact = Exact(self.mdp, self.dynamics)

    @cached_property
    def unconstrained(self) -> Unconstrained:
        """The best policy without limits, as presolve finds it; before that, the one that looks best in one step."""
        return policy_iteration(self.dynamics, self.c, rounds=0)

    def candidate(self, d: Array, anywhere: bool = False) -> Candidate:
        """Read the policy off ``d`` and evaluate it; unless ``anywhere``, it goes only where limits allow."""
        if not np.isfinite(np.sum(d)):
            raise FloatingPointError("an engine proposes numbers that are not finite")
        allowed = None if anywhere else self.blocks.allowed
        if allowed is not None:
            d = np.where(allowed, d, 0.0)
        if np.min(d) < 0:
            d = np.maximum(d, 0.0)
        visits = self.dynamics.per_state(d)
        policy = policy_from_occupancy(self.mdp, d, visits, self._fallback)
        del d  # a long array, if the caller does not need it any more
        total = float(visits.sum())
        d = self.dynamics.occupancy(policy.probabilities, visits / total if total > 0 else None)
        return Candidate(policy, d, self._value(d), self._scale(d), self.blocks.relative(d))

    def measured(self, candidate: Candidate) -> Candidate:
        """Return the same policy with a proven error of all it does."""
        if candidate.visits is not None:
            return candidate
        policy, start, owner = candidate.policy, self.dynamics.per_state(candidate.d), self.dynamics.owner
        del candidate  # which has a long array, if the caller does not need it any more
        pi = policy.probabilities
        for share in EXACTNESS:
            visits = self.exact.visits(pi, share * self.tolerance, start)
            d = visits.occupancy(owner, pi)
            spread = visits.spread(owner, pi)
            violation, little = self.blocks.relative(d, spread), 0.1 * self.tolerance
            if violation <= little:
                break
            # Where the error keeps it from obeying, as in a set that is a single point, it has to be smaller.
            plain = self.blocks.relative(d)
            known = violation - plain <= little * max(1.0, plain)
            if known and (violation <= self.tolerance or plain > self.tolerance):
                break
        sizes = np.abs(self.c) if self._signed else self.c
        error = float(spread.of(sizes)) + sum(term.change(d, spread) for term in self.blocks.terms)
        return Candidate(policy, d, self._value(d), self._scale(d), violation, visits, error)

    def _value(self, d: Array) -> float:
        return float(self.c @ d) + self.blocks.value(d)

    def _scale(self, d: Array) -> float:
        return float((np.abs(self.c) if self._signed else self.c) @ d) + self.blocks.size_of_value(d)

    @property
    def _fallback(self) -> Indices:
        """The pair to take where a state has no mass: the unconstrained optimum's, or one that may be visited."""
        pairs, allowed = self.unconstrained.pairs, self.blocks.allowed
        if allowed is None or np.all(allowed[pairs]):
            return pairs
        first = np.flatnonzero(allowed)
        states = self.dynamics.owner[first]
        chosen = pairs.copy()
        chosen[states[::-1]] = first[::-1]
        return np.where(allowed[pairs], pairs, chosen)

    def bound(
        self, duals: Sequence[Array], start: Array, wanted: float, accuracy: float = 0.0, enough: float = np.inf
    ) -> Bound:
        """Price the duals into a lower bound on the optimum, from the value ``start``.

        It is exact to ``accuracy``, and no more is sought once it is ``enough``; ``wanted`` is what of it matters.
        """
        duals = self.blocks.explicit(duals)
        u, top, size = self.blocks.normals(duals)
        if not np.isfinite(np.sum(u)):
            raise FloatingPointError("an engine proposes duals that are not finite")
        u += self.c
        priced = policy_iteration(self.dynamics, u, start, accuracy, self.clock.deadline, enough=enough + top)
        return self._bounded(duals, priced, (u, top, size), self.c, wanted)

    def first_bound(self, wanted: float) -> Bound:
        """Return the value of the best policy without limits as a bound, for a cost alone."""
        return self._bounded(self.blocks.no_duals(), self.unconstrained, (self.c, 0.0, 0.0), self.c, wanted)

    def least_bound(self) -> Bound:
        """Return that no policy costs less than the cheapest pair: where that is free, the best policy may be too."""
        least = float(np.min(self.c))
        least -= 4 * EPS * abs(least)
        return Bound(self.blocks.no_duals(), np.zeros_like(self.dynamics.rho), least, self.unconstrained.pairs)

    def _bounded(
        self, duals: Sequence[Array], priced: Unconstrained, known: tuple[Array, float, float], c: Array, wanted: float
    ) -> Bound:
        """Turn what was priced at cost ``c + u`` into a bound, all that rounding may have added left out.

        Where that would be more than a share of what is ``wanted``, it is computed again in extended precision.
        """
        total, top, size = known
        rounding = self.exact.rounding(priced.V, total, size)
        bound = Bound(list(duals), priced.V, priced.bound - top - rounding, priced.pairs)
        if rounding <= ROUNDING_SHARE * wanted or not np.isfinite(top):
            return bound
        u, fine_top, _ = self.blocks.normals([as_array(dual, FINE) for dual in duals])
        value, V = self.exact.bound(c, u, fine_top, self.blocks.magnitudes(duals), priced.last, NEGLIGIBLE * wanted)
        value -= RESERVE * wanted
        return bound if bound.value >= value else Bound(list(duals), V, value, priced.pairs)

    def refutation(self, duals: Sequence[Array], start: Array | None = None) -> Refutation | None:
        """Try the duals as a proof that no policy obeys the constraints; ``start`` is a value near theirs."""
        duals = self.blocks.explicit(duals[: len(self.blocks.constraints)])
        u, top, size = self.blocks.normals(duals)
        stacked = float(np.linalg.norm(self.blocks.stacked(duals)))
        if not (np.isfinite(top) and 0 < stacked < np.inf):
            return None
        priced = policy_iteration(self.dynamics, u, start, deadline=self.clock.deadline)
        estimate = priced.bound - top
        if estimate <= 0:
            return None
        proof = self._bounded(duals, priced, (u, top, size), np.zeros_like(u), self.tolerance * estimate)
        margin = proof.value
        if margin <= HAIR * relative_ease(self.blocks.constraints, duals):
            return None
        return Refutation(list(duals), proof.potential, margin, margin / (stacked * (1 + self.c.size * EPS)))

    def contradiction(self, duals: Sequence[Array]) -> Refutation | None:
        """Try the duals as a proof that the constraints exclude each other, whatever the dynamics."""
        duals = self.blocks.explicit(duals[: len(self.blocks.constraints)])
        u, top, size = self.blocks.normals(duals)
        V = np.zeros_like(self.dynamics.rho)
        margin = float(np.min(u)) - top - self.exact.rounding(V, u, size)
        return Refutation(list(duals), V, margin, np.inf) if margin > 0 else None
