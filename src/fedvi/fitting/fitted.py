"""What a fit leaves: the posterior with everything that is needed to predict by it and to know where it comes from.

    posterior = prior * t_1 * ... * t_M             the factors are kept, each with its site's record

A `Fitted` predicts for raw tables, because it carries its schema. It holds released factors and public values only.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Collection, Iterator
from os import PathLike
from typing import Any

import numpy as np

from fedvi.checks import in_range, whole
from fedvi.compiling import jax
from fedvi.errors import InputError
from fedvi.families.base import Factor, GaussianFamily
from fedvi.models.base import Model
from fedvi.models.predictive import reach_of
from fedvi.numerics import namespace
from fedvi.privacy.events import to_json
from fedvi.privacy.ledger.statement import Spent
from fedvi.pytree import tree_map
from fedvi.tables.encode import encode, encode_chunks
from fedvi.tables.read import Source
from fedvi.tables.schema import Schema
from fedvi.tables.targets import Predictions

ROWS_AT_ONCE = 16_384
"""Rows whose predictions are made together."""


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

    @classmethod
    def of(cls, name: str, rows: int, updates: int, schema: str, spent: Spent | None) -> SiteRecord:
        """Return the record of a site that has spent so much."""
        if spent is None:
            return cls(name, rows, updates, schema, None, None, None, ())
        events = tuple({**to_json(event), "count": count} for event, count in spent.events)
        return cls(name, rows, updates, schema, spent.epsilon, spent.epsilon_max, spent.delta, events)


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

    def save(self, path: str | PathLike[str]) -> None:
        """Write the posterior file, atomically."""
        from fedvi.fitting.posterior_file import save

        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str], kinds: Collection[str] = ()) -> Fitted:
        """Read a posterior file, or raise `InputError`.

        kinds: own models, families, columns and targets that the file may name, such as "student_t:StudentT", installed
            or in the current directory. Building runs their code; others import nothing.
        """
        from fedvi.fitting.posterior_file import load

        return load(path, kinds)

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
