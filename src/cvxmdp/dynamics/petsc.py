"""Dynamics of a model that lives on several ranks of MPI: linear systems by PETSc.

The rows of P live with their state, so that sums and minima over actions need no other rank.  Products with P are the
compiled loops of one machine over a rank's own rows, after the values of its guests have arrived
(:mod:`cvxmdp.ranks.halo`), or before what was added up for them is sent home.  Policies are evaluated by sweeps along
the flow where it has an order, else by PETSc's Krylov methods, forward and backward with one incomplete factor a rank,
and ``M' diag(weights) M`` is never formed: conjugate gradients ask for its products.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.dynamics import kernels
from cvxmdp.dynamics.linear import KRYLOV_TOLERANCE, Operator, StartedSolve, approximate
from cvxmdp.dynamics.ordered import Ordered
from cvxmdp.dynamics.plan import SPARSE_ROW, Plan
from cvxmdp.dynamics.sparse import MOST_FAILURES
from cvxmdp.dynamics.tabular import Tabular
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.ranks.scattered import Scattered
from cvxmdp.ranks.world import Ranks

KRYLOV_STEPS = 1000
"""Steps of one Krylov method: on a slow grid of a million cells some hundreds do."""
ROUNDS = ("bcgs", "gmres", "gmres")
"""The methods, one after the other from where the last one ended: the first takes the fewest products, and stalls
first near discount one."""


def petsc(world: Ranks) -> Any:
    """Return PETSc's module, initialized; without its signal handler, which would take Ctrl-C for a crash."""
    try:
        import petsc4py
    except ImportError:
        raise ValueError(
            "models on several ranks need petsc4py and mpi4py: pip install 'cvxmdp[petsc]', see docs/scaling.md"
        ) from None
    petsc4py.init(["cvxmdp", "-no_signal_handler"], comm=world.comm)
    from petsc4py import PETSc

    return PETSc


class PetscDynamics(Tabular):
    """The rows of P that live on this rank, and what all ranks do together."""

    compiled = True
    pattern = None
    """Path following is for models of one machine."""

    def __init__(self, mdp: MDP, evaluation: str = "auto") -> None:
        block = mdp.transitions
        self.world, self.halo, self.block = block.world, block.halo, block
        self.PETSc = petsc(block.world)
        self.num_pairs, self.num_states = block.shape
        self.gamma = mdp.discount
        self.rho, self.owner = mdp.initial, mdp.state
        self.here = int(block.csr.shape[1]) - self.halo.size
        """States of this rank."""
        owner: Any = mdp.state
        self.first: Indices = np.searchsorted(owner.local, np.arange(self.here + 1)).astype(np.int64)
        self.passes = 0
        thin = block.nnz <= SPARSE_ROW * self.num_pairs
        ordered = evaluation == "auto" and thin
        self.plan = Plan("iterative", "iterative", "iterative", "on several ranks: Krylov methods", thin, ordered)
        self.factored = False
        self.P = block.csr
        self._csr = (block.csr.data, block.csr.indices, block.csr.indptr)
        self._ordered = Ordered(block.csr, self.first, self.gamma, self.halo) if ordered else None

    @staticmethod
    def held(P: Any, nonzeros: int, memory: int) -> Any:
        """Return nothing: a model says itself whether it lives on ranks."""
        return None

    def _states(self, local: Any) -> Array:
        return cast(Array, Scattered(local, self.world, count=self.num_states))

    def _pairs(self, local: Any) -> Array:
        return cast(Array, Scattered(local, self.world, count=self.num_pairs))

    def sweep(self, c: Any, V: Any) -> tuple[Array, Indices]:
        self.passes += 1
        best, pair = kernels.sweep(*self._csr, self.first, self.gamma, c.local, self.halo.everywhere(V.local))
        return self._states(best), cast(Indices, self._states(pair))

    def iterate_values(self, c: Any, V: Any, tolerance: float, deadline: float) -> Array | None:
        if self._ordered is None:
            return None if V is None else self._states(V.local)
        ordered = copy.copy(self._ordered)
        if V is None:
            ordered.forget()
        if ordered.hopeless or ordered.failures == MOST_FAILURES:
            return None if V is None else self._states(V.local)
        before = ordered.sweeps
        found, _ = ordered.iterate_values(c.local, None if V is None else V.local, tolerance, deadline)
        self.passes += ordered.sweeps - before
        self._ordered = ordered
        return self._states(found)

    def visits(self, pi: Any, start: Any = None) -> Array:
        if self._ordered is not None:
            found = self._ordered.solve(pi.local, (1 - self.gamma) * self.rho.local)  # type: ignore[attr-defined]
            if found is not None:
                return self._states(found)
        return super().visits(pi, start)

    def backward(self, pi: Any) -> Operator:
        ordered = self._ordered
        if ordered is None:
            return self._solvers(pi)[1]

        def solve(rhs: Any) -> Array:
            found = ordered.correction(pi.local, rhs.local)
            return self._solvers(pi)[1](rhs) if found is None else self._states(found)

        return solve

    def backward_by_factors(self, pi: Array) -> Operator | None:
        return None

    def advantage(self, c: Any, V: Any) -> Array:
        self.passes += 1
        owner = self.owner.local  # type: ignore[attr-defined]
        return self._pairs(kernels.advantage(*self._csr, owner, self.gamma, c.local, self.halo.everywhere(V.local)))

    def advantages(self, costs: Any, V: Any) -> Array:
        self.passes += 1
        owner = self.owner.local  # type: ignore[attr-defined]
        return self._pairs(
            kernels.advantages(*self._csr, owner, self.gamma, costs.local, self.halo.everywhere(V.local))
        )

    def flow(self, d: Any) -> Array:
        self.passes += 1
        return self._flow(d)

    def _flow(self, d: Any) -> Array:
        out = kernels.flow(*self._csr, self.first, self.gamma, d.local, self.P.shape[1])
        return self._states(self.halo.home(out))

    def flow_of_two(self, d: Any, e: Any) -> tuple[Array, Array]:
        self.passes += 1
        both = kernels.flow_of_two(*self._csr, self.first, self.gamma, d.local, e.local, self.P.shape[1])
        one, two = self.halo.home(np.ascontiguousarray(both.T)).T
        return self._states(np.ascontiguousarray(one)), self._states(np.ascontiguousarray(two))

    def weighted(self, weights: Any, V: Any) -> Array:
        self.passes += 1
        everywhere = self.halo.everywhere(V.local)
        out = kernels.weighted(*self._csr, self.first, self.gamma, weights.local, everywhere)
        return self._states(self.halo.home(out))

    def weighted_diagonal(self, weights: Any) -> Array:
        self.passes += 1
        out = kernels.weighted_diagonal(*self._csr, self.first, self.gamma, weights.local, self.P.shape[1])
        return self._states(self.halo.home(out))

    def gram(self, weights: Array) -> Any:
        raise TypeError("M' diag(weights) M is not formed on several ranks")

    def evaluate(
        self, pi: Any, costs: Any, accuracy: float, visits: Array | None = None, V: Array | None = None
    ) -> tuple[Array, Array, Array]:
        forward, backward = self._solvers(pi, accuracy)
        V = forward(np.add.reduceat(pi[:, None] * costs, self.first[:-1], axis=0), V)
        return backward((1 - self.gamma) * self.rho, visits), V, self.advantages(costs, V)

    def solve_normal(self, rhs: Array, start: Array) -> Array:
        even = np.ones_like(self.owner, dtype=np.float64)
        diagonal = self.per_state(even)
        return conjugate_gradients(lambda V: self.weighted(even, V), rhs, start, diagonal, 1e-12, KRYLOV_STEPS)

    def _products(self, pi: Any) -> tuple[Operator, Operator]:
        chain = kernels.taken(*self._csr, self.first, pi.local)

        def forward(x: Any) -> Array:
            found = kernels.evaluated(*chain, self.gamma, self.halo.everywhere(x.local))
            return self._states(found)

        def backward(x: Any) -> Array:
            out = kernels.evaluated_back(*chain, self.gamma, x.local, self.P.shape[1])
            return self._states(self.halo.home(out))

        return forward, backward

    def _solvers(self, pi: Any, accuracy: float = KRYLOV_TOLERANCE) -> tuple[StartedSolve, StartedSolve]:
        """Solvers of ``(I - gamma P_pi) x = rhs`` and of its transpose, by Krylov methods."""
        forward, backward = self._products(pi)
        made: list[Any] = []

        def chain() -> Any:
            if not made:
                made.append(self._chain(pi))
            return made[0]

        return (
            self._solver(forward, chain, accuracy, True),
            self._solver(backward, chain, accuracy, False),
        )

    def _chain(self, pi: Any) -> Any:
        """``I - gamma P_pi`` as PETSc holds it."""
        values, columns, ends = kernels.taken(*self._csr, self.first, pi.local)
        block, begin = self.block, int(self.block.starts[self.world.rank])
        chain = sp.csr_array((-self.gamma * values, columns, ends), shape=(self.here, self.P.shape[1]))
        chain = sp.csr_array(chain + sp.eye_array(self.here, self.P.shape[1], format="csr"))
        numbers = np.append(np.arange(begin, begin + self.here), block.halo.guests)
        chain = sp.csr_array((chain.data, numbers[chain.indices], chain.indptr), shape=(self.here, self.num_states))
        chain.sort_indices()
        whole = self.PETSc.IntType
        size = (self.here, self.num_states)
        matrix = self.PETSc.Mat().createAIJ(
            (size, size),
            csr=(chain.indptr.astype(whole), chain.indices.astype(whole), chain.data),
            comm=self.world.comm,
        )
        matrix.assemble()
        return matrix

    def _solver(self, apply: Operator, chain: Callable[[], Any], accuracy: float, forward: bool) -> StartedSolve:
        def solve(rhs: Any, start: Any = None) -> Array:
            x = np.zeros_like(rhs) if start is None else start
            x, found = approximate(apply, self.gamma, rhs, x, accuracy, forward)
            if found or interrupts.late():
                return x
            if rhs.ndim == 1:
                return self._krylov(apply, chain(), rhs, x, accuracy, forward)
            columns = [self._krylov(apply, chain(), rhs[:, k], x[:, k], accuracy, forward) for k in range(rhs.shape[1])]
            return np.stack(columns, axis=1)

        return solve

    def _krylov(self, apply: Operator, chain: Any, rhs: Any, x: Any, accuracy: float, forward: bool) -> Array:
        """Solve with one column, restarted from where it ended until the residual itself is small."""
        if not np.any(rhs):
            return np.zeros_like(rhs)
        b, y = (Vectors(self.PETSc, rhs).vec for _ in range(2))
        b.array[:] = rhs.local
        for kind in ROUNDS:
            ksp = self.PETSc.KSP().create(self.world.comm)
            ksp.setOperators(chain)
            ksp.setType(kind)
            ksp.setPCSide(self.PETSc.PC.Side.RIGHT)  # so that it goes by the residual itself
            ksp.getPC().setType("bjacobi")
            _stop_at(ksp, self.PETSc, accuracy * float(np.linalg.norm(rhs)), KRYLOV_STEPS)
            ksp.setInitialGuessNonzero(True)
            y.array[:] = x.local
            (ksp.solve if forward else ksp.solveTranspose)(b, y)
            tried = self._states(y.array.copy())
            ksp.destroy()
            if np.all(np.isfinite(tried)):
                x = tried
            left = float(np.linalg.norm(rhs - apply(x)))
            if left <= 10 * accuracy * max(float(np.linalg.norm(rhs)), float(np.linalg.norm(x))) or interrupts.late():
                break
        return cast(Array, x)


class Vectors:
    """Between scattered arrays and PETSc's vectors; a tail is held by the last rank."""

    def __init__(self, PETSc: Any, like: Scattered) -> None:
        self.like, world = like, like.world
        self.tail = 0 if like.tail is None else int(like.tail.size)
        self.last = world.rank == world.size - 1
        size = like.local.size + (self.tail if self.last else 0)
        self.vec = PETSc.Vec().createMPI((size, None), comm=world.comm)  # type: ignore[attr-defined]

    def give(self, x: Scattered, vec: Any) -> None:
        """Fill a vector with an array."""
        vec.array[: x.local.size] = x.local
        if x.tail is not None and self.last:
            vec.array[x.local.size :] = x.tail

    def take(self, vec: Any) -> Scattered:
        """Return an array of a vector."""
        local = np.array(vec.array_r)
        if not self.tail:
            return Scattered(local, self.like.world, count=self.like.count)
        own = local.size - self.tail if self.last else local.size
        ends = local[own:] if self.last else np.zeros(self.tail)
        tail = np.asarray(self.like.world.total(ends))
        return Scattered(local[:own].copy(), self.like.world, tail=tail, count=self.like.count)


class _Shell:
    """A matrix that is known by its products and its diagonal."""

    def __init__(self, apply: Operator, diagonal: Any, vectors: Vectors) -> None:
        self._apply, self._diagonal, self._vectors = apply, diagonal, vectors

    def getDiagonal(self, matrix: Any, out: Any) -> None:  # noqa: N802
        """Put the diagonal in a vector."""
        self._vectors.give(self._diagonal, out)

    def mult(self, matrix: Any, x: Any, y: Any) -> None:
        """Put the product with x in y."""
        found: Any = self._apply(self._vectors.take(x))  # type: ignore[arg-type]
        self._vectors.give(found, y)


def conjugate_gradients(apply: Operator, rhs: Any, start: Any, diagonal: Any, tolerance: float, steps: int) -> Array:
    """Solve ``A x = rhs`` for a positive definite A known by its products, scaled by its diagonal."""
    scale = float(np.linalg.norm(rhs))
    if scale == 0.0:
        return np.zeros_like(rhs)
    PETSc = petsc(rhs.world)
    vectors = Vectors(PETSc, rhs)
    b, x = vectors.vec, vectors.vec.duplicate()
    vectors.give(rhs, b)
    vectors.give(start, x)
    size = (b.getLocalSize(), b.getSize())
    matrix = PETSc.Mat().createPython((size, size), _Shell(apply, diagonal, vectors), comm=rhs.world.comm)
    matrix.setUp()
    ksp = PETSc.KSP().create(rhs.world.comm)
    ksp.setOperators(matrix)
    ksp.setType("cg")
    ksp.getPC().setType("jacobi")
    ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    _stop_at(ksp, PETSc, tolerance * scale, steps)
    ksp.setInitialGuessNonzero(True)
    ksp.solve(b, x)
    found = vectors.take(x)
    ksp.destroy()
    matrix.destroy()
    return cast(Array, found)


def _stop_at(ksp: Any, PETSc: Any, goal: float, steps: int) -> None:
    """End a Krylov method at a residual, after so many steps, or when Ctrl-C or a time limit is heard."""
    reasons = PETSc.KSP.ConvergedReason

    def judge(ksp: Any, done: int, residual: float) -> Any:
        if not np.isfinite(residual):
            return reasons.DIVERGED_NANORINF
        if residual <= goal:
            return reasons.CONVERGED_ATOL
        return reasons.DIVERGED_MAX_IT if done >= steps or interrupts.late() else reasons.ITERATING

    ksp.setConvergenceTest(judge)
    ksp.setTolerances(max_it=steps + 1)


def partition(mdp: MDP, world: Ranks) -> Sequence[int] | Any:
    """Return a rank for each state by PETSc's partitioner, so that few states lead to other ranks."""
    PETSc = petsc(world)
    P = sp.csr_array(mdp.transitions)
    S = mdp.num_states
    pairs = sp.csr_array((np.ones(mdp.num_pairs), (mdp.state, np.arange(mdp.num_pairs))), shape=(S, mdp.num_pairs))
    graph = pairs @ (P != 0).astype(np.float64)
    graph = sp.csr_array(graph + graph.T)
    graph.setdiag(0.0)
    graph.eliminate_zeros()
    graph.sort_indices()
    begin, end = (S * world.rank) // world.size, (S * (world.rank + 1)) // world.size
    part = sp.csr_array(graph[begin:end])
    whole = PETSc.IntType
    adjacency = PETSc.Mat().createAIJ(
        ((end - begin, S), (end - begin, S)),
        csr=(part.indptr.astype(whole), part.indices.astype(whole), part.data), comm=world.comm,
    )  # fmt: skip
    adjacency.assemble()
    partitioner = PETSc.MatPartitioning().create(world.comm)
    partitioner.setAdjacency(adjacency.convert("mpiadj"))
    partitioner.setFromOptions()
    found = PETSc.IS().create(world.comm)
    partitioner.apply(found)
    return np.concatenate(world.gathered(np.array(found.indices)))
