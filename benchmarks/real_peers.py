"""The problems of real_problems.py as linear or conic programs, and the general solvers that read them.

Solvers get ``x = S d`` instead of d, each row divided by its size and the cost by its largest entry, so that entries
are near one and an absolute tolerance means what it says.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from real_problems import Ball, Case, DistanceTerm, Ellipsoid, Entropic, Rows

Array = npt.NDArray[np.float64]
Columns = tuple[int, int]

CORES = len(os.sched_getaffinity(0))
ACCURACY = 1e-4
"""What first-order solvers are asked for; interior point methods keep their defaults, which are tighter."""
ORDER = ("zero", "nonnegative", "second order", "exponential", "power")
"""The order of cones that SCS asks for."""
THREE_NORM = 1 / 3
"""The power of the cones of a 3-norm."""


class Program:
    """``min cost'x`` under ``b - A x in K``, x >= 0 where said; x begins with the occupancy times the states.

    An exponential cone is ``y exp(x / y) <= z``; (-h, y, 1) in it means ``y log y <= h``.  A power cone is
    ``x^(1/3) y^(2/3) >= |z|``.
    """

    def __init__(self, case: Case) -> None:
        mdp = case.mdp
        self.states, self.pairs = mdp.num_states, mdp.num_pairs
        self.cost, self.signed = np.zeros(0), np.zeros(0, bool)
        self.parts: list[tuple[str, dict[Columns, Any], Array]] = []
        self.unit = float(np.max(np.abs(case.cost))) or 1.0
        self.x = self.variables(self.pairs, case.cost / self.unit)
        self.which = sp.csr_array(
            (np.ones(self.pairs), (mdp.state, np.arange(self.pairs))), shape=(self.states, self.pairs)
        )
        flow = self.which - mdp.discount * sp.csr_array(mdp.transitions).T
        self.add("zero", {self.x: flow}, self.states * (1 - mdp.discount) * mdp.initial)
        for limit in case.limits:
            self.limit(limit)
        for term in case.terms:
            self.term(term)

    @property
    def flat(self) -> bool:
        """Whether it is a linear program."""
        return all(cone in ("zero", "nonnegative") for cone, _, _ in self.parts)

    def variables(self, count: int, cost: Any = 0.0, signed: bool = False) -> Columns:
        """Add variables, nonnegative ones unless signed."""
        first = self.cost.size
        self.cost = np.concatenate([self.cost, np.broadcast_to(cost, (count,))])
        self.signed = np.concatenate([self.signed, np.full(count, signed)])
        return first, first + count

    def add(self, cone: str, blocks: dict[Columns, Any], b: Array) -> None:
        self.parts.append((cone, blocks, b))

    def limit(self, limit: Any) -> None:
        if isinstance(limit, Rows):
            self.rows(limit)
        elif isinstance(limit, Ball):
            self.ball(limit)
        elif isinstance(limit, Entropic):
            size = self.states * max(abs(limit.bound), 1.0)
            h, logs = self.entropic(limit.reference, limit.of)
            total = {h: np.full((1, h[1] - h[0]), 1 / size), self.x: -logs[None, :] / size}
            self.add("nonnegative", total, np.array([limit.bound * self.states / size]))
        else:
            assert isinstance(limit, Ellipsoid)
            size = self.states * (abs(limit.at_most) or 1.0)
            whole = sp.vstack([limit.cost[None, :], -sp.diags_array(limit.deviations)])
            b = np.append(limit.at_most * self.states / size, np.zeros(self.pairs))
            self.add("second order", {self.x: whole / size}, b)

    def rows(self, limit: Rows) -> None:
        E = sp.csr_array(limit.E)
        signed = E.min(axis=1).toarray().ravel() < 0
        mean = np.where(signed, np.asarray(abs(E).mean(axis=1)).ravel(), 0.0)
        same = limit.lower == limit.upper
        sides = [("zero", 1.0, limit.upper, same)]
        sides += [("nonnegative", 1.0, limit.upper, ~same), ("nonnegative", -1.0, limit.lower, ~same)]
        for cone, sign, bound, kept in sides:
            there = np.flatnonzero(kept & np.isfinite(bound))
            if not there.size:
                continue
            size = np.maximum(np.abs(bound[there]), mean[there])
            size = np.where(size > 0, size, 1.0)
            self.add(cone, {self.x: sp.diags_array(sign / (self.states * size)) @ E[there]}, sign * bound[there] / size)

    def ball(self, limit: Ball) -> None:
        n, eye = self.pairs, sp.eye_array(self.pairs, format="csr")
        center, radius = self.states * limit.center, self.states * limit.radius
        if limit.p == 2:
            self.second_order({}, radius, center)
        elif limit.p == 1:  # x - center = more - less
            more, less = self.variables(n), self.variables(n)
            total = np.full((1, n), 1 / radius)
            self.add("zero", {self.x: eye, more: -eye, less: eye}, center)
            self.add("nonnegative", {more: total, less: total}, np.ones(1))
        elif np.isinf(limit.p):
            above = np.flatnonzero(center > radius)
            self.add("nonnegative", {self.x: eye}, center + radius)
            if above.size:
                self.add("nonnegative", {self.x: -eye[above]}, (radius - center)[above])
        else:
            assert limit.p == 3
            h = self.variables(n)
            b = np.zeros(3 * n)
            b[1::3], b[2::3] = 1.0, -center / radius
            self.add("power", {h: -nth(0, n), self.x: -nth(2, n) / radius}, b)
            self.add("nonnegative", {h: np.ones((1, n))}, np.ones(1))

    def second_order(self, head: dict[Columns, Any], radius: float, center: Array) -> None:
        """``|x - center|_2`` is at most the radius less the head."""
        tail = sp.vstack([sp.csr_array((1, self.pairs)), -sp.eye_array(self.pairs)], format="csr")
        self.add("second order", {self.x: tail} | head, np.append(radius, -center))

    def entropic(self, reference: Array, of: str) -> tuple[Columns, Array]:
        """Variables h with ``y log y <= h``, and the logarithms with ``sum h - logs'x = sum of y log(y / (S r))``.

        y is x or its sums over states, zero where r is.  Of several ways to state it, r in the cones or in the row,
        with x >= 0 said again or not, this is the one with which Clarabel most often comes to an answer.
        """
        which = sp.eye_array(self.pairs, format="csr") if of == "pairs" else self.which
        some, none = np.flatnonzero(reference > 0), np.flatnonzero(reference <= 0)
        h = self.variables(some.size, signed=True)
        b = np.zeros(3 * some.size)
        b[2::3] = 1.0
        self.add("exponential", {self.x: -nth(1, some.size) @ which[some], h: nth(0, some.size)}, b)
        if none.size:
            self.add("zero", {self.x: which[none]}, np.zeros(none.size))
        return h, which[some].T @ np.log(self.states * reference[some])

    def term(self, term: Any) -> None:
        weight = term.weight / self.unit
        if isinstance(term, DistanceTerm):
            far = self.variables(1, weight)
            head = sp.csr_array(([-1.0], ([0], [0])), shape=(1 + self.pairs, 1))
            self.second_order({far: head}, 0.0, self.states * term.center)
        else:
            h, _ = self.entropic(np.ones(self.pairs), "pairs")  # the logarithms are all the same, and sum x is known
            self.cost[slice(*h)] = weight

    def assembled(self) -> tuple[Any, Array, list[tuple[str, int]]]:
        """A, b and the cones, in order; the signs of variables are no rows yet."""
        parts = sorted(self.parts, key=lambda part: ORDER.index(part[0]))
        A = sp.vstack([self.wide(blocks, b.size) for _, blocks, b in parts], format="csc")
        return A, np.concatenate([b for _, _, b in parts]), [(cone, b.size) for cone, _, b in parts]

    def conic(self) -> tuple[Any, Array, list[tuple[str, int]]]:
        """The same with the signs of variables as rows."""
        known = np.flatnonzero(~self.signed)
        eye = sp.csr_array((-np.ones(known.size), (np.arange(known.size), known)), shape=(known.size, self.cost.size))
        self.add("nonnegative", {(0, self.cost.size): eye}, np.zeros(known.size))
        A, b, cones = self.assembled()
        self.parts.pop()
        return A, b, cones

    def wide(self, blocks: dict[Columns, Any], height: int) -> Any:
        """One row of blocks over all variables."""
        out, at = [], 0
        for (first, last), block in sorted(blocks.items(), key=lambda item: item[0]):
            out += [sp.csc_array((height, first - at)), sp.csc_array(block)]
            at = last
        return sp.hstack([*out, sp.csc_array((height, self.cost.size - at))], format="csc")

    def occupancy(self, x: Any) -> Array:
        return np.asarray(x)[: self.pairs] / self.states


def nth(k: int, count: int) -> Any:
    """Puts n entries into the k-th places of n triples."""
    at = np.arange(count)
    return sp.csr_array((np.ones(count), (3 * at + k, at)), shape=(3 * count, count))


Solve = Callable[[], tuple[Array | None, str]]
"""Solves what was stated, and returns an occupancy and what the solver said."""


def clarabel(program: Program, time_limit: float) -> Solve:
    import clarabel

    A, b, cones = program.conic()
    kinds: dict[str, Callable[[int], list[Any]]] = {
        "zero": lambda size: [clarabel.ZeroConeT(size)],
        "nonnegative": lambda size: [clarabel.NonnegativeConeT(size)],
        "second order": lambda size: [clarabel.SecondOrderConeT(size)],
        "exponential": lambda size: [clarabel.ExponentialConeT()] * (size // 3),
        "power": lambda size: [clarabel.PowerConeT(THREE_NORM)] * (size // 3),
    }
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit = False, time_limit
    listed = [one for kind, size in cones for one in kinds[kind](size)]
    nothing = sp.csc_matrix((program.cost.size, program.cost.size))
    stated = (nothing, program.cost, sp.csc_matrix(A), b, listed, settings)

    def solve() -> tuple[Array | None, str]:
        answer = clarabel.DefaultSolver(*stated).solve()
        return program.occupancy(answer.x), str(answer.status)

    return solve


def scs(program: Program, time_limit: float) -> Solve:
    import scs

    A, b, cones = program.conic()
    size = {kind: [size for name, size in cones if name == kind] for kind in ORDER}
    named = {"z": sum(size["zero"]), "l": sum(size["nonnegative"]), "q": size["second order"]}
    named |= {"ep": sum(size["exponential"]) // 3, "p": [THREE_NORM] * (sum(size["power"]) // 3)}
    data = {"A": sp.csc_matrix(A), "b": b, "c": program.cost}
    how = {"eps_abs": ACCURACY, "eps_rel": ACCURACY, "max_iters": 10**8, "verbose": False}

    def solve() -> tuple[Array | None, str]:
        answer = scs.SCS(data, named, time_limit_secs=time_limit, **how).solve()
        return program.occupancy(answer["x"]), answer["info"]["status"]

    return solve


def highs(solver: str) -> Callable[[Program, float], Solve]:
    """HiGHS with one of its interior point methods, without crossover, since a policy needs no vertex."""

    def state(program: Program, time_limit: float) -> Solve:
        import highspy

        A, b, cones = program.assembled()
        free = np.concatenate([np.full(size, cone == "nonnegative") for cone, size in cones])
        model = highspy.HighsLp()
        model.num_row_, model.num_col_ = A.shape
        model.col_cost_, model.col_lower_ = program.cost, np.zeros(A.shape[1])
        model.col_upper_ = np.full(A.shape[1], highspy.kHighsInf)
        model.row_lower_, model.row_upper_ = np.where(free, -highspy.kHighsInf, b), b
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = A.indptr, A.indices, A.data

        def solve() -> tuple[Array | None, str]:
            run = highspy.Highs()
            options = {"output_flag": False, "solver": solver, "threads": CORES, "run_crossover": "off"}
            for name, value in {**options, "time_limit": float(time_limit)}.items():
                if run.setOptionValue(name, value) != highspy.HighsStatus.kOk:
                    return None, f"HiGHS refuses the option {name} = {value}"
            run.passModel(model)
            run.run()
            solution, said = run.getSolution(), run.modelStatusToString(run.getModelStatus())
            return (program.occupancy(solution.col_value) if solution.value_valid else None), said

        return solve

    return state


@dataclass(frozen=True)
class Peer:
    """A solver: what it makes of a program, whether it takes linear ones only, its packages, and what was set."""

    state: Callable[[Program, float], Solve]
    flat: bool
    packages: tuple[str, ...]
    note: str


PEERS = {
    "Clarabel": Peer(clarabel, False, ("clarabel",), "Default settings."),
    "HiGHS HiPO": Peer(
        highs("hipo"), True, ("highspy", "highspy_extras"),
        "Default tolerances, no crossover, as many threads as cores; linear programs only.",
    ),
    "HiGHS IPX": Peer(
        highs("ipx"), True, ("highspy",),
        "Default tolerances, no crossover, as many threads as cores; linear programs only.",
    ),
    "SCS": Peer(scs, False, ("scs",), "eps_abs and eps_rel 1e-4, its direct linear solver, no limit on iterations."),
}  # fmt: skip
