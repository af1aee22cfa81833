"""Audit of the parts of private updates: sensitivity, size, shape and independence of the noise, sampling.

Every test fixes its statistic and its threshold before it looks. A correct mechanism fails a test with a probability of
about `ALPHA`; one that does not do what its event says fails far beyond that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from fedvi.audit.subject import CANARY, Subject, silent
from fedvi.errors import InputError
from fedvi.local import Draws

ALPHA = 1e-6
"""Probability with which a test may reject a correct mechanism."""

ROUNDING = 1e-5
"""Relative error of what is observed, in float32."""

CANARIES: dict[str, tuple[float, float]] = {
    "ordinary": (1.0, 1.0),
    "huge": (1e4, -1.0),
    "astronomic": (3e38, 1.0),
    "tiny with a huge target": (1.05e-19, 1.8e19),
    "NaN": (math.nan, 1.0),
    "infinite": (math.inf, 1.0),
    "NaN target": (1.0, math.nan),
    "zero": (0.0, 1.0),
}
"""Size and target of rows that try to move the sum by more than they may."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One test: what was claimed, what was found, and whether the two agree."""

    name: str
    claimed: str
    found: str
    passed: bool


def audit_parts(subject: Subject, updates: int = 500) -> list[Finding]:
    """Run all tests of the parts, on so many updates."""
    draws = subject.draws(updates)
    sampling = [] if subject.whole_client else _sampling(subject, draws)
    return [*_sensitivity(subject, draws), *_noise(subject, draws), *sampling]


def directions(dim: int) -> Iterator[np.ndarray]:
    """Return the directions that canaries take: one feature, all of them, and one at random; no entry beyond 1."""
    yield np.eye(dim)[0]
    yield np.ones(dim)
    yield from np.random.default_rng(1).uniform(-1, 1, size=(1, dim))


def _sensitivity(subject: Subject, draws: Draws) -> list[Finding]:
    """Compare what is seen without noise, with and without each canary."""
    quiet = silent(draws)
    findings = []
    for name, (size, target) in CANARIES.items():
        worst = 0.0
        for direction in directions(subject.dim):
            canary = np.zeros(subject.dim)
            canary[direction != 0] = size * direction[direction != 0]
            site = subject.site(canary, target)
            moved = subject.observe(site, quiet) - subject.observe(site, quiet, present=False)
            largest = float(np.max(np.linalg.norm(moved, axis=-1)))
            worst = max(worst, math.inf if math.isnan(largest) else largest)
        findings.append(Finding(f"sensitivity, {name} row", "at most 1 C", f"{worst:.5f} C", worst <= 1 + ROUNDING))
    return findings


def _noise(subject: Subject, draws: Draws) -> list[Finding]:
    """Look at the noise alone: what is seen with it minus what is seen without."""
    from scipy.stats import chi2, kstest, norm

    site, claimed = subject.site(np.ones(subject.dim)), subject.noise_multiplier
    noise = (subject.observe(site, draws) - subject.observe(site, silent(draws))) / claimed
    noise = noise[..., _own_noise(subject)]
    each = np.mean(noise**2, axis=(0, 1))
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], noise.size) / noise.size
    least = chi2.ppf(ALPHA / each.size, noise.size // each.size) / (noise.size // each.size)
    total = float(np.mean(noise**2))
    sizes = f"{claimed * math.sqrt(each.min()):.3f} to {claimed * math.sqrt(each.max()):.3f} by coordinate"
    tests = {
        f"noise, {noise.size} draws": (
            f"std {claimed:g} C",
            f"{claimed * math.sqrt(total):.4f} C ({sizes})",
            low <= total <= high and np.all(each >= least),
        ),
        "shape of the noise": (
            "normal",
            f"p-value {(p := float(kstest(noise.ravel(), 'norm').pvalue)):.2g}",
            p > ALPHA,
        ),
    }
    drawn = np.concatenate([np.reshape(part, (-1, part.shape[-1])) for part in _normals(draws)])
    alike = len(drawn) - len(np.unique(drawn, axis=0))
    tests["draws of the noise"] = ("all different", f"{alike} of {len(drawn)} repeated", alike == 0)
    flat = noise.reshape(len(noise), -1)
    for name, table in (("steps and coordinates", flat.T), ("updates", flat)):
        if len(table) > 1:
            products = table @ table.T / math.sqrt(table.shape[1])
            apart = np.abs(products[np.triu_indices(len(table), 1)])
            limit = float(norm.isf(ALPHA / 2 / apart.size)) * _heavier(table.shape[1])
            worst = float(apart.max())
            found = f"largest correlation {worst:.1f} standard errors of {limit:.1f}"
            tests[f"noise of different {name}"] = ("independent", found, worst <= limit)
    return [Finding(name, claim, seen, bool(passed)) for name, (claim, seen, passed) in tests.items()]


def _normals(draws: Draws) -> list[np.ndarray]:
    return [np.asarray(part) for part in (draws.privacy_noise, draws.release_noise) if part.shape[-1]]


def _heavier(terms: int) -> float:
    """Return by how much the far tail of a sum of so many products of normals is wider than a normal's."""
    return 1 + 3 / math.sqrt(terms)


def _own_noise(subject: Subject) -> np.ndarray:
    """Return which of the observed numbers have a draw of their own: off the diagonal of a matrix two are averaged."""
    precision = np.asarray(subject.q.precision)
    matrix = subject.whole_client and precision.ndim == 2
    own = np.eye(len(precision), dtype=bool) if matrix else np.ones_like(precision, bool)
    return np.concatenate([np.ones(subject.dim, bool), own.ravel()])


def _sampling(subject: Subject, draws: Draws) -> list[Finding]:
    """Count how often each row was in a batch, and how much the sizes of batches vary."""
    from scipy.stats import binom, chi2, norm

    n, rate = subject.rows, subject.sampling_rate
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
    error = variance * math.sqrt(kurtosis / trials)
    tests = {
        "canary in a batch": (f"{rate:.4f} of the time", f"{canary / trials:.4f}", min(tails) > ALPHA / 2),
        "counts of all rows": (f"chi-square {low:.0f} to {high:.0f}", f"{uneven:.0f}", low <= uneven <= high),
        "size of a batch": (
            f"variance {variance:.3f}",
            f"{found:.3f}",
            abs(found - variance) <= norm.isf(ALPHA / 2) * error,
        ),
    }
    return [once, *(Finding(name, claim, seen, bool(passed)) for name, (claim, seen, passed) in tests.items())]
