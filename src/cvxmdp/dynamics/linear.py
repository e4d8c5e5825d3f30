"""The linear systems of the dynamics.

Two systems occur.  Policy evaluation, ``(I - gamma P_pi) V = c`` and its transpose, and the regularized evaluation
``M'M V = rhs`` with its Newton variant over the visited pairs.  Each is solved directly (a factor) or iteratively
(Krylov, matrix free), as :mod:`cvxmdp.dynamics.plan` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from cvxmdp import interrupts
from cvxmdp.dynamics.plan import QUICK_STATES
from cvxmdp.mdp import Array
from cvxmdp.ranks.scattered import Scattered

Operator = Callable[[Array], Array]


class StartedSolve(Protocol):
    """Solves for one right side or for the columns of several; iterative methods begin at ``start``."""

    def __call__(self, rhs: Array, start: Array | None = None) -> Array: ...


KRYLOV_TOLERANCE = 1e-13
"""A hundred times what rounding leaves of a residual."""
KRYLOV_ROUNDS = 20
"""Restarts of GMRES, 200 products each; chains that need more are factored."""
BICGSTAB_STEPS = 60
"""Steps of BiCGSTAB, two products each, after which a column goes through GMRES."""
APPROXIMATIONS, MOST_APPROXIMATIONS = 80, 2000
"""Successive approximations that are worth their time: where Krylov methods are the other way, before any factor."""
DENSE_SPEED, ENTRY_SECONDS, STEP_SECONDS = 2.5e10, 1e-9, 2e-5
"""Multiplications a second of a dense factor; seconds that a product takes for each entry, and any step besides."""
NORMAL_STATES = 1500
"""Up to here a dense factor of M'M (18 MB, a tenth of a second) is always worth its time."""
SHIFTS = (0.0, 1e-14, 1e-12, 1e-10)
"""Added to a diagonal, relatively, where rounding makes a matrix indefinite, as ``M'M`` at discounts next to one."""


def sparse_factor(matrix: Any) -> Any:
    """Factor a sparse matrix with a fill-reducing order of ``A + A'`` (symmetric mode keeps the diagonal as pivots)."""
    columns = sp.csc_matrix(matrix)

    def factor() -> Any:
        return spla.splu(
            columns, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )  # fmt: skip

    return factor() if columns.shape[0] <= QUICK_STATES else interrupts.patiently(factor)


def factor_spd(matrix: Any) -> Operator:
    """Factor a symmetric positive definite matrix, sparse or the lower triangle of a dense one."""
    if sp.issparse(matrix):
        solve: Operator = sparse_factor(matrix).solve
        return solve
    # Row by row the lower triangle is the upper one column by column, as LAPACK likes it.
    for shift in SHIFTS:
        shifted = matrix.copy().T
        shifted[np.diag_indices(shifted.shape[0])] *= 1 + shift
        try:
            upper = la.cholesky(shifted, overwrite_a=True, check_finite=False)
            break
        except la.LinAlgError:
            if shift == SHIFTS[-1]:
                raise
    return lambda rhs: np.asarray(la.cho_solve((upper, False), rhs, check_finite=False))


def factor_policy(transition: Any, gamma: float) -> tuple[StartedSolve, StartedSolve]:
    """Return solvers of ``(I - gamma P_pi) x = rhs`` and of its transpose by dense factors, refined once."""
    matrix = np.eye(transition.shape[0]) - gamma * (transition.toarray() if sp.issparse(transition) else transition)
    # Columns of the transpose are dominated by their diagonal, so that no pivoting brings in subtractions: visits come
    # out exact to rounding in every entry, however small.
    dense = la.lu_factor(matrix.T, check_finite=False)
    return (
        _refined(matrix, lambda rhs: la.lu_solve(dense, rhs, trans=1, check_finite=False)),
        _refined(matrix.T, lambda rhs: la.lu_solve(dense, rhs, check_finite=False)),
    )


def _refined(matrix: Any, solve: Operator) -> StartedSolve:
    def refined(rhs: Array, start: Array | None = None) -> Array:
        x = solve(rhs)
        return np.asarray(x + solve(rhs - matrix @ x))

    return refined


def worth(states: int, entries: float) -> int:
    """Return how many products with so many entries take half as long as a dense factor."""
    factor = states**3 / 3 / DENSE_SPEED
    steps = 0.5 * factor / (ENTRY_SECONDS * entries + STEP_SECONDS)
    return int(np.clip(steps, APPROXIMATIONS, MOST_APPROXIMATIONS))


def iterative(
    apply: Operator,
    gamma: float,
    accuracy: float,
    direct: Callable[[], StartedSolve | None],
    forward: bool,
    krylov: bool,
    most: int = APPROXIMATIONS,
) -> StartedSolve:
    """Solve ``(I - gamma P_pi) x = rhs``, or with the transpose, to a relative accuracy; ``apply`` is the product.

    On models that mix well successive approximations get there in few products, at most ``most``.  Else, with
    ``krylov``, several right sides go through BiCGSTAB together, so that the matrix is read once for all of them; a
    single one, and those that did not get there, through GMRES.  Where that stalls, as on long cycles near discount
    one, and where Krylov methods are not wanted, factors take over, unless they are too large to be made.
    """
    factors: list[StartedSolve | None] = []

    def solve(rhs: Array, start: Array | None = None) -> Array:
        start = np.zeros_like(rhs) if start is None else start
        x, found = approximate(apply, gamma, rhs, start, accuracy, forward, most)
        if found or interrupts.late():
            return x
        # A factor cannot be left before it is done.
        if not krylov and not interrupts.requested() and (known := factored()) is not None:
            return known(rhs)
        if rhs.ndim == 2:
            x, open_columns = bicgstab(apply, rhs, x, accuracy)
            for column in open_columns:
                x[:, column] = stepped(rhs[:, column], np.zeros(x.shape[0]))
            return x
        return stepped(rhs, x)

    def stepped(rhs: Array, x: Array) -> Array:
        if not np.any(rhs):
            return np.zeros_like(rhs)
        operator = spla.LinearOperator((rhs.size, rhs.size), matvec=apply, dtype=np.float64)
        for _ in range(KRYLOV_ROUNDS if not any(factors) else 0):
            how = {"rtol": accuracy, "atol": 0.0, "restart": 40, "maxiter": 5, "callback_type": "pr_norm"}
            try:
                x, _ = spla.gmres(operator, rhs, x0=x, callback=_stop_late, **how)
            except _LateError:
                return np.asarray(x)
            if np.all(_solved(apply, rhs, x, accuracy)):
                return np.asarray(x)
        known = factored()
        return np.asarray(x) if known is None else known(rhs)

    def factored() -> StartedSolve | None:
        if not factors:
            factors.append(direct())
        return factors[0]

    return solve


def _solved(apply: Operator, rhs: Array, x: Array, accuracy: float) -> Any:
    """Whether ``A x = rhs`` holds to ten times the accuracy relative to the larger side, for each column."""
    sizes = np.maximum(np.linalg.norm(rhs, axis=0), np.linalg.norm(x, axis=0))
    return np.linalg.norm(rhs - apply(x), axis=0) <= 10 * accuracy * sizes


def approximate(
    apply: Operator, gamma: float, rhs: Array, x: Array, accuracy: float, forward: bool, most: int = APPROXIMATIONS
) -> tuple[Array, bool]:
    """Add the residual r to x, which leaves ``gamma P r``; also return whether that got there.

    What is left decays as fast as the chain mixes if r has no part along the slowest direction.  Forward that is a
    constant c, which ``c / (1 - gamma)`` removes since P keeps constants.  Backward it is the total of r, which stays
    zero once x has the right total.  It ends where more than ``most`` steps would be needed at the pace so far.
    """
    pace = accuracy ** (1 / most)
    if not forward:
        total = float(x.sum())
        x = x * (float(rhs.sum()) / (1 - gamma) / total) if total > 0 else rhs / (1 - gamma)
    x, r = x.copy(), rhs - apply(x)
    goal, first = accuracy * np.linalg.norm(rhs, axis=0), np.linalg.norm(r, axis=0)
    for k in range(most):
        if forward:
            mean = r.mean(axis=0)
            x += mean / (1 - gamma)
            r -= mean
        left = np.linalg.norm(r, axis=0)
        if np.all(left <= goal):
            return x, bool(np.all(_solved(apply, rhs, x, accuracy)))
        if interrupts.late() or (k >= 2 and np.any(left > np.maximum(goal, pace**k * first))):
            break
        x += r
        r -= apply(r)
    return x, False


def bicgstab(apply: Operator, rhs: Array, start: Array, tolerance: float) -> tuple[Array, list[int]]:
    """Solve ``A x = rhs`` for all columns of ``rhs`` in step; also return the columns that did not get there."""
    x, r = start.copy(), rhs - apply(start)
    shadow, p, rho = r.copy(), r.copy(), np.einsum("ij,ij->j", r, r)
    goal = tolerance * np.linalg.norm(rhs, axis=0)
    with np.errstate(all="ignore"):  # columns that are done, or break down, are left as they are
        for _ in range(BICGSTAB_STEPS):
            running = np.linalg.norm(r, axis=0) > goal
            if not running.any() or interrupts.late():
                break
            v = apply(p)
            alpha = np.where(running, rho / np.einsum("ij,ij->j", shadow, v), 0.0)
            s = r - alpha * v
            t = apply(s)
            omega = np.where(running, np.einsum("ij,ij->j", t, s) / np.einsum("ij,ij->j", t, t), 0.0)
            x += alpha * p + omega * s
            r = np.where(running, s - omega * t, r)
            before, rho = rho, np.einsum("ij,ij->j", shadow, r)
            beta = np.where(running, rho / before * alpha / omega, 0.0)
            p = r + beta * (p - omega * v)
        missed = ~_solved(apply, rhs, x, tolerance)
    return x, list(np.flatnonzero(missed))


def conjugate_gradients(
    apply: Operator, rhs: Array, start: Array, diagonal: Array, tolerance: float, steps: int
) -> Array:
    """Solve ``A x = rhs`` for a positive definite A known by its products, scaled by its diagonal."""
    if isinstance(rhs, Scattered):
        from cvxmdp.dynamics import petsc  # here, since it is there only where models live on several ranks

        return petsc.conjugate_gradients(apply, rhs, start, diagonal, tolerance, steps)
    scale = float(np.linalg.norm(rhs))
    if scale == 0.0:
        return np.zeros_like(rhs)
    size = rhs.size
    operator = spla.LinearOperator((size, size), matvec=apply, dtype=np.float64)
    scaled = spla.LinearOperator((size, size), matvec=lambda x: x / diagonal, dtype=np.float64)
    try:
        x, _ = spla.cg(operator, rhs, x0=start, rtol=tolerance, atol=0.0, maxiter=steps, M=scaled, callback=_stop_late)
    except _LateError as late:
        x = late.args[0]
    return np.asarray(x)


class _LateError(Exception):
    """Holds what was found before Ctrl-C: SciPy's methods end before their time by exceptions only."""


def _stop_late(found: Any) -> None:
    if interrupts.late():
        raise _LateError(found)
