"""Spec: what all parties agree on. Its defaults are computed from the public schema, never from rows.

Fits are noise-aware PVI by questions (`fedvi.inference.asking`): the number of questions, the kind of covariance and
what is paid for moments of the rows follow from the declared rows, the budgets and the schema. Without privacy the
same algorithm takes Newton steps to the Gaussian that is closest to the posterior.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedvi.checks import positive
from fedvi.config import find, plain
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.inference.asking import NoiseAwarePVI
from fedvi.inference.questions import Answers
from fedvi.models.base import Model
from fedvi.privacy.budget import Budget
from fedvi.privacy.without_privacy import FullBatch
from fedvi.tables.layout import HAT, INTERCEPT, LEVEL, Layout
from fedvi.tables.schema import Schema

STANDARDISE = 0.1
"""Share of a site's budget, in squared noise, that private scales take."""


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
    """

    schema: Schema
    model: Model
    standard_prior: Prior
    algorithm: NoiseAwarePVI
    updates: int

    @cached_property
    def prior(self) -> GaussianFamily:
        """The prior over the model's parameters."""
        return self.standard_prior.over(self.schema.dim, self.schema.layout)

    @property
    def plain(self) -> dict[str, Any]:
        """The spec as plain values, the schema by its digest. Numbers have nine digits: machines differ in the last."""
        parts = {
            "model": self.model,
            "prior": self.standard_prior,
            "algorithm": self.algorithm,
            "updates": self.updates,
        }
        return {"schema": self.schema.digest, **_rounded(plain(parts))}


def default_spec(
    schema: Schema,
    rows: Sequence[int],
    budgets: Sequence[Budget] | None,
    questions: int = 0,
    model: Model | None = None,
    prior_variance: float | None = None,
    covariance: str = "auto",
    moments: int = 0,
) -> Spec:
    """Return the default settings for one schema, computed from public numbers, never from rows.

    rows, budgets: of every site; no budgets for no privacy. questions, moments: how many, and how many of them about
        moments; 0 for the plan's own number.
    model: None for the target's own. prior_variance: of a weight; None for the model's own.
    covariance: `full`, `diagonal`, or `auto`.
    """
    model = schema.target.model() if model is None else model
    variance = float(prior_variance or model.defaults.prior_variance)
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
    return Spec(schema, model, prior, algorithm, algorithm.questions)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
