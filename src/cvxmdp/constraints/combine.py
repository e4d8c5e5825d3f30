"""Any list of constraints is their intersection.

Linear constraints merge into one set with one small QP.  Each other constraint keeps a copy of the occupancy of its own
(a product space): the splitting then works on all copies at once, the prox of the dynamics sees their average, and each
set contributes its own normal vector to the certificate.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.constraints.base import Constraint, ConvexSet, Custom
from cvxmdp.constraints.bounds import Bounds
from cvxmdp.constraints.linear import Linear
from cvxmdp.mdp import MDP, Array


def bind(constraints: Sequence[Any], mdp: MDP) -> list[Constraint]:
    """Bind constraints to a model and give each a name of its own."""
    if not isinstance(constraints, Sequence):
        raise ValueError(f"subject_to must be a list of constraints, not {type(constraints).__name__}")
    bound: list[Constraint] = []
    taken: set[str] = set()
    for constraint in constraints:
        if hasattr(constraint, "bind") and not isinstance(constraint, type):
            item = constraint.bind(mdp)
        elif isinstance(constraint, ConvexSet) and not isinstance(constraint, type):
            item = Custom(constraint, mdp)
        else:
            raise ValueError(
                f"subject_to holds {_kind(constraint)}; give cm.Budget, cm.Linear, cm.Bounds, cm.NormBall or "
                "an object with project(point)"
            )
        name, count = item.name, 1
        while item.name in taken:
            count += 1
            item = copy.copy(item)  # the user's own object keeps its name
            item.name = f"{name} ({count})"
        taken.add(item.name)
        bound.append(item)
    return bound


def _kind(thing: Any) -> str:
    return f"the class {thing.__name__} itself" if isinstance(thing, type) else f"a {type(thing).__name__}"


class Intersection:
    """The constraints of a problem as blocks, each projected on its own copy of the occupancy."""

    def __init__(self, constraints: Sequence[Constraint], size: int) -> None:
        self.constraints = list(constraints)
        self.size = size
        linear = [c for c in self.constraints if isinstance(c, Linear)]
        self.linear = _merge(linear) if linear else None
        self._rows = np.cumsum([0, *(c.upper.size for c in linear)])
        others = [c for c in self.constraints if not isinstance(c, Linear)]
        self.blocks: list[Constraint] = ([self.linear] if self.linear else []) + others

    @property
    def flat(self) -> bool:
        """Whether every set is known to be a polyhedron."""
        return all(isinstance(block, (Linear, Bounds)) for block in self.blocks)

    def project(self, points: Array) -> Array:
        """Project each copy onto its block."""
        return np.stack([block.project(point) for block, point in zip(self.blocks, points, strict=True)])

    def duals(self, points: Array, projected: Array, scale: float) -> list[Array]:
        """Return one dual array for each constraint, in the order the user gave them."""
        of_block = [block.dual(y, z, scale) for block, y, z in zip(self.blocks, points, projected, strict=True)]
        return self.split(of_block)

    def no_duals(self) -> list[Array]:
        """Return duals whose normals are zero."""
        duals = []
        for constraint in self.constraints:
            if isinstance(constraint, Linear):
                duals.append(np.zeros(constraint.upper.size))
            else:
                inside = constraint.project(np.zeros(self.size))
                duals.append(constraint.dual(inside, inside, 0.0))
        return duals

    def split(self, of_block: Sequence[Array]) -> list[Array]:
        """Turn one dual array a block into one a constraint."""
        rest = iter(of_block)
        shares = iter(np.split(next(rest), self._rows[1:-1])) if self.linear else iter(())
        return [next(shares) if isinstance(c, Linear) else next(rest) for c in self.constraints]

    def normals(self, duals: Sequence[Array]) -> tuple[Array, float]:
        """Return the sum of all normals and of their largest values."""
        pairs = [c.normal(dual) for c, dual in zip(self.constraints, duals, strict=True)]
        return np.sum([u for u, _ in pairs], axis=0), float(sum(top for _, top in pairs))

    def stacked(self, duals: Sequence[Array]) -> Array:
        """Return one normal a block: the linear constraints' normals summed, the others' as they are."""
        normals = [c.normal(dual)[0] for c, dual in zip(self.constraints, duals, strict=True)]
        linear = [u for c, u in zip(self.constraints, normals, strict=True) if isinstance(c, Linear)]
        others = [u for c, u in zip(self.constraints, normals, strict=True) if not isinstance(c, Linear)]
        return np.stack(([np.sum(linear, axis=0)] if linear else []) + others)

    def relative(self, point: Array) -> float:
        """Return the worst violation free of units."""
        return max((c.relative(point) for c in self.constraints), default=0.0)

    def distance(self, point: Array) -> float:
        """Return the distance to the blocks, all copies counted."""
        return float(np.sqrt(sum(np.sum((point - b.project(point)) ** 2) for b in self.blocks)))


def _merge(members: Sequence[Linear]) -> Linear:
    if len(members) == 1:
        return members[0]
    all_sparse = all(sp.issparse(m.rows) for m in members)
    parts = [m.rows if all_sparse or not sp.issparse(m.rows) else m.rows.toarray() for m in members]
    rows = sp.vstack(parts, format="csr") if all_sparse else np.vstack(parts)
    upper, lower = (np.concatenate([getattr(m, side) for m in members]) for side in ("upper", "lower"))
    return Linear(rows, at_most=upper, at_least=lower)
