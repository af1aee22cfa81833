"""From turns to memory: which stored q each turn starts from, and where the q after it is stored.

A compiled run keeps every q that some client still works on in a numbered slot. Slots are handed out as in register
allocation: a q that several clients fetched takes one slot, and the slot is free again when the last of them has
updated. M slots are always enough for M clients; slot 0 is for what nobody will read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fedvi.errors import InputError
from fedvi.simulation.schedules import Turn

SCRATCH = 0
"""The slot that is written and never read."""


class PlannedTurn(NamedTuple):
    """A turn with its memory: the update starts from slot `source`; afterwards q goes into slot `save`.

    update: 1 for this client's first update, then 2, 3, ...
    staleness: how many updates were applied between this client's reading of q and its own update.
    """

    client: int
    time: float
    update: int
    staleness: int
    source: int
    save: int


def plan(turns: Iterator[Turn], budgets: Sequence[float]) -> Iterator[PlannedTurn]:
    """Assign slots to the turns; before the first turn, every slot holds the prior.

    budgets: how many updates each client may make. A turn beyond its client's budget, or one that makes no sense, is
    an error of the schedule.
    """
    clients = range(len(budgets))
    free = [m + 1 for m in reversed(clients)]
    holders = dict.fromkeys(free, 0)
    made = [0 for _ in clients]
    held: dict[int, tuple[int, int]] = {}  # client -> (slot, version) of the q it read and has not used

    def let_go(client: int) -> None:
        slot, _ = held.pop(client)
        holders[slot] -= 1
        if holders[slot] == 0:
            free.append(slot)

    waiting: PlannedTurn | None = None  # a turn is complete when the next one tells who reads the q after it
    for version, turn in enumerate(turns):
        for m in (turn.client, *turn.reads):
            if m not in clients:
                raise InputError(f"The schedule names client {m!r} in turn {version}; clients are 0 to {clients[-1]}.")
        save, readers = SCRATCH, set(turn.reads)
        if readers:
            for reader in readers & held.keys():
                let_go(reader)
            save = free.pop()
            holders[save] = len(readers)
            held.update(dict.fromkeys(readers, (save, version)))
        if waiting is not None:
            yield waiting._replace(save=save)
        if turn.client not in held:
            raise InputError(f"The schedule lets client {turn.client} update twice without reading q in between.")
        if made[turn.client] >= budgets[turn.client]:
            raise InputError(f"The schedule lets client {turn.client} make more than {made[turn.client]} updates.")
        source, read = held[turn.client]
        let_go(turn.client)
        made[turn.client] += 1
        waiting = PlannedTurn(turn.client, turn.time, made[turn.client], version - read, source, SCRATCH)
    if waiting is not None:
        yield waiting
