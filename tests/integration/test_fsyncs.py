"""An update waits for the disk three times: when it is paid, when it is made, when it is applied; and in this order."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import syncing

UPDATES = 30
CALL = re.compile(r"^\d+ +(?P<call>\w+)\(\d+<(?P<path>[^>]*)>")
SYNCS = ("fsync", "fdatasync")
FILES = {"north.ledger": "ledger", ".witness": "witness", "north.db": "site", "coordinator.db": "coordinator"}


@dataclasses.dataclass(frozen=True)
class Call:
    """A write or a sync of a file of ours, by the name that tests have for it."""

    sync: bool
    file: str


def named(path: Path, folder: Path) -> str:
    """Return `ledger`, `witness`, `site`, `coordinator` and their logs, whose names end in -wal; others as they are."""
    name = re.sub(r"^[0-9a-f]{32}", "", path.name)
    known = FILES.get(name.removesuffix("-wal"))
    return str(path.relative_to(folder)) if known is None else known + ("-wal" if name.endswith("-wal") else "")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """What a site and its coordinator wrote and synced, in its order."""
    if shutil.which("strace") is None:
        pytest.skip("strace counts system calls, and it is not installed")
    folder = tmp_path_factory.mktemp("traced")
    if subprocess.run(["strace", "-o", folder / "try", "true"], capture_output=True).returncode != 0:
        pytest.skip("this system does not let a process be traced")
    trace, own = folder / "trace", folder / "own"
    own.mkdir()
    command = [sys.executable, syncing.__file__, str(own), str(UPDATES)]
    what = ["strace", "-f", "-y", "-s", "0", "-o", str(trace), "-e", "trace=fsync,fdatasync,write,pwrite64"]
    environment = {**os.environ, "FEDVI_STATE_DIR": str(own / "state")}
    ran = subprocess.run([*what, *command], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    found = [each for each in map(CALL.match, trace.read_text().splitlines()) if each is not None]
    inside = [each for each in found if Path(each["path"]).is_relative_to(own)]
    return [Call(each["call"] in SYNCS, named(Path(each["path"]), own)) for each in inside]


def parts(calls: list[Call]) -> tuple[list[Call], list[Call], list[Call]]:
    """Return the calls until all has been made, until the first update has been applied, and of all others."""
    marks = [place for place, call in enumerate(calls) if call.file == "marks"]
    made, first, last = marks
    return calls[:made], calls[made + 1 : first], calls[first + 1 : last]


def unsynced(calls: Iterable[Call]) -> Iterator[tuple[Call, set[str]]]:
    """Give each call with the files that were written before it and not synced yet: a power cut may take that back."""
    found: set[str] = set()
    for call in calls:
        yield call, found
        if call.file.removesuffix("-wal") in FILES.values():
            found = found - {call.file} if call.sync else found | {call.file}


def left(calls: Iterable[Call]) -> set[str]:
    """Return the files that were written after they were synced last."""
    *_, (_, found) = unsynced([*calls, Call(True, "")])
    return found


def test_an_update_waits_for_the_disk_three_times_in_all(calls: list[Call]) -> None:
    """Eleven times it was before. Logs are put into their files now and then, but not within so few updates."""
    _, _, updates = parts(calls)
    found = Counter(call.file for call in updates if call.sync)
    print({file: count / UPDATES for file, count in found.items()})
    assert found == {"ledger-wal": UPDATES, "site-wal": UPDATES, "coordinator-wal": UPDATES}


def test_it_is_paid_before_it_is_made_and_made_before_it_is_sent(calls: list[Call]) -> None:
    _, _, updates = parts(calls)
    assert [call.file for call in updates if call.sync] == ["ledger-wal", "site-wal", "coordinator-wal"] * UPDATES
    for call, waiting in unsynced(updates):
        if not call.sync and call.file == "site-wal":
            assert "ledger-wal" not in waiting
        if not call.sync and call.file == "coordinator-wal":
            assert not waiting & {"ledger-wal", "site-wal"}


def test_a_power_cut_may_take_back_what_the_witness_saw_last_and_an_acknowledgement(calls: list[Call]) -> None:
    made, first, updates = parts(calls)
    assert left(made) == {"witness-wal"}
    assert left([*made, *first, *updates]) == {"site-wal", "witness-wal"}
