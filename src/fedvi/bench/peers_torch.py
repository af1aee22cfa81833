"""The same private update written for PyTorch by somebody who knows it: a peer to compare with, and a second opinion.

Mathematics, draws and settings are those of `PVI(GradientSteps(steps, rate, PoissonGaussian()))`; the numbers agree
with fedvi's to single precision. Everything is a vectorised operation on the rows of a batch, without padding, in
single precision, without autograd. Two ways to clip:

    closed form    squared norms of the gradients from row sums; a gradient per row never exists
    per example    `vmap(grad(...))` of torch.func: a gradient for every row, then its norm
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedvi.bench.problem import OneSite
from fedvi.bench.timing import Contender
from fedvi.local import PVI, Draws, GradientSteps
from fedvi.privacy import PoissonGaussian
from fedvi.pytree import take

NODES = 20
Clipped = Callable[..., tuple[Any, Any]]


class TorchClient:
    """A client of logistic regression with a standard normal prior; `factor` is its (natural mean, precision)."""

    def __init__(self, problem: OneSite, algorithm: PVI, clipped: Clipped | None = None):
        import torch

        solver: Any = algorithm.solver
        assert isinstance(solver, GradientSteps) and isinstance(solver.mechanism, PoissonGaussian)
        torch.set_num_threads(1)
        self.x, self.y = (torch.tensor(np.asarray(part)) for part in (problem.site.x, problem.site.y))
        self.rate, self.damping = float(solver.learning_rate), float(algorithm.damping)
        self.clip, self.noise = float(solver.mechanism.clip_norm), float(solver.mechanism.noise_multiplier)
        self.clipped = clipped or closed_form()
        self.reset()

    def reset(self) -> None:
        """Forget everything but the rows."""
        import torch

        zero = torch.zeros(self.x.shape[1])
        self.factor, self.sums = (zero, zero), (zero, zero)

    def update(self, batches: list[Any], noise: Any, scale: float) -> None:
        """Make one update from q = prior times factor; one batch of row numbers and one row of noise per step."""
        import torch

        natural, kept = self.factor
        precision = 1 + kept
        start_mean, start_log = natural / precision, -torch.log(precision)
        mean, log_variance = start_mean, start_log
        sums_mean, sums_log = self.sums
        features = mean.shape[0]
        for rows, normal in zip(batches, noise, strict=True):
            variance = torch.exp(log_variance)
            by_mean, by_log = self.clipped(mean, log_variance, variance, self.x[rows], self.y[rows], self.clip)
            wide = scale * self.noise * self.clip
            slope_mean = (mean - start_mean) * precision + (natural - kept * mean)
            slope_mean = slope_mean.sub_(by_mean, alpha=scale).sub_(normal[:features], alpha=wide)
            slope_log = (0.5 * precision - 0.5 * kept) * variance - 0.5
            slope_log = slope_log.sub_(by_log, alpha=scale).sub_(normal[features:], alpha=wide)
            sums_mean = torch.addcmul(sums_mean, slope_mean, slope_mean)
            sums_log = torch.addcmul(sums_log, slope_log, slope_log)
            mean = torch.addcmul(mean, slope_mean, torch.rsqrt(sums_mean + 1e-10), value=-self.rate)
            log_variance = torch.addcmul(log_variance, slope_log, torch.rsqrt(sums_log + 1e-10), value=-self.rate)
        new = torch.exp(-log_variance)
        moved = (natural + self.damping * (mean * new - start_mean * precision), kept + self.damping * (new - precision))
        repaired = moved[1] < 0
        self.factor = (moved[0].masked_fill(repaired, 0), moved[1].masked_fill(repaired, 0))
        self.sums = (sums_mean, sums_log)


def closed_form() -> Clipped:
    """Return a function that sums clipped gradients by mean and log variance without a gradient per row."""
    import torch

    points, weights = _quadrature()
    both = torch.stack([weights, weights * points], dim=1)

    def clipped(mean: Any, _: Any, variance: Any, x: Any, y: Any, clip: float) -> tuple[Any, Any]:
        squares = x * x
        root = torch.sqrt((squares @ variance).clamp_min_(1e-12))
        eta = torch.outer(root, points) + (x @ mean)[:, None]
        wrong = torch.sigmoid(eta.mul_(-y[:, None])) @ both
        slopes = wrong.mul_(y[:, None])
        a, b = slopes[:, 0], slopes[:, 1] / (2 * root)
        norms = squares.sum(1) * a * a + (squares * squares) @ (variance * variance) * b * b
        weight = (clip * torch.rsqrt(norms)).clamp_max_(1)
        return (weight * a) @ x, ((weight * b) @ squares) * variance

    return clipped


def per_example() -> Clipped:
    """Return a function that does the same with the gradient of every row."""
    import torch

    points, weights = _quadrature()

    def value(mean: Any, log_variance: Any, x: Any, y: Any) -> Any:
        root = torch.sqrt(((x * x) @ torch.exp(log_variance)).clamp_min(1e-12))
        return torch.nn.functional.logsigmoid(y * (x @ mean + root * points)) @ weights

    gradients = torch.func.vmap(torch.func.grad(value, (0, 1)), in_dims=(None, None, 0, 0))

    def clipped(mean: Any, log_variance: Any, _: Any, x: Any, y: Any, clip: float) -> tuple[Any, Any]:
        by_mean, by_log = gradients(mean, log_variance, x, y)
        norms = (by_mean * by_mean).sum(1) + (by_log * by_log).sum(1)
        weight = (clip * torch.rsqrt(norms)).clamp_max(1)
        return weight @ by_mean, weight @ by_log

    return clipped


def torch_draws(draws: Draws, count: int) -> list[tuple[list[Any], Any, float]]:
    """Return fedvi's draws of `count` updates as tensors: rows without padding, noise, scale."""
    import torch

    return [
        (
            [torch.tensor(rows[mask], dtype=torch.int64) for rows, mask in zip(one.rows, one.mask, strict=True)],
            torch.tensor(one.privacy_noise),
            float(one.scale),
        )
        for one in (take(draws, k) for k in range(count))
    ]


def torch_updates(problem: OneSite, algorithm: PVI, seed: int, count: int, clipped: Clipped | None = None) -> Contender:
    """Return `count` updates in PyTorch, with the draws that fedvi's contender gets; a unit is one local step."""
    import torch

    client = TorchClient(problem, algorithm, clipped)
    draws = torch_draws(problem.draws(algorithm, count, seed), count)

    def run() -> None:
        client.reset()
        with torch.no_grad() if clipped else torch.inference_mode():
            for batches, noise, scale in draws:
                client.update(batches, noise, scale)

    return Contender(run, count * algorithm.solver.steps)


def _quadrature() -> tuple[Any, Any]:
    import torch

    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return torch.tensor(points, dtype=torch.float32), torch.tensor(weights / weights.sum(), dtype=torch.float32)
