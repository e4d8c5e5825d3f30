"""The linear systems of the dynamics: which solver, how much memory, and the solves themselves.

Two systems occur.  Policy evaluation, ``(I - gamma P_pi) V = c`` and its transpose, and the regularized evaluation
``M'M V = rhs`` with its Newton variant over the visited pairs.  Each is solved directly (a factor) or iteratively
(Krylov, matrix free).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.sparse.csgraph import breadth_first_order

from cvxmdp import interrupts
from cvxmdp.mdp import Array, Indices

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
VISITED_STATES = 200
"""Up to here a dense factor in every Newton step is faster than conjugate gradients."""
QUICK_STATES = 3000
"""Up to here a sparse factor takes less than a second, whatever its fill; else Ctrl-C must be heard meanwhile."""
SHIFTS = (0.0, 1e-14, 1e-12, 1e-10)
"""Added to a diagonal, relatively, where rounding makes a matrix indefinite, as ``M'M`` at discounts next to one."""
SPARSE_ROW = 16
"""Up to this many entries a row, a sparse factor of a policy's matrix has little fill, unless the model spreads."""
SPARSE_STATES = 1_500_000
"""Up to here sparse factors are made where their fill is small: on a grid of a million cells a policy's take 25 s."""
HUB = 10.0
"""A state that leads to so many times the mean number of others, as one where all begins anew, does not count."""
WIDE = 0.1
"""A model spreads where this share of all states has the same distance from one of them: 0.4 to 0.9 in random
models of 4000 to 100 000 states, 0.001 to 0.05 in grids, queues and tandem queues."""


@dataclass(frozen=True)
class Plan:
    """How the systems of one model are solved: ``"dense"``, ``"sparse"`` (both direct) or ``"iterative"``."""

    policy: str
    """Also ``"approximate"``: by elimination of states where that takes milliseconds, else by successive approximations
    where they converge fast, else by factors.  Factors are by elimination where its fill is small."""
    normal: str
    visited: str
    reason: str
    thin: bool = False
    """Whether sparse factors keep their fill small: P has few entries a row and does not spread."""
    ordered: bool = False
    """Whether sweeps in the order of the value are tried first, see :mod:`cvxmdp.dynamics.ordered`."""


def available_memory() -> int:
    """Bytes that can be taken now without swapping; a cautious 4 GB where the system does not say."""
    try:
        with open("/proc/meminfo") as info:
            for line in info:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 * 2**30


def spreads(P: Any, first: Indices, start: int) -> bool:
    """Whether few steps lead from a state to a large share of all others, so that sparse factors would fill up.

    Of the states in the order of a breadth-first search, those between a state and the one it was found from are about
    the ones at its distance.
    """
    P, S = sp.csr_array(P), first.size - 1
    ends = P.indptr[first]
    counts = np.diff(ends)
    to = P.indices
    if np.any(hubs := counts > HUB * counts.mean()):
        to = to[np.repeat(~hubs, counts)]
        ends = np.append(0, np.cumsum(np.where(hubs, 0, counts)))
    graph = sp.csr_array((np.ones(to.size, dtype=np.int8), to, ends), shape=(S, S))
    order, found_from = breadth_first_order(graph, start)
    position = np.zeros(S, dtype=np.int64)
    position[order] = np.arange(order.size)
    width = np.max(position[order[1:]] - position[found_from[order[1:]]], initial=0)
    return bool(width > WIDE * S)


def plan(
    num_states: int,
    num_pairs: int,
    nonzeros: int,
    evaluation: str,
    memory: int,
    spread: Callable[[], bool] = lambda: False,
) -> Plan:
    """Choose the solvers from sizes, and from whether the model spreads.

    ============  ==============================================================================================
    system        rule of ``evaluation="auto"``
    ============  ==============================================================================================
    policy        dense factor up to 400 states; else successive approximations, which need few steps on models that
                  mix well; where they do not, a factor while P has at most 16 entries a row, at most 1.5 million states
                  and does not spread, or at most 3000 states whose dense factor fits, else Krylov methods
    normal        sparse factor of ``M'M`` under the same rule for 20 000 states; else dense Cholesky while
                  ``8 S^2`` bytes, twice (matrix and factor), fit in half of the free memory and S <= 8000;
                  else conjugate gradients, which never form ``M'M``
    visited       like normal, but a dense factor only up to 200 states, since it is made anew in every step
    ordered       sweeps in the order of the value first where P has at most 16 entries a row, beyond 400 states
    ============  ==============================================================================================

    ``"direct"`` forces factors and raises ``MemoryError`` when they do not fit; ``"iterative"`` forces Krylov methods.
    """
    per_row = nonzeros / num_pairs
    thin = per_row <= SPARSE_ROW
    dense_bytes = 16 * num_states**2
    fits = dense_bytes <= memory // 2
    if evaluation == "iterative":
        return Plan("iterative", "iterative", "iterative", "iterative solvers were asked for", thin)
    if evaluation == "direct":
        if thin:
            return Plan(
                "sparse", "sparse", "sparse", "direct solvers were asked for; P is thin, so factors are sparse", thin
            )
        if not fits:
            raise MemoryError(
                f"a dense factor of {num_states} states takes {dense_bytes / 1e9:.1f} GB and {memory / 1e9:.1f} GB are "
                'free; use evaluation="iterative" or "auto"'
            )
        return Plan("dense", "dense", "dense", "direct solvers were asked for; P is not thin, so factors are dense")
    small = num_states <= 400
    sparse = thin and num_states <= SPARSE_STATES and (num_states <= QUICK_STATES or not spread())
    direct = sparse or (fits and num_states <= QUICK_STATES)
    policy = "dense" if small else "approximate" if direct else "iterative"
    if sparse and not small and num_states <= 20_000:
        return Plan(
            policy, "sparse", "sparse", f"{per_row:.0f} entries a row: sparse factors have little fill", True, True
        )
    normal = "dense" if fits and num_states <= 8000 else "iterative"
    visited = "dense" if fits and num_states <= VISITED_STATES else "iterative"
    reason = f"{num_states} states, {per_row:.0f} entries a row: {normal} regularized solves"
    return Plan(policy, normal, visited, reason, sparse, thin and not small)


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
