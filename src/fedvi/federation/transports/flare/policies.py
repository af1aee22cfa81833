"""What FLARE's users may do at the server and at a site, and what its processes write to their logs."""

from __future__ import annotations

from typing import Any

from fedvi.federation.transports.flare.names import ROLE

NOTHING = dict.fromkeys(
    ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "shell_commands", "byoc"), "none"
)
AT_SERVER = NOTHING | {"submit_job": "any", "manage_job": "n:submitter", "view": "any"}
AT_SITE = NOTHING | {"submit_job": "any"}
ROLES = ("project_admin", "org_admin", "lead", "member")

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "baseFormatter": {
            "()": "nvflare.fuel.utils.log_utils.BaseFormatter",
            "fmt": "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s",
        }
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "level": "DEBUG",
            "formatter": "baseFormatter",
            "stream": "ext://sys.stdout",
        }
    },
    "loggers": {
        "root": {"level": "INFO", "handlers": ["console"]},
        "nvflare.private.fed.authenticator": {"level": "WARNING"},
    },
}
"""All goes to the output once, not into five files, and trying again is no news."""


def policy(rights: dict[str, str]) -> dict[str, Any]:
    """Return a policy by which the supervisor has these rights, and nobody else any."""
    return {"format_version": "1.0", "permissions": dict.fromkeys(ROLES, NOTHING) | {ROLE: rights}}
