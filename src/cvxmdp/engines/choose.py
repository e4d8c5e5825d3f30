"""Which engine serves a problem."""

from __future__ import annotations

from collections.abc import Sequence

from cvxmdp.constraints.base import Constraint
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.mixing import Mixing
from cvxmdp.engines.splitting import Splitting

FEW_ROWS = 100


def choose_engine(method: str | Splitting | Mixing, constraints: Sequence[Constraint]) -> Splitting | Mixing:
    """Choose an engine by name, or by the constraints.

    "auto" takes mixing when all constraints are linear with at most a hundred rows in total: there some mixture of few
    deterministic policies is optimal and is found exactly.  Everything else goes to the splitting.
    """
    if method == "splitting" or isinstance(method, Splitting):
        return Splitting() if isinstance(method, str) else method
    rows = sum(c.upper.size for c in constraints if isinstance(c, Linear))
    all_linear = all(isinstance(c, Linear) for c in constraints)
    if method == "mixing" or isinstance(method, Mixing):
        if not all_linear:
            raise ValueError('method "mixing" needs linear constraints only; use "auto" or "splitting"')
        return Mixing() if isinstance(method, str) else method
    if method == "auto":
        return Mixing() if all_linear and rows <= FEW_ROWS else Splitting()
    raise ValueError(f'method is {method!r}; it must be "auto", "splitting", "mixing", cm.Splitting() or cm.Mixing()')
