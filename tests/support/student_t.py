"""Student-t regression: heavy-tailed noise of known scale and degrees of freedom. Nothing else knows of this file."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from fedvi.checks import in_range, positive
from fedvi.models import LinearPredictorModel, Normal
from fedvi.pytree import pytree


@pytree
class StudentT(LinearPredictorModel):
    """y is w'x plus `scale` times a Student-t with `df` degrees of freedom, more than two."""

    df: float = 4.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        in_range("df", self.df, 2, open_low=True)
        positive("scale", self.scale)

    def log_prob(self, eta: Any, y: Any) -> Any:
        """Return the log density, up to a constant that depends on df alone."""
        squared = ((y - eta) / self.scale) ** 2
        return -0.5 * (self.df + 1) * jnp.log1p(squared / self.df) - jnp.log(jnp.asarray(self.scale, eta.dtype))

    @property
    def curvature_bound(self) -> Any:
        """The curvature at the mode, where it is largest."""
        return (self.df + 1) / (self.df * self.scale**2)

    def predictive(self, q: Any, x: Any) -> Normal:
        """Return the normal with the same mean and variance."""
        mean, variance = q.project(x)
        return Normal(mean, variance + self.scale**2 * self.df / (self.df - 2))
