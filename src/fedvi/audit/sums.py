"""Audit of private sums beside training: the same questions, for a function of rows that is summed once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fedvi.audit.noise import Finding, audit_noise
from fedvi.audit.parts import CANARIES, NUMBERS
from fedvi.privacy.sampling import Seeded, Source
from fedvi.privacy.sums import BoundedSum

Vectors = Callable[[np.ndarray, np.ndarray], np.ndarray]


def audit_sum(
    part: BoundedSum,
    vectors: Vectors,
    x: np.ndarray,
    y: np.ndarray,
    source: Callable[[], Source],
    *,
    average: bool = False,
) -> list[Finding]:
    """Attack the release of `sum_i vectors(x, y)_i` over a table, its first row exchanged for canaries and left out."""
    rows, lattice = len(x), part.lattice(len(x))
    limit = 1 / lattice.grid + math.sqrt(part.numbers)
    least = part.event.noise_multiplier * (1 + lattice.grid * math.sqrt(part.numbers))
    worst, same, whole, own = 0.0, True, True, True
    for seed, (size, target) in enumerate(CANARIES.values()):
        features, targets = np.array(x, np.float64), np.array(y, np.float64)
        features[0], targets[0] = np.where(np.isfinite(size), size, 0), target
        totals = []
        for skipped in (0, 1):
            summands = vectors(features[skipped:], targets[skipped:])
            released = part.release(summands, rows, Seeded(seed, 0), average=average) / lattice.grid
            quiet = lattice.noise(Seeded(seed, 0), part.numbers)
            whole &= bool(np.all(released % 1 == 0))
            same &= np.array_equal(released - quiet, _steps(part, summands, rows, average))
            totals.append(released - quiet)
        worst = max(worst, float(np.linalg.norm(totals[0] - totals[1])))
        if not average:
            alone = _steps(part, vectors(features[:1], targets[:1]), rows, average)
            own &= np.array_equal(totals[0] - totals[1], alone)
    order = np.random.default_rng(0).permutation(rows)
    shuffled = np.array_equal(
        _steps(part, vectors(x, y), rows, average), _steps(part, vectors(x[order], y[order]), rows, average)
    )
    noise = np.stack([lattice.noise(source(), part.numbers) for _ in range(2000)])
    many = lattice.noise(source(), NUMBERS // part.numbers + 1, part.numbers)
    size_of_noise = lattice.size * lattice.grid
    return [
        Finding("sum, sensitivity", "at most 1", f"{worst * lattice.grid:.6f}", worst <= limit),
        Finding("sum, lattice", "whole numbers", "whole" if whole else "others", whole),
        Finding("sum, noise", "the same for all rows", "the same" if same else "depends on rows", same),
        Finding("sum, a row moves", "its own part alone", "its own" if own else "others' too", own),
        Finding("sum, order of rows", "does not matter", "the same" if shuffled else "differs", shuffled),
        Finding("sum, size of the noise", f"at least {least:.9g}", f"{size_of_noise:.9g}", size_of_noise >= least),
        Finding("sum, numbers", f"{part.numbers}", f"{part.event.numbers}", part.event.numbers == part.numbers),
        *audit_noise(np.concatenate([noise, many]), lattice.size),
    ]


def _steps(part: BoundedSum, summands: np.ndarray, rows: int, average: bool) -> np.ndarray:
    """Return the sum without noise, in steps of the grid."""
    return np.rint(part.total(summands, rows, average=average) / part.lattice(rows).grid)
