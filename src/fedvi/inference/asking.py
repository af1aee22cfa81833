"""Noise-aware PVI: the server asks, all sites answer the same questions, and q is read out of all answers.

    server:  question 1 ... moments of the rows         site:  answer = private sum over all rows
    server:  question k: slope and curvature at q       site:  answer = private sum over all rows
    server:  q = read(prior, questions, answers)        all noise is known, and none is taken for data

Release number k of a site is its answer to question k (`fedvi.inference.questions`). All answers of a site have the
same form, the same noise and the same event: their number is planned, and paid for in one plan. A question is made when
the first site needs it, out of all answers that are there; once asked, it stays. So a site that comes late answers the
questions that the others have answered before. Reading is post-processing (`fedvi.inference.reading`), done by the
server once per question.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float, Int

from fedvi.checks import in_range, one_of, whole
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily, extent, require_proper
from fedvi.families.messages import Messages
from fedvi.inference.algorithms import LARGEST_PREDICTOR, Algorithm
from fedvi.inference.local_problem import Problem, Public, Solver
from fedvi.inference.questions import WIDEST_ROW, Answers, Question, numbers_of
from fedvi.inference.reading import Plan, choose_covariance, moments_needed, read
from fedvi.inference.server import ServerState
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.numerics import Array, namespace
from fedvi.privacy.budget import Budget, least_noise
from fedvi.privacy.events import gaussian
from fedvi.pytree import leaves, precision, put, pytree, repeat, static, take, tree_map
from fedvi.tables.layout import Layout

QUESTIONS = {"full": 14, "diagonal": 30}
"""How many questions are asked; equal noise in many answers costs no more than little noise in few."""

WITHOUT_PRIVACY = 20
"""Questions without privacy: Newton steps, most of them for tables that are nearly separable."""


@pytree
class Asked:
    """All questions asked so far, and what was read out of the answers when the last one was made.

    questions: stacked; there is room for all that are planned. count: how many were asked.
    arrived: how far q may still be from where it should be; it has arrived if that is at most `limit`.
    evidence_kept: share of the evidence about each weight that noise has left.
    noise_variance: of a linear model. trusted: 1, or 0 if the intervals are not to be trusted.
    """

    questions: Question
    count: Int[Array, ""]
    posterior: GaussianFamily
    arrived: Float[Array, ""]
    limit: Float[Array, ""]
    evidence_kept: Float[Array, " d"]
    noise_variance: Float[Array, ""]
    trusted: Float[Array, ""]


@pytree
class Asking(Problem):
    """The local problem of a site that was asked: `start` is the question, `base` its answers so far."""

    def is_proper(self) -> Any:
        """Tell whether the question has a proper q."""
        return self.start.is_proper()


@pytree
class NoiseAwarePVI(Algorithm):
    """PVI by questions and answers that carry their noise along: the choice for private fits, and for honest intervals.

    Its noise follows from the budget: `simulate(..., algorithm=NoiseAwarePVI(), privacy=Budget(0.5))`.

    solver: `Answers()`, or `Answers(FullBatch())` for no privacy.
    covariance: `full` for true intervals; `diagonal` for prediction with many columns and little privacy; `auto` to
        choose from public numbers.
    questions, moments: how many, and how many of them ask for moments of the rows; 0 for the plan's own choice.
    intercept: whether the first column of x is 1. bound: features lie within it.
    exclusive: groups of columns of which at most one is not zero, such as the levels of a category.
    reserve: how many of the questions are asked only after a site was withdrawn, in a real federation.
    """

    solver: Solver[Any] = field(default_factory=Answers)
    covariance: str = static(default="auto")
    questions: int = static(default=0)
    moments: int = static(default=0)
    intercept: bool = static(default=False)
    bound: float = static(default=8.0)
    exclusive: tuple[tuple[int, ...], ...] = static(default=())
    reserve: int = static(default=0)

    asks: ClassVar[bool] = True
    damping: ClassVar[float] = 1.0  # type: ignore[misc]
    repair: ClassVar[bool] = False  # type: ignore[misc]
    client_level: ClassVar[None] = None  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("covariance", self.covariance, ("auto", "full", "diagonal"))
        whole("questions", self.questions, 0)
        whole("moments", self.moments, 0)
        in_range("bound", self.bound, 0, open_low=True)
        if getattr(self.solver.mechanism, "clips", "likelihood") != "likelihood":
            raise InputError("Noise-aware PVI needs a mechanism with clips='likelihood', got clips='loss'.")

    @property
    def private(self) -> bool:
        """Whether answers have noise."""
        return self.solver.mechanism.private

    def laid_out(self, layout: Layout) -> Self:
        """Return the algorithm for columns of which that is public."""
        return dataclasses.replace(self, intercept=layout.intercept, bound=layout.bound, exclusive=layout.exclusive)

    def planned(
        self, dim: int, public_rows: Sequence[int], budgets: Sequence[Budget] | None, updates: float = math.inf
    ) -> Self:
        """Return the algorithm with all that was left open chosen, from public numbers."""
        rows, covariance = sum(public_rows), self.covariance
        if not self.private:
            covariance = "full" if covariance == "auto" else covariance
        elif covariance == "auto":
            usual = self._number("full", updates)
            covariance = choose_covariance(rows, dim, self._noise(dim, "full", usual, len(public_rows), budgets), usual)
        questions = self._number(covariance, updates)
        chosen = dataclasses.replace(self, covariance=covariance, questions=questions, moments=self.moments)
        if self.moments or not self.private:
            return chosen
        noise = self._noise(dim, covariance, questions, len(public_rows), budgets)
        return dataclasses.replace(chosen, moments=moments_needed(rows, noise, dim, questions, covariance))

    def _number(self, covariance: str, updates: float) -> int:
        """Return how many questions to ask."""
        usual = QUESTIONS[covariance] if self.private else WITHOUT_PRIVACY
        return self.questions or (usual if math.isinf(updates) else max(int(updates), 2))

    def _noise(self, dim: int, covariance: str, questions: int, sites: int, budgets: Sequence[Budget] | None) -> float:
        """Return the sum over sites of the squared noise multiplier of an answer."""
        if self.solver.mechanism.noise_multiplier is not None:
            return sites * float(self.solver.mechanism.noise_multiplier) ** 2
        if budgets is None:
            raise InputError("Expected a privacy budget, or a mechanism with a noise_multiplier, got neither.")
        one = gaussian(1.0, 1, numbers_of(dim, full=covariance == "full"))
        return sum(least_noise(one, questions, budget) ** 2 for budget in budgets)

    @property
    def plan(self) -> Plan:
        """The plan, once everything is chosen (`planned`)."""
        if self.covariance == "auto" or not self.questions:
            raise InputError("Expected an algorithm that was planned: call planned(dim, public_rows, budgets).")
        layout = self.intercept, self.bound, self.exclusive
        return Plan(self.questions, self.moments, self.covariance, *layout, self.reserve)

    @property
    def most_updates(self) -> float:
        """As many as there are questions."""
        return self.questions or super().most_updates

    def problem(self, public: Public, q: Any, factor: Any) -> Problem:
        """Answer the question that came."""
        return Asking(start=q, removed=q, base=factor)

    def check_sent(self, sent: Any, feature_bound: float) -> None:
        """Raise unless a question may be answered: all of it is finite, and its q is not beyond all sense."""
        require_proper(sent.q, "posterior that the client received")
        found = float(extent(sent.q)) * WIDEST_ROW
        finite = all(bool(np.isfinite(leaf).all()) for leaf in leaves(tree_map(np.asarray, sent)))
        if not finite or not found <= LARGEST_PREDICTOR:
            raise InputError(f"Expected a question that rows can answer, got one with predictors up to {found:.3g}.")

    def first_factor(self, prior: GaussianFamily) -> Messages:
        """Return no answers."""
        xp, questions, dtype = namespace(prior.natural_mean), self.plan.questions, prior.natural_mean.dtype
        nothing = xp.zeros(questions, dtype)
        return Messages(xp.zeros((questions, self.numbers(prior)), dtype), nothing, nothing)

    def numbers(self, prior: GaussianFamily) -> int:
        """Return how many numbers an answer has."""
        return numbers_of(prior.dim, full=self.plan.covariance == "full")

    def first_asked(self, model: Any, prior: GaussianFamily) -> Asked:
        """Return the first question, before anybody has answered."""
        return self._read(model, prior, None, tree_map(np.asarray, self.first_factor(prior)))

    def asked_next(self, model: Any, state: ServerState, *, more: bool = True) -> Asked:
        """Return what is read out of all answers so far, and the next question if there is to be one. In NumPy."""
        own = tree_map(np.asarray, state)
        return self._read(model, own.prior, own.asked, own.product * own.lost, more=more)

    def _read(
        self,
        model: LinearPredictorModel,
        prior: GaussianFamily,
        asked: Asked | None,
        answers: Any,
        *,
        more: bool = True,
    ) -> Asked:
        count = 0 if asked is None else int(asked.count)
        questions = [] if asked is None else [take(asked.questions, k) for k in range(count)]
        dtype = precision()
        reading = read(self.plan, model, prior, questions, answers)

        def rounded(tree: Any) -> Any:
            return tree_map(lambda leaf: np.asarray(leaf, dtype), tree)

        stacked = None if asked is None else asked.questions
        if more and reading.question is not None:
            question = rounded(reading.question)
            stacked = repeat(question, self.plan.questions) if stacked is None else put(stacked, count, question)
            count += 1
        made: Callable[..., Asked] = Asked  # of NumPy's arrays
        return made(
            questions=stacked,
            count=np.asarray(count, np.int32),
            posterior=rounded(reading.posterior),
            arrived=np.asarray(reading.arrived, dtype),
            limit=np.asarray(reading.limit, dtype),
            evidence_kept=np.asarray(reading.evidence_kept, dtype),
            noise_variance=np.asarray(reading.noise_variance, dtype),
            trusted=np.asarray(float(reading.trusted), dtype),
        )
