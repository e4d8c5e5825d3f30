"""Make the pictures of docs/reports.md: run the page, and photograph its report in chromium.

python docs/make_reports.py
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

PAGE = Path(__file__).parent / "reports.md"
IMAGES = Path(__file__).parent / "images"
SCREEN = (900, 1000)


def main() -> None:
    """Run the page in a folder of its own and keep two of its pictures."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names: dict[str, object] = {}
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, names)
        shutil.copy("answer.png", IMAGES / "answer.png")
        browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        size = ",".join(map(str, SCREEN))
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
        subprocess.run([*command, "--screenshot=report.png", Path("report.html").absolute().as_uri()], check=True)
        Image.open("report.png").convert("P", palette=Image.Palette.ADAPTIVE).save(IMAGES / "report.png")


if __name__ == "__main__":
    main()
