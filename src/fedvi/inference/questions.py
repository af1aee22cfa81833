"""Questions of the server and answers of the sites: what noise-aware PVI releases.

The server asks all sites the same questions. A question is public: a linear map of the rows, a Gaussian q over the
weights of the mapped rows, and a few numbers. An answer is one private sum over all rows of a site. With

    z = (x - centre) W        eta = m'z,  v = z'Sz        for q = N(m, S)

and from the model (`LinearPredictorModel.response`) the bounded slope psi of a row, its largest size b over all
outcomes, the expected curvature a, and one more number e between 0 and 1:

    norm     = sqrt((slope_weight b |z|)^2 + (curvature_weight a |zz'|)^2 + extra_weight^2)
    row's vector = min(1, reach / norm) (slope_weight psi z, curvature_weight a zz', extra_weight e) / reach

zz' is the upper triangle row by row, off-diagonals times sqrt 2, which keeps lengths; or z^2, where q is diagonal.
A question about moments asks for (slope_weight z, curvature_weight zz', 0): psi = a = b = 1.

**No look at the outcome.** The weight of a row follows from x and the question. A clip that sees y cuts surprises only:
what is left has not mean zero at the true weights, and intervals are too narrow. Here slopes stay right on average,
whatever the reach, and slope and curvature have the same weight.

**Sensitivity.** A row's vector is no longer than 1 for any outcome, so that an answer is a Gaussian mechanism with clip
norm 1. The mapped row is a whole number of public steps: rows and W have few enough bits that the product is exact. So
all that a row adds depends on that row alone, to the last bit (`fedvi.privacy.clipping`).
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from jaxtyping import Float

from fedvi.checks import not_a_class
from fedvi.compiling import jax, jnp
from fedvi.families.messages import Messages
from fedvi.inference.local_problem import Draws, Problem, Seen
from fedvi.inference.question import Question as Question
from fedvi.inference.question import mapped_by, packed
from fedvi.inference.question import numbers_of as numbers_of
from fedvi.inference.rows import Rows
from fedvi.models.base import Model, Part, VectorsOf
from fedvi.models.linear_predictor import WIDEST, LinearPredictorModel, Response
from fedvi.numerics import Array, Bounds, cut, row_bits, snapped, weight_bits, whole_row_sums, widen
from fedvi.privacy.mechanism import FullBatchGaussian, Mechanism
from fedvi.pytree import pytree, static

WIDEST_ROW = 64.0
"""Entries of mapped rows count up to this much."""


@pytree
class Answer:
    """Sums over rows: slopes, curvatures, the model's own number; or what they are made of."""

    slope: Any
    curvature: Any
    extra: Any


@pytree
class AnswerVectors:
    """What rows add to an answer, before they are clipped.

    rows: mapped. largest: of slopes, over all outcomes. All are divided by the reach.
    """

    rows: Float[Array, "n d"]
    slope: Float[Array, " n"]
    curvature: Float[Array, " n"]
    extra: Float[Array, " n"]
    squared: Float[Array, " n"]
    full: bool = static()
    rounding: float = static(default=0.0)

    def squared_norms(self) -> Float[Array, " n"]:
        """Return the largest squared norms that rows could have, whatever their outcomes are."""
        return self.squared

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Answer:
        """Return the sum in whole `units`; of curvatures, by the products of rows that were cut."""
        slope, curvature, extra = (
            jnp.where(weights > 0, weights * each, 0) for each in (self.slope, self.curvature, self.extra)
        )
        row_step = _row_step(self.rows.shape[1])
        slopes = (cut(slope, bounds.step / row_step) @ self.rows) * (1 / row_step)
        if self.full:
            parts = cut(jnp.sqrt(curvature)[:, None] * self.rows, _root_step(bounds))
            curvatures = (parts.T @ parts)[np.triu_indices(self.rows.shape[1])]
        else:
            curvatures = jnp.sum(cut(curvature[:, None] * (self.rows * self.rows), bounds.step), axis=0)
        return Answer(slopes, curvatures, jnp.sum(cut(extra, bounds.step)))

    def units(self, bounds: Bounds) -> Answer:
        """Return what one means in each entry."""
        columns = self.rows.shape[1]
        unit = jnp.full(columns, bounds.step)
        if self.full:
            above = np.subtract(*np.triu_indices(columns)) != 0
            curvature = _root_step(bounds) ** 2 * np.where(above, math.sqrt(2), 1)
        else:
            curvature = unit
        return Answer(unit, curvature, bounds.step)


def _row_step(columns: int) -> float:
    """Return the unit of the entries of a mapped row."""
    return WIDEST_ROW * 2.0 ** -row_bits(columns)


def _root_step(bounds: Bounds) -> Float[Array, ""]:
    """Return the unit of entries whose products are summed: rows times the square of the longest stay below 2^53."""
    exponent = jnp.ceil(0.5 * jnp.log2(bounds.step))
    return jnp.exp2(exponent)


@pytree
class AnswerSums:
    """The sums that a question asks for (`RowSums`). private: whether rows are bounded and cut."""

    model: LinearPredictorModel
    question: Question
    private: bool = static()

    def rows_at_once(self, q: Any, x: Array) -> int:
        """Return how many rows are best worked on together: in larger blocks, some places round differently."""
        return 8 if self.private else 1024

    def gradient(self, q: Any, x: Array, y: Array, weights: Array, z: Array) -> Answer:
        """Return the weighted sums of what is not bounded: without privacy, where nobody asks for moments."""
        question, rows = self.question, self.question.mapped(x)
        mean, variance = question.q.project(rows)
        seen = self.model.free_response(mean, variance, y, question.noise_variance)
        slope, curvature = weights * seen.slope, weights * seen.curvature
        curvatures = packed((rows.T * curvature[None]) @ rows) if question.full else curvature @ (rows * rows)
        return Answer(slope @ rows, curvatures, weights @ seen.extra)

    def row_vectors(self, q: Any, z: Array, feature_bound: Array) -> VectorsOf:
        """Return from rows on their grid to what they add; within `double_precision`."""
        question = widen(self.question)
        columns = question.centre.shape[-1]
        step = _row_step(columns)
        whitening = snapped(question.whitening, weight_bits(columns))
        shift = jnp.rint(mapped_by(whitening, question.centre[None])[0] * (1 / step))
        most = 2.0 ** row_bits(columns)
        project = question.q.coordinates().exact(jnp.asarray(WIDEST_ROW), None, 0.0)
        reach = jnp.maximum(question.reach, jnp.finfo(jnp.float64).tiny)
        slope_weight, curvature_weight, extra_weight = (
            jnp.abs(each) / reach for each in (question.slope_weight, question.curvature_weight, question.extra_weight)
        )

        def vectors(x: Array, y: Array, lengths: Array) -> Part:  # noqa: ARG001 - of the rows before they are mapped
            whole = jnp.rint(mapped_by(whitening, widen(x)) * (1 / step)) - shift[None]
            whole = jnp.where(jnp.isfinite(whole), jnp.clip(whole, -most, most), 0)
            rows = whole * step
            squares = rows * rows
            length = jnp.sqrt(jnp.sum(squares, axis=1)) * (1 + 2.0**-40)
            mean, variance, _ = project(rows, length)
            seen = self._counted(
                self.model.response(mean, jnp.minimum(variance, WIDEST), widen(y), question.noise_variance)
            )
            quartic = length**2 if question.full else _diagonal_length(squares)
            squared = (
                (slope_weight * seen.largest * length) ** 2
                + (curvature_weight * seen.curvature * quartic) ** 2
                + extra_weight**2
            )
            return Part(
                AnswerVectors(
                    rows=rows,
                    slope=slope_weight * seen.slope,
                    curvature=curvature_weight * seen.curvature,
                    extra=extra_weight * seen.extra,
                    squared=squared,
                    full=question.full,
                    rounding=self.model.slope_rounding,
                )
            )

        return vectors

    def _counted(self, seen: Response) -> Response:
        """Return what counts of a response: no more than its own bounds, and nothing of it in moments."""
        largest, one = jnp.abs(seen.largest), jnp.ones_like(seen.slope)
        slope, extra = jnp.clip(_finite(seen.slope), -largest, largest), jnp.clip(_finite(seen.extra), 0, 1)
        moments = self.question.moments > 0
        return Response(
            slope=jnp.where(moments, one, slope),
            largest=jnp.where(moments, one, largest),
            curvature=jnp.where(moments, one, jnp.maximum(seen.curvature, 0)),
            extra=jnp.where(moments, 0, extra),
        )


def _diagonal_length(squares: Float[Array, "n d"]) -> Float[Array, " n"]:
    total, error = whole_row_sums(squares * squares, jnp.asarray(WIDEST_ROW**4, squares.dtype))
    return jnp.sqrt(total + error)


def _finite(values: Array) -> Array:
    return jnp.where(jnp.isfinite(values), values, 0)


def one_answer() -> FullBatchGaussian:
    """Return the mechanism of an answer: all rows, clip norm 1, the least noise that the budget allows."""
    return FullBatchGaussian(noise_multiplier=None, clip_norm=1.0)


@pytree
class Answers:
    """Answers the question that the server asks, once (`Solver`).

    mechanism: `FullBatchGaussian` with clip norm 1, or `FullBatch` for no privacy.
    """

    needs: ClassVar[str] = "curvature"
    steps: ClassVar[int] = 1
    mechanism: Mechanism = field(default_factory=one_answer)

    def __post_init__(self) -> None:
        not_a_class("mechanism", self.mechanism)

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the same with this noise in the mechanism."""
        return replace(self, mechanism=self.mechanism.with_noise(noise_multiplier))

    def init(self, q: Any) -> tuple[()]:
        """Nothing is kept between questions but the answers, which are the factor."""
        return ()

    def solve(
        self, problem: Problem, state: tuple[()], model: Model, rows: Rows, draws: Draws
    ) -> tuple[Messages, tuple[()], Seen]:
        """Answer; return all answers so far."""
        question, so_far = cast(Question, problem.start), cast(Messages, problem.base)
        sums = AnswerSums(
            cast(LinearPredictorModel, model), question, self.mechanism.private
        )  # `needs` has been checked
        numbers = so_far.sums.shape[-1]
        columns = question.centre.shape[-1]
        zeros = jnp.zeros(numbers, so_far.sums.dtype)
        nothing = Answer(zeros[:columns], zeros[columns:-1], zeros[-1])
        negative, seen = self.mechanism.gradient(sums, question, draws.batch(rows, 0), nothing)
        answer = -jax.flatten_util.ravel_pytree(negative)[0]
        noise = jnp.asarray(self.mechanism.noise_std(draws.scale), answer.dtype) ** 2
        number = so_far.answered
        return (
            Messages(
                so_far.sums.at[number].set(answer),
                so_far.noise.at[number].set(noise),
                so_far.rows.at[number].set(draws.total),
            ),
            state,
            seen[None],
        )

    def check(self, x: np.ndarray, where: str) -> None:
        """Any features will do."""
