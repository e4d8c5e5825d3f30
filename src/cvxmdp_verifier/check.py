"""The verifier: every claim of a solution is recomputed from the model, and the first false one is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from cvxmdp_verifier.bounds import Dual, least
from cvxmdp_verifier.errors import Refused, shown
from cvxmdp_verifier.extended import EPS, EPS64, GROWN, LD, Close, Real, dot, extended, parts
from cvxmdp_verifier.fields import Arrays, has_keys, items, names, number, text
from cvxmdp_verifier.files import read
from cvxmdp_verifier.infeasible import Evidence, verify_infeasibility
from cvxmdp_verifier.limits import Limit, Own, read_limit
from cvxmdp_verifier.model import VERSION, Model
from cvxmdp_verifier.policy import Policy, sure
from cvxmdp_verifier.report import Report, at_least, at_most
from cvxmdp_verifier.terms import Term, ValueAndProx, read_term

Data = tuple[dict[str, Any], Mapping[str, Any]]
"""A header and arrays, as in a file."""

STATUSES = ("OPTIMAL", "INFEASIBLE", "APPROXIMATE", "UNDECIDED", "ITERATION_LIMIT", "TIME_LIMIT", "INTERRUPTED")
KEYS = ("kind", "version", "states", "actions", "discount", "objective", "limits", "terms", "status", "tolerance",
        "value", "bound", "gap", "costs", "errors", "violations", "infeasibility", "stats")  # fmt: skip
CLOSE = 1e-6
"""Relative slack of what is compared with a tolerance or with a gap."""
MEASURED = 1e-9
"""What a user's own function may differ by between two vectors that are the same but for rounding."""
ROUNDING = 64 * EPS64 + 10_000 * EPS
"""A gap that the rounding of value and bound to float64 explains is none, nor one that the verifier's own may add."""
GROWTH = 0.01
"""Relative slack of an error that is stated."""
ANCHOR = 1e-9
"""However large the error of a policy, the numbers stated must be those of the visits stated up to this."""
COARSE = ANCHOR if EPS >= EPS64 else 0.0
"""Where the platform has nothing better than float64, an error stated elsewhere can be proven only up to this."""


def verify(
    model: Data,
    solution: Data,
    tolerance: float = 1e-6,
    sets: Mapping[str, Own] | None = None,
    terms: Mapping[str, ValueAndProx] | None = None,
) -> Report:
    """Prove every claim of a solution from the data of its model, or refuse it.

    Parameters
    ----------
    model, solution : tuple of dict and dict
        Header and arrays, as in the files.
    tolerance : float
        The loosest relative tolerance that is accepted.  The solution is held to its own, which may be tighter.
    sets : dict, optional
        The projection of each limit that is a user's own set, by its name, or the projection and the user's own
        function for how far a point is from obeying.
    terms : dict, optional
        Value and prox of each term that is a user's own, by its name.

    Returns
    -------
    Report
        What was proven, in words and numbers.

    Raises
    ------
    Refused
        When something is malformed or a claim is false or not proven.  The message names the first such claim.

    Examples
    --------
    One state, one action, a cost of 2: the value is 2, and zero potentials prove it.

    >>> import numpy as np
    >>> one, zero, none = np.ones(1), np.zeros(1), np.zeros(1, dtype=int)
    >>> model = (
    ...     {"kind": "cvxmdp model", "version": 2, "discount": 0.5, "states": 1, "actions": 1, "costs": ["time"]},
    ...     {"state": none, "action": none, "initial": one, "P": np.ones((1, 1)), "cost:0": 2 * one},
    ... )
    >>> solution = (
    ...     {"kind": "cvxmdp solution", "version": 2, "states": 1, "actions": 1, "limits": [], "terms": [],
    ...      "discount": 0.5, "objective": {"text": "time", "costs": ["time"]}, "status": "OPTIMAL",
    ...      "tolerance": 1e-6, "value": 2.0,
    ...      "bound": 2 - 2**-21, "gap": 2.5e-7, "costs": {"time": 2.0}, "violations": {}, "infeasibility": None,
    ...      "errors": {"value": 2e-15, "time": 2e-15}, "stats": {}},
    ...     {"state": none, "action": none, "occupancy": one, "cost": 2 * one, "policy:probabilities": one,
    ...      "policy:visits": np.array([[1.0], [0.0]]), "policy:visits_error": 1e-15 * one, "bound:potential": zero,
    ...      "visits": one, "probabilities": one},
    ... )
    >>> print(verify(model, solution))  # doctest: +ELLIPSIS
    OPTIMAL, proven to a relative tolerance of 1e-06.
    Minimized: time, which is the model's cost time.
    The policy costs 2, proven to within ...
    No policy costs less than 1.999999523; the gap is at most 2.39e-7.
    Cost time: 2, proven to within ...
    """
    if not (isinstance(tolerance, (int, float)) and tolerance > 0):
        raise ValueError("tolerance must be a positive number")
    try:
        with np.errstate(all="ignore"):  # what overflows or is not a number is found by the comparisons
            return _Verifier(model, solution, tolerance, sets or {}, terms or {}).report()
    except Refused:
        raise
    except Exception as error:  # a forgery may be malformed in ways that nobody thought of
        raise Refused(f"the solution cannot be understood: {type(error).__name__}: {shown(error)}") from error


def verify_files(model: str | PathLike[str], solution: str | PathLike[str], tolerance: float = 1e-6) -> Report:
    """Read a model and a solution from their files and prove every claim, as :func:`verify` does.

    Parameters
    ----------
    model, solution : str or path
        The two archives.
    tolerance : float
        The loosest relative tolerance that is accepted.

    Raises
    ------
    Refused
        When a file is malformed, or something is claimed that does not hold.
    """
    return verify(read(model, "model"), read(solution, "solution"), tolerance)


@dataclass(frozen=True)
class _Found:
    """The recomputed numbers of a policy."""

    value: Close
    scale: Real
    costs: dict[str, Close]


class _Verifier:
    def __init__(self, model: Data, solution: Data, tolerance: float, sets: Any, terms: Any) -> None:
        for data, what in ((model, "model"), (solution, "solution")):
            if not isinstance(data, tuple) or len(data) != 2:
                raise Refused(f"the {what} is not a header with arrays")
        self.model = Model(*model)
        self.header, arrays = solution
        has_keys(self.header, KEYS, "the header of the solution")
        if self.header["kind"] != "cvxmdp solution" or self.header["version"] != VERSION:
            raise Refused(f"this is not a solution of version {VERSION}")
        self.arrays = Arrays(arrays, "solution")
        self._belongs()
        self.status = text(self.header["status"], "the status")
        if self.status not in STATUSES:
            raise Refused(f"the status {shown(self.status)!r} is not known")
        self.tolerance = number(self.header["tolerance"], "the tolerance of the solution")
        if not 0 < self.tolerance <= tolerance * (1 + 1e-12):
            raise Refused(
                f"the solution claims optimality only to {self.tolerance:g}; verify with "
                f"tolerance={self.tolerance:g} to accept that"
            )
        L = self.model.num_pairs
        self.limits: list[Limit] = [
            read_limit(self.model, entry, self.arrays, i, sets)
            for i, entry in enumerate(items(self.header["limits"], "limits"))
        ]
        names([limit.name for limit in self.limits], "the limits")
        self.terms: list[Term] = [
            read_term(self.model, entry, self.arrays, i, terms)
            for i, entry in enumerate(items(self.header["terms"], "terms"))
        ]
        self.cost = self.arrays.floats("cost", (L,))
        self.violations: dict[str, tuple[Real, Real]] = {}
        self.sentences = [self._status_words()]
        self._objective()
        self.policy = Policy(self.model, self.arrays, "policy").point
        self.occupancy = self.arrays.floats("occupancy", (L,))
        for pairs in parts(L):
            d = self.policy.d[pairs]
            wrong = ~(np.abs(self.occupancy[pairs] - d) <= 4 * EPS64 * np.abs(d) + 1e-300)
            if not wrong.any():
                continue
            pair = pairs.start + int(np.argmax(wrong))
            raise Refused(
                f"the occupancy of action {shown(self.model.actions[self.model.action[pair]])} in state "
                f"{shown(self.model.states[self.model.state[pair]])} is said to be {self.occupancy[pair]:.9g}; the "
                f"policy's is {float(self.policy.d[pair]):.9g}"
            )

        self._copies()

    def _copies(self) -> None:
        """See that what is stated once more for convenience is the same."""
        model = self.model
        probabilities = self.arrays.floats("probabilities", (model.num_pairs,))
        if not np.array_equal(probabilities, self.arrays.floats("policy:probabilities", (model.num_pairs,))):
            raise Refused("the probabilities stated are not those of the policy's record")
        visits, sums = self.arrays.floats("visits", (model.num_states,)), model.per_state(self.occupancy)
        sizes = model.per_state(np.abs(self.occupancy))
        wrong = ~(np.abs(visits - sums) <= (4 + np.diff(model.starts)) * EPS64 * sizes + 1e-300)
        if wrong.any():
            s = int(np.argmax(wrong))
            raise Refused(
                f"state {shown(model.states[s])} is said to have {visits[s]:.9g} of the visits; its pairs have "
                f"{float(sums[s]):.9g}"
            )

    def _belongs(self) -> None:
        """See that the solution is of this model."""
        model = self.model
        for what, own in (("states", model.states), ("actions", model.actions)):
            given = self.header[what]
            if type(given) is not type(own.given) or given != own.given:
                raise Refused(f"the {what} of the solution are not those of the model")
        if number(self.header["discount"], "the discount") != model.discount:
            raise Refused(f"the solution is of discount {self.header['discount']}; the model has {model.discount:g}")
        for what, pairs in (("state", model.state), ("action", model.action)):
            if not np.array_equal(self.arrays.ints(what, (model.num_pairs,), 2**40), pairs):
                raise Refused("the pairs of the solution are not those of the model")

    def _status_words(self) -> str:
        if self.status == "OPTIMAL":
            return f"OPTIMAL, proven to a relative tolerance of {self.tolerance:g}."
        return f"{self.status}, judged to a relative tolerance of {self.tolerance:g}."

    def _objective(self) -> None:
        """See that what is minimized is the sum of the costs that are named, or what is maximized its negative."""
        objective = self.header["objective"]
        has_keys(objective, ("text", "costs"), "the objective", ("sense",))
        sense = text(objective.get("sense", "minimize"), "the sense of the objective")
        if sense not in ("minimize", "maximize"):
            raise Refused(f"the sense of the objective is {shown(sense)!r}, which is none")
        sign = 1 if sense == "minimize" else -1
        called = text(objective["text"], "the text of the objective")
        named = items(objective["costs"], "the costs of the objective")
        words = f"{sense.capitalize()}d: {shown(called)}"
        known = []
        for name in named:
            if name is None:
                continue
            if text(name, "a cost of the objective") not in self.model.costs:
                raise Refused(f"the objective has a cost that the model has not: {shown(name)}")
            known.append(name)
        if len(known) == len(named):
            for pairs in parts(self.cost.size):
                cost = self.cost[pairs]
                columns = [extended(self.model.costs[name][pairs]) for name in known]
                sums = sign * sum(columns, LD(0) * cost)
                sizes = sum((np.abs(column) for column in columns), LD(0) * cost)
                wrong = ~(np.abs(sums - cost) <= 4 * len(known) * EPS64 * sizes)
                if not wrong.any():
                    continue
                at = int(np.argmax(wrong))
                raise Refused(
                    f"the cost that is {sense}d is not the sum of {', '.join(map(shown, known)) or 'nothing'}: it is "
                    f"{float(cost[at]):.9g} in state "
                    f"{shown(self.model.states[self.model.state[pairs.start + at]])} in place of {float(sums[at]):.9g}"
                )
            if known:
                kind = "cost" if len(known) == 1 else "costs"
                words += f", which is the model's {kind} {' and '.join(map(shown, known))}"
        else:
            words += ", which has a cost that is given as a vector"
        if self.terms:
            words += ("; added to that: " if named else ", which is ") + " and ".join(t.words() for t in self.terms)
        self.sentences.append(words + ".")

    def _found(self) -> _Found:
        point = self.policy
        costs = {name: self._cost(cost) for name, cost in self.model.costs.items()}
        value, scale = self._cost(self.cost), dot(np.abs(self.cost), np.abs(point.d)).value
        for term in self.terms:
            more, size = term.value(point)
            together = value.value + more.value
            rounding = 2 * EPS * (abs(value.value) + abs(more.value))
            value, scale = Close(together, (value.error + more.error + rounding) * GROWN), scale + size
        return _Found(value, scale, costs)

    def _cost(self, row: Real) -> Close:
        inner = dot(row, self.policy.d)
        return Close(inner.value, inner.error + self.policy.off(np.abs(row)))

    def _room(self, found: Close, size: Real) -> Real:
        """How far a stated number may be from the recomputed one: as far as a computation in float64 takes it."""
        return np.minimum(found.error, ANCHOR * size) + self._rounding * size

    @property
    def _rounding(self) -> float:
        """What adding up in float64 may do, relative to the size of what is added up."""
        return float((16 + np.sqrt(self.model.num_pairs)) * EPS64)

    def _same(self, claimed: float, error: float, found: Close, size: Real, what: str) -> float:
        """Refuse a number that is not the recomputed one to its stated error; return how far the truth can be."""
        off = abs(claimed - found.value)
        if not off <= self._room(found, size):
            raise Refused(f"{what} is said to be {claimed:.9g}; recomputed it is {float(found.value):.9g}")
        # Two bounds of the same error differ by what each grows by for its own rounding.
        if error < 0 or not max(off, found.error) <= error * (1 + GROWTH) + (self._rounding + COARSE) * size:
            raise Refused(f"{what} is said to be off by at most {error:.3g}; {float(found.error):.3g} is proven")
        return _up(off + found.error)

    def report(self) -> Report:
        """Check everything else; nothing is believed before."""
        found = self._found()
        header = self.header
        value = number(header["value"], "the value")
        stated, errors = header["costs"], header["errors"]
        has_keys(errors, tuple({"value": None} | self.model.costs), "the errors of the solution")
        off = {name: number(error, f"the error of {shown(name)}", infinite=True) for name, error in errors.items()}
        value_error = self._same(value, off["value"], found.value, found.scale, "the value")
        has_keys(stated, tuple(self.model.costs), "the costs of the solution")
        cost_errors = {}
        for name, cost in found.costs.items():
            size = dot(np.abs(self.model.costs[name]), np.abs(self.policy.d)).value
            claimed = number(stated[name], f"the cost {shown(name)}")
            cost_errors[name] = self._same(claimed, off[name], cost, size, f"the cost {shown(name)}")
        self.sentences.append(f"The policy costs {value:.9g}, proven to within {at_most(value_error, 3)}.")
        has_keys(header["violations"], tuple(limit.name for limit in self.limits), "the violations of the solution")
        limit_words = [self._limit(i, limit) for i, limit in enumerate(self.limits)]
        violations = {limit.name: _up(limit.violation(self.policy).high) for limit in self.limits}
        bound = gap = margin = lowest = None
        if self.status == "INFEASIBLE":
            if header["bound"] is not None or header["gap"] is not None:
                raise Refused("an infeasible problem has no bound and no gap, but the solution states one")
            self._settled(found)
            evidence = Evidence(
                self.model, self.limits, self.terms, self.arrays, self.policy, self.occupancy, self.cost,
                self.violations, self.tolerance,
            )  # fmt: skip
            margin, lowest, words = verify_infeasibility(header["infeasibility"], evidence)
            self.sentences += words
            self._prices(None)
        else:
            if header["infeasibility"] is not None:
                raise Refused(f"the status is {self.status}, but the solution has evidence of infeasibility")
            bound, gap = self._bound(found)
        self.arrays.nothing_left()
        for name in self.model.costs:
            self.sentences.append(
                f"Cost {shown(name)}: {float(stated[name]):.9g}, proven to within {at_most(cost_errors[name], 3)}."
            )
        return Report(
            self.status, self.tolerance, value, value_error, bound, gap, {k: float(v) for k, v in stated.items()},
            cost_errors, violations, margin, lowest, (*self.sentences, *limit_words),
        )  # fmt: skip

    def _limit(self, i: int, limit: Limit) -> str:
        """Check level and violation of a limit; return what it asks for and what is reached."""
        what = f"the limit {shown(limit.name)}"
        if getattr(limit, "measure", None) is not None:
            return self._own_limit(i, limit, what)
        level, size = limit.level(self.policy)
        values = np.atleast_1d(level.value)
        stated = self._values(f"level:{i}", values.size, np.ndim(level.value) > 0)
        infinite = np.isinf(values) & (values == stated)
        wrong = ~(infinite | (np.abs(stated - values) <= np.atleast_1d(self._room(level, size))))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise Refused(f"{what} is said to be at {stated[row]:.9g}; recomputed it is at {float(values[row]):.9g}")
        violations = self.header["violations"]
        claimed = number(violations[limit.name], f"the violation of {what}", infinite=True)
        excess = limit.excess(self.policy)
        room = self._room(excess, limit.excess_size(self.policy))
        # Row by row, so that what rounding may do to a large row hides nothing in a small one.
        low, high = np.max(excess.value - room, initial=0), np.max(excess.value + room, initial=0)
        self.violations[limit.name] = low, high
        if not (low <= claimed <= high):
            raise Refused(
                f"{what} is said to be exceeded by {claimed:.9g}; recomputed it is exceeded by "
                f"{float(limit.violation(self.policy).value):.9g}"
            )
        error = float(np.max(level.error, initial=0))
        exceeded = limit.violation(self.policy)
        words = f"Limit {shown(limit.name)}: {limit.words()}{self._cost_of(limit)}; the policy reaches "
        words += f"{limit.level_words(stated)}, proven to within {at_most(error, 3)}"
        if exceeded.high <= 0:
            return words + "; obeyed."
        share = limit.relative(self.policy)
        much = f"by at most {at_most(exceeded.high, 4)}, relatively {at_most(share, 3)}"
        return words + (
            f"; obeyed to the tolerance, exceeded {much}." if share <= self.tolerance else f"; exceeded {much}."
        )

    def _own_limit(self, i: int, limit: Any, what: str) -> str:
        """Check that level and violation of a user's own set are what the user's own function says of the policy."""
        measured = max(float(limit.measure(np.asarray(self.policy.d, dtype=np.float64))), 0.0)
        room = MEASURED * (1 + measured)
        stated = self._values(f"level:{i}", 1, False)[0]
        claimed = number(self.header["violations"][limit.name], f"the violation of {what}", infinite=True)
        for said in (stated, claimed):
            if not abs(said - measured) <= room:
                raise Refused(f"{what} is said to be exceeded by {said:.9g}; its own function says {measured:.9g}")
        self.violations[limit.name] = LD(max(measured - room, 0.0)), LD(measured + room)
        share = limit.relative(self.policy)
        words = f"Limit {shown(limit.name)}: {limit.words()}; its own function says {measured:.6g}"
        return words + (
            "; obeyed." if share <= 0 else f"; the policy is away from it by at most {at_most(share, 3)} of its length."
        )

    def _cost_of(self, limit: Limit) -> str:
        """Say which cost of the model a limit of one row limits, if any."""
        rows = getattr(limit, "rows", None)
        if rows is None or limit.num_rows != 1:
            return ""
        row = rows.row(0)
        same = [name for name, cost in self.model.costs.items() if np.array_equal(row, cost)]
        if limit.name in same:
            return ", the model's cost of this name"
        return f", the model's cost {shown(same[0])}" if same else ", a row that is not a cost of the model"

    def _values(self, name: str, size: int, rows: bool, nan: bool = False) -> Any:
        """Read an array of one number for each row, or a single number."""
        array = self.arrays.floats(name, None, infinite=True, nan=nan)
        if array.shape != ((size,) if rows else ()) and not (size == 1 and array.shape in ((), (1,))):
            raise Refused(f"the array {name!r} of the solution has shape {array.shape}")
        return np.atleast_1d(array)

    def _settled(self, found: _Found) -> None:
        """See that the policy is known well enough to mean what is said of it."""
        if not found.value.error <= self.tolerance * found.scale:
            raise Refused(
                f"the value is said to be {float(self.header['value']):.9g}; the visits stated prove it only to within "
                f"{float(found.value.error):.3g}"
            )
        for limit in self.limits:
            with_error, without = limit.relative(self.policy), limit.relative(sure(self.policy))
            if not (with_error == without or with_error - without <= self.tolerance * max(1, without)):
                raise Refused(f"how far the limit {shown(limit.name)} is exceeded is not proven by the visits stated")

    def _bound(self, found: _Found) -> tuple[float, float]:
        header = self.header
        bound = number(header["bound"], "the bound", infinite=True)
        dual = Dual(self.model, self.arrays, "bound", self.limits, self.terms)
        if np.isposinf(bound):
            raise Refused("the bound is said to be infinite")
        if np.isfinite(bound):
            proven = least(self.model, dual.potential, [*dual.normals, *dual.slopes], self.cost)
            if not bound <= proven:
                raise Refused(
                    f"no policy that obeys is said to cost less than {bound:.9g}; the duals prove {float(proven):.9g}"
                )
        gap = self._gap(found, bound)
        worst = [(limit.relative(self.policy), limit) for limit in self.limits]
        beyond = [(share, limit) for share, limit in worst if not share <= self.tolerance * (1 + CLOSE)]
        claimed = number(header["gap"], "the gap", infinite=True)
        if beyond and not np.isposinf(claimed):
            share, limit = beyond[0]
            raise Refused(
                f"a gap of {claimed:.3g} is claimed, but the policy exceeds the limit {shown(limit.name)} by up to "
                f"{float(share):.3g} of its size"
            )
        if not (claimed >= 0 and claimed >= gap * (1 - CLOSE) - ROUNDING):
            raise Refused(f"the gap is said to be at most {claimed:.9g}; recomputed it is up to {float(gap):.9g}")
        if self.status == "OPTIMAL":
            if not (claimed <= self.tolerance * (1 + CLOSE) and gap <= self.tolerance * (1 + CLOSE)):
                raise Refused(f"OPTIMAL to {self.tolerance:g} is claimed; the gap is {max(claimed, float(gap)):.9g}")
            self._prices(dual)
        else:
            self._prices(None)
            if np.isfinite(claimed) and not found.value.error <= max(self.tolerance, claimed) * found.scale:
                self._settled(found)
        who = "No policy that obeys all limits" if self.limits else "No policy"
        # Where a limit is exceeded, value and bound are not of the same problem.
        words = f"; the gap is at most {at_most(gap, 3)}" if not beyond and np.isfinite(gap) else "; no gap is proven"
        if np.isfinite(bound):
            self.sentences.append(f"{who} costs less than {at_least(bound, 10)}{words}.")
        else:
            self.sentences.append("No lower bound of the cost is claimed.")
        return bound, float("inf") if beyond else _up(gap)

    def _gap(self, found: _Found, bound: float) -> Real:
        above = found.value.high - LD(bound)
        if not above > 0:
            return LD(0)
        return above / found.scale if found.scale > 0 else LD(np.inf)

    def _prices(self, dual: Dual | None) -> None:
        """See that prices are those of the duals; where there is no proof of an optimum there are none."""
        for i, limit in enumerate(self.limits):
            size = limit.dual_size() if limit.num_rows > 1 else 1
            stated = self._values(f"price:{i}", size, limit.num_rows > 1, nan=True)
            if dual is None:
                if not np.all(np.isnan(stated)):
                    raise Refused(f"a price of the limit {shown(limit.name)} is stated without a proof of an optimum")
                continue
            price = np.atleast_1d(dual.normals[i].price)
            room = self._rounding + (64 + self.model.num_pairs) * EPS
            wrong = ~(np.abs(stated - price) <= room * np.abs(price) + dual.normals[i].price_error)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise Refused(
                    f"the price of the limit {shown(limit.name)} is said to be {stated[row]:.9g}; the duals say "
                    f"{float(price[row]):.9g}"
                )


def _up(x: Real) -> float:
    """Return a float that is not below a longdouble."""
    out = float(x)
    return out if out >= x else float(np.nextafter(out, np.inf))
