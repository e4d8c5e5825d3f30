"""A finite horizon: so many decisions are made, and each counts alike."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from cvxmdp.mdp import MDP
from cvxmdp.ranks.one_place import in_one_place
from cvxmdp.worlds.arguments import read_count


@in_one_place("make the model first, and scatter it then")
def finite_horizon(mdp: MDP, horizon: int) -> MDP:
    """Return the model in which ``horizon`` decisions are made, and costs are their sums, not discounted.

    Its states are those of the model at each stage ``t = 0, ..., horizon - 1``, named ``"name at t"``, so that a policy
    may depend on the time, and the state ``"end"``, where nothing costs anything.  It is discounted by a factor g of
    its own, ``horizon / (horizon + 1)``; since stages are states, costs of stage t are divided by their weight
    ``(1 - g) g^t``, and no discount is left in a value, a limit on a cost or a price.  Limits on visits, distances and
    entropies are of the weighted occupancies.

    Parameters
    ----------
    mdp : MDP
        The model.  Its own discount does not matter.
    horizon : int
        How many decisions are made, at least 1.

    Returns
    -------
    MDP
        With ``horizon * mdp.num_states + 1`` states.  A label means the states that have it, at any stage.

    Examples
    --------
    Ten periods at a queue, of which customers spend at most 15 waiting, taken together:

    >>> import cvxmdp as cm
    >>> mdp = cm.criteria.finite_horizon(cm.worlds.queue(capacity=5, start=2), horizon=10)
    >>> mdp
    MDP(61 states, 301 pairs, costs: power, delay, loss, discount 0.909090909091)
    >>> solution = cm.Problem(mdp, "power", [cm.Budget("delay", at_most=15.0)]).solve()
    >>> print(f"{solution.value:.3f}")
    2.192
    """
    horizon = read_count("horizon", horizon)
    P, S, L = sp.csr_array(mdp.transitions), mdp.num_states, mdp.num_pairs
    discount = horizon / (horizon + 1)
    stage = np.arange(horizon)[:, None]
    # From stage t to stage t + 1, and from the last one, whose rows of P lead beyond all stages, to the end.
    rows = sp.coo_array(P)
    t = np.repeat(np.arange(horizon - 1), rows.nnz)
    row, column = (np.tile(k, horizon - 1) + t * size for k, size in ((rows.coords[0], L), (rows.coords[1] + S, S)))
    last = np.arange((horizon - 1) * L, horizon * L + 1)
    transitions = sp.csr_array(
        (
            np.r_[np.tile(rows.data, horizon - 1), np.ones(last.size)],
            (np.r_[row, last], np.r_[column, np.full(last.size, horizon * S)]),
        ),
        shape=(horizon * L + 1, horizon * S + 1),
    )
    weights = (1 - discount) * discount ** np.arange(horizon)
    return MDP.from_pairs(
        np.r_[(stage * S + mdp.state).ravel(), horizon * S],
        np.r_[np.tile(mdp.action, horizon), 0],
        transitions,
        {name: np.r_[np.outer(1 / weights, cost).ravel(), 0.0] for name, cost in mdp.costs.items()},
        discount,
        np.r_[mdp.initial, np.zeros((horizon - 1) * S + 1)],
        [*(f"{name} at {t}" for t in range(horizon) for name in mdp.states), "end"],
        mdp.actions,
        {name: (stage * S + which).ravel() for name, which in mdp.labels.items()},
    )
