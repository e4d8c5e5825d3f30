"""Small models of every kind, limits that bind on them, and the answers in one place."""

import numpy as np
import scipy.sparse as sp

import cvxmdp as cm


def ragged(states=41):
    """Up to three actions a state, three successors each."""
    rng = np.random.default_rng(5)
    offered = 1 + rng.integers(0, 3, size=states)
    state = np.repeat(np.arange(states), offered)
    action = np.concatenate([np.arange(n) for n in offered])
    P = np.zeros((state.size, states))
    for row in P:
        row[rng.choice(states, 3, replace=False)] = rng.dirichlet(np.ones(3))
    costs = {"cost": rng.uniform(size=state.size), "risk": rng.uniform(size=state.size)}
    return cm.MDP.from_pairs(state, action, sp.csr_array(P), costs, discount=0.9)


def garnet(branching):
    mdp = cm.worlds.garnet(51, 3, branching, seed=1)
    risk = np.random.default_rng(2).uniform(size=mdp.num_pairs)
    costs = {"cost": mdp.costs["cost"], "risk": risk}
    return cm.MDP.from_pairs(mdp.state, mdp.action, mdp.transitions, costs, mdp.discount)


def two_states():
    stay, go = [[0.5, 0.5], [0.2, 0.8]], [[1.0, 0.0], [0.7, 0.3]]
    return cm.MDP([stay, go], {"cost": [[1.0, 2.0], [0.0, 3.0]], "risk": [[0.0, 1.0], [2.0, 0.0]]}, discount=0.9)


def named(mdp, cost, risk):
    return cm.MDP.from_pairs(
        mdp.state, mdp.action, mdp.transitions, {"cost": mdp.cost(cost), "risk": mdp.cost(risk)}, mdp.discount,
        mdp.initial, mdp.states, mdp.actions,
    )  # fmt: skip


MODELS = {
    "grid": lambda: named(cm.worlds.gridworld(size=7), "time", "collision"),  # 49 states, an odd number
    "queue": lambda: named(cm.worlds.queue(capacity=30, discount=0.99), "power", "delay"),
    "garnet": lambda: garnet(0.1),
    "dense": lambda: garnet(0.5),
    "ragged": ragged,
    "two states": two_states,  # fewer than three ranks
}


def limits(mdp):
    """Limits halfway between what the best policy does and what is possible, by name."""
    best, least = cm.Problem(mdp, "cost").solve(), cm.Problem(mdp, "risk").solve()
    even = mdp.evaluate(1 / np.bincount(mdp.state)[mdp.state]).occupancy
    visits = np.bincount(mdp.state, even)
    top = int(np.argmax(best.visits))
    d = np.maximum(best.occupancy, 1e-300)
    halfway = least.value + 0.5 * (best.costs["risk"] - least.value)
    return {
        "nothing": [],
        "budget": [cm.Budget("risk", at_most=halfway)],
        "ball": [cm.NormBall(even, 0.5 * np.linalg.norm(even - best.occupancy))],
        "weighted ball": [
            cm.NormBall(even, 0.5 * np.linalg.norm(even - best.occupancy), weights=1 + np.arange(even.size) / even.size)
        ],
        "entropy": [cm.Entropy(0.5 * (_entropy(even) + _entropy(best.occupancy)))],
        "entropy of states": [cm.Entropy(0.5 * (_entropy(visits) + _entropy(best.visits)), of="states")],
        "KL ball": [cm.KLBall(even, 0.3 * np.sum(d * np.log(d / even)))],
        "bounds": [cm.Bounds(upper=0.5 * (best.occupancy.max() + even.max()))],
        "a cap": [cm.StateBounds(upper={top: 0.5 * (best.visits[top] + visits[top])})],
        "impossible": [
            cm.Budget("risk", at_most=least.value - 0.1 * (abs(least.value) + 0.01)),
            cm.Budget("cost", at_most=best.value + 1),
        ],
    }


def _entropy(x):
    x = x[x > 0]
    return float(-x @ np.log(x))
