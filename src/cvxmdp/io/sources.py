"""Tables in files and in memory, as batches of columns.

Files are read through pyarrow, a few megabytes at a time.  Only where something is wrong are the lines of a ``.csv``
file looked at one by one, to say which.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Any

import numpy as np

from cvxmdp.io.files import GROWTH, SMALL, Path, open_to_read
from cvxmdp.io.numbering import NO_NAME, Codes, Numbering, RowError
from cvxmdp.names import no_such, printable
from cvxmdp.reading import Array, floats

NAMES = ("state", "action", "next_state")
"""Columns that hold names; all others hold numbers."""
BLOCK = 8 * 2**20
"""Bytes of a ``.csv`` file that are read at once."""
BATCH = 2**17
"""Rows of a ``.parquet`` file that are read at once."""
HEADER = 2**16
"""The longest first line of a ``.csv`` file."""
UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")
"""How texts in UTF-16 begin, where their bytes are not taken for characters."""
INDEX = re.compile(r"__index_level_\d+__")
"""How pandas calls an index without a name in a ``.parquet`` file."""
SHOWN = 40
"""So many characters of a wrong entry are shown."""

Columns = Mapping[str, Any]


class Source:
    """A table: the names of its columns, and batches of its rows."""

    def __init__(self, said: str, columns: Iterable[Any], required: Sequence[str]) -> None:
        self.said = said
        self.columns = [str(column) for column in columns]
        for column, times in Counter(self.columns).items():
            if times > 1:
                raise ValueError(f"{said} has {times} columns called {column!r}; names of columns must differ")
            if not column:
                raise ValueError(
                    f"{said} has a column without a name; name or remove it (pandas leaves its index out with "
                    "to_csv(path, index=False))"
                )
        for column in required:
            if column not in self.columns:
                missing = no_such("column", column, [other for other in self.columns if other not in required])
                raise ValueError(
                    f"{said} needs the columns {', '.join(required)} and costs: {missing}{self._separator()}"
                )

    def _separator(self) -> str:
        only = self.columns[0] if len(self.columns) == 1 else ""
        found = [mark for mark in ";\t|" if mark in only]
        return f". Its columns seem to be separated by {found[0]!r}; separate them by commas" if found else ""

    def batches(self) -> Iterator[Columns]:
        """Yield rows, as arrays by column."""
        raise NotImplementedError

    def blame(self, row: int | None, what: str) -> ValueError:
        """Return what is wrong, in a row if it is known which, as an error about this table."""
        return ValueError(what if row is None else f"{what}, in row {row} of {self.said} (the first is row 0)")


class Frame(Source):
    """A frame of pandas, polars or pyarrow, or a mapping of columns."""

    def __init__(self, said: str, table: Any, required: Sequence[str]) -> None:
        columns = None
        if isinstance(table, Mapping):
            columns = table
        elif hasattr(table, "__getitem__") and hasattr(table, "__len__"):  # a lazy frame has no length
            columns = getattr(table, "column_names", getattr(table, "columns", None))
        if columns is None:
            raise ValueError(
                f"{said} is a {type(table).__name__}; give a pandas or polars frame, a mapping of columns, or the path "
                "of a .csv or .parquet file"
            )
        super().__init__(said, columns, required)
        self._table = {str(column): table[column] for column in columns}

    def batches(self) -> Iterator[Columns]:
        arrays = {column: _array(values) for column, values in self._table.items()}
        lengths = {column: len(array) for column, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{column!r} has {length}" for column, length in lengths.items())
            raise ValueError(f"{self.said} has columns of different lengths: {found}")
        yield arrays


class CSV(Source):
    """A ``.csv`` file in UTF-8, its columns named in the first line."""

    def __init__(self, name: str, required: Sequence[str]) -> None:
        self._name = name
        with open(name, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            head = file.read(HEADER)
        if not head.strip():
            raise ValueError(f"the file is empty; its first line must name the columns {', '.join(required)} and costs")
        if head.startswith(UTF_16):
            raise ValueError("the file is text in UTF-16; save it as CSV UTF-8")
        columns: list[str] = next(filter(None, csv.reader(io.StringIO(head, newline=""))))
        if _bytes(columns):
            raise ValueError("line 1 is not text in UTF-8; save the file as CSV UTF-8")
        super().__init__("the file", columns, required)

    def batches(self) -> Iterator[Columns]:
        pa, pa_csv = arrow("csv")
        text = pa.dictionary(pa.int32(), pa.string())
        types = {column: text if column in NAMES else pa.float64() for column in self.columns}
        try:
            reader = pa_csv.open_csv(
                self._name,
                read_options=pa_csv.ReadOptions(block_size=BLOCK),
                parse_options=pa_csv.ParseOptions(newlines_in_values=True),
                convert_options=pa_csv.ConvertOptions(
                    column_types=types,
                    null_values=[""],  # nothing is a missing entry, and quotes with nothing between them are a name
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            if reader.schema.names != self.columns:
                raise ValueError("its first line cannot be read; name the columns there, separated by commas")
            for batch in reader:
                yield dict(zip(self.columns, batch.columns, strict=True))
        except pa.ArrowException as error:
            if next(self._lines(), None) is not None:  # a first line alone is a table without rows
                raise self.blame(None, _first_line(error)) from None

    def blame(self, row: int | None, what: str) -> ValueError:
        """Return what is wrong in the first line that cannot be read; if all can, what is wrong in this row."""
        at = ""
        for number, (line, entries) in enumerate(self._lines()):
            at = f", in line {line}" if number == row else at
            if len(entries) != len(self.columns):
                hint = "; is a quote not closed?" if any("\n" in entry for entry in entries) else ""
                return ValueError(
                    f"line {line} has {len(entries)} entries; the first line names {len(self.columns)} columns{hint}"
                )
            if _bytes(entries):
                return ValueError(f"line {line} is not text in UTF-8; save the file as CSV UTF-8")
            for column, entry in zip(self.columns, entries, strict=True):
                if column not in NAMES and (wrong := _wrong_number(column, entry)):
                    return ValueError(f"{wrong}, in line {line}")
        return ValueError(f"{what}{at}")

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows after the first with the lines where they begin."""
        with open(self._name, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file)
            begin, header = 1, True
            try:
                for entries in reader:
                    if entries and not header:
                        yield begin, entries
                    header = header and not entries
                    begin = reader.line_num + 1
            except csv.Error as error:
                raise ValueError(f"line {begin} cannot be read: {error}; is a quote not closed?") from None


class Parquet(Source):
    """A ``.parquet`` file."""

    def __init__(self, name: str, required: Sequence[str]) -> None:
        pa, pq = arrow("parquet")
        with _arrow_errors(pa):
            metadata = pq.read_metadata(name)
            present = {metadata.schema.column(k).path for k in range(metadata.num_columns)}
            # As a dictionary a text is held once, however many rows repeat it; of numbers the option means nothing.
            texts = [column for column in NAMES if column in present]
            self._file = pq.ParquetFile(
                name, metadata=metadata, read_dictionary=texts, pre_buffer=False, page_checksum_verification=True
            )
            schema = self._file.schema_arrow
            groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
            # Not by column: where that is damaged, pyarrow ends the process.
            packed = sum(max(group.total_byte_size, 0) for group in groups)
        size = os.path.getsize(name)
        if max(packed, 8 * metadata.num_rows * len(schema.names)) > max(SMALL, GROWTH * size):
            raise ValueError(f"the file would unpack to far more than its {size} bytes")
        super().__init__("the file", [name for name in schema.names if not INDEX.fullmatch(name)], required)
        for column in self.columns:  # before anything is unpacked
            kind = schema.field(column).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if column in NAMES and not _of_names(kind):
                raise ValueError(f"column {column!r}: it holds {kind}; names are texts or numbers")
            if column not in NAMES and not _of_numbers(kind):
                raise ValueError(_wanted(column, f"{kind}"))

    def batches(self) -> Iterator[Columns]:
        pa, _ = arrow("parquet")
        with _arrow_errors(pa), self._file:
            for batch in self._file.iter_batches(batch_size=BATCH, columns=self.columns):
                yield {column: batch.column(column) for column in self.columns}
        pa.default_memory_pool().release_unused()  # tens of megabytes, before a model is made


FILES: dict[str, type[CSV] | type[Parquet]] = {".csv": CSV, ".parquet": Parquet}


@contextmanager
def open_source(said: str, table: Any, required: Sequence[str]) -> Iterator[Source]:
    """Open a table, given as an argument called ``said``, and name its file in every error about its content."""
    if not isinstance(table, (str, os.PathLike)):
        yield Frame(said, table, required)
        return
    kind = FILES[ending(table)]
    with open_to_read(table) as file:
        yield kind(file.name, required)


def ending(path: Path) -> str:
    """Return the ending of a file that holds a table."""
    found = PurePath(path).suffix.lower()
    if found not in FILES:
        raise ValueError(f"{os.fspath(path)!r} ends in {found!r}; tables are in files that end in .csv or .parquet")
    return found


def arrow(module: str) -> tuple[Any, Any]:
    """Return pyarrow and one of its modules."""
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            '.csv and .parquet files are read with pyarrow; install it with: pip install "cvxmdp[table]"'
        ) from error
    return pa, getattr(pa, module)


def codes(numbering: Numbering, column: str, values: Any) -> Codes:
    """Return the codes of the names in a column, an array of NumPy or of pyarrow."""
    try:
        return numbering.codes(values) if isinstance(values, np.ndarray) else _arrow_codes(numbering, values)
    except RowError as error:
        raise RowError(error.row, f"column {column!r}: {error}") from None
    except ValueError as error:
        raise ValueError(f"column {column!r}: {error}") from None


def numbers(column: str, values: Any) -> Array:
    """Return a column of numbers, an array of NumPy or of pyarrow, after checking that they are finite."""
    if not isinstance(values, np.ndarray):
        values = _arrow_numbers(column, values)
    try:
        result = floats(f"column {column!r}", values)
    except ValueError:
        for row, entry in enumerate(values.tolist()):
            try:
                floats("", entry)
            except ValueError:
                raise RowError(row, _wanted(column, repr(entry))) from None
        raise
    if result.ndim != 1:
        raise ValueError(f"column {column!r} has shape {result.shape}; give one number for each row")
    least = 0.0 if column == "probability" else -math.inf
    bad = np.flatnonzero(~(np.isfinite(result) & (result >= least)))
    if bad.size:
        raise RowError(int(bad[0]), _wanted(column, repr(float(result[bad[0]]))))
    return result


def _array(values: Any) -> Any:
    """Return a column as an array of NumPy."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        return values
    try:
        listed = list(values)
    except TypeError:
        raise ValueError(f"a column of the table is {values!r}; give a list or an array for each column") from None
    array = np.empty(len(listed), dtype=object)  # NumPy would make texts of numbers that stand beside texts
    array[:] = listed
    return array


def _wanted(column: str, found: str) -> str:
    """Say what a column of numbers should hold."""
    if column == "probability":
        return f"the probability is {found}; it must be a number that is at least 0"
    return (
        f"column {printable(repr(column))} holds {found}; it must hold finite numbers, as every column besides "
        f"{', '.join(NAMES)} and probability is a cost"
    )


def _wrong_number(column: str, entry: str) -> str | None:
    """Return what is wrong with an entry of a ``.csv`` file that should be a number, or None."""
    try:
        value = float(entry) if entry.isascii() and "_" not in entry else math.nan  # Python reads more than is written
    except ValueError:
        value = math.nan
    if math.isfinite(value) and (value >= 0 or column != "probability"):
        return None
    return _wanted(column, printable(repr(entry if len(entry) <= SHOWN else entry[:SHOWN] + "...")))


def _bytes(entries: list[str]) -> bool:
    """Whether texts hold bytes that are not UTF-8."""
    try:
        "".join(entries).encode()
    except UnicodeEncodeError:
        return True
    return False


def _first_line(error: Exception) -> str:
    return printable(str(error).strip().split("\n")[0][:200])


@contextmanager
def _arrow_errors(pa: Any) -> Iterator[None]:
    """Turn whatever a damaged file makes pyarrow raise into one kind of error."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError, IndexError) as error:
        raise ValueError(f"the file is not a table in .parquet form, or is damaged: {_first_line(error)}") from None


def _present(values: Any, what: str) -> None:
    if values.null_count:
        raise RowError(int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]), what)


def _arrow_codes(numbering: Numbering, values: Any) -> Codes:
    pa, _ = arrow("csv")
    _present(values, NO_NAME)
    if pa.types.is_dictionary(values.type) and not _texts(values.type.value_type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_dictionary(kind):
        place = values.indices.to_numpy()
        if place.size and not 0 <= place.min() <= place.max() < len(values.dictionary):
            raise ValueError("it refers to texts that it does not hold; the file is damaged")
        used = np.zeros(len(values.dictionary), dtype=bool)
        used[place] = True
        chosen = np.flatnonzero(used)
        by_place = np.zeros(used.size, dtype=np.int32)
        by_place[chosen] = _distinct_codes(numbering, values.dictionary.take(pa.array(chosen)))
        result: Codes = by_place[place]
        return result
    if pa.types.is_integer(kind):
        return numbering.of_numbers(values.to_numpy())
    if pa.types.is_string_view(kind):
        values = values.cast(pa.large_string())
    if _texts(values.type):
        return _arrow_codes(numbering, values.dictionary_encode())
    return numbering.codes(values.to_numpy(zero_copy_only=False))


def _of_names(kind: Any) -> bool:
    """Whether a column of this kind may hold names; one without any entry may be of no kind."""
    types = arrow("csv")[0].types
    if _texts(kind) or types.is_string_view(kind) or types.is_null(kind):
        return True
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_temporal(kind))


def _of_numbers(kind: Any) -> bool:
    """Whether a column of this kind may hold numbers."""
    types = arrow("csv")[0].types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind))


def _texts(kind: Any) -> bool:
    pa, _ = arrow("csv")
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _distinct_codes(numbering: Numbering, names: Any) -> Codes:
    """Return codes of names that differ, by operations on arrays where all are whole numbers."""
    pa, _ = arrow("csv")
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raise ValueError("it holds a name that is not text in UTF-8") from None
    if len(names) and names[0].as_py().isdecimal():
        with suppress(pa.ArrowInvalid):  # others are not
            numbers = names.cast(pa.int64())
            if numbers.cast(names.type).equals(names):
                return numbering.of_numbers(numbers.to_numpy())
    return numbering.of_texts(names.to_numpy(zero_copy_only=False).tolist())


def _arrow_numbers(column: str, values: Any) -> Any:
    pa, _ = arrow("csv")
    _present(values, _wanted(column, "nothing"))
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.float64(), safe=False).to_numpy()
