"""A model looked over: what is in it, what is odd about it, and what a solve would take."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components

from cvxmdp import memory
from cvxmdp.constraints import Budget
from cvxmdp.constraints.combine import bind
from cvxmdp.dynamics.tabular import Tabular
from cvxmdp.engines.choose import choose_engines
from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.memory import MANY_PAIRS, arrays_of, fits, in_words, lies_in_file, solve_memory
from cvxmdp.names import brief
from cvxmdp.problem import Problem
from cvxmdp.status import Status

WIDTH = 80
"""Columns of a terminal."""
MOST_NAMES = 5
"""Of a list that is printed; the others are counted."""
MOST_COSTS = 8
"""Lines of costs: the whole fits a screen of 24 lines."""
NAME = 24
"""Characters of the longest name that is printed whole."""
TINY = 1e-9
"""Probabilities below are rarely meant, and below what most data can say."""
SPAN = 1e8
"""Sizes of one cost that differ by more are rarely meant: half of the digits of a number lie between them."""
RANGE_PAIRS = 50_000
"""Up to here what each cost can be is found unasked: two solves without limits, a second or two at this size."""
SEARCHED = 32
"""Bytes for each transition while what is never reached, never left or there twice is looked for."""
CHUNK = 2**22
"""Probabilities that are looked at together."""


@dataclass(frozen=True)
class CostFacts:
    """What one cost is like.

    Attributes
    ----------
    least, largest : float
        Over pairs.
    smallest : float
        The smallest absolute value that is not zero; 0 where the cost is zero everywhere.
    pairs : int
        How many pairs have a cost that is not zero.
    range : tuple of float or None
        The least and the most that its normalized discounted average can be, over all policies, proven to a relative
        1e-6; None where that was not found out.
    """

    least: float
    largest: float
    smallest: float
    pairs: int
    range: tuple[float, float] | None

    @property
    def span(self) -> float:
        """The largest absolute value, as a multiple of the smallest that is not zero; 1 where all are zero."""
        return max(abs(self.least), abs(self.largest)) / self.smallest if self.smallest else 1.0


@dataclass(frozen=True, eq=False)
class Examination:
    """What a model is like.

    Attributes
    ----------
    states, actions, pairs, transitions : int
        How many there are; of the actions, those that some state offers; of the transitions, those with a positive
        probability.
    density : float
        Share of all possible transitions that have one.
    bytes, lying : int
        What the model's arrays take, and how much of that lies in a file, from where it is read as it is needed.
    discount : float
        Of the model; ``1 / (1 - discount)`` steps ahead are about what counts.
    unreachable : tuple of str or None
        States that no policy reaches from the start.  This and the next three are None where looking for them would
        take more than half of the free memory.
    absorbing : tuple of str or None
        States that no action leaves.
    closed : tuple of tuple of str or None
        Sets of states that no action leaves and in which each state can be reached from each other.
    equal : tuple of (str, str, str) or None
        A state and two of its actions that do the same at the same costs; of several that do, each with the first.
    smallest : float
        The smallest positive probability.
    tiny : int
        How many probabilities are positive and below 1e-9.
    costs : dict of str to CostFacts
        By name.
    engine : str
        What ``problem.solve()`` takes first under one budget.
    why : str
        How its linear systems are solved, and why.
    solve_bytes, free : int
        Memory that such a solve takes, including what of the model does not lie in a file; what was measured lies
        between a third of this and one and a half times this.  And how much was free, beside the model.
    """

    states: int
    actions: int
    pairs: int
    transitions: int
    density: float
    bytes: int
    lying: int
    discount: float
    unreachable: tuple[str, ...] | None
    absorbing: tuple[str, ...] | None
    closed: tuple[tuple[str, ...], ...] | None
    equal: tuple[tuple[str, str, str], ...] | None
    smallest: float
    tiny: int
    costs: Mapping[str, CostFacts]
    engine: str
    why: str
    solve_bytes: int
    free: int

    def __str__(self) -> str:
        before, after = (_wrapped(said) for said in (self.sentences(), [*self.remarks(), self.solve_words()]))
        return "\n".join([*before, *self._table(), *after])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from cvxmdp.report.html import examination_html

        return examination_html(self)

    def sizes(self) -> str:
        """Say how large the model is."""
        return (
            f"{_count(self.states, 'state')}, {_count(self.actions, 'action')}, {_count(self.pairs, 'pair')}, "
            f"{_count(self.transitions, 'transition')} ({100 * self.density:.3g} % of all), {in_words(self.bytes)}"
            + (f", of which {in_words(self.lying)} stay in the file" if self.lying else "")
        )

    def sentences(self) -> list[str]:
        """Say how large the model is, how far it looks ahead, what is never reached, never left, or there twice."""
        return [
            self.sizes(),
            f"discount {self.discount:.12g}: it looks about {_steps(self.steps)} ahead",
            *self._found(),
            f"smallest probability {self.smallest:.3g}"
            + (f"; {_count(self.tiny, 'is', 'are')} below {TINY:g} (meant?)" if self.tiny else ""),
        ]

    def remarks(self) -> list[str]:
        """Say what is odd about the costs, and which of their ranges are not known."""
        said = []
        if wide := [name for name, cost in self.costs.items() if cost.span > SPAN]:
            said.append(_listing(f"costs whose sizes differ by more than {SPAN:g} times (meant?)", wide, ""))
        if zero := [name for name, cost in self.costs.items() if not cost.pairs]:
            said.append(_listing("zero everywhere", zero, ""))
        if any(cost.range is None for cost in self.costs.values()):
            said.append("what a cost can be was not looked for: mdp.examine(ranges=True) does, by two solves a cost")
        return said

    def solve_words(self) -> str:
        """Say what a solve under one budget takes."""
        said = f"one budget: solved by {self.engine}; {self.why}; about {in_words(self.solve_bytes)} of memory"
        if self.lying:
            said += " beside what stays in the file"
        beside = self.solve_bytes - (self.bytes - self.lying)
        told = self.lying or self.pairs >= MANY_PAIRS or beside > self.free
        return f"{said}; {in_words(self.free)} are free beside the model" if told else said

    @property
    def steps(self) -> float:
        """How many steps ahead count, about; times an average per step, it is the discounted total of an episode."""
        return 1 / (1 - self.discount)

    def _found(self) -> list[str]:
        """Say what is never reached, never left, or there twice."""
        if self.unreachable is None or self.absorbing is None or self.closed is None or self.equal is None:
            size = in_words(SEARCHED * self.transitions)
            return [f"what is never reached, never left or there twice was not looked for: that takes {size} of memory"]
        return [
            _listing("never reached from the start", self.unreachable, "every state can be reached from the start"),
            _listing("never left", self.absorbing, "every state can be left"),
            self._classes(self.closed),
            _listing(
                "actions that do the same as another", self.equal, "no two actions of a state do the same", _twins
            ),
        ]

    def _classes(self, closed: tuple[tuple[str, ...], ...]) -> str:
        count = len(closed)
        sizes = sorted((len(states) for states in closed), reverse=True)
        if sizes == [self.states]:
            return "every state can be reached from every other"
        classes = _count(count, "closed class", "closed classes")
        if sizes[0] == 1:
            return f"{classes}, of one state{' each' if count > 1 else ''}"
        more = ", ..." if count > MOST_NAMES else ""
        return f"{classes}, of {', '.join(f'{size:,}' for size in sizes[:MOST_NAMES])}{more} states"

    def _table(self) -> list[str]:
        """Return a line for each cost, in columns."""
        lines = [f"{'':20} {'least':>10} {'largest':>10} {'pairs':>10} {'per step, by policy':>26}"]
        for name, cost in list(self.costs.items())[:MOST_COSTS]:
            ends = "not looked for" if cost.range is None else " to ".join(f"{end:.4g}" for end in cost.range)
            first = f"cost {brief(name, 15)}"
            lines.append(f"{first:20} {cost.least:>10.3g} {cost.largest:>10.3g} {cost.pairs:>10,} {ends:>26}")
        more = len(self.costs) - MOST_COSTS
        return [*lines, f"and {_count(more, 'more cost', 'more costs')}"] if more > 0 else lines


def examine(mdp: MDP, ranges: bool | None = None) -> Examination:
    """Look a model over; see :meth:`cvxmdp.MDP.examine`."""
    P = sp.csr_array(mdp.transitions)
    transitions, smallest, tiny = _probabilities(P.data)
    searched = fits(SEARCHED * P.nnz)
    if searched and transitions < P.nnz:
        P = P.copy()
        P.eliminate_zeros()
    graph = _graph(P, np.searchsorted(mdp.state, np.arange(mdp.num_states + 1))) if searched else None
    dynamics = mdp.dynamics()
    budget = Budget(next(iter(mdp.costs)), at_most=0.0)
    engines = choose_engines("auto", bind([budget], mdp), [], mdp)
    known = mdp.num_pairs <= RANGE_PAIRS if ranges is None else ranges
    parts = [*arrays_of(mdp.transitions), mdp.state, mdp.action, mdp.initial, *mdp.costs.values()]
    model, lying = (sum(int(part.nbytes) for part in some) for some in (parts, filter(lies_in_file, parts)))
    return Examination(
        states=mdp.num_states,
        actions=int(np.count_nonzero(np.bincount(mdp.action))),
        pairs=mdp.num_pairs,
        transitions=transitions,
        density=transitions / (mdp.num_pairs * mdp.num_states),
        bytes=model,
        lying=lying,
        discount=mdp.discount,
        unreachable=None if graph is None else _named(mdp, _unreachable(graph, mdp.initial)),
        absorbing=None if graph is None else _named(mdp, _absorbing(graph)),
        closed=None if graph is None else tuple(_named(mdp, states) for states in _closed(graph)),
        equal=None if graph is None else _equal(mdp, P),
        smallest=smallest,
        tiny=tiny,
        costs={name: _cost_facts(mdp, name, known) for name in mdp.costs},
        engine=engines[0].name,
        why=dynamics.plan.reason if isinstance(dynamics, Tabular) else "by its own linear solvers",
        solve_bytes=model - lying + _solve_bytes(mdp, P, dynamics),
        free=memory.available_memory(),
    )


def _named(mdp: MDP, numbers: Indices) -> tuple[str, ...]:
    return tuple(mdp.states[s] for s in numbers.tolist())


def _graph(P: Any, first: Indices) -> Any:
    """Which states may follow a state, whatever the action."""
    ones = np.ones(P.nnz, dtype=np.int8)
    return sp.csr_array((ones, P.indices, P.indptr[first]), shape=(first.size - 1, P.shape[1]))


def _unreachable(graph: Any, initial: Array) -> Indices:
    """Search from one more state, which leads to all first states."""
    S, start = initial.size, np.flatnonzero(initial)
    indices = np.concatenate([graph.indices, start])
    indptr = np.append(graph.indptr, indices.size)
    whole = sp.csr_array((np.ones(indices.size, dtype=np.int8), indices, indptr), shape=(S + 1, S + 1))
    found = breadth_first_order(whole, S, return_predecessors=False)
    seen = np.zeros(S + 1, dtype=bool)
    seen[found] = True
    return np.flatnonzero(~seen)


def _absorbing(graph: Any) -> Indices:
    owner = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    leaves = np.bincount(owner[graph.indices != owner], minlength=graph.shape[0])
    return np.flatnonzero(leaves == 0)


def _closed(graph: Any) -> list[Indices]:
    """Return the strongly connected components that nothing leaves, in the order of their first states."""
    count, part = connected_components(graph, directed=True, connection="strong")
    owner = np.repeat(part, np.diff(graph.indptr))
    left = np.zeros(count, dtype=bool)
    left[owner[owner != part[graph.indices]]] = True
    inside = np.flatnonzero(~left[part])
    order = inside[np.argsort(part[inside], kind="stable")]
    groups = np.split(order, np.flatnonzero(np.diff(part[order])) + 1)
    return sorted(groups, key=lambda states: int(states[0]))


def _equal(mdp: MDP, P: Any) -> tuple[tuple[str, str, str], ...]:
    """Compare, entry by entry, pairs whose state, row and costs have the same sum of scrambled bits: no others can."""
    key = np.add.reduceat(_scrambled(P.data, P.indices), P.indptr[:-1])  # no row is empty: each sums to one
    for k, cost in enumerate(mdp.costs.values()):
        key += _scrambled(cost + 0.0, np.array([-k - 1]))  # -0.0 is 0.0
    key += _scrambled(mdp.state.astype(np.int64), np.array([-len(mdp.costs) - 1]))
    order = np.argsort(key, kind="stable")
    new = np.diff(key[order], prepend=~key[order[:1]]) != 0
    leader = order[np.flatnonzero(new)[np.cumsum(new) - 1]]  # of those with its sum, the first
    a, b = leader[~new], order[~new]
    same = mdp.state[a] == mdp.state[b]
    for cost in mdp.costs.values():
        same &= cost[a] == cost[b]
    same[same] = abs(P[a[same]] - P[b[same]]).max(axis=1).toarray() == 0
    pairs = sorted(zip(a[same].tolist(), b[same].tolist(), strict=True))
    return tuple((mdp.states[mdp.state[i]], mdp.actions[mdp.action[i]], mdp.actions[mdp.action[j]]) for i, j in pairs)


def _scrambled(values: Any, place: Any) -> Any:
    """Mix the bits of numbers and of their places, so that sums of them are the same by no likely accident."""
    mixed = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
    for shift in (30, 27):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _cost_facts(mdp: MDP, name: str, known: bool) -> CostFacts:
    cost = mdp.costs[name]
    sizes = np.abs(cost[cost != 0])
    return CostFacts(
        least=float(cost.min()),
        largest=float(cost.max()),
        smallest=float(sizes.min()) if sizes.size else 0.0,
        pairs=sizes.size,
        range=_range(mdp, name) if known else None,
    )


def _range(mdp: MDP, name: str) -> tuple[float, float] | None:
    ends = [problem.solve() for problem in (Problem(mdp, minimize=name), Problem(mdp, maximize=name))]
    if any(end.status is not Status.OPTIMAL for end in ends):
        return None
    return ends[0].value, ends[1].value


def _probabilities(data: Array) -> tuple[int, float, int]:
    """Return how many are positive, the smallest of these, and how many of these are tiny."""
    count, smallest, tiny = 0, 1.0, 0
    for k in range(0, data.size, CHUNK):
        some = data[k : k + CHUNK]
        some = some[some > 0]
        count, tiny = count + some.size, tiny + int(np.count_nonzero(some < TINY))
        smallest = min(smallest, float(some.min(initial=1.0)))
    return count, smallest, tiny


def _solve_bytes(mdp: MDP, P: Any, dynamics: Any) -> int:
    """Add to the vectors copies of P's rows, made where there is room, and dense factors over states."""
    dense = isinstance(dynamics, Tabular) and "dense" in (dynamics.plan.policy, dynamics.plan.normal)
    copies = 0 if lies_in_file(P.data) else 12 * int(P.nnz)
    return solve_memory(mdp.num_pairs) + copies + (16 * mdp.num_states**2 if dense else 0)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _short(name: str) -> str:
    return brief(name, NAME)


def _steps(steps: float) -> str:
    shown = f"{float(f'{steps:.3g}'):,.10g}"
    return f"{shown} step{'' if shown == '1' else 's'}"


def _wrapped(said: Sequence[str]) -> list[str]:
    return [line for text in said for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]


def _twins(found: tuple[str, str, str]) -> str:
    state, one, other = map(_short, found)
    return f"{other} as {one} in {state}"


def _listing(what: str, found: Sequence[Any], none: str, words: Callable[[Any], str] = _short) -> str:
    if not found:
        return none
    more = f" and {len(found) - MOST_NAMES:,} more" if len(found) > MOST_NAMES else ""
    return f"{what}: {', '.join(map(words, found[:MOST_NAMES]))}{more}"
