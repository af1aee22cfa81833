"""How a site takes part: its table, budget and ledger, in a file beside the kit that the coordinator gave it.

The file never leaves the site. What the kit holds is public to all sites: federation and schema. What the site allows,
whatever a coordinator asks for, is in a file of its own, which is never part of a kit: `policy.toml`.

    kinds = ["student_t:StudentT"]        classes beyond fedvi's own that may be built here: building runs their code

These classes must be installed, or in a file beside the policy.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from fedvi.checks import in_range
from fedvi.config import PLACE, fill, read_toml, search
from fedvi.errors import InputError, LedgerInUse
from fedvi.federation.description import Description
from fedvi.federation.site import Site
from fedvi.files import write
from fedvi.privacy.budget import Budget
from fedvi.privacy.ledger.overlap import Sketch
from fedvi.tables.encode import Encoded, encode, sketch_of
from fedvi.tables.reading.source import TableSource, open_table
from fedvi.tables.repeats import repeated_rows

FOLDER, FILE, STATE, POLICY = "fedvi", "site.toml", "site.db", "policy.toml"
PID = "join.pid"

PATIENCE = 20.0


@dataclasses.dataclass(frozen=True)
class Policy:
    """A site's policy; without a file, nothing but fedvi's own kinds."""

    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if not PLACE.fullmatch(kind):
                raise InputError(f'Expected kinds to be like "module:Class", got {kind!r}.')

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Return the policy in a file. Its folder is searched for the modules that it names."""
        try:
            policy = fill(cls, read_toml(path, "the policy of a site"))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        if policy.kinds:
            search(path.parent)
        return policy


@dataclasses.dataclass(frozen=True)
class SiteSettings:
    """What the people of a site decided.

    folder: of the kit. data, ledger: absolute paths. delta: None for the rule by number of rows.
    encoding, decimal, sheet: how the table is written, where it is not as the schema says.
    public_rows: that the site declares; None for two digits of the true number, rounded down.
    accept: the ledger's warnings that they confirmed; see `Ledger.open`.
    policy: path of the site's policy; None for `policy.toml` beside the ledger, if there is one. Not in the kit: that
        comes from the coordinator.
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

    def __post_init__(self) -> None:
        in_range("eps", self.epsilon, 1e-6, 1e6)

    @property
    def state(self) -> Path:
        """The site's own file."""
        return self.folder / FOLDER / STATE

    @property
    def pid(self) -> Path:
        """The file that names the process of the site."""
        return self.folder / FOLDER / PID

    @property
    def description(self) -> Description:
        """The federation, as the kit has it; refused if it asks for what the site's policy does not allow."""
        path = (self.policy or self.ledger.parent / POLICY).resolve()
        if path.exists() and path.is_relative_to(self.folder.resolve()):
            raise InputError(f"Expected the site's policy outside of its kit, which the coordinator made, got {path}.")
        policy = Policy.load(path) if self.policy is not None or path.exists() else Policy()
        return Description.load(self.folder / FOLDER, policy.kinds)

    @property
    def budget(self) -> Budget:
        """The site's budget."""
        return Budget(self.epsilon, "auto" if self.delta is None else self.delta)

    @classmethod
    def load(cls, folder: Path) -> SiteSettings:
        """Return the settings of a site that has joined with the kit in this folder."""
        path = folder / FOLDER / FILE
        if not path.exists():
            raise InputError(f"Nobody has joined with the kit {folder} yet. Use fedvi site join.")
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
        write(self.folder / FOLDER / FILE, tomli_w.dumps(content), private=True)

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

    def open(self, patience: float = PATIENCE) -> Site:
        """Read the rows, and open the site's ledger and file.

        patience: seconds to wait for another process of the site, killed or about to end, to let go of the ledger.
        """
        encoded, description = self.read(), self.description
        assert encoded.y is not None
        table = encoded.x, encoded.y
        deadline = time.monotonic() + patience

        def sketch(key: bytes) -> Sketch:
            return sketch_of(description.schema, self.table, key)

        while True:
            try:
                mine = self.budget, self.ledger, self.accept, self.public_rows
                return Site.open(self.state, description, table, *mine, sketch)
            except LedgerInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
