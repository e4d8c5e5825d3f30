"""Pages opened in a real browser: nothing overflows or complains, the slider works, light and dark can be read."""

import json
import re
import shutil
import subprocess
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread

import cvxmdp as cm
from cvxmdp.report.page import write_report, write_sweep_report

PHONE, DESKTOP = 375, 1280
HOSTILE = '<img src=x onerror="document.title=\'owned\'"></script><script>document.title="owned"</script>'
MEASURE = """<script>
const seen = {width: document.documentElement.scrollWidth, inner: innerWidth, title: document.title, low: []};
function channels(colour) { return colour.match(/[\\d.]+/g).map(Number); }
function light([r, g, b]) {
  const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
}
function behind(element) {
  for (; element; element = element.parentElement) {
    const colour = channels(getComputedStyle(element).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
}
const background = light(behind(document.body));
for (const element of document.querySelectorAll("h1,h2,h3,p,td,th,dt,dd,li,a,span,code,pre,label")) {
  if (!element.textContent.trim() || !element.checkVisibility()) continue;
  const [a, b] = [light(channels(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) seen.low.push(element.outerHTML.slice(0, 80));
}
seen.background = background;
addEventListener("load", () => {
  seen.frames = [...document.querySelectorAll(".frame")].filter(f => f.checkVisibility()).map(f => f.id);
  parent.postMessage(JSON.stringify(seen), "*");
});
</script>"""
# A browser's own window is never narrower than 500 pixels, so a page is measured in a frame.
AROUND = """<!doctype html><meta name="color-scheme" content="light dark"><script>
addEventListener("message", message => document.documentElement.dataset.seen = message.data);
</script><iframe style="width:{width}px;height:900px;border:0" src="{page}"></iframe>"""


@pytest.fixture(scope="module")
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "these tests need chromium; make test installs it, or: apt-get install chromium"
    return found


@pytest.fixture(scope="module")
def browse(chromium, tmp_path_factory):
    """Open a page and return its document as it is after its script, and what the browser's console said."""

    def run(path, width=DESKTOP, scheme="light", fragment="", *more):
        profile = tmp_path_factory.mktemp("profile")
        settings = f"--blink-settings=preferredColorScheme={1 if scheme == 'light' else 0}"
        command = [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
            f"--user-data-dir={profile}", f"--window-size={width},900", settings, *more, path.as_uri() + fragment,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, timeout=120, check=True)
        said = [line for line in done.stderr.decode().splitlines() if "CONSOLE" in line]
        return done.stdout.decode(), said

    return run


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write one page of each kind; all names are hostile where a user chooses them."""
    folder = tmp_path_factory.mktemp("pages")
    grid = cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)])
    limits = [cm.Budget("time", at_most=0.05), cm.Budget("collision", at_most=1e-6)]
    problems = {
        "optimal": cm.Problem(grid, "time", [cm.Budget("collision", at_most=1e-5)]),
        "infeasible": cm.Problem(grid, "time", limits),
        "hostile": hostile(),
    }
    for name, problem in problems.items():
        solution = problem.solve()
        assert solution.status.name == ("INFEASIBLE" if name == "infeasible" else "OPTIMAL")
        write_report(solution, folder / f"{name}.html", problem, {})
    sweep = sweep_of(grid, "collision", [1e-6, 1e-5, 1e-4, 1e-3])
    write_sweep_report(sweep, folder / "sweep.html")
    return SimpleNamespace(folder=folder, names=[*problems, "sweep"], sweep=sweep)


def hostile():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(30), size=(2, 30))
    states, actions = [f"{HOSTILE}{s}" for s in range(30)], [f"{HOSTILE}a", "a\n\x1b[2J" * 40]
    costs = {HOSTILE: rng.random(30), "b" + HOSTILE: rng.random((30, 2))}
    mdp = cm.MDP(P, costs, 0.9, states=states, actions=actions)
    return cm.Problem(mdp, HOSTILE, [cm.Budget("b" + HOSTILE, at_most=0.45, name="limit " + HOSTILE)])


def sweep_of(mdp, name, limits):
    """Solve for each limit: what a sweep is, without its speed."""
    solutions = [cm.Problem(mdp, "time", [cm.Budget(name, at_most=limit)]).solve() for limit in limits]
    return SimpleNamespace(
        name=name, limits=np.array(limits), solutions=solutions, statuses=[s.status for s in solutions],
        values=np.array([s.value for s in solutions]), bounds=np.array([s.bound for s in solutions]),
        prices=np.array([s.prices[name] for s in solutions]),
    )  # fmt: skip


def measured(browse, path, width, scheme, fragment="", script=True):
    """Measure a copy of a page that lets the measuring script run, as the page itself would not."""
    text = path.read_text(encoding="utf-8")
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert free != text
    if not script:
        free, cut = re.subn(r"<script>.*?</script>", "", free, flags=re.DOTALL)
        assert cut == 1
    copy, around = path.with_suffix(".copy.html"), path.with_suffix(".around.html")
    copy.write_text(free.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    around.write_text(AROUND.format(width=width, page=copy.as_uri() + fragment), encoding="utf-8")
    dom, said = browse(around, DESKTOP, scheme, "", "--dump-dom", "--virtual-time-budget=3000")
    assert said == []
    return json.loads(unescape(re.search(r'data-seen="([^"]*)"', dom)[1]))


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["optimal", "infeasible", "hostile", "sweep"])
def test_a_page_fits_its_width_and_is_readable_in_light_and_dark(browse, pages, name, width, scheme):
    seen = measured(browse, pages.folder / f"{name}.html", width, scheme)
    assert seen["inner"] == width
    assert seen["width"] == width  # no scrolling sideways
    assert seen["title"] != "owned"  # though this copy would run any script
    assert seen["low"] == []  # every text has a contrast of 4.5 to what is behind it
    assert (seen["background"] > 0.8) == (scheme == "light")


@pytest.mark.parametrize("name", ["optimal", "infeasible", "hostile", "sweep"])
def test_a_page_as_written_says_nothing_to_the_console(browse, pages, name):
    dom, said = browse(pages.folder / f"{name}.html", DESKTOP, "light", "", "--dump-dom")
    assert said == []
    assert "</main>" in dom


@pytest.mark.parametrize("point", [0, 2])
def test_the_slider_follows_the_address_and_shows_one_point(browse, pages, point):
    dom, said = browse(pages.folder / "sweep.html", DESKTOP, "light", f"#p{point}", "--dump-dom")
    assert said == []
    frames = re.findall(r'<section class="frame" id="p(\d+)" data-limit="[^"]*"( hidden="")?>', dom)
    assert [k for k, hidden in frames if not hidden] == [str(point)]
    assert re.findall(r'class="dot[^"]* now" id="dot(\d+)"', dom) == [str(point)]
    shown = re.search(r'<b id="limit">([^<]*)</b>', dom)[1]
    assert shown == {0: "10⁻⁶", 2: "0.0001"}[point]
    assert 'id="slider" hidden' not in dom


def test_without_script_a_sweep_is_a_table_that_leads_to_each_point(browse, pages):
    page = pages.folder / "sweep.html"
    assert re.findall(r'<a href="#p(\d+)">', page.read_text(encoding="utf-8")) == ["0", "1", "2", "3"]
    assert measured(browse, page, DESKTOP, "light", "", script=False)["frames"] == []
    assert measured(browse, page, DESKTOP, "light", "#p1", script=False)["frames"] == ["p1"]
    assert measured(browse, page, DESKTOP, "light", "#p1")["frames"] == ["p1"]


def test_a_picture_of_a_page_has_colours_in_it(browse, pages, tmp_path):
    browse(pages.folder / "optimal.html", DESKTOP, "light", "", f"--screenshot={tmp_path / 'page.png'}")
    pixels = np.rint(255 * imread(tmp_path / "page.png")[::5, ::5, :3]).astype(int)
    colours = {tuple(pixel) for pixel in pixels.reshape(-1, 3).tolist()}
    assert (255, 255, 255) in colours
    assert any(b > r + 60 for r, _, b in colours)  # the blue of bars and visits


MOVE = """<script>
addEventListener("load", () => {
  const slider = document.getElementById("point");
  const moved = [];
  for (let point = 0; point <= slider.max; point++) {
    slider.value = point;
    slider.dispatchEvent(new Event("input"));
    const [frame] = [...document.querySelectorAll(".frame")].filter(f => f.checkVisibility());
    moved.push({
      limit: document.getElementById("limit").textContent,
      costs: [...frame.querySelectorAll("data")].map(number => number.value),
      picture: frame.querySelector("svg.grid").outerHTML.length + frame.querySelector("svg.grid").innerHTML,
    });
  }
  document.documentElement.dataset.moved = JSON.stringify(moved);
});
</script>"""


def test_moving_the_slider_changes_costs_and_picture(browse, pages, tmp_path):
    text = (pages.folder / "sweep.html").read_text(encoding="utf-8")
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    (tmp_path / "moved.html").write_text(free.replace("</body>", MOVE + "</body>"), encoding="utf-8")
    dom, said = browse(tmp_path / "moved.html", DESKTOP, "light", "", "--dump-dom", "--virtual-time-budget=3000")
    assert said == []
    moved = json.loads(unescape(re.search(r'data-moved="([^"]*)"', dom)[1]))
    assert [point["limit"] for point in moved] == ["10⁻⁶", "10⁻⁵", "0.0001", "0.001"]
    for point, solution in zip(moved, pages.sweep.solutions, strict=True):
        assert set(solution.costs.values()) <= {float(number) for number in point["costs"]}
    assert len({point["picture"] for point in moved}) == 4
