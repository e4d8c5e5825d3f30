"""The proof that travels with every answer, and its check.

The check uses the problem's own data and nothing of the solvers: products with P, the constraints' closed forms, sums.

* *What the policy does.*  The claimed occupancy must follow the policy and close the flow
  ``Xi'd - gamma P'd = (1 - gamma) rho``; a residual r moves it by at most ``|r|_1 / (1 - gamma)`` in the 1-norm.
* *Bound.*  For a sum u of normals of the constraints and subgradients of the convex terms, and for any V:
  ``optimum >= (1 - gamma) rho'V + min over pairs of (c + u + M V) - top``, where top is the sum of their conjugates.
  A normal's conjugate is its largest value over the set; a subgradient's at z is ``u'z - h(z)``.
* *Infeasibility.*  The same line with c = 0: if it is positive, no policy obeys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.blocks import Block
from cvxmdp.constraints.combine import Blocks, relative_ease
from cvxmdp.mdp import MDP, Array

if TYPE_CHECKING:
    from cvxmdp.problem import Problem


EPS = float(np.finfo(np.float64).eps)
CLAIMS = ("optimal", "infeasible", "bound")


class CertificateError(ValueError):
    """A claim of a certificate is false for the problem it was checked against."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """Claims about a policy, with what is needed to recompute them.

    Attributes
    ----------
    claim : {"optimal", "infeasible", "bound"}
        What is proven: the gap is within the tolerance; no policy obeys; or only what value and bound say.
    probabilities, occupancy : ndarray over pairs
        The policy and its occupancy.
    value, bound : float
        True cost of the policy, and the lower bound on the optimum.
    costs, violations : dict
        By name, of that policy.
    tolerance : float
        The relative tolerance of the claim.
    duals, potential : list of ndarray, ndarray over states
        Normals of the constraints, then subgradients of the convex terms, one dual array each, and the value V of the
        bound.
    margin : float
        For "infeasible": the proven distance in ``u'd`` between what policies can do and what is allowed.
    margin_duals, margin_potential
        As ``duals`` and ``potential``, for the margin.
    least_violation, least_distance : float
        What the same vectors prove of every policy: it exceeds some limit by so many times its size, and its occupancy
        is that far from the constraints.
    cheapest : float
        Lower bound on the cost of all policies that obey once each set is moved by its ``displacement``.
    cheapest_duals, cheapest_potential, displacement
        As ``duals`` and ``potential``, for the cheapest; the displacement has one row for each set.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Budget("collision", at_most=0.01)])
    >>> problem.solve().certificate.check(problem)
    """

    claim: str
    probabilities: Array
    occupancy: Array
    value: float
    bound: float
    costs: Mapping[str, float]
    violations: Mapping[str, float]
    tolerance: float
    duals: Sequence[Array]
    potential: Array
    margin: float = 0.0
    margin_duals: Sequence[Array] = ()
    margin_potential: Array | None = None
    least_violation: float = 0.0
    least_distance: float = 0.0
    cheapest: float = -np.inf
    cheapest_duals: Sequence[Array] = ()
    cheapest_potential: Array | None = None
    displacement: Array | None = None

    def check(self, problem: Problem) -> None:
        """Recompute every claim from the problem's data.

        Raises
        ------
        CertificateError
            Naming the first claim that is false.
        """
        if self.claim not in CLAIMS or not 0 < self.tolerance < 1:
            raise CertificateError(f"the certificate claims {self.claim!r} to {self.tolerance}, which means nothing")
        if set(self.costs) != set(problem.mdp.costs) or set(self.violations) != {k.name for k in problem.constraints}:
            raise CertificateError("the certificate is of a problem with other costs or constraints")
        self._check_policy(problem.mdp)
        d, c = self.occupancy, problem.cost
        # The occupancy is exact to its flow residual, so costs are known to this:
        slack = 1e-9

        def near(what: str, claimed: float, found: float, scale: float) -> None:
            if claimed != found and not abs(claimed - found) <= slack * max(scale, abs(found)) + 1e-300:
                raise CertificateError(f"the certificate claims {what} {claimed:.12g}; recomputed, it is {found:.12g}")

        value = float(c @ d) + sum(term.value(d) for term in problem.terms)
        size = float(np.abs(c) @ d) + sum(term.size(d) for term in problem.terms)
        near("the value", self.value, value, size)
        for name, cost in problem.mdp.costs.items():
            near(f"the cost {name!r}", self.costs[name], float(cost @ d), float(np.abs(cost) @ d))
        for constraint in problem.constraints:
            found, relative = constraint.violation(d), constraint.relative(d)
            scale = found / relative if 0 < relative < np.inf else 1.0
            near(f"the violation of {constraint.name!r}", self.violations[constraint.name], found, scale)
        exact, rounding = bound_of(problem.mdp, [*problem.constraints, *problem.terms], c, self.duals, self.potential)
        # What is claimed leaves out all that rounding may add; half of it is allowed for adding in another order.
        recomputed = exact - 0.5 * rounding
        if not self.bound <= recomputed + 1e-13 * max(abs(recomputed), size):
            raise CertificateError(
                f"the certificate claims the bound {self.bound:.12g}; its proof gives {recomputed:.12g}"
            )
        if self.claim == "optimal":
            worst = max((k.relative(d) for k in problem.constraints), default=0.0)
            gap = relative_gap(value - recomputed, size, rounding)
            if worst > self.tolerance * (1 + 1e-6) or gap > self.tolerance * (1 + 1e-3) + slack:
                raise CertificateError(
                    f"the certificate claims optimality to {self.tolerance:g}; the gap is {gap:.3g} and the violation "
                    f"{worst:.3g}"
                )
        if self.claim == "infeasible":
            self._check_infeasible(problem)

    def _check_infeasible(self, problem: Problem) -> None:
        if self.margin_potential is None:
            raise CertificateError("the certificate claims infeasibility without a proof")
        constraints, c = problem.constraints, problem.cost
        zero = np.zeros_like(c)
        margin, rounding = bound_of(problem.mdp, constraints, zero, self.margin_duals, self.margin_potential)
        margin -= 0.5 * rounding
        if not (0 < self.margin <= margin * (1 + 1e-9)):
            raise CertificateError(
                f"the certificate claims the margin {self.margin:.12g}; its proof gives {margin:.12g}"
            )
        blocks = Blocks(constraints, [], c.size)
        ease = relative_ease(constraints, self.margin_duals)
        length = float(np.linalg.norm(blocks.stacked(self.margin_duals)))
        if not self.least_violation * ease <= margin * (1 + 1e-12):
            raise CertificateError(
                f"the certificate claims that every policy exceeds a limit by {self.least_violation:.6g} of its size; "
                f"its proof gives {margin / ease:.6g}"
            )
        if not self.least_distance * length <= margin * (1 + 1e-12):
            raise CertificateError(
                f"the certificate claims a distance of {self.least_distance:.6g} to the constraints; its proof gives "
                f"{margin / length:.6g}"
            )
        if self.cheapest_potential is not None and self.displacement is not None:
            members = [*constraints, *problem.terms]
            bound, rounding = bound_of(problem.mdp, members, c, self.cheapest_duals, self.cheapest_potential)
            if self.displacement.shape != (len(blocks.sets), c.size):
                raise CertificateError("the certificate's displacement is of other constraints")
            moves = blocks.stacked(self.cheapest_duals[: len(constraints)]) * self.displacement
            bound -= float(moves.sum()) + 0.5 * rounding
            if not self.cheapest <= bound + 1e-13 * (abs(bound) + float(np.abs(moves).sum())):
                raise CertificateError(
                    f"the certificate claims that no policy as near costs less than {self.cheapest:.12g}; its proof "
                    f"gives {bound:.12g}"
                )

    def _check_policy(self, mdp: MDP) -> None:
        pi, d = self.probabilities, self.occupancy
        if pi.shape != (mdp.num_pairs,) or d.shape != (mdp.num_pairs,):
            raise CertificateError(f"the certificate is of a model with {pi.size} pairs; this one has {mdp.num_pairs}")
        sums = np.bincount(mdp.state, weights=pi, minlength=mdp.num_states)
        if not (np.all(pi >= 0) and np.all(np.abs(sums - 1) <= 1e-9)):
            raise CertificateError("the certificate's policy is not a probability distribution in every state")
        visits = np.bincount(mdp.state, weights=d, minlength=mdp.num_states)
        if not np.max(np.abs(d - visits[mdp.state] * pi)) <= 1e-12:
            raise CertificateError("the certificate's occupancy does not follow its policy")
        flow = visits - mdp.discount * (mdp.transitions.T @ d) - (1 - mdp.discount) * mdp.initial
        if not np.abs(flow).sum() <= 1e-9 * (1 - mdp.discount):
            raise CertificateError(
                f"the certificate's occupancy does not obey the dynamics: its flow is open by {np.abs(flow).sum():.3g}"
            )


def bound_of(mdp: MDP, blocks: Sequence[Block], c: Array, duals: Sequence[Array], V: Array) -> tuple[float, float]:
    """``(1 - gamma) rho'V + min over pairs of (c + u + M V) - conjugates``, and what rounding may add to it."""
    if len(duals) != len(blocks):
        raise CertificateError(f"the certificate has {len(duals)} duals for {len(blocks)} constraints and terms")
    if V.shape != (mdp.num_states,):
        raise CertificateError(f"the certificate's potential has {V.size} entries for {mdp.num_states} states")
    u, top, size = np.zeros(mdp.num_pairs), 0.0, 0.0
    for block, dual in zip(blocks, duals, strict=True):
        try:
            normal, highest = block.normal(np.asarray(dual))
            size += block.magnitude(np.asarray(dual))
        except (ValueError, TypeError, IndexError) as error:
            raise CertificateError(f"the certificate's dual of {block.name!r} is none of its: {error}") from None
        u, top = u + normal, top + highest
    least = np.min(c + u + mdp.discount * (mdp.transitions @ V) - V[mdp.state])
    return float((1 - mdp.discount) * (mdp.initial @ V) + least - top), rounding_of_bound(V, c, size)


def rounding_of_bound(V: Array, c: Array, size: float) -> float:
    """Return what rounding may add to a bound with vectors of that magnitude: no claim is made of less."""
    return 8 * EPS * (largest(V) + largest(c) + size)


def largest(x: Array) -> float:
    """Return the largest absolute value, without a second array of that length."""
    return float(max(np.max(x, initial=0.0), -np.min(x, initial=0.0)))


def relative_gap(excess: float, scale: float, rounding: float) -> float:
    """Return by how much a value exceeds its bound, relative to a scale; 0 where rounding may explain it."""
    return 0.0 if 0 <= excess <= 2.5 * rounding else excess / max(scale, 1e-300)
