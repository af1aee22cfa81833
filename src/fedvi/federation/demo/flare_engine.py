"""NVIDIA FLARE on one machine, of real processes: a server and a site each, made by FLARE's own provisioning.

No job is submitted, and there is no user who could. The server listens on loopback.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from fedvi.federation.demo.engines import Engine, free_port

SERVER, PROJECT = "localhost", "fedvi"


class FlareEngine(Engine):
    """FLARE's processes of a federation."""

    def set_up(self) -> None:
        """Make certificates and kits, and start FLARE's parents of all sites and of the server."""
        from fedvi.federation.transports.flare import write_local

        (self.folder / "project.yml").write_text(json.dumps(_project(self.sites, free_port())), encoding="utf-8")
        self.command(sys.executable, "-m", "nvflare.cli", "provision", "-p", "project.yml", "-w", ".")
        for name in (SERVER, *self.sites):
            write_local(self.kit(name), self.coordinator_socket if name == SERVER else self.link_path(name))
            self.run(name, str(self.kit(name) / "startup" / "sub_start.sh"), "--once")

    def kit(self, name: str) -> Path:
        """Return the folder in which a party's FLARE works."""
        return self.folder / PROJECT / "prod_00" / name

    def victims(self, site: str) -> dict[str, Callable[[], bool]]:
        """Return FLARE's two kinds of parents."""
        return {"FLARE's server": lambda: self.kill(SERVER), "FLARE's site": lambda: self.kill(site)}


def _project(sites: tuple[str, ...], port: int) -> dict[str, object]:
    """Return what `nvflare provision` reads."""
    own = {"org": "fedvi"}
    clients = [own | {"name": site, "type": "client"} for site in sites]
    builders = "nvflare.lighter.impl."
    return {
        "api_version": 3,
        "name": PROJECT,
        "participants": [own | {"name": SERVER, "type": "server", "fed_learn_port": port}, *clients],
        "builders": [
            {"path": f"{builders}workspace.WorkspaceBuilder"},
            {"path": f"{builders}static_file.StaticFileBuilder", "args": {"scheme": "tcp"}},
            {"path": f"{builders}cert.CertBuilder"},
        ],
    }
