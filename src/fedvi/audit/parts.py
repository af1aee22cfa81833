"""Audit of the parts of private updates: sensitivity, size, shape and independence of the noise, sampling.

Every test fixes its statistic and its threshold before it looks. A correct mechanism fails a test with a probability of
about `ALPHA`; one that does not do what its event says fails far beyond that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from fedvi.audit.subject import CANARY, Subject, silent, with_canary
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
    sampling = [] if subject.whole_client else [*_sampling(subject, draws), _padding(subject, draws)]
    return [*_sensitivity(subject, draws), *_noise(subject, draws), *sampling]


def directions(dim: int) -> Iterator[np.ndarray]:
    """Return the directions that canaries take: one feature, all of them, and one at random; no entry beyond 1."""
    yield np.eye(dim)[0]
    yield np.ones(dim)
    yield from np.random.default_rng(1).uniform(-1, 1, size=(1, dim))


def _sensitivity(subject: Subject, draws: Draws) -> list[Finding]:
    """Compare what is seen without noise, with and without each canary."""
    quiet = silent(draws if subject.whole_client else with_canary(draws))
    findings, largest = [], 0.0
    for name, (size, target) in CANARIES.items():
        worst = 0.0
        for direction in directions(subject.dim):
            canary = np.zeros(subject.dim)
            canary[direction != 0] = size * direction[direction != 0]
            site = subject.site(canary, target)
            moved = subject.observe(site, quiet) - subject.observe(site, quiet, present=False)
            norm = float(np.max(np.linalg.norm(moved, axis=-1)))
            worst = max(worst, math.inf if math.isnan(norm) else norm)
        largest = max(largest, worst)
        findings.append(Finding(f"sensitivity, {name} row", "at most 1 C", f"{worst:.5f} C", worst <= 1 + ROUNDING))
    return [*findings, Finding("sensitivity, the audit's reach", "about 1 C", f"{largest:.5f} C", largest > 0.9)]


def _noise(subject: Subject, draws: Draws) -> list[Finding]:
    """Look at the noise alone: what is seen with it minus what is seen without, for rows of several kinds."""
    from scipy.stats import kstest, norm

    ones = np.ones(subject.dim)
    nobody = dataclasses.replace(draws, mask=np.zeros_like(draws.mask))  # type: ignore[arg-type]
    sites = {
        "ordinary rows": (subject.site(ones), draws),
        "huge rows": (subject.site(ones, others=1e3), draws),
        "empty batches": (subject.site(ones), nobody),
    }
    findings = []
    for name, (site, with_noise) in sites.items():
        noise = subject.observe(site, with_noise) - subject.observe(site, silent(with_noise))
        findings.append(_size_of_noise(subject, noise[..., _own_noise(subject)], name))
        if name == "ordinary rows":
            flat = (noise[..., _own_noise(subject)] / subject.claim["noise_multiplier"]).reshape(len(noise), -1)

    count, steps = flat.size, subject.claim["steps"]
    beyond, expected = int(np.sum(np.abs(flat) > 3)), count * 2 * norm.sf(3)
    vectors = np.concatenate([np.reshape(part, (-1, part.shape[-1])) for part in _normals(draws)])
    alike = len(vectors) - len(np.unique(vectors, axis=0))
    distinct = len(np.unique(flat))
    tests = {
        "private steps": (f"{steps} an update", f"{noise.shape[1]}", noise.shape[1] == steps),
        "shape of the noise": (
            "normal",
            f"p-value {(p := float(kstest(flat.ravel(), 'norm').pvalue)):.2g}",
            p > ALPHA,
        ),
        "tails of the noise": (
            f"{expected:.0f} beyond 3 std",
            f"{beyond}",
            abs(beyond - expected) <= norm.isf(ALPHA / 2) * math.sqrt(expected) + 10,
        ),
        "values of the noise": ("hardly any twice", f"{distinct} in {count}", distinct > 0.9 * count),
        "draws of the noise": ("all different", f"{alike} of {len(vectors)} repeated", alike == 0),
    }
    for name, table in (("steps and coordinates", flat.T), ("updates", flat)):
        if len(table) > 1:
            products = table @ table.T / math.sqrt(table.shape[1])
            apart = np.abs(products[np.triu_indices(len(table), 1)])
            limit = float(norm.isf(ALPHA / 2 / apart.size)) * _heavier(table.shape[1])
            worst = float(apart.max())
            found = f"largest correlation {worst:.1f} standard errors of {limit:.1f}"
            tests[f"noise of different {name}"] = ("independent", found, worst <= limit)
    return [*findings, *(Finding(name, claim, seen, bool(ok)) for name, (claim, seen, ok) in tests.items())]


def _size_of_noise(subject: Subject, noise: np.ndarray, name: str) -> Finding:
    from scipy.stats import chi2

    claimed, count = subject.claim["noise_multiplier"], noise.size
    each = np.mean((noise / claimed) ** 2, axis=(0, 1))
    total, one = float(np.mean(each)), count // each.size
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], count) / count
    least = chi2.ppf(ALPHA / each.size, one) / one
    sizes = f"{claimed * math.sqrt(each.min()):.3f} to {claimed * math.sqrt(each.max()):.3f} by coordinate"
    passed = bool(low <= total <= high and np.all(each >= least))
    return Finding(f"noise, {name}", f"std {claimed:g} C", f"{claimed * math.sqrt(total):.4f} C ({sizes})", passed)


def _padding(subject: Subject, draws: Draws) -> Finding:
    """Put a huge row into the last place of every batch, masked; nothing may change."""
    mask = np.array(draws.mask)
    mask[..., -1] = False

    def seen(row: int) -> np.ndarray:
        rows = np.array(draws.rows)
        rows[..., -1] = row
        changed = dataclasses.replace(silent(draws), rows=rows, mask=mask)  # type: ignore[arg-type]
        return subject.observe(subject.site(np.full(subject.dim, 1e4)), changed)

    moved = float(np.max(np.abs(seen(CANARY) - seen(CANARY + 1))))
    return Finding("padding", "counts for nothing", f"{moved:.5f} C", moved <= ROUNDING)


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

    n, rate = subject.rows, subject.claim["sampling_rate"]
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
