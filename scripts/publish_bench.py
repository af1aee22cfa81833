"""Put the results of `python -m benchmarks growth` into docs/speed.md, or check that they are there.

python -m scripts.publish_bench DIR         write docs/bench.json, docs/images and the tables
python -m scripts.publish_bench --check     exit code 1 unless the document shows what docs/bench.json says
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.render import Rows, growth_rows, other_rows, step_rows
from fedvi.console import markdown
from scripts.documents import DOCS, Tables, publish


def machine_rows(results: dict[str, Any]) -> Rows:
    """Return what was measured on."""
    machine = results["machine"]
    libraries = f"Python {machine['python']}, NumPy {machine['numpy']} with {machine['blas']}, JAX {machine['jax']}"
    return [
        ["", ""],
        ["processor", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']}, {machine['os']}"],
        ["libraries", libraries],
        ["measured", f"{results['settings']['rounds']} rounds of {len(results['steps'])} contenders, one thread"],
    ]


def tables(results: dict[str, Any]) -> Tables:
    """Return what docs/speed.md shows."""
    made = {"machine": machine_rows, "steps": step_rows, "others": other_rows, "growth": growth_rows}
    return {DOCS / "speed.md": {name: markdown(rows(results)) for name, rows in made.items()}}


def read(directory: Path) -> dict[str, Any]:
    """Return the numbers of a directory of the bench."""
    results: dict[str, Any] = json.loads((directory / "bench.json").read_text())
    return results


if __name__ == "__main__":
    pictures = {name: name for name in ("bench.png", "growth.png")}
    sys.exit(publish(__doc__, DOCS / "bench.json", read, tables, pictures))
