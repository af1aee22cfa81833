"""The main comparison: one local step of fedvi beside the bare products, PyTorch and Opacus, all taking turns.

The site has the size of one of the paper's clients (docs/speed.md); its rows are made up. Updates run in the compiled
loop of `simulate` itself; sampled rows and noise are drawn before, as they are there. The floor is the arithmetic that
no implementation can avoid: with a batch x of rows, the four products

    x m        x^2 v        a x        b x^2
"""

from __future__ import annotations

import importlib.util
import itertools
from typing import Any

import jax
import numpy as np

from benchmarks.timing import Contender, Samples, peak_memory_mb, take_turns
from fedvi.inference.algorithms import PVI, Algorithm
from fedvi.inference.local_problem import Draws, GradientSteps
from fedvi.models.logistic import LogisticRegression
from fedvi.privacy.mechanism import Mechanism, PoissonGaussian
from fedvi.privacy.published import FixedSizeGaussian
from fedvi.privacy.without_privacy import Minibatch
from fedvi.simulation.clients import lay_out_clients
from fedvi.simulation.loop import arrange, stack
from fedvi.simulation.runs import Run, play_blocks
from fedvi.simulation.schedules import RoundRobin
from fedvi.simulation.simulate import prepare_run

ROWS, FEATURES, BATCH, STEPS, SEEDS = 3907, 108, 79, 25, 5
FLOOR = "four bare products, NumPy"
PRIVATE, BATCHED = "fedvi, private", f"fedvi, private, {SEEDS} seeds at once"
PLAIN, PUBLISHED = "fedvi, not private", "fedvi, the paper's mechanism"
TORCH, TORCH_PER_EXAMPLE, OPACUS = "PyTorch, closed form", "PyTorch, vmap(grad)", "Opacus, DP-SGD"


class OneSite:
    """A federation of one site, made up from a seed. table: its rows. clients: the same, laid out for `simulate`."""

    def __init__(self, seed: int, rows: int = ROWS, features: int = FEATURES):
        self.table, self.model = make_table(rows, features, seed), LogisticRegression()
        (self.clients,) = lay_out_clients([self.table], self.model, [algorithm_with(PoissonGaussian())])

    def run(self, algorithm: Algorithm, seed: int) -> Run:
        """Return a run, as `simulate` prepares it."""
        return prepare_run(self.clients, self.model, algorithm, {"seed": seed, "schedule": RoundRobin()})

    def draws(self, algorithm: Algorithm, count: int, seed: int) -> list[Draws]:
        """Return the randomness of the first `count` updates of a run."""
        run = self.run(algorithm, seed)
        return [run.draw(0, update) for update in range(1, count + 1)]


def make_table(rows: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return made-up features within -1 and 1, in single precision, and labels that depend on the first."""
    rng = np.random.default_rng(seed)
    x = rng.random((rows, features), np.float32)
    x *= 2
    x -= 1
    y = np.where(x[:, 0] + rng.random(rows, np.float32) > 0.5, np.float32(1), np.float32(-1))
    return x, y


def algorithm_with(mechanism: Mechanism, steps: int = STEPS) -> PVI:
    """Return the algorithm that is measured, with some mechanism."""
    return PVI(GradientSteps(steps, 0.5, mechanism))


def bare_products(batch: int, features: int, seed: int) -> Contender:
    """Return the floor: the four products of one step."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, features), np.float32)
    mean, variance = rng.standard_normal((2, features), np.float32)
    a, b = rng.standard_normal((2, batch), np.float32)
    squares = x * x
    return Contender(lambda: (x @ mean, squares @ variance, a @ x, b @ squares))


def updates(problem: OneSite, algorithm: Algorithm, seed: int, runs: int = 1, count: int = 8) -> Contender:
    """Return `count` updates of each of `runs` federations that differ in their seeds; a unit is one step of one run.

    It is what `simulate` calls between two measurements: client steps, server steps, all runs in one compiled loop.
    """
    same = [problem.run(algorithm, seed + index) for index in range(runs)]
    block = arrange(same, [list(itertools.islice(run.turns(), count)) for run in same], count)
    settings, start = stack([run.settings for run in same]), stack([run.init() for run in same])
    # Arrays on the device, made once: moving them there would be timed with every call.
    given = jax.device_put((problem.model, problem.clients.rows, settings, start, block, np.int32(runs)))
    return Contender(lambda: jax.block_until_ready(play_blocks(*given)), runs * count * algorithm.solver.steps)


def measure_steps(seed: int, rounds: int, notes: list[str]) -> dict[str, Any]:
    """Return microseconds and ratios of every contender, and the memory that fedvi's own took; note who is missing."""
    problem, private = OneSite(seed), algorithm_with(PoissonGaussian())
    contenders = {
        FLOOR: bare_products(BATCH, FEATURES, seed),
        PRIVATE: updates(problem, private, seed),
        BATCHED: updates(problem, private, seed, SEEDS, 2),
        PLAIN: updates(problem, algorithm_with(Minibatch(minimum=BATCH)), seed),
        PUBLISHED: updates(problem, algorithm_with(FixedSizeGaussian()), seed),
    }
    for contender in contenders.values():
        contender.call()
    memory = peak_memory_mb()  # before other libraries are loaded
    if all(importlib.util.find_spec(name) is not None for name in ("torch", "opacus")):
        from benchmarks.peers import closed_form, opacus_steps, per_example, torch_updates

        contenders[TORCH] = torch_updates(problem, private, seed, 2, closed_form)
        contenders[TORCH_PER_EXAMPLE] = torch_updates(problem, private, seed, 1, per_example)
        contenders[OPACUS] = opacus_steps(problem, private, seed, 1)
    else:
        notes.append("PyTorch and Opacus are not measured. To compare with them: pip install 'fedvi[bench]'")
    return {**_summary(take_turns(contenders, rounds)), "peak_memory_mb": memory}


def _summary(samples: Samples) -> dict[str, Any]:
    """Return the numbers by their short names, and `steps`, a row for every contender."""
    named = {"blas": FLOOR, "private_step": PRIVATE, "private_step_batched": BATCHED, "pvi_step": PLAIN}
    result: dict[str, Any] = {f"{key}_us": 1e6 * samples.typical(name) for key, name in named.items()}
    result |= {f"{key}_over_blas": samples.ratio(name, FLOOR) for key, name in named.items() if name != FLOOR}
    if OPACUS in samples.seconds:
        best = min((TORCH, TORCH_PER_EXAMPLE), key=samples.typical)
        result["torch_over_fedvi"] = samples.ratio(best, PRIVATE)
        result["opacus_over_fedvi"] = samples.ratio(OPACUS, PRIVATE)
    result["steps"] = {
        name: {
            "us": 1e6 * samples.typical(name),
            "best_us": 1e6 * samples.best(name),
            "over_blas": samples.ratio(name, FLOOR),
            "over_blas_of_best": samples.ratio_of_best(name, FLOOR),
            "over_fedvi": samples.ratio(name, PRIVATE),
        }
        for name in samples.seconds
    }
    return result
