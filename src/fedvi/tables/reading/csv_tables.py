"""Text files of comma- or otherwise separated values, parsed by Arrow in blocks.

A column of which Arrow does not understand a value as a number is text from there on: `fedvi.tables.reading.words` may
know better. What Arrow cannot parse at all is parsed once more by one thread, which counts rows.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from fedvi.errors import InputError
from fedvi.tables.reading.arrow_tables import chunks_of
from fedvi.tables.reading.chunk import AS_IT_IS, NUMBER, TEXT, Chunk, Kind
from fedvi.tables.reading.messages import GIVE_ENCODING, first_line, in_one_line
from fedvi.tables.reading.site_files import check_line_by_line, lines_of
from fedvi.tables.reading.source import Dialect, TableSource
from fedvi.tables.reading.text_files import (
    BLOCK_BYTES,
    GZIP,
    MARK,
    Survey,
    TextFile,
    below_rows,
    codec_of,
    is_zipped,
    marked,
    starts_with,
)
from fedvi.tables.reading.words import MISSING, POINT

BLANKS = (("", ""), (" ", ""), ("", " "))
AT_ONCE = 4
"""Blocks that are parsed together, where a file can be cut at any line."""

WORDS_AND_BLANKS = [before + word + after for word in sorted(MISSING) for before, after in BLANKS]


class CsvReader(TableSource):
    """A text file with a header, which tells what separates values. No row may be longer than `BLOCK_BYTES`.

    private: every line stands for itself (`fedvi.tables.reading.site_files`).
    """

    def __init__(self, path: Path, name: str, dialect: Dialect, private: bool, sure: bool):
        self.path, self.name = path, name
        guess, word, said = "", "", []
        with in_one_line(name):
            mark, seen = marked(path), Survey(True) if private else Survey.of(path)
            if not is_zipped(path) and starts_with(path, GZIP):
                raise InputError(f"Expected a text file, got {name}, which is packed by gzip: name it {path.name}.gz.")
            encoding = mark or dialect.encoding or seen.encoding
            bytes_say_utf8 = not (private or sure or mark or seen.is_ascii) and seen.encoding == "utf-8"
            if bytes_say_utf8 and dialect.encoding and codec_of(dialect.encoding) != "utf-8":
                encoding = "utf-8"  # other encodings hardly ever look like that
                said.append(f"{name} is UTF-8, not {dialect.encoding} as the schema says.")
            if private:
                check_line_by_line(codec_of(encoding))
            if not (mark or dialect.encoding or private):
                guess, word = seen.encoding, seen.word
            self.file = TextFile(path, name, encoding, private)
            self._simple = not (seen.quoted or mark or is_zipped(path)) and self.file.encoding == "utf-8"
            self.size, notes = (path.stat().st_size, []) if private else self.file.notes()
        written = replace(dialect, encoding="" if mark else self.file.encoding)
        super().__init__(name, self.file.columns, written, private)
        self.said += said
        if guess not in ("", "utf-8"):
            shown = f" (if {word!r} is spelled right)" if word else ""
            self.said.append(f"The text is read as {guess}{shown}. If that is wrong, give --encoding.")
        if notes:
            self.said.append(below_rows(notes))

    def _set_columns(self, columns: Iterable[object]) -> None:
        super()._set_columns(columns)
        self.given = {name: name for name in self.columns}  # as it is told to Arrow
        self.delimiter = self.file.delimiter

    def find_header(self, names: list[str]) -> None:
        """Take the first line that has all these names."""
        if self.file.find(names):
            self._set_columns(self.file.columns)

    @property
    def hint(self) -> str:
        """Another encoding, if there are letters that depend on it."""
        seen = "".join(self.file.lines[:20])
        return "" if seen.isascii() else f" It is read as {self.file.encoding}; if that is wrong, give --encoding."

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        kinds, done = dict(wanted), 0
        while self.file.has_rows:
            try:
                for chunk in chunks_of(self._blocks(kinds, skip=done), wanted, self, done):
                    done = chunk.start + chunk.rows
                    yield chunk
                return
            except pa.ArrowInvalid as error:
                column = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to double", str(error))
                if column is None:
                    raise self._explained(error, done) from None
                kinds[self.columns[int(column[1])]] = TEXT
            except UnicodeError as error:
                where = f"{self.file.encoding.upper()} text in {self.name} after row {done}"
                raise InputError(f"Expected {where}: {error}. {GIVE_ENCODING}") from None

    def _blocks(self, kinds: dict[str, Kind], skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield record batches without the first `skip` rows. Of text, only distinct values are kept, as bytes."""
        read = self._lines if self.private else self._parts if self._simple else self._stream
        for batch in read(kinds):
            if batch.num_rows > skip:
                yield batch.slice(skip)
            skip = max(skip - batch.num_rows, 0)

    def _lines(self, kinds: dict[str, Kind]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a file in which every line stands for itself."""
        self.skipped, first = 0, self.file.titles + self.file.header_lines
        size = max(self.path.stat().st_size, 1)
        for block, read in lines_of(self.path, self.file.encoding, first, self.file.delimiter, self._skip_lines):
            table = arrow_csv.read_csv(pa.BufferReader(block), *self._options(kinds, quotes=False))
            self.fraction = min(read / size, 1.0)
            yield from table.to_batches()

    def _skip_lines(self, number: int) -> None:
        self.skipped += number

    def _parts(self, kinds: dict[str, Kind]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a file without quotes, which can be cut at any line: parts are parsed by all cores."""
        with open(self.path, "rb") as file:
            file.seek(self.file.start)
            place, part, blocks = self.file.start, b"", 1
            while place < self.size:
                part += file.read(min(blocks * BLOCK_BYTES, self.size - place))
                place, blocks = file.tell(), AT_ONCE  # after a small one, for who only wants to look
                end = len(part) if place == self.size else part.rfind(b"\n") + 1
                if end:
                    lines = pa.BufferReader(memoryview(part)[:end])
                    table = arrow_csv.read_csv(lines, *self._options(kinds, quotes=False))
                    self.fraction, part = place / self.size, part[end:]
                    yield from table.to_batches()

    def _stream(self, kinds: dict[str, Kind], threads: bool = True) -> Iterator[pa.RecordBatch]:
        """Yield the batches of any file, one after the other."""
        reading, *others = self._options(kinds, quotes=True)
        reading.skip_rows, reading.skip_rows_after_names = self.file.titles, 1  # the header
        reading.use_threads = threads
        with self._opened() as (file, text), arrow_csv.open_csv(text, reading, *others) as batches:
            for batch in batches:
                self.fraction = min(file.tell() / max(self.size, 1), 1.0)
                yield batch

    def _options(self, kinds: dict[str, Kind], quotes: bool) -> tuple[Any, Any, Any]:
        """Return how to read, to parse and to convert."""
        texts = pa.dictionary(pa.int32(), pa.binary())
        types = {NUMBER: pa.float64(), TEXT: texts, AS_IT_IS: texts}
        return (
            arrow_csv.ReadOptions(block_size=BLOCK_BYTES, column_names=list(self.columns)),
            arrow_csv.ParseOptions(
                delimiter=self.file.delimiter,
                newlines_in_values=quotes,
                invalid_row_handler=self._skip if self.private else None,
            ),
            arrow_csv.ConvertOptions(
                include_columns=list(kinds),
                column_types={name: types[kind] for name, kind in kinds.items()},
                null_values=WORDS_AND_BLANKS,
                strings_can_be_null=False,
                decimal_point=self.dialect.decimal or POINT,
            ),
        )

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """Give the file, without the notes below its rows, and what Arrow reads from it: UTF-8."""
        cut = self.size < self.path.stat().st_size
        with pa.memory_map(str(self.path)) if cut else pa.OSFile(str(self.path)) as whole:
            file = pa.BufferReader(whole.read_buffer(self.size)) if cut else whole
            text = pa.CompressedInputStream(file, "gzip") if is_zipped(self.path) else file
            yield file, text if self.file.encoding == "utf-8" else pa.TransformInputStream(text, self._transcoder())

    def _transcoder(self) -> Callable[[Any], bytes]:
        """Return what makes UTF-8 of the file's bytes, block by block."""
        decoder = codecs.getincrementaldecoder(self.file.encoding)()

        def transcode(block: Any) -> bytes:
            text: str = decoder.decode(bytes(block))
            return text.removeprefix(MARK).encode()

        return transcode

    def _skip(self, row: Any) -> str:
        """Skip a line with a value too many or too few; called by Arrow, in any thread."""
        self._skip_lines(1)
        return "skip"

    def _explained(self, error: Exception, done: int) -> InputError:
        """Return what is wrong, and in which row."""
        try:
            for _ in self._stream({self.columns[0]: TEXT}, threads=False):
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
        why = f"is a delimiter ({self.file.delimiter!r}) missing, or one within a value not quoted?"
        if row == self.file.titles + 2 and got == expected + 1:
            why = (
                "do rows begin with a name that the header leaves out (in R, use write.csv, or col.names = NA), end "
                "with a delimiter, or hold decimal commas in a file whose values have commas between them?"
            )
        return InputError(
            f"Expected {expected} values in row {row - 1 - self.file.titles} of {self.name}, as the header has, got "
            f"{got}: {why}"
        )
