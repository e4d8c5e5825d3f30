"""One more cost of a model: as a vector, as a rule, or from the states that it is to count."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Array, Indices
from cvxmdp.names import no_such
from cvxmdp.ranks.model import state_numbers
from cvxmdp.ranks.scattered import as_array, as_parts_of, part_of, world_of_parts
from cvxmdp.reading import floats


def added_cost(
    mdp: MDP, name: str, cost: Any, states: Any, labels: str | Sequence[str] | None, entering: bool
) -> Array:
    """Return a cost over pairs; see :meth:`cvxmdp.MDP.with_cost`."""
    if sum(given is not None for given in (cost, states, labels)) != 1:
        raise ValueError(f"cost {name!r} needs one of cost=, states= and labels=, and no more than one")
    if cost is not None:
        if entering:
            raise ValueError("entering counts entries into states; give these as states= or labels=")
        return _by_rule(mdp, name, cost) if callable(cost) else _as_given(mdp, name, cost)
    counted = np.zeros(mdp.num_states)
    counted[mdp.find_states(states) if labels is None else _labelled(mdp, labels)] = 1.0
    inside: Array = mdp.here(counted)
    if not entering:
        return inside[mdp.state]
    return as_array(np.where(inside[mdp.state] == 1.0, 0.0, mdp.transitions @ inside))


def _as_given(mdp: MDP, name: str, cost: Any) -> Array:
    vector: Array = mdp.here(floats(f"cost {name!r}", cost))
    if vector.shape == (mdp.num_states,) and mdp.num_states != mdp.num_pairs:
        return vector[mdp.state]
    if vector.shape == (mdp.num_pairs,):
        return vector
    raise ValueError(
        f"cost {name!r} has shape {vector.shape}; give one entry for each of the {mdp.num_pairs} pairs or of the "
        f"{mdp.num_states} states, or a function of a state's and an action's name"
    )


def _by_rule(mdp: MDP, name: str, rule: Any) -> Array:
    numbers, actions = part_of(state_numbers(mdp)).tolist(), part_of(mdp.action).tolist()

    def found() -> Array:
        vector = np.empty(len(numbers))
        for i, (s, a) in enumerate(zip(numbers, actions, strict=True)):
            state, action = mdp.states[s], mdp.actions[a]
            value = rule(state, action)
            if not isinstance(value, Real | np.bool_):
                raise ValueError(
                    f"cost {name!r} of state {state}, action {action} is {value!r}, a {type(value).__name__}; the "
                    "function must return a number"
                )
            vector[i] = value
        return vector

    return as_parts_of(mdp.state, world_of_parts(mdp.state).together(found))


def _labelled(mdp: MDP, labels: str | Sequence[str]) -> Indices:
    wanted = [labels] if isinstance(labels, str) else list(labels)
    for label in wanted:
        if label not in mdp.labels:
            raise ValueError(no_such("label", str(label), mdp.labels))
    return np.concatenate([np.empty(0, np.int64), *(mdp.labels[label] for label in wanted)])
