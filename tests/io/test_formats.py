"""Every format: write, read, solve, same answer as a second solver, for ragged, named, sparse and dense models."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

import cvxmdp as cm
from cvxmdp.io.formats import FORMATS


def ragged(seed, names, kind, states=12):
    """Return a model whose states offer one to three actions, of which the first leads on to the next state."""
    rng = np.random.default_rng(seed)
    offered = [rng.permutation(3)[: rng.integers(1, 4)] for _ in range(states)]
    state = np.repeat(np.arange(states), [len(actions) for actions in offered])
    action = np.concatenate([np.sort(actions) for actions in offered])
    P = rng.random((state.size, states)) * (rng.random((state.size, states)) < 0.3)
    P[np.arange(state.size), (state + 1) % states] += 0.1
    P /= P.sum(axis=1, keepdims=True)
    costs = {"time": rng.random(state.size), "risk": rng.random(state.size) * 1e-3}
    initial = np.zeros(states)
    initial[0] = 1.0
    rooms = [f'room {s}, "{chr(65 + s)}"' for s in range(states)]
    named = (rooms, ["go", "=1+1", "<wait>"]) if names else ()
    return cm.MDP.from_pairs(state, action, kind(P), costs, 0.95, initial, *named)


def tied():
    """Return a model with everything that makes one hard to write: one state, one action, costs of all sizes."""
    return cm.MDP.from_pairs([0], [0], [[1.0]], {"time": [1e8], "risk": [1e-8]}, 0.5, [1.0], ["é"], ["ω"])


def apart():
    """Return a model with states that are never reached, and one that is never left."""
    P = np.zeros((5, 4))
    P[[0, 1, 2, 3, 4], [1, 2, 2, 0, 3]] = 1.0
    return cm.MDP.from_pairs(
        [0, 0, 1, 2, 3], [0, 1, 0, 0, 1], sp.csr_array(np.vstack([P[:1], P[1:2], P[1:2], P[2:3], P[4:]])),
        {"time": [3.0, 1.0, 0.0, 0.0, 0.0], "risk": [0.0, 1.0, 0.0, 0.0, 7.0]}, 1 - 1e-6, "here",
        ["here", "there", "end", "nowhere"], ["a", "b"],
    )  # fmt: skip


def single(P):
    """Return an array of float32, whose sums are not quite one."""
    return P.astype(np.float32)


MODELS = {
    "ragged, named, dense": lambda: ragged(0, True, np.array),
    "ragged, named, sparse": lambda: ragged(1, True, sp.csr_array),
    "ragged, numbered, dense": lambda: ragged(2, False, np.array),
    "ragged, numbered, sparse": lambda: ragged(3, False, sp.csr_array),
    "in float32": lambda: ragged(4, True, single),
    "of one state": tied,
    "with unreachable states": apart,
}


def cheapest(mdp, limit):
    """Return the least time at a risk of at most ``limit``, by HiGHS over occupancies; without a limit also."""
    P = sp.csr_array(mdp.transitions).toarray()
    flow = np.eye(mdp.num_states)[mdp.state].T - mdp.discount * P.T
    # Over totals, which HiGHS resolves better than averages at a discount near one.
    rows = {} if limit is None else {"A_ub": mdp.costs["risk"][None], "b_ub": [limit / (1 - mdp.discount)]}
    found = linprog(mdp.costs["time"], **rows, A_eq=flow, b_eq=mdp.initial, method="highs")
    assert found.status == 0
    return (1 - mdp.discount) * found.fun, (1 - mdp.discount) * float(mdp.costs["risk"] @ found.x)


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_was_written_and_read_has_the_same_answer(tmp_path, ending, kind):
    mdp = MODELS[kind]()
    path = tmp_path / f"model{ending}"
    mdp.save(path)
    again = cm.load(path, discount=mdp.discount, initial=mdp.initial)
    assert again.num_pairs == mdp.num_pairs
    assert list(again.costs) == (["risk", "time"] if ending == ".bin" else ["time", "risk"])  # files have no order
    _, risk = cheapest(mdp, None)
    limit = max(0.99 * risk, cheapest_risk(mdp))
    truth, _ = cheapest(mdp, limit)
    limits = [cm.Budget("risk", at_most=limit * (1 + 1e-9))]
    solutions = [cm.Problem(model, "time", limits).solve(tolerance=1e-8) for model in (mdp, again)]
    for solution in solutions:
        assert solution.status is cm.Status.OPTIMAL
        assert solution.value == pytest.approx(truth, rel=1e-6, abs=1e-12)
    assert solutions[1].value == pytest.approx(solutions[0].value, rel=1e-12)
    if "named" in kind and ending != ".bin":
        assert tuple(again.states) == tuple(mdp.states)
        assert set(again.actions) <= set(mdp.actions)


def cheapest_risk(mdp):
    """Return the least risk of all policies."""
    swapped = cm.MDP.from_pairs(
        mdp.state, mdp.action, mdp.transitions, {"time": mdp.costs["risk"], "risk": mdp.costs["time"]}, mdp.discount,
        mdp.initial,
    )  # fmt: skip
    return cheapest(swapped, None)[0]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_format_that_holds_no_discount_asks_for_one_and_all_take_another(tmp_path, ending):
    path = tmp_path / f"model{ending}"
    ragged(0, True, np.array).save(path)
    if not FORMATS[ending].complete:
        with pytest.raises(ValueError, match=r"holds no discount; give one, as in cm\.load\(\"model"):
            cm.load(path)
    else:
        assert cm.load(path).discount == 0.95
    assert cm.load(path, discount=0.5).discount == 0.5
    with pytest.raises(ValueError, match=r"^discount is 1\.5; it must lie between 0 and 1"):
        cm.load(path, discount=1.5)


@pytest.mark.parametrize("ending", FORMATS)
def test_a_first_state_may_be_given_by_name(tmp_path, ending):
    path = tmp_path / f"MODEL{ending.upper()}"
    apart().save(path)
    names = ["3", "2"] if ending == ".bin" else ["nowhere", "end"]
    again = cm.load(path, discount=0.9, initial=dict.fromkeys(names, 0.5))
    assert again.initial.tolist() == [0, 0, 0.5, 0.5]


def test_a_path_that_says_no_format_is_refused(tmp_path):
    mdp = tied()
    for name, said in [("model", "has no ending"), ("model.xlsx", r"ends in '\.xlsx'"), (".npz", "has no ending")]:
        for use in (mdp.save, cm.load):
            with pytest.raises(ValueError, match=rf"{said}; models are in files that end in \.npz, .*, \.parquet"):
                use(tmp_path / name)
    with pytest.raises(ValueError, match="is not a file but a folder or a device"):
        cm.load(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_that_is_not_what_its_ending_says_is_refused_by_name(tmp_path, ending):
    path = tmp_path / f"model{ending}"
    for data in (b"", b"hello, world\n", bytes(range(256)) * 20, b"PK\3\4" + bytes(40), b"\x1f\x8b" + bytes(40)):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=rf"'.*model\{ending}'"):
            cm.load(path, discount=0.9)
