"""Models that Storm builds from its own PRISM examples, in plain arrays and by Storm's own account of them."""

import os
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import stormpy
import stormpy.examples.files

CHAINS = ["brp-16-2", "die", "leader-3-5", "negativevals", "test_conditional"]
PROCESSES = [
    "SmallPrismTest", "coin2-2", "csma2-2", "die_c1", "die_selection", "firewire3-0.5", "leader3", "maze_2",
    "maze_2_multigoal", "multiobjective1", "scheduler_generation", "slipgrid", "tiny_rewards", "two_dice", "wlan0-2-2",
]  # fmt: skip
EXAMPLES = CHAINS + PROCESSES


@dataclass
class Account:
    """What Storm says of a model, choice by choice in Storm's order."""

    state: np.ndarray
    transitions: sp.csr_array
    rewards: dict
    labels: dict
    first: list
    actions: list
    """The set of names of each choice."""
    valuations: list


def build(name):
    folder, ending = ("dtmc", "pm") if name in CHAINS else ("mdp", "nm")
    path = os.path.join(stormpy.examples.files.testfile_dir, folder, f"{name}.{ending}")
    return stormpy.build_model(stormpy.parse_prism_program(path), options=stormpy.BuilderOptions(build_full=True))


def account(model):
    """Read a model of Storm through its interface."""
    matrix = model.transition_matrix
    rows = [[(entry.column, entry.value) for entry in matrix.get_row(i)] for i in range(matrix.nr_rows)]
    P = sp.csr_array(
        (
            [p for row in rows for _, p in row],
            [t for row in rows for t, _ in row],
            np.cumsum([0] + [len(row) for row in rows]),
        ),
        shape=(matrix.nr_rows, model.nr_states),
    )
    starts = [matrix.get_row_group_start(s) for s in range(model.nr_states)] + [matrix.nr_rows]
    state = np.repeat(np.arange(model.nr_states), np.diff(starts))
    rewards = {}
    for name, reward in model.reward_models.items():
        total = np.zeros(matrix.nr_rows)
        if reward.has_state_rewards:
            total += np.array(reward.state_rewards)[state]
        if reward.has_state_action_rewards:
            total += np.array(reward.state_action_rewards)
        if reward.has_transition_rewards:
            table = reward.transition_rewards
            total += [sum(e.value * P[i, e.column] for e in table.get_row(i)) for i in range(matrix.nr_rows)]
        rewards[name] = total
    labels = {label: [s for s in model.labeling.get_states(label)] for label in model.labeling.get_labels()}
    labels.pop("init")
    named = model.has_choice_labeling()
    actions = [set(model.choice_labeling.get_labels_of_choice(i)) if named else set() for i in range(matrix.nr_rows)]
    valued = model.has_state_valuations()
    valuations = [model.state_valuations.to_string(s) if valued else None for s in range(model.nr_states)]
    return Account(state, P, rewards, labels, list(model.initial_states), actions, valuations)


def cheapest(said, cost, discount, sign=1):
    """Return the least discounted total from each state (of ``sign`` times the cost), by value iteration."""
    values = np.zeros(said.transitions.shape[1])
    starts = np.flatnonzero(np.diff(said.state, prepend=-1))
    while True:
        better = np.minimum.reduceat(sign * cost + discount * (said.transitions @ values), starts)
        if np.abs(better - values).max() <= 1e-11 * (1 - discount) * max(1, np.abs(better).max()):
            return better
        values = better


def pairs(said, mdp):
    """Return the pair of a model that each of Storm's choices became, found by the names written on them."""
    seen = {}
    found = []
    nameless = not any(said.actions)
    for state, names in zip(said.state, said.actions, strict=True):
        name = "".join(names)
        seen[state, name] = seen.get((state, name), 0) + 1
        k = seen[state, name]
        action = str(k - 1) if nameless else name if name and k == 1 else f"{name}#{k}"
        found.append((int(state), action))
    place = {(int(s), mdp.actions[a]): i for i, (s, a) in enumerate(zip(mdp.state, mdp.action, strict=True))}
    return np.array([place[pair] for pair in found])
