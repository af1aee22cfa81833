"""The attack on floating-point noise, against private sums and clients: certain on the old way, at chance on ours.

`system/test_attacks.py` makes it against the bytes that a site sends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedvi import PVI, LogisticRegression
from fedvi.audit import Subject
from fedvi.audit.subject import silent
from fedvi.inference import GradientSteps
from fedvi.privacy import ClientLevel, FullBatch
from fedvi.privacy.sampling import Seeded, System
from fedvi.privacy.sums import BoundedSum
from recognition import CHANCE, RUNS, possible, right, says_present

ROWS = 1000


def told_apart(release: Callable[[bool, int], np.ndarray], sums: dict[bool, np.ndarray], std: float) -> float:
    """Attack releases in double precision."""
    guesses: dict[bool, list[float]] = {True: [], False: []}
    for run in range(RUNS):
        for present, said in guesses.items():
            released = release(present, run)
            impossible = {}
            for world, total in sums.items():
                normals = (released - total) / std
                back = total + std * normals
                near = [total + std * np.nextafter(normals, sign * np.inf) for sign in (-1, 1)]
                impossible[world] = int(np.sum((back != released) & (near[0] != released) & (near[1] != released)))
            said.append(says_present(impossible[True], impossible[False]))
    return right(guesses)


def test_a_row_is_not_recognised_in_a_private_sum() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(ROWS, 64)) / 20
    part = BoundedSum(3.25, 64)
    sums = {present: part.total(vectors if present else vectors[1:], ROWS, average=False) for present in (True, False)}

    def release(present: bool, run: int) -> np.ndarray:
        return part.release(vectors if present else vectors[1:], ROWS, Seeded(2 * run + present, 0))

    assert told_apart(release, sums, 3.25) <= CHANCE

    def old(present: bool, run: int) -> np.ndarray:
        return sums[present] + 3.25 * np.random.default_rng([run, present]).standard_normal(64)

    assert told_apart(old, sums, 3.25) > 0.95  # double precision is no cure


def test_a_client_is_not_recognised_in_its_release() -> None:
    protection = ClientLevel(3.0, 0.5)
    algorithm = PVI(GradientSteps(5, 0.5, FullBatch()), damping=1.0, client_level=protection)
    here = Subject(algorithm, System, LogisticRegression(), rows=40, dim=12)
    x, y = here.table(np.ones(12))
    site, numbers = here.site(x, y), here.lattice.numbers
    sums = {}
    for present in (True, False):
        draws = silent(here.draws(1))
        sums[present] = here.observe(site, draws, present=present)[0, 0] * here.lattice.grid
    std = here.lattice.size * here.lattice.grid
    released = {
        present: here.observe(site, here.draws(RUNS), present=present)[:, 0] * here.lattice.grid
        for present in (True, False)
    }

    def attack(seen: dict[bool, np.ndarray]) -> float:
        guesses: dict[bool, list[float]] = {True: [], False: []}
        for present, said in guesses.items():
            for values in seen[present]:
                single = values.astype(np.float32)
                impossible = {world: int(np.sum(~possible(single, total, std))) for world, total in sums.items()}
                said.append(says_present(impossible[True], impossible[False]))
        return right(guesses)

    assert attack(released) <= CHANCE
    rng = np.random.default_rng(0)
    old = {
        present: total + std * rng.normal(size=(RUNS, numbers)).astype(np.float32).astype(float)
        for present, total in sums.items()
    }
    assert attack(old) > 0.95
