"""The reader of CSV and TSV files.

They are cut into blocks that threads parse: plain ones by compiled code, the others by Arrow. If that fails, a slower
second look finds row, column and value.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fedvi.errors import InputError
from fedvi.tables.arrays import numbers_of, stripped, words_of
from fedvi.tables.plain_rows import read_plain_rows
from fedvi.tables.reader import MISSING, NUMBER, TEXT, Chunk, Kind, Reader, Text, first_line, in_one_line, place

BLOCK_BYTES = 4 << 20
"""Bytes of a CSV that are parsed at once."""

LONGEST_LINE = 16 << 20
"""Bytes after which the end of a line within quotation marks is not waited for any more."""

DELIMITERS = ",;\t|"
BLANKS = (("", ""), (" ", ""), ("", " "))
WORDS_AND_BLANKS = [before + word + after for word in sorted(MISSING) for before, after in BLANKS]


class CsvReader(Reader):
    """A text file with a header; what separates its values is found there."""

    reads_ahead = True

    def __init__(self, path: Path, name: str, encoding: str):
        self.path, self.name = path, name
        try:
            codec = codecs.lookup(encoding).name
        except LookupError:
            raise InputError(f"Expected a text encoding such as utf-8 or latin-1, got {encoding!r}.") from None
        self.encoding = "utf-8-sig" if codec in ("utf-8", "ascii") else codec  # a byte order mark is dropped
        with in_one_line(name):
            self.delimiter, header = self._header()
        self.columns = tuple(column.strip() for column in header)
        self._header_is_one_line = not any(end in column for column in header for end in "\r\n")
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

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
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
                    yield Chunk(start, rows, numbers, {name: columns[name] for name in wanted if wanted[name] == TEXT})
                    start += rows
        except (pa.ArrowInvalid, UnicodeError) as error:
            self._find(wanted)
            raise InputError(f"Expected to read {self.name}, got: {first_line(error)}.") from None

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
        below = block if number > 0 else self._below_header(block)
        plain = read_plain_rows(below, self.delimiter, self.columns, wanted)
        if plain is not None:
            return plain
        try:
            return self._parse_as(wanted, block, number == 0)
        except pa.ArrowInvalid as error:
            if "conversion error to double" not in str(error):
                raise
            return self._parse_as(dict.fromkeys(wanted, TEXT), block, number == 0)

    def _below_header(self, block: memoryview) -> memoryview:
        """Return what stands below the header in the first block; nothing if that is not plain to see."""
        whole = block.obj
        assert isinstance(whole, bytes)
        end = whole.find(b"\n", 0, len(block)) + 1
        line = whole[:end].removesuffix(b"\n").removesuffix(b"\r")
        return block[end:] if self._header_is_one_line and b"\r" not in line else block[:0]

    def _parse_as(self, kinds: dict[str, Kind], block: memoryview, first: bool) -> tuple[int, dict[str, Any]]:
        """Return the number of rows of a block and its columns. Of text, only distinct values are decoded."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if not first and bytes(block[:3]) == codecs.BOM_UTF8:  # which Arrow would drop
            block = memoryview(b"\n" + block)
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
        return table.num_rows, {
            name: _text(column) if kinds[name] == TEXT else column.to_numpy(zero_copy_only=False)
            for name, column in columns.items()
        }

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


def _text(column: Any) -> Text:
    coded = column.dictionary_encode()
    return stripped(coded.indices.to_numpy(zero_copy_only=False), words_of(coded.dictionary))


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
