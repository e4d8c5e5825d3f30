"""Gymnasium: models of environments that show their table of transitions, and policies run in them.

Nothing of Gymnasium is imported: an environment is what has ``unwrapped``, ``reset`` and ``step``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.mdp import MDP, Array
from cvxmdp.reading import SUM_TOLERANCE, floats, frozen
from cvxmdp.simulate import Simulation, check_count, estimated, read_seed
from cvxmdp.solution import Solution

DONE = "done"
"""Name of the state in which episodes are over."""
COST = "cost"
"""Name of the cost that is ``-reward``."""
FIFTH = "constraint"
"""Name of a fifth entry's cost where ``-reward`` has the name already."""
STARTS = ("initial_state_distrib", "isd")
"""What environments call the distribution of their first state; the second is the older name."""
MOST_STEPS = 10_000
"""Longer episodes are cut."""


def from_gymnasium(env: Any, discount: float) -> MDP:
    """Read the table of an environment; see :meth:`cvxmdp.MDP.from_gymnasium`."""
    table = _Table(env)
    owner: list[int] = []
    taken: list[int] = []
    rows, columns, chances = [], [], []
    costs: dict[str, dict[int, float]] = {COST: {}}
    for s, offered in enumerate(table.pairs):
        for a in sorted(offered):
            pair = len(owner)
            owner.append(s)
            taken.append(a)
            for p, target, by_name in table.outcomes(s, a):
                rows.append(pair)
                columns.append(target)
                chances.append(p)
                for name, cost in by_name.items():
                    of_name = costs.setdefault(name, {})
                    of_name[pair] = of_name.get(pair, 0.0) + p * cost
    done = len(table.pairs)
    rows.append(len(owner))
    columns.append(done)
    chances.append(1.0)
    owner.append(done)
    taken.append(min(taken, default=0))
    P = sp.coo_array((np.array(chances), (np.array(rows), np.array(columns))), shape=(len(owner), done + 1)).tocsr()
    P.sum_duplicates()
    P.eliminate_zeros()
    vectors = {name: np.zeros(len(owner)) for name in costs}
    for name, known in costs.items():
        vectors[name][list(known)] = list(known.values())
    return MDP.from_pairs(
        state=owner,
        action=taken,
        transitions=frozen(P),
        costs=vectors,
        discount=discount,
        initial=np.append(table.start(), 0.0),
        states=[*map(str, range(done)), DONE],
        labels=table.labels(),
    )


def play(
    policy: Any,
    env: Any,
    episodes: int = 1000,
    seed: int | None = None,
    mdp: MDP | None = None,
    steps: int = MOST_STEPS,
) -> Simulation:
    """Run a policy in the Gymnasium environment that its model came from.

    The cost ``"cost"`` is what the environment pays, step by step; other costs are the model's, of the pairs that the
    environment goes through.  An episode that the environment cuts, as a time limit does, counts as cut: intervals
    allow for what was still to come.

    Parameters
    ----------
    policy : Solution, Policy, or anything :meth:`cvxmdp.MDP.policy` takes
        What to run.
    env : gymnasium.Env
        The environment, with or without wrappers.
    episodes : int
        How many runs.
    seed : int, optional
        For numbers that come again.
    mdp : MDP, optional
        The model, as :meth:`cvxmdp.MDP.from_gymnasium` made it, with or without more costs; a Solution knows it.
    steps : int
        Longer episodes are cut.

    Returns
    -------
    Simulation
        As :meth:`cvxmdp.MDP.simulate` returns it, discounted as the model is, with the model's exact costs beside.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> class Coin:  # one throw: heads wins
    ...     P = {0: {0: [(0.5, 0, 1.0, True), (0.5, 0, 0.0, True)]}}
    ...     initial_state_distrib = [1.0]
    ...     def reset(self, seed=None):
    ...         self.s = 0
    ...         return 0, {}
    ...     def step(self, action):
    ...         return 0, 1.0, True, False, {}  # it always wins
    >>> mdp = cm.MDP.from_gymnasium(Coin(), discount=0.5)
    >>> run = cm.play([0, 0], Coin(), episodes=10, mdp=mdp)
    >>> run.totals["cost"], run.exact["cost"] / 0.5
    (-1.0, -0.5)
    """
    check_count("episodes", episodes)
    check_count("steps", steps)
    rng = read_seed(seed)
    if isinstance(policy, Solution):
        mdp = mdp if mdp is not None else None if policy.problem is None else policy.problem.mdp
        policy = policy.policy
    if mdp is None:
        raise ValueError("play needs the model for its discount and its exact costs; give it as mdp=")
    table, pi = _Table(env), mdp.policy(policy).probabilities
    if mdp.num_states != len(table.pairs) + 1 or mdp.states[-1] != DONE:
        raise ValueError(
            f"the model has {mdp.num_states} states, the environment {len(table.pairs)}; give the model that "
            "MDP.from_gymnasium made from it"
        )
    game = _Game(mdp, pi, table)
    names = list(mdp.costs)
    sums, left, longest = np.zeros((episodes, len(names))), np.zeros(episodes), 0
    for k in range(episodes):
        observed, _ = env.reset(seed=seed if k == 0 else None)
        costs, weight, step = np.zeros(len(names)), 1 - mdp.discount, 0
        while True:
            pair = game.draw(rng, observed)
            observed, reward, terminated, truncated, _ = env.step(int(mdp.action[pair]))
            costs += weight * game.paid(pair, reward)
            weight *= mdp.discount
            step += 1
            if terminated:
                costs += weight * game.rest(observed)
                break
            if truncated or step == steps:
                left[k] = math.exp(step * math.log(mdp.discount))
                break
        sums[k], longest = costs, max(longest, step)
    cut = int(np.count_nonzero(left))
    return estimated(mdp, pi, dict(zip(names, sums.T, strict=True)), left, longest, cut)


class _Table:
    """``env.unwrapped.P``: for each state and action a list of (probability, next state, reward, done[, costs])."""

    def __init__(self, env: Any) -> None:
        self.env = getattr(env, "unwrapped", env)
        P = getattr(self.env, "P", None)
        if P is None:
            raise ValueError(
                f"{type(self.env).__name__} has no table of transitions P; models are made of environments such as "
                "FrozenLake, CliffWalking and Taxi, which have one. MDP.from_function takes a rule instead"
            )
        if getattr(self.env, "fickle_passenger", False):
            raise ValueError("a fickle passenger changes the destination outside of the table P; make Taxi without one")
        of_states = _numbered("the table P of the environment", P)
        if not of_states:
            raise ValueError("the table P of the environment is empty; a model needs a state")
        if sorted(of_states) != list(range(len(of_states))):
            raise ValueError(f"the table P of the environment must have the states 0 to {len(of_states) - 1} as keys")
        self.pairs: list[dict[int, Any]] = [_numbered(f"P[{s}]", of_states[s]) for s in range(len(of_states))]
        for s, offered in enumerate(self.pairs):
            for a, outcomes in offered.items():
                if not isinstance(outcomes, Sequence) or isinstance(outcomes, str):
                    raise ValueError(f"P[{s}][{a}] is {outcomes!r}; expected a list of what can happen")
        self.final = [self._ends(s) for s in range(len(self.pairs))]
        """States in which nothing is left to happen: their own transitions are over at once, without reward."""

    def outcomes(self, s: int, a: int) -> list[tuple[float, int, dict[str, float]]]:
        """Return probability, next state and costs of all that can happen; what is done leads to the last state.

        A state that is final in the table, as a hole in the ice, is visited before: so it can be told from others.
        """
        found = []
        for outcome in self.pairs[s][a]:
            p, target, reward, done, costs = _read(outcome, f"P[{s}][{a}]", len(self.pairs))
            over = done and (s == target or not self.final[target])
            found.append((p, len(self.pairs) if over else target, {COST: 0.0 - reward, **costs}))
        return found

    def state(self, observed: Any) -> int:
        """Return the state that the environment is in, which wrappers may show otherwise."""
        state = getattr(self.env, "s", observed)
        if not _is_state(state, len(self.pairs)):
            raise ValueError(f"the environment is in {state!r}; its table P has the states 0 to {len(self.pairs) - 1}")
        return int(state)

    def _ends(self, s: int) -> bool:
        read = [_read(outcome, f"P[{s}][{a}]", len(self.pairs)) for a in self.pairs[s] for outcome in self.pairs[s][a]]
        return bool(read) and all(
            done and target == s and reward == 0 and not any(costs.values()) for _, target, reward, done, costs in read
        )

    def labels(self) -> dict[str, list[int]]:
        """Return the states by their letters, where the environment has a map with one for each of them."""
        drawn = np.asarray(getattr(self.env, "desc", []))
        if drawn.dtype.kind not in "SU" or drawn.size != len(self.pairs):
            return {}
        found: dict[str, list[int]] = {}
        for state, letter in enumerate(drawn.astype(str).ravel().tolist()):
            found.setdefault(letter, []).append(state)
        return found

    def start(self) -> Array:
        """Return the distribution of the first state."""
        count = len(self.pairs)
        for name in STARTS:
            if (given := getattr(self.env, name, None)) is not None:
                rho = floats(f"{name} of the environment", given)
                if rho.shape != (count,):
                    raise ValueError(f"{name} of the environment has shape {rho.shape}; it has {count} states")
                return rho
        index = getattr(self.env, "start_state_index", None)
        if _is_state(index, count):
            rho = np.zeros(count)
            rho[index] = 1.0
            return rho
        raise ValueError(
            f"{type(self.env).__name__} does not say how it begins: it has neither {' nor '.join(STARTS)} nor "
            "start_state_index. Set env.unwrapped.initial_state_distrib to the probability of each first state"
        )


class _Game:
    """A policy in an environment: draws, and what is paid."""

    def __init__(self, mdp: MDP, pi: Array, table: _Table) -> None:
        self._costs = np.stack([mdp.costs[name] for name in mdp.costs], axis=1)
        self._paid = list(mdp.costs).index(COST) if COST in mdp.costs else None
        self._first = np.searchsorted(mdp.state, np.arange(mdp.num_states + 1)).tolist()
        self._pi, self._discount, self._table = pi, mdp.discount, table
        self._sums: list[list[float]] = [
            list(accumulate(pi[a:b].tolist())) for a, b in zip(self._first[:-1], self._first[1:], strict=True)
        ]

    def draw(self, rng: np.random.Generator, observed: Any) -> int:
        """Draw a pair of the state that the environment is in."""
        state = self._table.state(observed)
        sums = self._sums[state]
        return int(self._first[state] + bisect_right(sums, rng.random() * sums[-1]))

    def paid(self, pair: int, reward: float) -> Array:
        """Return the costs of a step: what the environment pays, and of the other costs the model's."""
        costs: Array = self._costs[pair].copy()
        if self._paid is not None:
            costs[self._paid] = -float(reward)
        return costs

    def rest(self, observed: Any) -> Array:
        """Return what is still to come once an episode is over, in units of the next step."""
        state = self._table.state(observed)
        done = self._costs[-1] / (1 - self._discount)
        if not self._table.final[state]:
            return np.asarray(done)
        first, last = self._first[state], self._first[state + 1]
        return np.asarray(self._pi[first:last] @ self._costs[first:last] + self._discount * done)


def _numbered(what: str, entries: Any) -> dict[int, Any]:
    """Read a mapping of numbers, or a list."""
    if isinstance(entries, Mapping):
        wrong = [key for key in entries if isinstance(key, bool) or not isinstance(key, Integral) or key < 0]
        if wrong:
            raise ValueError(f"{what} has the key {wrong[0]!r}; its keys must be whole numbers, 0 or more")
        return {int(key): value for key, value in entries.items()}
    if isinstance(entries, Sequence) and not isinstance(entries, str):
        return dict(enumerate(entries))
    raise ValueError(f"{what} must be a mapping or a list, not a {type(entries).__name__}")


def _is_state(number: Any, count: int) -> bool:
    return isinstance(number, Integral) and 0 <= int(number) < count


def _read(outcome: Any, where: str, num_states: int) -> tuple[float, int, float, bool, dict[str, float]]:
    """Read probability, next state, reward, whether it is done, and further costs."""
    if not isinstance(outcome, Sequence) or len(outcome) not in (4, 5):
        raise ValueError(
            f"{where} holds {outcome!r}; expected (probability, next state, reward, done), and perhaps costs"
        )
    p, target, reward, done = outcome[:4]
    if not isinstance(p, Real) or not isinstance(reward, Real):
        raise ValueError(f"{where} holds {outcome!r}; probability and reward must be numbers")
    if not 0 <= float(p) <= 1 + SUM_TOLERANCE:
        raise ValueError(f"{where} holds {outcome!r}; its probability must be between 0 and 1")
    if not _is_state(target, num_states):
        raise ValueError(f"{where} leads to {target!r}; there are the states 0 to {num_states - 1}")
    costs: dict[str, float] = {}
    if len(outcome) == 5:
        fifth = outcome[4] if isinstance(outcome[4], Mapping) else {COST: outcome[4]}
        for key, cost in fifth.items():
            if isinstance(cost, Real) and not isinstance(cost, bool):  # other things are not costs
                name = FIFTH if key == COST else str(key)
                if name in costs:
                    raise ValueError(f"{where} holds two costs that would be called {name!r}; rename one of them")
                costs[name] = float(cost)
    return float(p), int(target), float(reward), bool(done), costs
