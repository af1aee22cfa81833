"""What must be true of a federation that is over, read off the files that it leaves.

    made = applied        every release of every site, once, in its order
    made is paid          every release has a charge of its own: that which the site's ledger got while it was made
    t_m = t_m             a site's answers are those that the coordinator holds, bit for bit
    q = read(prior, questions, t_1 * ... * t_M), and every question follows from the answers that were there

Coordinator, sites and ledgers write their files apart from each other, so that a fault of one shows beside the others.
Charges that were lost in crashes hide nothing: a site writes down which entry is to pay for a release before it makes
it. What cannot be noticed: a site that sends what it does not write down, and is refused.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedvi.errors import InputError
from fedvi.federation.site_file import SiteFile, SiteState
from fedvi.federation.store.reader import Reader
from fedvi.federation.wire import pack, unpack
from fedvi.inference.update import init_client
from fedvi.privacy.ledger import ledger
from fedvi.privacy.ledger.entries import CHARGE, Book
from fedvi.pytree import take

ROUNDING = 1e-5
"""Difference of q and of q as it is read again, in nats, that comes of rounding."""


@dataclasses.dataclass(frozen=True)
class Check:
    """What the files say.

    updates: applied by the coordinator.
    lost: releases that a site made and the coordinator does not have, or the coordinator has and the site never made.
    duplicated: updates applied more than once, by number or by content. disordered: applied after a later one.
    unpaid: releases without a charge of their own in the ledger.
    differing: sites whose answers are not those that the coordinator holds.
    max_epsilon_over_budget: below zero if no site spent all of its budget.
    difference: of q and of q as it is read again (`Reader.verify`); infinite if the file contradicts itself.
    """

    updates: int
    lost: int
    duplicated: int
    disordered: int
    unpaid: int
    differing: int
    max_epsilon_over_budget: float
    difference: float

    @property
    def holds(self) -> bool:
        """Whether everything is as it must be."""
        wrong = self.lost, self.duplicated, self.disordered, self.unpaid, self.differing
        return not any(wrong) and self.max_epsilon_over_budget <= 0 and self.difference <= ROUNDING


class Files(NamedTuple):
    """What a site leaves: its own file, and its ledger."""

    site: Path
    ledger: Path


def check(store: Reader, sites: Mapping[str, Files]) -> Check:
    """Compare the coordinator's file with those of all sites."""
    applied = store.applied()
    lost, disordered, unpaid, differing = abs(store.version - len(applied)), 0, 0, 0
    over = -math.inf
    for name, files in sites.items():
        with SiteFile.open(files.site) as file:
            site, paid = file.load(), file.payments()
        book = ledger.read(files.ledger)
        numbers = [update.sequence for update in applied if update.site == name]
        lost += _lost(store, name, numbers, site.releases)
        disordered += sum(later < earlier for earlier, later in itertools.pairwise(numbers))
        unpaid += _unpaid(site, paid, book)
        differing += _differs(store, name, site)
        over = max(over, (book.budget.spent(book.charged) if book.charged else 0.0) - book.budget.epsilon)
    different = min(len({(each.site, each.sequence) for each in applied}), len({each.digest for each in applied}))
    return Check(len(applied), lost, len(applied) - different, disordered, unpaid, differing, over, _difference(store))


def _lost(store: Reader, name: str, numbers: list[int], made: int) -> int:
    return max(len(set(numbers) ^ set(range(1, made + 1))), abs(made - store.site(name).sequence))


def _unpaid(site: SiteState, paid: dict[int, int], book: Book) -> int:
    """Return how many releases have no charge, or share it with another."""
    charges = {entry.number for entry in book.entries if entry.kind == CHARGE}
    made = range(1, site.releases + 1)
    return len(made) - len(charges.intersection(paid.get(release, -1) for release in made))


def _differs(store: Reader, name: str, site: SiteState) -> bool:
    """Tell whether site and coordinator hold different factors, unless a release is still on its way."""
    if site.pending is not None:
        return False
    recipe = store.description.spec
    state = init_client(recipe.algorithm, recipe.prior)
    own = (state if site.state is None else unpack(state, site.state)).factor
    return pack(own) != pack(take(store.factors(), store.names.index(name)))


def _difference(store: Reader) -> float:
    try:
        return store.verify()
    except InputError:
        return math.inf
