"""Limits on the visits of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.constraints.arguments import limits, number, numbers, unbound
from cvxmdp.constraints.base import Ranked
from cvxmdp.constraints.linear import Linear
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.names import no_such
from cvxmdp.ranks.rows import SparseRows
from cvxmdp.ranks.scattered import part_of


class StateBounds(Ranked):
    """``{d : lower <= sum over a of d(s, a) <= upper}`` for each state s, or for some.

    Parameters
    ----------
    lower, upper : float, array of shape (num_states,) or dict, optional
        Limits on the visits of each state; they sum to one over all states.  A dict gives limits to some states, by
        name or index.
    name : str
        Used in messages and results.
    priority, weight : int, float, optional
        For ``solve(when_infeasible=...)``: limits of priority 1 are met first, and the weight is the excess that counts
        as much as exceeding another limit by its own size.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.gridworld(size=5)
    >>> cap = cm.StateBounds(upper={"r0c1": 0.01, "r1c0": 0.02})
    >>> solution = cm.Problem(mdp, "time", [cap]).solve()
    >>> bool(solution.visits[mdp.states.index("r0c1")] <= 0.01 * (1 + 1e-6))
    True
    """

    def __init__(
        self,
        lower: Any = None,
        upper: Any = None,
        name: str = "visits",
        priority: int = 1,
        weight: float | None = None,
    ) -> None:
        self._rank(priority, weight)
        if lower is None and upper is None:
            raise ValueError("StateBounds needs lower=, upper= or both")
        self.lower, self.upper, self.name = _copied("lower", lower), _copied("upper", upper), name
        if isinstance(self.upper, np.ndarray) and np.any(self.upper < 0):
            raise ValueError(f"upper is {self.upper.min():g}; visits are never below 0")

    def bind(self, mdp: MDP) -> Linear:
        """Return the rows of this constraint in a model: one for each state that is limited."""
        lower = _by_state("lower", self.lower, mdp, -np.inf)
        upper = _by_state("upper", self.upper, mdp, np.inf)
        crossed = np.flatnonzero(lower > upper)
        if crossed.size:
            s = crossed[0]
            raise ValueError(f"lower is {lower[s]:g} and upper {upper[s]:g} in state {mdp.states[s]}; no value fits")
        if np.any(lower == np.inf):
            raise ValueError(
                f"lower is inf in state {mdp.states[int(np.argmax(lower))]}; no state is visited that often"
            )
        limited = np.flatnonzero(np.isfinite(lower) | np.isfinite(upper))
        if limited.size == 0:
            raise ValueError("StateBounds limits no state: lower and upper are empty or infinite")
        rows = Linear(_rows(mdp, limited), at_most=upper[limited], at_least=lower[limited], name=self.name)
        rows.labels = Labels(self.name, mdp.states, limited)
        return rows

    def project(self, point: Array) -> Array:
        """Raise: visits need a model, so use ``bounds.bind(mdp).project(point)``."""
        raise unbound(self.name, "the state of each pair")

    def violation(self, point: Array) -> float:
        """Raise: visits need a model, so use ``bounds.bind(mdp).violation(point)``."""
        raise unbound(self.name, "the state of each pair")


def _rows(mdp: MDP, limited: Indices) -> Any:
    """Return a row for each of these states: ones at its pairs."""
    if mdp.world is None:
        Xi = sp.csr_array((np.ones(mdp.num_pairs), (mdp.state, np.arange(mdp.num_pairs))))
        return Xi[limited]
    row = np.full(mdp.num_states, -1)
    row[limited] = np.arange(limited.size)
    of_pair = row[mdp.transitions.states][part_of(mdp.state)]
    mine = np.flatnonzero(of_pair >= 0)
    local = sp.csr_array((np.ones(mine.size), (of_pair[mine], mine)), shape=(limited.size, of_pair.size))
    return SparseRows(local, mdp.world, mdp.num_pairs)


class Labels(Sequence[str]):
    """What the rows limit: "visits of" and the name of a state, made when asked for."""

    def __init__(self, name: str, states: Sequence[str], limited: Indices) -> None:
        self._name, self._states, self._limited = name, states, limited

    def __len__(self) -> int:
        return int(self._limited.size)

    def __getitem__(self, row: Any) -> Any:
        return f"{self._name} of {self._states[int(self._limited[row])]}"


def _copied(what: str, given: Any) -> Any:
    if given is None or isinstance(given, Mapping):
        return given if given is None else dict(given)
    values = numbers(what, given)
    limits(what, values, values.size, 0.0)  # checks them
    return values


def _by_state(what: str, given: Any, mdp: MDP, default: float) -> Array:
    if not isinstance(given, Mapping):
        return limits(what, given, mdp.num_states, default)
    out = np.full(mdp.num_states, default)
    index: dict[Any, int] = {name: s for s, name in enumerate(mdp.states)} | {s: s for s in range(mdp.num_states)}
    for key, value in given.items():
        if isinstance(key, str) and key not in index and key in mdp.labels:
            which: Any = mdp.labels[key]
        elif isinstance(key, (str, Integral)) and key in index:
            which = index[key]
        else:
            meant = f"; {no_such('state', key, [*mdp.labels, *mdp.states])}" if isinstance(key, str) else ""
            raise ValueError(f"{what} limits a state {key!r}; none of the model has that name, label or index{meant}")
        out[which] = number(f"{what} of state {key!r}", value)
        if what == "upper" and np.any(out[which] < 0):
            raise ValueError(f"upper of state {key!r} is {value}; visits are never below 0")
    return out
