"""What a fit leaves: the posterior with everything that is needed to predict by it and to know where it comes from.

    posterior = prior * t_1 * ... * t_M             the factors are kept, each with its site's record

A `Fitted` predicts for raw tables, because it carries its schema. It holds released factors and public values only. Its
file holds arrays and a JSON header, for any reader of safetensors, never pickle:

    header    format, model, families, schema and its hash, every site's record, privacy statement, versions, and
              whether the noise came from a seed (which is not in the file)
    arrays    prior.*, posterior.*, factors.* (the factors of all sites, stacked)

What is read is checked: the schema against its hash, shapes against the schema, and the posterior against the product
of prior and factors.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import platform
import warnings
from collections.abc import Collection, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.checks import in_range, whole
from fedvi.compiling import jax
from fedvi.config import Allow, build, find, kind_of, plain, search
from fedvi.errors import InputError
from fedvi.families.base import Factor, GaussianFamily
from fedvi.files import write
from fedvi.models.base import Model
from fedvi.models.predictive import reach_of
from fedvi.numerics import namespace
from fedvi.pytree import leaves, tree_map
from fedvi.tables.encode import encode, encode_chunks
from fedvi.tables.read import Source
from fedvi.tables.schema import Schema
from fedvi.tables.targets import Predictions

ROWS_AT_ONCE = 16_384
"""Rows whose predictions are made together."""

FORMAT = 3
READABLE = (1, 2, FORMAT)
KEY = "fedvi"
LARGEST = 1 << 30
"""Bytes; a larger file is no posterior of ours."""

PACKAGES = ("fedvi", "jax", "numpy")
PARTS = ("prior", "posterior", "factors")


@dataclasses.dataclass(frozen=True)
class SiteRecord:
    """Where one factor comes from.

    rows: that the site declared. schema: hash of the schema that the site encoded its rows by.
    epsilon, delta: what the site spent; None if nothing was private. events: on what.
    """

    name: str
    rows: int
    updates: int
    schema: str
    epsilon: float | None
    epsilon_max: float | None
    delta: float | None
    events: tuple[dict[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Coefficient:
    """One weight of the posterior, in units of the schema's scales.

    evidence_kept: share of the sites' evidence about it that privacy noise has left, 0 to 1; 1 without privacy.
    """

    feature: str
    mean: float
    std: float
    low: float
    high: float
    evidence_kept: float


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A posterior, its schema, and where it comes from; made by `fit`, or by `Fitted.load` from a file.

    factors: of all sites, stacked in the order of `sites`.
    statement: what was promised about privacy, in plain words.
    simulated: whether its noise came from a seed, so that no promise about privacy holds for it.
    settings: what else is known about how it was made.
    """

    schema: Schema
    model: Model
    prior: GaussianFamily
    factors: Factor
    posterior: GaussianFamily
    sites: tuple[SiteRecord, ...]
    statement: str
    simulated: bool
    settings: dict[str, Any]

    def __repr__(self) -> str:
        spent = [site.epsilon for site in self.sites if site.epsilon is not None]
        privacy = f"epsilon up to {max(spent):.3g}" if spent else "not private"
        sites = f"{len(self.sites)} sites, {len(self.schema.features)} features"
        simulated = ", simulated" if self.simulated else ""
        return f"Fitted({type(self.model).__name__} of {self.schema.target.name!r}: {sites}, {privacy}{simulated})"

    def predict(
        self, table: Source, *, level: float = 0.9, id_column: str | None = None, encoding: str = "utf-8"
    ) -> Predictions:
        """Return predictions with credible intervals for the rows of a table, which needs no target."""
        parts = list(self.predict_chunks(table, level=level, id_column=id_column, encoding=encoding))
        names = [field.name for field in dataclasses.fields(Predictions) if getattr(parts[0], field.name) is not None]
        return Predictions(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def predict_chunks(
        self, table: Source, *, level: float = 0.9, id_column: str | None = None, encoding: str = "utf-8"
    ) -> Iterator[Predictions]:
        """Do what `predict` does, chunk by chunk in bounded memory."""
        in_range("level", level, 0.001, 0.999)
        for chunk in encode_chunks(self.schema, table, site_column=id_column, target=False, encoding=encoding):
            for start in range(0, len(chunk.x), ROWS_AT_ONCE):
                rows = slice(start, start + ROWS_AT_ONCE)
                ids = None if chunk.sites is None else chunk.sites[rows]
                yield dataclasses.replace(self.predict_rows(chunk.x[rows], level), ids=ids)

    def predict_rows(self, x: np.ndarray, level: float = 0.9) -> Predictions:
        """Return predictions for rows that the schema has encoded already."""
        found = self.model.predictions(self._double, np.asarray(x, np.float64), level)
        return self.schema.target.decode(**{name: np.asarray(column, np.float64) for name, column in found.items()})

    @functools.cached_property
    def _double(self) -> GaussianFamily:
        """The posterior in double precision, for predictions that need no JAX."""
        return tree_map(lambda leaf: np.asarray(leaf, np.float64), self.posterior)

    def evaluate(self, table: Source, *, encoding: str = "utf-8") -> dict[str, float]:
        """Return the scores of predictions for a table with known targets; those of numbers in their own units."""
        from fedvi.inference.rows import evaluate

        x, y = encode(self.schema, table, encoding=encoding).rows
        return self.schema.target.decode_scores(evaluate(self.model, self.posterior, x, y))

    def coefficients(self, level: float = 0.9) -> list[Coefficient]:
        """Return all weights by the name of their feature."""
        in_range("level", level, 0.001, 0.999)
        mean, std = (np.asarray(part, np.float64) for part in (self.posterior.mean, self.posterior.std))
        reach = reach_of(level) * std
        kept = np.asarray(product_of(self.factors).evidence_kept(), np.float64)
        columns = zip(self.schema.features, mean, std, mean - reach, mean + reach, kept, strict=True)
        return [Coefficient(feature, *map(float, numbers)) for feature, *numbers in columns]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior file, atomically."""
        from safetensors.numpy import save as to_bytes

        header = {
            "format": FORMAT,
            "model": plain(self.model),
            "families": {name: kind_of(type(getattr(self, name))) for name in PARTS},
            "schema": self.schema.to_toml(),
            "schema_hash": self.schema.digest,
            "features": self.schema.features,
            "sites": [dataclasses.asdict(site) for site in self.sites],
            "privacy": self.statement,
            "simulated": self.simulated,
            "settings": self.settings,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        }
        arrays = {
            f"{name}.{field.name}": np.ascontiguousarray(getattr(getattr(self, name), field.name))
            for name in PARTS
            for field in dataclasses.fields(getattr(self, name))
        }
        write(path, to_bytes(arrays, {KEY: json.dumps(header)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str], kinds: Collection[str] = ()) -> Fitted:
        """Read a posterior file, or raise `InputError` if it is none, is damaged or does not agree with itself.

        kinds: own models, families, columns and targets that the file may name, such as "student_t:StudentT", installed
            or in the current directory. Building runs their code; others import nothing.
        """
        if kinds:
            search(Path())
        header, arrays = _read(Path(path))
        try:
            if header["format"] not in READABLE:
                raise InputError(f"format {header['format']!r}, and this fedvi reads formats {READABLE}")
            schema = Schema.from_toml(header["schema"], "the schema in it", kinds)
            if schema.digest != header["schema_hash"]:
                raise InputError("its schema does not have the hash that it says")
            fitted = cls(
                schema=schema,
                model=build(header["model"], "model", allow=kinds),
                **{name: _part(name, header["families"][name], arrays, kinds) for name in PARTS},
                sites=tuple(SiteRecord(**{**site, "events": tuple(site["events"])}) for site in header["sites"]),
                statement=str(header["privacy"]),
                simulated=bool(header.get("simulated", "seed" in header["settings"])),
                settings={key: value for key, value in header["settings"].items() if key != "seed"},
            )
            _check(fitted)
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # InputError is a ValueError
            reason = f"no {error}" if isinstance(error, KeyError) else error
            raise InputError(f"Cannot use {os.fspath(path)!r} as a fedvi posterior: {reason}") from None
        return fitted

    def to_arviz(self, draws: int = 1000, chains: int = 4, seed: int = 0) -> Any:
        """Return draws from the posterior for ArviZ: an InferenceData, or from version 1 on a DataTree of xarray.

        Needs ArviZ: `pip install 'fedvi[arviz]'`.
        """
        whole("draws", draws, 1)
        whole("chains", chains, 1)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # once a day it announces its next version
                import arviz
        except ImportError:
            raise InputError("ArviZ is not installed. Install it with: pip install 'fedvi[arviz]'") from None
        weights = self.posterior.sample(jax.random.key(seed), (chains, draws))
        found = {"weight": np.asarray(weights, np.float64)}
        names: dict[str, Any] = {"coords": {"feature": list(self.schema.features)}, "dims": {"weight": ["feature"]}}
        attrs = {"made_by": "fedvi", "schema": self.schema.digest, "independent_draws": "yes"}
        if arviz.__version__.startswith("0."):
            return arviz.from_dict(posterior=found, attrs=attrs, **names)
        return arviz.from_dict({"posterior": found}, attrs={"posterior": attrs}, **names)


def product_of(factors: Factor) -> Factor:
    """Return the product of stacked factors, summed in double precision."""
    return tree_map(
        lambda leaf: namespace(leaf).asarray(np.sum(np.asarray(leaf, np.float64), axis=0), dtype=leaf.dtype), factors
    )


def posterior_of(prior: GaussianFamily, factors: Factor) -> GaussianFamily:
    """Return `prior * t_1 * ... * t_M` for stacked factors."""
    return product_of(factors).posterior(prior)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a posterior file."""
    return _read(Path(path))[0]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"Expected a fedvi posterior of at most {LARGEST} bytes, got {path.stat().st_size}.")
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[KEY])
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except FileNotFoundError:
        raise InputError(f"Expected a posterior file at '{path}', got none. Make one with fedvi fit.") from None
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from None
    except (SafetensorError, KeyError, json.JSONDecodeError, UnicodeDecodeError):
        raise InputError(f"'{path}' is not a fedvi posterior, or it is damaged.") from None


def _part(name: str, kind: str, arrays: dict[str, np.ndarray], kinds: Allow) -> Any:
    family = find(kind, "family", f"families.{name}", kinds)
    return family(*(np.asarray(arrays[f"{name}.{field.name}"]) for field in dataclasses.fields(family)))


def _check(fitted: Fitted) -> None:
    dim, sites = len(fitted.schema.features), len(fitted.sites)
    for name, lead in (("prior", ()), ("posterior", ()), ("factors", (sites,))):
        part = getattr(fitted, name)
        if part.natural_mean.shape != (*lead, dim):
            raise InputError(f"its {name} has shape {part.natural_mean.shape}, the schema asks for {(*lead, dim)}")
        if not all(np.isfinite(leaf).all() for leaf in leaves(part)):
            raise InputError(f"its {name} holds NaN or infinity")
    if not (bool(fitted.prior.is_proper()) and bool(fitted.posterior.is_proper())):
        raise InputError("its prior or posterior is improper")
    product = posterior_of(fitted.prior, fitted.factors)
    pairs = zip(leaves(product), leaves(fitted.posterior), strict=True)
    if not all(
        np.allclose(one, other, rtol=1e-4, atol=1e-4 * (1 + float(np.max(np.abs(other))))) for one, other in pairs
    ):
        raise InputError("its posterior is not the product of its prior and factors")
