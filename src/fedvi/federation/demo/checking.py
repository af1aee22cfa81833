"""What must be true of a federation that is over, read off the files that it leaves.

    made = applied        every release of every site, once, in its order
    made is paid          every release has a charge of its own: that which the site's ledger got while it was made
    t_m = t_m             a site's factor is the one that the coordinator holds, bit for bit
    q = prior * t_1 * ... * t_M

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
from fedvi.federation.coordinator_file import CoordinatorFile
from fedvi.federation.site_file import SiteFile, SiteState
from fedvi.federation.wire import pack, unpack
from fedvi.inference import spec as recipes
from fedvi.inference.update import init_client
from fedvi.privacy.events import to_json
from fedvi.privacy.ledger import ledger
from fedvi.privacy.ledger.entries import CHARGE, Book
from fedvi.privacy.sums import part_of
from fedvi.pytree import take

ROUNDING = 1e-5
"""Relative difference of q and the product of its factors that comes of rounding."""


@dataclasses.dataclass(frozen=True)
class Check:
    """What the files say.

    updates: applied by the coordinator.
    lost: releases that a site made and the coordinator does not have, or the coordinator has and the site never made.
    duplicated: updates applied more than once, by number or by content. disordered: applied after a later one.
    unpaid: releases without a charge of their own in the ledger.
    differing: sites whose factor is not the one that the coordinator holds.
    max_epsilon_over_budget: below zero if no site spent all of its budget.
    difference: of q and the product of prior and stored factors; infinite if updates and factors contradict each other.
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


def check(store: CoordinatorFile, sites: Mapping[str, Files]) -> Check:
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


def _lost(store: CoordinatorFile, name: str, numbers: list[int], made: int) -> int:
    last, width = store.site(name).sequence, store.site(name).width
    there = {*numbers, *([] if width is None else [last])}
    return max(len(there ^ set(range(1, made + 1))), abs(made - last))


def _unpaid(site: SiteState, paid: dict[int, int], book: Book) -> int:
    """Return how many releases have no charge for what they are, or share it with another."""
    charges = {entry.number: entry.body["event"] for entry in book.entries if entry.kind == CHARGE}
    width = to_json(part_of(book.budget, recipes.WIDTH).event)
    made = range(1, site.releases + 1)

    def fits(release: int) -> bool:
        event, is_width = charges.get(paid.get(release, -1)), bool(site.width) and release == made[-1]
        return event is not None and (event == width) == is_width

    return len(made) - len({paid[release] for release in made if fits(release)})


def _differs(store: CoordinatorFile, name: str, site: SiteState) -> bool:
    """Tell whether site and coordinator hold different factors, unless a release is still on its way."""
    if site.pending is not None:
        return False
    recipe = store.description.spec
    state = init_client(recipe.algorithm, recipe.prior)
    own = (state if site.state is None else unpack(state, site.state)).factor
    return pack(own) != pack(take(store.factors(), store.names.index(name)))


def _difference(store: CoordinatorFile) -> float:
    try:
        return store.verify()
    except InputError:
        return math.inf
