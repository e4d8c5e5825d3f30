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
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from cvxmdp import interrupts
from cvxmdp.dynamics.normal import LONG_STATES
from cvxmdp.engines.base import Engine, Proposal, Proposals, Task
from cvxmdp.engines.halving import Halving
from cvxmdp.engines.path_program import Program
from cvxmdp.mdp import Array
from cvxmdp.threads import one_blas_thread

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
NEGLIGIBLE = 1e-13
"""Visits of a state, relative to what limits can notice, whose pairs do not shorten steps: in a tandem queue of 1600
states they would make 41 steps of 17."""
LEAST_LIFT = 1e-3
"""By how much reduced costs are raised at the start at least, relative to the cost."""
LOW = 0.1
"""Least reduced cost at the start, relative to their mean."""
READY = 0.2
"""A point is judged once what is left is within this share of the tolerance."""
PENALTY = 10.0
"""Price of a forbidden pair, in multiples of the largest cost and of the range of values."""
STALL = 6
"""Steps without progress towards the limits after which a proof is tried that no policy obeys."""


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
            point, stall = Point(program), Stall(task.tolerance)
            for _ in range(MOST_STEPS):
                point.linearize()
                if not np.isfinite(point.left):
                    return
                yield point.proposal(point.left <= READY * task.tolerance, stall.found(point.open))
                if not point.step():
                    break
            point.linearize()
            if np.isfinite(point.left):
                yield point.proposal(ready=True, suspect=False)


class Stall:
    """Notes steps without progress towards the limits: multipliers then may prove that no policy obeys."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance, self.halving = tolerance, Halving()

    def found(self, missing: float) -> bool:
        """Say whether it is time to try a proof, once every few steps."""
        stalled = self.halving.note(missing) >= STALL and missing > self.tolerance
        if stalled:
            self.halving.since = 0
        return stalled


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

    @property
    def left(self) -> float:
        """What is left to do: the gap, or what the equations are off by."""
        return max(self.gap, self.open)

    def proposal(self, ready: bool, suspect: bool) -> Proposal:
        """Propose the policy and the duals of this point."""
        return Proposal(
            lambda: self.program.view.fill(self.d), self.duals, self.values, self.left, ready, suspect=suspect
        )  # fmt: skip

    def duals(self) -> list[Array]:
        """Return one dual array a member in the user's units; what is forbidden costs more than any detour."""
        program = self.program
        range_of_costs = float(np.max(np.abs(program.task.c))) + program.unit * float(np.ptp(self.V))
        # What is saved by way of a forbidden pair may be saved for ever, and the pair may be met by chance.
        price = PENALTY * range_of_costs / (program.chance * (1 - program.task.dynamics.gamma))
        lack = program.unit * np.maximum(-(self.Z[: self.num] + self.off), 0.0)
        return [stated.dual(program.unit, price, lack) for stated in program.of_member]

    def values(self) -> Array:
        """Return the values of all states."""
        program = self.program
        V = program.task.unconstrained.V.copy()
        V[program.view.states] = program.unit * (self.V + self.level / (1 - program.task.dynamics.gamma))
        return V

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
        moves = Moves(self)  # Mehrotra's predictor
        move, lengths = moves.recentred(*moves.corrected())  # his corrector, then Gondzio's corrections
        self.calmed, full = min(lengths) < SHORT and not self.calmed, 1.0
        if self.calmed:
            move, full = moves.calmed(move, lengths)
        self.core.refine(move, full)
        primal, dual = (min(1.0, BACK_OFF * length) for length in self.lengths(move))
        if not (np.isfinite(primal + dual) and max(primal, dual) > SHORTEST):
            return False
        self.level += self.core.advance(move, primal, dual)
        return True

    def _factored(self) -> bool:
        """Factor Newton's system; return whether that could be done."""
        if self.V.size <= LONG_STATES:
            return self.core.factor(GROUND_WEIGHT)
        return interrupts.patiently(lambda: self.core.factor(GROUND_WEIGHT))

    def lengths(self, *move: Any) -> tuple[float, float]:
        """The longest steps along a move, with a share of another, that leave slacks, and multipliers, positive."""
        primal, dual = self.core.lengths(*move)
        return (primal, dual) if self.straight else (min(primal, dual),) * 2

    def products(self, move: Array, primal: float, dual: float) -> Array:
        """``X Z`` after steps of these lengths."""
        return np.asarray((self.X + primal * move[self.of_X]) * (self.Z + dual * move[self.of_Z]))


class Moves:
    """The moves that one factor of Newton's system gives at a point."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self.ahead = point.move(0.0, 1.0)
        """Mehrotra's predictor, towards products of zero."""
        primal, dual = (min(1.0, length) for length in point.lengths(self.ahead))
        left = float((point.X + primal * self.ahead[point.of_X]) @ (point.Z + dual * self.ahead[point.of_Z]))
        self.aim = (left / point.gap) ** 3 * point.mu
        """The mu that is aimed at."""

    @cached_property
    def centring(self) -> Array:
        """What one more unit of mu adds to a move."""
        return self.point.move(self.point.W, 0.0)

    def corrected(self) -> tuple[Array, tuple[float, float]]:
        """Mehrotra's corrector, and how far it leads; where that is short, the share of it that leads farthest."""
        point, ahead = self.point, self.ahead
        move = ahead + point.move(self.aim * point.W - ahead[point.of_X] * ahead[point.of_Z], 0.0)
        lengths = point.lengths(move)
        if not min(lengths) < FINE:
            return move, lengths
        centred = ahead + self.aim * self.centring
        second, best = move - centred, 1.0
        for share in SHARES:
            reach = point.lengths(centred, second, share)
            if _reach(reach) > 1.01 * _reach(lengths):
                best, lengths = share, reach
        return centred + best * second, lengths

    def recentred(self, move: Array, lengths: tuple[float, float]) -> tuple[Array, tuple[float, float]]:
        """Gondzio's corrections: products that a longer step would leave far from the aim are brought back to it."""
        point, aims = self.point, self.aim * self.point.W
        for _ in range(CORRECTIONS):
            if min(lengths) >= LONG:
                break
            further = [min(1.0, 1.1 * length + 0.1) for length in lengths]
            products = point.products(move, *further)
            wanted = np.maximum(np.clip(products, aims / FACTOR, aims * FACTOR) - products, -FACTOR * aims)
            tried = move + point.move(wanted, 0.0)
            reach = point.lengths(tried)
            if _reach(reach) < _reach(lengths) + 0.1 * (sum(further) - _reach(lengths)):
                break
            move, lengths = tried, reach
        return move, lengths

    def calmed(self, move: Array, lengths: tuple[float, float]) -> tuple[Array, float]:
        """Too near the border to go on: bring the products together first, and do less, a share, about all else."""
        point, full = self.point, 1.0
        spread = point.move(point.X * point.Z, 0.0)
        for share in CALMER:
            calm = share * self.ahead + point.mu * self.centring + (share - 1) * spread
            reach = point.lengths(calm)
            if min(reach) > 2 * min(lengths):
                move, lengths, full = calm, reach, share
            if min(lengths) >= SHORT:
                break
        return move, full


def _slices(sizes: Sequence[int], start: int) -> list[slice]:
    ends = start + np.cumsum([0, *sizes])
    return [slice(int(a), int(b)) for a, b in pairwise(ends)]


def _reach(lengths: tuple[float, float]) -> float:
    return min(1.0, lengths[0]) + min(1.0, lengths[1])
