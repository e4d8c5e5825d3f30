"""Policy evaluation and regularized evaluation for models whose P lies in one memory, dense or sparse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.dynamics.base import Mask
from cvxmdp.dynamics.elimination import Elimination
from cvxmdp.dynamics.linear import (
    APPROXIMATIONS,
    KRYLOV_TOLERANCE,
    NORMAL_STATES,
    Operator,
    StartedSolve,
    conjugate_gradients,
    factor_policy,
    factor_spd,
    iterative,
    worth,
)
from cvxmdp.dynamics.normal import Pattern, reached_states
from cvxmdp.dynamics.plan import Plan
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.ranks.halo import NO_HALO, Halo, NoHalo

FIRST_SWEEPS = 30
"""Of value iteration before a small model's first policy is evaluated: about the time of one factor, and on grids and
lakes one or two policies are left to evaluate instead of 7 to 18."""
NORMAL_STEPS = 2000
"""Conjugate gradient steps of the regularized evaluation; the prox is inexact where they do not suffice."""
ELIMINATED_STATES = 20_000
"""Up to here elimination may come first, beyond only where nothing else gets there."""
FULL, WAYS = 0.2, 3
"""From this share of entries on the factors of policies are dense; the rows of a state's actions overlap, so that they
count as at most so many."""
BY_BLAS = 0.25
"""Multiplications of plain loops that take as long as one of a dense factor."""
CALLS_WORK = 1e5
"""Multiplications of plain loops that take as long as LAPACK's calls and copies: 50 microseconds."""
QUICK_WORK = 3e7
"""Multiplications of an elimination that takes up to 20 ms, less than what other methods need on slow models."""
MOST_WORK = 5e10
"""Multiplications of an elimination that takes a minute; a million cells take half of it."""
DENSE_STATES = 3000
"""Up to here a policy's matrix is factored where nothing else finds its rare visits, or beyond where the factor is
sparse: in about a second or two."""
VISITED_TOLERANCE = 1e-2
"""A direction for a line search need not be more exact."""
VISITED_STEPS = 300
"""Conjugate gradient steps for one direction; the line search makes up for what is missing."""


class Tabular(ABC):
    """What dense and sparse dynamics share; they add the products with P."""

    compiled: bool
    halo: Halo | NoHalo = NO_HALO

    def __init__(self, mdp: MDP, P: Any, plan: Plan) -> None:
        self.num_pairs, self.num_states = P.shape
        self.gamma = mdp.discount
        self.rho: Array = mdp.initial
        self.owner: Indices = mdp.state
        self.first: Indices = np.searchsorted(mdp.state, np.arange(self.num_states + 1)).astype(np.int64)
        self.passes = 0
        self.plan = plan
        self.P = P
        self._normal: Operator | None = None
        self._last: tuple[Array, tuple[StartedSolve, StartedSolve]] | None = None
        self.factored = plan.normal == "sparse" or (plan.normal == "dense" and self.num_states <= NORMAL_STATES)

    @staticmethod
    @abstractmethod
    def held(P: Any, nonzeros: int, memory: int) -> Any:
        """Return P as these dynamics hold it, or None where they are not the ones for it."""

    @cached_property
    def pattern(self) -> Pattern | None:
        """The pattern of the normal equations, where every state is reached; else None."""
        if reached_states(self.P, self.owner, self.rho).size < self.num_states:
            return None
        return Pattern.of(self.P, self.owner, self.num_states, self.gamma)

    @cached_property
    def Xi(self) -> Any:  # noqa: N802
        """The pairs' states as a matrix, pairs x states."""
        pairs = np.arange(self.num_pairs)
        return sp.csr_array((np.ones(self.num_pairs), (pairs, self.owner)), shape=(self.num_pairs, self.num_states))

    @abstractmethod
    def sweep(self, c: Array, V: Array) -> tuple[Array, Indices]:
        """Bellman sweep."""

    def iterate_values(self, c: Array, V: Array | None, tolerance: float, deadline: float) -> Array | None:
        if V is None and self.plan.policy == "dense":
            V = np.zeros(self.num_states)
            for _ in range(FIRST_SWEEPS):
                if interrupts.over(deadline):
                    break
                V = self.sweep(c, V)[0]
        return V

    @abstractmethod
    def advantage(self, c: Array, V: Array) -> Array:
        """``c + M V``."""

    @abstractmethod
    def advantages(self, costs: Array, V: Array) -> Array:
        """:meth:`advantage` for each column, with one pass over P."""

    @abstractmethod
    def flow(self, d: Array) -> Array:
        """``-M'd``."""

    @abstractmethod
    def flow_of_two(self, d: Array, e: Array) -> tuple[Array, Array]:
        """:meth:`flow` of two vectors, with one pass over P."""

    @abstractmethod
    def weighted(self, weights: Array | Mask, V: Array) -> Array:
        """``M' diag(weights) M V``."""

    @abstractmethod
    def weighted_diagonal(self, weights: Array) -> Array:
        """Diagonal of ``M' diag(weights) M``."""

    @abstractmethod
    def gram(self, weights: Array) -> Any:
        """``M' diag(weights) M``, sparse or with at least its lower triangle dense."""

    def flows(self, X: Any) -> Any:
        return self.Xi.T @ X - self.gamma * (self.P.T @ X)

    def factor(self, matrix: Any) -> Operator:
        return factor_spd(matrix)

    def _choice(self, pi: Array) -> Any:
        """The probabilities as a sparse matrix, states by pairs."""
        taken = np.flatnonzero(pi)
        rows = np.searchsorted(taken, self.first)
        return sp.csr_array((pi[taken], taken, rows), shape=(self.num_states, self.num_pairs))

    def _policy_matrix(self, pi: Array) -> Any:
        """``P_pi``, touching only the rows of pairs that are taken."""
        taken = np.flatnonzero(pi)
        if taken.size == self.num_states and np.all(pi[taken] == 1.0):
            return self.P[taken]
        return self._choice(pi) @ self.P

    @abstractmethod
    def _products(self, pi: Array) -> tuple[Operator, Operator]:
        """``x - gamma P_pi x`` for one column or several, and ``x - gamma P_pi' x`` for one."""

    def _solvers(self, pi: Array, accuracy: float = KRYLOV_TOLERANCE) -> tuple[StartedSolve, StartedSolve]:
        """Solvers of ``(I - gamma P_pi) x = rhs`` and of its transpose."""
        if self.plan.policy in ("dense", "sparse") or self._quick:
            return self._factors(pi)
        forward, backward = self._products(pi)
        factors = cache(lambda: self._factors(pi) if self._small or self.elimination is not None else (None, None))
        krylov = self.plan.policy == "iterative"
        most = APPROXIMATIONS
        if not krylov and self._small:
            most = worth(self.num_states, np.count_nonzero(pi) * self._entries / self.num_pairs)
        return (
            iterative(forward, self.gamma, accuracy, lambda: factors()[0], True, krylov, most),
            iterative(backward, self.gamma, accuracy, lambda: factors()[1], False, krylov, most),
        )

    @cached_property
    def elimination(self) -> Elimination | None:
        """The pattern of the factors of policies, where their fill is small."""
        return self._quick_elimination or self._eliminated_within(np.inf)

    @cached_property
    def _quick_elimination(self) -> Elimination | None:
        """The pattern, where factors take milliseconds: that they do not is known long before it is made."""
        return self._eliminated_within(QUICK_WORK)

    def _eliminated_within(self, most: float) -> Elimination | None:
        wide = not self.plan.thin and not self._small
        dense = self.num_states**3 / 3
        entries = self._entries * min(1.0, WAYS * self.num_states / self.num_pairs)
        full = entries > FULL * self.num_states**2 and dense > BY_BLAS * dense + CALLS_WORK
        if self.plan.policy == "iterative" or wide or full:
            return None
        most = min(most, BY_BLAS * dense + CALLS_WORK if self._small else MOST_WORK)
        return Elimination.of(self.P, self.first, self.gamma, most)

    @property
    def _small(self) -> bool:
        """Whether dense factors of policies can be made."""
        return bool(self.num_states <= DENSE_STATES)

    @cached_property
    def _entries(self) -> int:
        return int(self.P.nnz if sp.issparse(self.P) else np.count_nonzero(self.P))

    @property
    def _quick(self) -> bool:
        """Whether elimination comes first."""
        if self.plan.policy != "approximate" or self.num_states > ELIMINATED_STATES:
            return False
        return self._quick_elimination is not None

    def _factors(self, pi: Array) -> tuple[StartedSolve, StartedSolve]:
        """Factors of a policy, by elimination where its fill is small; those of the last policy are remembered."""
        last = self._last
        if last is not None and np.array_equal(last[0], pi):
            return last[1]
        if self.elimination is not None:
            factors = self.elimination.factors(pi)
            found: tuple[StartedSolve, StartedSolve] = (factors.values, factors.visits)
        else:
            found = factor_policy(self._policy_matrix(pi), self.gamma)
        self._last = (pi.copy(), found)
        return found

    def value(self, pi: Array, c: Array, start: Array | None = None) -> Array:
        return self._solvers(pi)[0](self.per_state(pi * c), start)

    def visits(self, pi: Array, start: Array | None = None) -> Array:
        return np.maximum(self._solvers(pi)[1]((1 - self.gamma) * self.rho, start), 0.0)

    def backward(self, pi: Array) -> Operator:
        return self._solvers(pi)[1]

    def backward_by_factors(self, pi: Array) -> Operator | None:
        if not self._small and (not self.plan.thin or self.elimination is None):
            return None
        return self._factors(pi)[1]

    def occupancy(self, pi: Array, start: Array | None = None) -> Array:
        d: Array = self.visits(pi, start)[self.owner]
        d *= pi
        d /= d.sum()
        return d

    def evaluate(
        self, pi: Array, costs: Array, accuracy: float, visits: Array | None = None, V: Array | None = None
    ) -> tuple[Array, Array, Array]:
        forward, backward = self._solvers(pi, accuracy)
        V = forward(np.asarray(self._choice(pi) @ costs), V)
        return backward((1 - self.gamma) * self.rho, visits), V, self.advantages(costs, V)

    def per_state(self, d: Array) -> Array:
        """``Xi'd``: sums over the actions of each state."""
        return np.add.reduceat(d, self.first[:-1])

    def solve_normal(self, rhs: Array, start: Array) -> Array:
        if self.plan.normal == "iterative":
            even, diagonal = np.ones(self.num_pairs), np.diff(self.first).astype(np.float64)
            return conjugate_gradients(lambda V: self.weighted(even, V), rhs, start, diagonal, 1e-12, NORMAL_STEPS)
        if self._normal is None:
            self._normal = factor_spd(self.gram(np.ones(self.num_pairs)))
        return self._normal(rhs)

    def solve_visited(self, visited: Mask, shift: float, rhs: Array) -> Array:
        """Newton's system over the visited pairs; the shift keeps it definite where states have none."""
        if self.plan.visited == "iterative":
            counts = np.add.reduceat(visited, self.first[:-1], dtype=np.float64)
            lift = shift * (counts + 1.0)
            return conjugate_gradients(
                lambda V: self.weighted(visited, V) + lift * V,
                rhs, np.zeros_like(rhs), counts + 0.1, VISITED_TOLERANCE, VISITED_STEPS,
            )  # fmt: skip
        pairs = np.flatnonzero(visited)
        P, owner = self.P[pairs], self.owner[pairs]
        if self.plan.visited == "sparse":
            Xi = sp.csr_array((np.ones(pairs.size), (np.arange(pairs.size), owner)), shape=P.shape)
            M = self.gamma * P - Xi
            H = M.T @ M
            diagonal = H.diagonal()
            return factor_spd(H + sp.diags_array(shift * (diagonal + (diagonal.mean() or 1.0))))(rhs)
        M = self.gamma * (P.toarray() if sp.issparse(P) else P)
        M[np.arange(pairs.size), owner] -= 1.0
        H = la.blas.dsyrk(1.0, M.T, lower=1)
        diagonal = np.einsum("ii->i", H)
        diagonal += shift * (diagonal + (diagonal.mean() or 1.0))
        return factor_spd(H)(rhs)
