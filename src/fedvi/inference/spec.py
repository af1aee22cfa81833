"""Spec: what all parties agree on. Its defaults are computed from the public schema, never from rows.

Fits are noise-aware PVI by questions (`fedvi.inference.asking`): the number of questions, the kind of covariance and
what is paid for moments of the rows follow from the declared rows, the budgets and the schema. Without privacy the
same algorithm takes Newton steps to the Gaussian that is closest to the posterior.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from fedvi.checks import in_range, positive
from fedvi.config import find, plain
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.inference.algorithms import LARGEST_PREDICTOR
from fedvi.inference.asking import NoiseAwarePVI
from fedvi.inference.questions import Answers
from fedvi.models.base import Model
from fedvi.privacy.budget import Budget
from fedvi.privacy.without_privacy import FullBatch
from fedvi.pytree import precision
from fedvi.tables.layout import HAT, INTERCEPT, LEVEL, Layout
from fedvi.tables.schema import Schema

STANDARDISE = 0.1
"""Share of a site's budget, in squared noise, that private scales take."""


SMALLEST_SD = 0.003
"""Of a prior: a weight with a smaller one is as good as fixed."""

Priors = Mapping[str, tuple[float, float]]
"""Mean and standard deviation of weights, by the name of their column or feature."""

INTERCEPT_VARIANCE = 100.0
"""Of the intercept's prior: a rare outcome is no surprise."""


@dataclasses.dataclass(frozen=True)
class Prior:
    """Independent Gaussians around zero; family: the kind of q, such as Gaussian or FullGaussian.

    variance: of every weight; intercept, levels, hats: of those of such features, if it is another.
    """

    family: str = "Gaussian"
    variance: float = 1.0
    intercept: float | None = None
    levels: float | None = None
    hats: float | None = None

    def __post_init__(self) -> None:
        for name in ("variance", "intercept", "levels", "hats"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))

    def over(self, dim: int, layout: Layout | None = None) -> GaussianFamily:
        """Return the prior over so many parameters. layout: of the features, to tell them apart."""
        family: type[GaussianFamily] = find(self.family, "family", "prior.family")
        own = {INTERCEPT: self.intercept, LEVEL: self.levels, HAT: self.hats}
        found = {kind: variance for kind, variance in own.items() if variance is not None}
        if not found or layout is None:
            return family.standard(dim, self.variance)
        return family.standard(dim, np.array([found.get(kind, self.variance) for kind in layout.kinds]))


@dataclasses.dataclass(frozen=True)
class Spec:
    """What all parties of a federation agree on, every default resolved.

    updates: of every site, at most. The noise is left to every site's own budget.
    priors: mean and standard deviation of the weights of columns and features, by name, where they are others.
    """

    schema: Schema
    model: Model
    standard_prior: Prior
    algorithm: NoiseAwarePVI
    updates: int
    priors: Priors = dataclasses.field(default_factory=dict)

    @cached_property
    def prior(self) -> GaussianFamily:
        """The prior over the model's parameters."""
        standard = self.standard_prior.over(self.schema.dim, self.schema.layout)
        if not self.priors:
            return standard
        mean, variance = np.array(standard.mean, float), np.array(standard.std, float) ** 2
        for name, (centre, sd) in self.priors.items():
            places = self.schema.places(name)
            mean[places], variance[places] = centre, sd**2
        return type(standard).from_moments(mean.astype(precision()), variance.astype(precision()))

    @property
    def plain(self) -> dict[str, Any]:
        """The spec as plain values, the schema by its digest. Numbers have nine digits: machines differ in the last."""
        parts = {
            "model": self.model,
            "prior": self.standard_prior,
            "algorithm": self.algorithm,
            "updates": self.updates,
        }
        own = {"priors": {name: list(pair) for name, pair in self.priors.items()}} if self.priors else {}
        return {"schema": self.schema.digest, **_rounded(plain(parts)), **own}


def default_spec(
    schema: Schema,
    rows: Sequence[int],
    budgets: Sequence[Budget] | None,
    questions: int = 0,
    model: Model | None = None,
    prior_sd: float | None = None,
    covariance: str = "auto",
    moments: int = 0,
    priors: Priors | None = None,
) -> Spec:
    """Return the default settings for one schema, computed from public numbers, never from rows.

    rows, budgets: of every site; no budgets for no privacy. questions, moments: how many, and how many of them about
        moments; 0 for the plan's own number.
    model: None for the target's own. prior_sd: standard deviation of a weight; None for the model's own. priors: of
        columns and features by name, mean and standard deviation, in the units of the schema's scales.
    covariance: `full`, `diagonal`, or `auto`.
    """
    model = schema.target.model() if model is None else model
    if prior_sd is not None:
        in_range("prior_sd", prior_sd, SMALLEST_SD, LARGEST_PREDICTOR)
    variance = float(model.defaults.prior_variance if prior_sd is None else prior_sd**2)
    if budgets is None and covariance == "diagonal":
        raise InputError("Expected a privacy budget for covariance='diagonal': without privacy it is always full.")
    layout = schema.layout
    algorithm = NoiseAwarePVI(
        Answers() if budgets is not None else Answers(FullBatch()),
        covariance=covariance,
        questions=questions,
        moments=moments,
        intercept=layout.intercept,
        bound=layout.bound,
        exclusive=layout.exclusive,
    ).planned(schema.dim, rows, budgets)
    prior = Prior("Gaussian", variance, intercept=max(variance, INTERCEPT_VARIANCE))
    return Spec(schema, model, prior, algorithm, algorithm.questions, checked_priors(schema, priors or {}))


def checked_priors(schema: Schema, priors: Priors) -> Priors:
    """Return priors by the name of a column or feature as pairs of numbers, or raise `InputError`."""
    found = {}
    for name, given in priors.items():
        schema.places(name)
        pair: Any = tuple(given) if isinstance(given, Sequence | np.ndarray) and not isinstance(given, str) else ()
        if len(pair) != 2 or not all(isinstance(number, Real) and not isinstance(number, bool) for number in pair):
            raise InputError(
                f"Expected the prior of {name!r} as mean and standard deviation, such as [0, 1], got {given!r}."
            )
        in_range(f"the mean of the prior of {name}", pair[0], -LARGEST_PREDICTOR, LARGEST_PREDICTOR)
        in_range(f"the standard deviation of the prior of {name}", pair[1], SMALLEST_SD, LARGEST_PREDICTOR)
        found[name] = (float(pair[0]), float(pair[1]))
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
