"""The model a user holds: transitions, named costs, a discount and an initial distribution.

A model is a list of state-action *pairs* sorted by state, then by action, so that states may offer different
actions.  Row ``i`` of the transitions is the distribution of the next state after pair ``i``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.names import printable, read_names

if TYPE_CHECKING:
    from cvxmdp.dynamics.base import Dynamics
    from cvxmdp.policy import Policy

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

SUM_TOLERANCE = 1e-6
"""How far probabilities may be from summing to one (float32 input rounds that far); they are then made exact."""
EXACT = 2 * float(np.finfo(np.float64).eps)
"""Probabilities that sum to one to this much an entry are left as they are.  What was divided by its sum does, so that
copies of a model are the same to the last bit."""
LARGEST = 1e150
"""The largest cost: the squares of larger ones overflow."""


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
        blocks, matrices, num_states, num_actions = _stack(transitions)
        state = np.repeat(np.arange(num_states), num_actions)
        action = np.tile(np.arange(num_actions), num_states)
        costs = _mapping(costs)
        pair_costs = {
            name: _cost_from_table(name, cost, blocks, num_states, num_actions) for name, cost in costs.items()
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
        matrix = _matrix("transitions", transitions)
        num_pairs, num_states = matrix.shape
        state_index = _indices("state", state, num_pairs, num_states)
        limit = None if actions is None else len(read_names("actions", actions, 0))
        action_index = _indices("action", action, num_pairs, limit)
        pair_costs = {}
        for name, cost in _mapping(costs).items():
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
        return np.lexsort((_whole("action", action, length, why), _whole("state", state, length, why)))

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
        set_(self, "state", _frozen(state))
        set_(self, "action", _frozen(action))
        set_(self, "states", states)
        set_(self, "actions", actions)
        _check_pairs(state, action, num_states, states, self._pair)
        transitions = _checked_probabilities(transitions, states, self._pair)
        for name, cost in costs.items():
            _check_cost(f"cost {name!r}", cost, self._pair)
        set_(self, "transitions", _frozen(transitions))
        set_(self, "costs", MappingProxyType({name: _frozen(cost) for name, cost in costs.items()}))
        set_(self, "discount", _check_discount(discount))
        set_(self, "initial", _frozen(_check_initial(initial, num_states, states)))
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
        _check_cost(what, vector, self._pair)
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


def _frozen(array: Any) -> Any:
    parts = [array.data, array.indices, array.indptr] if sp.issparse(array) else [array]
    for part in parts:
        part.flags.writeable = False
    return array


def _fixed(array: Any) -> bool:
    """Whether an array, and all it is a view of, is marked as not writeable: it may be shared with the caller."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return True


def floats(what: str, values: npt.ArrayLike) -> Array:
    """Read an array of real numbers: a copy, or the array itself where nobody can change it."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and _fixed(values):
        return values
    try:
        given = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        raise ValueError(f"{what} is not an array of numbers; it is {type(values).__name__}") from None
    check_real(what, given)
    try:
        return np.array(given, dtype=np.float64)
    except OverflowError:
        raise ValueError(f"{what} holds a whole number that is too large for a float") from None


def check_real(what: str, array: Any) -> None:
    """Refuse an array, dense or sparse, whose entries are not real numbers."""
    kind = array.dtype.kind
    if kind in "biuf":
        return
    if kind == "c":
        raise ValueError(f"{what} holds complex numbers; give real ones, such as array.real where the rest is rounding")
    for entry in np.ravel(array.data if sp.issparse(array) else array).tolist():
        if kind != "O" or not isinstance(entry, (Real, Decimal)):
            raise ValueError(f"{what} holds {entry!r}, a {type(entry).__name__}; give an array of numbers")


def _mapping(costs: Mapping[str, npt.ArrayLike]) -> Mapping[str, npt.ArrayLike]:
    if not isinstance(costs, Mapping) or not costs:
        raise ValueError('costs must be a mapping of names to arrays with at least one entry, such as {"time": array}')
    for name in costs:
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a cost must be a non-empty string, not {name!r}")
    return costs


def _matrix(what: str, matrix: Any) -> Any:
    """Return an L x S ndarray or CSR array of float64 that nobody else can change."""
    if sp.issparse(matrix):
        check_real(what, matrix)
        kept = matrix.format == "csr" and all(map(_fixed, (matrix.data, matrix.indices, matrix.indptr)))
        result = sp.csr_array(matrix, dtype=np.float64, copy=not (kept and matrix.has_canonical_format))
        try:
            result.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"{what} is not a valid sparse matrix: {error}") from None
        result.sum_duplicates()
        if max(result.nnz, *result.shape) <= np.iinfo(np.int32).max:  # half the memory of column numbers
            result.indices = result.indices.astype(np.int32, copy=False)
            result.indptr = result.indptr.astype(np.int32, copy=False)
    else:
        result = floats(what, matrix)
    if len(result.shape) != 2 or 0 in result.shape:
        raise ValueError(f"{what} has shape {result.shape}; give one row for each pair and one column for each state")
    return result


def _stack(transitions: Any) -> tuple[Any, Any, int, int]:
    """Turn A matrices S x S into one (S A) x S matrix with the pairs of a state together."""
    sparse = sp.issparse(transitions)
    blocks = [transitions] if sparse else list(transitions) if isinstance(transitions, Sequence) else transitions
    if isinstance(blocks, list) and blocks and all(sp.issparse(block) for block in blocks):
        shape = blocks[0].shape
        for a, block in enumerate(blocks):
            if block.shape != shape or shape[0] != shape[1]:
                raise ValueError(
                    f"transitions of action {a} have shape {block.shape}; every action needs the same S x S shape"
                )
            check_real("transitions", block)
        num_states, num_actions = shape[0], len(blocks)
        order = np.arange(num_actions * num_states).reshape(num_actions, num_states).T.ravel()
        return blocks, _matrix("transitions", sp.vstack(blocks, format="csr"))[order], num_states, num_actions
    if isinstance(blocks, list) and any(sp.issparse(block) for block in blocks):
        raise ValueError("transitions mixes sparse and dense matrices; make them all of one kind")
    cube = floats("transitions", transitions)
    if cube.ndim != 3 or cube.shape[1] != cube.shape[2] or 0 in cube.shape:
        raise ValueError(
            f"transitions has shape {cube.shape}; give (A, S, S), that is one S x S matrix for each action, or use "
            "MDP.from_pairs for one row a pair"
        )
    num_actions, num_states, _ = cube.shape
    stacked = np.ascontiguousarray(cube.transpose(1, 0, 2)).reshape(-1, num_states)
    return cube, stacked, num_states, num_actions


def _cost_from_table(name: str, cost: npt.ArrayLike, transitions: Any, num_states: int, num_actions: int) -> Array:
    table = floats(f"cost {name!r}", cost)
    if table.shape == (num_states,):
        return np.repeat(table, num_actions)
    if table.shape == (num_states, num_actions):
        return table.ravel()
    if table.shape == (num_actions, num_states, num_states):
        with np.errstate(invalid="ignore", over="ignore"):  # an infinite cost is refused later, with its pair
            expected = [np.asarray((p * table[a]).sum(axis=1)).ravel() for a, p in enumerate(map(_plain, transitions))]
        return np.stack(expected, axis=1).ravel()
    raise ValueError(
        f"cost {name!r} has shape {table.shape}; give (S,) = ({num_states},), (S, A) = ({num_states}, {num_actions}) "
        f"or (A, S, S) = ({num_actions}, {num_states}, {num_states})"
    )


def _plain(matrix: Any) -> Any:
    return sp.csr_array(matrix) if sp.issparse(matrix) else np.asarray(matrix, dtype=np.float64)


def _indices(what: str, values: npt.ArrayLike, length: int, limit: int | None) -> Indices:
    array = _whole(what, values, length, f"transitions has {length} rows")
    if limit is None and array.max() >= max(1000, 10 * length):
        raise ValueError(f"{what} holds {int(array.max())}; number the actions from 0, or name them through {what}s=")
    if array.min() < 0 or (limit is not None and array.max() >= limit):
        bad = int(array.min()) if array.min() < 0 else int(array.max())
        upper = "" if limit is None else f" and below {limit}"
        raise ValueError(f"{what} holds {bad}; entries must be at least 0{upper}")
    return array.astype(np.int64)


def _whole(what: str, values: npt.ArrayLike, length: int, why: str) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.shape != (length,):
        raise ValueError(f"{what} has shape {array.shape}; {why}, so give a vector of {length} entries")
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{what} must hold whole numbers, not {array.dtype}; pass names through {what}s=")
    return array


def _check_pairs(state: Indices, action: Indices, num_states: int, states: Sequence[str], pair: Any) -> None:
    missing = np.flatnonzero(np.bincount(state, minlength=num_states) == 0)
    if missing.size:
        raise ValueError(
            f"state {states[missing[0]]} has no action ({missing.size} such states in all); every state needs one. "
            "For a state that ends the process, add an action that returns to it"
        )
    further, next_action = np.diff(state), np.diff(action)
    unsorted = np.flatnonzero((further < 0) | ((further == 0) & (next_action < 0)))
    if unsorted.size:
        i = int(unsorted[0])
        raise ValueError(
            f"{pair(i + 1)} (pair {i + 1}) comes after {pair(i)}, but pairs must be sorted by state, then by action; "
            "take order = MDP.order(state, action) and index state, action, the rows of transitions and every vector "
            "over pairs with it"
        )
    same = np.flatnonzero((further == 0) & (next_action == 0))
    if same.size:
        raise ValueError(f"{pair(int(same[0]))} is given twice; merge the two rows into one")


def _check_cost(what: str, cost: Array, pair: Any) -> None:
    bad = np.flatnonzero(~(np.abs(cost) <= LARGEST))
    if not bad.size:
        return
    i = int(bad[0])
    if np.isfinite(cost[i]):
        raise ValueError(f"{what} is {cost[i]:g} in {pair(i)}; costs beyond {LARGEST:g} overflow: choose a larger unit")
    raise ValueError(
        f"{what} is {cost[i]} in {pair(i)}; costs must be finite. To forbid a pair, leave it out with MDP.from_pairs"
    )


def _checked_probabilities(transitions: Any, states: Sequence[str], pair: Any) -> Any:
    """Return the transitions with rows that sum to one, but for rounding."""
    entries = transitions.data if sp.issparse(transitions) else transitions
    if not np.all(np.isfinite(entries)) or (entries.size and entries.min() < 0):
        table = sp.coo_array(transitions)
        k = int(np.flatnonzero(~(table.data >= 0) | ~np.isfinite(table.data))[0])
        i, t = (int(axis[k]) for axis in table.coords)
        raise ValueError(
            f"the probability of reaching state {states[t]} from {pair(i)} is {table.data[k]}; probabilities must be "
            "finite and at least 0"
        )
    sums = np.asarray(transitions.sum(axis=1)).ravel()
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        raise ValueError(
            f"the probabilities from {pair(worst)} sum to {sums[worst]:.10g}, not 1; divide the row by its sum, or add "
            "the missing mass to the state where the process ends"
        )
    sparse = sp.issparse(transitions)
    entries_a_row = np.diff(transitions.indptr) if sparse else np.count_nonzero(transitions, axis=1)
    sums[np.abs(sums - 1) <= EXACT * entries_a_row] = 1.0
    if np.all(sums == 1.0):
        return transitions
    if sparse:
        exact = transitions.data / np.repeat(sums, entries_a_row)
        return sp.csr_array((exact, transitions.indices, transitions.indptr), shape=transitions.shape)
    return transitions / sums[:, None]


def _check_discount(discount: float) -> float:
    try:
        value = float(discount)
    except (TypeError, ValueError):
        raise ValueError(f"discount must be a number between 0 and 1, not {discount!r}") from None
    if not 0 < value < 1:
        raise ValueError(f"discount is {value}; it must lie between 0 and 1, both excluded (0.99 is a usual choice)")
    return value


def _check_initial(initial: npt.ArrayLike | None, num_states: int, states: Sequence[str]) -> Array:
    if initial is None:
        return np.full(num_states, 1 / num_states)
    rho = floats("initial", initial)
    if rho.shape != (num_states,):
        raise ValueError(f"initial has shape {rho.shape}; give one probability for each of the {num_states} states")
    bad = np.flatnonzero(~(rho >= 0) | ~np.isfinite(rho))
    if bad.size:
        raise ValueError(f"initial gives state {states[bad[0]]} the probability {rho[bad[0]]}; it must be at least 0")
    total = float(rho.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise ValueError(f"initial sums to {total:.10g}, not 1; divide it by its sum")
    return rho if abs(total - 1) <= EXACT * np.count_nonzero(rho) else np.asarray(rho / total)
