"""Look for files that ``cvxmdp.load`` answers with anything but a model or a ValueError.

Coverage guided, by atheris, which the project does not depend on:  pip install atheris, then

    python tests/fuzz/fuzz_model.py tests/fuzz/corpus -max_total_time=300 -rss_limit_mb=2048

libFuzzer writes what it finds to a file crash-...; a seed of the corpus is what ``unpacked`` returns for a file.
``tests/fuzz/test_fuzz.py`` replays the corpus without atheris.
"""

from __future__ import annotations

import atexit
import io
import os
import shutil
import struct
import sys
import tempfile
import zipfile

FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
PATH = os.path.join(FOLDER, "input.npz")
LONGEST = 1 << 20


def packed(data: bytes) -> bytes:
    """Return bytes as a file: as they are, or as the members of an archive.

    A fuzzer cannot make checksums.  So after the first byte 0 come a byte for the length of a name, the name, two bytes
    for the length of a member and the member, again and again.
    """
    if not data or data[0] != 0:
        return data
    buffer, at = io.BytesIO(), 1
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        while at + 1 < len(data):
            name = data[at + 1 : at + 1 + data[at]].decode("latin-1")
            at += 1 + data[at]
            size = int.from_bytes(data[at : at + 2], "little")
            archive.writestr(zipfile.ZipInfo(name or "x"), data[at + 2 : at + 2 + size])
            at += 2 + size
    return buffer.getvalue()


def unpacked(path: str | os.PathLike[str]) -> bytes:
    """Return an archive as bytes that :func:`packed` turns into it again."""
    out = b"\0"
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            content = archive.read(info)
            out += struct.pack("<B", len(info.filename)) + info.filename.encode() + struct.pack("<H", len(content))
            out += content
    return out


def try_model(data: bytes) -> None:
    """Load a model; a ValueError that names the file is an answer too."""
    import cvxmdp as cm

    attempt(cm.load, data)


def attempt(load: object, data: bytes) -> None:
    """Write bytes to a file and load it."""
    with open(PATH, "wb") as file:
        file.write(packed(data[:LONGEST]))
    try:
        load(PATH)  # type: ignore[operator]
    except ValueError as error:
        if PATH not in str(error) or "\n" in str(error):
            raise AssertionError(f"not one sentence that names the file: {error}") from error


def fuzz(target: object) -> None:
    """Run a target under atheris."""
    import warnings

    import atheris

    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=["cvxmdp", "zipfile", "json", "numpy.lib"]):
        import cvxmdp  # noqa: F401
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz(try_model)
