"""Results for machines.  All numbers are finite: null stands for those that are not known or infinite."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from cvxmdp.report.facts import limit_facts, proof_words

if TYPE_CHECKING:
    from cvxmdp.examine import Examination
    from cvxmdp.policy import Policy
    from cvxmdp.prices import PriceRange
    from cvxmdp.review import Review
    from cvxmdp.simulate import Simulation
    from cvxmdp.solution import Infeasibility, Solution
    from cvxmdp.sweep import Sweep


def echo_json(result: Mapping[str, Any]) -> None:
    """Print a result as one line of JSON."""
    typer.echo(json.dumps(_plain(result), allow_nan=False))


def solution_json(solution: Solution, ranges: Mapping[str, PriceRange]) -> dict[str, Any]:
    """Return all there is to know of a solution."""
    return {
        **_answer(solution),
        "limits": [_limit(fact, ranges.get(fact.name)) for fact in limit_facts(solution)],
        "price_ranges": {name: asdict(within) for name, within in ranges.items()},
        "certificate": proof_words(solution),
        "tolerance": solution.tolerance,
        "method": solution.stats.method,
        "iterations": solution.stats.iterations,
        "seconds": dict(solution.stats.seconds),
        "policy": _policy(_in_one_place(solution)),
    }


def _in_one_place(solution: Solution) -> Policy:
    """Return the policy; of a model that lives on several ranks the first one has it, and the others an empty one."""
    mdp, policy = None if solution.problem is None else solution.problem.mdp, solution.policy
    if mdp is None or mdp.world is None:
        return policy
    from cvxmdp.policy import Policy
    from cvxmdp.ranks.model import gather, state_numbers

    parts = (gather(mdp, part) for part in (policy.probabilities, state_numbers(mdp), mdp.action))
    whole: list[Any] = [np.empty(0) if part is None else part for part in parts]
    return Policy(whole[0], whole[1], whole[2], mdp.states, mdp.actions)


def _answer(solution: Solution) -> dict[str, Any]:
    found, asked = solution.infeasibility, solution.asked
    return {
        "status": solution.status.name,
        "message": solution.status.value,
        asked.sense: asked.objective,
        "value": solution.value,
        "bound": solution.bound,
        "gap": solution.gap,
        "discount": asked.discount,
        "costs": dict(solution.costs),
        "errors": dict(solution.errors),
        "levels": dict(solution.levels),
        "violations": dict(solution.violations),
        "prices": {name: _gathered(solution, price) for name, price in solution.prices.items()},
        **({} if found is None else {"infeasibility": _infeasibility(found)}),
    }


def _gathered(solution: Solution, price: Any) -> Any:
    if solution.problem is None or solution.problem.mdp.world is None:
        return price
    from cvxmdp.ranks.model import gather

    return gather(solution.problem.mdp, price)


def _limit(fact: Any, within: PriceRange | None) -> dict[str, Any]:
    """Say all of one limit: numbers per step, and an episode's total where it was stated so."""
    total = fact.total
    return {
        "name": fact.name,
        "words": fact.allowed,
        "standing": fact.standing,
        "level": fact.level,
        "at_least": fact.lower,
        "at_most": fact.upper,
        "exceeded_by": fact.excess,
        "price": fact.price,
        "price_range": None if within is None else asdict(within),
        "effect": fact.effect,
        "in_total": None
        if total is None
        else {
            "level": None if fact.level is None else fact.level * total,
            "at_least": fact.lower * total,
            "at_most": fact.upper * total,
        },
    }


def _policy(policy: Policy) -> list[dict[str, Any]]:
    return [{"state": state, "action": action, "probability": pi} for state, action, pi in policy.table()]


def _infeasibility(found: Infeasibility) -> dict[str, Any]:
    return {
        "compromise": found.compromise,
        "margin": found.margin,
        "least_violation": found.least,
        "distance": list(found.distance),
        "cheapest": found.cheapest,
        "conflict": list(found.conflict),
        "irreducible": found.irreducible,
        "impossible": dict(found.impossible),
        "relax": {name: asdict(limit) for name, limit in found.relax.items()},
    }


def sweep_json(sweep: Sweep, whole: bool) -> dict[str, Any]:
    """Return each point of a sweep with its policy."""
    breakpoints = getattr(sweep, "breakpoints", None)
    points = zip(sweep.limits, sweep.solutions, sweep.prices, strict=False)
    return {
        "limit": sweep.name,
        sweep.solutions[0].asked.sense: sweep.objective,
        "complete": whole,
        **({} if breakpoints is None else {"breakpoints": breakpoints}),
        "points": [
            {
                "limit": float(limit),
                "status": solution.status.name,
                "value": solution.value,
                "bound": solution.bound,
                "gap": solution.gap,
                "price": price,
                "costs": dict(solution.costs),
                "violations": dict(solution.violations),
                "policy": _policy(solution.policy),
            }
            for limit, solution, price in points
        ],
    }


def simulation_json(simulation: Simulation) -> dict[str, Any]:
    """Return what runs cost."""
    return asdict(simulation)


def examination_json(examination: Examination) -> dict[str, Any]:
    """Return what a model is like."""
    return asdict(examination)


def review_json(review: Review) -> dict[str, Any]:
    """Return how a policy was judged."""
    return asdict(review)


def _plain(value: Any) -> Any:
    """Return what JSON can hold: lists in place of arrays, null in place of numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
