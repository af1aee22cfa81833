"""The federation over NVIDIA FLARE: mutual TLS, startup kits, one job per site, and what keeps them all alive.

    kits.py         certificates, the coordinator's folders, a kit per site
    workspace.py    where FLARE works at a site          policies.py   who may do what
    gate.py         which requests come through          closed.py     FLARE's programs behind a gate
    signing.py      who sent a message
    jobs.py         a site's job: configuration only
    controller.py   the coordinator's side of a site's job          executor.py   the site's side
    processes.py    FLARE's long-lived processes, with everything they started
    supervisor.py   starts what is missing, ends what is dead

Nothing outside this package imports FLARE, and the names here import it only when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.federation.transports.flare.kits import add_site, make_kits
    from fedvi.federation.transports.flare.processes import Parent, coordinator_parent, site_parent
    from fedvi.federation.transports.flare.supervisor import Supervisor

__all__ = ["Parent", "Supervisor", "add_site", "coordinator_parent", "make_kits", "site_parent"]

HOMES = {
    "Parent": "processes",
    "Supervisor": "supervisor",
    "add_site": "kits",
    "coordinator_parent": "processes",
    "make_kits": "kits",
    "site_parent": "processes",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("cryptography", "nvflare", "psutil"):
            raise
        raise InputError("NVIDIA FLARE is not installed. Install it with: pip install 'fedvi[flare]'") from None
