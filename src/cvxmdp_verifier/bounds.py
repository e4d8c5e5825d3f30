"""What dual records prove: lower bounds on costs, and that no policy obeys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvxmdp_verifier.extended import EPS, LD, Close, Real, dot, extended
from cvxmdp_verifier.fields import Arrays
from cvxmdp_verifier.limits import Limit, Normal
from cvxmdp_verifier.model import Model
from cvxmdp_verifier.terms import Slope, Term


class Dual:
    """The dual record ``name`` of a solution: a potential and what its dual arrays prove of limits and terms."""

    def __init__(
        self, model: Model, arrays: Arrays, name: str, limits: Sequence[Limit], terms: Sequence[Term] = ()
    ) -> None:
        self.potential = extended(arrays.floats(f"{name}:potential", (model.num_states,)))
        sizes = [limit.dual_size() for limit in limits] + [term.dual_size() for term in terms]
        duals = [extended(arrays.floats(f"{name}:dual:{i}", (size,))) for i, size in enumerate(sizes)]
        self.normals = [limit.normal(dual) for limit, dual in zip(limits, duals, strict=False)]
        self.slopes = [term.slope(dual) for term, dual in zip(terms, duals[len(limits) :], strict=True)]


def least(
    model: Model,
    potential: Real,
    parts: Sequence[Normal | Slope],
    cost: Real | None = None,
    grown: Sequence[Close] = (),
) -> Real:
    """Return a proven lower bound of ``cost'd + sum (u'd - top)`` over all occupancies d, the tops grown by ``grown``.

    Occupancies add up to one, so that the least entry of ``cost + sum u + M V`` with ``M = discount P - Xi`` and
    ``(1 - discount) initial'V`` is such a bound, for every V.  A constant added to V changes nothing, and the
    nearer V is to zero the less is lost to rounding.
    """
    middle = np.sort(potential)[potential.size // 2]
    # Where values near zero are meant, as those of rare events, they must stay near zero; both are bounds.
    values = [potential, potential - middle] if abs(middle) > np.ptp(potential) else [potential]
    return max(_least(model, h, parts, cost, grown) for h in values)


def _least(model: Model, h: Real, parts: Sequence[Normal | Slope], cost: Real | None, grown: Sequence[Close]) -> Real:
    """Return the bound of :func:`least` at V = h."""
    first, count, lowest = model.at_start(h), len(parts) + 8, LD(np.inf)
    for pairs, ahead in model.ahead(h):
        here = h[model.state[pairs]]
        reduced, size, error = ahead.value - here, np.abs(ahead.value) + np.abs(here), ahead.error
        added = [part.at(pairs) for part in parts]
        for u, off in added + ([] if cost is None else [Close(extended(cost[pairs]), LD(0))]):
            reduced = reduced + u
            size = size + np.abs(u)
            error = error + off
        lowest = np.minimum(lowest, np.min(Close(reduced, error + count * EPS * size).low))
    tops = [part.top for part in parts] + [one.high for one in grown]
    result = first.low + lowest - sum(tops, LD(0))
    result -= (len(tops) + 8) * EPS * (abs(first.low) + abs(lowest) + sum((abs(top) for top in tops), LD(0)))
    # Whatever overflowed proves nothing.
    return result if np.isfinite(result) else LD(-np.inf)


def shifted(parts: Sequence[Normal], shifts: Sequence[Real]) -> list[Close]:
    """Return by how much the tops grow where each set is moved by its displacement."""
    grown = []
    for part, shift in zip(parts, shifts, strict=True):
        there = extended(shift)
        inner = dot(part.u.value, there)
        grown.append(Close(inner.value, inner.error + dot(np.abs(there), part.u.error).high))
    return grown
