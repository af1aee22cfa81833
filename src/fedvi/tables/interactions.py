"""Interactions: products of the features of two columns.

    age:sex         number x category       one feature per value but the reference: how much steeper the line is there
    age:dose        number x number         one feature
    sex:smoker      category x category     one feature per pair of values without references

They are computed from x itself, so that columns of all kinds have them. Hats take no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedvi.checks import near
from fedvi.errors import InputError
from fedvi.tables.columns import Column
from fedvi.tables.layout import LEVEL, NUMBER


@dataclass(frozen=True)
class Interaction:
    """The product of two columns. of: their names."""

    of: tuple[str, str]

    def __post_init__(self) -> None:
        given: Any = self.of
        names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else ()
        if len(names) != 2 or names[0] == names[1] or not all(isinstance(name, str) for name in names):
            raise InputError(f"Expected the names of two columns in an interaction, got {given!r}.")
        object.__setattr__(self, "of", names)

    @property
    def name(self) -> str:
        """How people call it: age:sex."""
        return ":".join(self.of)


@dataclass(frozen=True)
class Products:
    """Features that are products of two earlier ones. left, right: where these are in x."""

    left: np.ndarray
    right: np.ndarray
    features: tuple[str, ...]
    kinds: tuple[str, ...]
    exclusive: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls,
        interactions: Sequence[Interaction],
        columns: Sequence[Column],
        first: Sequence[int],
        features: Sequence[str],
        kinds: Sequence[str],
    ) -> Products:
        """Return the products of all interactions. first: where the features of each column begin in x."""
        places = {column.name: (column, at) for column, at in zip(columns, first, strict=True)}
        seen, pairs, groups = set[frozenset[str]](), list[tuple[int, int]](), list[tuple[int, ...]]()
        for interaction in interactions:
            for name in interaction.of:
                if name not in places:
                    raise InputError(
                        f"Expected the name of a column in the interaction {interaction.name}, got {name!r}."
                        f"{near(name, places)}"
                    )
            if frozenset(interaction.of) in seen:
                raise InputError(f"Expected every interaction once, got {interaction.name} twice.")
            seen.add(frozenset(interaction.of))
            (a, at_a), (b, at_b) = (places[name] for name in interaction.of)
            mine = [(at_a + i, at_b + j) for i in a.crossed for j in b.crossed]
            if a.exclusive and b.exclusive:
                start = len(features) + len(pairs)
                groups.append(tuple(range(start, start + len(mine))))
            pairs += mine
        left, right = (np.array([pair[side] for pair in pairs], int) for side in (0, 1))
        names = tuple(f"{features[i]}:{features[j]}" for i, j in pairs)
        both = tuple(LEVEL if kinds[i] == kinds[j] == LEVEL else NUMBER for i, j in pairs)
        return cls(left, right, names, both, tuple(groups))

    def of_each(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers of features, and behind them those of products: each the product of two."""
        return np.concatenate([numbers, numbers[..., self.left] * numbers[..., self.right]], axis=-1)

    def in_units(self, weights: np.ndarray, slopes: np.ndarray, shifts: np.ndarray) -> tuple[np.ndarray, float]:
        """Return weights per unit and what is left for the intercept, where a feature is slope * value + shift.

        w (a u + b) (c v + d) = w a c uv + w a d u + w b c v + w b d
        """
        own, crossed = np.split(weights, [len(slopes)])
        (a, b), (c, d) = ((slopes[side], shifts[side]) for side in (self.left, self.right))
        per_unit = own * slopes
        np.add.at(per_unit, self.left, crossed * a * d)
        np.add.at(per_unit, self.right, crossed * b * c)
        constant = float(own @ shifts + crossed @ (b * d))
        return np.concatenate([per_unit, crossed * a * c]), constant
