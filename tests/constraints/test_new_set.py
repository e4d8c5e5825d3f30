"""A new set is one class: every engine that takes any set takes it, and infeasible problems are explained with it."""

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.blocks import Constraint, Response
from cvxmdp.status import Status


class Halfspace(Constraint):
    """``{d : row'd <= limit}``, written anew.  The dual is the multiplier."""

    flat = True

    def __init__(self, row, limit, name="halfspace"):
        self.row, self.limit, self.name = np.asarray(row, dtype=float), float(limit), name
        self.square = float(self.row @ self.row)

    def bind(self, mdp):
        assert self.row.shape == (mdp.num_pairs,)
        return self

    def project(self, point):
        return point - max(self.violation(point), 0.0) / self.square * self.row

    def dual(self, point, projected, scale):
        return np.array([scale * max(self.violation(point), 0.0) / self.square])

    def normal(self, dual):
        multiplier = np.maximum(dual[0], 0)
        return multiplier * self.row, multiplier * self.limit

    def response(self, point, projected, step):
        if self.violation(point) <= 0:
            return Response(np.zeros(point.size))
        return Response(np.zeros(point.size), (self.row / np.sqrt(self.square))[:, None])

    def idle(self):
        return np.zeros(1)

    def violation(self, point):
        return max(float(self.row @ point) - self.limit, 0.0)

    def level(self, point):
        return float(self.row @ point)

    def relative(self, point, spread=None):
        size = max(abs(self.limit), float(np.abs(self.row) @ np.abs(point)))
        more = 0.0 if spread is None else float(spread.of(np.abs(self.row)))
        return max(float(self.row @ point) + more - self.limit, 0.0) / size

    def price(self, dual):
        return -float(dual[0])

    def relaxed(self, amount, relative=False):
        return Halfspace(self.row, self.limit + amount * self.units(relative), self.name)

    def units(self, relative):
        return abs(self.limit) if relative else 1.0

    def ease(self, dual, relative=False):
        return max(float(dual[0]), 0.0) * self.units(relative)

    def moved(self, way):
        return Halfspace(self.row, self.limit + float(self.row @ way), self.name)

    def said(self, amount=0.0):
        return f"at most {self.limit + amount:.6g}"

    def stated(self):
        return {"kind": "custom"}, {}


MDP = cm.worlds.gridworld(size=4)
COLLISION = MDP.costs["collision"]


@pytest.mark.parametrize("method", ["auto", "newton", "splitting"])
def test_it_is_solved_like_the_budget_it_is(method):
    limit = 0.5 * cm.Problem(MDP, "time").solve().costs["collision"]
    expected = cm.Problem(MDP, "time", [cm.Budget("collision", at_most=limit)]).solve()
    solution = cm.Problem(MDP, "time", [Halfspace(COLLISION, limit)]).solve(method=method)
    assert solution.status is expected.status is Status.OPTIMAL
    assert solution.value == pytest.approx(expected.value, rel=3e-6)
    assert solution.prices["halfspace"] == pytest.approx(expected.prices["collision"], rel=1e-3)
    assert solution.levels["halfspace"] <= limit * (1 + 1e-6)


def test_where_no_policy_obeys_it_is_explained_like_any_other():
    least = cm.Problem(MDP, "time").solve().value
    solutions = [
        cm.Problem(MDP, "collision", [limit]).solve()
        for limit in (Halfspace(MDP.costs["time"], 0.9 * least), cm.Budget("time", at_most=0.9 * least))
    ]
    mine, expected = (solution.infeasibility for solution in solutions)
    assert [solution.status for solution in solutions] == [Status.INFEASIBLE] * 2
    assert mine.distance == pytest.approx(expected.distance, rel=1e-5)
    assert mine.relax["halfspace"].amount == pytest.approx(expected.relax["time"].amount, rel=1e-4)
    assert mine.conflict == ("halfspace",)
