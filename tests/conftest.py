"""A test that does not run proves nothing: the session fails if any was skipped or xfailed."""

import signal

import pytest
from hypothesis import settings

settings.register_profile("cvxmdp", deadline=None, derandomize=True)
settings.load_profile("cvxmdp")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in what it starts in the background


class NoSkips:
    """Registered as a plugin, because hooks of a conftest see only the reports of its own folder."""

    def __init__(self):
        self.not_run = []

    def pytest_runtest_logreport(self, report):
        if report.skipped:  # an expected failure is reported as skipped too
            self.not_run.append(report.nodeid)

    def pytest_collectreport(self, report):
        if report.skipped:
            self.not_run.append(report.nodeid)

    def pytest_sessionfinish(self, session):
        if self.not_run and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for nodeid in self.not_run:
            terminalreporter.write_line(f"FAILED: skipped or xfailed, which is not allowed: {nodeid}", red=True)


def pytest_configure(config):
    config.pluginmanager.register(NoSkips(), "no-skips")
