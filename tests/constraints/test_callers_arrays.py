"""What the caller does with an array after handing it to a constraint, a term or a problem changes nothing."""

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from oracles import as_mdp, random_model

MODEL = random_model(3, states=4, actions=3)
MDP = as_mdp(MODEL)
L, S = MDP.num_pairs, MDP.num_states
EVEN = MDP.evaluate(np.full(L, 1 / 3)).occupancy


def arrays(*shapes, seed=0):
    """Positive numbers that sum to one: good as rows, limits, weights and occupancies alike."""
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(int(np.prod(shape)))).reshape(shape) for shape in shapes]


def dense(*names):
    """Keyword arguments of one entry for each pair."""
    return dict(zip(names, arrays(*[(L,)] * len(names)), strict=True))


def thin_rows():
    return {"rows": sp.csr_array(arrays((3, L))[0])}


KINDS = {
    "Budget": (lambda cost: cm.Budget(cost, at_most=0.01), dense("cost")),
    "Linear rows": (lambda rows: cm.Linear(rows, at_most=0.01), {"rows": arrays((3, L))[0]}),
    "Linear row": (lambda rows: cm.Linear(rows, at_most=0.01), dense("rows")),
    "Linear sparse rows": (lambda rows: cm.Linear(rows, at_most=0.01), thin_rows()),
    "Linear at_most": (lambda at_most: cm.Linear(np.eye(L), at_most=at_most), dense("at_most")),
    "Linear at_least": (lambda at_least: cm.Linear(np.eye(L), at_least=at_least), dense("at_least")),
    "Linear equal": (lambda equal: cm.Linear(np.eye(L), equal=equal), dense("equal")),
    "Bounds lower": (lambda lower: cm.Bounds(lower=lower), dense("lower")),
    "Bounds upper": (lambda upper: cm.Bounds(upper=upper), dense("upper")),
    "StateBounds lower": (lambda lower: cm.StateBounds(lower=lower), {"lower": arrays((S,))[0]}),
    "StateBounds upper": (lambda upper: cm.StateBounds(upper=upper), {"upper": 0.3 * arrays((S,))[0]}),
    "StateBounds dict": (lambda upper: cm.StateBounds(upper=upper), {"upper": {"1": 0.01, 2: 0.02}}),
    "NormBall center": (lambda center: cm.NormBall(center, 0.01), dense("center")),
    "NormBall weights": (lambda weights: cm.NormBall(EVEN, 0.001, weights=weights), dense("weights")),
    "KLBall": (lambda reference: cm.KLBall(reference, 0.01), dense("reference")),
    "Robust cost": (lambda cost: cm.RobustBudget(cost, cm.Box(0.001), at_most=0.01), dense("cost")),
    "Robust cost in an ellipsoid": (
        lambda cost: cm.RobustBudget(cost, cm.Ellipsoid(np.full(L, 1e-6)), at_most=0.01),
        dense("cost"),
    ),
    "Box": (lambda widths: cm.RobustBudget(None, cm.Box(widths), at_most=0.01), dense("widths")),
    "Vertices": (
        lambda errors: cm.RobustBudget(None, cm.Vertices(errors), at_most=0.01),
        {"errors": arrays((3, L))[0]},
    ),
    "Ellipsoid diagonal": (lambda Q: cm.RobustBudget(None, cm.Ellipsoid(Q), at_most=0.01), dense("Q")),
    "Ellipsoid matrix": (
        lambda Q: cm.RobustBudget(None, cm.Ellipsoid(Q), at_most=0.01),
        {"Q": np.diag(arrays((L,))[0])},
    ),
}

TERMS = {
    "Distance": (lambda center: cm.Distance(center), dense("center")),
    "KL": (lambda reference: cm.KL(reference), dense("reference")),
}


def copied(given):
    return {name: value.copy() for name, value in given.items()}


def spoil(given):
    """Change all that can be changed in place."""
    for value in given.values():
        if isinstance(value, dict):
            for key in value:
                value[key] = 0.9
            value["0"] = 0.001
        elif sp.issparse(value):
            value.data[:] = 7.0
            value.indices[:] = 0
        else:
            value[:] = 7.0


@pytest.mark.parametrize("when", ["before binding", "after binding"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_constraint_keeps_what_it_was_given(kind, when):
    make, given = KINDS[kind]
    point = EVEN + 0.2 * arrays((L,), seed=1)[0]
    expected = make(**copied(given)).bind(MDP).project(point)
    assert np.abs(expected - point).max() > 1e-4  # a projection that moves nothing would prove nothing
    mine = copied(given)
    constraint = make(**mine)
    if when == "before binding":
        spoil(mine)
        bound = constraint.bind(MDP)
    else:
        bound = constraint.bind(MDP)
        spoil(mine)
    np.testing.assert_array_equal(bound.project(point), expected)
    np.testing.assert_array_equal(bound.violation(point), make(**copied(given)).bind(MDP).violation(point))


@pytest.mark.parametrize("when", ["before binding", "after binding"])
@pytest.mark.parametrize("kind", TERMS)
def test_a_term_keeps_what_it_was_given(kind, when):
    make, given = TERMS[kind]
    expected = make(**copied(given)).bind(MDP)
    mine = copied(given)
    term = make(**mine)
    if when == "before binding":
        spoil(mine)
    bound = term.bind(MDP)
    spoil(mine)
    assert bound.value(EVEN) == expected.value(EVEN) != 0
    np.testing.assert_array_equal(bound.prox(EVEN, 0.1), expected.prox(EVEN, 0.1))


def test_a_problem_keeps_the_cost_and_the_list_it_was_given():
    cost, limits = MODEL["costs"]["cost"].copy(), [cm.Budget("risk", at_most=0.28)]
    problem, expected = cm.Problem(MDP, cost, limits), cm.Problem(MDP, "cost", limits).solve()
    cost[:] = 0.0
    limits.clear()
    solution = problem.solve()
    assert solution.value == expected.value
    assert solution.costs["risk"] == pytest.approx(0.28, rel=1e-5)


def test_a_policy_given_to_a_ball_cannot_be_changed_behind_its_back():
    policy = MDP.policy(np.full(L, 1 / 3))
    ball = cm.NormBall(policy, 0.1)
    with pytest.raises(ValueError, match="read-only"):
        policy.probabilities[:3] = [1.0, 0.0, 0.0]
    np.testing.assert_allclose(ball.bind(MDP).center, EVEN, rtol=1e-12)


def test_complex_sparse_rows_are_refused():
    """A past bug: the imaginary part was dropped."""
    with pytest.raises(ValueError, match="rows holds complex numbers"):
        cm.Linear(sp.csr_array(np.array([[1.0, 1j]])), at_most=1.0)
