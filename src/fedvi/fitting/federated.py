"""From the coordinator's file to a posterior file: what a real federation leaves.

    factors as released, their width corrected by what the sites said last (`fedvi.local.width`) -> Fitted

All of it is post-processing of what was released. What sites spent is what they declared: only their ledgers prove it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from fedvi.errors import InputError
from fedvi.federation.store import Store
from fedvi.fitting.fitted import Fitted, SiteRecord, posterior_of
from fedvi.local.recipe import WIDTH
from fedvi.local.width import Width, width_of
from fedvi.privacy import Budget
from fedvi.privacy.statement import rounded_up
from fedvi.privacy.sums import part_of
from fedvi.pytree import take


def fitted_of(store: Store) -> Fitted:
    """Return the posterior of a federation as it is now, or raise `InputError` if nobody has released anything."""
    project, recipe = store.project, store.project.recipe
    sites = [site for site in store.sites() if site["updates"]]
    if not sites:
        raise InputError("Expected a federation with at least one update, got none yet. Wait for a site to join.")
    places = [store.names.index(site["name"]) for site in sites]
    factors, q = store.factors(), store.posterior
    width = width_of(recipe.model)
    ratio = _ratio(width, sites)
    if ratio is not None:
        kept = [width.corrected(take(factors, place), ratio, q.mean) for place in places]
    else:
        kept = [take(factors, place) for place in places]
    stacked: Any = jax.tree.map(lambda *leaves: jnp.stack(leaves), *kept)
    return Fitted(
        schema=project.schema,
        model=recipe.model if ratio is None else width.model(ratio),
        prior=recipe.prior,
        factors=stacked,
        posterior=posterior_of(recipe.prior, stacked),
        sites=tuple(_record(site, project.schema.digest) for site in sites),
        statement=_statement(project.name, sites, corrected=ratio is not None),
        settings={"federation": project.name, "id": project.identity, "version": store.version, "ended": store.stop},
    )


def _ratio(width: Width, sites: list[dict[str, Any]]) -> float | None:
    """Return the correction of the posterior's width; None if no site has said its number yet."""
    said = [site for site in sites if site["width"] is not None and site["rows"]]
    if not said:
        return None
    rows = sum(site["rows"] for site in said)
    noise = [part_of(Budget(site["epsilon_max"], site["delta"]), WIDTH).noise_multiplier for site in said]
    return width.ratio(sum(site["width"] for site in said) / rows, math.hypot(*noise) / rows)


def _record(site: dict[str, Any], schema: str) -> SiteRecord:
    kept = {key: site[key] for key in ("name", "rows", "updates", "epsilon", "epsilon_max", "delta")}
    return SiteRecord(**kept, schema=schema, events=tuple(site["events"]))


def _statement(name: str, sites: list[dict[str, Any]], *, corrected: bool) -> str:
    lines = [f"federation {name}: every site pays from its own ledger; this is what the sites declare"]
    lines += [
        f"  {site['name']}: epsilon {rounded_up(site['epsilon'])} of {site['epsilon_max']:g} at delta "
        f"{site['delta']:g}, if one row of {site['rows']} is added or removed"
        for site in sites
    ]
    if not corrected:
        lines.append("  The federation has not ended: credible intervals are not corrected yet, and too narrow.")
    return "\n".join(lines)
