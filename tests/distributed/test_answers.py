"""The same answers as in one place, for every engine, every set and every kind of model."""

import numpy as np
import pytest
from mpi4py import MPI

import cvxmdp as cm
from cvxmdp.ranks.model import from_rows
from small_models import MODELS, limits

WORLD = MPI.COMM_WORLD
SAME = 1e-8
"""Relatively, at a tolerance of a tenth of it."""

CASES = [
    *((model, limit, "mixing") for model in MODELS for limit in ("budget", "a cap")),
    *((model, "impossible", "mixing") for model in ("grid", "queue", "dense", "ragged", "two states")),
    *((model, limit, "dual") for model in ("garnet", "ragged", "two states") for limit in ("entropy", "KL ball")),
    *((model, "ball", "dual") for model in ("garnet", "dense", "ragged", "two states")),
    *((model, limit, "splitting") for model in ("grid", "ragged", "two states") for limit in ("ball", "bounds")),
    ("ragged", "budget", "splitting"),
    ("two states", "weighted ball", "splitting"),
    ("two states", "entropy of states", "splitting"),
    ("two states", "KL ball", "splitting"),
]


def both(model, limit, method, tolerance=0.1 * SAME):
    """The answer in one place and the one on all ranks."""
    mdp = MODELS[model]()
    subject_to = limits(mdp)[limit]
    options = {"method": method, "tolerance": tolerance}
    alone = cm.Problem(mdp, "cost", subject_to).solve(**options)
    return mdp, alone, cm.Problem(cm.scatter(mdp, WORLD), "cost", subject_to).solve(**options)


def close(a, b, scale):
    return np.max(np.abs(np.asarray(a) - np.asarray(b))) <= SAME * scale


@pytest.mark.parametrize(("model", "limit", "method"), CASES)
def test_the_answer_is_the_one_of_a_single_machine(model, limit, method):
    mdp, alone, together = both(model, limit, method)
    assert together.status is alone.status
    scale = max(abs(alone.value), float(np.abs(mdp.cost("cost")) @ alone.occupancy))
    assert close(together.value, alone.value, scale)
    assert close([together.violations[name] for name in alone.violations], list(alone.violations.values()), scale)
    if limit == "impossible":
        found, known = together.infeasibility, alone.infeasibility
        assert found.conflict == known.conflict
        assert close(found.distance, known.distance, max(known.distance))
        for name, relax in known.relax.items():
            amount = found.relax[name].amount
            assert amount is relax.amount is None or amount == pytest.approx(relax.amount, rel=1e-6, nan_ok=True)
        return
    assert close(together.bound, alone.bound, scale)
    for name, price in alone.prices.items():
        if np.size(price) == 1:
            assert together.prices[name] == pytest.approx(price, rel=SAME, abs=SAME * scale)


@pytest.mark.parametrize("model", MODELS)
def test_without_limits_the_policy_is_as_good(model):
    mdp, alone, together = both(model, "nothing", "auto")
    whole = cm.gather(mdp_of(together), together.policy.probabilities, to_all=True)
    assert mdp.evaluate(whole).costs["cost"] == pytest.approx(alone.value, rel=SAME)
    assert alone.value - SAME * abs(alone.value) <= together.bound <= alone.value + SAME * abs(alone.value)


@pytest.mark.parametrize("parts", ["own", "graph"])
@pytest.mark.parametrize("limit", ["budget", "impossible"])
def test_states_may_live_anywhere_and_come_back_in_the_order_of_the_user(tmp_path_factory, parts, limit):
    mdp = MODELS["grid"]()
    own = np.random.default_rng(0).integers(WORLD.size, size=mdp.num_states)
    scattered = cm.scatter(mdp, WORLD, parts=own if parts == "own" else "graph")
    subject_to = limits(mdp)[limit]
    together = cm.Problem(scattered, "cost", subject_to).solve()
    path = WORLD.bcast(str(tmp_path_factory.mktemp("saved") / "answer.npz") if WORLD.rank == 0 else None)
    together.save(path)
    problem = cm.Problem(mdp, "cost", subject_to)
    cm.load_solution(path).certificate.check(problem)  # by code that shares nothing with the solvers


def mdp_of(solution):
    return solution.problem.mdp


@pytest.mark.parametrize("method", ["path", "interior", "conic", "newton"])
def test_engines_that_need_one_place_say_so(method):
    mdp = cm.scatter(MODELS["ragged"](), WORLD)
    with pytest.raises(ValueError, match='use "mixing", "splitting", "dual"'):
        cm.Problem(mdp, "cost", [cm.Budget("risk", at_most=0.5)]).solve(method=method)


def test_sets_that_need_one_place_say_so():
    class Own:
        def project(self, point):
            return point

    mdp = cm.scatter(MODELS["ragged"](), WORLD)
    with pytest.raises(ValueError, match="several ranks"):
        cm.Problem(mdp, "cost", [Own()]).solve()
    with pytest.raises(ValueError, match="several ranks"):
        cm.Problem(mdp, "cost", [cm.RobustBudget("risk", cm.Ellipsoid(np.ones(mdp.num_pairs)), at_most=1.0)])


def test_what_is_wrong_on_one_rank_is_an_error_on_all():
    mdp = MODELS["ragged"]()
    costs = np.array(mdp.costs["cost"])
    costs[-1] = np.nan  # on the last rank

    starts = (mdp.num_states * np.arange(WORLD.size + 1)) // WORLD.size
    begin, end = starts[WORLD.rank], starts[WORLD.rank + 1]
    mine = (mdp.state >= begin) & (mdp.state < end)
    with pytest.raises(ValueError, match="costs must be finite"):
        from_rows(
            WORLD, mdp.num_states, mdp.state[mine], mdp.action[mine], mdp.transitions[np.flatnonzero(mine)],
            {"cost": costs[mine]}, mdp.discount,
        )  # fmt: skip


def test_time_limits_and_callbacks_end_all_ranks():
    mdp = cm.scatter(MODELS["grid"](), WORLD)
    subject_to = limits(MODELS["grid"]())["entropy"]
    stopped = cm.Problem(mdp, "cost", subject_to).solve(
        tolerance=1e-12, callback=lambda progress: WORLD.rank == 0 and progress.iteration >= 3
    )
    assert stopped.status is cm.Status.INTERRUPTED
    limited = cm.Problem(mdp, "cost", subject_to).solve(tolerance=1e-13, time_limit=0.3)
    assert limited.status in (cm.Status.TIME_LIMIT, cm.Status.UNDECIDED)
