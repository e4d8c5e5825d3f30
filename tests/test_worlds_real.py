"""The models of operations: each against its rule written again in plain Python, pair by pair and by name."""

from itertools import chain, combinations, product
from math import comb, exp, factorial

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

import cvxmdp as cm

worlds = cm.worlds


def assert_obeys(mdp, rule):
    """The model has the pairs of ``{(state, action): [(probability, next state, costs)]}`` and no others.

    Costs are averaged over the outcomes, which may repeat a next state.
    """
    found = {(mdp.states[s], mdp.actions[a]): i for i, (s, a) in enumerate(zip(mdp.state, mdp.action, strict=True))}
    assert set(found) == set(rule)
    assert set(mdp.states) == {state for state, _ in rule}
    P = mdp.transitions.toarray()
    for pair, outcomes in rule.items():
        expected, costs = {}, dict.fromkeys(mdp.costs, 0.0)
        for chance, target, paid in outcomes:
            if chance > 0:
                expected[target] = expected.get(target, 0.0) + chance
            assert set(paid) == set(mdp.costs)
            for name, cost in paid.items():
                costs[name] += chance * cost
        row = P[found[pair]]
        assert {mdp.states[t]: row[t] for t in np.flatnonzero(row)} == pytest.approx(expected, abs=1e-12), pair
        assert {name: cost[found[pair]] for name, cost in mdp.costs.items()} == pytest.approx(costs, abs=1e-12), pair


def begins_in(mdp, state):
    return mdp.initial[mdp.states.index(state)] == 1 and mdp.initial.sum() == 1


def poisson(mean):
    """``[(count, chance)]`` without the counts that are less likely than one in a million."""
    chances = {d: exp(-mean) * mean**d / factorial(d) for d in range(100)}
    kept = {d: chance for d, chance in chances.items() if chance >= 1e-6}
    return [(d, chance / sum(kept.values())) for d, chance in kept.items()]


# -------------------------------------------------------------------------------------------------- inventories


@pytest.mark.parametrize(
    ("demand", "counts"), [(2.5, poisson(2.5)), ((0.25, 0.0, 0.5, 0.25), [(0, 0.25), (2, 0.5), (3, 0.25)])]
)
def test_inventory(demand, counts):
    mdp = worlds.inventory(7, demand=demand, lot=3, fixed_cost=5.0, unit_cost=2.0, holding_cost=0.5, discount=0.9)
    rule = {}
    for stock in range(8):
        for order in (0, 3, 6):
            if stock + order > 7:
                continue
            outcomes = rule[f"stock {stock}", f"order {order}"] = []
            for d, chance in counts:
                left, lost = max(stock + order - d, 0), max(d - stock - order, 0)
                paid = (5.0 if order else 0.0) + 2.0 * order
                costs = {"order": paid, "holding": 0.5 * left, "shortage": lost, "cost": paid + 0.5 * left}
                outcomes.append((chance, f"stock {left}", costs))
    assert_obeys(mdp, rule)
    assert begins_in(mdp, "stock 0")
    assert mdp.discount == 0.9


def test_a_demand_that_sums_to_one_but_for_rounding_is_made_exact():
    mdp = worlds.inventory(3, demand=[0.5, 0.5 + 5e-7])
    assert mdp.costs["shortage"][0] == pytest.approx((0.5 + 5e-7) / (1 + 5e-7), rel=1e-12)


def test_a_lot_is_a_tenth_of_the_capacity():
    assert worlds.inventory(100).actions == tuple(f"order {10 * k}" for k in range(11))
    assert worlds.inventory(5).actions == tuple(f"order {k}" for k in range(6))
    assert worlds.perishable(2, 25).actions == tuple(f"order {2 * k}" for k in range(13))


@pytest.mark.parametrize(("shelf_life", "capacity", "lot"), [(3, 4, 1), (2, 5, 2), (4, 3, 1)])
def test_perishable(shelf_life, capacity, lot):
    mdp = worlds.perishable(
        shelf_life, capacity, demand=1.5, lot=lot, fixed_cost=0.7, unit_cost=1.2, disposal_cost=0.3, discount=0.95
    )
    rule = {}
    for stock in product(range(capacity + 1), repeat=shelf_life - 1):
        for order in range(0, capacity - sum(stock) + 1, lot):
            outcomes = rule["stock " + "+".join(map(str, stock)), f"order {order}"] = []
            for d, chance in poisson(1.5):
                # One unit at a time: periods left of each, the oldest sold first.
                units = [left for left, count in enumerate(stock, 1) for _ in range(count)] + [shelf_life] * order
                lost = max(d - len(units), 0)
                units = sorted(units)[d:]
                waste = units.count(1)
                aged = [left - 1 for left in units if left > 1]
                then = [aged.count(left) for left in range(1, shelf_life)]
                paid = (0.7 if order else 0.0) + 1.2 * order
                costs = {"order": paid, "waste": waste, "shortage": lost, "cost": paid + 0.3 * waste}
                outcomes.append((chance, "stock " + "+".join(map(str, then)), costs))
    assert_obeys(mdp, rule)
    assert begins_in(mdp, "stock " + "+".join(["0"] * (shelf_life - 1)))


def test_by_default_a_full_stock_of_perishables_lasts_as_long_as_it_keeps():
    mdp = worlds.perishable(3, 12)
    empty = (mdp.state == 0) & (mdp.action == 0)
    assert mdp.costs["shortage"][empty] == pytest.approx(4.0, abs=1e-4)


def test_a_long_shelf_life_is_no_trouble():
    """A state is found by its rank; a key with a digit for each age would not fit into 64 bits."""
    mdp = worlds.perishable(101, 1, demand=[0.5, 0.5])
    assert mdp.num_states == 101
    state = mdp.states.index("stock " + "+".join("1" if age == 7 else "0" for age in range(100)))
    (row,) = mdp.transitions[np.flatnonzero(mdp.state == state)].toarray()
    younger = "stock " + "+".join("1" if age == 6 else "0" for age in range(100))
    assert {mdp.states[t]: row[t] for t in np.flatnonzero(row)} == {mdp.states[0]: 0.5, younger: 0.5}


# ------------------------------------------------------------------------------------------------------- queues


def coin(chance):
    return ((1, chance), (0, 1 - chance))


@pytest.mark.parametrize("powers", [None, (0.1, 2.0, 3.0)])
def test_queue(powers):
    speeds = (0.0, 0.3, 0.9)
    mdp = worlds.queue(4, speeds, arrival=0.35, powers=powers, start=2, discount=0.97)
    rule = {}
    for length in range(5):
        for k, speed in enumerate(speeds):
            outcomes = rule[f"queue {length}", f"speed {speed:g}"] = []
            for (done, chance), (arrives, another) in product(coin(speed if length else 0.0), coin(0.35)):
                then = length - done + arrives
                lost = max(then - 4, 0)
                costs = {"power": powers[k] if powers else speed**3, "delay": length, "loss": lost}
                outcomes.append((chance * another, f"queue {then - lost}", costs))
    assert_obeys(mdp, rule)
    assert begins_in(mdp, "queue 2")


@pytest.mark.parametrize("powers", [None, (0.1, 2.0)])
def test_tandem(powers):
    speeds = (0.25, 0.8)
    mdp = worlds.tandem(3, speeds, arrival=0.4, powers=powers, discount=0.9)
    power = dict(zip(speeds, powers or [speed**3 for speed in speeds], strict=True))
    rule = {}
    for first, second, one, other in product(range(3), range(3), speeds, speeds):
        outcomes = rule[f"queues {first}+{second}", f"speeds {one:g}+{other:g}"] = []
        events = product(coin(other if second else 0.0), coin(one if first else 0.0), coin(0.4))
        for (leaves, a), (moves, b), (arrives, c) in events:
            x, y, lost = first, second, 0
            y -= leaves
            x -= moves
            if moves and y == 2:
                lost += 1
            elif moves:
                y += 1
            if arrives and x == 2:
                lost += 1
            elif arrives:
                x += 1
            costs = {"delay": first + second, "power": power[one] + power[other], "loss": lost}
            outcomes.append((a * b * c, f"queues {x}+{y}", costs))
    # Events without a chance may lead to lengths below 0, which no state has.
    rule = {pair: [o for o in outcomes if o[0] > 0] for pair, outcomes in rule.items()}
    assert_obeys(mdp, rule)
    assert begins_in(mdp, "queues 0+0")


@pytest.mark.parametrize(
    "classes", [((0.5, 1.0, 4.0), (0.8, 0.25, 1.0)), ((0.4, 2.0, 3.0), (0.3, 1.0, 2.0), (0.2, 0.5, 1.0))]
)
def test_admission(classes):
    servers, kinds = 3, range(len(classes))
    mdp = worlds.admission(servers, classes, discount=0.9)
    rates = [share * servers * rate for share, rate, _ in classes]
    total = sum(rates) + servers * max(rate for _, rate, _ in classes)
    rule = {}
    for busy in product(range(servers + 1), repeat=len(classes)):
        if sum(busy) > servers:
            continue
        subsets = chain.from_iterable(combinations(kinds, size) for size in range(len(classes) + 1))
        for admitted in subsets if sum(busy) < servers else [()]:
            action = "admit " + ("+".join(str(k + 1) for k in admitted) or "none")
            outcomes = rule["busy " + "+".join(map(str, busy)), action] = []
            idle = {"rejection": 0, "load": sum(busy) / servers, "loss": 0}
            for k, (_, rate, price) in enumerate(classes):
                for chance, change in ((rates[k] / total, 1), (busy[k] * rate / total, -1)):
                    then, costs = list(busy), dict(idle)
                    if change == -1 or k in admitted:
                        then[k] += change
                    else:
                        costs.update(rejection=price, loss=1)
                    outcomes.append((chance, "busy " + "+".join(map(str, then)), costs))
            rest = 1 - sum(chance for chance, _, _ in outcomes)
            outcomes.append((rest, "busy " + "+".join(map(str, busy)), idle))
    assert_obeys(mdp, rule)
    assert begins_in(mdp, mdp.states[0])


# -------------------------------------------------------------------------------- maintenance, epidemic and lake


@pytest.mark.parametrize(
    ("machines", "conditions", "crew", "wear"), [(2, 3, 1, 0.2), (3, 2, 2, (0.1, 0.5, 1.0)), (1, 4, 1, 0.0)]
)
def test_maintenance(machines, conditions, crew, wear):
    mdp = worlds.maintenance(
        machines, conditions, crew=crew, wear=wear, repair_cost=1.5, failure_cost=2.5, downtime_cost=0.7, discount=0.9
    )
    chances = wear if isinstance(wear, tuple) else (wear,) * machines
    rule = {}
    for worn in product(range(conditions), repeat=machines):
        used = [m for m in range(machines) if worn[m] > 0]
        for repaired in chain.from_iterable(combinations(used, size) for size in range(crew + 1)):
            action = "repair " + "+".join(str(m + 1) for m in repaired) if repaired else "wait"
            failed = {m for m in range(machines) if worn[m] == conditions - 1}
            paid = 1.5 * len(repaired) + 2.5 * len(failed & set(repaired))
            down = len(failed | set(repaired))
            costs = {"repair": paid, "downtime": down, "cost": paid + 0.7 * down}
            outcomes = rule["conditions " + "+".join(map(str, worn)), action] = []
            for wears in product((0, 1), repeat=machines):
                chance, then = 1.0, []
                for m, step in enumerate(wears):
                    chance *= chances[m] if step else 1 - chances[m]
                    then.append(0 if m in repaired else min(worn[m] + step, conditions - 1))
                outcomes.append((chance, "conditions " + "+".join(map(str, then)), costs))
    assert_obeys(mdp, rule)
    assert begins_in(mdp, "conditions " + "+".join(["0"] * machines))
    assert mdp.transitions.data.min() > 0


def test_epidemic():
    n, levels = 5, (0.1, 0.5)
    mdp = worlds.epidemic(n, levels, contact=0.8, recovery=0.3, infected=2, beds=1, discount=0.9)
    people = [(s, i) for s in range(n + 1) for i in range(n + 1 - s)]
    total = max(0.8 * 0.9 * s * i / n + 0.3 * i for s, i in people)
    rule = {}
    for s, i in people:
        for level in levels if i else levels[:1]:
            costs = {"infections": i, "lockdown": level, "beds": max(i - 1, 0)}
            caught, cured = 0.8 * (1 - level) * s * i / n / total, 0.3 * i / total
            rule[f"susceptible {s}, infected {i}", f"lockdown {level:g}"] = [
                (caught, f"susceptible {s - 1}, infected {i + 1}", costs),
                (cured, f"susceptible {s}, infected {i - 1}", costs),
                (1 - caught - cured, f"susceptible {s}, infected {i}", costs),
            ]
    assert_obeys(mdp, rule)
    assert begins_in(mdp, "susceptible 3, infected 2")


def test_by_default_a_twentieth_is_infected_and_a_tenth_has_beds():
    mdp = worlds.epidemic()
    assert begins_in(mdp, "susceptible 76, infected 4")
    ill = np.array([int(name.split()[-1]) for name in mdp.states])[mdp.state]
    np.testing.assert_array_equal(mdp.costs["beds"], np.maximum(ill - 8, 0))


@pytest.mark.parametrize("restart", [True, False])
def test_lake(restart):
    size, slip = 6, 0.3
    mdp = worlds.lake(size, slip=slip, restart=restart, holes=0.2, seed=4, discount=0.9)
    holes = {mdp.states[s] for s in mdp.state[mdp.costs["hole"] > 0]}
    assert len(holes) == round(0.2 * size**2)
    steps = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
    beside = {"up": ("left", "right"), "down": ("left", "right"), "left": ("up", "down"), "right": ("up", "down")}
    rule = {}
    for row, column in product(range(size), repeat=2):
        cell = f"r{row}c{column}"
        costs = {"time": 1, "hole": int(cell in holes)}
        if cell == "r5c5":
            rule[cell, "stay"] = [(1.0, cell, {"time": 0, "hole": 0})]
        elif cell in holes and restart:
            rule[cell, "restart"] = [(1.0, "r0c0", costs)]
        elif cell in holes:
            rule[cell, "stay"] = [(1.0, cell, costs)]
        else:
            for move in steps:
                outcomes = rule[cell, move] = []
                for way, chance in ((move, 1 - slip), *((side, slip / 2) for side in beside[move])):
                    r, c = row + steps[way][0], column + steps[way][1]
                    target = f"r{r}c{c}" if 0 <= r < size and 0 <= c < size else cell
                    outcomes.append((chance, target, costs))
    assert_obeys(mdp, rule)
    assert begins_in(mdp, "r0c0")


@pytest.mark.parametrize("seed", range(5))
def test_the_goal_of_a_lake_can_be_reached_over_ice(seed):
    size, share = 7, 0.6
    mdp = worlds.lake(size, holes=share, seed=seed)
    holes = set(mdp.state[mdp.costs["hole"] > 0].tolist())
    assert len(holes) == round(share * size**2)
    reached = {0}
    for cell in range(size * size):  # down and to the right, which is enough
        before = {cell - size} | ({cell - 1} if cell % size else set())
        if cell not in holes and before & reached:
            reached.add(cell)
    assert size * size - 1 in reached


def test_the_same_seed_gives_the_same_lake_and_another_seed_another():
    one, same, other = (worlds.lake(10, seed=seed).costs["hole"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


# --------------------------------------------------------------------------------------------------- disk drive


def test_disk_drive():
    """The model checkers' rule: the manager commands, then drive, requests and queue move, each by what was."""
    power = {"active": 2.5, "idle": 1.5, "low power": 0.8, "standby": 0.3, "sleep": 0.1}
    depth = ("active", "idle", "low power", "standby", "sleep")
    soon = {"low power": 0.25, "standby": 0.005, "sleep": 0.0017}
    drives = {*depth, *(f"{way} {rest}" for way in ("going to", "leaving") for rest in soon)}
    assert len(drives) == 11

    def moves(drive, goal):
        if drive.startswith("going to "):
            end = drive.removeprefix("going to ")
            return ((end, soon[end]), (drive, 1 - soon[end]))
        if drive.startswith("leaving "):
            chance = soon[drive.removeprefix("leaving ")]
            return (("active", chance), (drive, 1 - chance))
        if goal == "active":
            return ((drive if drive == "active" else "active" if drive == "idle" else f"leaving {drive}", 1.0),)
        deeper = depth.index(goal) > depth.index(drive)
        return ((drive if not deeper else "idle" if goal == "idle" else f"going to {goal}", 1.0),)

    rule = {}
    for drive, asked, waiting, goal in product(drives, (0, 1), range(3), depth):
        lost = int(asked and drive != "active" and waiting == 2)
        costs = {"power": power.get(drive, 2.5), "queue": waiting, "loss": lost}
        served = int(drive == "active")
        then = min(max(waiting + asked - served, 0), 2)
        name = {0: "no request", 1: "a request"}
        outcomes = rule[f"{drive}, {name[asked]}, {waiting} waiting", f"go {goal}"] = []
        for (after, chance), (next_asked, another) in product(moves(drive, goal), coin(0.546 if asked else 0.102)):
            outcomes.append((chance * another, f"{after}, {name[next_asked]}, {then} waiting", costs))
    mdp = worlds.disk_drive()
    assert (mdp.num_states, mdp.num_pairs, mdp.discount) == (66, 330, 0.9999)
    assert_obeys(mdp, rule)
    assert begins_in(mdp, "sleep, no request, 0 waiting")


def least(mdp, minimized, **limits):
    """The least normalized cost under limits, by HiGHS; None where no policy obeys."""
    owner = sp.csr_array((np.ones(mdp.num_pairs), (mdp.state, np.arange(mdp.num_pairs))))
    E = np.stack([mdp.costs[name] for name in limits]) if limits else None
    result = linprog(
        mdp.costs[minimized], A_ub=E, b_ub=list(limits.values()) or None, A_eq=owner - mdp.discount * mdp.transitions.T,
        b_eq=(1 - mdp.discount) * mdp.initial, method="highs",
    )  # fmt: skip
    assert result.status in (0, 2)
    return result.fun if result.status == 0 else None


def test_the_disk_drive_has_its_known_least_power():
    assert least(worlds.disk_drive(), "power", queue=0.5) == pytest.approx(1.5219473920, abs=2e-10)


@pytest.mark.parametrize("discount", [0.99, 0.999])
def test_a_disk_drive_that_is_discounted_faster_cannot_wake_in_time(discount):
    mdp = worlds.disk_drive(discount=discount)
    assert least(mdp, "power", queue=0.5) is None
    assert least(mdp, "queue") > 0.5


# ---------------------------------------------------------------------------------------- all of them

SMALL = {
    "inventory": (lambda: worlds.inventory(30, demand=3.0), "cost", "shortage"),
    "perishable": (lambda: worlds.perishable(3, 8), "cost", "shortage"),
    "queue": (lambda: worlds.queue(30), "power", "delay"),
    "admission": (lambda: worlds.admission(8), "rejection", "load"),
    "tandem": (lambda: worlds.tandem(6), "power", "delay"),
    "maintenance": (lambda: worlds.maintenance(), "repair", "downtime"),
    "epidemic": (lambda: worlds.epidemic(12), "lockdown", "infections"),
    "lake": (lambda: worlds.lake(10), "time", "hole"),
    "disk drive": (lambda: worlds.disk_drive(), "power", "queue"),
}


@pytest.mark.parametrize(("build", "cost", "limited"), SMALL.values(), ids=SMALL)
def test_a_limit_between_careful_and_cheap_has_a_price(build, cost, limited):
    """Half way between the least of a limited cost and what the cheapest policy has, the least cost rises."""
    mdp = build()
    free = least(mdp, cost)
    low, high = least(mdp, limited), least(mdp, limited, **{cost: free * (1 + 1e-9) + 1e-9})
    assert low < 0.9 * high
    assert least(mdp, cost, **{limited: (low + high) / 2}) > free + 1e-4


@pytest.mark.parametrize("build", [build for build, _, _ in SMALL.values()], ids=SMALL)
def test_rows_are_distributions_and_costs_are_not_negative(build):
    mdp = build()
    assert sp.issparse(mdp.transitions)
    assert mdp.transitions.data.min() > 0
    np.testing.assert_allclose(mdp.transitions.sum(axis=1), 1, rtol=1e-14)
    assert all(cost.min() >= 0 for cost in mdp.costs.values())
    mdp.with_discount(0.5)  # the model can be built again from its own parts


SIZES = {
    "inventory": (lambda: worlds.inventory(39), 40),
    "perishable": (lambda: worlds.perishable(4, 7), comb(10, 3)),
    "queue": (lambda: worlds.queue(39), 40),
    "admission": (lambda: worlds.admission(9), comb(11, 2)),
    "admission of three": (lambda: worlds.admission(9, [(0.3, 1.0, 1.0)] * 3), comb(12, 3)),
    "tandem": (lambda: worlds.tandem(7), 49),
    "maintenance": (lambda: worlds.maintenance(4, 3), 81),
    "epidemic": (lambda: worlds.epidemic(), 3321),
    "lake": (lambda: worlds.lake(9), 81),
}


@pytest.mark.parametrize(("build", "size"), SIZES.values(), ids=SIZES)
def test_sizes(build, size):
    assert build().num_states == size


def test_smallest_worlds():
    assert worlds.inventory(1).num_pairs == 3
    assert worlds.perishable(2, 1).num_pairs == 3
    assert worlds.queue(1, [0.5]).num_pairs == 2
    assert worlds.admission(1, [(1.0, 1.0, 1.0)]).num_pairs == 3
    assert worlds.tandem(2, [0.5]).num_pairs == 4
    assert worlds.maintenance(1, 2).num_pairs == 3
    assert worlds.epidemic(1, [0.0]).num_pairs == 3
    assert worlds.lake(2, holes=0.0).num_pairs == 13


BAD = {
    "no capacity": (lambda: worlds.inventory(0), ["capacity is 0", "at least 1"]),
    "half a unit": (lambda: worlds.inventory(2.5), ["capacity", "whole number", "2.5"]),
    "an empty lot": (lambda: worlds.inventory(lot=0), ["lot is 0", "at least 1"]),
    "a negative mean": (lambda: worlds.inventory(demand=-1.0), ["demand is -1", "at least 0"]),
    "a huge mean": (lambda: worlds.inventory(demand=1e9), ["demand is 1e+09", "at most 1e+06"]),
    "a demand in words": (lambda: worlds.inventory(demand="much"), ["demand", "number", "'much'"]),
    "no demand": (lambda: worlds.inventory(demand=[]), ["demand is empty", "at least one"]),
    "a demand that is no distribution": (lambda: worlds.perishable(demand=[0.5, 0.4]), ["demand sums to 0.9, not 1"]),
    "a negative chance": (lambda: worlds.perishable(demand=[1.5, -0.5]), ["demand[0] is 1.5", "at most 1"]),
    "a negative fixed cost": (lambda: worlds.inventory(fixed_cost=-2), ["fixed_cost is -2", "at least 0"]),
    "an unknown unit cost": (lambda: worlds.perishable(unit_cost=float("nan")), ["unit_cost is nan"]),
    "an infinite holding cost": (lambda: worlds.inventory(holding_cost=float("inf")), ["holding_cost is inf"]),
    "what expires at once": (lambda: worlds.perishable(1), ["shelf_life is 1", "at least 2"]),
    "a disposal that pays": (lambda: worlds.perishable(disposal_cost=-1), ["disposal_cost is -1"]),
    "too many states": (lambda: worlds.perishable(20, 100), ["shelf_life and capacity", "states", "smaller"]),
    "a speed above one": (lambda: worlds.queue(5, [0.5, 1.5]), ["speeds[1] is 1.5", "at most 1"]),
    "speeds that fall": (lambda: worlds.queue(5, [0.5, 0.2]), ["speeds has 0.2 after 0.5"]),
    "no speeds": (lambda: worlds.queue(5, []), ["speeds is empty"]),
    "one speed alone": (lambda: worlds.tandem(5, 0.5), ["speeds", "list of numbers", "0.5"]),
    "speeds too close to name": (
        lambda: worlds.queue(5, [0.5, 0.5 + 1e-12]),
        ["speeds has 0.500000000001 after 0.5", "six digits"],
    ),
    "levels too close to name": (
        lambda: worlds.epidemic(5, [0.5, 0.5 + 1e-12]),
        ["levels has 0.500000000001 after 0.5", "six digits"],
    ),
    "too few powers": (lambda: worlds.tandem(5, powers=[1.0]), ["powers has 1", "3 speeds"]),
    "a negative power": (lambda: worlds.queue(5, [0.5], powers=[-1]), ["powers[0] is -1"]),
    "an arrival above one": (lambda: worlds.queue(arrival=1.1), ["arrival is 1.1", "at most 1"]),
    "more than fit at the start": (lambda: worlds.queue(5, start=6), ["start is 6", "at most", "5"]),
    "a tandem without room": (lambda: worlds.tandem(1), ["size is 1", "at least 2"]),
    "no classes": (lambda: worlds.admission(5, []), ["classes has 0 entries", "between 1 and 8"]),
    "too many classes": (lambda: worlds.admission(5, [(1, 1, 1)] * 9), ["classes has 9 entries", "between 1 and 8"]),
    "a number for classes": (lambda: worlds.admission(5, 2), ["classes", "(share, rate, price)", "2"]),
    "a class of two numbers": (lambda: worlds.admission(5, [(1, 1)]), ["classes[0] has 2", "(share, rate, price)"]),
    "a class that never ends": (lambda: worlds.admission(5, [(1, 0, 1)]), ["rate in classes[0] is 0", "above 0"]),
    "a negative share": (lambda: worlds.admission(5, [(-1, 1, 1)]), ["share in classes[0] is -1"]),
    "a negative price": (lambda: worlds.admission(5, [(1, 1, -1)]), ["price in classes[0] is -1"]),
    "no machines": (lambda: worlds.maintenance(0), ["machines is 0"]),
    "one condition": (lambda: worlds.maintenance(2, 1), ["conditions is 1", "at least 2"]),
    "a crew that is too large": (lambda: worlds.maintenance(2, crew=3), ["crew is 3", "at most", "2"]),
    "too few wears": (lambda: worlds.maintenance(3, wear=[0.1, 0.1]), ["wear has 2", "3 machines"]),
    "a wear above one": (lambda: worlds.maintenance(3, wear=1.2), ["wear is 1.2", "at most 1"]),
    "too many conditions": (lambda: worlds.maintenance(20, 20), ["machines and conditions", "states"]),
    "nobody": (lambda: worlds.epidemic(0), ["population is 0"]),
    "more ill than there are": (lambda: worlds.epidemic(5, infected=6), ["infected is 6", "at most", "5"]),
    "a lockdown above one": (lambda: worlds.epidemic(5, [0.0, 2.0]), ["levels[1] is 2", "at most 1"]),
    "no contacts": (lambda: worlds.epidemic(5, contact=0), ["contact is 0", "above 0"]),
    "no recovery": (lambda: worlds.epidemic(5, recovery=0), ["recovery is 0", "above 0"]),
    "negative beds": (lambda: worlds.epidemic(5, beds=-1), ["beds is -1", "at least 0"]),
    "a lake of one cell": (lambda: worlds.lake(1), ["size is 1", "at least 2"]),
    "a slip above one": (lambda: worlds.lake(slip=1.5), ["slip is 1.5", "at most 1"]),
    "all holes": (lambda: worlds.lake(holes=1.0), ["holes is 1", "below 1"]),
    "more holes than fit": (lambda: worlds.lake(4, holes=0.8), ["holes is 0.8", "13 cells", "at most 9"]),
    "a bad seed": (lambda: worlds.lake(seed=-1), ["seed", "-1", "at least 0"]),
    "a bad discount": (lambda: worlds.disk_drive(discount=1.0), ["discount", "between 0 and 1"]),
}


@pytest.mark.parametrize(("build", "words"), BAD.values(), ids=BAD)
def test_bad_arguments_are_refused_by_name(build, words):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011, the message is checked below
        build()
    for word in words:
        assert word in str(refusal.value)
