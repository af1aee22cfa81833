"""Schemas in files: TOML, for people to edit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fedvi.config import Allow, build, check_keys, fill, plain, search
from fedvi.errors import InputError
from fedvi.tables.interactions import Interaction
from fedvi.tables.parts import Part
from fedvi.tables.reading.source import Dialect
from fedvi.tables.schema import Schema
from fedvi.tables.typical import Typical

FORMAT = 3
READ = (2, 3)
"""Formats that are read: 3 has keys that 2 did not know."""

HEADER = """\
# Feature schema: how every site turns its table into the same features. Shared by all sites, and not secret.
# Every value here must be public knowledge, or come from public or sample data: bounds, scales and
# categories that are read from private rows tell about these rows.
"""
DIALECT = "\n[dialect]  # how tables are written; a site whose table is written in another way says so itself\n"
TYPICAL = (
    "\n[typical]  # of rows, for forecasts: each feature's mean, mean square, and share that no other feature tells\n"
)
KEYS = ("format", "intercept", "site_column", "dialect", "typical", "target", "columns", "interactions")


def toml_of(schema: Schema) -> str:
    """Return a schema as TOML, with comments."""
    text = f"{HEADER}format = {FORMAT}\nintercept = {str(schema.intercept).lower()}\n"
    text += f"site_column = {_toml(schema.site_column)}  # in tables of several sites\n" if schema.site_column else ""
    said = {key: value for key, value in dataclasses.asdict(schema.dialect).items() if value}
    text += DIALECT + "".join(f"{key} = {_toml(value)}\n" for key, value in said.items()) if said else ""
    text += "" if schema.typical is None else TYPICAL + _typical_lines(schema.typical.to_plain(schema))
    text += "\n[target]\n" + _lines(schema.target)
    text += "".join("\n[[columns]]\n" + _lines(column) for column in schema.columns)
    return text + "".join(f"\n[[interactions]]\nof = {_toml(list(each.of))}\n" for each in schema.interactions)


def schema_of(content: dict[str, Any], where: str, allow: Allow, folder: Path | None = None) -> Schema:
    """Return the schema that a table holds. folder: where modules of own columns may be, beside what is installed."""

    def part(table: Any, role: str, path: str) -> Any:
        if isinstance(table, dict) and isinstance(table.get("name"), str):
            path = f"{path} ({table['name']})"
        if folder is not None and isinstance(table, dict) and ":" in str(table.get("kind")):
            search(folder)
        return build(table, role, path, allow)

    try:
        check_keys(content, KEYS)
        for key in ("format", "target", "columns"):
            if key not in content:
                raise InputError(f"Expected key {key} in the schema, got {', '.join(content) or 'nothing'}.")
        if type(content["format"]) is not int or content["format"] not in READ:
            made = (
                "an older fedvi, whose categories had no reference. Make it anew: fedvi schema infer"
                if content["format"] == 1
                else "another version of fedvi?"
            )
            raise InputError(f"Expected format = {FORMAT}, got {content['format']!r}: made by {made}")
        columns, interactions = content["columns"], content.get("interactions", [])
        for key, tables in (("columns", columns), ("interactions", interactions)):
            if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
                raise InputError(f"Expected {key} to be tables, each with the line [[{key}]] above it.")
        target = part(content["target"], "target", "target")
        parts = (part(column, "column", f"columns[{number}]") for number, column in enumerate(columns, 1))
        for number, table in enumerate(interactions, 1):
            check_keys(table, ("of",), f"interactions[{number}]")
        crossed = tuple(Interaction(table.get("of", ())) for table in interactions)
        dialect = fill(Dialect, _table(content, "dialect"), "dialect")
        own = dialect, _text(content, "site_column")
        schema = Schema(tuple(parts), target, content.get("intercept", True), crossed, *own)
        if "typical" not in content:
            return schema
        return dataclasses.replace(schema, typical=Typical.from_plain(_table(content, "typical"), schema))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _typical_lines(table: dict[str, Any]) -> str:
    features = table.pop("features")
    text = "".join(f"{key} = {_toml(value)}\n" for key, value in table.items()) + "[typical.features]\n"
    return text + "".join(f"{_toml(name)} = {_toml(list(numbers))}\n" for name, numbers in features.items())


def _table(content: dict[str, Any], key: str) -> dict[str, Any]:
    found = content.get(key, {})
    if not isinstance(found, dict):
        raise InputError(f"Expected {key} to be a table, got {found!r}.")
    return found


def _text(content: dict[str, Any], key: str) -> str:
    found = content.get(key, "")
    if not isinstance(found, str):
        raise InputError(f"Expected {key} as text, got {found!r}.")
    return found


def _lines(part: Part) -> str:
    table, notes = plain(part), {key: f"  # {comment}" for key, comment in part.comments.items()}
    unused = [field.name for field in dataclasses.fields(part) if field.metadata and getattr(part, field.name) == ()]  # type: ignore[arg-type]
    ordered = {"name": table.pop("name"), **{key: value for key, value in table.items() if key not in unused}}
    return "".join(f"{key} = {_toml(value)}{notes.get(key, '')}\n" for key, value in ordered.items())


def _toml(value: Any) -> str:
    import tomli_w

    if isinstance(value, list):
        line = f"[{', '.join(map(_toml, value))}]"
        return line if len(line) <= 100 else "[\n" + "".join(f"    {_toml(item)},\n" for item in value) + "]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")
