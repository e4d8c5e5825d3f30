"""The protocol between the solvers and the model.

With ``M = gamma P - Xi`` (``Xi`` maps pairs to their state) the occupancies are
``D = {d >= 0 : Xi'd - gamma P'd = (1 - gamma) rho}``.  Engines ask for products and solves by these names alone; only
path following also reads the entries of the model's rows, through ``pattern``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cvxmdp.dynamics.normal import Pattern
from cvxmdp.mdp import Array, Indices
from cvxmdp.ranks.halo import Halo, NoHalo

Mask = npt.NDArray[np.bool_]


class Dynamics(Protocol):
    """A model as the solvers see it.  Arrays over pairs have length L, arrays over states length S."""

    num_states: int
    num_pairs: int
    gamma: float
    rho: Array
    halo: Halo | NoHalo
    """The states that live on other ranks and that pairs lead to from here."""
    owner: Indices
    """State of each pair."""
    first: Indices
    """Pairs of state s are ``first[s]`` up to ``first[s + 1]``."""
    factored: bool
    """Whether ``solve_normal`` has, or cheaply gets, a factor."""
    compiled: bool
    """Whether products with P are compiled kernels with threads of their own, and not BLAS."""
    passes: int
    """Passes over P so far, counted in full products with P or its transpose."""

    @property
    def pattern(self) -> Pattern | None:
        """The pattern of the normal equations, where every state is reached; else None."""
        ...

    def sweep(self, c: Array, V: Array) -> tuple[Array, Indices]:
        """Bellman sweep: ``min over actions of c + gamma P V`` and the pair that attains it, for each state."""
        ...

    def iterate_values(self, c: Array, V: Array | None, tolerance: float, deadline: float) -> Array | None:
        """Bring V near the solution of Bellman's equation by cheap sweeps, where the model allows it.

        Elsewhere V comes back as it is.
        """
        ...

    def advantage(self, c: Array, V: Array) -> Array:
        """``c + M V`` over pairs."""
        ...

    def flow(self, d: Array) -> Array:
        """``Xi'd - gamma P'd`` over states, which is ``-M'd``."""
        ...

    def flow_of_two(self, d: Array, e: Array) -> tuple[Array, Array]:
        """:meth:`flow` of two vectors, with one pass over P."""
        ...

    def per_state(self, d: Array) -> Array:
        """``Xi'd``: sums over the pairs of each state."""
        ...

    def value(self, pi: Array, c: Array, start: Array | None = None) -> Array:
        """Discounted total cost of the policy ``pi`` from each state (evaluation forward).

        Krylov methods begin at the value ``start``.
        """
        ...

    def visits(self, pi: Array, start: Array | None = None) -> Array:
        """Normalized visits of the states under the policy ``pi``; Krylov methods begin at ``start``."""
        ...

    def occupancy(self, pi: Array, start: Array | None = None) -> Array:
        """Normalized occupancy of the policy ``pi`` over pairs (evaluation backward).

        Krylov methods begin at the visits ``start``.
        """
        ...

    def backward(self, pi: Array) -> Callable[[Array], Array]:
        """Return a solver of ``x - gamma P_pi' x = rhs``."""
        ...

    def backward_by_factors(self, pi: Array) -> Callable[[Array], Array] | None:
        """Return the same by factors, which find rare visits too; None where they would be too large."""
        ...

    def evaluate(
        self, pi: Array, costs: Array, accuracy: float, visits: Array | None = None, V: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Visits of the states under the policy ``pi``, and value and advantage for each column of ``costs``.

        Krylov methods begin at ``visits`` and ``V`` and stop at the relative accuracy; factors are exact.
        """
        ...

    def solve_normal(self, rhs: Array, start: Array) -> Array:
        """Solve ``M'M V = rhs``: the regularized policy evaluation, eq. (10)."""
        ...

    def weighted(self, weights: Array | Mask, V: Array) -> Array:
        """``M' diag(weights) M V``, with one pass over P; weights may be a mask."""
        ...

    def weighted_diagonal(self, weights: Array) -> Array:
        """Diagonal of ``M' diag(weights) M``."""
        ...

    def gram(self, weights: Array) -> Any:
        """``M' diag(weights) M``: sparse, or dense with at least its lower triangle."""
        ...

    def flows(self, X: Any) -> Any:
        """:meth:`flow` of each column of a matrix, dense or sparse."""
        ...

    def factor(self, matrix: Any) -> Callable[[Array], Array]:
        """Factor a positive definite matrix over states, sparse or the lower triangle of a dense one."""
        ...

    def solve_visited(self, visited: Mask, shift: float, rhs: Array) -> Array:
        """Solve ``(M_J'M_J + shift diag) V = rhs`` over the pairs J where ``visited`` is true (Newton's system)."""
        ...


def indicator(dynamics: Dynamics, pairs: Indices) -> Array:
    """Return the probabilities of the policy that takes ``pairs``."""
    pi = np.zeros_like(dynamics.owner, dtype=np.float64)
    pi[pairs] = 1.0
    return pi
