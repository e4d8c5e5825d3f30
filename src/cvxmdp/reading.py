"""From what a user gives to arrays that are known to be right, or an error that names what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.memory import arrays_of, take_room
from cvxmdp.names import no_such
from cvxmdp.ranks.scattered import Scattered, as_array, part_of

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

SUM_TOLERANCE = 1e-6
"""How far probabilities may be from summing to one (float32 input rounds that far); they are then made exact."""
SUM_ACCURACY = 2 * float(np.finfo(np.float64).eps)
"""Probabilities that sum to one to this much an entry are left as they are.  What was divided by its sum does, so that
copies of a model are the same to the last bit."""
LARGEST = 1e150
"""The largest cost: the squares of larger ones overflow."""


def frozen(array: Any) -> Any:
    """Mark an array, or the arrays of a sparse matrix, as not writeable."""
    for part in arrays_of(array):
        part.flags.writeable = False
    return array


def handed_over(array: Any) -> Any:
    """Mark an array, dense or sparse, and all it is a view of, as not writeable, so that a model shares it."""
    for part in arrays_of(array):
        while isinstance(part, np.ndarray):
            part.flags.writeable = False
            part = part.base
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
    if isinstance(values, (np.ndarray, Scattered)) and values.dtype == np.float64 and _fixed(part_of(values)):
        return as_array(values)
    if isinstance(values, Scattered):
        return as_array(values.astype(np.float64))
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


def read_costs(costs: Mapping[str, npt.ArrayLike]) -> Mapping[str, npt.ArrayLike]:
    """Check that there are named costs."""
    if not isinstance(costs, Mapping) or not costs:
        raise ValueError('costs must be a mapping of names to arrays with at least one entry, such as {"time": array}')
    for name in costs:
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a cost must be a non-empty string, not {name!r}")
    return costs


def read_matrix(what: str, matrix: Any) -> Any:
    """Return an L x S ndarray or CSR array of float64 that nobody else can change."""
    if sp.issparse(matrix):
        check_real(what, matrix)
        kept = matrix.format == "csr" and all(map(_fixed, arrays_of(matrix)))
        if kept and not matrix.has_canonical_format:
            size = sum(part.nbytes for part in arrays_of(matrix))
            take_room(size, f"a copy of {what}, whose columns are not sorted or there twice,")
        result = sp.csr_array(matrix, dtype=np.float64, copy=not (kept and matrix.has_canonical_format))
        try:
            result.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"{what} is not a valid sparse matrix: {error}") from None
        result.sum_duplicates()
        narrow(result)
    else:
        result = floats(what, matrix)
    if len(result.shape) != 2 or 0 in result.shape:
        raise ValueError(f"{what} has shape {result.shape}; give one row for each pair and one column for each state")
    return result


def narrow(rows: Any) -> Any:
    """Give compressed rows numbers of 32 bits where these are enough: half the memory of their columns."""
    if max(rows.nnz, *rows.shape) <= np.iinfo(np.int32).max:
        rows.indices = rows.indices.astype(np.int32, copy=False)
        rows.indptr = rows.indptr.astype(np.int32, copy=False)
    return rows


def read_table(transitions: Any) -> tuple[Any, Any, int, int]:
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
        return blocks, read_matrix("transitions", sp.vstack(blocks, format="csr"))[order], num_states, num_actions
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


def read_cost_table(name: str, cost: npt.ArrayLike, transitions: Any, num_states: int, num_actions: int) -> Array:
    """Read a cost of states, of states and actions, or of transitions, as one number a pair."""
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


def read_indices(what: str, values: npt.ArrayLike, length: int, limit: int | None) -> Indices:
    """Read the number of a state or an action for each pair."""
    array = read_whole(what, values, length, f"transitions has {length} rows")
    if limit is None and array.max() >= max(1000, 10 * length):
        raise ValueError(f"{what} holds {int(array.max())}; number the actions from 0, or name them through {what}s=")
    if array.min() < 0 or (limit is not None and array.max() >= limit):
        bad = int(array.min()) if array.min() < 0 else int(array.max())
        upper = "" if limit is None else f" and below {limit}"
        raise ValueError(f"{what} holds {bad}; entries must be at least 0{upper}")
    return array.astype(np.int64)


def read_whole(what: str, values: npt.ArrayLike, length: int, why: str) -> npt.NDArray[Any]:
    """Read one whole number for each pair."""
    array = np.asarray(values)
    if array.shape != (length,):
        raise ValueError(f"{what} has shape {array.shape}; {why}, so give a vector of {length} entries")
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{what} must hold whole numbers, not {array.dtype}; pass names through {what}s=")
    return array


def check_pairs(state: Indices, action: Indices, num_states: int, states: Sequence[str], pair: Any) -> None:
    """Check that every state has an action, that none occurs twice, and that pairs are sorted."""
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


def check_cost(what: str, cost: Array, pair: Any) -> None:
    """Check that a cost is finite and not too large."""
    bad = np.flatnonzero(~(np.abs(cost) <= LARGEST))
    if not bad.size:
        return
    i = int(bad[0])
    if np.isfinite(cost[i]):
        raise ValueError(f"{what} is {cost[i]:g} in {pair(i)}; costs beyond {LARGEST:g} overflow: choose a larger unit")
    raise ValueError(
        f"{what} is {cost[i]} in {pair(i)}; costs must be finite. To forbid a pair, leave it out with MDP.from_pairs"
    )


def checked_probabilities(transitions: Any, states: Sequence[str], pair: Any) -> Any:
    """Return the transitions with rows that sum to one, but for rounding."""
    entries = transitions.data if sp.issparse(transitions) else transitions
    if entries.size and not (entries.min() >= 0 and entries.max() < np.inf):  # nor may one be no number
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
    sums[np.abs(sums - 1) <= SUM_ACCURACY * entries_a_row] = 1.0
    if np.all(sums == 1.0):
        return transitions
    take_room(entries.nbytes, "dividing the transitions by the sums of their rows, which are not exactly 1,")
    if sparse:
        exact = transitions.data / np.repeat(sums, entries_a_row)
        return sp.csr_array((exact, transitions.indices, transitions.indptr), shape=transitions.shape)
    return transitions / sums[:, None]


def check_discount(discount: float) -> float:
    """Check that a discount lies between zero and one."""
    try:
        value = float(discount)
    except (TypeError, ValueError):
        raise ValueError(f"discount must be a number between 0 and 1, not {discount!r}") from None
    if not 0 < value < 1:
        raise ValueError(f"discount is {value}; it must lie between 0 and 1, both excluded (0.99 is a usual choice)")
    return value


def check_initial(
    initial: npt.ArrayLike | str | Mapping[str, float] | None, num_states: int, states: Sequence[str]
) -> Array:
    """Check that an initial distribution is one; even where none is given, certain where it is a state's name."""
    if initial is None:
        return np.full(num_states, 1 / num_states)
    if isinstance(initial, str):
        initial = {initial: 1.0}
    if isinstance(initial, Mapping):
        by_name = initial
        initial = np.zeros(num_states)
        for name, probability in by_name.items():
            if name not in states:
                raise ValueError("initial: " + no_such("state", str(name), states))
            if not isinstance(probability, Real):
                raise ValueError(f"initial gives state {name} the probability {probability!r}; give a number")
            initial[states.index(name)] = probability
    rho = floats("initial", initial)
    if rho.shape != (num_states,):
        raise ValueError(f"initial has shape {rho.shape}; give one probability for each of the {num_states} states")
    bad = np.flatnonzero(~(rho >= 0) | ~np.isfinite(rho))
    if bad.size:
        raise ValueError(f"initial gives state {states[bad[0]]} the probability {rho[bad[0]]}; it must be at least 0")
    total = float(rho.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise ValueError(f"initial sums to {total:.10g}, not 1; divide it by its sum")
    return rho if abs(total - 1) <= SUM_ACCURACY * np.count_nonzero(rho) else np.asarray(rho / total)
