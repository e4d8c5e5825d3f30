"""Reading of tar archives as far as UMB needs them: plain files in a stream that may be packed.

Nothing is written to the disk, and no more is unpacked than a limit.  Links, devices, paths that lead elsewhere and
names that occur twice are refused.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from cvxmdp.io.files import GROWTH, SMALL
from cvxmdp.names import printable

BLOCK = 512
"""Headers take one block, and contents are filled up to whole ones."""
LONGEST_EXTENSION = 64 * 2**10
"""Bytes of an extended header, which holds a long name or a large size."""
PART = 2**20
"""Bytes that are read at once."""
XZ_MEMORY = 128 * 2**20
"""Memory that unpacking xz may take; its strongest usual setting takes half of it."""
MAGIC = {b"\x1f\x8b\x08": "gzip", b"\xfd7zXZ\x00": "xz"}


class Archive:
    """A tar archive: iterate for the members' names and sizes, and read each before the next, or not at all."""

    def __init__(self, stream: IO[bytes], size: int, packed: bool) -> None:
        self.size = size
        """Bytes of the file."""
        self.most = max(SMALL, GROWTH * size)
        """Bytes that it may unpack to."""
        self._stream = stream
        self._packed = packed
        self._left = self.most
        self._unread = 0
        self._padding = 0
        self.member = ""

    def __iter__(self) -> Iterator[tuple[str, int]]:
        seen: set[str] = set()
        path, size = None, None  # from an extended header
        while (header := self._header()) is not None:
            kind, name, stated = header
            if kind in "xgL":
                if stated > LONGEST_EXTENSION:
                    raise ValueError(f"member {name!r} is an extended header of {stated} bytes, which is too long")
                self._start(name, stated)
                content = self.read().tobytes()
                if kind == "L":  # GNU's way to give a long name
                    path = printable(_text(content))
                elif kind == "x":
                    extension = _extension(content)
                    path, size = extension.get("path"), extension.get("size")
                continue
            name, stated = path or name, stated if size is None else _whole(size)
            path, size = None, None
            name = _plain(name)
            if kind == "5":
                continue
            if kind not in "0\0":
                raise ValueError(f"member {name!r} is a link or of another kind ({kind!r}); expected plain files")
            if name in seen:
                raise ValueError(f"member {name!r} occurs twice")
            seen.add(name)
            self._start(name, stated)
            yield name, stated

    def read(self, kind: str = "u1", below: int | None = None, begin: int = 0, end: int | None = None) -> Any:
        """Return the content of the member at hand.

        Parameters
        ----------
        kind : str
            The type of its numbers.
        below : int, optional
            What they must be less than.  They are then returned as signed numbers, of 32 bits if that suffices.
        begin, end : int, optional
            Which of its numbers are wanted; all when not given.
        """
        stored, width = np.dtype(kind).newbyteorder("="), np.dtype(kind).itemsize
        if below is not None:
            stored = np.dtype(np.int32 if below <= np.iinfo(np.int32).max else np.int64)
        self._skip(begin * width)
        content = np.empty(self._unread // width if end is None else end - begin, stored)
        done = 0
        while done < content.size:
            part = np.frombuffer(self._whole(min((content.size - done) * width, PART)), kind)
            if below is not None and part.max() >= below:
                at = int(np.argmax(part >= below))
                where = begin + done + at
                raise ValueError(f"member {self.member!r} holds {part[at]} at {where}; expected less than {below}")
            content[done : done + part.size] = part
            done += part.size
        return content

    def _skip(self, count: int) -> None:
        """Leave out so many bytes of the member at hand; in a file that is not packed they are not read."""
        if not self._packed:
            left = self.size - self._stream.tell()
            self._stream.seek(min(count, left), os.SEEK_CUR)
            self._unread -= count
            if count > left:
                raise self._cut(count - left + self._unread)
            return
        while count > 0:
            count -= len(self._whole(min(count, PART)))

    def _whole(self, count: int) -> bytes:
        """Return so many bytes of the member at hand."""
        content = self._stream.read(count)
        if len(content) < count:
            raise self._cut(self._unread - len(content))
        self._unread -= count
        return content

    def _cut(self, missing: int) -> ValueError:
        return ValueError(f"the archive ends within member {self.member!r}, {missing} bytes early")

    def _start(self, name: str, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError(f"member {name!r} of {size} bytes makes the archive unpack to far more than its size")
        if not self._packed and size > self.size:
            raise ValueError(f"member {name!r} should have {size} bytes, and the file ends before")
        self.member, self._unread, self._padding = name, size, -size % BLOCK

    def _header(self) -> tuple[str, str, int] | None:
        """Return kind, name and size of the next member, or None at the end."""
        self._skip(self._unread)
        self._stream.read(self._padding)
        self._padding = 0
        block = self._stream.read(BLOCK)
        self._left -= BLOCK
        if self._left < 0:
            raise ValueError("the archive unpacks to far more than its size")
        where = f"after member {self.member!r}" if self.member else "at the beginning"
        if block == bytes(BLOCK):
            self._finish()
            return None
        if not block and self.member:  # cut between members, of which some may be absent: nobody would miss them
            raise ValueError(f"the archive ends early, {where}: the empty block that ends a tar archive is missing")
        if len(block) < BLOCK or block[257:262] != b"ustar":
            raise ValueError(f"it is not a tar archive, or damaged, {where}")
        if _octal(block[148:156]) != sum(block[:148]) + 8 * ord(" ") + sum(block[156:]):
            raise ValueError(f"the archive is damaged {where}: a header has another checksum than it states")
        name = _text(block[:100])
        if block[263:265] == b"00" and (prefix := _text(block[345:500])):  # POSIX; others keep other things there
            name = f"{prefix}/{name}"
        return chr(block[156]), printable(name), _size(block[124:136])

    def _finish(self) -> None:
        """Read what is left of a packed file, at the end of which stands its checksum."""
        while self._packed and (rest := self._stream.read(PART)):
            self._left -= len(rest)
            if self._left < 0:
                raise ValueError("the archive unpacks to far more than its size")


@contextmanager
def unpacking(file: IO[bytes]) -> Iterator[Archive]:
    """Open a tar archive at the beginning of a file, packed with gzip or xz, or not."""
    file.seek(0)
    start = file.read(6)
    file.seek(0)
    size = os.fstat(file.fileno()).st_size
    packed = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
    try:
        if packed is None:
            yield Archive(file, size, packed=False)
        elif packed == "gzip":
            with gzip.GzipFile(fileobj=file) as stream:
                yield Archive(io.BufferedReader(stream), size, packed=True)
        else:
            yield Archive(io.BufferedReader(_Xz(file)), size, packed=True)
    except (zlib.error, lzma.LZMAError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"it is packed with {packed}, and damaged: {error}") from None


class _Xz(io.RawIOBase):
    """A file packed with xz, unpacked with a limit on memory, which the standard library's own has not."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._unpack = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpack.eof:
            packed = self._file.read(2**16) if self._unpack.needs_input else b""
            if not packed and self._unpack.needs_input:
                raise EOFError("it ends early")
            content = self._unpack.decompress(packed, max_length=len(buffer))
            if content:
                buffer[: len(content)] = content
                return len(content)
        return 0


def _plain(name: str) -> str:
    """Return the name of a member, if it lies within the archive."""
    name = name.removeprefix("./").removesuffix("/")
    if name.startswith("/") or ".." in name.split("/") or "\\" in name:
        raise ValueError(f"member {name!r} has a path that leads out of the archive")
    return name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits or digits.strip(b"01234567"):
        raise ValueError(f"the header of a member holds {digits!r} instead of a number of octal digits")
    return int(digits, 8)


def _size(field: bytes) -> int:
    return int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError(f"an extended header states the size {text[:40]!r}; expected a whole number")
    return int(text)


def _extension(content: bytes) -> dict[str, str]:
    """Read the records ``length key=value`` of an extended header."""
    fields = {}
    while content:
        length, _, _ = content.partition(b" ")
        if not length.isdigit() or len(length) > 6 or not len(length) + 3 <= int(length) <= len(content):
            raise ValueError("an extended header is not made of records of the length that they state")
        record, content = content[len(length) + 1 : int(length)], content[int(length) :]
        key, _, value = record.rstrip(b"\n").partition(b"=")
        fields[key.decode(errors="replace")] = value.decode(errors="replace")
    return fields
