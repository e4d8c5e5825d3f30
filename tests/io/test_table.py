"""Tables: every kind of one says what its rows say, files come back to the last bit, and wrong ones are refused."""

import csv
import io
import math
import sys
from collections import defaultdict

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import cvxmdp as cm
from file_models import TEXTS, models

COLUMNS = ["state", "action", "next_state", "probability"]

# ------------------------------------------------------------------------------------- what rows say, from every kind


def to_csv(columns, folder):
    """Write a table with the csv module, texts in quotes, so that empty ones are not missing."""
    path = folder / "table.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def to_parquet(columns, folder):
    path = folder / "table.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=3)
    return path


KINDS = {
    "columns": lambda columns, folder: columns,
    "arrays": lambda columns, folder: {name: np.array(values) for name, values in columns.items()},
    "pandas": lambda columns, folder: pd.DataFrame(columns),
    "pandas categories": lambda columns, folder: pd.DataFrame(columns).astype({"state": "category"}),
    "polars": lambda columns, folder: pl.DataFrame(columns),
    "pyarrow": lambda columns, folder: pa.table(columns),
    "csv": to_csv,
    "str": lambda columns, folder: str(to_csv(columns, folder)),
    "parquet": to_parquet,
}


def by_hand(columns):
    """Return probabilities by next state, and average costs, of each pair, by names, from the definition."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    reach, costs = defaultdict(lambda: defaultdict(float)), defaultdict(lambda: defaultdict(float))
    for row in rows:
        pair = str(row["state"]), str(row["action"])
        reach[pair][str(row["next_state"])] += row["probability"]
        for cost in columns:
            if cost not in COLUMNS:
                costs[pair][cost] += row["probability"] * row[cost]
    return reach, costs


def says(mdp, reach, costs):
    """Check that a model says what was found by hand."""
    names = [(mdp.states[s], mdp.actions[a]) for s, a in zip(mdp.state, mdp.action, strict=True)]
    assert sorted(names) == sorted(reach)
    P = sp.csr_array(mdp.transitions).toarray()
    for i, pair in enumerate(names):
        for t, state in enumerate(mdp.states):
            assert P[i, t] == pytest.approx(reach[pair].get(state, 0.0), rel=1e-12, abs=1e-300)
        for cost, values in mdp.costs.items():
            assert values[i] == pytest.approx(costs[pair][cost], rel=1e-12, abs=1e-12)


@st.composite
def tables(draw):
    """Columns of a table: any names, rows in any order, some transitions in several rows."""
    numbers = st.integers(-3, 10**12) | st.integers(0, 5)
    name = draw(st.sampled_from([TEXTS, TEXTS, numbers, st.integers(0, 3)]))
    states = draw(st.lists(name, min_size=1, max_size=5, unique_by=str))
    rows = []
    for state in states:
        for action in draw(st.lists(name, min_size=1, max_size=3, unique_by=str)):
            shares = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
            for share in shares:
                cost = draw(st.sampled_from([0.0, 1 / 3, -2.5, 1e-8, 1e8]))
                rows.append((state, action, draw(st.sampled_from(states)), share / sum(shares), cost, -cost))
    rows = draw(st.permutations(rows))
    return dict(zip([*COLUMNS, "time", "a, cost"], map(list, zip(*rows, strict=True)), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@given(columns=tables())
@settings(max_examples=40)
def test_a_table_is_what_its_rows_say(tmp_path_factory, kind, columns):
    reach, costs = by_hand(columns)
    says(cm.MDP.from_table(KINDS[kind](columns, tmp_path_factory.mktemp("table")), 0.9), reach, costs)


COINS = {
    "state": ["b", "b", "a", "b"],
    "action": ["stop", "flip", "stop", "flip"],
    "next_state": ["b", "a", "a", "b"],
    "probability": [1.0, 0.25, 1.0, 0.75],
    "time": [0.0, 1.0, 0.0, 3.0],
}


@pytest.mark.parametrize("kind", KINDS)
def test_states_and_their_actions_keep_the_order_of_rows(tmp_path, kind):
    mdp = cm.MDP.from_table(KINDS[kind](COINS, tmp_path), 0.9, initial="b")
    assert mdp.states == ("b", "a")
    assert mdp.actions == ("stop", "flip")
    assert mdp.state.tolist() == [0, 0, 1]
    assert mdp.action.tolist() == [0, 1, 0]
    assert mdp.costs["time"].tolist() == [0, 2.5, 0]
    np.testing.assert_array_equal(mdp.transitions.toarray(), [[1, 0], [0.75, 0.25], [0, 1]])
    assert mdp.initial.tolist() == [1, 0]


def offering(*offers):
    """Return a table in which states a, b, ... stay where they are, whatever of these actions they take."""
    rows = [(name, action, name, 1.0, 0.0) for name, actions in zip("abcd", offers, strict=False) for action in actions]
    return dict(zip([*COLUMNS, "c"], zip(*rows, strict=True), strict=True))


def test_actions_of_each_state_keep_their_order_where_states_agree():
    mdp = cm.MDP.from_table(offering(["z"], ["y", "z"], ["x", "y"]), 0.9)
    assert [mdp.actions[a] for a in mdp.action] == ["z", "y", "z", "x", "y"]
    mdp = cm.MDP.from_table(offering(["x", "y"], ["y", "x"]), 0.9)  # they do not agree
    assert mdp.actions == ("x", "y")


@pytest.mark.parametrize("kind", KINDS)
def test_states_that_are_the_numbers_from_zero_up_stay_numbers(tmp_path, kind):
    columns = {**COINS, "state": [1, 1, 0, 1], "next_state": [1, 0, 0, 1], "action": [0, 2, 0, 2]}
    mdp = cm.MDP.from_table(KINDS[kind](columns, tmp_path), 0.9)
    assert mdp.states == cm.MDP.from_pairs([0, 1], [0, 0], np.eye(2), {"c": [0, 0]}, 0.9).states  # kept as numbers
    assert mdp.actions == ("0", "2")
    assert mdp.costs["time"].tolist() == [0, 0, 2.5]


def test_a_number_and_its_text_are_one_name_and_other_spellings_are_not():
    columns = {"state": ["7", "07"], "action": [1.0, "1"], "next_state": [7, "07"], "probability": [1, 1], "c": [0, 0]}
    mdp = cm.MDP.from_table(columns, 0.9)
    assert mdp.states == ("7", "07")
    assert mdp.actions == ("1",)


def test_large_numbers_are_names_too():
    big = [2**24, 2**63, 2**24 - 1]
    array = np.array(big, dtype=np.uint64)
    columns = {"state": array, "action": [0, 0, 0], "next_state": array, "probability": np.ones(3), "c": np.zeros(3)}
    assert cm.MDP.from_table(columns, 0.9).states == tuple(map(str, big))


def test_the_numbers_of_a_table_may_be_of_any_kind():
    from decimal import Decimal
    from fractions import Fraction

    for p in (
        np.array([0.5, 0.5], dtype=np.float32), [Fraction(1, 2), Decimal("0.5")],
        pd.Series([0.5, 0.5], dtype="Float64"), pl.Series([0.5, 0.5], dtype=pl.Float32),
    ):  # fmt: skip
        columns = {"state": ["s", "s"], "action": ["a", "a"], "next_state": ["s", "s"], "probability": p, "c": [1, 3]}
        assert cm.MDP.from_table(columns, 0.9).costs["c"].tolist() == [2]


def test_a_cost_that_all_rows_of_a_pair_share_is_not_rounded():
    shares = [0.1, 0.2, 0.3, 0.4]
    rows = {"state": ["s"] * 4, "action": ["x"] * 4, "next_state": ["s"] * 4, "probability": shares, "c": [0.7] * 4}
    assert cm.MDP.from_table(rows, 0.9).costs["c"].tolist() == [0.7]
    apart = {name: [values[i] for i in (0, 4, 1, 5, 2, 3)] for name, values in {
        "state": ["s"] * 4 + ["t"] * 2, "action": ["x"] * 6, "next_state": ["s"] * 4 + ["t"] * 2,
        "probability": [*shares, 0.5, 0.5], "c": [0.7] * 4 + [0.1] * 2,
    }.items()}  # fmt: skip
    assert cm.MDP.from_table(apart, 0.9).costs["c"].tolist() == [0.7, 0.1]


def test_rows_without_probability_are_a_pair_only_with_others():
    columns = {"state": ["s", "s"], "action": ["a", "a"], "next_state": ["s", "s"], "probability": [0, 1], "c": [9, 1]}
    mdp = cm.MDP.from_table(columns, 0.9)
    assert mdp.costs["c"].tolist() == [1]
    assert mdp.transitions.nnz == 1


# -------------------------------------------------------------------------------------------- a second table of costs


@pytest.mark.parametrize("kind", KINDS)
def test_costs_of_pairs_come_from_a_second_table_in_any_order(tmp_path, kind):
    table = {name: COINS[name] for name in COLUMNS}
    costs = {"state": ["a", "b", "b"], "action": ["stop", "flip", "stop"], "fee": [1.0, 2.0, 3.0]}
    mdp = cm.MDP.from_table(table, 0.9, pair_costs=KINDS[kind](costs, tmp_path))
    assert list(mdp.costs) == ["fee"]
    assert mdp.costs["fee"].tolist() == [3, 2, 1]
    both = cm.MDP.from_table(COINS, 0.9, pair_costs=KINDS[kind](costs, tmp_path))
    assert {name: cost.tolist() for name, cost in both.costs.items()} == {"time": [0, 2.5, 0], "fee": [3, 2, 1]}


FEES = {"state": ["b", "b", "a"], "action": ["stop", "flip", "stop"], "fee": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"state": ["b", "b", "c"]},
            r"there is no state called 'c'; there are 'b', 'a', in row 2 of pair_costs \(the first is",
        ),
        ({"action": ["stop", "flop", "stop"]}, r"there is no action called 'flop'; did you mean 'flip'\?, in row 1"),
        ({"action": ["stop", "flip", "flip"]}, r"has no such pair of state and action, in row 2"),
        ({"action": ["stop", "stop", "stop"]}, r"state b, action stop has a second row, in row 1"),
        ({"fee": [1, math.inf, 0]}, r"column 'fee' holds inf; it must hold finite numbers.*in row 1"),
        ({"fee": None}, r"pair_costs has no column with a cost"),
        ({"time": [1, 2, 3]}, r"pair_costs has a column 'time', and so has the table of transitions"),
        ({"probability": [1, 2, 3]}, r"pair_costs has a column 'probability', and so has"),
        ({"state": None}, r"pair_costs needs the columns state, action and costs: there is no column called 'state'"),
    ],
)
def test_a_wrong_second_table_is_refused(change, said):
    fees = {name: values for name, values in (FEES | change).items() if values is not None}
    with pytest.raises(ValueError, match=said):
        cm.MDP.from_table(COINS, 0.9, pair_costs=fees)


def test_a_pair_that_the_second_table_leaves_out_is_named(tmp_path):
    fees = to_csv({name: values[:2] for name, values in FEES.items()}, tmp_path)
    with pytest.raises(ValueError, match=r"table\.csv': the file has no row for state a, action stop \(1 such pairs"):
        cm.MDP.from_table(COINS, 0.9, pair_costs=fees)
    fees.write_text("state,action,fee\n")
    with pytest.raises(ValueError, match=r"has no row for state b, action stop \(3 such pairs in all"):
        cm.MDP.from_table(COINS, 0.9, pair_costs=fees)


def test_a_wrong_line_of_the_second_file_is_named(tmp_path):
    fees = tmp_path / "fees.csv"
    fees.write_text("state,action,fee\nb,stop,1\n\nb,flip,much\na,stop,1\n")
    with pytest.raises(ValueError, match=r"fees\.csv': column 'fee' holds 'much'; .* in line 4$"):
        cm.MDP.from_table(COINS, 0.9, pair_costs=fees)
    fees.write_text("state,action,fee\nb,stop,1\nb,stop,1\n")
    with pytest.raises(ValueError, match=r"fees\.csv': state b, action stop has a second row, in line 3$"):
        cm.MDP.from_table(COINS, 0.9, pair_costs=fees)


# ------------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@given(mdp=models())
@settings(max_examples=100)
def test_what_is_written_is_read_again_to_the_last_bit(tmp_path_factory, ending, mdp):
    assume(not set(COLUMNS) & set(mdp.costs))
    count = len(mdp.states)
    assume(set(mdp.states) != set(map(str, range(count))) or tuple(mdp.states) == tuple(map(str, range(count))))
    offered = [mdp.actions[a] for a in sorted(set(mdp.action.tolist()))]
    numbers = list(map(str, range(len(offered))))
    assume(sorted(offered) != sorted(numbers) or offered == numbers)
    path = tmp_path_factory.mktemp("trip") / f"model.{ending}"
    mdp.save(path)
    again = cm.load(path, discount=0.9, initial=mdp.initial)
    assert tuple(again.states) == tuple(mdp.states)
    np.testing.assert_array_equal(again.state, mdp.state)
    assert [again.actions[a] for a in again.action] == [mdp.actions[a] for a in mdp.action]
    np.testing.assert_array_equal(again.transitions.toarray(), sp.csr_array(mdp.transitions).toarray())
    assert list(again.costs) == list(mdp.costs)
    for name, cost in mdp.costs.items():
        np.testing.assert_array_equal(again.costs[name], cost)
    np.testing.assert_array_equal(again.initial, mdp.initial)


HOSTILE = [
    "", " ", "a,b", 'say "hi"', "two\nlines", "two\r\nlines", "\r", "=1+1", "@x", "-2+3", "\t", "<script>", "né",
    "日本", "\0", "NaN", "null", "NA", "None", "true", "1e5", "#", "'", "\\N", "\u2028", "\ufeff", "00",
]  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_hostile_names_come_back(tmp_path, ending):
    count = len(HOSTILE)
    mdp = cm.MDP.from_pairs(
        range(count), range(count), np.eye(count), {name: np.arange(count) for name in HOSTILE if name}, 0.9, None,
        HOSTILE, HOSTILE,
    )  # fmt: skip
    mdp.save(tmp_path / f"model.{ending}")
    again = cm.load(tmp_path / f"model.{ending}", discount=0.9)
    assert again.states == again.actions == tuple(HOSTILE)
    assert list(again.costs) == HOSTILE[1:]


def test_a_file_is_read_by_other_programs_as_it_was_meant(tmp_path):
    mdp = cm.worlds.gridworld(size=3)
    mdp.save(tmp_path / "grid.csv")
    mdp.save(tmp_path / "grid.parquet")
    frames = [pd.read_csv(tmp_path / "grid.csv"), pd.read_parquet(tmp_path / "grid.parquet")]
    pd.testing.assert_frame_equal(*frames, check_dtype=False)
    assert list(frames[0]) == [*COLUMNS, "time", "collision"]
    says(mdp, *by_hand({name: frames[0][name].tolist() for name in frames[0]}))
    frame = pl.read_parquet(tmp_path / "grid.parquet")
    assert frame.rows() == [tuple(row) for row in frames[1].itertuples(index=False)]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_a_table_cannot_hold_is_refused_before_anything_is_written(tmp_path, ending):
    mdp = cm.worlds.gridworld(size=2)
    with pytest.raises(ValueError, match="a cost called 'probability' has no place in a table"):
        cm.MDP.from_pairs([0], [0], [[1]], {"probability": [1]}, 0.9).save(tmp_path / f"model.{ending}")
    names = ["a", "b", "\ud800", "c"]
    mdp = cm.MDP.from_pairs(mdp.state, mdp.action, mdp.transitions, mdp.costs, 0.9, None, names)
    with pytest.raises(ValueError, match=rf"holds half a character, which no \.{ending} file can hold"):
        mdp.save(tmp_path / f"model.{ending}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_million_transitions_in_many_blocks(tmp_path, ending):
    states = 250_000
    rng = np.random.default_rng(0)
    P = sp.csr_array(
        (rng.dirichlet(np.ones(4), states).ravel(), np.sort(rng.permuted(np.tile(np.arange(4), (states, 1)), axis=1) * 9
         + np.arange(states)[:, None]).ravel() % states, np.arange(0, 4 * states + 1, 4)), shape=(states, states),
    )  # fmt: skip
    zeros = np.zeros(states, int)
    mdp = cm.MDP.from_pairs(np.arange(states), zeros, P, {"c": rng.random(states)}, 0.9)
    path = tmp_path / f"model.{ending}"
    mdp.save(path)
    again = cm.load(path, discount=0.9)
    assert (again.transitions != mdp.transitions).nnz == 0
    np.testing.assert_array_equal(again.costs["c"], mdp.costs["c"])
    assert type(again.states) is type(mdp.states)  # names take no memory


# ---------------------------------------------------------------------------------------------------- wrong csv files

HEAD = "state,action,next_state,probability,c\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"the file is empty; its first line must name the columns state, action, next_state, probability and"),
        ("\n \n", r"the file is empty"),
        (HEAD, r"the file has no rows; a model needs one for each transition"),
        (HEAD.strip(), r"the file has no rows"),
        (HEAD + "a,x,a,1\n", r"line 2 has 4 entries; the first line names 5 columns$"),
        (HEAD + "a,x,a,1,0\na,x,a,1,0,7\n", r"line 3 has 6 entries; the first line names 5 columns$"),
        (HEAD + 'a,x,a,1,0\n"a,x,a,1,0\na,y,a,1,0\n', r"line 3 has 1 entries; .*; is a quote not closed\?"),
        (HEAD + "a,x,a,1,0\n\n\na,y,a,one,0\n", r"the probability is 'one'; it must be a number .* in line 5$"),
        (HEAD + '"a\nb",x,"a\nb",1,0\n"a\nb",y,"a\nb",-0.5,0\n', r"the probability is '-0\.5'; .* in line 5$"),
        (HEAD + "a,x,a,nan,0\n", r"the probability is 'nan'; it must be a number that is at least 0, in line 2$"),
        (HEAD + "a,x,a,1_0,0\n", r"the probability is '1_0'; "),
        (HEAD + "a,x,a,\u0661,0\n", r"the probability is '\u0661'; "),
        (HEAD + "a,x,a,1,\n", r"column 'c' holds ''; it must hold finite numbers, as every column besides state, "),
        (HEAD + "a,x,a,1,1e999\n", r"column 'c' holds '1e999'; it must hold finite numbers.* in line 2$"),
        (HEAD + f"a,x,a,1,{'9' * 50}x\n", r"column 'c' holds '9{40}\.\.\.'; "),
        (HEAD + "a,x,a,1,0\na,,a,1,0\n", r"column 'action': the name is missing, in line 3$"),
        (HEAD + "a,x,a,1,0\n,x,a,1,0\n", r"column 'state': the name is missing, in line 3$"),
        (HEAD + "a,x,,1,0\n", r"column 'next_state': the name is missing, in line 2$"),
        (HEAD + "a,x,b,1,0\n", r"state 'b' is a next_state, but has no rows of its own \(1 such states in all\); "),
        (HEAD + "a,x,a,0.5,0\n", r"the probabilities from state a, action x sum to 0\.5, not 1"),
        (HEAD + "a,x,a,1,0\na,x,a,1,0\n", r"the probabilities from state a, action x sum to 2, not 1"),
        (HEAD + "a,x,a,1,1e200\n", r"cost 'c' is 1e\+200 in state a, action x; costs beyond 1e\+150 overflow"),
        ("state,action,next_state,probability\na,x,a,1\n", r"the file has no column with a cost; add one, or give"),
        ("state,action,next,probability,c\na,x,a,1,0\n", r"needs the columns .*: there is no column called 'next_st"),
        ("State,action,next_state,probability,c\na,x,a,1,0\n", r"no column called 'state'; did you mean 'State'\?"),
        (HEAD.replace(",", ";") + "a;x;a;1;0\n", r"seem to be separated by ';'; separate them by commas$"),
        (HEAD.replace(",", "\t") + "a\tx\ta\t1\t0\n", r"seem to be separated by '\\t'; separate them by commas$"),
        (HEAD.replace("c\n", "state\n"), r"has 2 columns called 'state'; names of columns must differ"),
        ("," + HEAD + "0,a,x,a,1,0\n", r"has a column without a name; .*to_csv\(path, index=False\)"),
        (HEAD + "a,x,a,1,\x1b[2J\n", r"column 'c' holds '\\x1b\[2J'"),
        ("state,action,next_state,probability,\x1b\na,x,a,1,y\n", r"column '\\x1b' holds 'y'"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_line(tmp_path, text, said):
    path = tmp_path / "model.csv"
    path.write_text(text, encoding="utf-8", newline="")
    with pytest.raises(ValueError, match=said) as error:
        cm.load(path, discount=0.9)
    assert str(error.value).startswith(f"'{path}': ")
    assert str(error.value).isprintable()


def test_a_very_long_name_is_cut_in_a_message(tmp_path):
    path = tmp_path / "model.csv"
    path.write_text("x" * 60_000 + ",action,next_state,probability,c\na,x,a,1,0\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"there is no column called 'state'.*xxx…'") as error:
        cm.load(path, discount=0.9)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (HEAD.encode("utf-16"), "the file is text in UTF-16; save it as CSV UTF-8"),
        ((HEAD + "é,x,é,1,0\n").encode("latin-1"), "line 2 is not text in UTF-8; save the file as CSV UTF-8"),
        (HEAD.replace("c\n", "é\n").encode("latin-1"), "line 1 is not text in UTF-8"),
        (HEAD.encode() + b"a" * (20 * 2**20) + b",x,a,1,0\n", "line 2 cannot be read: field larger than field limit"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "line 1 is not text in UTF-8"),
        (b"PK\3\4" + bytes(100), "needs the columns"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, data, said):
    path = tmp_path / "model.csv"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=said) as error:
        cm.load(path, discount=0.9)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("begin", ["", "\ufeff", "\n\n"])
@pytest.mark.parametrize("last", [True, False])
def test_files_of_other_systems_are_read(tmp_path, begin, end, last):
    path = tmp_path / "model.CSV"
    text = begin + HEAD + 'a,x,a,0.5,1\n\na,x,b,0.5, 1\n"b",x,b,1,+.5e0' + "\n" * last
    path.write_bytes(text.replace("\n", end).encode())
    mdp = cm.load(path, discount=0.9)
    assert mdp.states == ("a", "b")
    assert mdp.costs["c"].tolist() == [1, 0.5]


def test_a_name_with_a_quote_that_is_not_closed_far_into_a_file_is_found(tmp_path):
    rows = ["a,x,a,1e-6,0\n"] * 10**6
    rows[700_000] = '"a,x,a,1e-6,0\n'
    path = tmp_path / "model.csv"
    path.write_text(HEAD + "".join(rows))
    with pytest.raises(ValueError, match=r"line 700002 .*(quote not closed)"):
        cm.load(path, discount=0.9)


# -------------------------------------------------------------------------------------------------- wrong other files


USUAL_POOL = pa.default_memory_pool()
POOL, SMALL_POOL = (pa.proxy_memory_pool(USUAL_POOL) for _ in range(2))
"""Each counts the memory that pyarrow takes, and outlives all that is held in it."""


def write(columns, folder, **how):
    path = folder / "model.parquet"
    pq.write_table(pa.table(columns), path, **how)
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": ["b", None, "a", "b"]}, r"the name is missing, in row 1 of the file \(the first is row 0\)"),
        ({"probability": [1.0, None, 1.0, 0.75]}, r"the probability is nothing; it must be .* in row 1"),
        ({"probability": ["1", "1", "1", "1"]}, r"the probability is string; it must be a number"),
        ({"time": [0.0, math.nan, 0.0, 0.0]}, r"column 'time' holds nan; it must hold finite numbers.*, in row 1"),
        ({"time": [[0.0]] * 4}, r"column 'time' holds list"),
        ({"time": None}, r"the file has no column with a cost"),
        ({"state": [["b"], ["b"], ["a"], ["b"]]}, r"column 'state': it holds list<.*>; names are texts or numbers"),
        ({"state": None}, r"there is no column called 'state'"),
        ({"next_state": ["b", "a", "a", "c"]}, r"state 'c' is a next_state, but has no rows"),
        ({"probability": [1.0, 0.25, 1.0, 0.5]}, r"the probabilities from state b, action flip sum to 0\.75"),
    ],
)
def test_a_wrong_parquet_file_is_refused_with_its_row(tmp_path, change, said):
    path = write({name: values for name, values in (COINS | change).items() if values is not None}, tmp_path)
    with pytest.raises(ValueError, match=said) as error:
        cm.load(path, discount=0.9)
    assert str(error.value).startswith(f"'{path}': ")


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    names = pa.array([b"b", b"b", b"a\xff", b"b"]).view(pa.string())
    with pytest.raises(ValueError, match=r"model\.parquet': column 'state': it holds a name that is not text in UTF-8"):
        cm.load(write({**COINS, "state": names}, tmp_path), discount=0.9)


def test_the_row_is_counted_over_groups(tmp_path):
    rows = 300_000
    columns = {
        "state": np.zeros(rows, int), "action": np.zeros(rows, int), "next_state": np.zeros(rows, int),
        "probability": np.full(rows, 1 / rows), "c": np.zeros(rows),
    }  # fmt: skip
    columns["c"][250_000] = math.inf
    with pytest.raises(ValueError, match=r"holds inf; .* in row 250000 "):
        cm.load(write(columns, tmp_path, row_group_size=1000), discount=0.9)


def test_the_index_of_pandas_is_no_cost_and_one_with_names_is_a_column(tmp_path):
    frame = pd.DataFrame(COINS)
    frame.index = [3, 5, 7, 9]
    frame.to_parquet(tmp_path / "a.parquet")
    assert list(cm.load(tmp_path / "a.parquet", discount=0.9).costs) == ["time"]
    pd.DataFrame(COINS).set_index(["state", "action"]).to_parquet(tmp_path / "b.parquet")
    assert cm.load(tmp_path / "b.parquet", discount=0.9).states == ("b", "a")


@pytest.mark.parametrize("how", [{"use_dictionary": False}, {"compression": "zstd"}, {"version": "1.0"}])
@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_parquet_files_of_other_programs_are_read(tmp_path, how, kind):
    columns = {**COINS, "state": pa.array(COINS["state"]).cast(kind), "time": pa.array([0, 1, 0, 3], pa.int8())}
    mdp = cm.load(write(columns, tmp_path, **how), discount=0.9)
    assert mdp.states == ("b", "a")
    assert mdp.costs["time"].tolist() == [0, 2.5, 0]


def test_a_file_that_would_unpack_to_far_more_than_its_size_is_refused(tmp_path):
    rows = 40_000_000
    chunk = pa.table({
        "state": pa.array(["s"] * 10**6).dictionary_encode(), "action": pa.array(["a"] * 10**6).dictionary_encode(),
        "next_state": pa.array(["s"] * 10**6).dictionary_encode(), "probability": np.zeros(10**6),
        "c": np.zeros(10**6),
    })  # fmt: skip
    path = tmp_path / "model.parquet"
    with pq.ParquetWriter(path, chunk.schema, compression="zstd") as writer:
        for _ in range(rows // 10**6):
            writer.write_table(chunk)
    with pytest.raises(ValueError, match=rf"would unpack to far more than its {path.stat().st_size} bytes"):
        cm.load(path, discount=0.9)


@pytest.mark.parametrize("column", ["state", "c"])
def test_a_long_text_that_many_rows_share_is_held_once(tmp_path, column):
    """A file of a kilobyte, in which a gigabyte is said: each of a thousand rows has the same text of a megabyte."""
    rows = 1000
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 10**6]))
    columns = {name: np.zeros(rows, int) for name in ("state", "action", "next_state", "c")}
    columns |= {"probability": np.full(rows, 1 / rows), column: long}
    if column == "state":
        columns["next_state"] = long
    path = write(columns, tmp_path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 5000
    pa.set_memory_pool(SMALL_POOL)
    try:
        if column == "state":
            assert cm.load(path, discount=0.9).states == ("x" * 10**6,)
        else:
            with pytest.raises(ValueError, match="column 'c' holds string; it must hold finite numbers"):
                cm.load(path, discount=0.9)
    finally:
        pa.set_memory_pool(USUAL_POOL)
    assert 0 < SMALL_POOL.max_memory() < 50 * 2**20


def test_what_is_no_parquet_file_is_refused(tmp_path):
    path = tmp_path / "model.parquet"
    for data in (b"", b"PAR1", b"PAR1" * 100, HEAD.encode() * 10):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"model\.parquet': the file is not a table in \.parquet form, or is dama"):
            cm.load(path, discount=0.9)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_that_are_not_there_and_folders_are_refused(tmp_path, ending):
    with pytest.raises(ValueError, match=rf"there is no file '.*none\.{ending}'"):
        cm.load(tmp_path / f"none.{ending}", discount=0.9)
    (tmp_path / f"folder.{ending}").mkdir()
    with pytest.raises(ValueError, match="is not a file but a folder or a device"):
        cm.load(tmp_path / f"folder.{ending}", discount=0.9)


def test_a_path_with_another_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"ends in '\.txt'; tables are in files that end in \.csv or \.parquet"):
        cm.MDP.from_table(tmp_path / "model.txt", 0.9)


def test_wrong_arguments_are_not_blamed_on_the_file(tmp_path):
    path = to_csv(COINS, tmp_path)
    with pytest.raises(ValueError, match=r"^discount is 1\.5"):
        cm.load(path, discount=1.5)
    with pytest.raises(ValueError, match=r"^initial: there is no state called 'z'"):
        cm.load(path, discount=0.9, initial="z")


def test_without_pyarrow_files_say_how_to_get_it_and_frames_are_read(tmp_path, monkeypatch):
    path = to_csv(COINS, tmp_path)
    for module in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"read with pyarrow; install it with: pip install \"cvxmdp\[table\]\""):
        cm.load(path, discount=0.9)
    assert cm.MDP.from_table(COINS, 0.9).num_pairs == 3
    cm.MDP.from_table(COINS, 0.9).save(tmp_path / "again.csv")


# -------------------------------------------------------------------------------------------------------- wrong frames


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pd.DataFrame(COINS | {"state": ["b", None, "a", "b"]}), r"the name is missing, in row 1 of table"),
        (pd.DataFrame(COINS | {"state": [1, np.nan, 2, 1]}), r"column 'state': the name is missing, in row 1"),
        (pd.DataFrame(COINS | {"state": ["b", pd.NA, "a", "b"]}), r"column 'state': the name is missing, in row 1"),
        (pd.DataFrame(COINS | {"state": pd.array([1, None, 2, 1], dtype="Int64")}), r"'state': the name is missing"),
        (pd.DataFrame(COINS | {"state": pd.Categorical(["b", None, "a", "b"])}), r"'state': the name is missing"),
        (pd.DataFrame(COINS | {"state": pd.to_datetime(["2020", None, "2021", "2022"], format="%Y")}), r"in row 1"),
        (pd.DataFrame(COINS | {"state": [pd.NaT, 1, 2, 3]}, dtype=object), r"'state': the name is missing, in row 0"),
        (pd.DataFrame(COINS | {"time": [0, 1, np.nan, 3]}), r"column 'time' holds nan; it must hold .*, in row 2"),
        (pd.DataFrame(COINS | {"time": pd.array([0, 1, None, 3], dtype="Int64")}), r"'time' holds (<NA>|nan);.* row 2"),
        (pd.DataFrame(COINS | {"time": ["0", "1", "2", "3"]}), r"column 'time' holds '0'; it must .*, in row 0"),
        (pd.DataFrame(COINS | {"probability": [1, -1, 2, 1]}), r"the probability is -1\.0; it must be .*, in row 1"),
        (pd.DataFrame(COINS | {"probability": [1, 1j, 1, 1]}), r"probability"),
        (pl.DataFrame(COINS | {"state": ["b", None, "a", "b"]}), r"column 'state': the name is missing, in row 1"),
        (pl.DataFrame(COINS | {"state": [1, None, 2, 1]}), r"column 'state': the name is missing, in row 1"),
        (pl.DataFrame(COINS | {"time": [0, None, 2, 1]}), r"column 'time' holds nan; it must hold .*, in row 1"),
        (pl.DataFrame(COINS).lazy(), r"table is a LazyFrame; give a pandas or polars frame"),
        (pa.table(COINS | {"state": ["b", None, "a", "b"]}), r"column 'state': the name is missing, in row 1"),
        (COINS | {"state": ["b", "b", "a"]}, r"table has columns of different lengths: 'state' has 3, 'action' has 4"),
        (COINS | {"state": "b"}, r"different lengths: 'state' has 1"),
        (COINS | {"state": 7}, r"a column of the table is 7; give a list or an array for each column"),
        (COINS | {"state": [["b"], ["b"], ["a"], ["b"]]}, r"column 'state': it holds lists or the like"),
        (COINS | {"state": [b"b", b"b", b"a", b"b"]}, r"column 'state': it holds bytes, b'b'; names are texts or"),
        (COINS | {"state": np.zeros((4, 2))}, r"column 'state': it has shape \(4, 2\); give one name for each row"),
        (COINS | {"time": np.zeros((4, 2))}, r"column 'time' has shape \(4, 2\); give one number for each row"),
        (COINS | {"time": [0, "1", 0, 0]}, r"column 'time' holds '1'; it must hold finite numbers.*, in row 1"),
        ({name: [] for name in COINS}, r"table has no rows; a model needs one for each transition"),
        ({**COINS, 7: [0] * 4, "7": [0] * 4}, r"table has 2 columns called '7'"),
        ({name: COINS[name] for name in COLUMNS}, r"table has no column with a cost; add one, or give a table"),
        ([1, 2, 3], r"table is a list; give a pandas or polars frame, a mapping of columns, or the path of a"),
        (None, r"table is a NoneType; give"),
        (np.zeros((3, 5)), r"table is a ndarray; give"),
    ],
)  # fmt: skip
def test_a_wrong_frame_is_refused(table, said):
    with pytest.raises(ValueError, match=said):
        cm.MDP.from_table(table, 0.9)


def test_a_frame_is_not_changed_and_not_shared():
    frame = pd.DataFrame(COINS)
    mdp = cm.MDP.from_table(frame, 0.9)
    pd.testing.assert_frame_equal(frame, pd.DataFrame(COINS))
    frame.loc[:, "time"] = 99.0
    assert mdp.costs["time"].tolist() == [0, 2.5, 0]


# ----------------------------------------------------------------------------------------------------- damaged files

BITS = [b'"', b",", b"\n", b"\0", b"\xff", b"1e999", b"-", b"nan", b"\r", b";", b"=1+1", b"9" * 21, b"PAR1"]


def damaged(data, rng):
    """Return a copy with bytes changed, left out or added, or cut short."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at, how = int(rng.integers(len(data))), rng.integers(10)
        if how < 4:
            data[at] = rng.integers(256)
        elif how < 6:
            del data[at : at + int(rng.integers(1, 40))]
        elif how < 9:
            data[at:at] = BITS[rng.integers(len(BITS))]
        else:
            del data[at:]
        data = data or bytearray(b"x")
    return bytes(data)


def attempt(path):
    """Return the model, or None and what is wrong with the file."""
    try:
        return cm.load(path, discount=0.9), ""
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("ending", ["csv", "parquet", "parquet without checksums"])
@pytest.mark.parametrize("named", [True, False])
def test_a_damaged_file_is_a_model_or_is_refused_by_name(tmp_path, ending, named):
    ending, _, unchecked = ending.partition(" ")
    path = tmp_path / f"model.{ending}"
    (cm.worlds.gridworld(size=3) if named else cm.worlds.garnet(states=6, actions=2, branching=0.5, seed=1)).save(path)
    if unchecked:
        pq.write_table(pq.read_table(path), path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    said = []
    pa.set_memory_pool(POOL)
    try:
        for _ in range(700):
            path.write_bytes(damaged(data, rng))
            said.append(attempt(path)[1])
    finally:
        pa.set_memory_pool(USUAL_POOL)
    said = [text for text in said if text]
    assert 400 < len(said) < 700
    assert all(text.startswith(f"'{path}': ") and text.isprintable() for text in said)
    assert 0 < POOL.max_memory() < 100 * 2**20


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_that_is_cut_short_is_refused_unless_whole_pairs_are_missing(tmp_path, ending):
    path = tmp_path / f"model.{ending}"
    mdp = cm.worlds.gridworld(size=2)
    mdp.save(path)
    data = path.read_bytes()
    last = data.rfind(b",") + 2 if ending == "csv" else len(data)  # where a number is cut short, it still is one
    for end in range(0, last, max(1, len(data) // 400)):
        path.write_bytes(data[:end])
        found, said = attempt(path)
        if found is not None:
            assert ending == "csv"
            assert found.num_pairs < mdp.num_pairs
        else:
            assert said.startswith(f"'{path}': ")


NAMES = st.sampled_from(["a", '"a"', "b", '"b,\n"', "' ", "a;", '""', "", '"'])
PARTS = st.tuples(NAMES, NAMES, NAMES, st.sampled_from(["1", " 1", "0.5", "1e0", "5e-1", "", "x"]), st.just("0"))
LINES = st.lists(PARTS.map(",".join) | st.sampled_from(["", "a,a,a,1,2", "b,a,a,1,2"]), max_size=4)


@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]))
@settings(max_examples=400)
def test_lines_are_read_as_the_csv_module_reads_them(tmp_path_factory, lines, end):
    path = tmp_path_factory.mktemp("any") / "model.csv"
    path.write_text(HEAD + end.join(lines), encoding="utf-8", newline="")
    mdp, said = attempt(path)
    if mdp is None:
        assert said.startswith(f"'{path}': ")
        return
    rows = [row for row in csv.reader(io.StringIO(end.join(lines), newline="")) if row]
    columns = dict(zip([*COLUMNS, "c"], map(list, zip(*rows, strict=True)), strict=True))
    columns |= {name: [float(entry) for entry in columns[name]] for name in ("probability", "c")}
    says(mdp, *by_hand(columns))
