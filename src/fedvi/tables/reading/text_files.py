"""Text files before they are parsed: encoding, what separates values, where the header is, and where the rows end.

    Auswertung 2024;;;          a title: above the header
    name;age;dose               the header: the first line that has the names that are wanted
    ...
    Source: registry;;;         a note: below the rows; it has one value at most, where the header has three or more

Rows are looked at to guess an encoding, to find the header, and to find notes. At a site nothing of that is done: the
header is the first line that is not empty, or the first one with the names that are wanted.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from fedvi.errors import InputError
from fedvi.tables.reading.messages import GIVE_ENCODING

DELIMITERS = ",;\t|"
MOST_TITLES = 100
"""Lines among which the header is looked for."""

FEWEST_COLUMNS = 3
"""A table with fewer columns has no notes below its rows: they could be rows."""

END_BYTES = 1 << 16
"""Bytes at the end of a file in which notes are looked for."""

BLOCK_BYTES = 4 << 20
GZIP = b"\x1f\x8b"

MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
MARKED = ("utf-8", "utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
"""Encodings that a byte order mark tells, in the order in which marks are compared."""

GUESSES = ("cp1252", "cp1250", "cp1251", "mac_roman", "cp850")
"""Encodings of one byte per letter, the likeliest first."""

USUAL = frozenset("äöüßéèêëàâáãåæçñóòôõøíìîïúùûýÿœąćęłńśźżčďěňřšťůžőű" + "абвгдежзийклмнопрстуфхцчшщъыьэюяё")


def is_zipped(path: Path) -> bool:
    """Tell whether a file is packed by gzip."""
    return path.name.lower().endswith(".gz")


def opened(path: Path) -> Any:
    """Open a file to read bytes from, unpacked."""
    return gzip.open(path, "rb") if is_zipped(path) else open(path, "rb")


def starts_with(path: Path, start: bytes) -> bool:
    """Tell whether a file begins with these bytes."""
    with open(path, "rb") as file:
        return file.read(len(start)) == start


def codec_of(encoding: str) -> str:
    """Return Python's name of an encoding."""
    try:
        codec = codecs.lookup(encoding).name
    except LookupError:
        raise InputError(f"Expected a text encoding such as utf-8 or latin-1, got {encoding!r}.") from None
    return {"ascii": "utf-8", "utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(codec, codec)


def marked(path: Path) -> str:
    """Return the encoding that a byte order mark tells, or nothing."""
    with opened(path) as file:
        start = file.read(4)
    return next((codec for codec in MARKED if start.startswith(MARK.encode(codec))), "")


@dataclass(frozen=True)
class Survey:
    """What the bytes of a file tell: whether there are quotes, the likeliest encoding, and a word that shows it.

    is_ascii: whether any encoding would do.
    UTF-8, if all of the file is. UTF-16 has zero bytes. Else the encoding by which letters beyond ASCII stand beside
    letters of the same script.
    """

    quoted: bool
    encoding: str = "utf-8"
    word: str = ""
    is_ascii: bool = False

    @classmethod
    def of(cls, path: Path) -> Survey:
        """Look through a file."""
        decoder, quoted, is_ascii = codecs.getincrementaldecoder("utf-8")(), False, True
        with opened(path) as file:
            while block := file.read(BLOCK_BYTES):
                quoted = quoted or b'"' in block
                if b"\0" in block and block.count(0) >= len(block) / 4:
                    return cls(True, "utf-16-le" if block[1::2].count(0) > block[::2].count(0) else "utf-16-be")
                if block.isascii() and not decoder.getstate()[0]:
                    continue
                is_ascii = False
                try:
                    decoder.decode(block)
                except UnicodeDecodeError:
                    return cls(True, *_of_one_byte(block))
        return cls(quoted, is_ascii=is_ascii)


def _of_one_byte(block: bytes) -> tuple[str, str]:
    """Return the likeliest encoding of one byte per letter, and a word with letters that are not ASCII."""
    strange = b"\n".join(islice((line for line in block.splitlines() if not line.isascii()), 1000))
    codec = max(GUESSES, key=lambda each: _likeliness(strange.decode(each, "replace")))
    words = re.findall(r"[^\W\d_]*[^\W\d_a-zA-Z][^\W\d_]*", strange.decode(codec, "replace"))
    return codec, words[0] if words else ""


def _likeliness(text: str) -> int:
    """Return how many letters beyond ASCII stand beside letters of their own script."""
    pairs = re.findall(r"(?=([^\W\d_])([^\W\d_]))", text)
    usual = [pair for pair in pairs if any(ord(each) > 127 for each in pair)]
    scripts = [tuple("Ѐ" <= each <= "ӿ" for each in pair) for pair in usual]
    known = (all(ord(each) < 128 or each.lower() in USUAL for each in pair) for pair in usual)
    return sum(good and first == second for good, (first, second) in zip(known, scripts, strict=True))


class TextFile:
    """A text file with a header. All lines are those of the file; a line that ends within quotes goes on.

    delimiter, titles, columns: what separates values, how many lines are above the header, and the header.
    """

    def __init__(self, path: Path, name: str, encoding: str, private: bool):
        self.path, self.name, self.encoding, self.private = path, name, codec_of(encoding), private
        self.lines = self._first_lines()
        self.delimiter, self.titles, self.columns = self._likeliest_header(1 if private else 20)

    def _first_lines(self) -> list[str]:
        errors = "replace" if self.private else "surrogateescape"
        with opened(self.path) as raw, io.TextIOWrapper(raw, self.encoding, errors, newline="") as text:
            try:
                lines = [line.removeprefix(MARK) for line in islice(text, MOST_TITLES)]
            except UnicodeError:
                raise self._refused() from None
        if not any(map(str.strip, lines)):
            what = "an empty file" if self.path.stat().st_size == 0 else "no text"
            raise InputError(f"Expected a header in {self.name}, got {what}.")
        if "\0" in "".join(lines[: 1 if self.private else 3]):
            raise InputError(f"Expected a text file, got {self.name}: its first lines hold zero bytes. {GIVE_ENCODING}")
        return lines

    def _refused(self) -> InputError:
        return InputError(f"Expected {self.encoding.upper()} text in the header of {self.name}. {GIVE_ENCODING}")

    def _likeliest_header(self, lines: int) -> tuple[str, int, list[str]]:
        """Return the first line of which at least half as many values are filled as the widest of so many lines has."""
        lines_with_text = (number for number, line in enumerate(self.lines) if line.strip())
        whole = (number for number in lines_with_text if self._split(number, delimiter_of(self.lines[number])))
        first = next(whole, 0)
        near = range(first, min(first + lines, len(self.lines)))
        found = [(number, delimiter_of(self.lines[number])) for number in near]
        widest = max(len(self._split(number, delimiter)) for number, delimiter in found)
        for number, delimiter in found:
            names = self._split(number, delimiter)
            if 2 * sum(bool(name.strip()) for name in names) >= widest:
                return delimiter, number, self._checked(names)
        return found[0][1], first, self._checked(self._split(*found[0]))

    def find(self, names: Collection[str]) -> bool:
        """Take the first line as the header that has all these names, and tell whether there is one."""
        quoted = [name.replace('"', '""') for name in names]
        for number, line in enumerate(self.lines):
            if "\n" not in "".join(quoted) and not all(name in line for name in quoted):
                continue  # most lines are rows
            for delimiter in sorted(DELIMITERS, key=lambda each: -line.count(each)):
                here = self._split(number, delimiter)
                if set(names) <= {name.strip() for name in here}:
                    self.delimiter, self.titles, self.columns = delimiter, number, self._checked(here)
                    return True
        return False

    @property
    def start(self) -> int:
        """Where the rows begin, in bytes, if the header has no quotes."""
        return sum(len(line.encode(self.encoding, "surrogateescape")) for line in self.lines[: self.titles + 1])

    def _split(self, number: int, delimiter: str) -> list[str]:
        lines = self.lines[number:]
        if self.private:  # no value goes on in the next line, which may be a row
            line = lines[0].rstrip("\r\n")
            lines = [line] if whole_line(delimiter).fullmatch(line) else []
        try:
            return next(csv.reader(lines, delimiter=delimiter), [])
        except csv.Error:  # a value beyond what a header has
            return []

    def _checked(self, names: list[str]) -> list[str]:
        try:
            "".join(names).encode()  # what could not be decoded
        except UnicodeError:
            raise self._refused() from None
        return names

    @property
    def header_lines(self) -> int:
        """How many lines the header has: more than one, if a name does."""
        if self.private:
            return 1
        header = csv.reader(self.lines[self.titles :], delimiter=self.delimiter)
        next(header, None)
        return header.line_num

    @property
    def has_rows(self) -> bool:
        """Whether there is anything below the header."""
        below = self.lines[self.titles + self.header_lines :]
        return any(line.strip("\r\n") for line in below) or len(self.lines) == MOST_TITLES

    def notes(self) -> tuple[int, list[str]]:
        """Return the size of the file without the notes below its rows, in bytes, and these notes."""
        size = self.path.stat().st_size
        if is_zipped(self.path) or len(self.columns) < FEWEST_COLUMNS:
            return size, []
        start = max(0, size - END_BYTES)
        start += -start % 4  # units of UTF-32 are the longest
        with open(self.path, "rb") as file:
            file.seek(start)
            tail = file.read().decode(self.encoding, "surrogateescape")
        lines = re.findall(r"[^\n]*\n|[^\n]+", tail)[1 if start else self.titles + 1 :]
        notes: list[str] = []
        while lines and '"' not in lines[-1] and is_note(next(csv.reader([lines[-1]], delimiter=self.delimiter), [])):
            line = lines.pop()
            size -= len(line.encode(self.encoding, "surrogateescape"))
            notes += [line.strip().strip(self.delimiter)] * bool(line.strip())
        return size, [note for note in reversed(notes) if note]


@cache
def whole_line(delimiter: str) -> re.Pattern[str]:
    """Return what a line looks like in which every quotation mark that begins a value ends it too."""
    other = f"[^{re.escape(delimiter)}]"
    value = rf'(?:"(?:[^"]++|"")*+"{other}*+|(?!"){other}*+)'
    return re.compile(rf"{value}(?:{re.escape(delimiter)}{value})*+")


def is_note(values: Sequence[object]) -> bool:
    """Tell whether a line below all rows is no row: it has one value at most, of several words."""
    found = [text for value in values if (text := str(value).strip())]
    return not found or (len(found) == 1 and " " in found[0])


def below_rows(notes: Iterable[str]) -> str:
    """Return what people are told of notes that were left out."""
    return f"Below the rows, left out: {'; '.join(map(repr, notes))}."


def delimiter_of(line: str) -> str:
    """Return what separates values in a line: the first of those that are as frequent."""
    return max(DELIMITERS, key=re.sub(r'"[^"]*"?', "", line).count)
