"""True solutions are accepted, and what is false, malformed or not proven is refused."""

import io
import json
import math
import subprocess
import sys
import zipfile
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxmdp_verifier
from cvxmdp_verifier import Refused, Report, read, verify, verify_files
from cvxmdp_verifier.extended import Matrix, dot, extended, norm, total
from verifier.cases import NAMES, active, made
from verifier.makers import LD, Case, Rows, World, duals, linear_program, proven, solution

ROOT = Path(cvxmdp_verifier.__file__).parent


def refused(case, match=None):
    with pytest.raises(Refused, match=match) as caught:
        case.verify()
    foreseen(caught.value)
    return str(caught.value)


def foreseen(error):
    """What was foreseen is said better than by an exception of Python's."""
    assert "cannot be understood" not in str(error)


def write(path, header, arrays, words=None):
    text = json.dumps(header) if words is None else words
    np.savez(path, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)
    return path


# What is true is accepted


@pytest.mark.parametrize("name", NAMES)
def test_true_solutions_are_accepted(name, tmp_path):
    case = made(name)
    report = case.verify()
    header = case.solution[0]
    assert report.status == header["status"]
    assert report.value == header["value"]
    assert report.value_error < 1e-14
    assert all(len(line) <= 80 for line in str(report).splitlines())
    if report.status != "INFEASIBLE":
        assert report.bound == header["bound"]
        assert report.gap <= 1e-5
    files = write(tmp_path / "model.npz", *case.model), write(tmp_path / "solution.npz", *case.solution)
    again = [read(path, kind) for path, kind in zip(files, ("model", "solution"), strict=True)]
    assert str(verify(*again, 1e-5, case.sets, case.terms)) == str(report)


def test_the_report_says_what_was_proven():
    words = " ".join(str(made("infeasible nearest").verify()).split())
    for part in (
        "No policy obeys all limits", "cannot all be obeyed: time and crash; without any one of them they could be",
        "Relaxing time alone by", "Relaxing both alone is never enough", "comes nearest", "Limit crash: at most 0.15",
    ):  # fmt: skip
        assert part in words
    words = " ".join(str(made("infeasible relative").verify()).split())
    assert "the least possible" in words
    assert "comes nearest" not in words
    report = made("budget").verify()
    assert isinstance(report, Report)
    with pytest.raises(FrozenInstanceError):
        report.value = 0.0


def test_needs_numpy_alone():
    code = (
        "import sys, cvxmdp_verifier; "
        "assert not {'scipy', 'cvxmdp', 'cvxpy'} & {name.partition('.')[0] for name in sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT.parent)})


def test_files_in_one_call(tmp_path):
    case = made("budget")
    files = write(tmp_path / "model.npz", *case.model), write(tmp_path / "solution.npz", *case.solution)
    with pytest.raises(Refused, match="only to 1e-05"):
        verify_files(*files)
    assert verify_files(*files, tolerance=1e-5).status == "OPTIMAL"


def test_a_large_model_is_fast_and_small():
    """A million transitions; the arrays in extended precision stay far below a copy of P."""
    S, k = 50_000, 20
    rng = np.random.default_rng(0)
    indices = np.sort((rng.integers(0, S, (S, 1)) + np.cumsum(rng.integers(1, 9, (S, k)), axis=1)) % S, axis=1)
    data = rng.dirichlet(np.ones(k), size=S)
    arrays = {
        "P_data": data.ravel(), "P_indices": indices.ravel(), "P_indptr": np.arange(0, S * k + 1, k),
        "P_shape": np.array([S, S]), "state": np.arange(S), "action": np.zeros(S, dtype=int),
        "initial": np.full(S, 1 / S), "cost:0": np.ones(S),
    }  # fmt: skip
    header = {"kind": "cvxmdp model", "version": 2, "discount": 0.5, "states": S, "actions": 1, "costs": ["time"]}
    x = np.full(S, 1 / S, dtype=LD)
    scaled = data.astype(LD) / data.astype(LD).sum(axis=1, keepdims=True)
    for _ in range(80):
        y = np.zeros(S, dtype=LD)
        np.add.at(y, indices.ravel(), (scaled * x[:, None]).ravel())
        x = 0.5 / LD(S) + 0.5 * y
    high = x.astype(float)
    said = {
        "kind": "cvxmdp solution", "version": 2, "states": S, "actions": 1, "limits": [], "terms": [],
        "objective": {"text": "time", "costs": ["time"]}, "status": "OPTIMAL", "tolerance": 1e-6, "value": 1.0,
        "bound": 1 - 1e-9, "gap": 1.1e-9, "costs": {"time": 1.0}, "violations": {}, "infeasibility": None,
        "discount": 0.5, "errors": {"value": 1e-14, "time": 1e-14}, "stats": None,
    }  # fmt: skip
    one = np.ones(S)
    more = {
        "state": arrays["state"], "action": arrays["action"], "occupancy": high, "visits": high, "cost": one,
        "probabilities": one, "policy:probabilities": one, "policy:visits": np.array([high, (x - high).astype(float)]),
        "policy:visits_error": np.zeros(S), "bound:potential": 2 * one,
    }  # fmt: skip
    assert verify((header, arrays), (said, more)).value_error < 1e-14


# Rounding


@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_sums_enclose_the_truth(seed, n):
    from fractions import Fraction

    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=n) * 10.0 ** rng.integers(-12, 12, n) for _ in range(2))
    exact = sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(0))

    def fraction(x):
        high = float(x)
        return Fraction(high) + Fraction(float(x - LD(high)))

    found = dot(extended(a), extended(b))
    assert abs(fraction(found.value) - exact) <= fraction(found.error)
    added = total(extended(a))
    assert abs(fraction(added.value) - sum(map(Fraction, a), Fraction(0))) <= fraction(added.error)
    row = Matrix(a[None])
    assert abs(fraction(row.times(extended(b)).value[0]) - exact) <= fraction(row.times(extended(b)).error[0])
    column = Matrix(a[:, None])
    assert abs(fraction(column.back(extended(b)).value[0]) - exact) <= fraction(column.back(extended(b)).error[0])
    for p in (1, 1.5, 2, 3, np.inf):
        length = norm(extended(a), p)
        assert abs(length.value - np.linalg.norm(a, p)) <= 1e-13 * abs(length.value)


# Forgeries that were once accepted somewhere


def test_a_potential_of_1e16_proves_a_low_bound_and_no_small_gap():
    """The bound is true; a small gap next to it is not."""
    case = made("budget").copy()
    header, arrays = case.solution
    arrays["bound:potential"] = arrays["bound:potential"] + 1e16
    refused(case, "the duals prove")
    header["bound"] = -1e9
    refused(case, "the gap is said to be")
    header["gap"] = "inf"
    refused(case, "OPTIMAL to 1e-05 is claimed")


def test_infeasible_by_the_rounding_of_rows():
    """Rows that add up to 1 + 2.5e-14 and a potential of 1e15 leave a margin of 2.5 where nothing is limited."""
    world = World(7)
    world.P = world.P * (1 + 2.5e-14)
    limit = Rows("crash", world.costs["crash"], 5.0)
    header, arrays, _ = solution(world, [limit], world.potential(world.costs["time"])[1], status="INFEASIBLE")
    arrays |= duals("margin", np.full(world.S, 1e15), [np.zeros(1)])
    header["infeasibility"] = {
        "margin": 1.0, "least": "inf", "distance": ["inf", "inf"], "compromise": "unfinished", "cheapest": "-inf",
        "conflict": [], "conflict_limits": [], "irreducible": False, "impossible": {}, "impossible_limits": [],
        "relax": {},
    }  # fmt: skip
    for V in (1e15, -1e15):
        arrays["margin:potential"] = np.full(world.S, V)
        refused(Case(world.file(), (header, arrays)), "margin")


def rare():
    """Two states; the second is reached once in ten billion steps from the first and is left at once."""
    world = World(8, S=2, A=1, uneven=False)
    world.P = np.array([[1 - 1e-10, 1e-10], [1.0, 0.0]])
    world.rho = np.array([1.0, 0.0])
    return world


def without_the_rare(world, limits, **more):
    """What would be true if the second state were never visited."""
    case = proven(world, limits, np.ones(2), **more)
    header, arrays = case.solution
    d = np.array([1.0, 0.0])
    arrays |= {"occupancy": d, "visits": d, "policy:visits": np.array([d, 0 * d]), "policy:visits_error": 0 * d}
    arrays |= {f"level:{i}": limit.level(d) for i, limit in enumerate(limits)}
    header["costs"] = {name: float(cost @ d) for name, cost in world.costs.items()}
    header["violations"] = {limit.name: limit.excess(d) for limit in limits}
    header["value"] = float(arrays["cost"] @ d)
    return case


def test_a_rare_crash_cannot_be_left_out():
    world = rare()
    world.costs = {"time": np.array([1.0, 1.0]), "crash": np.array([0.0, 1.0])}
    case = without_the_rare(world, [Rows("crash", world.costs["crash"], 1e-15)])
    assert case.solution[1]["level:0"] == 0
    assert proven(world, [], np.ones(2)).solution[0]["costs"]["crash"] == pytest.approx(9e-11, rel=0.01)
    refused(case, "off by at most 1e-15")
    case.solution[0]["errors"] = dict.fromkeys(("value", "time", "crash"), 1.0)
    refused(case, "exceeds the limit crash")


@pytest.mark.parametrize("error", [0.0, 1e-10, 1.0, 1e10])
def test_a_large_cost_in_a_rare_state_cannot_be_left_out(error):
    world = rare()
    world.costs = {"time": np.array([0.5, 1e12])}
    case = without_the_rare(world, [])
    header, arrays = case.solution
    assert header["value"] == 0.5
    assert proven(world, [], np.ones(2)).solution[0]["value"] == pytest.approx(90.5, rel=0.01)
    arrays["policy:visits_error"] = np.full(2, error)
    header |= {"bound": 0.4999999, "gap": 2e-7}
    refused(case, "gap|value")
    header["errors"]["value"] = 1.0
    refused(case, "off by at most|gap|value")
    header["errors"] = {"value": "inf", "time": "inf"}
    for status in ("APPROXIMATE", "TIME_LIMIT", "UNDECIDED"):
        header["status"] = status
        refused(case, "gap|value")


def test_a_loose_tolerance_in_the_file_is_not_taken_over():
    case = made("budget").copy()
    case.solution[0]["tolerance"] = 0.9
    assert "verify with tolerance=0.9 to accept that" in refused(case, "only to 0.9")
    assert verify(case.model, case.solution, 0.9).tolerance == 0.9


def test_names_cannot_move_the_cursor():
    case = made("budget").copy()
    header = case.solution[0]
    evil = "crash\x1b[2J\r\nOPTIMAL\u202e"
    header["limits"][0]["name"] = evil
    header["violations"] = {evil: header["violations"]["crash"]}
    text = str(case.verify())
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "crash\\x1b[2J\\r\\nOPTIMAL\\u202e" in "".join(text.split("\n  "))
    header["violations"] = {evil: 0.5}
    assert "\x1b" not in refused(case, "exceeded by 0.5")


def test_huge_visit_errors_are_no_excuse():
    """However large the stated error, the numbers must be those of the visits, and the gap counts the error."""
    for name in ("budget", "infeasible nearest", "limit"):
        case = made(name).copy()
        case.solution[1]["policy:visits_error"] = np.full(4, 1e6)
        refused(case)


def test_a_curved_limit_with_a_wrong_multiplier_is_refused():
    for kind in ("ball2", "entropy", "KL", "full", "weighted"):
        case = active(kind)
        for factor in (0.5, 2.0, -1.0):
            forged = case.copy()
            forged.solution[1]["bound:dual:0"] = forged.solution[1]["bound:dual:0"] * factor
            refused(forged)


def test_a_conflict_that_is_none():
    case = made("infeasible nearest").copy()
    found = case.solution[0]["infeasibility"]
    found |= {"conflict": ["time"], "conflict_limits": [[0, 0]], "without": ["without:0"]}
    refused(case, "also uses the limit crash")
    case.solution[1]["conflict:dual:1"] = np.zeros(1)
    refused(case, "said to conflict")


def test_zero_duals_prove_no_priority():
    case = made("infeasible priority").copy()
    for i in range(3):
        case.solution[1][f"priority:2:dual:{i}"] = np.zeros(1)
    case.solution[1]["priority:2:potential"] = np.zeros(4)
    refused(case, "limits of priority 2 are said to need")


def test_own_sets_and_terms_are_asked_for():
    for name, match in (("active own", "projection in sets"), ("active squares", "value and prox in terms")):
        case = made(name)
        with pytest.raises(Refused, match=match):
            verify(case.model, case.solution, 1e-5)


def test_another_model_is_not_the_solutions():
    case, other = made("budget").copy(), World(9)
    other.states = case.model[0]["states"]
    refused(Case(other.file(), case.solution))
    case.model[0]["states"] = ["s0", "s1", "s3", "s2"]
    refused(case, "states of the solution are not those of the model")


def test_a_matrix_that_is_nearly_semidefinite_proves_nothing_more():
    """Along an eigenvalue a hair below zero, y'Qy is negative and Q y is whatever a forger wants it to be."""
    case = made("active full").copy()
    header, arrays = case.solution
    L = arrays["cost"].size
    v = np.ones(L) / np.sqrt(L)
    Q = arrays["limit:0:matrix"]
    Q = Q - np.outer(v, Q @ v) - np.outer(Q @ v, v) + (v @ Q @ v) * np.outer(v, v) - 1e-13 * np.outer(v, v)
    arrays["limit:0:matrix"] = Q = (Q + Q.T) / 2
    d = arrays["occupancy"]
    arrays["level:0"] = np.asarray(arrays["limit:0:cost"] @ d + np.sqrt(d @ Q @ d))
    header["limits"][0]["at_most"] = float(arrays["level:0"])
    header["violations"]["robust"] = 0.0
    header["bound"] = header["value"]
    arrays["bound:potential"] = np.zeros(4)
    arrays["price:0"] = np.array(0.0)
    for size in (1e12, 1e13, 1e14, 1e16):
        for sign in (1, -1):
            arrays["bound:dual:0"] = np.append(0.0, sign * size * v)
            refused(case)
    arrays["limit:0:matrix"] = Q - 0.01 * np.outer(v, v)
    refused(case)


# Everything altered

CLAIMS = ("state", "action", "occupancy", "visits", "probabilities", "cost", "level:", "price:", "displacement")
"""Arrays that are claims themselves: whatever changes in them by more than rounding must be refused."""
FREE = (("stats",), ("objective", "text"))


def leaves(entry, path=()):
    """All paths of a header to what is not an object or a list, and to those themselves."""
    if path:
        yield path
    if path[:1] in FREE or path in FREE:
        return
    if isinstance(entry, dict):
        for key in entry:
            yield from leaves(entry[key], (*path, key))
    elif isinstance(entry, list):
        for i in range(len(entry)):
            yield from leaves(entry[i], (*path, i))


def at(entry, path):
    for key in path:
        entry = entry[key]
    return entry


def altered(array, how, i, j):
    """Return an array with something done to it, or None where that changes nothing."""
    out = array.copy()
    flat = out.reshape(-1)
    if how in ("nan", "inf", "huge", "scale", "shift", "negate") and out.size:
        if out.dtype.kind == "b":
            flat[i % out.size] ^= True
        else:
            number = flat[i % out.size]
            whole = out.dtype.kind in "iu"
            flat[i % out.size] = {
                "nan": -1 if whole else np.nan, "inf": 2**30 if whole else np.inf, "huge": 10**9 if whole else 1e16,
                "scale": number * 2 if whole else number * 1.001, "shift": number + 1 if whole else number + 1e-3,
                "negate": -number,
            }[how]  # fmt: skip
    elif how == "swap" and out.size:
        flat[[i % out.size, j % out.size]] = flat[[j % out.size, i % out.size]]
    elif how == "all":
        out = out + (1 if out.dtype.kind in "iu" else 1e-3) if out.dtype.kind != "b" else ~out
    elif how == "reverse":
        out = out[..., ::-1].copy() if out.ndim else out
    elif how == "dtype":
        return out.astype(np.float32 if out.dtype.kind == "f" else np.float64)
    elif how == "shape":
        return np.stack([out, out])
    elif how == "object":
        return out.astype(object)
    same = np.array_equal(out, array, equal_nan=out.dtype.kind == "f")
    return None if same else out


HOWS = ("nan", "inf", "huge", "scale", "shift", "negate", "swap", "all", "reverse", "dtype", "shape", "object", "drop",
        "rename", "double")  # fmt: skip


def still_true(case):
    """See that what was accepted is true, from the altered data, by a dense solve and the known optimum."""
    header, arrays = case.solution
    report = case.verify()
    world = World.__new__(World)
    world.state, world.action, world.L = arrays["state"], arrays["action"], arrays["state"].size
    world.gamma, world.S = case.model[0]["discount"], len(header["states"])
    world.Xi = np.equal.outer(np.arange(world.S), world.state).astype(float)
    world.rho, world.P = case.model[1]["initial"], dense(case.model[1], "P")
    d = world.visits(arrays["policy:probabilities"])[2]
    for i, (name, cost) in enumerate(report.costs.items()):
        assert abs(cost - case.model[1][f"cost:{i}"] @ d) <= report.cost_errors[name] + 1e-18
    if report.status == "OPTIMAL":
        for i, entry in enumerate(header["limits"]):
            if entry["kind"] == "linear":
                value, upper = dense(arrays, f"limit:{i}:rows") @ d, arrays[f"limit:{i}:upper"]
                size = np.abs(dense(arrays, f"limit:{i}:rows")) @ d
                assert np.all(value - upper <= 1.01e-5 * np.maximum(np.abs(upper), size))
        kinds = {entry["kind"] for entry in header["limits"]}
        if kinds <= {"linear"} and not header["terms"]:
            rows = [np.zeros((1, world.L))] + [dense(arrays, f"limit:{i}:rows") for i in range(len(header["limits"]))]
            upper = [np.ones(1)] + [arrays[f"limit:{i}:upper"] for i in range(len(header["limits"]))]
            # HiGHS takes no entries of 1e16; smaller ones limit less, so that the optimum is not above the true one.
            rows, upper = np.minimum(np.vstack(rows), 1e6), np.minimum(np.concatenate(upper), 1e9)
            optimum = linear_program(world, arrays["cost"], rows, upper)[1]
            assert report.bound <= optimum + 1e-9
            assert report.value <= optimum + 1e-5 * abs(optimum) + 1e-9


def dense(arrays, name):
    if name in arrays:
        return arrays[name]
    out = np.zeros(arrays[f"{name}_shape"])
    rows = np.repeat(np.arange(out.shape[0]), np.diff(arrays[f"{name}_indptr"]))
    out[rows, arrays[f"{name}_indices"]] = arrays[f"{name}_data"]
    return out


def forge(case, key, how, i, j):
    """Alter one array of a solution; return whether that changed anything."""
    arrays = case.solution[1]
    if how == "drop":
        del arrays[key]
    elif how == "rename":
        arrays[key + "x"] = arrays.pop(key)
    elif how == "double":
        arrays[f"{key}:again"] = arrays[key]
    else:
        array = altered(arrays[key], how, i, j)
        if array is None:
            return False
        arrays[key] = array
    return True


@settings(max_examples=1500)
@given(st.sampled_from(NAMES), st.integers(0, 10**6), st.sampled_from(HOWS), st.integers(0, 99), st.integers(0, 99))
def test_altered_arrays_prove_nothing_false(name, which, how, i, j):
    case = made(name).copy()
    key = sorted(case.solution[1])[which % len(case.solution[1])]
    if not forge(case, key, how, i, j):
        return
    malformed = how in ("nan", "dtype", "shape", "object", "drop", "rename", "double")
    if key.startswith("level:") and how == "scale" and abs(case.solution[1][key]).max() < 1e-12:
        return  # the distance to a set that is met up to rounding
    if key.startswith(CLAIMS) or malformed:
        refused(case)
        return
    try:
        still_true(case)
    except Refused as error:
        foreseen(error)


@settings(max_examples=1500)
@given(
    st.sampled_from(NAMES),
    st.integers(0, 10**6),
    st.sampled_from(("more", "less", "huge", "nan", "inf", "null", "text", "list", "true", "drop", "extra", "negate")),
)
def test_altered_headers_prove_nothing_false(name, which, how):
    case = made(name).copy()
    header = case.solution[0]
    paths = [path for path in leaves(header) if path[:1] not in FREE and path not in FREE]
    path = paths[which % len(paths)]
    parent, key = at(header, path[:-1]), path[-1]
    old = parent[key]
    if how == "drop":
        del parent[key]
    elif how == "extra":
        if not isinstance(old, dict):
            return
        old["another"] = 0
    else:
        number = isinstance(old, (int, float)) and not isinstance(old, bool)
        if how in ("more", "less", "negate") and not number:
            return
        change = {
            "more": lambda: old + (1 if isinstance(old, int) else 1e-3 * abs(old) + 1e-12),
            "less": lambda: old - (1 if isinstance(old, int) else 1e-3 * abs(old) + 1e-12), "negate": lambda: -old,
            "huge": lambda: 1e16, "nan": lambda: math.nan, "inf": lambda: "inf", "null": lambda: None,
            "text": lambda: "nonsense", "list": lambda: [1.0], "true": lambda: True,
        }  # fmt: skip
        parent[key] = change[how]()
        if parent[key] == old and type(parent[key]) is type(old):
            return
    try:
        case.verify()
    except Refused as error:
        foreseen(error)
        return
    # Accepted: the number must still be true, or something that is no claim.
    new = None if how in ("drop", "extra") else parent[key]
    if path in case.truths:
        low, high = case.truths[path]
        number = low if new is None else float(new)  # null claims nothing
        slack = 1e-9 * (abs(number) if np.isfinite(number) else 0) + 1e-9
        assert low - slack <= number <= high + slack, (path, new)
        return
    harmless = (
        # Nothing but a ranking, which only a compromise by priority or in relative units is about.
        (path[0] == "limits" and path[-1] in ("priority", "weight"))
        # A limit that does not bind may be looser; that leaves all that is said of the policy true.
        or (path[0] == "limits" and path[-1] in ("radius", "bound", "at_most") and name.startswith("inactive"))
        or (path[0] == "limits" and "row_names" in path)
        or (path[0] == "terms" and path[-1] == "name")
        # The report then says that a vector is minimized and no longer names a cost.
        or (path[:2] == ("objective", "costs") and new is None)
        or (path[-1] == "p" and old == "inf" and new == 1e16)
        # The only row of a limit is the limit.
        or (path[1:2] in (("conflict_limits",), ("impossible_limits",)) and new is None)
        # Words, and claims that are not made.
        or (path[-1] == "cheapest" and new == "-inf")
        # An error that is stated may be larger than it is, or smaller by what is rounding.
        or (path[0] == "errors" and float(new) >= 0.99 * old)
    )  # fmt: skip
    assert harmless, (path, old, new)


@settings(max_examples=400)
@given(st.sampled_from(NAMES), st.integers(0, 10**6), st.sampled_from(HOWS), st.integers(0, 99), st.integers(0, 99))
def test_another_model_is_refused_or_agrees(name, which, how, i, j):
    case = made(name).copy()
    arrays = case.model[1]
    key = sorted(arrays)[which % len(arrays)]
    swapped = Case(case.solution, case.model)
    if not forge(swapped, key, how, i, j):
        return
    try:
        still_true(case)
    except Refused as error:
        foreseen(error)
    else:
        assert how not in ("nan", "dtype", "shape", "object", "drop", "rename", "double")


# Files


@pytest.fixture
def saved(tmp_path):
    case = made("budget")
    return write(tmp_path / "solution.npz", *case.solution), case


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path, parts, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in parts:
            archive.writestr(name, data)
    return path


def npy(array, **more):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **more)
    return stream.getvalue()


def test_bombs_are_refused(saved, tmp_path):
    path, _ = saved
    parts = members(path)
    bomb = pack(tmp_path / "bomb.npz", [*parts.items(), ("more.npy", npy(np.zeros(70 * 2**20, dtype=np.uint8)))])
    assert bomb.stat().st_size < 10**6
    with pytest.raises(Refused, match=r"bomb\.npz: it would unpack to more than"):
        read(bomb, "solution")
    claims = npy(np.zeros(1)).replace(b"(1,)", b"(4294967296,)").replace(b" " * 9 + b"\n", b"\n", 1)
    with pytest.raises(Refused, match=r"not as long as its shape says|cannot be read"):
        read(pack(tmp_path / "long.npz", [*parts.items(), ("more.npy", claims)]), "solution")
    deep = npy(np.frombuffer(b"[" * 10**6, dtype=np.uint8))
    with pytest.raises(Refused, match=r"deep\.npz"):
        read(pack(tmp_path / "deep.npz", [("header.npy", deep)]), "solution")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_malformed_archives_are_refused(saved, tmp_path):
    path, case = saved
    parts = members(path)
    header = case.solution[0]

    def bad(name, entries, match):
        with pytest.raises(Refused, match=f"{name}.npz: .*{match}"):
            read(pack(tmp_path / f"{name}.npz", entries), "solution")

    bad("twice", [*parts.items(), ("cost.npy", parts["cost.npy"])], "two arrays of the same name")
    bad(
        "object",
        [*parts.items(), ("x.npy", npy(np.array([{}, 1], dtype=object), allow_pickle=True))],
        "other than numbers",
    )
    bad("words", [*parts.items(), ("x.npy", npy(np.array(["a"])))], "other than numbers")
    bad("other", [*parts.items(), ("x.txt", b"")], "not an array")
    bad("headless", [(k, v) for k, v in parts.items() if k != "header.npy"], "no header")
    for name, words, match in (
        ("nan", json.dumps(header | {"value": math.nan}), "NaN"),
        ("inf", json.dumps(header).replace('"tolerance": 1e-05', '"tolerance": 1e999'), "too large"),
        ("again", json.dumps(header)[:-1] + ', "value": 0.0}', "twice"),
        ("list", "[]", "named fields"), ("cut", json.dumps(header)[:-5], "cannot be read"),
        ("digits", json.dumps(header)[:-1] + ', "x": ' + "9" * 5000 + "}", "cannot be read"),
        ("kind", json.dumps(header | {"kind": "cvxmdp model"}), "not a saved solution"),
        ("version", json.dumps(header | {"version": 1}), "version"),
    ):  # fmt: skip
        bad(name, [*((k, v) for k, v in parts.items() if k != "header.npy"),
                   ("header.npy", npy(np.frombuffer(words.encode(), dtype=np.uint8)))], match)  # fmt: skip
    for missing in (tmp_path / "none.npz", tmp_path, "/dev/zero", "a\0b"):
        with pytest.raises(Refused):
            read(missing, "solution")
    with pytest.raises(ValueError, match="kind must be"):
        read(path, "other")


@settings(max_examples=300)
@given(data=st.data())
def test_damaged_archives_raise_nothing_else(data, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    case = made("budget")
    whole = bytearray(write(folder / "whole.npz", *case.solution).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    whole = whole[: data.draw(st.sampled_from([len(whole), len(whole), len(whole) // 2, 0]))]
    (folder / "damaged.npz").write_bytes(whole)
    try:
        found = read(folder / "damaged.npz", "solution")
        verify(case.model, found, 1e-5)
    except Refused:
        pass
    else:
        assert found[0] | {"stats": 0, "objective": 0} == case.solution[0] | {"stats": 0, "objective": 0}


def test_messages_name_what_is_claimed_and_what_was_found():
    case = made("budget").copy()
    case.solution[0]["value"] += 1e-9
    assert "the value is said to be" in refused(case, "recomputed it is")
    case = made("budget").copy()
    case.solution[1]["policy:probabilities"] = case.solution[1]["policy:probabilities"].copy()
    case.solution[1]["policy:probabilities"][0] = -0.1
    refused(case, "below 0")
    case = made("infeasible nearest").copy()
    case.solution[0]["infeasibility"]["relax"]["time"]["amount"] *= 0.9
    refused(case, "time")
    case.solution[0]["infeasibility"]["relax"]["time"]["least"] = 0.0
    refused(case, "relaxing time alone by .* is said to be enough; the policy 'enough:0' exceeds")


def test_labels_of_a_model_are_read_and_change_nothing():
    """A past bug: the verifier refused every model with labels."""
    case = made("budget")
    header, arrays = case.model
    states = np.array([0], dtype=np.int64)
    labelled = ({**header, "labels": ["goal"]}, {**arrays, "label:0": states})
    assert str(verify(labelled, case.solution, 1e-5)) == str(case.verify())
    for header_, arrays_ in (
        ({**header, "labels": ["goal"]}, arrays),
        ({**header, "labels": ["goal"]}, {**arrays, "label:0": np.array([10**6])}),
        ({**header, "labels": ["goal"]}, {**arrays, "label:0": np.array([[0]])}),
        ({**header, "labels": [3]}, {**arrays, "label:0": states}),
        (header, {**arrays, "label:0": states}),
    ):
        with pytest.raises(Refused) as caught:
            verify((header_, arrays_), case.solution, 1e-5)
        foreseen(caught.value)
