"""A site and its coordinator, and what the site has saved."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from small_federation import description

DESCRIPTION = description(("north",), 4)


def saved(folder: Path, name: str = "north") -> dict[str, Any]:
    connection = sqlite3.connect(folder / f"{name}.db")
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute("SELECT * FROM site").fetchone())
    connection.close()
    return row
