"""A federation as its coordinator describes it, in one TOML file, and as every site finds it in its kit.

Everything that sites must agree on follows from it: schema, model, prior, clipping. What it says about privacy is a
suggestion; every site decides by itself, and its ledger alone enforces it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any

from fedvi.checks import in_range, positive, whole
from fedvi.errors import InputError
from fedvi.families.mean_field import Gaussian
from fedvi.federation.stopping import StoppingRule
from fedvi.inference.private_client import LARGEST_PREDICTOR
from fedvi.inference.spec import UPDATES, Spec, recipe
from fedvi.tables.columns import BinaryTarget
from fedvi.tables.schema import Schema
from fedvi.tables.words import near

FILE, SCHEMA_FILE = "federation.toml", "schema.toml"
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
RESERVED = {"server", "admin", "all", "coordinator"}
MODELS = {True: "logistic", False: "linear"}

KEYS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "": {"name": str, "sites": list, "schema": str, "id": str},
    "coordinator": {"host": str, "port": int},
    "model": {"kind": str, "prior_variance": (int, float)},
    "training": {"rows": int, "updates": int},
    "privacy": {"epsilon": (int, float), "delta": (int, float)},
    "stop": {"change": (int, float), "quiet": int, "hours": (int, float)},
}


@dataclasses.dataclass(frozen=True)
class Description:
    """One federation.

    rows: of all sites together, about; with epsilon it decides where rows are clipped.
    updates: of every site, at most. prior_variance: of a weight; None for the model's own.
    epsilon, delta: suggested to the sites; delta None for the rule by number of rows.
    identity: made when the project is; tells federations with the same settings apart.
    """

    name: str
    sites: tuple[str, ...]
    schema: Schema
    rows: int
    host: str = "localhost"
    port: int = 8002
    updates: int = UPDATES
    prior_variance: float | None = None
    epsilon: float = 1.0
    delta: float | None = None
    stop: StoppingRule = dataclasses.field(default_factory=StoppingRule)
    identity: str = ""

    def __post_init__(self) -> None:
        for what, name in (("name", self.name), *(("a site's name", site) for site in self.sites)):
            check_name(what, name)
        if asking := self.schema.questions:
            raise InputError(
                f'Expected a schema by which no site refuses because of a row, got missing or unknown = "error" in '
                f"{', '.join(asking)}: a refusal is a noiseless answer. Use 'indicator', 'centre' or 'other'."
            )
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise InputError(f"Expected at least one site, and every one once, got {list(self.sites)}.")
        if not HOST.fullmatch(self.host):
            raise InputError(f"Expected the name or the address of the coordinator's host, got {self.host!r}.")
        whole("rows", self.rows, 2)
        whole("updates", self.updates, 1)
        whole("port", self.port, 1, 65535)
        positive("epsilon", self.epsilon)
        if self.prior_variance is not None:
            most = (LARGEST_PREDICTOR / (2 * self.schema.feature_bound)) ** 2
            in_range("prior_variance", self.prior_variance, 0, most, open_low=True)
        if self.delta is not None:
            in_range("delta", self.delta, 0, 1, open_low=True)

    @property
    def is_binary(self) -> bool:
        """Whether the target is one of two classes."""
        return isinstance(self.schema.target, BinaryTarget)

    @cached_property
    def recipe(self) -> Spec:
        """Model, prior and algorithm; the noise is left to every site's budget."""
        chosen = recipe(self.schema, self.rows, self.epsilon, self.updates)
        if self.prior_variance is None:
            return chosen
        return dataclasses.replace(chosen, prior=Gaussian.standard(self.schema.dim, self.prior_variance))

    @cached_property
    def digest(self) -> str:
        """Hash of everything that a site and the coordinator must agree on."""
        variance = None if self.prior_variance is None else float(self.prior_variance)
        agreed = [
            self.identity, self.name, self.schema.digest, self.rows, self.updates, variance, float(self.epsilon)
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(agreed).encode()).hexdigest()

    @property
    def largest(self) -> float:
        """The largest number that a release may hold: a thousand times what all rows together could say."""
        return 1e3 * self.rows * self.schema.dim

    @classmethod
    def load(cls, path: Path) -> Description:
        """Return the project in a TOML file, or in a folder with one."""
        path = path / FILE if path.is_dir() else path
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise InputError(f"Expected a federation at {path}, got no such file.") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"Cannot read {path}: {error}.") from None
        try:
            if not isinstance(content.get("schema"), str):
                raise InputError("Expected the key schema, the path of the feature schema.")
            return cls._from_content(content, Schema.load(path.parent / content["schema"]))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def _from_content(cls, content: dict[str, Any], schema: Schema) -> Description:
        tables = {"": {key: value for key, value in content.items() if not isinstance(value, dict)}}
        tables |= {key: value for key, value in content.items() if isinstance(value, dict)}
        for table, values in tables.items():
            _check_keys(table, values)
        top = tables[""]
        for key in ("name", "sites"):
            if key not in top:
                raise InputError(f"Expected the key {key}, got {', '.join(top) or 'none'}.")
        training = tables.get("training", {})
        if "rows" not in training:
            raise InputError("Expected the key rows in [training]: about how many rows all sites have together.")
        model = dict(tables.get("model", {}))
        fitting = MODELS[isinstance(schema.target, BinaryTarget)]
        if model.pop("kind", fitting) != fitting:
            raise InputError(f"Expected model.kind = {fitting!r} for the target of the schema, got another.")
        if not all(isinstance(site, str) for site in top["sites"]):
            raise InputError(f"Expected sites to be names, got {top['sites']}.")
        return cls(
            name=top["name"],
            sites=tuple(top["sites"]),
            schema=schema,
            identity=top.get("id", ""),
            stop=StoppingRule(**tables.get("stop", {})),
            **{**tables.get("coordinator", {}), **training, **model, **tables.get("privacy", {})},
        )

    def save(self, folder: Path) -> None:
        """Write the project and its schema into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(self._to_toml(), encoding="utf-8")
        self.schema.save(folder / SCHEMA_FILE)

    def to_text(self) -> str:
        """Return everything as one text."""
        return json.dumps({FILE: self._to_toml(), SCHEMA_FILE: self.schema.to_toml()})

    @classmethod
    def from_text(cls, text: str) -> Description:
        """Return the project that `to_text` wrote."""
        files = json.loads(text)
        return cls._from_content(tomllib.loads(files[FILE]), Schema.from_toml(files[SCHEMA_FILE], SCHEMA_FILE))

    def _to_toml(self) -> str:
        import tomli_w

        content: dict[str, Any] = {
            "name": self.name,
            "sites": list(self.sites),
            "schema": SCHEMA_FILE,
            "id": self.identity,
            "coordinator": {"host": self.host, "port": self.port},
            "model": {"kind": MODELS[self.is_binary]},
            "training": {"rows": self.rows, "updates": self.updates},
            "privacy": {"epsilon": self.epsilon},
            "stop": dataclasses.asdict(self.stop),
        }
        if self.prior_variance is not None:
            content["model"]["prior_variance"] = self.prior_variance
        if self.delta is not None:
            content["privacy"]["delta"] = self.delta
        return tomli_w.dumps(content)


def check_name(what: str, name: str) -> None:
    """Raise unless a federation or a site may have this name."""
    if not NAME.fullmatch(name) or name in RESERVED:
        raise InputError(
            f"Expected {what} of lower-case letters, digits and hyphens, and not one of "
            f"{', '.join(sorted(RESERVED))}; got {name!r}."
        )


def _check_keys(table: str, values: dict[str, Any]) -> None:
    if table not in KEYS:
        raise InputError(f"Unknown table [{table}]; allowed: {', '.join(filter(None, KEYS))}.{near(table, KEYS)}")
    for key, value in values.items():
        inside = f" in [{table}]" if table else ""
        if key not in KEYS[table]:
            allowed = KEYS[table]
            raise InputError(f"Unknown key {key}{inside}; allowed: {', '.join(allowed)}.{near(key, allowed)}")
        if not isinstance(value, KEYS[table][key]) or isinstance(value, bool):
            raise InputError(f"Expected another kind of value for {key}{inside}, got {value!r}.")
