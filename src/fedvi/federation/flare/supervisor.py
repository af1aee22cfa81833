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

from fedvi.federation.flare.jobs import job_name, write_job
from fedvi.federation.flare.kits import near_host
from fedvi.federation.flare.names import ADMIN, ADMIN_FOLDER, DATABASE
from fedvi.federation.flare.processes import Parent, coordinator_parent

PERIOD = 1.0
"""Seconds between two calls of `step` that are worth it."""
CONNECT, COMMAND = 3.0, 5.0
"""Seconds to wait for a session, and for an answer in it."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
"""Seconds from the end of a site's job to the next, if it did not last; doubled from one such job to the next."""
LASTING = 6.0
STARTING = 30.0
"""Seconds after which a job that has been accepted and not started counts as dead."""

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
        from fedvi.federation.server import Server

        logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # that the server is away is no news
        self.folder = folder
        self.server = Server.open(folder / DATABASE)
        self.parent: Parent = coordinator_parent(folder)
        self.session: Session | None = None
        self.turns: dict[str, Turn] = {}
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
        project = self.server.project
        try:
            socket.create_connection((near_host(project.host), project.port), timeout=1).close()
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
            self._tidy(session, turn, [job for job in jobs if job["name"] == job_name(site)], running)
            if not turn.job and site in self.connected and self.server.may_work(site):
                self._submit(session, site, turn)

    def _tidy(self, session: Session, turn: Turn, jobs: list[dict[str, Any]], running: set[str]) -> None:
        """Find the live job of a site, if there is one; end and delete the others."""
        now = time.monotonic()
        live = ""
        for job in jobs:
            number, status = job["job_id"], job["status"]
            starting = status in WAITING and (number != turn.job or now - turn.since < STARTING)
            if not live and (number in running or starting):
                live = number
            else:
                self._delete(session, number, status)
        if live != turn.job:
            if turn.job:
                logger.info("The job %s has ended.", turn.job)
                lasted = now - turn.since
                turn.wait = 0.0 if lasted > LASTING else min(max(2 * turn.wait, FIRST_WAIT), LONGEST_WAIT)
            turn.job, turn.since = live, now

    def _delete(self, session: Session, number: str, status: str) -> None:
        try:
            if not status.startswith("FINISHED"):
                session.abort_job(number)
            session.delete_job(number)
        except Exception as error:
            logger.info("The dead job %s cannot be deleted yet: %s", number, error)

    def _submit(self, session: Session, site: str, turn: Turn) -> None:
        now = time.monotonic()
        if now - turn.since < turn.wait:
            return
        with tempfile.TemporaryDirectory() as folder:
            turn.job = session.submit_job(str(write_job(site, Path(folder))))
        turn.since = now
        logger.info("Submitted the job %s of site %s.", turn.job, site)
