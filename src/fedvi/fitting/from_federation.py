"""From the coordinator's file to a posterior file: what a real federation leaves.

    questions as asked, answers of all sites as released -> read once more -> Fitted

All of it is post-processing of what was released. What sites spent is what they declared: only their ledgers prove it.
"""

from __future__ import annotations

import numpy as np

from fedvi.errors import InputError
from fedvi.federation.store import records
from fedvi.federation.store.file import CoordinatorFile
from fedvi.fitting.fitted import Fitted
from fedvi.fitting.records import SiteRecord
from fedvi.privacy.ledger.statement import rounded_up
from fedvi.pytree import stack, take, tree_map


def fitted_of(store: CoordinatorFile) -> Fitted:
    """Return the posterior of a federation as it is now, or raise `InputError` if nobody has released anything.

    It is read out of all answers that are there, also of those that came after the last question was asked; but for
    those of sites that were withdrawn.
    """
    description, spec = store.description, store.description.spec
    with store.at_once():
        everybody, factors, asked, version, ended = (
            store.sites(),
            store.factors(),
            store.asked,
            store.version,
            store.stop,
        )
    places = [place for place, site in enumerate(everybody) if site.sequence and site.withdrawn is None]
    if not places:
        raise InputError("Expected a federation with at least one answer, got none yet. Wait for a site to join.")
    said = [_record(everybody[place], description.schema.digest) for place in places]
    answered = int(np.max(factors.answered[places]))
    return Fitted.of_answers(
        description.schema,
        description.plan,
        spec.model,
        spec.prior,
        tree_map(lambda leaf: leaf[:answered], asked.questions),
        stack([take(factors, place) for place in places]),
        sites=tuple(said),
        statement=_statement(description.name, said),
        simulated=False,
        settings={
            "federation": description.name,
            "id": description.identity,
            "version": version,
            "ended": ended,
            "spec": spec.plain,
        },
    )


def _record(site: records.SiteRecord, schema: str) -> SiteRecord:
    of = site.declared
    assert of is not None, "a site declares something with every release"
    return SiteRecord(site.name, of.rows, site.sequence, schema, of.epsilon, of.epsilon_max, of.delta, of.events)


def _statement(name: str, sites: list[SiteRecord]) -> str:
    lines = [f"federation {name}: every site pays from its own ledger; this is what the sites declare"]
    lines += [
        f"  {site.name}: epsilon {rounded_up(site.epsilon or 0.0)} of {site.epsilon_max:g} at delta "
        f"{site.delta:g}, if one row of about {site.rows} is added or removed"
        for site in sites
    ]
    return "\n".join(lines)
