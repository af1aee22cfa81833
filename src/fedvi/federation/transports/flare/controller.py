"""The coordinator's side of one site's job: hands the site's bytes to the durable server, and its answers back.

Who is calling, the signature says, and nothing else that comes with a message: FLARE's own peer context is written by
the sender, and the tokens by which FLARE knows its sites can be had by all of them.

The job ends when the site has nothing more to do. When the site's process has gone, or FLARE aborts the job, this
process ends at once, so that the supervisor can start another: all that matters is in the coordinator's file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nvflare.apis.controller_spec import Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message

from fedvi.federation.transports.flare.names import CERTIFICATES, CHANNEL, DATABASE, MESSAGE, RUNS, TASK, YES
from fedvi.federation.transports.flare.signing import Verifier
from fedvi.federation.wire import FINISHED, LEFT

if TYPE_CHECKING:
    from fedvi.federation.coordinator import Coordinator

LOOK = 0.25
"""Seconds between looks at whether the job is over."""
ASK = 1.0
"""Seconds between questions to the site whether its process runs."""
PATIENCE = 15.0
"""Seconds that the site's process has to be started; later, one that does not run has gone."""
SILENCE = 60.0
"""Seconds after which a site that does not answer counts as gone."""


class SiteController(Controller):
    """Serves one site, for as long as it works."""

    def __init__(self, site: str) -> None:
        super().__init__()
        self.site = site
        self.server: Coordinator | None = None
        self.verifier: Verifier | None = None
        self.job = ""
        self.finished = threading.Event()
        self.seen = time.monotonic()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Open the coordinator's file and start to listen."""
        from fedvi.federation.coordinator import Coordinator

        self.engine = engine = fl_ctx.get_engine()
        folder = Path(engine.get_workspace().get_root_dir()).resolve().parent
        self.server, self.job = Coordinator.open(folder / DATABASE), fl_ctx.get_job_id()
        self.verifier = Verifier(folder / CERTIFICATES / f"{self.site}.crt")
        self.cell = engine.get_cell().core_cell
        self.cell.register_request_cb(CHANNEL, MESSAGE, self.answer)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Give the site its task, and wait until it is done, finished, gone, or the job is aborted."""
        task = Task(TASK, data=Shareable())
        self.send(task, fl_ctx=fl_ctx, targets=[self.site])
        began = asked = self.seen = time.monotonic()
        ran = False
        while not (abort_signal.triggered or self.finished.is_set() or task.completion_status is not None):
            time.sleep(LOOK)
            if time.monotonic() - asked < ASK:
                continue
            asked = time.monotonic()
            runs = self._runs()
            ran = ran or runs is True
            if runs:
                self.seen = time.monotonic()
            elif (runs is False and (ran or asked - began > PATIENCE)) or asked - self.seen > SILENCE:
                self.logger.warning(f"The process of site {self.site} has gone.")
                self._leave()
        if abort_signal.triggered:
            self._leave()

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Close the coordinator's file."""
        if self.server is not None:
            self.server.close()

    def _leave(self) -> None:
        """End this process now; FLARE's own way takes seconds, and longer if it is not told first."""
        with contextlib.suppress(Exception):
            self.engine.update_job_run_status()
        os._exit(1)

    def answer(self, request: Message) -> Message:
        """Return what the server answers to a message of our site; refuse everybody else's."""
        signed = request.payload
        if self.server is None or self.verifier is None:
            return make_reply(ReturnCode.SERVICE_UNAVAILABLE, error="This job has not begun.")
        if not isinstance(signed, bytes | bytearray | memoryview):
            return make_reply(ReturnCode.INVALID_REQUEST, error="Expected bytes.")
        data = self.verifier.opened(self.job, bytes(signed))
        if data is None:
            self.logger.warning(f"Refused a message to the job of site {self.site} that it has not signed.")
            return make_reply(ReturnCode.UNAUTHENTICATED, error=f"This job serves site {self.site} only.")
        reply = self.server.handle(self.site, data)
        self.seen = time.monotonic()
        if self.server.site(self.site).state in (FINISHED, LEFT):
            self.finished.set()
        return make_reply(ReturnCode.OK, body=reply)

    def _runs(self) -> bool | None:
        """Ask the site's long-lived process whether that of this job runs; None if there is no answer."""
        question = Message(payload=self.job.encode())
        reply = self.cell.send_request(CHANNEL, RUNS, self.site, question, timeout=2 * ASK, optional=True)
        if reply is None or reply.get_header(MessageHeaderKey.RETURN_CODE) != ReturnCode.OK:
            return None
        return bytes(reply.payload or b"") == YES
