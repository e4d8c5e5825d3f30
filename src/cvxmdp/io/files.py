"""Archives of plain arrays with a JSON header, and files that are written whole or not at all.

Nothing is pickled, so nothing in a file can run code; and nothing is believed before it is checked, so that a file of
a few bytes cannot ask for gigabytes.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, Literal, NoReturn

import numpy as np
import scipy.sparse as sp

from cvxmdp.memory import take_room
from cvxmdp.names import printable

Path = str | os.PathLike[str]

VERSION = 2
"""The version of the format that is written and read."""
SMALL, GROWTH = 64 * 2**20, 200
"""An archive may unpack to this many bytes, or to this many times its size."""
SMALL_HEADER, GROWTH_HEADER = 4 * 2**20, 20
"""The same for its header: parsed JSON takes many times the bytes of its text."""
ARRAY_HEADER = 128
"""Bytes that NumPy puts before an array of numbers."""
MOST_PACKED = 2**31
"""Bytes up to which archives are compressed: that takes 20 to 30 s a gigabyte, and only what is not compressed can be
read where it lies."""
LOCAL_HEADER, LOCAL_LENGTHS = 30, 26
"""Bytes that ZIP puts before a member, its name and its extra field, and where in them their lengths are."""
LONG_LENGTHS = 20
"""Bytes that it puts behind the extra field for the lengths of members that may be long."""
ALIGNED = 64
"""Arrays that are not compressed begin at multiples of this: compiled loops read no others where they lie."""
PADDING = struct.Struct("<HH")
"""What opens a piece of an extra field, its kind and its length."""
NO_KIND = 0xD935
"""The kind of piece with which Android pads archives."""
CHUNK = 2**23
"""Bytes that are unpacked at a time where only a part of an array is wanted."""


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of ``path`` once it is complete and on the disk.

    Whatever happens before that, a full disk or the end of the process, what ``path`` held stays as it was.

    Parameters
    ----------
    path : str or path
        The file to write.  A link is followed.

    Raises
    ------
    ValueError
        When the path is no name of a file.
    OSError
        When the file cannot be written.  It names ``path``.
    """
    name = file_name(path)
    target = os.path.realpath(name)
    if os.path.lexists(target) and not os.path.isfile(target):
        raise ValueError(f"{name!r} is not a file but a folder or a device; give the name of a file")
    # Of a fixed length, so that every name that fits the file system can be written.
    unfinished = os.path.join(os.path.dirname(target), f".cvxmdp-{secrets.token_hex(8)}.part")
    try:
        if os.path.exists(target):
            open(target, "ab").close()  # a file that may not be written must not be replaced either
        with open(unfinished, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(target):
            shutil.copymode(target, unfinished)
        os.replace(unfinished, target)
    except BaseException as error:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        if isinstance(error, OSError):
            error.filename = name  # and not that of the unfinished file
        raise


def write_archive(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write arrays and a header, atomically.

    Parameters
    ----------
    path : str or path
        The file to write.
    header : mapping
        What JSON can hold, without numbers that are not finite, and with a ``"kind"``.  The version is added.
    arrays : mapping of str to array
        Numbers or truth values, of any shape.
    """
    text = json.dumps({"version": VERSION, **header}, allow_nan=False)
    members = {"header": np.frombuffer(text.encode(), dtype=np.uint8)}
    members |= {name: np.asarray(array, order="C") for name, array in arrays.items()}
    total = sum(array.nbytes + ARRAY_HEADER for array in members.values())
    with write_atomically(path) as file:
        if total > MOST_PACKED:
            _write_plain(file, members.items())
            return
        np.savez_compressed(file, allow_pickle=False, **members)
        if not _fits(total, len(text) + ARRAY_HEADER, file.tell()):
            # Almost nothing but zeros: a reader would take it for an archive made to fill its memory.
            file.seek(0)
            file.truncate()
            _write_plain(file, members.items())


def write_members(path: Path, header: Mapping[str, Any], members: Iterable[tuple[str, Any]]) -> None:
    """Write an archive like :func:`write_archive`, one array after the other as they come, without compressing them."""
    text = json.dumps({"version": VERSION, **header}, allow_nan=False)
    first = ("header", np.frombuffer(text.encode(), dtype=np.uint8))
    with write_atomically(path) as file:
        _write_plain(file, chain([first], members))


def _write_plain(file: IO[bytes], members: Iterable[tuple[str, Any]]) -> None:
    """Write an archive that is not compressed."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in members:
            with plain_member(archive, name) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)


def plain_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open the next array of an archive for writing, not compressed and so that its numbers are aligned."""
    assert archive.fp is not None
    info = zipfile.ZipInfo(f"{name}.npy")
    begin = archive.fp.tell() + LOCAL_HEADER + len(info.filename.encode()) + PADDING.size + LONG_LENGTHS
    padding = -begin % ALIGNED
    info.extra = PADDING.pack(NO_KIND, padding) + bytes(padding)
    return archive.open(info, "w", force_zip64=True)


def copy_plain(path: Path, out: Path, kind: str) -> None:
    """Write a copy of an archive that is not compressed, some bytes at a time, so that it can be read where it lies."""
    open_archive(path, kind)  # which says what is wrong with it
    with zipfile.ZipFile(file_name(path)) as source:
        names = [info.filename.removesuffix(".npy") for info in source.infolist()]
    with write_atomically(out) as file, zipfile.ZipFile(file, "w") as archive:
        for name in names:
            with plain_member(archive, name) as member:
                for data in _unpacked(path, kind, name):
                    member.write(data)


def _unpacked(path: Path, kind: str, name: str) -> Iterator[bytes]:
    """Yield what a member holds, some bytes at a time."""
    with _understood(path, kind), zipfile.ZipFile(file_name(path)) as archive, archive.open(f"{name}.npy") as member:
        while data := member.read(CHUNK):
            yield data


def read_archive(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what :func:`write_archive` wrote.

    Parameters
    ----------
    path : str or path
        The file to read.
    kind : str
        The kind that its header must state.

    Returns
    -------
    header : dict
        The header, its kind and version checked, nothing else.
    arrays : dict of str to ndarray
        The other members, each of numbers or truth values.

    Raises
    ------
    ValueError
        When the file is missing, damaged, of another kind or version, or unpacks to far more than its size.
    """
    with _understood(path, kind), open(file_name(path), "rb") as file, zipfile.ZipFile(file) as archive:
        members = _members(archive, os.fstat(file.fileno()).st_size)
        arrays = {name: _array(archive, name, info) for name, info in members.items()}
        header = _header(arrays.pop("header"))
    return _checked(header, path, kind), arrays


@dataclass(frozen=True)
class Member:
    """An array of an archive that is read in parts."""

    path: Path
    kind: str
    """Of the archive."""
    name: str
    shape: tuple[int, ...]
    dtype: Any
    stored: int | None
    """Where its numbers begin in the file, if they are not compressed."""
    skipped: int
    """Bytes before its numbers once it is unpacked."""
    by_columns: bool
    """Whether a table is held column by column."""
    checksum: int
    """Of the whole member."""

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return int(math.prod(self.shape)) * int(self.dtype.itemsize)

    @property
    def can_lie(self) -> bool:
        """Whether it can be used where it lies: it is not compressed and begins where numbers of its kind may."""
        return self.stored is not None and self.stored % int(self.dtype.itemsize) == 0 and bool(self.dtype.isnative)

    def lying(self) -> Any:
        """Return all of it, after checking that it is whole: as it lies in the file where that can be, else a copy."""
        if not self.can_lie:
            return self.part()
        array, name = self.mapped(), file_name(self.path)
        with _understood(self.path, self.kind), open(name, "rb") as file:
            file.seek((self.stored or 0) - self.skipped)
            found = zlib.crc32(file.read(self.skipped))
            flat = array.ravel(order="K").view(np.uint8)
            for k in range(0, flat.size, CHUNK):
                found = zlib.crc32(flat[k : k + CHUNK], found)
            if found != self.checksum:
                raise _RefusedError(f"holds a member {self.name!r} that is damaged")
        return array

    def part(self, begin: int = 0, end: int | None = None) -> Any:
        """Return some of its rows, all of them if not told: a copy.  What is compressed is unpacked up to them."""
        end = self.shape[0] if end is None else end
        part = np.empty((max(end - begin, 0), *self.shape[1:]), dtype=self.dtype.newbyteorder("="))
        if self.stored is not None:
            part[:] = self.mapped()[begin:end]
            return part
        done = 0
        for chunk in self.chunks(end, begin):
            part[done : done + len(chunk)] = chunk
            done += len(chunk)
        return part

    def mapped(self) -> Any:
        """Return the array as it lies in the file, where it is not compressed."""
        with _understood(self.path, self.kind):
            order: Literal["F", "C"] = "F" if self.by_columns else "C"
            return np.memmap(file_name(self.path), self.dtype, "r", self.stored or 0, self.shape, order)

    def chunks(self, end: int, begin: int = 0) -> Iterator[Any]:
        """Yield rows in their order, some at a time."""
        row = self.dtype.itemsize * math.prod(self.shape[1:])
        name = file_name(self.path)
        with (
            _understood(self.path, self.kind),
            zipfile.ZipFile(name) as archive,
            archive.open(f"{self.name}.npy") as member,
        ):
            if self.by_columns:  # every row is spread over all of it
                yield np.frombuffer(member.read()[self.skipped :], self.dtype).reshape(self.shape, order="F")[begin:end]
                return
            member.seek(self.skipped + begin * row)
            while begin < end:
                count = min(end - begin, max(1, CHUNK // max(row, 1)))
                data = member.read(count * row)
                yield np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])
                begin += count


def open_archive(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, Member]]:
    """Return the header and the other members of an archive, whose numbers are read when they are asked for.

    Checksums are of whole members, so that they say nothing of parts.  Raises what :func:`read_archive` raises.
    """
    with _understood(path, kind), open(file_name(path), "rb") as file, zipfile.ZipFile(file) as archive:
        members = _members(archive, os.fstat(file.fileno()).st_size)
        header = _header(_array(archive, "header", members.pop("header")))
        found = {}
        for name, info in members.items():
            shape, dtype, skipped, by_columns = _described(archive, name, info)
            stored = None
            if info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size and 0 not in shape:
                file.seek(info.header_offset + LOCAL_LENGTHS)
                stored = info.header_offset + LOCAL_HEADER + sum(struct.unpack("<2H", file.read(4))) + skipped
            found[name] = Member(path, kind, name, shape, dtype, stored, skipped, by_columns, info.CRC)
    return _checked(header, path, kind), found


@contextmanager
def _understood(path: Path, kind: str) -> Iterator[None]:
    """Say what is wrong with an archive, whatever it makes others raise."""
    name = file_name(path)
    if not os.path.exists(name):
        raise ValueError(f"there is no file {name!r}")
    if not os.path.isfile(name):
        raise ValueError(f"{name!r} is not a {kind} but a folder or a device; give a file written by .save(path)")
    try:
        yield
    except MemoryError:
        raise
    except _RefusedError as reason:
        raise ValueError(f"{name!r} is not a {kind}: it {reason}; write one with .save(path)") from None
    except OSError as error:
        raise ValueError(f"{name!r} cannot be read: {error.strerror or error}") from None
    except Exception:  # whatever a damaged archive makes zipfile, zlib, NumPy or JSON raise
        raise ValueError(f"{name!r} is not a {kind} in .npz form, or is damaged; write one with .save(path)") from None


def _header(member: Any) -> Any:
    return json.loads(member.tobytes().decode(), parse_constant=_no_number)


def _checked(header: Any, path: Path, kind: str) -> dict[str, Any]:
    """Return a header once it states the kind and the version that are read."""
    name = file_name(path)
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise ValueError(f"{name!r} is not a {kind}: its header does not say what it holds; write one with .save(path)")
    if header["kind"] != kind:
        raise ValueError(f"{name!r} holds a {printable(header['kind'][:50])}, not a {kind}")
    if type(header.get("version")) is not int or header["version"] != VERSION:
        raise ValueError(
            f"{name!r} has version {json.dumps(header.get('version'))[:50]} of the format, and this library reads "
            f"version {VERSION}; make the file again with .save(path)"
        )
    return header


def archive_kind(path: Path) -> str | None:
    """Return the kind that an archive's header states, or None where it states none; other members are not read."""
    try:
        with open_to_read(path) as file, zipfile.ZipFile(file) as archive:
            info = archive.getinfo("header.npy")
            if info.file_size > max(SMALL_HEADER, GROWTH_HEADER * os.fstat(file.fileno()).st_size):
                return None
            kind = json.loads(_array(archive, "header", info).tobytes().decode()).get("kind")
    except Exception:  # whatever a damaged archive makes zipfile, zlib, NumPy or JSON raise: whoever reads on says more
        return None
    return kind if isinstance(kind, str) else None


@contextmanager
def open_to_read(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, and name it in every error about its content.

    Raises
    ------
    ValueError
        When there is no such file, it cannot be read, or its content is not what was expected.
    """
    name = file_name(path)
    if not os.path.exists(name):
        raise ValueError(f"there is no file {name!r}")
    if not os.path.isfile(name):
        raise ValueError(f"{name!r} is not a file but a folder or a device")
    try:
        with open(name, "rb") as file, blaming(path):
            yield file
    except OSError as error:
        raise ValueError(f"{name!r} cannot be read: {error.strerror or error}") from None


def file_name(path: Path) -> str:
    """Return a path as a string, if it can be the name of a file."""
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"path must be the name of a file, not {name!r}")
    return name


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Name the file in every error about its content."""
    try:
        yield
    except ValueError as error:
        raise ValueError(printable(f"{file_name(path)!r}: {error}")) from None  # names are the file's
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"{file_name(path)!r} is not whole, or its parts do not fit together: {error}") from None


def take(arrays: Mapping[str, Any], name: str, shape: Sequence[int | None], kinds: str = "f") -> Any:
    """Return an array of an archive after checking it.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        What :func:`read_archive` returned.
    name : str
        Which of them.
    shape : sequence of int or None
        Its shape; None where any length will do.
    kinds : str
        Which kinds of ``dtype.kind`` will do: ``"f"`` floats, ``"iu"`` whole numbers, ``"b"`` truth values.
    """
    if name not in arrays:
        raise ValueError(f"the array {name!r} is missing")
    array = arrays[name]
    if array.dtype.kind not in kinds:
        raise ValueError(f"the array {name!r} holds {array.dtype}, which is not of kind {' or '.join(kinds)}")
    if array.ndim != len(shape) or any(n is not None and n != m for n, m in zip(shape, array.shape, strict=True)):
        wanted = " x ".join("any" if n is None else str(n) for n in shape) or "one number"
        raise ValueError(f"the array {name!r} has shape {array.shape}; it must be {wanted}")
    return array


def matrix_members(name: str, matrix: Any) -> dict[str, Any]:
    """Return a dense or CSR matrix as members of an archive."""
    if not sp.issparse(matrix):
        return {name: matrix}
    return {
        f"{name}_data": matrix.data,
        f"{name}_indices": matrix.indices,
        f"{name}_indptr": matrix.indptr,
        f"{name}_shape": np.array(matrix.shape),
    }


def take_matrix(arrays: Mapping[str, Any], name: str, shape: tuple[int, int]) -> Any:
    """Return a matrix written as :func:`matrix_members`, an ndarray or a CSR array, after checking it."""
    if name in arrays:
        return take(arrays, name, shape)
    stated = take(arrays, f"{name}_shape", [2], "iu")
    if tuple(map(int, stated)) != shape:
        raise ValueError(f"the array '{name}_shape' is {stated.tolist()}; it must be {list(shape)}")
    data = take(arrays, f"{name}_data", [None])
    indices = take(arrays, f"{name}_indices", [data.size], "iu")
    indptr = take(arrays, f"{name}_indptr", [shape[0] + 1], "iu")
    if indptr[0] != 0 or indptr[-1] != data.size or np.any(indptr[1:] < indptr[:-1]):
        raise ValueError(f"the array '{name}_indptr' must rise from 0 to the {data.size} entries of '{name}_data'")
    if data.size and not 0 <= indices.min() <= indices.max() < shape[1]:
        raise ValueError(f"the array '{name}_indices' must hold numbers from 0 to {shape[1] - 1}")
    if indices.dtype in (np.int32, np.int64) and data.size <= np.iinfo(indices.dtype).max:
        indptr = indptr.astype(indices.dtype, copy=False)  # rather than SciPy the columns, to the wider one
    elif indices.dtype != np.int64:
        take_room(
            8 * data.size, f"numbering the columns of {data.size} entries by 64 bits, as '{name}_indices' is not,"
        )
    return sp.csr_array((data, indices, indptr), shape=shape)


class _RefusedError(Exception):
    """Why an archive that could be opened is not read."""


def _fits(total: int, header: int, size: int) -> bool:
    return total <= max(SMALL, GROWTH * size) and header <= max(SMALL_HEADER, GROWTH_HEADER * size)


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an archive of ``size`` bytes; what its directory says of sizes also limits reading."""
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise _RefusedError("holds two members of the same name")
    if "header" not in members:
        raise _RefusedError("has no header")
    if not _fits(sum(info.file_size for info in members.values()), members["header"].file_size, size):
        raise _RefusedError(f"would unpack to far more than its {size} bytes")
    return members


def _described(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], Any, int, bool]:
    """Return shape and type of an array, where its numbers begin in its member, and if a table is held by columns."""
    # Other methods of packing may ask for gigabytes of memory of their own.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _RefusedError(f"packs its member {name!r} in a way that is not read here")
    with archive.open(info) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise _RefusedError(f"holds a member {name!r} that is not an array")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(member, max_header_size=ARRAY_HEADER)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in "biuf" or min(shape, default=0) < 0 or size != info.file_size - member.tell():
            raise _RefusedError(f"holds a member {name!r} that is not a whole array of numbers")
        return shape, dtype, member.tell(), by_columns and len(shape) > 1


def _array(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> Any:
    _described(archive, name, info)
    with archive.open(info) as member:
        array = np.lib.format.read_array(member, allow_pickle=False, max_header_size=ARRAY_HEADER)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _no_number(text: str) -> NoReturn:
    raise _RefusedError(f"has a header with {text}, which JSON does not know")
