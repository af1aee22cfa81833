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

from benchmarks.problem import OneSite
from benchmarks.timing import Contender
from fedvi.inference.algorithms import PVI
from fedvi.inference.local_problem import Draws
from fedvi.privacy.events import noise_given
from fedvi.privacy.mechanism import PoissonGaussian
from fedvi.pytree import take

NODES = 20
Clipped = Callable[..., Any]


class TorchClient:
    """A client of logistic regression with a standard normal prior; `factor` stacks natural mean and precision."""

    def __init__(self, problem: OneSite, algorithm: PVI, clipped: Clipped | None = None):
        import torch

        solver: Any = algorithm.solver
        mechanism: Any = solver.mechanism
        assert isinstance(mechanism, PoissonGaussian)
        torch.set_num_threads(1)
        self.x, self.y = (torch.tensor(part) for part in problem.table)
        self.rate, self.damping = float(solver.learning_rate), float(algorithm.damping)
        self.clip, self.noise = float(mechanism.clip_norm), float(noise_given(mechanism.noise_multiplier))
        self.clipped = clipped or closed_form()
        self.reset()

    def reset(self) -> None:
        """Forget everything but the rows."""
        import torch

        self.factor = torch.zeros(2, self.x.shape[1])
        self.sums = torch.zeros(2, self.x.shape[1])

    def update(self, batches: list[Any], noise: Any, scale: float) -> None:
        """Make one update from q = prior times factor; one batch of row numbers and one row of noise per step."""
        import torch

        natural, kept = self.factor
        precision = 1 + kept
        start = torch.stack([natural / precision, -torch.log(precision)])
        q, sums = start, self.sums
        linear = torch.stack([precision - kept, (precision - kept) / 2])  # of the gradient without data in the mean
        constant = torch.stack([natural - precision * start[0], torch.full_like(natural, -0.5)])  # and the variance
        wide = scale * self.noise * self.clip
        for rows, normal in zip(batches, noise, strict=True):
            variance = torch.exp(q[1])
            by_coordinates = self.clipped(q, variance, self.x[rows], self.y[rows], self.clip)
            slope = torch.addcmul(constant, linear, torch.stack([q[0], variance]))
            slope = slope.sub_(by_coordinates, alpha=scale).sub_(normal, alpha=wide)
            sums = torch.addcmul(sums, slope, slope)
            q = torch.addcmul(q, slope, torch.rsqrt(sums + 1e-10), value=-self.rate)
        new = torch.exp(-q[1])
        moved = self.factor + self.damping * torch.stack([q[0] * new - start[0] * precision, new - precision])
        self.factor, self.sums = moved.masked_fill(moved[1] < 0, 0), sums


def closed_form() -> Clipped:
    """Return a function that sums clipped gradients by mean and log variance without a gradient per row."""
    import torch

    points, weights = _quadrature()
    both = torch.stack([weights, weights * points], dim=1)

    def clipped(q: Any, variance: Any, x: Any, y: Any, clip: float) -> Any:
        squares = x * x
        root = torch.sqrt((squares @ variance).clamp_min_(1e-12))
        eta = torch.outer(root, points) + (x @ q[0])[:, None]
        wrong = torch.sigmoid(eta.mul_(-y[:, None])) @ both
        slopes = wrong.mul_(y[:, None])
        a, b = slopes[:, 0], slopes[:, 1] / (2 * root)
        norms = squares.sum(1) * a * a + (squares * squares) @ (variance * variance) * b * b
        weight = (clip * torch.rsqrt(norms)).clamp_max_(1)
        return torch.stack([(weight * a) @ x, ((weight * b) @ squares) * variance])

    return clipped


def per_example() -> Clipped:
    """Return a function that does the same with the gradient of every row."""
    import torch

    points, weights = _quadrature()

    def value(q: Any, x: Any, y: Any) -> Any:
        root = torch.sqrt(((x * x) @ torch.exp(q[1])).clamp_min(1e-12))
        return torch.nn.functional.logsigmoid(y * (x @ q[0] + root * points)) @ weights

    gradients = torch.func.vmap(torch.func.grad(value), in_dims=(None, 0, 0))

    def clipped(q: Any, _: Any, x: Any, y: Any, clip: float) -> Any:
        each = gradients(q, x, y)
        norms = (each * each).sum((1, 2))
        weight = (clip * torch.rsqrt(norms)).clamp_max(1)
        return torch.tensordot(weight, each, 1)

    return clipped


def torch_draws(draws: Draws, count: int, size: float) -> list[tuple[list[Any], Any, float]]:
    """Return fedvi's draws of `count` updates as tensors: rows without padding, standard normals, scale.

    size: standard deviation of fedvi's whole-number noise.
    """
    import torch

    return [
        (
            [torch.tensor(rows[mask], dtype=torch.int64) for rows, mask in zip(one.rows, one.mask, strict=True)],
            torch.tensor(_normals(one, size)).reshape(len(one.rows), 2, -1),
            float(one.scale),
        )
        for one in (take(draws, k) for k in range(count))
    ]


def _normals(draws: Draws, size: float) -> np.ndarray:
    whole = np.ascontiguousarray(draws.privacy_noise).view(np.int64)[..., 0]
    return ((whole + 0.5) / size).astype(np.float32)


def torch_updates(problem: OneSite, algorithm: PVI, seed: int, count: int, clipped: Clipped | None = None) -> Contender:
    """Return `count` updates in PyTorch, with the draws that fedvi's contender gets; a unit is one local step."""
    import torch

    client = TorchClient(problem, algorithm, clipped)
    lattice = algorithm.lattice(problem.run(algorithm, seed).public, problem.rows)
    assert lattice is not None
    draws = torch_draws(problem.draws(algorithm, count, seed), count, lattice.size)

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
