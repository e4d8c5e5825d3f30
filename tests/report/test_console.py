"""Progress in logs and notebooks, and within phases that have nothing to tell."""

import logging
import sys
import threading
import time
from types import ModuleType, SimpleNamespace

import pytest

import cvxmdp as cm
from cvxmdp import phases
from cvxmdp.report import console


def problem():
    mdp = cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)])
    return cm.Problem(mdp, "time", [cm.Budget("collision", at_most=1e-5)])


def wait_until(true):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_log_has_a_last_line_with_what_was_found(caplog):
    caplog.set_level(logging.INFO, "cvxmdp")
    solution = problem().solve(verbose=True)
    assert f"value {solution.value:.6g}" in caplog.messages[-1]
    assert "pass" in caplog.messages[-1]
    assert len(caplog.messages) <= 1 + solution.stats.seconds["total"]


def test_without_verbose_nothing_is_logged(caplog):
    caplog.set_level(logging.INFO, "cvxmdp")
    problem().solve()
    assert caplog.messages == []


def test_a_long_phase_is_named_while_it_lasts(caplog, monkeypatch):
    monkeypatch.setattr(console, "TICK", 0.01)
    monkeypatch.setattr(console, "LOG_SECONDS", 0.02)
    caplog.set_level(logging.INFO, "cvxmdp")
    with console.live_progress(prefix="first, "):
        phases.begin("a long factor")
        wait_until(lambda: any("first, a long factor, " in line for line in caplog.messages))


def test_a_solve_names_its_phases():
    heard = []
    with phases.heard_by(heard.append):
        problem().solve()
    assert heard[0] == "policy iteration without the limits"
    assert any(phase.startswith("method ") for phase in heard[1:-1])
    assert heard[-1] == "proving what the policy does"
    heard.clear()
    mdp = cm.worlds.gridworld(size=4)
    with phases.heard_by(heard.append):
        cm.Problem(mdp, "time", [cm.Budget("time", at_most=1e-3)]).solve()
    assert "no policy obeys; finding out which limits conflict" in heard


def test_after_a_log_no_thread_is_left(caplog):
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), console.live_progress():
        raise ZeroDivisionError
    assert threading.active_count() == before
    assert caplog.messages == []


def test_lines_get_rarer_in_a_long_solve(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "cvxmdp")
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    log = console._Log()
    for second in range(3601):
        now = float(second)
        log(f"{second} s", False)
    assert caplog.messages[:3] == ["1 s", "2 s", "3 s"]
    assert 40 <= len(caplog.messages) <= 100


def test_a_notebook_sees_one_line_that_changes(monkeypatch):
    seen = []

    def display(data, raw, display_id):
        assert raw
        assert display_id is True
        return SimpleNamespace(update=lambda data, raw: seen.append(data["text/plain"]))

    class ZMQInteractiveShell:
        pass

    shell, module, displays = ZMQInteractiveShell(), ModuleType("IPython"), ModuleType("IPython.display")
    module.get_ipython, displays.display = lambda: shell, display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    solution = problem().solve(verbose=True)
    assert f"value {solution.value:.6g}" in seen[-1]
