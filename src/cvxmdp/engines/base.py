"""What every engine is: settings, the problems it takes, and its algorithm, which yields proposals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cvxmdp.blocks import Constraint, Term
from cvxmdp.constraints.combine import Blocks
from cvxmdp.dynamics.base import Dynamics
from cvxmdp.engines.mixture import Columns
from cvxmdp.engines.presolve import Unconstrained
from cvxmdp.engines.prover import Bound, Candidate
from cvxmdp.mdp import MDP, Array
from cvxmdp.status import Status


@dataclass(frozen=True, eq=False)
class Start:
    """Where to begin: an occupancy and duals, as of a similar problem, and the value that prices the duals."""

    occupancy: Array
    duals: list[Array]
    V: Array


@dataclass(frozen=True, eq=False)
class Task:
    """What an engine is given: a problem over pairs, and what is known of it."""

    mdp: MDP
    dynamics: Dynamics
    c: Array
    blocks: Blocks
    tolerance: float
    deadline: float
    """On the clock ``time.perf_counter``, for long work within a step: between proposals the driver looks at it."""
    unconstrained: Unconstrained
    """The best policy without limits."""
    best_now: Callable[[], Candidate]
    """The best policy so far; it is not held, since another may take its place."""
    start: Start | None
    columns: Columns
    """Deterministic policies that were met so far in the model."""

    @property
    def best(self) -> Candidate:
        """The best policy so far."""
        return self.best_now()


@dataclass(frozen=True, eq=False)
class Proposal:
    """What an engine has after one step of its algorithm.  Arrays are made only where they are asked for."""

    occupancy: Callable[[], Array] | None = None
    """Of a policy: what would be returned if the solve ended now."""
    duals: Callable[[], list[Array]] | None = None
    """One array for each constraint and term."""
    value: Callable[[], Array] | None = None
    """A value V near the one that prices the duals."""
    residual: float = np.nan
    """What is left to do, as the engine measures it."""
    ready: bool = False
    """Whether it looks good enough to be judged."""
    priced: float | None = None
    """To which accuracy the duals are to be priced at any rate."""
    suspect: bool = False
    """Whether the duals look like a proof that no policy obeys."""
    said: str | None = None
    """What was done so far, in a user's words, where that is not what the engine says of itself."""
    otherwise: Status | None = None
    """How the solve ends where this, an engine's last word, proves nothing."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What became of a proposal."""

    judged: Candidate | None
    priced: Bound | None
    missing: float
    """The relative gap of the best policy so far, or its violation while none obeys."""

    @property
    def candidate(self) -> Candidate:
        """The policy of a proposal that was ready, with what it really does."""
        assert self.judged is not None
        return self.judged

    @property
    def bound(self) -> Bound:
        """What the duals prove that were to be priced."""
        assert self.priced is not None
        return self.priced


Proposals = Generator[Proposal, Answer, None]


@dataclass(frozen=True)
class Engine(ABC):
    """A way to seek an answer, with its settings.

    Parameters
    ----------
    evaluation : {"auto", "direct", "iterative"}
        How linear systems of policies are solved, see :func:`cvxmdp.dynamics.plan.plan`.
    """

    evaluation: str = field(default="auto", kw_only=True)

    name: ClassVar[str]
    said: ClassVar[str]
    """What was done, in a user's words; ``{steps}`` stands for the number of proposals."""
    most_passes: ClassVar[int]
    """How many proposals it adds to what a solve may take, where nobody set a limit."""
    threads_from: ClassVar[float] = 0
    """States from which on BLAS may take more than one thread."""
    persists: ClassVar[bool] = False
    """Whether it is worth a second, longer try where all have given up."""
    slow_to_obey: ClassVar[bool] = False
    """Whether the least distance to the limits finds a policy that obeys sooner, where any will do."""
    on_ranks: ClassVar[bool] = False
    """Whether it needs no more than products and sums, which several ranks make together."""
    helped: ClassVar[bool] = False
    """Whether others go on where it gives up, although it was asked for by name."""

    def needs(self, constraints: Sequence[Constraint], terms: Sequence[Term]) -> str | None:
        """Say what it needs that a problem does not have, and what else to use; None where it takes the problem."""
        return None

    @property
    def open_ended(self) -> bool:
        """Whether others may find out for it whether a policy obeys; else its own tests end the solve."""
        return True

    @abstractmethod
    def proposals(self, task: Task) -> Proposals:
        """Yield a proposal after each step, as long as steps lead anywhere; each is answered."""


def needs_rows(constraints: Sequence[Constraint], terms: Sequence[Term]) -> str | None:
    """What :meth:`Engine.needs` says of engines for a cost under linear limits, which may give way."""
    soft = not constraints and len(terms) == 1 and terms[0].soft is not None and terms[0].soft.is_rows
    if soft or (not terms and all(c.is_rows for c in constraints)):
        return None
    return 'linear constraints and a cost alone; use "auto" or "splitting"'
