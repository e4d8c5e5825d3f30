"""Misuse raises ValueError that names the argument, or the state and action by the user's names, and the cure."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm

STAY, GO = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
NAMES = {"states": ["away", "home"], "actions": ["stay", "go"]}
NAN, INF = np.nan, np.inf


def model(transitions=(STAY, GO), costs=None, discount=0.9, **more):
    return cm.MDP(transitions, {"time": [1.0, 0.0]} if costs is None else costs, discount, **{**NAMES, **more})


def pairs(state=(0, 0, 1), action=(0, 1, 0), transitions=((1, 0), (0, 1), (0, 1)), costs=None, discount=0.9, **more):
    """State home offers only stay."""
    costs = {"time": [1.0, 1.0, 0.0]} if costs is None else costs
    return cm.MDP.from_pairs(state, action, transitions, costs, discount, **{**NAMES, **more})


def solve(*constraints, **arguments):
    return cm.Problem(model(), "time", constraints).solve(**arguments)


def solution():
    return solve(cm.Budget("time", at_most=0.5))


class Shifted:
    def project(self, point):
        return point + 1.0


class Shortened:
    def project(self, point):
        return point[:-1]


class Undefined:
    def project(self, point):
        return point * np.nan


MODELS = {
    "a row sums to more than one": (
        lambda: model([STAY, [[0.0, 1.0], [0.5, 0.6]]]),
        ["state home, action go", "sum to 1.1", "not 1", "divide the row by its sum"],
    ),
    "a sparse row sums to less than one": (
        lambda: model([sp.csr_array(STAY), sp.csr_array([[0.0, 0.25], [1.0, 0.0]])]),
        ["state away, action go", "sum to 0.25", "not 1"],
    ),
    "a sparse row is empty": (
        lambda: model([sp.csr_array(STAY), sp.csr_array([[0.0, 0.0], [1.0, 0.0]])]),
        ["state away, action go", "sum to 0", "where the process ends"],
    ),
    "a probability is negative": (
        lambda: model([STAY, [[-0.1, 1.1], [1.0, 0.0]]]),
        ["reaching state away", "from state away, action go", "-0.1", "at least 0"],
    ),
    "a probability is not a number": (
        lambda: model([STAY, [[0.0, 1.0], [1.0, NAN]]]),
        ["reaching state home", "from state home, action go", "nan", "finite"],
    ),
    "a probability is infinite": (
        lambda: model([sp.csr_array(STAY), sp.csr_array([[0.0, INF], [1.0, 0.0]])]),
        ["reaching state home", "from state away, action go", "inf", "finite"],
    ),
    "transitions are two-dimensional": (lambda: model(STAY), ["transitions", "(2, 2)", "(A, S, S)", "from_pairs"]),
    "transitions are not square": (
        lambda: model(np.full((2, 2, 3), 1 / 3)),
        ["transitions", "(2, 2, 3)", "(A, S, S)"],
    ),
    "sparse transitions are not square": (
        lambda: model([sp.csr_array(np.full((2, 3), 1 / 3))] * 2),
        ["transitions", "action 0", "(2, 3)", "S x S"],
    ),
    "sparse transitions differ in shape": (
        lambda: model([sp.csr_array(STAY), sp.csr_array(np.eye(3))]),
        ["transitions", "action 1", "(3, 3)", "same"],
    ),
    "transitions are empty": (lambda: model([]), ["transitions", "(A, S, S)"]),
    "transitions are words": (lambda: model("grid"), ["transitions", "numbers"]),
    "transitions are missing": (lambda: model(None), ["transitions"]),
    "transitions are one number": (lambda: model(3), ["transitions"]),
    "costs are not named": (lambda: model(costs=[1.0, 0.0]), ["costs", "mapping of names", '{"time": array}']),
    "there is no cost": (lambda: model(costs={}), ["costs", "at least one"]),
    "the name of a cost is a number": (lambda: model(costs={3: [1.0, 0.0]}), ["name of a cost", "string", "3"]),
    "the name of a cost is empty": (lambda: model(costs={"": [1.0, 0.0]}), ["name of a cost", "non-empty"]),
    "a cost has the wrong shape": (
        lambda: model(costs={"time": np.zeros((2, 3))}),
        ["cost 'time'", "(2, 3)", "(S,) = (2,)", "(S, A) = (2, 2)", "(A, S, S) = (2, 2, 2)"],
    ),
    "a cost is words": (lambda: model(costs={"time": ["a", "b"]}), ["cost 'time'", "numbers"]),
    "a cost is not finite": (
        lambda: model(costs={"time": [[0.0, 0.0], [0.0, INF]]}),
        ["cost 'time'", "inf", "state home, action go", "finite", "leave it out with MDP.from_pairs"],
    ),
    "a cost of a move is not finite": (
        lambda: model(costs={"time": np.full((2, 2, 2), INF)}),
        ["cost 'time'", "state away, action stay", "finite"],
    ),
    "the discount is one": (lambda: model(discount=1), ["discount", "1.0", "between 0 and 1", "excluded"]),
    "the discount is zero": (lambda: model(discount=0), ["discount", "between 0 and 1"]),
    "the discount is not a number": (lambda: model(discount=NAN), ["discount", "nan", "between 0 and 1"]),
    "the discount is a word": (lambda: model(discount="high"), ["discount", "number", "'high'"]),
    "the discount is missing": (lambda: model(discount=None), ["discount", "number", "None"]),
    "initial is too short": (lambda: model(initial=[1.0]), ["initial", "(1,)", "2 states"]),
    "initial is negative": (lambda: model(initial=[1.5, -0.5]), ["initial", "state home", "-0.5", "at least 0"]),
    "initial is not a number": (lambda: model(initial=[NAN, 1.0]), ["initial", "state away", "nan"]),
    "initial sums to two": (lambda: model(initial=[1.0, 1.0]), ["initial", "sums to 2", "divide it by its sum"]),
    "initial is no known name": (lambda: model(initial="awya"), ["initial", "no state called 'awya'"]),
    "too few names of states": (lambda: model(states=["away"]), ["states", "1 names", "2 states"]),
    "too many names of states": (lambda: model(states=["a", "b", "c"]), ["states", "3 names", "2 states"]),
    "too few names of actions": (lambda: model(actions=["stay"]), ["actions", "1 names", "2 actions"]),
    "a name twice": (lambda: model(states=["home", "home"]), ["states", "'home' twice", "differ"]),
    "names are a number": (lambda: model(states=2), ["states"]),
    "names are tuples": (
        lambda: model(states=[(0, 0), (0, 1)]),
        ["states", "(0, 0)", "tuple", "strings or whole numbers"],
    ),
    "names are fractions": (lambda: model(actions=[0.5, 1.5]), ["actions", "0.5", "float", "strings"]),
    "names are truth values": (lambda: model(actions=[False, True]), ["actions", "False", "bool"]),
    "a name is missing": (lambda: model(states=["away", None]), ["states", "None", "NoneType"]),
    "transitions are complex": (
        lambda: model(np.array([STAY, GO]) + 0.5j),
        ["transitions", "complex", "real"],
    ),
    "sparse transitions are complex": (
        lambda: model([sp.csr_array(STAY), sp.csr_array(np.array(GO) * (1 + 0.5j))]),
        ["transitions", "complex", "real"],
    ),
    "a list of complex transitions": (lambda: model([STAY, [[0.0, 1.0 + 1j], [1.0, 0.0]]]), ["transitions", "complex"]),
    "a cost is complex": (lambda: model(costs={"time": np.array([1.0, 1j])}), ["cost 'time'", "complex"]),
    "initial is complex": (lambda: model(initial=[1.0 + 0j, 0.0]), ["initial", "complex"]),
    "a cost holds None": (lambda: model(costs={"time": [1.0, None]}), ["cost 'time'", "None", "numbers"]),
    "a cost holds words among numbers": (
        lambda: model(costs={"time": np.array([1.0, "2"], dtype=object)}),
        ["cost 'time'", "'2'", "str", "numbers"],
    ),
    "a cost holds digits as words": (lambda: model(costs={"time": ["1", "2"]}), ["cost 'time'", "'1'", "numbers"]),
    "transitions hold a set": (
        lambda: model(np.array([STAY, [[0.0, {1}], [1.0, 0.0]]], dtype=object)),
        ["transitions", "{1}", "set", "numbers"],
    ),
    "a cost is a whole number too large for a float": (
        lambda: model(costs={"time": [10**400, 0]}),
        ["cost 'time'", "too large"],
    ),
    "a cost would overflow": (
        lambda: model(costs={"time": [[0.0, 0.0], [0.0, -1e308]]}),
        ["cost 'time'", "-1e+308", "state home, action go", "1e+150", "larger unit"],
    ),
    "a cost of a move would overflow": (
        lambda: model(costs={"time": np.full((2, 2, 2), 1.7e308)}),
        ["cost 'time'", "state away, action stay", "1e+150"],
    ),
}

PAIRS = {
    "pairs out of order": (
        lambda: pairs(state=(1, 0, 0), action=(0, 0, 1)),
        ["state away, action stay (pair 1)", "after state home, action stay", "MDP.order(state, action)"],
    ),
    "an order of unequal lengths": (
        lambda: cm.MDP.order([0, 1], [0]),
        ["action", "(1,)", "state has 2 entries"],
    ),
    "an order of names": (lambda: cm.MDP.order(["away", "home"], [0, 0]), ["state", "whole numbers"]),
    "sparse rows are complex": (
        lambda: pairs(transitions=sp.csr_array(np.array([[1, 0], [0, 1], [0, 1j]]))),
        ["transitions", "complex"],
    ),
    "a pair twice": (lambda: pairs(action=(1, 1, 0)), ["state away, action go", "twice", "merge"]),
    "a state without actions": (
        lambda: pairs(state=(0, 0, 0), action=(0, 1, 2), actions=["stay", "go", "wait"]),
        ["state home", "no action", "add an action that returns to it"],
    ),
    "a state out of range": (lambda: pairs(state=(0, 0, 2)), ["state holds 2", "below 2"]),
    "a negative action": (lambda: pairs(action=(0, -1, 0)), ["action holds -1", "at least 0"]),
    "an action without a name": (lambda: pairs(action=(0, 2, 0)), ["action holds 2", "below 2"]),
    "states by name": (
        lambda: pairs(state=["away", "away", "home"]),
        ["state", "whole numbers", "states="],
    ),
    "fractional actions": (lambda: pairs(action=(0.0, 1.0, 0.0)), ["action", "whole numbers", "float64"]),
    "too few states": (lambda: pairs(state=(0, 1)), ["state", "(2,)", "3 rows", "3 entries"]),
    "too few actions": (lambda: pairs(action=(0, 1)), ["action", "(2,)", "3 rows", "3 entries"]),
    "a cost is too long": (
        lambda: pairs(costs={"time": np.zeros(4)}),
        ["cost 'time'", "(4,)", "3 pairs", "2 states"],
    ),
    "transitions are a cube": (
        lambda: pairs(transitions=[STAY, GO]),
        ["transitions", "(2, 2, 2)", "one row for each pair", "one column for each state"],
    ),
    "a row is short of mass": (
        lambda: pairs(transitions=((1, 0), (0, 1), (0, 0.5))),
        ["state home, action stay", "sum to 0.5"],
    ),
    "names of actions are a number": (lambda: pairs(actions=2), ["actions"]),
    "a column index beyond the states": (
        lambda: pairs(transitions=out_of_range(), states=["away", "home"]),
        ["transitions"],
    ),
}


def out_of_range():
    """A broken sparse matrix: its index arrays point outside (a past bug: it was accepted, and then read memory)."""
    matrix = sp.csr_array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    matrix.indices = np.array([0, 1, 1000], dtype=matrix.indices.dtype)
    return matrix


POLICIES = {
    "an action the state does not offer": (
        lambda: pairs().evaluate([0, 1]),
        ["action go in state home", "does not offer", "it offers stay"],
    ),
    "an action that no state offers": (
        lambda: model().policy([0, 7]),
        ["action 7 in state home", "does not offer", "it offers stay, go"],
    ),
    "an action that the only one is not": (
        lambda: pairs((0, 1), (1, 0), STAY, {"time": [1.0, 0.0]}).policy([0, 0]),
        ["action stay in state away", "does not offer", "it offers go"],
    ),
    "probabilities that sum to two": (
        lambda: model().policy([[0.5, 0.5], [1.0, 1.0]]),
        ["state home", "sum to 2", "not 1", "divide them by their sum"],
    ),
    "no probability at all": (
        lambda: model().policy([0.5, 0.5, 0.0, 0.0]),
        ["state home", "sum to 0", "not 1", "above 0"],
    ),
    "mass beyond one on an action that is not offered": (
        # A past bug: it was dropped without a word.
        lambda: pairs().policy([[0.5, 0.5], [1.0, 0.5]]),
        ["action go in state home", "does not offer"],
    ),
    "complex probabilities": (lambda: model().policy([0.5 + 0.1j, 0.5, 1.0, 0.0]), ["policy", "complex"]),
    "acting between two states": (
        lambda: model().policy([0, 0]).act(0.5),
        ["state is 0.5", "name", "whole number"],
    ),
    "acting in a truth value": (lambda: model().policy([0, 0]).act(True), ["state is True", "whole number"]),
    "acting nowhere": (lambda: model().policy([0, 0]).act(None), ["state is None", "whole number"]),
    "probabilities that do not sum to one": (
        lambda: model().policy([[0.5, 0.5], [0.5, 0.25]]),
        ["state home", "sum to 0.75", "not 1"],
    ),
    "mass on an action that is not offered": (
        lambda: pairs().policy([[0.5, 0.5], [0.5, 0.5]]),
        ["action go in state home", "does not offer", "it offers stay"],
    ),
    "a negative probability": (lambda: model().policy([[1.5, -0.5], [1.0, 0.0]]), ["policy", "negative", "away"]),
    "a probability that is not a number": (lambda: model().policy([NAN, 1.0, 1.0, 0.0]), ["policy", "finite", "away"]),
    "a policy of the wrong shape": (
        lambda: model().evaluate(np.zeros((3, 2))),
        ["policy", "(3, 2)", "4 pairs", "(S, A) = (2, 2)", "one whole-numbered action for each state"],
    ),
    "a policy of words": (lambda: model().policy(["stay", "go"]), ["policy", "whole-numbered"]),
    "a policy of uneven rows": (lambda: model().policy([[1.0], [0.5, 0.5]]), ["policy", "(S, A)"]),
    "a policy of a smaller model": (lambda: model().evaluate(pairs().policy([0, 0])), ["policy", "3 pairs", "4"]),
    "a policy of another model of the same size": (
        # Two states with three actions, and three with two: six pairs each (a past bug: NaN came out).
        lambda: cm.MDP([STAY] * 3, {"time": [1, 0]}, 0.9).evaluate(
            cm.MDP([np.eye(3)] * 2, {"time": [1, 0, 0]}, 0.9).policy([0, 0, 0])
        ),
        ["policy", "model"],
    ),
    "acting in a state without that name": (lambda: model().policy([0, 0]).act("abroad"), ["state", "'abroad'"]),
    "acting in a state beyond the last": (lambda: model().policy([0, 0]).act(2), ["state 2", "between 0 and 1"]),
}

PROBLEMS = {
    "a problem without a model": (lambda: cm.Problem(STAY, "time"), ["mdp", "cvxmdp.MDP", "list"]),
    "an objective without that name": (lambda: cm.Problem(model(), "speed"), ["no cost called 'speed'", "'time'"]),
    "an objective of the wrong length": (lambda: cm.Problem(model(), [1.0, 2.0]), ["(2,)", "a name", "4 pairs"]),
    "an objective that is not finite": (
        lambda: cm.Problem(model(), [1.0, INF, 0.0, 0.0]),
        ["minimize", "inf", "state away, action go", "finite"],
    ),
    "an objective that would overflow": (
        lambda: cm.Problem(model(), [1.0, 0.0, 0.0, 1e200]),
        ["minimize", "1e+200", "state home, action go", "1e+150"],
    ),
    "a complex objective": (lambda: cm.Problem(model(), np.array([1.0, 1j, 0, 0])), ["minimize", "complex"]),
    "one constraint without a list": (
        lambda: cm.Problem(model(), "time", cm.Budget("time", at_most=1)),
        ["subject_to", "list", "Budget"],
    ),
    "a constraint as text": (lambda: cm.Problem(model(), "time", ["time <= 1"]), ["subject_to", "str", "cm.Budget"]),
    "a class of constraints": (lambda: cm.Problem(model(), "time", [cm.Budget]), ["subject_to", "Budget"]),
    "a constraint that is not one": (
        lambda: cm.Problem(model(), "time", [cm.Budget("time", 1), None]),
        ["subject_to", "NoneType", "project(point)"],
    ),
}

ARGUMENTS = {
    "tolerance zero": (lambda: solve(tolerance=0), ["tolerance", "0", "between 0 and 1", "1e-6"]),
    "tolerance one": (lambda: solve(tolerance=1.0), ["tolerance", "between 0 and 1"]),
    "tolerance not a number": (lambda: solve(tolerance=NAN), ["tolerance", "nan"]),
    "tolerance a word": (lambda: solve(tolerance="tight"), ["tolerance", "tight"]),
    "time limit negative": (lambda: solve(time_limit=-1), ["time_limit", "-1", "positive", "seconds"]),
    "time limit not a number": (lambda: solve(time_limit=NAN), ["time_limit", "nan"]),
    "time limit a word": (lambda: solve(time_limit="1 minute"), ["time_limit", "1 minute"]),
    "no iterations": (lambda: solve(max_iterations=0), ["max_iterations", "0", "at least one"]),
    "iterations a word": (lambda: solve(max_iterations="many"), ["max_iterations", "many"]),
    "warm start of another model": (
        lambda: cm.Problem(pairs(), "time").solve(warm_start=solution()),
        ["warm_start", "4 pairs", "3"],
    ),
    "warm start not finite": (
        lambda: solve(warm_start=replace(solution(), occupancy=np.full(4, NAN))),
        ["warm_start", "not finite"],
    ),
    "callback that answers with an array": (
        lambda: solve(callback=lambda progress: np.zeros(3)),
        ["callback", "ndarray", "neither true nor false"],
    ),
    "warm start from a policy": (lambda: solve(warm_start=model().policy([0, 0])), ["warm_start", "Policy"]),
    "unknown method": (lambda: solve(method="simplex"), ["method", "'simplex'", '"auto", "path", "mixing"']),
    "mixing a ball": (
        lambda: solve(cm.NormBall(np.full(4, 0.25), 0.1), method="mixing"),
        ["mixing", "linear constraints and a cost alone", '"auto" or "splitting"'],
    ),
    "mixing a ball with settings": (
        lambda: solve(cm.NormBall(np.full(4, 0.25), 0.1), method=cm.Mixing()),
        ["linear constraints and a cost alone"],
    ),
    "unknown evaluation": (
        lambda: solve(cm.Budget("time", 0.5), method=cm.Splitting(evaluation="exact")),
        ["evaluation", "'exact'", '"direct"', '"iterative"'],
    ),
    "negative step": (lambda: cm.Splitting(step=-1.0), ["step", "-1.0", "positive"]),
    "relaxation two": (lambda: cm.Splitting(relaxation=2.0), ["relaxation", "2.0", "between 0 and 2"]),
    "no inner steps": (lambda: cm.Splitting(inner_steps=0), ["inner_steps", "0", "at least one"]),
    "unknown prox": (lambda: cm.Splitting(prox="sgd"), ["prox", "'sgd'", '"qrpi"', '"newton"']),
}

CONSTRAINTS = {
    "a budget on an unknown cost": (
        lambda: cm.Problem(model(), "time", [cm.Budget("fuel", at_most=1)]),
        ["no cost called 'fuel'", "'time'"],
    ),
    "a budget on a short vector": (
        lambda: cm.Problem(model(), "time", [cm.Budget([1.0, 0.0], at_most=1)]),
        ["cost", "(2,)", "4 pairs"],
    ),
    "a budget without a limit": (lambda: cm.Budget("time"), ["at_most=", "at_least="]),
    "a budget with several limits": (lambda: cm.Budget("time", at_most=[1, 2]), ["at_most", "number", "[1, 2]"]),
    "an infinite budget": (lambda: cm.Budget("time", at_most=INF), ["at_most", "inf", "finite"]),
    "projecting on a budget by name": (
        lambda: cm.Budget("time", at_most=1).project(np.zeros(4)),
        ["'time'", "budget.bind(mdp)"],
    ),
    "linear without a limit": (lambda: cm.Linear([1.0, 0.0]), ["at_most=", "at_least=", "equal="]),
    "linear with too many limits": (lambda: cm.Linear([1.0], equal=1, at_most=1), ["equal=", "at_most=", "not both"]),
    "linear with crossed limits": (
        lambda: cm.Linear([[1.0], [2.0]], at_most=[1, 1], at_least=[0, 2]),
        ["row 1", "between 2 and 1", "no value"],
    ),
    "linear with a limit too many": (
        lambda: cm.Linear([1.0, 2.0], at_most=[1, 2]),
        ["at_most", "(2,)", "one number, or a vector of 1"],
    ),
    "linear with a limit that is no number": (lambda: cm.Linear([1.0], at_least=NAN), ["at_least", "NaN", "entry 0"]),
    "linear with a limit that is a word": (lambda: cm.Linear([1.0], at_most="low"), ["at_most", "number"]),
    "linear with nothing below": (lambda: cm.Linear([1.0], at_most=-INF), ["row 0", "-inf", "no value"]),
    "linear with rows that are not finite": (lambda: cm.Linear([[1.0, INF]], at_most=1), ["rows", "finite"]),
    "linear with rows of words": (lambda: cm.Linear([["time"]], at_most=1), ["rows", "numbers"]),
    "linear with a cube of rows": (lambda: cm.Linear(np.ones((2, 2, 2)), at_most=1), ["rows", "(2, 2, 2)"]),
    "linear with short rows": (
        lambda: cm.Problem(model(), "time", [cm.Linear(np.ones((2, 3)), at_most=1)]),
        ["rows", "3 columns", "4 pairs"],
    ),
    "linear projecting a short point": (
        lambda: cm.Linear(np.ones((2, 3)), at_most=1).project(np.zeros(2)),
        ["point", "(2,)", "3 pairs"],
    ),
    "bounds without limits": (lambda: cm.Bounds(), ["lower=", "upper="]),
    "bounds that cross": (
        lambda: cm.Bounds(lower=[0.0, 0.5], upper=[0.1, 0.4]),
        ["lower is 0.5", "upper 0.4", "pair 1"],
    ),
    "bounds below zero": (lambda: cm.Bounds(upper=-0.1), ["upper", "-0.1", "never below 0"]),
    "bounds without members": (lambda: cm.Bounds(lower=INF), ["lower", "inf"]),
    "bounds that are no numbers": (lambda: cm.Bounds(lower=NAN), ["lower", "NaN"]),
    "bounds that are words": (lambda: cm.Bounds(upper="low"), ["upper", "number"]),
    "bounds of different lengths": (lambda: cm.Bounds(lower=[0, 0, 0], upper=[1, 1]), ["upper", "(2,)", "3"]),
    "bounds of another model": (
        lambda: cm.Problem(model(), "time", [cm.Bounds(upper=[0.5] * 3)]),
        ["upper", "(3,)", "4"],
    ),
    "a ball of negative radius": (lambda: cm.NormBall([0.5, 0.5], -1), ["radius", "-1", "at least 0"]),
    "a ball without radius": (lambda: cm.NormBall([0.5, 0.5], None), ["radius", "None"]),
    "a ball with a word as radius": (lambda: cm.NormBall([0.5, 0.5], "small"), ["radius", "small"]),
    "a ball in no norm": (lambda: cm.NormBall([0.5, 0.5], 1, norm=0.5), ["norm is 0.5", "at least 1"]),
    "a ball around nothing": (lambda: cm.NormBall([0.5, NAN], 1), ["center", "finite", "one entry for each pair"]),
    "a ball around words": (lambda: cm.NormBall("expert", 1), ["center", "numbers"]),
    "a ball of another model": (
        lambda: cm.Problem(model(), "time", [cm.NormBall([0.5, 0.5], 1)]),
        ["center", "2 entries", "4 pairs"],
    ),
    "a set that does not project": (
        lambda: cm.Problem(model(), "time", [Shifted()]),
        ["Shifted.project", "not a projection", "again"],
    ),
    "a set that loses an entry": (
        lambda: cm.Problem(model(), "time", [Shortened()]),
        ["Shortened.project", "(3,)", "(4,)"],
    ),
    "a set that returns no numbers": (
        lambda: cm.Problem(model(), "time", [Undefined()]),
        ["Undefined.project", "finite"],
    ),
}

WORLDS = {
    "a grid of one cell": (lambda: cm.worlds.gridworld(size=1), ["size", "1", "at least 2"]),
    "a grid of a fractional size": (lambda: cm.worlds.gridworld(size=2.5), ["size", "whole number", "2.5"]),
    "a grid that only slips": (lambda: cm.worlds.gridworld(slip=1.0), ["slip", "1", "below 1"]),
    "an obstacle off the grid": (
        lambda: cm.worlds.gridworld(size=3, obstacles=[(0, 3)]),
        ["obstacles", "(0, 3)", "off the grid", "0 to 2"],
    ),
    "an obstacle on the start": (
        lambda: cm.worlds.gridworld(size=3, obstacles=[(0, 0)]),
        ["obstacles", "(0, 0)", "start", "leave that cell free"],
    ),
    "an obstacle on the destination": (
        lambda: cm.worlds.gridworld(size=3, obstacles=[(2, 2)]),
        ["obstacles", "(2, 2)", "destination"],
    ),
    "obstacles by number": (lambda: cm.worlds.gridworld(size=3, obstacles=[4]), ["obstacles", "(row, column)", "(1,)"]),
    "a grid with a discount of one": (lambda: cm.worlds.gridworld(discount=1), ["discount", "between 0 and 1"]),
    "obstacles of a model without collisions": (lambda: cm.worlds.obstacle_cells(model()), ["'collision'", "'time'"]),
    "a garnet without states": (lambda: cm.worlds.garnet(0, 2, 0.5, seed=0), ["states", "0", "at least 1"]),
    "a garnet with half an action": (lambda: cm.worlds.garnet(5, 1.5, 0.5, seed=0), ["actions", "1.5", "whole number"]),
    "a garnet that branches too much": (
        lambda: cm.worlds.garnet(5, 2, 3, seed=0),
        ["branching", "3", "fraction of states", "at most 1"],
    ),
    "a garnet with a bad seed": (lambda: cm.worlds.garnet(5, 2, 0.5, seed=-1), ["seed", "-1", "at least 0"]),
}

TABLE = {
    f"{topic}: {case}": entry
    for topic, cases in {
        "model": MODELS,
        "pairs": PAIRS,
        "policy": POLICIES,
        "problem": PROBLEMS,
        "solve": ARGUMENTS,
        "constraint": CONSTRAINTS,
        "world": WORLDS,
    }.items()
    for case, entry in cases.items()
}


@pytest.mark.parametrize(("misuse", "words"), TABLE.values(), ids=TABLE)
def test_misuse_is_named_with_its_cure(misuse, words):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the words are checked below
        misuse()
    message = str(raised.value)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"


def test_the_inputs_that_the_table_spoils_are_good():
    """Otherwise a case could fail for another reason than the one it names."""
    assert model().num_pairs == 4
    assert pairs().num_pairs == 3
    assert solution().status is cm.Status.OPTIMAL
    assert cm.Problem(model(), "time", [cm.NormBall(np.full(4, 0.25), 0.1), cm.Bounds(upper=0.9)]).constraints


def test_a_time_limit_beyond_all_floats_is_none():
    """A past bug: an OverflowError."""
    assert solve(time_limit=10**400).status is cm.Status.OPTIMAL
    assert solve(time_limit=INF).status is cm.Status.OPTIMAL


def test_what_a_callback_raises_comes_out_as_it_is():
    def fail(progress):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        solve(callback=fail)
