"""Audit of the parts of private updates: coupling, lattice, sensitivity, noise, sampling.

Exact tests (coupling, lattice, sensitivity, public numbers) have no chance of being wrong. The others fix their
statistic and their threshold before they look: a correct mechanism fails each with a probability of about `ALPHA`, one
that does not do what its event says fails far beyond that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np

from fedvi.audit.coupling import couple
from fedvi.audit.noise import ALPHA, Finding, audit_noise
from fedvi.audit.subject import CANARY, Subject, everybody, noise_of, silent, some, without_canary
from fedvi.errors import InputError
from fedvi.inference.local_problem import Draws
from fedvi.privacy.sampling import Seeded, Source, System

NUMBERS = 1_000_000
"""Numbers with noise that the statistics of the noise rest on."""

DRAWN = 2_000
"""Updates that are drawn for it, as a client draws them; the rest comes from the sampler directly."""

CANARIES: dict[str, tuple[float, float]] = {
    "ordinary": (1.0, 1.0),
    "negative": (-1.0, 1.0),
    "at the bound": (64.0, -1.0),
    "huge": (1e4, -1.0),
    "astronomic": (3e38, 1.0),
    "tiny with a huge target": (1.05e-19, 1.8e19),
    "NaN": (math.nan, 1.0),
    "infinite": (math.inf, 1.0),
    "NaN target": (1.0, math.nan),
    "zero": (0.0, 1.0),
}
"""Size and target of rows that try to move the sum by more than they may, or to switch something off."""

COUNTS = (1, 2, 9, 10, 100)
"""Numbers of rows with which a canary is tried: blocks that are full, just not full, and just too full."""


def audit_parts(subject: Subject, updates: int = 500) -> list[Finding]:
    """Run all tests of the parts; those of sampling on so many updates."""
    _ = subject.lattice  # or refuse what is not private
    findings = [_source(subject.source()), *_public(subject), *_lattice(subject), *_coupling(subject)]
    findings += _sensitivity(subject)
    draws = subject.draws(updates)
    steps, numbers = noise_of(draws).shape[-2:]
    noise = np.stack([noise_of(subject.draw()) for _ in range(min(NUMBERS // (steps * numbers) + 1, DRAWN))])
    many = subject.lattice.noise(subject.source(), NUMBERS // (steps * numbers) + 1, steps * numbers)
    findings += audit_noise(np.concatenate([noise.reshape(len(noise), -1), many]), subject.lattice.size)
    findings.append(
        Finding("private steps", f"{subject.event.steps} an update", f"{steps}", steps == subject.event.steps)
    )
    if not subject.whole_client:
        findings += [*_sampling(subject, draws), _padding(subject, some(draws, slice(1)))]
    return findings


def directions(dim: int) -> Iterator[np.ndarray]:
    """Return the directions that canaries take: one feature, all of them, and one at random; no entry beyond 1."""
    yield np.eye(dim)[0]
    yield np.ones(dim)
    yield from np.random.default_rng(1).uniform(-1, 1, size=(1, dim))


def _canary(size: float, direction: np.ndarray) -> np.ndarray:
    canary = np.zeros(len(direction))
    canary[direction != 0] = size * direction[direction != 0]
    return canary


def _source(source: Source) -> Finding:
    name = {System: "the operating system", Seeded: "a seed, as was asked for"}.get(type(source))
    return Finding("source of randomness", "the operating system", name or type(source).__name__, name is not None)


def _public(subject: Subject) -> list[Finding]:
    """Draw for neighbouring numbers of rows, for which the same number is declared."""

    def public(rows: int) -> tuple[float, float, tuple[tuple[int, ...], ...]]:
        drawn = subject.draw(rows)
        return float(drawn.scale), float(drawn.grid), tuple(np.shape(leaf) for leaf in vars(drawn).values())

    here, there = public(subject.rows), public(subject.rows - 1)
    return [
        Finding(
            "scale, grid and shapes", "from the declared rows", "the same" if here == there else "differ", here == there
        )
    ]


def _lattice(subject: Subject) -> list[Finding]:
    """Compare the size of the grid and of the noise with the public numbers they must follow from."""
    lattice, root = subject.lattice, math.sqrt(subject.lattice.numbers)
    least = subject.event.noise_multiplier * (subject.clip_norm + lattice.grid * root)
    size, numbers = lattice.size * lattice.grid, noise_of(subject.draw()).shape[-1]
    power, drawn = math.frexp(lattice.grid)[0] == 0.5, float(subject.draw().grid) == lattice.grid
    return [
        Finding("grid", "a public power of two", f"{lattice.grid:g}", power and drawn),
        Finding("size of the noise", f"at least {least:.9g}", f"{size:.9g}", size >= least),
        Finding("numbers with noise", f"{subject.event.numbers}", f"{numbers}", numbers == subject.event.numbers),
    ]


def _coupling(subject: Subject) -> list[Finding]:
    """Couple tables with different canaries, under ordinary and extreme noise, near and far from the prior."""
    limit = subject.clip_norm / subject.lattice.grid + math.sqrt(subject.lattice.numbers)
    size, most = subject.lattice.size, limit * (1 if subject.whole_client else subject.rows)
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "ordinary noise": lambda drawn: drawn,
        "extreme noise": lambda drawn: np.rint(np.resize([3.5, -5.0, 8.0, -12.0], drawn.shape) * size).astype(np.int64),
        "no noise": np.zeros_like,
    }
    findings, worst = [], 0.0
    for name, noise in kinds.items():
        longest, largest, same, whole = 0.0, 0.0, True, True
        for size_of_row, target in CANARIES.values():
            x, y = subject.table(_canary(size_of_row, np.ones(subject.dim)), target)
            for q in (subject.q, subject.far_q) if name == "ordinary noise" else (subject.q,):
                found = couple(subject, x, y, q=q, noise=noise)
                longest, largest = max(longest, found.longest), max(largest, found.largest)
                same, whole = same and found.same, whole and found.whole
        worst = max(worst, longest)
        shift = f"noise shifted by {longest / limit:.6f} C"
        findings += [
            Finding(f"coupling, {name}", "the same bytes", shift if same else "bytes differ", same),
            Finding(f"shift, {name}", "at most 1 C", shift, longest <= limit * (1 + 1e-9)),
            Finding(
                f"shift, sums with {name}",
                "at most 1 C a row",
                f"{largest / limit:.3f} C",
                largest <= most * (1 + 1e-9),
            ),
            Finding(f"lattice, {name}", "whole numbers", "whole" if whole else "others", whole),
        ]
    return [
        *findings,
        Finding("coupling, the audit's reach", "about 1 C", f"{worst / limit:.5f} C", worst > 0.9 * limit),
    ]


def _sensitivity(subject: Subject) -> list[Finding]:
    """Compare what is seen without noise, with and without each canary, for several numbers of rows and q."""
    limit = subject.clip_norm / subject.lattice.grid
    root = math.sqrt(subject.lattice.numbers)
    draws = silent(subject.draws(1))
    findings, largest, own = [], 0.0, True
    for name, (size, target) in CANARIES.items():
        worst = 0.0
        for direction in directions(subject.dim):
            x, y = subject.table(_canary(size, direction), target)
            for q in (subject.q, subject.far_q):
                for moved, alone in _moved(subject, x, y, draws, q):
                    norm = float(np.max(np.linalg.norm(moved, axis=-1)))
                    worst = max(worst, math.inf if math.isnan(norm) else norm)
                    own &= bool(np.all(np.abs(moved - alone) <= 1))
        largest = max(largest, worst)
        findings.append(
            Finding(f"sensitivity, {name} row", "at most 1 C", f"{worst / limit:.6f} C", worst <= limit + root)
        )
    findings.append(
        Finding("sensitivity, the audit's reach", "about 1 C", f"{largest / limit:.5f} C", largest > 0.9 * limit)
    )
    if not subject.whole_client:
        said = "its own" if own else "others' too"
        findings.append(Finding("a row moves", "its own part alone", said, own))
    return findings


def _moved(
    subject: Subject, x: np.ndarray, y: np.ndarray, draws: Draws, q: object
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield what a canary adds to the sum, among many rows and alone."""
    if subject.whole_client:
        site = subject.site(x, y)
        moved = subject.observe(site, draws, q) - subject.observe(site, draws, q, present=False)  # type: ignore[arg-type]
        yield moved, moved
        return
    tables = [(x, y)]
    alike = np.tile(x[CANARY] if np.isfinite(x[CANARY]).all() else x[1], (len(x), 1))
    tables.append((np.concatenate([x[:1], -alike[1:]]), np.concatenate([y[:1], np.repeat(-y[:1], len(y) - 1)])))
    for rows, targets in tables:
        here, there = subject.site(rows, targets), subject.site(rows[1:], targets[1:])
        alone = _sum(subject, here, everybody(draws, 1), q) - _sum(subject, here, everybody(draws, 0), q)
        for count in COUNTS:
            with_it = everybody(draws, min(count, len(rows)))
            yield _sum(subject, here, with_it, q) - _sum(subject, there, without_canary(with_it), q), alone


def _sum(subject: Subject, site: object, draws: Draws, q: object) -> np.ndarray:
    return subject.observe(site, draws, q)  # type: ignore[arg-type]


def _padding(subject: Subject, draws: Draws) -> Finding:
    """Put a huge row into the last place of every batch, masked; nothing may change."""
    mask = np.array(draws.mask)
    mask[..., -1] = False
    site = subject.site(*subject.table(np.full(subject.dim, 1e4)))

    def seen(row: int) -> np.ndarray:
        rows = np.array(draws.rows)
        rows[..., -1] = row
        return subject.observe(site, dataclasses.replace(silent(draws), rows=rows, mask=mask))  # type: ignore[arg-type]

    moved = float(np.max(np.abs(seen(CANARY) - seen(CANARY + 1))))
    return Finding("padding", "counts for nothing", f"{moved:g} steps of the grid", moved == 0)


def _sampling(subject: Subject, draws: Draws) -> list[Finding]:
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
    error = variance * math.sqrt(kurtosis / trials)
    both = rate**2
    shared = {lag: int(np.sum(included[lag:] * included[:-lag])) for lag in (1, subject.event.steps)}
    scatter = math.sqrt(2 * n * trials * both)
    apart = max(abs(count - n * (trials - lag) * both) for lag, count in shared.items()) / scatter
    tests = {
        "canary in a batch": (f"{rate:.4f} of the time", f"{canary / trials:.4f}", min(tails) > ALPHA / 2),
        "counts of all rows": (f"chi-square {low:.0f} to {high:.0f}", f"{uneven:.0f}", low <= uneven <= high),
        "size of a batch": (
            f"variance {variance:.3f}",
            f"{found:.3f}",
            abs(found - variance) <= norm.isf(ALPHA / 2) * error,
        ),
        "rows in two batches": ("independent", f"{apart:.1f} standard errors", apart <= norm.isf(ALPHA / 4) + 1),
    }
    return [once, *(Finding(name, claim, seen, bool(passed)) for name, (claim, seen, passed) in tests.items())]
