"""A randomized policy: probabilities over the pairs of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.names import no_such
from cvxmdp.ranks.one_place import in_one_place, in_parts
from cvxmdp.ranks.scattered import as_parts_of, part_of, world_of_parts
from cvxmdp.reading import SUM_TOLERANCE, floats

if TYPE_CHECKING:
    from cvxmdp.mdp import MDP, Array, Indices

GATHER = "cm.gather(mdp, policy) returns it whole, on the first rank"


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
        drawn = (self.probabilities > 0) & (self.probabilities < 1)
        random = np.count_nonzero(np.bincount(self.state, weights=drawn))
        return f"Policy({len(self.states)} states, {random} of them randomized)"

    @property
    def world(self) -> Any:
        """The ranks on which the probabilities live, or None where they are whole."""
        return getattr(self.probabilities, "world", None)

    @in_one_place(GATHER)
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

    @in_one_place(GATHER)
    def table(self) -> list[tuple[str, str, float]]:
        """List (state, action, probability) for every action that is ever taken."""
        taken = np.flatnonzero(self.probabilities > 0)
        return [(self.states[self.state[i]], self.actions[self.action[i]], float(self.probabilities[i])) for i in taken]

    @in_one_place(GATHER)
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

    def _repr_html_(self) -> str | None:
        from cvxmdp.report.html import policy_html

        return None if in_parts(self) else policy_html(self)


def as_policy(mdp: MDP, policy: Any) -> Policy:
    """Read a policy of ``mdp`` from a Policy, probabilities over pairs, a table (S, A), or one action a state.

    A mapping gives each state, by name, an action's name or probabilities by the actions' names.
    """
    if isinstance(policy, Policy):
        return _of_model(mdp, policy)
    if mdp.world is None and in_parts(policy):
        raise _elsewhere()
    pi = world_of_parts(mdp.state).together(lambda: _own_part(mdp, policy))
    return Policy(as_parts_of(mdp.state, pi), mdp.state, mdp.action, mdp.states, mdp.actions)


def _of_model(mdp: MDP, policy: Policy) -> Policy:
    """Check that a policy is of a model, and return it in the parts of the model."""
    if mdp.world is None and policy.world is not None:
        raise _elsewhere()
    if policy.probabilities.shape != (mdp.num_pairs,):
        raise ValueError(f"the policy has {policy.probabilities.size} pairs; the model has {mdp.num_pairs}")
    from cvxmdp.ranks.model import state_numbers

    own = state_numbers(mdp) if policy.world is None else mdp.state
    if not (np.array_equal(mdp.here(policy.state), own) and np.array_equal(mdp.here(policy.action), mdp.action)):
        raise ValueError("the policy is of another model: its pairs of state and action are not this model's")
    if policy.world is mdp.world:
        return policy
    return Policy(mdp.here(policy.probabilities), mdp.state, mdp.action, mdp.states, mdp.actions)


def _elsewhere() -> ValueError:
    return ValueError(f"the policy lives on several ranks, and the model does not; {GATHER}")


def _own_part(mdp: MDP, policy: Any) -> Array:
    """Return the probabilities of the pairs that live here, from those of all."""
    from cvxmdp.ranks.model import state_numbers

    number, owner, action = (part_of(array) for array in (state_numbers(mdp), mdp.state, mdp.action))
    states = number[np.searchsorted(owner, np.arange(owner[-1] + 1 if owner.size else 0))]
    given = _by_names(mdp, policy, states) if isinstance(policy, Mapping) else part_of(policy)
    shape: tuple[int, ...] = (mdp.num_pairs,)
    if given is policy or given.shape != owner.shape:
        try:
            given = np.asarray(given)
        except ValueError:  # rows of different lengths
            given = np.asarray(given, dtype=object)
        shape = given.shape
    one_each = shape == (mdp.num_states,) and np.issubdtype(given.dtype, np.integer)
    # Ones over pairs of a model with one action a state are probabilities.
    if one_each and (mdp.num_pairs > mdp.num_states or not np.all(given == 1)):
        pi = (action == given[number]).astype(np.float64)
        missing = np.flatnonzero(np.bincount(owner, weights=pi, minlength=states.size) == 0)
        if missing.size:
            state = int(states[missing[0]])
            raise _not_offered(mdp, state, int(given[state]))
    elif shape == (mdp.num_pairs,):
        pi = floats("the policy", given)
        pi = pi if pi.size == owner.size else pi[mdp.transitions.pairs]
    elif shape == (mdp.num_states, len(mdp.actions)):
        table = floats("the policy", given)[states]
        pi = table[owner, action]
        elsewhere = table != 0
        elsewhere[owner, action] = False
        if np.any(elsewhere):
            k, a = (int(axis[0]) for axis in np.nonzero(elsewhere))
            raise _not_offered(mdp, int(states[k]), a)
    else:
        raise ValueError(
            f"the policy has shape {shape}; give probabilities over the {mdp.num_pairs} pairs, a table "
            f"(S, A) = ({mdp.num_states}, {len(mdp.actions)}), or one whole-numbered action for each state"
        )
    bad = np.flatnonzero(~(pi >= 0) | ~np.isfinite(pi))
    if bad.size:
        raise ValueError(
            f"the policy takes action {mdp.actions[action[bad[0]]]} in state {mdp.states[number[bad[0]]]} with "
            f"probability {pi[bad[0]]}; probabilities must not be negative and must be finite"
        )
    sums = np.bincount(owner, weights=pi, minlength=states.size)
    wrong = np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)
    if wrong.size:
        worst = wrong[np.argmax(np.abs(sums[wrong] - 1))]
        raise ValueError(
            f"the policy's probabilities in state {mdp.states[states[worst]]} sum to {sums[worst]:.10g}, not 1; "
            + ("divide them by their sum" if sums[worst] > 0 else "give one of its actions a probability above 0")
        )
    return np.asarray(pi / sums[owner])


def _by_names(mdp: MDP, policy: Mapping[str, Any], own: Indices) -> Array:
    """Return probabilities over the pairs of a rank's own states from those by name."""
    action, owner = part_of(mdp.action), part_of(mdp.state)
    pi = np.zeros(action.size)
    states = {name: s for s, name in enumerate(mdp.states)}
    actions = {name: a for a, name in enumerate(mdp.actions)}
    place = {int(s): k for k, s in enumerate(own)}
    first = np.searchsorted(owner, np.arange(own.size + 1))
    for state, taken in policy.items():
        if state not in states:
            raise ValueError("the policy: " + no_such("state", str(state), mdp.states))
        if states[state] not in place:
            continue
        s = place[states[state]]
        offered = action[first[s] : first[s + 1]]
        if not isinstance(taken, (Mapping, str)):
            raise ValueError(
                f"the policy in state {state} is {taken!r}; give the name of an action, or probabilities by name"
            )
        for name, probability in (taken if isinstance(taken, Mapping) else {taken: 1.0}).items():
            if not isinstance(probability, Real):
                raise ValueError(
                    f"the policy takes action {name} in state {state} with probability {probability!r}; give a number"
                )
            if name not in actions:
                raise ValueError(f"the policy in state {state}: " + no_such("action", str(name), mdp.actions))
            if actions[name] not in offered:
                raise _not_offered(mdp, states[state], actions[name])
            pi[first[s] + int(np.searchsorted(offered, actions[name]))] = probability
    if missing := next((name for name in mdp.states if name not in policy), None):
        raise ValueError(f"the policy has no action for state {missing}; give one for each of the {len(states)} states")
    return pi


def _not_offered(mdp: MDP, state: int, action: int) -> ValueError:
    from cvxmdp.ranks.model import state_numbers

    name = mdp.actions[action] if 0 <= action < len(mdp.actions) else str(action)
    offered = ", ".join(mdp.actions[a] for a in part_of(mdp.action)[part_of(state_numbers(mdp)) == state])
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
