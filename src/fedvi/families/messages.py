"""A site's answers to the server's questions: `Messages`.

In noise-aware PVI (`fedvi.inference.asking`) the server asks all sites the same questions. An answer is a private
sum over the site's rows. The server needs only the sum of all sites' answers to each question, how much noise is in it
and for how many rows it speaks. So a site's factor is the stack of its answers, and factors multiply by adding them up,
question by question. A site that comes late answers the old questions too; one that is withdrawn is divided out.
"""

from __future__ import annotations

from typing import Any, NoReturn, Self

from jaxtyping import Bool, Float, Int

from fedvi.families.base import Factor
from fedvi.numerics import Array, namespace
from fedvi.pytree import pytree


@pytree
class Messages(Factor):
    """Answers, stacked by question; zero where a question was not answered yet.

    sums: as released (`fedvi.inference.questions`). noise: variance of the privacy noise in each of their numbers.
    rows: as many as were declared by those who answered.
    """

    sums: Float[Array, "*batch questions numbers"]
    noise: Float[Array, "*batch questions"]
    rows: Float[Array, "*batch questions"]

    @property
    def dim(self) -> int:
        """Numbers of an answer."""
        return int(self.sums.shape[-1])

    @property
    def answered(self) -> Int[Array, "*batch"]:
        """How many questions somebody has answered."""
        return (self.rows > 0).sum(axis=-1)

    def posterior(self, prior: Any) -> NoReturn:
        """Raise: a posterior is read out of questions and answers (`fedvi.inference.reading`)."""
        raise TypeError("Answers mean nothing without their questions: use fedvi.inference.reading.read.")

    def is_proper_with(self, prior: Any) -> Bool[Array, ""]:
        """Any answers make a proper posterior."""
        return namespace(self.noise).ones((), bool)

    def is_legal(self) -> Bool[Array, "*batch"]:
        """Tell whether there is no negative noise, which would hide that of others, and no negative number of rows."""
        return (self.noise >= 0).all(axis=-1) & (self.rows >= 0).all(axis=-1)

    def repaired(self) -> tuple[Self, Int[Array, "*batch"]]:
        """Return the answers as they are."""
        xp = namespace(self.noise)
        return self, xp.zeros(self.noise.shape[:-1], xp.int32)
