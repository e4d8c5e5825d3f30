"""Which engine serves a problem."""

from __future__ import annotations

from collections.abc import Sequence

from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.base import Custom
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.mixing import Mixing
from cvxmdp.engines.newton import Newton
from cvxmdp.engines.splitting import Splitting
from cvxmdp.objectives.base import CustomTerm

Engine = Splitting | Mixing | Newton

FEW_ROWS = 100


OWN_PAIRS = 200
"""Up to here the derivative of a user's own projection is found by moving each entry of its point."""


def choose_engine(method: str | Engine, constraints: Sequence[Constraint], terms: Sequence[Term], pairs: int) -> Engine:
    """Choose an engine by name, or by the problem.

    "auto" takes mixing when all constraints are linear with at most a hundred rows in total and the objective is a
    cost: there some mixture of few deterministic policies is optimal and is found exactly.  Everything else goes to the
    Newton method, but for a user's own sets and terms in models of more than 200 pairs: they go to the splitting, which
    needs nothing of them but their projection or prox.
    """
    linear = not terms and all(isinstance(c, Linear) for c in constraints)
    own = any(isinstance(block, (Custom, CustomTerm)) for block in (*constraints, *terms))
    if isinstance(method, (Splitting, Mixing, Newton)):
        engine: Engine = method
    elif method == "auto":
        rows = sum(c.upper.size for c in constraints if isinstance(c, Linear))
        engine = Mixing() if linear and rows <= FEW_ROWS else Splitting() if own and pairs > OWN_PAIRS else Newton()
    else:
        named: dict[str, Engine] = {"splitting": Splitting(), "mixing": Mixing(), "newton": Newton()}
        if method not in named:
            raise ValueError(
                f'method is {method!r}; it must be "auto", "splitting", "mixing", "newton", or an instance of '
                "cm.Splitting, cm.Mixing or cm.Newton"
            )
        engine = named[method]
    if isinstance(engine, Mixing) and not linear:
        raise ValueError('method "mixing" needs linear constraints and a cost alone; use "auto" or "splitting"')
    return engine
