"""Tests of drawn noise: size, shape, tails, low bits and independence of whole numbers that should be floor(M N)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

ALPHA = 1e-6
"""Probability with which a test may reject correct noise."""

LOW_BITS = 12
"""The lowest bits of noise are uniform, nearly: M is at least 2^26."""

FEWEST = 4
"""Numbers in a vector that is compared with others as a whole."""

COMPARED = 500
"""Vectors of noise that are compared with each other."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One test: what was claimed, what was found, and whether the two agree."""

    name: str
    claimed: str
    found: str
    passed: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "passed", bool(self.passed))  # NumPy's would not be JSON


def audit_noise(noise: np.ndarray, size: float) -> list[Finding]:
    """Test noise of many updates: (updates, numbers), whole. size: the claimed standard deviation."""
    from scipy.stats import chi2, kstest, norm

    if noise.shape[1] < FEWEST:  # single numbers may well come twice
        noise = noise.ravel()[: noise.size // FEWEST * FEWEST].reshape(-1, FEWEST)
    flat, count = (noise.ravel() + 0.5) / size, noise.size
    total = float(np.mean(flat**2))
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], count) / count
    p_value = float(kstest(flat[: 10**6], "norm").pvalue)
    each = np.mean(flat.reshape(noise.shape) ** 2, axis=0)
    least = chi2.ppf(ALPHA / each.size, len(noise)) / len(noise)
    alike = len(noise) - len(np.unique(noise, axis=0))
    counts = np.bincount((noise.ravel() & (2**LOW_BITS - 1)).astype(int), minlength=2**LOW_BITS)
    uneven = float(np.sum((counts - count / 2**LOW_BITS) ** 2) / (count / 2**LOW_BITS))
    even = chi2.isf(ALPHA, 2**LOW_BITS - 1)
    sizes = f"{math.sqrt(each.min()):.3f} to {math.sqrt(each.max()):.3f} by coordinate"
    findings = [
        Finding(
            "std of the noise",
            "1 std",
            f"{math.sqrt(total):.5f} ({sizes})",
            low <= total <= high and bool(np.all(each >= least)),
        ),
        Finding("shape of the noise", "normal", f"p-value {p_value:.2g}", p_value > ALPHA),
        Finding("low bits of the noise", "uniform", f"chi-square {uneven:.0f} of {even:.0f}", uneven <= even),
        Finding("draws of the noise", "all different", f"{alike} of {len(noise)} repeated", alike == 0),
    ]
    for level in (3, 4):
        beyond, expected = int(np.sum(np.abs(flat) > level)), count * 2 * norm.sf(level)
        far = abs(beyond - expected) > norm.isf(ALPHA / 2) * math.sqrt(expected) + 1
        findings.append(Finding(f"noise beyond {level} std", f"{expected:.0f}", f"{beyond}", not far))
    scaled = flat.reshape(noise.shape)
    for name, table in (("numbers", scaled.T), ("updates", scaled)):
        findings += _independence(name, table[:COMPARED])
    return findings


def _independence(name: str, table: np.ndarray) -> list[Finding]:
    from scipy.stats import norm

    if len(table) < 2:
        return []
    products = table @ table.T / math.sqrt(table.shape[1])
    apart = np.abs(products[np.triu_indices(len(table), 1)])
    heavier = 1 + 3 / math.sqrt(table.shape[1])  # the far tail of a sum of products of normals
    limit, worst = float(norm.isf(ALPHA / 2 / apart.size)) * heavier, float(apart.max())
    found = f"largest correlation {worst:.1f} standard errors of {limit:.1f}"
    return [Finding(f"noise of different {name}", "independent", found, worst <= limit)]
