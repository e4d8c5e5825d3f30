"""The examples and the page of sets do what they say."""

import ast
import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import cvxpy as cp
import gymnasium
import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib.image import imread
from scipy.optimize import linprog

import cvxmdp as cm

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sets.md"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


MAKER = load(ROOT / "docs" / "make_examples.py")


@cache
def found(name):
    """Return an example and what it found, once for all tests."""
    example = MAKER.load(name)
    return example, example.solve()


def answers(found):
    """Return all solutions in what an example found."""
    if isinstance(found, cm.Solution):
        return [found]
    if isinstance(found, cm.Sweep):
        return list(found.solutions)
    return [answer for part in found for answer in answers(part)] if isinstance(found, list | tuple) else []


def assert_picture(path):
    pixels = imread(path)[..., :3]
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
    white = np.all(pixels == 1, axis=-1).mean()
    assert 0.05 < white < 0.97


@pytest.mark.parametrize("name", MAKER.NAMES)
def test_an_example_proves_its_answers_and_its_page_says_what_it_prints(name, tmp_path, monkeypatch, capsys):
    example, solved = found(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--out", str(tmp_path / "picture.png")])
    example.run(lambda: solved, example.draw, example.insight)
    assert_picture(tmp_path / "picture.png")
    drawn, shown = (imread(path)[..., :3] for path in (tmp_path / "picture.png", MAKER.PICTURES / f"{name}.png"))
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 0.01  # the page's has fewer colours
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert MAKER.on_page(name) == MAKER.quotes(example, printed.strip())
    given = answers(solved)
    assert given
    for solution in given:
        assert solution.status is cm.Status.OPTIMAL
        assert solution.gap <= 1e-6


@pytest.mark.parametrize("name", MAKER.NAMES)
def test_a_page_has_its_picture_and_shows_the_script(name):
    text = (MAKER.PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert f"](../images/examples/{name}.png)" in text
    assert f'--8<-- "examples/{name}.py"' in text
    picture = MAKER.PICTURES / f"{name}.png"
    assert_picture(picture)
    assert picture.stat().st_size < 150_000
    index = (MAKER.PAGES / "index.md").read_text(encoding="utf-8")
    title = text.splitlines()[0].removeprefix("# ")
    assert f"[**{title}**]({name}.md)" in index
    assert f'src="../images/examples/{name}.png"' in index


def test_there_is_a_page_and_a_picture_for_each_script_and_no_other():
    assert {path.stem for path in MAKER.PAGES.iterdir()} == {*MAKER.NAMES, "index"}
    assert {path.stem for path in MAKER.PICTURES.iterdir()} == set(MAKER.NAMES)


@pytest.mark.parametrize("name", MAKER.NAMES)
def test_a_script_says_how_it_is_run_and_runs(name):
    tree = ast.parse((MAKER.SCRIPTS / f"{name}.py").read_text(encoding="utf-8"))
    assert f"python examples/{name}.py --out {name}.png" in ast.get_docstring(tree)
    assert ast.unparse(tree.body[-1]) == "if __name__ == '__main__':\n    run(solve, draw, insight)"


def test_a_script_runs_from_the_command_line(tmp_path):
    command = [sys.executable, str(MAKER.SCRIPTS / "inventory.py"), "--out", "picture.png"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"> {done.stdout}" == MAKER.on_page("inventory")["insight"]
    assert_picture(tmp_path / "picture.png")


def test_pages_are_written_again(tmp_path, monkeypatch, capsys):
    (tmp_path / "inventory.md").write_text(
        "a\n<!-- insight -->\nold\n<!-- end -->\nb\n<!-- solve -->\n<!-- end -->\nc\n"
    )
    monkeypatch.setattr(MAKER, "PAGES", tmp_path)
    monkeypatch.setattr(MAKER, "PICTURES", tmp_path / "pictures")
    MAKER.main(["inventory"])
    example, solved = found("inventory")
    assert MAKER.on_page("inventory") == MAKER.quotes(example, example.insight(*solved))
    text = (tmp_path / "inventory.md").read_text()
    assert re.sub(r"<!-- (insight|solve) -->.*?<!-- end -->", "*", text, flags=re.DOTALL) == "a\n*\nb\n*\nc\n"
    assert_picture(tmp_path / "pictures" / "inventory.png")
    assert capsys.readouterr().out == "docs/examples/inventory.md, docs/images/examples/inventory.png\n"


# What the examples claim, found a second time by other solvers.


def flow(mdp, discount=None, kept=None):
    """Return the equations of the visits: of all states, or without a discount of those that are left for good."""
    kept = np.arange(mdp.num_states) if kept is None else kept
    pairs = np.flatnonzero(np.isin(mdp.state, kept))
    owner = sp.csr_array((np.ones(mdp.num_pairs), (np.arange(mdp.num_pairs), mdp.state)), shape=mdp.transitions.shape)
    gamma = mdp.discount if discount is None else discount
    left = (owner - gamma * sp.csr_array(mdp.transitions)).tocsr()[pairs][:, kept].T
    return pairs, left, (1 - gamma if gamma < 1 else 1.0) * mdp.initial[kept]


def least(mdp, cost, limits, **how):
    """Return the least cost under limits on other costs, from HiGHS."""
    pairs, left, right = flow(mdp, **how)
    rows = np.array([np.asarray(mdp.costs[name])[pairs] for name in limits])
    answer = linprog(np.asarray(mdp.costs[cost])[pairs], rows, list(limits.values()), left, right, method="highs")
    assert answer.status == 0, answer.message
    return answer.fun


@pytest.mark.parametrize(
    ("name", "cost"),
    [("admission", "rejection"), ("inventory", "cost"), ("maintenance", "downtime"), ("disk_drive", "power")],
)
def test_a_sweep_of_an_example_agrees_with_highs(name, cost):
    mdp, sweep = found(name)[1]
    for limit, value in zip(sweep.limits, sweep.values, strict=True):
        assert value == pytest.approx(least(mdp, cost, {sweep.name: limit}), rel=2e-6)


def test_admission_counts_those_who_are_turned_away():
    """By the prices: a customer of the first class costs 4, of the second 1."""
    _, sweep = found("admission")[1]
    first, second = 20 * 0.5 * 1.0, 20 * 0.7 * 0.5  # arrivals in a unit of time, of which there are so many periods:
    periods = first + second + 20 * 1.0
    for solution in sweep.solutions:
        shares = solution.costs["first class"], solution.costs["second class"]
        paid = (4 * first * shares[0] + second * shares[1]) / periods
        assert solution.costs["rejection"] == pytest.approx(paid, rel=1e-9)


def test_inventory_prices_are_what_one_more_unit_costs():
    mdp, sweep = found("inventory")[1]
    for limit, price in zip(sweep.limits, sweep.prices, strict=True):
        step = 1e-4 * limit
        tighter, looser = (least(mdp, "cost", {"shortage": limit + way * step}) for way in (-1, 1))
        assert -price == pytest.approx((tighter - looser) / (2 * step), rel=1e-2)


def test_perishable_ends_where_no_plan_serves_enough():
    example, (mdp, binds, sweep) = found("perishable")
    served = {"shortage": example.UNSERVED * example.DEMAND}
    assert binds.tightest == pytest.approx(least(mdp, "waste", served), rel=1e-5)
    for cap, value in zip(sweep.limits, sweep.values, strict=True):
        assert value == pytest.approx(least(mdp, "cost", {**served, "waste": cap}), rel=5e-6)
    assert sweep.values[-1] == pytest.approx(least(mdp, "cost", served), rel=5e-6)  # from there on the cap is free


def test_power_and_delay_is_the_least_loss_and_its_prices_bound_what_is_saved():
    example, (chosen, sweeps) = found("power_and_delay")
    mdp = chosen.problem.mdp
    for power, sweep in list(zip(example.POWERS, sweeps, strict=True))[::5]:
        assert sweep.limits[0] == pytest.approx(1.001 * least(mdp, "delay", {"power": power}), rel=1e-5)
        for delay, value in list(zip(sweep.limits, sweep.values, strict=True))[::3]:
            assert value == pytest.approx(least(mdp, "loss", {"power": power, "delay": delay}), rel=5e-6)
    budgets = {"power": example.POWER, "delay": example.DELAY}
    now = least(mdp, "loss", budgets)
    for name in budgets:
        saved = now - least(mdp, "loss", {**budgets, name: 1.1 * budgets[name]})
        assert 0 < saved <= -0.1 * budgets[name] * chosen.prices[name] * (1 + 1e-5)


def test_disk_drive_never_rests_when_told_so():
    mdp, _ = found("disk_drive")[1]
    never = mdp.evaluate(dict.fromkeys(mdp.states, "go active")).costs
    assert (never["power"], never["queue"]) == (pytest.approx(2.5), pytest.approx(0.0, abs=1e-12))


def test_epidemic_without_a_discount():
    example, (mdp, _, sweep) = found("epidemic")
    infected = np.array([int(name.rpartition(" ")[2]) for name in mdp.states])
    kept = np.flatnonzero(infected > 0)
    for cap, solution in list(zip(sweep.limits, sweep.solutions, strict=True))[::3]:
        days = least(mdp, "days of lockdown", {"days without a bed": cap}, discount=1.0, kept=kept)
        assert example.total(solution.value) == pytest.approx(days, rel=1e-3)
    # A day: one who is ill recovers at the rate 0.1.
    pair = int(np.flatnonzero(mdp.state == mdp.states.index("susceptible 0, infected 1"))[0])
    healthy = sp.csr_array(mdp.transitions)[[pair]].toarray()[0, mdp.states.index("susceptible 0, infected 0")]
    assert healthy * example.PERIODS == pytest.approx(0.1)
    for solution in sweep.solutions:  # all or nothing
        used = np.bincount(mdp.action, solution.occupancy) / (1 - mdp.discount)
        assert np.all(used[1:-1] < 1e-6)


def test_frozen_lake_without_a_discount_from_the_environment_itself():
    example, (tiles, _, sweep, played) = found("frozen_lake")
    table = gymnasium.make("FrozenLake-v1", map_name="8x8").unwrapped.P
    ice = np.flatnonzero(np.isin(tiles.ravel(), ["S", "F"]))
    pairs = [(s, a) for s in ice for a in range(4)]
    left, falls = np.zeros((64, len(pairs))), np.zeros(len(pairs))
    for k, (s, a) in enumerate(pairs):
        left[s, k] += 1
        for chance, target, *_ in table[s][a]:
            left[target, k] -= chance
            falls[k] += chance * (tiles.ravel()[target] == "H")
    start = (ice == 0).astype(float)
    for risk, value in zip(sweep.limits, sweep.values, strict=True):
        answer = linprog(np.ones(len(pairs)), [falls], [risk], left[ice], start, method="highs")
        assert example.total(value) == pytest.approx(answer.fun, rel=1e-3)
    assert example.total(sweep.costs["fall"]) == pytest.approx(sweep.limits, abs=1e-7)
    for name in ("fall", "steps"):
        low, high = played.intervals[name]
        assert low < played.exact[name] < high


def program(mdp):
    """Return visits of pairs as a variable of CVXPY, and what they obey."""
    pairs, left, right = flow(mdp)
    visits = cp.Variable(pairs.size, nonneg=True)
    return visits, [left @ visits == right]


def test_apprenticeship_agrees_with_clarabel():
    example, (mdp, expert, fastest, sweep) = found("apprenticeship")
    for radius in (0.05, example.CHOSEN, 0.5):
        visits, limits = program(mdp)
        near = cp.sum(cp.kl_div(visits, expert.occupancy)) <= radius  # both sum to one
        value = cp.Problem(cp.Minimize(mdp.costs["time"] @ visits), [*limits, near]).solve(solver=cp.CLARABEL)
        assert example.at(sweep, radius).value == pytest.approx(value, rel=1e-5)
    assert fastest.value == pytest.approx(least(mdp, "time", {"time": 1.0}), rel=1e-6)


def test_exploration_agrees_with_clarabel():
    example, (mdp, sweep) = found("exploration")
    of_state = sp.csr_array((np.ones(mdp.num_pairs), (mdp.state, np.arange(mdp.num_pairs))))
    for cells in example.SHOWN:
        visits, limits = program(mdp)
        even = cp.sum(cp.entr(of_state @ visits)) >= np.log(cells)
        value = cp.Problem(cp.Minimize(mdp.costs["energy"] @ visits), [*limits, even]).solve(solver=cp.CLARABEL)
        assert example.at(sweep, np.log(cells)).value == pytest.approx(value, rel=1e-5)
    firm = sum(not example.is_sand(row, column) for row in range(example.SIZE) for column in range(example.SIZE))
    assert firm == 91


def test_uncertain_prices_agree_with_clarabel():
    example, (factors, plain, robust) = found("uncertain_prices")
    mdp = plain.problem.mdp
    for solution, size in ((plain, 0.0), (robust, 1.0)):
        visits, limits = program(mdp)
        worst = mdp.costs["cost"] @ visits + size * cp.norm(factors.T @ visits)
        wanted = cp.Problem(cp.Minimize(mdp.costs["shortage"] @ visits), [*limits, worst <= example.BUDGET])
        assert solution.value == pytest.approx(wanted.solve(solver=cp.CLARABEL), rel=1e-4)
    angle = np.linspace(0, 2 * np.pi, 10_000)
    spent = robust.costs["cost"] + np.column_stack([np.cos(angle), np.sin(angle)]) @ (factors.T @ robust.occupancy)
    assert spent.max() == pytest.approx(example.BUDGET, rel=1e-5)


def test_own_set_holds_and_its_term_is_charged():
    _, even, wear, (plain, evenly, worn) = found("own_set")[1]  # checks the certificates
    for solution in (plain, evenly, worn):
        assert even.visits(solution.occupancy).sum() >= 0.2 * (1 - 1e-5)
    assert even.violation(plain.occupancy) > 0.5
    assert even.violation(evenly.occupancy) <= 1e-5
    assert even.violation(worn.occupancy) <= 1e-5
    assert plain.value < evenly.value < worn.value
    worse, better = (20 / 2 * np.sum(np.maximum(s.occupancy[:-4] - 0.01, 0) ** 2) for s in (evenly, worn))
    assert wear.value(evenly.occupancy) == pytest.approx(worse)
    assert better < 0.5 * worse


def test_own_set_projects_onto_its_cone():
    example = MAKER.load("own_set")
    mdp = cm.worlds.gridworld(example.SIZE)
    even = example.EvenWatch(mdp, [9, 14, 49], variation=0.3)
    rng = np.random.default_rng(0)
    members = [even.project(y) for y in rng.normal(size=(20, mdp.num_pairs))]
    for z in members:
        x = even.visits(z)
        assert x.std() <= 0.3 * x.mean() + 1e-12
    for y in rng.normal(size=(20, mdp.num_pairs)):
        z = even.project(y)
        assert max((y - z) @ (other - z) for other in members) <= 1e-10


def test_the_page_of_sets_runs_and_its_pictures_and_numbers_are_those_of_its_code(capsys):
    maker = load(ROOT / "docs" / "make_sets.py")
    text = PAGE.read_text(encoding="utf-8")
    seen = []
    for part, names in maker.run(text):
        name, solution = part["name"], names["solution"]
        seen.append(name)
        assert solution.status is cm.Status.OPTIMAL, name
        solution.certificate.check(names["problem"])
        assert all(np.max(np.abs(price)) > 0 for price in solution.prices.values()), f"{name} does not bind"
        assert_picture(maker.FOLDER / f"{name}.png")
        written, found = part[0].split("-->\n", 1)[1], maker.table(name, maker.ENTRIES[name], names)
        assert re.sub(r"[-+]?\d[\d.e+-]*", "#", written) == re.sub(r"[-+]?\d[\d.e+-]*", "#", found)
        assert len(numbers(written)) >= 1
        assert numbers(written) == pytest.approx(numbers(found), rel=0.02, abs=2e-3), name
    assert seen == list(maker.ENTRIES)
    assert {path.stem for path in maker.FOLDER.iterdir()} == set(seen)
    assert "'corner'" in capsys.readouterr().out  # the last block, on combinations, ran too


def numbers(table):
    """What the policy takes in time, and what the set limits; among equals, other columns and rows may differ."""
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")]
    return [float(row[-2]) for row in rows if not row[1].startswith((" price", " collision ")) and row[1].strip()]


def test_the_page_names_every_set_and_term():
    text = PAGE.read_text(encoding="utf-8")
    from cvxmdp import constraints, objectives

    for name in (*constraints.__all__, *objectives.__all__):
        assert re.search(rf"^(#+ {name}$|\*\*{name}\*\*)", text, re.MULTILINE), name
