"""Audit of the parts of private updates: coupling, lattice, sensitivity, noise, sampling; and of private sums.

Exact tests (coupling, lattice, sensitivity, public numbers) have no chance of being wrong. The others are statistics of
what is drawn (`fedvi.audit.draws`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from fedvi.audit.draws import Finding, audit_noise, audit_sampling
from fedvi.audit.lattice_attack import couple
from fedvi.audit.subject import CANARY, Subject, everybody, noise_of, silent, some, with_fields
from fedvi.families.base import GaussianFamily
from fedvi.inference.local_problem import Draws
from fedvi.privacy.sampling import Seeded, Source, System
from fedvi.privacy.sums import BoundedSum

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
    lattice = subject.lattice  # or refuse what is not private
    findings = [_source(subject.source()), *_public(subject), *_lattice(subject), *_coupling(subject)]
    findings += _sensitivity(subject)
    draws = subject.draws(updates)
    steps, numbers = noise_of(draws).shape[-2:]
    noise = np.stack([noise_of(subject.draw()) for _ in range(min(NUMBERS // (steps * numbers) + 1, DRAWN))])
    many = lattice.noise(subject.source(), NUMBERS // (steps * numbers) + 1, steps * numbers)
    findings += audit_noise(np.concatenate([noise.reshape(len(noise), -1), many]), lattice.size)
    claimed = subject.event.steps
    findings.append(Finding("private steps", f"{claimed} an update", f"{steps}", steps == claimed))
    if not subject.whole_client:
        findings += [*audit_sampling(subject, draws), _padding(subject, some(draws, slice(1)))]
    return findings


def _source(source: Source) -> Finding:
    name = {System: "the operating system", Seeded: "a seed, as was asked for"}.get(type(source))
    return Finding("source of randomness", "the operating system", name or type(source).__name__, name is not None)


def _public(subject: Subject) -> list[Finding]:
    """Draw for neighbouring numbers of rows, for which the same number is declared."""

    def public(rows: int) -> tuple[float, float, tuple[tuple[int, ...], ...]]:
        drawn = subject.draw(rows)
        return float(drawn.scale), float(drawn.grid), tuple(np.shape(leaf) for leaf in vars(drawn).values())

    same = public(subject.rows) == public(subject.rows - 1)
    return [Finding("scale, grid and shapes", "from the declared rows", "the same" if same else "differ", same)]


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
        found = [
            couple(subject, *subject.table(_canary(width, np.ones(subject.dim)), target), q=q, noise=noise)
            for width, target in CANARIES.values()
            for q in ((subject.q, subject.far_q) if name == "ordinary noise" else (subject.q,))
        ]
        longest, largest = max(each.longest for each in found), max(each.largest for each in found)
        same, whole = all(each.same for each in found), all(each.whole for each in found)
        worst, within = max(worst, longest), largest <= most * (1 + 1e-9)
        shift = f"noise shifted by {longest / limit:.6f} C"
        findings += [
            Finding(f"coupling, {name}", "the same bytes", shift if same else "bytes differ", same),
            Finding(f"shift, {name}", "at most 1 C", shift, longest <= limit * (1 + 1e-9)),
            Finding(f"shift, sums with {name}", "at most 1 C a row", f"{largest / limit:.3f} C", within),
            Finding(f"lattice, {name}", "whole numbers", "whole" if whole else "others", whole),
        ]
    reach = Finding("coupling, the audit's reach", "about 1 C", f"{worst / limit:.5f} C", worst > 0.9 * limit)
    return [*findings, reach]


def _sensitivity(subject: Subject) -> list[Finding]:
    """Compare what is seen without noise, with and without each canary, for several numbers of rows and q."""
    limit, root = subject.clip_norm / subject.lattice.grid, math.sqrt(subject.lattice.numbers)
    draws = silent(subject.draws(1))
    one_feature, all_features = np.eye(subject.dim)[0], np.ones(subject.dim)
    directions = one_feature, all_features, np.random.default_rng(1).uniform(-1, 1, subject.dim)
    findings, largest, own = [], 0.0, True
    for name, (size, target) in CANARIES.items():
        worst = 0.0
        for direction in directions:
            x, y = subject.table(_canary(size, direction), target)
            for q in (subject.q, subject.far_q):
                for moved, alone in _moved(subject, x, y, draws, q):
                    norm = float(np.max(np.linalg.norm(moved, axis=-1)))
                    worst = max(worst, math.inf if math.isnan(norm) else norm)
                    own &= bool(np.all(np.abs(moved - alone) <= 1))
        largest, found = max(largest, worst), f"{worst / limit:.6f} C"
        findings.append(Finding(f"sensitivity, {name} row", "at most 1 C", found, worst <= limit + root))
    reach = f"{largest / limit:.5f} C"
    findings.append(Finding("sensitivity, the audit's reach", "about 1 C", reach, largest > 0.9 * limit))
    if not subject.whole_client:
        findings.append(Finding("a row moves", "its own part alone", "its own" if own else "others' too", own))
    return findings


def _canary(size: float, direction: np.ndarray) -> np.ndarray:
    canary = np.zeros(len(direction))
    canary[direction != 0] = size * direction[direction != 0]
    return canary


def _moved(
    subject: Subject, x: np.ndarray, y: np.ndarray, draws: Draws, q: GaussianFamily
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield what a canary adds to the sum, among many rows and alone."""

    def moved(x: np.ndarray, y: np.ndarray, draws: Draws) -> np.ndarray:
        return subject.look(x, y, draws, q) - subject.look(x, y, draws, q, present=False)

    if subject.whole_client:
        yield (found := moved(x, y, draws)), found
        return
    alike = np.tile(x[CANARY] if np.isfinite(x[CANARY]).all() else x[1], (len(x), 1))
    against = np.concatenate([x[:1], -alike[1:]]), np.concatenate([y[:1], np.repeat(-y[:1], len(y) - 1)])
    for table in ((x, y), against):
        alone = moved(*table, everybody(draws, 1))
        for count in COUNTS:
            yield moved(*table, everybody(draws, min(count, len(x)))), alone


def _padding(subject: Subject, draws: Draws) -> Finding:
    """Put a huge row into the last place of every batch, masked; nothing may change."""
    mask = np.array(draws.mask)
    mask[..., -1] = False
    site = subject.site(*subject.table(np.full(subject.dim, 1e4)))

    def seen(row: int) -> np.ndarray:
        rows = np.array(draws.rows)
        rows[..., -1] = row
        return subject.observe(site, with_fields(silent(draws), rows=rows, mask=mask))

    moved = float(np.max(np.abs(seen(CANARY) - seen(CANARY + 1))))
    return Finding("padding", "counts for nothing", f"{moved:g} steps of the grid", moved == 0)


def audit_sum(
    part: BoundedSum,
    vectors: Callable[[np.ndarray, np.ndarray], np.ndarray],
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
    size = lattice.size * lattice.grid

    def steps(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the sum without noise, in steps of the grid."""
        return np.rint(part.total(vectors(x, y), rows, average=average) / lattice.grid)

    worst, same, whole, own = 0.0, True, True, True
    for seed, (width, target) in enumerate(CANARIES.values()):
        features, targets = np.array(x, np.float64), np.array(y, np.float64)
        features[0], targets[0] = np.where(np.isfinite(width), width, 0), target
        totals = []
        for table in ((features, targets), (features[1:], targets[1:])):
            released = part.release(vectors(*table), rows, Seeded(seed, 0), average=average) / lattice.grid
            totals.append(released - lattice.noise(Seeded(seed, 0), part.numbers))
            whole &= bool(np.all(released % 1 == 0))
            same &= np.array_equal(totals[-1], steps(*table))
        moved = totals[0] - totals[1]
        worst = max(worst, float(np.linalg.norm(moved)))
        own &= average or np.array_equal(moved, steps(features[:1], targets[:1]))
    order = np.random.default_rng(0).permutation(rows)
    shuffled = np.array_equal(steps(x, y), steps(x[order], y[order]))
    noise = np.stack([lattice.noise(source(), part.numbers) for _ in range(2000)])
    many = lattice.noise(source(), NUMBERS // part.numbers + 1, part.numbers)
    return [
        Finding("sum, sensitivity", "at most 1", f"{worst * lattice.grid:.6f}", worst <= limit),
        Finding("sum, lattice", "whole numbers", "whole" if whole else "others", whole),
        Finding("sum, noise", "the same for all rows", "the same" if same else "depends on rows", same),
        Finding("sum, a row moves", "its own part alone", "its own" if own else "others' too", own),
        Finding("sum, order of rows", "does not matter", "the same" if shuffled else "differs", shuffled),
        Finding("sum, size of the noise", f"at least {least:.9g}", f"{size:.9g}", size >= least),
        Finding("sum, numbers", f"{part.numbers}", f"{part.event.numbers}", part.event.numbers == part.numbers),
        *audit_noise(np.concatenate([noise, many]), lattice.size),
    ]
