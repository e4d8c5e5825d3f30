"""Path following: a primal-dual interior point method over the states, for any mixture of the library's sets and terms.

It solves ``minimize c'd + terms`` over ``A d = q``, ``d >= 0`` and the limits, with ``A = Xi' - gamma P'`` and
``q = (1 - gamma) rho``.  With V the values, z the reduced costs, s and m the slacks and multipliers of the limits
(:mod:`cvxmdp.barriers`) every step is Newton's on

    c + forces(d, m) - A'V = z,      A d = q,      limits(d) = s,      d z = mu w,      s m = mu w,

and mu falls: Mehrotra's predictor, a corrector weighted so that the step is longest (Colombo and Gondzio 2008), and
corrections that bring products back to the others (Gondzio 1996).  The weights w are about how often a pair is
visited, so that visits of 1e-100 are as well scaled as those near one.  A step factors one matrix over states
(:mod:`cvxmdp.dynamics.normal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp import interrupts
from cvxmdp.barriers import Barrier, Part, View
from cvxmdp.dynamics.normal import LONG_STATES, Pattern, reached_states
from cvxmdp.engines.base import Engine, Proposal, Proposals, Task
from cvxmdp.engines.presolve import indicator, policy_iteration
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.threads import one_blas_thread

Mask = npt.NDArray[np.bool_]

MOST_STEPS = 150
"""Most problems take 6 to 30; caps of 1e-14 in far corners of a grid take 126 to 150."""
BACK_OFF = 0.995
"""Share of the longest step that is taken."""
SHORTEST = 1e-7
"""A shorter step leads nowhere."""
GROUND_WEIGHT = 1e20
"""What holds the value of one state at zero, relative to the weights of all pairs."""
CORRECTIONS = 2
"""Most corrections of products from one factor."""
FACTOR = 10.0
"""Products within this factor of their aim are left as they are."""
LONG = 0.95
"""A step this long needs no corrections."""
SHORT, CALMER = 0.1, (0.3, 0.1, 0.0)
"""A step shorter than this is replaced by one that does these shares of what is to be done besides centring."""
FINE, SHARES = 0.8, (0.5, 0.25, 0.1, 0.0)
"""Where steps are shorter than the first, shares of the second-order correction are tried for the longest step."""
SOFT = (0.5, 0.1)
"""Shares of the even policy in the policies near the best one, whose visits weigh the states."""
MOST_LEADS, LEAD_ROUNDS = 3, 10
"""How often policies are added that lead towards limits far away, and how many rounds each may take to find."""
MOST_RAISE = 1e3
"""Rare states weigh as the root of their visits, but no more than this many times as much as these: limits may ask for
more visits than the first policies make."""
EVEN_START = 1e-12
"""Share of an even initial distribution that is mixed in, relative to what limits can notice, so that no state is
visited less often by orders of magnitude than need be."""
NEGLIGIBLE = 1e-13
"""Visits of a state, relative to what limits can notice, whose pairs do not shorten steps: in a tandem queue of 1600
states they would make 41 steps of 17."""
LEAST_NOTICE = 1e-12
"""Visits that the cost can notice, relative to its largest entry, are at least this many."""
LEAST_LIFT = 1e-3
"""By how much reduced costs are raised at the start at least, relative to the cost."""
LOW = 0.1
"""Least reduced cost at the start, relative to their mean."""
READY = 0.2
"""A point is judged once what is left is within this share of the tolerance."""
STALL = 6
"""Steps without progress towards the limits after which a proof is tried that no policy obeys."""
PENALTY = 10.0
"""Price of a forbidden pair, in multiples of the largest cost and of the range of values."""


@dataclass(frozen=True)
class Path(Engine):
    """Settings of path following.

    Parameters
    ----------
    evaluation : {"auto", "direct", "iterative"}
        How linear systems of policies are solved, see :func:`cvxmdp.dynamics.plan.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Entropy(at_least=2.0)])
    >>> problem.solve(method=cm.Path()).status.name
    'OPTIMAL'
    """

    name = "path"
    said = "path following, {steps} steps"
    most_passes = 2 * MOST_STEPS
    threads_from = 800
    """States from which on a second thread helps its factors; below, it only waits where cores are busy."""

    def proposals(self, task: Task) -> Proposals:
        """Follow the path as long as steps lead anywhere."""
        program = Program.of(task)
        if program is None:
            return
        # Fronts of sparse factors are too small for a second thread.
        with one_blas_thread(program.pattern.order is not None):
            point = Point(program)
            least_open, since = np.inf, 0
            for _ in range(MOST_STEPS):
                point.linearize()
                left = max(point.gap, point.open)
                if not np.isfinite(left):
                    return
                since = 0 if point.open < 0.5 * least_open else since + 1
                least_open = min(least_open, point.open)
                stalled = since >= STALL and point.open > task.tolerance
                since = 0 if stalled else since
                yield program.proposal(point, left, left <= READY * task.tolerance, stalled)
                if not point.step():
                    break
            point.linearize()
            left = max(point.gap, point.open)
            if np.isfinite(left):
                yield program.proposal(point, left, ready=True, suspect=False)


class Program:
    """A problem as the method sees it: pairs that may be taken in states that are reached, in units of the cost."""

    def __init__(
        self, task: Task, view: View, pattern: Pattern, unit: float, q: Array, chance: float, noticed: float
    ) -> None:
        self.task, self.view, self.pattern, self.unit, self.q = task, view, pattern, unit, q
        self.chance, self.noticed = chance, noticed
        self.c: Array = view.take(task.c) / unit
        self.parts: list[Part] = []
        self.of_member: list[Barrier] = []

    @classmethod
    def of(cls, task: Task) -> Program | None:
        """State a problem; None where a set or term has no barrier, or where what is forbidden cannot be avoided."""
        mdp, members = task.mdp, task.blocks.members
        allowed = np.ones(mdp.num_pairs, dtype=bool)
        for member in members:
            if (forbidden := member.forbidden()) is not None:
                allowed &= ~forbidden
        whole = task.dynamics.pattern if np.all(allowed) else None
        found = (np.arange(mdp.num_pairs), np.arange(mdp.num_states), 1.0) if whole else _reached(mdp, allowed)
        if found is None:
            return None
        kept, states, chance = found
        noticed = _noticed(task)
        inflow, d = _start(task, kept, states, EVEN_START * noticed)
        if not np.all(d > 0):
            return None
        owner = np.searchsorted(states, mdp.state[kept])
        pattern = whole or Pattern.of(mdp.transitions[kept][:, states], owner, states.size, mdp.discount)
        visits = pattern.per_state(d)
        visits *= np.minimum(np.sqrt(1 / (states.size * visits)), MOST_RAISE)
        weights = (visits / np.diff(pattern.first))[owner]
        view = View(owner, states, None if kept.size == mdp.num_pairs else kept, mdp.num_pairs, weights, d)
        for member in members:
            if (change := member.shrink(view)) is not None:
                view = replace(view, weights=view.weights * change, d=view.d * change)
        unit = float(np.abs(view.take(task.c)) @ view.d) + task.blocks.size_of_value(view.fill(view.d))
        program = cls(task, view, pattern, unit if unit > 0 else 1.0, inflow[states], chance, noticed)
        for member in members:
            stated = member.barrier(view, program.unit)
            if stated is None:
                return None
            program.parts += stated.parts
            program.of_member.append(stated)
        return program

    def proposal(self, point: Point, left: float, ready: bool, suspect: bool) -> Proposal:
        """Propose the policy and the duals of a point."""
        return Proposal(
            lambda: self.view.fill(point.d), lambda: self.duals(point), lambda: self.values(point), left, ready,
            suspect=suspect,
        )  # fmt: skip

    def duals(self, point: Point) -> list[Array]:
        """Return one dual array a member in the user's units; what is forbidden costs more than any detour."""
        range_of_costs = float(np.max(np.abs(self.task.c))) + self.unit * float(np.ptp(point.V))
        # What is saved by way of a forbidden pair may be saved for ever, and the pair may be met by chance.
        price = PENALTY * range_of_costs / (self.chance * (1 - self.task.dynamics.gamma))
        lack = self.unit * np.maximum(-(point.Z[: point.num] + point.off), 0.0)
        return [stated.dual(self.unit, price, lack) for stated in self.of_member]

    def values(self, point: Point) -> Array:
        """Return the values of all states."""
        V = self.task.unconstrained.V.copy()
        V[self.view.states] = self.unit * (point.V + point.level / (1 - self.task.dynamics.gamma))
        return V


def _reached(mdp: MDP, allowed: Mask) -> tuple[Indices, Indices, float] | None:
    """Return the allowed pairs that never lead to where none is allowed, and the states that they reach.

    Also return how likely it is at least that other allowed pairs lead there.  None where the process begins in states
    without such pairs.
    """
    chance = 1.0
    S, owner, P = mdp.num_states, mdp.state, sp.csr_array(mdp.transitions)
    while np.any(closed := np.bincount(owner[allowed], minlength=S) == 0):
        likely = P @ closed.astype(np.float64)
        leads = allowed & (likely > 0)
        chance *= float(np.min(likely[leads], initial=1.0))
        if not np.any(leads):
            if np.any(mdp.initial[closed] > 0):
                return None
            break
        allowed = allowed & ~leads
    kept = np.flatnonzero(allowed)
    states = reached_states(P[kept], owner[kept], mdp.initial)
    return kept[np.isin(owner[kept], states)], states, chance


def _noticed(task: Task) -> float:
    """Return how rare visits have to be so that neither the cost nor a limit can notice them."""
    largest = float(np.max(np.abs(task.c)))
    # Without limits the cost may be next to nothing, which says little of what it is with them.
    of_cost = max(task.best.scale / largest, LEAST_NOTICE) if largest > 0 else 1.0
    return min(1.0, of_cost, *(member.room() for member in task.blocks.members))


def _start(task: Task, kept: Indices, states: Indices, share: float) -> tuple[Array, Array]:
    """Return the inflow, a share of it into all states, and the mean occupancy of the pairs under some policies.

    These are the even policy, some between it and the best one without limits, and some that lead into the limits.
    """
    dynamics, owner = task.dynamics, task.dynamics.owner
    rho = (1 - share) * dynamics.rho
    rho[states] += share / states.size
    even = np.zeros(dynamics.num_pairs)
    even[kept] = 1.0
    outside = np.ones(dynamics.num_states, dtype=bool)
    outside[states] = False
    even[outside[owner]] = 1.0  # what is done there does not matter
    even /= dynamics.per_state(even)[owner]
    best = indicator(dynamics, task.unconstrained.pairs)
    best = np.where((even[task.unconstrained.pairs] > 0)[owner], best, even)
    inflow = (1 - dynamics.gamma) * rho

    def occupancy(pi: Array) -> Array:
        # What flows in is the least; solvers that stop early may have found less of rare visits.
        return np.maximum(dynamics.backward(pi)(inflow), inflow)[owner] * pi

    found = [occupancy((1 - soft) * best + soft * even) for soft in (1.0, *SOFT)]
    for member in task.blocks.constraints:
        if (inside := member.inside(np.mean(found, axis=0))) is not None:
            mass = np.where(even > 0, np.maximum(inside, 0.0), 0.0)
            visits = dynamics.per_state(mass)[owner]
            pi = np.divide(mass, visits, out=even.copy(), where=visits > 0)
            found.append(occupancy((1 - SOFT[-1]) * pi + SOFT[-1] * even))
    V = None
    for _ in range(MOST_LEADS):
        # Policies that lead towards limits which are far from being obeyed.
        d = np.mean(found, axis=0)
        leads = [lead for member in task.blocks.constraints if (lead := member.lead(d)) is not None]
        if not leads or interrupts.over(task.deadline):
            break
        for lead in leads:
            led = policy_iteration(dynamics, lead, V, rounds=LEAD_ROUNDS)
            V, pi = led.V, indicator(dynamics, led.pairs)
            pi = np.where((even[led.pairs] > 0)[owner], pi, even)
            found.append(occupancy((1 - SOFT[-1]) * pi + SOFT[-1] * even))
    return inflow, np.mean(found, axis=0)[kept]


class Point:
    """Where the method is: ``X = (d, slacks)``, ``Z = (z, multipliers)``, V, l (``level``), the parts' free unknowns.

    Its arrays are changed in place by ``_path.Core``, which has Newton's system.  A move is one array: the products
    ``X Z`` that it aims at, then the changes of X, Z, V, free, of the columns' unknowns and of the states' multipliers.
    All of it is linear in the aims and in ``full``, which is one for a step and zero for a correction of one.
    """

    def __init__(self, program: Program) -> None:
        from cvxmdp import _path

        self.program, self.parts = program, program.parts
        view, gamma = program.view, program.task.dynamics.gamma
        d, pattern = view.d, program.pattern
        V = program.task.unconstrained.V[view.states] / program.unit
        # A constant in V counts (1 - gamma) times.  So it is an unknown of its own, the price of the total of d, in
        # place of the value of the state that is visited most.
        self.ground = int(np.argmax(view.per_state(d)))
        self.V, self.level = V - V[self.ground], (1 - gamma) * float(V[self.ground])
        self.c, self.q = program.c, program.q
        reduced = self.c - pattern.back(self.V) - self.level
        # Lowering the level raises all reduced costs alike, so that they begin positive.
        lift = max(float(reduced @ d), LEAST_LIFT)
        self.level -= lift
        z = np.maximum(reduced + lift, LOW * lift)
        begun = [part.start(d, float(d @ z)) for part in self.parts]
        self.X = np.concatenate([d, *(s for s, _, _ in begun)])
        self.Z = np.concatenate([z, *(m for _, m, _ in begun)])
        self.free = np.concatenate([np.zeros(0), *(free for _, _, free in begun)])
        self.W = np.concatenate([view.weights, *(part.weights for part in self.parts)])
        self.off, self.missing = np.empty_like(d), np.empty_like(self.V)
        self.num, self.negligible = d.size, NEGLIGIBLE * program.noticed
        self.calmed = False
        self.of_part = _slices([part.weights.size for part in self.parts], d.size)
        self.of_free = _slices([part.num_free for part in self.parts], 0)
        for part, own in zip(self.parts, self.of_part, strict=True):
            part.m = self.Z[own]
        self.straight = all(part.straight for part in self.parts)
        self.core = _path.Core(pattern, self, self.parts)
        size = self.X.size
        self.of_aims, self.of_X, self.of_Z = slice(0, size), slice(size, 2 * size), slice(2 * size, 3 * size)

    @property
    def d(self) -> Array:
        """The occupancy of the pairs that are kept."""
        return self.X[: self.num]

    def linearize(self) -> None:
        """See what the equations look like here, and how far they are from holding."""
        self.gap, self.mu, self.open, self.lacking = self.core.linearize(self.level)

    def move(self, aims: Array | float, full: float) -> Array:
        """Return the move towards products ``X Z = aims``, in full, or with ``full`` zero as a correction."""
        move = np.empty(self.core.size)
        move[self.of_aims] = aims
        self.core.move(move, full)
        return move

    def step(self) -> bool:
        """Take one step; return whether it led anywhere."""
        if not self._factored():
            return False
        X, Z, W, of_X, of_Z = self.X, self.Z, self.W, self.of_X, self.of_Z
        ahead = self.move(0.0, 1.0)
        primal, dual = (min(1.0, length) for length in self._lengths(ahead))
        left = float((X + primal * ahead[of_X]) @ (Z + dual * ahead[of_Z]))
        aim = (left / self.gap) ** 3 * self.mu
        aims = aim * W
        move = ahead + self.move(aims - ahead[of_X] * ahead[of_Z], 0.0)
        lengths = self._lengths(move)
        even = None
        if min(lengths) < FINE:
            # The second-order correction may be too long: take the share of it that leads farthest.
            even = self.move(W, 0.0)
            centred = ahead + aim * even
            bent = move - centred
            best, lengths = 1.0, lengths
            for share in SHARES:
                reach = self._lengths(centred, bent, share)
                if _reach(reach) > 1.01 * _reach(lengths):
                    best, lengths = share, reach
            move = centred + best * bent
        for _ in range(CORRECTIONS):
            if min(lengths) >= LONG:
                break
            further = [min(1.0, 1.1 * length + 0.1) for length in lengths]
            products = (X + further[0] * move[of_X]) * (Z + further[1] * move[of_Z])
            wanted = np.maximum(np.clip(products, aims / FACTOR, aims * FACTOR) - products, -FACTOR * aims)
            tried = move + self.move(wanted, 0.0)
            reach = self._lengths(tried)
            if _reach(reach) < _reach(lengths) + 0.1 * (sum(further) - _reach(lengths)):
                break
            move, lengths = tried, reach
        full = 1.0
        self.calmed = min(lengths) < SHORT and not self.calmed
        if self.calmed:
            # Too near the border to go on: bring the products together first, and do less about all else.
            even = self.move(W, 0.0) if even is None else even
            spread = self.move(X * Z, 0.0)
            for share in CALMER:
                calm = share * ahead + self.mu * even + (share - 1) * spread
                reach = self._lengths(calm)
                if min(reach) > 2 * min(lengths):
                    move, lengths, full = calm, reach, share
                if min(lengths) >= SHORT:
                    break
        self.core.refine(move, full)
        primal, dual = (min(1.0, BACK_OFF * length) for length in self._lengths(move))
        if not (np.isfinite(primal + dual) and max(primal, dual) > SHORTEST):
            return False
        self.level += self.core.advance(move, primal, dual)
        return True

    def _factored(self) -> bool:
        """Factor Newton's system; return whether that could be done."""
        if self.V.size <= LONG_STATES:
            return self.core.factor(GROUND_WEIGHT)
        return interrupts.patiently(lambda: self.core.factor(GROUND_WEIGHT))

    def _lengths(self, *move: Any) -> tuple[float, float]:
        """The longest steps along a move, with a share of another, that leave slacks, and multipliers, positive."""
        primal, dual = self.core.lengths(*move)
        return (primal, dual) if self.straight else (min(primal, dual),) * 2


def _slices(sizes: Sequence[int], start: int) -> list[slice]:
    ends = start + np.cumsum([0, *sizes])
    return [slice(int(a), int(b)) for a, b in pairwise(ends)]


def _reach(lengths: tuple[float, float]) -> float:
    return min(1.0, lengths[0]) + min(1.0, lengths[1])
