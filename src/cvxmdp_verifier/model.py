"""A saved model: its data, checked, and products with its transition matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cvxmdp_verifier.errors import Refused, shown
from cvxmdp_verifier.extended import EPS, GROWN, LD, Close, Real, by_segment, dot, extended, parts
from cvxmdp_verifier.fields import Arrays, has_keys, integer, names, number

VERSION = 2
NEAR_ONE = 1e-6
"""Proportions add up to one up to this."""


class Names(Sequence[str]):
    """Names of states or actions: a list, or the numbers below a count."""

    def __init__(self, given: Any, what: str) -> None:
        self.given = given
        if isinstance(given, list):
            names(given, what)
            self._count = len(given)
        else:
            self._count = integer(given, f"the number of {what}")
        if not 0 < self._count < 2**40:
            raise Refused(f"there are no {what}, or too many")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: Any) -> Any:
        return str(int(i)) if isinstance(self.given, int) else self.given[i]


class Model:
    """A model.  Rows of P and the initial distribution are divided by their exact sums.

    Attributes
    ----------
    states, actions : Names
    discount : float
    state, action : array of shape (num_pairs,)
        Pairs are sorted by state, then action.
    starts : array of shape (num_states + 1,)
        The pairs of state s are ``starts[s]`` up to ``starts[s + 1]``.
    costs : dict
        Each cost by its name.
    """

    def __init__(self, header: Any, arrays: Any) -> None:
        keys = ("kind", "version", "discount", "states", "actions", "costs")
        has_keys(header, keys, "the header of the model", optional=("labels",))
        if header["kind"] != "cvxmdp model" or header["version"] != VERSION:
            raise Refused(f"this is not a model of version {VERSION}")
        self.states = Names(header["states"], "states of the model")
        self.actions = Names(header["actions"], "actions of the model")
        self.discount = number(header["discount"], "the discount of the model")
        if not 0 <= self.discount < 1:
            raise Refused(f"the discount of the model, {self.discount:g}, is not at least 0 and below 1")
        found = Arrays(arrays, "model")
        if "state" not in found or found.dims("state") != 1:
            raise Refused("the model lacks a one-dimensional array 'state'")
        self.state = found.ints("state", None, len(self.states))
        L, S = self.state.size, len(self.states)
        self.action = found.ints("action", (L,), len(self.actions))
        if L < S or np.any(np.diff(self.state) < 0) or self.state[0] != 0 or self.state[-1] != S - 1:
            raise Refused("the pairs of the model are not sorted by state with one pair for each state at least")
        step = np.diff(self.state)
        if np.any(step > 1) or np.any(np.diff(self.action)[step == 0] <= 0):
            raise Refused("the pairs of the model are not sorted by state, then action, each pair once")
        self.starts = np.concatenate(([0], np.flatnonzero(step) + 1, [L]))
        initial = found.floats("initial", (S,), least=0.0)
        self.P = found.matrix("P", S, L)
        if not self.P.entries_are(lambda data: data >= 0):
            raise Refused("the transition matrix of the model has a negative entry")
        self._check_sums()
        self._initial = extended(initial)
        whole = dot(self._initial[initial > 0], LD(1) + np.zeros(np.count_nonzero(initial), dtype=LD))
        if not abs(whole.value - 1) <= NEAR_ONE:
            raise Refused(f"the initial distribution of the model adds up to {float(whole.value):.9g}")
        self._initial_sum, self._initial_off = whole.value, whole.error / whole.value
        costs = names(header["costs"], "the costs of the model")
        self.costs = {name: found.floats(f"cost:{i}", (L,)) for i, name in enumerate(costs)}
        # Labels are names for sets of states.  No claim is about them.
        for i, label in enumerate(names(header.get("labels", []), "the labels of the model")):
            if f"label:{i}" not in found or found.dims(f"label:{i}") != 1:
                raise Refused(f"the model lacks the states of its label {shown(label)!r}")
            found.ints(f"label:{i}", None, S)
        found.nothing_left()

    def _check_sums(self) -> None:
        """See that the rows are proportions."""
        for chunk in self.P.chunks():
            sums, _ = self._sums(slice(chunk.start, chunk.stop))
            wrong = ~(np.abs(sums - 1) <= NEAR_ONE)
            if wrong.any():
                row = int(np.argmax(wrong))
                pair = chunk.start + row
                raise Refused(
                    f"the probabilities of the model after action {shown(self.actions[self.action[pair]])} in state "
                    f"{shown(self.states[self.state[pair]])} add up to {float(sums[row]):.9g}"
                )

    def _sums(self, pairs: slice) -> tuple[Real, Real]:
        """Return the sums of some rows, and by how much they may be off relative to themselves."""
        sums = self.P.sums(pairs)
        # The sum of entries that are not negative is as good, relative to itself, as the number of them says.
        return sums.value, sums.error / np.where(sums.value > 0, sums.value, 1)

    @property
    def num_pairs(self) -> int:
        """How many pairs of a state and an action there are."""
        return int(self.state.size)

    @property
    def num_states(self) -> int:
        """How many states there are."""
        return len(self.states)

    @property
    def begin(self) -> Close:
        """``(1 - discount)`` times the initial distribution."""
        value = (1 - LD(self.discount)) * (self._initial / self._initial_sum)
        return Close(value, value * (self._initial_off + 8 * EPS) * GROWN)

    def per_state(self, values: Real) -> Real:
        """Add up over the pairs of each state, in extended precision."""
        out = np.empty(self.num_states, dtype=LD)
        for states in parts(self.num_states):
            starts = self.starts[states.start : states.stop + 1]
            out[states] = by_segment(extended(values[starts[0] : starts[-1]]), starts - starts[0])
        return out

    def at_start(self, h: Real) -> Close:
        """Return ``(1 - discount) initial'h``."""
        inner = dot(self._initial, h)
        value = (1 - LD(self.discount)) * (inner.value / self._initial_sum)
        # The sizes of what was added up are not known here; dividing by a sum known relatively scales them all alike.
        size = dot(self._initial, np.abs(h)).value / self._initial_sum
        return Close(value, (inner.error / self._initial_sum + (self._initial_off + 8 * EPS) * size) * GROWN)

    def ahead(self, h: Real) -> Iterator[tuple[slice, Close]]:
        """Yield ``discount P h`` for some pairs after the other."""
        for pairs, product in self.P.times_by_rows(h):
            sums, off = self._sums(pairs)
            value = LD(self.discount) * (product.value / sums)
            error = product.error / sums + np.abs(value) * (off + 8 * EPS)
            yield pairs, Close(value, error * GROWN)

    def back(self, d: Callable[[slice], Close]) -> Close:
        """Return ``discount P'd`` for a d that is made for some pairs at a time, up to an error."""

        def shares(pairs: slice) -> Close:
            given, (sums, off) = d(pairs), self._sums(pairs)
            share = given.value / sums
            return Close(share, (given.error / sums + np.abs(share) * (off + 4 * EPS)) * GROWN)

        product = self.P.back_by_rows(shares)
        value = LD(self.discount) * product.value
        return Close(value, (product.error + 4 * EPS * np.abs(value)) * GROWN)
