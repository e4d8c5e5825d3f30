"""The examples and the page of sets do what they say."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import cvxmdp as cm

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sets.md"


def load(path):
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def example(name):
    return load(ROOT / "examples" / f"{name}.py")


def entropy(x):
    return float(-np.sum(x[x > 0] * np.log(x[x > 0])))


def assert_picture(path):
    pixels = imread(path)[..., :3]
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
    white = np.all(pixels == 1, axis=-1).mean()
    assert 0.05 < white < 0.9


def assert_optimal(solutions):
    for title, solution in solutions.items():
        assert solution.status is cm.Status.OPTIMAL, title
        assert solution.gap <= 1e-6, title


def test_exploration(tmp_path, capsys):
    module = example("exploration")
    solutions = module.main(tmp_path / "visits.png", size=7)
    assert_optimal(solutions)
    assert_picture(tmp_path / "visits.png")
    ordered = list(solutions.values())  # time alone, growing weights, entropy alone
    assert len(ordered) == len(module.WEIGHTS) + 2
    times, entropies = [s.costs["time"] for s in ordered], [entropy(s.visits) for s in ordered]
    assert np.all(np.diff(entropies) >= -1e-6)
    assert np.all(np.diff(times) >= -1e-6)
    assert entropies[-1] > entropies[0] + 1
    assert entropies[-1] < np.log(49)
    # Each is optimal for its own weight, also among the others.
    for weight, solution in zip(module.WEIGHTS, ordered[1:-1], strict=True):
        others = [t - weight * h for t, h in zip(times, entropies, strict=True)]
        assert solution.value <= min(others) + 2e-6
    printed = capsys.readouterr().out
    assert "nats" in printed
    assert printed.count("\n") == len(ordered) + 4


def test_apprenticeship(tmp_path, capsys):
    module = example("apprenticeship")
    expert, solutions = module.main(tmp_path / "learner.png")
    assert_optimal(solutions)
    assert_picture(tmp_path / "learner.png")
    weighted = [solutions["time alone"], *(solutions[f"time + {w:g} distance"] for w in module.WEIGHTS)]
    offsets = [s.occupancy - expert.occupancy for s in weighted]
    assert np.all(np.diff([np.linalg.norm(x) for x in offsets]) <= 1e-7)
    assert np.linalg.norm(offsets[-1]) < 1e-4 * np.linalg.norm(offsets[0])
    assert np.all(np.diff([s.costs["time"] for s in weighted]) >= -1e-6)
    assert expert.costs["collision"] < 0.3 * solutions["time alone"].costs["collision"]
    offset = {title: solution.occupancy - expert.occupancy for title, solution in solutions.items()}
    assert np.linalg.norm(offset["distance at most 0.1"]) == pytest.approx(0.1, rel=1e-5)
    assert np.abs(offset["1-norm at most 0.3"]).sum() == pytest.approx(0.3, rel=1e-5)
    d = solutions["KL at most 0.1 nats"].occupancy
    assert d @ np.log(np.where(d > 0, d, 1) / expert.occupancy) == pytest.approx(0.1, rel=1e-4)
    assert "distance to the expert" in capsys.readouterr().out


def test_own_set(tmp_path, capsys):
    module = example("own_set")
    even, solutions = module.main(tmp_path / "posts.png")  # checks the certificates
    assert_optimal(solutions)
    assert_picture(tmp_path / "posts.png")
    plain, evenly, worn = solutions.values()
    for solution in (plain, evenly, worn):
        assert even.visits(solution.occupancy).sum() >= 0.2 * (1 - 1e-5)
    assert even.violation(plain.occupancy) > 0.5
    assert even.violation(evenly.occupancy) <= 1e-5
    assert even.violation(worn.occupancy) <= 1e-5
    assert plain.value < evenly.value < worn.value
    wear = module.Wear(20.0, np.where(np.arange(plain.occupancy.size) >= plain.occupancy.size - 4, 1.0, 0.01))
    assert wear.value(worn.occupancy) < 0.5 * wear.value(evenly.occupancy)
    assert "certificate checked" in capsys.readouterr().out


def test_own_set_projects_onto_its_cone():
    module = example("own_set")
    mdp = cm.worlds.gridworld(module.SIZE)
    even = module.EvenWatch(mdp, [9, 14, 49], variation=0.3)
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
