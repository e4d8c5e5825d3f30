"""Ranges of prices, against a second solver inside, at and beyond their ends."""

import numpy as np
import pytest
import scipy.optimize as opt
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cvxmdp as cm

EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Case:
    """A model with limits that a random policy just obeys, in any units, from any side, and the optimum by HiGHS."""

    def __init__(self, seed, limits):
        rng = np.random.default_rng(seed)
        states = int(rng.integers(2, 12))
        mdp = cm.worlds.garnet(states, int(rng.integers(2, 4)), 0.6, seed=seed, discount=float(rng.uniform(0.5, 0.99)))
        self.cost, *self.rows = rng.uniform(size=(limits + 1, mdp.num_pairs))
        if rng.random() < 0.4:
            self.rows = [np.round(row) for row in self.rows]  # many policies use the same
        for i, row in enumerate(self.rows):
            mdp = mdp.with_cost(f"row {i}", row)
        d = mdp.evaluate(rng.dirichlet(np.ones(len(mdp.actions)), size=states)).occupancy
        self.mdp, self.levels, self.ways, self.units, stated = mdp, [], [], [], []
        for i, row in enumerate(self.rows):
            per, way = str(rng.choice(["step", "episode"])), int(rng.choice([1, 1, -1]))
            unit = 1 / (1 - mdp.discount) if per == "episode" else 1.0
            level = float(row @ d) * unit
            side = {"at_most" if way > 0 else "at_least": level}
            stated.append(cm.Budget(f"row {i}", **side, per=per))
            self.levels.append(level)
            self.ways.append(way)
            self.units.append(unit)
        self.sign = -1 if rng.random() < 0.4 else 1
        aim = {"maximize": self.cost} if self.sign < 0 else {"minimize": self.cost}
        self.problem = cm.Problem(mdp, subject_to=stated, **aim)

    def best(self, k, limit):
        """The optimum with limit k moved; infinite where no policy obeys."""
        mdp, count = self.mdp, self.mdp.num_pairs
        at = sp.csr_array((np.ones(count), (mdp.state, np.arange(count))))
        flow = at - mdp.discount * sp.csr_array(mdp.transitions).T
        levels = [limit if i == k else level for i, level in enumerate(self.levels)]
        rows = [way * row for way, row in zip(self.ways, self.rows, strict=True)]
        ends = [way * level / unit for way, level, unit in zip(self.ways, levels, self.units, strict=True)]
        start = (1 - mdp.discount) * mdp.initial
        found = opt.linprog(self.sign * self.cost, np.array(rows), ends, flow, start, options=EXACT)
        return self.sign * found.fun if found.status == 0 else np.inf

    def slope(self, k, limit, step):
        """Return the change of the optimum for each unit beside a limit, per step; NaN where it bends within a step."""
        values = [self.best(k, limit + share * step) for share in (0, 0.5, 1)]
        near, far = np.diff(values) / (step / 2) * self.units[k]
        return near if abs(near - far) <= 1e-3 * max(abs(near), abs(far)) else np.nan


def assert_true(case, k, found):
    """All that a range says, as far as a linear program can tell."""
    now, span = case.levels[k], case.problem.range(f"row {k}")
    wide = max(abs(span.loosest - span.tightest), 0.01 * abs(now)) or 1e-3
    here = case.best(k, now)
    tiny = 4e-6 * max(abs(here), 0.1)  # what is proven of values
    assert found.low - 1e-5 * wide <= now <= found.high + 1e-5 * wide
    for end, beyond, side in ((found.low, found.left, -1), (found.high, found.right, 1)):
        if np.isinf(end):
            assert beyond == 0
            continue
        inside = now + 0.999 * (end - now)
        assert case.best(k, inside) == pytest.approx(here + found.price / case.units[k] * (inside - now), abs=tiny)
        step = 1e-3 * wide * side
        if np.isnan(beyond):
            assert np.isinf(case.best(k, end + step))
            continue
        slope = case.slope(k, end, step)
        if np.isfinite(slope):  # else the next corner is as near
            assert slope == pytest.approx(beyond, rel=0.01, abs=tiny / abs(step) * case.units[k])
            assert found.low == found.high or abs(slope - found.price) > 1e-6 * max(abs(slope), abs(found.price))


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_ranges_of_prices_are_true_under_limits_of_all_kinds(seed, limits):
    case = Case(seed, limits)
    solution = case.problem.solve()
    if solution.status is not cm.Status.OPTIMAL:
        return  # a limit at its very end
    found = solution.price_ranges()
    for k in range(limits):
        if f"row {k}" in found:
            assert_true(case, k, found[f"row {k}"])


@pytest.fixture
def crossing():
    """One state; of its actions, "a" uses nothing and costs 2, "b" nothing and 1, "c" all and nothing."""
    stay = [[1.0]]
    return cm.MDP(
        [stay] * 3, {"cost": [[2.0, 1.0, 0.0]], "use": [[0.0, 0.0, 1.0]]}, discount=0.9, actions=["a", "b", "c"]
    )


def test_of_policies_that_use_least_the_cheapest_is_the_first_corner(crossing):
    """A past bug: a dearer policy that uses as little was taken for a corner, and its chord for an edge."""
    front = cm.Problem(crossing, "cost").pareto("cost", "use", points=3)
    np.testing.assert_allclose(front.breakpoints, [[0, 1], [1, 0]], atol=1e-12)
    found = cm.Problem(crossing, "cost", [cm.Budget("use", at_most=0.5)]).solve().price_ranges()["use"]
    assert (found.price, found.low, found.high, found.right) == pytest.approx((-1, 0, 1, 0), abs=1e-9)
    assert np.isnan(found.left)
    assert str(found) == "price -1 from 0 to 1; no policy obeys below, 0 above"


def test_a_limit_that_others_leave_one_value_has_no_room_on_either_side():
    """A past bug: the price of a limit at its tightest was said to hold up to its loosest."""
    stay = [[1.0]]
    costs = {"cost": [[3.0, 1.0, 0.0]], "use": [[0.0, 0.5, 1.0]], "other": [[1.0, 0.5, 0.0]]}
    mdp = cm.MDP([stay] * 3, costs, discount=0.9)
    limits = [cm.Budget("use", at_most=0.25), cm.Budget("other", at_most=0.75)]
    solution = cm.Problem(mdp, "cost", limits).solve()
    found = solution.price_ranges()["use"]
    # use + other is one: other <= 0.75 asks for use of at least 0.25, where the optimum is 2 and falls by 4 a unit.
    assert (found.low, found.high, found.right) == pytest.approx((0.25, 0.25, -4), abs=1e-5)
    assert np.isnan(found.left)
    assert found.price == solution.prices["use"] <= -4 + 1e-6


def test_ranges_of_totals_are_those_per_step_in_the_users_unit():
    mdp = cm.worlds.gridworld(size=6)
    step = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=3e-4)]).solve().price_ranges()["collision"]
    total = cm.Problem(mdp, "time", [cm.Budget("collision", at_most=0.03, per="episode")]).solve()
    found = total.price_ranges()["collision"]
    assert (found.low, found.high) == pytest.approx((100 * step.low, 100 * step.high), rel=1e-9)
    assert (found.price, found.left, found.right) == pytest.approx((step.price, step.left, step.right), rel=1e-9)
    again = cm.Problem(mdp, maximize=-mdp.costs["time"], subject_to=[cm.Budget("collision", at_most=3e-4)])
    turned = again.solve().price_ranges()["collision"]
    assert (turned.low, turned.high) == pytest.approx((step.low, step.high), rel=1e-9)
    assert (turned.price, turned.left, turned.right) == pytest.approx((-step.price, -step.left, -step.right), rel=1e-9)


def test_a_limit_beside_others_that_does_not_bind_is_free_from_its_loosest_on():
    mdp = cm.worlds.queue(10, discount=0.95)
    problem = cm.Problem(mdp, "delay", [cm.Budget("loss", at_most=0.02), cm.Budget("power", at_most=100.0)])
    found = problem.solve().price_ranges()["power"]
    assert found.price == found.right == 0
    assert found.high == np.inf
    assert found.low == pytest.approx(problem.range("power").loosest, rel=1e-5)
    assert found.left < 0
    assert str(found).startswith("price 0 from ")


def test_a_curved_limit_has_its_price_at_itself_alone():
    mdp = cm.worlds.gridworld(size=4)
    found = cm.Problem(mdp, "time", [cm.Entropy(at_least=2.5)]).solve().price_ranges()["entropy"]
    assert found.low == found.high == 2.5
    assert str(found).endswith("at 2.5; it changes with the limit")
