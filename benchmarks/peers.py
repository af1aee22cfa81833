"""The private update in PyTorch, and a step of Opacus: peers to compare with, and a second opinion.

*PyTorch*: mathematics, draws and settings are those of `PVI(GradientSteps(steps, rate, PoissonGaussian()))`; the
numbers agree with fedvi's to single precision. Two ways to clip:

    closed_form    squared norms of the gradients from row sums; a gradient per row never exists
    per_example    `vmap(grad(...))` of torch.func: a gradient for every row, then its norm

*Opacus* makes steps of DP-SGD on logistic regression of the same size, on the same batches, by its own parts
`GradSampleModule` and `DPOptimizer`. docs/speed.md says what differs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.steps import OneSite
from benchmarks.timing import Contender
from fedvi.inference.algorithms import PVI
from fedvi.inference.local_problem import Draws
from fedvi.privacy.events import noise_given

torch.set_num_threads(1)

POINTS, WEIGHTS = torch.tensor(np.array(np.polynomial.hermite_e.hermegauss(20)), dtype=torch.float32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
"""Nodes and weights of the quadrature for expectations over a standard normal."""

Clipped = Callable[[Any, Any, Any, Any, float], Any]
"""From q = (means, log variances), variances, x, y and a bound to the sum of clipped gradients by q."""


def closed_form(q: Any, variance: Any, x: Any, y: Any, clip: float) -> Any:
    """Return the sum of clipped gradients without a gradient per row."""
    squares = x * x
    root = torch.sqrt((squares @ variance).clamp_min_(1e-12))
    eta = torch.outer(root, POINTS) + (x @ q[0])[:, None]
    wrong = torch.sigmoid(eta.mul_(-y[:, None])) @ BY_MEAN_AND_ROOT
    slopes = wrong.mul_(y[:, None])
    a, b = slopes[:, 0], slopes[:, 1] / (2 * root)
    norms = squares.sum(1) * a * a + (squares * squares) @ (variance * variance) * b * b
    weight = (clip * torch.rsqrt(norms)).clamp_max_(1)
    return torch.stack([(weight * a) @ x, ((weight * b) @ squares) * variance])


BY_MEAN_AND_ROOT = torch.stack([WEIGHTS, WEIGHTS * POINTS], dim=1)


def per_example(q: Any, _: Any, x: Any, y: Any, clip: float) -> Any:
    """Return the same sum by the gradient of every row."""
    each = GRADIENTS(q, x, y)
    weight = (clip * torch.rsqrt((each * each).sum((1, 2)))).clamp_max(1)
    return torch.tensordot(weight, each, 1)


def _value(q: Any, x: Any, y: Any) -> Any:
    """Return the expected log-likelihood of one row."""
    root = torch.sqrt(((x * x) @ torch.exp(q[1])).clamp_min(1e-12))
    return torch.nn.functional.logsigmoid(y * (x @ q[0] + root * POINTS)) @ WEIGHTS


GRADIENTS = torch.func.vmap(torch.func.grad(_value), in_dims=(None, 0, 0))


class TorchClient:
    """A client of logistic regression with a standard normal prior; `factor` stacks natural mean and precision."""

    def __init__(self, problem: OneSite, algorithm: PVI, clipped: Clipped):
        solver: Any = algorithm.solver
        mechanism: Any = solver.mechanism
        self.x, self.y = (torch.tensor(part) for part in problem.table)
        self.rate, self.damping = float(solver.learning_rate), float(algorithm.damping)
        self.clip, self.noise = float(mechanism.clip_norm), float(noise_given(mechanism.noise_multiplier))
        self.clipped = clipped
        self.reset()

    def reset(self) -> None:
        """Forget everything but the rows."""
        self.factor, self.sums = torch.zeros(2, 2, self.x.shape[1])

    def update(self, batches: list[Any], noise: Any, scale: float) -> None:
        """Make one update from q = prior times factor; one batch of row numbers and one row of noise per step."""
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


def torch_draws(problem: OneSite, algorithm: PVI, count: int, seed: int) -> list[tuple[list[Any], Any, float]]:
    """Return fedvi's draws of `count` updates as tensors: rows without padding, standard normals, scale."""
    lattice = algorithm.lattice(problem.run(algorithm, seed).settings.public, len(problem.table[1]))
    assert lattice is not None

    def normals(draws: Draws) -> Any:
        whole = np.ascontiguousarray(draws.privacy_noise).view(np.int64)[..., 0]
        return torch.tensor(((whole + 0.5) / lattice.size).astype(np.float32)).reshape(len(draws.rows), 2, -1)

    return [(_batches(draws), normals(draws), float(draws.scale)) for draws in problem.draws(algorithm, count, seed)]


def _batches(draws: Draws) -> list[Any]:
    """Return the row numbers of every step of an update."""
    pairs = zip(np.asarray(draws.rows), np.asarray(draws.mask), strict=True)
    return [torch.tensor(rows[mask], dtype=torch.int64) for rows, mask in pairs]


def torch_updates(problem: OneSite, algorithm: PVI, seed: int, count: int, clipped: Clipped) -> Contender:
    """Return `count` updates in PyTorch, with the draws that fedvi's contender gets; a unit is one local step."""
    client = TorchClient(problem, algorithm, clipped)
    draws = torch_draws(problem, algorithm, count, seed)

    def run() -> None:
        client.reset()
        with torch.inference_mode() if clipped is closed_form else torch.no_grad():
            for drawn in draws:
                client.update(*drawn)

    return Contender(run, count * algorithm.solver.steps)


def opacus_steps(problem: OneSite, algorithm: PVI, seed: int, count: int) -> Contender:
    """Return the DP-SGD steps of `count` updates, on fedvi's own batches; a unit is one step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that it loads, about themselves
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

    torch.manual_seed(seed)
    mechanism: Any = algorithm.solver.mechanism
    features, signs = problem.table
    x, labels = torch.tensor(features), torch.tensor((signs + 1) / 2)[:, None]
    batches = [batch for draws in problem.draws(algorithm, count, seed) for batch in _batches(draws)]
    model: Any = GradSampleModule(torch.nn.Linear(x.shape[1], 1), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3),
        noise_multiplier=float(mechanism.noise_multiplier),
        max_grad_norm=float(mechanism.clip_norm),
        expected_batch_size=mechanism.batch_size(len(signs)),
        loss_reduction="sum",
    )
    loss_of = torch.nn.BCEWithLogitsLoss(reduction="sum")

    def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for rows in batches:
                optimizer.zero_grad()
                loss_of(model(x[rows]), labels[rows]).backward()
                optimizer.step()

    return Contender(run, len(batches))
