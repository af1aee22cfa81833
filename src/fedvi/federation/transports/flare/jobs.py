"""The job of one site, as FLARE takes it: a folder of configuration, without code and without a choice.

Each party gets its own half: the coordinator a controller that serves this site and no other, the site an executor
without arguments. A site refuses everything else (accepting.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedvi.federation.transports.flare.names import CONTROLLER, EXECUTOR, SERVER, TASK

COORDINATOR_APP, SITE_APP = "coordinator", "site"
SECONDS_TO_MEET = 60.0
"""The two processes of a job start at the same time; the site's waits this long for the coordinator's."""


SITE_CONFIGURATION: dict[str, Any] = {
    "format_version": 2,
    "max_runner_sync_timeout": SECONDS_TO_MEET,
    "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {}}}],
    "components": [],
    "task_data_filters": [],
    "task_result_filters": [],
}
"""The site's half of every job. A site takes no other."""


def write_job(site: str, folder: Path) -> Path:
    """Write the job of a site into a folder, and return the folder in it that FLARE's session takes."""
    job = folder / job_name(site)
    _write(
        job / "meta.json",
        {
            "name": job_name(site),
            "resource_spec": {},
            "min_clients": 1,
            "mandatory_clients": [site],
            "deploy_map": {COORDINATOR_APP: [SERVER], SITE_APP: [site]},
        },
    )
    _write(
        job / COORDINATOR_APP / "config" / "config_fed_server.json",
        {
            "format_version": 2,
            "server": {"task_request_interval": 0.5},
            "workflows": [{"id": "site", "path": CONTROLLER, "args": {"site": site}}],
            "components": [],
            "task_data_filters": [],
            "task_result_filters": [],
        },
    )
    _write(job / SITE_APP / "config" / "config_fed_client.json", SITE_CONFIGURATION)
    return job


def job_name(site: str) -> str:
    """Return the name of a site's job."""
    return f"site-{site}"


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
