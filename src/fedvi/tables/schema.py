"""What a column means: the schema that all sites of a federation share.

A schema says how a row of a table becomes a row of the design matrix, the same at every site: its columns become
features (`fedvi.tables.columns`), its target y (`fedvi.tables.targets`).

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
from types import MappingProxyType
from typing import Any

import numpy as np

from fedvi.checks import LARGEST_FEATURE_BOUND
from fedvi.config import check_keys, near, read_toml, unknown
from fedvi.errors import InputError
from fedvi.files import digest, write
from fedvi.tables.columns import Column
from fedvi.tables.parts import Part, Scaled
from fedvi.tables.targets import Target
from fedvi.tables.words import check_once, plain

FORMAT = 1
INTERCEPT = "(intercept)"
HEADER = """\
# Feature schema: how every site turns its table into the same features. Shared by all sites, and not secret.
# Every value here must be public knowledge, or come from public or sample data: bounds, scales and
# categories that are read from private rows tell about these rows.
"""


@dataclass(frozen=True)
class Schema:
    """Columns in the order of their features, the target, and whether the first feature is a constant 1.

    >>> from fedvi.tables import BinaryTarget, Category, Number
    >>> columns = (Number("age", 0, 120, 50, 20, missing="indicator"), Category("sex", ("F", "M")))
    >>> Schema(columns, BinaryTarget("died", ("no", "yes"))).features
    ('(intercept)', 'age', 'age is missing', 'sex=F', 'sex=M', 'sex=other')
    """

    columns: tuple[Column, ...]
    target: Target
    intercept: bool = True

    def __repr__(self) -> str:
        columns = f"{len(self.columns)} columns, {len(self.features)} features"
        return f"Schema({columns}, target {self.target.name!r}, digest {self.digest[:12]})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        for column in self.columns:
            if not isinstance(column, Column):
                raise InputError(f"Expected columns to be {_classes(Column.kinds)}, got {column!r}.")
        if not isinstance(self.target, Target):
            raise InputError(f"Expected the target to be {_classes(Target.kinds)}, got {self.target!r}.")
        if not isinstance(self.intercept, bool):
            raise InputError(f"Expected intercept to be true or false, got {self.intercept!r}.")
        if not self.columns:
            raise InputError("Expected at least one column, got none.")
        names = [column.name for column in self.columns]
        if self.target.name in names:
            raise InputError(f"Expected the target not to be among the columns, got {self.target.name!r} in both.")
        check_once(names, "column")
        check_once(self.features, "feature")

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of x, in their order."""
        first = (INTERCEPT,) if self.intercept else ()
        return (*first, *(feature for column in self.columns for feature in column.features))

    @property
    def dim(self) -> int:
        """How many features there are."""
        return len(self.features)

    def typical(self, power: int) -> np.ndarray:
        """Return the typical power, 2 or 4, of every feature of x: public constants.

        1 for the intercept; moments of a standard normal for numbers, whose scale is their standard deviation; 1 / k
        for a category, of whose k features one is 1; 0.1 for indicators of missing values.
        """
        first = [np.ones(1)] if self.intercept else []
        return np.concatenate([*first, *(column.typical(power) for column in self.columns)])

    @property
    def feature_bound(self) -> float:
        """The largest that an entry of x can be, whatever its sign, rounded up to a power of two: a public constant."""
        largest = max(1.0, *(column.bound for column in self.columns))
        return min(2.0 ** math.ceil(math.log2(largest)), LARGEST_FEATURE_BOUND)

    @property
    def questions(self) -> list[str]:
        """The columns whose values could make a site refuse: a noiseless answer about rows, to who wrote the schema."""
        return [column.name for column in self.columns if column.refuses]

    def in_units(self, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the coefficients of a linear predictor, in units of the columns and of the target; and its intercept.

        >>> from fedvi.tables import BinaryTarget, Number
        >>> schema = Schema((Number("age", 0, 120, 50, 20),), BinaryTarget("died", ("no", "yes")))
        >>> schema.in_units(np.array([1.0, 2.0]))
        (array([0.1]), -4.0)
        """
        at = int(self.intercept)
        intercept, found = float(np.sum(weights[:at])), []
        for column in self.columns:
            slopes, shift = column.in_units(weights[at : at + len(column.features)])
            at += len(column.features)
            intercept += shift
            found.append(slopes)
        return self.target.in_units(np.concatenate(found), intercept)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that changes the encoding or its meaning; the same on all machines, 64 hexadecimal digits."""
        return digest(self._content())

    def with_scales(self, scales: Mapping[str, tuple[float, float]]) -> Schema:
        """Return the same schema with other centres and scales of some numbers, the target included.

        >>> from fedvi.tables import BinaryTarget, Number
        >>> schema = Schema((Number("age", 0, 120, 50, 20),), BinaryTarget("died", ("no", "yes")))
        >>> schema.with_scales({"age": (40.0, 12.5)}).columns[0]
        Number(name='age', low=0.0, high=120.0, centre=40.0, scale=12.5, missing='centre')
        """
        numbers = [part.name for part in (*self.columns, self.target) if isinstance(part, Scaled)]
        for name in scales:
            if name not in numbers:
                raise InputError(
                    f"Expected the name of a number for a new scale, one of {', '.join(numbers)}; got {name!r}."
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
        return _from_content(read_toml(path, "a schema, as fedvi schema infer makes one"), str(path))

    def save(self, path: str | PathLike) -> None:
        """Write the schema as TOML, for people to edit."""
        write(path, self.to_toml())

    def to_toml(self) -> str:
        """Return the schema as TOML, with comments."""
        content = self._content()
        text = f"{HEADER}format = {FORMAT}\nintercept = {str(self.intercept).lower()}\n"
        text += "\n[target]\n" + _lines(content["target"], self.target.comments)
        return text + "".join("\n[[columns]]\n" + _lines(column) for column in content["columns"])

    @classmethod
    def from_toml(cls, text: str, where: str = "the schema") -> Schema:
        """Return the schema that a TOML text holds; errors name `where` it stands."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"Expected TOML in {where}: {error}.") from None
        return _from_content(content, where)

    def _content(self) -> dict[str, Any]:
        columns = [_table(column) for column in self.columns]
        return {"format": FORMAT, "intercept": self.intercept, "target": _table(self.target), "columns": columns}


# From a file, and to it.


def _from_content(content: dict[str, Any], where: str) -> Schema:
    try:
        return _schema(content)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _schema(content: dict[str, Any]) -> Schema:
    check_keys(content, ("format", "intercept", "target", "columns"))
    _check_given(content, ("format", "target", "columns"), "the schema")
    if type(content["format"]) is not int or content["format"] != FORMAT:
        raise InputError(f"Expected format = {FORMAT}, got {content['format']!r}: made by another version of fedvi?")
    columns = content["columns"]
    if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
        raise InputError("Expected columns to be tables, each with the line [[columns]] above it.")
    target = _part(content["target"], "target", Target.kinds)
    parts = tuple(_part(column, f"columns[{number}]", Column.kinds) for number, column in enumerate(columns, 1))
    return Schema(parts, target, content.get("intercept", True))


def _part(table: Any, path: str, kinds: Mapping[str, type[Any]]) -> Any:
    """Return the column or target that a table describes."""
    if not isinstance(table, dict):
        raise InputError(f"Expected {path} to be a table, got {table!r}.")
    if isinstance(table.get("name"), str):
        path = f"{path} ({table['name']})"
    if "kind" not in table:
        raise InputError(f"Expected key kind in {path}, one of {', '.join(kinds)}; got {', '.join(table)}.")
    made = kinds.get(table["kind"]) if isinstance(table["kind"], str) else None
    if made is None:
        raise unknown(f"{path}.kind", table["kind"], kinds)
    fields: Any = dataclasses.fields(made)
    check_keys(table, ("kind", *(field.name for field in fields)), path)
    _check_given(table, [field.name for field in fields if field.default is dataclasses.MISSING], path)
    arguments = {key: value for key, value in table.items() if key != "kind"}
    if isinstance(arguments.get("values"), list):
        arguments["values"] = tuple(map(_as_text, arguments["values"]))
    try:
        return made(**arguments)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _table(part: Part) -> dict[str, Any]:
    fields: Any = dataclasses.fields(part)  # type: ignore[arg-type]
    name, *others = ((field.name, getattr(part, field.name)) for field in fields)
    return dict([name, ("kind", part.kind), *others])


def _as_text(value: Any) -> Any:
    """Return what people write as 0 or true as the text that it is in tables."""
    return plain(str(value)) if isinstance(value, bool | int | float) else value


def _classes(kinds: Mapping[str, type[Any]]) -> str:
    return " or ".join(made.__name__ for made in kinds.values())


def _check_given(table: Mapping[str, Any], needed: Iterable[str], path: str) -> None:
    for key in needed:
        if key not in table:
            raise InputError(f"Expected key {key} in {path}, got {', '.join(table) or 'nothing'}.")


def _lines(table: Mapping[str, Any], comments: Mapping[str, str] = MappingProxyType({})) -> str:
    return "".join(
        f"{key} = {_toml(value)}{f'  # {comments[key]}' if key in comments else ''}\n" for key, value in table.items()
    )


def _toml(value: Any) -> str:
    import tomli_w

    if isinstance(value, tuple):
        line = f"[{', '.join(map(_toml, value))}]"
        return line if len(line) <= 100 else "[\n" + "".join(f"    {_toml(item)},\n" for item in value) + "]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")
