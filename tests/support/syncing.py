"""A site and its coordinator in one process, whose syncs of the disk are counted. Started by test_fsyncs.py.

    python syncing.py FOLDER UPDATES

Joining, opening and the first update are over when the file `marks` is synced for the first time; it is synced once
more after so many updates.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

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
    marks = os.open(folder / "marks", os.O_WRONLY | os.O_CREAT)
    with Desk.open(place) as desk, open_site(folder, chosen) as site:

        def exchange_as(private: object) -> Correspondence:
            return Correspondence(Direct(desk.answer), chosen.identity, "north", private, coordinator)  # type: ignore[arg-type]

        exchange_as(invitation.key).exchange(public(key(1)), ENROL)
        here = exchange_as(key(1))
        for most in (1, 1 + updates):
            run(site, here.exchange, lambda most=most: desk.coordinator.version >= most, lambda _: None)  # type: ignore[misc]
            os.fsync(marks)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]))
