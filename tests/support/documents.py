"""Documents whose code runs."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_blocks(document: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all Python blocks; where a text block follows, it shows what is printed."""
    monkeypatch.chdir(folder)  # what they write is not left in the project
    (folder / "examples").symlink_to(ROOT / "examples")
    names: dict[str, object] = {}
    found = re.findall(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", document.read_text(), re.DOTALL)
    assert found
    for code, shown in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(document), "exec"), names)
        if shown:
            assert printed.getvalue() == shown
