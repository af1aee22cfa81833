"""Certificates and startup kits, made by NVIDIA FLARE's own provisioning and then closed up.

    folder/
      server/         the coordinator's server
      admin/          the supervisor's user, the only one there is
      kits/NAME/      carried to the machine of site NAME; fedvi/ in it holds the project
      certificates/   of the sites, by which their messages are known
      ca/             the certificate authority: who has it can make sites

A kit is data, and little of it: the site's certificate and key, the authority's certificate, and the project. What
FLARE does at a site, the fedvi that is installed there decides (workspace.py). At the server, the only user may start
and end jobs, nothing else.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.lighter.constants import CtxKey
from nvflare.lighter.ctx import ProvisionContext
from nvflare.lighter.entity import Project as FlareProject
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner
from nvflare.lighter.spec import Builder

from fedvi.errors import InputError
from fedvi.federation.description import Description
from fedvi.federation.transports.flare.names import (
    ADMIN,
    ADMIN_FOLDER,
    AUTHORITY,
    CA_FOLDER,
    CERTIFICATE,
    CERTIFICATES,
    CONTROLLER,
    COORDINATOR_LAUNCHER,
    KEY,
    KITS_FOLDER,
    ROLE,
    SERVER_FOLDER,
    SITE_FOLDER,
    STARTUP_FOLDER,
)
from fedvi.federation.transports.flare.policies import AT_SERVER, LOGGING, policy
from fedvi.federation.transports.flare.workspace import SCHEME
from fedvi.files import write

ORGANISATION = "fedvi"
CONFIGURATION = "config"
YEARS = 10
MANY = 10_000
SITE_GONE = 60
"""Seconds without a heartbeat after which the server forgets a site's connection."""


def make_kits(project: Description, folder: Path) -> None:
    """Make certificates and startup kits for the coordinator, its supervisor and every site."""
    for name in (SERVER_FOLDER, ADMIN_FOLDER, KITS_FOLDER, CA_FOLDER):
        if (folder / name).exists():
            raise InputError(f"Expected a folder without {name}, got {folder / name}: a federation was made there.")
    made = _provision(project, folder, project.sites)
    shutil.move(made / project.host, folder / SERVER_FOLDER)
    shutil.move(made / ADMIN, folder / ADMIN_FOLDER)
    for site in project.sites:
        _hand_out(project, made / site, folder, site)
    shutil.rmtree(made)


def add_site(project: Description, folder: Path, name: str) -> None:
    """Make the kit of one more site, under the same certificate authority. `project` lists it already."""
    if name not in project.sites:
        raise InputError(f"Expected one of the project's sites, {', '.join(project.sites)}; got {name!r}.")
    if (folder / KITS_FOLDER / name).exists():
        raise InputError(f"Expected a site without a kit, got {name!r}, whose kit is {folder / KITS_FOLDER / name}.")
    if not (folder / CA_FOLDER / project.name).is_dir():
        raise InputError(f"Expected the federation {project.name} at {folder}, got no {CA_FOLDER} of it there.")
    made = _provision(project, folder, [name])
    _hand_out(project, made / name, folder, name)
    shutil.rmtree(made)


def _provision(project: Description, folder: Path, sites: Sequence[str]) -> Path:
    """Let FLARE make kits for the server, the user and these sites, and return the folder that has them."""
    flare = FlareProject(project.name, project.name)
    try:
        flare.set_server(project.host, ORGANISATION, {"fed_learn_port": project.port, "admin_port": project.port})
        flare.add_admin(ADMIN, ORGANISATION, {"role": ROLE})
        for site in sites:
            flare.add_client(site, ORGANISATION, {"allow_log_streaming": False})
    except ValueError as error:
        raise InputError(f"NVIDIA FLARE does not take the project's names: {error}.") from None
    root = folder / CA_FOLDER
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o700)
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(CONFIGURATION, scheme=SCHEME, require_signed_jobs=True),
        CertBuilder(root_valid_days=365 * YEARS),
        Hardening(),
    ]
    log = Log()
    context = Provisioner(str(root), builders).provision(flare, logger=log)
    if context.get(CtxKey.BUILD_ERROR):
        raise InputError(f"NVIDIA FLARE could not make the kits: {' '.join(log.errors) or 'it does not say why'}.")
    _forget_keys(root / project.name / "state" / "cert.json")
    return Path(context[CtxKey.CURRENT_PROD_DIR])


def _hand_out(project: Description, made: Path, folder: Path, site: str) -> None:
    """Make a site's kit of what FLARE made, and keep its certificate."""
    kit = folder / KITS_FOLDER / site
    (kit / STARTUP_FOLDER).mkdir(parents=True, mode=0o700)
    for name in (CERTIFICATE, KEY, AUTHORITY):
        shutil.move(made / STARTUP_FOLDER / name, kit / STARTUP_FOLDER / name)
    project.save(kit / SITE_FOLDER)
    (folder / CERTIFICATES).mkdir(exist_ok=True)
    shutil.copy(kit / STARTUP_FOLDER / CERTIFICATE, folder / CERTIFICATES / f"{site}.crt")


def _forget_keys(state: Path) -> None:
    """Keep of the certificates made only the authority's own: a site's key is the site's."""
    content = json.loads(state.read_text(encoding="utf-8"))
    kept = {key: value for key, value in content.items() if not isinstance(value, dict)}
    write(state, json.dumps(kept), private=True)


class Hardening(Builder):
    """Takes away from the server and its user what FLARE allows by default and we do not need."""

    def build(self, project: FlareProject, ctx: ProvisionContext) -> None:
        """Rewrite the local policies of the server, and what the supervisor connects to."""
        local = Path(ctx.get_local_dir(project.get_server()))
        path = local / "resources.json.default"
        resources = server_resources(json.loads(path.read_text(encoding="utf-8")))
        for name, content in (
            ("resources.json.default", resources),
            ("log_config.json.default", LOGGING),
            ("authorization.json.default", policy(AT_SERVER)),
        ):
            (local / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
        for user in project.get_admins():
            path = Path(ctx.get_kit_dir(user)) / "fed_admin.json"
            settings = json.loads(path.read_text(encoding="utf-8"))
            settings["admin"]["host"] = near_host(project.get_server().name)
            path.write_text(json.dumps(settings, indent=2), encoding="utf-8")

    def finalize(self, project: FlareProject, ctx: ProvisionContext) -> None:
        """Leave out what would start FLARE without us, and what speaks of it."""
        for party in project.get_all_participants():
            for pattern in ("startup/*.sh", "startup/*.ipynb", "**/readme.txt", "local/*.sample"):
                for path in Path(ctx.get_ws_dir(party)).glob(pattern):
                    path.unlink()


def near_host(host: str) -> str:
    """Return where the coordinator's own machine reaches its server: a public name may lead around a firewall.

    >>> near_host("federation.example.org"), near_host("127.0.0.1")
    ('localhost', '127.0.0.1')
    """
    return host if host.startswith("127.") else "localhost"


def server_resources(resources: dict[str, Any]) -> dict[str, Any]:
    """Return the server's resources: as many jobs as there are sites, no receiver of logs."""
    _keep(resources, {"job_scheduler", "job_manager", "job_store", "process_launcher"})
    _component(resources, "job_scheduler")["args"] = {"max_jobs": MANY, "min_schedule_interval": 1.0}
    _component(resources, "process_launcher")["path"] = COORDINATOR_LAUNCHER
    resources["class_allow_list"] = [CONTROLLER]
    resources["servers"][0] |= {"max_num_clients": MANY, "heart_beat_timeout": SITE_GONE, "admin_timeout": 5.0}
    return resources


def _keep(resources: dict[str, Any], names: set[str]) -> None:
    resources["components"] = [component for component in resources["components"] if component["id"] in names]


def _component(resources: dict[str, Any], name: str) -> dict[str, Any]:
    return next(component for component in resources["components"] if component["id"] == name)


class Log:
    """Keeps what FLARE's provisioning reports as errors, and prints nothing."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def debug(self, _message: str) -> None:
        """Ignore."""

    info = warning = debug

    def error(self, message: str) -> None:
        """Remember."""
        self.errors.append(message)
