"""What every contender works on: one site of the paper's size, logistic regression, a mean-field posterior.

3,907 rows of 108 features are a tenth of UCI Adult, one of the paper's ten clients; a fiftieth of them, 79, is the
expected batch. Rows are made up: a step costs the same whatever they hold.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from fedvi.inference.algorithms import PVI, Algorithm
from fedvi.inference.gradient_steps import GradientSteps
from fedvi.inference.local_problem import Draws
from fedvi.models.logistic import LogisticRegression
from fedvi.privacy.mechanism import PoissonGaussian
from fedvi.simulation.clients import Clients, lay_out_clients
from fedvi.simulation.loop import Run
from fedvi.simulation.prepare import prepare_run
from fedvi.simulation.schedules import RoundRobin

ROWS, FEATURES, BATCH, STEPS, SEEDS = 3907, 108, 79, 25, 5


@dataclasses.dataclass(frozen=True, eq=False)
class OneSite:
    """A federation of one site."""

    clients: Clients
    model: LogisticRegression

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.clients.sizes[0]

    @property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows: features and labels."""
        return np.asarray(self.clients.rows.x)[: self.rows], np.asarray(self.clients.rows.y)[: self.rows]

    def run(self, algorithm: Algorithm, seed: int) -> Run:
        """Return a run, as `simulate` prepares it."""
        return prepare_run(self.clients, self.model, algorithm, {"seed": seed, "schedule": RoundRobin()})

    def draws(self, algorithm: Algorithm, count: int, seed: int) -> Draws:
        """Return the randomness of the first `count` updates of a run, stacked."""
        run = self.run(algorithm, seed)
        drawn = [run.draw(0, update) for update in range(1, count + 1)]
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
    model = LogisticRegression()
    algorithm = PVI(GradientSteps(mechanism=PoissonGaussian()))
    (clients,) = lay_out_clients([table(rows, features, seed)], model, [algorithm])
    return OneSite(clients, model)
