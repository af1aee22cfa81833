"""Keeps a federation alive at the coordinator: the server's process, and one live job for every site that has work.

FLARE ends a job whose process died, on either side, and never starts it again; after the server's own death it takes
jobs for running that are no more. Everything durable is in the coordinator's file and the sites' own, so that the
remedy is always the same: end what is left of the job and submit it again.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from nvflare.apis.job_def import RunStatus
from nvflare.fuel.flare_api.flare_api import Session

from fedvi.federation.transports.flare.jobs import job_name, write_job
from fedvi.federation.transports.flare.kits import near_host
from fedvi.federation.transports.flare.names import ADMIN, ADMIN_FOLDER, DATABASE
from fedvi.federation.transports.flare.processes import Parent, coordinator_parent
from fedvi.federation.wire import FINISHED

CONNECT, COMMAND = 3.0, 5.0
"""Seconds to wait for a session, and for an answer in it."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
"""Seconds from the end of a site's job to the next, if it did not last; doubled from one such job to the next."""
LASTING = 6.0
STARTING = 90.0
"""Seconds after which a job should have started: the server starts one at a time, and may wait for each site."""
KEPT = 120.0
"""Seconds from a job's death to its deletion. The server, which may be waiting for the job's site meanwhile, starts no
job ever again once it has missed one that it was about to start."""

WAITING = {RunStatus.SUBMITTED, RunStatus.APPROVED, RunStatus.DISPATCHED}
logger = logging.getLogger(__name__)


@dataclasses.dataclass
class Turn:
    """Of one site: its job now, since when, and how long to wait before the next."""

    job: str = ""
    since: float = float("-inf")
    wait: float = 0.0


class Supervisor:
    """Watches over the federation in the coordinator's folder. Call `step` in a loop, and `stop` at the end."""

    def __init__(self, folder: Path):
        from fedvi.federation.coordinator import Coordinator

        logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # that the server is away is no news
        self.folder = folder
        self.server = Coordinator.open(folder / DATABASE)
        self.parent: Parent = coordinator_parent(folder)
        self.session: Session | None = None
        self.turns: dict[str, Turn] = {}
        self.dead: dict[str, float] = {}
        self.connected: tuple[str, ...] = ()

    def step(self) -> None:
        """Look once, and do what is missing. Raises nothing: what cannot be done now is tried at the next step."""
        try:
            self.parent.ensure()
            if self.parent.alive() and (self.session is not None or self._listens()):
                self._oversee(self._connect())
        except Exception as error:
            logger.info("The server cannot be reached now: %s", error)
            self._disconnect()

    def stop(self) -> None:
        """End the server and all jobs."""
        self._disconnect()
        self.parent.stop()
        self.server.close()

    def _listens(self) -> bool:
        """Tell whether the server takes connections: asking FLARE would take seconds."""
        description = self.server.description
        try:
            socket.create_connection((near_host(description.host), description.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _connect(self) -> Session:
        if self.session is None:
            session = Session(ADMIN, str(self.folder / ADMIN_FOLDER))
            session.api._print_hci = logger.debug  # it would print that it connects
            session.api.auto_login_max_tries = 1
            try:
                session.set_timeout(COMMAND)
                session.try_connect(CONNECT)
            except BaseException:
                session.close()
                raise
            self.session = session
        return self.session

    def _disconnect(self) -> None:
        self.connected = ()
        if self.session is not None:
            try:
                self.session.close()
            except Exception as error:
                logger.debug("The session did not close: %s", error)
            self.session = None

    def _oversee(self, session: Session) -> None:
        jobs = session.list_jobs(detailed=True)
        system = session.get_system_info()  # after the list: a job that starts meanwhile must not look like a dead one
        self.connected = tuple(sorted(client.name for client in system.client_info))
        running = {job.job_id for job in system.job_info}
        for site in self.server.names:
            turn = self.turns.setdefault(site, Turn())
            own = [job for job in jobs if job["name"] == job_name(site)]
            self._find(turn, own, running)
            for job in own:
                if job["job_id"] != turn.job:
                    self._bury(session, job["job_id"], job["status"])
            if not turn.job and site in self.connected and self.server.site(site).state != FINISHED:
                self._submit(session, site, turn)
        self._look_after_waiting(session, running)

    def _find(self, turn: Turn, jobs: list[dict[str, Any]], running: set[str]) -> None:
        """Find the live job of a site, if there is one."""
        known = {job["job_id"]: job["status"] for job in jobs if job["job_id"] not in self.dead}
        alive = [number for number, status in known.items() if number in running or status in WAITING]
        live = turn.job if turn.job in alive else next(iter(alive), "")
        if live == turn.job:
            return
        if turn.job:
            logger.info("The job %s has ended.", turn.job)
            turn.wait = 0.0 if _age(turn) > LASTING else min(max(2 * turn.wait, FIRST_WAIT), LONGEST_WAIT)
        turn.job, turn.since = live, time.monotonic()

    def _bury(self, session: Session, number: str, status: str) -> None:
        """End a dead job, and delete it when nobody can be about to start it any more."""
        now = time.monotonic()
        try:
            if number not in self.dead:
                self.dead[number] = now
                if not status.startswith("FINISHED"):
                    session.abort_job(number)
            if now - self.dead[number] > KEPT:
                session.delete_job(number)
                del self.dead[number]
        except Exception as error:
            logger.info("The dead job %s cannot be ended yet: %s", number, error)

    def _look_after_waiting(self, session: Session, running: set[str]) -> None:
        """Give up jobs that do not start; start the server anew if that may be its fault.

        One site, which may refuse on purpose, is no reason to while the jobs of others run.
        """
        jobs = {turn.job: turn for turn in self.turns.values() if turn.job}
        late = {job: turn for job, turn in jobs.items() if job not in running and _age(turn) > STARTING}
        if len(late) > 1 or (late and not running & set(jobs)):
            self._start_anew()
            return
        for job, turn in late.items():
            self._bury(session, job, "")
            turn.job, turn.since, turn.wait = "", time.monotonic(), LONGEST_WAIT

    def _start_anew(self) -> None:
        """Start the server again, which has stopped to start jobs; sites come back by themselves."""
        logger.warning("The server starts no jobs any more; it is started anew.")
        self._disconnect()
        self.turns.clear()
        self.dead.clear()
        self.parent.start()

    def _submit(self, session: Session, site: str, turn: Turn) -> None:
        if _age(turn) < turn.wait:
            return
        with tempfile.TemporaryDirectory() as folder:
            turn.job = session.submit_job(str(write_job(site, Path(folder))))
        turn.since = time.monotonic()
        logger.info("Submitted the job %s of site %s.", turn.job, site)


def _age(turn: Turn) -> float:
    return time.monotonic() - turn.since
