"""What a fit leaves: the posterior with everything that is needed to predict by it and to know where it comes from.

    posterior = read(prior, questions, answers of all sites)          answers are kept, each with its site's record

A `Fitted` predicts for raw tables, because it carries its schema. It holds released answers and public values only. Its
file holds arrays and a JSON header, for any reader of safetensors, never pickle:

    header    format, model, families, schema and its hash, every site's record, privacy statement, plan, whether the
              fit has arrived, versions, and whether the noise came from a seed (which is not in the file)
    arrays    prior.*, posterior.*, factors.* (the answers of all sites, stacked), questions.*, evidence_kept

What is read is checked: the schema against its hash, shapes against schema and plan, numbers for being finite.
`verify` reads the answers once more and compares the posterior with what they say.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
import platform
import warnings
from collections.abc import Collection, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.checks import in_range, whole
from fedvi.config import build, find, kind_of, plain, search
from fedvi.errors import InputError
from fedvi.families.base import Factor, GaussianFamily
from fedvi.families.messages import Messages
from fedvi.fitting.answered import Answered
from fedvi.fitting.posterior_file import part_of, read_posterior, write_posterior
from fedvi.fitting.records import Coefficient, SiteRecord
from fedvi.inference.question import Question
from fedvi.inference.reading.base import PRIOR_DECIDES, Plan
from fedvi.models.base import Model
from fedvi.models.predictive import reach_of
from fedvi.pytree import leaves, tree_map
from fedvi.tables.counts import Counts
from fedvi.tables.encode import encode, encode_chunks
from fedvi.tables.reading.source import Source, open_table
from fedvi.tables.schema import Schema
from fedvi.tables.targets import Predictions

ROWS_AT_ONCE = 16_384
"""Rows whose predictions are made together."""

FORMAT = 4

CLOSE = 1e-2
"""Standard deviations by which two readings of the same answers may differ: machines round differently."""

PARTS = ("prior", "posterior", "factors")
PACKAGES = ("fedvi", "jax", "numpy")


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A posterior, its schema, and where it comes from; made by `fit`, or by `Fitted.load` from a file.

    model: with what was learned, such as the noise of a linear model.
    factors: answers of all sites, stacked in the order of `sites`. answered: how they were read.
    statement: what was promised about privacy, in plain words.
    simulated: whether its noise came from a seed, so that no promise about privacy holds for it.
    settings: what else is known about how it was made.
    counts: what happened to values of the tables, and `said`: how they were read. Not in the file: they tell of rows.
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
    answered: Answered
    counts: Counts | None = dataclasses.field(default=None, compare=False)
    said: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    def of_answers(
        cls,
        schema: Schema,
        plan: Plan,
        model: Any,
        prior: GaussianFamily,
        questions: Question,
        factors: Messages,
        **own: Any,
    ) -> Fitted:
        """Return the posterior that is read out of answers. model: as assumed. own: the other fields."""
        arrays = tree_map(np.asarray, (prior, questions, factors))
        answered, posterior = Answered.read(plan, model, *arrays)
        learned = model.learned(answered.noise_variance)
        return cls(schema, learned, arrays[0], arrays[2], posterior, answered=answered, **own)

    def __repr__(self) -> str:
        spent = [site.epsilon for site in self.sites if site.epsilon is not None]
        privacy = f"epsilon up to {max(spent):.3g}" if spent else "not private"
        sites = f"{len(self.sites)} sites, {len(self.schema.features)} features"
        simulated = ", simulated" if self.simulated else ""
        return f"Fitted({type(self.model).__name__} of {self.schema.target.predicted}: {sites}, {privacy}{simulated})"

    def predict(
        self, table: Source, *, level: float = 0.9, id_column: str | None = None, strict: bool = False
    ) -> Predictions:
        """Return predictions with credible intervals for the rows of a table, which needs no target.

        Values that the schema does not expect are clipped or count as others; columns with many of them are warned
        about. strict: refuse them instead.
        """
        parts, counts = list[Predictions](), Counts()
        for part, found in self.predict_chunks(table, level=level, id_column=id_column, strict=strict):
            parts.append(part)
            counts += found
        counts.warn(self.schema.expected)
        return Predictions.joined(parts)

    def predict_chunks(
        self, table: Source, *, level: float = 0.9, id_column: str | None = None, strict: bool = False
    ) -> Iterator[tuple[Predictions, Counts]]:
        """Do what `predict` does, chunk by chunk in bounded memory, each with what happened to its values."""
        in_range("level", level, 0.001, 0.999)
        reader = open_table(table, self.schema.dialect)
        for chunk in encode_chunks(self.schema, reader, target=False, strict=strict, id_column=id_column):
            counts = chunk.counts
            for start in range(0, len(chunk.x), ROWS_AT_ONCE):
                rows = slice(start, start + ROWS_AT_ONCE)
                ids: dict[str, Any] = {} if chunk.ids is None else {"ids": chunk.ids[rows], "id_column": str(id_column)}
                yield dataclasses.replace(self.predict_rows(chunk.x[rows], level), **ids), counts
                counts = Counts()

    def predict_rows(self, x: np.ndarray, level: float = 0.9) -> Predictions:
        """Return predictions for rows that the schema has encoded already."""
        found = self.model.predictions(self._double, np.asarray(x, np.float64), level)
        return self.schema.target.decode(**{name: np.asarray(column, np.float64) for name, column in found.items()})

    @functools.cached_property
    def _double(self) -> GaussianFamily:
        """The posterior in double precision, for predictions that need no JAX."""
        return tree_map(lambda leaf: np.asarray(leaf, np.float64), self.posterior)

    def evaluate(self, table: Source, *, strict: bool = False) -> dict[str, float]:
        """Return the scores of predictions for a table with known targets; those of numbers in their own units."""
        x, y = (encoded := encode(self.schema, table, strict=strict)).rows
        encoded.counts.warn(self.schema.expected)
        chunks = [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(x), ROWS_AT_ONCE)]
        model: Any = self.model
        predicted = [model.predictive(self._double, np.asarray(x[rows], np.float64)) for rows in chunks]
        likely = np.concatenate([each.log_prob(y[rows]) for each, rows in zip(predicted, chunks, strict=True)])
        whole = tree_map(lambda *parts: np.concatenate(parts), *predicted)
        scores = whole.scores(y) if hasattr(whole, "scores") else {}  # others know log probabilities only
        return self.schema.target.decode_scores({"log_likelihood": float(np.mean(likely)), **scores})

    def coefficients(self, level: float = 0.9) -> list[Coefficient]:
        """Return all weights by the name of their feature."""
        in_range("level", level, 0.001, 0.999)
        mean, std = (np.asarray(part, np.float64) for part in (self._double.mean, self._double.std))
        reach = reach_of(level) * std
        kept = self.answered.evidence_kept
        columns = (mean, std, mean - reach, mean + reach, np.asarray(kept))
        decided = (std > PRIOR_DECIDES * np.asarray(self.prior.std, np.float64)).tolist()
        numbers = ((*map(float, each), own) for each, own in zip(zip(*columns, strict=True), decided, strict=True))
        return [Coefficient(feature, *each) for feature, each in zip(self.schema.features, numbers, strict=True)]

    @property
    def converged(self) -> bool:
        """Whether the fit has arrived where it should be."""
        return self.answered.converged

    @property
    def convergence(self) -> str:
        """Whether the fit has arrived, in plain words and with the number."""
        return self.answered.convergence

    @property
    def warnings(self) -> list[str]:
        """What to know before intervals are believed; empty if there is nothing."""
        return self.answered.warnings

    @property
    def verdict(self) -> list[str]:
        """Lines for people: whether it has arrived, and all warnings."""
        arrived = [self.convergence] if self.converged else []  # else it is a warning
        return [*arrived, *(f"Warning: {each}" for each in self.warnings)]

    def verify(self) -> None:
        """Read the answers once more, and raise `InputError` if the posterior is not what they say."""
        own = self.answered
        found = own.again(self.prior, self.factors)
        numbers = (found.arrived, own.arrived), (found.noise_variance, own.noise_variance)
        one, other = found.posterior, self._double
        moved, stretched = np.max(np.abs(one.mean - other.mean) / other.std), np.max(np.abs(one.std / other.std - 1))
        close = all(np.isclose(*pair, rtol=CLOSE, atol=CLOSE) for pair in numbers)
        if not (close and moved < CLOSE and stretched < CLOSE):
            raise InputError(
                "Expected the posterior that its answers give in the posterior file, got another: means differ by up "
                f"to {moved:.2g} standard deviations."
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior file, atomically."""
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
            "answered": self.answered.header,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        }
        own = {"questions": self.answered.questions, "evidence_kept": self.answered.evidence_kept}
        write_posterior(path, header, {name: getattr(self, name) for name in PARTS} | own)

    @classmethod
    def load(cls, path: str | os.PathLike[str], kinds: Collection[str] = ()) -> Fitted:
        """Read a posterior file, or raise `InputError` if it is none, is damaged or does not agree with itself.

        kinds: own models, families, columns and targets that the file may name, such as "student_t:StudentT", installed
            or in the current directory. Building runs their code; others import nothing.
        """
        if kinds:
            search(Path())
        header, arrays = read_posterior(Path(path))
        try:
            if header["format"] != FORMAT:
                raise InputError(f"format {header['format']!r}, and this fedvi reads format {FORMAT}. Fit again.")
            schema = Schema.from_toml(header["schema"], "the schema in it", kinds)
            if schema.digest != header["schema_hash"]:
                raise InputError("its schema does not have the hash that it says")
            families = {name: find(header["families"][name], "family", f"families.{name}", kinds) for name in PARTS}
            fitted = cls(
                schema=schema,
                model=build(header["model"], "model", allow=kinds),
                **{name: part_of(name, families[name], arrays) for name in PARTS},
                sites=tuple(SiteRecord(**{**site, "events": tuple(site["events"])}) for site in header["sites"]),
                statement=str(header["privacy"]),
                simulated=bool(header["simulated"]),
                settings=header["settings"],
                answered=Answered.of_file(header["answered"], arrays, kinds),
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
        normals = np.random.default_rng(seed).standard_normal((chains, draws, self.schema.dim))
        coordinates: Any = self._double.coordinates()
        found = {"weight": np.asarray(coordinates.transform(normals))}
        names: dict[str, Any] = {"coords": {"feature": list(self.schema.features)}, "dims": {"weight": ["feature"]}}
        attrs = {"made_by": "fedvi", "schema": self.schema.digest, "independent_draws": "yes"}
        if arviz.__version__.startswith("0."):
            return arviz.from_dict(posterior=found, attrs=attrs, **names)
        return arviz.from_dict({"posterior": found}, attrs={"posterior": attrs}, **names)


def _check(fitted: Fitted) -> None:
    dim, sites, own = len(fitted.schema.features), len(fitted.sites), fitted.answered
    shapes: dict[str, tuple[int, ...]] = {"prior.natural_mean": (dim,), "posterior.natural_mean": (dim,)}
    shapes |= own.shapes(dim, sites)
    for name, wanted in shapes.items():
        found = operator.attrgetter(name)(fitted).shape
        if found != wanted:
            raise InputError(f"its {name} has shape {found}, the schema and the plan ask for {wanted}")
    parts = {name: getattr(fitted, name) for name in PARTS} | {"questions": own.questions}
    for name, part in {**parts, "reading": (own.limit, own.noise_variance, own.evidence_kept)}.items():
        if not all(np.isfinite(leaf).all() for leaf in leaves(part)):
            raise InputError(f"its {name} holds NaN or infinity")
    if not (bool(fitted.prior.is_proper()) and bool(fitted.posterior.is_proper())):
        raise InputError("its prior or posterior is improper")
