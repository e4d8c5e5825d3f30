"""The model a user holds: transitions, named costs, a discount and an initial distribution.

A model is a list of state-action *pairs* sorted by state, then by action, so that states may offer different
actions.  Row ``i`` of the transitions is the distribution of the next state after pair ``i``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from cvxmdp.names import printable, read_names
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
    from cvxmdp.policy import Policy


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
    initial : array of shape (S,), optional
        Distribution of the first state.  Uniform when not given.
    states, actions : sequence of str, optional
        Names, used in every message and table.  Numbers when not given.

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
        "_dynamics", "action", "actions", "costs", "discount", "initial", "state", "states", "transitions",
    )  # fmt: skip

    state: Indices
    action: Indices
    transitions: Any
    costs: Mapping[str, Array]
    discount: float
    initial: Array
    states: Sequence[str]
    actions: Sequence[str]
    _dynamics: dict[str, Dynamics]

    def __init__(
        self,
        transitions: Any,
        costs: Mapping[str, npt.ArrayLike],
        discount: float,
        initial: npt.ArrayLike | None = None,
        states: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
    ) -> None:
        blocks, matrices, num_states, num_actions = read_table(transitions)
        state = np.repeat(np.arange(num_states), num_actions)
        action = np.tile(np.arange(num_actions), num_states)
        costs = read_costs(costs)
        pair_costs = {
            name: read_cost_table(name, cost, blocks, num_states, num_actions) for name, cost in costs.items()
        }
        self._fill(state, action, matrices, pair_costs, discount, initial, states, actions)

    @classmethod
    def from_pairs(
        cls,
        state: npt.ArrayLike,
        action: npt.ArrayLike,
        transitions: Any,
        costs: Mapping[str, npt.ArrayLike],
        discount: float,
        initial: npt.ArrayLike | None = None,
        states: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
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
        discount, initial, states, actions
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
        mdp._fill(state_index, action_index, matrix, pair_costs, discount, initial, states, actions)
        return mdp

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
        initial: npt.ArrayLike | None,
        states: Sequence[str] | None,
        actions: Sequence[str] | None,
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
        set_(self, "_dynamics", {})

    def _pair(self, i: int) -> str:
        """Return a pair by its names."""
        return f"state {self.states[int(self.state[i])]}, action {self.actions[int(self.action[i])]}"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an MDP is immutable; build a new one to change {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an MDP is immutable; {name!r} cannot be deleted")

    def __repr__(self) -> str:
        return (
            f"MDP({self.num_states} states, {self.num_pairs} pairs, costs: {printable(', '.join(self.costs))}, "
            f"discount {self.discount:g})"
        )

    def __reduce__(self) -> Any:
        fields = (self.state, self.action, self.transitions, dict(self.costs), self.discount, self.initial)
        return (MDP.from_pairs, (*fields, self.states, self.actions))

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
        model = (self.state, self.action, self.transitions, dict(self.costs))
        return MDP.from_pairs(*model, discount, self.initial, self.states, self.actions)

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
                raise ValueError(f"there is no cost {cost!r}; this model has {', '.join(map(repr, self.costs))}")
            return self.costs[cost]
        vector = floats(what, cost)
        if vector.shape != (self.num_pairs,):
            raise ValueError(
                f"{what} has shape {vector.shape}; give a name or one entry for each of the {self.num_pairs} pairs"
            )
        check_cost(what, vector, self._pair)
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

        Examples
        --------
        >>> import cvxmdp as cm
        >>> mdp = cm.worlds.gridworld(size=3)
        >>> mdp.policy([3] * 9).table()[0]
        ('r0c0', 'right', 1.0)
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to an ``.npz`` file that :func:`cvxmdp.load` reads.  No pickle is involved.

        Examples
        --------
        >>> import cvxmdp as cm, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "grid.npz"
        ...     cm.worlds.gridworld(size=3).save(path)
        ...     cm.load(path)
        MDP(9 states, 36 pairs, costs: time, collision, discount 0.99)
        """
        from cvxmdp.io.model import save_mdp

        save_mdp(self, path)
