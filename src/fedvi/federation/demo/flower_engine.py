"""Flower on one machine, of real processes: a SuperLink, a SuperNode per site, and `flwr run`.

TLS and the SuperNodes' keys are made here. Nothing leaves the machine: telemetry, updates and installations are off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fedvi.federation.demo.engines import Engine, free_port, process_tree, send
from fedvi.federation.making import CERTIFICATE, TLS_KEY, make_certificate
from fedvi.files import write

SUPERLINK = "superlink"

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "NO_PROXY": "127.0.0.1",
}


class FlowerEngine(Engine):
    """Flower's processes of a federation."""

    rest = 70.0  # a SuperNode that was killed counts as alive for a minute, in which no other with its key is admitted

    def set_up(self) -> None:
        """Make certificate and keys, start everything, and `flwr run`; returns when Flower has accepted the run."""
        self.command(sys.executable, "-m", "fedvi.federation.transports.flower", "relay")
        self.environment |= QUIET | {"FLWR_HOME": str(self.folder)}
        port = free_port()
        self._address = f"127.0.0.1:{port}"
        make_certificate(self.folder, f"https://{self._address}")
        own = self.folder / CERTIFICATE
        (self.folder / "config.toml").write_text(
            f'[superlink.here]\naddress = "{self._address}"\nroot-certificates = "{own}"\n', encoding="utf-8"
        )
        tls = ("--ssl-ca-certfile", CERTIFICATE, "--ssl-certfile", CERTIFICATE, "--ssl-keyfile", TLS_KEY)
        options = ("--enable-supernode-auth", "--disable-runtime-dependency-installation", "--port", str(port))
        self.run(SUPERLINK, "flower-superlink", *tls, *options)
        for site in self.sites:
            self.make_key(site)
            self._flwr("supernode", "register", f"{site}.pub", "here", "--name", site)
            self.start_supernode(site)
        self._flwr("run", "relay", "here", "--run-config", f'coordinator-socket="{self.coordinator_socket}"')

    def make_key(self, site: str) -> None:
        """Make the key of a site's SuperNode, which the SuperLink does not know yet."""
        key = ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        write(self.folder / f"{site}.key", private, private=True)
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        write(self.folder / f"{site}.pub", public)

    def start_supernode(self, site: str) -> None:
        """Start the SuperNode of a site that has a key."""
        where = ("--superlink", self._address, "--root-certificates", CERTIFICATE, "--port", str(free_port()))
        what = (
            "--auth-supernode-private-key",
            f"{site}.key",
            "--node-config",
            f'fedvi-socket="{self.link_path(site)}"',
        )
        self.run(site, "flower-supernode", *where, *what)

    def victims(self, site: str) -> dict[str, Callable[[], bool]]:
        """Return the process that serves a message, and the one that starts it."""
        return {"ClientApp": lambda: self._kill_clientapp(site), "SuperNode": lambda: self.kill(site)}

    def _kill_clientapp(self, site: str) -> bool:
        processes = process_tree(self.pid(site))
        return any(send(pid) for pid, words in processes.items() if "bin/flwr-clientapp" in words)

    def _flwr(self, *arguments: str) -> None:
        """Give the SuperLink a command; it may still be starting."""
        self.command("flwr", *arguments, times=60)
