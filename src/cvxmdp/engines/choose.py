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


def choose_engine(method: str | Engine, constraints: Sequence[Constraint], terms: Sequence[Term]) -> Engine:
    """Choose an engine by name, or by the constraints.

    "auto" takes mixing when all constraints are linear with at most a hundred rows in total and the objective is a
    cost: there some mixture of few deterministic policies is optimal and is found exactly.  Sets and terms that a user
    brings with nothing but a projection or a prox go to the splitting, everything else to the Newton method.
    """
    linear = not terms and all(isinstance(c, Linear) for c in constraints)
    known = not any(isinstance(block, (Custom, CustomTerm)) for block in (*constraints, *terms))
    if isinstance(method, (Splitting, Mixing, Newton)):
        engine: Engine = method
    elif method == "auto":
        rows = sum(c.upper.size for c in constraints if isinstance(c, Linear))
        engine = Mixing() if linear and rows <= FEW_ROWS else Newton() if known else Splitting()
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
    if isinstance(engine, Newton) and not known:
        raise ValueError('method "newton" does not know your own sets or terms; use "auto" or "splitting"')
    return engine
