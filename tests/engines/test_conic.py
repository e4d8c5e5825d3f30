"""The conic programs, by themselves: the answers of other engines, and limits on the border of what is possible."""

import numpy as np
import pytest

import cvxmdp as cm
from oracles import as_mdp, lp_optimum, occupancy, random_model, random_policy

SHAPES = {
    "dense": ({"states": 7, "actions": 3}, False),
    "sparse": ({"states": 25, "actions": 3, "branching": 3}, True),
    "ragged": ({"states": 9, "actions": 4, "ragged": True}, False),
}


def world(shape, seed):
    settings, sparse = SHAPES[shape]
    model = random_model(seed, **settings)
    return model, as_mdp(model, sparse), occupancy(model, random_policy(model, seed))


def entropy(d):
    return -float(d @ np.log(d))


KINDS = {
    "rows": lambda mdp, d: [cm.Linear(np.stack([d, mdp.costs["risk"]]), at_most=[d @ d, mdp.costs["risk"] @ d])],
    "equality": lambda mdp, d: [cm.Linear(mdp.costs["risk"], equal=float(mdp.costs["risk"] @ d))],
    "both sides": lambda mdp, d: [cm.Linear(d, at_most=1.01 * (d @ d), at_least=0.99 * (d @ d))],
    "caps": lambda mdp, d: [cm.StateBounds(upper=1.1 * np.bincount(mdp.state, weights=d))],
    "bounds": lambda mdp, d: [cm.Bounds(lower=0.5 * d, upper=1.5 * d)],
    **{f"ball {p}": lambda mdp, d, p=p: [cm.NormBall(d, 0.02, norm=p)] for p in (1, 1.5, 2, 3, np.inf)},
    "weighted ball": lambda mdp, d: [cm.NormBall(d, 0.05, weights=1 + np.arange(d.size) / d.size)],
    "entropy": lambda mdp, d: [cm.Entropy(at_least=entropy(d))],
    "entropy of states": lambda mdp, d: [cm.Entropy(entropy(np.bincount(mdp.state, weights=d)), of="states")],
    "KL": lambda mdp, d: [cm.KLBall(d, 0.05)],
    "ellipsoid": lambda mdp, d: [
        cm.RobustBudget("risk", cm.Ellipsoid(1e-2 * d), at_most=float(mdp.costs["risk"] @ d) + 0.02)
    ],
    "mixed": lambda mdp, d: [
        cm.NormBall(d, 0.05), cm.Budget("risk", float(mdp.costs["risk"] @ d)), cm.Entropy(0.9 * entropy(d))
    ],
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_is_that_of_the_default(kind, shape):
    """Two engines that share nothing but the judge, whose bounds are proofs: their values must meet."""
    _, mdp, d = world(shape, 1)
    problem = cm.Problem(mdp, "cost", KINDS[kind](mdp, d))
    conic, usual = problem.solve(method="conic"), problem.solve()
    assert conic.status is usual.status is cm.Status.OPTIMAL
    conic.certificate.check(problem)
    scale = np.abs(mdp.costs["cost"]) @ usual.occupancy
    # What the tolerance lets them exceed limits by is worth its price.
    worth = sum(
        np.sum(np.abs(conic.prices[name])) * (usual.violations[name] + conic.violations[name]) for name in conic.prices
    )
    assert conic.value == pytest.approx(usual.value, abs=2.1e-6 * scale + worth)
    assert conic.bound <= usual.value + 1e-9 * scale + worth


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["ball 1.5", "ball 3", "entropy of states", "KL", "mixed", "rows"])
def test_the_nearest_policy_is_proven_nearest(kind, shape):
    """The sets around one occupancy, and a budget that none of their members meets."""
    _, mdp, d = world(shape, 2)
    low = cm.Problem(mdp, "risk", KINDS[kind](mdp, d)).solve()
    limits = [*KINDS[kind](mdp, d), cm.Budget("risk", at_most=low.bound - 0.05, name="too little")]
    problem = cm.Problem(mdp, "cost", limits)
    solution = problem.solve(method="conic", explain=False)
    assert solution.status is cm.Status.INFEASIBLE
    solution.certificate.check(problem)
    nearest, farthest = solution.infeasibility.distance
    assert nearest <= farthest <= (1 + 1e-6) * nearest


@pytest.mark.parametrize("side", [-1, 1])
def test_a_single_point_apart_is_told_apart(side):
    """The least of a cost is a limit that some policy meets; a hair less, and none does."""
    model, mdp, _ = world("dense", 3)
    best, _, _ = lp_optimum(model, mdp.costs["risk"])
    problem = cm.Problem(mdp, "cost", [cm.Budget("risk", at_most=best * (1 + side * 1e-5))])
    solution = problem.solve(method="conic")
    assert solution.status is (cm.Status.OPTIMAL if side > 0 else cm.Status.INFEASIBLE)
    solution.certificate.check(problem)


def test_what_has_no_cones_is_refused():
    class Own:
        def project(self, point):
            return np.maximum(point, 0.0)

    mdp = as_mdp(random_model(0))
    for problem in (cm.Problem(mdp, "cost", [Own()]), cm.Problem(mdp, "cost" + cm.NegativeEntropy(0.1))):
        with pytest.raises(ValueError, match="conic"):
            problem.solve(method="conic")
