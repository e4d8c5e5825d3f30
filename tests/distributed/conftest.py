"""Run by ``mpiexec -n N pytest tests/distributed``: every rank runs every test, and one of them reports."""

import os
import sys

import pytest
from mpi4py import MPI

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
EXPECTED = int(os.environ.get("CVXMDP_RANKS", "0"))


def pytest_sessionstart(session):
    # A launcher of another MPI starts worlds of one rank each, in which all tests would pass and test nothing.
    if SIZE != EXPECTED:
        print(f"there are {SIZE} ranks; CVXMDP_RANKS says {EXPECTED}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(3)


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if RANK > 0:
        config.pluginmanager.unregister(name="terminalreporter")


def pytest_runtest_logreport(report):
    if report.failed:  # the others would wait for this rank for ever
        print(f"rank {RANK}: {report.nodeid}\n{report.longreprtext}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
