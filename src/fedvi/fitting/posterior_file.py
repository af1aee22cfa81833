"""Posterior files: one portable file with arrays and a JSON header (safetensors), never pickle.

    header    format, model, family, schema and its hash, every site's record, privacy statement, versions, and
              whether the noise came from a seed (which is not in the file)
    arrays    prior.*, posterior.*, factors.* (the factors of all sites, stacked)

Any safetensors reader opens it. What is read is checked: the schema against its hash, shapes against the schema, and
the posterior against the product of prior and factors. Models and families are named by kind (`fedvi.config`): of those
that are not fedvi's own only what the reader allows is imported.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.config import Allow, build, find, kind_of, plain, search
from fedvi.errors import InputError
from fedvi.files import write
from fedvi.fitting.fitted import Fitted, SiteRecord, posterior_of
from fedvi.pytree import leaves
from fedvi.tables.schema import Schema

FORMAT = 3
READABLE = (1, 2, FORMAT)
KEY = "fedvi"
LARGEST = 1 << 30
"""Bytes; a larger file is no posterior of ours."""

PACKAGES = ("fedvi", "jax", "numpy")
PARTS = ("prior", "posterior", "factors")


def save(fitted: Fitted, path: str | os.PathLike[str]) -> None:
    """Write a posterior file, atomically."""
    from safetensors.numpy import save as to_bytes

    header = {
        "format": FORMAT,
        "model": plain(fitted.model),
        "families": {name: kind_of(type(getattr(fitted, name))) for name in PARTS},
        "schema": fitted.schema.to_toml(),
        "schema_hash": fitted.schema.digest,
        "features": fitted.schema.features,
        "sites": [dataclasses.asdict(site) for site in fitted.sites],
        "privacy": fitted.statement,
        "simulated": fitted.simulated,
        "settings": fitted.settings,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }
    arrays = {
        f"{name}.{field.name}": np.ascontiguousarray(getattr(getattr(fitted, name), field.name))
        for name in PARTS
        for field in dataclasses.fields(getattr(fitted, name))
    }
    write(path, to_bytes(arrays, {KEY: json.dumps(header)}))


def load(path: str | os.PathLike[str], kinds: Allow = ()) -> Fitted:
    """Do what `Fitted.load` does: refuse what is no posterior file, is damaged or does not agree with itself."""
    if kinds:
        search(Path())
    header, arrays = _read(Path(path))
    try:
        if header["format"] not in READABLE:
            raise InputError(f"format {header['format']!r}, and this fedvi reads formats {READABLE}")
        schema = Schema.from_toml(header["schema"], "the schema in it", kinds)
        if schema.digest != header["schema_hash"]:
            raise InputError("its schema does not have the hash that it says")
        parts = {name: _part(name, header["families"][name], arrays, kinds) for name in PARTS}
        fitted = Fitted(
            schema=schema,
            model=build(header["model"], "model", allow=kinds),
            prior=parts["prior"],
            factors=parts["factors"],
            posterior=parts["posterior"],
            sites=tuple(SiteRecord(**{**site, "events": tuple(site["events"])}) for site in header["sites"]),
            statement=str(header["privacy"]),
            simulated=bool(header.get("simulated", "seed" in header["settings"])),
            settings={key: value for key, value in header["settings"].items() if key != "seed"},
        )
        _check(fitted)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # InputError is a ValueError
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise InputError(f"Cannot use {os.fspath(path)!r} as a fedvi posterior: {reason}") from None
    return fitted


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a posterior file."""
    return _read(Path(path))[0]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"Expected a fedvi posterior of at most {LARGEST} bytes, got {path.stat().st_size}.")
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[KEY])
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except FileNotFoundError:
        raise InputError(
            f"Expected a posterior file at {os.fspath(path)!r}, got none. Make one with fedvi fit."
        ) from None
    except OSError as error:
        raise InputError(f"Cannot read {os.fspath(path)!r}: {error.strerror or error}.") from None
    except (SafetensorError, KeyError, json.JSONDecodeError, UnicodeDecodeError):
        raise InputError(f"{os.fspath(path)!r} is not a fedvi posterior, or it is damaged.") from None


def _part(name: str, kind: str, arrays: dict[str, np.ndarray], kinds: Allow) -> Any:
    family = find(kind, "family", f"families.{name}", kinds)
    return family(*(np.asarray(arrays[f"{name}.{field.name}"]) for field in dataclasses.fields(family)))


def _check(fitted: Fitted) -> None:
    dim, sites = len(fitted.schema.features), len(fitted.sites)
    for name, lead in (("prior", ()), ("posterior", ()), ("factors", (sites,))):
        part = getattr(fitted, name)
        if part.natural_mean.shape != (*lead, dim):
            raise InputError(f"its {name} has shape {part.natural_mean.shape}, the schema asks for {(*lead, dim)}")
        if not all(np.isfinite(leaf).all() for leaf in leaves(part)):
            raise InputError(f"its {name} holds NaN or infinity")
    if not (bool(fitted.prior.is_proper()) and bool(fitted.posterior.is_proper())):
        raise InputError("its prior or posterior is improper")
    product = posterior_of(fitted.prior, fitted.factors)
    pairs = zip(leaves(product), leaves(fitted.posterior), strict=True)
    if not all(
        np.allclose(one, other, rtol=1e-4, atol=1e-4 * (1 + float(np.max(np.abs(other))))) for one, other in pairs
    ):
        raise InputError("its posterior is not the product of its prior and factors")
