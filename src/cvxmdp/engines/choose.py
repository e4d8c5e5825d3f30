"""Which engine serves a problem."""

from __future__ import annotations

from collections.abc import Sequence

from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.base import Custom
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.mixing import Mixing
from cvxmdp.engines.newton import Newton
from cvxmdp.engines.splitting import Splitting
from cvxmdp.mdp import MDP
from cvxmdp.objectives.base import CustomTerm

Engine = Splitting | Mixing | Newton

FEW_ROWS, MANY_ROWS = 20, 100
"""Up to 20 rows mixing is faster than Newton; up to 100 it is the better choice where Newton is too large."""
OWN_PAIRS = 200
"""Up to here the derivative of a user's own projection is found by moving each entry of its point."""
NEWTON_STATES = 3000
"""Up to here a factor in every Newton step is worth its time and memory."""


def choose_engine(method: str | Engine, constraints: Sequence[Constraint], terms: Sequence[Term], mdp: MDP) -> Engine:
    """Choose an engine by name, or by the problem.

    ==============================================================  =============================================
    "auto" takes                                                    for
    ==============================================================  =============================================
    mixing: a mixture of few deterministic policies is optimal      a cost under at most 20 linear rows, or 100 in
                                                                    models of more than 3000 states
    splitting: the paper's method, which converges fast there       a cost under Euclidean balls
    Newton: any other mixture of sets and terms                     all else, up to 3000 states
    splitting: it needs no more than projections                    all else, and own sets from 200 pairs on
    ==============================================================  =============================================
    """
    linear = not terms and all(isinstance(c, Linear) for c in constraints)
    own = any(isinstance(block, (Custom, CustomTerm)) for block in (*constraints, *terms))
    if isinstance(method, (Splitting, Mixing, Newton)):
        engine: Engine = method
    elif method == "auto":
        rows = sum(c.upper.size for c in constraints if isinstance(c, Linear))
        balls = not terms and all(isinstance(c, NormBall) and c.norm.p == 2 for c in constraints)
        large = mdp.num_states > NEWTON_STATES or (own and mdp.num_pairs > OWN_PAIRS)
        few = rows <= (FEW_ROWS if mdp.num_states <= NEWTON_STATES else MANY_ROWS)
        engine = Mixing() if linear and few else Splitting() if balls or large else Newton()
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
