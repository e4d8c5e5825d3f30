"""Problems as TOML files: a model, what to minimize, limits of every kind, and options of the solve."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp.engines.choose import ENGINES
from cvxmdp.io.files import Path, blaming, file_name, open_to_read
from cvxmdp.io.formats import format_of
from cvxmdp.io.policy import read_policy
from cvxmdp.mdp import MDP, Array
from cvxmdp.names import no_such
from cvxmdp.problem import Problem
from cvxmdp.solution import COMPROMISES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AS_IN_PAPER = "as-in-paper"
METHODS = ("auto", *ENGINES, AS_IN_PAPER)
OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tolerance": (lambda value: _is_number(value) and 0 < value < 1, "a number between 0 and 1"),
    "method": (lambda value: value in METHODS, f"one of {', '.join(METHODS)}"),
    "time_limit": (lambda value: _is_number(value) and value > 0, "a positive number of seconds"),
    "max_iterations": (lambda value: type(value) is int and value >= 1, "a whole number, at least one"),
    "when_infeasible": (lambda value: value in COMPROMISES, f"one of {', '.join(COMPROMISES)}"),
    "explain": (lambda value: isinstance(value, bool), "true or false"),
}
"""Options of a solve that a file may hold: what is right, and what that is in words."""
WORLDS = tuple(name for name in cm.worlds.__all__ if name != "obstacle_cells")
RANK = ("kind", "name", "priority", "weight")
"""What each limit may have."""


@dataclass
class Stated:
    """What a file or a command line states: a model, and perhaps a problem in it and options of its solve."""

    mdp: MDP
    minimize: Any = None
    maximize: Any = None
    limits: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def problem(self) -> Problem:
        """Return the problem."""
        return Problem(self.mdp, self.minimize, self.limits, maximize=self.maximize)

    def solve_options(self) -> dict[str, Any]:
        """Return the options as :meth:`cvxmdp.Problem.solve` takes them."""
        paper = self.options.get("method") == AS_IN_PAPER
        return self.options | ({"method": cm.Splitting.as_in_paper()} if paper else {})


def read_problem(path: Path, discount: float | None = None, initial: str | None = None) -> Stated:
    """Read a problem from a TOML file; a discount or a first state that is given replaces the file's.

    Paths in the file are relative to its folder.

    Raises
    ------
    ValueError
        With the file, the key, what was found and what was expected.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from cvxmdp.io.problem import read_problem
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "problem.toml"
    ...     _ = path.write_text('''
    ... world = "gridworld"
    ... arguments = {size = 5}
    ... minimize = "time"
    ... [[limits]]
    ... cost = "collision"
    ... at_most = 0.01
    ... ''')
    ...     read_problem(path).problem()
    Problem(minimize time in MDP(25 states, 100 pairs, costs: time, collision, discount 0.99), subject to collision)
    """
    with open_to_read(path) as file:
        try:
            entries = tomllib.loads(file.read().decode())
        except UnicodeDecodeError:
            raise ValueError("this is not a text in UTF-8, which TOML is") from None
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ValueError(f"this is not TOML: {error}") from None
    with blaming(path):
        root = Table(entries, os.path.dirname(file_name(path)))
        root.check("model", "world", "arguments", "discount", "initial", "minimize", "maximize", "costs", "limits",
                   "terms", "options")  # fmt: skip
        mdp = _model(root, discount, initial)
        for i, entry in enumerate(root.tables("costs")):
            with _at("costs", i):
                mdp = _with_cost(mdp, entry)
        stated = Stated(mdp, root.get("minimize"), root.get("maximize"))
        _check_objective(stated)
        for i, entry in enumerate(root.tables("limits")):
            with _at("limits", i):
                stated.limits.append(read_limit(mdp, entry))
        for i, entry in enumerate(root.tables("terms")):
            with _at("terms", i):
                if stated.maximize is not None:
                    raise ValueError("terms are added to what is minimized; there is maximize instead")
                term = _term(mdp, entry)
                term.bind(mdp)
                stated.minimize = [*_listed(stated.minimize), term]
        stated.options = _options(root)
        return stated


def is_file(text: str) -> bool:
    """Whether an argument names a file, or else a world."""
    name = text.partition(":")[0]
    return os.path.exists(text) or bool(PurePath(name).suffix) or os.sep in name


def load_model(text: str, discount: float | None = None, initial: str | None = None, comm: Any = None) -> MDP:
    """Return a model from a file, or a world by name, with arguments as in ``gridworld:size=10,slip=0.1``.

    It is loaded or made on the ranks of ``comm``, if they are given.

    Examples
    --------
    >>> from cvxmdp.io.problem import load_model
    >>> load_model("gridworld:size=4", discount=0.9)
    MDP(16 states, 64 pairs, costs: time, collision, discount 0.9)
    """
    name, _, arguments = text.partition(":")
    if is_file(text):
        if discount is None and not (found := format_of(text)).complete:
            raise ValueError(f"{text} is {found.said}, which holds no discount; give one, as in --discount 0.99")
        return cm.load(text, discount, initial, comm)
    if name not in WORLDS:
        raise ValueError(f"there is no file {text!r}, and {no_such('world', name, WORLDS)}")
    try:
        read = tomllib.loads(f"arguments = {{{arguments}}}")["arguments"]
    except (tomllib.TOMLDecodeError, RecursionError):
        raise ValueError(
            f"the arguments {arguments!r} of the world {name!r} are not of the form size=10,slip=0.1"
        ) from None
    return make_world(name, read, discount, initial, comm)


def world_arguments(name: str) -> dict[str, inspect.Parameter]:
    """Return the arguments of a world that a text may give.

    Examples
    --------
    >>> list(world_arguments("disk_drive"))
    ['discount']
    """
    known = inspect.signature(getattr(cm.worlds, name)).parameters
    return {key: one for key, one in known.items() if key != "comm"}


def make_world(
    name: str, arguments: Mapping[str, Any], discount: float | None = None, initial: Any = None, comm: Any = None
) -> MDP:
    """Return a world by name, on the ranks of ``comm``, if they are given."""
    if name not in WORLDS:
        raise ValueError(no_such("world", name, WORLDS))
    known = world_arguments(name)
    others = {} if discount is None else {"discount": discount}
    for key in arguments:
        if key not in known:
            raise ValueError(f"the world {name!r}: {no_such('argument', key, known)}")
    missing = [key for key, one in known.items() if one.default is one.empty and key not in arguments]
    if missing:
        raise ValueError(f"the world {name!r} needs {', '.join(missing)}, as in {name}:{missing[0]}=10")
    try:
        mdp: MDP = getattr(cm.worlds, name)(**{**arguments, **others}, comm=comm)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"the world {name!r} cannot be made with these arguments: {error}") from None
    return mdp if initial is None else mdp.with_initial(initial)


@dataclass
class Table:
    """A table of the file."""

    entries: Mapping[str, Any]
    folder: str = ""
    said: str = ""

    def check(self, *known: str) -> None:
        """Refuse keys that mean nothing here."""
        for key in self.entries:
            if key not in known:
                raise ValueError(f"{self.said}{': ' if self.said else ''}{no_such('key', key, known)}")

    def get(self, key: str, default: Any = None, kind: type | None = None, expected: str = "") -> Any:
        """Return an entry of a certain type."""
        value = self.entries.get(key, default)
        if kind is not None and not isinstance(value, kind):
            raise ValueError(f"{key} is {value!r}; it must be {expected}")
        return value

    def text(self, key: str, example: str) -> str:
        """Return a text that must be there."""
        if key not in self.entries:
            raise ValueError(f"the key {key!r} is missing; give it, as in {key} = {example}")
        return str(self.get(key, kind=str, expected=f"a text, as in {key} = {example}"))

    def tables(self, key: str) -> Iterator[Table]:
        """Yield the tables of a list."""
        for entry in self.get(key, [], list, f"a list of tables, each after a line [[{key}]]"):
            if not isinstance(entry, dict):
                raise ValueError(f"{key} must be a list of tables, each after a line [[{key}]]")
            yield Table(entry, self.folder)

    def path(self, key: str, example: str) -> str:
        """Return the path of a file, seen from the problem's folder."""
        return os.path.join(self.folder, self.text(key, example))

    def numbers(self, key: str) -> Any:
        """Return a number, or numbers from the file itself or from another; None where there are none."""
        value = self.entries.get(key)
        if isinstance(value, str):
            return read_numbers(os.path.join(self.folder, value))
        if isinstance(value, bool) or not isinstance(value, (int, float, list, type(None))):
            raise ValueError(f"{key} is {value!r}; it must be a number, a list of numbers, or a .npy or .csv file")
        return value


def read_numbers(path: Path) -> Array:
    """Read a vector or a matrix from a ``.npy`` file, or from a ``.csv`` file with nothing but numbers."""
    name = file_name(path)
    with open_to_read(path) as file:
        if name.lower().endswith(".npy"):
            try:
                # Mapped, so that a header that states more than there is asks for no memory.
                return np.array(np.load(name, mmap_mode="r", allow_pickle=False), dtype=np.float64)
            except (ValueError, TypeError, EOFError) as error:
                raise ValueError(f"this is not an array of numbers: {error}") from None
        if not name.lower().endswith(".csv"):
            raise ValueError("numbers are read from .npy and .csv files")
        try:
            rows = [[float(entry) for entry in line.split(",")] for line in file.read().decode().split("\n") if line]
        except ValueError as error:
            raise ValueError(f"this must hold numbers only, with commas between them: {error}") from None
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        raise ValueError(f"{name!r}: each line must hold as many numbers as the others, and there must be one at least")
    table = np.array(rows)
    return table.ravel() if 1 in table.shape else table


def read_occupancy(mdp: MDP, path: Path) -> Array:
    """Read what to stay near: a policy (.csv), a solution (.npz), or an occupancy (.npy)."""
    ending = PurePath(path).suffix.lower()
    if ending == ".npz":
        found = cm.load_solution(path).occupancy
        if found.size != mdp.num_pairs:
            raise ValueError(f"{path}: the solution has {found.size} pairs; the model has {mdp.num_pairs}")
        return found
    return mdp.evaluate(read_policy(mdp, path)).occupancy if ending == ".csv" else read_numbers(path)


def _model(root: Table, discount: float | None, initial: str | None) -> MDP:
    discount = root.get("discount") if discount is None else discount
    given: Any = root.get("initial") if initial is None else initial
    if ("model" in root.entries) == ("world" in root.entries):
        raise ValueError('give model = "file.npz" or world = "gridworld", one of them')
    if "world" in root.entries:
        arguments = root.get("arguments", {}, dict, "a table, as in arguments = {size = 10}")
        return make_world(root.text("world", '"gridworld"'), arguments, discount, given)
    if "arguments" in root.entries:
        raise ValueError("arguments go with a world; a model in a file has none")
    path = root.path("model", '"model.npz"')
    if discount is None and not (found := format_of(path)).complete:
        raise ValueError(f"{path} is {found.said}, which holds no discount; add a line, as in discount = 0.99")
    return cm.load(path, discount, given)


def _with_cost(mdp: MDP, entry: Table) -> MDP:
    entry.check("name", "states", "labels", "entering", "values", "sum")
    name = entry.text("name", '"corner"')
    if "sum" in entry.entries:
        entry.check("name", "sum")
        return mdp.with_cost(name, _weighted(mdp, entry.get("sum", {}, dict, "a table, as in {time = 1, fuel = 0.5}")))
    entering = entry.get("entering", False, bool, "true or false")
    states, labels, values = entry.get("states"), entry.get("labels"), entry.numbers("values")
    return mdp.with_cost(name, values, states=states, labels=labels, entering=entering)


def _weighted(mdp: MDP, weights: Mapping[str, Any]) -> Array:
    """Return a weighted sum of costs."""
    for cost, weight in weights.items():
        if not _is_number(weight):
            raise ValueError(f"the weight of {cost!r} in sum is {weight!r}; it must be a number")
    found = np.zeros(mdp.num_pairs)
    for cost, weight in weights.items():
        found = found + float(weight) * mdp.cost(cost)
    return found


def _options(root: Table) -> dict[str, Any]:
    options = Table(root.get("options", {}, dict, "a table"), root.folder, "options")
    options.check(*OPTIONS)
    for key, value in options.entries.items():
        right, expected = OPTIONS[key]
        if not right(value):
            raise ValueError(f"options: {key} is {value!r}; it must be {expected}")
    return dict(options.entries)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_objective(stated: Stated) -> None:
    """Look the costs up where the file can be named."""
    if stated.minimize is not None and stated.maximize is not None:
        raise ValueError("give minimize or maximize, one of them")
    for key in ("minimize", "maximize"):
        value = getattr(stated, key)
        if value is not None and (value == [] or not all(isinstance(name, str) for name in _listed(value))):
            raise ValueError(f"{key} is {value!r}; it must be the name of a cost, or a list of names")
        for name in _listed(value):
            if name not in stated.mdp.costs:
                raise ValueError(f"{key}: {no_such('cost', name, stated.mdp.costs)}")


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


@contextmanager
def _at(key: str, i: int) -> Iterator[None]:
    """Name an entry of a list in every error about it; the first has number 1."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{key}, number {i + 1}: {error}") from None


def _budget(mdp: MDP, entry: Table) -> Any:
    keys = {key: entry.entries[key] for key in ("at_most", "at_least", "per") if key in entry.entries}
    return cm.Budget(entry.text("cost", '"collision"'), **keys, **_rank(entry))


UNCERTAINTIES: dict[str, Callable[[Any], Any]] = {
    "box": cm.Box,
    "ellipsoid": cm.Ellipsoid,
    "factors": lambda factors: cm.Ellipsoid(factors=factors),
    "vertices": cm.Vertices,
}


def _robust(mdp: MDP, entry: Table) -> Any:
    given = [key for key in UNCERTAINTIES if key in entry.entries]
    if len(given) != 1:
        raise ValueError(f"a robust limit needs one of {', '.join(UNCERTAINTIES)}, as in box = 1e-4")
    errors = UNCERTAINTIES[given[0]](_column(entry.numbers(given[0]), mdp, given[0]))
    return cm.RobustBudget(entry.get("cost"), errors, _needed(entry, "at_most"), **_rank(entry))


def _column(values: Any, mdp: MDP, key: str) -> Any:
    """Read one number as the same for all pairs, and one column of factors as a matrix."""
    if key == "ellipsoid" and np.ndim(values) == 0:
        return np.full(mdp.num_pairs, float(values))
    return np.reshape(values, (mdp.num_pairs, -1)) if key == "factors" and np.ndim(values) == 1 else values


def _linear(mdp: MDP, entry: Table) -> Any:
    if ("costs" in entry.entries) == ("rows" in entry.entries):
        raise ValueError('a linear limit needs costs = ["time", "collision"], or rows with a number for each pair')
    rows = entry.get("costs") if "costs" in entry.entries else entry.numbers("rows")
    return cm.Linear(rows, *(entry.numbers(key) for key in ("at_most", "at_least", "equal")), **_rank(entry))


def _bounds(mdp: MDP, entry: Table) -> Any:
    return cm.Bounds(entry.numbers("lower"), entry.numbers("upper"), **_rank(entry))


def _state_bounds(mdp: MDP, entry: Table) -> Any:
    sides = (
        entry.entries[key] if isinstance(entry.entries.get(key), dict) else entry.numbers(key)
        for key in ("lower", "upper")
    )
    return cm.StateBounds(*sides, **_rank(entry))


def _norm_ball(mdp: MDP, entry: Table) -> Any:
    center = read_occupancy(mdp, entry.path("near", '"expert.csv"'))
    return cm.NormBall(center, _needed(entry, "radius"), entry.get("norm", 2), entry.numbers("weights"), **_rank(entry))


def _kl_ball(mdp: MDP, entry: Table) -> Any:
    return cm.KLBall(read_occupancy(mdp, entry.path("near", '"expert.csv"')), _needed(entry, "radius"), **_rank(entry))


def _entropy(mdp: MDP, entry: Table) -> Any:
    return cm.Entropy(_needed(entry, "at_least"), entry.get("of", "pairs"), **_rank(entry))


LIMITS: dict[str, tuple[Callable[[MDP, Table], Any], Sequence[str]]] = {
    "budget": (_budget, ("cost", "at_most", "at_least", "per")),
    "robust": (_robust, ("cost", "at_most", *UNCERTAINTIES)),
    "linear": (_linear, ("costs", "rows", "at_most", "at_least", "equal")),
    "bounds": (_bounds, ("lower", "upper")),
    "state bounds": (_state_bounds, ("lower", "upper")),
    "norm ball": (_norm_ball, ("near", "radius", "norm", "weights")),
    "kl ball": (_kl_ball, ("near", "radius")),
    "entropy": (_entropy, ("at_least", "of")),
}
"""Kinds of limits: how each is read, and its keys."""


def read_limit(mdp: MDP, entry: Table) -> Any:
    """Return a limit, after binding it to the model once, so that errors name its place in the file."""
    kind = entry.get("kind", "budget", str, f"one of {', '.join(LIMITS)}")
    if kind not in LIMITS:
        raise ValueError(no_such("kind of limit", kind, LIMITS))
    make, keys = LIMITS[kind]
    entry.check(*RANK, *keys)
    limit = make(mdp, entry)
    limit.bind(mdp)
    return limit


def _rank(entry: Table) -> dict[str, Any]:
    entry.get("name", "", str, "a text")
    return {key: entry.entries[key] for key in RANK[1:] if key in entry.entries}


def _needed(entry: Table, key: str) -> Any:
    if key not in entry.entries:
        raise ValueError(f"the key {key!r} is missing; give it, as in {key} = 0.1")
    return entry.entries[key]


TERMS: dict[str, Sequence[str]] = {
    "distance": ("near", "norm"),
    "negative entropy": ("of",),
    "kl": ("near",),
}
"""Kinds of convex terms that are added to what is minimized, and their keys."""


def _term(mdp: MDP, entry: Table) -> Any:
    kind = entry.text("kind", '"distance"')
    if kind not in TERMS:
        raise ValueError(no_such("kind of term", kind, TERMS))
    entry.check("kind", "name", "weight", *TERMS[kind])
    more = _named(entry, "name", "weight")
    if kind == "negative entropy":
        return cm.NegativeEntropy(**more, **_named(entry, "of"))
    near = read_occupancy(mdp, entry.path("near", '"expert.csv"'))
    return cm.KL(near, **more) if kind == "kl" else cm.Distance(near, **more, **_named(entry, "norm"))


def _named(entry: Table, *keys: str) -> dict[str, Any]:
    return {key: entry.entries[key] for key in keys if key in entry.entries}
