"""Run the examples, and write their pictures and what their pages quote.

    python docs/make_examples.py                 all of them, about half a minute
    python docs/make_examples.py admission       some

Each page docs/examples/<name>.md has two pairs of markers. Between ``<!-- insight -->`` and ``<!-- end -->`` stands the
sentence that the script prints, between ``<!-- solve -->`` and ``<!-- end -->`` its function ``solve``.
"""

from __future__ import annotations

import importlib
import inspect
import io
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from PIL import Image

ROOT = Path(__file__).parent.parent
SCRIPTS, PAGES, PICTURES = ROOT / "examples", ROOT / "docs" / "examples", ROOT / "docs" / "images" / "examples"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "common")
QUOTED = re.compile(r"(?P<start><!-- (?P<what>insight|solve) -->\n)(?P<text>.*?)(?=<!-- end -->)", re.DOTALL)


def load(name: str) -> ModuleType:
    """Import an example, which finds what the examples share beside it."""
    if str(SCRIPTS) not in sys.path:
        sys.path.insert(0, str(SCRIPTS))
    return importlib.import_module(name)


def quotes(example: ModuleType, sentence: str) -> dict[str, str]:
    """Return what a page quotes of an example."""
    code = inspect.getsource(example.solve)
    return {
        "insight": f"> {sentence}\n",
        "solve": f'```python title="examples/{example.__name__}.py"\n{code}```\n',
    }


def on_page(name: str) -> dict[str, str]:
    """Return what stands on the page."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    return {found["what"]: found["text"] for found in QUOTED.finditer(text)}


def write(name: str, found: tuple[Any, ...]) -> None:
    """Write the picture, with few colours so that it is small, and the quotes of an example that was solved."""
    example = load(name)
    drawn = io.BytesIO()
    example.draw(*found).savefig(drawn)
    PICTURES.mkdir(parents=True, exist_ok=True)
    Image.open(drawn).convert("RGB").quantize(128).save(PICTURES / f"{name}.png", optimize=True)
    page, new = PAGES / f"{name}.md", quotes(example, example.insight(*found))
    text = QUOTED.sub(lambda old: old["start"] + new[old["what"]], page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


def main(names: list[str]) -> None:
    """Write the examples of these names, or all."""
    for name in names or NAMES:
        write(name, load(name).solve())
        print(f"docs/examples/{name}.md, docs/images/examples/{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
