"""Convex limits on how often each state and action is visited, one set a file."""

from cvxmdp.constraints.ball import NormBall
from cvxmdp.constraints.bounds import Bounds
from cvxmdp.constraints.entropy import Entropy, KLBall
from cvxmdp.constraints.linear import Budget, Linear
from cvxmdp.constraints.own import ConvexSet
from cvxmdp.constraints.robust import Box, Ellipsoid, RobustBudget, Vertices
from cvxmdp.constraints.states import StateBounds

__all__ = [
    "Bounds",
    "Box",
    "Budget",
    "ConvexSet",
    "Ellipsoid",
    "Entropy",
    "KLBall",
    "Linear",
    "NormBall",
    "RobustBudget",
    "StateBounds",
    "Vertices",
]
