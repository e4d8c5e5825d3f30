"""Plan in known, finite Markov decision processes under convex constraints, with proofs.

>>> import cvxmdp as cm
>>> mdp = cm.worlds.gridworld(size=5)
>>> problem = cm.Problem(mdp, minimize="time", subject_to=[cm.Budget("collision", at_most=0.01)])
>>> solution = problem.solve()
>>> solution.status.name
'OPTIMAL'
>>> solution.certificate.check(problem)
"""

from cvxmdp import criteria, worlds
from cvxmdp.certificate import Certificate, CertificateError
from cvxmdp.constraints import (
    Bounds,
    Box,
    Budget,
    ConvexSet,
    Ellipsoid,
    Entropy,
    KLBall,
    Linear,
    NormBall,
    RobustBudget,
    StateBounds,
    Vertices,
)
from cvxmdp.engines.conic import Conic
from cvxmdp.engines.dual import Dual
from cvxmdp.engines.interior import Interior
from cvxmdp.engines.mixing import Mixing
from cvxmdp.engines.newton import Newton
from cvxmdp.engines.path import Path
from cvxmdp.engines.splitting import Splitting
from cvxmdp.examine import Examination
from cvxmdp.io.formats import load
from cvxmdp.io.gymnasium import play
from cvxmdp.io.solution import load_solution
from cvxmdp.mdp import MDP, Evaluation
from cvxmdp.objectives import KL, ConvexTerm, Distance, NegativeEntropy
from cvxmdp.policy import Policy
from cvxmdp.prices import PriceRange
from cvxmdp.problem import Problem
from cvxmdp.ranks.model import gather, scatter
from cvxmdp.review import Review
from cvxmdp.simulate import Simulation
from cvxmdp.solution import Infeasibility, Relaxation, Solution, Stats
from cvxmdp.status import Progress, Status
from cvxmdp.sweep import Pareto, Range, Sweep

__version__ = "0.1.0"

__all__ = [
    "KL",
    "MDP",
    "Bounds",
    "Box",
    "Budget",
    "Certificate",
    "CertificateError",
    "Conic",
    "ConvexSet",
    "ConvexTerm",
    "Distance",
    "Dual",
    "Ellipsoid",
    "Entropy",
    "Evaluation",
    "Examination",
    "Infeasibility",
    "Interior",
    "KLBall",
    "Linear",
    "Mixing",
    "NegativeEntropy",
    "Newton",
    "NormBall",
    "Pareto",
    "Path",
    "Policy",
    "PriceRange",
    "Problem",
    "Progress",
    "Range",
    "Relaxation",
    "Review",
    "RobustBudget",
    "Simulation",
    "Solution",
    "Splitting",
    "StateBounds",
    "Stats",
    "Status",
    "Sweep",
    "Vertices",
    "criteria",
    "gather",
    "load",
    "load_solution",
    "play",
    "scatter",
    "worlds",
]
