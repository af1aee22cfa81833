"""A ledger's account in the form that institutions know: what NIST SP 800-226 asks for, and a registry's fields.

NIST's guidelines for evaluating differential privacy guarantees (SP 800-226, 2025) say what a claim must state: unit,
neighbouring data, parameters of one release and of all, trust model, mechanism, what is not covered. The public
registry of deployments has fields for much the same. Everything here comes out of the ledger. What only people know
stays empty, and is listed.
"""

from __future__ import annotations

from typing import Any

from fedvi.privacy.accounting import epsilon
from fedvi.privacy.events import ETA, FLIP, ROW, TAU, describe, to_json
from fedvi.privacy.ledger.entries import CHARGE, Book
from fedvi.privacy.ledger.statement import ACCOUNTED_BY
from fedvi.privacy.sampling import most_rows

KNOWN_GAPS = (
    "How long an update takes, that a site stops or waits, and when it sends may depend on its rows.",
    "The declared number of rows is public. The promise compares tables for which the same number is declared; the "
    "default number is computed from the table (999 and 1000 rows give different ones).",
    "Elementwise functions (exp, tanh, square roots) are assumed to give the same bits for a row wherever it stands in "
    "a block. This is tested, not proven.",
    "Gradients of own models are computed in single precision. That their rounding does not depend on other rows is "
    "allowed for, not proven. That outcomes which they draw do not is tested, not proven.",
    "A file that cannot be read as a table, such as one row with a field too many, is refused as a whole.",
    "Two columns changed in all rows hide from the search for older ledgers of the same people.",
    "Whoever controls the machine of a site sees its rows.",
)
"""What the promise does not cover."""

UNPROTECTED = "the declared number of rows, the feature schema, that the site takes part, times of messages"


def disclosure(book: Book) -> dict[str, Any]:
    """Return the account of a ledger as plain values."""
    spent, row = book.spent, book.unit == ROW
    charges = [entry for entry in book.entries if entry.kind == CHARGE]
    numbers = sum(event.steps * event.numbers * count for event, count in book.charged.items())
    delta = float(book.budget.delta)
    neighbours = (
        "One table has one row more than the other, and the same number of rows is declared for both."
        if row
        else "The client takes part with its data, or it takes part and sends noise alone."
    )
    return {
        "privacy": {
            "variant": "(epsilon, delta)-differential privacy",
            "unit": "one row of one site" if row else "all data of one client",
            "neighbouring_relation": neighbours,
            "declared_rows": book.public_rows,
            "most_rows": None if book.public_rows is None else most_rows(book.public_rows),
            "epsilon_spent": spent.epsilon,
            "epsilon_spent_if_one_is_exchanged": spent.epsilon_substitute,
            "epsilon_budget": book.budget.epsilon,
            "delta": delta,
            "guarantee": not spent.caveats,
            "caveats": list(spent.caveats),
            "confirmed_by_a_person": list(spent.notes),
        },
        "releases": [
            {
                **to_json(event),
                "count": count,
                "what": describe(event, book.unit),
                "epsilon_of_one": epsilon({event: 1}, delta),
            }
            for event, count in book.charged.items()
        ],
        "composition": {
            "accountant": f"{book.budget.accountant}: {ACCOUNTED_BY[book.budget.accountant]}",
            "over_time": "All that is ever released from this data is composed in one ledger, paid before it is drawn.",
            "first_release": charges[0].time if charges else None,
            "last_release": charges[-1].time if charges else None,
        },
        "trust_model": "Noise is added at the site. Coordinator, other sites and the network are not trusted.",
        "mechanism": {
            "name": "Gaussian mechanism on a lattice: clipped sums and noise are whole numbers of one public grid.",
            "numbers_with_noise": numbers,
            "relative_error_of_a_drawn_number": ETA,
            "probability_left_out_per_number": TAU,
            "relative_error_of_a_sampled_row": FLIP,
            "price": "Both errors are counted in every epsilon above.",
            "randomness": "The operating system's generator (OpenSSL RAND_bytes).",
            "arithmetic": "IEEE doubles of the processor; other backends are refused.",
        },
        "data": {
            "preprocessing": "Columns are encoded by a public schema. What is learned from rows is paid for here.",
            "schema": book.schema or None,
            "security": "Rows, ledger and state stay at the site, in files of their owner.",
        },
        "utility": "Rows beyond the clip norm count less than they should, which biases estimates. Noise adds error.",
        "unprotected_quantities": UNPROTECTED,
        "known_gaps": list(KNOWN_GAPS),
        "registry": registry(book),
    }


def registry(book: Book) -> dict[str, Any]:
    """Return the fields of the public registry of deployments; empty ones are for people to fill in."""
    row, spent = book.unit == ROW, book.spent
    fields: dict[str, Any] = {
        "url_slug": "",
        "status": "",
        "basic": {
            "name": "",
            "data_curator": "",
            "description": "",
            "intended_use": "",
            "data_product_type": "model parameters",
            "data_product_region": "",
            "data_product_sector": "",
            "publication_date": "",
        },
        "dp_variant": {
            "name": "approximate differential privacy",
            "data_domain": "tables of bounded numbers and categories",
            "unprotected_quantities": UNPROTECTED,
        },
        "privacy_loss": {
            "privacy_unit": "one row of one site" if row else "all data of one client",
            "privacy_parameters": {"epsilon": spent.epsilon, "delta": float(book.budget.delta), "rho": None},
        },
        "deployment_model": {
            "model_name": "federated, noise added at every site",
            "actors": "sites (curators of their rows), a coordinator that is not trusted, readers of the posterior",
            "release_type": "interactive",
            "data_source_type": "static",
            "access_type": "non-interactive use of what was released",
        },
        "accounting": {
            "post_processing": "damping, averaging, the product of factors and the posterior",
            "composition": ACCOUNTED_BY[book.budget.accountant],
        },
        "implementation": {
            "pre_processing_eda_hyperparameter_tuning": "",
            "mechanisms": "Gaussian mechanism on a lattice, on all rows or on Poisson samples",
            "justification": "docs/privacy.md of fedvi",
        },
        "administrative": {"evidence_sources": "the ledger and `fedvi audit`", "notes": "", "registry_authors": ""},
    }
    fields["to_be_filled_in"] = _empty(fields)
    return fields


def _empty(fields: dict[str, Any], path: str = "") -> list[str]:
    """Return the names of fields that only people can fill in."""
    names = []
    for key, value in fields.items():
        if isinstance(value, dict):
            names += _empty(value, f"{path}{key}.")
        elif value == "":
            names.append(path + key)
    return names


def to_markdown(values: dict[str, Any], title: str) -> str:
    """Return the account as a page."""
    lines = [f"# {title}", ""]
    for section, content in values.items():
        lines += [f"## {_words(section)}", "", *_lines(content, 0), ""]
    return "\n".join(lines).rstrip() + "\n"


def _lines(content: Any, depth: int) -> list[str]:
    indent = "  " * depth
    if isinstance(content, dict):
        lines = []
        for key, value in content.items():
            nested = isinstance(value, dict | list) and value
            lines.append(f"{indent}- **{_words(key)}**" + (":" if nested else f": {_shown(value)}"))
            lines += _lines(value, depth + 1) if nested else []
        return lines
    if isinstance(content, list):
        if not any(isinstance(value, dict) for value in content):
            return [f"{indent}- {_shown(value)}" for value in content] or [f"{indent}none"]
        return [line for value in content for line in (f"{indent}- release", *_lines(value, depth + 1))] or ["none"]
    return [f"{indent}{_shown(content)}"]


def _words(key: str) -> str:
    text = key.replace("_", " ")
    return text[:1].upper() + text[1:]


def _shown(value: Any) -> str:
    if value is None or value in ("", []):
        return "none" if value != "" else "(to be filled in)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
