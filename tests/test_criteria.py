"""Another criterion is another model: a finite horizon, as a model whose states are stages."""

import numpy as np
import pytest
import scipy.optimize as opt
import scipy.sparse as sp

import cvxmdp as cm


def over_horizon(mdp: cm.MDP, horizon: int) -> cm.MDP:
    """Return the model in which ``horizon`` decisions are made, and each of them counts alike.

    After the last one nothing costs anything.  The normalized discounted cost of a stage t has the factor
    ``(1 - discount) discount^t``, which costs are divided by: a cost of the new model is the undiscounted sum over the
    horizon.
    """
    P, S, L, gamma = sp.csr_array(mdp.transitions), mdp.num_states, mdp.num_pairs, mdp.discount
    stages = sp.block_array(
        [[P if j == i + 1 else sp.csr_array((L, S)) for j in range(horizon)] for i in range(horizon)]
    )
    at_end = np.r_[np.zeros((horizon - 1) * L), np.ones(L), 1.0]
    transitions = sp.hstack([sp.vstack([stages, sp.csr_array((1, horizon * S))]), at_end[:, None]]).tocsr()
    weights = 1 / ((1 - gamma) * gamma ** np.arange(horizon))
    return cm.MDP.from_pairs(
        state=np.r_[(np.arange(horizon)[:, None] * S + mdp.state).ravel(), horizon * S],
        action=np.r_[np.tile(mdp.action, horizon), 0],
        transitions=transitions,
        costs={name: np.r_[np.outer(weights, cost).ravel(), 0.0] for name, cost in mdp.costs.items()},
        discount=gamma,
        initial=np.r_[mdp.initial, np.zeros((horizon - 1) * S + 1)],
    )


@pytest.mark.parametrize("discount", [0.5, 0.9])
def test_a_finite_horizon_under_a_budget_is_the_linear_program_over_its_stages(discount):
    mdp, horizon = cm.worlds.queue(5, discount=discount), 6
    P, S, L = sp.csr_array(mdp.transitions).toarray(), mdp.num_states, mdp.num_pairs
    at = (mdp.state[:, None] == np.arange(S)).astype(float)
    flow = np.zeros((horizon * S, horizon * L))
    for t in range(horizon):
        flow[t * S : (t + 1) * S, t * L : (t + 1) * L] = at.T
        if t:
            flow[t * S : (t + 1) * S, (t - 1) * L : t * L] = -P.T
    start = np.r_[mdp.initial, np.zeros((horizon - 1) * S)]
    delay, power = (np.tile(mdp.costs[name], horizon) for name in ("delay", "power"))
    free = opt.linprog(delay, A_eq=flow, b_eq=start)
    limit = 0.5 * float(power @ free.x)
    found = opt.linprog(delay, power[None], [limit], flow, start)
    assert found.fun > free.fun + 1e-3  # the budget binds
    solution = cm.Problem(over_horizon(mdp, horizon), "delay", [cm.Budget("power", at_most=limit)]).solve()
    assert solution.status is cm.Status.OPTIMAL
    assert solution.value == pytest.approx(found.fun, rel=1e-4)
