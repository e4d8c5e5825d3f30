"""Ctrl-C at any moment of a solve returns a Solution; benchmarks/interrupts.py measures how soon."""

import os
import signal
import threading
import time

import interrupts as benchmark
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp import interrupts
from cvxmdp import problem as problem_module
from cvxmdp.dynamics import elimination


@pytest.mark.parametrize("name", ["mixing", "newton", "conic", "splitting"])
def test_ctrl_c_at_any_moment_returns_a_solution(name):
    """Past bugs: a SystemError from a compiled kernel, and Clarabel, which did not hear of it for seconds."""
    found = benchmark.moments(name, 5, seed=7)
    assert not [moment for moment in found if moment["said"] not in benchmark.STATUSES]


def press(progress=None):
    os.kill(os.getpid(), signal.SIGINT)


def problem():
    return cm.Problem(cm.worlds.gridworld(size=12), "time", [cm.Budget("collision", at_most=1e-3)])


def test_ctrl_c_is_a_status_with_a_policy_and_pythons_own_again_afterwards():
    solution = problem().solve(method="splitting", callback=press)
    assert solution.status is cm.Status.INTERRUPTED
    np.testing.assert_allclose(np.bincount(solution.policy.state, solution.policy.probabilities), 1.0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert problem().solve().status is cm.Status.OPTIMAL  # the flag is down again
    with pytest.raises(KeyboardInterrupt):
        press()


def test_a_second_ctrl_c_is_like_the_first():
    def twice(progress):
        press()
        press()

    assert problem().solve(method="splitting", callback=twice).status is cm.Status.INTERRUPTED


def test_a_handler_of_the_users_own_is_left_alone():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        solution = problem().solve(callback=press)
    finally:
        signal.signal(signal.SIGINT, before)
    assert solution.status is cm.Status.OPTIMAL
    assert heard


def test_a_solve_within_a_solve_is_interrupted_with_it():
    inner = []

    def solve_another(progress):
        inner.append(problem().solve(method="splitting", callback=press))

    assert problem().solve(method="splitting", callback=solve_another).status is cm.Status.INTERRUPTED
    assert inner[0].status is cm.Status.INTERRUPTED


def test_solves_in_other_threads_go_on():
    found = []
    with interrupts.flagged():
        press()
        assert interrupts.requested()
        thread = threading.Thread(target=lambda: found.append((interrupts.requested(), problem().solve().status)))
        thread.start()
        thread.join()
    assert found == [(False, cm.Status.OPTIMAL)]


def test_deadlines_are_over_once_ctrl_c_is_pressed():
    with interrupts.flagged():
        assert not interrupts.over(np.inf)
        assert interrupts.over(0.0)
        press()
        assert interrupts.over(np.inf)
        assert not interrupts.late()
        with pytest.raises(KeyboardInterrupt):
            interrupts.leave()
        interrupts.leave()
    assert not interrupts.requested()


def test_long_work_of_compiled_code_is_left_behind():
    with interrupts.flagged():
        assert interrupts.patiently(lambda: 3) == 3
        with pytest.raises(LookupError):
            interrupts.patiently(lambda: {}["nothing"])
        started = time.perf_counter()
        press()
        with pytest.raises(KeyboardInterrupt):
            interrupts.patiently(lambda: time.sleep(60))
        assert time.perf_counter() - started < 60


def test_inner_work_is_late_once_the_time_of_its_own_thread_is_over():
    elsewhere = []
    with interrupts.until(time.perf_counter() - 2 * interrupts.GRACE):
        assert interrupts.late()
        thread = threading.Thread(target=lambda: elsewhere.append(interrupts.late()))
        thread.start()
        thread.join()
    assert elsewhere == [False]
    assert not interrupts.late()


def test_ctrl_c_while_an_engine_is_chosen_returns_a_solution(monkeypatch):
    """On a large model that takes milliseconds, in which Ctrl-C raised KeyboardInterrupt."""
    choose = problem_module.choose_engines

    def pressed(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return choose(*arguments)

    monkeypatch.setattr(problem_module, "choose_engines", pressed)
    problem = cm.Problem(cm.worlds.gridworld(size=10), "time", [cm.Budget("collision", at_most=1e-2)])
    assert problem.solve().status is cm.Status.INTERRUPTED


@pytest.mark.parametrize("evaluation", ["auto", "direct"])
@pytest.mark.parametrize("done", range(0, 16, 2))
def test_time_that_runs_out_in_the_middle_of_a_factor_ends_no_solve_with_an_exception(done, evaluation, monkeypatch):
    """After a few factors of policies that are done, each is left behind before it is, wherever a time limit holds."""
    begun = []

    def impatiently(work):
        if interrupts._Time.deadline < np.inf:
            begun.append(work)
            if len(begun) > done:
                raise interrupts.OutOfTimeError
        return work()

    monkeypatch.setattr(elimination, "LONG_WORK", 0.0)
    monkeypatch.setattr(interrupts, "patiently", impatiently)
    asked = cm.Problem(cm.worlds.gridworld(size=12), "time", [cm.Budget("collision", at_most=1e-3)])
    solution = asked.solve(method=cm.Path(evaluation=evaluation), time_limit=60.0)
    assert begun
    assert solution.status is not cm.Status.INFEASIBLE
    solution.certificate.check(asked)


def test_work_that_takes_too_long_is_left_at_the_time_limit():
    asleep = threading.Event()
    with interrupts.until(time.perf_counter() + 0.01), pytest.raises(interrupts.OutOfTimeError):
        interrupts.patiently(lambda: asleep.wait(30))
    asleep.set()
