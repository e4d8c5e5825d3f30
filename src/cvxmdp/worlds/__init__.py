"""Ready-made models: each function returns an :class:`cvxmdp.MDP`."""

from cvxmdp.worlds.garnet import garnet
from cvxmdp.worlds.gridworld import gridworld, obstacle_cells

__all__ = ["garnet", "gridworld", "obstacle_cells"]
