"""How a posterior was read: the plan, the questions, and what the answers of all sites say.

    posterior = read(plan, model, prior, questions, sum of the sites' answers)

Anybody who has the file can read again (`Fitted.verify`). The answers say whether the fit has arrived where it should
be, how much of the evidence noise has left, and whether intervals are to be trusted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedvi.config import Allow, build, fill, plain
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.families.full import FullGaussian
from fedvi.families.mean_field import Gaussian
from fedvi.families.messages import Messages
from fedvi.fitting.posterior_file import part_of
from fedvi.inference.question import Question, numbers_of
from fedvi.inference.reading.base import Plan, Reading, in_words
from fedvi.models.base import Model
from fedvi.pytree import leaves, take, tree_map

NUMBERS = ("limit", "noise_variance", "trusted", "reason")
PUBLIC_NUMBERS = ("reach", "slope_weight", "curvature_weight", "extra_weight", "moments", "noise_variance")


@dataclasses.dataclass(frozen=True)
class Answered:
    """Questions and what answers to them say.

    model: as it was assumed to be, before anything was learned. questions: stacked, as they were asked.
    arrived: with privacy T, what is left of the slope over what noise explains; without, the size of the next Newton
        step in standard deviations. The fit has arrived if it is at most `limit`.
    evidence_kept: by weight. noise_variance: of a linear model, as learned.
    trusted: whether intervals can be expected to cover what they say; if not, `reason` says why.
    """

    plan: Plan
    model: Model
    questions: Question
    arrived: float
    limit: float
    evidence_kept: np.ndarray
    noise_variance: float
    trusted: bool = True
    reason: str = ""

    @classmethod
    def read(
        cls, plan: Plan, model: Any, prior: GaussianFamily, questions: Question, factors: Messages
    ) -> tuple[Answered, GaussianFamily]:
        """Return what sites' answers say, and the posterior. factors: stacked over sites. In NumPy."""
        reading = _read(plan, model, prior, questions, factors)
        numbers = reading.arrived, reading.limit, reading.evidence_kept, reading.noise_variance
        own = cls(plan, model, questions, *numbers, reading.trusted, reading.reason)
        return own, reading.posterior

    def again(self, prior: GaussianFamily, factors: Any) -> Reading:
        """Read the same answers once more; raise `InputError` if they cannot be read."""
        try:
            with np.errstate(all="ignore"):
                return _read(self.plan, self.model, prior, self.questions, factors)
        except (ArithmeticError, ValueError) as error:  # LinAlgError too
            raise InputError(f"Expected answers that can be read in the posterior file, got: {error}.") from None

    @property
    def header(self) -> dict[str, Any]:
        """All but the arrays as plain values, for the header of a file."""
        own = {name: getattr(self, name) for name in NUMBERS}
        plan = {key: value for key, value in plain(self.plan).items() if key != "kind"}
        arrived = self.arrived if math.isfinite(self.arrived) else None
        return {**own, "arrived": arrived, "plan": plan, "model": plain(self.model)}

    @classmethod
    def of_file(cls, header: Mapping[str, Any], arrays: dict[str, np.ndarray], kinds: Allow) -> Answered:
        """Return what the header and the arrays of a file say."""
        plan = fill(Plan, header["plan"], "plan")
        questions = part_of("questions", Question, arrays, q=FullGaussian if plan.covariance == "full" else Gaussian)
        own = {name: header[name] for name in NUMBERS} | {"evidence_kept": arrays["evidence_kept"]}
        arrived = math.inf if header["arrived"] is None else float(header["arrived"])
        return cls(plan, build(header["model"], "model", allow=kinds), questions, arrived, **own)

    def shapes(self, columns: int, sites: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes that arrays of a `Fitted` must have, by their place in it."""
        asked, full = self.plan.questions, self.plan.covariance == "full"
        count = min(len(self.questions.centre), asked)
        own = {
            "evidence_kept": (columns,),
            "questions.centre": (count, columns),
            "questions.whitening": (count, columns, columns) if full else (count, columns),
            "questions.q.natural_mean": (count, columns),
            "questions.q.precision": (count, columns, columns) if full else (count, columns),
            **{f"questions.{name}": (count,) for name in PUBLIC_NUMBERS},
        }
        sums = (sites, asked, numbers_of(columns, full=full))
        answers = {"factors.sums": sums, "factors.noise": sums[:2], "factors.rows": sums[:2]}
        return answers | {f"answered.{name}": shape for name, shape in own.items()}

    @property
    def private(self) -> bool:
        """Whether answers have noise."""
        return self.plan.moments > 0

    @property
    def converged(self) -> bool:
        """Whether the fit has arrived where it should be."""
        return self.arrived <= self.limit

    @property
    def convergence(self) -> str:
        """Whether the fit has arrived, in plain words."""
        return in_words(self.arrived, self.limit, noisy=self.private)

    @property
    def warnings(self) -> list[str]:
        """Return what to know before intervals are believed; empty if there is nothing."""
        found = []
        if not self.converged:
            more = "with more questions, a larger budget or fewer columns" if self.private else "with more questions"
            found.append(f"{self.convergence} Means and intervals are not to be trusted. Fit again {more}.")
        if not self.trusted:
            only = (
                " Use it for predictions, or fit with covariance 'full'." if self.plan.covariance == "diagonal" else ""
            )
            found.append(f"Intervals are not to be trusted: {self.reason or 'the reading says so'}.{only}")
        return found


def _read(plan: Plan, model: Any, prior: GaussianFamily, questions: Question, factors: Messages) -> Reading:
    """Return the reading of stacked factors; answers are summed in double precision."""
    from fedvi.inference.reading.choice import read  # predictions do without

    total = tree_map(lambda leaf: np.sum(np.asarray(leaf, np.float64), axis=0), factors)
    stacked = tree_map(np.asarray, questions)
    asked = [take(stacked, number) for number in range(len(leaves(stacked)[0]))]
    return read(plan, model, tree_map(np.asarray, prior), asked, total)
