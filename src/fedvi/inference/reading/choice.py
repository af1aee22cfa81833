"""Which reading it is: `read`."""

from __future__ import annotations

from collections.abc import Sequence

from fedvi.families.base import GaussianFamily
from fedvi.families.messages import Messages
from fedvi.inference.question import Question
from fedvi.inference.reading.base import Plan, Reading
from fedvi.inference.reading.diagonal import read_diagonal
from fedvi.inference.reading.exact import read_exact
from fedvi.inference.reading.full import read_full
from fedvi.models.linear_predictor import LinearPredictorModel


def read(
    plan: Plan, model: LinearPredictorModel, prior: GaussianFamily, questions: Sequence[Question], messages: Messages
) -> Reading:
    """Return the posterior and the next question: a pure function of what is public and what was released."""
    private = read_full if plan.covariance == "full" else read_diagonal
    how = read_exact if plan.moments == 0 else private
    return how(plan, model, prior, questions, messages)
