"""Examples and documents run as people run them, and show what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from documents import ROOT, run_blocks


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert "┏" in ran.stdout
    for picture in re.findall(r"Picture: (\S+)", ran.stdout):
        assert (tmp_path / picture).stat().st_size > 10_000
    if example.stem == "two_sites":
        check_two_sites(ran.stdout)


def check_two_sites(printed: str) -> None:
    """The federation's row of the table equals the pooled one, digit for digit."""
    rows = {row.split("│")[1].strip(): row.split("│")[2:4] for row in printed.splitlines() if row.startswith("│")}
    assert rows["both, by fedvi"] == rows["rows pooled"]
    assert rows["north alone"] != rows["rows pooled"]


@pytest.mark.parametrize("document", ["experiments", "extending", "practice", "privacy", "tables"])
def test_documents_run_and_print_what_they_show(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks(ROOT / "docs" / f"{document}.md", tmp_path, monkeypatch)
