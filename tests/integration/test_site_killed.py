"""A site that is killed loses nothing and overspends nothing."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import crashing_federation
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.privacy.ledger import ledger as ledgers
from site_exchanges import saved
from victims import Victims


def test_a_site_killed_at_any_instant_loses_nothing_and_overspends_nothing(tmp_path: Path) -> None:
    chosen, rng = crashing_federation.DESCRIPTION, random.Random(1)
    victims = Victims(tmp_path / "cache", crashing_federation.__file__, "site")
    digests: dict[int, str] = {}
    lives = kills = 0
    try:
        for lives in range(1, 21):
            before = saved(tmp_path)["pending"] if lives > 1 else None
            said, end = victims.run(f"{tmp_path} 0", 1 + rng.randrange(9), rng.expovariate(1 / 0.01))
            assert end in ("killed", "ended 0")
            kills += end == "killed"
            sent = [line.split() for line in said if line.startswith("sent") and wire.POLL not in line]
            if before is not None:
                assert (
                    sent[0][3] == hashlib.sha256(before).hexdigest()
                )  # what was pending goes first, byte by byte the same
            for _, _, number, digest in sent:
                assert digests.setdefault(int(number), digest) == digest
            row, book = saved(tmp_path), ledgers.read(tmp_path / "north.ledger")
            paid = sum(book.charged.values())
            assert len(digests) <= row["releases"] <= paid <= row["releases"] + kills
            assert all(paid <= book.planned[event] for event, paid in book.charged.items())
            assert book.spent.epsilon <= crashing_federation.EPSILON
            with Coordinator.open(tmp_path / "coordinator.db") as coordinator:
                assert coordinator.verify() < 1e-6
                applied = coordinator.sites()[0].sequence
                assert row["releases"] - (row["pending"] is not None) <= applied <= row["releases"]
            if end == "ended 0":
                break
    finally:
        victims.stop()
    print(f"{kills} kills, {applied} releases applied, {paid} paid for")
    assert applied > kills / 2 > 5
    assert chosen.digest == row["federation"]


def test_a_site_killed_while_it_joins_joins_when_it_is_started_again(tmp_path: Path) -> None:
    """Ledger, witness and file of a site come into being one after another; a kill between them does no harm."""
    rng, victims = random.Random(2), Victims(tmp_path / "cache", crashing_federation.__file__, "site")
    kills = 0
    try:
        for number, name in enumerate(crashing_federation.DESCRIPTION.sites[:2]):
            folder = tmp_path / name
            folder.mkdir()
            for _ in range(4):
                said, end = victims.run(f"{folder} {number}", -1, rng.uniform(0, 1.5))
                assert end == "killed", (said, end)
                kills += not said
            said, end = victims.run(f"{folder} {number}", 6, 0.0)
            assert end == "killed"
            assert len(said) >= 6
            assert not ledgers.read(folder / f"{name}.ledger").acknowledgements
            assert len(list(folder.glob(f"{name}.db"))) == 1
    finally:
        victims.stop()
    print(f"{kills} of 8 killed before they had said a word")
