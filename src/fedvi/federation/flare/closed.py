"""FLARE's programs, with a gate before their network.

python -m fedvi.federation.flare.closed client.client_train ARGUMENTS        likewise the others of `GATES`
"""

from __future__ import annotations

import runpy
import sys

from fedvi.federation.flare import gate

APPS = "nvflare.private.fed.app."
SERVER_PARENT, SITE_PARENT = "server.server_train", "client.client_train"
GATES: dict[str, gate.Gate] = {
    SERVER_PARENT: gate.at_server,
    "server.runner_process": gate.at_servers_job,
    SITE_PARENT: gate.at_site,
    "client.worker_process": gate.at_site,
}


def run_closed(program: str, arguments: list[str]) -> None:
    """Be a program of FLARE, with its arguments."""
    gate.close(GATES[program])
    sys.argv = [program, *arguments]
    runpy.run_module(APPS + program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_closed(sys.argv[1], sys.argv[2:])
