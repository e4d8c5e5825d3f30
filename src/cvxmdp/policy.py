"""A randomized policy: probabilities over the pairs of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.names import no_such
from cvxmdp.reading import SUM_TOLERANCE, floats

if TYPE_CHECKING:
    from cvxmdp.mdp import MDP, Array, Indices


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """Probability of each action in each state.

    Attributes
    ----------
    probabilities : ndarray of shape (num_pairs,)
        Over the pairs of the model; they sum to one in each state.
    state, action : ndarray of int
        State and action of each pair.
    states, actions : sequence of str
        Names.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> policy = cm.worlds.gridworld(size=2).policy([3, 1, 3, 3])
    >>> policy.table()
    [('r0c0', 'right', 1.0), ('r0c1', 'down', 1.0), ('r1c0', 'right', 1.0), ('r1c1', 'right', 1.0)]
    >>> policy.act("r0c0", rng=0)
    'right'
    """

    probabilities: Array
    state: Indices
    action: Indices
    states: Sequence[str]
    actions: Sequence[str]

    def __post_init__(self) -> None:
        self.probabilities.flags.writeable = False  # they are part of solutions and of constraints

    def __repr__(self) -> str:
        random = np.unique(self.state[(self.probabilities > 0) & (self.probabilities < 1)]).size
        return f"Policy({len(self.states)} states, {random} of them randomized)"

    def act(self, state: int | str, rng: np.random.Generator | int | None = None) -> str:
        """Draw the name of an action in a state given by index or name."""
        if isinstance(state, str):
            if state not in self.states:
                raise ValueError(no_such("state", state, self.states))
            state = self.states.index(state)
        if isinstance(state, bool) or not isinstance(state, Integral):
            raise ValueError(f"state is {state!r}; give the name of a state, or its whole number")
        if not 0 <= state < len(self.states):
            raise ValueError(f"state {state} is not between 0 and {len(self.states) - 1}")
        first, last = np.searchsorted(self.state, [state, state + 1])
        pi = self.probabilities[first:last]
        pair = first + int(np.random.default_rng(rng).choice(last - first, p=pi / pi.sum()))
        return str(self.actions[self.action[pair]])

    def table(self) -> list[tuple[str, str, float]]:
        """List (state, action, probability) for every action that is ever taken."""
        taken = np.flatnonzero(self.probabilities > 0)
        return [(self.states[self.state[i]], self.actions[self.action[i]], float(self.probabilities[i])) for i in taken]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the actions that are taken, with their probabilities, as a table to a ``.csv`` file.

        Examples
        --------
        >>> import cvxmdp as cm, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "policy.csv"
        ...     cm.worlds.gridworld(size=2).policy([3, 1, 3, 3]).save(path)
        ...     print(path.read_text().splitlines()[1])
        r0c0,right,1.0
        """
        from cvxmdp.io.policy import write_policy

        write_policy(self, path)

    def _repr_html_(self) -> str:
        from cvxmdp.report.html import policy_html

        return policy_html(self)


def as_policy(mdp: MDP, policy: Any) -> Policy:
    """Read a policy of ``mdp`` from a Policy, probabilities over pairs, a table (S, A), or one action a state.

    A mapping gives each state, by name, an action's name or probabilities by the actions' names.
    """
    if mdp.world is not None:
        return _on_ranks(mdp, policy)
    if isinstance(policy, Mapping):
        policy = _by_names(mdp, policy)
    if isinstance(policy, Policy):
        if policy.probabilities.shape != (mdp.num_pairs,):
            raise ValueError(f"the policy has {policy.probabilities.size} pairs; the model has {mdp.num_pairs}")
        if not (np.array_equal(policy.state, mdp.state) and np.array_equal(policy.action, mdp.action)):
            raise ValueError("the policy is of another model: its pairs of state and action are not this model's")
        return policy
    try:
        given = np.asarray(policy)
    except ValueError:  # rows of different lengths
        given = np.asarray(policy, dtype=object)
    one_each = given.shape == (mdp.num_states,) and np.issubdtype(given.dtype, np.integer)
    # Ones over pairs of a model with one action a state are probabilities.
    if one_each and (mdp.num_pairs > mdp.num_states or not np.all(given == 1)):
        pi = (mdp.action == given[mdp.state]).astype(np.float64)
        missing = np.flatnonzero(np.bincount(mdp.state, weights=pi, minlength=mdp.num_states) == 0)
        if missing.size:
            raise _not_offered(mdp, int(missing[0]), int(given[missing[0]]))
    elif given.shape == (mdp.num_pairs,):
        pi = floats("the policy", given)
    elif given.shape == (mdp.num_states, len(mdp.actions)):
        table = floats("the policy", given)
        pi = table[mdp.state, mdp.action]
        elsewhere = table != 0
        elsewhere[mdp.state, mdp.action] = False
        if np.any(elsewhere):
            raise _not_offered(mdp, *(int(axis[0]) for axis in np.nonzero(elsewhere)))
    else:
        raise ValueError(
            f"the policy has shape {given.shape}; give probabilities over the {mdp.num_pairs} pairs, a table "
            f"(S, A) = ({mdp.num_states}, {len(mdp.actions)}), or one whole-numbered action for each state"
        )
    bad = np.flatnonzero(~(pi >= 0) | ~np.isfinite(pi))
    if bad.size:
        raise ValueError(
            f"the policy takes action {mdp.actions[mdp.action[bad[0]]]} in state {mdp.states[mdp.state[bad[0]]]} with "
            f"probability {pi[bad[0]]}; probabilities must not be negative and must be finite"
        )
    sums = np.bincount(mdp.state, weights=pi, minlength=mdp.num_states)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        raise ValueError(
            f"the policy's probabilities in state {mdp.states[worst]} sum to {sums[worst]:.10g}, not 1; "
            + ("divide them by their sum" if sums[worst] > 0 else "give one of its actions a probability above 0")
        )
    return Policy(pi / sums[mdp.state], mdp.state, mdp.action, mdp.states, mdp.actions)


def _on_ranks(mdp: MDP, policy: Any) -> Policy:
    """Read a policy of a model that lives on several ranks, from probabilities over all its pairs."""
    given = policy.probabilities if isinstance(policy, Policy) else policy
    pi = mdp.here(floats("the policy", given))
    if pi.shape != (mdp.num_pairs,):
        raise ValueError(
            f"the policy has shape {pi.shape}; on several ranks give probabilities over the {mdp.num_pairs} pairs"
        )
    sums = np.bincount(mdp.state, weights=pi)
    if not np.all(pi >= 0) or np.max(np.abs(sums - 1)) > SUM_TOLERANCE:
        raise ValueError("the policy's probabilities must be at least 0 and sum to 1 in each state")
    return Policy(pi / sums[mdp.state], mdp.state, mdp.action, mdp.states, mdp.actions)


def _by_names(mdp: MDP, policy: Mapping[str, Any]) -> Array:
    """Return probabilities over pairs from those by name."""
    pi = np.zeros(mdp.num_pairs)
    states = {name: s for s, name in enumerate(mdp.states)}
    actions = {name: a for a, name in enumerate(mdp.actions)}
    first = np.searchsorted(mdp.state, np.arange(mdp.num_states + 1))
    for state, taken in policy.items():
        if state not in states:
            raise ValueError("the policy: " + no_such("state", str(state), mdp.states))
        s = states[state]
        offered = mdp.action[first[s] : first[s + 1]]
        if not isinstance(taken, (Mapping, str)):
            raise ValueError(
                f"the policy in state {state} is {taken!r}; give the name of an action, or probabilities by name"
            )
        for action, probability in (taken if isinstance(taken, Mapping) else {taken: 1.0}).items():
            if not isinstance(probability, Real):
                raise ValueError(
                    f"the policy takes action {action} in state {state} with probability {probability!r}; give a number"
                )
            if action not in actions:
                raise ValueError(f"the policy in state {state}: " + no_such("action", str(action), mdp.actions))
            if actions[action] not in offered:
                raise _not_offered(mdp, s, actions[action])
            pi[first[s] + int(np.searchsorted(offered, actions[action]))] = probability
    if missing := next((name for name in mdp.states if name not in policy), None):
        raise ValueError(f"the policy has no action for state {missing}; give one for each of the {len(states)} states")
    return pi


def _not_offered(mdp: MDP, state: int, action: int) -> ValueError:
    name = mdp.actions[action] if 0 <= action < len(mdp.actions) else str(action)
    offered = ", ".join(mdp.actions[a] for a in mdp.action[mdp.state == state])
    return ValueError(
        f"the policy takes action {name} in state {mdp.states[state]}, which the state does not offer; it offers "
        f"{offered}"
    )


def policy_from_occupancy(mdp: MDP, d: Array, visits: Array, fallback: Indices) -> Policy:
    """Read the policy off an occupancy ``d >= 0`` and its visits; in states of no mass take the ``fallback`` pair."""
    unseen = visits <= 1e-300  # below, the quotient of two denormal numbers need not sum to one
    shares = np.where(unseen, 1.0, visits)[mdp.state]
    pi = np.divide(d, shares, out=shares)
    if np.any(unseen):
        pi[unseen[mdp.state]] = 0.0
        pi[fallback[unseen]] = 1.0
    return Policy(pi, mdp.state, mdp.action, mdp.states, mdp.actions)
