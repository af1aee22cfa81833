"""Files of former versions: led to the newest format in one piece, with a copy kept, or refused by name."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi.errors import FedviError, FileFailed, InputError
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.store.records import FORMAT, MIGRATIONS, SCHEMA
from fedvi.fitting.from_federation import fitted_of
from fedvi.sqlite import Database
from older_files import coordinator_3
from small_federation import description, open_coordinator, release

DESCRIPTION = description(("north", "south", "east"))
KEPT = "coordinator.db.format-3"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coordinator_3(tmp_path_factory.mktemp("older"), DESCRIPTION, 4)


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "coordinator.db"))


def dump(path: Path) -> list[str]:
    """Return all that a file says, in words of SQL."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [str(connection.execute("PRAGMA user_version").fetchone()), *connection.iterdump()]


def beside(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir() if not each.name.endswith(("-wal", "-shm")))


def test_a_coordinators_file_of_format_3_is_read_on_and_exported(made: Path, path: Path) -> None:
    before = dump(path)
    with open_coordinator(made.parent / "new", DESCRIPTION) as new, Coordinator.open(path) as coordinator:
        assert coordinator.verify() < 1e-6
        assert coordinator.version == new.version == 8
        assert [site.sequence for site in coordinator.sites()] == [4, 4, 0]
        assert coordinator.refusals() == new.refusals() != []
        assert coordinator.applied() == new.applied()
        assert coordinator.description.spec.plain == new.description.spec.plain
        assert (coordinator.description.url, coordinator.site("north").key) == ("", None)
        old, fresh = fitted_of(coordinator), fitted_of(new)
        np.testing.assert_array_equal(old.posterior.mean, fresh.posterior.mean)
        np.testing.assert_array_equal(old.posterior.std, fresh.posterior.std)
        assert old.statement == fresh.statement
        assert coordinator.handle("north", release(coordinator.description, 5))
        assert coordinator.site("north").sequence == 5
    assert beside(path) == ["coordinator.db", KEPT]
    assert dump(path.parent / KEPT) == before
    assert stat.S_IMODE((path.parent / KEPT).stat().st_mode) == 0o600


def test_a_file_that_was_led_to_the_newest_format_has_the_columns_of_a_new_one(path: Path, tmp_path: Path) -> None:
    def columns(connection: sqlite3.Connection) -> dict[str, list[Any]]:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        # name, type, not null, primary key; a default is there in the older file alone
        return {
            table: [(row[1], row[2], row[3], row[5]) for row in connection.execute(f"PRAGMA table_info({table})")]
            for table in sorted(tables)
        }

    Coordinator.open(path).close()
    with (
        contextlib.closing(sqlite3.connect(path)) as old,
        contextlib.closing(sqlite3.connect(tmp_path / "new.db")) as new,
    ):
        new.executescript(SCHEMA)
        assert columns(old) == columns(new)
        assert old.execute("PRAGMA user_version").fetchone() == (FORMAT,)


@pytest.mark.parametrize("number", [0, 1, 2, FORMAT + 1, 99])
def test_other_formats_are_refused_by_name_and_left_as_they_are(number: int, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    before = dump(path)
    with pytest.raises(
        InputError, match=rf"a coordinator in format {FORMAT}, got format {number}: .* Use that version"
    ):
        Coordinator.open(path)
    assert dump(path) == before
    assert beside(path) == ["coordinator.db"]


def test_a_file_is_led_on_once_also_if_many_open_it_at_once(path: Path) -> None:
    before, gate, found = dump(path), threading.Barrier(8), list[object]()

    def look() -> None:
        gate.wait()
        try:
            with Coordinator.open(path) as coordinator:
                found.append(coordinator.version)
        except FedviError as error:
            found.append(error)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [8] * 8
    assert beside(path) == ["coordinator.db", KEPT]
    assert dump(path.parent / KEPT) == before  # the copy is of the former format, whoever came late


def test_a_copy_that_is_there_already_is_kept_too(path: Path) -> None:
    (path.parent / KEPT).write_bytes(b"an older backup")
    before = dump(path)
    with Coordinator.open(path) as coordinator:
        assert coordinator.version == 8
    assert (path.parent / KEPT).read_bytes() == b"an older backup"
    assert dump(path.parent / f"{KEPT}-2") == before


STATEMENTS = [*MIGRATIONS[3].split(";"), f"PRAGMA user_version = {FORMAT}"]


@pytest.mark.parametrize("failing", [0, 4, len(STATEMENTS) - 1])
def test_what_fails_on_its_way_has_changed_nothing(failing: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, execute = dump(path), Database.execute

    def fails(self: Database, statement: str, *values: Any) -> Any:
        if statement == STATEMENTS[failing]:
            raise FileFailed("database or disk is full")
        return execute(self, statement, *values)

    with monkeypatch.context() as patched:
        patched.setattr(Database, "execute", fails)
        with pytest.raises(FileFailed, match="full"):
            Coordinator.open(path)
    assert dump(path) == before
    assert beside(path) == ["coordinator.db"]  # or else copies would fill a disk on which it is tried again and again
    with Coordinator.open(path) as coordinator:
        assert coordinator.version == 8


def test_without_room_for_a_copy_nothing_is_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dump(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("fedvi.sqlite.put_in_place", full)
        with pytest.raises(FileFailed, match=r"Cannot write .*format-3.*No space left"):
            Coordinator.open(path)
    assert dump(path) == before
    assert beside(path) == ["coordinator.db"]
    Coordinator.open(path).close()
