"""What is timed: fedvi's own updates of one site of the paper's size, and the floor under them.

3,907 rows of 108 features are a tenth of UCI Adult, one of the paper's ten clients; a fiftieth of them, 79, is the
expected batch. Rows are made up: a step costs the same whatever they hold. The model is logistic regression with a
mean-field posterior. Updates run in the compiled loop of `simulate` itself; sampled rows and noise are drawn before,
as they are there.

The floor is the arithmetic that no implementation can avoid: with a batch x of L rows, the four products

    x m        x^2 v        a x        b x^2

in single precision by NumPy's own library of linear algebra, and nothing else: no gathering of rows, no sigmoid, no
clipping, no optimiser.
"""

from __future__ import annotations

import dataclasses
import itertools

import jax
import numpy as np

from benchmarks.timing import Contender
from fedvi.inference.algorithms import PVI, Algorithm
from fedvi.inference.gradient_steps import GradientSteps
from fedvi.inference.local_problem import Draws
from fedvi.models.logistic import LogisticRegression
from fedvi.privacy.mechanism import PoissonGaussian
from fedvi.simulation.clients import Clients, lay_out_clients
from fedvi.simulation.compiled import play_blocks
from fedvi.simulation.loop import Run, arrange, stack
from fedvi.simulation.prepare import prepare_run
from fedvi.simulation.schedules import RoundRobin

ROWS, FEATURES, BATCH, STEPS, SEEDS = 3907, 108, 79, 25, 5
UPDATES = 8
"""Updates of a run in one compiled loop, each with draws of its own."""

Table = tuple[np.ndarray, np.ndarray]
"""Features and labels."""


@dataclasses.dataclass(frozen=True, eq=False)
class OneSite:
    """A federation of one site. table: its rows. clients: the same, laid out for the compiled loop."""

    table: Table
    clients: Clients
    model: LogisticRegression

    def run(self, algorithm: Algorithm, seed: int) -> Run:
        """Return a run, as `simulate` prepares it."""
        return prepare_run(self.clients, self.model, algorithm, {"seed": seed, "schedule": RoundRobin()})

    def draws(self, algorithm: Algorithm, count: int, seed: int) -> list[Draws]:
        """Return the randomness of the first `count` updates of a run."""
        run = self.run(algorithm, seed)
        return [run.draw(0, update) for update in range(1, count + 1)]


def one_site(seed: int, rows: int = ROWS, features: int = FEATURES) -> OneSite:
    """Return the problem, made up from a seed."""
    made, model = make_table(rows, features, seed), LogisticRegression()
    (clients,) = lay_out_clients([made], model, [private_algorithm()])
    return OneSite(made, clients, model)


def make_table(rows: int, features: int, seed: int) -> Table:
    """Return made-up features within -1 and 1, in single precision, and labels that depend on the first."""
    rng = np.random.default_rng(seed)
    x = rng.random((rows, features), np.float32)
    x *= 2
    x -= 1
    y = np.where(x[:, 0] + rng.random(rows, np.float32) > 0.5, np.float32(1), np.float32(-1))
    return x, y


def private_algorithm() -> PVI:
    """Return the private algorithm that is measured."""
    return PVI(GradientSteps(STEPS, 0.5, PoissonGaussian()))


def bare_products(batch: int, features: int, seed: int) -> Contender:
    """Return the floor: the four products of one step."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, features), np.float32)
    mean, variance = rng.standard_normal((2, features), np.float32)
    a, b = rng.standard_normal((2, batch), np.float32)
    squares = x * x
    return Contender(lambda: (x @ mean, squares @ variance, a @ x, b @ squares))


def updates(problem: OneSite, algorithm: Algorithm, seed: int, runs: int = 1, count: int = UPDATES) -> Contender:
    """Return `count` updates of each of `runs` federations that differ in their seeds; a unit is one step of one run.

    It is what `simulate` calls between two measurements, after drawing: client steps, server steps, all runs in one
    compiled loop.
    """
    same = [problem.run(algorithm, seed + index) for index in range(runs)]
    block = arrange(same, [list(itertools.islice(run.turns(), count)) for run in same], count)
    settings, start = stack([run.settings for run in same]), stack([run.init() for run in same])
    # Arrays on the device, made once: moving them there would be timed with every call.
    given = jax.device_put((problem.model, problem.clients.rows, settings, start, block, np.int32(runs)))
    return Contender(lambda: jax.block_until_ready(play_blocks(*given)), runs * count * algorithm.solver.steps)
