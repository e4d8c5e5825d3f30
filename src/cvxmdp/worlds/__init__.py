"""Ready-made models: each function returns an :class:`cvxmdp.MDP`."""

from cvxmdp.worlds.admission import admission
from cvxmdp.worlds.disk_drive import disk_drive
from cvxmdp.worlds.epidemic import epidemic
from cvxmdp.worlds.garnet import garnet
from cvxmdp.worlds.gridworld import gridworld, obstacle_cells
from cvxmdp.worlds.inventory import inventory
from cvxmdp.worlds.lake import lake
from cvxmdp.worlds.maintenance import maintenance
from cvxmdp.worlds.perishable import perishable
from cvxmdp.worlds.queue import queue
from cvxmdp.worlds.tandem import tandem

__all__ = [
    "admission",
    "disk_drive",
    "epidemic",
    "garnet",
    "gridworld",
    "inventory",
    "lake",
    "maintenance",
    "obstacle_cells",
    "perishable",
    "queue",
    "tandem",
]
