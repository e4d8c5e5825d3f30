"""The model a user holds: transitions, named costs, a discount and an initial distribution.

A model is a list of state-action *pairs* sorted by state, then by action, so that states may offer different
actions.  Row ``i`` of the transitions is the distribution of the next state after pair ``i``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from cvxmdp.names import no_such, printable, read_names
from cvxmdp.ranks.one_place import in_one_place, in_parts
from cvxmdp.ranks.scattered import as_parts_of, part_of, world_of_parts
from cvxmdp.reading import Array as Array
from cvxmdp.reading import Indices as Indices
from cvxmdp.reading import (
    check_cost,
    check_discount,
    check_initial,
    check_pairs,
    checked_probabilities,
    floats,
    frozen,
    read_cost_table,
    read_costs,
    read_indices,
    read_matrix,
    read_table,
    read_whole,
)

if TYPE_CHECKING:
    from cvxmdp.dynamics.base import Dynamics
    from cvxmdp.examine import Examination
    from cvxmdp.policy import Policy
    from cvxmdp.simulate import Simulation


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a policy really does, from linear solves.

    Attributes
    ----------
    costs : dict of str to float
        Normalized discounted cost ``(1 - discount) E[sum of discount^t c_t]`` by name: a weighted average of the
        cost per step.
    occupancy : ndarray of shape (num_pairs,)
        Normalized discounted frequency of each pair.  It sums to one.
    value : dict of str to ndarray of shape (num_states,)
        Discounted total cost from each state (not normalized), by name, so that
        ``costs[name] == (1 - discount) * initial @ value[name]``.
    """

    costs: dict[str, float]
    occupancy: Array
    value: dict[str, Array]

    def __repr__(self) -> str:
        from cvxmdp.report.text import evaluation_lines

        return evaluation_lines(self)


class MDP:
    """A finite Markov decision process with named costs.

    Parameters
    ----------
    transitions : array of shape (A, S, S), or sequence of A sparse matrices of shape (S, S)
        ``transitions[a][s, t]`` is the probability of moving from state ``s`` to ``t`` under action ``a``.
    costs : mapping of str to array
        Each of shape (S, A), (S,) or (A, S, S); the last is averaged over the next state.
    discount : float
        Between 0 and 1, both excluded.
    initial : array of shape (S,), str, or mapping of str to float, optional
        Distribution of the first state; the name of the first state; or probabilities by name.  Uniform when not
        given.
    states, actions : sequence of str, optional
        Names, used in every message and table.  Numbers when not given.
    labels : mapping of str to states, optional
        Names for sets of states, each given by names, by numbers or as a mask.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> stay, go = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    >>> mdp = cm.MDP([stay, go], {"time": [1.0, 0.0]}, discount=0.9, initial=[1.0, 0.0],
    ...              states=["away", "home"], actions=["stay", "go"])
    >>> mdp
    MDP(2 states, 4 pairs, costs: time, discount 0.9)
    """

    __slots__ = (
        "_dynamics", "action", "actions", "costs", "discount", "initial", "labels", "state", "states",
        "transitions",
    )  # fmt: skip

    state: Indices
    action: Indices
    transitions: Any
    costs: Mapping[str, Array]
    discount: float
    initial: Array
    states: Sequence[str]
    actions: Sequence[str]
    labels: Mapping[str, Indices]
    _dynamics: dict[str, Dynamics]

    def __init__(
        self,
        transitions: Any,
        costs: Mapping[str, npt.ArrayLike],
        discount: float,
        initial: npt.ArrayLike | str | Mapping[str, float] | None = None,
        states: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
        labels: Mapping[str, Any] | None = None,
    ) -> None:
        blocks, matrices, num_states, num_actions = read_table(transitions)
        state = np.repeat(np.arange(num_states), num_actions)
        action = np.tile(np.arange(num_actions), num_states)
        costs = read_costs(costs)
        pair_costs = {
            name: read_cost_table(name, cost, blocks, num_states, num_actions) for name, cost in costs.items()
        }
        self._fill(state, action, matrices, pair_costs, discount, initial, states, actions, labels)

    @classmethod
    def from_pairs(
        cls,
        state: npt.ArrayLike,
        action: npt.ArrayLike,
        transitions: Any,
        costs: Mapping[str, npt.ArrayLike],
        discount: float,
        initial: npt.ArrayLike | str | Mapping[str, float] | None = None,
        states: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
        labels: Mapping[str, Any] | None = None,
    ) -> MDP:
        """Build a model whose states may offer different actions.

        Parameters
        ----------
        state, action : array of int of shape (L,)
            State and action of each pair, sorted by state, then by action.  :meth:`order` sorts others.
        transitions : array or sparse matrix of shape (L, S)
            Distribution of the next state after each pair.
        costs : mapping of str to array
            Each of shape (L,), one entry a pair, or (S,), one entry a state.
        discount, initial, states, actions, labels
            As in :class:`MDP`.

        Notes
        -----
        Arrays are copied, unless they are of float64 and marked as not writeable (``array.flags.writeable = False``):
        those are shared, which halves the memory of a large model.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> mdp = cm.MDP.from_pairs(state=[0, 0, 1], action=[0, 1, 0],
        ...                         transitions=[[1, 0], [0, 1], [0, 1]],
        ...                         costs={"time": [1.0, 1.0, 0.0]}, discount=0.9, initial=[1, 0])
        >>> mdp.num_pairs
        3
        """
        matrix = read_matrix("transitions", transitions)
        num_pairs, num_states = matrix.shape
        state_index = read_indices("state", state, num_pairs, num_states)
        limit = None if actions is None else len(read_names("actions", actions, 0))
        action_index = read_indices("action", action, num_pairs, limit)
        pair_costs = {}
        for name, cost in read_costs(costs).items():
            vector = floats(f"cost {name!r}", cost)
            if vector.shape == (num_states,) and num_states != num_pairs:
                vector = vector[state_index]
            if vector.shape != (num_pairs,):
                raise ValueError(
                    f"cost {name!r} has shape {vector.shape}; give one entry for each of the {num_pairs} pairs "
                    f"or for each of the {num_states} states"
                )
            pair_costs[name] = vector
        mdp = object.__new__(cls)
        mdp._fill(state_index, action_index, matrix, pair_costs, discount, initial, states, actions, labels)
        return mdp

    @classmethod
    def from_function(
        cls,
        start: Hashable | Mapping[Any, float],
        actions: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]],
        step: Callable[[Any, Any], Any],
        discount: float,
        *,
        labels: Mapping[str, Callable[[Any], bool]] | None = None,
        max_states: int = 1_000_000,
        progress: bool = True,
    ) -> MDP:
        """Build a model from a rule, by exploring what can be reached.

        Parameters
        ----------
        start : hashable, or mapping of states to probabilities
            The first state, or its distribution.  A state is any hashable value; ``str`` of it is its name.
        actions : iterable, or function of a state
            The actions, or those that a state offers.
        step : function of a state and an action
            Returns a list of ``(probability, next_state)`` or ``(probability, next_state, costs)``, with costs by name;
            or two things: such a list, and the costs of the pair by name.
        discount : float
            As in :class:`MDP`.
        labels : mapping of str to function of a state, optional
            Names for the sets of states for which a function is true.
        max_states : int
            More states than this are an error.
        progress : bool
            Tell how many states were found, whenever a second has passed.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> def step(stock, order):
        ...     return [(0.5, min(stock + order, 2), {"shortage": 0.0}),
        ...             (0.5, max(min(stock + order, 2) - 1, 0), {"shortage": float(stock + order == 0)})]
        >>> cm.MDP.from_function(0, [0, 1], step, discount=0.9)
        MDP(3 states, 6 pairs, costs: shortage, discount 0.9)
        """
        from cvxmdp.io.rule import from_function

        return from_function(start, actions, step, discount, labels or {}, max_states, progress)

    @classmethod
    def from_gymnasium(cls, env: Any, discount: float) -> MDP:
        """Build a model from a Gymnasium environment with a table of transitions, ``env.unwrapped.P``.

        States and actions have the environment's numbers; one more state, ``"done"``, is where episodes end, and costs
        nothing.  States in which nothing happens any more, as the holes of FrozenLake, are visited once before, so that
        :meth:`with_cost` can tell them apart.  The reward becomes the cost ``"cost"``, which is ``-reward``.  Of a
        fifth entry of transitions ``cost`` becomes the cost ``"constraint"``, and others have their names.  The letters
        of a map, as FrozenLake has one, become labels.  A time limit is not part of the model.  :func:`cvxmdp.play`
        runs a policy in the environment.

        Parameters
        ----------
        env : gymnasium.Env
            The environment, with or without wrappers.
        discount : float
            As in :class:`MDP`.
        """
        from cvxmdp.io.gymnasium import from_gymnasium

        return from_gymnasium(env, discount)

    @classmethod
    def from_table(
        cls,
        table: Any,
        discount: float,
        initial: npt.ArrayLike | str | Mapping[str, float] | None = None,
        pair_costs: Any = None,
    ) -> MDP:
        """Build a model from a table with one row for each transition.

        Parameters
        ----------
        table : pandas or polars frame, mapping of columns, or path of a ``.csv`` or ``.parquet`` file
            With columns ``state``, ``action``, ``next_state`` and ``probability``; all further columns are costs of
            the transition.  States and actions have any names.
        discount, initial
            As in :class:`MDP`.
        pair_costs : likewise, optional
            A second table with columns ``state``, ``action``, and costs of the pair.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> mdp = cm.MDP.from_table({"state": ["off", "off", "on"], "action": ["wait", "start", "wait"],
        ...     "next_state": ["off", "on", "on"], "probability": [1, 1, 1], "power": [0, 5, 2]}, discount=0.9)
        >>> mdp.costs["power"]
        array([0., 5., 2.])
        """
        from cvxmdp.io.table import from_table

        return from_table(table, discount, initial, pair_costs)

    @classmethod
    def from_mdptoolbox(
        cls, transitions: Any, reward: Any, discount: float, initial: npt.ArrayLike | str | None = None
    ) -> MDP:
        """Build a model from arrays of pymdptoolbox; the reward becomes the cost ``"cost"``, which is ``-reward``.

        Parameters
        ----------
        transitions : array of shape (A, S, S), or sequence of A matrices, dense or sparse
            As pymdptoolbox has them.
        reward : array of shape (S,), (S, A) or (A, S, S), or sequence of A matrices, dense or sparse
            As pymdptoolbox has them; rewards of transitions are averaged.
        discount, initial
            As in :class:`MDP`.

        Examples
        --------
        The forest of pymdptoolbox: wait or cut, and one in ten years it burns.

        >>> import cvxmdp as cm
        >>> wait, cut = [[0.1, 0.9, 0], [0.1, 0, 0.9], [0.1, 0, 0.9]], [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
        >>> mdp = cm.MDP.from_mdptoolbox([wait, cut], [[0, 0], [0, 1], [4, 2]], discount=0.9, initial="0")
        >>> mdp.costs["cost"]
        array([ 0.,  0.,  0., -1., -4., -2.])
        """
        from cvxmdp.io.arrays import from_mdptoolbox

        return from_mdptoolbox(transitions, reward, discount, initial)

    @classmethod
    def from_quantecon(cls, ddp: Any, initial: npt.ArrayLike | str | None = None) -> MDP:
        """Build a model from a ``DiscreteDP`` of QuantEcon, or from the arguments of one.

        The reward becomes the cost ``"cost"``, which is ``-reward``.  Actions of reward minus infinity are not offered.

        Parameters
        ----------
        ddp : quantecon.markov.DiscreteDP, or tuple
            In any of its forms; or ``(R, Q, beta)`` or ``(R, Q, beta, s_indices, a_indices)`` as QuantEcon has them.
            The discount is ``beta``.
        initial
            As in :class:`MDP`.

        Examples
        --------
        The example of QuantEcon, whose second state has one action.

        >>> import cvxmdp as cm
        >>> R, Q = [[5, 10], [-1, -float("inf")]], [[(0.5, 0.5), (0, 1)], [(0, 1), (0.5, 0.5)]]
        >>> mdp = cm.MDP.from_quantecon((R, Q, 0.95), initial="0")
        >>> mdp
        MDP(2 states, 3 pairs, costs: cost, discount 0.95)
        >>> solution = cm.Problem(mdp, "cost").solve()
        >>> print(f"{-solution.value / (1 - mdp.discount):.4f}")
        -8.5714
        """
        from cvxmdp.io.arrays import from_quantecon

        return from_quantecon(ddp, initial)

    @staticmethod
    def order(state: npt.ArrayLike, action: npt.ArrayLike) -> Indices:
        """Return the order in which pairs are sorted by state, then by action, as :meth:`from_pairs` takes them.

        Vectors over pairs, in costs, constraints and policies, are read in the model's order.  So index all that has
        one entry or one row for each pair with it, now and later.

        Parameters
        ----------
        state, action : array of int of shape (L,)
            State and action of each pair.

        Returns
        -------
        ndarray of int of shape (L,)
            The number of the pair that comes first, of the one that comes second, and so on.

        Examples
        --------
        >>> import cvxmdp as cm, numpy as np
        >>> state, action = np.array([1, 0, 0]), np.array([0, 1, 0])
        >>> transitions, time = np.array([[0, 1], [0, 1], [1, 0]]), np.array([0.0, 2.0, 1.0])
        >>> order = cm.MDP.order(state, action)
        >>> order
        array([2, 1, 0])
        >>> mdp = cm.MDP.from_pairs(state[order], action[order], transitions[order], {"time": time[order]}, 0.9)
        >>> mdp.costs["time"]
        array([1., 2., 0.])
        """
        length = np.size(state)
        why = f"state has {length} entries"
        return np.lexsort((read_whole("action", action, length, why), read_whole("state", state, length, why)))

    def _fill(
        self,
        state: Indices,
        action: Indices,
        transitions: Any,
        costs: dict[str, Array],
        discount: float,
        initial: npt.ArrayLike | str | Mapping[str, float] | None,
        states: Sequence[str] | None,
        actions: Sequence[str] | None,
        labels: Mapping[str, Any] | None,
    ) -> None:
        """Validate the canonical pairs and freeze them."""
        num_states = transitions.shape[1]
        states = read_names("states", states, num_states)
        actions = read_names("actions", actions, int(action.max()) + 1 if action.size else 0)
        set_ = object.__setattr__
        set_(self, "state", frozen(state))
        set_(self, "action", frozen(action))
        set_(self, "states", states)
        set_(self, "actions", actions)
        check_pairs(state, action, num_states, states, self._pair)
        transitions = checked_probabilities(transitions, states, self._pair)
        for name, cost in costs.items():
            check_cost(f"cost {name!r}", cost, self._pair)
        set_(self, "transitions", frozen(transitions))
        set_(self, "costs", MappingProxyType({name: frozen(cost) for name, cost in costs.items()}))
        set_(self, "discount", check_discount(discount))
        set_(self, "initial", frozen(check_initial(initial, num_states, states)))
        found = {
            str(name): frozen(self.find_states(which, f"label {name!r}")) for name, which in (labels or {}).items()
        }
        set_(self, "labels", MappingProxyType(found))
        set_(self, "_dynamics", {})

    @classmethod
    def _of_parts(cls, **parts: Any) -> MDP:
        """Return a model of parts that are known to be right, as those that live on several ranks."""
        mdp = object.__new__(cls)
        for name, part in {"labels": {}, "_dynamics": {}, **parts}.items():
            object.__setattr__(mdp, name, MappingProxyType(part) if name in ("costs", "labels") else part)
        return mdp

    @property
    def world(self) -> Any:
        """The ranks on which the model lives, or None where it is whole: see :func:`cvxmdp.scatter`."""
        return getattr(self.transitions, "world", None)

    def here(self, vector: Any) -> Any:
        """Return the part that lives here of a vector over pairs or states which every rank has; itself where all does.

        Of a matrix that has a column for each pair, its columns.  Numbers that are the same for all, and vectors of
        another size, come back as they are.
        """
        world = self.world
        if world is None or part_of(vector) is not vector:
            return vector
        if vector.ndim == 2 and vector.shape[1] == self.num_pairs:
            return as_parts_of(self.state, vector[:, self.transitions.pairs], axis=1)
        if vector.ndim != 1:
            return vector
        if vector.size == self.num_pairs:
            return as_parts_of(self.state, vector[self.transitions.pairs])
        return as_parts_of(self.initial, vector[self.transitions.states]) if vector.size == self.num_states else vector

    def _pair(self, i: int) -> str:
        """Return a pair that lives here by its names."""
        from cvxmdp.ranks.model import state_numbers

        state, action = (int(part_of(numbers)[i]) for numbers in (state_numbers(self), self.action))
        return f"state {self.states[state]}, action {self.actions[action]}"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an MDP is immutable; build a new one to change {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an MDP is immutable; {name!r} cannot be deleted")

    def __repr__(self) -> str:
        return (
            f"MDP({self.num_states} states, {self.num_pairs} pairs, costs: {printable(', '.join(self.costs))}, "
            f"discount {self.discount:.12g})"
        )

    def __reduce__(self) -> Any:
        fields = (self.state, self.action, self.transitions, dict(self.costs), self.discount, self.initial)
        return (MDP.from_pairs, (*fields, self.states, self.actions, dict(self.labels)))

    @property
    def num_states(self) -> int:
        """Number of states."""
        return int(self.transitions.shape[1])

    @property
    def num_pairs(self) -> int:
        """Number of state-action pairs."""
        return int(self.transitions.shape[0])

    def with_discount(self, discount: float) -> MDP:
        """Return the same model with another discount.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> cm.worlds.gridworld(size=4).with_discount(0.9).discount
        0.9
        """
        return self._with(discount=discount)

    def with_initial(self, initial: npt.ArrayLike | str | Mapping[str, float]) -> MDP:
        """Return the same model with another first state, or another distribution of it.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> cm.worlds.gridworld(size=2).with_initial("r0c1").initial
        array([0., 1., 0., 0.])
        """
        return self._with(initial=initial)

    def with_cost(
        self,
        name: str,
        cost: npt.ArrayLike | Callable[[str, str], float] | None = None,
        *,
        states: Any = None,
        labels: str | Sequence[str] | None = None,
        entering: bool = False,
    ) -> MDP:
        """Return the model with one more cost.

        Parameters
        ----------
        name : str
            Its name.
        cost : array, or function of a state's and an action's name, optional
            One entry a pair or a state, or what a pair costs.
        states : names, numbers or a mask, optional
            Instead: 1 in these states, else 0.  The normalized cost is then the share of time in them.
        labels : str or sequence of str, optional
            Instead: 1 in the states with any of these labels.
        entering : bool
            Count entries, not visits: a pair costs the probability that it leads from outside the states into them.
            The total over an episode is then the expected number of entries, discounted; where the states are never
            left, the probability of ever getting there.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> mdp = cm.worlds.gridworld(size=3).with_cost("corner", states=["r0c2", "r2c0"])
        >>> int(mdp.costs["corner"].sum())
        8
        """
        from cvxmdp.add_cost import added_cost

        if name in self.costs:
            raise ValueError(f"the model has a cost {name!r} already; give the new one another name")
        return self._with(costs={**self.costs, name: added_cost(self, name, cost, states, labels, entering)})

    def _with(self, **changed: Any) -> MDP:
        """Return the same model with some of its parts changed."""
        if self.world is not None:
            from cvxmdp.ranks.model import changed as changed_parts

            return changed_parts(self, **changed)
        parts = ("state", "action", "transitions", "costs", "discount", "initial", "states", "actions", "labels")
        return MDP.from_pairs(**{part: getattr(self, part) for part in parts} | changed)

    def find_states(self, which: Any, what: str = "states") -> Indices:
        """Return the numbers of states given by label, by names, by numbers or as a mask.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> cm.worlds.gridworld(size=2).find_states(["r0c1", "r1c1"])
        array([1, 3])
        """
        if isinstance(which, str):
            labels: Mapping[str, Indices] = getattr(self, "labels", {})
            if which in self.states or which not in labels:
                return np.array([self._state_number(which, what, labels)], dtype=np.int64)
            return labels[which]
        which = list(which) if isinstance(which, Set) else which if np.ndim(which) else [which]
        given = np.asarray(which)
        if given.dtype == bool:
            if given.shape != (self.num_states,):
                raise ValueError(f"{what} is a mask of shape {given.shape}; the model has {self.num_states} states")
            return np.flatnonzero(given)
        if given.dtype.kind in "UO":
            return np.unique(np.array([self._state_number(name, what) for name in which], dtype=np.int64))
        if not given.size:
            return np.empty(0, np.int64)
        if given.dtype.kind not in "iu":
            raise ValueError(f"{what} holds {given.ravel()[0].item()!r}; give names or numbers of states, or a mask")
        return np.unique(read_indices(what, given, given.size, self.num_states))

    def _state_number(self, name: Any, what: str, others: Iterable[str] = ()) -> int:
        """Return the number of a state; others that might have been meant are named, too."""
        if isinstance(name, str):
            if name not in self.states:
                raise ValueError(f"{what}: " + no_such("state", name, [*others, *self.states]))
            return self.states.index(name)
        if isinstance(name, bool) or not isinstance(name, Integral):
            raise ValueError(f"{what} holds {name!r}; give names or numbers of states, or a mask")
        return int(read_indices(what, [int(name)], 1, self.num_states)[0])

    def cost(self, cost: str | npt.ArrayLike, what: str = "cost") -> Array:
        """Return a cost by name, or a given vector over pairs after checking it.  Errors call the argument ``what``.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> cm.worlds.gridworld(size=4).cost("time")[:4]
        array([1., 1., 1., 1.])
        """
        if isinstance(cost, str):
            if cost not in self.costs:
                raise ValueError(no_such("cost", cost, self.costs))
            return self.costs[cost]
        vector: Array = self.here(floats(what, cost))
        if vector.shape != (self.num_pairs,):
            raise ValueError(
                f"{what} has shape {vector.shape}; give a name or one entry for each of the {self.num_pairs} pairs"
            )
        world_of_parts(vector).together(lambda: check_cost(what, part_of(vector), self._pair))
        return vector

    def dynamics(self, evaluation: str = "auto") -> Dynamics:
        """Return the numerical side of the model, built once for each way of evaluating policies.

        See :func:`cvxmdp.dynamics.choose.choose_dynamics` for what ``evaluation`` may be.
        """
        if evaluation not in self._dynamics:
            from cvxmdp.dynamics.choose import choose_dynamics

            self._dynamics[evaluation] = choose_dynamics(self, evaluation)
        return self._dynamics[evaluation]

    def policy(self, probabilities: Any) -> Policy:
        """Return a policy of this model from probabilities over pairs, a table (S, A), or one action a state.

        By name, it is a mapping of each state to an action, or to probabilities of actions.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> mdp = cm.worlds.gridworld(size=3)
        >>> mdp.policy([3] * 9).table()[0]
        ('r0c0', 'right', 1.0)
        >>> by_name = {"r0c0": {"up": 0.5, "down": 0.5}, "r0c1": "down", "r1c0": "right", "r1c1": "up"}
        >>> cm.worlds.gridworld(size=2).policy(by_name).table()[:2]
        [('r0c0', 'up', 0.5), ('r0c0', 'down', 0.5)]
        """
        from cvxmdp.policy import as_policy

        return as_policy(self, probabilities)

    def evaluate(self, policy: Any) -> Evaluation:
        """Solve for the exact costs, occupancy and value of a policy.

        Parameters
        ----------
        policy : Policy, or anything :meth:`policy` takes
            The policy to evaluate.

        Returns
        -------
        Evaluation
            With ``costs``, ``occupancy`` and ``value``.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> mdp = cm.worlds.gridworld(size=3)
        >>> round(mdp.evaluate([3, 3, 1] * 3).costs["time"], 3)
        0.041
        """
        pi = self.policy(policy).probabilities
        dynamics = self.dynamics()
        d = dynamics.occupancy(pi)
        value = {name: dynamics.value(pi, cost) for name, cost in self.costs.items()}
        return Evaluation({name: float(cost @ d) for name, cost in self.costs.items()}, d, value)

    @in_one_place("gather the policy by cm.gather(mdp, policy), and simulate it where the whole model is")
    def simulate(
        self, policy: Any, episodes: int = 1000, seed: int | None = None, steps: int | None = None
    ) -> Simulation:
        """Run a policy many times, and compare with its exact costs.

        Parameters
        ----------
        policy : Policy, or anything :meth:`policy` takes
            The policy to run.
        episodes : int
            How many runs.
        seed : int, optional
            For numbers that come again.
        steps : int, optional
            Length of a run; when not given, until what is left counts less than a millionth.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> mdp = cm.worlds.gridworld(size=3)
        >>> run = mdp.simulate([3, 3, 1] * 3, episodes=200, seed=0)
        >>> low, high = run.intervals["time"]
        >>> low < run.exact["time"] < high
        True
        """
        from cvxmdp.simulate import simulate

        return simulate(self, policy, episodes, seed, steps)

    @in_one_place("examine the file of the model by cvxmdp info, or the model before it is scattered")
    def examine(self, ranges: bool | None = None) -> Examination:
        """Look the model over: sizes, what is never reached or never left, scales, what each cost can be.

        Parameters
        ----------
        ranges : bool, optional
            Whether to find what each cost can be, by two solves each.  When not given, up to 50 000 pairs.  All else
            takes a few seconds for a million states.

        Examples
        --------
        >>> import cvxmdp as cm
        >>> cm.worlds.gridworld(size=3).examine().absorbing
        ('r2c2',)
        """
        from cvxmdp.examine import examine

        return examine(self, ranges)

    def _repr_html_(self) -> str | None:
        from cvxmdp.report.html import mdp_html

        return None if in_parts(self) else mdp_html(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file that :func:`cvxmdp.load` reads, in the format that its ending says.

        ``.npz`` holds all of a model and is read fastest; no pickle is involved.  Beyond 2 GB it is not compressed, so
        that it can be read where it lies.  The others of :data:`cvxmdp.io.formats.FORMATS` do not hold the discount.
        A model on several ranks is written to ``.npz`` alone, not compressed, by the first rank as the others send it.

        Examples
        --------
        >>> import cvxmdp as cm, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "grid.npz"
        ...     cm.worlds.gridworld(size=3).save(path)
        ...     cm.load(path)
        MDP(9 states, 36 pairs, costs: time, collision, discount 0.99)
        """
        from cvxmdp.io.formats import save

        save(self, path)
