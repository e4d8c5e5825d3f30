"""What was proven, in words and numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np

WIDTH = 80


def at_least(x: Any, digits: int = 9) -> str:
    """Write a lower bound; its last digit is rounded down, so that what is written is proven too.

    Examples
    --------
    >>> at_least(0.66666666666), at_most(0.66666666666)
    ('0.666666666', '0.666666667')
    """
    low = float(x)
    return _rounded(np.nextafter(low, -np.inf) if low > x else low, ROUND_FLOOR, digits)


def at_most(x: Any, digits: int = 9) -> str:
    """Write an upper bound, rounded up."""
    high = float(x)
    return _rounded(np.nextafter(high, np.inf) if high < x else high, ROUND_CEILING, digits)


def _rounded(x: float, way: str, digits: int) -> str:
    if not np.isfinite(x):
        return f"{x:g}"
    return f"{Context(prec=digits, rounding=way).create_decimal(Decimal(float(x))).normalize():g}"


@dataclass(frozen=True)
class Report:
    """What a verifier has proven of a solution.

    Attributes
    ----------
    status : str
        The status that the solution claims, and that was proven as far as it claims anything.
    tolerance : float
        The relative tolerance it is proven to.
    value, value_error : float
        What the policy costs, and a proven bound on how far that is from the truth.
    bound : float or None
        What no policy that obeys undercuts; None where none obeys.
    gap : float or None
        A proven bound of the relative gap.
    costs, cost_errors : dict
        Every cost of the model under the policy, and proven bounds on the errors.
    violations : dict
        By how much each limit is exceeded at most.
    margin, least : float or None
        For an infeasible problem: what its proof leaves over, and by how many times its size some limit is exceeded at
        least.
    sentences : tuple of str
        All of it in words.  ``str(report)`` has them as paragraphs of at most 80 columns.
    """

    status: str
    tolerance: float
    value: float
    value_error: float
    bound: float | None
    gap: float | None
    costs: Mapping[str, float]
    cost_errors: Mapping[str, float]
    violations: Mapping[str, float]
    margin: float | None
    least: float | None
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(textwrap.fill(sentence, WIDTH, subsequent_indent="  ") for sentence in self.sentences)
