"""The nearest policy where none obeys, and the cheapest of the nearest: problems like any other.

*Nearest.*  Minimize ``dist(d, C)^2 / 2``, a sum of convex terms (:mod:`cvxmdp.objectives.nearness`).  The bound on it
proves the least distance (Proposition 3 of the paper), and that no policy obeys.

*Cheapest.*  The displacement v to flat sets is one and the same for all nearest policies, and they are the ones that
obey the sets moved by v (Proposition 4).  So the cost is minimized over the moved sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cvxmdp.blocks import Constraint
from cvxmdp.dynamics.base import indicator
from cvxmdp.engines.base import Engine
from cvxmdp.engines.choose import choose_moved, choose_soft
from cvxmdp.engines.exact import EPS, largest
from cvxmdp.engines.judge import Goal, Judge, Nearest
from cvxmdp.engines.presolve import policy_iteration
from cvxmdp.engines.prover import RESERVE, Bound, Candidate, Refutation
from cvxmdp.mdp import Array, Indices

if TYPE_CHECKING:
    from cvxmdp.problem import Problem

FINE, FINEST, MANY_STATES = 1e-9, 1e-11, 10_000
"""How exactly, relatively, the least squared distance is sought, that to rows, and in how large models: a displacement
is known to the root of that."""
AS_NEAR = 1e-8
"""How much farther, relatively, the cheapest of the nearest policies may be."""
TRACE = 1e-9
"""Share of a proof, counted by what relaxing would take from it, below which a limit has none in it."""
SLACK = 1e-9
"""By how much farther, relatively, sets are moved, so that rounding does not move them too little."""
MOVED_TOLERANCE = 1e-2
"""Share of the tolerance to which moved limits are obeyed."""


JUST_AS_NEAR = 1e-10
"""By how much, relatively, the distance of the policy that a refutation leads to may exceed the proven one: a tenth of
SLACK, so that nothing else has to be sought."""
WEIGHTS = (1e2, 1e4)
"""Of the refutation against the cost, where the cheapest of the policies it leads to is sought: the first is enough in
queues, maintenance, epidemics and admission, and where the second is not, a million is not either, as on lakes."""


From = tuple[Array, list[Array]]
"""An occupancy and duals to begin with."""
Solver = Callable[["Problem", Sequence[Engine], Goal, From | None], Judge]


def come_near(solve: Solver, problem: Problem, judge: Judge) -> None:
    """Find the nearest policy; the judge notes it with the proof that none is nearer, or a policy that obeys."""
    if judge.refutation is not None and _led_to(judge, judge.refutation):
        return
    blocks, limits = judge.blocks, judge.blocks.sets
    small = problem.mdp.num_states <= MANY_STATES and not any(limit.own for limit in limits)
    tolerance = (FINEST if blocks.num_rows else FINE) if small else judge.tolerance
    soft = problem.softened(limits)
    engines = choose_soft(soft.terms, problem.mdp)
    undecided = judge.refutation is None

    def obeys(candidate: Candidate) -> bool:
        return undecided and blocks.relative(candidate.d) <= judge.tolerance

    found = solve(soft, engines, Goal(tolerance, enough=obeys, acceptable=judge.tolerance), _first(judge))
    assert found.best is not None
    if undecided:
        judge.propose(found.best.d)
        if judge.obeyed:
            return
    candidate = judge.prover.candidate(found.best.d, anywhere=True)
    tried, V = [blocks.set_duals(candidate.d)], None
    if found.bound is not None:
        tried, V = [*tried, blocks.split(found.bound.duals, blocks.constraints)], found.bound.potential
    for duals in tried:
        if judge.refute(_without_traces(blocks.constraints, duals), V) is None:
            judge.refute(duals, V)
    if judge.refutation is not None:
        judge.nearest = Nearest(candidate, candidate.d - blocks.project(candidate.d))


def _led_to(judge: Judge, refutation: Refutation) -> bool:
    """Take the policy that a refutation's duals lead to, where it is nearest, as it is under one row."""
    prover = judge.prover
    u = judge.blocks.normals(refutation.duals)[0]
    found = _with_displacement(judge, prover.dynamics.sweep(u, refutation.potential)[1])
    if found.distance > (1 + JUST_AS_NEAR) * refutation.distance:
        return False
    judge.nearest = found
    return True


def _with_displacement(judge: Judge, pairs: Indices) -> Nearest:
    candidate = judge.prover.candidate(indicator(judge.prover.dynamics, pairs), anywhere=True)
    return Nearest(candidate, candidate.d - judge.blocks.project(candidate.d))


def _without_traces(limits: Sequence[Constraint], duals: Sequence[Array]) -> list[Array]:
    """Return duals without the traces that interior points leave of limits which do not bind.

    However small they are, some large amount of relaxing would seem to be enough.
    """
    eases = [limit.ease(dual, relative=True) for limit, dual in zip(limits, duals, strict=True)]
    out = []
    for limit, dual, ease in zip(limits, duals, eases, strict=True):
        if ease <= TRACE * max(eases):
            out.append(limit.idle())
        elif limit.is_rows:
            weights = limit.weights(dual)
            out.append(np.where(weights > TRACE * np.max(weights), dual, 0.0))
        else:
            out.append(dual)
    return out


def _first(judge: Judge) -> From:
    """Return the best policy so far and duals of a displacement to it, or of the one that the refutation suggests."""
    assert judge.best is not None
    blocks, known = judge.blocks, judge.refutation
    if known is not None and not any(limit.own for limit in blocks.constraints):
        length = float(np.linalg.norm(blocks.stacked(known.duals)))
        # At the duals t u the bound on half the squared distance is t margin - t^2 |u|^2 / 2, best at this t.
        return judge.best.d, [known.margin / length**2 * dual for dual in blocks.gathered(known.duals)]
    d = judge.best.d
    return d, [limit.dual(d, limit.project(d), 1.0) for limit in blocks.sets]


def make_cheapest(solve: Solver, problem: Problem, judge: Judge) -> None:
    """Make the nearest policy the cheapest of those, as far as that is found, and note what bounds their cost."""
    assert judge.nearest is not None
    first = judge.nearest
    if _weighted(judge):
        return
    moved = problem.with_limits(judge.blocks.moved((1 + SLACK) * first.displacement))
    goal = Goal(MOVED_TOLERANCE * judge.tolerance, acceptable=judge.tolerance)
    found = solve(moved, choose_moved(moved.constraints, problem.mdp), goal, None)
    if found.best is None or found.bound is None:
        return
    candidate = judge.prover.candidate(found.best.d, anywhere=True)
    nearest = Nearest(candidate, candidate.d - judge.blocks.project(candidate.d))
    if nearest.distance > (1 + AS_NEAR) * first.distance or candidate.value > first.candidate.value:
        nearest = first
    wanted = judge.tolerance * nearest.candidate.scale
    judge.nearest = replace(nearest, cheapest=judge.prover.bound(found.bound.duals, found.bound.potential, wanted))


def _weighted(judge: Judge) -> bool:
    """Take the policy that the refutation and the cost together lead to, where it is nearest and proven cheapest."""
    prover, known = judge.prover, judge.refutation
    assert known is not None
    u = judge.blocks.normals(known.duals)[0]
    V, unit = prover.unconstrained.V, largest(prover.c) / largest(u)
    for weight in WEIGHTS:
        duals = [weight * unit * dual for dual in known.duals]
        priced = policy_iteration(prover.dynamics, prover.c + weight * unit * u, V, deadline=judge.clock.deadline)
        V, found = priced.V, _with_displacement(judge, priced.pairs)
        if found.distance > (1 + JUST_AS_NEAR) * known.distance:
            continue
        wanted = judge.tolerance * found.candidate.scale
        found = replace(found, cheapest=prover.bound(duals, V, wanted))
        if found.candidate.value - least_cost(judge, found) <= MOVED_TOLERANCE * wanted:
            judge.nearest = found
            return True
    return False


def least_cost(judge: Judge, nearest: Nearest) -> float:
    """Return the bound on the cost of all policies that obey once each set is moved by its displacement."""
    bound: Bound | None = nearest.cheapest
    if bound is None:
        return -np.inf
    moves = judge.blocks.stacked(bound.duals) * nearest.displacement
    spared = (moves.size + 10) * EPS * float(np.abs(moves).sum())
    spared += RESERVE * judge.tolerance * nearest.candidate.scale
    return bound.value - float(moves.sum()) - spared
