"""Which engine serves a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.blocks import Constraint, Term
from cvxmdp.dynamics.normal import seconds_a_factor
from cvxmdp.engines.base import Engine
from cvxmdp.engines.conic import Conic
from cvxmdp.engines.dual import Dual
from cvxmdp.engines.interior import Interior
from cvxmdp.engines.mixing import Mixing
from cvxmdp.engines.newton import Newton
from cvxmdp.engines.path import Path
from cvxmdp.engines.splitting import Splitting
from cvxmdp.mdp import MDP

ENGINES: dict[Any, Engine] = {
    engine.name: engine for engine in (Path(), Mixing(), Splitting(), Interior(), Dual(), Newton(), Conic())
}
"""By name, with their default settings."""

FEW_ROWS, MANY_ROWS, STATES_PER_ROW = 20, 100, 3
"""Mixing is the faster one up to 20 rows, and up to 100 in models that have so many states a row."""
OWN_PAIRS = 200
"""Up to here the derivative of a user's own projection is found by moving each entry of its point."""
INTERIOR_STATES = 6000
"""Up to here twenty dense factors of the states' matrix are worth their time."""
CONIC_PAIRS = 50_000
"""Up to here a conic program is worth its time and memory."""
NEWTON_STATES = 3000
"""Up to here a factor in every Newton step is worth its time and memory."""
PATH_SECONDS = 1000.0
"""Most predicted seconds of path following: what would take longer takes still longer otherwise."""
PATH_STEPS, PATH_OVERHEAD = 13, 3e-4
"""Steps of path following, and seconds that each takes besides its factor."""
ROWS_SPEED = 3e10
"""Multiplications a second of the dense factors for many rows, one of them a step."""
CAUTION = 3.0
"""On models that do not mix the method for many rows takes more steps than predicted."""
EXACT_STATES = 2000
"""Up to here the states that a state reaches are counted; beyond, no more than all its entries."""
PATH_QUICK = 0.015
"""Predicted seconds of path following up to which it comes first in any model."""
PATH_FIRST = 600
"""Up to here path following is faster than mixing on local models (1.8 times, median of 50 problems of
benchmarks/real_problems.py, seed 9); above, where few policies do, mixing is."""
QUICK_STEPS, QUICK_RATE = 6, 0.35
"""A model mixes quickly where differences between states fall to this share in each of six steps of the even policy, on
average: 0.1 to 0.3 in random models, 0.42 and more in those of cm.worlds.  Mixing then needs few policies, and comes
first; the dual takes a tenth to a hundredth of path following's time from 1000 states on."""


def _path_seconds(mdp: MDP, constraints: Sequence[Constraint]) -> float:
    """Predict how long path following takes."""
    first = np.searchsorted(mdp.state, np.arange(mdp.num_states + 1))
    of_states = any(c.disjoint and c.parts > FEW_ROWS for c in constraints)
    return PATH_STEPS * (seconds_a_factor(mdp.transitions, first, of_states) + PATH_OVERHEAD)


def _local(mdp: MDP) -> bool:
    """Whether states reach few others, so that the matrix over states is sparse; random models are not local."""
    S, P = mdp.num_states, mdp.transitions
    if not sp.issparse(P):
        return False
    first = np.searchsorted(mdp.state, np.arange(S + 1))
    entries = np.diff(P.indptr).astype(np.float64)
    if np.sum(np.maximum.reduceat(entries, first[:-1]) ** 2) > S**2:
        return False
    reached = np.add.reduceat(entries, first[:-1])
    if np.sum(reached**2) > S**2 and S <= EXACT_STATES:
        seen = np.zeros((S, S), dtype=bool)
        seen[np.repeat(mdp.state, np.diff(P.indptr)), P.indices] = True
        reached = seen.sum(axis=1)
    return bool(np.sum(reached**2) <= S**2)


def _mixes_quickly(mdp: MDP) -> bool:
    """Whether few steps of the even policy lead from all states to about the same."""
    actions, x = np.bincount(mdp.state), np.arange(mdp.num_states, dtype=np.float64)
    before = np.ptp(x)
    for _ in range(QUICK_STEPS):
        x = np.bincount(mdp.state, weights=mdp.transitions @ x) / actions
    return bool(np.ptp(x) <= QUICK_RATE**QUICK_STEPS * before)


def choose_engines(
    method: str | Engine, constraints: Sequence[Constraint], terms: Sequence[Term], mdp: MDP
) -> list[Engine]:
    """Choose an engine by name, or by the problem, and those to go on with where it gives up.

    ==============================================================  =============================================
    "auto" takes                                                    for
    ==============================================================  =============================================
    mixing: a mixture of few deterministic policies is optimal      a cost under at most 20 linear rows, or 100 in
                                                                    models of three states a row or more
    interior points: twenty or so Newton steps, whatever the rows   a cost under more linear rows in models that are
                                                                    not local, up to 6000 states
    dual: Newton's method with one price beside the values          a cost under one Euclidean ball, entropy of
                                                                    pairs or KL ball in models that are not local
    path following: some fifteen steps, a factor each               all else that has barriers, rows that hold with
                                                                    equality, few rows in local models up to 600
                                                                    states, and what it is to solve in 15 ms
                                                                    but few rows in models that mix quickly
    Newton, or splitting: no more than projections are needed       own sets, and where factors are too large
    ==============================================================  =============================================

    Where an engine gives up, the next goes on: path following after mixing and the dual, then Newton up to 3000 states
    or splitting, and a conic program last, up to 3000 states and 50 000 pairs, for sets that have cones.
    """
    if method == "auto":
        return _automatic(constraints, terms, mdp)
    if not isinstance(method, Engine) and method not in ENGINES:
        raise ValueError(
            f'method is {method!r}; it must be "auto", '
            + ", ".join(f'"{name}"' for name in ENGINES)
            + f", or an instance of {', '.join('cm.' + type(e).__name__ for e in ENGINES.values())}"
        )
    engine = method if isinstance(method, Engine) else ENGINES[method]
    _check_ranks(engine, constraints, terms, mdp)
    if (lacking := engine.needs(constraints, terms)) is not None:
        raise ValueError(f'method "{engine.name}" needs {lacking}')
    return [engine, *_general(constraints, terms, mdp)] if engine.helped else [engine]


def _check_ranks(engine: Engine | None, constraints: Sequence[Constraint], terms: Sequence[Term], mdp: MDP) -> None:
    """Refuse an engine, and blocks, that need all pairs in one place, for a model that lives on several ranks."""
    if mdp.world is None:
        return
    able = ", ".join(f'"{name}"' for name, known in ENGINES.items() if known.on_ranks)
    if engine is not None and not engine.on_ranks:
        raise ValueError(f'method "{engine.name}" needs a model that lives in one place; on several ranks use {able}')
    for block in (*constraints, *terms):
        if not block.on_ranks:
            raise ValueError(
                f"{block.name!r} needs all pairs in one place, so that it cannot be used on several ranks; balls, "
                "entropies and linear limits can"
            )


def _on_ranks(constraints: Sequence[Constraint], terms: Sequence[Term]) -> list[Engine]:
    """Choose engines that several ranks run together."""
    linear = Mixing().needs(constraints, terms) is None
    if linear and sum(c.parts for c in constraints) <= MANY_ROWS:
        return [Mixing(), Splitting()]
    return [Dual(), Splitting()] if Dual().needs(constraints, terms) is None else [Splitting()]


def _automatic(constraints: Sequence[Constraint], terms: Sequence[Term], mdp: MDP) -> list[Engine]:
    _check_ranks(None, constraints, terms, mdp)
    if mdp.world is not None:
        return _on_ranks(constraints, terms)
    case = Case(constraints, terms, mdp)
    rules = (_few_rows, _some_rows, _many_rows, _one_curve)
    return next((chosen for rule in rules if (chosen := rule(case)) is not None), [*case.path, *case.general])


@dataclass(frozen=True, eq=False)
class Case:
    """A problem, and what the choice of engines depends on."""

    constraints: Sequence[Constraint]
    terms: Sequence[Term]
    mdp: MDP

    @cached_property
    def rows(self) -> float:
        """How many linear rows it has; infinitely many where it is not a cost under linear rows alone."""
        linear = Mixing().needs(self.constraints, self.terms) is None
        return sum(c.parts for c in self.constraints if c.is_rows) if linear else np.inf

    @cached_property
    def seconds(self) -> float:
        """How long path following is predicted to take; infinitely long where it does not take the problem."""
        return np.inf if _own(self.constraints, self.terms) else _path_seconds(self.mdp, self.constraints)

    @cached_property
    def path(self) -> list[Engine]:
        """Path following, where that is not too long."""
        return [Path()] if self.seconds <= PATH_SECONDS else []

    @cached_property
    def mixes(self) -> bool:
        """Whether the model mixes quickly, where path following takes the problem."""
        return bool(self.path) and _mixes_quickly(self.mdp)

    @cached_property
    def local(self) -> bool:
        """Whether path following has small factors."""
        # Factors of models that mix quickly fill up, which the prediction does not see.
        quick = self.seconds <= PATH_QUICK and not (self.mixes and self.mdp.num_states > PATH_FIRST)
        return bool(self.path) and (quick or (not self.mixes and _local(self.mdp)))

    @cached_property
    def interior(self) -> list[Engine]:
        """Interior points, where their factors are not too large."""
        return [Interior()] if self.mdp.num_states <= INTERIOR_STATES else []

    @cached_property
    def conic(self) -> list[Engine]:
        """The conic program, if it takes the problem and is worth its time."""
        return _conic(self.constraints, self.terms, self.mdp)

    @cached_property
    def general(self) -> list[Engine]:
        """Engines that take every problem."""
        return _general(self.constraints, self.terms, self.mdp)


def _few_rows(case: Case) -> list[Engine] | None:
    """Mix, or follow the path first in small local models and under equalities."""
    if case.rows > FEW_ROWS:
        return None
    equal = any(c.has_equal for c in case.constraints)
    small = case.local and case.mdp.num_states <= PATH_FIRST and not case.mixes
    both = [*case.path, Mixing()] if case.path and (equal or small) else [Mixing(), *case.path]
    return [*both, *case.conic]


def _some_rows(case: Case) -> list[Engine] | None:
    """Mix first, in models of enough states a row."""
    if case.rows > min(MANY_ROWS, case.mdp.num_states // STATES_PER_ROW):
        return None
    return [Mixing(), *case.path, *case.interior, *case.conic]


def _many_rows(case: Case) -> list[Engine] | None:
    """Take path following or interior points first, whichever is predicted to be faster."""
    if case.rows == np.inf or not case.interior:
        return None
    by_rows = PATH_STEPS * case.mdp.num_states**3 / ROWS_SPEED
    path_first = case.local or case.seconds <= CAUTION * by_rows
    both = [*case.path, *case.interior] if path_first else [*case.interior, *case.path]
    return [*both, *(case.conic or case.general)]


def _one_curve(case: Case) -> list[Engine] | None:
    """Take the dual first, which needs no factors, in models that are not local."""
    if case.local or Dual().needs(case.constraints, case.terms) is not None:
        return None
    return [Dual(), *case.path, *case.general]


def _own(constraints: Sequence[Constraint], terms: Sequence[Term]) -> bool:
    return any(block.own for block in (*constraints, *terms))


def _large(constraints: Sequence[Constraint], terms: Sequence[Term], mdp: MDP) -> bool:
    """Whether a factor in every step takes too long, or the derivative of a user's own projection."""
    return (
        mdp.world is not None
        or mdp.num_states > NEWTON_STATES
        or (_own(constraints, terms) and mdp.num_pairs > OWN_PAIRS)
    )


def _general(constraints: Sequence[Constraint], terms: Sequence[Term], mdp: MDP) -> list[Engine]:
    """Return engines that take every problem: Newton, or where its factors are too large, splitting."""
    balls, last = not terms and all(c.round for c in constraints), _conic(constraints, terms, mdp)
    first: Engine = Splitting() if balls or _large(constraints, terms, mdp) else Newton()
    return [first, *last]


def _conic(constraints: Sequence[Constraint], terms: Sequence[Term], mdp: MDP) -> list[Engine]:
    """Return the conic program, if it takes the problem and is worth its time."""
    small = not _large(constraints, terms, mdp) and mdp.num_pairs <= CONIC_PAIRS
    return [Conic()] if small and Conic().needs(constraints, terms) is None else []


def choose_soft(soft: Sequence[Term], mdp: MDP) -> list[Engine]:
    """Choose engines for the least squared distance to limits that no policy obeys.

    Rows that give way are mixed where they are few, else met by interior points; all else is for a conic program, which
    has interior points whatever the limits, and for Newton or splitting.
    """
    limits = [term.soft for term in soft if term.soft is not None]
    rows = limits[0].parts if len(limits) == 1 and limits[0].is_rows else 0
    if mdp.world is not None:
        return [Mixing(), Splitting()] if 0 < rows <= FEW_ROWS else [Splitting()]
    by_cones, any_set = _conic([], soft, mdp), Splitting() if _large(limits, [], mdp) else Newton()
    if 0 < rows <= FEW_ROWS:
        return [Mixing(), *by_cones]
    if rows and mdp.num_states <= INTERIOR_STATES and not (by_cones and _local(mdp)):
        return [Interior(), *(by_cones or [any_set])]
    return [*by_cones, any_set]


def choose_moved(limits: Sequence[Constraint], mdp: MDP) -> list[Engine]:
    """Choose engines for the least cost over flat sets that just touch what policies can do."""
    if mdp.world is not None:
        return _on_ranks(limits, [])
    by_cones = _conic(limits, [], mdp)
    rows = sum(limit.parts for limit in limits) if all(limit.is_rows for limit in limits) else np.inf
    if rows <= FEW_ROWS:
        return [Mixing(), *by_cones]
    return [Path(), *(by_cones or _general(limits, [], mdp)), *([Mixing()] if rows <= MANY_ROWS else [])]
