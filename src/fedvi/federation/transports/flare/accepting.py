"""What a site does when the coordinator's server says so: take its one job, start it, end it.

FLARE's sites take twenty commands, shell commands among them, and jobs with whatever is in them: a file with the right
name in a job can have Python run another. A site of ours keeps six commands, whose jobs have numbers, not names of its
folders, and takes one job: `jobs.py` of the fedvi that is installed here has its configuration, and nothing else comes
with it but signatures. All this is looked at before FLARE unpacks anything.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import Any

from nvflare.private.admin_defs import Message, error_reply
from nvflare.private.defs import RequestHeader, TrainingTopic
from nvflare.private.fed.client.admin import RequestProcessor
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from fedvi.federation.transports.flare.jobs import SITE_CONFIGURATION

TOPICS = {
    TrainingTopic.DEPLOY,
    TrainingTopic.START_JOB,
    TrainingTopic.CHECK_RESOURCE,
    TrainingTopic.CANCEL_RESOURCE,
    TrainingTopic.ABORT,
    TrainingTopic.NOTIFY_JOB_STATUS,
}
NUMBER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CONFIGURATION = "config/config_fed_client.json"
SIGNATURES = {f"{folder}.__nvfl_{name}" for folder in ("", "config/") for name in ("sig.json", "submitter.crt")}
LARGEST_FILE = 1 << 20


class Checked(RequestProcessor):
    """One of FLARE's commands, after a look at what is wanted."""

    def __init__(self, real: RequestProcessor):
        self.real = real

    def get_topics(self) -> list[str]:
        """Return the command's names."""
        return list(self.real.get_topics())

    def process(self, req: Message, app_ctx: Any) -> Any:
        """Refuse, or do what FLARE does."""
        if reason := objection(req.topic, req.get_header(RequestHeader.JOB_ID), req.body):
            return error_reply(reason)
        return self.real.process(req, app_ctx)


def restrict() -> None:
    """Take away all commands but those that a site needs, and check these."""
    processors = ClientRequestProcessors.request_processors
    processors[:] = [Checked(each) for each in processors if set(each.get_topics()) <= TOPICS]


def objection(topic: str, job: Any, body: Any) -> str:
    """Return why a site does not do this, or an empty text."""
    if job is None and topic != TrainingTopic.DEPLOY:
        return ""
    if not isinstance(job, str) or not NUMBER.fullmatch(job):
        return "Expected a job's number."
    if topic == TrainingTopic.DEPLOY and not _is_our_job(body):
        return "Expected the job of the fedvi that is installed here, and nothing else in it."
    return ""


def _is_our_job(body: Any) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            files = [each for each in archive.infolist() if not each.is_dir()]
            names = [each.filename for each in files]
            if len(set(names)) < len(names) or set(names) - SIGNATURES != {CONFIGURATION}:
                return False
            if max(each.file_size for each in files) > LARGEST_FILE:
                return False
            return bool(json.loads(archive.read(CONFIGURATION)) == SITE_CONFIGURATION)
    except (zipfile.BadZipFile, ValueError, TypeError, RuntimeError, NotImplementedError, EOFError):
        return False
