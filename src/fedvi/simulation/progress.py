"""A progress bar on standard error, for long work in a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextlib.contextmanager
def progress_bar(wanted: bool | None, total: float | None, done: int) -> Iterator[Callable[[int], None]]:
    """Give a function that shows how many communications are done; `wanted=None` shows the bar only on a terminal."""
    console = Console(stderr=True)
    if not (console.is_terminal if wanted is None else wanted):
        yield lambda done: None  # noqa: ARG005
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}" + ("" if total is None else "/{task.total:.0f}") + " communications"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("federation", total=total, completed=done)
        yield lambda done: bar.update(task, completed=done)
