"""Which engine serves a problem."""

from __future__ import annotations

from collections.abc import Sequence

from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.base import Custom
from cvxmdp.constraints.linear import Linear
from cvxmdp.engines.dual import Dual, curved
from cvxmdp.engines.interior import Interior
from cvxmdp.engines.mixing import Mixing
from cvxmdp.engines.newton import Newton
from cvxmdp.engines.splitting import Splitting
from cvxmdp.mdp import MDP
from cvxmdp.objectives.base import CustomTerm

Engine = Splitting | Mixing | Interior | Dual | Newton

FEW_ROWS, MANY_ROWS = 20, 100
"""Up to 20 rows mixing is faster than Newton; up to 100 it is the better choice where Newton is too large."""
OWN_PAIRS = 200
"""Up to here the derivative of a user's own projection is found by moving each entry of its point."""
INTERIOR_STATES = 6000
"""Up to here twenty dense factors of the states' matrix are worth their time."""
NEWTON_STATES = 3000
"""Up to here a factor in every Newton step is worth its time and memory."""


def choose_engines(
    method: str | Engine, constraints: Sequence[Constraint], terms: Sequence[Term], mdp: MDP
) -> list[Engine]:
    """Choose an engine by name, or by the problem, and one to go on with where it gives up.

    ==============================================================  =============================================
    "auto" takes                                                    for
    ==============================================================  =============================================
    mixing: a mixture of few deterministic policies is optimal      a cost under at most 20 linear rows, or 100 in
                                                                    models of more than 3000 states
    interior points: twenty or so Newton steps, whatever the rows   a cost under more linear rows, up to 6000 states
    dual: Newton's method with one price beside the values          a cost under one Euclidean ball, entropy of
                                                                    pairs or KL ball
    splitting: the paper's method, which converges fast there       a cost under several Euclidean balls
    Newton: any other mixture of sets and terms                     all else, up to 3000 states
    splitting: it needs no more than projections                    all else, and own sets from 200 pairs on
    ==============================================================  =============================================

    The dual and the interior point method give up where no policy obeys; splitting or Newton, by the end of the table,
    then finds the nearest policy and the proof.
    """
    linear = not terms and all(isinstance(c, Linear) for c in constraints)
    one_curved = not terms and len(constraints) == 1 and curved(constraints[0]) is not None
    own = any(isinstance(block, (Custom, CustomTerm)) for block in (*constraints, *terms))
    balls = not terms and all(isinstance(c, NormBall) and c.norm.p == 2 for c in constraints)
    large = mdp.num_states > NEWTON_STATES or (own and mdp.num_pairs > OWN_PAIRS)
    general: Engine = Splitting() if balls or large else Newton()
    if isinstance(method, Engine):
        engine: Engine = method
    elif method == "auto":
        rows = sum(c.upper.size for c in constraints if isinstance(c, Linear))
        few = rows <= (FEW_ROWS if mdp.num_states <= NEWTON_STATES else MANY_ROWS)
        many = linear and mdp.num_states <= INTERIOR_STATES
        engine = Mixing() if linear and few else Interior() if many else Dual() if one_curved else general
    else:
        named: dict[str, Engine] = {
            engine.name: engine for engine in (Splitting(), Mixing(), Interior(), Dual(), Newton())
        }
        if method not in named:
            raise ValueError(
                f'method is {method!r}; it must be "auto", "splitting", "mixing", "interior", "dual", "newton", or an '
                "instance of cm.Splitting, cm.Mixing, cm.Interior, cm.Dual or cm.Newton"
            )
        engine = named[method]
    if isinstance(engine, (Mixing, Interior)) and not linear:
        raise ValueError(f'method "{engine.name}" needs linear constraints and a cost alone; use "auto" or "splitting"')
    if isinstance(engine, Dual) and not one_curved:
        raise ValueError(
            'method "dual" needs a cost under one constraint: a ball in the 2-norm, an entropy of pairs or a KL ball; '
            'use "auto"'
        )
    return [engine, general] if isinstance(engine, (Dual, Interior)) else [engine]
