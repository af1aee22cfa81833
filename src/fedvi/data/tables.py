"""One reader for tables: CSV, TSV, Parquet, Arrow files, data frames, and dictionaries of columns.

`open_table` gives a `Reader`, and a reader gives batches of the columns that are wanted, each as numbers or as text:

    number   float64, NaN where nothing was measured
    text     a code per row and the distinct strings of the batch, -1 where nothing was measured

The types of the table do not matter: whole numbers, truth values, decimals and text that holds numbers are numbers if
numbers are wanted; if text is wanted, 1 and 1.0 are "1", true is "true". Blanks around text are dropped. Memory is that
of a few batches, however long the table is.

A CSV is parsed by Arrow. If that fails, a slower second look finds row, column and value: every error is one line.
Rows are counted from 1 in errors, the header not counted; `Batch.start` counts from 0.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import difflib
import gzip
import io
import math
import os
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedvi.data.vocabulary import Vocabulary
from fedvi.errors import InputError

Source = str | os.PathLike | Any
"""The path of a table, an object that speaks Arrow (pandas, polars, pyarrow), a dictionary of columns, a `Reader`."""

Kind = Literal["number", "text"]
NUMBER: Kind = "number"
TEXT: Kind = "text"

MISSING = frozenset(
    ["", "?", ".", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null"]
)
"""Words for "nothing was measured". In text columns they are left as they are: a schema may list them as values."""

BLANKS = (("", ""), (" ", ""), ("", " "))
WORDS_AND_BLANKS = [before + word + after for word in sorted(MISSING) for before, after in BLANKS]

BLOCK_BYTES = 4 << 20
"""Bytes of a CSV that are parsed at once."""

LONGEST_LINE = 16 << 20
"""Bytes after which the end of a line within quotation marks is not waited for any more."""

BATCH_ROWS = 1 << 17
"""Rows of other tables that are read at once."""

DELIMITERS = ",;\t|"
TEXT_FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_FILES = (".parquet", ".pq")
ARROW_FILES = (".arrow", ".feather", ".ipc")


class NotANumber(InputError):
    """Text stands where a number is wanted.

    column: where.
    """

    def __init__(self, message: str, column: str):
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, eq=False)
class Text:
    """A text column of a batch: `values[codes[i]]` is row i, and -1 a row without a value."""

    codes: np.ndarray
    values: list[str]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows `start`, `start + 1`, ... of a table."""

    start: int
    rows: int
    numbers: Mapping[str, np.ndarray]
    texts: Mapping[str, Text]

    def part(self, first: int, last: int) -> Batch:
        """Return rows `first` to `last` of the batch."""
        rows = slice(first, last)
        numbers = {name: column[rows] for name, column in self.numbers.items()}
        texts = {name: Text(text.codes[rows], text.values) for name, text in self.texts.items()}
        return Batch(self.start + first, last - first, numbers, texts)


class Reader(ABC):
    """A table that can be read in batches, as often as its source can.

    name: how errors call it. columns: the names of its columns. fraction: how much of it was read, from 0 to 1.
    """

    name: str
    columns: tuple[str, ...]
    fraction: float = 0.0
    reads_ahead = False
    """Whether it works in threads of its own."""

    def batches(self, wanted: Mapping[str, Kind]) -> Generator[Batch, None, None]:
        """Yield the wanted columns, batch by batch, or raise `InputError` naming row, column and value."""
        self.require(wanted)
        start = 0
        with _in_one_line(self.name), contextlib.closing(self._read(dict(wanted))) as found:
            for batch in found:
                start = batch.start + batch.rows
                if batch.rows:
                    yield batch
        if start == 0:
            raise InputError(f"Expected rows in {self.name}, got only a header with {len(self.columns)} columns.")

    def require(self, names: Iterable[str]) -> None:
        """Raise `InputError` for a column that is not there, with those that are."""
        for name in names:
            if name not in self.columns:
                there = ", ".join(self.columns[:30]) + (", ..." if len(self.columns) > 30 else "")
                raise InputError(f"Expected column {name!r} in {self.name}, got {there}.{near(name, self.columns)}")

    @abstractmethod
    def _read(self, wanted: dict[str, Kind]) -> Generator[Batch, None, None]:
        """Yield batches of columns that are there."""

    def _check_columns(self) -> None:
        seen: set[str] = set()
        for column in self.columns:
            if column in seen:
                raise InputError(f"Expected every column of {self.name} once, got {column!r} twice. Rename one.")
            seen.add(column)
        if not self.columns:
            raise InputError(f"Expected columns in {self.name}, got none.")


def open_table(source: Source, *, name: str | None = None, encoding: str = "utf-8") -> Reader:
    """Return a reader of a table.

    name: how errors call it. encoding: of text files; others have none.

    >>> table = open_table({"age": [50, None], "sex": ["F", "M"]})
    >>> [batch.numbers["age"].tolist() for batch in table.batches({"age": NUMBER})]
    [[50.0, nan]]
    """
    if isinstance(source, Reader):
        return source
    if isinstance(source, str | os.PathLike):
        return _open_file(Path(source), name or str(source), encoding)
    if isinstance(source, Mapping):
        return _ObjectReader(_table_of(source, name or "the dictionary"), name or "the dictionary")
    if hasattr(source, "__arrow_c_stream__"):
        kind = type(source)
        return _ObjectReader(source, name or f"the {kind.__module__.split('.')[0]} {kind.__name__}")
    raise InputError(
        f"Expected the path of a table, a data frame or a dictionary of columns, got {type(source).__name__}. "
        "Objects must speak Arrow, as those of pandas 2.2, polars and pyarrow do."
    )


def near(name: str, allowed: Iterable[str]) -> str:
    """Return ` Did you mean 'age'?`, or nothing if no name is near.

    >>> near("Agee", ["age", "sex"])
    " Did you mean 'age'?"
    """
    by_lower = {other.lower(): other for other in allowed}
    found = difflib.get_close_matches(name.lower().strip(), by_lower, 1)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""


def place(name: str, row: int, column: str) -> str:
    """Return where a value stands, for errors; `row` counts from 0."""
    return f"row {row + 1} of column {column!r} of {name}"


def parse_number(text: str) -> float:
    """Return the number that a text holds, NaN for a word of `MISSING`, or raise ValueError.

    >>> parse_number(" +1e3 "), parse_number("?")
    (1000.0, nan)
    """
    text = text.strip()
    if text in MISSING:
        return math.nan
    if "_" in text:  # which Python allows, and nobody else
        raise ValueError(text)
    return float(text)


def plain(text: str) -> str:
    """Return one spelling for texts that mean the same whole number or truth value.

    >>> plain("1.0"), plain("-0.00"), plain("True"), plain("1.50"), plain("01")
    ('1', '0', 'true', '1.50', '01')
    """
    if re.fullmatch(r"-?\d+\.0*", text):
        text = text.partition(".")[0]
    if text == "-0":
        return "0"
    return text.lower() if text.lower() in ("true", "false") else text


@contextlib.contextmanager
def _in_one_line(name: str) -> Iterator[None]:
    """Turn what the libraries raise for bad data and bad files into an `InputError` of one line."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"Expected to be allowed to read {name}, got permission denied.") from None
    except FileNotFoundError:
        raise InputError(f"Expected a table at {name}, got no such file.") from None
    except (OSError, EOFError, UnicodeError, pa.ArrowException) as error:
        raise InputError(f"Expected to read {name}, got: {_first_line(error)}.") from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).strip()[:300].rstrip(".:")


# Files.


def _open_file(path: Path, name: str, encoding: str) -> Reader:
    with _in_one_line(name):
        if path.is_dir():
            raise InputError(f"Expected the file of a table, got the directory {name}.")
        with open(path, "rb"):  # whether it is there, and may be read
            pass
    lower = path.name.lower()
    if lower.endswith(TEXT_FILES):
        return _CsvReader(path, name, encoding)
    if lower.endswith(PARQUET_FILES):
        return _ParquetReader(path, name)
    if lower.endswith(ARROW_FILES):
        return _ArrowReader(path, name)
    known = ", ".join((*TEXT_FILES, *PARQUET_FILES, *ARROW_FILES))
    raise InputError(f"Expected the name of a table to end with one of {known}, got {name}.")


class _ParquetReader(Reader):
    def __init__(self, path: Path, name: str):
        self.path, self.name = path, name
        with self._open() as file:
            self.columns = tuple(file.schema_arrow.names)
        self._check_columns()

    def _open(self, **options: Any) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with _in_one_line(self.name):
            try:
                return pq.ParquetFile(self.path, **options)
            except pa.ArrowInvalid as error:
                raise InputError(f"Expected a Parquet file, got {self.name}: {_first_line(error)}.") from None

    def _read(self, wanted: dict[str, Kind]) -> Generator[Batch, None, None]:
        texts = [name for name, kind in wanted.items() if kind == TEXT]
        with self._open(read_dictionary=texts) as file:
            total = max(file.metadata.num_rows, 1)
            found = file.iter_batches(BATCH_ROWS, columns=list(wanted))
            for batch in _batches(found, wanted, self.name):
                self.fraction = (batch.start + batch.rows) / total
                yield batch


class _ArrowReader(Reader):
    def __init__(self, path: Path, name: str):
        self.path, self.name = path, name
        with self._open() as file:
            self.columns = tuple(file.schema.names)
        self._check_columns()

    def _open(self) -> Any:
        import pyarrow as pa

        with _in_one_line(self.name):
            if self.path.stat().st_size == 0:
                raise InputError(f"Expected a table in {self.name}, got an empty file.")
            source = pa.memory_map(str(self.path))
            try:
                return pa.ipc.open_file(source)
            except pa.ArrowInvalid:
                source.seek(0)
            try:
                return pa.ipc.open_stream(source)
            except (OSError, pa.ArrowInvalid) as error:
                raise InputError(f"Expected an Arrow file, got {self.name}: {_first_line(error)}.") from None

    def _read(self, wanted: dict[str, Kind]) -> Generator[Batch, None, None]:
        with self._open() as file:
            number = getattr(file, "num_record_batches", None)
            found = file if number is None else map(file.get_batch, range(number))
            yield from _batches(found, wanted, self.name)


class _ObjectReader(Reader):
    def __init__(self, source: Any, name: str):
        self.source, self.name = source, name
        self.first: Any = self._stream()
        self.columns = tuple(map(str, self.first.schema.names))
        self._check_columns()

    def _stream(self) -> Any:
        import pyarrow as pa

        with _in_one_line(self.name):
            try:
                return pa.RecordBatchReader.from_stream(self.source)
            except (TypeError, ValueError, pa.ArrowException) as error:  # mixed types, a column twice, one column only
                what = "one column" if "non-struct" in str(error) else _first_line(error)
                raise InputError(f"Expected {self.name} to be a table, got: {what}.") from None

    def _read(self, wanted: dict[str, Kind]) -> Generator[Batch, None, None]:
        import pyarrow as pa

        stream, self.first = self.first, None
        if stream is None:
            if isinstance(self.source, pa.RecordBatchReader):
                raise InputError(f"Expected a table that can be read again, got {self.name}: give a table or a file.")
            stream = self._stream()
        yield from _batches(stream, wanted, self.name)


def _table_of(columns: Mapping[Any, Any], name: str) -> Any:
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    for column, values in columns.items():
        try:
            arrays[str(column)] = pa.array(values, from_pandas=True)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InputError(
                f"Expected a list of values for column {column!r} of {name}: {_first_line(error)}."
            ) from None
    try:
        return pa.table(arrays)
    except ValueError:
        lengths = ", ".join(f"{column} {len(values)}" for column, values in arrays.items())
        raise InputError(f"Expected columns of equal length in {name}, got {lengths}.") from None


# From Arrow's arrays to numbers and text.


def _batches(found: Iterable[Any], wanted: dict[str, Kind], name: str, start: int = 0) -> Iterator[Batch]:
    for large in found:
        for first in range(0, large.num_rows, BATCH_ROWS):
            part = large.slice(first, BATCH_ROWS)
            yield _batch(part, wanted, name, start)
            start += part.num_rows


def _batch(part: Any, wanted: dict[str, Kind], name: str, start: int) -> Batch:
    columns = {column: part.column(part.schema.names.index(column)) for column in wanted}
    return Batch(
        start,
        part.num_rows,
        {column: _numbers(columns[column], column, name, start) for column in wanted if wanted[column] == NUMBER},
        {column: _text(columns[column], column, name) for column in wanted if wanted[column] == TEXT},
    )


def _numbers(array: Any, column: str, name: str, start: int) -> np.ndarray:
    import pyarrow as pa

    kind = array.type
    if pa.types.is_float64(kind):
        return array.to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        raise InputError(
            f"Expected numbers in column {column!r} of {name}, got {kind}. Leave it out, or count days or seconds."
        )
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return numbers_of(_text(array, column, name), column, name, start)
    return array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def numbers_of(text: Text, column: str, name: str, start: int) -> np.ndarray:
    """Return the numbers that a text column holds, or raise `NotANumber`."""
    numbers = np.full(len(text.values) + 1, np.nan)  # code -1 is the last
    wrong = []
    for code, value in enumerate(text.values):
        try:
            numbers[code] = parse_number(value)
        except ValueError:
            wrong.append(code)
    bad = np.flatnonzero(np.isin(text.codes, wrong))
    if bad.size:
        value = text.values[text.codes[bad[0]]]
        remedy = "Correct it, or make the column a category."
        if re.fullmatch(r"[-+]?[\d.]*,\d+", value):
            remedy = "Write numbers with a decimal point and nothing between thousands."
        raise NotANumber(
            f"Expected a number in {place(name, start + int(bad[0]), column)}, got {value!r}. {remedy}", column
        )
    return numbers[text.codes]


def _text(array: Any, column: str, name: str) -> Text:
    import pyarrow as pa

    if pa.types.is_null(array.type):
        return Text(np.full(len(array), -1, np.int32), [])
    try:
        if not pa.types.is_dictionary(array.type):
            if array.type in (pa.string_view(), pa.binary_view()):
                array = array.cast(pa.large_string())
            array = array.dictionary_encode()
        words = _words(array.dictionary)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InputError(f"Expected text or numbers in column {column!r} of {name}, got {array.type}.") from None
    indices = array.indices.cast(pa.int32())
    codes = (indices.fill_null(-1) if indices.null_count else indices).to_numpy(zero_copy_only=False)
    return _stripped(codes, words)


def _words(values: Any) -> list[str | None]:
    """Return the texts of distinct values of any type."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_temporal(kind):
        return values.cast(pa.string()).to_pylist()
    if pa.types.is_nested(kind):
        raise pa.ArrowTypeError(str(kind))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if value is None else value.decode() for value in values.to_pylist()]
    return [value if isinstance(value, str) else _word(value) for value in values.to_pylist()]


def _word(value: Any) -> str | None:
    if value is None or value != value:  # NaN
        return None
    if isinstance(value, Decimal):
        return plain(f"{value:f}")
    return plain(str(value))


def _stripped(codes: np.ndarray, words: list[str | None]) -> Text:
    """Drop blanks around the words; what is equal then gets one code, and the empty word none."""
    values: dict[str, int] = {}
    table = np.full(len(words) + 1, -1, np.int32)
    for code, word in enumerate(words):
        stripped = "" if word is None else word.strip()
        if stripped:
            table[code] = values.setdefault(stripped, len(values))
    same = len(values) == len(words)
    return Text(codes if same else table[codes], list(values))


# CSV.


class _CsvReader(Reader):
    reads_ahead = True

    def __init__(self, path: Path, name: str, encoding: str):
        self.path, self.name = path, name
        try:
            codec = codecs.lookup(encoding).name
        except LookupError:
            raise InputError(f"Expected a text encoding such as utf-8 or latin-1, got {encoding!r}.") from None
        self.encoding = "utf-8-sig" if codec in ("utf-8", "ascii") else codec  # a byte order mark is dropped
        with _in_one_line(name):
            self.delimiter, header = self._header()
        self.columns = tuple(column.strip() for column in header)
        self._vocabularies: dict[str, Vocabulary | None] = dict.fromkeys(self.columns, Vocabulary(()))
        self._check_columns()

    def _header(self) -> tuple[str, list[str]]:
        try:
            with self._lines("surrogateescape") as lines:  # what is wrong further down is found there
                line = next(lines, "")
            line.encode()
        except UnicodeError:
            raise InputError(f"Expected {self._codec} text in the header of {self.name}. {self._remedy}") from None
        if not line.strip():
            what = "an empty file" if self.path.stat().st_size == 0 else "an empty first line"
            raise InputError(f"Expected a header in the first line of {self.name}, got {what}.")
        if "\0" in line:
            raise InputError(f"Expected a text file, got {self.name}: its first line holds zero bytes. {self._remedy}")
        bare = re.sub(r'"[^"]*"?', "", line)
        delimiter = max(DELIMITERS, key=bare.count)  # the first of those that are as frequent
        with self._lines("surrogateescape") as lines:
            return delimiter, next(csv.reader(lines, delimiter=delimiter))

    @property
    def _codec(self) -> str:
        return self.encoding.removesuffix("-sig").upper()

    @property
    def _remedy(self) -> str:
        return "Give its encoding, for example --encoding latin-1 (encoding='latin-1' in Python), or convert it."

    @contextlib.contextmanager
    def _lines(self, errors: str = "strict") -> Iterator[Iterator[str]]:
        opened: Any = gzip.open if self.path.name.lower().endswith(".gz") else open
        with opened(self.path, "rb") as raw, io.TextIOWrapper(raw, self.encoding, errors, newline="") as lines:
            yield lines

    def _read(self, wanted: dict[str, Kind]) -> Generator[Batch, None, None]:
        import pyarrow as pa

        start = 0
        try:
            with (
                contextlib.closing(self._blocks()) as blocks,
                contextlib.closing(_in_order(lambda block: self._parse(block, wanted), blocks)) as parts,
            ):
                for rows, columns in parts:
                    numbers = {
                        name: numbers_of(column, name, self.name, start) if isinstance(column, Text) else column
                        for name, column in columns.items()
                        if wanted[name] == NUMBER
                    }
                    yield Batch(start, rows, numbers, {name: columns[name] for name in wanted if wanted[name] == TEXT})
                    start += rows
        except (pa.ArrowInvalid, UnicodeError) as error:
            self._find(wanted)
            raise InputError(f"Expected to read {self.name}, got: {_first_line(error)}.") from None

    def _blocks(self) -> Generator[tuple[int, memoryview], None, None]:
        """Yield the file in UTF-8, cut at ends of lines that are not within quotation marks, with a running number."""
        size = max(self.path.stat().st_size, 1)
        with open(self.path, "rb", buffering=0) as file, contextlib.closing(self._pieces(file)) as pieces:
            number, block = 0, next(pieces)
            while block:
                cut = _last_line_end(block)
                if len(block) - cut > LONGEST_LINE:  # a quotation mark that means inches, or one that is not closed
                    cut = block.rfind(b"\n") + 1
                if len(block) - cut > LONGEST_LINE:
                    raise InputError(
                        f"Expected lines of text in {self.name}, got {len(block) - cut} bytes without the end of one."
                    )
                if cut:
                    yield number, memoryview(block)[:cut]
                    number += 1
                self.fraction = min(file.tell() / size, 1.0)
                rest, block = len(block) - cut, pieces.send(cut)
                if len(block) == rest > 0:  # nothing came any more
                    yield number, memoryview(block + b"\n")
                    return

    def _pieces(self, file: Any) -> Generator[bytes, int, None]:
        """Yield some megabytes of the file as UTF-8; it is told how many of them were used, and goes on from there."""
        if self.encoding == "utf-8-sig" and not self.path.name.lower().endswith(".gz"):
            at = 3 if file.read(3) == codecs.BOM_UTF8 else 0
            unused = 0
            while True:
                file.seek(at)
                block = file.read(BLOCK_BYTES + unused)
                used = yield block
                at, unused = at + used, len(block) - used
        with self._decoded(file) as read:
            rest = b""
            while True:
                block = rest + read()
                used = yield block
                rest = block[used:]

    @contextlib.contextmanager
    def _decoded(self, file: Any) -> Iterator[Callable[[], bytes]]:
        """Give a function that reads on in a file that is zipped, or in another encoding than UTF-8."""
        zipped = self.path.name.lower().endswith(".gz")
        with (
            gzip.open(file) if zipped else io.BufferedReader(file) as raw,
            io.TextIOWrapper(raw, self.encoding, newline="") as text,
        ):
            yield lambda: text.read(BLOCK_BYTES).encode("utf-8", "surrogatepass")

    def _parse(self, numbered: tuple[int, memoryview], wanted: dict[str, Kind]) -> tuple[int, dict[str, Any]]:
        """Return the rows of a block; numbers as text if Arrow does not understand them, but perhaps Python does."""
        import pyarrow as pa

        number, block = numbered
        try:
            return self._parse_as(wanted, block, number == 0)
        except pa.ArrowInvalid as error:
            if "conversion error to double" not in str(error):
                raise
            return self._parse_as(dict.fromkeys(wanted, TEXT), block, number == 0)

    def _parse_as(self, kinds: dict[str, Kind], block: memoryview, first: bool) -> tuple[int, dict[str, Any]]:
        """Return the number of rows of a block and its columns. Of text, only distinct values are decoded."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        options = arrow_csv.ReadOptions(
            use_threads=False,
            block_size=len(block) + 1,
            column_names=list(self.columns),
            skip_rows_after_names=int(first),  # the header
        )
        conversion = arrow_csv.ConvertOptions(
            include_columns=list(kinds),
            column_types={name: pa.float64() if kind == NUMBER else pa.binary() for name, kind in kinds.items()},
            null_values=WORDS_AND_BLANKS,
            strings_can_be_null=False,
        )
        parsing = arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=_holds(block, b'"'))
        try:
            table = arrow_csv.read_csv(pa.BufferReader(block), options, parsing, conversion)
        except pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error):
                raise
            table = pa.table(
                {name: pa.nulls(0, pa.float64() if kinds[name] == NUMBER else pa.binary()) for name in kinds}
            )
        columns = {name: _in_one_piece(table.column(name)) for name in kinds}
        zeros = _holds(block, b"\0")
        return table.num_rows, {
            name: self._text(name, column, zeros) if kinds[name] == TEXT else column.to_numpy(zero_copy_only=False)
            for name, column in columns.items()
        }

    def _text(self, name: str, column: Any, zeros: bool) -> Text:
        """Return a text column, by the words that were seen before if they are all there is.

        zeros: whether there are zero bytes somewhere, which no known word has.
        """
        seen = None if zeros else self._vocabularies[name]
        codes = None if seen is None else seen.codes(column)
        if seen is not None and codes is not None:
            return _stripped(codes, seen.texts)
        coded = column.dictionary_encode()
        if seen is not None:
            self._vocabularies[name] = seen.extended(coded.dictionary)
        return _stripped(coded.indices.to_numpy(zero_copy_only=False), _words(coded.dictionary))

    def _find(self, wanted: dict[str, Kind]) -> None:
        """Look for what Arrow could not read, row by row, and raise `InputError`."""
        row = 0
        with self._lines("surrogateescape") as lines:
            reader = csv.reader(lines, delimiter=self.delimiter)
            try:
                next(reader)
                for cells in filter(None, reader):
                    self._check_cells(cells, row, wanted)
                    row += 1
            except csv.Error as error:
                raise InputError(
                    f"Expected CSV in {self.name}, got after row {row}: {error}. Is a quotation mark not closed?"
                ) from None
            except UnicodeError as error:
                raise InputError(f"Expected {self._codec} text in {self.name} after row {row}: {error}.") from None

    def _check_cells(self, cells: list[str], row: int, wanted: dict[str, Kind]) -> None:
        if len(cells) != len(self.columns):
            raise InputError(
                f"Expected {len(self.columns)} values in row {row + 1} of {self.name}, as the header has, "
                f"got {len(cells)}: is a delimiter ({self.delimiter!r}) missing, or one within a value not quoted?"
            )
        for column, cell in zip(self.columns, cells, strict=True):
            if column in wanted and any("\udc80" <= letter <= "\udcff" for letter in cell):
                shown = repr(cell.encode("utf-8", "surrogateescape"))[1:]
                raise InputError(
                    f"Expected {self._codec} text in {place(self.name, row, column)}, got {shown}. {self._remedy}"
                )


def _holds(block: memoryview, letter: bytes) -> bool:
    whole = block.obj
    assert isinstance(whole, bytes)
    return whole.find(letter, 0, len(block)) >= 0


def _in_one_piece(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which copies


def _last_line_end(block: bytes) -> int:
    """Return where the last line ends that does not end within quotation marks; 0 if there is none."""
    cut = block.rfind(b"\n") + 1
    quotes = block.count(b'"', 0, cut) if b'"' in block else 0  # to look for one is much faster than to count
    while cut and quotes % 2:
        before = block.rfind(b"\n", 0, cut - 1) + 1
        quotes -= block.count(b'"', before, cut)
        cut = before
    return cut


def _in_order(work: Callable[[Any], Any], items: Iterable[Any]) -> Generator[Any, None, None]:
    """Yield `work(item)` for all items in their order, done by as many threads as there are cores, a few ahead."""
    workers = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)
    waiting: deque[Future[Any]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # which may happen anywhere, in any thread, if nobody closes this: so it must not wait
        pool.shutdown(wait=False, cancel_futures=True)
