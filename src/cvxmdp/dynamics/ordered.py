"""Gauss-Seidel sweeps along the flow, for large sparse models through which probability flows.

In many large models, such as mazes, roads and queues, a good policy leads from states of high value to states of low
value.  Sweeps in that order carry what is known of one end through the whole model at once, where plain sweeps need one
sweep a step of the way.  What slips back against the order is caught by the next sweep.  Often the numbers of the
states, up or down, are such an order already; else a copy of the model is made in which they are, where it fits.  Where
sweeps do not converge fast, the caller's factors and Krylov methods take over.

Where states live on several ranks, each sweeps over its own in such an order; what flows to another rank is passed on
after each sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp import interrupts, threads
from cvxmdp.dynamics import in_order
from cvxmdp.dynamics.in_order import NumberedModel, Rest
from cvxmdp.mdp import Array, Indices
from cvxmdp.memory import fits
from cvxmdp.ranks.halo import NO_HALO, Halo, NoHalo

MOST_SWEEPS, MOST_PUSHES = 300, 2000
"""Sweeps for values and for visits after which factors or Krylov methods are faster; as many more for values as there
are for patience, since the way through a large model is long."""
ROUNDING = 1e-13
"""Relative to the value, or to all that flows in: less is not pursued."""
PATIENCE = 40
"""Sweeps, and a fifth of the root of the number of states more, in which what is left has to halve."""
LOOKS = (4, 12, 36)
"""Sweeps after which the order is looked at again."""
AS_GOOD = 0.1
"""By how much less the states' own numbers may agree with the flow and still serve as the order."""
DOWNHILL = 0.7
"""Least probability that a good policy leads to states of lower value, where an order of the states helps."""
EXACT = 1e-6
"""How exactly each entry is found where a residual is computed afterwards: every correction wins as much again."""
PARALLEL_STATES = 10_000
"""From here on threads share a sweep."""


@dataclass(frozen=True, eq=False)
class Arranged:
    """The model with states numbered in some order."""

    model: NumberedModel
    halo: Halo | NoHalo
    states: Indices | None
    """The states in this order, or None for the model's own numbers."""
    pairs: Indices | None


class Ordered:
    """Sweeps over a model in compressed sparse rows, or over the rows of this rank's own states."""

    def __init__(self, P: Any, first: Indices, gamma: float, halo: Halo | NoHalo = NO_HALO) -> None:
        self._gamma, self._P, self._world = gamma, P, halo.world
        self._own = Arranged(NumberedModel(P.data, P.indices, P.indptr, first, gamma), halo, None, None)
        self.forget()
        self.sweeps = 0
        states = int(self._world.total(first.size - 1))
        self._large = states >= PARALLEL_STATES
        more = int(0.2 * np.sqrt(states))
        self._patience, self._most = PATIENCE + more, MOST_SWEEPS + more

    def forget(self) -> None:
        """Begin anew: an order that suits the values of one cost, or that none does, says nothing of another cost."""
        self._at = self._own
        self._upward = True
        """Whether values increase with the states' numbers."""
        self.known = False
        self.hopeless = False
        """Whether no order helps, as a good policy leads up as often as down, or one needs a copy that does not fit."""
        self.failures = 0
        """How often sweeps did not converge."""

    def iterate_values(self, c: Array, V: Array | None, tolerance: float, deadline: float) -> tuple[Array, bool]:
        """Solve Bellman's equation until it changes by a tenth of the tolerance; also say whether that was reached.

        It begins at V, or above all values, from where what is known of good states spreads fastest.
        """
        num_states = self._own.model.first.size - 1
        if V is None:
            V = np.full(num_states, float(self._world.largest(np.max(c, initial=-np.inf))) / (1 - self._gamma))
        changes: list[float] = []
        parts = threads.allowed() if self._large else 1
        V, c, pair = self._enter(V, c)
        for k in range(self._most):
            if not self.known and k in LOOKS:
                V, c, pair = self._arrange(*self._leave(V, c, pair), final=k == LOOKS[-1])
                if self.hopeless:
                    break
            upward = self._upward if self.known else k % 2 == 0
            V[num_states:] = self._at.halo.values(V)
            goal = 0.1 * tolerance, ROUNDING
            if self._world.size > 1:
                change, reached = self._improve_together(c, V, pair, upward, goal)
            else:
                change, reached = in_order.improve(self._at.model, c, V, pair, upward, parts, goal)
            changes.append(change)
            self.sweeps += 1
            if reached or interrupts.over(deadline):
                break
            if k >= self._patience and change > 0.5 * changes[-self._patience]:
                break
        if not (self.known or self.hopeless):
            V, c, pair = self._arrange(*self._leave(V, c, pair), final=True)
        self.failures += not reached
        return self._leave(V, c, pair)[0], bool(reached)

    def _improve_together(
        self, c: Array, V: Array, pair: Indices, upward: bool, goal: tuple[float, float]
    ) -> tuple[float, bool]:
        """Improve the policies of all ranks, which tell each other their values after every sweep."""
        model, world, own = self._at.model, self._world, pair.size
        change, reached = in_order.improve(model, c, V, pair, upward, 1, goal, held=0)
        change, reached = float(world.largest(change)), world.every(reached)
        least = max(goal[0], goal[1] * float(world.largest(np.max(np.abs(V[:own]), initial=0.0))))
        for _ in range(0 if reached else in_order.POLICY_SWEEPS):
            V[own:] = self._at.halo.values(V)
            if float(world.largest(in_order.hold_policy(model, c, V, pair, upward, 1))) <= least:
                break
        return change, reached

    def solve(self, pi: Array, inflow: Array, share: float = 1.0) -> Array | None:
        """Solve ``x = inflow + gamma P_pi' x``, nothing negative; None where no order is known or it does not help.

        Next to nothing is missing in all, or where a ``share`` is given, at most that of x in every state.
        """
        if not self.known:
            return None
        at = self._at
        pi, inflow = (pi, inflow) if at.states is None else (pi[at.pairs], inflow[at.states])
        waiting = np.append(inflow, np.zeros(at.halo.size))
        x, before = np.zeros(inflow.size), np.inf
        goal = 2 * ROUNDING * float(self._world.total(inflow.sum())) if share == 1.0 else np.inf
        # What is left in all states together must be within the goal, and x adds up to 1 / (1 - gamma) of the inflow.
        least = 0.1 * ROUNDING * (1 - self._gamma) if share == 1.0 else 0.1 * share
        rest = Rest(least, goal, share)
        # A large model is left after each push, so that Ctrl-C is heard, and one on several ranks to pass things on.
        at_once = 1 if self._large or self._world.size > 1 else self._patience
        for done in range(at_once, MOST_PUSHES, at_once):
            left, reached = in_order.push_often(at.model, pi, waiting, x, not self._upward, rest, at_once)
            if self._world.size > 1:
                waiting = np.append(at.halo.home(waiting), np.zeros(at.halo.size))
                left = float(self._world.total(waiting.sum()))
                seen = share == 1.0 or bool(np.all(waiting[: x.size] <= share * x))
                reached = left <= goal and self._world.every(seen)
            if reached or interrupts.late():
                return x if at.states is None else x[np.argsort(at.states)]
            if done % self._patience == 0:
                if left > 0.5 * before:
                    break
                before = left
        return None

    def correction(self, pi: Array, rhs: Array) -> Array | None:
        """Do what :meth:`solve` does for a right side of both signs, to a millionth of each entry of either part."""
        out = np.zeros_like(rhs)
        for sign in (1.0, -1.0):
            part = np.maximum(sign * rhs, 0.0)
            if self._world.largest(float(np.max(part, initial=0.0))) > 0:
                found = self.solve(pi, part, EXACT)
                if found is None:
                    return None
                out += sign * found
        return out

    def _enter(self, V: Array, c: Array) -> tuple[Array, Array, Indices]:
        """Copies of V, with room for guests, and c, and room for pairs, in the arranged numbers."""
        at = self._at
        pair = at.model.first[:-1].copy()
        V, c = (V, c) if at.states is None else (V[at.states], c[at.pairs])
        return np.append(V, np.zeros(at.halo.size)), c, pair

    def _leave(self, V: Array, c: Array, pair: Indices) -> tuple[Array, Array, Indices]:
        """V, c and pairs in the model's own numbers."""
        at = self._at
        V = V[: pair.size]
        if at.states is None or at.pairs is None:
            return V, c, pair
        own_V, own_c, own_pair = np.empty_like(V), np.empty_like(c), np.empty_like(pair)
        own_V[at.states], own_c[at.pairs], own_pair[at.states] = V, c, at.pairs[pair]
        return own_V, own_c, own_pair

    def _arrange(self, V: Array, c: Array, pair: Indices, final: bool) -> tuple[Array, Array, Indices]:
        """Choose the order of V: the states' own numbers, if the flow follows them, or those of a copy."""
        world, states = self._world, self._own.model.first.size - 1
        # Where states are spread over ranks, those elsewhere count as higher.
        found = in_order.downhill(self._own.model, pair, self._own.halo.everywhere(V)) if states else (0.0, 0.0, 0.0)
        by_value, lower, higher = world.total(np.array(found) * states) / world.total(states)
        self._at = self._own
        if by_value < DOWNHILL:
            self.hopeless = final
        elif max(lower, higher) >= by_value - AS_GOOD:
            self.known, self._upward = True, bool(lower >= higher)
        elif not world.every(fits(self._P.data.nbytes + 2 * self._P.indices.nbytes)):
            self.hopeless = final
        else:
            self.known, self._upward = final, True
            order = np.argsort(V, kind="stable")
            first = self._own.model.first
            counts = np.diff(first)[order]
            ends = np.concatenate([[0], np.cumsum(counts)])
            pairs = np.arange(ends[-1]) + np.repeat(first[order] - ends[:-1], counts)
            position = np.arange(V.size + self._own.halo.size, dtype=self._P.indices.dtype)
            position[order] = np.arange(V.size)
            P = sp.csr_array(self._P[pairs])
            halo = self._own.halo.renumbered(position)
            model = NumberedModel(P.data, position[P.indices], P.indptr, ends, self._gamma)
            self._at = Arranged(model, halo, order, pairs)
        return self._enter(V, c)
