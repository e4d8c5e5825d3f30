"""Models and solutions as ``.npz`` archives of plain arrays.  Nothing is pickled, so nothing in a file can run code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.certificate import Certificate
from cvxmdp.mdp import MDP
from cvxmdp.names import Numbers
from cvxmdp.policy import Policy
from cvxmdp.solution import Infeasibility, Relaxation, Solution, Stats
from cvxmdp.status import Progress, Status

Path = str | os.PathLike[str]

MODEL, SOLUTION = "cvxmdp model", "cvxmdp solution"
VERSION = 1


def save_mdp(mdp: MDP, path: Path) -> None:
    """Write a model."""
    P = mdp.transitions
    arrays: dict[str, Any] = {"state": mdp.state, "action": mdp.action, "initial": mdp.initial}
    if sp.issparse(P):
        arrays |= {"P_data": P.data, "P_indices": P.indices, "P_indptr": P.indptr, "P_shape": np.array(P.shape)}
    else:
        arrays["P"] = P
    arrays |= {f"cost:{name}": cost for name, cost in mdp.costs.items()}
    header = {"discount": mdp.discount, "states": _names(mdp.states), "actions": _names(mdp.actions)}
    _write(path, MODEL, header, arrays)


def load(path: Path) -> MDP:
    """Read a model written by :meth:`cvxmdp.MDP.save`.

    Raises
    ------
    ValueError
        When the file is not such a model, saying what it is instead.
    """
    header, arrays = _read(path, MODEL)
    with _blaming(path, MODEL):
        return _model(header, arrays)


def _model(header: dict[str, Any], arrays: dict[str, Any]) -> MDP:
    if "P" in arrays:
        P = arrays["P"]
    else:
        parts = (arrays["P_data"], arrays["P_indices"], arrays["P_indptr"])
        P = sp.csr_array(parts, shape=tuple(arrays["P_shape"]))
    costs = {name.removeprefix("cost:"): cost for name, cost in arrays.items() if name.startswith("cost:")}
    return MDP.from_pairs(
        arrays["state"], arrays["action"], P, costs, header["discount"], arrays["initial"],
        *(_read_names(header[what]) for what in ("states", "actions")),
    )  # fmt: skip


def save_solution(solution: Solution, path: Path) -> None:
    """Write a solution with its proof."""
    proof = solution.certificate
    arrays: dict[str, Any] = {
        "probabilities": solution.policy.probabilities,
        "state": solution.policy.state,
        "action": solution.policy.action,
        "occupancy": solution.occupancy,
        "potential": proof.potential,
    }
    arrays |= {f"dual:{i}": dual for i, dual in enumerate(proof.duals)}
    arrays |= {f"price:{name}": np.asarray(price) for name, price in solution.prices.items()}
    if proof.margin_potential is not None:
        arrays["margin_potential"] = proof.margin_potential
        arrays |= {f"margin_dual:{i}": dual for i, dual in enumerate(proof.margin_duals)}
    if proof.cheapest_potential is not None and proof.displacement is not None:
        arrays |= {"cheapest_potential": proof.cheapest_potential, "displacements": proof.displacement}
        arrays |= {f"cheapest_dual:{i}": dual for i, dual in enumerate(proof.cheapest_duals)}
    header: dict[str, Any] = {
        "status": solution.status.name,
        "states": _names(solution.policy.states),
        "actions": _names(solution.policy.actions),
        "claim": proof.claim,
        "value": solution.value,
        "bound": solution.bound,
        "gap": solution.gap,
        "costs": dict(solution.costs),
        "violations": dict(solution.violations),
        "tolerance": proof.tolerance,
        "margin": proof.margin,
        "least_violation": proof.least_violation,
        "least_distance": proof.least_distance,
        "cheapest": proof.cheapest,
        "stats": {
            "method": solution.stats.method,
            "iterations": solution.stats.iterations,
            "sweeps": solution.stats.sweeps,
            "seconds": dict(solution.stats.seconds),
            "history": [list(vars(p).values()) for p in solution.stats.history],
        },
    }
    if solution.infeasibility is not None:
        found = solution.infeasibility
        arrays["displacement"] = found.displacement
        header["infeasibility"] = {
            "distance": found.distance,
            "relax": {name: list(vars(limit).values()) for name, limit in found.relax.items()},
            "compromise": found.compromise,
            "least": found.least,
            "cheapest": found.cheapest,
            "conflict": found.conflict,
            "irreducible": found.irreducible,
        }
    _write(path, SOLUTION, header, arrays)


def load_solution(path: Path) -> Solution:
    """Read a solution written by :meth:`cvxmdp.Solution.save`.  Check it with ``solution.certificate.check(problem)``.

    Raises
    ------
    ValueError
        When the file is not such a solution, saying what it is instead.
    """
    header, arrays = _read(path, SOLUTION)
    with _blaming(path, SOLUTION):
        return _solution(header, arrays)


def _solution(header: dict[str, Any], arrays: dict[str, Any]) -> Solution:
    def numbered(prefix: str) -> list[Any]:
        return [arrays[f"{prefix}:{i}"] for i in range(sum(name.startswith(f"{prefix}:") for name in arrays))]

    names = [_read_names(header[what]) for what in ("states", "actions")]
    policy = Policy(arrays["probabilities"], arrays["state"], arrays["action"], *names)
    certificate = Certificate(
        header["claim"], arrays["probabilities"], arrays["occupancy"], float(header["value"]), float(header["bound"]),
        header["costs"], header["violations"], header["tolerance"], numbered("dual"), arrays["potential"],
        header["margin"], numbered("margin_dual"), arrays.get("margin_potential"), header["least_violation"],
        header["least_distance"], header["cheapest"], numbered("cheapest_dual"), arrays.get("cheapest_potential"),
        arrays.get("displacements"),
    )  # fmt: skip
    stats = header["stats"]
    stats = Stats(
        stats["method"], stats["iterations"], stats["sweeps"], stats["seconds"],
        tuple(Progress(*entry) for entry in stats["history"]),
    )  # fmt: skip
    prices = {
        name.removeprefix("price:"): float(price) if price.ndim == 0 else price
        for name, price in arrays.items()
        if name.startswith("price:")
    }
    infeasibility = None
    if "displacement" in arrays:
        found = header["infeasibility"]
        infeasibility = Infeasibility(
            arrays["displacement"], header["margin"], tuple(found["distance"]),
            {name: Relaxation(*limit) for name, limit in found["relax"].items()}, policy, found["compromise"],
            found["least"], found["cheapest"], tuple(found["conflict"]), found["irreducible"],
        )  # fmt: skip
    if {"OPTIMAL": "optimal", "INFEASIBLE": "infeasible"}.get(header["status"], "bound") != certificate.claim:
        raise ValueError(f"the status {header['status']} is not what the certificate claims: {certificate.claim}")
    visits = np.zeros(len(policy.states))
    np.add.at(visits, policy.state, arrays["occupancy"])
    return Solution(
        Status[header["status"]], header["value"], header["bound"], header["gap"], policy, arrays["occupancy"], visits,
        header["costs"], header["violations"], prices, certificate, infeasibility, stats,
    )  # fmt: skip


def _names(names: Sequence[str]) -> int | list[str]:
    """Return names as the header holds them: how many there are, where they are numbers."""
    return len(names) if isinstance(names, Numbers) else list(names)


def _read_names(stored: int | list[str]) -> Sequence[str]:
    return Numbers(stored) if isinstance(stored, int) else tuple(stored)


def _write(path: Path, kind: str, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    text = json.dumps({"kind": kind, "version": VERSION, **header})
    with open(path, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)


def _read(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = dict(json.loads(arrays.pop("header").tobytes()))
    except FileNotFoundError:
        raise ValueError(f"there is no file {os.fspath(path)!r}") from None
    except Exception:  # whatever a broken archive makes zipfile, zlib, NumPy or JSON raise
        raise ValueError(f"{os.fspath(path)!r} is not a {kind} in .npz form; write one with .save(path)") from None
    if header.get("kind") != kind:
        raise ValueError(f"{os.fspath(path)!r} holds a {header.get('kind')}, not a {kind}")
    if header.get("version") != VERSION:
        raise ValueError(f"{os.fspath(path)!r} has version {header.get('version')}; this library reads {VERSION}")
    return header, arrays


@contextmanager
def _blaming(path: Path, kind: str) -> Iterator[None]:
    """Name the file in every error about its content."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r}: {error}") from None
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{os.fspath(path)!r} is not a whole {kind}: {error}") from None
