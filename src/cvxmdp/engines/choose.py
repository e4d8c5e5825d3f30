"""Which engine serves a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.base import Custom
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.conic import Conic, conic
from cvxmdp.engines.dual import Dual, curved
from cvxmdp.engines.interior import Interior
from cvxmdp.engines.mixing import Mixing
from cvxmdp.engines.newton import Newton
from cvxmdp.engines.splitting import Splitting
from cvxmdp.mdp import MDP
from cvxmdp.objectives.base import CustomTerm

Engine = Splitting | Mixing | Interior | Dual | Newton | Conic

FEW_ROWS, MANY_ROWS, STATES_PER_ROW = 20, 100, 3
"""Mixing is the faster one up to 20 rows, and up to 100 in models that have so many states a row."""
OWN_PAIRS = 200
"""Up to here the derivative of a user's own projection is found by moving each entry of its point."""
INTERIOR_STATES = 6000
"""Up to here twenty dense factors of the states' matrix are worth their time."""
CONIC_PAIRS = 50_000
"""Up to here a conic program is worth its time and memory."""
NEWTON_STATES = 3000
"""Up to here a factor in every Newton step is worth its time and memory."""


def choose_engines(
    method: str | Engine, constraints: Sequence[Constraint], terms: Sequence[Term], mdp: MDP
) -> list[Engine]:
    """Choose an engine by name, or by the problem, and those to go on with where it gives up.

    ==============================================================  =============================================
    "auto" takes                                                    for
    ==============================================================  =============================================
    mixing: a mixture of few deterministic policies is optimal      a cost under at most 20 linear rows, or 100 in
                                                                    models of three states a row or more
    interior points: twenty or so Newton steps, whatever the rows   a cost under more linear rows, up to 6000 states
    dual: Newton's method with one price beside the values          a cost under one Euclidean ball, entropy of
                                                                    pairs or KL ball
    splitting: the paper's method, which converges fast there       a cost under several Euclidean balls
    Newton: any other mixture of sets and terms                     all else, up to 3000 states
    splitting: it needs no more than projections                    all else, and own sets from 200 pairs on
    ==============================================================  =============================================

    Up to 3000 states and 50 000 pairs a conic program follows where these crawl: on the border of what is possible,
    where hardly any policy obeys or the limits are missed by a hair.  Sets that have no cones are left to Newton.
    """
    linear = not terms and all(isinstance(c, Linear) for c in constraints)
    one_curved = not terms and len(constraints) == 1 and curved(constraints[0]) is not None
    own = any(isinstance(block, (Custom, CustomTerm)) for block in (*constraints, *terms))
    balls = not terms and all(isinstance(c, NormBall) and c.norm.p == 2 for c in constraints)
    large = mdp.num_states > NEWTON_STATES or (own and mdp.num_pairs > OWN_PAIRS)
    last: list[Engine] = [Conic()] if conic(constraints) and not large and mdp.num_pairs <= CONIC_PAIRS else []
    first: Engine = Splitting() if balls or large else Newton()
    general: list[Engine] = [first, *last, *([Newton()] if last and terms else [])]
    if method == "auto":
        rows = sum(c.upper.size for c in constraints if isinstance(c, Linear))
        interior: list[Engine] = [Interior()] if mdp.num_states <= INTERIOR_STATES else []
        if linear and rows <= FEW_ROWS:
            return [Mixing(), *last]
        if linear and rows <= min(MANY_ROWS, mdp.num_states // STATES_PER_ROW):
            return [Mixing(), *interior, *last]
        if linear and interior:
            return [*interior, *(last or general)]
        return [Dual(), *general] if one_curved else general
    named: dict[Any, Engine] = {e.name: e for e in (Splitting(), Mixing(), Interior(), Dual(), Newton(), Conic())}
    if not isinstance(method, Engine) and method not in named:
        raise ValueError(
            f'method is {method!r}; it must be "auto", '
            + ", ".join(f'"{name}"' for name in named)
            + f", or an instance of {', '.join('cm.' + type(e).__name__ for e in named.values())}"
        )
    engine = method if isinstance(method, Engine) else named[method]
    if isinstance(engine, (Mixing, Interior)) and not linear:
        raise ValueError(f'method "{engine.name}" needs linear constraints and a cost alone; use "auto" or "splitting"')
    if isinstance(engine, Dual) and not one_curved:
        raise ValueError(
            'method "dual" needs a cost under one constraint: a ball in the 2-norm, an entropy of pairs or a KL ball; '
            'use "auto"'
        )
    if isinstance(engine, Conic) and (terms or not conic(constraints)):
        raise ValueError('method "conic" needs a cost alone under sets that have cones; use "auto" or "newton"')
    return [engine, *general] if isinstance(engine, (Dual, Interior)) else [engine]
