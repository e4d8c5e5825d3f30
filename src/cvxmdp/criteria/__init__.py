"""Other criteria of optimality: each function turns a model into one whose discounted costs are what is asked for."""

from cvxmdp.criteria.finite_horizon import finite_horizon

__all__ = ["finite_horizon"]
