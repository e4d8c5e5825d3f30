"""The epidemic: when to lock down, and how far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvxmdp.mdp import MDP, Indices
from cvxmdp.names import Formed
from cvxmdp.worlds.arguments import read_count, read_ladder, read_number
from cvxmdp.worlds.make import Rows, check_size, make
from cvxmdp.worlds.outcomes import Counts, transitions_of


def epidemic(
    population: int = 80,
    levels: Sequence[float] = (0.0, 0.3, 0.6, 0.9),
    *,
    discount: float = 0.999,
    contact: float = 0.25,
    recovery: float = 0.1,
    infected: int | None = None,
    beds: int | None = None,
    comm: Any = None,
) -> MDP:
    """Return an epidemic among people who are susceptible, infected or recovered.

    With ``s`` people susceptible and ``i`` infected of ``n``, somebody is infected at the rate
    ``contact * (1 - level) * s * i / n`` and somebody recovers at the rate ``recovery * i``; who has recovered
    stays so. A period is so short that at most one of these happens: the probabilities are the rates divided by
    the largest that their sum can be. Where nobody is infected only the first level is offered.

    The costs are ``"infections"``, the number of people infected; ``"lockdown"``, the level; and ``"beds"``, the
    number of people infected for whom there is no bed.

    Parameters
    ----------
    population : int
        Number of people ``n``, at least 1. There are ``(n + 1) * (n + 2) / 2`` states.
    levels : sequence of float
        The lockdown levels: shares of all contacts that are avoided, increasing, each between 0 and 1.
    discount : float
        Between 0 and 1, both excluded.
    contact, recovery : float
        Rates, above 0. One who is infected infects ``contact / recovery`` others when nobody is immune and nothing
        is done.
    infected : int, optional
        Number of people infected at the beginning, the others being susceptible. A twentieth of the population
        when not given, but at least 1.
    beds : int, optional
        Number of beds. A tenth of the population when not given, but at least 1.
    comm : communicator of mpi4py or petsc4py, or True, optional
        The ranks on which the model is to live, each of which makes its own states: see :func:`cvxmdp.scatter`.

    Returns
    -------
    MDP
        The model. State ``"susceptible 60, infected 5"`` says who is not recovered, and action ``"lockdown 0.3"``
        avoids 30 percent of the contacts.

    Examples
    --------
    >>> import cvxmdp as cm
    >>> mdp = cm.worlds.epidemic(population=20)
    >>> mdp
    MDP(231 states, 861 pairs, costs: infections, lockdown, beds, discount 0.999)
    >>> mdp.actions
    ('lockdown 0', 'lockdown 0.3', 'lockdown 0.6', 'lockdown 0.9')
    """
    people = read_count("population", population)
    levels = read_ladder("levels", levels)
    contact = read_number("contact", contact, least_out=True)
    recovery = read_number("recovery", recovery, least_out=True)
    infected = max(1, people // 20) if infected is None else read_count("infected", infected, 0)
    if infected > people:
        raise ValueError(f"infected is {infected}; it must be at most the population, {people}")
    beds = max(1, people // 10) if beds is None else read_count("beds", beds, 0)
    num_states = check_size("population", (people + 1) * (people + 2) // 2)
    counts = Counts(2, people)

    def rates(susceptible: Indices, ill: Indices, level: Any) -> tuple[Any, Any]:
        return contact * (1 - level) * susceptible * ill / people, recovery * ill

    # With as many ill, somebody is infected the sooner the more are susceptible: all who are not ill at the most.
    most = np.arange(people + 1)
    fastest = float(np.max(sum(rates(people - most, most, levels[0]))))

    def rows(states: Indices) -> Rows:
        who = counts.lists(states)
        own, action = np.nonzero((who[:, 1] > 0)[:, None] | (np.arange(len(levels)) == 0))
        susceptible, ill = who[own].T
        level = np.array(levels)[action]
        infects, recovers = rates(susceptible, ill, level)
        outcomes = [
            (infects / fastest, counts.moved(who, (-1, 1))[own]),
            (recovers / fastest, counts.moved(who, (0, -1))[own]),
            (np.maximum(1 - (infects + recovers) / fastest, 0.0), states[own]),
        ]
        costs = {
            "infections": ill.astype(np.float64),
            "lockdown": level,
            "beds": np.maximum(ill - beds, 0).astype(np.float64),
        }
        return Rows(states[own], action, transitions_of(outcomes, own.size, num_states), costs)

    return make(
        rows,
        Formed("susceptible {}, infected {}", num_states, lambda state: counts.lists(state).T),
        comm,
        discount=discount,
        start=int(counts.numbers(np.array([[people - infected, infected]]))[0]),
        actions=[f"lockdown {avoided:g}" for avoided in levels],
    )
