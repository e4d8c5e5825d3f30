"""What MkDocs does beside its plugins: files from outside docs/, the links to them, and formulas without a script.

Pages link to files as they lie in the repository, so that they can be read there, too.  Here each link is turned to
where the file lies on the site.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"} | {
    f"benchmarks/results/{path.name}": f"images/results/{path.name}"
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.png"))
}
"""Files outside docs/ that are part of the site, and where."""
STYLE = "site.css"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files from outside."""
    for source, target in {**OUTSIDE, f"docs/site/{STYLE}": STYLE}.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links within the repository into links within the site."""
    targets = {ROOT / source: DOCS / target for source, target in OUTSIDE.items()}
    assert page.file.abs_src_path is not None
    folder, here = Path(page.file.abs_src_path).parent, (DOCS / page.file.src_uri).parent

    def turned(link: re.Match[str]) -> str:
        lies = Path(os.path.normpath(folder / link[1]))
        return Path(os.path.relpath(targets.get(lies, lies), here)).as_posix()

    return LINK.sub(turned, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Write formulas as MathML, which browsers draw by themselves."""

    def drawn(found: re.Match[str]) -> str:
        formula = found[2].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        return latex2mathml.converter.convert(formula, display="block" if found[1] == "div" else "inline")

    return FORMULA.sub(drawn, html)
