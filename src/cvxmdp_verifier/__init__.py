"""An independent verifier of saved models and solutions.

It shares no code with the library that writes them and needs NumPy alone.  Every claim of a solution is recomputed from
the data of the model in extended precision, with a rigorous allowance for rounding that is counted against the
claim: what is accepted is proven, and the first claim that is not is named.
"""

from cvxmdp_verifier.check import verify, verify_files
from cvxmdp_verifier.errors import Refused
from cvxmdp_verifier.files import read
from cvxmdp_verifier.report import Report

__all__ = ["Refused", "Report", "read", "verify", "verify_files"]
