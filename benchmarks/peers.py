"""The solvers that are compared, each behind ``solve(instance, tolerance)``, with the settings chosen and why."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import scipy.sparse as sp
from instances import KL, Array, Ball, Entropy, Instance, Rows, problem
from primal_dual import primal_dual
from programs import conic_program, flow, linear_program, scaled_rows

CORES = len(os.sched_getaffinity(0))
THREADS_FROM = 1_000_000
"""Nonzeros from which PDLP gets a thread a core."""


@dataclass(frozen=True)
class Answer:
    """An occupancy over pairs, or anything with the same policy in it; what the solver said; our proof, if ours."""

    d: Array | None
    said: str
    infeasible: bool = False
    """Whether the solver says that nothing obeys."""
    certificate: Any = None
    sweeps: int | None = None
    """Passes over P, if ours."""


@dataclass(frozen=True)
class Peer:
    """A solver: the function, the package it needs, the limits it can take, and what was set and why."""

    solve: Callable[[Any, float], Answer]
    package: str
    takes: tuple[type, ...]
    note: str
    store: Callable[[Instance], Any] = Instance.sparse
    """How the solver likes its arrays; done before the clock starts."""
    most_states: float = 100_000
    """Larger models are not tried, so that all of it is done in an hour."""


LINEAR = (Rows, type(None))
CONIC = (Rows, type(None), Ball, Entropy, KL)


# --- Ours


def ours(method: str) -> Callable[[Instance, float], Answer]:
    """Use cvxmdp with one of its methods; "as in paper" is the paper's with the paper's settings."""

    def solve(instance: Instance, tolerance: float) -> Answer:
        import cvxmdp as cm

        chosen = cm.Splitting.as_in_paper() if method == "as in paper" else method
        solution = problem(instance).solve(tolerance=tolerance, method=chosen)
        infeasible = solution.status is cm.Status.INFEASIBLE
        said = f"{solution.status.name}: {solution.stats.method}"
        return Answer(solution.occupancy, said, infeasible, solution.certificate, solution.stats.sweeps)

    return solve


# --- The paper's primal-dual method


def pdm(instance: Instance, tolerance: float) -> Answer:
    """Stop by the paper's test, whatever the tolerance."""
    return Answer(*primal_dual(instance))


# --- General solvers


def scs(instance: Instance, tolerance: float, time_limit: float = 0.0) -> Answer:
    import scs

    cost, A, b, cones = conic_program(instance)
    sizes = {"z": cones[0][1], "l": cones[1][1]}
    sizes["q"] = [size for kind, size in cones if kind == "second order"]
    sizes["ep"] = sum(kind == "exponential" for kind, _ in cones)
    answer = scs.SCS(
        {"A": A, "b": b, "c": cost},
        sizes,
        eps_abs=tolerance,
        eps_rel=tolerance,
        max_iters=10**8,
        verbose=False,
        time_limit_secs=time_limit,
    ).solve()
    status = answer["info"]["status"]
    return Answer(answer["x"][: instance.c.size] / instance.states, status, status == "infeasible")


def with_the_time_of_the_paper(instance: Instance) -> tuple[Instance, float]:
    """The instance, and the seconds that the paper's method takes on it."""
    start = time.perf_counter()
    ours("as in paper")(instance, 1e-4)
    return instance.sparse(), time.perf_counter() - start


def scs_in_time(stored: tuple[Instance, float], tolerance: float) -> Answer:
    return scs(stored[0], tolerance, stored[1])


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
    infeasible = answer.status == clarabel.SolverStatus.PrimalInfeasible
    return Answer(np.array(answer.x)[: instance.c.size] / instance.states, str(answer.status), infeasible)


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
        status, solution = program.getModelStatus(), program.getSolution()
        said = program.modelStatusToString(status)
        if status == highspy.HighsModelStatus.kMemoryLimit:
            raise MemoryError(said)
        d = np.array(solution.col_value) / instance.states if solution.value_valid else None
        return Answer(d, said, status == highspy.HighsModelStatus.kInfeasible)

    return solve


def scipy_highs(instance: Instance, tolerance: float) -> Answer:
    from scipy.optimize import linprog

    inflow = instance.states * (1 - instance.gamma) * instance.rho
    rows = {} if instance.limit is None else dict(zip(("A_ub", "b_ub"), scaled_rows(instance), strict=True))
    answer = linprog(instance.c, A_eq=flow(instance), b_eq=inflow, method="highs", **rows)
    return Answer(None if answer.x is None else answer.x / instance.states, answer.message, answer.status == 2)


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
    infeasible = reason == "TERMINATION_REASON_PRIMAL_INFEASIBLE"
    return Answer(np.array(answer.primal_solution) / instance.states, reason, infeasible)


def osqp(instance: Instance, tolerance: float) -> Answer:
    import osqp

    A, lower, upper = linear_program(instance)
    pairs = A.shape[1]
    A = sp.csc_matrix(sp.vstack([A, sp.eye_array(pairs)]))
    lower, upper = np.concatenate([lower, np.zeros(pairs)]), np.concatenate([upper, np.full(pairs, np.inf)])
    solver = osqp.OSQP()
    solver.setup(
        sp.csc_matrix((pairs, pairs)), instance.c, A, lower, upper,
        eps_abs=tolerance, eps_rel=tolerance, max_iter=10**6, polishing=True, verbose=False,
    )  # fmt: skip
    answer = solver.solve(raise_error=False)
    said = answer.info.status
    return Answer(np.array(answer.x) / instance.states, said, said == "primal infeasible")


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
                E, b = scaled_rows(instance)
                model.addConstr(sp.csr_matrix(E) @ x <= b)
            elif isinstance(limit, Ball):
                away = model.addMVar(instance.c.size, lb=-gp.GRB.INFINITY)
                model.addConstr(away == x - S * limit.center)
                model.addConstr(away @ away <= (S * limit.radius) ** 2)
            model.optimize()
            said = f"status {model.Status}"
            return Answer(x.X / S if model.SolCount else None, said, model.Status == gp.GRB.INFEASIBLE)
    except gp.GurobiError as error:
        if error.errno == gp.GRB.Error.OUT_OF_MEMORY:
            raise MemoryError(str(error)) from error
        licence = (gp.GRB.Error.SIZE_LIMIT_EXCEEDED, gp.GRB.Error.NO_LICENSE)
        return Answer(None, "no licence for this size" if error.errno in licence else str(error))


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
    model.solve(algorithm="mpi", tolerance=tolerance * size, parallel=True)
    chosen = np.array(model.getPolicy())
    d = np.zeros(instance.c.size)
    d[chosen + (d.size // instance.states) * np.arange(instance.states)] = 1.0
    return Answer(d, "policy returned")


def as_given(instance: Instance) -> Instance:
    """Leave the arrays as they are, marked as not writeable: loading has lost the mark."""
    return replace(instance)


EXACT = "Default tolerances, which are tighter than the accuracy asked. "
PEERS = {
    "ours": Peer(ours("auto"), "cvxmdp", CONIC, 'Default settings, method "auto".', as_given, math.inf),
    "ours-splitting": Peer(ours("splitting"), "cvxmdp", CONIC, 'Default settings, method "splitting".', as_given),
    "ours-as-in-paper": Peer(
        ours("as in paper"), "cvxmdp", CONIC, "The paper's method, settings and stopping tests.", as_given
    ),
    "pdm": Peer(
        pdm, "scipy", (Rows,),
        "The paper's primal-dual method with its constants: step 10/(k + 1), two policy iterations from the last "
        "value, its stopping test at 1e-4, met by the last occupancy, as printed, or by the average, which is "
        "returned. Systems are factored (up to 500 states, or few successors) or solved by GMRES to 1e-10 from the "
        "last solution.", as_given,
    ),
    "scs": Peer(
        scs, "scs", CONIC,
        "eps_abs and eps_rel are the accuracy asked; no limit on iterations; its direct linear solver.",
    ),
    "scs-in-time": Peer(
        scs_in_time, "scs", CONIC,
        "As SCS, but stopped after the time that the paper's method takes on the same instance; up to 1000 states.",
        with_the_time_of_the_paper, 1000,
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
        "Absolute and relative tolerance are the accuracy asked. As many threads as cores from a million nonzeros on. "
        "Below, one: there a second thread costs more than it wins.",
    ),
    "osqp": Peer(
        osqp, "osqp", LINEAR, "eps_abs and eps_rel are the accuracy asked; polishing; at most a million iterations."
    ),
    "gurobi": Peer(
        gurobi, "gurobipy", (Rows, type(None), Ball),
        "All tolerances are the accuracy asked. For linear programs the concurrent optimizer, as in the paper. The "
        "free licence takes 2000 variables and rows, and 200 variables in quadratic problems.",
    ),
    "mdpsolver": Peer(
        mdpsolver, "mdpsolver", (type(None),),
        "Modified policy iteration, its default, in parallel; tolerance is the accuracy asked "
        "times the mean cost summed over time. Takes no limits. The lists it reads are made before the clock "
        "starts.", as_lists, 300_000,
    ),
}  # fmt: skip


def versions() -> dict[str, str]:
    """The version of every package involved that is installed."""
    found = {}
    for name in sorted({peer.package.replace("_", "-") for peer in PEERS.values()} | {"numpy"}):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
