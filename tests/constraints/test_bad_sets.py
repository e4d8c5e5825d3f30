"""Misuse of sets and terms raises ValueError that names the argument, or the user's class, and what would be right."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.constraints.combine import bind
from oracles import as_mdp, random_model

MDP = as_mdp(random_model(0, states=3, actions=2))  # 6 pairs
OTHER = as_mdp(random_model(1, states=2, actions=2))  # 4 pairs
PAIRS = MDP.num_pairs
EVEN = np.full(PAIRS, 1 / PAIRS)
POINT = np.ones(PAIRS)
NAN, INF = np.nan, np.inf


def solve(*constraints):
    return cm.Problem(MDP, "cost", constraints).solve()


def bound(constraint, mdp=MDP):
    return constraint.bind(mdp)


SETS = {
    # ------------------------------------------------------------------------------------------------ linear
    "rows of names and numbers": (lambda: cm.Linear(["risk", 1], at_most=1), ["rows", "names", "numbers"]),
    "rows of no known name": (lambda: solve(cm.Linear("rsik", at_most=1)), ["no cost called 'rsik'", "'risk'"]),
    "rows of other lengths": (lambda: cm.Linear([[1, 2], [3]], at_most=1), ["rows", "numbers"]),
    "no rows": (lambda: cm.Linear(np.zeros((0, 4)), at_most=1), ["rows", "(0, 4)", "one row of pairs"]),
    "rows of three dimensions": (lambda: cm.Linear(np.zeros((1, 2, 3)), at_most=1), ["rows", "(1, 2, 3)"]),
    "a row that is not finite": (lambda: cm.Linear([1, NAN], at_most=1), ["rows", "not finite"]),
    "a sparse row that is not finite": (lambda: cm.Linear(sp.csr_array([[INF]]), at_most=1), ["rows", "not finite"]),
    "no limit": (lambda: cm.Linear([1, 2]), ["at_most=", "at_least=", "equal="]),
    "equal and at_most": (lambda: cm.Linear([1, 2], at_most=1, equal=1), ["equal=", "at_most=", "not both"]),
    "too many limits": (lambda: cm.Linear([1, 2], at_most=[1, 2]), ["at_most", "(2,)", "vector of 1"]),
    "too few equalities": (lambda: cm.Linear(np.eye(3), equal=[1, 2]), ["equal", "(2,)", "vector of 3"]),
    "a limit that is no number": (lambda: cm.Linear([1, 2], at_least="a"), ["at_least", "numbers"]),
    "a limit that is NaN": (lambda: cm.Linear(np.eye(2), at_most=[1, NAN]), ["at_most", "NaN", "entry 1"]),
    "limits that cross": (lambda: cm.Linear([1, 2], at_most=1, at_least=2), ["row 0", "between 2 and 1", "no value"]),
    "at_most of -inf": (lambda: cm.Linear([1, 2], at_most=-INF), ["row 0", "-inf", "no value"]),
    "at_least of inf": (lambda: cm.Linear([1, 2], at_least=INF), ["row 0", "inf", "no value"]),
    "equal to inf": (lambda: cm.Linear([1, 2], equal=INF), ["row 0", "inf", "no value"]),
    "rows of another model": (lambda: solve(cm.Linear([1, 2], at_most=1)), ["rows", "2 columns", "6 pairs"]),
    "a point of another model": (lambda: cm.Linear([1, 2], at_most=1).project(POINT), ["point", "(6,)", "2 pairs"]),
    "the violation of such a point": (lambda: cm.Linear([1, 2], at_most=1).violation(POINT), ["point", "2 pairs"]),
    # ------------------------------------------------------------------------------------------------ budget
    "a budget of no known cost": (lambda: solve(cm.Budget("rsik", 1)), ["no cost called 'rsik'", "mean 'risk'"]),
    "a budget of NaN": (lambda: cm.Budget("risk", NAN), ["at_most", "nan", "finite number"]),
    "a budget of two numbers": (lambda: cm.Budget("risk", [1, 2]), ["at_most", "finite number"]),
    "a budget by name without a model": (lambda: cm.Budget("risk", 1).project(POINT), ["'risk'", "budget.bind(mdp)"]),
    "its violation": (lambda: cm.Budget("risk", 1).violation(POINT), ["'risk'", "budget.bind(mdp)"]),
    # ------------------------------------------------------------------------------------------------ bounds
    "bounds of nothing": (lambda: cm.Bounds(), ["Bounds", "lower=", "upper="]),
    "bounds that cross": (lambda: cm.Bounds([0, 0.5], [1, 0.4]), ["lower is 0.5", "upper 0.4", "pair 1"]),
    "bounds below zero": (lambda: cm.Bounds(upper=-0.1), ["upper is -0.1", "never below 0"]),
    "a lower bound of inf": (lambda: cm.Bounds(lower=INF), ["lower is inf"]),
    "bounds of unequal lengths": (lambda: cm.Bounds([0, 0, 0], [1, 1]), ["upper", "(2,)", "vector of 3"]),
    "bounds of NaN": (lambda: cm.Bounds(upper=[0.5, NAN]), ["upper", "NaN", "entry 1"]),
    "bounds of lists of other lengths": (lambda: cm.Bounds(upper=[[0.5], [0.1, 0.2]]), ["upper", "numbers"]),
    "a table of bounds": (lambda: cm.Bounds(upper=np.ones((2, 2))), ["upper", "(2, 2)"]),
    "bounds of another model": (lambda: solve(cm.Bounds(upper=[1, 1])), ["upper", "(2,)", "6 pairs"]),
    "lower bounds of another model": (lambda: solve(cm.Bounds(lower=[0, 0])), ["lower", "(2,)", "6 pairs"]),
    "a point of another model in bounds": (lambda: cm.Bounds(upper=[1, 1]).project(POINT), ["point", "2 pairs"]),
    "its violation of bounds": (lambda: cm.Bounds(upper=[1, 1]).violation(POINT), ["point", "2 pairs"]),
    # ------------------------------------------------------------------------------------------------ states
    "visits without limits": (lambda: cm.StateBounds(), ["StateBounds", "lower=", "upper="]),
    "visits without a model": (lambda: cm.StateBounds(upper=1).project(POINT), ["'visits'", "bind(mdp)"]),
    "their violation": (lambda: cm.StateBounds(upper=1).violation(POINT), ["'visits'", "bind(mdp)"]),
    "a state of no known name": (lambda: bound(cm.StateBounds(upper={"hall": 0.1})), ["upper", "'hall'", "none"]),
    "a state of no index": (lambda: bound(cm.StateBounds(lower={3: 0.1})), ["lower", "3", "none"]),
    "a state of negative index": (lambda: bound(cm.StateBounds(lower={-1: 0.1})), ["lower", "-1", "none"]),
    "a state by row and column": (lambda: bound(cm.StateBounds(upper={(0, 1): 0.1})), ["upper", "(0, 1)", "none"]),
    "a state by a broken number": (lambda: bound(cm.StateBounds(upper={1.7: 0.1})), ["upper", "1.7", "none"]),
    "no state at all": (lambda: bound(cm.StateBounds(upper={})), ["StateBounds|upper", "state"]),
    "limits of inf alone": (lambda: bound(cm.StateBounds(upper=INF)), ["StateBounds|upper", "state|limit"]),
    "visits of at least inf": (lambda: bound(cm.StateBounds(lower=[INF, 0, 0])), ["lower", "inf"]),
    "visits below zero": (lambda: cm.StateBounds(upper=-0.1), ["upper is -0.1", "never below 0"]),
    "visits of one state below zero": (lambda: bound(cm.StateBounds(upper={0: -0.1})), ["upper", "0", "never below 0"]),
    "visits of NaN": (lambda: cm.StateBounds(upper=[NAN, 1, 1]), ["upper", "NaN", "entry 0"]),
    "visits of one state of NaN": (lambda: bound(cm.StateBounds(upper={1: NAN})), ["upper of state 1", "finite"]),
    "visits that are no numbers": (lambda: cm.StateBounds(lower="few"), ["lower", "numbers"]),
    "visits of another model": (lambda: bound(cm.StateBounds(upper=[1, 1])), ["upper", "(2,)", "vector of 3"]),
    "visits that cross": (
        lambda: bound(cm.StateBounds(lower={1: 0.5}, upper={1: 0.4})),
        ["lower is 0.5", "upper 0.4", f"state {MDP.states[1]}"],
    ),
    # -------------------------------------------------------------------------------------------------- ball
    "a negative radius": (lambda: cm.NormBall(EVEN, -1), ["radius is -1", "at least 0"]),
    "a radius of NaN": (lambda: cm.NormBall(EVEN, NAN), ["radius", "finite number"]),
    "a radius of inf": (lambda: cm.NormBall(EVEN, INF), ["radius", "finite number"]),
    "a norm below one": (lambda: cm.NormBall(EVEN, 1, norm=0.5), ["norm is 0.5", "at least 1"]),
    "a norm of NaN": (lambda: cm.NormBall(EVEN, 1, norm=NAN), ["norm is nan", "at least 1"]),
    "a norm by name": (lambda: cm.NormBall(EVEN, 1, norm="fro"), ["norm is 'fro'", "1 up"]),
    "a norm that is none": (lambda: cm.NormBall(EVEN, 1, norm=None), ["norm is None", "1 up"]),
    "a center that is a table": (lambda: cm.NormBall([[0.5, 0.5]], 1), ["center", "vector", "Policy"]),
    "a center of NaN": (lambda: cm.NormBall([0.5, NAN], 1), ["center", "finite", "Policy"]),
    "a center that is text": (lambda: cm.NormBall("expert", 1), ["center", "numbers"]),
    "a center of another model": (lambda: solve(cm.NormBall([0.5, 0.5], 1)), ["center", "2 entries", "6 pairs"]),
    "a policy of another model": (
        lambda: solve(cm.NormBall(OTHER.policy([0, 1]), 1)),
        ["policy", "4 pairs", "model has 6"],
    ),
    "a policy without a model": (
        lambda: cm.NormBall(MDP.policy([0, 1, 0]), 1).project(POINT),
        ["'ball'", "policy", "bind(mdp)"],
    ),
    "weights with another norm": (lambda: cm.NormBall(EVEN, 1, norm=1, weights=POINT), ["weights", "norm=2", "1"]),
    "weights that are zero": (lambda: cm.NormBall(EVEN, 1, weights=0 * POINT), ["weights", "positive"]),
    "weights of NaN": (lambda: cm.NormBall(EVEN, 1, weights=NAN * POINT), ["weights", "finite"]),
    "one weight": (lambda: cm.NormBall(EVEN, 1, weights=2.0), ["weights", "vector"]),
    "too few weights": (lambda: cm.NormBall(EVEN, 1, weights=[1, 2]), ["weights", "2 entries", "center has 6"]),
    "too few weights for a policy": (
        lambda: solve(cm.NormBall(MDP.policy([0, 1, 0]), 1, weights=[1, 2])),
        ["weights", "2 entries", "center has 6"],
    ),
    "a point of another model in a ball": (lambda: cm.NormBall([0, 0], 1).project(POINT), ["point", "2 pairs"]),
    "its violation of a ball": (lambda: cm.NormBall([0, 0], 1).violation(POINT), ["point", "2 pairs"]),
    # ----------------------------------------------------------------------------------------------- entropy
    "more entropy than pairs allow": (lambda: solve(cm.Entropy(2.0)), ["'entropy'", "2", "6 pairs", "log 6", "1.79"]),
    "more entropy than states allow": (
        lambda: solve(cm.Entropy(1.5, of="states", name="spread")),
        ["'spread'", "1.5", "3 states", "log 3", "1.09861"],
    ),
    "an entropy of something else": (lambda: cm.Entropy(1.0, of="actions"), ["of is 'actions'", '"pairs"', '"states"']),
    "an entropy of NaN": (lambda: cm.Entropy(NAN), ["at_least", "finite number"]),
    "an entropy of inf": (lambda: cm.Entropy(INF), ["at_least", "finite number"]),
    "an entropy of states without a model": (
        lambda: cm.Entropy(1.0, of="states").project(POINT),
        ["'entropy'", "states", "bind(mdp)"],
    ),
    "its violation of an entropy": (lambda: cm.Entropy(1.0, of="states").violation(POINT), ["'entropy'", "bind(mdp)"]),
    "an entropy bound to another model": (
        lambda: cm.Entropy(1.0).bind(OTHER).bind(MDP),
        ["'entropy'", "4 pairs", "6"],
    ),
    # ---------------------------------------------------------------------------------------------------- KL
    "a negative KL radius": (lambda: cm.KLBall(EVEN, -0.1), ["radius is -0.1", "below 0"]),
    "a KL radius of NaN": (lambda: cm.KLBall(EVEN, NAN), ["radius", "finite number"]),
    "a reference below zero": (lambda: cm.KLBall([1.5, -0.5], 1), ["reference is -0.5", "pair 1", "negative"]),
    "a reference of sum two": (lambda: cm.KLBall([1.0, 1.0], 1), ["reference sums to 2", "divide"]),
    "a reference of NaN": (lambda: cm.KLBall([0.5, NAN], 1), ["reference", "finite"]),
    "a reference of another model": (lambda: solve(cm.KLBall([0.5, 0.5], 1)), ["reference", "2 entries", "6 pairs"]),
    "a reference policy without a model": (
        lambda: cm.KLBall(MDP.policy([0, 1, 0]), 1).project(POINT),
        ["'KL ball'", "policy", "bind(mdp)"],
    ),
    "a point of another model in a KL ball": (lambda: cm.KLBall([0.5, 0.5], 1).project(POINT), ["point", "2 pairs"]),
    # ------------------------------------------------------------------------------------------------ robust
    "no uncertainty": (lambda: cm.RobustBudget("risk", 0.1, 1), ["uncertainty", "float", "cm.Ellipsoid"]),
    "a robust limit of NaN": (lambda: cm.RobustBudget("risk", cm.Box(1), NAN), ["at_most", "finite number"]),
    "a matrix that is not square": (lambda: cm.Ellipsoid(np.ones((2, 3))), ["matrix", "(2, 3)", "square"]),
    "a matrix that is a number": (lambda: cm.Ellipsoid(2.0), ["matrix", "()", "diagonal"]),
    "a matrix of nothing": (lambda: cm.Ellipsoid([]), ["matrix", "(0,)"]),
    "a matrix of NaN": (lambda: cm.Ellipsoid([1, NAN]), ["matrix", "finite"]),
    "a matrix of text": (lambda: cm.Ellipsoid("Q"), ["matrix", "numbers"]),
    "a matrix that is not symmetric": (lambda: cm.Ellipsoid([[1, 0.5], [0, 1]]), ["matrix", "not symmetric"]),
    "a matrix with a negative eigenvalue": (lambda: cm.Ellipsoid([[0, 1], [1, 0]]), ["matrix", "eigenvalue -1"]),
    "a negative diagonal": (lambda: cm.Ellipsoid([1, -2]), ["matrix", "-2", "negative"]),
    "negative half-widths": (lambda: cm.Box([0.1, -0.1]), ["half_widths", "at least 0"]),
    "half-widths of NaN": (lambda: cm.Box(NAN), ["half_widths", "finite"]),
    "a table of half-widths": (lambda: cm.Box(np.ones((2, 2))), ["half_widths", "one a pair"]),
    "no vertices": (lambda: cm.Vertices([]), ["errors", "one finite number a pair"]),
    "vertices of NaN": (lambda: cm.Vertices([[NAN]]), ["errors", "finite"]),
    "vertices of three dimensions": (lambda: cm.Vertices(np.ones((1, 1, 1))), ["errors"]),
    "an ellipsoid of another model": (
        lambda: solve(cm.RobustBudget("risk", cm.Ellipsoid([1, 1]), 1)),
        ["'risk'", "has 2 entries", "6 pairs"],
    ),
    "a box of another model": (
        lambda: solve(cm.RobustBudget("risk", cm.Box([1, 1]), 1)),
        ["'risk'", "has 2 entries", "6 pairs"],
    ),
    "vertices of another model": (
        lambda: solve(cm.RobustBudget("risk", cm.Vertices([1, 1]), 1)),
        ["'risk'", "has 2 entries", "6 pairs"],
    ),
    "a robust budget of no known cost": (
        lambda: solve(cm.RobustBudget("rsik", cm.Box(1), 1)),
        ["no cost called 'rsik'"],
    ),
    "a robust cost of another model": (lambda: solve(cm.RobustBudget([1, 1], cm.Box(1), 1)), ["cost", "(2,)", "6"]),
    "a robust cost of NaN": (
        lambda: cm.RobustBudget([NAN, 1], cm.Ellipsoid([1, 1]), 1).project(np.ones(2)),
        ["cost|rows", "finite"],
    ),
    "a table as robust cost": (
        lambda: cm.RobustBudget([[1.0, 1.0]], cm.Ellipsoid([1, 1]), 1).project(np.ones(2)),
        ["cost", "(1, 2)|vector"],
    ),
    "a robust budget by name without a model": (
        lambda: cm.RobustBudget("risk", cm.Box(1), 1).project(POINT),
        ["'risk'", "bind(mdp)"],
    ),
    "a point of another model in a robust budget": (
        lambda: cm.RobustBudget([1, 1], cm.Ellipsoid([1, 1]), 1).project(POINT),
        ["point", "2 pairs"],
    ),
    # --------------------------------------------------------------------------------------------- subject_to
    "a constraint outside a list": (lambda: cm.Problem(MDP, "cost", cm.Entropy(1)), ["subject_to", "list", "Entropy"]),
    "a constraint's class": (lambda: solve(cm.Entropy), ["subject_to", "class Entropy itself"]),
    "a number for a constraint": (lambda: solve(3.0), ["subject_to", "float", "project(point)"]),
    "a name for a constraint": (lambda: solve("risk"), ["subject_to", "str", "cm.Budget"]),
    "a term for a constraint": (lambda: solve(cm.Distance(EVEN)), ["subject_to", "Distance"]),
    "another term for a constraint": (lambda: solve(cm.NegativeEntropy()), ["subject_to", "NegativeEntropy"]),
}


TERMS = {
    "a weight of zero": (lambda: cm.Distance(EVEN, 0), ["weight is 0", "positive"]),
    "a negative weight": (lambda: cm.NegativeEntropy(-1), ["weight is -1", "positive"]),
    "a weight of NaN": (lambda: cm.KL(EVEN, NAN), ["weight", "finite number"]),
    "a weight of inf": (lambda: cm.KL(EVEN, INF), ["weight", "finite number"]),
    "a distance of norm 0.5": (lambda: cm.Distance(EVEN, norm=0.5), ["norm is 0.5", "at least 1"]),
    "a distance of norm l2": (lambda: cm.Distance(EVEN, norm="l2"), ["norm is 'l2'", "1 up"]),
    "a distance to NaN": (lambda: cm.Distance([NAN]), ["center", "finite"]),
    "a distance in another model": (lambda: bound(cm.Distance([0.5, 0.5])), ["center", "2 entries", "6 pairs"]),
    "a distance to another model's policy": (lambda: bound(cm.Distance(OTHER.policy([0, 1]))), ["4 pairs", "6"]),
    "an entropy of actions": (lambda: cm.NegativeEntropy(of="actions"), ["of is 'actions'", '"pairs"', '"states"']),
    "a KL to less than nothing": (lambda: cm.KL([1.5, -0.5]), ["reference is -0.5", "pair 1", "negative"]),
    "a KL to half a distribution": (lambda: cm.KL([0.25, 0.25]), ["reference sums to 0.5", "divide"]),
    "a KL in another model": (lambda: bound(cm.KL([0.5, 0.5])), ["reference", "2 entries", "6 pairs"]),
    "nothing to minimize": (lambda: cm.Problem(MDP, None), ["minimize"]),
    "an empty list to minimize": (lambda: cm.Problem(MDP, []), ["minimize", "(0,)", "6 pairs"]),
    "a cost of no known name": (lambda: cm.Problem(MDP, "cots"), ["no cost called 'cots'", "mean 'cost'"]),
    "a sum with a cost of no known name": (
        lambda: cm.Problem(MDP, "cots" + cm.Distance(EVEN)),
        ["no cost called 'cots'"],
    ),
    "a number": (lambda: cm.Problem(MDP, 3.0), ["minimize", "()", "6 pairs"]),
    "a term plus a number": (lambda: cm.Problem(MDP, cm.Distance(EVEN) + 3.0), ["minimize", "()", "6 pairs"]),
    "a vector of another model": (lambda: cm.Problem(MDP, [1.0, 2.0]), ["minimize", "(2,)", "6 pairs"]),
    "such a vector in a sum": (lambda: cm.Problem(MDP, cm.KL(EVEN) + np.ones(2)), ["minimize", "(2,)", "6 pairs"]),
    "a vector of NaN": (lambda: cm.Problem(MDP, NAN * POINT), ["minimize", "nan", "state 0, action 0", "finite"]),
    "a term's class": (lambda: cm.Problem(MDP, cm.Distance), ["minimize"]),
    "something else": (lambda: cm.Problem(MDP, object()), ["minimize"]),
    "a dict": (lambda: cm.Problem(MDP, {"cost": 1.0}), ["minimize"]),
    "a budget to minimize": (lambda: cm.Problem(MDP, cm.Budget("cost", 1.0)), ["minimize", "Budget"]),
    "a ball to minimize": (lambda: cm.Problem(MDP, ["cost", cm.NormBall(EVEN, 1.0)]), ["minimize", "NormBall"]),
    "a policy to minimize": (lambda: cm.Problem(MDP, MDP.policy([0, 1, 0])), ["minimize"]),
}


@pytest.mark.parametrize("kind", SETS)
def test_a_bad_set_is_refused_with_its_reason(kind):
    assert_refused(*SETS[kind])


@pytest.mark.parametrize("kind", TERMS)
def test_a_bad_term_is_refused_with_its_reason(kind):
    assert_refused(*TERMS[kind])


def assert_refused(act, parts):
    """ValueError whose message holds each part; of ``a|b`` one of both."""
    choices = [[re.escape(choice) for choice in part.split("|")] for part in parts]
    everything = "".join(f"(?=.*({'|'.join(some)}))" for some in choices)
    with pytest.raises(ValueError, match=f"(?s){everything}"):
        act()


def test_as_much_entropy_as_there_is_can_be_asked_for():
    cm.Entropy(np.log(PAIRS)).bind(MDP)
    cm.Entropy(np.log(3), of="states").bind(MDP)


# ----------------------------------------------------------------------------------------- sets of users' own


class Base:
    def project(self, point):
        return self.result(point)


class NotANumber(Base):
    def result(self, point):
        return point * np.nan


class SometimesInfinite(Base):
    def result(self, point):
        return np.where(point > 0, point, -np.inf)


class TooShort(Base):
    def result(self, point):
        return point[1:]


class Table(Base):
    def result(self, point):
        return point[None, :]


class Nothing(Base):
    def result(self, point):
        return None


class Text(Base):
    def result(self, point):
        return "nearest"


class Shrinking(Base):
    """Not idempotent: half the way, each time."""

    def result(self, point):
        return point / 2


class Shifting(Base):
    def result(self, point):
        return point + 0.01


class Oblique(Base):
    """Idempotent and linear, onto the points whose first two entries agree, yet not the nearest of them."""

    def result(self, point):
        out = point.copy()
        out[0] = out[1]
        return out


class ClippedAndRenormalized(Base):
    """Idempotent, onto the distributions, yet not the nearest of them: a mistake often made."""

    def result(self, point):
        above = np.maximum(point, 0)
        return above / above.sum() if above.sum() > 0 else np.full_like(point, 1 / point.size)


class Scaled(Base):
    """Idempotent, onto the ball of the 1-norm, along the ray to zero instead of to the nearest."""

    def result(self, point):
        return point * min(1.0, 0.1 / max(np.abs(point).sum(), 1e-300))


class Sphere(Base):
    """The nearest point of a set that is not convex."""

    def result(self, point):
        length = np.linalg.norm(point)
        return point / length if length else np.eye(point.size)[0]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (NotANumber, "not finite"),
        (SometimesInfinite, "not finite"),
        (TooShort, r"returned shape \(5,\); it must return shape \(6,\)"),
        (Table, r"returned shape \(1, 6\)"),
        (Nothing, "returned"),
        (Text, "returned"),
        (Shrinking, "projecting its own result moves it again"),
        (Shifting, "projecting its own result moves it again"),
        (Oblique, "is not a projection: .*(nearest|nearer)"),
        (ClippedAndRenormalized, "is not a projection: .*(nearest|nearer)"),
        (Scaled, "is not a projection: .*(nearest|nearer)"),
        (Sphere, "is not a projection: .*(nearest|nearer)"),
    ],
)
@pytest.mark.parametrize("pairs", [6, 40])
def test_a_projection_that_is_none_is_refused_and_its_class_named(kind, reason, pairs):
    mdp = as_mdp(random_model(0, states=pairs // 2, actions=2))
    with pytest.raises(ValueError, match=reason.replace("6", str(pairs)).replace("5", str(pairs - 1))) as caught:
        cm.Problem(mdp, "cost", [kind()])
    assert kind.__name__ + ".project" in str(caught.value)


class Simplex:
    """The nearest distribution, sorted out by hand."""

    def project(self, point):
        ordered = np.sort(point)[::-1]
        shifts = (np.cumsum(ordered) - 1) / np.arange(1, point.size + 1)
        return np.maximum(point - shifts[ordered > shifts][-1], 0)


class Rough(Simplex):
    """A projection that is right to eight digits, as iterative ones are."""

    def project(self, point):
        return np.round(super().project(point), 8)


class InPlace:
    """At most 0.2 each, computed in the array that was given."""

    def project(self, point):
        np.clip(point, 0.0, 0.2, out=point)
        return point


class Cone:
    def project(self, point):
        return np.maximum(point, 0)


class Line:
    def project(self, point):
        direction = np.arange(1.0, point.size + 1)
        return direction * (point @ direction) / (direction @ direction)


@pytest.mark.parametrize("kind", [Simplex, Rough, InPlace, Cone, Line])
@pytest.mark.parametrize("pairs", [2, 6, 40])
def test_a_projection_that_is_one_is_accepted(kind, pairs):
    mdp = as_mdp(random_model(0, states=pairs // 2, actions=2))
    (made,) = bind([kind()], mdp)
    assert made.name == kind.__name__


def test_a_users_projection_may_work_in_place():
    """A wrong answer otherwise: the violation is that of an array against itself, and every policy seems to obey."""
    (made,) = bind([InPlace()], MDP)
    x = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    before = x.copy()
    assert made.violation(x) == pytest.approx(0.3)
    np.testing.assert_array_equal(x, before)
    z = made.project(x)
    np.testing.assert_array_equal(x, before)
    u, top = made.normal(made.dual(x, z, 2.0))
    np.testing.assert_allclose(u, 2 * (before - [0.2, 0.1, 0.1, 0.1, 0.1, 0.1]), atol=1e-15)
    assert top == pytest.approx(0.6 * 0.2)


def test_a_problem_with_a_projection_that_works_in_place_is_that_of_the_bounds():
    mdp = as_mdp(random_model(0))
    problem = cm.Problem(mdp, "cost", [InPlace()])
    solution, expected = problem.solve(time_limit=20), cm.Problem(mdp, "cost", [cm.Bounds(0.0, 0.2)]).solve()
    assert solution.status is cm.Status.OPTIMAL
    np.testing.assert_allclose(solution.occupancy, mdp.evaluate(solution.policy).occupancy, atol=1e-12)
    assert solution.occupancy.max() <= 0.2 * (1 + 2e-6)
    assert solution.value == pytest.approx(expected.value, abs=1e-5)


# ---------------------------------------------------------------------------------------- terms of users' own


class Half:
    """Half the sum of squares, of which each subclass has a wrong prox."""

    def value(self, point):
        return 0.5 * float(point @ point)

    def prox(self, point, step):
        return point / (1 + step)


class Identity(Half):
    def prox(self, point, step):
        return point


class Overshooting(Half):
    def prox(self, point, step):
        return point * (1 - step)


class NoStep(Half):
    """Right for step 1 only."""

    def prox(self, point, step):
        return point / 2


class Gradient(Half):
    def prox(self, point, step):
        return point - step * point / 4


class WrongShape(Half):
    def prox(self, point, step):
        return point[1:]


class NotFinite(Half):
    def prox(self, point, step):
        return np.full_like(point, np.inf)


class ValueOfNaN(Half):
    def value(self, point):
        return np.nan


class ValueAVector(Half):
    def value(self, point):
        return point


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Identity, r"Identity.prox is not a prox"),
        (Overshooting, r"Overshooting.prox is not a prox"),
        (NoStep, r"NoStep.prox is not a prox"),
        (Gradient, r"Gradient.prox is not a prox"),
        (WrongShape, r"WrongShape.prox returned shape \(5,\); it must return shape \(6,\)"),
        (NotFinite, r"NotFinite.prox returned entries that are not finite"),
        (ValueOfNaN, r"ValueOfNaN.value is nan; it must be a finite number"),
        (ValueAVector, r"ValueAVector.value is .*; it must be a finite number"),
    ],
)
def test_a_prox_that_is_none_is_refused_and_its_class_named(kind, reason):
    with pytest.raises(ValueError, match=reason):
        cm.Problem(MDP, ["cost", kind()])


def test_a_prox_that_is_one_is_accepted():
    assert cm.Problem(MDP, Half()).terms[0].name == "Half"
