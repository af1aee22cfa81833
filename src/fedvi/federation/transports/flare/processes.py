"""FLARE's long-lived processes, the coordinator's server and a site's client, each with all that it started.

A parent starts a process per job, in a session of its own: when the parent is killed, they live on for a while, and a
parent started meanwhile would have rivals. So whatever works in a kit's folder is ended before a parent starts and
after it stops. A variable of the environment, which all of them inherit, says which those are, whoever started them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from fedvi.compiling import cache_compilations
from fedvi.errors import InputError
from fedvi.federation.transports.flare.closed import SERVER_PARENT, SITE_PARENT
from fedvi.federation.transports.flare.kits import CONFIGURATION, ORGANISATION
from fedvi.federation.transports.flare.names import CONNECTION, ENGINE_FOLDER, SERVER_FOLDER
from fedvi.federation.transports.flare.workspace import site_of, write_workspace

CLOSED = "fedvi.federation.transports.flare.closed"
MARK = "FEDVI_FLARE_FOLDER"
"""Variable of the environment of all processes that work in a folder."""
JOB = "????????-????-????-????-????????????"
"""Names of folders of jobs."""
STALE = (JOB, "shutdown.fl", "restart.fl")
LOG = "parent.log"
LARGEST_LOG = 20_000_000
GRACE = 0.5
"""Seconds that processes have to end by themselves before they are killed."""
HEARTBEAT = 2.0
"""Seconds between a site's heartbeats: a site learns by its answer that its job is no more."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds to wait before a parent that died is started again; doubled with every death soon after a start."""
HEALTHY = 30.0


class Parent:
    """A long-lived process in a folder: a server's or a site's.

    program: of FLARE. arguments: for it, after the folder.
    leftovers: patterns of what a dead process may leave in the folder, and the next must not find.
    prepare: is called before every start, when nobody works in the folder.
    """

    def __init__(self, folder: Path, program: str, arguments: Sequence[str], leftovers: Sequence[str]):
        self.folder = folder.resolve()
        closed = [sys.executable, "-P", "-u", "-m", CLOSED, program]  # -P: no modules of the folder it works in
        self.command = [*closed, "-m", str(self.folder), *arguments]
        self.leftovers = leftovers
        self.prepare: Callable[[], object] = lambda: None
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self.wait = FIRST_WAIT

    @property
    def log(self) -> Path:
        """Where the output of the process goes."""
        return self.folder / LOG

    def start(self) -> None:
        """Start the process, after ending all that still works in its folder."""
        self._end_all()
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            self.log.replace(self.log.with_suffix(".old.log"))
        self.prepare()
        (self.folder / "transfer").mkdir(exist_ok=True)
        for pattern in self.leftovers:
            for path in self.folder.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        cache_compilations()
        alone = {"OPENBLAS_NUM_THREADS": "1"}  # no threads in the process that is forked
        own = {MARK: str(self.folder), "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1", "MALLOC_ARENA_MAX": "2"}
        environment = alone | os.environ | own
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started = time.monotonic()

    def alive(self) -> bool:
        """Return whether the process that this object started runs."""
        return self.process is not None and self.process.poll() is None

    def ensure(self) -> None:
        """Start the process if it does not run; wait longer from death to death if it dies soon after each start."""
        if self.alive():
            if time.monotonic() - self.started > HEALTHY:
                self.wait = FIRST_WAIT
            return
        if self.process is not None:
            if time.monotonic() - self.started < self.wait:
                return
            self.wait = min(2 * self.wait, LONGEST_WAIT)
        self.start()

    def stop(self) -> None:
        """End the process and everything that it started."""
        if self.process is not None:
            self.process.terminate()
        self._end_all()
        if self.process is not None:
            self.process.wait()
            self.process = None

    def processes(self) -> list[psutil.Process]:
        """Return all processes that work in this folder, whoever started them."""
        return [found.process for found in find(self.folder)]

    def _end_all(self) -> None:
        """End all processes in this folder, and look again until there are none: a dying parent may start a job."""
        for kill in (False, True, True, True):
            found = self.processes()
            if not found:
                return
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill() if kill else process.terminate()
            if self.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):  # or it stays, a zombie that others take for alive
                    self.process.wait(GRACE)
            psutil.wait_procs(found, timeout=GRACE)


class Found(NamedTuple):
    """A process at work in a folder. generation: 0 for the parent, 2 for a job; what is forked for jobs is between."""

    folder: Path
    generation: int
    process: psutil.Process


def find(folder: Path) -> list[Found]:
    """Return the processes at work in a folder or below it."""
    marked = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone, or somebody else's
            place = process.environ().get(MARK)
            if place and Path(place).is_relative_to(folder.resolve()) and process.status() != psutil.STATUS_ZOMBIE:
                marked[process.pid] = (Path(place), process.ppid(), process)
    found = []
    for place, above, process in marked.values():
        generation = 0
        while above in marked:
            generation, above = generation + 1, marked[above][1]
        found.append(Found(place, generation, process))
    return found


def coordinator_parent(folder: Path) -> Parent:
    """Return the process of the coordinator's server, for the folder that has `server/`."""
    server = folder / SERVER_FOLDER
    _place_storage(server)
    settings = ["secure_train=true", f"org={ORGANISATION}", f"config_folder={CONFIGURATION}"]
    return Parent(server, SERVER_PARENT, ["-s", "fed_server.json", "--set", *settings], [*STALE, "jobs", "snapshots"])


def site_parent(kit: Path) -> Parent:
    """Return the process of a site, for its kit."""
    _, name = site_of(kit)
    settings = [
        "secure_train=true",
        f"uid={name}",
        f"org={ORGANISATION}",
        f"config_folder={CONFIGURATION}",
        f"heart_beat_interval={HEARTBEAT}",
    ]
    parent = Parent(kit / ENGINE_FOLDER, SITE_PARENT, ["-s", CONNECTION, "--set", *settings], STALE)
    parent.prepare = lambda: write_workspace(kit)
    return parent


def _place_storage(server: Path) -> None:
    """Keep the server's jobs in its own folder; FLARE wants that as an absolute path, so it is written at the start."""
    local = server / "local"
    try:
        resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"Expected a server made by fedvi at {server}, got no local/resources.json.default.") from None
    root = server.resolve()
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(root / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(root / "jobs")
    (local / "resources.json").write_text(json.dumps(resources, indent=2), encoding="utf-8")
