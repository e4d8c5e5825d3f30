"""Compiled elimination of states, see src/native/elimination.c."""

from typing import Any

from cvxmdp.mdp import Array

class Elimination:
    """The pattern of the factors of a model's policies."""

    def __init__(self, model: Any) -> None: ...
    def factors(self, pi: Array) -> Factors: ...

class Factors:
    """Factors of one policy; solves are in place."""

    def values(self, c: Array) -> None: ...
    def visits(self, b: Array) -> None: ...
