"""A coordinator of three sites, and all that its file says."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from small_federation import description

DESCRIPTION = description(("north", "south", "east"), updates=6)


def content(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return all that the file says, apart from its accounts of refusals."""
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        tables = {
            name: [dict(row) for row in connection.execute(f"SELECT * FROM {name} ORDER BY rowid")]
            for name in ("federation", "sites", "applied", "readings")
        }
    connection.close()
    for row in tables["sites"]:
        del row["refused"]
    return tables
