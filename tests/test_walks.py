"""The walks of CONTRIBUTING.md: the files that an answer passes through, in this order."""

import re
import sys
from pathlib import Path

import pytest

import cvxmdp as cm

ROOT = Path(__file__).parents[1]
FILES = [path.relative_to(ROOT / "src/cvxmdp").as_posix() for path in (ROOT / "src/cvxmdp").rglob("*.py")]
TEXT = (ROOT / "CONTRIBUTING.md").read_text().split("three walks\n")[1].split("\n## ")[0]
BUDGET, ENTROPY, INFEASIBLE = TEXT.split("\n**")[1:]


def problem(walk):
    """The problem that a walk names."""
    return eval(re.search(r"`(cm\.Problem.*?)`", walk)[1], {"cm": cm, "mdp": cm.worlds.gridworld()})


def line(walk, number):
    return walk.split(f"\n{number}. ")[1].split(f"\n{number + 1}. ")[0]


def files(text, folder="engines/"):
    """The files that a text names; a name alone is that of a file of the engines, if there is one."""
    found = []
    for name in re.findall(r"`([a-z_/]+\.py)`", text):
        path = folder + name if folder + name in FILES else name
        assert path in FILES, name
        found.append(path)
    return found


def entered(problem):
    """The files whose functions a solve enters, one after the other."""
    hops = []

    def note(frame, event, argument):
        if event == "call":
            module = frame.f_globals.get("__name__", "")  # what a dataclass is made by has no file
            hops.append(module.removeprefix("cvxmdp.").replace(".", "/") + ".py")

    sys.setprofile(note)
    try:
        solution = problem.solve()
    finally:
        sys.setprofile(None)
    return solution, hops


def missing(walk, hops):
    """The first file of a walk that is not entered after those before it."""
    left = iter(hops)
    return next((file for file in walk if file not in left), None)


PRESOLVED = [file for number in range(1, 6) for file in files(line(BUDGET, number))]
ENDED = files(line(BUDGET, 7)) + files(line(BUDGET, 9))


def test_a_budget():
    solution, hops = entered(problem(BUDGET))
    assert solution.status is cm.Status.OPTIMAL
    walk = [*PRESOLVED, *(file for number in range(6, 10) for file in files(line(BUDGET, number)))]
    assert missing(walk, hops) is None


def test_an_entropy():
    solution, hops = entered(problem(ENTROPY))
    assert solution.status is cm.Status.OPTIMAL
    assert missing([*PRESOLVED, *files(ENTROPY), *ENDED], hops) is None


def test_limits_that_no_policy_obeys():
    solution, hops = entered(problem(INFEASIBLE))
    assert solution.status is cm.Status.INFEASIBLE
    first = [*files(line(BUDGET, 6)), *files(INFEASIBLE.split("\n1. ")[0])]
    again = PRESOLVED[PRESOLVED.index("solve.py") + 2 :]  # the model has its dynamics by then
    nearest = [*files(line(INFEASIBLE, 1)), *again, *files(line(INFEASIBLE, 2)), *again]
    walk = [*PRESOLVED, *first, *nearest, *files(line(INFEASIBLE, 3)), *again, *files(line(INFEASIBLE, 4))]
    assert missing(walk, hops) is None


@pytest.mark.parametrize("other", ["engines/interior.py", "io/umb.py"])
def test_a_walk_that_is_not_true_is_noticed(other):
    _, hops = entered(problem(BUDGET))
    assert missing([*PRESOLVED, other, *ENDED], hops) == other
