"""The main comparison: one local step of fedvi beside the bare products, PyTorch and Opacus, all taking turns."""

from __future__ import annotations

import importlib.util
from typing import Any

from benchmarks.machine import peak_memory_mb
from benchmarks.problem import BATCH, FEATURES, SEEDS, STEPS, bare_products, one_site, private_algorithm, updates
from benchmarks.timing import Samples, take_turns
from fedvi.inference.algorithms import PVI
from fedvi.inference.gradient_steps import GradientSteps
from fedvi.privacy.published import FixedSizeGaussian
from fedvi.privacy.without_privacy import Minibatch

FLOOR = "four bare products, NumPy"
PRIVATE, BATCHED = "fedvi, private", f"fedvi, private, {SEEDS} seeds at once"
PLAIN, PUBLISHED = "fedvi, not private", "fedvi, the paper's mechanism"
TORCH, TORCH_PER_EXAMPLE, OPACUS = "PyTorch, closed form", "PyTorch, vmap(grad)", "Opacus, DP-SGD"
MISSING = "PyTorch and Opacus are not measured. To compare with them: pip install 'fedvi[bench]'"


def measure_steps(seed: int, rounds: int) -> dict[str, Any]:
    """Return microseconds and ratios of every contender, and the memory that fedvi's own took."""
    problem, private = one_site(seed), private_algorithm()
    contenders = {
        FLOOR: bare_products(BATCH, FEATURES, seed),
        PRIVATE: updates(problem, private, seed),
        BATCHED: updates(problem, private, seed, SEEDS, 2),
        PLAIN: updates(problem, PVI(GradientSteps(STEPS, 0.5, Minibatch(minimum=BATCH))), seed),
        PUBLISHED: updates(problem, PVI(GradientSteps(STEPS, 0.5, FixedSizeGaussian())), seed),
    }
    for contender in contenders.values():
        contender.call()
    memory = peak_memory_mb()  # before other libraries are loaded
    if peers_installed():
        from benchmarks.peers import closed_form, opacus_steps, per_example, torch_updates

        contenders[TORCH] = torch_updates(problem, private, seed, 2, closed_form)
        contenders[TORCH_PER_EXAMPLE] = torch_updates(problem, private, seed, 1, per_example)
        contenders[OPACUS] = opacus_steps(problem, private, seed, 1)
    return {**summarise(take_turns(contenders, rounds)), "peak_memory_mb": memory}


def peers_installed() -> bool:
    """Tell whether the libraries to compare with are there."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "opacus"))


def summarise(samples: Samples) -> dict[str, Any]:
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
