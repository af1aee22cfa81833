"""A step of DP-SGD by Opacus on logistic regression, of the same size: 79 rows expected, 108 features.

The model is smaller than fedvi's: one weight per feature, where fedvi learns a mean and a variance of each. Batches
are Poisson samples drawn before the clock starts, as fedvi's are. So Opacus' own parts are used, `GradSampleModule`
and `DPOptimizer`, without its data loader, which would add more than half again. Noise is drawn inside the step: 109
numbers, where fedvi's come with the draws.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from benchmarks.problem import OneSite
from benchmarks.timing import Contender
from fedvi.inference.algorithms import PVI


def opacus_steps(problem: OneSite, algorithm: PVI, seed: int, count: int) -> Contender:
    """Return the DP-SGD steps of `count` updates, on fedvi's own batches; a unit is one step."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that it loads, about themselves
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    mechanism: Any = algorithm.solver.mechanism
    features, signs = problem.table
    x, labels = torch.tensor(features), torch.tensor((signs + 1) / 2)[:, None]
    draws = problem.draws(algorithm, count, seed)
    pairs = zip(draws.rows.reshape(-1, draws.rows.shape[-1]), draws.mask.reshape(-1, draws.mask.shape[-1]), strict=True)
    batches = [torch.tensor(np.asarray(rows)[np.asarray(mask)], dtype=torch.int64) for rows, mask in pairs]

    model: Any = GradSampleModule(torch.nn.Linear(x.shape[1], 1), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3),
        noise_multiplier=float(mechanism.noise_multiplier),
        max_grad_norm=float(mechanism.clip_norm),
        expected_batch_size=mechanism.batch_size(problem.rows),
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
