"""The solvers that are compared, each behind ``solve(instance, tolerance)`` and each run in a process of its own.

    result = run("clarabel", instance_file, warm_up_file, tolerance=1e-4, time_limit=60, memory_limit=8e9)

``run`` starts this module as a program with a job file.  That process limits its memory, solves the warm-up instance,
sets an alarm and starts the clock.  The clock runs from arrays in memory, stored as the solver likes them, to the
answer; building the solver's own form of the problem counts.

General solvers get ``x = S d`` instead of d, so that entries are near one and an absolute tolerance means what it says.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from instances import KL, Array, Ball, Entropy, Instance, Rows, problem
from scipy.sparse.linalg import LinearOperator, gmres, splu

CORES = len(os.sched_getaffinity(0))
SET_UP_SECONDS = 300.0
"""Most time for loading and storing, which do not count."""
WARM_UP_SECONDS = 5.0
"""Where the warm-up takes longer it is given up: by then everything is loaded."""
THREADS_FROM = 1_000_000
"""Nonzeros from which PDLP and mdpsolver get a thread a core.  Below they get one, which
seemed faster at S = 100, measured once on a busy machine."""
NO_MEMORY = ("MemoryError", "bad_alloc", "memory allocation", "ut of memory", "annot allocate", "failed to map segment")
"""What the last words of a process without memory contain."""


@dataclass(frozen=True)
class Answer:
    """An occupancy over pairs, or anything with the same policy in it; what the solver said; our proof, if ours."""

    d: Array | None
    said: str
    certificate: Any = None


@dataclass(frozen=True)
class Peer:
    """A solver: the function, the package it needs, the limits it can take, and what was set and why."""

    solve: Callable[[Any, float], Answer]
    package: str
    takes: tuple[type, ...]
    note: str
    store: Callable[[Instance], Any] = Instance.sparse
    """How the solver likes its arrays; done before the clock starts."""


LINEAR = (Rows, type(None))
CONIC = (Rows, type(None), Ball, Entropy, KL)


# --- The problem as general solvers read it


def flow(instance: Instance) -> Any:
    """``Xi' - gamma P'`` as a CSC matrix."""
    pairs = instance.c.size
    Xi = sp.csc_array((np.ones(pairs), instance.state, np.arange(pairs + 1)), shape=(instance.states, pairs))
    return sp.csc_array(Xi - instance.gamma * sp.csr_array(instance.P).T)


def linear_program(instance: Instance) -> tuple[Any, Array, Array]:
    """``lower <= A x <= upper`` with x = S d; the cost is c and x >= 0."""
    inflow = instance.states * (1 - instance.gamma) * instance.rho
    if instance.limit is None:
        return flow(instance), inflow, inflow
    A = sp.vstack([flow(instance), sp.csc_array(instance.limit.E) / instance.states], format="csc")
    nothing = np.full(instance.limit.b.size, -np.inf)
    return A, np.concatenate([inflow, nothing]), np.concatenate([inflow, instance.limit.b])


def conic_program(instance: Instance) -> tuple[Array, Any, Array, list[tuple[str, int]]]:
    """Cost, A, b and cones of ``b - A x in K`` with x = S d, followed by one t a pair for entropies.

    An exponential cone is ``y exp(x / y) <= z``; (t, d, r) in it means ``t <= -d log(d / r)``.
    """
    S, pairs, limit = instance.states, instance.c.size, instance.limit
    cost, inflow = instance.c, S * (1 - instance.gamma) * instance.rho
    A, b = [flow(instance), -sp.eye_array(pairs, format="csc")], [inflow, np.zeros(pairs)]
    cones = [("zero", S), ("nonnegative", pairs)]
    if isinstance(limit, Rows):
        A, b = [*A, sp.csc_array(limit.E) / S], [*b, limit.b]
        cones[1] = ("nonnegative", pairs + limit.b.size)
    elif isinstance(limit, Ball):
        A += [sp.csc_array((1, pairs)), -sp.eye_array(pairs, format="csc")]
        b += [np.array([S * limit.radius]), -S * limit.center]
        cones.append(("second order", pairs + 1))
    elif limit is not None:
        reference, bound = (
            (limit.reference, limit.radius) if isinstance(limit, KL) else (np.ones(pairs), -limit.at_least)
        )
        cost = np.concatenate([cost, np.zeros(pairs)])
        total = sp.csc_array((-np.ones(pairs), (np.zeros(pairs, int), np.arange(pairs, 2 * pairs))), (1, 2 * pairs))
        at = np.arange(pairs)
        rows, columns = np.concatenate([3 * at, 3 * at + 1]), np.concatenate([pairs + at, at])
        triples = sp.csc_array((-np.ones(2 * pairs), (rows, columns)), shape=(3 * pairs, 2 * pairs))
        right = np.zeros(3 * pairs)
        right[2::3] = S * reference
        wide = [sp.hstack([block, sp.csc_array((block.shape[0], pairs))]) for block in A]
        A, b = [*wide, total, triples], [*b, np.array([S * bound]), right]
        cones = [("zero", S), ("nonnegative", pairs + 1), *[("exponential", 3)] * pairs]
    return cost, sp.vstack(A, format="csc"), np.concatenate(b), cones


# --- Ours


def ours(method: Any) -> Callable[[Instance, float], Answer]:
    """Use cvxmdp with one of its methods; "as in paper" is the paper's with the paper's settings."""

    def solve(instance: Instance, tolerance: float) -> Answer:
        import cvxmdp as cm

        chosen = cm.Splitting.as_in_paper() if method == "as in paper" else method
        solution = problem(instance).solve(tolerance=tolerance, method=chosen)
        return Answer(solution.occupancy, f"{solution.status.name}: {solution.stats.method}", solution.certificate)

    return solve


# --- The paper's primal-dual method


class Chain:
    """The systems of the Markov chain that one pair in each state makes."""

    def __init__(self, instance: Instance, pairs: Any, last: Chain | None = None) -> None:
        self.gamma, self.rho, self.P = instance.gamma, instance.rho, instance.P[pairs]
        self.guess = (None, None) if last is None else last.guess
        states = self.rho.size
        self.lu = self.factor = None
        if states <= 500:
            P = self.P.toarray() if sp.issparse(self.P) else self.P
            self.lu = scipy.linalg.lu_factor(np.eye(states) - self.gamma * P)
        elif sp.issparse(self.P) and self.P.nnz <= 10 * states:
            self.factor = splu(sp.csc_matrix(sp.eye_array(states) - self.gamma * self.P))

    def value(self, cost: Array) -> Array:
        """Solve ``(I - gamma P) V = cost``."""
        return self._solve(cost, 0)

    def visits(self) -> Array:
        """Solve ``(I - gamma P') x = (1 - gamma) rho``."""
        return self._solve((1 - self.gamma) * self.rho, 1)

    def _solve(self, right: Array, transposed: int) -> Array:
        if self.lu is not None:
            return scipy.linalg.lu_solve(self.lu, right, trans=transposed)
        if self.factor is not None:
            return self.factor.solve(right, "T" if transposed else "N")
        P = self.P.T if transposed else self.P
        system = LinearOperator((right.size, right.size), matvec=lambda x: x - self.gamma * (P @ x), dtype=float)
        x, _ = gmres(system, right, x0=self.guess[transposed], rtol=1e-10, restart=50)
        self.guess = (self.guess[0], x) if transposed else (x, self.guess[1])
        return x


def pdm_steps(instance: Instance) -> Iterator[tuple[Array, Array, Array]]:
    """Yield ``lambda_k, d_k, lambda_{k+1}`` of the dual ascent of the paper's appendix, from lambda_0 = 0 and V = 0."""
    E, b, S = instance.limit.E, instance.limit.b, instance.states
    actions = instance.c.size // S
    V, dual, chain = np.zeros(S), np.zeros(b.size), None
    for k in count():
        cost = instance.c + E.T @ dual
        for _ in range(2):  # policy iterations from the value of the step before
            best = (cost + instance.gamma * (instance.P @ V)).reshape(S, actions).argmin(axis=1)
            pairs = best + actions * np.arange(S)
            chain = Chain(instance, pairs, chain)
            V = chain.value(cost[pairs])
        d = np.zeros_like(cost)
        d[pairs] = chain.visits()
        after = np.maximum(dual + 10 / (k + 1) * (E @ d - b), 0.0)
        yield dual, d, after
        dual = after


def pdm(tested: str) -> Callable[[Instance, float], Answer]:
    """Stop by the paper's test, whatever the tolerance, and return the average of all d_i.

    The paper tests the limits on the "last" d_k.  That is the occupancy of a deterministic policy, which may never obey
    where only mixtures are optimal, so the "average" can be tested instead.
    """

    def solve(instance: Instance, tolerance: float) -> Answer:
        E, b, total = instance.limit.E, instance.limit.b, np.zeros_like(instance.c)
        for k, (dual, d, after) in enumerate(pdm_steps(instance)):
            total += d
            if np.max(np.abs(after - dual)) <= 1e-4:
                excess = np.maximum(E @ (d if tested == "last" else total / (k + 1)) - b, 0.0)
                if np.all(excess <= 1e-4 * (1 + np.abs(b))):
                    break
        return Answer(total / (k + 1), f"stopped after {k + 1} steps")

    return solve


# --- General solvers


def scs(instance: Instance, tolerance: float) -> Answer:
    import scs

    cost, A, b, cones = conic_program(instance)
    sizes = {"z": cones[0][1], "l": cones[1][1]}
    sizes["q"] = [size for kind, size in cones if kind == "second order"]
    sizes["ep"] = sum(kind == "exponential" for kind, _ in cones)
    answer = scs.SCS(
        {"A": A, "b": b, "c": cost}, sizes, eps_abs=tolerance, eps_rel=tolerance, max_iters=10**8, verbose=False
    ).solve()
    return Answer(answer["x"][: instance.c.size] / instance.states, answer["info"]["status"])


def clarabel(instance: Instance, tolerance: float) -> Answer:
    import clarabel

    cost, A, b, cones = conic_program(instance)
    kinds = {
        "zero": clarabel.ZeroConeT,
        "nonnegative": clarabel.NonnegativeConeT,
        "second order": clarabel.SecondOrderConeT,
        "exponential": lambda _: clarabel.ExponentialConeT(),
    }
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    shape = (cost.size, cost.size)
    answer = clarabel.DefaultSolver(
        sp.csc_matrix(shape), cost, sp.csc_matrix(A), b, [kinds[kind](size) for kind, size in cones], settings
    ).solve()
    return Answer(np.array(answer.x)[: instance.c.size] / instance.states, str(answer.status))


def highs(solver: str) -> Callable[[Instance, float], Answer]:
    """Run HiGHS with one of its solvers."""

    def solve(instance: Instance, tolerance: float) -> Answer:
        import highspy

        A, lower, upper = linear_program(instance)
        model = highspy.HighsLp()
        model.num_row_, model.num_col_ = A.shape
        model.col_cost_, model.col_lower_ = instance.c, np.zeros(A.shape[1])
        model.col_upper_ = np.full(A.shape[1], highspy.kHighsInf)
        model.row_lower_, model.row_upper_ = lower, upper
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = A.indptr, A.indices, A.data
        program = highspy.Highs()
        options = {"output_flag": False, "solver": solver, "threads": CORES}
        if solver != "simplex":
            options["run_crossover"] = "off"
        for name, value in options.items():
            if program.setOptionValue(name, value) != highspy.HighsStatus.kOk:
                return Answer(None, f"HiGHS refuses the option {name} = {value}")
        program.passModel(model)
        program.run()
        status = program.modelStatusToString(program.getModelStatus())
        if program.getModelStatus() == highspy.HighsModelStatus.kMemoryLimit:
            raise MemoryError(status)
        solution = program.getSolution()
        return Answer(np.array(solution.col_value) / instance.states if solution.value_valid else None, status)

    return solve


def scipy_highs(instance: Instance, tolerance: float) -> Answer:
    from scipy.optimize import linprog

    inflow, limit = instance.states * (1 - instance.gamma) * instance.rho, instance.limit
    rows = {} if limit is None else {"A_ub": limit.E / instance.states, "b_ub": limit.b}
    answer = linprog(instance.c, A_eq=flow(instance), b_eq=inflow, method="highs", **rows)
    return Answer(None if answer.x is None else answer.x / instance.states, answer.message)


def pdlp(instance: Instance, tolerance: float) -> Answer:
    from ortools.pdlp import solve_log_pb2, solvers_pb2
    from ortools.pdlp.python import pdlp

    A, lower, upper = linear_program(instance)
    model = pdlp.QuadraticProgram()
    model.resize_and_initialize(A.shape[1], A.shape[0])
    model.objective_vector = instance.c
    model.constraint_matrix = sp.csc_matrix(A)
    model.constraint_lower_bounds, model.constraint_upper_bounds = lower, upper
    model.variable_lower_bounds = np.zeros(A.shape[1])
    model.variable_upper_bounds = np.full(A.shape[1], np.inf)
    threads = CORES if A.nnz >= THREADS_FROM else 1
    settings = solvers_pb2.PrimalDualHybridGradientParams(num_threads=threads)
    criteria = settings.termination_criteria.simple_optimality_criteria
    criteria.eps_optimal_absolute = criteria.eps_optimal_relative = tolerance
    answer = pdlp.primal_dual_hybrid_gradient(model, settings)
    reason = solve_log_pb2.TerminationReason.Name(answer.solve_log.termination_reason)
    return Answer(np.array(answer.primal_solution) / instance.states, reason)


def osqp(instance: Instance, tolerance: float) -> Answer:
    import osqp

    A, lower, upper = linear_program(instance)
    pairs = A.shape[1]
    A = sp.csc_matrix(sp.vstack([A, sp.eye_array(pairs)]))
    lower, upper = np.concatenate([lower, np.zeros(pairs)]), np.concatenate([upper, np.full(pairs, np.inf)])
    solver = osqp.OSQP()
    solver.setup(
        sp.csc_matrix((pairs, pairs)), instance.c, A, lower, upper,
        eps_abs=tolerance, eps_rel=tolerance, max_iter=10**8, polishing=True, verbose=False,
    )  # fmt: skip
    answer = solver.solve(raise_error=False)
    return Answer(np.array(answer.x) / instance.states, answer.info.status)


def gurobi(instance: Instance, tolerance: float) -> Answer:
    import gurobipy as gp

    settings = {"OutputFlag": 0, "Threads": CORES, "FeasibilityTol": tolerance, "OptimalityTol": tolerance}
    settings |= {"BarConvTol": tolerance, "BarQCPConvTol": tolerance}
    if not isinstance(instance.limit, Ball):
        settings["Method"] = 3
    limit, S = instance.limit, instance.states
    try:
        with gp.Env(params=settings) as env, gp.Model(env=env) as model:
            x = model.addMVar(instance.c.size, lb=0.0, obj=instance.c)
            model.addConstr(sp.csr_matrix(flow(instance)) @ x == S * (1 - instance.gamma) * instance.rho)
            if isinstance(limit, Rows):
                model.addConstr(sp.csr_matrix(limit.E / S) @ x <= limit.b)
            elif isinstance(limit, Ball):
                away = model.addMVar(instance.c.size, lb=-gp.GRB.INFINITY)
                model.addConstr(away == x - S * limit.center)
                model.addConstr(away @ away <= (S * limit.radius) ** 2)
            model.optimize()
            return Answer(x.X / S if model.SolCount else None, f"status {model.Status}")
    except gp.GurobiError as error:
        if error.errno == gp.GRB.Error.OUT_OF_MEMORY:
            raise MemoryError(str(error)) from error
        return Answer(None, str(error))


def as_lists(instance: Instance) -> tuple[Instance, list[Any], list[Any], list[Any]]:
    """Rewards, probabilities and columns as lists by state and action, the only form mdpsolver reads."""
    sparse, S = instance.sparse(), instance.states
    P, A = sparse.P, instance.c.size // S
    values, columns = (np.split(part, P.indptr[1:-1]) for part in (P.data, P.indices))

    def nest(parts: list[Array]) -> list[Any]:
        return [[parts[s * A + a].tolist() for a in range(A)] for s in range(S)]

    return sparse, (-instance.c).reshape(S, A).tolist(), nest(values), nest(columns)


def mdpsolver(stored: tuple[Instance, list[Any], list[Any], list[Any]], tolerance: float) -> Answer:
    import mdpsolver

    instance, rewards, probabilities, columns = stored
    model = mdpsolver.model()
    model.mdp(discount=instance.gamma, rewards=rewards, tranMatProbs=probabilities, tranMatColumns=columns)
    size = float(np.mean(np.abs(instance.c))) / (1 - instance.gamma)
    model.solve(algorithm="mpi", tolerance=tolerance * size, parallel=instance.P.nnz >= THREADS_FROM)
    chosen = np.array(model.getPolicy())
    d = np.zeros(instance.c.size)
    d[chosen + (d.size // instance.states) * np.arange(instance.states)] = 1.0
    return Answer(d, "policy returned")


def as_given(instance: Instance) -> Instance:
    """Leave the arrays as they are."""
    return instance


EXACT = "Default tolerances, which are tighter than the accuracy asked. "
PDM = (
    "The paper's primal-dual method with its constants: step 10/(k + 1), two policy iterations from the last value, "
    "its stopping test at 1e-4, the average occupancy. Systems are factored (up to 500 states, or few successors) or "
    "solved by GMRES to 1e-10 from the last solution."
)
PEERS = {
    "ours": Peer(ours("auto"), "cvxmdp", CONIC, 'Default settings, method "auto".', as_given),
    "ours-splitting": Peer(ours("splitting"), "cvxmdp", CONIC, 'Default settings, method "splitting".', as_given),
    "ours-as-in-paper": Peer(
        ours("as in paper"), "cvxmdp", CONIC, "The paper's method, settings and stopping tests.", as_given
    ),
    "pdm": Peer(pdm("last"), "scipy", (Rows,), PDM, as_given),
    "pdm-average": Peer(
        pdm("average"), "scipy", (Rows,),
        PDM + " Its test of the limits is made on the average, which is what is returned.", as_given,
    ),
    "scs": Peer(
        scs, "scs", CONIC,
        "eps_abs and eps_rel are the accuracy asked; no limit on iterations; its direct linear solver.",
    ),
    "clarabel": Peer(clarabel, "clarabel", CONIC, EXACT + "Its own choice of linear solver and threads."),
    "highs-simplex": Peer(highs("simplex"), "highspy", LINEAR, EXACT + "As many threads as cores."),
    "highs-ipm": Peer(
        highs("ipx"), "highspy", LINEAR,
        EXACT + "No crossover, since a policy needs no vertex. As many threads as cores.",
    ),
    "highs-hipo": Peer(
        highs("hipo"), "highspy_extras", LINEAR,
        EXACT + "The newer interior point, with orderings and BLAS from highspy-extras. No crossover, since a policy "
        "needs no vertex. As many threads as cores.",
    ),
    "scipy-highs": Peer(scipy_highs, "scipy", LINEAR, EXACT + 'scipy.optimize.linprog, method "highs".'),
    "pdlp": Peer(
        pdlp, "ortools", LINEAR,
        "Absolute and relative tolerance are the accuracy asked. As many threads as cores from a million nonzeros on; "
        "below, one, since more seemed slower at S = 100, measured once on a busy machine.",
    ),
    "osqp": Peer(
        osqp, "osqp", LINEAR, "eps_abs and eps_rel are the accuracy asked; polishing; no limit on iterations."
    ),
    "gurobi": Peer(
        gurobi, "gurobipy", (Rows, type(None), Ball),
        "All tolerances are the accuracy asked. For linear programs the concurrent optimizer, as in the paper. The "
        "free licence takes 2000 variables and rows, and 200 variables in quadratic problems.",
    ),
    "mdpsolver": Peer(
        mdpsolver, "mdpsolver", (type(None),),
        "Modified policy iteration, its default, in parallel from a million nonzeros on; tolerance is the accuracy "
        "asked times the mean cost summed over time. Takes no limits. The lists it reads are made before the clock "
        "starts.", as_lists,
    ),
}  # fmt: skip


# --- One run in a process of its own


def run(
    name: str, instance: Path, warm_up: Path, tolerance: float, time_limit: float, memory_limit: float
) -> dict[str, Any]:
    """Solve one pickled instance after a warm-up on another.

    The ``outcome`` is "answer", "time limit", "out of memory", "not installed", "does not apply" or "failed".  An
    answer has ``d``, ``seconds``, ``first_use`` (load, warm-up), ``peak_bytes``, ``said``, ours a ``certificate``.
    """
    peer = PEERS[name]
    if importlib.util.find_spec(peer.package) is None:
        return {"outcome": "not installed"}
    with tempfile.TemporaryDirectory() as folder:
        job, out = Path(folder) / "job", Path(folder) / "out"
        job.write_bytes(pickle.dumps((name, instance, warm_up, tolerance, time_limit, memory_limit, out)))
        try:
            done = subprocess.run(
                [sys.executable, __file__, str(job)], capture_output=True, timeout=SET_UP_SECONDS + time_limit
            )
        except subprocess.TimeoutExpired:
            return {"outcome": "time limit", "said": "while loading"}
        if out.exists():
            return dict(pickle.loads(out.read_bytes()))
    errors = done.stderr.decode(errors="replace")
    if done.returncode == -signal.SIGALRM:
        return {"outcome": "time limit"}
    if done.returncode == -signal.SIGKILL or any(sign in errors for sign in NO_MEMORY):
        return {"outcome": "out of memory", "said": last_line(errors)}
    return {"outcome": "failed", "said": f"exit code {done.returncode}: {last_line(errors)}"}


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def work(job: Path) -> None:
    """Do the job of one process."""
    name, instance_file, warm_up_file, tolerance, time_limit, memory_limit, out = pickle.loads(job.read_bytes())
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory_limit), int(memory_limit)))
    peer, instance = PEERS[name], pickle.loads(instance_file.read_bytes())
    if not isinstance(instance.limit, peer.takes):
        out.write_bytes(pickle.dumps({"outcome": "does not apply"}))
        return
    small = peer.store(pickle.loads(warm_up_file.read_bytes()))
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, WARM_UP_SECONDS)
    start = time.perf_counter()
    with suppress(TimeoutError):
        peer.solve(small, tolerance)
    first_use = time.perf_counter() - start
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    stored = peer.store(instance)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # from here on the alarm ends the process wherever it is
    signal.setitimer(signal.ITIMER_REAL, time_limit)
    start = time.perf_counter()
    answer = peer.solve(stored, tolerance)
    seconds = time.perf_counter() - start
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    result = {
        "outcome": "failed" if answer.d is None else "answer",
        "d": answer.d,
        "said": answer.said,
        "certificate": answer.certificate,
        "seconds": seconds,
        "first_use": first_use,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    out.write_bytes(pickle.dumps(result))


def give_up(*_: object) -> None:
    """End the warm-up."""
    raise TimeoutError


def versions() -> dict[str, str]:
    """The version of every package involved that is installed."""
    found = {}
    for name in sorted({peer.package.replace("_", "-") for peer in PEERS.values()} | {"numpy", "numba"}):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    work(Path(sys.argv[1]))
