"""CSV and TSV files, parsed by Arrow in blocks.

What Arrow cannot read as a number is read as text: Python may understand it, or names row, column and value. What
Arrow cannot parse at all is parsed once more by one thread, which counts rows.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from fedvi.errors import InputError
from fedvi.tables.arrow_tables import chunks_of
from fedvi.tables.read import GIVE_ENCODING, MISSING, NUMBER, TEXT, Chunk, Kind, TableSource, first_line, in_one_line

BLOCK_BYTES = 4 << 20
"""Bytes of a CSV that are parsed at once. No row may be longer."""

DELIMITERS = ",;\t|"
BLANKS = (("", ""), (" ", ""), ("", " "))
WORDS_AND_BLANKS = [before + word + after for word in sorted(MISSING) for before, after in BLANKS]


class CsvReader(TableSource):
    """A text file with a header, which tells what separates values."""

    def __init__(self, path: Path, name: str, encoding: str):
        self.path, self.name = path, name
        self._zipped = path.name.lower().endswith(".gz")
        try:
            codec = codecs.lookup(encoding).name
        except LookupError:
            raise InputError(f"Expected a text encoding such as utf-8 or latin-1, got {encoding!r}.") from None
        self.encoding = "utf-8-sig" if codec in ("utf-8", "ascii") else codec  # a byte order mark is dropped
        self._codec = self.encoding.removesuffix("-sig").upper()
        with in_one_line(name):
            self.delimiter, header = self._header()
        super().__init__(name, [column.strip() for column in header])

    def _header(self) -> tuple[str, list[str]]:
        try:
            with self._lines("surrogateescape") as lines:  # what is wrong further down is found there
                line = next(lines, "")
            line.encode()
        except UnicodeError:
            raise InputError(f"Expected {self._codec} text in the header of {self.name}. {GIVE_ENCODING}") from None
        if not line.strip():
            what = "an empty file" if self.path.stat().st_size == 0 else "an empty first line"
            raise InputError(f"Expected a header in the first line of {self.name}, got {what}.")
        if "\0" in line:
            raise InputError(f"Expected a text file, got {self.name}: its first line holds zero bytes. {GIVE_ENCODING}")
        bare = re.sub(r'"[^"]*"?', "", line)
        delimiter = max(DELIMITERS, key=bare.count)  # the first of those that are as frequent
        with self._lines("surrogateescape") as lines:
            header = next(csv.reader(lines, delimiter=delimiter))
            self._has_rows = next(lines, None) is not None
            return delimiter, header

    @contextlib.contextmanager
    def _lines(self, errors: str = "strict") -> Iterator[Iterator[str]]:
        opened: Any = gzip.open if self._zipped else open
        with opened(self.path, "rb") as raw, io.TextIOWrapper(raw, self.encoding, errors, newline="") as lines:
            yield lines

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        kinds, done = dict(wanted), 0
        while self._has_rows:
            try:
                for chunk in chunks_of(self._blocks(kinds, skip=done), wanted, self.name, done):
                    done = chunk.start + chunk.rows
                    yield chunk
                return
            except pa.ArrowInvalid as error:
                column = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to double", str(error))
                if column is None:
                    raise self._explained(error, done) from None
                kinds[self.columns[int(column[1])]] = TEXT
            except UnicodeError as error:
                raise InputError(
                    f"Expected {self._codec} text in {self.name} after row {done}: {error}. {GIVE_ENCODING}"
                ) from None

    def _blocks(self, kinds: dict[str, Kind], skip: int = 0, threads: bool = True) -> Iterator[pa.RecordBatch]:
        """Yield record batches without the first `skip` rows. Of text, only distinct values are kept, as bytes."""
        types = {NUMBER: pa.float64(), TEXT: pa.dictionary(pa.int32(), pa.binary())}
        reading = arrow_csv.ReadOptions(
            use_threads=threads,
            block_size=BLOCK_BYTES,
            column_names=list(self.columns),
            skip_rows_after_names=1,  # the header
            encoding="utf8" if self.encoding == "utf-8-sig" else self.encoding,
        )
        parsing = arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        conversion = arrow_csv.ConvertOptions(
            include_columns=list(kinds),
            column_types={name: types[kind] for name, kind in kinds.items()},
            null_values=WORDS_AND_BLANKS,
            strings_can_be_null=False,
        )
        size = max(self.path.stat().st_size, 1)
        with pa.OSFile(str(self.path)) as file:
            text = pa.CompressedInputStream(file, "gzip") if self._zipped else file
            with arrow_csv.open_csv(text, reading, parsing, conversion) as batches:
                for batch in batches:
                    self.fraction = min(file.tell() / size, 1.0)
                    if batch.num_rows > skip:
                        yield batch.slice(skip)
                    skip = max(skip - batch.num_rows, 0)

    def _explained(self, error: Exception, done: int) -> InputError:
        """Return what is wrong, and in which row."""
        try:
            for _ in self._blocks({self.columns[0]: TEXT}, threads=False):
                pass
        except pa.ArrowInvalid as again:
            error = again
        if "straddl" in str(error):
            return InputError(
                f"Expected rows of at most {BLOCK_BYTES} bytes in {self.name}, got a longer one after row {done}. "
                "Is a quotation mark not closed?"
            )
        found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if found is None:
            return InputError(f"Expected to read {self.name}, got: {first_line(error)}.")
        row, expected, got = (int(number) for number in found.groups())
        return InputError(
            f"Expected {expected} values in row {row - 1} of {self.name}, as the header has, got {got}: "
            f"is a delimiter ({self.delimiter!r}) missing, or one within a value not quoted?"
        )
