"""A federation as its coordinator describes it, in one TOML file, and as every site gets it when it joins.

Everything that sites must agree on follows from it: the resolved `Spec`, whose digest every message names. What it says
about privacy is a suggestion; every site decides by itself, and its ledger alone enforces it.

A description that another party wrote is read with `kinds`: models and columns neither fedvi's own nor in that list are
refused before anything is imported.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from fedvi.checks import in_range, one_of, positive, unknown, whole
from fedvi.config import Allow, build, check_keys, check_kinds, convert, fill, kind_of, read_toml
from fedvi.errors import InputError
from fedvi.federation.names import NAME, check_name, check_place
from fedvi.federation.store.turns import Start, StoppingRule
from fedvi.files import digest
from fedvi.inference.algorithms import LARGEST_PREDICTOR
from fedvi.inference.questions import Question
from fedvi.inference.reading import Plan
from fedvi.inference.spec import SMALLEST_SD, Spec, checked_priors, default_spec
from fedvi.privacy.budget import Budget
from fedvi.pytree import take
from fedvi.tables.schema import Schema

FORMAT = 5
FILE, SCHEMA_FILE = "federation.toml", "schema.toml"
MODELS = {"logistic": "LogisticRegression", "linear": "LinearRegression"}
"""Names for the target's own model, and its kind."""

MOST_UPDATES = 1000
KEYS = (
    "format",
    "name",
    "sites",
    "schema",
    "id",
    "coordinator",
    "model",
    "training",
    "plan",
    "privacy",
    "start",
    "stop",
)
TABLES = {
    "coordinator": ("url", "tls"),
    "plan": ("reserve",),
    "training": ("rows", "updates", "moments", "covariance"),
    "privacy": ("epsilon", "delta"),
}


@dataclasses.dataclass(frozen=True)
class Description:
    """One federation.

    rows: of all sites together, about; with epsilon it decides what is asked.
    url: where sites reach the coordinator over HTTPS; empty if all come over an engine. tls: whose certificate is
        there: `own`, the coordinator's; `system`, one that the system trusts; or the SHA-256 of a proxy's.
    reserve: how many of the questions are kept for the time after a withdrawal.
    model: its kind and arguments as a table; None for the target's own model.
    updates, moments, covariance: of the plan (`NoiseAwarePVI`): how many questions, how many of them about moments of
        the rows, and what is read; None and `auto` for the plan's own. A federation's own file has what was chosen.
    prior_sd: standard deviation of a weight; None for the model's own. priors: mean and standard deviation by column.
    epsilon, delta: suggested to the sites; delta None for the rule by number of rows.
    identity: made when the federation is; tells federations with the same settings apart.
    kinds: beyond fedvi's own, that may be built here; None for all.
    """

    name: str
    sites: tuple[str, ...]
    schema: Schema
    rows: int
    url: str = "https://localhost:8443"
    tls: str = "own"
    reserve: int = 0
    updates: int | None = None
    moments: int | None = None
    covariance: str = "auto"
    prior_sd: float | None = None
    priors: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    epsilon: float = 1.0
    delta: float | None = None
    start: Start = dataclasses.field(default_factory=Start)
    stop: StoppingRule = dataclasses.field(default_factory=StoppingRule)
    identity: str = ""
    model: Mapping[str, Any] | None = None
    kinds: Allow = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_name("name", self.name, NAME)
        for site in self.sites:
            check_name("a site's name", site)
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise InputError(f"Expected at least one site, and every one once, got {list(self.sites)}.")
        check_place(self.url, self.tls)
        if asking := self.schema.questions:
            raise InputError(
                f'Expected a schema by which no site refuses because of a row, got missing or unknown = "error" in '
                f"{', '.join(asking)}: a refusal is a noiseless answer. Numbers may have 'centre' or "
                "'indicator', categories 'reference', 'other' or 'missing'."
            )
        whole("rows", self.rows, 2)
        if self.updates is not None:
            whole("updates", self.updates, 2, MOST_UPDATES)
        if self.moments is not None:
            whole("moments", self.moments, 1)
        whole("plan.reserve", self.reserve, 0, (self.updates or MOST_UPDATES) - 2)
        one_of("covariance", self.covariance, ("auto", "full", "diagonal"))
        self.start.check(self.sites)
        positive("epsilon", self.epsilon)
        if self.prior_sd is not None:
            in_range("prior_sd", self.prior_sd, SMALLEST_SD, LARGEST_PREDICTOR / (2 * self.schema.feature_bound))
        checked_priors(self.schema, self.priors)
        if self.delta is not None:
            in_range("delta", self.delta, 0, 1, open_low=True)
        check_kinds(self.model, "model", allow=self.kinds)

    @cached_property
    def plan(self) -> Plan:
        """Which questions are asked: the same whatever the model is."""
        rows, budget = self.share
        everybody = [rows] * len(self.sites), [budget] * len(self.sites)
        chosen = default_spec(
            self.schema, *everybody, self.updates or 0, covariance=self.covariance, moments=self.moments or 0
        )
        plan = chosen.algorithm.plan
        whole("plan.reserve", self.reserve, 0, plan.questions - 2)
        return dataclasses.replace(plan, reserve=self.reserve)

    @cached_property
    def spec(self) -> Spec:
        """What all agree on, resolved; the noise is left to every site's budget."""
        model = None if self.model is None else build(self.model, "model", allow=self.kinds)
        plan = self.plan
        chosen = plan.questions, model, self.prior_sd, plan.covariance, plan.moments, self.priors
        spec = default_spec(self.schema, [self.rows], [self.share[1]], *chosen)
        return dataclasses.replace(spec, algorithm=dataclasses.replace(spec.algorithm, reserve=self.reserve))

    @property
    def share(self) -> tuple[int, Budget]:
        """Rows and budget of a site as they were suggested, if all sites have equally many rows."""
        rows = max(self.rows // len(self.sites), 2)
        return rows, Budget(self.epsilon, "auto" if self.delta is None else self.delta).fixed(rows)

    @cached_property
    def form(self) -> Question:
        """A question: the first one."""
        first = self.spec.algorithm.first_asked(self.spec.model, self.spec.prior)
        return take(first.questions, 0)

    @cached_property
    def digest(self) -> str:
        """Hash of everything that a site and the coordinator must agree on, with all defaults as they are here."""
        return digest([FORMAT, self.identity, self.name, self.rows, float(self.epsilon), self.spec.plain])

    @classmethod
    def load(cls, path: Path, kinds: Allow = ()) -> Description:
        """Return the federation in a TOML file, or in a folder with one.

        kinds: beyond fedvi's own, that may be built; None for all, if the file is one's own.
        """
        path = path / FILE if path.is_dir() else path
        content = read_toml(path, "a federation")
        try:
            if not isinstance(content.get("schema"), str):
                raise InputError("Expected the key schema, the path of the feature schema.")
            if kinds is not None and content["schema"] != SCHEMA_FILE:  # another party must not choose what is read
                raise InputError(f"Expected schema = {SCHEMA_FILE!r} from a coordinator, got {content['schema']!r}.")
            return cls._from_content(content, Schema.load(path.parent / content["schema"], kinds), kinds)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def _from_content(cls, content: dict[str, Any], schema: Schema, kinds: Allow) -> Description:
        check_keys(content, KEYS)
        top = {key: content[key] for key in ("name", "sites") if key in content}
        values = convert(cls, top | {"identity": content.get("id", "")})
        if content.get("format", 1 if content.get("id") else FORMAT) != FORMAT:
            raise InputError(
                f"Expected format = {FORMAT}, got {content.get('format', 1)!r}: this federation was made by another "
                "version of fedvi. Go on with that version, or make a new federation."
            )
        for table, keys in TABLES.items():
            check_keys(_table(content, table), keys, table)
            values |= convert(cls, _table(content, table), table)
        for key, where in {"name": "name", "sites": "sites", "rows": "training.rows"}.items():
            if key not in values:
                raise InputError(f"Expected {where}, got nothing. Required: name, sites, schema, training.rows.")
        model = content.get("model", {})
        model = {"kind": model} if isinstance(model, str) else dict(_table(content, "model"))
        values |= convert(cls, {key: model.pop(key) for key in ("prior_sd", "priors") if key in model}, "model")
        if (kind := model.get("kind")) in MODELS:
            own = kind_of(type(schema.target.model()))
            if MODELS[kind] != own:
                raise InputError(f"Expected model.kind = {own!r} for the target of the schema, got {kind!r}.")
            del model["kind"]
        if model and "kind" not in model:
            raise unknown(
                f"model.{next(iter(model))}", None, ("prior_sd", "priors", "kind, and then its own arguments")
            )
        start = fill(Start, _table(content, "start"), "start")
        stop = fill(StoppingRule, _table(content, "stop"), "stop")
        return cls(schema=schema, start=start, stop=stop, model=model or None, kinds=kinds, **values)

    def save(self, folder: Path) -> None:
        """Write the federation and its schema into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(self._to_toml(), encoding="utf-8")
        self.schema.save(folder / SCHEMA_FILE)

    def to_text(self) -> str:
        """Return everything as one text."""
        return json.dumps({FILE: self._to_toml(), SCHEMA_FILE: self.schema.to_toml()})

    @classmethod
    def from_text(cls, text: str) -> Description:
        """Return the federation that `to_text` wrote: one's own."""
        files = files_of(text)
        content = tomllib.loads(files[FILE])
        if content.get("format") == 4:  # of a federation with kits: nobody goes there any more
            content |= {"format": FORMAT, "coordinator": {"url": ""}}
        return cls._from_content(content, Schema.from_toml(files[SCHEMA_FILE], SCHEMA_FILE), None)

    def _to_toml(self) -> str:
        import tomli_w

        def given(**values: Any) -> dict[str, Any]:
            return {key: value for key, value in values.items() if value is not None}

        plan = self.plan  # as it is now: sites that are added later do not change it
        content: dict[str, Any] = {
            "format": FORMAT,
            "name": self.name,
            "sites": list(self.sites),
            "schema": SCHEMA_FILE,
            "id": self.identity,
            "coordinator": {"url": self.url, "tls": self.tls},
            "plan": {"reserve": self.reserve},
            "model": {**(self.model or {}), **given(prior_sd=self.prior_sd, priors=_plain(self.priors) or None)},
            "training": {"rows": self.rows, "updates": plan.questions, "moments": plan.moments}
            | {"covariance": plan.covariance},
            "privacy": given(epsilon=float(self.epsilon), delta=self.delta),
            "start": dataclasses.asdict(self.start),
            "stop": dataclasses.asdict(self.stop),
        }
        return tomli_w.dumps(content)


def files_of(text: str) -> dict[str, str]:
    """Return name and content of the two files in a text that `to_text` wrote, or raise `InputError`."""
    try:
        files = json.loads(text)
    except (ValueError, RecursionError):
        files = None
    if not isinstance(files, dict) or set(files) != {FILE, SCHEMA_FILE}:
        raise InputError(f"Expected {FILE} and {SCHEMA_FILE} of a federation, got something else.")
    return {name: str(content) for name, content in files.items()}


def _plain(priors: Mapping[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {name: [float(number) for number in pair] for name, pair in priors.items()}


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of the file, empty if it has none."""
    table = content.get(name, {})
    if not isinstance(table, Mapping):
        raise InputError(f"Expected a table [{name}], got {table!r}.")
    return table
