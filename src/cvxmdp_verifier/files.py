"""Reading archives that nobody vouches for: nothing is unpickled, nothing is allocated before it is there."""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zipfile
from os import PathLike
from typing import Any, NoReturn, cast

import numpy as np

from cvxmdp_verifier.errors import Refused, shown

SMALL, GROWTH = 64 * 2**20, 200
"""An archive may unpack to this many bytes, or to this many times its own size."""
SMALL_HEADER, GROWTH_HEADER = 4 * 2**20, 20
"""The same for the JSON header, which takes many times its bytes once it is parsed."""
LONGEST = 10_000
"""Characters of the description of an array."""
LARGE = 2**28
"""Bytes from which an array that is not compressed is read where it lies in the file, as it is needed."""
PIECE = 2**23
"""Bytes that are read at a time."""
LOCAL, LENGTHS = 30, 26
"""Bytes that ZIP puts before a member, its name and its extra field, and where in them their lengths are."""


def read(path: str | PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a saved model or solution, as :func:`cvxmdp_verifier.verify` takes it.

    Large arrays that are not compressed stay in the file, which must not be written to before all is verified.

    Parameters
    ----------
    path : str or path
        The archive.
    kind : {"model", "solution"}
        What it must be.

    Returns
    -------
    header : dict
    arrays : dict of str to array

    Raises
    ------
    Refused
        For whatever is wrong with the file; the message names it.
    """
    if kind not in ("model", "solution"):
        raise ValueError("kind must be 'model' or 'solution'")
    name = shown(os.fspath(path))
    try:
        header, arrays = _unpacked(path)
        if header.get("kind") != f"cvxmdp {kind}":
            raise Refused(f"it is not a saved {kind}")
        if header.get("version") != 2 or isinstance(header["version"], bool):
            raise Refused("it is of a version other than 2")
        return header, arrays
    except Refused as error:
        raise Refused(f"{name}: {error}") from None
    except Exception as error:  # zipfile, zlib, json and NumPy have many ways to dislike their input
        raise Refused(f"{name}: cannot be read: {type(error).__name__}: {shown(error)}") from error


def _unpacked(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    if not os.path.isfile(path):  # a device or a pipe could be read for ever
        raise Refused("there is no such file")
    size = os.path.getsize(path)
    arrays: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        left = max(SMALL, GROWTH * size)
        if sum(member.file_size for member in members) > left:
            raise Refused(f"it would unpack to more than {left} bytes")
        seen = [member.filename for member in members]
        if len(set(seen)) < len(seen):
            raise Refused("it has two arrays of the same name")
        for member in members:
            if not member.filename.endswith(".npy") or member.is_dir() or member.flag_bits & 1:
                raise Refused(f"it has a member that is not an array: {shown(member.filename)!r}")
            if member.filename == "header.npy" and member.file_size > max(SMALL_HEADER, GROWTH_HEADER * size):
                raise Refused("its header is out of proportion")
            arrays[member.filename[: -len(".npy")]] = _array(archive, member)
    if "header" not in arrays:
        raise Refused("it has no header")
    words = arrays.pop("header")
    if words.dtype != np.uint8 or words.ndim != 1:
        raise Refused("its header is not text")
    header = json.loads(
        words.tobytes().decode("utf-8"), parse_constant=_constant, parse_float=_float, object_pairs_hook=_object
    )
    if not isinstance(header, dict):
        raise Refused("its header is not an object with named fields")
    return header, arrays


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """Read one array: first its description, then exactly as many bytes as that asks for."""
    what = shown(member.filename)
    with archive.open(member) as stream:
        major, minor = np.lib.format.read_magic(stream)
        if (major, minor) not in ((1, 0), (2, 0)):
            raise Refused(f"{what!r} is in a format that is not known")
        length = stream.read(2 if major == 1 else 4)
        count = int.from_bytes(length, "little")
        if count > LONGEST:
            raise Refused(f"the description of {what!r} is out of proportion")
        description = io.BytesIO(length + stream.read(count))
        reader = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(description, max_header_size=LONGEST)
        if dtype.hasobject or dtype.kind not in "buif" or dtype.subdtype is not None:
            raise Refused(f"{what!r} holds something other than numbers")
        if any(not isinstance(n, int) or n < 0 for n in shape) or len(shape) > 2:
            raise Refused(f"{what!r} has a shape that is none: {shape}")
        size = math.prod(shape) * dtype.itemsize
        if size != member.file_size - stream.tell():
            raise Refused(f"{what!r} is not as long as its shape says")
        large = size >= LARGE and member.compress_type == zipfile.ZIP_STORED
        begin, data, read = stream.tell(), bytearray(), 0
        while some := stream.read(min(size - read + 1, PIECE)):  # to its end, where the checksum is compared
            read += len(some)
            if not large:
                data += some
        if read != size:
            raise Refused(f"{what!r} is not as long as its shape says")
    array: Any = np.frombuffer(data, dtype=dtype)
    if large:  # of the file that is open, whatever takes its name
        array = np.memmap(cast("Any", archive.fp), dtype, "r", _place(archive, member) + begin, (math.prod(shape),))
    array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    return np.ascontiguousarray(array.astype(dtype.newbyteorder("="), copy=False)).reshape(shape)


def _place(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return where in the file a member that is not compressed begins."""
    file = cast("Any", archive.fp)
    file.seek(member.header_offset + LENGTHS)
    name, extra = struct.unpack("<2H", file.read(LOCAL - LENGTHS))
    return int(member.header_offset + LOCAL + name + extra)


def _constant(word: str) -> NoReturn:
    raise Refused(f"its header has {word}, which is no number in JSON")


def _float(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise Refused(f"its header has a number that is too large: {shown(word)}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refused("its header has a field twice")
    return found
