"""An engine is one class: what it proposes is judged like any other's, whatever it believes."""

from dataclasses import dataclass

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.engines.base import Engine, Proposal
from cvxmdp.engines.choose import ENGINES


@dataclass(frozen=True)
class Guess(Engine):
    """Propose the even policy and be sure that it is the best."""

    name = "guess"
    said = "a guess"
    most_passes = 1

    def needs(self, constraints, terms):
        return "a cost alone" if terms else None

    def proposals(self, task):
        yield Proposal(lambda: np.ones(task.c.size), residual=0.0, ready=True)


LIMIT = cm.Entropy(at_least=1.0)


def test_a_new_engine_needs_one_class():
    problem = cm.Problem(cm.worlds.gridworld(size=4), "time", [LIMIT])
    solution = problem.solve(method=Guess())
    assert solution.status is cm.Status.UNDECIDED
    assert solution.stats.method == "a guess"
    solution.certificate.check(problem)


def test_a_new_engine_has_a_name_by_one_entry_of_the_table(monkeypatch):
    monkeypatch.setitem(ENGINES, "guess", Guess())
    solution = cm.Problem(cm.worlds.gridworld(size=4), "time", [LIMIT]).solve(method="guess")
    assert solution.stats.method == "a guess"
    with pytest.raises(ValueError, match=r'"guess".*, or an instance of .*cm\.Guess'):
        cm.Problem(cm.worlds.gridworld(size=4), "time", [LIMIT]).solve(method="none")


def test_seconds_are_booked_under_the_engine_that_took_them():
    class Helped(Guess):
        helped = True

    stats = cm.Problem(cm.worlds.gridworld(size=4), "time", [LIMIT]).solve(method=Helped()).stats
    assert stats.method.startswith("a guess, then proximal Newton method")
    engines = {name: seconds for name, seconds in stats.seconds.items() if name in ("guess", *ENGINES)}
    assert set(engines) == {"guess", "newton"}
    assert sum(engines.values()) <= stats.seconds["total"]


def test_a_new_engine_says_what_it_needs():
    problem = cm.Problem(cm.worlds.gridworld(size=4), ["time", cm.NegativeEntropy()], [LIMIT])
    with pytest.raises(ValueError, match='method "guess" needs a cost alone'):
        problem.solve(method=Guess())


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_public_under_the_name_of_its_class(name):
    assert getattr(cm, type(ENGINES[name]).__name__) is type(ENGINES[name])
    assert f'"{name}"' in cm.Problem.solve.__doc__
