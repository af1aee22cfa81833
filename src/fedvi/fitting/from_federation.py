"""From the coordinator's file to a posterior file: what a real federation leaves.

    factors as released, their width corrected by what the sites said last (`fedvi.models.base`) -> Fitted

All of it is post-processing of what was released. What sites spent is what they declared: only their ledgers prove it.
"""

from __future__ import annotations

from fedvi.errors import InputError
from fedvi.federation import coordinator_file as records
from fedvi.federation.coordinator_file import CoordinatorFile
from fedvi.federation.widths import Said, combined
from fedvi.fitting.answered import posterior_of
from fedvi.fitting.fitted import Fitted
from fedvi.fitting.records import SiteRecord
from fedvi.models.base import Model
from fedvi.privacy.ledger.statement import rounded_up
from fedvi.pytree import stack, take


def fitted_of(store: CoordinatorFile) -> Fitted:
    """Return the posterior of a federation as it is now, or raise `InputError` if nobody has released anything."""
    description, spec = store.description, store.description.spec
    with store.at_once():
        everybody, factors, q, version, ended = (
            store.sites(),
            store.factors(),
            store.posterior,
            store.version,
            store.stop,
        )
    places = [place for place, site in enumerate(everybody) if site.updates]
    if not places:
        raise InputError("Expected a federation with at least one update, got none yet. Wait for a site to join.")
    sites, kept = [everybody[place] for place in places], [take(factors, place) for place in places]
    ratio = _ratio(spec.model, sites, description.rows)
    if ratio is not None:
        kept = [spec.model.corrected_factor(factor, ratio, q.mean) for factor in kept]
    said = [_record(site, description.schema.digest) for site in sites]
    stacked = stack(kept)
    return Fitted(
        schema=description.schema,
        model=spec.model if ratio is None else spec.model.corrected(ratio),
        prior=spec.prior,
        factors=stacked,
        posterior=posterior_of(spec.prior, stacked),
        sites=tuple(said),
        statement=_statement(description.name, said, corrected=ratio is not None),
        simulated=False,
        settings={
            "federation": description.name,
            "id": description.identity,
            "version": version,
            "ended": ended,
            "spec": spec.plain,
        },
    )


def _ratio(model: Model, sites: list[records.SiteRecord], rows: int) -> float | None:
    """Return the correction of the posterior's width; None if no site has said its number yet.

    A number that does not go with what its site declares counts as if it had not been said.
    """
    numbers = [(site.width, site.declared) for site in sites if site.width is not None]
    said = [Said.of(number, of.rows, of.epsilon_max, of.delta) for number, of in numbers if of is not None]
    usable = [each for each in said if each is not None and each.is_possible]
    return model.width_ratio(*combined(usable, rows)) if usable else None


def _record(site: records.SiteRecord, schema: str) -> SiteRecord:
    of = site.declared
    assert of is not None, "a site declares something with every release"
    return SiteRecord(site.name, of.rows, site.updates, schema, of.epsilon, of.epsilon_max, of.delta, of.events)


def _statement(name: str, sites: list[SiteRecord], *, corrected: bool) -> str:
    lines = [f"federation {name}: every site pays from its own ledger; this is what the sites declare"]
    lines += [
        f"  {site.name}: epsilon {rounded_up(site.epsilon or 0.0)} of {site.epsilon_max:g} at delta "
        f"{site.delta:g}, if one row of about {site.rows} is added or removed"
        for site in sites
    ]
    if not corrected:
        lines.append("  No site has made its final release: credible intervals are not corrected yet, and too narrow.")
    return "\n".join(lines)
