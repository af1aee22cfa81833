"""Gaussian factors that carry the noise in them along: `NoisyGaussian`.

A private client knows how much noise it added to its factor. Its factor is a triple per coordinate,

    natural_mean m        precision S        noise V, the variance of the privacy noise in m

and all three add when factors multiply, so that the federation's algebra stays what it is. A product is read as one
pseudo-observation of w with two sources of error, `m = S w + (variance S) + (variance V)`, beside a prior with natural
mean m0 and precision p0:

    kept      = S / (S + V), the evidence kept
    precision = p0 + S kept
    mean      = (m0 + m kept) / precision

With V = 0 this is the ordinary product. Where noise drowns the data, kept goes to zero and q falls back to the prior,
instead of taking noise for data. Shrinking is done here, on the sum over all clients, and never per client: a sum of
shrunk factors is biased where clients differ.
"""

from __future__ import annotations

from typing import Any, Self

from jaxtyping import Bool, Float, Int

from fedvi.errors import InputError
from fedvi.families.base import Factor, GaussianFamily
from fedvi.families.mean_field import Gaussian
from fedvi.numerics import Array, namespace
from fedvi.pytree import pytree


@pytree
class NoisyGaussian(Factor):
    """A mean-field factor and the variance of the privacy noise in its natural mean.

    precision: an estimate, which may be negative in one factor; only of a product it matters, and there negative
        entries are read as zero.

    >>> import numpy as np
    >>> product = NoisyGaussian(np.array([8.0, 8.0]), np.array([4.0, 4.0]), np.array([0.0, 396.0]))
    >>> q = product.posterior(Gaussian.from_moments([0.0, 0.0], 1.0))
    >>> q.mean.round(3).tolist()
    [1.6..., 0.077...]
    """

    natural_mean: Float[Array, "*batch d"]
    precision: Float[Array, "*batch d"]
    noise: Float[Array, "*batch d"]

    @classmethod
    def one_like(cls, prior: GaussianFamily) -> Self:
        """Return the factor 1 for parameters with this prior, which must be mean-field."""
        if not isinstance(prior, Gaussian):
            raise InputError(
                f"Noise-aware factors are mean-field: expected a Gaussian prior, got {type(prior).__name__}."
            )
        nothing = prior.one().natural_mean
        return cls(nothing, nothing, nothing)

    def evidence_kept(self) -> Float[Array, "*batch d"]:
        """Return the share of the evidence that noise has left: `S / (S + V)`, 0 where nothing is known."""
        xp = namespace(self.noise)
        precision, noise = xp.maximum(self.precision, 0), xp.maximum(self.noise, 0)
        known = precision > 0
        return xp.where(known, precision / xp.where(known, precision + noise, 1), 0)

    def posterior(self, prior: Gaussian) -> Gaussian:
        """Read the posterior out of this product of factors and a prior."""
        kept = self.evidence_kept()
        return prior * Gaussian(self.natural_mean * kept, namespace(kept).maximum(self.precision, 0) * kept)

    def with_curvature(self, ratio: Any) -> Self:
        """Return the factor of a likelihood that is taken to the power `ratio`, and its noise with it."""
        return type(self)(self.natural_mean * ratio, self.precision * ratio, self.noise * ratio * ratio)

    def is_legal(self) -> Bool[Array, "*batch"]:
        """Tell whether there is no negative variance of noise, which would hide that of others."""
        return (self.noise >= 0).all(axis=-1)

    def repaired(self) -> tuple[Self, Int[Array, "*batch"]]:
        """Return the factor as it is: negative precisions are noise, and are dealt with where q is read."""
        xp = namespace(self.noise)
        return self, xp.zeros(self.natural_mean.shape[:-1], xp.int32)
