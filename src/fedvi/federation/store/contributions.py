"""What each site contributes to q, and what remains of a site that was withdrawn: computed from the coordinator's file.

    q         read(prior, questions, sum of all sites' answers)
    q / t_m   read(prior, questions, the same without the answers of site m and of its further tables)

It is post-processing, one reading per site, in NumPy. `Snapshot.of` looks at the file once; the rest needs no file.

**What remains.** The answers of a withdrawn site leave q. But the others have answered questions that were asked with
it in q, and slopes are taken, and rows cut, around those questions: also for a linear model. So q is not that of a
federation which never had the site. What was asked since depends on the others alone, and so does

    r = read(prior, questions, the others' answers about moments, and to questions asked since)

KL(q || r) estimates what remains. With d coefficients, noise alone explains about d / 2 nats: r has less evidence.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import cast

import numpy as np

from fedvi.errors import FedviError
from fedvi.families.base import GaussianFamily
from fedvi.families.messages import Messages
from fedvi.federation.description import Description
from fedvi.federation.names import base_name
from fedvi.federation.store.file import CoordinatorFile, first_of
from fedvi.federation.store.records import Applied, SiteRecord
from fedvi.federation.store.records import Reading as Read
from fedvi.federation.wire import PAUSED, WORKING
from fedvi.inference.asking import Asked
from fedvi.inference.reading import read
from fedvi.inference.reading.base import Reading
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import from_json
from fedvi.pytree import take, tree_map
from fedvi.tables.encode import encode
from fedvi.tables.schema import Schema


@dataclasses.dataclass(frozen=True)
class Change:
    """A coefficient of q, and how much of it is there by a site: with its answers, less without."""

    feature: str
    mean: float
    sd: float
    mean_change: float
    sd_change: float


@dataclasses.dataclass(frozen=True)
class Withdrawal:
    """What remains of a site that was withdrawn, in nats.

    moved: KL of the first q without it to the last one with it; None before it was read. answered: questions that were
    asked since then, and answered. remains: the estimate; None if there is none. noise: what noise alone explains.
    """

    moved: float | None
    answered: int
    remains: float | None
    noise: float
    words: str


@dataclasses.dataclass(frozen=True)
class Contribution:
    """What the answers of a site change; of a withdrawn one: what they changed when it was.

    tables: the site's names. rows: as declared. answers: that q was read out of. kl: KL(q || q without it), in nats.
    evidence_kept: of the evidence of the others, the share that noise leaves; the mean over coefficients.
    mean_prediction, largest_prediction: changes of predictions for public rows, without signs; None without such rows.
    withdrawn: when it was, if it was. withdrawal: what remains of it.
    problem: why there is no kl.
    """

    site: str
    tables: tuple[str, ...]
    rows: int
    answers: int
    kl: float | None = None
    evidence_kept: float | None = None
    changes: tuple[Change, ...] = ()
    mean_prediction: float | None = None
    largest_prediction: float | None = None
    withdrawn: float | None = None
    withdrawal: Withdrawal | None = None
    problem: str = ""

    @property
    def words(self) -> str:
        """What remains of it, or why there is nothing to say."""
        return self.problem if self.withdrawal is None else self.withdrawal.words

    @property
    def largest_changes(self) -> list[Change]:
        """The changes, that of the most standard deviations first."""
        return sorted(self.changes, key=lambda each: -abs(each.mean_change) / each.sd)


def contributions_of(store: CoordinatorFile, test: Path | None = None) -> tuple[Contribution, ...]:
    """Return what every site contributes to the q of the last reading. test: a public table of rows to predict."""
    return Snapshot.of(store).contributions(None if test is None else public_rows(store.description.schema, test)[0])


def public_rows(schema: Schema, table: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return features and outcomes of a public table."""
    x, y = encode(schema, table).rows
    return np.asarray(x, np.float64), y


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """All that was released, and what was read when: the coordinator's file at one moment."""

    description: Description
    sites: tuple[SiteRecord, ...]
    applied: tuple[Applied, ...]
    readings: tuple[Read, ...]
    factors: Messages
    asked: Asked

    @classmethod
    def of(cls, store: CoordinatorFile) -> Snapshot:
        """Return what is in the file now."""
        with store.at_once():
            past = tuple(store.applied()), tuple(store.readings())
            return cls(store.description, store.sites(), *past, store.factors(), store.asked)

    @property
    def model(self) -> LinearPredictorModel:
        """The model, as it is assumed to be."""
        return cast(LinearPredictorModel, self.description.spec.model)

    def contributions(self, x: np.ndarray | None = None, only: str = "") -> tuple[Contribution, ...]:
        """Return what every site contributes. x: public rows to predict. only: a site, or one of its tables."""
        groups = defaultdict[tuple[str, float | None], list[int]](list)
        for place, site in enumerate(self.sites):
            if belongs(site.name, only or site.name):
                groups[base_name(site.name), site.withdrawn].append(place)
        with np.errstate(all="ignore"):
            return tuple(self._contribution(name, places, x) for (name, _), places in groups.items())

    def _contribution(self, name: str, places: Sequence[int], x: np.ndarray | None) -> Contribution:
        sites = [self.sites[place] for place in places]
        after = sites[0].withdrawn_after
        reading = next((each for each in reversed(self.readings) if after is None or each.number <= after), None)
        counts = [0] * len(self.sites) if reading is None else reading.seen(self.sites, self.applied)
        found = Contribution(
            site=name,
            tables=tuple(site.name for site in sites),
            rows=sum(site.declared.rows for site in sites if site.declared is not None),
            answers=sum(counts[place] for place in places),
            withdrawn=sites[0].withdrawn,
        )
        if not found.answers:
            return dataclasses.replace(found, problem="None of its answers has been read.")
        try:
            whole = self._whole(tuple(counts))
            without = self._read([0 if place in places else count for place, count in enumerate(counts)])
            withdrawal = None if after is None else self._withdrawal(after)
            changes = _changes(self.description.schema.features, whole.posterior, without.posterior)
            predicted = None if x is None else np.abs(self._predicted(whole, x) - self._predicted(without, x))
        except (ValueError, ArithmeticError) as error:  # LinAlgError too
            return dataclasses.replace(found, problem=f"q cannot be read without it: {error}")
        return dataclasses.replace(
            found,
            kl=float(whole.posterior.kl(without.posterior)),
            evidence_kept=float(np.mean(without.evidence_kept)),
            changes=changes,
            mean_prediction=None if predicted is None else float(predicted.mean()),
            largest_prediction=None if predicted is None else float(predicted.max()),
            withdrawal=withdrawal,
        )

    def _withdrawal(self, after: int) -> Withdrawal:
        """Return what remains of a site whose answers are in the readings up to number `after`."""
        asked = max((each.asked for each in self.readings if each.number <= after), default=1)
        later = [each for each in self.readings if each.number > after]
        noise, remains, answered = noise_alone(self.description.schema.dim), None, 0
        if later:
            counts = later[-1].seen(self.sites, self.applied)
            answered = max(0, max(counts) - asked)
            if answered and self.description.plan.covariance == "full":
                fresh = self._read(counts, since=asked)
                remains = float(self._whole(tuple(counts)).posterior.kl(fresh.posterior))
        moved = later[0].change if later else None
        return Withdrawal(moved, answered, remains, noise, _in_words(moved, answered, remains, noise))

    @cached_property
    def _whole(self) -> Callable[[tuple[int, ...]], Reading]:
        """What so many answers of each site say, read once."""
        return cache(self._read)

    def _read(self, counts: Sequence[int], since: int = 0) -> Reading:
        """Return what so many first answers of each site say; of those about slopes, from question `since` on."""
        plan, answers = self.description.plan, first_of(self.factors, counts)
        total = tree_map(lambda leaf: np.sum(np.asarray(leaf, np.float64), axis=0), answers)
        number = np.arange(len(total.rows))
        kept = (number < plan.moments) | (number >= since)
        total = Messages(total.sums * kept[:, None], total.noise * kept, total.rows * kept)
        questions = [take(self.asked.questions, place) for place in range(int(self.asked.count))]
        return read(plan, self.model, self.description.spec.prior, questions, total)

    def _predicted(self, found: Reading, x: np.ndarray) -> np.ndarray:
        """Return probabilities, or expected numbers in their own units."""
        columns = self.model.learned(found.noise_variance).predictions(found.posterior, x, 0.9)
        return self.description.schema.target.decode(**{name: np.asarray(each) for name, each in columns.items()}).mean


def belongs(name: str, site: str) -> bool:
    """Tell whether a table is a site's: `north` has `north.2` too."""
    return site in (name, base_name(name))


def noise_alone(coefficients: int) -> float:
    """Return how many nats noise alone explains between two readings, one of much less evidence."""
    return coefficients / 2 * (1 + 2 * math.sqrt(2 / coefficients))


def _changes(features: Sequence[str], q: GaussianFamily, without: GaussianFamily) -> tuple[Change, ...]:
    columns = q.mean, q.std, q.mean - without.mean, q.std - without.std
    numbers = np.stack([np.asarray(each, np.float64) for each in columns], axis=1).tolist()
    return tuple(Change(feature, *row) for feature, row in zip(features, numbers, strict=True))


def _in_words(moved: float | None, answered: int, remains: float | None, noise: float) -> str:
    if moved is None:
        return "Its answers leave q with the next reading."
    size = f"{moved:.3g}" if moved < 100 else f"{moved:,.0f}"
    said = f"q moved by {size} nats, KL(new || old), when its answers were taken out."
    questions = "1 question" if answered == 1 else f"{answered} questions"
    if not answered:
        return (
            f"{said} The others have answered questions that were asked with it in q. What remains of that cannot be "
            "estimated before they answer one that was asked since."
        )
    if remains is None:
        return (
            f"{said} {questions} asked since were answered. What remains cannot be estimated where the diagonal of the "
            "covariance is read only: there q follows new answers slowly, and old ones count for long."
        )
    more = "More remains than noise explains. More questions would lessen it; a new federation would have none of it."
    verdict = "What remains cannot be told from noise." if remains <= noise else more
    return (
        f"{said} {questions} asked since were answered. Estimate of what remains: {remains:.2g} nats, from q to what "
        f"these answers say alone; noise explains up to about {noise:.2g}. {verdict}"
    )


@dataclasses.dataclass(frozen=True)
class Price:
    """What more questions cost a site, by what it has declared: nobody else can check it.

    answers: so far. able: whether it answers any more. epsilon: spent so far. epsilon_after: with all questions that
    may be asked then; None if that cannot be computed from what it declares. epsilon_max: of its budget.
    """

    site: str
    state: str
    answers: int
    able: bool
    epsilon: float | None = None
    epsilon_after: float | None = None
    epsilon_max: float | None = None


def prices_of(store: CoordinatorFile, leaving: Sequence[str], refresh: int) -> list[Price]:
    """Return what so many questions more cost the sites that stay."""
    planned = store.description.spec.updates
    stay = [site for site in store.sites() if site.withdrawn is None and site.name not in leaving]
    return [_price(site, planned, min(store.most_questions + refresh, planned)) for site in stay]


def _price(site: SiteRecord, planned: int, questions: int) -> Price:
    able = site.state in (WORKING, PAUSED) and site.sequence < planned
    own, said = Price(site.name, site.state, site.sequence, able), site.declared
    if said is None:
        return own
    after = None
    if able and len(said.events) == 1:
        event = dict(said.events[0])
        with contextlib.suppress(FedviError, ValueError, ArithmeticError):  # it may declare anything
            count = max(int(event.pop("count", 0)), questions)
            after = Budget(said.epsilon_max, said.delta).spent({from_json(event): count})
    return dataclasses.replace(own, epsilon=said.epsilon, epsilon_after=after, epsilon_max=said.epsilon_max)
