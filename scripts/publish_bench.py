"""Put the results of `python -m benchmarks growth` into docs/speed.md, or check that they are there.

python -m scripts.publish_bench DIR         write docs/bench.json, docs/images and the tables
python -m scripts.publish_bench --check     exit code 1 unless the document shows what docs/bench.json says
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import render
from fedvi.console import markdown
from scripts.documents import DOCS, Tables, publish


def tables(results: dict[str, Any]) -> Tables:
    """Return what docs/speed.md shows."""
    return {DOCS / "speed.md": {name: markdown(rows) for name, rows in render.tables(results).items()}}


def read(directory: Path) -> dict[str, Any]:
    """Return the numbers of a directory of the bench."""
    results: dict[str, Any] = json.loads((directory / "bench.json").read_text())
    return results


if __name__ == "__main__":
    pictures = {name: name for name in ("bench.png", "growth.png")}
    sys.exit(publish(__doc__, DOCS / "bench.json", read, tables, pictures))
