"""Other methods on the same tables: DP-PVI's own intervals, DP-SGD with a bootstrap, and NUTS without privacy.

**DP-PVI**: the paper's algorithm with its settings for Adult (noise 5, clip 1.5, batches of 2 %, 25 steps, damping
0.1), a budget that holds, mean-field. It stops when the budget is spent, after 1,000 updates at most.

**DP-SGD with a bootstrap**: rows are split into ten parts at random. In each, 200 steps of private gradient descent on
all rows, slopes clipped at 1.5, the last half averaged. A row is in one part, so every part has the whole budget. The
estimate is the mean of the parts; its spread is that of the parts over ten, widened to Student's quantile with nine
degrees of freedom. One trusted party adds the noise, which is less than sites together would add. Settings are not
tuned; momentum 0.9 was worse on most cells.

**NUTS**: NumPyro on the pooled rows, with the priors that the tables are drawn from.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, stdtrit

from benchmarks.honesty.cells import Cell
from benchmarks.honesty.methods import Estimate, prior_variances, sites_of
from benchmarks.honesty.scores import LEVEL, REACH
from benchmarks.honesty.tables import Drawn
from fedvi import PVI, Budget, Gaussian, LinearRegression, LogisticRegression, simulate
from fedvi.compiling import jax, jnp
from fedvi.inference import GradientSteps
from fedvi.privacy import PoissonGaussian

PARTS, STEPS, CLIP = 10, 200, 1.5
WARM_UP, SAMPLES = 500, 2000


def dp_pvi(cell: Cell, drawn: Drawn, seed: int) -> Estimate:
    """Return DP-PVI's posterior."""
    variances = prior_variances(cell, drawn)
    result = simulate(
        sites_of(cell, drawn),
        LinearRegression() if cell.linear else LogisticRegression(),
        seed=seed,
        prior=Gaussian.from_moments(np.zeros(len(variances)), variances),
        algorithm=PVI(GradientSteps(25, 0.5, PoissonGaussian()), damping=0.1),
        max_updates=1000,
        privacy=None if cell.epsilon is None else Budget(cell.epsilon),
        progress=False,
    )
    std = np.asarray(result.posterior.std, np.float64)
    return Estimate(np.asarray(result.posterior.mean, np.float64), np.diag(std**2))


def dp_sgd(cell: Cell, drawn: Drawn, seed: int) -> Estimate:
    """Return the mean of private estimates of ten parts, and what their spread says."""
    if cell.epsilon is None:
        raise ValueError(f"Expected a cell with privacy, got {cell.name!r}.")
    rng = np.random.default_rng([seed, 7])
    size = len(drawn.y) // PARTS
    rows = rng.permutation(len(drawn.y))[: PARTS * size].reshape(PARTS, size)
    delta = Budget(cell.epsilon).delta_for(len(drawn.y) // cell.sites)
    noise = CLIP * math.sqrt(STEPS) / gaussian_mu(cell.epsilon, delta)
    steps = noise * rng.standard_normal((PARTS, STEPS, drawn.x.shape[1]))
    precisions = 1 / prior_variances(cell, drawn) / PARTS
    found = np.asarray(_descents(drawn.x[rows], drawn.y[rows], steps, precisions, cell.linear), np.float64)
    widen = (stdtrit(PARTS - 1, 0.5 + LEVEL / 2) / REACH) ** 2
    return Estimate(found.mean(0), widen * np.cov(found.T) / PARTS)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return mu of the Gaussian mechanism, 1 over its noise multiplier, that is (epsilon, delta) private."""

    def beyond(mu: float) -> float:
        second = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2)))
        return float(ndtr(-epsilon / mu + mu / 2)) - second - delta

    return float(brentq(beyond, 1e-6, 50))


def _descents(x: np.ndarray, y: np.ndarray, noise: np.ndarray, precisions: np.ndarray, linear: bool) -> Any:
    return _descent(linear)(jnp.asarray(x), jnp.asarray(y), jnp.asarray(noise), jnp.asarray(precisions))


@functools.cache
def _descent(linear: bool) -> Any:
    """Return private gradient descent on the rows of every part, compiled: x, y, noise, prior precisions to weights."""

    def one(x: Any, y: Any, noise: Any, precisions: Any) -> Any:
        rate = (1.0 if linear else 4.0) / (x.shape[0] * x.shape[1])

        def step(w: Any, draw: Any) -> Any:
            eta = x @ w
            slopes = (y - (eta if linear else jax.nn.sigmoid(eta)))[:, None] * x
            lengths = jnp.sqrt(jnp.sum(slopes**2, axis=1, keepdims=True))
            total = jnp.sum(slopes * jnp.minimum(1, CLIP / jnp.maximum(lengths, 1e-12)), axis=0)
            w = w + rate * (total + draw - precisions * w)
            return w, w

        path = jax.lax.scan(step, jnp.zeros(x.shape[1]), noise)[1]
        return path[len(path) // 2 :].mean(0)

    return jax.jit(jax.vmap(one, in_axes=(0, 0, 0, None)))


def nuts(cell: Cell, drawn: Drawn, seed: int) -> Estimate:
    """Return mean and covariance of the posterior without privacy, by NumPyro."""
    import numpyro
    import numpyro.distributions as dist

    spread = jnp.asarray(np.sqrt(prior_variances(cell, drawn)))

    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, spread).to_event(1))
        eta = x @ w
        if cell.linear:
            log_variance = numpyro.sample("log_variance", dist.Normal(0.0, 0.5))
            numpyro.sample("y", dist.Normal(eta, jnp.exp(log_variance / 2)), obs=y)
        else:
            numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)

    chain = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model, dense_mass=True), num_warmup=WARM_UP, num_samples=SAMPLES, progress_bar=False
    )
    chain.run(jax.random.key(seed), jnp.asarray(drawn.x, jnp.float32), jnp.asarray(drawn.y, jnp.float32))
    samples = np.asarray(chain.get_samples()["w"], np.float64)
    return Estimate(samples.mean(0), np.cov(samples.T))
