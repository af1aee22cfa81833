"""Statistics of what is drawn: whole numbers that should be floor(M N), and rows that should be in batches by chance.

Statistic and threshold are fixed before anybody looks: what is drawn correctly fails each test with a probability of
about `ALPHA`, what is not fails far beyond that.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fedvi.audit.subject import CANARY, Subject
from fedvi.errors import InputError
from fedvi.inference.local_problem import Draws

ALPHA = 1e-6
"""Probability with which a test may reject what is correct."""

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
    sizes = f"{math.sqrt(total):.5f} ({math.sqrt(each.min()):.3f} to {math.sqrt(each.max()):.3f} by coordinate)"
    findings = [
        Finding("std of the noise", "1 std", sizes, low <= total <= high and bool(np.all(each >= least))),
        Finding("shape of the noise", "normal", f"p-value {p_value:.2g}", p_value > ALPHA),
        Finding("low bits of the noise", "uniform", f"chi-square {uneven:.0f} of {even:.0f}", uneven <= even),
        Finding("draws of the noise", "all different", f"{alike} of {len(noise)} repeated", alike == 0),
    ]
    for level in (3, 4):
        beyond, expected = int(np.sum(np.abs(flat) > level)), count * 2 * norm.sf(level)
        far = abs(beyond - expected) > norm.isf(ALPHA / 2) * math.sqrt(expected) + 1
        findings.append(Finding(f"noise beyond {level} std", f"{expected:.0f}", f"{beyond}", not far))
    scaled = flat.reshape(noise.shape)
    for name, table in (("numbers", scaled.T[:COMPARED]), ("updates", scaled[:COMPARED])):
        if len(table) < 2:
            continue
        products = table @ table.T / math.sqrt(table.shape[1])
        apart = np.abs(products[np.triu_indices(len(table), 1)])
        heavier = 1 + 3 / math.sqrt(table.shape[1])  # the far tail of a sum of products of normals
        limit, worst = float(norm.isf(ALPHA / 2 / apart.size)) * heavier, float(apart.max())
        found = f"largest correlation {worst:.1f} standard errors of {limit:.1f}"
        findings.append(Finding(f"noise of different {name}", "independent", found, worst <= limit))
    return findings


def audit_sampling(subject: Subject, draws: Draws) -> list[Finding]:
    """Count how often each row was in a batch, how much batches vary in size, and what two of them have in common."""
    from scipy.stats import binom, chi2, norm

    n, rate = subject.rows, subject.event.sampling_rate
    rows = np.asarray(draws.rows).reshape(-1, draws.rows.shape[-1])
    trials = len(rows)
    included = np.zeros((trials, n), int)
    np.add.at(included, (np.arange(trials)[:, None], rows), np.asarray(draws.mask).reshape(rows.shape))
    most = int(included.max())
    once = Finding("row in one batch", "at most once", f"up to {most} times", most <= 1)
    if rate == 1:
        return [once, Finding("sampling", "all rows", f"{included.mean():.4f} of them", bool(included.all()))]
    variance = n * rate * (1 - rate)
    if trials * rate < 500 or variance < 3:
        raise InputError(f"Expected more updates or larger batches, got {trials} batches of {n * rate:g} rows.")

    canary, counts, sizes = int(included[:, CANARY].sum()), included.sum(axis=0), included.sum(axis=1)
    tails = binom.cdf(canary, trials, rate), binom.sf(canary - 1, trials, rate)
    uneven = float(np.sum((counts - trials * rate) ** 2) / (trials * rate * (1 - rate)))
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], n)
    found = float(np.mean((sizes - n * rate) ** 2))
    kurtosis = 2 + (1 - 6 * rate * (1 - rate)) / variance  # of a binomial, less one
    far = abs(found - variance) > norm.isf(ALPHA / 2) * variance * math.sqrt(kurtosis / trials)
    shared = {lag: int(np.sum(included[lag:] * included[:-lag])) for lag in (1, subject.event.steps)}
    scatter = math.sqrt(2 * n * trials * rate**2)
    apart = max(abs(count - n * (trials - lag) * rate**2) for lag, count in shared.items()) / scatter
    return [
        once,
        Finding("canary in a batch", f"{rate:.4f} of the time", f"{canary / trials:.4f}", min(tails) > ALPHA / 2),
        Finding("counts of all rows", f"chi-square {low:.0f} to {high:.0f}", f"{uneven:.0f}", low <= uneven <= high),
        Finding("size of a batch", f"variance {variance:.3f}", f"{found:.3f}", not far),
        Finding("rows in two batches", "independent", f"{apart:.1f} standard errors", apart <= norm.isf(ALPHA / 4) + 1),
    ]
