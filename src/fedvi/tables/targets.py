"""Targets of a schema: what is predicted, and by which model. A new kind of target is one class here.

category    -1 or +1 for two values                     logistic regression
number      (clip(value, low, high) - centre) / scale   linear regression; scale is the noise around the line
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from fedvi.errors import InputError
from fedvi.tables.parts import Counts, Listed, Part, Scaled
from fedvi.tables.read import Chunk
from fedvi.tables.words import plain

if TYPE_CHECKING:
    from fedvi.models.base import Model

SIGNS = np.array([-1, 1], np.float32)
"""The two classes of a target."""

Columns = dict[str, np.ndarray]
"""Columns of predictions by their name."""


class Target(Part):
    """What is predicted. comments: on keys in the schema's file."""

    kinds: ClassVar[dict[str, type[Any]]] = {}
    missing = "target"
    comments: ClassVar[Mapping[str, str]] = {}

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the values that it can have; none for numbers."""
        return ()

    @property
    @abstractmethod
    def unit(self) -> str:
        """What coefficients are measured in."""

    @abstractmethod
    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, " n"]:
        """Return y of all rows; NaN where there is none, if the chunk is not strict."""

    @abstractmethod
    def model(self) -> Model:
        """Return the model that predicts y."""

    def class_counts(self, y: np.ndarray) -> dict[str, int]:  # noqa: ARG002 - numbers have no classes
        """Return how many rows each class has."""
        return {}

    def decode(self, columns: Columns) -> Columns:
        """Return what a model predicts (`mean`, `low`, `high`) as people read it."""
        return columns

    def decode_scores(self, scores: dict[str, float]) -> dict[str, float]:
        """Return scores of predictions of y in the target's own units."""
        return scores

    def in_units(self, weights: np.ndarray, intercept: float) -> tuple[np.ndarray, float]:
        """Return coefficients that predict the target in its own units."""
        return weights, intercept

    def known(self, y: np.ndarray, missing: np.ndarray | None, chunk: Chunk) -> np.ndarray:
        """Return y with NaN where the target is missing; refuse that if the chunk is strict."""
        if missing is not None and missing.any():
            if chunk.strict:
                where = chunk.place(int(np.argmax(missing)), self.name)
                raise InputError(f"Expected a value in {where}, the target, got none. Leave such rows out.")
            y[missing] = np.nan
        return y


@dataclass(frozen=True)
class BinaryTarget(Listed, Target, kind="category"):
    """A target of two classes; the second one is the one whose probability is predicted."""

    comments: ClassVar = {"values": "the second one is the one whose probability is predicted"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.values) != 2:
            got = ", ".join(self.values) or "nothing"
            raise InputError(f"Expected two values of target {self.name!r}, got {len(self.values)}: {got}.")

    @property
    def classes(self) -> tuple[str, ...]:
        """Both values."""
        return self.values

    @property
    def unit(self) -> str:
        """Log odds."""
        return f"log odds of {self.name} = {self.values[1]}"

    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, " n"]:
        """Return -1 for the first value and +1 for the second one."""
        codes, missing, unknown = self.codes(chunk, **self._spellings())
        y = SIGNS.take(codes, mode="clip")
        counts.add(missing={self.name: 0 if missing is None else int(missing.sum())})
        if missing is None or unknown is None:
            return y
        if not chunk.strict:
            counts.add(unknown={self.name: int(unknown.sum())})
            missing |= unknown
        elif unknown.any():
            row = int(np.argmax(unknown))
            raise InputError(
                f"Expected {self.values[0]!r} or {self.values[1]!r} in {chunk.place(row, self.name)}, the target, "
                f"got {chunk.texts[self.name].word(row)!r}. Leave such rows out, or correct values in the schema."
            )
        return self.known(y, missing, chunk)

    def _spellings(self) -> dict[str, int]:
        """Return other words for the classes: 0 and 1 mean false and true, and the other way round."""
        words = [plain(value) for value in self.values]
        if set(words) not in ({"0", "1"}, {"false", "true"}):
            return {}
        first = int(words[0] in ("1", "true"))
        return {word: code ^ first for pair in (("0", "1"), ("false", "true")) for code, word in enumerate(pair)}

    def model(self) -> Model:
        """Return logistic regression."""
        from fedvi.models.logistic import LogisticRegression

        return LogisticRegression(predictive_link="exact")

    def class_counts(self, y: np.ndarray) -> dict[str, int]:
        """Return how many rows each class has."""
        positive = int((y > 0).sum())
        return {self.values[0]: len(y) - positive, self.values[1]: positive}

    def decode(self, columns: Columns) -> Columns:
        """Return the more probable class, and the probability of the second one with its interval."""
        labels = np.array(self.values)[(columns["mean"] > 0.5).astype(int)]
        return {"prediction": labels, "probability": columns["mean"], "low": columns["low"], "high": columns["high"]}


@dataclass(frozen=True)
class NumberTarget(Scaled, Target, kind="number"):
    """A target that is a number; `scale` is its standard deviation around the line, in its own units."""

    comments: ClassVar = {"scale": "the standard deviation of the target around the line"}

    @property
    def unit(self) -> str:
        """Scales of the target."""
        return f"{self.name} in units of {self.scale:g}"

    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, " n"]:
        """Return the clipped and scaled numbers."""
        y, missing = self.scaled(chunk, counts)
        return self.known(y.astype(np.float32), missing, chunk)

    def model(self) -> Model:
        """Return linear regression: y is in units of its noise."""
        from fedvi.models.linear import LinearRegression

        return LinearRegression(1.0)

    def decode(self, columns: Columns) -> Columns:
        """Return expected numbers and intervals of the numbers themselves."""
        mean, low, high = (self.centre + self.scale * columns[name] for name in ("mean", "low", "high"))
        return {"prediction": mean, "low": low, "high": high}

    def decode_scores(self, scores: dict[str, float]) -> dict[str, float]:
        """Return the error in the target's units, and the density per unit."""
        changed = {
            "rmse": scores["rmse"] * self.scale,
            "log_likelihood": scores["log_likelihood"] - math.log(self.scale),
        }
        return {**scores, **changed}

    def in_units(self, weights: np.ndarray, intercept: float) -> tuple[np.ndarray, float]:
        """Return coefficients times the scale, around the centre."""
        return self.scale * weights, self.centre + self.scale * intercept
