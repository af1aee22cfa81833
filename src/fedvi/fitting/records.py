"""Records of a fit: where a site's answers come from, and what is known about a weight."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class SiteRecord:
    """Where one factor comes from.

    rows: that the site declared. schema: hash of the schema that the site encoded its rows by.
    epsilon, delta: what the site spent; None if nothing was private. events: on what.
    """

    name: str
    rows: int
    updates: int
    schema: str
    epsilon: float | None
    epsilon_max: float | None
    delta: float | None
    events: tuple[dict[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Coefficient:
    """One weight of the posterior, in units of the schema's scales.

    evidence_kept: share of the sites' evidence about it that privacy noise has left, 0 to 1; 1 without privacy.
    prior_decides: whether its standard deviation is more than half of the prior's.
    """

    feature: str
    mean: float
    std: float
    low: float
    high: float
    evidence_kept: float
    prior_decides: bool
