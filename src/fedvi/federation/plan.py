"""From turns to memory: which stored q each turn starts from, and where the q after it is stored.

A compiled run keeps every q that some client still works on in a numbered slot. Slots are handed out as in register
allocation: a q that several clients fetched takes one slot, and the slot is free again when the last of them has
updated. M slots are always enough for M clients; slot 0 is for what nobody will read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fedvi.errors import InputError
from fedvi.federation.schedule import Turn

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


def plan(turns: Iterator[Turn], clients: int) -> Iterator[PlannedTurn]:
    """Assign slots 1..clients to the turns; before the first turn, every slot holds the prior."""
    free = list(range(clients, 0, -1))
    holders = dict.fromkeys(free, 0)
    made = [0] * clients
    held: dict[int, tuple[int, int]] = {}  # client -> (slot, version) of the q it read and has not used

    def let_go(client: int) -> None:
        slot, _ = held.pop(client)
        holders[slot] -= 1
        if holders[slot] == 0:
            free.append(slot)

    waiting: PlannedTurn | None = None  # a turn is complete when the next one tells who reads the q after it
    for version, turn in enumerate(turns):
        save = SCRATCH
        if turn.reads:
            for reader in turn.reads:
                if reader in held:
                    let_go(reader)
            save = free.pop()
            holders[save] = len(turn.reads)
            held.update(dict.fromkeys(turn.reads, (save, version)))
        if waiting is not None:
            yield waiting._replace(save=save)
        if turn.client not in held:
            raise InputError(f"The schedule lets client {turn.client} update twice without reading q in between.")
        source, read = held[turn.client]
        let_go(turn.client)
        made[turn.client] += 1
        waiting = PlannedTurn(turn.client, turn.time, made[turn.client], version - read, source, SCRATCH)
    if waiting is not None:
        yield waiting
