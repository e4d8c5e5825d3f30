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
from typing import Any

import numpy as np
import numpy.typing as npt

from cvxmdp import threads
from cvxmdp.engines import kernels
from cvxmdp.mdp import Array, Indices
from cvxmdp.ranks.scattered import as_parts_of, part_of, world_of_parts
from cvxmdp.ranks.world import Alone, Ranks

MOST_STEPS = 150
"""Newton steps of the small program after which it counts as not solved."""
PARALLEL_ENTRIES = 50_000
"""Advantages from which on threads share the work."""
NEAREST_START = 1e-2
"""The method starts this much nearer to the end, at most, where the last multipliers all but meet the limits."""
TAKEN, LEAST_TAKEN = 1e-7, 1e-3
"""Probability from which an action is taken, or the accuracy where that is more, up to the second."""
UNVISITED = 1e-12
"""Visits, relative to the most, below which a state does not matter to the program."""
FEW_PAIRS, KEPT = 500, 0.2
"""Share of the pairs that is kept beside each state's best where prices are nearly known, unless there are few."""
MISSED = 0.1
"""Share of the accuracy that leaving pairs out may cost."""
SAMPLED, ROUGH = 200, 1e-2
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


def solve_frozen(
    A: Array,
    x: Array,
    first: Indices,
    room: Array,
    equal: npt.NDArray[np.bool_],
    start: Array,
    accuracy: float,
    near: bool = False,
    give: Array | None = None,
) -> Frozen | None:
    """Solve the program for advantages ``A`` (pairs x limits + 1) with ``room = limit - J`` to an absolute accuracy.

    Rows marked ``equal`` hold with equality.  With ``give``, a positive semidefinite matrix G, limits give way to their
    multipliers m by ``G m`` at the cost ``m'G m / 2``: that is the squared distance to them, and never without a
    solution.  The method begins at a central point of the prices ``start``.  Where those are ``near`` the answer, pairs
    that are dear at them are left out at first.  Returns None where the program has no solution, or none was found.
    """
    give = np.zeros((room.size, room.size)) if give is None else give
    rows = Rows(np.ascontiguousarray(part_of(A)), part_of(x), first, world_of_parts(A))
    found = _solve_in_steps(rows, room, equal, start, accuracy, near, give)
    return None if found is None else replace(found, policy=as_parts_of(x, found.policy))


def _solve_in_steps(
    rows: Rows,
    room: Array,
    equal: npt.NDArray[np.bool_],
    start: Array,
    accuracy: float,
    near: bool,
    give: Array,
) -> Frozen | None:
    """Solve a sample of the program first, if its prices are not near, then without dear pairs, then all of it."""
    begin = np.where(equal, start, np.maximum(start, LEAST_PRICE))
    if not near and rows.total(rows.x.size) + 1 > 2 * SAMPLED:
        guess = _solve(_sampled(rows), room, equal, give, begin, ROUGH)
        if guess is not None:
            start, near = guess.multipliers, True
            begin = np.where(equal, start, np.maximum(start, LEAST_PRICE))
    found = None
    if near and rows.total(rows.A.shape[0]) > FEW_PAIRS:
        found = _solve_cheap(rows, room, equal, give, begin, start, accuracy)
    return _solve(rows, room, equal, give, begin, accuracy) if found is None else found


@dataclass(frozen=True, eq=False)
class Rows:
    """Advantages ``A`` of the pairs that live here, the visits of their states, and where each state's pairs begin."""

    A: Array
    x: Array
    first: Indices
    world: Alone | Ranks

    def total(self, part: Any) -> float:
        """Return the sum over ranks."""
        return float(self.world.total(part))


def _solve_cheap(
    rows: Rows,
    room: Array,
    equal: npt.NDArray[np.bool_],
    give: Array,
    begin: Array,
    prices: Array,
    accuracy: float,
) -> Frozen | None:
    """Solve the program without the pairs that are dear at these prices; None where it needs them."""
    A, x, first = rows.A, rows.x, rows.first
    dear = kernels.priced(A, first, prices)[0]
    others = dear[dear > 0]
    kept = np.flatnonzero(dear <= np.quantile(others, KEPT)) if others.size else np.arange(dear.size)
    ends = np.searchsorted(kept, first)
    found = _solve(Rows(A[kept], x, ends, rows.world), room, equal, give, begin, accuracy)
    if found is None:
        return None
    q, _, least = kernels.priced(A, first, found.multipliers)
    # What the policy misses by not taking pairs that were left out.
    if rows.total(x @ np.minimum.reduceat(q[kept], ends[:-1])) > MISSED * accuracy:
        return None
    policy = np.zeros(A.shape[0])
    policy[kept] = found.policy
    return Frozen(policy, found.multipliers, float(rows.world.least(least)))


def _sampled(rows: Rows) -> Rows:
    """Return the program for a sample of the states here, drawn at even steps of the visits they add up to."""
    A, x, first = rows.A, rows.x, rows.first
    if not x.size:
        return rows
    mass = np.cumsum(x)
    drawn = np.searchsorted(mass, (np.arange(SAMPLED) + 0.5) * (mass[-1] / SAMPLED))
    states, counts = np.unique(drawn, return_counts=True)
    sizes = np.diff(first)[states]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    pairs = np.arange(ends[-1]) + np.repeat(first[states] - ends[:-1], sizes)
    return Rows(A[pairs], counts * (mass[-1] / SAMPLED), ends, rows.world)


def _solve(
    rows: Rows, room: Array, equal: npt.NDArray[np.bool_], give: Array, begin: Array, accuracy: float
) -> Frozen | None:
    A, first, world = rows.A, rows.first, rows.world
    most = float(world.largest(np.max(rows.x, initial=0.0)))
    x = np.maximum(rows.x, UNVISITED * most)
    counts = np.diff(first)
    weights = np.repeat(x / counts, counts)
    dear, size = rows.total(kernels.priced(A, first, begin)[0] @ weights), rows.total(weights.size)
    natural = max(dear / size, accuracy / size)
    short = room + give @ begin
    missed = float(np.max(np.where(equal, np.abs(short), -short), initial=0.0))
    agree = None if isinstance(world, Alone) else world.agree
    parts = threads.allowed() if A.size > PARALLEL_ENTRIES and agree is None else 1
    for mu in (natural * min(max(np.sqrt(missed), NEAREST_START), 1.0), natural):
        multipliers = begin.copy()
        p, steps = kernels.interior_point(
            A, x, first, room, ~equal, give, multipliers, mu, accuracy, MOST_STEPS, parts, agree
        )
        if steps != -1:
            break
    if steps < 0:
        return None
    _, greedy, least = kernels.priced(A, first, multipliers)
    p = np.where(p >= min(max(TAKEN, accuracy), LEAST_TAKEN), p, 0.0)
    idle = np.repeat(x <= 10 * UNVISITED * most, counts)  # there the best action at these prices is as good as any
    p[idle] = 0.0
    p[greedy[idle[greedy]]] = 1.0
    policy = p / np.repeat(np.add.reduceat(p, first[:-1]), counts)
    return Frozen(policy, multipliers, float(world.least(least)))


def solve_elastic(A: Array, x: Array, first: Indices, room: Array, start: Array, accuracy: float) -> Frozen | None:
    """Solve the program that lowers the worst excess of a limit, whatever the cost; its multipliers add up to one.

    The excess t is the choice in one more state: of its two actions one gives every limit room, and costs as much as it
    gives, and the other takes it.
    """
    world, visits, count = world_of_parts(A), part_of(x), int(first[-1])
    reach = 2 * float(np.max(-room)) + accuracy
    more = np.full((2, A.shape[1]), reach)
    more[0, 1:], more[1, 0] = -reach, -reach
    extended = np.vstack([part_of(A), more])
    extended[:count, 0] = 0.0
    rows = Rows(extended[:count], visits, first, world)
    if world.rank == 0:  # where the state is that is added
        rows = Rows(extended, np.append(visits, 1.0), np.append(first, count + 2), world)
    none, rigid = np.zeros(room.size, dtype=bool), np.zeros((room.size, room.size))
    begin = np.maximum(start, LEAST_PRICE) / np.sum(np.maximum(start, LEAST_PRICE))
    found = _solve_in_steps(rows, room, none, begin, accuracy, False, rigid)
    if found is None:
        return None
    least = float(world.least(kernels.priced(extended[:count], first, found.multipliers)[2]))
    return Frozen(as_parts_of(x, found.policy[:count]), found.multipliers, least)
