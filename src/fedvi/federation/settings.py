"""How a site takes part: a folder of its own, with what its people decided and what the coordinator sent.

    site.toml                      table, budget, ledger: never leaves the site
    federation.toml, schema.toml   as the coordinator sent them when the site joined; public to all sites
    address.json, site.key         where the coordinator is and how to know it; the site's private key, made here
    site.db                        the last release until it is acknowledged

What the site allows, whatever a coordinator asks for, is in a file outside of this folder: `fedvi.federation.policy`.
"""

from __future__ import annotations

import dataclasses
import re
import time
from functools import cached_property
from pathlib import Path

import msgspec

from fedvi.checks import in_range
from fedvi.config import fill, read_toml
from fedvi.errors import InputError, LedgerInUse, NotReached
from fedvi.federation.description import Description
from fedvi.federation.envelope import Correspondence, Transport, open_answer
from fedvi.federation.invitation import Address
from fedvi.federation.making import read_key
from fedvi.federation.policy import Policy
from fedvi.federation.site import Site
from fedvi.federation.worker import open_worker
from fedvi.files import write
from fedvi.inference.private_client import PrivateClient, declared_rows
from fedvi.privacy.budget import Budget
from fedvi.privacy.ledger.overlap import Sketch
from fedvi.tables.encode import Encoded, encode, sketch_of
from fedvi.tables.reading.source import TableSource, open_table
from fedvi.tables.repeats import repeated_rows

FILE, STATE, ADDRESS, KEY, PID = "site.toml", "site.db", "address.json", "site.key", "join.pid"

PATIENCE = 20.0


@dataclasses.dataclass(frozen=True)
class SiteSettings:
    """What the people of a site decided.

    folder: of the site. data, ledger: absolute paths. delta: None for the rule by number of rows.
    encoding, decimal, sheet: how the table is written, where it is not as the schema says.
    public_rows: that the site declares; None for two digits of the true number, rounded down.
    accept: the ledger's warnings that they confirmed; see `Ledger.open`.
    policy: path of the site's policy; None for `policy.toml` beside the ledger, if there is one.
    link: Unix socket at which the relay of an engine comes for messages; None for HTTPS. link_mode: its permissions.
    confirmed: whether somebody has confirmed the promise.
    """

    folder: Path
    data: Path
    ledger: Path
    epsilon: float
    delta: float | None = None
    public_rows: int | None = None
    encoding: str = ""
    decimal: str = ""
    sheet: str = ""
    accept: tuple[str, ...] = ()
    policy: Path | None = None
    link: Path | None = None
    link_mode: str = "600"
    confirmed: bool = False

    def __post_init__(self) -> None:
        in_range("eps", self.epsilon, 1e-6, 1e6)

    @property
    def state(self) -> Path:
        """The site's own file."""
        return self.folder / STATE

    @property
    def pid(self) -> Path:
        """The file that names the process of the site."""
        return self.folder / PID

    @cached_property
    def rules(self) -> Policy:
        """What the site allows."""
        return Policy.find(self.policy, self.ledger, self.folder)

    @cached_property
    def description(self) -> Description:
        """The federation, as the coordinator sent it; refused if it asks for what the site's policy does not allow."""
        found = Description.load(self.folder, self.rules.kinds)
        self.rules.check(found, self.epsilon, self.delta)
        return found

    @cached_property
    def address(self) -> Address:
        """Where the coordinator is, and how to know it."""
        return load_address(self.folder)

    @property
    def budget(self) -> Budget:
        """The site's budget."""
        return Budget(self.epsilon, "auto" if self.delta is None else self.delta)

    @classmethod
    def load(cls, folder: Path) -> SiteSettings:
        """Return the settings of the site in this folder."""
        path = folder / FILE
        if not path.exists():
            raise InputError(f"Nobody has joined at {folder} yet. Use fedvi site join with an invitation.")
        try:
            return fill(cls, read_toml(path, "the settings of a site"), folder=folder)
        except InputError as error:
            raise InputError(f"Cannot use {path}: {error} Join again with fedvi site join.") from None

    def save(self) -> None:
        """Write the file, for the site's eyes only."""
        import tomli_w

        values = {
            key: value for key, value in dataclasses.asdict(self).items() if key != "folder" and value is not None
        }
        content = {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
        write(self.folder / FILE, tomli_w.dumps(content), private=True)

    @property
    def forecast(self) -> str:
        """What the federation will be able to say, if all sites take part as described, in one sentence."""
        from fedvi.inference.forecasting import forecast

        description = self.description
        (rows, budget), plan, model = description.share, description.plan, description.spec.model
        found = forecast(
            description.schema,
            [rows] * len(description.sites),
            description.epsilon,
            delta=budget.delta,
            questions=plan.questions,
            covariance=plan.covariance,
            prior_sd=description.prior_sd,
            priors=description.priors,
            model=model,
            draws=3,
        )
        return found.in_words(model.effect)

    @property
    def table(self) -> TableSource:
        """The site's table: nothing is guessed, and no line is refused."""
        own = {"encoding": self.encoding, "decimal": self.decimal, "sheet": self.sheet}
        return open_table(self.data, self.description.schema.dialect, **own, private=True)

    def read(self, *, look: bool = False) -> Encoded:
        """Return the site's rows, encoded by the federation's schema, or raise `InputError`.

        look: count rows that stand twice too, for the people here.
        """
        table = self.table
        encoded = encode(self.description.schema, table, private=True)
        encoded.counts.repeated = repeated_rows([table]) if look else 0
        if len(encoded.x) < 2:
            raise InputError(
                f"Expected at least 2 rows in {self.data}, got {len(encoded.x)}: there is nothing to learn."
            )
        return encoded

    def open(self, encoded: Encoded | None = None, patience: float = PATIENCE, *, now: bool = True) -> Site:
        """Open the site's file; and now, or when a question comes, its rows and its ledger.

        encoded: the rows, if they were read already. patience: seconds to wait for another process of the site, killed
        or about to end, to let go of the ledger.
        """
        given = encoded

        def worker() -> PrivateClient:
            nonlocal given
            rows, given = given or self.read(), None  # kept by the client alone
            return self._worker(rows, patience)

        return Site.open(self.state, self.description, self.ledger, worker, now)

    def declared(self, encoded: Encoded) -> int:
        """Return the number of rows that the site declares, and raise unless its policy allows it."""
        rows = declared_rows(self.ledger, len(encoded.x), self.public_rows)
        self.rules.check(self.description, self.epsilon, float(self.budget.fixed(rows).delta), rows)
        return rows

    def correspondence(self, transport: Transport) -> Correspondence:
        """Return the signed exchange with the coordinator."""
        address, key = self.address, read_key(self.folder / KEY)
        return Correspondence(transport, address.federation, address.site, key, address.coordinator)

    def transport(self) -> Transport:
        """Return what carries the site's messages: HTTPS, or an engine's relay that comes to the link."""
        return transport_to(self.folder, self.address, self.link, self.link_mode)

    def _worker(self, encoded: Encoded, patience: float) -> PrivateClient:
        description, deadline = self.description, time.monotonic() + patience
        assert encoded.y is not None
        self.declared(encoded)

        def sketch(key: bytes) -> Sketch:
            return sketch_of(description.schema, self.table, key)

        table = encoded.x, encoded.y
        mine = self.budget, self.ledger, self.accept, self.public_rows
        while True:
            try:
                return open_worker(description, table, *mine, sketch)
            except LedgerInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def load_address(folder: Path) -> Address:
    """Return where the coordinator of the site in this folder is."""
    try:
        return msgspec.json.decode((folder / ADDRESS).read_bytes(), type=Address)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"Cannot read {folder / ADDRESS}: {error}. Restore it, or join with a new invitation."
        ) from None


def save_address(folder: Path, address: Address) -> None:
    """Write where the coordinator is."""
    write(folder / ADDRESS, msgspec.json.format(msgspec.json.encode(address)), private=True)


def transport_to(folder: Path, address: Address, link: Path | None, mode: str = "600") -> Transport:
    """Return what carries a site's messages to the coordinator. A new certificate is remembered in the folder."""
    if link is not None:
        from fedvi.federation.transports.link import Link

        if not re.fullmatch("[0-7]{3}", mode):
            raise InputError(f"Expected --link-mode as three digits of 0 to 7, such as 660, got {mode!r}.")

        def fits(request: bytes, answer: bytes) -> bool:
            try:
                open_answer(address.coordinator, address.federation, request, answer)
            except NotReached:
                return False
            return True

        return Link(link, mode=int(mode, 8), fits=fits)
    if not address.url:
        raise InputError("This federation has no address: an engine carries its messages. Expected --link SOCKET.")
    from fedvi.federation.transports.https import Https

    return Https(address, on_new_pin=lambda pin: save_address(folder, msgspec.structs.replace(address, tls=pin)))
