"""Files as former versions wrote them."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tomllib
from pathlib import Path

import tomli_w

from fedvi.federation.description import Description
from small_federation import open_coordinator, poll, release

COORDINATOR_3 = """
PRAGMA user_version = 3;
CREATE TABLE federation (
    description TEXT NOT NULL, version INTEGER NOT NULL, asked BLOB NOT NULL, begun INTEGER NOT NULL,
    started REAL, stop TEXT NOT NULL
) STRICT;
CREATE TABLE sites (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, sequence INTEGER NOT NULL, factor BLOB NOT NULL, digest TEXT NOT NULL,
    declared TEXT, last_seen REAL, repeated INTEGER NOT NULL, refused INTEGER NOT NULL
) STRICT;
CREATE TABLE applied (
    version INTEGER PRIMARY KEY, site TEXT NOT NULL, sequence INTEGER NOT NULL, time REAL NOT NULL,
    digest TEXT NOT NULL, UNIQUE (site, sequence)
) STRICT;
CREATE TABLE readings (
    number INTEGER PRIMARY KEY, version INTEGER NOT NULL, asked INTEGER NOT NULL, change REAL NOT NULL,
    arrived REAL NOT NULL, enough REAL NOT NULL, time REAL NOT NULL
) STRICT;
CREATE TABLE refusals (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, site TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL
) STRICT;
"""
TABLES = {
    "federation": "description, version, asked, begun, started, stop",
    "sites": "name, state, sequence, factor, digest, declared, last_seen, repeated, refused",
    "applied": "*",
    "readings": "*",
    "refusals": "*",
}


def description_4(text: str) -> str:
    """Return the text of a description as it was in format 4, with a host and a port."""
    files = json.loads(text)
    content = tomllib.loads(files["federation.toml"])
    del content["plan"]
    content |= {"format": 4, "coordinator": {"host": "coordinator.hospital.org", "port": 8102}}
    return json.dumps({**files, "federation.toml": tomli_w.dumps(content)})


def coordinator_3(folder: Path, chosen: Description, answers: int) -> Path:
    """Make the file of a coordinator in format 3, to which all sites but the last have given so many answers."""
    new, path = folder / "new", folder / "coordinator.db"
    new.mkdir()
    with open_coordinator(new, chosen) as coordinator:
        for name in chosen.sites[:-1]:
            coordinator.handle(name, poll(chosen, 0))
        for number in range(1, answers + 1):
            for seed, name in enumerate(chosen.sites[:-1]):
                coordinator.handle(name, release(chosen, number, seed))
        coordinator.handle(chosen.sites[0], b"garbage")
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA journal_mode = WAL")
        old.executescript(COORDINATOR_3)
        old.execute("ATTACH ? AS new", (str(new / "coordinator.db"),))
        for table, columns in TABLES.items():
            old.execute(f"INSERT INTO {table} SELECT {columns} FROM new.{table}")
        ((text,),) = old.execute("SELECT description FROM federation")
        old.execute("UPDATE federation SET description = ?", (description_4(text),))
        old.commit()
    path.chmod(0o600)
    return path
