"""`fit`: a schema and tables in, a posterior that predicts out. The federation is simulated in this process.

    encode -> (standardise privately) -> simulate -> Fitted

For planning and teaching: noise is drawn from a seed, and every artefact says so. A real federation uses the same
schema, the same client and server steps, and the same posterior file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from os import PathLike

import numpy as np

from fedvi.checks import whole
from fedvi.config import build
from fedvi.errors import InputError
from fedvi.fitting.fitted import Fitted
from fedvi.fitting.records import SiteRecord
from fedvi.fitting.site_tables import Tables, open_tables, read_sites
from fedvi.inference.rows import CheckedTable
from fedvi.inference.spec import STANDARDISE, Priors, default_spec
from fedvi.models.base import Model
from fedvi.privacy.budget import AUTO, Budget
from fedvi.privacy.events import to_json
from fedvi.privacy.ledger.statement import Spent
from fedvi.privacy.sampling import STATISTIC, Seeded, default_public_rows
from fedvi.privacy.sums import BoundedSum, part_of
from fedvi.pytree import stack, take
from fedvi.simulation.simulate import simulate
from fedvi.tables.repeats import repeated_rows
from fedvi.tables.schema import Schema
from fedvi.tables.standardise import Standardisation

Vectors = Callable[[np.ndarray, np.ndarray], np.ndarray]


def fit(
    schema: Schema | str | PathLike[str],
    tables: Tables,
    *,
    site_column: str | None = None,
    model: Model | str | None = None,
    epsilon: float | Mapping[str, float] | None = 1.0,
    delta: float | str = AUTO,
    public_rows: Mapping[str, int] | None = None,
    seed: int = 0,
    questions: int | None = None,
    covariance: str = "auto",
    standardise: bool = False,
    min_rows: int = 1,
    nameless: str | None = None,
    prior_sd: float | None = None,
    priors: Priors | None = None,
    strict: bool = False,
    progress: bool | None = None,
) -> Fitted:
    """Simulate a federation over tables and return its posterior.

    Values that the schema does not expect are clipped or count as others; the result's `counts` say how many, and
    columns with many of them are warned about.

    schema: a `Schema`, or the path of one.
    tables: one table (a path, anything that speaks Arrow, or what `open_table` gives); or one table per site, by name
        or as a list of paths, which are then named for their files. One table with neither a `site_column` of its own
        nor one in the schema is a federation of one.
    model: None for the one of the schema's target; your own as an object, or as "module:Class".
    epsilon: every site's budget, or one per site by name; None for no privacy. delta: of all budgets; `auto` for
        min(1e-5, 1 / (10 N)) with N the rows that a site declares, `paper` for 10^floor(log10(1/N)).
    public_rows: the number of rows that every site declares, by name. Default: two digits of it, rounded down. Files
        and tables show this number, not the true one, unless nothing is private.
    questions: that every site answers; None for the plan's own number.
    covariance: `full` for true intervals of coefficients; `diagonal` for predictions with many columns and little
        privacy; `auto` chooses from public numbers. Without privacy it is full.
    standardise: spend a tenth of the budget on centres and scales of numbers, instead of taking the schema's.
    min_rows: sites with fewer rows become one site 'other'. nameless: the site of rows that name none.
    prior_sd: standard deviation of the prior of a weight, in units of the schema's scales. priors: mean and standard
        deviation for some columns or features, such as {"age": (0, 0.5)}.
    strict: refuse values that the schema does not expect.
    """
    schema = schema if isinstance(schema, Schema) else Schema.load(schema)
    if questions is not None:
        whole("questions", questions, 2)
    whole("seed", seed, 0, 2**64 - 1)
    own_model = build(model, "model") if isinstance(model, str) else model
    readers, site_column = open_tables(schema, tables, site_column)
    sites, counts = read_sites(schema, readers, site_column, min_rows=min_rows, nameless=nameless, strict=strict)
    counts.repeated = repeated_rows(readers.values(), (site_column,))
    counts.warn(schema.expected)
    declared = _declared(sites, public_rows, private=epsilon is not None)
    budgets = {} if epsilon is None else _budgets(epsilon, delta, declared)
    if standardise and not budgets:
        raise InputError("Expected a privacy budget to standardise by, got epsilon=None. Leave one of them out.")
    standard = Standardisation.of(schema) if standardise else None
    numbers = 0 if standard is None else 2 * len(standard.columns)
    first = {name: part_of(budget, STANDARDISE, numbers) for name, budget in budgets.items() if numbers}
    left = {name: budget.beside({first[name].event: 1}) if first else budget for name, budget in budgets.items()}
    if standard is not None and first:
        noise = math.sqrt(sum(part.noise_multiplier**2 for part in first.values()))
        scales = standard.scales(
            _released(first, sites, standard.vectors, declared, seed), sum(declared.values()), noise
        )
        schema = standard.schema(schema, *scales)
        sites, _ = read_sites(schema, readers, site_column, min_rows=min_rows, nameless=nameless)
    spec = default_spec(
        schema,
        list(declared.values()),
        list(left.values()) or None,
        questions or 0,
        own_model,
        prior_sd,
        covariance,
        priors=priors,
    )
    result = simulate(
        sites,
        spec.model,
        seed=seed,
        prior=spec.prior,
        algorithm=spec.algorithm,
        public_rows=declared,
        feature_bound=schema.feature_bound,
        privacy=left or None,
        progress=progress,
    )
    records = (
        _record(name, said, int(result.clients[name].sequence), schema, result.privacy.get(name))
        for name, said in declared.items()
    )
    return Fitted.of_answers(
        schema,
        spec.algorithm.plan,
        spec.model,
        spec.prior,
        take(result.asked.questions, slice(int(result.asked.count))),
        stack([result.clients[name].factor for name in declared]),
        sites=tuple(records),
        statement=result.statement,
        simulated=True,
        counts=counts,
        said=tuple(line for reader in readers.values() for line in reader.said),
        settings={"spec": spec.plain, "schedule": result.checkpoint.settings["schedule"]},  # never the seed of noise
    )


def _released(
    parts: Mapping[str, BoundedSum],
    sites: Mapping[str, CheckedTable],
    vectors: Vectors,
    declared: Mapping[str, int],
    seed: int,
) -> np.ndarray:
    """Return the sum over all sites, as released."""
    total: float | np.ndarray = 0.0
    for index, (name, rows) in enumerate(sites.items()):
        source = Seeded(seed, STATISTIC, index, 0)
        total = total + parts[name].release(vectors(*rows), declared[name], source, average=False)
    return np.asarray(total)


def _declared(
    sites: dict[str, CheckedTable], public_rows: Mapping[str, int] | None, *, private: bool
) -> dict[str, int]:
    """Return how many rows every site declares."""
    if public_rows is not None:
        if set(public_rows) != set(sites):
            raise InputError(f"Expected public_rows for the sites {', '.join(sites)}, got {dict(public_rows)}.")
        return {name: public_rows[name] for name in sites}
    return {name: default_public_rows(len(x)) if private else len(x) for name, (x, _) in sites.items()}


def _budgets(epsilon: float | Mapping[str, float], delta: float | str, sites: dict[str, int]) -> dict[str, Budget]:
    """Return every site's budget with its delta, from the rows that it declares."""
    if isinstance(epsilon, Mapping) and set(epsilon) != set(sites):
        wrong = ", ".join(sorted(set(epsilon) ^ set(sites)))
        raise InputError(f"Expected one epsilon for every site by name, got none or too many for: {wrong}.")
    for name, rows in sites.items():
        if rows < 2:
            raise InputError(
                f"Expected at least 2 rows at every site, got {rows} at site {name!r}: it would say nothing but "
                "noise. Join small sites with --min-rows (in Python min_rows), or leave it out."
            )
    return {
        name: Budget(epsilon[name] if isinstance(epsilon, Mapping) else epsilon, delta).fixed(rows)
        for name, rows in sites.items()
    }


def _record(name: str, rows: int, updates: int, schema: Schema, spent: Spent | None) -> SiteRecord:
    if spent is None:
        return SiteRecord(name, rows, updates, schema.digest, None, None, None, ())
    events = tuple({**to_json(event), "count": count} for event, count in spent.events)
    return SiteRecord(name, rows, updates, schema.digest, spent.epsilon, spent.epsilon_max, spent.delta, events)
