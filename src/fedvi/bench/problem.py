"""What every contender works on: one site of the paper's size, logistic regression, a mean-field posterior.

3,907 rows of 108 features are a tenth of UCI Adult, one of the paper's ten clients; a fiftieth of them, 79, is the
expected batch. Rows are made up: a step costs the same whatever they hold.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedvi.data import Site
from fedvi.gaussian import Gaussian
from fedvi.local import Algorithm, Draws, Public, draw
from fedvi.models import LogisticRegression
from fedvi.pytree import pytree

ROWS, FEATURES, BATCH, STEPS, SEEDS = 3907, 108, 79, 25, 5


@pytree
class OneSite:
    """A federation of one site: its rows, and what everybody knows."""

    site: Site
    public: Public
    model: LogisticRegression

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.site.size)

    @property
    def features(self) -> int:
        """Number of features."""
        return int(self.site.x.shape[1])

    def draws(self, algorithm: Algorithm, count: int, seed: int) -> Draws:
        """Return the randomness of `count` updates, stacked."""
        rng = np.random.default_rng(seed)
        drawn = [draw(algorithm, self.model, self.public.prior, self.rows, rng) for _ in range(count)]
        stacked: Draws = jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)
        return stacked


def table(rows: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return made-up features within -1 and 1, in single precision, and labels that depend on the first."""
    rng = np.random.default_rng(seed)
    x = rng.random((rows, features), np.float32)
    x *= 2
    x -= 1
    y = np.where(x[:, 0] + rng.random(rows, np.float32) > 0.5, np.float32(1), np.float32(-1))
    return x, y


def one_site(seed: int, rows: int = ROWS, features: int = FEATURES) -> OneSite:
    """Return the problem, made up from a seed."""
    x, y = table(rows, features, seed)
    site = Site(jnp.asarray(x), jnp.asarray(y), jnp.int32(0), jnp.int32(rows))
    public = Public(Gaussian.standard(features), jnp.float32(1), jnp.float32(rows))
    return OneSite(site, public, LogisticRegression())
