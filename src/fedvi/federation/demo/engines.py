"""What the demonstration's engines share: their processes, which start again after they have died, and free ports."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from fedvi.errors import FedviError
from fedvi.files import Closing

LOOK = 0.5
"""Seconds between two looks at processes that may have died."""


class Engine(Closing):
    """An engine's processes, all below one folder. Each site's process listens at `link_path(site)`.

    Who dies is ended with all that it has started, and starts again `rest` seconds later, as systemd would do it.
    """

    rest = 5.0

    def __init__(self, folder: Path, sites: Iterable[str], coordinator_socket: Path):
        self.folder, self.sites, self.coordinator_socket = folder.resolve(), tuple(sites), coordinator_socket.resolve()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # engines call commands by their names
        self.environment = os.environ | {"PATH": path}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # they start many processes
        self._commands: dict[str, list[str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._changing, self._ended = threading.RLock(), threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="fedvi-engine", daemon=True)

    def link_path(self, site: str) -> Path:
        """Return the socket at which the process of a site waits for the engine's relay."""
        return self.folder / f"{site}.sock"

    def start(self) -> None:
        """Start everything; returns when the engine has been set up. Until it is ready, sites wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.set_up()
        except BaseException:
            self.stop()
            raise
        self._watcher.start()

    @abc.abstractmethod
    def set_up(self) -> None:
        """Write what the engine needs, and `run` its processes."""

    @abc.abstractmethod
    def victims(self, site: str) -> dict[str, Callable[[], bool]]:
        """Return what may be killed, the server's and a site's, and how; False if there is none of it now."""

    def stop(self) -> None:
        """End all processes of the engine."""
        self._ended.set()
        if self._watcher.ident is not None:
            self._watcher.join()
        for process in self._processes.values():
            kill_tree(process)

    close = stop

    def run(self, name: str, *command: str) -> None:
        """Start a process, which starts again when it has died. Its output goes to NAME.log."""
        with self._changing, (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._commands[name] = list(command)

    def pid(self, name: str) -> int:
        """Return the number of a process that `run` has started."""
        return self._processes[name].pid

    def kill(self, name: str) -> bool:
        """Kill a process that `run` has started; False if it is dead now."""
        with self._changing:
            process = self._processes[name]
            return not _is_dead(process) and send(process.pid)

    def command(self, *command: str, times: int = 1) -> None:
        """Run a command to its end; again so many times if it fails, for what it talks to may still be starting."""
        for left in reversed(range(times)):
            done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
            if done.returncode == 0:
                return
            if left:
                time.sleep(LOOK)
        raise FedviError(f"`{' '.join(command[:2])}` failed: {done.stdout}{done.stderr}")

    def _watch(self) -> None:
        died: dict[str, float] = {}
        while not self._ended.wait(LOOK):
            for name in list(self._commands):
                with self._changing:
                    if not _is_dead(self._processes[name]):
                        continue
                    kill_tree(self._processes[name])
                if time.monotonic() - died.setdefault(name, time.monotonic()) >= self.rest:
                    del died[name]
                    self.run(name, *self._commands[name])


def free_port() -> int:
    """Return a port of the loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def process_tree(root: int) -> dict[int, str]:
    """Return the commands of a process, of all that is below it, and of its group, by number."""
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,pgid=,args="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [(int(pid), int(up), int(group), words) for pid, up, group, words in map(_fields, listing.splitlines())]
    found = {pid: words for pid, _, group, words in rows if root in (pid, group)}
    while more := {pid: words for pid, up, _, words in rows if up in found and pid not in found}:
        found |= more
    return found


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was started with `start_new_session`, and all that it has started. Once more does nothing."""
    if process.returncode is not None:  # its number may be another's by now
        return
    stopped: set[int] = set()
    while new := process_tree(process.pid).keys() - stopped:  # what stands still starts nothing
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        send(pid, signal.SIGKILL)
    process.wait()


def send(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a process a signal; False if there is no such process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _is_dead(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether a process has ended, and leave its number to it: what it has started still has it as its group."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _fields(line: str) -> list[str]:
    return line.split(None, 3)
