"""Text files at a site: every line by itself, so that no line decides what another one means, or whether it is read.

    bytes that are no text          become a sign for that
    an open quotation mark          the line is skipped: no value goes on in the next line
    a line beyond `LONGEST`         is skipped, whatever is in it
    a byte order mark               is dropped where a line begins

Nothing is refused for what a line holds. Encodings in which a line may change how others are read are refused.
"""

from __future__ import annotations

import codecs
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fedvi.errors import InputError
from fedvi.tables.reading.text_files import BLOCK_BYTES, MARK, opened, whole_line

LONGEST = 1 << 19
"""Letters of a line, at most."""

LINE_BY_LINE = frozenset(
    """ascii utf-8 utf-16-le utf-16-be utf-32-le utf-32-be
    gb18030 gbk gb2312 big5 big5hkscs cp932 cp949 cp950 shift_jis euc_jp euc_kr""".split()
)
"""Encodings of several bytes per letter in which each line stands for itself."""


def check_line_by_line(encoding: str) -> None:
    """Raise `InputError` for an encoding in which a line may change how others are read."""
    name = codecs.lookup(encoding).name
    if name in LINE_BY_LINE:
        return
    try:
        module = importlib.import_module(f"encodings.{name.replace('-', '_')}")
    except ImportError:
        module = None
    if not hasattr(module, "decoding_table"):  # one byte per letter
        raise InputError(
            f"Expected an encoding in which every line stands for itself, such as utf-8 or cp1252, "
            f"got {encoding!r}: at a site no row may change how others are read. Convert the table."
        )


def lines_of(
    path: Path, encoding: str, first: int, delimiter: str, skipped: Callable[[int], None]
) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of whole lines as UTF-8, from line number `first` on, and how many bytes of the file are read.

    skipped: told how many lines were left out of each block.
    """
    decoder, whole = codecs.getincrementaldecoder(encoding)("replace"), whole_line(delimiter)
    rest, read, block = "", 0, b" "
    with opened(path) as file:
        while block:
            block = file.read(BLOCK_BYTES)
            read += len(block)
            text = rest + decoder.decode(block, not block)
            held = "\r" if block and text.endswith("\r") else ""  # a line feed may come
            lines = _lines(text.removesuffix(held))
            rest = lines.pop()[: LONGEST + 1] + held if block else ""  # a longer line is skipped in any case
            lines, first = lines[first:], max(first - len(lines), 0)
            kept = [line for line in lines if len(line) <= LONGEST and ('"' not in line or whole.fullmatch(line))]
            skipped(len(lines) - len(kept))
            if any(kept):
                yield "\n".join([*kept, ""]).encode("utf-8", "replace"), read


def _lines(text: str) -> list[str]:
    """Return lines, however they end, without marks where they begin."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    return [line.lstrip(MARK) for line in lines] if MARK in text else lines
