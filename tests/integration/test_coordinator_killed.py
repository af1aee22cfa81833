"""A coordinator that is killed while its file is made, or led to a newer format."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from coordinators import DESCRIPTION
from fedvi.federation.coordinator import Coordinator
from older_files import coordinator_3
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


INSTANTS = {
    "before the copy": "sqlite.put_in_place = lambda *_: os._exit(9)",
    "after the copy": "place = sqlite.put_in_place\nsqlite.put_in_place = lambda *paths: (place(*paths), os._exit(9))",
    "half-way": "run = sqlite.Database.execute\n"
    "sqlite.Database.execute = lambda *of: os._exit(9) if 'problem' in of[1] else run(*of)",
    "before the end": "run = sqlite.Database.execute\n"
    "sqlite.Database.execute = lambda *of: (run(*of), 'user_version = ' in of[1] and os._exit(9))[0]",
}


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_file_killed_while_it_is_led_to_a_newer_format_is_whole(instant: str, tmp_path: Path) -> None:
    path = coordinator_3(tmp_path, DESCRIPTION, 2)
    code = (
        "import os; from pathlib import Path; from fedvi import sqlite\n"
        "from fedvi.federation.coordinator import Coordinator\n"
        f"{INSTANTS[instant]}\nCoordinator.open(Path({str(path)!r}))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with Coordinator.open(path) as coordinator:
        assert coordinator.version == 4
        assert coordinator.verify() < 1e-6
    assert list(tmp_path.glob("*.unfinished")) == []
    for kept in tmp_path.glob("coordinator.db.format-3*"):
        with contextlib.closing(sqlite3.connect(kept)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (3,)
