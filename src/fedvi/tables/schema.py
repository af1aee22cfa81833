"""What a column means: the schema that all sites of a federation share.

A schema says how a row of a table becomes a row of the design matrix, the same at every site:

    number      (clip(value, low, high) - centre) / scale       one feature; 0, the centre, if missing
    category    one 0/1 feature per value                       and one for "other", if something may fall there
    target      -1 or +1 for two values, or a number as above

Every value in it must be public: bounds, scales and categories that were read from rows tell about these rows. Sites
agree on a schema by its `digest`, which depends on everything that changes the encoding and on nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.checks import LARGEST_FEATURE_BOUND
from fedvi.errors import InputError
from fedvi.files import digest
from fedvi.tables.columns import BinaryTarget, Category, Column, Number, NumberTarget, Target, shown
from fedvi.tables.words import near, plain

FORMAT = 1
INTERCEPT = "(intercept)"
INDICATOR_SQUARE = 0.1
HEADER = """\
# Feature schema: how every site turns its table into the same features. Shared by all sites, and not secret.
# Every value here must be public knowledge, or come from public or sample data: bounds, scales and
# categories that are read from private rows tell about these rows.
"""


@dataclass(frozen=True)
class Schema:
    """Columns in the order of their features, the target, and whether the first feature is a constant 1.

    >>> columns = (Number("age", 0, 120, 50, 20, missing="indicator"), Category("sex", ("F", "M")))
    >>> Schema(columns, BinaryTarget("died", ("no", "yes"))).features
    ('(intercept)', 'age', 'age is missing', 'sex=F', 'sex=M', 'sex=other')
    """

    columns: tuple[Column, ...]
    target: Target
    intercept: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        for column in self.columns:
            if not isinstance(column, Number | Category):
                raise InputError(f"Expected columns to be Number or Category, got {column!r}.")
        if not isinstance(self.target, BinaryTarget | NumberTarget):
            raise InputError(f"Expected the target to be a BinaryTarget or a NumberTarget, got {self.target!r}.")
        if not isinstance(self.intercept, bool):
            raise InputError(f"Expected intercept to be true or false, got {self.intercept!r}.")
        if not self.columns:
            raise InputError("Expected at least one column, got none.")
        names = [column.name for column in self.columns]
        if self.target.name in names:
            raise InputError(f"Expected the target not to be among the columns, got {self.target.name!r} in both.")
        _check_once(names, "column")
        _check_once(self.features, "feature")

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of x, in their order."""
        first = (INTERCEPT,) if self.intercept else ()
        return (*first, *(feature for column in self.columns for feature in column.features))

    @property
    def dim(self) -> int:
        """How many features there are."""
        return len(self.features)

    @cached_property
    def typical_squares(self) -> np.ndarray:
        """For every feature the typical squared value of x, a public constant.

        1 for the intercept and for numbers, whose scale is their standard deviation; for a category, of whose k
        features one is 1, it is 1 / k; 0.1 for indicators of missing values.
        """
        squares = [1.0] if self.intercept else []
        for column in self.columns:
            if isinstance(column, Category):
                squares += [1 / len(column.features)] * len(column.features)
            else:
                squares += [1.0, INDICATOR_SQUARE][: len(column.features)]
        return np.array(squares)

    @cached_property
    def feature_bound(self) -> float:
        """The largest that an entry of x can be, whatever its sign, rounded up to a power of two: a public constant."""
        numbers = [column for column in self.columns if isinstance(column, Number)]
        ends = [abs(end - number.centre) / number.scale for number in numbers for end in (number.low, number.high)]
        return min(2.0 ** math.ceil(math.log2(max([1.0, *ends]))), LARGEST_FEATURE_BOUND)

    @property
    def questions(self) -> list[str]:
        """The columns whose values could make a site refuse: a noiseless answer about rows, to who wrote the schema."""
        told = {"error"}
        return [column.name for column in self.columns if {column.missing, getattr(column, "unknown", "")} & told]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that changes the encoding or its meaning; the same on all machines, 64 hexadecimal digits."""
        return digest(self._content())

    def with_scales(self, scales: Mapping[str, tuple[float, float]]) -> Schema:
        """Return the same schema with other centres and scales of some numbers, the target included.

        >>> schema = Schema((Number("age", 0, 120, 50, 20),), BinaryTarget("died", ("no", "yes")))
        >>> schema.with_scales({"age": (40.0, 12.5)}).columns[0]
        Number(name='age', low=0.0, high=120.0, centre=40.0, scale=12.5, missing='centre')
        """
        numbers = [part.name for part in (*self.columns, self.target) if isinstance(part, Number | NumberTarget)]
        for name in scales:
            if name not in numbers:
                raise InputError(
                    f"Expected the name of a number for a new scale, one of {shown(numbers)}; got {name!r}."
                    f"{near(name, numbers)}"
                )

        def scaled(part: Any) -> Any:
            if part.name not in scales:
                return part
            centre, scale = scales[part.name]
            return dataclasses.replace(part, centre=centre, scale=scale)

        return Schema(tuple(map(scaled, self.columns)), scaled(self.target), self.intercept)

    @classmethod
    def load(cls, path: str | PathLike) -> Schema:
        """Return the schema in a TOML file, or raise `InputError` naming the file and the key."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise InputError(
                f"Expected a schema at {path}, got no such file. Make one with fedvi schema infer."
            ) from None
        except UnicodeDecodeError:
            raise InputError(f"Expected a schema in UTF-8 at {path}, got other bytes.") from None
        except OSError as error:
            raise InputError(f"Expected to read the schema {path}, got: {error.strerror}.") from None
        return cls.from_toml(text, str(path))

    def save(self, path: str | PathLike) -> None:
        """Write the schema as TOML, for people to edit."""
        try:
            Path(path).write_text(self.to_toml(), encoding="utf-8", newline="\n")
        except OSError as error:
            raise InputError(f"Expected to write the schema to {path}, got: {error.strerror}.") from None

    def to_toml(self) -> str:
        """Return the schema as TOML, with comments."""
        content = self._content()
        tables = [("target", content["target"]), *(("columns", column) for column in content["columns"])]
        text = f"{HEADER}format = {FORMAT}\nintercept = {str(self.intercept).lower()}\n"
        for name, table in tables:
            text += f"\n[{name}]\n" if name == "target" else f"\n[[{name}]]\n"
            for key, value in table.items():
                text += f"{key} = {_toml(value)}"
                if name == "target" and key == "values":
                    text += "  # the second one is the one whose probability is predicted"
                if name == "target" and key == "scale":
                    text += "  # the standard deviation of the target around the line"
                text += "\n"
        return text

    @classmethod
    def from_toml(cls, text: str, where: str = "the schema") -> Schema:
        """Return the schema that a TOML text holds; errors name `where` it stands."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"Expected TOML in {where}: {error}.") from None
        try:
            return _from_content(content)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

    def _content(self) -> dict[str, Any]:
        def table(part: Any) -> dict[str, Any]:
            name, *others = ((field.name, getattr(part, field.name)) for field in dataclasses.fields(part))
            kind = "number" if isinstance(part, Number | NumberTarget) else "category"
            return dict([name, ("kind", kind), *others])

        columns = [table(column) for column in self.columns]
        return {"format": FORMAT, "intercept": self.intercept, "target": table(self.target), "columns": columns}


# From a file.


def _from_content(content: dict[str, Any]) -> Schema:
    _check_keys(content, {"format", "target", "columns"}, {"format", "intercept", "target", "columns"}, "")
    if type(content["format"]) is not int or content["format"] != FORMAT:
        raise InputError(f"Expected format = {FORMAT}, got {content['format']!r}: made by another version of fedvi?")
    columns = content["columns"]
    if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
        raise InputError("Expected columns to be tables, each with the line [[columns]] above it.")
    target = _part(content["target"], "target", {"number": NumberTarget, "category": BinaryTarget})
    kinds = {"number": Number, "category": Category}
    parts = tuple(_part(column, f"columns[{number}]", kinds) for number, column in enumerate(columns, 1))
    return Schema(parts, target, content.get("intercept", True))


def _part(table: Any, path: str, kinds: Mapping[str, type]) -> Any:
    """Return the column or target that a table describes."""
    if not isinstance(table, dict):
        raise InputError(f"Expected {path} to be a table, got {table!r}.")
    if isinstance(table.get("name"), str):
        path = f"{path} ({table['name']})"
    if "kind" not in table:
        raise InputError(f"Expected key kind in {path}, one of {shown(kinds)}; got {shown(table)}.")
    kind = table["kind"]
    if kind not in tuple(kinds):
        raise InputError(
            f"Unknown value {kind!r} of kind in {path}; allowed: {', '.join(kinds)}.{near(str(kind), kinds)}"
        )
    fields: Any = dataclasses.fields(kinds[kind])
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    _check_keys(table, {"kind", *needed}, {"kind", *(field.name for field in fields)}, path)
    arguments = {key: value for key, value in table.items() if key != "kind"}
    if isinstance(arguments.get("values"), list):
        arguments["values"] = tuple(map(_as_text, arguments["values"]))
    try:
        return kinds[kind](**arguments)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _as_text(value: Any) -> Any:
    """Return what people write as 0 or true as the text that it is in tables."""
    return plain(str(value)) if isinstance(value, bool | int | float) else value


def _check_keys(table: Mapping[str, Any], needed: set[str], allowed: set[str], path: str) -> None:
    inside = f" in {path}" if path else ""
    for key in table:
        if key not in allowed:
            raise InputError(f"Unknown key {key}{inside}; allowed: {', '.join(sorted(allowed))}.{near(key, allowed)}")
    for key in sorted(needed - set(table)):
        raise InputError(f"Expected key {key}{inside}, got {shown(table)}.")


def _check_once(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"Expected every {what} once, got {name!r} twice. Rename one.")
        seen.add(name)


def _toml(value: Any) -> str:
    import tomli_w

    if isinstance(value, tuple):
        line = f"[{', '.join(map(_toml, value))}]"
        return line if len(line) <= 100 else "[\n" + "".join(f"    {_toml(item)},\n" for item in value) + "]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")
