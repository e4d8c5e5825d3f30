"""A seed of this run of the tests alone, so that some of them meet what no run has met before.

Such tests have it in their names; with CVXMDP_FRESH_SEED set to it they meet the same again.
"""

import os
import secrets

SEED = int(os.environ.get("CVXMDP_FRESH_SEED") or secrets.randbelow(2**31))
