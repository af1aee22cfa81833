"""Predictive distributions: what a posterior says about the y of new rows.

Each is a pytree over rows with `log_prob`, and `mixture`, which averages a first axis of draws from the posterior.
Labels of `Bernoulli` are -1 and +1, of `Categorical` 0, 1, ..., K-1.
"""

from __future__ import annotations

from typing import Any, Protocol

from jaxtyping import Float

from fedvi.arrays import Array
from fedvi.compiling import jax, jnp
from fedvi.pytree import pytree


class Predictive(Protocol):
    """A distribution of y for each of n rows."""

    def log_prob(self, y: Float[Array, "n ..."]) -> Float[Array, " n"]:
        """Return the log probability (density) of each row's y."""


@pytree
class Bernoulli:
    """Labels -1 and +1; `log_odds` of +1, so that confident predictions keep their log probability."""

    log_odds: Float[Array, "... n"]

    @property
    def probability(self) -> Float[Array, "... n"]:
        """Probability of +1."""
        return 1 / (1 + jnp.exp(-self.log_odds))

    def log_prob(self, y: Float[Array, " n"] | float) -> Float[Array, "... n"]:
        """Return the log probability of each label; NaN for a label other than -1 and +1."""
        return jnp.where(abs(y) == 1, -jnp.logaddexp(0.0, -y * self.log_odds), jnp.nan)

    def mixture(self) -> Bernoulli:
        """Average over the first axis: the mixture of Bernoullis is a Bernoulli."""
        return Bernoulli(_log_mean(self.log_prob(1.0)) - _log_mean(self.log_prob(-1.0)))


@pytree
class Categorical:
    """Labels 0, 1, ..., K-1; `logits` along the last axis, which need not be normalised."""

    logits: Float[Array, "... n k"]

    @property
    def log_probabilities(self) -> Float[Array, "... n k"]:
        """Logarithm of each class's probability."""
        return jax.nn.log_softmax(self.logits)

    def log_prob(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the log probability of each label; NaN for a label that is not a class."""
        labels = y.astype(jnp.int32)[..., None]
        is_class = (y == jnp.round(y)) & (y >= 0) & (y < self.logits.shape[-1])
        return jnp.where(is_class, jnp.take_along_axis(self.log_probabilities, labels, axis=-1)[..., 0], jnp.nan)

    def mixture(self) -> Categorical:
        """Average over the first axis: the mixture of categoricals is a categorical."""
        return Categorical(_log_mean(self.log_probabilities))


@pytree
class Normal:
    """Real y with a mean and a variance per row."""

    mean: Float[Array, "... n"]
    variance: Float[Array, "... n"]

    def log_prob(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the log density of each y."""
        return jax.scipy.stats.norm.logpdf(y, self.mean, jnp.sqrt(self.variance))

    def interval(self, level: float = 0.9) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return the ends of the central interval that holds y with probability `level`."""
        half_width = jax.scipy.stats.norm.ppf(0.5 + level / 2) * jnp.sqrt(self.variance)
        return self.mean - half_width, self.mean + half_width

    def mixture(self) -> Normal:
        """Return the normal with the mean and variance of the mixture over the first axis."""
        mean = jnp.mean(self.mean, axis=0)
        return Normal(mean, jnp.mean(self.variance, axis=0) + jnp.var(self.mean, axis=0))


def _log_mean(log_values: Any) -> Array:
    largest = jnp.max(log_values, axis=0)
    return largest + jnp.log(jnp.mean(jnp.exp(log_values - largest[None]), axis=0))
