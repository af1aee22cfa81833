"""Workbooks: Excel's old and new files, and OpenDocument. A sheet is read as a whole.

Needs python-calamine: `pip install '.[excel]'`.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from fedvi.errors import InputError
from fedvi.tables.reading.arrow_tables import chunks_of, table_of
from fedvi.tables.reading.messages import first_line
from fedvi.tables.reading.source import Chunk, Dialect, Kind, TableSource
from fedvi.tables.reading.text_files import FEWEST_COLUMNS, MOST_TITLES, is_note
from fedvi.tables.reading.words import plain


class ExcelReader(TableSource):
    """A sheet of a workbook: the one that is named, or the only one that is not empty."""

    def __init__(self, path: Path, name: str, dialect: Dialect):
        sheets = _sheets_of(path, name)
        chosen = dialect.sheet or next(iter(sheets), "")
        if chosen not in sheets or (len(sheets) > 1 and not dialect.sheet):
            there = ", ".join(map(repr, sheets)) or "no sheet with anything in it"
            raise InputError(f"Expected the sheet of {name} to read, one of {there}. Name it by --sheet.")
        self._rows, self._header = sheets[chosen], 0
        super().__init__(name, self._names(_likeliest_header(self._rows)), dialect.with_given(sheet=chosen))

    def _names(self, header: int) -> list[str]:
        self._header = header
        return [_word(value) for value in self._rows[header]]

    def find_header(self, names: list[str]) -> None:
        """Take the first row that has all these names."""
        for number, row in enumerate(self._rows[:MOST_TITLES]):
            if set(names) <= {_word(value).strip() for value in row}:
                self._set_columns(self._names(number))
                return

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        rows = self._rows[self._header + 1 :]
        while rows and len(self.columns) >= FEWEST_COLUMNS and is_note(rows[-1]):
            rows = rows[:-1]
        if not rows:
            return
        columns = dict(zip(self.columns, zip(*rows, strict=True), strict=True))
        table = table_of({self.given[name]: _values(columns[name]) for name in wanted})
        yield from chunks_of(table.to_batches(), wanted, self)


def _sheets_of(path: Path, name: str) -> dict[str, list[list[Any]]]:
    """Return the rows of all sheets that have some, by name."""
    try:
        import python_calamine
    except ImportError:
        raise InputError(
            f"Reading {name} needs python-calamine. Install it with: pip install '.[excel]' in a checkout of fedvi. Or "
            "save the sheet as CSV."
        ) from None
    try:
        book = python_calamine.load_workbook(str(path))
        sheets = {sheet: book.get_sheet_by_name(sheet).to_python(skip_empty_area=False) for sheet in book.sheet_names}
    except (python_calamine.CalamineError, OSError) as error:
        raise InputError(f"Expected a workbook, got {name}: {first_line(error)}.") from None
    return {sheet: rows for sheet, rows in sheets.items() if rows}


def _likeliest_header(rows: Sequence[Sequence[Any]]) -> int:
    """Return the first row that has values in at least half of the columns."""
    for number, row in enumerate(rows[:MOST_TITLES]):
        if 2 * sum(value != "" for value in row) >= len(row):
            return number
    return 0


def _values(cells: Sequence[Any]) -> list[Any]:
    """Return the cells of a column in one type: as numbers or truth values if all are, else as text."""
    found = [None if cell == "" else cell for cell in cells]
    kinds = {type(cell) for cell in found if cell is not None}
    return (
        found if kinds <= {float, int} or kinds == {bool} else [None if cell is None else _word(cell) for cell in found]
    )


def _word(cell: Any) -> str:
    """Return a cell as people read it."""
    if isinstance(cell, datetime.datetime | datetime.date | datetime.time):
        return cell.isoformat()
    return plain(str(cell))
