"""What the coordinator's side and the sites' side must call by the same name. Imports nothing."""

from __future__ import annotations

CHANNEL = "fedvi"
"""Of our messages between coordinator and site."""

MESSAGE, RUNS = "message", "runs"
"""Topics: bytes from the site to the coordinator; the coordinator's question whether a job's process runs there."""

YES, NO = b"yes", b"no"
"""Answers to that question."""

TASK = "work"
"""The one task of a job."""

SERVER = "server"
"""FLARE's name of the coordinator."""

DATABASE = "coordinator.db"
"""The coordinator's file, beside the folder of its server."""

SERVER_FOLDER, ADMIN_FOLDER, KITS_FOLDER, CA_FOLDER = "server", "admin", "kits", "ca"
"""In the coordinator's folder."""

CERTIFICATES = "certificates"
"""In the coordinator's folder: of all sites, by which their messages are known."""

SITE_FOLDER = "fedvi"
"""In a kit: the project, and what the site decided for itself."""

ENGINE_FOLDER = "engine"
"""In a kit, made at the site: where FLARE works."""

CONNECTION = "fed_client.json"
"""In a site's engine folder: where the coordinator is, and by which name."""

STARTUP_FOLDER, CERTIFICATE, KEY, AUTHORITY = "startup", "client.crt", "client.key", "rootCA.pem"
"""In a kit: the site's certificate, its private key, and the certificate of the authority that made them."""

ADMIN = "supervisor@coordinator.fedvi"
"""The only user: the supervisor, on the coordinator's machine."""

ROLE = "lead"
"""FLARE's name for a user who may submit jobs."""

CONTROLLER = "fedvi.federation.transports.flare.controller.SiteController"
EXECUTOR = "fedvi.federation.transports.flare.executor.SiteExecutor"
"""The only classes that a job may name."""

SITE_LAUNCHER = "fedvi.federation.transports.flare.launcher.SiteLauncher"
COORDINATOR_LAUNCHER = "fedvi.federation.transports.flare.launcher.CoordinatorLauncher"
"""How the two halves of a job are started."""
