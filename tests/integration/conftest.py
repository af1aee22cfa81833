"""Commands in the tests' own process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedvi.cli.main import main


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in an empty directory; return its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedvi", *arguments])
        code = 0
        try:
            main()
        except SystemExit as left:
            code = int(left.code or 0)
        return code, *capsys.readouterr()

    return command
