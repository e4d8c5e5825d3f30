"""Solutions as archives of plain arrays: all that a solution says, what was asked, and the evidence.

The layout is the one that :mod:`cvxmdp_verifier` reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.blocks import Block, Constraint, Term
from cvxmdp.certificate import CertificateError, Evidence, Proof, Witness
from cvxmdp.constraints.base import ranked
from cvxmdp.constraints.own import Custom
from cvxmdp.io.files import VERSION, Path, blaming, matrix_members, read_archive, take, take_matrix, write_archive
from cvxmdp.io.model import model_parts, read_stored_names, stored_names
from cvxmdp.io.restore import restore_constraint, restore_term
from cvxmdp.names import Numbers
from cvxmdp.policy import Policy
from cvxmdp.problem import Problem
from cvxmdp.ranks.scattered import as_array
from cvxmdp.solution import COMPROMISES, UNFINISHED, Asked, Infeasibility, Relaxation, Solution, Stats
from cvxmdp.status import Progress, Status

if TYPE_CHECKING:
    from cvxmdp_verifier import Report

KIND = "cvxmdp solution"
UNKNOWN = "unknown"
"""In place of an amount that was not found out."""

Parts = tuple[dict[str, Any], dict[str, Any]]


def save_solution(solution: Solution, path: Path) -> None:
    """Write a solution with its evidence."""
    header, arrays = solution_parts(solution, solution.asked)
    mdp = None if solution.problem is None else solution.problem.mdp
    if mdp is None or mdp.world is None:
        write_archive(path, header, arrays)
        return
    from cvxmdp.ranks.files import write_together

    write_together(mdp, path, header, arrays)


def check_solution(solution: Solution, problem: Problem, tolerance: float) -> Report:
    """Let the verifier recompute everything a solution says of a problem; raise CertificateError where it refuses."""
    from cvxmdp_verifier import Refused, verify

    if problem.mdp.world is not None:
        raise ValueError(
            "on several ranks nothing is checked again; save the solution, and check it in one place: cvxmdp check"
        )
    asked = problem.asked()
    sets: dict[str, Any] = {c.name: c.given() for c in problem.constraints if isinstance(c, Custom)}
    terms = {t.name: (t.value, t.prox) for t in problem.terms if t.stated()[0]["kind"] == "custom"}
    given = solution.asked
    if (asked.names, asked.objective, asked.discount) != (given.names, given.objective, given.discount):
        raise CertificateError("the solution is of a problem with another objective, discount or other constraints")
    try:
        return verify(model_parts(problem.mdp), solution_parts(solution, asked), tolerance, sets, terms)
    except Refused as refused:
        raise CertificateError(str(refused)) from None


def solution_parts(solution: Solution, asked: Asked) -> Parts:
    """Return header and arrays of a solution, as an answer to what was asked; what was maximized is negated."""
    if asked.sense == "maximize":
        solution = solution.turned()
    header: dict[str, Any] = {
        "kind": KIND,
        "version": VERSION,
        "states": stored_names(solution.policy.states),
        "actions": stored_names(solution.policy.actions),
        "discount": asked.discount,
        "objective": {"text": asked.objective, "costs": list(asked.costs), "sense": asked.sense},
        "status": solution.status.name,
        "tolerance": solution.tolerance,
        "value": solution.value,
        "bound": None if solution.status is Status.INFEASIBLE else _number(solution.bound),
        "gap": None if solution.status is Status.INFEASIBLE else _number(solution.gap),
        "costs": {name: _number(cost) for name, cost in solution.costs.items()},
        "errors": {name: _number(error) for name, error in solution.errors.items()},
        "violations": {name: _number(excess) for name, excess in solution.violations.items()},
        "infeasibility": None,
        "stats": _stats(solution.stats),
    }
    arrays: dict[str, Any] = {
        "state": solution.policy.state,
        "action": solution.policy.action,
        "occupancy": solution.occupancy,
        "visits": solution.visits,
        "probabilities": solution.policy.probabilities,
        "cost": asked.cost,
    }
    names = asked.names[: len(asked.limits)]
    arrays |= {f"level:{i}": as_array(solution.levels[name]) for i, name in enumerate(names)}
    arrays |= {f"price:{i}": as_array(solution.prices[name]) for i, name in enumerate(names)}
    for what, blocks, first in (("limit", asked.limits, 0), ("term", asked.terms, len(asked.limits))):
        header[f"{what}s"] = []
        for i, block in enumerate(blocks):
            words, own = _stated(block)
            header[f"{what}s"].append({"name": asked.names[first + i], **words})
            for field, array in own.items():
                arrays |= matrix_members(f"{what}:{i}:{field}", array)
    evidence = solution.evidence
    for name, witness in evidence.witnesses.items():
        arrays[f"{name}:probabilities"] = witness.probabilities
        arrays |= {f"{name}:visits": witness.visits, f"{name}:visits_error": witness.error}
    for name, proof in evidence.proofs.items():
        arrays |= {f"{name}:potential": proof.potential}
        arrays |= {f"{name}:dual:{i}": as_array(dual) for i, dual in enumerate(proof.duals)}
    if solution.infeasibility is not None:
        header["infeasibility"] = _conflict(solution.infeasibility, evidence)
        if evidence.displacements is not None:
            arrays |= {"displacement": solution.infeasibility.displacement, "displacements": evidence.displacements}
    return header, arrays


def _stated(block: Block | None) -> Parts:
    if block is None:
        return {"kind": "custom", "priority": 1, "weight": None}, {}
    words, arrays = block.stated()
    if isinstance(block, Constraint):
        words = words | {"priority": block.priority, "weight": block.weight}
    return {key: _number(value) if isinstance(value, float) else value for key, value in words.items()}, arrays


def _stats(stats: Stats) -> dict[str, Any]:
    return {
        "method": stats.method,
        "iterations": stats.iterations,
        "sweeps": stats.sweeps,
        "seconds": dict(stats.seconds),
        "history": [[_number(value) for value in vars(progress).values()] for progress in stats.history],
    }


def _conflict(found: Infeasibility, evidence: Evidence) -> dict[str, Any]:
    return {
        "margin": found.margin,
        "least": _number(found.least),
        "distance": [_number(distance) for distance in found.distance],
        "compromise": found.compromise,
        "cheapest": _number(found.cheapest),
        "conflict": list(found.conflict),
        "conflict_limits": [list(limit) for limit in evidence.conflict],
        "irreducible": found.irreducible,
        "without": list(evidence.without),
        "impossible": {name: _number(beyond) for name, beyond in found.impossible.items()},
        "impossible_limits": [list(limit) for limit in evidence.impossible],
        "amounts": {str(priority): amount for priority, amount in evidence.amounts.items()},
        "relax": {
            name: {
                "exceeded": _number(limit.exceeded),
                "amount": UNKNOWN if limit.amount is not None and math.isnan(limit.amount) else limit.amount,
                "least": _number(limit.least),
                "innocent": limit.innocent,
            }
            for name, limit in found.relax.items()
        },
    }


def load_solution(path: Path) -> Solution:
    """Read a solution written by :meth:`cvxmdp.Solution.save`.  Check it with ``solution.certificate.check(problem)``.

    Raises
    ------
    ValueError
        When the file is not such a solution, saying what it is instead.
    """
    header, arrays = read_archive(path, KIND)
    with blaming(path):
        try:
            solution = _solution(header, arrays)
            str(solution)  # what cannot be said in words is not whole
        except (KeyError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"the solution is not whole: {type(error).__name__} {error}") from None
    return solution


def _solution(header: dict[str, Any], arrays: dict[str, Any]) -> Solution:
    limits, terms = (_entries(header, what) for what in ("limits", "terms"))
    probabilities = take(arrays, "probabilities", [None])
    pairs = probabilities.size
    state, action = (take(arrays, name, [pairs], "iu").astype(np.int64) for name in ("state", "action"))
    if pairs == 0:
        raise ValueError("the array 'probabilities' is empty")
    counts = {"states": take(arrays, "visits", [None]).size, "actions": int(action.max()) + 1}
    states, actions = (read_stored_names(header, what, n) or Numbers(n) for what, n in counts.items())
    if state.min() < 0 or state.max() >= len(states) or np.any(np.diff(state) < 0):
        raise ValueError("the array 'state' must rise and hold numbers of states")
    if action.min() < 0 or action.max() >= len(actions):
        raise ValueError("the array 'action' must hold numbers of actions")
    policy = Policy(probabilities, state, action, states, actions)
    objective = _object(header, "objective")
    blocks = [
        restore(words, {key: _restored(arrays, prefix, key) for key in _fields(arrays, prefix)}, state)
        for what, entries, restore in (("limit", limits, restore_constraint), ("term", terms, restore_term))
        for i, words in enumerate(entries)
        for prefix in [f"{what}:{i}:"]
    ]
    named = tuple(_text(words, "name") for words in (*limits, *terms))
    costs = tuple(None if name is None else str(name) for name in _list(objective, "costs"))
    for block, words in zip(blocks, limits, strict=False):
        if isinstance(block, Constraint):
            block.name = _text(words, "name")
            ranked(block, _Rank(words))
    asked = Asked(
        _text(objective, "text"), costs, take(arrays, "cost", [pairs]),
        [b if isinstance(b, Constraint) else None for b in blocks[: len(limits)]],
        [b if isinstance(b, Term) else None for b in blocks[len(limits) :]], named, _float(header, "discount"),
        _sense(objective),
    )  # fmt: skip
    status = _text(header, "status")
    if status not in Status.__members__:
        raise ValueError(f"the header's status is {status[:50]!r}, which is none")
    evidence = _evidence(header, arrays, len(states), pairs)
    found = None
    if header.get("infeasibility") is not None:
        moved = take(arrays, "displacement", [pairs]) if "displacement" in arrays else np.zeros(pairs)
        found = _infeasibility(_object(header, "infeasibility"), moved, policy)
    if (found is not None) != (status == "INFEASIBLE"):
        raise ValueError(f"the header's status is {status} {'with' if found else 'without'} an infeasibility")
    infeasible = found is not None
    names = named[: len(limits)]
    if found is not None:
        found = replace(found, relax=_worded(found.relax, dict(zip(names, asked.limits, strict=True))))
    if set(_object(header, "errors")) != {*_object(header, "costs"), "value"}:
        raise ValueError("the header's errors are not those of its costs and its value")
    solution = Solution(
        Status[status], _float(header, "value"), math.inf if infeasible else _float(header, "bound"),
        math.nan if infeasible else _float(header, "gap"), policy, take(arrays, "occupancy", [pairs]),
        take(arrays, "visits", [len(states)]), _numbers(header, "costs"), _numbers(header, "errors"),
        {name: _scalar(_any(arrays, f"level:{i}")) for i, name in enumerate(names)}, _numbers(header, "violations"),
        {name: _scalar(_any(arrays, f"price:{i}")) for i, name in enumerate(names)}, found,
        _read_stats(_object(header, "stats")), _float(header, "tolerance"), asked, evidence,
    )  # fmt: skip
    return solution.turned() if asked.sense == "maximize" else solution


def _sense(objective: Mapping[str, Any]) -> str:
    """Return whether an objective was minimized, as in all files that do not say, or maximized."""
    sense = objective.get("sense", "minimize")
    if sense not in ("minimize", "maximize"):
        raise ValueError(f"the objective's sense is {str(sense)[:50]!r}, which is none")
    return str(sense)


class _Rank:
    """Priority and weight as stored."""

    def __init__(self, words: Mapping[str, Any]) -> None:
        self.priority, self.weight = int(_float(words, "priority")), None
        if words.get("weight") is not None:
            self.weight = _float(words, "weight")


def _evidence(header: dict[str, Any], arrays: dict[str, Any], states: int, pairs: int) -> Evidence:
    witnesses, proofs = {}, {}
    for member in arrays:
        name, _, what = member.rpartition(":")
        if what == "visits_error":
            probabilities, visits = (
                take(arrays, f"{name}:probabilities", [pairs]),
                take(arrays, f"{name}:visits", [2, states]),
            )
            witnesses[name] = Witness(probabilities, visits, take(arrays, member, [states]))
        if what == "potential":
            count = sum(other.startswith(f"{name}:dual:") for other in arrays)
            duals = [take(arrays, f"{name}:dual:{i}", [None]) for i in range(count)]
            proofs[name] = Proof(duals, take(arrays, member, [states]))
    displacements = take(arrays, "displacements", [None, pairs]) if "displacements" in arrays else None
    if header.get("infeasibility") is None:
        return Evidence(witnesses, proofs, displacements)
    found = _object(header, "infeasibility")
    conflict, impossible = (
        [(int(k), None if row is None else int(row)) for k, row in _list(found, what)]
        for what in ("conflict_limits", "impossible_limits")
    )
    amounts = {int(priority): float(amount) for priority, amount in _object(found, "amounts").items()}
    return Evidence(
        witnesses, proofs, displacements, conflict, impossible, [str(name) for name in _list(found, "without")], amounts
    )


def _infeasibility(found: dict[str, Any], displacement: Any, policy: Policy) -> Infeasibility:
    relax = {}
    for name, limit in _object(found, "relax").items():
        amount = limit["amount"]
        relax[name] = Relaxation(
            _float(limit, "exceeded"),
            None if amount is None else math.nan if amount == UNKNOWN else _float(limit, "amount"),
            _float(limit, "least"),
            None,
            bool(limit["innocent"]),
        )
    low, high = (_read_number("distance", value) for value in _list(found, "distance"))
    compromise = _text(found, "compromise")
    if compromise not in (*COMPROMISES, UNFINISHED):
        raise ValueError(f"the compromise is {compromise[:50]!r}, which is none")
    return Infeasibility(
        displacement, _float(found, "margin"), (low, high), relax, policy, compromise, _float(found, "least"),
        _float(found, "cheapest"), tuple(map(str, _list(found, "conflict"))), bool(found["irreducible"]),
        _numbers(found, "impossible"),
    )  # fmt: skip


def _worded(relax: Mapping[str, Relaxation], limits: Mapping[str, Constraint | None]) -> dict[str, Relaxation]:
    """Say what each limit would have to become."""
    out = {}
    for name, each in relax.items():
        limit = limits.get(name)
        known = limit is not None and each.amount is not None and math.isfinite(each.amount)
        out[name] = (
            replace(each, alone=limit.said(each.amount)) if known and limit and each.amount is not None else each
        )
    return out


def _read_stats(stats: dict[str, Any]) -> Stats:
    history = tuple(
        Progress(int(row[0]), *(_read_number("history", value) for value in row[1:])) for row in stats["history"]
    )
    return Stats(
        _text(stats, "method"),
        int(_float(stats, "iterations")),
        int(_float(stats, "sweeps")),
        _numbers(stats, "seconds"),
        history,
    )


def _fields(arrays: Mapping[str, Any], prefix: str) -> list[str]:
    found = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    return [name for name in found if name not in ("rows_data", "rows_indices", "rows_indptr")]


def _restored(arrays: Mapping[str, Any], prefix: str, field: str) -> Any:
    if field == "rows_shape":
        shape = take(arrays, prefix + field, [2], "iu")
        return take_matrix(arrays, prefix + "rows", (int(shape[0]), int(shape[1])))
    return arrays[prefix + field]


def _any(arrays: Mapping[str, Any], name: str) -> Any:
    return take(arrays, name, [None] * arrays[name].ndim if name in arrays else [])


def _scalar(array: Any) -> Any:
    return array if array.ndim else float(array)


def _number(value: float) -> float | str | None:
    """Return a number as JSON can hold it."""
    if math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else "inf" if value > 0 else "-inf"


def _read_number(what: str, value: Any) -> float:
    if value is None:
        return math.nan
    if value in ("inf", "-inf") or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        try:
            return float(value)
        except OverflowError:
            pass
    raise ValueError(f"the header's {what} is {str(value)[:50]!r}, which is no number")


def _float(header: Mapping[str, Any], key: str) -> float:
    if key not in header:
        raise ValueError(f"the header says nothing of {key!r}")
    return _read_number(key, header[key])


def _numbers(header: Mapping[str, Any], key: str) -> dict[str, float]:
    return {name: _read_number(key, value) for name, value in _object(header, key).items()}


def _text(header: Mapping[str, Any], key: str) -> str:
    if not isinstance(header.get(key), str):
        raise ValueError(f"the header's {key} must be words")
    return str(header[key])


def _object(header: Mapping[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(header.get(key), dict):
        raise ValueError(f"the header's {key} must be an object")
    return dict(header[key])


def _list(header: Mapping[str, Any], key: str) -> Sequence[Any]:
    if not isinstance(header.get(key), list):
        raise ValueError(f"the header's {key} must be a list")
    return list(header[key])


def _entries(header: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    entries = _list(header, key)
    if not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"the header's {key} must be a list of objects")
    return list(entries)
