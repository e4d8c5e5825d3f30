"""Commands that a launcher of MPI has started on several ranks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from cvxmdp.ranks.world import Ranks

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
"""Where launchers say how many ranks they have started: Open MPI; MPICH, Intel MPI and Slurm's PMI-2; MVAPICH."""
NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
"""Where they say which one this is."""
PATIENCE = 10.0
"""Seconds after which what went wrong here did not go wrong on all ranks: reading takes them about the same time."""

WAITS = "odls_base_sigkill_timeout"
"""What Open MPI calls the seconds that its launcher gives ranks before it kills them: one where nothing is said."""
PAIRS_A_SECOND = 400_000
"""Pairs of state and action whose answer is written in a second: half of what was seen on a busy machine."""

_worlds: list[Any] = []


def launched() -> int:
    """Return how many ranks a launcher has started; one where there was none.  MPI is not asked."""
    given = [os.environ[name] for name in SIZES if name in os.environ]
    if not given and "PMIX_RANK" in os.environ:  # PMIx does not say it, but Slurm, which starts ranks by it, does
        given = [os.environ.get("SLURM_STEP_NUM_TASKS", "1")]
    return max((int(text) for text in given if text.isdecimal()), default=1)


def world() -> Ranks | None:
    """Return the ranks on which this command runs, or None where it runs in one place."""
    return _worlds[0] if _worlds else None


def warning(num_pairs: int) -> str | None:
    """Return what is to be known of Ctrl-C, where the launcher leaves too little time to write an answer after it."""
    if num_pairs < PAIRS_A_SECOND or "OMPI_COMM_WORLD_SIZE" not in os.environ or f"OMPI_MCA_{WAITS}" in os.environ:
        return None
    return (
        f"cvxmdp: on Ctrl-C Open MPI kills ranks after a second, too soon to write an answer of {num_pairs} pairs; "
        f"start them by mpiexec --mca {WAITS} {max(10, num_pairs // PAIRS_A_SECOND)}, or end them by kill -INT "
        f"{os.getpid()}"
    )


def run(command: Callable[[], tuple[int, str | None]], bad_input: int) -> NoReturn:
    """Run a command on all ranks, of which the first one prints; what goes wrong on one ends all.

    Parameters
    ----------
    command : function
        Returns what to exit with, and what went wrong.
    bad_input : int
        What to exit with where there is no MPI to run it with.
    """
    try:
        ranks = _found()
    except (ImportError, ValueError) as error:
        if all(os.environ.get(name, "0") == "0" for name in NUMBERS):
            print(f"cvxmdp: {error}", file=sys.stderr)
        sys.exit(bad_input)
    _worlds[:] = [ranks]
    met = ranks.comm.Dup()
    errors = sys.stderr
    try:
        if ranks.rank == 0:
            code, wrong = command()
        else:
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                code, wrong = command()
    except BaseException:
        import traceback

        traceback.print_exc(file=errors)
        errors.flush()
        ranks.comm.Abort(1)
    if ranks.rank == 0:
        sys.stdout.flush()
    agreed = _all_here(met, PATIENCE if wrong is not None else None)
    if wrong is not None and (ranks.rank == 0 or not agreed):
        print(wrong, file=errors, flush=True)
    if not agreed:
        ranks.comm.Abort(code)
    # A launcher ends all ranks once one of them has ended with another code than zero.
    met.Barrier()
    sys.exit(code)


def _found() -> Ranks:
    try:
        import petsc4py  # noqa: F401
        from mpi4py import MPI
    except ImportError:
        raise ImportError(
            "solving on several ranks needs petsc4py and mpi4py: pip install 'cvxmdp[petsc]', see docs/scaling.md"
        ) from None
    from cvxmdp.ranks.world import Ranks

    count, size = launched(), MPI.COMM_WORLD.Get_size()
    if size != count:
        raise ValueError(
            f"the launcher has started {count} ranks, but the MPI of mpi4py sees {size}; use the launcher of that MPI, "
            f"{MPI.Get_library_version().split(',')[0].strip()}"
        )
    return Ranks(MPI.COMM_WORLD)


def _all_here(comm: Any, seconds: float | None) -> bool:
    """Whether all ranks come to the end of the command; the first to come waits no longer than it is told."""
    request = comm.Ibarrier()
    if seconds is None:
        request.Wait()
        return True
    end = time.monotonic() + seconds
    while not request.Test():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
