"""The coupling audit: exact, and the backbone of the others.

Run a table with noise Z, and its neighbour with noise Z + K - K', where K and K' are what the two add to their noise.
All bytes that leave and all bytes that stay must then be equal, update after update. That shows that rows reach a
release through K + Z alone. |K - K'| is the sensitivity of the code, with everything that rounding does to it.

K is not asked for: it is what is seen, less the noise. Code that does something else to its noise than to add it needs
a larger shift than |K - K'|, or none works at all. The auditor chooses the noise, so that rare values are tried too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from fedvi.audit.subject import Subject, everybody, noise_of, with_noise, without_canary
from fedvi.compiling import jax
from fedvi.families.base import GaussianFamily
from fedvi.inference.local_problem import Draws
from fedvi.inference.rows import Rows
from fedvi.inference.update import ClientState, Release

UPDATES = 3
"""Updates in a row that are compared."""


@dataclasses.dataclass(frozen=True)
class Coupled:
    """What a coupled run showed.

    longest: the longest shift of noise that was needed in a step, in units of the grid.
    largest: the longest sum, which is what is seen less the noise, in the same units.
    same: whether all bytes were then equal. whole: whether all that was seen lay on the grid.
    """

    longest: float
    largest: float
    same: bool
    whole: bool


def couple(
    subject: Subject,
    x: np.ndarray,
    y: np.ndarray,
    *,
    q: GaussianFamily | None = None,
    noise: Callable[[np.ndarray], np.ndarray] = lambda drawn: drawn,
) -> Coupled:
    """Run a table and its neighbour, which lacks the first row, with coupled noise.

    noise: from the noise as it was drawn to the noise that is used.
    """
    here = subject.site(x, y)
    there = here if subject.whole_client else subject.site(x[1:], y[1:])
    mine = theirs = subject.state
    now = subject.q if q is None else q
    longest, largest, same, whole = 0.0, 0.0, True, True
    for _ in range(UPDATES):
        own = subject.draw() if subject.whole_client else everybody(subject.draw(), len(x))
        own = with_noise(own, noise(noise_of(own)))
        mine, release, seen = subject.update(here, own, mine, now)
        other = own if subject.whole_client else without_canary(own)
        theirs, matched, seen_there, shift = _match(subject, there, other, theirs, now, seen)
        sums = seen / subject.lattice.grid - noise_of(own)
        longest = max(longest, float(np.max(np.linalg.norm(shift, axis=-1))))
        largest = max(largest, float(np.max(np.linalg.norm(sums, axis=-1))))
        same &= _bytes(subject, mine, release) == _bytes(subject, theirs, matched)
        whole &= bool(np.all(np.stack([seen, seen_there]) / subject.lattice.grid % 1 == 0))
        now = subject.sent_after(release, now)
        if not (same and bool(now.is_proper())):
            break
    return Coupled(longest, largest, same, whole)


def _match(
    subject: Subject, site: Rows, draws: Draws, state: ClientState, q: GaussianFamily, wanted: np.ndarray
) -> tuple[ClientState, Release, np.ndarray, np.ndarray]:
    """Find the noise with which the neighbour shows the same, step after step; return what it then does, and the shift.

    A step looks at a q that depends on the steps before it, so that one more step is right after every round.
    """
    first = noise = noise_of(draws)
    present = not subject.whole_client
    new, release, seen = subject.update(site, draws, state, q, present=present)
    for _ in range(noise.shape[-2] + 2):
        if np.array_equal(seen, wanted):
            break
        with np.errstate(invalid="ignore", over="ignore"):
            gap = np.nan_to_num((wanted - seen) / subject.lattice.grid, posinf=2.0**52, neginf=-(2.0**52))
        noise = noise + np.rint(np.clip(gap, -(2.0**52), 2.0**52)).astype(np.int64)
        new, release, seen = subject.update(site, with_noise(draws, noise), state, q, present=present)
    return new, release, seen, (noise - first).astype(float)


def _bytes(subject: Subject, state: ClientState, release: Release) -> list[bytes]:
    """Return what stays and what leaves; where the whole client is protected, what its solver keeps may differ."""
    kept = dataclasses.replace(state, solver=()) if subject.whole_client else state
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((kept, release))]
