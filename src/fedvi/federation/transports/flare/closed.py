"""FLARE's programs, with a gate before their network.

python -m fedvi.federation.transports.flare.closed client.client_train ARGUMENTS        likewise jobs and the server
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

from fedvi.federation.transports.flare import accepting, gate
from fedvi.federation.transports.flare.names import CONNECTION, STARTUP_FOLDER

APPS = "nvflare.private.fed.app."
SERVER_PARENT, SITE_PARENT = "server.server_train", "client.client_train"
SERVERS_JOB, SITES_JOB = "server.runner_process", "client.worker_process"


def run_closed(program: str, arguments: list[str]) -> None:
    """Be a program of FLARE, with its arguments."""
    if program in (SITE_PARENT, SITES_JOB):
        accepting.restrict()
        gate.close(gate.at_site(_coordinator(Path(arguments[arguments.index("-m") + 1]))))
    else:
        gate.close({SERVER_PARENT: gate.at_server, SERVERS_JOB: gate.at_servers_job}[program])
    sys.argv = [program, *arguments]
    runpy.run_module(APPS + program, run_name="__main__", alter_sys=True)


def _coordinator(folder: Path) -> str:
    """Return the name in the certificate of the server, as the settings in a site's folder have it."""
    settings = json.loads((folder / STARTUP_FOLDER / CONNECTION).read_text(encoding="utf-8"))
    return str(settings["servers"][0]["identity"])


if __name__ == "__main__":
    run_closed(sys.argv[1], sys.argv[2:])
