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

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp

from cvxmdp.barriers import Barrier, Part, View
from cvxmdp.dynamics.normal import Normal, Pattern, reached_states
from cvxmdp.engines.judge import Judge
from cvxmdp.engines.presolve import indicator, policy_iteration
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.status import Status

Mask = npt.NDArray[np.bool_]

MOST_STEPS = 150
BACK_OFF = 0.995
"""Share of the longest step that is taken."""
SHORTEST = 1e-7
"""A shorter step leads nowhere."""
GROUNDED = 1e20
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
MOST_RAISED = 1e3
"""Rare states weigh as the root of their visits, but no more than this many times as much as these: limits may ask for
more visits than the first policies make."""
EVEN_START = 1e-12
"""Share of an even initial distribution that is mixed in, relative to what limits can notice, so that no state is
visited less often by orders of magnitude than need be."""
LEAST_LIFT = 1e-3
"""By how much reduced costs are raised at the start at least, relative to the cost."""
LOW = 0.1
"""Least reduced cost at the start, relative to their mean."""
ASK = 0.2
"""The judge is asked once what is left is within this share of the tolerance."""
STALL = 6
"""Steps without progress towards the limits after which a proof is tried that no policy obeys."""
PENALTY = 10.0
"""Price of a forbidden pair, in multiples of the largest cost and of the range of values."""


@dataclass(frozen=True)
class Path:
    """Settings of path following.

    Parameters
    ----------
    evaluation : {"auto", "direct", "iterative"}
        How linear systems of policies are solved, see :func:`cvxmdp.dynamics.linear.plan`.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> problem = cm.Problem(cm.worlds.gridworld(size=5), "time", [cm.Entropy(at_least=2.0)])
    >>> problem.solve(method=cm.Path()).status.name
    'OPTIMAL'
    """

    evaluation: str = "auto"

    name = "path"
    most_passes = 2 * MOST_STEPS
    threads_from = 800
    """States from which on a second thread helps its factors; below, it only waits where cores are busy."""

    def run(self, judge: Judge, start: tuple[Array, list[Array]] | None) -> tuple[Status | None, str]:
        """Follow the path until the judge is satisfied; no status where it stalls, or where no policy obeys."""
        status = None
        program = Program.of(judge)
        if program is not None and judge.refutation is None and judge.wants_optimum:
            status = follow(judge, program)
        return status, f"path following, {judge.steps} steps"


def follow(judge: Judge, program: Program) -> Status | None:
    """Step until the judge is satisfied; no status where steps lead nowhere, or where no policy obeys."""
    point = Point(program)
    judge.pending = lambda: program.view.fill(point.d)
    least_open, since = np.inf, 0
    for _ in range(MOST_STEPS):
        judge.iterations += 1
        point.linearize()
        left = max(point.gap, point.open)
        if not np.isfinite(left):
            return judge.verdict()
        close = left <= ASK * judge.tolerance or judge.limit() is not None
        if close:
            program.offer(point)
        judge.record(left)
        if close and (status := judge.verdict()) is not None:
            return status
        since = 0 if point.open < 0.5 * least_open else since + 1
        least_open = min(least_open, point.open)
        if since >= STALL and point.open > judge.tolerance and judge.blocks.constraints:
            since = 0
            if judge.refute(program.duals(point)) is not None:
                return None if judge.wants_nearest else Status.INFEASIBLE
        if not point.step():
            break
    point.linearize()
    if np.isfinite(point.gap + point.open):
        program.offer(point)
    return judge.verdict()


class Program:
    """A problem as the method sees it: pairs that may be taken in states that are reached, in units of the cost."""

    def __init__(self, judge: Judge, view: View, pattern: Pattern, unit: float, q: Array, chance: float) -> None:
        self.judge, self.view, self.pattern, self.unit, self.q = judge, view, pattern, unit, q
        self.chance = chance
        self.c = view.take(judge.c) / unit
        self.parts: list[Part] = []
        self.of_member: list[Barrier] = []

    @classmethod
    def of(cls, judge: Judge) -> Program | None:
        """State a problem; None where a set or term has no barrier, or where what is forbidden cannot be avoided."""
        mdp, members = judge.mdp, judge.blocks.members
        allowed = np.ones(mdp.num_pairs, dtype=bool)
        for member in members:
            if (forbidden := member.forbidden()) is not None:
                allowed &= ~forbidden
        whole = judge.dynamics.pattern if np.all(allowed) else None
        found = (np.arange(mdp.num_pairs), np.arange(mdp.num_states), 1.0) if whole else _reached(mdp, allowed)
        if found is None:
            return None
        kept, states, chance = found
        inflow, d = _start(judge, kept, states)
        if not np.all(d > 0):
            return None
        owner = np.searchsorted(states, mdp.state[kept])
        pattern = whole or Pattern.of(mdp.transitions[kept][:, states], owner, states.size, mdp.discount)
        visits = pattern.per_state(d)
        visits *= np.minimum(np.sqrt(1 / (states.size * visits)), MOST_RAISED)
        weights = (visits / np.diff(pattern.first))[owner]
        view = View(owner, states, None if kept.size == mdp.num_pairs else kept, mdp.num_pairs, weights, d)
        for member in members:
            if (change := member.shrink(view)) is not None:
                view = replace(view, weights=view.weights * change, d=view.d * change)
        unit = float(np.abs(view.take(judge.c)) @ view.d) + judge.blocks.size_of_value(view.fill(view.d))
        program = cls(judge, view, pattern, unit if unit > 0 else 1.0, inflow[states], chance)
        for member in members:
            stated = member.barrier(view, program.unit)
            if stated is None:
                return None
            program.parts += stated.parts
            program.of_member.append(stated)
        return program

    def offer(self, point: Point) -> None:
        """Have the judge look at the policy and the duals of a point."""
        self.judge.propose(self.view.fill(point.d))
        self.judge.prove(self.duals(point), self.values(point))

    def duals(self, point: Point) -> list[Array]:
        """Return one dual array a member in the user's units; what is forbidden costs more than any detour."""
        range_of_costs = float(np.max(np.abs(self.judge.c))) + self.unit * float(np.ptp(point.V))
        # What is saved by way of a forbidden pair may be saved for ever, and the pair may be met by chance.
        price = PENALTY * range_of_costs / (self.chance * (1 - self.judge.dynamics.gamma))
        lack = self.unit * np.maximum(-(point.Z[: point.num] + point.off), 0.0)
        return [stated.dual(self.unit, price, lack) for stated in self.of_member]

    def values(self, point: Point) -> Array:
        """Return the values of all states."""
        V = self.judge.unconstrained.V.copy()
        V[self.view.states] = self.unit * (point.V + point.level / (1 - self.judge.dynamics.gamma))
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


def _start(judge: Judge, kept: Indices, states: Indices) -> tuple[Array, Array]:
    """Return the inflow, a little of it into every state, and the mean occupancy of the pairs under some policies.

    These are the even policy and some between it and the best one without limits.
    """
    dynamics, owner = judge.dynamics, judge.dynamics.owner
    assert judge.best is not None
    largest = float(np.max(np.abs(judge.c)))
    noticed = [member.room() for member in judge.blocks.members] + [judge.best.scale / largest if largest > 0 else 1.0]
    share = EVEN_START * min(1.0, *noticed)
    rho = (1 - share) * dynamics.rho
    rho[states] += share / states.size
    even = np.zeros(dynamics.num_pairs)
    even[kept] = 1.0
    outside = np.ones(dynamics.num_states, dtype=bool)
    outside[states] = False
    even[outside[owner]] = 1.0  # what is done there does not matter
    even /= dynamics.per_state(even)[owner]
    best = indicator(dynamics, judge.unconstrained.pairs)
    best = np.where((even[judge.unconstrained.pairs] > 0)[owner], best, even)
    inflow = (1 - dynamics.gamma) * rho

    def occupancy(pi: Array) -> Array:
        # What flows in is the least; solvers that stop early may have found less of rare visits.
        return np.maximum(dynamics.backward(pi)(inflow), inflow)[owner] * pi

    found = [occupancy((1 - soft) * best + soft * even) for soft in (1.0, *SOFT)]
    V = None
    for _ in range(MOST_LEADS):
        # Policies that lead towards limits which are far from being obeyed.
        d = np.mean(found, axis=0)
        leads = [lead for member in judge.blocks.constraints if (lead := member.lead(d)) is not None]
        if not leads or judge.limit() is not None:
            break
        for lead in leads:
            led = policy_iteration(dynamics, lead, V, rounds=LEAD_ROUNDS)
            V, pi = led.V, indicator(dynamics, led.pairs)
            pi = np.where((even[led.pairs] > 0)[owner], pi, even)
            found.append(occupancy((1 - SOFT[-1]) * pi + SOFT[-1] * even))
    return inflow, np.mean(found, axis=0)[kept]


class Point:
    """Where the method is: ``X = (d, slacks)``, ``Z = (z, multipliers)``, V and the parts' free unknowns."""

    def __init__(self, program: Program) -> None:
        self.program, self.parts, self.pattern = program, program.parts, program.pattern
        self.normal = Normal(program.pattern)
        view, c, gamma = program.view, program.c, program.judge.dynamics.gamma
        d = view.d
        V = program.judge.unconstrained.V[view.states] / program.unit
        # A constant in V counts (1 - gamma) times.  So it is an unknown of its own, the price of the total of d, in
        # place of the value of the state that is visited most.
        self.ground = int(np.argmax(view.per_state(d)))
        self.V, self.level = V - V[self.ground], (1 - gamma) * float(V[self.ground])
        reduced = c - self.pattern.back(self.V) - self.level
        # Lowering the level raises all reduced costs alike, so that they begin positive.
        lift = max(float(reduced @ d), LEAST_LIFT)
        self.level -= lift
        z = np.maximum(reduced + lift, LOW * lift)
        self.mu = float(d @ z)
        begun = [part.start(d, self.mu) for part in self.parts]
        self.X = np.concatenate([d, *(s for s, _, _ in begun)])
        self.Z = np.concatenate([z, *(m for _, m, _ in begun)])
        self.free = np.concatenate([np.zeros(0), *(free for _, _, free in begun)])
        self.W = np.concatenate([view.weights, *(part.weights for part in self.parts)])
        self.num = d.size
        self.calmed = False
        self.of_part = _slices([part.weights.size for part in self.parts], d.size)
        self.of_free = _slices([part.num_free for part in self.parts], 0)
        self.straight = all(part.straight for part in self.parts)

    @property
    def d(self) -> Array:
        """The occupancy of the pairs that are kept."""
        return self.X[: self.num]

    def linearize(self) -> None:
        """See what the equations look like here, and how far they are from holding."""
        program, d, z = self.program, self.d, self.Z[: self.num]
        self.gap = float(self.X @ self.Z)
        self.mu = self.gap / float(self.W.sum())
        for part, s, f in zip(self.parts, self.of_part, self.of_free, strict=True):
            part.linearize(d, self.X[s], self.Z[s], self.free[f])
        self.off = program.c - self.pattern.back(self.V) - self.level - z
        for part in self.parts:
            self.off = self.off + part.force
        self.missing = program.q - self.pattern.flow(d)
        self.lacking = 1 - float(d.sum())
        self.open = max(
            abs(self.lacking),
            float(np.abs(self.missing).sum()),
            float(np.abs(self.off) @ d),
            *(part.open for part in self.parts), 0.0,
        )  # fmt: skip

    def step(self) -> bool:
        """Take one step; return whether it led anywhere."""
        try:
            system = System(self)
        except (ValueError, RuntimeError, la.LinAlgError):  # not finite, or singular
            return False
        nothing = np.zeros_like(self.X)
        ahead = system.move(nothing, 1.0)
        primal, dual = (min(1.0, length) for length in self._lengths(ahead))
        left = float((self.X + primal * ahead.X) @ (self.Z + dual * ahead.Z))
        aim = (left / self.gap) ** 3 * self.mu
        aims = aim * self.W
        move = ahead.plus(system.move(aims - ahead.X * ahead.Z, 0.0), 1.0)
        lengths = self._lengths(move)
        even = None
        if min(lengths) < FINE:
            # The second-order correction may be too long: take the share of it that leads farthest.
            even = system.move(self.W, 0.0)
            centred = ahead.plus(even, aim)
            bent = move.plus(centred, -1.0)
            best, lengths = 1.0, lengths
            for share in SHARES:
                reach = self._lengths(centred, bent, share)
                if _reach(reach) > 1.01 * _reach(lengths):
                    best, lengths = share, reach
            move = centred.plus(bent, best)
        for _ in range(CORRECTIONS):
            if min(lengths) >= LONG:
                break
            further = [min(1.0, 1.1 * length + 0.1) for length in lengths]
            products = (self.X + further[0] * move.X) * (self.Z + further[1] * move.Z)
            wanted = np.maximum(np.clip(products, aims / FACTOR, aims * FACTOR) - products, -FACTOR * aims)
            tried = move.plus(system.move(wanted, 0.0), 1.0)
            reach = self._lengths(tried)
            if _reach(reach) < _reach(lengths) + 0.1 * (sum(further) - _reach(lengths)):
                break
            move, lengths = tried, reach
        self.calmed = min(lengths) < SHORT and not self.calmed
        if self.calmed:
            # Too near the border to go on: bring the products together first, and do less about all else.
            even = even or system.move(self.W, 0.0)
            spread = system.move(self.X * self.Z, 0.0)
            for share in CALMER:
                calm = ahead.scaled(share).plus(even, self.mu).plus(spread, share - 1)
                reach = self._lengths(calm)
                if min(reach) > 2 * min(lengths):
                    move, lengths = calm, reach
                if min(lengths) >= SHORT:
                    break
        move = system.refined(move)
        primal, dual = (min(1.0, BACK_OFF * length) for length in self._lengths(move))
        if not (np.isfinite(primal + dual) and max(primal, dual) > SHORTEST):
            return False
        self.X, self.Z = self.X + primal * move.X, self.Z + dual * move.Z
        self.V, self.free = self.V + dual * move.V, self.free + dual * move.free
        self.level -= dual * float(move.columns[0])
        return True

    def _lengths(self, move: Move, other: Move | None = None, share: float = 0.0) -> tuple[float, float]:
        """The longest steps, with a share of another, that leave slacks, and multipliers, positive."""
        from cvxmdp.engines.elementwise import longest  # here, since loading the compiler takes a second

        other = other or move
        primal = longest(self.X, move.X, other.X, share)
        dual = longest(self.Z, move.Z, other.Z, share)
        return (primal, dual) if self.straight else (min(primal, dual),) * 2


@dataclass(frozen=True, eq=False)
class Move:
    """A step towards ``X Z = aims``; all of it is linear in the aims and in whether it is a full one."""

    aims: Array
    full: float
    X: Array
    Z: Array
    V: Array
    free: Array
    columns: Array
    """Unknowns of the parts' columns."""
    of_states: Array
    """Multipliers of limits on states."""

    def scaled(self, share: float) -> Move:
        """Return a share of the step."""
        return Move(**{name: share * value for name, value in vars(self).items()})

    def plus(self, other: Move, share: float) -> Move:
        """Return the step with a share of another one."""
        mine, others = vars(self), vars(other)
        return Move(**{name: value + share * others[name] for name, value in mine.items()})


Solved = tuple[Array, Array, Array, Array]
"""Changes of d, the columns' unknowns, the multipliers of limits on states, and V."""


class System:
    """Newton's system at a point, factored.

    ``K x + columns n - A'y = force``,  ``columns'x - block n = border``,  ``A x = missing``; the multipliers of limits
    on states are part of K, and come out with x.
    """

    def __init__(self, point: Point) -> None:
        self.point, self.pattern, self.normal = point, point.pattern, point.normal
        self.d, self.z = point.d, point.Z[: point.num]
        diagonal = self.z / self.d
        curvature, stiffness = None, None
        # The first column is of the total of d, which the flow equations imply, but only (1 - gamma) times.
        columns: list[Array] = [np.ones((point.num, 1))]
        blocks: list[Array | None] = [np.zeros((1, 1))]
        for part in point.parts:
            diagonal = diagonal + part.diagonal
            if part.per_state is not None:
                curvature = part.per_state if curvature is None else curvature + part.per_state
            if part.stiffness is not None:
                stiffness = part.stiffness if stiffness is None else stiffness + part.stiffness
            if part.columns is not None:
                columns.append(part.columns)
                blocks.append(part.block)
        self.diagonal, self.W = diagonal, 1 / diagonal
        zero = np.zeros(self.pattern.num_states)
        self.stiff = curvature is not None or stiffness is not None
        self.curvature = zero if curvature is None else curvature
        self.stiffness = zero if stiffness is None else stiffness
        total = self.curvature + self.stiffness
        self.shift = np.zeros(self.pattern.num_states)
        self.shift[point.ground] = GROUNDED * float(self.W.sum())
        self.normal.factor(self.W, total if self.stiff else None, self.shift)
        self.by_state = self.pattern.per_state(self.W)
        self.softness = 1 / (1 + total * self.by_state)
        self.total = total
        self.sizes = [0 if part.columns is None else part.columns.shape[1] for part in point.parts]
        self.columns = np.hstack(columns)
        self.block = la.block_diag(*blocks)
        self.bent = np.stack([self._apply(np.ascontiguousarray(u), None)[0] for u in self.columns.T]).T
        self.flows = np.stack([self.pattern.flow(u) for u in self.bent.T]).T
        self.solved = self.normal.solve(self.flows)
        small = self.columns.T @ self.bent + self.block - self.flows.T @ self.solved
        *self.small, info = la.lapack.dgetrf(small)
        if info > 0:
            raise la.LinAlgError("the columns' own equations are singular")

    def _apply(self, g: Array, pull: Array | None) -> tuple[Array, Array]:
        """Return ``K^-1 g``, and the multipliers of the states' limits, which ``pull`` changes by themselves."""
        W, owner = self.W, self.pattern.owner
        if not self.stiff:
            return W * g, np.zeros(0)
        mean = self.pattern.per_state(W * g) / self.by_state
        # The pairs' mean moves by what is left of the pull once states give way.
        rest = (mean if pull is None else mean - pull) * self.softness
        x = W * ((g - mean[owner]) + rest[owner])
        stiff = self.total * self.by_state * mean
        net = (stiff if pull is None else stiff + pull) * self.softness - self.curvature * self.by_state * rest
        return x, net

    def move(self, aims: Array, full: float) -> Move:
        """Return the move towards products ``X Z = aims``, in full, or with ``full`` zero as a correction."""
        force, border, pull = self._sides(aims, full)
        return self._moved(aims, full, self._once(force, border, full * self.point.missing, pull), pull)

    def refined(self, move: Move) -> Move:
        """Solve once more for what rounding left."""
        pattern, aims, full = self.pattern, move.aims, move.full
        force, border, given = self._sides(aims, full)
        x, y, net, V = move.X[: self.point.num], move.columns, move.of_states, move.V
        rest = force - self.diagonal * x + pattern.back(V)
        left = full * self.point.missing - pattern.flow(x)
        left[self.point.ground] = 0.0
        pull = given
        if self.stiff:
            u = pattern.per_state(x)
            rest -= (self.curvature * u + net)[pattern.owner]
            # The states' own equations: net = stiffness u + pull.
            pull = (self.stiffness * u - net) + (0.0 if given is None else given)
        rest -= self.columns @ y
        border = border - self.columns.T @ x + self.block @ y
        more = self._once(rest, border, left, pull)
        solved = (x + more[0], y + more[1], net + more[2], V + more[3])
        return self._moved(aims, full, solved, given)

    def _sides(self, aims: Array, full: float) -> tuple[Array, Array, Array | None]:
        """Return the right sides of the equations."""
        point = self.point
        force = aims[: point.num] / self.d - full * (self.z + point.off)
        borders: list[Array] = [np.array([full * point.lacking])]
        pull = None
        for part, s in zip(point.parts, point.of_part, strict=True):
            extra, border, of_states = part.aim(aims[s], full)
            force = force - extra
            borders.append(border)
            if of_states is not None:
                pull = of_states if pull is None else pull + of_states
        return force, np.concatenate(borders), pull

    def _moved(self, aims: Array, full: float, solved: Solved, pull: Array | None) -> Move:
        """Return the changes that belong to a solution."""
        point, d, z = self.point, self.d, self.z
        x, y, net, V = solved
        dX, dZ, free = [x], [(aims[: point.num] - z * (full * d + x)) / d], [np.zeros(0)]
        change = net
        if pull is not None:
            # Where limits are stiff, from the multipliers: adding up x would lose it to rounding.
            stiff = self.stiffness * self.by_state > 1
            plain = self.pattern.per_state(x)
            change = np.where(stiff, (net - pull) / np.where(stiff, self.stiffness, 1.0), plain)
        at = 1
        for part, s, size in zip(point.parts, point.of_part, self.sizes, strict=True):
            ds, dm, df = part.respond(aims[s], full, x, y[at : at + size], change)
            dX.append(ds)
            dZ.append(dm)
            free.append(df)
            at += size
        return Move(aims, full, np.concatenate(dX), np.concatenate(dZ), V, np.concatenate(free), y, net)

    def _once(self, force: Array, border: Array, missing: Array, pull: Array | None) -> Solved:
        """Solve by the factor: first for V alone, then for the columns' unknowns."""
        x = self._apply(force, pull)[0]
        V = self.normal.solve(missing - self.pattern.flow(x))
        y = la.lapack.dgetrs(*self.small, self.columns.T @ x + self.flows.T @ V - border)[0]
        V = V + self.solved @ y
        x, net = self._apply(force - self.columns @ y + self.pattern.back(V), pull)
        return x, y, net, V


def _slices(sizes: Sequence[int], start: int) -> list[slice]:
    ends = start + np.cumsum([0, *sizes])
    return [slice(int(a), int(b)) for a, b in pairwise(ends)]


def _reach(lengths: tuple[float, float]) -> float:
    return min(1.0, lengths[0]) + min(1.0, lengths[1])
