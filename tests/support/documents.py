"""Documents whose code and commands run."""

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


def shell_blocks(document: Path, name: str) -> list[tuple[str, str]]:
    """Return the commands between the lines `<!-- NAME -->` and `<!-- end of NAME -->`, and what is shown after them.

    That is the text block that follows commands before others do; empty if there is none.
    """
    _, part, _ = re.split(rf"<!-- (?:end of )?{name} -->\n", document.read_text())
    found = re.findall(r"```(bash|text)\n(.*?)```", part, re.DOTALL)
    after = [*found[1:], ("", "")]
    blocks = [
        (text, next_text if kind == "text" else "")
        for (own, text), (kind, next_text) in zip(found, after, strict=True)
        if own == "bash"
    ]
    assert blocks
    return blocks
