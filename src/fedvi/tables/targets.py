"""Targets of a schema: what is predicted, by which model, and how people read the predictions.

category    -1 or +1 for two values                     logistic regression
number      (clip(value, low, high) - centre) / scale   linear regression; scale is the noise around the line

A target of your own is a frozen dataclass, a subclass of `Target`; a schema names it by `kind = "module:Class"`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from fedvi.errors import InputError
from fedvi.tables.counts import Counts
from fedvi.tables.parts import Listed, Part, Scaled
from fedvi.tables.reading.chunk import Chunk

if TYPE_CHECKING:
    from fedvi.models.base import Model

SIGNS = np.array([-1, 1], np.float32)
"""The two classes of a target."""


@dataclass(frozen=True)
class Predictions:
    """Predictions for the rows of a table, in their order.

    mean: probability of the event, or the expected number.
    low, high: ends of the credible interval: of that probability, or of the number itself.
    labels: the more probable class of every row; None for numbers. event: the class whose probability is meant.
    ids: the values of a column that was asked for; None without one. id_column: its name.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    labels: np.ndarray | None = None
    ids: np.ndarray | None = None
    event: str = ""
    id_column: str = "id"

    def __repr__(self) -> str:
        what = "" if self.labels is None else f"probability of {self.event!r}, "
        return f"Predictions({len(self.mean)} rows, {what}mean {np.mean(self.mean):.4g}; see columns())"

    @classmethod
    def joined(cls, parts: Sequence[Predictions]) -> Predictions:
        """Return the predictions of one table, which came in parts."""
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("mean", "low", "high", "labels", "ids")
            if getattr(parts[0], name) is not None
        }
        return replace(parts[0], **arrays)

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns as `fedvi predict` writes them, for `pandas.DataFrame(...)` and the like."""
        ends = {"low": self.low, "high": self.high}
        if self.labels is None:
            found = {"prediction": self.mean, **ends}
        else:
            event = np.full(len(self.mean), self.event)
            found = {"prediction": self.labels, "event": event, "probability": self.mean, **ends}
        if self.ids is None:
            return found
        if self.id_column in found:
            raise InputError(
                f"Expected a column of identifiers with another name than a prediction, got {self.id_column!r}."
            )
        return {self.id_column: self.ids, **found}


class Target(Part):
    """What is predicted."""

    missing = "target"

    @property
    @abstractmethod
    def unit(self) -> str:
        """What coefficients are measured in."""

    @property
    def predicted(self) -> str:
        """What is predicted, in words."""
        return self.name

    @abstractmethod
    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, " n"]:
        """Return y of all rows; NaN where there is none, if the chunk is not strict."""

    @abstractmethod
    def model(self) -> Model:
        """Return the model that predicts y."""

    def class_counts(self, y: np.ndarray) -> dict[str, int]:  # numbers have no classes
        """Return how many rows each class has."""
        return {}

    def decode(self, mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> Predictions:
        """Return what a model predicts of y as people read it."""
        return Predictions(mean, low, high)

    def decode_scores(self, scores: dict[str, float]) -> dict[str, float]:
        """Return scores of predictions of y in the target's own units."""
        return scores

    def in_units(self, weights: np.ndarray, intercept: float) -> tuple[np.ndarray, float]:
        """Return coefficients that predict the target in its own units."""
        return weights, intercept

    def known(self, y: np.ndarray, missing: Bool[np.ndarray, " n"], chunk: Chunk) -> np.ndarray:
        """Return y with NaN where the target is missing or unusable; refuse that if the chunk is strict."""
        if chunk.strict and missing.any():
            where = chunk.place(int(np.argmax(missing)), self.name)
            raise InputError(f"Expected a value in {where}, the target, got none. Leave such rows out.")
        y[missing] = np.nan
        return y


@dataclass(frozen=True)
class BinaryTarget(Listed, Target):
    """A target of two classes. event: the one whose probability is predicted; by default the second one.

    `values` then has the event as its second one.

    >>> BinaryTarget("died", ("yes", "no"), event="yes").values
    ('no', 'yes')
    """

    event: str = field(default="", kw_only=True, metadata={"digest": "never"})  # the order of values says the same
    comments: ClassVar = {"event": "the class whose probability is predicted"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.values) != 2:
            got = ", ".join(self.values) or "nothing"
            raise InputError(f"Expected two values of target {self.name!r}, got {len(self.values)}: {got}.")
        given: Any = self.event
        event = (
            self.values[1] if given == "" else Listed(self.name, (given,)).values[0]
        )  # may be a number, as in tables
        if event not in self.values:
            raise InputError(
                f"Expected the event of target {self.name!r} to be {' or '.join(map(repr, self.values))}, got "
                f"{event!r}."
            )
        object.__setattr__(self, "event", event)
        object.__setattr__(self, "values", (next(value for value in self.values if value != event), event))

    @property
    def shown(self) -> str:
        """Both classes, and which of them is the event."""
        return f"{super().shown}; the event is {self.event}"

    @property
    def predicted(self) -> str:
        """The probability of the event."""
        return f"the probability of {self.name} = {self.event}"

    @property
    def unit(self) -> str:
        """Log odds."""
        return f"log odds of {self.name} = {self.event}"

    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, " n"]:
        """Return -1 for the first value and +1 for the second one."""
        codes, missing, unknown = self.codes(chunk)
        first = f"{chunk.word(int(np.argmax(unknown)), self.name)!r}" if unknown.any() else ""
        counts.add(self.name, first, missing=int(missing.sum()), unknown=int(unknown.sum()))
        if chunk.strict and unknown.any():
            row = int(np.argmax(unknown))
            raise InputError(
                f"Expected {self.values[0]!r} or {self.values[1]!r} in {chunk.place(row, self.name)}, the target, "
                f"got {chunk.word(row, self.name)!r}. Leave such rows out, or correct values in the schema."
            )
        return self.known(SIGNS.take(codes, mode="clip"), missing | unknown, chunk)

    def model(self) -> Model:
        """Return logistic regression."""
        from fedvi.models.logistic import LogisticRegression

        return LogisticRegression(predictive_link="exact")

    def class_counts(self, y: np.ndarray) -> dict[str, int]:
        """Return how many rows are -1, and how many +1."""
        return {value: int((y == sign).sum()) for value, sign in zip(self.values, SIGNS, strict=True)}

    def decode(self, mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> Predictions:
        """Return the more probable class too; the numbers are probabilities of the second one."""
        return Predictions(mean, low, high, np.array(self.values)[(mean > 0.5).astype(int)], event=self.event)


@dataclass(frozen=True)
class NumberTarget(Scaled, Target):
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

    def decode(self, mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> Predictions:
        """Return expected numbers and intervals of the numbers themselves."""
        mean, low, high = (self.centre + self.scale * column for column in (mean, low, high))
        return Predictions(mean, low, high)

    def decode_scores(self, scores: dict[str, float]) -> dict[str, float]:
        """Return the error in the target's units, and the density per unit."""
        density = scores["log_likelihood"] - math.log(self.scale)
        return {**scores, "rmse": scores["rmse"] * self.scale, "log_likelihood": density}

    def in_units(self, weights: np.ndarray, intercept: float) -> tuple[np.ndarray, float]:
        """Return coefficients times the scale, around the centre."""
        return self.scale * weights, self.centre + self.scale * intercept
