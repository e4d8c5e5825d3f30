"""Look for files that ``cvxmdp.load_solution`` answers with anything but a solution or a ValueError.

    python tests/fuzz/fuzz_solution.py tests/fuzz/corpus -max_total_time=300 -rss_limit_mb=2048

See fuzz_model.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_model import attempt, fuzz


def try_solution(data: bytes) -> None:
    """Load a solution and say it in words; a ValueError that names the file is an answer too."""
    import cvxmdp as cm

    attempt(lambda path: str(cm.load_solution(path)), data)


if __name__ == "__main__":
    fuzz(try_solution)
