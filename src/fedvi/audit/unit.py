"""Audit of the parts of private updates: sensitivity, size and independence of the noise, sampling.

Every test fixes its statistic and its threshold before it looks. A correct mechanism fails a test with a probability of
about `ALPHA`; one that does not do what its event says fails far beyond that.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fedvi.audit.subject import CANARY, Subject, silent, some
from fedvi.local import Draws

ALPHA = 1e-6
"""Probability with which a test may reject a correct mechanism."""

CANARIES = {
    "ordinary": 1.0,
    "huge": 1e4,
    "astronomic": 3e38,
    "NaN": math.nan,
    "infinite": math.inf,
    "zero": 0.0,
}


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


def _sensitivity(subject: Subject, draws: Draws) -> list[Finding]:
    """Compare what is seen without noise, with and without each canary."""
    quiet = silent(some(draws, slice(20)))
    absent = subject.observe(subject.absent(), quiet)
    findings = []
    for name, canary in CANARIES.items():
        moved = np.linalg.norm(subject.observe(subject.present(canary), quiet) - absent, axis=-1)
        worst = float(np.max(moved))
        findings.append(Finding(f"sensitivity, {name} row", "at most 1 C", f"{worst:.6f} C", worst <= 1 + 1e-6))
    return findings


def _noise(subject: Subject, draws: Draws) -> list[Finding]:
    """Look at the noise alone: what is seen with it minus what is seen without."""
    from scipy.stats import chi2, norm

    site, claimed = subject.present(1.0), subject.noise_multiplier
    noise = (subject.observe(site, draws) - subject.observe(site, silent(draws))) / claimed
    each = np.mean(noise**2, axis=(0, 1))
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], noise.size) / noise.size
    least = chi2.ppf(ALPHA / each.size, noise.size // each.size) / (noise.size // each.size)
    total = float(np.mean(noise**2))
    sizes = f"{claimed * math.sqrt(each.min()):.3f} to {claimed * math.sqrt(each.max()):.3f} by coordinate"
    findings = [
        Finding(
            f"noise, {noise.size} draws",
            f"std {claimed:g} C",
            f"{claimed * math.sqrt(total):.4f} C ({sizes})",
            bool(low <= total <= high and np.all(each >= least)),
        )
    ]
    neighbours = {
        "steps": (noise[:, :-1], noise[:, 1:]),
        "updates": (noise[:-1], noise[1:]),
        "coordinates": (noise[..., :-1], noise[..., 1:]),
    }
    for name, (first, second) in neighbours.items():
        if first.size:
            z = float(np.sum(first * second) / math.sqrt(first.size))
            found = f"correlation {z:+.1f} standard errors from 0"
            passed = bool(abs(z) <= norm.isf(ALPHA / 2))
            findings.append(Finding(f"noise of successive {name}", "independent", found, passed))
    return findings


def _sampling(subject: Subject, draws: Draws) -> list[Finding]:
    """Count how often each row was in a batch, and how much the sizes of batches vary."""
    from scipy.stats import binom, chi2, norm

    n, rate = subject.rows, subject.mechanism.batch_size(subject.rows) / subject.rows
    rows = np.asarray(draws.rows).reshape(-1, draws.rows.shape[-1])
    trials = len(rows)
    included = np.zeros((trials, n), int)
    np.add.at(included, (np.arange(trials)[:, None], rows), np.asarray(draws.mask).reshape(rows.shape))
    most = int(included.max())
    once = Finding("row in one batch", "at most once", f"up to {most} times", most <= 1)
    if rate == 1:
        return [once, Finding("sampling", "all rows", f"{included.mean():.4f} of them", bool(included.all()))]

    canary, counts, sizes = int(included[:, CANARY].sum()), included.sum(axis=0), included.sum(axis=1)
    tails = binom.cdf(canary, trials, rate), binom.sf(canary - 1, trials, rate)
    uneven = float(np.sum((counts - trials * rate) ** 2) / (trials * rate * (1 - rate)))
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], n)
    variance = n * rate * (1 - rate)
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
