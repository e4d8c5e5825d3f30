"""Plan in known, finite Markov decision processes under convex constraints, with proofs.

>>> import cvxmdp as cm
>>> mdp = cm.worlds.gridworld(size=5)
>>> problem = cm.Problem(mdp, minimize="time", subject_to=[cm.Budget("collision", at_most=0.01)])
>>> solution = problem.solve()
>>> solution.status.name
'OPTIMAL'
>>> solution.certificate.check(problem)
"""

from cvxmdp import worlds
from cvxmdp.certificate import Certificate, CertificateError
from cvxmdp.constraints import Bounds, Budget, ConvexSet, Linear, NormBall
from cvxmdp.engines.mixing import Mixing
from cvxmdp.engines.splitting import Splitting
from cvxmdp.io.npz import load, load_solution
from cvxmdp.mdp import MDP, Evaluation
from cvxmdp.policy import Policy
from cvxmdp.problem import Problem
from cvxmdp.solution import Infeasibility, Solution, Stats
from cvxmdp.status import Progress, Status

__version__ = "0.1.0"

__all__ = [
    "MDP",
    "Bounds",
    "Budget",
    "Certificate",
    "CertificateError",
    "ConvexSet",
    "Evaluation",
    "Infeasibility",
    "Linear",
    "Mixing",
    "NormBall",
    "Policy",
    "Problem",
    "Progress",
    "Solution",
    "Splitting",
    "Stats",
    "Status",
    "load",
    "load_solution",
    "worlds",
]
