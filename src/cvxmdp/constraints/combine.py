"""Any list of constraints is their intersection, and any list of convex terms their sum.

Linear constraints merge into one set with one small QP.  Each other constraint, and each term, keeps a copy of the
occupancy of its own (a product space): the splitting then works on all copies at once, the prox of the dynamics sees
their average, and each block contributes its own vector to the certificate.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cvxmdp.blocks import Block, Constraint, Spread, Term
from cvxmdp.constraints.base import ranked
from cvxmdp.constraints.bounds import Bounds
from cvxmdp.constraints.linear import Linear
from cvxmdp.constraints.own import ConvexSet, Custom
from cvxmdp.mdp import MDP, Array
from cvxmdp.ranks.rows import SparseRows, stacked
from cvxmdp.ranks.scattered import as_array
from cvxmdp.reading import frozen


def bind(constraints: Sequence[Any], mdp: MDP, terms: Sequence[Term] = ()) -> list[Constraint]:
    """Bind constraints to a model, add those that the terms imply, and give each a name of its own."""
    if not isinstance(constraints, Sequence):
        raise ValueError(f"subject_to must be a list of constraints, not {type(constraints).__name__}")
    bound: list[Constraint] = []
    taken: set[str] = set()
    for constraint in (*constraints, *_domains(terms)):
        if hasattr(constraint, "bind") and not isinstance(constraint, type):
            item = constraint.bind(mdp)
        elif isinstance(constraint, ConvexSet) and not isinstance(constraint, type):
            item = Custom(constraint, mdp)
        else:
            raise ValueError(
                f"subject_to holds {_kind(constraint)}; give a constraint such as cm.Budget or cm.NormBall, or an "
                "object with project(point)"
            )
        if not isinstance(item, Constraint):
            raise ValueError(f"subject_to holds {_kind(constraint)}, which is no constraint; is it to be minimized?")
        if item is not constraint:
            ranked(item, constraint)
        name, count = item.name, 1
        while item.name in taken:
            count += 1
            item = copy.copy(item)  # the user's own object keeps its name
            item.name = f"{name} ({count})"
        taken.add(item.name)
        bound.append(item)
    return bound


def _domains(terms: Sequence[Term]) -> Iterator[Bounds]:
    """Where a term is infinite, its pairs may not be visited: that is a constraint, and may be one too many."""
    for term in terms:
        if term.allowed is not None and not np.all(term.allowed):
            yield Bounds(upper=np.where(term.allowed, np.inf, 0.0), name=f"reference of {term.name}")


def _kind(thing: Any) -> str:
    return f"the class {thing.__name__} itself" if isinstance(thing, type) else f"a {type(thing).__name__}"


class Blocks:
    """The constraints and convex terms of a problem as blocks, each with a prox on its own copy of the occupancy."""

    def __init__(self, constraints: Sequence[Constraint], terms: Sequence[Term], cost: Array) -> None:
        self.constraints, self.terms = list(constraints), list(terms)
        self.members: list[Block] = [*self.constraints, *self.terms]
        """What duals are listed for, in this order."""
        self.size, self._cost = cost.size, cost
        self._linear: list[Any] = [c for c in self.constraints if c.is_rows]
        self._rows = np.cumsum([0, *(c.parts for c in self._linear)])

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, where all is linear; else None."""
        return int(self._rows[-1]) if len(self._linear) == len(self.members) else None

    @cached_property
    def linear(self) -> Linear | None:
        """All linear constraints in one."""
        return _merge(self._linear) if self._linear else None

    @cached_property
    def sets(self) -> list[Constraint]:
        """The linear constraints in one, and the others."""
        others = [c for c in self.constraints if not c.is_rows]
        return [*([self.linear] if self.linear is not None else []), *others]

    @cached_property
    def blocks(self) -> list[Block]:
        """The sets and the terms."""
        return [*self.sets, *self.terms]

    @property
    def rows(self) -> Linear:
        """The linear constraints, where there are no others."""
        assert self.linear is not None
        return self.linear

    @property
    def soft_rows(self) -> Any:
        """The linear rows whose half squared distance is added to the cost, where that is all there is; else None."""
        soft = self.terms[0].soft if len(self.members) == len(self.terms) == 1 else None
        return soft if soft is not None and soft.is_rows else None

    @property
    def smooth(self) -> bool:
        """Whether all members are smooth."""
        return bool(self.members) and all(member.smooth for member in self.members)

    @property
    def flat(self) -> bool:
        """Whether every block is known to be a polyhedron."""
        return not self.terms and all(constraint.flat for constraint in self.constraints)

    @property
    def allowed(self) -> npt.NDArray[np.bool_] | None:
        """Which pairs may be visited at all; None where all may be."""
        masks = [mask for block in self.members if (mask := block.allowed) is not None]
        return reduce(np.logical_and, masks) if masks else None

    def prox(self, points: Array, step: float) -> Array:
        """Take the prox of each block on its copy."""
        if len(self.blocks) == 1:
            return self.blocks[0].prox(points[0], step)[None]
        return np.stack([block.prox(point, step) for block, point in zip(self.blocks, points, strict=True)])

    def project(self, point: Array) -> Array:
        """Project one point onto each set; one row a set."""
        return np.stack([block.project(point) for block in self.sets])

    def duals(self, points: Array, proxed: Array, scale: float) -> list[Array]:
        """Return one dual array for each member, in the order the user gave them."""
        of_block = [block.dual(y, z, scale) for block, y, z in zip(self.blocks, points, proxed, strict=True)]
        return self.split(of_block)

    def set_duals(self, point: Array) -> list[Array]:
        """Return one dual array for each constraint: of the step from its projection to the point."""
        return self.split([block.dual(point, block.project(point), 1.0) for block in self.sets], self.constraints)

    def no_duals(self) -> list[Array]:
        """Return duals of the constraints whose normals are zero, and some duals of the terms."""
        even = np.full_like(self._cost, 1 / self.size)
        return [c.idle() for c in self.constraints] + [t.tangent(even) for t in self.terms]

    def contradiction(self) -> list[Array] | None:
        """Return duals that prove one of the sets empty, whatever the policy, or None."""
        if all(c.contains_zero for c in self._linear):  # so do all of them together
            sets: Sequence[Constraint] = [c for c in self.constraints if not c.is_rows]
        else:
            sets = self.sets
        for empty in sets:
            found = empty.contradiction()
            if found is not None:
                return self.split([found if s is empty else s.idle() for s in self.sets], self.constraints)
        return None

    def split(self, of_block: Sequence[Array], members: Sequence[Block] | None = None) -> list[Array]:
        """Turn one dual array a block into one a member."""
        rest = iter(of_block)
        shares = iter(np.split(next(rest), self._rows[1:-1])) if self._linear else iter(())
        return [next(shares) if m.is_rows else next(rest) for m in (members or self.members)]

    def gathered(self, duals: Sequence[Array]) -> list[Array]:
        """Turn one dual array a constraint into one a set."""
        linear = [dual for c, dual in zip(self.constraints, duals, strict=True) if c.is_rows]
        others = [dual for c, dual in zip(self.constraints, duals, strict=True) if not c.is_rows]
        return [*([np.concatenate(linear)] if linear else []), *others]

    def moved(self, ways: Array) -> list[Constraint]:
        """Return the constraints moved by one vector a set."""
        rest = iter(ways)
        of_rows = next(rest) if self._linear else None
        return [c.moved(of_rows if c.is_rows and of_rows is not None else next(rest)) for c in self.constraints]

    def explicit(self, duals: Sequence[Array]) -> list[Array]:
        """Return duals that mean the same to everybody, however exactly they compute."""
        return [member.explicit(dual) for member, dual in zip(self._named(duals), duals, strict=True)]

    def magnitudes(self, duals: Sequence[Array]) -> tuple[Array, float]:
        """Return the sums of all vectors' and of all conjugates' magnitudes."""
        entries, top = np.zeros_like(self._cost), 0.0
        for member, dual in zip(self._named(duals), duals, strict=True):
            mine, size = member.magnitude(dual)
            entries += as_array(mine, dtype=np.float64)
            top += size
        return entries, top

    def normals(self, duals: Sequence[Array]) -> tuple[Array, float, float]:
        """Return the sum of all vectors, in an array of its own, of their conjugates, and what rounding may add up to.

        The last is a multiple of eps.  Where there are no more duals than constraints, it is of the constraints alone.
        """
        u, top, size = None, 0.0, 0.0
        for member, dual in zip(self._named(duals), duals, strict=True):
            entries, of_top = member.magnitude(dual)
            terms = dual.size if member.is_rows else self.size  # that a conjugate is a sum of, at most
            size += 10 * float(np.max(entries, initial=0.0)) + (terms + 10) * of_top
            del entries  # a long array
            vector, conjugate = member.normal(dual)
            top += conjugate
            if u is None:
                u = vector.copy() if np.may_share_memory(vector, dual) else vector
            else:
                u += vector
        return np.zeros_like(self._cost) if u is None else u, top, size

    def stacked(self, duals: Sequence[Array]) -> Array:
        """Return one vector a block: the linear constraints' summed, the others' as they are."""
        named = self._named(duals)
        vectors = [m.normal(dual)[0] for m, dual in zip(named, duals, strict=True)]
        linear = [u for m, u in zip(named, vectors, strict=True) if m.is_rows]
        others = [u for m, u in zip(named, vectors, strict=True) if not m.is_rows]
        return np.stack(([reduce(np.add, linear)] if linear else []) + others)

    def _named(self, duals: Sequence[Array]) -> Sequence[Block]:
        return self.constraints if len(duals) == len(self.constraints) else self.members

    def value(self, point: Array) -> float:
        """Return the sum of the terms."""
        return float(sum(term.value(point) for term in self.terms))

    def size_of_value(self, point: Array) -> float:
        """Return the sum of the terms' sizes."""
        return float(sum(term.size(point) for term in self.terms))

    def relative(self, point: Array, spread: Spread | None = None) -> float:
        """Return the worst violation free of units, within a spread of the point."""
        return max((c.relative(point, spread) for c in self.constraints), default=0.0)

    def distance(self, point: Array) -> float:
        """Return the distance to the sets, all copies counted."""
        return float(np.sqrt(sum(np.sum((point - b.project(point)) ** 2) for b in self.sets)))


def relative_ease(constraints: Sequence[Constraint], duals: Sequence[Array]) -> float:
    """By how much relaxing all limits relatively lowers the margin of a proof."""
    return sum(c.ease(dual, relative=True) for c, dual in zip(constraints, duals, strict=True))


def _merge(members: Sequence[Linear]) -> Linear:
    if len(members) == 1:
        return members[0]
    parts = [m.rows for m in members]
    if any(isinstance(part, SparseRows) for part in parts):
        rows: Any = stacked(parts)
    else:
        rows = sp.vstack(parts, format="csr") if any(sp.issparse(part) for part in parts) else frozen(np.vstack(parts))
    upper, lower = (np.concatenate([getattr(m, side) for m in members]) for side in ("upper", "lower"))
    return Linear(rows, at_most=upper, at_least=lower)
