"""The site's side of its job: one task, in which the site works until it has nothing more to do.

Nothing leaves the site but the bytes of the messages that `fedvi.federation.transports.base` sends. An exception's
text could hold values of the site's rows: it goes into the site's own log, and the coordinator gets a bare code.
"""

from __future__ import annotations

import os
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellCode
from nvflare.fuel.f3.message import Message

from fedvi.errors import FedviError, NotReached
from fedvi.federation.transports.flare.names import CHANNEL, KEY, MESSAGE, SERVER, STARTUP_FOLDER, TASK
from fedvi.federation.transports.flare.signing import Signer

PATIENCE = 30.0
"""Seconds to wait for an answer, before the same bytes are sent again."""


class SiteExecutor(Executor):
    """Works for one site."""

    def execute(self, task_name: str, _shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Do the site's work; return a code and nothing else."""
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        kit = Path(fl_ctx.get_engine().get_workspace().get_root_dir()).resolve().parent
        try:
            self._work(kit, fl_ctx, abort_signal)
        except FedviError as error:
            self.logger.error(f"The site stopped: {error}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        except Exception:
            self.logger.exception("The site stopped by a fault.")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        if abort_signal.triggered:
            os._exit(0)  # all that matters is on disk, and the next job waits for the ledger
        return make_reply(ReturnCode.OK)

    def _work(self, kit: Path, fl_ctx: FLContext, abort_signal: Signal) -> None:
        from fedvi.federation.settings import SiteSettings
        from fedvi.federation.transports.base import run

        cell = fl_ctx.get_engine().get_cell().core_cell
        job, signer = fl_ctx.get_job_id(), Signer(kit / STARTUP_FOLDER / KEY)

        def send(data: bytes) -> bytes:
            signed = Message(payload=signer.sign(job, data))
            reply = cell.send_request(CHANNEL, MESSAGE, f"{SERVER}.{job}", signed, timeout=PATIENCE)
            code = reply.get_header(MessageHeaderKey.RETURN_CODE) if reply is not None else CellCode.TIMEOUT
            if code != CellCode.OK or not isinstance(reply.payload, bytes | bytearray | memoryview):
                raise NotReached(f"The coordinator gave no answer ({code}); the same message is sent again.")
            return bytes(reply.payload)

        with SiteSettings.load(kit).open() as site:
            run(site, send, lambda: bool(abort_signal.triggered))
