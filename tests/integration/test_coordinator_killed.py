"""A coordinator that is killed while it is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coordinators import DESCRIPTION
from small_federation import answer, open_coordinator, release


@pytest.mark.parametrize("instant", ["put_in_place", "Database.execute"])
def test_a_coordinator_killed_while_it_is_made_leaves_nothing_in_its_place(instant: str, tmp_path: Path) -> None:
    code = (
        "import os; from pathlib import Path; from fedvi import sqlite\n"
        "from small_federation import open_coordinator, description\n"
        f"sqlite.{instant} = lambda *_: os._exit(9)\n"
        f"open_coordinator(Path({str(tmp_path)!r}), description())"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1] / "support").returncode == 9
    assert not (tmp_path / "coordinator.db").exists()
    with open_coordinator(tmp_path, DESCRIPTION) as coordinator:
        assert answer(coordinator.handle("north", release(DESCRIPTION, 1))).applied == 1
