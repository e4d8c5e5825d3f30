"""The constrained problem with the visits of the states held fixed: a linear program in the policy alone.

For a policy with visits x and advantages ``A_k`` of the cost (k = 0) and of each limit, another policy p costs

    J_k(p) = J_k + sum over states of x'(s) sum over actions of p(a|s) A_k(s, a),

where x' are the visits of p.  With x' held at x the best p under the limits solves

    minimize  sum x A_0 p   subject to  sum over actions of p = 1,  sum x A_k p <= limit_k - J_k,  p >= 0.

Its multipliers price the limits.  To first and second order in the multipliers it agrees with the true problem, so that
solving it, evaluating its policy and solving it again converges like Newton's method: five to ten rounds on random
models, whatever their size.

A primal-dual interior point method solves it (Mehrotra's predictor and corrector).  Its linear systems have one unknown
a limit, since each state's equation is eliminated by itself.  So where states live on several ranks, each eliminates
its own, and only the small systems are made together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cvxmdp import threads
from cvxmdp.engines import kernels
from cvxmdp.engines.kernels import FrozenProgram, Mask
from cvxmdp.mdp import Array, Indices
from cvxmdp.ranks.scattered import as_parts_of, part_of, world_of_parts
from cvxmdp.ranks.world import Alone

MOST_STEPS = 150
"""Newton steps of the small program after which it counts as not solved."""
PARALLEL_ENTRIES = 50_000
"""Advantages from which on threads share the work."""
NEAREST_START = 1e-2
"""The method starts this much nearer to the end, at most, where the last multipliers all but meet the limits."""
PROBABLE, LEAST_PROBABLE = 1e-7, 1e-3
"""Probability from which an action is taken, or the accuracy where that is more, up to the second."""
FEWEST_VISITS = 1e-12
"""Visits, relative to the most, below which a state does not matter to the program."""
FEW_PAIRS, SHARE_KEPT = 500, 0.2
"""Share of the pairs that is kept beside each state's best where prices are nearly known, unless there are few."""
PRUNING_LOSS = 0.1
"""Share of the accuracy that leaving pairs out may cost."""
SAMPLE_STATES, SAMPLE_ACCURACY = 200, 1e-2
"""States whose program, solved that exactly, gives the first prices where nothing is known of them."""
LEAST_PRICE = 1e-3
"""Multipliers start no nearer to zero than this, in units in which cost and limits are of size one."""


@dataclass(frozen=True, eq=False)
class Frozen:
    """What the program says."""

    policy: Array
    multipliers: Array
    least: float
    """The least advantage of a pair at these multipliers."""


def frozen_program(
    A: Array, x: Array, first: Indices, room: Array, equal: Mask | None = None, compliance: Array | None = None
) -> FrozenProgram:
    """State the program for advantages and visits that may live on several ranks, with rigid inequalities if not told.

    With compliance its optimum is the squared distance to the limits, and it is never without a solution.
    """
    equal = np.zeros(room.size, dtype=bool) if equal is None else equal
    compliance = np.zeros((room.size, room.size)) if compliance is None else compliance
    own = np.ascontiguousarray(part_of(A)), part_of(x)
    return FrozenProgram(*own, first, room, equal, compliance, x, world_of_parts(A))


def solve_frozen(program: FrozenProgram, start: Array, accuracy: float, near: bool = False) -> Frozen | None:
    """Solve the program to an absolute accuracy, from a central point of the prices ``start``.

    Where those are ``near`` the answer, pairs that are dear at them are left out at first.  Returns None where the
    program has no solution, or none was found.
    """
    found = _solve_in_steps(program, start, accuracy, near)
    return None if found is None else replace(found, policy=as_parts_of(program.given, found.policy))


def _solve_in_steps(program: FrozenProgram, start: Array, accuracy: float, near: bool) -> Frozen | None:
    """Solve a sample of the program first, if its prices are not near, then without dear pairs, then all of it."""
    begin = _positive(program, start)
    if not near and program.total(program.x.size) + 1 > 2 * SAMPLE_STATES:
        guess = _solve(_sampled(program), begin, SAMPLE_ACCURACY)
        if guess is not None:
            start, near = guess.multipliers, True
            begin = _positive(program, start)
    found = None
    if near and program.total(program.A.shape[0]) > FEW_PAIRS:
        found = _solve_cheap(program, begin, start, accuracy)
    return _solve(program, begin, accuracy) if found is None else found


def _positive(program: FrozenProgram, prices: Array) -> Array:
    return np.where(program.equal, prices, np.maximum(prices, LEAST_PRICE))


def _solve_cheap(program: FrozenProgram, begin: Array, prices: Array, accuracy: float) -> Frozen | None:
    """Solve the program without the pairs that are dear at these prices; None where it needs them."""
    A, x, first = program.A, program.x, program.first
    dear = kernels.priced(A, first, prices)[0]
    others = dear[dear > 0]
    kept = np.flatnonzero(dear <= np.quantile(others, SHARE_KEPT)) if others.size else np.arange(dear.size)
    ends = np.searchsorted(kept, first)
    found = _solve(replace(program, A=A[kept], first=ends), begin, accuracy)
    if found is None:
        return None
    q, _, least = kernels.priced(A, first, found.multipliers)
    # What the policy misses by not taking pairs that were left out.
    if program.total(x @ np.minimum.reduceat(q[kept], ends[:-1])) > PRUNING_LOSS * accuracy:
        return None
    policy = np.zeros(A.shape[0])
    policy[kept] = found.policy
    return Frozen(policy, found.multipliers, float(program.world.least(least)))


def _sampled(program: FrozenProgram) -> FrozenProgram:
    """Return the program for a sample of the states here, drawn at even steps of the visits they add up to."""
    A, x, first = program.A, program.x, program.first
    if not x.size:
        return program
    mass = np.cumsum(x)
    drawn = np.searchsorted(mass, (np.arange(SAMPLE_STATES) + 0.5) * (mass[-1] / SAMPLE_STATES))
    states, counts = np.unique(drawn, return_counts=True)
    sizes = np.diff(first)[states]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    pairs = np.arange(ends[-1]) + np.repeat(first[states] - ends[:-1], sizes)
    return replace(program, A=A[pairs], x=counts * (mass[-1] / SAMPLE_STATES), first=ends)


def _solve(program: FrozenProgram, begin: Array, accuracy: float) -> Frozen | None:
    A, first, world = program.A, program.first, program.world
    most = float(world.largest(np.max(program.x, initial=0.0)))
    x = np.maximum(program.x, FEWEST_VISITS * most)
    program = replace(program, x=x)
    counts = np.diff(first)
    weights = np.repeat(x / counts, counts)
    dear, size = program.total(kernels.priced(A, first, begin)[0] @ weights), program.total(weights.size)
    natural = max(dear / size, accuracy / size)
    short = program.room + program.compliance @ begin
    missed = float(np.max(np.where(program.equal, np.abs(short), -short), initial=0.0))
    agree = None if isinstance(world, Alone) else world.agree
    parts = threads.allowed() if A.size > PARALLEL_ENTRIES and agree is None else 1
    for mu in (natural * min(max(np.sqrt(missed), NEAREST_START), 1.0), natural):
        multipliers = begin.copy()
        p, steps = kernels.interior_point(program, multipliers, mu, accuracy, MOST_STEPS, parts, agree)
        if steps != -1:
            break
    if steps < 0:
        return None
    _, greedy, least = kernels.priced(A, first, multipliers)
    p = np.where(p >= min(max(PROBABLE, accuracy), LEAST_PROBABLE), p, 0.0)
    idle = np.repeat(x <= 10 * FEWEST_VISITS * most, counts)  # there the best action at these prices is as good as any
    p[idle] = 0.0
    p[greedy[idle[greedy]]] = 1.0
    policy = p / np.repeat(np.add.reduceat(p, first[:-1]), counts)
    return Frozen(policy, multipliers, float(world.least(least)))


def solve_elastic(program: FrozenProgram, start: Array, accuracy: float) -> Frozen | None:
    """Solve the program that lowers the worst excess of a limit, whatever the cost; its multipliers add up to one.

    The excess t is the choice in one more state: of its two actions one gives every limit room, and costs as much as it
    gives, and the other takes it.  All limits count as rigid inequalities.
    """
    A, first, world, count = program.A, program.first, program.world, int(program.first[-1])
    reach = 2 * float(np.max(-program.room)) + accuracy
    more = np.full((2, A.shape[1]), reach)
    more[0, 1:], more[1, 0] = -reach, -reach
    extended = np.vstack([A, more])
    extended[:count, 0] = 0.0
    none, rigid = np.zeros_like(program.equal), np.zeros_like(program.compliance)
    elastic = replace(program, A=extended[:count], equal=none, compliance=rigid)
    if world.rank == 0:  # where the state is that is added
        visits, ends = np.append(program.x, 1.0), np.append(first, count + 2)
        elastic = replace(elastic, A=extended, x=visits, first=ends)
    begin = np.maximum(start, LEAST_PRICE) / np.sum(np.maximum(start, LEAST_PRICE))
    found = _solve_in_steps(elastic, begin, accuracy, near=False)
    if found is None:
        return None
    least = float(world.least(kernels.priced(extended[:count], first, found.multipliers)[2]))
    return Frozen(as_parts_of(program.given, found.policy[:count]), found.multipliers, least)
