"""What a column means: the schema that all sites of a federation share.

A schema says how a row of a table becomes a row of the design matrix, the same at every site: its columns become
features (`fedvi.tables.columns`), products of them more features (`fedvi.tables.interactions`), its target y
(`fedvi.tables.targets`).

Every value in it must be public: bounds, scales and categories that were read from rows tell about these rows. Sites
agree on a schema by its `digest`, which depends on everything that changes the encoding and on nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.checks import LARGEST_FEATURE_BOUND, instance, near
from fedvi.config import Allow, plain, read_toml
from fedvi.errors import InputError
from fedvi.files import digest, write
from fedvi.tables.columns import Column
from fedvi.tables.interactions import Interaction, Products
from fedvi.tables.layout import INTERCEPT as CONSTANT
from fedvi.tables.layout import Layout
from fedvi.tables.parts import Part, Scaled
from fedvi.tables.reading.chunk import Kind
from fedvi.tables.reading.messages import check_once
from fedvi.tables.reading.source import Dialect
from fedvi.tables.targets import Target
from fedvi.tables.typical import Typical

INTERCEPT = "(intercept)"

DIGEST_FORMAT = 2
"""What digests say; schemas that use no newer key have kept theirs."""


@dataclass(frozen=True)
class Schema:
    """Columns in the order of their features, the target, whether the first feature is a constant 1, and interactions.

    dialect: how tables are written, unless a site says that its own are written in another way. site_column: that says
    which site a row of a table of several sites belongs to. typical: what rows are like, for forecasts. None of these
    is part of the digest.

    >>> from fedvi.tables import BinaryTarget, Category, Number
    >>> columns = (Number("age", 0, 120, 50, 20, missing="indicator"), Category("sex", ("F", "M"), unknown="other"))
    >>> Schema(columns, BinaryTarget("died", ("no", "yes")), interactions=(Interaction(("age", "sex")),)).features
    ('(intercept)', 'age', 'age is missing', 'sex=M', 'sex=other', 'age:sex=M', 'age:sex=other')
    """

    columns: tuple[Column, ...]
    target: Target
    intercept: bool = True
    interactions: tuple[Interaction, ...] = ()
    dialect: Dialect = dataclasses.field(default_factory=Dialect)
    site_column: str = ""
    typical: Typical | None = None

    def __repr__(self) -> str:
        columns = f"{len(self.columns)} columns, {len(self.features)} features"
        return f"Schema({columns}, target {self.target.name!r}, digest {self.digest[:12]})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "interactions", tuple(self.interactions))
        for column in self.columns:
            instance("a column", column, Column)
        for interaction in self.interactions:
            instance("an interaction", interaction, Interaction)
        instance("the target", self.target, Target)
        instance("dialect", self.dialect, Dialect)
        if self.typical is not None:
            instance("typical", self.typical, Typical)
        if not isinstance(self.intercept, bool):
            raise InputError(f"Expected intercept to be true or false, got {self.intercept!r}.")
        if not self.columns:
            raise InputError("Expected at least one column, got none.")
        names = [column.name for column in self.columns]
        for name in (*names, self.target.name):
            if not isinstance(name, str) or not name or name != name.strip():
                raise InputError(f"Expected the name of a column without blanks around it, got {name!r}.")
        if self.target.name in names:
            raise InputError(f"Expected the target not to be among the columns, got {self.target.name!r} in both.")
        check_once(names, "column")
        check_once(self.features, "feature")

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of x, in their order."""
        return (*self._own, *self.products.features)

    @property
    def _own(self) -> tuple[str, ...]:
        """Names of the features that are no products."""
        return (*((INTERCEPT,) if self.intercept else ()), *(name for each in self.columns for name in each.features))

    @cached_property
    def first(self) -> tuple[int, ...]:
        """Where in x the features of each column begin."""
        sizes = [len(column.features) for column in self.columns]
        return tuple(int(self.intercept) + sum(sizes[:number]) for number in range(len(sizes)))

    def places(self, name: str) -> list[int]:
        """Return where in x the features of a column are, or a feature by its own name."""
        if name in self.features:
            return [self.features.index(name)]
        for column, at in zip(self.columns, self.first, strict=True):
            if column.name == name:
                return list(range(at, at + len(column.features)))
        known = [*(column.name for column in self.columns), *self.features]
        raise InputError(
            f"Expected the name of a column or a feature, got {name!r}.{near(name, known)} Features: "
            f"{', '.join(self.features[:20])}{', ...' if len(self.features) > 20 else ''}."
        )

    @cached_property
    def products(self) -> Products:
        """The features that are products of others; they are the last ones."""
        kinds = self._own_kinds
        return Products.of(self.interactions, self.columns, self.first, self._own, kinds)

    @property
    def _own_kinds(self) -> tuple[str, ...]:
        return (*((CONSTANT,) if self.intercept else ()), *(kind for each in self.columns for kind in each.kinds))

    @property
    def dim(self) -> int:
        """How many features there are."""
        return len(self.features)

    @cached_property
    def layout(self) -> Layout:
        """What is public about the features: their kinds, which of them exclude each other, and their bound."""
        groups = [
            tuple(range(first, first + len(column.features)))
            for first, column in zip(self.first, self.columns, strict=True)
            if column.exclusive
        ]
        own = [bound for each in self.columns for bound in [each.bound] * len(each.features)]
        bounds = self.products.of_each(np.array([*([1.0] * self.intercept), *own]))
        kinds = (*self._own_kinds, *self.products.kinds)
        return Layout(kinds, (*groups, *self.products.exclusive), float(bounds.max()))

    @property
    def exclusive(self) -> tuple[tuple[int, ...], ...]:
        """Groups of features that are 0 or 1 and of which at most one is not 0: levels of a category."""
        return self.layout.exclusive

    @property
    def bound(self) -> float:
        """The largest that an entry of x can be, whatever its sign: a public constant."""
        return self.layout.bound

    @property
    def feature_bound(self) -> float:
        """The bound rounded up to a power of two, at least 1."""
        return min(2.0 ** math.ceil(math.log2(max(1.0, self.bound))), LARGEST_FEATURE_BOUND)

    def reads(self, *, target: bool = True) -> dict[str, Kind]:
        """Return which columns of a table are needed, and how."""
        parts = (*self.columns, *((self.target,) if target else ()))
        return {name: kind for part in parts for name, kind in part.reads.items()}

    @property
    def expected(self) -> dict[str, str]:
        """What it expects of each column, for people."""
        return {part.name: part.shown for part in (*self.columns, self.target)}

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
        units = [(np.ones(at), np.zeros(at)), *(column.units for column in self.columns)]
        slopes, shifts = (np.concatenate(parts) for parts in zip(*units, strict=True))
        per_unit, constant = self.products.in_units(np.asarray(weights, float), slopes, shifts)
        return self.target.in_units(per_unit[at:], float(np.sum(per_unit[:at])) + constant)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that changes the encoding or its meaning; the same on all machines, 64 hexadecimal digits."""
        content = {
            "format": DIGEST_FORMAT,
            "intercept": self.intercept,
            "target": _meaning(self.target),
            "columns": list(map(_meaning, self.columns)),
            "interactions": [list(each.of) for each in self.interactions],
        }
        return digest(plain(content))

    def with_scales(self, scales: Mapping[str, tuple[float, float]]) -> Schema:
        """Return the same schema with other centres and scales of some numbers, the target included."""
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

        return dataclasses.replace(self, columns=tuple(map(scaled, self.columns)), target=scaled(self.target))

    @classmethod
    def load(cls, path: str | PathLike[str], allow: Allow = None) -> Schema:
        """Return the schema in a TOML file, or raise `InputError` naming the file and the key.

        allow: own columns and targets that it may name, as "module:Class"; None for all, also those in files beside it.
        """
        from fedvi.tables.schema_file import schema_of

        content = read_toml(path, "a schema, as fedvi schema infer makes one")
        return schema_of(content, str(path), allow, Path(path).parent if allow is None else None)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the schema as TOML, for people to edit."""
        write(path, self.to_toml())

    def to_toml(self) -> str:
        """Return the schema as TOML, with comments."""
        from fedvi.tables.schema_file import toml_of

        return toml_of(self)

    @classmethod
    def from_toml(cls, text: str, where: str = "the schema", allow: Allow = None) -> Schema:
        """Return the schema that a TOML text holds; errors name `where` it stands. allow: as in `load`."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"Expected TOML in {where}: {error}.") from None
        from fedvi.tables.schema_file import schema_of

        return schema_of(content, where, allow)


def _meaning(part: Part) -> dict[str, Any]:
    """Return what a column or target is, without what says nothing more and what came later and is not used."""
    table: dict[str, Any] = plain(part)
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        rule = field.metadata.get("digest")
        if rule == "never" or (rule == "if set" and getattr(part, field.name) == field.default):
            del table[field.name]
    return table
