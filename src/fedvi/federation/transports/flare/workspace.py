"""The folder in which FLARE works at a site, written by the fedvi that is installed there.

A kit comes from the coordinator, whom a site does not trust, so a kit is data: certificates, the federation, its
schema. What FLARE may do here is not for it to say. All settings are written anew before FLARE starts, into a folder
that nobody else writes to, and say the same at every site but for names and addresses.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from fedvi.errors import InputError
from fedvi.federation.description import Place
from fedvi.federation.transports.flare.names import (
    AUTHORITY,
    CERTIFICATE,
    CONNECTION,
    ENGINE_FOLDER,
    EXECUTOR,
    KEY,
    SITE_FOLDER,
    SITE_LAUNCHER,
    STARTUP_FOLDER,
)
from fedvi.federation.transports.flare.policies import AT_SITE, LOGGING, policy
from fedvi.federation.transports.flare.signing import common_name

SCHEME = "tcp"
LOCAL_FOLDER = "local"

RESOURCES: dict[str, Any] = {
    "format_version": 2,
    "class_list_enforcement_mode": "enforce",
    "class_allow_list": [EXECUTOR],
    "allow_log_streaming": False,
    "client": {"retry_timeout": 30, "compression": "Gzip", "client_register_interval": 0.5},
    "components": [
        {
            "id": "resource_manager",
            "path": "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
            "args": {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300},
        },
        {
            "id": "resource_consumer",
            "path": "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
            "args": {},
        },
        {"id": "process_launcher", "path": SITE_LAUNCHER, "args": {}},
    ],
}
"""One class that a job may name, no streaming of logs."""


def site_of(kit: Path) -> tuple[Place, str]:
    """Return federation and site of a kit."""
    place = Place.load(kit / SITE_FOLDER)
    site = common_name(kit / STARTUP_FOLDER / CERTIFICATE)
    if site not in place.sites:
        raise InputError(f"Expected a kit for one of {', '.join(place.sites)}, got one for {site!r}: {kit}.")
    return place, site


def write_workspace(kit: Path) -> Path:
    """Write FLARE's folder of the site whose kit this is anew, all but the log, and return it."""
    place, site = site_of(kit)
    engine = kit / ENGINE_FOLDER
    if engine.is_symlink():
        raise InputError(f"Expected {engine} to be a folder of its own, got a link to another. Ask for the kit again.")
    engine.mkdir(mode=0o700, exist_ok=True)
    for path in engine.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.suffix != ".log" or path.is_symlink():
            path.unlink()
    for name in (STARTUP_FOLDER, LOCAL_FOLDER):
        (engine / name).mkdir(mode=0o700)
    for name in (CERTIFICATE, KEY, AUTHORITY):
        shutil.copy(kit / STARTUP_FOLDER / name, engine / STARTUP_FOLDER)
    _write(engine / STARTUP_FOLDER / CONNECTION, _connection(place, site))
    _write(engine / LOCAL_FOLDER / "resources.json", RESOURCES)
    _write(engine / LOCAL_FOLDER / "authorization.json", policy(AT_SITE))
    _write(engine / LOCAL_FOLDER / "log_config.json", LOGGING)
    return engine


def _connection(place: Place, site: str) -> dict[str, Any]:
    return {
        "format_version": 2,
        "require_signed_jobs": True,
        "servers": [
            {
                "name": place.name,
                "service": {"target": f"{place.host}:{place.port}", "scheme": SCHEME},
                "identity": place.host,
            }
        ],
        "client": {
            "ssl_private_key": KEY,
            "ssl_cert": CERTIFICATE,
            "ssl_root_cert": AUTHORITY,
            "fqsn": site,
            "is_leaf": True,
            "connection_security": "mtls",
        },
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
