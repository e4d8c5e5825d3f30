"""Convex limits on how often each state and action is visited, one set a file."""

from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.base import ConvexSet
from cvxmdp.constraints.bounds import Bounds
from cvxmdp.constraints.linear import Budget, Linear

__all__ = ["Bounds", "Budget", "ConvexSet", "Linear", "NormBall"]
