"""The site builds without a warning, all code on it runs, and it prints what the pages say."""

import doctest
import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from html.parser import HTMLParser
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from scipy.optimize import linprog

import cvxmdp as cm
from cvxmdp.io.problem import read_problem

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ELSEWHERE = {"docs/sets.md"}
"""Pages whose code is run by other tests: tests/test_examples.py compares what the page of sets says with its code."""
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    if re.search(r"^```(python|console)$", path.read_text(encoding="utf-8"), re.MULTILINE)
]
FENCE = re.compile(
    r"^(?P<in>[ ]*)```(?P<kind>[\w-]*)(?P<title>[^\n]*)\n(?P<text>.*?)^(?P=in)```$", re.MULTILINE | re.DOTALL
)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
CLOSE = 2e-3
"""Numbers of a page may differ by so much of their size from what is printed: the last digits depend on the machine."""


def blocks(text):
    """Return the kind and the text of each block, and of the block that follows at once, which shows what it prints."""
    found = [block for block in FENCE.finditer(text) if not block["title"]]  # one with a title quotes a file
    for i, block in enumerate(found):
        follows = found[i + 1] if i + 1 < len(found) else None
        shown = None
        if follows and follows["kind"] in ("", "text") and not text[block.end() : follows.start()].strip():
            shown = follows["text"]
        indent = len(block["in"])
        yield block["kind"], "\n".join(line[indent:] for line in block["text"].splitlines()) + "\n", shown


def assert_printed(shown, printed):
    """Compare words exactly, numbers nearly; ``...`` on the page stands for anything."""
    flat = " ".join(shown.split())
    words = [re.escape(part) for part in NUMBER.split(flat)]
    pattern = f"({NUMBER.pattern})".join(words).replace(re.escape("..."), ".*?")
    said, found = NUMBER.findall(flat), re.fullmatch(pattern, " ".join(printed.split()))
    assert found, f"the page says\n{shown}\nand its code prints\n{printed}"
    for a, b in zip(map(float, said), map(float, found.groups()), strict=True):
        assert a == pytest.approx(b, rel=CLOSE, abs=1e-15), f"the page says\n{shown}\nand its code prints\n{printed}"


def run_python(code, names, shown, where):
    if re.match(r"\s*--8<--", code):
        return  # an example, which tests/test_examples.py runs
    if code.lstrip().startswith(">>>"):
        parsed = doctest.DocTestParser().get_doctest(code, names, where, None, 0)
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
        parsed.globs = names  # not a copy: later blocks use what is defined here
        assert runner.run(parsed, clear_globs=False).failed == 0
        return
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, where, "exec"), names)
    if shown is not None:
        assert_printed(shown, printed.getvalue())


def run_console(text):
    """Run the lines that begin with ``$``, and compare what they print with the lines below, if there are any."""
    for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, shown = command.partition("\n")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        found = subprocess.run(
            line, shell=True, capture_output=True, text=True, env={**os.environ, "PATH": path, "COLUMNS": "100"}
        )
        assert found.returncode in (0, 3), f"{line}\n{found.stdout}{found.stderr}"
        if shown.strip():
            assert_printed(shown, found.stdout)


def read_toml(text):
    """Read a problem file, and keep it for the commands below; what begins with a limit goes below one."""
    if text.startswith("[["):
        text = f'world = "gridworld"\narguments = {{size = 6}}\nminimize = "time"\n{text}'
    Path("problem.toml").write_text(text, encoding="utf-8")
    read_problem("problem.toml").problem()


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_code_on_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__page__"}
    for number, (kind, text, shown) in enumerate(blocks((ROOT / page).read_text(encoding="utf-8"))):
        if kind == "python":
            run_python(text, names, shown, f"{page}, block {number}")
        elif kind == "console":
            run_console(text)
        elif kind == "toml":
            read_toml(text)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return the folder of the site, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


class Elements(HTMLParser):
    """What a page loads, where it leads, and what can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.links, self.ids, self.words = [], [], set(), []
        self._quiet = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.add(attrs.get("id"))
        if tag in ("script", "img", "iframe") and "src" in attrs:
            self.loads.append(attrs["src"])
        if tag == "link" and attrs.get("rel") != "canonical":
            self.loads.append(attrs["href"])
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        self._quiet += tag in ("script", "style", "pre", "code")

    def handle_endtag(self, tag):
        self._quiet -= tag in ("script", "style", "pre", "code")

    def handle_data(self, data):
        if not self._quiet:
            self.words.append(data)


@pytest.fixture(scope="session")
def elements(site):
    return {path.relative_to(site).as_posix(): Elements(path) for path in site.rglob("*.html")}


def test_every_page_is_on_the_site(elements):
    pages = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert pages | {"contributing.html", "changes.html", "404.html"} == set(elements)


def test_nothing_is_loaded_from_elsewhere(site, elements):
    for page, found in elements.items():
        for target in found.loads:
            assert not re.match(r"[a-z]+:|//", target), f"{page} loads {target}"
            if page != "404.html":  # its links are from the root
                assert (site / page).parent.joinpath(target.partition("?")[0]).is_file(), f"{page} loads {target}"


def test_links_between_pages_and_their_anchors_exist(site, elements):
    for page, found in elements.items():
        for link in found.links:
            target, _, anchor = link.partition("#")
            if page == "404.html" or re.match(r"[a-z]+:", link):
                continue
            lies = os.path.normpath((Path(page).parent / target).as_posix()) if target else page
            lies = "index.html" if lies == "." else lies
            assert (site / lies).is_file(), f"{page} links to {link}"
            assert not anchor or lies not in elements or anchor in elements[lies].ids, f"{page} links to {link}"


def test_nothing_is_left_of_other_markup(elements):
    for page, found in elements.items():
        text = " ".join(found.words)
        for sign in ("$$", "\\(", ":class:", ":meth:", ":func:", "====", "--8<--", "``"):
            assert sign not in text, f"{page} shows {sign}"


def test_every_public_name_is_in_the_reference(elements):
    ids = set().union(*(found.ids for page, found in elements.items() if page.startswith("api/")))
    rooms = {"worlds": cm.worlds, "criteria": cm.criteria}
    names = [name for name in cm.__all__ if name not in rooms]
    names += [f"{room}.{name}" for room, module in rooms.items() for name in module.__all__]
    assert [name for name in names if f"cvxmdp.{name}" not in ids] == []
    for kind in (cm.MDP, cm.Problem, cm.Solution, cm.Policy, cm.Sweep):
        methods = [name for name, entry in vars(kind).items() if callable(entry) and not name.startswith("_")]
        assert [name for name in methods if f"cvxmdp.{kind.__name__}.{name}" not in ids] == []


def slug(heading):
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_beside_the_site_exist(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        lies = ROOT / target if target else ROOT / page
        assert lies.exists(), f"{page} links to {link}"
        headings = re.findall(r"^#+ (.*)$", lies.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in map(slug, headings), f"{page} links to {link}"


class Lake:
    """Gymnasium's frozen lake as a linear program in expected numbers of visits, for HiGHS, from its own table."""

    def __init__(self, name):
        env = gymnasium.make("FrozenLake-v1", map_name=name).unwrapped
        tiles = env.desc.astype(str).ravel()
        ice = np.flatnonzero(np.isin(tiles, ["S", "F"]))
        pairs = [(s, a) for s in ice for a in range(4)]
        into = np.zeros((len(pairs), tiles.size))
        for i, (s, a) in enumerate(pairs):
            for probability, after, *_ in env.P[s][a]:
                into[i, after] += probability
        self.leaves, self.enters = np.repeat(np.eye(ice.size), 4, axis=1), into[:, ice].T
        self.start = (tiles[ice] == "S").astype(float)
        self.fall, self.arrive = into[:, tiles == "H"].sum(axis=1), into[:, tiles == "G"].sum(axis=1)

    def least(self, cost, discount=1.0, fall=None):
        """Return the least total; without a discount among policies that come to an end."""
        rows, most = (None, None) if fall is None else (self.fall[None], [fall])
        found = linprog(cost, A_ub=rows, b_ub=most, A_eq=self.leaves - discount * self.enters, b_eq=self.start)
        assert found.status == 0
        return found.fun


def test_the_numbers_of_the_frozen_lake_are_right():
    small, large = Lake("4x4"), Lake("8x8")
    assert small.least(-small.arrive) == pytest.approx(-14 / 17, abs=1e-9)
    assert small.least(small.fall) == pytest.approx(3 / 17, abs=1e-9)
    units, own = ((DOCS / page).read_text(encoding="utf-8") for page in ("units.md", "own-policy.md"))
    totals = re.findall(r"^discount 1 - (\S+): arrive (\S+),", units, re.MULTILINE)
    assert len(totals) == 5
    for lost, arrive in totals:
        assert small.least(-small.arrive, discount=1 - float(lost)) == pytest.approx(-float(arrive), abs=2e-7)
    steps = re.search(r"^steps: .* exact (\S+)$", own, re.MULTILINE)
    assert float(steps[1]) == pytest.approx(large.least(np.ones_like(large.fall), fall=0.05), rel=1e-3)
