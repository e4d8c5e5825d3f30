"""Convex terms of the objective, beside an expected cost."""

from cvxmdp.objectives.base import ConvexTerm
from cvxmdp.objectives.distance import Distance
from cvxmdp.objectives.entropy import KL, NegativeEntropy

__all__ = ["KL", "ConvexTerm", "Distance", "NegativeEntropy"]
