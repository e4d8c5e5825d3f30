"""The driver: what it makes of proposals, whoever makes them."""

from dataclasses import dataclass

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.engines.base import Engine, Proposal
from cvxmdp.engines.choose import ENGINES
from cvxmdp.engines.drive import Drive
from cvxmdp.engines.judge import Goal
from cvxmdp.engines.mixture import Mixture
from cvxmdp.solve import Solve, _presolve

MDP = cm.worlds.gridworld(size=4)
EVEN = MDP.evaluate(np.full(MDP.num_pairs, 0.25)).occupancy


@dataclass(frozen=True)
class Script(Engine):
    """Yield what it was given."""

    yields: tuple = ()
    answers: list = None

    name = "script"
    said = "a script of {steps} lines"
    most_passes = 1000

    def proposals(self, task):
        for proposal in self.yields:
            answer = yield proposal
            if self.answers is not None:
                self.answers.append(answer)


def budget(at_most):
    return cm.Problem(MDP, "time", [cm.Budget("collision", at_most=at_most)])


def test_a_proposal_that_is_not_ready_costs_nothing():
    def never():
        raise AssertionError("asked for")

    lines = tuple(Proposal(never, never, never) for _ in range(5))
    solution = cm.Problem(MDP, "time", [cm.Entropy(1.0)]).solve(method=Script(lines))
    assert solution.stats.method.startswith("a script of 5 lines")
    assert solution.stats.iterations == 5


def test_the_last_proposal_before_a_limit_is_judged():
    lines = (Proposal(), Proposal(lambda: EVEN), Proposal(lambda: np.ones(EVEN.size)))
    problem = cm.Problem(MDP, "time", [cm.NormBall(EVEN, 1e-4)])
    solution = problem.solve(method=Script(lines), max_iterations=2)
    assert solution.status is cm.Status.ITERATION_LIMIT
    assert solution.stats.iterations == 2
    np.testing.assert_allclose(solution.occupancy, EVEN, atol=1e-12)


def test_engines_hear_what_their_proposals_prove():
    problem, answers = cm.Problem(MDP, "time", [cm.Entropy(1.0)]), []
    best = problem.solve()
    duals = [np.asarray(dual) for dual in best.evidence.proofs["bound"].duals]
    lines = (
        Proposal(lambda: EVEN, ready=True),
        Proposal(duals=lambda: duals, priced=0.0),
        Proposal(lambda: best.occupancy, ready=True),
    )
    solution = problem.solve(method=Script(lines, answers))
    assert solution.status is cm.Status.OPTIMAL
    assert answers[0].candidate.value == pytest.approx(MDP.costs["time"] @ EVEN)
    assert answers[1].bound.value == pytest.approx(best.bound, rel=1e-9)
    assert len(answers) == 2  # the last line closed the gap


def test_what_an_engine_suspects_is_proven_or_not_said():
    problem = budget(-0.1)
    lines = (Proposal(lambda: EVEN, lambda: [np.array([-1.0])], suspect=True),)
    assert problem.solve(method=Script(lines)).status is cm.Status.INFEASIBLE  # found out otherwise
    assert budget(0.5).solve(method=Script(lines)).status is not cm.Status.INFEASIBLE
    right = (Proposal(lambda: EVEN, lambda: [np.array([1.0])], suspect=True),)
    solution = problem.solve(method=Script(right))
    assert solution.status is cm.Status.INFEASIBLE
    assert solution.stats.method == "a script of 1 lines"
    solution.certificate.check(problem)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_break_the_engine_and_not_the_solve(bad):
    for line in (
        Proposal(lambda: np.full(EVEN.size, bad), ready=True),
        Proposal(duals=lambda: [np.full(EVEN.size + 1, bad)], priced=0.0),
    ):
        problem = cm.Problem(MDP, "time", [cm.Entropy(1.0)])
        solution = problem.solve(method=Script((line,)))
        assert "broke down" in solution.stats.method
        solution.certificate.check(problem)


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_every_engine_can_be_stepped_by_hand(name):
    """An algorithm without a judge: it yields proposals of the right sizes, and nothing else happens."""
    problem = budget(1e-4)
    if ENGINES[name].needs(problem.constraints, problem.terms) is not None:
        problem = cm.Problem(MDP, "time", [cm.Entropy(1.0)])
    solve = Solve(problem, 1e-6, None, None, "nearest", False)
    judge = solve._begin(problem, [ENGINES[name]], Goal(1e-6), None)
    _presolve(judge)
    steps = ENGINES[name].proposals(Drive(judge, solve.columns, lambda: None)._task(None))
    first = next(steps)
    assert first.occupancy().shape == (MDP.num_pairs,)
    assert len(first.duals()) == len(problem.constraints)
    assert judge.clock.iterations == 0
    assert judge.best.violation > 1e-6
    steps.close()


@pytest.mark.parametrize(
    "error", [RuntimeError, StopIteration, ZeroDivisionError, MemoryError, FloatingPointError, np.linalg.LinAlgError]
)
def test_what_a_callback_raises_is_not_taken_for_an_engines(error):
    """Past bug: the engine was said to have given up, and the solve went on."""
    problem = budget(1e-4)
    calls = []
    problem.solve(callback=lambda progress: calls.append(progress))
    for last in range(1, len(calls) + 1):
        seen = []

        def raises(progress, seen=seen, last=last):
            seen.append(progress)
            if len(seen) == last:
                raise error("mine")

        with pytest.raises(error, match="mine"):
            problem.solve(callback=raises)
        assert len(seen) == last


def two_kinds_of_limits():
    """Whether a policy obeys is for the distance to decide, where an engine proposes nothing."""
    return cm.Problem(MDP, "time", [cm.Entropy(at_least=1.5), cm.Budget("collision", at_most=1e-3)])


def test_the_callback_hears_of_the_search_for_the_nearest_policy_and_may_stop_it():
    lines = tuple(Proposal() for _ in range(3))
    problem, calls = two_kinds_of_limits(), []
    problem.solve(method=Script(lines), callback=lambda progress: calls.append(progress))
    assert len(calls) >= 6  # presolve, three lines, and what decides
    for last in range(5, len(calls) + 1):
        seen = []

        def stops(progress, seen=seen, last=last):
            seen.append(progress)
            return len(seen) >= last

        solution = problem.solve(method=Script(lines), callback=stops)
        assert solution.status in (cm.Status.INTERRUPTED, cm.Status.OPTIMAL)
        assert len(seen) <= last + 2
        solution.certificate.check(problem)


def test_an_interrupt_while_the_distance_decides_ends_the_solve():
    """Past bug: only the inner solve was interrupted, and the outer one went on to its end."""
    problem, seen = two_kinds_of_limits(), []
    lines = tuple(Proposal() for _ in range(3))

    def interrupts(progress):
        seen.append(progress)
        if len(seen) == 6:
            raise KeyboardInterrupt

    solution = problem.solve(method=Script(lines), callback=interrupts)
    assert solution.status is cm.Status.INTERRUPTED
    assert "interrupted" in solution.stats.method
    assert len(seen) == 6
    solution.certificate.check(problem)


def test_a_policy_that_another_problem_met_is_new_to_a_mixture():
    """Past bug: a mixture took policies for its own that were met meanwhile, and thought that it was stuck."""
    problem = budget(1e-4)
    solve = Solve(problem, 1e-6, None, None, "nearest", False)
    judge = solve._begin(problem, [ENGINES["mixing"]], Goal(1e-6), None)
    _presolve(judge)
    task = Drive(judge, solve.columns, lambda: None)._task(None)
    mixture = Mixture(task, task.blocks.rows)
    pairs = np.searchsorted(MDP.state, np.arange(MDP.num_states)) + 1
    task.columns.key(MDP.dynamics("auto"), pairs)
    count = len(mixture.columns)
    assert mixture.add_policy(pairs)
    assert not mixture.add_policy(pairs)
    assert len(mixture.columns) == count + 1
