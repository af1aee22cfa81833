"""How FLARE's long-lived processes start the process of a job: as a fork of one that has already imported everything.

A job's process spends most of its start on importing JAX; the fork starts without, which matters when a killed one
must be back soon, and on a machine that starts many. The process that is forked imports and does nothing else: it has
no threads, no connections and no backend of JAX. A fork draws its randomness anew: NumPy and fedvi seed from the
operating system, and Python's own generator is reseeded in every fork.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import shlex
import threading
from abc import abstractmethod
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, JobConstants
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobHandleSpec, JobLauncherSpec, JobReturnCode, add_launcher
from nvflare.app_common.job_launcher.process_launcher import JOB_RETURN_CODE_MAPPING
from nvflare.fuel.f3.cellnet.defs import ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.utils.job_launcher_utils import generate_client_command, generate_server_command, get_credential_env

from fedvi.federation.transports.flare.closed import APPS, run_closed
from fedvi.federation.transports.flare.names import CHANNEL, NO, RUNS, YES

SITE_MODULES = [
    "nvflare.private.fed.app.client.worker_process",
    "fedvi.federation.transports.flare.executor",
    "fedvi.federation.settings",
    "fedvi.federation.transports.base",
    "dp_accounting.pld.pld_privacy_accountant",
    "dp_accounting.rdp.rdp_privacy_accountant",
    "safetensors.numpy",
]
COORDINATOR_MODULES = [
    "nvflare.private.fed.app.server.runner_process",
    "fedvi.federation.transports.flare.controller",
    "fedvi.federation.coordinator",
    "safetensors.numpy",
]


class Launcher(JobLauncherSpec):
    """Starts jobs as forks."""

    modules: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.context = multiprocessing.get_context("forkserver")
        self.handles: dict[str, Handle] = {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Prepare the process to be forked when FLARE starts; offer to launch jobs."""
        if event_type == EventType.SYSTEM_START:
            self.context.set_forkserver_preload(self.modules)
            threading.Thread(target=multiprocessing.forkserver.ensure_running, daemon=True).start()
        elif event_type == EventType.BEFORE_JOB_LAUNCH:
            add_launcher(self, fl_ctx)

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> JobHandleSpec:
        """Start the process of a job."""
        self.handles = {job: handle for job, handle in self.handles.items() if not handle.ended.is_set()}
        words = shlex.split(self.command(fl_ctx))
        environment = os.environ | get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {})
        process = self.context.Process(target=run, args=(words[words.index("-m") + 1 :], environment), daemon=True)
        process.start()
        handle = self.handles[job_meta[JobConstants.JOB_ID]] = Handle(process)
        return handle

    @abstractmethod
    def command(self, fl_ctx: FLContext) -> str:
        """Return the command line that FLARE would run."""


class SiteLauncher(Launcher):
    """Starts a site's half of a job, and tells the coordinator's half whether it runs."""

    modules = SITE_MODULES

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Also listen to the coordinator's question."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.SYSTEM_START:
            fl_ctx.get_engine().get_cell().core_cell.register_request_cb(CHANNEL, RUNS, self.runs)

    def runs(self, request: Message) -> Message:
        """Answer whether the process of a job runs here."""
        handle = self.handles.get(str(bytes(request.payload or b""), "ascii", "replace"))
        return make_reply(ReturnCode.OK, body=YES if handle is not None and not handle.ended.is_set() else NO)

    def command(self, fl_ctx: FLContext) -> str:
        """Return the command line that FLARE would run."""
        return str(generate_client_command(fl_ctx))


class CoordinatorLauncher(Launcher):
    """Starts the coordinator's half of a job."""

    modules = COORDINATOR_MODULES

    def command(self, fl_ctx: FLContext) -> str:
        """Return the command line that FLARE would run."""
        return str(generate_server_command(fl_ctx))


class Handle(JobHandleSpec):
    """The process of a job, as FLARE sees it. Only one thread may wait for a process; all others ask this one."""

    def __init__(self, process: Any):
        self.process = process
        self.ended = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        self.process.join()
        self.ended.set()

    def terminate(self) -> None:
        """End the process at once."""
        if not self.ended.is_set():
            self.process.kill()

    def poll(self) -> Any:
        """Return how the process ended, or that this is not known yet."""
        if not self.ended.is_set():
            return JobReturnCode.UNKNOWN
        return JOB_RETURN_CODE_MAPPING.get(self.process.exitcode, JobReturnCode.EXECUTION_ERROR)

    def wait(self) -> None:
        """Wait until the process has ended."""
        self.ended.wait()


def run(words: list[str], environment: dict[str, str]) -> None:
    """Be the process of a job: `words` are the module and its arguments."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    run_closed(words[0].removeprefix(APPS), words[1:])
