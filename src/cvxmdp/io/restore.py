"""Constraints and terms from what :meth:`cvxmdp.blocks.Block.stated` said of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.ball import Norm, NormBall
from cvxmdp.constraints.bounds import Bounds
from cvxmdp.constraints.entropy import Entropic, EntropicLimit
from cvxmdp.constraints.linear import Linear
from cvxmdp.constraints.robust import Ellipsoid, EllipsoidBudget
from cvxmdp.mdp import Indices
from cvxmdp.objectives.distance import DistanceTerm
from cvxmdp.objectives.entropy import EntropicTerm

Words = Mapping[str, Any]
Arrays = Mapping[str, Any]


def restore_constraint(words: Words, arrays: Arrays, state: Indices) -> Constraint | None:
    """Return a constraint; None for a user's own, which a file does not hold."""
    makers = {"linear": _linear, "bounds": _bounds, "ball": _ball, "entropic": _entropic, "ellipsoid": _ellipsoid}
    made: Constraint | None = _made(makers, words, arrays, state)
    return made


def restore_term(words: Words, arrays: Arrays, state: Indices) -> Term | None:
    """Return a term; None for a user's own, which a file does not hold."""
    made: Term | None = _made({"distance": _distance, "entropic": _entropic_term}, words, arrays, state)
    return made


def _made(makers: Mapping[str, Any], words: Words, arrays: Arrays, state: Indices) -> Any:
    kind = str(words.get("kind"))
    if kind == "custom":
        return None
    if kind not in makers:
        raise ValueError(f"a limit or term is of kind {str(kind)[:50]!r}, which is not known")
    try:
        return makers[kind](words, arrays, state)
    except (KeyError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"a limit or term of kind {kind!r} is not whole: {error}") from None


def _linear(words: Words, arrays: Arrays, _: Indices) -> Linear:
    rows = arrays["rows"] if "rows" in arrays else arrays["rows_shape"]
    out = Linear(rows, at_most=arrays["upper"], at_least=arrays["lower"])
    names = words["row_names"]
    out.labels = None if names is None else tuple(map(str, names))
    out.total = float(words["total"]) if "total" in words else None
    return out


def _bounds(_: Words, arrays: Arrays, __: Indices) -> Bounds:
    return Bounds(arrays["lower"], arrays["upper"])


def _ball(words: Words, arrays: Arrays, _: Indices) -> NormBall:
    return NormBall(arrays["center"], words["radius"], float(words["p"]), arrays.get("weights"))


def _entropic(words: Words, arrays: Arrays, state: Indices) -> EntropicLimit:
    function = Entropic(arrays["reference"], state if words["of"] == "states" else None)
    return EntropicLimit("", function, float(words["bound"]), float(words["sign"]))


def _ellipsoid(words: Words, arrays: Arrays, _: Indices) -> EllipsoidBudget:
    factors = "factors" in arrays
    errors = Ellipsoid(factors=arrays["factors"].T) if factors else Ellipsoid(arrays["matrix"])
    return EllipsoidBudget("", arrays["cost"], errors, float(words["at_most"]))


def _distance(words: Words, arrays: Arrays, _: Indices) -> Term:
    return DistanceTerm(str(words["name"]), arrays["center"], float(words["weight"]), Norm(float(words["p"])))


def _entropic_term(words: Words, arrays: Arrays, state: Indices) -> Term:
    function = Entropic(arrays["reference"], state if words["of"] == "states" else None)
    return EntropicTerm(str(words["name"]), function, float(words["weight"]), arrays.get("allowed"))
