"""A solution as a frame of pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cvxmdp.problem import Problem
    from cvxmdp.reading import Indices
    from cvxmdp.solution import Solution


def solution_frame(solution: Solution, problem: Problem | None = None) -> Any:
    """Make a frame as :meth:`cvxmdp.Solution.to_frame` says."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError('frames need pandas; install it with: pip install "cvxmdp[table]"') from error
    policy = solution.policy
    columns: dict[str, Any] = {
        # As objects: pandas' own texts hold no half characters, as a name may.
        "state": pd.Series(_named(policy.states, policy.state), dtype=object),
        "action": pd.Series(_named(policy.actions, policy.action), dtype=object),
        "probability": policy.probabilities,
        "occupancy": solution.occupancy,
    }
    known = problem if problem is not None else solution.problem
    for name, cost in known.mdp.costs.items() if known is not None else ():
        column = name
        while column in columns:
            column = f"cost {column}"
        columns[column] = cost
    return pd.DataFrame(columns)


def _named(names: Sequence[str], numbers: Indices) -> Any:
    return np.array(names, dtype=object)[numbers]
