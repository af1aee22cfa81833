"""A site and its coordinator in one process, whose syncs of the disk are traced. Started by test_fsyncs.py.

    python syncing.py FOLDER UPDATES

The file `marks` is synced when all has been made, after the first update, and after so many updates more.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from carried import Direct, key, public
from fedvi.federation.desk import Desk
from fedvi.federation.envelope import ENROL, Correspondence
from fedvi.federation.invitation import Invitation
from fedvi.federation.making import KEY, invite, make_federation, read_key
from fedvi.federation.transports.base import run
from small_federation import description, open_site


def main(folder: Path, updates: int) -> None:
    place = folder / "coordinator"
    chosen = make_federation(description(("north",), updates + 2), place)
    invitation, coordinator = Invitation.parse(invite(place, "north")), public(read_key(place / KEY))
    marks = os.open(folder / "marks", os.O_WRONLY | os.O_CREAT, 0o600)
    with Desk.open(place) as desk, open_site(folder, chosen) as site:

        def signed_by(private: Ed25519PrivateKey) -> Correspondence:
            return Correspondence(Direct(desk.answer), chosen.identity, "north", private, coordinator)

        def after(version: int) -> Callable[[], bool]:
            return lambda: desk.coordinator.version >= version

        signed_by(invitation.key).exchange(public(key(1)), ENROL)
        os.fsync(marks)
        for most in (1, 1 + updates):
            run(site, signed_by(key(1)).exchange, after(most), lambda _: None)
            os.fsync(marks)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]))
