"""Workbooks: Excel's old and new files, and OpenDocument. A sheet is read as a whole.

Needs python-calamine: `pip install '.[excel]'`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedvi.errors import InputError
from fedvi.tables.reading.cells import word_of
from fedvi.tables.reading.chunk import TEXT, Chunk, Kind
from fedvi.tables.reading.messages import first_line
from fedvi.tables.reading.objects import chunks_of_cells
from fedvi.tables.reading.source import Dialect, TableSource
from fedvi.tables.reading.text_files import FEWEST_COLUMNS, MOST_TITLES, below_rows, is_note


class ExcelReader(TableSource):
    """A sheet of a workbook: the one that is named, or the only one that is not empty.

    A cell means the same whatever others hold. private: all rows are kept, but empty ones.
    """

    if_empty = "; if it holds formulas, open the workbook in a spreadsheet program and save it"

    def __init__(self, path: Path, name: str, dialect: Dialect, private: bool):
        self.path, sheets = path, _sheets_of(path, name, private)
        chosen = dialect.sheet or next(iter(sheets), "")
        if chosen not in sheets or (len(sheets) > 1 and not dialect.sheet):
            there = ", ".join(map(repr, sheets)) or "no sheet with anything in it"
            raise InputError(f"Expected the sheet of {name} to read, one of {there}. Name it by --sheet.")
        self._rows, self._header, notes = sheets[chosen], 0, []
        while not private and len(self._rows) > 1 and len(self._rows[0]) >= FEWEST_COLUMNS and is_note(self._rows[-1]):
            last = self._rows.pop()
            notes += [] if _is_empty(last) else ["".join(map(str, last)).strip()]
        header = 0 if private else _likeliest_header(self._rows)
        super().__init__(name, self._names(header), dialect, private)
        if notes:
            self.said.append(below_rows(reversed(notes)))

    def _names(self, header: int) -> list[str]:
        self._header = header
        return [word_of(value, TEXT) for value in self._rows[header]]

    def find_header(self, names: list[str]) -> None:
        """Take the first row that has all these names."""
        for number, row in enumerate(self._rows[:MOST_TITLES]):
            if set(names) <= {word_of(value, TEXT).strip() for value in row}:
                self._set_columns(self._names(number))
                return

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        rows = [row for row in self._rows[self._header + 1 :] if not _is_empty(row)]
        if rows:
            yield from chunks_of_cells(
                dict(zip(self.given.values(), zip(*rows, strict=True), strict=True)), wanted, self
            )


def _sheets_of(path: Path, name: str, private: bool) -> dict[str, list[list[Any]]]:
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
        sheets = {sheet: list(_rows_of(book.get_sheet_by_name(sheet), private)) for sheet in book.sheet_names}
    except (python_calamine.CalamineError, OSError) as error:
        raise InputError(f"Expected a workbook, got {name}: {first_line(error)}.") from None
    return {sheet: rows for sheet, rows in sheets.items() if not all(map(_is_empty, rows))}


def _rows_of(sheet: Any, private: bool) -> Iterator[list[Any]]:
    """Yield the rows of a sheet. private: one with a cell that cannot be read counts as empty."""
    rows, number = sheet.iter_rows(), 0
    while True:
        try:
            number += 1
            yield next(rows)
        except StopIteration:
            return
        except BaseException as error:  # durations and dates beyond what there is, also as panics
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            if not private:
                said = first_line(error)
                raise InputError(f"Expected cells that can be read in line {number} of a sheet, got: {said}.") from None
            yield [""]


def _is_empty(row: Sequence[Any]) -> bool:
    return all(cell == "" for cell in row)


def _likeliest_header(rows: Sequence[Sequence[Any]]) -> int:
    """Return the first row that has values in at least half of the columns."""
    for number, row in enumerate(rows[:MOST_TITLES]):
        if 2 * sum(value != "" for value in row) >= len(row):
            return number
    return 0
