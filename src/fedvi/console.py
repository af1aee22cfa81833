"""What people see in a terminal: one progress bar, one kind of table, one way to print JSON.

Texts are printed as they are: brackets in a name mean nothing. Rich is imported when something is shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Show = Callable[[int, str], None]
"""Shows how much is done, and a text about it."""

WIDTH = 112
"""Columns of a table that goes into a file."""


def print_json(values: Any, indent: int | None = None) -> None:
    """Print plain values, or a dataclass of them, as JSON on standard output."""
    if dataclasses.is_dataclass(values) and not isinstance(values, type):
        values = dataclasses.asdict(values)
    sys.stdout.write(json.dumps(values, indent=indent) + "\n")


def table(columns: str, rows: Iterable[Sequence[object]], title: str = "", caption: str = "") -> Table:
    """Return a table. columns: their names, with bars between them; a name that begins with > is right-aligned.

    Columns without any name have no head.
    """
    from rich.markup import escape
    from rich.table import Table

    grid = Table(title=escape(title) or None, caption=escape(caption) or None, show_header=bool(columns.strip(">|")))
    for name in columns.split("|"):
        grid.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left")
    for row in rows:
        grid.add_row(*(escape(str(cell)) for cell in row))
    return grid


def markdown(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a table as Markdown. rows: its head, then its lines. left: so many columns are left-aligned."""
    head, *lines = ([_cell(cell) for cell in row] for row in rows)
    rule = ["---" if index < left else "---:" for index in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def stdout() -> Console:
    """Return the console of standard output, with a fixed width unless it is a terminal."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def show(*parts: Table | str) -> None:
    """Print tables and lines on standard output."""
    console = stdout()
    for part in parts:
        line = isinstance(part, str)
        console.print(part, markup=not line, highlight=False, soft_wrap=line)


@contextlib.contextmanager
def progress(
    title: str,
    total: int | None,
    unit: str = "",
    *,
    done: int = 0,
    wanted: bool | None = None,
    otherwise: Show = lambda done, text: None,  # noqa: ARG005
) -> Iterator[Show]:
    """Give a function that shows how much of `total` is done, as a bar on standard error.

    wanted: None for a bar in a terminal only. otherwise: what is called if there is no bar.
    """
    console = _stderr()
    if not (console.is_terminal if wanted is None else wanted):
        yield otherwise
        return
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    counted = "{task.completed:.0f}" + ("" if total is None else "/{task.total:.0f}") + f" {unit}"
    shares = TextColumn(counted) if unit else TextColumn("{task.percentage:.0f} %")
    texts = TextColumn("{task.description}"), TextColumn("{task.fields[text]}", markup=False)
    columns = (texts[0], BarColumn(), shares, TimeElapsedColumn(), TimeRemainingColumn(), texts[1])
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(escape(title), total=total, completed=done, text="")
        yield lambda done, text: bar.update(task, completed=done if total is None else min(done, total), text=text)


@contextlib.contextmanager
def live(*, quiet: bool = False) -> Iterator[tuple[Callable[[Table], None] | None, Callable[[str], None]]]:
    """Give two functions: one shows a table in place of the last one, None outside of a terminal; one says a line."""
    from rich.live import Live

    console = _stderr(quiet)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    if quiet or not console.is_terminal:
        yield None, say
        return
    with Live(console=console, refresh_per_second=2, transient=True) as shown:
        yield shown.update, say


def working(text: str, *, quiet: bool = False) -> contextlib.AbstractContextManager[Any]:
    """Return what shows that something is under way, in a terminal."""
    return _stderr(quiet).status(text)


def _stderr(quiet: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=True, quiet=quiet)
