"""A policy record: proof of how far the stored visits can be from those of the policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cvxmdp_verifier.errors import Refused, shown
from cvxmdp_verifier.extended import EPS, GROWN, LD, TINY, Close, Real, dot, extended, parts, total
from cvxmdp_verifier.fields import Arrays
from cvxmdp_verifier.model import NEAR_ONE, Model


@dataclass(frozen=True)
class Point:
    """An occupancy that is known up to an error.

    Attributes
    ----------
    d, delta : array of shape (num_pairs,)
        The truth is within ``delta`` of ``d`` entry by entry, but for a rest.
    x, w : array of shape (num_states,)
        The same for the visits of states.
    t : longdouble
        The rest is at most this in the 1-norm, over pairs as over states.
    active : array of bool of shape (num_pairs,)
        Where d is exactly zero because the policy never does this, there is no error of either kind.
    reached : function
        Returns which states are visited at all; it is asked only where that matters, since it takes a search.
    """

    d: Real
    delta: Real
    x: Real
    w: Real
    t: Real
    active: Real
    reached: Callable[[], Real]

    def off(self, row: Real) -> Real:
        """Return how much ``row'd`` can differ from the truth, for a row that is not negative."""
        most = np.max(row, where=self.active, initial=0) if self.t > 0 else LD(0)
        return (dot(row, self.delta).value + most * self.t) * GROWN


class Policy:
    """The policy record ``name`` of a solution.

    With ``A = I - discount P_pi'`` the visits solve ``A x = (1 - discount) initial``, and the inverse of A is nowhere
    negative.  So for the residual r of the stored x and any w with ``A w >= |r|`` the truth is within w; where
    ``A w`` falls short of ``|r|``, what is missing adds at most itself over ``1 - discount`` in the 1-norm.
    """

    def __init__(self, model: Model, arrays: Arrays, name: str) -> None:
        L, S = model.num_pairs, model.num_states
        given = arrays.floats(f"{name}:probabilities", (L,), least=0.0)
        high, low = extended(arrays.floats(f"{name}:visits", (2, S)))
        x = high + low
        del high, low  # long arrays
        w = extended(arrays.floats(f"{name}:visits_error", (S,), least=0.0))
        sums = model.per_state(given)
        wrong = ~(np.abs(sums - 1) <= NEAR_ONE)
        if wrong.any():
            s = int(np.argmax(wrong))
            raise Refused(
                f"the probabilities of the policy {shown(name)!r} in state {shown(model.states[s])} add up to "
                f"{float(sums[s]):.9g}"
            )
        self._model = model
        # Proportions are as good, relative to themselves, as the number of actions says.
        rounding = (np.diff(model.starts) + 12) * EPS

        def spread(v: Real, pairs: slice) -> Close:
            state = model.state[pairs]
            of_state, share = v[state], given[pairs] / sums[state]
            d = of_state * share
            off = rounding[state] * np.abs(d) + ((of_state != 0) & (share != 0)) * TINY
            return Close(d, off * GROWN)

        t = _short(model, spread, x, w) / (1 - LD(model.discount)) * GROWN
        # All visits add up to one, so that no entry is off by more than the others together and what x lacks of one.
        whole, all_w = total(x), total(w)
        lacking = abs(1 - whole.value) + whole.error + 2 * EPS
        w = np.minimum(w, np.maximum((lacking + t + all_w.high - w) * GROWN, 0))
        d, delta = np.empty(L, dtype=LD), np.empty(L, dtype=LD)
        for pairs in parts(L):
            at_x, room = spread(x, pairs), spread(w, pairs)
            d[pairs], delta[pairs] = at_x.value, (room.value + room.error + at_x.error) * GROWN
        self._taken = given > 0
        self.point = Point(d, delta, x, w, t, self._taken, lambda: self._reached)

    @cached_property
    def _reached(self) -> Real:
        """Which states the policy visits at all, by following its transitions."""
        model = self._model
        seen = model.begin.value > 0
        frontier = np.flatnonzero(seen)
        if model.discount == 0:
            return seen
        while frontier.size:
            lengths = model.starts[frontier + 1] - model.starts[frontier]
            ends = np.cumsum(lengths)
            pairs = np.arange(ends[-1]) + np.repeat(model.starts[frontier] - (ends - lengths), lengths)
            found = model.P.following(pairs[self._taken[pairs]])
            frontier = found[~seen[found]]
            seen[frontier] = True
        return seen


def _short(model: Model, spread: Callable[[Real, slice], Close], x: Real, w: Real) -> Real:
    """Return the 1-norm of what ``A w`` lacks of ``|r|``."""
    b, back = model.begin, model.back(lambda pairs: spread(x, pairs))
    r = np.abs(b.value - x + back.value)
    r += (b.error + back.error + 8 * EPS * (b.value + np.abs(x) + np.abs(back.value))) * GROWN
    del b, back  # long arrays
    held = model.back(lambda pairs: spread(w, pairs))
    r -= w - held.value - held.error - 8 * EPS * (w + held.value)
    return total(np.maximum(r, 0)).high


def sure(point: Point) -> Point:
    """Return the same point as if it were exact, up to the rounding of its visits and probabilities."""
    return replace(point, delta=16 * EPS * np.abs(point.d), w=16 * EPS * np.abs(point.x), t=LD(0))


def moved(model: Model, point: Point, by: Real) -> Point:
    """Return a point less a displacement, exact up to rounding."""
    shift = extended(by)
    d, off = point.d - shift, 16 * EPS * (np.abs(point.d) + np.abs(shift))
    everywhere, every = np.ones(model.num_states, dtype=bool), np.ones(model.num_pairs, dtype=bool)
    actions = np.diff(model.starts)
    return Point(d, off, model.per_state(d), model.per_state(off) * actions, LD(0), every, lambda: everywhere)
